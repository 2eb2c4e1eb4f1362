//! C functions of aggregate queries.

use crate::abi::{self, RrdError};
use crate::aggregate::{AggregateQuery, RrdAggregateQuery, RrdAggregateValue};
use crate::aggregate_answer::{Aggregation, Verdicts};
use crate::export_session::RrdSession;
use crate::export_table::RrdTable;
use crate::guard::{get, guard, guard_close, put, slice, slice_mut};
use crate::status::Failure;
use std::mem::MaybeUninit;

/// An answer, to be read row by row.
pub struct RrdAggregation {
    answer: Aggregation,
    record_bytes: usize,
}

/// Whether a query can be answered exactly (`RRD_UNSUPPORTED` if not), and roughly how many rows its key ranges hold.
/// Nothing is read.
///
/// # Safety
/// Rules `handles`, `answers` and `arrays` of `abi.rs`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_aggregate_check(
    table: Option<&RrdTable>,
    query: Option<&RrdAggregateQuery<'_>>,
    rows: Option<&mut MaybeUninit<u64>>,
    error: Option<&mut MaybeUninit<RrdError>>,
) -> i32 {
    guard(error, || {
        let handle = &get(table)?.handle;
        // SAFETY: rule `arrays` for what the query points to.
        let query = unsafe { AggregateQuery::read(handle.format(), get(query)?)? };
        let estimate = query.estimate_rows(handle.table());
        put(rows, estimate)?;
        match query.has_too_many_groups(estimate) {
            true => Err(Failure::unsupported("as many groups as rows")),
            false => Ok(()),
        }
    })
}

/// Runs a query over the partitions of a table, or the one table that there is; the answer is to be closed.
///
/// # Safety
/// Rules `handles`, `answers` and `arrays` of `abi.rs`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_aggregate_run(
    tables: *const Option<&RrdTable>,
    table_count: usize,
    session: Option<&mut RrdSession>,
    query: Option<&RrdAggregateQuery<'_>>,
    out: Option<&mut MaybeUninit<Option<Box<RrdAggregation>>>>,
    error: Option<&mut MaybeUninit<RrdError>>,
) -> i32 {
    guard(error, || {
        let session = &mut get(session)?.session;
        // SAFETY: rule `arrays`: there are `table_count` handles.
        let tables = unsafe { slice(tables, table_count)? };
        let Some((first, others)) = tables.split_first() else {
            return Err(Failure::internal("internal error: a query without a table"));
        };
        let handle = &get(*first)?.handle;
        let mut partitions = Vec::with_capacity(others.len());
        for other in others {
            let other = &get(*other)?.handle;
            // SAFETY: rule `arrays` for what the query points to.
            let query = unsafe { AggregateQuery::read(other.format(), get(query)?)? };
            partitions.push((other.table().clone(), query));
        }
        // SAFETY: rule `arrays` for what the query points to.
        let of_first = unsafe { AggregateQuery::read(handle.format(), get(query)?)? };
        let answer = of_first.run(handle.table(), &partitions, session)?;
        let answer = RrdAggregation { answer, record_bytes: handle.record_bytes() };
        put(out, Some(Box::new(answer)))
    })
}

/// Goes to the next row of the answer and writes values of the grouping columns, which belong to the group, to their
/// places in a record; `RRD_END` behind the last row.
///
/// # Safety
/// Rules `handles`, `answers` and `records` of `abi.rs`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_aggregate_next(
    answer: Option<&mut RrdAggregation>,
    record: *mut u8,
    error: Option<&mut MaybeUninit<RrdError>>,
) -> i32 {
    guard(error, || {
        let answer = get(answer)?;
        if !answer.answer.step() {
            return Err(Failure::Outcome(abi::RRD_END));
        }
        // SAFETY: rule `records`: a buffer for a record of the table that was asked.
        answer.answer.put_groups(unsafe { slice_mut(record, answer.record_bytes)? })
    })
}

/// Makes the row with this number, from 0 on, the next one.
///
/// # Safety
/// Rules `handles` and `answers` of `abi.rs`.
#[unsafe(no_mangle)]
pub extern "C" fn rrd_aggregate_seek(
    answer: Option<&mut RrdAggregation>,
    row: usize,
    error: Option<&mut MaybeUninit<RrdError>>,
) -> i32 {
    guard(error, || {
        get(answer)?.answer.seek(row);
        Ok(())
    })
}

/// Of an answer with spans, once all its rows were read: drops row `i` where `kept[i]` is 0, and makes one of rows that
/// differ in spans alone and whose names, `names_bytes / rows` bytes each, are the same. Then it is read from the start.
/// `is_one_row`: there is a row even of none.
///
/// # Safety
/// Rules `handles`, `answers` and `arrays` of `abi.rs`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_aggregate_put_together(
    answer: Option<&mut RrdAggregation>,
    kept: *const u8,
    rows: usize,
    names: *const u8,
    names_bytes: usize,
    is_one_row: bool,
    error: Option<&mut MaybeUninit<RrdError>>,
) -> i32 {
    guard(error, || {
        // SAFETY: rule `arrays`: there is a byte for each row.
        let kept = unsafe { slice(kept, rows)? };
        // SAFETY: rule `arrays`: there are `names_bytes` bytes.
        let names = unsafe { slice(names, names_bytes)? };
        let verdicts = Verdicts { kept, names, is_one_row };
        get(answer)?.answer.put_together(&verdicts)
    })
}

/// A count or a sum of the row.
///
/// # Safety
/// Rules `handles` and `answers` of `abi.rs`.
#[unsafe(no_mangle)]
pub extern "C" fn rrd_aggregate_value(
    answer: Option<&RrdAggregation>,
    place: usize,
    out: Option<&mut MaybeUninit<RrdAggregateValue>>,
    error: Option<&mut MaybeUninit<RrdError>>,
) -> i32 {
    guard(error, || put(out, get(answer)?.answer.value(place)?))
}

/// Writes a minimum or maximum of the row to its column's place in a record; `RRD_NOT_FOUND` for NULL.
///
/// # Safety
/// Rules `handles`, `answers` and `records` of `abi.rs`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_aggregate_extreme(
    answer: Option<&RrdAggregation>,
    place: usize,
    record: *mut u8,
    error: Option<&mut MaybeUninit<RrdError>>,
) -> i32 {
    guard(error, || {
        let answer = get(answer)?;
        // SAFETY: rule `records`: a buffer for a record of the table that was asked.
        let record = unsafe { slice_mut(record, answer.record_bytes)? };
        match answer.answer.put_extreme(place, record)? {
            true => Ok(()),
            false => Err(Failure::Outcome(abi::RRD_NOT_FOUND)),
        }
    })
}

/// Frees the answer.
///
/// # Safety
/// Rule `handles` of `abi.rs`.
#[unsafe(no_mangle)]
pub extern "C" fn rrd_aggregate_close(answer: Option<Box<RrdAggregation>>) {
    guard_close(|| drop(answer));
}
