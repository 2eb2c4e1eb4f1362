//! What tiers take while they are brought up to date does not grow with what has changed.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::sync::Arc;

use rrd_store::fs::sim::SimFs;
use rrd_store::{Config, Engine, OnDuplicate, Schema, Table};

#[path = "common/allocated.rs"]
mod allocated;

/// Bytes that something takes beyond what it leaves behind or found.
fn most_of(act: impl FnOnce()) -> usize {
    let (before, most, after) = allocated::of(act);
    most.saturating_sub(before.max(after))
}

fn create(source: &str, more: &str) -> (Arc<Engine>, Arc<Table>) {
    let schema = format!(
        r#"{{"version": 1, "columns": [
        {{"id": 0, "name": "series", "lane": {{"int": {{"width": 2}}}}, "nullable": false}},
        {{"id": 1, "name": "ts", "lane": {{"int": {{"width": 4}}}}, "nullable": false}},
        {{"id": 2, "name": "f", "lane": "f64", "nullable": true {source}}}],
        "key": [0, 1], "time": {{"column": 1, "unit": "s"}} {more},
        "tiers": [{{"id": 1, "name": "1s", "bucket": {{"fixed": {{"length": 1000000}}}}}}]}}"#
    );
    let schema: Schema = serde_json::from_str(&schema).unwrap();
    let mut config = Config::new("/rrd");
    config.background = false;
    config.cache_bytes = 1 << 20;
    config.tuning.bulk_run_bytes = 2 << 20;
    let engine = Engine::open(config, Arc::new(SimFs::new())).unwrap();
    engine.create_table("db/t", schema).unwrap();
    let table = engine.table("db/t").unwrap();
    (engine, table)
}

fn insert(engine: &Arc<Engine>, table: &Arc<Table>, rows: impl Iterator<Item = (u64, u64)>) {
    let layout = table.layout();
    let mut txn = engine.begin();
    for (series, time) in rows {
        let mut row = Vec::new();
        let mut writer = layout.writer(&mut row);
        writer.set_int(0, series);
        writer.set_int(1, time);
        writer.set_int(2, 1.5f64.to_bits());
        writer.finish();
        txn.insert(table, &row, OnDuplicate::Fail).unwrap();
    }
    txn.commit().unwrap();
}

/// 82 bytes for each series and bucket: 8.6 GB for a year of 1,000 series at 5 minutes, again at each start. And one row in a
/// table with HEARTBEAT='40d' and a tier of a second took 1.3 GB.
#[test]
fn changed_buckets_are_not_listed_all_at_once() {
    let (engine, table) = create("", "");
    const ROWS: u64 = 400_000;
    insert(&engine, &table, (0..ROWS).map(|n| (n / 1000, n % 1000)));
    engine.flush_table(&table).unwrap();
    assert_eq!(table.tiers()[0].table.stats().rows, ROWS);
    let mut txn = engine.begin();
    assert_eq!(txn.delete_times(&table, None).unwrap(), Some(ROWS));
    txn.commit().unwrap();
    let taken = most_of(|| engine.flush_table(&table).unwrap());
    println!("{taken} bytes, {} a bucket", taken as u64 / ROWS);
    assert!(taken < 30 * ROWS as usize, "{taken} bytes for {ROWS} buckets");

    let source = r#", "source": {"kind": "gauge", "heartbeat": 500000000000}"#;
    let (engine, table) = create(source, r#", "step": 1000000"#);
    let taken = most_of(|| {
        insert(&engine, &table, [(1, 1_000_000_000)].into_iter());
        engine.flush_table(&table).unwrap();
    });
    println!("{taken} bytes for a million buckets");
    assert!(taken < 10 << 20, "{taken} bytes for a million buckets");
}
