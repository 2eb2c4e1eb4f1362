//! Memory that the C library keeps after large work goes back to the system.
//!
//! Millions of small pieces (rows, locks) leave arenas free that it keeps: after an UPDATE of two million rows 345 MB, of which the engine
//! used none. Once such work is over and it is quiet, the engine asks for them to be given back. That walks through all arenas,
//! so it is not done in the middle of work, which would use them again.

use std::sync::OnceLock;

use parking_lot::Mutex;

use crate::aggregate::memory::group_bytes;
use crate::engine::Engine;
use crate::limits;

/// Gives memory that is not used back to the system.
pub type GiveBack = Box<dyn Fn() + Send + Sync>;

/// What is looked at each second.
#[derive(Default)]
pub(crate) struct IdleMemory {
    give_back: OnceLock<GiveBack>,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    /// Bytes in use, and rows that statements have written since the start, when it was looked last.
    last: (u64, u64),
    /// The most that was in use since memory was given back.
    most: u64,
    /// Rows written when it was.
    written: u64,
}

impl Seen {
    /// Takes up how things are now; true if it is time to give memory back.
    fn note(&mut self, used: u64, written: u64, has_jobs: bool) -> bool {
        let is_quiet = !has_jobs
            && written - self.last.1 <= limits::QUIET_ROWS
            && used.abs_diff(self.last.0) <= limits::QUIET_BYTES;
        self.last = (used, written);
        self.most = self.most.max(used);
        // Write sets and rows of bulk statements do not count as bytes in use.
        let is_large = self.most - used >= limits::IDLE_BYTES || written - self.written >= limits::IDLE_ROWS;
        let is_due = is_quiet && is_large;
        if is_due {
            (self.most, self.written) = (used, written);
        }
        is_due
    }
}

impl Engine {
    /// Sets what gives memory back that is not used any more; only the first one counts.
    pub fn give_memory_back_with(&self, give_back: GiveBack) {
        let _ = self.idle_memory.give_back.set(give_back);
    }

    /// Once a second.
    pub(crate) fn look_after_idle_memory(&self) {
        let Some(give_back) = self.idle_memory.give_back.get() else { return };
        let memory = self.memory_report();
        let used = memory.active_bytes + memory.frozen_bytes + self.locks.bytes() + group_bytes();
        // Flushes and merges would use it again.
        let has_jobs = !self.jobs().is_empty();
        if self.idle_memory.seen.lock().note(used, self.rows_written(), has_jobs) {
            give_back();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANY: u64 = limits::IDLE_BYTES;
    const ROWS: u64 = limits::IDLE_ROWS;

    #[test]
    fn memory_goes_back_once_after_large_work_when_it_is_quiet() {
        let mut seen = Seen::default();
        let steps = [(0, 0), (MANY / 2, 0), (MANY, 0), (0, 0), (0, 0), (0, 0)];
        assert_eq!(
            steps.map(|(used, written)| seen.note(used, written, false)),
            [false, false, false, false, true, false]
        );
        let steps = [(0, ROWS / 2), (0, ROWS), (0, ROWS), (0, ROWS)];
        assert_eq!(steps.map(|(used, written)| seen.note(used, written, false)), [false, false, true, false]);
        let steps = [(MANY / 2, ROWS), (0, ROWS), (0, ROWS + ROWS / 2), (0, ROWS + ROWS / 2)];
        assert_eq!(steps.map(|(used, written)| seen.note(used, written, false)), [false; 4], "little work");
        assert!(!seen.note(MANY, 2 * ROWS, false) && !seen.note(0, 2 * ROWS, true) && !seen.note(0, 2 * ROWS, true));
        assert!(seen.note(0, 2 * ROWS, false), "the merges that followed are done");
    }
}
