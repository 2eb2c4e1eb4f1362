//! What a transaction has written to one table and not committed: its write set.
//!
//! A sorted map of the newest write of each key, and private segments that large statements went to. The map is newer
//! than all private segments, a later private segment newer than an earlier one. Cursors of the transaction read it
//! beside the committed rows.
//!
//! The rows of a plain INSERT that are all new stay together in a batch instead of the map, until somebody needs the map.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use crate::batch::Batch;
use crate::chunk::ChunksInUse;
use crate::cursor::Direction;
use crate::group::OWN_SEQ;
use crate::live::LiveSegment;
use crate::memtable::{Key, RowCollector};
use crate::ring::LostRows;
use crate::row::RowLayout;

/// What an insert does when its key exists; also what becomes of it when another transaction was faster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnDuplicate {
    /// INSERT, LOAD DATA: error 1062.
    Fail,
    /// INSERT IGNORE: reported; the key is locked first, but by bulk statements. At commit the row is left out.
    Ignore,
    /// REPLACE: reported; the key is locked first, but by bulk statements. At commit the row replaces the other.
    Replace,
    /// ON DUPLICATE KEY UPDATE: reported; the key is locked first, so nobody can be faster.
    Update,
}

/// One uncommitted write.
#[derive(Clone, Debug)]
pub struct OwnWrite {
    /// The new row; `None` deletes.
    pub row: Option<Box<[u8]>>,
    /// Set when the key was free when it was checked: checked again at commit.
    pub expects_absent: Option<OnDuplicate>,
}

impl OwnWrite {
    /// Approximate bytes that it occupies beside its key.
    pub fn cost(&self) -> usize {
        self.row.as_ref().map_or(0, |r| r.len()) + 96
    }
}

/// One uncommitted write, wherever it is.
#[derive(Clone, Copy)]
pub struct OwnRef<'a> {
    /// As in [`OwnWrite`].
    pub row: Option<&'a [u8]>,
    /// As in [`OwnWrite`].
    pub expects_absent: Option<OnDuplicate>,
}

/// Rows that a statement inserted, whose keys were all free.
#[derive(Clone)]
pub struct OwnBatch {
    /// The rows.
    pub rows: Arc<Batch>,
    /// What the statement does when another transaction was faster.
    pub mode: OnDuplicate,
}

/// A private segment: on disk, but in no manifest yet.
#[derive(Clone)]
pub struct PrivateSegment {
    /// The segment; obsolete until the commit.
    pub segment: Arc<LiveSegment>,
    /// Whether keys in it were free when they were checked: checked again at commit.
    pub expects_absent: Option<OnDuplicate>,
    /// The layout that it was written with.
    pub layout: Arc<RowLayout>,
    /// Its keys were compared with all commits up to this one; 0: with none.
    pub checked_up_to: u64,
    /// Those of its table.
    pub _chunks: ChunksInUse,
}

/// A transaction's write set for one table.
#[derive(Clone, Default)]
pub struct OwnWrites {
    /// Newest write of each key.
    pub map: BTreeMap<Key, OwnWrite>,
    /// Rows that are not in the map, which is empty then. No key is in two of them.
    pub batches: Vec<OwnBatch>,
    /// Approximate bytes of `map` and `batches`.
    pub bytes: usize,
    /// Oldest first.
    pub private: Vec<PrivateSegment>,
    /// Set when a bulk statement wrote more than `MAX_BYTES`: what is older than this time was left out.
    pub passed: Option<u64>,
    /// How many rows that were.
    pub left_out: u64,
    /// Rows that were too old once the commit was applied.
    pub lost: LostRows,
    /// Changes with every write: cursors notice and look again.
    pub generation: u64,
    /// Set when a cursor reads it: from then on `recent` is kept.
    pub is_read: bool,
    /// Keys of the last writes to `map`, and the generation before the first of them.
    recent: VecDeque<Key>,
    recent_from: u64,
}

/// Writes that are remembered: as many as an UPDATE makes between two short spans of its scan.
const RECENT_WRITES: usize = 64;

/// Batches that are made one at a time: the next row is looked for among so many.
const BATCHES_JOINED: usize = 8;

impl OwnWrites {
    /// Whether there is nothing.
    pub fn is_empty(&self) -> bool {
        self.has_no_rows() && self.private.is_empty()
    }

    /// Lets go of all writes: their table is gone.
    pub fn forget(&mut self) {
        self.forget_rows();
        self.private.clear();
    }

