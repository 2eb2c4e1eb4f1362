//! A connection's transaction, and the waiting that it may have to do.
//!
//! A session moves between threads: the server's pool gives a connection to any thread that is free, and the leader of a group
//! commit orders the commits of sessions whose own threads wait. Only one thread uses it at a time. A KILL comes from another thread
//! at any moment, so it does not use the session: it wakes what waits by the transaction's number (`rrd_engine_wake`).
//!
//! The server's connection is never looked into here. It is handed back to its own callbacks, on the thread that is in a call.

use std::ffi::c_void;
use std::sync::Arc;

use rrd_store::aggregate::{Answer, Query};
use rrd_store::report::RowCounts;
use rrd_store::{Engine, Error, Isolation, LockMode, Table, TextUse, Txn};

use crate::abi::{self, RrdIsolation, RrdKilledFn, RrdLocalTime, RrdLocalTimeFn};
use crate::connections::{Connections, Place};
use crate::key_text::{Clock, utc};
use crate::record::RecordFormat;
use crate::status::{Failure, Outcome};

/// Rows read after which a long statement adds them to the engine's figures.
const PUBLISH_ROWS: u64 = 1 << 16;

/// One connection's work on the engine.
pub struct Session {
    txn: Txn,
    connection: Connection,
    isolation: Isolation,
    /// Tables that the transaction inserted into.
    written: Vec<Arc<RecordFormat>>,
    engine: Arc<Engine>,
    place: Place,
    /// Rows since they were last added to the engine's figures.
    rows: RowCounts,
}

/// The server's connection, and what it can be asked. It is asked on the thread that is in a call with its session: copies of it
/// are in the session, in the session's transaction, and in closures of a call that other threads cannot have, as it is not `Sync`.
#[derive(Clone, Copy)]
pub struct Connection {
    /// The server's own.
    pointer: *mut c_void,
    /// Whether its statement was killed.
    killed: RrdKilledFn,
    /// Its time zone.
    local_time: RrdLocalTimeFn,
}

// SAFETY: the pointer is never followed here. It goes to its callbacks only, which the server lets any thread call that works for
// the connection; the server gives a connection from one thread to the next under a lock of its own.
unsafe impl Send for Connection {}

impl Connection {
    /// A connection of the server.
    ///
    /// # Safety
    /// The functions may be called with the pointer, by any thread that is in a call with the connection's session, until the
    /// session is closed.
    pub unsafe fn new(pointer: *mut c_void, killed: RrdKilledFn, local_time: RrdLocalTimeFn) -> Connection {
        Connection { pointer, killed, local_time }
    }

    fn is_killed(&self) -> bool {
        // SAFETY: as `Connection::new` was promised. This value is in the session, in its transaction or in a closure of a call with it,
        // and is not `Sync`: the calling thread is in a call with the session.
        self.killed.is_some_and(|killed| unsafe { killed(self.pointer) } != 0)
    }

    fn local_time(&self, seconds: u64) -> RrdLocalTime {
        let mut time = utc(seconds);
        if let Some(local_time) = self.local_time {
            // SAFETY: as in `is_killed` for the function and the pointer; `time` is a local variable that nobody else has.
            unsafe { local_time(self.pointer, seconds as i64, &mut time) };
        }
        time
    }
}

impl Session {
    /// A session for a connection of the server.
    pub fn new(
        engine: &Arc<Engine>,
        connections: &Arc<Connections>,
        connection: Connection,
        connection_id: u64,
    ) -> Session {
        let mut txn = engine.begin();
        txn.set_interrupted(Box::new(move || connection.is_killed()));
        let place = connections.enter(txn.id(), connection.pointer, connection_id);
        Session {
            txn,
            connection,
            isolation: Isolation::RepeatableRead,
            written: Vec::new(),
            engine: engine.clone(),
            place,
            rows: RowCounts::default(),
        }
    }

    /// Begins a statement.
    pub fn begin_statement(&mut self, isolation: RrdIsolation, lock_timeout_ms: u64) {
        self.publish_rows();
        self.place.begin();
        self.isolation = match isolation {
            abi::RRD_READ_COMMITTED => Isolation::ReadCommitted,
            _ => Isolation::RepeatableRead,
        };
        self.txn.set_isolation(self.isolation);
        self.txn.set_lock_timeout_ms(lock_timeout_ms);
        self.txn.start_statement();
    }

    /// Whether locks of rows that a statement has no use for are given back.
    pub fn unlocks_unused_rows(&self) -> bool {
        self.isolation == Isolation::ReadCommitted
    }

    /// The transaction.
    pub fn txn(&mut self) -> &mut Txn {
        &mut self.txn
    }

    /// Rows that the statement touched.
    #[inline]
    pub fn rows(&mut self) -> &mut RowCounts {
        &mut self.rows
    }

    /// Counts rows that were read.
    #[inline]
    pub fn note_reads(&mut self, rows: usize) {
        self.rows.read += rows as u64;
        if self.rows.read >= PUBLISH_ROWS {
            self.publish_rows();
        }
    }

