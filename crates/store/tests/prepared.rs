//! Prepared transactions that outlive their connection: full disks, restarts, memory, DDL.

#![expect(clippy::expect_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use rrd_store::fs::Fs;
use rrd_store::fs::sim::SimFs;
use rrd_store::schema::{ColumnDef, IndexColumn, IndexDef, Lane};
use rrd_store::{Config, Direction, Engine, Error, LockMode, OnDuplicate, Schema, Table, Txn};

#[path = "common/rows.rs"]
mod rows;
#[path = "common/walk.rs"]
mod walk;

use rows::row_of;
use walk::rest_of;

/// The key, and a value that an index knows.
fn schema() -> Schema {
    let int = |id| ColumnDef::plain(id, Lane::Int { width: 8 }, false);
    let index = IndexDef { id: 1, name: "v".into(), unique: false, columns: vec![IndexColumn::plain(1)] };
    Schema { indexes: vec![index], ..Schema::plain(vec![int(0), int(1)], vec![0], None) }
}

fn config() -> Config {
    let mut config = Config::new("/rrd");
    config.background = false;
    config.tuning.txn_spill_bytes = 2_000;
    config
}

fn open_with(fs: &SimFs, config: Config) -> Arc<Engine> {
    Engine::open(config, Arc::new(fs.clone()) as Arc<dyn Fs>).expect("open")
}

fn open(fs: &SimFs) -> Arc<Engine> {
    open_with(fs, config())
}

fn table(engine: &Engine, name: &str) -> Arc<Table> {
    engine.table(name).expect("table")
}

fn create(engine: &Engine, name: &str) -> Arc<Table> {
    engine.create_table(name, schema()).expect("create");
    table(engine, name)
}

fn key_of(table: &Arc<Table>, key: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    table.layout().push_key(&row_of(table, &[key, 0]), &mut bytes);
    bytes
}

fn insert(txn: &mut Txn, table: &Arc<Table>, keys: std::ops::Range<u64>) {
    for key in keys {
        txn.insert(table, &row_of(table, &[key, key]), OnDuplicate::Fail).expect("insert");
    }
}

/// Locks and changes rows.
fn update(txn: &mut Txn, table: &Arc<Table>, keys: std::ops::Range<u64>, value: u64) {
    for key in keys {
        let (bytes, row) = (key_of(table, key), row_of(table, &[key, value]));
        txn.lock_row(table, &bytes, LockMode::Exclusive).expect("lock");
        txn.update(table, &bytes, &row).expect("update");
    }
}

fn committed(engine: &Arc<Engine>, table: &Arc<Table>, keys: std::ops::Range<u64>) {
    let mut txn = engine.begin();
    insert(&mut txn, table, keys);
    txn.commit().expect("commit");
}

fn rows(engine: &Arc<Engine>, table: &Arc<Table>) -> Vec<(u64, u64)> {
    let mut txn = engine.begin();
    let mut cursor = txn.cursor(table).expect("cursor");
    cursor.seek(None, true, Direction::Forward).expect("seek");
    let layout = table.layout();
    let numbers = |row: &Vec<u8>| (layout.view(row).int(0), layout.view(row).int(1));
    rest_of(&mut cursor, 1000).iter().map(numbers).collect()
}

fn check(engine: &Arc<Engine>, table: &Arc<Table>) {
    let findings = engine.check_table(table, &mut |_, _| true).expect("check");
    assert_eq!(findings, Vec::<String>::new());
}

fn try_lock(engine: &Arc<Engine>, table: &Arc<Table>, key: u64) -> bool {
    let mut txn = engine.begin();
    txn.try_lock_row(table, &key_of(table, key), LockMode::Exclusive).expect("lock").is_some()
}

