//! One bit a row.
//!
//! Row `i` is bit `i % 64` of word `i / 64`. Bits behind the last row are always clear, so that two bitmaps of the
//! same rows compare equal and counting needs no mask.

/// A set of rows: the nulls of a column.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bitmap {
    words: Vec<u64>,
    rows: usize,
}

impl Bitmap {
    /// A bitmap of `rows` rows, all clear.
    pub fn new(rows: usize) -> Self {
        Bitmap { words: vec![0; rows.div_ceil(64)], rows }
    }

    /// A bitmap of `rows` rows, all set.
    pub fn full(rows: usize) -> Self {
        let mut bitmap = Bitmap { words: vec![u64::MAX; rows.div_ceil(64)], rows };
        bitmap.clear_tail();
        bitmap
    }

    /// A bitmap from its words. Missing words are clear, bits behind the last row are dropped.
    pub fn from_words(mut words: Vec<u64>, rows: usize) -> Self {
        words.resize(rows.div_ceil(64), 0);
        let mut bitmap = Bitmap { words, rows };
        bitmap.clear_tail();
        bitmap
    }

    /// How many rows.
    pub fn len(&self) -> usize {
        self.rows
    }

    /// Whether there are no rows at all.
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// Whether the bit of row `i` is set. Panics behind the last row.
    pub fn get(&self, i: usize) -> bool {
        assert!(i < self.rows, "row {i} of {}", self.rows);
        self.words[i / 64] >> (i % 64) & 1 == 1
    }

    /// Sets the bit of row `i`. Panics behind the last row.
    pub fn set(&mut self, i: usize) {
        assert!(i < self.rows, "row {i} of {}", self.rows);
        self.words[i / 64] |= 1 << (i % 64);
    }

    /// Sets the bits of `len` rows from `start`. Panics behind the last row.
    pub fn set_range(&mut self, start: usize, len: usize) {
        assert!(start + len <= self.rows, "rows {start}+{len} of {}", self.rows);
        let (mut i, end) = (start, start + len);
        while i < end {
            let bits = (64 - i % 64).min(end - i);
            self.words[i / 64] |= (u64::MAX >> (64 - bits)) << (i % 64);
            i += bits;
        }
    }

    /// Adds a row at the end.
    pub fn push(&mut self, bit: bool) {
        if self.rows % 64 == 0 {
            self.words.push(0);
        }
        self.rows += 1;
        if bit {
            self.set(self.rows - 1);
        }
    }

    /// How many bits are set.
    pub fn count(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// The words, 64 rows each, lowest row in the lowest bit.
    pub fn words(&self) -> &[u64] {
        &self.words
    }

    fn clear_tail(&mut self) {
        let tail = self.rows % 64;
        if let (1.., Some(last)) = (tail, self.words.last_mut()) {
            *last &= u64::MAX >> (64 - tail);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn push_set_and_range_agree() {
        for rows in [0, 1, 63, 64, 65, 200] {
            let mut pushed = Bitmap::default();
            let mut set = Bitmap::new(rows);
            for i in 0..rows {
                pushed.push(i % 3 == 0);
                if i % 3 == 0 {
                    set.set(i);
                }
            }
            assert_eq!(pushed, set);
            assert_eq!(set.count(), rows.div_ceil(3));
            assert_eq!(Bitmap::from_words(set.words().to_vec(), rows), set);
            let mut all = Bitmap::new(rows);
            all.set_range(0, rows);
            assert_eq!(all, Bitmap::full(rows));
        }
        let mut range = Bitmap::new(200);
        range.set_range(60, 80);
        assert!((0..200).all(|i| range.get(i) == (60..140).contains(&i)));
    }
}
