//! Writers, readers, flushes and merges at the same time: nothing is lost, no read sees half a commit.

#![expect(clippy::expect_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rrd_store::alter::Alteration;
use rrd_store::fs::Fs;
use rrd_store::fs::os::OsFs;
use rrd_store::fs::sim::SimFs;
use rrd_store::schema::{ColumnDef, Lane};
use rrd_store::txn::Txn;
use rrd_store::{Config, Direction, Engine, Error, OnDuplicate, Result, Schema, Table};

const WRITERS: u64 = 4;
/// The error number of a full disk.
const DISK_FULL: i32 = 28;
const COMMITS: u64 = 300;
/// Rows of one commit: one for each of as many series, all with the same time and value.
const SERIES: u64 = 8;

fn schema() -> Schema {
    let int = |id, width| ColumnDef::plain(id, Lane::Int { width }, false);
    Schema { chunk_length: Some(500), ..Schema::plain(vec![int(0, 4), int(1, 4), int(2, 8)], vec![0, 1], Some(1)) }
}

fn row(table: &Table, series: u64, time: u64, value: u64) -> Vec<u8> {
    let mut row = Vec::new();
    let layout = table.layout();
    let mut writer = layout.writer(&mut row);
    writer.set_int(0, series);
    writer.set_int(1, time);
    writer.set_int(2, value);
    writer.finish();
    row
}

/// A statement that inserts rows one by one, or as a bulk statement, whose rows stay together as a batch.
fn insert(txn: &mut Txn, table: &Arc<Table>, rows: &[Vec<u8>], is_bulk: bool) -> Result<()> {
    if is_bulk {
        txn.begin_bulk(table);
    }
    for row in rows {
        let write = |out: &mut Vec<u8>| {
            out.extend_from_slice(row);
            Ok(())
        };
        if !txn.append(table, write)? {
            txn.insert(table, row, OnDuplicate::Fail)?;
        }
    }
    txn.end_bulk(table)
}

/// All rows as (series, time, value), by a forward or a backward walk.
fn read_all(engine: &Arc<Engine>, table: &Arc<Table>, direction: Direction) -> Vec<(u64, u64, u64)> {
    let mut txn = engine.begin();
    let mut cursor = txn.cursor(table).expect("cursor");
    cursor.seek(None, true, direction).expect("seek");
    let layout = table.layout();
    let mut rows = Vec::new();
    while let Some(span) = cursor.next_span(1000).expect("next") {
        for n in 0..span.rows {
            let mut bytes = Vec::new();
            span.group.push_row(span.row(n), &mut bytes).expect("row");
            let view = layout.view(&bytes);
            rows.push((view.int(0), view.int(1), view.int(2)));
        }
    }
    rows
}

#[test]
fn commits_are_whole_for_every_reader_and_survive() {
    let dir = tempfile::tempdir().expect("a scratch folder");
    let mut config = Config::new(dir.path().join("rrd"));
    config.memtable_bytes = 200_000;
    config.tuning.smallest_batch = 2;
    let fs: Arc<dyn Fs> = Arc::new(OsFs);
    let engine = Engine::open(config.clone(), fs.clone()).expect("open");
    engine.create_table("db/t", schema()).expect("create");
    let table = engine.table("db/t").expect("table");
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|w| {
                let (engine, table) = (&engine, &table);
                scope.spawn(move || {
                    for i in 0..COMMITS {
                        let time = i * WRITERS + w;
                        let mut txn = engine.begin();
                        let rows: Vec<_> = (0..SERIES).map(|series| row(table, series, time, time)).collect();
                        insert(&mut txn, table, &rows, i % 4 > 0).expect("insert");
                        txn.commit().expect("commit");
                    }
                })
            })
            .collect();
        for direction in [Direction::Forward, Direction::Backward] {
            let (engine, table, done) = (&engine, &table, &done);
            scope.spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    let rows = read_all(engine, table, direction);
                    assert_eq!(rows.len() as u64 % SERIES, 0, "a reader saw half a commit");
                    let sorted = match direction {
                        Direction::Forward => rows.is_sorted(),
                        Direction::Backward => rows.iter().rev().is_sorted(),
                    };
                    assert!(sorted, "rows out of order");
                }
            });
        }
        writers.into_iter().for_each(|w| w.join().expect("writer"));
        done.store(true, Ordering::Relaxed);
    });
    let expected: Vec<_> = (0..SERIES).flat_map(|s| (0..WRITERS * COMMITS).map(move |t| (s, t, t))).collect();
    assert_eq!(read_all(&engine, &table, Direction::Forward), expected);
    engine.close().expect("close");
    drop((table, engine));
    let engine = Engine::open(config, fs).expect("open again");
    let table = engine.table("db/t").expect("table");
    assert_eq!(read_all(&engine, &table, Direction::Forward), expected);
    assert_eq!(engine.check_table(&table, &mut |_, _| true).expect("check"), Vec::<String>::new());
    engine.close().expect("close");
}

