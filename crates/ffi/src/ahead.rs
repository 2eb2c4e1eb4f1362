//! Records made ahead of a long walk, many at a time, column by column: a row then costs one copy, where each column on its
//! own would cost a jump.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use rrd_store::{Direction, Part};

use crate::abi::RrdAhead;
use crate::record::Plan;

/// Bytes of records that are made at once: they stay in the processor's nearest cache.
const BYTES_AT_ONCE: usize = 16 << 10;
/// Records that are made at once at most.
const MOST_RECORDS: usize = 256;
/// Records of which fewer can be made at once are written one at a time: as they are so long, they are copied for more than
/// what is asked of them.
const FEWEST_RECORDS: usize = 16;

/// Records of rows of a span, in the order of the walk.
pub struct Ahead {
    bytes: Vec<u8>,
    /// What the handler sees of them.
    shown: Arc<RrdAhead>,
}

impl Ahead {
    /// None yet.
    pub fn new(shown: Arc<RrdAhead>) -> Ahead {
        Ahead { bytes: Vec::new(), shown }
    }

    /// How many of them were copied.
    #[inline]
    pub fn taken(&self) -> usize {
        let shown = &self.shown;
        match shown.next.load(Relaxed) as usize - shown.begin.load(Relaxed) as usize {
            0 => 0,
            bytes => bytes / shown.length.load(Relaxed),
        }
    }

    /// Takes those that were not copied back, and returns how many were.
    #[inline]
    pub fn fold(&mut self) -> usize {
        let taken = self.taken();
        let shown = &self.shown;
        let next = shown.next.load(Relaxed);
        shown.begin.store(next, Relaxed);
        shown.end.store(next, Relaxed);
        taken
    }

    /// Makes the records of the next of `rows` rows. Of columns that nobody asked for they have what `record` has. The
    /// first is row `first_row` of the group. Nothing is made if it would not pay.
    pub fn make(
        &mut self,
        rows: usize,
        record: &[u8],
        first_row: usize,
        direction: Direction,
        columns: &[(&Plan, &Part)],
    ) {
        let most = BYTES_AT_ONCE / record.len().max(1);
        if most < FEWEST_RECORDS {
            return;
        }
        let count = most.min(MOST_RECORDS).min(rows);
        self.fill(record, count);
        let rows = match direction {
            Direction::Forward => first_row..first_row + count,
            Direction::Backward => first_row + 1 - count..first_row + 1,
        };
        let mut records = Records { bytes: &mut self.bytes, length: record.len() };
        for (plan, part) in columns {
            let rows = rows.start - part.first..rows.end - part.first;
            plan.unpack_rows(part.column(), rows, direction, &mut records);
        }
        let all = self.bytes.as_mut_ptr_range();
        self.shown.begin.store(all.start, Relaxed);
        self.shown.next.store(all.start, Relaxed);
        self.shown.end.store(all.end, Relaxed);
        self.shown.length.store(record.len(), Relaxed);
        self.shown.is_backward.store(direction == Direction::Backward, Relaxed);
    }

    /// So many copies of a record, twice as many with each step: few long copies are faster than many short ones.
    fn fill(&mut self, record: &[u8], count: usize) {
        let all = record.len() * count;
        self.bytes.clear();
        self.bytes.extend_from_slice(record);
        while self.bytes.len() < all {
            let more = self.bytes.len().min(all - self.bytes.len());
            self.bytes.extend_from_within(..more);
        }
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        self.fold();
    }
}

/// Records one behind the other.
pub struct Records<'a> {
    bytes: &'a mut [u8],
    length: usize,
}

impl Records<'_> {
    /// Writes each of `values` at the same place of its record: the first into the first, or backward.
    #[inline]
    pub fn put<T: Copy, const N: usize>(
        &mut self,
        at: usize,
        values: &[T],
        direction: Direction,
        bytes_of: impl Fn(T) -> [u8; N],
    ) {
        let places = self.bytes.chunks_exact_mut(self.length).map(|record| &mut record[at..at + N]);
        match direction {
            Direction::Forward => places.zip(values).for_each(|(place, &v)| place.copy_from_slice(&bytes_of(v))),
            Direction::Backward => {
                places.zip(values.iter().rev()).for_each(|(place, &v)| place.copy_from_slice(&bytes_of(v)))
            }
        }
    }

    /// Calls `write` with each record and its row: `rows` from the first to the last, or backward.
    #[inline]
    pub fn each(&mut self, rows: Range<usize>, direction: Direction, mut write: impl FnMut(&mut [u8], usize)) {
        let records = self.bytes.chunks_exact_mut(self.length);
        match direction {
            Direction::Forward => records.zip(rows).for_each(|(record, row)| write(record, row)),
            Direction::Backward => records.zip(rows.rev()).for_each(|(record, row)| write(record, row)),
        }
    }
}
