//! The connections that work on the engine: whose transaction is whose, and how long each has been open.
//!
//! For reports of who waits for whom, and for SHOW ENGINE RRD STATUS. A report of a wait hands out another connection's
//! pointer. It is made while the list is locked, and a session takes its connection off the list before the server may
//! free it. A session writes two numbers of its own in each transaction and nothing that others write; the list itself
//! changes only when connections come and go.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rrd_store::Engine;

use crate::abi::RrdWaitFn;

/// Connections of the open sessions.
pub struct Connections {
    epoch: Instant,
    /// By the ids of their transactions.
    open: Mutex<BTreeMap<u64, Connection>>,
}

struct Connection {
    /// The server's; only ever handed back to its own callback.
    pointer: *mut c_void,
    /// What the server calls it.
    id: u64,
    began: Began,
}

/// Milliseconds from the epoch to the begin of the transaction, plus one; 0 when there is none.
type Began = Arc<AtomicU64>;

// SAFETY: the pointer is never followed here, and goes to a callback only that the server lets any thread call
// (`Connections::report`).
unsafe impl Send for Connection {}

/// A session's place in the list; given up when dropped.
pub struct Place {
    connections: Arc<Connections>,
    txn: u64,
    began: Began,
}

/// An open transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenTransaction {
    /// The server's number of the connection.
    pub connection: u64,
    /// [`rrd_store::Txn::id`].
    pub txn: u64,
    /// Since its first statement.
    pub age: Duration,
}

impl Default for Connections {
    fn default() -> Connections {
        Connections { epoch: Instant::now(), open: Mutex::default() }
    }
}

impl Connections {
    /// A session begins.
    pub fn enter(self: &Arc<Self>, txn: u64, pointer: *mut c_void, id: u64) -> Place {
        let began = Began::default();
        self.lock().insert(txn, Connection { pointer, id, began: began.clone() });
        Place { connections: self.clone(), txn, began }
    }

    /// The server's number of a transaction's connection.
    pub fn id_of(&self, txn: u64) -> Option<u64> {
        self.lock().get(&txn).map(|connection| connection.id)
    }

    /// Open transactions, the oldest first.
    pub fn transactions(&self) -> Vec<OpenTransaction> {
        let now = self.now();
        let mut list: Vec<OpenTransaction> = self
            .lock()
            .iter()
            .filter_map(|(&txn, connection)| {
                let began = connection.began.load(Ordering::Relaxed).checked_sub(1)?;
                let age = Duration::from_millis(now.saturating_sub(began));
                Some(OpenTransaction { connection: connection.id, txn, age })
            })
            .collect();
        list.sort_by_key(|open| std::cmp::Reverse(open.age));
        list
    }

    /// Reports waits of the engine's transactions by their connections.
    ///
    /// # Safety
    /// Any thread may call `report`, with pointers of connections that have a session, until the engine is closed.
    pub unsafe fn report_waits(self: &Arc<Self>, engine: &Engine, report: RrdWaitFn) {
        let Some(report) = report else { return };
        let connections = self.clone();
        engine.report_waits(Box::new(move |waiting, holders| connections.report(waiting, holders, report)));
    }

    fn report(&self, waiting: u64, holders: &[u64], report: unsafe extern "C" fn(*mut c_void, *mut c_void)) {
        let open = self.lock();
        let Some(waiting) = open.get(&waiting) else { return };
        for holder in holders.iter().filter_map(|id| open.get(id)) {
            // SAFETY: `report_waits` was promised that any thread may call it, and the engine is open as it makes this call. Both connections
            // are on the list, which is locked: a session leaves it, under the same lock, before the server frees its connection.
            unsafe { report(waiting.pointer, holder.pointer) }
        }
    }

    fn now(&self) -> u64 {
        self.epoch.elapsed().as_millis() as u64
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Connection>> {
        // A panic between two changes of a map leaves it whole.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// A statement begins, perhaps the transaction's first.
    pub fn begin(&self) {
        if self.began.load(Ordering::Relaxed) == 0 {
            self.began.store(self.connections.now() + 1, Ordering::Relaxed);
        }
    }

    /// The transaction ended.
    pub fn end(&self) {
        self.began.store(0, Ordering::Relaxed);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.connections.lock().remove(&self.txn);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transaction_is_listed_from_its_first_statement_to_its_end() {
        let connections = Arc::new(Connections::default());
        let place = connections.enter(7, std::ptr::null_mut(), 42);
        assert_eq!(connections.id_of(7), Some(42));
        assert!(connections.transactions().is_empty(), "no statement yet");
        place.begin();
        place.begin();
        let open = connections.transactions();
        assert_eq!(open.iter().map(|t| (t.connection, t.txn)).collect::<Vec<_>>(), [(42, 7)]);
        place.end();
        assert!(connections.transactions().is_empty());
        drop(place);
        assert_eq!(connections.id_of(7), None);
    }
}
