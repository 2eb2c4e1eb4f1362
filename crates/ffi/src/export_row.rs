//! C functions of rows: write, scan, read by key. Records are as long as the table's definition said.

use rrd_store::Direction;
use rrd_store::txn::OnDuplicate;
use std::mem::MaybeUninit;

use crate::abi::{self, RrdError, RrdInsert, RrdSeek};
use crate::conditions::{RrdCondition, conditions_of};
use crate::export_session::RrdSession;
use crate::export_table::{RrdTable, edge, secondary};
use crate::guard::{get, guard, guard_value, put, slice, slice_mut};
use crate::status::Failure;
use crate::time_guess;

fn on_duplicate(mode: RrdInsert) -> OnDuplicate {
    match mode {
        abi::RRD_INSERT_IGNORE => OnDuplicate::Ignore,
        abi::RRD_INSERT_REPLACE => OnDuplicate::Replace,
        abi::RRD_INSERT_UPDATE => OnDuplicate::Update,
        _ => OnDuplicate::Fail,
    }
}

/// Inserts a record. When the answer is `RRD_DUPLICATE` and `mode` is to replace or to update, the row in the way
/// is locked and sure to be there.
///
/// # Safety
/// Rules `handles`, `answers` and `records` of `abi.rs`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_row_insert(
    table: Option<&mut RrdTable>,
    session: Option<&mut RrdSession>,
    record: *const u8,
    mode: RrdInsert,
    error: Option<&mut MaybeUninit<RrdError>>,
) -> i32 {
    guard(error, || {
        let (handle, session) = (&mut get(table)?.handle, &mut get(session)?.session);
        // SAFETY: rule `records`: a record of this table, of the length that its definition says.
        let record = unsafe { slice(record, handle.record_bytes())? };
        // SAFETY: rule `records`: its blobs are valid until the call ends.
        unsafe { handle.insert(session, record, on_duplicate(mode))? };
        session.rows().inserted += 1;
        Ok(())
    })
}

/// Replaces the row that was read as `old` by `new`.
///
/// # Safety
/// Rules `handles`, `answers` and `records` of `abi.rs`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_row_update(
    table: Option<&mut RrdTable>,
    session: Option<&mut RrdSession>,
    old: *const u8,
    new: *const u8,
    error: Option<&mut MaybeUninit<RrdError>>,
) -> i32 {
    guard(error, || {
        let (handle, session) = (&mut get(table)?.handle, &mut get(session)?.session);
        let bytes = handle.record_bytes();
        // SAFETY: rule `records`: two records of this table, of the length that its definition says.
        let (old, new) = unsafe { (slice(old, bytes)?, slice(new, bytes)?) };
        // SAFETY: rule `records`: their blobs are valid until the call ends.
        unsafe { handle.update(session, old, new)? };
        session.rows().updated += 1;
        Ok(())
    })
}

/// Removes the row that was read as `record`.
///
/// # Safety
/// Rules `handles`, `answers` and `records` of `abi.rs`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_row_delete(
    table: Option<&mut RrdTable>,
    session: Option<&mut RrdSession>,
    record: *const u8,
    error: Option<&mut MaybeUninit<RrdError>>,
) -> i32 {
    guard(error, || {
        let (handle, session) = (&mut get(table)?.handle, &mut get(session)?.session);
        // SAFETY: rule `records`: a record of this table, of the length that its definition says.
        let record = unsafe { slice(record, handle.record_bytes())? };
        // SAFETY: rule `records`: its blobs are valid until the call ends.
        unsafe { handle.delete(session, record)? };
        session.rows().deleted += 1;
        Ok(())
    })
}

/// Writes the refused row of the last duplicate into a record. Its blobs are valid until the next write.
///
/// # Safety
/// Rules `handles` and `records` of `abi.rs`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_row_duplicate(table: Option<&mut RrdTable>, record: *mut u8) {
    guard_value((), || {
        let handle = &get(table)?.handle;
        // SAFETY: rule `records`: a record of this table, of the length that its definition says.
        handle.unpack_duplicate(unsafe { slice_mut(record, handle.record_bytes())? });
        Ok(())
    });
}

