//! A table whose disk does not answer stops its own commits and nobody else's.
//!
//! The reads of one table's files wait at a gate of the simulated disk; meanwhile a commit to another table has to end.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use rrd_store::alter::Alteration;
use rrd_store::fs::sim::SimFs;
use rrd_store::schema::Ring;
use rrd_store::{Config, Direction, Engine, OnDuplicate, Schema, Table, Txn};

const SCHEMA: &str = r#"{"version": 1, "columns": [
    {"id": 0, "name": "series", "lane": {"int": {"width": 4}}, "nullable": false},
    {"id": 1, "name": "ts", "lane": {"int": {"width": 4}}, "nullable": false},
    {"id": 2, "name": "value", "lane": {"int": {"width": 8}}, "nullable": false}],
    "key": [0, 1], "time": {"column": 1, "unit": "s"}, "chunk_length": 100"#;

/// A commit that waits for longer than this waits for the gate.
const TOO_LONG: Duration = Duration::from_secs(20);

const SERIES: u64 = 4;

struct World {
    fs: SimFs,
    engine: Arc<Engine>,
    ring: Arc<Table>,
    quiet: Arc<Table>,
    /// What is in the paths of the ring's files alone.
    folder: String,
}

fn schema(rest: &str) -> Schema {
    serde_json::from_str(&format!("{SCHEMA}{rest}}}")).unwrap()
}

fn open(fs: &SimFs, ring: Ring) -> World {
    let mut config = Config::new("/data/rrd");
    (config.background, config.clock_micros) = (false, Some(i64::MAX / 2));
    // Each read is one of the disk.
    config.cache_bytes = 0;
    config.tuning.ring_ahead = 7;
    config.tuning.bulk_min_bytes = 100;
    // Whoever was later is told at the commit.
    config.tuning.new_key_locks = 0;
    let engine = Engine::open(config, Arc::new(fs.clone())).unwrap();
    if engine.table("db/ring").is_err() {
        engine.create_table("db/ring", Schema { ring, ..schema("") }).unwrap();
        engine.create_table("db/quiet", schema("")).unwrap();
    }
    let (ring, quiet) = (engine.table("db/ring").unwrap(), engine.table("db/quiet").unwrap());
    World { fs: fs.clone(), engine, ring, quiet, folder: "/table-00000001/".into() }
}

fn insert(engine: &Arc<Engine>, table: &Arc<Table>, times: impl Iterator<Item = u64>, is_bulk: bool) {
    let mut txn = engine.begin();
    if is_bulk {
        txn.begin_bulk(table);
    }
    let layout = table.layout();
    for time in times {
        for series in 0..SERIES {
            let mut row = Vec::new();
            let mut writer = layout.writer(&mut row);
            writer.set_int(0, series);
            writer.set_int(1, time);
            writer.set_int(2, (time + series).wrapping_mul(0x9E37_79B9_7F4A_7C15));
            writer.finish();
            let write = |out: &mut Vec<u8>| {
                out.extend_from_slice(&row);
                Ok(())
            };
            if !is_bulk || !txn.append(table, write).unwrap() {
                txn.insert(table, &row, OnDuplicate::Fail).unwrap();
            }
        }
    }
    txn.end_bulk(table).unwrap();
    txn.commit().unwrap();
}

/// How many rows are there.
fn rows(engine: &Arc<Engine>, table: &Arc<Table>) -> u64 {
    let mut txn = engine.begin();
    let mut cursor = txn.cursor(table).unwrap();
    cursor.seek(None, true, Direction::Forward).unwrap();
    std::iter::from_fn(|| cursor.next_span(1000).unwrap()).map(|span| u64::from(span.rows)).sum()
}

/// While `work` waits for the ring's disk, a commit to the quiet table ends.
fn quiet_commits_end_beside(world: &World, work: impl FnOnce() + Send) {
    let closed = world.fs.close_reads(&world.folder);
    std::thread::scope(|scope| {
        let (done, is_done) = mpsc::channel();
        let working = scope.spawn(work);
        closed.until_reached(1);
        scope.spawn(move || {
            let next = rows(&world.engine, &world.quiet) / SERIES;
            insert(&world.engine, &world.quiet, next..next + 1, false);
            _ = done.send(());
        });
        let ended = is_done.recv_timeout(TOO_LONG);
        assert!(!working.is_finished(), "the ring did not wait for its disk");
        drop(closed);
        assert!(ended.is_ok(), "a commit to another table waited for the ring's disk");
    });
}

