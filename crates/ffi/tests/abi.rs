//! The C functions as a handler uses them: a table from its making to its end, and calls that make no sense.

use std::ffi::{c_char, c_void};
use std::mem::MaybeUninit;
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

fn text(text: &'static str) -> RrdText<'static> {
    RrdText::of(text)
}

/// An error that is initialised from the start.
struct Told(MaybeUninit<RrdError>);

impl Told {
    fn new() -> Told {
        Told(MaybeUninit::new(RrdError { status: RRD_OK, index: 0, message: [0; RRD_MESSAGE_BYTES] }))
    }

    fn out(&mut self) -> Option<&mut MaybeUninit<RrdError>> {
        Some(&mut self.0)
    }

    fn error(&self) -> &RrdError {
        // SAFETY: all of it was initialised, and calls write values only.
        unsafe { self.0.assume_init_ref() }
    }

    fn status(&self) -> i32 {
        self.error().status
    }

    fn message(&self) -> String {
        self.error().message.iter().take_while(|c| **c != 0).map(|c| *c as u8 as char).collect()
    }
}

/// A place for an answer.
fn place<T>() -> MaybeUninit<T> {
    MaybeUninit::uninit()
}

/// The answer of a call that went well.
fn answer<T>(status: i32, place: MaybeUninit<T>, error: &Told) -> T {
    assert_eq!(status, RRD_OK, "{}", error.message());
    // SAFETY: an answer is written when a call goes well.
    unsafe { place.assume_init() }
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

fn field(name: &'static str, number: u32, offset: u32, pack_length: u32, kind: RrdKind) -> RrdField<'static> {
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

fn fields() -> [RrdField<'static>; 4] {
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

/// What a handle of a collation may point to.
static A_COLLATION: u8 = 0;

static DEFAULT_RECORD: [u8; RECORD_BYTES] = [0; RECORD_BYTES];

fn definition<'a>(fields: &[RrdField<'a>], parts: &[RrdKeyPart], options: &[RrdOption<'a>]) -> RrdTableDefinition<'a> {
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
    engine: Option<Box<RrdEngine>>,
    session: Option<Box<RrdSession>>,
    table: Option<Box<RrdTable>>,
    _folder: tempfile::TempDir,
}

impl Opened {
    fn new() -> Opened {
        let folder = tempfile::tempdir().unwrap_or_else(|e| panic!("{e}"));
        let path = folder.path().join("data").into_os_string().into_string().unwrap_or_default();
        let config = RrdConfig {
            directory: RrdText::of(&path),
            memtable_bytes: 1 << 20,
            cache_bytes: 1 << 20,
            flush_log: 0,
            reserved: 0,
        };
        let mut error = Told::new();
        let (fields, parts) = (fields(), [key_part(0), key_part(1)]);
        let definition = definition(&fields, &parts, &[]);
        let mut out = place();
        let status = rrd_engine_open(Some(&config), Some(&mut out), error.out());
        let engine = answer(status, out, &error);
        // SAFETY: the definition's slices live until the end of the function.
        let status = unsafe { rrd_table_create(engine.as_deref(), text("db/t"), Some(&definition), error.out()) };
        assert_eq!(status, RRD_OK, "{}", error.message());
        let mut out = place();
        // SAFETY: as above.
        let status =
            unsafe { rrd_table_open(engine.as_deref(), text("db/t"), Some(&definition), Some(&mut out), error.out()) };
        let table = answer(status, out, &error);
        let mut out = place();
        // SAFETY: there is no function that could be called.
        let status =
            unsafe { rrd_session_open(engine.as_deref(), null_mut(), 0, None, None, Some(&mut out), error.out()) };
        let session = answer(status, out, &error);
        let mut opened = Opened { engine, session, table, _folder: folder };
        rrd_session_begin_statement(opened.session.as_deref_mut(), RRD_REPEATABLE_READ, 1000, error.out());
        let columns = [0u32, 1, 2, 3];
        // SAFETY: there are four numbers.
        unsafe {
            rrd_table_set_columns(opened.table.as_deref_mut(), columns.as_ptr(), 4, RRD_LOCK_NONE, false, error.out())
        };
        assert_eq!(error.status(), RRD_OK, "{}", error.message());
        opened
    }

    fn both(&mut self) -> (Option<&mut RrdTable>, Option<&mut RrdSession>) {
        (self.table.as_deref_mut(), self.session.as_deref_mut())
    }

    fn insert(&mut self, record: &[u8; RECORD_BYTES]) -> i32 {
        let (table, session) = self.both();
        // SAFETY: a record of the definition, whose text lives on.
        unsafe { rrd_row_insert(table, session, record.as_ptr(), RRD_INSERT_FAIL, None) }
    }

    fn seek(&mut self, seek: RrdSeek, image: &[u8]) {
        let mut error = Told::new();
        let (table, session) = self.both();
        rrd_scan_open(table, session, RRD_CLUSTERING_KEY, error.out());
        let table = self.table.as_deref_mut();
        // SAFETY: the image is a slice, and there is no limit.
        unsafe { rrd_scan_seek(table, seek, image.as_ptr(), image.len(), null(), 0, false, error.out()) };
        assert_eq!(error.status(), RRD_OK, "{}", error.message());
    }

    fn next(&mut self, backward: bool, record: &mut [u8; RECORD_BYTES]) -> i32 {
        let (table, session) = self.both();
        // SAFETY: the record has the length of the definition.
        unsafe { rrd_scan_next(table, session, backward, record.as_mut_ptr(), None) }
    }

    /// The times of the rows from here on.
    fn rest(&mut self, backward: bool) -> Vec<u32> {
        let mut found = Vec::new();
        let mut record = [0; RECORD_BYTES];
        while self.next(backward, &mut record) == RRD_OK {
            // SAFETY: the record was just read.
            found.push(unsafe { seen(&record) }.1);
        }
        found
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        rrd_table_close(self.table.take());
        rrd_session_close(self.session.take());
        rrd_engine_close(self.engine.take(), None);
    }
}

#[test]
fn rows_come_back_as_they_were_written() {
    let mut t = Opened::new();
    assert_eq!(t.insert(&record(-7, 100, Some(1.5), b"first")), RRD_OK);
    assert_eq!(t.insert(&record(-7, 200, None, b"")), RRD_OK);
    let mut found = [0xEE; RECORD_BYTES];
    let image = image(-7, Some(100));
    let (table, session) = t.both();
    // SAFETY: the image is a slice, the record has the length of the definition.
    let status = unsafe { rrd_row_read(table, session, image.as_ptr(), image.len(), found.as_mut_ptr(), None) };
    // SAFETY: the record was just read.
    assert_eq!((status, unsafe { seen(&found) }), (RRD_OK, (-7, 100, Some(1.5), b"first".to_vec())));
    assert_eq!(rrd_session_commit(t.session.as_deref_mut(), None), RRD_OK);
    t.seek(RRD_SEEK_FIRST, &[]);
    assert_eq!(t.rest(false), [100, 200]);
}

#[test]
fn a_duplicate_is_reported_and_shown() {
    let mut t = Opened::new();
    assert_eq!(t.insert(&record(1, 1, None, b"")), RRD_OK);
    assert_eq!(t.insert(&record(1, 1, Some(2.0), b"new")), RRD_DUPLICATE);
    let mut refused = [0; RECORD_BYTES];
    // SAFETY: the record has the length of the definition, and is looked at before the next call.
    unsafe {
        rrd_row_duplicate(t.table.as_deref_mut(), refused.as_mut_ptr());
        assert_eq!(seen(&refused), (1, 1, Some(2.0), b"new".to_vec()));
    }
}

#[test]
fn every_way_to_seek_finds_its_rows() {
    let mut t = Opened::new();
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
    let mut t = Opened::new();
    for ts in [10, 20, 30, 40] {
        assert_eq!(t.insert(&record(1, ts, None, b"")), RRD_OK);
    }
    t.seek(RRD_SEEK_AT_OR_AFTER, &image(1, Some(30)));
    let mut record = [0; RECORD_BYTES];
    let mut next = |backward| {
        assert_eq!(t.next(backward, &mut record), RRD_OK);
        // SAFETY: the record was just read.
        unsafe { seen(&record) }.1
    };
    assert_eq!([next(false), next(true), next(true), next(false)], [30, 20, 10, 20]);
}

#[test]
fn updates_and_deletes_are_undone_by_a_mark() {
    let mut t = Opened::new();
    let (old, new) = (record(1, 1, Some(1.0), b""), record(1, 2, Some(2.0), b""));
    assert_eq!(t.insert(&old), RRD_OK);
    let (mut mark, mut error) = (place(), Told::new());
    let status = rrd_session_savepoint(t.session.as_deref_mut(), Some(&mut mark), error.out());
    let mark = answer(status, mark, &error);
    let (table, session) = t.both();
    // SAFETY: two records of the definition, without texts.
    assert_eq!(unsafe { rrd_row_update(table, session, old.as_ptr(), new.as_ptr(), None) }, RRD_OK);
    t.seek(RRD_SEEK_FIRST, &[]);
    assert_eq!(t.rest(false), [2]);
    let (table, session) = t.both();
    // SAFETY: a record of the definition, without a text.
    assert_eq!(unsafe { rrd_row_delete(table, session, new.as_ptr(), None) }, RRD_OK);
    t.seek(RRD_SEEK_FIRST, &[]);
    assert!(t.rest(false).is_empty());
    assert_eq!(rrd_session_rollback_to(t.session.as_deref_mut(), mark, None), RRD_OK);
    t.seek(RRD_SEEK_FIRST, &[]);
    assert_eq!(t.rest(false), [1]);
}

#[test]
fn null_pointers_are_errors() {
    let mut t = Opened::new();
    let mut error = Told::new();
    // SAFETY: null is allowed everywhere.
    unsafe {
        assert_eq!(rrd_engine_open(None, None, error.out()), RRD_INTERNAL);
        assert_eq!(rrd_table_create(t.engine.as_deref(), text("db/x"), None, error.out()), RRD_INTERNAL);
        let (table, session) = t.both();
        assert_eq!(rrd_row_insert(table, session, null(), RRD_INSERT_FAIL, error.out()), RRD_INTERNAL);
        assert_eq!(rrd_row_insert(None, t.session.as_deref_mut(), null(), RRD_INSERT_FAIL, error.out()), RRD_INTERNAL);
        assert_eq!(rrd_scan_next(t.table.as_deref_mut(), None, false, null_mut(), None), RRD_INTERNAL);
        assert_eq!(rrd_session_commit(None, None), RRD_INTERNAL);
        rrd_table_close(None);
        rrd_session_close(None);
        rrd_engine_counters(t.engine.as_deref(), None, null_mut());
    }
    assert!(error.message().contains("null pointer"));
}

#[test]
fn a_table_that_the_server_sees_differently_is_refused() {
    let t = Opened::new();
    let (mut fields, parts) = (fields(), [key_part(0), key_part(1)]);
    fields[2].kind = RRD_KIND_INTEGER;
    let definition = definition(&fields, &parts, &[]);
    let (engine, mut error, mut other) = (t.engine.as_deref(), Told::new(), place());
    // SAFETY: the definition's slices live until the end of the test.
    let status = unsafe { rrd_table_open(engine, text("db/t"), Some(&definition), Some(&mut other), error.out()) };
    assert_eq!(status, RRD_DEFINITION_CHANGED, "{}", error.message());
    assert!(error.message().contains("'value'"), "{}", error.message());
    // SAFETY: as above.
    let status = unsafe { rrd_table_open(engine, text("db/none"), Some(&definition), Some(&mut other), error.out()) };
    assert_eq!(status, RRD_NO_SUCH_TABLE);
}

#[test]
fn fields_that_make_no_sense_are_refused() {
    let t = Opened::new();
    let create = |fields: &[RrdField<'static>]| {
        let parts = [key_part(0), key_part(1)];
        let definition = definition(fields, &parts, &[]);
        let mut error = Told::new();
        // SAFETY: the definition's slices live until the end of the closure.
        let status = unsafe { rrd_table_create(t.engine.as_deref(), text("db/n"), Some(&definition), error.out()) };
        assert_eq!(status, RRD_INTERNAL);
        error.message()
    };
    let mut short = fields();
    (short[3].kind, short[3].length_bytes, short[3].pack_length) = (RRD_KIND_VAR_TEXT, 2, 1);
    assert!(create(&short).contains("no room for its length"));
    let mut weightless = fields();
    weightless[0].kind = RRD_KIND_FIXED_TEXT;
    (weightless[0].collation.handle, weightless[0].collation.levels) = ((&raw const A_COLLATION).cast(), 1);
    assert!(create(&weightless).contains("without weights"));
    let mut outside = fields();
    outside[2].offset = u32::MAX;
    assert!(create(&outside).contains("outside its record"));
    let mut no_null_byte = fields();
    no_null_byte[2].null_offset = RECORD_BYTES as u32;
    assert!(create(&no_null_byte).contains("outside its record"));
}

#[test]
fn key_images_that_are_cut_short_are_refused() {
    let mut t = Opened::new();
    let mut record = [0; RECORD_BYTES];
    let image = [1, 2, 3];
    let (table, session) = t.both();
    let mut error = Told::new();
    // SAFETY: the image is a slice, the record has the length of the definition.
    let status = unsafe { rrd_row_read(table, session, image.as_ptr(), image.len(), record.as_mut_ptr(), error.out()) };
    assert_eq!(status, RRD_INTERNAL);
    assert!(error.message().contains("key image"), "{}", error.message());
}

#[test]
fn options_reach_the_store_or_are_refused_with_their_name() {
    let t = Opened::new();
    let (fields, parts) = (fields(), [key_part(0), key_part(1)]);
    let create = |name: &'static str, value: &'static str| {
        let options = [RrdOption { name: text(name), value: text(value) }];
        let definition = definition(&fields, &parts, &options);
        let mut error = Told::new();
        // SAFETY: the definition's slices live until the end of the closure.
        let status = unsafe { rrd_table_create(t.engine.as_deref(), text("db/o"), Some(&definition), error.out()) };
        (status, error.message())
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
    // SAFETY: the function takes a string as context.
    unsafe { rrd_engine_report(t.engine.as_deref(), Some(collect), (&raw mut report).cast()) };
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

unsafe extern "C" fn count_cells(context: *mut c_void, cells: *const RrdCell<'_>, count: usize) -> bool {
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
        let columns = (0..).take_while(|&n| rrd_info_column(view, n, Some(&mut place()))).count();
        let mut seen = String::new();
        let reader = RrdInfoReader {
            context: (&raw mut seen).cast(),
            wanted: Some(wanted),
            row: Some(count_cells),
            problem: Some(collect),
            killed: Some(never),
        };
        let (engine, mut error) = (t.engine.as_deref(), Told::new());
        // SAFETY: the functions take a string as context.
        let status = unsafe { rrd_info_read(engine, view, true, Some(&reader), error.out()) };
        assert_eq!(status, RRD_OK, "{}", error.message());
        let rows: Vec<_> = seen.split_terminator(';').collect();
        // The table has no segment yet; of several rows the first one was enough.
        assert_eq!(rows.len(), usize::from(view != RRD_VIEW_SEGMENTS), "{seen}");
        rows.iter().for_each(|row| assert_eq!(row.split(',').count(), columns, "{row}"));
        let nobody = RrdInfoReader { row: None, ..reader };
        // SAFETY: as above.
        assert_eq!(unsafe { rrd_info_read(engine, view, true, Some(&nobody), error.out()) }, RRD_INTERNAL);
    }
}
