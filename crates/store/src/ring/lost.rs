//! Rows that a commit writes and does not store: when it is applied, the horizon is further than they are.
//!
//! A row that is too old when it is inserted is refused at once (`Txn::refuses`). Others become too old with their own
//! commit: one statement brings the newest row and old ones, or more rows than the ring holds. These are counted here, for
//! the statement's warning. Rows in memory are counted as the commit is applied; those of private segments are read
//! afterwards, by the committing thread, without a lock.

use std::sync::Arc;

use crate::batch::Batch;
use crate::commit::TableWrites;
use crate::engine::Engine;
use crate::error::Result;
use crate::group::RowGroup;
use crate::horizon::Horizon;
use crate::live::LiveSegment;
use crate::own::OwnWrites;
use crate::row::RowLayout;
use crate::table::Table;
use crate::time::TimeLane;

use super::RingChange;

/// Rows of one table that a commit did not store.
#[derive(Clone, Default)]
pub struct LostRows {
    /// Those that were counted.
    rows: u64,
    /// Segments that may have more of them, and what was gone after the commit.
    unread: Option<(Vec<Arc<LiveSegment>>, Horizon)>,
    /// When the commit was applied it was not known yet which rows leave: what it wrote.
    unsettled: Option<Arc<(RingChange, Vec<Arc<LiveSegment>>)>>,
}

impl LostRows {
    /// How many they are, once the ring has no more rows than it holds.
    pub fn count(self, table: &Table, layout: &Arc<RowLayout>) -> Result<u64> {
        if let Some(unsettled) = &self.unsettled {
            let (change, segments) = &**unsettled;
            return LostRows::of(table, layout, change, segments).count(table, layout);
        }
        let Some((segments, horizon)) = self.unread else { return Ok(self.rows) };
        let mut rows = self.rows;
        for segment in &segments {
            rows += rows_gone(segment, layout, &horizon)?;
        }
        Ok(rows)
    }

    /// Of a commit, by what is gone now.
    fn of(table: &Table, layout: &RowLayout, change: &RingChange, segments: &[Arc<LiveSegment>]) -> LostRows {
        let Some(horizon) = table.version().gate.latest() else { return LostRows::default() };
        let rows = change.rows_lost(layout, &horizon);
        let may_lose = |segment: &&Arc<LiveSegment>| horizon.may_hide_from(segment.meta().min_time);
        let unread: Vec<_> = segments.iter().filter(may_lose).cloned().collect();
        LostRows { rows, unread: (!unread.is_empty()).then_some((unread, horizon)), unsettled: None }
    }
}

impl RingChange {
    /// Counts rows in memory of times before `bound`, from where on the commit's own age rule keeps rows.
    fn note_too_old(&mut self, layout: &RowLayout, own: &OwnWrites, bound: u64) {
        let is_old = |key: &[u8]| layout.time_of_key(key).is_some_and(|time| time < bound);
        let in_map = own.map.iter().filter(|(key, write)| write.row.is_some() && is_old(key)).count();
        let in_batches = own.batches.iter().map(|batch| &batch.rows).filter(|rows| {
            let times = rows.times(layout);
            times.is_some_and(|(first, _)| first < bound)
        });
        let in_batches = in_batches.map(|rows| (0..rows.len()).filter(|&i| is_old(&rows.key(i))).count());
        self.too_old = (in_map + in_batches.sum::<usize>()) as u64;
    }

    /// Rows in memory that are gone with the commit that brought them.
    fn rows_lost(&self, layout: &RowLayout, horizon: &Horizon) -> u64 {
        let Some(places) = layout.places() else { return 0 };
        let is_gone = |key: &[u8]| places.is_key_gone(layout, key, horizon);
        let single = self.rows.iter().filter(|(position, added)| *added && is_gone(&position.key)).count();
        let batches = self.batches.iter().filter(|(_, first)| *first <= horizon.position.time);
        let in_batches = batches.map(|(rows, _)| (0..rows.len()).filter(|&i| is_gone(&rows.key(i))).count());
        // Where rows are not counted for the ring, only the age rule lets them go.
        self.too_old.max((single + in_batches.sum::<usize>()) as u64)
    }
}

/// Before the commit of a write set is applied: takes out rows that are gone already, since the horizon moved after they were
/// written. Nobody would see them, but tiers would count them; so a tier does not depend on how commits met.
pub(crate) fn leave_out_gone(writes: &TableWrites, own: &mut OwnWrites) {
    let layout = &*writes.layout;
    let (Some(horizon), Some(places)) = (writes.table.version().gate.latest(), layout.places()) else { return };
    let is_gone = |key: &[u8]| places.is_key_gone(layout, key, &horizon);
    let has_gone = |rows: &Batch| {
        let may_have = rows.times(layout).is_none_or(|(first, _)| horizon.may_hide_from(first));
        may_have && (0..rows.len()).any(|i| is_gone(&rows.key(i)))
    };
    if own.batches.iter().any(|batch| has_gone(&batch.rows)) {
        own.settle();
    }
    own.map.retain(|key, write| write.row.is_none() || !is_gone(key));
}

impl Engine {
    /// Before the commit of a write set is applied: which of its rows are too old beside its newest.
    pub(crate) fn note_too_old(&self, writes: &TableWrites, change: &mut RingChange, own: &OwnWrites) {
        let layout = &writes.layout;
        let lane = TimeLane::of(layout.schema()).zip(layout.schema().ring.retention);
        let (Some((lane, retention)), Some(newest), Some(first)) = (lane, change.newest, change.oldest) else { return };
        let newest = writes.table.ring.lock().newest.map_or(newest, |known| known.max(newest));
        let oldest = lane.micros(newest).min(self.clock_micros()).saturating_sub_unsigned(retention);
        let bound = lane.at_or_after(oldest);
        if first < bound {
            change.note_too_old(layout, own, bound);
        }
    }

    /// After it was applied. `segments` are its private ones. While the ring `is_due` to let rows go, these may be among them.
    pub(crate) fn note_lost(
        &self,
        writes: &TableWrites,
        change: RingChange,
        segments: Vec<Arc<LiveSegment>>,
        is_due: bool,
    ) {
        let lost = match is_due {
            true => LostRows { unsettled: Some(Arc::new((change, segments))), ..LostRows::default() },
            false => LostRows::of(&writes.table, &writes.layout, &change, &segments),
        };
        if is_due || lost.rows > 0 || lost.unread.is_some() {
            writes.own.write().lost = lost;
        }
    }
}

/// Rows of a segment that are behind a horizon.
fn rows_gone(segment: &Arc<LiveSegment>, layout: &Arc<RowLayout>, horizon: &Horizon) -> Result<u64> {
    let Some(places) = layout.places() else { return Ok(0) };
    let meta = segment.meta();
    if places.is_gone(layout, meta, horizon) {
        return Ok(meta.rows);
    }
    if places.is_all_there(layout, meta, horizon) {
        return Ok(0);
    }
    let mut gone = 0;
    let index = segment.index()?;
    for number in 0..index.group_count() {
        let group = RowGroup::from_segment(layout.clone(), (segment.clone(), &*index), number, meta.base_seq)?;
        for row in 0..group.rows() {
            gone += u64::from(!group.is_tombstone(row) && places.is_row_gone(&group, row, horizon)?);
        }
    }
    Ok(gone)
}
