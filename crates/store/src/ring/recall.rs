//! Horizons that come back after a start with a wrong clock.
//!
//! Age counts from the clock. One that was years ahead, with one row of that time, moves the horizon to where no row of the
//! present is stored. Once the clock is right again, a horizon in the future can only be wrong: what is behind it is removed
//! from disk for good, and then it is set to where the rule has it. No row comes back that was gone.
//!
//! The horizon of a tier is wrong in the same way; its buckets are computed again from the rows that are there.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::commit::TableWrites;
use crate::engine::Engine;
use crate::error::Result;
use crate::horizon::Position;
use crate::manifest::edit::Edit;
use crate::memtable::Key;
use crate::schema::Ring;
use crate::table::Table;
use crate::tier::bucket::Interval;
use crate::tier::{dirty_edit, join};
use crate::time::TimeLane;

use super::durable::HORIZON_PROPERTY;
use super::newest_time;

impl Engine {
    /// Looks for horizons in the future, at the start and each second.
    pub(crate) fn recall_horizons(&self) {
        for table in self.all_tables().iter().filter(|table| !table.is_part()) {
            if let Err(error) = self.recall_if_ahead(table) {
                tracing::warn!(table = table.name(), %error, "could not bring the horizon back");
            }
        }
    }

    fn recall_if_ahead(&self, table: &Arc<Table>) -> Result<()> {
        let schema = table.schema();
        let Some(lane) = TimeLane::of(&schema) else { return Ok(()) };
        let now = lane.at_or_after(self.clock_micros());
        let is_ahead = |table: &Table| table.version().gate.position().time > now;
        let Ring { retention, max_bytes, .. } = schema.ring;
        if is_ahead(table)
            && self.is_moved_by_age(table, schema.ring)?
            && self.recall_horizon(table, &self.age_position(table, lane, retention))?
        {
            tracing::info!(table = table.name(), "the horizon was ahead of the clock and is back");
        }
        if max_bytes.is_none() && table.tiers().iter().any(|tier| is_ahead(&tier.table)) {
            self.recall_tiers(table, lane)?;
        }
        Ok(())
    }

    /// Whether the clock can have moved the horizon to where it is. Rings of rows and bytes keep the newest, whatever the clock
    /// says; one of rows that is not full has room for rows of the present. (Floors of series are no part of the position.)
    fn is_moved_by_age(&self, table: &Arc<Table>, ring: Ring) -> Result<bool> {
        if ring.max_bytes.is_some() {
            return Ok(false);
        }
        let Some(max_rows) = ring.max_rows else { return Ok(true) };
        if ring.retention.is_none() {
            return Ok(false);
        }
        let counted = table.ring.lock().rows();
        let rows = counted.map_or_else(|| self.rows_there(table), Ok)?;
        Ok(rows < max_rows)
    }

    /// Where the horizon of a table has to be by the age of its rows.
    fn age_position(&self, table: &Table, lane: TimeLane, retention: Option<u64>) -> Position {
        let (Some(retention), Some(newest)) = (retention, newest_time(&table.version())) else {
            return Position::default();
        };
        let oldest = lane.micros(newest).min(self.clock_micros()).saturating_sub_unsigned(retention);
        Position { time: lane.at_or_after(oldest), key: Key::new() }
    }

