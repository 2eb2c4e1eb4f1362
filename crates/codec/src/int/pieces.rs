//! Integers as the few straight lines that they consist of, without writing them out.
//!
//! In key order the columns of the key are such: a series number stays for thousands of rows, times of readings come at
//! equal distances. Blocks whose numbers are made of long runs, or of long runs of differences, are read as lines;
//! whoever filters and groups by them then works on some lines instead of thousands of rows.

use std::ops::Range;

use super::{DEPTH, decode_level, decode_side, packed};
use crate::bits::unzigzag;
use crate::reader::Reader;
use crate::{DecodeError, tag};

/// For each line there must be so many rows, or they are not worth it.
const ROWS_A_PIECE: usize = 8;
/// As many are worth it always.
const FEW: usize = 16;

/// A straight line: row `first + i` has `value + i * step`, until the next piece begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Its first row.
    pub first: u32,
    /// The value of that row.
    pub value: u64,
    /// By how much each row is larger than the one before it; all arithmetic wraps.
    pub step: u64,
}

/// Integers of some rows as lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pieces {
    pieces: Vec<Piece>,
    rows: usize,
}

impl Piece {
    /// The value of a row.
    #[inline]
    pub fn at(&self, row: usize) -> u64 {
        self.value.wrapping_add(self.step.wrapping_mul((row as u64).wrapping_sub(u64::from(self.first))))
    }
}

impl Pieces {
    /// The same value in all rows.
    pub fn constant(value: u64, rows: usize) -> Pieces {
        Pieces { pieces: vec![Piece { first: 0, value, step: 0 }], rows }
    }

    /// How many rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The lines, by their first rows; the first one starts at row 0. There is at least one.
    pub fn pieces(&self) -> &[Piece] {
        &self.pieces
    }

    /// Which line row `row` lies on.
    #[inline]
    pub fn find(&self, row: usize) -> usize {
        self.pieces.partition_point(|piece| piece.first as usize <= row).saturating_sub(1)
    }

    /// The row behind the last one of line `i`.
    #[inline]
    pub fn end(&self, i: usize) -> usize {
        self.pieces.get(i + 1).map_or(self.rows, |next| next.first as usize)
    }

    /// The value of a row.
    #[inline]
    pub fn get(&self, row: usize) -> u64 {
        self.pieces[self.find(row)].at(row)
    }

    /// The first of `rows` for whose value something does not hold that holds for those of the rows before it; the end if
    /// there is none.
    pub fn partition_point(&self, rows: Range<usize>, holds: impl Fn(u64) -> bool) -> usize {
        if rows.is_empty() {
            return rows.start;
        }
        let begun = self.find(rows.start) + 1;
        let inside = &self.pieces[begun..];
        let passed = inside.partition_point(|piece| (piece.first as usize) < rows.end && holds(piece.value));
        let line = begun + passed - 1;
        let (piece, mut high) = (&self.pieces[line], self.end(line).min(rows.end));
        let mut low = rows.start.max(piece.first as usize);
        while low < high {
            let middle = (low + high) / 2;
            if holds(piece.at(middle)) { low = middle + 1 } else { high = middle }
        }
        low
    }

    /// The values of some rows.
    pub fn values(&self, rows: Range<usize>) -> Vec<u64> {
        let mut values = Vec::with_capacity(rows.len());
        let mut row = rows.start;
        for i in self.find(row)..self.pieces.len() {
            let end = self.end(i).min(rows.end);
            let (piece, from) = (&self.pieces[i], row);
            // A product each: sums would wait for each other.
            values.extend((from..end).map(|row| piece.at(row)));
            row = end;
            if row >= rows.end {
                break;
            }
        }
        values
    }

    /// Bytes in memory beside the value itself.
    pub fn heap_bytes(&self) -> usize {
        self.pieces.capacity() * size_of::<Piece>()
    }
}

/// A run of equal numbers.
struct Run {
    rows: usize,
    value: u64,
}

