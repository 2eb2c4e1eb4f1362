//! Tables, segments and columns as INFORMATION_SCHEMA shows them.
//!
//! Figures of a table come from memory alone. Footers are read only for what nothing else tells, and are not kept.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::engine::Engine;
use crate::error::Result;
use crate::horizon::Position;
use crate::live::LiveSegment;
use crate::manifest::edit::ChunkSpan;
use crate::schema::{Schema, TierDef};
use crate::segment::{BlockChoice, SegmentMeta, SurveyedLane};
use crate::table::Table;
use crate::tier::bucket::Buckets;
use crate::tier::{Tier, join};
use crate::version::Version;

/// Blocks of a column that are opened for their codec at most, about.
const CODEC_BLOCKS: u64 = 1024;

/// A table and its indexes, as they are now.
#[derive(Clone, Debug)]
pub struct TableReport {
    /// Names its folder.
    pub id: u32,
    /// What it is made of.
    pub schema: Arc<Schema>,
    /// Rows, roughly.
    pub rows: u64,
    /// Segments of the rows.
    pub segments: u64,
    /// Those of them that a merge has not brought to their final form.
    pub unsealed_segments: u64,
    /// Spans of time with segments of their own.
    pub chunks: u64,
    /// Bytes of the rows on disk.
    pub data_bytes: u64,
    /// Bytes of the indexes on disk.
    pub index_bytes: u64,
    /// Bytes in memory, of rows and indexes.
    pub memtable_bytes: u64,
    /// The next AUTO_INCREMENT value, if there is such a column.
    pub next_auto_increment: Option<u64>,
    /// As the time lane holds it: rows before it are gone. `None` if none are, or without a time column.
    pub horizon: Option<u64>,
    /// Rows that are stored and gone, roughly: their chunk is not wholly behind the horizon, or somebody still sees it.
    pub rows_behind: u64,
    /// Bytes of them on disk, roughly.
    pub bytes_behind: u64,
    /// Rows that came behind the horizon since the start, and were not stored.
    pub refused_rows: u64,
}

/// A tier.
#[derive(Clone, Debug)]
pub struct TierReport {
    /// What it is.
    pub def: TierDef,
    /// Its table's figures.
    pub table: TableReport,
    /// The tier that it is computed from; `None`: from the rows.
    pub source: Option<String>,
    /// Spans of time that are computed from the rows when they are read, until the next flush: a bucket each, but for bulk
    /// statements.
    pub dirty: u64,
    /// Smallest and largest start of a bucket, if that was asked for.
    pub times: Option<(u64, u64)>,
}

/// A segment.
#[derive(Clone, Debug)]
pub struct SegmentReport {
    /// As the manifest has it.
    pub meta: SegmentMeta,
    /// Its chunk; `None` without a time column.
    pub chunk: Option<ChunkSpan>,
    /// Its file, seen from the engine's folder.
    pub file: String,
    /// Its groups of rows, if that was asked for and the footer can be read.
    pub row_groups: Option<u64>,
}

/// What bytes of a table are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReportedLane {
    /// A column, by `ColumnDef::id`.
    Column(u32),
    /// Sequence numbers of rows that are not merged yet.
    Seqs,
    /// Which rows are tombstones.
    Kinds,
    /// Headers and footers.
    Rest,
}

/// What a lane costs in all segments of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LaneTotal {
    /// Bytes on disk.
    pub bytes: u64,
    /// Blocks.
    pub blocks: u64,
    /// Rows in them.
    pub rows: u64,
    /// NULLs among them, tombstones included.
    pub nulls: u64,
    /// How many of the blocks that were looked at have which codec.
    pub codecs: BTreeMap<&'static str, u64>,
}

impl Table {
    /// Its number, which names its folder.
    pub fn number(&self) -> u32 {
        self.id.0
    }

    /// The table as it is now.
    pub fn report(&self) -> TableReport {
        let stats = self.stats();
        let indexes = self.indexes();
        let in_indexes: u64 = indexes.iter().map(|i| i.table.stats().memtable_bytes).sum();
        let schema = self.schema();
        let version = self.version();
        let horizon = Some(version.gate.position()).filter(|p| *p != Position::default() && schema.time.is_some());
        let (rows_behind, bytes_behind) = horizon.as_ref().map_or((0, 0), |p| behind(&version, p.time));
        let counted = self.ring.lock().rows();
        TableReport {
            id: self.id.0,
            rows: counted.unwrap_or(stats.rows.saturating_sub(rows_behind)),
            horizon: horizon.map(|p| p.time),
            rows_behind: counted.map_or(rows_behind, |live| stats.rows.saturating_sub(live)),
            bytes_behind,
            refused_rows: self.refused_rows.load(Ordering::Relaxed),
            segments: stats.segments,
            unsealed_segments: version.segments.values().filter(|s| !s.meta().sealed).count() as u64,
            chunks: self.chunks.lock().spans().len() as u64,
            data_bytes: stats.data_bytes,
            index_bytes: stats.index_bytes,
            memtable_bytes: stats.memtable_bytes + in_indexes,
            next_auto_increment: schema.auto_increment.map(|_| self.next_auto_increment()),
            schema,
        }
    }

