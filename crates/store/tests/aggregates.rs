//! Aggregates inside the store beside the same computed row by row, over random tables: several segments that overlap,
//! memtables, own writes, private segments, tombstones, old snapshots, rings, NULLs, all lanes.
//!
//! `AGGREGATE_SEEDS=n` runs more rounds, `AGGREGATE_SEED=n` one.

#![expect(clippy::expect_used, reason = "a test fails by panicking")]

#[path = "aggregates/oracle.rs"]
mod oracle;

use std::sync::Arc;

use rrd_store::fs::sim::SimFs;
use rrd_store::schema::{Number, Ring};
use rrd_store::{Config, Engine, OnDuplicate, RowLayout, Schema, Table, Txn};

/// The clock of the rings.
const NOW: u64 = 2_000;

struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % n.max(1)
    }
}

/// All lanes behind a series and a time; `key` and `time` as the case has it.
fn schema(key: &str, time: Option<u16>) -> Schema {
    let text = r#"{"version": 1, "columns": [
        {"id": 0, "name": "series", "lane": {"int": {"width": 4}}, "nullable": false},
        {"id": 1, "name": "ts", "lane": {"int": {"width": 4}}, "nullable": false},
        {"id": 2, "name": "name", "lane": "bytes", "nullable": false},
        {"id": 3, "name": "f64", "lane": "f64", "nullable": false},
        {"id": 4, "name": "maybe", "lane": "f64", "nullable": true},
        {"id": 5, "name": "f32", "lane": "f32", "nullable": true},
        {"id": 6, "name": "text", "lane": "bytes", "nullable": true},
        {"id": 7, "name": "big", "lane": {"int": {"width": 8}}, "nullable": true},
        {"id": 8, "name": "decimal", "lane": {"int": {"width": 4}}, "nullable": true}],
        "key": [], "time": null}"#;
    let text = text.replace(r#""key": []"#, &format!(r#""key": {key}"#));
    let mut schema: Schema = serde_json::from_str(&text).expect("a schema");
    schema.columns[8].number = Some(Number::Decimal { precision: 8, scale: 2 });
    schema.columns[7].number = Some(Number::Integer { bias: 1 << 63 });
    if let Some(column) = time {
        let text = format!(r#"{{"column": {column}, "unit": "s"}}"#);
        schema.time = Some(serde_json::from_str(&text).expect("a time"));
        schema.chunk_length = Some(200);
    }
    schema
}

fn random_row(random: &mut Random, layout: &RowLayout, now: u64) -> Vec<u8> {
    let mut row = Vec::new();
    let mut writer = layout.writer(&mut row);
    let text = |random: &mut Random| (0..random.below(12)).map(|_| b'a' + random.below(2) as u8).collect::<Vec<u8>>();
    writer.set_int(0, random.below(5));
    writer.set_int(1, now.saturating_sub(random.below(30) * random.below(10)));
    writer.push_bytes(2, &[b'a' + random.below(3) as u8][..random.below(2) as usize]);
    writer.set_f64_bits(3, (random.below(1000) as f64 / 8.0 - 20.0).to_bits());
    match random.below(8) {
        0 => writer.set_null(4),
        1 => writer.set_f64_bits(4, (-0.0f64).to_bits()),
        n => writer.set_f64_bits(4, (n as f64 / 10.0).to_bits()),
    }
    match random.below(4) {
        0 => writer.set_null(5),
        n => writer.set_f32_bits(5, (n as f32 * 1.5).to_bits()),
    }
    match random.below(4) {
        0 => writer.set_null(6),
        _ => writer.push_bytes(6, &text(random)),
    }
    match random.below(6) {
        0 => writer.set_null(7),
        n => writer.set_int(7, u64::MAX - n * random.below(3)),
    }
    match random.below(6) {
        0 => writer.set_null(8),
        1 => writer.set_int(8, !(1 << 31 | random.below(900_000) << 8 | random.below(100)) & 0xffff_ffff),
        _ => writer.set_int(8, 1 << 31 | random.below(900_000) << 8 | random.below(100)),
    }
    writer.finish();
    row
}

/// Writes some rows; errors of duplicates do not matter.
fn write(random: &mut Random, txn: &mut Txn, table: &Arc<Table>, now: &mut u64) {
    let layout = table.layout();
    for _ in 0..random.below(60) {
        *now += random.below(2);
        let row = random_row(random, &layout, *now);
        let mut key = Vec::new();
        layout.push_key(&row, &mut key);
        let mut found = Vec::new();
        if txn.read_latest(table, &key, &mut found).expect("a look-up") {
            match random.below(3) {
                0 => txn.delete(table, &key).expect("a delete"),
                _ => txn.update(table, &key, &row).expect("an update"),
            }
        } else {
            txn.insert(table, &row, OnDuplicate::Fail).expect("an insert");
        }
    }
    txn.take_losses();
}

/// A bulk statement of new rows.
fn write_bulk(random: &mut Random, txn: &mut Txn, table: &Arc<Table>, now: &mut u64) {
    let layout = table.layout();
    let savepoint = txn.savepoint();
    txn.begin_bulk(table);
    let mut result = Ok(());
    for n in 0..100 + random.below(200) {
        *now += u64::from(n % 8 == 0);
        let row = random_row(random, &layout, *now);
        result = result.and_then(|()| txn.insert(table, &row, OnDuplicate::Fail));
    }
    if result.and_then(|()| txn.end_bulk(table)).is_err() {
        txn.rollback_to(savepoint).expect("a rollback");
    }
    txn.release(savepoint);
}

fn open(fs: &SimFs) -> Arc<Engine> {
    let mut config = Config::new("/rrd");
    config.background = false;
    config.clock_micros = Some(NOW as i64 * 1_000_000);
    config.cache_bytes = 200_000;
    config.tuning.bulk_run_bytes = 4_000;
    config.tuning.bulk_min_bytes = 2_000;
    config.tuning.smallest_batch = 4;
    config.tuning.txn_spill_bytes = 6_000;
    config.tuning.group_rows = 16;
    config.tuning.part_rows = 40;
    config.tuning.rows_of_bucket = 0;
    Engine::open(config, Arc::new(fs.clone())).expect("an engine")
}

/// Returns how many queries a tier answered.
fn run(seed: u64, schema: &Schema) -> u64 {
    let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let fs = SimFs::new();
    let engine = open(&fs);
    engine.create_table("db/t", schema.clone()).expect("a table");
    let table = engine.table("db/t").expect("the table");
    let mut now = 300;
    let mut old: Vec<Txn> = Vec::new();
    for _ in 0..25 {
        let mut txn = engine.begin();
        match random.below(3) {
            0 => write_bulk(&mut random, &mut txn, &table, &mut now),
            _ => write(&mut random, &mut txn, &table, &mut now),
        }
        if random.below(3) == 0 {
            oracle::compare(&mut txn, &table, &mut |n| random.below(n));
        }
        match random.below(6) {
            0 => txn.rollback(),
            _ => txn.commit().expect("a commit"),
        }
        match random.below(10) {
            0..=4 => engine.flush_table(&table).expect("a flush"),
            5 => engine.merge_table(&table).expect("a merge"),
            6 => engine.optimize_table(&table, &mut |_, _| true).expect("a merge of all"),
            7 if old.len() < 3 => {
                let mut txn = engine.begin();
                txn.take_snapshot();
                old.push(txn);
            }
            8 => old.clear(),
            _ => {}
        }
        oracle::compare(&mut engine.begin(), &table, &mut |n| random.below(n));
        if let Some(txn) = old.last_mut() {
            oracle::compare(txn, &table, &mut |n| random.below(n));
        }
    }
    engine.counters().into_iter().find(|(name, _)| *name == "tier_answers").map_or(0, |(_, n)| n)
}

fn run_all(schema: &Schema) -> u64 {
    let number = |name| std::env::var(name).ok().and_then(|n| n.parse::<u64>().ok());
    let seeds = match number("AGGREGATE_SEED") {
        Some(seed) => seed..seed + 1,
        None => 1..number("AGGREGATE_SEEDS").unwrap_or(12) + 1,
    };
    let mut tier_answers = 0;
    for seed in seeds {
        let result = std::panic::catch_unwind(|| run(seed, schema));
        match result {
            Ok(answers) => tier_answers += answers,
            Err(panic) => {
                eprintln!("replay with AGGREGATE_SEED={seed}");
                std::panic::resume_unwind(panic);
            }
        }
    }
    tier_answers
}

fn with_tiers(schema: Schema) -> Schema {
    let tiers = r#"[{"id": 1, "name": "10s", "bucket": {"fixed": {"length": 10000000}}},
        {"id": 2, "name": "60s", "bucket": {"fixed": {"length": 60000000}}}]"#;
    let mut schema = Schema { tiers: serde_json::from_str(tiers).expect("tiers"), ..schema };
    schema.columns[0].number = Some(Number::Integer { bias: 0 });
    schema.columns[1].number = Some(Number::Integer { bias: 0 });
    schema
}

