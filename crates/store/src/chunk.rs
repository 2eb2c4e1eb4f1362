//! Which chunk a time belongs to.
//!
//! Chunks never overlap and cover just the times that were seen. A new chunk is as long as `CHUNK` says, or long
//! enough to hold the target number of rows at the density of the rows that open it; it is aligned to its length and cut where a
//! neighbour begins. Pure: the table keeps the map, the manifest records it.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::manifest::edit::ChunkSpan;

/// The chunks of a table.
#[derive(Debug, Default)]
pub struct ChunkMap {
    spans: BTreeMap<u64, ChunkSpan>,
    users: Arc<()>,
}

/// While it is there no chunk of its table is forgotten: held by whoever writes segments, from before they are written until
/// the table has them. Else another chunk might be opened over the one that they lie in, once the horizon is over it.
#[derive(Clone, Debug)]
pub struct ChunksInUse(#[expect(dead_code, reason = "it is counted")] Arc<()>);

/// How dense the rows are that may open a chunk.
#[derive(Clone, Copy, Debug)]
pub struct Density {
    /// Rows at hand.
    pub rows: u64,
    /// Their smallest time.
    pub min_time: u64,
    /// Their largest time.
    pub max_time: u64,
    /// Rows that a chunk should hold.
    pub target_rows: u64,
    /// How long it may be.
    pub max_length: u64,
}

/// Rows whose times say how dense all are.
const TIMES_LOOKED_AT: usize = 8192;

/// A factor that scatters them: rows of a series lie side by side, and each n-th might be of the same time.
const SCATTER: usize = 0x9E37_79B9_7F4A_7C15;

impl Density {
    /// Of `rows` rows that come to the chunks there are; `time` says when each is. Rows that come late, change or go lie in
    /// older chunks than the newest, and a few may be far away: those would make a chunk many times as long as it should be. So
    /// only the middle half is looked at of what is not older than the newest chunk.
    pub fn of(
        rows: usize,
        time: impl Fn(usize) -> u64,
        chunks: &ChunkMap,
        (target_rows, max_length): (u64, u64),
    ) -> Density {
        let newest = chunks.spans.keys().next_back().copied().unwrap_or(0);
        let some = rows.min(TIMES_LOOKED_AT);
        let place = |n: usize| if rows == some { n } else { n.wrapping_mul(SCATTER) % rows };
        let mut at_edge: Vec<u64> = (0..some).map(|n| time(place(n))).collect();
        if at_edge.iter().filter(|time| **time >= newest).count() >= 2 {
            at_edge.retain(|time| *time >= newest);
        }
        let quarter = at_edge.len() / 4;
        let last = at_edge.len().saturating_sub(1 + quarter);
        let mut nth = |n: usize| match at_edge.get(n) {
            Some(_) => *at_edge.select_nth_unstable(n).1,
            None => 0,
        };
        let (min_time, max_time) = (nth(quarter), nth(last));
        let between = (last - quarter) as u64 * rows as u64 / some.max(1) as u64;
        Density { rows: between + 1, min_time, max_time, target_rows, max_length }
    }
}

impl ChunkMap {
    /// From the manifest.
    pub fn new(spans: BTreeMap<u64, ChunkSpan>) -> ChunkMap {
        ChunkMap { spans, ..ChunkMap::default() }
    }

    /// Keeps the chunks that are there, and those that will be.
    pub fn keep(&self) -> ChunksInUse {
        ChunksInUse(self.users.clone())
    }

    /// Whether somebody keeps them.
    pub fn are_kept(&self) -> bool {
        Arc::strong_count(&self.users) > 1
    }

    /// All chunks by start.
    pub fn spans(&self) -> &BTreeMap<u64, ChunkSpan> {
        &self.spans
    }

    /// The chunk of `time`, if there is one.
    pub fn find(&self, time: u64) -> Option<ChunkSpan> {
        self.spans.range(..=time).next_back().map(|(_, s)| *s).filter(|s| time < s.end || s.end == u64::MAX)
    }

    /// The chunk of `time`, opened if need be. `fixed` is the length that the user asked for.
    pub fn find_or_open(&mut self, time: u64, fixed: Option<u64>, density: Density) -> ChunkSpan {
        if let Some(span) = self.find(time) {
            return span;
        }
        let length = fixed.unwrap_or_else(|| chosen_length(density)).max(1);
        let mut start = time - time % length;
        let mut end = start.saturating_add(length);
        if let Some((_, before)) = self.spans.range(..time).next_back() {
            start = start.max(before.end);
        }
        if let Some((&after, _)) = self.spans.range(time..).next() {
            end = end.min(after);
        }
        let span = ChunkSpan { start, end };
        self.spans.insert(start, span);
        span
    }

    /// Puts back a chunk that the log or the manifest names.
    pub fn restore(&mut self, span: ChunkSpan) {
        self.spans.insert(span.start, span);
    }

    /// Forgets a chunk that has no rows and gets none any more.
    pub fn remove(&mut self, start: u64) {
        self.spans.remove(&start);
    }

    /// Forgets all chunks (TRUNCATE).
    pub fn clear(&mut self) {
        self.spans.clear();
    }
}

/// A power of two that holds about the target number of rows.
fn chosen_length(density: Density) -> u64 {
    let span = density.max_time.saturating_sub(density.min_time).saturating_add(1);
    let wanted = u128::from(span) * u128::from(density.target_rows) / u128::from(density.rows.max(1));
    let wanted = u64::try_from(wanted).unwrap_or(u64::MAX).clamp(1, 1 << 62);
    wanted.checked_next_power_of_two().unwrap_or(1 << 62).min(density.max_length)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Rings of rows and bytes under late rows had two chunks instead of sixteen, and gave back half of themselves at once.
    #[test]
    fn rows_that_come_late_do_not_make_a_chunk_longer() {
        let in_time: Vec<u64> = (1_000_000..1_001_000).collect();
        let length = |times: &[u64], map: &ChunkMap| {
            chosen_length(Density::of(times.len(), |n| times[n], map, (4000, u64::MAX)))
        };
        let mut map = ChunkMap::default();
        let late = (0..100).map(|n| 500_000 + 5000 * n);
        let with_late: Vec<u64> = in_time.iter().copied().chain(late).collect();
        assert_eq!(length(&in_time, &map), 4096);
        assert!(length(&with_late, &map) <= 2 * 4096, "{}", length(&with_late, &map));
        assert_eq!((length(&[], &map), length(&[7], &map)), (4096, 4096));
        // Most rows are changes of older ones.
        map.restore(ChunkSpan { start: 900_000, end: 990_000 });
        let changed = (0..5000).map(|n| 800_000 + 10 * n);
        let with_changes: Vec<u64> = in_time.iter().copied().chain(changed).collect();
        assert_eq!(length(&with_changes, &map), 4096);
        // A reading from the future has opened a chunk of its own.
        map.restore(ChunkSpan { start: 4_000_000_000, end: 4_000_010_000 });
        assert!(length(&with_late, &map) <= 2 * 4096, "{}", length(&with_late, &map));
    }

    proptest! {
        #[test]
        fn chunks_cover_each_time_once(times in prop::collection::vec(any::<u64>(), 1..60), fixed in prop::option::of(1u64..1 << 60), rows in 1u64..1 << 30) {
            let mut map = ChunkMap::default();
            for &t in &times {
                let density = Density { rows, min_time: t.saturating_sub(1000), max_time: t, target_rows: 1 << 22, max_length: u64::MAX };
                let span = map.find_or_open(t, fixed, density);
                prop_assert!(span.start <= t && (t < span.end || span.end == u64::MAX));
                prop_assert_eq!(map.find(t), Some(span));
            }
            let spans: Vec<_> = map.spans().values().collect();
            prop_assert!(spans.windows(2).all(|w| w[0].end <= w[1].start));
        }
    }
}
