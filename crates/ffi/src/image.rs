//! Keys: from records and from the server's key images to the store's sort keys.
//!
//! A key image is the server's own form of a key or of its leading parts: for each part a null byte if the part
//! may be NULL, a 2-byte length if the value varies, and the value. A part's lane in the sort key is the column
//! itself where its order is the column's; else it is a hidden lane that holds a sort key of the value: collation
//! weights, an order-preserving image of a float, the leading characters of a prefix key, or the complement of any
//! of them for a descending part. A part of a secondary index that may be NULL has a flag before it.

use std::cell::RefCell;

use rrd_store::index::SortKeys;
use rrd_store::key;
use rrd_store::schema::Lane;

use crate::abi::{RrdCollation, RrdField, RrdKeyPart};
use crate::field::{Codec, Value, ordered_f32, ordered_f64, read_le};
use crate::status::{Failure, Outcome};
use crate::weights;

/// How a part of a key becomes a part of a sort key.
#[derive(Clone, Copy)]
pub enum Order {
    /// As the column's lane.
    Lane,
    /// By its sort key in the collation.
    Text {
        /// The collation.
        collation: RrdCollation,
        /// Characters that count, or 0 for all.
        max_chars: u32,
        /// CHAR: the text goes on with spaces up to `max_chars`.
        is_padded: bool,
    },
    /// By the value of a float.
    Float,
}

/// A part of a key.
#[derive(Clone, Copy)]
pub struct KeyPart {
    /// Position of the field in the definition.
    pub field: usize,
    /// How the field lies in a record.
    pub codec: Codec,
    /// Where it lies there.
    pub offset: usize,
    /// How it is ordered.
    pub order: Order,
    /// Whether greater values come first.
    pub is_descending: bool,
    image_length: usize,
    has_null_byte: bool,
    is_variable: bool,
}

/// Buffers that are used again and again.
#[derive(Default)]
pub struct Scratch {
    weights: weights::Scratch,
    /// A finished sort key of one part.
    part: Vec<u8>,
    /// Its complement.
    complement: Vec<u8>,
}

impl KeyPart {
    /// The part `part` over `field`.
    pub fn new(field: &RrdField<'_>, part: &RrdKeyPart) -> Outcome<KeyPart> {
        let codec = Codec::of(field)?;
        let is_prefix = part.is_prefix != 0;
        let is_padded = matches!(codec, Codec::Fixed { .. });
        let order = match codec {
            Codec::Float | Codec::Double => Order::Float,
            Codec::Fixed { .. } | Codec::Var { .. } | Codec::Blob { .. }
                if is_prefix || !field.collation.handle.is_null() =>
            {
                Order::Text {
                    collation: field.collation,
                    max_chars: if is_prefix || is_padded { part.max_chars } else { 0 },
                    is_padded,
                }
            }
            _ => Order::Lane,
        };
        Ok(KeyPart {
            field: part.field as usize,
            codec,
            offset: field.offset as usize,
            order,
            is_descending: part.is_descending != 0,
            image_length: part.length as usize,
            has_null_byte: part.has_null_byte != 0,
            is_variable: part.is_variable != 0,
        })
    }

    /// Whether its sort key is of all of a text.
    pub fn holds_whole_text(&self) -> bool {
        match (self.order, self.codec) {
            (Order::Text { .. }, Codec::Fixed { length, .. }) => self.image_length >= length as usize,
            (Order::Text { max_chars, .. }, _) => max_chars == 0,
            _ => false,
        }
    }

    /// The lane of its sort key, where that is not the value itself.
    pub fn sort_lane(&self) -> Option<Lane> {
        match self.order {
            Order::Lane if !self.is_descending => None,
            _ => Some(self.key_lane()),
        }
    }

    /// The kind of its part of sort keys.
    fn key_lane(&self) -> Lane {
        match (self.order, self.codec) {
            (Order::Lane, codec) => codec.lane(),
            (Order::Text { .. }, _) => Lane::Bytes,
            (Order::Float, Codec::Float) => Lane::Int { width: 4 },
            (Order::Float, _) => Lane::Int { width: 8 },
        }
    }

    /// The value of its part of sort keys.
    pub fn key_value<'a>(&self, value: Value<'a>, scratch: &'a mut Scratch) -> Value<'a> {
        let Scratch { weights, part, complement } = scratch;
        let value = match (self.order, value) {
            (Order::Float, Value::F32(bits)) => Value::Int(u64::from(ordered_f32(bits))),
            (Order::Float, Value::F64(bits)) => Value::Int(ordered_f64(bits)),
            (Order::Text { collation, max_chars, is_padded }, Value::Bytes(text)) => {
                part.clear();
                weights::push_sort_key(&collation, text, max_chars, is_padded, weights, part);
                Value::Bytes(part)
            }
            (_, value) => value,
        };
        match (self.is_descending, value) {
            (true, Value::Int(value)) => Value::Int(!value & mask(self.key_lane())),
            (true, Value::Bytes(bytes)) => {
                // The escaped form ends in a way that no other has as its beginning, so its complement does too.
                complement.clear();
                key::push_bytes(complement, bytes);
                complement.iter_mut().for_each(|byte| *byte = !*byte);
                Value::Bytes(complement)
            }
            (_, value) => value,
        }
    }

