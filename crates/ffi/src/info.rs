//! The columns of INFORMATION_SCHEMA.RRD_TABLES, RRD_TIERS, RRD_SEGMENTS, RRD_COLUMNS and RRD_LOCK_WAITS, and what is in them.
//!
//! A column is one line here: name, type and where its value comes from. The handler makes the server's tables from
//! these lists; it puts schema, table and partition in front, because names and privileges are the server's business.

use std::ffi::CStr;
use std::sync::Arc;

use rrd_store::report::{LaneTotal, ReportedLane, SegmentReport, TableReport, TierReport};
use rrd_store::schema::{ColumnDef, Compression, Lane, Schema, TimeColumn, TimeUnit};
use rrd_store::{Engine, LockMode, Table};

use crate::export_info::{
    RRD_INFO_COLUMN_NAME as COLUMN_NAME, RRD_INFO_CONNECTION as CONNECTION, RRD_INFO_COSTLY as COSTLY,
    RRD_INFO_NULLABLE as NULLABLE, RRD_INFO_OF_TABLE as OF_TABLE, RRD_INFO_ROW_VALUE as ROW_VALUE,
};
use crate::info_time::{bound_cell, time_cell, unit_name};
use crate::lock_waits::WaitRow;

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// NULL.
    Null,
    /// A number.
    Unsigned(u64),
    /// A ratio.
    Double(f64),
    /// A text.
    Text(String),
    /// A point in time, in microseconds since 1970, to be shown as text in the session's time zone, with so many
    /// fraction digits.
    Timestamp(u64, u8),
}

/// What a column holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Numbers.
    Unsigned,
    /// Ratios.
    Double,
    /// Texts of so many characters.
    Text(u32),
}

/// A column over rows that are made of `R`.
pub struct InfoColumn<R: 'static> {
    /// Its name.
    pub name: &'static CStr,
    /// What it holds.
    pub kind: Kind,
    /// `RRD_INFO_` flags.
    pub flags: u8,
    value: fn(&R) -> Cell,
}

impl<R> InfoColumn<R> {
    const fn new(name: &'static CStr, kind: Kind, flags: u8, value: fn(&R) -> Cell) -> InfoColumn<R> {
        InfoColumn { name, kind, flags, value }
    }
}

/// The cells of a row.
pub fn cells<R>(columns: &[InfoColumn<R>], row: &R) -> Vec<Cell> {
    columns.iter().map(|column| (column.value)(row)).collect()
}

/// A row of RRD_TABLES.
pub struct TableRow {
    report: TableReport,
    held_bytes: u64,
    times: Option<(u64, u64)>,
}

/// A row of RRD_TIERS.
pub struct TierRow {
    report: TierReport,
}

/// A row of RRD_SEGMENTS.
pub struct SegmentRow {
    index_name: Option<Arc<str>>,
    schema: Arc<Schema>,
    report: SegmentReport,
}

/// A row of RRD_COLUMNS.
pub struct ColumnRow {
    index_name: Option<Arc<str>>,
    name: String,
    lane: Option<String>,
    total: LaneTotal,
}

const NAME: Kind = Kind::Text(64);

