//! Backups on the simulated disk: what is in them, what a power cut or a full disk leaves.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use super::*;
use crate::config::Config;
use crate::cursor::Direction;
use crate::fs::sim::SimFs;
use crate::own::OnDuplicate;
use crate::schema::{ColumnDef, Compression, Lane, Schema};
use crate::table::Table;
use crate::txn::Txn;

const TARGET: &str = "/backup/monday";

type Rows = BTreeMap<(u64, u64), u64>;

fn open_at(fs: &SimFs, dir: &str) -> Result<Arc<Engine>> {
    let mut config = Config::new(dir);
    config.background = false;
    config.tuning.bulk_min_bytes = 100;
    config.tuning.bulk_run_bytes = 500;
    Engine::open(config, Arc::new(fs.clone()) as Arc<dyn Fs>)
}

fn schema() -> Schema {
    let int = |id, width| ColumnDef::plain(id, Lane::Int { width }, false);
    Schema {
        compression: Compression::Fast,
        chunk_length: Some(64),
        ..Schema::plain(vec![int(0, 4), int(1, 4), int(2, 8)], vec![0, 1], Some(1))
    }
}

fn insert(txn: &mut Txn, table: &Arc<Table>, (series, time, value): (u64, u64, u64)) {
    let mut row = Vec::new();
    let layout = table.layout();
    let mut writer = layout.writer(&mut row);
    writer.set_int(0, series);
    writer.set_int(1, time);
    writer.set_int(2, value);
    writer.finish();
    txn.insert(table, &row, OnDuplicate::Fail).unwrap();
}

fn commit(engine: &Arc<Engine>, name: &str, rows: impl Iterator<Item = u64>, is_bulk: bool) {
    let table = engine.table(name).unwrap();
    let mut txn = engine.begin();
    if is_bulk {
        txn.begin_bulk(&table);
    }
    rows.for_each(|i| insert(&mut txn, &table, (i % 3, i, i * 7)));
    txn.end_bulk(&table).unwrap();
    txn.commit().unwrap();
}

fn rows(engine: &Arc<Engine>, name: &str) -> Rows {
    let table = engine.table(name).unwrap();
    let mut txn = engine.begin();
    let mut cursor = txn.cursor(&table).unwrap();
    cursor.seek(None, true, Direction::Forward).unwrap();
    let mut rows = Rows::new();
    while let Some(span) = cursor.next_span(1000).unwrap() {
        for n in 0..span.rows {
            let mut bytes = Vec::new();
            span.group.push_row(span.row(n), &mut bytes).unwrap();
            let (layout, bytes) = (table.layout(), bytes);
            let view = layout.view(&bytes);
            rows.insert((view.int(0), view.int(1)), view.int(2));
        }
    }
    rows
}

fn expected(times: impl Iterator<Item = u64>) -> Rows {
    times.map(|i| ((i % 3, i), i * 7)).collect()
}

/// A table with rows in sealed and other segments and in the log, another one, and a temporary one.
fn scene(fs: &SimFs) -> Arc<Engine> {
    fs.create_dir(Path::new("/backup")).unwrap();
    fs.create_dir(Path::new("/data")).unwrap();
    fs.sync_dir(Path::new("/")).unwrap();
    let engine = open_at(fs, "/data/#sql.rrd").unwrap();
    for name in ["db/a", "db/b", "#tmp/x", "db/#sql-alter-1"] {
        engine.create_table(name, schema()).unwrap();
    }
    commit(&engine, "db/a", 0..80, true);
    engine.flush_all().unwrap();
    engine.optimize_table(&engine.table("db/a").unwrap(), &mut |_, _| true).unwrap();
    commit(&engine, "db/a", 80..90, false);
    engine.flush_all().unwrap();
    commit(&engine, "db/a", 90..100, false);
    commit(&engine, "db/b", 0..5, false);
    commit(&engine, "#tmp/x", 0..5, false);
    engine
}

