//! Background threads: flushes, merges, and two clocks, one that syncs the log and one that moves horizons.
//!
//! They are told which tables have work; a table whose work failed (a full disk, say) is tried again a second later, and
//! the others do not wait for it. Committers that wait for memory get the error instead of waiting for ever.
//!
//! One flush works at a time. A flush that waits (for readers of a ring of bytes, or for its turn in a ring) stands aside:
//! another thread flushes the next table. The log has a thread of its own, so that a commit that was acknowledged without
//! a sync is on disk within about a second, whatever a flush or a commit waits for.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::Weak;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::limits;
use crate::manifest::edit::TableId;
use crate::pause::{Pause, PausePoints};
use crate::table::Table;

/// How often the log is synced when commits do not, and how soon failed work is tried again.
const TICK: Duration = Duration::from_secs(1);

/// How often a commit that waits for memory asks whether it was killed.
const ASK: Duration = Duration::from_millis(100);

/// Flushes after which the log is shortened even if there is more to flush.
const FLUSHES_BETWEEN_TRIMS: u64 = 64;

/// The threads and their lists of work.
pub(crate) struct Workers {
    background: bool,
    lists: Mutex<Lists>,
    /// Work was added, or the end has come.
    work: Condvar,
    /// A flush ended, well or not.
    flushed: Condvar,
    /// The end has come.
    ended: Condvar,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// The end has come: what writes files gives up.
    stops: AtomicBool,
}

thread_local! {
    /// Set while this thread flushes a table for [`flush_loop`].
    static IS_FLUSHING: Cell<bool> = const { Cell::new(false) };
}

#[derive(Default)]
struct Lists {
    flush: BTreeSet<TableId>,
    /// Tables whose flush failed, and when it is tried again.
    flush_later: BTreeMap<TableId, Instant>,
    /// Tables that a thread flushes.
    flushing: BTreeSet<TableId>,
    /// How many of these threads do not stand aside.
    flushes_at_work: usize,
    merge: BTreeSet<TableId>,
    /// Tables to look at with the next tick: what could go is still seen by a snapshot.
    merge_later: BTreeSet<TableId>,
    flush_error: Option<String>,
    flushes: u64,
    stop: bool,
}

impl Workers {
    pub fn new(background: bool) -> Workers {
        Workers {
            background,
            lists: Mutex::default(),
            work: Condvar::new(),
            flushed: Condvar::new(),
            ended: Condvar::new(),
            threads: Mutex::default(),
            stops: AtomicBool::new(false),
        }
    }

    /// Whether there are threads.
    pub fn is_background(&self) -> bool {
        self.background
    }

    /// A table has frozen memtables.
    pub fn ask_flush(&self, table: TableId) {
        self.lists.lock().flush.insert(table);
        self.work.notify_all();
    }

    /// A flush of a table failed: it is tried again a second later.
    pub fn ask_flush_later(&self, table: TableId) {
        self.lists.lock().flush_later.insert(table, Instant::now() + TICK);
    }

    /// Runs what may wait for others. On a thread that flushes, the next table is flushed by another one meanwhile.
    pub fn stand_aside<T>(&self, wait: impl FnOnce() -> T) -> T {
        if !IS_FLUSHING.get() {
            return wait();
        }
        IS_FLUSHING.set(false);
        self.lists.lock().flushes_at_work -= 1;
        self.work.notify_all();
        let result = wait();
        self.lists.lock().flushes_at_work += 1;
        IS_FLUSHING.set(true);
        result
    }

    /// A table got new segments.
    pub fn ask_merge(&self, table: TableId) {
        self.lists.lock().merge.insert(table);
        self.work.notify_all();
    }

    /// A table has what a merge would remove, or segments that would go, were it not for open snapshots.
    pub fn ask_merge_later(&self, table: TableId) {
        self.lists.lock().merge_later.insert(table);
    }

    /// Memtables were written to disk.
    pub fn note_flush(&self, table: &Table) {
        let mut lists = self.lists.lock();
        lists.flushes += 1;
        if lists.flush_error.take().is_some() {
            tracing::info!(table = table.name(), "a memtable was written to disk again");
        }
        self.flushed.notify_all();
    }

    /// Waits for the end of the next flush, as long as `is_over` says that there is no room before it; the error if one failed and
    /// there still is none. It asks often whether it was `interrupted`.
    pub fn wait_for_flush(&self, is_over: &dyn Fn() -> bool, interrupted: &dyn Fn() -> bool) -> Option<String> {
        let _pause = Pause::begin();
        let mut lists = self.lists.lock();
        let before = lists.flushes;
        // Room is made before it is noted: whoever sees none here is called when there is.
        while is_over() && lists.flushes == before && !lists.stop {
            let is_late = self.flushed.wait_for(&mut lists, ASK).timed_out();
            if (is_late && !lists.has_flushes()) || MutexGuard::unlocked(&mut lists, interrupted) {
                break;
            }
        }
        lists.flush_error.clone().filter(|_| is_over())
    }

