//! Times of aggregate queries inside the store, without a server.
//!
//! `cargo run --release -p rrd-store --example aggregates -- [rows] [folder] [threads] [sealed|loaded|trickle] [part of a query's name]`
//!
//! Readings of 1000 sensors, a step of 300 s, two-decimal random walks, in the order of their times. `sealed`: merged as by
//! OPTIMIZE TABLE; `loaded`: as a bulk statement leaves them; `trickle`: the last tenth comes in commits of 1000 rows.
//! The folder is kept: a second run finds the rows there. Each query runs some times; the first with an empty cache.

use std::sync::Arc;
use std::time::Instant;

use rrd_store::aggregate::{Aggregate, Condition, Group, Query};
use rrd_store::fs::os::OsFs;
use rrd_store::segment::zone::order_f64;
use rrd_store::{Config, Engine, OnDuplicate, Result, Schema, Table};

const SENSORS: u64 = 1000;
const STEP: u64 = 300;
const FIRST: u64 = 1_700_000_100;
/// Of an INT: what makes its lane unsigned.
const SIGN: u64 = 1 << 31;
const RUNS: usize = 7;

const SCHEMA: &str = r#"{"version": 1, "columns": [
    {"id": 0, "name": "ts", "lane": {"int": {"width": 4}}, "nullable": false},
    {"id": 1, "name": "sensor", "lane": {"int": {"width": 4}}, "nullable": false},
    {"id": 2, "name": "data", "lane": "f64", "nullable": false}],
    "key": [1, 0], "time": {"column": 0, "unit": "s", "bias": 2147483648}}"#;

const TS: usize = 0;
const SENSOR: usize = 1;
const DATA: usize = 2;

fn load(engine: &Arc<Engine>, table: &Arc<Table>, rows: u64, state: &str) -> Result<()> {
    let layout = table.layout();
    let mut walks = vec![20_000i64; SENSORS as usize];
    let mut random = 0x9E37_79B9_7F4A_7C15u64;
    let mut row = Vec::new();
    let mut txn = engine.begin();
    txn.begin_bulk(table);
    let trickle_from = if state == "trickle" { rows - rows / 10 } else { rows };
    for i in 0..rows {
        if i == trickle_from {
            txn.end_bulk(table)?;
        }
        if i >= trickle_from && i % SENSORS == 0 {
            txn.commit()?;
            txn = engine.begin();
        }
        let sensor = i % SENSORS;
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let walk = &mut walks[sensor as usize];
        *walk += (random % 121) as i64 - 60;
        row.clear();
        let mut writer = layout.writer(&mut row);
        writer.set_int(TS, SIGN + FIRST + i / SENSORS * STEP);
        writer.set_int(SENSOR, SIGN + sensor);
        writer.set_f64_bits(DATA, (*walk as f64 / 100.0).to_bits());
        writer.finish();
        txn.insert(table, &row, OnDuplicate::Fail)?;
    }
    txn.end_bulk(table)?;
    txn.commit()?;
    if state == "sealed" {
        engine.optimize_table(table, &mut |_, _| true)?;
    }
    Ok(())
}