/// Reads a block of integers as lines; `None` if it consists of too many, or its codec knows none.
pub(crate) fn decode(bytes: &[u8], rows: usize) -> Result<Option<Pieces>, DecodeError> {
    if rows == 0 {
        return Ok(None);
    }
    let most = (rows / ROWS_A_PIECE).max(FEW);
    if let [tag::INT_DELTA, rest @ ..] = bytes {
        let mut reader = Reader::new(rest);
        let first = unzigzag(reader.varint()?);
        let runs = decode_runs(reader.rest(), rows - 1, most, DEPTH - 1)?;
        return Ok(runs.map(|runs| add_up(first, &runs, rows)).filter(|p| p.pieces.len() <= most));
    }
    let Some(runs) = decode_runs(bytes, rows, most, DEPTH)? else { return Ok(None) };
    let mut pieces = Vec::with_capacity(runs.len());
    let mut first = 0;
    for run in runs {
        pieces.push(Piece { first: first as u32, value: run.value, step: 0 });
        first += run.rows;
    }
    Ok(Some(Pieces { pieces, rows }))
}

/// The lines whose differences are `deltas`.
fn add_up(first: u64, deltas: &[Run], rows: usize) -> Pieces {
    let mut pieces = Vec::with_capacity(deltas.len() + 1);
    let mut piece = Piece { first: 0, value: first, step: 0 };
    let (mut row, mut value) = (0u32, first);
    for run in deltas {
        if row == piece.first {
            // Of one row yet: any step fits.
            piece.step = run.value;
        } else if piece.step != run.value {
            pieces.push(piece);
            piece = Piece { first: row + 1, value: value.wrapping_add(run.value), step: run.value };
        }
        row += run.rows as u32;
        value = value.wrapping_add(run.value.wrapping_mul(run.rows as u64));
    }
    pieces.push(piece);
    Pieces { pieces, rows }
}

/// Reads a block as runs of equal numbers; `None` if there are more than `most`, or the codec knows none.
fn decode_runs(bytes: &[u8], rows: usize, most: usize, depth: u8) -> Result<Option<Vec<Run>>, DecodeError> {
    let depth = depth.checked_sub(1).ok_or(DecodeError::Invalid("depth"))?;
    let mut reader = Reader::new(bytes);
    let runs = match reader.byte()? {
        tag::INT_CONSTANT => Some(vec![Run { rows, value: unzigzag(reader.varint()?) }]),
        tag::INT_RUNS => {
            let count = reader.count(rows)?;
            if count > most {
                return Ok(None);
            }
            let lengths = decode_side(&mut reader, count, depth)?;
            let mut heads = vec![0; count];
            decode_level(reader.rest(), &mut heads, depth)?;
            Some(join(&lengths, &heads, rows)?)
        }
        tag::INT_SCALED => {
            let offset = unzigzag(reader.varint()?);
            let factor = reader.varint()?;
            let mut runs = decode_runs(reader.rest(), rows, most, depth)?;
            let value = |run: &mut Run| run.value = run.value.wrapping_mul(factor).wrapping_add(offset);
            runs.iter_mut().flatten().for_each(value);
            runs
        }
        tag::INT_PACKED => match packed::decode_exceptions(&mut reader, rows, most, depth)? {
            Some((value, exceptions)) => Some(around(value, &exceptions, rows)),
            None => return Ok(None),
        },
        _ => return Ok(None),
    };
    reader.finish()?;
    Ok(runs)
}

fn join(lengths: &[u64], heads: &[u64], rows: usize) -> Result<Vec<Run>, DecodeError> {
    let mut left = rows as u64;
    let mut runs = Vec::with_capacity(heads.len());
    for (&length, &value) in lengths.iter().zip(heads) {
        if length >= left {
            return Err(DecodeError::Invalid("length of a run"));
        }
        left -= length + 1;
        runs.push(Run { rows: length as usize + 1, value });
    }
    if left == 0 { Ok(runs) } else { Err(DecodeError::Invalid("runs end early")) }
}

