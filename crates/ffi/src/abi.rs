//! The structs and numbers that both sides of the ABI agree on.
//!
//! Everything here is `#[repr(C)]`; cbindgen writes it to `include/rrd.h`. The size of each struct is asserted here and in the
//! handler.
//!
//! # The contract
//! The caller, which is the handler in C++, keeps these rules. Each export names those that it needs in its Safety section, and each
//! unsafe block the one that it rests on. Where a rule fits a Rust type, the parameter has that type: `Option<&T>` and `Option<&mut T>`
//! are pointers that may be null. Null is always allowed: it gives `RRD_INTERNAL`, unless the function says what it means.
//!
//! - `handles`: a handle comes from the function that opens it, and is not used again once it was given to the function that closes
//!   it. Tables, sessions, answers, ALTERs and backups are closed before their engine. Any thread may call with the engine, and with
//!   any handle that the export takes as `const`. With the others one thread calls at a time; it may be another one each time, when a
//!   lock of the server lies between the calls. A handle is not used in a callback of a call with that same handle.
//! - `answers`: a place for an answer or an error is aligned memory of its type, which nothing else is in, until the call ends. It need
//!   not be initialised; an answer is written on success only, an error on failure only. A place that is read too says so.
//! - `arrays`: a pointer with a count is to as many initialised values in one piece of memory, and pointers in them keep the same rule.
//!   Nobody changes any of it before the call ends. Values in conditions are as long as their field in a record.
//! - `texts`: a text's pointer is null or to as many bytes as its length says, which nobody changes before the call ends.
//! - `records`: a record has as many bytes as the `record_bytes` of the definition that its table was opened with (that its ALTER was
//!   begun with). The pointer of a blob in a record that is only read is null or valid for the length beside it. Nobody else writes to
//!   a record before the call ends, and one that is written to is not in the same memory as another argument.
//! - `images`: a key image has as many bytes as the length that comes with it, and nobody changes it before the call ends.
//! - `callbacks`: a function may be called with the context beside it until the call ends, on the calling thread. It throws nothing. Where
//!   an export keeps a function for longer, or calls it on other threads, it says so.
//! - `collations`: the handle and the function of a collation stay valid until the server ends, and any thread may call the function.

use std::ffi::{c_char, c_void};
use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize};

use rrd_store::auto_increment::Series;

/// It worked.
pub const RRD_OK: i32 = 0;
/// No further row.
pub const RRD_END: i32 = 1;
/// No row with that key.
pub const RRD_NOT_FOUND: i32 = 2;
/// A row with the key exists; `RrdError::index` names the index.
pub const RRD_DUPLICATE: i32 = 3;
/// Another transaction came first, or a deadlock: the transaction is to be rolled back.
pub const RRD_CONFLICT: i32 = 4;
/// A row lock was not to be had in time.
pub const RRD_LOCK_TIMEOUT: i32 = 5;
/// The statement was killed.
pub const RRD_INTERRUPTED: i32 = 6;
/// No such table.
pub const RRD_NO_SUCH_TABLE: i32 = 7;
/// The name is taken.
pub const RRD_TABLE_EXISTS: i32 = 8;
/// Bytes on disk are not what was written.
pub const RRD_CORRUPTION: i32 = 9;
/// A file of a newer format.
pub const RRD_INCOMPATIBLE: i32 = 10;
/// The disk or the quota is full.
pub const RRD_DISK_FULL: i32 = 11;
/// The file system refused something else.
pub const RRD_IO: i32 = 12;
/// The request makes no sense; the text says why.
pub const RRD_INVALID: i32 = 13;
/// Something is over its limit.
pub const RRD_LIMIT: i32 = 14;
/// Another server has the data folder.
pub const RRD_LOCKED: i32 = 15;
/// The engine is read-only after an earlier failure.
pub const RRD_READ_ONLY: i32 = 16;
/// An error of ours: a panic or a null pointer.
pub const RRD_INTERNAL: i32 = 17;
/// The server's idea of the table is not the engine's.
pub const RRD_DEFINITION_CHANGED: i32 = 18;
/// The engine does not do what was asked for.
pub const RRD_UNSUPPORTED: i32 = 19;
/// An ALTER TABLE that changes stored rows: the server has to copy the table; the text says why.
pub const RRD_NEEDS_COPY: i32 = 20;
/// Row locks take all the memory that they may.
pub const RRD_LOCK_MEMORY: i32 = 21;
/// A prepared transaction has writes to the table, and was not decided in time.
pub const RRD_PREPARED: i32 = 22;
/// The system has no more memory.
pub const RRD_OUT_OF_MEMORY: i32 = 23;

