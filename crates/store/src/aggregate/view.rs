//! What an aggregate reads: the sources of one version of a table, sorted into spans of time that have nothing to do with
//! each other, and these into parts that threads work on.
//!
//! A key holds its time, so versions of one row are found in sources of the same time only: sources whose times overlap
//! make a *cluster*. Rows in memory are copied out once and dealt out to the clusters. A large cluster is cut into key
//! ranges. What the parts are depends on the data alone, so that float sums do not depend on the number of threads.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use parking_lot::RwLock;

use super::query::{Condition, Query};
use crate::cursor::times_between;
use crate::error::Result;
use crate::group::RowGroup;
use crate::horizon::Horizon;
use crate::live::LiveSegment;
use crate::memtable::{Key, RowCollector};
use crate::own::OwnWrites;
use crate::row::RowLayout;
use crate::snapshot::Snapshot;
use crate::version::Version;

/// Rows copied out of memory at once.
const BATCH_ROWS: usize = 4096;

/// What a statement sees of a table.
pub struct View {
    pub version: Arc<Version>,
    pub layout: Arc<RowLayout>,
    /// Held, so that nothing that it sees is forgotten.
    pub snapshot: Arc<Snapshot>,
    pub own: Option<Arc<RwLock<OwnWrites>>>,
    pub horizon: Option<Horizon>,
}

/// Sorted rows.
#[derive(Clone)]
pub enum Source {
    /// Of a segment; `base_seq` as in [`super::block::From`].
    Segment { segment: Arc<LiveSegment>, base_seq: u64 },
    /// Out of memory, one group behind the other, with the times that occur.
    Rows { groups: Vec<Arc<RowGroup>>, min_time: u64, max_time: u64 },
}

/// Sources whose times overlap.
#[derive(Default)]
pub struct Cluster {
    pub sources: Vec<Source>,
}

/// The rows of a cluster in a range of keys.
pub struct Part {
    pub cluster: usize,
    pub low: Option<Vec<u8>>,
    pub high: Option<Vec<u8>>,
}

/// What there is to do.
pub struct Plan {
    pub clusters: Vec<Cluster>,
    pub parts: Vec<Part>,
}

impl Source {
    /// Smallest and largest time.
    pub fn times(&self) -> (u64, u64) {
        match self {
            Source::Segment { segment, .. } => (segment.meta().min_time, segment.meta().max_time),
            Source::Rows { min_time, max_time, .. } => (*min_time, *max_time),
        }
    }

    fn rows(&self) -> u64 {
        match self {
            Source::Segment { segment, .. } => segment.meta().rows,
            Source::Rows { groups, .. } => groups.iter().map(|g| g.rows() as u64).sum(),
        }
    }
}

/// The times that rows of a query can have.
pub fn times_of(query: &Query, layout: &RowLayout) -> (u64, u64) {
    let (from, to) = times_of_all(&query.conditions, layout);
    match (&query.low, &query.high) {
        (Some(low), Some(high)) if layout.schema().time.is_some() => {
            let (first, last) = times_between(layout, low, high).unwrap_or((0, u64::MAX));
            (from.max(first), to.min(last))
        }
        _ => (from, to),
    }
}

/// The times that rows can have for which all conditions hold.
pub fn times_of_all(conditions: &[Condition], layout: &RowLayout) -> (u64, u64) {
    let Some(time) = layout.schema().time else { return (0, u64::MAX) };
    let of_each = conditions.iter().map(|condition| times_that_meet(condition, usize::from(time.column)));
    of_each.fold((0, u64::MAX), |all, one| (all.0.max(one.0), all.1.min(one.1)))
}

/// The times for which a condition can hold; the first behind the last if there are none.
fn times_that_meet(condition: &Condition, time: usize) -> (u64, u64) {
    let all = (0, u64::MAX);
    let none = (u64::MAX, 0);
    match condition {
        Condition::Range { column, low, high, negated: false } if *column == time => (*low, *high),
        Condition::In { column, values, negated: false } if *column == time => {
            values.first().copied().zip(values.last().copied()).unwrap_or(none)
        }
        Condition::All(parts) => parts.iter().map(|part| times_that_meet(part, time)).fold(all, |a, b| {
            let (low, high) = (a.0.max(b.0), a.1.min(b.1));
            if low > high { none } else { (low, high) }
        }),
        Condition::Any(parts) => {
            parts.iter().map(|part| times_that_meet(part, time)).fold(none, |a, b| (a.0.min(b.0), a.1.max(b.1)))
        }
        _ => all,
    }
}

