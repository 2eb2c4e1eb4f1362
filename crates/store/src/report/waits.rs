//! Who waits for whom: the waits for row locks, for INFORMATION_SCHEMA.

use std::sync::Arc;
use std::time::Duration;

use crate::engine::Engine;
use crate::error::Result;
use crate::lock::{LockMode, WaitReported};
use crate::manifest::edit::TableId;
use crate::ordered::DECISIONS;
use crate::table::Table;

/// A transaction that waits for a row lock of a table.
pub struct LockWait {
    /// The transaction that waits: [`crate::Txn::id`].
    pub waiting: u64,
    /// The transactions that hold the lock, and those that stand in front of it in the queue.
    pub blocking: Vec<u64>,
    /// The table.
    pub table: Arc<Table>,
    /// The place of the unique index among the table's, if the lock is one of a key of an index.
    pub index: Option<usize>,
    /// The sort key of the row, or of the index entry. Empty for the lock of the whole table.
    pub key: Arc<[u8]>,
    /// The committed row with that key. `None` for a row that is not committed.
    pub row: Option<Vec<u8>>,
    /// How it is to be locked.
    pub mode: LockMode,
    /// How long it has waited.
    pub waited: Duration,
}

impl Engine {
    /// The waits for locks of tables, the oldest first.
    pub fn lock_waits(&self) -> Vec<LockWait> {
        self.locks.waits().into_iter().filter_map(|wait| self.lock_wait(wait)).collect()
    }

    /// A wait for the decision on a prepared transaction is one for a table that it has written to.
    fn lock_wait(&self, mut wait: WaitReported) -> Option<LockWait> {
        if wait.table == DECISIONS {
            wait.table = self.written_by_prepared(&wait.key)?;
            wait.key = Arc::default();
        }
        let locked = self.table_by_id(wait.table)?;
        let base = locked.schema().index_of.and_then(|of| self.table_by_id(TableId(of.table)));
        let index_of = |base: &Table| base.indexes().iter().position(|index| Arc::ptr_eq(&index.table, &locked));
        let index = base.as_ref().and_then(|base| index_of(base));
        let table = base.unwrap_or_else(|| locked.clone());
        // What cannot be read now is reported by those who need it.
        let row = committed_row(&table, index, &wait.key).unwrap_or_default();
        let WaitReported { owner, blockers, key, mode, since, .. } = wait;
        Some(LockWait { waiting: owner, blocking: blockers, table, index, key, row, mode, waited: since.elapsed() })
    }
}

impl Engine {
    fn written_by_prepared(&self, decision: &[u8]) -> Option<TableId> {
        let queue = self.commit_queue.lock();
        let prepared = queue.all_prepared().find(|p| p.decision.to_le_bytes() == *decision)?;
        prepared.tables.first().map(|writes| writes.table.id)
    }
}

/// The row of a table with a key of its own or of one of its indexes.
fn committed_row(table: &Arc<Table>, index: Option<usize>, key: &[u8]) -> Result<Option<Vec<u8>>> {
    let Some(index) = index.and_then(|number| table.indexes().get(number).cloned()) else {
        return newest_row(table, key);
    };
    let Some(entry) = newest_row(&index.table, key)? else { return Ok(None) };
    let mut base_key = Vec::new();
    index.push_base_key(&entry, &mut base_key);
    newest_row(table, &base_key)
}

fn newest_row(table: &Table, key: &[u8]) -> Result<Option<Vec<u8>>> {
    let Some(row) = table.find(key, 0)?.and_then(|found| found.row) else { return Ok(None) };
    let mut bytes = Vec::new();
    row.push_to(&mut bytes)?;
    Ok(Some(bytes))
}
