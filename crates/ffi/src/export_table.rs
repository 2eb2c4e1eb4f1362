//! C functions of an open table: opening, figures, upkeep.

use std::ffi::c_void;
use std::mem::MaybeUninit;

use crate::abi::{
    RRD_CLUSTERING_KEY, RrdAhead, RrdError, RrdLocking, RrdProgressFn, RrdSeries, RrdTableDefinition, RrdTableStats,
    RrdText, RrdTextFn, progress_to, texts_to,
};
use crate::definition::{Definition, read_text};
use crate::export_engine::RrdEngine;
use crate::export_session::RrdSession;
use crate::guard::{get, guard, guard_close, guard_value, put, slice};
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
/// Rules `handles`, `answers`, `arrays`, `texts` and `collations` of `abi.rs`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_table_open(
    engine: Option<&RrdEngine>,
    name: RrdText<'_>,
    definition: Option<&RrdTableDefinition<'_>>,
    out: Option<&mut MaybeUninit<Option<Box<RrdTable>>>>,
    error: Option<&mut MaybeUninit<RrdError>>,
) -> i32 {
    guard(error, || {
        // SAFETY: rule `arrays` for what the definition points to.
        let definition = unsafe { Definition::read(get(definition)?)? };
        let of_server = get(engine)?;
        let engine = of_server.engine.clone();
        let table = engine.table(&read_text(name))?;
        let format = RecordFormat::bind(&definition, table.layout())?;
        let handle = TableHandle::new(engine, table, format);
        of_server.formats.note(handle.table(), handle.format());
        put(out, Some(Box::new(RrdTable { handle })))
    })
}

/// What the table's scans make ahead: valid until the handle is freed, changed by each call for the table.
///
/// # Safety
/// Rule `handles` of `abi.rs`. What is returned is read and written between calls for the table only, and not after it
/// was closed.
#[unsafe(no_mangle)]
pub extern "C" fn rrd_table_ahead(table: Option<&RrdTable>) -> *mut RrdAhead {
    guard_value(std::ptr::null_mut(), || Ok(std::ptr::from_ref(get(table)?.handle.ahead()).cast_mut()))
}

/// Frees the handle.
///
/// # Safety
/// Rule `handles` of `abi.rs`.
#[unsafe(no_mangle)]
pub extern "C" fn rrd_table_close(table: Option<Box<RrdTable>>) {
    guard_close(|| drop(table));
}

/// Chooses the fields, by the server's numbers, that reads write into records, what reads do about row locks, and
/// whether they pass over rows that others have locked.
///
/// # Safety
/// Rules `handles`, `answers` and `arrays` of `abi.rs`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_table_set_columns(
    table: Option<&mut RrdTable>,
    numbers: *const u32,
    count: usize,
    locking: RrdLocking,
    skips_locked: bool,
    error: Option<&mut MaybeUninit<RrdError>>,
) -> i32 {
    guard(error, || {
        // SAFETY: rule `arrays`: there are `count` numbers.
        let numbers = unsafe { slice(numbers, count)? };
        get(table)?.handle.set_columns(numbers, locking, skips_locked);
        Ok(())
    })
}

/// Whether the scan may show, under READ COMMITTED, a row that others have locked as it is committed, before it
/// waits for it.
///
/// # Safety
/// Rule `handles` of `abi.rs`.
#[unsafe(no_mangle)]
pub extern "C" fn rrd_scan_look_before_waiting(table: Option<&mut RrdTable>, yes: bool) {
    guard_value((), || {
        get(table)?.handle.look_before_waiting(yes);
        Ok(())
    });
}

/// Whether the row read last is only looked at: the next step of the scan waits for it and reads it again.
///
/// # Safety
/// Rule `handles` of `abi.rs`.
#[unsafe(no_mangle)]
pub extern "C" fn rrd_scan_is_looking(table: Option<&mut RrdTable>) -> bool {
    guard_value(false, || Ok(get(table)?.handle.is_looking()))
}

/// The statement has no use for the row read last: under READ COMMITTED its lock is given back.
///
/// # Safety
/// Rule `handles` of `abi.rs`.
#[unsafe(no_mangle)]
pub extern "C" fn rrd_row_unlock(table: Option<&mut RrdTable>, session: Option<&mut RrdSession>) {
    guard_value((), || {
        get(table)?.handle.unlock_row(&mut get(session)?.session);
        Ok(())
    });
}

/// Lets go of what a statement held.
///
/// # Safety
/// Rule `handles` of `abi.rs`.
#[unsafe(no_mangle)]
pub extern "C" fn rrd_table_reset(table: Option<&mut RrdTable>) {
    guard_value((), || {
        get(table)?.handle.reset();
        Ok(())
    });
}

/// Figures of the table.
///
/// # Safety
/// Rules `handles` and `answers` of `abi.rs`.
#[unsafe(no_mangle)]
pub extern "C" fn rrd_table_stats(
    table: Option<&RrdTable>,
    out: Option<&mut MaybeUninit<RrdTableStats>>,
    error: Option<&mut MaybeUninit<RrdError>>,
) -> i32 {
    guard(error, || {
        let stats = get(table)?.handle.table().stats();
        put(
            out,
            RrdTableStats {
                rows: stats.rows,
                data_bytes: stats.data_bytes,
                memtable_bytes: stats.memtable_bytes,
                segments: stats.segments,
                mean_row_bytes: stats.mean_row_bytes,
                index_bytes: stats.index_bytes,
                next_auto_increment: get(table)?.handle.table().next_auto_increment(),
                update_time: stats.written_at / 1_000_000,
            },
        )
    })
}