/// Bytes that `rrd_row_text` may write for a column: a number and its length.
pub const RRD_TEXT_BYTES: usize = 1 + 40;
/// Bytes of an error text, its final zero included.
pub const RRD_MESSAGE_BYTES: usize = 1016;

/// What went wrong; owned by the caller, filled by the call that fails.
#[repr(C)]
pub struct RrdError {
    /// One of the status numbers.
    pub status: i32,
    /// For `RRD_DUPLICATE`: 0 is the clustering key, n the n-th secondary index.
    pub index: u32,
    /// For people; ends with a zero byte.
    pub message: [c_char; RRD_MESSAGE_BYTES],
}

/// A text that is not zero-terminated. A null pointer means "none".
///
/// Its fields are private: a text is made from a slice that outlives it, or by the other side, which keeps the rule `texts`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct RrdText<'a> {
    /// First byte.
    data: *const c_char,
    /// Bytes.
    length: usize,
    bytes: PhantomData<&'a [u8]>,
}

/// AUTO_INCREMENT values: `offset`, `offset + step`, ... up to `max`, the largest that the column holds.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct RrdSeries {
    /// The first.
    pub offset: u64,
    /// From one to the next.
    pub step: u64,
    /// The largest.
    pub max: u64,
}

impl From<RrdSeries> for Series {
    fn from(series: RrdSeries) -> Series {
        Series { offset: series.offset, step: series.step, max: series.max }
    }
}

/// `NAME='value'` of a table or a column.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct RrdOption<'a> {
    /// Its name in capitals.
    pub name: RrdText<'a>,
    /// As the user wrote it.
    pub value: RrdText<'a>,
}

/// How a field's value lies in a record.
pub type RrdKind = u8;
/// Little-endian integer of `pack_length` bytes (`is_signed` says which).
pub const RRD_KIND_INTEGER: RrdKind = 0;
/// Big-endian bytes whose order is the value's (packed temporals, decimals, bits).
pub const RRD_KIND_BIG_ENDIAN: RrdKind = 1;
/// 4-byte float.
pub const RRD_KIND_FLOAT: RrdKind = 2;
/// 8-byte float.
pub const RRD_KIND_DOUBLE: RrdKind = 3;
/// `pack_length` bytes, filled up with the collation's pad character.
pub const RRD_KIND_FIXED_TEXT: RrdKind = 4;
/// `length_bytes` of length, then the bytes.
pub const RRD_KIND_VAR_TEXT: RrdKind = 5;
/// `length_bytes` of length, then a pointer.
pub const RRD_KIND_BLOB: RrdKind = 6;

/// A number of a record that is sent as text.
#[repr(C)]
pub struct RrdTextColumn<'a> {
    /// Its bytes in the record.
    pub value: *const u8,
    /// The byte that says whether it is NULL; null if it never is.
    pub null_byte: Option<&'a u8>,
    /// The bit of it.
    pub null_bit: u8,
    /// [`RRD_KIND_INTEGER`] or [`RRD_KIND_DOUBLE`].
    pub kind: RrdKind,
    /// Signed integer.
    pub is_signed: u8,
    /// Bytes of the value: 1, 2, 3, 4 or 8, of a double 8.
    pub pack_length: u8,
}

/// What a field may serve as when a time column is looked for.
pub type RrdTimeKind = u8;
/// Not a time.
pub const RRD_TIME_NONE: RrdTimeKind = 0;
/// An integer, in `TIME_UNIT`.
pub const RRD_TIME_INTEGER: RrdTimeKind = 1;
/// TIMESTAMP in the packed format.
pub const RRD_TIME_TIMESTAMP: RrdTimeKind = 2;
/// DATETIME in the packed format.
pub const RRD_TIME_DATETIME: RrdTimeKind = 3;
/// A temporal type of the format before MySQL 5.6, which cannot be a time column.
pub const RRD_TIME_OLD_FORMAT: RrdTimeKind = 4;

/// Weight levels of a collation at most.
pub const RRD_MAX_LEVELS: usize = 6;

/// The weight of one space on one level.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct RrdWeight {
    /// Bytes used; 0 if a space weighs nothing.
    pub length: u8,
    /// The bytes.
    pub bytes: [u8; 7],
}

