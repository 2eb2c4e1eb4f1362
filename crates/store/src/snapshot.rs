//! Open snapshots: what a read may see, and so what a flush or merge must keep.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use parking_lot::Mutex;

/// All open snapshots of an engine.
#[derive(Default)]
pub struct Snapshots {
    open: Mutex<Open>,
    /// Counts what [`Snapshots::next_era`] was asked for.
    era: AtomicU64,
}

#[derive(Default)]
struct Open {
    /// By sequence number, then in the order in which they were taken.
    snapshots: BTreeMap<(u64, u64), Opened>,
    taken: u64,
}

struct Opened {
    since: Instant,
    /// Whose it is.
    txn: u64,
    /// Set for one by which rows are read. Others say what was committed when keys were checked.
    reads: bool,
}

/// The state of the engine after the commit with this sequence number; stays readable while it is held.
pub struct Snapshot {
    seq: u64,
    number: u64,
    era: u64,
    registry: Option<Arc<Snapshots>>,
}

impl Snapshots {
    /// Takes a snapshot for a transaction (0: for none). `visible` is read under the lock, so that no flush can
    /// miss it.
    pub fn take(self: &Arc<Self>, txn: u64, visible: impl FnOnce() -> u64) -> Arc<Snapshot> {
        self.take_to(true, txn, visible)
    }

    /// The same for a transaction that only wants to know later what was committed since: newer sequence numbers stay, but no
    /// rows are read by it.
    pub fn take_for_checks(self: &Arc<Self>, txn: u64, visible: impl FnOnce() -> u64) -> Arc<Snapshot> {
        self.take_to(false, txn, visible)
    }

    fn take_to(self: &Arc<Self>, reads: bool, txn: u64, visible: impl FnOnce() -> u64) -> Arc<Snapshot> {
        let since = Instant::now();
        let mut open = self.open.lock();
        let seq = visible();
        open.taken += 1;
        let number = open.taken;
        open.snapshots.insert((seq, number), Opened { since, txn, reads });
        Arc::new(Snapshot { seq, number, era: self.era.load(Ordering::Acquire), registry: Some(self.clone()) })
    }

    /// A number that tells snapshots from before now, whose `era` is smaller, from those that are taken later.
    pub fn next_era(&self) -> u64 {
        self.era.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// Sequence numbers of the open snapshots, ascending, and `visible` as the newest possible one.
    pub fn list(&self, visible: impl FnOnce() -> u64) -> Vec<u64> {
        let open = self.open.lock();
        let mut seqs: Vec<u64> = open.snapshots.keys().map(|&(seq, _)| seq).collect();
        seqs.dedup();
        let newest = visible();
        if seqs.last() != Some(&newest) {
            seqs.push(newest);
        }
        seqs
    }

    /// The oldest of [`Snapshots::list`].
    pub fn oldest(&self, visible: impl FnOnce() -> u64) -> u64 {
        let open = self.open.lock();
        let oldest = open.snapshots.keys().next().map(|&(seq, _)| seq);
        oldest.unwrap_or_else(visible)
    }

    /// The oldest one by which rows are read, if one is open: its sequence number and begin.
    pub fn oldest_reader(&self) -> Option<(u64, Instant)> {
        let open = self.open.lock();
        open.snapshots.iter().find(|(_, opened)| opened.reads).map(|(&(seq, _), opened)| (seq, opened.since))
    }

    /// Sequence number, begin and transaction of the oldest one that is open.
    pub fn oldest_open(&self) -> Option<(u64, Instant, u64)> {
        let open = self.open.lock();
        open.snapshots.iter().next().map(|(&(seq, _), opened)| (seq, opened.since, opened.txn))
    }

    /// How many are open.
    pub fn len(&self) -> usize {
        self.open.lock().snapshots.len()
    }
}

impl Snapshot {
    /// Sees whatever is committed. It keeps nothing alive, so it is only for looking at newest versions.
    pub fn latest() -> Arc<Snapshot> {
        Arc::new(Snapshot { seq: crate::group::OWN_SEQ - 1, number: 0, era: u64::MAX, registry: None })
    }

    /// Sees commits up to `seq`. It keeps nothing alive: for whoever keeps merges away.
    pub fn at(seq: u64) -> Arc<Snapshot> {
        Arc::new(Snapshot { seq, number: 0, era: u64::MAX, registry: None })
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
        registry.open.lock().snapshots.remove(&(self.seq, self.number));
    }
}
