//! Rings of bytes under mixed load: never above their limit, and well used.
//!
//! What counts is what the files have: the simulated disk adds up the bytes of all segments after each operation on one of
//! them, so also while something is written, merged or given up.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rrd_store::alter::Alteration;
use rrd_store::cursor::Direction;
use rrd_store::fs::sim::SimFs;
use rrd_store::schema::{Bucket, DataSource, IndexColumn, IndexDef, Ring, SourceType, TierDef};
use rrd_store::{Config, Engine, OnDuplicate, Schema, Table, Txn};

mod common;

use common::NoSortKeys;

const SCHEMA: &str = r#"{"version": 1, "columns": [
    {"id": 0, "name": "sensor", "lane": {"int": {"width": 4}}, "nullable": false},
    {"id": 1, "name": "ts", "lane": {"int": {"width": 4}}, "nullable": false},
    {"id": 2, "name": "walk", "lane": {"int": {"width": 4}}, "nullable": true, "number": {"integer": {"bias": 0}}},
    {"id": 3, "name": "noise", "lane": {"int": {"width": 4}}, "nullable": true, "number": {"integer": {"bias": 0}}}],
    "key": [0, 1], "time": {"column": 1, "unit": "s"}}"#;

const SENSORS: u64 = 100;
const STEP: u64 = 300;
/// Steps that are about what the ring holds.
const LAP: u64 = 2016;
const FIRST: u64 = 1_700_006_400;

struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % n
    }
}

/// What is done beside inserts in time.
struct Load {
    /// Rows in a thousand that come up to two sevenths of a lap late.
    late: u64,
    /// Stretches of 72 rows that are changed and deleted, in 72 steps.
    updates: u64,
    deletes: u64,
    laps: u64,
    /// Whether what rows take changes from one moment to the next.
    jumps: bool,
    /// Whether flushes and merges have the time that they need.
    is_paced: bool,
}

struct Bench {
    fs: SimFs,
    engine: Arc<Engine>,
    table: Arc<Table>,
    random: Random,
    walks: Vec<u64>,
    late: BTreeMap<u64, Vec<(u64, u64)>>,
    max_bytes: u64,
    /// The next step.
    next: u64,
    /// How much chance there is in a row.
    noise: u64,
    /// Parts of the limit that were used, in hundredths.
    used: Vec<u64>,
    /// The least part of the limit that live rows took.
    least_full: f64,
    /// Whether rows are counted now and then.
    is_read: bool,
}

impl Bench {
    fn new(max_bytes: u64, tiers: &str) -> Bench {
        let tiers: Vec<TierDef> = serde_json::from_str(tiers).unwrap();
        Bench::of(max_bytes, Schema { tiers, ..serde_json::from_str(SCHEMA).unwrap() })
    }

    fn of(max_bytes: u64, schema: Schema) -> Bench {
        let fs = SimFs::new();
        let engine = Bench::open(&fs);
        let ring = Ring { max_bytes: Some(max_bytes), ..Ring::default() };
        engine.create_table("db/t", Schema { ring, ..schema }).unwrap();
        let table = engine.table("db/t").unwrap();
        let seed = std::env::var("RRD_SEED").ok().and_then(|n| n.parse::<u64>().ok()).unwrap_or(0);
        let random = Random(0x9E37_79B9_7F4A_7C15 ^ seed.wrapping_mul(0x2545_F491_4F6C_DD1D));
        let walks = vec![1 << 20; SENSORS as usize];
        fs.watch("rrds", max_bytes);
        Bench {
            fs,
            engine,
            table,
            random,
            walks,
            late: BTreeMap::new(),
            max_bytes,
            next: 0,
            noise: 1,
            used: Vec::new(),
            least_full: 1.0,
            is_read: true,
        }
    }

    fn open(fs: &SimFs) -> Arc<Engine> {
        let mut config = Config::new("/data/rrd");
        config.clock_micros = Some(i64::MAX / 2);
        Engine::open(config, Arc::new(fs.clone())).unwrap()
    }

    /// Starts anew.
    fn restart(self) -> Bench {
        let Bench { fs, engine, table, .. } = self;
        let name = table.name();
        engine.close().unwrap();
        drop((table, engine));
        let engine = Bench::open(&fs);
        let table = engine.table(&name).unwrap();
        Bench { fs, engine, table, ..self }
    }

    /// ALTER TABLE, with tiers that are built before it or in it.
    fn alter(&mut self, builds_before: bool, change: impl FnOnce(&mut Schema)) {
        let mut schema = Schema::clone(&self.table.schema());
        change(&mut schema);
        let build = || self.engine.build_tiers(&self.table, &schema, &mut |_, _| true).unwrap();
        let tiers = builds_before.then(build);
        let (table, definition) = (self.table.clone(), b"id".to_vec());
        let change = Alteration { table, schema, definition, built: Vec::new(), tiers };
        self.engine.alter_tables(vec![change]).unwrap();
    }