    /// The same of what is in memory.
    pub fn forget_rows(&mut self) {
        self.map.clear();
        self.batches.clear();
        self.bytes = 0;
        self.generation += 1;
    }

    /// Whether nothing is in memory.
    pub fn has_no_rows(&self) -> bool {
        self.map.is_empty() && self.batches.is_empty()
    }

    /// Whether a batch may be added.
    pub fn takes_batches(&self) -> bool {
        self.map.is_empty() && self.private.is_empty()
    }

    /// Adds rows whose keys are new; see [`OwnWrites::takes_batches`].
    pub fn add_batch(&mut self, batch: OwnBatch) {
        self.generation += 1;
        self.bytes += batch.rows.size();
        self.batches.push(batch);
    }

    /// Takes the batch that was added last back out. Its rows may be in the map meanwhile.
    pub fn remove_batch(&mut self, rows: &Arc<Batch>) {
        self.generation += 1;
        match self.batches.last() {
            Some(last) if Arc::ptr_eq(&last.rows, rows) => {
                self.bytes -= rows.size();
                self.batches.pop();
            }
            _ => (0..rows.len()).for_each(|i| _ = self.remove(&rows.key(i))),
        }
    }

    /// Makes one batch of all, where they have the same mode.
    pub fn join_batches(&mut self) {
        let Some(mode) = self.batches.first().map(|first| first.mode) else { return };
        if self.batches.iter().any(|batch| batch.mode != mode) {
            return;
        }
        while self.batches.len() > 1 {
            let join = |some: &[OwnBatch]| {
                let rows: Vec<&Batch> = some.iter().map(|batch| &*batch.rows).collect();
                Batch::join(&rows, |_, _| {}).map(|rows| OwnBatch { rows: Arc::new(rows), mode })
            };
            self.batches = self.batches.chunks(BATCHES_JOINED).filter_map(join).collect();
        }
    }

    /// Moves the rows of batches to the map.
    pub fn settle(&mut self) {
        for OwnBatch { rows, mode } in std::mem::take(&mut self.batches) {
            self.bytes -= rows.size();
            for i in 0..rows.len() {
                let key = Key::from_slice(&rows.key(i));
                let write = OwnWrite { row: Some(rows.row(i).into()), expects_absent: Some(mode) };
                self.bytes += key.len() + write.cost();
                self.map.insert(key, write);
            }
        }
    }

