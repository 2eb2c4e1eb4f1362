//! Where the system has no more memory a statement fails; what comes after it works.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rrd_store::aggregate::{Aggregate, Group, Query};
use rrd_store::fs::os::OsFs;
use rrd_store::{Config, Engine, Error, OnDuplicate, Schema, Table, Txn};

/// Refuses what is larger than a limit.
struct Limited;

static LARGEST: AtomicUsize = AtomicUsize::new(usize::MAX);

// SAFETY: all memory comes from the system's allocator and goes back to it with the layout that it was asked for; null says that
// there is none.
unsafe impl GlobalAlloc for Limited {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.size() > LARGEST.load(Ordering::Relaxed) {
            return null_mut();
        }
        // SAFETY: as for this call.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as for this call.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Limited = Limited;

const LIMIT: usize = 1 << 20;

/// Does something while no more than [`LIMIT`] bytes are to be had at once.
fn limited<T>(act: impl FnOnce() -> T) -> T {
    LARGEST.store(LIMIT, Ordering::Relaxed);
    let done = act();
    LARGEST.store(usize::MAX, Ordering::Relaxed);
    done
}

#[track_caller]
fn assert_out_of_memory<T>(result: rrd_store::Result<T>) {
    match result {
        Err(Error::OutOfMemory { .. }) => {}
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("there was enough"),
    }
}

const SCHEMA: &str = r#"{"version": 1, "columns": [
    {"id": 0, "name": "series", "lane": {"int": {"width": 4}}, "nullable": false},
    {"id": 1, "name": "ts", "lane": {"int": {"width": 4}}, "nullable": false},
    {"id": 2, "name": "text", "lane": "bytes", "nullable": false}],
    "key": [0, 1], "time": {"column": 1, "unit": "s"}}"#;

fn write(table: &Table, number: u64, text: &[u8], out: &mut Vec<u8>) -> rrd_store::Result<()> {
    let layout = table.layout();
    let mut writer = layout.try_writer(out)?;
    writer.set_int(0, number);
    writer.set_int(1, 1000);
    writer.try_push_bytes(2, text)?;
    writer.finish();
    Ok(())
}

fn insert(txn: &mut Txn, table: &Arc<Table>, number: u64, text: &[u8]) -> rrd_store::Result<()> {
    let mut row = Vec::new();
    write(table, number, text, &mut row)?;
    txn.insert(table, &row, OnDuplicate::Fail)
}

/// The limit is the whole process's, so this is one test.
#[test]
fn a_statement_that_gets_no_memory_fails_alone() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = Config::new(folder.path().join("data"));
    config.background = false;
    config.cache_bytes = 1 << 20;
    let engine = Engine::open(config, Arc::new(OsFs)).unwrap();
    engine.create_table("db/t", serde_json::from_str::<Schema>(SCHEMA).unwrap()).unwrap();
    let table = engine.table("db/t").unwrap();
    let mut rows = 0;
    let mut next_works = |what: &str| {
        let mut txn = engine.begin();
        limited(|| insert(&mut txn, &table, 1_000_000 + rows, b"small").and_then(|()| txn.commit()))
            .unwrap_or_else(|error| panic!("after {what}: {error}"));
        rows += 1;
    };
    let long = vec![b'x'; 2 * LIMIT];

    // A row as it is made, and as it goes to the write set.
    let mut txn = engine.begin();
    assert_out_of_memory(limited(|| insert(&mut txn, &table, 1, &long)));
    let mut row = Vec::new();
    write(&table, 1, &long, &mut row).unwrap();
    assert_out_of_memory(limited(|| txn.insert(&table, &row, OnDuplicate::Fail)));
    txn.rollback();
    next_works("a long row");

    // The rows of a bulk statement, as they are collected.
    let mut txn = engine.begin();
    txn.begin_bulk(&table);
    let mut add = |number| {
        let added = txn.append(&table, |out| write(&table, number, &[b'y'; 1000], out))?;
        if added { Ok(()) } else { insert(&mut txn, &table, number, &[b'y'; 1000]) }
    };
    assert_out_of_memory(limited(|| (0..4000).try_for_each(&mut add)));
    txn.rollback();
    next_works("rows of a bulk statement");

    // The same, as its worker sorts and encodes them.
    let mut txn = engine.begin();
    txn.begin_bulk(&table);
    for number in 0..8000 {
        insert(&mut txn, &table, number, &[b'y'; 1000]).unwrap();
    }
    assert_out_of_memory(limited(|| txn.end_bulk(&table)));
    txn.rollback();
    next_works("the end of a bulk statement");

    // A transaction's log record.
    let mut txn = engine.begin();
    for number in 0..4000 {
        insert(&mut txn, &table, number, &[b'z'; 1000]).unwrap();
    }
    assert_out_of_memory(limited(|| txn.commit()));
    txn.rollback();
    next_works("a commit");

    // Groups.
    let mut txn = engine.begin();
    for number in 0..100_000 {
        insert(&mut txn, &table, number, b"").unwrap();
    }
    txn.commit().unwrap();
    rows_of_groups(&engine, &table);

    let mut cursor = engine.begin().cursor(&table).unwrap();
    cursor.seek(None, true, rrd_store::Direction::Forward).unwrap();
    let mut found = 0;
    while let Some(span) = cursor.next_span(1 << 14).unwrap() {
        found += u64::from(span.rows);
    }
    assert_eq!(found, 100_000 + rows, "nothing is left of what failed");
}

fn rows_of_groups(engine: &Arc<Engine>, table: &Arc<Table>) {
    let query = Query { groups: vec![Group::Column(0)], aggregates: vec![Aggregate::Count], ..Query::default() };
    assert_out_of_memory(limited(|| engine.begin().aggregate(table, &query, &|| false)));
    let answer = engine.begin().aggregate(table, &query, &|| false);
    assert!(answer.is_ok(), "once there is memory");
}
