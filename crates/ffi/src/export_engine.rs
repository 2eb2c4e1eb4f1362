//! C functions of the engine as a whole: opening, settings, and the tables' names.

use std::ffi::c_void;
use std::path::PathBuf;
use std::sync::Arc;

use rrd_store::engine::TEMPORARY_PREFIX;
use rrd_store::fs::os::OsFs;
use rrd_store::{Config, Engine, FlushLog};

use crate::abi::{RrdConfig, RrdError, RrdPauseFn, RrdTableDefinition, RrdText, RrdTextFn};
use crate::connections::Connections;
use crate::definition::{Definition, read_text};
use crate::guard::{get, guard, guard_close};
use crate::lock_waits::Formats;
use crate::status::{Failure, Outcome};

/// The engine of a server.
pub struct RrdEngine {
    pub(crate) engine: Arc<Engine>,
    pub(crate) connections: Arc<Connections>,
    pub(crate) formats: Formats,
}

fn flush_log(mode: u32) -> FlushLog {
    match mode {
        0 => FlushLog::EverySecond,
        2 => FlushLog::Write,
        _ => FlushLog::Sync,
    }
}

fn bytes(count: u64) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}

/// From now on long waits are told to `pause`, on the threads that wait; a second call changes nothing.
///
/// # Safety
/// `pause` is null or a function that any thread may call until the process ends.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_report_pauses(pause: RrdPauseFn) {
    if let Some(pause) = pause {
        // SAFETY: promised by the caller.
        guard_close(|| rrd_store::pause::report_to(Box::new(move |begins| unsafe { pause(begins) })));
    }
}

/// Opens the data folder, made if missing. The handle goes to `out`; close it with [`rrd_engine_close`].
///
/// # Safety
/// Pointers are null or valid; texts are as long as they say.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_engine_open(
    config: *const RrdConfig,
    out: *mut *mut RrdEngine,
    error: *mut RrdError,
) -> i32 {
    // SAFETY: promised by the caller, in the whole body.
    unsafe {
        guard(error, || {
            let config = get(config)?;
            let out = crate::guard::get_mut(out)?;
            let directory = config.directory.bytes().ok_or_else(|| Failure::internal("no data folder"))?;
            let mut settings = Config::new(PathBuf::from(os_string(directory)));
            settings.memtable_bytes = bytes(config.memtable_bytes);
            settings.cache_bytes = bytes(config.cache_bytes);
            settings.flush_log = flush_log(config.flush_log);
            let engine = Engine::open(settings, Arc::new(OsFs))?;
            drop_temporary_tables(&engine)?;
            *out =
                Box::into_raw(Box::new(RrdEngine { engine, connections: Arc::default(), formats: Formats::default() }));
            Ok(())
        })
    }
}

pub(crate) fn os_string(bytes: &[u8]) -> std::ffi::OsString {
    use std::os::unix::ffi::OsStringExt;
    std::ffi::OsString::from_vec(bytes.to_vec())
}

fn drop_temporary_tables(engine: &Engine) -> Outcome<()> {
    engine.forget_prepared_in_temporary_tables()?;
    for name in engine.table_names().iter().filter(|name| name.starts_with(TEMPORARY_PREFIX)) {
        engine.drop_table(name)?;
    }
    Ok(())
}

/// Makes everything durable, stops the threads and frees the handle; tables and sessions must be closed.
///
/// # Safety
/// `engine` is null or came from [`rrd_engine_open`] and is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_engine_close(engine: *mut RrdEngine, error: *mut RrdError) -> i32 {
    if engine.is_null() {
        return crate::abi::RRD_OK;
    }
    let mut status = crate::abi::RRD_OK;
    guard_close(|| {
        // SAFETY: promised by the caller.
        let handle = unsafe { Box::from_raw(engine) };
        // SAFETY: as above.
        status = unsafe { guard(error, || Ok(handle.engine.close()?)) };
    });
    status
}

/// Sets `rrd_flush_log_at_trx_commit`.
///
/// # Safety
/// `engine` is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_engine_set_flush_log(engine: *const RrdEngine, mode: u32) {
    // SAFETY: promised by the caller.
    let _ = unsafe {
        guard(std::ptr::null_mut(), || {
            get(engine)?.engine.set_flush_log(flush_log(mode));
            Ok(())
        })
    };
}

/// Sets `rrd_memtable_size`.
///
/// # Safety
/// `engine` is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_engine_set_memtable_bytes(engine: *const RrdEngine, count: u64) {
    // SAFETY: promised by the caller.
    let _ = unsafe {
        guard(std::ptr::null_mut(), || {
            get(engine)?.engine.set_memtable_bytes(bytes(count));
            Ok(())
        })
    };
}