#[test]
fn rows_in_files_of_a_prepared_transaction_are_locked_after_a_restart() {
    for prepared_lock_bytes in [u64::MAX, 0] {
        let fs = SimFs::new();
        let engine = open(&fs);
        let t = create(&engine, "db/t");
        committed(&engine, &t, 0..100);
        let mut txn = engine.begin();
        update(&mut txn, &t, 0..80, 1);
        txn.lock_row(&t, &key_of(&t, 80), LockMode::Exclusive).expect("lock");
        txn.delete(&t, &key_of(&t, 80)).expect("delete");
        insert(&mut txn, &t, 200..280);
        txn.prepare(b"x").expect("prepare");
        drop((txn, t, engine));
        let mut config = config();
        config.tuning.prepared_lock_bytes = prepared_lock_bytes;
        let engine = open_with(&fs.kill(), config);
        let t = table(&engine, "db/t");
        assert!((0..=80).all(|key| !try_lock(&engine, &t, key)));
        // As a whole table or row by row.
        assert_eq!(try_lock(&engine, &t, 90), prepared_lock_bytes > 0);
        let mut other = engine.begin();
        other.set_lock_timeout_ms(0);
        let refused = other.insert(&t, &row_of(&t, &[200, 5]), OnDuplicate::Fail).expect_err("taken");
        assert!(matches!(refused, Error::LockTimeout), "{refused}");
        other.rollback();
        assert!(engine.commit_prepared(b"x").expect("commit"));
        assert!(try_lock(&engine, &t, 0) && try_lock(&engine, &t, 90));
        assert_eq!(rows(&engine, &t).len(), 179);
        check(&engine, &t);
    }
}

#[test]
fn a_second_phase_that_meets_a_full_disk_can_be_repeated_also_after_a_restart() {
    for (is_commit, restarts) in [(true, false), (true, true), (false, false), (false, true)] {
        let fs = SimFs::new();
        let mut engine = open(&fs);
        let mut t = create(&engine, "db/t");
        committed(&engine, &t, 0..50);
        let mut txn = engine.begin();
        update(&mut txn, &t, 0..30, 1);
        txn.prepare(b"x").expect("prepare");
        drop(txn);
        fs.fail_from(fs.op_count(), libc::ENOSPC);
        let decide = |engine: &Engine| match is_commit {
            true => engine.commit_prepared(b"x"),
            false => engine.rollback_prepared(b"x"),
        };
        assert!(decide(&engine).expect_err("full").is_disk_full());
        assert_eq!(engine.poisoned(), None);
        assert_eq!(engine.prepared_xids(), [b"x"]);
        assert!(!try_lock(&engine, &t, 3));
        fs.heal();
        if restarts {
            drop((t, engine));
            engine = open(&fs.kill());
            t = table(&engine, "db/t");
            assert_eq!(engine.prepared_xids(), [b"x"]);
        }
        assert!(decide(&engine).expect("room"));
        let changed = rows(&engine, &t).iter().filter(|(key, value)| key != value && *value == 1).count();
        assert_eq!(changed, if is_commit { 29 } else { 0 });
        assert!(try_lock(&engine, &t, 3));
        check(&engine, &t);
    }
}

#[test]
fn a_connection_that_gives_a_prepared_transaction_up_on_a_full_disk_does_not_stop_the_engine() {
    let fs = SimFs::new();
    let engine = open(&fs);
    let t = create(&engine, "db/t");
    let mut txn = engine.begin();
    insert(&mut txn, &t, 0..30);
    txn.prepare(b"x").expect("prepare");
    fs.fail_from(fs.op_count(), libc::ENOSPC);
    txn.rollback();
    assert_eq!((engine.poisoned(), engine.prepared_xids().len()), (None, 1));
    fs.heal();
    engine.roll_back_due();
    assert_eq!(engine.prepared_xids().len(), 0);
    committed(&engine, &t, 0..30);
}

