//! Writes sorted rows to segments, one for each chunk that they touch.
//!
//! Flushes, bulk loads and spills of large transactions all end here. The files are durable when it returns (their
//! names too), but nothing refers to them yet.

use std::sync::Arc;

use rrd_codec::{Bitmap, Effort};

use crate::chunk::{Density, Worth};
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::fs::space::Room;
use crate::fs::{WriteFile, sync_all};
use crate::limits;
use crate::manifest::edit::ChunkSpan;
use crate::row::RowLayout;
use crate::schema::Schema;
use crate::segment::{SegmentMeta, SegmentWriter};
use crate::table::Table;
use crate::time::TimeLane;

/// A row version to be written.
#[derive(Clone, Copy)]
pub struct OutRow<'a> {
    /// Row bytes (of a tombstone: with its key columns).
    pub row: &'a [u8],
    /// Its sequence number; 0 for private segments, whose commit gives it.
    pub seq: u64,
    /// Whether it says that the row is gone.
    pub tombstone: bool,
}

/// Row versions to be written; in key order, versions of one key newest first.
#[derive(Default)]
pub struct OutRows<'a> {
    rows: Vec<&'a [u8]>,
    /// Sequence numbers; none if all are 0.
    seqs: Option<Vec<u64>>,
    /// Tombstones, if there are any.
    tombstones: Option<Bitmap>,
    /// The smallest and the largest time, where whoever made the list knows them.
    times: Option<(u64, u64)>,
}

impl<'a> OutRows<'a> {
    /// Rows without sequence numbers, none of them a tombstone.
    pub fn new(rows: Vec<&'a [u8]>, times: Option<(u64, u64)>) -> OutRows<'a> {
        OutRows { rows, times, ..OutRows::default() }
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Those of them from a time on; `None`: all of them are.
    pub fn since(&self, layout: &RowLayout, from: u64) -> Option<OutRows<'a>> {
        let places: Vec<u32> =
            (0..self.rows.len()).filter(|&i| layout.time(self.rows[i]) >= from).map(|i| i as u32).collect();
        (places.len() < self.rows.len()).then(|| self.part(&places))
    }

    /// The time from which on about `rows` of them are.
    pub fn time_of_newest(&self, layout: &RowLayout, rows: usize) -> Option<u64> {
        let mut times: Vec<u64> = self.rows.iter().map(|row| layout.time(row)).collect();
        let place = times.len().saturating_sub(rows.max(1));
        (place < times.len()).then(|| *times.select_nth_unstable(place).1)
    }

    fn base_seq(&self) -> u64 {
        self.seqs.as_ref().and_then(|seqs| seqs.iter().min().copied()).unwrap_or(0)
    }

    /// The rows at some places, which ascend.
    fn part(&self, places: &[u32]) -> OutRows<'a> {
        let at = |&place: &u32| place as usize;
        let tombstones = self.tombstones.as_ref().map(|all| some_set(places.len(), |i| all.get(at(&places[i]))));
        OutRows {
            rows: places.iter().map(|place| self.rows[at(place)]).collect(),
            seqs: self.seqs.as_ref().map(|seqs| places.iter().map(|place| seqs[at(place)]).collect()),
            tombstones: tombstones.flatten(),
            times: None,
        }
    }
}

impl<'a> FromIterator<OutRow<'a>> for OutRows<'a> {
    fn from_iter<I: IntoIterator<Item = OutRow<'a>>>(rows: I) -> OutRows<'a> {
        let rows = rows.into_iter();
        let (mut out, mut seqs, mut dead) = (OutRows::default(), Vec::with_capacity(rows.size_hint().0), Vec::new());
        out.rows.reserve(rows.size_hint().0);
        for row in rows {
            if row.tombstone {
                dead.push(out.rows.len());
            }
            out.rows.push(row.row);
            seqs.push(row.seq);
        }
        if !dead.is_empty() {
            let mut tombstones = Bitmap::new(out.rows.len());
            dead.into_iter().for_each(|i| tombstones.set(i));
            out.tombstones = Some(tombstones);
        }
        out.seqs = seqs.iter().any(|&seq| seq != 0).then_some(seqs);
        out
    }
}

