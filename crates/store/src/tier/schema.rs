//! What the table of a tier looks like: derived from its table's schema and the definition of the tier.
//!
//! The key is the key of the series and the start of the bucket, in the same lanes as in the table. Behind them each numeric
//! column has its statistics. A column's id follows from the id of the column that it stands for, so that it stays the
//! same whatever becomes of the others.

use crate::error::{Error, Result};
use crate::schema::{ColumnDef, Initial, Lane, Number, Schema, TierDef, TierOf, TimeColumn};

/// Ids of a tier's columns that one column of the table takes up.
const IDS: u32 = 16;
/// The one for the column itself.
const ITSELF: u32 = 15;

/// The statistics of a column, in the order of their columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "their names say it")]
pub enum Statistic {
    Avg,
    Min,
    Max,
    Sum,
    Count,
    First,
    Last,
}

impl Statistic {
    /// All of them.
    pub const ALL: [Statistic; 7] = [
        Statistic::Avg,
        Statistic::Min,
        Statistic::Max,
        Statistic::Sum,
        Statistic::Count,
        Statistic::First,
        Statistic::Last,
    ];

    /// What its columns' names end with.
    pub fn suffix(self) -> &'static str {
        match self {
            Statistic::Avg => "avg",
            Statistic::Min => "min",
            Statistic::Max => "max",
            Statistic::Sum => "sum",
            Statistic::Count => "count",
            Statistic::First => "first",
            Statistic::Last => "last",
        }
    }
}

/// What is known of the points of a column with data-source options, before `XFF` blanks it: hidden columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unmasked {
    Total,
    Min,
    Max,
    First,
    Last,
}

impl Unmasked {
    /// All of them.
    pub const ALL: [Unmasked; 5] = [Unmasked::Total, Unmasked::Min, Unmasked::Max, Unmasked::First, Unmasked::Last];
}

/// Id of the column of a tier that holds it.
pub(crate) fn unmasked_id(column: u32, unmasked: Unmasked) -> u32 {
    column * IDS + 8 + unmasked as u32
}

/// Bytes of MariaDB's packed DECIMAL.
pub fn decimal_bytes(precision: u8, scale: u8) -> usize {
    const PARTIAL: [usize; 10] = [0, 1, 1, 2, 2, 3, 3, 4, 4, 4];
    let (whole, fraction) = (usize::from(precision.saturating_sub(scale)), usize::from(scale));
    whole / 9 * 4 + PARTIAL[whole % 9] + fraction / 9 * 4 + PARTIAL[fraction % 9]
}

/// The lane of a DECIMAL.
fn decimal_lane(precision: u8, scale: u8) -> Lane {
    match decimal_bytes(precision, scale) {
        bytes @ 1..=8 => Lane::Int { width: bytes as u8 },
        _ => Lane::Bytes,
    }
}

/// The digits of an integer type.
fn digits(width: u8, bias: u64) -> u8 {
    match (width, bias != 0) {
        (1, _) => 3,
        (2, _) => 5,
        (3, true) => 7,
        (3, false) => 8,
        (4, _) => 10,
        (_, true) => 19,
        (_, false) => 20,
    }
}

/// Whether tiers have statistics of a column. What it is the key or part of it must be known apart.
pub fn is_value(column: &ColumnDef) -> bool {
    let is_number = column.number.is_some() || matches!(column.lane, Lane::F32 | Lane::F64);
    !column.hidden && is_number
}

/// Positions of the columns of a table that its tiers have statistics of.
pub fn value_columns(base: &Schema) -> Vec<usize> {
    let is_key = |c: usize| base.key.iter().any(|&k| usize::from(k) == c || sorted_column(base, k) == Some(c));
    (0..base.columns.len()).filter(|&c| is_value(&base.columns[c]) && !is_key(c)).collect()
}

/// The position of the column whose sort key a hidden lane is.
pub fn sorted_column(base: &Schema, position: u16) -> Option<usize> {
    let id = base.columns.get(usize::from(position))?.sort_key_of()?;
    base.columns.iter().position(|c| c.id == id)
}