/// Roughly how many rows lie between two key images of the clustering key (`RRD_CLUSTERING_KEY`) or of an index; a null pointer leaves an end open.
///
/// # Safety
/// Rules `handles`, `answers` and `images` of `abi.rs`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_table_rows_between(
    table: Option<&mut RrdTable>,
    index: u32,
    low: *const u8,
    low_bytes: usize,
    is_low_inclusive: bool,
    high: *const u8,
    high_bytes: usize,
    is_high_inclusive: bool,
    out: Option<&mut MaybeUninit<u64>>,
    error: Option<&mut MaybeUninit<RrdError>>,
) -> i32 {
    guard(error, || {
        // SAFETY: rule `images`: the low end is null or has `low_bytes` bytes.
        let low = unsafe { edge(low, low_bytes, is_low_inclusive)? };
        // SAFETY: rule `images`: the high end is null or has `high_bytes` bytes.
        let high = unsafe { edge(high, high_bytes, is_high_inclusive)? };
        put(out, get(table)?.handle.rows_between(secondary(index), low, high)?)
    })
}

/// Takes `count` AUTO_INCREMENT values of the series `offset`, `offset + step`, ... up to `max`, none below `value`: that
/// becomes the first of them, and `next` where the counter goes on. Where all are used up `next` becomes 0.
///
/// # Safety
/// Rules `handles` and `answers` of `abi.rs`.
#[unsafe(no_mangle)]
pub extern "C" fn rrd_auto_increment_take(
    table: Option<&RrdTable>,
    series: RrdSeries,
    count: u64,
    value: Option<&mut u64>,
    next: Option<&mut MaybeUninit<u64>>,
    error: Option<&mut MaybeUninit<RrdError>>,
) -> i32 {
    guard(error, || {
        let value = get(value)?;
        let taken = get(table)?.handle.table().take_auto_increment(*value, series.into(), count);
        *value = taken.first;
        put(next, taken.next.unwrap_or(0))
    })
}

/// Lets the AUTO_INCREMENT values of the series go on behind `value`, which a row has.
///
/// # Safety
/// Rules `handles` and `answers` of `abi.rs`.
#[unsafe(no_mangle)]
pub extern "C" fn rrd_auto_increment_raise(
    table: Option<&RrdTable>,
    series: RrdSeries,
    value: u64,
    error: Option<&mut MaybeUninit<RrdError>>,
) -> i32 {
    guard(error, || {
        get(table)?.handle.table().raise_auto_increment(value, series.into());
        Ok(())
    })
}

/// Sets the next AUTO_INCREMENT value; it never goes below an existing one.
///
/// # Safety
/// Rules `handles`, `answers` and `texts` of `abi.rs`.
#[unsafe(no_mangle)]
pub extern "C" fn rrd_auto_increment_set(
    engine: Option<&RrdEngine>,
    name: RrdText<'_>,
    next: u64,
    error: Option<&mut MaybeUninit<RrdError>>,
) -> i32 {
    guard(error, || {
        let engine = &get(engine)?.engine;
        Ok(engine.set_auto_increment(&engine.table(&read_text(name))?, next)?)
    })
}

/// The place of a secondary index; `None` for the clustering key.
pub(crate) fn secondary(index: u32) -> Option<usize> {
    (index != RRD_CLUSTERING_KEY).then_some(index as usize)
}

/// An end of a range: the image and whether its own rows belong to the range.
///
/// # Safety
/// The rule `images` or `records` of `abi.rs`: null, or as many bytes.
pub(crate) unsafe fn edge<'a>(image: *const u8, bytes: usize, is_inclusive: bool) -> Outcome<Option<(&'a [u8], bool)>> {
    if image.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller's image or record has as many bytes.
    Ok(Some((unsafe { slice(image, bytes)? }, is_inclusive)))
}

/// Merges all segments of the table (OPTIMIZE TABLE).
///
/// # Safety
/// Rules `handles`, `answers` and `callbacks` of `abi.rs`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_table_optimize(
    table: Option<&RrdTable>,
    progress: RrdProgressFn,
    context: *mut c_void,
    error: Option<&mut MaybeUninit<RrdError>>,
) -> i32 {
    guard(error, || {
        let handle = &get(table)?.handle;
        // SAFETY: rule `callbacks`; it is used before the call ends.
        let mut go_on = unsafe { progress_to(progress, context) };
        Ok(handle.engine().optimize_table(handle.table(), &mut go_on)?)
    })
}

/// Reads and verifies all of the table (CHECK TABLE); each finding is a call of `finding`.
///
/// # Safety
/// Rules `handles`, `answers` and `callbacks` of `abi.rs`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_table_check(
    table: Option<&RrdTable>,
    is_quick: bool,
    progress: RrdProgressFn,
    finding: RrdTextFn,
    context: *mut c_void,
    error: Option<&mut MaybeUninit<RrdError>>,
) -> i32 {
    guard(error, || {
        let handle = &get(table)?.handle;
        // SAFETY: rule `callbacks`; it is used before the call ends.
        let mut go_on = unsafe { progress_to(progress, context) };
        let mut findings = handle.engine().check_table(handle.table(), &mut go_on)?;
        if findings.is_empty() && !is_quick {
            findings = check_tiers(handle.engine(), handle.table(), &mut go_on)?;
        }
        // SAFETY: rule `callbacks`; it is used before the call ends.
        let mut tell = unsafe { texts_to(finding, context) };
        findings.iter().for_each(|text| tell(text.as_bytes()));
        Ok(())
    })
}
