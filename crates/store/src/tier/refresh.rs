//! Brings the tiers of a table up to date with what a flush is about to write.
//!
//! The buckets that rows of a memtable lie in, of each series that has such rows, are computed anew: first those of tiers that
//! are computed from the rows, then those of coarser ones from the new and old buckets of finer ones. A bucket without rows
//! becomes a tombstone. The new segments are part of the same manifest edit as those of the memtable, so what is in the
//! segments of the table is always in the tiers, but for bulk statements and dropped chunks, which a memtable keeps in mind for
//! the next flush: after a crash they are known by their sequence numbers.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rrd_codec::Effort;

use crate::chunk::ChunksInUse;
use crate::cursor::{Cursor, Direction, Span};
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::fs::space::Room;
use crate::horizon::SeriesLines;
use crate::key;
use crate::limits;
use crate::live::LiveSegment;
use crate::manifest::edit::Edit;
use crate::memtable::{Key, Memtable};
use crate::merge::{Event, Merge};
use crate::report::RunningJob;
use crate::row::RowLayout;
use crate::schema::{Lane, Schema};
use crate::segment::SegmentMeta;
use crate::snapshot::Snapshot;
use crate::source::{Input, Source};
use crate::table::{Table, number_of};
use crate::version::Version;
use crate::write_out::{OutRow, OutRows};

use super::aggregate::Aggregator;
use super::bucket::{Buckets, Interval};
use super::points::{Known, Points};
use super::touched::join;
use super::{Tier, Touched};

/// Name of the manifest property of a table with tiers: what was committed up to this sequence number is in them.
pub(crate) const TIER_SEQ_PROPERTY: &str = "tier_seq";
/// Names of properties begin so that say which times a commit changed by dropping chunks; its sequence number follows.
const DIRTY_PREFIX: &str = "tier_dirty:";

/// Name of the property with the ids (u32) of tiers that are to be built from all rows there are.
const BUILD_PROPERTY: &str = "tier_build";

/// Bytes of buckets that are written to segments at a time, at least; else half of what a run of a bulk statement has.
const PART_BYTES: usize = 1 << 20;
/// Spans of changed times that are walked side by side.
const WALKS_AT_ONCE: usize = 64;
/// Buckets side by side that are computed in one walk.
const CLUSTER: usize = 1024;

/// What a refresh wrote: nothing refers to it yet.
pub(crate) struct Refreshed {
    seq: u64,
    tiers: Vec<(Arc<Tier>, Vec<Arc<LiveSegment>>)>,
    /// Of the tiers.
    _chunks: Vec<ChunksInUse>,
    /// Commits whose note about dropped chunks is done with.
    ranges: Vec<u64>,
    /// Whether tiers were built.
    has_built: bool,
}

/// A series and a bucket.
type Pair = (Vec<u8>, Interval);

/// Buckets of a series, side by side.
struct Cluster {
    series: Vec<u8>,
    intervals: Vec<Interval>,
}

/// A tier that buckets are computed for.
pub(super) struct Target {
    /// Schema of its table.
    pub schema: Arc<Schema>,
    /// Of series with rings of their own: from when on rows are there.
    pub series_gone: Arc<SeriesLines>,
    /// Where the buckets go.
    pub table: Arc<Table>,
    /// How.
    pub layout: Arc<RowLayout>,
    /// Where bytes are bounded.
    pub room: Option<Arc<Room>>,
}

impl Target {
    fn of(table: &Table, tier: &Tier, room: Option<&Arc<Room>>) -> Target {
        let series_gone = table.gate.series_gone();
        let room = room.cloned();
        Target { schema: table.schema(), series_gone, table: tier.table.clone(), layout: tier.table.layout(), room }
    }
}

/// A table's rows as the sources of buckets at one moment.
#[derive(Clone)]
pub(super) struct Rows {
    version: Arc<Version>,
    layout: Arc<RowLayout>,
    /// What may have changed, by its keys.
    touched: Vec<Input>,
    /// Set if that is all there is.
    is_whole: bool,
}

