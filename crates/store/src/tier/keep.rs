//! What of a table must stay on disk for its tiers, and what of a tier is too old to be kept.
//!
//! A bucket that the horizon has entered still counts all of its rows: those behind the horizon are invisible, but they stay
//! until the horizon is past the bucket and the bucket is in the tier. From then on it is never computed again. The same holds
//! between a tier and the coarser ones that are computed from it.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use crate::engine::Engine;
use crate::horizon::{Horizon, Position, SeriesLines};
use crate::manifest::edit::Edit;
use crate::memtable::{Key, Memtable};
use crate::ring::{decode_floors, encode_floors};
use crate::row::RowLayout;
use crate::table::{Table, number_of};

use super::bucket::Buckets;
use super::points::Points;

/// Name of the manifest property of a table with tiers: buckets that begin before this time are not computed again.
const GONE_PROPERTY: &str = "tier_gone";

/// Name of the manifest property that says the same of series with rings of their own.
const SERIES_GONE_PROPERTY: &str = "tier_series_gone";

/// Which rows stay of a series with a ring of its own, whose buckets are computed from them.
pub(crate) struct SpaceRule {
    layout: Arc<RowLayout>,
    lines: Arc<SeriesLines>,
    points: Option<Points>,
}

impl SpaceRule {
    /// Whether the row with this key may be removed from disk.
    pub fn is_gone(&self, series: &[u8], key: &[u8]) -> bool {
        let (Some(time), Some(&line)) = (self.layout.time_of_key(key), self.lines.get(series)) else { return false };
        time < self.points.as_ref().map_or(line, |points| points.needed_from(line))
    }
}

/// Up to where rows may be removed from disk: buckets that begin before are not computed again.
#[derive(Default)]
pub(crate) struct Lines {
    all: u64,
    /// Of series with rings of their own.
    series: Arc<SeriesLines>,
}

/// Who is computed from a table.
#[derive(Default)]
pub(crate) struct Dependents {
    /// Buckets of the tiers that are.
    pub buckets: Vec<Buckets>,
    /// Of the tiers that are where the finer tier, from which they are computed else, has forgotten.
    pub instead: Vec<(Buckets, Weak<Table>)>,
    /// The table whose memtables say what is not in the tiers yet.
    pub base: Weak<Table>,
}

impl Dependents {
    /// The time from which on rows are needed, if those from `time` on are there or count.
    fn line(&self, time: u64) -> u64 {
        let has_forgotten =
            |finer: &Weak<Table>, first| finer.upgrade().is_some_and(|finer| first < finer.gone_until());
        let instead = self.instead.iter().map(|(buckets, finer)| (buckets.interval(time).first, finer));
        let instead = instead.filter(|(first, finer)| has_forgotten(finer, *first)).map(|(first, _)| first);
        self.buckets.iter().map(|buckets| buckets.interval(time).first).chain(instead).fold(time, u64::min)
    }
}

impl Table {
    /// Says which tiers are computed from it.
    pub(crate) fn set_dependents(&self, dependents: Dependents) {
        *self.dependents.write() = dependents;
    }

    /// From when on rows count that are not in the tiers yet. `flushed` is a memtable that is about to be brought there.
    fn unrefreshed_from(base: &Table, flushed: Option<&Arc<Memtable>>) -> u64 {
        let version = base.version();
        let memtables = version.memtables().filter(|m| flushed.is_none_or(|flushed| !Arc::ptr_eq(m, flushed)));
        let touched = memtables.filter_map(|m| m.touched()?.span()).map(|(first, _)| first);
        let refreshed = base.refreshed.lock().iter().filter_map(|(_, touched)| Some(touched.span()?.0)).min();
        touched.chain(refreshed).fold(u64::MAX, u64::min)
    }

