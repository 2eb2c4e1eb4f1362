//! Zone maps: what is known of a block without decoding it.
//!
//! The writer computes one for each block, the footer keeps them, scans skip groups by them and aggregates add
//! them up. `verify` computes them anew and compares, so the float sum's order of additions is part of the format.

use rrd_codec::{Bitmap, BytesColumn, Column, Values};

/// Strands of a float sum: enough independent additions to keep the processor busy.
const STRANDS: usize = 8;

/// Strands of a search for the smallest and largest value.
const RANGE_STRANDS: usize = 4;

const NEGATIVE_ZERO_F32: u32 = 1 << 31;
const NEGATIVE_ZERO_F64: u64 = 1 << 63;

/// A sum of a block's values that are not null.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Sum {
    /// Byte strings have none; neither have floats whose sum is not finite.
    None,
    /// Sum of the lane's unsigned values (a signed SQL integer's bias is in it once for each value).
    Int(u128),
    /// Compensated sum: `hi + lo`, `hi` being the rounded sum.
    Float {
        /// The rounded sum.
        hi: f64,
        /// What rounding lost.
        lo: f64,
    },
}

/// What is known of one block.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ZoneMap {
    /// Rows, nulls included.
    pub rows: u32,
    /// Nulls among them (tombstones are null in all columns that are not of the key).
    pub nulls: u32,
    /// Smallest and largest value that is not null, in the lane's order as unsigned integers: the value
    /// itself for `Int`, [`order_f64`] or [`order_f32`] for floats, [`order_bytes`] for byte strings.
    /// `None` when all are null.
    pub range: Option<(u64, u64)>,
    /// Whether `range` and `sum` are values that are there and not only bounds: false for byte strings, and
    /// for floats when a NaN, an infinity or a negative zero is among them.
    pub exact: bool,
    /// Their sum; 0 when all are null.
    pub sum: Sum,
}

impl ZoneMap {
    /// Computes the zone map of a block.
    pub fn of(column: &Column) -> ZoneMap {
        let rows = column.rows() as u32;
        let nulls = column.null_count() as u32;
        let zone = ZoneMap { rows, nulls, range: None, exact: true, sum: Sum::None };
        let some_null = column.nulls.as_ref().filter(|_| nulls > 0);
        match (&column.values, some_null) {
            (Values::Int(v), None) => zone.with_ints(v),
            (Values::Int(v), Some(nulls)) => zone.with_ints(&dense(v, nulls)),
            (Values::F32(v), None) => zone.with_f32(v),
            (Values::F32(v), Some(nulls)) => zone.with_f32(&dense(v, nulls)),
            (Values::F64(v), None) => zone.with_f64(v),
            (Values::F64(v), Some(nulls)) => zone.with_f64(&dense(v, nulls)),
            (Values::Bytes(v), None) => zone.with_prefixes(prefixes(v)),
            (Values::Bytes(v), Some(nulls)) => zone.with_prefixes(dense(&prefixes(v), nulls)),
        }
    }

    fn with_ints(self, values: &[u64]) -> ZoneMap {
        // Halves are summed apart: 2^16 of them fit 64 bits with room to spare.
        let (mut low, mut high) = (0u64, 0u64);
        for &v in values {
            low += v & 0xFFFF_FFFF;
            high += v >> 32;
        }
        let sum = (u128::from(high) << 32) + u128::from(low);
        ZoneMap { range: range(values, |v| v), sum: Sum::Int(sum), ..self }
    }

    fn with_f64(self, values: &[u64]) -> ZoneMap {
        let sum = sum_floats(values, f64::from_bits);
        let odd = find_odd(values, sum, f64::from_bits, |v| v == NEGATIVE_ZERO_F64);
        let range = match sum {
            // Without a NaN the processor's own comparison will do, which takes several at a time.
            Sum::Float { .. } => {
                float_range(values).map(|(min, max)| (order_f64(min.to_bits()), order_f64(max.to_bits())))
            }
            _ => range(values, order_f64),
        };
        self.with_floats(range, odd, sum)
    }

