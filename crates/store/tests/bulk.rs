//! Bulk statements of several runs: rows in any order are stored, and each kind of duplicate is found, late as it may be.

#![expect(clippy::expect_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use rrd_store::fs::Fs;
use rrd_store::fs::sim::SimFs;
use rrd_store::schema::{ColumnDef, Lane};
use rrd_store::{Config, Direction, Engine, Error, OnDuplicate, Result, Schema, Table, Txn};

/// Rows of a run, about.
const RUN: u64 = 40;

fn schema() -> Schema {
    let int = |id| ColumnDef::plain(id, Lane::Int { width: 8 }, false);
    Schema::plain(vec![int(0), int(1)], vec![0, 1], Some(1))
}

fn create() -> (Arc<Engine>, Arc<Table>) {
    let mut config = Config::new("/rrd");
    config.background = false;
    config.tuning.bulk_min_bytes = 100;
    config.tuning.bulk_run_bytes = RUN as usize * 17;
    let engine = Engine::open(config, Arc::new(SimFs::new()) as Arc<dyn Fs>).expect("open");
    engine.create_table("db/t", schema()).expect("create");
    let table = engine.table("db/t").expect("table");
    (engine, table)
}

/// One statement with rows of (series, time).
fn load(txn: &mut Txn, table: &Arc<Table>, rows: impl IntoIterator<Item = (u64, u64)>) -> Result<()> {
    let layout = table.layout();
    let savepoint = txn.savepoint();
    txn.begin_bulk(table);
    let loaded = rows.into_iter().try_for_each(|(series, time)| {
        let write = |row: &mut Vec<u8>| {
            let mut writer = layout.writer(row);
            writer.set_int(0, series);
            writer.set_int(1, time);
            writer.finish();
            Ok(())
        };
        if txn.append(table, write)? {
            return Ok(());
        }
        let mut row = Vec::new();
        write(&mut row)?;
        txn.insert(table, &row, OnDuplicate::Fail)
    });
    let loaded = loaded.and_then(|()| txn.end_bulk(table));
    if loaded.is_err() {
        txn.rollback_to(savepoint).expect("statement rollback");
    }
    loaded
}

/// Rounds of readings of ten series.
fn rounds(times: std::ops::Range<u64>) -> impl Iterator<Item = (u64, u64)> {
    times.flat_map(|time| (0..10).map(move |series| (series, time)))
}

fn keys(engine: &Arc<Engine>, table: &Arc<Table>) -> Vec<Vec<u8>> {
    let mut cursor = engine.begin().cursor(table).expect("cursor");
    cursor.seek(None, true, Direction::Forward).expect("seek");
    let mut keys = Vec::new();
    while let Some(span) = cursor.next_span(1000).expect("span") {
        for i in 0..span.rows {
            let mut key = Vec::new();
            span.group.push_key(span.row(i), &mut key).expect("key");
            keys.push(key);
        }
    }
    keys
}

fn key((series, time): (u64, u64)) -> Vec<u8> {
    [series.to_be_bytes(), time.to_be_bytes()].concat()
}

#[test]
fn rows_in_any_order_are_stored() {
    let (engine, table) = create();
    let mut rows: Vec<(u64, u64)> = rounds(0..100).collect();
    // Not a round in order, some series backwards.
    rows.sort_by_key(|&(series, time)| ((time * 7919 + series * 104_729) % 1009, series));
    let mut txn = engine.begin();
    load(&mut txn, &table, rows.iter().copied()).expect("load");
    txn.commit().expect("commit");
    rows.sort_unstable();
    assert_eq!(keys(&engine, &table), rows.into_iter().map(key).collect::<Vec<_>>());
}

#[test]
fn a_late_row_that_the_statement_has_already_is_a_duplicate() {
    let (engine, table) = create();
    for again in [(3, 5), (3, 60)] {
        let mut txn = engine.begin();
        let loaded = load(&mut txn, &table, rounds(0..100).chain([again]));
        assert!(matches!(loaded, Err(Error::Duplicate { .. })), "{loaded:?}");
        txn.commit().expect("commit");
        assert!(keys(&engine, &table).is_empty());
    }
}

/// A statement whose first rows went to the write set grows large with less than a run behind them: its last rows, which
/// nobody had looked up, were once taken for new.
#[test]
fn a_duplicate_behind_rows_of_the_write_set_is_found() {
    let (engine, table) = create();
    let mut txn = engine.begin();
    // A late row is looked up at once while the statement is small, and what came before it goes to the write set.
    let rows = (0..5).map(|series| (series, 9)).chain([(3, 8), (0, 10), (1, 10), (3, 8)]);
    let loaded = load(&mut txn, &table, rows);
    assert!(matches!(loaded, Err(Error::Duplicate { .. })), "{loaded:?}");
    txn.commit().expect("commit");
    assert!(keys(&engine, &table).is_empty());
}

#[test]
fn a_late_row_that_is_committed_is_a_duplicate() {
    let (engine, table) = create();
    let mut txn = engine.begin();
    load(&mut txn, &table, [(3, 1000)]).expect("load");
    txn.commit().expect("commit");
    let mut txn = engine.begin();
    let loaded = load(&mut txn, &table, rounds(0..100).chain([(3, 1000)]));
    assert!(matches!(loaded, Err(Error::Duplicate { .. })), "{loaded:?}");
    // Rows before what is there are not duplicates for that.
    load(&mut txn, &table, rounds(0..100)).expect("load");
    txn.commit().expect("commit");
    assert_eq!(keys(&engine, &table).len(), 1001);
}

#[test]
fn a_statement_knows_the_rows_of_the_one_before() {
    let (engine, table) = create();
    let mut txn = engine.begin();
    load(&mut txn, &table, rounds(0..100)).expect("load");
    let loaded = load(&mut txn, &table, rounds(100..200).chain([(3, 5)]));
    assert!(matches!(loaded, Err(Error::Duplicate { .. })), "{loaded:?}");
    load(&mut txn, &table, rounds(100..200)).expect("load");
    // A statement that was rolled back leaves nothing that is in the way.
    load(&mut txn, &table, rounds(200..300)).expect("load");
    txn.commit().expect("commit");
    assert_eq!(keys(&engine, &table).len(), 3000);
}

#[test]
fn what_others_commit_meanwhile_is_found_at_the_commit() {
    let (engine, table) = create();
    let mut slow = engine.begin();
    load(&mut slow, &table, rounds(0..100)).expect("load");
    let mut fast = engine.begin();
    load(&mut fast, &table, [(3, 99)]).expect("load");
    fast.commit().expect("commit");
    let committed = slow.commit();
    assert!(matches!(committed, Err(Error::Duplicate { .. })), "{committed:?}");
    assert_eq!(keys(&engine, &table), [key((3, 99))]);
}
