//! Many numbers of one width, bit by bit.
//!
//! Value `i` of width `w` is the field of bits `i * w .. (i + 1) * w` of a little-endian bit stream. Eight values
//! are then `w` whole bytes, so the loops go eight at a time, compiled once for each width with all shifts constant.

use crate::bits::{field, load64, mask};

/// How many bytes `count` values take.
pub(crate) fn packed_len(count: usize, width: u32) -> usize {
    (count * width as usize).div_ceil(8)
}

/// Calls a function that is generic over the width (0..=64) for a width known at run time.
macro_rules! with_width {
    ($width:expr, $function:ident, ($($arg:expr),*)) => {
        with_width!(@ $width, $function, ($($arg),*),
            0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32
            33 34 35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63)
    };
    (@ $width:expr, $function:ident, $args:tt, $($w:literal)*) => {
        match $width {
            $($w => with_width!(! $function, $w, $args),)*
            _ => with_width!(! $function, 64, $args),
        }
    };
    (! $function:ident, $w:literal, ($($arg:expr),*)) => { $function::<$w>($($arg),*) };
}

/// Appends values that have no bits above `width` (at most 64).
pub(crate) fn pack(values: &[u64], width: u32, out: &mut Vec<u8>) {
    with_width!(width, pack_width, (values, out));
}

fn pack_width<const W: usize>(values: &[u64], out: &mut Vec<u8>) {
    out.reserve(packed_len(values.len(), W as u32) + 8);
    let groups = values.chunks_exact(8);
    let tail = groups.remainder();
    for group in groups {
        out.extend_from_slice(&pack_eight::<W>(group)[..W]);
    }
    if !tail.is_empty() {
        let mut group = [0; 8];
        group[..tail.len()].copy_from_slice(tail);
        out.extend_from_slice(&pack_eight::<W>(&group)[..packed_len(tail.len(), W as u32)]);
    }
}

#[inline(always)]
fn pack_eight<const W: usize>(group: &[u64]) -> [u8; 64] {
    let mut words = [0u64; 8];
    let mut i = 0;
    while i < 8 && W > 0 {
        let (word, shift) = (i * W / 64, i * W % 64);
        words[word] |= group[i] << shift;
        if shift + W > 64 {
            words[word + 1] |= group[i] >> (64 - shift);
        }
        i += 1;
    }
    let mut bytes = [0; 64];
    let mut word = 0;
    while word < 8 {
        bytes[word * 8..word * 8 + 8].copy_from_slice(&words[word].to_le_bytes());
        word += 1;
    }
    bytes
}

/// Fills `out` from values of `width` (at most 64) bits; `bytes` holds at least [`packed_len`] bytes.
///
/// Bytes behind those are looked at, but do not matter: a longer slice only makes the end faster.
pub(crate) fn unpack(bytes: &[u8], width: u32, out: &mut [u64]) {
    with_width!(width, unpack_width, (bytes, out));
}

fn unpack_width<const W: usize>(bytes: &[u8], out: &mut [u64]) {
    if W == 0 {
        return out.fill(0);
    }
    // The last load of a group starts below byte W and ends within the eight bytes behind it.
    let whole = (bytes.len().saturating_sub(9) / W).min(out.len() / 8);
    let (groups, tail) = out.split_at_mut(whole * 8);
    for (group, at) in groups.chunks_exact_mut(8).zip((0..).step_by(W)) {
        let window = &bytes[at..at + W + 9];
        for (i, value) in group.iter_mut().enumerate() {
            let (byte, shift) = (i * W / 8, i * W % 8);
            let mut word = load64(window, byte) >> shift;
            if shift + W > 64 {
                word |= u64::from(window[byte + 8]) << (64 - shift);
            }
            *value = word & mask(W as u32);
        }
    }
    for (value, i) in tail.iter_mut().zip(whole * 8..) {
        *value = field(bytes, i * W, W as u32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_width_and_length_comes_back() {
        for width in 0..=64 {
            for count in [0, 1, 7, 8, 9, 63, 64, 65, 300] {
                let values: Vec<u64> =
                    (1..=count as u64).map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15) & mask(width)).collect();
                let mut bytes = Vec::new();
                pack(&values, width, &mut bytes);
                assert_eq!(bytes.len(), packed_len(count, width));
                let mut back = vec![1; count];
                unpack(&bytes, width, &mut back);
                assert_eq!(back, values, "width {width}, {count} values");
            }
        }
    }
}
