//! The answer to an aggregate query: its rows put in order, and handed out one by one.
//!
//! Texts are grouped by their bytes in the store; groups that are one in the collation are put together here, under the
//! text that a walk in key order meets first, as the server's own grouping shows it. A group is given back as a record
//! that belongs to it: of a bucket the first value that lies in it, so that the server computes what it shows of it.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::Arc;

use rrd_store::aggregate::{Aggregate, Answer, Group, Query, Value, Wide};
use rrd_store::schema::Number;
use rrd_store::segment::zone::{order_f32, order_f64};
use rrd_store::tier::{decimal_bytes, pack_decimal};

use crate::abi::RrdCollation;
use crate::aggregate::{RrdAggregateValue, RrdOrder};
use crate::image;
use crate::record::{Plan, RecordFormat};
use crate::status::{Failure, Outcome};
use crate::weights;

/// Digits of the sums that are handed out.
const SUM_DIGITS: u8 = 65;

/// What becomes of the store's rows before they are handed out.
#[derive(Default)]
pub struct Shape {
    /// Groups by texts that can be written in more than one way: their places and collations.
    pub texts: Vec<(usize, RrdCollation)>,
    /// Places of groups that only the other side can put together.
    pub spans: Vec<usize>,
    /// What rows are sorted by.
    pub order: Vec<RrdOrder>,
}

/// What the other side says of the rows, one by one, of an answer with spans.
pub struct Verdicts<'a> {
    /// Zero: the row does not count.
    pub kept: &'a [u8],
    /// As many bytes of each row: those of rows that differ in spans alone are one where the groups are.
    pub names: &'a [u8],
    /// All rows are one group, which there is even of no rows.
    pub is_one_row: bool,
}

/// An answer and how far it was read.
pub struct Aggregation {
    format: Arc<RecordFormat>,
    query: Query,
    shape: Shape,
    /// Those of the groups and of the aggregates, one row behind the other.
    values: Vec<Value>,
    /// The rows that are handed out: their places among `values`, in rows.
    order: Vec<usize>,
    read: usize,
    /// Answers of other partitions are among the rows.
    is_of_several: bool,
}

impl Aggregation {
    /// The answer to `query`, before it is finished.
    pub fn new(format: Arc<RecordFormat>, query: Query, answer: Answer, shape: Shape) -> Aggregation {
        let order = (0..answer.len()).collect();
        Aggregation { format, query, shape, values: answer.into_values(), order, read: 0, is_of_several: false }
    }

    /// Adds the answer of another partition to the same query.
    pub fn add(&mut self, answer: Answer) {
        let rows = self.order.len();
        self.order.extend(rows..rows + answer.len());
        self.values.extend(answer.into_values());
        self.is_of_several = true;
    }

    /// Makes it one to be read, by groups; with spans it is to be put together after that.
    pub fn finish(&mut self) {
        if self.shape.spans.is_empty() {
            if !self.shape.texts.is_empty() || self.is_of_several {
                self.merge(|_| &[]);
            }
            self.sort();
        }
    }

    /// Puts together groups whose spans are one to the other side, and drops those that do not count.
    pub fn put_together(&mut self, verdicts: &Verdicts<'_>) -> Outcome<()> {
        let count = self.order.len();
        let width = verdicts.names.len() / count.max(1);
        if verdicts.kept.len() != count || verdicts.names.len() != width * count {
            return Err(Failure::internal("internal error: not each group was looked at"));
        }
        let kept: Vec<usize> = (0..count).filter(|&row| verdicts.kept[row] != 0).collect();
        self.order = kept.iter().map(|&row| self.order[row]).collect();
        self.merge(|row| &verdicts.names[kept[row] * width..(kept[row] + 1) * width]);
        if verdicts.is_one_row && self.order.is_empty() {
            let of_no_rows = |aggregate: &Aggregate| match aggregate {
                Aggregate::Count | Aggregate::CountOf(_) => Value::Count(0),
                _ => Value::Null,
            };
            let groups = self.query.groups.iter().map(|_| Value::Null);
            self.values = groups.chain(self.query.aggregates.iter().map(of_no_rows)).collect();
            self.order = vec![0];
        }
        self.sort();
        self.read = 0;
        Ok(())
    }

