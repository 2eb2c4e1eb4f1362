//! A block: the nulls, then the values of the other rows.

use crate::reader::{Reader, write_nested};
use crate::{Bitmap, Column, DecodeError, Kind, Values, bytes, int, tag};

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

/// Appends `column` as one block. Panics if it has more than [`MAX_ROWS`] rows.
pub fn encode(column: &Column, effort: Effort, out: &mut Vec<u8>) {
    let rows = column.rows();
    assert!(rows <= MAX_ROWS, "{rows} rows in one block");
    let Some(nulls) = column.nulls.as_ref().filter(|nulls| nulls.count() > 0) else {
        return encode_values(&column.values, effort, out);
    };
    if nulls.count() == rows {
        return out.push(tag::ALL_NULL);
    }
    out.push(tag::NULLS);
    let mut bits = Vec::new();
    int::encode(nulls.words(), effort, &mut bits);
    write_nested(out, &bits);
    encode_values(&without_nulls(&column.values, nulls), effort, out);
}

fn without_nulls(values: &Values, nulls: &Bitmap) -> Values {
    fn keep<T: Copy>(values: &[T], nulls: &Bitmap) -> Vec<T> {
        (0..values.len()).filter(|&i| !nulls.get(i)).map(|i| values[i]).collect()
    }
    match values {
        Values::Int(v) => Values::Int(keep(v, nulls)),
        Values::F32(v) => Values::F32(keep(v, nulls)),
        Values::F64(v) => Values::F64(keep(v, nulls)),
        Values::Bytes(v) => {
            let mut kept = crate::BytesColumn::new();
            (0..v.len()).filter(|&i| !nulls.get(i)).for_each(|i| kept.push(v.get(i)));
            Values::Bytes(kept)
        }
    }
}

fn with_nulls(dense: Values, nulls: &Bitmap) -> Values {
    fn spread<T: Copy + Default>(dense: &[T], nulls: &Bitmap) -> Vec<T> {
        let mut rest = dense.iter();
        (0..nulls.len()).map(|i| if nulls.get(i) { T::default() } else { rest.next().copied().unwrap_or_default() }).collect()
    }
    match dense {
        Values::Int(v) => Values::Int(spread(&v, nulls)),
        Values::F32(v) => Values::F32(spread(&v, nulls)),
        Values::F64(v) => Values::F64(spread(&v, nulls)),
        Values::Bytes(v) => {
            let mut all = crate::BytesColumn::new();
            let mut rest = v.iter();
            (0..nulls.len()).for_each(|i| all.push(if nulls.get(i) { &[] } else { rest.next().unwrap_or_default() }));
            Values::Bytes(all)
        }
    }
}

fn encode_values(values: &Values, effort: Effort, out: &mut Vec<u8>) {
    match values {
        Values::Int(v) | Values::F64(v) => int::encode(v, effort, out),
        Values::F32(v) => int::encode(&v.iter().map(|&x| u64::from(x)).collect::<Vec<_>>(), effort, out),
        Values::Bytes(v) => bytes::encode(v, effort, out),
    }
}

/// Reads a block of `rows` rows back. All of `bytes` must be used.
pub fn decode(bytes: &[u8], kind: Kind, rows: usize) -> Result<Column, DecodeError> {
    if rows > MAX_ROWS {
        return Err(DecodeError::TooLarge);
    }
    let mut reader = Reader::new(bytes);
    match *bytes.first().ok_or(DecodeError::Truncated)? {
        tag::ALL_NULL => {
            if bytes.len() > 1 {
                return Err(DecodeError::TrailingBytes);
            }
            let values = with_nulls(Values::new(kind), &Bitmap::full(rows));
            Ok(Column { values, nulls: Some(Bitmap::full(rows)).filter(|b| !b.is_empty()) })
        }
        tag::NULLS => {
            reader.byte()?;
            let words = int::decode(reader.nested()?, rows.div_ceil(64))?;
            let nulls = Bitmap::from_words(words, rows);
            let dense = decode_values(reader.rest(), kind, rows - nulls.count())?;
            Ok(Column { values: with_nulls(dense, &nulls), nulls: Some(nulls).filter(|b| b.count() > 0) })
        }
        _ => Ok(Column { values: decode_values(bytes, kind, rows)?, nulls: None }),
    }
}

fn decode_values(bytes: &[u8], kind: Kind, rows: usize) -> Result<Values, DecodeError> {
    Ok(match kind {
        Kind::Int => Values::Int(int::decode(bytes, rows)?),
        Kind::F64 => Values::F64(int::decode(bytes, rows)?),
        Kind::F32 => Values::F32(int::decode(bytes, rows)?.into_iter().map(|x| x as u32).collect()),
        Kind::Bytes => Values::Bytes(bytes::decode(bytes, rows)?),
    })
}

/// The name of the codec that wrote a block, for people to read.
pub fn codec_name(bytes: &[u8]) -> &'static str {
    match bytes.first() {
        Some(&tag::ALL_NULL) => "null",
        Some(&tag::NULLS) => "nulls",
        Some(&tag::INT_RAW | &tag::BYTES_RAW) => "raw",
        Some(&tag::INT_CONST) => "constant",
        Some(&tag::INT_DELTA) => "delta",
        Some(&tag::INT_PACK) => "packed",
        Some(&tag::BYTES_ZSTD) => "zstd",
        _ => "unknown",
    }
}
