//! The horizon of a table: the position before which rows are gone.
//!
//! A position is a time and, at that time, a clustering key (without a time column: the clustering key alone). The horizon
//! moves when a commit is applied, forward only, and has the commit's sequence number: a snapshot sees the rows that the
//! horizon of its moment left. Everything that reads rows asks the gate of the version that it reads; indexes share the
//! gate of their table, since an entry holds the clustering key of its row.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hashbrown::HashMap;
use parking_lot::RwLock;
use smallvec::SmallVec;

use crate::cursor::Direction;
use crate::error::Result;
use crate::flush::is_needed;
use crate::group::{Cell, OWN_SEQ, RowGroup};
use crate::key;
use crate::memtable::Key;
use crate::row::RowLayout;
use crate::schema::{Lane, Schema};
use crate::segment::SegmentMeta;
use crate::tier::SpaceRule;

/// For each series with a ring of its own a time; see [`Gate::series_gone`].
pub(crate) type SeriesLines = HashMap<Key, u64>;

/// A place in the order in which rows leave a table: by time, then by clustering key.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// As the time lane holds it; 0 without a time column.
    pub time: u64,
    /// Clustering sort key.
    pub key: Key,
}

impl Position {
    /// The first position behind this one.
    pub fn next(mut self) -> Position {
        self.key.push(0);
        self
    }

    /// As a property of the manifest and in the log holds it.
    pub fn encode(&self) -> Vec<u8> {
        [&self.time.to_le_bytes()[..], &self.key].concat()
    }

    /// What `encode` made.
    pub fn decode(bytes: &[u8]) -> Option<Position> {
        let (time, key) = bytes.split_at_checked(8)?;
        Some(Position { time: u64::from_le_bytes(time.try_into().ok()?), key: Key::from_slice(key) })
    }
}

/// What is gone for one snapshot.
#[derive(Clone)]
pub struct Horizon {
    /// Rows before it are gone.
    pub position: Position,
    /// Set for a table whose series have rings of their own.
    floors: Option<(Arc<Floors>, u64)>,
    /// Set where it says what may be removed from disk: rows behind a floor that tiers need stay.
    space: Option<Arc<SpaceRule>>,
}

/// The oldest keys of a series that are left, each with the sequence number from which on it holds.
type Floor = SmallVec<[(u64, Key); 1]>;

/// For each series whose own ring is full its floor.
#[derive(Default)]
struct Floors {
    of_series: RwLock<HashMap<Key, Floor>>,
}

/// Lets through what is not behind the horizon: shared by a table and its indexes, by all their versions.
#[derive(Default)]
pub struct Gate {
    /// The horizons that open snapshots see, oldest first, each with the sequence number from which on it holds.
    moves: RwLock<Vec<(u64, Position)>>,
    floors: RwLock<Option<Arc<Floors>>>,
    /// The position that the manifest has.
    kept: RwLock<Position>,
    /// See [`Gate::series_gone`].
    series_gone: RwLock<Arc<SeriesLines>>,
    /// Rows of this time and later ones are certainly not gone: asked for each row that is inserted.
    visible_from: AtomicU64,
}

impl Gate {
    /// Whether a row of this time (0 without a time column) may be gone now.
    pub fn may_hide(&self, time: u64) -> bool {
        time < self.visible_from.load(Ordering::Acquire)
    }

    fn note_move(&self, time: u64) {
        self.visible_from.fetch_max(time.saturating_add(1), Ordering::AcqRel);
    }

    /// What is gone for a snapshot; `None` if nothing is.
    pub fn at(&self, snapshot: u64) -> Option<Horizon> {
        let floors = self.floors.read().clone().map(|floors| (floors, snapshot));
        let moves = self.moves.read();
        let place = moves.partition_point(|(seq, _)| *seq <= snapshot);
        let position = place.checked_sub(1).map(|last| moves[last].1.clone());
        (position.is_some() || floors.is_some()).then(|| Horizon {
            position: position.unwrap_or_default(),
            floors,
            space: None,
        })
    }

    /// What is gone now.
    pub fn latest(&self) -> Option<Horizon> {
        self.at(u64::MAX)
    }

    /// The position of the horizon now.
    pub fn position(&self) -> Position {
        self.moves.read().last().map(|(_, position)| position.clone()).unwrap_or_default()
    }

