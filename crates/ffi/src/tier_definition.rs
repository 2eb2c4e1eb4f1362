//! The CREATE TABLE statement of a tier, from which the server makes its own definition when it discovers the tier.
//!
//! Nothing of it is kept: names and lanes are those of the tier's table in the store, types of keys and of least, greatest,
//! first and last values are the SQL types of the columns that they stand for.

use std::fmt::Write;

use rrd_store::Engine;
use rrd_store::schema::{ColumnDef, Lane, Number, Schema, TimeUnit};

use crate::status::{Failure, Outcome};
use crate::tiers::SUFFIXES;

/// What a tier of a table has in common with its name: the table's name and the tier's.
pub fn split_name(name: &str) -> Option<(&str, &str)> {
    name.rsplit_once('$')
}

/// The statement for the tier with this name in the store; `None` if there is none.
pub fn create_statement(engine: &Engine, name: &str) -> Outcome<Option<String>> {
    let Some((base_name, tier)) = split_name(name) else { return Ok(None) };
    let Ok(base) = engine.table(base_name) else { return Ok(None) };
    if !engine.has_definition(base_name) {
        return Ok(None); // What is left of a table is none.
    }
    let base = base.schema();
    let Some(def) = base.tiers.iter().find(|def| def.name == tier) else { return Ok(None) };
    let table = engine.table(name)?;
    statement(&base, &table.schema(), &def.name).map(Some)
}

fn statement(base: &Schema, tier: &Schema, name: &str) -> Outcome<String> {
    let time = tier.time.map(|time| usize::from(time.column));
    let time = time.ok_or_else(|| Failure::internal("internal error: a tier without a time column"))?;
    let mut sql = String::from("CREATE TABLE `tier` (");
    let visible = tier.columns.iter().enumerate().filter(|(_, column)| !column.hidden);
    for (at, column) in visible {
        let of_type = if at <= time { key_type(base, column)? } else { value_type(base, column)? };
        let null = if column.nullable { "DEFAULT NULL" } else { "NOT NULL" };
        // Without a default of its own the first TIMESTAMP gets one that changes with each update.
        let default = match tier.time.map(|t| t.unit) {
            Some(TimeUnit::Timestamp { fraction_digits }) if at == time => {
                format!(" DEFAULT current_timestamp({fraction_digits})")
            }
            _ => String::new(),
        };
        let _ = write!(sql, "{} {of_type} {null}{default}, ", quoted(&column.name));
    }
    let keys = tier.columns.iter().take(time + 1).map(|column| quoted(&column.name));
    let keys = keys.collect::<Vec<_>>().join(", ");
    let _ = write!(sql, "PRIMARY KEY ({keys})) COMMENT='buckets of {name}'");
    Ok(sql)
}

fn quoted(name: &str) -> String {
    format!("`{}`", name.replace('`', "``"))
}

/// The type of a column of the table that a tier has as it is.
fn key_type(base: &Schema, column: &ColumnDef) -> Outcome<String> {
    match base.columns.iter().find(|c| !c.hidden && c.name == column.name) {
        Some(found) if !found.sql_type.is_empty() => Ok(found.sql_type.clone()),
        _ => Err(unknown(&column.name)),
    }
}

fn value_type(base: &Schema, column: &ColumnDef) -> Outcome<String> {
    let as_it_is = ["_min", "_max", "_first", "_last"];
    let Some(suffix) = SUFFIXES.iter().find(|suffix| column.name.ends_with(**suffix)) else {
        return Err(unknown(&column.name));
    };
    let of = column.name.strip_suffix(suffix).unwrap_or_default();
    let found = base.columns.iter().find(|c| !c.hidden && c.name == of);
    if let Some(of) = found.filter(|of| of.source.is_none() && as_it_is.contains(suffix) && !of.sql_type.is_empty()) {
        return Ok(of.sql_type.clone());
    }
    Ok(match (column.lane, column.number) {
        (_, Some(Number::Decimal { precision, scale })) => format!("decimal({precision},{scale})"),
        (Lane::Int { width: 8 }, Some(Number::Integer { bias: 0 })) => "bigint(20) unsigned".into(),
        (Lane::Int { width: 8 }, _) => "bigint(20)".into(),
        (Lane::F64, _) => "double".into(),
        (Lane::F32, _) => "float".into(),
        _ => return Err(unknown(&column.name)),
    })
}

fn unknown(column: &str) -> Failure {
    Failure::definition_changed(format!(
        "the SQL type of column '{column}' of a tier is not known: the table was made by an earlier version; change \
         something of it by ALTER TABLE, its COMMENT for example"
    ))
}
