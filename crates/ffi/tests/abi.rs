//! The C functions as a handler uses them: a table from its making to its end, and calls that make no sense.

use std::ffi::{c_char, c_void};
use std::ptr::{null, null_mut};

use rrd_ffi::abi::*;
use rrd_ffi::export_engine::*;
use rrd_ffi::export_info::*;
use rrd_ffi::export_row::*;
use rrd_ffi::export_session::*;
use rrd_ffi::export_table::*;

/// A record of the table `(series INT NOT NULL, ts INT UNSIGNED NOT NULL, value DOUBLE, note TEXT,
/// PRIMARY KEY (series, ts))`, as the server lays it out.
const RECORD_BYTES: usize = 1 + 4 + 4 + 8 + 2 + 8;
const SERIES: u32 = 1;
const TS: u32 = 5;
const VALUE: u32 = 9;
const NOTE: u32 = 17;

fn text(text: &'static str) -> RrdText {
    RrdText { data: text.as_ptr().cast(), length: text.len() }
}

fn no_error() -> RrdError {
    RrdError { status: RRD_OK, index: 0, message: [0; RRD_MESSAGE_BYTES] }
}

fn message(error: &RrdError) -> String {
    error.message.iter().take_while(|c| **c != 0).map(|c| *c as u8 as char).collect()
}

fn binary() -> RrdCollation {
    RrdCollation {
        handle: null(),
        weights: None,
        pad_space: 0,
        levels: 0,
        pad_length: 1,
        reserved: 0,
        pad: [0; 4],
        space: [RrdWeight::default(); RRD_MAX_LEVELS],
    }
}

fn field(name: &'static str, number: u32, offset: u32, pack_length: u32, kind: RrdKind) -> RrdField {
    RrdField {
        name: text(name),
        sql_type: text(""),
        number,
        offset,
        null_offset: 0,
        pack_length,
        null_mask: 0,
        kind,
        length_bytes: 0,
        is_signed: 0,
        time_kind: RRD_TIME_NONE,
        fraction_digits: 0,
        is_auto_increment: 0,
        decimal_precision: 0,
        collation: binary(),
        options: null(),
        option_count: 0,
    }
}

fn fields() -> [RrdField; 4] {
    let mut fields = [
        field("series", 0, SERIES, 4, RRD_KIND_INTEGER),
        field("ts", 1, TS, 4, RRD_KIND_INTEGER),
        field("value", 2, VALUE, 8, RRD_KIND_DOUBLE),
        field("note", 3, NOTE, 10, RRD_KIND_BLOB),
    ];
    fields[0].is_signed = 1;
    fields[1].time_kind = RRD_TIME_INTEGER;
    fields[2].null_mask = 1;
    fields[3].null_mask = 2;
    fields[3].length_bytes = 2;
    fields
}

fn key_part(field: u32) -> RrdKeyPart {
    RrdKeyPart { field, length: 4, max_chars: 4, has_null_byte: 0, is_variable: 0, is_descending: 0, is_prefix: 0 }
}

static DEFAULT_RECORD: [u8; RECORD_BYTES] = [0; RECORD_BYTES];

fn definition(fields: &[RrdField], parts: &[RrdKeyPart], options: &[RrdOption]) -> RrdTableDefinition {
    RrdTableDefinition {
        fields: fields.as_ptr(),
        field_count: fields.len(),
        key_parts: parts.as_ptr(),
        key_part_count: parts.len(),
        indexes: null(),
        index_count: 0,
        record_bytes: RECORD_BYTES,
        default_record: DEFAULT_RECORD.as_ptr(),
        options: options.as_ptr(),
        option_count: options.len(),
    }
}

