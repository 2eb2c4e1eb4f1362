//! Repairs on the simulated disk: each block damaged in turn, footers, cut and missing files, indexes.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::*;
use crate::config::Config;
use crate::fs::sim::SimFs;
use crate::own::OnDuplicate;
use crate::schema::{ColumnDef, Compression, IndexColumn, IndexDef, Lane};

/// Rows of the large segment: three groups.
const ROWS: u64 = 40_000;

/// Key to (value that may not be NULL, value that may).
type Rows = BTreeMap<u64, (u64, Option<u64>)>;

fn open(fs: &SimFs) -> Arc<Engine> {
    let mut config = Config::new("/rrd");
    config.background = false;
    Engine::open(config, Arc::new(fs.clone()) as Arc<dyn Fs>).unwrap()
}

fn schema(indexed: bool) -> Schema {
    let int = |id, nullable| ColumnDef::plain(id, Lane::Int { width: 8 }, nullable);
    let index = |id, column: u16, unique| IndexDef {
        id,
        name: format!("i{id}"),
        unique,
        columns: vec![IndexColumn::plain(column)],
    };
    Schema {
        compression: Compression::Fast,
        indexes: if indexed { vec![index(1, 1, true), index(2, 2, false)] } else { Vec::new() },
        ..Schema::plain(vec![int(0, false), int(1, false), int(2, true)], vec![0], None)
    }
}

fn value(i: u64) -> (u64, Option<u64>) {
    (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20, (i % 7 > 0).then_some(i * i))
}

fn put(engine: &Arc<Engine>, keys: impl Iterator<Item = u64>, value: impl Fn(u64) -> (u64, Option<u64>)) {
    let table = engine.table("db/t").unwrap();
    let layout = table.layout();
    let mut txn = engine.begin();
    for i in keys {
        let (a, b) = value(i);
        let mut row = Vec::new();
        let mut writer = layout.writer(&mut row);
        writer.set_int(0, i);
        writer.set_int(1, a);
        match b {
            Some(b) => writer.set_int(2, b),
            None => writer.set_null(2),
        }
        writer.finish();
        let mut key = Vec::new();
        layout.push_key(&row, &mut key);
        match txn.insert(&table, &row, OnDuplicate::Replace) {
            Err(Error::Duplicate { .. }) => txn.update(&table, &key, &row).unwrap(),
            other => other.unwrap(),
        }
    }
    txn.commit().unwrap();
}

fn remove(engine: &Arc<Engine>, keys: impl Iterator<Item = u64>) {
    let table = engine.table("db/t").unwrap();
    let mut txn = engine.begin();
    for i in keys {
        let mut key = Vec::new();
        crate::key::push_int(&mut key, i, 8);
        txn.delete(&table, &key).unwrap();
    }
    txn.commit().unwrap();
}

fn collect(mut cursor: Cursor) -> Rows {
    cursor.seek(None, true, Direction::Forward).unwrap();
    let mut rows = Rows::new();
    while let Some(span) = cursor.next_span(1 << 20).unwrap() {
        for n in 0..span.rows {
            let mut bytes = Vec::new();
            span.group.push_row(span.row(n), &mut bytes).unwrap();
            let view = span.group.layout().view(&bytes);
            rows.insert(view.int(0), (view.int(1), (!view.is_null(2)).then(|| view.int(2))));
        }
    }
    rows
}

fn rows(engine: &Arc<Engine>) -> Rows {
    collect(engine.begin().cursor(&engine.table("db/t").unwrap()).unwrap())
}

/// One segment of three groups, written by one bulk statement: a plain one.
fn plain(fs: &SimFs, indexed: bool) -> Rows {
    let engine = open(fs);
    engine.create_table("db/t", schema(indexed)).unwrap();
    put(&engine, 0..ROWS, value);
    engine.flush_all().unwrap();
    engine.optimize_table(&engine.table("db/t").unwrap(), &mut |_, _| true).unwrap();
    let rows = rows(&engine);
    engine.close().unwrap();
    rows
}

