//! Who may change what a table consists of: one at a time, but that a flush need not wait for a merge.
//!
//! A merge takes as long as it takes to write a chunk anew. Commits that have filled the memtables meanwhile wait for the
//! flush, so that must not wait for the merge. Whoever changes anything else takes both locks.

use parking_lot::{Mutex, MutexGuard};

/// The locks of a table. Taken in the order of the fields.
#[derive(Default)]
pub(crate) struct Maintenance {
    /// Segments that are there stay.
    merges: Mutex<()>,
    /// No segment comes or goes, but by a commit.
    flushes: Mutex<()>,
}

/// Nobody else changes what the table consists of.
pub(crate) struct Alone<'a> {
    _merges: MutexGuard<'a, ()>,
    _flushes: MutexGuard<'a, ()>,
}

impl Maintenance {
    /// Keeps everybody else out.
    pub fn lock(&self) -> Alone<'_> {
        Alone { _merges: self.merges.lock(), _flushes: self.flushes.lock() }
    }

    /// Keeps out whoever takes segments away. Before they are chosen, and when what they became is put in their place, the
    /// other lock is wanted too.
    pub fn lock_for_merges(&self) -> MutexGuard<'_, ()> {
        self.merges.lock()
    }

    /// Keeps out other flushes, and whoever puts merged segments in their place.
    pub fn lock_for_flush(&self) -> MutexGuard<'_, ()> {
        self.flushes.lock()
    }
}