    /// Damages each n-th file of some tables.
    fn damage(&self, tables: &[Arc<Table>], n: usize) -> usize {
        let segments = |table: &Arc<Table>| table.segment_reports(false, &mut |_| {}, &|| false);
        let damaged: Vec<_> = tables.iter().flat_map(segments).step_by(n).collect();
        for segment in &damaged {
            let place = segment.meta.bytes / 2 + self.max_bytes % 7;
            self.fs.corrupt(&Path::new("/data/rrd").join(&segment.file), place, 1);
        }
        damaged.len()
    }

    fn check(&self, what: &str) {
        println!("{what}: {} rows", self.visible());
        self.check_limit(what);
    }

    fn check_limit(&self, what: &str) {
        let (most, over) = self.fs.watched();
        println!("{what}: {most} of {} bytes at most", self.max_bytes);
        assert_eq!(over, 0, "{what}: files had more than the limit; {most} of {} bytes at most", self.max_bytes);
    }

    fn key(sensor: u64, time: u64) -> Vec<u8> {
        [(sensor as u32).to_be_bytes(), (time as u32).to_be_bytes()].concat()
    }

    fn row(&mut self, sensor: u64, time: u64) -> Vec<u8> {
        let layout = self.table.layout();
        let mut row = Vec::new();
        let mut writer = layout.writer(&mut row);
        let noise = self.noise;
        self.walks[sensor as usize] += self.random.below(1 + (noise >> 12));
        writer.set_int(0, sensor);
        writer.set_int(1, time);
        writer.set_int(2, self.walks[sensor as usize]);
        writer.set_int(3, self.random.below(noise));
        writer.finish();
        row
    }

    fn run(&mut self, load: &Load) {
        self.run_steps(load, load.laps * LAP);
        self.check_limit("  files");
    }

    fn run_steps(&mut self, load: &Load, steps: u64) {
        (self.used, self.least_full) = (Vec::new(), 1.0);
        let first = self.next;
        self.next += steps;
        for step in first..self.next {
            let time = FIRST + step * STEP;
            self.noise = match load.jumps {
                false => 1 << 16,
                true if step % (2 * LAP) < LAP * 3 / 2 => 1,
                true => 1 << 32,
            };
            let mut rows: Vec<(u64, u64)> = Vec::new();
            for sensor in 0..SENSORS {
                if self.random.below(1000) < load.late {
                    let due = step + 1 + self.random.below(LAP * 2 / 7);
                    self.late.entry(due).or_default().push((sensor, time));
                } else {
                    rows.push((sensor, time));
                }
            }
            rows.extend(self.late.remove(&step).unwrap_or_default());
            self.insert(&rows);
            if step % 72 == 0 {
                (0..load.updates).for_each(|_| self.change(time, false));
                (0..load.deletes).for_each(|_| self.change(time, true));
            }
            if load.is_paced {
                self.wait();
            }
            self.look(step, step < first + steps / 2);
        }
    }

