/* The C ABI of the RRD storage engine. Generated from crates/ffi/src; do not edit.
   RRD_WRITE_HEADER=1 cargo test -p rrd-ffi --test header  writes it.

   The Safety section of a function names the rules that its caller keeps: abi.rs has them. */

#ifndef RRD_H
#define RRD_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

// It worked.
#define RRD_OK 0

// No further row.
#define RRD_END 1

// No row with that key.
#define RRD_NOT_FOUND 2

// A row with the key exists; `RrdError::index` names the index.
#define RRD_DUPLICATE 3

// Another transaction came first, or a deadlock: the transaction is to be rolled back.
#define RRD_CONFLICT 4

// A row lock was not to be had in time.
#define RRD_LOCK_TIMEOUT 5

// The statement was killed.
#define RRD_INTERRUPTED 6

// No such table.
#define RRD_NO_SUCH_TABLE 7

// The name is taken.
#define RRD_TABLE_EXISTS 8

// Bytes on disk are not what was written.
#define RRD_CORRUPTION 9

// A file of a newer format.
#define RRD_INCOMPATIBLE 10

// The disk or the quota is full.
#define RRD_DISK_FULL 11

// The file system refused something else.
#define RRD_IO 12

// The request makes no sense; the text says why.
#define RRD_INVALID 13

// Something is over its limit.
#define RRD_LIMIT 14

// Another server has the data folder.
#define RRD_LOCKED 15

// The engine is read-only after an earlier failure.
#define RRD_READ_ONLY 16

// An error of ours: a panic or a null pointer.
#define RRD_INTERNAL 17

// The server's idea of the table is not the engine's.
#define RRD_DEFINITION_CHANGED 18

// The engine does not do what was asked for.
#define RRD_UNSUPPORTED 19

// An ALTER TABLE that changes stored rows: the server has to copy the table; the text says why.
#define RRD_NEEDS_COPY 20

// Row locks take all the memory that they may.
#define RRD_LOCK_MEMORY 21

// A prepared transaction has writes to the table, and was not decided in time.
#define RRD_PREPARED 22

// The system has no more memory.
#define RRD_OUT_OF_MEMORY 23

// Bytes that `rrd_row_text` may write for a column: a number and its length.
#define RRD_TEXT_BYTES (1 + 40)

// Bytes of an error text, its final zero included.
#define RRD_MESSAGE_BYTES 1016

// Weight levels of a collation at most.
#define RRD_MAX_LEVELS 6

// The clustering key, where the number of a secondary index (in `RrdTableDefinition::indexes`) may stand.
#define RRD_CLUSTERING_KEY UINT32_MAX

// The column may be NULL.
#define RRD_INFO_NULLABLE 1

// The column takes time to find out; it is NULL unless asked for.
#define RRD_INFO_COSTLY 2

// The column shows values of rows.
#define RRD_INFO_ROW_VALUE 4

// The column names a column of the table.
#define RRD_INFO_COLUMN_NAME 8

// The text goes on the table's name: `$30m` stands for `t$30m`.
#define RRD_INFO_OF_TABLE 16

// The number is that of a connection. Without the PROCESS privilege users see rows of their own connection only.
#define RRD_INFO_CONNECTION 32

// An answer, to be read row by row.
typedef struct RrdAggregation RrdAggregation;

// A change of a table that is not committed.
typedef struct RrdAlter RrdAlter;

// A backup whose moment is fixed.
typedef struct RrdBackup RrdBackup;

// The readings of a group.
typedef struct RrdCounter RrdCounter;

// The engine of a server.
typedef struct RrdEngine RrdEngine;

// A connection's work.
typedef struct RrdSession RrdSession;

// An open table of one handler.
typedef struct RrdTable RrdTable;

// Told on a waiting thread that a long wait begins, and that it ended.
typedef void (*RrdPauseFn)(bool begins);

// A text that is not zero-terminated. A null pointer means "none".
//
// Its fields are private: a text is made from a slice that outlives it, or by the other side, which keeps the rule `texts`.
typedef struct RrdText {
  // First byte.
  const char *data;
  // Bytes.
  size_t length;
} RrdText;

// Settings of the engine.
typedef struct RrdConfig {
  // The data folder.
  struct RrdText directory;
  // Bytes of all memtables together.
  uint64_t memtable_bytes;
  // Bytes of decoded blocks kept.
  uint64_t cache_bytes;
  // 0, 1, 2 as `rrd_flush_log_at_trx_commit`.
  uint32_t flush_log;
  // Keeps the layout the same everywhere.
  uint32_t reserved;
} RrdConfig;

// What went wrong; owned by the caller, filled by the call that fails.
typedef struct RrdError {
  // One of the status numbers.
  int32_t status;
  // For `RRD_DUPLICATE`: 0 is the clustering key, n the n-th secondary index.
  uint32_t index;
  // For people; ends with a zero byte.
  char message[RRD_MESSAGE_BYTES];
} RrdError;

// How a field's value lies in a record.
typedef uint8_t RrdKind;

// What a field may serve as when a time column is looked for.
typedef uint8_t RrdTimeKind;

// Writes the weights of a text on one level, or on all (`level` = 255; trailing spaces are cut before), to `out`;
// returns their bytes. `max_chars` 0 means all of the text. What does not fit is cut off.
typedef size_t (*RrdWeightsFn)(const void *collation,
                               uint32_t level,
                               const uint8_t *text,
                               size_t length,
                               uint32_t max_chars,
                               uint8_t *out,
                               size_t capacity);

// The weight of one space on one level.
typedef struct RrdWeight {
  // Bytes used; 0 if a space weighs nothing.
  uint8_t length;
  // The bytes.
  uint8_t bytes[7];
} RrdWeight;

// A collation, as far as the store's keys need it. Must outlive the table handle.
typedef struct RrdCollation {
  // Given back to `weights`; null for binary strings.
  const void *handle;
  // The weights of a text.
  RrdWeightsFn weights;
  // Spaces at the end do not count.
  uint8_t pad_space;
  // Levels, or 255 when the weights of all levels come at once.
  uint8_t levels;
  // Bytes of the pad character (1 to 4).
  uint8_t pad_length;
  // Keeps the layout the same everywhere.
  uint8_t reserved;
  // The pad character of CHAR and BINARY.
  uint8_t pad[4];
  // A space on each level.
  struct RrdWeight space[RRD_MAX_LEVELS];
} RrdCollation;

// `NAME='value'` of a table or a column.
typedef struct RrdOption {
  // Its name in capitals.
  struct RrdText name;
  // As the user wrote it.
  struct RrdText value;
} RrdOption;

// One stored column of a table.
typedef struct RrdField {
  // SQL name.
  struct RrdText name;
  // SQL type as CREATE TABLE has it.
  struct RrdText sql_type;
  // Its number in the server's table.
  uint32_t number;
  // Offset of the value in a record.
  uint32_t offset;
  // Offset of the byte with its null bit.
  uint32_t null_offset;
  // Bytes in a record.
  uint32_t pack_length;
  // The null bit; 0 for NOT NULL.
  uint8_t null_mask;
  // How the value lies there.
  RrdKind kind;
  // Bytes of the length of a var text or a blob.
  uint8_t length_bytes;
  // Signed integer.
  uint8_t is_signed;
  // What it may serve as on the time axis.
  RrdTimeKind time_kind;
  // Fraction digits of a temporal type or a DECIMAL.
  uint8_t fraction_digits;
  // AUTO_INCREMENT.
  uint8_t is_auto_increment;
  // Digits of a DECIMAL; 0 for any other type.
  uint8_t decimal_precision;
  // For texts and byte strings.
  struct RrdCollation collation;
  // Options of the column.
  const struct RrdOption *options;
  // How many.
  size_t option_count;
} RrdField;