/// While a failed commit of a prepared transaction is in no queue, the log must not be trimmed.
#[test]
fn the_log_is_kept_while_a_second_phase_fails() {
    let fs = SimFs::new();
    let mut config = config();
    config.tuning.txn_spill_bytes = 1 << 20;
    let engine = open_with(&fs, config);
    let t = create(&engine, "db/t");
    let mut txn = engine.begin();
    insert(&mut txn, &t, 0..5);
    txn.prepare(b"x").expect("prepare");
    drop(txn);
    fill_log(&engine, 10 << 20);
    std::thread::scope(|scope| {
        let closed = engine.pause_points().close("second phase done");
        fs.fail_from(fs.op_count(), libc::ENOSPC);
        let decided = scope.spawn(|| engine.commit_prepared(b"x"));
        closed.until_reached(1);
        fs.heal();
        engine.flush_all().expect("flush");
        assert!(counter(&engine, "log_bytes") > 8 << 20);
        // Nor does anybody get hold of its keys.
        let mut other = engine.begin();
        other.set_lock_timeout_ms(0);
        assert!(other.insert(&t, &row_of(&t, &[3, 5]), OnDuplicate::Fail).is_err());
        drop((other, closed));
        assert!(decided.join().expect("no panic").expect_err("full").is_disk_full());
    });
    drop((t, engine));
    let engine = open(&fs.kill());
    let t = table(&engine, "db/t");
    assert_eq!(engine.prepared_xids(), [b"x"]);
    assert!(engine.commit_prepared(b"x").expect("commit"));
    assert!(rows(&engine, &t).iter().take(5).map(|row| row.0).eq(0..5));
}

/// A delete whose manifest edit is still on its way to the disk, which refuses it: an INSERT of the same key must not have
/// counted on it.
#[test]
fn an_insert_waits_for_a_pending_delete_that_the_disk_may_refuse() {
    let fs = SimFs::new();
    let mut config = config();
    config.tuning.new_key_locks = 0;
    let engine = open_with(&fs, config);
    let t = create(&engine, "db/t");
    committed(&engine, &t, 0..60);
    engine.flush_all().expect("flush");
    // The inserting one found the key free: a first delete of the row, which is inserted again by another one later.
    let mut delete = engine.begin();
    delete.lock_row(&t, &key_of(&t, 7), LockMode::Exclusive).expect("lock");
    delete.delete(&t, &key_of(&t, 7)).expect("delete");
    delete.commit().expect("commit");
    let mut late = engine.begin();
    late.insert(&t, &row_of(&t, &[7, 70]), OnDuplicate::Fail).expect("free");
    committed(&engine, &t, 7..8);
    let mut large = engine.begin();
    for key in 0..60 {
        large.lock_row(&t, &key_of(&t, key), LockMode::Exclusive).expect("lock");
        large.delete(&t, &key_of(&t, key)).expect("delete");
    }
    std::thread::scope(|scope| {
        let pending = engine.pause_points().close("a manifest edit of a commit");
        let deleted = scope.spawn(|| large.commit());
        pending.until_reached(1);
        let waits = engine.pause_points().watch("wait for a pending delete");
        let inserted = scope.spawn(|| late.commit());
        waits.until_reached(1);
        fs.fail_from(fs.op_count(), libc::ENOSPC);
        drop(pending);
        assert!(deleted.join().expect("no panic").expect_err("full").is_disk_full());
        let refused = inserted.join().expect("no panic").expect_err("the row is there");
        assert!(matches!(refused, Error::Duplicate { .. }), "{refused}");
        fs.heal();
    });
    assert_eq!(rows(&engine, &t)[7], (7, 7));
    assert_eq!(rows(&engine, &t).len(), 60);
    check(&engine, &t);
}

