//! Who may change what a table consists of: one at a time, but that a flush need not wait for a merge.
//!
//! A merge takes as long as it takes to write a chunk anew. Commits that have filled the memtables meanwhile wait for the
//! flush, so that must not wait for the merge. Whoever changes anything else takes both locks.

use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};

use crate::error::{Error, Result};

/// How often a statement that waits for a lock asks whether it was killed.
const POLL: Duration = Duration::from_millis(100);

/// Waits for a lock that may be held for long; [`Error::Interrupted`] once `stop` says so.
pub(crate) fn lock_unless<'m, T>(mutex: &'m Mutex<T>, stop: &mut dyn FnMut() -> bool) -> Result<MutexGuard<'m, T>> {
    loop {
        match mutex.try_lock_for(POLL) {
            Some(guard) => return Ok(guard),
            None if stop() => return Err(Error::Interrupted),
            None => {}
        }
    }
}

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

    /// The same for a statement: [`Error::Interrupted`] once `stop` says so.
    pub fn lock_unless(&self, stop: &mut dyn FnMut() -> bool) -> Result<Alone<'_>> {
        let merges = lock_unless(&self.merges, stop)?;
        Ok(Alone { _merges: merges, _flushes: lock_unless(&self.flushes, stop)? })
    }

    /// Keeps out whoever takes segments away. Before they are chosen, and when what they became is put in their place, the
    /// other lock is wanted too.
    /// [`Error::Interrupted`] once `stop` says so.
    pub fn lock_for_merges(&self, stop: &mut dyn FnMut() -> bool) -> Result<MutexGuard<'_, ()>> {
        lock_unless(&self.merges, stop)
    }

    /// Keeps out other flushes, and whoever puts merged segments in their place.
    pub fn lock_for_flush(&self) -> MutexGuard<'_, ()> {
        self.flushes.lock()
    }

    /// The same for a statement: [`Error::Interrupted`] once `stop` says so.
    pub fn lock_for_flush_unless(&self, stop: &mut dyn FnMut() -> bool) -> Result<MutexGuard<'_, ()>> {
        lock_unless(&self.flushes, stop)
    }
}
