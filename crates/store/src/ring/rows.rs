//! MAX_ROWS: counts the rows of a ring and finds those that leave next.

use std::collections::BTreeSet;
use std::sync::Arc;

use hashbrown::HashMap;
use rrd_codec::Values;

use crate::cursor::Cursor;
use crate::cursor::Direction;
use crate::error::Result;
use crate::horizon::{Gate, Position};
use crate::limits::{self, RANK_COUNTERS};
use crate::memtable::{Key, Memtable};
use crate::row::RowLayout;
use crate::snapshot::Snapshot;
use crate::version::Version;

use super::ahead::Ahead;
use super::counted::{Counted, Step};
use super::{RingState, newest_time};

/// What a look for the rows of a ring sees: a table as it was after some commit.
pub(super) struct RowsThen<'a> {
    pub version: &'a Arc<Version>,
    pub layout: &'a Arc<RowLayout>,
    pub snapshot: &'a Arc<Snapshot>,
}

impl RingState {
    /// Moves the horizon until no more than `max_rows` are left, as far as it is known which rows leave.
    pub(super) fn bound_rows(&mut self, gate: &Gate, max_rows: u64, seq: u64, snapshots: &[u64]) {
        let excess = |state: &RingState| state.counted.rows().map(|rows| rows.saturating_sub(max_rows));
        if let Some(most) = excess(self).filter(|&most| most > 0)
            && let Some((to, rows)) = self.counted.let_go(most)
        {
            gate.move_to(seq, to.clone(), snapshots);
            if let Some(journal) = &mut self.journal {
                journal.push(Step::Pass(to, Some(rows)));
            }
        }
        self.are_rows_due = excess(self) != Some(0);
    }
}

/// Counts the rows, unless that was done, and finds those that leave next, for a table that has `more` soon.
pub(super) fn look_for_rows(
    then: &RowsThen<'_>,
    counted: Option<u64>,
    (more, max_rows): (u64, u64),
    least: usize,
) -> Result<Counted> {
    let rows = match counted {
        Some(rows) => rows,
        None => count_rows(then.version, then.layout, then.snapshot)?,
    };
    let excess = (rows + more).saturating_sub(max_rows);
    if excess == 0 {
        return Ok(Counted::new(rows, None, (Ahead::default(), None)));
    }
    let mut before = None;
    if excess > least as u64 {
        // Many at once: up to a time they need not be told apart. The last one is found by its key.
        before = time_of_rank(then, excess - 1)?.map(|(time, rows)| (Position { time, key: Key::new() }, rows));
    }
    let known = before.as_ref().map_or(0, |(_, rows)| *rows);
    let from = before.as_ref().map_or_else(|| then.position(), |(end, _)| end.clone());
    let ahead = look_ahead(then, &from, excess - known, least)?;
    if before.is_none() && ahead.0.is_empty() && rows > max_rows {
        // Fewer rows than were counted.
        return match counted {
            Some(_) => look_for_rows(then, None, (more, max_rows), least),
            None => Ok(Counted::new(0, None, ahead)),
        };
    }
    Ok(Counted::new(rows, before, ahead))
}

impl RowsThen<'_> {
    /// Where the horizon was.
    fn position(&self) -> Position {
        self.version.gate.at(self.snapshot.seq()).map(|horizon| horizon.position).unwrap_or_default()
    }

    /// A walk over the rows.
    pub fn cursor(&self) -> Cursor {
        Cursor::new(self.version.clone(), self.layout.clone(), self.snapshot.clone(), None)
    }
}