#[test]
fn prepared_transactions_are_told_in_pieces_while_some_are_decided() {
    let fs = SimFs::new();
    let engine = open(&fs);
    let t = create(&engine, "db/t");
    for n in 0..10u64 {
        let mut txn = engine.begin();
        insert(&mut txn, &t, n..n + 1);
        txn.prepare(&n.to_le_bytes()).expect("prepare");
    }
    drop((t, engine));
    let engine = open(&fs.kill());
    let (mut told, mut after) = (Vec::new(), None);
    loop {
        let piece = engine.prepared_after(after, 4);
        after = piece.last().map(|(number, _)| *number);
        told.extend(piece.iter().map(|(_, xid)| xid.clone()));
        if piece.len() < 4 {
            break;
        }
        engine.rollback_prepared(&piece[1].1).expect("rollback");
    }
    told.sort();
    assert_eq!(told, (0..10u64).map(|n| n.to_le_bytes().to_vec()).collect::<Vec<_>>());
    assert_eq!(engine.prepared_xids().len(), 8);
}

#[test]
fn the_memory_of_prepared_transactions_is_limited() {
    let fs = SimFs::new();
    let mut config = config();
    config.memtable_bytes = 12_000;
    config.tuning.txn_spill_bytes = 1 << 20;
    let engine = open_with(&fs, config);
    let t = create(&engine, "db/t");
    let prepare = |n: u64| {
        let mut txn = engine.begin();
        insert(&mut txn, &t, n * 100..n * 100 + 30);
        txn.make_room_for_prepared().and_then(|()| txn.prepare(&n.to_le_bytes()))
    };
    let refused = (0..100).map(prepare).find_map(Result::err).expect("a limit");
    assert!(matches!(refused, Error::LimitExceeded { limit: 12_000, .. }), "{refused}");
    let known = engine.prepared_xids();
    assert!(known.len() >= 2, "{}", known.len());
    // Some of them are in files.
    assert!(fs.files().iter().any(|path| path.to_string_lossy().contains("seg-")));
    assert!((3_000..=12_000).contains(&counter(&engine, "prepared_bytes")));
    assert!(counter(&engine, "prepared_log_bytes") > 0);
    known.iter().for_each(|xid| assert!(engine.commit_prepared(xid).expect("commit")));
    assert_eq!(rows(&engine, &t).len(), known.len() * 30);
    check(&engine, &t);
}

/// Commits to another table until the log has grown by so much.
fn fill_log(engine: &Arc<Engine>, bytes: u64) {
    let columns = vec![ColumnDef::plain(0, Lane::Int { width: 8 }, false), ColumnDef::plain(1, Lane::Bytes, false)];
    engine.create_table("db/large", Schema::plain(columns, vec![0], None)).expect("create");
    let large = table(engine, "db/large");
    for key in 0..bytes / 100_000 {
        let mut row = Vec::new();
        let layout = large.layout();
        let mut writer = layout.writer(&mut row);
        writer.set_int(0, key);
        writer.push_bytes(1, &vec![key as u8; 100_000]);
        writer.finish();
        let mut txn = engine.begin();
        txn.insert(&large, &row, OnDuplicate::Fail).expect("insert");
        txn.commit().expect("commit");
    }
    assert!(counter(engine, "log_bytes_written") > bytes / 10 * 9);
}

fn counter(engine: &Engine, name: &str) -> u64 {
    let counters = engine.counters();
    counters.iter().find(|(n, _)| *n == name).map(|(_, value)| *value).expect("a counter")
}

