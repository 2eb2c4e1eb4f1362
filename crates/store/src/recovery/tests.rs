//! Folders as earlier versions left them: chunks of prepared transactions that overlap with those of the manifest.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::path::PathBuf;

use super::*;
use crate::cursor::Direction;
use crate::engine::Engine;
use crate::fs::sim::SimFs;
use crate::manifest::edit::{ChunkSpan, TableId};
use crate::schema::{ColumnDef, Lane, Schema};
use crate::txn::OnDuplicate;

const DIR: &str = "/rrd";

fn open(fs: &SimFs) -> Result<Arc<Engine>> {
    let mut config = Config::new(DIR);
    config.background = false;
    config.tuning.txn_spill_bytes = 500;
    Engine::open(config, Arc::new(fs.clone()))
}

fn write(engine: &Arc<Engine>, table: &str, times: std::ops::Range<u64>) -> crate::txn::Txn {
    let table = engine.table(table).unwrap();
    let mut txn = engine.begin();
    for time in times {
        let mut row = Vec::new();
        let layout = table.layout();
        let mut writer = layout.writer(&mut row);
        writer.set_int(0, 1);
        writer.set_int(1, time);
        writer.finish();
        txn.insert(&table, &row, OnDuplicate::Fail).unwrap();
    }
    txn
}

fn rows(engine: &Arc<Engine>, table: &str) -> u64 {
    let table = engine.table(table).unwrap();
    assert_eq!(engine.check_table(&table, &mut |_, _| true).unwrap(), Vec::<String>::new());
    let mut txn = engine.begin();
    let mut cursor = txn.cursor(&table).unwrap();
    cursor.seek(None, true, Direction::Forward).unwrap();
    let mut rows = 0;
    while let Some(span) = cursor.next_span(1000).unwrap() {
        rows += u64::from(span.rows);
    }
    rows
}

fn manifest_of(fs: &SimFs) -> PathBuf {
    fs.files().into_iter().find(|path| path.extension().is_some_and(|ending| ending == "rrdm")).unwrap()
}

/// A table with rows from 0 to 50, and a transaction of rows from 100 to 200 in files that is prepared, in a chunk that begins
/// at 0. Then the manifest gets another chunk: that of before a TRUNCATE is forgotten.
fn with_other_chunks(span: ChunkSpan) -> SimFs {
    let fs = SimFs::new();
    let engine = open(&fs).unwrap();
    for name in ["db/t", "db/other"] {
        let int = |id| ColumnDef::plain(id, Lane::Int { width: 8 }, false);
        let schema = Schema::plain(vec![int(0), int(1)], vec![0, 1], Some(1));
        engine.create_table(name, Schema { chunk_length: Some(1000), ..schema }).unwrap();
    }
    write(&engine, "db/other", 0..9).commit().unwrap();
    write(&engine, "db/t", 100..200).prepare(b"x").unwrap();
    drop(engine);
    let (manifest, state) = Manifest::open(Arc::new(fs.clone()), Path::new(DIR)).unwrap();
    let table = *state.tables.iter().find(|(_, table)| table.name == "db/t").unwrap().0;
    manifest.commit(&[Edit::AddChunk { table, span }]).unwrap();
    fs.kill()
}

/// The same with the second phase in the log, but not in the manifest.
fn with_second_phase(span: ChunkSpan) -> SimFs {
    let fs = with_other_chunks(span);
    let path = manifest_of(&fs);
    let bytes = fs.read(&path);
    let engine = open(&fs).unwrap();
    assert!(engine.commit_prepared(b"x").unwrap());
    drop(engine);
    fs.remove(&manifest_of(&fs)).unwrap();
    fs.create(&path).unwrap().write(&bytes).unwrap();
    fs.kill()
}

