//! Which buckets rows have touched that are not in the tiers yet.
//!
//! It belongs to a memtable: what is in there, and what bulk statements and dropped chunks changed meanwhile, gets into the
//! tiers when the memtable is flushed. Until then, and for snapshots from before that flush for ever, those buckets are
//! computed from the rows.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::live::LiveSegment;
use crate::schema::Schema;
use crate::segment::SegmentId;

use super::bucket::{Buckets, Interval};
use super::points::Points;

/// What was touched since some flush, for all tiers of a table.
#[derive(Clone, Default)]
pub struct Touched {
    tiers: Vec<TouchedTier>,
    points: Option<Arc<Points>>,
    /// Times of which anything may have changed, each with the commit that did.
    ranges: Vec<(Interval, u64)>,
    /// Of bulk statements: whose keys say what changed.
    segments: Vec<Arc<LiveSegment>>,
    /// Tiers that are to be built from all rows, each with the commit that asked for it.
    builds: Vec<(u32, u64)>,
    /// First and last time of all that was touched.
    span: Option<(u64, u64)>,
    /// The newest row.
    newest: Option<u64>,
}

#[derive(Clone)]
struct TouchedTier {
    id: u32,
    buckets: Buckets,
    /// Buckets side by side that the same commit was the first to touch, by start: last time, and that commit. A row can touch
    /// millions, where HEARTBEAT is much longer than a bucket.
    touched: BTreeMap<u64, (u64, u64)>,
    /// All of that, by start: last time. Neighbours are one.
    covered: BTreeMap<u64, u64>,
    /// The bucket that was noted last.
    last: Option<Interval>,
}

impl Touched {
    /// Of a table with this schema; `None` if it has no tiers.
    pub fn of(schema: &Schema) -> Option<Touched> {
        let tier = |def: &crate::schema::TierDef| {
            let buckets = Buckets::of(schema, def.bucket)?;
            Some(TouchedTier { id: def.id, buckets, touched: BTreeMap::new(), covered: BTreeMap::new(), last: None })
        };
        let tiers: Vec<TouchedTier> = schema.tiers.iter().filter_map(tier).collect();
        let points = Points::of(schema).map(Arc::new);
        (!tiers.is_empty()).then(|| Touched { tiers, points, ..Touched::default() })
    }

    /// A commit wrote a row with this time.
    #[inline]
    pub fn note(&mut self, time: u64, seq: u64) {
        self.newest = self.newest.max(Some(time));
        if let Some(points) = &self.points {
            let affected = points.affected(time);
            self.tiers.iter_mut().for_each(|tier| tier.note_all(affected, seq));
            return self.widen(affected.first, affected.last);
        }
        for tier in &mut self.tiers {
            if tier.last.is_some_and(|last| last.contains(time)) {
                continue;
            }
            tier.note_all(Interval { first: time, last: time }, seq);
        }
        self.widen(time, time);
    }

    /// Times that rows of these times have to do with.
    fn affected(&self, first: u64, last: u64) -> Interval {
        match &self.points {
            None => Interval { first, last },
            Some(points) => Interval { first: points.affected(first).first, last: points.affected(last).last },
        }
    }

    /// A commit brought a segment.
    pub fn note_segment(&mut self, segment: &Arc<LiveSegment>) {
        self.newest = self.newest.max(Some(segment.meta().max_time));
        let times = self.affected(segment.meta().min_time, segment.meta().max_time);
        self.widen(times.first, times.last);
        self.segments.push(segment.clone());
    }

    /// A commit changed whatever it liked between two times.
    pub fn note_range(&mut self, first: u64, last: u64, seq: u64) {
        let Interval { first, last } = self.affected(first, last);
        self.widen(first, last);
        self.ranges.push((Interval { first, last }, seq));
    }

    /// What is left to know once all of it is in the tiers.
    pub fn into_past(mut self) -> Touched {
        for segment in std::mem::take(&mut self.segments) {
            let meta = segment.meta();
            self.ranges.push((self.affected(meta.min_time, meta.max_time), meta.base_seq));
        }
        self
    }

    /// A tier is to be built from all rows there are.
    pub fn note_build(&mut self, tier: u32, seq: u64) {
        self.widen(0, u64::MAX);
        self.builds.push((tier, seq));
    }

    /// Tiers that are to be built from all rows.
    pub fn builds(&self) -> impl Iterator<Item = u32> {
        self.builds.iter().map(|(tier, _)| *tier)
    }

    fn widen(&mut self, first: u64, last: u64) {
        self.span = Some(self.span.map_or((first, last), |(a, b)| (a.min(first), b.max(last))));
    }

    /// The newest time of a row.
    pub fn newest(&self) -> Option<u64> {
        self.newest
    }

    /// First and last time that was touched.
    pub fn span(&self) -> Option<(u64, u64)> {
        self.span
    }

    /// Whether there is something that is not in the memtable.
    pub fn has_more(&self) -> bool {
        !self.ranges.is_empty() || !self.segments.is_empty() || !self.builds.is_empty()
    }

    /// Segments of bulk statements.
    pub fn segments(&self) -> &[Arc<LiveSegment>] {
        &self.segments
    }

