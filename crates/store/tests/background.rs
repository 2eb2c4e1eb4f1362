//! What background threads promise while another one is held.

#![expect(clippy::expect_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rrd_store::fs::Fs;
use rrd_store::fs::sim::SimFs;
use rrd_store::schema::{ColumnDef, Lane};
use rrd_store::{Config, Direction, Engine, Error, FlushLog, OnDuplicate, Schema, Table};

#[path = "common/rows.rs"]
mod rows;

use rows::row_of;

/// Long enough for a machine that is busy; a sync is due after a second.
const DEADLINE: Duration = Duration::from_secs(60);

fn create(engine: &Arc<Engine>, name: &str) -> Arc<Table> {
    let int = |id| ColumnDef::plain(id, Lane::Int { width: 8 }, false);
    engine.create_table(name, Schema::plain(vec![int(0)], vec![0], None)).expect("create");
    engine.table(name).expect("table")
}

fn insert(engine: &Arc<Engine>, table: &Arc<Table>, key: u64) {
    let mut txn = engine.begin();
    txn.insert(table, &row_of(table, &[key]), OnDuplicate::Fail).expect("insert");
    txn.commit().expect("commit");
}

/// Whether a table has rows after a power cut now.
fn has_rows_after_power_cut(fs: &SimFs, name: &str) -> bool {
    let mut config = Config::new("/rrd");
    config.background = false;
    let engine = Engine::open(config, Arc::new(fs.power_cut(1)) as Arc<dyn Fs>).expect("open");
    let table = engine.table(name).expect("table");
    let mut cursor = engine.begin().cursor(&table).expect("cursor");
    cursor.seek(None, true, Direction::Forward).expect("seek");
    cursor.next_span(1).expect("read").is_some()
}

/// While a flush cannot go on, a COMMIT that waits for its memory was deaf to KILL, max_statement_time and shutdown.
#[test]
fn a_commit_that_waits_for_memory_hears_kill() {
    let fs = SimFs::new();
    let mut config = Config::new("/rrd");
    config.flush_log = FlushLog::Write;
    config.memtable_bytes = 1 << 20;
    let engine = Engine::open(config, Arc::new(fs) as Arc<dyn Fs>).expect("open");
    let table = create(&engine, "db/t");
    let flush = engine.pause_points().close("a flush begins");
    let waiting = engine.pause_points().watch("a commit waits for memory");
    let is_killed = Arc::new(AtomicBool::new(false));
    let writer = {
        let (engine, table, is_killed) = (engine.clone(), table.clone(), is_killed.clone());
        std::thread::spawn(move || {
            for key in 0.. {
                let (mut txn, asked) = (engine.begin(), is_killed.clone());
                txn.set_interrupted(Box::new(move || asked.load(Ordering::Acquire)));
                txn.insert(&table, &row_of(&table, &[key]), OnDuplicate::Fail).expect("insert");
                if let Err(error) = txn.commit() {
                    return (key, error);
                }
            }
            unreachable!()
        })
    };
    waiting.until_reached(1);
    is_killed.store(true, Ordering::Release);
    let (refused, error) = writer.join().expect("writer");
    assert!(matches!(error, Error::Interrupted), "{error}");
    drop(flush);
    // The next one waits for the flush, and its key is free.
    insert(&engine, &table, refused);
}

/// One table whose flush does not end filled the memory of all, and every commit waited for it.
#[test]
fn commits_to_a_small_table_do_not_wait_for_the_flush_of_a_large_one() {
    let mut config = Config::new("/rrd");
    config.flush_log = FlushLog::Write;
    config.memtable_bytes = 1 << 20;
    let engine = Engine::open(config, Arc::new(SimFs::new()) as Arc<dyn Fs>).expect("open");
    let (busy, quiet) = (create(&engine, "db/busy"), create(&engine, "db/quiet"));
    let flush = engine.pause_points().close("a flush begins");
    let waiting = engine.pause_points().watch("a commit waits for memory");
    let is_over = Arc::new(AtomicBool::new(false));
    let busy_writer = {
        let (engine, is_over) = (engine.clone(), is_over.clone());
        std::thread::spawn(move || {
            (0..).take_while(|_| !is_over.load(Ordering::Acquire)).for_each(|key| insert(&engine, &busy, key))
        })
    };
    waiting.until_reached(1);
    let quiet_writer = std::thread::spawn({
        let engine = engine.clone();
        move || (0..100).for_each(|key| insert(&engine, &quiet, key))
    });
    let since = Instant::now();
    while !quiet_writer.is_finished() {
        assert!(since.elapsed() < DEADLINE, "a commit waits for the flush of another table");
        std::thread::sleep(Duration::from_millis(10));
    }
    is_over.store(true, Ordering::Release);
    drop(flush);
    [quiet_writer, busy_writer].into_iter().for_each(|writer| writer.join().expect("writer"));
}

#[test]
fn a_commit_without_a_sync_is_on_disk_soon_though_a_flush_is_held() {
    let fs = SimFs::new();
    let mut config = Config::new("/rrd");
    config.flush_log = FlushLog::Write;
    config.memtable_bytes = 1 << 20;
    let engine = Engine::open(config, Arc::new(fs.clone()) as Arc<dyn Fs>).expect("open");
    let (busy, quiet) = (create(&engine, "db/busy"), create(&engine, "db/quiet"));
    let flush = engine.pause_points().close("a flush begins");
    let mut key = 0;
    while flush.reached() == 0 {
        insert(&engine, &busy, key);
        key += 1;
    }
    insert(&engine, &quiet, 1);
    let since = Instant::now();
    while !has_rows_after_power_cut(&fs, "db/quiet") {
        assert!(since.elapsed() < DEADLINE, "the log is not synced while a flush is under way");
        std::thread::sleep(Duration::from_millis(50));
    }
    drop(flush);
}
