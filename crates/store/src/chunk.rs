//! Which chunk a time belongs to.
//!
//! Chunks never overlap and cover just the times that were seen. A new chunk is as long as `CHUNK` says, or long
//! enough to hold the target number of rows at the density of the rows that open it; it is aligned to its length and cut where a
//! neighbour begins. Where a batch would open many chunks with few rows each, neighbours share one. Pure: the table keeps the
//! map, the manifest records it.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::manifest::edit::ChunkSpan;

/// What a chunk should have to be worth files of its own: so many rows, or so many bytes. One with less is *sparse*.
#[derive(Clone, Copy, Debug)]
pub struct Worth {
    /// Rows.
    pub rows: u64,
    /// Bytes.
    pub bytes: u64,
    /// Sparse chunks that may be there.
    pub few: u64,
    /// How long the table keeps its rows, and how long a sparse chunk of rows that it keeps may become: else their space would be
    /// given back late. Older rows are about to go.
    pub kept: Option<(u64, u64)>,
}

impl Worth {
    /// Of a table in which no chunk is sparse.
    pub const ANY: Worth = Worth { rows: 0, bytes: 0, few: u64::MAX, kept: None };

    /// Whether a sparse chunk may be so long that ends at a time, where rows are as new as `newest`.
    pub fn may_be_long(&self, length: u64, end: u64, newest: u64) -> bool {
        self.kept.is_none_or(|(kept, longest)| length <= longest || end <= newest.saturating_sub(kept))
    }

    /// Whether so much is too little.
    pub fn is_sparse(&self, rows: u64, bytes: u64) -> bool {
        rows < self.rows && bytes < self.bytes
    }

    /// Chunks that so much may open.
    fn chunks_for(&self, rows: u64, bytes: u64) -> u64 {
        self.few.saturating_add(rows / self.rows.max(1)).saturating_add(bytes / self.bytes.max(1))
    }
}

