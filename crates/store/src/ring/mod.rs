//! The ring: makes room for new rows by moving the horizon, and gives back the space behind it.
//!
//! `turn_ring` runs while a commit is applied, so that whoever sees the commit sees the horizon that follows from it. It reads no
//! file, since every commit of every table waits for it. Age counts from min(newest time in the table, clock). For MAX_ROWS the
//! rows are counted, and those that leave next are kept in order: a look through the oldest chunk finds the next many thousand
//! of them. For SERIES_MAX_ROWS the same is kept for each series that was written to. Looks are made without a lock, before
//! a commit or at the latest before its statement ends (`look.rs`). `expire` drops segments that are wholly behind the horizon.

mod ahead;
mod build;
mod bytes;
mod counted;
mod durable;
mod expire;
mod floors;
mod look;
mod lost;
mod recall;
mod rows;
mod series;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::batch::Batch;
use crate::engine::Engine;
use crate::error::Result;
use crate::horizon::{Gate, Position};
use crate::manifest::edit::TableId;
use crate::memtable::Key;
use crate::own::PrivateSegment;
use crate::own::{OwnBatch, OwnWrites};
use crate::row::RowLayout;
use crate::schema::Ring;
use crate::schema::Schema;
use crate::segment::SegmentId;
use crate::snapshot::Snapshot;
use crate::table::Table;
use crate::time::TimeLane;
use crate::version::Version;

pub(crate) use build::BuildPlan;
pub(crate) use bytes::{WRITE_TRIES, too_small};
use counted::{Counted, Journal, Step};
pub(crate) use durable::{
    FLOORS_PROPERTY, HORIZON_PROPERTY, decode_floors, encode_floors, floors_edit, floors_of_writes, restore,
};
pub use lost::LostRows;
pub(crate) use lost::leave_out_gone;
use rows::count_rows;
use series::{DueSeries, FoundSeries, KnownSeries, Turn};

/// What is known of a table's rows, to say which leave next.
#[derive(Default)]
pub(crate) struct RingState {
    counted: Counted,
    /// There may be too many rows, and it is not known which leave.
    are_rows_due: bool,
    /// Newest time that was ever seen, as the lane holds it. `None`: not looked for.
    newest: Option<u64>,
    /// Set when age counts from the clock: the horizon moves without commits.
    follows_clock: bool,
    /// Series that were written to.
    series: KnownSeries,
    /// Those that may have too many rows, of which it is not known which leave.
    due_series: DueSeries,
    /// Rows that fell behind the floors of their series with the commit under way.
    fallen: u64,
    /// What commits did since a look began.
    journal: Option<Journal>,
    /// What a look for series found: the next commit takes it up.
    found: Option<FoundSeries>,
    /// Where the horizon has to move with the next commit, to free bytes.
    push_to: Option<Position>,
    /// In a ring of bytes, of what only merges make smaller: segments without rows behind this position of the horizon.
    trimmed: (Option<Position>, BTreeSet<SegmentId>),
}

impl RingState {
    /// Forgets everything: it will be looked up again. A look that is under way finds nothing.
    pub fn forget(&mut self) {
        *self = RingState::default();
    }

    /// Rows that are not behind the horizon, if they are counted.
    pub fn rows(&self) -> Option<u64> {
        self.counted.rows()
    }

    /// Whether there may be more rows than the ring holds: a look has to say which leave.
    pub fn is_due(&self) -> bool {
        self.are_rows_due || !self.due_series.is_empty()
    }

    /// Says where the horizon has to move with the next commit, to free bytes.
    fn push_to(&mut self, to: Position) {
        self.push_to = self.push_to.take().max(Some(to));
    }

    /// Where the horizon has to move to free bytes.
    pub fn take_push(&mut self) -> Option<Position> {
        self.push_to.take()
    }

    /// Whether the horizon moves with the clock.
    pub fn follows_clock(&self) -> bool {
        self.follows_clock
    }

    /// Takes a change of the rows into account, and into what a look under way will find.
    fn note_step(&mut self, step: Step) {
        self.counted.take(step, self.journal.as_mut());
    }

    /// Moves the horizon.
    fn pass(&mut self, gate: &Gate, to: Position, seq: u64, snapshots: &[u64]) {
        if to > gate.position() {
            self.note_step(Step::Pass(to.clone(), None));
            gate.move_to(seq, to, snapshots);
        }
    }
}

