//! Long waits of a thread, told to whoever owns the thread: a server's thread pool lets another one run meanwhile.
//!
//! Waits for a row lock, for a sync of the log and for room in memory are told; waits for a mutex are not. One report
//! serves the process, as its threads do. Pauses do not nest.

use std::sync::OnceLock;

/// Called on the waiting thread with true before a wait and with false after it.
pub type Report = Box<dyn Fn(bool) + Send + Sync>;

static REPORT: OnceLock<Report> = OnceLock::new();

/// Sets the report; only the first one counts.
pub fn report_to(report: Report) {
    let _ = REPORT.set(report);
}

/// A wait; it ends when this is dropped.
pub(crate) struct Pause(());

impl Pause {
    pub fn begin() -> Pause {
        tell(true);
        Pause(())
    }
}

impl Drop for Pause {
    fn drop(&mut self) {
        tell(false);
    }
}

fn tell(begins: bool) {
    if let Some(report) = REPORT.get() {
        report(begins);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::lock::{LockMode, RowLocks};
    use crate::manifest::edit::TableId;

    thread_local! {
        static TOLD: Cell<(u32, u32)> = const { Cell::new((0, 0)) };
    }

    #[test]
    fn a_wait_for_a_row_is_told_and_a_free_row_is_not() {
        report_to(Box::new(|begins| {
            let (begun, ended) = TOLD.get();
            TOLD.set(if begins { (begun + 1, ended) } else { (begun, ended + 1) });
        }));
        let locks = Arc::new(RowLocks::new());
        let lock = |owner, timeout| locks.lock(owner, TableId(1), b"row", LockMode::Exclusive, timeout, &|| false);
        assert!(lock(1, Duration::ZERO).is_ok());
        assert_eq!(TOLD.get(), (0, 0));
        assert!(lock(2, Duration::from_millis(5)).is_err());
        assert_eq!(TOLD.get(), (1, 1));
    }
}
