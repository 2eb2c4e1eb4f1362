//! Floats that are decimal fractions, as integers.
//!
//! ALP (Afroozeh et al., SIGMOD 2024) finds an exponent e so that `v * 10^e`, rounded, gives `v` back. Here it is
//! given back by one division, `digits / 10^e`, which IEEE 754 rounds correctly while digits and power are exact
//! (below 2^53, e <= 22): every decimal of up to 15 digits comes back, whatever the e, and no second factor is
//! needed. Negative exponents multiply. A float that does not come back bit by bit is patched.
//!
//! Decimals that arithmetic has gone over (`3 * 0.1`) are off by some units in the last place. Where most floats are
//! only near to a decimal, the distances in such units make a block of their own.

use crate::float::{Float, ordered, unordered};
use crate::int::{self, Memory, Sign};
use crate::reader::{Reader, write_nested, write_varint};
use crate::{DecodeError, Effort, tag};

/// Powers of ten that are exact in a double.
const POWERS: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20,
    1e21, 1e22,
];
/// Adding it rounds a double to an integer in the low bits of its mantissa: 1.5 * 2^52.
const ROUND: f64 = 6_755_399_441_055_744.0;
/// Up to here [`ROUND`] rounds right: 2^51.
const LARGEST: f64 = 2_251_799_813_685_248.0;
/// Floats that are looked at for an exponent.
const SAMPLE: usize = 256;
/// The largest distance that is not patched, and that of most floats, in units of the last place.
const FARTHEST: u64 = 127;
const NEAR: u64 = 16;
/// Digits of near decimals have fewer bits than this: else every float is near to one.
const NEAR_LARGEST: f64 = (1u64 << 43) as f64;

/// A power of ten to divide or multiply by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Scale {
    power: f64,
    negative: bool,
}

impl Scale {
    fn new(exponent: i8) -> Option<Self> {
        let power = *POWERS.get(usize::from(exponent.unsigned_abs()))?;
        Some(Scale { power, negative: exponent < 0 })
    }

    #[inline]
    fn digits(self, value: f64) -> f64 {
        if self.negative { value / self.power } else { value * self.power }
    }

    #[inline]
    fn value(self, digits: f64) -> f64 {
        if self.negative { digits * self.power } else { digits / self.power }
    }

    /// The digits of a float, and whether they give it back.
    #[inline]
    fn split<F: Float>(self, float: F) -> (u64, bool) {
        let scaled = self.digits(float.widen());
        let digits = (scaled + ROUND).to_bits().wrapping_sub(ROUND.to_bits());
        let exact = F::narrow(self.value(scaled + ROUND - ROUND)) == float;
        (digits, exact & (scaled.abs() <= LARGEST))
    }

    /// The digits of a float, and how far it is from what they give back.
    fn split_near<F: Float>(self, float: F) -> (u64, u64) {
        let digits = self.split(float).0;
        let distance = ordered(float).wrapping_sub(ordered(self.join::<F>(digits)));
        (digits, if self.digits(float.widen()).abs() <= LARGEST { distance } else { 1 << 63 })
    }

    #[inline]
    pub(crate) fn join<F: Float>(self, digits: u64) -> F {
        F::narrow(self.value(f64::from_bits(digits.wrapping_add(ROUND.to_bits())) - ROUND))
    }
}

/// Whether decimals are meant exactly.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Precision {
    Exact,
    Near,
}

/// The exponent that makes the digits of most floats short; none if too few are decimals at all.
pub(crate) fn choose_exponent<F: Float>(floats: &[F], precision: Precision) -> Option<i8> {
    let sample = || floats.iter().step_by(floats.len() / SAMPLE + 1);
    let mut counts = [0u32; 45];
    let mut none = 0;
    for (i, &float) in sample().enumerate() {
        match lowest_exponent(float, precision) {
            Some(exponent) => counts[(exponent + 22) as usize] += 1,
            None => none += 1,
        }
        if i == 31 && none == 32 {
            return None;
        }
    }
    let total: u32 = none + counts.iter().sum::<u32>();
    let mut best = (f64::INFINITY, 0);
    let mut outside = f64::from(total);
    for (exponent, &count) in (-22i8..).zip(&counts) {
        outside -= f64::from(count);
        let cost = outside * 64.0 + f64::from(total) * f64::from(exponent) * std::f64::consts::LOG2_10;
        if count > 0 && cost < best.0 {
            best = (cost, exponent);
        }
    }
    Some(best.1).filter(|_| none * 2 < total)
}

