//! C functions of an open table: opening, figures, upkeep.

use std::ffi::c_void;

use crate::abi::{
    RRD_CLUSTERING_KEY, RrdAhead, RrdError, RrdLocking, RrdProgressFn, RrdSeries, RrdTableDefinition, RrdTableStats,
    RrdText, RrdTextFn,
};
use crate::definition::{Definition, read_text};
use crate::export_engine::RrdEngine;
use crate::export_session::RrdSession;
use crate::guard::{get, get_mut, guard, guard_close, slice};
use crate::record::RecordFormat;
use crate::status::Outcome;
use crate::table::TableHandle;
use crate::tier_check::check_tiers;

/// An open table of one handler.
pub struct RrdTable {
    pub(crate) handle: TableHandle,
}

/// Opens a table. The collations of the definition must outlive the handle.
///
/// # Safety
/// Pointers are null or valid, in the definition too.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_table_open(
    engine: *const RrdEngine,
    name: RrdText,
    definition: *const RrdTableDefinition,
    out: *mut *mut RrdTable,
    error: *mut RrdError,
) -> i32 {
    // SAFETY: promised by the caller.
    unsafe {
        guard(error, || {
            let definition = Definition::read(get(definition)?)?;
            let of_server = get(engine)?;
            let engine = of_server.engine.clone();
            let table = engine.table(&read_text(name))?;
            let format = RecordFormat::bind(&definition, table.layout())?;
            let handle = TableHandle::new(engine, table, format);
            of_server.formats.note(handle.table(), handle.format());
            *get_mut(out)? = Box::into_raw(Box::new(RrdTable { handle }));
            Ok(())
        })
    }
}

/// What the table's scans make ahead: valid until the handle is freed, changed by each call for the table.
///
/// # Safety
/// `table` came from [`rrd_table_open`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_table_ahead(table: *const RrdTable) -> *mut RrdAhead {
    // SAFETY: promised by the caller.
    unsafe { get(table).map_or(std::ptr::null_mut(), |table| std::ptr::from_ref(table.handle.ahead()).cast_mut()) }
}

/// Frees the handle.
///
/// # Safety
/// `table` is null or came from [`rrd_table_open`] and is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_table_close(table: *mut RrdTable) {
    if !table.is_null() {
        // SAFETY: promised by the caller.
        guard_close(|| drop(unsafe { Box::from_raw(table) }));
    }
}

/// Chooses the fields, by the server's numbers, that reads write into records, what reads do about row locks, and
/// whether they pass over rows that others have locked.
///
/// # Safety
/// Pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_table_set_columns(
    table: *mut RrdTable,
    numbers: *const u32,
    count: usize,
    locking: RrdLocking,
    skips_locked: bool,
    error: *mut RrdError,
) -> i32 {
    // SAFETY: promised by the caller.
    unsafe {
        guard(error, || {
            get_mut(table)?.handle.set_columns(slice(numbers, count)?, locking, skips_locked);
            Ok(())
        })
    }
}

/// Whether the scan may show, under READ COMMITTED, a row that others have locked as it is committed, before it
/// waits for it.
///
/// # Safety
/// `table` is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_scan_look_before_waiting(table: *mut RrdTable, yes: bool) {
    // SAFETY: promised by the caller.
    let _ = unsafe {
        guard(std::ptr::null_mut(), || {
            get_mut(table)?.handle.look_before_waiting(yes);
            Ok(())
        })
    };
}

/// Whether the row read last is only looked at: the next step of the scan waits for it and reads it again.
///
/// # Safety
/// `table` is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_scan_is_looking(table: *mut RrdTable) -> bool {
    let mut yes = false;
    // SAFETY: promised by the caller.
    let _ = unsafe {
        guard(std::ptr::null_mut(), || {
            yes = get_mut(table)?.handle.is_looking();
            Ok(())
        })
    };
    yes
}

/// The statement has no use for the row read last: under READ COMMITTED its lock is given back.
///
/// # Safety
/// Pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_row_unlock(table: *mut RrdTable, session: *mut RrdSession) {
    // SAFETY: promised by the caller.
    let _ = unsafe {
        guard(std::ptr::null_mut(), || {
            get_mut(table)?.handle.unlock_row(&mut get_mut(session)?.session);
            Ok(())
        })
    };
}

/// Lets go of what a statement held.
///
/// # Safety
/// `table` is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_table_reset(table: *mut RrdTable) {
    // SAFETY: promised by the caller.
    let _ = unsafe {
        guard(std::ptr::null_mut(), || {
            get_mut(table)?.handle.reset();
            Ok(())
        })
    };
}

/// Figures of the table.
///
/// # Safety
/// Pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_table_stats(table: *const RrdTable, out: *mut RrdTableStats, error: *mut RrdError) -> i32 {
    // SAFETY: promised by the caller.
    unsafe {
        guard(error, || {
            let stats = get(table)?.handle.table().stats();
            *get_mut(out)? = RrdTableStats {
                rows: stats.rows,
                data_bytes: stats.data_bytes,
                memtable_bytes: stats.memtable_bytes,
                segments: stats.segments,
                mean_row_bytes: stats.mean_row_bytes,
                index_bytes: stats.index_bytes,
                next_auto_increment: get(table)?.handle.table().next_auto_increment(),
                update_time: stats.written_at / 1_000_000,
            };
            Ok(())
        })
    }
}

