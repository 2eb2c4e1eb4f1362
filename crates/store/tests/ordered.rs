//! The second phase in a coordinator's order: who sees what when, and what a crash leaves for the coordinator.

#![expect(clippy::expect_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use rrd_store::fs::Fs;
use rrd_store::fs::sim::SimFs;
use rrd_store::schema::{ColumnDef, IndexColumn, IndexDef, Lane};
use rrd_store::{Config, Direction, Engine, Error, OnDuplicate, Schema, Table, TextUse, Txn};

#[path = "common/rows.rs"]
mod rows;

use rows::row_of;

fn schema() -> Schema {
    let int = |id| ColumnDef::plain(id, Lane::Int { width: 8 }, false);
    Schema::plain(vec![int(0), int(1)], vec![0], None)
}

/// Without a key: the first column is a number that each row takes.
fn numbered_schema() -> Schema {
    let mut schema = schema();
    schema.columns[0].hidden = true;
    schema.row_number = Some(0);
    schema
}

fn open(fs: &SimFs) -> Arc<Engine> {
    let mut config = Config::new("/rrd");
    config.background = false;
    config.tuning.bulk_min_bytes = 100;
    config.tuning.bulk_run_bytes = 500;
    config.tuning.smallest_batch = 1;
    // Inserts are here those of large statements, which find at COMMIT that another one was faster.
    config.tuning.new_key_locks = 0;
    Engine::open(config, Arc::new(fs.clone()) as Arc<dyn Fs>).expect("open")
}

fn create(fs: &SimFs) -> (Arc<Engine>, Arc<Table>) {
    let engine = open(fs);
    engine.create_table("db/t", schema()).expect("create");
    let table = engine.table("db/t").expect("table");
    (engine, table)
}

fn put(txn: &mut Txn, table: &Arc<Table>, key: u64, value: u64, mode: OnDuplicate) {
    txn.insert(table, &row_of(table, &[key, value]), mode).expect("insert");
}

fn prepared(engine: &Arc<Engine>, table: &Arc<Table>, key: u64, xid: &[u8]) -> Txn {
    let mut txn = engine.begin();
    put(&mut txn, table, key, key, OnDuplicate::Fail);
    txn.prepare(xid).expect("prepare");
    txn
}

fn rows(engine: &Arc<Engine>, txn: &mut Txn) -> u64 {
    let table = engine.table("db/t").expect("table");
    let mut cursor = txn.cursor(&table).expect("cursor");
    cursor.seek(None, true, Direction::Forward).expect("seek");
    let mut rows = 0;
    while let Some(span) = cursor.next_span(1000).expect("span") {
        rows += u64::from(span.rows);
    }
    rows
}

fn rows_now(engine: &Arc<Engine>) -> u64 {
    rows(engine, &mut engine.begin())
}

#[test]
fn commits_become_visible_in_the_order_that_they_were_given() {
    let (engine, table) = create(&SimFs::new());
    let mut first = prepared(&engine, &table, 1, b"first");
    let mut second = prepared(&engine, &table, 2, b"second");
    second.order_commit().expect("order");
    first.order_commit().expect("order");
    // Finishing the later one applies what is in front of it.
    first.commit().expect("commit");
    assert_eq!(rows_now(&engine), 2);
    second.commit().expect("commit");
    assert_eq!(rows_now(&engine), 2);
}

#[test]
fn an_ordered_snapshot_sees_what_has_its_place_but_is_not_finished() {
    let (engine, table) = create(&SimFs::new());
    let mut ordered = prepared(&engine, &table, 1, b"x");
    let mut before = engine.begin();
    before.take_ordered_snapshot();
    ordered.order_commit().expect("order");
    let mut after = engine.begin();
    after.take_ordered_snapshot();
    assert_eq!((rows(&engine, &mut before), rows(&engine, &mut after)), (0, 1));
    ordered.commit().expect("commit");
}

#[test]
fn who_waits_for_what_is_ordered_finds_its_rows() {
    let (engine, table) = create(&SimFs::new());
    let mut ordered = prepared(&engine, &table, 1, b"x");
    ordered.order_commit().expect("order");
    let mut next = engine.begin();
    next.wait_ordered();
    assert_eq!(rows(&engine, &mut next), 1);
    ordered.commit().expect("commit");
}

#[test]
fn an_ordered_commit_waits_for_no_disk_and_is_left_to_the_coordinator_by_a_power_cut() {
    let fs = SimFs::new();
    let (engine, table) = create(&fs);
    let mut txn = prepared(&engine, &table, 1, b"x");
    let before = fs.op_count();
    txn.order_commit().expect("order");
    txn.commit().expect("commit");
    assert_eq!(fs.op_count(), before, "a commit that is ordered touches no disk");
    assert_eq!(rows_now(&engine), 1);

    let again = open(&fs.power_cut(1));
    assert_eq!(again.prepared_xids(), [b"x".to_vec()]);
    assert!(again.commit_prepared(b"x").expect("second phase"));
    assert_eq!(rows_now(&again), 1);
}