/// What a commit does to the rows of a table with a ring.
pub(crate) struct RingChange {
    /// Position of each row that comes (true) or goes.
    rows: Vec<(Position, bool)>,
    /// New rows beside those, and the smallest time in them.
    batches: Vec<(Arc<Batch>, u64)>,
    /// Rows of private segments that are all new; `None` if that is not known.
    private_rows: Option<u64>,
    /// Smallest time in them.
    private_from: u64,
    newest: Option<u64>,
    /// Oldest time of a row in memory.
    oldest: Option<u64>,
    /// Rows in memory that are too old beside the newest time; see `note_too_old`.
    too_old: u64,
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
        let metas = || own.private.iter().map(|p| p.segment.meta());
        let mut newest = metas().map(|m| m.max_time).max();
        let mut oldest = u64::MAX;
        let mut rows = Vec::new();
        let mut note = |key: &[u8], is_row: bool, was_absent: bool| {
            let time = time_of(key);
            if is_row {
                newest = newest.max(Some(time));
                oldest = oldest.min(time);
            }
            if counts && is_row == was_absent {
                rows.push((Position { time, key: Key::from_slice(key) }, is_row));
            }
        };
        own.map.iter().for_each(|(key, write)| note(key, write.row.is_some(), write.expects_absent.is_some()));
        let of_series = schema.ring.series_max_rows.is_some();
        for OwnBatch { rows: batch, .. } in own.batches.iter().filter(|_| of_series) {
            (0..batch.len()).for_each(|i| note(&batch.key(i), true, true));
        }
        let mut batches = Vec::new();
        for OwnBatch { rows: batch, .. } in own.batches.iter().filter(|_| !of_series) {
            if let Some((first, last)) = batch.times(layout) {
                newest = newest.max(Some(last));
                oldest = oldest.min(first);
                batches.extend(counts.then(|| (batch.clone(), first)));
            }
        }
        let is_new = |p: &PrivateSegment| p.expects_absent.is_some() && p.segment.meta().tombstones == 0;
        let is_plain = own.private.is_empty() || (own.has_no_rows() && own.private.iter().all(is_new));
        Some(RingChange {
            rows,
            batches,
            private_rows: is_plain.then(|| metas().map(|m| m.rows).sum()),
            private_from: metas().map(|m| m.min_time).min().unwrap_or(u64::MAX),
            newest: newest.filter(|_| has_time),
            oldest: (oldest != u64::MAX).then_some(oldest),
            too_old: 0,
            passed: own.passed,
        })
    }
}

impl Engine {
    /// Moves the horizon of a table as its ring asks for, with the commit `seq` that was just applied. Only while no other
    /// commit is applied, so it reads no file: returns whether a look has to say more.
    pub(crate) fn turn_ring(&self, table: &Table, seq: u64, change: &RingChange, snapshots: &[u64]) -> bool {
        let layout = table.layout();
        let ring = layout.schema().ring;
        let mut state = table.ring.lock();
        let version = table.version();
        let gate = &version.gate;
        let before = gate.position();
        let turn = Turn { gate, layout: &layout, seq, snapshots };
        if let (Some(found), Some(max)) = (state.found.take(), ring.series_max_rows)
            && let Some(steps) = state.journal.take().and_then(Journal::into_steps)
        {
            state.adopt_series(found, &steps, max, &turn);
        }
        note_change(&mut state, gate, &layout, &ring, change);
        if let Some(max) = ring.series_max_rows {
            state.bound_series(max, change, &turn);
        }
        table.fallen_rows.fetch_add(std::mem::take(&mut state.fallen), Ordering::Relaxed);
        if let Some(time) = change.passed {
            state.push_to(Position { time, key: Key::new() });
        }
        if let Some(to) = state.push_to.take() {
            state.pass(gate, to, seq, snapshots);
        }
        if let Some(time) = self.age_bound(table, &layout, &ring, &mut state) {
            state.pass(gate, Position { time, key: Key::new() }, seq, snapshots);
        }
        // Rows that their series let go are not there to be counted.
        if let Some(max_rows) = ring.max_rows.filter(|_| state.due_series.is_empty()) {
            state.bound_rows(gate, max_rows, seq, snapshots);
        }
        if gate.position() > before {
            // A full ring's horizon moves with each commit: two threads woken for each row cost more than the row.
            self.workers.ask_merge_later(table.id);
        }
        state.is_due()
    }

