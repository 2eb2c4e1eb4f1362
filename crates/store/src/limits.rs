//! Every maximum of the store, with its reason.

/// Threads that flush. One works at a time; the others are for tables whose flush waits for readers or for its turn.
pub const FLUSH_THREADS: usize = 4;

/// Columns of a table, hidden lanes included: MariaDB's own limit is 4096, hidden lanes add at most one each.
pub const MAX_COLUMNS: usize = 8192;

/// Rows of a block group in a segment: one zone map and one decode unit. Large enough that block headers and
/// entropy tables cost little, small enough that a point read decodes it in some tens of microseconds.
pub const GROUP_ROWS: usize = 16384;

/// Rows that a thread takes at a time of an aggregate: some milliseconds of work, and many more parts than threads.
pub const PART_ROWS: u64 = 8 * GROUP_ROWS as u64;

/// Rows that a bucket of a tier stands for at least, in the mean, if it is to answer for them: rows are counted and summed in
/// long runs, buckets one by one.
pub const TIER_ANSWER_ROWS: u64 = 64;

/// Groups of an aggregate's answer, which stands in memory: some gigabytes.
pub const AGGREGATE_GROUPS: usize = 1 << 25;

/// Bytes of the groups of all aggregate queries at work: some millions of groups with long texts. A query that needs more fails,
/// as anybody who may read a table could fill the memory otherwise.
pub const AGGREGATE_BYTES: u64 = 4 << 30;

/// Bytes of groups that a thread reserves at a time.
pub const AGGREGATE_BYTES_AT_ONCE: u64 = 64 << 10;

/// Threads for each core that help with aggregate queries, of all sessions together: more only wait for each other, and each
/// holds decoded blocks. A query that finds none free is worked off by its own thread.
pub const HELPERS_PER_CORE: usize = 4;

/// Bytes of one row: a 4 GiB blob is MariaDB's limit, our offsets are 32 bit.
pub const MAX_ROW_BYTES: usize = u32::MAX as usize - (1 << 20);

/// Bytes of rows after which a group ends even below `GROUP_ROWS` (rows with long strings).
pub const GROUP_BYTES: usize = 8 << 20;

/// Bytes of rows that a bulk statement collects before they are sorted and written as one private segment.
pub const BULK_RUN_BYTES: usize = 64 << 20;

/// Fewer rows of a statement than this go one by one to the map of the memtable: each batch there is one more place to look.
pub const SMALLEST_BATCH: usize = 64;

/// Bytes of rows up to which a bulk statement is kept as an ordinary write set (log copy, memtable).
pub const BULK_MIN_BYTES: usize = 4 << 20;

/// Bytes of a transaction's write set before it spills to private segments.
pub const TXN_SPILL_BYTES: usize = 64 << 20;

/// Runs of a bulk statement that may wait for the encoder; bounds memory together with `BULK_RUN_BYTES`.
pub const BULK_RUNS_QUEUED: usize = 1;

/// Rows that a chunk aims at when the store chooses its length.
pub const CHUNK_TARGET_ROWS: u64 = 4 << 20;

/// Rows from which on a chunk is worth files of its own: a file costs a disk block, a sync, and an entry in the manifest.
pub const CHUNK_LEAST_ROWS: u64 = 4096;

/// Bytes of a chunk that are worth files of their own, however few rows they are.
pub const CHUNK_LEAST_BYTES: u64 = 1 << 20;

/// Chunks with fewer rows and bytes than that which a table may have, and which a flush or a run of a bulk statement may open.
/// A few cost nothing; beyond that, neighbours share a chunk.
pub const SPARSE_CHUNKS: u64 = 64;

/// A chunk that has less than this part of a table is sparse as well: it bounds the chunks of a table, however many rows it has.
pub const CHUNKS_OF_TABLE: u64 = 16384;

/// Segments that one compaction of sparse chunks reads: it looks at all of them side by side.
pub const SPARSE_SEGMENTS_MERGED: usize = 1024;

/// Segments of one chunk that a scan has to merge at most before a merge is forced.
pub const MAX_CHUNK_SEGMENTS: usize = 12;

/// Rows of a commit up to which, on average, its log record and its sync cost more than compressing the rows as well as can be:
/// what small commits brought is flushed as a merge would write it.
pub const SMALL_COMMIT_ROWS: u64 = 256;

/// Rows of a segment that such a flush writes from which on it is left as it is: a merge would make it smaller by some hundredths.
pub const SEALED_FLUSH_ROWS: u64 = 1 << 18;

/// Sealed segments of a chunk that nobody writes to any more which are left as they are. Each merge writes all rows once more,
/// each segment is one more block to decode for the rows of a series.
pub const MAX_SEALED_SEGMENTS: usize = 6;

/// Share of tombstones in a chunk from which on a merge gives back enough space to be worth rewriting the rest.
pub const TOMBSTONES_WORTH_A_MERGE: f64 = 0.25;

/// Share of a sealed chunk that what came late to it must have, if the chunk is large or in a ring of bytes, to be worth rewriting
/// the chunk: each late row costs the writing of less than ten others.
pub const LATE_SHARE_WORTH_A_MERGE: f64 = 0.125;

/// Segments of late rows that are worth it all the same: scans would have to merge too many.
pub const LATE_SEGMENTS_WORTH_A_MERGE: usize = 6;

/// Merges that are planned at one look through a table's segments; then it is looked anew. A table can have more than
/// ten thousand segments, and each may be due for a merge.
pub const MERGES_PLANNED: usize = 256;