// One part of a key.
typedef struct RrdKeyPart {
  // Position in `RrdTableDefinition::fields`.
  uint32_t field;
  // Bytes of the value in a key image, without null byte and length.
  uint32_t length;
  // Characters (bytes of binary strings) at most.
  uint32_t max_chars;
  // Whether a null byte comes first in a key image.
  uint8_t has_null_byte;
  // Whether a 2-byte length precedes the value in a key image.
  uint8_t is_variable;
  // Whether greater values come first.
  uint8_t is_descending;
  // Whether the value may have more characters than count.
  uint8_t is_prefix;
} RrdKeyPart;

// A secondary index.
typedef struct RrdIndex {
  // SQL name.
  struct RrdText name;
  // Its parts.
  const struct RrdKeyPart *parts;
  // How many.
  size_t part_count;
  // UNIQUE.
  uint8_t is_unique;
  // Keeps the layout the same everywhere.
  uint8_t reserved[7];
} RrdIndex;

// What the server knows of a table.
typedef struct RrdTableDefinition {
  // The stored fields, in record order.
  const struct RrdField *fields;
  // How many.
  size_t field_count;
  // The parts of the key to cluster on.
  const struct RrdKeyPart *key_parts;
  // How many; 0 for a table without a usable key.
  size_t key_part_count;
  // The other keys, in the server's order.
  const struct RrdIndex *indexes;
  // How many.
  size_t index_count;
  // Bytes of a record.
  size_t record_bytes;
  // A record of default values: what lies under a NULL, which the server compares too.
  const uint8_t *default_record;
  // Options of the table; used by `rrd_table_create` only.
  const struct RrdOption *options;
  // How many.
  size_t option_count;
} RrdTableDefinition;

// Given a text: a finding of CHECK TABLE, a line of a report.
typedef void (*RrdTextFn)(void *context, const char *text, size_t length);

// Whether the statement of this connection was killed; non-zero if so.
typedef int32_t (*RrdKilledFn)(void *connection);

// A second of a time zone.
typedef struct RrdLocalTime {
  // As in a calendar.
  uint32_t year;
  // From 1.
  uint32_t month;
  // From 1.
  uint32_t day;
  // From 0.
  uint32_t hour;
  // From 0.
  uint32_t minute;
  // From 0.
  uint32_t second;
} RrdLocalTime;

// Says what a second since 1970 is in the time zone of this connection.
typedef void (*RrdLocalTimeFn)(void *connection, int64_t seconds, struct RrdLocalTime *out);

// Is told the name of a table (as the engine has it: "database/table"), the options of its ring, how many rows were not stored,
// and whether these are all that were written.
typedef void (*RrdLossFn)(void *context, struct RrdText table, struct RrdText ring, uint64_t rows, bool is_all);

// How a transaction reads.
typedef uint32_t RrdIsolation;

// Told that a connection is about to wait for a lock that another one holds.
typedef void (*RrdWaitFn)(void *waiting, void *holder);

// Records of the rows that a scan comes to next, made ahead. The caller may copy them itself, without a call: as long as
// `next` is not `end` it copies one and moves `next` on, and the scan stands on what was copied last.
//
// The caller reads and writes it between its calls for the table, so the two sides take turns, and relaxed loads and stores
// are enough here: they cost what plain ones do.
typedef struct RrdAhead {
  // The next record.
  const uint8_t * next;
  // Behind the last one.
  const uint8_t * end;
  // Bytes of a record.
  size_t length;
  // Which way the scan goes.
  bool is_backward;
  // The first of them.
  const uint8_t * begin;
} RrdAhead;

// What reads do about row locks.
typedef uint32_t RrdLocking;

// Figures of a table.
typedef struct RrdTableStats {
  // Rows, roughly.
  uint64_t rows;
  // Bytes on disk.
  uint64_t data_bytes;
  // Bytes in memory.
  uint64_t memtable_bytes;
  // Files with rows.
  uint64_t segments;
  // Mean bytes of a row in memory.
  uint64_t mean_row_bytes;
  // Bytes of secondary indexes on disk.
  uint64_t index_bytes;
  // The next AUTO_INCREMENT value.
  uint64_t next_auto_increment;
  // When rows were last committed since the start of the server, in seconds since 1970; 0: not yet.
  int64_t update_time;
} RrdTableStats;

// AUTO_INCREMENT values: `offset`, `offset + step`, ... up to `max`, the largest that the column holds.
typedef struct RrdSeries {
  // The first.
  uint64_t offset;
  // From one to the next.
  uint64_t step;
  // The largest.
  uint64_t max;
} RrdSeries;

// Told of progress: `done` of `total`; non-zero stops the work.
typedef int32_t (*RrdProgressFn)(void *context, uint64_t done, uint64_t total);

// What becomes of an insert whose key exists, or is taken by another transaction before the commit.
typedef uint32_t RrdInsert;

// What a condition asks.
typedef uint8_t RrdTest;

// A condition on a field. For NULL none holds but `RRD_TEST_NULL`, negated or not.
typedef struct RrdCondition {
  // The server's number of the field.
  uint32_t field;
  // What is asked.
  RrdTest test;
  // It holds where it would not.
  uint8_t is_negated;
  // The low end is not part of the range.
  uint8_t excludes_low;
  // The high end is not part of the range.
  uint8_t excludes_high;
  // A value as it lies in a record, or null.
  const uint8_t *low;
  // A value as it lies in a record, or null.
  const uint8_t *high;
  // Values as they lie in a record, one behind the other.
  const uint8_t *values;
  // Texts in the column's character set.
  const struct RrdText *texts;
  // How many values or texts.
  size_t count;
} RrdCondition;

// Where a scan begins, seen from a key image (or a leading part of one).
typedef uint32_t RrdSeek;

// A table of INFORMATION_SCHEMA.
typedef uint32_t RrdView;

// What a cell or a column holds.
typedef uint8_t RrdCellKind;

// A column of a table of INFORMATION_SCHEMA.
typedef struct RrdInfoColumn {
  // Its name, zero-terminated, for ever.
  const char *name;
  // Characters of a text.
  uint32_t length;
  // What it holds.
  RrdCellKind kind;
  // The `RRD_INFO_` flags.
  uint8_t flags;
  // Keeps the layout the same everywhere.
  uint16_t reserved;
} RrdInfoColumn;

// A value; its text lives until the call of `row` returns.
typedef struct RrdCell {
  // A number.
  uint64_t number;
  // A text.
  struct RrdText text;
  // Which of them.
  RrdCellKind kind;
  // Fraction digits of a timestamp.
  uint8_t digits;
  // Keeps the layout the same everywhere.
  uint8_t reserved[6];
} RrdCell;

// Whoever reads a table of INFORMATION_SCHEMA. No function may be null.
typedef struct RrdInfoReader {
  // Given to each function.
  void *context;
  // Whether rows about this table, by the engine's name, are wanted. Rows that follow are about it, until it is
  // called again.
  bool (*wanted)(void *context, const char *name, size_t length);
  // Takes a row; true to stop.
  bool (*row)(void *context, const struct RrdCell *cells, size_t count);
  // Told what could not be read.
  RrdTextFn problem;
  // Whether the statement was killed.
  bool (*killed)(void *context);
} RrdInfoReader;

// Given one status variable.
typedef void (*RrdCounterFn)(void *context, const char *name, size_t length, uint64_t value);

// How grave a message is.
typedef uint32_t RrdSeverity;

