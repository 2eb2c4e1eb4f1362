//! Open snapshots: what a read may see, and so what a flush or merge must keep.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// All open snapshots of an engine.
#[derive(Default)]
pub struct Snapshots {
    /// For each sequence number: how many, and since when there are any.
    open: Mutex<BTreeMap<u64, (usize, Instant)>>,
    /// Counts what [`Snapshots::next_era`] was asked for.
    era: AtomicU64,
}

/// The state of the engine after the commit with this sequence number; stays readable while it is held.
pub struct Snapshot {
    seq: u64,
    era: u64,
    registry: Option<Arc<Snapshots>>,
}

impl Snapshots {
    /// Takes a snapshot. `visible` is read under the lock, so that no flush can miss it.
    pub fn take(self: &Arc<Self>, visible: impl FnOnce() -> u64) -> Arc<Snapshot> {
        let mut open = self.open.lock();
        let seq = visible();
        open.entry(seq).or_insert_with(|| (0, Instant::now())).0 += 1;
        Arc::new(Snapshot { seq, era: self.era.load(Ordering::Acquire), registry: Some(self.clone()) })
    }

    /// A number that tells snapshots from before now, whose `era` is smaller, from those that are taken later.
    pub fn next_era(&self) -> u64 {
        self.era.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// Sequence numbers of the open snapshots, ascending, and `visible` as the newest possible one.
    pub fn list(&self, visible: impl FnOnce() -> u64) -> Vec<u64> {
        let open = self.open.lock();
        let mut seqs: Vec<u64> = open.keys().copied().collect();
        let newest = visible();
        if seqs.last() != Some(&newest) {
            seqs.push(newest);
        }
        seqs
    }

    /// The oldest of [`Snapshots::list`].
    pub fn oldest(&self, visible: impl FnOnce() -> u64) -> u64 {
        let open = self.open.lock();
        let oldest = open.keys().next().copied();
        oldest.unwrap_or_else(visible)
    }

    /// How many are open.
    pub fn len(&self) -> usize {
        self.open.lock().values().map(|(count, _)| count).sum()
    }

    /// For how long the oldest one has been open.
    pub fn age(&self) -> Duration {
        self.open.lock().values().next().map_or(Duration::ZERO, |(_, since)| since.elapsed())
    }
}

impl Snapshot {
    /// Sees whatever is committed. It keeps nothing alive, so it is only for looking at newest versions.
    pub fn latest() -> Arc<Snapshot> {
        Arc::new(Snapshot { seq: crate::group::OWN_SEQ - 1, era: u64::MAX, registry: None })
    }

    /// See [`Snapshots::next_era`].
    pub fn era(&self) -> u64 {
        self.era
    }

    /// The last sequence number that it sees.
    pub fn seq(&self) -> u64 {
        self.seq
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        let Some(registry) = &self.registry else { return };
        let mut open = registry.open.lock();
        if let Some((count, _)) = open.get_mut(&self.seq) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.seq);
            }
        }
    }
}
