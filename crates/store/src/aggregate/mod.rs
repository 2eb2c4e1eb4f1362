//! Aggregates inside the store: COUNT, SUM, MIN and MAX of a table's rows, by groups, under conditions.
//!
//! A query sees exactly the rows that a cursor of the same transaction would hand out: own writes, memtables, segments,
//! what the horizon leaves. Groups come in the order in which a walk in key order would first meet them. Sums of floats
//! are compensated (Neumaier, Knuth's TwoSum), and do not depend on the number of threads.

mod query;
mod state;
mod walk;

use std::sync::Arc;

use crate::cursor::Direction;
use crate::error::{Error, Result};
use crate::schema::{Lane, Schema};
use crate::table::Table;
use crate::txn::Txn;

pub use query::{Aggregate, Answer, Condition, Group, Query, Value, Wide};

/// Rows between two questions whether the statement was killed.
const SPAN_ROWS: usize = 16384;

impl Txn {
    /// The answer to an aggregate query over a table (or a tier). `is_cancelled` is asked every few milliseconds, by the
    /// calling thread only; true ends it with [`Error::Interrupted`].
    pub fn aggregate(&mut self, table: &Arc<Table>, query: &Query, is_cancelled: &dyn Fn() -> bool) -> Result<Answer> {
        check(query, &table.schema())?;
        let mut cursor = self.cursor(table)?.reading_all();
        cursor.set_bounds(query.low.as_deref(), query.high.as_deref());
        cursor.seek(None, true, Direction::Forward)?;
        let mut walk = walk::Walk::new(query, cursor.layout().clone());
        while let Some(span) = cursor.next_span(SPAN_ROWS)? {
            if is_cancelled() {
                return Err(Error::Interrupted);
            }
            if !walk.add(&span)? {
                break;
            }
        }
        Ok(walk.finish())
    }
}

/// Whether a query fits the schema.
fn check(query: &Query, schema: &Schema) -> Result<()> {
    let invalid = |what: String| Err(Error::InvalidInput(format!("aggregate query: {what}")));
    if let Some(column) = query.columns().into_iter().find(|&c| c >= schema.columns.len()) {
        return invalid(format!("there is no column {column}"));
    }
    let lane = |column: usize| schema.columns[column].lane;
    for condition in &query.conditions {
        let fits = match condition {
            Condition::Range { column, .. } | Condition::In { column, .. } => lane(*column) != Lane::Bytes,
            Condition::Bytes { column, .. } => lane(*column) == Lane::Bytes,
            Condition::Null { .. } => true,
        };
        if !fits {
            return invalid(format!("the condition {condition:?} does not fit the lane of its column"));
        }
    }
    for group in &query.groups {
        if let Group::Bucket { column, width, .. } = *group
            && (!matches!(lane(column), Lane::Int { .. }) || width == 0)
        {
            return invalid(format!("{group:?} needs an integer lane and a width"));
        }
    }
    for aggregate in &query.aggregates {
        if let Aggregate::Sum(column) = *aggregate
            && lane(column) == Lane::Bytes
            && !state::is_decimal(&schema.columns[column])
        {
            return invalid(format!("byte strings of column {column} have no sum"));
        }
    }
    Ok(())
}