impl Engine {
    /// Computes anew what a memtable that is to be flushed touches, as far as there is room. The caller keeps merges of the
    /// table away.
    pub(crate) fn refresh_tiers(
        &self,
        table: &Table,
        memtable: &Arc<Memtable>,
        seq: u64,
        room: Option<&Arc<Room>>,
    ) -> Result<Refreshed> {
        let chunks = table.tiers().iter().map(|tier| tier.table.chunks.lock().keep()).collect();
        let mut refreshed = Refreshed { seq, tiers: Vec::new(), _chunks: chunks, ranges: Vec::new(), has_built: false };
        let Some(touched) = memtable.touched().map(|touched| touched.clone()) else { return Ok(refreshed) };
        refreshed.ranges = touched.ranges().iter().map(|(_, seq)| *seq).collect();
        refreshed.has_built = touched.builds().next().is_some();
        for tier in table.tiers().iter() {
            if room.is_some_and(|room| room.is_over()) {
                // What has no room is not in its file, from which the next tier may be computed.
                break;
            }
            let result = self.refresh_tier(table, memtable, (tier, room), &touched, &refreshed);
            match result {
                Ok(segments) => refreshed.tiers.push((tier.clone(), segments)),
                Err(error) => {
                    self.remove_refreshed(&refreshed);
                    return Err(error);
                }
            }
        }
        Ok(refreshed)
    }

    fn refresh_tier(
        &self,
        table: &Table,
        memtable: &Arc<Memtable>,
        (tier, room): (&Arc<Tier>, Option<&Arc<Room>>),
        touched: &Touched,
        done: &Refreshed,
    ) -> Result<Vec<Arc<LiveSegment>>> {
        self.pause_points.pass("a tier is brought up to date");
        let schema = table.schema();
        let Some(buckets) = Buckets::of(&schema, tier.def.bucket) else { return Ok(Vec::new()) };
        let gone = table.gone_until();
        let is_built = touched.builds().any(|id| id == tier.def.id);
        let mut from_rows = (gone, u64::MAX);
        let mut segments = Vec::new();
        if let Some((finer, new)) = tier.source.and_then(|place| done.tiers.get(place)) {
            // What the finer tier does not keep comes from the rows, if they are there.
            let line = finer.table.gone_until();
            let mut source = Rows::of_tier(finer, new);
            if is_built {
                source.touch_all();
            }
            let starts = (line, u64::MAX);
            let what = (starts, Vec::new());
            let target = Target::of(table, tier, room);
            segments = self.compute_tier(&target, &source, buckets, what, done.seq, &mut |_| !self.gives_up(table))?;
            from_rows = (gone, line);
        }
        if touched.span().is_none_or(|(first, _)| buckets.interval(first).first >= from_rows.1) {
            return Ok(segments);
        }
        let mut source = Rows::of_memtable(table, memtable, touched, done.seq);
        if is_built {
            source.touch_all();
        }
        let more = (|| {
            let mut extra = source.pairs_between(&buckets, (touched.ranges(), from_rows), done.seq)?;
            extra.extend(Rows::of_tier(tier, &[]).pairs_between(&buckets, (touched.ranges(), from_rows), done.seq)?);
            let what = (from_rows, extra);
            self.compute_tier(&Target::of(table, tier, room), &source, buckets, what, done.seq, &mut |_| {
                !self.gives_up(table)
            })
        })();
        match more {
            Ok(more) => segments.extend(more),
            Err(error) => {
                self.remove_refused(&tier.table, &metas(&segments));
                return Err(error);
            }
        }
        Ok(segments)
    }

