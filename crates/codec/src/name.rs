//! Names of codecs, for people to read in `INFORMATION_SCHEMA`.
//!
//! A name is read off the tags on the way along the main streams of nested blocks: `alp+delta+rans`.

use crate::reader::Reader;
use crate::{DecodeError, tag};

/// How floats became integers.
#[derive(Clone, Copy)]
enum Front {
    None,
    Decimal,
    Ordered,
}

/// How integers are written in the end.
#[derive(Clone, Copy)]
enum End {
    Raw,
    Constant,
    Runs,
    Dictionary,
    Packed,
    Rans,
}

/// The name of the codec that wrote a block; `"unknown"` if its tag is.
///
/// Side streams (nulls, patches, lengths) are not named. Nothing is checked but what lies on the way.
pub fn codec_name(bytes: &[u8]) -> &'static str {
    find_name(bytes).unwrap_or("unknown")
}

fn find_name(bytes: &[u8]) -> Result<&'static str, DecodeError> {
    let mut reader = Reader::new(bytes);
    let mut front = Front::None;
    let mut deltas = 0;
    loop {
        let end = match reader.byte()? {
            tag::ALL_NULL => return Ok("null"),
            tag::BYTES_RAW => return Ok("raw"),
            tag::BYTES_ZSTD => return Ok("zstd"),
            tag::BYTES_CONSTANT => return Ok("constant"),
            tag::BYTES_DICTIONARY => return Ok("dictionary"),
            tag::BYTES_WORDS => return Ok("words"),
            tag::FLOAT_RAW | tag::INT_RAW => End::Raw,
            tag::INT_CONSTANT => End::Constant,
            tag::INT_RUNS => End::Runs,
            tag::INT_DICTIONARY => End::Dictionary,
            tag::INT_PACKED => End::Packed,
            tag::INT_RANS => End::Rans,
            step => {
                step_over(step, &mut reader, &mut front, &mut deltas)?;
                continue;
            }
        };
        return Ok(name(front, deltas, end));
    }
}

/// Skips the fields of a transform up to its main stream.
fn step_over(tag: u8, reader: &mut Reader, front: &mut Front, deltas: &mut usize) -> Result<(), DecodeError> {
    match tag {
        tag::NULLS => drop(reader.nested()?),
        tag::FLOAT_SINGLE => {}
        tag::FLOAT_ORDERED => *front = Front::Ordered,
        tag::FLOAT_DECIMAL => {
            *front = Front::Decimal;
            reader.byte()?;
            if reader.varint()? > 0 {
                reader.nested()?;
                reader.nested()?;
            }
        }
        tag::INT_DELTA => {
            *deltas += 1;
            reader.varint()?;
        }
        tag::INT_SCALED => {
            reader.varint()?;
            reader.varint()?;
        }
        other => return Err(DecodeError::UnknownTag(other)),
    }
    Ok(())
}

macro_rules! with_end {
    ($prefix:literal, $end:expr) => {
        match $end {
            End::Raw => concat!($prefix, "raw"),
            End::Constant => concat!($prefix, "constant"),
            End::Runs => concat!($prefix, "runs"),
            End::Dictionary => concat!($prefix, "dictionary"),
            End::Packed => concat!($prefix, "packed"),
            End::Rans => concat!($prefix, "rans"),
        }
    };
}

fn name(front: Front, deltas: usize, end: End) -> &'static str {
    match (front, deltas) {
        (Front::None, 0) => with_end!("", end),
        (Front::None, 1) => with_end!("delta+", end),
        (Front::None, _) => with_end!("delta-of-delta+", end),
        (Front::Decimal, 0) => with_end!("alp+", end),
        (Front::Decimal, 1) => with_end!("alp+delta+", end),
        (Front::Decimal, _) => with_end!("alp+delta-of-delta+", end),
        (Front::Ordered, 0) => with_end!("bits+", end),
        (Front::Ordered, 1) => with_end!("bits+delta+", end),
        (Front::Ordered, _) => with_end!("bits+delta-of-delta+", end),
    }
}