// Writes a message of the engine to the server's error log; called from any thread.
typedef void (*RrdLogFn)(RrdSeverity severity, const char *text, size_t length);

// What a backup came to.
typedef struct RrdBackupReport {
  // Tables in it.
  uint64_t tables;
  // Segments in it.
  uint64_t segments;
  // Bytes that share their disk space with the engine's own files.
  uint64_t linked_bytes;
  // Bytes that were copied, the log's too.
  uint64_t copied_bytes;
  // Number of the last commit in it.
  uint64_t last_commit;
} RrdBackupReport;

// Is told the name of a table (as the engine has it: "database/table") and of one of its tiers.
typedef void (*RrdTierFn)(void *context, struct RrdText table, struct RrdText tier);

// How wide buckets are and where they start.
typedef struct RrdBucket {
  // Length of a bucket in units of time; not used for months.
  int64_t length;
  // Start of some bucket (months: what their starts are moved by).
  int64_t offset;
  // Units of time in a second.
  int64_t per_second;
  // Months in a bucket; 0 if its length is fixed.
  uint32_t months;
  // Some bucket starts this many months after January.
  int32_t month_offset;
} RrdBucket;

// What a reading's number is.
typedef uint32_t RrdNumberKind;

// How a field groups rows.
typedef uint8_t RrdGroupKind;

// What rows are grouped by.
typedef struct RrdGroup {
  // The server's number of the field.
  uint32_t field;
  // How.
  RrdGroupKind kind;
  // Groups that differ in this alone may be one: `rrd_aggregate_put_together` is told which.
  uint8_t is_span;
  // Keeps the layout the same everywhere.
  uint8_t reserved[2];
  // Where some bucket begins: an integer as SQL has it; of dates what their packed bytes are as a number.
  int64_t origin;
  // How many values a bucket has.
  uint64_t width;
} RrdGroup;

// What is wanted of a group.
typedef uint8_t RrdAggregateKind;

// An aggregate.
typedef struct RrdAggregate {
  // The server's number of the field.
  uint32_t field;
  // Which.
  RrdAggregateKind kind;
  // Keeps the layout the same everywhere.
  uint8_t reserved[3];
} RrdAggregate;

// What the rows of the answer are sorted by; NULLs are the least.
typedef struct RrdOrder {
  // A place among the groups, or among the aggregates.
  uint32_t place;
  // Which of both.
  uint8_t is_aggregate;
  // The largest first.
  uint8_t is_descending;
  // Keeps the layout the same everywhere.
  uint8_t reserved[2];
} RrdOrder;

// A query over one table.
typedef struct RrdAggregateQuery {
  // All must hold.
  const struct RrdCondition *conditions;
  // How many.
  size_t condition_count;
  // Without, all rows are one group, which there is even of no rows.
  const struct RrdGroup *groups;
  // How many.
  size_t group_count;
  // What is wanted of each.
  const struct RrdAggregate *aggregates;
  // How many.
  size_t aggregate_count;
  // Without, groups come as a walk in key order meets them.
  const struct RrdOrder *orders;
  // How many.
  size_t order_count;
  // Threads at most; 0 is as many as there are cores.
  size_t threads;
} RrdAggregateQuery;

// An aggregate's value.
typedef struct RrdAggregateValue {
  // Rows or values that were counted or summed.
  uint64_t count;
  // Sum of floats.
  double number;
  // It is NULL.
  uint8_t is_null;
  // Digits of the sum behind the point.
  uint8_t scale;
  // Bytes of `decimal`; 0 if the sum is a float.
  uint8_t decimal_bytes;
  // Keeps the layout the same everywhere.
  uint8_t reserved[5];
  // An exact sum as a packed DECIMAL of 65 digits.
  uint8_t decimal[32];
} RrdAggregateValue;

// A number of a record that is sent as text.
typedef struct RrdTextColumn {
  // Its bytes in the record.
  const uint8_t *value;
  // The byte that says whether it is NULL; null if it never is.
  const uint8_t *null_byte;
  // The bit of it.
  uint8_t null_bit;
  // [`RRD_KIND_INTEGER`] or [`RRD_KIND_DOUBLE`].
  RrdKind kind;
  // Signed integer.
  uint8_t is_signed;
  // Bytes of the value: 1, 2, 3, 4 or 8, of a double 8.
  uint8_t pack_length;
} RrdTextColumn;

// Little-endian integer of `pack_length` bytes (`is_signed` says which).
#define RRD_KIND_INTEGER 0

// Big-endian bytes whose order is the value's (packed temporals, decimals, bits).
#define RRD_KIND_BIG_ENDIAN 1

// 4-byte float.
#define RRD_KIND_FLOAT 2

// 8-byte float.
#define RRD_KIND_DOUBLE 3

// `pack_length` bytes, filled up with the collation's pad character.
#define RRD_KIND_FIXED_TEXT 4

// `length_bytes` of length, then the bytes.
#define RRD_KIND_VAR_TEXT 5

// `length_bytes` of length, then a pointer.
#define RRD_KIND_BLOB 6

// Not a time.
#define RRD_TIME_NONE 0

// An integer, in `TIME_UNIT`.
#define RRD_TIME_INTEGER 1

// TIMESTAMP in the packed format.
#define RRD_TIME_TIMESTAMP 2

// DATETIME in the packed format.
#define RRD_TIME_DATETIME 3

// A temporal type of the format before MySQL 5.6, which cannot be a time column.
#define RRD_TIME_OLD_FORMAT 4

// Each statement sees what was committed when it began.
#define RRD_READ_COMMITTED 0

// All statements see what was committed at the first read.
#define RRD_REPEATABLE_READ 1

// Nothing: they see a snapshot.
#define RRD_LOCK_NONE 0

// Each row is locked shared.
#define RRD_LOCK_SHARED 1

// Each row is locked for this transaction alone.
#define RRD_LOCK_EXCLUSIVE 2

// INSERT: an error.
#define RRD_INSERT_FAIL 0

// INSERT IGNORE: reported; left out at commit.
#define RRD_INSERT_IGNORE 1

// REPLACE: reported; replaces the other row at commit.
#define RRD_INSERT_REPLACE 2

// ON DUPLICATE KEY UPDATE: reported; the key is locked.
#define RRD_INSERT_UPDATE 3

// At the first row with this key; the scan ends with the last such row.
#define RRD_SEEK_EXACT 0

// At the first row with this key or a greater one.
#define RRD_SEEK_AT_OR_AFTER 1

// At the first row with a greater key.
#define RRD_SEEK_AFTER 2

// Backwards, at the last row with this key or a smaller one.
#define RRD_SEEK_AT_OR_BEFORE 3

// Backwards, at the last row with a smaller key.
#define RRD_SEEK_BEFORE 4

// Backwards, at the last row with this key; the scan ends with the first such row.
#define RRD_SEEK_LAST 5

// At the first row of the table; the key is ignored.
#define RRD_SEEK_FIRST 6

// Backwards, at the last row of the table; the key is ignored.
#define RRD_SEEK_END 7

// RRD_TABLES.
#define RRD_VIEW_TABLES 0

// RRD_SEGMENTS.
#define RRD_VIEW_SEGMENTS 1

// RRD_COLUMNS.
#define RRD_VIEW_COLUMNS 2

// RRD_TIERS.
#define RRD_VIEW_TIERS 3

// RRD_LOCK_WAITS.
#define RRD_VIEW_LOCK_WAITS 4

// NULL.
#define RRD_CELL_NULL 0

// An unsigned number.
#define RRD_CELL_UNSIGNED 1

// A double-precision number, its bits in `number`.
#define RRD_CELL_DOUBLE 2

// A text.
#define RRD_CELL_TEXT 3

