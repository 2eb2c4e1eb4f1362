//! A scan: a walk over the rows that a snapshot sees, in key order, either way.
//!
//! The cursor merges the transaction's own writes, the memtables and the segments of one version of the table. It
//! hands out spans: rows side by side in one group, whose columns are decoded when asked for.

use std::sync::Arc;

use parking_lot::RwLock;

use crate::aggregate::{Condition, Filter, View, are_about};
use crate::error::Result;
use crate::group::OWN_SEQ;
pub use crate::group::{Part, RowGroup, Span};
use crate::horizon::Horizon;
use crate::index::Index;
use crate::memtable::RowCollector;
use crate::merge::{Event, Merge};
use crate::own::OwnWrites;
use crate::row::RowLayout;
use crate::snapshot::Snapshot;
use crate::source::{Input, Source};
use crate::table::{Table, segment_row_at};
use crate::tier::TierWalk;
use crate::version::Version;

/// Which way a cursor walks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Ascending keys.
    Forward,
    /// Descending keys.
    Backward,
}

/// A walk over a table in key order. It owns what it reads: it may outlive the call, not the transaction.
pub struct Cursor {
    version: Arc<Version>,
    layout: Arc<RowLayout>,
    snapshot: Arc<Snapshot>,
    own: Option<Arc<RwLock<OwnWrites>>>,
    /// `OwnWrites::generation` that the merge was built for.
    own_generation: u64,
    bounds: Bounds,
    direction: Direction,
    merge: Option<Merge>,
    /// The last row handed out, to go on behind it.
    last: Option<(Arc<RowGroup>, usize)>,
    /// Where the walk began, while nothing was handed out.
    start: (Option<Vec<u8>>, bool),
    /// Set for a walk over the entries of an index: where the rows are.
    rows: Option<IndexedRows>,
    /// What is gone for the snapshot.
    horizon: Option<Horizon>,
    /// The rest of a run that the horizon parts: group, first row, rows.
    rest: Option<(Arc<RowGroup>, usize, usize)>,
    /// Set for a walk over a tier some buckets of which have to be computed.
    tier: Option<Box<TierWalk>>,
    /// Only rows of these times are of interest, whatever the bounds.
    times: Option<(u64, u64)>,
    /// It reads on to its bound.
    reads_all: bool,
    /// Rows that do not meet it may be left out.
    filter: Option<Filter>,
}

/// The table that the entries of an index lead to.
struct IndexedRows {
    index: Arc<Index>,
    cursor: Box<Cursor>,
    /// Entries whose rows were not handed out yet.
    entries: Option<(Span, u32)>,
    /// Sort key in the index of the row handed out last.
    entry_key: Vec<u8>,
    /// Buffers.
    entry: Vec<u8>,
    row_key: Vec<u8>,
}

/// The keys that matter: `low <= key < high`, and the times that they can have.
#[derive(Clone, Default)]
struct Bounds {
    low: Option<Vec<u8>>,
    high: Option<Vec<u8>>,
    times: Option<(u64, u64)>,
}

impl IndexedRows {
    /// Whether `entry` is the entry of this row.
    fn leads_to(&self, entry: &[u8], group: &RowGroup, row: usize) -> Result<bool> {
        let (mut bytes, mut of_row) = (Vec::new(), Vec::new());
        group.push_row(row, &mut bytes)?;
        self.index.push_entry(&self.cursor.layout, &bytes, &mut of_row)?;
        Ok(of_row == entry)
    }
}

impl Bounds {
    /// Whether a walk in `direction` has left the bounds with this key.
    fn is_passed(&self, key: &[u8], direction: Direction) -> bool {
        match direction {
            Direction::Forward => self.high.as_deref().is_some_and(|high| key >= high),
            Direction::Backward => self.low.as_deref().is_some_and(|low| key < low),
        }
    }
}

impl Cursor {
    pub(crate) fn new(
        version: Arc<Version>,
        layout: Arc<RowLayout>,
        snapshot: Arc<Snapshot>,
        own: Option<Arc<RwLock<OwnWrites>>>,
    ) -> Cursor {
        let horizon = version.gate.at(snapshot.seq());
        Cursor {
            horizon,
            rest: None,
            version,
            layout,
            snapshot,
            own,
            own_generation: 0,
            bounds: Bounds::default(),
            direction: Direction::Forward,
            merge: None,
            last: None,
            start: (None, true),
            rows: None,
            tier: None,
            times: None,
            reads_all: false,
            filter: None,
        }
    }