#[test]
fn of_two_inserts_of_one_key_one_wins() {
    let dir = tempfile::tempdir().expect("a scratch folder");
    let mut config = Config::new(dir.path().join("rrd"));
    config.tuning.smallest_batch = 1;
    let engine = Engine::open(config, Arc::new(OsFs)).expect("open");
    engine.create_table("db/t", schema()).expect("create");
    let table = engine.table("db/t").expect("table");
    const KEYS: u64 = 200;
    let won: u64 = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..WRITERS)
            .map(|w| {
                let (engine, table) = (&engine, &table);
                scope.spawn(move || {
                    let mut won = 0;
                    for time in 0..KEYS {
                        let mut txn = engine.begin();
                        let inserted = insert(&mut txn, table, &[row(table, 1, time, w)], (time + w) % 3 > 0);
                        match inserted.and_then(|()| txn.commit()) {
                            Ok(()) => won += 1,
                            Err(Error::Duplicate { .. }) => {}
                            Err(error) => panic!("{error}"),
                        }
                    }
                    won
                })
            })
            .collect();
        threads.into_iter().map(|t| t.join().expect("writer")).sum()
    });
    assert_eq!(won, KEYS);
    assert_eq!(read_all(&engine, &table, Direction::Forward).len() as u64, KEYS);
    engine.close().expect("close");
}

#[test]
fn counters_incremented_under_row_locks_add_up() {
    let dir = tempfile::tempdir().expect("a scratch folder");
    let engine = Engine::open(Config::new(dir.path().join("rrd")), Arc::new(OsFs)).expect("open");
    engine.create_table("db/t", schema()).expect("create");
    let table = engine.table("db/t").expect("table");
    const EACH: u64 = 50;
    std::thread::scope(|scope| {
        for _ in 0..WRITERS {
            scope.spawn(|| (0..EACH).for_each(|_| increment(&engine, &table)));
        }
    });
    assert_eq!(read_all(&engine, &table, Direction::Forward), vec![(7, 7, WRITERS * EACH)]);
    engine.close().expect("close");
}

