//! Background threads: one flushes memtables and syncs the log each second, one merges segments.
//!
//! They are told which tables have work; a table whose work failed (a full disk, say) stays on the list and is tried
//! again a second later. Committers that wait for memory get the error instead of waiting for ever.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::Weak;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::manifest::edit::TableId;
use crate::pause::Pause;
use crate::table::Table;

/// How often the log is synced when commits do not, and how soon failed work is tried again.
const TICK: Duration = Duration::from_secs(1);

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
    threads: Mutex<Vec<JoinHandle<()>>>,
}

#[derive(Default)]
struct Lists {
    flush: BTreeSet<TableId>,
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
            threads: Mutex::default(),
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
    /// there still is none.
    pub fn wait_for_flush(&self, is_over: &dyn Fn() -> bool) -> Option<String> {
        let _pause = Pause::begin();
        let mut lists = self.lists.lock();
        let before = lists.flushes;
        // Room is made before it is noted: whoever sees none here is called when there is.
        while is_over() && lists.flushes == before && !lists.stop {
            if self.flushed.wait_for(&mut lists, TICK).timed_out() && lists.flush.is_empty() {
                break;
            }
        }
        lists.flush_error.clone().filter(|_| is_over())
    }

    /// How many tables wait for a flush and for a merge.
    pub fn waiting(&self) -> (usize, usize) {
        let lists = self.lists.lock();
        (lists.flush.len(), lists.merge.len())
    }

    /// Why the last flush failed, if it did.
    pub fn flush_error(&self) -> Option<String> {
        self.lists.lock().flush_error.clone()
    }

    /// Ends the threads and waits for them.
    pub fn stop(&self) {
        self.lists.lock().stop = true;
        self.work.notify_all();
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
    let jobs: [(&str, Job); 2] = [("rrd-flush", flush_loop), ("rrd-merge", merge_loop)];
    for (name, job) in jobs {
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
    let mut ticked = Instant::now();
    while let Some(engine) = weak.upgrade() {
        let workers = &engine.workers;
        let table = {
            let mut lists = workers.lists.lock();
            if lists.flush.is_empty() && !lists.stop {
                workers.work.wait_for(&mut lists, TICK);
            }
            if lists.stop {
                return;
            }
            lists.flush.pop_first()
        };
        if let Some(id) = table {
            flush_one(&engine, id);
        }
        if ticked.elapsed() >= TICK {
            ticked = Instant::now();
            sync_log(&engine);
            engine.follow_clock();
            engine.recall_horizons();
        }
    }
}

fn flush_one(engine: &Arc<Engine>, id: TableId) {
    let Some(table) = engine.table_by_id(id) else { return };
    // What is not in a memtable (a bulk statement) waits for nobody else to set one aside.
    if table.version().active.touched().is_some_and(|touched| touched.has_more()) {
        engine.freeze(&table);
    }
    let mut result = engine.flush_frozen(&table);
    // With many tables the log is not looked through after each.
    let is_last = engine.workers.lists.lock().flush.is_empty();
    if result.is_ok() && (is_last || engine.activity.flushes.load(Ordering::Relaxed) % FLUSHES_BETWEEN_TRIMS == 0) {
        result = engine.trim_log();
    }
    match result {
        Ok(()) => {
            engine.workers.note_flush(&table);
            engine.workers.ask_merge(id);
        }
        Err(error) => {
            let mut lists = engine.workers.lists.lock();
            lists.flushes += 1;
            engine.activity.flush_failures.fetch_add(1, Ordering::Relaxed);
            tracing::error!(table = table.name(), %error, "could not write a memtable to disk; trying again");
            lists.flush_error = Some(error.to_string());
            lists.flush.insert(id);
            engine.workers.flushed.notify_all();
            engine.workers.work.wait_for(&mut lists, TICK);
        }
    }
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
    // Commits that were acknowledged may be among refused records.
    engine.keep_refused();
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
        let Some(table) = table.and_then(|id| engine.table_by_id(id)) else { continue };
        if let Err(error) = engine.merge_table_until(&table, &|| workers.lists.lock().stop) {
            engine.activity.merge_failures.fetch_add(1, Ordering::Relaxed);
            tracing::warn!(table = table.name(), %error, "could not merge segments");
            let mut lists = workers.lists.lock();
            if !lists.stop {
                workers.work.wait_for(&mut lists, TICK);
            }
        }
    }
}
