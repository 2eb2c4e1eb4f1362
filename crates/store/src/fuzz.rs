//! What the fuzz targets in `tests/fuzz` feed: any bytes as what is read from a disk.
//!
//! The bytes stand for what is inside checksums: a file that somebody edited has matching ones. Each target first calls the
//! decoders (`decode_*`), whose memory is measured, then puts the bytes into the folder of an engine that is sound otherwise and
//! does with that what a server would. Nothing may panic; a folder that was opened and closed opens again.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use crate::aggregate::{Aggregate, Condition, Group, Query};
use crate::fs::Fs;
use crate::fs::sim::SimFs;
use crate::horizon::Position;
use crate::manifest::edit::{Edit, State, TableId};
use crate::schema::{Bucket, ColumnDef, Compression, IndexColumn, IndexDef, Lane, TierDef};
use crate::segment::SegmentMeta;
use crate::{Config, Cursor, Direction, Engine, OnDuplicate, Result, Schema, Table};
use crate::{folder, log_record, manifest, ring, segment, wal};

/// The engine's folder.
const DIR: &str = "/data/#sql.rrd";

/// Length of a damage in [`folder`].
const DAMAGE_BYTES: usize = 4;

// -- manifest ---------------------------------------------------------------------------------------------------------

/// Manifest records: a state, and edits, of which those that decode are written as they were. Input: the length of the state in
/// two bytes, the state (empty: that of the sound folder), the edits.
pub fn decode_manifest(input: &[u8]) {
    let (state, edits) = two_parts(input);
    manifest::check_decoders(state, edits);
}

/// An engine with such a manifest.
pub fn manifest(input: &[u8]) {
    let (state, edits) = two_parts(input);
    let fs = sound();
    if manifest::write_raw(&fs, Path::new(DIR), (!state.is_empty()).then_some(state), edits).is_ok() {
        work_with(&fs);
    }
}

// -- log --------------------------------------------------------------------------------------------------------------

/// Records of the log, each with its length in two bytes.
pub fn decode_log(input: &[u8]) {
    for record in records(input) {
        let Some(log_record::Record::Prepare { xid, body, edits }) = log_record::decode(record) else {
            continue;
        };
        let _ = (log_record::decode_body(body), manifest::decode_edits(edits));
        let again = log_record::prepare(xid, body, edits);
        assert!(matches!(log_record::decode(&again), Some(log_record::Record::Prepare { xid: x, .. }) if x == xid));
    }
}

/// An engine with such a log.
pub fn log(input: &[u8]) {
    let fs = sound();
    let dir = Path::new(DIR).join("log");
    remove_files(&fs, |path| path.starts_with(&dir));
    if wal::write_raw(&fs, &dir, records(input)).is_ok() {
        work_with(&fs);
    }
}

// -- segments ---------------------------------------------------------------------------------------------------------

/// The footer of a segment. Input: its length in two bytes, blocks, the footer.
pub fn decode_segment(input: &[u8]) {
    let (blocks, footer) = end_part(input);
    segment::check_footer(footer, blocks.len());
}

/// An engine with such a segment; all else in its file, and what the manifest says of its length, is right.
pub fn segment(input: &[u8]) {
    let (blocks, footer) = end_part(input);
    let fs = sound();
    if with_segment(&fs, blocks, footer).is_ok() {
        work_with(&fs);
    }
}

fn with_segment(fs: &SimFs, blocks: &[u8], footer: &[u8]) -> Result<()> {
    let mut state = manifest::Manifest::open(Arc::new(fs.clone()), Path::new(DIR))?.1;
    let Some((id, meta)) = first_segment(&mut state) else { return Ok(()) };
    let bytes = segment::file_of(id, meta, blocks, footer);
    meta.bytes = bytes.len() as u64;
    let path = Path::new(DIR).join(id.dir_name()).join(meta.id.file_name());
    manifest::rewrite_raw(fs, Path::new(DIR), &state)?;
    fs.remove(&path)?;
    fs.create(&path)?.write(&bytes)
}

fn first_segment(state: &mut State) -> Option<(TableId, &mut SegmentMeta)> {
    let (id, table) = state.tables.iter_mut().find(|(_, table)| !table.segments.is_empty())?;
    table.segments.values_mut().next().map(|meta| (*id, meta))
}

