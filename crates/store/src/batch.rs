//! Rows of a statement in key order, side by side in one buffer: no allocation and no map entry for each of them.
//!
//! A write set has them as they are, the log is written from them, and the memtable takes them over. Only for tables whose
//! sort keys are short integers: keys are then numbers.

use std::cmp::Ordering;
use std::ops::{Deref, Range};
use std::sync::OnceLock;

use crate::bulk::Run;
use crate::newest::Short;
use crate::row::RowLayout;

/// A sort key of at most 16 bytes, as a number in the same order: its bytes are the leading ones.
pub type PackedKey = u128;

/// The bytes of a packed key.
pub struct KeyBytes {
    bytes: [u8; size_of::<PackedKey>()],
    len: usize,
}

impl KeyBytes {
    /// Of a key of `len` bytes.
    #[inline]
    pub fn new(key: PackedKey, len: usize) -> KeyBytes {
        KeyBytes { bytes: key.to_be_bytes(), len }
    }
}

impl Deref for KeyBytes {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// A whole sort key as a number.
#[inline]
pub fn packed(key: &[u8]) -> PackedKey {
    let mut bytes = [0; size_of::<PackedKey>()];
    let len = key.len().min(bytes.len());
    bytes[..len].copy_from_slice(&key[..len]);
    PackedKey::from_be_bytes(bytes)
}

/// Rows with keys, in key order.
pub struct Batch {
    key_len: usize,
    keys: Vec<PackedKey>,
    bytes: Vec<u8>,
    /// Length of every row, where all have the same.
    row_len: Option<usize>,
    /// Else: where each ends.
    ends: Vec<usize>,
    /// See [`Batch::times`].
    times: OnceLock<Option<(u64, u64)>>,
}

impl Batch {
    /// No rows, but room for some. The layout must have packed keys.
    fn with_room(key_len: usize, row_len: Option<usize>, rows: usize, bytes: usize) -> Batch {
        let ends = Vec::with_capacity(if row_len.is_none() { rows } else { 0 });
        Batch {
            key_len,
            keys: Vec::with_capacity(rows),
            bytes: Vec::with_capacity(bytes),
            row_len,
            ends,
            times: OnceLock::new(),
        }
    }

    /// The rows of a run, in key order; the run again if keys of this layout cannot be packed, or two rows have the same.
    pub fn of(run: Run, layout: &RowLayout) -> Result<Batch, Run> {
        let (Some(key), Some(key_len)) = (layout.int_key(), layout.fixed_key_len()) else { return Err(run) };
        let keys: Vec<PackedKey> = run.rows().map(|row| key.packed(row)).collect();
        // As readings mostly come.
        if keys.windows(2).all(|pair| pair[0] < pair[1]) {
            let (bytes, row_len, ends) = run.into_rows();
            return Ok(Batch { key_len, keys, bytes, row_len, ends, times: OnceLock::new() });
        }
        let mut places: Vec<(PackedKey, u32)> = keys.into_iter().zip(0..).collect();
        places.sort();
        if places.windows(2).any(|pair| pair[0].0 == pair[1].0) {
            return Err(run);
        }
        let mut batch = Batch::with_room(key_len, layout.fixed_row_len(), run.len(), run.bytes());
        for (key, i) in places {
            batch.push(key, run.row(i as usize));
        }
        Ok(batch)
    }

    /// The rows of a few batches of a table. `take` is told which rows of which batch come next.
    pub fn join(batches: &[&Batch], mut take: impl FnMut(usize, Range<usize>)) -> Option<Batch> {
        let one = batches.first()?;
        let rows = batches.iter().map(|batch| batch.len()).sum();
        let bytes = batches.iter().map(|batch| batch.bytes.len()).sum();
        let mut joined = Batch::with_room(one.key_len, one.row_len, rows, bytes);
        let head = |(number, batch): (usize, &&Batch)| Some(Head { key: *batch.keys.first()?, number, at: 0 });
        let mut heads: Vec<Head> = batches.iter().enumerate().filter_map(head).collect();
        heads.sort_by_key(Head::order);
        while let Some(&Head { number, at, .. }) = heads.first() {
            let batch = batches[number];
            let more = &batch.keys[at + 1..];
            let to = at + 1 + heads.get(1).map_or(more.len(), |next| keys_below(more, next.key));
            joined.push_rows(batch, at..to);
            take(number, at..to);
            let Some(&key) = batch.keys.get(to) else {
                heads.remove(0);
                continue;
            };
            // The others stay in order.
            let head = Head { key, number, at: to };
            let before = heads[1..].iter().take_while(|other| other.order() < head.order()).count();
            heads.copy_within(1..=before, 0);
            heads[before] = head;
        }
        Some(joined)
    }

