//! What CHECK TABLE says of tiers that are not what the rows give.

use std::sync::Arc;

use rrd_store::schema::{Schema, TimeUnit};
use rrd_store::tier::TierDifference;
use rrd_store::{Engine, Table};

use crate::info::Cell;
use crate::info_time::time_cell;
use crate::key_text::{timestamp, utc};
use crate::status::Outcome;

/// Compares the tiers of a table with its rows; what is wrong, in words.
pub fn check_tiers(
    engine: &Engine,
    table: &Arc<Table>,
    progress: &mut dyn FnMut(u64, u64) -> bool,
) -> Outcome<Vec<String>> {
    let total: u64 = table.tiers().iter().map(|tier| tier.table.stats().rows).sum();
    let mut done = 0;
    let differences = engine.check_tiers(table, &mut |buckets| {
        done += buckets;
        progress(done.min(total), total)
    })?;
    Ok(differences.iter().map(text).collect())
}

fn text(difference: &TierDifference) -> String {
    let schema = difference.layout.schema();
    let row = difference.stored.as_ref().or(difference.computed.as_ref()).map_or(&[][..], Vec::as_slice);
    let name = difference.name.rsplit('/').next().unwrap_or(&difference.name);
    let what = match (&difference.stored, &difference.computed, difference.column) {
        (Some(stored), Some(computed), Some(column)) => {
            let (is, gives) = (difference.text(stored, column), difference.text(computed, column));
            format!("'{}' is {is}, the rows give {gives}", schema.columns[column].name)
        }
        (Some(_), _, _) => "is there, the rows give none".into(),
        _ => "is missing, the rows give one".into(),
    };
    let others = match difference.buckets.saturating_sub(1) {
        0 => String::new(),
        1 => "; one more bucket differs".into(),
        n => format!("; {n} more buckets differ"),
    };
    format!("tier '{name}': bucket {}: {what}{others}", key_text(schema, difference, row))
}

/// `1700000000 of sensor 3`.
fn key_text(schema: &Schema, difference: &TierDifference, row: &[u8]) -> String {
    let is_shown = |column: usize| !schema.columns[column].hidden;
    let time = schema.time.map(|time| usize::from(time.column));
    let start = time.map_or(String::new(), |column| {
        let value = difference.layout.view(row).int(column);
        match (time_cell(schema, value), schema.time.map(|time| time.unit)) {
            (_, Some(TimeUnit::Timestamp { fraction_digits })) => timestamp(value, fraction_digits, &utc) + " UTC",
            (Cell::Text(text), _) => text,
            (Cell::Unsigned(number), _) => number.to_string(),
            _ => value.to_string(),
        }
    });
    // The series stand before the time.
    let series = (0..time.unwrap_or(0)).filter(|&column| is_shown(column));
    let series = series.map(|c| format!("{} {}", schema.columns[c].name, difference.text(row, c)));
    let series = series.collect::<Vec<_>>().join(", ");
    if series.is_empty() { start } else { format!("{start} of {series}") }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

    use rrd_store::RowLayout;

    use super::*;

    const SCHEMA: &str = r#"{"version": 1, "columns": [
        {"id": 0, "name": "sensor", "lane": {"int": {"width": 4}}, "nullable": false, "number": {"integer": {"bias": 2147483648}}},
        {"id": 1, "name": "ts", "lane": {"int": {"width": 4}}, "nullable": false},
        {"id": 2, "name": "n_max", "lane": {"int": {"width": 4}}, "nullable": true, "number": {"integer": {"bias": 2147483648}}}],
        "key": [0, 1], "time": {"column": 1, "unit": "s"}}"#;

    #[test]
    fn a_difference_is_told_in_words() {
        let schema: Schema = serde_json::from_str(SCHEMA).unwrap();
        let layout = Arc::new(RowLayout::new(Arc::new(schema)));
        let row = |value: Option<u64>| {
            let mut row = Vec::new();
            let mut writer = layout.writer(&mut row);
            writer.set_int(0, (1 << 31) + 3);
            writer.set_int(1, 1_700_000_000);
            match value {
                Some(value) => writer.set_int(2, (1 << 31) - value),
                None => writer.set_null(2),
            }
            writer.finish();
            Some(row)
        };
        let told = |stored, computed, column, buckets| {
            let layout = layout.clone();
            text(&TierDifference { name: "db/t$1h".into(), layout, stored, computed, column, buckets })
        };
        let of = "tier 't$1h': bucket 1700000000 of sensor 3:";
        assert_eq!(told(row(Some(5)), row(None), Some(2), 1), format!("{of} 'n_max' is -5, the rows give NULL"));
        assert_eq!(
            told(None, row(Some(5)), None, 3),
            format!("{of} is missing, the rows give one; 2 more buckets differ")
        );
        assert_eq!(
            told(row(Some(5)), None, None, 2),
            format!("{of} is there, the rows give none; one more bucket differs")
        );
    }
}
