//! Blocks of floats: as decimal fractions where they are such, else as integers of the same order.
//!
//! Both ways end in a block of integers, which finds trends, runs and repeated values. Seen as an integer of the
//! same order, a float keeps its sign, exponent and leading bits of the mantissa on top: differences of neighbours
//! are small where an XOR code (Gorilla, Pelkonen et al., VLDB 2015) would find leading zeros.

use crate::decimal::{self, Decimals, Digits, Precision};
use crate::int::{self, Memory, Sample, Sign};
use crate::reader::Reader;
use crate::{DecodeError, Effort, tag};

/// A float as its bits.
pub(crate) trait Float: Copy + Default + Eq {
    /// How many bytes it has.
    const BYTES: usize;
    /// As a double.
    fn widen(self) -> f64;
    /// The nearest one.
    fn narrow(value: f64) -> Self;
    /// The bits as a number.
    fn bits(self) -> u64;
    /// A float of some bits, unless there are too many.
    fn from_bits(bits: u64) -> Option<Self>;
}

impl Float for u32 {
    const BYTES: usize = 4;
    fn widen(self) -> f64 {
        f64::from(f32::from_bits(self))
    }
    fn narrow(value: f64) -> Self {
        (value as f32).to_bits()
    }
    fn bits(self) -> u64 {
        u64::from(self)
    }
    fn from_bits(bits: u64) -> Option<Self> {
        u32::try_from(bits).ok()
    }
}

impl Float for u64 {
    const BYTES: usize = 8;
    fn widen(self) -> f64 {
        f64::from_bits(self)
    }
    fn narrow(value: f64) -> Self {
        value.to_bits()
    }
    fn bits(self) -> u64 {
        self
    }
    fn from_bits(bits: u64) -> Option<Self> {
        Some(bits)
    }
}

/// A number that orders as the float does: negative floats turned around, positive ones above them.
pub(crate) fn ordered<F: Float>(float: F) -> u64 {
    let sign = 1 << (F::BYTES * 8 - 1);
    let bits = float.bits();
    if bits & sign == 0 { bits | sign } else { !bits & (sign | (sign - 1)) }
}

/// What [`ordered`] was made of, without a look at the bits above.
pub(crate) fn unordered<F: Float>(number: u64) -> F {
    let sign = 1 << (F::BYTES * 8 - 1);
    let bits = if number & sign != 0 { number ^ sign } else { !number };
    F::from_bits(bits & (sign | (sign - 1))).unwrap_or_default()
}

/// How the blocks before were written.
#[derive(Debug, Default)]
pub(crate) struct FloatMemory {
    /// As decimals.
    decimals: Option<(i8, Precision)>,
    numbers: Memory,
}

/// Appends a block of floats.
pub(crate) fn encode<F: Float>(floats: &[F], effort: Effort, memory: &mut FloatMemory, out: &mut Vec<u8>) {
    let start = out.len();
    if !floats.is_empty() {
        encode_smaller(floats, effort, memory, out);
    }
    if out.len() == start || out.len() - start > floats.len() * F::BYTES {
        out.truncate(start);
        out.push(tag::FLOAT_RAW);
        out.reserve(floats.len() * F::BYTES);
        floats.iter().for_each(|float| out.extend_from_slice(&float.bits().to_le_bytes()[..F::BYTES]));
    }
}

fn encode_smaller<F: Float>(floats: &[F], effort: Effort, memory: &mut FloatMemory, out: &mut Vec<u8>) {
    if let Some((exponent, Precision::Exact)) = memory.decimals {
        let decimals = Decimals::new(floats, exponent, Precision::Exact);
        if decimals.patches.len() * 50 <= floats.len() {
            return decimals.write(effort, &mut memory.numbers, out);
        }
        memory.decimals = None;
    }
    if F::BYTES == 8 && is_single(floats) && encode_single(floats, effort, out) {
        return;
    }
    if let Some((exponent, precision)) = choose_decimals(floats, effort) {
        memory.decimals = Some((exponent, precision)).filter(|_| effort == Effort::Fast);
        return Decimals::new(floats, exponent, precision).write(effort, &mut memory.numbers, out);
    }
    out.push(tag::FLOAT_ORDERED);
    let numbers: Vec<u64> = floats.iter().map(|&float| ordered(float)).collect();
    int::encode_alike(&numbers, Sign::Unsigned, effort, &mut memory.numbers, out);
}

