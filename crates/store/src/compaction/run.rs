//! Does a merge: walks the chosen segments side by side and writes one.
//!
//! Only versions that some snapshot sees are kept. When the whole chunk is merged, rows that every snapshot sees lose
//! their sequence numbers (they cost nothing then) and tombstones that every snapshot sees are dropped. One
//! manifest edit swaps the old segments for the new one.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use rrd_codec::{Bitmap, BytesColumn, Column, Effort, Values};

use crate::cursor::Direction;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::flush::is_needed;
use crate::group::RowGroup;
use crate::horizon::Horizon;
use crate::limits;
use crate::live::LiveSegment;
use crate::manifest::edit::Edit;
use crate::merge::{Event, Merge};
use crate::row::RowLayout;
use crate::schema::Compression;
use crate::segment::{SegmentMeta, SegmentWriter};
use crate::source::{Input, Source};
use crate::table::Table;

use super::choose::Plan;

impl Engine {
    /// Runs a merge. `progress(rows)` is told about rows read and returns false to stop.
    pub(crate) fn run_merge(&self, table: &Table, plan: &Plan, progress: &mut dyn FnMut(u64) -> bool) -> Result<()> {
        let _alone = table.maintenance.lock();
        self.check_writable()?;
        let Some((inputs, forget_until)) = self.merge_inputs(table, plan) else { return Ok(()) };
        let layout = table.layout();
        let running = self.activity.begin("merge", table.name(), inputs.iter().map(|s| s.meta().rows).sum());
        let mut progress = |rows: u64| {
            running.job.done.fetch_add(rows, Ordering::Relaxed);
            progress(rows)
        };
        let snapshots = self.open_snapshots();
        let horizon = table.version().gate.at(snapshots.first().copied().unwrap_or(0));
        let (horizon, gone) = table.space_horizon(horizon, None);
        let merged = self.write_merged(
            table,
            &layout,
            plan,
            &inputs,
            (forget_until, &snapshots, horizon.as_ref()),
            &mut progress,
        )?;
        let mut edits: Vec<Edit> =
            merged.iter().map(|meta| Edit::AddSegment { table: table.id, meta: meta.clone() }).collect();
        edits.extend(plan.segments.iter().map(|&segment| Edit::RemoveSegment { table: table.id, segment }));
        edits.extend(table.gone_edit(gone));
        let committed = self.fs.sync_dir(&table.dir).and_then(|()| self.commit_manifest(&edits));
        if let Err(error) = committed {
            self.remove_refused(table, &merged);
            return Err(error);
        }
        self.activity.note_merge(inputs.iter().map(|s| s.meta().bytes).sum(), &merged);
        table.raise_gone(gone);
        table.install(|v| {
            for segment in &inputs {
                v.segments.remove(&segment.meta().id);
            }
            for meta in merged {
                v.segments.insert(meta.id, LiveSegment::open(&self.fs, &self.cache, &table.dir, table.id, meta));
            }
        });
        inputs.iter().for_each(|s| s.mark_obsolete());
        Ok(())
    }

    /// The segments of a plan, and the sequence number up to which they are all that there is of their chunk (0 if
    /// they are only a part of it). `None` if the plan is void: its segments were merged or truncated meanwhile, or
    /// the chunk got more.
    fn merge_inputs(&self, table: &Table, plan: &Plan) -> Option<(Vec<Arc<LiveSegment>>, u64)> {
        let _turn = self.apply_turn.lock();
        let version = table.version();
        let inputs: Vec<Arc<LiveSegment>> =
            plan.segments.iter().filter_map(|id| version.segments.get(id).cloned()).collect();
        if inputs.len() != plan.segments.len() {
            return None;
        }
        // Pins are set under the maintenance lock, which is held: the plan may be older than they are.
        let pinned = table.pinned_segments();
        if plan.segments.iter().any(|id| pinned.contains(id)) {
            return None;
        }
        if !plan.whole_chunk {
            return Some((inputs, 0));
        }
        if version.segments.values().filter(|s| s.meta().chunk == plan.chunk).count() != inputs.len() {
            return None;
        }
        // An old snapshot still sees rows that tombstones here hide from it.
        if version.dropped.values().any(|(s, _)| s.meta().chunk == plan.chunk) {
            return Some((inputs, 0));
        }
        Some((inputs, self.complete_in_segments(table)))
    }

