//! Decoded blocks and footers of segments, as many as fit.
use crate::segment::meta::SegmentId;

/// A bounded cache of decoded blocks, shared by all segments of an engine.
pub struct BlockCache {}

/// What the cache did so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheCounters {
    /// Blocks found.
    pub hits: u64,
    /// Blocks not found.
    pub misses: u64,
    /// Blocks thrown out to make room.
    pub evictions: u64,
    /// Bytes held.
    pub bytes: u64,
}

impl BlockCache {
    /// A cache of at most `bytes` bytes.
    pub fn new(bytes: usize) -> BlockCache { todo!("{bytes}") }
    /// Its maximum in bytes.
    pub fn capacity(&self) -> usize { todo!() }
    /// Changes the maximum; what is over it is thrown out before the call returns.
    pub fn set_capacity(&self, bytes: usize) { todo!("{bytes}") }
    /// Forgets all blocks of a segment and closes its file.
    pub fn evict_segment(&self, id: SegmentId) { todo!("{id:?}") }
    /// Figures.
    pub fn counters(&self) -> CacheCounters { todo!() }
}
