//! DDL and prepared transactions: a table that one has written to keeps its name, definition and rows until it is decided.
//!
//! The server's metadata locks keep DDL from the tables of transactions that have a connection. A prepared transaction
//! outlives its connection, and a restart. DDL waits for it here ([`Txn::wait_for_prepared`]), with the time-out of row locks;
//! then it holds a metadata lock, so that no other transaction can write to the table and be prepared. The functions that
//! change a table look again before they do.
//!
//! Temporary tables go with their connection, also while a prepared transaction has written to them: its writes to them go too.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use crate::commit::CommitQueue;
use crate::engine::{Engine, TEMPORARY_PREFIX};
use crate::error::{Error, Result};
use crate::lock::LockMode;
use crate::ordered::DECISIONS;
use crate::prepare::Prepared;
use crate::table::Table;
use crate::txn::Txn;

impl Txn {
    /// Waits, as long as for a row lock, until no prepared transaction has writes to a table: [`Error::Prepared`] if one still
    /// has. The caller keeps others from writing to the table.
    pub fn wait_for_prepared(&mut self, table: &Arc<Table>) -> Result<()> {
        let engine = self.engine.clone();
        let tables = table.with_parts();
        if is_temporary(&tables) {
            return Ok(());
        }
        let deadline = Instant::now().checked_add(self.lock_timeout);
        loop {
            let in_the_way = engine.commit_queue.lock().writer_of(&tables).map(|p| p.decision);
            let Some(decision) = in_the_way else { return Ok(()) };
            let left = deadline.map_or(self.lock_timeout, |end| end.saturating_duration_since(Instant::now()));
            let key = decision.to_le_bytes();
            match engine.locks.lock(self.id, DECISIONS, &key, LockMode::Shared, left, &*self.interrupted) {
                Ok(_) => engine.locks.release(self.id, DECISIONS, &key),
                Err(Error::LockTimeout) => return Err(Error::Prepared { table: table.name() }),
                Err(error) => return Err(error),
            }
        }
    }
}

impl CommitQueue {
    /// A prepared transaction, perhaps in its second phase, that has written to one of these tables.
    pub fn writer_of(&self, tables: &[Arc<Table>]) -> Option<&Arc<Prepared>> {
        let is_one = |of: &Arc<Table>| tables.iter().any(|table| Arc::ptr_eq(table, of));
        self.all_prepared().find(|p| p.tables.iter().any(|t| is_one(&t.table)))
    }
}

impl Engine {
    /// [`Error::Prepared`] if a prepared transaction has writes to one of these tables.
    pub(crate) fn check_decided(&self, tables: &[Arc<Table>]) -> Result<()> {
        self.check_decided_in(&self.commit_queue.lock(), tables)
    }

    /// The same for a holder of the commit queue.
    pub(crate) fn check_decided_in(&self, queue: &CommitQueue, tables: &[Arc<Table>]) -> Result<()> {
        match (queue.writer_of(tables), tables.first()) {
            (Some(_), Some(table)) => Err(Error::Prepared { table: table.name() }),
            _ => Ok(()),
        }
    }

    /// Lets no commit touch tables that are about to be dropped. Writes that prepared transactions made to temporary ones, or
    /// to any one if asked for, are forgotten; otherwise there must be none.
    pub(crate) fn leave_alone(&self, tables: &[Arc<Table>], with_prepared: bool) -> Result<()> {
        let _turn = self.apply_turn.lock();
        let queue = self.commit_queue.lock();
        if !is_temporary(tables) && !with_prepared {
            self.check_decided_in(&queue, tables)?;
        }
        tables.iter().for_each(|table| table.dropped.store(true, Ordering::Release));
        for writes in queue.all_prepared().flat_map(|p| &p.tables).filter(|writes| writes.table.is_dropped()) {
            let mut own = writes.own.write();
            own.forget_rows();
            // They stay in the list: the commit's sequence numbers count them, as replay does.
            own.private.iter().for_each(|p| p.segment.mark_obsolete());
        }
        Ok(())
    }
}

/// Whether a table, which comes first of its parts, belongs to one connection.
fn is_temporary(tables: &[Arc<Table>]) -> bool {
    tables.first().is_some_and(|table| table.name.read().starts_with(TEMPORARY_PREFIX))
}
