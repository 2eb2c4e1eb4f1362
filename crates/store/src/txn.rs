//! Stub of a transaction's interface; being written.
use std::sync::Arc;
use crate::cursor::Cursor;
use crate::error::Result;
use crate::table::Table;

/// What a transaction's reads see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isolation {
    /// Each statement sees what was committed when it began.
    ReadCommitted,
    /// All statements see what was committed at the first read.
    RepeatableRead,
}

/// A transaction: one connection's open work. Dropping it rolls back.
pub struct Txn {}

impl Txn {
    /// Sets what reads see; before the first read.
    pub fn set_isolation(&mut self, isolation: Isolation) { todo!() }
    /// Takes the snapshot now (START TRANSACTION WITH CONSISTENT SNAPSHOT).
    pub fn take_snapshot(&mut self) { todo!() }
    /// Begins a statement: under READ COMMITTED its reads see what is committed now.
    pub fn start_statement(&mut self) { todo!() }
    /// Marks a place to roll back to: explicit savepoints, and the start of each statement in a transaction.
    pub fn savepoint(&mut self) -> u64 { todo!() }
    /// Undoes everything after the mark; the mark stays, later marks are gone.
    pub fn rollback_to(&mut self, savepoint: u64) -> Result<()> { todo!() }
    /// Forgets the mark and later ones, keeps the work.
    pub fn release(&mut self, savepoint: u64) { todo!() }
    /// From now on `insert` into this table may check keys late: a duplicate is then reported by a later
    /// `insert` or by `end_bulk`. For plain INSERT / LOAD DATA / INSERT SELECT without IGNORE, REPLACE, ON DUPLICATE.
    pub fn begin_bulk(&mut self, table: &Arc<Table>) { todo!() }
    /// Ends the bulk statement: all late checks are done.
    pub fn end_bulk(&mut self, table: &Arc<Table>) -> Result<()> { todo!() }
    /// Inserts a row in row format; [`crate::Error::Duplicate`] if its key exists (nothing is changed then).
    pub fn insert(&mut self, table: &Arc<Table>, row: &[u8]) -> Result<()> { todo!() }
    /// Replaces the row with sort key `old_key` by `row`, whose key may differ (then it must be free).
    pub fn update(&mut self, table: &Arc<Table>, old_key: &[u8], row: &[u8]) -> Result<()> { todo!() }
    /// Removes the row with this sort key.
    pub fn delete(&mut self, table: &Arc<Table>, key: &[u8]) -> Result<()> { todo!() }
    /// A cursor over the table in key order that sees this transaction's snapshot and own writes.
    /// `columns`: positions that will be read (others may stay undecoded).
    pub fn cursor(&mut self, table: &Arc<Table>, columns: &[u16]) -> Result<Cursor> { todo!() }
    /// Takes the row lock of `key` (waits up to `timeout_ms`); afterwards reads of that key through
    /// [`Txn::read_latest`] see the newest committed version.
    pub fn lock_row(&mut self, table: &Arc<Table>, key: &[u8], timeout_ms: u64) -> Result<()> { todo!() }
    /// The newest committed (or own) version of a row in row format, regardless of the snapshot; false if none.
    pub fn read_latest(&mut self, table: &Arc<Table>, key: &[u8], row: &mut Vec<u8>) -> Result<bool> { todo!() }
    /// Whether there is anything to commit.
    pub fn has_writes(&self) -> bool { todo!() }
    /// Commits; when it returns the work is as durable as `rrd_flush_log_at_trx_commit` says.
    pub fn commit(&mut self) -> Result<()> { todo!() }
    /// Undoes everything. The transaction can be used anew.
    pub fn rollback(&mut self) { todo!() }
}
