//! Tests of segments: helpers here, promises in the files beside.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod compact;
mod damage;
mod files;
mod reading;
mod round_trip;

use std::path::Path;
use std::sync::Arc;

use rrd_codec::{Bitmap, Column, Effort, Values};

use super::{Segment, SegmentId, SegmentMeta, SegmentWriter};
use crate::cache::BlockCache;
use crate::fs::Fs;
use crate::fs::sim::SimFs;
use crate::manifest::edit::TableId;
use crate::row::RowLayout;
use crate::schema::{ColumnDef, Lane, Schema};

pub(super) const DIR: &str = "/data/table-00000007";
pub(super) const TABLE: TableId = TableId(7);
pub(super) const ID: SegmentId = SegmentId(0x1234);

/// A value of a row.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Cell {
    Null,
    Int(u64),
    /// Bits.
    F32(u32),
    /// Bits.
    F64(u64),
    Bytes(Vec<u8>),
}

/// A row version.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Version {
    pub cells: Vec<Cell>,
    pub seq: u64,
    pub tombstone: bool,
}

pub(super) fn layout(columns: Vec<ColumnDef>, key: Vec<u16>, time: Option<u16>) -> Arc<RowLayout> {
    let schema = Schema { version: 3, ..Schema::plain(columns, key, time) };
    schema.validate().unwrap();
    Arc::new(RowLayout::new(Arc::new(schema)))
}

/// (sensor, time) -> double, float, text, small integer.
pub(super) fn sample_layout() -> Arc<RowLayout> {
    let columns = vec![
        ColumnDef::plain(1, Lane::Int { width: 4 }, false),
        ColumnDef::plain(2, Lane::Int { width: 8 }, false),
        ColumnDef::plain(3, Lane::F64, true),
        ColumnDef::plain(4, Lane::F32, false),
        ColumnDef::plain(5, Lane::Bytes, true),
        ColumnDef::plain(9, Lane::Int { width: 2 }, false),
    ];
    layout(columns, vec![0, 1], Some(1))
}

/// Rows of `sample_layout`: ascending, some NULL, some versions, some tombstones.
pub(super) fn sample_versions(rows: u64) -> Vec<Version> {
    let mut out = Vec::new();
    for i in 0..rows {
        let (sensor, time) = (i / 20, 1_700_000_000 + 60 * (i % 20));
        let cells = vec![
            Cell::Int(sensor),
            Cell::Int(time),
            if i % 7 == 3 { Cell::Null } else { Cell::F64((i as f64 / 4.0).to_bits()) },
            Cell::F32((i as f32 - 5.5).to_bits()),
            if i % 5 == 1 { Cell::Null } else { Cell::Bytes(format!("text {}", i % 3).into_bytes()) },
            Cell::Int(i % 300),
        ];
        if i % 13 == 4 {
            out.push(Version { cells: cells.clone(), seq: 900 + i, tombstone: true });
        }
        if i % 11 == 5 {
            let mut newer = cells.clone();
            newer[5] = Cell::Int(7);
            out.push(Version { cells: newer, seq: 500 + i, tombstone: false });
        }
        out.push(Version { cells, seq: i % 3, tombstone: false });
    }
    out
}

/// The row in row format.
pub(super) fn row_bytes(layout: &RowLayout, cells: &[Cell]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut writer = layout.writer(&mut out);
    for (position, cell) in cells.iter().enumerate() {
        match cell {
            Cell::Null => writer.set_null(position),
            Cell::Int(v) => writer.set_int(position, *v),
            Cell::F32(bits) => writer.set_f32_bits(position, *bits),
            Cell::F64(bits) => writer.set_f64_bits(position, *bits),
            Cell::Bytes(bytes) => writer.push_bytes(position, bytes),
        }
    }
    writer.finish();
    out
}

pub(super) fn key_of(layout: &RowLayout, cells: &[Cell]) -> Vec<u8> {
    let mut key = Vec::new();
    layout.push_key(&row_bytes(layout, cells), &mut key);
    key
}