    /// Until flushes and merges are done.
    fn wait(&self) {
        while self.engine.waiting_work() != (0, 0) || !self.engine.jobs().is_empty() {
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    fn insert(&mut self, rows: &[(u64, u64)]) {
        let mut txn = self.engine.begin();
        for &(sensor, time) in rows {
            let row = self.row(sensor, time);
            txn.insert(&self.table, &row, OnDuplicate::Fail).unwrap();
        }
        txn.commit().unwrap();
    }

    /// Updates or deletes six hours of one sensor in the last three days.
    fn change(&mut self, now: u64, deletes: bool) {
        let sensor = self.random.below(SENSORS);
        let end = now - self.random.below(LAP * 3 / 7) * STEP;
        let mut txn = self.engine.begin();
        for back in 0..72 {
            let Some(time) = end.checked_sub(back * STEP).filter(|time| *time >= FIRST) else { continue };
            let key = Bench::key(sensor, time);
            if !txn.read_latest(&self.table, &key, &mut Vec::new()).unwrap() {
                continue;
            }
            match deletes {
                true => txn.delete(&self.table, &key).unwrap(),
                false => {
                    let row = self.row(sensor, time);
                    txn.update(&self.table, &key, &row).unwrap();
                }
            }
        }
        txn.commit().unwrap();
    }

    fn bytes(&self) -> u64 {
        let of_tiers: u64 = self.table.tiers().iter().map(|t| t.table.stats().data_bytes).sum();
        let stats = self.table.stats();
        stats.data_bytes + stats.index_bytes + of_tiers
    }

    fn visible(&self) -> u64 {
        self.rows_of(&self.table)
    }

    fn rows_of(&self, table: &Arc<Table>) -> u64 {
        self.count(table).0
    }

    /// The rows of a table, and whether a busy machine held up the count for so long that nobody waited for it: then the limit
    /// counts from here on.
    fn count(&self, table: &Arc<Table>) -> (u64, bool) {
        let since = Instant::now();
        let rows = count(&mut self.engine.begin(), table);
        let is_held_up = since.elapsed() > Duration::from_secs(1);
        if is_held_up {
            println!("a busy machine: a count took {:?}", since.elapsed());
            // What only this reader needed goes.
            self.engine.settle_ring(&self.table, false).unwrap();
            self.fs.watch("rrds", self.max_bytes);
        }
        (rows, is_held_up)
    }

    fn look(&mut self, step: u64, is_warming_up: bool) {
        let bytes = self.bytes();
        assert!(bytes <= self.max_bytes, "{bytes} of {} bytes at step {step}", self.max_bytes);
        if is_warming_up {
            return;
        }
        self.used.push(bytes * 100 / self.max_bytes);
        if step % 50 == 0 && self.is_read {
            let stored = self.table.stats();
            let (visible, is_held_up) = self.count(&self.table);
            for tier in self.table.tiers().iter() {
                let buckets = self.rows_of(&tier.table);
                assert!(buckets > SENSORS / 2, "{} has {buckets} buckets at step {step}", tier.def.name);
            }
            let live = visible as f64 / stored.rows.max(1) as f64;
            if !is_held_up {
                self.least_full = self.least_full.min(live * bytes as f64 / self.max_bytes as f64);
            }
        }
    }

    fn report(&mut self, what: &str) {
        self.used.sort_unstable();
        let at = |share: usize| self.used[(self.used.len() - 1) * share / 100];
        let (stats, full) = (self.table.stats(), 100.0 * self.least_full);
        let counters: BTreeMap<_, _> = self.engine.counters().into_iter().collect();
        let merged = counters["merge_bytes_written"] as f64 / counters["flush_bytes_written"] as f64;
        println!(
            "{what}: {full:.1}% full of live rows at least; bytes: {}% to {}%, median {}%",
            at(0),
            at(100),
            at(50)
        );
        println!("  {} rows in {} segments, {merged:.1} bytes merged for each flushed", stats.rows, stats.segments);
    }
}

fn count(reader: &mut Txn, table: &Arc<Table>) -> u64 {
    let mut cursor = reader.cursor(table).unwrap();
    cursor.seek(None, true, Direction::Forward).unwrap();
    std::iter::from_fn(|| cursor.next_span(1 << 14).unwrap()).map(|span| u64::from(span.rows)).sum()
}

/// Live rows fill four fifths of their limit at each look, once the ring has been full for a while.
#[test]
fn a_ring_of_bytes_is_well_used() {
    let laps = std::env::var("LAPS").ok().and_then(|n| n.parse().ok()).unwrap_or(5);
    let loads = [
        ("rows in time", Load { late: 0, updates: 0, deletes: 0, laps, jumps: false, is_paced: true }),
        ("2% late rows", Load { late: 20, updates: 0, deletes: 0, laps, jumps: false, is_paced: true }),
        ("late rows, updates, deletes", Load { late: 20, updates: 4, deletes: 1, laps, jumps: false, is_paced: true }),
        (
            "20% late rows, many changes",
            Load { late: 200, updates: 20, deletes: 5, laps, jumps: false, is_paced: true },
        ),
    ];
    for (what, load) in loads {
        let mut bench = Bench::new(600_000, "[]");
        bench.run(&load);
        bench.report(what);
        assert!(bench.least_full >= 0.8, "{what}: {:.3} full of live rows", bench.least_full);
    }
}

/// What a row takes is guessed before it is written: a guess that was too low must not break the limit.
#[test]
fn a_ring_of_bytes_holds_when_rows_take_more_than_they_did() {
    let mut bench = Bench::new(150_000, "[]");
    bench.run(&Load { late: 20, updates: 4, deletes: 1, laps: 6, jumps: true, is_paced: false });
    bench.report("rows that take more and less");
}

/// As fast as one thread can: flushes and merges lag behind.
#[test]
fn a_ring_of_bytes_holds_at_full_speed() {
    let mut bench = Bench::new(600_000, "[]");
    bench.run(&Load { late: 20, updates: 4, deletes: 1, laps: 5, jumps: false, is_paced: false });
    bench.report("full speed");
    // Half a lap later it is as well used as if it had never been so fast.
    bench.run(&Load { late: 20, updates: 4, deletes: 1, laps: 1, jumps: false, is_paced: true });
    bench.report("afterwards");
    assert!(bench.least_full >= 0.8, "{:.3} full of live rows", bench.least_full);
}

/// What an open snapshot needs stays readable, and is all that there is beside the limit; it goes with the snapshot.
#[test]
fn only_what_an_open_snapshot_holds_is_beside_the_limit() {
    for is_paced in [true, false] {
        let load = Load { late: 20, updates: 4, deletes: 1, laps: 2, jumps: false, is_paced };
        let mut bench = Bench::new(300_000, "[]");
        bench.run(&load);
        let mut reader = bench.engine.begin();
        let before = count(&mut reader, &bench.table);
        bench.run_steps(&load, LAP);
        bench.wait();
        let held = bench.engine.held_bytes(&bench.table);
        let (most, _) = bench.fs.watched();
        println!("{before} rows held in {held} bytes; files had {most} of {} bytes", bench.max_bytes);
        assert!(held > 0 && most <= bench.max_bytes + held, "{most} bytes, {held} of them held");
        assert_eq!(count(&mut reader, &bench.table), before, "rows vanished inside a snapshot");
        drop(reader);
        let since = Instant::now();
        while bench.fs.bytes_of("rrds") > bench.max_bytes {
            assert!(since.elapsed() < Duration::from_secs(10), "{} bytes", bench.fs.bytes_of("rrds"));
            std::thread::sleep(Duration::from_millis(10));
        }
        bench.fs.watch("rrds", bench.max_bytes);
        bench.run(&load);
    }
}

/// Whoever makes room waits for queries that are soon done.
#[test]
fn queries_do_not_keep_files_above_the_limit() {
    let mut bench = Bench::new(200_000, "[]");
    let load = Load { late: 20, updates: 4, deletes: 1, laps: 1, jumps: false, is_paced: false };
    bench.run(&load);
    let (stop, longest) = (AtomicBool::new(false), AtomicU64::new(0));
    let (engine, table) = (bench.engine.clone(), bench.table.clone());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let since = Instant::now();
                let mut reader = engine.begin();
                let mut cursor = reader.cursor(&table).unwrap();
                cursor.seek(None, true, Direction::Forward).unwrap();
                while cursor.next_span(1 << 14).unwrap().is_some() {}
                drop((cursor, reader));
                longest.fetch_max(since.elapsed().as_millis() as u64, Ordering::Relaxed);
            }
        });
        bench.run_steps(&load, LAP / 2);
        stop.store(true, Ordering::Relaxed);
    });
    let ((most, over), longest) = (bench.fs.watched(), longest.load(Ordering::Relaxed));
    println!("files had {most} of {} bytes at most; a query took {longest} ms at most", bench.max_bytes);
    // On a machine that is too busy queries are not soon done.
    assert!(over == 0 || longest > 50, "{over} times over the limit");
}

