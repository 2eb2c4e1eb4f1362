//! Loads sensor readings into a table without tiers and one with three, without a server; for profiling.
//!
//! `cargo run --release -p rrd-store --example tier_load -- [rows] [folder]`

use std::sync::Arc;
use std::time::Instant;

use rrd_store::fs::os::OsFs;
use rrd_store::{Config, Direction, Engine, FlushLog, OnDuplicate, Result, Schema, Table};

const SENSORS: u64 = 1000;
/// Rows of a transaction.
const BATCH: u64 = 500;

const SCHEMA: &str = r#"{"version": 1, "columns": [
    {"id": 0, "name": "ts", "lane": {"int": {"width": 4}}, "nullable": false},
    {"id": 1, "name": "sensor", "lane": {"int": {"width": 4}}, "nullable": false},
    {"id": 2, "name": "a", "lane": "f64", "nullable": true}, {"id": 3, "name": "b", "lane": "f64", "nullable": true},
    {"id": 4, "name": "c", "lane": {"int": {"width": 4}}, "nullable": true, "number": {"integer": {"bias": 2147483648}}}],
    "key": [1, 0], "time": {"column": 0, "unit": "s"}}"#;

const TIERS: &str = r#"[{"id": 1, "name": "30m", "bucket": {"fixed": {"length": 1800000000}}},
    {"id": 2, "name": "4h", "bucket": {"fixed": {"length": 14400000000}}},
    {"id": 3, "name": "1d", "bucket": {"fixed": {"length": 86400000000}}}]"#;

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let rows: u64 = args.next().and_then(|a| a.parse().ok()).unwrap_or(2_000_000);
    let dir = args.next().unwrap_or_else(|| format!("{}/rrd-tier-load", std::env::temp_dir().display()));
    let mut config = Config::new(&dir);
    config.flush_log = FlushLog::EverySecond;
    let engine = Engine::open(config, Arc::new(OsFs))?;
    let Ok(plain) = serde_json::from_str::<Schema>(SCHEMA) else { return Ok(()) };
    let Ok(tiers) = serde_json::from_str(TIERS) else { return Ok(()) };
    for (name, schema) in [("db/plain", plain.clone()), ("db/tiered", Schema { tiers, ..plain })] {
        for is_bulk in [false, true] {
            let _ = engine.drop_table(name);
            engine.create_table(name, schema.clone())?;
            let table = engine.table(name)?;
            let start = Instant::now();
            load(&engine, &table, rows, is_bulk)?;
            report(&format!("{name}, {}", if is_bulk { "bulk" } else { "batches" }), rows, start);
            let start = Instant::now();
            engine.flush_table(&table)?;
            report("  rest flushed", rows, start);
        }
        let table = engine.table(name)?;
        let start = Instant::now();
        let late = rows / 100;
        load_late(&engine, &table, late)?;
        engine.flush_table(&table)?;
        report("  late rows, flushed", late, start);
        for tier in table.tiers().iter() {
            let start = Instant::now();
            let mut cursor = engine.begin().cursor(&tier.table)?;
            cursor.seek(None, true, Direction::Forward)?;
            let mut seen = 0;
            while let Some(span) = cursor.next_span(1 << 20)? {
                seen += u64::from(span.rows);
            }
            report(&format!("  {} read", tier.def.name), seen, start);
        }
    }
    engine.close()
}

fn load(engine: &Arc<Engine>, table: &Arc<Table>, rows: u64, is_bulk: bool) -> Result<()> {
    let mut txn = engine.begin();
    if is_bulk {
        txn.begin_bulk(table);
    }
    for i in 0..rows {
        insert(&mut txn, table, 1_700_000_000 + i / SENSORS * 60, i % SENSORS, i)?;
        if !is_bulk && i % BATCH == BATCH - 1 {
            txn.commit()?;
        }
    }
    if is_bulk {
        txn.end_bulk(table)?;
    }
    txn.commit()
}

fn load_late(engine: &Arc<Engine>, table: &Arc<Table>, rows: u64) -> Result<()> {
    let mut txn = engine.begin();
    for i in 0..rows {
        insert(&mut txn, table, 1_700_000_030 + i / SENSORS * 420, i * 7 % SENSORS, i)?;
        if i % BATCH == BATCH - 1 {
            txn.commit()?;
        }
    }
    txn.commit()
}

fn insert(txn: &mut rrd_store::Txn, table: &Arc<Table>, time: u64, sensor: u64, n: u64) -> Result<()> {
    let layout = table.layout();
    let mut row = Vec::new();
    let noise = n.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 50;
    let mut writer = layout.writer(&mut row);
    writer.set_int(0, time);
    writer.set_int(1, sensor);
    writer.set_f64_bits(2, (noise as f64 / 100.0).to_bits());
    writer.set_f64_bits(3, ((n / SENSORS) as f64).to_bits());
    writer.set_int(4, (1 << 31) + noise);
    writer.finish();
    txn.insert(table, &row, OnDuplicate::Replace).map(|_| ())
}

fn report(what: &str, rows: u64, start: Instant) {
    let seconds = start.elapsed().as_secs_f64();
    println!("{what}: {rows} rows in {seconds:.2} s, {:.2} M rows/s", rows as f64 / seconds / 1e6);
}
