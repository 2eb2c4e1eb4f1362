//! Blocks of integers.

use crate::reader::{Reader, varint_len, write_varint};
use crate::{DecodeError, Effort, tag};

pub(crate) fn encode(values: &[u64], _effort: Effort, out: &mut Vec<u8>) {
    encode_at(values, 1, out);
}

fn encode_at(values: &[u64], depth: usize, out: &mut Vec<u8>) {
    let Some(&first) = values.first() else { return out.push(tag::INT_RAW) };
    if values.iter().all(|&v| v == first) {
        out.push(tag::INT_CONST);
        return write_varint(out, first);
    }
    let deltas: Vec<u64> = values.windows(2).map(|w| zigzag(w[1].wrapping_sub(w[0]))).collect();
    let (low, width) = range(values);
    if depth > 0 && range(&deltas).1 < width {
        out.push(tag::INT_DELTA);
        write_varint(out, first);
        return encode_at(&deltas, depth - 1, out);
    }
    if width == 64 {
        out.push(tag::INT_RAW);
        return values.iter().for_each(|v| out.extend_from_slice(&v.to_le_bytes()));
    }
    out.push(tag::INT_PACK);
    write_varint(out, low);
    out.push(width as u8);
    debug_assert!(varint_len(low) <= 10);
    let (mut acc, mut bits) = (0u128, 0);
    for &v in values {
        acc |= u128::from(v - low) << bits;
        bits += width;
        while bits >= 8 {
            out.push(acc as u8);
            acc >>= 8;
            bits -= 8;
        }
    }
    if bits > 0 {
        out.push(acc as u8);
    }
}

fn range(values: &[u64]) -> (u64, u32) {
    let low = values.iter().copied().min().unwrap_or(0);
    let high = values.iter().copied().max().unwrap_or(0);
    (low, 64 - (high - low).leading_zeros())
}

fn zigzag(delta: u64) -> u64 {
    (delta << 1) ^ ((delta as i64 >> 63) as u64)
}

fn unzigzag(value: u64) -> u64 {
    (value >> 1) ^ (value & 1).wrapping_neg()
}

pub(crate) fn decode(bytes: &[u8], rows: usize) -> Result<Vec<u64>, DecodeError> {
    decode_at(bytes, rows, 1)
}

fn decode_at(bytes: &[u8], rows: usize, depth: usize) -> Result<Vec<u64>, DecodeError> {
    let mut reader = Reader::new(bytes);
    let values = match reader.byte()? {
        tag::INT_RAW => {
            let raw = reader.take(rows * 8)?;
            raw.chunks_exact(8).map(|c| c.iter().rev().fold(0, |v, &b| v << 8 | u64::from(b))).collect()
        }
        tag::INT_CONST => vec![reader.varint()?; rows],
        tag::INT_DELTA if depth > 0 && rows > 0 => {
            let mut value = reader.varint()?;
            let deltas = decode_at(reader.rest(), rows - 1, depth - 1)?;
            let mut values = vec![value];
            values.extend(deltas.into_iter().map(|d| {
                value = value.wrapping_add(unzigzag(d));
                value
            }));
            values
        }
        tag::INT_PACK => {
            let low = reader.varint()?;
            let width = u32::from(reader.byte()?);
            if width > 63 {
                return Err(DecodeError::Invalid("width"));
            }
            let mut packed = reader.take((rows * width as usize).div_ceil(8))?.iter();
            let (mut acc, mut bits) = (0u128, 0);
            let mut values = Vec::with_capacity(rows);
            for _ in 0..rows {
                while bits < width {
                    acc |= u128::from(packed.next().copied().unwrap_or(0)) << bits;
                    bits += 8;
                }
                values.push(low.wrapping_add(acc as u64 & ((1 << width) - 1)));
                acc >>= width;
                bits -= width;
            }
            values
        }
        other => return Err(DecodeError::UnknownTag(other)),
    };
    reader.finish()?;
    Ok(values)
}
