//! Reading a tier: the rows that are stored, and in the place of those that are out of date computed ones, in key order.
//!
//! What is out of date at a snapshot is known by time (`touched.rs`): stored rows of such buckets are passed over, and their
//! series are computed from the table's rows, or from a finer tier, as the walk comes by.

use std::sync::Arc;

use parking_lot::RwLock;

use crate::aggregate::View as SeenRows;
use crate::cursor::{Cursor, Direction};
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::group::{RowGroup, Span};
use crate::horizon::SeriesLines;
use crate::key;
use crate::limits;
use crate::manifest::edit::TableId;
use crate::memtable::RowCollector;
use crate::own::OwnWrites;
use crate::row::RowLayout;
use crate::snapshot::Snapshot;
use crate::source::rows_before;
use crate::table::Table;
use crate::version::Version;

use super::Tier;
use super::aggregate::Aggregator;
use super::bucket::{Buckets, Interval};
use super::refresh::bounds_of;
use super::touched::join;

/// Buckets that are computed at once: few at first.
const FIRST_BATCH: usize = 1;
const LAST_BATCH: usize = 1024;

/// The part of a walk over a tier that is not stored.
pub(crate) struct TierWalk {
    /// Buckets that are computed from different sources.
    parts: Vec<Part>,
    /// Stored rows that were read but not handed out.
    stored: Option<(Span, u32)>,
    direction: Direction,
}

/// Buckets that are computed from one source.
struct Part {
    /// Spans of time whose stored rows are out of date; whole buckets, ascending.
    stale: Arc<[Interval]>,
    computed: Computed,
    /// Computed rows that were not handed out.
    ready: Option<(Span, u32)>,
    batch: usize,
}

/// Computes buckets in the order of their keys.
struct Computed {
    /// Of a walk over rows: from when on those of series with rings of their own are there. What is stored of older buckets is
    /// never stale.
    gone: Option<Arc<SeriesLines>>,
    stale: Arc<[Interval]>,
    buckets: Buckets,
    /// Layout of the tier.
    layout: Arc<RowLayout>,
    aggregator: Aggregator,
    /// The rows that buckets are made of.
    rows: Box<Cursor>,
    /// Reads what is around buckets, for data-source columns.
    readings: Option<Box<Cursor>>,
    /// Buckets without rows, next to one with rows, that may have points all the same; the next one last.
    gaps: Vec<(Vec<u8>, Interval)>,
    /// A row of their series.
    gap_row: Option<(Arc<RowGroup>, usize)>,
    /// The bucket with rows that was computed last.
    last: Option<(Vec<u8>, Interval)>,
    span: Option<(Span, u32)>,
    direction: Direction,
    low: Option<Vec<u8>>,
    high: Option<Vec<u8>>,
    /// Where the walk began.
    from: (Option<Vec<u8>>, bool),
}

/// What all cursors of a walk have in common.
struct View<'a> {
    base: &'a Arc<Table>,
    version: Arc<Version>,
    tiers: Arc<[Arc<Tier>]>,
    snapshot: Arc<Snapshot>,
    own: Option<Arc<RwLock<OwnWrites>>>,
    /// Set if all buckets are to be computed, whatever is stored.
    anew: bool,
}

impl Engine {
    /// The table whose tier it is.
    pub fn base_of_tier(&self, tier: &Table) -> Result<Arc<Table>> {
        let of = tier.schema().tier_of;
        let base = of.and_then(|of| self.table_by_id(TableId(of.table)));
        base.ok_or_else(|| Error::NoSuchTable { name: tier.name() })
    }

    /// A cursor over a tier, as a snapshot sees it, and with the rows that `own` has in its table.
    pub(crate) fn tier_cursor(
        &self,
        tier: &Arc<Table>,
        snapshot: Arc<Snapshot>,
        own: Option<Arc<RwLock<OwnWrites>>>,
    ) -> Result<Cursor> {
        self.tier_walk(tier, snapshot, own, false)
    }

    /// The same, but all buckets are computed whose rows are there; finer tiers that they are made of are read.
    pub(super) fn recomputed_tier(&self, tier: &Arc<Table>, snapshot: Arc<Snapshot>) -> Result<Cursor> {
        self.tier_walk(tier, snapshot, None, true)
    }

