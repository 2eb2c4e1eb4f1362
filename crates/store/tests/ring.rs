//! Rings against a simple model: after every commit exactly the rows are there that the model says, through the table,
//! through an index, in open snapshots, and after flushes, merges and restarts.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::collections::BTreeMap;
use std::sync::Arc;

use rrd_store::cursor::Direction;
use rrd_store::fs::sim::SimFs;
use rrd_store::schema::Ring;
use rrd_store::{Config, Engine, OnDuplicate, Schema, Txn};

/// The clock says this time; some readings are from the future.
const NOW: u64 = 10_000;

const SERIES: u64 = 4;

fn schema(ring: Ring, has_time: bool) -> Schema {
    let text = r#"{"version": 1, "columns": [
        {"id": 0, "name": "series", "lane": {"int": {"width": 4}}, "nullable": false},
        {"id": 1, "name": "ts", "lane": {"int": {"width": 4}}, "nullable": false},
        {"id": 2, "name": "v", "lane": {"int": {"width": 4}}, "nullable": false}],
        "key": [0, 1], "time": {"column": 1, "unit": "s"}, "chunk_length": 64,
        "indexes": [{"id": 1, "name": "by_v", "unique": false, "columns": [{"column": 2}]},
                    {"id": 2, "name": "u", "unique": true, "columns": [{"column": 1}, {"column": 0}]}]}"#;
    let mut schema: Schema = serde_json::from_str(text).unwrap();
    schema.ring = ring;
    if !has_time {
        schema.time = None;
        schema.chunk_length = None;
    }
    schema
}

type Rows = BTreeMap<(u64, u64), u64>;

/// What a ring is, in the simplest words.
#[derive(Clone, Default)]
struct Model {
    rows: Rows,
    /// (time, series, time): rows before it are gone.
    horizon: (u64, u64, u64),
    newest: u64,
    ring: Ring,
    /// (series, time of the oldest row that is left).
    floors: Vec<(u64, u64)>,
    has_time: bool,
}

impl Model {
    fn position(&self, key: (u64, u64)) -> (u64, u64, u64) {
        (if self.has_time { key.1 } else { 0 }, key.0, key.1)
    }

    fn settle(&mut self, touched: &[u64]) {
        self.newest = self.rows.keys().map(|(_, time)| *time).fold(self.newest, u64::max);
        if let Some(max) = self.ring.series_max_rows {
            for &series in touched {
                let keys: Vec<_> = self.rows.range((series, 0)..=(series, u64::MAX)).map(|(k, _)| *k).collect();
                let leaving = keys.len().saturating_sub(max as usize);
                keys[..leaving].iter().for_each(|key| _ = self.rows.remove(key));
                if leaving > 0 {
                    self.floors.push((series, keys[leaving].1));
                }
            }
        }
        if let Some(retention) = self.ring.retention {
            let oldest = self.newest.min(NOW).saturating_sub(retention / 1_000_000);
            self.horizon = self.horizon.max((oldest, 0, 0));
            self.forget();
        }
        if let Some(max) = self.ring.max_rows {
            let mut positions: Vec<_> = self.rows.keys().map(|key| self.position(*key)).collect();
            positions.sort_unstable();
            let leaving = positions.len().saturating_sub(max as usize);
            if leaving > 0 {
                let last = positions[leaving - 1];
                self.horizon = self.horizon.max((last.0, last.1, last.2 + 1));
                self.forget();
            }
        }
    }

    fn forget(&mut self) {
        let (horizon, has_time) = (self.horizon, self.has_time);
        self.rows.retain(|key, _| (if has_time { key.1 } else { 0 }, key.0, key.1) >= horizon);
    }

    fn refuses(&self, key: (u64, u64)) -> bool {
        self.position(key) < self.horizon
            || self.floors.iter().any(|(series, floor)| *series == key.0 && key.1 < *floor)
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % n
    }
}

fn read(txn: &mut Txn, engine: &Arc<Engine>, index: Option<usize>) -> Rows {
    let table = engine.table("db/t").unwrap();
    let mut cursor = match index {
        None => txn.cursor(&table).unwrap(),
        Some(number) => txn.index_cursor(&table, number).unwrap(),
    };
    let direction = if index == Some(1) { Direction::Backward } else { Direction::Forward };
    cursor.seek(None, true, direction).unwrap();
    let layout = table.layout();
    let mut rows = Rows::new();
    while let Some(span) = cursor.next_span(1000).unwrap() {
        for n in 0..span.rows {
            let mut row = Vec::new();
            span.group.push_row(span.row(n), &mut row).unwrap();
            let view = layout.view(&row);
            assert!(rows.insert((view.int(0), view.int(1)), view.int(2)).is_none(), "a row twice");
        }
    }
    rows
}

