//! The ring: makes room for new rows by moving the horizon, and gives back the space behind it.
//!
//! `turn_ring` runs while a commit is applied, so that whoever sees the commit sees the horizon that follows from it. Age
//! counts from min(newest time in the table, clock). For MAX_ROWS the rows are counted, and those that leave next are
//! kept in order: a look through the oldest chunk finds the next many thousand of them. For SERIES_MAX_ROWS the same is
//! kept for each series that was written to. `expire` drops segments that are wholly behind the horizon.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use hashbrown::HashMap;
use rrd_codec::Values;

use crate::bulk::Written;
use crate::commit::TableWrites;
use crate::compaction::choose::Plan;
use crate::cursor::{Cursor, Direction};
use crate::engine::Engine;
use crate::error::Result;
use crate::horizon::{Horizon, Position};
use crate::key;
use crate::limits;
use crate::log_record::LoggedWrite;
use crate::manifest::edit::TableId;
use crate::manifest::edit::{ChunkSpan, Edit};
use crate::memtable::Key;
use crate::own::{OwnWrites, PrivateSegment};
use crate::row::RowLayout;
use crate::schema::{Ring, Schema};
use crate::segment::SegmentId;
use crate::snapshot::Snapshot;
use crate::table::Table;
use crate::time::TimeLane;
use crate::version::Version;

/// Name of the manifest property that holds the horizon's position.
pub(crate) const HORIZON_PROPERTY: &str = "horizon";

/// Name of the manifest property that holds the floors of series with rings of their own.
pub(crate) const FLOORS_PROPERTY: &str = "floors";

/// What is known of a table's rows, to say which leave next.
#[derive(Default)]
pub(crate) struct RingState {
    /// Rows that are not behind the horizon; `None`: to be counted.
    rows: Option<u64>,
    /// The rows that leave next.
    ahead: BTreeSet<Position>,
    /// `ahead` has all rows before this one. `None`: nothing is known.
    ahead_end: Option<Position>,
    /// Newest time that was ever seen, as the lane holds it. `None`: not looked for.
    newest: Option<u64>,
    /// Set when age counts from the clock: the horizon moves without commits.
    follows_clock: bool,
    /// Series that were written to.
    series: HashMap<Key, SeriesState>,
    /// Set when any series may have too many rows.
    is_unsettled: bool,
    /// Where the horizon has to move with the next commit, to free bytes.
    push_to: Option<Position>,
}

/// The same of one series with a ring of its own.
struct SeriesState {
    /// Its rows.
    rows: u64,
    /// Keys of its oldest rows, in order; empty only if there is no row.
    ahead: VecDeque<Key>,
    /// The horizon that they were counted for.
    horizon: Position,
}

/// By how much the bytes of rows that are not encoded yet are overestimated.
const ESTIMATE_MARGIN: f64 = 1.3;

/// Rows that a bucket of a tier is made of, at least in the mean.
const ROWS_OF_BUCKET: f64 = 4.0;

/// Rows of a segment that tells what a row takes.
const FRESH_ROWS: u64 = 256;

/// Bytes of a small segment beside its rows.
const SEGMENT_OVERHEAD: u64 = 4096;

/// The share of `MAX_BYTES` that one flush or bulk statement may fill.
const RING_SHARE: f64 = 0.9;

/// A memtable of a ring of bytes is flushed when it will take this part of the ring.
const PORTIONS_OF_RING: f64 = 32.0;

/// Oldest keys of a series that one look finds.
const SERIES_AHEAD: usize = 16;

/// Series that are kept; then all are forgotten and looked up anew.
const SERIES_KEPT: usize = 1 << 20;

/// Room for bytes that are about to be written; given back when it is dropped: they are written then, or never will be.
pub(crate) struct Reserved {
    base: Arc<Table>,
    bytes: u64,
}

