//! A steady trickle: each series reports every five minutes, in small commits. How many bytes are written for one kept?
//!
//! `cargo run --release -p rrd-store --example trickle -- [series] [rounds] [rows a commit] [MiB of memtables] [folder]`
//!
//! Time is simulated: rounds follow each other as fast as the engine takes them, each commit is handed to the
//! operating system on its own. Counted is what the status variables count: everything that is written to the log, to segments
//! and to the manifest, merges included, until all is merged. Kept is what the table's files take then.

use std::sync::Arc;
use std::time::Instant;

use rrd_store::config::FlushLog;
use rrd_store::fs::os::OsFs;
use rrd_store::schema::{ColumnDef, Lane};
use rrd_store::{Config, Engine, OnDuplicate, Result, Schema};

const STEP_S: u64 = 300;
const WALKS: u32 = 5;
/// The standard deviation of a step of a walk, in hundredths.
const SIGMA: f64 = 29.0;

fn schema() -> Schema {
    let column = |id: u32, lane| ColumnDef::plain(id, lane, false);
    let mut columns = vec![column(0, Lane::Int { width: 4 }), column(1, Lane::Int { width: 4 })];
    columns.extend((0..WALKS).map(|i| column(2 + i, Lane::F64)));
    columns.push(column(2 + WALKS, Lane::Int { width: 4 }));
    Schema::plain(columns, vec![1, 0], Some(0))
}

/// A small generator of its own (splitmix64, Steele et al. 2014), so that the figures are the same everywhere.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// A rounded normal number.
    fn step(&mut self) -> i64 {
        let unit = |n: u64| (n >> 11) as f64 / (1u64 << 53) as f64;
        let radius = (-2.0 * (1.0 - unit(self.next())).ln()).sqrt();
        (SIGMA * radius * (std::f64::consts::TAU * unit(self.next())).cos()).round() as i64
    }
}

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let mut number = |default: u64| args.next().and_then(|a| a.parse().ok()).unwrap_or(default);
    let (series, rounds, batch, memtables) = (number(100_000), number(60), number(100), number(256));
    let dir = args.next().unwrap_or_else(|| format!("{}/rrd-trickle", std::env::temp_dir().display()));
    let mut config = Config::new(&dir);
    config.flush_log = FlushLog::Write;
    config.memtable_bytes = (memtables as usize) << 20;
    let engine = Engine::open(config, Arc::new(OsFs))?;
    let _ = engine.drop_table("db/sensordata");
    engine.create_table("db/sensordata", schema())?;
    let table = engine.table("db/sensordata")?;
    let layout = table.layout();
    let mut random = Random(1);
    let mut walks: Vec<[i64; WALKS as usize]> =
        (0..series).map(|_| std::array::from_fn(|_| (random.next() % 17_000) as i64)).collect();
    let start = Instant::now();
    let mut row = Vec::new();
    for round in 0..rounds {
        for first in (0..series).step_by(batch as usize) {
            let mut txn = engine.begin();
            txn.begin_bulk(&table);
            for sensor in first..(first + batch).min(series) {
                row.clear();
                let mut writer = layout.writer(&mut row);
                writer.set_int(0, 1_700_000_100 + round * STEP_S);
                writer.set_int(1, sensor + 1);
                for (column, walk) in (2..).zip(&mut walks[sensor as usize]) {
                    *walk = (*walk + random.step()).abs();
                    writer.set_f64_bits(column, (*walk as f64 / 100.0).to_bits());
                }
                writer.set_int(2 + WALKS as usize, 1);
                writer.finish();
                txn.insert(&table, &row, OnDuplicate::Fail)?;
            }
            txn.end_bulk(&table)?;
            txn.commit()?;
        }
    }
    let rows = series * rounds;
    let seconds = start.elapsed().as_secs_f64();
    println!("{rows} rows in commits of {batch}: {seconds:.1} s, {:.0} rows/s", rows as f64 / seconds);
    report(&engine, rows, "at the end of the trickle");
    engine.optimize_table(&table, &mut |_, _| true)?;
    report(&engine, rows, "when all is merged");
    engine.close()
}

fn report(engine: &Engine, rows: u64, when: &str) {
    let counters = engine.counters();
    let counter = |name: &str| counters.iter().find(|(n, _)| *n == name).map_or(0, |(_, v)| *v);
    let kept = engine.table("db/sensordata").map_or(0, |t| t.stats().data_bytes);
    println!("{when}: {:.2} bytes a row kept in segments", kept as f64 / rows as f64);
    let mut sum = 0;
    for what in ["log_bytes_written", "segment_bytes_written", "manifest_bytes_written"] {
        let bytes = counter(what);
        sum += bytes;
        println!(
            "  {what:24} {:7.2} bytes a row, {:5.2} for one kept",
            bytes as f64 / rows as f64,
            bytes as f64 / kept as f64
        );
    }
    println!(
        "  {:24} {:7.2} bytes a row, {:5.2} for one kept",
        "together",
        sum as f64 / rows as f64,
        sum as f64 / kept as f64
    );
}
