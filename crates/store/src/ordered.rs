//! The second phase in a coordinator's order, and what the coordinator must know before it forgets.
//!
//! The coordinator's log (the server's binary log) names an order of commits. `Txn::order_commit` is called in that
//! order, one transaction at a time, under a lock of the server: it numbers the commit and puts its record into the log's
//! buffer, no more. The transaction is safe already, by its prepare record and the coordinator's log, so nobody waits for
//! its commit record to reach the disk; `Engine::checkpoint` makes that good before the coordinator's log may go.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::commit::Pending;
use crate::config::FlushLog;
use crate::engine::Engine;
use crate::error::Result;
use crate::lock::LockMode;
use crate::manifest::edit::TableId;
use crate::prepare::Prepared;
use crate::table::Table;
use crate::txn::Txn;

/// The locks that prepared transactions hold on their own outcome are those of a table that cannot exist.
pub(crate) const DECISIONS: TableId = TableId(u32::MAX);

/// How long a wait for commits in the queue lasts before it looks again.
pub(crate) const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// A commit that has its place in the order and is not finished yet.
pub(crate) struct Ordered {
    pending: Arc<Pending>,
    prepared: Arc<Prepared>,
}

impl Txn {
    /// Gives a prepared transaction its place in the order of commits; `commit` finishes it. It may be called from another
    /// thread than the transaction's own, which must be waiting meanwhile. Without a prepared transaction, or after
    /// an error, `commit` does all of the work.
    pub fn order_commit(&mut self) -> Result<()> {
        let Some(xid) = self.prepared_xid() else { return Ok(()) };
        self.engine.check_writable()?;
        let ordered = self.engine.order_prepared(&xid)?;
        self.set_ordered(ordered);
        Ok(())
    }

    /// Takes a snapshot that sees every commit which has its place in the order now.
    pub fn take_ordered_snapshot(&mut self) {
        self.wait_ordered();
        self.take_snapshot();
    }

    /// Waits until every commit that has its place in the order now is visible. Whoever repeats commits in their order
    /// begins with that: a coordinator goes on to the next transaction once a commit has its place.
    pub fn wait_ordered(&self) {
        self.engine.wait_applied();
    }

    /// Waits until a prepared transaction that is in this one's way is decided: what [`crate::Error::Undecided`] named.
    pub fn wait_decided(&mut self, decision: u64) -> Result<()> {
        self.holds_locks = true;
        let timeout = self.lock_timeout;
        self.engine
            .locks
            .lock(self.id, DECISIONS, &decision.to_le_bytes(), LockMode::Shared, timeout, &*self.interrupted)
            .map(|_| ())
    }
}

/// What a statement that is repeated elsewhere as text, in the order of commits, does with a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextUse {
    /// Adds rows: together with others who write.
    Insert,
    /// Reads rows that it does not name by key: alone.
    Read,
}

impl Txn {
    /// Keeps statements that are repeated as text, in the order of commits, from missing each other's rows: until its
    /// end no other transaction writes to the table, or none that has asked for that.
    pub fn lock_for_text(&mut self, table: &Table, use_of: TextUse) -> Result<()> {
        let mode = match use_of {
            TextUse::Insert => LockMode::Shared,
            TextUse::Read => LockMode::Exclusive,
        };
        self.lock_table(table, mode, self.lock_timeout)
    }
}

impl Engine {
    /// The first half of a second phase. `None` if there is no prepared transaction with this id.
    pub(crate) fn order_prepared(&self, xid: &[u8]) -> Result<Option<Ordered>> {
        let numbered = self.number_prepared(&mut self.commit_queue.lock(), xid, FlushLog::EverySecond)?;
        Ok(numbered.map(|(pending, prepared)| Ordered { pending, prepared }))
    }

    /// The other half.
    pub(crate) fn finish_ordered(&self, ordered: &Ordered) -> Result<()> {
        let finished = self.finish_logged(&ordered.pending);
        if let Err(error) = &finished {
            // The coordinator has decided, so there is no way back; the next start commits it.
            self.poison(&format!("a decided commit could not be logged: {error}"));
        }
        self.commit_queue.lock().end_decision(ordered.prepared.decision, false);
        self.locks.release_all(ordered.prepared.owner);
        finished
    }

    /// Holds others who need to know the outcome of a prepared transaction, by its number, until its owner
    /// lets go of its locks. An owner's transactions have one each: somebody may still hold the one before.
    pub(crate) fn hold_decision(&self, owner: u64, decision: u64) -> Result<()> {
        let exclusive = LockMode::Exclusive;
        self.locks.lock(owner, DECISIONS, &decision.to_le_bytes(), exclusive, Duration::ZERO, &|| false).map(|_| ())
    }

    /// When it returns, no commit that has been asked for so far needs the coordinator's log after a crash.
    pub fn checkpoint(&self) -> Result<()> {
        let synced = self.wal.sync(self.wal.position());
        let refusals = self.wal.refusals();
        if refusals > self.refusals_kept.load(Ordering::Acquire) {
            // Commit records may be among those that a full disk refused: segments keep what they said.
            self.flush_all()?;
            self.refusals_kept.fetch_max(refusals, Ordering::AcqRel);
            return Ok(());
        }
        synced.inspect_err(|error| self.poison_unless_full(error))
    }

    /// Brings what the log was refused into segments, in the background.
    pub(crate) fn keep_refused(&self) {
        self.roll_back_due();
        let refusals = self.wal.refusals();
        if refusals <= self.refusals_seen.fetch_max(refusals, Ordering::AcqRel) {
            return;
        }
        for table in self.all_tables() {
            self.freeze(&table);
            self.workers.ask_flush(table.id);
        }
    }

    /// Waits until all commits that are in the queue now are applied, or were refused.
    fn wait_applied(&self) {
        let Some(last) = self.commit_queue.lock().pending.back().map(|p| p.seq) else { return };
        self.apply_ready();
        let mut applied = self.applied_wait.lock();
        while self.commit_queue.lock().pending.front().is_some_and(|p| p.seq <= last) {
            self.applied.wait_for(&mut applied, LOOK_AGAIN);
        }
    }
}
