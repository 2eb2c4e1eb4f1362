//! C functions for whoever looks after a server: INFORMATION_SCHEMA, status, messages for the error log.

use std::ffi::{c_char, c_void};
use std::mem::MaybeUninit;
use std::sync::Arc;

use crate::abi::{RrdCounterFn, RrdError, RrdText, RrdTextFn, texts_to};
use crate::export_engine::RrdEngine;
use crate::guard::{get, guard, guard_value, put};
use crate::info::{self, COLUMNS, Cell, InfoColumn, Kind, LOCK_WAITS, Listener, SEGMENTS, TABLES, TIERS};
use crate::lock_waits::wait_rows;
use crate::log::{self, Severity};
use crate::status::{Failure, Outcome};
use crate::status_text;

/// A table of INFORMATION_SCHEMA.
pub type RrdView = u32;
/// RRD_TABLES.
pub const RRD_VIEW_TABLES: RrdView = 0;
/// RRD_SEGMENTS.
pub const RRD_VIEW_SEGMENTS: RrdView = 1;
/// RRD_COLUMNS.
pub const RRD_VIEW_COLUMNS: RrdView = 2;
/// RRD_TIERS.
pub const RRD_VIEW_TIERS: RrdView = 3;
/// RRD_LOCK_WAITS.
pub const RRD_VIEW_LOCK_WAITS: RrdView = 4;

/// What a cell or a column holds.
pub type RrdCellKind = u8;
/// NULL.
pub const RRD_CELL_NULL: RrdCellKind = 0;
/// An unsigned number.
pub const RRD_CELL_UNSIGNED: RrdCellKind = 1;
/// A double-precision number, its bits in `number`.
pub const RRD_CELL_DOUBLE: RrdCellKind = 2;
/// A text.
pub const RRD_CELL_TEXT: RrdCellKind = 3;
/// Microseconds since 1970, for a text column: to be shown in the session's time zone.
pub const RRD_CELL_TIMESTAMP: RrdCellKind = 4;

/// The column may be NULL.
pub const RRD_INFO_NULLABLE: u8 = 1;
/// The column takes time to find out; it is NULL unless asked for.
pub const RRD_INFO_COSTLY: u8 = 2;
/// The column shows values of rows.
pub const RRD_INFO_ROW_VALUE: u8 = 4;
/// The column names a column of the table.
pub const RRD_INFO_COLUMN_NAME: u8 = 8;
/// The text goes on the table's name: `$30m` stands for `t$30m`.
pub const RRD_INFO_OF_TABLE: u8 = 16;
/// The number is that of a connection. Without the PROCESS privilege users see rows of their own connection only.
pub const RRD_INFO_CONNECTION: u8 = 32;

/// A column of a table of INFORMATION_SCHEMA.
#[repr(C)]
pub struct RrdInfoColumn {
    /// Its name, zero-terminated, for ever.
    pub name: *const c_char,
    /// Characters of a text.
    pub length: u32,
    /// What it holds.
    pub kind: RrdCellKind,
    /// The `RRD_INFO_` flags.
    pub flags: u8,
    /// Keeps the layout the same everywhere.
    pub reserved: u16,
}

/// A value; its text lives until the call of `row` returns.
#[repr(C)]
pub struct RrdCell<'a> {
    /// A number.
    pub number: u64,
    /// A text.
    pub text: RrdText<'a>,
    /// Which of them.
    pub kind: RrdCellKind,
    /// Fraction digits of a timestamp.
    pub digits: u8,
    /// Keeps the layout the same everywhere.
    pub reserved: [u8; 6],
}

/// Whoever reads a table of INFORMATION_SCHEMA. No function may be null.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct RrdInfoReader {
    /// Given to each function.
    pub context: *mut c_void,
    /// Whether rows about this table, by the engine's name, are wanted. Rows that follow are about it, until it is
    /// called again.
    pub wanted: Option<unsafe extern "C" fn(context: *mut c_void, name: *const c_char, length: usize) -> bool>,
    /// Takes a row; true to stop.
    pub row: Option<unsafe extern "C" fn(context: *mut c_void, cells: *const RrdCell, count: usize) -> bool>,
    /// Told what could not be read.
    pub problem: RrdTextFn,
    /// Whether the statement was killed.
    pub killed: Option<unsafe extern "C" fn(context: *mut c_void) -> bool>,
}