/// Lane, number and whether NULL can be of a statistic.
fn shape(column: &ColumnDef, statistic: Statistic) -> (Lane, Option<Number>, bool) {
    let decimal = |precision: u8, scale: u8| {
        let precision = precision.min(65);
        (decimal_lane(precision, scale), Some(Number::Decimal { precision, scale }), true)
    };
    match (statistic, column.number) {
        (Statistic::Count, _) => (Lane::Int { width: 8 }, Some(Number::Integer { bias: 1 << 63 }), false),
        _ if column.source.is_some() => (Lane::F64, None, true),
        (Statistic::Avg | Statistic::Sum, None) => (Lane::F64, None, true),
        (Statistic::Avg, Some(Number::Integer { bias })) => {
            decimal(digits(column.lane.fixed_width() as u8, bias) + 4, 4)
        }
        (Statistic::Sum, Some(Number::Integer { bias })) => {
            decimal(digits(column.lane.fixed_width() as u8, bias) + 22, 0)
        }
        (Statistic::Avg, Some(Number::Decimal { precision, scale })) => decimal(precision + 4, (scale + 4).min(38)),
        (Statistic::Sum, Some(Number::Decimal { precision, scale })) => decimal(precision + 22, scale),
        _ => (column.lane, column.number, true),
    }
}

/// The SQL type of a statistic.
fn sql_type(column: &ColumnDef, statistic: Statistic, number: Option<Number>) -> String {
    match (statistic, number) {
        (Statistic::Count, _) => "bigint(20)".into(),
        _ if column.source.is_some() => "double".into(),
        (Statistic::Avg | Statistic::Sum, Some(Number::Decimal { precision, scale })) => {
            format!("decimal({precision},{scale})")
        }
        (Statistic::Avg | Statistic::Sum, _) => "double".into(),
        _ => column.sql_type.clone(),
    }
}

/// Id of the column of a tier that holds a statistic of a column.
pub(crate) fn statistic_id(column: u32, statistic: Statistic) -> u32 {
    column * IDS + statistic as u32
}

/// Id of the column of a tier that holds the values of a column of the key.
pub(crate) fn key_id(column: u32) -> u32 {
    column * IDS + ITSELF
}

/// Where a tier has a column of its table's key.
pub(crate) fn position_of_key(tier: &Schema, id: u32) -> Option<usize> {
    tier.columns.iter().position(|column| column.id == key_id(id))
}

/// Where a tier has a statistic of a column of its table.
pub(crate) fn position_of_statistic(tier: &Schema, id: u32, statistic: Statistic) -> Option<usize> {
    tier.columns.iter().position(|column| column.id == statistic_id(id, statistic))
}

/// The schema of the table that holds the buckets of a tier.
pub fn tier_schema(base: &Schema, base_table: u32, def: &TierDef) -> Schema {
    let mut columns = Vec::new();
    let mut key = Vec::new();
    let mut hidden = Vec::new();
    let key_column = |column: &ColumnDef| ColumnDef {
        id: key_id(column.id),
        options: column.sort_key_of().map(|id| ColumnDef::sort_key_option(key_id(id))).into_iter().collect(),
        source: None,
        ..column.clone()
    };
    let series = base.key.iter().take(base.series_columns());
    for &position in series {
        let column = &base.columns[usize::from(position)];
        if !column.hidden {
            key.push(columns.len());
            columns.push(key_column(column));
            continue;
        }
        // A text stands before its sort key, once.
        let text = sorted_column(base, position).map(|c| key_column(&base.columns[c]));
        columns.extend(text.filter(|t| columns.iter().all(|c: &ColumnDef| c.id != t.id)));
        key.push(usize::MAX - hidden.len());
        hidden.push(key_column(column));
    }
    let time_at = columns.len();
    if let Some(time) = base.time {
        key.push(time_at);
        columns.push(key_column(&base.columns[usize::from(time.column)]));
    }
    let mut unmasked = Vec::new();
    for c in value_columns(base) {
        let column = &base.columns[c];
        if column.source.is_some() {
            unmasked.extend(Unmasked::ALL.map(|which| unmasked_id(column.id, which)));
        }
        for statistic in Statistic::ALL {
            let (lane, number, nullable) = shape(column, statistic);
            columns.push(ColumnDef {
                id: statistic_id(column.id, statistic),
                name: format!("{}_{}", column.name, statistic.suffix()),
                lane,
                nullable,
                hidden: false,
                options: Vec::new(),
                initial: Some(if nullable { Initial::Null } else { Initial::Bits(1 << 63) }),
                sql_type: sql_type(column, statistic, number),
                source: None,
                number,
            });
        }
    }
    let visible = columns.len();
    columns.extend(hidden);
    columns.extend(unmasked.into_iter().map(|id| ColumnDef {
        name: String::new(),
        hidden: true,
        initial: Some(Initial::Null),
        ..ColumnDef::plain(id, Lane::F64, true)
    }));
    let place = |at: usize| if at > visible { visible + (usize::MAX - at) } else { at } as u16;
    Schema {
        version: base.version,
        time: base.time.map(|t| TimeColumn { column: time_at as u16, ..t }),
        compression: base.compression,
        tier_of: Some(TierOf { table: base_table, tier: def.id }),
        ..Schema::plain(columns, key.into_iter().map(place).collect(), None)
    }
}