/// Writes the weights of a text on one level, or on all (`level` = 255; trailing spaces are cut before), to `out`;
/// returns their bytes. `max_chars` 0 means all of the text. What does not fit is cut off.
pub type RrdWeightsFn = Option<
    unsafe extern "C" fn(
        collation: *const c_void,
        level: u32,
        text: *const u8,
        length: usize,
        max_chars: u32,
        out: *mut u8,
        capacity: usize,
    ) -> usize,
>;

/// A collation, as far as the store's keys need it. Must outlive the table handle.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct RrdCollation {
    /// Given back to `weights`; null for binary strings.
    pub handle: *const c_void,
    /// The weights of a text.
    pub weights: RrdWeightsFn,
    /// Spaces at the end do not count.
    pub pad_space: u8,
    /// Levels, or 255 when the weights of all levels come at once.
    pub levels: u8,
    /// Bytes of the pad character (1 to 4).
    pub pad_length: u8,
    /// Keeps the layout the same everywhere.
    pub reserved: u8,
    /// The pad character of CHAR and BINARY.
    pub pad: [u8; 4],
    /// A space on each level.
    pub space: [RrdWeight; RRD_MAX_LEVELS],
}

// SAFETY: the handle is never followed here: it goes to `weights` only, and by the rule `collations` any thread may call that, until the
// server ends.
unsafe impl Send for RrdCollation {}
// SAFETY: as for `Send`: several threads may call `weights` with the handle at the same time, and nothing here changes.
unsafe impl Sync for RrdCollation {}

/// A pointer to bytes, in memory that both sides of the ABI write to. The header has a plain pointer.
///
/// cbindgen:ignore
pub type SharedPointer = AtomicPtr<u8>;

/// Records of the rows that a scan comes to next, made ahead. The caller may copy them itself, without a call: as long as
/// `next` is not `end` it copies one and moves `next` on, and the scan stands on what was copied last.
///
/// The caller reads and writes it between its calls for the table, so the two sides take turns, and relaxed loads and stores
/// are enough here: they cost what plain ones do.
#[repr(C)]
#[derive(Default)]
pub struct RrdAhead {
    /// The next record.
    pub next: SharedPointer,
    /// Behind the last one.
    pub end: SharedPointer,
    /// Bytes of a record.
    pub length: AtomicUsize,
    /// Which way the scan goes.
    pub is_backward: AtomicBool,
    /// The first of them.
    pub begin: SharedPointer,
}

/// One stored column of a table.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct RrdField<'a> {
    /// SQL name.
    pub name: RrdText<'a>,
    /// SQL type as CREATE TABLE has it.
    pub sql_type: RrdText<'a>,
    /// Its number in the server's table.
    pub number: u32,
    /// Offset of the value in a record.
    pub offset: u32,
    /// Offset of the byte with its null bit.
    pub null_offset: u32,
    /// Bytes in a record.
    pub pack_length: u32,
    /// The null bit; 0 for NOT NULL.
    pub null_mask: u8,
    /// How the value lies there.
    pub kind: RrdKind,
    /// Bytes of the length of a var text or a blob.
    pub length_bytes: u8,
    /// Signed integer.
    pub is_signed: u8,
    /// What it may serve as on the time axis.
    pub time_kind: RrdTimeKind,
    /// Fraction digits of a temporal type or a DECIMAL.
    pub fraction_digits: u8,
    /// AUTO_INCREMENT.
    pub is_auto_increment: u8,
    /// Digits of a DECIMAL; 0 for any other type.
    pub decimal_precision: u8,
    /// For texts and byte strings.
    pub collation: RrdCollation,
    /// Options of the column.
    pub options: *const RrdOption<'a>,
    /// How many.
    pub option_count: usize,
}

/// One part of a key.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct RrdKeyPart {
    /// Position in `RrdTableDefinition::fields`.
    pub field: u32,
    /// Bytes of the value in a key image, without null byte and length.
    pub length: u32,
    /// Characters (bytes of binary strings) at most.
    pub max_chars: u32,
    /// Whether a null byte comes first in a key image.
    pub has_null_byte: u8,
    /// Whether a 2-byte length precedes the value in a key image.
    pub is_variable: u8,
    /// Whether greater values come first.
    pub is_descending: u8,
    /// Whether the value may have more characters than count.
    pub is_prefix: u8,
}

/// A secondary index.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct RrdIndex<'a> {
    /// SQL name.
    pub name: RrdText<'a>,
    /// Its parts.
    pub parts: *const RrdKeyPart,
    /// How many.
    pub part_count: usize,
    /// UNIQUE.
    pub is_unique: u8,
    /// Keeps the layout the same everywhere.
    pub reserved: [u8; 7],
}