    /// The sequence number of the last move.
    pub fn last_move(&self) -> u64 {
        self.moves.read().last().map_or(0, |(seq, _)| *seq)
    }

    /// Moves the horizon with the commit `seq`; `snapshots` ascend, as `Engine::open_snapshots` lists them.
    pub fn move_to(&self, seq: u64, position: Position, snapshots: &[u64]) {
        let mut moves = self.moves.write();
        self.note_move(position.time);
        moves.push((seq, position));
        forget(&mut moves, snapshots);
    }

    /// Takes up a horizon that the manifest or the log knows, if it is further.
    pub fn restore(&self, position: Position) {
        let mut moves = self.moves.write();
        if moves.last().is_none_or(|(_, known)| position > *known) && position != Position::default() {
            self.note_move(position.time);
            *moves = vec![(0, position)];
        }
    }

    /// Sets the horizon back, for all snapshots. Nothing may be left behind where it was.
    pub(crate) fn recall(&self, position: Position) {
        let mut moves = self.moves.write();
        if self.floors.read().is_none() {
            self.visible_from.store(position.time.saturating_add(1), Ordering::Release);
        }
        *self.kept.write() = position.clone();
        *moves = Vec::from_iter((position != Position::default()).then_some((0, position)));
    }

    /// The position that the manifest has.
    pub(crate) fn kept(&self) -> Position {
        self.kept.read().clone()
    }

    /// The manifest has this one now.
    pub(crate) fn note_kept(&self, position: Position) {
        *self.kept.write() = position;
    }

    /// Series and keys of the floors, if there are any.
    pub fn floors(&self) -> Option<Vec<(Key, Key)>> {
        let floors = self.floors.read().clone()?;
        let of_series = floors.of_series.read();
        let newest = |(series, floor): (&Key, &Floor)| Some((series.clone(), floor.last()?.1.clone()));
        Some(of_series.iter().filter_map(newest).collect::<Vec<_>>()).filter(|floors| !floors.is_empty())
    }

    /// The newest floor of a series.
    pub fn floor_of(&self, series: &[u8]) -> Option<Key> {
        let floors = self.floors.read().clone()?;
        let of_series = floors.of_series.read();
        of_series.get(series).and_then(|floor| floor.last()).map(|(_, key)| key.clone())
    }

    /// Takes up a floor that the manifest or the log knows, if it is further.
    pub fn restore_floor(&self, series: &[u8], key: Key) {
        if self.floor_of(series).is_none_or(|known| key > known) {
            self.raise_floor(0, series, key, &[]);
        }
    }

    /// Lets everything through again (TRUNCATE).
    pub fn reset(&self) {
        self.moves.write().clear();
        self.visible_from.store(0, Ordering::Release);
        *self.floors.write() = None;
        *self.kept.write() = Position::default();
        *self.series_gone.write() = Arc::default();
    }

    /// Buckets of a series that begin before this time cannot be computed from its rows any more: those that its own ring let
    /// go may be gone from disk.
    pub(crate) fn series_gone(&self) -> Arc<SeriesLines> {
        self.series_gone.read().clone()
    }

    /// The same, moved on to where `line_of` puts it for the floors that a snapshot sees.
    pub(crate) fn series_lines(&self, snapshot: u64, line_of: &dyn Fn(&[u8]) -> u64) -> Arc<SeriesLines> {
        let gone = self.series_gone();
        let Some(floors) = self.floors.read().clone() else { return gone };
        let mut lines = SeriesLines::clone(&gone);
        for (series, floor) in floors.of_series.read().iter() {
            if let Some((_, key)) = floor.iter().rev().find(|(seq, _)| *seq <= snapshot) {
                let line = lines.entry(series.clone()).or_default();
                *line = line_of(key).max(*line);
            }
        }
        Arc::new(lines)
    }

    /// Rows of series are about to go from disk.
    pub(crate) fn raise_series_gone(&self, lines: &Arc<SeriesLines>) {
        let mut gone = self.series_gone.write();
        if gone.is_empty() {
            *gone = lines.clone();
        } else if !Arc::ptr_eq(&gone, lines) {
            let gone = Arc::make_mut(&mut gone);
            for (series, &line) in lines.iter() {
                let known = gone.entry(series.clone()).or_default();
                *known = line.max(*known);
            }
        }
    }