/// One segment of three groups with sequence numbers and tombstones over another one.
fn versioned(fs: &SimFs) -> Rows {
    let engine = open(fs);
    engine.create_table("db/t", schema(false)).unwrap();
    put(&engine, 0..100, value);
    engine.flush_all().unwrap();
    put(&engine, 0..ROWS, |i| (i, None));
    remove(&engine, (50..ROWS).filter(|i| i % 100 == 50));
    engine.flush_all().unwrap();
    let rows = rows(&engine);
    engine.close().unwrap();
    rows
}

/// The largest segment's file.
fn largest(fs: &SimFs, folder: &str) -> PathBuf {
    let files = fs.files().into_iter().filter(|f| f.starts_with(folder) && f.extension().is_some_and(|e| e == "rrds"));
    files.max_by_key(|f| fs.read(f).len()).unwrap()
}

/// A block of a file, by its own header.
#[derive(Debug)]
struct Block {
    offset: usize,
    column: u32,
    group: u32,
    rows: u64,
    length: usize,
}

fn blocks(bytes: &[u8]) -> Vec<Block> {
    let u32_at = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let mut found = Vec::new();
    let mut offset = 32;
    while bytes[offset] == 0xB7 {
        let rows = u64::from(u16::from_le_bytes(bytes[offset + 2..offset + 4].try_into().unwrap())) + 1;
        let length = 20 + u32_at(offset + 12) as usize;
        found.push(Block { offset, column: u32_at(offset + 4), group: u32_at(offset + 8), rows, length });
        offset += length;
    }
    found
}

/// Repairs what is on the disk, and checks that a second repair finds nothing and that it lasts.
fn repair(fs: &SimFs) -> (Repaired, Rows) {
    let engine = open(fs);
    let table = engine.table("db/t").unwrap();
    let repaired = engine.repair_table(&table, &mut |_, _| true).unwrap();
    let after = rows(&engine);
    assert_eq!(engine.check_table(&table, &mut |_, _| true).unwrap(), Vec::<String>::new());
    assert_eq!(engine.repair_table(&table, &mut |_, _| true).unwrap(), Repaired::default());
    put(&engine, std::iter::once(ROWS + 1), value);
    drop((table, engine));
    let engine = open(&fs.kill());
    let mut wanted = after.clone();
    wanted.insert(ROWS + 1, value(ROWS + 1));
    assert_eq!(rows(&engine), wanted);
    (repaired, after)
}

/// Rows of group `n` of the large segment.
fn keys_of(group: u32) -> std::ops::Range<u64> {
    let first = u64::from(group) * limits::GROUP_ROWS as u64;
    first..(first + limits::GROUP_ROWS as u64).min(ROWS)
}

#[test]
fn each_damaged_block_costs_its_own_group_and_no_more() {
    let fs = SimFs::new();
    let before = plain(&fs, false);
    let path = largest(&fs, "/rrd/table-00000001");
    let all = blocks(&fs.read(&path));
    assert_eq!(all.len(), 9);
    for block in all {
        for at in [block.offset, block.offset + 13, block.offset + block.length - 1] {
            let damaged = fs.kill();
            damaged.corrupt(&path, at as u64, 4);
            let (repaired, after) = repair(&damaged);
            let mut wanted = before.clone();
            match block.column {
                2 => keys_of(block.group).for_each(|key| wanted.get_mut(&key).unwrap().1 = None),
                _ => keys_of(block.group).for_each(|key| {
                    wanted.remove(&key);
                }),
            }
            assert!(after == wanted, "{block:?}: {} rows are left", after.len());
            assert_eq!(repaired.losses.len(), 1);
            let loss = &repaired.losses[0];
            assert_eq!((loss.rows, loss.column), (block.rows, (block.column == 2).then_some(2)));
            let keys = keys_of(block.group);
            let key = |i: u64| i.to_be_bytes().to_vec();
            assert_eq!((&loss.first_key, &loss.last_key), (&key(keys.start), &key(keys.end - 1)));
            let aside = path.with_extension("rrds.damaged");
            assert!(damaged.exists(&aside) && !damaged.exists(&path));
        }
    }
}

