//! Aggregate queries that the server hands down: from its fields and values to a query of the store, and its answer
//! back into records.
//!
//! The handler names fields by the server's numbers and gives values as they lie in a record; what a column's lane is,
//! which key ranges conditions leave and how a collation groups its texts is settled here. What cannot be answered
//! exactly is refused as unsupported before anything runs, and the server does it itself.
//!
//! The answer is `aggregate_answer.rs`.

use std::sync::Arc;

use rrd_store::Table;
use rrd_store::aggregate::{Aggregate, Condition, Group, Query};
use rrd_store::limits;
use rrd_store::schema::Lane;
use rrd_store::segment::zone::{order_f32, order_f64};

use crate::abi::{RrdCollation, RrdText};
use crate::aggregate_answer::{Aggregation, Shape};
use crate::field::{Codec, Value};
use crate::guard::slice;
use crate::image::{self, KeyPart, Order, Scratch};
use crate::key_range::{KeyRange, key_ranges};
use crate::record::{Plan, RecordFormat};
use crate::session::Session;
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
pub struct RrdCondition {
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
    pub texts: *const RrdText,
    /// How many values or texts.
    pub count: usize,
}

/// How a field groups rows.
pub type RrdGroupKind = u8;
/// By its value.
pub const RRD_GROUP_VALUE: RrdGroupKind = 0;
/// By spans of an integer, a TIMESTAMP or a packed date, rounded down.
pub const RRD_GROUP_BUCKET: RrdGroupKind = 1;
/// By spans of an integer, rounded towards zero: that of `origin` reaches to both sides.
pub const RRD_GROUP_TOWARDS_ZERO: RrdGroupKind = 2;

/// What rows are grouped by.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct RrdGroup {
    /// The server's number of the field.
    pub field: u32,
    /// How.
    pub kind: RrdGroupKind,
    /// Groups that differ in this alone may be one: `rrd_aggregate_put_together` is told which.
    pub is_span: u8,
    /// Keeps the layout the same everywhere.
    pub reserved: [u8; 2],
    /// Where some bucket begins: an integer as SQL has it; of dates what their packed bytes are as a number.
    pub origin: i64,
    /// How many values a bucket has.
    pub width: u64,
}

/// What is wanted of a group.
pub type RrdAggregateKind = u8;
/// COUNT(*); the field is ignored.
pub const RRD_AGGREGATE_ROWS: RrdAggregateKind = 0;
/// COUNT of a field.
pub const RRD_AGGREGATE_COUNT: RrdAggregateKind = 1;
/// SUM, and for AVG how many values were summed.
pub const RRD_AGGREGATE_SUM: RrdAggregateKind = 2;
/// MIN.
pub const RRD_AGGREGATE_MIN: RrdAggregateKind = 3;
/// MAX.
pub const RRD_AGGREGATE_MAX: RrdAggregateKind = 4;
/// The value in the group's first row in key order.
pub const RRD_AGGREGATE_FIRST: RrdAggregateKind = 5;

/// An aggregate.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct RrdAggregate {
    /// The server's number of the field.
    pub field: u32,
    /// Which.
    pub kind: RrdAggregateKind,
    /// Keeps the layout the same everywhere.
    pub reserved: [u8; 3],
}

/// What the rows of the answer are sorted by; NULLs are the least.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct RrdOrder {
    /// A place among the groups, or among the aggregates.
    pub place: u32,
    /// Which of both.
    pub is_aggregate: u8,
    /// The largest first.
    pub is_descending: u8,
    /// Keeps the layout the same everywhere.
    pub reserved: [u8; 2],
}

/// A query over one table.
#[repr(C)]
pub struct RrdAggregateQuery {
    /// All must hold.
    pub conditions: *const RrdCondition,
    /// How many.
    pub condition_count: usize,
    /// Without, all rows are one group, which there is even of no rows.
    pub groups: *const RrdGroup,
    /// How many.
    pub group_count: usize,
    /// What is wanted of each.
    pub aggregates: *const RrdAggregate,
    /// How many.
    pub aggregate_count: usize,
    /// Without, groups come as a walk in key order meets them.
    pub orders: *const RrdOrder,
    /// How many.
    pub order_count: usize,
    /// Threads at most; 0 is as many as there are cores.
    pub threads: usize,
}

