//! C functions of the engine as a whole: opening, settings, and the tables' names.

use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::path::PathBuf;
use std::sync::Arc;

use rrd_store::engine::TEMPORARY_PREFIX;
use rrd_store::fs::os::OsFs;
use rrd_store::{Config, Engine, FlushLog};

use crate::abi::{RrdConfig, RrdError, RrdPauseFn, RrdTableDefinition, RrdText, RrdTextFn, texts_to};
use crate::connections::Connections;
use crate::definition::{Definition, read_text};
use crate::guard::{get, guard, guard_close, guard_value};
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
/// `pause` is null, or any thread may call it until the process ends.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_report_pauses(pause: RrdPauseFn) {
    if let Some(pause) = pause {
        // SAFETY: the caller lets any thread call it until the process ends.
        guard_close(|| rrd_store::pause::report_to(Box::new(move |begins| unsafe { pause(begins) })));
    }
}

/// Opens the data folder, made if missing. The handle goes to `out`; close it with [`rrd_engine_close`].
///
/// # Safety
/// Rules `handles`, `answers`, `arrays` and `texts` of `abi.rs`.
#[unsafe(no_mangle)]
pub extern "C" fn rrd_engine_open(
    config: Option<&RrdConfig<'_>>,
    out: Option<&mut MaybeUninit<Option<Box<RrdEngine>>>>,
    error: Option<&mut MaybeUninit<RrdError>>,
) -> i32 {
    guard(error, || {
        let config = get(config)?;
        let out = get(out)?;
        let directory = config.directory.bytes().ok_or_else(|| Failure::internal("no data folder"))?;
        let mut settings = Config::new(PathBuf::from(os_string(directory)));
        settings.memtable_bytes = bytes(config.memtable_bytes);
        settings.cache_bytes = bytes(config.cache_bytes);
        settings.flush_log = flush_log(config.flush_log);
        let engine = Engine::open(settings, Arc::new(OsFs))?;
        drop_temporary_tables(&engine)?;
        engine.give_memory_back_with(Box::new(give_memory_back));
        out.write(Some(Box::new(RrdEngine { engine, connections: Arc::default(), formats: Formats::default() })));
        Ok(())
    })
}

/// Has the C library give memory back to the system that nobody uses.
fn give_memory_back() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        // SAFETY: it is what the C library declares, and may be called from any thread at any time.
        unsafe extern "C" {
            safe fn malloc_trim(pad: usize) -> std::ffi::c_int;
        }
        malloc_trim(0);
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
/// Rules `handles` and `answers` of `abi.rs`.
#[unsafe(no_mangle)]
pub extern "C" fn rrd_engine_close(engine: Option<Box<RrdEngine>>, error: Option<&mut MaybeUninit<RrdError>>) -> i32 {
    let Some(handle) = engine else { return crate::abi::RRD_OK };
    let mut status = crate::abi::RRD_OK;
    guard_close(|| status = guard(error, || Ok(handle.engine.close()?)));
    status
}

/// Sets `rrd_flush_log_at_trx_commit`.
///
/// # Safety
/// Rule `handles` of `abi.rs`.
#[unsafe(no_mangle)]
pub extern "C" fn rrd_engine_set_flush_log(engine: Option<&RrdEngine>, mode: u32) {
    guard_value((), || {
        get(engine)?.engine.set_flush_log(flush_log(mode));
        Ok(())
    });
}

/// Sets `rrd_memtable_size`.
///
/// # Safety
/// Rule `handles` of `abi.rs`.
#[unsafe(no_mangle)]
pub extern "C" fn rrd_engine_set_memtable_bytes(engine: Option<&RrdEngine>, count: u64) {
    guard_value((), || {
        get(engine)?.engine.set_memtable_bytes(bytes(count));
        Ok(())
    });
}

/// Sets `rrd_cache_size`.
///
/// # Safety
/// Rule `handles` of `abi.rs`.
#[unsafe(no_mangle)]
pub extern "C" fn rrd_engine_set_cache_bytes(engine: Option<&RrdEngine>, count: u64) {
    guard_value((), || {
        get(engine)?.engine.set_cache_bytes(bytes(count));
        Ok(())
    });
}

/// Sets `rrd_lock_memory_size`. Before the first call row locks have no limit.
///
/// # Safety
/// Rule `handles` of `abi.rs`.
#[unsafe(no_mangle)]
pub extern "C" fn rrd_engine_set_lock_bytes(engine: Option<&RrdEngine>, count: u64) {
    guard_value((), || {
        get(engine)?.engine.set_lock_bytes(count);
        Ok(())
    });
}

