//! What a table consists of at one moment. Immutable: a change installs a new version, scans keep theirs.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::horizon::Gate;
use crate::live::LiveSegment;
use crate::memtable::Memtable;
use crate::segment::SegmentId;

/// The sources of a table's rows.
#[derive(Clone)]
pub struct Version {
    /// Takes the writes of new commits.
    pub active: Arc<Memtable>,
    /// Waiting to be flushed, oldest first, each with the sequence number up to which it completes the table.
    pub frozen: Vec<(Arc<Memtable>, u64)>,
    /// Live segments.
    pub segments: BTreeMap<SegmentId, Arc<LiveSegment>>,
    /// Segments that the commit with this sequence number dropped as a whole: snapshots from before still see them.
    pub dropped: BTreeMap<SegmentId, (Arc<LiveSegment>, u64)>,
    /// What is behind the horizon; all versions of a table and of its indexes have the same.
    pub gate: Arc<Gate>,
}

impl Version {
    /// A version without rows.
    pub fn empty(active: Memtable) -> Version {
        Version {
            active: Arc::new(active),
            frozen: Vec::new(),
            segments: BTreeMap::new(),
            dropped: BTreeMap::new(),
            gate: Arc::default(),
        }
    }

    /// The segments that a snapshot sees.
    pub fn segments_at(&self, snapshot: u64) -> impl Iterator<Item = &Arc<LiveSegment>> {
        let dropped = self.dropped.values().filter(move |(_, seq)| snapshot < *seq).map(|(segment, _)| segment);
        self.segments.values().chain(dropped)
    }

    /// Moves segments out of the way of all snapshots from `seq` on.
    pub fn drop_segments(&mut self, ids: &[SegmentId], seq: u64) {
        for id in ids {
            if let Some(segment) = self.segments.remove(id) {
                segment.mark_obsolete();
                self.dropped.insert(*id, (segment, seq));
            }
        }
    }

    /// All memtables.
    pub fn memtables(&self) -> impl Iterator<Item = &Arc<Memtable>> {
        std::iter::once(&self.active).chain(self.frozen.iter().map(|(m, _)| m))
    }

    /// Bytes in memtables.
    pub fn memtable_bytes(&self) -> usize {
        self.memtables().map(|m| m.bytes()).sum()
    }
}
