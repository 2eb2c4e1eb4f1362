//! Who is connected and how long each one's transaction has been open, for SHOW ENGINE RRD STATUS.
//!
//! A session writes two numbers of its own in each transaction and nothing that others write; the list itself changes
//! only when connections come and go.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use std::sync::{Mutex, PoisonError};

/// The sessions of an engine.
pub struct Sessions {
    epoch: Instant,
    /// By the store's number of the transaction.
    open: Mutex<BTreeMap<u64, Arc<Open>>>,
}

struct Open {
    connection: u64,
    /// Milliseconds from the epoch to the begin of the transaction, plus one; 0 when there is none.
    began: AtomicU64,
}

/// A session's place in the list; given up when dropped.
pub struct Place {
    sessions: Arc<Sessions>,
    txn: u64,
    open: Arc<Open>,
}

/// An open transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenTransaction {
    /// The server's number of the connection.
    pub connection: u64,
    /// The store's number of the transaction.
    pub txn: u64,
    /// Since its first statement.
    pub age: Duration,
}

impl Default for Sessions {
    fn default() -> Sessions {
        Sessions { epoch: Instant::now(), open: Mutex::default() }
    }
}

impl Sessions {
    /// Puts a session on the list.
    pub fn enter(self: &Arc<Self>, txn: u64, connection: u64) -> Place {
        let open = Arc::new(Open { connection, began: AtomicU64::new(0) });
        self.lock().insert(txn, open.clone());
        Place { sessions: self.clone(), txn, open }
    }

    /// The server's number of a transaction's connection.
    pub fn connection_of(&self, txn: u64) -> Option<u64> {
        self.lock().get(&txn).map(|open| open.connection)
    }

    /// Open transactions, the oldest first.
    pub fn transactions(&self) -> Vec<OpenTransaction> {
        let now = self.now();
        let mut list: Vec<OpenTransaction> = self
            .lock()
            .iter()
            .filter_map(|(&txn, open)| {
                let began = open.began.load(Ordering::Relaxed).checked_sub(1)?;
                let age = Duration::from_millis(now.saturating_sub(began));
                Some(OpenTransaction { connection: open.connection, txn, age })
            })
            .collect();
        list.sort_by_key(|open| std::cmp::Reverse(open.age));
        list
    }

    fn now(&self) -> u64 {
        self.epoch.elapsed().as_millis() as u64
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<u64, Arc<Open>>> {
        // A panic between two changes of a map leaves it whole.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// A statement begins, perhaps the transaction's first.
    pub fn begin(&self) {
        if self.open.began.load(Ordering::Relaxed) == 0 {
            self.open.began.store(self.sessions.now() + 1, Ordering::Relaxed);
        }
    }

    /// The transaction ended.
    pub fn end(&self) {
        self.open.began.store(0, Ordering::Relaxed);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.sessions.lock().remove(&self.txn);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transaction_is_listed_from_its_first_statement_to_its_end() {
        let sessions = Arc::new(Sessions::default());
        let place = sessions.enter(7, 42);
        assert_eq!(sessions.connection_of(7), Some(42));
        assert!(sessions.transactions().is_empty(), "no statement yet");
        place.begin();
        place.begin();
        let open = sessions.transactions();
        assert_eq!(open.iter().map(|t| (t.connection, t.txn)).collect::<Vec<_>>(), [(42, 7)]);
        place.end();
        assert!(sessions.transactions().is_empty());
        drop(place);
        assert_eq!(sessions.connection_of(7), None);
    }
}