fn check_restored(fs: &SimFs, dir: &str) {
    let engine = open_at(fs, dir).unwrap();
    let mut names = engine.table_names();
    names.sort();
    assert_eq!(names, ["db/a", "db/b"]);
    assert_eq!(rows(&engine, "db/a"), expected(0..100));
    assert_eq!(rows(&engine, "db/b"), expected(0..5));
    for name in names {
        assert_eq!(engine.check_table(&engine.table(&name).unwrap(), &mut |_, _| true).unwrap(), Vec::<String>::new());
    }
}

fn none(_: &[u8]) -> bool {
    false
}

fn full(_: u64, _: u64) -> bool {
    true
}

#[test]
fn a_backup_holds_what_was_committed_before_it_and_nothing_later() {
    let fs = SimFs::new();
    let engine = scene(&fs);
    let backup = engine.begin_backup(Path::new(TARGET), &none).unwrap();
    commit(&engine, "db/a", 100..110, false);
    commit(&engine, "db/b", 5..60, true);
    // What the backup still has to copy goes from the engine's own folder now.
    engine.flush_all().unwrap();
    engine.optimize_table(&engine.table("db/a").unwrap(), &mut full).unwrap();
    engine.drop_table("db/b").unwrap();
    let report = backup.finish(&mut full).unwrap();
    assert_eq!((report.tables, report.copied_bytes), (2, 0));
    assert!(report.linked_bytes > 0 && report.log_bytes > 0 && report.segments > 1);
    assert_eq!(rows(&engine, "db/a"), expected(0..110));
    engine.close().unwrap();
    drop(engine);
    check_restored(&fs, "/backup/monday/#sql.rrd");
    assert_eq!(rows(&open_at(&fs, "/data/#sql.rrd").unwrap(), "db/a"), expected(0..110));
}

#[test]
fn where_files_cannot_be_linked_they_are_copied() {
    let fs = SimFs::new();
    let engine = scene(&fs);
    let backup = engine.begin_backup(Path::new(TARGET), &none).unwrap();
    fs.fail_at(fs.op_count() + 1, libc::EXDEV);
    let report = backup.finish(&mut full).unwrap();
    assert!(report.copied_bytes > 0 && report.linked_bytes > 0);
    check_restored(&fs, "/backup/monday/#sql.rrd");
}

#[test]
fn a_prepared_transaction_is_prepared_in_the_backup_too() {
    let fs = SimFs::new();
    let engine = scene(&fs);
    let table = engine.table("db/a").unwrap();
    let mut txn = engine.begin();
    txn.begin_bulk(&table);
    (200..260).for_each(|i| insert(&mut txn, &table, (i % 3, i, i * 7)));
    txn.end_bulk(&table).unwrap();
    txn.prepare(b"xid").unwrap();
    let backup = engine.begin_backup(Path::new(TARGET), &none).unwrap();
    assert!(engine.rollback_prepared(b"xid").unwrap());
    drop(txn);
    backup.finish(&mut full).unwrap();
    let restored = open_at(&fs, "/backup/monday/#sql.rrd").unwrap();
    assert_eq!(rows(&restored, "db/a"), expected(0..100));
    assert!(restored.commit_prepared(b"xid").unwrap());
    assert_eq!(rows(&restored, "db/a"), expected((0..100).chain(200..260)));
}

#[test]
fn a_transaction_that_is_being_committed_is_not_in_the_backup() {
    let fs = SimFs::new();
    let engine = scene(&fs);
    let table = engine.table("db/a").unwrap();
    let mut txns: Vec<Txn> = (0..2)
        .map(|n| {
            let mut txn = engine.begin();
            insert(&mut txn, &table, (7, n, n));
            txn.prepare(format!("own {n}").as_bytes()).unwrap();
            txn
        })
        .collect();
    let is_own = |xid: &[u8]| xid.starts_with(b"own");
    let backup = engine.begin_backup(Path::new(TARGET), &is_own).unwrap();
    txns.iter_mut().for_each(|txn| txn.commit().unwrap());
    backup.finish(&mut full).unwrap();
    assert_eq!(rows(&engine, "db/a").len(), 102);
    let restored = open_at(&fs, "/backup/monday/#sql.rrd").unwrap();
    assert_eq!(restored.prepared_xids(), Vec::<Vec<u8>>::new());
    assert_eq!(rows(&restored, "db/a"), expected(0..100));
    commit(&restored, "db/a", 300..310, false);
    drop(restored);
    assert_eq!(rows(&open_at(&fs, "/backup/monday/#sql.rrd").unwrap(), "db/a"), expected((0..100).chain(300..310)));
}