/// An aggregate's value.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct RrdAggregateValue {
    /// Rows or values that were counted or summed.
    pub count: u64,
    /// Sum of floats.
    pub number: f64,
    /// It is NULL.
    pub is_null: u8,
    /// Digits of the sum behind the point.
    pub scale: u8,
    /// Bytes of `decimal`; 0 if the sum is a float.
    pub decimal_bytes: u8,
    /// Keeps the layout the same everywhere.
    pub reserved: [u8; 5],
    /// An exact sum as a packed DECIMAL of 65 digits.
    pub decimal: [u8; 32],
}

const _: () = {
    assert!(size_of::<RrdCondition>() == 48);
    assert!(size_of::<RrdGroup>() == 24);
    assert!(size_of::<RrdAggregate>() == 8);
    assert!(size_of::<RrdOrder>() == 8);
    assert!(size_of::<RrdAggregateQuery>() == 72);
    assert!(size_of::<RrdAggregateValue>() == 56);
};

/// Rows that are grouped by their whole key at most.
const MOST_UNIQUE_GROUPS: u64 = 1 << 20;

/// Columns that the store groups by at most.
const MOST_GROUPS: usize = 64;

/// A query, read and checked.
pub struct AggregateQuery {
    format: Arc<RecordFormat>,
    query: Query,
    ranges: Vec<KeyRange>,
    shape: Shape,
}

impl AggregateQuery {
    /// Reads the other side's query; unsupported if it cannot be answered exactly.
    ///
    /// # Safety
    /// All pointers in it are valid as counts, field lengths and text lengths say.
    pub unsafe fn read(format: &Arc<RecordFormat>, raw: &RrdAggregateQuery) -> Outcome<AggregateQuery> {
        let mut query = Query { threads: threads(raw.threads), ..Query::default() };
        // SAFETY: promised by the caller, here and below.
        let (conditions, of_key) = unsafe { read_conditions(format, slice(raw.conditions, raw.condition_count)?)? };
        query.conditions = conditions;
        let ranges = key_ranges(&key_lanes(format), &of_key);
        if raw.group_count > MOST_GROUPS {
            return Err(unsupported("more than 64 groups"));
        }
        let mut shape = Shape::default();
        for (place, group) in unsafe { slice(raw.groups, raw.group_count)? }.iter().enumerate() {
            let at = place_of(format, group.field)?;
            query.groups.push(read_group(&format.plans()[at], group)?);
            if group.is_span != 0 {
                shape.spans.push(place);
            } else {
                shape.texts.extend(collation_to_merge(format, at)?.map(|collation| (place, collation)));
            }
        }
        for aggregate in unsafe { slice(raw.aggregates, raw.aggregate_count)? } {
            query.aggregates.push(read_aggregate(format, aggregate)?);
        }
        shape.order = unsafe { slice(raw.orders, raw.order_count)? }.to_vec();
        if !shape.order.iter().all(|order| is_sortable(format, &query, order)) {
            return Err(unsupported("an order"));
        }
        (query.low, query.high) = match (ranges.first(), ranges.last()) {
            (Some((low, _)), Some((_, high))) => (Some(low.clone()), high.clone()),
            // No key is less than this one.
            _ => (None, Some(Vec::new())),
        };
        Ok(AggregateQuery { format: format.clone(), query, ranges, shape })
    }

    /// Whether there may be about as many groups as rows, and more than are worth keeping in memory at once.
    pub fn has_too_many_groups(&self, rows: u64) -> bool {
        let first = self.query.groups.first().map(Group::column);
        let is_of_one_column = self.query.groups.iter().all(|group| Some(group.column()) == first);
        if !self.shape.spans.is_empty() && !is_of_one_column && rows > limits::AGGREGATE_GROUPS as u64 {
            return true;
        }
        let is_grouped = |column: &u16| self.query.groups.contains(&Group::Column(usize::from(*column)));
        rows > MOST_UNIQUE_GROUPS && self.format.layout().schema().key.iter().all(is_grouped)
    }

    /// Roughly how many rows lie in the key ranges.
    pub fn estimate_rows(&self, table: &Table) -> u64 {
        self.ranges.iter().map(|(low, high)| table.estimate_rows(Some(low), high.as_deref())).sum()
    }

