//! SERIES_MAX_ROWS: the same for each series that is written to.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::cursor::Cursor;
use crate::cursor::Direction;
use crate::engine::Engine;
use crate::error::Result;
use crate::horizon::Position;
use crate::key;
use crate::limits;
use crate::memtable::Key;
use crate::row::RowLayout;
use crate::snapshot::Snapshot;
use crate::version::Version;

use super::RingChange;
use super::RingState;

/// Oldest keys of a series that one look finds.
const SERIES_AHEAD: usize = 16;

/// Series that are kept; then all are forgotten and looked up anew.
const SERIES_KEPT: usize = 1 << 20;

/// The same of one series with a ring of its own.
pub(super) struct SeriesState {
    /// Its rows.
    rows: u64,
    /// Keys of its oldest rows, in order; empty only if there is no row.
    ahead: VecDeque<Key>,
    /// The horizon that they were counted for.
    horizon: Position,
}

impl Engine {
    /// Raises the floors of the series that a commit wrote to until none has more than `max` rows.
    #[expect(clippy::too_many_arguments, reason = "one caller, which has it all at hand")]
    pub(super) fn bound_series(
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
                state.fallen += leaving;
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
    pub(super) fn bound_all_series(
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
                state.fallen += u64::from(rows > max);
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