    fn with_f32(self, values: &[u32]) -> ZoneMap {
        let float = |v| f64::from(f32::from_bits(v));
        let sum = sum_floats(values, float);
        let odd = find_odd(values, sum, float, |v| v == NEGATIVE_ZERO_F32);
        self.with_floats(range(values, order_f32), odd, sum)
    }

    fn with_floats(self, range: Option<(u64, u64)>, odd: Odd, sum: Sum) -> ZoneMap {
        // NaN has no place in the order: nothing may be skipped.
        let range = if odd == Odd::Nan { Some((0, u64::MAX)) } else { range };
        ZoneMap { range, exact: odd == Odd::None, sum, ..self }
    }

    fn with_prefixes(self, prefixes: Vec<u64>) -> ZoneMap {
        ZoneMap { range: range(&prefixes, |v| v), exact: false, sum: Sum::None, ..self }
    }
}

/// Floats that keep a zone map from being exact.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Odd {
    None,
    Nan,
    /// An infinity or a negative zero.
    Other,
}

/// Whether odd ones are among floats of this sum.
fn find_odd<T: Copy>(values: &[T], sum: Sum, float: impl Fn(T) -> f64, is_negative_zero: impl Fn(T) -> bool) -> Odd {
    // A NaN or an infinity would show in the sum: mostly one look for negative zeros is enough.
    if sum == Sum::None {
        if values.iter().any(|&v| float(v).is_nan()) {
            return Odd::Nan;
        }
        if values.iter().any(|&v| float(v).is_infinite()) {
            return Odd::Other;
        }
    }
    match values.iter().fold(false, |found, &v| found | is_negative_zero(v)) {
        true => Odd::Other,
        false => Odd::None,
    }
}

/// Maps a double to an integer of the same order. -0.0 and 0.0 are equal.
#[inline]
pub fn order_f64(bits: u64) -> u64 {
    let bits = if bits == NEGATIVE_ZERO_F64 { 0 } else { bits };
    bits ^ ((bits as i64 >> 63) as u64 | 1 << 63)
}

/// Maps a float to an integer of the same order. -0.0 and 0.0 are equal.
#[inline]
pub fn order_f32(bits: u32) -> u64 {
    let bits = if bits == NEGATIVE_ZERO_F32 { 0 } else { bits };
    u64::from(bits ^ ((bits as i32 >> 31) as u32 | 1 << 31))
}

/// The double that [`order_f64`] mapped.
pub fn f64_of_order(order: u64) -> f64 {
    f64::from_bits(order ^ (!(order as i64 >> 63) as u64 | 1 << 63))
}

/// The float that [`order_f32`] mapped.
pub fn f32_of_order(order: u64) -> f32 {
    let order = order as u32;
    f32::from_bits(order ^ (!(order as i32 >> 31) as u32 | 1 << 31))
}

/// The first 8 bytes, zeros behind the end: `a <= b` implies `order_bytes(a) <= order_bytes(b)`.
#[inline]
pub fn order_bytes(value: &[u8]) -> u64 {
    let mut be = [0; 8];
    match value.first_chunk::<8>() {
        Some(first) => be = *first,
        None => be[..value.len()].copy_from_slice(value),
    }
    u64::from_be_bytes(be)
}

/// `a + b` rounded, and what rounding lost (Knuth).
#[inline]
pub fn two_sum(a: f64, b: f64) -> (f64, f64) {
    let sum = a + b;
    let b_part = sum - a;
    (sum, (a - (sum - b_part)) + (b - b_part))
}

fn dense<T: Copy>(values: &[T], nulls: &Bitmap) -> Vec<T> {
    let mut out = Vec::with_capacity(values.len());
    for (chunk, &word) in values.chunks(64).zip(nulls.words()) {
        match word {
            0 => out.extend_from_slice(chunk),
            u64::MAX => {}
            _ => out.extend(chunk.iter().enumerate().filter(|(i, _)| word >> i & 1 == 0).map(|(_, &v)| v)),
        }
    }
    out
}

