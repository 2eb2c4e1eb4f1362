//! Decoded blocks and footers of segments, as many as fit.
//!
//! Bounded by the bytes of what it holds, strictly: room is reserved before a block goes in, and what does not
//! fit is handed to the caller without being kept. Sharded, so that scans on several threads do not wait for
//! each other; CLOCK within a shard: a block that was used again since the hand passed stays, so one long
//! scan does not push out what is used often. Two threads that miss the same block may both decode it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use hashbrown::HashMap;
use parking_lot::Mutex;
use rrd_codec::{Bitmap, Column, Narrow, Pieces, Values};

use crate::segment::files::OpenFiles;
use crate::segment::index::SegmentIndex;
use crate::segment::meta::SegmentId;

const SHARDS: usize = 16;

/// What an entry costs beside its value: the slots of map, set and clock and the allocations' headers.
const ENTRY_BYTES: usize = 210;

/// Names what is cached: a column's block, or the footer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct BlockKey {
    pub segment: SegmentId,
    pub group: u32,
    /// A column id, as in the block's header.
    pub column: u32,
    /// Not row by row, but as lines or in few bytes.
    pub compact: bool,
}

impl BlockKey {
    /// The footer of a segment.
    pub(crate) fn footer(segment: SegmentId) -> BlockKey {
        BlockKey { segment, group: u32::MAX, column: u32::MAX, compact: true }
    }

    fn shard(self) -> usize {
        let mixed = self.segment.0.wrapping_mul(0x9E37_79B9_7F4A_7C15)
            ^ u64::from(self.group).wrapping_mul(0xC2B2_AE3D_27D4_EB4F)
            ^ u64::from(self.column).wrapping_mul(0x1656_67B1_9E37_79F9);
        (mixed >> 32) as usize % SHARDS
    }
}

/// A decoded block or footer.
#[derive(Clone, Debug)]
pub(crate) enum Cached {
    Column(Arc<Column>),
    Lines(Arc<Pieces>),
    Narrow(Arc<Narrow>),
    Seqs(Arc<Vec<u64>>),
    Tombstones(Arc<Bitmap>),
    Footer(Arc<SegmentIndex>),
}

impl Cached {
    fn bytes(&self) -> usize {
        ENTRY_BYTES
            + match self {
                Cached::Column(column) => column_bytes(column),
                Cached::Lines(lines) => size_of::<Pieces>() + lines.heap_bytes(),
                Cached::Narrow(narrow) => size_of::<Narrow>() + narrow.heap_bytes(),
                Cached::Seqs(seqs) => seqs.capacity() * 8,
                Cached::Tombstones(bitmap) => bitmap_bytes(bitmap),
                Cached::Footer(footer) => footer.memory_bytes(),
            }
    }
}

/// Bytes that a decoded column takes.
pub fn column_bytes(column: &Column) -> usize {
    let values = match &column.values {
        Values::Int(v) | Values::F64(v) => v.capacity() * 8,
        Values::F32(v) => v.capacity() * 4,
        Values::Bytes(b) => b.offsets.capacity() * 4 + b.data.capacity(),
    };
    size_of::<Column>() + values + column.nulls.as_ref().map_or(0, bitmap_bytes)
}

fn bitmap_bytes(bitmap: &Bitmap) -> usize {
    size_of::<Bitmap>() + bitmap.words().len() * 8
}

#[derive(Default)]
struct Shard {
    places: HashMap<BlockKey, usize>,
    /// The same keys in order, so that those of a segment are found: merges take thousands of segments away.
    keys: BTreeSet<BlockKey>,
    entries: Vec<Entry>,
    hand: usize,
}

struct Entry {
    key: BlockKey,
    value: Cached,
    bytes: usize,
    used_again: bool,
}

impl Shard {
    fn get(&mut self, key: &BlockKey) -> Option<Cached> {
        let entry = &mut self.entries[*self.places.get(key)?];
        entry.used_again = true;
        Some(entry.value.clone())
    }

    fn push(&mut self, entry: Entry) {
        self.places.insert(entry.key, self.entries.len());
        self.keys.insert(entry.key);
        self.entries.push(entry);
    }

    fn remove(&mut self, place: usize) -> Entry {
        let entry = self.entries.swap_remove(place);
        self.places.remove(&entry.key);
        self.keys.remove(&entry.key);
        if let Some(moved) = self.entries.get(place) {
            self.places.insert(moved.key, place);
        }
        entry
    }

    /// Takes out the entry that the clock's hand finds first without a mark.
    fn evict(&mut self) -> Option<Entry> {
        while !self.entries.is_empty() {
            if self.hand >= self.entries.len() {
                self.hand = 0;
            }
            let entry = &mut self.entries[self.hand];
            if !std::mem::take(&mut entry.used_again) {
                return Some(self.remove(self.hand));
            }
            self.hand += 1;
        }
        None
    }
}

