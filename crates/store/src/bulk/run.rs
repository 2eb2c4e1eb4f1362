//! Rows of a bulk statement as they came, one after the other.

use crate::error::Result;
use crate::memory;
use crate::row::RowLayout;

/// Rows that were not sorted yet.
pub struct Run {
    bytes: Vec<u8>,
    /// Length of every row, where all have the same.
    row_len: Option<usize>,
    /// Else: where each starts.
    starts: Vec<usize>,
    /// Rows that may exist already, by number.
    doubtful: Vec<usize>,
    /// The rows from this number on were not looked up.
    unchecked_from: usize,
}

impl Run {
    /// No rows of a layout.
    pub fn new(layout: &RowLayout) -> Run {
        Run::with_row_len(layout.fixed_row_len())
    }

    fn with_row_len(row_len: Option<usize>) -> Run {
        Run { bytes: Vec::new(), row_len, starts: Vec::new(), doubtful: Vec::new(), unchecked_from: usize::MAX }
    }

    /// The same without rows, with the memory of `spare`, a run of the same table.
    pub fn take(&mut self, spare: Option<Run>) -> Run {
        let mut empty = spare.unwrap_or_else(|| Run::with_row_len(self.row_len));
        empty.bytes.clear();
        empty.starts.clear();
        empty.doubtful.clear();
        empty.unchecked_from = if self.unchecked_from == usize::MAX { usize::MAX } else { 0 };
        std::mem::replace(self, empty)
    }

    /// Adds a row that `write` appends to the bytes given; after an error none.
    #[inline]
    pub fn append(&mut self, write: impl FnOnce(&mut Vec<u8>) -> Result<()>) -> Result<()> {
        let start = self.bytes.len();
        if self.row_len.is_none() {
            memory::reserve(&mut self.starts, 1, "the rows of a statement")?;
        }
        if let Err(error) = write(&mut self.bytes) {
            self.bytes.truncate(start);
            return Err(error);
        }
        if self.row_len.is_none() {
            self.starts.push(start);
        }
        Ok(())
    }

    /// Adds a row; one that is not certainly new is remembered as such.
    #[inline]
    pub fn push(&mut self, row: &[u8], is_new: bool) -> Result<()> {
        let number = self.len();
        memory::reserve(&mut self.doubtful, 1, "the rows of a statement")?;
        self.append(|bytes| {
            memory::reserve(bytes, row.len(), "the rows of a statement")?;
            bytes.extend_from_slice(row);
            Ok(())
        })?;
        if !is_new {
            self.doubtful.push(number);
        }
        Ok(())
    }

    /// Whether each row was looked up and is certainly new.
    pub fn is_all_new(&self) -> bool {
        self.doubtful.is_empty() && self.unchecked_from == usize::MAX
    }

    /// Its bytes, the length of every row where all have the same, else where each ends.
    pub fn into_rows(mut self) -> (Vec<u8>, Option<usize>, Vec<usize>) {
        self.bytes.shrink_to_fit();
        let mut ends = self.starts;
        if !ends.is_empty() {
            ends.remove(0);
            ends.push(self.bytes.len());
        }
        ends.shrink_to_fit();
        (self.bytes, self.row_len, ends)
    }

    /// How many rows were looked up.
    pub fn checked(&self) -> usize {
        self.unchecked_from.min(self.len())
    }

    /// Rows from the next one on are not looked up before they come here.
    pub fn end_checks(&mut self) {
        self.unchecked_from = self.unchecked_from.min(self.len());
    }

    /// Whether rows come here that were not looked up.
    #[inline]
    pub fn takes_unchecked(&self) -> bool {
        self.unchecked_from != usize::MAX
    }

    /// Whether row number `i` was not looked up.
    pub fn is_unchecked(&self, i: u32) -> bool {
        i as usize >= self.unchecked_from
    }

    /// The row that was added last.
    #[inline]
    pub fn last(&self) -> Option<&[u8]> {
        self.bytes.get(self.start_of_last()?..)
    }

    /// Takes the row that was added last back out.
    pub fn pop(&mut self) -> Option<Vec<u8>> {
        let start = self.start_of_last()?;
        if self.row_len.is_none() {
            self.starts.pop();
        }
        Some(self.bytes.split_off(start))
    }

    #[inline]
    fn start_of_last(&self) -> Option<usize> {
        match self.row_len {
            Some(len) => self.bytes.len().checked_sub(len),
            None => self.starts.last().copied(),
        }
    }

    /// Bytes of rows.
    #[inline]
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Rows.
    pub fn len(&self) -> usize {
        self.row_len.map_or(self.starts.len(), |len| self.bytes.len() / len)
    }

    /// Row number `i`, in the order of arrival.
    #[inline]
    pub fn row(&self, i: usize) -> &[u8] {
        match self.row_len {
            Some(len) => &self.bytes[i * len..][..len],
            None => {
                let end = self.starts.get(i + 1).copied().unwrap_or(self.bytes.len());
                &self.bytes[self.starts[i]..end]
            }
        }
    }

    /// The rows in the order of arrival.
    pub fn rows(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.len()).map(|i| self.row(i))
    }

    /// The rows in the order of arrival, each with whether it is certainly new: one that was not looked up is not.
    pub fn rows_and_doubts(&self) -> impl Iterator<Item = (&[u8], bool)> {
        let mut doubtful = self.doubtful.iter().peekable();
        let is_new = move |i| doubtful.next_if_eq(&&i).is_none() && i < self.unchecked_from;
        self.rows().enumerate().scan(is_new, |is_new, (i, row)| Some((row, is_new(i))))
    }
}
