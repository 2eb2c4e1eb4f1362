//! A start with a clock years ahead, one row of that time, then the right clock again: rows of the present are stored again,
//! and tiers have the buckets of the rows that are there.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::sync::Arc;

use rrd_store::cursor::Direction;
use rrd_store::fs::sim::SimFs;
use rrd_store::schema::{Bucket, Ring, TierDef};
use rrd_store::{Config, Engine, OnDuplicate, Schema, Table};

const SECOND: u64 = 1_000_000;
const DAY: u64 = 86_400;

/// The right time.
const NOW: u64 = 1_700_000_000;

/// The wrong one.
const AHEAD: u64 = NOW + 3650 * DAY;

fn schema(retention_days: Option<u64>, tier_days: Option<u64>) -> Schema {
    let text = r#"{"version": 1, "columns": [
        {"id": 0, "name": "series", "lane": {"int": {"width": 4}}, "nullable": false},
        {"id": 1, "name": "ts", "lane": {"int": {"width": 4}}, "nullable": false},
        {"id": 2, "name": "v", "lane": {"int": {"width": 4}}, "nullable": false, "number": {"integer": {"bias": 0}}}],
        "key": [0, 1], "time": {"column": 1, "unit": "s"},
        "indexes": [{"id": 1, "name": "by_v", "unique": false, "columns": [{"column": 2}]}]}"#;
    let mut schema: Schema = serde_json::from_str(text).unwrap();
    schema.ring = Ring { retention: retention_days.map(|days| days * DAY * SECOND), ..Ring::default() };
    let tier = |name: &str, id: u32, seconds: u64, keep: Option<u64>| TierDef {
        id,
        name: name.into(),
        bucket: Bucket::Fixed { length: seconds * SECOND, offset: 0 },
        keep,
    };
    if let Some(days) = tier_days {
        schema.tiers = vec![tier("1h", 1, 3600, Some(days * DAY * SECOND)), tier("1d", 2, DAY, None)];
    }
    schema
}

fn open(fs: &SimFs, clock: u64, schema: &Schema) -> (Arc<Engine>, Arc<Table>) {
    let config = Config { clock_micros: Some((clock * SECOND) as i64), background: false, ..Config::new("/data") };
    let engine = Engine::open(config, Arc::new(fs.clone())).unwrap();
    if engine.table("db/t").is_err() {
        engine.create_table("db/t", schema.clone()).unwrap();
    }
    let table = engine.table("db/t").unwrap();
    (engine, table)
}

fn insert(engine: &Arc<Engine>, table: &Arc<Table>, times: impl Iterator<Item = u64>) -> u64 {
    let mut txn = engine.begin();
    for time in times {
        let mut row = Vec::new();
        let layout = table.layout();
        let mut writer = layout.writer(&mut row);
        [1, time, time % 7].iter().enumerate().for_each(|(i, &value)| writer.set_int(i, value));
        writer.finish();
        txn.insert(table, &row, OnDuplicate::Fail).unwrap();
    }
    txn.commit().unwrap();
    txn.take_losses().iter().map(|loss| loss.rows).sum()
}

fn count(engine: &Arc<Engine>, table: &Arc<Table>) -> u64 {
    let mut cursor = engine.begin().cursor(table).unwrap();
    cursor.seek(None, true, Direction::Forward).unwrap();
    std::iter::from_fn(|| cursor.next_span(1000).unwrap()).map(|span| u64::from(span.rows)).sum()
}

fn buckets(engine: &Arc<Engine>, table: &Arc<Table>) -> Vec<u64> {
    table.tiers().iter().map(|tier| count(engine, &tier.table)).collect()
}

fn is_sound(engine: &Arc<Engine>, table: &Arc<Table>) {
    assert_eq!(engine.check_tiers(table, &mut |_| true).unwrap().len(), 0);
}

/// A row of every hour of ten days.
fn ten_days() -> impl Iterator<Item = u64> {
    (0..240).map(|hour| NOW - 1 - hour * 3600)
}

