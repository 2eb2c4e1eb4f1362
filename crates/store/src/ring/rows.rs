//! MAX_ROWS: counts the rows of a ring and finds those that leave next.

use std::collections::BTreeSet;
use std::sync::Arc;

use hashbrown::HashMap;
use rrd_codec::Values;

use crate::cursor::Cursor;
use crate::cursor::Direction;
use crate::engine::Engine;
use crate::error::Result;
use crate::horizon::Position;
use crate::limits;
use crate::memtable::{Key, Memtable};
use crate::row::RowLayout;
use crate::snapshot::Snapshot;
use crate::version::Version;

use super::{Ahead, RingState};

impl Engine {
    /// Moves the horizon until no more than `max_rows` are left.
    pub(super) fn bound_rows(
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
            let (left, last) = state.ahead.pop(rows - max_rows);
            rows -= left;
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
        rest.segments.retain(|segment| {
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
    let until = time_of_next(version, layout, wanted as u64);
    (state.ahead, state.ahead_end) = collect_ahead(version, layout, until, wanted)?;
    if state.ahead.is_empty() && until != u64::MAX {
        (state.ahead, state.ahead_end) = collect_ahead(version, layout, u64::MAX, wanted)?;
    }
    Ok(!state.ahead.is_empty())
}

/// The time up to which there are about so many rows, if those of each segment are spread evenly over its times; the end of
/// all times if there are fewer, or without a time column.
fn time_of_next(version: &Version, layout: &RowLayout, wanted: u64) -> u64 {
    if layout.schema().time.is_none() {
        return u64::MAX;
    }
    let from = version.gate.position().time;
    let metas: Vec<_> = version.segments.values().map(|s| s.meta()).filter(|m| m.max_time >= from).collect();
    let rows_until = |time: u64| -> f64 {
        let length = |from: u64, to: u64| (to.saturating_sub(from)) as f64 + 1.0;
        let there = metas.iter().filter(|m| m.min_time.max(from) <= time);
        there
            .map(|m| {
                m.rows as f64 * length(m.min_time.max(from), time.min(m.max_time)) / length(m.min_time, m.max_time)
            })
            .sum()
    };
    let last = metas.iter().map(|m| m.max_time).max().unwrap_or(from);
    if rows_until(last) < wanted as f64 {
        return u64::MAX;
    }
    let (mut low, mut high) = (from, last);
    while low < high {
        let middle = low + (high - low) / 2;
        match rows_until(middle) < wanted as f64 {
            true => low = middle + 1,
            false => high = middle,
        }
    }
    low
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

/// The rows up to the time `until` that leave first, `wanted` of them or twice as many, and the end of what they cover.
fn collect_ahead(
    version: &Arc<Version>,
    layout: &Arc<RowLayout>,
    until: u64,
    wanted: usize,
) -> Result<(Ahead, Option<Position>)> {
    // A walk copies what is in memory: mostly that is all newer.
    let mut version = Version::clone(version);
    version.frozen.retain(|(memtable, _)| memtable.oldest() <= until);
    if version.active.oldest() > until {
        version.active = Arc::new(Memtable::new(layout.clone()));
    }
    let version = Arc::new(version);
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
                is_cut = true;
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
    if is_cut && first.len() > wanted {
        first.select_nth_unstable(wanted - 1);
        first.truncate(wanted);
    }
    let end = match first.iter().max().filter(|_| is_cut) {
        Some(last) => last.clone().next(),
        _ if until == u64::MAX => Position { time: u64::MAX, key: Key::from_elem(0xFF, 64) },
        _ => Position { time: until + 1, key: Key::new() },
    };
    Ok((Ahead::of(first), Some(end)))
}