/// The name of the table that holds a tier.
pub fn tier_table_name(base_name: &str, tier: &str) -> String {
    format!("{base_name}${tier}")
}

/// Checks the tiers of a schema.
pub(crate) fn validate_tiers(schema: &Schema) -> Result<()> {
    let invalid = |what: &str| Err(Error::InvalidInput(format!("schema: {what}")));
    if schema.tiers.is_empty() {
        return Ok(());
    }
    if schema.time.is_none() || schema.tier_of.is_some() || schema.index_of.is_some() {
        return invalid("tiers need a time column in the clustering key");
    }
    for (n, tier) in schema.tiers.iter().enumerate() {
        if schema.tiers[..n].iter().any(|other| other.id == tier.id || other.name == tier.name) {
            return invalid("two tiers have the same name or id");
        }
        if matches!(tier.bucket, crate::schema::Bucket::Fixed { length: 0, .. }) {
            return invalid("a bucket has no length");
        }
        tier_schema(schema, 0, tier).validate()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

    use super::*;

    /// (host as text with a sort key, ts), and values of several kinds.
    const SCHEMA: &str = r#"{"version": 3, "columns": [
        {"id": 0, "name": "host", "lane": "bytes", "nullable": false},
        {"id": 1, "name": "ts", "lane": {"int": {"width": 4}}, "nullable": false},
        {"id": 2, "name": "n", "lane": {"int": {"width": 4}}, "nullable": true, "number": {"integer": {"bias": 2147483648}}},
        {"id": 3, "name": "d", "lane": {"int": {"width": 5}}, "nullable": true,
         "number": {"decimal": {"precision": 10, "scale": 2}}},
        {"id": 4, "name": "f", "lane": "f32", "nullable": true},
        {"id": 5, "name": "note", "lane": "bytes", "nullable": true},
        {"id": 6, "name": "", "lane": "bytes", "nullable": false, "hidden": true, "options": [["sort_key_of", "0"]]}],
        "key": [6, 1], "time": {"column": 1, "unit": "s"},
        "tiers": [{"id": 1, "name": "5m", "bucket": {"fixed": {"length": 300000000}}}]}"#;

    #[test]
    fn columns_of_a_tier() {
        let base: Schema = serde_json::from_str(SCHEMA).unwrap();
        base.validate().unwrap();
        let tier = tier_schema(&base, 9, &base.tiers[0]);
        let names: Vec<&str> = tier.columns.iter().map(|c| c.name.as_str()).collect();
        assert_eq!(&names[..9], ["host", "ts", "n_avg", "n_min", "n_max", "n_sum", "n_count", "n_first", "n_last"]);
        assert_eq!((names.len(), names[23]), (2 + 21 + 1, ""));
        assert_eq!((&tier.key[..], tier.columns[23].sort_key_of()), (&[23, 1][..], Some(tier.columns[0].id)));
        assert_eq!(tier.time.map(|t| t.column), Some(1));
        assert_eq!(tier.columns[2].number, Some(Number::Decimal { precision: 14, scale: 4 }));
        assert_eq!(tier.columns[5].number, Some(Number::Decimal { precision: 32, scale: 0 }));
        assert_eq!(tier.columns[9].number, Some(Number::Decimal { precision: 14, scale: 6 }));
        assert_eq!((tier.columns[16].lane, tier.columns[17].lane), (Lane::F64, Lane::F32));
    }

    #[test]
    fn packed_lengths() {
        assert_eq!([(10, 2), (9, 0), (14, 4), (65, 30), (1, 1)].map(|(p, s)| decimal_bytes(p, s)), [5, 4, 7, 30, 1]);
    }
}