    /// How many tables wait for a flush and for a merge.
    pub fn waiting(&self) -> (usize, usize) {
        let lists = self.lists.lock();
        (lists.flush.union(&lists.flush_later.keys().copied().collect()).count(), lists.merge.len())
    }

    /// Why the last flush failed, if it did.
    pub fn flush_error(&self) -> Option<String> {
        self.lists.lock().flush_error.clone()
    }

    /// Whether the threads are to end.
    pub fn are_stopping(&self) -> bool {
        self.stops.load(Ordering::Acquire)
    }

    /// Ends the threads and waits for them.
    pub fn stop(&self, points: &PausePoints) {
        self.stops.store(true, Ordering::Release);
        points.pass("a table is about to go");
        self.lists.lock().stop = true;
        self.work.notify_all();
        self.ended.notify_all();
        self.flushed.notify_all();
        for thread in std::mem::take(&mut *self.threads.lock()) {
            if thread.join().is_err() {
                tracing::error!("a background thread ended by a panic");
            }
        }
    }
}

/// The loop of a thread; it ends when the engine is gone or told to stop.
type Job = fn(&Weak<Engine>);

/// Starts the threads of an engine, if it wants any.
pub(crate) fn start(engine: &Arc<Engine>) -> Result<()> {
    if !engine.workers.background {
        return Ok(());
    }
    let flushes = std::iter::repeat_n(("rrd-flush", flush_loop as Job), limits::FLUSH_THREADS);
    let others: [(&str, Job); 3] = [("rrd-merge", merge_loop), ("rrd-log", log_loop), ("rrd-clock", clock_loop)];
    for (name, job) in flushes.chain(others) {
        let weak = Arc::downgrade(engine);
        let guarded = move || {
            if std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| job(&weak))).is_err()
                && let Some(engine) = weak.upgrade()
            {
                engine.poison("a background thread failed");
            }
        };
        let thread = std::thread::Builder::new().name(name.into()).spawn(guarded);
        engine.workers.threads.lock().push(thread.map_err(Error::io("start a thread for", &engine.dir))?);
    }
    Ok(())
}

fn flush_loop(weak: &Weak<Engine>) {
    while let Some(engine) = weak.upgrade() {
        let workers = &engine.workers;
        let table = {
            let mut lists = workers.lists.lock();
            if lists.next_flush().is_none() && !lists.stop {
                workers.work.wait_for(&mut lists, TICK);
            }
            if lists.stop {
                return;
            }
            lists.take_flush()
        };
        let Some(id) = table else { continue };
        IS_FLUSHING.set(true);
        // A panic poisons the engine; until then the others are not held up by a flush that is no more.
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| flush_one(&engine, id)));
        IS_FLUSHING.set(false);
        {
            let mut lists = workers.lists.lock();
            lists.flushing.remove(&id);
            lists.flushes_at_work -= 1;
        }
        workers.work.notify_all();
        if let Err(panic) = ended {
            std::panic::resume_unwind(panic);
        }
    }
}

impl Lists {
    /// The table that is flushed next, if one may be.
    fn next_flush(&mut self) -> Option<TableId> {
        let now = Instant::now();
        let due: Vec<TableId> = self.flush_later.iter().filter(|(_, at)| **at <= now).map(|(id, _)| *id).collect();
        for id in due {
            self.flush_later.remove(&id);
            self.flush.insert(id);
        }
        if self.flushes_at_work > 0 {
            return None;
        }
        self.flush.iter().copied().find(|id| !self.flushing.contains(id))
    }

    fn take_flush(&mut self) -> Option<TableId> {
        let id = self.next_flush()?;
        self.flush.remove(&id);
        self.flush_later.remove(&id);
        self.flushing.insert(id);
        self.flushes_at_work += 1;
        Some(id)
    }

    /// Whether a flush is under way, or will be.
    fn has_flushes(&self) -> bool {
        !(self.flush.is_empty() && self.flush_later.is_empty() && self.flushing.is_empty())
    }
}

fn flush_one(engine: &Arc<Engine>, id: TableId) {
    let Some(table) = engine.table_by_id(id) else { return };
    engine.pause_points.pass("a flush begins");
    // What is not in a memtable (a bulk statement) waits for nobody else to set one aside.
    if table.version().active.touched().is_some_and(|touched| touched.has_more()) {
        engine.freeze(&table);
    }
    let mut result = engine.flush_frozen(&table, &mut || false);
    // With many tables the log is not looked through after each.
    let is_last = engine.workers.lists.lock().flush.is_empty();
    if result.is_ok() && (is_last || engine.activity.flushes.load(Ordering::Relaxed) % FLUSHES_BETWEEN_TRIMS == 0) {
        result = engine.trim_log();
    }
    match result {
        // It was dropped meanwhile.
        _ if engine.table_by_id(id).is_none() => {}
        Ok(()) => {
            engine.workers.note_flush(&table);
            engine.workers.ask_merge(id);
        }
        Err(error) => {
            if error.is_disk_full() {
                engine.wal.give_back_spared();
            }
            let mut lists = engine.workers.lists.lock();
            lists.flushes += 1;
            engine.activity.flush_failures.fetch_add(1, Ordering::Relaxed);
            tracing::error!(table = table.name(), %error, "could not write a memtable to disk; trying again");
            lists.flush_error = Some(error.to_string());
            lists.flush_later.insert(id, Instant::now() + TICK);
            engine.workers.flushed.notify_all();
        }
    }
}

