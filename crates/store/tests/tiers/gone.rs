//! A table that is dropped or emptied does not wait for its tiers.

use std::sync::Arc;

use rrd_store::fs::sim::SimFs;
use rrd_store::{Direction, Engine, OnDuplicate, Table};

use super::{open, schema};

fn filled(fs: &Arc<SimFs>) -> (Arc<Engine>, Arc<Table>) {
    let engine = open(fs);
    engine.create_table("db/t", schema()).unwrap();
    let table = engine.table("db/t").unwrap();
    let layout = table.layout();
    let mut txn = engine.begin();
    for series in 0..100 {
        let mut row = Vec::new();
        let mut writer = layout.writer(&mut row);
        writer.set_int(0, series);
        writer.set_int(1, 1000);
        (2..5).for_each(|column| writer.set_null(column));
        writer.finish();
        txn.insert(&table, &row, OnDuplicate::Fail).unwrap();
    }
    txn.commit().unwrap();
    (engine, table)
}

/// Does something to a table while its first tier is brought up to date; says how many tiers were.
fn tiers_computed_beside(engine: &Arc<Engine>, table: &Arc<Table>, act: impl FnOnce(&Engine) + Send) -> usize {
    let points = engine.pause_points();
    let (tiers, begins) = (points.watch("a tier is brought up to date"), points.watch("a table is about to go"));
    let buckets = points.close("buckets are computed");
    std::thread::scope(|scope| {
        let flush = scope.spawn(|| engine.flush_table(table));
        buckets.until_reached(1);
        let act = scope.spawn(|| act(engine));
        begins.until_reached(1);
        drop(buckets);
        flush.join().unwrap().unwrap();
        act.join().unwrap();
    });
    tiers.reached()
}

/// With 500,000 series DROP TABLE waited for 16 seconds, deaf to KILL.
#[test]
fn drop_truncate_and_shutdown_do_not_wait_for_buckets() {
    let fs = Arc::new(SimFs::new());
    let (engine, table) = filled(&fs);
    assert_eq!(tiers_computed_beside(&engine, &table, |engine| engine.drop_table("db/t").unwrap()), 1);
    drop((table, engine));
    let fs = Arc::new(SimFs::new());
    let (engine, table) = filled(&fs);
    assert_eq!(tiers_computed_beside(&engine, &table, |engine| engine.truncate_table("db/t").unwrap()), 1);
    let mut cursor = engine.begin().cursor(&table).unwrap();
    cursor.seek(None, true, Direction::Forward).unwrap();
    assert!(cursor.next_span(1).unwrap().is_none());
    drop((cursor, table, engine));
    let fs = Arc::new(SimFs::new());
    let (engine, table) = filled(&fs);
    assert_eq!(tiers_computed_beside(&engine, &table, |engine| engine.close().unwrap()), 1);
    drop((table, engine));
    // What the shutdown left is in the log.
    let engine = open(&fs);
    let table = engine.table("db/t").unwrap();
    engine.flush_table(&table).unwrap();
    assert_eq!((table.stats().rows, table.tiers()[0].table.stats().rows), (100, 100));
}

/// The folder of a dropped table stayed until the next start if anybody read the table.
#[test]
fn the_folder_goes_with_the_last_reader() {
    let fs = Arc::new(SimFs::new());
    let (engine, table) = filled(&fs);
    engine.flush_table(&table).unwrap();
    let mut cursor = engine.begin().cursor(&table).unwrap();
    cursor.seek(None, true, Direction::Forward).unwrap();
    let folders = || {
        let entries = rrd_store::fs::Fs::list(&*fs, std::path::Path::new("/data/rrd")).unwrap();
        entries.iter().filter(|entry| entry.is_dir && entry.name.starts_with("table-")).count()
    };
    assert_eq!(folders(), 4);
    engine.drop_table("db/t").unwrap();
    assert_eq!(cursor.next_span(10).unwrap().map(|span| span.rows), Some(10));
    assert_eq!(folders(), 1);
    drop((cursor, table));
    // A background thread looks for such folders, and each DROP does.
    engine.create_table("db/u", schema()).unwrap();
    assert_eq!(folders(), 5);
    engine.drop_table("db/u").unwrap();
    assert_eq!(folders(), 0);
}