/// The runs of a number that is the same in all rows but some, which ascend.
fn around(value: u64, exceptions: &[(usize, u64)], rows: usize) -> Vec<Run> {
    let mut runs = Vec::with_capacity(2 * exceptions.len() + 1);
    let mut next = 0;
    for &(row, exception) in exceptions {
        if row > next {
            runs.push(Run { rows: row - next, value });
        }
        runs.push(Run { rows: 1, value: exception });
        next = row + 1;
    }
    if rows > next {
        runs.push(Run { rows: rows - next, value });
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::int::{Sign, encode};
    use crate::{Effort, int};

    fn check(values: &[u64], pieces: Option<usize>) {
        for effort in [Effort::Fast, Effort::Small] {
            let mut block = Vec::new();
            encode(values, Sign::Unsigned, effort, &mut block);
            let Ok(found) = decode(&block, values.len()) else { panic!("{effort:?}: damage") };
            assert_eq!(found.as_ref().map(|p| p.pieces.len()), pieces, "{effort:?}");
            if let Some(found) = found {
                assert_eq!(found.values(0..values.len()), values);
                for start in [0, values.len() / 3, values.len() - 1] {
                    for end in [start, start + 1, (start + 1100).min(values.len())] {
                        assert_eq!(found.values(start..end), values[start..end]);
                    }
                }
                assert!((0..values.len()).all(|row| found.get(row) == values[row]));
                let ends: Vec<usize> = (0..found.pieces.len()).map(|i| found.end(i)).collect();
                assert_eq!(ends.last(), Some(&values.len()));
                for end in 0..=block.len() {
                    // Every prefix is damage or no lines, never a panic.
                    let _ = decode(&block[..end], values.len());
                }
            }
            assert_eq!(int::decode(&block, values.len()), Ok(values.to_vec()));
        }
    }

    #[test]
    fn keys_of_regular_readings_are_lines() {
        check(&[7; 5000], Some(1));
        check(&(0..5000).map(|i| 1_700_000_000 + 300 * i).collect::<Vec<u64>>(), Some(1));
        check(&(0..5000).map(|i| (1 << 31) | (i / 700)).collect::<Vec<u64>>(), Some(8));
        check(&(0..5000).map(|i| 1_700_000_000 + 300 * (i % 700)).collect::<Vec<u64>>(), Some(8));
        check(&[9], Some(1));
    }

    #[test]
    fn rows_in_order_are_parted_at_any_value() {
        let line = |first, value, step| Piece { first, value, step };
        let pieces = vec![line(0, 5, 0), line(100, 6, 0), line(200, 7, 0), line(300, 900, 3), line(600, 1 << 40, 0)];
        let found = Pieces { pieces, rows: 601 };
        let values = found.values(0..601);
        for rows in [0..601, 50..50, 50..51, 99..301, 250..600, 601..601] {
            for value in [0, 5, 6, 7, 8, 899, 900, 901, 1500, 1797, 1 << 40, u64::MAX] {
                for or_equal in [false, true] {
                    let holds = |v: u64| v < value || or_equal && v == value;
                    let expected = rows.start + values[rows.clone()].partition_point(|&v| holds(v));
                    assert_eq!(found.partition_point(rows.clone(), holds), expected, "{rows:?} {value} {or_equal}");
                }
            }
        }
    }

    #[test]
    fn noise_is_no_line() {
        check(&(0..5000u64).map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 50).collect::<Vec<u64>>(), None);
    }

    #[test]
    fn a_jump_begins_a_line_and_none_is_left_alone() {
        let run = |rows, value| Run { rows, value };
        let found = add_up(10, &[run(3, 5), run(1, 100), run(2, 5), run(1, 7)], 8);
        assert_eq!(found.values(0..8), [10, 15, 20, 25, 125, 130, 135, 142]);
        assert_eq!(found.pieces.len(), 3);
    }
}