/// How to write floats as decimals, if that is smaller by a sample.
fn choose_decimals<F: Float>(floats: &[F], effort: Effort) -> Option<(i8, Precision)> {
    let (sample, sampled) = Sample::new(floats.len()).gather(floats);
    let numbers: Vec<u64> = sampled.iter().map(|&float| ordered(float)).collect();
    let mut best = (None, f64::INFINITY);
    for precision in [Precision::Exact, Precision::Near] {
        let Some(exponent) = decimal::choose_exponent(&sampled, precision) else { continue };
        let decimals = Decimals::new(&sampled, exponent, precision);
        let few = decimals.patches.len() * 50 <= sampled.len();
        if few && precision == Precision::Exact {
            return Some((exponent, precision));
        }
        let patches = decimals.patches.len() as f64 / sampled.len() as f64;
        let distances = decimals.distances.iter();
        let bits = int::estimate(&sample, &decimals.digits, Sign::Signed, effort)
            + distances.map(|distances| int::estimate(&sample, distances, Sign::Signed, effort)).sum::<f64>()
            + patches * (F::BYTES * 8 + 10) as f64;
        if bits < best.1 {
            best = (Some((exponent, precision)), bits);
        }
    }
    best.0.filter(|_| best.1 <= int::estimate(&sample, &numbers, Sign::Unsigned, effort))
}

/// Whether a few doubles are single-precision floats, and not just short decimal or binary fractions.
fn is_single<F: Float>(floats: &[F]) -> bool {
    let step = floats.len() / 32 + 1;
    let single = |float: &F| F::narrow(f64::from(float.widen() as f32)) == *float;
    floats.iter().step_by(step).all(single) && floats.iter().step_by(step).any(|float| float.bits() << 28 >> 57 != 0)
}

/// Writes doubles as single-precision floats; does nothing and returns false if one of them is none.
fn encode_single<F: Float>(floats: &[F], effort: Effort, out: &mut Vec<u8>) -> bool {
    let mut singles = Vec::with_capacity(floats.len());
    for float in floats {
        let single = float.widen() as f32;
        if F::narrow(f64::from(single)) != *float {
            return false;
        }
        singles.push(single.to_bits());
    }
    out.push(tag::FLOAT_SINGLE);
    encode(&singles, effort, &mut FloatMemory::default(), out);
    true
}

/// Reads a block of `rows` floats; all of `bytes` must be used.
pub(crate) fn decode<F: Float>(bytes: &[u8], rows: usize) -> Result<Vec<F>, DecodeError> {
    let mut reader = Reader::new(bytes);
    match reader.byte()? {
        tag::FLOAT_RAW => decode_raw(reader.rest(), rows),
        tag::FLOAT_ORDERED => from_numbers(int::decode(reader.rest(), rows)?),
        tag::FLOAT_DECIMAL => Digits::read(&mut reader, rows, Precision::Exact)?.floats(),
        tag::FLOAT_NEAR => Digits::read(&mut reader, rows, Precision::Near)?.floats(),
        tag::FLOAT_SINGLE if F::BYTES == 8 => {
            let singles: Vec<u32> = decode(reader.rest(), rows)?;
            Ok(singles.into_iter().map(|single| F::narrow(single.widen())).collect())
        }
        other => Err(DecodeError::UnknownTag(other)),
    }
}

fn decode_raw<F: Float>(bytes: &[u8], rows: usize) -> Result<Vec<F>, DecodeError> {
    match bytes.len().cmp(&(rows * F::BYTES)) {
        std::cmp::Ordering::Less => return Err(DecodeError::Truncated),
        std::cmp::Ordering::Greater => return Err(DecodeError::TrailingBytes),
        std::cmp::Ordering::Equal => {}
    }
    let float = |bytes: &[u8]| F::from_bits(crate::bits::load64(bytes, 0)).unwrap_or_default();
    Ok(bytes.chunks_exact(F::BYTES).map(float).collect())
}

fn from_numbers<F: Float>(numbers: Vec<u64>) -> Result<Vec<F>, DecodeError> {
    const WRONG: DecodeError = DecodeError::Invalid("float of too many bits");
    if F::BYTES == 4 && numbers.iter().fold(0, |all, number| all | number) >> 32 != 0 {
        return Err(WRONG);
    }
    Ok(numbers.into_iter().map(unordered).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_is_kept_and_undone() {
        let floats = [f64::NEG_INFINITY, -1.5, -1e-300, -0.0, 0.0, 1e-300, 1.5, f64::INFINITY];
        assert!(floats.windows(2).all(|f| ordered(f[0].to_bits()) < ordered(f[1].to_bits())));
        for bits in floats.map(f64::to_bits).into_iter().chain([u64::MAX, 0x7ff0_0000_0000_0001]) {
            assert_eq!(unordered::<u64>(ordered(bits)), bits);
        }
        for bits in [0u32, 1, 0x8000_0000, 0x7f80_0001, 0xffff_ffff] {
            assert_eq!(unordered::<u32>(ordered(bits)), bits);
        }
    }
}