    /// Computes buckets of a tier that begin within `starts`, its end excluded. `go_on(rows)` is told about rows read and
    /// returns false to stop.
    pub(super) fn compute_tier(
        &self,
        tier: &Target,
        source: &Rows,
        buckets: Buckets,
        (starts, extra): ((u64, u64), Vec<PairsBetween>),
        seq: u64,
        go_on: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Vec<Arc<LiveSegment>>> {
        let schema = &tier.schema;
        let of = source.layout.schema().tier_of;
        let finer = of.and_then(|of| schema.tiers.iter().find(|t| t.id == of.tier).cloned());
        let finer = finer.and_then(|def| Buckets::of(schema, def.bucket));
        let aggregator = Aggregator::new(tier.layout.clone(), schema, source.layout.schema(), (buckets, finer));
        let mut pairs = Pairs::new(source, buckets, extra, starts, aggregator.points().cloned())?;
        let mut out = Output {
            engine: self,
            tier,
            seq,
            layout: tier.layout.clone(),
            aggregator,
            buckets,
            readings: Cursor::new(source.version.clone(), source.layout.clone(), Snapshot::at(seq), None).reading_all(),
            before: Version { gate: Arc::default(), ..Version::clone(&tier.table.version()) },
            bytes: Vec::new(),
            job: source.is_whole.then(|| self.activity.begin("build", tier.table.name(), source.rows())),
            places: Vec::new(),
            segments: Vec::new(),
        };
        let mut rows =
            Cursor::new(source.version.clone(), source.layout.clone(), Snapshot::at(seq), None).reading_all();
        let written = (|| {
            while let Some(mut cluster) = pairs.next_cluster()? {
                self.pause_points.pass("buckets are computed");
                if finer.is_none() {
                    // Of a series with a ring of its own rows may be gone: a bucket keeps what it had of them.
                    let line = tier.series_gone.get(cluster.series.as_slice()).copied().unwrap_or(0);
                    cluster.intervals.retain(|interval| interval.first >= line);
                }
                let read = out.compute(&mut rows, &source.layout, &cluster)?;
                if !go_on(read) {
                    return Err(Error::Interrupted);
                }
            }
            out.write()
        })();
        let segments = std::mem::take(&mut out.segments);
        match written {
            Ok(()) => Ok(segments),
            Err(error) => {
                self.remove_refused(&tier.table, &metas(&segments));
                Err(error)
            }
        }
    }

    /// Removes what a refresh wrote whose edit was refused.
    pub(crate) fn remove_refreshed(&self, refreshed: &Refreshed) {
        refreshed.tiers.iter().for_each(|(tier, segments)| self.remove_refused(&tier.table, &metas(segments)));
    }
}

impl Refreshed {
    /// Bytes on disk.
    pub fn bytes(&self) -> u64 {
        self.tiers.iter().flat_map(|(_, segments)| segments).map(|s| s.meta().bytes).sum()
    }

    /// The edits that bring it.
    pub fn edits(&self, table: &Table) -> Vec<Edit> {
        if table.tiers().is_empty() {
            return Vec::new();
        }
        let mut edits = vec![tier_seq_edit(table, self.seq)];
        edits.extend(self.tiers.iter().flat_map(|(tier, segments)| tier.table.edits_for(&metas(segments))));
        if self.has_built {
            edits.push(build_edit(table, &[]));
        }
        edits.extend(self.ranges.iter().map(|seq| dirty_edit(table, *seq, Vec::new())));
        edits
    }