/// Rows that are there, for certain. Segments that are alone in their chunk need not be read.
pub(crate) fn count_rows(version: &Arc<Version>, layout: &Arc<RowLayout>, snapshot: &Arc<Snapshot>) -> Result<u64> {
    let mut rest = Version::clone(version);
    let mut rows = 0;
    if let (Some(places), true) = (layout.places(), layout.schema().time.is_some()) {
        let horizon = version.gate.at(snapshot.seq());
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
    let mut cursor = Cursor::new(Arc::new(rest), layout.clone(), snapshot.clone(), None);
    cursor.seek(None, true, Direction::Forward)?;
    while let Some(span) = cursor.next_span(limits::GROUP_ROWS)? {
        rows += u64::from(span.rows);
    }
    Ok(rows)
}

/// Finds the rows from a position on that leave next, `wanted` of them or some more, and the end of what they cover.
fn look_ahead(then: &RowsThen<'_>, from: &Position, wanted: u64, least: usize) -> Result<(Ahead, Option<Position>)> {
    let wanted = (wanted as usize).clamp(least, least * 16);
    let until = time_of_next(then, from.time, wanted as u64);
    let (ahead, end) = collect_ahead(then, from, until, wanted)?;
    if ahead.is_empty() && until != u64::MAX {
        return collect_ahead(then, from, u64::MAX, wanted);
    }
    Ok((ahead, end))
}

/// The time up to which there are about so many rows, if those of each segment are spread evenly over its times; the end of
/// all times if there are fewer, or without a time column.
fn time_of_next(then: &RowsThen<'_>, from: u64, wanted: u64) -> u64 {
    if then.layout.schema().time.is_none() {
        return u64::MAX;
    }
    let metas: Vec<_> = then.version.segments.values().map(|s| s.meta()).filter(|m| m.max_time >= from).collect();
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
/// all times if they have not.
fn time_with_rows(then: &RowsThen<'_>, from: u64, wanted: u64) -> u64 {
    let mut metas: Vec<_> = then.version.segments.values().map(|s| s.meta()).filter(|m| m.max_time >= from).collect();
    metas.sort_by_key(|m| m.max_time);
    let mut rows = 0;
    let enough = metas.iter().find(|m| {
        rows += if m.min_time > from { m.rows } else { 0 };
        rows >= 2 * wanted
    });
    enough.map_or(u64::MAX, |m| m.max_time)
}

/// The time of the row that has `rank` rows before it, or of the last one if there are not so many, and how many rows are of
/// earlier times; `None` if none is, or without a time column. The rows are counted by parts of the time, then those of the part
/// that has the row by parts of it, and so on: memory does not depend on how many they are.
fn time_of_rank(then: &RowsThen<'_>, rank: u64) -> Result<Option<(u64, u64)>> {
    let Some(column) = then.layout.schema().time.map(|time| usize::from(time.column)) else { return Ok(None) };
    let horizon = then.position().time;
    let oldest =
        then.version.memtables().map(|m| m.oldest()).chain(then.version.segments.values().map(|s| s.meta().min_time));
    let mut low = oldest.min().unwrap_or(0).max(horizon);
    let mut high = time_with_rows(then, horizon, rank).min(newest_time(then.version).unwrap_or(0));
    let (mut rank, mut passed) = (rank, 0);
    while low <= high {
        let width = (high - low) / RANK_COUNTERS + 1;
        let mut counters = vec![0u64; RANK_COUNTERS as usize];
        let mut cursor = then.cursor();
        cursor.set_times(low, high);
        cursor.seek(None, true, Direction::Forward)?;
        while let Some(span) = cursor.next_span(limits::GROUP_ROWS)? {
            let Values::Int(times) = &span.group.column(column)?.values else { return Ok(None) };
            for time in &times[span.row(0)..span.row(0) + span.rows as usize] {
                if (low..=high).contains(time) {
                    counters[((time - low) / width) as usize] += 1;
                }
            }
        }
        let all: u64 = counters.iter().sum();
        let Some(last) = all.checked_sub(1) else { break };
        rank = rank.min(last);
        let mut part = 0;
        while let Some(rows) = counters.get(part).filter(|rows| rank >= **rows) {
            (rank, passed, part) = (rank - rows, passed + rows, part + 1);
        }
        low += part as u64 * width;
        if width == 1 {
            return Ok((passed > 0).then_some((low, passed)));
        }
        high = high.min(low + (width - 1));
    }
    Ok(None)
}

/// The rows from a position up to the time `until` that leave first, `wanted` of them or twice as many, and the end of what
/// they cover.
fn collect_ahead(then: &RowsThen<'_>, from: &Position, until: u64, wanted: usize) -> Result<(Ahead, Option<Position>)> {
    let layout = then.layout;
    // A walk copies what is in memory: mostly that is all newer.
    let mut version = Version::clone(then.version);
    version.frozen.retain(|(memtable, _)| memtable.oldest() <= until);
    if version.active.oldest() > until {
        version.active = Arc::new(Memtable::new(layout.clone()));
    }
    let version = Arc::new(version);
    let mut cursor = Cursor::new(version, layout.clone(), then.snapshot.clone(), None);
    let time_column = layout.schema().time.map(|t| usize::from(t.column));
    if time_column.is_some() {
        cursor.set_times(from.time, until);
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
            if time < from.time {
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
