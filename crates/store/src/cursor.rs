//! Stub of a scan's interface; being written.
use std::sync::Arc;
use rrd_codec::Column;
use crate::error::Result;

/// Which way a cursor walks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction { /// Ascending keys. 
Forward, /// Descending keys.
Backward }

/// Rows that lie side by side in memory, as columns that are decoded when first asked for.
pub struct RowGroup {}

impl RowGroup {
    /// Rows in it.
    pub fn rows(&self) -> usize { todo!() }
    /// A column by position; decoded on first use.
    pub fn column(&self, position: usize) -> Result<&Arc<Column>> { todo!() }
    /// Appends the sort key of row `i`.
    pub fn push_key(&self, i: usize, out: &mut Vec<u8>) -> Result<()> { todo!() }
}

/// A run of rows of one group, to be read from `first` on, upwards or (`Backward`) downwards.
#[derive(Clone)]
pub struct Span { /// The group.
pub group: Arc<RowGroup>, /// First row to read.
pub first: u32, /// How many.
pub rows: u32, /// Which way.
pub direction: Direction }

/// A walk over a table in key order. It owns what it reads: it may outlive the call, not the transaction.
pub struct Cursor {}

impl Cursor {
    /// Places the cursor before the first row, in `direction`, whose key is >= (Forward) or <= (Backward) `key`;
    /// `inclusive` false: strictly greater or smaller. `None`: at the end that `direction` starts from.
    /// Backward with a key prefix: use [`crate::key::prefix_end`] of it and `inclusive` false.
    pub fn seek(&mut self, key: Option<&[u8]>, inclusive: bool, direction: Direction) -> Result<()> { todo!() }
    /// The next rows, at most `max_rows`; `None` at the end. Sees own writes made before the call.
    pub fn next_span(&mut self, max_rows: usize) -> Result<Option<Span>> { todo!() }
}