    fn push(&mut self, key: PackedKey, row: &[u8]) {
        self.keys.push(key);
        self.bytes.extend_from_slice(row);
        if self.row_len.is_none() {
            self.ends.push(self.bytes.len());
        }
    }

    fn push_rows(&mut self, other: &Batch, rows: Range<usize>) {
        self.keys.extend_from_slice(&other.keys[rows.clone()]);
        let (from, at) = (other.start(rows.start), self.bytes.len());
        self.bytes.extend_from_slice(&other.bytes[from..other.start(rows.end)]);
        if self.row_len.is_none() {
            self.ends.extend(other.ends[rows].iter().map(|end| end - from + at));
        }
    }

    /// Where row `i` starts.
    #[inline]
    fn start(&self, i: usize) -> usize {
        match self.row_len {
            Some(len) => i * len,
            None => i.checked_sub(1).map_or(0, |before| self.ends[before]),
        }
    }

    /// Rows.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Bytes that it occupies.
    pub fn size(&self) -> usize {
        self.keys.len() * size_of::<PackedKey>() + self.bytes.len() + self.ends.len() * size_of::<usize>()
    }

    /// Bytes of each key.
    pub fn key_len(&self) -> usize {
        self.key_len
    }

    /// All keys, ascending.
    pub fn keys(&self) -> &[PackedKey] {
        &self.keys
    }

    /// The sort key of row `i`.
    #[inline]
    pub fn key(&self, i: usize) -> KeyBytes {
        KeyBytes::new(self.keys[i], self.key_len)
    }

    /// The first `series_len` bytes of the key of row `i`, and the others.
    #[inline]
    pub fn halves(&self, i: usize, series_len: usize) -> (Short, Short) {
        Short::halves(self.keys[i], self.key_len, series_len)
    }

    /// Row `i`.
    #[inline]
    pub fn row(&self, i: usize) -> &[u8] {
        &self.bytes[self.start(i)..self.start(i + 1)]
    }

    /// The smallest and the largest time; 0 without a time column. `None` if there are no rows.
    pub fn times(&self, layout: &RowLayout) -> Option<(u64, u64)> {
        let widen = |span: Option<(u64, u64)>, time: u64| {
            Some(span.map_or((time, time), |(first, last)| (time.min(first), time.max(last))))
        };
        // A commit asks for the ring and for the memtable.
        let times = || (0..self.len()).map(|i| layout.time_of_key(&self.key(i)).unwrap_or(0)).fold(None, widen);
        *self.times.get_or_init(times)
    }

    /// The rows in key order.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        (0..self.len()).map(|i| self.row(i))
    }

    /// The row with this key.
    pub fn find(&self, key: &[u8]) -> Option<usize> {
        if key.len() != self.key_len {
            return None;
        }
        self.keys.binary_search(&packed(key)).ok()
    }

    /// How many keys are less than `key` (or equal, with `or_equal`), which may be any bytes.
    pub fn keys_before(&self, key: &[u8], or_equal: bool) -> usize {
        let bound = packed(&key[..key.len().min(self.key_len)]);
        // A shorter bound is less than the keys that it begins, a longer one greater than the key that begins it.
        let takes_equal = match key.len().cmp(&self.key_len) {
            Ordering::Less => false,
            Ordering::Equal => or_equal,
            Ordering::Greater => true,
        };
        self.keys.partition_point(|&k| if takes_equal { k <= bound } else { k < bound })
    }

    /// The rows of each series, one after the other: those whose keys begin with the same `series_len` bytes.
    pub fn series(&self, series_len: usize) -> impl Iterator<Item = Range<usize>> {
        let shift = 8 * (size_of::<PackedKey>() - series_len.min(size_of::<PackedKey>())) as u32;
        let series_of = move |i: usize| self.keys[i].checked_shr(shift).unwrap_or(0);
        let mut start = 0;
        std::iter::from_fn(move || {
            let from = start;
            let series = (from < self.len()).then(|| series_of(from))?;
            start = (from + 1..self.len()).find(|&i| series_of(i) != series).unwrap_or(self.len());
            Some(from..start)
        })
    }