    fn sort(&mut self) {
        let order = std::mem::take(&mut self.shape.order);
        if !order.is_empty() {
            let mut rows = std::mem::take(&mut self.order);
            rows.sort_by(|&a, &b| self.compare(&order, self.values_of(a), self.values_of(b)));
            self.order = rows;
        }
    }

    /// Puts together rows that are one by their texts' collations and by `name_of` a row, but for their spans.
    fn merge<'n>(&mut self, name_of: impl Fn(usize) -> &'n [u8]) {
        let groups = self.query.groups.len();
        let mut scratch = weights::Scratch::default();
        let mut places: HashMap<Vec<u8>, usize> = HashMap::new();
        let width = self.width();
        let mut rows: Vec<usize> = Vec::new();
        let mut name = Vec::new();
        for (number, row) in std::mem::take(&mut self.order).into_iter().enumerate() {
            name.clear();
            for (place, value) in self.values_of(row)[..groups].iter().enumerate() {
                if self.shape.spans.contains(&place) {
                    continue;
                }
                let collation = self.shape.texts.iter().find(|(of, _)| *of == place).map(|(_, collation)| collation);
                push_name(value, collation, &mut scratch, &mut name);
            }
            name.extend_from_slice(name_of(number));
            match places.get(&name) {
                Some(&first) => {
                    for (n, aggregate) in (groups..).zip(&self.query.aggregates) {
                        let from = std::mem::replace(&mut self.values[row * width + n], Value::Null);
                        add(&mut self.values[first * width + n], from, aggregate);
                    }
                }
                None => {
                    places.insert(name.clone(), row);
                    rows.push(row);
                }
            }
        }
        self.order = rows;
    }

    /// Makes a row the next one.
    pub fn seek(&mut self, row: usize) {
        self.read = row;
    }

    /// Goes to the next row; false behind the last one.
    pub fn step(&mut self) -> bool {
        self.read += 1;
        self.read <= self.order.len()
    }

    fn width(&self) -> usize {
        self.query.groups.len() + self.query.aggregates.len()
    }

    fn values_of(&self, row: usize) -> &[Value] {
        &self.values[row * self.width()..(row + 1) * self.width()]
    }

    fn row(&self) -> Outcome<&[Value]> {
        let row = self.read.checked_sub(1).and_then(|at| self.order.get(at));
        row.map(|&row| self.values_of(row)).ok_or_else(|| Failure::internal("internal error: no group was read"))
    }

    fn plan(&self, column: usize) -> Outcome<&Plan> {
        let plan = self.format.plans().iter().find(|plan| usize::from(plan.column) == column);
        plan.ok_or_else(|| Failure::internal("internal error: no such column"))
    }

    /// Writes values of the columns that rows are grouped by into a record. Of a column with buckets of several widths
    /// the value lies in all of them.
    pub fn put_groups(&self, record: &mut [u8]) -> Outcome<()> {
        let row = self.row()?;
        for (group, value) in self.query.groups.iter().zip(row) {
            let plan = self.plan(group.column())?;
            match value {
                Value::Bucket(_) => {
                    let buckets = self.query.groups.iter().zip(row).filter(|(g, _)| g.column() == group.column());
                    let starts = buckets.map(|(group, value)| first_value(group, value));
                    let lane = self.format.layout().schema().columns[group.column()].lane;
                    let least = starts.max().unwrap_or(0).clamp(0, i128::from(image::mask(lane)));
                    plan.put_int(least as u64, record);
                }
                value => put(plan, value, record),
            }
        }
        // A column's value says more than its buckets.
        for (group, value) in self.query.groups.iter().zip(row) {
            if let Group::Column(column) = group {
                put(self.plan(*column)?, value, record);
            }
        }
        Ok(())
    }

    fn aggregate(&self, place: usize) -> Outcome<(&Aggregate, &Value)> {
        let value = self.row()?.get(self.query.groups.len() + place);
        let found = self.query.aggregates.get(place).zip(value);
        found.ok_or_else(|| Failure::internal("internal error: no such aggregate"))
    }

    /// Writes the value of a minimum or maximum to where its column lies in a record; false for NULL.
    pub fn put_extreme(&self, place: usize, record: &mut [u8]) -> Outcome<bool> {
        let (aggregate, value) = self.aggregate(place)?;
        if *value == Value::Null {
            return Ok(false);
        }
        if let Some(column) = aggregate.column() {
            put(self.plan(column)?, value, record);
        }
        Ok(true)
    }

    /// A count or a sum.
    pub fn value(&self, place: usize) -> Outcome<RrdAggregateValue> {
        let (aggregate, value) = self.aggregate(place)?;
        let mut out = RrdAggregateValue::default();
        match value {
            Value::Count(count) => out.count = *count,
            Value::SumFloat { hi, lo, count } => {
                out.count = *count;
                out.number = hi + lo;
            }
            Value::SumInt { sum, count } => {
                let bias = self.bias(aggregate);
                out.set_sum(&Wide::from(integer_sum(*sum, *count, bias)), 0, *count);
            }
            Value::SumDecimal { sum, count } => out.set_sum(sum, self.scale(aggregate), *count),
            _ => out.is_null = 1,
        }
        Ok(out)
    }

    fn number(&self, aggregate: &Aggregate) -> Option<Number> {
        aggregate.column().and_then(|column| self.format.layout().schema().columns[column].number)
    }

    fn bias(&self, aggregate: &Aggregate) -> u64 {
        match self.number(aggregate) {
            Some(Number::Integer { bias }) => bias,
            _ => 0,
        }
    }

    fn scale(&self, aggregate: &Aggregate) -> u8 {
        match self.number(aggregate) {
            Some(Number::Decimal { scale, .. }) => scale,
            _ => 0,
        }
    }

    fn compare(&self, order: &[RrdOrder], a: &[Value], b: &[Value]) -> Ordering {
        let groups = self.query.groups.len();
        let compared = order.iter().map(|order| {
            let place = order.place as usize;
            let found = if order.is_aggregate == 0 {
                compare(&a[place], &b[place], 0)
            } else {
                let bias = self.query.aggregates.get(place).map_or(0, |aggregate| self.bias(aggregate));
                compare(&a[groups + place], &b[groups + place], bias)
            };
            if order.is_descending != 0 { found.reverse() } else { found }
        });
        compared.fold(Ordering::Equal, Ordering::then)
    }
}