/// Bulk statements and large transactions write what they have before they commit.
#[test]
fn statements_larger_than_the_ring_stay_within_it() {
    let fs = SimFs::new();
    let mut config = Config::new("/data/rrd");
    config.clock_micros = Some(i64::MAX / 2);
    config.tuning.bulk_min_bytes = 10_000;
    config.tuning.bulk_run_bytes = 200_000;
    config.tuning.txn_spill_bytes = 100_000;
    let mut bench = Bench::new(100_000, "[]");
    bench.engine = Engine::open(config, Arc::new(fs.clone())).unwrap();
    let schema: Schema = serde_json::from_str(SCHEMA).unwrap();
    let ring = Ring { max_bytes: Some(bench.max_bytes), ..Ring::default() };
    bench.engine.create_table("db/t", Schema { ring, ..schema }).unwrap();
    bench.table = bench.engine.table("db/t").unwrap();
    fs.watch("rrds", bench.max_bytes);
    bench.noise = 1 << 32;
    for statement in 0..6u64 {
        let mut txn = bench.engine.begin();
        let is_bulk = statement % 2 == 0;
        if is_bulk {
            txn.begin_bulk(&bench.table);
        }
        let rows = if is_bulk { 400 } else { 50 };
        for step in statement * 1000..statement * 1000 + rows {
            for sensor in 0..SENSORS {
                let row = bench.row(sensor, FIRST + step * STEP);
                txn.insert(&bench.table, &row, OnDuplicate::Fail).unwrap();
            }
        }
        if is_bulk {
            txn.end_bulk(&bench.table).unwrap();
        }
        txn.commit().unwrap();
        bench.wait();
        let newest = Bench::key(SENSORS - 1, FIRST + (statement * 1000 + rows - 1) * STEP);
        let mut txn = bench.engine.begin();
        assert!(txn.read_latest(&bench.table, &newest, &mut Vec::new()).unwrap(), "the newest row is not there");
        drop(txn);
        let (most, over) = fs.watched();
        println!(
            "statement {statement}: {} rows, files had {most} of {} bytes at most",
            bench.visible(),
            bench.max_bytes
        );
        assert_eq!(over, 0, "statement {statement}: {most} bytes");
        assert!(bench.visible() > 1000, "{} rows are left", bench.visible());
    }
}