/// Fills a ring with `times` times of all series, in segments.
fn fill(world: &World, times: u64) {
    for from in (0..times).step_by(50) {
        insert(&world.engine, &world.ring, from..(from + 50).min(times), false);
    }
    world.engine.flush_all().unwrap();
}

#[test]
fn a_full_ring_of_rows_looks_for_those_that_leave() {
    let world = open(&SimFs::new(), Ring { max_rows: Some(1000), ..Ring::default() });
    fill(&world, 250);
    assert_eq!(rows(&world.engine, &world.ring), 1000);
    quiet_commits_end_beside(&world, || insert(&world.engine, &world.ring, 250..260, false));
    assert_eq!(rows(&world.engine, &world.ring), 1000);
}

#[test]
fn many_rows_leave_at_once() {
    for is_bulk in [false, true] {
        let world = open(&SimFs::new(), Ring { max_rows: Some(1000), ..Ring::default() });
        fill(&world, 250);
        quiet_commits_end_beside(&world, || insert(&world.engine, &world.ring, 250..400, is_bulk));
        assert_eq!(rows(&world.engine, &world.ring), 1000);
    }
}

#[test]
fn a_ring_becomes_shorter() {
    let world = open(&SimFs::new(), Ring { max_rows: Some(1000), ..Ring::default() });
    fill(&world, 250);
    let mut schema = Schema::clone(&world.ring.schema());
    schema.ring.max_rows = Some(150);
    let (table, definition) = (world.ring.clone(), b"id".to_vec());
    let change = Alteration { table, schema, definition, built: Vec::new(), tiers: None };
    world.engine.alter_tables(vec![change]).unwrap();
    quiet_commits_end_beside(&world, || world.engine.settle_ring(&world.ring, true).unwrap());
    assert_eq!(rows(&world.engine, &world.ring), 150);
}

#[test]
fn a_series_is_counted() {
    let fs = SimFs::new();
    let ring = Ring { series_max_rows: Some(100), ..Ring::default() };
    let world = open(&fs, ring);
    fill(&world, 150);
    world.engine.close().unwrap();
    drop(world);
    let world = open(&fs, ring);
    quiet_commits_end_beside(&world, || insert(&world.engine, &world.ring, 150..151, false));
    assert_eq!(rows(&world.engine, &world.ring), SERIES * 100);
    quiet_commits_end_beside(&world, || insert(&world.engine, &world.ring, 151..180, true));
    assert_eq!(rows(&world.engine, &world.ring), SERIES * 100);
}

#[test]
fn a_ring_of_bytes_makes_room() {
    let world = open(&SimFs::new(), Ring { max_bytes: Some(60_000), ..Ring::default() });
    for from in (0..4000).step_by(500) {
        insert(&world.engine, &world.ring, from..from + 500, false);
        world.engine.flush_all().unwrap();
    }
    insert(&world.engine, &world.ring, 4000..4500, false);
    quiet_commits_end_beside(&world, || {
        world.engine.flush_all().unwrap();
        world.engine.optimize_table(&world.ring, &mut |_, _| true).unwrap();
    });
}

/// Rows come and go while a look for others is under way: it finds what is right after them.
#[test]
fn commits_beside_a_look_are_counted() {
    let world = open(&SimFs::new(), Ring { max_rows: Some(1000), ..Ring::default() });
    fill(&world, 250);
    // Some rows that leave next are known from now on.
    insert(&world.engine, &world.ring, 250..251, false);
    let looks = world.engine.pause_points().close("a ring looks");
    std::thread::scope(|scope| {
        let many = scope.spawn(|| insert(&world.engine, &world.ring, 300..340, false));
        looks.until_reached(1);
        let mut txn = world.engine.begin();
        // Of those that leave next, and of others.
        for time in [2, 30, 100, 250] {
            let key = [1u32.to_be_bytes(), (time as u32).to_be_bytes()].concat();
            txn.delete(&world.ring, &key).unwrap();
        }
        txn.commit().unwrap();
        assert!(!many.is_finished());
        drop(looks);
    });
    // 4 rows had gone, and then 160 came to 996.
    assert_eq!(rows(&world.engine, &world.ring), 1000);
    assert_eq!(world.ring.report().rows, 1000, "as many were counted");
    insert(&world.engine, &world.ring, 340..400, true);
    assert_eq!(rows(&world.engine, &world.ring), 1000);
}