impl Default for RrdAggregateValue {
    fn default() -> RrdAggregateValue {
        RrdAggregateValue {
            count: 0,
            number: 0.0,
            is_null: 0,
            scale: 0,
            decimal_bytes: 0,
            reserved: [0; 5],
            decimal: [0; 32],
        }
    }
}

impl RrdAggregateValue {
    fn set_sum(&mut self, sum: &Wide, scale: u8, count: u64) {
        let mut packed = Vec::with_capacity(self.decimal.len());
        pack_decimal(sum, SUM_DIGITS, scale, &mut packed);
        self.decimal[..packed.len()].copy_from_slice(&packed);
        self.decimal_bytes = decimal_bytes(SUM_DIGITS, scale) as u8;
        self.scale = scale;
        self.count = count;
    }
}

/// The sum of SQL values whose lane values are `bias` more, modulo 2^64 at least.
fn integer_sum(sum: u128, count: u64, bias: u64) -> i128 {
    sum as i128 - i128::from(count) * i128::from(bias)
}

fn put(plan: &Plan, value: &Value, record: &mut [u8]) {
    match value {
        Value::Int(value) | Value::F64(value) => plan.put_int(*value, record),
        Value::F32(bits) => plan.put_int(u64::from(*bits), record),
        Value::Bytes(bytes) => plan.put_bytes(bytes, record),
        _ => plan.put_null(record),
    }
}

