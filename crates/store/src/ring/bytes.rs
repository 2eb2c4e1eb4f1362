//! MAX_BYTES: room for what is about to be written, before it is written.
//!
//! What the folders of a ring hold is counted by their `Space` (fs/space.rs), which also sees to it that nobody writes more
//! than there is room for. Here is said how much room something will need, in all likelihood, and what goes to make it: first
//! what merges give back, then buckets of tiers that have more than their share, then the oldest rows. What turns out larger
//! is given up and written again once there is room for it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::bulk::Written;
use crate::compaction::choose::Plan;
use crate::cursor::Cursor;
use crate::cursor::Direction;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::fs::space::{Room, Space};
use crate::horizon::Position;
use crate::limits;
use crate::live::LiveSegment;
use crate::manifest::edit::TableId;
use crate::memtable::{Key, Memtable};
use crate::own::PrivateSegment;
use crate::row::RowLayout;
use crate::segment::SegmentId;
use crate::snapshot::Snapshot;
use crate::table::Table;
use crate::time::TimeLane;
use crate::version::Version;
use crate::write_out::OutRows;

use super::rows::count_rows;

/// By how much the bytes of rows that are not encoded yet are overestimated.
const ESTIMATE_MARGIN: f64 = 1.3;

/// The same of what a flush writes, when it is known what the last ones took.
const FLUSH_MARGIN: f64 = 1.1;

/// Rows that a bucket of a tier is made of, at least in the mean.
const SMALLEST_BUCKET_ROWS: f64 = 4.0;

/// Rows of a segment that tells what a row takes.
const FRESH_ROWS: u64 = 256;

/// Bytes of a small segment beside its rows.
const SEGMENT_OVERHEAD: u64 = 4096;

/// The share of `MAX_BYTES` that one flush or bulk statement may fill.
const RING_SHARE: f64 = 0.9;

/// The share of `MAX_BYTES` that tiers may take; beyond that their oldest buckets go before rows do. Buckets that are kept for
/// ever would leave no room for rows else.
const TIER_SHARE: f64 = 0.5;

/// A memtable of a ring of bytes is flushed when its rows will take this part of the ring.
const PORTIONS_OF_RING: f64 = 32.0;

/// The share of `MAX_BYTES` that the flush writes for which a memtable does not wait for more rows: with the buckets of
/// tiers it is several times what the rows take. That much of the ring is empty before each flush.
const FLUSH_SHARE: f64 = 1.0 / 12.0;

/// But this part of a portion a memtable has at least: small files of tiers may take that much with any number of rows.
const LEAST_PORTION: f64 = 0.25;

/// The share of `MAX_BYTES` that may wait for a merge. When it is more, and rows would have to go, they are merged first: small
/// segments take several times what the merged one does.
const LAG_SHARE: f64 = 0.125;

/// How often something is written that turns out to take more than there is room for. Each time it is known better how much
/// that is; what does not fit then does not because a snapshot sees it, or because only a merge frees bytes.
pub(crate) const WRITE_TRIES: u32 = 8;

/// The same of merges. One that is given up is tried again later.
const MERGE_TRIES: u32 = 2;

/// Of what a merge of a tier reads beside the largest file, one in so many buckets is not in that one, in all likelihood.
const NEW_IN_FILES_OF_TIER: u64 = 4;

/// How long whoever makes room waits for those who read files that are to go. Longer queries keep them, beside the ring.
const READERS_WAIT: Duration = Duration::from_secs(2);

/// The same once somebody has read for longer than that: the others read shortly, if they do.
const READERS_WAIT_AGAIN: Duration = Duration::from_millis(100);

/// How often it is looked whether they are done.
const READERS_TICK: Duration = Duration::from_millis(1);

/// By how much the bytes of what is built from rows, or in their place, are overestimated once they were counted: of fewer rows
/// they are not quite as much fewer.
const BUILD_MARGIN: f64 = 1.05;

/// The share of `MAX_BYTES` of the largest merge in what only merges make smaller, and what is kept free for one.
const TRIM_SHARE: f64 = 1.0 / 16.0;

/// How often the horizon of such a table moves for what is about to be written: it moves by that share.
const TRIM_MOVES: u32 = 16;

/// A ring of bytes.
pub(super) struct RingOfBytes {
    pub base: Arc<Table>,
    pub space: Arc<Space>,
    pub max_bytes: u64,
}

