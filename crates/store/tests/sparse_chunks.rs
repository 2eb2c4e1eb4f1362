//! Chunks with few rows share files: what a statement, a flush and a table make is in proportion to rows.

#![expect(clippy::expect_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use rrd_store::fs::Fs;
use rrd_store::fs::sim::SimFs;
use rrd_store::schema::{ColumnDef, Lane};
use rrd_store::{Config, Direction, Engine, OnDuplicate, Schema, Table};

const HOUR: u64 = 3600;
/// Far more than any of these tests may make.
const MANY: u64 = 20_000;

fn schema() -> Schema {
    let int = |id| ColumnDef::plain(id, Lane::Int { width: 8 }, false);
    Schema { chunk_length: Some(HOUR), ..Schema::plain(vec![int(0), int(1)], vec![0, 1], Some(1)) }
}

fn open(fs: &SimFs, adjust: impl FnOnce(&mut Config)) -> Arc<Engine> {
    let mut config = Config::new("/rrd");
    config.background = false;
    adjust(&mut config);
    Engine::open(config, Arc::new(fs.clone()) as Arc<dyn Fs>).expect("open")
}

fn create(fs: &SimFs, adjust: impl FnOnce(&mut Config)) -> (Arc<Engine>, Arc<Table>) {
    let engine = open(fs, adjust);
    engine.create_table("db/t", schema()).expect("create");
    let table = engine.table("db/t").expect("table");
    (engine, table)
}

fn insert(engine: &Arc<Engine>, table: &Arc<Table>, times: impl Iterator<Item = u64>, bulk: bool) {
    let layout = table.layout();
    let mut txn = engine.begin();
    if bulk {
        txn.begin_bulk(table);
    }
    for time in times {
        let mut row = Vec::new();
        let mut writer = layout.writer(&mut row);
        writer.set_int(0, 1);
        writer.set_int(1, time);
        writer.finish();
        txn.insert(table, &row, OnDuplicate::Fail).expect("insert");
    }
    if bulk {
        txn.end_bulk(table).expect("end");
    }
    txn.commit().expect("commit");
}

fn rows(engine: &Arc<Engine>, table: &Arc<Table>) -> u64 {
    let mut cursor = engine.begin().cursor(table).expect("cursor");
    cursor.seek(None, true, Direction::Forward).expect("seek");
    std::iter::from_fn(|| cursor.next_span(1000).expect("span")).map(|span| u64::from(span.rows)).sum()
}

fn files(fs: &SimFs) -> u64 {
    fs.files().iter().filter(|path| path.extension().is_some_and(|ending| ending == "rrds")).count() as u64
}

/// With CHUNK='1h' a statement of hourly rows made a file for each of them.
#[test]
fn a_statement_of_hourly_rows_makes_few_files() {
    for (bulk, name) in [(true, "bulk"), (false, "flush")] {
        let fs = SimFs::new();
        let (engine, table) = create(&fs, |config| config.tuning.bulk_min_bytes = 1000);
        insert(&engine, &table, (0..MANY).map(|n| n * HOUR), bulk);
        engine.flush_table(&table).expect("flush");
        assert!(files(&fs) <= 64 + MANY / 4096 + 1, "{name}: {} files", files(&fs));
        assert_eq!(rows(&engine, &table), MANY);
        let before = files(&fs);
        insert(&engine, &table, (0..MANY).map(|n| n * HOUR + 1), bulk);
        engine.flush_table(&table).expect("flush");
        assert!(files(&fs) <= 2 * before + 1, "{name}: {} files", files(&fs));
        engine.optimize_table(&table, &mut |_, _| true).expect("optimize");
        assert!(files(&fs) <= before + 1, "{name}: {} files", files(&fs));
        assert_eq!(rows(&engine, &table), 2 * MANY);
    }
}