/// RRD_TABLES.
pub static TABLES: &[InfoColumn<TableRow>] = &[
    InfoColumn::new(c"TABLE_ID", Kind::Unsigned, 0, |r| Cell::Unsigned(u64::from(r.report.id))),
    InfoColumn::new(c"TABLE_ROWS", Kind::Unsigned, 0, |r| Cell::Unsigned(r.report.rows)),
    InfoColumn::new(c"SEGMENTS", Kind::Unsigned, 0, |r| Cell::Unsigned(r.report.segments)),
    InfoColumn::new(c"UNSEALED_SEGMENTS", Kind::Unsigned, 0, |r| Cell::Unsigned(r.report.unsealed_segments)),
    InfoColumn::new(c"CHUNKS", Kind::Unsigned, 0, |r| Cell::Unsigned(r.report.chunks)),
    InfoColumn::new(c"DATA_BYTES", Kind::Unsigned, 0, |r| Cell::Unsigned(r.report.data_bytes)),
    InfoColumn::new(c"INDEX_BYTES", Kind::Unsigned, 0, |r| Cell::Unsigned(r.report.index_bytes)),
    InfoColumn::new(c"MEMTABLE_BYTES", Kind::Unsigned, 0, |r| Cell::Unsigned(r.report.memtable_bytes)),
    InfoColumn::new(c"KEY_KIND", Kind::Text(16), 0, |r| text(key_kind(&r.report.schema))),
    InfoColumn::new(c"TIME_COLUMN", NAME, NULLABLE, |r| {
        let schema = &r.report.schema;
        time_of(schema).map_or(Cell::Null, |time| text(lane_name(schema, usize::from(time.column))))
    }),
    InfoColumn::new(c"TIME_UNIT", Kind::Text(16), NULLABLE, |r| {
        time_of(&r.report.schema).map_or(Cell::Null, |time| text(unit_name(time.unit)))
    }),
    InfoColumn::new(c"SERIES_COLUMNS", Kind::Text(2048), NULLABLE, |r| text_or_null(series(&r.report.schema))),
    InfoColumn::new(c"CHUNK_LENGTH", NAME, NULLABLE, |r| {
        time_of(&r.report.schema).map_or(Cell::Null, |_| text(option(&r.report.schema, "CHUNK").unwrap_or("auto")))
    }),
    InfoColumn::new(c"OLDEST_TIME", Kind::Text(32), NULLABLE | COSTLY | ROW_VALUE, |r| {
        r.times.map_or(Cell::Null, |(oldest, _)| time_cell(&r.report.schema, oldest))
    }),
    InfoColumn::new(c"NEWEST_TIME", Kind::Text(32), NULLABLE | COSTLY | ROW_VALUE, |r| {
        r.times.map_or(Cell::Null, |(_, newest)| time_cell(&r.report.schema, newest))
    }),
    InfoColumn::new(c"AUTO_INCREMENT", Kind::Unsigned, NULLABLE, |r| {
        r.report.next_auto_increment.map_or(Cell::Null, Cell::Unsigned)
    }),
    InfoColumn::new(c"COMPRESSION", Kind::Text(16), 0, |r| {
        text(match r.report.schema.compression {
            Compression::Fast => "fast",
            Compression::Small => "small",
        })
    }),
    InfoColumn::new(c"HORIZON", Kind::Text(32), NULLABLE | ROW_VALUE, |r| horizon(&r.report)),
    InfoColumn::new(c"ROWS_BEHIND_HORIZON", Kind::Unsigned, 0, |r| Cell::Unsigned(r.report.rows_behind)),
    InfoColumn::new(c"BYTES_BEHIND_HORIZON", Kind::Unsigned, 0, |r| Cell::Unsigned(r.report.bytes_behind)),
    InfoColumn::new(c"BYTES_HELD", Kind::Unsigned, 0, |r| Cell::Unsigned(r.held_bytes)),
    InfoColumn::new(c"ROWS_REFUSED", Kind::Unsigned, 0, |r| Cell::Unsigned(r.report.refused_rows)),
    InfoColumn::new(c"TABLE_OPTIONS", Kind::Text(2048), NULLABLE, |r| text_or_null(options(&r.report.schema))),
    InfoColumn::new(c"SCHEMA_VERSION", Kind::Unsigned, 0, |r| Cell::Unsigned(u64::from(r.report.schema.version))),
];

/// RRD_TIERS.
pub static TIERS: &[InfoColumn<TierRow>] = &[
    InfoColumn::new(c"TIER_NAME", NAME, OF_TABLE, |r| text(format!("${}", r.report.def.name))),
    InfoColumn::new(c"BUCKET", Kind::Text(16), 0, |r| text(r.report.def.name.as_str())),
    InfoColumn::new(c"KEEP", Kind::Text(32), NULLABLE, |r| {
        r.report.def.keep.map_or(Cell::Null, |keep| text(length_text(keep)))
    }),
    InfoColumn::new(c"MADE_FROM", NAME, OF_TABLE, |r| match &r.report.source {
        Some(source) => text(format!("${source}")),
        None => text(""),
    }),
    InfoColumn::new(c"BUCKETS", Kind::Unsigned, 0, |r| Cell::Unsigned(r.report.table.rows)),
    InfoColumn::new(c"DIRTY_BUCKETS", Kind::Unsigned, 0, |r| Cell::Unsigned(r.report.dirty)),
    InfoColumn::new(c"SEGMENTS", Kind::Unsigned, 0, |r| Cell::Unsigned(r.report.table.segments)),
    InfoColumn::new(c"DATA_BYTES", Kind::Unsigned, 0, |r| Cell::Unsigned(r.report.table.data_bytes)),
    InfoColumn::new(c"MEMTABLE_BYTES", Kind::Unsigned, 0, |r| Cell::Unsigned(r.report.table.memtable_bytes)),
    InfoColumn::new(c"HORIZON", Kind::Text(32), NULLABLE | ROW_VALUE, |r| horizon(&r.report.table)),
    InfoColumn::new(c"BYTES_BEHIND_HORIZON", Kind::Unsigned, 0, |r| Cell::Unsigned(r.report.table.bytes_behind)),
    InfoColumn::new(c"OLDEST_BUCKET", Kind::Text(32), NULLABLE | COSTLY | ROW_VALUE, |r| {
        r.report.times.map_or(Cell::Null, |(oldest, _)| time_cell(&r.report.table.schema, oldest))
    }),
    InfoColumn::new(c"NEWEST_BUCKET", Kind::Text(32), NULLABLE | COSTLY | ROW_VALUE, |r| {
        r.report.times.map_or(Cell::Null, |(_, newest)| time_cell(&r.report.table.schema, newest))
    }),
];