impl Engine {
    /// Bytes on disk that a row takes, as far as the table can tell.
    pub(crate) fn disk_bytes_per_row(&self, table: &Table) -> f64 {
        let version = table.version();
        let metas = version.segments.values().map(|s| s.meta());
        let (stored, bytes) = metas.fold((0, 0), |(rows, bytes), m| (rows + m.rows, bytes + m.bytes));
        if stored >= 1000 {
            return bytes as f64 / stored as f64;
        }
        let layout = table.layout();
        layout.schema().columns.iter().map(|c| c.lane.fixed_width() as f64).sum()
    }

    /// The most bytes that a row takes which is written now, in all likelihood: what is not sealed yet is larger than the
    /// mean, small segments more so.
    pub(super) fn fresh_bytes_per_row(&self, table: &Table) -> f64 {
        let version = table.version();
        let fresh = version.segments.values().map(|s| s.meta()).filter(|m| !m.sealed && m.rows >= FRESH_ROWS);
        let largest = fresh.map(|m| m.bytes as f64 / m.rows as f64).fold(0.0, f64::max);
        self.disk_bytes_per_row(table).max(largest) * ESTIMATE_MARGIN
    }

    /// Whether a table is, or belongs to, a ring of bytes.
    pub(crate) fn is_in_ring_of_bytes(&self, table: &Table) -> bool {
        self.ring_of(table, &table.schema()).is_some_and(|ring| ring.max_bytes.is_some())
    }

    /// The ring of bytes that a table belongs to: its table, its space and its limit.
    pub(super) fn ring_of_bytes(&self, table: &Arc<Table>) -> Result<Option<RingOfBytes>> {
        let base = match table.schema().part_of() {
            None => table.clone(),
            Some(id) => match self.table_by_id(TableId(id)) {
                Some(base) => base,
                None => return Ok(None),
            },
        };
        let Some(max_bytes) = base.schema().ring.max_bytes else { return Ok(None) };
        let spaces = &self.activity.io.spaces;
        let space = {
            let _one = self.workers.stand_aside(|| base.making_room.lock());
            let space = spaces.of(&base.dir).unwrap_or_default();
            // A tier or index that is built is not a part yet.
            for part in base.with_parts().iter().chain([table]) {
                spaces.join(&part.dir, &space, || self.fs.list(&part.dir))?;
            }
            space
        };
        space.set_limit(max_bytes);
        Ok(Some(RingOfBytes { base, space, max_bytes }))
    }

    /// The space of the ring of bytes that a table belongs to, for whoever takes a turn in it.
    pub(crate) fn space_of_ring(&self, table: &Arc<Table>) -> Result<Option<Arc<Space>>> {
        match self.is_in_ring_of_bytes(table) {
            true => Ok(self.ring_of_bytes(table)?.map(|ring| ring.space)),
            false => Ok(None),
        }
    }

    /// Before `incoming` bytes are written for a table: moves the horizon and drops chunks until they fit into
    /// `MAX_BYTES`, and a little more. Not with a maintenance lock held.
    pub(crate) fn make_room(&self, table: &Arc<Table>, incoming: u64) -> Result<Option<Arc<Room>>> {
        let Some(RingOfBytes { base, space, max_bytes }) = self.ring_of_bytes(table)? else { return Ok(None) };
        let _one = self.workers.stand_aside(|| base.making_room.lock());
        self.let_go(&base, &space);
        let excess = space.excess(incoming);
        if excess > 0 {
            let tiers: Vec<_> = base.tiers().iter().map(|tier| tier.table.clone()).collect();
            self.make_room_in_tiers(&base, &tiers, tier_share(max_bytes), excess, u64::MAX)?;
            self.let_go(&base, &space);
        }
        let excess = space.excess(incoming);
        let is_held = self.make_room_by_merges(&base, &space, incoming)?;
        if excess > 0 && base.schema().time.is_some() {
            self.push_horizon(&base, &base, || self.position_that_frees(&base, excess))?;
        }
        self.wait_for_readers(&base, &space, incoming);
        let room = space.reserve(incoming);
        if room.left() < incoming {
            let left = room.left();
            tracing::debug!(
                table = base.name(),
                left,
                incoming,
                max_bytes,
                "MAX_BYTES leaves no room for what is written"
            );
        }
        if is_held {
            room.lift();
        }
        Ok(Some(Arc::new(room)))
    }

