//! Which segments of a table to merge next. Pure: figures in, plans out.
//!
//! A chunk's segments are merged once, into one sealed segment, when time has moved on to later chunks; that keeps write
//! amplification low. Large segments that a flush sealed are not even merged once, unless they are many. A chunk that is still
//! written to is merged early only when a scan would have to merge too many segments: then segments of similar size go together,
//! the smallest first.
//!
//! What comes late to a chunk that is sealed waits, if the chunk is large or where that is wanted, until it is worth the rewriting
//! of the chunk.
//!
//! Neighbours with few rows become one chunk when they are many.
//!
//! Versions and tombstones that a merge had to keep for an open snapshot, and many tombstones in any chunk, are
//! reason for another merge as soon as nobody sees them.

use std::collections::BTreeMap;

use crate::chunk::Worth;
use crate::limits::{
    LATE_SEGMENTS_WORTH_A_MERGE, LATE_SHARE_WORTH_A_MERGE, MAX_CHUNK_SEGMENTS, MAX_SEALED_SEGMENTS, MERGES_PLANNED,
    SEALED_FLUSH_ROWS, SPARSE_SEGMENTS_MERGED, TOMBSTONES_WORTH_A_MERGE,
};
use crate::segment::{SegmentId, SegmentMeta};
use crate::version::Version;

/// What to merge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The chunk.
    pub chunk: u64,
    /// Its segments to merge, two or more (or one that is not sealed yet).
    pub segments: Vec<SegmentId>,
    /// Whether that is all of the chunk: the result is sealed, tombstones go.
    pub whole_chunk: bool,
    /// Later chunks that become one with it; `segments` are all of theirs too.
    pub joins: Vec<u64>,
}

impl Plan {
    /// The chunks that its segments lie in.
    pub fn chunks(&self) -> impl Iterator<Item = u64> {
        std::iter::once(self.chunk).chain(self.joins.iter().copied())
    }

    /// Bytes of the segments, as far as a version has them.
    pub fn bytes_in(&self, version: &Version) -> u64 {
        self.bytes_of_each(version).sum()
    }

    /// Those of the largest one.
    pub fn largest_in(&self, version: &Version) -> u64 {
        self.bytes_of_each(version).max().unwrap_or(0)
    }

    fn bytes_of_each(&self, version: &Version) -> impl Iterator<Item = u64> {
        self.segments.iter().filter_map(|id| version.segments.get(id)).map(|s| s.meta().bytes)
    }
}

/// The next merges that are due, each of another chunk, at most `MERGES_PLANNED`. `everything` also seals the chunks
/// that are still written to (OPTIMIZE). What was written up to `forget_until` every snapshot sees, and a merge of a whole
/// chunk may forget. With `late_waits` a sealed chunk is not written anew for each few rows that come late.
pub fn choose<'a>(
    segments: impl Iterator<Item = &'a SegmentMeta>,
    has_time: bool,
    everything: bool,
    forget_until: u64,
    late_waits: bool,
) -> Vec<Plan> {
    let chunks = by_chunk(segments);
    let newest = chunks.keys().next_back().copied();
    let is_due = |chunk: u64, members: &[&SegmentMeta]| {
        let unsealed = members.len() > 1 || !members[0].sealed;
        let is_closed = has_time && Some(chunk) != newest;
        let is_settled = members.iter().all(|m| m.max_seq <= forget_until);
        let waits = !everything && (late_waits || is_large(members)) && is_little(members);
        (unsealed && (everything || is_closed) && !waits) || (holds_garbage(members) && is_settled)
    };
    let plans = chunks.iter().filter_map(|(&chunk, members)| match is_due(chunk, members) {
        true => Some(whole(chunk, members)),
        false => too_many(chunk, members),
    });
    plans.take(MERGES_PLANNED).collect()
}