    /// After the edits: the tiers have it. `memtable` stays in mind for snapshots from before.
    pub fn install(&self, engine: &Engine, table: &Table, memtable: &Memtable) {
        let Some(touched) = memtable.touched().map(|touched| touched.clone()) else { return };
        for (tier, segments) in self.tiers.iter().filter(|(_, segments)| !segments.is_empty()) {
            tier.table.install(|v| v.segments.extend(segments.iter().cloned()));
            engine.workers.ask_merge(tier.table.id);
        }
        let oldest = engine.oldest_snapshot();
        let mut refreshed = table.refreshed.lock();
        refreshed.retain(|(seq, _)| oldest < *seq);
        if oldest < self.seq {
            refreshed.push((self.seq, Arc::new(touched.into_past())));
        }
    }
}

/// The edit that says up to which commit all is in the tiers.
pub(crate) fn tier_seq_edit(table: &Table, seq: u64) -> Edit {
    Edit::SetProperty { table: table.id, name: TIER_SEQ_PROPERTY.into(), value: seq.to_le_bytes().to_vec() }
}

/// The edit that says which times the commit `seq` changed by dropping chunks; or, without any, that it is done with.
pub(crate) fn dirty_edit(table: &Table, seq: u64, ranges: Vec<Interval>) -> Edit {
    let value = ranges.iter().flat_map(|r| [r.first.to_le_bytes(), r.last.to_le_bytes()]).flatten().collect();
    Edit::SetProperty { table: table.id, name: format!("{DIRTY_PREFIX}{seq}"), value }
}

/// The edit that says which tiers are to be built; or, without any, that they are.
pub(crate) fn build_edit(table: &Table, tiers: &[u32]) -> Edit {
    let value = tiers.iter().flat_map(|id| id.to_le_bytes()).collect();
    Edit::SetProperty { table: table.id, name: BUILD_PROPERTY.into(), value }
}

pub(super) fn metas(segments: &[Arc<LiveSegment>]) -> Vec<SegmentMeta> {
    segments.iter().map(|s| s.meta().clone()).collect()
}

impl Table {
    /// After a start: what bulk statements and dropped chunks changed that is not in the tiers.
    pub(crate) fn note_unrefreshed(&self, properties: &std::collections::BTreeMap<String, Vec<u8>>) {
        let version = self.version();
        let Some(mut touched) = version.active.touched() else { return };
        let tier_seq = properties.get(TIER_SEQ_PROPERTY).map_or(0, |value| number_of(value));
        for segment in version.segments.values().filter(|s| s.meta().max_seq > tier_seq) {
            touched.note_segment(segment);
        }
        for id in properties.get(BUILD_PROPERTY).into_iter().flat_map(|ids| ids.chunks_exact(4)) {
            touched.note_build(id.iter().rev().fold(0, |id, &byte| id << 8 | u32::from(byte)), 0);
        }
        for (name, value) in properties {
            let Some(seq) = name.strip_prefix(DIRTY_PREFIX).and_then(|seq| seq.parse().ok()) else { continue };
            for range in value.chunks_exact(16) {
                touched.note_range(number_of(&range[..8]), number_of(&range[8..]), seq);
            }
        }
    }

    /// Edits that take all notes about dropped chunks back (TRUNCATE).
    pub(crate) fn forget_dirty_edits(&self) -> Vec<Edit> {
        let version = self.version();
        let touched = version.memtables().filter_map(|m| m.touched().map(|t| t.clone()));
        let seqs: BTreeSet<u64> =
            touched.flat_map(|t| t.ranges().iter().map(|(_, seq)| *seq).collect::<Vec<_>>()).collect();
        seqs.into_iter().map(|seq| dirty_edit(self, seq, Vec::new())).collect()
    }
}

impl Rows {
    /// All that is in the segments of a version.
    pub fn of_version(version: Arc<Version>, layout: Arc<RowLayout>) -> Rows {
        let mut rows = Rows { version, layout, touched: Vec::new(), is_whole: true };
        rows.touch_all();
        rows
    }

    /// The rows of a table as of the flush of a memtable.
    fn of_memtable(table: &Table, memtable: &Arc<Memtable>, touched: &Touched, seq: u64) -> Rows {
        let layout = memtable.layout().clone();
        let mut version = Version::clone(&table.version());
        version.active = Arc::new(Memtable::new(layout.clone()));
        version.frozen = vec![(memtable.clone(), seq)];
        version.gate = Arc::default();
        let mut inputs: Vec<Input> = touched.segments().iter().map(input_of).collect();
        if !memtable.is_empty() {
            inputs.push(Input::Memtable(memtable.clone()));
        }
        Rows { version: Arc::new(version), layout, touched: inputs, is_whole: false }
    }

    /// The buckets of a tier, and those that were just computed.
    fn of_tier(tier: &Tier, new: &[Arc<LiveSegment>]) -> Rows {
        let mut version = Version::clone(&tier.table.version());
        version.segments.extend(new.iter().cloned());
        version.gate = Arc::default();
        let touched = new.iter().map(input_of).collect();
        Rows { version: Arc::new(version), layout: tier.table.layout(), touched, is_whole: false }
    }

