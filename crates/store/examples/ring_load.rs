//! What a full ring and tiers add to a row, without a server; for profiling.
//!
//! `cargo run --release -p rrd-store --example ring_load -- [rows] [rows a commit] [rounds] [folder]`
//!
//! Two sensors, each commit of one of them, as bench/ring.py writes them: into a full ring of a million rows and an
//! empty one, with three tiers and without, in turn. Prints the CPU time of the process for a row and how long it took, the
//! best of the rounds.

use std::sync::Arc;
use std::time::Instant;

use rrd_store::fs::os::OsFs;
use rrd_store::schema::Ring;
use rrd_store::{Config, Engine, FlushLog, OnDuplicate, Result, Schema, Table};

const RING: u64 = 1_000_000;
const STEP_S: u64 = 300;
const FIRST: u64 = 1_000_000_000;
const SENSORS: u64 = 2;

const SCHEMA: &str = r#"{"version": 1, "columns": [
    {"id": 0, "name": "ts", "lane": {"int": {"width": 4}}, "nullable": false},
    {"id": 1, "name": "sensor", "lane": {"int": {"width": 4}}, "nullable": false},
    {"id": 2, "name": "a", "lane": "f64", "nullable": false}, {"id": 3, "name": "b", "lane": "f64", "nullable": false},
    {"id": 4, "name": "c", "lane": "f64", "nullable": false}, {"id": 5, "name": "d", "lane": "f64", "nullable": false},
    {"id": 6, "name": "e", "lane": "f64", "nullable": false},
    {"id": 7, "name": "n", "lane": {"int": {"width": 4}}, "nullable": false, "number": {"integer": {"bias": 0}}}],
    "key": [1, 0], "time": {"column": 0, "unit": "s"}}"#;

const TIERS: &str = r#"[{"id": 1, "name": "30m", "bucket": {"fixed": {"length": 1800000000}}, "keep": 31536000000000},
    {"id": 2, "name": "4h", "bucket": {"fixed": {"length": 14400000000}}, "keep": 94608000000000},
    {"id": 3, "name": "1d", "bucket": {"fixed": {"length": 86400000000}}}]"#;

/// A table, and the time of its next row.
struct Way {
    name: &'static str,
    schema: Schema,
    is_full: bool,
    next: u64,
}

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let mut number = |otherwise| args.next().and_then(|a| a.parse().ok()).unwrap_or(otherwise);
    let (rows, batch, rounds) = (number(400_000), number(500), number(3));
    let dir = args.next().unwrap_or_else(|| format!("{}/rrd-ring-load", std::env::temp_dir().display()));
    let mut config = Config::new(&dir);
    config.flush_log = FlushLog::Write;
    config.memtable_bytes = 16 << 20;
    let engine = Engine::open(config, Arc::new(OsFs))?;
    let Ok(plain) = serde_json::from_str::<Schema>(SCHEMA) else { return Ok(()) };
    let Ok(tiers) = serde_json::from_str(TIERS) else { return Ok(()) };
    let ring = Schema { ring: Ring { max_rows: Some(RING), ..Ring::default() }, ..plain.clone() };
    let mut ways = [
        Way { name: "db/full", schema: ring.clone(), is_full: true, next: 0 },
        Way { name: "db/empty", schema: ring, is_full: false, next: 0 },
        Way { name: "db/tiers", schema: Schema { tiers, ..plain.clone() }, is_full: false, next: 0 },
        Way { name: "db/none", schema: plain, is_full: false, next: 0 },
    ];
    for way in &mut ways {
        begin(&engine, way)?;
        if way.is_full {
            load(&engine, way, RING + RING / 8, 500)?;
        }
    }
    let mut best = [(f64::MAX, f64::MAX); 4];
    for _ in 0..rounds {
        for (way, (cpu, wall)) in ways.iter_mut().zip(&mut best) {
            if !way.is_full {
                begin(&engine, way)?;
            }
            let (before, begun) = (cpu_seconds(), Instant::now());
            load(&engine, way, rows, batch)?;
            *cpu = cpu.min((cpu_seconds() - before) / rows as f64 * 1e6);
            *wall = wall.min(begun.elapsed().as_secs_f64() / rows as f64 * 1e6);
        }
    }
    for (way, (cpu, wall)) in ways.iter().zip(best) {
        println!("{:<10} {cpu:.3} us of CPU a row, {wall:.3} us", way.name);
    }
    let [full, empty, tiers, none] = best;
    println!("CPU: empty to full {:.2}, without tiers to with them {:.2}", empty.0 / full.0, none.0 / tiers.0);
    println!("time: empty to full {:.2}, without tiers to with them {:.2}", empty.1 / full.1, none.1 / tiers.1);
    engine.close()
}

fn begin(engine: &Arc<Engine>, way: &mut Way) -> Result<()> {
    let _ = engine.drop_table(way.name);
    way.next = FIRST;
    engine.create_table(way.name, way.schema.clone())
}

fn load(engine: &Arc<Engine>, way: &mut Way, rows: u64, batch: u64) -> Result<()> {
    let table = engine.table(way.name)?;
    let mut row = Vec::new();
    for n in 0..rows / batch {
        let mut txn = engine.begin();
        txn.begin_bulk(&table);
        for i in 0..batch {
            insert(&mut txn, &table, &mut row, way.next + (n / SENSORS * batch + i) * STEP_S, n % SENSORS)?;
        }
        txn.end_bulk(&table)?;
        txn.commit()?;
    }
    way.next += (rows / batch).div_ceil(SENSORS) * batch * STEP_S;
    Ok(())
}

fn insert(txn: &mut rrd_store::Txn, table: &Arc<Table>, row: &mut Vec<u8>, time: u64, sensor: u64) -> Result<()> {
    let layout = table.layout();
    let value = (time / STEP_S * 7919 % 10007) as f64 / 8.0;
    row.clear();
    let mut writer = layout.writer(row);
    writer.set_int(0, time);
    writer.set_int(1, sensor);
    (0..5).for_each(|i| writer.set_f64_bits(2 + i, (value + i as f64).to_bits()));
    writer.set_int(7, time / STEP_S);
    writer.finish();
    txn.insert(table, row, OnDuplicate::Fail).map(|_| ())
}

/// User and system time of this process.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    fields.skip(11).take(2).filter_map(|ticks| ticks.parse::<f64>().ok()).sum::<f64>() / 100.0
}