fn lowest_exponent<F: Float>(float: F, precision: Precision) -> Option<i8> {
    let exact = |&exponent: &i8| Scale::new(exponent).is_some_and(|scale| scale.split(float).1);
    let near = |&exponent: &i8| {
        Scale::new(exponent).is_some_and(|scale| {
            let short = scale.digits(float.widen()).abs() < NEAR_LARGEST;
            short && (scale.split_near(float).1 as i64).unsigned_abs() <= NEAR
        })
    };
    match precision {
        Precision::Near => (0..=15).find(near),
        Precision::Exact if float.widen().abs() < LARGEST => (0..=18).find(exact),
        Precision::Exact => (-22..0).rev().find(exact),
    }
}

/// Floats as digits, and what does not come back from them.
pub(crate) struct Decimals {
    exponent: i8,
    /// Two's complement; the digits before at patched rows.
    pub(crate) digits: Vec<u64>,
    /// How many rows lie between two patches.
    gaps: Vec<u64>,
    /// The bits of the patched floats.
    pub(crate) patches: Vec<u64>,
    /// How far each float is from its decimal, two's complement; none if they are exact.
    pub(crate) distances: Option<Vec<u64>>,
}

impl Decimals {
    pub(crate) fn new<F: Float>(floats: &[F], exponent: i8, precision: Precision) -> Self {
        let (digits, gaps, patches) = (vec![0; floats.len()], Vec::new(), Vec::new());
        let mut this = Decimals { exponent, digits, gaps, patches, distances: None };
        match (Scale::new(exponent), precision) {
            (Some(scale), Precision::Exact) => this.split(floats, scale),
            (Some(scale), Precision::Near) => this.split_near(floats, scale),
            (None, _) => {}
        }
        this
    }

    fn split<F: Float>(&mut self, floats: &[F], scale: Scale) {
        let (mut next, mut before) = (0, 0);
        for (i, (chunk, digits)) in floats.chunks(64).zip(self.digits.chunks_mut(64)).enumerate() {
            let mut exact = true;
            for (digits, &float) in digits.iter_mut().zip(chunk) {
                let split = scale.split(float);
                *digits = split.0;
                exact &= split.1;
            }
            if !exact {
                for (j, (digits, &float)) in digits.iter_mut().zip(chunk).enumerate() {
                    if scale.split(float).1 {
                        before = *digits;
                        continue;
                    }
                    self.gaps.push((i * 64 + j - next) as u64);
                    self.patches.push(float.bits());
                    next = i * 64 + j + 1;
                    *digits = before;
                }
            }
            before = digits.last().copied().unwrap_or(before);
        }
    }

    fn split_near<F: Float>(&mut self, floats: &[F], scale: Scale) {
        let mut distances = Vec::with_capacity(floats.len());
        let (mut next, mut before) = (0, 0);
        for (i, (digits, &float)) in self.digits.iter_mut().zip(floats).enumerate() {
            let (own, distance) = scale.split_near(float);
            if (distance as i64).unsigned_abs() <= FARTHEST {
                before = own;
                distances.push(distance);
            } else {
                self.gaps.push((i - next) as u64);
                self.patches.push(float.bits());
                next = i + 1;
                distances.push(0);
            }
            *digits = before;
        }
        self.distances = Some(distances);
    }

    pub(crate) fn write(&self, effort: Effort, memory: &mut Memory, out: &mut Vec<u8>) {
        out.push(if self.distances.is_some() { tag::FLOAT_NEAR } else { tag::FLOAT_DECIMAL });
        out.push(self.exponent as u8);
        write_varint(out, self.patches.len() as u64);
        if !self.patches.is_empty() {
            write_side(&self.gaps, Sign::Unsigned, effort, out);
            write_side(&self.patches, Sign::Unsigned, effort, out);
        }
        if let Some(distances) = &self.distances {
            write_side(distances, Sign::Signed, effort, out);
        }
        int::encode_alike(&self.digits, Sign::Signed, effort, memory, out);
    }
}

fn write_side(values: &[u64], sign: Sign, effort: Effort, out: &mut Vec<u8>) {
    let mut block = Vec::new();
    int::encode(values, sign, effort, &mut block);
    write_nested(out, &block);
}