fn record(series: i32, ts: u32, value: Option<f64>, note: &[u8]) -> [u8; RECORD_BYTES] {
    let mut record = [0; RECORD_BYTES];
    record[0] = u8::from(value.is_none());
    record[1..5].copy_from_slice(&series.to_le_bytes());
    record[5..9].copy_from_slice(&ts.to_le_bytes());
    record[9..17].copy_from_slice(&value.unwrap_or(0.0).to_le_bytes());
    record[17..19].copy_from_slice(&(note.len() as u16).to_le_bytes());
    record[19..27].copy_from_slice(&(note.as_ptr() as u64).to_le_bytes());
    record
}

fn image(series: i32, ts: Option<u32>) -> Vec<u8> {
    let mut image = series.to_le_bytes().to_vec();
    image.extend(ts.iter().flat_map(|ts| ts.to_le_bytes()));
    image
}

/// The record without the pointer, and what the pointer leads to.
unsafe fn seen(record: &[u8; RECORD_BYTES]) -> (i32, u32, Option<f64>, Vec<u8>) {
    let take4 = |at: usize| [record[at], record[at + 1], record[at + 2], record[at + 3]];
    let mut double = [0; 8];
    double.copy_from_slice(&record[9..17]);
    let mut pointer = [0; 8];
    pointer.copy_from_slice(&record[19..27]);
    let length = usize::from(u16::from_le_bytes([record[17], record[18]]));
    let value = (record[0] & 1 == 0).then(|| f64::from_le_bytes(double));
    let note = match length {
        0 => Vec::new(),
        // SAFETY: the caller has just read the record, and nothing since.
        _ => unsafe { std::slice::from_raw_parts(u64::from_le_bytes(pointer) as usize as *const u8, length) }.to_vec(),
    };
    (i32::from_le_bytes(take4(1)), u32::from_le_bytes(take4(5)), value, note)
}

struct Opened {
    engine: *mut RrdEngine,
    session: *mut RrdSession,
    table: *mut RrdTable,
    _folder: tempfile::TempDir,
}

impl Opened {
    fn new() -> Opened {
        let folder = tempfile::tempdir().unwrap_or_else(|e| panic!("{e}"));
        let path = folder.path().join("data").into_os_string().into_string().unwrap_or_default();
        let config = RrdConfig {
            directory: RrdText { data: path.as_ptr().cast(), length: path.len() },
            memtable_bytes: 1 << 20,
            cache_bytes: 1 << 20,
            flush_log: 0,
            reserved: 0,
        };
        let mut opened = Opened { engine: null_mut(), session: null_mut(), table: null_mut(), _folder: folder };
        let mut error = no_error();
        let (fields, parts) = (fields(), [key_part(0), key_part(1)]);
        let definition = definition(&fields, &parts, &[]);
        // SAFETY: everything passed lives until the end of the block.
        unsafe {
            assert_eq!(rrd_engine_open(&config, &mut opened.engine, &mut error), RRD_OK, "{}", message(&error));
            let status = rrd_table_create(opened.engine, text("db/t"), &definition, &mut error);
            assert_eq!(status, RRD_OK, "{}", message(&error));
            rrd_table_open(opened.engine, text("db/t"), &definition, &mut opened.table, &mut error);
            rrd_session_open(opened.engine, null_mut(), 0, None, None, &mut opened.session, &mut error);
            rrd_session_begin_statement(opened.session, RRD_REPEATABLE_READ, 1000, &mut error);
            rrd_table_set_columns(opened.table, [0u32, 1, 2, 3].as_ptr(), 4, RRD_LOCK_NONE, false, &mut error);
        }
        assert_eq!(error.status, RRD_OK, "{}", message(&error));
        opened
    }

    fn insert(&self, record: &[u8; RECORD_BYTES]) -> i32 {
        // SAFETY: the handles are open.
        unsafe { rrd_row_insert(self.table, self.session, record.as_ptr(), RRD_INSERT_FAIL, null_mut()) }
    }

    fn seek(&self, seek: RrdSeek, image: &[u8]) {
        let mut error = no_error();
        // SAFETY: the handles are open.
        unsafe {
            rrd_scan_open(self.table, self.session, RRD_CLUSTERING_KEY, &mut error);
            rrd_scan_seek(self.table, seek, image.as_ptr(), image.len(), null(), 0, false, &mut error);
        }
        assert_eq!(error.status, RRD_OK, "{}", message(&error));
    }

