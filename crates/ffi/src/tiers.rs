//! What options of ring, tiers and data sources mean for each other and for the columns. Pure.
//!
//! `options.rs` has read each of them; here a schema is made to say what they ask for, and what does not go together is
//! refused with a text that says what to write instead. A tier's columns have names that are made of the columns' own
//! (`v_avg`), and must be possible names.

use rrd_store::schema::{Bucket, ColumnDef, DataSource, Lane, Schema, SourceType, TierDef};

use crate::options::{ColumnOptions, TableOptions};
use crate::status::{Failure, Outcome};

/// What a tier has of each value column, in the order of its columns.
pub const SUFFIXES: [&str; 7] = ["_avg", "_min", "_max", "_sum", "_count", "_first", "_last"];

/// Characters of a name in SQL.
pub const NAME_CHARS: usize = 64;

/// Columns of a table of the server.
const MAX_SQL_COLUMNS: usize = 4096;

const DAY: u64 = rrd_store::time::DAY as u64;

/// Puts what options say about ring, tiers and data sources into a schema. `in_key` says which columns the clustering
/// key is made of, `columns` has the options of each visible column.
pub fn apply(
    schema: &mut Schema,
    options: &TableOptions,
    columns: &[ColumnOptions],
    in_key: &dyn Fn(usize) -> bool,
) -> Outcome<()> {
    schema.ring = options.ring;
    schema.tiers.clone_from(&options.tiers);
    schema.step = options.step;
    schema.xff = options.xff;
    check_time(schema)?;
    for (at, asked) in columns.iter().enumerate().filter(|(_, asked)| **asked != ColumnOptions::default()) {
        let source = data_source(schema, &schema.columns[at], *asked, in_key(at))?;
        schema.columns[at].source = Some(source);
    }
    if schema.xff.is_some() && !schema.columns.iter().any(|column| column.source.is_some()) {
        return Err(Failure::invalid(
            "option XFF is about columns with data-source options; give a column one, as in v DOUBLE DST='GAUGE'",
        ));
    }
    if schema.tiers.is_empty() {
        return Ok(());
    }
    check_names(schema, in_key)?;
    check_buckets(schema)
}

/// Whether tiers have columns for it.
pub fn is_value(column: &ColumnDef) -> bool {
    !column.hidden && (column.number.is_some() || matches!(column.lane, Lane::F32 | Lane::F64))
}

/// The option as the user wrote it, for texts.
pub fn tiers_option(schema: &Schema) -> &'static str {
    if schema.options.iter().any(|(name, _)| name == "ROLLUP") { "ROLLUP" } else { "TIERS" }
}

fn check_time(schema: &Schema) -> Outcome<()> {
    let needs_time = [
        ("RETENTION", schema.ring.retention.is_some()),
        ("SERIES_MAX_ROWS", schema.ring.series_max_rows.is_some()),
        (tiers_option(schema), !schema.tiers.is_empty()),
        ("STEP", schema.step.is_some()),
    ];
    if let Some((name, _)) = needs_time.iter().find(|(_, is_given)| *is_given && schema.time.is_none()) {
        return Err(Failure::invalid(format!(
            "option {name} needs a time column: a TIMESTAMP, DATETIME or integer column of the primary key, named with \
             TIME_COLUMN='ts' if it is not the last one"
        )));
    }
    match (schema.xff, schema.step) {
        (Some(_), None) => {
            Err(Failure::invalid("option XFF needs the interval of the readings; add for example STEP='5m'"))
        }
        _ => Ok(()),
    }
}

