//! What operators see: figures since the start, work in progress, open snapshots, tables and their files.
//!
//! Figures are relaxed atomics that are added to once for each call to the disk, each commit or each statement, never
//! once for each row. Nothing here changes the store.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::aggregate::memory::group_bytes;
use crate::engine::Engine;
use crate::fs::counted::{AllIo, Purpose};
use crate::limits;
use crate::segment::SegmentMeta;

mod tables;
#[cfg(test)]
mod tests;
mod waits;

pub use tables::{LaneTotal, ReportedLane, SegmentReport, TableReport, TierReport};
pub use waits::LockWait;

/// Counters since the engine was opened, for status variables: (name, value).
pub type Counters = Vec<(&'static str, u64)>;

/// Rows that statements touched, committed or not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RowCounts {
    /// Inserted.
    pub inserted: u64,
    /// Changed.
    pub updated: u64,
    /// Removed.
    pub deleted: u64,
    /// Handed to the server.
    pub read: u64,
}

/// What the engine did since it was opened.
#[derive(Default)]
pub(crate) struct Activity {
    pub io: Arc<AllIo>,
    rows_inserted: AtomicU64,
    rows_updated: AtomicU64,
    rows_deleted: AtomicU64,
    rows_read: AtomicU64,
    /// Rows behind the horizon of their table, which were not stored.
    pub rows_refused: AtomicU64,
    /// Aggregate queries that were answered here instead of by handing out rows.
    pub pushdowns: AtomicU64,
    /// Those of them that a tier answered, for part of the time at least.
    pub tier_answers: AtomicU64,
    pub flushes: AtomicU64,
    flush_bytes_written: AtomicU64,
    pub flush_failures: AtomicU64,
    pub merges: AtomicU64,
    merge_bytes_read: AtomicU64,
    merge_bytes_written: AtomicU64,
    pub merge_failures: AtomicU64,
    jobs: Mutex<BTreeMap<u64, Arc<Job>>>,
    next_job: AtomicU64,
}

/// A flush or merge under way.
pub struct Job {
    /// `flush` or `merge`.
    pub kind: &'static str,
    /// Its table.
    pub table: String,
    /// When it began.
    pub since: Instant,
    /// Row versions to go through.
    pub rows: u64,
    /// Row versions that were gone through.
    pub done: AtomicU64,
}

/// Takes a job off the list when it ends, well or not.
pub(crate) struct RunningJob<'a> {
    activity: &'a Activity,
    number: u64,
    pub job: Arc<Job>,
}

impl Drop for RunningJob<'_> {
    fn drop(&mut self) {
        self.activity.jobs.lock().remove(&self.number);
    }
}

/// An open snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenSnapshot {
    /// How long it has been open.
    pub age: Duration,
    /// Commits since.
    pub commits: u64,
    /// [`crate::Txn::id`] of whose it is; 0 if it serves a single look-up.
    pub txn: u64,
}

/// Memory and its limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryReport {
    /// Bytes of memtables that take writes.
    pub active_bytes: u64,
    /// Bytes of memtables that are being flushed.
    pub frozen_bytes: u64,
    /// `rrd_memtable_size`.
    pub memtable_limit: u64,
    /// Bytes of decoded blocks.
    pub cache_bytes: u64,
    /// `rrd_cache_size`.
    pub cache_limit: u64,
    /// Bytes that the groups of all aggregate queries take.
    pub aggregate_bytes: u64,
    /// How many they may take.
    pub aggregate_limit: u64,
}

fn bytes_of(metas: &[SegmentMeta]) -> u64 {
    metas.iter().map(|meta| meta.bytes).sum()
}

