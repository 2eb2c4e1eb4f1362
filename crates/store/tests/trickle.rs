//! Many series that report again and again in commits of the same make-up: the log has differences to what they wrote before,
//! and whatever happens in between, the rows come back.

#![expect(clippy::expect_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rrd_store::config::FlushLog;
use rrd_store::fs::Fs;
use rrd_store::fs::sim::SimFs;
use rrd_store::schema::{ColumnDef, Lane};
use rrd_store::{Config, Direction, Engine, OnDuplicate, Result, Schema, Table};

#[path = "common/walk.rs"]
mod walk;

use walk::rest_of;

/// Sensor and time to the bytes of the row.
type Rows = BTreeMap<(u64, u64), Vec<u8>>;

/// A small generator (splitmix64).
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ z >> 31) % end
    }
}

fn open(fs: &SimFs, mode: FlushLog) -> Result<Arc<Engine>> {
    let mut config = Config::new("/rrd");
    config.background = false;
    config.flush_log = mode;
    config.clock_micros = Some(1_700_000_000_000_000);
    Engine::open(config, Arc::new(fs.clone()) as Arc<dyn Fs>)
}

fn create(engine: &Engine) -> Arc<Table> {
    let lanes = [Lane::Int { width: 4 }, Lane::Int { width: 4 }, Lane::F64, Lane::Int { width: 8 }, Lane::Bytes];
    let column = |(id, lane)| ColumnDef::plain(id, lane, matches!(lane, Lane::F64 | Lane::Bytes));
    let schema = Schema::plain((0..).zip(lanes).map(column).collect(), vec![1, 0], Some(0));
    engine.create_table("db/t", Schema { chunk_length: Some(4096), ..schema }).expect("create");
    engine.table("db/t").expect("table")
}

/// What sensor `sensor` says at `time`: mostly decimals, at times what is none.
fn reading(random: &mut Random, sensor: u64, time: u64) -> (Option<u64>, u64, Option<Vec<u8>>) {
    let step = random.below(60) as f64 - 30.0;
    let float = match random.below(400) {
        0 => f64::NAN,
        1 => -0.0,
        2 => 0.1 + 0.2,
        3 => f64::MAX,
        4 => return (None, u64::MAX - time, None),
        _ => (((sensor * 7919) % 17_000) as f64 + step) / 100.0,
    };
    (Some(float.to_bits()), sensor * 1_000_000 + time * 3 + random.below(5), Some(b"ok".to_vec()))
}

/// One commit of the sensors of a group at `time`.
fn poll(engine: &Arc<Engine>, table: &Arc<Table>, random: &mut Random, sensors: u64, time: u64) -> Result<Rows> {
    let layout = table.layout();
    let mut rows = Rows::new();
    let mut txn = engine.begin();
    txn.begin_bulk(table);
    let mut row = Vec::new();
    for sensor in sensors * 1000..sensors * 1000 + 70 {
        let (float, count, note) = reading(random, sensor, time);
        row.clear();
        let mut writer = layout.writer(&mut row);
        writer.set_int(0, time);
        writer.set_int(1, sensor);
        match float {
            Some(bits) => writer.set_f64_bits(2, bits),
            None => writer.set_null(2),
        }
        writer.set_int(3, count);
        match &note {
            Some(note) => writer.push_bytes(4, note),
            None => writer.set_null(4),
        }
        writer.finish();
        txn.insert(table, &row, OnDuplicate::Fail)?;
        rows.insert((sensor, time), row.clone());
    }
    txn.end_bulk(table)?;
    txn.commit()?;
    Ok(rows)
}

fn rows_of(engine: &Arc<Engine>, table: &Arc<Table>) -> Rows {
    let layout = table.layout();
    let mut txn = engine.begin();
    let mut cursor = txn.cursor(table).expect("cursor");
    cursor.seek(None, true, Direction::Forward).expect("seek");
    let key = |row: &[u8]| (layout.view(row).int(1), layout.view(row).int(0));
    rest_of(&mut cursor, 1000).into_iter().map(|row| (key(&row), row)).collect()
}