    /// The times of the rows from here on.
    fn rest(&self, backward: bool) -> Vec<u32> {
        let mut found = Vec::new();
        let mut record = [0; RECORD_BYTES];
        // SAFETY: the handles are open, the record has the length of the definition.
        unsafe {
            while rrd_scan_next(self.table, self.session, backward, record.as_mut_ptr(), null_mut()) == RRD_OK {
                found.push(seen(&record).1);
            }
        }
        found
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        // SAFETY: closed once, children first.
        unsafe {
            rrd_table_close(self.table);
            rrd_session_close(self.session);
            rrd_engine_close(self.engine, null_mut());
        }
    }
}

#[test]
fn rows_come_back_as_they_were_written() {
    let t = Opened::new();
    assert_eq!(t.insert(&record(-7, 100, Some(1.5), b"first")), RRD_OK);
    assert_eq!(t.insert(&record(-7, 200, None, b"")), RRD_OK);
    let mut found = [0xEE; RECORD_BYTES];
    // SAFETY: the handles are open, the record has the length of the definition.
    unsafe {
        let image = image(-7, Some(100));
        let status = rrd_row_read(t.table, t.session, image.as_ptr(), image.len(), found.as_mut_ptr(), null_mut());
        assert_eq!((status, seen(&found)), (RRD_OK, (-7, 100, Some(1.5), b"first".to_vec())));
        assert_eq!(rrd_session_commit(t.session, null_mut()), RRD_OK);
    }
    t.seek(RRD_SEEK_FIRST, &[]);
    assert_eq!(t.rest(false), [100, 200]);
}

#[test]
fn a_duplicate_is_reported_and_shown() {
    let t = Opened::new();
    assert_eq!(t.insert(&record(1, 1, None, b"")), RRD_OK);
    assert_eq!(t.insert(&record(1, 1, Some(2.0), b"new")), RRD_DUPLICATE);
    let mut refused = [0; RECORD_BYTES];
    // SAFETY: the table is open, the record has the length of the definition.
    unsafe {
        rrd_row_duplicate(t.table, refused.as_mut_ptr());
        assert_eq!(seen(&refused), (1, 1, Some(2.0), b"new".to_vec()));
    }
}

#[test]
fn every_way_to_seek_finds_its_rows() {
    let t = Opened::new();
    for (series, ts) in [(-1, 9), (1, 10), (1, 20), (1, 30), (2, 5)] {
        assert_eq!(t.insert(&record(series, ts, None, b"")), RRD_OK);
    }
    let one = image(1, None);
    for (seek, image, backward, expected) in [
        (RRD_SEEK_EXACT, &one, false, vec![10, 20, 30]),
        (RRD_SEEK_LAST, &one, true, vec![30, 20, 10]),
        (RRD_SEEK_AT_OR_AFTER, &image(1, Some(15)), false, vec![20, 30, 5]),
        (RRD_SEEK_AFTER, &one, false, vec![5]),
        (RRD_SEEK_BEFORE, &one, true, vec![9]),
        (RRD_SEEK_AT_OR_BEFORE, &image(1, Some(20)), true, vec![20, 10, 9]),
        (RRD_SEEK_END, &one, true, vec![5, 30, 20, 10, 9]),
        (RRD_SEEK_EXACT, &image(3, None), false, vec![]),
    ] {
        t.seek(seek, image);
        assert_eq!(t.rest(backward), expected, "seek {seek}");
    }
}

#[test]
fn a_walk_turns_round_where_it_stands() {
    let t = Opened::new();
    for ts in [10, 20, 30, 40] {
        assert_eq!(t.insert(&record(1, ts, None, b"")), RRD_OK);
    }
    t.seek(RRD_SEEK_AT_OR_AFTER, &image(1, Some(30)));
    let mut record = [0; RECORD_BYTES];
    // SAFETY: the handles are open, the record has the length of the definition.
    let mut next = |backward| unsafe {
        assert_eq!(rrd_scan_next(t.table, t.session, backward, record.as_mut_ptr(), null_mut()), RRD_OK);
        seen(&record).1
    };
    assert_eq!([next(false), next(true), next(true), next(false)], [30, 20, 10, 20]);
}