#[test]
fn after_a_checkpoint_and_after_a_flush_the_coordinator_is_not_needed() {
    for flushes in [false, true] {
        let fs = SimFs::new();
        let (engine, table) = create(&fs);
        let mut txn = prepared(&engine, &table, 1, b"x");
        txn.order_commit().expect("order");
        txn.commit().expect("commit");
        match flushes {
            true => engine.flush_table(&table).expect("flush"),
            false => engine.checkpoint().expect("checkpoint"),
        }
        let again = open(&fs.power_cut(1));
        assert!(again.prepared_xids().is_empty(), "decided (flushes: {flushes})");
        assert_eq!(rows_now(&again), 1);
    }
}

#[test]
fn a_bulk_statement_is_linked_only_behind_its_commit_record() {
    let fs = SimFs::new();
    let (engine, table) = create(&fs);
    let mut txn = engine.begin();
    txn.begin_bulk(&table);
    for key in 0..200 {
        put(&mut txn, &table, key, key, OnDuplicate::Fail);
    }
    txn.end_bulk(&table).expect("bulk");
    txn.prepare(b"x").expect("prepare");
    txn.order_commit().expect("order");
    txn.commit().expect("commit");
    assert_eq!(rows_now(&engine), 200);
    let again = open(&fs.power_cut(1));
    assert!(again.prepared_xids().is_empty());
    assert_eq!(rows_now(&again), 200);
}

#[test]
fn a_key_of_a_prepared_transaction_is_undecided_until_it_is_decided() {
    let (engine, table) = create(&SimFs::new());
    let mut holder = prepared(&engine, &table, 1, b"x");
    let mut waiter = engine.begin();
    waiter.set_lock_timeout_ms(0);
    put(&mut waiter, &table, 1, 9, OnDuplicate::Fail);
    let Err(Error::Undecided { decision }) = waiter.commit() else { panic!("the key may still become free") };
    assert!(matches!(waiter.wait_decided(decision), Err(Error::LockTimeout)));
    holder.rollback();
    waiter.wait_decided(decision).expect("decided");
    waiter.commit().expect("the key is free");

    let mut holder = prepared(&engine, &table, 2, b"y");
    let mut waiter = engine.begin();
    waiter.set_lock_timeout_ms(0);
    put(&mut waiter, &table, 2, 9, OnDuplicate::Fail);
    assert!(matches!(waiter.prepare(b"z"), Err(Error::Undecided { .. })));
    holder.commit().expect("commit");
    assert!(matches!(waiter.prepare(b"z"), Err(Error::Duplicate { .. })));
    waiter.rollback();
    // The connection's next transaction is another decision, whoever still waits for the one before.
    put(&mut holder, &table, 3, 3, OnDuplicate::Fail);
    holder.prepare(b"next").expect("prepare");
    holder.commit().expect("commit");
}

#[test]
fn what_a_coordinator_was_told_is_not_settled_silently() {
    let (engine, table) = create(&SimFs::new());
    for (mode, key) in [(OnDuplicate::Replace, 1), (OnDuplicate::Ignore, 2)] {
        let mut slow = engine.begin();
        put(&mut slow, &table, key, 1, mode);
        let mut fast = engine.begin();
        put(&mut fast, &table, key, 2, OnDuplicate::Fail);
        fast.commit().expect("commit");
        assert!(matches!(slow.prepare(b"x"), Err(Error::Conflict)), "{mode:?}");
        slow.rollback();
    }
}

/// Of two that have another plan for a taken key the second waits for the first, whether the key is the table's or that of
/// a unique index; then it knows what it can tell.
#[test]
fn a_key_that_one_like_it_has_just_inserted_is_waited_for() {
    let (engine, table) = create_indexed(&SimFs::new(), 1 << 20);
    let modes = [OnDuplicate::Ignore, OnDuplicate::Replace, OnDuplicate::Update];
    let pairs = modes.iter().flat_map(|&first| modes.map(|second| (first, second)));
    for (n, (first, second)) in pairs.enumerate() {
        let what = format!("{first:?}, then {second:?}");
        let id = 10 * n as u64;
        for (key, value) in [(id, id + 1), (id + 1, id)] {
            let mut fast = engine.begin();
            put(&mut fast, &table, id, id, first);
            let mut slow = engine.begin();
            slow.set_lock_timeout_ms(0);
            let busy = slow.insert(&table, &row_of(&table, &[key, value]), second);
            assert!(matches!(busy, Err(Error::LockTimeout)), "{what}: {busy:?}");
            if key > id {
                fast.commit().expect("commit");
                let taken = slow.insert(&table, &row_of(&table, &[key, value]), second);
                assert!(matches!(taken, Err(Error::Duplicate { .. })), "{what}: {taken:?}");
            } else {
                fast.rollback();
                put(&mut slow, &table, key, value, second);
            }
            slow.rollback();
        }
    }
}