    /// Says that only rows are of interest for which all of these conditions hold: others may be left out, or come though
    /// they were deleted, and spans may be without rows. Nothing changes for a walk over a tier or in the order of an index.
    pub fn limit_to(&mut self, conditions: &Arc<[Condition]>) {
        if !self.is_plain() || !are_about(conditions, self.layout.schema()) {
            return;
        }
        let filter = Filter::new(conditions.clone());
        self.limit_times(filter.times(&self.layout));
        self.filter = Some(filter);
    }

    /// Says that walks go on to their bounds.
    pub(crate) fn reading_all(mut self) -> Cursor {
        self.reads_all = true;
        self
    }

    /// Makes a walk over the stored rows of a tier one over all of its rows.
    pub(crate) fn with_tier(mut self, walk: TierWalk) -> Cursor {
        self.tier = Some(Box::new(walk));
        self
    }

    /// Whether it walks over stored rows in the order of their keys.
    fn is_plain(&self) -> bool {
        self.tier.is_none() && self.rows.is_none()
    }

    /// What it reads, for readers that do not walk. None of a walk over a tier, or in the order of an index.
    pub(crate) fn view(&self) -> Option<View> {
        self.is_plain().then(|| View {
            version: self.version.clone(),
            layout: self.layout.clone(),
            snapshot: self.snapshot.clone(),
            own: self.own.clone(),
            horizon: self.horizon.clone(),
        })
    }

    /// From the next `seek` on only rows with a time between these are of interest; others may be left out.
    pub(crate) fn limit_times(&mut self, times: (u64, u64)) {
        self.times = Some(times);
        if let Some(tier) = &mut self.tier {
            tier.limit_times(times);
        }
    }

    /// Makes a walk over the entries of `index` one over the rows that they lead to.
    pub(crate) fn leading_to(mut self, rows: Cursor, index: Arc<Index>) -> Cursor {
        self.rows = Some(IndexedRows {
            index,
            cursor: Box::new(rows),
            entries: None,
            entry_key: Vec::new(),
            entry: Vec::new(),
            row_key: Vec::new(),
        });
        self
    }

    /// For a walk in the order of an index: the sort key in the index of the row handed out last. Such a walk hands
    /// out one row at a time, and none outside its bounds.
    pub fn entry_key(&self) -> Option<&[u8]> {
        self.rows.as_ref().map(|rows| rows.entry_key.as_slice())
    }

    /// The layout that the columns of its spans refer to.
    pub fn layout(&self) -> &Arc<RowLayout> {
        self.rows.as_ref().map_or(&self.layout, |rows| &rows.cursor.layout)
    }

    /// Whether it sees commits that another one does not see.
    pub fn is_newer_than(&self, other: &Cursor) -> bool {
        self.snapshot.seq() > other.snapshot.seq()
    }

    /// Whether own writes of its transaction are among what it reads.
    pub(crate) fn has_own_writes(&self) -> bool {
        self.own_generation != 0 || self.own.as_ref().is_some_and(|own| !own.read().is_empty())
    }

    /// The last commit that it sees.
    pub(crate) fn snapshot_seq(&self) -> u64 {
        self.snapshot.seq()
    }

    /// From the next `seek` on only rows with `low <= key < high` are of interest (`None`: open); the walk may
    /// end at a bound. When both bounds lie in one series, chunks outside their times are not even opened.
    pub fn set_bounds(&mut self, low: Option<&[u8]>, high: Option<&[u8]>) {
        self.bounds = Bounds {
            low: low.map(<[u8]>::to_vec),
            high: high.map(<[u8]>::to_vec),
            times: match (low, high) {
                (Some(low), Some(high)) => times_between(&self.layout, low, high),
                _ => None,
            },
        };
        if let Some(tier) = &mut self.tier {
            tier.set_bounds(low, high);
        }
    }

    /// From the next `seek` on rows outside these times need not come.
    pub(crate) fn set_times(&mut self, from: u64, to: u64) {
        self.bounds.times = Some((from, to));
    }

