//! One field of a record: where it lies and how its bytes become a lane's value and back.
//!
//! This and `image.rs` hold all knowledge of MariaDB's record layout on the Rust side. Signed integers are biased
//! so that unsigned order is SQL order; big-endian packed types of up to 8 bytes are integers as they stand; CHAR
//! and BINARY lose the padding that the server put there and get it back.

use rrd_store::schema::Lane;

use crate::abi::{self, RrdField};
use crate::status::{Failure, Outcome};
use crate::weights;

/// How a value lies in a record.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Codec {
    /// Little-endian; `flip` is the sign bit of signed types, else 0.
    Integer {
        /// Bytes.
        width: u8,
        /// Bits to invert.
        flip: u64,
    },
    /// Big-endian, at most 8 bytes.
    BigEndian {
        /// Bytes.
        width: u8,
    },
    /// 4-byte float.
    Float,
    /// 8-byte float.
    Double,
    /// Padded to a fixed length.
    Fixed {
        /// Bytes in the record.
        length: u32,
        /// The pad character.
        pad: [u8; 4],
        /// Its bytes.
        pad_length: u8,
    },
    /// A length, then the bytes.
    Var {
        /// Bytes of the length.
        length_bytes: u8,
        /// Bytes at most.
        max: u32,
    },
    /// A length, then a pointer.
    Blob {
        /// Bytes of the length.
        length_bytes: u8,
    },
}

/// A value on its way.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'a> {
    /// Of an integer lane.
    Int(u64),
    /// Bits of a single-precision float.
    F32(u32),
    /// Bits of a double-precision float.
    F64(u64),
    /// Of a byte-string lane.
    Bytes(&'a [u8]),
}

impl Codec {
    /// The codec of a field.
    pub fn of(field: &RrdField<'_>) -> Outcome<Codec> {
        let width = field.pack_length;
        let codec = match field.kind {
            abi::RRD_KIND_INTEGER if (1..=8).contains(&width) => {
                let flip = if field.is_signed != 0 { 1 << (8 * width - 1) } else { 0 };
                Codec::Integer { width: width as u8, flip }
            }
            abi::RRD_KIND_BIG_ENDIAN if (1..=8).contains(&width) => Codec::BigEndian { width: width as u8 },
            // Longer ones (DECIMAL) compare as byte strings; zero bytes at the end change nothing.
            abi::RRD_KIND_BIG_ENDIAN => Codec::Fixed { length: width, pad: [0; 4], pad_length: 1 },
            abi::RRD_KIND_FLOAT => Codec::Float,
            abi::RRD_KIND_DOUBLE => Codec::Double,
            abi::RRD_KIND_FIXED_TEXT => Codec::Fixed {
                length: width,
                pad: field.collation.pad,
                pad_length: field.collation.pad_length.clamp(1, 4),
            },
            abi::RRD_KIND_VAR_TEXT if matches!(field.length_bytes, 1 | 2) => {
                let length_bytes = field.length_bytes;
                let max = width.checked_sub(length_bytes.into());
                let max = max.ok_or_else(|| Failure::internal("internal error: a text has no room for its length"))?;
                Codec::Var { length_bytes, max }
            }
            abi::RRD_KIND_BLOB if (1..=4).contains(&field.length_bytes) => {
                Codec::Blob { length_bytes: field.length_bytes }
            }
            kind => return Err(Failure::internal(format!("field kind {kind} of {width} bytes is not known"))),
        };
        Ok(codec)
    }

    /// The lane for it.
    pub fn lane(self) -> Lane {
        match self {
            Codec::Integer { width, .. } | Codec::BigEndian { width } => Lane::Int { width },
            Codec::Float => Lane::F32,
            Codec::Double => Lane::F64,
            Codec::Fixed { .. } | Codec::Var { .. } | Codec::Blob { .. } => Lane::Bytes,
        }
    }

    /// Lane value minus SQL value, of an integer.
    pub fn bias(self) -> u64 {
        match self {
            Codec::Integer { flip, .. } => flip,
            _ => 0,
        }
    }

    /// Whether the bytes of a row are those of the record.
    pub fn is_lane_as_it_stands(self) -> bool {
        matches!(self, Codec::Integer { flip: 0, .. } | Codec::Float | Codec::Double)
    }

