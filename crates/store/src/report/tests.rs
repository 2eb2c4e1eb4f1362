#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::path::Path;
use std::sync::Arc;

use crate::fs::Fs;
use crate::fs::sim::SimFs;
use crate::lock::LockMode;
use crate::report::{ReportedLane, RowCounts};
use crate::{Config, Engine, Error, OnDuplicate, Schema, Table};

/// (series, time, value), in chunks of 100.
const SCHEMA: &str = r#"{"version": 1, "columns": [
    {"id": 0, "name": "series", "lane": {"int": {"width": 4}}, "nullable": false},
    {"id": 1, "name": "ts", "lane": {"int": {"width": 4}}, "nullable": false},
    {"id": 2, "name": "v", "lane": {"int": {"width": 8}}, "nullable": true}],
    "key": [0, 1], "time": {"column": 1, "unit": "s"}, "chunk_length": 100}"#;

fn engine() -> (SimFs, Arc<Engine>, Arc<Table>) {
    let fs = SimFs::new();
    let mut config = Config::new("/data/rrd");
    config.background = false;
    let engine = Engine::open(config, Arc::new(fs.clone())).unwrap();
    let schema: Schema = serde_json::from_str(SCHEMA).unwrap();
    engine.create_table("db/t", schema).unwrap();
    let table = engine.table("db/t").unwrap();
    (fs, engine, table)
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

fn insert(engine: &Arc<Engine>, table: &Arc<Table>, times: std::ops::Range<u64>) {
    let mut txn = engine.begin();
    for time in times {
        txn.insert(table, &row(table, 1, time, time), OnDuplicate::Fail).unwrap();
    }
    txn.commit().unwrap();
}

fn update(engine: &Arc<Engine>, table: &Arc<Table>, time: u64, value: u64) {
    let mut txn = engine.begin();
    let new = row(table, 1, time, value);
    let mut key = Vec::new();
    table.layout().push_key(&new, &mut key);
    txn.update(table, &key, &new).unwrap();
    txn.commit().unwrap();
}

fn counter(engine: &Engine, name: &str) -> u64 {
    engine.counters().iter().find(|(known, _)| *known == name).unwrap().1
}

#[test]
fn no_counter_is_there_twice() {
    let (_, engine, _) = engine();
    let mut names: Vec<_> = engine.counters().iter().map(|(name, _)| *name).collect();
    let all = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), all);
}

#[test]
fn what_an_open_snapshot_costs_is_counted() {
    let (_, engine, table) = engine();
    insert(&engine, &table, 0..10);
    assert_eq!(engine.oldest_open_snapshot(), None);
    let mut reader = engine.begin();
    reader.take_snapshot();
    for value in 100..105 {
        update(&engine, &table, 3, value);
    }
    let oldest = engine.oldest_open_snapshot().unwrap();
    assert_eq!((oldest.commits, oldest.txn), (5, reader.id()));
    let (versions, bytes) = engine.old_versions();
    assert_eq!(versions, 2, "the snapshot's, and what a reader of this moment could see");
    assert!(bytes > 0);
    drop(reader);
    assert_eq!(engine.oldest_open_snapshot(), None);
    update(&engine, &table, 3, 105);
    let (versions, fewer) = engine.old_versions();
    assert_eq!(versions, 1);
    assert_eq!(fewer, bytes / 2);
    engine.flush_all().unwrap();
    assert_eq!(engine.old_versions(), (0, 0));
}

#[test]
fn flushes_and_merges_say_what_they_wrote() {
    let (_, engine, table) = engine();
    insert(&engine, &table, 0..250);
    engine.flush_all().unwrap();
    assert_eq!((counter(&engine, "flushes"), counter(&engine, "merges")), (1, 0));
    let report = table.report();
    assert_eq!((report.segments, report.unsealed_segments, report.chunks), (3, 3, 3));
    assert_eq!(counter(&engine, "flush_bytes_written"), report.data_bytes);
    assert_eq!(counter(&engine, "segment_bytes_written"), report.data_bytes);
    engine.optimize_table(&table, &mut |_, _| true).unwrap();
    assert_eq!(table.report().unsealed_segments, 0);
    assert_eq!(counter(&engine, "merge_bytes_read"), report.data_bytes);
    assert_eq!(counter(&engine, "merge_bytes_written"), table.report().data_bytes);
    assert!(engine.jobs().is_empty());
    assert!(counter(&engine, "log_syncs") > 0 && counter(&engine, "manifest_writes") > 0);
}

