//! What a table consists of at one moment. Immutable: a change installs a new version, scans keep theirs.

use std::collections::BTreeMap;
use std::sync::Arc;

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
}

impl Version {
    /// A version without rows.
    pub fn empty(active: Memtable) -> Version {
        Version { active: Arc::new(active), frozen: Vec::new(), segments: BTreeMap::new() }
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
