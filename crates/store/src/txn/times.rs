//! How many rows of a table have times within a range: whether a column that was taken for the time holds times.

use std::ops::RangeInclusive;
use std::sync::Arc;

use rrd_codec::Values;

use super::Txn;
use crate::cursor::Direction;
use crate::error::Result;
use crate::limits;
use crate::table::Table;

/// Rows of a table by their times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimeCount {
    /// Rows within the range.
    pub within: u64,
    /// All rows.
    pub all: u64,
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
