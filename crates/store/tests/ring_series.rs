//! Rings of rows for each series: what they take on disk stays bounded, however fast the series are.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::sync::Arc;

use rrd_store::cursor::Direction;
use rrd_store::fs::sim::SimFs;
use rrd_store::schema::{Ring, TierDef};
use rrd_store::{Config, Engine, OnDuplicate, Schema, Table};

const SCHEMA: &str = r#"{"version": 1, "columns": [
    {"id": 0, "name": "series", "lane": {"int": {"width": 4}}, "nullable": false},
    {"id": 1, "name": "ts", "lane": {"int": {"width": 4}}, "nullable": false},
    {"id": 2, "name": "v", "lane": {"int": {"width": 4}}, "nullable": false, "number": {"integer": {"bias": 0}}}],
    "key": [0, 1], "time": {"column": 1, "unit": "s"}, "chunk_length": 20000,
    "indexes": [{"id": 1, "name": "by_v", "unique": false, "columns": [{"column": 2}]},
                {"id": 2, "name": "u", "unique": true, "columns": [{"column": 1}, {"column": 0}]}]}"#;

const SERIES: u64 = 20;
const MAX_ROWS: u64 = 300;
const STEP: u64 = 60;
const FIRST: u64 = 1_700_000_000;

fn open(fs: &SimFs) -> (Arc<Engine>, Arc<Table>) {
    let mut config = Config::new("/data/rrd");
    config.background = false;
    config.clock_micros = Some(i64::MAX / 2);
    let engine = Engine::open(config, Arc::new(fs.clone())).unwrap();
    if engine.table("db/t").is_err() {
        create(&engine, "[]");
    }
    let table = engine.table("db/t").unwrap();
    (engine, table)
}

fn create(engine: &Arc<Engine>, tiers: &str) {
    let tiers: Vec<TierDef> = serde_json::from_str(tiers).unwrap();
    let ring = Ring { series_max_rows: Some(MAX_ROWS), ..Ring::default() };
    let schema: Schema = serde_json::from_str(SCHEMA).unwrap();
    engine.create_table("db/t", Schema { ring, tiers, ..schema }).unwrap();
}

fn insert(engine: &Arc<Engine>, table: &Arc<Table>, rows: impl Iterator<Item = (u64, u64)>) {
    let mut txn = engine.begin();
    let layout = table.layout();
    txn.begin_bulk(table);
    for (series, time) in rows {
        let mut row = Vec::new();
        let mut writer = layout.writer(&mut row);
        writer.set_int(0, series);
        writer.set_int(1, time);
        writer.set_int(2, (time.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40) & 0xFFFF);
        writer.finish();
        txn.insert(table, &row, OnDuplicate::Fail).unwrap();
    }
    txn.end_bulk(table).unwrap();
    txn.commit().unwrap();
}

fn rows(engine: &Arc<Engine>, table: &Arc<Table>) -> u64 {
    let mut cursor = engine.begin().cursor(table).unwrap();
    cursor.seek(None, true, Direction::Forward).unwrap();
    std::iter::from_fn(|| cursor.next_span(1000).unwrap()).map(|span| u64::from(span.rows)).sum()
}

/// Rows that are stored, of the table and of its indexes, and their bytes.
fn stored(table: &Arc<Table>) -> (u64, u64) {
    let stats = table.stats();
    (stats.rows, stats.data_bytes + stats.index_bytes)
}

/// `every(series)`: after how many steps a series has its next row.
fn run(what: &str, laps: u64, tiers: &str, every: impl Fn(u64) -> u64) {
    let fs = SimFs::new();
    let (mut engine, mut table) = open(&fs);
    if tiers != "[]" {
        engine.drop_table("db/t").unwrap();
        create(&engine, tiers);
        table = engine.table("db/t").unwrap();
    }
    // The slowest series fills its ring once; then all go on.
    let steps = laps * MAX_ROWS;
    let slowest = (0..SERIES).map(&every).max().unwrap();
    let settled = (slowest + 1) * MAX_ROWS;
    let live = SERIES * MAX_ROWS;
    let mut most = (0, 0);
    for step in 0..settled + steps {
        let time = FIRST + step * STEP;
        insert(&engine, &table, (0..SERIES).filter(|series| step % every(*series) == 0).map(|series| (series, time)));
        if step % 50 == 49 {
            engine.flush_table(&table).unwrap();
            engine.merge_table(&table).unwrap();
            table.indexes().iter().for_each(|index| engine.merge_table(&index.table).unwrap());
        }
        if step % 1000 == 999 {
            drop(table);
            engine.close().unwrap();
            drop(engine);
            (engine, table) = open(&fs);
        }
        if step > settled && step % 50 == 49 {
            let (rows, bytes) = stored(&table);
            most = (rows.max(most.0), bytes.max(most.1));
        }
    }
    assert_eq!(rows(&engine, &table), live);
    engine.optimize_table(&table, &mut |_, _| true).unwrap();
    let least = stored(&table);
    println!("{what}: {} rows and {} bytes at most, {least:?} are needed", most.0, most.1);
    assert!(most.0 <= 2 * live + 50 * SERIES + 1024, "{what}: {} rows are stored for {live}", most.0);
    assert!(most.1 <= 3 * least.1, "{what}: {} bytes for {}", most.1, least.1);
}

#[test]
fn series_of_one_speed_take_no_more_space_lap_after_lap() {
    run("one speed", 20, "[]", |_| 1);
}

#[test]
fn series_of_different_speeds_take_no_more_space_lap_after_lap() {
    run("different speeds", 20, "[]", |series| 1 + series % 5);
}

#[test]
fn slow_series_hold_no_space_of_fast_ones() {
    run("a few slow ones", 20, "[]", |series| if series % 10 == 0 { 20 } else { 1 });
}