#[test]
fn rows_of_the_present_are_stored_after_a_clock_was_ahead() {
    for (is_clean, tier_days) in [(true, None), (false, None), (true, Some(60)), (false, Some(60))] {
        let fs = SimFs::new();
        let schema = schema(Some(90), tier_days);
        let (engine, table) = open(&fs, NOW, &schema);
        assert_eq!(insert(&engine, &table, ten_days()), 0);
        engine.close().unwrap();
        drop((engine, table));
        let (engine, table) = open(&fs, AHEAD, &schema);
        insert(&engine, &table, std::iter::once(AHEAD));
        assert_eq!(count(&engine, &table), 1, "all others are too old by that clock");
        let fs = if is_clean { engine.close().map(|()| fs.clone()).unwrap() } else { fs.power_cut(1) };
        drop((engine, table));
        let (engine, table) = open(&fs, NOW, &schema);
        // Without a shutdown nothing on disk says that the horizon had moved.
        let left = count(&engine, &table);
        assert_eq!(left, if is_clean { 1 } else { 241 }, "what is gone stays away");
        assert_eq!(insert(&engine, &table, (0..100).map(|n| NOW - n * 60)), 0, "clean: {is_clean}, {tier_days:?}");
        assert_eq!(count(&engine, &table), left + 100);
        assert_eq!(insert(&engine, &table, std::iter::once(NOW - 91 * DAY)), 1, "too old by the right clock");
        let now_buckets = buckets(&engine, &table);
        engine.flush_all().unwrap();
        assert_eq!(count(&engine, &table), left + 100);
        assert_eq!(buckets(&engine, &table), now_buckets);
        let fs = fs.power_cut(2);
        drop((engine, table));
        let (engine, table) = open(&fs, NOW, &schema);
        assert_eq!(count(&engine, &table), left + 100, "and after another start");
        assert_eq!(engine.check_table(&table, &mut |_, _| true).map(|found| found.len()).unwrap_or_default(), 0);
        drop(table);
    }
}

/// The horizon stayed in the future where `RETENTION` stood beside another bound.
#[test]
fn the_horizon_comes_back_beside_other_bounds() {
    let rings =
        [Ring { max_rows: Some(1000), ..Ring::default() }, Ring { series_max_rows: Some(1000), ..Ring::default() }];
    for (ring, is_clean) in rings.iter().flat_map(|ring| [(ring, true), (ring, false)]) {
        let fs = SimFs::new();
        let mut schema = schema(Some(90), None);
        schema.ring = Ring { retention: schema.ring.retention, ..*ring };
        let (engine, table) = open(&fs, NOW, &schema);
        insert(&engine, &table, ten_days());
        engine.close().unwrap();
        drop((engine, table));
        let (engine, table) = open(&fs, AHEAD, &schema);
        insert(&engine, &table, std::iter::once(AHEAD));
        assert_eq!(count(&engine, &table), 1, "{ring:?}");
        engine.flush_all().unwrap();
        let fs = if is_clean { engine.close().map(|()| fs.clone()).unwrap() } else { fs.power_cut(1) };
        drop((engine, table));
        let (engine, table) = open(&fs, NOW, &schema);
        let left = count(&engine, &table);
        assert_eq!(insert(&engine, &table, (0..100).map(|n| NOW - n * 60)), 0, "{ring:?}, clean: {is_clean}");
        assert_eq!(count(&engine, &table), left + 100);
        let fs = fs.power_cut(2);
        drop((engine, table));
        let (engine, table) = open(&fs, NOW, &schema);
        assert_eq!(count(&engine, &table), left + 100, "{ring:?}, and after another start");
        assert!(engine.check_table(&table, &mut |_, _| true).unwrap().is_empty());
    }
}

/// A full ring of rows keeps the newest, though they are of the future.
#[test]
fn a_full_ring_of_future_rows_keeps_its_horizon() {
    let fs = SimFs::new();
    let mut schema = schema(Some(90), None);
    schema.ring.max_rows = Some(50);
    let (engine, table) = open(&fs, AHEAD, &schema);
    insert(&engine, &table, (0..60).map(|n| AHEAD + n));
    engine.close().unwrap();
    drop((engine, table));
    let (engine, table) = open(&fs, NOW, &schema);
    assert_eq!(insert(&engine, &table, std::iter::once(NOW)), 1);
    assert_eq!(count(&engine, &table), 50);
}

#[test]
fn tiers_have_the_buckets_of_the_rows_again() {
    for is_clean in [true, false] {
        let fs = SimFs::new();
        let schema = schema(None, Some(60));
        let (engine, table) = open(&fs, NOW, &schema);
        insert(&engine, &table, ten_days());
        engine.flush_all().unwrap();
        assert_eq!(buckets(&engine, &table), [240, 11]);
        engine.close().unwrap();
        drop((engine, table));
        let (engine, table) = open(&fs, AHEAD, &schema);
        insert(&engine, &table, std::iter::once(AHEAD));
        engine.flush_all().unwrap();
        assert_eq!(buckets(&engine, &table), [1, 12], "all others are too old by that clock");
        let fs = if is_clean { engine.close().map(|()| fs.clone()).unwrap() } else { fs.power_cut(1) };
        drop((engine, table));
        for _ in 0..2 {
            let (engine, table) = open(&fs, NOW, &schema);
            assert_eq!(buckets(&engine, &table), [241, 12]);
            engine.flush_all().unwrap();
            assert_eq!(buckets(&engine, &table), [241, 12]);
            is_sound(&engine, &table);
            engine.close().unwrap();
        }
    }
}