    /// The merged segment; none when no row is left.
    fn write_merged(
        &self,
        table: &Table,
        layout: &Arc<RowLayout>,
        plan: &Plan,
        inputs: &[Arc<LiveSegment>],
        (forget_until, snapshots, horizon): (u64, &[u64], Option<&Horizon>),
        progress: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Vec<SegmentMeta>> {
        let effort = match (plan.whole_chunk, layout.schema().compression) {
            (true, Compression::Small) => Effort::Small,
            _ => Effort::Fast,
        };
        let base_seq = match plan.whole_chunk {
            true => 0,
            false => inputs.iter().map(|s| s.meta().base_seq).min().unwrap_or(0),
        };
        let forget_until = forget_until.min(snapshots.first().copied().unwrap_or(0));
        let writer =
            SegmentWriter::create(&self.fs, &table.dir, self.take_segment_id(), table.id, layout.clone(), effort)?;
        let mut out = Output {
            layout,
            writer,
            base_seq,
            forget_until,
            columns: Vec::new(),
            seqs: Vec::new(),
            tombstones: Vec::new(),
            bytes: 0,
        };
        out.begin_group();
        let written = merge_into(&mut out, layout, inputs, snapshots, horizon, progress);
        let done = written.and_then(|()| out.end_group());
        match done {
            Err(error) => {
                if let Err(error) = out.writer.abandon() {
                    tracing::warn!(%error, "could not remove an unfinished segment");
                }
                Err(error)
            }
            Ok(()) if out.writer.rows() == 0 => out.writer.abandon().map(|()| Vec::new()),
            Ok(()) => Ok(vec![out.writer.finish(plan.chunk, base_seq, plan.whole_chunk)?]),
        }
    }
}

fn merge_into(
    out: &mut Output<'_>,
    layout: &Arc<RowLayout>,
    inputs: &[Arc<LiveSegment>],
    snapshots: &[u64],
    horizon: Option<&Horizon>,
    progress: &mut dyn FnMut(u64) -> bool,
) -> Result<()> {
    let gate = horizon.zip(layout.places());
    let sources = inputs
        .iter()
        .map(|segment| {
            let meta = segment.meta();
            let input = Input::Segment { segment: segment.clone(), base_seq: meta.base_seq };
            (Source::new(input, layout.clone(), u64::MAX, Direction::Forward, None, true), Some(meta.first_key.clone()))
        })
        .collect();
    let mut merge = Merge::new(Direction::Forward, u64::MAX, None, sources)?;
    while let Some(event) = merge.next(limits::GROUP_ROWS)? {
        let rows = match event {
            Event::Run { group, first, rows } => {
                let mut done = 0;
                while done < rows {
                    let (gone, there) = match gate {
                        Some((horizon, places)) => {
                            places.next_there(&group, first + done, rows - done, Direction::Forward, horizon)?
                        }
                        None => (0, rows),
                    };
                    if there > 0 {
                        out.push_run(&group, first + done + gone, there)?;
                    }
                    done += gone + there;
                }
                rows
            }
            Event::Versions(versions) => {
                let mut newer = u64::MAX;
                let is_gone = match (gate, versions.iter().find(|v| !v.is_tombstone())) {
                    (Some((horizon, places)), Some(v)) => places.is_row_gone(&v.group, v.row, horizon)?,
                    _ => false,
                };
                if is_gone {
                    progress(versions.len() as u64);
                    continue;
                }
                for v in &versions {
                    if is_needed(v.seq, newer, snapshots) && !(v.is_tombstone() && out.forgets(v.seq)) {
                        out.push_row(&v.group, v.row)?;
                    }
                    newer = v.seq;
                }
                versions.len()
            }
        };
        if !progress(rows as u64) {
            return Err(Error::Interrupted);
        }
    }
    Ok(())
}

/// Columns of the group that is being filled.
struct Output<'a> {
    layout: &'a Arc<RowLayout>,
    writer: SegmentWriter,
    base_seq: u64,
    /// Sequence numbers up to here are seen by every snapshot and need not be told apart; 0: keep all.
    forget_until: u64,
    columns: Vec<Column>,
    seqs: Vec<u64>,
    tombstones: Vec<bool>,
    bytes: usize,
}