    fn tier_walk(
        &self,
        tier: &Arc<Table>,
        snapshot: Arc<Snapshot>,
        own: Option<Arc<RwLock<OwnWrites>>>,
        anew: bool,
    ) -> Result<Cursor> {
        let base = self.base_of_tier(tier)?;
        let tiers = base.tiers();
        // Rows behind the horizon count where they are left: the tier keeps what it had of them.
        let mut version = Version::clone(&base.version());
        version.gate = Arc::default();
        let place = tiers.iter().position(|t| Arc::ptr_eq(&t.table, tier));
        let place = place.ok_or_else(|| Error::NoSuchTable { name: tier.name() })?;
        // The version came first, then what was flushed, then the tiers: what is flushed meanwhile is stale and stored, not neither.
        View { base: &base, version: Arc::new(version), tiers, snapshot, own, anew }.cursor(place, true)
    }
}

impl View<'_> {
    /// `has_horizon`: without what is too old for the tier.
    fn cursor(&self, place: usize, has_horizon: bool) -> Result<Cursor> {
        let tier = &self.tiers[place];
        let schema = self.base.schema();
        let buckets = Buckets::of(&schema, tier.def.bucket);
        let buckets = buckets.ok_or_else(|| Error::InvalidInput("a tier of a table without time".into()))?;
        let mut stale = match self.anew && has_horizon {
            true => vec![Interval { first: 0, last: u64::MAX }],
            false => join(self.stale(tier.def.id, &buckets)),
        };
        // Buckets that are too old for the tier are not computed either.
        let horizon = tier.table.version().gate.at(self.snapshot.seq()).filter(|_| has_horizon);
        if let Some(horizon) = horizon {
            stale = buckets.from(&stale, horizon.position.time);
        }
        // From the finer tier what that has, from the rows what else they have.
        let line = tier.source.map(|place| self.tiers[place].table.gone_until());
        let from_finer = line.map_or(Vec::new(), |line| buckets.from(&stale, line));
        if let Some(first) = from_finer.first() {
            stale = buckets.before(&stale, first.first);
        }
        let from_rows = buckets.from(&stale, self.base.gone_until());
        // What is gone must be known before the tier's version is taken, which has what was computed last.
        let gone = self.base.gate.series_gone();
        let mut version = tier.table.version();
        if !has_horizon && version.gate.latest().is_some() {
            version = Arc::new(Version { gate: Arc::default(), ..Version::clone(&version) });
        }
        let stored = Cursor::new(version, tier.table.layout(), self.snapshot.clone(), None);
        let sources = [(from_rows, None), (from_finer, tier.source)];
        let parts = sources.into_iter().filter(|(stale, _)| !stale.is_empty());
        let parts = parts
            .map(|(stale, source)| self.part(tier, buckets, stale, (source, &gone)))
            .collect::<Result<Vec<_>>>()?;
        Ok(match parts.is_empty() {
            true => stored,
            false => stored.with_tier(TierWalk { parts, stored: None, direction: Direction::Forward }),
        })
    }

    /// The walk that computes stale buckets from one source.
    fn part(
        &self,
        tier: &Tier,
        buckets: Buckets,
        stale: Vec<Interval>,
        (source, gone): (Option<usize>, &Arc<SeriesLines>),
    ) -> Result<Part> {
        let of_rows = || {
            let layout = self.version.active.layout().clone();
            Cursor::new(self.version.clone(), layout, self.snapshot.clone(), self.own.clone())
        };
        let mut rows = match source {
            Some(finer) => self.cursor(finer, false)?,
            None => of_rows(),
        };
        let schema = self.base.schema();
        let layout = tier.table.layout();
        let finer = source.and_then(|place| Buckets::of(&schema, self.tiers[place].def.bucket));
        let aggregator = Aggregator::new(layout.clone(), &schema, rows.layout().schema(), (buckets, finer));
        let around = |time: u64| aggregator.points().map_or(Interval { first: time, last: time }, |p| p.affected(time));
        if let (Some(first), Some(last)) = (stale.first(), stale.last()) {
            rows.limit_times((around(first.first).first, around(last.last).last));
        }
        let readings = aggregator.points().map(|_| Box::new(of_rows()));
        let stale: Arc<[Interval]> = stale.into();
        let computed = Computed {
            gone: (source.is_none() && !gone.is_empty()).then(|| gone.clone()),
            stale: stale.clone(),
            buckets,
            aggregator,
            readings,
            gaps: Vec::new(),
            gap_row: None,
            last: None,
            layout,
            rows: Box::new(rows),
            span: None,
            direction: Direction::Forward,
            low: None,
            high: None,
            from: (None, true),
        };
        Ok(Part { stale, computed, ready: None, batch: FIRST_BATCH })
    }

    /// Buckets of a tier whose stored rows are not what the snapshot sees.
    fn stale(&self, tier: u32, buckets: &Buckets) -> Vec<Interval> {
        let seq = self.snapshot.seq();
        let mut stale = Vec::new();
        for memtable in self.version.memtables() {
            if let Some(touched) = memtable.touched() {
                touched.push_intervals(tier, seq, &mut stale);
            }
        }
        for (refreshed, touched) in self.base.refreshed.lock().iter() {
            if seq < *refreshed {
                touched.push_intervals(tier, seq, &mut stale);
            }
        }
        if let Some(own) = &self.own {
            let (own, layout) = (own.read(), self.version.active.layout());
            let mut last: Option<Interval> = None;
            own.for_each(|key, _| {
                let time = layout.time_of_key(key).filter(|time| !last.is_some_and(|last| last.contains(*time)));
                stale.extend(time.and_then(|time| last.replace(buckets.interval(time))));
            });
            stale.extend(last);
            let metas = own.private.iter().map(|p| p.segment.meta());
            stale.extend(metas.map(|m| buckets.covering(Interval { first: m.min_time, last: m.max_time })));
        }
        stale
    }
}