impl Activity {
    pub fn begin(&self, kind: &'static str, table: String, rows: u64) -> RunningJob<'_> {
        let number = self.next_job.fetch_add(1, Ordering::Relaxed);
        let job = Arc::new(Job { kind, table, since: Instant::now(), rows, done: AtomicU64::new(0) });
        self.jobs.lock().insert(number, job.clone());
        RunningJob { activity: self, number, job }
    }

    pub fn note_flush(&self, written: &[SegmentMeta]) {
        self.flushes.fetch_add(1, Ordering::Relaxed);
        self.flush_bytes_written.fetch_add(bytes_of(written), Ordering::Relaxed);
    }

    pub fn note_merges(&self, merges: u64, bytes_read: u64, written: &[SegmentMeta]) {
        self.merges.fetch_add(merges, Ordering::Relaxed);
        self.merge_bytes_read.fetch_add(bytes_read, Ordering::Relaxed);
        self.merge_bytes_written.fetch_add(bytes_of(written), Ordering::Relaxed);
    }
}

impl Engine {
    /// Counts an aggregate query.
    pub fn note_pushdown(&self) {
        self.activity.pushdowns.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts an aggregate query that a tier answers.
    pub(crate) fn note_tier_answer(&self) {
        self.activity.tier_answers.fetch_add(1, Ordering::Relaxed);
    }

    /// Adds what a statement did.
    pub fn note_rows(&self, rows: RowCounts) {
        let a = &self.activity;
        for (counter, n) in [
            (&a.rows_inserted, rows.inserted),
            (&a.rows_updated, rows.updated),
            (&a.rows_deleted, rows.deleted),
            (&a.rows_read, rows.read),
        ] {
            if n > 0 {
                counter.fetch_add(n, Ordering::Relaxed);
            }
        }
    }

    /// Counters, for SHOW STATUS.
    pub fn counters(&self) -> Counters {
        let mut all = self.row_counters();
        all.extend(self.io_counters());
        all.extend(self.work_counters());
        all.extend(self.state_counters());
        all
    }

    fn row_counters(&self) -> Counters {
        let a = &self.activity;
        vec![
            ("rows_inserted", get(&a.rows_inserted)),
            ("rows_updated", get(&a.rows_updated)),
            ("rows_deleted", get(&a.rows_deleted)),
            ("rows_read", get(&a.rows_read)),
            ("rows_behind_horizon", get(&a.rows_refused)),
            ("pushdowns", get(&a.pushdowns)),
            ("tier_answers", get(&a.tier_answers)),
            ("commits", get(&self.commits)),
        ]
    }

    fn io_counters(&self) -> Counters {
        let io = &self.activity.io;
        let (log, segment, manifest) = (io.of(Purpose::Log), io.of(Purpose::Segment), io.of(Purpose::Manifest));
        vec![
            ("log_writes", get(&log.writes)),
            ("log_bytes_written", get(&log.bytes_written)),
            ("log_syncs", get(&log.syncs)),
            ("segment_reads", get(&segment.reads)),
            ("segment_bytes_read", get(&segment.bytes_read)),
            ("segment_writes", get(&segment.writes)),
            ("segment_bytes_written", get(&segment.bytes_written)),
            ("segment_syncs", get(&segment.syncs)),
            ("manifest_writes", get(&manifest.writes)),
            ("manifest_bytes_written", get(&manifest.bytes_written)),
            ("manifest_syncs", get(&manifest.syncs)),
            ("folder_syncs", get(&io.folder_syncs)),
            ("files_created", get(&io.files_created)),
            ("files_removed", get(&io.files_removed)),
        ]
    }

    fn work_counters(&self) -> Counters {
        let a = &self.activity;
        vec![
            ("flushes", get(&a.flushes)),
            ("flush_bytes_written", get(&a.flush_bytes_written)),
            ("flush_failures", get(&a.flush_failures)),
            ("merges", get(&a.merges)),
            ("merge_bytes_read", get(&a.merge_bytes_read)),
            ("merge_bytes_written", get(&a.merge_bytes_written)),
            ("merge_failures", get(&a.merge_failures)),
        ]
    }

    fn state_counters(&self) -> Counters {
        let cache = self.cache.counters();
        let memory = self.memory_report();
        let oldest = self.oldest_open_snapshot();
        let (old_versions, old_version_bytes) = self.old_versions();
        vec![
            ("log_bytes", self.wal.bytes()),
            ("memtable_bytes", memory.active_bytes + memory.frozen_bytes),
            ("cache_bytes", cache.bytes),
            ("cache_hits", cache.hits),
            ("cache_misses", cache.misses),
            ("cache_evictions", cache.evictions),
            ("open_snapshots", self.snapshots.len() as u64),
            ("oldest_snapshot_age", oldest.map_or(0, |s| s.age.as_secs())),
            ("oldest_snapshot_commits", oldest.map_or(0, |s| s.commits)),
            ("old_versions", old_versions),
            ("old_version_bytes", old_version_bytes),
            ("prepared_transactions", self.prepared_count()),
            ("prepared_bytes", self.prepared_bytes()),
            ("prepared_log_bytes", self.prepared_log_bytes()),
            ("row_locks", self.locks.len() as u64),
            ("row_lock_bytes", self.locks.bytes()),
            ("row_lock_escalations", self.locks.escalations()),
            ("row_lock_waits", self.locks.waits_begun()),
            ("row_lock_timeouts", self.locks.timeouts()),
            ("row_lock_deadlocks", self.locks.deadlocks()),
            ("aggregate_bytes", memory.aggregate_bytes),
            ("aggregate_bytes_limit", memory.aggregate_limit),
            ("tables", self.table_count()),
            ("read_only", u64::from(self.poisoned().is_some())),
        ]
    }

    /// Rows that statements have inserted, updated and deleted since the start.
    pub(crate) fn rows_written(&self) -> u64 {
        let a = &self.activity;
        [&a.rows_inserted, &a.rows_updated, &a.rows_deleted].iter().map(|rows| rows.load(Ordering::Relaxed)).sum()
    }

    /// Memory and its limits.
    pub fn memory_report(&self) -> MemoryReport {
        let bytes = |v: &AtomicI64| v.load(Ordering::Relaxed).max(0) as u64;
        MemoryReport {
            active_bytes: bytes(&self.memory.active),
            frozen_bytes: bytes(&self.memory.frozen),
            memtable_limit: self.memory.limit.load(Ordering::Relaxed) as u64,
            cache_bytes: self.cache.counters().bytes,
            cache_limit: self.cache.capacity() as u64,
            aggregate_bytes: group_bytes(),
            aggregate_limit: limits::AGGREGATE_BYTES,
        }
    }

    /// The snapshot that has been open longest.
    pub fn oldest_open_snapshot(&self) -> Option<OpenSnapshot> {
        let (seq, since, txn) = self.snapshots.oldest_open()?;
        let commits = self.visible_seq.load(Ordering::Acquire).saturating_sub(seq);
        Some(OpenSnapshot { age: since.elapsed(), commits, txn })
    }

    /// Row versions in memory that are not the newest of their row, and their bytes.
    pub fn old_versions(&self) -> (u64, u64) {
        let tables = self.all_tables();
        let each = tables.iter().flat_map(|t| t.version().memtables().map(|m| m.old_versions()).collect::<Vec<_>>());
        each.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
    }

    /// Flushes and merges under way.
    pub fn jobs(&self) -> Vec<Arc<Job>> {
        self.activity.jobs.lock().values().cloned().collect()
    }

    /// Tables that wait for a flush and for a merge.
    pub fn waiting_work(&self) -> (usize, usize) {
        self.workers.waiting()
    }

    /// Why the last background flush failed, if it did.
    pub fn flush_error(&self) -> Option<String> {
        self.workers.flush_error()
    }

    /// Row locks that a transaction holds, by [`crate::Txn::id`].
    pub fn row_locks_of(&self, txn: u64) -> u64 {
        self.locks.count_of(txn)
    }

    /// A line for the error log: what was found at the start.
    pub(crate) fn note_start(&self) {
        let tables = self.all_tables();
        let segments: usize = tables.iter().map(|t| t.version().segments.len()).sum();
        tracing::info!(
            "started: {} tables with {segments} segments; {} bytes of rows replayed from {} bytes of log",
            self.table_count(),
            self.memory_report().active_bytes,
            self.wal.bytes()
        );
    }

    fn table_count(&self) -> u64 {
        self.tables.read().by_id.values().filter(|t| !t.is_part()).count() as u64
    }
}

fn get(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}