/// What the first rows of a ring take is not known before they are encoded: none goes because of what they take in memory.
#[test]
fn no_row_goes_while_all_of_them_fit() {
    for is_bulk in [true, false] {
        let mut bench = Bench::new(100_000, "[]");
        let mut txn = bench.engine.begin();
        if is_bulk {
            txn.begin_bulk(&bench.table);
        }
        let steps = 500;
        for step in 0..steps {
            for sensor in 0..SENSORS {
                let row = bench.row(sensor, FIRST + step * STEP);
                txn.insert(&bench.table, &row, OnDuplicate::Fail).unwrap();
            }
        }
        if is_bulk {
            txn.end_bulk(&bench.table).unwrap();
        }
        txn.commit().unwrap();
        bench.engine.flush_table(&bench.table).unwrap();
        bench.wait();
        println!("{} rows take {} bytes", bench.visible(), bench.bytes());
        assert!(bench.bytes() < bench.max_bytes * 9 / 10);
        assert_eq!(bench.visible(), steps * SENSORS, "bulk: {is_bulk}");
    }
}

/// Tiers count the rows that there are, from their first bucket on, and have as many buckets as they may.
fn check_tiers(bench: &Bench) {
    let mut txn = bench.engine.begin();
    let times = |txn: &mut Txn, table: &Arc<Table>, count_column: Option<&str>| {
        let layout = table.layout();
        let column = |name: &str| layout.schema().columns.iter().position(|c| c.name == name).unwrap();
        let counted = count_column.map(column);
        let mut cursor = txn.cursor(table).unwrap();
        cursor.seek(None, true, Direction::Forward).unwrap();
        let mut found: BTreeMap<u64, u64> = BTreeMap::new();
        let mut row = Vec::new();
        while let Some(span) = cursor.next_span(1 << 14).unwrap() {
            for n in 0..span.rows {
                row.clear();
                span.group.push_row(span.row(n), &mut row).unwrap();
                let count = counted.map_or(1, |column| layout.view(&row).int(column) & (u64::MAX >> 1));
                *found.entry(layout.view(&row).int(1)).or_default() += count;
            }
        }
        found
    };
    let rows = times(&mut txn, &bench.table, None);
    let oldest = *rows.keys().next().unwrap();
    for tier in bench.table.tiers().iter() {
        let buckets = times(&mut txn, &tier.table, Some("walk_count"));
        let length = match tier.def.bucket {
            Bucket::Fixed { length, .. } => length / 1_000_000,
            _ => panic!("a bucket of another kind"),
        };
        let from = oldest.div_ceil(length) * length;
        let first = *buckets.keys().next().unwrap();
        println!("  {}: {} buckets' starts, the first at {first}, rows since {oldest}", tier.def.name, buckets.len());
        let from = from.max(first);
        let of_rows: u64 = rows.range(from..).map(|(_, n)| n).sum();
        assert_eq!(buckets.range(from..).map(|(_, n)| n).sum::<u64>(), of_rows, "{}", tier.def.name);
        // What it lacks is more than tiers may take.
        let newest = *rows.keys().next_back().unwrap();
        let share = bench.max_bytes / 2 / bench.table.tiers().len() as u64;
        let bytes = tier.table.stats().data_bytes;
        assert!(
            first < oldest + (newest - oldest) / 2 || bytes > share * 7 / 10,
            "{} begins at {first} with {bytes} bytes",
            tier.def.name
        );
    }
}

/// New tiers are built within the limit, those of a full ring too, and as rows and as many tiers as there are before.
#[test]
fn tiers_that_are_added_take_their_room_before_they_are_built() {
    for (before, added) in [
        (vec![], vec![tier(1, 30), tier(2, 240), tier(3, 1440)]),
        (vec![tier(1, 30)], vec![tier(2, 10), tier(3, 240)]),
        (vec![], vec![tier(1, 1440)]),
        (vec![tier(1, 1440)], vec![tier(2, 5)]),
    ] {
        let is_paced = added.len() != 2;
        let load = Load { late: 20, updates: 4, deletes: 1, laps: 1, jumps: false, is_paced };
        let mut bench = Bench::new(300_000, &serde_json::to_string(&before).unwrap());
        bench.run(&load);
        let rows = bench.visible();
        bench.alter(is_paced, |schema| schema.tiers.extend(added.clone()));
        assert_eq!(bench.table.tiers().len(), before.len() + added.len());
        println!("{before:?} and {added:?}: {rows} rows became {}", bench.visible());
        bench.check_limit("tiers are added");
        check_tiers(&bench);
        bench.run_steps(&load, LAP / 4);
        bench.check_limit("rows after it");
    }
}