    /// Everything may have changed.
    fn touch_all(&mut self) {
        self.is_whole = true;
        self.touched = self.version.segments.values().map(input_of).collect();
        let memtables = self.version.memtables().filter(|m| !m.is_empty());
        self.touched.extend(memtables.map(|m| Input::Memtable(m.clone())));
    }

    /// Roughly.
    pub fn rows(&self) -> u64 {
        let in_memory: usize = self.version.memtables().map(|m| m.len()).sum();
        self.version.segments.values().map(|s| s.meta().rows).sum::<u64>() + in_memory as u64
    }

    /// The time from which on about this part of the bytes is that its segments have since `from`.
    pub fn time_of_newest_since(&self, part: f64, from: u64) -> u64 {
        let mut metas: Vec<_> = self.version.segments.values().map(|s| s.meta()).collect();
        metas.retain(|meta| meta.max_time >= from);
        metas.sort_unstable_by_key(|meta| std::cmp::Reverse(meta.min_time));
        let mut left = metas.iter().map(|meta| meta.bytes).sum::<u64>() as f64 * part.min(1.0);
        for meta in metas {
            if (meta.bytes as f64) > left {
                let span = meta.max_time.saturating_sub(meta.min_time).saturating_add(1);
                return meta.max_time.saturating_add(1) - (span as f64 * left / meta.bytes as f64) as u64;
            }
            left -= meta.bytes as f64;
        }
        0
    }

    /// The series and buckets of all rows between some times, of buckets that begin within `starts`: a walk for each span of
    /// them.
    fn pairs_between(
        &self,
        buckets: &Buckets,
        (times, starts): (&[(Interval, u64)], (u64, u64)),
        seq: u64,
    ) -> Result<Vec<PairsBetween>> {
        let mut spans = join(times.iter().map(|(times, _)| buckets.covering(*times)).collect());
        if spans.len() > WALKS_AT_ONCE
            && let (Some(first), Some(last)) = (spans.first(), spans.last())
        {
            // What lies between is computed again as well.
            spans = vec![Interval { first: first.first, last: last.last }];
        }
        let walk = |times: Interval| {
            let mut rows = Cursor::new(self.version.clone(), self.layout.clone(), Snapshot::at(seq), None);
            rows.limit_times((times.first, times.last));
            rows.seek(None, true, Direction::Forward)?;
            PairsBetween { rows, times, starts, buckets: *buckets, layout: self.layout.clone(), span: None, next: None }
                .begin()
        };
        spans.into_iter().map(walk).collect()
    }
}

/// The series and buckets of rows between two times, in their order. Never all at once: a DELETE by chunk may have to do with
/// more of them than there is memory for.
pub(super) struct PairsBetween {
    rows: Cursor,
    times: Interval,
    starts: (u64, u64),
    buckets: Buckets,
    layout: Arc<RowLayout>,
    /// Rows that were not looked at.
    span: Option<(Span, u32)>,
    next: Option<Pair>,
}

impl PairsBetween {
    fn begin(mut self) -> Result<PairsBetween> {
        self.next = self.read()?;
        Ok(self)
    }

    /// Goes on behind a pair.
    fn pass(&mut self, pair: &Pair) -> Result<()> {
        while self.next.as_ref().is_some_and(|next| next <= pair) {
            self.next = self.read()?;
        }
        Ok(())
    }