    /// The most bytes that may be merged at once in a ring of bytes without a time: what is behind the horizon goes with merges
    /// only, for which there has to be room beside what they read.
    pub(crate) fn largest_merge(&self, table: &Table) -> Option<u64> {
        let schema = table.schema();
        let base = schema.part_of().filter(|id| *id != table.id.0).and_then(|id| self.table_by_id(TableId(id)));
        let schema = base.map_or(schema, |base| base.schema());
        let max_bytes = schema.ring.max_bytes.filter(|_| schema.time.is_none())?;
        Some((max_bytes as f64 * TRIM_SHARE) as u64)
    }

    /// Makes room in a ring without a time, whose segments need not end where the horizon is: those with rows behind the
    /// horizon are written anew without them, one after the other, and when there are none left the horizon moves. Returns
    /// whether an open snapshot needs what would have to go.
    fn make_room_by_merges(&self, base: &Arc<Table>, space: &Arc<Space>, incoming: u64) -> Result<bool> {
        let Some(most) = self.largest_merge(base) else { return Ok(false) };
        let mut moves = 0;
        loop {
            self.let_go(base, space);
            let excess = space.excess(incoming + most);
            if excess == 0 {
                return Ok(false);
            }
            let gate = base.version().gate.clone();
            let seen = gate.at(self.oldest_reader()).map(|horizon| horizon.position).unwrap_or_default();
            if seen != gate.position() {
                // A merge would have to keep what is behind the horizon.
                let reader = self.snapshots.oldest_reader();
                if reader.is_some_and(|(_, since)| since.elapsed() >= READERS_WAIT) || !self.workers.is_background() {
                    return Ok(true);
                }
                self.workers.stand_aside(|| std::thread::sleep(READERS_TICK));
                continue;
            }
            if let Some((part, segment)) = self.next_to_trim(base) {
                self.trim(base, &part, &segment, space)?;
                continue;
            }
            moves += 1;
            if moves > TRIM_MOVES {
                return Ok(false);
            }
            // A little more than needed: each segment may have to be written anew.
            let share = excess.max(most) as f64 / linked_bytes(base).max(1) as f64;
            if !self.push_horizon(base, base, || position_of_share(&base.version(), &base.layout(), share))? {
                return Ok(false);
            }
        }
    }

    /// A segment of a ring that may have rows behind the horizon, and goes with a merge only.
    fn next_to_trim(&self, base: &Arc<Table>) -> Option<(Arc<Table>, Arc<LiveSegment>)> {
        let position = base.version().gate.position();
        base.with_parts().into_iter().find_map(|part| {
            let mut state = part.ring.lock();
            if state.trimmed.0.as_ref() != Some(&position) {
                state.trimmed = (Some(position.clone()), BTreeSet::new());
            }
            let is_before = |segment: &LiveSegment| !part.is_same(base) || *segment.meta().first_key < *position.key;
            let version = part.version();
            let mut segments = version.segments.values().filter(|s| !state.trimmed.1.contains(&s.meta().id));
            segments.find(|segment| is_before(segment)).map(|segment| (part.clone(), segment.clone()))
        })
    }

    /// Writes a segment anew without what is behind the horizon, if there is room for it.
    fn trim(&self, base: &Arc<Table>, part: &Arc<Table>, segment: &Arc<LiveSegment>, space: &Arc<Space>) -> Result<()> {
        let meta = segment.meta();
        let plan = Plan { chunk: meta.chunk, segments: vec![meta.id], whole_chunk: false, joins: Vec::new() };
        self.wait_for_readers(base, space, meta.bytes);
        let room = Arc::new(space.reserve(meta.bytes));
        let before: BTreeSet<SegmentId> = part.version().segments.keys().copied().collect();
        self.run_merges(part, &[plan], Some(&room), &mut |_| true)?;
        let version = part.version();
        let new = version.segments.keys().copied().filter(|id| !before.contains(id));
        part.ring.lock().trimmed.1.extend(new.chain([meta.id]));
        Ok(())
    }

    /// Removes files of a ring that nobody needs, and counts those apart that only readers do.
    pub(super) fn let_go(&self, base: &Arc<Table>, space: &Space) -> bool {
        base.with_parts().iter().for_each(|part| self.forget_dropped(part));
        self.remove_retired();
        let (held, are_fresh) = self.held_files(base);
        space.set_held(held.iter().map(|(path, _)| path.as_path()));
        are_fresh
    }

