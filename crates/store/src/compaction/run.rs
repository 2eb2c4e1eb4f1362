//! Does a merge: walks the chosen segments side by side and writes one.
//!
//! Only versions that some snapshot sees are kept. When the whole chunk is merged, rows that every snapshot sees lose
//! their sequence numbers (they cost nothing then) and tombstones that every snapshot sees are dropped. One
//! manifest edit swaps the old segments for the new ones: those of one merge, or of many small ones.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rrd_codec::{Bitmap, BytesColumn, Column, Effort, Values};

use crate::cursor::Direction;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::flush::is_needed;
use crate::fs::space::Room;
use crate::fs::{WriteFile, sync_all};
use crate::group::RowGroup;
use crate::horizon::Horizon;
use crate::limits;
use crate::live::LiveSegment;
use crate::manifest::edit::Edit;
use crate::merge::{Event, Merge};
use crate::row::RowLayout;
use crate::schema::Compression;
use crate::segment::{SegmentId, SegmentMeta, SegmentWriter};
use crate::source::{Input, Source};
use crate::table::Table;

use super::choose::Plan;

impl Engine {
    /// Runs merges of different chunks, which one manifest edit brings into effect; plans that are void by now are passed
    /// over. `progress(rows)` is told about rows read and returns false to stop: then none of them is done. The same if there
    /// is no room for their result: then it says how many bytes that has.
    pub(crate) fn run_merges(
        &self,
        table: &Table,
        plans: &[Plan],
        room: Option<&Arc<Room>>,
        progress: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Option<u64>> {
        self.pause_points.pass("a merge begins");
        let mut stop = || !progress(0) || self.gives_up(table);
        let _merging = table.maintenance.lock_for_merges(&mut stop)?;
        let alone = table.maintenance.lock_for_flush_unless(&mut stop)?;
        self.check_writable()?;
        let merges = self.merge_inputs(table, plans);
        if merges.is_empty() {
            return Ok(None);
        }
        let layout = table.layout();
        let inputs = || merges.iter().flat_map(|merge| &merge.inputs);
        let running = self.activity.begin("merge", table.name(), inputs().map(|s| s.meta().rows).sum());
        let mut progress = |rows: u64| {
            running.job.done.fetch_add(rows, Ordering::Relaxed);
            progress(rows) && !self.gives_up(table)
        };
        let snapshots = self.open_snapshots();
        let horizon = table.version().gate.at(self.oldest_reader());
        let (horizon, gone) = table.space_horizon(horizon, None, false);
        let seen = Seen { snapshots: &snapshots, horizon: horizon.as_ref() };
        // Commits would wait for a flush that waits for a merge. It brings what is newer than all that is merged here, so which
        // of them comes first is all the same; but not where bytes are counted, or where it computes buckets of rows that go now.
        let has_buckets = !table.tiers().is_empty() || table.is_tier();
        let alone = Some(alone).filter(|_| room.is_some() || (has_buckets && horizon.is_some()));
        let mut merged = Vec::with_capacity(merges.len());
        let written = self.write_all_merged(table, (&layout, room), &merges, &seen, &mut merged, &mut progress);
        let _alone = alone.unwrap_or_else(|| table.maintenance.lock_for_flush());
        if let Some(room) = room.filter(|room| written.is_ok() && room.is_over()) {
            self.remove_refused(table, &merged);
            return Ok(Some(room.wanted()));
        }
        let joins: Vec<&Plan> = merges.iter().map(|merge| merge.plan).filter(|plan| !plan.joins.is_empty()).collect();
        let written = written.and_then(|()| if joins.is_empty() { Ok(()) } else { self.sync_log_first() });
        // Nobody is to write rows for a chunk that is about to be another one.
        let mut chunks = (!joins.is_empty()).then(|| table.chunks.lock());
        let joined: Vec<_> = match &chunks {
            Some(chunks) => joins.iter().filter_map(|p| chunks.joined(p.chunk, *p.joins.last()?)).collect(),
            None => Vec::new(),
        };
        let is_in_the_way = || {
            let ids: BTreeSet<SegmentId> = inputs().map(|s| s.meta().id).collect();
            let replaced = joined.iter().flat_map(|(_, replaced)| replaced).map(|span| span.start);
            let replaced: BTreeSet<u64> = replaced.collect();
            let metas = table.version();
            let mut metas = metas.segments.values().map(|s| s.meta());
            metas.any(|m| replaced.contains(&m.chunk) && !ids.contains(&m.id))
        };
        // Somebody writes for one of them, or a flush has: it is looked at again.
        if written.is_ok() && chunks.as_ref().is_some_and(|chunks| chunks.are_kept() || is_in_the_way()) {
            self.remove_refused(table, &merged);
            return Ok(None);
        }
        let committed = written.and_then(|()| {
            let added = merged.iter().map(|meta| Edit::AddSegment { table: table.id, meta: meta.clone() });
            let removed = inputs().map(|s| Edit::RemoveSegment { table: table.id, segment: s.meta().id });
            // A chunk can only be taken away when it has no segments, and only then another be opened over it.
            let closed = joined.iter().flat_map(|(_, replaced)| replaced);
            let closed = closed.map(|span| Edit::RemoveChunk { table: table.id, start: span.start });
            let opened = joined.iter().map(|(span, _)| Edit::AddChunk { table: table.id, span: *span });
            let edits: Vec<Edit> =
                removed.chain(closed).chain(opened).chain(added).chain(table.gone_edits(&gone)).collect();
            let base = self.base_of_index(&table.schema());
            let of_horizon = base.as_deref().unwrap_or(table);
            self.fs.sync_dir(&table.dir).and_then(|()| self.commit_with_horizons(edits, &[of_horizon]))
        });
        if let Err(error) = committed {
            self.remove_refused(table, &merged);
            return Err(error);
        }
        if let Some(chunks) = &mut chunks {
            joined.iter().for_each(|(span, replaced)| chunks.replace(replaced, *span));
        }
        drop(chunks);
        self.activity.note_merges(merges.len() as u64, inputs().map(|s| s.meta().bytes).sum(), &merged);
        table.raise_gone(&gone);
        table.install(|v| {
            inputs().for_each(|segment| drop(v.segments.remove(segment.meta().id)));
            let open = |meta| LiveSegment::open(&self.fs, &self.cache, &table.dir, table.id, meta);
            v.segments.extend(merged.into_iter().map(open));
        });
        self.retire(merges.into_iter().flat_map(|merge| merge.inputs));
        self.remove_retired();
        Ok(None)
    }

    /// What is to be merged, but for plans that are void: their segments were merged or truncated meanwhile, or the chunk
    /// got more.
    fn merge_inputs<'a>(&self, table: &Table, plans: &'a [Plan]) -> Vec<Inputs<'a>> {
        let _turn = self.apply_turn.lock();
        let version = table.version();
        // Pins are set under the maintenance lock, of which the part for merges is held: the plans may be older than they are.
        let pinned = table.pinned_segments();
        let mut of_chunk: HashMap<u64, usize> = plans.iter().flat_map(Plan::chunks).map(|chunk| (chunk, 0)).collect();
        for segment in version.segments.values() {
            of_chunk.entry(segment.meta().chunk).and_modify(|count| *count += 1);
        }
        let dropped: BTreeSet<u64> = version.dropped.values().map(|(s, _)| s.meta().chunk).collect();
        let complete = self.complete_in_segments(table);
        let inputs_of = |plan: &'a Plan| {
            let inputs: Vec<_> = plan.segments.iter().filter_map(|id| version.segments.get(id).cloned()).collect();
            let is_there = inputs.len() == plan.segments.len() && !plan.segments.iter().any(|id| pinned.contains(id));
            let in_chunks: usize = plan.chunks().filter_map(|chunk| of_chunk.get(&chunk)).sum();
            let is_whole = in_chunks == inputs.len();
            // An old snapshot still sees rows that tombstones here hide from it.
            let is_dropped_from = plan.chunks().any(|chunk| dropped.contains(&chunk));
            let forgets = plan.whole_chunk && !is_dropped_from;
            let forget_until = if forgets { complete } else { 0 };
            let may_join = plan.joins.is_empty() || !is_dropped_from;
            (is_there && may_join && (is_whole || !plan.whole_chunk)).then_some(Inputs { plan, inputs, forget_until })
        };
        plans.iter().filter_map(inputs_of).collect()
    }

    /// Writes the segments of some merges and makes them durable, but for their names.
    fn write_all_merged(
        &self,
        table: &Table,
        (layout, room): (&Arc<RowLayout>, Option<&Arc<Room>>),
        merges: &[Inputs<'_>],
        seen: &Seen<'_>,
        merged: &mut Vec<SegmentMeta>,
        progress: &mut dyn FnMut(u64) -> bool,
    ) -> Result<()> {
        let mut files = Vec::new();
        for merge in merges {
            if let Some((meta, file)) = self.write_merged(table, (layout, room), merge, seen, progress)? {
                merged.push(meta);
                files.push(file);
            }
            if files.len() >= limits::FILES_SYNCED_TOGETHER {
                sync_all(&*self.fs, std::mem::take(&mut files))?;
            }
        }
        sync_all(&*self.fs, files)
    }

    /// The merged segment, its file not synced yet; none when no row is left.
    fn write_merged(
        &self,
        table: &Table,
        (layout, room): (&Arc<RowLayout>, Option<&Arc<Room>>),
        Inputs { plan, inputs, forget_until }: &Inputs<'_>,
        seen: &Seen<'_>,
        progress: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Option<(SegmentMeta, Box<dyn WriteFile>)>> {
        let effort = match (plan.whole_chunk, layout.schema().compression) {
            (true, Compression::Small) => Effort::Small,
            _ => Effort::Fast,
        };
        let base_seq = match plan.whole_chunk {
            true => 0,
            false => inputs.iter().map(|s| s.meta().base_seq).min().unwrap_or(0),
        };
        let forget_until = (*forget_until).min(seen.snapshots.first().copied().unwrap_or(0));
        let writer =
            SegmentWriter::create(&self.fs, &table.dir, self.take_segment_id(), table.id, layout.clone(), effort)?;
        let mut out = Output {
            layout,
            writer: writer.within(room.cloned()),
            group_rows: self.tuning.group_rows,
            base_seq,
            forget_until,
            columns: Vec::new(),
            seqs: Vec::new(),
            tombstones: Vec::new(),
            bytes: 0,
        };
        out.begin_group();
        let written = merge_into(&mut out, layout, inputs, seen, progress);
        let done = written.and_then(|()| out.end_group());
        match done {
            Err(error) => {
                if let Err(error) = out.writer.abandon() {
                    tracing::warn!(%error, "could not remove an unfinished segment");
                }
                Err(error)
            }
            Ok(()) if out.writer.rows() == 0 => out.writer.abandon().map(|()| None),
            Ok(()) => out.writer.finish_unsynced(plan.chunk, base_seq, plan.whole_chunk).map(Some),
        }
    }
}

/// What a merge reads.
struct Inputs<'a> {
    plan: &'a Plan,
    inputs: Vec<Arc<LiveSegment>>,
    /// Up to this sequence number they are all that there is of their chunk; 0 if they are only a part of it.
    forget_until: u64,
}