    /// What is written to a key in memory.
    pub fn get(&self, key: &[u8]) -> Option<OwnRef<'_>> {
        if let Some(write) = self.map.get(key) {
            return Some(OwnRef { row: write.row.as_deref(), expects_absent: write.expects_absent });
        }
        self.batches.iter().find_map(|OwnBatch { rows, mode }| {
            let i = rows.find(key)?;
            Some(OwnRef { row: Some(rows.row(i)), expects_absent: Some(*mode) })
        })
    }

    /// Calls `take` for each write in memory, in key order within the map and each batch.
    pub fn for_each(&self, mut take: impl FnMut(&[u8], OwnRef<'_>)) {
        for (key, write) in &self.map {
            take(key, OwnRef { row: write.row.as_deref(), expects_absent: write.expects_absent });
        }
        for OwnBatch { rows, mode } in &self.batches {
            for i in 0..rows.len() {
                take(&rows.key(i), OwnRef { row: Some(rows.row(i)), expects_absent: Some(*mode) });
            }
        }
    }

    /// Whether a key of a batch of another transaction is written to in memory.
    pub fn shares_keys(&self, other: &Batch) -> bool {
        self.map.keys().any(|key| other.find(key).is_some())
            || self.batches.iter().any(|batch| batch.rows.shares_keys(other))
    }

    /// Puts a write, gives back the one that it replaces.
    pub fn put(&mut self, key: Key, write: OwnWrite) -> Option<OwnWrite> {
        self.settle();
        self.note(&key);
        self.bytes += key.len() + write.cost();
        let key_len = key.len();
        let previous = self.map.insert(key, write);
        if let Some(p) = &previous {
            self.bytes -= key_len + p.cost();
        }
        previous
    }

    /// Takes a write back out.
    pub fn remove(&mut self, key: &[u8]) -> Option<OwnWrite> {
        self.settle();
        self.note(key);
        let previous = self.map.remove(key);
        if let Some(p) = &previous {
            self.bytes -= key.len() + p.cost();
        }
        previous
    }

    /// Counts a write to the map.
    fn note(&mut self, key: &[u8]) {
        self.generation += 1;
        if !self.is_read {
            return;
        }
        if self.recent_from + self.recent.len() as u64 + 1 != self.generation {
            // Something else than the map changed in between.
            self.recent.clear();
            self.recent_from = self.generation - 1;
        }
        if self.recent.len() == RECENT_WRITES {
            self.recent.pop_front();
            self.recent_from += 1;
        }
        self.recent.push_back(Key::from_slice(key));
    }

    /// The keys written since a generation, if that is all that has changed and not too long ago.
    pub fn changed_since(&self, generation: u64) -> Option<impl Iterator<Item = &[u8]>> {
        let is_known = self.recent_from + self.recent.len() as u64 == self.generation && generation >= self.recent_from;
        let skipped = generation.saturating_sub(self.recent_from) as usize;
        is_known.then(|| self.recent.iter().skip(skipped).map(|key| key.as_slice()))
    }

    /// Sequence number that the `rank`-th private segment's rows have for the transaction's own reads.
    pub fn private_seq(rank: usize) -> u64 {
        OWN_SEQ + rank as u64
    }

    /// As [`crate::memtable::Memtable::visit`] for the writes of the map, where batches have to be settled before.
    pub fn visit(
        &self,
        from: Bound<&[u8]>,
        (max_keys, stop): (usize, Option<&[u8]>),
        take: &mut impl FnMut(&Key, &OwnWrite),
    ) -> Option<Key> {
        let mut range = self.map.range::<[u8], _>((from, Bound::Unbounded));
        let mut last = None;
        for _ in 0..max_keys {
            let (key, write) = range.next()?;
            if stop.is_some_and(|stop| key.as_slice() >= stop) {
                return None;
            }
            last = Some(key);
            take(key, write);
        }
        last.cloned()
    }

    /// Copies up to `max_rows` writes of the map, where batches have to be settled before; see [`crate::memtable::Memtable::collect`].
    pub fn collect(
        &self,
        from: Bound<&[u8]>,
        direction: Direction,
        max_rows: usize,
        layout: &RowLayout,
        out: &mut RowCollector,
    ) -> Option<Key> {
        let (low, high) = match direction {
            Direction::Forward => (from, Bound::Unbounded),
            Direction::Backward => (Bound::Unbounded, from),
        };
        let mut range = self.map.range::<[u8], _>((low, high));
        let mut last = None;
        while out.rows() < max_rows {
            let next = match direction {
                Direction::Forward => range.next(),
                Direction::Backward => range.next_back(),
            };
            let (key, write) = next?;
            last = Some(key);
            out.push(layout, key, u64::MAX, write.row.as_deref());
        }
        last.cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(own: &mut OwnWrites, key: u8) {
        own.put(Key::from_slice(&[key]), OwnWrite { row: None, expects_absent: None });
    }

    fn since(own: &OwnWrites, generation: u64) -> Option<Vec<u8>> {
        own.changed_since(generation).map(|keys| keys.map(|key| key[0]).collect())
    }

    #[test]
    fn a_cursor_is_told_what_was_written_since_it_looked() {
        let mut own = OwnWrites::default();
        put(&mut own, 1);
        assert_eq!(since(&own, 0), None, "nobody read it yet");
        own.is_read = true;
        let start = own.generation;
        put(&mut own, 2);
        put(&mut own, 3);
        own.remove(&[2]);
        assert_eq!(since(&own, start), Some(vec![2, 3, 2]));
        assert_eq!(since(&own, start + 2), Some(vec![2]));
        assert_eq!(since(&own, own.generation), Some(vec![]));
        assert_eq!(since(&own, 0), None);
        own.generation += 1;
        assert_eq!(since(&own, start + 3), None, "more than keys has changed");
        put(&mut own, 4);
        assert_eq!(since(&own, start + 3), None);
        assert_eq!(since(&own, start + 4), Some(vec![4]));
        for key in 0..=255 {
            put(&mut own, key);
        }
        assert_eq!(since(&own, own.generation - 2), Some(vec![254, 255]));
        assert_eq!(since(&own, own.generation - RECENT_WRITES as u64).map(|keys| keys.len()), Some(RECENT_WRITES));
        assert_eq!(since(&own, own.generation - RECENT_WRITES as u64 - 1), None);
    }
}
