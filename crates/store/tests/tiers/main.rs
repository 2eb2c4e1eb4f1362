//! Tiers come, change and go with their table, and are what its rows make them.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod build;
mod gone;
mod points;
mod repair;
mod rings;
mod statements;
mod world;

use std::sync::Arc;

use rrd_store::alter::Alteration;
use rrd_store::fs::sim::SimFs;
use rrd_store::schema::{Bucket, Initial, TierDef};
use rrd_store::{Config, Engine, Schema, Table};

use world::World;

/// (series, ts) with an integer, a decimal and a float; tiers of 10, 60 and 100 seconds.
pub const SCHEMA: &str = r#"{"version": 1, "columns": [
    {"id": 0, "name": "series", "lane": {"int": {"width": 2}}, "nullable": false},
    {"id": 1, "name": "ts", "lane": {"int": {"width": 4}}, "nullable": false},
    {"id": 2, "name": "n", "lane": {"int": {"width": 4}}, "nullable": true, "number": {"integer": {"bias": 2147483648}}},
    {"id": 3, "name": "d", "lane": {"int": {"width": 5}}, "nullable": true,
     "number": {"decimal": {"precision": 10, "scale": 2}}},
    {"id": 4, "name": "f", "lane": "f64", "nullable": true}],
    "key": [0, 1], "time": {"column": 1, "unit": "s"},
    "tiers": [{"id": 1, "name": "10s", "bucket": {"fixed": {"length": 10000000}}},
              {"id": 2, "name": "1m", "bucket": {"fixed": {"length": 60000000}}},
              {"id": 3, "name": "100s", "bucket": {"fixed": {"length": 100000000}}}]}"#;

fn open(fs: &Arc<SimFs>) -> Arc<Engine> {
    let mut config = Config::new("/data/rrd");
    config.background = false;
    Engine::open(config, fs.clone()).unwrap()
}

fn schema() -> Schema {
    serde_json::from_str(SCHEMA).unwrap()
}

fn tier_names(table: &Table) -> Vec<String> {
    table.tiers().iter().map(|t| t.table.name()).collect()
}

fn alter(engine: &Engine, table: &Arc<Table>, change: impl FnOnce(&mut Schema)) {
    let mut schema = Schema::clone(&table.schema());
    change(&mut schema);
    let change = Alteration { table: table.clone(), schema, definition: Vec::new(), built: Vec::new(), tiers: None };
    engine.alter_tables(vec![change]).unwrap();
}

#[test]
fn tiers_come_and_go_with_their_table() {
    let fs = Arc::new(SimFs::new());
    let engine = open(&fs);
    engine.create_table("db/t", schema()).unwrap();
    let table = engine.table("db/t").unwrap();
    assert_eq!(tier_names(&table), ["db/t$10s", "db/t$1m", "db/t$100s"]);
    let sources: Vec<Option<usize>> = table.tiers().iter().map(|t| t.source).collect();
    assert_eq!(sources, [None, Some(0), Some(0)]);
    assert_eq!(engine.table_names(), ["db/t"]);
    engine.drop_table("db/t$1m").unwrap_err();
    engine.create_table("db/t$1m", schema()).unwrap_err();
    engine.rename_table("db/t", "db/u").unwrap();
    assert_eq!(tier_names(&table), ["db/u$10s", "db/u$1m", "db/u$100s"]);
    engine.close().unwrap();
    drop((table, engine));
    let engine = open(&fs);
    let table = engine.table("db/u").unwrap();
    assert_eq!(tier_names(&table).len(), 3);
    assert!(engine.table("db/u$10s").unwrap().is_tier() && engine.table("db/t$10s").is_err());
    engine.truncate_table("db/u").unwrap();
    engine.drop_table("db/u").unwrap();
    assert!(engine.table("db/u$10s").is_err());
    engine.create_table("db/u$10s", schema()).unwrap();
}

#[test]
fn an_alter_flows_into_tiers() {
    let fs = Arc::new(SimFs::new());
    let engine = open(&fs);
    engine.create_table("db/t", schema()).unwrap();
    let table = engine.table("db/t").unwrap();
    alter(&engine, &table, |schema| {
        schema.tiers.remove(1);
        schema.tiers[1].name = "100".into();
        let bucket = Bucket::Months { count: 1 };
        schema.tiers.push(TierDef { id: 4, name: "1mo".into(), bucket, keep: None });
        let mut column = schema.columns[4].clone();
        (column.id, column.name, column.initial) = (5, "g".into(), Some(Initial::Null));
        schema.columns.push(column);
        schema.columns[2].name = "m".into();
        schema.columns.remove(3);
    });
    let check = |engine: &Engine| {
        let table = engine.table("db/t").unwrap();
        assert_eq!(tier_names(&table), ["db/t$10s", "db/t$100", "db/t$1mo"]);
        let names = |t: &Table| t.schema().columns.iter().map(|c| c.name.clone()).collect::<Vec<_>>();
        let columns: Vec<Vec<String>> = table.tiers().iter().map(|t| names(&t.table)).collect();
        assert_eq!(columns[0], columns[2]);
        assert_eq!((&columns[1][..3], columns[1].len()), (&["series".into(), "ts".into(), "m_avg".into()][..], 23));
        assert_eq!(columns[1][22], "g_last");
        assert!(engine.table("db/t$1m").is_err() && engine.table("db/t$100s").is_err());
    };
    check(&engine);
    engine.close().unwrap();
    drop((table, engine));
    check(&open(&fs));
}

