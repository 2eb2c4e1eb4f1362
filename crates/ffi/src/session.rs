//! A connection's transaction, and the waiting that it may have to do.
//!
//! The server's connection is only ever handed back to its own callback, on the thread that called us.

use std::ffi::c_void;
use std::sync::Arc;

use rrd_store::{Engine, Error, Isolation, Table, TextUse, Txn};

use crate::abi::{self, RrdIsolation, RrdKilledFn};
use crate::connections::Connections;
use crate::record::RecordFormat;
use crate::status::{Failure, Outcome};

/// A wait for a row lock is cut into pieces of this length, between which KILL is looked for.
const LOCK_WAIT_PIECE_MS: u64 = 200;

/// One connection's work on the engine.
pub struct Session {
    txn: Txn,
    connection: *mut c_void,
    connections: Arc<Connections>,
    killed: RrdKilledFn,
    lock_timeout_ms: u64,
    /// Tables that the transaction inserted into.
    written: Vec<Arc<RecordFormat>>,
}

impl Session {
    /// A session for a connection of the server.
    pub fn new(
        engine: &Arc<Engine>,
        connections: &Arc<Connections>,
        connection: *mut c_void,
        killed: RrdKilledFn,
    ) -> Session {
        let txn = engine.begin();
        connections.add(txn.id(), connection);
        Session { txn, connection, connections: connections.clone(), killed, lock_timeout_ms: 0, written: Vec::new() }
    }

    /// Begins a statement.
    pub fn begin_statement(&mut self, isolation: RrdIsolation, lock_timeout_ms: u64) {
        self.lock_timeout_ms = lock_timeout_ms;
        self.txn.set_isolation(match isolation {
            abi::RRD_READ_COMMITTED => Isolation::ReadCommitted,
            _ => Isolation::RepeatableRead,
        });
        self.txn.start_statement();
    }

    /// The transaction.
    pub fn txn(&mut self) -> &mut Txn {
        &mut self.txn
    }

    /// Remembers a table that is inserted into.
    #[inline]
    pub fn note_write(&mut self, format: &Arc<RecordFormat>) {
        if !self.written.last().is_some_and(|last| Arc::ptr_eq(last, format)) {
            self.written.retain(|known| !Arc::ptr_eq(known, format));
            self.written.push(format.clone());
        }
    }

    /// First phase of a commit; on an error everything is undone.
    pub fn prepare(&mut self, xid: &[u8]) -> Outcome<()> {
        let prepared = self.when_decided(|txn| txn.prepare(xid));
        self.explained(prepared)
    }

    /// Commits; on an error everything is undone. A duplicate that another transaction was faster to insert is
    /// explained, since the server has no record at hand to show.
    pub fn commit(&mut self) -> Outcome<()> {
        let committed = self.when_decided(Txn::commit);
        self.explained(committed)
    }

    /// Does `work` again whenever a prepared transaction that was in its way is decided.
    fn when_decided(&mut self, mut work: impl FnMut(&mut Txn) -> rrd_store::Result<()>) -> Outcome<()> {
        loop {
            match work(&mut self.txn) {
                Err(Error::Undecided { decision }) => self.wait(|txn, ms| txn.wait_decided(decision, ms))?,
                result => return Ok(result?),
            }
        }
    }

    fn explained(&mut self, result: Outcome<()>) -> Outcome<()> {
        let written = std::mem::take(&mut self.written);
        match result {
            Ok(()) => Ok(()),
            Err(Failure::Store(Error::Duplicate { index, row, .. })) => {
                self.txn.rollback();
                Err(Failure::Explained(abi::RRD_DUPLICATE, duplicate_text(&written, index, &row)))
            }
            Err(error) => {
                self.txn.rollback();
                Err(error)
            }
        }
    }

    /// Undoes everything.
    pub fn rollback(&mut self) {
        self.written.clear();
        self.txn.rollback();
    }

    /// An error if the statement was killed.
    pub fn check_killed(&self) -> Outcome<()> {
        let Some(killed) = self.killed else { return Ok(()) };
        // SAFETY: the connection is the one that the callback was given with, and this is its thread.
        match unsafe { killed(self.connection) } {
            0 => Ok(()),
            _ => Err(Error::Interrupted.into()),
        }
    }

    /// Deletes rows by time ([`Txn::delete_times`]); waits for the table as long as the session allows.
    pub fn delete_times(&mut self, table: &Arc<Table>, times: Option<(u64, u64)>) -> Outcome<Option<u64>> {
        let mut left = self.lock_timeout_ms;
        loop {
            let piece = left.min(LOCK_WAIT_PIECE_MS);
            match self.txn.delete_times(table, times, piece) {
                Err(Error::LockTimeout) if left > piece => left -= piece,
                other => return Ok(other?),
            }
            self.check_killed()?;
        }
    }

    /// Takes a row's lock; waits as long as the session allows, unless killed.
    pub fn lock_row(&mut self, table: &Arc<Table>, key: &[u8]) -> Outcome<()> {
        self.wait(|txn, ms| txn.lock_row(table, key, ms))
    }

    /// See [`Txn::lock_table`].
    pub fn lock_table(&mut self, table: &Arc<Table>, use_of: TextUse) -> Outcome<()> {
        self.wait(|txn, ms| txn.lock_table(table, use_of, ms))
    }

    fn wait(&mut self, lock: impl Fn(&mut Txn, u64) -> rrd_store::Result<()>) -> Outcome<()> {
        let mut left = self.lock_timeout_ms;
        loop {
            let piece = left.min(LOCK_WAIT_PIECE_MS);
            match lock(&mut self.txn, piece) {
                Err(Error::LockTimeout) if left > piece => left -= piece,
                other => return Ok(other?),
            }
            self.check_killed()?;
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.connections.remove(self.txn.id());
    }
}

/// The server's words for a duplicate; the value is left out when more than one table may have it.
fn duplicate_text(written: &[Arc<RecordFormat>], index: u32, row: &[u8]) -> String {
    let mut tables = written.iter().filter(|format| format.layout().check(row));
    let (Some(format), None) = (tables.next(), tables.next()) else { return "Duplicate entry".to_owned() };
    match format.indexes().iter().find(|i| i.number + 1 == index as usize) {
        Some(i) => format!("Duplicate entry '{}' for key '{}'", format.index_text(i, row), i.name),
        None => format!("Duplicate entry '{}' for key 'PRIMARY'", format.key_text(row)),
    }
}