/// Sets `rrd_cache_size`.
///
/// # Safety
/// `engine` is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_engine_set_cache_bytes(engine: *const RrdEngine, count: u64) {
    // SAFETY: promised by the caller.
    let _ = unsafe {
        guard(std::ptr::null_mut(), || {
            get(engine)?.engine.set_cache_bytes(bytes(count));
            Ok(())
        })
    };
}

/// Sets `rrd_lock_memory_size`. Before the first call row locks have no limit.
///
/// # Safety
/// `engine` is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_engine_set_lock_bytes(engine: *const RrdEngine, count: u64) {
    // SAFETY: promised by the caller.
    let _ = unsafe {
        guard(std::ptr::null_mut(), || {
            get(engine)?.engine.set_lock_bytes(count);
            Ok(())
        })
    };
}

/// Makes a session that waits for a row lock look at once whether its statement was killed; from any thread.
///
/// # Safety
/// `engine` is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_engine_wake(engine: *const RrdEngine, session_id: u64) {
    // SAFETY: promised by the caller.
    let _ = unsafe {
        guard(std::ptr::null_mut(), || {
            get(engine)?.engine.wake(session_id);
            Ok(())
        })
    };
}

/// Makes a table. The definition's options are read and checked here.
///
/// # Safety
/// Pointers are null or valid, in the definition too.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_table_create(
    engine: *const RrdEngine,
    name: RrdText,
    definition: *const RrdTableDefinition,
    error: *mut RrdError,
) -> i32 {
    // SAFETY: promised by the caller.
    unsafe {
        guard(error, || {
            let definition = Definition::read(get(definition)?)?;
            let schema = definition.new_schema()?;
            definition.check_guess(&schema)?;
            Ok(get(engine)?.engine.create_table(&read_text(name), schema)?)
        })
    }
}

/// Removes a table: `with_prepared` also one that prepared transactions have written to, whose writes to it are lost.
///
/// # Safety
/// Pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_table_drop(
    engine: *const RrdEngine,
    name: RrdText,
    with_prepared: bool,
    error: *mut RrdError,
) -> i32 {
    // SAFETY: promised by the caller.
    unsafe {
        guard(error, || {
            let (engine, name) = (&get(engine)?.engine, read_text(name));
            match with_prepared {
                true => engine.drop_table_with_prepared(&name)?,
                false => engine.drop_table(&name)?,
            }
            Ok(())
        })
    }
}

/// Calls `table` with the name ("database/table") of each table that the server has no definition of.
///
/// # Safety
/// Pointers are null or valid; `table` may be called with `context`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_tables_without_definition(
    engine: *const RrdEngine,
    table: RrdTextFn,
    context: *mut c_void,
    error: *mut RrdError,
) -> i32 {
    // SAFETY: promised by the caller.
    unsafe {
        guard(error, || {
            for name in get(engine)?.engine.tables_without_definition() {
                if let Some(table) = table {
                    table(context, name.as_ptr().cast(), name.len());
                }
            }
            Ok(())
        })
    }
}

/// Removes the partitions of a table that the server has no definition of; `RRD_NO_SUCH_TABLE` if there are none.
///
/// # Safety
/// Pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_table_drop_without_definition(
    engine: *const RrdEngine,
    name: RrdText,
    error: *mut RrdError,
) -> i32 {
    // SAFETY: promised by the caller.
    unsafe { guard(error, || Ok(get(engine)?.engine.drop_without_definition(&read_text(name))?)) }
}

/// Renames a table.
///
/// # Safety
/// Pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_table_rename(
    engine: *const RrdEngine,
    from: RrdText,
    to: RrdText,
    error: *mut RrdError,
) -> i32 {
    // SAFETY: promised by the caller.
    unsafe { guard(error, || Ok(get(engine)?.engine.rename_table(&read_text(from), &read_text(to))?)) }
}

/// Removes all rows of a table.
///
/// # Safety
/// Pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_table_truncate(engine: *const RrdEngine, name: RrdText, error: *mut RrdError) -> i32 {
    // SAFETY: promised by the caller.
    unsafe { guard(error, || Ok(get(engine)?.engine.truncate_table(&read_text(name))?)) }
}

/// Removes all tables of a database; `prefix` is its name with a slash.
///
/// # Safety
/// Pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_database_drop(engine: *const RrdEngine, prefix: RrdText, error: *mut RrdError) -> i32 {
    // SAFETY: promised by the caller.
    unsafe {
        guard(error, || {
            let (engine, prefix) = (&get(engine)?.engine, read_text(prefix));
            for name in engine.table_names().iter().filter(|name| name.starts_with(&prefix)) {
                engine.drop_table(name)?;
            }
            Ok(())
        })
    }
}