/// The least value of a group's bucket, which may be less than its column can hold.
fn first_value(group: &Group, value: &Value) -> i128 {
    match (group, value) {
        (Group::Bucket { origin, width, towards_zero, .. }, Value::Bucket(number)) => {
            let start = i128::from(*origin) + number * i128::from(*width);
            let is_turned = *towards_zero && *number <= 0;
            if is_turned { start - i128::from(width - 1) } else { start }
        }
        _ => 0,
    }
}

/// The order of two values of one place; NULL is the least.
fn compare(a: &Value, b: &Value, bias: u64) -> Ordering {
    match (a, b) {
        (Value::Null, Value::Null) => Ordering::Equal,
        (Value::Null, _) => Ordering::Less,
        (_, Value::Null) => Ordering::Greater,
        (Value::Int(a), Value::Int(b)) | (Value::Count(a), Value::Count(b)) => a.cmp(b),
        (Value::Bucket(a), Value::Bucket(b)) => a.cmp(b),
        (Value::Bytes(a), Value::Bytes(b)) => a.cmp(b),
        (Value::F32(a), Value::F32(b)) => order_f32(*a).cmp(&order_f32(*b)),
        (Value::F64(a), Value::F64(b)) => order_f64(*a).cmp(&order_f64(*b)),
        (Value::SumInt { sum: a, count: n }, Value::SumInt { sum: b, count: m }) => {
            integer_sum(*a, *n, bias).cmp(&integer_sum(*b, *m, bias))
        }
        (Value::SumFloat { hi: a, lo: c, .. }, Value::SumFloat { hi: b, lo: d, .. }) => (a + c).total_cmp(&(b + d)),
        _ => Ordering::Equal,
    }
}

// -- Groups that are one in their collation ------------------------------------------------------------------

/// Appends what tells a group's value from others.
fn push_name(value: &Value, collation: Option<&RrdCollation>, scratch: &mut weights::Scratch, out: &mut Vec<u8>) {
    match (value, collation) {
        (Value::Bytes(text), collation) => {
            let start = out.len();
            out.extend_from_slice(&[0; 8]);
            match collation {
                Some(collation) => weights::push_sort_key(collation, text, 0, false, scratch, out),
                None => out.extend_from_slice(text),
            }
            let length = (out.len() - start) as u64;
            out[start..start + 8].copy_from_slice(&length.to_be_bytes());
        }
        (Value::Int(value), _) => out.extend_from_slice(&(u128::from(*value) | 1 << 64).to_be_bytes()),
        (Value::Bucket(number), _) => {
            out.push(1);
            out.extend_from_slice(&number.to_be_bytes());
        }
        _ => out.extend_from_slice(&[0; 8]),
    }
}

/// Adds the value that an aggregate has of another part of the same group.
fn add(to: &mut Value, from: Value, aggregate: &Aggregate) {
    match (&mut *to, &from) {
        (Value::Count(a), Value::Count(b)) => *a += b,
        (Value::SumInt { sum: a, count: n }, Value::SumInt { sum: b, count: m }) => {
            *a += b;
            *n += m;
        }
        (Value::SumDecimal { sum: a, count: n }, Value::SumDecimal { sum: b, count: m }) => {
            a.add(b);
            *n += m;
        }
        (Value::SumFloat { hi: a, lo: c, count: n }, Value::SumFloat { hi: b, lo: d, count: m }) => {
            let sum = *a + b;
            let part = sum - *a;
            let lost = d + ((*a - (sum - part)) + (b - part));
            // A sum that has overflowed stays so, whatever is added to it.
            match sum.is_finite() {
                true => *c += lost,
                false => *c = 0.0,
            }
            *a = if a.is_finite() { sum } else { *a };
            *n += m;
        }
        (_, Value::Null) => {}
        (Value::Null, _) => *to = from,
        (old, new) => {
            let is_better = match aggregate {
                Aggregate::Min(_) => compare(new, old, 0) == Ordering::Less,
                Aggregate::Max(_) => compare(new, old, 0) == Ordering::Greater,
                _ => false,
            };
            if is_better {
                *to = from;
            }
        }
    }
}