/// How grave a message is.
pub type RrdSeverity = u32;
/// Something is broken.
pub const RRD_SEVERITY_ERROR: RrdSeverity = 0;
/// Something should be looked at.
pub const RRD_SEVERITY_WARNING: RrdSeverity = 1;
/// Good to know.
pub const RRD_SEVERITY_NOTE: RrdSeverity = 2;

/// Writes a message of the engine to the server's error log; called from any thread.
pub type RrdLogFn = Option<unsafe extern "C" fn(severity: RrdSeverity, text: *const c_char, length: usize)>;

const _: () = {
    assert!(size_of::<RrdInfoColumn>() == 16);
    assert!(size_of::<RrdCell>() == 32);
    assert!(size_of::<RrdInfoReader>() == 40);
};

/// Describes the `number`-th column of a view; false behind the last one.
///
/// # Safety
/// Rule `answers` of `abi.rs`.
#[unsafe(no_mangle)]
pub extern "C" fn rrd_info_column(view: RrdView, number: usize, out: Option<&mut MaybeUninit<RrdInfoColumn>>) -> bool {
    guard_value(false, || {
        let described = match view {
            RRD_VIEW_TABLES => describe(TABLES, number),
            RRD_VIEW_SEGMENTS => describe(SEGMENTS, number),
            RRD_VIEW_TIERS => describe(TIERS, number),
            RRD_VIEW_LOCK_WAITS => describe(LOCK_WAITS, number),
            _ => describe(COLUMNS, number),
        };
        Ok(described.is_some_and(|described| put(out, described).is_ok()))
    })
}

fn describe<R>(columns: &[InfoColumn<R>], number: usize) -> Option<RrdInfoColumn> {
    let column = columns.get(number)?;
    let (kind, length) = match column.kind {
        Kind::Unsigned => (RRD_CELL_UNSIGNED, 0),
        Kind::Double => (RRD_CELL_DOUBLE, 0),
        Kind::Text(length) => (RRD_CELL_TEXT, length),
    };
    Some(RrdInfoColumn { name: column.name.as_ptr(), length, kind, flags: column.flags, reserved: 0 })
}

/// Reads a view. Costly columns are NULL unless `wants_costly`.
///
/// # Safety
/// Rules `handles`, `answers`, `arrays` and `callbacks` of `abi.rs`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_info_read(
    engine: Option<&RrdEngine>,
    view: RrdView,
    wants_costly: bool,
    reader: Option<&RrdInfoReader>,
    error: Option<&mut MaybeUninit<RrdError>>,
) -> i32 {
    guard(error, || {
        // SAFETY: rule `callbacks`; it is used before the call ends.
        let reader = unsafe { Reader::new(*get(reader)?)? };
        let of_server = get(engine)?;
        let engine = &of_server.engine;
        let waits = if view == RRD_VIEW_LOCK_WAITS { engine.lock_waits() } else { Vec::new() };
        for table in info::tables(engine, |_| true) {
            if view == RRD_VIEW_LOCK_WAITS && !waits.iter().any(|wait| Arc::ptr_eq(&wait.table, &table)) {
                continue;
            }
            if reader.is_killed() {
                break;
            }
            if !reader.wants(&table.name()) {
                continue;
            }
            let mut listener = Listener { problem: &mut |text| reader.tell(&text), stop: &|| reader.is_killed() };
            let go_on = match view {
                RRD_VIEW_TABLES => reader.give(TABLES, &[info::table_row(engine, &table, wants_costly)]),
                RRD_VIEW_LOCK_WAITS => {
                    let rows = wait_rows(&waits, &table, &of_server.connections, &of_server.formats);
                    reader.give(LOCK_WAITS, &rows)
                }
                RRD_VIEW_TIERS => reader.give(TIERS, &info::tier_rows(&table, wants_costly)),
                RRD_VIEW_SEGMENTS => reader.give(SEGMENTS, &info::segment_rows(&table, wants_costly, &mut listener)),
                _ => reader.give(COLUMNS, &info::column_rows(&table, wants_costly, &mut listener)),
            };
            if !go_on {
                break;
            }
        }
        Ok(())
    })
}

/// A reader whose functions are there, and may be called as long as it lives.
struct Reader {
    context: *mut c_void,
    wanted: unsafe extern "C" fn(*mut c_void, *const c_char, usize) -> bool,
    row: unsafe extern "C" fn(*mut c_void, *const RrdCell, usize) -> bool,
    problem: unsafe extern "C" fn(*mut c_void, *const c_char, usize),
    killed: unsafe extern "C" fn(*mut c_void) -> bool,
}

