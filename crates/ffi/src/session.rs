//! A connection's transaction, and the waiting that it may have to do.
//!
//! The server's connection is only ever handed back to its own callback, on the thread that called us.

use std::ffi::c_void;
use std::sync::Arc;

use rrd_store::{Engine, Error, Isolation, Table, Txn};

use crate::abi::{self, RrdIsolation, RrdKilledFn};
use crate::status::Outcome;

/// A wait for a row lock is cut into pieces of this length, between which KILL is looked for.
const LOCK_WAIT_PIECE_MS: u64 = 200;

/// One connection's work on the engine.
pub struct Session {
    txn: Txn,
    connection: *mut c_void,
    killed: RrdKilledFn,
    lock_timeout_ms: u64,
}

impl Session {
    /// A session for a connection of the server.
    pub fn new(engine: &Arc<Engine>, connection: *mut c_void, killed: RrdKilledFn) -> Session {
        Session { txn: engine.begin(), connection, killed, lock_timeout_ms: 0 }
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

    /// An error if the statement was killed.
    pub fn check_killed(&self) -> Outcome<()> {
        let Some(killed) = self.killed else { return Ok(()) };
        // SAFETY: the connection is the one that the callback was given with, and this is its thread.
        match unsafe { killed(self.connection) } {
            0 => Ok(()),
            _ => Err(Error::Interrupted.into()),
        }
    }

    /// Takes a row's lock; waits as long as the session allows, unless killed.
    pub fn lock_row(&mut self, table: &Arc<Table>, key: &[u8]) -> Outcome<()> {
        let mut left = self.lock_timeout_ms;
        loop {
            let piece = left.min(LOCK_WAIT_PIECE_MS);
            match self.txn.lock_row(table, key, piece) {
                Err(Error::LockTimeout) if left > piece => left -= piece,
                other => return Ok(other?),
            }
            self.check_killed()?;
        }
    }
}