/// Buckets of a tier, by its place among those of its table, whose stored rows are not what a view of the table sees; whole
/// buckets, ascending.
pub(crate) fn stale_buckets(table: &Arc<Table>, seen: &SeenRows, place: usize, buckets: &Buckets) -> Vec<Interval> {
    let (tiers, snapshot, own) = (table.tiers(), seen.snapshot.clone(), seen.own.clone());
    let id = tiers[place].def.id;
    join(View { base: table, version: seen.version.clone(), tiers, snapshot, own, anew: false }.stale(id, buckets))
}

/// A walk over the rows that are stored of a tier. To be asked for after [`stale_buckets`].
pub(crate) fn stored_buckets(tier: &Tier, seen: &SeenRows) -> Cursor {
    Cursor::new(tier.table.version(), tier.table.layout(), seen.snapshot.clone(), None)
}

/// The first of some ascending intervals that does not end before a time.
fn at_or_after(intervals: &[Interval], time: u64) -> Option<Interval> {
    intervals.get(intervals.partition_point(|i| i.last < time)).copied()
}

/// The last of some ascending intervals that does not begin behind a time.
fn at_or_before(intervals: &[Interval], time: u64) -> Option<Interval> {
    intervals.partition_point(|i| i.first <= time).checked_sub(1).map(|n| intervals[n])
}

impl TierWalk {
    /// From the next [`TierWalk::seek`] on only these keys are of interest.
    pub fn set_bounds(&mut self, low: Option<&[u8]>, high: Option<&[u8]>) {
        for part in &mut self.parts {
            part.computed.low = low.map(<[u8]>::to_vec);
            part.computed.high = high.map(<[u8]>::to_vec);
        }
    }

    /// Times of buckets that are of interest.
    pub fn limit_times(&mut self, (first, last): (u64, u64)) {
        for part in &mut self.parts {
            part.computed.stale = part.stale.iter().filter(|i| i.first <= last && first <= i.last).copied().collect();
        }
    }

    /// As [`Cursor::seek`], of which the stored rows are.
    pub fn seek(&mut self, from: (Option<Vec<u8>>, bool), direction: Direction) -> Result<()> {
        (self.stored, self.direction) = (None, direction);
        self.parts.iter_mut().try_for_each(|part| {
            (part.ready, part.batch) = (None, FIRST_BATCH);
            part.computed.from = from.clone();
            part.computed.start(direction)
        })
    }