/// Rows behind the floors of their series for which no look through the keys of the table is worth while, even if they are a
/// quarter of what it stores.
pub const FALLEN_ROWS_WORTH_A_LOOK: u64 = 1024;

/// Rows of a segment that say how many of them are gone: there may be some times as many.
pub const ROWS_LOOKED_AT: u64 = 4096;

/// Rows that leave a ring next and are known by key: one look through the oldest chunk serves for so many.
pub const RING_AHEAD: usize = 1 << 16;

/// Changes of a ring's rows that are remembered while it is looked which leave next, about 100 MB. With more the look begins
/// again.
pub const RING_JOURNAL_STEPS: usize = 1 << 20;

/// Oldest keys of one series that one look finds, when so many have to leave at once.
pub const SERIES_LOOK_KEYS: u64 = 1 << 16;

/// Counters by which the time of a row's rank is narrowed down; each pass over the times makes the range so many times smaller.
pub const RANK_COUNTERS: u64 = 1 << 16;

/// Bytes of one log file before the next is begun: as many as a second or more of small commits write, so that the syncs of a
/// new file's header and name do not matter, and a small part of what a memtable keeps of the log.
pub const LOG_FILE_BYTES: u64 = 4 << 20;

/// Log files that are kept to be written anew when nothing in them is needed any more: a flush of a large memtable frees some
/// at once.
pub const LOG_FILES_SPARED: usize = 8;

/// Bytes of room that a log file asks for at once. Large enough that few syncs have to make a new length durable, small
/// enough not to matter beside the data of a small installation.
pub const LOG_ROOM_BYTES: u64 = 1 << 20;

/// Bytes of all log files before the oldest memtables are flushed to free them.
pub const LOG_TOTAL_BYTES: u64 = 512 << 20;

/// Entries of the table of each series' newest key before it is dropped and built anew.
pub const NEWEST_ENTRIES: usize = 1 << 20;

/// Bytes of one log record: a commit larger than this goes through private segments.
pub const MAX_LOG_RECORD: usize = 1 << 30;

/// Bytes of a log file that is read: a file is ended when it has [`LOG_FILE_BYTES`], so it holds one group of commits more, of which
/// each has a record at most; what is larger is no log, and must not take the memory.
pub const MAX_LOG_FILE: u64 = 16 << 30;

/// Sequence numbers, and numbers of rows and segments, are below this, so that none overflows in the life of an engine: one for each
/// nanosecond of a century.
pub const MAX_NUMBER: u64 = 1 << 62;

/// Bytes of a manifest file beyond which it is rewritten as one snapshot (if it also doubled since).
pub const MANIFEST_REWRITE_BYTES: u64 = 4 << 20;

/// Bytes of all group keys of one segment, decoded: room for 16384 groups with two keys of 8 KiB, and a bound
/// for what a damaged footer can make us allocate.
pub const FOOTER_KEY_BYTES: usize = 256 << 20;

/// New segment files that wait to be synced together, open as long.
pub const FILES_SYNCED_TOGETHER: usize = 64;

/// Files that are synced at the same time. One by one each takes some milliseconds on a disk that keeps its promise, side
/// by side a fraction of one; more gained little where it was tried.
pub const SYNCS_AT_ONCE: usize = 32;

/// Bytes of segments that one round of merges reads, if it is more than one merge: what a stop, or a crash, throws away.
pub const MERGE_ROUND_BYTES: u64 = 16 << 20;

/// Bytes that large work had, after which the memory that the C library keeps is given back: less is soon used again.
pub const IDLE_BYTES: u64 = 64 << 20;

/// The same as rows that statements have written.
pub const IDLE_ROWS: u64 = 400_000;

/// Rows that may be written within a second when it is quiet.
pub const QUIET_ROWS: u64 = 1000;

/// Bytes by which the memory in use may change within a second when it is quiet.
pub const QUIET_BYTES: u64 = 1 << 20;

/// Segments that the optimizer's question for the rows between two keys looks into at most.
pub const ESTIMATE_SEGMENTS: usize = 32;

/// Segment files kept open for reading: far below the usual 1024 descriptors that the server shares with us.
pub const OPEN_SEGMENT_FILES: usize = 512;

/// Keys that a transaction locks because it inserts them; it checks those of further rows at COMMIT only. About 10 MB.
pub const NEW_KEY_LOCKS: usize = 1 << 16;

/// Rows of a bulk statement whose keys are locked, so that small statements tell of duplicates themselves.
pub const FIRST_ROWS_LOCKED: usize = 16;

/// Bytes of a row lock beside its key: its places in two tables, and what these keep free.
pub const ROW_LOCK_BYTES: u64 = 160;

/// Row locks that each transaction may have when all locks together take as much memory as they may: short transactions go on.
pub const ROW_LOCKS_FOR_ALL: usize = 1024;

/// Bytes of a ring at least: a segment takes some KiB beside its rows, and a flush and a merge want room beside what is there.
pub const MIN_RING_BYTES: u64 = 64 << 10;

/// Bytes that a prepared transaction takes beside its rows, and each file that its rows were written to: places in lists, the
/// descriptions of tables and segments.
pub const PREPARED_BYTES: u64 = 1024;

/// Bytes of locks for the rows in files of a prepared transaction, for each table after a restart: 400,000 rows. With more of
/// them the table is locked as a whole, if no other prepared transaction has rows of it.
pub const PREPARED_LOCK_BYTES: u64 = 64 << 20;