/// What [`Decimals::write`] wrote, decoded but for the floats themselves.
pub(crate) struct Digits {
    pub(crate) scale: Scale,
    /// Two's complement.
    pub(crate) digits: Vec<u64>,
    gaps: Vec<u64>,
    patches: Vec<u64>,
    distances: Option<Vec<u64>>,
}

impl Digits {
    /// Reads behind the tag.
    pub(crate) fn read(reader: &mut Reader, rows: usize, precision: Precision) -> Result<Self, DecodeError> {
        let scale = Scale::new(reader.byte()? as i8).ok_or(DecodeError::Invalid("decimal exponent"))?;
        let count = reader.count(rows)?;
        let (mut gaps, mut patches) = (Vec::new(), Vec::new());
        if count > 0 {
            gaps = int::decode(reader.nested()?, count)?;
            patches = int::decode(reader.nested()?, count)?;
        }
        let distances = match precision {
            Precision::Exact => None,
            Precision::Near => Some(int::decode(reader.nested()?, rows)?),
        };
        let digits = int::decode(reader.rest(), rows)?;
        Ok(Digits { scale, digits, gaps, patches, distances })
    }

    /// Whether floats are only near to what their digits say.
    pub(crate) fn is_near(&self) -> bool {
        self.distances.is_some()
    }

    /// Whether there are floats without digits.
    pub(crate) fn is_patched(&self) -> bool {
        !self.patches.is_empty()
    }

    /// The rows without digits, ascending, with the bits of their floats.
    pub(crate) fn patches<F: Float>(&self) -> Result<Vec<(u32, u64)>, DecodeError> {
        let mut next = 0;
        let mut patches = Vec::with_capacity(self.patches.len());
        for (&gap, &patch) in self.gaps.iter().zip(&self.patches) {
            let row = usize::try_from(gap).ok().and_then(|gap| gap.checked_add(next));
            let row = row.filter(|&row| row < self.digits.len()).ok_or(DecodeError::Invalid("position of a patch"))?;
            let float = F::from_bits(patch).ok_or(DecodeError::Invalid("float of too many bits"))?;
            patches.push((row as u32, float.bits()));
            next = row + 1;
        }
        Ok(patches)
    }

    pub(crate) fn floats<F: Float>(self) -> Result<Vec<F>, DecodeError> {
        let patches = self.patches::<F>()?;
        let mut floats: Vec<F> = self.digits.into_iter().map(|digits| self.scale.join(digits)).collect();
        for (float, distance) in floats.iter_mut().zip(self.distances.into_iter().flatten()) {
            // Damaged distances may wrap around: what comes out then is wrong, but a float.
            *float = unordered(ordered(*float).wrapping_add(distance));
        }
        for (row, bits) in patches {
            floats[row as usize] = F::from_bits(bits).unwrap_or_default();
        }
        Ok(floats)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_of_fifteen_digits_come_back() {
        for (float, exponent) in [(21.37f64, 2), (-0.001, 3), (123_456_789.012_345, 6), (1e22, -7), (3.0, 0), (0.1, 1)]
        {
            assert_eq!(lowest_exponent(float.to_bits(), Precision::Exact), Some(exponent), "{float}");
        }
        for float in [-0.0f64, f64::NAN, f64::INFINITY, std::f64::consts::PI, 1e300, 5e-324] {
            assert_eq!(lowest_exponent(float.to_bits(), Precision::Exact), None, "{float}");
        }
        assert_eq!(lowest_exponent(21.37f32.to_bits(), Precision::Exact), Some(2));
    }

    #[test]
    fn one_outlier_does_not_choose_the_exponent() {
        let mut floats: Vec<u64> = (0..200).map(|i| (f64::from(i) / 4.0f64).to_bits()).collect();
        floats.push(0.123_456_789f64.to_bits());
        assert_eq!(choose_exponent(&floats, Precision::Exact), Some(2));
    }

    #[test]
    fn a_product_is_near_to_a_decimal() {
        assert_eq!(lowest_exponent((3.0f64 * 0.1).to_bits(), Precision::Exact), None);
        assert_eq!(lowest_exponent((3.0f64 * 0.1).to_bits(), Precision::Near), Some(1));
        assert_eq!(lowest_exponent((-0.0f64).to_bits(), Precision::Near), Some(0));
        assert_eq!(lowest_exponent(std::f64::consts::PI.to_bits(), Precision::Near), None);
        assert_eq!(lowest_exponent(f64::NAN.to_bits(), Precision::Near), None);
    }
}