    /// The next pair that is not the one before.
    fn read(&mut self) -> Result<Option<Pair>> {
        let mut key = Vec::new();
        loop {
            let (span, at) = match self.span.take() {
                Some(left) => left,
                None => match self.rows.next_span(limits::GROUP_ROWS)? {
                    Some(span) => (span, 0),
                    None => return Ok(None),
                },
            };
            for n in at..span.rows {
                key.clear();
                span.group.push_key(span.row(n), &mut key)?;
                let Some((series, time)) = self.layout.series_of(&key).zip(self.layout.time_of_key(&key)) else {
                    continue;
                };
                let is_known = |(known, interval): &Pair| interval.contains(time) && known == series;
                if !self.times.contains(time) || self.next.as_ref().is_some_and(is_known) {
                    continue;
                }
                let interval = self.buckets.interval(time);
                if (self.starts.0..self.starts.1).contains(&interval.first) {
                    let pair = (series.to_vec(), interval);
                    self.span = Some((span, n + 1)).filter(|(span, n)| *n < span.rows);
                    return Ok(Some(pair));
                }
            }
        }
    }
}

fn input_of(segment: &Arc<LiveSegment>) -> Input {
    Input::Segment { segment: segment.clone(), base_seq: segment.meta().base_seq }
}

/// The series and buckets that changed, in the order of the tier's keys.
struct Pairs {
    /// Keys of a memtable that is all there is; else none.
    keys: std::vec::IntoIter<Key>,
    merge: Merge,
    layout: Arc<RowLayout>,
    buckets: Buckets,
    /// Rows that are read but not looked at.
    rows: Option<(Arc<crate::group::RowGroup>, usize, usize)>,
    /// What is to be computed besides.
    extra: Vec<PairsBetween>,
    /// Buckets that begin before the first or from the second on do not count.
    starts: (u64, u64),
    /// Of rows with data-source columns: they have to do with buckets side by side.
    points: Option<Points>,
    /// Such buckets that were not handed out yet: the next one, and when the last one begins at most.
    around: Option<(Pair, u64)>,
    next: Option<Pair>,
    /// The last one that was found.
    last: Option<Pair>,
    key: Vec<u8>,
}

impl Pairs {
    fn new(
        source: &Rows,
        buckets: Buckets,
        extra: Vec<PairsBetween>,
        starts: (u64, u64),
        points: Option<Points>,
    ) -> Result<Pairs> {
        let layout = &source.layout;
        let keys = match source.touched.as_slice() {
            [Input::Memtable(memtable)] => memtable.entries().keys(),
            _ => Vec::new(),
        };
        let inputs = source.touched.iter().filter(|_| keys.is_empty());
        let sources = inputs.map(|input| {
            let bound = match input {
                Input::Segment { segment, .. } => Some(segment.meta().first_key.clone()),
                _ => None,
            };
            (Source::new(input.clone(), layout.clone(), u64::MAX, Direction::Forward, None, true), bound)
        });
        let merge = Merge::new(Direction::Forward, u64::MAX, None, sources.collect())?;
        let layout = layout.clone();
        let keys = keys.into_iter();
        let mut pairs = Pairs {
            keys,
            merge,
            layout,
            buckets,
            rows: None,
            extra,
            starts,
            points,
            around: None,
            next: None,
            last: None,
            key: Vec::new(),
        };
        pairs.next = pairs.read()?;
        Ok(pairs)
    }

    /// Buckets of one series, side by side.
    fn next_cluster(&mut self) -> Result<Option<Cluster>> {
        let Some((series, first)) = self.take()? else { return Ok(None) };
        let mut cluster = Cluster { series, intervals: vec![first] };
        let mut last = first.last;
        while cluster.intervals.len() < CLUSTER
            && last < u64::MAX
            && self.peek().is_some_and(|(series, next)| *series == cluster.series && next.first == last + 1)
            && let Some((_, next)) = self.take()?
        {
            last = next.last;
            cluster.intervals.push(next);
        }
        Ok(Some(cluster))
    }

    fn peek(&self) -> Option<&Pair> {
        self.extra.iter().map(|extra| &extra.next).chain([&self.next]).flatten().min()
    }

    fn take(&mut self) -> Result<Option<Pair>> {
        let Some(pair) = self.peek().cloned() else { return Ok(None) };
        self.extra.iter_mut().try_for_each(|extra| extra.pass(&pair))?;
        if self.next.as_ref() == Some(&pair) {
            self.next = self.read()?;
        }
        Ok(Some(pair))
    }

    /// Reads the next key of the segments that changed; false at the end.
    fn read_key(&mut self) -> Result<bool> {
        let (group, row, left) = match self.rows.take() {
            Some(rows) => rows,
            None => match self.merge.next(limits::GROUP_ROWS)? {
                None => return Ok(false),
                Some(Event::Run { group, first, rows }) => (group, first, rows),
                Some(Event::Versions(versions)) => match versions.into_iter().next() {
                    Some(version) => (version.group, version.row, 1),
                    None => return Ok(false),
                },
            },
        };
        group.push_key(row, &mut self.key)?;
        if left > 1 {
            self.rows = Some((group, row + 1, left - 1));
        }
        Ok(true)
    }

