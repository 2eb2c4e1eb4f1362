//! A block: the nulls, then the values of the other rows.

use crate::reader::{Reader, write_nested};
use crate::{Bitmap, Column, DecodeError, Kind, Pieces, Values, bytes, float, int, nulls, tag};
use float::FloatMemory;
use int::Memory;

/// How much time to spend on a smaller block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effort {
    /// What a flush or a bulk load uses: no entropy stage.
    Fast,
    /// A sealed segment: everything.
    Small,
}

/// The most rows that a block may have.
pub const MAX_ROWS: usize = 65536;

/// Writes the blocks of one column, one after the other.
///
/// How a block is written is tried out on a sample of it. Neighbours are mostly alike, so the next block is written in the
/// same way as long as that does about as well.
#[derive(Debug)]
pub struct Encoder {
    effort: Effort,
    ints: Memory,
    floats: FloatMemory,
    differences: int::Differences,
}

impl Encoder {
    /// An encoder that has seen no block yet.
    pub fn new(effort: Effort) -> Self {
        Encoder {
            effort,
            ints: Memory::default(),
            floats: FloatMemory::default(),
            differences: int::Differences::default(),
        }
    }

    /// Appends numbers as one block, as [`Encoder::encode`] would. They are differences to those of an earlier block: where
    /// most of them lie does not change from block to block, and is not looked for in each.
    ///
    /// Panics if they are more than [`MAX_ROWS`].
    pub fn encode_differences(&mut self, differences: &[u64], out: &mut Vec<u8>) {
        assert!(differences.len() <= MAX_ROWS, "{} rows in one block", differences.len());
        int::encode_differences(differences, self.effort, &mut self.differences, out);
    }

    /// Appends `column` as one block.
    ///
    /// Panics if it has more than [`MAX_ROWS`] rows, or fewer or more nulls than rows.
    pub fn encode(&mut self, column: &Column, out: &mut Vec<u8>) {
        let rows = column.rows();
        assert!(rows <= MAX_ROWS, "{rows} rows in one block");
        let Some(nulls) = column.nulls.as_ref().filter(|nulls| nulls.count() > 0) else {
            return self.encode_values(&column.values, out);
        };
        assert_eq!(nulls.len(), rows, "rows of the nulls and of the values");
        if nulls.count() == rows {
            return out.push(tag::ALL_NULL);
        }
        out.push(tag::NULLS);
        let mut bitmap = Vec::new();
        nulls::encode(nulls, self.effort, &mut bitmap);
        write_nested(out, &bitmap);
        self.encode_values(&nulls::take_out(&column.values, nulls), out);
    }

    fn encode_values(&mut self, values: &Values, out: &mut Vec<u8>) {
        match values {
            Values::Int(v) => int::encode_alike(v, int::Sign::Unsigned, self.effort, &mut self.ints, out),
            Values::F32(v) => float::encode(v, self.effort, &mut self.floats, out),
            Values::F64(v) => float::encode(v, self.effort, &mut self.floats, out),
            Values::Bytes(v) => bytes::encode(v, self.effort, out),
        }
    }
}

/// Appends `column` as one block; see [`Encoder::encode`].
pub fn encode(column: &Column, effort: Effort, out: &mut Vec<u8>) {
    Encoder::new(effort).encode(column, out);
}

/// Reads a block of `rows` rows back. All of `bytes` must be used.
pub fn decode(bytes: &[u8], kind: Kind, rows: usize) -> Result<Column, DecodeError> {
    if rows > MAX_ROWS {
        return Err(DecodeError::TooLarge);
    }
    match *bytes.first().ok_or(DecodeError::Truncated)? {
        tag::ALL_NULL => {
            let mut reader = Reader::new(bytes);
            reader.byte()?;
            reader.finish()?;
            match rows {
                0 => Err(DecodeError::Invalid("nulls without a null")),
                _ => Ok(with_nulls(Values::new(kind), Bitmap::full(rows))),
            }
        }
        tag::NULLS => {
            let (nulls, values) = split_nulls(bytes, rows)?;
            Ok(with_nulls(decode_values(values, kind, rows - nulls.count())?, nulls))
        }
        _ => Ok(Column { values: decode_values(bytes, kind, rows)?, nulls: None }),
    }
}

/// Reads a block of `rows` integers as straight lines; `None` if it has nulls, or is not made of few lines.
pub fn decode_pieces(bytes: &[u8], rows: usize) -> Result<Option<Pieces>, DecodeError> {
    if rows > MAX_ROWS {
        return Err(DecodeError::TooLarge);
    }
    match *bytes.first().ok_or(DecodeError::Truncated)? {
        tag::ALL_NULL | tag::NULLS => Ok(None),
        _ => int::pieces::decode(bytes, rows),
    }
}

/// The nulls of a block that begins with some, and the bytes of its other rows.
pub(crate) fn split_nulls(bytes: &[u8], rows: usize) -> Result<(Bitmap, &[u8]), DecodeError> {
    let mut reader = Reader::new(bytes);
    reader.byte()?;
    let nulls = nulls::decode(reader.nested()?, rows)?;
    match nulls.count() {
        0 => Err(DecodeError::Invalid("nulls without a null")),
        _ => Ok((nulls, reader.rest())),
    }
}

pub(crate) fn with_nulls(dense: Values, nulls: Bitmap) -> Column {
    Column { values: nulls::put_back(dense, &nulls), nulls: Some(nulls) }
}

pub(crate) fn decode_values(bytes: &[u8], kind: Kind, rows: usize) -> Result<Values, DecodeError> {
    Ok(match kind {
        Kind::Int => Values::Int(int::decode(bytes, rows)?),
        Kind::F32 => Values::F32(float::decode(bytes, rows)?),
        Kind::F64 => Values::F64(float::decode(bytes, rows)?),
        Kind::Bytes => Values::Bytes(bytes::decode(bytes, rows)?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Zigzagged steps of walks: as many as `rows`, mostly small, some far off.
    fn steps(seed: u64, rows: u64, spread: u32) -> Vec<u64> {
        let noise = |i: u64| (seed << 32 | i).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let step = |i: u64| (noise(i) >> 40 & noise(i ^ 1 << 20) >> 40) & ((1 << spread) - 1);
        (0..rows).map(|i| if i % 97 == 0 { noise(i) } else { step(i) }).collect()
    }

    #[test]
    fn differences_come_back_and_a_pivot_that_is_kept_costs_little() {
        let mut encoder = Encoder::new(Effort::Fast);
        let (mut all, mut alone) = (0, 0);
        for block in 0..40 {
            // Calm first, then restless, then blocks of all lengths.
            let spread = if block < 20 { 6 } else { 14 };
            let differences = steps(block, if block < 30 { 1000 } else { block * 7 % 300 }, spread);
            let mut bytes = Vec::new();
            encoder.encode_differences(&differences, &mut bytes);
            let column = Column { values: Values::Int(differences.clone()), nulls: None };
            assert_eq!(decode(&bytes, Kind::Int, differences.len()), Ok(column.clone()), "block {block}");
            all += bytes.len();
            bytes.clear();
            encode(&column, Effort::Fast, &mut bytes);
            alone += bytes.len();
        }
        assert!(all <= alone + alone / 33, "{all} bytes, {alone} with a pivot for each");
    }
}