impl Output<'_> {
    fn forgets(&self, seq: u64) -> bool {
        seq <= self.forget_until && self.forget_until > 0
    }

    fn begin_group(&mut self) {
        self.columns = self.layout.schema().columns.iter().map(|c| Column::new(c.lane.kind())).collect();
        self.seqs.clear();
        self.tombstones.clear();
        self.bytes = 0;
    }

    fn push_run(&mut self, group: &Arc<RowGroup>, first: usize, rows: usize) -> Result<()> {
        let mut first = first;
        let mut left = rows;
        while left > 0 {
            let room = limits::GROUP_ROWS - self.seqs.len();
            let now = left.min(room);
            self.append(group, first, now)?;
            first += now;
            left -= now;
        }
        Ok(())
    }

    fn push_row(&mut self, group: &Arc<RowGroup>, row: usize) -> Result<()> {
        self.append(group, row, 1)
    }

    fn append(&mut self, group: &Arc<RowGroup>, first: usize, rows: usize) -> Result<()> {
        for (position, out) in self.columns.iter_mut().enumerate() {
            self.bytes += append_range(out, group.column(position)?, first, rows);
        }
        for row in first..first + rows {
            let seq = group.seq(row);
            self.seqs.push(if self.forgets(seq) { self.base_seq } else { seq });
            self.tombstones.push(group.is_tombstone(row));
        }
        if self.seqs.len() >= limits::GROUP_ROWS || self.bytes >= limits::GROUP_BYTES {
            self.end_group()?;
        }
        Ok(())
    }

    fn end_group(&mut self) -> Result<()> {
        if self.seqs.is_empty() {
            return Ok(());
        }
        let offsets: Vec<u64> = self.seqs.iter().map(|s| s - self.base_seq).collect();
        let seqs = offsets.iter().any(|&o| o != 0).then_some(offsets.as_slice());
        let tombstones = self.tombstones.contains(&true).then(|| {
            let mut bitmap = Bitmap::new(self.tombstones.len());
            self.tombstones.iter().enumerate().filter(|(_, t)| **t).for_each(|(i, _)| bitmap.set(i));
            bitmap
        });
        self.writer.push_group(&self.columns, seqs, tombstones.as_ref())?;
        self.begin_group();
        Ok(())
    }
}

/// Appends rows of one column to another of the same kind; returns the bytes of byte strings that were added.
fn append_range(out: &mut Column, from: &Column, first: usize, rows: usize) -> usize {
    let before = out.rows();
    let range = first..first + rows;
    let bytes = match (&mut out.values, &from.values) {
        (Values::Int(o), Values::Int(f)) => extend(o, &f[range.clone()], 0),
        (Values::F64(o), Values::F64(f)) => extend(o, &f[range.clone()], 0),
        (Values::F32(o), Values::F32(f)) => extend(o, &f[range.clone()], 0),
        (Values::Bytes(o), Values::Bytes(f)) => extend_bytes(o, f, range.clone()),
        _ => {
            debug_assert!(false, "columns of different kinds");
            0
        }
    };
    if let Some(nulls) = &mut out.nulls {
        range.for_each(|i| nulls.push(from.is_null(i)));
    } else if range.clone().any(|i| from.is_null(i)) {
        let mut nulls = Bitmap::new(before);
        range.for_each(|i| nulls.push(from.is_null(i)));
        out.nulls = Some(nulls);
    }
    bytes
}

fn extend<T: Copy>(out: &mut Vec<T>, from: &[T], bytes: usize) -> usize {
    out.extend_from_slice(from);
    bytes
}

fn extend_bytes(out: &mut BytesColumn, from: &BytesColumn, range: std::ops::Range<usize>) -> usize {
    let mut bytes = 0;
    for i in range {
        let value = from.get(i);
        bytes += value.len();
        out.push(value);
    }
    bytes
}
