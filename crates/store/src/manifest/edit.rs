//! The changes that a manifest records, and the state that they add up to.
//!
//! One record of the manifest holds a list of edits that take effect together: it is the commit point of DDL,
//! flushes, bulk loads and merges. Layout in `docs/internals/format.md`.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::schema::Schema;
use crate::segment::meta::{SegmentId, SegmentMeta};

/// Names a table for its whole life; never reused. Its folder is `table-<id in 8 hex digits>`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TableId(pub u32);

impl TableId {
    /// The folder's name within the engine's.
    pub fn dir_name(self) -> String {
        format!("table-{:08x}", self.0)
    }
}

/// A span of time whose rows share files: `[start, end)` in units of the time lane; `end` is inclusive of the
/// lane's last value when it is `u64::MAX`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkSpan {
    /// First time in it.
    pub start: u64,
    /// First time behind it.
    pub end: u64,
}

/// One change.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "the variants say what their fields are")]
pub enum Edit {
    /// A new, empty table.
    CreateTable { table: TableId, name: String, schema: Arc<Schema> },
    /// The table is gone; its files may be removed.
    DropTable { table: TableId },
    /// A new name.
    RenameTable { table: TableId, name: String },
    /// A new schema version.
    SetSchema { table: TableId, schema: Arc<Schema> },
    /// All rows are gone (TRUNCATE); rows in the log with a sequence number up to `flushed_seq` too.
    Truncate { table: TableId, flushed_seq: u64 },
    /// A chunk is opened.
    AddChunk { table: TableId, span: ChunkSpan },
    /// A chunk is behind the horizon for good; it stays if it has segments.
    RemoveChunk { table: TableId, start: u64 },
    /// A segment is part of the table.
    AddSegment { table: TableId, meta: SegmentMeta },
    /// A segment is no longer part of the table.
    RemoveSegment { table: TableId, segment: SegmentId },
    /// Everything up to this sequence number is in segments: the log need not be replayed for it.
    Flushed { table: TableId, seq: u64 },
    /// The smallest sequence number that may be given next; never goes back.
    NextSeq { seq: u64 },
    /// The smallest row number that may be given next in a table without a key.
    NextRowNumber { table: TableId, next: u64 },
    /// An opaque, named property of a table (horizon, AUTO_INCREMENT, tier state, ...); empty removes it.
    SetProperty { table: TableId, name: String, value: Vec<u8> },
}

/// A table as the manifest knows it.
#[derive(Clone, Debug, PartialEq)]
pub struct TableState {
    /// `database/table`, as the server spells it in paths.
    pub name: String,
    /// Current schema.
    pub schema: Arc<Schema>,
    /// Older schemas that segments refer to, by version.
    pub old_schemas: BTreeMap<u32, Arc<Schema>>,
    /// Chunks by start.
    pub chunks: BTreeMap<u64, ChunkSpan>,
    /// Live segments.
    pub segments: BTreeMap<SegmentId, SegmentMeta>,
    /// See [`Edit::Flushed`].
    pub flushed_seq: u64,
    /// See [`Edit::NextRowNumber`].
    pub next_row_number: u64,
    /// See [`Edit::SetProperty`].
    pub properties: BTreeMap<String, Vec<u8>>,
}

/// All that a manifest says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct State {
    /// Tables by id.
    pub tables: BTreeMap<TableId, TableState>,
    /// Ids by name: names are compared with each CREATE, and there can be ten thousand.
    pub names: HashMap<String, TableId>,
    /// The next table gets this id (one more than the largest ever used).
    pub next_table: u32,
    /// The next segment gets at least this id (one more than the largest ever named in an edit).
    pub next_segment: u64,
    /// See [`Edit::NextSeq`].
    pub next_seq: u64,
}