/// What the server knows of a table.
#[repr(C)]
pub struct RrdTableDefinition<'a> {
    /// The stored fields, in record order.
    pub fields: *const RrdField<'a>,
    /// How many.
    pub field_count: usize,
    /// The parts of the key to cluster on.
    pub key_parts: *const RrdKeyPart,
    /// How many; 0 for a table without a usable key.
    pub key_part_count: usize,
    /// The other keys, in the server's order.
    pub indexes: *const RrdIndex<'a>,
    /// How many.
    pub index_count: usize,
    /// Bytes of a record.
    pub record_bytes: usize,
    /// A record of default values: what lies under a NULL, which the server compares too.
    pub default_record: *const u8,
    /// Options of the table; used by `rrd_table_create` only.
    pub options: *const RrdOption<'a>,
    /// How many.
    pub option_count: usize,
}

/// Figures of a table.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct RrdTableStats {
    /// Rows, roughly.
    pub rows: u64,
    /// Bytes on disk.
    pub data_bytes: u64,
    /// Bytes in memory.
    pub memtable_bytes: u64,
    /// Files with rows.
    pub segments: u64,
    /// Mean bytes of a row in memory.
    pub mean_row_bytes: u64,
    /// Bytes of secondary indexes on disk.
    pub index_bytes: u64,
    /// The next AUTO_INCREMENT value.
    pub next_auto_increment: u64,
    /// When rows were last committed since the start of the server, in seconds since 1970; 0: not yet.
    pub update_time: i64,
}

/// Settings of the engine.
#[repr(C)]
pub struct RrdConfig<'a> {
    /// The data folder.
    pub directory: RrdText<'a>,
    /// Bytes of all memtables together.
    pub memtable_bytes: u64,
    /// Bytes of decoded blocks kept.
    pub cache_bytes: u64,
    /// 0, 1, 2 as `rrd_flush_log_at_trx_commit`.
    pub flush_log: u32,
    /// Keeps the layout the same everywhere.
    pub reserved: u32,
}

/// Whether the statement of this connection was killed; non-zero if so.
pub type RrdKilledFn = Option<unsafe extern "C" fn(connection: *mut c_void) -> i32>;

/// A second of a time zone.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct RrdLocalTime {
    /// As in a calendar.
    pub year: u32,
    /// From 1.
    pub month: u32,
    /// From 1.
    pub day: u32,
    /// From 0.
    pub hour: u32,
    /// From 0.
    pub minute: u32,
    /// From 0.
    pub second: u32,
}

/// Says what a second since 1970 is in the time zone of this connection.
pub type RrdLocalTimeFn = Option<unsafe extern "C" fn(connection: *mut c_void, seconds: i64, out: *mut RrdLocalTime)>;

/// Told that a connection is about to wait for a lock that another one holds.
pub type RrdWaitFn = Option<unsafe extern "C" fn(waiting: *mut c_void, holder: *mut c_void)>;

/// Told on a waiting thread that a long wait begins, and that it ended.
pub type RrdPauseFn = Option<unsafe extern "C" fn(begins: bool)>;

/// Told of progress: `done` of `total`; non-zero stops the work.
pub type RrdProgressFn = Option<unsafe extern "C" fn(context: *mut c_void, done: u64, total: u64) -> i32>;

/// Given a text: a finding of CHECK TABLE, a line of a report.
pub type RrdTextFn = Option<unsafe extern "C" fn(context: *mut c_void, text: *const c_char, length: usize)>;

/// Given one status variable.
pub type RrdCounterFn =
    Option<unsafe extern "C" fn(context: *mut c_void, name: *const c_char, length: usize, value: u64)>;

/// How a transaction reads.
pub type RrdIsolation = u32;
/// Each statement sees what was committed when it began.
pub const RRD_READ_COMMITTED: RrdIsolation = 0;
/// All statements see what was committed at the first read.
pub const RRD_REPEATABLE_READ: RrdIsolation = 1;

/// What reads do about row locks.
pub type RrdLocking = u32;
/// Nothing: they see a snapshot.
pub const RRD_LOCK_NONE: RrdLocking = 0;
/// Each row is locked shared.
pub const RRD_LOCK_SHARED: RrdLocking = 1;
/// Each row is locked for this transaction alone.
pub const RRD_LOCK_EXCLUSIVE: RrdLocking = 2;