/// [`order_bytes`] of each value, read from the common buffer at once where that is long enough.
fn prefixes(values: &BytesColumn) -> Vec<u64> {
    let prefix = |w: &[u32]| {
        let (start, end) = (w[0] as usize, w[1] as usize);
        match values.data.get(start..).and_then(<[u8]>::first_chunk::<8>) {
            Some(_) if start == end => 0,
            Some(first) => u64::from_be_bytes(*first) & (u64::MAX << (64 - 8 * (end - start).min(8))),
            None => order_bytes(&values.data[start..end]),
        }
    };
    values.offsets.windows(2).map(prefix).collect()
}

/// Smallest and largest; in strands, so that one comparison does not wait for the one before.
fn range<T: Copy>(values: &[T], order: impl Fn(T) -> u64) -> Option<(u64, u64)> {
    let first = order(*values.first()?);
    let (mut min, mut max) = ([first; RANGE_STRANDS], [first; RANGE_STRANDS]);
    let chunks = values.chunks_exact(RANGE_STRANDS);
    let rest = chunks.remainder();
    let mut step = |i: usize, v: T| {
        let v = order(v);
        min[i] = min[i].min(v);
        max[i] = max[i].max(v);
    };
    for chunk in chunks {
        (0..RANGE_STRANDS).for_each(|i| step(i, chunk[i]));
    }
    rest.iter().enumerate().for_each(|(i, &v)| step(i, v));
    let min = min.into_iter().fold(first, u64::min);
    Some((min, max.into_iter().fold(first, u64::max)))
}

/// Smallest and largest of doubles none of which is NaN.
fn float_range(values: &[u64]) -> Option<(f64, f64)> {
    let first = f64::from_bits(*values.first()?);
    let (mut min, mut max) = ([first; STRANDS], [first; STRANDS]);
    let mut step = |i: usize, v: f64| {
        min[i] = if v < min[i] { v } else { min[i] };
        max[i] = if v > max[i] { v } else { max[i] };
    };
    let chunks = values.chunks_exact(STRANDS);
    let rest = chunks.remainder();
    for chunk in chunks {
        (0..STRANDS).for_each(|i| step(i, f64::from_bits(chunk[i])));
    }
    rest.iter().enumerate().for_each(|(i, &v)| step(i, f64::from_bits(v)));
    let smaller = |a: f64, b: f64| if b < a { b } else { a };
    let larger = |a: f64, b: f64| if b > a { b } else { a };
    Some((min.into_iter().fold(first, smaller), max.into_iter().fold(first, larger)))
}