// -- small things -----------------------------------------------------------------------------------------------------

/// A definition file of the server, the note of a clean shutdown, and properties of tables.
pub fn definition(input: &[u8]) {
    folder::check_definition(input);
    let _ = Position::decode(input).map(|position| assert_eq!(Position::decode(&position.encode()), Some(position)));
    let floors = ring::decode_floors(input);
    let _ = floors.map(|floors| assert_eq!(ring::decode_floors(&ring::encode_floors(&floors)), Some(floors)));
    let fs = sound();
    remove_files(&fs, |path| path.extension().is_some_and(|ending| ending == "frm"));
    let file = |path: PathBuf| fs.create(&path)?.write(input);
    if file("/data/db/a.frm".into()).and_then(|()| file(Path::new(DIR).join("shutdown.txt"))).is_err() {
        return;
    }
    if let Ok(engine) = open(&fs) {
        let _ =
            (engine.tables_without_definition(), engine.has_definition("db/a"), engine.drop_without_definition("db/a"));
    }
}

/// Properties of a table. Input: the number of the table and of the property, a byte each; its value.
pub fn property(input: &[u8]) {
    const NAMES: [&str; 11] = [
        "horizon",
        "floors",
        "tier_gone",
        "tier_series_gone",
        "tier_seq",
        "tier_build",
        "auto_increment",
        "truncated_seq",
        "linked_seq",
        "definition",
        "other",
    ];
    let Some((&[table, name], value)) = input.split_first_chunk() else { return };
    let table = TableId(u32::from(table) % 6);
    let name = NAMES[usize::from(name) % NAMES.len()].to_string();
    let edits = manifest::encode_edits(&[Edit::SetProperty { table, name, value: value.to_vec() }]);
    let fs = sound();
    if edits.and_then(|edits| manifest::write_raw(&fs, Path::new(DIR), None, &edits)).is_ok() {
        work_with(&fs);
    }
}

// -- a folder with damage -----------------------------------------------------------------------------------------------

/// A folder with damage that no checksum finds. Input: four bytes for each damage: the file, where in it (two bytes), which bits are
/// flipped (0: the file ends there).
pub fn folder(input: &[u8]) {
    let fs = sound();
    let files = fs.files();
    for damage in input.chunks_exact(DAMAGE_BYTES) {
        let file = &files[usize::from(damage[0]) % files.len()];
        let at = u64::from(u16::from_le_bytes([damage[1], damage[2]])) % fs.read(file).len().max(1) as u64;
        match damage[3] {
            0 => fs.truncate(file, at),
            xor => fs.corrupt(file, at, xor),
        }
    }
    work_with(&fs);
}

/// Inputs to begin with, by target: what a sound folder has.
pub fn seeds() -> Result<Vec<(&'static str, Vec<u8>)>> {
    let fs = sound();
    let mut seeds = vec![("definition", fs.read(Path::new("/data/db/a.frm")))];
    let state = manifest::Manifest::open(Arc::new(fs.clone()), Path::new(DIR))?.1;
    let snapshot = manifest::encode_raw(&state)?;
    let front = |bytes: &[u8], behind: &[u8]| [&(bytes.len() as u16).to_le_bytes(), bytes, behind].concat();
    let mut edits = Vec::new();
    for (&table, entry) in &state.tables {
        edits.extend(entry.chunks.values().map(|&span| Edit::AddChunk { table, span }));
        edits.extend(entry.segments.values().map(|meta| Edit::AddSegment { table, meta: meta.clone() }));
        edits.push(Edit::SetSchema { table, schema: entry.schema.clone() });
        let named = entry.properties.iter().map(|(name, value)| (name.clone(), value.clone()));
        edits.extend(named.map(|(name, value)| Edit::SetProperty { table, name, value }));
        edits.push(Edit::RenameTable { table, name: format!("{}x", entry.name) });
        edits.push(Edit::Truncate { table, flushed_seq: entry.flushed_seq });
    }
    for some in [&edits[..], &edits[..edits.len() / 2], &[]] {
        let edits = manifest::encode_edits(some)?;
        seeds.push(("manifest", front(&snapshot, &edits)));
        seeds.push(("manifest", front(&[], &edits)));
    }
    for (table, entry) in &state.tables {
        for value in entry.properties.values() {
            seeds.extend((0..11).map(|name| ("property", [&[table.0 as u8, name], &value[..]].concat())));
        }
    }
    let mut log = Vec::new();
    for path in fs.files().iter().filter(|path| path.extension().is_some_and(|e| e == "rrdl")) {
        wal::for_each_raw(&fs.read(path), &mut |record| log.extend(front(record, &[])));
    }
    seeds.push(("log", log));
    for path in fs.files().iter().filter(|path| path.extension().is_some_and(|e| e == "rrds")) {
        let (blocks, footer) = segment::parts_of(&fs.read(path));
        seeds.push(("segment", front(&footer, &[])[..2].iter().copied().chain(blocks).chain(footer).collect()));
    }
    Ok(seeds)
}