/// What a transaction has put and taken away again is nothing: a row that another one put there meanwhile stays.
#[test]
fn a_row_put_and_taken_away_does_not_take_away_another_ones() {
    for is_spilled in [false, true] {
        for mode in [OnDuplicate::Fail, OnDuplicate::Ignore, OnDuplicate::Replace] {
            let (engine, table) = create_indexed(&SimFs::new(), if is_spilled { 100 } else { 1 << 20 });
            let what = format!("{mode:?}, spilled: {is_spilled}");
            let mut slow = engine.begin();
            put(&mut slow, &table, 1, 10, mode);
            slow.delete(&table, &key_of(&table, 1)).expect("delete");
            let mut fast = engine.begin();
            put(&mut fast, &table, 1, 10, OnDuplicate::Fail);
            fast.commit().expect("commit");
            match slow.commit() {
                Ok(()) | Err(Error::Conflict | Error::Duplicate { .. }) => {}
                Err(other) => panic!("{what}: {other}"),
            }
            slow.rollback();
            assert_eq!(rows_now(&engine), 1, "{what}");
            assert!(is_taken(&engine, &table, 10), "{what}: the index entry");

            // A coordinator was told of both.
            let mut slow = engine.begin();
            put(&mut slow, &table, 2, 20, mode);
            slow.delete(&table, &key_of(&table, 2)).expect("delete");
            let mut fast = engine.begin();
            put(&mut fast, &table, 2, 20, OnDuplicate::Fail);
            fast.commit().expect("commit");
            let refused = slow.prepare(b"x");
            assert!(matches!(refused, Err(Error::Conflict | Error::Duplicate { .. })), "{what}: {refused:?}");
            slow.rollback();
            assert_eq!(rows_now(&engine), 2, "{what}");
        }
    }
}

/// As before, with a unique value that an UPDATE gave up.
#[test]
fn a_unique_value_given_up_is_not_taken_from_another_row() {
    for is_spilled in [false, true] {
        let (engine, table) = create_indexed(&SimFs::new(), if is_spilled { 100 } else { 1 << 20 });
        let mut slow = engine.begin();
        put(&mut slow, &table, 1, 10, OnDuplicate::Fail);
        slow.update(&table, &key_of(&table, 1), &row_of(&table, &[1, 11])).expect("update");
        let mut fast = engine.begin();
        put(&mut fast, &table, 2, 10, OnDuplicate::Fail);
        fast.commit().expect("commit");
        match slow.commit() {
            Ok(()) | Err(Error::Conflict | Error::Duplicate { .. }) => {}
            Err(other) => panic!("{other}"),
        }
        slow.rollback();
        assert!(is_taken(&engine, &table, 10), "spilled: {is_spilled}");
    }
}

fn create_indexed(fs: &SimFs, spill_bytes: usize) -> (Arc<Engine>, Arc<Table>) {
    let mut config = Config::new("/rrd");
    config.background = false;
    config.tuning.new_key_locks = 0;
    config.tuning.txn_spill_bytes = spill_bytes;
    let engine = Engine::open(config, Arc::new(fs.clone()) as Arc<dyn Fs>).expect("open");
    let mut schema = schema();
    let columns = vec![IndexColumn { column: 1, sort_lane: None, nulls_last: false }];
    schema.indexes = vec![IndexDef { id: 1, name: "value".into(), unique: true, columns }];
    schema.next_index = 2;
    engine.create_table("db/t", schema).expect("create");
    let table = engine.table("db/t").expect("table");
    (engine, table)
}

fn is_taken(engine: &Arc<Engine>, table: &Arc<Table>, value: u64) -> bool {
    let mut txn = engine.begin();
    matches!(txn.insert(table, &row_of(table, &[99, value]), OnDuplicate::Fail), Err(Error::Duplicate { .. }))
}

fn key_of(table: &Arc<Table>, key: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    table.layout().push_key(&row_of(table, &[key, 0]), &mut bytes);
    bytes
}

#[test]
fn texts_that_read_are_alone_and_inserts_are_not() {
    let (engine, table) = create(&SimFs::new());
    let (mut one, mut two) = (engine.begin(), engine.begin());
    one.set_lock_timeout_ms(0);
    two.set_lock_timeout_ms(0);
    one.lock_for_text(&table, TextUse::Insert).expect("free");
    two.lock_for_text(&table, TextUse::Insert).expect("inserts go together");
    assert!(matches!(two.lock_for_text(&table, TextUse::Read), Err(Error::LockTimeout)));
    one.rollback();
    two.lock_for_text(&table, TextUse::Read).expect("alone");
    assert!(matches!(one.lock_for_text(&table, TextUse::Insert), Err(Error::LockTimeout)));
}

/// Found by the replication test: after a kill -9 between the binary log and the engine's commit record, an insert into a
/// table without a key failed as a duplicate.
#[test]
fn the_numbers_of_prepared_rows_are_not_given_again() {
    let fs = SimFs::new();
    let engine = open(&fs);
    engine.create_table("db/t", numbered_schema()).expect("create");
    let table = engine.table("db/t").expect("table");
    let number = table.take_row_number();
    drop(prepared(&engine, &table, number, b"x"));
    let again = open(&fs.power_cut(1));
    again.commit_prepared(b"x").expect("second phase");
    assert!(again.table("db/t").expect("table").take_row_number() > number);
}
