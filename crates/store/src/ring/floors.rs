//! SERIES_MAX_ROWS: gives back the space of rows that their series let go.
//!
//! Such rows lie among those of series that are slower, so no segment is behind them as a whole: only a merge of the chunk takes
//! them away. To know how many there are in which chunk, the keys of the whole table are read. That is done whenever the rows
//! that fell since the last look are a quarter of what is stored: a few keys are read then for each row that fell.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::compaction::choose::Plan;
use crate::engine::Engine;
use crate::error::Result;
use crate::group::RowGroup;
use crate::horizon::{Horizon, Places};
use crate::limits::{FALLEN_ROWS_WORTH_A_LOOK, ROWS_LOOKED_AT};
use crate::live::LiveSegment;
use crate::row::RowLayout;
use crate::table::Table;
use crate::version::Version;

impl Engine {
    /// Merges of chunks of which a third fell behind the floors of their series, if it is time to look for such; the next look
    /// is due when many more have.
    pub(crate) fn merges_behind_floors(
        &self,
        table: &Table,
        version: &Version,
        pinned: &BTreeSet<u64>,
    ) -> Result<Vec<Plan>> {
        let layout = table.layout();
        let base = self.base_of_index(layout.schema());
        let base = base.as_deref().unwrap_or(table);
        let (Some(_), Some(places)) = (base.schema().ring.series_max_rows, layout.places()) else {
            return Ok(Vec::new());
        };
        let stored: u64 = version.segments.values().map(|s| s.meta().rows).sum();
        let fallen = base.fallen_rows.load(Ordering::Relaxed);
        let mut seen = table.fallen_seen.lock();
        if seen.is_some_and(|seen| fallen - seen < FALLEN_ROWS_WORTH_A_LOOK.max(stored / 4)) {
            return Ok(Vec::new());
        }
        let horizon = version.gate.at(self.oldest_snapshot());
        let (Some(horizon), _) = table.space_horizon(horizon, None, false) else { return Ok(Vec::new()) };
        *seen = Some(fallen);
        drop(seen);
        let mut chunks: BTreeMap<u64, (Plan, u64, u64)> = BTreeMap::new();
        for segment in version.segments.values().filter(|s| !pinned.contains(&s.meta().chunk)) {
            let (looked_at, gone) = share_gone(segment, &layout, places, &horizon)?;
            let chunk = segment.meta().chunk;
            let new = || (Plan { chunk, segments: Vec::new(), whole_chunk: true, joins: Vec::new() }, 0, 0);
            let (plan, all, of_chunk) = chunks.entry(chunk).or_insert_with(new);
            plan.segments.push(segment.meta().id);
            *all += segment.meta().rows;
            *of_chunk += segment.meta().rows * gone / looked_at.max(1);
        }
        Ok(chunks.into_values().filter(|(_, all, gone)| 3 * gone >= *all).map(|(plan, _, _)| plan).collect())
    }
}

/// Of so many rows of a segment that were looked at, so many are gone.
fn share_gone(
    segment: &Arc<LiveSegment>,
    layout: &Arc<RowLayout>,
    places: &Places,
    horizon: &Horizon,
) -> Result<(u64, u64)> {
    // Rows of a series lie side by side, the older ones first: every n-th tells how many there are.
    let step = (segment.meta().rows / ROWS_LOOKED_AT).clamp(1, 16) as usize;
    let (mut looked_at, mut gone) = (0, 0);
    let index = segment.index()?;
    for number in 0..index.group_count() {
        let of = (segment.clone(), &*index);
        let group = RowGroup::from_segment(layout.clone(), of, number, segment.meta().base_seq)?;
        for row in (0..group.rows()).step_by(step) {
            looked_at += 1;
            gone += u64::from(places.is_row_gone(&group, row, horizon)?);
        }
    }
    Ok((looked_at, gone))
}
