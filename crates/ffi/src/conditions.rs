//! Conditions that the server hands down, of scans and of aggregate queries: from its fields and values to conditions of the
//! store, and to what they say of the clustering key.
//!
//! Values come as they lie in a record. What is not the same in the store's terms, byte by byte and number by number, is
//! refused as unsupported, and the server asks it itself.

use std::sync::Arc;

use rrd_store::aggregate::Condition;
use rrd_store::schema::Lane;
use rrd_store::segment::zone::{order_f32, order_f64};

use crate::abi::RrdText;
use crate::field::{Codec, Value};
use crate::guard::slice;
use crate::image::{self, KeyPart, Order, Scratch};
use crate::record::{Plan, RecordFormat};
use crate::status::{Failure, Outcome};

/// What a condition asks.
pub type RrdTest = u8;
/// Between `low` and `high`; a null pointer leaves an end open.
pub const RRD_TEST_RANGE: RrdTest = 0;
/// One of `values`.
pub const RRD_TEST_IN: RrdTest = 1;
/// A text equal, in the column's collation, to one of `texts`.
pub const RRD_TEST_TEXT: RrdTest = 2;
/// NULL.
pub const RRD_TEST_NULL: RrdTest = 3;
/// Nothing is: no row meets it; the field is ignored.
pub const RRD_TEST_NEVER: RrdTest = 4;

/// One of some parts at least: the next `count` conditions are these parts, with what belongs to them.
pub const RRD_TEST_ANY: RrdTest = 5;
/// All of some parts, as above.
pub const RRD_TEST_ALL: RrdTest = 6;

/// A condition on a field. For NULL none holds but `RRD_TEST_NULL`, negated or not.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct RrdCondition<'a> {
    /// The server's number of the field.
    pub field: u32,
    /// What is asked.
    pub test: RrdTest,
    /// It holds where it would not.
    pub is_negated: u8,
    /// The low end is not part of the range.
    pub excludes_low: u8,
    /// The high end is not part of the range.
    pub excludes_high: u8,
    /// A value as it lies in a record, or null.
    pub low: *const u8,
    /// A value as it lies in a record, or null.
    pub high: *const u8,
    /// Values as they lie in a record, one behind the other.
    pub values: *const u8,
    /// Texts in the column's character set.
    pub texts: *const RrdText<'a>,
    /// How many values or texts.
    pub count: usize,
}