#[test]
fn without_its_footer_or_header_a_segment_loses_nothing() {
    for make in [|fs: &SimFs| plain(fs, false), versioned] {
        let fs = SimFs::new();
        let before = make(&fs);
        let path = largest(&fs, "/rrd/table-00000001");
        let bytes = fs.read(&path);
        let last = blocks(&bytes).pop().unwrap();
        let footer = last.offset + last.length;
        for at in [3, 20, footer, footer + 30, bytes.len() - 20, bytes.len() - 1] {
            let damaged = fs.kill();
            damaged.corrupt(&path, at as u64, 64);
            let (repaired, after) = repair(&damaged);
            // Where the footer's first byte is damaged it might have been a block's: its group cannot be trusted.
            match at == footer && !repaired.losses.is_empty() {
                true => assert_eq!(repaired.losses.iter().map(|l| l.rows).sum::<u64>(), last.rows),
                false => assert!(after == before && repaired.losses.is_empty(), "byte {at}: {:?}", repaired.losses),
            }
            assert_eq!(repaired.segments, 1);
        }
    }
}

#[test]
fn without_footer_and_a_block_no_row_is_made_up() {
    for make in [|fs: &SimFs| plain(fs, false), versioned] {
        let fs = SimFs::new();
        make(&fs);
        let path = largest(&fs, "/rrd/table-00000001");
        let bytes = fs.read(&path);
        for block in blocks(&bytes) {
            let damaged = fs.kill();
            damaged.corrupt(&path, bytes.len() as u64 - 30, 1);
            damaged.corrupt(&path, (block.offset + block.length / 2) as u64, 1);
            // What may come back where the newer row was lost.
            let older = (0..100).map(|i| (i, value(i))).collect::<Rows>();
            let all = rows(&open(&fs.kill()));
            let (repaired, after) = repair(&damaged);
            assert!(!repaired.losses.is_empty(), "{block:?}");
            for (key, found) in &after {
                let may_be = [all.get(key).copied(), all.get(key).map(|v| (v.0, None)), older.get(key).copied()];
                assert!(may_be.contains(&Some(*found)), "{block:?}: row {key} is {found:?}");
            }
            let others = all.keys().filter(|key| !keys_of(block.group).contains(key)).count();
            assert!(after.len() >= others, "{block:?}: {} rows are left", after.len());
        }
    }
}

#[test]
fn a_cut_or_missing_file_costs_what_is_not_there() {
    let fs = SimFs::new();
    let before = plain(&fs, false);
    let path = largest(&fs, "/rrd/table-00000001");
    let bytes = fs.read(&path);
    let all = blocks(&bytes);
    for len in [0, 10, 40, all[3].offset + 5, all[6].offset, bytes.len() - 1] {
        let damaged = fs.kill();
        damaged.truncate(&path, len as u64);
        let (repaired, after) = repair(&damaged);
        let whole = all.iter().filter(|b| b.column == 2 && b.offset + b.length <= len).count() as u32;
        let wanted: u64 = (0..whole).map(|g| keys_of(g).count() as u64).sum();
        assert_eq!(after.len() as u64, wanted, "cut to {len}");
        assert!(after.iter().all(|(key, found)| before[key] == *found));
        assert_eq!(repaired.losses.iter().map(|l| l.rows).sum::<u64>(), ROWS - wanted);
    }
    let missing = fs.kill();
    missing.remove(&path).unwrap();
    let (repaired, after) = repair(&missing);
    assert!(after.is_empty() && repaired.losses[0].what == "the file is missing");
}

