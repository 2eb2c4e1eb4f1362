//! A fixed script on the simulated disk, cut off at every single write, sync, create, rename and remove.
//!
//! After each cut: what was acknowledged is there, the step that was under way is there wholly or not at all, and
//! nothing else is. The same for one failing call (a full disk, a failed sync) after which the script goes on.

#![expect(clippy::expect_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::sync::Arc;

use rrd_store::alter::Alteration;
use rrd_store::fs::Fs;
use rrd_store::fs::sim::SimFs;
use rrd_store::schema::{ColumnDef, IndexColumn, IndexDef, Initial, Lane};
use rrd_store::{Config, Direction, Engine, Error, OnDuplicate, Result, Schema, Table, Txn};

mod common;

use common::NoSortKeys;

/// Table name to (series, time) to value.
type State = BTreeMap<String, BTreeMap<(u64, u64), u64>>;

/// Series, time, value.
type Row = (u64, u64, u64);

#[derive(Clone, Debug)]
enum Step {
    Create(&'static str),
    Rename(&'static str, &'static str),
    Truncate(&'static str),
    Drop(&'static str),
    /// ALTER TABLE: one more column, and an index of the value.
    Alter(&'static str),
    /// One transaction: rows (series, time, value) put into each table; a value of `GONE` deletes.
    Commit(Vec<(&'static str, Vec<Row>)>),
    /// A bulk statement of its own.
    Bulk(&'static str, Vec<Row>),
    Flush(&'static str),
    Optimize(&'static str),
    Close,
}

const GONE: u64 = u64::MAX;

fn script() -> Vec<Step> {
    let rows = |from: u64, count: u64| (from..from + count).map(|i| (i % 3, i, i * 7)).collect::<Vec<_>>();
    // Enough to be logged as differences to the poll before.
    let poll =
        |time: u64| (10..30).map(|series| (series, time, series * 1000 + time * series % 17)).collect::<Vec<_>>();
    vec![
        Step::Create("db/a"),
        Step::Commit(vec![("db/a", rows(0, 5))]),
        Step::Create("db/b"),
        Step::Commit(vec![("db/a", rows(5, 2)), ("db/b", rows(0, 3))]),
        Step::Commit(vec![("db/b", poll(1))]),
        Step::Commit(vec![("db/a", poll(1)), ("db/b", poll(2))]),
        Step::Bulk("db/a", rows(100, 60)),
        Step::Flush("db/a"),
        Step::Commit(vec![("db/a", poll(2)), ("db/b", poll(3))]),
        Step::Commit(vec![("db/a", poll(3))]),
        Step::Commit(vec![("db/a", vec![(1, 4, GONE), (2, 5, 1), (0, 300, 2)])]),
        Step::Flush("db/a"),
        Step::Alter("db/a"),
        Step::Optimize("db/a"),
        Step::Commit(vec![("db/b", vec![(0, 0, GONE), (9, 9, 9)])]),
        Step::Rename("db/b", "db/c"),
        Step::Commit(vec![("db/c", rows(40, 4)), ("db/a", rows(400, 2))]),
        Step::Commit(vec![("db/c", poll(4)), ("db/a", poll(4))]),
        Step::Flush("db/c"),
        Step::Commit(vec![("db/c", poll(5)), ("db/a", poll(5))]),
        Step::Commit(vec![("db/c", rows(50, 1))]),
        Step::Alter("db/c"),
        Step::Commit(vec![("db/c", vec![(0, 50, GONE), (7, 7, 7)])]),
        Step::Truncate("db/c"),
        Step::Commit(vec![("db/c", rows(60, 2))]),
        Step::Bulk("db/c", rows(500, 50)),
        Step::Flush("db/c"),
        Step::Drop("db/a"),
        Step::Commit(vec![("db/c", rows(70, 2))]),
        Step::Optimize("db/c"),
        Step::Close,
    ]
}

fn schema() -> Schema {
    let int = |id, width| ColumnDef::plain(id, Lane::Int { width }, false);
    Schema { chunk_length: Some(64), ..Schema::plain(vec![int(0, 4), int(1, 4), int(2, 8)], vec![0, 1], Some(1)) }
}

fn open(fs: &SimFs) -> Result<Arc<Engine>> {
    let mut config = Config::new("/rrd");
    config.background = false;
    config.tuning.bulk_min_bytes = 100;
    config.tuning.bulk_run_bytes = 500;
    config.tuning.chunk_least_rows = 5;
    config.tuning.sparse_chunks = 1;
    config.tuning.smallest_batch = 1;
    Engine::open(config, Arc::new(fs.clone()) as Arc<dyn Fs>)
}

fn row(table: &Table, (series, time, value): (u64, u64, u64)) -> Vec<u8> {
    let mut row = Vec::new();
    let layout = table.layout();
    let mut writer = layout.writer(&mut row);
    writer.set_int(0, series);
    writer.set_int(1, time);
    writer.set_int(2, value);
    writer.finish();
    row
}

fn write_row(txn: &mut Txn, table: &Arc<Table>, values: (u64, u64, u64)) -> Result<()> {
    let bytes = row(table, values);
    let mut key = Vec::new();
    table.layout().push_key(&bytes, &mut key);
    match values.2 {
        GONE => txn.delete(table, &key),
        _ => match txn.insert(table, &bytes, OnDuplicate::Replace) {
            Err(Error::Duplicate { .. }) => txn.update(table, &key, &bytes),
            other => other,
        },
    }
}

fn alter(engine: &Arc<Engine>, name: &str) -> Result<()> {
    let table = engine.table(name)?;
    let mut schema = Schema::clone(&table.schema());
    let id = schema.next_column_id();
    let added = ColumnDef { id, initial: Some(Initial::Bits(5)), ..schema.columns[2].clone() };
    schema.columns.push(added);
    let id = schema.next_index_id();
    let def = IndexDef { id, name: format!("i{id}"), unique: false, columns: vec![IndexColumn::plain(2)] };
    schema.indexes.push(def.clone());
    let built = engine.build_index(&table, &Arc::new(schema.clone()), &def, Arc::new(NoSortKeys), &mut |_| true)?;
    engine.alter_tables(vec![Alteration { table, schema, definition: b"id".to_vec(), built: vec![built], tiers: None }])
}

/// Where a state has the number of a table's columns and indexes, once it was altered.
const SHAPE: (u64, u64) = (u64::MAX, u64::MAX);

fn run(engine: &Arc<Engine>, step: &Step) -> Result<()> {
    match step {
        Step::Create(name) => engine.create_table(name, schema()),
        Step::Rename(from, to) => engine.rename_table(from, to),
        Step::Truncate(name) => engine.truncate_table(name),
        Step::Drop(name) => engine.drop_table(name),
        Step::Alter(name) => alter(engine, name),
        Step::Commit(parts) => {
            let mut txn = engine.begin();
            for (name, rows) in parts {
                let table = engine.table(name)?;
                rows.iter().try_for_each(|&r| write_row(&mut txn, &table, r))?;
            }
            txn.commit()
        }
        Step::Bulk(name, rows) => {
            let table = engine.table(name)?;
            let mut txn = engine.begin();
            txn.begin_bulk(&table);
            rows.iter().try_for_each(|&r| txn.insert(&table, &row(&table, r), OnDuplicate::Fail))?;
            txn.end_bulk(&table)?;
            txn.commit()
        }
        Step::Flush(name) => engine.flush_table(&engine.table(name)?),
        Step::Optimize(name) => engine.optimize_table(&engine.table(name)?, &mut |_, _| true),
        Step::Close => engine.close(),
    }
}

/// What the step makes of a state.
fn after(state: &State, step: &Step) -> State {
    let mut next = state.clone();
    match step {
        Step::Create(name) => drop(next.insert((*name).into(), BTreeMap::new())),
        Step::Rename(from, to) => {
            let rows = next.remove(*from).expect("the script renames tables that exist");
            next.insert((*to).into(), rows);
        }
        Step::Truncate(name) => next.get_mut(*name).expect("exists").retain(|key, _| *key == SHAPE),
        Step::Alter(name) => *next.get_mut(*name).expect("exists").entry(SHAPE).or_insert(30) += 11,
        Step::Drop(name) => drop(next.remove(*name)),
        Step::Commit(parts) => parts.iter().for_each(|(name, rows)| put(&mut next, name, rows)),
        Step::Bulk(name, rows) => put(&mut next, name, rows),
        Step::Flush(_) | Step::Optimize(_) | Step::Close => {}
    }
    next
}

fn put(state: &mut State, name: &str, rows: &[(u64, u64, u64)]) {
    let table = state.get_mut(name).expect("exists");
    for &(series, time, value) in rows {
        match value {
            GONE => drop(table.remove(&(series, time))),
            _ => drop(table.insert((series, time), value)),
        }
    }
}

fn state_of(engine: &Arc<Engine>) -> State {
    let mut state = State::new();
    for name in engine.table_names() {
        let table = engine.table(&name).expect("a listed table");
        let findings = engine.check_table(&table, &mut |_, _| true).expect("check");
        assert_eq!(findings, Vec::<String>::new(), "CHECK of {name}");
        let mut txn = engine.begin();
        let mut cursor = txn.cursor(&table).expect("cursor");
        cursor.seek(None, true, Direction::Forward).expect("seek");
        let rows = state.entry(name).or_default();
        let shape = table.schema().columns.len() * 10 + table.schema().indexes.len();
        if shape != 30 {
            rows.insert(SHAPE, shape as u64);
        }
        while let Some(span) = cursor.next_span(100).expect("next") {
            for n in 0..span.rows {
                let mut bytes = Vec::new();
                span.group.push_row(span.row(n), &mut bytes).expect("row");
                let layout = table.layout();
                let view = layout.view(&bytes);
                rows.insert((view.int(0), view.int(1)), view.int(2));
            }
        }
    }
    state
}

/// Runs the script until a step fails: the acknowledged state, and the step that failed.
fn run_script(fs: &SimFs) -> (State, Option<Step>) {
    let mut acknowledged = State::new();
    let Ok(engine) = open(fs) else { return (acknowledged, None) };
    for step in script() {
        if run(&engine, &step).is_err() {
            return (acknowledged, Some(step));
        }
        acknowledged = after(&acknowledged, &step);
    }
    (acknowledged, None)
}

fn operations() -> u64 {
    let fs = SimFs::new();
    let (_, failed) = run_script(&fs);
    assert!(failed.is_none(), "the script runs on a healthy disk");
    fs.op_count()
}

#[test]
fn a_power_cut_at_any_operation_loses_nothing_acknowledged() {
    let operations = operations();
    let mut cuts = 0;
    for n in 1..=operations {
        for seed in [1, 2, 3, 4] {
            let fs = SimFs::with_seed(seed);
            fs.crash_at(n);
            let (acknowledged, under_way) = run_script(&fs);
            let survivor = fs.power_cut(seed * 1000 + n);
            let engine = open(&survivor).unwrap_or_else(|e| panic!("operation {n}, seed {seed}: {e}"));
            let found = state_of(&engine);
            let completed = under_way.as_ref().map(|step| after(&acknowledged, step));
            assert!(
                found == acknowledged || Some(&found) == completed.as_ref(),
                "operation {n}, seed {seed}, step {under_way:?}\nfound        {found:?}\nacknowledged {acknowledged:?}"
            );
            write_after_recovery(&engine, &survivor, found);
            cuts += 1;
        }
    }
    println!("{cuts} power cuts at {operations} operations");
}

/// A recovered engine takes new work, and keeps it over another restart.
fn write_after_recovery(engine: &Arc<Engine>, fs: &SimFs, before: State) {
    let Some(name) = before.keys().next().cloned() else { return };
    let table = engine.table(&name).expect("table");
    let mut txn = engine.begin();
    write_row(&mut txn, &table, (77, 77, 77)).expect("insert after recovery");
    txn.commit().expect("commit after recovery");
    let again = open(&fs.power_cut(5)).expect("second recovery");
    let mut expected = before;
    expected.get_mut(&name).expect("the table").insert((77, 77), 77);
    assert_eq!(state_of(&again), expected);
}

/// Runs the script to its end, whatever fails in between. Each failed step may turn out done or not.
fn run_on(fs: &SimFs) -> Vec<State> {
    let Ok(engine) = open(fs) else { return vec![State::new()] };
    let mut possible = vec![State::new()];
    for step in script() {
        // A step on a table that an earlier failure kept from existing is not part of this run.
        let applicable = possible.iter().all(|s| applies(s, &step));
        if !applicable {
            continue;
        }
        match run(&engine, &step) {
            Ok(()) => possible = possible.iter().map(|s| after(s, &step)).collect(),
            Err(_) => {
                let done: Vec<State> = possible.iter().map(|s| after(s, &step)).collect();
                possible.extend(done);
            }
        }
    }
    possible
}

fn applies(state: &State, step: &Step) -> bool {
    match step {
        Step::Create(name) => !state.contains_key(*name),
        Step::Rename(from, to) => state.contains_key(*from) && !state.contains_key(*to),
        Step::Truncate(name)
        | Step::Drop(name)
        | Step::Alter(name)
        | Step::Bulk(name, _)
        | Step::Flush(name)
        | Step::Optimize(name) => state.contains_key(*name),
        Step::Commit(parts) => parts.iter().all(|(name, _)| state.contains_key(*name)),
        Step::Close => true,
    }
}

#[test]
fn a_full_disk_at_any_operation_fails_one_step_and_loses_nothing() {
    failing_calls(libc_enospc());
}

#[test]
fn a_failed_call_at_any_operation_loses_nothing_acknowledged() {
    failing_calls(5); // EIO
}

fn failing_calls(errno: i32) {
    for n in 1..=operations() {
        let fs = SimFs::with_seed(n);
        fs.fail_at(n, errno);
        let possible = run_on(&fs);
        let survivor = fs.power_cut(n);
        let engine = open(&survivor).unwrap_or_else(|e| panic!("operation {n}: {e}"));
        let found = state_of(&engine);
        assert!(possible.contains(&found), "operation {n}\nfound    {found:?}\npossible {possible:?}");
    }
}

#[test]
fn a_disk_that_stays_full_keeps_what_was_acknowledged_and_heals() {
    for n in (1..=operations()).step_by(3) {
        let fs = SimFs::with_seed(n);
        fs.fail_from(n, libc_enospc());
        let Ok(engine) = open(&fs) else { continue };
        let mut acknowledged = State::new();
        let mut failed = false;
        for step in script() {
            if !applies(&acknowledged, &step) {
                continue;
            }
            match run(&engine, &step) {
                Ok(()) => acknowledged = after(&acknowledged, &step),
                Err(error) => {
                    assert!(!matches!(error, Error::Corruption { .. }), "operation {n}: {error}");
                    failed = true;
                    break;
                }
            }
        }
        fs.heal();
        assert_eq!(state_of(&engine), acknowledged, "operation {n}: a failed step left something behind");
        if failed && !acknowledged.is_empty() {
            let name = acknowledged.keys().next().expect("a table").clone();
            let mut txn = engine.begin();
            write_row(&mut txn, &engine.table(&name).expect("table"), (5, 5, 5)).expect("insert once there is room");
            txn.commit().unwrap_or_else(|e| panic!("operation {n}: the engine did not recover from a full disk: {e}"));
            acknowledged.get_mut(&name).expect("the table").insert((5, 5), 5);
        }
        let again = open(&fs.power_cut(n)).unwrap_or_else(|e| panic!("operation {n}: {e}"));
        assert_eq!(state_of(&again), acknowledged, "operation {n}, after a restart");
    }
}

fn libc_enospc() -> i32 {
    28
}

#[test]
fn after_a_clean_shutdown_a_short_or_missing_log_or_manifest_is_reported() {
    let fs = SimFs::new();
    run_script(&fs);
    let is_watched =
        |path: &std::path::Path| path.to_string_lossy().contains("log-") || path.to_string_lossy().ends_with(".rrdm");
    let files: Vec<_> = fs.files().into_iter().filter(|path| is_watched(path)).collect();
    assert!(files.len() >= 2, "{files:?}");
    let newest_log = files.iter().filter(|path| path.to_string_lossy().contains("log-")).max().expect("a log file");
    let manifest = files.iter().find(|path| path.to_string_lossy().ends_with(".rrdm")).expect("a manifest");
    for path in [newest_log, manifest] {
        let len = fs.read(path).len() as u64;
        for keep in (0..len).step_by((len / 40).max(1) as usize) {
            let cut = fs.kill();
            cut.truncate(path, keep);
            let opened = open(&cut).map(|_| ());
            assert!(opened.is_err(), "{} cut to {keep} of {len} bytes went unnoticed", path.display());
        }
        let gone = fs.kill();
        gone.remove(path).expect("remove");
        assert!(open(&gone).is_err(), "{} is missing and nobody noticed", path.display());
    }
}