    /// The next pair that the row has to do with that was read last.
    fn next_around(&mut self) -> Option<Pair> {
        let ((series, mut interval), until) = self.around.take()?;
        if interval.first < self.starts.0 {
            interval = self.buckets.interval(interval.first.max(self.starts.0));
            if interval.first < self.starts.0 {
                interval = self.buckets.interval(interval.last.checked_add(1)?);
            }
        }
        if interval.first > until || interval.first >= self.starts.1 {
            return None;
        }
        if let Some(next) = interval.last.checked_add(1).filter(|next| *next <= until) {
            self.around = Some(((series.clone(), self.buckets.interval(next)), until));
        }
        Some((series, interval))
    }

    /// The next pair of the rows that changed.
    fn read(&mut self) -> Result<Option<Pair>> {
        if let Some(pair) = self.next_around() {
            return Ok(Some(pair));
        }
        loop {
            self.key.clear();
            if let Some(key) = self.keys.next() {
                self.key.extend_from_slice(&key);
            } else if !self.read_key()? {
                return Ok(None);
            }
            let (Some(series), Some(time)) = (self.layout.series_of(&self.key), self.layout.time_of_key(&self.key))
            else {
                continue;
            };
            if let Some(points) = &self.points {
                let times = points.affected(time);
                let known = self.last.as_ref().filter(|(known, _)| known == series).map(|(_, last)| *last);
                let mut interval = self.buckets.interval(times.first);
                if let Some(last) = known.filter(|last| last.last >= times.first) {
                    if last.last >= times.last {
                        continue;
                    }
                    interval = self.buckets.interval(last.last + 1);
                }
                self.last = Some((series.to_vec(), self.buckets.interval(times.last)));
                self.around = Some(((series.to_vec(), interval), times.last));
                match self.next_around() {
                    Some(pair) => return Ok(Some(pair)),
                    None => continue,
                }
            }
            if self.last.as_ref().is_some_and(|(known, interval)| interval.contains(time) && known == series) {
                continue;
            }
            let pair = (series.to_vec(), self.buckets.interval(time));
            self.last = Some(pair.clone());
            if (self.starts.0..self.starts.1).contains(&pair.1.first) {
                return Ok(Some(pair));
            }
        }
    }
}

/// Where computed buckets go.
struct Output<'a> {
    engine: &'a Engine,
    tier: &'a Target,
    seq: u64,
    layout: Arc<RowLayout>,
    aggregator: Aggregator,
    buckets: Buckets,
    /// Reads what is around buckets.
    readings: Cursor,
    /// The tier as it was, with what is too old for it: coarser tiers still need that.
    before: Version,
    bytes: Vec<u8>,
    /// Of a tier that is built from all rows, for whoever waits.
    job: Option<RunningJob<'a>>,
    /// Where each row begins, and whether it is a tombstone.
    places: Vec<(usize, bool)>,
    segments: Vec<Arc<LiveSegment>>,
}