/// RRD_SEGMENTS.
pub static SEGMENTS: &[InfoColumn<SegmentRow>] = &[
    InfoColumn::new(c"INDEX_NAME", NAME, NULLABLE, |r| name_or_null(&r.index_name)),
    InfoColumn::new(c"SEGMENT_ID", Kind::Unsigned, 0, |r| Cell::Unsigned(r.report.meta.id.0)),
    InfoColumn::new(c"FILE_NAME", NAME, 0, |r| text(r.report.file.as_str())),
    InfoColumn::new(c"CHUNK_START", Kind::Text(32), NULLABLE | ROW_VALUE, |r| {
        r.report.chunk.map_or(Cell::Null, |chunk| bound_cell(&r.schema, chunk.start))
    }),
    InfoColumn::new(c"CHUNK_END", Kind::Text(32), NULLABLE | ROW_VALUE, |r| {
        r.report.chunk.map_or(Cell::Null, |chunk| bound_cell(&r.schema, chunk.end))
    }),
    InfoColumn::new(c"IS_SEALED", Kind::Text(3), 0, |r| yes_or_no(r.report.meta.sealed)),
    InfoColumn::new(c"SEGMENT_ROWS", Kind::Unsigned, 0, |r| Cell::Unsigned(r.report.meta.rows)),
    InfoColumn::new(c"TOMBSTONES", Kind::Unsigned, 0, |r| Cell::Unsigned(r.report.meta.tombstones)),
    InfoColumn::new(c"HAS_OLD_VERSIONS", Kind::Text(3), 0, |r| yes_or_no(r.report.meta.has_versions)),
    InfoColumn::new(c"BYTES", Kind::Unsigned, 0, |r| Cell::Unsigned(r.report.meta.bytes)),
    InfoColumn::new(c"ROW_GROUPS", Kind::Unsigned, NULLABLE | COSTLY, |r| {
        r.report.row_groups.map_or(Cell::Null, Cell::Unsigned)
    }),
    InfoColumn::new(c"MIN_TIME", Kind::Text(32), NULLABLE | ROW_VALUE, |r| {
        time_cell(&r.schema, r.report.meta.min_time)
    }),
    InfoColumn::new(c"MAX_TIME", Kind::Text(32), NULLABLE | ROW_VALUE, |r| {
        time_cell(&r.schema, r.report.meta.max_time)
    }),
    InfoColumn::new(c"MIN_SEQ", Kind::Unsigned, 0, |r| Cell::Unsigned(r.report.meta.base_seq)),
    InfoColumn::new(c"MAX_SEQ", Kind::Unsigned, 0, |r| Cell::Unsigned(r.report.meta.max_seq)),
    InfoColumn::new(c"SCHEMA_VERSION", Kind::Unsigned, 0, |r| Cell::Unsigned(u64::from(r.report.meta.schema_version))),
];

/// RRD_COLUMNS.
pub static COLUMNS: &[InfoColumn<ColumnRow>] = &[
    InfoColumn::new(c"INDEX_NAME", NAME, NULLABLE, |r| name_or_null(&r.index_name)),
    InfoColumn::new(c"COLUMN_NAME", NAME, COLUMN_NAME, |r| text(r.name.as_str())),
    InfoColumn::new(c"LANE", Kind::Text(16), NULLABLE, |r| r.lane.as_deref().map_or(Cell::Null, text)),
    InfoColumn::new(c"BYTES", Kind::Unsigned, 0, |r| Cell::Unsigned(r.total.bytes)),
    InfoColumn::new(c"COLUMN_ROWS", Kind::Unsigned, 0, |r| Cell::Unsigned(r.total.rows)),
    InfoColumn::new(c"NULLS", Kind::Unsigned, 0, |r| Cell::Unsigned(r.total.nulls)),
    InfoColumn::new(c"BLOCKS", Kind::Unsigned, 0, |r| Cell::Unsigned(r.total.blocks)),
    InfoColumn::new(c"BYTES_PER_ROW", Kind::Double, NULLABLE, |r| match r.total.rows {
        0 => Cell::Null,
        rows => Cell::Double((r.total.bytes as f64 / rows as f64 * 1000.0).round() / 1000.0),
    }),
    InfoColumn::new(c"CODECS", Kind::Text(1024), NULLABLE | COSTLY, |r| text_or_null(codecs(&r.total))),
];