fn data_source(schema: &Schema, column: &ColumnDef, asked: ColumnOptions, in_key: bool) -> Outcome<DataSource> {
    let refuse = |why: &str| Err(Failure::invalid(format!("column '{}': {why}", column.name)));
    if in_key {
        return refuse("DST, HEARTBEAT, DS_MIN and DS_MAX are for readings; this column is part of the primary key");
    }
    if !is_value(column) {
        return refuse("DST, HEARTBEAT, DS_MIN and DS_MAX are for numbers (integers, DECIMAL, FLOAT, DOUBLE)");
    }
    if schema.time.is_none() {
        return refuse(
            "DST, HEARTBEAT, DS_MIN and DS_MAX need a table with a time column; name it with TIME_COLUMN='ts'",
        );
    }
    let Some(step) = schema.step else {
        return refuse(
            "DST, HEARTBEAT, DS_MIN and DS_MAX need the interval of the readings; add for example STEP='5m' to the table",
        );
    };
    Ok(DataSource {
        kind: asked.kind.unwrap_or(SourceType::Gauge),
        heartbeat: asked.heartbeat.unwrap_or(step.saturating_mul(2)),
        min: asked.min,
        max: asked.max,
    })
}

/// A tier's columns: those of the series, the bucket's start, seven for each value.
fn check_names(schema: &Schema, in_key: &dyn Fn(usize) -> bool) -> Outcome<()> {
    let option = tiers_option(schema);
    let visible = || schema.columns.iter().enumerate().filter(|(_, column)| !column.hidden);
    let values: Vec<&ColumnDef> = visible().filter(|(at, c)| !in_key(*at) && is_value(c)).map(|(_, c)| c).collect();
    if values.is_empty() {
        return Err(Failure::invalid(format!(
            "option {option}: the table has no numeric column outside the primary key that a tier could hold"
        )));
    }
    let keys: Vec<&str> = visible().filter(|(at, _)| in_key(*at)).map(|(_, c)| c.name.as_str()).collect();
    if keys.len() + SUFFIXES.len() * values.len() > MAX_SQL_COLUMNS {
        return Err(Failure::invalid(format!(
            "option {option}: with seven columns for each of {} a tier would have more than {MAX_SQL_COLUMNS}",
            values.len()
        )));
    }
    let made =
        || values.iter().flat_map(|value| SUFFIXES.iter().map(|suffix| (*value, format!("{}{suffix}", value.name))));
    if let Some((value, name)) = made().find(|(_, name)| name.chars().count() > NAME_CHARS) {
        return Err(Failure::invalid(format!(
            "option {option}: column '{}' would be '{name}' in a tier, longer than the {NAME_CHARS} characters that a name \
             may have; give it a shorter name",
            value.name
        )));
    }
    let mut names: Vec<String> = keys.iter().map(|name| name.to_lowercase()).collect();
    names.extend(made().map(|(_, name)| name.to_lowercase()));
    names.sort();
    match names.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(Failure::invalid(format!(
            "option {option}: two columns of a tier would have the name '{}'; rename a column of the table",
            pair[0]
        ))),
        None => Ok(()),
    }
}

/// The longest that a bucket can be.
fn longest(bucket: Bucket) -> u64 {
    match bucket {
        Bucket::Fixed { length, .. } => length,
        Bucket::Months { count } => u64::from(count) * 31 * DAY,
    }
}

/// What a bucket is made of has to be there until the bucket is full: rows, or buckets of a finer tier.
fn check_buckets(schema: &Schema) -> Outcome<()> {
    let option = tiers_option(schema);
    let has_sources = schema.columns.iter().any(|column| column.source.is_some());
    for (tier, source) in schema.tiers.iter().zip(rrd_store::tier::sources(schema)) {
        if let Some(step) = schema.step.filter(|_| has_sources)
            && !(Bucket::Fixed { length: step, offset: 0 }).nests_in(&tier.bucket)
        {
            return Err(Failure::invalid(format!(
                "option {option}: a bucket of tier {} is not a whole number of STEPs, which the columns with data-source \
                 options need",
                tier.name
            )));
        }
        let source = source.map(|place| &schema.tiers[place]);
        let (of, kept, what) = match source {
            Some(TierDef { name, keep, .. }) => (name.as_str(), *keep, "is made of tier"),
            None => ("RETENTION", schema.ring.retention, "is made of the rows themselves, see"),
        };
        if kept.is_some_and(|kept| kept < longest(tier.bucket)) {
            return Err(Failure::invalid(format!(
                "option {option}: tier {} {what} {of}, which does not keep them for as long as one bucket; make that longer",
                tier.name
            )));
        }
    }
    Ok(())
}