#[test]
fn whatever_happens_between_polls_all_rows_come_back() {
    for seed in 0..60 {
        let mut random = Random(seed);
        let mut mode = FlushLog::Sync;
        let mut fs = SimFs::with_seed(seed);
        let mut engine = open(&fs, mode).expect("open");
        let mut table = create(&engine);
        let mut expected = Rows::new();
        for step in 0..120 {
            let time = 1_000_000 + step * 60;
            match random.below(24) {
                0 | 1 => engine.flush_table(&table).expect("flush"),
                2 => {
                    engine.truncate_table("db/t").expect("truncate");
                    expected.clear();
                }
                3 => {
                    fs.fail_at(fs.op_count() + 1, 28);
                    let polled = poll(&engine, &table, &mut random, 1, time);
                    fs.heal();
                    // One that the log refused is gone.
                    expected.extend(polled.unwrap_or_default());
                }
                4..=6 => {
                    drop(table);
                    drop(engine);
                    fs = if mode == FlushLog::Sync && random.below(2) == 0 { fs.power_cut(seed) } else { fs.kill() };
                    mode = [FlushLog::Sync, FlushLog::Write][random.below(2) as usize];
                    engine = open(&fs, mode).unwrap_or_else(|e| panic!("seed {seed}, step {step}: {e}"));
                    table = engine.table("db/t").expect("table");
                    assert!(rows_of(&engine, &table) == expected, "seed {seed}, step {step}");
                }
                _ => {
                    let group = random.below(3);
                    expected.extend(poll(&engine, &table, &mut random, group, time).expect("poll"));
                }
            }
        }
        assert!(rows_of(&engine, &table) == expected, "seed {seed}");
    }
}

#[test]
fn the_log_has_differences() {
    let engine = open(&SimFs::new(), FlushLog::Sync).expect("open");
    let table = create(&engine);
    let logged = || engine.counters().iter().find(|(name, _)| *name == "log_bytes_written").map_or(0, |(_, v)| *v);
    let mut random = Random(7);
    let mut bytes = Vec::new();
    for time in 0..20 {
        let before = logged();
        poll(&engine, &table, &mut random, 1, 1_000_000 + time * 60).expect("poll");
        bytes.push(logged() - before);
    }
    let (first, later) = (bytes[0], bytes[1..].iter().min().copied().unwrap_or(0));
    assert!(later * 10 < first * 8, "{bytes:?}");
}

#[test]
fn threads_that_poll_while_memtables_are_flushed_lose_nothing() {
    for mode in [FlushLog::Write, FlushLog::EverySecond] {
        let mut fs = SimFs::new();
        let mut expected = Rows::new();
        create(&open(&fs, mode).expect("open"));
        for round in 0..6 {
            let engine = open(&fs, mode).expect("open");
            let table = engine.table("db/t").expect("table");
            assert!(rows_of(&engine, &table) == expected, "round {round}");
            let is_over = AtomicBool::new(false);
            std::thread::scope(|scope| {
                let writers: Vec<_> = (0..4)
                    .map(|group| {
                        let (engine, table) = (&engine, &table);
                        scope.spawn(move || {
                            let mut random = Random(round * 10 + group);
                            let mut rows = Rows::new();
                            for n in 0..60 {
                                let time = 1_000_000 + (round * 100 + n) * 60;
                                // Two of them write to the same series in turns.
                                let sensors = if group == 3 { 4 } else { group };
                                let time = if group == 3 { time + 7 } else { time };
                                let sensors = if sensors == 2 { 4 } else { sensors };
                                rows.extend(poll(engine, table, &mut random, sensors, time).expect("poll"));
                            }
                            rows
                        })
                    })
                    .collect();
                scope.spawn(|| {
                    while !is_over.load(Ordering::Relaxed) {
                        engine.flush_table(&table).expect("flush");
                    }
                });
                for writer in writers {
                    expected.extend(writer.join().expect("a writer"));
                }
                is_over.store(true, Ordering::Relaxed);
            });
            engine.close().expect("close");
            drop(table);
            drop(engine);
            fs = fs.kill();
        }
        let engine = open(&fs, mode).expect("open");
        let table = engine.table("db/t").expect("table");
        assert!(rows_of(&engine, &table) == expected);
    }
}