    /// Runs it.
    pub fn run(self, table: &Arc<Table>, session: &mut Session) -> Outcome<Aggregation> {
        let answer = session.aggregate(table, &self.query)?;
        Ok(Aggregation::new(self.format, self.query, &answer, self.shape))
    }

    /// Runs it over another partition, and adds what comes of it to `to`.
    pub fn run_also(self, table: &Arc<Table>, session: &mut Session, to: &mut Aggregation) -> Outcome<()> {
        to.add(&session.aggregate(table, &self.query)?);
        Ok(())
    }
}

/// The columns of the clustering key.
fn key_lanes(format: &RecordFormat) -> Vec<(usize, Lane)> {
    let schema = format.layout().schema();
    schema.key.iter().map(|&column| (usize::from(column), schema.columns[usize::from(column)].lane)).collect()
}

fn threads(asked: usize) -> usize {
    match asked {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        asked => asked,
    }
}

fn unsupported(what: &str) -> Failure {
    Failure::unsupported(format!("{what} that the engine leaves to the server"))
}

/// The place of a field's column among the format's plans.
fn place_of(format: &RecordFormat, number: u32) -> Outcome<usize> {
    let place = format.plans().iter().position(|plan| plan.number == number);
    place.ok_or_else(|| unsupported("a column that is not stored"))
}

// -- Conditions ----------------------------------------------------------------------------------------------

/// Conditions of a walk over the table.
///
/// # Safety
/// As for [`AggregateQuery::read`].
pub unsafe fn conditions_of(format: &RecordFormat, raw: &[RrdCondition]) -> Outcome<Arc<[Condition]>> {
    // SAFETY: promised by the caller.
    Ok(unsafe { read_conditions(format, raw)? }.0.into())
}

