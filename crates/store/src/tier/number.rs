//! Exact sums of integers and DECIMALs: integers of 256 bits, and MariaDB's packed DECIMAL. Pure.
//!
//! A DECIMAL of 65 digits times ten thousand (for averages) times the number of rows needs 256 bits. A packed DECIMAL has nine
//! digits in each four bytes, most significant first; what is left over on both sides of the point has as few bytes as it
//! needs. The first bit is set for numbers that are not negative; of negative ones all bits are inverted.

use crate::schema::Number;

use super::schema::decimal_bytes;

const GROUP: u64 = 1_000_000_000;
/// Bytes that so many digits take.
const BYTES_OF_DIGITS: [usize; 10] = [0, 1, 1, 2, 2, 3, 3, 4, 4, 4];

/// An integer of 256 bits, least significant word first, in two's complement. Sums of what tables hold do not overflow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wide([u64; 4]);

impl From<i128> for Wide {
    fn from(n: i128) -> Wide {
        let sign = if n < 0 { u64::MAX } else { 0 };
        Wide([n as u64, (n >> 64) as u64, sign, sign])
    }
}

impl Wide {
    /// Adds, wrapping.
    #[inline]
    pub fn add(&mut self, other: &Wide) {
        let mut carry = 0u128;
        for (a, b) in self.0.iter_mut().zip(other.0) {
            let sum = u128::from(*a) + u128::from(b) + carry;
            *a = sum as u64;
            carry = sum >> 64;
        }
    }

    /// The number, if 128 bits hold it; else its last ones.
    pub fn low(&self) -> i128 {
        (u128::from(self.0[1]) << 64 | u128::from(self.0[0])) as i128
    }

    /// Whether it is below zero.
    pub fn is_negative(&self) -> bool {
        self.0[3] >> 63 != 0
    }

    fn negated(&self) -> Wide {
        let mut negated = Wide(self.0.map(|word| !word));
        negated.add(&Wide::from(1));
        negated
    }

    fn magnitude(&self) -> Wide {
        if self.is_negative() { self.negated() } else { *self }
    }

    /// Of a number that is not negative.
    fn times_plus(&mut self, factor: u64, more: u64) {
        let mut carry = u128::from(more);
        for word in &mut self.0 {
            let product = u128::from(*word) * u128::from(factor) + carry;
            *word = product as u64;
            carry = product >> 64;
        }
    }

    /// Divides a number that is not negative; the rest.
    fn divide(&mut self, divisor: u64) -> u64 {
        let mut rest = 0u128;
        for word in self.0.iter_mut().rev() {
            let part = rest << 64 | u128::from(*word);
            *word = (part / u128::from(divisor)) as u64;
            rest = part % u128::from(divisor);
        }
        rest as u64
    }

    /// The nearest float.
    pub fn to_f64(self) -> f64 {
        let magnitude = self.magnitude().0.iter().rev().fold(0.0, |n, &word| n * 2f64.powi(64) + word as f64);
        if self.is_negative() { -magnitude } else { magnitude }
    }

    /// In decimal, with so many digits behind the point.
    pub fn text(&self, scale: u8) -> String {
        let (mut rest, mut digits) = (self.magnitude(), Vec::new());
        while digits.len() <= usize::from(scale) || rest != Wide::default() {
            if scale > 0 && digits.len() == usize::from(scale) {
                digits.push('.');
            }
            digits.push(char::from(b'0' + rest.divide(10) as u8));
        }
        digits.extend(self.is_negative().then_some('-'));
        digits.iter().rev().collect()
    }

    /// A `count`-th of it times 10^`digits`, halves rounded away from zero.
    pub fn average(&self, count: u64, digits: u8) -> Wide {
        let mut quotient = self.magnitude();
        (0..digits).for_each(|_| quotient.times_plus(10, 0));
        let rest = quotient.divide(count.max(1));
        if rest >= count.max(1) - rest {
            quotient.add(&Wide::from(1));
        }
        if self.is_negative() { quotient.negated() } else { quotient }
    }
}

/// The digits of a DECIMAL in its groups: on each side of the point the number of whole ones and the digits of the other.
struct Groups {
    whole: usize,
    whole_digits: usize,
    fraction: usize,
    fraction_digits: usize,
}