/// A small generator of random numbers, the same everywhere.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % n
    }
}

fn small_config() -> Config {
    let mut config = Config::new("/rrd");
    config.background = false;
    config.memtable_bytes = 60_000;
    config.tuning.bulk_run_bytes = 600;
    config.tuning.bulk_min_bytes = 900;
    config.tuning.smallest_batch = 1;
    config.tuning.txn_spill_bytes = 2_000;
    config.tuning.chunk_target_rows = 60;
    config.tuning.chunk_least_rows = 20;
    config.tuning.sparse_chunks = 3;
    config
}

/// Seeds of a test: the first `usual` ones, or those that the environment names (`TIER_SEEDS=11` or `TIER_SEEDS=0..200`).
fn seeds(usual: u64) -> std::ops::Range<u64> {
    let Ok(wanted) = std::env::var("TIER_SEEDS") else { return 0..usual };
    match wanted.split_once("..") {
        Some((from, to)) => from.parse().unwrap()..to.parse().unwrap(),
        None => wanted.parse().unwrap()..wanted.parse::<u64>().unwrap() + 1,
    }
}

#[test]
fn tiers_are_what_the_rows_make_them() {
    for seed in seeds(20) {
        println!("seed {seed}");
        let mut world = World::new(seed);
        for _ in 0..150 {
            world.step();
        }
        world.check();
    }
}

#[test]
fn a_new_tier_is_built_from_what_is_there() {
    for seed in seeds(12) {
        println!("seed {seed}");
        let mut world = World::new(seed);
        for _ in 0..60 {
            world.step();
        }
        let table = world.table.clone();
        alter(&world.engine, &table, |schema| {
            let length = [20_000_000, 30_000_000, 5_000_000][seed as usize % 3];
            let bucket = Bucket::Fixed { length, offset: 0 };
            schema.tiers.push(TierDef { id: 9, name: "new".into(), bucket, keep: None });
            if seed % 2 == 0 {
                let mut column = schema.columns[2].clone();
                (column.id, column.name, column.initial) = (5, "m".into(), Some(Initial::Bits(7 + (1 << 31))));
                schema.columns.push(column);
            }
        });
        world.old = None;
        world.check();
        for _ in 0..60 {
            world.step();
        }
        world.check();
    }
}

/// SHOW ENGINE RRD STATUS lists it.
#[test]
fn whoever_waits_for_a_new_tier_sees_how_far_it_is() {
    let mut config = Config::new("/rrd");
    config.background = false;
    let engine = Engine::open(config, Arc::new(SimFs::new())).unwrap();
    let built = schema();
    engine.create_table("db/t", Schema { tiers: Vec::new(), ..schema() }).unwrap();
    let table = engine.table("db/t").unwrap();
    let layout = table.layout();
    const ROWS: u64 = 300_000;
    let mut txn = engine.begin();
    for n in 0..ROWS {
        let mut row = Vec::new();
        let mut writer = layout.writer(&mut row);
        writer.set_int(0, n % 5);
        writer.set_int(1, n / 5);
        (2..5).for_each(|column| writer.set_null(column));
        writer.finish();
        txn.insert(&table, &row, rrd_store::OnDuplicate::Fail).unwrap();
    }
    txn.commit().unwrap();
    engine.flush_table(&table).unwrap();
    let is_done = std::sync::atomic::AtomicBool::new(false);
    let seen = std::thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let mut seen = Vec::new();
            while !is_done.load(std::sync::atomic::Ordering::Acquire) {
                for job in engine.jobs().iter().filter(|job| job.kind == "build") {
                    seen.push((job.table.clone(), job.done.load(std::sync::atomic::Ordering::Relaxed), job.rows));
                }
            }
            seen
        });
        alter(&engine, &table, |schema| schema.tiers = built.tiers.clone());
        is_done.store(true, std::sync::atomic::Ordering::Release);
        watcher.join().unwrap()
    });
    let of_first: Vec<_> = seen.iter().filter(|(table, _, _)| table == "db/t$10s").collect();
    assert!(of_first.iter().all(|(_, done, rows)| *rows == ROWS && *done <= ROWS), "{:?}", of_first.first());
    assert!(of_first.iter().any(|(_, done, _)| *done > 0 && *done < ROWS), "no look in between");
    assert!(engine.jobs().is_empty());
}