#[test]
fn updates_and_deletes_are_undone_by_a_mark() {
    let t = Opened::new();
    let (old, new) = (record(1, 1, Some(1.0), b""), record(1, 2, Some(2.0), b""));
    assert_eq!(t.insert(&old), RRD_OK);
    let mut mark = 0;
    // SAFETY: the handles are open.
    unsafe {
        assert_eq!(rrd_session_savepoint(t.session, &mut mark, null_mut()), RRD_OK);
        assert_eq!(rrd_row_update(t.table, t.session, old.as_ptr(), new.as_ptr(), null_mut()), RRD_OK);
        t.seek(RRD_SEEK_FIRST, &[]);
        assert_eq!(t.rest(false), [2]);
        assert_eq!(rrd_row_delete(t.table, t.session, new.as_ptr(), null_mut()), RRD_OK);
        t.seek(RRD_SEEK_FIRST, &[]);
        assert!(t.rest(false).is_empty());
        assert_eq!(rrd_session_rollback_to(t.session, mark, null_mut()), RRD_OK);
    }
    t.seek(RRD_SEEK_FIRST, &[]);
    assert_eq!(t.rest(false), [1]);
}

#[test]
fn null_pointers_are_errors() {
    let t = Opened::new();
    let mut error = no_error();
    // SAFETY: null is allowed everywhere.
    unsafe {
        assert_eq!(rrd_engine_open(null(), null_mut(), &mut error), RRD_INTERNAL);
        assert_eq!(rrd_table_create(t.engine, text("db/x"), null(), &mut error), RRD_INTERNAL);
        assert_eq!(rrd_row_insert(t.table, t.session, null(), RRD_INSERT_FAIL, &mut error), RRD_INTERNAL);
        assert_eq!(rrd_row_insert(null_mut(), t.session, null(), RRD_INSERT_FAIL, &mut error), RRD_INTERNAL);
        assert_eq!(rrd_scan_next(t.table, null_mut(), false, null_mut(), null_mut()), RRD_INTERNAL);
        assert_eq!(rrd_session_commit(null_mut(), null_mut()), RRD_INTERNAL);
        rrd_table_close(null_mut());
        rrd_session_close(null_mut());
        rrd_engine_counters(t.engine, None, null_mut());
    }
    assert!(message(&error).contains("null pointer"));
}

#[test]
fn a_table_that_the_server_sees_differently_is_refused() {
    let t = Opened::new();
    let (mut fields, parts) = (fields(), [key_part(0), key_part(1)]);
    fields[2].kind = RRD_KIND_INTEGER;
    let definition = definition(&fields, &parts, &[]);
    let (mut error, mut other) = (no_error(), null_mut());
    // SAFETY: everything passed lives until the end of the block.
    unsafe {
        let status = rrd_table_open(t.engine, text("db/t"), &definition, &mut other, &mut error);
        assert_eq!(status, RRD_DEFINITION_CHANGED, "{}", message(&error));
        assert!(message(&error).contains("'value'"), "{}", message(&error));
        let status = rrd_table_open(t.engine, text("db/none"), &definition, &mut other, &mut error);
        assert_eq!(status, RRD_NO_SUCH_TABLE);
    }
}