    /// Bytes in a record.
    pub fn record_bytes(self) -> usize {
        match self {
            Codec::Integer { width, .. } | Codec::BigEndian { width } => usize::from(width),
            Codec::Float => 4,
            Codec::Double => 8,
            Codec::Fixed { length, .. } => length as usize,
            Codec::Var { length_bytes, max } => usize::from(length_bytes) + max as usize,
            Codec::Blob { length_bytes } => usize::from(length_bytes) + size_of::<usize>(),
        }
    }

    /// The value at the start of `at`, which is part of a record.
    ///
    /// # Safety
    /// For blobs: the pointer in the record is null or valid for its length, as the rule `records` of `abi.rs` says, and the value is
    /// not used after the call that has the record.
    #[inline]
    pub unsafe fn read(self, at: &[u8]) -> Value<'_> {
        let Codec::Blob { length_bytes } = self else { return self.read_in_place(at) };
        let length = read_le(at, length_bytes) as usize;
        let pointer = read_le(&at[usize::from(length_bytes)..], 8) as usize as *const u8;
        if length == 0 || pointer.is_null() {
            return Value::Bytes(&[]);
        }
        // SAFETY: the pointer is not null, and the length is of 4 bytes at most, so less than `isize::MAX`. By the rule `records` there
        // are as many bytes, which nobody changes before the call ends.
        Value::Bytes(unsafe { std::slice::from_raw_parts(pointer, length) })
    }

    /// The value at the start of `at`; of a blob, whose bytes are elsewhere, none.
    #[inline]
    pub fn read_in_place(self, at: &[u8]) -> Value<'_> {
        match self {
            Codec::Integer { width, flip } => Value::Int(read_le(at, width) ^ flip),
            Codec::BigEndian { width } => Value::Int(read_be(at, width)),
            Codec::Float => Value::F32(read_le(at, 4) as u32),
            Codec::Double => Value::F64(read_le(at, 8)),
            Codec::Fixed { length, pad, pad_length } => {
                Value::Bytes(weights::trim(&at[..length as usize], &pad[..usize::from(pad_length)]))
            }
            Codec::Var { length_bytes, max } => {
                let length = read_le(at, length_bytes).min(u64::from(max)) as usize;
                let start = usize::from(length_bytes);
                Value::Bytes(&at[start..start + length])
            }
            Codec::Blob { .. } => Value::Bytes(&[]),
        }
    }

    /// What is stored of a text: CHAR and BINARY lose their padding.
    pub fn stored(self, text: &[u8]) -> &[u8] {
        match self {
            Codec::Fixed { pad, pad_length, .. } => weights::trim(text, &pad[..usize::from(pad_length)]),
            _ => text,
        }
    }

    /// Writes an integer value.
    #[inline]
    pub fn write_int(self, at: &mut [u8], value: u64) {
        match self {
            Codec::Integer { width, flip } => write_le(at, value ^ flip, width),
            Codec::BigEndian { width } => {
                let width = usize::from(width);
                at[..width].copy_from_slice(&value.to_be_bytes()[8 - width..]);
            }
            Codec::Float => write_le(at, value, 4),
            Codec::Double => write_le(at, value, 8),
            _ => debug_assert!(false, "an integer for a byte string"),
        }
    }

    /// Writes a byte string. A blob's pointer is to `value` itself: it must live as long as the record is used.
    #[inline]
    pub fn write_bytes(self, at: &mut [u8], value: &[u8]) {
        match self {
            Codec::Fixed { length, pad, pad_length } => {
                let used = value.len().min(length as usize);
                at[..used].copy_from_slice(&value[..used]);
                fill(&mut at[used..length as usize], &pad[..usize::from(pad_length)]);
            }
            Codec::Var { length_bytes, max } => {
                let used = value.len().min(max as usize);
                write_le(at, used as u64, length_bytes);
                let start = usize::from(length_bytes);
                at[start..start + used].copy_from_slice(&value[..used]);
            }
            Codec::Blob { length_bytes } => {
                write_le(at, value.len() as u64, length_bytes);
                write_le(&mut at[usize::from(length_bytes)..], value.as_ptr() as u64, 8);
            }
            _ => debug_assert!(false, "a byte string for a number"),
        }
    }
}

