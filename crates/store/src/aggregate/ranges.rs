//! Selected rows of a block: ranges of row numbers, ascending and apart from each other.

use rrd_codec::Bitmap;

/// The rows `start..end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    pub start: u32,
    pub end: u32,
}

/// Selected rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ranges(Vec<Range>);

impl Ranges {
    pub fn one(start: usize, end: usize) -> Ranges {
        let mut ranges = Ranges::default();
        ranges.push(start, end);
        ranges
    }

    pub fn as_slice(&self) -> &[Range] {
        &self.0
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds rows behind all others.
    #[inline]
    pub fn push(&mut self, start: usize, end: usize) {
        if start >= end {
            return;
        }
        match self.0.last_mut() {
            Some(last) if last.end as usize == start => last.end = end as u32,
            _ => self.0.push(Range { start: start as u32, end: end as u32 }),
        }
    }

    /// Adds those of the rows `start..end` for which `holds` says so.
    #[inline]
    pub fn push_where(&mut self, start: usize, end: usize, holds: impl Fn(usize) -> bool) {
        let mut at = start;
        while at < end {
            // All of a word at a time, without branches, then its runs.
            let len = (end - at).min(64);
            let mut word = 0u64;
            for i in 0..len {
                word |= u64::from(holds(at + i)) << i;
            }
            self.push_word(at, len, word);
            at += len;
        }
    }

    #[inline]
    fn push_word(&mut self, at: usize, len: usize, mut word: u64) {
        if len == 64 && word == u64::MAX {
            return self.push(at, at + 64);
        }
        let mut from = 0;
        while word != 0 {
            let clear = word.trailing_zeros() as usize;
            word >>= clear;
            let set = word.trailing_ones() as usize;
            self.push(at + from + clear, at + from + clear + set);
            from += clear + set;
            word = if set == 64 { 0 } else { word >> set };
        }
    }

    /// Those for which `holds` says so.
    #[inline]
    pub fn filter(&self, holds: impl Fn(usize) -> bool) -> Ranges {
        let mut kept = Ranges::default();
        for range in &self.0 {
            kept.push_where(range.start as usize, range.end as usize, &holds);
        }
        kept
    }

    /// Those that a bitmap has.
    pub fn within(&self, bitmap: &Bitmap) -> Ranges {
        self.filter(|row| bitmap.get(row))
    }

    /// Those that are among these or among others.
    pub fn or(&self, other: &Ranges) -> Ranges {
        let (mut a, mut b) = (self.0.iter().peekable(), other.0.iter().peekable());
        let mut all: Vec<Range> = Vec::with_capacity(self.0.len() + other.0.len());
        loop {
            let next = match (a.peek(), b.peek()) {
                (Some(x), Some(y)) if y.start < x.start => b.next(),
                (Some(_), _) => a.next(),
                (None, _) => b.next(),
            };
            let Some(next) = next else { return Ranges(all) };
            match all.last_mut() {
                Some(last) if next.start <= last.end => last.end = last.end.max(next.end),
                _ => all.push(*next),
            }
        }
    }

    /// Those that are not among `rows`, which ascend.
    pub fn without(&self, rows: &[u32]) -> Ranges {
        let mut kept = Ranges::default();
        let mut gone = rows.iter().peekable();
        for range in &self.0 {
            let mut start = range.start;
            while gone.next_if(|&&row| row < start).is_some() {}
            while let Some(&row) = gone.next_if(|&&row| row < range.end) {
                kept.push(start as usize, row as usize);
                start = row + 1;
            }
            kept.push(start as usize, range.end as usize);
        }
        kept
    }
}

/// The first row from `from` on that a bitmap has (or has not); `end` if there is none before.
pub fn next_in(bitmap: &Bitmap, from: usize, end: usize, is_set: bool) -> usize {
    let mut row = from;
    while row < end {
        let word = bitmap.words()[row / 64];
        let wanted = if is_set { word } else { !word } >> (row % 64);
        if wanted != 0 {
            return (row + wanted.trailing_zeros() as usize).min(end);
        }
        row = (row / 64 + 1) * 64;
    }
    end
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rows_of(ranges: &Ranges) -> Vec<usize> {
        ranges.0.iter().flat_map(|r| r.start as usize..r.end as usize).collect()
    }

    proptest! {
        #[test]
        fn the_next_row_is_the_first_that_a_look_at_each_finds(
            bits in prop::collection::vec(prop::bool::weighted(0.1), 1..300),
            (from, end) in (0usize..300, 0usize..300),
            is_set in any::<bool>(),
        ) {
            let (from, end) = (from.min(bits.len()), end.min(bits.len()));
            let mut bitmap = Bitmap::new(bits.len());
            (0..bits.len()).filter(|&i| bits[i]).for_each(|i| bitmap.set(i));
            let expected = (from..end).find(|&i| bits[i] == is_set).unwrap_or(end);
            prop_assert_eq!(next_in(&bitmap, from, end, is_set), expected);
        }

        #[test]
        fn ranges_hold_what_was_selected(
            bits in prop::collection::vec(prop::bool::weighted(0.9), 1..400),
            more in prop::collection::vec(any::<bool>(), 400),
            gone in prop::collection::btree_set(0u32..400, 0..40),
        ) {
            let mut ranges = Ranges::default();
            ranges.push_where(0, bits.len(), |i| bits[i]);
            let expected: Vec<usize> = (0..bits.len()).filter(|&i| bits[i]).collect();
            prop_assert_eq!(rows_of(&ranges), expected.clone());
            prop_assert!(ranges.0.windows(2).all(|r| r[0].end < r[1].start));
            let both: Vec<usize> = expected.iter().copied().filter(|&i| more[i]).collect();
            prop_assert_eq!(rows_of(&ranges.filter(|i| more[i])), both);
            let others = Ranges::one(0, bits.len()).filter(|i| more[i]);
            let either: Vec<usize> = (0..bits.len()).filter(|&i| bits[i] || more[i]).collect();
            prop_assert_eq!(rows_of(&ranges.or(&others)), either);
            prop_assert!(ranges.or(&others).0.windows(2).all(|r| r[0].end < r[1].start));
            let gone: Vec<u32> = gone.into_iter().collect();
            let left: Vec<usize> = expected.into_iter().filter(|&i| !gone.contains(&(i as u32))).collect();
            prop_assert_eq!(rows_of(&ranges.without(&gone)), left);
        }
    }
}