/// Rows that come to a chunk that is not there yet.
#[derive(Clone, Copy)]
struct Slot {
    span: ChunkSpan,
    rows: u64,
    bytes: u64,
}

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
        let span = self.slot(time, length_of(fixed, density));
        self.spans.insert(span.start, span);
        span
    }

    /// Whether one chunk has all times between two, or would have if it were opened.
    pub fn is_one(&self, (min, max): (u64, u64), fixed: Option<u64>, density: Density) -> bool {
        let span = self.find(min).unwrap_or_else(|| self.slot(min, length_of(fixed, density)));
        max < span.end || span.end == u64::MAX
    }

    /// Where a chunk for `time` would be, which is in none.
    fn slot(&self, time: u64, length: u64) -> ChunkSpan {
        let mut start = time - time % length;
        let mut end = start.saturating_add(length);
        if let Some((_, before)) = self.spans.range(..time).next_back() {
            start = start.max(before.end);
        }
        if let Some((&after, _)) = self.spans.range(time..).next() {
            end = end.min(after);
        }
        ChunkSpan { start, end }
    }

    /// Opens the chunks that a batch needs: `missing` are the times of its rows that are in none, and the bytes of each.
    /// What would be many sparse chunks becomes fewer, longer ones.
    pub fn open_all(&mut self, mut missing: Vec<(u64, u32)>, fixed: Option<u64>, density: Density, worth: Worth) {
        missing.sort_unstable();
        let length = length_of(fixed, density);
        let mut slots: Vec<Slot> = Vec::new();
        for (time, bytes) in missing {
            match slots.last_mut().filter(|slot| time < slot.span.end || slot.span.end == u64::MAX) {
                Some(slot) => {
                    slot.rows += 1;
                    slot.bytes += u64::from(bytes);
                }
                None => slots.push(Slot { span: self.slot(time, length), rows: 1, bytes: bytes.into() }),
            }
        }
        let (mut sparse, full): (Vec<Slot>, Vec<Slot>) =
            slots.into_iter().partition(|slot| worth.is_sparse(slot.rows, slot.bytes));
        self.spans.extend(full.iter().map(|slot| (slot.span.start, slot.span)));
        let of_all = |slots: &[Slot]| slots.iter().fold((0, 0), |(rows, bytes), s| (rows + s.rows, bytes + s.bytes));
        let (rows, bytes) = of_all(&sparse);
        let most = worth.chunks_for(rows, bytes);
        let newest =
            self.spans.keys().next_back().max(sparse.last().map(|slot| &slot.span.start)).copied().unwrap_or(0);
        let mut shared = length;
        while sparse.len() as u64 > most && shared < u64::MAX {
            shared = shared.saturating_mul(2);
            self.share(&mut sparse, shared, |end| worth.may_be_long(shared, end, newest));
        }
        self.spans.extend(sparse.iter().map(|slot| (slot.span.start, slot.span)));
    }

    /// Makes one of neighbours that lie in the same multiple of a length, with no chunk between.
    fn share(&self, slots: &mut Vec<Slot>, length: u64, may_be_long: impl Fn(u64) -> bool) {
        slots.dedup_by(|next, slot| {
            let is_near = next.span.start / length == slot.span.start / length;
            let joins = is_near
                && may_be_long(next.span.end)
                && self.spans.range(slot.span.start..next.span.start).next().is_none();
            if joins {
                slot.span.end = next.span.end;
                slot.rows += next.rows;
                slot.bytes += next.bytes;
            }
            joins
        });
    }

    /// Makes one chunk of those from `first` to `last`, by their starts; returns it and those that it replaces.
    pub fn joined(&self, first: u64, last: u64) -> Option<(ChunkSpan, Vec<ChunkSpan>)> {
        let replaced: Vec<ChunkSpan> = self.spans.range(first..=last).map(|(_, span)| *span).collect();
        let end = replaced.last()?.end;
        Some((ChunkSpan { start: replaced.first()?.start, end }, replaced))
    }

    /// Puts one chunk in the place of others.
    pub fn replace(&mut self, replaced: &[ChunkSpan], by: ChunkSpan) {
        for span in replaced {
            self.spans.remove(&span.start);
        }
        self.spans.insert(by.start, by);
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

/// How long a new chunk is: as the user asked for, or by the density of the rows.
fn length_of(fixed: Option<u64>, density: Density) -> u64 {
    fixed.unwrap_or_else(|| chosen_length(density)).max(1)
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

    fn opened(times: impl Iterator<Item = u64>, map: &mut ChunkMap, worth: Worth) -> Vec<(u64, u64)> {
        let density = Density { rows: 1, min_time: 0, max_time: 0, target_rows: 1 << 22, max_length: u64::MAX };
        let before: Vec<u64> = map.spans.keys().copied().collect();
        map.open_all(times.map(|time| (time, 10)).collect(), Some(10), density, worth);
        map.spans.values().filter(|span| !before.contains(&span.start)).map(|span| (span.start, span.end)).collect()
    }

    #[test]
    fn sparse_rows_share_chunks() {
        let worth = Worth { rows: 4, bytes: 1000, few: 2, kept: None };
        let mut map = ChunkMap::default();
        assert_eq!(opened((0..2).map(|n| 10 * n), &mut map, worth), [(0, 10), (10, 20)], "a few are as was asked for");
        let mut map = ChunkMap::default();
        map.restore(ChunkSpan { start: 80, end: 90 });
        let mixed = (0..16).filter(|n| *n != 8).map(|n| 10 * n).chain([51, 52, 53]);
        let spans = opened(mixed, &mut map, worth);
        assert_eq!(spans, [(0, 40), (40, 50), (50, 60), (60, 80), (90, 120), (120, 160)], "not over others");
        let kept = Worth { kept: Some((60, 20)), ..worth };
        let spans = opened((0..16).map(|n| 10 * n), &mut ChunkMap::default(), kept);
        assert_eq!(
            spans,
            [(0, 40), (40, 80), (80, 100), (100, 120), (120, 140), (140, 160)],
            "what is kept leaves in steps"
        );
    }

    proptest! {
        #[test]
        fn a_batch_opens_no_more_chunks_than_its_rows_are_worth(
            times in prop::collection::vec(any::<u64>(), 1..300), fixed in 1u64..1 << 60, rows in 1u64..20, bytes in 1u64..200,
        ) {
            let worth = Worth { rows, bytes, few: 3, kept: None };
            let density = Density { rows: 1, min_time: 0, max_time: 0, target_rows: 1 << 22, max_length: u64::MAX };
            let mut map = ChunkMap::default();
            map.open_all(times.iter().map(|&time| (time, 10)).collect(), Some(fixed), density, worth);
            prop_assert!(times.iter().all(|&time| map.find(time).is_some()));
            let (rows, bytes) = (times.len() as u64 / rows, 10 * times.len() as u64 / bytes);
            // Rows that fill a chunk of the length asked for cut the others apart.
            prop_assert!(map.spans.len() as u64 <= 2 * (3 + rows + bytes) + 1, "{}", map.spans.len());
            let spans: Vec<_> = map.spans().values().collect();
            prop_assert!(spans.windows(2).all(|w| w[0].end <= w[1].start));
        }

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