impl Reader {
    /// # Safety
    /// The rule `callbacks` for each function; the reader is gone when the call ends.
    unsafe fn new(raw: RrdInfoReader) -> Outcome<Reader> {
        let RrdInfoReader { context, wanted, row, problem, killed } = raw;
        match (wanted, row, problem, killed) {
            (Some(wanted), Some(row), Some(problem), Some(killed)) => {
                Ok(Reader { context, wanted, row, problem, killed })
            }
            _ => Err(Failure::internal("internal error: a reader without functions")),
        }
    }

    fn wants(&self, name: &str) -> bool {
        // SAFETY: `Reader::new` was promised that it may be called, on this thread as a reader cannot leave it. The name lives until it
        // returns.
        unsafe { (self.wanted)(self.context, name.as_ptr().cast(), name.len()) }
    }

    fn tell(&self, text: &str) {
        // SAFETY: as in `wants`, for this function and text.
        unsafe { (self.problem)(self.context, text.as_ptr().cast(), text.len()) }
    }

    fn is_killed(&self) -> bool {
        // SAFETY: as in `wants`, for this function.
        unsafe { (self.killed)(self.context) }
    }

    /// False when the reader has enough.
    fn give<R>(&self, columns: &[InfoColumn<R>], rows: &[R]) -> bool {
        rows.iter().all(|row| {
            let cells = info::cells(columns, row);
            let raw: Vec<RrdCell> = cells.iter().map(raw_cell).collect();
            // SAFETY: as in `wants`, for this function; the cells, and the texts in `cells` that they point to, live until it returns.
            !unsafe { (self.row)(self.context, raw.as_ptr(), raw.len()) }
        })
    }
}

fn raw_cell(cell: &Cell) -> RrdCell<'_> {
    let none = RrdText::NONE;
    let (kind, number, text, digits) = match cell {
        Cell::Null => (RRD_CELL_NULL, 0, none, 0),
        Cell::Unsigned(number) => (RRD_CELL_UNSIGNED, *number, none, 0),
        Cell::Double(value) => (RRD_CELL_DOUBLE, value.to_bits(), none, 0),
        Cell::Text(text) => (RRD_CELL_TEXT, 0, RrdText::of(text), 0),
        Cell::Timestamp(micros, digits) => (RRD_CELL_TIMESTAMP, *micros, none, *digits),
    };
    RrdCell { number, text, kind, digits, reserved: [0; 6] }
}

/// Calls `counter` with each status variable.
///
/// # Safety
/// Rules `handles` and `callbacks` of `abi.rs`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_engine_counters(engine: Option<&RrdEngine>, counter: RrdCounterFn, context: *mut c_void) {
    guard_value((), || {
        let Some(counter) = counter else { return Ok(()) };
        for (name, value) in get(engine)?.engine.counters() {
            // SAFETY: rule `callbacks`; the name lives until it returns.
            unsafe { counter(context, name.as_ptr().cast(), name.len(), value) };
        }
        Ok(())
    });
}

/// Calls `text` once with the report of SHOW ENGINE RRD STATUS. Works on an engine that stopped, too.
///
/// # Safety
/// Rules `handles` and `callbacks` of `abi.rs`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_engine_report(engine: Option<&RrdEngine>, text: RrdTextFn, context: *mut c_void) {
    let mut report = String::new();
    crate::guard::guard_close(|| {
        if let Some(handle) = engine {
            report = status_text::report(&handle.engine, &handle.connections);
        }
    });
    // SAFETY: rule `callbacks`; it is used before the call ends.
    let mut tell = unsafe { texts_to(text, context) };
    tell(report.as_bytes());
}

/// From now on messages of the engine go to `log`; to nobody with null. When it returns nobody is in the function
/// that was given before.
///
/// # Safety
/// `log` is null, or any thread may call it until this function returns from a call with another one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_log_to(log: RrdLogFn) {
    crate::guard::guard_close(|| match log {
        None => log::disconnect(),
        Some(write) => log::connect(Box::new(move |severity, line| {
            let severity = match severity {
                Severity::Error => RRD_SEVERITY_ERROR,
                Severity::Warning => RRD_SEVERITY_WARNING,
                Severity::Note => RRD_SEVERITY_NOTE,
            };
            // SAFETY: the caller lets any thread call it until it gives another one; `log::connect` and `log::disconnect` return when
            // nobody is in this closure. The line lives until it returns.
            unsafe { write(severity, line.as_ptr().cast(), line.len()) };
        })),
    });
}