#[test]
fn the_servers_definitions_of_the_tables_come_along() {
    let fs = SimFs::new();
    let engine = scene(&fs);
    fs.create_dir(Path::new("/data/db")).unwrap();
    let texts = [
        ("db.opt", "charset"),
        ("a.frm", "definition"),
        ("a.TRG", "triggers"),
        ("t1.TRN", "TYPE=TRIGGERNAME\ntrigger_table=a\n"),
        ("t2.TRN", "TYPE=TRIGGERNAME\ntrigger_table=innodb\n"),
        ("innodb.frm", "another engine's"),
        ("#sql-alter-1.frm", "unfinished"),
    ];
    for (name, text) in texts {
        fs.create(&Path::new("/data/db").join(name)).unwrap().write(text.as_bytes()).unwrap();
    }
    let report = engine.begin_backup(Path::new(TARGET), &none).unwrap().finish(&mut full).unwrap();
    let names: Vec<_> = fs.list(Path::new("/backup/monday/db")).unwrap().into_iter().map(|e| e.name).collect();
    assert_eq!(names, ["a.TRG", "a.frm", "db.opt", "t1.TRN"]);
    assert_eq!(report.definitions, 4);
    assert_eq!(fs.read(Path::new("/backup/monday/db/a.frm")), b"definition");
}

#[test]
fn only_a_new_folder_beside_others_is_taken() {
    let fs = SimFs::new();
    let engine = scene(&fs);
    let refused = |target: &str| engine.begin_backup(Path::new(target), &none).err().unwrap().to_string();
    assert!(refused("/nowhere/monday").contains("'/nowhere'"));
    assert!(refused("/backup").contains("a backup needs a new folder"));
    let first = engine.begin_backup(Path::new(TARGET), &none).unwrap();
    assert!(refused(TARGET).contains("another backup is being made there"));
    first.finish(&mut full).unwrap();
    assert!(refused(TARGET).contains("exists"));
    assert!(fs.list(Path::new("/backup")).unwrap().len() == 1);
}

#[test]
fn what_is_stopped_or_dropped_leaves_nothing() {
    let fs = SimFs::new();
    let engine = scene(&fs);
    drop(engine.begin_backup(Path::new(TARGET), &none).unwrap());
    assert_eq!(fs.list(Path::new("/backup")).unwrap(), []);
    let mut left = 2;
    let mut stop = |_, _| {
        left -= 1;
        left > 0
    };
    let stopped = engine.begin_backup(Path::new(TARGET), &none).unwrap().finish(&mut stop);
    assert!(matches!(stopped, Err(Error::Interrupted)));
    assert_eq!(fs.list(Path::new("/backup")).unwrap(), []);
    commit(&engine, "db/a", 100..110, false);
    assert_eq!(rows(&engine, "db/a"), expected(0..110));
}

#[test]
fn a_full_disk_or_a_failing_call_leaves_nothing_and_harms_nothing() {
    for n in 1.. {
        let fs = SimFs::with_seed(n);
        let engine = scene(&fs);
        let before = fs.op_count();
        fs.fail_from(before + n, libc::ENOSPC);
        let result = engine.begin_backup(Path::new(TARGET), &none).and_then(|b| b.finish(&mut full));
        fs.heal();
        match result {
            Ok(_) => {
                assert!(n > 20, "no operation failed");
                return;
            }
            Err(error) => assert!(error.is_disk_full(), "{error}"),
        }
        assert_eq!(fs.list(Path::new("/backup")).unwrap(), [], "full at operation {n}");
        assert_eq!(engine.poisoned(), None);
        commit(&engine, "db/a", 100..110, false);
        assert_eq!(rows(&engine, "db/a"), expected(0..110));
        engine.begin_backup(Path::new(TARGET), &none).unwrap().finish(&mut full).unwrap();
    }
}