/// Roughly how many rows lie between two key images of the clustering key (`RRD_CLUSTERING_KEY`) or of an index; a null pointer leaves an end open.
///
/// # Safety
/// Pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_table_rows_between(
    table: *mut RrdTable,
    index: u32,
    low: *const u8,
    low_bytes: usize,
    is_low_inclusive: bool,
    high: *const u8,
    high_bytes: usize,
    is_high_inclusive: bool,
    out: *mut u64,
    error: *mut RrdError,
) -> i32 {
    // SAFETY: promised by the caller.
    unsafe {
        guard(error, || {
            let low = edge(low, low_bytes, is_low_inclusive)?;
            let high = edge(high, high_bytes, is_high_inclusive)?;
            *get_mut(out)? = get_mut(table)?.handle.rows_between(secondary(index), low, high)?;
            Ok(())
        })
    }
}

/// Takes `count` AUTO_INCREMENT values of the series `offset`, `offset + step`, ... up to `max`, none below `value`: that
/// becomes the first of them, and `next` where the counter goes on. Where all are used up `next` becomes 0.
///
/// # Safety
/// Pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_auto_increment_take(
    table: *const RrdTable,
    series: RrdSeries,
    count: u64,
    value: *mut u64,
    next: *mut u64,
    error: *mut RrdError,
) -> i32 {
    // SAFETY: promised by the caller.
    unsafe {
        guard(error, || {
            let value = get_mut(value)?;
            let taken = get(table)?.handle.table().take_auto_increment(*value, series.into(), count);
            *value = taken.first;
            *get_mut(next)? = taken.next.unwrap_or(0);
            Ok(())
        })
    }
}

/// Lets the AUTO_INCREMENT values of the series go on behind `value`, which a row has.
///
/// # Safety
/// Pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_auto_increment_raise(
    table: *const RrdTable,
    series: RrdSeries,
    value: u64,
    error: *mut RrdError,
) -> i32 {
    // SAFETY: promised by the caller.
    unsafe {
        guard(error, || {
            get(table)?.handle.table().raise_auto_increment(value, series.into());
            Ok(())
        })
    }
}

/// Sets the next AUTO_INCREMENT value; it never goes below an existing one.
///
/// # Safety
/// Pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_auto_increment_set(
    engine: *const RrdEngine,
    name: RrdText,
    next: u64,
    error: *mut RrdError,
) -> i32 {
    // SAFETY: promised by the caller.
    unsafe {
        guard(error, || {
            let engine = &get(engine)?.engine;
            Ok(engine.set_auto_increment(&engine.table(&read_text(name))?, next)?)
        })
    }
}

/// The place of a secondary index; `None` for the clustering key.
pub(crate) fn secondary(index: u32) -> Option<usize> {
    (index != RRD_CLUSTERING_KEY).then_some(index as usize)
}

/// An end of a range: the image and whether its own rows belong to the range.
pub(crate) unsafe fn edge<'a>(image: *const u8, bytes: usize, is_inclusive: bool) -> Outcome<Option<(&'a [u8], bool)>> {
    if image.is_null() {
        return Ok(None);
    }
    // SAFETY: promised by the callers.
    Ok(Some((unsafe { slice(image, bytes)? }, is_inclusive)))
}

/// Merges all segments of the table (OPTIMIZE TABLE).
///
/// # Safety
/// Pointers are null or valid; `progress` may be called with `context`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_table_optimize(
    table: *const RrdTable,
    progress: RrdProgressFn,
    context: *mut c_void,
    error: *mut RrdError,
) -> i32 {
    // SAFETY: promised by the caller.
    unsafe {
        guard(error, || {
            let handle = &get(table)?.handle;
            let mut go_on = |done, total| progress.is_none_or(|f| f(context, done, total) == 0);
            Ok(handle.engine().optimize_table(handle.table(), &mut go_on)?)
        })
    }
}

/// Reads and verifies all of the table (CHECK TABLE); each finding is a call of `finding`.
///
/// # Safety
/// Pointers are null or valid; the functions may be called with `context`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_table_check(
    table: *const RrdTable,
    is_quick: bool,
    progress: RrdProgressFn,
    finding: RrdTextFn,
    context: *mut c_void,
    error: *mut RrdError,
) -> i32 {
    // SAFETY: promised by the caller.
    unsafe {
        guard(error, || {
            let handle = &get(table)?.handle;
            let mut go_on = |done, total| progress.is_none_or(|f| f(context, done, total) == 0);
            let mut findings = handle.engine().check_table(handle.table(), &mut go_on)?;
            if findings.is_empty() && !is_quick {
                findings = check_tiers(handle.engine(), handle.table(), &mut go_on)?;
            }
            for text in findings {
                if let Some(finding) = finding {
                    finding(context, text.as_ptr().cast(), text.len());
                }
            }
            Ok(())
        })
    }
}