    /// Places the cursor before the first row, in `direction`, whose key is >= (Forward) or <= (Backward) `key`;
    /// `inclusive` false: strictly greater or smaller. `None`: at the end that `direction` starts from.
    /// Backward with a key prefix: use [`crate::key::prefix_end`] of it and `inclusive` false.
    pub fn seek(&mut self, key: Option<&[u8]>, inclusive: bool, direction: Direction) -> Result<()> {
        self.direction = direction;
        self.last = None;
        if let Some(rows) = &mut self.rows {
            rows.entries = None;
        }
        if let Some(filter) = &mut self.filter {
            filter.forget();
        }
        self.start = self.clamp(key, inclusive);
        if let Some(tier) = &mut self.tier {
            tier.seek(self.start.clone(), direction)?;
        }
        self.rebuild()
    }

    /// The next rows, at most `max_rows`; `None` at the end. Sees own writes made before the call.
    pub fn next_span(&mut self, max_rows: usize) -> Result<Option<Span>> {
        if let Some(found) = self.filter.as_mut().and_then(Filter::take) {
            return Ok(Some(found));
        }
        let Some(span) = self.next_whole_span(max_rows)? else { return Ok(None) };
        let Some(filter) = &mut self.filter else { return Ok(Some(span)) };
        let found = filter.look(span)?;
        if found.rows == 0 {
            // The reader cannot tell from rows that it does not get whether the walk has left its bounds.
            let mut key = Vec::new();
            found.group.push_key(found.row(0), &mut key)?;
            if self.bounds.is_passed(&key, self.direction) {
                return Ok(None);
            }
        }
        Ok(Some(found))
    }

    fn next_whole_span(&mut self, max_rows: usize) -> Result<Option<Span>> {
        if let Some(mut tier) = self.tier.take() {
            let span = tier.next_span(max_rows, &mut |rows| self.next_own_span(rows));
            self.tier = Some(tier);
            return span;
        }
        match self.rows.take() {
            None => self.next_own_span(max_rows),
            Some(mut rows) => {
                let span = self.next_row(&mut rows, max_rows);
                self.rows = Some(rows);
                span
            }
        }
    }

    /// The row of the next entry, as a span of its own.
    fn next_row(&mut self, rows: &mut IndexedRows, max_rows: usize) -> Result<Option<Span>> {
        loop {
            let (span, at) = match rows.entries.take() {
                Some((span, at)) if at < span.rows => (span, at),
                _ => match self.next_own_span(max_rows)? {
                    Some(span) => (span, 0),
                    None => return Ok(None),
                },
            };
            rows.entry_key.clear();
            span.group.push_key(span.row(at), &mut rows.entry_key)?;
            if self.bounds.is_passed(&rows.entry_key, self.direction) {
                rows.entries = Some((span, at));
                return Ok(None);
            }
            rows.entry.clear();
            span.group.push_row(span.row(at), &mut rows.entry)?;
            rows.entries = Some((span, at + 1));
            rows.row_key.clear();
            rows.index.push_base_key(&rows.entry, &mut rows.row_key);
            // An own write may have removed the row, or made it one that another entry leads to.
            if let Some((group, row)) = rows.cursor.row_of(&rows.row_key)?
                && (self.own_generation == 0 || rows.leads_to(&rows.entry, &group, row)?)
            {
                return Ok(Some(Span { group, first: row as u32, rows: 1, direction: self.direction }));
            }
        }
    }

    /// The row with this sort key.
    fn row_of(&self, key: &[u8]) -> Result<Option<(Arc<RowGroup>, usize)>> {
        if let Some(own) = &self.own {
            let writes = own.read();
            if let Some(write) = writes.get(key) {
                let Some(row) = write.row else { return Ok(None) };
                let mut rows = RowCollector::default();
                rows.push(&self.layout, key, u64::MAX, Some(row));
                return Ok(Some((RowGroup::from_rows(self.layout.clone(), rows), 0)));
            }
            for (rank, private) in writes.private.iter().enumerate().rev() {
                if let Some((group, row)) =
                    segment_row_at(&private.segment, OwnWrites::private_seq(rank), &self.layout, key, OWN_SEQ)?
                {
                    return Ok((!group.is_tombstone(row)).then_some((group, row)));
                }
            }
        }
        Table::find_at(&self.version, &self.layout, key, self.snapshot.seq())
    }

