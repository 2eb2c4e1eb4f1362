//! Differences to the row before.
//!
//! Differences of differences are a delta block in a delta block. All arithmetic wraps, so that every sequence has
//! differences, and every difference is right.

use super::plan::Shape;
use super::{Level, Sign, decode_level, encode_end, encode_residuals, linear};
use crate::bits::{unzigzag, zigzag};
use crate::reader::{Reader, write_varint};
use crate::{DecodeError, Effort, tag};

/// Writes `values` as differences of the shape's order; order 0 is the values themselves.
pub(crate) fn encode(values: &[u64], shape: Shape, sign: Sign, level: Level, out: &mut Vec<u8>) {
    if shape.order == 0 || level.depth < 2 {
        return encode_end(values, sign, shape, level, out);
    }
    let mut residuals = write_delta(values, out);
    let mut level = level.inner();
    if shape.order > 1 {
        residuals = write_delta(&residuals, out);
        level = level.inner();
    }
    let linear = level.effort == Effort::Small && level.depth > 1 && shape.bits > 1.0 && residuals.len() > 2048;
    if linear && linear::encode(&residuals, shape, level, out) {
        return;
    }
    encode_residuals(&residuals, Sign::Signed, shape, level, out);
}

fn write_delta(values: &[u64], out: &mut Vec<u8>) -> Vec<u64> {
    out.push(tag::INT_DELTA);
    write_varint(out, zigzag(values[0]));
    differences(values)
}

fn differences(values: &[u64]) -> Vec<u64> {
    values.windows(2).map(|v| v[1].wrapping_sub(v[0])).collect()
}

pub(crate) fn decode(reader: &mut Reader, out: &mut [u64], depth: u8) -> Result<(), DecodeError> {
    let Some((first, rest)) = out.split_first_mut() else {
        return Err(DecodeError::Invalid("delta without rows"));
    };
    *first = unzigzag(reader.varint()?);
    decode_level(reader.rest(), rest, depth)?;
    let mut sum = *first;
    for value in rest {
        sum = sum.wrapping_add(*value);
        *value = sum;
    }
    Ok(())
}