/// The sum in the order that the format fixes.
fn sum_floats<T: Copy>(values: &[T], float: impl Fn(T) -> f64) -> Sum {
    let mut sums = [0.0; STRANDS];
    let mut errors = [0.0; STRANDS];
    let chunks = values.chunks_exact(STRANDS);
    let rest = chunks.remainder();
    let mut step = |i: usize, v: T| {
        let (sum, error) = two_sum(sums[i], float(v));
        sums[i] = sum;
        errors[i] += error;
    };
    for chunk in chunks {
        (0..STRANDS).for_each(|i| step(i, chunk[i]));
    }
    rest.iter().enumerate().for_each(|(i, &v)| step(i, v));
    let (mut hi, mut lo) = (0.0, 0.0);
    for sum in sums {
        let (h, e) = two_sum(hi, sum);
        hi = h;
        lo += e;
    }
    for error in errors {
        lo += error;
    }
    let (hi, lo) = two_sum(hi, lo);
    match hi.is_finite() && lo.is_finite() {
        true => Sum::Float { hi, lo },
        false => Sum::None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn f64_column(values: &[f64]) -> Column {
        Column { values: Values::F64(values.iter().map(|v| v.to_bits()).collect()), nulls: None }
    }

    #[test]
    fn the_sum_keeps_what_plain_addition_loses() {
        let mut values = vec![1e16];
        values.extend(std::iter::repeat_n(1.0, 1000));
        values.push(-1e16);
        let Sum::Float { hi, lo } = ZoneMap::of(&f64_column(&values)).sum else { panic!("no sum") };
        assert_eq!((hi, lo), (1000.0, 0.0));
    }

    #[test]
    fn values_outside_the_order_never_cause_skipping_or_answers() {
        let nan = ZoneMap::of(&f64_column(&[1.0, f64::NAN]));
        assert_eq!((nan.range, nan.exact, nan.sum), (Some((0, u64::MAX)), false, Sum::None));
        let infinite = ZoneMap::of(&f64_column(&[1.0, f64::INFINITY]));
        assert_eq!((infinite.exact, infinite.sum), (false, Sum::None));
        let zero = ZoneMap::of(&f64_column(&[-0.0]));
        assert_eq!((zero.range, zero.exact), (Some((order_f64(0), order_f64(0))), false));
        let overflow = ZoneMap::of(&f64_column(&[f64::MAX, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, f64::MAX]));
        assert_eq!(overflow.sum, Sum::None);
    }

    #[test]
    fn largest_integers_do_not_overflow_the_sum() {
        let zone = ZoneMap::of(&Column { values: Values::Int(vec![u64::MAX; 65536]), nulls: None });
        assert_eq!(zone.sum, Sum::Int(u128::from(u64::MAX) * 65536));
    }

    proptest! {
        #[test]
        fn float_orders_are_the_floats_order(a in any::<f64>(), b in any::<f64>()) {
            prop_assume!(!a.is_nan() && !b.is_nan());
            prop_assert_eq!(Some(order_f64(a.to_bits()).cmp(&order_f64(b.to_bits()))), a.partial_cmp(&b));
            prop_assert_eq!(f64_of_order(order_f64(a.to_bits())), a);
            let (a, b) = (a as f32, b as f32);
            prop_assert_eq!(Some(order_f32(a.to_bits()).cmp(&order_f32(b.to_bits()))), a.partial_cmp(&b));
            prop_assert_eq!(f32_of_order(order_f32(a.to_bits())), a);
        }

        #[test]
        fn a_range_of_doubles_is_that_of_their_order(values in prop::collection::vec(any::<f64>(), 1..60)) {
            prop_assume!(values.iter().all(|v| !v.is_nan()));
            let bits: Vec<u64> = values.iter().map(|v| v.to_bits()).collect();
            let ordered = float_range(&bits).map(|(min, max)| (order_f64(min.to_bits()), order_f64(max.to_bits())));
            prop_assert_eq!(ordered, range(&bits, order_f64));
        }

        #[test]
        fn prefix_order_never_contradicts_the_bytes(a in prop::collection::vec(0u8..3, 0..11), b in prop::collection::vec(0u8..3, 0..11)) {
            if a <= b {
                prop_assert!(order_bytes(&a) <= order_bytes(&b));
            }
        }

        #[test]
        fn prefixes_are_those_of_each_value(values in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..12), 1..40)) {
            let mut column = BytesColumn::new();
            values.iter().for_each(|v| column.push(v));
            prop_assert_eq!(prefixes(&column), values.iter().map(|v| order_bytes(v)).collect::<Vec<_>>());
        }

        #[test]
        fn nulls_are_left_out(rows in prop::collection::vec((any::<u64>(), any::<bool>()), 1..200)) {
            let mut nulls = Bitmap::new(rows.len());
            rows.iter().enumerate().filter(|(_, r)| r.1).for_each(|(i, _)| nulls.set(i));
            let kept: Vec<u64> = rows.iter().filter(|r| !r.1).map(|r| r.0).collect();
            let column = Column { values: Values::Int(rows.iter().map(|r| r.0).collect()), nulls: Some(nulls).filter(|n| n.count() > 0) };
            let zone = ZoneMap::of(&column);
            prop_assert_eq!(zone.range, kept.iter().min().copied().zip(kept.iter().max().copied()));
            prop_assert_eq!(zone.sum, Sum::Int(kept.iter().map(|&v| u128::from(v)).sum()));
            prop_assert_eq!(zone.nulls as usize, rows.len() - kept.len());
        }
    }
}