/// Conditions of a walk over the table.
///
/// # Safety
/// The rule `arrays` of `abi.rs` for what the conditions point to.
pub unsafe fn conditions_of(format: &RecordFormat, raw: &[RrdCondition<'_>]) -> Outcome<Arc<[Condition]>> {
    // SAFETY: the caller keeps the same rule.
    Ok(unsafe { read_conditions(format, raw)? }.0.into())
}

/// Conditions, and what they say of the clustering key.
///
/// # Safety
/// The rule `arrays` of `abi.rs` for what the conditions point to.
pub unsafe fn read_conditions(
    format: &RecordFormat,
    mut raw: &[RrdCondition<'_>],
) -> Outcome<(Vec<Condition>, Vec<Condition>)> {
    let (mut conditions, mut of_key) = (Vec::new(), Vec::new());
    while let Some((first, rest)) = raw.split_first() {
        raw = rest;
        match first.test {
            RRD_TEST_NEVER => {
                conditions.push(Condition::Any(Vec::new()));
                of_key.push(Condition::Any(Vec::new()));
            }
            RRD_TEST_ANY | RRD_TEST_ALL => {
                if first.count > rest.len() {
                    return Err(Failure::internal("internal error: parts of a condition are missing"));
                }
                let (parts, rest) = rest.split_at(first.count);
                raw = rest;
                let made = if first.test == RRD_TEST_ANY { Condition::Any } else { Condition::All };
                // SAFETY: the parts are some of the caller's conditions.
                let (parts, parts_of_key) = unsafe { read_conditions(format, parts)? };
                conditions.push(made(parts));
                of_key.push(made(parts_of_key));
            }
            _ => {
                let at = place_of(format, first.field)?;
                // SAFETY: rule `arrays` for what this condition points to.
                let condition = unsafe { read_condition(format, at, first)? };
                let mut all = vec![condition.clone()];
                all.extend(in_key(format, at, &condition));
                conditions.push(condition);
                of_key.push(Condition::All(all));
            }
        }
    }
    Ok((conditions, of_key))
}

/// # Safety
/// The rule `arrays` for what the condition points to.
unsafe fn read_condition(format: &RecordFormat, at: usize, raw: &RrdCondition<'_>) -> Outcome<Condition> {
    let plan = &format.plans()[at];
    let (column, negated) = (usize::from(plan.column), raw.is_negated != 0);
    match raw.test {
        RRD_TEST_NULL => Ok(Condition::Null { column, negated }),
        // SAFETY: rule `arrays` for the ends of the range.
        RRD_TEST_RANGE => unsafe { read_range(plan, raw) },
        RRD_TEST_IN => {
            let width = plan.codec().record_bytes();
            let bytes = raw.count.checked_mul(width).ok_or_else(|| unsupported("a list that is too long"))?;
            // SAFETY: rule `arrays`: there are `count` values, as long as the field is in a record.
            let values = unsafe { slice(raw.values, bytes)? };
            read_in(plan, values.chunks_exact(width), negated)
        }
        RRD_TEST_TEXT => {
            // SAFETY: rule `arrays`: there are `count` texts.
            let texts = unsafe { slice(raw.texts, raw.count)? };
            let texts: Vec<&[u8]> = texts.iter().map(|text| text.bytes().unwrap_or_default()).collect();
            read_texts(format, at, &texts, negated)
        }
        test => Err(Failure::internal(format!("internal error: test {test} is not known"))),
    }
}

/// A number as the order of its lane has it.
fn in_order(codec: Codec, image: &[u8]) -> Outcome<u64> {
    if image.len() < codec.record_bytes() || codec.lane() == Lane::Bytes {
        return Err(unsupported("a range of texts or long DECIMALs"));
    }
    Ok(match codec.read_in_place(image) {
        Value::Int(value) => value,
        Value::F32(bits) => order_f32(bits),
        Value::F64(bits) => order_f64(bits),
        Value::Bytes(_) => 0,
    })
}

/// # Safety
/// The rule `arrays` for the ends, which are null or as long as the field is in a record.
unsafe fn read_range(plan: &Plan, raw: &RrdCondition<'_>) -> Outcome<Condition> {
    let codec = plan.codec();
    let (column, negated) = (usize::from(plan.column), raw.is_negated != 0);
    let end = |image: *const u8, open: u64, excluded: u8, step: fn(u64, u64) -> Option<u64>| -> Outcome<Option<u64>> {
        if image.is_null() {
            return Ok(Some(open));
        }
        // SAFETY: an end that is not null has as many bytes as the field has in a record.
        let value = in_order(codec, unsafe { slice(image, codec.record_bytes())? })?;
        Ok(step(value, u64::from(excluded != 0)))
    };
    let low = end(raw.low, 0, raw.excludes_low, u64::checked_add)?;
    let high = end(raw.high, greatest(codec.lane()), raw.excludes_high, u64::checked_sub)?;
    match (low, high) {
        (Some(low), Some(high)) if low <= high => Ok(Condition::Range { column, low, high, negated }),
        _ if negated => Ok(Condition::Null { column, negated: true }),
        _ => Ok(Condition::In { column, values: Vec::new(), negated: false }),
    }
}

/// The greatest number of a lane, in its order.
fn greatest(lane: Lane) -> u64 {
    match lane {
        Lane::F32 => u64::from(u32::MAX),
        lane => image::mask(lane),
    }
}

fn read_in<'a>(plan: &Plan, images: impl Iterator<Item = &'a [u8]>, negated: bool) -> Outcome<Condition> {
    let column = usize::from(plan.column);
    match plan.codec().lane() {
        Lane::Int { .. } => {
            let mut values = images.map(|image| in_order(plan.codec(), image)).collect::<Outcome<Vec<u64>>>()?;
            values.sort_unstable();
            values.dedup();
            Ok(Condition::In { column, values, negated })
        }
        Lane::Bytes if matches!(plan.codec(), Codec::Fixed { .. }) => {
            let bytes = images.filter_map(|image| match plan.codec().read_in_place(image) {
                Value::Bytes(bytes) => Some(bytes.to_vec()),
                _ => None,
            });
            Ok(bytes_in(column, bytes.collect(), negated))
        }
        _ => Err(unsupported("a list of floats")),
    }
}

fn bytes_in(column: usize, mut values: Vec<Vec<u8>>, negated: bool) -> Condition {
    values.sort_unstable();
    values.dedup();
    Condition::Bytes { column, values, negated }
}

/// Texts are equal byte by byte, or in the sort key of a part of the clustering key.
fn read_texts(format: &RecordFormat, at: usize, texts: &[&[u8]], negated: bool) -> Outcome<Condition> {
    let plan = &format.plans()[at];
    if format.collation(at).handle.is_null() {
        let stored = texts.iter().map(|text| plan.codec().stored(text).to_vec());
        return Ok(bytes_in(usize::from(plan.column), stored.collect(), negated));
    }
    let whole = |(_, part): &&(u16, KeyPart)| part.field == at && part.holds_whole_text() && !part.is_descending;
    let Some((column, part)) = format.hidden().iter().find(whole) else {
        return Err(unsupported("a comparison of texts"));
    };
    let mut scratch = Scratch::default();
    let mut keys = Vec::new();
    for text in texts {
        match part.key_value(Value::Bytes(plan.codec().stored(text)), &mut scratch) {
            Value::Bytes(key) => keys.push(key.to_vec()),
            _ => return Err(unsupported("a comparison of texts")),
        }
    }
    Ok(bytes_in(usize::from(*column), keys, negated))
}

/// What a condition says about the sort key of its column, where that is a hidden lane: of descending parts and floats.
fn in_key(format: &RecordFormat, at: usize, condition: &Condition) -> Option<Condition> {
    let (column, part) = format.hidden().iter().find(|(_, part)| part.field == at)?;
    let column = usize::from(*column);
    let all = image::mask(format.layout().schema().columns[column].lane);
    let turned = |value: u64| if part.is_descending { !value & all } else { value };
    match condition {
        Condition::Range { low, high, negated: false, .. } if !matches!(part.order, Order::Text { .. }) => {
            let (low, high) = (turned(*low), turned(*high));
            Some(Condition::Range { column, low: low.min(high), high: low.max(high), negated: false })
        }
        Condition::In { values, negated: false, .. } if !matches!(part.order, Order::Text { .. }) => {
            let mut values: Vec<u64> = values.iter().map(|&value| turned(value)).collect();
            values.sort_unstable();
            Some(Condition::In { column, values, negated: false })
        }
        _ => None,
    }
}

/// Something that the other side has to do itself.
pub fn unsupported(what: &str) -> Failure {
    Failure::unsupported(format!("{what} that the engine leaves to the server"))
}

/// The place of a field's column among the format's plans.
pub fn place_of(format: &RecordFormat, number: u32) -> Outcome<usize> {
    let place = format.plans().iter().position(|plan| plan.number == number);
    place.ok_or_else(|| unsupported("a column that is not stored"))
}
