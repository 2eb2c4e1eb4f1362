//! C functions of rows: write, scan, read by key. Records are as long as the table's definition said.

use rrd_store::Direction;
use rrd_store::txn::OnDuplicate;

use crate::abi::{self, RrdError, RrdInsert, RrdSeek};
use crate::conditions::{RrdCondition, conditions_of};
use crate::export_session::RrdSession;
use crate::export_table::{RrdTable, edge, secondary};
use crate::guard::{get, get_mut, guard, slice};
use crate::status::{Failure, Outcome};
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
/// Pointers are null or valid, the record's blobs too.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_row_insert(
    table: *mut RrdTable,
    session: *mut RrdSession,
    record: *const u8,
    mode: RrdInsert,
    error: *mut RrdError,
) -> i32 {
    // SAFETY: promised by the caller.
    unsafe {
        guard(error, || {
            let (handle, session) = (&mut get_mut(table)?.handle, &mut get_mut(session)?.session);
            let record = slice(record, handle.record_bytes())?;
            handle.insert(session, record, on_duplicate(mode))?;
            session.rows().inserted += 1;
            Ok(())
        })
    }
}

/// Replaces the row that was read as `old` by `new`.
///
/// # Safety
/// Pointers are null or valid, the records' blobs too.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_row_update(
    table: *mut RrdTable,
    session: *mut RrdSession,
    old: *const u8,
    new: *const u8,
    error: *mut RrdError,
) -> i32 {
    // SAFETY: promised by the caller.
    unsafe {
        guard(error, || {
            let (handle, session) = (&mut get_mut(table)?.handle, &mut get_mut(session)?.session);
            let bytes = handle.record_bytes();
            handle.update(session, slice(old, bytes)?, slice(new, bytes)?)?;
            session.rows().updated += 1;
            Ok(())
        })
    }
}

/// Removes the row that was read as `record`.
///
/// # Safety
/// Pointers are null or valid, the record's blobs too.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_row_delete(
    table: *mut RrdTable,
    session: *mut RrdSession,
    record: *const u8,
    error: *mut RrdError,
) -> i32 {
    // SAFETY: promised by the caller.
    unsafe {
        guard(error, || {
            let (handle, session) = (&mut get_mut(table)?.handle, &mut get_mut(session)?.session);
            let record = slice(record, handle.record_bytes())?;
            handle.delete(session, record)?;
            session.rows().deleted += 1;
            Ok(())
        })
    }
}

/// Writes the refused row of the last duplicate into a record. Its blobs are valid until the next write.
///
/// # Safety
/// Pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_row_duplicate(table: *mut RrdTable, record: *mut u8) {
    // SAFETY: promised by the caller.
    let _ = unsafe {
        guard(std::ptr::null_mut(), || {
            let handle = &get_mut(table)?.handle;
            handle.unpack_duplicate(record_mut(record, handle.record_bytes())?);
            Ok(())
        })
    };
}

/// Reads the row in the way of the last duplicate into a record; `RRD_NOT_FOUND` if it is gone. The record's blobs
/// are valid until the next call for this table.
///
/// # Safety
/// Pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_row_in_the_way(
    table: *mut RrdTable,
    session: *mut RrdSession,
    record: *mut u8,
    error: *mut RrdError,
) -> i32 {
    // SAFETY: promised by the caller.
    unsafe {
        guard(error, || {
            let (handle, session) = (&mut get_mut(table)?.handle, &mut get_mut(session)?.session);
            let record = record_mut(record, handle.record_bytes())?;
            match handle.read_in_the_way(session, record)? {
                true => Ok(()),
                false => Err(Failure::Outcome(abi::RRD_NOT_FOUND)),
            }
        })
    }
}

/// From now on inserts may report duplicates late: by a later insert or by [`rrd_bulk_end`].
///
/// # Safety
/// Pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_bulk_begin(table: *mut RrdTable, session: *mut RrdSession, error: *mut RrdError) -> i32 {
    // SAFETY: promised by the caller.
    unsafe {
        guard(error, || {
            get_mut(session)?.session.txn().begin_bulk(get(table)?.handle.table());
            Ok(())
        })
    }
}

