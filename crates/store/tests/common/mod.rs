//! What several test programs need.

use rrd_store::index::SortKeys;

/// For indexes of columns that need no sort keys.
pub struct NoSortKeys;

impl SortKeys for NoSortKeys {
    fn number(&self, _: usize, value: u64) -> u64 {
        value
    }
    fn push_bytes(&self, _: usize, value: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(value);
    }
}