/// The chunks of a table with a time column that are to become one with their neighbours, when more than a few are sparse.
pub fn choose_joins<'a>(segments: impl Iterator<Item = &'a SegmentMeta>, worth: Worth) -> Vec<Plan> {
    let chunks = by_chunk(segments);
    let of = |members: &[&SegmentMeta]| members.iter().fold((0, 0), |(r, b), m| (r + m.rows, b + m.bytes));
    let is_sparse = |members: &[&SegmentMeta]| {
        let (rows, bytes) = of(members);
        worth.is_sparse(rows, bytes) && members.len() < SPARSE_SEGMENTS_MERGED
    };
    let Some((_, last)) = chunks.last_key_value() else { return Vec::new() };
    if chunks.values().filter(|members| is_sparse(members)).count() as u64 <= worth.few {
        return Vec::new();
    }
    let newest = last.iter().map(|m| m.max_time).max().unwrap_or(0);
    let mut plans: Vec<Plan> = Vec::new();
    let (mut open, mut rows, mut bytes, mut from) = (false, 0, 0, 0);
    // Rows still come to the newest one.
    for (&chunk, members) in chunks.iter().take(chunks.len() - 1) {
        if !is_sparse(members) {
            open = false;
            continue;
        }
        let until = members.iter().map(|m| m.max_time).max().unwrap_or(0);
        let ids = || members.iter().map(|m| m.id);
        let fits = |plan: &&mut Plan| {
            open && worth.is_sparse(rows, bytes)
                && plan.segments.len() + members.len() <= SPARSE_SEGMENTS_MERGED
                && worth.may_be_long(until - from, until, newest)
        };
        match plans.last_mut().filter(fits) {
            Some(plan) => {
                plan.joins.push(chunk);
                plan.segments.extend(ids());
            }
            None => {
                plans.push(whole(chunk, members));
                (open, rows, bytes) = (true, 0, 0);
                from = members.iter().map(|m| m.min_time).min().unwrap_or(0);
            }
        }
        let (more_rows, more_bytes) = of(members);
        (rows, bytes) = (rows + more_rows, bytes + more_bytes);
    }
    plans.retain(|plan| !plan.joins.is_empty());
    plans.truncate(MERGES_PLANNED);
    plans
}

/// Of a table of one chunk in a ring of bytes, which gets smaller by merges only: the next merge of at most `most_bytes`, of
/// segments side by side in the order of their keys, when they are many.
pub fn choose_small<'a>(segments: impl Iterator<Item = &'a SegmentMeta>, most_bytes: u64) -> Option<Plan> {
    let mut members: Vec<_> = segments.collect();
    if members.len() <= MAX_CHUNK_SEGMENTS {
        return None;
    }
    members.sort_by(|a, b| a.first_key.cmp(&b.first_key));
    let bytes_of = |range: std::ops::Range<usize>| members[range].iter().map(|m| m.bytes).sum::<u64>();
    let first = (0..members.len() - 1).min_by_key(|&first| bytes_of(first..first + 2))?;
    let mut range = first..first + 2;
    let mut bytes = bytes_of(range.clone());
    while range.end < members.len()
        && members[range.end].bytes <= bytes
        && bytes + members[range.end].bytes <= most_bytes
    {
        bytes += members[range.end].bytes;
        range.end += 1;
    }
    let plan = Plan {
        chunk: members[0].chunk,
        segments: members[range].iter().map(|m| m.id).collect(),
        whole_chunk: false,
        joins: Vec::new(),
    };
    (bytes <= most_bytes).then_some(plan)
}

/// Whether a merge is worth while once the open snapshots are gone.
pub fn waits_for_snapshots<'a>(segments: impl Iterator<Item = &'a SegmentMeta>) -> bool {
    by_chunk(segments).values().any(|members| holds_garbage(members))
}