    /// The horizon behind which rows may be removed from disk, and the lines that [`Table::gone_edits`] and
    /// [`Table::raise_gone`] want with it. `flushed` is a memtable that is about to be brought into the tiers; `moves_series`
    /// says whether series with rings of their own may lose more than they did.
    pub(crate) fn space_horizon(
        &self,
        horizon: Option<Horizon>,
        flushed: Option<&Arc<Memtable>>,
        moves_series: bool,
    ) -> (Option<Horizon>, Lines) {
        let dependents = self.dependents.read();
        let (Some(mut horizon), false) = (horizon.clone(), dependents.buckets.is_empty()) else {
            return (horizon, Lines::default());
        };
        let Some(base) = dependents.base.upgrade() else { return (Some(horizon), Lines::default()) };
        let needed = Table::unrefreshed_from(&base, flushed);
        let time = horizon.position.time;
        let all = match base.schema().ring.max_bytes {
            // A ring of bytes has no room for more: a bucket that its horizon enters stays as it is.
            Some(_) if base.is_same(self) => time,
            // Nor do buckets wait that went to make room.
            Some(_) => dependents.line(time.min(needed)).max(self.pushed_until.load(Ordering::Relaxed).min(time)),
            _ => dependents.line(time.min(needed)),
        };
        // Readings before a bucket count for its points.
        let points = Points::of(&self.schema());
        let mut series = Arc::default();
        if let Some(snapshot) = horizon.snapshot_of_floors() {
            let layout = self.layout();
            let line_of =
                |floor: &[u8]| layout.time_of_key(floor).map_or(0, |floor| dependents.line(floor.min(needed)));
            series = match moves_series {
                true => self.gate.series_lines(snapshot, &line_of),
                false => self.gate.series_gone(),
            };
            horizon.keep_buckets(SpaceRule { layout, lines: series.clone(), points: points.clone() });
        }
        let time = points.as_ref().map_or(all, |points| points.needed_from(all));
        horizon.position = Position { time, key: Key::new() };
        (Some(horizon), Lines { all, series })
    }

    /// Where the horizon of a ring of bytes has to be so that what ends before `end` may be removed from disk.
    pub(crate) fn horizon_that_frees(&self, end: u64) -> u64 {
        Points::of(&self.schema())
            .filter(|_| !self.dependents.read().buckets.is_empty())
            .map_or(end, |p| p.needs_from(end))
    }

    /// The edits that say which rows may be removed, as far as it is news.
    pub(crate) fn gone_edits(&self, lines: &Lines) -> Vec<Edit> {
        let edit = |name: &str, value| Edit::SetProperty { table: self.id, name: name.into(), value };
        let all = (self.gone_until() < lines.all).then(|| edit(GONE_PROPERTY, lines.all.to_le_bytes().to_vec()));
        let known = self.gate.series_gone();
        let is_news = |(series, line): (&Key, &u64)| known.get(series).is_none_or(|known| known < line);
        let series = lines.series.iter().any(is_news).then(|| {
            let lines =
                lines.series.iter().map(|(series, line)| (series.clone(), Key::from_slice(&line.to_le_bytes())));
            edit(SERIES_GONE_PROPERTY, encode_floors(&lines.collect::<Vec<_>>()))
        });
        all.into_iter().chain(series).collect()
    }

    /// Of a tier that is about to get coarser ones: without them what its horizon passed went as it came, so that from some buckets
    /// of a coarser one rows are missing.
    pub(crate) fn raise_gone_to_horizon(&self) {
        if self.dependents.read().buckets.is_empty() {
            self.raise_gone_until(self.version().gate.position().time);
        }
    }

    /// From when on a tier has buckets that it shows or coarser ones are computed from: older ones need not be computed anew.
    pub(crate) fn kept_from(&self) -> u64 {
        match self.dependents.read().buckets.is_empty() {
            true => self.version().gate.position().time,
            false => self.gone_until(),
        }
    }

    /// The edit that says from when on a new tier has buckets, or coarser ones can be computed from a tier.
    pub(crate) fn gone_edit(&self) -> Option<Edit> {
        let line = Some(self.gone_until()).filter(|line| *line > 0)?;
        Some(Edit::SetProperty { table: self.id, name: GONE_PROPERTY.into(), value: line.to_le_bytes().to_vec() })
    }

    /// After those edits, before rows are gone.
    pub(crate) fn raise_gone(&self, lines: &Lines) {
        self.raise_gone_until(lines.all);
        self.gate.raise_series_gone(&lines.series);
    }

