//! Row by row over the spans of a cursor.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use rrd_codec::{Column, Values};

use super::query::{Answer, Condition, Group, Query, Value};
use super::state::{State, value_of};
use crate::cursor::Span;
use crate::error::Result;
use crate::row::RowLayout;
use crate::segment::zone::{order_f32, order_f64};

/// The groups so far.
pub struct Walk<'q> {
    query: &'q Query,
    layout: Arc<RowLayout>,
    /// Group by its values.
    places: HashMap<Vec<u8>, usize>,
    /// Values and aggregates of each group, in the order in which they were met.
    values: Vec<Value>,
    states: Vec<State>,
    key: Vec<u8>,
    last: Vec<u8>,
}

impl<'q> Walk<'q> {
    pub fn new(query: &'q Query, layout: Arc<RowLayout>) -> Walk<'q> {
        let (values, states) = (Vec::new(), Vec::new());
        let mut walk =
            Walk { query, layout, places: HashMap::new(), values, states, key: Vec::new(), last: Vec::new() };
        if query.groups.is_empty() {
            walk.places.insert(Vec::new(), 0);
            walk.push_states();
        }
        walk
    }

    fn push_states(&mut self) {
        let schema = self.layout.schema();
        self.states.extend(self.query.aggregates.iter().map(|&a| State::new(a, schema)));
    }

    /// Adds the rows of a span. False when it went beyond the bounds: nothing more is to come.
    pub fn add(&mut self, span: &Span) -> Result<bool> {
        let mut columns: Vec<Option<Arc<Column>>> = vec![None; self.layout.schema().columns.len()];
        for c in self.query.columns() {
            columns[c] = Some(span.group.column(c)?.clone());
        }
        for n in 0..span.rows {
            let row = span.row(n);
            if let Some(high) = &self.query.high {
                self.last.clear();
                span.group.push_key(row, &mut self.last)?;
                if self.last >= *high {
                    return Ok(false);
                }
            }
            let column = |c: usize| columns[c].as_deref();
            if self.query.conditions.iter().all(|condition| holds(condition, column(condition.column()), row)) {
                self.add_row(&column, row);
            }
        }
        Ok(true)
    }

    fn add_row<'c>(&mut self, column: &impl Fn(usize) -> Option<&'c Column>, row: usize) {
        self.key.clear();
        let mut values = Vec::with_capacity(self.query.groups.len());
        for group in &self.query.groups {
            let value = column(group.column()).map_or(Value::Null, |column| group_value(*group, column, row));
            push_bytes(&value, &mut self.key);
            values.push(value);
        }
        let next = self.places.len();
        let place = match self.places.entry(self.key.clone()) {
            Entry::Occupied(place) => *place.get(),
            Entry::Vacant(place) => {
                place.insert(next);
                self.values.append(&mut values);
                self.push_states();
                next
            }
        };
        let width = self.query.aggregates.len();
        for (aggregate, state) in self.query.aggregates.iter().zip(&mut self.states[place * width..]) {
            state.add(aggregate.column().and_then(column), row);
        }
    }

    pub fn finish(self) -> Answer {
        let (groups, aggregates) = (self.query.groups.len(), self.query.aggregates.len());
        let rows = self.places.len();
        let mut values = Vec::with_capacity((groups + aggregates) * rows);
        let (mut of_groups, mut states) = (self.values.into_iter(), self.states.into_iter());
        for _ in 0..rows {
            values.extend(of_groups.by_ref().take(groups));
            values.extend(states.by_ref().take(aggregates).map(State::finish));
        }
        Answer::new(groups + aggregates, rows, values)
    }
}

/// What a row is grouped by.
fn group_value(group: Group, column: &Column, row: usize) -> Value {
    match (group, value_of(column, row)) {
        (Group::Bucket { origin, width, towards_zero, .. }, Value::Int(value)) => {
            let (distance, width) = (i128::from(value) - i128::from(origin), i128::from(width));
            Value::Bucket(if towards_zero { distance / width } else { distance.div_euclid(width) })
        }
        (_, value) => value,
    }
}

fn push_bytes(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Null => out.push(0),
        Value::Bytes(bytes) => {
            out.extend_from_slice(&[1, 0, 0, 0, 0]);
            let at = out.len() - 4;
            out[at..].copy_from_slice(&(bytes.len() as u32).to_le_bytes());
            out.extend_from_slice(bytes);
        }
        Value::Bucket(bucket) => {
            out.push(1);
            out.extend_from_slice(&bucket.to_le_bytes());
        }
        Value::Int(bits) | Value::F64(bits) => {
            out.push(1);
            out.extend_from_slice(&bits.to_le_bytes());
        }
        Value::F32(bits) => {
            out.push(1);
            out.extend_from_slice(&bits.to_le_bytes());
        }
        _ => debug_assert!(false, "not the value of a group"),
    }
}

/// Whether a condition holds for a row of its column.
fn holds(condition: &Condition, column: Option<&Column>, row: usize) -> bool {
    let Some(column) = column else { return false };
    let is_null = column.is_null(row);
    let number = || match &column.values {
        Values::Int(v) => v[row],
        Values::F32(v) => order_f32(v[row]),
        Values::F64(v) => order_f64(v[row]),
        Values::Bytes(_) => 0,
    };
    match condition {
        Condition::Null { negated, .. } => is_null != *negated,
        _ if is_null => false,
        Condition::Range { low, high, negated, .. } => (*low..=*high).contains(&number()) != *negated,
        Condition::In { values, negated, .. } => values.binary_search(&number()).is_ok() != *negated,
        Condition::Bytes { values, negated, .. } => match &column.values {
            Values::Bytes(v) => values.binary_search_by(|value| value.as_slice().cmp(v.get(row))).is_ok() != *negated,
            _ => false,
        },
    }
}
