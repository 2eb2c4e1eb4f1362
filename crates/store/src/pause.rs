//! Long waits of a thread, told to whoever owns the thread: a server's thread pool lets another one run meanwhile.
//!
//! Waits for a row lock, for a sync of the log and for room in memory are told; waits for a mutex are not. One report
//! serves the process, as its threads do. Pauses do not nest.
//!
//! And the other way round: named points at which a test holds the threads of an engine, to reach an interleaving without
//! sleeping. Without a test they cost one look at a flag.

use std::collections::HashMap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::{Condvar, Mutex};

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

/// The named points of an engine. Which there are say the calls of [`PausePoints::pass`].
#[derive(Default)]
pub struct PausePoints {
    /// Points that somebody watches.
    watched: AtomicUsize,
    points: Mutex<HashMap<&'static str, Point>>,
    changed: Condvar,
}

#[derive(Default)]
struct Point {
    /// Threads that came by.
    reached: usize,
    is_closed: bool,
}

/// A point that somebody watches, until this is dropped: then it is open for all.
pub struct Watched<'p> {
    points: &'p PausePoints,
    name: &'static str,
}

impl PausePoints {
    /// Counts who comes by from now on.
    pub fn watch(&self, name: &'static str) -> Watched<'_> {
        self.begin(name, false)
    }

    /// Holds whoever comes by from now on.
    pub fn close(&self, name: &'static str) -> Watched<'_> {
        self.begin(name, true)
    }

    fn begin(&self, name: &'static str, is_closed: bool) -> Watched<'_> {
        self.points.lock().insert(name, Point { reached: 0, is_closed });
        self.watched.fetch_add(1, Ordering::AcqRel);
        Watched { points: self, name }
    }

    /// A thread of the engine comes by.
    #[inline]
    pub(crate) fn pass(&self, name: &'static str) {
        if self.watched.load(Ordering::Relaxed) > 0 {
            self.stop_at(name);
        }
    }

    #[cold]
    fn stop_at(&self, name: &'static str) {
        let mut points = self.points.lock();
        let Some(point) = points.get_mut(name) else { return };
        point.reached += 1;
        self.changed.notify_all();
        while points.get(name).is_some_and(|point| point.is_closed) {
            self.changed.wait(&mut points);
        }
    }
}

impl Watched<'_> {
    /// How many threads have come by.
    pub fn reached(&self) -> usize {
        self.points.points.lock().get(self.name).map_or(0, |point| point.reached)
    }

    /// Returns when so many threads have come by.
    pub fn until_reached(&self, count: usize) {
        let mut points = self.points.points.lock();
        while points.get(self.name).is_some_and(|point| point.reached < count) {
            self.points.changed.wait(&mut points);
        }
    }
}

impl Drop for Watched<'_> {
    fn drop(&mut self) {
        self.points.points.lock().remove(self.name);
        self.points.watched.fetch_sub(1, Ordering::AcqRel);
        self.points.changed.notify_all();
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

    #[test]
    fn a_closed_point_holds_a_thread_until_it_is_opened_and_others_pass() {
        let points = PausePoints::default();
        points.pass("here");
        let closed = points.close("here");
        std::thread::scope(|scope| {
            let held = scope.spawn(|| points.pass("here"));
            closed.until_reached(1);
            points.pass("elsewhere");
            assert!(!held.is_finished());
            drop(closed);
        });
        let watched = points.watch("here");
        points.pass("here");
        watched.until_reached(1);
    }
}