/// A bounded cache of decoded blocks, shared by all segments of an engine; it also keeps their files open.
pub struct BlockCache {
    shards: [Mutex<Shard>; SHARDS],
    capacity: AtomicUsize,
    /// Bytes held or reserved.
    used: AtomicUsize,
    hits: AtomicU64,
    misses: AtomicU64,
    evictions: AtomicU64,
    files: OpenFiles,
}

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
    pub fn new(bytes: usize) -> BlockCache {
        BlockCache {
            shards: Default::default(),
            capacity: AtomicUsize::new(bytes),
            used: AtomicUsize::new(0),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            evictions: AtomicU64::new(0),
            files: OpenFiles::default(),
        }
    }

    /// Its maximum in bytes.
    pub fn capacity(&self) -> usize {
        self.capacity.load(Ordering::Relaxed)
    }

    /// Changes the maximum; what is over it is thrown out before the call returns.
    pub fn set_capacity(&self, bytes: usize) {
        self.capacity.store(bytes, Ordering::SeqCst);
        self.trim(0);
    }

    /// Forgets all blocks of a segment and closes its file. To be called when the file is removed.
    pub fn evict_segment(&self, id: SegmentId) {
        self.files.close(id);
        for shard in &self.shards {
            let mut shard = shard.lock();
            let first = BlockKey { segment: id, group: 0, column: 0, compact: false };
            let keys: Vec<BlockKey> = shard.keys.range(first..=BlockKey::footer(id)).copied().collect();
            for key in keys {
                if let Some(&place) = shard.places.get(&key) {
                    let entry = shard.remove(place);
                    self.used.fetch_sub(entry.bytes, Ordering::SeqCst);
                }
            }
        }
    }

    /// Figures.
    pub fn counters(&self) -> CacheCounters {
        CacheCounters {
            hits: self.hits.load(Ordering::Relaxed),
            misses: self.misses.load(Ordering::Relaxed),
            evictions: self.evictions.load(Ordering::Relaxed),
            bytes: self.used.load(Ordering::Relaxed) as u64,
        }
    }

    /// The open files of segments.
    pub(crate) fn files(&self) -> &OpenFiles {
        &self.files
    }

    /// What is kept under `key`.
    pub(crate) fn get(&self, key: BlockKey) -> Option<Cached> {
        let found = self.shards[key.shard()].lock().get(&key);
        let counter = if found.is_some() { &self.hits } else { &self.misses };
        counter.fetch_add(1, Ordering::Relaxed);
        found
    }

    /// What is kept under `key`, without counting as a use.
    pub(crate) fn peek(&self, key: BlockKey) -> Option<Cached> {
        let shard = self.shards[key.shard()].lock();
        shard.places.get(&key).map(|&place| shard.entries[place].value.clone())
    }

    /// Keeps `value`, if there is room or room can be made.
    pub(crate) fn insert(&self, key: BlockKey, value: Cached) {
        let bytes = value.bytes();
        let home = key.shard();
        if !self.reserve(bytes, home) {
            return;
        }
        let mut shard = self.shards[home].lock();
        if shard.places.contains_key(&key) {
            // Another thread decoded it meanwhile.
            self.used.fetch_sub(bytes, Ordering::SeqCst);
            return;
        }
        shard.push(Entry { key, value, bytes, used_again: false });
        drop(shard);
        // The maximum may have been lowered since room was reserved.
        self.trim(home);
    }

    fn reserve(&self, bytes: usize, home: usize) -> bool {
        loop {
            let used = self.used.load(Ordering::SeqCst);
            let capacity = self.capacity.load(Ordering::SeqCst);
            if bytes > capacity {
                return false;
            }
            if used.saturating_add(bytes) > capacity {
                if !self.evict_one(home) {
                    return false;
                }
                continue;
            }
            let swapped = self.used.compare_exchange(used, used + bytes, Ordering::SeqCst, Ordering::SeqCst);
            if swapped.is_ok() {
                return true;
            }
        }
    }

    fn trim(&self, home: usize) {
        while self.used.load(Ordering::SeqCst) > self.capacity.load(Ordering::SeqCst) && self.evict_one(home) {}
    }

    /// Throws out one block, from the shard `home` if it has any.
    fn evict_one(&self, home: usize) -> bool {
        for i in 0..SHARDS {
            let evicted = self.shards[(home + i) % SHARDS].lock().evict();
            if let Some(entry) = evicted {
                self.used.fetch_sub(entry.bytes, Ordering::SeqCst);
                self.evictions.fetch_add(1, Ordering::Relaxed);
                return true;
            }
        }
        false
    }
}

#[cfg(test)]
mod tests;