impl Output<'_> {
    /// Computes some buckets from the rows of their source. Returns how many were read.
    fn compute(&mut self, rows: &mut Cursor, layout: &RowLayout, cluster: &Cluster) -> Result<u64> {
        let mut read = 0;
        let (Some(first), Some(last)) = (cluster.intervals.first(), cluster.intervals.last()) else { return Ok(read) };
        let (low, high) = bounds_of(layout, &cluster.series, Interval { first: first.first, last: last.last });
        rows.set_bounds(Some(&low), high.as_deref());
        rows.seek(None, true, Direction::Forward)?;
        let known = match self.aggregator.points().cloned() {
            None => Vec::new(),
            Some(points) => points.compute(&mut self.readings, &cluster.series, &self.buckets, &cluster.intervals)?,
        };
        let mut at = 0;
        let time_column = layout.schema().time.map_or(0, |t| usize::from(t.column));
        while let Some(span) = rows.next_span(limits::GROUP_ROWS)? {
            let rrd_codec::Values::Int(times) = &span.group.column(time_column)?.values else { break };
            let (mut row, end) = (span.first as usize, (span.first + span.rows) as usize);
            while row < end {
                while at < cluster.intervals.len() && times[row] > cluster.intervals[at].last {
                    self.end_bucket(&cluster.series, cluster.intervals[at], known.get(at))?;
                    at += 1;
                }
                let Some(interval) = cluster.intervals.get(at) else { return Ok(read) };
                let first = row;
                while row < end && times[row] <= interval.last {
                    row += 1;
                }
                self.aggregator.add(&span.group, first, row - first)?;
            }
            read += u64::from(span.rows);
            if let Some(running) = &self.job {
                running.job.done.fetch_add(span.rows.into(), Ordering::Relaxed);
            }
        }
        let mut rest = at..cluster.intervals.len();
        rest.try_for_each(|at| self.end_bucket(&cluster.series, cluster.intervals[at], known.get(at)))?;
        Ok(read)
    }

    fn end_bucket(&mut self, series: &[u8], interval: Interval, known: Option<&Vec<Known>>) -> Result<()> {
        if let Some(known) = known {
            self.aggregator.set_points(known);
        }
        let is_gone = self.aggregator.is_empty();
        if is_gone {
            let (key, _) = bounds_of(&self.layout, series, interval);
            if Table::find_at(&self.before, &self.layout, &key, u64::MAX)?.is_none() {
                return Ok(());
            }
        } else if self.aggregator.rows() == 0 {
            self.set_key(series)?;
        }
        self.places.push((self.bytes.len(), is_gone));
        match is_gone {
            true => {
                let (key, _) = bounds_of(&self.layout, series, interval);
                self.layout.push_key_row(&key, &mut self.bytes);
            }
            false => self.aggregator.finish(interval.first, &mut self.bytes),
        }
        let part_bytes = PART_BYTES.max(self.engine.tuning.bulk_run_bytes / 2);
        if self.bytes.len() >= part_bytes { self.write() } else { Ok(()) }
    }

    /// For a bucket without rows: a row of its series says what that is.
    fn set_key(&mut self, series: &[u8]) -> Result<()> {
        self.readings.set_bounds(Some(series), key::prefix_end(series).as_deref());
        self.readings.seek(None, true, Direction::Forward)?;
        match self.readings.next_span(1)? {
            Some(span) => self.aggregator.set_key(&span.group, span.row(0)),
            None => Ok(()),
        }
    }

    fn write(&mut self) -> Result<()> {
        let ends = self.places.iter().skip(1).map(|(start, _)| *start).chain([self.bytes.len()]);
        let row = |(&(start, tombstone), end): (&(usize, bool), usize)| OutRow {
            row: &self.bytes[start..end],
            seq: self.seq,
            tombstone,
        };
        let rows: OutRows<'_> = self.places.iter().zip(ends).map(row).collect();
        let table = &self.tier.table;
        let metas = self.engine.write_segments(table, &self.layout, &rows, Effort::Fast, self.tier.room.as_ref())?;
        let open = |meta| LiveSegment::open(&self.engine.fs, &self.engine.cache, &table.dir, table.id, meta);
        self.segments.extend(metas.into_iter().map(open));
        self.bytes.clear();
        self.places.clear();
        Ok(())
    }
}

/// The sort keys of a series between two times: the first, and the first behind.
pub(super) fn bounds_of(layout: &RowLayout, series: &[u8], times: Interval) -> (Vec<u8>, Option<Vec<u8>>) {
    let width = layout.schema().time.map_or(8, |t| match layout.schema().columns[usize::from(t.column)].lane {
        Lane::Int { width } => width,
        _ => 8,
    });
    let at = |time: u64| {
        let mut key = series.to_vec();
        key::push_int(&mut key, time, width);
        key
    };
    let largest = u64::MAX >> (64 - 8 * u32::from(width.clamp(1, 8)));
    let high = if times.last >= largest { key::prefix_end(series) } else { Some(at(times.last + 1)) };
    (at(times.first), high)
}
