//! Sums and extremes of values that lie side by side: loops that the compiler turns into vector code.
//!
//! Sums of floats are compensated: what each addition rounds away is added up apart (Knuth's TwoSum). Long runs are summed
//! in strands that do not wait for each other. Which values are summed together depends on where they lie, never on
//! threads, so the same data give the same bits.

use rrd_codec::{Piece, Pieces};

use crate::segment::zone::{order_f32, order_f64, two_sum};

/// Strands of a float sum.
const STRANDS: usize = 8;
/// Values from which on strands are worth being joined at the end.
const LONG: usize = 64;
/// Strands of a search for the smallest or largest value.
const EXTREME_STRANDS: usize = 8;

/// A float from this magnitude on may make a sum overflow that 2^40 smaller ones do not.
pub const HUGE: f64 = 1e296;

/// A sum of floats: `hi + lo`, and of how many. `lo` is NaN once a term was [`HUGE`]: whether such a sum overflows on the way
/// depends on the order of its terms, which is lost here.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FloatSum {
    pub hi: f64,
    pub lo: f64,
    pub count: u64,
}

impl FloatSum {
    /// Adds one value.
    #[inline]
    fn add(&mut self, value: f64) {
        let (hi, error) = two_sum(self.hi, value);
        self.hi = hi;
        self.lo += error;
    }

    /// Adds another sum.
    #[inline]
    pub fn join(&mut self, other: &FloatSum) {
        self.add(other.hi);
        self.lo += other.lo;
        self.count += other.count;
    }

    /// Adds some values.
    #[inline]
    pub fn extend<T: Copy>(&mut self, values: &[T], float: impl Fn(T) -> f64) {
        self.count += values.len() as u64;
        let huge = if values.len() < LONG {
            values.iter().for_each(|&v| self.add(float(v)));
            values.iter().fold(false, |huge, &v| huge | is_huge(float(v)))
        } else {
            self.extend_in_strands(values, &float)
        };
        if huge {
            self.lo = f64::NAN;
        }
    }

    /// Whether a value is [`HUGE`].
    fn extend_in_strands<T: Copy>(&mut self, values: &[T], float: impl Fn(T) -> f64) -> bool {
        let (mut sums, mut errors) = ([0.0; STRANDS], [0.0; STRANDS]);
        let mut huge = [false; STRANDS];
        let chunks = values.chunks_exact(STRANDS);
        let rest = chunks.remainder();
        for chunk in chunks {
            for i in 0..STRANDS {
                let value = float(chunk[i]);
                let (sum, error) = two_sum(sums[i], value);
                sums[i] = sum;
                errors[i] += error;
                huge[i] |= is_huge(value);
            }
        }
        sums.into_iter().for_each(|sum| self.add(sum));
        errors.into_iter().for_each(|error| self.lo += error);
        rest.iter().for_each(|&v| self.add(float(v)));
        huge.into_iter().any(|huge| huge) || rest.iter().any(|&v| is_huge(float(v)))
    }

    /// The rounded sum and the rest, which is NaN if the sum depends on the order of its terms.
    pub fn finish(&self) -> (f64, f64) {
        if self.hi.is_finite() && self.lo.is_finite() { two_sum(self.hi, self.lo) } else { (self.hi, f64::NAN) }
    }
}

/// Also of NaN and infinity.
#[inline]
fn is_huge(value: f64) -> bool {
    value.is_nan() || value.abs() >= HUGE
}

/// The sum of up to 2^32 integers.
pub fn sum_ints(values: &[u64]) -> u128 {
    // Halves are summed apart: they fit 64 bits with room to spare.
    let (mut low, mut high) = (0u64, 0u64);
    for &v in values {
        low += v & 0xFFFF_FFFF;
        high += v >> 32;
    }
    (u128::from(high) << 32) + u128::from(low)
}

/// The smallest and the largest integer; of at least one.
pub fn range_of_ints(values: &[u64]) -> (u64, u64) {
    values.iter().fold((u64::MAX, 0), |(min, max), &v| (min.min(v), max.max(v)))
}

/// The smallest (or largest) of floats, the first one if several are equal; of at least one. `is_plain`: there is no NaN and
/// no -0.0 among them, so equal ones have the same bits.
#[inline]
pub fn extreme_f64(values: &[u64], largest: bool, is_plain: bool) -> u64 {
    match (is_plain, largest) {
        (true, false) => plain_extreme(values, |a, b| if b < a { b } else { a }),
        (true, true) => plain_extreme(values, |a, b| if b > a { b } else { a }),
        (false, _) => ordered_extreme(values, largest, order_f64),
    }
}

/// [`extreme_f64`] of single-precision floats.
#[inline]
pub fn extreme_f32(values: &[u32], largest: bool) -> u32 {
    ordered_extreme(values, largest, order_f32)
}

#[inline]
fn plain_extreme(values: &[u64], better: impl Fn(f64, f64) -> f64) -> u64 {
    let mut best = [f64::from_bits(values[0]); EXTREME_STRANDS];
    let chunks = values.chunks_exact(EXTREME_STRANDS);
    let rest = chunks.remainder();
    for chunk in chunks {
        for i in 0..EXTREME_STRANDS {
            best[i] = better(best[i], f64::from_bits(chunk[i]));
        }
    }
    let joined = best.into_iter().chain(rest.iter().map(|&v| f64::from_bits(v))).reduce(better);
    joined.map_or(values[0], f64::to_bits)
}