/// A bitmap of the rows for which `is_set` holds; none if that is none.
fn some_set(rows: usize, is_set: impl Fn(usize) -> bool) -> Option<Bitmap> {
    let mut bitmap = None;
    for i in (0..rows).filter(|&i| is_set(i)) {
        bitmap.get_or_insert_with(|| Bitmap::new(rows)).set(i);
    }
    bitmap
}

impl Engine {
    /// Writes `rows` to new segments of `table`. If there was no room for them in the end, they are rubbish: the caller asks
    /// [`Room::is_over`] and removes them.
    pub(crate) fn write_segments(
        &self,
        table: &Table,
        layout: &Arc<RowLayout>,
        rows: &OutRows<'_>,
        effort: Effort,
        room: Option<&Arc<Room>>,
    ) -> Result<Vec<SegmentMeta>> {
        let mut metas = Vec::new();
        if rows.is_empty() {
            return Ok(metas);
        }
        let written = self.write_chunks(table, layout, rows, (effort, room), &mut metas);
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
        rows: &OutRows<'_>,
        (effort, room): (Effort, Option<&Arc<Room>>),
        metas: &mut Vec<SegmentMeta>,
    ) -> Result<()> {
        let parts = match layout.schema().time {
            None => vec![(0, None)],
            Some(_) => {
                let (target, worth) = (self.chunk_target(table, layout), self.worth_of_chunk(table, layout));
                split_by_chunk(table, layout, rows, target, worth)
            }
        };
        let mut files = Vec::new();
        for (chunk, part) in parts {
            let rows = part.as_ref().unwrap_or(rows);
            let (meta, file) = self.write_segment(table, layout, rows, chunk, (effort, room))?;
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
        rows: &OutRows<'_>,
        chunk: u64,
        (effort, room): (Effort, Option<&Arc<Room>>),
    ) -> Result<(SegmentMeta, Box<dyn WriteFile>)> {
        let id = self.take_segment_id();
        // A merge could not make it much smaller, but for what it forgets.
        let seals = effort == Effort::Small && rows.tombstones.is_none();
        let writer = SegmentWriter::create(&self.fs, &table.dir, id, table.id, layout.clone(), effort)?;
        let mut writer = writer.within(room.cloned());
        let base = rows.base_seq();
        let goes_on = || if self.gives_up(table) { Err(Error::Interrupted) } else { Ok(()) };
        let written = push_groups(&mut writer, layout, rows, base, (self.tuning.group_rows, &goes_on));
        let written = written.map(|()| writer.rows());
        match written {
            Ok(rows) => writer.finish_unsynced(chunk, base, seals && rows >= limits::SEALED_FLUSH_ROWS),
            Err(error) => {
                if let Err(error) = writer.abandon() {
                    tracing::warn!(%error, "could not remove an unfinished segment");
                }
                Err(error)
            }
        }
    }
}

fn push_groups(
    writer: &mut SegmentWriter,
    layout: &RowLayout,
    rows: &OutRows<'_>,
    base: u64,
    (group_rows, goes_on): (usize, &dyn Fn() -> Result<()>),
) -> Result<()> {
    let mut first = 0;
    let mut offsets: Vec<u64> = Vec::new();
    while first < rows.len() {
        let count = group_len(layout, &rows.rows[first..], group_rows);
        let group = first..first + count;
        let tombstones = rows.tombstones.as_ref().and_then(|all| some_set(count, |i| all.get(first + i)));
        offsets.clear();
        offsets.extend(rows.seqs.iter().flat_map(|seqs| &seqs[group.clone()]).map(|seq| seq - base));
        let offsets = offsets.iter().any(|&offset| offset != 0).then_some(offsets.as_slice());
        goes_on()?;
        writer.push_rows(&rows.rows[group], offsets, tombstones.as_ref())?;
        first += count;
    }
    Ok(())
}

/// Chunks that a ring of age consists of at least: one is given back at a time.
const CHUNKS_OF_AGE: u64 = 16;

/// The same of a ring of bytes, which also needs room for the merge of one.
const CHUNKS_OF_BYTES: u64 = 48;

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
            target = target.min((max_bytes / CHUNKS_OF_BYTES / row_bytes).max(256));
        }
        target
    }

    /// What a chunk of the table should have to be worth files of its own.
    pub(crate) fn worth_of_chunk(&self, table: &Table, layout: &RowLayout) -> Worth {
        let version = table.version();
        let all = version.segments.values().map(|s| s.meta());
        let (rows, bytes) = all.fold((0, 0), |(rows, bytes), m| (rows + m.rows, bytes + m.bytes));
        let least = match self.tuning.chunk_least_rows {
            0 => return Worth::ANY,
            least => least.max(rows / limits::CHUNKS_OF_TABLE),
        };
        let schema = layout.schema();
        let kept = schema.ring.retention.zip(TimeLane::of(schema));
        let kept = kept.map(|(retention, lane)| (lane.length(retention), longest_chunk(schema)));
        Worth {
            rows: least.min(self.chunk_target(table, layout)),
            bytes: limits::CHUNK_LEAST_BYTES.max(bytes / limits::CHUNKS_OF_TABLE),
            few: self.tuning.sparse_chunks,
            kept,
        }
    }
}