#[test]
fn a_power_cut_leaves_a_whole_backup_or_none_and_the_engine_unharmed() {
    for n in 1.. {
        let fs = SimFs::with_seed(n);
        let engine = scene(&fs);
        fs.crash_at(fs.op_count() + n);
        let result = engine.begin_backup(Path::new(TARGET), &none).and_then(|b| b.finish(&mut full));
        for seed in 0..4 {
            let after = fs.power_cut(seed * 1000 + n);
            if result.is_ok() || after.exists(Path::new(TARGET)) {
                check_restored(&after, "/backup/monday/#sql.rrd");
            }
            let engine = open_at(&after, "/data/#sql.rrd").unwrap();
            assert_eq!(rows(&engine, "db/a"), expected(0..100), "cut at operation {n}, seed {seed}");
        }
        if result.is_ok() {
            assert!(n > 20, "no operation was cut");
            return;
        }
    }
}

#[test]
fn a_backup_that_lost_its_log_is_noticed() {
    let fs = SimFs::new();
    let engine = scene(&fs);
    engine.begin_backup(Path::new(TARGET), &none).unwrap().finish(&mut full).unwrap();
    for file in fs.list(Path::new("/backup/monday/#sql.rrd/log")).unwrap() {
        fs.remove(&Path::new("/backup/monday/#sql.rrd/log").join(file.name)).unwrap();
    }
    assert!(matches!(open_at(&fs, "/backup/monday/#sql.rrd"), Err(Error::Corruption { .. })));
}

#[test]
fn a_link_that_takes_the_folders_name_in_between_is_neither_written_through_nor_cleaned_up_through() {
    let place = tempfile::tempdir().unwrap();
    let victim = place.path().join("victim");
    std::fs::create_dir(&victim).unwrap();
    std::fs::write(victim.join("precious"), "x").unwrap();
    let target = place.path().join("monday");
    let partial = place.path().join("monday.partial");
    let mut config = Config::new(place.path().join("data/#rrd"));
    config.background = false;
    let engine = Engine::open(config, Arc::new(crate::fs::os::OsFs)).unwrap();
    engine.create_table("db/a", schema()).unwrap();
    std::thread::scope(|scope| {
        let closed = engine.pause_points().close("a backup makes its folder");
        let backup = scope.spawn(|| engine.begin_backup(&target, &|_| false).map(drop));
        closed.until_reached(1);
        std::os::unix::fs::symlink(&victim, &partial).unwrap();
        drop(closed);
        assert!(matches!(backup.join().unwrap(), Err(Error::Io { op: "create", .. })));
    });
    assert_eq!(std::fs::read_dir(&victim).unwrap().count(), 1);
    assert!(partial.is_symlink());
    // A link to nothing is something, too.
    std::fs::remove_file(&partial).unwrap();
    std::os::unix::fs::symlink(place.path().join("nothing"), &partial).unwrap();
    assert!(matches!(engine.begin_backup(&target, &|_| false), Err(Error::InvalidInput(_))));
    std::fs::remove_file(&partial).unwrap();
    // One that takes it later is left alone, with what it leads to.
    let backup = engine.begin_backup(&target, &|_| false).unwrap();
    std::fs::rename(&partial, place.path().join("moved")).unwrap();
    std::os::unix::fs::symlink(&victim, &partial).unwrap();
    drop(backup);
    assert!(partial.is_symlink());
    assert_eq!(std::fs::read_dir(&victim).unwrap().count(), 1);
    std::fs::remove_file(&partial).unwrap();
    // What it made itself goes.
    drop(engine.begin_backup(&target, &|_| false).unwrap());
    assert!(!partial.exists());
    engine.begin_backup(&target, &|_| false).unwrap().finish(&mut |_, _| true).unwrap();
    assert!(target.is_dir() && !partial.exists());
}
