//! Aggregates of a tier: some of its rows are computed when it is read, so they come from its cursor.

use std::sync::Arc;

use super::filter::{pick_all, undecided};
use super::groups::{FirstRow, Groups};
use super::query::{Answer, Query, Value};
use super::ranges::Ranges;
use super::runs::{Cutter, cut};
use super::strip::Rows;
use crate::cursor::{Cursor, Direction};
use crate::error::{Error, Result};
use crate::group::RowGroup;
use crate::memtable::Key;
use crate::segment::Held;

/// Rows between two questions whether the statement was killed.
const SPAN_ROWS: usize = 16384;

/// The answer to a query, from the spans of a cursor.
pub fn answer(cursor: Cursor, query: &Query, is_cancelled: &dyn Fn() -> bool) -> Result<Answer> {
    let mut groups = Groups::new(query, cursor.layout().schema());
    add_all(cursor, query, 0, &mut groups, is_cancelled)?;
    groups.finish()
}

/// Adds the rows of a cursor in their order; no other walk has this number.
pub fn add_all(
    cursor: Cursor,
    query: &Query,
    walk: u32,
    groups: &mut Groups<'_>,
    is_cancelled: &dyn Fn() -> bool,
) -> Result<()> {
    for_each_span(cursor, query, is_cancelled, &mut |group, rows| add_rows(group, rows, query, walk, groups))
}

/// Calls `take` for the rows of a cursor that lie within the bounds of a query.
pub fn for_each_span(
    cursor: Cursor,
    query: &Query,
    is_cancelled: &dyn Fn() -> bool,
    take: &mut dyn FnMut(&Arc<RowGroup>, Ranges) -> Result<()>,
) -> Result<()> {
    let mut cursor = cursor.reading_all();
    cursor.set_bounds(query.low.as_deref(), query.high.as_deref());
    cursor.seek(None, true, Direction::Forward)?;
    while let Some(span) = cursor.next_span(SPAN_ROWS)? {
        if is_cancelled() {
            return Err(Error::Interrupted);
        }
        let first = span.first as usize;
        let (from, to) = rows_within(&span.group, first, first + span.rows as usize, query)?;
        take(&span.group, Ranges::one(from, to))?;
    }
    Ok(())
}

/// The rows of a span within the bounds of a query: a cursor may hand out more.
fn rows_within(group: &RowGroup, start: usize, end: usize, query: &Query) -> Result<(usize, usize)> {
    let before = |bound: &[u8]| -> Result<usize> {
        let (mut low, mut high) = (start, end);
        let mut key = Vec::new();
        while low < high {
            let middle = (low + high) / 2;
            key.clear();
            group.push_key(middle, &mut key)?;
            if key.as_slice() < bound { low = middle + 1 } else { high = middle }
        }
        Ok(low)
    };
    let from = query.low.as_deref().map_or(Ok(start), before)?;
    Ok((from, query.high.as_deref().map_or(Ok(end), before)?))
}

fn add_rows(group: &Arc<RowGroup>, within: Ranges, query: &Query, walk: u32, groups: &mut Groups<'_>) -> Result<()> {
    let Some(open) = undecided(&query.conditions, &**group) else { return Ok(()) };
    let ranges = pick_all(open, &**group, within)?;
    let held = |column: usize| group.column(column).cloned().map(Held::Column);
    let of_groups = query.groups.iter().map(|g| held(g.column())).collect::<Result<Vec<Held>>>()?;
    let cutters: Vec<Cutter<'_>> = query
        .groups
        .iter()
        .zip(&of_groups)
        .map(|(&group, held)| Cutter { group, rows: Rows::of(held, false) })
        .collect();
    let runs = cut(&cutters, &ranges, groups, walk, |row| SpanRow { group, row })?;
    for (n, aggregate) in query.aggregates.iter().enumerate() {
        let column = aggregate.column().map(|column| group.column(column)).transpose()?;
        let rows = column.map(|column| Rows::of_column(column, false));
        groups.states()[n].add(&runs, rows.as_ref());
    }
    Ok(())
}

/// A row of a span that may be the first of its group.
pub struct SpanRow<'g> {
    pub group: &'g Arc<RowGroup>,
    pub row: usize,
}

impl FirstRow for SpanRow<'_> {
    fn key(&self) -> Result<Key> {
        let mut key = Vec::new();
        self.group.push_key(self.row, &mut key)?;
        Ok(Key::from_slice(&key))
    }

    fn value(&self, column: usize) -> Result<Value> {
        Ok(Rows::of_column(self.group.column(column)?, false).value(self.row))
    }
}
