//! Works off one part: block by block from the zone maps, or by reading the columns that are asked for.

use smallvec::SmallVec;

use super::block::{Block, BlockRow};
use super::filter::{Columns, pick_all, undecided};
use super::groups::Groups;
use super::overlap::{PartSource, hide_old_versions};
use super::query::{Group, Query};
use super::ranges::Ranges;
use super::runs::{Cutter, cut};
use super::strip::Rows;
use super::view::{Cluster, Part, View};
use crate::error::{Error, Result};
use crate::schema::Lane;
use crate::segment::Held;
use crate::segment::zone::{f32_of_order, f64_of_order};

/// Works off a part. `is_cancelled` is asked for each block.
pub fn work_off<'q>(
    view: &View,
    query: &'q Query,
    cluster: &Cluster,
    part: &Part,
    is_cancelled: &dyn Fn() -> bool,
) -> Result<Groups<'q>> {
    let mut groups = Groups::new(query, view.layout.schema());
    let sources = cluster.sources.iter().map(|s| PartSource::new(view, s, part)).collect::<Result<Vec<_>>>()?;
    if sources.len() > 1 {
        hide_old_versions(view, &sources, part, super::view::times_of(query, &view.layout))?;
    }
    for (number, source) in sources.iter().enumerate() {
        for i in 0..source.len() {
            if is_cancelled() {
                return Err(Error::Interrupted);
            }
            let block = source.block(i);
            let hidden = source.take_hidden(i);
            add_block(query, part, &block, &hidden, number as u32, &mut groups)?;
            source.forget(i);
        }
    }
    Ok(groups)
}

/// Adds the rows of a block that are visible and for which all conditions hold.
fn add_block(
    query: &Query,
    part: &Part,
    block: &Block<'_>,
    hidden: &[u32],
    source: u32,
    groups: &mut Groups<'_>,
) -> Result<()> {
    let Some(open) = undecided(&query.conditions, block) else { return Ok(()) };
    let (low, high) = (part.low.as_deref(), part.high.as_deref());
    let is_whole = block.is_within(low, high) && hidden.is_empty() && block.is_plain();
    if is_whole && open.is_empty() && add_by_zone(query, block, source, groups)? {
        return Ok(());
    }
    let ranges = match is_whole {
        true => Ranges::one(0, block.rows()),
        false => visible(block, low, high, hidden)?,
    };
    let ranges = pick_all(open, block, ranges)?;
    if ranges.is_empty() {
        return Ok(());
    }
    add_ranges(query, block, &ranges, source, groups)
}

/// The rows of a block within bounds that a reader sees.
fn visible(block: &Block<'_>, low: Option<&[u8]>, high: Option<&[u8]>, hidden: &[u32]) -> Result<Ranges> {
    let (mut start, mut end) = (0, block.rows());
    if !block.is_within(low, high) {
        start = low.map_or(Ok(0), |low| block.rows_before(low))?;
        end = high.map_or(Ok(end), |high| block.rows_before(high))?;
    }
    let ranges = block.newest_versions(Ranges::one(start, end))?.without(hidden);
    block.living(ranges)
}

/// Adds a block of which all rows count by its zone maps alone; false, and nothing is added, if they do not say enough.
fn add_by_zone(query: &Query, block: &Block<'_>, source: u32, groups: &mut Groups<'_>) -> Result<bool> {
    let mut values: SmallVec<[u64; 4]> = SmallVec::new();
    let mut nulls = 0;
    for (n, group) in query.groups.iter().enumerate() {
        match constant(*group, block) {
            Some(Some(value)) => values.push(value),
            Some(None) => {
                values.push(0);
                nulls |= 1 << n;
            }
            None => return Ok(false),
        }
    }
    let zones: SmallVec<[_; 4]> = query.aggregates.iter().map(|a| a.column().and_then(|c| block.zone(c))).collect();
    if !groups.states().iter().zip(&zones).all(|(states, zone)| states.is_in(zone.as_ref())) {
        return Ok(false);
    }
    let place = groups.enter(&values, nulls, source, &BlockRow { block, row: 0 })?;
    for (states, zone) in groups.states().iter_mut().zip(&zones) {
        states.add_zone(place, block.rows() as u64, zone.as_ref());
    }
    Ok(true)
}

/// What all rows of a block are grouped by (NULL: `Some(None)`); `None` if that is not the same, or not known.
fn constant(group: Group, block: &Block<'_>) -> Option<Option<u64>> {
    let zone = block.zone(group.column())?;
    if zone.nulls == zone.rows {
        return Some(None);
    }
    let (min, max) = zone.range.filter(|_| zone.nulls == 0)?;
    let lane = block.lane(group.column());
    match lane {
        Lane::Int { .. } => {
            let (first, last) = group.bounds(min);
            (max <= last).then_some(Some(first))
        }
        Lane::F64 => (zone.exact && min == max).then(|| Some(f64_of_order(min).to_bits())),
        Lane::F32 => (zone.exact && min == max).then(|| Some(f32_of_order(min).to_bits().into())),
        Lane::Bytes => None,
    }
}

/// Adds rows of a block.
fn add_ranges(query: &Query, block: &Block<'_>, ranges: &Ranges, source: u32, groups: &mut Groups<'_>) -> Result<()> {
    let of_groups = query.groups.iter().map(|g| block.held(g.column())).collect::<Result<SmallVec<[Held; 4]>>>()?;
    let cutters: SmallVec<[Cutter<'_>; 4]> = query
        .groups
        .iter()
        .zip(&of_groups)
        .map(|(&group, held)| Cutter { group, rows: Rows::of(held, false) })
        .collect();
    let runs = cut(&cutters, ranges, groups, source, |row| BlockRow { block, row })?;
    for (n, aggregate) in query.aggregates.iter().enumerate() {
        let held = aggregate.column().map(|column| block.held(column)).transpose()?;
        let is_plain = aggregate.column().and_then(|column| block.zone(column)).is_some_and(|zone| zone.exact);
        let rows = held.as_ref().map(|held| Rows::of(held, is_plain));
        groups.states()[n].add(&runs, rows.as_ref());
    }
    Ok(())
}
