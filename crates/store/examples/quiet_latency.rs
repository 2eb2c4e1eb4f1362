//! How long commits to a quiet table take while another table is a full ring on a slow disk.
//!
//! `cargo run --release -p rrd-store --example quiet_latency -- [seconds] [ms a read, write or sync] [folder]`
//!
//! Two clients write to the ring in batches of 100 rows, a third commits single rows to the other table. The files of the ring
//! alone are slow. Prints the median, the 99.9th percentile and the longest of the third client's commits, for each kind of
//! ring.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rrd_store::fs::os::OsFs;
use rrd_store::fs::{DirEntry, FileLock, FolderId, Fs, ReadFile, WriteFile};
use rrd_store::schema::Ring;
use rrd_store::{Config, Engine, FlushLog, OnDuplicate, Result, Schema, Table};

const SCHEMA: &str = r#"{"version": 1, "columns": [
    {"id": 0, "name": "sensor", "lane": {"int": {"width": 4}}, "nullable": false},
    {"id": 1, "name": "ts", "lane": {"int": {"width": 8}}, "nullable": false},
    {"id": 2, "name": "value", "lane": {"int": {"width": 8}}, "nullable": false}],
    "key": [0, 1], "time": {"column": 1, "unit": "s"}}"#;

/// Of the first table of an engine.
const SLOW_FOLDER: &str = "table-00000001";
const SENSORS: u64 = 50;
const BATCH: u64 = 100;
/// Rows that fill any of the rings.
const ROWS: u64 = 500_000;

/// The file system, but that the files of one folder are slow.
#[derive(Clone)]
struct SlowFolder {
    /// Microseconds that a call takes.
    takes: Arc<AtomicU64>,
}

struct SlowFile<F> {
    file: F,
    takes: Arc<AtomicU64>,
}

impl SlowFolder {
    fn of(&self, path: &Path) -> Arc<AtomicU64> {
        let is_slow = path.components().any(|part| part.as_os_str() == SLOW_FOLDER);
        if is_slow { self.takes.clone() } else { Arc::default() }
    }
}

fn wait(takes: &AtomicU64) {
    let takes = takes.load(Ordering::Relaxed);
    if takes > 0 {
        std::thread::sleep(Duration::from_micros(takes));
    }
}

impl ReadFile for SlowFile<Arc<dyn ReadFile>> {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        wait(&self.takes);
        self.file.read_at(offset, buf)
    }
    fn len(&self) -> u64 {
        self.file.len()
    }
}

impl WriteFile for SlowFile<Box<dyn WriteFile>> {
    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        wait(&self.takes);
        self.file.write(bytes)
    }
    fn write_through(&mut self, bytes: &[u8]) -> Result<()> {
        self.file.write_through(bytes)
    }
    fn block_bytes(&mut self) -> u64 {
        self.file.block_bytes()
    }
    fn sync(&mut self) -> Result<()> {
        wait(&self.takes);
        self.file.sync()
    }
    fn truncate(&mut self, len: u64) -> Result<()> {
        self.file.truncate(len)
    }
    fn reserve(&mut self, len: u64) {
        self.file.reserve(len);
    }
    fn len(&self) -> u64 {
        self.file.len()
    }
}