/// The same for series, whose floors move at once.
#[test]
fn commits_beside_a_look_for_series_are_counted() {
    let ring = Ring { series_max_rows: Some(100), ..Ring::default() };
    for is_bulk in [false, true] {
        let world = open(&SimFs::new(), ring);
        fill(&world, 100);
        world.engine.settle_ring(&world.ring, false).unwrap();
        let looks = world.engine.pause_points().close("a ring looks");
        std::thread::scope(|scope| {
            let one = scope.spawn(|| insert(&world.engine, &world.ring, 100..150, is_bulk));
            looks.until_reached(1);
            let waits = world.engine.pause_points().watch("a ring has to look");
            let other = scope.spawn(|| {
                let mut txn = world.engine.begin();
                for time in [99, 140] {
                    let key = [1u32.to_be_bytes(), (time as u32).to_be_bytes()].concat();
                    txn.delete(&world.ring, &key).unwrap();
                }
                txn.commit().unwrap();
                insert(&world.engine, &world.ring, 200..201, false);
            });
            waits.until_reached(1);
            drop(looks);
            one.join().unwrap();
            other.join().unwrap();
        });
        assert_eq!(rows(&world.engine, &world.ring), SERIES * 100, "bulk: {is_bulk}");
        insert(&world.engine, &world.ring, 201..203, false);
        assert_eq!(rows(&world.engine, &world.ring), SERIES * 100, "bulk: {is_bulk}");
    }
}

fn insert_row(txn: &mut Txn, table: &Arc<Table>, series: u64, time: u64) {
    let layout = table.layout();
    let mut row = Vec::new();
    let mut writer = layout.writer(&mut row);
    writer.set_int(0, series);
    writer.set_int(1, time);
    writer.set_int(2, 7);
    writer.finish();
    txn.insert(table, &row, OnDuplicate::Fail).unwrap();
}

/// Whoever inserts into a series that is not known looks its newest row up; commits to the same table go on.
#[test]
fn the_newest_row_of_a_series_is_looked_up() {
    let fs = SimFs::new();
    let world = open(&fs, Ring::default());
    fill(&world, 150);
    world.engine.close().unwrap();
    drop(world);
    let world = open(&fs, Ring::default());
    let (mut slow, mut quick) = (world.engine.begin(), world.engine.begin());
    insert_row(&mut quick, &world.ring, 0, 1000);
    let closed = fs.close_reads(&world.folder);
    std::thread::scope(|scope| {
        let (done, is_done) = mpsc::channel();
        let (engine, ring, quiet) = (&world.engine, &world.ring, &world.quiet);
        let slow = scope.spawn(move || {
            insert_row(&mut slow, ring, 1, 1000);
            slow
        });
        closed.until_reached(1);
        scope.spawn(move || {
            quick.commit().unwrap();
            insert(engine, quiet, 0..1, false);
            _ = done.send(());
        });
        let ended = is_done.recv_timeout(TOO_LONG);
        drop(closed);
        assert!(ended.is_ok(), "a commit waited for the disk of somebody who looks a series up");
        slow.join().unwrap().commit().unwrap();
    });
    // What was committed during the look-up is the newest of its series.
    let mut txn = world.engine.begin();
    let mut row = Vec::new();
    let layout = world.ring.layout();
    let mut writer = layout.writer(&mut row);
    (0..3).for_each(|column| writer.set_int(column, [1, 1000, 0][column]));
    writer.finish();
    assert!(txn.insert(&world.ring, &row, OnDuplicate::Fail).is_err(), "the key is taken");
}

/// At the commit keys are looked for among what others committed since.
#[test]
fn keys_are_checked_at_the_commit() {
    let world = open(&SimFs::new(), Ring::default());
    fill(&world, 10);
    let mut txn = world.engine.begin();
    // Older than the newest of its series.
    insert_row(&mut txn, &world.ring, 0, 11);
    insert(&world.engine, &world.ring, (10..20).filter(|time| *time != 11), false);
    world.engine.flush_all().unwrap();
    quiet_commits_end_beside(&world, || txn.commit().unwrap());
    assert_eq!(rows(&world.engine, &world.ring), SERIES * 19 + 1);
    // A key that was taken meanwhile is found.
    let mut txn = world.engine.begin();
    insert_row(&mut txn, &world.ring, 0, 25);
    insert(&world.engine, &world.ring, 24..31, false);
    world.engine.flush_all().unwrap();
    assert!(txn.commit().is_err(), "the key was taken");
}