impl Groups {
    fn of(precision: u8, scale: u8) -> Groups {
        let (whole, fraction) = (usize::from(precision.saturating_sub(scale)), usize::from(scale));
        Groups { whole: whole / 9, whole_digits: whole % 9, fraction: fraction / 9, fraction_digits: fraction % 9 }
    }
}

/// The number times 10^`scale` that a packed DECIMAL is. Bytes that are missing at the end are zeros.
pub fn unpack_decimal(packed: &[u8], precision: u8, scale: u8) -> Wide {
    let mut buffer = [0u8; 40];
    let length = decimal_bytes(precision, scale).min(buffer.len());
    let given = packed.len().min(length);
    buffer[..given].copy_from_slice(&packed[..given]);
    let is_negative = buffer[0] & 0x80 == 0;
    buffer[0] ^= 0x80;
    if is_negative {
        buffer[..length].iter_mut().for_each(|b| *b = !*b);
    }
    let groups = Groups::of(precision, scale);
    let mut rest = &buffer[..length];
    let mut take = |bytes: usize| {
        let (now, later) = rest.split_at(bytes.min(rest.len()));
        rest = later;
        now.iter().fold(0u64, |n, &b| n << 8 | u64::from(b))
    };
    let mut number = Wide::default();
    number.times_plus(1, take(BYTES_OF_DIGITS[groups.whole_digits]));
    for _ in 0..groups.whole + groups.fraction {
        number.times_plus(GROUP, take(4));
    }
    number.times_plus(10u64.pow(groups.fraction_digits as u32), take(BYTES_OF_DIGITS[groups.fraction_digits]));
    if is_negative { number.negated() } else { number }
}

/// A number times 10^`scale` as packed DECIMAL; one that has too many digits becomes the largest there is, as in the server.
pub fn pack_decimal(number: &Wide, precision: u8, scale: u8, out: &mut Vec<u8>) {
    let groups = Groups::of(precision, scale);
    let mut rest = number.magnitude();
    let last = rest.divide(10u64.pow(groups.fraction_digits as u32));
    let mut between: Vec<u64> = (0..groups.whole + groups.fraction).map(|_| rest.divide(GROUP)).collect();
    between.reverse();
    let first = rest.divide(10u64.pow(groups.whole_digits as u32));
    let is_too_large = rest != Wide::default();
    let nines = |value: u64, digits: usize| if is_too_large { 10u64.pow(digits as u32) - 1 } else { value };
    let start = out.len();
    let mut put = |value: u64, bytes: usize| out.extend_from_slice(&value.to_be_bytes()[8 - bytes..]);
    put(nines(first, groups.whole_digits), BYTES_OF_DIGITS[groups.whole_digits]);
    between.iter().for_each(|&value| put(nines(value, 9), 4));
    put(nines(last, groups.fraction_digits), BYTES_OF_DIGITS[groups.fraction_digits]);
    if number.is_negative() && out[start..].iter().any(|&b| b != 0) {
        out[start..].iter_mut().for_each(|b| *b = !*b);
    }
    if let Some(sign) = out.get_mut(start) {
        *sign ^= 0x80;
    }
}

/// A value as a lane holds it.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Cell {
    /// NULL.
    #[default]
    Null,
    /// An integer, or the bits of a float.
    Bits(u64),
    /// A byte string.
    Bytes(Vec<u8>),
}

/// The exact number that a value of an integer lane of `width` bytes is.
#[inline]
pub fn number_of_bits(bits: u64, width: u8, number: Number) -> Wide {
    match number {
        Number::Integer { bias: 0 } => Wide::from(i128::from(bits)),
        Number::Integer { bias } => {
            let shift = 64 - 8 * u32::from(width.clamp(1, 8));
            Wide::from(i128::from((((bits ^ bias) << shift) as i64) >> shift))
        }
        Number::Decimal { precision, scale } => {
            let bytes = bits.to_be_bytes();
            unpack_decimal(&bytes[8 - usize::from(width.clamp(1, 8))..], precision, scale)
        }
    }
}

/// The exact number that a byte string is.
pub fn number_of_bytes(bytes: &[u8], number: Number) -> Wide {
    match number {
        Number::Decimal { precision, scale } => unpack_decimal(bytes, precision, scale),
        Number::Integer { .. } => Wide::default(),
    }
}