/// Calls `each` once a second, until the engine is gone or told to stop.
fn tick_loop(weak: &Weak<Engine>, each: fn(&Arc<Engine>)) {
    let mut next = Instant::now() + TICK;
    while let Some(engine) = weak.upgrade() {
        {
            let mut lists = engine.workers.lists.lock();
            while !lists.stop && Instant::now() < next {
                engine.workers.ended.wait_until(&mut lists, next);
            }
            if lists.stop {
                return;
            }
        }
        each(&engine);
        next = (next + TICK).max(Instant::now());
    }
}

/// Nothing but the sync itself is done here, so that nothing holds it up.
fn log_loop(weak: &Weak<Engine>) {
    tick_loop(weak, |engine| sync_log(engine));
}

fn clock_loop(weak: &Weak<Engine>) {
    tick_loop(weak, |engine| {
        if engine.poisoned().is_none() {
            // Commits that were acknowledged may be among refused records.
            engine.keep_refused();
        }
        engine.follow_clock();
        engine.recall_horizons();
        engine.look_after_idle_memory();
    });
}

fn sync_log(engine: &Engine) {
    if engine.poisoned().is_some() {
        return;
    }
    let logged = engine.wal.position();
    if engine.wal.synced() < logged
        && let Err(error) = engine.wal.sync(logged)
    {
        tracing::error!(%error, "could not sync the log");
        engine.poison_unless_full(&error);
    }
}

fn merge_loop(weak: &Weak<Engine>) {
    while let Some(engine) = weak.upgrade() {
        let workers = &engine.workers;
        let table = {
            let mut lists = workers.lists.lock();
            if lists.merge.is_empty() && !lists.stop {
                workers.work.wait_for(&mut lists, TICK);
                let later = std::mem::take(&mut lists.merge_later);
                lists.merge.extend(later);
            }
            if lists.stop {
                return;
            }
            lists.merge.pop_first()
        };
        engine.remove_retired();
        engine.remove_left_folders();
        let Some(table) = table.and_then(|id| engine.table_by_id(id)) else { continue };
        if let Err(error) = engine.merge_table_until(&table, &|| workers.lists.lock().stop)
            && engine.table_by_id(table.id).is_some()
        {
            engine.activity.merge_failures.fetch_add(1, Ordering::Relaxed);
            tracing::warn!(table = table.name(), %error, "could not merge segments");
            let mut lists = workers.lists.lock();
            if !lists.stop {
                workers.work.wait_for(&mut lists, TICK);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(workers: &Workers) -> Option<u32> {
        workers.lists.lock().take_flush().map(|id| id.0)
    }

    #[test]
    fn a_flush_that_waits_lets_the_next_one_work() {
        let workers = Workers::new(false);
        (1..=3).for_each(|id| workers.ask_flush(TableId(id)));
        assert_eq!(take(&workers), Some(1));
        workers.ask_flush(TableId(1));
        assert_eq!(take(&workers), None, "one works at a time");
        IS_FLUSHING.set(true);
        workers.stand_aside(|| {
            assert_eq!(take(&workers), Some(2), "not the table that a thread flushes");
            workers.stand_aside(|| assert_eq!(take(&workers), None, "a thread stands aside once"));
        });
        assert_eq!(workers.lists.lock().flushes_at_work, 2, "both go on");
        IS_FLUSHING.set(false);
        workers.stand_aside(|| assert_eq!(take(&workers), None, "a thread that does not flush makes no room"));
    }

    #[test]
    fn a_table_whose_flush_failed_does_not_hold_up_others() {
        let workers = Workers::new(false);
        workers.ask_flush_later(TableId(1));
        workers.ask_flush(TableId(2));
        assert_eq!(take(&workers), Some(2));
        {
            let mut lists = workers.lists.lock();
            lists.flushing.clear();
            lists.flushes_at_work = 0;
            assert_eq!(lists.take_flush(), None, "not before its time");
            assert!(lists.has_flushes());
            lists.flush_later.values_mut().for_each(|at| *at = Instant::now());
        }
        assert_eq!(take(&workers), Some(1));
        assert_eq!(take(&workers), None);
    }
}
