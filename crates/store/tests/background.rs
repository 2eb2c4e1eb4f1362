//! What background threads promise while another one is held.

#![expect(clippy::expect_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use rrd_store::fs::Fs;
use rrd_store::fs::sim::SimFs;
use rrd_store::schema::{ColumnDef, Lane};
use rrd_store::{Config, Direction, Engine, FlushLog, OnDuplicate, Schema, Table};

/// Long enough for a machine that is busy; a sync is due after a second.
const DEADLINE: Duration = Duration::from_secs(60);

fn create(engine: &Arc<Engine>, name: &str) -> Arc<Table> {
    let int = |id| ColumnDef::plain(id, Lane::Int { width: 8 }, false);
    engine.create_table(name, Schema::plain(vec![int(0)], vec![0], None)).expect("create");
    engine.table(name).expect("table")
}

fn insert(engine: &Arc<Engine>, table: &Arc<Table>, key: u64) {
    let mut row = Vec::new();
    let layout = table.layout();
    let mut writer = layout.writer(&mut row);
    writer.set_int(0, key);
    writer.finish();
    let mut txn = engine.begin();
    txn.insert(table, &row, OnDuplicate::Fail).expect("insert");
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