/// The entries of an index take as much as there is beside the rows, and more: rows go for them.
#[test]
fn an_index_that_is_added_is_built_within_the_limit() {
    for with_tiers in [false, true] {
        let mut schema: Schema = serde_json::from_str(SCHEMA).unwrap();
        if with_tiers {
            schema.tiers = vec![tier(1, 60)];
        }
        let mut bench = Bench::of(300_000, schema);
        let load = Load { late: 20, updates: 4, deletes: 1, laps: 1, jumps: false, is_paced: true };
        bench.run(&load);
        let rows = bench.visible();
        let column = IndexColumn::plain(3);
        let def = IndexDef { id: 1, name: "by_noise".into(), unique: false, columns: vec![column] };
        let table = bench.table.clone();
        let schema = Schema { indexes: vec![def.clone()], ..Schema::clone(&table.schema()) };
        let keys = Arc::new(NoSortKeys);
        let built = bench.engine.build_index(&table, &Arc::new(schema.clone()), &def, keys, &mut |_| true).unwrap();
        bench.check("built");
        let change = Alteration { table, schema, definition: b"id".to_vec(), built: vec![built], tiers: None };
        bench.engine.alter_tables(vec![change]).unwrap();
        println!("{rows} rows became {}", bench.visible());
        bench.check("linked in");
        assert!((rows / 4..rows).contains(&bench.visible()), "{} of {rows} rows", bench.visible());
        assert_eq!(bench.engine.check_table(&bench.table, &mut |_, _| true).unwrap(), Vec::<String>::new());
        bench.run_steps(&load, LAP / 4);
        bench.check("afterwards");
    }
}

/// A merge makes room while an index is built: neither waits for the other for ever.
#[test]
fn an_index_is_built_beside_merges() {
    let mut bench = Bench::new(300_000, "[]");
    bench.run(&Load { late: 20, updates: 4, deletes: 1, laps: 1, jumps: false, is_paced: true });
    let (engine, table) = (bench.engine.clone(), bench.table.clone());
    let (done, is_done) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let def = IndexDef { id: 1, name: "by_noise".into(), unique: false, columns: vec![IndexColumn::plain(3)] };
        let schema = Arc::new(Schema { indexes: vec![def.clone()], ..Schema::clone(&table.schema()) });
        let mut merges = None;
        let built = engine.build_index(&table, &schema, &def, Arc::new(NoSortKeys), &mut |_| {
            merges.get_or_insert_with(|| {
                let (merging, table) = (engine.clone(), table.clone());
                let begins = engine.pause_points().watch("a merge begins");
                let merges = std::thread::spawn(move || merging.optimize_table(&table, &mut |_, _| true).unwrap());
                // There may be nothing to merge, or another merge may be at work in the ring. The merge gets as far as it can.
                let since = Instant::now();
                while begins.reached() == 0 && !merges.is_finished() && since.elapsed() < Duration::from_secs(1) {
                    std::thread::yield_now();
                }
                drop(begins);
                merges
            });
            true
        });
        drop(built.unwrap());
        merges.unwrap().join().unwrap();
        done.send(()).unwrap();
    });
    assert!(is_done.recv_timeout(Duration::from_secs(120)).is_ok(), "the build and the merge wait for each other");
    bench.check("built");
}

/// Without a time what is behind the horizon goes with merges only.
#[test]
fn a_ring_of_bytes_without_a_time_holds() {
    let indexes = r#"[{"id": 1, "name": "by_noise", "unique": false, "columns": [{"column": 3}]}]"#;
    // Keys in the order in which they come, with an index, and all over the place, with changes.
    for (key, changes, with_index, is_paced) in [
        (vec![1, 0], 0, false, true),
        (vec![1, 0], 0, true, false),
        (vec![0, 1], 4, false, true),
        (vec![0, 1], 4, false, false),
    ] {
        let mut schema: Schema = serde_json::from_str(SCHEMA).unwrap();
        (schema.time, schema.key) = (None, key.clone());
        if with_index {
            schema.indexes = serde_json::from_str(indexes).unwrap();
        }
        let mut bench = Bench::of(300_000, schema);
        // Where the machine is busy, a reader may be one that nobody waits for.
        bench.is_read = is_paced;
        bench.run(&Load { late: 20, updates: changes, deletes: changes / 4, laps: 2, jumps: false, is_paced });
        bench.report(&format!("key {key:?}, paced: {is_paced}"));
        bench.check("no time");
        assert!(bench.visible() > 5_000);
        if is_paced && changes == 0 {
            assert!(bench.least_full >= 0.8, "{:.3} full of live rows", bench.least_full);
        }
        let before = bench.visible();
        bench.engine.flush_table(&bench.table).unwrap();
        let mut bench = bench.restart();
        assert!(bench.visible() <= before, "{} rows of {before}", bench.visible());
        bench.check("after a start");
        // What an open snapshot needs stays, beside the limit, and does not cost the rows that come then.
        let mut reader = bench.engine.begin();
        let before = count(&mut reader, &bench.table);
        let load = Load { late: 20, updates: 0, deletes: 0, laps: 1, jumps: false, is_paced: true };
        let steps = LAP / 8;
        bench.max_bytes *= 4;
        bench.run_steps(&load, steps);
        assert_eq!(count(&mut reader, &bench.table), before, "rows vanished inside a snapshot");
        assert!(bench.visible() > before / 2, "{} rows of {before}", bench.visible());
        drop(reader);
        bench.max_bytes /= 4;
        (0..4).for_each(|_| {
            bench.insert(&[(SENSORS - 1, FIRST + bench.next * STEP)]);
            bench.next += 1;
            bench.engine.flush_table(&bench.table).unwrap();
        });
        bench.wait();
        assert!(bench.bytes() <= bench.max_bytes, "{} bytes once nobody reads", bench.bytes());
    }
}