#[test]
fn indexes_are_made_again_when_they_or_the_rows_are_damaged() {
    let fs = SimFs::new();
    let before = plain(&fs, true);
    for folder in ["/rrd/table-00000001", "/rrd/table-00000002", "/rrd/table-00000003"] {
        let damaged = fs.kill();
        let path = largest(&damaged, folder);
        let block = blocks(&damaged.read(&path)).remove(0);
        damaged.corrupt(&path, block.offset as u64 + 30, 1);
        let (repaired, after) = repair(&damaged);
        let is_base = folder.ends_with('1');
        let wanted: Rows =
            before.iter().filter(|(k, _)| !is_base || !keys_of(0).contains(k)).map(|(k, v)| (*k, *v)).collect();
        assert!(after == wanted, "{folder}: {} rows are left", after.len());
        assert_eq!(repaired.indexes.len(), if is_base { 2 } else { 1 });
        let engine = open(&damaged);
        let table = engine.table("db/t").unwrap();
        let mut txn = engine.begin();
        for number in 0..2 {
            assert_eq!(collect(txn.index_cursor(&table, number).unwrap()).len(), wanted.len() + 1);
        }
    }
}

#[test]
fn a_sound_table_is_left_as_it_is_and_a_dropped_one_takes_its_damaged_files_along() {
    let fs = SimFs::new();
    plain(&fs, true);
    let files = fs.files();
    let engine = open(&fs);
    let table = engine.table("db/t").unwrap();
    assert_eq!(engine.repair_table(&table, &mut |_, _| true).unwrap(), Repaired::default());
    let segments =
        |files: Vec<PathBuf>| files.into_iter().filter(|f| f.extension().is_some_and(|e| e == "rrds")).count();
    assert_eq!(segments(fs.files()), segments(files));
    fs.corrupt(&largest(&fs, "/rrd/table-00000001"), 60, 1);
    assert_eq!(engine.repair_table(&table, &mut |_, _| true).unwrap().segments, 1);
    drop(table);
    engine.drop_table("db/t").unwrap();
    drop(engine);
    assert_eq!(fs.files().into_iter().filter(|f| f.starts_with("/rrd/table-00000001")).count(), 0);
    open(&fs);
}

#[test]
fn a_power_cut_during_a_repair_leaves_the_damaged_table_or_the_repaired_one() {
    for n in (1..).step_by(2) {
        let fs = SimFs::with_seed(n);
        let before = plain(&fs, false);
        let path = largest(&fs, "/rrd/table-00000001");
        let block = blocks(&fs.read(&path)).remove(0);
        fs.corrupt(&path, block.offset as u64 + 30, 1);
        let engine = open(&fs);
        fs.crash_at(fs.op_count() + n);
        let result = engine.repair_table(&engine.table("db/t").unwrap(), &mut |_, _| true);
        let after = fs.power_cut(n);
        assert!(after.exists(&path) || after.exists(&path.with_extension("rrds.damaged")), "cut at operation {n}");
        let (_, rows) = repair(&after);
        assert!(rows == before.into_iter().filter(|(k, _)| !keys_of(0).contains(k)).collect(), "cut at operation {n}");
        if result.is_ok() {
            return;
        }
    }
}

/// A merge that makes room, or the clock, moves the horizon whenever it likes.
#[test]
fn only_a_commit_of_rows_stops_a_repair() {
    let fs = SimFs::new();
    let before = plain(&fs, true);
    let engine = open(&fs);
    let table = engine.table("db/t").unwrap();
    let refused = engine.repair_table(&table, &mut |_, _| {
        put(&engine, std::iter::once(0), |_| (1, None));
        true
    });
    assert!(matches!(refused, Err(Error::Conflict)));
    put(&engine, std::iter::once(0), value);
    let repaired = engine.repair_table(&table, &mut |_, _| engine.commit_nothing(&table).is_ok()).unwrap();
    assert_eq!((repaired, rows(&engine)), (Repaired::default(), before));
}