    /// After chunks were dropped: a moment for those who read their files, or those of merged segments, so that these are
    /// gone before new bytes come. Whoever reads for longer cannot be waited for.
    fn wait_for_readers(&self, base: &Arc<Table>, space: &Space, incoming: u64) {
        let since = Instant::now();
        while self.let_go(base, space)
            && space.is_passed_with_held(incoming)
            && since.elapsed() < READERS_WAIT
            && self.workers.is_background()
        {
            self.workers.stand_aside(|| std::thread::sleep(READERS_TICK));
        }
    }

    /// The files of a ring that are there for readers only, with their bytes; and whether some are so since a moment only.
    fn held_files(&self, base: &Arc<Table>) -> (Vec<(PathBuf, u64)>, bool) {
        let parts = base.with_parts();
        let mut files = Vec::new();
        for part in &parts {
            let version = part.version();
            files.extend(version.dropped.values().map(|(s, _)| (s.path().to_path_buf(), s.meta().bytes)));
        }
        let oldest = self.snapshots.oldest_reader();
        let is_long = oldest.is_some_and(|(_, since)| since.elapsed() >= READERS_WAIT);
        let wait = if is_long { READERS_WAIT_AGAIN } else { READERS_WAIT };
        let mut are_fresh = !files.is_empty() && !is_long;
        for (segment, since) in self.retired.lock().iter() {
            if parts.iter().any(|part| segment.path().parent() == Some(&part.dir)) {
                files.push((segment.path().to_path_buf(), segment.meta().bytes));
                are_fresh |= since.elapsed() < wait;
            }
        }
        (files, are_fresh)
    }

    /// Bytes of the files of a table, its indexes and tiers that are there for readers only: they were merged, or are behind
    /// the horizon, and an open snapshot or a query under way still needs them. `MAX_BYTES` does not count them.
    pub fn held_bytes(&self, table: &Arc<Table>) -> u64 {
        self.held_files(table).0.iter().map(|(_, bytes)| bytes).sum()
    }

    /// Before rows are to go for `incoming` bytes: merges what waits for it, if that is much, and so gives back space.
    fn catch_up_with_merges(&self, table: &Arc<Table>, incoming: u64) -> Result<()> {
        let Some(RingOfBytes { base, space, max_bytes }) = self.ring_of_bytes(table)? else { return Ok(()) };
        if space.excess(incoming) == 0 {
            return Ok(());
        }
        let mut due = Vec::new();
        for part in base.with_parts() {
            let version = part.version();
            let plans = self.chosen_merges(&part, &version, &part.pinned_chunks(), (false, true));
            due.extend(plans.into_iter().map(|plan| (plan.bytes_in(&version), part.clone(), plan)));
        }
        let bytes: u64 = due.iter().map(|(bytes, ..)| bytes).sum();
        if (bytes as f64) < max_bytes as f64 * LAG_SHARE {
            return Ok(());
        }
        match due.into_iter().max_by_key(|(bytes, ..)| *bytes) {
            Some((_, part, plan)) => self.merge_within_room(&part, &[plan], &mut |_| true).map(|_| ()),
            None => Ok(()),
        }
    }

    /// Lets go the oldest buckets of tiers that have more than `share` bytes, until `bytes` are free; none that begins at
    /// `until` or later, and never the newest of a tier: many segments may have it, each flush writes it anew, and the merge that
    /// makes one of them frees more than its end would.
    pub(super) fn make_room_in_tiers(
        &self,
        base: &Arc<Table>,
        tiers: &[Arc<Table>],
        share: u64,
        bytes: u64,
        until: u64,
    ) -> Result<()> {
        let taken = || tiers.iter().map(|tier| segment_bytes(tier)).sum::<u64>();
        let end = taken().saturating_sub(bytes).max(share);
        let mut left = tiers.to_vec();
        while taken() > end
            && let Some(largest) = left.iter().max_by_key(|tier| segment_bytes(tier)).cloned()
        {
            let before = segment_bytes(&largest);
            self.push_horizon(base, &largest, || {
                let Some(mut to) = self.position_that_frees(&largest, taken() - end)? else { return Ok(None) };
                to.time = to.time.min(until).min(newest_time(&largest));
                largest.pushed_until.fetch_max(to.time, Ordering::Relaxed);
                Ok(Some(to))
            })?;
            if segment_bytes(&largest) == before {
                left.retain(|tier| !tier.is_same(&largest));
            }
        }
        Ok(())
    }