    /// The next rows; `stored` hands out the next stored ones.
    pub fn next_span(
        &mut self,
        max_rows: usize,
        stored: &mut dyn FnMut(usize) -> Result<Option<Span>>,
    ) -> Result<Option<Span>> {
        let direction = self.direction;
        self.parts.iter_mut().try_for_each(Part::make_ready)?;
        self.read_stored(max_rows, stored)?;
        let comes_first = |a: &[u8], b: &[u8]| match direction {
            Direction::Forward => a < b,
            Direction::Backward => a > b,
        };
        // The first key of each source: the parts, then what is stored.
        let sources = self.parts.iter().map(|part| &part.ready).chain([&self.stored]);
        let key_at = |(span, at): &(Span, u32)| key_of(&span.group, span.row(*at));
        let heads = sources.map(|rows| rows.as_ref().map(key_at).transpose()).collect::<Result<Vec<_>>>()?;
        let mut firsts: Vec<(&[u8], usize)> =
            heads.iter().enumerate().filter_map(|(source, head)| Some((head.as_deref()?, source))).collect();
        firsts.sort_unstable();
        if direction == Direction::Backward {
            firsts.reverse();
        }
        let Some(&(_, source)) = firsts.first() else { return Ok(None) };
        let other = firsts.get(1).map(|(key, _)| *key);
        let from_stored = source == self.parts.len();
        let from = if from_stored { &mut self.stored } else { &mut self.parts[source].ready };
        let Some((span, at)) = from.take() else { return Ok(None) };
        let mut rows = 1;
        while at + rows < span.rows && (rows as usize) < max_rows {
            if from_stored && self.is_stale(&span, at + rows)? {
                break;
            }
            if let Some(other) = other
                && !comes_first(&key_of(&span.group, span.row(at + rows))?, other)
            {
                break;
            }
            rows += 1;
        }
        let first = span.row(at) as u32;
        let out = Span { group: span.group.clone(), first, rows, direction };
        if at + rows < span.rows {
            *(if from_stored { &mut self.stored } else { &mut self.parts[source].ready }) = Some((span, at + rows));
        }
        Ok(Some(out))
    }

    /// Stands on the next stored row that is not stale.
    fn read_stored(&mut self, max_rows: usize, stored: &mut dyn FnMut(usize) -> Result<Option<Span>>) -> Result<()> {
        loop {
            let (span, mut at) = match self.stored.take() {
                Some(rest) => rest,
                None => match stored(max_rows)? {
                    Some(span) => (span, 0),
                    None => return Ok(()),
                },
            };
            while at < span.rows && self.is_stale(&span, at)? {
                at += 1;
            }
            if at < span.rows {
                self.stored = Some((span, at));
                return Ok(());
            }
        }
    }

    /// Whether a stored row is stale.
    fn is_stale(&self, span: &Span, at: u32) -> Result<bool> {
        for part in &self.parts {
            let time = time_of(&span.group, &part.computed.layout, span.row(at))?;
            if !at_or_after(&part.stale, time).is_some_and(|interval| interval.contains(time)) {
                continue;
            }
            let key = key_of(&span.group, span.row(at))?;
            let series = part.computed.layout.series_of(&key).unwrap_or(&[]);
            return Ok(!part.computed.is_gone(series, part.computed.buckets.interval(time)));
        }
        Ok(false)
    }
}

impl Part {
    /// Computes what comes next, unless there is something left.
    fn make_ready(&mut self) -> Result<()> {
        if self.ready.is_none() {
            self.ready = self.computed.batch(self.batch)?.map(|span| (span, 0));
            self.batch = (self.batch * 4).min(LAST_BATCH);
        }
        Ok(())
    }
}

fn key_of(group: &RowGroup, row: usize) -> Result<Vec<u8>> {
    let mut key = Vec::with_capacity(32);
    group.push_key(row, &mut key)?;
    Ok(key)
}

fn time_of(group: &RowGroup, layout: &RowLayout, row: usize) -> Result<u64> {
    let column = layout.schema().time.map_or(0, |t| usize::from(t.column));
    match &group.column(column)?.values {
        rrd_codec::Values::Int(times) => Ok(times[row]),
        _ => Ok(0),
    }
}

impl Computed {
    /// Begins at `self.from`.
    fn start(&mut self, direction: Direction) -> Result<()> {
        self.direction = direction;
        (self.span, self.last) = (None, None);
        self.gaps.clear();
        let low = self.low_of_rows();
        let high = self.high.as_deref().and_then(|high| self.behind(high, false)).and_then(|high| self.reach(high));
        self.rows.set_bounds(low.as_deref(), high.as_deref());
        match (direction, self.from.clone()) {
            (Direction::Forward, (from, _)) => self.rows.seek(from.as_deref(), true, direction),
            (Direction::Backward, (None, _)) => self.rows.seek(None, true, direction),
            (Direction::Backward, (Some(from), inclusive)) => {
                let end = self.behind(&from, inclusive).and_then(|end| self.reach(end));
                self.rows.seek(end.as_deref(), false, direction)
            }
        }
    }