/// Reads the row in the way of the last duplicate into a record; `RRD_NOT_FOUND` if it is gone. The record's blobs
/// are valid until the next call for this table.
///
/// # Safety
/// Rules `handles`, `answers` and `records` of `abi.rs`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_row_in_the_way(
    table: Option<&mut RrdTable>,
    session: Option<&mut RrdSession>,
    record: *mut u8,
    error: Option<&mut MaybeUninit<RrdError>>,
) -> i32 {
    guard(error, || {
        let (handle, session) = (&mut get(table)?.handle, &mut get(session)?.session);
        // SAFETY: rule `records`: a buffer for a record of this table, of the length that its definition says.
        let record = unsafe { slice_mut(record, handle.record_bytes())? };
        match handle.read_in_the_way(session, record)? {
            true => Ok(()),
            false => Err(Failure::Outcome(abi::RRD_NOT_FOUND)),
        }
    })
}

/// From now on inserts may report duplicates late: by a later insert or by [`rrd_bulk_end`].
///
/// # Safety
/// Rules `handles` and `answers` of `abi.rs`.
#[unsafe(no_mangle)]
pub extern "C" fn rrd_bulk_begin(
    table: Option<&mut RrdTable>,
    session: Option<&mut RrdSession>,
    error: Option<&mut MaybeUninit<RrdError>>,
) -> i32 {
    guard(error, || {
        get(session)?.session.txn().begin_bulk(get(table)?.handle.table());
        Ok(())
    })
}

/// Ends a bulk statement; all late checks are done.
///
/// # Safety
/// Rules `handles` and `answers` of `abi.rs`.
#[unsafe(no_mangle)]
pub extern "C" fn rrd_bulk_end(
    table: Option<&mut RrdTable>,
    session: Option<&mut RrdSession>,
    error: Option<&mut MaybeUninit<RrdError>>,
) -> i32 {
    guard(error, || {
        let (handle, session) = (&mut get(table)?.handle, &mut get(session)?.session);
        handle.end_bulk(session)
    })
}

/// After all rows of a table that is filled at its making: refuses options that go by a time column that was guessed, and does
/// not look like one.
///
/// # Safety
/// Rules `handles` and `answers` of `abi.rs`.
#[unsafe(no_mangle)]
pub extern "C" fn rrd_table_check_times(
    table: Option<&mut RrdTable>,
    session: Option<&mut RrdSession>,
    error: Option<&mut MaybeUninit<RrdError>>,
) -> i32 {
    guard(error, || {
        let (handle, session) = (&get(table)?.handle, &mut get(session)?.session);
        time_guess::check_rows(session.txn(), handle.table(), handle.format().layout().schema())
    })
}

/// The server's number of the time column's field; -1 if the table has none.
///
/// # Safety
/// Rule `handles` of `abi.rs`.
#[unsafe(no_mangle)]
pub extern "C" fn rrd_table_time_field(table: Option<&mut RrdTable>) -> i64 {
    guard_value(-1, || Ok(get(table)?.handle.time_field().map_or(-1, i64::from)))
}

