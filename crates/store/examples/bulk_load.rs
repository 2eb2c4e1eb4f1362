//! Loads sensor readings into a table without a server and reads them back; for profiling.
//!
//! `cargo run --release -p rrd-store --example bulk_load -- [rows] [folder]`

use std::sync::Arc;
use std::time::Instant;

use rrd_store::fs::os::OsFs;
use rrd_store::schema::{ColumnDef, Lane};
use rrd_store::{Config, Direction, Engine, OnDuplicate, Result, Schema};

const SENSORS: u64 = 1000;

fn schema() -> Schema {
    let column = |id: u32, lane| ColumnDef::plain(id, lane, false);
    let mut columns = vec![column(0, Lane::Int { width: 4 }), column(1, Lane::Int { width: 4 })];
    columns.extend((2..7).map(|id| column(id, Lane::F64)));
    columns.push(column(7, Lane::Int { width: 4 }));
    Schema::plain(columns, vec![1, 0], Some(0))
}

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let rows: u64 = args.next().and_then(|a| a.parse().ok()).unwrap_or(4_000_000);
    let dir = args.next().unwrap_or_else(|| format!("{}/rrd-bulk-load", std::env::temp_dir().display()));
    let engine = Engine::open(Config::new(&dir), Arc::new(OsFs))?;
    let _ = engine.drop_table("db/sensordata");
    engine.create_table("db/sensordata", schema())?;
    let table = engine.table("db/sensordata")?;
    let layout = table.layout();
    let mut walks = vec![[2000i64; 5]; SENSORS as usize];
    let mut random = 0x9E37_79B9_7F4A_7C15u64;
    let start = Instant::now();
    let mut txn = engine.begin();
    txn.begin_bulk(&table);
    let mut row = Vec::new();
    for i in 0..rows {
        let sensor = i % SENSORS;
        row.clear();
        let mut writer = layout.writer(&mut row);
        writer.set_int(0, 1_700_000_000 + i / SENSORS * 300);
        writer.set_int(1, sensor);
        for (c, walk) in walks[sensor as usize].iter_mut().enumerate() {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            *walk += (random % 121) as i64 - 60;
            writer.set_f64_bits(2 + c, (*walk as f64 / 100.0).to_bits());
        }
        writer.set_int(7, 1);
        writer.finish();
        txn.insert(&table, &row, OnDuplicate::Fail)?;
    }
    txn.end_bulk(&table)?;
    txn.commit()?;
    report("loaded", rows, start);
    print_size(&table.stats(), rows);
    let start = Instant::now();
    engine.optimize_table(&table, &mut |_, _| true)?;
    report("merged", rows, start);
    print_size(&table.stats(), rows);
    let start = Instant::now();
    let mut cursor = engine.begin().cursor(&table)?;
    cursor.seek(None, true, Direction::Forward)?;
    let (mut seen, mut sum) = (0u64, 0.0);
    while let Some(span) = cursor.next_span(1 << 20)? {
        if let rrd_codec::Values::F64(v) = &span.group.column(2)?.values {
            sum += v[span.first as usize..(span.first + span.rows) as usize]
                .iter()
                .map(|b| f64::from_bits(*b))
                .sum::<f64>();
        }
        seen += u64::from(span.rows);
    }
    report(&format!("scanned (sum {sum:.2})"), seen, start);
    engine.close()
}

fn report(what: &str, rows: u64, start: Instant) {
    let seconds = start.elapsed().as_secs_f64();
    println!("{what}: {rows} rows in {seconds:.2} s, {:.2} M rows/s", rows as f64 / seconds / 1e6);
}

fn print_size(stats: &rrd_store::TableStats, rows: u64) {
    println!("  {} segments, {:.2} bytes a row", stats.segments, stats.data_bytes as f64 / rows as f64);
}