/// RRD_LOCK_WAITS.
pub static LOCK_WAITS: &[InfoColumn<WaitRow>] = &[
    InfoColumn::new(c"INDEX_NAME", NAME, NULLABLE, |r| r.index_name.as_deref().map_or(Cell::Null, text)),
    InfoColumn::new(c"WAITING_TRX", Kind::Unsigned, 0, |r| Cell::Unsigned(r.waiting.0)),
    InfoColumn::new(c"WAITING_CONNECTION", Kind::Unsigned, NULLABLE | CONNECTION, |r| number_or_null(r.waiting.1)),
    InfoColumn::new(c"BLOCKING_TRX", Kind::Unsigned, 0, |r| Cell::Unsigned(r.blocking.0)),
    InfoColumn::new(c"BLOCKING_CONNECTION", Kind::Unsigned, NULLABLE | CONNECTION, |r| number_or_null(r.blocking.1)),
    InfoColumn::new(c"LOCK_MODE", Kind::Text(16), 0, |r| {
        text(match r.mode {
            LockMode::Exclusive => "EXCLUSIVE",
            LockMode::Shared => "SHARED",
        })
    }),
    InfoColumn::new(c"WAITED_SECONDS", Kind::Double, 0, |r| {
        Cell::Double((r.waited.as_secs_f64() * 1000.0).round() / 1000.0)
    }),
    InfoColumn::new(c"LOCKED_ROW", Kind::Text(1024), NULLABLE | ROW_VALUE, |r| {
        r.locked_row.as_deref().map_or(Cell::Null, |row| text(row.chars().take(1024).collect::<String>()))
    }),
];

/// The row of RRD_TABLES.
pub fn table_row(engine: &Engine, table: &Arc<Table>, wants_costly: bool) -> TableRow {
    TableRow {
        report: table.report(),
        held_bytes: engine.held_bytes(table),
        times: if wants_costly { table.time_range() } else { None },
    }
}

/// The rows of RRD_TIERS of a table.
pub fn tier_rows(table: &Table, wants_costly: bool) -> Vec<TierRow> {
    table.tier_reports(wants_costly).into_iter().map(|report| TierRow { report }).collect()
}

/// Whom to tell what went wrong on the way, and who says when to stop.
pub struct Listener<'a> {
    /// Given a text that names the file.
    pub problem: &'a mut dyn FnMut(String),
    /// True to stop.
    pub stop: &'a dyn Fn() -> bool,
}

/// The rows of RRD_SEGMENTS of a table and its indexes.
pub fn segment_rows(table: &Arc<Table>, wants_costly: bool, listener: &mut Listener<'_>) -> Vec<SegmentRow> {
    let mut rows = Vec::new();
    for (index_name, table) in with_indexes(table) {
        let schema = table.schema();
        let reports = table.segment_reports(wants_costly, listener.problem, listener.stop);
        let row = |report| SegmentRow { index_name: index_name.clone(), schema: schema.clone(), report };
        rows.extend(reports.into_iter().map(row));
    }
    rows
}

/// The rows of RRD_COLUMNS of a table and its indexes.
pub fn column_rows(table: &Arc<Table>, wants_costly: bool, listener: &mut Listener<'_>) -> Vec<ColumnRow> {
    let mut rows = Vec::new();
    for (index_name, table) in with_indexes(table) {
        let schema = table.schema();
        let mut totals = table.lane_totals(wants_costly, listener.problem, listener.stop);
        let mut push = |name, lane, total| rows.push(ColumnRow { index_name: index_name.clone(), name, lane, total });
        for (position, column) in schema.columns.iter().enumerate() {
            let total = totals.remove(&ReportedLane::Column(column.id)).unwrap_or_default();
            push(lane_name(&schema, position), Some(lane_type(column.lane)), total);
        }
        for (lane, total) in totals {
            push(other_lane_name(lane), None, total);
        }
    }
    rows
}