fn key_of((series, time): (u64, u64)) -> Vec<u8> {
    [(series as u32).to_be_bytes(), (time as u32).to_be_bytes()].concat()
}

fn open(fs: &Arc<SimFs>) -> Arc<Engine> {
    let mut config = Config::new("/data/rrd");
    config.background = false;
    config.tuning.ring_ahead = 7;
    config.tuning.chunk_least_rows = 30;
    config.tuning.sparse_chunks = 3;
    config.tuning.smallest_batch = 1;
    config.clock_micros = Some(NOW as i64 * 1_000_000);
    Engine::open(config, fs.clone()).unwrap()
}

fn put(txn: &mut Txn, engine: &Arc<Engine>, model: &mut Model, key: (u64, u64), v: u64) {
    let table = engine.table("db/t").unwrap();
    let mut row = Vec::new();
    let layout = table.layout();
    let mut writer = layout.writer(&mut row);
    writer.set_int(0, key.0);
    writer.set_int(1, key.1);
    writer.set_int(2, v);
    writer.finish();
    let refused = model.refuses(key);
    match model.rows.get(&key) {
        Some(_) => {
            txn.end_bulk(&table).unwrap();
            txn.update(&table, &key_of(key), &row).unwrap();
        }
        None => {
            if v % 2 == 0 {
                txn.begin_bulk(&table);
            }
            let write = |out: &mut Vec<u8>| {
                out.extend_from_slice(&row);
                Ok(())
            };
            if !txn.append(&table, write).unwrap() {
                txn.insert(&table, &row, OnDuplicate::Fail).unwrap();
            }
        }
    }
    assert_eq!(txn.take_losses().iter().map(|loss| loss.rows).sum::<u64>(), u64::from(refused), "{key:?}");
    if !refused {
        model.rows.insert(key, v);
    }
}

fn run(seed: u64, ring: Ring, has_time: bool) {
    // Tables without indexes have batches.
    run_with(seed, schema(ring, has_time), &[None, Some(0), Some(1)]);
    run_with(seed, Schema { indexes: Vec::new(), ..schema(ring, has_time) }, &[None]);
}

fn run_with(seed: u64, schema: Schema, indexes: &[Option<usize>]) {
    let (ring, has_time) = (schema.ring, schema.time.is_some());
    let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let fs = Arc::new(SimFs::new());
    let mut engine = open(&fs);
    engine.create_table("db/t", schema).unwrap();
    let mut model = Model { ring, has_time, ..Model::default() };
    let mut now = 1000;
    let mut snapshots: Vec<(Txn, Rows)> = Vec::new();
    for step in 0..150 {
        let mut txn = engine.begin();
        let mut touched = Vec::new();
        let mut removed = false;
        for _ in 0..random.below(12) {
            let series = random.below(SERIES);
            let time = match random.below(20) {
                0..=12 => {
                    now += random.below(3);
                    now
                }
                13..=17 => now.saturating_sub(random.below(150)),
                18 => now.saturating_sub(random.below(900)),
                _ => now + random.below(20_000),
            };
            let keys: Vec<_> = model.rows.keys().copied().collect();
            if random.below(6) == 0 && !keys.is_empty() {
                let key = keys[random.below(keys.len() as u64) as usize];
                let table = engine.table("db/t").unwrap();
                txn.end_bulk(&table).unwrap();
                txn.delete(&table, &key_of(key)).unwrap();
                model.rows.remove(&key);
                touched.push(key.0);
                removed = true;
            } else {
                put(&mut txn, &engine, &mut model, (series, time), step);
                touched.push(series);
            }
        }
        txn.end_bulk(&engine.table("db/t").unwrap()).unwrap();
        txn.commit().unwrap();
        if !touched.is_empty() || removed {
            model.settle(&touched);
        }
        drop(txn);
        let table = engine.table("db/t").unwrap();
        match random.below(12) {
            0 | 1 => engine.flush_table(&table).unwrap(),
            2 => engine.merge_table(&table).unwrap(),
            3 => engine.optimize_table(&table, &mut |_, _| true).unwrap(),
            4 => {
                let mut txn = engine.begin();
                txn.take_snapshot();
                snapshots.push((txn, model.rows.clone()));
            }
            5 => snapshots.clear(),
            6 if random.below(3) == 0 => {
                snapshots.clear();
                drop(table);
                engine.close().unwrap();
                drop(engine);
                engine = open(&fs);
            }
            _ => {}
        }
        for &index in indexes {
            assert_eq!(read(&mut engine.begin(), &engine, index), model.rows, "seed {seed}, step {step}, {index:?}");
        }
        for (txn, rows) in &mut snapshots {
            assert_eq!(&read(txn, &engine, None), rows, "seed {seed}, step {step}, an open snapshot");
        }
    }
    let findings = engine.check_table(&engine.table("db/t").unwrap(), &mut |_, _| true).unwrap();
    assert_eq!(findings, Vec::<String>::new());
}