// -- what is done with a folder -----------------------------------------------------------------------------------------

fn work_with(fs: &SimFs) {
    let Ok(engine) = open(fs) else { return };
    for xid in engine.prepared_xids() {
        let _ = if xid.len() % 2 == 0 { engine.commit_prepared(&xid) } else { engine.rollback_prepared(&xid) };
    }
    for name in engine.table_names() {
        let Ok(table) = engine.table(&name) else { continue };
        let _ = engine.check_table(&table, &mut |_, _| true);
        let _ = read(&engine, &table, Direction::Forward);
        let _ = read(&engine, &table, Direction::Backward);
        let _ = read_parts(&engine, &table);
        let _ = count(&engine, &table);
        let _ = engine.repair_table(&table, &mut |_, _| true);
        let _ = write(&engine, &table, 900..910);
        let _ = engine.flush_table(&table);
        let _ = engine.optimize_table(&table, &mut |_, _| true);
        let _ = read(&engine, &table, Direction::Forward);
        let _ = read_parts(&engine, &table);
    }
    if engine.close().is_err() || engine.poisoned().is_some() {
        return;
    }
    drop(engine);
    let engine = match open(fs) {
        Ok(engine) => engine,
        Err(error) => panic!("what was open does not open again: {error}"),
    };
    for (n, name) in engine.table_names().iter().enumerate() {
        let _ = if n % 2 == 0 { engine.truncate_table(name) } else { engine.rename_table(name, "db/other") };
    }
    for name in engine.table_names() {
        let dropped = engine.drop_table(&name);
        assert!(dropped.is_ok() || engine.poisoned().is_some(), "'{name}' cannot be dropped: {dropped:?}");
    }
}

fn open(fs: &SimFs) -> Result<Arc<Engine>> {
    let mut config = Config::new(DIR);
    config.background = false;
    config.clock_micros = Some(1_700_000_000_000_000);
    config.tuning.bulk_min_bytes = 100;
    config.tuning.bulk_run_bytes = 500;
    config.tuning.group_rows = 32;
    Engine::open(config, Arc::new(fs.clone()) as Arc<dyn Fs>)
}

/// A copy of a folder with sealed segments and others, rows in the log, an index, a tier, prepared transactions.
fn sound() -> SimFs {
    static SOUND: OnceLock<SimFs> = OnceLock::new();
    SOUND.get_or_init(|| make_sound().unwrap_or_else(|error| panic!("no folder on a sound disk: {error}"))).kill()
}

fn make_sound() -> Result<SimFs> {
    let fs = SimFs::new();
    let engine = open(&fs)?;
    engine.create_table("db/a", schema())?;
    let mut with_parts = schema();
    let column = IndexColumn::plain(3);
    with_parts.indexes = vec![IndexDef { id: 1, name: "text".into(), unique: false, columns: vec![column] }];
    let bucket = Bucket::Fixed { length: 60_000_000, offset: 0 };
    with_parts.tiers = vec![TierDef { id: 1, name: "1m".into(), bucket, keep: Some(3_600_000_000) }];
    with_parts.ring.max_rows = Some(150);
    with_parts.ring.series_max_rows = Some(60);
    engine.create_table("db/b", with_parts)?;
    for name in ["db/a", "db/b"] {
        let table = engine.table(name)?;
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
        for (xid, rows) in [(&b"one"[..], 300..303), (b"two!", 303..304), (b"three", 310..340)] {
            let mut txn = engine.begin();
            put(&mut txn, &table, rows)?;
            txn.prepare(&[xid, name.as_bytes()].concat())?;
        }
    }
    engine.commit_prepared(b"two!db/a")?;
    fs.create_dir(Path::new("/data/db"))?;
    let mut definition = vec![0; 64];
    definition[..4].copy_from_slice(&[0xfe, 1, 10, 60]);
    definition.extend_from_slice(&[1, 0, b'c', 3, 0, b'R', b'R', b'D']);
    definition[6] = 64;
    fs.create(Path::new("/data/db/a.frm"))?.write(&definition)?;
    Ok(fs.kill())
}

