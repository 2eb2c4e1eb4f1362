//! How fast aggregates read columns, in bytes of raw values beside memcpy: `cargo bench -p rrd-store`.
//!
//! A million readings of a hundred sensors in one segment, on a file system in memory. `cached`: columns are decoded
//! already, so what is measured are the kernels; `decoded`: nothing is cached, and blocks are read and decoded.

#![expect(missing_docs, reason = "criterion's macro writes a public function")]
#![expect(clippy::expect_used, reason = "a benchmark fails by panicking")]

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use rrd_store::aggregate::{Aggregate, Condition, Group, Query};
use rrd_store::fs::sim::SimFs;
use rrd_store::segment::zone::order_f64;
use rrd_store::{Config, Engine, OnDuplicate, Schema, Table};

const ROWS: u64 = 1_000_000;
const SENSORS: u64 = 100;

const TS: usize = 0;
const SENSOR: usize = 1;
const DATA: usize = 2;
const MAYBE: usize = 3;
const COUNT: usize = 4;

fn schema() -> Schema {
    let text = r#"{"version": 1, "columns": [
        {"id": 0, "name": "ts", "lane": {"int": {"width": 4}}, "nullable": false},
        {"id": 1, "name": "sensor", "lane": {"int": {"width": 4}}, "nullable": false},
        {"id": 2, "name": "data", "lane": "f64", "nullable": false},
        {"id": 3, "name": "maybe", "lane": "f64", "nullable": true},
        {"id": 4, "name": "count", "lane": {"int": {"width": 8}}, "nullable": false}],
        "key": [1, 0], "time": {"column": 0, "unit": "s"}}"#;
    serde_json::from_str(text).expect("a schema")
}

fn table() -> (Arc<Engine>, Arc<Table>) {
    let mut config = Config::new("/rrd");
    config.background = false;
    let engine = Engine::open(config, Arc::new(SimFs::new())).expect("an engine");
    engine.create_table("db/t", schema()).expect("a table");
    let table = engine.table("db/t").expect("the table");
    let layout = table.layout();
    let mut txn = engine.begin();
    txn.begin_bulk(&table);
    let mut random = 0x9E37_79B9_7F4A_7C15u64;
    let mut row = Vec::new();
    for i in 0..ROWS {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let value = (20_000 + random % 4000) as f64 / 100.0;
        row.clear();
        let mut writer = layout.writer(&mut row);
        writer.set_int(TS, 1_700_000_000 + i / SENSORS * 60);
        writer.set_int(SENSOR, i % SENSORS);
        writer.set_f64_bits(DATA, value.to_bits());
        match random >> 32 & 15 {
            0 => writer.set_null(MAYBE),
            _ => writer.set_f64_bits(MAYBE, value.to_bits()),
        }
        writer.set_int(COUNT, random >> 20);
        writer.finish();
        txn.insert(&table, &row, OnDuplicate::Fail).expect("an insert");
    }
    txn.end_bulk(&table).expect("the end");
    txn.commit().expect("a commit");
    engine.optimize_table(&table, &mut |_, _| true).expect("a merge");
    (engine, table)
}

/// Queries that no zone map answers, and how many columns of eight bytes a row each has to read.
fn queries() -> Vec<(&'static str, u64, Query)> {
    let sensor = Group::Column(SENSOR);
    let bucket = |width| Group::Bucket { column: TS, origin: 0, width, towards_zero: false };
    let above = Condition::Range { column: DATA, low: order_f64(220f64.to_bits()), high: u64::MAX, negated: false };
    let query = |conditions: &[&Condition], groups: &[Group], aggregates: &[Aggregate]| Query {
        conditions: conditions.iter().map(|&c| c.clone()).collect(),
        groups: groups.to_vec(),
        aggregates: aggregates.to_vec(),
        ..Query::default()
    };
    vec![
        ("sum of doubles by sensor", 1, query(&[], &[sensor], &[Aggregate::Sum(DATA)])),
        ("sum of doubles with NULLs by sensor", 1, query(&[], &[sensor], &[Aggregate::Sum(MAYBE)])),
        ("max of doubles by sensor", 1, query(&[], &[sensor], &[Aggregate::Max(DATA)])),
        ("sum of integers by sensor", 1, query(&[], &[sensor], &[Aggregate::Sum(COUNT)])),
        ("max of integers by sensor", 1, query(&[], &[sensor], &[Aggregate::Max(COUNT)])),
        ("sum by hour of each sensor", 1, query(&[], &[sensor, bucket(3600)], &[Aggregate::Sum(DATA)])),
        ("count where half of the rows hold", 1, query(&[&above], &[], &[Aggregate::Count])),
        ("sum where half of the rows hold", 2, query(&[&above], &[], &[Aggregate::Sum(MAYBE)])),
    ]
}

fn aggregates(criterion: &mut Criterion) {
    let (engine, table) = table();
    let mut group = criterion.benchmark_group("aggregate");
    group.warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(2)).sample_size(20);
    group.throughput(Throughput::Bytes(8 * ROWS));
    let raw: Vec<u64> = (0..ROWS).collect();
    group.bench_function("memcpy", |bench| bench.iter(|| black_box(&raw).clone()));
    for (name, columns, query) in queries() {
        group.throughput(Throughput::Bytes(8 * ROWS * columns));
        for (state, cache_bytes) in [("cached", 1 << 30), ("decoded", 0)] {
            engine.set_cache_bytes(cache_bytes);
            group.bench_function(BenchmarkId::new(name, state), |bench| {
                bench.iter(|| engine.begin().aggregate(&table, black_box(&query), &|| false).expect("an answer"));
            });
        }
    }
    group.finish();
}

criterion_group!(benches, aggregates);
criterion_main!(benches);