    fn publish_rows(&mut self) {
        self.engine.note_rows(std::mem::take(&mut self.rows));
    }

    fn end_transaction(&mut self) {
        self.publish_rows();
        self.place.end();
    }

    /// Remembers a table that is inserted into.
    #[inline]
    pub fn note_write(&mut self, format: &Arc<RecordFormat>) {
        if !self.written.last().is_some_and(|last| Arc::ptr_eq(last, format)) {
            self.written.retain(|known| !Arc::ptr_eq(known, format));
            self.written.push(format.clone());
        }
    }

    /// What of the first phase can be refused; on an error everything is undone.
    pub fn reserve(&mut self, xid: &[u8]) -> Outcome<()> {
        match self.when_decided(|txn| txn.make_room_for_prepared().and_then(|()| txn.reserve(xid))) {
            Ok(()) => Ok(()),
            refused => self.explained(refused),
        }
    }

    /// First phase of a commit; on an error everything is undone. A transaction that may `stay` prepared must fit into what memory
    /// there is for such.
    pub fn prepare(&mut self, xid: &[u8], stays: bool) -> Outcome<()> {
        let prepared = self.when_decided(|txn| {
            if stays {
                txn.make_room_for_prepared()?;
            }
            txn.prepare(xid)
        });
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
                Err(Error::Undecided { decision }) => self.txn.wait_decided(decision)?,
                result => return Ok(result?),
            }
        }
    }

    fn explained(&mut self, result: Outcome<()>) -> Outcome<()> {
        self.end_transaction();
        let written = std::mem::take(&mut self.written);
        match result {
            Ok(()) => Ok(()),
            Err(Failure::Store(Error::Duplicate { index, row, .. })) => {
                self.txn.rollback();
                let connection = self.connection;
                let text = duplicate_text(&written, index, &row, &|seconds| connection.local_time(seconds));
                Err(Failure::Explained(abi::RRD_DUPLICATE, text))
            }
            Err(error) => {
                self.txn.rollback();
                Err(error)
            }
        }
    }

    /// Undoes everything.
    pub fn rollback(&mut self) {
        self.end_transaction();
        self.written.clear();
        self.txn.rollback();
    }

    /// An error if the statement was killed.
    pub fn check_killed(&self) -> Outcome<()> {
        if self.connection.is_killed() { Err(Error::Interrupted.into()) } else { Ok(()) }
    }

    /// Runs an aggregate query ([`Txn::aggregate`]) unless killed.
    pub fn aggregate(&mut self, table: &Arc<Table>, query: &Query) -> Outcome<Answer> {
        let connection = self.connection;
        self.engine.note_pushdown();
        Ok(self.txn.aggregate(table, query, &|| connection.is_killed())?)
    }

    /// See [`Txn::aggregate_in_order`].
    pub fn aggregate_in_order(&mut self, partitions: &[(&Arc<Table>, &Query)]) -> Outcome<Answer> {
        let connection = self.connection;
        Ok(self.txn.aggregate_in_order(partitions, &|| connection.is_killed())?)
    }

    /// Deletes rows by time ([`Txn::delete_times`]); waits for the table as long as the session allows, unless killed.
    pub fn delete_times(&mut self, table: &Arc<Table>, times: Option<(u64, u64)>) -> Outcome<Option<u64>> {
        Ok(self.txn.delete_times(table, times)?)
    }

    /// Takes a row's lock for this transaction alone; waits as long as the session allows, unless killed.
    pub fn lock_row(&mut self, table: &Arc<Table>, key: &[u8]) -> Outcome<()> {
        self.txn.lock_row(table, key, LockMode::Exclusive)?;
        Ok(())
    }

    /// See [`Txn::wait_for_prepared`].
    pub fn wait_for_prepared(&mut self, table: &str, timeout_ms: u64) -> Outcome<()> {
        let Ok(table) = self.engine.table(table) else { return Ok(()) };
        self.txn.set_lock_timeout_ms(timeout_ms);
        Ok(self.txn.wait_for_prepared(&table)?)
    }

    /// See [`Txn::lock_for_text`].
    pub fn lock_table(&mut self, table: &Arc<Table>, use_of: TextUse) -> Outcome<()> {
        Ok(self.txn.lock_for_text(table, use_of)?)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.publish_rows();
    }
}

/// The server's words for a duplicate; the value is left out when more than one table may have it.
fn duplicate_text(written: &[Arc<RecordFormat>], index: u32, row: &[u8], clock: Clock<'_>) -> String {
    let mut tables = written.iter().filter(|format| format.layout().check(row));
    let (Some(format), None) = (tables.next(), tables.next()) else { return "Duplicate entry".to_owned() };
    match format.indexes().iter().find(|i| i.number + 1 == index as usize) {
        Some(i) => format!("Duplicate entry '{}' for key '{}'", format.index_text(i, row, clock), i.name),
        None => format!("Duplicate entry '{}' for key 'PRIMARY'", format.key_text(row, clock)),
    }
}