impl Reserved {
    fn new(base: Arc<Table>, bytes: u64) -> Reserved {
        base.reserved_bytes.fetch_add(bytes, Ordering::Relaxed);
        Reserved { base, bytes }
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.base.reserved_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl RingState {
    /// Forgets everything: it will be looked up again.
    pub fn forget(&mut self) {
        *self = RingState::default();
    }

    /// Rows that are not behind the horizon, if they are counted.
    pub fn rows(&self) -> Option<u64> {
        self.rows
    }

    /// Whether the horizon moves with the clock.
    pub fn follows_clock(&self) -> bool {
        self.follows_clock
    }

    fn lose_count(&mut self) {
        self.rows = None;
        self.ahead.clear();
        self.ahead_end = None;
        self.series.clear();
    }

    fn is_covered(&self, position: &Position) -> bool {
        self.ahead_end.as_ref().is_some_and(|end| position < end)
    }

    fn note(&mut self, position: Position, added: bool) {
        if let Some(rows) = &mut self.rows {
            *rows = rows.saturating_add_signed(if added { 1 } else { -1 });
        }
        if self.is_covered(&position) {
            match added {
                true => _ = self.ahead.insert(position),
                false => _ = self.ahead.remove(&position),
            }
        }
    }
}

/// What a commit does to the rows of a table with a ring.
pub(crate) struct RingChange {
    /// Position of each row that comes (true) or goes.
    rows: Vec<(Position, bool)>,
    /// Rows of private segments that are all new; `None` if that is not known.
    private_rows: Option<u64>,
    /// Smallest time in them.
    private_from: u64,
    newest: Option<u64>,
    /// See `OwnWrites::passed`.
    passed: Option<u64>,
}

impl RingChange {
    /// Says that it is not known which rows are new.
    pub fn is_unknown(&mut self) {
        self.private_rows = None;
    }

    /// Of the commit of a write set, before it is applied; `None` if the table has no ring.
    pub fn of(layout: &RowLayout, own: &OwnWrites) -> Option<RingChange> {
        let schema = layout.schema();
        if schema.ring.is_unbounded() || schema.index_of.is_some() {
            return None;
        }
        let counts = schema.ring.max_rows.is_some() || schema.ring.series_max_rows.is_some();
        let has_time = schema.time.is_some();
        let time_of = |key: &[u8]| layout.time_of_key(key).unwrap_or(0);
        let puts = || own.map.iter().filter(|(_, w)| w.row.is_some());
        let metas = || own.private.iter().map(|p| p.segment.meta());
        let newest = puts().map(|(key, _)| time_of(key)).chain(metas().map(|m| m.max_time)).max();
        let changes_count = |w: &crate::own::OwnWrite| match (w.row.is_some(), w.expects_absent.is_some()) {
            (true, true) => Some(true),
            (false, false) => Some(false),
            _ => None,
        };
        let changed = own.map.iter().filter(|_| counts).filter_map(|(key, write)| {
            Some((Position { time: time_of(key), key: key.clone() }, changes_count(write)?))
        });
        let is_new = |p: &PrivateSegment| p.expects_absent.is_some() && p.segment.meta().tombstones == 0;
        let is_plain = own.private.is_empty() || (own.map.is_empty() && own.private.iter().all(is_new));
        Some(RingChange {
            rows: changed.collect(),
            private_rows: is_plain.then(|| metas().map(|m| m.rows).sum()),
            private_from: metas().map(|m| m.min_time).min().unwrap_or(u64::MAX),
            newest: newest.filter(|_| has_time),
            passed: own.passed,
        })
    }
}

impl Engine {
    /// Moves the horizon of a table as its ring asks for, with the commit `seq` that was just applied. Only while no other
    /// commit is applied. Returns whether a segment is wholly behind the horizon now.
    pub(crate) fn turn_ring(&self, table: &Table, seq: u64, change: &RingChange, snapshots: &[u64]) -> Result<()> {
        let layout = table.layout();
        let ring = layout.schema().ring;
        let mut state = table.ring.lock();
        let version = table.version();
        let before = version.gate.position();
        self.note_change(&mut state, &version, &layout, &ring, change, seq, snapshots)?;
        if let Some(time) = change.passed {
            let to = Position { time, key: Key::new() };
            state.push_to = state.push_to.take().max(Some(to));
        }
        if let Some(to) = state.push_to.take().filter(|to| *to > version.gate.position()) {
            self.pass(&mut state, &to);
            version.gate.move_to(seq, to, snapshots);
        }
        if let Some(bound) = self.age_bound(table, &layout, &ring, &mut state)? {
            let to = Position { time: bound, key: Key::new() };
            if to > version.gate.position() {
                self.pass(&mut state, &to);
                version.gate.move_to(seq, to, snapshots);
            }
        }
        if let Some(max_rows) = ring.max_rows {
            self.bound_rows(&mut state, &version, &layout, max_rows, seq, snapshots)?;
        }
        if version.gate.position() > before {
            self.workers.ask_merge(table.id);
        }
        Ok(())
    }

    /// Takes the rows of a commit into the count.
    #[expect(clippy::too_many_arguments, reason = "one caller, which has it all at hand")]
    fn note_change(
        &self,
        state: &mut RingState,
        version: &Arc<Version>,
        layout: &Arc<RowLayout>,
        ring: &Ring,
        change: &RingChange,
        seq: u64,
        snapshots: &[u64],
    ) -> Result<()> {
        if let (Some(newest), Some(known)) = (change.newest, state.newest) {
            state.newest = Some(known.max(newest));
        }
        let horizon = version.gate.latest();
        let is_gone = |position: &Position| match (&horizon, layout.places()) {
            (Some(horizon), Some(places)) => places.is_key_gone(layout, &position.key, horizon),
            _ => false,
        };
        match change.private_rows {
            None => state.lose_count(),
            Some(rows) if rows > 0 => {
                // Some of them may be behind the horizon, or leave next.
                let edge = version.gate.position().time;
                if change.private_from <= edge || ring.series_max_rows.is_some() {
                    state.lose_count();
                }
                if let Some(count) = &mut state.rows {
                    *count += rows;
                }
                if state.ahead_end.as_ref().is_some_and(|end| change.private_from <= end.time) {
                    state.ahead.clear();
                    state.ahead_end = None;
                }
            }
            _ => {}
        }
        for (position, added) in &change.rows {
            if !is_gone(position) {
                state.note(position.clone(), *added);
            }
        }
        if let Some(max) = ring.series_max_rows {
            self.bound_series(state, version, layout, max, change, seq, snapshots)?;
        }
        Ok(())
    }

    /// The oldest time that is not too old.
    fn age_bound(&self, table: &Table, layout: &RowLayout, ring: &Ring, state: &mut RingState) -> Result<Option<u64>> {
        let (Some(retention), Some(lane)) = (ring.retention, TimeLane::of(layout.schema())) else { return Ok(None) };
        let newest = match state.newest {
            Some(newest) => newest,
            None => {
                let Some(newest) = newest_time(&table.version()) else { return Ok(None) };
                newest
            }
        };
        state.newest = Some(newest);
        let (newest, clock) = (lane.micros(newest), self.clock_micros());
        state.follows_clock = newest > clock;
        let oldest = newest.min(clock).saturating_sub_unsigned(retention);
        Ok(Some(lane.at_or_after(oldest)))
    }

    /// The horizon moves to `to`: rows on the way are no longer counted.
    fn pass(&self, state: &mut RingState, to: &Position) {
        let mut passed = 0;
        while state.ahead.first().is_some_and(|first| first < to) {
            state.ahead.pop_first();
            passed += 1;
        }
        if state.is_covered(to) {
            state.rows = state.rows.map(|rows| rows.saturating_sub(passed));
        } else {
            state.lose_count();
        }
    }

    /// Moves the horizon until no more than `max_rows` are left.
    fn bound_rows(
        &self,
        state: &mut RingState,
        version: &Arc<Version>,
        layout: &Arc<RowLayout>,
        max_rows: u64,
        seq: u64,
        snapshots: &[u64],
    ) -> Result<()> {
        let mut rows = match state.rows {
            Some(rows) => rows,
            None => count_rows(version, layout)?,
        };
        state.rows = Some(rows);
        while rows > max_rows {
            let mut last = None;
            while rows > max_rows
                && let Some(first) = state.ahead.pop_first()
            {
                rows -= 1;
                last = Some(first);
            }
            if let Some(last) = last {
                version.gate.move_to(seq, last.next(), snapshots);
            }
            if rows > max_rows.saturating_add(self.tuning.ring_ahead as u64)
                && let Some((time, passed)) = time_of_rank(version, layout, rows - max_rows - 1)?
            {
                // Many at once: up to a time they need not be told apart. The last one is found by its key.
                version.gate.move_to(seq, Position { time, key: Key::new() }, snapshots);
                rows = rows.saturating_sub(passed);
                (state.ahead_end, state.rows) = (None, Some(rows));
                continue;
            }
            state.rows = Some(rows);
            if rows > max_rows && !look_ahead(state, version, layout, rows - max_rows, self.tuning.ring_ahead)? {
                // Fewer rows than were counted: count them again next time.
                state.lose_count();
                break;
            }
        }
        Ok(())
    }

    /// Raises the floors of the series that a commit wrote to until none has more than `max` rows.
    #[expect(clippy::too_many_arguments, reason = "one caller, which has it all at hand")]
    fn bound_series(
        &self,
        state: &mut RingState,
        version: &Arc<Version>,
        layout: &Arc<RowLayout>,
        max: u64,
        change: &RingChange,
        seq: u64,
        snapshots: &[u64],
    ) -> Result<()> {
        if change.private_rows != Some(0) || std::mem::take(&mut state.is_unsettled) {
            // A large statement: every series may be concerned.
            return self.bound_all_series(state, version, layout, max, seq, snapshots);
        }
        let mut rows = change.rows.iter().peekable();
        while let Some((position, _)) = rows.peek() {
            let series = Key::from_slice(layout.series_of(&position.key).unwrap_or(&[]));
            let mut of_series = state.series.remove(&series).filter(|known| known.horizon == version.gate.position());
            while let Some((position, added)) = rows.next_if(|(p, _)| p.key.starts_with(&series)) {
                of_series = of_series.and_then(|known| known.note(&position.key, *added));
            }
            let mut of_series = match of_series {
                Some(known) => known,
                None => count_series(version, layout, &series)?,
            };
            while of_series.rows > max {
                if of_series.ahead.len() < 2 {
                    of_series = count_series(version, layout, &series)?;
                }
                let leaving = of_series.rows.saturating_sub(max).min(of_series.ahead.len().saturating_sub(1) as u64);
                for key in of_series.ahead.drain(..leaving as usize) {
                    state.note(Position { time: layout.time_of_key(&key).unwrap_or(0), key }, false);
                }
                of_series.rows -= leaving;
                match of_series.ahead.front() {
                    Some(floor) if leaving > 0 => version.gate.raise_floor(seq, &series, floor.clone(), snapshots),
                    _ => break,
                }
            }
            if state.series.len() >= SERIES_KEPT {
                state.series.clear();
            }
            state.series.insert(series, of_series);
        }
        Ok(())
    }

    /// Looks through the whole table for series that have more than `max` rows.
    fn bound_all_series(
        &self,
        state: &mut RingState,
        version: &Arc<Version>,
        layout: &Arc<RowLayout>,
        max: u64,
        seq: u64,
        snapshots: &[u64],
    ) -> Result<()> {
        state.lose_count();
        let mut cursor = Cursor::new(version.clone(), layout.clone(), Snapshot::latest(), None);
        cursor.seek(None, true, Direction::Backward)?;
        let mut series = None;
        let mut oldest = Key::new();
        let mut rows = 0;
        let mut key = Vec::new();
        while let Some(span) = cursor.next_span(limits::GROUP_ROWS)? {
            for n in 0..span.rows {
                key.clear();
                span.group.push_key(span.row(n), &mut key)?;
                let of_row = layout.series_of(&key).unwrap_or(&[]);
                if series.as_deref() != Some(of_row) {
                    series = Some(of_row.to_vec());
                    rows = 0;
                }
                rows += 1;
                if rows == max {
                    oldest = Key::from_slice(&key);
                } else if rows == max + 1 {
                    // What is below is passed over: the cursor has the horizon of before.
                    version.gate.raise_floor(seq, of_row, std::mem::take(&mut oldest), snapshots);
                }
            }
        }
        Ok(())
    }

    /// Moves the horizon of a table to where its ring says, by a commit without rows: after an ALTER TABLE, at the
    /// start, when the clock moves on. Returns how many rows fell behind it, if that is asked for.
    pub fn settle_ring(&self, table: &Arc<Table>, is_counted: bool) -> Result<u64> {
        if table.schema().ring.is_unbounded() || table.is_index() {
            return Ok(0);
        }
        let count = || count_rows(&table.version(), &table.layout());
        let before = if is_counted { count()? } else { 0 };
        {
            let _turn = self.apply_turn.lock();
            let mut state = table.ring.lock();
            state.forget();
            state.is_unsettled = true;
        }
        self.commit_nothing(table)?;
        self.make_room(table, 0)?;
        if is_counted {
            // What the log has is replayed with the ring of then: a shorter one in between would leave no trace.
            let _alone = table.maintenance.lock();
            self.commit_manifest(&horizon_edits(table))?;
        }
        Ok(if is_counted { before.saturating_sub(count()?) } else { 0 })
    }

    /// The ring that bounds a table: of an index or a tier that of its table.
    pub(crate) fn ring_of(&self, table: &Table, schema: &Schema) -> Option<Ring> {
        let of = schema.index_of.map(|of| of.table).or(schema.tier_of.map(|of| of.table));
        let ring = match of {
            None => schema.ring,
            Some(id) if id != table.id.0 => self.table_by_id(TableId(id))?.schema().ring,
            Some(_) => return None,
        };
        Some(ring).filter(|ring| !ring.is_unbounded())
    }

    /// Bytes on disk that a row takes, as far as the table can tell.
    pub(crate) fn disk_bytes_per_row(&self, table: &Table) -> f64 {
        let stats = table.stats();
        let version = table.version();
        let stored: u64 = version.segments.values().map(|s| s.meta().rows).sum();
        if stored >= 1000 {
            return stats.data_bytes as f64 / stored as f64;
        }
        let layout = table.layout();
        layout.schema().columns.iter().map(|c| c.lane.fixed_width() as f64).sum()
    }

    /// The most bytes that a row takes which is written now, in all likelihood: what is not sealed yet is larger than the
    /// mean, small segments more so.
    fn fresh_bytes_per_row(&self, table: &Table) -> f64 {
        let version = table.version();
        let fresh = version.segments.values().map(|s| s.meta()).filter(|m| !m.sealed && m.rows >= FRESH_ROWS);
        let largest = fresh.map(|m| m.bytes as f64 / m.rows as f64).fold(0.0, f64::max);
        self.disk_bytes_per_row(table).max(largest) * ESTIMATE_MARGIN
    }

    /// Before `incoming` bytes are written for a table: moves the horizon and drops chunks until they fit into
    /// `MAX_BYTES`, and a little more. Not with a maintenance lock held.
    pub(crate) fn make_room(&self, table: &Arc<Table>, incoming: u64) -> Result<Option<Reserved>> {
        let schema = table.schema();
        let of = schema.index_of.map(|of| of.table).or(schema.tier_of.map(|of| of.table));
        let base = match of.map(|id| self.table_by_id(TableId(id))) {
            None => table.clone(),
            Some(Some(base)) => base,
            Some(None) => return Ok(None),
        };
        let Some(max_bytes) = base.schema().ring.max_bytes else { return Ok(None) };
        let _one = base.making_room.lock();
        let wanted = max_bytes.saturating_sub(incoming);
        let used = self.ring_bytes(&base);
        if used <= wanted {
            return Ok(Some(Reserved::new(base.clone(), incoming)));
        }
        if let Some(to) = self.position_that_frees(&base, used - wanted)? {
            base.ring.lock().push_to = Some(to);
            self.commit_nothing(&base)?;
            self.expire(&base)?;
        }
        let used = self.ring_bytes(&base);
        if used > wanted {
            tracing::warn!(
                table = base.name(),
                used,
                incoming,
                max_bytes,
                "MAX_BYTES leaves no room for what is written"
            );
        }
        Ok(Some(Reserved::new(base.clone(), incoming)))
    }

    /// Before the `frozen` oldest memtables of a table are written.
    pub(crate) fn make_room_for_flush(&self, table: &Arc<Table>, frozen: usize) -> Result<Option<Reserved>> {
        let layout = table.layout();
        let Some(max_bytes) = self.ring_of(table, layout.schema()).and_then(|ring| ring.max_bytes) else {
            return Ok(None);
        };
        let version = table.version();
        let frozen = &version.frozen[..frozen.min(version.frozen.len())];
        let rows: usize = frozen.iter().map(|(memtable, _)| memtable.len()).sum();
        let row_bytes = self.fresh_bytes_per_row(table);
        let fitting = (max_bytes as f64 * RING_SHARE / row_bytes) as usize;
        if rows > fitting && layout.schema().index_of.is_none() && TimeLane::of(layout.schema()).is_some() {
            // More than the whole ring: what is oldest is never written.
            let mut times = Vec::with_capacity(rows);
            frozen.iter().for_each(|(memtable, _)| memtable.times(&mut |time| times.push(time)));
            let place = times.len().saturating_sub(fitting.max(1));
            if let Some((_, &mut time, _)) = times.get_mut(place).is_some().then(|| times.select_nth_unstable(place)) {
                table.ring.lock().push_to = Some(Position { time, key: Key::new() });
                self.commit_nothing(table)?;
            }
        }
        // The flush writes the buckets of its rows too; a bucket has a few rows at least.
        let tiers: f64 = table.tiers().iter().map(|t| self.fresh_bytes_per_row(&t.table) / ROWS_OF_BUCKET).sum();
        let incoming = rows.min(fitting) as f64 * (row_bytes + tiers);
        self.make_room(table, incoming as u64 + 4 * SEGMENT_OVERHEAD)
    }

    /// Before a merge: it needs room for its result while its inputs are still there.
    pub(crate) fn make_room_for_merge(&self, table: &Table, plan: &Plan) -> Result<Option<Reserved>> {
        let Some(ring) = self.ring_of(table, &table.schema()) else { return Ok(None) };
        if ring.max_bytes.is_none() {
            return Ok(None);
        }
        let version = table.version();
        let bytes = plan.segments.iter().filter_map(|id| version.segments.get(id)).map(|s| s.meta().bytes).sum();
        self.table_by_id(table.id).map_or(Ok(None), |table| self.make_room(&table, bytes))
    }

    /// Before a run of a bulk statement is written. When its own segments fill the ring, the oldest of them go.
    pub(crate) fn make_room_for_bulk(&self, table: &Arc<Table>, rows: u64, written: &mut Written) -> Result<()> {
        let Some(max_bytes) = table.schema().ring.max_bytes else { return Ok(()) };
        let entries: f64 = table.indexes().iter().map(|i| self.fresh_bytes_per_row(&i.table)).sum();
        let row_bytes = self.fresh_bytes_per_row(table) + entries;
        let run = (rows as f64 * row_bytes) as u64 + SEGMENT_OVERHEAD;
        let of = |segments: &[PrivateSegment]| segments.iter().map(|p| p.segment.meta().bytes).sum::<u64>();
        let private = |w: &Written| of(&w.rows) + w.entries.iter().map(|entries| of(entries)).sum::<u64>();
        let fitting = (max_bytes as f64 * RING_SHARE) as u64;
        while private(written) + run > fitting
            && let Some(end) = written.rows.iter().map(|p| p.segment.meta().max_time).min()
        {
            let leave = |segments: &mut Vec<PrivateSegment>| segments.retain(|p| p.segment.meta().max_time > end);
            leave(&mut written.rows);
            for (index, entries) in table.indexes().iter().zip(&mut written.entries) {
                if index.table.schema().time.is_some() {
                    leave(entries);
                }
            }
            written.passed = written.passed.max(end.checked_add(1));
        }
        // What is written already is reserved; this adds the run.
        written.reserved.extend(self.make_room(table, run)?);
        Ok(())
    }

    /// After a commit: a ring of bytes takes its rows in small portions.
    pub(crate) fn flush_rings_early<'a>(&self, tables: impl Iterator<Item = &'a Arc<Table>>) {
        for table in tables {
            let Some(max_bytes) = self.ring_of(table, &table.schema()).and_then(|ring| ring.max_bytes) else {
                continue;
            };
            let portion = max_bytes as f64 / PORTIONS_OF_RING;
            if table.version().active.len() as f64 * self.disk_bytes_per_row(table) > portion {
                self.freeze(table);
                self.workers.ask_flush(table.id);
            }
        }
    }

    /// Bytes on disk of a table, its indexes and tiers. What only open snapshots still need does not count.
    pub(crate) fn ring_bytes(&self, base: &Arc<Table>) -> u64 {
        let of = |t: &Arc<Table>| t.version().segments.values().map(|s| s.meta().bytes).sum::<u64>();
        base.with_parts().iter().map(of).sum::<u64>() + base.reserved_bytes.load(Ordering::Relaxed)
    }

    /// How far the horizon has to move so that segments of `bytes` in all are behind it; `None` if no row is there.
    fn position_that_frees(&self, base: &Arc<Table>, bytes: u64) -> Result<Option<Position>> {
        let version = base.version();
        let layout = base.layout();
        if layout.schema().time.is_none() {
            return position_of_share(&version, &layout, bytes as f64 / self.ring_bytes(base).max(1) as f64);
        }
        // Entries of indexes that know the time go with the rows.
        let mut ends: Vec<(u64, u64)> = Vec::new();
        for part in std::iter::once(base.clone()).chain(base.indexes().iter().map(|i| i.table.clone())) {
            if part.layout().schema().time.is_some() {
                ends.extend(part.version().segments.values().map(|s| (s.meta().max_time, s.meta().bytes)));
            }
        }
        ends.sort_unstable();
        let mut freed = 0;
        for (index, &(end, of_segment)) in ends.iter().enumerate() {
            freed += of_segment;
            let is_last_of_time = ends.get(index + 1).is_none_or(|next| next.0 > end);
            if freed >= bytes && is_last_of_time {
                return Ok(Some(Position { time: end.saturating_add(1), key: Key::new() }));
            }
        }
        Ok(ends.last().map(|(end, _)| Position { time: end.saturating_add(1), key: Key::new() }))
    }

    /// Whether a third of what is stored is behind the horizon, and no snapshot holds it: for tables that are one chunk,
    /// which only a merge makes smaller.
    pub(crate) fn is_mostly_gone(&self, table: &Table, version: &Version) -> bool {
        let Some(horizon) = version.gate.at(self.oldest_snapshot()) else { return false };
        if version.gate.position() != horizon.position {
            return false;
        }
        let schema = table.schema();
        let base = schema.index_of.and_then(|of| self.table_by_id(TableId(of.table)));
        let base = base.as_deref().unwrap_or(table);
        let Some(live) = base.ring.lock().rows.or_else(|| (!base.is_same(table)).then(|| base.stats().rows)) else {
            return false;
        };
        let stored: u64 = version.segments.values().map(|s| s.meta().rows).sum();
        stored > limits::GROUP_ROWS as u64 && live.saturating_mul(3) < stored.saturating_mul(2)
    }

    /// Drops segments of a table and of its indexes that are wholly behind the horizon.
    pub(crate) fn expire(&self, table: &Table) -> Result<()> {
        let gate = table.version().gate.clone();
        let Some(horizon) = gate.at(self.visible_seq.load(Ordering::Acquire)) else { return Ok(()) };
        let indexes = table.indexes();
        let tables: Vec<&Table> = std::iter::once(table).chain(indexes.iter().map(|i| &*i.table)).collect();
        if tables.iter().all(|t| gone_segments(t, &horizon).is_empty()) {
            return Ok(());
        }
        if table.waits_for_refresh(&horizon) {
            // Tiers need rows until the flush that brings them up to date.
            self.freeze(table);
            self.workers.ask_flush(table.id);
        }
        let visible = self.visible_seq.load(Ordering::Acquire);
        let (of_rows, gone) = table.space_horizon(Some(horizon.clone()), None);
        let horizon_of = |t: &Table| of_rows.as_ref().filter(|_| t.id == table.id).unwrap_or(&horizon).clone();
        let _alone: Vec<_> = tables.iter().map(|t| t.maintenance.lock()).collect();
        self.check_writable()?;
        let mut edits = horizon_edits(table);
        let (mut dropped, mut closed) = (Vec::new(), Vec::new());
        for t in &tables {
            let segments = gone_segments(t, &horizon_of(t));
            edits.extend(segments.iter().map(|&segment| Edit::RemoveSegment { table: t.id, segment }));
            let chunks = gone_chunks(t, &segments, &horizon_of(t));
            edits.extend(chunks.iter().map(|&start| Edit::RemoveChunk { table: t.id, start }));
            dropped.push(segments);
            closed.push(chunks);
        }
        edits.extend(table.gone_edit(gone));
        self.commit_manifest(&edits)?;
        for (t, chunks) in tables.iter().zip(closed) {
            let mut map = t.chunks.lock();
            chunks.into_iter().for_each(|start| map.remove(start));
        }
        table.raise_gone(gone);
        // Snapshots that compute buckets from the rows may see further back than the horizon.
        let seq = if table.tiers().is_empty() { gate.last_move() } else { visible };
        for (t, segments) in tables.iter().zip(&dropped) {
            t.install(|version| version.drop_segments(segments, seq));
            self.forget_dropped(t);
        }
        Ok(())
    }

    /// After the start: rows that the log brought back may have to leave again.
    pub(crate) fn settle_rings(self: &Arc<Self>) -> Result<()> {
        self.all_tables().iter().try_for_each(|table| self.settle_ring(table, false).map(|_| ()))
    }

    /// Looks after tables whose age counts from the clock.
    pub(crate) fn follow_clock(&self) {
        for table in self.all_tables() {
            if table.ring.lock().follows_clock()
                && let Err(error) = self.commit_nothing(&table)
            {
                tracing::warn!(table = table.name(), %error, "could not move the horizon");
            }
        }
    }
}

/// The edits that keep the horizon of a table.
pub(crate) fn horizon_edits(table: &Table) -> Vec<Edit> {
    let gate = &table.version().gate;
    let position = (HORIZON_PROPERTY, gate.position().encode());
    let floors = gate.floors().map(|floors| (FLOORS_PROPERTY, encode_floors(&floors)));
    let edit = |(name, value): (&str, Vec<u8>)| Edit::SetProperty { table: table.id, name: name.into(), value };
    [Some(position), floors].into_iter().flatten().map(edit).collect()
}

/// Series and keys, each behind its length (u32).
pub(crate) fn encode_floors(floors: &[(Key, Key)]) -> Vec<u8> {
    let mut out = Vec::with_capacity(floors.iter().map(|(series, key)| 8 + series.len() + key.len()).sum());
    for part in floors.iter().flat_map(|(series, key)| [series, key]) {
        out.extend_from_slice(&(part.len() as u32).to_le_bytes());
        out.extend_from_slice(part);
    }
    out
}

/// What `encode_floors` made.
pub(crate) fn decode_floors(mut bytes: &[u8]) -> Option<Vec<(Key, Key)>> {
    let mut part = || {
        let (length, rest) = bytes.split_at_checked(4)?;
        let (part, rest) = rest.split_at_checked(u32::from_le_bytes(length.try_into().ok()?) as usize)?;
        bytes = rest;
        Some((Key::from_slice(part), rest.is_empty()))
    };
    let mut floors = Vec::new();
    loop {
        let (series, _) = part()?;
        let (key, is_last) = part()?;
        floors.push((series, key));
        if is_last {
            return Some(floors);
        }
    }
}

/// Takes up what a log record says of the horizon; `None` if it makes no sense.
pub(crate) fn restore(table: &Table, write: &LoggedWrite<'_>) -> Option<()> {
    let gate = table.version().gate.clone();
    match write {
        LoggedWrite::Horizon(bytes) => gate.restore(Position::decode(bytes)?),
        LoggedWrite::Floors(bytes) => {
            decode_floors(bytes)?.into_iter().for_each(|(series, key)| gate.restore_floor(&series, key));
        }
        _ => {}
    }
    Some(())
}

/// The floors of the series that a commit writes to.
pub(crate) fn floors_of_writes(writes: &TableWrites) -> Vec<(Key, Key)> {
    let schema = writes.layout.schema();
    if schema.ring.series_max_rows.is_none() || schema.index_of.is_some() {
        return Vec::new();
    }
    let gate = writes.table.version().gate.clone();
    let own = writes.own.read();
    let mut series: Vec<&[u8]> = own.map.keys().filter_map(|key| writes.layout.series_of(key)).collect();
    series.dedup();
    series.into_iter().filter_map(|series| Some((Key::from_slice(series), gate.floor_of(series)?))).collect()
}

/// Segments that are wholly behind the horizon, and that nobody is about to drop.
fn gone_segments(table: &Table, horizon: &Horizon) -> Vec<SegmentId> {
    let layout = table.layout();
    let version = table.version();
    let Some(places) = layout.places() else { return Vec::new() };
    let pinned = table.pinned_segments();
    let metas = version.segments.values().map(|s| s.meta());
    metas.filter(|m| places.is_gone(&layout, m, horizon) && !pinned.contains(&m.id)).map(|m| m.id).collect()
}

/// Chunks behind the horizon in which nothing is left once these segments are dropped. A bulk statement under way may
/// still bring rows to one: see `Table::edits_for`.
fn gone_chunks(table: &Table, dropped: &[SegmentId], horizon: &Horizon) -> Vec<u64> {
    let version = table.version();
    let left: BTreeSet<u64> =
        version.segments.values().filter(|s| !dropped.contains(&s.meta().id)).map(|s| s.meta().chunk).collect();
    let chunks = table.chunks.lock();
    let is_gone = |span: &&ChunkSpan| span.end <= horizon.position.time && !left.contains(&span.start);
    match table.layout().schema().time {
        Some(_) => chunks.spans().values().filter(is_gone).map(|span| span.start).collect(),
        None => Vec::new(),
    }
}

/// The newest time in a table, as the lane holds it.
pub(crate) fn newest_time(version: &Version) -> Option<u64> {
    let mut newest = version.segments.values().map(|s| s.meta().max_time).max();
    for memtable in version.memtables() {
        memtable.times(&mut |time| newest = newest.max(Some(time)));
    }
    newest
}

/// Rows that are there, for certain. Segments that are alone in their chunk need not be read.
pub(crate) fn count_rows(version: &Arc<Version>, layout: &Arc<RowLayout>) -> Result<u64> {
    let mut rest = Version::clone(version);
    let mut rows = 0;
    if let (Some(places), true) = (layout.places(), layout.schema().time.is_some()) {
        let horizon = version.gate.latest();
        let mut in_memory = BTreeSet::new();
        for memtable in version.memtables() {
            memtable.times(&mut |time| _ = in_memory.insert(time));
        }
        let mut of_chunk: HashMap<u64, usize> = HashMap::new();
        version.segments.values().for_each(|s| *of_chunk.entry(s.meta().chunk).or_default() += 1);
        rest.segments.retain(|_, segment| {
            let meta = segment.meta();
            let is_plain = of_chunk.get(&meta.chunk) == Some(&1)
                && meta.tombstones == 0
                && !meta.has_versions
                && in_memory.range(meta.min_time..=meta.max_time).next().is_none()
                && horizon.as_ref().is_none_or(|horizon| places.is_all_there(layout, meta, horizon));
            rows += if is_plain { meta.rows } else { 0 };
            !is_plain
        });
    }
    let mut cursor = Cursor::new(Arc::new(rest), layout.clone(), Snapshot::latest(), None);
    cursor.seek(None, true, Direction::Forward)?;
    while let Some(span) = cursor.next_span(limits::GROUP_ROWS)? {
        rows += u64::from(span.rows);
    }
    Ok(rows)
}

/// Finds the rows that leave next, `wanted` of them or some more; false if there is none.
fn look_ahead(
    state: &mut RingState,
    version: &Arc<Version>,
    layout: &Arc<RowLayout>,
    wanted: u64,
    least: usize,
) -> Result<bool> {
    let wanted = (wanted as usize).clamp(least, least * 16);
    let until = time_with_rows(version, layout, wanted as u64);
    (state.ahead, state.ahead_end) = collect_ahead(version, layout, until, wanted)?;
    if state.ahead.is_empty() && until != u64::MAX {
        (state.ahead, state.ahead_end) = collect_ahead(version, layout, u64::MAX, wanted)?;
    }
    Ok(!state.ahead.is_empty())
}

/// A time up to which the oldest segments have twice as many rows as asked for, at least by their figures; the end of
/// all times if they have not, or without a time column.
fn time_with_rows(version: &Version, layout: &RowLayout, wanted: u64) -> u64 {
    if layout.schema().time.is_none() {
        return u64::MAX;
    }
    let from = version.gate.position().time;
    let mut metas: Vec<_> = version.segments.values().map(|s| s.meta()).filter(|m| m.max_time >= from).collect();
    metas.sort_by_key(|m| m.max_time);
    let mut rows = 0;
    let enough = metas.iter().find(|m| {
        rows += if m.min_time > from { m.rows } else { 0 };
        rows >= 2 * wanted
    });
    enough.map_or(u64::MAX, |m| m.max_time)
}

/// The time of the row that has `rank` rows before it, and how many rows are of earlier times; `None` if none is, or
/// without a time column.
fn time_of_rank(version: &Arc<Version>, layout: &Arc<RowLayout>, rank: u64) -> Result<Option<(u64, u64)>> {
    let Some(time) = layout.schema().time else { return Ok(None) };
    let until = time_with_rows(version, layout, rank);
    let mut cursor = Cursor::new(version.clone(), layout.clone(), Snapshot::latest(), None);
    cursor.set_times(version.gate.position().time, until);
    cursor.seek(None, true, Direction::Forward)?;
    let mut times = Vec::new();
    while let Some(span) = cursor.next_span(limits::GROUP_ROWS)? {
        let Values::Int(column) = &span.group.column(usize::from(time.column))?.values else { return Ok(None) };
        let rows = span.row(0)..span.row(0) + span.rows as usize;
        times.extend(column[rows].iter().copied().filter(|&time| time <= until));
    }
    let place = usize::try_from(rank).unwrap_or(usize::MAX).min(times.len().saturating_sub(1));
    if times.is_empty() {
        return Ok(None);
    }
    let (_, &mut time, _) = times.select_nth_unstable(place);
    let passed = times[..place].iter().filter(|&&earlier| earlier < time).count() as u64;
    Ok((passed > 0).then_some((time, passed)))
}

/// The position behind about this share of the rows, in key order.
fn position_of_share(version: &Arc<Version>, layout: &Arc<RowLayout>, share: f64) -> Result<Option<Position>> {
    let wanted = (count_rows(version, layout)? as f64 * share).ceil() as u64;
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

/// The first `wanted` positions among rows up to the time `until`, and the end of what they cover.
fn collect_ahead(
    version: &Arc<Version>,
    layout: &Arc<RowLayout>,
    until: u64,
    wanted: usize,
) -> Result<(BTreeSet<Position>, Option<Position>)> {
    let mut cursor = Cursor::new(version.clone(), layout.clone(), Snapshot::latest(), None);
    let time_column = layout.schema().time.map(|t| usize::from(t.column));
    if time_column.is_some() {
        cursor.set_times(version.gate.position().time, until);
    }
    cursor.seek(None, true, Direction::Forward)?;
    let mut first: Vec<Position> = Vec::new();
    let mut is_cut = false;
    // Later ones cannot be among the first.
    let mut latest = until;
    let mut key = Vec::new();
    'walk: while let Some(span) = cursor.next_span(limits::GROUP_ROWS)? {
        let column = time_column.map(|c| span.group.column(c)).transpose()?;
        for n in 0..span.rows {
            let row = span.row(n);
            let time = match column.map(|c| &c.values) {
                Some(Values::Int(times)) => times[row],
                _ => 0,
            };
            if time > latest {
                is_cut |= time <= until;
                continue;
            }
            key.clear();
            span.group.push_key(row, &mut key)?;
            first.push(Position { time, key: Key::from_slice(&key) });
            if time_column.is_none() && first.len() > wanted {
                // In key order nothing smaller follows.
                break 'walk;
            }
            if first.len() > 2 * wanted {
                let (_, last, _) = first.select_nth_unstable(wanted - 1);
                latest = last.time;
                first.truncate(wanted);
                is_cut = true;
            }
        }
    }
    if first.len() > wanted {
        first.select_nth_unstable(wanted - 1);
        first.truncate(wanted);
        is_cut = true;
    }
    let end = match first.iter().max() {
        Some(last) if is_cut => last.clone().next(),
        _ if until == u64::MAX => Position { time: u64::MAX, key: Key::from_elem(0xFF, 64) },
        _ => Position { time: until + 1, key: Key::new() },
    };
    Ok((first.into_iter().collect(), Some(end)))
}

impl SeriesState {
    /// Takes a row into the count; `None` if that cannot be done without looking.
    fn note(mut self, key: &[u8], added: bool) -> Option<SeriesState> {
        let is_covered = self.ahead.back().is_some_and(|last| key <= last.as_slice());
        let place = self.ahead.partition_point(|known| known.as_slice() < key);
        let is_known = self.ahead.get(place).is_some_and(|known| known.as_slice() == key);
        match added {
            true if is_covered && !is_known => self.ahead.insert(place, Key::from_slice(key)),
            true if self.rows == self.ahead.len() as u64 && self.ahead.len() < SERIES_AHEAD => {
                self.ahead.push_back(Key::from_slice(key));
            }
            false if is_known => _ = self.ahead.remove(place),
            _ => {}
        }
        self.rows = self.rows.checked_add_signed(if added { 1 } else { -1 })?;
        (self.rows == 0 || !self.ahead.is_empty()).then_some(self)
    }
}

/// Counts the rows of a series and finds the oldest.
fn count_series(version: &Arc<Version>, layout: &Arc<RowLayout>, series: &[u8]) -> Result<SeriesState> {
    let mut ahead = VecDeque::new();
    let rows = walk_series(version, layout, series, &mut |key| {
        if ahead.len() < SERIES_AHEAD {
            ahead.push_back(Key::from_slice(key));
        }
    })?;
    Ok(SeriesState { rows, ahead, horizon: version.gate.position() })
}

/// Walks over the rows of a series; returns how many there are.
fn walk_series(
    version: &Arc<Version>,
    layout: &Arc<RowLayout>,
    series: &[u8],
    take: &mut dyn FnMut(&[u8]),
) -> Result<u64> {
    let mut cursor = Cursor::new(version.clone(), layout.clone(), Snapshot::latest(), None);
    let floor = version.gate.latest().and_then(|horizon| horizon.floor(series));
    let low = floor.as_deref().unwrap_or(series).to_vec();
    let end = key::prefix_end(series);
    cursor.set_bounds(Some(&low), end.as_deref());
    cursor.seek(Some(&low), true, Direction::Forward)?;
    let mut rows = 0;
    let mut key = Vec::new();
    while let Some(span) = cursor.next_span(limits::GROUP_ROWS)? {
        for n in 0..span.rows {
            key.clear();
            span.group.push_key(span.row(n), &mut key)?;
            if end.as_deref().is_some_and(|end| key.as_slice() >= end) {
                return Ok(rows);
            }
            rows += 1;
            take(&key);
        }
    }
    Ok(rows)
}
