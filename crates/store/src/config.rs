//! Settings of an engine; the handler fills them from `rrd_*` system variables.

use std::path::PathBuf;

use crate::limits;

/// When a commit is on disk before it is acknowledged (`rrd_flush_log_at_trx_commit`, as InnoDB's).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlushLog {
    /// 0: written and synced about once a second.
    EverySecond,
    /// 1: written and synced at each commit.
    Sync,
    /// 2: written at each commit, synced about once a second.
    Write,
}

/// Settings of an engine.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where all files live.
    pub dir: PathBuf,
    /// Bytes of all memtables together (`rrd_memtable_size`).
    pub memtable_bytes: usize,
    /// Bytes of decoded blocks kept (`rrd_cache_size`).
    pub cache_bytes: usize,
    /// Durability of commits.
    pub flush_log: FlushLog,
    /// Whether background threads flush and merge; tests switch them off and call [`crate::Engine::work`].
    pub background: bool,
    /// The time by which rows age, in microseconds since the epoch; `None`: the machine's clock. For tests.
    pub clock_micros: Option<i64>,
    /// Sizes at which work is cut into pieces.
    pub tuning: Tuning,
}

/// Sizes at which work is cut into pieces: `limits.rs` has the defaults and their reasons, tests use small ones.
#[derive(Clone, Copy, Debug)]
pub struct Tuning {
    /// See [`limits::BULK_RUN_BYTES`].
    pub bulk_run_bytes: usize,
    /// See [`limits::BULK_MIN_BYTES`].
    pub bulk_min_bytes: usize,
    /// See [`limits::SMALLEST_BATCH`].
    pub smallest_batch: usize,
    /// See [`limits::TXN_SPILL_BYTES`].
    pub txn_spill_bytes: usize,
    /// See [`limits::CHUNK_TARGET_ROWS`].
    pub chunk_target_rows: u64,
    /// See [`limits::CHUNK_LEAST_ROWS`]; with 0 no chunk is sparse.
    pub chunk_least_rows: u64,
    /// See [`limits::SPARSE_CHUNKS`].
    pub sparse_chunks: u64,
    /// See [`limits::RING_AHEAD`].
    pub ring_ahead: usize,
    /// Rows of a group at most, [`limits::GROUP_ROWS`] or fewer.
    pub group_rows: usize,
    /// See [`limits::PART_ROWS`].
    pub part_rows: u64,
    /// See [`limits::TIER_ANSWER_ROWS`].
    pub rows_of_bucket: u64,
    /// See [`limits::NEW_KEY_LOCKS`]; with 0 inserts wait for nobody, as those of large statements.
    pub new_key_locks: usize,
    /// See [`limits::PREPARED_LOCK_BYTES`].
    pub prepared_lock_bytes: u64,
    /// See [`limits::LOG_TOTAL_BYTES`].
    pub log_bytes: u64,
}

impl Default for Tuning {
    fn default() -> Tuning {
        Tuning {
            bulk_run_bytes: limits::BULK_RUN_BYTES,
            bulk_min_bytes: limits::BULK_MIN_BYTES,
            smallest_batch: limits::SMALLEST_BATCH,
            txn_spill_bytes: limits::TXN_SPILL_BYTES,
            chunk_target_rows: limits::CHUNK_TARGET_ROWS,
            chunk_least_rows: limits::CHUNK_LEAST_ROWS,
            sparse_chunks: limits::SPARSE_CHUNKS,
            ring_ahead: limits::RING_AHEAD,
            group_rows: limits::GROUP_ROWS,
            part_rows: limits::PART_ROWS,
            rows_of_bucket: limits::TIER_ANSWER_ROWS,
            new_key_locks: limits::NEW_KEY_LOCKS,
            prepared_lock_bytes: limits::PREPARED_LOCK_BYTES,
            log_bytes: limits::LOG_TOTAL_BYTES,
        }
    }
}

impl Config {
    /// Defaults for a folder.
    pub fn new(dir: impl Into<PathBuf>) -> Config {
        Config {
            dir: dir.into(),
            memtable_bytes: 256 << 20,
            cache_bytes: 128 << 20,
            flush_log: FlushLog::Sync,
            background: true,
            clock_micros: None,
            tuning: Tuning::default(),
        }
    }
}