    /// Whether a key is in both.
    pub fn shares_keys(&self, other: &Batch) -> bool {
        let (mut a, mut b) = (self.keys.as_slice(), other.keys.as_slice());
        while let (Some(&first_a), Some(&first_b)) = (a.first(), b.first()) {
            match first_a.cmp(&first_b) {
                Ordering::Equal => return true,
                Ordering::Less => a = &a[keys_below(a, first_b)..],
                Ordering::Greater => b = &b[keys_below(b, first_a)..],
            }
        }
        false
    }
}

/// The first row of a batch that was not joined to others yet.
#[derive(Clone, Copy)]
struct Head {
    key: PackedKey,
    /// The batch.
    number: usize,
    /// The row.
    at: usize,
}

impl Head {
    /// Of equal keys that of the earlier batch comes first.
    fn order(&self) -> (PackedKey, usize) {
        (self.key, self.number)
    }
}

/// How many of the ascending keys are less than `bound`: mostly all, or none.
#[inline]
fn keys_below(keys: &[PackedKey], bound: PackedKey) -> usize {
    if keys.first().is_none_or(|&first| first >= bound) {
        return 0;
    }
    if keys.last().is_some_and(|&last| last < bound) {
        return keys.len();
    }
    let mut step = 1;
    while step < keys.len() && keys[step - 1] < bound {
        step *= 2;
    }
    let near = &keys[..keys.len().min(step)];
    let known = step / 2;
    known + near[known..].partition_point(|&key| key < bound)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn batch(key_len: usize, keys: &[Vec<u8>]) -> Batch {
        let mut batch = Batch::with_room(key_len, None, keys.len(), 0);
        keys.iter().for_each(|key| batch.push(packed(key), &key[..key.len() / 2]));
        batch
    }

    fn keys() -> impl Strategy<Value = Vec<Vec<u8>>> {
        let key = prop::collection::vec(prop_oneof![Just(0u8), Just(1), Just(255)], 3);
        prop::collection::btree_set(key, 0..12).prop_map(|keys| keys.into_iter().collect())
    }

    proptest! {
        #[test]
        fn keys_are_found_and_bounds_are_those_of_bytes(
            keys in keys(),
            bound in prop::collection::vec(prop_oneof![Just(0u8), Just(1), Just(255)], 0..5),
            or_equal in any::<bool>(),
        ) {
            let batch = batch(3, &keys);
            let before = keys.iter().filter(|k| if or_equal { **k <= bound } else { **k < bound }).count();
            prop_assert_eq!(batch.keys_before(&bound, or_equal), before);
            prop_assert_eq!(batch.find(&bound), keys.iter().position(|k| *k == bound));
            for (i, key) in keys.iter().enumerate() {
                prop_assert_eq!(&*batch.key(i), &key[..]);
                prop_assert_eq!(batch.row(i), &key[..1]);
            }
            for len in 0..=3 {
                let ends = (1..=keys.len()).filter(|&i| i == keys.len() || keys[i][..len] != keys[i - 1][..len]);
                prop_assert_eq!(batch.series(len).map(|rows| rows.end).collect::<Vec<_>>(), ends.collect::<Vec<_>>());
            }
        }

        #[test]
        fn common_keys_are_seen_and_others_joined(a in keys(), b in keys()) {
            let shared = a.iter().any(|key| b.contains(key));
            let (first, second) = (batch(3, &a), batch(3, &b));
            prop_assert_eq!(first.shares_keys(&second), shared);
            let mut all: Vec<Vec<u8>> = a.iter().chain(&b).cloned().collect();
            all.sort();
            let mut taken = Vec::new();
            let joined = Batch::join(&[&first, &second], |number, rows| {
                taken.extend(rows.map(|i| [&a, &b][number][i].clone()));
            });
            let joined = joined.unwrap();
            let keys: Vec<Vec<u8>> = (0..joined.len()).map(|i| joined.key(i).to_vec()).collect();
            prop_assert_eq!(&keys, &all);
            prop_assert_eq!(&taken, &all);
            for (i, key) in all.iter().enumerate() {
                prop_assert_eq!(joined.row(i), &key[..1]);
            }
        }
    }
}
