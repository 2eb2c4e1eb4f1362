//! CHECK TABLE of tiers: what they say of each bucket is compared with what the rows give, as far as these are there.
//!
//! Both are walks over the tier at one snapshot. One reads what is stored, as everybody does; the other computes all buckets
//! anew, from the rows or the finer tier, as if everything were stale. Where rows have gone it reads what is stored too.

use std::sync::Arc;

use crate::cursor::{Cursor, Direction, Span};
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::limits;
use crate::row::{RowLayout, RowView};
use crate::schema::{Lane, Number};
use crate::table::Table;

use super::number::{number_of_bits, number_of_bytes};
use super::schema::{Statistic, statistic_id};

/// Floats that differ by less, relative to the values that they were made of, are the same: a tier may have been made from the
/// rows once and from a finer tier now, which rounds elsewhere.
const SAME: f64 = 1e-9;

/// A tier in which buckets are not what the rows give.
pub struct TierDifference {
    /// Its name.
    pub name: String,
    /// How the rows below are laid out.
    pub layout: Arc<RowLayout>,
    /// The first such bucket, as it is stored; `None` if it is missing.
    pub stored: Option<Vec<u8>>,
    /// The same as computed; `None` if there should be none.
    pub computed: Option<Vec<u8>>,
    /// The column that differs, if both are there.
    pub column: Option<usize>,
    /// How many such buckets there are.
    pub buckets: u64,
}

impl TierDifference {
    /// A value as people read it: a number, or a text in quotes.
    pub fn text(&self, row: &[u8], column: usize) -> String {
        let (view, column_def) = (self.layout.view(row), &self.layout.schema().columns[column]);
        let number = |wide: super::Wide, number: Number| match number {
            Number::Integer { .. } => wide.text(0),
            Number::Decimal { scale, .. } => wide.text(scale),
        };
        match (column_def.lane, column_def.number) {
            _ if view.is_null(column) => "NULL".into(),
            (Lane::F32, _) => f32::from_bits(view.int(column) as u32).to_string(),
            (Lane::F64, _) => f64::from_bits(view.int(column)).to_string(),
            (Lane::Bytes, Some(kind)) => number(number_of_bytes(view.bytes(column), kind), kind),
            (Lane::Bytes, None) => format!("'{}'", String::from_utf8_lossy(view.bytes(column))),
            (Lane::Int { width }, Some(kind)) => number(number_of_bits(view.int(column), width, kind), kind),
            (Lane::Int { .. }, None) => view.int(column).to_string(),
        }
    }
}

/// Reads a cursor row by row.
struct Rows {
    cursor: Cursor,
    span: Option<(Span, u32)>,
    key: Vec<u8>,
    row: Vec<u8>,
}

impl Rows {
    fn new(mut cursor: Cursor) -> Result<Rows> {
        cursor.seek(None, true, Direction::Forward)?;
        Ok(Rows { cursor, span: None, key: Vec::new(), row: Vec::new() })
    }

    /// Stands on the next row; false at the end.
    fn advance(&mut self) -> Result<bool> {
        loop {
            if let Some((span, at)) = self.span.as_mut().filter(|(span, at)| *at < span.rows) {
                self.key.clear();
                self.row.clear();
                span.group.push_key(span.row(*at), &mut self.key)?;
                span.group.push_row(span.row(*at), &mut self.row)?;
                *at += 1;
                return Ok(true);
            }
            match self.cursor.next_span(limits::GROUP_ROWS)? {
                Some(span) => self.span = Some((span, 0)),
                None => return Ok(false),
            }
        }
    }
}

impl Engine {
    /// Compares the buckets of a table's tiers with its rows. `go_on(buckets)` is told about buckets compared and returns false to
    /// stop.
    pub fn check_tiers(&self, table: &Arc<Table>, go_on: &mut dyn FnMut(u64) -> bool) -> Result<Vec<TierDifference>> {
        let mut differences = Vec::new();
        for tier in table.tiers().iter() {
            let snapshot = self.take_snapshot();
            let stored = Rows::new(self.tier_cursor(&tier.table, snapshot.clone(), None)?)?;
            let computed = Rows::new(self.recomputed_tier(&tier.table, snapshot)?)?;
            differences.extend(compare(&tier.table, stored, computed, go_on)?);
        }
        Ok(differences)
    }
}

