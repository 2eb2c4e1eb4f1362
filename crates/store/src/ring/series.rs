//! SERIES_MAX_ROWS: the same for each series that is written to.

use std::collections::VecDeque;
use std::sync::Arc;

use hashbrown::HashMap;

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

/// Oldest keys of a series that the first look finds. Each further look for the same series finds twice as many.
const SERIES_AHEAD: usize = 16;

/// Oldest keys of a series that are kept at most.
const MOST_AHEAD: usize = 1024;

/// Keys that are kept of all series of a table; then all are forgotten and looked up again.
const KEYS_KEPT: usize = 16 << 20;

/// With so many keys looks find no more than the first ones do.
const KEYS_OF_LONG_LOOKS: usize = 2 << 20;

/// What is known of one series with a ring of its own. It stays right from commit to commit, so that a commit costs what its
/// own rows cost: a series is counted once, and later looks find the rows that leave next without a count.
pub(super) struct SeriesState {
    /// Its rows, those in `ahead` that are older than the horizon included.
    rows: u64,
    /// Keys of its oldest rows, in order; empty only if there is no row.
    ahead: VecDeque<Key>,
    /// How many keys the next look finds.
    block: usize,
}

/// The series of a table that were written to.
#[derive(Default)]
pub(super) struct KnownSeries {
    of_series: HashMap<Key, SeriesState>,
    /// In the states.
    keys: usize,
}

impl KnownSeries {
    /// Forgets all.
    pub fn clear(&mut self) {
        *self = KnownSeries::default();
    }

    fn take(&mut self, series: &Key) -> Option<SeriesState> {
        let state = self.of_series.remove(series)?;
        self.keys -= state.ahead.len();
        Some(state)
    }