/// Ends a bulk statement; all late checks are done.
///
/// # Safety
/// Pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_bulk_end(table: *mut RrdTable, session: *mut RrdSession, error: *mut RrdError) -> i32 {
    // SAFETY: promised by the caller.
    unsafe {
        guard(error, || {
            let (handle, session) = (&mut get_mut(table)?.handle, &mut get_mut(session)?.session);
            handle.end_bulk(session)
        })
    }
}

/// After all rows of a table that is filled at its making: refuses options that go by a time column that was guessed, and does
/// not look like one.
///
/// # Safety
/// Pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_table_check_times(
    table: *mut RrdTable,
    session: *mut RrdSession,
    error: *mut RrdError,
) -> i32 {
    // SAFETY: promised by the caller.
    unsafe {
        guard(error, || {
            let (handle, session) = (&get(table)?.handle, &mut get_mut(session)?.session);
            time_guess::check_rows(session.txn(), handle.table(), handle.format().layout().schema())
        })
    }
}

/// The server's number of the time column's field; -1 if the table has none.
///
/// # Safety
/// `table` is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_table_time_field(table: *mut RrdTable) -> i64 {
    let mut number = -1;
    // SAFETY: promised by the caller.
    let _ = unsafe {
        guard(std::ptr::null_mut(), || {
            number = get(table)?.handle.time_field().map_or(-1, i64::from);
            Ok(())
        })
    };
    number
}

/// Deletes all rows within a span of time as one piece of work, whole chunks as they are. An end is a record with the
/// time, null for open, and whether that time still goes. `RRD_UNSUPPORTED` if this has to be done row by row.
///
/// # Safety
/// Pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_table_delete_times(
    table: *mut RrdTable,
    session: *mut RrdSession,
    low: *const u8,
    is_low_inclusive: bool,
    high: *const u8,
    is_high_inclusive: bool,
    deleted: *mut u64,
    error: *mut RrdError,
) -> i32 {
    // SAFETY: promised by the caller.
    unsafe {
        guard(error, || {
            let (handle, session) = (&mut get_mut(table)?.handle, &mut get_mut(session)?.session);
            let low = edge(low, handle.record_bytes(), is_low_inclusive)?;
            let high = edge(high, handle.record_bytes(), is_high_inclusive)?;
            match handle.delete_times(session, low, high)? {
                Some(count) => *get_mut(deleted)? = count,
                None => return Err(Failure::Outcome(abi::RRD_UNSUPPORTED)),
            }
            Ok(())
        })
    }
}

/// Until the end of the statement, scans along the clustering key that lock nothing may leave out rows that do not meet all
/// of these conditions; the caller asks again of those that come. `RRD_UNSUPPORTED` if one cannot be evaluated: nothing
/// changes.
///
/// # Safety
/// Pointers are null or valid, in the conditions too.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_scan_limit(
    table: *mut RrdTable,
    conditions: *const RrdCondition,
    count: usize,
    error: *mut RrdError,
) -> i32 {
    // SAFETY: promised by the caller.
    unsafe {
        guard(error, || {
            let handle = &mut get_mut(table)?.handle;
            let conditions = conditions_of(handle.format(), slice(conditions, count)?)?;
            handle.set_conditions(conditions);
            Ok(())
        })
    }
}

/// Begins a scan along the clustering key (`RRD_CLUSTERING_KEY`) or a secondary index; seek before reading.
///
/// # Safety
/// Pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_scan_open(
    table: *mut RrdTable,
    session: *mut RrdSession,
    index: u32,
    error: *mut RrdError,
) -> i32 {
    // SAFETY: promised by the caller.
    unsafe { guard(error, || get_mut(table)?.handle.open_scan(&mut get_mut(session)?.session, secondary(index))) }
}

/// Places the scan (see the `RRD_SEEK_` numbers). `limit` may end a forward walk: the image of the last key and
/// whether its rows still belong to the walk.
///
/// # Safety
/// Pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_scan_seek(
    table: *mut RrdTable,
    seek: RrdSeek,
    image: *const u8,
    image_bytes: usize,
    limit: *const u8,
    limit_bytes: usize,
    is_limit_inclusive: bool,
    error: *mut RrdError,
) -> i32 {
    // SAFETY: promised by the caller.
    unsafe {
        guard(error, || {
            let limit = edge(limit, limit_bytes, is_limit_inclusive)?;
            get_mut(table)?.handle.seek(seek, slice(image, image_bytes)?, limit)
        })
    }
}