fn compare(
    tier: &Table,
    mut stored: Rows,
    mut computed: Rows,
    go_on: &mut dyn FnMut(u64) -> bool,
) -> Result<Option<TierDifference>> {
    let layout = tier.layout();
    let scales = Scales::of(&layout);
    let mut found: Option<TierDifference> = None;
    let (mut has_stored, mut has_computed) = (stored.advance()?, computed.advance()?);
    let mut compared = 0;
    while has_stored || has_computed {
        let takes_stored = has_stored && (!has_computed || stored.key <= computed.key);
        let takes_computed = has_computed && (!has_stored || computed.key <= stored.key);
        let column = match takes_stored && takes_computed {
            true => scales.first_difference(&layout, &stored.row, &computed.row),
            false => None,
        };
        if column.is_some() || takes_stored != takes_computed {
            let first = || TierDifference {
                name: tier.name(),
                layout: layout.clone(),
                stored: takes_stored.then(|| stored.row.clone()),
                computed: takes_computed.then(|| computed.row.clone()),
                column,
                buckets: 0,
            };
            found.get_or_insert_with(first).buckets += 1;
        }
        if takes_stored {
            has_stored = stored.advance()?;
        }
        if takes_computed {
            has_computed = computed.advance()?;
        }
        compared += 1;
        if compared % limits::GROUP_ROWS as u64 == 0 && !go_on(limits::GROUP_ROWS as u64) {
            return Err(Error::Interrupted);
        }
    }
    match go_on(compared % limits::GROUP_ROWS as u64) {
        true => Ok(found),
        false => Err(Error::Interrupted),
    }
}

/// For each column that is a float: the columns with the smallest and the largest value, and the number of values, that it was
/// made of.
struct Scales(Vec<Option<[Option<usize>; 3]>>);

impl Scales {
    fn of(layout: &RowLayout) -> Scales {
        let columns = &layout.schema().columns;
        let ids_per_column = statistic_id(1, Statistic::ALL[0]) - statistic_id(0, Statistic::ALL[0]);
        let place = |id: u32| columns.iter().position(|c| c.id == id);
        let scale = |id: u32| {
            [Statistic::Min, Statistic::Max, Statistic::Count].map(|s| place(statistic_id(id / ids_per_column, s)))
        };
        let is_float = |lane| matches!(lane, Lane::F32 | Lane::F64);
        Scales(columns.iter().map(|c| is_float(c.lane).then(|| scale(c.id))).collect())
    }

    fn first_difference(&self, layout: &RowLayout, a: &[u8], b: &[u8]) -> Option<usize> {
        let (a, b) = (layout.view(a), layout.view(b));
        (0..self.0.len()).find(|&column| match (a.is_null(column), b.is_null(column)) {
            (true, true) => false,
            (false, false) => !self.is_same(layout, column, &a, &b),
            _ => true,
        })
    }

    fn is_same(&self, layout: &RowLayout, column: usize, a: &RowView<'_>, b: &RowView<'_>) -> bool {
        let lane = layout.schema().columns[column].lane;
        if lane == Lane::Bytes {
            return a.bytes(column) == b.bytes(column);
        }
        let (x, y) = (a.int(column), b.int(column));
        let Some(of) = self.0[column].filter(|_| x != y) else { return x == y };
        let float = |view: &RowView<'_>, at: usize| match layout.schema().columns[at].lane {
            _ if view.is_null(at) => 0.0,
            Lane::F32 => f64::from(f32::from_bits(view.int(at) as u32)),
            Lane::F64 => f64::from_bits(view.int(at)),
            _ => view.int(at).wrapping_sub(super::aggregate::COUNT_BIAS) as f64,
        };
        let [min, max, count] = of.map(|at| at.map_or(0.0, |at| float(b, at).abs()));
        let (x, y) = (float(a, column), float(b, column));
        let scale = (min.max(max) * count.max(1.0)).max(x.abs()).max(y.abs());
        x == y || (x - y).abs() <= SAME * scale
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

    use rrd_codec::Effort;

    use super::*;
    use crate::fs::sim::SimFs;
    use crate::schema::Schema;
    use crate::write_out::OutRow;
    use crate::{Config, OnDuplicate};