// Microseconds since 1970, for a text column: to be shown in the session's time zone.
#define RRD_CELL_TIMESTAMP 4

// Something is broken.
#define RRD_SEVERITY_ERROR 0

// Something should be looked at.
#define RRD_SEVERITY_WARNING 1

// Good to know.
#define RRD_SEVERITY_NOTE 2

// NULL: unknown.
#define RRD_NUMBER_NULL 0

// An unsigned integer.
#define RRD_NUMBER_UNSIGNED 1

// A signed integer, its bits.
#define RRD_NUMBER_SIGNED 2

// A double, its bits.
#define RRD_NUMBER_DOUBLE 3

// Between `low` and `high`; a null pointer leaves an end open.
#define RRD_TEST_RANGE 0

// One of `values`.
#define RRD_TEST_IN 1

// A text equal, in the column's collation, to one of `texts`.
#define RRD_TEST_TEXT 2

// NULL.
#define RRD_TEST_NULL 3

// Nothing is: no row meets it; the field is ignored.
#define RRD_TEST_NEVER 4

// One of some parts at least: the next `count` conditions are these parts, with what belongs to them.
#define RRD_TEST_ANY 5

// All of some parts, as above.
#define RRD_TEST_ALL 6

// By its value.
#define RRD_GROUP_VALUE 0

// By spans of an integer, a TIMESTAMP or a packed date, rounded down.
#define RRD_GROUP_BUCKET 1

// By spans of an integer, rounded towards zero: that of `origin` reaches to both sides.
#define RRD_GROUP_TOWARDS_ZERO 2

// COUNT(*); the field is ignored.
#define RRD_AGGREGATE_ROWS 0

// COUNT of a field.
#define RRD_AGGREGATE_COUNT 1

// SUM, and for AVG how many values were summed.
#define RRD_AGGREGATE_SUM 2

// MIN.
#define RRD_AGGREGATE_MIN 3

// MAX.
#define RRD_AGGREGATE_MAX 4

// The value in the group's first row in key order.
#define RRD_AGGREGATE_FIRST 5

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// From now on long waits are told to `pause`, on the threads that wait; a second call changes nothing.
//
// # Safety
// `pause` is null, or any thread may call it until the process ends.
void rrd_report_pauses(RrdPauseFn pause);

// Opens the data folder, made if missing. The handle goes to `out`; close it with [`rrd_engine_close`].
//
// # Safety
// Rules `handles`, `answers`, `arrays` and `texts` of `abi.rs`.
int32_t rrd_engine_open(const struct RrdConfig *config, struct RrdEngine **out, struct RrdError *error);

// Makes everything durable, stops the threads and frees the handle; tables and sessions must be closed.
//
// # Safety
// Rules `handles` and `answers` of `abi.rs`.
int32_t rrd_engine_close(struct RrdEngine *engine, struct RrdError *error);

// Sets `rrd_flush_log_at_trx_commit`.
//
// # Safety
// Rule `handles` of `abi.rs`.
void rrd_engine_set_flush_log(const struct RrdEngine *engine, uint32_t mode);

// Sets `rrd_memtable_size`.
//
// # Safety
// Rule `handles` of `abi.rs`.
void rrd_engine_set_memtable_bytes(const struct RrdEngine *engine, uint64_t count);

// Sets `rrd_cache_size`.
//
// # Safety
// Rule `handles` of `abi.rs`.
void rrd_engine_set_cache_bytes(const struct RrdEngine *engine, uint64_t count);

// Sets `rrd_lock_memory_size`. Before the first call row locks have no limit.
//
// # Safety
// Rule `handles` of `abi.rs`.
void rrd_engine_set_lock_bytes(const struct RrdEngine *engine, uint64_t count);

// Makes a session that waits for a row lock look at once whether its statement was killed; from any thread.
//
// # Safety
// Rule `handles` of `abi.rs`.
void rrd_engine_wake(const struct RrdEngine *engine, uint64_t session_id);

// Makes a table. The definition's options are read and checked here.
//
// # Safety
// Rules `handles`, `answers`, `arrays`, `texts` and `collations` of `abi.rs`.
int32_t rrd_table_create(const struct RrdEngine *engine,
                         struct RrdText name,
                         const struct RrdTableDefinition *definition,
                         struct RrdError *error);

// Removes a table: `with_prepared` also one that prepared transactions have written to, whose writes to it are lost.
//
// # Safety
// Rules `handles`, `answers` and `texts` of `abi.rs`.
int32_t rrd_table_drop(const struct RrdEngine *engine,
                       struct RrdText name,
                       bool with_prepared,
                       struct RrdError *error);

// Calls `table` with the name ("database/table") of each table that the server has no definition of.
//
// # Safety
// Rules `handles`, `answers` and `callbacks` of `abi.rs`.
int32_t rrd_tables_without_definition(const struct RrdEngine *engine,
                                      RrdTextFn table,
                                      void *context,
                                      struct RrdError *error);

// Removes the partitions of a table that the server has no definition of; `RRD_NO_SUCH_TABLE` if there are none.
//
// # Safety
// Rules `handles`, `answers` and `texts` of `abi.rs`.
int32_t rrd_table_drop_without_definition(const struct RrdEngine *engine,
                                          struct RrdText name,
                                          struct RrdError *error);

// Renames a table.
//
// # Safety
// Rules `handles`, `answers` and `texts` of `abi.rs`.
int32_t rrd_table_rename(const struct RrdEngine *engine,
                         struct RrdText from,
                         struct RrdText to,
                         struct RrdError *error);

// Removes all rows of a table.
//
// # Safety
// Rules `handles`, `answers` and `texts` of `abi.rs`.
int32_t rrd_table_truncate(const struct RrdEngine *engine, struct RrdText name, struct RrdError *error);

// Removes all tables of a database; `prefix` is its name with a slash.
//
// # Safety
// Rules `handles`, `answers` and `texts` of `abi.rs`.
int32_t rrd_database_drop(const struct RrdEngine *engine, struct RrdText prefix, struct RrdError *error);

// Opens a session for a connection; `killed` is asked with `connection` during long work, `local_time` for the times in
// texts of errors (without it they are UTC's), `connection_id` is what reports call it.
//
// # Safety
// Rules `handles` and `answers` of `abi.rs`. Any thread that is in a call with the session may call `killed` and
// `local_time` with `connection`, until the session is closed.
int32_t rrd_session_open(const struct RrdEngine *engine,
                         void *connection,
                         uint64_t connection_id,
                         RrdKilledFn killed,
                         RrdLocalTimeFn local_time,
                         struct RrdSession **out,
                         struct RrdError *error);

// The number to wake the session's waits with, see `rrd_engine_wake`; 0 without a session.
//
// # Safety
// Rule `handles` of `abi.rs`.
uint64_t rrd_session_id(struct RrdSession *session);

// Calls `take` for each table of which rows were not stored, because they are older than its horizon, since this was last
// asked: rows that statements were refused, and after a commit those that it did not store.
//
// # Safety
// Rules `handles`, `answers` and `callbacks` of `abi.rs`.
int32_t rrd_session_take_losses(struct RrdSession *session,
                                RrdLossFn take,
                                void *context,
                                struct RrdError *error);

// Rolls back what is open and frees the handle.
//
// # Safety
// Rule `handles` of `abi.rs`.
void rrd_session_close(struct RrdSession *session);

// Begins a statement.
//
// # Safety
// Rules `handles` and `answers` of `abi.rs`.
int32_t rrd_session_begin_statement(struct RrdSession *session,
                                    RrdIsolation isolation,
                                    uint64_t lock_timeout_ms,
                                    struct RrdError *error);