fn ordered_extreme<T: Copy>(values: &[T], largest: bool, order: impl Fn(T) -> u64) -> T {
    let mut best = values[0];
    for &v in values {
        if (largest && order(v) > order(best)) || (!largest && order(v) < order(best)) {
            best = v;
        }
    }
    best
}

/// The rows `from..to` of a line, if they do not wrap around: value of the first and of the last, and the step.
fn straight(piece: &Piece, from: usize, to: usize) -> Option<(i128, i128, i128)> {
    let step = i128::from(piece.step as i64);
    let first = i128::from(piece.at(from));
    let last = first + step * (to - from - 1) as i128;
    (0..=i128::from(u64::MAX)).contains(&last).then_some((first, last, step))
}

/// Calls `take` with each line of rows `from..to`, as (piece, first row, row behind).
#[inline]
fn each_line(lines: &Pieces, from: usize, to: usize, mut take: impl FnMut(&Piece, usize, usize)) {
    let mut i = lines.find(from);
    let mut row = from;
    while row < to {
        let end = lines.end(i).min(to);
        take(&lines.pieces()[i], row, end);
        row = end;
        i += 1;
    }
}

/// [`sum_ints`] of rows `from..to`.
pub fn sum_lines(lines: &Pieces, from: usize, to: usize) -> u128 {
    let mut sum = 0u128;
    each_line(lines, from, to, |piece, from, to| {
        sum += match straight(piece, from, to) {
            // The number of rows times first and last is even.
            Some((first, last, _)) => ((first + last) * (to - from) as i128 / 2) as u128,
            None => (from..to).map(|row| u128::from(piece.at(row))).sum(),
        };
    });
    sum
}

/// [`range_of_ints`] of rows `from..to`.
pub fn range_of_lines(lines: &Pieces, from: usize, to: usize) -> (u64, u64) {
    let (mut min, mut max) = (u64::MAX, 0);
    each_line(lines, from, to, |piece, from, to| match straight(piece, from, to) {
        Some((first, last, _)) => {
            min = min.min(first.min(last) as u64);
            max = max.max(first.max(last) as u64);
        }
        None => (from..to).map(|row| piece.at(row)).for_each(|v| {
            min = min.min(v);
            max = max.max(v);
        }),
    });
    (min, max)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rrd_codec::{Column, Effort, Values};

    use super::*;

    fn lines_of(values: &[u64]) -> Option<Pieces> {
        let mut block = Vec::new();
        rrd_codec::encode(&Column { values: Values::Int(values.to_vec()), nulls: None }, Effort::Small, &mut block);
        rrd_codec::decode_pieces(&block, values.len()).ok().flatten()
    }

    #[test]
    fn nothing_is_lost_in_long_and_short_sums() {
        for count in [3, 40, 64, 1000, 4099] {
            let mut values = vec![1e16];
            values.extend(std::iter::repeat_n(1.0, count));
            values.push(-1e16);
            let bits: Vec<u64> = values.iter().map(|v: &f64| v.to_bits()).collect();
            let mut sum = FloatSum::default();
            sum.extend(&bits, f64::from_bits);
            assert_eq!((sum.finish(), sum.count), ((count as f64, 0.0), count as u64 + 2));
        }
    }

    #[test]
    fn lines_that_wrap_around_are_summed_row_by_row() {
        let values: Vec<u64> = (0..500u64).map(|i| (u64::MAX - 100).wrapping_add(i)).collect();
        let Some(lines) = lines_of(&values) else { panic!("no lines") };
        assert_eq!(sum_lines(&lines, 50, 300), values[50..300].iter().map(|&v| u128::from(v)).sum());
        assert_eq!(range_of_lines(&lines, 50, 300), (0, u64::MAX));
        assert_eq!(range_of_lines(&lines, 50, 60), (values[50], values[59]));
    }

    proptest! {
        #[test]
        fn lines_give_what_their_rows_give(
            parts in prop::collection::vec((any::<u32>(), -9i64..9, 20usize..90), 1..6),
            cut in (any::<prop::sample::Index>(), any::<prop::sample::Index>()),
        ) {
            let part = |&(value, step, rows): &(u32, i64, usize)| {
                (0..rows as u64).map(move |i| (1 << 40 | u64::from(value)).wrapping_add(i.wrapping_mul(step as u64)))
            };
            let values: Vec<u64> = parts.iter().flat_map(part).collect();
            let (a, b) = (cut.0.index(values.len()), cut.1.index(values.len()));
            let (from, to) = (a.min(b), a.max(b) + 1);
            if let Some(lines) = lines_of(&values) {
                prop_assert_eq!(sum_lines(&lines, from, to), sum_ints(&values[from..to]));
                prop_assert_eq!(range_of_lines(&lines, from, to), range_of_ints(&values[from..to]));
            }
        }

        #[test]
        fn extremes_are_the_first_ones_of_equal_values(values in prop::collection::vec(-3i8..3, 1..50)) {
            let float = |&v: &i8| if v == -1 { -0.0f64 } else { f64::from(v.max(0)) };
            let bits: Vec<u64> = values.iter().map(|v| float(v).to_bits()).collect();
            let least = bits.iter().copied().reduce(|a, b| if f64::from_bits(b) < f64::from_bits(a) { b } else { a });
            prop_assert_eq!(Some(extreme_f64(&bits, false, false)), least);
            let plain: Vec<u64> = values.iter().map(|&v| f64::from(v).to_bits()).collect();
            prop_assert_eq!(extreme_f64(&plain, true, true), extreme_f64(&plain, true, false));
            prop_assert_eq!(extreme_f64(&plain, false, true), extreme_f64(&plain, false, false));
        }
    }
}
