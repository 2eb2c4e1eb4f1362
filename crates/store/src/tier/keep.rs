//! What of a table must stay on disk for its tiers, and what of a tier is too old to be kept.
//!
//! A bucket that the horizon has entered still counts all of its rows: those behind the horizon are invisible, but they stay
//! until the horizon is past the bucket and the bucket is in the tier. From then on it is never computed again. The same holds
//! between a tier and the coarser ones that are computed from it.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use crate::engine::Engine;
use crate::horizon::{Horizon, Position};
use crate::manifest::edit::Edit;
use crate::memtable::{Key, Memtable};
use crate::row::RowLayout;
use crate::table::{Table, number_of};

use super::bucket::Buckets;
use super::points::Points;

/// Name of the manifest property of a table with tiers: buckets that begin before this time are not computed again.
const GONE_PROPERTY: &str = "tier_gone";

/// Which rows stay of a series with a ring of its own, whose buckets are computed from them.
pub(crate) struct SpaceRule {
    layout: Arc<RowLayout>,
    buckets: Vec<Buckets>,
    /// From here on all rows stay.
    needed: u64,
    points: Option<Points>,
}

impl SpaceRule {
    /// Whether the row with this key may be removed from disk, if those before `floor` are invisible.
    pub fn is_gone(&self, key: &[u8], floor: &[u8]) -> bool {
        let (Some(time), Some(floor)) = (self.layout.time_of_key(key), self.layout.time_of_key(floor)) else {
            return false;
        };
        let floor = floor.min(self.needed);
        let line = self.buckets.iter().map(|b| b.interval(floor).first).fold(floor, u64::min);
        time < self.points.as_ref().map_or(line, |points| points.needed_from(line))
    }
}

/// Who is computed from a table.
#[derive(Default)]
pub(crate) struct Dependents {
    /// Buckets of the tiers that are.
    buckets: Vec<Buckets>,
    /// The table whose memtables say what is not in the tiers yet.
    base: Weak<Table>,
}

impl Table {
    /// Says which tiers are computed from it.
    pub(crate) fn set_dependents(&self, base: &Arc<Table>, buckets: Vec<Buckets>) {
        *self.dependents.write() = Dependents { buckets, base: Arc::downgrade(base) };
    }

    /// Up to where rows may be removed from disk when they are invisible before `time`. `flushed` is a memtable that is
    /// about to be brought into the tiers.
    fn space_line(&self, time: u64, flushed: Option<&Arc<Memtable>>) -> u64 {
        let dependents = self.dependents.read();
        let (false, Some(base)) = (dependents.buckets.is_empty(), dependents.base.upgrade()) else { return time };
        if base.schema().ring.max_bytes.is_some() && std::ptr::eq(Arc::as_ptr(&base), self) {
            // A ring of bytes has no room for more: a bucket that its horizon enters stays as it is.
            return time;
        }
        let version = base.version();
        let memtables = version.memtables().filter(|m| flushed.is_none_or(|flushed| !Arc::ptr_eq(m, flushed)));
        let touched = memtables.filter_map(|m| m.touched()?.span()).map(|(first, _)| first);
        let refreshed = base.refreshed.lock().iter().filter_map(|(_, touched)| Some(touched.span()?.0)).min();
        let needed = touched.chain(refreshed).fold(time, u64::min);
        dependents.buckets.iter().map(|b| b.interval(needed).first).fold(needed, u64::min)
    }

    /// The horizon behind which rows may be removed from disk, and the time that [`Table::gone_edit`] and
    /// [`Table::raise_gone`] want with it.
    pub(crate) fn space_horizon(
        &self,
        horizon: Option<Horizon>,
        flushed: Option<&Arc<Memtable>>,
    ) -> (Option<Horizon>, u64) {
        let (Some(mut horizon), false) = (horizon.clone(), self.dependents.read().buckets.is_empty()) else {
            return (horizon, 0);
        };
        let line = self.space_line(horizon.position.time, flushed);
        let needed = self.space_line(u64::MAX, flushed);
        let buckets = self.dependents.read().buckets.clone();
        // Readings before a bucket count for its points.
        let points = Points::of(&self.schema());
        let time = points.as_ref().map_or(line, |points| points.needed_from(line));
        horizon.position = Position { time, key: Key::new() };
        horizon.keep_buckets(SpaceRule { layout: self.layout(), buckets, needed, points });
        (Some(horizon), line)
    }