    /// Buckets that begin before this time are not computed again.
    pub(crate) fn raise_gone_until(&self, line: u64) {
        self.gone_until.fetch_max(line, Ordering::AcqRel);
    }

    /// Forgets all about removed rows (TRUNCATE); the edits that say so.
    pub(crate) fn reset_gone(&self) -> [Edit; 2] {
        self.gone_until.store(0, Ordering::Release);
        self.newest_seen.store(0, Ordering::Relaxed);
        self.tiers().iter().for_each(|tier| tier.turns_at.store(0, Ordering::Relaxed));
        let edit = |name: &str| Edit::SetProperty { table: self.id, name: name.into(), value: Vec::new() };
        [edit(GONE_PROPERTY), edit(SERIES_GONE_PROPERTY)]
    }

    /// From when on buckets can be computed, if rows from a time on are there.
    pub(crate) fn gone_line(&self, time: u64) -> u64 {
        self.dependents.read().line(time)
    }

    /// The edit that says so, whatever the manifest had.
    pub(crate) fn gone_edit_of(&self, line: u64) -> Option<Edit> {
        let value = line.to_le_bytes().to_vec();
        (self.gone_until() > 0).then(|| Edit::SetProperty { table: self.id, name: GONE_PROPERTY.into(), value })
    }

    /// After that edit.
    pub(crate) fn set_gone_until(&self, line: u64) {
        self.gone_until.store(line, Ordering::Release);
    }

    /// Buckets that begin before this time cannot be computed from the table's rows any more.
    pub(crate) fn gone_until(&self) -> u64 {
        self.gone_until.load(Ordering::Acquire)
    }

    /// What the manifest knows of it.
    pub(crate) fn restore_gone(&self, properties: &std::collections::BTreeMap<String, Vec<u8>>) {
        let line = properties.get(GONE_PROPERTY).map_or(0, |value| number_of(value));
        self.gone_until.store(line, Ordering::Release);
        let series = properties.get(SERIES_GONE_PROPERTY).and_then(|value| decode_floors(value)).unwrap_or_default();
        let series = series.into_iter().map(|(series, line)| (series, number_of(&line)));
        self.gate.raise_series_gone(&Arc::new(series.collect()));
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
        if tiers.is_empty() {
            return;
        }
        let schema = table.schema();
        let is_of_bytes = schema.ring.max_bytes.is_some();
        if tiers.iter().all(|tier| tier.def.keep.is_none()) && !is_of_bytes {
            return;
        }
        let version = table.version();
        let newest = version.memtables().filter_map(|m| m.touched()?.newest());
        let newest = newest.fold(table.newest_seen.load(Ordering::Relaxed), u64::max);
        table.newest_seen.store(newest, Ordering::Relaxed);
        for tier in tiers.iter().filter(|tier| is_of_bytes || newest >= tier.turns_at.load(Ordering::Relaxed)) {
            let Some(buckets) = Buckets::of(&schema, tier.def.bucket) else { continue };
            let lane = buckets.lane();
            let kept = tier.def.keep.map(|keep| {
                let (newest, clock) = (lane.micros(newest), self.clock_micros());
                // The first bucket whose end is not too old.
                let oldest = lane.at_or_after(newest.min(clock).saturating_sub_unsigned(keep));
                let kept = buckets.interval(oldest);
                // Nothing changes until the newest row is `keep` behind the end of that bucket, or the clock moves on.
                let turns = lane.at_or_after(lane.micros(kept.last).saturating_add_unsigned(keep));
                tier.turns_at.store(if newest > clock { 0 } else { turns }, Ordering::Relaxed);
                kept.first
            });
            let gate = tier.table.version().gate.clone();
            let kept = kept.map(|time| Position { time, key: Key::new() });
            let Some(position) = kept.max(tier.table.ring.lock().take_push()) else { continue };
            if position > gate.position() {
                gate.move_to(seq, position, snapshots);
                // It moves with each bucket: two threads woken for one cost more than its rows.
                self.workers.ask_merge_later(tier.table.id);
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