    /// Its tiers, finer ones first.
    pub fn tier_reports(&self, with_times: bool) -> Vec<TierReport> {
        let tiers = self.tiers();
        let version = self.version();
        let schema = self.schema();
        let dirty = |tier: &Tier| {
            let buckets = Buckets::of(&schema, tier.def.bucket);
            let mut spans = Vec::new();
            for touched in version.memtables().filter_map(|memtable| memtable.touched()) {
                touched.push_intervals(tier.def.id, u64::MAX, &mut spans);
            }
            let count = |span| buckets.map_or(0, |buckets| buckets.count(span));
            join(spans).into_iter().map(count).sum()
        };
        let report = |tier: &Arc<Tier>| TierReport {
            dirty: dirty(tier),
            def: tier.def.clone(),
            table: tier.table.report(),
            source: tier.source.and_then(|place| tiers.get(place)).map(|source| source.def.name.clone()),
            times: if with_times { tier.table.time_range() } else { None },
        };
        tiers.iter().map(report).collect()
    }

    /// Smallest and largest time of its rows, deleted ones that are not merged away included. `None` without rows.
    /// Walks over the rows in memory.
    pub fn time_range(&self) -> Option<(u64, u64)> {
        self.schema().time?;
        let version = self.version();
        let mut range: Option<(u64, u64)> = None;
        let mut widen = |from: u64, to: u64| {
            range = Some(range.map_or((from, to), |(a, b)| (a.min(from), b.max(to))));
        };
        version.segments.values().map(|s| s.meta()).for_each(|meta| widen(meta.min_time, meta.max_time));
        version.memtables().for_each(|memtable| memtable.times(&mut |time| widen(time, time)));
        range
    }

    /// Its segments. With `with_groups` their footers are read; what goes wrong there is told to `problem`.
    pub fn segment_reports(
        &self,
        with_groups: bool,
        problem: &mut dyn FnMut(String),
        stop: &dyn Fn() -> bool,
    ) -> Vec<SegmentReport> {
        let version = self.version();
        let spans = self.chunks.lock().spans().clone();
        let has_time = self.schema().time.is_some();
        let mut reports = Vec::with_capacity(version.segments.len());
        for segment in version.segments.values().take_while(|_| !stop()) {
            let meta = segment.meta().clone();
            let row_groups = match with_groups {
                true => told(segment.peek_index().map(|index| index.group_count() as u64), problem),
                false => None,
            };
            reports.push(SegmentReport {
                chunk: spans.get(&meta.chunk).copied().filter(|_| has_time),
                file: format!("{}/{}", self.id.dir_name(), meta.id.file_name()),
                meta,
                row_groups,
            });
        }
        reports
    }

    /// What each lane costs in all segments. With `with_codecs` blocks are opened: all of a small table, about a
    /// thousand of each column of a large one. Segments that cannot be read are told to `problem` and left out.
    pub fn lane_totals(
        &self,
        with_codecs: bool,
        problem: &mut dyn FnMut(String),
        stop: &dyn Fn() -> bool,
    ) -> BTreeMap<ReportedLane, LaneTotal> {
        let version = self.version();
        let rows: u64 = version.segments.values().map(|s| s.meta().rows).sum();
        let blocks = rows / crate::limits::GROUP_ROWS as u64 + version.segments.len() as u64;
        let every = blocks.div_ceil(CODEC_BLOCKS).max(1);
        let mut choice = BlockChoice::new(if with_codecs { every } else { 0 });
        let mut totals = BTreeMap::new();
        for segment in version.segments.values().take_while(|_| !stop()) {
            if let Some(rest) = told(add_segment(segment, &mut choice, &mut totals), problem) {
                totals.entry(ReportedLane::Rest).or_default().bytes += rest;
            }
        }
        totals
    }
}

/// Rows and bytes of segments before a time: of a segment that it parts, the share.
fn behind(version: &Version, time: u64) -> (u64, u64) {
    let mut behind = (0, 0);
    for meta in version.segments.values().map(|segment| segment.meta()).filter(|meta| meta.min_time < time) {
        let length = (meta.max_time - meta.min_time).saturating_add(1) as f64;
        let share = ((time - meta.min_time) as f64 / length).min(1.0);
        behind.0 += (meta.rows as f64 * share) as u64;
        behind.1 += (meta.bytes as f64 * share) as u64;
    }
    behind
}

/// Adds a segment's lanes; returns the bytes that belong to none.
fn add_segment(
    segment: &Arc<LiveSegment>,
    choice: &mut BlockChoice,
    totals: &mut BTreeMap<ReportedLane, LaneTotal>,
) -> Result<u64> {
    let lanes = segment.survey(choice)?;
    let in_blocks: u64 = lanes.iter().map(|lane| lane.bytes).sum();
    for lane in lanes.into_iter().filter(|lane| lane.blocks > 0) {
        let total = totals.entry(lane.lane.into()).or_default();
        total.bytes += lane.bytes;
        total.blocks += lane.blocks;
        total.rows += lane.rows;
        total.nulls += lane.nulls;
        for (codec, blocks) in lane.codecs {
            *total.codecs.entry(codec).or_default() += blocks;
        }
    }
    Ok(segment.meta().bytes.saturating_sub(in_blocks))
}

impl From<SurveyedLane> for ReportedLane {
    fn from(lane: SurveyedLane) -> ReportedLane {
        match lane {
            SurveyedLane::Column(id) => ReportedLane::Column(id),
            SurveyedLane::Seqs => ReportedLane::Seqs,
            SurveyedLane::Kinds => ReportedLane::Kinds,
        }
    }
}

fn told<T>(result: Result<T>, problem: &mut dyn FnMut(String)) -> Option<T> {
    result.map_err(|error| problem(error.to_string())).ok()
}

impl Engine {
    /// All tables but those that hold the entries of indexes, by number.
    pub fn base_tables(&self) -> Vec<Arc<Table>> {
        self.tables.read().by_id.values().filter(|t| !t.is_part()).cloned().collect()
    }
}
