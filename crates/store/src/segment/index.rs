//! A segment's footer, decoded: where each block is and what is known of it.
use super::zone::ZoneMap;

/// The decoded footer of a segment.
#[derive(Debug)]
pub struct SegmentIndex {}

/// One group of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupIndex<'a> {
    /// Rows in it.
    pub rows: u32,
    /// Rows of the segment before it.
    pub first_row: u64,
    /// Sort key of its first row.
    pub first_key: &'a [u8],
    /// Sort key of its last row.
    pub last_key: &'a [u8],
    /// Tombstones among its rows.
    pub tombstones: u32,
    /// Largest offset to `SegmentMeta::base_seq` among its rows.
    pub max_seq_offset: u64,
    /// Whether some key of it occurs more than once in the segment.
    pub has_versions: bool,
}

impl SegmentIndex {
    /// How many groups.
    pub fn group_count(&self) -> usize { todo!() }
    /// Rows of all groups.
    pub fn rows(&self) -> u64 { todo!() }
    /// Group `i`. Panics behind the last one.
    pub fn group(&self, i: usize) -> GroupIndex<'_> { todo!("{i}") }
    /// The first group whose last key is >= `key`; `group_count()` if there is none.
    pub fn find_group(&self, key: &[u8]) -> usize { todo!("{key:?}") }
    /// What is known of a block; `None` if the segment does not have the column (`ColumnDef::id`).
    pub fn zone(&self, group: usize, column_id: u32) -> Option<ZoneMap> { todo!("{group} {column_id}") }
}