/// How long a chunk may be: a table that is bounded by age gives back one at a time.
fn longest_chunk(schema: &Schema) -> u64 {
    let part = schema.ring.retention.map(|retention| retention / CHUNKS_OF_AGE);
    match (part, TimeLane::of(schema)) {
        (Some(part), Some(lane)) => lane.length(part).max(1),
        _ => u64::MAX,
    }
}

/// How many rows make up the next group.
fn group_len(layout: &RowLayout, rows: &[&[u8]], most: usize) -> usize {
    if layout.fixed_row_len().is_some_and(|len| len * most <= limits::GROUP_BYTES) {
        return rows.len().min(most);
    }
    let mut bytes = 0;
    for (i, row) in rows.iter().enumerate().take(most) {
        bytes += row.len();
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
    rows: &OutRows<'a>,
    target_rows: u64,
    worth: Worth,
) -> Vec<(u64, Option<OutRows<'a>>)> {
    let times = || rows.rows.iter().map(|row| layout.time(row));
    let (min, max) =
        rows.times.unwrap_or_else(|| times().fold((u64::MAX, 0), |(min, max), t| (min.min(t), max.max(t))));
    let fixed = layout.schema().chunk_length;
    let mut chunks = table.chunks.lock();
    let time = |place: usize| layout.time(rows.rows[place]);
    let density = Density::of(rows.len(), time, &chunks, (target_rows, longest_chunk(layout.schema())));
    if !chunks.is_one((min, max), fixed, density) {
        let mut last: Option<ChunkSpan> = None;
        let mut is_missing = |time: u64| {
            if last.is_none_or(|span| !holds(span, time)) {
                last = chunks.find(time);
                return last.is_none();
            }
            false
        };
        let missing = rows.rows.iter().map(|row| (layout.time(row), row.len() as u32));
        let missing: Vec<(u64, u32)> = missing.filter(|(time, _)| is_missing(*time)).collect();
        chunks.open_all(missing, fixed, density, worth);
    }
    let first = chunks.find_or_open(min, fixed, density);
    if holds(first, max) {
        return vec![(first.start, None)];
    }
    // Mostly they are few, and neighbours in the order of keys go to the same one.
    let mut parts: Vec<(ChunkSpan, Vec<u32>)> = vec![(first, Vec::new())];
    let mut current = 0;
    for (place, time) in times().enumerate() {
        if !holds(parts[current].0, time) {
            let span = chunks.find_or_open(time, fixed, density);
            current = match parts.binary_search_by_key(&span.start, |(span, _)| span.start) {
                Ok(known) => known,
                Err(place) => {
                    parts.insert(place, (span, Vec::new()));
                    place
                }
            };
        }
        parts[current].1.push(place as u32);
    }
    parts.into_iter().map(|(span, places)| (span.start, Some(rows.part(&places)))).collect()
}

fn holds(span: ChunkSpan, time: u64) -> bool {
    span.start <= time && (time < span.end || span.end == u64::MAX)
}