/// What a tier answers is what the rows do, whatever was written late, is not flushed, or is behind the horizon.
#[test]
fn tiers_answer_as_the_rows_do() {
    let age = Ring { retention: Some(150_000_000), ..Ring::default() };
    let rows = Ring { max_rows: Some(400), ..Ring::default() };
    for (key, ring) in
        [("[0, 1]", Ring::default()), ("[0, 1]", age), ("[0, 1]", rows), ("[0, 1, 2]", age), ("[1, 2, 0]", rows)]
    {
        let answers = run_all(&with_tiers(Schema { ring, ..schema(key, Some(1)) }));
        println!("{key}, {ring:?}: {answers} answers from tiers");
        assert!(answers > 20, "{key}, {ring:?}: {answers} answers from tiers");
    }
}

/// A series with a ring of its own may have lost rows of a bucket.
#[test]
fn a_ring_for_each_series_is_answered_from_rows() {
    let ring = Ring { series_max_rows: Some(30), ..Ring::default() };
    run_all(&with_tiers(Schema { ring, ..schema("[0, 1]", Some(1)) }));
}

#[test]
fn series_and_time() {
    run_all(&schema("[0, 1]", Some(1)));
}

#[test]
fn time_between_the_other_parts_of_the_key() {
    run_all(&schema("[0, 1, 2]", Some(1)));
}

#[test]
fn time_before_all_others() {
    run_all(&schema("[1, 2, 0]", Some(1)));
}

#[test]
fn a_key_of_strings_and_no_time() {
    run_all(&schema("[2, 1]", None));
}

#[test]
fn a_ring_of_rows() {
    let ring = Ring { max_rows: Some(150), ..Ring::default() };
    run_all(&Schema { ring, ..schema("[0, 1]", Some(1)) });
}

#[test]
fn a_ring_of_age() {
    let ring = Ring { retention: Some(150_000_000), ..Ring::default() };
    run_all(&Schema { ring, ..schema("[2, 0, 1]", Some(1)) });
}

#[test]
fn a_ring_for_each_series() {
    let ring = Ring { series_max_rows: Some(30), ..Ring::default() };
    run_all(&Schema { ring, ..schema("[0, 1]", Some(1)) });
}

#[test]
fn a_ring_without_time() {
    let ring = Ring { max_rows: Some(150), ..Ring::default() };
    run_all(&Schema { ring, ..schema("[1, 0, 2]", None) });
}