    /// Where the rows begin that a walk comes by. One that goes backward learns by the next row that there is a gap before it,
    /// and the buckets of the gap may be within bounds when that row is not.
    fn low_of_rows(&self) -> Option<Vec<u8>> {
        let low = self.low.as_deref()?;
        let rows = self.rows.layout();
        let points = self.aggregator.points().filter(|_| self.direction == Direction::Backward);
        Some(match (points, rows.time_of_key(low), rows.series_of(low)) {
            (Some(points), Some(time), Some(series)) => {
                bounds_of(rows, series, Interval { first: points.needed_from(time), last: time }).0
            }
            _ => low.to_vec(),
        })
    }

    /// The end of the rows of all buckets whose keys are before `key` (or it, with `inclusive`); `None`: of all rows.
    fn behind(&self, key: &[u8], inclusive: bool) -> Option<Vec<u8>> {
        let rows = self.rows.layout();
        let (Some(time), Some(series)) = (self.layout.time_of_key(key), self.layout.series_of(key)) else {
            return Some(key.to_vec());
        };
        let interval = self.buckets.interval(time);
        if interval.first == time && !inclusive {
            return Some(bounds_of(rows, series, interval).0);
        }
        bounds_of(rows, series, interval).1
    }

    /// The end of the rows that have to do with what is before `key`.
    fn reach(&self, key: Vec<u8>) -> Option<Vec<u8>> {
        let rows = self.rows.layout();
        match (self.aggregator.points(), rows.time_of_key(&key), rows.series_of(&key)) {
            (Some(points), Some(time), Some(series)) => {
                let last = points.affected(time).last;
                bounds_of(rows, series, Interval { first: time, last }).1
            }
            _ => Some(key),
        }
    }

    /// Up to `count` buckets.
    fn batch(&mut self, count: usize) -> Result<Option<Span>> {
        if self.stale.is_empty() {
            return Ok(None);
        }
        let mut rows = RowCollector::default();
        let mut bytes = Vec::new();
        while rows.rows() < count
            && let Some(key) = self.next(&mut bytes)?
        {
            rows.push(&self.layout, &key, 0, Some(&bytes));
            bytes.clear();
        }
        let count = rows.rows();
        if count == 0 {
            return Ok(None);
        }
        let first = match self.direction {
            Direction::Forward => 0,
            Direction::Backward => {
                rows.reverse();
                count - 1
            }
        };
        let group = RowGroup::from_rows(self.layout.clone(), rows);
        Ok(Some(Span { group, first: first as u32, rows: count as u32, direction: self.direction }))
    }

    /// Appends the next bucket's row; its key.
    fn next(&mut self, out: &mut Vec<u8>) -> Result<Option<Vec<u8>>> {
        loop {
            while let Some((series, bucket)) = self.gaps.pop() {
                if let Some(key) = self.compute_gap(&series, bucket, out)? {
                    return Ok(Some(key));
                }
            }
            let Some((group, row)) = self.current()? else { return Ok(None) };
            let key = key_of(&group, row)?;
            if self.readings.is_some() {
                self.gap_row = Some((group.clone(), row));
                if self.find_gaps(&key) {
                    continue;
                }
            }
            let rows = self.rows.layout().clone();
            let (Some(series), Some(time)) = (rows.series_of(&key), rows.time_of_key(&key)) else { return Ok(None) };
            let Some(interval) = self.nearest(time) else {
                // Nothing more of this series.
                match self.direction {
                    Direction::Forward => match key::prefix_end(series) {
                        Some(next) => self.skip_to(next, true)?,
                        None => return Ok(None),
                    },
                    Direction::Backward => self.skip_to(series.to_vec(), false)?,
                }
                continue;
            };
            if !interval.contains(time) {
                let (low, high) = bounds_of(&rows, series, interval);
                match (self.direction, high) {
                    (Direction::Forward, _) => self.skip_to(low, true)?,
                    (Direction::Backward, Some(high)) => {
                        // One by one past the rows behind it: the last of them says what there is in gaps.
                        let end = self.reach(high).filter(|end| *end < key).unwrap_or(key);
                        self.skip_to(end, false)?;
                    }
                    (Direction::Backward, None) => return Ok(None),
                }
                continue;
            }
            let bucket = self.buckets.interval(time);
            let series = series.to_vec();
            let own = bounds_of(&self.layout, &series, bucket).0;
            if let Some(is_behind) = self.is_outside(&own) {
                if is_behind {
                    return Ok(None);
                }
                self.pass(&series, bucket)?;
                continue;
            }
            if self.is_gone(&series, bucket) {
                self.pass(&series, bucket)?;
                continue;
            }
            self.compute(&series, bucket)?;
            self.compute_points(&series, bucket)?;
            self.last = Some((series.clone(), bucket));
            if self.aggregator.rows() == 0 {
                continue;
            }
            self.aggregator.finish(bucket.first, out);
            return Ok(Some(own));
        }
    }

