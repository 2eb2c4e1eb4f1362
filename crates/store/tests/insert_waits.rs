//! An insert waits for another transaction that has inserted its key and is not decided; then it knows what it can tell.

#![expect(clippy::expect_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use rrd_store::fs::Fs;
use rrd_store::fs::sim::SimFs;
use rrd_store::schema::{ColumnDef, IndexColumn, IndexDef, Lane};
use rrd_store::{Config, Engine, Error, OnDuplicate, Result, Schema, Table, Txn};

#[path = "common/rows.rs"]
mod rows;

use rows::row_of;

/// Two numbers, the first is the key, the second unique.
fn create() -> (Arc<Engine>, Arc<Table>) {
    let mut config = Config::new("/rrd");
    config.background = false;
    let engine = Engine::open(config, Arc::new(SimFs::new()) as Arc<dyn Fs>).expect("open");
    let int = |id| ColumnDef::plain(id, Lane::Int { width: 8 }, false);
    let column = IndexColumn { column: 1, sort_lane: None, nulls_last: false };
    let index = IndexDef { id: 1, name: "value".into(), columns: vec![column], unique: true };
    let schema = Schema { indexes: vec![index], ..Schema::plain(vec![int(0), int(1)], vec![0], None) };
    engine.create_table("db/t", schema).expect("create");
    let table = engine.table("db/t").expect("table");
    (engine, table)
}

fn insert(txn: &mut Txn, table: &Arc<Table>, key: u64, value: u64) -> Result<()> {
    txn.insert(table, &row_of(table, &[key, value]), OnDuplicate::Fail)
}

fn impatient(engine: &Arc<Engine>) -> Txn {
    let mut txn = engine.begin();
    txn.set_lock_timeout_ms(0);
    txn
}

/// Returns when a transaction waits for a lock.
fn until_waiting(engine: &Arc<Engine>) {
    while engine.lock_waits().is_empty() {
        std::thread::yield_now();
    }
}

#[test]
fn a_key_that_another_one_has_inserted_is_not_free_before_that_one_is_decided() {
    let (engine, table) = create();
    for is_committed in [true, false] {
        for (n, (key, value)) in [(1, 20), (2, 10), (1, 10)].into_iter().enumerate() {
            let base = 1000 * (n as u64 + 1) + 500 * u64::from(is_committed);
            let mut fast = engine.begin();
            insert(&mut fast, &table, base + 1, base + 10).expect("insert");
            let mut slow = impatient(&engine);
            let busy = insert(&mut slow, &table, base + key, base + value);
            assert!(matches!(busy, Err(Error::LockTimeout)), "{busy:?}");
            if is_committed {
                fast.commit().expect("commit");
                let taken = insert(&mut slow, &table, base + key, base + value);
                assert!(matches!(taken, Err(Error::Duplicate { .. })), "{taken:?}");
            } else {
                fast.rollback();
                insert(&mut slow, &table, base + key, base + value).expect("the key is free");
            }
            slow.commit().expect("a commit has nothing to refuse");
        }
    }
}

#[test]
fn who_waits_is_told_by_the_insert_and_not_by_the_commit() {
    let (engine, table) = create();
    let mut fast = engine.begin();
    insert(&mut fast, &table, 1, 1).expect("insert");
    std::thread::scope(|scope| {
        let slow = scope.spawn(|| {
            let mut slow = engine.begin();
            let told = insert(&mut slow, &table, 1, 2);
            (told, slow.commit())
        });
        until_waiting(&engine);
        let waits = engine.lock_waits();
        assert_eq!((waits.len(), waits[0].blocking.clone(), waits[0].index), (1, vec![fast.id()], None));
        fast.commit().expect("commit");
        let (told, committed) = slow.join().expect("thread");
        assert!(matches!(told, Err(Error::Duplicate { .. })), "{told:?}");
        committed.expect("there is nothing to commit");
    });
}

/// Two that wait for the same row to go: the first takes its place, the second waits on, and neither is in a deadlock.
#[test]
fn of_two_that_wait_for_a_delete_one_inserts_and_the_other_is_told() {
    let (engine, table) = create();
    let mut first = engine.begin();
    insert(&mut first, &table, 1, 1).expect("insert");
    first.commit().expect("commit");
    let key = {
        let mut key = Vec::new();
        table.layout().push_key(&row_of(&table, &[1, 1]), &mut key);
        key
    };
    first.lock_row(&table, &key, rrd_store::LockMode::Exclusive).expect("lock");
    first.delete(&table, &key).expect("delete");
    let outcomes: Vec<Result<()>> = std::thread::scope(|scope| {
        let ignore = |value: u64| {
            let (engine, table) = (&engine, &table);
            scope.spawn(move || {
                let mut txn = engine.begin();
                txn.insert(table, &row_of(table, &[1, value]), OnDuplicate::Ignore)?;
                txn.commit()
            })
        };
        let threads = [ignore(11), ignore(12)];
        while engine.lock_waits().len() < 2 {
            std::thread::yield_now();
        }
        first.commit().expect("commit");
        threads.into_iter().map(|thread| thread.join().expect("thread")).collect()
    });
    assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 1, "{outcomes:?}");
    assert!(outcomes.iter().any(|outcome| matches!(outcome, Err(Error::Duplicate { .. }))), "{outcomes:?}");
}