/// Deletes all rows within a span of time as one piece of work, whole chunks as they are. An end is a record with the
/// time, null for open, and whether that time still goes. `RRD_UNSUPPORTED` if this has to be done row by row.
///
/// # Safety
/// Rules `handles`, `answers` and `records` of `abi.rs`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_table_delete_times(
    table: Option<&mut RrdTable>,
    session: Option<&mut RrdSession>,
    low: *const u8,
    is_low_inclusive: bool,
    high: *const u8,
    is_high_inclusive: bool,
    deleted: Option<&mut MaybeUninit<u64>>,
    error: Option<&mut MaybeUninit<RrdError>>,
) -> i32 {
    guard(error, || {
        let (handle, session) = (&mut get(table)?.handle, &mut get(session)?.session);
        // SAFETY: rule `records`: each end is null or a record of this table.
        let low = unsafe { edge(low, handle.record_bytes(), is_low_inclusive)? };
        // SAFETY: as for `low`.
        let high = unsafe { edge(high, handle.record_bytes(), is_high_inclusive)? };
        match handle.delete_times(session, low, high)? {
            Some(count) => put(deleted, count),
            None => Err(Failure::Outcome(abi::RRD_UNSUPPORTED)),
        }
    })
}

/// Until the end of the statement, scans along the clustering key that lock nothing may leave out rows that do not meet all
/// of these conditions; the caller asks again of those that come. `RRD_UNSUPPORTED` if one cannot be evaluated: nothing
/// changes.
///
/// # Safety
/// Rules `handles`, `answers` and `arrays` of `abi.rs`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_scan_limit(
    table: Option<&mut RrdTable>,
    conditions: *const RrdCondition<'_>,
    count: usize,
    error: Option<&mut MaybeUninit<RrdError>>,
) -> i32 {
    guard(error, || {
        let handle = &mut get(table)?.handle;
        // SAFETY: rule `arrays`: there are `count` conditions.
        let conditions = unsafe { slice(conditions, count)? };
        // SAFETY: rule `arrays` for what the conditions point to.
        let conditions = unsafe { conditions_of(handle.format(), conditions)? };
        handle.set_conditions(conditions);
        Ok(())
    })
}

/// Begins a scan along the clustering key (`RRD_CLUSTERING_KEY`) or a secondary index; seek before reading.
///
/// # Safety
/// Rules `handles` and `answers` of `abi.rs`.
#[unsafe(no_mangle)]
pub extern "C" fn rrd_scan_open(
    table: Option<&mut RrdTable>,
    session: Option<&mut RrdSession>,
    index: u32,
    error: Option<&mut MaybeUninit<RrdError>>,
) -> i32 {
    guard(error, || get(table)?.handle.open_scan(&mut get(session)?.session, secondary(index)))
}

/// Places the scan (see the `RRD_SEEK_` numbers). `limit` may end a forward walk: the image of the last key and
/// whether its rows still belong to the walk.
///
/// # Safety
/// Rules `handles`, `answers` and `images` of `abi.rs`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_scan_seek(
    table: Option<&mut RrdTable>,
    seek: RrdSeek,
    image: *const u8,
    image_bytes: usize,
    limit: *const u8,
    limit_bytes: usize,
    is_limit_inclusive: bool,
    error: Option<&mut MaybeUninit<RrdError>>,
) -> i32 {
    guard(error, || {
        // SAFETY: rule `images`: the limit is null or has `limit_bytes` bytes.
        let limit = unsafe { edge(limit, limit_bytes, is_limit_inclusive)? };
        // SAFETY: rule `images`: the image has `image_bytes` bytes.
        let image = unsafe { slice(image, image_bytes)? };
        get(table)?.handle.seek(seek, image, limit)
    })
}

/// Locks all keys that begin with an image, along the index of the scan, as one.
///
/// # Safety
/// Rules `handles`, `answers` and `images` of `abi.rs`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_scan_lock_prefix(
    table: Option<&mut RrdTable>,
    session: Option<&mut RrdSession>,
    image: *const u8,
    image_bytes: usize,
    error: Option<&mut MaybeUninit<RrdError>>,
) -> i32 {
    guard(error, || {
        let (handle, session) = (&mut get(table)?.handle, &mut get(session)?.session);
        // SAFETY: rule `images`: the image has `image_bytes` bytes.
        handle.lock_prefix(session, unsafe { slice(image, image_bytes)? })
    })
}