    /// The oldest time that is not too old.
    fn age_bound(&self, table: &Table, layout: &RowLayout, ring: &Ring, state: &mut RingState) -> Option<u64> {
        let (retention, lane) = ring.retention.zip(TimeLane::of(layout.schema()))?;
        let newest = state.newest.or_else(|| newest_time(&table.version()))?;
        state.newest = Some(newest);
        let (newest, clock) = (lane.micros(newest), self.clock_micros());
        state.follows_clock = newest > clock;
        let oldest = newest.min(clock).saturating_sub_unsigned(retention);
        Some(lane.at_or_after(oldest))
    }

    /// Moves the horizon of a table to where its ring says, by a commit without rows: after an ALTER TABLE, at the
    /// start, when the clock moves on. With `is_new_rule` the manifest has it then.
    pub fn settle_ring(&self, table: &Arc<Table>, is_new_rule: bool) -> Result<()> {
        if table.schema().ring.is_unbounded() || table.is_index() {
            return Ok(());
        }
        {
            let _turn = self.apply_turn.lock();
            let mut state = table.ring.lock();
            state.forget();
            state.due_series.all = table.schema().ring.series_max_rows.is_some();
        }
        self.commit_nothing(table)?;
        self.make_room(table, 0)?;
        if is_new_rule {
            // What the log has is replayed with the ring of then: a shorter one in between would leave no trace.
            let _alone = table.maintenance.lock();
            self.commit_with_horizons(Vec::from_iter(floors_edit(table)), &[table])?;
        }
        Ok(())
    }

    /// The rows of a table that are not behind its horizon.
    pub fn rows_there(&self, table: &Table) -> Result<u64> {
        count_rows(&table.version(), &table.layout(), &Snapshot::latest())
    }

    /// The ring that bounds a table: of an index or a tier that of its table.
    pub(crate) fn ring_of(&self, table: &Table, schema: &Schema) -> Option<Ring> {
        let ring = match schema.part_of() {
            None => schema.ring,
            Some(id) if id != table.id.0 => self.table_by_id(TableId(id))?.schema().ring,
            Some(_) => return None,
        };
        Some(ring).filter(|ring| !ring.is_unbounded())
    }

    /// After the start: rows that the log brought back may have to leave again.
    pub(crate) fn settle_rings(self: &Arc<Self>) -> Result<()> {
        self.all_tables().iter().try_for_each(|table| self.settle_ring(table, false))
    }

    /// Looks after tables whose age counts from the clock, and after those that a commit left with too many rows.
    pub(crate) fn follow_clock(&self) {
        let tables = self.all_tables();
        for table in tables.iter().filter(|table| table.ring.lock().follows_clock()) {
            if let Err(error) = self.move_horizon(table) {
                tracing::warn!(table = table.name(), %error, "could not move the horizon");
            }
        }
        tables.iter().for_each(|table| self.settle_left(table));
    }
}

/// Takes the rows of a commit into the count.
fn note_change(state: &mut RingState, gate: &Gate, layout: &Arc<RowLayout>, ring: &Ring, change: &RingChange) {
    if let (Some(newest), Some(known)) = (change.newest, state.newest) {
        state.newest = Some(known.max(newest));
    }
    let horizon = gate.latest();
    let is_gone = |position: &Position| match (&horizon, layout.places()) {
        (Some(horizon), Some(places)) => places.is_key_gone(layout, &position.key, horizon),
        _ => false,
    };
    let edge = horizon.as_ref().map_or(0, |horizon| horizon.position.time);
    match change.private_rows {
        None => state.note_step(Step::Unknown),
        // Some of them may be behind the horizon, or leave next.
        Some(rows) if rows > 0 && (change.private_from <= edge || ring.series_max_rows.is_some()) => {
            state.note_step(Step::Unknown);
        }
        Some(rows) if rows > 0 => state.note_step(Step::Rows(rows, change.private_from)),
        _ => {}
    }
    for (position, added) in change.rows.iter().filter(|(position, _)| !is_gone(position)) {
        state.note_step(Step::Row(position.clone(), *added));
    }
    for (batch, first) in &change.batches {
        if *first > edge {
            state.note_step(Step::Batch(batch.clone(), layout.clone(), *first));
            continue;
        }
        for i in 0..batch.len() {
            let key = Key::from_slice(&batch.key(i));
            let position = Position { time: layout.time_of_key(&key).unwrap_or(0), key };
            if !is_gone(&position) {
                state.note_step(Step::Row(position, true));
            }
        }
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
