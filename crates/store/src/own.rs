//! What a transaction has written to one table and not committed: its write set.
//!
//! A sorted map of the newest write of each key, and private segments that large statements went to. The map is newer
//! than all private segments, a later private segment newer than an earlier one. Cursors of the transaction read it
//! beside the committed rows.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use crate::cursor::Direction;
use crate::group::OWN_SEQ;
use crate::live::LiveSegment;
use crate::memtable::{Key, RowCollector};
use crate::row::RowLayout;

/// What an insert does when its key exists; also what becomes of it when another transaction was faster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnDuplicate {
    /// INSERT, LOAD DATA: error 1062.
    Fail,
    /// INSERT IGNORE: reported; at commit the row is left out.
    Ignore,
    /// REPLACE: reported; at commit the row replaces the other.
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

/// A private segment: on disk, but in no manifest yet.
#[derive(Clone)]
pub struct PrivateSegment {
    /// The segment; obsolete until the commit.
    pub segment: Arc<LiveSegment>,
    /// Whether keys in it were free when they were checked: checked again at commit.
    pub expects_absent: Option<OnDuplicate>,
    /// The layout that it was written with.
    pub layout: Arc<RowLayout>,
}

/// A transaction's write set for one table.
#[derive(Default)]
pub struct OwnWrites {
    /// Newest write of each key.
    pub map: BTreeMap<Key, OwnWrite>,
    /// Approximate bytes of `map`.
    pub bytes: usize,
    /// Oldest first.
    pub private: Vec<PrivateSegment>,
    /// Changes with every write: cursors notice and look again.
    pub generation: u64,
}

impl OwnWrites {
    /// Whether there is nothing.
    pub fn is_empty(&self) -> bool {
        self.map.is_empty() && self.private.is_empty()
    }

    /// Puts a write, gives back the one that it replaces.
    pub fn put(&mut self, key: Key, write: OwnWrite) -> Option<OwnWrite> {
        self.generation += 1;
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
        self.generation += 1;
        let previous = self.map.remove(key);
        if let Some(p) = &previous {
            self.bytes -= key.len() + p.cost();
        }
        previous
    }

    /// Sequence number that the `rank`-th private segment's rows have for the transaction's own reads.
    pub fn private_seq(rank: usize) -> u64 {
        OWN_SEQ + rank as u64
    }

    /// Copies up to `max_rows` writes of the map; see [`crate::memtable::Memtable::collect`].
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
