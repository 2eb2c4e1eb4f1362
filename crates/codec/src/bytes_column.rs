//! Byte strings of many rows in one buffer.
//!
//! Row `i` is `data[offsets[i]..offsets[i + 1]]`; `offsets` starts at 0 and has one entry more than there are rows.

/// The values of a `Bytes` lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BytesColumn {
    /// Where each row starts, and at last where the last one ends.
    pub offsets: Vec<u32>,
    /// All rows, one behind the other.
    pub data: Vec<u8>,
}

impl Default for BytesColumn {
    fn default() -> Self {
        BytesColumn { offsets: vec![0], data: Vec::new() }
    }
}

impl BytesColumn {
    /// No rows.
    pub fn new() -> Self {
        Self::default()
    }

    /// How many rows.
    pub fn len(&self) -> usize {
        self.offsets.len().saturating_sub(1)
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes of row `i`. Panics behind the last row.
    pub fn get(&self, i: usize) -> &[u8] {
        &self.data[self.offsets[i] as usize..self.offsets[i + 1] as usize]
    }

    /// Adds a row. Panics when all rows together pass 4 GiB: a block is cut long before.
    pub fn push(&mut self, value: &[u8]) {
        assert!(value.len() <= u32::MAX as usize - self.data.len(), "block of bytes passes 4 GiB");
        self.data.extend_from_slice(value);
        self.offsets.push(self.data.len() as u32);
    }

    /// The rows in order.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.offsets.windows(2).map(|w| &self.data[w[0] as usize..w[1] as usize])
    }
}
