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
    Near,
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
    Rice,
}

/// The name of the codec that wrote a block; `"unknown"` if its tag is.
///
/// Side streams (nulls, patches, lengths) are not named. Nothing is checked but what lies on the way.
pub fn codec_name(bytes: &[u8]) -> &'static str {
    find_name(bytes).unwrap_or("unknown")
}

/// What was done to integers on the way.
#[derive(Clone, Copy)]
struct Steps {
    front: Front,
    deltas: usize,
    linear: bool,
}

fn find_name(bytes: &[u8]) -> Result<&'static str, DecodeError> {
    let mut reader = Reader::new(bytes);
    let mut steps = Steps { front: Front::None, deltas: 0, linear: false };
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
            tag::INT_RICE => End::Rice,
            step => {
                step_over(step, &mut reader, &mut steps)?;
                continue;
            }
        };
        return Ok(name(steps, end));
    }
}

/// Skips the fields of a transform up to its main stream.
fn step_over(tag: u8, reader: &mut Reader, steps: &mut Steps) -> Result<(), DecodeError> {
    match tag {
        tag::NULLS => drop(reader.nested()?),
        tag::FLOAT_SINGLE => {}
        tag::FLOAT_ORDERED => steps.front = Front::Ordered,
        tag::FLOAT_DECIMAL => {
            steps.front = Front::Decimal;
            reader.byte()?;
            if reader.varint()? > 0 {
                reader.nested()?;
                reader.nested()?;
            }
        }
        tag::FLOAT_NEAR => {
            steps.front = Front::Near;
            reader.byte()?;
            if reader.varint()? > 0 {
                reader.nested()?;
                reader.nested()?;
            }
            reader.nested()?;
        }
        tag::INT_DELTA => {
            steps.deltas += 1;
            reader.varint()?;
        }
        tag::INT_LINEAR => {
            steps.linear = true;
            reader.varint()?;
            reader.byte()?;
            for _ in 0..reader.byte()? {
                reader.varint()?;
            }
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
    ($end:expr; $($prefix:literal),+) => {
        match $end {
            End::Raw => concat!($($prefix),+, "raw"),
            End::Constant => concat!($($prefix),+, "constant"),
            End::Runs => concat!($($prefix),+, "runs"),
            End::Dictionary => concat!($($prefix),+, "dictionary"),
            End::Packed => concat!($($prefix),+, "packed"),
            End::Rans => concat!($($prefix),+, "rans"),
            End::Rice => concat!($($prefix),+, "rice"),
        }
    };
}

macro_rules! with_steps {
    ($prefix:literal, $steps:expr, $end:expr) => {
        match ($steps.deltas, $steps.linear) {
            (0, _) => with_end!($end; $prefix),
            (1, false) => with_end!($end; $prefix, "delta+"),
            (1, true) => with_end!($end; $prefix, "delta+linear+"),
            (_, false) => with_end!($end; $prefix, "delta-of-delta+"),
            (_, true) => with_end!($end; $prefix, "delta-of-delta+linear+"),
        }
    };
}

fn name(steps: Steps, end: End) -> &'static str {
    match steps.front {
        Front::None => with_steps!("", steps, end),
        Front::Decimal => with_steps!("alp+", steps, end),
        Front::Near => with_steps!("alp-near+", steps, end),
        Front::Ordered => with_steps!("bits+", steps, end),
    }
}