/// The table itself, then its indexes with their names.
fn with_indexes(table: &Arc<Table>) -> Vec<(Option<Arc<str>>, Arc<Table>)> {
    let indexes = table.indexes();
    let named = indexes.iter().map(|index| (Some(Arc::from(index.def.name.as_str())), index.table.clone()));
    std::iter::once((None, table.clone())).chain(named).collect()
}

/// The tables that `wanted` says yes to.
pub fn tables(engine: &Engine, mut wanted: impl FnMut(&str) -> bool) -> Vec<Arc<Table>> {
    engine.base_tables().into_iter().filter(|table| wanted(&table.name())).collect()
}

fn lane_name(schema: &Schema, position: usize) -> String {
    let Some(column) = schema.columns.get(position) else { return String::new() };
    match column {
        ColumnDef { name, hidden: false, .. } => name.clone(),
        _ if schema.row_number == Some(position as u16) => "(row number)".to_owned(),
        _ if schema.index_of.is_some() => format!("(entry {})", position + 1),
        _ => match schema.key.iter().position(|&k| usize::from(k) == position) {
            Some(part) => format!("(sort key {})", part + 1),
            None => format!("(hidden {})", position + 1),
        },
    }
}

fn other_lane_name(lane: ReportedLane) -> String {
    match lane {
        ReportedLane::Column(id) => format!("(dropped column {id})"),
        ReportedLane::Seqs => "(sequence numbers)".to_owned(),
        ReportedLane::Kinds => "(tombstones)".to_owned(),
        ReportedLane::Rest => "(headers and footers)".to_owned(),
    }
}

fn lane_type(lane: Lane) -> String {
    match lane {
        Lane::Int { width } => format!("int({width})"),
        Lane::F32 => "float".to_owned(),
        Lane::F64 => "double".to_owned(),
        Lane::Bytes => "bytes".to_owned(),
    }
}

/// The time column, if it holds times.
fn time_of(schema: &Schema) -> Option<TimeColumn> {
    schema.time.filter(|time| time.unit != TimeUnit::Order)
}

fn horizon(report: &TableReport) -> Cell {
    report.horizon.map_or(Cell::Null, |time| bound_cell(&report.schema, time))
}

/// A length of time in microseconds, as an option would have it.
fn length_text(micros: u64) -> String {
    let seconds = micros / 1_000_000;
    let units = [(365 * 86_400, "y"), (86_400, "d"), (3600, "h"), (60, "m"), (1, "s")];
    let unit = units.iter().find(|(length, _)| seconds >= *length && seconds % length == 0);
    unit.map_or_else(|| format!("{seconds}s"), |(length, name)| format!("{}{name}", seconds / length))
}

fn key_kind(schema: &Schema) -> &'static str {
    if schema.row_number.is_some() { "ROW NUMBER" } else { "PRIMARY" }
}

fn series(schema: &Schema) -> String {
    let names = schema.key.iter().take(schema.series_columns()).map(|&k| lane_name(schema, usize::from(k)));
    names.collect::<Vec<_>>().join(",")
}

fn option<'s>(schema: &'s Schema, name: &str) -> Option<&'s str> {
    schema.options.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
}

fn options(schema: &Schema) -> String {
    let written = schema.options.iter().map(|(name, value)| format!("{name}='{}'", value.replace('\'', "''")));
    written.collect::<Vec<_>>().join(" ")
}

/// `decimal+rans: 12, constant: 3`, the most frequent first.
fn codecs(total: &LaneTotal) -> String {
    let mut counts: Vec<_> = total.codecs.iter().collect();
    counts.sort_by_key(|&(_, &blocks)| std::cmp::Reverse(blocks));
    counts.iter().map(|(codec, blocks)| format!("{codec}: {blocks}")).collect::<Vec<_>>().join(", ")
}

fn text(value: impl Into<String>) -> Cell {
    Cell::Text(value.into())
}

fn text_or_null(value: String) -> Cell {
    if value.is_empty() { Cell::Null } else { Cell::Text(value) }
}

fn name_or_null(name: &Option<Arc<str>>) -> Cell {
    name.as_deref().map_or(Cell::Null, text)
}

fn number_or_null(value: Option<u64>) -> Cell {
    value.map_or(Cell::Null, Cell::Unsigned)
}

fn yes_or_no(value: bool) -> Cell {
    text(if value { "YES" } else { "NO" })
}