#[test]
fn times_come_from_segments_and_memory() {
    let (_, engine, table) = engine();
    assert_eq!(table.time_range(), None);
    insert(&engine, &table, 500..510);
    assert_eq!(table.time_range(), Some((500, 509)));
    engine.flush_all().unwrap();
    assert_eq!(table.time_range(), Some((500, 509)));
    insert(&engine, &table, 20..30);
    insert(&engine, &table, 600..9_000);
    assert_eq!(table.time_range(), Some((20, 8_999)));
}

#[test]
fn lanes_add_up_to_the_files() {
    let (_, engine, table) = engine();
    insert(&engine, &table, 0..250);
    engine.flush_all().unwrap();
    let cached = counter(&engine, "cache_bytes");
    let totals = table.lane_totals(true, &mut |problem| panic!("{problem}"), &|| false);
    assert_eq!(totals.values().map(|lane| lane.bytes).sum::<u64>(), table.report().data_bytes);
    let value = &totals[&ReportedLane::Column(2)];
    assert_eq!((value.rows, value.blocks, value.codecs.values().sum::<u64>()), (250, 3, 3));
    let segments = table.segment_reports(true, &mut |problem| panic!("{problem}"), &|| false);
    assert_eq!(segments.iter().map(|s| s.row_groups.unwrap()).collect::<Vec<_>>(), [1, 1, 1]);
    assert_eq!(segments.iter().map(|s| s.chunk.unwrap().start).collect::<Vec<_>>(), [0, 100, 200]);
    assert_eq!(counter(&engine, "cache_bytes"), cached, "looking keeps nothing");
    assert!(table.lane_totals(true, &mut |_| {}, &|| true).is_empty(), "it can be stopped");
}

#[test]
fn a_segment_that_cannot_be_read_is_told_and_left_out() {
    let (fs, engine, table) = engine();
    insert(&engine, &table, 0..250);
    engine.flush_all().unwrap();
    let files: Vec<_> = table.segment_reports(false, &mut |_| {}, &|| false).into_iter().map(|s| s.file).collect();
    fs.remove(&Path::new("/data/rrd").join(&files[1])).unwrap();
    let mut problems = Vec::new();
    let totals = table.lane_totals(true, &mut |problem| problems.push(problem), &|| false);
    assert_eq!(totals[&ReportedLane::Column(2)].rows, 150);
    let segments = table.segment_reports(true, &mut |problem| problems.push(problem), &|| false);
    assert_eq!(segments.iter().map(|s| s.row_groups).collect::<Vec<_>>(), [Some(1), None, Some(1)]);
    assert_eq!(problems.len(), 2);
    assert!(problems[0].contains(&files[1]), "{}", problems[0]);
}

#[test]
fn waits_deadlocks_and_rows_are_counted() {
    let (_, engine, table) = engine();
    insert(&engine, &table, 0..2);
    let key = |time| {
        let mut key = Vec::new();
        table.layout().push_key(&row(&table, 1, time, 0), &mut key);
        key
    };
    let (mut one, mut two) = (engine.begin(), engine.begin());
    two.set_lock_timeout_ms(1);
    one.lock_row(&table, &key(0), LockMode::Exclusive).unwrap();
    two.lock_row(&table, &key(1), LockMode::Exclusive).unwrap();
    assert!(matches!(two.lock_row(&table, &key(0), LockMode::Exclusive), Err(Error::LockTimeout)));
    assert_eq!((counter(&engine, "row_lock_waits"), counter(&engine, "row_lock_timeouts")), (1, 1));
    assert_eq!((engine.row_locks_of(one.id()), engine.row_locks_of(two.id())), (1, 1));
    engine.note_rows(RowCounts { inserted: 2, read: 7, ..RowCounts::default() });
    engine.note_rows(RowCounts { read: 1, ..RowCounts::default() });
    assert_eq!((counter(&engine, "rows_inserted"), counter(&engine, "rows_read")), (2, 8));
    assert_eq!(counter(&engine, "row_lock_deadlocks"), 0);
}