#[test]
fn a_prepared_transaction_does_not_keep_the_log_for_good() {
    let fs = SimFs::new();
    let mut config = config();
    config.memtable_bytes = 1 << 20;
    config.tuning.log_bytes = 1 << 20;
    config.tuning.txn_spill_bytes = 1 << 20;
    let engine = open_with(&fs, config);
    let t = create(&engine, "db/t");
    for n in 0..2u64 {
        let mut txn = engine.begin();
        insert(&mut txn, &t, n * 50..n * 50 + 40);
        txn.prepare(&n.to_le_bytes()).expect("prepare");
    }
    fill_log(&engine, 20 << 20);
    engine.flush_all().expect("flush");
    let kept = (counter(&engine, "log_bytes"), counter(&engine, "prepared_log_bytes"));
    assert!(kept.0 < 9 << 20 && kept.1 < 2 << 20, "{kept:?}");
    drop((t, engine));
    let fs = fs.power_cut(3);
    let engine = open(&fs);
    let t = table(&engine, "db/t");
    assert_eq!(engine.prepared_xids().len(), 2);
    assert!(engine.commit_prepared(&0u64.to_le_bytes()).expect("commit"));
    assert!(engine.rollback_prepared(&1u64.to_le_bytes()).expect("rollback"));
    assert!(rows(&engine, &t).iter().map(|row| row.0).take_while(|key| *key < 1000).eq(0..40));
    drop((t, engine));
    let engine = open(&fs.power_cut(3));
    assert_eq!(engine.prepared_xids().len(), 0);
    check(&engine, &table(&engine, "db/t"));
}

/// Of a table that is dropped while a prepared transaction has written to it nothing is left, in files and memory, and its other
/// tables are as they should be; also when a crash comes in between.
#[test]
fn a_temporary_table_takes_its_writes_out_of_a_prepared_transaction() {
    for (large, restarts) in [(false, false), (true, false), (true, true)] {
        let mut fs = SimFs::new();
        let mut engine = open(&fs);
        let mut t = create(&engine, "db/t");
        let temporary = create(&engine, "#tmp/x");
        let mut txn = engine.begin();
        insert(&mut txn, &temporary, 0..if large { 80 } else { 5 });
        insert(&mut txn, &t, 0..if large { 70 } else { 6 });
        update(&mut txn, &temporary, 0..3, 9);
        txn.prepare(b"x").expect("prepare");
        drop((txn, temporary));
        engine.drop_table("#tmp/x").expect("drop");
        if restarts {
            drop((t, engine));
            fs = fs.kill();
            engine = open(&fs);
            t = table(&engine, "db/t");
        }
        assert!(engine.commit_prepared(b"x").expect("commit"));
        assert_eq!(engine.poisoned(), None);
        assert_eq!(rows(&engine, &t).len(), if large { 70 } else { 6 });
        check(&engine, &t);
        committed(&engine, &t, 100..110);
        engine.flush_all().expect("flush");
        assert_eq!(counter(&engine, "memtable_bytes"), 0);
        drop((t, engine));
        let engine = open(&fs.kill());
        let t = table(&engine, "db/t");
        assert_eq!(rows(&engine, &t).len(), if large { 80 } else { 16 });
        check(&engine, &t);
    }
}

fn wait_no_time(engine: &Arc<Engine>, table: &Arc<Table>) -> rrd_store::Result<()> {
    let mut txn = engine.begin();
    txn.set_lock_timeout_ms(0);
    txn.wait_for_prepared(table)
}

#[test]
fn ddl_is_refused_while_a_prepared_transaction_has_writes() {
    let fs = SimFs::new();
    let mut engine = open(&fs);
    let t = create(&engine, "db/t");
    committed(&engine, &t, 0..5);
    let mut txn = engine.begin();
    update(&mut txn, &t, 0..2, 9);
    txn.prepare(b"x").expect("prepare");
    drop((txn, t));
    for round in 0..2 {
        let t = table(&engine, "db/t");
        let refused = [
            engine.drop_table("db/t"),
            engine.truncate_table("db/t"),
            engine.rename_table("db/t", "db/u"),
            wait_no_time(&engine, &t),
        ];
        assert!(refused.iter().all(|r| matches!(r, Err(Error::Prepared { .. }))), "{refused:?}");
        if round == 0 {
            drop((t, engine));
            engine = open(&fs.kill());
        }
    }
    assert!(engine.rollback_prepared(b"x").expect("rollback"));
    engine.truncate_table("db/t").expect("truncate");
    engine.drop_table("db/t").expect("drop");
}