/// Locks all keys that begin with an image, along the index of the scan, as one.
///
/// # Safety
/// Pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_scan_lock_prefix(
    table: *mut RrdTable,
    session: *mut RrdSession,
    image: *const u8,
    image_bytes: usize,
    error: *mut RrdError,
) -> i32 {
    // SAFETY: promised by the caller.
    unsafe {
        guard(error, || {
            let (handle, session) = (&mut get_mut(table)?.handle, &mut get_mut(session)?.session);
            handle.lock_prefix(session, slice(image, image_bytes)?)
        })
    }
}

/// Reads the next row into a record, or the one before with `backward`; `RRD_END` if there is none. The record's
/// blobs are valid until the next call for this table.
///
/// # Safety
/// Pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_scan_next(
    table: *mut RrdTable,
    session: *mut RrdSession,
    backward: bool,
    record: *mut u8,
    error: *mut RrdError,
) -> i32 {
    // SAFETY: promised by the caller.
    unsafe {
        guard(error, || {
            let (handle, session) = (&mut get_mut(table)?.handle, &mut get_mut(session)?.session);
            let record = record_mut(record, handle.record_bytes())?;
            let direction = if backward { Direction::Backward } else { Direction::Forward };
            handle.step(session, direction, record)?;
            session.note_reads(1);
            Ok(())
        })
    }
}

/// A statement begins: a scan that is still open, as HANDLER's are, goes on in what it sees.
///
/// # Safety
/// Pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_scan_keep(table: *mut RrdTable) {
    // SAFETY: promised by the caller.
    let _ = unsafe {
        guard(std::ptr::null_mut(), || {
            get_mut(table)?.handle.keep_scan();
            Ok(())
        })
    };
}

/// Ends the scan.
///
/// # Safety
/// Pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_scan_close(table: *mut RrdTable) {
    // SAFETY: promised by the caller.
    let _ = unsafe {
        guard(std::ptr::null_mut(), || {
            get_mut(table)?.handle.close_scan();
            Ok(())
        })
    };
}

/// Reads the row with a key image (or the 8 bytes of a row number) into a record; `RRD_NOT_FOUND` if there is
/// none. The record's blobs are valid until the next call for this table.
///
/// # Safety
/// Pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_row_read(
    table: *mut RrdTable,
    session: *mut RrdSession,
    image: *const u8,
    image_bytes: usize,
    record: *mut u8,
    error: *mut RrdError,
) -> i32 {
    // SAFETY: promised by the caller.
    unsafe {
        guard(error, || {
            let (handle, session) = (&mut get_mut(table)?.handle, &mut get_mut(session)?.session);
            let record = record_mut(record, handle.record_bytes())?;
            handle.read_row(session, slice(image, image_bytes)?, record)?;
            session.note_reads(1);
            Ok(())
        })
    }
}

/// Says whether the row with a key image (or the 8 bytes of a row number) is behind the horizon: 1, else 0.
///
/// # Safety
/// Pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_row_is_behind_horizon(
    table: *mut RrdTable,
    image: *const u8,
    image_bytes: usize,
    is_behind: *mut i32,
    error: *mut RrdError,
) -> i32 {
    // SAFETY: promised by the caller.
    unsafe {
        guard(error, || {
            let handle = &mut get_mut(table)?.handle;
            let answer = handle.is_behind_horizon(slice(image, image_bytes)?)?;
            *is_behind.as_mut().ok_or_else(|| Failure::internal("internal error: no place for an answer"))? =
                i32::from(answer);
            Ok(())
        })
    }
}

/// Writes the number of the row read last (8 bytes, most significant first), for tables without a key.
///
/// # Safety
/// Pointers are null or valid; `out` has room for 8 bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_row_number(table: *mut RrdTable, out: *mut u8, error: *mut RrdError) -> i32 {
    // SAFETY: promised by the caller.
    unsafe {
        guard(error, || {
            let number = get_mut(table)?.handle.row_number()?;
            record_mut(out, number.len())?.copy_from_slice(&number);
            Ok(())
        })
    }
}

pub(crate) unsafe fn record_mut<'a>(record: *mut u8, bytes: usize) -> Outcome<&'a mut [u8]> {
    if record.is_null() {
        return Err(Failure::internal("internal error: no record buffer"));
    }
    // SAFETY: promised by the callers: the server's record buffers have this length.
    Ok(unsafe { std::slice::from_raw_parts_mut(record, bytes) })
}
