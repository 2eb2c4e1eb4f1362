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
use rrd_store::aggregate::{Aggregate, Answer, Group, Query};
use rrd_store::limits;
use rrd_store::schema::Lane;

use crate::abi::RrdCollation;
use crate::aggregate_answer::{Aggregation, Shape};
use crate::conditions::{RrdCondition, place_of, read_conditions, unsupported};
use crate::field::Codec;
use crate::guard::slice;
use crate::image;
use crate::key_range::{KeyRange, key_ranges};
use crate::record::{Plan, RecordFormat};
use crate::session::Session;
use crate::status::Outcome;

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
pub struct RrdAggregateQuery<'a> {
    /// All must hold.
    pub conditions: *const RrdCondition<'a>,
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
    /// The rule `arrays` of `abi.rs` for what it points to.
    pub unsafe fn read(format: &Arc<RecordFormat>, raw: &RrdAggregateQuery<'_>) -> Outcome<AggregateQuery> {
        let mut query = Query { threads: threads(raw.threads), ..Query::default() };
        // SAFETY: rule `arrays`: there are `condition_count` conditions.
        let conditions = unsafe { slice(raw.conditions, raw.condition_count)? };
        // SAFETY: rule `arrays` for what the conditions point to.
        let (conditions, of_key) = unsafe { read_conditions(format, conditions)? };
        query.conditions = conditions;
        let ranges = key_ranges(&key_lanes(format), &of_key);
        if raw.group_count > MOST_GROUPS {
            return Err(unsupported("more than 64 groups"));
        }
        let mut shape = Shape::default();
        // SAFETY: rule `arrays`: there are `group_count` groups.
        for (place, group) in unsafe { slice(raw.groups, raw.group_count)? }.iter().enumerate() {
            let at = place_of(format, group.field)?;
            query.groups.push(read_group(&format.plans()[at], group)?);
            if group.is_span != 0 {
                shape.spans.push(place);
            } else {
                shape.texts.extend(collation_to_merge(format, at)?.map(|collation| (place, collation)));
            }
        }
        // SAFETY: rule `arrays`: there are `aggregate_count` aggregates.
        for aggregate in unsafe { slice(raw.aggregates, raw.aggregate_count)? } {
            query.aggregates.push(read_aggregate(format, aggregate)?);
        }
        // SAFETY: rule `arrays`: there are `order_count` of them.
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

    /// Runs it over the partitions of a table, of which `first` and this query are one.
    pub fn run(
        self,
        first: &Arc<Table>,
        others: &[(Arc<Table>, AggregateQuery)],
        session: &mut Session,
    ) -> Outcome<Aggregation> {
        let mut answers = vec![session.aggregate(first, &self.query)?];
        for (table, of_table) in others {
            answers.push(session.aggregate(table, &of_table.query)?);
        }
        if answers.iter().any(Answer::depends_on_order) {
            let others = others.iter().map(|(table, of_table)| (table, &of_table.query));
            let partitions: Vec<_> = std::iter::once((first, &self.query)).chain(others).collect();
            answers = vec![session.aggregate_in_order(&partitions)?];
        }
        let mut answers = answers.into_iter();
        let mut all = Aggregation::new(self.format, self.query, answers.next().unwrap_or_default(), self.shape);
        answers.for_each(|answer| all.add(answer));
        all.finish();
        Ok(all)
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
