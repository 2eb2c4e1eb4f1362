//! Which connection of the server a transaction belongs to, for reports of who waits for whom.
//!
//! A report hands out another connection's pointer. It is made while the list is locked, and a session takes its
//! connection off the list before the server may free it.

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::{Arc, Mutex, PoisonError};

use rrd_store::Engine;

use crate::abi::RrdWaitFn;

/// Connections of the open sessions, by the ids of their transactions.
#[derive(Default)]
pub struct Connections {
    open: Mutex<HashMap<u64, Connection>>,
}

/// The server's; only ever handed back to its own callback.
struct Connection(*mut c_void);

// SAFETY: the pointer is not followed here.
unsafe impl Send for Connection {}

impl Connections {
    /// A session begins.
    pub fn add(&self, id: u64, connection: *mut c_void) {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).insert(id, Connection(connection));
    }

    /// A session ends.
    pub fn remove(&self, id: u64) {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
    }

    /// Reports waits of the engine's transactions by their connections.
    pub fn report_waits(self: &Arc<Self>, engine: &Engine, report: RrdWaitFn) {
        let Some(report) = report else { return };
        let connections = self.clone();
        engine.report_waits(Box::new(move |waiting, holders| connections.report(waiting, holders, report)));
    }

    fn report(&self, waiting: u64, holders: &[u64], report: unsafe extern "C" fn(*mut c_void, *mut c_void)) {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(waiting) = open.get(&waiting) else { return };
        for holder in holders.iter().filter_map(|id| open.get(id)) {
            // SAFETY: both are on the list, so the server has not freed them.
            unsafe { report(waiting.0, holder.0) }
        }
    }
}