    /// Before a memtable of a table is written; `takes` are the bytes that it took, if that was tried and was too much.
    pub(crate) fn make_room_for_flush(
        &self,
        table: &Arc<Table>,
        frozen: &Memtable,
        takes: Option<u64>,
    ) -> Result<Option<Arc<Room>>> {
        let layout = table.layout();
        let Some(max_bytes) = self.ring_of(table, layout.schema()).and_then(|ring| ring.max_bytes) else {
            return Ok(None);
        };
        if takes.is_some() && frozen.touched().is_some_and(|touched| touched.builds().next().is_some()) {
            return self.make_room_beside_rows(table, takes);
        }
        let horizon = table.version().gate.position().time;
        let mut rows = frozen.len();
        if takes.is_some() {
            rows = 0;
            frozen.times(&mut |time| rows += usize::from(time >= horizon));
        }
        let bytes = takes.unwrap_or_else(|| self.flush_bytes(table, rows as u64));
        let row_bytes = (bytes as f64 / rows.max(1) as f64).max(f64::MIN_POSITIVE);
        let fitting = (max_bytes as f64 * RING_SHARE / row_bytes) as usize;
        // As with bulk statements, no row goes for a guess.
        let is_too_much = takes.is_some() && rows > fitting;
        if is_too_much && layout.schema().index_of.is_none() && TimeLane::of(layout.schema()).is_some() {
            // More than the whole ring: what is oldest is never written.
            let mut times = Vec::with_capacity(rows);
            frozen.times(&mut |time| times.extend(Some(time).filter(|time| *time >= horizon)));
            let place = times.len().saturating_sub(fitting.max(1));
            if let Some((_, &mut time, _)) = times.get_mut(place).is_some().then(|| times.select_nth_unstable(place)) {
                self.push_horizon(table, table, || Ok(Some(Position { time, key: Key::new() })))?;
            }
        }
        let incoming = (rows.min(fitting) as f64 * row_bytes) as u64 + SEGMENT_OVERHEAD;
        self.catch_up_with_merges(table, incoming)?;
        self.make_room(table, incoming)
    }

    /// The bytes that a flush of so many rows writes, in all likelihood.
    fn flush_bytes(&self, table: &Table, rows: u64) -> u64 {
        let Some((last_rows, last_bytes, most)) = *table.last_flush.lock() else {
            // The buckets of its rows are written too; a bucket has a few rows at least.
            let tiers = table.tiers();
            let buckets = tiers.iter().map(|t| self.fresh_bytes_per_row(&t.table) / SMALLEST_BUCKET_ROWS);
            return (rows as f64 * (self.fresh_bytes_per_row(table) + buckets.sum::<f64>())) as u64;
        };
        if table.tiers().is_empty() {
            return (rows as f64 * most * FLUSH_MARGIN) as u64;
        }
        // Much of it are the files of tiers, each with few buckets, that are no larger with more rows. What it is too little is
        // known after a try; what is too much would cost rows that are there.
        let part = rows as f64 / last_rows.max(1) as f64;
        let more = rows.saturating_sub(last_rows) as f64 * self.disk_bytes_per_row(table) * ESTIMATE_MARGIN;
        (last_bytes as f64 * part.min(1.0) * FLUSH_MARGIN + more) as u64
    }

    /// What a flush wrote, that of a memtable of so many rows: the next one will be about the same.
    pub(crate) fn note_flushed(&self, table: &Table, rows: usize, bytes: u64) {
        if (rows as u64) < FRESH_ROWS {
            return;
        }
        let mut last = table.last_flush.lock();
        let (now, before) = (bytes as f64 / rows as f64, last.map_or(0.0, |(.., most)| most));
        // The largest of late: it forgets slowly.
        *last = Some((rows as u64, bytes, now.max(0.9 * before + 0.1 * now)));
    }