// Until the statement under way ends, its reads of tiers see the rows as they are now. To be called for statements that write, after
// the savepoint that marks their beginning.
//
// # Safety
// Rules `handles` and `answers` of `abi.rs`.
int32_t rrd_session_keep_tiers(struct RrdSession *session,
                               struct RrdError *error);

// Waits until all commits that have their place in the coordinator's order can be seen.
//
// # Safety
// Rules `handles` and `answers` of `abi.rs`.
int32_t rrd_session_wait_ordered(struct RrdSession *session, struct RrdError *error);

// Takes the snapshot now; it sees all commits that have their place in the coordinator's order.
//
// # Safety
// Rules `handles` and `answers` of `abi.rs`.
int32_t rrd_session_take_snapshot(struct RrdSession *session, struct RrdError *error);

// Keeps statements that a replica repeats as text from missing each other's rows: until the end of the transaction
// it is alone on the table, or, if it only inserts, alone with others who do.
//
// # Safety
// Rules `handles` and `answers` of `abi.rs`.
int32_t rrd_session_lock_table(struct RrdSession *session,
                               const struct RrdTable *table,
                               bool only_inserts,
                               struct RrdError *error);

// Waits, up to `timeout_ms`, until no prepared transaction has writes to a table whose name, definition or rows as a whole are
// to change: `RRD_PREPARED` if one still has. A table that is not known is nobody's.
//
// # Safety
// Rules `handles`, `answers` and `texts` of `abi.rs`.
int32_t rrd_session_wait_for_prepared(struct RrdSession *session,
                                      struct RrdText name,
                                      uint64_t timeout_ms,
                                      struct RrdError *error);

// Marks a place to roll back to; its number goes to `out`.
//
// # Safety
// Rules `handles` and `answers` of `abi.rs`.
int32_t rrd_session_savepoint(struct RrdSession *session, uint64_t *out, struct RrdError *error);

// Undoes everything after the mark.
//
// # Safety
// Rules `handles` and `answers` of `abi.rs`.
int32_t rrd_session_rollback_to(struct RrdSession *session, uint64_t mark, struct RrdError *error);

// Forgets the mark and later ones, keeps the work.
//
// # Safety
// Rules `handles` and `answers` of `abi.rs`.
int32_t rrd_session_release(struct RrdSession *session, uint64_t mark, struct RrdError *error);

// Commits; on an error everything is undone.
//
// # Safety
// Rules `handles` and `answers` of `abi.rs`.
int32_t rrd_session_commit(struct RrdSession *session, struct RrdError *error);

// Undoes everything.
//
// # Safety
// Rules `handles` and `answers` of `abi.rs`.
int32_t rrd_session_rollback(struct RrdSession *session, struct RrdError *error);

// What of the first phase can be refused, for a coordinator that writes down the first phase before it asks for it:
// `rrd_session_prepare` or `rrd_session_rollback` comes next. On an error everything is undone.
//
// # Safety
// Rules `handles`, `answers`, `arrays` and `texts` of `abi.rs`.
int32_t rrd_session_reserve(struct RrdSession *session,
                            const struct RrdText *xid,
                            struct RrdError *error);

// First phase: the session's work is durable and cannot be refused any more. On an error everything is undone. `stays` tells that
// it may be long until the second phase: there is a limit to the memory of all such transactions.
//
// # Safety
// Rules `handles`, `answers`, `arrays` and `texts` of `abi.rs`.
int32_t rrd_session_prepare(struct RrdSession *session,
                            const struct RrdText *xid,
                            bool stays,
                            struct RrdError *error);

// Gives a prepared session its place in the order of commits; `rrd_session_commit` finishes it. May be called from
// another thread than the session's, which must be waiting meanwhile.
//
// # Safety
// Rules `handles` and `answers` of `abi.rs`. Another thread than the session's may call while that one waits for it.
int32_t rrd_session_order_commit(struct RrdSession *session,
                                 struct RrdError *error);

// When it returns, no commit that was ordered so far needs the coordinator's log after a crash.
//
// # Safety
// Rules `handles` and `answers` of `abi.rs`.
int32_t rrd_engine_checkpoint(const struct RrdEngine *engine, struct RrdError *error);

// Reports from now on which connection waits for which.
//
// # Safety
// Rules `handles` and `answers` of `abi.rs`. `report` is null, or any thread may call it with connections that have a
// session, until the engine is closed.
int32_t rrd_engine_report_waits(const struct RrdEngine *engine,
                                RrdWaitFn report,
                                struct RrdError *error);

// Second phase for a transaction whose connection is gone: commits it. `RRD_NOT_FOUND` if there is none.
//
// # Safety
// Rules `handles`, `answers`, `arrays` and `texts` of `abi.rs`.
int32_t rrd_engine_commit_prepared(const struct RrdEngine *engine,
                                   const struct RrdText *xid,
                                   struct RrdError *error);

// Second phase for a transaction whose connection is gone: undoes it. `RRD_NOT_FOUND` if there is none.
//
// # Safety
// Rules `handles`, `answers`, `arrays` and `texts` of `abi.rs`.
int32_t rrd_engine_rollback_prepared(const struct RrdEngine *engine,
                                     const struct RrdText *xid,
                                     struct RrdError *error);

// Calls `take` with the XIDs of the next prepared transactions, `most` at most. `position` is 0 at the first call and says where to
// go on at the next one; they may be decided in between.
//
// # Safety
// Rules `handles`, `answers` and `callbacks` of `abi.rs`.
int32_t rrd_engine_prepared(const struct RrdEngine *engine,
                            uint64_t *position,
                            uint64_t most,
                            RrdTextFn take,
                            void *context,
                            struct RrdError *error);

// Opens a table. The collations of the definition must outlive the handle.
//
// # Safety
// Rules `handles`, `answers`, `arrays`, `texts` and `collations` of `abi.rs`.
int32_t rrd_table_open(const struct RrdEngine *engine,
                       struct RrdText name,
                       const struct RrdTableDefinition *definition,
                       struct RrdTable **out,
                       struct RrdError *error);

// What the table's scans make ahead: valid until the handle is freed, changed by each call for the table.
//
// # Safety
// Rule `handles` of `abi.rs`. What is returned is read and written between calls for the table only, and not after it
// was closed.
struct RrdAhead *rrd_table_ahead(const struct RrdTable *table);

// Frees the handle.
//
// # Safety
// Rule `handles` of `abi.rs`.
void rrd_table_close(struct RrdTable *table);

// Chooses the fields, by the server's numbers, that reads write into records, what reads do about row locks, and
// whether they pass over rows that others have locked.
//
// # Safety
// Rules `handles`, `answers` and `arrays` of `abi.rs`.
int32_t rrd_table_set_columns(struct RrdTable *table,
                              const uint32_t *numbers,
                              size_t count,
                              RrdLocking locking,
                              bool skips_locked,
                              struct RrdError *error);

// Whether the scan may show, under READ COMMITTED, a row that others have locked as it is committed, before it
// waits for it.
//
// # Safety
// Rule `handles` of `abi.rs`.
void rrd_scan_look_before_waiting(struct RrdTable *table,
                                  bool yes);

// Whether the row read last is only looked at: the next step of the scan waits for it and reads it again.
//
// # Safety
// Rule `handles` of `abi.rs`.
bool rrd_scan_is_looking(struct RrdTable *table);

// The statement has no use for the row read last: under READ COMMITTED its lock is given back.
//
// # Safety
// Rule `handles` of `abi.rs`.
void rrd_row_unlock(struct RrdTable *table, struct RrdSession *session);