/// A file system with a segment of `versions`, in groups of the sizes that `groups` gives in turn.
pub(super) fn write(
    layout: &Arc<RowLayout>,
    versions: &[Version],
    groups: &[usize],
    effort: Effort,
) -> (SimFs, SegmentMeta) {
    let sim = SimFs::new();
    let fs: Arc<dyn Fs> = Arc::new(sim.clone());
    fs.create_dir(Path::new(DIR)).unwrap();
    let mut writer = SegmentWriter::create(&fs, Path::new(DIR), ID, TABLE, Arc::clone(layout), effort).unwrap();
    let mut left = versions;
    for &size in groups.iter().cycle() {
        let (group, rest) = left.split_at(size.min(left.len()));
        push(&mut writer, layout, group);
        left = rest;
        if left.is_empty() {
            break;
        }
    }
    let meta = writer.finish(1_699_999_200, 100_000, false).unwrap();
    (sim, meta)
}

fn push(writer: &mut SegmentWriter, layout: &RowLayout, group: &[Version]) {
    let rows: Vec<Vec<u8>> = group.iter().map(|v| row_bytes(layout, &v.cells)).collect();
    let rows: Vec<&[u8]> = rows.iter().map(Vec::as_slice).collect();
    let seqs: Vec<u64> = group.iter().map(|v| v.seq).collect();
    let mut tombstones = Bitmap::new(group.len());
    group.iter().enumerate().filter(|(_, v)| v.tombstone).for_each(|(i, _)| tombstones.set(i));
    writer.push_rows(&rows, Some(&seqs), Some(&tombstones)).unwrap();
}

pub(super) fn open(fs: &SimFs, meta: &SegmentMeta) -> Arc<Segment> {
    let cache = Arc::new(BlockCache::new(1 << 20));
    Segment::open(Arc::new(fs.clone()), Path::new(DIR), TABLE, meta.clone(), cache)
}

/// Everything that a segment holds.
pub(super) fn read_all(segment: &Segment, layout: &RowLayout) -> crate::Result<Vec<Version>> {
    let mut out = Vec::new();
    let index = segment.index()?;
    for group in 0..index.group_count() {
        let columns: Vec<Arc<Column>> = (0..layout.schema().columns.len())
            .map(|c| segment.column(group, c, layout))
            .collect::<crate::Result<_>>()?;
        let seqs = segment.seqs(group)?;
        let tombstones = segment.tombstones(group)?;
        for i in 0..index.group(group).rows as usize {
            out.push(Version {
                cells: columns.iter().map(|c| cell(c, i)).collect(),
                seq: seqs.as_ref().map_or(0, |s| s[i]),
                tombstone: tombstones.as_ref().is_some_and(|t| t.get(i)),
            });
        }
    }
    Ok(out)
}

fn cell(column: &Column, i: usize) -> Cell {
    if column.is_null(i) {
        return Cell::Null;
    }
    match &column.values {
        Values::Int(v) => Cell::Int(v[i]),
        Values::F32(v) => Cell::F32(v[i]),
        Values::F64(v) => Cell::F64(v[i]),
        Values::Bytes(v) => Cell::Bytes(v.get(i).to_vec()),
    }
}

/// What is to be read where `versions` were written: tombstones keep their key only.
pub(super) fn as_stored(layout: &RowLayout, versions: &[Version]) -> Vec<Version> {
    let mut out = versions.to_vec();
    for version in out.iter_mut().filter(|v| v.tombstone) {
        for (position, cell) in version.cells.iter_mut().enumerate() {
            if !layout.schema().key.contains(&(position as u16)) {
                *cell = Cell::Null;
            }
        }
    }
    out
}

pub(super) fn verify(segment: &Segment) -> Vec<String> {
    segment.verify(&mut |_, _| true).unwrap()
}