/// Times that lie anywhere opened a chunk each, though the length of chunks was left to the engine.
#[test]
fn scattered_times_do_not_make_a_file_each() {
    let fs = SimFs::new();
    let engine = open(&fs, |config| config.tuning.chunk_target_rows = 5000);
    engine.create_table("db/t", Schema { chunk_length: None, ..schema() }).expect("create");
    let table = engine.table("db/t").expect("table");
    // Three quarters lie side by side and say how dense all are.
    let near = (0..3 * MANY).map(|n| 1_000_000_000 + n);
    insert(&engine, &table, near.chain((0..MANY).map(|n| 2_000_000_000 + n * n * 100)), false);
    engine.flush_table(&table).expect("flush");
    let most = 64 + 2 * 4 * MANY / 4096;
    assert!(files(&fs) <= most, "{} files", files(&fs));
    assert_eq!(rows(&engine, &table), 4 * MANY);
}

/// Chunks that each flush opened for a few rows, and those of tables that an older release made.
#[test]
fn sparse_chunks_become_one() {
    let fs = SimFs::new();
    let (engine, table) = create(&fs, |config| config.tuning.chunk_least_rows = 0);
    insert(&engine, &table, (0..500).map(|n| n * HOUR), false);
    engine.flush_table(&table).expect("flush");
    assert_eq!(files(&fs), 500);
    engine.optimize_table(&table, &mut |_, _| true).expect("optimize");
    assert_eq!(files(&fs), 500);
    drop((table, engine));
    let engine = open(&fs.power_cut(1), |_| ());
    let table = engine.table("db/t").expect("table");
    // A reader keeps what it began with; a writer that began before keeps its chunks.
    let mut cursor = engine.begin().cursor(&table).expect("cursor");
    cursor.seek(None, true, Direction::Forward).expect("seek");
    assert_eq!(cursor.next_span(10).expect("span").map(|span| span.rows > 0), Some(true));
    engine.merge_table(&table).expect("merge");
    assert_eq!(table.stats().segments, 2, "all but the newest");
    drop(cursor);
    assert_eq!(rows(&engine, &table), 500);
    // Rows of all times find their chunk, before and after a restart.
    insert(&engine, &table, (0..600).map(|n| n * HOUR + 7), false);
    engine.flush_table(&table).expect("flush");
    engine.merge_table(&table).expect("merge");
    assert_eq!(rows(&engine, &table), 1100);
    assert!(table.stats().segments <= 4 + 64, "{}", table.stats().segments);
}

/// A bulk statement holds segments of chunks that would be joined otherwise.
#[test]
fn chunks_that_somebody_writes_for_stay() {
    let fs = SimFs::new();
    let (engine, table) = create(&fs, |config| {
        config.tuning.chunk_least_rows = 0;
        config.tuning.bulk_min_bytes = 100;
        config.tuning.bulk_run_bytes = 500;
    });
    insert(&engine, &table, (0..500).map(|n| n * HOUR), false);
    engine.flush_table(&table).expect("flush");
    drop((table, engine));
    let engine = open(&fs, |config| {
        config.tuning.bulk_min_bytes = 100;
        config.tuning.bulk_run_bytes = 500;
    });
    let table = engine.table("db/t").expect("table");
    let layout = table.layout();
    let mut txn = engine.begin();
    txn.begin_bulk(&table);
    for n in 0..300 {
        let mut row = Vec::new();
        let mut writer = layout.writer(&mut row);
        writer.set_int(0, 1);
        writer.set_int(1, n * HOUR + 9);
        writer.finish();
        txn.insert(&table, &row, OnDuplicate::Fail).expect("insert");
    }
    txn.end_bulk(&table).expect("end");
    engine.merge_table(&table).expect("merge");
    txn.commit().expect("commit");
    assert_eq!(rows(&engine, &table), 800);
    engine.merge_table(&table).expect("merge");
    assert_eq!((rows(&engine, &table), table.stats().segments), (800, 2));
    drop((table, engine));
    let engine = open(&fs.power_cut(1), |_| ());
    let table = engine.table("db/t").expect("table");
    assert_eq!(rows(&engine, &table), 800);
}