    /// The rows of a series before `key` are gone with the commit `seq`.
    pub fn raise_floor(&self, seq: u64, series: &[u8], key: Key, snapshots: &[u64]) {
        let floors = self.floors.write().get_or_insert_default().clone();
        self.note_move(u64::MAX);
        let mut of_series = floors.of_series.write();
        let floor = of_series.entry(Key::from_slice(series)).or_default();
        floor.push((seq, key));
        if floor.len() > 1 {
            let mut kept = std::mem::take(floor).into_vec();
            forget(&mut kept, snapshots);
            *floor = kept.into();
        }
    }
}

/// Takes out what no snapshot sees.
fn forget<T>(moves: &mut Vec<(u64, T)>, snapshots: &[u64]) {
    let mut newer = u64::MAX;
    let needed: Vec<bool> = moves
        .iter()
        .rev()
        .map(|(seq, _)| {
            let is = is_needed(*seq, newer, snapshots);
            newer = *seq;
            is
        })
        .collect();
    let mut needed = needed.into_iter().rev();
    moves.retain(|_| needed.next().unwrap_or(true));
}

impl Horizon {
    /// The key of the oldest row that is left of a series, if its own ring has been full.
    pub fn floor(&self, series: &[u8]) -> Option<Key> {
        let (floors, snapshot) = self.floors.as_ref()?;
        let of_series = floors.of_series.read();
        let floor = of_series.get(series)?;
        floor.iter().rev().find(|(seq, _)| seq <= snapshot).map(|(_, key)| key.clone())
    }

    /// Whether a row of this time (0 without a time column), or a later one, may be behind it.
    pub(crate) fn may_hide_from(&self, time: u64) -> bool {
        self.floors.is_some() || time <= self.position.time
    }

    /// The snapshot that it is of, if series have floors.
    pub(crate) fn snapshot_of_floors(&self) -> Option<u64> {
        self.floors.as_ref().map(|(_, snapshot)| *snapshot)
    }

    /// Lets rows behind floors stay that tiers need.
    pub(crate) fn keep_buckets(&mut self, rule: SpaceRule) {
        self.space = Some(Arc::new(rule));
    }

    fn is_behind_floor(&self, key: &[u8], series: usize) -> bool {
        if self.floors.is_none() {
            return false;
        }
        match &self.space {
            None => self.floor(&key[..series]).is_some_and(|oldest| *key < *oldest),
            Some(rule) => rule.is_gone(&key[..series], key),
        }
    }
}

/// Where the rows of a table, or the entries of an index, have the position of the row.
#[derive(Clone, Debug, Default)]
pub struct Places {
    /// Column of the time, if the table has one.
    time: Option<usize>,
    /// Columns of the clustering key.
    key: Vec<usize>,
    /// How many of them name the series.
    series: usize,
}

impl Places {
    /// In the rows of a table.
    pub fn of_rows(schema: &Schema) -> Places {
        Places {
            time: schema.time.map(|t| usize::from(t.column)),
            key: schema.key.iter().map(|&k| usize::from(k)).collect(),
            series: schema.series_columns(),
        }
    }

    /// In the entries of an index, which have the clustering key of the row in `key`.
    pub fn of_entries(base: &Schema, key: &[usize]) -> Places {
        let time = base.time.and_then(|t| base.key.iter().position(|&k| k == t.column)).map(|part| key[part]);
        Places { time, key: key.to_vec(), series: base.series_columns() }
    }

    /// Whether all rows of a segment are certainly behind a horizon.
    pub fn is_gone(&self, layout: &RowLayout, meta: &SegmentMeta, horizon: &Horizon) -> bool {
        let knows_time = layout.schema().time.is_some();
        match self.time {
            Some(_) => knows_time && meta.max_time < horizon.position.time,
            None => self.is_key_order(layout) && *meta.last_key < *horizon.position.key,
        }
    }

    /// Whether all rows of a segment are certainly before a horizon's position, none gone.
    pub fn is_all_there(&self, layout: &RowLayout, meta: &SegmentMeta, horizon: &Horizon) -> bool {
        if horizon.floors.is_some() {
            return false;
        }
        match self.time {
            Some(_) => layout.schema().time.is_some() && meta.min_time > horizon.position.time,
            None => self.is_key_order(layout) && *meta.first_key >= *horizon.position.key,
        }
    }