fn fill(at: &mut [u8], pad: &[u8]) {
    match pad {
        [byte] => at.fill(*byte),
        _ => at.iter_mut().zip(pad.iter().cycle()).for_each(|(to, from)| *to = *from),
    }
}

/// A little-endian integer of 1 to 8 bytes. Usual widths are read at one go: bytes that are put together in memory first take
/// three times as long.
#[inline]
pub fn read_le(at: &[u8], width: u8) -> u64 {
    match width {
        8 => u64::from_le_bytes(first(at)),
        4 => u32::from_le_bytes(first(at)).into(),
        2 => u16::from_le_bytes(first(at)).into(),
        1 => at[0].into(),
        width => at[..usize::from(width)].iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte)),
    }
}

/// A big-endian integer of 1 to 8 bytes.
#[inline]
fn read_be(at: &[u8], width: u8) -> u64 {
    match width {
        8 => u64::from_be_bytes(first(at)),
        4 => u32::from_be_bytes(first(at)).into(),
        width => at[..usize::from(width)].iter().fold(0, |value, &byte| value << 8 | u64::from(byte)),
    }
}

#[inline]
fn first<const N: usize>(at: &[u8]) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(&at[..N]);
    bytes
}

#[inline]
fn write_le(at: &mut [u8], value: u64, width: u8) {
    match width {
        8 => at[..8].copy_from_slice(&value.to_le_bytes()),
        4 => at[..4].copy_from_slice(&(value as u32).to_le_bytes()),
        _ => at[..usize::from(width)].copy_from_slice(&value.to_le_bytes()[..usize::from(width)]),
    }
}

/// An integer whose order is that of the float with these bits; -0 and +0 are one.
pub fn ordered_f64(bits: u64) -> u64 {
    let bits = if bits << 1 == 0 { 0 } else { bits };
    if bits >> 63 == 0 { bits | 1 << 63 } else { !bits }
}

/// The same for single precision.
pub fn ordered_f32(bits: u32) -> u32 {
    let bits = if bits << 1 == 0 { 0 } else { bits };
    if bits >> 31 == 0 { bits | 1 << 31 } else { !bits }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn floats_keep_their_order(a: f64, b: f64) {
            prop_assume!(!a.is_nan() && !b.is_nan());
            let order = ordered_f64(a.to_bits()).cmp(&ordered_f64(b.to_bits()));
            prop_assert_eq!(Some(order), a.partial_cmp(&b));
        }

        #[test]
        fn single_floats_keep_their_order(a: f32, b: f32) {
            prop_assume!(!a.is_nan() && !b.is_nan());
            let order = ordered_f32(a.to_bits()).cmp(&ordered_f32(b.to_bits()));
            prop_assert_eq!(Some(order), a.partial_cmp(&b));
        }

        #[test]
        fn signed_integers_keep_their_order_at_every_width(a: i64, b: i64, width in 1u8..=8) {
            let shift = 64 - 8 * u32::from(width);
            let (a, b) = (a >> shift, b >> shift);
            let codec = Codec::Integer { width, flip: 1 << (8 * width - 1) };
            let lane = |v: i64| {
                let record = v.to_le_bytes();
                match codec.read_in_place(&record) {
                    Value::Int(lane) => lane,
                    other => panic!("{other:?}"),
                }
            };
            prop_assert_eq!(lane(a).cmp(&lane(b)), a.cmp(&b));
            let mut back = [0u8; 8];
            codec.write_int(&mut back, lane(a));
            prop_assert_eq!(&back[..usize::from(width)], &a.to_le_bytes()[..usize::from(width)]);
        }
    }

    #[test]
    fn zeros_of_both_signs_are_one_key() {
        assert_eq!(ordered_f64(0f64.to_bits()), ordered_f64((-0f64).to_bits()));
        assert_eq!(ordered_f32(0f32.to_bits()), ordered_f32((-0f32).to_bits()));
    }

    #[test]
    fn padding_is_cut_and_put_back() {
        let codec = Codec::Fixed { length: 6, pad: [0, b' ', 0, 0], pad_length: 2 };
        let record = [0, b'a', 0, b' ', 0, b' '];
        assert_eq!(codec.read_in_place(&record), Value::Bytes(&[0, b'a']));
        let mut back = [9u8; 6];
        codec.write_bytes(&mut back, &[0, b'a']);
        assert_eq!(back, record);
    }
}
