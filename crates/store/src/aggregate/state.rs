//! What an aggregate has come to so far.

use std::cmp::Ordering;

use rrd_codec::{Column, Values};

use super::query::{Aggregate, Value, Wide};
use crate::schema::{ColumnDef, Lane, Number, Schema};
use crate::segment::zone::{order_f32, order_f64, two_sum};
use crate::tier::{number_of_bits, number_of_bytes};

/// Whether sums of a column are sums of DECIMALs.
pub fn is_decimal(column: &ColumnDef) -> bool {
    matches!(column.number, Some(Number::Decimal { .. }))
}

/// An aggregate of the rows so far.
#[derive(Clone, Debug)]
pub enum State {
    Count(u64),
    CountOf(u64),
    SumInt { sum: u128, count: u64 },
    SumDecimal { sum: Wide, count: u64, number: Number, width: u8 },
    SumFloat { hi: f64, lo: f64, count: u64 },
    Min(Value),
    Max(Value),
    First(Option<Value>),
}

impl State {
    /// Of no rows.
    pub fn new(aggregate: Aggregate, schema: &Schema) -> State {
        match aggregate {
            Aggregate::Count => State::Count(0),
            Aggregate::CountOf(_) => State::CountOf(0),
            Aggregate::Min(_) => State::Min(Value::Null),
            Aggregate::Max(_) => State::Max(Value::Null),
            Aggregate::First(_) => State::First(None),
            Aggregate::Sum(column) => {
                let column = &schema.columns[column];
                match (column.number, column.lane) {
                    (Some(number @ Number::Decimal { .. }), lane) => {
                        let width = if let Lane::Int { width } = lane { width } else { 0 };
                        State::SumDecimal { sum: Wide::default(), count: 0, number, width }
                    }
                    (_, Lane::F32 | Lane::F64) => State::SumFloat { hi: 0.0, lo: 0.0, count: 0 },
                    _ => State::SumInt { sum: 0, count: 0 },
                }
            }
        }
    }

    /// Adds row `i` of its column (`None`: it has none).
    pub fn add(&mut self, column: Option<&Column>, i: usize) {
        let value = column.map_or(Value::Null, |column| value_of(column, i));
        match (self, value) {
            (State::Count(rows), _) => *rows += 1,
            (State::First(first), value) => {
                first.get_or_insert(value);
            }
            (_, Value::Null) => {}
            (State::CountOf(rows), _) => *rows += 1,
            (State::SumInt { sum, count }, Value::Int(value)) => {
                *sum += u128::from(value);
                *count += 1;
            }
            (State::SumDecimal { sum, count, number, width }, value) => {
                match value {
                    Value::Int(bits) => sum.add(&number_of_bits(bits, *width, *number)),
                    Value::Bytes(bytes) => sum.add(&number_of_bytes(&bytes, *number)),
                    _ => debug_assert!(false, "no DECIMAL"),
                }
                *count += 1;
            }
            (State::SumFloat { hi, lo, count }, value) => {
                let (sum, error) = two_sum(*hi, float_of(&value));
                *hi = sum;
                *lo += error;
                *count += 1;
            }
            (State::Min(least), value) => {
                if matches!(least, Value::Null) || order(&value, least) == Ordering::Less {
                    *least = value;
                }
            }
            (State::Max(largest), value) => {
                if matches!(largest, Value::Null) || order(&value, largest) == Ordering::Greater {
                    *largest = value;
                }
            }
            (State::SumInt { .. }, _) => debug_assert!(false, "no integer"),
        }
    }

    /// As the answer has it.
    pub fn finish(self) -> Value {
        match self {
            State::Count(rows) | State::CountOf(rows) => Value::Count(rows),
            State::SumInt { count: 0, .. } | State::SumDecimal { count: 0, .. } | State::SumFloat { count: 0, .. } => {
                Value::Null
            }
            State::SumInt { sum, count } => Value::SumInt { sum, count },
            State::SumDecimal { sum, count, .. } => Value::SumDecimal { sum, count },
            State::SumFloat { hi, lo, count } => {
                let (hi, lo) = if hi.is_finite() { two_sum(hi, lo) } else { (hi, 0.0) };
                Value::SumFloat { hi, lo, count }
            }
            State::Min(value) | State::Max(value) => value,
            State::First(value) => value.unwrap_or(Value::Null),
        }
    }
}

/// Row `i` of a column.
pub fn value_of(column: &Column, i: usize) -> Value {
    if column.is_null(i) {
        return Value::Null;
    }
    match &column.values {
        Values::Int(v) => Value::Int(v[i]),
        Values::F32(v) => Value::F32(v[i]),
        Values::F64(v) => Value::F64(v[i]),
        Values::Bytes(v) => Value::Bytes(v.get(i).to_vec()),
    }
}

fn float_of(value: &Value) -> f64 {
    match *value {
        Value::F32(bits) => f64::from(f32::from_bits(bits)),
        Value::F64(bits) => f64::from_bits(bits),
        _ => 0.0,
    }
}

/// Of two values of one lane.
fn order(a: &Value, b: &Value) -> Ordering {
    match (a, b) {
        (Value::F32(a), Value::F32(b)) => order_f32(*a).cmp(&order_f32(*b)),
        (Value::F64(a), Value::F64(b)) => order_f64(*a).cmp(&order_f64(*b)),
        (Value::Int(a), Value::Int(b)) => a.cmp(b),
        (Value::Bytes(a), Value::Bytes(b)) => a.cmp(b),
        _ => Ordering::Equal,
    }
}