/// Reads the next row into a record, or the one before with `backward`; `RRD_END` if there is none. The record's
/// blobs are valid until the next call for this table.
///
/// # Safety
/// Rules `handles`, `answers` and `records` of `abi.rs`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_scan_next(
    table: Option<&mut RrdTable>,
    session: Option<&mut RrdSession>,
    backward: bool,
    record: *mut u8,
    error: Option<&mut MaybeUninit<RrdError>>,
) -> i32 {
    guard(error, || {
        let (handle, session) = (&mut get(table)?.handle, &mut get(session)?.session);
        // SAFETY: rule `records`: a buffer for a record of this table, of the length that its definition says.
        let record = unsafe { slice_mut(record, handle.record_bytes())? };
        let direction = if backward { Direction::Backward } else { Direction::Forward };
        handle.step(session, direction, record)?;
        session.note_reads(1);
        Ok(())
    })
}

/// A statement begins: a scan that is still open, as HANDLER's are, goes on in what it sees.
///
/// # Safety
/// Rule `handles` of `abi.rs`.
#[unsafe(no_mangle)]
pub extern "C" fn rrd_scan_keep(table: Option<&mut RrdTable>) {
    guard_value((), || {
        get(table)?.handle.keep_scan();
        Ok(())
    });
}

/// Ends the scan.
///
/// # Safety
/// Rule `handles` of `abi.rs`.
#[unsafe(no_mangle)]
pub extern "C" fn rrd_scan_close(table: Option<&mut RrdTable>) {
    guard_value((), || {
        get(table)?.handle.close_scan();
        Ok(())
    });
}

/// Reads the row with a key image (or the 8 bytes of a row number) into a record; `RRD_NOT_FOUND` if there is
/// none. The record's blobs are valid until the next call for this table.
///
/// # Safety
/// Rules `handles`, `answers`, `records` and `images` of `abi.rs`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_row_read(
    table: Option<&mut RrdTable>,
    session: Option<&mut RrdSession>,
    image: *const u8,
    image_bytes: usize,
    record: *mut u8,
    error: Option<&mut MaybeUninit<RrdError>>,
) -> i32 {
    guard(error, || {
        let (handle, session) = (&mut get(table)?.handle, &mut get(session)?.session);
        // SAFETY: rule `records`: a buffer for a record of this table, of the length that its definition says.
        let record = unsafe { slice_mut(record, handle.record_bytes())? };
        // SAFETY: rule `images`: the image has `image_bytes` bytes.
        let image = unsafe { slice(image, image_bytes)? };
        handle.read_row(session, image, record)?;
        session.note_reads(1);
        Ok(())
    })
}

/// Says whether the row with a key image (or the 8 bytes of a row number) is behind the horizon: 1, else 0.
///
/// # Safety
/// Rules `handles`, `answers` and `images` of `abi.rs`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_row_is_behind_horizon(
    table: Option<&mut RrdTable>,
    image: *const u8,
    image_bytes: usize,
    is_behind: Option<&mut MaybeUninit<i32>>,
    error: Option<&mut MaybeUninit<RrdError>>,
) -> i32 {
    guard(error, || {
        let handle = &mut get(table)?.handle;
        // SAFETY: rule `images`: the image has `image_bytes` bytes.
        let image = unsafe { slice(image, image_bytes)? };
        put(is_behind, i32::from(handle.is_behind_horizon(image)?))
    })
}

/// Writes the number of the row read last (8 bytes, most significant first), for tables without a key.
///
/// # Safety
/// Rules `handles` and `answers` of `abi.rs`.
#[unsafe(no_mangle)]
pub extern "C" fn rrd_row_number(
    table: Option<&mut RrdTable>,
    out: Option<&mut MaybeUninit<[u8; 8]>>,
    error: Option<&mut MaybeUninit<RrdError>>,
) -> i32 {
    guard(error, || put(out, get(table)?.handle.row_number()?))
}