#[test]
fn chunks_of_the_log_that_overlap_with_the_manifests_keep_no_engine_from_starting() {
    for span in [(100, 150), (500, 2000), (0, 5000), (1000, 1100)] {
        let span = ChunkSpan { start: span.0, end: span.1 };
        for fs in [with_second_phase(span), with_other_chunks(span)] {
            let engine = open(&fs).unwrap();
            engine.commit_prepared(b"x").unwrap();
            assert_eq!((rows(&engine, "db/t"), rows(&engine, "db/other")), (100, 9), "{span:?}");
            write(&engine, "db/t", 600..1600).commit().unwrap();
            let table = engine.table("db/t").unwrap();
            engine.flush_table(&table).unwrap();
            engine.optimize_table(&table, &mut |_, _| true).unwrap();
            assert_eq!((rows(&engine, "db/t"), engine.poisoned()), (1100, None), "{span:?}");
            drop((table, engine));
            let engine = open(&fs).unwrap();
            assert_eq!(rows(&engine, "db/t"), 1100, "{span:?}");
            engine.drop_table("db/t").unwrap();
            drop(engine);
            assert_eq!(rows(&open(&fs).unwrap(), "db/other"), 9);
            assert!(!fs.files().iter().any(|path| path.starts_with(Path::new(DIR).join(TableId(1).dir_name()))));
        }
    }
}

#[test]
fn a_strangers_file_in_the_folder_of_a_dropped_table_keeps_no_engine_from_starting() {
    let fs = SimFs::new();
    let engine = open(&fs).unwrap();
    for name in ["db/t", "db/other"] {
        let int = ColumnDef::plain(0, Lane::Int { width: 8 }, false);
        engine
            .create_table(
                name,
                Schema::plain(vec![int.clone(), ColumnDef::plain(1, int.lane, false)], vec![0, 1], None),
            )
            .unwrap();
    }
    write(&engine, "db/other", 0..9).commit().unwrap();
    let note = engine.table("db/t").unwrap().dir.join("note.txt");
    fs.create(&note).unwrap().write(b"a stranger's").unwrap();
    engine.drop_table("db/t").unwrap();
    drop(engine);
    let fs = fs.kill();
    assert_eq!(rows(&open(&fs).unwrap(), "db/other"), 9);
    assert_eq!(fs.read(&note), b"a stranger's");
}

/// Whether an engine starts whose manifest has one more record.
fn starts_with(edit: impl Fn(TableId) -> Edit) -> Result<Arc<Engine>> {
    let fs = with_other_chunks(ChunkSpan { start: 5000, end: 6000 });
    let (manifest, state) = Manifest::open(Arc::new(fs.clone()), Path::new(DIR))?;
    let table = *state.tables.keys().next_back().unwrap();
    manifest.commit(&[edit(table)])?;
    drop(manifest);
    open(&fs.kill())
}

#[test]
fn numbers_that_would_overflow_are_refused_at_the_start() {
    type Make = fn(TableId, u64) -> Edit;
    let makes: [Make; 4] = [
        |_, seq| Edit::NextSeq { seq },
        |table, seq| Edit::Flushed { table, seq },
        |table, flushed_seq| Edit::Truncate { table, flushed_seq },
        |table, next| Edit::NextRowNumber { table, next },
    ];
    for make in makes {
        for number in [limits::MAX_NUMBER, u64::MAX] {
            let error = starts_with(|table| make(table, number)).map(drop).unwrap_err().to_string();
            assert!(error.contains("too large to be true") && error.contains(".rrdm"), "{error}");
        }
        starts_with(|table| make(table, limits::MAX_NUMBER / 2)).unwrap();
    }
}

#[test]
fn a_logged_delete_of_what_is_no_key_of_the_table_is_damage() {
    // A commit with number 50, and a prepare record, that delete the key "x" of table 1.
    let body = b"\x01\x01\x01\x01\x01x\x07";
    for record in [
        [&b"\x05\x32"[..], body].concat(),
        log_record::prepare(b"y", body, &crate::manifest::encode_edits(&[]).unwrap()),
    ] {
        let fs = with_other_chunks(ChunkSpan { start: 5000, end: 6000 });
        let engine = open(&fs).unwrap();
        assert_eq!(engine.table("db/t").unwrap().id, TableId(1));
        let lsn = engine.wal.append_parts(&[&record]).unwrap();
        engine.wal.sync(lsn).unwrap();
        drop(engine);
        assert!(matches!(open(&fs.kill()), Err(Error::Corruption { .. })));
    }
}