/// What somebody still sees.
struct Seen<'a> {
    snapshots: &'a [u64],
    horizon: Option<&'a Horizon>,
}

fn merge_into(
    out: &mut Output<'_>,
    layout: &Arc<RowLayout>,
    inputs: &[Arc<LiveSegment>],
    seen: &Seen<'_>,
    progress: &mut dyn FnMut(u64) -> bool,
) -> Result<()> {
    let gate = seen.horizon.zip(layout.places());
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
                    if is_needed(v.seq, newer, seen.snapshots) && !(v.is_tombstone() && out.forgets(v.seq)) {
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
    group_rows: usize,
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
            let room = self.group_rows - self.seqs.len();
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
        if self.seqs.len() >= self.group_rows || self.bytes >= limits::GROUP_BYTES {
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

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

    use super::*;
    use crate::fs::counted::Purpose;
    use crate::fs::sim::SimFs;
    use crate::{Config, OnDuplicate, Schema};

    /// (series, time), in chunks of 100.
    const SCHEMA: &str = r#"{"version": 1, "columns": [
        {"id": 0, "name": "series", "lane": {"int": {"width": 4}}, "nullable": false},
        {"id": 1, "name": "ts", "lane": {"int": {"width": 4}}, "nullable": false}],
        "key": [0, 1], "time": {"column": 1, "unit": "s"}, "chunk_length": 100}"#;

    const CHUNKS: u64 = 100;

    fn open(fs: &SimFs) -> Arc<Engine> {
        let mut config = Config::new("/rrd");
        config.background = false;
        config.tuning.chunk_least_rows = 0;
        Engine::open(config, Arc::new(fs.clone())).unwrap()
    }

    /// A table of two segments in each chunk.
    fn filled(fs: &SimFs) -> (Arc<Engine>, Arc<Table>) {
        let engine = open(fs);
        let schema: Schema = serde_json::from_str(SCHEMA).unwrap();
        engine.create_table("db/t", schema).unwrap();
        let table = engine.table("db/t").unwrap();
        let layout = table.layout();
        for series in 0..2 {
            let mut txn = engine.begin();
            for chunk in 0..CHUNKS {
                let mut row = Vec::new();
                let mut writer = layout.writer(&mut row);
                writer.set_int(0, series);
                writer.set_int(1, chunk * 100 + series);
                writer.finish();
                txn.insert(&table, &row, OnDuplicate::Fail).unwrap();
            }
            txn.commit().unwrap();
            engine.flush_table(&table).unwrap();
        }
        (engine, table)
    }

    fn count(engine: &Arc<Engine>, table: &Arc<Table>) -> u64 {
        let mut cursor = engine.begin().cursor(table).unwrap();
        cursor.seek(None, true, Direction::Forward).unwrap();
        std::iter::from_fn(|| cursor.next_span(1000).unwrap()).map(|span| u64::from(span.rows)).sum()
    }

    fn segment_files(fs: &SimFs) -> usize {
        fs.files().iter().filter(|path| path.extension().is_some_and(|ending| ending == "rrds")).count()
    }

    #[test]
    fn small_merges_share_an_edit_and_the_sync_of_the_folder() {
        let fs = SimFs::new();
        let (engine, table) = filled(&fs);
        let syncs = || {
            let io = &engine.activity.io;
            (io.of(Purpose::Manifest).syncs.load(Ordering::Relaxed), io.folder_syncs.load(Ordering::Relaxed))
        };
        let before = syncs();
        engine.optimize_table(&table, &mut |_, _| true).unwrap();
        assert_eq!(syncs(), (before.0 + 1, before.1 + 1));
        assert_eq!(engine.activity.merges.load(Ordering::Relaxed), CHUNKS);
        assert_eq!((table.stats().segments, segment_files(&fs) as u64), (CHUNKS, CHUNKS));
        assert_eq!(count(&engine, &table), 2 * CHUNKS);
        drop((table, engine));
        let engine = open(&fs.power_cut(1));
        let table = engine.table("db/t").unwrap();
        assert_eq!((table.stats().segments, count(&engine, &table)), (CHUNKS, 2 * CHUNKS));
    }

    /// A ring that was written to as fast as it took rows stood still for half of the time: a flush waited for a merge, and the
    /// commits for the flush.
    #[test]
    fn a_flush_does_not_wait_for_a_merge_and_what_it_brings_stays() {
        let fs = SimFs::new();
        let (engine, table) = filled(&fs);
        let key = |series: u64, time: u64| [&(series as u32).to_be_bytes()[..], &(time as u32).to_be_bytes()].concat();
        let insert = |txn: &mut crate::Txn, series: u64, time: u64| {
            let (layout, mut row) = (table.layout(), Vec::new());
            let mut writer = layout.writer(&mut row);
            writer.set_int(0, series);
            writer.set_int(1, time);
            writer.finish();
            txn.insert(&table, &row, OnDuplicate::Fail).unwrap();
        };
        // What is merged has a tombstone, which the merge of a whole chunk forgets.
        let mut txn = engine.begin();
        txn.delete(&table, &key(0, 0)).unwrap();
        txn.commit().unwrap();
        engine.flush_table(&table).unwrap();
        let mut is_flushed = false;
        let flush_beside = |engine: &Arc<Engine>, table: &Arc<Table>| {
            let mut txn = engine.begin();
            insert(&mut txn, 0, 0);
            insert(&mut txn, 2, 150);
            txn.delete(table, &key(1, 101)).unwrap();
            txn.commit().unwrap();
            let (done, is_done) = std::sync::mpsc::channel();
            let (engine, table) = (engine.clone(), table.clone());
            std::thread::spawn(move || done.send(engine.flush_table(&table).is_ok()));
            is_done.recv_timeout(std::time::Duration::from_secs(60))
        };
        let plans = engine.chosen_merges(&table, &table.version(), &BTreeSet::new(), (true, false));
        let merged = engine.run_merges(&table, &plans, None, &mut |_| {
            if !std::mem::replace(&mut is_flushed, true) {
                assert_eq!(flush_beside(&engine, &table), Ok(true), "the flush waits for the merge");
            }
            true
        });
        assert!(merged.unwrap().is_none() && is_flushed);
        assert_eq!(count(&engine, &table), 2 * CHUNKS);
        let find =
            |table: &Arc<Table>, key: &[u8]| table.find(key, 0).unwrap().is_some_and(|found| found.row.is_some());
        let is_right = |table: &Arc<Table>| {
            find(table, &key(0, 0))
                && find(table, &key(2, 150))
                && !find(table, &key(1, 101))
                && find(table, &key(1, 1))
        };
        assert!(is_right(&table));
        engine.optimize_table(&table, &mut |_, _| true).unwrap();
        assert_eq!((table.stats().segments, count(&engine, &table)), (CHUNKS, 2 * CHUNKS));
        drop((table, engine));
        let engine = open(&fs.power_cut(1));
        let table = engine.table("db/t").unwrap();
        assert!(is_right(&table));
        assert_eq!((table.stats().segments, count(&engine, &table)), (CHUNKS, 2 * CHUNKS));
    }

    /// A merge of a large chunk takes minutes; statements that waited for it could not be killed.
    #[test]
    fn statements_that_wait_for_a_merge_hear_kill() {
        let fs = SimFs::new();
        let (engine, table) = filled(&fs);
        let plans = engine.chosen_merges(&table, &table.version(), &BTreeSet::new(), (true, false));
        let mut killed = Vec::new();
        let merged = engine.run_merges(&table, &plans, None, &mut |_| {
            if killed.is_empty() {
                let mut txn = engine.begin();
                txn.set_interrupted(Box::new(|| true));
                let change = crate::alter::Alteration {
                    table: table.clone(),
                    schema: Schema::clone(&table.schema()),
                    definition: Vec::new(),
                    built: Vec::new(),
                    tiers: None,
                };
                let is_killed = |result: Result<()>| matches!(result, Err(Error::Interrupted));
                killed.push(("DELETE", is_killed(txn.delete_times(&table, None).map(|_| ()))));
                killed.push(("ALTER", is_killed(engine.alter_tables_unless(vec![change], &mut || true))));
                killed.push(("OPTIMIZE", is_killed(engine.optimize_table(&table, &mut |_, _| false))));
                killed.push(("REPAIR", is_killed(engine.repair_table(&table, &mut |_, _| false).map(|_| ()))));
            }
            true
        });
        assert!(merged.unwrap().is_none());
        assert_eq!(killed, ["DELETE", "ALTER", "OPTIMIZE", "REPAIR"].map(|statement| (statement, true)));
        assert_eq!((table.stats().segments, count(&engine, &table)), (CHUNKS, 2 * CHUNKS));
    }

    /// The same in a ring of bytes, where flushes and merges take turns.
    #[test]
    fn a_statement_that_waits_for_its_turn_in_a_ring_hears_kill() {
        let fs = SimFs::new();
        let (engine, table) = filled(&fs);
        let mut schema = Schema::clone(&table.schema());
        schema.ring.max_bytes = Some(1 << 30);
        let definition = Vec::new();
        let change =
            crate::alter::Alteration { table: table.clone(), schema, definition, built: Vec::new(), tiers: None };
        engine.alter_tables(vec![change]).unwrap();
        let space = engine.space_of_ring(&table).unwrap().unwrap();
        let turn = space.take_turn(&mut || false).unwrap();
        let stopped = engine.optimize_table(&table, &mut |_, _| false);
        assert!(matches!(stopped, Err(Error::Interrupted)));
        drop(turn);
        engine.optimize_table(&table, &mut |_, _| true).unwrap();
        assert_eq!(table.stats().segments, CHUNKS);
    }

    #[test]
    fn a_stop_among_small_merges_leaves_everything_as_it_was() {
        let fs = SimFs::new();
        let (engine, table) = filled(&fs);
        let stopped = engine.optimize_table(&table, &mut |done, _| done < CHUNKS);
        assert!(matches!(stopped, Err(Error::Interrupted)));
        assert_eq!((table.stats().segments, segment_files(&fs) as u64), (2 * CHUNKS, 2 * CHUNKS));
        assert_eq!(count(&engine, &table), 2 * CHUNKS);
    }
}
