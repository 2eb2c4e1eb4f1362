//! SERIES_MAX_ROWS: the same for each series that is written to.

use std::collections::{BTreeSet, VecDeque};

use hashbrown::HashMap;

use crate::cursor::Direction;
use crate::error::Result;
use crate::horizon::{Gate, Horizon, Position};
use crate::key;
use crate::limits;
use crate::memtable::Key;
use crate::row::RowLayout;

use super::counted::Step;
use super::rows::RowsThen;
use super::{RingChange, RingState};

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

    /// The newest of the keys that are known of a series.
    fn last_ahead(&self, series: &Key) -> Option<Key> {
        self.of_series.get(series)?.ahead.back().cloned()
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

/// What has to be looked up about series: each with the number of keys that are wanted.
#[derive(Default)]
pub(super) struct DueSeries {
    /// Any may have too many rows.
    pub all: bool,
    some: HashMap<Key, usize>,
}

/// What a look for series is to find.
pub(super) enum SeriesLook {
    All,
    /// Of each series so many keys: those behind a known one, or the first, and then all its rows are counted.
    Some(Vec<(Key, Option<Key>, usize)>),
}

/// What it found.
pub(super) enum FoundSeries {
    /// The series that had too many rows: the oldest key that is left, and how many rows go.
    All(Vec<(Key, Key, u64)>),
    Some(Vec<(Key, OfSeries)>),
}

pub(super) enum OfSeries {
    Counted(SeriesState),
    Further(Vec<Key>),
}

/// A commit that moves floors.
pub(super) struct Turn<'a> {
    pub gate: &'a Gate,
    pub layout: &'a RowLayout,
    pub seq: u64,
    pub snapshots: &'a [u64],
}

impl DueSeries {
    pub fn is_empty(&self) -> bool {
        !self.all && self.some.is_empty()
    }

    /// What is to be found about series that are in part known.
    pub fn look(&self, known: &KnownSeries) -> SeriesLook {
        match self.all {
            true => SeriesLook::All,
            false => {
                let some = self.some.iter().map(|(series, &keys)| (series.clone(), known.last_ahead(series), keys));
                SeriesLook::Some(some.collect())
            }
        }
    }
}

impl SeriesLook {
    /// Finds it, of a table as it was after some commit.
    pub fn find(self, then: &RowsThen<'_>, max: u64) -> Result<FoundSeries> {
        let some = match self {
            SeriesLook::All => return look_for_all_series(then, max),
            SeriesLook::Some(some) => some,
        };
        let found = some.into_iter().map(|(series, after, keys)| {
            let of_series = match after {
                None => OfSeries::Counted(count_series(then, &series, keys)?),
                Some(last) => {
                    let mut further = Vec::new();
                    walk_series(then, &series, (&last, false), &mut |key| {
                        further.push(Key::from_slice(key));
                        further.len() < keys
                    })?;
                    OfSeries::Further(further)
                }
            };
            Ok((series, of_series))
        });
        Ok(FoundSeries::Some(found.collect::<Result<_>>()?))
    }
}

impl RingState {
    /// Raises the floors of the series that a commit wrote to until none has more than `max` rows, as far as it is known which
    /// rows go. What is not known is due.
    pub(super) fn bound_series(&mut self, max: u64, change: &RingChange, turn: &Turn<'_>) {
        // After a large statement every series may be concerned.
        self.due_series.all |= change.private_rows != Some(0);
        if self.due_series.all {
            return;
        }
        let horizon = turn.gate.latest();
        let is_gone = |key: &Key| is_gone(turn.layout, horizon.as_ref(), key);
        let mut rows = change.rows.iter().peekable();
        while let Some((position, _)) = rows.peek() {
            let series = Key::from_slice(turn.layout.series_of(&position.key).unwrap_or(&[]));
            let known = self.series.take(&series);
            let keys = self.keys_of_look(known.as_ref());
            let mut known = known.and_then(|known| known.without_gone(&is_gone));
            while let Some((position, added)) = rows.next_if(|(p, _)| p.key.starts_with(&series)) {
                if !is_gone(&position.key) {
                    known = known.and_then(|known| known.note(&position.key, *added));
                }
            }
            match known {
                Some(known) => self.bound_one(series, known, max, turn),
                None => _ = self.due_series.some.entry(series).or_insert(keys),
            }
        }
    }

    fn keys_of_look(&self, known: Option<&SeriesState>) -> usize {
        let has_room = self.series.keys < KEYS_OF_LONG_LOOKS;
        known.filter(|_| has_room).map_or(SERIES_AHEAD, |known| known.block)
    }

    /// Raises the floor of a series until it has no more than `max` rows.
    fn bound_one(&mut self, series: Key, mut of_series: SeriesState, max: u64, turn: &Turn<'_>) {
        let leaving = of_series.rows.saturating_sub(max).min(of_series.ahead.len().saturating_sub(1) as u64);
        for key in of_series.ahead.drain(..leaving as usize) {
            self.note_step(Step::Row(Position { time: turn.layout.time_of_key(&key).unwrap_or(0), key }, false));
        }
        of_series.rows -= leaving;
        self.fallen += leaving;
        if let Some(floor) = of_series.ahead.front().filter(|_| leaving > 0) {
            turn.gate.raise_floor(turn.seq, &series, floor.clone(), turn.snapshots);
        }
        if of_series.rows > max {
            let leaving_yet = (of_series.rows - max).min(limits::SERIES_LOOK_KEYS) as usize;
            let keys = self.keys_of_look(Some(&of_series)).max(leaving_yet);
            self.due_series.some.insert(series.clone(), keys);
        }
        self.series.put(series, of_series);
    }