impl View {
    /// What there is to do for a query, in parts of about `part_rows` rows.
    pub fn plan(&self, query: &Query, part_rows: u64) -> Result<Plan> {
        let times = times_of(query, &self.layout);
        let clusters = if times.0 > times.1 { Vec::new() } else { self.clusters(query, times)? };
        let mut parts = Vec::new();
        for (number, cluster) in clusters.iter().enumerate() {
            let mut low = query.low.clone();
            for cut in cuts(cluster, query, part_rows)? {
                parts.push(Part { cluster: number, low: low.replace(cut.clone()), high: Some(cut) });
            }
            parts.push(Part { cluster: number, low, high: query.high.clone() });
        }
        Ok(Plan { clusters, parts })
    }

    /// Segments by time, and with them the rows in memory.
    fn clusters(&self, query: &Query, times: (u64, u64)) -> Result<Vec<Cluster>> {
        let (spans, mut clusters) = by_time(self.segments(query, times));
        let bounds = (query.low.as_deref(), query.high.as_deref());
        for memtable in self.version.memtables().filter(|m| !m.is_empty()) {
            let mut dealer = Dealer::new(&self.layout, times, &spans);
            take_all(bounds.0, |from| {
                memtable.visit(from, self.snapshot.seq(), (BATCH_ROWS, bounds.1), &mut |key, version| {
                    dealer.take(key, version.seq, version.row);
                })
            });
            dealer.finish(&mut clusters);
        }
        if let Some(own) = &self.own
            && !own.read().has_no_rows()
        {
            own.write().settle();
            let mut dealer = Dealer::new(&self.layout, times, &spans);
            take_all(bounds.0, |from| {
                own.read().visit(from, (BATCH_ROWS, bounds.1), &mut |key, write| {
                    dealer.take(key, u64::MAX, write.row.as_deref());
                })
            });
            dealer.finish(&mut clusters);
        }
        clusters.retain(|cluster| !cluster.sources.is_empty());
        Ok(clusters)
    }

    /// The segments that can have rows of a query.
    fn segments(&self, query: &Query, times: (u64, u64)) -> Vec<Source> {
        let mut segments: Vec<Source> = Vec::new();
        let mut push = |segment: &Arc<LiveSegment>, base_seq: u64| {
            let meta = segment.meta();
            let is_behind = query.low.as_ref().is_some_and(|low| meta.last_key < *low);
            let is_before = query.high.as_ref().is_some_and(|high| meta.first_key >= *high);
            if !is_behind && !is_before && meta.min_time <= times.1 && times.0 <= meta.max_time {
                segments.push(Source::Segment { segment: segment.clone(), base_seq });
            }
        };
        for segment in self.version.segments_at(self.snapshot.seq(), times) {
            let is_gone = match (&self.horizon, self.layout.places()) {
                (Some(horizon), Some(places)) => places.is_gone(&self.layout, segment.meta(), horizon),
                _ => false,
            };
            if !is_gone {
                push(segment, segment.meta().base_seq);
            }
        }
        if let Some(own) = &self.own {
            for (rank, private) in own.read().private.iter().enumerate() {
                push(&private.segment, OwnWrites::private_seq(rank));
            }
        }
        segments
    }
}

/// Clusters of segments by time, and their spans. Behind each cluster, and before the first, there is an empty one for rows
/// in memory whose times lie there: cluster 2 i + 1 is that of span i.
fn by_time(mut segments: Vec<Source>) -> (Vec<(u64, u64)>, Vec<Cluster>) {
    segments.sort_by_key(Source::times);
    let mut spans: Vec<(u64, u64)> = Vec::new();
    let mut clusters = vec![Cluster::default()];
    for segment in segments {
        let (min, max) = segment.times();
        match spans.last_mut().filter(|(_, last)| min <= *last) {
            Some(span) => span.1 = span.1.max(max),
            None => {
                spans.push((min, max));
                clusters.extend([Cluster::default(), Cluster::default()]);
            }
        }
        clusters[2 * spans.len() - 1].sources.push(segment);
    }
    (spans, clusters)
}