    /// [`Cursor::next_span`] of the table that the cursor itself walks over.
    fn next_own_span(&mut self, max_rows: usize) -> Result<Option<Span>> {
        let has_changed = self.own.as_ref().is_some_and(|own| own.read().generation != self.own_generation);
        if has_changed && !self.is_ahead_unchanged()? {
            self.rebuild()?;
        }
        loop {
            let rest = match self.rest.take() {
                Some((group, first, rows)) => Some((group, first, rows.min(max_rows), rows)),
                None => self.next_run(max_rows)?.map(|(group, first, rows)| (group, first, rows, rows)),
            };
            let Some((group, first, rows, all)) = rest else { return Ok(None) };
            let (skipped, there) = self.there(&group, first, rows)?;
            let after = |n: usize| match self.direction {
                Direction::Forward => first + n,
                Direction::Backward => first.wrapping_sub(n),
            };
            if skipped + there < all {
                self.rest = Some((group.clone(), after(skipped + there), all - skipped - there));
            }
            if there == 0 {
                continue;
            }
            let first = after(skipped);
            let last = match self.direction {
                Direction::Forward => first + there - 1,
                Direction::Backward => first + 1 - there,
            };
            self.last = Some((group.clone(), last));
            return Ok(Some(Span { group, first: first as u32, rows: there as u32, direction: self.direction }));
        }
    }

    /// How many rows of a run are behind the horizon, and how many then are not.
    fn there(&self, group: &Arc<RowGroup>, first: usize, rows: usize) -> Result<(usize, usize)> {
        match (&self.horizon, self.layout.places()) {
            (Some(horizon), Some(places)) => places.next_there(group, first, rows, self.direction, horizon),
            _ => Ok((0, rows)),
        }
    }

    /// The next rows that the snapshot sees, if the horizon does not hide them.
    fn next_run(&mut self, max_rows: usize) -> Result<Option<(Arc<RowGroup>, usize, usize)>> {
        let Some(merge) = &mut self.merge else { return Ok(None) };
        while let Some(event) = merge.next(max_rows)? {
            let (group, first, rows) = match event {
                Event::Run { group, first, rows } => (group, first, rows),
                Event::Versions(versions) => {
                    let snapshot = self.snapshot.seq();
                    match versions.into_iter().find(|v| v.seq <= snapshot || v.seq >= OWN_SEQ) {
                        Some(v) if !v.is_tombstone() => (v.group, v.row, 1),
                        _ => continue,
                    }
                }
            };
            return Ok(Some((group, first, rows)));
        }
        Ok(None)
    }

    /// Whether all own writes since the merge was built are behind the walk, as those of an UPDATE to the rows that it
    /// has read: then the merge goes on as it is.
    fn is_ahead_unchanged(&mut self) -> Result<bool> {
        let (Some((group, row)), Some(own)) = (&self.last, &self.own) else { return Ok(false) };
        let mut last = Vec::new();
        group.push_key(*row, &mut last)?;
        let writes = own.read();
        let is_behind = |key: &[u8]| match self.direction {
            Direction::Forward => key <= last.as_slice(),
            Direction::Backward => key >= last.as_slice(),
        };
        let unchanged = writes.changed_since(self.own_generation).is_some_and(|mut keys| keys.all(is_behind));
        if unchanged {
            self.own_generation = writes.generation;
        }
        Ok(unchanged)
    }

    /// A start outside the bounds is moved to the bound.
    fn clamp(&self, key: Option<&[u8]>, inclusive: bool) -> (Option<Vec<u8>>, bool) {
        match (self.direction, &self.bounds.low, &self.bounds.high) {
            (Direction::Forward, Some(low), _) if key.is_none_or(|k| k < low.as_slice()) => (Some(low.clone()), true),
            (Direction::Backward, _, Some(high)) if key.is_none_or(|k| k >= high.as_slice()) => {
                (Some(high.clone()), false)
            }
            _ => (key.map(<[u8]>::to_vec), inclusive),
        }
    }