/// What becomes of an insert whose key exists, or is taken by another transaction before the commit.
pub type RrdInsert = u32;
/// INSERT: an error.
pub const RRD_INSERT_FAIL: RrdInsert = 0;
/// INSERT IGNORE: reported; left out at commit.
pub const RRD_INSERT_IGNORE: RrdInsert = 1;
/// REPLACE: reported; replaces the other row at commit.
pub const RRD_INSERT_REPLACE: RrdInsert = 2;
/// ON DUPLICATE KEY UPDATE: reported; the key is locked.
pub const RRD_INSERT_UPDATE: RrdInsert = 3;

/// The clustering key, where the number of a secondary index (in `RrdTableDefinition::indexes`) may stand.
pub const RRD_CLUSTERING_KEY: u32 = u32::MAX;

/// Where a scan begins, seen from a key image (or a leading part of one).
pub type RrdSeek = u32;
/// At the first row with this key; the scan ends with the last such row.
pub const RRD_SEEK_EXACT: RrdSeek = 0;
/// At the first row with this key or a greater one.
pub const RRD_SEEK_AT_OR_AFTER: RrdSeek = 1;
/// At the first row with a greater key.
pub const RRD_SEEK_AFTER: RrdSeek = 2;
/// Backwards, at the last row with this key or a smaller one.
pub const RRD_SEEK_AT_OR_BEFORE: RrdSeek = 3;
/// Backwards, at the last row with a smaller key.
pub const RRD_SEEK_BEFORE: RrdSeek = 4;
/// Backwards, at the last row with this key; the scan ends with the first such row.
pub const RRD_SEEK_LAST: RrdSeek = 5;
/// At the first row of the table; the key is ignored.
pub const RRD_SEEK_FIRST: RrdSeek = 6;
/// Backwards, at the last row of the table; the key is ignored.
pub const RRD_SEEK_END: RrdSeek = 7;

const _: () = {
    assert!(size_of::<RrdError>() == 1024);
    assert!(size_of::<RrdText>() == 16);
    assert!(size_of::<RrdLocalTime>() == 24);
    assert!(size_of::<RrdOption>() == 32);
    assert!(size_of::<RrdCollation>() == 72);
    assert!(size_of::<RrdField>() == 144);
    assert!(size_of::<RrdKeyPart>() == 16);
    assert!(size_of::<RrdIndex>() == 40);
    assert!(size_of::<RrdTableDefinition>() == 80);
    assert!(size_of::<RrdTableStats>() == 64);
    assert!(size_of::<RrdConfig>() == 40);
    assert!(size_of::<RrdAhead>() == 40);
};

impl<'a> RrdText<'a> {
    /// No text.
    pub const NONE: RrdText<'static> = RrdText { data: std::ptr::null(), length: 0, bytes: PhantomData };

    /// A text of ours.
    pub fn of(text: &'a str) -> RrdText<'a> {
        RrdText { data: text.as_ptr().cast(), length: text.len(), bytes: PhantomData }
    }

    /// Its bytes; `None` for none.
    pub fn bytes(self) -> Option<&'a [u8]> {
        if self.data.is_null() || self.length > isize::MAX as usize {
            return None;
        }
        // SAFETY: the pointer is not null and the length possible: checked above. The bytes are those of the slice that the text
        // was made of, or the other side's, which by the rule `texts` keeps them until the call ends; `'a` ends with it, as no export
        // can name a longer one.
        Some(unsafe { std::slice::from_raw_parts(self.data.cast(), self.length) })
    }
}

/// What tells a function of the caller's how far some work is; false to stop.
///
/// # Safety
/// Both are of one call, which keeps the rule `callbacks` for them, and what is returned is not used after the call.
pub unsafe fn progress_to(function: RrdProgressFn, context: *mut c_void) -> impl FnMut(u64, u64) -> bool {
    // SAFETY: by the rule `callbacks`. The closure holds a pointer, so it cannot leave the calling thread.
    move |done, total| function.is_none_or(|function| unsafe { function(context, done, total) == 0 })
}

/// What gives texts to a function of the caller's.
///
/// # Safety
/// As for [`progress_to`].
pub unsafe fn texts_to(function: RrdTextFn, context: *mut c_void) -> impl FnMut(&[u8]) {
    move |text| {
        if let Some(function) = function {
            // SAFETY: by the rule `callbacks`, on the calling thread as the closure holds a pointer. The text is a slice that lives
            // until the function returns.
            unsafe { function(context, text.as_ptr().cast(), text.len()) };
        }
    }
}