/// Whoever inserted a row wants to know at the commit what others committed since, but reads nothing that goes.
#[test]
fn room_is_made_beside_a_transaction_that_stays_open() {
    let mut schema: Schema = serde_json::from_str(SCHEMA).unwrap();
    (schema.time, schema.key) = (None, vec![1, 0]);
    let mut bench = Bench::of(300_000, schema);
    let load = Load { late: 20, updates: 0, deletes: 0, laps: 1, jumps: false, is_paced: true };
    bench.run(&load);
    let mut open = bench.engine.begin();
    let row = bench.row(0, FIRST + 10 * LAP * STEP);
    open.insert(&bench.table.clone(), &row, OnDuplicate::Fail).unwrap();
    let (done, is_done) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        bench.run(&load);
        done.send(bench).unwrap();
    });
    let Ok(bench) = is_done.recv_timeout(Duration::from_secs(120)) else {
        panic!("who makes room waits for the transaction");
    };
    open.commit().unwrap();
    bench.check("committed");
    assert!(bench.visible() > 5_000);
}

fn tier(id: u32, minutes: u64) -> TierDef {
    let bucket = Bucket::Fixed { length: minutes * 60_000_000, offset: 0 };
    TierDef { id, name: format!("{minutes}m"), bucket, keep: None }
}

/// Buckets that are built anew, because a new column has a value in old rows, stand beside the old ones for a while.
#[test]
fn tiers_that_change_are_built_within_the_limit() {
    let load = Load { late: 20, updates: 4, deletes: 1, laps: 1, jumps: false, is_paced: true };
    for tiers in [vec![tier(1, 240)], vec![tier(1, 30), tier(2, 240), tier(3, 1440)]] {
        let mut bench = Bench::of(300_000, Schema { tiers, ..serde_json::from_str(SCHEMA).unwrap() });
        bench.run(&load);
        bench.check("before");
        bench.alter(true, |schema| {
            let column = r#"{"id": 4, "name": "new", "lane": {"int": {"width": 4}}, "nullable": true,
                "number": {"integer": {"bias": 0}}, "initial": {"bits": 7}}"#;
            schema.columns.push(serde_json::from_str(column).unwrap());
        });
        bench.check("after");
        assert!(bench.visible() > 10_000);
        check_tiers(&bench);
        bench.engine.optimize_table(&bench.table, &mut |_, _| true).unwrap();
        bench.wait();
        bench.check("merged");
    }
}

/// The same of buckets of a column whose kind of data source changes: DST, HEARTBEAT, DS_MIN, DS_MAX.
#[test]
fn tiers_of_another_data_source_are_built_within_the_limit() {
    let step = Some(STEP * 1_000_000);
    let source = |kind, max| Some(DataSource { kind, heartbeat: 3 * STEP * 1_000_000, min: None, max });
    for (tiers, is_paced) in
        [(vec![tier(1, 240)], true), (vec![tier(1, 60), tier(2, 240)], true), (vec![tier(1, 60)], false)]
    {
        let load = Load { late: 20, updates: 4, deletes: 1, laps: 1, jumps: false, is_paced };
        let mut schema = Schema { tiers: tiers.clone(), step, ..serde_json::from_str(SCHEMA).unwrap() };
        schema.columns[3].source = source(SourceType::Gauge, None);
        let mut bench = Bench::of(300_000, schema);
        bench.run(&load);
        let changes = [
            source(SourceType::Derive, None),
            source(SourceType::Absolute, Some(1.0)),
            source(SourceType::Gauge, None),
        ];
        for (to, builds_before) in changes.into_iter().zip([true, false, true]) {
            // What is in memory only may be more than there is room for.
            bench.engine.flush_table(&bench.table).unwrap();
            let rows = bench.visible();
            bench.alter(builds_before, |schema| schema.columns[3].source = to);
            bench.check(&format!("{to:?}"));
            // Old and new buckets stand side by side for a while.
            println!("{rows} rows became {}", bench.visible());
            let few = if tiers.len() == 1 { rows / 3 } else { rows / 6 };
            assert!(bench.visible() > few, "{rows} rows became {}", bench.visible());
            bench.wait();
            assert_eq!(bench.engine.check_table(&bench.table, &mut |_, _| true).unwrap(), Vec::<String>::new());
            assert!(bench.engine.check_tiers(&bench.table, &mut |_| true).unwrap().is_empty(), "{to:?}");
            bench.run_steps(&load, LAP / 4);
            bench.check("rows after it");
        }
        bench.engine.optimize_table(&bench.table, &mut |_, _| true).unwrap();
        bench.check("merged");
        let before = bench.visible();
        let bench = bench.restart();
        assert_eq!(bench.visible(), before, "after a start");
        assert!(bench.engine.check_tiers(&bench.table, &mut |_| true).unwrap().is_empty(), "after a start");
    }
}

