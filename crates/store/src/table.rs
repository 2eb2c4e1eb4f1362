//! Stub of a table's interface; being written.
use std::sync::Arc;
use crate::row::RowLayout;
use crate::schema::Schema;

/// An open table.
pub struct Table {}

/// What the optimizer and SHOW TABLE STATUS ask for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableStats {
    /// Rows (an estimate: versions and tombstones that are not merged yet count).
    pub rows: u64,
    /// Bytes on disk.
    pub data_bytes: u64,
    /// Bytes in memtables.
    pub memtable_bytes: u64,
    /// Number of segments.
    pub segments: u64,
    /// Mean bytes of a row in row format.
    pub mean_row_bytes: u64,
    /// The next row number of a table without a key.
    pub next_row_number: u64,
}

impl Table {
    /// Its name, `database/table`.
    pub fn name(&self) -> String { todo!() }
    /// Its current schema.
    pub fn schema(&self) -> Arc<Schema> { todo!() }
    /// The layout of its rows.
    pub fn layout(&self) -> Arc<RowLayout> { todo!() }
    /// Figures.
    pub fn stats(&self) -> TableStats { todo!() }
    /// Estimated rows with `low <= key < high`; `None` is open.
    pub fn estimate_rows(&self, low: Option<&[u8]>, high: Option<&[u8]>) -> u64 { todo!() }
    /// A new row number, for tables without a key (`Schema::row_number`).
    pub fn take_row_number(&self) -> u64 { todo!() }
}