/// Visits a map in memory from a key on, some rows at a time so that writers need not wait long.
fn take_all(low: Option<&[u8]>, mut visit: impl FnMut(Bound<&[u8]>) -> Option<Key>) {
    let mut more = visit(low.map_or(Bound::Unbounded, Bound::Included));
    while let Some(key) = more {
        more = visit(Bound::Excluded(&key));
    }
}

/// Deals rows of one source in memory out to clusters.
struct Dealer<'a> {
    layout: &'a Arc<RowLayout>,
    times: (u64, u64),
    spans: &'a [(u64, u64)],
    /// By number of the cluster.
    dealt: BTreeMap<usize, Dealt>,
}

#[derive(Default)]
struct Dealt {
    rows: RowCollector,
    groups: Vec<Arc<RowGroup>>,
    times: Option<(u64, u64)>,
}

impl<'a> Dealer<'a> {
    fn new(layout: &'a Arc<RowLayout>, times: (u64, u64), spans: &'a [(u64, u64)]) -> Dealer<'a> {
        Dealer { layout, times, spans, dealt: BTreeMap::new() }
    }

    /// Takes a row (`None`: a tombstone) if its time matters.
    fn take(&mut self, key: &[u8], seq: u64, row: Option<&[u8]>) {
        let time = self.layout.time_of_key(key).unwrap_or(0);
        if time < self.times.0 || time > self.times.1 {
            return;
        }
        let span = self.spans.partition_point(|(_, last)| *last < time);
        let is_within = self.spans.get(span).is_some_and(|(first, _)| *first <= time);
        let dealt = self.dealt.entry(2 * span + usize::from(is_within)).or_default();
        dealt.rows.push(self.layout, key, seq, row);
        dealt.times = Some(dealt.times.map_or((time, time), |(min, max)| (min.min(time), max.max(time))));
        if dealt.rows.rows() >= BATCH_ROWS {
            dealt.end_group(self.layout);
        }
    }

    fn finish(self, clusters: &mut [Cluster]) {
        for (cluster, mut dealt) in self.dealt {
            dealt.end_group(self.layout);
            let (min_time, max_time) = dealt.times.unwrap_or_default();
            clusters[cluster].sources.push(Source::Rows { groups: dealt.groups, min_time, max_time });
        }
    }
}

impl Dealt {
    fn end_group(&mut self, layout: &Arc<RowLayout>) {
        if self.rows.rows() > 0 {
            self.groups.push(RowGroup::from_rows(layout.clone(), std::mem::take(&mut self.rows)));
        }
    }
}

/// Keys to cut a cluster at, so that about `part_rows` rows of its largest source lie between two.
fn cuts(cluster: &Cluster, query: &Query, part_rows: u64) -> Result<Vec<Vec<u8>>> {
    let Some(largest) = cluster.sources.iter().max_by_key(|s| s.rows()).filter(|s| s.rows() > part_rows) else {
        return Ok(Vec::new());
    };
    let mut cuts: Vec<Vec<u8>> = Vec::new();
    let mut rows = 0;
    let mut is_due = |more: u64| {
        let is_due = rows >= part_rows;
        rows = if is_due { more } else { rows + more };
        is_due
    };
    match largest {
        Source::Segment { segment, .. } => {
            let index = segment.index()?;
            let first = query.low.as_ref().map_or(0, |low| index.find_group(low));
            let groups = (first..index.group_count()).map(|group| index.group(group));
            let is_before = |key: &[u8]| query.high.as_ref().is_none_or(|high| key < high.as_slice());
            for group in groups.take_while(|group| is_before(group.first_key)) {
                if is_due(group.rows.into()) {
                    cuts.push(group.first_key.to_vec());
                }
            }
        }
        Source::Rows { groups, .. } => {
            for group in groups {
                if is_due(group.rows() as u64) {
                    let mut key = Vec::new();
                    group.push_key(0, &mut key)?;
                    cuts.push(key);
                }
            }
        }
    }
    cuts.dedup();
    cuts.retain(|cut| query.low.as_ref().is_none_or(|low| cut > low));
    Ok(cuts)
}
