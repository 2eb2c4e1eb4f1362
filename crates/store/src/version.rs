//! What a table consists of at one moment. Immutable: a change installs a new version, scans keep theirs.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use crate::horizon::Gate;
use crate::live::LiveSegment;
use crate::memtable::Memtable;
use crate::segment::SegmentId;

/// The sources of a table's rows.
#[derive(Clone)]
pub struct Version {
    /// Takes the writes of new commits.
    pub active: Arc<Memtable>,
    /// Waiting to be flushed, oldest first, each with the sequence number up to which it completes the table.
    pub frozen: Vec<(Arc<Memtable>, u64)>,
    /// Live segments.
    pub segments: Segments,
    /// Segments that the commit with this sequence number dropped as a whole: snapshots from before still see them.
    pub dropped: BTreeMap<SegmentId, (Arc<LiveSegment>, u64)>,
    /// What is behind the horizon; all versions of a table and of its indexes have the same.
    pub gate: Arc<Gate>,
}

impl Version {
    /// A version without rows.
    pub fn empty(active: Memtable) -> Version {
        Version {
            active: Arc::new(active),
            frozen: Vec::new(),
            segments: Segments::default(),
            dropped: BTreeMap::new(),
            gate: Arc::default(),
        }
    }

    /// The segments that a snapshot sees, of those with rows from `from` to `to`.
    pub fn segments_at(&self, snapshot: u64, (from, to): (u64, u64)) -> impl Iterator<Item = &Arc<LiveSegment>> {
        let is_seen = move |(segment, seq): &&(Arc<LiveSegment>, u64)| {
            snapshot < *seq && segment.meta().min_time <= to && from <= segment.meta().max_time
        };
        let dropped = self.dropped.values().filter(is_seen).map(|(segment, _)| segment);
        self.segments.between(from, to).into_iter().chain(dropped)
    }

    /// Moves segments out of the way of all snapshots from `seq` on.
    pub fn drop_segments(&mut self, ids: &[SegmentId], seq: u64) {
        for id in ids {
            if let Some(segment) = self.segments.remove(*id) {
                segment.mark_obsolete();
                self.dropped.insert(*id, (segment, seq));
            }
        }
    }

    /// All memtables.
    pub fn memtables(&self) -> impl Iterator<Item = &Arc<Memtable>> {
        std::iter::once(&self.active).chain(self.frozen.iter().map(|(m, _)| m))
    }

    /// Bytes in memtables.
    pub fn memtable_bytes(&self) -> usize {
        self.memtables().map(|m| m.bytes()).sum()
    }
}

/// Segments by number. Those of some times are found without a look at all others: a table can have tens of thousands.
#[derive(Clone, Default)]
pub struct Segments {
    by_id: BTreeMap<SegmentId, Arc<LiveSegment>>,
    /// Made when first asked for. Versions with the same segments share it.
    by_time: OnceLock<Arc<ByTime>>,
}

impl Segments {
    /// Those whose rows may have times from `from` to `to`.
    pub fn between(&self, from: u64, to: u64) -> Vec<&Arc<LiveSegment>> {
        if (from, to) == (0, u64::MAX) {
            return self.by_id.values().collect();
        }
        let span = |s: &Arc<LiveSegment>| {
            let meta = s.meta();
            TimeSpan { first: meta.min_time, last: meta.max_time, last_below: 0, id: meta.id }
        };
        let by_time = self.by_time.get_or_init(|| Arc::new(ByTime::new(self.by_id.values().map(span).collect())));
        let mut found = Vec::new();
        by_time.collect((from, to), 0..by_time.spans.len(), &mut |id| found.extend(self.by_id.get(&id)));
        found
    }

    /// Adds one.
    pub fn insert(&mut self, segment: Arc<LiveSegment>) {
        self.by_time.take();
        self.by_id.insert(segment.meta().id, segment);
    }

    /// Adds some.
    pub fn extend(&mut self, segments: impl IntoIterator<Item = Arc<LiveSegment>>) {
        self.by_time.take();
        self.by_id.extend(segments.into_iter().map(|segment| (segment.meta().id, segment)));
    }

    /// Takes one out.
    pub fn remove(&mut self, id: SegmentId) -> Option<Arc<LiveSegment>> {
        self.by_time.take();
        self.by_id.remove(&id)
    }

    /// Keeps those for which `stays` says so.
    pub fn retain(&mut self, mut stays: impl FnMut(&Arc<LiveSegment>) -> bool) {
        self.by_time.take();
        self.by_id.retain(|_, segment| stays(segment));
    }
}

impl Deref for Segments {
    type Target = BTreeMap<SegmentId, Arc<LiveSegment>>;
    fn deref(&self) -> &Self::Target {
        &self.by_id
    }
}

/// Segments in the order of their smallest times, read as a balanced tree: the middle of a range is its root.
struct ByTime {
    spans: Vec<TimeSpan>,
}

struct TimeSpan {
    first: u64,
    last: u64,
    /// The largest time of the range that this is the root of.
    last_below: u64,
    id: SegmentId,
}

impl ByTime {
    fn new(mut spans: Vec<TimeSpan>) -> ByTime {
        spans.sort_unstable_by_key(|span| (span.first, span.id));
        note_last(&mut spans);
        ByTime { spans }
    }

    /// Finds the segments of `range` that have rows between two times.
    fn collect(&self, times: (u64, u64), range: std::ops::Range<usize>, found: &mut dyn FnMut(SegmentId)) {
        let middle = range.start + range.len() / 2;
        let Some(root) = self.spans[..range.end].get(middle).filter(|root| root.last_below >= times.0) else { return };
        self.collect(times, range.start..middle, found);
        if root.first <= times.1 {
            if root.last >= times.0 {
                found(root.id);
            }
            self.collect(times, middle + 1..range.end, found);
        }
    }
}

/// Notes the largest time of each range; returns that of all.
fn note_last(spans: &mut [TimeSpan]) -> u64 {
    let middle = spans.len() / 2;
    let (below, from) = spans.split_at_mut(middle);
    let Some((root, above)) = from.split_first_mut() else { return 0 };
    root.last_below = root.last.max(note_last(below)).max(note_last(above));
    root.last_below
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn segments_of_some_times_are_those_that_a_look_at_all_finds(
            spans in proptest::collection::vec((0u64..50, 0u64..20), 0..40),
            (from, length) in (0u64..70, 0u64..30),
        ) {
            let span = |(id, &(first, length)): (usize, &(u64, u64))| {
                TimeSpan { first, last: first + length, last_below: 0, id: SegmentId(id as u64) }
            };
            let times = (from, from + length);
            let spans: Vec<TimeSpan> = spans.iter().enumerate().map(span).collect();
            let is_within = |span: &&TimeSpan| span.first <= times.1 && times.0 <= span.last;
            let mut wanted: Vec<u64> = spans.iter().filter(is_within).map(|span| span.id.0).collect();
            let by_time = ByTime::new(spans);
            let mut found = Vec::new();
            by_time.collect(times, 0..by_time.spans.len(), &mut |id| found.push(id.0));
            found.sort_unstable();
            wanted.sort_unstable();
            prop_assert_eq!(found, wanted);
        }
    }
}