fn by_chunk<'a>(segments: impl Iterator<Item = &'a SegmentMeta>) -> BTreeMap<u64, Vec<&'a SegmentMeta>> {
    let mut chunks: BTreeMap<u64, Vec<&SegmentMeta>> = BTreeMap::new();
    for meta in segments {
        chunks.entry(meta.chunk).or_default().push(meta);
    }
    chunks
}

/// Whether merging a chunk for nothing but what it may forget is worth while.
fn holds_garbage(members: &[&SegmentMeta]) -> bool {
    let (rows, tombstones) = members.iter().fold((0, 0), |(r, t), m| (r + m.rows, t + m.tombstones));
    let is_sealed_with_versions =
        members.len() == 1 && members[0].sealed && (members[0].has_versions || tombstones > 0);
    is_sealed_with_versions || (tombstones > 0 && tombstones as f64 >= rows as f64 * TOMBSTONES_WORTH_A_MERGE)
}

/// Whether a chunk has so many rows that to write it anew should be worth while.
fn is_large(members: &[&SegmentMeta]) -> bool {
    members.iter().any(|m| m.sealed && m.rows >= SEALED_FLUSH_ROWS)
}

/// Whether what came late to a chunk that is sealed is little beside it, and what is sealed few segments.
fn is_little(members: &[&SegmentMeta]) -> bool {
    let bytes = |sealed: bool| members.iter().filter(|m| m.sealed == sealed).map(|m| m.bytes).sum::<u64>();
    let late = members.iter().filter(|m| !m.sealed).count();
    let is_split = members.len() - late > MAX_SEALED_SEGMENTS;
    !is_split
        && late < LATE_SEGMENTS_WORTH_A_MERGE
        && (bytes(false) as f64) < bytes(true) as f64 * LATE_SHARE_WORTH_A_MERGE
}

fn whole(chunk: u64, members: &[&SegmentMeta]) -> Plan {
    Plan { chunk, segments: members.iter().map(|m| m.id).collect(), whole_chunk: true, joins: Vec::new() }
}

/// Merges the smallest segments of a crowded chunk: as many as are within four times of what they add up to.
fn too_many(chunk: u64, members: &[&SegmentMeta]) -> Option<Plan> {
    if members.len() <= MAX_CHUNK_SEGMENTS {
        return None;
    }
    let mut by_size: Vec<_> = members.to_vec();
    by_size.sort_by_key(|m| m.bytes);
    let mut taken = 0;
    let mut bytes = 0;
    for meta in &by_size {
        if taken >= 2 && meta.bytes > bytes.max(1) * 4 {
            break;
        }
        taken += 1;
        bytes += meta.bytes;
    }
    if taken == members.len() {
        return Some(whole(chunk, members));
    }
    Some(Plan {
        chunk,
        segments: by_size[..taken].iter().map(|m| m.id).collect(),
        whole_chunk: false,
        joins: Vec::new(),
    })
}