    /// Hands what is known of a bucket's points to the aggregator.
    fn compute_points(&mut self, series: &[u8], bucket: Interval) -> Result<()> {
        let (Some(readings), Some(points)) = (&mut self.readings, self.aggregator.points().cloned()) else {
            return Ok(());
        };
        let known = points.compute(readings, series, &self.buckets, &[bucket])?;
        known.first().into_iter().for_each(|known| self.aggregator.set_points(known));
        Ok(())
    }

    /// A bucket without rows: it is there if it has points.
    fn compute_gap(&mut self, series: &[u8], bucket: Interval, out: &mut Vec<u8>) -> Result<Option<Vec<u8>>> {
        let key = bounds_of(&self.layout, series, bucket).0;
        let is_stale = at_or_after(&self.stale, bucket.first).is_some_and(|i| i.contains(bucket.first));
        if !is_stale || self.is_outside(&key).is_some() || self.is_gone(series, bucket) {
            return Ok(None);
        }
        self.compute_points(series, bucket)?;
        if self.aggregator.is_empty() {
            return Ok(None);
        }
        if let Some((group, row)) = self.gap_row.clone() {
            self.aggregator.set_key(&group, row)?;
        }
        self.aggregator.finish(bucket.first, out);
        Ok(Some(key))
    }

    /// Before the bucket of the row that comes next: buckets between it and the last one that may have points. False if
    /// there are none, or they were found before.
    fn find_gaps(&mut self, key: &[u8]) -> bool {
        let rows = self.rows.layout().clone();
        let (Some(series), Some(time), Some(points)) =
            (rows.series_of(key), rows.time_of_key(key), self.aggregator.points())
        else {
            return false;
        };
        let bucket = self.buckets.interval(time);
        let nearest = points.affected(bucket.first).first;
        let last = self.last.as_ref().filter(|(known, _)| known == series).map(|(_, last)| *last);
        if last.is_some_and(|last| last.first == bucket.first) {
            return false;
        }
        // Points end with the reading behind them: walking up, gaps are found below the row that comes, walking down below
        // the bucket that was computed last.
        let (from, to) = match self.direction {
            Direction::Forward => (last.map_or(nearest, |last| last.last.saturating_add(1).max(nearest)), bucket.first),
            Direction::Backward => match last {
                Some(last) => (bucket.last.saturating_add(1).max(points.affected(last.first).first), last.first),
                None => (0, 0),
            },
        };
        let mut gaps = Vec::new();
        let mut at = from;
        while at < to {
            let gap = self.buckets.interval(at);
            if gap.last >= to {
                break;
            }
            gaps.push((series.to_vec(), gap));
            at = gap.last.saturating_add(1);
        }
        if self.direction == Direction::Forward {
            gaps.reverse();
        }
        // As if computed: the row that comes is not looked at again for this.
        self.last = Some((series.to_vec(), bucket));
        let found = !gaps.is_empty();
        self.gaps = gaps;
        found
    }

    /// Whether rows of a bucket may be gone from disk, as its series has a ring of its own: it keeps what it had.
    fn is_gone(&self, series: &[u8], bucket: Interval) -> bool {
        let line = self.gone.as_ref().and_then(|gone| gone.get(series));
        line.is_some_and(|line| bucket.first < *line)
    }

    /// The stale interval that a walk meets next from a time on.
    fn nearest(&self, time: u64) -> Option<Interval> {
        match self.direction {
            Direction::Forward => at_or_after(&self.stale, time),
            Direction::Backward => at_or_before(&self.stale, time),
        }
    }

