//! Aggregates inside the store: COUNT, SUM, MIN and MAX of a table's rows, by groups, under conditions.
//!
//! A query sees exactly the rows that a cursor of the same transaction would hand out: own writes, memtables, segments,
//! what the horizon leaves. Groups come in the order in which a walk in key order would first meet them. Sums of floats
//! are compensated (Neumaier, Knuth's TwoSum), and do not depend on the number of threads.

mod block;
mod buckets;
mod filter;
mod groups;
mod kernels;
mod keys;
pub(crate) mod memory;
mod overlap;
mod part;
mod query;
mod ranges;
mod runs;
mod spans;
mod states;
mod strip;
mod threads;
mod tier;
mod view;

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::schema::{Lane, Schema};
use crate::table::Table;
use crate::txn::Txn;

pub use query::{Aggregate, Answer, Condition, Group, Query, Value, Wide};
pub(crate) use spans::Filter;
pub(crate) use view::View;

impl Txn {
    /// The answer to an aggregate query over a table (or a tier). `is_cancelled` is asked every few milliseconds, by the
    /// calling thread only; true ends it with [`Error::Interrupted`].
    pub fn aggregate(&mut self, table: &Arc<Table>, query: &Query, is_cancelled: &dyn Fn() -> bool) -> Result<Answer> {
        check(query, &table.schema())?;
        let part_rows = self.engine.tuning.part_rows;
        let cursor = self.cursor(table)?;
        match cursor.view() {
            Some(view) => match buckets::answer(&self.engine, table, &view, query, is_cancelled)? {
                Some(answer) => Ok(answer),
                None => threads::answer(&view, query, part_rows, is_cancelled),
            },
            None => tier::answer(cursor, query, is_cancelled),
        }
    }
}

impl Txn {
    /// The answer to a query over the partitions of a table, where [`Answer::depends_on_order`] says so of one of theirs:
    /// floats are added one after the other in the order of the keys, partition by partition, as a server without
    /// [`Txn::aggregate`] adds what it reads.
    pub fn aggregate_in_order(
        &mut self,
        partitions: &[(&Arc<Table>, &Query)],
        is_cancelled: &dyn Fn() -> bool,
    ) -> Result<Answer> {
        let mut groups: Option<groups::Groups<'_>> = None;
        for (walk, (table, query)) in (0..).zip(partitions) {
            let cursor = self.cursor(table)?;
            check(query, cursor.layout().schema())?;
            let groups = groups.get_or_insert_with(|| groups::Groups::new(query, cursor.layout().schema()).in_order());
            groups.go_on_with(query, cursor.layout().schema());
            tier::add_all(cursor, query, walk, groups, is_cancelled)?;
        }
        groups.map_or_else(|| Ok(Answer::default()), groups::Groups::finish)
    }
}

/// Which of the values of a group are NULL fits a word.
const MAX_GROUP_COLUMNS: usize = 64;

/// Whether a condition fits the lanes of its columns.
fn fits(condition: &Condition, lane: &impl Fn(usize) -> Lane) -> bool {
    match condition {
        Condition::Range { column, .. } | Condition::In { column, .. } => lane(*column) != Lane::Bytes,
        Condition::Bytes { column, .. } => lane(*column) == Lane::Bytes,
        Condition::Null { .. } => true,
        Condition::Any(parts) | Condition::All(parts) => parts.iter().all(|part| fits(part, lane)),
    }
}

/// Whether conditions are about columns that there are, and fit their lanes.
pub(crate) fn are_about(conditions: &[Condition], schema: &Schema) -> bool {
    let is_there = |condition: &Condition| condition.columns().iter().all(|&column| column < schema.columns.len());
    conditions.iter().all(|condition| is_there(condition) && fits(condition, &|column| schema.columns[column].lane))
}

/// Whether a query fits the schema.
fn check(query: &Query, schema: &Schema) -> Result<()> {
    let invalid = |what: String| Err(Error::InvalidInput(format!("aggregate query: {what}")));
    if let Some(column) = query.columns().into_iter().find(|&c| c >= schema.columns.len()) {
        return invalid(format!("there is no column {column}"));
    }
    if query.groups.len() > MAX_GROUP_COLUMNS {
        return invalid(format!("more than {MAX_GROUP_COLUMNS} columns to group by"));
    }
    let lane = |column: usize| schema.columns[column].lane;
    if let Some(condition) = query.conditions.iter().find(|condition| !fits(condition, &lane)) {
        return invalid(format!("the condition {condition:?} does not fit the lane of its column"));
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
            && !states::is_decimal(&schema.columns[column])
        {
            return invalid(format!("byte strings of column {column} have no sum"));
        }
    }
    Ok(())
}