/// Makes a session that waits for a row lock look at once whether its statement was killed; from any thread.
///
/// # Safety
/// Rule `handles` of `abi.rs`.
#[unsafe(no_mangle)]
pub extern "C" fn rrd_engine_wake(engine: Option<&RrdEngine>, session_id: u64) {
    guard_value((), || {
        get(engine)?.engine.wake(session_id);
        Ok(())
    });
}

/// Makes a table. The definition's options are read and checked here.
///
/// # Safety
/// Rules `handles`, `answers`, `arrays`, `texts` and `collations` of `abi.rs`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_table_create(
    engine: Option<&RrdEngine>,
    name: RrdText<'_>,
    definition: Option<&RrdTableDefinition<'_>>,
    error: Option<&mut MaybeUninit<RrdError>>,
) -> i32 {
    guard(error, || {
        // SAFETY: rule `arrays` for what the definition points to.
        let definition = unsafe { Definition::read(get(definition)?)? };
        let schema = definition.new_schema()?;
        definition.check_guess(&schema)?;
        Ok(get(engine)?.engine.create_table(&read_text(name), schema)?)
    })
}

/// Removes a table: `with_prepared` also one that prepared transactions have written to, whose writes to it are lost.
///
/// # Safety
/// Rules `handles`, `answers` and `texts` of `abi.rs`.
#[unsafe(no_mangle)]
pub extern "C" fn rrd_table_drop(
    engine: Option<&RrdEngine>,
    name: RrdText<'_>,
    with_prepared: bool,
    error: Option<&mut MaybeUninit<RrdError>>,
) -> i32 {
    guard(error, || {
        let (engine, name) = (&get(engine)?.engine, read_text(name));
        match with_prepared {
            true => engine.drop_table_with_prepared(&name)?,
            false => engine.drop_table(&name)?,
        }
        Ok(())
    })
}

/// Calls `table` with the name ("database/table") of each table that the server has no definition of.
///
/// # Safety
/// Rules `handles`, `answers` and `callbacks` of `abi.rs`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_tables_without_definition(
    engine: Option<&RrdEngine>,
    table: RrdTextFn,
    context: *mut c_void,
    error: Option<&mut MaybeUninit<RrdError>>,
) -> i32 {
    guard(error, || {
        // SAFETY: rule `callbacks`; it is used before the call ends.
        let mut tell = unsafe { texts_to(table, context) };
        get(engine)?.engine.tables_without_definition().iter().for_each(|name| tell(name.as_bytes()));
        Ok(())
    })
}

/// Removes the partitions of a table that the server has no definition of; `RRD_NO_SUCH_TABLE` if there are none.
///
/// # Safety
/// Rules `handles`, `answers` and `texts` of `abi.rs`.
#[unsafe(no_mangle)]
pub extern "C" fn rrd_table_drop_without_definition(
    engine: Option<&RrdEngine>,
    name: RrdText<'_>,
    error: Option<&mut MaybeUninit<RrdError>>,
) -> i32 {
    guard(error, || Ok(get(engine)?.engine.drop_without_definition(&read_text(name))?))
}

/// Renames a table.
///
/// # Safety
/// Rules `handles`, `answers` and `texts` of `abi.rs`.
#[unsafe(no_mangle)]
pub extern "C" fn rrd_table_rename(
    engine: Option<&RrdEngine>,
    from: RrdText<'_>,
    to: RrdText<'_>,
    error: Option<&mut MaybeUninit<RrdError>>,
) -> i32 {
    guard(error, || Ok(get(engine)?.engine.rename_table(&read_text(from), &read_text(to))?))
}

/// Removes all rows of a table.
///
/// # Safety
/// Rules `handles`, `answers` and `texts` of `abi.rs`.
#[unsafe(no_mangle)]
pub extern "C" fn rrd_table_truncate(
    engine: Option<&RrdEngine>,
    name: RrdText<'_>,
    error: Option<&mut MaybeUninit<RrdError>>,
) -> i32 {
    guard(error, || Ok(get(engine)?.engine.truncate_table(&read_text(name))?))
}

/// Removes all tables of a database; `prefix` is its name with a slash.
///
/// # Safety
/// Rules `handles`, `answers` and `texts` of `abi.rs`.
#[unsafe(no_mangle)]
pub extern "C" fn rrd_database_drop(
    engine: Option<&RrdEngine>,
    prefix: RrdText<'_>,
    error: Option<&mut MaybeUninit<RrdError>>,
) -> i32 {
    guard(error, || {
        let (engine, prefix) = (&get(engine)?.engine, read_text(prefix));
        for name in engine.table_names().iter().filter(|name| name.starts_with(&prefix)) {
            engine.drop_table(name)?;
        }
        Ok(())
    })
}