#[cfg(test)]
#[expect(clippy::expect_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    fn meta(id: u64, chunk: u64, bytes: u64, sealed: bool) -> SegmentMeta {
        SegmentMeta {
            id: SegmentId(id),
            chunk,
            schema_version: 1,
            rows: 1,
            tombstones: 0,
            bytes,
            first_key: vec![0],
            last_key: vec![1],
            min_time: 0,
            max_time: 0,
            base_seq: 0,
            max_seq: 0,
            has_versions: false,
            sealed,
        }
    }

    #[test]
    fn a_chunk_is_sealed_once_a_later_one_exists() {
        let open = [meta(1, 0, 10, false), meta(2, 0, 10, false)];
        assert_eq!(choose(open.iter(), true, false, 0, false), []);
        let closed = [meta(1, 0, 10, false), meta(2, 0, 10, false), meta(3, 100, 10, false)];
        let plan = choose(closed.iter(), true, false, 0, false).pop().expect("a merge is due");
        assert_eq!((plan.chunk, plan.whole_chunk, plan.segments.len()), (0, true, 2));
        let sealed = [meta(4, 0, 20, true), meta(3, 100, 10, false)];
        assert_eq!(choose(sealed.iter(), true, false, 0, false), []);
    }

    /// A table of hourly readings with CHUNK='1h' had a file for each of its rows.
    #[test]
    fn neighbours_with_few_rows_become_one_chunk_when_they_are_many() {
        let worth = Worth { rows: 4, bytes: 1000, few: 5, kept: None };
        let chunk = |n: u64, rows| SegmentMeta {
            rows,
            min_time: 100 * n,
            max_time: 100 * n + 50,
            ..meta(n, 100 * n, 10, true)
        };
        let joined = |rows: &[u64], worth| {
            let metas: Vec<_> = (0..).zip(rows).map(|(n, &rows)| chunk(n, rows)).collect();
            let plans = choose_joins(metas.iter(), worth);
            plans.iter().map(|p| p.chunks().map(|chunk| chunk / 100).collect()).collect::<Vec<Vec<u64>>>()
        };
        assert_eq!(joined(&[1; 5], worth), Vec::<Vec<u64>>::new());
        assert_eq!(
            joined(&[1; 10], worth),
            [vec![0, 1, 2, 3], vec![4, 5, 6, 7]],
            "not the newest, and one that is left over"
        );
        assert_eq!(joined(&[1, 1, 9, 1, 1, 9, 1, 9, 1, 1], worth), [vec![0, 1], vec![3, 4]], "not over one with rows");
        let kept = Worth { kept: Some((400, 200)), ..worth };
        assert_eq!(joined(&[1; 10], kept), [vec![0, 1, 2, 3], vec![4, 5], vec![6, 7]], "what is kept leaves in steps");
        assert_eq!(joined(&[1; 10], Worth { bytes: 10, ..worth }), Vec::<Vec<u64>>::new());
    }

    #[test]
    fn what_comes_late_waits_until_it_is_worth_a_merge() {
        let late = |segments: u64, bytes: u64| {
            let late = (0..segments).map(|i| meta(2 + i, 0, bytes, false));
            let metas: Vec<_> = late.chain([meta(1, 0, 8000, true), meta(99, 100, 10, false)]).collect();
            [true, false].map(|late_waits| choose(metas.iter(), true, false, 0, late_waits).len())
        };
        assert_eq!(late(1, 999), [0, 1]);
        assert_eq!(late(1, 1000), [1, 1]);
        assert_eq!(late(5, 10), [0, 1]);
        assert_eq!(late(6, 10), [1, 1]);
        let metas = [meta(1, 0, 8000, true), meta(2, 0, 10, false)];
        assert_eq!(choose(metas.iter(), true, true, 0, true).len(), 1, "OPTIMIZE does not wait");
    }

    #[test]
    fn large_segments_that_a_flush_sealed_are_left_until_they_are_many() {
        let large = |id: u64| SegmentMeta { rows: SEALED_FLUSH_ROWS, ..meta(id, 0, 1000, true) };
        let merged = |sealed: usize, late: &[u64], everything: bool| {
            let late = (50..).zip(late).map(|(id, &bytes)| meta(id, 0, bytes, false));
            let metas: Vec<_> = (1..).map(large).take(sealed).chain(late).chain([meta(99, 100, 10, true)]).collect();
            choose(metas.iter(), true, everything, 0, false).first().map_or(0, |plan| plan.segments.len())
        };
        for (sealed, late) in [(1, &[][..]), (1, &[124]), (3, &[]), (MAX_SEALED_SEGMENTS, &[10, 10])] {
            assert_eq!(merged(sealed, late, false), 0, "{sealed} and {late:?}");
        }
        assert_eq!(merged(1, &[125], false), 2);
        assert_eq!(merged(2, &[1; LATE_SEGMENTS_WORTH_A_MERGE], false), 2 + LATE_SEGMENTS_WORTH_A_MERGE);
        assert_eq!(merged(MAX_SEALED_SEGMENTS + 1, &[], false), MAX_SEALED_SEGMENTS + 1);
        assert_eq!(merged(3, &[10], true), 4, "OPTIMIZE does not wait");
    }

    #[test]
    fn one_look_plans_the_merges_of_many_chunks() {
        let metas: Vec<_> = (0..2 * MERGES_PLANNED as u64).map(|i| meta(i, 100 * i, 10, false)).collect();
        let plans = choose(metas.iter(), true, false, 0, false);
        let chunks: Vec<u64> = plans.iter().map(|p| p.chunk).collect();
        assert!(chunks.iter().copied().eq((0..MERGES_PLANNED as u64).map(|i| 100 * i)));
    }

    #[test]
    fn a_crowded_chunk_merges_its_small_segments() {
        let mut metas: Vec<_> = (0..MAX_CHUNK_SEGMENTS as u64).map(|i| meta(i, 0, 10, false)).collect();
        assert_eq!(choose(metas.iter(), false, false, 0, false), []);
        metas.push(meta(99, 0, 1_000_000, true));
        let plan = choose(metas.iter(), false, false, 0, false).pop().expect("a merge is due");
        assert!(
            !plan.whole_chunk && !plan.segments.contains(&SegmentId(99)) && plan.segments.len() == MAX_CHUNK_SEGMENTS
        );
    }

    #[test]
    fn what_only_merges_make_smaller_is_merged_in_small_pieces() {
        let keyed = |id: u64, bytes| SegmentMeta { first_key: vec![id as u8], ..meta(id, 0, bytes, false) };
        let mut metas: Vec<_> = (0..MAX_CHUNK_SEGMENTS as u64).map(|i| keyed(i, 100)).collect();
        assert_eq!(choose_small(metas.iter(), 1000), None);
        metas.extend([keyed(51, 10), keyed(50, 10), keyed(52, 15)]);
        let ids =
            |most| choose_small(metas.iter(), most).map(|plan| plan.segments.iter().map(|id| id.0).collect::<Vec<_>>());
        assert_eq!(ids(1000), Some(vec![50, 51, 52]));
        assert_eq!(ids(30), Some(vec![50, 51]));
        assert_eq!(ids(10), None);
    }

    #[test]
    fn what_snapshots_held_back_goes_when_they_are_gone() {
        let mut kept = meta(1, 0, 10, true);
        (kept.has_versions, kept.max_seq) = (true, 7);
        assert!(waits_for_snapshots([&kept].into_iter()));
        assert_eq!(choose([&kept].into_iter(), false, false, 6, false), []);
        assert!(choose([&kept].into_iter(), false, false, 7, false).pop().is_some_and(|p| p.whole_chunk));
        kept.has_versions = false;
        assert!(!waits_for_snapshots([&kept].into_iter()));
        assert_eq!(choose([&kept].into_iter(), false, false, 7, false), []);
    }

    #[test]
    fn many_tombstones_are_worth_a_merge() {
        let (mut rows, mut gone) = (meta(1, 0, 1000, true), meta(2, 0, 10, false));
        (rows.rows, gone.rows, gone.tombstones) = (1000, 100, 100);
        assert_eq!(choose([&rows, &gone].into_iter(), false, false, 9, false), []);
        (gone.rows, gone.tombstones) = (500, 500);
        assert!(choose([&rows, &gone].into_iter(), false, false, 9, false).pop().is_some_and(|p| p.whole_chunk));
    }

    #[test]
    fn optimize_ends_with_everything_sealed() {
        let metas = [meta(1, 0, 10, false)];
        assert!(choose(metas.iter(), false, true, 0, false).pop().is_some_and(|p| p.whole_chunk));
        let metas = [meta(1, 0, 10, true)];
        assert_eq!(choose(metas.iter(), false, true, 0, false), []);
    }
}