// Lets go of what a statement held.
//
// # Safety
// Rule `handles` of `abi.rs`.
void rrd_table_reset(struct RrdTable *table);

// Figures of the table.
//
// # Safety
// Rules `handles` and `answers` of `abi.rs`.
int32_t rrd_table_stats(const struct RrdTable *table, struct RrdTableStats *out, struct RrdError *error);

// Roughly how many rows lie between two key images of the clustering key (`RRD_CLUSTERING_KEY`) or of an index; a null pointer leaves an end open.
//
// # Safety
// Rules `handles`, `answers` and `images` of `abi.rs`.
int32_t rrd_table_rows_between(struct RrdTable *table,
                               uint32_t index,
                               const uint8_t *low,
                               size_t low_bytes,
                               bool is_low_inclusive,
                               const uint8_t *high,
                               size_t high_bytes,
                               bool is_high_inclusive,
                               uint64_t *out,
                               struct RrdError *error);

// Takes `count` AUTO_INCREMENT values of the series `offset`, `offset + step`, ... up to `max`, none below `value`: that
// becomes the first of them, and `next` where the counter goes on. Where all are used up `next` becomes 0.
//
// # Safety
// Rules `handles` and `answers` of `abi.rs`.
int32_t rrd_auto_increment_take(const struct RrdTable *table,
                                struct RrdSeries series,
                                uint64_t count,
                                uint64_t *value,
                                uint64_t *next,
                                struct RrdError *error);

// Lets the AUTO_INCREMENT values of the series go on behind `value`, which a row has.
//
// # Safety
// Rules `handles` and `answers` of `abi.rs`.
int32_t rrd_auto_increment_raise(const struct RrdTable *table,
                                 struct RrdSeries series,
                                 uint64_t value,
                                 struct RrdError *error);

// Sets the next AUTO_INCREMENT value; it never goes below an existing one.
//
// # Safety
// Rules `handles`, `answers` and `texts` of `abi.rs`.
int32_t rrd_auto_increment_set(const struct RrdEngine *engine,
                               struct RrdText name,
                               uint64_t next,
                               struct RrdError *error);

// Merges all segments of the table (OPTIMIZE TABLE).
//
// # Safety
// Rules `handles`, `answers` and `callbacks` of `abi.rs`.
int32_t rrd_table_optimize(const struct RrdTable *table,
                           RrdProgressFn progress,
                           void *context,
                           struct RrdError *error);

// Reads and verifies all of the table (CHECK TABLE); each finding is a call of `finding`.
//
// # Safety
// Rules `handles`, `answers` and `callbacks` of `abi.rs`.
int32_t rrd_table_check(const struct RrdTable *table,
                        bool is_quick,
                        RrdProgressFn progress,
                        RrdTextFn finding,
                        void *context,
                        struct RrdError *error);

// Inserts a record. When the answer is `RRD_DUPLICATE` and `mode` is to replace or to update, the row in the way
// is locked and sure to be there.
//
// # Safety
// Rules `handles`, `answers` and `records` of `abi.rs`.
int32_t rrd_row_insert(struct RrdTable *table,
                       struct RrdSession *session,
                       const uint8_t *record,
                       RrdInsert mode,
                       struct RrdError *error);

// Replaces the row that was read as `old` by `new`.
//
// # Safety
// Rules `handles`, `answers` and `records` of `abi.rs`.
int32_t rrd_row_update(struct RrdTable *table,
                       struct RrdSession *session,
                       const uint8_t *old,
                       const uint8_t *new_,
                       struct RrdError *error);

// Removes the row that was read as `record`.
//
// # Safety
// Rules `handles`, `answers` and `records` of `abi.rs`.
int32_t rrd_row_delete(struct RrdTable *table,
                       struct RrdSession *session,
                       const uint8_t *record,
                       struct RrdError *error);

// Writes the refused row of the last duplicate into a record. Its blobs are valid until the next write.
//
// # Safety
// Rules `handles` and `records` of `abi.rs`.
void rrd_row_duplicate(struct RrdTable *table, uint8_t *record);

// Reads the row in the way of the last duplicate into a record; `RRD_NOT_FOUND` if it is gone. The record's blobs
// are valid until the next call for this table.
//
// # Safety
// Rules `handles`, `answers` and `records` of `abi.rs`.
int32_t rrd_row_in_the_way(struct RrdTable *table,
                           struct RrdSession *session,
                           uint8_t *record,
                           struct RrdError *error);

// From now on inserts may report duplicates late: by a later insert or by [`rrd_bulk_end`].
//
// # Safety
// Rules `handles` and `answers` of `abi.rs`.
int32_t rrd_bulk_begin(struct RrdTable *table, struct RrdSession *session, struct RrdError *error);

// Ends a bulk statement; all late checks are done.
//
// # Safety
// Rules `handles` and `answers` of `abi.rs`.
int32_t rrd_bulk_end(struct RrdTable *table, struct RrdSession *session, struct RrdError *error);

// After all rows of a table that is filled at its making: refuses options that go by a time column that was guessed, and does
// not look like one.
//
// # Safety
// Rules `handles` and `answers` of `abi.rs`.
int32_t rrd_table_check_times(struct RrdTable *table,
                              struct RrdSession *session,
                              struct RrdError *error);

// The server's number of the time column's field; -1 if the table has none.
//
// # Safety
// Rule `handles` of `abi.rs`.
int64_t rrd_table_time_field(struct RrdTable *table);

// Deletes all rows within a span of time as one piece of work, whole chunks as they are. An end is a record with the
// time, null for open, and whether that time still goes. `RRD_UNSUPPORTED` if this has to be done row by row.
//
// # Safety
// Rules `handles`, `answers` and `records` of `abi.rs`.
int32_t rrd_table_delete_times(struct RrdTable *table,
                               struct RrdSession *session,
                               const uint8_t *low,
                               bool is_low_inclusive,
                               const uint8_t *high,
                               bool is_high_inclusive,
                               uint64_t *deleted,
                               struct RrdError *error);

// Until the end of the statement, scans along the clustering key that lock nothing may leave out rows that do not meet all
// of these conditions; the caller asks again of those that come. `RRD_UNSUPPORTED` if one cannot be evaluated: nothing
// changes.
//
// # Safety
// Rules `handles`, `answers` and `arrays` of `abi.rs`.
int32_t rrd_scan_limit(struct RrdTable *table,
                       const struct RrdCondition *conditions,
                       size_t count,
                       struct RrdError *error);

// Begins a scan along the clustering key (`RRD_CLUSTERING_KEY`) or a secondary index; seek before reading.
//
// # Safety
// Rules `handles` and `answers` of `abi.rs`.
int32_t rrd_scan_open(struct RrdTable *table,
                      struct RrdSession *session,
                      uint32_t index,
                      struct RrdError *error);

// Places the scan (see the `RRD_SEEK_` numbers). `limit` may end a forward walk: the image of the last key and
// whether its rows still belong to the walk.
//
// # Safety
// Rules `handles`, `answers` and `images` of `abi.rs`.
int32_t rrd_scan_seek(struct RrdTable *table,
                      RrdSeek seek,
                      const uint8_t *image,
                      size_t image_bytes,
                      const uint8_t *limit,
                      size_t limit_bytes,
                      bool is_limit_inclusive,
                      struct RrdError *error);

// Locks all keys that begin with an image, along the index of the scan, as one.
//
// # Safety
// Rules `handles`, `answers` and `images` of `abi.rs`.
int32_t rrd_scan_lock_prefix(struct RrdTable *table,
                             struct RrdSession *session,
                             const uint8_t *image,
                             size_t image_bytes,
                             struct RrdError *error);