    /// (series, time) and an integer, with tiers of ten seconds and a minute.
    const SCHEMA: &str = r#"{"version": 1, "columns": [
        {"id": 0, "name": "series", "lane": {"int": {"width": 4}}, "nullable": false},
        {"id": 1, "name": "ts", "lane": {"int": {"width": 4}}, "nullable": false},
        {"id": 2, "name": "n", "lane": {"int": {"width": 4}}, "nullable": true, "number": {"integer": {"bias": 2147483648}}}],
        "key": [0, 1], "time": {"column": 1, "unit": "s"},
        "tiers": [{"id": 1, "name": "10s", "bucket": {"fixed": {"length": 10000000}}},
                  {"id": 2, "name": "1m", "bucket": {"fixed": {"length": 60000000}}}]}"#;

    fn filled() -> (Arc<Engine>, Arc<Table>) {
        let mut config = Config::new("/rrd");
        config.background = false;
        let engine = Engine::open(config, Arc::new(SimFs::new())).unwrap();
        let schema: Schema = serde_json::from_str(SCHEMA).unwrap();
        engine.create_table("db/t", schema).unwrap();
        let table = engine.table("db/t").unwrap();
        let layout = table.layout();
        let mut txn = engine.begin();
        for n in 0..600 {
            let mut row = Vec::new();
            let mut writer = layout.writer(&mut row);
            writer.set_int(0, n % 3);
            writer.set_int(1, n / 3);
            writer.set_int(2, (1 << 31) + n - 20);
            writer.finish();
            txn.insert(&table, &row, OnDuplicate::Fail).unwrap();
        }
        txn.commit().unwrap();
        engine.flush_table(&table).unwrap();
        (engine, table)
    }

    /// Puts rows into a tier that are not what the table's rows give, as a fault of ours would.
    fn falsify(engine: &Arc<Engine>, tier: &Arc<Table>, rows: &[(Vec<u8>, bool)]) {
        // Newer than what is there.
        engine.commit_nothing(tier).unwrap();
        let seq = engine.visible_seq.load(std::sync::atomic::Ordering::Acquire);
        let out = rows.iter().map(|(row, tombstone)| OutRow { row, seq, tombstone: *tombstone }).collect();
        let metas = engine.write_segments(tier, &tier.layout(), &out, Effort::Fast, None).unwrap();
        engine.commit_manifest(&tier.edits_for(&metas)).unwrap();
        let open = |meta| crate::live::LiveSegment::open(&engine.fs, &engine.cache, &tier.dir, tier.id, meta);
        tier.install(|version| version.segments.extend(metas.into_iter().map(open)));
    }

    fn differences(engine: &Arc<Engine>, table: &Arc<Table>) -> Vec<(String, u64)> {
        let found = engine.check_tiers(table, &mut |_| true).unwrap();
        found.iter().map(|d| (d.name.clone(), d.buckets)).collect()
    }

    /// The stored rows of a tier, and their keys.
    fn stored(engine: &Arc<Engine>, tier: &Arc<Table>) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut rows = Rows::new(engine.tier_cursor(tier, engine.take_snapshot(), None).unwrap()).unwrap();
        std::iter::from_fn(|| rows.advance().unwrap().then(|| (rows.key.clone(), rows.row.clone()))).collect()
    }

    #[test]
    fn buckets_that_are_not_what_the_rows_give_are_found() {
        let (engine, table) = filled();
        assert_eq!(differences(&engine, &table), []);
        let fine = table.tiers()[0].table.clone();
        let rows = stored(&engine, &fine);
        // Another value in a column that is not the key.
        let mut wrong = rows[1].1.clone();
        let at = (0..wrong.len()).rfind(|&at| rows[0].1[at] != rows[1].1[at]).unwrap();
        wrong[at] ^= 1;
        falsify(&engine, &fine, &[(wrong.clone(), false)]);
        let found = engine.check_tiers(&table, &mut |_| true).unwrap();
        let names: Vec<&str> = found.iter().map(|d| d.name.as_str()).collect();
        // The coarser tier is what the finer one gave when it was right.
        assert_eq!(names.first(), Some(&"db/t$10s"));
        assert_eq!(found[0].buckets, 1);
        assert_eq!(found[0].stored.as_deref(), Some(wrong.as_slice()));
        assert_eq!(found[0].computed.as_deref(), Some(rows[1].1.as_slice()));
        let column = found[0].column.unwrap();
        assert_ne!(found[0].text(&wrong, column), found[0].text(&rows[1].1, column));
    }

    #[test]
    fn buckets_that_are_missing_or_too_many_are_found() {
        let (engine, table) = filled();
        let fine = table.tiers()[0].table.clone();
        let rows = stored(&engine, &fine);
        let mut gone = Vec::new();
        fine.layout().push_key_row(&rows[3].0, &mut gone);
        falsify(&engine, &fine, &[(gone, true)]);
        let found = engine.check_tiers(&table, &mut |_| true).unwrap();
        assert!(found[0].stored.is_none() && found[0].computed.as_deref() == Some(rows[3].1.as_slice()));
        // A bucket of a series that there is not.
        let (engine, table) = filled();
        let fine = table.tiers()[0].table.clone();
        let mut more = rows[3].1.clone();
        let layout = fine.layout();
        let at = (0..more.len()).find(|&at| {
            let mut other = more.clone();
            other[at] ^= 64;
            let (a, b) = (layout.view(&more).int(0), layout.view(&other).int(0));
            a != b
        });
        more[at.unwrap()] ^= 64;
        falsify(&engine, &fine, &[(more.clone(), false)]);
        let found = engine.check_tiers(&table, &mut |_| true).unwrap();
        assert!(found[0].computed.is_none() && found[0].stored.as_deref() == Some(more.as_slice()));
        assert!(found[0].text(&more, 2).parse::<f64>().is_ok());
    }

    #[test]
    fn a_check_can_be_stopped() {
        let (engine, table) = filled();
        assert!(matches!(engine.check_tiers(&table, &mut |_| false), Err(Error::Interrupted)));
    }
}