    /// Whether rows lie in the order in which they leave the table.
    fn is_key_order(&self, layout: &RowLayout) -> bool {
        layout.schema().index_of.is_none()
    }

    /// Whether a row is behind a horizon.
    pub fn is_row_gone(&self, group: &RowGroup, row: usize, horizon: &Horizon) -> Result<bool> {
        let position = &horizon.position;
        if let Some(time) = self.time {
            let time = time_of(group, time, row)?;
            if time < position.time {
                return Ok(true);
            }
            if time > position.time && horizon.floors.is_none() {
                return Ok(false);
            }
        }
        let mut key = Key::new();
        let series = self.push_key(group, row, &mut key)?;
        let at_edge = match self.time {
            Some(time) => time_of(group, time, row)? == position.time,
            None => true,
        };
        Ok((at_edge && key < position.key) || horizon.is_behind_floor(&key, series))
    }

    /// Whether the row of a sort key is behind a horizon; for rows of a table.
    pub fn is_key_gone(&self, layout: &RowLayout, key: &[u8], horizon: &Horizon) -> bool {
        let time = layout.time_of_key(key).unwrap_or(0);
        let position = &horizon.position;
        (time, key) < (position.time, &position.key[..])
            || horizon.is_behind_floor(key, layout.series_of(key).map_or(0, <[u8]>::len))
    }

    /// Whether a row of a table, or an entry of an index, is behind a horizon. An entry that is gone (`None`) may not say.
    pub fn is_row_bytes_gone(&self, layout: &RowLayout, key: &[u8], row: Option<&[u8]>, horizon: &Horizon) -> bool {
        if layout.schema().index_of.is_none() {
            return self.is_key_gone(layout, key, horizon);
        }
        let Some(row) = row else { return false };
        let view = layout.view(row);
        let (mut base, mut series) = (Key::new(), 0);
        for (part, &c) in self.key.iter().enumerate() {
            match layout.schema().columns[c].lane {
                Lane::Int { width } => key::push_int(&mut base, view.int(c), width),
                _ => key::push_bytes(&mut base, view.bytes(c)),
            }
            if part + 1 == self.series {
                series = base.len();
            }
        }
        let time = self.time.map_or(0, |c| view.int(c));
        (time, &base[..]) < (horizon.position.time, &horizon.position.key[..]) || horizon.is_behind_floor(&base, series)
    }

    /// Appends the clustering key of a row; returns the length of its series.
    pub fn push_key(&self, group: &RowGroup, row: usize, out: &mut Key) -> Result<usize> {
        let mut series = 0;
        for (part, &c) in self.key.iter().enumerate() {
            group.push_key_part(c, row, out)?;
            if part + 1 == self.series {
                series = out.len();
            }
        }
        Ok(series)
    }

    /// The first rows of a run that are there, as `(rows to skip, rows that are there)`; `(rows, 0)` if none is.
    pub fn next_there(
        &self,
        group: &RowGroup,
        first: usize,
        rows: usize,
        direction: Direction,
        horizon: &Horizon,
    ) -> Result<(usize, usize)> {
        let at = |n: usize| match direction {
            Direction::Forward => first + n,
            Direction::Backward => first - n,
        };
        if let Some(segment) = group.segment()
            && self.is_all_there(group.layout(), segment.meta(), horizon)
        {
            return Ok((0, rows));
        }
        let is_there = |n: usize| -> Result<bool> {
            // Own writes are the transaction's until it commits.
            Ok(group.seq(at(n)) >= OWN_SEQ || !self.is_row_gone(group, at(n), horizon)?)
        };
        let mut skipped = 0;
        while skipped < rows && !is_there(skipped)? {
            skipped += 1;
        }
        let mut there = 0;
        while skipped + there < rows && is_there(skipped + there)? {
            there += 1;
        }
        Ok((skipped, there))
    }
}

/// The time of a row. A tombstone may have none.
fn time_of(group: &RowGroup, column: usize, row: usize) -> Result<u64> {
    Ok(if let Cell::Int(time) = group.cell(column, row)? { time } else { 0 })
}