    /// Their numbers.
    pub fn segment_ids(&self) -> impl Iterator<Item = SegmentId> {
        self.segments.iter().map(|s| s.meta().id)
    }

    /// Times of which anything may have changed, each with the commit that did.
    pub fn ranges(&self) -> &[(Interval, u64)] {
        &self.ranges
    }

    /// Appends the touched buckets of a tier, as far as commits that `snapshot` sees touched them. They may overlap.
    pub fn push_intervals(&self, tier: u32, snapshot: u64, out: &mut Vec<Interval>) {
        if self.builds.iter().any(|(id, seq)| *id == tier && *seq <= snapshot) {
            out.push(Interval { first: 0, last: u64::MAX });
        }
        let Some(tier) = self.tiers.iter().find(|t| t.id == tier) else { return };
        let seen = tier.touched.iter().filter(|(_, (_, seq))| *seq <= snapshot);
        out.extend(seen.map(|(&first, &(last, _))| Interval { first, last }));
        let segments = self.segments.iter().map(|s| s.meta());
        let segments = segments.map(|m| (self.affected(m.min_time, m.max_time), m.base_seq));
        for (range, seq) in self.ranges.iter().copied().chain(segments) {
            if seq <= snapshot {
                out.push(tier.buckets.covering(range));
            }
        }
    }
}

impl TouchedTier {
    /// Notes all buckets of some times.
    fn note_all(&mut self, times: Interval, seq: u64) {
        if self.last.is_some_and(|last| last.contains(times.first) && last.contains(times.last)) {
            return;
        }
        let all = self.buckets.covering(times);
        self.last = Some(all);
        let before = self.covered.range(..=all.first).next_back().map(|(&first, &last)| (first, last));
        if before.is_some_and(|(_, last)| last >= all.last) {
            return;
        }
        let start =
            before.filter(|(_, last)| last.saturating_add(1) >= all.first).map_or(all.first, |(first, _)| first);
        let near = self.covered.range(start..=all.last.saturating_add(1)).map(|(&first, &last)| (first, last));
        let near: Vec<(u64, u64)> = near.collect();
        let (mut union, mut from) = (all, Some(all.first));
        for (first, last) in near {
            self.covered.remove(&first);
            union = Interval { first: union.first.min(first), last: union.last.max(last) };
            if let Some(gap) = from.filter(|from| *from < first && *from <= all.last) {
                self.note_gap(Interval { first: gap, last: (first - 1).min(all.last) }, seq);
            }
            from = last.checked_add(1).map(|behind| behind.max(all.first));
        }
        if let Some(gap) = from.filter(|from| *from <= all.last) {
            self.note_gap(Interval { first: gap, last: all.last }, seq);
        }
        self.covered.insert(union.first, union.last);
    }

    /// Notes buckets that nobody has touched.
    fn note_gap(&mut self, gap: Interval, seq: u64) {
        if let Some((_, (last, by))) = self.touched.range_mut(..gap.first).next_back()
            && last.checked_add(1) == Some(gap.first)
            && *by == seq
        {
            *last = gap.last;
            return;
        }
        self.touched.insert(gap.first, (gap.last, seq));
    }
}

/// Sorts intervals and joins those that overlap or touch.
pub fn join(mut intervals: Vec<Interval>) -> Vec<Interval> {
    intervals.sort_unstable();
    let mut joined: Vec<Interval> = Vec::with_capacity(intervals.len());
    for next in intervals {
        match joined.last_mut() {
            Some(last) if next.first <= last.last.saturating_add(1) => last.last = last.last.max(next.last),
            _ => joined.push(next),
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

    use super::*;
    use crate::schema::Bucket;
    use proptest::prelude::*;

    proptest! {
        /// Each bucket was noted by itself: with HEARTBEAT='40d' and buckets of a second one row took a gigabyte.
        #[test]
        fn spans_of_buckets_say_what_each_bucket_would(notes in prop::collection::vec((0u64..200, 0u64..50), 1..30)) {
            let schema: Schema = serde_json::from_str(
                r#"{"version": 1, "columns": [{"id": 0, "name": "t", "lane": {"int": {"width": 8}}, "nullable": false}],
                "key": [0], "time": {"column": 0, "unit": "us"}}"#,
            ).unwrap();
            let buckets = Buckets::of(&schema, Bucket::Fixed { length: 10, offset: 0 }).unwrap();
            let mut tier = TouchedTier { id: 1, buckets, touched: BTreeMap::new(), covered: BTreeMap::new(), last: None };
            let mut each: BTreeMap<u64, u64> = BTreeMap::new();
            for (seq, &(first, length)) in (1..).zip(&notes) {
                tier.note_all(Interval { first, last: first + length }, seq);
                (first / 10..=(first + length) / 10).for_each(|n| _ = each.entry(n).or_insert(seq));
            }
            let spans = tier.touched.iter();
            let of_spans: BTreeMap<u64, u64> =
                spans.flat_map(|(first, (last, seq))| (first / 10..=last / 10).map(|n| (n, *seq))).collect();
            prop_assert_eq!(of_spans, each);
            prop_assert!(tier.touched.len() <= 2 * notes.len() + 1);
        }
    }
}