    /// Builds the merge anew: at the start, or behind the last row when own writes changed under the walk.
    fn rebuild(&mut self) -> Result<()> {
        self.rest = None;
        if let Some((group, row)) = self.last.take() {
            let mut key = Vec::new();
            group.push_key(row, &mut key)?;
            self.start = (Some(key), false);
        }
        let inputs = self.inputs();
        let (from, inclusive) = self.start.clone();
        let stop = match self.direction {
            Direction::Forward => self.bounds.high.clone(),
            Direction::Backward => self.bounds.low.clone(),
        };
        let mut sources = Vec::with_capacity(inputs.len());
        for input in inputs {
            let bound = match &input {
                Input::Segment { segment, .. } => match self.segment_bound(segment.meta(), from.as_deref()) {
                    Some(bound) => Some(bound),
                    None => continue,
                },
                _ => None,
            };
            sources.push((
                Source::new(input, self.layout.clone(), self.snapshot.seq(), self.direction, from.clone(), inclusive)
                    .until(stop.clone(), self.reads_all),
                bound,
            ));
        }
        self.merge = Some(Merge::new(self.direction, self.snapshot.seq(), stop, sources)?);
        Ok(())
    }

    fn inputs(&mut self) -> Vec<Input> {
        let mut inputs = Vec::new();
        if let Some(own) = &self.own {
            let mut writes = own.write();
            writes.settle();
            self.own_generation = writes.generation;
            if !writes.map.is_empty() {
                inputs.push(Input::Own(own.clone()));
            }
            for (rank, private) in writes.private.iter().enumerate() {
                inputs
                    .push(Input::Segment { segment: private.segment.clone(), base_seq: OwnWrites::private_seq(rank) });
            }
        }
        inputs.extend(self.version.memtables().filter(|m| !m.is_empty()).map(|m| Input::Memtable(m.clone())));
        let (first, last) = self.bounds.times.unwrap_or((0, u64::MAX));
        let (from, to) = self.times.unwrap_or((0, u64::MAX));
        for segment in self.version.segments_at(self.snapshot.seq(), (first.max(from), last.min(to))) {
            let meta = segment.meta();
            if let (Some(horizon), Some(places)) = (&self.horizon, self.layout.places())
                && places.is_gone(&self.layout, meta, horizon)
            {
                continue;
            }
            inputs.push(Input::Segment { segment: segment.clone(), base_seq: meta.base_seq });
        }
        inputs
    }

    /// A bound on the next key of a segment when walking from `from`; `None` when nothing of it can come.
    fn segment_bound(&self, meta: &crate::segment::SegmentMeta, from: Option<&[u8]>) -> Option<Vec<u8>> {
        let series_time = |series_of: &[u8], time: u64| self.layout.series_bound(series_of, time);
        match self.direction {
            Direction::Forward => match from {
                None => Some(meta.first_key.clone()),
                Some(from) if from > meta.last_key.as_slice() => None,
                // Within the series of `from` no row of this segment comes before its smallest time.
                Some(from) => [Some(meta.first_key.clone()), Some(from.to_vec()), series_time(from, meta.min_time)]
                    .into_iter()
                    .flatten()
                    .max(),
            },
            Direction::Backward => match from {
                None => Some(meta.last_key.clone()),
                Some(from) if from < meta.first_key.as_slice() => None,
                Some(from) => {
                    let mut bound = meta.last_key.as_slice().min(from).to_vec();
                    // All wanted keys lie in the series of the low bound if the walk starts in it or at its end.
                    if let Some(low) = &self.bounds.low
                        && let Some(series) = self.layout.series_bound(low, meta.max_time)
                        && self.layout.starts_in_series_of(low, from)
                        && let Some(end) = crate::key::prefix_end(&series)
                    {
                        bound = end.min(bound);
                    }
                    Some(bound)
                }
            },
        }
    }
}

/// The times that keys in `low..high` can have, when both lie in one series.
pub(crate) fn times_between(layout: &RowLayout, low: &[u8], high: &[u8]) -> Option<(u64, u64)> {
    if !layout.starts_in_series_of(low, high) {
        return None;
    }
    let from = layout.time_of_key(low).unwrap_or(0);
    let in_series = layout.series_of(low)? == layout.series_of(high).unwrap_or(&[]);
    let to = if in_series { layout.time_of_key(high).unwrap_or(u64::MAX) } else { u64::MAX };
    Some((from, to))
}