    /// Appends its part of the sort key for NULL: as the store has it in indexes, a flag and an empty value.
    fn push_null(&self, out: &mut Vec<u8>) {
        key::push_int(out, u64::from(self.is_descending), 1);
        match self.key_lane() {
            Lane::Int { width } => key::push_int(out, 0, width),
            _ => key::push_bytes(out, &[]),
        }
    }

    fn push(&self, value: Value<'_>, scratch: &mut Scratch, out: &mut Vec<u8>) {
        if self.has_null_byte {
            key::push_int(out, u64::from(!self.is_descending), 1);
        }
        let width = match self.key_lane() {
            Lane::Int { width } => width,
            _ => 8,
        };
        match self.key_value(value, scratch) {
            Value::Int(value) | Value::F64(value) => key::push_int(out, value, width),
            Value::F32(bits) => key::push_int(out, u64::from(bits), 4),
            Value::Bytes(bytes) => key::push_bytes(out, bytes),
        }
    }

    /// Cuts the part off the front of a key image; `None` for NULL.
    fn take<'a>(&self, image: &mut &'a [u8]) -> Outcome<Option<Value<'a>>> {
        let is_null = self.has_null_byte && take_bytes(image, 1)?[0] != 0;
        let length = match self.is_variable {
            true => Some(read_le(take_bytes(image, 2)?, 2) as usize),
            false => None,
        };
        let bytes = take_bytes(image, self.image_length)?;
        if is_null {
            return Ok(None);
        }
        Ok(Some(match (self.codec, length) {
            (_, Some(length)) => Value::Bytes(&bytes[..length.min(bytes.len())]),
            (Codec::Fixed { pad, pad_length, .. }, None) => {
                Value::Bytes(weights::trim(bytes, &pad[..usize::from(pad_length)]))
            }
            (codec, None) if bytes.len() >= codec.record_bytes() => codec.read_in_place(bytes),
            _ => return Err(short_image()),
        }))
    }
}

/// Appends the sort key (or its leading parts) for a key image; returns how many parts it had.
pub fn push_image(parts: &[KeyPart], mut image: &[u8], scratch: &mut Scratch, out: &mut Vec<u8>) -> Outcome<usize> {
    let mut count = 0;
    for part in parts {
        if image.is_empty() {
            break;
        }
        match part.take(&mut image)? {
            Some(value) => part.push(value, scratch, out),
            None => part.push_null(out),
        }
        count += 1;
    }
    Ok(count)
}

/// The sort keys of a secondary index.
pub struct IndexSortKeys {
    parts: Vec<KeyPart>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

impl IndexSortKeys {
    /// For an index with these parts.
    pub fn new(parts: Vec<KeyPart>) -> IndexSortKeys {
        IndexSortKeys { parts }
    }
}

impl SortKeys for IndexSortKeys {
    fn number(&self, part: usize, value: u64) -> u64 {
        let part = &self.parts[part];
        let value = match part.codec {
            Codec::Float => Value::F32(value as u32),
            Codec::Double => Value::F64(value),
            _ => Value::Int(value),
        };
        SCRATCH.with_borrow_mut(|scratch| match part.key_value(value, scratch) {
            Value::Int(key) | Value::F64(key) => key,
            Value::F32(key) => u64::from(key),
            Value::Bytes(_) => 0,
        })
    }

    fn push_bytes(&self, part: usize, value: &[u8], out: &mut Vec<u8>) {
        SCRATCH.with_borrow_mut(|scratch| match self.parts[part].key_value(Value::Bytes(value), scratch) {
            Value::Bytes(key) => out.extend_from_slice(key),
            _ => debug_assert!(false, "a number for a byte string"),
        });
    }
}

/// Appends the sort key of a record.
///
/// # Safety
/// The rule `records` of `abi.rs` for the blobs in key fields.
pub unsafe fn push_record(parts: &[KeyPart], record: &[u8], scratch: &mut Scratch, out: &mut Vec<u8>) {
    for part in parts {
        // SAFETY: the caller's record; the value becomes a sort key here.
        let value = unsafe { part.codec.read(&record[part.offset..]) };
        part.push(value, scratch, out);
    }
}

/// All bits of an integer lane.
pub fn mask(lane: Lane) -> u64 {
    match lane {
        Lane::Int { width: width @ 1..=7 } => (1 << (8 * u32::from(width))) - 1,
        _ => u64::MAX,
    }
}

fn take_bytes<'a>(image: &mut &'a [u8], count: usize) -> Outcome<&'a [u8]> {
    let (taken, rest) = image.split_at_checked(count).ok_or_else(short_image)?;
    *image = rest;
    Ok(taken)
}

fn short_image() -> Failure {
    Failure::internal("internal error: a key image is shorter than its parts")
}