/// Each query, and how long DuckDB 1.4 takes for it on two cores of this kind, if it was measured.
fn queries(rows: u64) -> Vec<(&'static str, Option<f64>, Query)> {
    let last = SIGN + FIRST + (rows / SENSORS - 1) * STEP;
    let times = |from: u64, to: u64| Condition::Range { column: TS, low: from, high: to, negated: false };
    let hour = Group::Bucket { column: TS, origin: SIGN, width: 3600, towards_zero: true };
    let statistics = vec![Aggregate::Count, Aggregate::Sum(DATA), Aggregate::Max(DATA)];
    let average = vec![Aggregate::Sum(DATA)];
    let query = |conditions, groups: &[Group], aggregates: &[Aggregate]| Query {
        conditions,
        groups: groups.to_vec(),
        aggregates: aggregates.to_vec(),
        ..Query::default()
    };
    let ten = Condition::In { column: SENSOR, values: (0..10).map(|i| SIGN + i * 97).collect(), negated: false };
    let sensor = Group::Column(SENSOR);
    let key = |sensor: u64| ((SIGN + sensor) as u32).to_be_bytes().to_vec();
    let one = Query {
        low: Some(key(500)),
        high: Some(key(501)),
        ..query(vec![times(last - 86_400 + 1, last)], &[hour], &average)
    };
    let warm = Condition::Range { column: DATA, low: order_f64(210f64.to_bits()), high: u64::MAX, negated: false };
    vec![
        ("all rows", Some(28.0), query(vec![], &[], &statistics)),
        ("by sensor", Some(49.0), query(vec![], &[sensor], &statistics)),
        ("all by hour, 12 h", Some(13.0), query(vec![times(last - 43_200 + 1, last)], &[sensor, hour], &average)),
        ("ten by hour, a day", None, query(vec![times(last - 86_400 + 1, last), ten], &[sensor, hour], &average)),
        ("one by hour, a day", None, one),
        ("one hour of all", None, query(vec![times(last - 3600 + 1, last)], &[sensor], &statistics)),
        (
            "an hour in the middle",
            None,
            query(vec![times(last - 2_000_000 - 3600 + 1, last - 2_000_000)], &[], &statistics),
        ),
        ("newest of all", None, query(vec![], &[sensor], &[Aggregate::Max(TS)])),
        ("by hour", None, query(vec![], &[hour], &statistics)),
        ("by sensor and hour", None, query(vec![], &[sensor, hour], &statistics)),
        ("where data > 210", None, query(vec![warm.clone()], &[], &statistics)),
        ("where data > 210 by sensor", None, query(vec![warm], &[sensor], &statistics)),
    ]
}

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let rows: u64 = args.next().and_then(|a| a.parse().ok()).unwrap_or(10_000_000);
    let dir = args.next().unwrap_or_else(|| format!("{}/rrd-aggregates", std::env::temp_dir().display()));
    let threads: usize = args.next().and_then(|a| a.parse().ok()).unwrap_or(2);
    let state = args.next().unwrap_or_else(|| "sealed".into());
    let mut config = Config::new(&dir);
    config.cache_bytes = 1 << 30;
    let engine = Engine::open(config, Arc::new(OsFs))?;
    let name = format!("db/{state}{rows}");
    if engine.table(&name).is_err() {
        let schema: Schema = serde_json::from_str(SCHEMA).map_err(|e| rrd_store::Error::InvalidInput(e.to_string()))?;
        engine.create_table(&name, schema)?;
        let start = Instant::now();
        load(&engine, &engine.table(&name)?, rows, &state)?;
        println!("loaded in {:.1} s", start.elapsed().as_secs_f64());
    }
    let table = engine.table(&name)?;
    let stats = table.stats();
    println!(
        "{rows} rows, {} segments, {:.3} bytes a row, {} bytes in memory, {threads} threads; ms",
        stats.segments,
        stats.data_bytes as f64 / rows as f64,
        stats.memtable_bytes
    );
    println!("{:28} {:>8} {:>8} {:>8} {:>8} {:>9}", "query", "cold", "hot", "best", "DuckDB", "groups");
    let only = args.next().unwrap_or_default();
    for (name, target, mut query) in queries(rows).into_iter().filter(|(name, ..)| name.contains(&only)) {
        query.threads = threads;
        let mut times = Vec::new();
        let mut groups = 0;
        engine.set_cache_bytes(0);
        engine.set_cache_bytes(1 << 30);
        for _ in 0..RUNS {
            let start = Instant::now();
            groups = engine.begin().aggregate(&table, &query, &|| false)?.len();
            times.push(start.elapsed().as_secs_f64() * 1e3);
        }
        let cold = times[0];
        times.remove(0);
        times.sort_by(f64::total_cmp);
        let target = target.map_or("-".into(), |t| format!("{t:.1}"));
        println!("{name:28} {cold:8.2} {:8.2} {:8.2} {target:>8} {groups:9}", times[times.len() / 2], times[0]);
    }
    engine.close()
}
