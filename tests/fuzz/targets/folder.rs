//! The folder of an engine with damage that no checksum finds: it opens or says why not; rows are read, checked, counted,
//! written and repaired, or there is an error; nothing panics.
//!
//! Input: four bytes for each damage: the file, where in it (two bytes), which bits are flipped (0: the file ends there).

#![no_main]

use std::cell::OnceCell;
use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use rrd_store::aggregate::{Aggregate, Condition, Group, Query};
use rrd_store::fs::Fs;
use rrd_store::fs::sim::SimFs;
use rrd_store::schema::{ColumnDef, Lane};
use rrd_store::{Config, Direction, Engine, OnDuplicate, Result, Schema, Table};

const DAMAGE_BYTES: usize = 4;

thread_local! {
    static SOUND: OnceCell<SimFs> = const { OnceCell::new() };
}

fuzz_target!(|input: &[u8]| {
    let fs = SOUND.with(|sound| sound.get_or_init(|| sound_folder().expect("a folder on a sound disk")).kill());
    let files = fs.files();
    for damage in input.chunks_exact(DAMAGE_BYTES) {
        let file = &files[usize::from(damage[0]) % files.len()];
        let at = u64::from(u16::from_le_bytes([damage[1], damage[2]])) % fs.read(file).len().max(1) as u64;
        match damage[3] {
            0 => fs.truncate(file, at),
            xor => fs.corrupt(file, at, xor),
        }
    }
    let Ok(engine) = open(&fs) else { return };
    for name in engine.table_names() {
        let Ok(table) = engine.table(&name) else { continue };
        let _ = engine.check_table(&table, &mut |_, _| true);
        let _ = read(&engine, &table, Direction::Forward);
        let _ = read(&engine, &table, Direction::Backward);
        let _ = count(&engine, &table);
        let _ = engine.repair_table(&table, &mut |_, _| true);
        let _ = write(&engine, &table, 900..910);
        let _ = engine.flush_table(&table);
        let _ = engine.optimize_table(&table, &mut |_, _| true);
        let _ = read(&engine, &table, Direction::Forward);
    }
    let _ = engine.close();
});

fn open(fs: &SimFs) -> Result<Arc<Engine>> {
    let mut config = Config::new("/rrd");
    config.background = false;
    config.clock_micros = Some(1_700_000_000_000_000);
    config.tuning.bulk_min_bytes = 100;
    config.tuning.bulk_run_bytes = 500;
    config.tuning.group_rows = 32;
    Engine::open(config, Arc::new(fs.clone()) as Arc<dyn Fs>)
}

/// A folder with a sealed segment, one that is not, and rows in the log.
fn sound_folder() -> Result<SimFs> {
    let fs = SimFs::new();
    let engine = open(&fs)?;
    engine.create_table("db/a", schema())?;
    let table = engine.table("db/a")?;
    write(&engine, &table, 0..80)?;
    engine.flush_table(&table)?;
    write(&engine, &table, 60..120)?;
    engine.flush_table(&table)?;
    engine.optimize_table(&table, &mut |_, _| true)?;
    write(&engine, &table, 110..150)?;
    engine.flush_table(&table)?;
    write(&engine, &table, 150..180)?;
    // Of the same series in the same order: the log has differences.
    write(&engine, &table, 180..210)?;
    Ok(fs.kill())
}

fn schema() -> Schema {
    let int = Lane::Int { width: 4 };
    let columns = [(0, int, false), (1, int, false), (2, Lane::F64, true), (3, Lane::Bytes, true)];
    let columns = columns.map(|(id, lane, nullable)| ColumnDef::plain(id, lane, nullable)).to_vec();
    Schema { chunk_length: Some(64), ..Schema::plain(columns, vec![0, 1], Some(1)) }
}

/// Rows of three series; what is there is replaced, every tenth row removed again.
fn write(engine: &Arc<Engine>, table: &Arc<Table>, numbers: std::ops::Range<u64>) -> Result<()> {
    if table.schema().columns.len() != 4 {
        return Ok(());
    }
    let mut txn = engine.begin();
    for number in numbers {
        let mut row = Vec::new();
        let layout = table.layout();
        let mut writer = layout.writer(&mut row);
        writer.set_int(0, number % 3);
        writer.set_int(1, number);
        match number % 7 {
            0 => writer.set_null(2),
            _ => writer.set_f64_bits(2, (number as f64 / 4.0).to_bits()),
        }
        match number % 5 {
            0 => writer.set_null(3),
            _ => writer.push_bytes(3, format!("text {number}").as_bytes()),
        }
        writer.finish();
        let mut key = Vec::new();
        table.layout().push_key(&row, &mut key);
        if txn.insert(table, &row, OnDuplicate::Replace).is_err() {
            txn.update(table, &key, &row)?;
        }
        if number % 10 == 9 {
            txn.delete(table, &key)?;
        }
    }
    txn.commit()
}

fn read(engine: &Arc<Engine>, table: &Arc<Table>, direction: Direction) -> Result<usize> {
    let mut txn = engine.begin();
    let mut cursor = txn.cursor(table)?;
    cursor.seek(None, true, direction)?;
    let (mut rows, mut row) = (0, Vec::new());
    while let Some(span) = cursor.next_span(50)? {
        for n in 0..span.rows {
            row.clear();
            span.group.push_row(span.row(n), &mut row)?;
            rows += 1;
        }
    }
    Ok(rows)
}

fn count(engine: &Arc<Engine>, table: &Arc<Table>) -> Result<usize> {
    if table.schema().columns.len() != 4 {
        return Ok(0);
    }
    let query = Query {
        conditions: vec![Condition::Range { column: 1, low: 40, high: 160, negated: false }],
        groups: vec![Group::Column(0), Group::Bucket { column: 1, origin: 0, width: 10, towards_zero: false }],
        aggregates: vec![
            Aggregate::Count,
            Aggregate::Sum(2),
            Aggregate::Max(2),
            Aggregate::Min(3),
            Aggregate::First(3),
        ],
        threads: 1,
        ..Query::default()
    };
    Ok(engine.begin().aggregate(table, &query, &|| false)?.len())
}