    /// Takes up what a look found, and what commits did since it began.
    pub(super) fn adopt_series(&mut self, found: FoundSeries, steps: &[Step], max: u64, turn: &Turn<'_>) {
        let mut of_series: HashMap<&[u8], Vec<(&Key, bool)>> = HashMap::new();
        for step in steps {
            if let Step::Row(position, added) = step {
                let series = turn.layout.series_of(&position.key).unwrap_or(&[]);
                of_series.entry(series).or_default().push((&position.key, *added));
            }
        }
        match found {
            FoundSeries::All(floors) => {
                self.note_step(Step::Unknown);
                self.series.clear();
                self.due_series.all = false;
                for (series, floor, rows) in floors {
                    // Where rows went, there may be too few of them now.
                    if of_series.get(&*series).is_none_or(|rows| rows.iter().all(|(_, added)| *added)) {
                        turn.gate.raise_floor(turn.seq, &series, floor, turn.snapshots);
                        self.fallen += rows;
                    }
                }
                let again = of_series.into_keys().map(|series| (Key::from_slice(series), SERIES_AHEAD));
                self.due_series.some = again.collect();
            }
            FoundSeries::Some(some) => {
                let horizon = turn.gate.latest();
                let is_gone = |key: &Key| is_gone(turn.layout, horizon.as_ref(), key);
                for (series, found) in some {
                    let keys = self.due_series.some.remove(&series).unwrap_or(SERIES_AHEAD);
                    let steps = of_series.remove(&*series).unwrap_or_default();
                    let known = match found {
                        OfSeries::Counted(counted) => {
                            steps.iter().try_fold(counted, |known, (key, added)| known.note(key, *added))
                        }
                        OfSeries::Further(further) => {
                            self.series.take(&series).and_then(|known| known.with_further(further, &steps))
                        }
                    };
                    match known.and_then(|known| known.without_gone(&is_gone)) {
                        Some(known) => self.bound_one(series, known, max, turn),
                        None => _ = self.due_series.some.insert(series, keys.min(MOST_AHEAD)),
                    }
                }
            }
        }
    }
}

fn is_gone(layout: &RowLayout, horizon: Option<&Horizon>, key: &Key) -> bool {
    match (horizon, layout.places()) {
        (Some(horizon), Some(places)) => places.is_key_gone(layout, key, horizon),
        _ => false,
    }
}

/// Looks through a whole table for series that have more than `max` rows.
fn look_for_all_series(then: &RowsThen<'_>, max: u64) -> Result<FoundSeries> {
    let mut floors: Vec<(Key, Key, u64)> = Vec::new();
    let mut cursor = then.cursor();
    cursor.seek(None, true, Direction::Backward)?;
    let mut series: Option<Vec<u8>> = None;
    let mut oldest = Key::new();
    let mut rows = 0;
    let mut key = Vec::new();
    while let Some(span) = cursor.next_span(limits::GROUP_ROWS)? {
        for n in 0..span.rows {
            key.clear();
            span.group.push_key(span.row(n), &mut key)?;
            let of_row = then.layout.series_of(&key).unwrap_or(&[]);
            if series.as_deref() != Some(of_row) {
                series = Some(of_row.to_vec());
                rows = 0;
            }
            rows += 1;
            if rows == max {
                oldest = Key::from_slice(&key);
            } else if rows == max + 1 {
                floors.push((Key::from_slice(of_row), std::mem::take(&mut oldest), 1));
            } else if rows > max
                && let Some((.., fallen)) = floors.last_mut()
            {
                *fallen += 1;
            }
        }
    }
    Ok(FoundSeries::All(floors))
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

    /// With the keys that followed those that were known, and what became of them since; `None` if there are none: it has fewer
    /// rows than were counted.
    fn with_further(mut self, further: Vec<Key>, steps: &[(&Key, bool)]) -> Option<SeriesState> {
        let last = self.ahead.back()?;
        let mut keys: BTreeSet<Key> = further.into_iter().collect();
        let end = keys.last()?.clone();
        for (key, added) in steps.iter().filter(|(key, _)| **key <= end) {
            match added {
                true => _ = keys.insert((*key).clone()),
                false => _ = keys.remove(*key),
            }
        }
        let (is_more, last) = (keys.last() > Some(last), last.clone());
        self.ahead.extend(keys.into_iter().filter(|key| *key > last));
        self.block = next_block(self.block);
        is_more.then_some(self)
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
fn count_series(then: &RowsThen<'_>, series: &[u8], block: usize) -> Result<SeriesState> {
    let floor = then.version.gate.at(then.snapshot.seq()).and_then(|horizon| horizon.floor(series));
    let mut ahead = VecDeque::new();
    let mut rows = 0;
    walk_series(then, series, (floor.as_deref().unwrap_or(series), true), &mut |key| {
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
    then: &RowsThen<'_>,
    series: &[u8],
    (from, is_included): (&[u8], bool),
    take: &mut dyn FnMut(&[u8]) -> bool,
) -> Result<()> {
    let mut cursor = then.cursor();
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

    use std::sync::Arc;

    use super::*;
    use crate::engine::Engine;
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