/// Conditions, and what they say of the clustering key.
///
/// # Safety
/// As for [`AggregateQuery::read`].
unsafe fn read_conditions(
    format: &RecordFormat,
    mut raw: &[RrdCondition],
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
                // SAFETY: promised by the caller, here and below.
                let (parts, parts_of_key) = unsafe { read_conditions(format, parts)? };
                conditions.push(made(parts));
                of_key.push(made(parts_of_key));
            }
            _ => {
                let at = place_of(format, first.field)?;
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

unsafe fn read_condition(format: &RecordFormat, at: usize, raw: &RrdCondition) -> Outcome<Condition> {
    let plan = &format.plans()[at];
    let (column, negated) = (usize::from(plan.column), raw.is_negated != 0);
    // SAFETY: promised by the caller, here and below.
    match raw.test {
        RRD_TEST_NULL => Ok(Condition::Null { column, negated }),
        RRD_TEST_RANGE => unsafe { read_range(plan, raw) },
        RRD_TEST_IN => {
            let width = plan.codec().record_bytes();
            let values = unsafe { slice(raw.values, raw.count * width)? };
            read_in(plan, values.chunks_exact(width), negated)
        }
        RRD_TEST_TEXT => {
            let texts = unsafe { slice(raw.texts, raw.count)? };
            let texts = texts.iter().map(|text| unsafe { slice(text.data.cast(), text.length) });
            read_texts(format, at, &texts.collect::<Outcome<Vec<&[u8]>>>()?, negated)
        }
        test => Err(Failure::internal(format!("internal error: test {test} is not known"))),
    }
}

/// A number as the order of its lane has it.
fn in_order(codec: Codec, image: &[u8]) -> Outcome<u64> {
    if image.len() < codec.record_bytes() || codec.lane() == Lane::Bytes {
        return Err(unsupported("a range of texts or long DECIMALs"));
    }
    // SAFETY: only blobs lead out of a record.
    Ok(match unsafe { codec.read(image) } {
        Value::Int(value) => value,
        Value::F32(bits) => order_f32(bits),
        Value::F64(bits) => order_f64(bits),
        Value::Bytes(_) => 0,
    })
}

unsafe fn read_range(plan: &Plan, raw: &RrdCondition) -> Outcome<Condition> {
    let codec = plan.codec();
    let (column, negated) = (usize::from(plan.column), raw.is_negated != 0);
    let end = |image: *const u8, open: u64, excluded: u8, step: fn(u64, u64) -> Option<u64>| -> Outcome<Option<u64>> {
        if image.is_null() {
            return Ok(Some(open));
        }
        // SAFETY: promised by the caller.
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
            // SAFETY: only blobs lead out of a record.
            let bytes = images.filter_map(|image| match unsafe { plan.codec().read(image) } {
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

// -- Groups and aggregates -----------------------------------------------------------------------------------

fn read_group(plan: &Plan, raw: &RrdGroup) -> Outcome<Group> {
    let column = usize::from(plan.column);
    let codec = plan.codec();
    match (raw.kind, codec) {
        (RRD_GROUP_VALUE, Codec::Float | Codec::Double | Codec::Blob { .. }) => Err(unsupported("a group")),
        (RRD_GROUP_VALUE, _) => Ok(Group::Column(column)),
        (RRD_GROUP_BUCKET | RRD_GROUP_TOWARDS_ZERO, Codec::Integer { width, .. } | Codec::BigEndian { width })
            if raw.width > 0 =>
        {
            let greatest = i128::from(image::mask(Lane::Int { width }));
            let origin = i128::from(raw.origin) + i128::from(codec.bias());
            let towards_zero = raw.kind == RRD_GROUP_TOWARDS_ZERO && origin > 0;
            // Rounded down, any bucket's start will do.
            let origin = if towards_zero { origin } else { origin.rem_euclid(i128::from(raw.width)) };
            match u64::try_from(origin) {
                Ok(_) if origin > greatest && towards_zero => Err(unsupported("an origin")),
                Ok(origin) => Ok(Group::Bucket { column, origin, width: raw.width, towards_zero }),
                Err(_) => Err(unsupported("an origin")),
            }
        }
        _ => Err(unsupported("a group")),
    }
}

/// The collation in which texts that are not the same bytes may be the same group.
fn collation_to_merge(format: &RecordFormat, at: usize) -> Outcome<Option<RrdCollation>> {
    let collation = format.collation(at);
    match format.plans()[at].codec() {
        _ if collation.handle.is_null() => Ok(None),
        // With spaces that count at its end CHAR compares longer than it is.
        Codec::Fixed { .. } if collation.pad_space == 0 => Err(unsupported("a group")),
        _ => Ok(Some(*collation)),
    }
}

fn read_aggregate(format: &RecordFormat, raw: &RrdAggregate) -> Outcome<Aggregate> {
    if raw.kind == RRD_AGGREGATE_ROWS {
        return Ok(Aggregate::Count);
    }
    let at = place_of(format, raw.field)?;
    let plan = &format.plans()[at];
    let column = usize::from(plan.column);
    let is_number = format.layout().schema().columns[column].number.is_some();
    match (raw.kind, plan.codec()) {
        (RRD_AGGREGATE_COUNT, _) => Ok(Aggregate::CountOf(column)),
        (RRD_AGGREGATE_FIRST, _) => Ok(Aggregate::First(column)),
        (RRD_AGGREGATE_SUM, Codec::Float | Codec::Double) => Ok(Aggregate::Sum(column)),
        (RRD_AGGREGATE_SUM, _) if is_number => Ok(Aggregate::Sum(column)),
        (RRD_AGGREGATE_MIN | RRD_AGGREGATE_MAX, Codec::Blob { .. }) => Err(unsupported("an aggregate")),
        (RRD_AGGREGATE_MIN, _) if format.collation(at).handle.is_null() => Ok(Aggregate::Min(column)),
        (RRD_AGGREGATE_MAX, _) if format.collation(at).handle.is_null() => Ok(Aggregate::Max(column)),
        _ => Err(unsupported("an aggregate")),
    }
}

/// Whether rows can be sorted by a group or an aggregate as SQL does it.
fn is_sortable(format: &RecordFormat, query: &Query, order: &RrdOrder) -> bool {
    let place = order.place as usize;
    let column = if order.is_aggregate == 0 {
        query.groups.get(place).map(|group| Some(group.column()))
    } else {
        match query.aggregates.get(place) {
            Some(Aggregate::Count | Aggregate::CountOf(_)) => Some(None),
            Some(aggregate @ (Aggregate::Sum(_) | Aggregate::Min(_) | Aggregate::Max(_))) => Some(aggregate.column()),
            _ => None,
        }
    };
    let is_exact = |column: usize| {
        let at = format.plans().iter().position(|plan| usize::from(plan.column) == column);
        at.is_some_and(|at| format.collation(at).handle.is_null())
    };
    column.is_some_and(|column| column.is_none_or(is_exact))
}