// Reads the next row into a record, or the one before with `backward`; `RRD_END` if there is none. The record's
// blobs are valid until the next call for this table.
//
// # Safety
// Rules `handles`, `answers` and `records` of `abi.rs`.
int32_t rrd_scan_next(struct RrdTable *table,
                      struct RrdSession *session,
                      bool backward,
                      uint8_t *record,
                      struct RrdError *error);

// A statement begins: a scan that is still open, as HANDLER's are, goes on in what it sees.
//
// # Safety
// Rule `handles` of `abi.rs`.
void rrd_scan_keep(struct RrdTable *table);

// Ends the scan.
//
// # Safety
// Rule `handles` of `abi.rs`.
void rrd_scan_close(struct RrdTable *table);

// Reads the row with a key image (or the 8 bytes of a row number) into a record; `RRD_NOT_FOUND` if there is
// none. The record's blobs are valid until the next call for this table.
//
// # Safety
// Rules `handles`, `answers`, `records` and `images` of `abi.rs`.
int32_t rrd_row_read(struct RrdTable *table,
                     struct RrdSession *session,
                     const uint8_t *image,
                     size_t image_bytes,
                     uint8_t *record,
                     struct RrdError *error);

// Says whether the row with a key image (or the 8 bytes of a row number) is behind the horizon: 1, else 0.
//
// # Safety
// Rules `handles`, `answers` and `images` of `abi.rs`.
int32_t rrd_row_is_behind_horizon(struct RrdTable *table,
                                  const uint8_t *image,
                                  size_t image_bytes,
                                  int32_t *is_behind,
                                  struct RrdError *error);

// Writes the number of the row read last (8 bytes, most significant first), for tables without a key.
//
// # Safety
// Rules `handles` and `answers` of `abi.rs`.
int32_t rrd_row_number(struct RrdTable *table, uint8_t (*out)[8], struct RrdError *error);

// Works out what a new definition changes; `RRD_NEEDS_COPY` with a reason if the rows cannot stay as they are.
// `old_numbers` has, for each field of the definition, its number in the old table, or 2^32 - 1 for a new column;
// `record` is a record of the new table with the values of new columns; `auto_increment` is 0 if not given.
// `builds` says whether [`rrd_alter_build`] has something to do.
//
// # Safety
// Rules `handles`, `answers`, `arrays`, `texts`, `records` and `collations` of `abi.rs`.
int32_t rrd_alter_begin(const struct RrdTable *table,
                        const struct RrdTableDefinition *definition,
                        const uint32_t *old_numbers,
                        const uint8_t *record,
                        struct RrdText definition_id,
                        uint64_t auto_increment,
                        struct RrdAlter **out,
                        bool *builds,
                        struct RrdError *error);

// Builds new indexes and tiers; nobody may write to the table from here to the commit. A value that occurs twice in a unique
// one is `RRD_DUPLICATE` with the place of the key; see [`rrd_alter_duplicate`].
//
// # Safety
// Rules `handles`, `answers` and `callbacks` of `abi.rs`.
int32_t rrd_alter_build(struct RrdAlter *alter,
                        RrdProgressFn progress,
                        void *context,
                        struct RrdError *error);

// Writes the row that [`rrd_alter_build`] refused into a record of the new definition. Its blobs are valid until the
// change is closed.
//
// # Safety
// Rules `handles`, `answers` and `records` of `abi.rs`.
int32_t rrd_alter_duplicate(const struct RrdAlter *alter,
                            uint8_t *record,
                            struct RrdError *error);

// Makes changes visible and durable, all of them or none. They must be closed nevertheless. `fallen` becomes the number of
// rows that are gone because of it, `is_all` says whether none is left. Tiers whose history ends
// are `told`, a sentence each. While it waits for others it asks `killed`.
//
// # Safety
// Rules `handles`, `answers`, `arrays` and `callbacks` of `abi.rs`.
int32_t rrd_alter_commit(struct RrdAlter **alters,
                         size_t count,
                         RrdKilledFn killed,
                         RrdTextFn told,
                         void *connection,
                         uint64_t *fallen,
                         bool *is_all,
                         struct RrdError *error);

// Frees a change; one that was not committed leaves nothing behind.
//
// # Safety
// Rule `handles` of `abi.rs`.
void rrd_alter_close(struct RrdAlter *alter);

// Whether a table (or all partitions of one) was altered to the definition with this id: for the server's recovery.
//
// # Safety
// Rules `handles`, `answers` and `texts` of `abi.rs`.
int32_t rrd_table_has_definition(const struct RrdEngine *engine,
                                 struct RrdText name,
                                 struct RrdText definition_id,
                                 bool *out,
                                 struct RrdError *error);

// Describes the `number`-th column of a view; false behind the last one.
//
// # Safety
// Rule `answers` of `abi.rs`.
bool rrd_info_column(RrdView view, size_t number, struct RrdInfoColumn *out);

// Reads a view. Costly columns are NULL unless `wants_costly`.
//
// # Safety
// Rules `handles`, `answers`, `arrays` and `callbacks` of `abi.rs`.
int32_t rrd_info_read(const struct RrdEngine *engine,
                      RrdView view,
                      bool wants_costly,
                      const struct RrdInfoReader *reader,
                      struct RrdError *error);

// Calls `counter` with each status variable.
//
// # Safety
// Rules `handles` and `callbacks` of `abi.rs`.
void rrd_engine_counters(const struct RrdEngine *engine, RrdCounterFn counter, void *context);

// Calls `text` once with the report of SHOW ENGINE RRD STATUS. Works on an engine that stopped, too.
//
// # Safety
// Rules `handles` and `callbacks` of `abi.rs`.
void rrd_engine_report(const struct RrdEngine *engine, RrdTextFn text, void *context);

// From now on messages of the engine go to `log`; to nobody with null. When it returns nobody is in the function
// that was given before.
//
// # Safety
// `log` is null, or any thread may call it until this function returns from a call with another one.
void rrd_log_to(RrdLogFn log);

// Fixes the moment of a backup to a new folder and copies the server's definitions of the tables; the caller keeps
// others from making, renaming or dropping tables until it returns. A prepared transaction whose packed XID begins with
// `own_xids` is one that the server is just committing. The handle goes to `out`; give it to [`rrd_backup_finish`].
//
// # Safety
// Rules `handles`, `answers` and `texts` of `abi.rs`.
int32_t rrd_backup_begin(const struct RrdEngine *engine,
                         struct RrdText folder,
                         struct RrdText own_xids,
                         struct RrdBackup **out,
                         struct RrdError *error);

// Makes the backup whole, or removes what was made of it, and frees the handle.
//
// # Safety
// Rules `handles`, `answers` and `callbacks` of `abi.rs`.
int32_t rrd_backup_finish(struct RrdBackup *backup,
                          RrdProgressFn progress,
                          void *context,
                          struct RrdBackupReport *out,
                          struct RrdError *error);

// Saves what can be read of the table's damaged files and makes damaged indexes again (REPAIR TABLE); `told` is called
// with each line of what was done and lost, and not at all when the table was sound. Nobody else may use the table.
//
// # Safety
// Rules `handles`, `answers` and `callbacks` of `abi.rs`.
int32_t rrd_table_repair(const struct RrdTable *table,
                         RrdProgressFn progress,
                         RrdTextFn told,
                         void *context,
                         struct RrdError *error);

// Calls `tier` for each tier of the table `name`, or if that ends with a slash, of all tables of that database.
//
// # Safety
// Rules `handles`, `answers`, `texts` and `callbacks` of `abi.rs`.
int32_t rrd_tiers_list(const struct RrdEngine *engine,
                       struct RrdText name,
                       RrdTierFn tier,
                       void *context,
                       struct RrdError *error);