/// What REPAIR TABLE writes anew stands beside what is damaged.
#[test]
fn a_repair_stays_within_the_limit() {
    let indexes = r#"[{"id": 1, "name": "by_noise", "unique": false, "columns": [{"column": 3}]}]"#;
    for (damages, with_index) in [("few", true), ("all", false), ("index", true), ("tiers", false)] {
        let mut schema: Schema = serde_json::from_str(SCHEMA).unwrap();
        schema.tiers = vec![tier(1, 60), tier(2, 1440)];
        if with_index {
            schema.indexes = serde_json::from_str(indexes).unwrap();
        }
        let mut bench = Bench::of(300_000, schema);
        let load = Load { late: 20, updates: 4, deletes: 1, laps: 1, jumps: false, is_paced: true };
        bench.run(&load);
        let rows = bench.visible();
        let table = bench.table.clone();
        bench.engine.flush_table(&table).unwrap();
        bench.wait();
        let tiers: Vec<_> = table.tiers().iter().map(|tier| tier.table.clone()).collect();
        let damaged = match damages {
            "few" => bench.damage(std::slice::from_ref(&table), 5),
            "all" => bench.damage(std::slice::from_ref(&table), 1),
            "index" => bench.damage(&[table.indexes()[0].table.clone()], 1),
            _ => bench.damage(&tiers, 1),
        };
        let repaired = bench.engine.repair_table(&table, &mut |_, _| true).unwrap();
        println!("{damages}: {damaged} files damaged, {} repaired, {rows} rows before", repaired.segments);
        // A damage may be where no row is lost, and then no entry is.
        let has_lost = damages == "index" || !repaired.losses.is_empty();
        assert_eq!(repaired.indexes.len(), usize::from(with_index && has_lost), "{:?}", repaired.losses);
        assert!(repaired.segments > 0 || with_index);
        bench.check("repaired");
        bench.engine.flush_table(&table).unwrap();
        bench.check("flushed");
        assert_eq!(bench.engine.check_table(&table, &mut |_, _| true).unwrap(), Vec::<String>::new());
        bench.run_steps(&load, LAP / 4);
        bench.check("afterwards");
        assert!(bench.visible() > rows / 4, "{} of {rows} rows", bench.visible());
    }
}

/// Tiers that are kept for ever are in the ring, too: they make room for rows, and rows for them.
#[test]
fn tiers_in_a_ring_of_bytes_leave_half_of_it_to_rows() {
    let tiers = r#"[{"id": 1, "name": "30m", "bucket": {"fixed": {"length": 1800000000}}},
        {"id": 2, "name": "1d", "bucket": {"fixed": {"length": 86400000000}}}]"#;
    for is_paced in [true, false] {
        let mut bench = Bench::new(900_000, tiers);
        bench.run(&Load { late: 20, updates: 4, deletes: 1, laps: 4, jumps: false, is_paced });
        bench.report("tiers for ever");
        assert!(bench.least_full >= 0.8, "{:.3} full of live rows, paced: {is_paced}", bench.least_full);
        bench.engine.flush_table(&bench.table).unwrap();
        // A merge may let buckets go for its room.
        bench.wait();
        let rows = |bench: &Bench| {
            let tiers = bench.table.tiers();
            let of = |n: usize| bench.rows_of(&tiers[n].table);
            (bench.visible(), of(0), of(1))
        };
        let bytes = |table: &Arc<Table>| table.stats().data_bytes * 100 / bench.max_bytes;
        let tiers = bench.table.tiers();
        let shares = (bytes(&bench.table), bytes(&tiers[0].table), bytes(&tiers[1].table));
        let before = rows(&bench);
        println!("  {shares:?}% of the bytes are rows and tiers, of which there are {before:?}");
        // At full speed tiers have buckets that a merge would make one of, and how far merges come is the machine's affair.
        assert!(before.0 > 0, "no rows are left");
        if is_paced {
            assert!(shares.0 >= 35, "{shares:?}");
            // The coarse tier, which takes little, has all its days.
            let days = 4 * LAP * STEP / 86400 * SENSORS;
            assert!((days..=days + 2 * SENSORS).contains(&before.2), "{} rows for {days}", before.2);
            assert!((30..=50).contains(&shares.1), "{shares:?}");
        }
        let bench = bench.restart();
        let after = rows(&bench);
        // A merge that found no room before may let more go.
        let is_gone = after.0 <= before.0 && after.1 <= before.1 && after.2 <= before.2;
        assert!(is_gone && after.0 > 0, "what went comes back after a start: {after:?}");
    }
}
