//! C functions of aggregate queries.

use crate::abi::{self, RrdError};
use crate::aggregate::{AggregateQuery, RrdAggregateQuery, RrdAggregateValue};
use crate::aggregate_answer::{Aggregation, Verdicts};
use crate::export_row::record_mut;
use crate::export_session::RrdSession;
use crate::export_table::RrdTable;
use crate::guard::{get, get_mut, guard, guard_close, slice};
use crate::status::Failure;

/// An answer, to be read row by row.
pub struct RrdAggregation {
    answer: Aggregation,
    record_bytes: usize,
}

/// Whether a query can be answered exactly (`RRD_UNSUPPORTED` if not), and roughly how many rows its key ranges hold.
/// Nothing is read.
///
/// # Safety
/// Pointers are null or valid, in the query too.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_aggregate_check(
    table: *const RrdTable,
    query: *const RrdAggregateQuery,
    rows: *mut u64,
    error: *mut RrdError,
) -> i32 {
    // SAFETY: promised by the caller.
    unsafe {
        guard(error, || {
            let handle = &get(table)?.handle;
            let query = AggregateQuery::read(handle.format(), get(query)?)?;
            let estimate = query.estimate_rows(handle.table());
            *get_mut(rows)? = estimate;
            match query.has_too_many_groups(estimate) {
                true => Err(Failure::unsupported("as many groups as rows")),
                false => Ok(()),
            }
        })
    }
}

/// Runs a query over the partitions of a table, or the one table that there is; the answer is to be closed.
///
/// # Safety
/// Pointers are null or valid, in the query too, and `tables` has that many.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_aggregate_run(
    tables: *const *const RrdTable,
    table_count: usize,
    session: *mut RrdSession,
    query: *const RrdAggregateQuery,
    out: *mut *mut RrdAggregation,
    error: *mut RrdError,
) -> i32 {
    // SAFETY: promised by the caller.
    unsafe {
        guard(error, || {
            let (tables, session) = (slice(tables, table_count)?, &mut get_mut(session)?.session);
            let Some((first, others)) = tables.split_first() else {
                return Err(Failure::internal("internal error: a query without a table"));
            };
            let handle = &get(*first)?.handle;
            let mut partitions = Vec::with_capacity(others.len());
            for other in others {
                let other = &get(*other)?.handle;
                partitions.push((other.table().clone(), AggregateQuery::read(other.format(), get(query)?)?));
            }
            let of_first = AggregateQuery::read(handle.format(), get(query)?)?;
            let answer = of_first.run(handle.table(), &partitions, session)?;
            let answer = RrdAggregation { answer, record_bytes: handle.record_bytes() };
            *get_mut(out)? = Box::into_raw(Box::new(answer));
            Ok(())
        })
    }
}

/// Goes to the next row of the answer and writes values of the grouping columns, which belong to the group, to their
/// places in a record; `RRD_END` behind the last row.
///
/// # Safety
/// Pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_aggregate_next(answer: *mut RrdAggregation, record: *mut u8, error: *mut RrdError) -> i32 {
    // SAFETY: promised by the caller.
    unsafe {
        guard(error, || {
            let answer = get_mut(answer)?;
            if !answer.answer.step() {
                return Err(Failure::Outcome(abi::RRD_END));
            }
            answer.answer.put_groups(record_mut(record, answer.record_bytes)?)
        })
    }
}

/// Makes the row with this number, from 0 on, the next one.
///
/// # Safety
/// `answer` is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_aggregate_seek(answer: *mut RrdAggregation, row: usize, error: *mut RrdError) -> i32 {
    // SAFETY: promised by the caller.
    unsafe {
        guard(error, || {
            get_mut(answer)?.answer.seek(row);
            Ok(())
        })
    }
}

/// Of an answer with spans, once all its rows were read: drops row `i` where `kept[i]` is 0, and makes one of rows that
/// differ in spans alone and whose names, `names_bytes / rows` bytes each, are the same. Then it is read from the start.
/// `is_one_row`: there is a row even of none.
///
/// # Safety
/// `answer` is null or valid, the others for as many bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_aggregate_put_together(
    answer: *mut RrdAggregation,
    kept: *const u8,
    rows: usize,
    names: *const u8,
    names_bytes: usize,
    is_one_row: bool,
    error: *mut RrdError,
) -> i32 {
    // SAFETY: promised by the caller.
    unsafe {
        guard(error, || {
            let verdicts = Verdicts { kept: slice(kept, rows)?, names: slice(names, names_bytes)?, is_one_row };
            get_mut(answer)?.answer.put_together(&verdicts)
        })
    }
}

/// A count or a sum of the row.
///
/// # Safety
/// Pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_aggregate_value(
    answer: *const RrdAggregation,
    place: usize,
    out: *mut RrdAggregateValue,
    error: *mut RrdError,
) -> i32 {
    // SAFETY: promised by the caller.
    unsafe {
        guard(error, || {
            *get_mut(out)? = get(answer)?.answer.value(place)?;
            Ok(())
        })
    }
}

/// Writes a minimum or maximum of the row to its column's place in a record; `RRD_NOT_FOUND` for NULL.
///
/// # Safety
/// Pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_aggregate_extreme(
    answer: *const RrdAggregation,
    place: usize,
    record: *mut u8,
    error: *mut RrdError,
) -> i32 {
    // SAFETY: promised by the caller.
    unsafe {
        guard(error, || {
            let answer = get(answer)?;
            match answer.answer.put_extreme(place, record_mut(record, answer.record_bytes)?)? {
                true => Ok(()),
                false => Err(Failure::Outcome(abi::RRD_NOT_FOUND)),
            }
        })
    }
}

/// Frees the answer.
///
/// # Safety
/// `answer` is null or came from [`rrd_aggregate_run`] and is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_aggregate_close(answer: *mut RrdAggregation) {
    if !answer.is_null() {
        // SAFETY: promised by the caller.
        guard_close(|| drop(unsafe { Box::from_raw(answer) }));
    }
}