/// A DECIMAL as its lane holds it.
pub fn decimal_cell(value: &Wide, precision: u8, scale: u8) -> Cell {
    let mut packed = Vec::with_capacity(32);
    pack_decimal(value, precision, scale, &mut packed);
    if packed.len() <= 8 {
        return Cell::Bits(packed.iter().fold(0, |n, &b| n << 8 | u64::from(b)));
    }
    // Byte lanes have no zeros at the end: the handler's side puts them back.
    while packed.last() == Some(&0) {
        packed.pop();
    }
    Cell::Bytes(packed)
}

/// A sum of floats that loses less than they do (Neumaier).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FloatSum {
    sum: f64,
    lost: f64,
}

impl FloatSum {
    /// Adds a number.
    #[inline]
    pub fn add(&mut self, value: f64) {
        let sum = self.sum + value;
        self.lost += if self.sum.abs() >= value.abs() { (self.sum - sum) + value } else { (value - sum) + self.sum };
        self.sum = sum;
    }

    /// The sum; one that is too large is the largest there is.
    pub fn value(&self) -> f64 {
        let sum = self.sum + self.lost;
        let sum = if sum.is_nan() { self.sum } else { sum };
        sum.clamp(f64::MIN, f64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn packed(number: i128, precision: u8, scale: u8) -> Vec<u8> {
        let mut out = Vec::new();
        pack_decimal(&Wide::from(number), precision, scale, &mut out);
        out
    }

    #[test]
    fn the_servers_examples() {
        // From the comment of decimal2bin: 1234567890.1234 in DECIMAL(14,4).
        assert_eq!(packed(12_345_678_901_234, 14, 4), [0x81, 0x0D, 0xFB, 0x38, 0xD2, 0x04, 0xD2]);
        assert_eq!(packed(-12_345_678_901_234, 14, 4), [0x7E, 0xF2, 0x04, 0xC7, 0x2D, 0xFB, 0x2D]);
        assert_eq!(packed(0, 3, 0), [0x80, 0]);
    }

    #[test]
    fn what_is_too_large_is_the_largest() {
        assert_eq!(packed(1000, 3, 1), packed(999, 3, 1));
        assert_eq!(packed(-1000, 3, 1), packed(-999, 3, 1));
    }

    #[test]
    fn averages_round_halves_away_from_zero() {
        let average = |sum: i128, count, digits| Wide::from(sum).average(count, digits);
        assert_eq!(average(1, 8, 2), Wide::from(13));
        assert_eq!(average(-1, 8, 2), Wide::from(-13));
        assert_eq!(average(2, 3, 4), Wide::from(6667));
        assert_eq!(average(1, 3, 4), Wide::from(3333));
    }

    proptest! {
        #[test]
        fn decimals_come_back_and_order_as_bytes(
            a in any::<i64>(), b in any::<i64>(), precision in 19u8..=65, scale in 0u8..=38,
        ) {
            let scale = scale.min(precision);
            let (p, q) = (packed(a.into(), precision, scale), packed(b.into(), precision, scale));
            prop_assert_eq!(p.len(), decimal_bytes(precision, scale));
            prop_assert_eq!(unpack_decimal(&p, precision, scale), Wide::from(i128::from(a)));
            prop_assert_eq!(a.cmp(&b), p.cmp(&q));
        }

        #[test]
        fn wide_arithmetic_is_that_of_i128(a in any::<i64>(), b in any::<i64>(), n in 1u64..1 << 40) {
            let (wa, wb) = (i128::from(a), i128::from(b));
            let mut sum = Wide::from(wa);
            sum.add(&Wide::from(wb));
            prop_assert_eq!(sum, Wide::from(wa + wb));
            let (twice, m) = (2 * wa.abs() * 10_000, i128::from(n));
            let rounded = (twice + m) / (2 * m) * wa.signum();
            prop_assert_eq!(Wide::from(wa).average(n, 4), Wide::from(rounded));
        }

        #[test]
        fn float_sums(values in prop::collection::vec(-1e9..1e9f64, 0..200)) {
            let mut sum = FloatSum::default();
            values.iter().for_each(|&v| sum.add(v));
            let exact: i128 = values.iter().map(|v| (v * (1u64 << 40) as f64).round() as i128).sum();
            prop_assert!((sum.value() - exact as f64 / (1u64 << 40) as f64).abs() < 1e-6);
        }
    }
}