    /// Runs merges, for whose result there must be room while their inputs are still there. False if there is none.
    pub(crate) fn run_merges_in_ring(
        &self,
        table: &Table,
        plans: &[Plan],
        progress: &mut dyn FnMut(u64) -> bool,
    ) -> Result<bool> {
        let ring = self.table_by_id(table.id).map_or(Ok(None), |table| self.space_of_ring(&table))?;
        let _turn = ring.as_ref().map(|space| space.take_turn(&mut || !progress(0))).transpose()?;
        self.merge_within_room(table, plans, progress)
    }

    /// The same for a flush that has the turn, and for whoever takes none.
    fn merge_within_room(&self, table: &Table, plans: &[Plan], progress: &mut dyn FnMut(u64) -> bool) -> Result<bool> {
        let mut takes = None;
        for _ in 0..MERGE_TRIES {
            let room = self.make_room_for_merges(table, plans, takes)?;
            takes = self.run_merges(table, plans, room.as_ref(), progress)?;
            if takes.is_none() {
                return Ok(true);
            }
        }
        tracing::debug!(table = table.name(), takes, "MAX_BYTES leaves no room for a merge");
        Ok(false)
    }

    fn make_room_for_merges(&self, table: &Table, plans: &[Plan], takes: Option<u64>) -> Result<Option<Arc<Room>>> {
        if !self.is_in_ring_of_bytes(table) {
            return Ok(None);
        }
        let version = table.version();
        // Mostly the files of a tier have the same buckets, as each flush left them.
        let is_tier = table.schema().tier_of.is_some();
        let guess = |plan: &Plan| match (plan.bytes_in(&version), plan.largest_in(&version)) {
            (all, largest) if is_tier => largest + (all - largest) / NEW_IN_FILES_OF_TIER,
            (all, _) => all,
        };
        let bytes = takes.unwrap_or_else(|| plans.iter().map(guess).sum());
        // It would be a reader of what may have to go.
        drop(version);
        self.table_by_id(table.id).map_or(Ok(None), |table| self.make_room(&table, bytes))
    }

    /// Before something is written whose bytes become fewer when rows go; `takes` are those that it had, if that was tried and
    /// was too much.
    pub(crate) fn make_room_beside_rows(&self, table: &Arc<Table>, takes: Option<u64>) -> Result<Option<Arc<Room>>> {
        let Some(RingOfBytes { base, space, .. }) = self.ring_of_bytes(table)? else { return Ok(None) };
        self.let_go(&base, &space);
        let rows = segment_bytes(&base) + base.indexes().iter().map(|index| segment_bytes(&index.table)).sum::<u64>();
        let wanted = takes.map(|takes| fitting_beside_rows(with_margin(takes), rows, space.free()));
        self.make_room(table, wanted.unwrap_or(0))
    }

    /// Before rows of a large transaction are written; `takes` are the bytes that they took, if that was tried.
    pub(crate) fn make_room_for_rows(
        &self,
        table: &Arc<Table>,
        rows: usize,
        takes: Option<u64>,
    ) -> Result<Option<Arc<Room>>> {
        let estimate = || (rows as f64 * self.fresh_bytes_per_row(table)) as u64;
        match self.is_in_ring_of_bytes(table) {
            true => self.make_room(table, takes.unwrap_or_else(estimate) + SEGMENT_OVERHEAD),
            false => Ok(None),
        }
    }

