//! Writes sorted rows to segments, one for each chunk that they touch.
//!
//! Flushes, bulk loads and spills of large transactions all end here. The files are durable when it returns (their
//! names too), but nothing refers to them yet.

use std::collections::BTreeMap;
use std::sync::Arc;

use rrd_codec::{Bitmap, Effort};

use crate::chunk::Density;
use crate::engine::Engine;
use crate::error::Result;
use crate::fs::{WriteFile, sync_all};
use crate::limits;
use crate::row::RowLayout;
use crate::schema::Schema;
use crate::segment::{SegmentMeta, SegmentWriter};
use crate::table::Table;
use crate::time::TimeLane;

/// A row version to be written; they come in key order, versions of one key newest first.
#[derive(Clone, Copy)]
pub struct OutRow<'a> {
    /// Row bytes (of a tombstone: with its key columns).
    pub row: &'a [u8],
    /// Its sequence number; 0 for private segments, whose commit gives it.
    pub seq: u64,
    /// Whether it says that the row is gone.
    pub tombstone: bool,
}

impl Engine {
    /// Writes `rows` to new segments of `table`.
    pub(crate) fn write_segments(
        &self,
        table: &Table,
        layout: &Arc<RowLayout>,
        rows: &[OutRow<'_>],
        effort: Effort,
    ) -> Result<Vec<SegmentMeta>> {
        let mut metas = Vec::new();
        if rows.is_empty() {
            return Ok(metas);
        }
        let written = self.write_chunks(table, layout, rows, effort, &mut metas);
        let written = written.and_then(|()| self.fs.sync_dir(&table.dir));
        match written {
            Ok(()) => Ok(metas),
            Err(error) => {
                self.remove_segments(table, &metas);
                Err(error)
            }
        }
    }

    /// Removes segments whose manifest edit failed, unless the edit may be on disk nevertheless.
    pub(crate) fn remove_refused(&self, table: &Table, metas: &[SegmentMeta]) {
        if !self.manifest.is_poisoned() {
            self.remove_segments(table, metas);
        }
    }

    /// Removes the files of segments that nothing refers to. What stays is removed at the next start.
    fn remove_segments(&self, table: &Table, metas: &[SegmentMeta]) {
        for meta in metas {
            if let Err(error) = self.fs.remove(&table.dir.join(meta.id.file_name())) {
                tracing::warn!(%error, "could not remove a segment that is not used");
            }
        }
    }

    fn write_chunks(
        &self,
        table: &Table,
        layout: &Arc<RowLayout>,
        rows: &[OutRow<'_>],
        effort: Effort,
        metas: &mut Vec<SegmentMeta>,
    ) -> Result<()> {
        let parts = match layout.schema().time {
            None => vec![(0, None)],
            Some(_) => split_by_chunk(table, layout, rows, self.chunk_target(table, layout)),
        };
        let mut files = Vec::new();
        for (chunk, part) in parts {
            let rows = part.as_deref().unwrap_or(rows);
            let (meta, file) = self.write_segment(table, layout, rows, chunk, effort)?;
            metas.push(meta);
            files.push(file);
            if files.len() >= limits::FILES_SYNCED_TOGETHER {
                sync_all(&*self.fs, std::mem::take(&mut files))?;
            }
        }
        sync_all(&*self.fs, files)
    }

    fn write_segment(
        &self,
        table: &Table,
        layout: &Arc<RowLayout>,
        rows: &[OutRow<'_>],
        chunk: u64,
        effort: Effort,
    ) -> Result<(SegmentMeta, Box<dyn WriteFile>)> {
        let id = self.take_segment_id();
        let mut writer = SegmentWriter::create(&self.fs, &table.dir, id, table.id, layout.clone(), effort)?;
        let base = rows.iter().map(|r| r.seq).min().unwrap_or(0);
        let written = push_groups(&mut writer, rows, base, self.tuning.group_rows).map(|()| writer.rows());
        match written {
            Ok(_) => writer.finish_unsynced(chunk, base, false),
            Err(error) => {
                if let Err(error) = writer.abandon() {
                    tracing::warn!(%error, "could not remove an unfinished segment");
                }
                Err(error)
            }
        }
    }
}

fn push_groups(writer: &mut SegmentWriter, rows: &[OutRow<'_>], base: u64, group_rows: usize) -> Result<()> {
    let mut rest = rows;
    let mut group: Vec<&[u8]> = Vec::with_capacity(group_rows);
    let mut seqs: Vec<u64> = Vec::with_capacity(group_rows);
    while !rest.is_empty() {
        let count = group_len(rest, group_rows);
        let (now, later) = rest.split_at(count);
        rest = later;
        group.clear();
        group.extend(now.iter().map(|r| r.row));
        seqs.clear();
        seqs.extend(now.iter().map(|r| r.seq - base));
        let tombstones = now.iter().any(|r| r.tombstone).then(|| {
            let mut bitmap = Bitmap::new(count);
            now.iter().enumerate().filter(|(_, r)| r.tombstone).for_each(|(i, _)| bitmap.set(i));
            bitmap
        });
        let seqs = seqs.iter().any(|&s| s != 0).then_some(seqs.as_slice());
        writer.push_rows(&group, seqs, tombstones.as_ref())?;
    }
    Ok(())
}

/// Chunks that a ring consists of at least: one is given back at a time.
const CHUNKS_OF_RING: u64 = 16;

/// The same of a ring of rows, whose bytes nobody counts: fewer files.
const CHUNKS_OF_ROWS: u64 = 8;

impl Engine {
    /// Rows that a chunk of the table aims at.
    fn chunk_target(&self, table: &Table, layout: &RowLayout) -> u64 {
        let mut target = self.tuning.chunk_target_rows;
        let Some(ring) = self.ring_of(table, layout.schema()) else { return target };
        if let Some(max_rows) = ring.max_rows {
            target = target.min((max_rows / CHUNKS_OF_ROWS).max(4 * limits::GROUP_ROWS as u64));
        }
        if let Some(max_bytes) = ring.max_bytes {
            let row_bytes = self.disk_bytes_per_row(table).ceil().max(1.0) as u64;
            target = target.min((max_bytes / CHUNKS_OF_RING / row_bytes).max(256));
        }
        target
    }
}

/// How long a chunk may be: a table that is bounded by age gives back one at a time.
fn longest_chunk(schema: &Schema) -> u64 {
    let part = schema.ring.retention.map(|retention| retention / CHUNKS_OF_RING);
    match (part, TimeLane::of(schema)) {
        (Some(part), Some(lane)) => lane.length(part).max(1),
        _ => u64::MAX,
    }
}

/// How many rows make up the next group.
fn group_len(rows: &[OutRow<'_>], most: usize) -> usize {
    let mut bytes = 0;
    for (i, row) in rows.iter().enumerate().take(most) {
        bytes += row.row.len();
        if bytes > limits::GROUP_BYTES && i > 0 {
            return i;
        }
    }
    rows.len().min(most)
}

/// The chunks of `rows`, by their starts, opened if need be, each with its rows; `None` stands for all of them.
fn split_by_chunk<'a>(
    table: &Table,
    layout: &RowLayout,
    rows: &[OutRow<'a>],
    target_rows: u64,
) -> Vec<(u64, Option<Vec<OutRow<'a>>>)> {
    let times: Vec<u64> = rows.iter().map(|r| layout.time(r.row)).collect();
    let (min, max) = times.iter().fold((u64::MAX, 0), |(min, max), &t| (min.min(t), max.max(t)));
    let density = Density {
        rows: rows.len() as u64,
        min_time: min,
        max_time: max,
        target_rows,
        max_length: longest_chunk(layout.schema()),
    };
    let fixed = layout.schema().chunk_length;
    let mut chunks = table.chunks.lock();
    let first = chunks.find_or_open(min, fixed, density);
    if max < first.end || first.end == u64::MAX {
        return vec![(first.start, None)];
    }
    let mut parts: BTreeMap<u64, Vec<OutRow<'a>>> = BTreeMap::new();
    let mut current = first;
    for (row, &time) in rows.iter().zip(&times) {
        if time < current.start || (time >= current.end && current.end != u64::MAX) {
            current = chunks.find_or_open(time, fixed, density);
        }
        parts.entry(current.start).or_default().push(*row);
    }
    parts.into_iter().map(|(start, part)| (start, Some(part))).collect()
}