/// Changes of definitions wait for the log, which may wait for commits to be applied, and so for each other: they must not be
/// what a commit waits for.
#[test]
fn definitions_change_beside_commits_to_other_tables() {
    const ROUNDS: u64 = 40;
    let fs = SimFs::new();
    let engine = Engine::open(Config::new("/rrd"), Arc::new(fs.clone())).expect("open");
    fs.slow_down_syncs(Duration::from_millis(1));
    let create = |name: &str| engine.create_table(name, schema()).expect("create");
    ["db/t", "db/altered"].into_iter().for_each(create);
    let done = Arc::new(AtomicBool::new(false));
    let (ended, is_ended) = std::sync::mpsc::channel();
    type Job = Box<dyn FnOnce(&Arc<Engine>, &AtomicBool) + Send>;
    let start = |job: Job| {
        let (engine, done, ended) = (engine.clone(), done.clone(), ended.clone());
        std::thread::spawn(move || {
            job(&engine, &done);
            ended.send(()).expect("somebody waits");
        });
    };
    for series in 0..WRITERS {
        start(Box::new(move |engine, done| {
            let table = engine.table("db/t").expect("table");
            for time in (0..).take_while(|_| !done.load(Ordering::Relaxed)) {
                let mut txn = engine.begin();
                txn.insert(&table, &row(&table, series, time, time), OnDuplicate::Fail).expect("insert");
                txn.commit().expect("commit");
            }
        }));
    }
    start(Box::new(|engine, _| {
        for round in 0..ROUNDS {
            let table = engine.table("db/altered").expect("table");
            let mut txn = engine.begin();
            txn.insert(&table, &row(&table, 0, round, 0), OnDuplicate::Fail).expect("insert");
            txn.commit().expect("commit");
            let schema = Schema::clone(&table.schema());
            let change = Alteration { table, schema, definition: b"id".to_vec(), built: Vec::new(), tiers: None };
            engine.alter_tables(vec![change]).expect("alter");
        }
    }));
    start(Box::new(|engine, _| {
        for _ in 0..ROUNDS {
            engine.create_table("db/new", schema()).expect("create");
            engine.rename_table("db/new", "db/old").expect("rename");
            engine.truncate_table("db/old").expect("truncate");
            engine.drop_table("db/old").expect("drop");
        }
    }));
    let end = |threads| {
        let is_over = (0..threads).all(|_| is_ended.recv_timeout(Duration::from_secs(60)).is_ok());
        assert!(is_over, "somebody waits for ever");
    };
    end(2);
    done.store(true, Ordering::Relaxed);
    end(WRITERS);
}

/// A statement that flushes a table itself, and finds the disk full, leaves memory that later commits may wait for.
#[test]
fn a_flush_that_failed_in_a_statement_is_made_good() {
    let fs = SimFs::new();
    let config = Config { memtable_bytes: 1 << 20, ..Config::new("/rrd") };
    let engine = Engine::open(config, Arc::new(fs.clone())).expect("open");
    for (name, percent) in [("db/a", 45), ("db/b", 90)] {
        fill(&engine, name, percent);
        fs.fail_from(fs.op_count() + 1, DISK_FULL);
        engine.flush_table(&engine.table(name).expect("table")).expect_err("the disk is full");
        fs.heal();
    }
    let (done, is_done) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        fill(&engine, "db/c", 110);
        done.send(())
    });
    assert!(is_done.recv_timeout(Duration::from_secs(60)).is_ok(), "a commit waits for ever");
}

/// A new table gets rows until memtables have had so much of what they may have, whatever was flushed of it.
fn fill(engine: &Arc<Engine>, name: &str, percent: u64) {
    engine.create_table(name, schema()).expect("create");
    let table = engine.table(name).expect("table");
    let memory = || engine.memory_report();
    let mut missing = (memory().memtable_limit * percent / 100) as i64;
    missing -= (memory().active_bytes + memory().frozen_bytes) as i64;
    for time in 0.. {
        let before = memory().active_bytes;
        let mut txn = engine.begin();
        txn.insert(&table, &row(&table, 1, time, time), OnDuplicate::Fail).expect("insert");
        txn.commit().expect("commit");
        missing -= memory().active_bytes.saturating_sub(before) as i64;
        if missing < 0 {
            break;
        }
    }
}

/// INSERT ... ON DUPLICATE KEY UPDATE value = value + 1.
fn increment(engine: &Arc<Engine>, table: &Arc<Table>) {
    let mut txn = engine.begin();
    let first = row(table, 7, 7, 1);
    let mut key = Vec::new();
    table.layout().push_key(&first, &mut key);
    match txn.insert(table, &first, OnDuplicate::Update) {
        Ok(()) => {}
        Err(Error::Duplicate { .. }) => {
            let mut current = Vec::new();
            assert!(txn.read_latest(table, &key, &mut current).expect("read"), "the duplicate is there");
            let value = table.layout().view(&current).int(2);
            txn.update(table, &key, &row(table, 7, 7, value + 1)).expect("update");
        }
        Err(error) => panic!("{error}"),
    }
    txn.commit().expect("commit");
}