    /// Before rows of a bulk statement, or entries of them in `part`, are written; `row_bytes` is what one takes, if that was
    /// tried. When the statement's own segments fill the ring, the oldest of them go, and so do the oldest rows of a run that
    /// is larger than the ring.
    pub(crate) fn make_room_for_bulk(
        &self,
        table: &Arc<Table>,
        (part, layout): (&Arc<Table>, &Arc<RowLayout>),
        rows: &mut OutRows<'_>,
        row_bytes: Option<f64>,
        written: &mut Written,
    ) -> Result<Option<Arc<Room>>> {
        if table.schema().part_of().is_some() {
            return self.room_for_new_index(table, rows.len() as u64, row_bytes, written);
        }
        let Some(max_bytes) = table.schema().ring.max_bytes else { return Ok(None) };
        let fitting = (max_bytes as f64 * RING_SHARE) as u64;
        if layout.schema().time.is_some() {
            // What was not tried may take much less than it is thought to: no row goes for a guess.
            if let Some(fitting) = row_bytes.map(|row_bytes| (fitting as f64 / row_bytes) as usize)
                && rows.len() > fitting
            {
                written.passed = written.passed.max(rows.time_of_newest(layout, fitting));
            }
            if let Some(left) = written.passed.and_then(|time| rows.since(layout, time)) {
                if part.is_same(table) {
                    written.left_out += (rows.len() - left.len()) as u64;
                }
                *rows = left;
            }
        }
        let estimate = || written.row_bytes(table, part).unwrap_or_else(|| self.fresh_bytes_per_row(part));
        let row_bytes = row_bytes.unwrap_or_else(estimate);
        let run = ((rows.len() as f64 * row_bytes) as u64).min(fitting) + SEGMENT_OVERHEAD;
        while written.bytes() + run > fitting
            && table.schema().time.is_some()
            && let Some(end) = written.rows.iter().map(|p| p.segment.meta().max_time).min()
        {
            let leave = |segments: &mut Vec<PrivateSegment>| segments.retain(|p| p.segment.meta().max_time > end);
            let rows_of = |segments: &[PrivateSegment]| segments.iter().map(|p| p.segment.meta().rows).sum::<u64>();
            let before = rows_of(&written.rows);
            leave(&mut written.rows);
            written.left_out += before - rows_of(&written.rows);
            for (index, entries) in table.indexes().iter().zip(&mut written.entries) {
                if index.table.schema().time.is_some() {
                    leave(entries);
                }
            }
            written.passed = written.passed.max(end.checked_add(1));
        }
        self.catch_up_with_merges(table, run)?;
        self.make_room(table, run)
    }

    /// Before entries of an index that is built are written: what is free. More is not made, nor is whoever makes room waited for,
    /// while the rows are read that might have to go: see [`Engine::build_index`].
    fn room_for_new_index(
        &self,
        entries: &Arc<Table>,
        rows: u64,
        row_bytes: Option<f64>,
        written: &Written,
    ) -> Result<Option<Arc<Room>>> {
        if let Some(row_bytes) = row_bytes {
            let before: u64 = written.rows.iter().map(|p| p.segment.meta().rows).sum();
            let bytes = written.bytes() + (rows as f64 * row_bytes) as u64;
            return Err(Error::NoRoom { rows: before + rows, bytes });
        }
        Ok(self.activity.io.spaces.of(&entries.dir).map(|space| Arc::new(space.reserve(0))))
    }

    /// After a commit: a ring of bytes takes its rows in small portions.
    pub(crate) fn flush_rings_early<'a>(&self, tables: impl Iterator<Item = &'a Arc<Table>>) {
        for table in tables {
            let Some(max_bytes) = self.ring_of(table, &table.schema()).and_then(|ring| ring.max_bytes) else {
                continue;
            };
            let rows = table.version().active.len();
            let portions = rows as f64 * self.disk_bytes_per_row(table) / (max_bytes as f64 / PORTIONS_OF_RING);
            // What is only guessed at is no reason.
            let is_known = || !table.tiers().is_empty() && table.last_flush.lock().is_some();
            let takes_much =
                || is_known() && self.flush_bytes(table, rows as u64) as f64 > max_bytes as f64 * FLUSH_SHARE;
            if portions > 1.0 || (portions > LEAST_PORTION && takes_much()) {
                self.freeze(table);
                self.workers.ask_flush(table.id);
            }
        }
    }

    /// How far the horizon has to move so that segments of `bytes` in all are behind it; `None` if no row is there.
    pub(super) fn position_that_frees(&self, base: &Arc<Table>, bytes: u64) -> Result<Option<Position>> {
        let ends = ends_of_rows(base);
        // Readings that buckets behind the horizon still need stay with it, or nothing would be freed.
        let behind = |end: u64| Position { time: base.horizon_that_frees(end.saturating_add(1)), key: Key::new() };
        let mut freed = 0;
        for (index, &(end, of_segment)) in ends.iter().enumerate() {
            freed += of_segment;
            let is_last_of_time = ends.get(index + 1).is_none_or(|next| next.0 > end);
            if freed >= bytes && is_last_of_time {
                return Ok(Some(behind(end)));
            }
        }
        Ok(ends.last().map(|(end, _)| behind(*end)))
    }
}

