//! Times of rows that make no sense: how many rows of a table have times within a range, and which times are refused.

use std::ops::RangeInclusive;
use std::sync::Arc;

use rrd_codec::Values;

use super::{Txn, TxnTable};
use crate::cursor::Direction;
use crate::error::{Error, Result};
use crate::limits;
use crate::schema::{Schema, TimeUnit};
use crate::table::Table;
use crate::time::TimeLane;

/// Rows of a table by their times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimeCount {
    /// Rows within the range.
    pub within: u64,
    /// All rows.
    pub all: u64,
}

impl Table {
    /// The times that rows may have: where rows leave, or lie in buckets, by their time, those that microseconds can say.
    pub(crate) fn exact_times(&self) -> RangeInclusive<u64> {
        let schema = self.schema();
        let goes_by_time = schema.ring.retention.is_some() || !schema.tiers.is_empty();
        TimeLane::of(&schema).filter(|_| goes_by_time && !self.is_index()).map_or(0..=u64::MAX, |lane| lane.exact())
    }

    /// Whether a row may have a time outside of a range.
    pub fn has_times_outside(&self, range: &RangeInclusive<u64>) -> bool {
        let version = self.version();
        let mut segments = version.segments.values().map(|s| s.meta());
        let mut is_outside = segments.any(|m| !range.contains(&m.min_time) || !range.contains(&m.max_time));
        for memtable in version.memtables() {
            memtable.times(&mut |time| is_outside |= !range.contains(&time));
        }
        is_outside
    }
}

impl TxnTable {
    /// Refuses a row whose time is beyond what its unit can say.
    pub(super) fn check_time(&self, row: &[u8]) -> Result<()> {
        match self.times.contains(&self.layout.time(row)) {
            true => Ok(()),
            false => Err(Error::InvalidInput(beyond_unit(self.layout.schema()))),
        }
    }
}

/// What is wrong with a time beyond what its unit can say, and what to do.
pub fn beyond_unit(schema: &Schema) -> String {
    let name = schema.time.and_then(|time| schema.columns.get(usize::from(time.column))).map_or("", |c| &c.name);
    let unit = match schema.time.map(|time| time.unit) {
        Some(TimeUnit::S) => "seconds",
        Some(TimeUnit::Ms) => "milliseconds",
        Some(TimeUnit::Us) => "microseconds",
        _ => "nanoseconds",
    };
    format!(
        "a time in column '{name}' is beyond what {unit}, the unit of the column, can say: name what the column counts, for \
         example TIME_UNIT='us'"
    )
}

impl Txn {
    /// Counts the rows that this transaction sees, and those whose time column has a lane value in `range`.
    pub fn count_times(&mut self, table: &Arc<Table>, range: &RangeInclusive<u64>) -> Result<TimeCount> {
        let mut count = TimeCount::default();
        let Some(time) = table.schema().time else { return Ok(count) };
        let mut cursor = self.cursor(table)?;
        cursor.seek(None, true, Direction::Forward)?;
        while let Some(span) = cursor.next_span(limits::GROUP_ROWS)? {
            self.check_interrupted()?;
            let Values::Int(times) = &span.group.column(usize::from(time.column))?.values else { break };
            let rows = &times[span.row(0)..span.row(0) + span.rows as usize];
            count.all += rows.len() as u64;
            count.within += rows.iter().filter(|time| range.contains(time)).count() as u64;
        }
        Ok(count)
    }
}
