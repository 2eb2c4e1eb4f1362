//! Rice codes: a quotient in unary and the remainder in bits. For blocks of a few hundred differences, for which an entropy code's
//! table would take more than it gives: a tenth of a bit a value above the entropy of a walk, and three bytes for the block.
//!
//! R. F. Rice, "Some practical universal noiseless coding techniques", JPL 1979. Quotients end at [`ESCAPE`], as in LOCO-I
//! (Weinberger, Seroussi and Sapiro 2000): what is far off stands as it is.

use crate::bits::{BitReader, BitWriter, bit_length, mask};
use crate::reader::Reader;
use crate::{DecodeError, tag};

/// So many zeros say that the value follows as it is.
const ESCAPE: u32 = 8;

/// The bits of a remainder with which values take the least, or nearly so, and what they take.
pub(crate) fn best_remainder(values: &[u64]) -> (u32, u64) {
    let width = width(values);
    // It is nearly as long as values are in the mean: of their lengths, which one far off hardly moves.
    let lengths: u32 = values.iter().map(|&value| bit_length(value)).sum();
    let mean = lengths / values.len().max(1) as u32;
    let tried = mean.saturating_sub(1)..=(mean + 1).min(63);
    let bits = tried.map(|remainder| (remainder, bits(values, remainder, width)));
    bits.min_by_key(|&(_, bits)| bits).unwrap_or((0, 0))
}

/// Bytes of a block whose values take so many bits.
pub(crate) fn block_bytes(bits: u64) -> usize {
    3 + bits.div_ceil(8) as usize
}

/// Appends a block.
pub(crate) fn write(values: &[u64], remainder: u32, out: &mut Vec<u8>) {
    let width = width(values);
    out.extend_from_slice(&[tag::INT_RICE, remainder as u8, width as u8]);
    let mut bits = BitWriter::with_capacity(values.len() * (remainder as usize + 2) / 8 + 8);
    let low = mask(remainder);
    for &value in values {
        let quotient = value >> remainder;
        if quotient < u64::from(ESCAPE) && remainder < 64 - ESCAPE {
            let quotient = quotient as u32;
            bits.write((value & low) << 1 << quotient | 1 << quotient, quotient + 1 + remainder);
        } else if quotient < u64::from(ESCAPE) {
            bits.write(1 << quotient, quotient as u32 + 1);
            bits.write(value & low, remainder);
        } else {
            bits.write(0, ESCAPE);
            bits.write(value, width);
        }
    }
    out.extend_from_slice(&bits.finish());
}

/// Bits of a value that stands as it is.
fn width(values: &[u64]) -> u32 {
    bit_length(values.iter().fold(0, |all, &value| all | value))
}

/// The bits of all values.
fn bits(values: &[u64], remainder: u32, width: u32) -> u64 {
    let escaped = u64::from(ESCAPE + width);
    let of = |value: u64| {
        let quotient = value >> remainder;
        if quotient < u64::from(ESCAPE) { quotient + 1 + u64::from(remainder) } else { escaped }
    };
    values.iter().map(|&value| of(value)).sum()
}

pub(crate) fn decode(reader: &mut Reader, out: &mut [u64]) -> Result<(), DecodeError> {
    let (remainder, width) = (u32::from(reader.byte()?), u32::from(reader.byte()?));
    if remainder > 63 || width > 64 {
        return Err(DecodeError::Invalid("width"));
    }
    let mut bits = BitReader::new(reader.rest());
    for value in out {
        *value = match bits.read_zeros(ESCAPE)? {
            ESCAPE => bits.read(width)?,
            quotient => u64::from(quotient) << remainder | bits.read(remainder)?,
        };
    }
    bits.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(block: &[u8], rows: usize) -> Result<Vec<u64>, DecodeError> {
        crate::int::decode(block, rows)
    }

    proptest! {
        #[test]
        fn values_come_back_and_no_bytes_panic(
            values in (0u32..65).prop_flat_map(|width| prop::collection::vec(
                prop_oneof![20 => any::<u64>().prop_map(move |v| v & mask(width)), 1 => any::<u64>()], 1..300)),
            other in 0u32..64,
            (at, flip) in (any::<prop::sample::Index>(), 1u8..),
        ) {
            let (best, bits) = best_remainder(&values);
            let mut block = Vec::new();
            write(&values, best, &mut block);
            prop_assert_eq!(block.len(), block_bytes(bits));
            prop_assert_eq!(read(&block, values.len()), Ok(values.clone()));
            // Whatever the blocks before had is right, if not short.
            block.clear();
            write(&values, other, &mut block);
            prop_assert_eq!(read(&block, values.len()), Ok(values.clone()));
            for len in 0..block.len() {
                prop_assert!(read(&block[..len], values.len()).is_err());
            }
            let at = at.index(block.len());
            block[at] ^= flip;
            let _ = read(&block, values.len());
            let _ = read(&block, values.len() + 9);
        }
    }

    #[test]
    fn steps_of_a_walk_take_little_more_than_their_entropy() {
        // Sums of four are nearly normal: a spread of 30.6 has an entropy of 6.98 bits.
        let mut state = 1u64;
        let mut noise = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((state >> 32) * 53) >> 32
        };
        let mut step = || (0..4).map(|_| noise()).sum::<u64>().wrapping_sub(104);
        let values: Vec<u64> = (0..4000).map(|_| crate::bits::zigzag(step())).collect();
        let bits = best_remainder(&values).1 as f64 / 4000.0;
        assert!((6.9..7.25).contains(&bits), "{bits} bits");
        // One that is far off costs itself.
        let with_jump: Vec<u64> = values.iter().copied().chain([1 << 60]).collect();
        assert!(best_remainder(&with_jump).1 < best_remainder(&values).1 + 200);
        // What hardly changes takes a bit.
        let calm: Vec<u64> = (0..100).map(|n| if n % 50 == 7 { 900 } else { 0 }).collect();
        assert_eq!(best_remainder(&calm), (0, 98 + 2 * (8 + 10)));
    }
}
