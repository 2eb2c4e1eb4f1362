//! When a guess of the time column is not good enough.
//!
//! Without TIME_COLUMN the time is the last column of the key. As long as rows only lie in chunks by it, a wrong guess
//! costs speed. An option that lets rows go, or puts them into buckets, would lose or mix up rows: then other columns
//! must not be possible, and rows that are there must have times in that column.

use std::sync::Arc;

use rrd_store::schema::{Schema, TimeUnit};
use rrd_store::time::TimeLane;
use rrd_store::{Table, Txn};

use crate::abi;
use crate::definition::Definition;
use crate::status::{Failure, Outcome};
use crate::tiers::tiers_option;

/// Of so many rows one at least has to have a plausible time.
const ROWS_WITH_ONE_TIME: u64 = 10;

/// The first option that goes by a time column which nobody named.
fn option_by_guess(schema: &Schema) -> Option<&'static str> {
    let is_named = schema.options.iter().any(|(name, _)| name == "TIME_COLUMN");
    let has_guess = schema.time.is_some_and(|time| time.unit != TimeUnit::Order) && !is_named;
    let options = [
        ("RETENTION", schema.ring.retention.is_some()),
        ("MAX_ROWS", schema.ring.max_rows.is_some()),
        ("SERIES_MAX_ROWS", schema.ring.series_max_rows.is_some()),
        ("MAX_BYTES", schema.ring.max_bytes.is_some()),
        (tiers_option(schema), !schema.tiers.is_empty()),
        ("STEP", schema.step.is_some()),
    ];
    options.iter().find(|(_, is_given)| *is_given && has_guess).map(|(name, _)| *name)
}

/// Whether a change of the schema lets other rows go, or puts them into other buckets.
pub fn goes_by_time_otherwise(old: &Schema, new: &Schema) -> bool {
    let unit = |schema: &Schema| schema.time.map(|time| time.unit);
    old.ring != new.ring || old.tiers != new.tiers || old.step != new.step || unit(old) != unit(new)
}

impl Definition {
    /// Refuses options that go by the time where more than one column of the key could be that.
    pub fn check_guess(&self, schema: &Schema) -> Outcome<()> {
        let Some(option) = option_by_guess(schema) else { return Ok(()) };
        let Some(last) = self.key.len().checked_sub(1) else { return Ok(()) };
        let kind = |position: usize| self.fields[self.key[position].field].time_kind;
        let is_temporal = |position: usize| matches!(kind(position), abi::RRD_TIME_TIMESTAMP | abi::RRD_TIME_DATETIME);
        // An integer in front of all others names the series.
        let may_be_time = |&position: &usize| match kind(position) {
            abi::RRD_TIME_INTEGER => position > 0 && !is_temporal(last),
            _ => is_temporal(position),
        };
        let name = |position: usize| &self.fields[self.key[position].field].name;
        match (0..last).find(may_be_time).map(name) {
            Some(other) => Err(Failure::invalid(format!(
                "option {option} goes by the time, and more than one column of the primary key could be that; name it: \
                 TIME_COLUMN='{other}' or TIME_COLUMN='{}'",
                name(last)
            ))),
            None => Ok(()),
        }
    }
}

/// Refuses options that go by the time where rows have times that the unit cannot say.
pub fn check_unit(table: &Table, schema: &Schema) -> Outcome<()> {
    let Some(lane) = TimeLane::of(schema) else { return Ok(()) };
    let goes_by_time = schema.ring.retention.is_some() || !schema.tiers.is_empty();
    match goes_by_time && table.has_times_outside(&lane.exact()) {
        true => Err(Failure::invalid(rrd_store::txn::beyond_unit(schema))),
        false => Ok(()),
    }
}

/// Refuses options that go by the time where the column that was taken for it has other numbers in nearly all rows that
/// the transaction sees.
pub fn check_rows(txn: &mut Txn, table: &Arc<Table>, schema: &Schema) -> Outcome<()> {
    let (Some(option), Some(lane)) = (option_by_guess(schema), TimeLane::of(schema)) else { return Ok(()) };
    let unit = match schema.time.map(|time| time.unit) {
        Some(TimeUnit::S) => "seconds",
        Some(TimeUnit::Ms) => "milliseconds",
        Some(TimeUnit::Us) => "microseconds",
        Some(TimeUnit::Ns) => "nanoseconds",
        _ => return Ok(()),
    };
    let count = txn.count_times(table, &lane.plausible())?;
    if count.within.saturating_mul(ROWS_WITH_ONE_TIME) >= count.all {
        return Ok(());
    }
    let name = schema.time.and_then(|time| schema.columns.get(usize::from(time.column))).map_or("", |c| &c.name);
    Err(Failure::invalid(format!(
        "option {option} goes by the time, and '{name}' does not look like that: of {} rows {} have a time from 1971 to 2199 in \
         {unit}; name the time column, for example TIME_COLUMN='{name}', and its unit if that is not 's', for example \
         TIME_UNIT='ms'",
        count.all, count.within
    )))
}