fn schema() -> Schema {
    let int = Lane::Int { width: 4 };
    let columns = [(0, int, false), (1, int, false), (2, Lane::F64, true), (3, Lane::Bytes, true)];
    let columns = columns.map(|(id, lane, nullable)| ColumnDef::plain(id, lane, nullable)).to_vec();
    Schema { chunk_length: Some(64), compression: Compression::Fast, ..Schema::plain(columns, vec![0, 1], Some(1)) }
}

/// Whether rows can be made for it as for [`schema`].
fn is_as_made(table: &Table) -> bool {
    let (own, made) = (table.schema(), schema());
    let lanes = |schema: &Schema| schema.columns.iter().map(|c| (c.lane, c.nullable)).collect::<Vec<_>>();
    lanes(&own) == lanes(&made) && own.key == made.key && own.time == made.time
}

/// Rows of three series; what is there is replaced, every tenth row removed again.
fn write(engine: &Arc<Engine>, table: &Arc<Table>, numbers: std::ops::Range<u64>) -> Result<()> {
    let mut txn = engine.begin();
    put(&mut txn, table, numbers)?;
    txn.commit()
}

fn put(txn: &mut crate::Txn, table: &Arc<Table>, numbers: std::ops::Range<u64>) -> Result<()> {
    for number in numbers.filter(|_| is_as_made(table)) {
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
        layout.push_key(&row, &mut key);
        if txn.insert(table, &row, OnDuplicate::Replace).is_err() {
            txn.update(table, &key, &row)?;
        }
        if number % 10 == 9 {
            txn.delete(table, &key)?;
        }
    }
    Ok(())
}

fn read(engine: &Arc<Engine>, table: &Arc<Table>, direction: Direction) -> Result<usize> {
    walk(&mut engine.begin().cursor(table)?, direction)
}

fn read_parts(engine: &Arc<Engine>, table: &Arc<Table>) -> Result<usize> {
    let mut rows = 0;
    for number in 0..table.schema().indexes.len() {
        rows += walk(&mut engine.begin().index_cursor(table, number)?, Direction::Forward)?;
    }
    for tier in table.tiers().iter() {
        rows += walk(&mut engine.begin().cursor(&tier.table)?, Direction::Forward)?;
    }
    Ok(rows)
}

fn walk(cursor: &mut Cursor, direction: Direction) -> Result<usize> {
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
    if !is_as_made(table) {
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

// -- parts of inputs ----------------------------------------------------------------------------------------------------

/// A first part, behind its length in two bytes, and the rest.
fn two_parts(input: &[u8]) -> (&[u8], &[u8]) {
    let Some((length, rest)) = input.split_first_chunk() else { return (&[], &[]) };
    rest.split_at(rest.len().min(u16::from_le_bytes(*length).into()))
}

/// The rest, and a last part, whose length stands in front in two bytes.
fn end_part(input: &[u8]) -> (&[u8], &[u8]) {
    let Some((length, rest)) = input.split_first_chunk() else { return (&[], &[]) };
    rest.split_at(rest.len().saturating_sub(u16::from_le_bytes(*length).into()))
}

fn records(mut input: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (record, rest) = two_parts(input);
        input = rest;
        (!record.is_empty()).then_some(record)
    })
}

fn remove_files(fs: &SimFs, which: impl Fn(&PathBuf) -> bool) {
    fs.files().iter().filter(|path| which(path)).for_each(|path| drop(fs.remove(path)));
}