    /// The edit that says which rows may be removed, if it is news.
    pub(crate) fn gone_edit(&self, line: u64) -> Option<Edit> {
        let value = line.to_le_bytes().to_vec();
        (self.gone_until() < line).then(|| Edit::SetProperty { table: self.id, name: GONE_PROPERTY.into(), value })
    }

    /// After that edit, before rows are gone: buckets that begin before are not computed again.
    pub(crate) fn raise_gone(&self, line: u64) {
        self.gone_until.fetch_max(line, Ordering::AcqRel);
    }

    /// Forgets all about removed rows (TRUNCATE); the edit that says so.
    pub(crate) fn reset_gone(&self) -> Edit {
        self.gone_until.store(0, Ordering::Release);
        self.newest_seen.store(0, Ordering::Relaxed);
        Edit::SetProperty { table: self.id, name: GONE_PROPERTY.into(), value: Vec::new() }
    }

    /// Buckets that begin before this time cannot be computed from the table's rows any more.
    pub(crate) fn gone_until(&self) -> u64 {
        self.gone_until.load(Ordering::Acquire)
    }

    /// What the manifest knows of it.
    pub(crate) fn restore_gone(&self, properties: &std::collections::BTreeMap<String, Vec<u8>>) {
        let line = properties.get(GONE_PROPERTY).map_or(0, |value| number_of(value));
        self.gone_until.store(line, Ordering::Release);
    }

    /// Whether rows stay on disk only because they are not in the tiers yet.
    pub(crate) fn waits_for_refresh(&self, horizon: &Horizon) -> bool {
        let version = self.version();
        let touched = version.memtables().filter_map(|m| m.touched()?.span()).map(|(first, _)| first).min();
        !self.dependents.read().buckets.is_empty() && touched.is_some_and(|first| first < horizon.position.time)
    }
}

impl Engine {
    /// Moves the horizons of a table's tiers to where their retention says, with the commit `seq` that was just applied. Only
    /// while no other commit is applied.
    pub(crate) fn turn_tiers(&self, table: &Table, seq: u64, snapshots: &[u64]) {
        let tiers = table.tiers();
        if tiers.iter().all(|tier| tier.def.keep.is_none()) {
            return;
        }
        let version = table.version();
        let newest = version.memtables().filter_map(|m| m.touched()?.newest());
        let newest = newest.fold(table.newest_seen.load(Ordering::Relaxed), u64::max);
        table.newest_seen.store(newest, Ordering::Relaxed);
        let schema = table.schema();
        for tier in tiers.iter() {
            let (Some(keep), Some(buckets)) = (tier.def.keep, Buckets::of(&schema, tier.def.bucket)) else { continue };
            let reference = buckets.lane().micros(newest).min(self.clock_micros());
            // The first bucket whose end is not too old.
            let oldest = buckets.interval(buckets.lane().at_or_after(reference.saturating_sub_unsigned(keep))).first;
            let gate = tier.table.version().gate.clone();
            let position = Position { time: oldest, key: Key::new() };
            if position > gate.position() {
                gate.move_to(seq, position, snapshots);
                self.workers.ask_merge(tier.table.id);
            }
        }
    }

    /// After a start: the horizons of tiers, which follow from the newest row.
    pub(crate) fn settle_tiers(&self) {
        for table in self.all_tables().iter().filter(|t| !t.tiers().is_empty()) {
            let newest = table.version().segments.values().map(|s| s.meta().max_time).max().unwrap_or(0);
            table.newest_seen.fetch_max(newest, Ordering::Relaxed);
            let _turn = self.apply_turn.lock();
            self.turn_tiers(table, self.visible_seq.load(Ordering::Acquire), &[]);
        }
    }
}