#[test]
fn the_first_rows_of_a_bulk_statement_wait_and_no_others() {
    let (engine, table) = create();
    let mut fast = engine.begin();
    insert(&mut fast, &table, 1, 1).expect("insert");
    for (rows, waits) in [(3, true), (100, false)] {
        let mut slow = impatient(&engine);
        slow.begin_bulk(&table);
        let inserted = (1..=rows)
            .rev()
            .try_for_each(|key| insert(&mut slow, &table, key, 1000 + key))
            .and_then(|()| slow.end_bulk(&table));
        assert_eq!(matches!(inserted, Err(Error::LockTimeout)), waits, "{rows} rows: {inserted:?}");
        slow.rollback();
    }
}

/// A commit that is queued has its number, but its rows cannot be seen yet.
#[test]
fn an_insert_that_waits_for_a_queued_commit_is_told_by_itself() {
    let (engine, table) = create();
    let mut fast = engine.begin();
    insert(&mut fast, &table, 1, 1).expect("insert");
    std::thread::scope(|scope| {
        let queued = engine.pause_points().close("a commit is queued");
        let commit = scope.spawn(|| fast.commit());
        queued.until_reached(1);
        let slow = scope.spawn(|| {
            let mut slow = engine.begin();
            let told = (insert(&mut slow, &table, 1, 2), insert(&mut slow, &table, 2, 1));
            (told, slow.commit())
        });
        until_waiting(&engine);
        drop(queued);
        commit.join().expect("thread").expect("commit");
        let (told, committed) = slow.join().expect("thread");
        assert!(
            matches!(told, (Err(Error::Duplicate { index: 0, .. }), Err(Error::Duplicate { index: 1, .. }))),
            "{told:?}"
        );
        committed.expect("there is nothing to commit");
    });
}

/// What a transaction knows of the newest rows while a commit is queued does not hold after that.
#[test]
fn the_newest_row_is_looked_up_again_after_a_queued_commit() {
    let (engine, table) = create();
    let mut fast = engine.begin();
    insert(&mut fast, &table, 7, 7).expect("insert");
    let mut slow = engine.begin();
    std::thread::scope(|scope| {
        let queued = engine.pause_points().close("a commit is queued");
        let commit = scope.spawn(|| fast.commit());
        queued.until_reached(1);
        insert(&mut slow, &table, 5, 5).expect("another key");
        drop(queued);
        commit.join().expect("thread").expect("commit");
    });
    for (key, value) in [(7, 8), (8, 7)] {
        let told = insert(&mut slow, &table, key, value);
        assert!(matches!(told, Err(Error::Duplicate { .. })), "{told:?}");
    }
    slow.commit().expect("a commit has nothing to refuse");
}

/// The row in the way was deleted between the look at the unique key and the question which row has it. The error named none, and
/// REPLACE, which reads that row next, failed with 1032.
#[test]
fn a_unique_key_that_is_freed_while_its_row_is_looked_for_is_free() {
    let (engine, table) = create();
    let mut txn = engine.begin();
    insert(&mut txn, &table, 5, 10).expect("insert");
    txn.commit().expect("commit");
    let taken = engine.pause_points().close("a key is taken");
    let replacing = {
        let (engine, table) = (engine.clone(), table.clone());
        std::thread::spawn(move || {
            let mut txn = engine.begin();
            txn.insert(&table, &row_of(&table, &[1, 10]), OnDuplicate::Replace)?;
            txn.commit()
        })
    };
    taken.until_reached(1);
    let mut txn = impatient(&engine);
    let mut key = Vec::new();
    table.layout().push_key(&row_of(&table, &[5, 10]), &mut key);
    txn.delete(&table, &key).expect("delete");
    txn.commit().expect("commit");
    drop(taken);
    replacing.join().expect("thread").expect("the key is free");
    let taken = insert(&mut engine.begin(), &table, 2, 10);
    assert!(matches!(taken, Err(Error::Duplicate { .. })));
}