    fn put(&mut self, series: Key, state: SeriesState) {
        // A series without rows has a place as well.
        if self.keys + self.of_series.len() >= KEYS_KEPT {
            self.clear();
        }
        self.keys += state.ahead.len();
        self.of_series.insert(series, state);
    }
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
        let horizon = version.gate.latest();
        let is_gone = |key: &Key| match (&horizon, layout.places()) {
            (Some(horizon), Some(places)) => places.is_key_gone(layout, key, horizon),
            _ => false,
        };
        let mut rows = change.rows.iter().peekable();
        while let Some((position, _)) = rows.peek() {
            let series = Key::from_slice(layout.series_of(&position.key).unwrap_or(&[]));
            let mut known = state.series.take(&series);
            let has_room = state.series.keys < KEYS_OF_LONG_LOOKS;
            let block = known.as_ref().filter(|_| has_room).map_or(SERIES_AHEAD, |known| known.block);
            known = known.and_then(|known| known.without_gone(&is_gone));
            while let Some((position, added)) = rows.next_if(|(p, _)| p.key.starts_with(&series)) {
                if !is_gone(&position.key) {
                    known = known.and_then(|known| known.note(&position.key, *added));
                }
            }
            let mut of_series = match known {
                Some(known) => SeriesState { block, ..known },
                None => count_series(version, layout, &series, block)?,
            };
            while of_series.rows > max {
                if of_series.ahead.len() < 2 && !of_series.look_further(version, layout, &series)? {
                    // Fewer rows than were counted.
                    of_series = count_series(version, layout, &series, block)?;
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
            state.series.put(series, of_series);
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
        state.series.clear();
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
    /// Without the rows that age, or a late commit's floor, has taken since; `None` if these are more than are known by key.
    fn without_gone(mut self, is_gone: &dyn Fn(&Key) -> bool) -> Option<SeriesState> {
        while let Some(oldest) = self.ahead.front()
            && is_gone(oldest)
        {
            self.ahead.pop_front();
            self.rows = self.rows.checked_sub(1)?;
        }
        (self.rows == 0 || !self.ahead.is_empty()).then_some(self)
    }

    /// Finds the keys that follow those that are known; false if there are none.
    fn look_further(&mut self, version: &Arc<Version>, layout: &Arc<RowLayout>, series: &[u8]) -> Result<bool> {
        let Some(last) = self.ahead.back().cloned() else { return Ok(false) };
        let wanted = self.ahead.len() + self.block;
        walk_series(version, layout, series, (&last, false), &mut |key| {
            self.ahead.push_back(Key::from_slice(key));
            self.ahead.len() < wanted
        })?;
        self.block = next_block(self.block);
        Ok(self.ahead.len() > 1)
    }

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
fn count_series(version: &Arc<Version>, layout: &Arc<RowLayout>, series: &[u8], block: usize) -> Result<SeriesState> {
    let floor = version.gate.latest().and_then(|horizon| horizon.floor(series));
    let mut ahead = VecDeque::new();
    let mut rows = 0;
    walk_series(version, layout, series, (floor.as_deref().unwrap_or(series), true), &mut |key| {
        rows += 1;
        if ahead.len() < block {
            ahead.push_back(Key::from_slice(key));
        }
        true
    })?;
    Ok(SeriesState { rows, ahead, block: next_block(block) })
}

fn next_block(block: usize) -> usize {
    (block * 2).min(MOST_AHEAD)
}

/// Walks over the rows of a series from a key on, that one too or not, for as long as `take` wants more.
fn walk_series(
    version: &Arc<Version>,
    layout: &Arc<RowLayout>,
    series: &[u8],
    (from, is_included): (&[u8], bool),
    take: &mut dyn FnMut(&[u8]) -> bool,
) -> Result<()> {
    let mut cursor = Cursor::new(version.clone(), layout.clone(), Snapshot::latest(), None);
    let end = key::prefix_end(series);
    cursor.set_bounds(Some(from), end.as_deref());
    cursor.seek(Some(from), is_included, Direction::Forward)?;
    let mut key = Vec::new();
    while let Some(span) = cursor.next_span(limits::GROUP_ROWS)? {
        for n in 0..span.rows {
            key.clear();
            span.group.push_key(span.row(n), &mut key)?;
            #[cfg(test)]
            tests::WALKED.set(tests::WALKED.get() + 1);
            if end.as_deref().is_some_and(|end| key.as_slice() >= end) || !take(&key) {
                return Ok(());
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

    use std::cell::Cell;

    use super::*;
    use crate::fs::sim::SimFs;
    use crate::schema::{Ring, Schema};
    use crate::table::Table;
    use crate::{Config, OnDuplicate};

    thread_local! {
        /// Rows that looks have come by.
        pub(super) static WALKED: Cell<u64> = const { Cell::new(0) };
    }

    const SCHEMA: &str = r#"{"version": 1, "columns": [
        {"id": 0, "name": "series", "lane": {"int": {"width": 4}}, "nullable": false},
        {"id": 1, "name": "ts", "lane": {"int": {"width": 4}}, "nullable": false}],
        "key": [0, 1], "time": {"column": 1, "unit": "s"}}"#;

    fn open(ring: Ring) -> (Arc<Engine>, Arc<Table>) {
        let config = Config { background: false, clock_micros: Some(i64::MAX / 2), ..Config::new("/data/rrd") };
        let engine = Engine::open(config, Arc::new(SimFs::new())).unwrap();
        let schema: Schema = serde_json::from_str(SCHEMA).unwrap();
        engine.create_table("db/t", Schema { ring, ..schema }).unwrap();
        let table = engine.table("db/t").unwrap();
        (engine, table)
    }

    fn insert(engine: &Arc<Engine>, table: &Arc<Table>, series: u64, times: impl Iterator<Item = u64>) {
        let mut txn = engine.begin();
        let layout = table.layout();
        for time in times {
            let mut row = Vec::new();
            let mut writer = layout.writer(&mut row);
            writer.set_int(0, series);
            writer.set_int(1, time);
            writer.finish();
            txn.insert(table, &row, OnDuplicate::Fail).unwrap();
        }
        txn.commit().unwrap();
    }

    fn times(engine: &Arc<Engine>, table: &Arc<Table>, series: u64) -> Vec<u64> {
        let mut times = Vec::new();
        let mut prefix = Vec::new();
        key::push_int(&mut prefix, series, 4);
        let mut cursor = engine.begin().cursor(table).unwrap();
        cursor.set_bounds(Some(&prefix), key::prefix_end(&prefix).as_deref());
        cursor.seek(Some(&prefix), true, Direction::Forward).unwrap();
        while let Some(span) = cursor.next_span(1000).unwrap() {
            let rrd_codec::Values::Int(column) = &span.group.column(1).unwrap().values else { unreachable!() };
            times.extend_from_slice(&column[span.row(0)..span.row(0) + span.rows as usize]);
        }
        times
    }

    fn walked(work: impl FnOnce()) -> u64 {
        let before = WALKED.get();
        work();
        WALKED.get() - before
    }

    #[test]
    fn a_commit_to_a_full_series_costs_what_its_rows_cost() {
        const MAX: u64 = 5000;
        for retention in [None, Some(1_000_000_000_000)] {
            let (engine, table) = open(Ring { series_max_rows: Some(MAX), retention, ..Ring::default() });
            insert(&engine, &table, 7, 0..MAX);
            engine.flush_all().unwrap();
            insert(&engine, &table, 7, MAX..MAX + 1);
            let rows = MAX + 1..MAX + 3001;
            let cost = walked(|| rows.clone().for_each(|time| insert(&engine, &table, 7, time..time + 1)));
            assert_eq!(times(&engine, &table, 7), Vec::from_iter(rows.end - MAX..rows.end), "{retention:?}");
            assert!(cost < 2 * 3000, "{cost} rows were looked at for 3000 commits, {retention:?}");
        }
    }

    #[test]
    fn a_statement_of_many_rows_costs_what_its_rows_cost() {
        let (engine, table) = open(Ring { series_max_rows: Some(10), ..Ring::default() });
        insert(&engine, &table, 1, 0..10);
        let cost = walked(|| insert(&engine, &table, 1, 10..20_010));
        assert_eq!(times(&engine, &table, 1), Vec::from_iter(20_000..20_010));
        assert!(cost < 3 * 20_000, "{cost} rows were looked at for 20000");
    }

    #[test]
    fn rows_that_age_takes_are_not_counted_for_the_series() {
        // 100 s are kept, and 80 rows: at a row a second the series is full, at one in two seconds age takes them.
        let (engine, table) = open(Ring { series_max_rows: Some(80), retention: Some(100_000_000), ..Ring::default() });
        let mut now = 1000;
        let mut expected: Vec<u64> = Vec::new();
        for step in 0..600 {
            now += if step / 150 % 2 == 0 { 1 } else { 2 };
            insert(&engine, &table, 3, now..now + 1);
            expected.push(now);
            expected.retain(|time| *time + 100 >= now);
            let surplus = expected.len().saturating_sub(80);
            expected.drain(..surplus);
            assert_eq!(times(&engine, &table, 3), expected, "step {step}");
        }
    }
}
