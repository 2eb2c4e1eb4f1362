//! Single bits: a writer and a reader of a bit stream, and loads of whole words from the middle of one.
//!
//! The stream is little-endian: bit `i` is bit `i % 8` of byte `i / 8`, a field's lowest bit comes first, and the
//! last byte is filled up with zeros. Small numbers of headers are written as Exp-Golomb codes (Elias gamma of
//! `value + 1`, Elias 1975): `n` zeros, a one, then the `n` bits below the leading one.

use crate::DecodeError;

/// Collects a bit stream.
#[derive(Default)]
pub(crate) struct BitWriter {
    bytes: Vec<u8>,
    pending: u64,
    used: u32,
}

impl BitWriter {
    pub(crate) fn with_capacity(bytes: usize) -> Self {
        BitWriter { bytes: Vec::with_capacity(bytes), pending: 0, used: 0 }
    }

    /// Appends the low `width` bits (at most 64) of `value`, which has no others.
    #[inline]
    pub(crate) fn write(&mut self, value: u64, width: u32) {
        self.pending |= value << self.used;
        let used = self.used + width;
        if used < 64 {
            self.used = used;
            return;
        }
        self.bytes.extend_from_slice(&self.pending.to_le_bytes());
        let written = 64 - self.used;
        self.pending = value.checked_shr(written).unwrap_or(0);
        self.used = used - 64;
    }

    /// Appends an Exp-Golomb code; `value` is not `u64::MAX`.
    pub(crate) fn write_golomb(&mut self, value: u64) {
        let number = value + 1;
        let below = number.ilog2();
        self.write(0, below);
        self.write(1, 1);
        self.write(number & !(1 << below), below);
    }

    /// The bytes so far, the last one filled up.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        let left = self.used.div_ceil(8) as usize;
        self.bytes.extend_from_slice(&self.pending.to_le_bytes()[..left]);
        self.bytes
    }
}

/// Walks over a bit stream.
pub(crate) struct BitReader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> BitReader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        BitReader { bytes, at: 0 }
    }

    pub(crate) fn read(&mut self, width: u32) -> Result<u64, DecodeError> {
        let end = self.at + width as usize;
        if end > self.bytes.len() * 8 {
            return Err(DecodeError::Truncated);
        }
        let value = field(self.bytes, self.at, width);
        self.at = end;
        Ok(value)
    }

    /// Counts zeros in front of a one, and goes behind it; or goes behind `most` zeros (at most 32).
    pub(crate) fn read_zeros(&mut self, most: u32) -> Result<u32, DecodeError> {
        let zeros = field(self.bytes, self.at, most).trailing_zeros().min(most);
        self.at += (zeros + 1).min(most) as usize;
        if self.at > self.bytes.len() * 8 { Err(DecodeError::Truncated) } else { Ok(zeros) }
    }

    pub(crate) fn read_golomb(&mut self) -> Result<u64, DecodeError> {
        let mut below = 0;
        while self.read(1)? == 0 {
            below += 1;
            if below > 63 {
                return Err(DecodeError::Invalid("Exp-Golomb code"));
            }
        }
        Ok((1 << below | self.read(below)?) - 1)
    }

    /// Only the filling of the last byte may be left.
    pub(crate) fn finish(self) -> Result<(), DecodeError> {
        if self.at.div_ceil(8) == self.bytes.len() { Ok(()) } else { Err(DecodeError::TrailingBytes) }
    }
}

/// Eight bytes from `at` on; zeros where the bytes end.
#[inline]
pub(crate) fn load64(bytes: &[u8], at: usize) -> u64 {
    match bytes.get(at..at.wrapping_add(8)).and_then(|b| b.try_into().ok()) {
        Some(word) => u64::from_le_bytes(word),
        None => load_tail(bytes, at),
    }
}

#[cold]
fn load_tail(bytes: &[u8], at: usize) -> u64 {
    let tail = bytes.get(at..).unwrap_or_default();
    tail.iter().take(8).rev().fold(0, |word, &byte| word << 8 | u64::from(byte))
}

/// The field of `width` bits (at most 64) from bit `at` on; zeros where the bytes end.
#[inline]
pub(crate) fn field(bytes: &[u8], at: usize, width: u32) -> u64 {
    let (byte, shift) = (at / 8, at % 8);
    let mut word = load64(bytes, byte) >> shift;
    if width as usize + shift > 64 {
        word |= u64::from(bytes.get(byte + 8).copied().unwrap_or(0)) << (64 - shift);
    }
    word & mask(width)
}

/// The low `width` bits (at most 64).
#[inline]
pub(crate) fn mask(width: u32) -> u64 {
    u64::MAX.checked_shr(64 - width).unwrap_or(0)
}

/// How many bits `value` needs.
#[inline]
pub(crate) fn bit_length(value: u64) -> u32 {
    64 - value.leading_zeros()
}

/// A signed difference as a number that is small where the difference is near zero.
#[inline]
pub(crate) fn zigzag(delta: u64) -> u64 {
    (delta << 1) ^ ((delta as i64 >> 63) as u64)
}

/// What [`zigzag`] was made of.
#[inline]
pub(crate) fn unzigzag(value: u64) -> u64 {
    (value >> 1) ^ (value & 1).wrapping_neg()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_every_width_come_back() {
        let mut writer = BitWriter::default();
        let fields: Vec<(u64, u32)> =
            (0..=64).chain((0..=64).rev()).map(|w| (0x9e37_79b9_97f4_a7c5 & mask(w), w)).collect();
        fields.iter().for_each(|&(value, width)| writer.write(value, width));
        let bytes = writer.finish();
        let mut reader = BitReader::new(&bytes);
        for (value, width) in fields {
            assert_eq!(reader.read(width), Ok(value), "width {width}");
        }
        assert_eq!(reader.finish(), Ok(()));
    }

    #[test]
    fn golomb_codes_come_back() {
        for value in [0, 1, 2, 3, 7, 100, 1 << 40, u64::MAX - 1] {
            let mut writer = BitWriter::default();
            writer.write_golomb(value);
            let bytes = writer.finish();
            assert_eq!(BitReader::new(&bytes).read_golomb(), Ok(value));
        }
        assert!(BitReader::new(&[0; 20]).read_golomb().is_err());
    }

    #[test]
    fn zigzag_keeps_every_difference() {
        for delta in [0, 1, 2, u64::MAX, u64::MAX - 1, 1 << 63, (1 << 63) - 1] {
            assert_eq!(unzigzag(zigzag(delta)), delta);
        }
        assert_eq!((zigzag(0), zigzag(u64::MAX), zigzag(1)), (0, 1, 2));
    }
}