fn seeds() -> std::ops::Range<u64> {
    let many: u64 = std::env::var("RING_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(12);
    1..many + 1
}

#[test]
fn a_ring_of_rows() {
    seeds().for_each(|seed| run(seed, Ring { max_rows: Some(40), ..Ring::default() }, true));
}

#[test]
fn a_ring_of_rows_without_time() {
    seeds().for_each(|seed| run(seed, Ring { max_rows: Some(40), ..Ring::default() }, false));
}

#[test]
fn a_ring_of_age() {
    seeds().for_each(|seed| run(seed, Ring { retention: Some(100_000_000), ..Ring::default() }, true));
}

#[test]
fn rings_of_age_and_rows() {
    let ring = Ring { retention: Some(100_000_000), max_rows: Some(60), ..Ring::default() };
    seeds().for_each(|seed| run(seed, ring, true));
}

#[test]
fn a_ring_for_each_series() {
    seeds().for_each(|seed| run(seed, Ring { series_max_rows: Some(12), ..Ring::default() }, true));
}

#[test]
fn all_rings_at_once() {
    let ring = Ring { retention: Some(100_000_000), max_rows: Some(40), series_max_rows: Some(12), max_bytes: None };
    seeds().for_each(|seed| run(seed, ring, true));
}

/// Bytes that never exceed their limit, and rows that are always the newest.
#[test]
fn a_ring_of_bytes() {
    const MAX_BYTES: u64 = 4 << 20;
    const COMMITS: u64 = 4000;
    let fs = Arc::new(SimFs::new());
    let mut config = Config::new("/data/rrd");
    config.clock_micros = Some(i64::MAX / 2);
    let engine = Engine::open(config, fs.clone()).unwrap();
    let mut schema = schema(Ring { max_bytes: Some(MAX_BYTES), ..Ring::default() }, true);
    schema.chunk_length = None;
    engine.create_table("db/t", schema).unwrap();
    let table = engine.table("db/t").unwrap();
    let mut random = Random(7);
    let mut full = 0;
    let mut largest = 0;
    for time in 1..COMMITS {
        let mut txn = engine.begin();
        for series in 0..200 {
            let mut row = Vec::new();
            let layout = table.layout();
            let mut writer = layout.writer(&mut row);
            writer.set_int(0, series);
            writer.set_int(1, time * 10);
            writer.set_int(2, random.below(1 << 32));
            writer.finish();
            txn.insert(&table, &row, OnDuplicate::Fail).unwrap();
        }
        txn.commit().unwrap();
        let stats = table.stats();
        let bytes = stats.data_bytes + stats.index_bytes;
        assert!(bytes <= MAX_BYTES, "{bytes} bytes after {time} commits");
        largest = largest.max(bytes);
        if time > COMMITS / 2 {
            full += u64::from(bytes >= MAX_BYTES * 8 / 10);
        }
    }
    engine.flush_table(&table).unwrap();
    let rows = read(&mut engine.begin(), &engine, None);
    let oldest = rows.keys().map(|(_, time)| *time).min().unwrap();
    assert_eq!(rows.len() as u64, 200 * (COMMITS - oldest / 10), "all rows from the oldest on");
    println!("{} rows left, {largest} bytes at most, {full} of {} times at least 80% full", rows.len(), COMMITS / 2);
    assert!(full > COMMITS / 4, "{full}");
    engine.close().unwrap();
}