    /// `Some(true)`: the walk is at its end with this key; `Some(false)`: it has not begun yet.
    fn is_outside(&self, key: &[u8]) -> Option<bool> {
        let (low, high) = (self.low.as_deref(), self.high.as_deref());
        let is_below = low.is_some_and(|low| key < low);
        let is_above = high.is_some_and(|high| key >= high);
        let (from, inclusive) = (self.from.0.as_deref(), self.from.1);
        let is_before = from.is_some_and(|from| match self.direction {
            Direction::Forward => key < from || (key == from && !inclusive),
            Direction::Backward => key > from || (key == from && !inclusive),
        });
        match self.direction {
            Direction::Forward if is_above => Some(true),
            Direction::Backward if is_below => Some(true),
            _ => (is_before || is_below || is_above).then_some(false),
        }
    }

    /// Adds all rows of a bucket, and stands behind them.
    fn compute(&mut self, series: &[u8], bucket: Interval) -> Result<()> {
        if self.direction == Direction::Backward {
            // Values are added in the order of time, whichever way the walk goes.
            let (low, high) = bounds_of(self.rows.layout(), series, bucket);
            self.rows.set_bounds(Some(&low), high.as_deref());
            self.rows.seek(None, true, Direction::Forward)?;
            while let Some(span) = self.rows.next_span(limits::GROUP_ROWS)? {
                self.aggregator.add(&span.group, span.first as usize, span.rows as usize)?;
            }
            let low_bound = self.low_of_rows();
            self.rows.set_bounds(low_bound.as_deref(), Some(&low));
            self.span = None;
            return self.rows.seek(Some(&low), false, Direction::Backward);
        }
        let layout = self.rows.layout().clone();
        let (_, end) = bounds_of(&layout, series, bucket);
        while let Some((group, first)) = self.current()? {
            let Some((span, at)) = &mut self.span else { break };
            let left = (span.rows - *at) as usize;
            let inside = match &end {
                None => left,
                Some(end) => rows_within(&group, first, left, end)?,
            };
            *at += inside as u32;
            self.aggregator.add(&group, first, inside)?;
            if inside < left {
                break;
            }
        }
        Ok(())
    }

    /// Passes the rows of a bucket.
    fn pass(&mut self, series: &[u8], bucket: Interval) -> Result<()> {
        let (low, high) = bounds_of(self.rows.layout(), series, bucket);
        match (self.direction, high) {
            (Direction::Forward, Some(high)) => self.skip_to(high, true),
            (Direction::Forward, None) => {
                self.stale = Arc::new([]);
                self.span = None;
                self.rows.seek(Some(&[0xFF; 64]), true, Direction::Forward)
            }
            (Direction::Backward, _) => self.skip_to(low, false),
        }
    }

    /// The row that comes next.
    fn current(&mut self) -> Result<Option<(Arc<RowGroup>, usize)>> {
        loop {
            match &self.span {
                Some((span, at)) if *at < span.rows => return Ok(Some((span.group.clone(), span.row(*at)))),
                _ => match self.rows.next_span(limits::GROUP_ROWS)? {
                    Some(span) => self.span = Some((span, 0)),
                    None => return Ok(None),
                },
            }
        }
    }

    /// Goes on to a key, in the rows at hand if it is among them.
    fn skip_to(&mut self, key: Vec<u8>, inclusive: bool) -> Result<()> {
        if let Some((span, at)) = &mut self.span
            && self.direction == Direction::Forward
            && *at < span.rows
            && key_of(&span.group, span.row(span.rows - 1))? >= key
        {
            let before = rows_before(&span.group, &key, false)?;
            *at = (before as u32).saturating_sub(span.first).max(*at);
            return Ok(());
        }
        self.span = None;
        self.rows.seek(Some(&key), inclusive, self.direction)
    }
}

/// How many of `rows` rows of a group from `first` on have a key before `end`.
fn rows_within(group: &RowGroup, first: usize, rows: usize, end: &[u8]) -> Result<usize> {
    let (mut low, mut high) = (0, rows);
    while low < high {
        let mid = (low + high) / 2;
        if key_of(group, first + mid)?.as_slice() < end { low = mid + 1 } else { high = mid }
    }
    Ok(low)
}
