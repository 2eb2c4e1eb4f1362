//! Values that have a common factor: time stamps in whole minutes, floats with zeros at the end.

use super::{Level, Memory, Sign, decode_level, encode_level_alike};
use crate::bits::{unzigzag, zigzag};
use crate::reader::{Reader, write_varint};
use crate::{DecodeError, tag};

/// Writes the quotients. Does nothing and returns false when `factor` is no factor of all distances.
pub(crate) fn encode(
    values: &[u64],
    factor: u64,
    sign: Sign,
    level: Level,
    memory: &mut Memory,
    out: &mut Vec<u8>,
) -> bool {
    let offset = values.iter().copied().min_by_key(|&value| sign.key(value)).unwrap_or(0);
    let mut quotients = Vec::with_capacity(values.len());
    for &value in values {
        let distance = value.wrapping_sub(offset);
        let quotient = distance / factor;
        if quotient * factor != distance {
            return false;
        }
        quotients.push(quotient);
    }
    out.push(tag::INT_SCALED);
    write_varint(out, zigzag(offset));
    write_varint(out, factor);
    encode_level_alike(&quotients, Sign::Unsigned, level.inner(), memory, out);
    true
}

pub(crate) fn decode(reader: &mut Reader, out: &mut [u64], depth: u8) -> Result<(), DecodeError> {
    let offset = unzigzag(reader.varint()?);
    let factor = reader.varint()?;
    decode_level(reader.rest(), out, depth)?;
    out.iter_mut().for_each(|value| *value = value.wrapping_mul(factor).wrapping_add(offset));
    Ok(())
}
