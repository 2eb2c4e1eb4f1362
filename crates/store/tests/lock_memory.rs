//! Row locks have a limit in bytes: who passes it locks the table as a whole, or fails; short transactions go on.

#![expect(clippy::expect_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use rrd_store::fs::Fs;
use rrd_store::fs::sim::SimFs;
use rrd_store::schema::{ColumnDef, Lane};
use rrd_store::{Config, Engine, Error, LockMode, OnDuplicate, Schema, Table, Txn};

#[path = "common/rows.rs"]
mod rows;

use rows::row_of;

/// Rows whose locks take ten times the limit.
const ROWS: u64 = 10_000;
const LIMIT: u64 = 200_000;

fn filled() -> (Arc<Engine>, Arc<Table>) {
    let mut config = Config::new("/rrd");
    config.background = false;
    let engine = Engine::open(config, Arc::new(SimFs::new()) as Arc<dyn Fs>).expect("open");
    let int = |id| ColumnDef::plain(id, Lane::Int { width: 8 }, false);
    engine.create_table("db/t", Schema::plain(vec![int(0), int(1)], vec![0], None)).expect("create");
    let table = engine.table("db/t").expect("table");
    let mut txn = engine.begin();
    (0..ROWS).for_each(|key| txn.insert(&table, &row_of(&table, &[key; 2]), OnDuplicate::Fail).expect("insert"));
    txn.commit().expect("commit");
    assert_eq!(counter(&engine, "row_lock_bytes"), 0);
    engine.set_lock_bytes(LIMIT);
    (engine, table)
}

fn key_of(table: &Table, key: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    table.layout().push_key(&row_of(table, &[key; 2]), &mut bytes);
    bytes
}

fn lock(txn: &mut Txn, table: &Arc<Table>, key: u64, mode: LockMode) -> rrd_store::Result<bool> {
    txn.lock_row(table, &key_of(table, key), mode)
}

fn impatient(engine: &Arc<Engine>) -> Txn {
    let mut txn = engine.begin();
    txn.set_lock_timeout_ms(0);
    txn
}

fn counter(engine: &Engine, name: &str) -> u64 {
    engine.counters().iter().find(|(known, _)| *known == name).expect("a counter").1
}

#[test]
fn who_locks_too_many_rows_locks_the_table_in_their_place() {
    let (engine, table) = filled();
    let mut large = engine.begin();
    (0..ROWS).for_each(|key| _ = lock(&mut large, &table, key, LockMode::Exclusive).expect("lock"));
    assert_eq!((counter(&engine, "row_lock_escalations"), counter(&engine, "row_locks")), (1, 0));
    assert!(counter(&engine, "row_lock_bytes") < 1000);
    // Rows that it locked before and after are its own, and so are keys that others would insert.
    let mut other = impatient(&engine);
    for key in [0, ROWS - 1] {
        assert!(matches!(lock(&mut other, &table, key, LockMode::Shared), Err(Error::LockTimeout)));
    }
    large.insert(&table, &row_of(&table, &[ROWS; 2]), OnDuplicate::Fail).expect("insert");
    let inserted = other.insert(&table, &row_of(&table, &[ROWS; 2]), OnDuplicate::Fail);
    assert!(matches!(inserted, Err(Error::LockTimeout)), "{inserted:?}");
    large.delete(&table, &key_of(&table, 0)).expect("delete");
    large.commit().expect("commit");
    lock(&mut other, &table, 1, LockMode::Exclusive).expect("the table is free");
    other.insert(&table, &row_of(&table, &[ROWS + 1; 2]), OnDuplicate::Fail).expect("insert");
    other.rollback();
    assert_eq!(counter(&engine, "row_lock_bytes"), 0);
}

#[test]
fn beside_others_it_fails_and_they_go_on() {
    let (engine, table) = filled();
    let mut small = engine.begin();
    lock(&mut small, &table, ROWS - 1, LockMode::Shared).expect("lock");
    let mut large = engine.begin();
    let failed = (0..ROWS).find_map(|key| lock(&mut large, &table, key, LockMode::Shared).err());
    assert!(matches!(failed, Some(Error::LockMemory { limit: LIMIT })), "{failed:?}");
    assert!(counter(&engine, "row_lock_bytes") <= LIMIT);
    // What it has it keeps, and may lock again.
    lock(&mut large, &table, 0, LockMode::Exclusive).expect("locked before");
    (ROWS - 100..ROWS - 1).for_each(|key| _ = lock(&mut small, &table, key, LockMode::Exclusive).expect("lock"));
    small.commit().expect("commit");
    // Now nobody else is in its way.
    (0..ROWS).for_each(|key| _ = lock(&mut large, &table, key, LockMode::Shared).expect("the rows, or the table"));
    assert_eq!(counter(&engine, "row_lock_escalations"), 1);
    large.rollback();
    assert_eq!((counter(&engine, "row_lock_bytes"), counter(&engine, "row_locks")), (0, 0));
}

#[test]
fn inserts_beyond_the_limit_are_checked_at_commit() {
    let (engine, table) = filled();
    let mut large = engine.begin();
    (0..ROWS).for_each(|n| large.insert(&table, &row_of(&table, &[ROWS + n; 2]), OnDuplicate::Fail).expect("insert"));
    assert!(counter(&engine, "row_lock_bytes") <= LIMIT);
    let mut other = impatient(&engine);
    let first = other.insert(&table, &row_of(&table, &[ROWS; 2]), OnDuplicate::Fail);
    assert!(matches!(first, Err(Error::LockTimeout)), "{first:?}");
    other.insert(&table, &row_of(&table, &[2 * ROWS - 1; 2]), OnDuplicate::Fail).expect("not locked");
    other.commit().expect("the first to commit");
    assert!(matches!(large.commit(), Err(Error::Duplicate { .. })));
    assert_eq!(counter(&engine, "row_lock_bytes"), 0);
}