    /// Sets the horizon back to `target`, once nothing is left of what is behind it; false if that cannot be done yet.
    pub fn recall_horizon(&self, table: &Arc<Table>, target: &Position) -> Result<bool> {
        let gate = table.version().gate.clone();
        let position = gate.position();
        // Whoever reads on an older snapshot still sees rows that have to go first.
        if *target >= position || self.oldest_snapshot() < gate.last_move() {
            return Ok(false);
        }
        self.check_writable()?;
        self.flush_table(table)?;
        self.expire(table)?;
        let mut parts = vec![table.clone()];
        parts.extend(table.indexes().iter().map(|index| index.table.clone()));
        for part in &parts {
            self.merge_while_due(part, true, &mut |_| true)?;
        }
        let _alone: Vec<_> = parts.iter().map(|part| part.maintenance.lock()).collect();
        self.sync_log_first()?;
        let _turn = self.apply_turn.lock();
        // Held over the manifest's sync: a commit that is logged now would say where the horizon was.
        let queue = self.commit_queue.lock();
        let is_of =
            |tables: &[TableWrites]| tables.iter().any(|t| parts.iter().any(|part| Arc::ptr_eq(&t.table, part)));
        let is_written =
            queue.pending.iter().any(|p| is_of(&p.tables)) || queue.prepared.iter().any(|p| is_of(&p.tables));
        let has_rows = parts.iter().any(|part| part.version().memtables().any(|m| m.needs_flush()));
        let version = table.version();
        // At the edge a ring of rows tells rows of one time apart by their keys.
        let first_there = position.time.saturating_add(u64::from(!position.key.is_empty()));
        let is_behind = version.segments.values().any(|s| s.meta().min_time < first_there);
        if is_written || has_rows || is_behind || !version.dropped.is_empty() {
            return Ok(false);
        }
        let seq = self.visible_seq.load(Ordering::Acquire);
        let mut edits: Vec<Edit> = parts.iter().map(|part| Edit::Flushed { table: part.id, seq }).collect();
        let value = target.encode();
        edits.push(Edit::SetProperty { table: table.id, name: HORIZON_PROPERTY.into(), value });
        // Buckets of rows that are gone keep what they have.
        let now = TimeLane::of(&table.schema()).map_or(0, |lane| lane.at_or_after(self.clock_micros()));
        let gone = table.gone_line(target.time.max(now)).min(table.gone_until());
        edits.extend(table.gone_edit_of(gone));
        self.commit_manifest_in_turn(&edits)?;
        parts.iter().for_each(|part| part.flushed_seq.store(seq, Ordering::Release));
        table.set_gone_until(gone);
        gate.recall(target.clone());
        table.ring.lock().forget();
        Ok(true)
    }

    /// Sets the horizons of a table's tiers back, and has the buckets computed of all rows that are there.
    fn recall_tiers(&self, table: &Arc<Table>, lane: TimeLane) -> Result<()> {
        let now = lane.at_or_after(self.clock_micros());
        let ahead: Vec<_> =
            table.tiers().iter().filter(|t| t.table.version().gate.position().time > now).cloned().collect();
        let mut alone: Vec<&Arc<Table>> = ahead.iter().map(|tier| &tier.table).chain([table]).collect();
        alone.sort_by_key(|table| table.id);
        let _alone: Vec<_> = alone.iter().map(|table| table.maintenance.lock()).collect();
        let _turn = self.apply_turn.lock();
        let seq = self.visible_seq.load(Ordering::Acquire);
        let version = table.version();
        let mut times: Vec<Interval> = Vec::new();
        times.extend(version.segments.values().map(|s| Interval { first: s.meta().min_time, last: s.meta().max_time }));
        for memtable in version.memtables() {
            memtable.times(&mut |time| times.push(Interval { first: time, last: time }));
        }
        let times = join(times);
        let mut edits = vec![dirty_edit(table, seq, times.clone())];
        for tier in &ahead {
            let value = Position::default().encode();
            edits.push(Edit::SetProperty { table: tier.table.id, name: HORIZON_PROPERTY.into(), value });
            edits.extend(tier.table.gone_edit_of(0));
        }
        self.commit_manifest_in_turn(&edits)?;
        for tier in &ahead {
            tier.table.set_gone_until(0);
            tier.table.version().gate.recall(Position::default());
            tier.turns_at.store(0, Ordering::Relaxed);
        }
        if let Some(mut touched) = version.active.touched() {
            times.iter().for_each(|times| touched.note_range(times.first, times.last, seq));
        }
        self.turn_tiers(table, seq, &self.open_snapshots());
        self.workers.ask_flush(table.id);
        Ok(())
    }
}