impl Fs for SlowFolder {
    fn create(&self, path: &Path) -> Result<Box<dyn WriteFile>> {
        Ok(Box::new(SlowFile { file: OsFs.create(path)?, takes: self.of(path) }))
    }
    fn reuse(&self, path: &Path) -> Result<Box<dyn WriteFile>> {
        Ok(Box::new(SlowFile { file: OsFs.reuse(path)?, takes: self.of(path) }))
    }
    fn open(&self, path: &Path) -> Result<Arc<dyn ReadFile>> {
        Ok(Arc::new(SlowFile { file: OsFs.open(path)?, takes: self.of(path) }))
    }
    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        OsFs.rename(from, to)
    }
    fn remove(&self, path: &Path) -> Result<()> {
        OsFs.remove(path)
    }
    fn remove_dir(&self, path: &Path) -> Result<()> {
        OsFs.remove_dir(path)
    }
    fn hard_link(&self, from: &Path, to: &Path) -> Result<()> {
        OsFs.hard_link(from, to)
    }
    fn create_dir(&self, path: &Path) -> Result<()> {
        OsFs.create_dir(path)
    }
    fn make_dir(&self, path: &Path) -> Result<FolderId> {
        OsFs.make_dir(path)
    }
    fn remove_tree(&self, path: &Path, made: FolderId) -> Result<()> {
        OsFs.remove_tree(path, made)
    }
    fn list(&self, dir: &Path) -> Result<Vec<DirEntry>> {
        OsFs.list(dir)
    }
    fn sync_file(&self, path: &Path) -> Result<()> {
        wait(&self.of(path));
        OsFs.sync_file(path)
    }
    fn exists(&self, path: &Path) -> bool {
        OsFs.exists(path)
    }
    fn sync_dir(&self, dir: &Path) -> Result<()> {
        wait(&self.of(dir));
        OsFs.sync_dir(dir)
    }
    fn lock(&self, path: &Path) -> Result<Box<dyn FileLock>> {
        OsFs.lock(path)
    }
}

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let mut number = |otherwise: u64| args.next().and_then(|a| a.parse().ok()).unwrap_or(otherwise);
    let (seconds, takes_ms) = (number(10), number(5));
    let dir = args.next().unwrap_or_else(|| format!("{}/rrd-quiet-latency", std::env::temp_dir().display()));
    let rings = [
        ("no ring", Ring::default()),
        ("MAX_BYTES", Ring { max_bytes: Some(3 << 20), ..Ring::default() }),
        ("MAX_ROWS", Ring { max_rows: Some(ROWS / 2), ..Ring::default() }),
        ("SERIES_MAX_ROWS", Ring { series_max_rows: Some(ROWS / SENSORS / 2), ..Ring::default() }),
    ];
    println!("{:<16} {:>8} {:>9} {:>9} {:>9}  ring's rows/s", "ms", "commits", "median", "99.9 %", "longest");
    for (name, ring) in rings {
        let _ = std::fs::remove_dir_all(&dir);
        let (mut taken, rows) = measure(&dir, ring, Duration::from_secs(seconds), takes_ms)?;
        taken.sort_unstable();
        let at = |share: f64| {
            let place = ((taken.len() as f64 * share) as usize).min(taken.len().saturating_sub(1));
            taken.get(place).map_or(0.0, |taken| taken.as_secs_f64() * 1e3)
        };
        let (commits, rate) = (taken.len(), rows / seconds);
        println!("{name:<16} {commits:>8} {:>9.3} {:>9.3} {:>9.3}  {rate}", at(0.5), at(0.999), at(1.0));
    }
    Ok(())
}

/// How long each commit to the quiet table took, and how many rows the ring got meanwhile.
fn measure(dir: &str, ring: Ring, lasts: Duration, takes_ms: u64) -> Result<(Vec<Duration>, u64)> {
    let mut config = Config::new(dir);
    config.flush_log = FlushLog::Write;
    config.memtable_bytes = 16 << 20;
    config.cache_bytes = 1 << 20;
    let fs = SlowFolder { takes: Arc::default() };
    let engine = Engine::open(config, Arc::new(fs.clone()))?;
    let Ok(plain) = serde_json::from_str::<Schema>(SCHEMA) else { return Ok((Vec::new(), 0)) };
    engine.create_table("db/ring", Schema { ring, ..plain.clone() })?;
    engine.create_table("db/quiet", plain)?;
    let (ring, quiet) = (engine.table("db/ring")?, engine.table("db/quiet")?);
    let next = AtomicU64::new(0);
    while next.load(Ordering::Relaxed) * BATCH < ROWS {
        write_batch(&engine, &ring, &next)?;
    }
    engine.flush_all()?;
    fs.takes.store(takes_ms * 1000, Ordering::Relaxed);
    let (before, is_over) = (next.load(Ordering::Relaxed), AtomicBool::new(false));
    let taken = std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    if write_batch(&engine, &ring, &next).is_err() {
                        break;
                    }
                }
            });
        }
        let (begun, mut taken) = (Instant::now(), Vec::new());
        for n in 0.. {
            if begun.elapsed() > lasts {
                break;
            }
            let mut txn = engine.begin();
            insert(&mut txn, &quiet, 1, n)?;
            let at = Instant::now();
            txn.commit()?;
            taken.push(at.elapsed());
            std::thread::sleep(Duration::from_micros(500));
        }
        is_over.store(true, Ordering::Relaxed);
        Ok::<_, rrd_store::Error>(taken)
    })?;
    fs.takes.store(0, Ordering::Relaxed);
    let rows = (next.load(Ordering::Relaxed) - before) * BATCH;
    engine.close()?;
    Ok((taken, rows))
}

/// A statement that brings the next rows of some sensors.
fn write_batch(engine: &Arc<Engine>, table: &Arc<Table>, next: &AtomicU64) -> Result<()> {
    let number = next.fetch_add(1, Ordering::Relaxed);
    let mut txn = engine.begin();
    for row in number * BATCH..(number + 1) * BATCH {
        insert(&mut txn, table, row % SENSORS, row / SENSORS)?;
    }
    txn.commit()
}

fn insert(txn: &mut rrd_store::Txn, table: &Arc<Table>, sensor: u64, time: u64) -> Result<()> {
    let mut row = Vec::new();
    let layout = table.layout();
    let mut writer = layout.writer(&mut row);
    writer.set_int(0, sensor);
    writer.set_int(1, time);
    let noise = (time * SENSORS + sensor).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    writer.set_int(2, (noise ^ (noise >> 29)).wrapping_mul(noise));
    writer.finish();
    txn.insert(table, &row, OnDuplicate::Fail).map(|_| ())
}