impl Written {
    /// What a row of a table, or an entry of one of its indexes, takes at most, by those that the statement has written.
    fn row_bytes(&self, table: &Arc<Table>, part: &Arc<Table>) -> Option<f64> {
        let segments = match table.indexes().iter().position(|index| Arc::ptr_eq(&index.table, part)) {
            None => &self.rows,
            Some(number) => self.entries.get(number)?,
        };
        let metas = segments.iter().map(|p| p.segment.meta());
        let (rows, bytes) = metas.fold((0, 0), |(rows, bytes), m| (rows + m.rows, bytes + m.bytes));
        (rows >= FRESH_ROWS).then(|| bytes as f64 / rows as f64 * ESTIMATE_MARGIN)
    }
}

/// The error for a ring of bytes that cannot hold some rows beside something else, after all tries.
pub(crate) fn too_small(table: &Table, beside: &str) -> Error {
    let limit = table.schema().ring.max_bytes.unwrap_or(0);
    Error::LimitExceeded { what: format!("with {beside}, table '{}'", table.name()), limit }
}

/// The bytes that something takes which took so many when it was tried.
pub(super) fn with_margin(took: u64) -> u64 {
    (took as f64 * BUILD_MARGIN) as u64 + SEGMENT_OVERHEAD
}

/// What is left of bytes that are computed from rows, or stand in for them, when as many rows go as make room for it.
fn fitting_beside_rows(takes: u64, rows: u64, free: u64) -> u64 {
    match takes <= free {
        true => takes,
        false => (takes as f64 * (rows + free) as f64 / (rows + takes).max(1) as f64) as u64,
    }
}

/// The bytes that the tiers of a ring may take.
pub(super) fn tier_share(max_bytes: u64) -> u64 {
    (max_bytes as f64 * TIER_SHARE) as u64
}

/// Bytes of the segments of a table, its indexes and tiers.
fn linked_bytes(base: &Arc<Table>) -> u64 {
    base.with_parts().iter().map(|part| segment_bytes(part)).sum()
}

pub(super) fn segment_bytes(table: &Table) -> u64 {
    table.version().segments.values().map(|s| s.meta().bytes).sum()
}

/// The time of the newest row of a table that is in a segment.
fn newest_time(table: &Table) -> u64 {
    table.version().segments.values().map(|s| s.meta().max_time).max().unwrap_or(0)
}

/// When the segments of a ring end, and their bytes, the oldest first. Entries of indexes that know the time go with the rows.
pub(super) fn ends_of_rows(base: &Arc<Table>) -> Vec<(u64, u64)> {
    let mut ends = Vec::new();
    for part in std::iter::once(base.clone()).chain(base.indexes().iter().map(|i| i.table.clone())) {
        if part.layout().schema().time.is_some() {
            push_ends(&part.version(), &mut ends);
        }
    }
    ends.sort_unstable();
    ends
}

/// When segments end, and their bytes. Those of a chunk go together, so that no rows are left over that are behind the horizon
/// but not gone; in the newest chunk, which may be all there is, each goes by itself.
fn push_ends(version: &Version, ends: &mut Vec<(u64, u64)>) {
    let metas = || version.segments.values().map(|s| s.meta());
    let newest = metas().map(|m| m.chunk).max();
    let mut of_chunk: BTreeMap<u64, u64> = BTreeMap::new();
    for meta in metas().filter(|m| Some(m.chunk) != newest) {
        let end = of_chunk.entry(meta.chunk).or_default();
        *end = meta.max_time.max(*end);
    }
    ends.extend(metas().map(|m| (of_chunk.get(&m.chunk).copied().unwrap_or(m.max_time), m.bytes)));
}

/// The position behind about this share of the rows, in key order.
fn position_of_share(version: &Arc<Version>, layout: &Arc<RowLayout>, share: f64) -> Result<Option<Position>> {
    let wanted = (count_rows(version, layout, &Snapshot::latest())? as f64 * share).ceil() as u64;
    let mut cursor = Cursor::new(version.clone(), layout.clone(), Snapshot::latest(), None);
    cursor.seek(None, true, Direction::Forward)?;
    let mut rows = 0;
    while let Some(span) = cursor.next_span(limits::GROUP_ROWS)? {
        if rows + u64::from(span.rows) >= wanted {
            let mut key = Vec::new();
            span.group.push_key(span.row((wanted - rows).saturating_sub(1) as u32), &mut key)?;
            return Ok(Some(Position { time: 0, key: Key::from_slice(&key) }.next()));
        }
        rows += u64::from(span.rows);
    }
    Ok(None)
}