#[test]
fn options_reach_the_store_or_are_refused_with_their_name() {
    let t = Opened::new();
    let (fields, parts) = (fields(), [key_part(0), key_part(1)]);
    let create = |name: &'static str, value: &'static str| {
        let options = [RrdOption { name: text(name), value: text(value) }];
        let definition = definition(&fields, &parts, &options);
        let mut error = no_error();
        // SAFETY: everything passed lives until the end of the block.
        let status = unsafe { rrd_table_create(t.engine, text("db/o"), &definition, &mut error) };
        (status, message(&error))
    };
    assert_eq!(create("RETENTION", "ever").0, RRD_INVALID);
    let (status, why) = create("XFF", "0.5");
    assert!(status == RRD_INVALID && why.contains("STEP='5m'"), "{why}");
    assert_eq!(create("CHUNK", "soon").0, RRD_INVALID);
    let (status, why) = create("TIME_COLUMN", "value");
    assert!(status == RRD_INVALID && why.contains("TIME_COLUMN='value'"), "{why}");
    assert_eq!(create("CHUNK", "1 DAY").0, RRD_OK);
}

/// Adds a text to the string that the context is.
unsafe extern "C" fn collect(context: *mut c_void, text: *const c_char, length: usize) {
    // SAFETY: promised by whoever passes it on; the text is as long as it says.
    unsafe {
        let bytes = std::slice::from_raw_parts(text.cast::<u8>(), length);
        (*context.cast::<String>()).push_str(&String::from_utf8_lossy(bytes));
    }
}

#[test]
fn the_report_says_how_the_engine_is() {
    let t = Opened::new();
    let mut report = String::new();
    // SAFETY: everything passed lives until the end of the block.
    unsafe { rrd_engine_report(t.engine, Some(collect), (&raw mut report).cast()) };
    assert!(report.starts_with("STATE\n  running\n  tables: 1\nTRANSACTIONS\n"), "{report}");
    let mut lines: Vec<_> = report.lines().collect();
    let all = lines.len();
    lines.sort_unstable();
    lines.dedup();
    assert_eq!(lines.len(), all, "no line is there twice: {report}");
}

unsafe extern "C" fn wanted(_: *mut c_void, _: *const c_char, length: usize) -> bool {
    length == "db/t".len()
}

unsafe extern "C" fn count_cells(context: *mut c_void, cells: *const RrdCell, count: usize) -> bool {
    // SAFETY: the context is the string of the test, the cells are as many as it says.
    unsafe {
        let kinds: Vec<u8> = std::slice::from_raw_parts(cells, count).iter().map(|cell| cell.kind).collect();
        (*context.cast::<String>()).push_str(&format!("{kinds:?};"));
    }
    true
}

unsafe extern "C" fn never(_: *mut c_void) -> bool {
    false
}

#[test]
fn views_have_as_many_cells_as_columns_and_end_when_told() {
    let t = Opened::new();
    for view in [RRD_VIEW_TABLES, RRD_VIEW_SEGMENTS, RRD_VIEW_COLUMNS] {
        let mut column = RrdInfoColumn { name: null(), length: 0, kind: 0, flags: 0, reserved: 0 };
        // SAFETY: the column is the test's own.
        let columns = (0..).take_while(|&n| unsafe { rrd_info_column(view, n, &mut column) }).count();
        let mut seen = String::new();
        let reader = RrdInfoReader {
            context: (&raw mut seen).cast(),
            wanted: Some(wanted),
            row: Some(count_cells),
            problem: Some(collect),
            killed: Some(never),
        };
        let mut error = no_error();
        // SAFETY: everything passed lives until the end of the block.
        let status = unsafe { rrd_info_read(t.engine, view, true, &reader, &mut error) };
        assert_eq!(status, RRD_OK, "{}", message(&error));
        let rows: Vec<_> = seen.split_terminator(';').collect();
        // The table has no segment yet; of several rows the first one was enough.
        assert_eq!(rows.len(), usize::from(view != RRD_VIEW_SEGMENTS), "{seen}");
        rows.iter().for_each(|row| assert_eq!(row.split(',').count(), columns, "{row}"));
        let nobody = RrdInfoReader { row: None, ..reader };
        // SAFETY: as above.
        assert_eq!(unsafe { rrd_info_read(t.engine, view, true, &nobody, &mut error) }, RRD_INTERNAL);
    }
}