// As [`rrd_tiers_list`], for the tiers that a definition asks for; the table's name is empty.
//
// # Safety
// Rules `answers`, `arrays`, `callbacks` and `collations` of `abi.rs`.
int32_t rrd_tiers_asked_for(const struct RrdTableDefinition *definition,
                            RrdTierFn tier,
                            void *context,
                            struct RrdError *error);

// Whether there is a tier with this name: "database/table$tier".
//
// # Safety
// Rules `handles` and `texts` of `abi.rs`.
bool rrd_tier_exists(const struct RrdEngine *engine, struct RrdText name);

// Whether tiers of a table hold what its rows no longer say: a copy of the rows would not bring it along.
//
// # Safety
// Rules `handles` and `texts` of `abi.rs`.
bool rrd_tiers_outlive_rows(const struct RrdEngine *engine, struct RrdText name);

// Gives the CREATE TABLE statement of a tier; `RRD_NO_SUCH_TABLE` if there is none with this name.
//
// # Safety
// Rules `handles`, `answers`, `texts` and `callbacks` of `abi.rs`.
int32_t rrd_tier_definition(const struct RrdEngine *engine,
                            struct RrdText name,
                            RrdTextFn statement,
                            void *context,
                            struct RrdError *error);

// The buckets of `time_bucket(width, ..)`: of `units` (as many as a second has `per_second` of) or, if `width` is
// not none, of what that text says.
//
// # Safety
// Rules `answers` and `texts` of `abi.rs`.
int32_t rrd_bucket_of(int64_t units,
                      struct RrdText width,
                      int64_t per_second,
                      struct RrdBucket *out,
                      struct RrdError *error);

// Moves the buckets by the text of a length of time; `RRD_NOT_FOUND` if it is none.
//
// # Safety
// Rules `answers` and `texts` of `abi.rs`.
int32_t rrd_bucket_move(struct RrdBucket *bucket, struct RrdText offset, struct RrdError *error);

// Moves the buckets by units of time.
//
// # Safety
// Rule `answers` of `abi.rs`.
int32_t rrd_bucket_move_units(struct RrdBucket *bucket, int64_t units, struct RrdError *error);

// Moves the buckets so that one of them starts at a time.
//
// # Safety
// Rule `answers` of `abi.rs`.
int32_t rrd_bucket_start_at(struct RrdBucket *bucket, int64_t origin, struct RrdError *error);

// The start of the bucket that a time is in. Time and start are unsigned integers if `is_unsigned`. `RRD_LIMIT` if the
// start is out of their range.
//
// # Safety
// Rules `answers` and `arrays` of `abi.rs`.
int32_t rrd_bucket_start(const struct RrdBucket *bucket,
                         int64_t time,
                         bool is_unsigned,
                         int64_t *out,
                         struct RrdError *error);

// A group without readings; `kind` is a data source type as rrdcreate(1) names them. Close it by
// `rrd_counter_close`.
//
// # Safety
// Rules `handles`, `answers` and `texts` of `abi.rs`.
int32_t rrd_counter_open(struct RrdText kind, struct RrdCounter **out, struct RrdError *error);

// Begins a new group.
//
// # Safety
// Rules `handles` and `answers` of `abi.rs`.
int32_t rrd_counter_clear(struct RrdCounter *counter, struct RrdError *error);

// Takes a reading, in any order.
//
// # Safety
// Rules `handles` and `answers` of `abi.rs`.
int32_t rrd_counter_add(struct RrdCounter *counter,
                        int64_t time_us,
                        RrdNumberKind kind,
                        uint64_t bits,
                        struct RrdError *error);

// What was counted in the group, and in how many seconds; `RRD_NOT_FOUND` if nothing is known.
//
// # Safety
// Rules `handles` and `answers` of `abi.rs`.
int32_t rrd_counter_result(struct RrdCounter *counter,
                           double *amount,
                           double *seconds,
                           struct RrdError *error);

// Gives a group back; null is none.
//
// # Safety
// Rule `handles` of `abi.rs`.
void rrd_counter_close(struct RrdCounter *counter);

// Whether a query can be answered exactly (`RRD_UNSUPPORTED` if not), and roughly how many rows its key ranges hold.
// Nothing is read.
//
// # Safety
// Rules `handles`, `answers` and `arrays` of `abi.rs`.
int32_t rrd_aggregate_check(const struct RrdTable *table,
                            const struct RrdAggregateQuery *query,
                            uint64_t *rows,
                            struct RrdError *error);

// Runs a query over the partitions of a table, or the one table that there is; the answer is to be closed.
//
// # Safety
// Rules `handles`, `answers` and `arrays` of `abi.rs`.
int32_t rrd_aggregate_run(const struct RrdTable *const *tables,
                          size_t table_count,
                          struct RrdSession *session,
                          const struct RrdAggregateQuery *query,
                          struct RrdAggregation **out,
                          struct RrdError *error);

// Goes to the next row of the answer and writes values of the grouping columns, which belong to the group, to their
// places in a record; `RRD_END` behind the last row.
//
// # Safety
// Rules `handles`, `answers` and `records` of `abi.rs`.
int32_t rrd_aggregate_next(struct RrdAggregation *answer,
                           uint8_t *record,
                           struct RrdError *error);

// Makes the row with this number, from 0 on, the next one.
//
// # Safety
// Rules `handles` and `answers` of `abi.rs`.
int32_t rrd_aggregate_seek(struct RrdAggregation *answer, size_t row, struct RrdError *error);

// Of an answer with spans, once all its rows were read: drops row `i` where `kept[i]` is 0, and makes one of rows that
// differ in spans alone and whose names, `names_bytes / rows` bytes each, are the same. Then it is read from the start.
// `is_one_row`: there is a row even of none.
//
// # Safety
// Rules `handles`, `answers` and `arrays` of `abi.rs`.
int32_t rrd_aggregate_put_together(struct RrdAggregation *answer,
                                   const uint8_t *kept,
                                   size_t rows,
                                   const uint8_t *names,
                                   size_t names_bytes,
                                   bool is_one_row,
                                   struct RrdError *error);

// A count or a sum of the row.
//
// # Safety
// Rules `handles` and `answers` of `abi.rs`.
int32_t rrd_aggregate_value(const struct RrdAggregation *answer,
                            size_t place,
                            struct RrdAggregateValue *out,
                            struct RrdError *error);

// Writes a minimum or maximum of the row to its column's place in a record; `RRD_NOT_FOUND` for NULL.
//
// # Safety
// Rules `handles`, `answers` and `records` of `abi.rs`.
int32_t rrd_aggregate_extreme(const struct RrdAggregation *answer,
                              size_t place,
                              uint8_t *record,
                              struct RrdError *error);

// Frees the answer.
//
// # Safety
// Rule `handles` of `abi.rs`.
void rrd_aggregate_close(struct RrdAggregation *answer);

// Writes a finite double as the server sends it and returns the length of the text; 0 if there is no place for it.
//
// # Safety
// Rule `answers` of `abi.rs`.
size_t rrd_double_text(double value,
                       uint8_t (*text)[40]);

// Writes numbers of a record as the server sends them in the text protocol, each behind the byte of its length, and returns the
// length of all; 0 if the server has to do it, as one of them is no finite number. `text` has room for `capacity` bytes; there must
// be `RRD_TEXT_BYTES` for each column.
//
// # Safety
// Rule `arrays` of `abi.rs`.
size_t rrd_row_text(const struct RrdTextColumn *columns,
                    size_t count,
                    uint8_t *text,
                    size_t capacity);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* RRD_H */
