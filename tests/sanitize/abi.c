/*
  Drives the C ABI (crates/ffi/include/rrd.h) as the handler does, from the making of a table to its end, with memory
  of its own that is exactly as long as promised: for AddressSanitizer, which then sees whoever reads or writes beyond
  it, and LeakSanitizer, which sees what is not freed. Every outcome is checked too.

    abi FOLDER     the data folder, made anew by whoever calls
*/
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rrd.h"

/* (series INT NOT NULL, ts INT UNSIGNED NOT NULL, value DOUBLE, name VARCHAR(12) NOT NULL, note TEXT) as a record. */
enum { SERIES= 1, TS= 5, VALUE= 9, NAME= 17, NAME_MAX_BYTES= 12, NOTE= 30, RECORD_BYTES= 40 };
enum { ROWS= 6000, BULK_ROWS= 80000, FIELDS= 5 };

static RrdError error;
static int is_killed;

static void fail(int line, const char *what, int status)
{
  fprintf(stderr, "abi.c:%d: %s gave %d: %s\n", line, what, status, error.message);
  exit(1);
}

#define EXPECT(status, call) \
  do { \
    const int got= (call); \
    if (got != (status)) \
      fail(__LINE__, #call, got); \
  } while (0)
#define DO(call) EXPECT(RRD_OK, call)
#define CHECK(condition) \
  do { \
    if (!(condition)) \
      fail(__LINE__, #condition, 0); \
  } while (0)

static RrdText text(const char *words)
{
  const RrdText it= {words, strlen(words)};
  return it;
}

static int32_t killed(void *connection) { return *(int *) connection; }

/* A copy without a byte to spare. */
static void *exactly(const void *bytes, size_t count)
{
  void *copy= malloc(count);
  CHECK(copy);
  memcpy(copy, bytes, count);
  return copy;
}

/* The definition, in memory that is gone after the call that is given it; a second index if `indexes` is 2. */
typedef struct Definition
{
  RrdTableDefinition of;
  RrdField *fields;
  RrdKeyPart *key, *by_name, *by_value;
  RrdIndex *indexes;
  uint8_t *defaults;
} Definition;

static RrdField field(const char *name, uint32_t number, uint32_t offset, uint32_t bytes, RrdKind kind)
{
  RrdField it;
  memset(&it, 0, sizeof(it));
  it.name= text(name);
  it.sql_type= text("");
  it.number= number;
  it.offset= offset;
  it.pack_length= bytes;
  it.kind= kind;
  it.collation.pad_length= 1;
  return it;
}

static Definition define(size_t indexes)
{
  Definition it;
  RrdField fields[FIELDS]= {
    field("series", 0, SERIES, 4, RRD_KIND_INTEGER), field("ts", 1, TS, 4, RRD_KIND_INTEGER),
    field("value", 2, VALUE, 8, RRD_KIND_DOUBLE), field("name", 3, NAME, 13, RRD_KIND_VAR_TEXT),
    field("note", 4, NOTE, 10, RRD_KIND_BLOB)};
  const RrdKeyPart key[2]= {{.field= 0, .length= 4, .max_chars= 4}, {.field= 1, .length= 4, .max_chars= 4}};
  const RrdKeyPart by_name= {.field= 3, .length= 12, .max_chars= 12, .is_variable= 1};
  const RrdKeyPart by_value= {.field= 2, .length= 8, .max_chars= 8, .has_null_byte= 1, .is_descending= 1};
  const uint8_t defaults[RECORD_BYTES]= {0};
  fields[0].is_signed= 1;
  fields[1].time_kind= RRD_TIME_INTEGER;
  fields[2].null_mask= 1;
  fields[3].length_bytes= 1;
  fields[4].null_mask= 2;
  fields[4].length_bytes= 2;
  it.fields= exactly(fields, sizeof(fields));
  it.key= exactly(key, sizeof(key));
  it.by_name= exactly(&by_name, sizeof(by_name));
  it.by_value= exactly(&by_value, sizeof(by_value));
  it.defaults= exactly(defaults, sizeof(defaults));
  const RrdIndex both[2]= {{.name= text("by_name"), .parts= it.by_name, .part_count= 1},
                           {.name= text("by_value"), .parts= it.by_value, .part_count= 1}};
  it.indexes= exactly(both, indexes * sizeof(both[0]));
  const RrdTableDefinition of= {.fields= it.fields, .field_count= FIELDS, .key_parts= it.key, .key_part_count= 2,
    .indexes= it.indexes, .index_count= indexes, .record_bytes= RECORD_BYTES, .default_record= it.defaults};
  it.of= of;
  return it;
}

static void forget(Definition *it)
{
  free(it->fields);
  free(it->key);
  free(it->by_name);
  free(it->by_value);
  free(it->indexes);
  free(it->defaults);
}

/* A record on the heap; its blob is memory of its own too. */
static uint8_t *row(int32_t series, uint32_t ts, double value, const char *name, const char *note)
{
  uint8_t *record= calloc(1, RECORD_BYTES);
  const uint8_t length= (uint8_t) strlen(name);
  const uint16_t bytes= note ? (uint16_t) strlen(note) : 0;
  char *blob= note ? exactly(note, bytes) : NULL;
  CHECK(record);
  record[0]= (uint8_t) ((value < 0) | (note ? 0 : 2));
  memcpy(record + SERIES, &series, 4);
  memcpy(record + TS, &ts, 4);
  memcpy(record + VALUE, &value, 8);
  record[NAME]= length;
  memcpy(record + NAME + 1, name, length);
  memcpy(record + NOTE, &bytes, 2);
  memcpy(record + NOTE + 2, &blob, sizeof(blob));
  return record;
}

static void drop_row(uint8_t *record)
{
  char *blob;
  memcpy(&blob, record + NOTE + 2, sizeof(blob));
  free(blob);
  free(record);
}

static int insert(RrdTable *table, RrdSession *session, uint8_t *record, RrdInsert mode)
{
  const int status= rrd_row_insert(table, session, record, mode, &error);
  drop_row(record);
  return status;
}

static void name_of(uint32_t n, char *out) { snprintf(out, NAME_MAX_BYTES + 1, "name-%u", n % 997); }

static void begin(RrdTable *table, RrdSession *session, RrdLocking locking)
{
  const uint32_t numbers[FIELDS]= {0, 1, 2, 3, 4};
  uint32_t *chosen= exactly(numbers, sizeof(numbers));
  DO(rrd_session_begin_statement(session, RRD_REPEATABLE_READ, 100, &error));
  DO(rrd_table_set_columns(table, chosen, FIELDS, locking, false, &error));
  free(chosen);
}

/* Places a scan; key images are as long as they say. */
static void seek(RrdTable *table, RrdSession *session, uint32_t index, RrdSeek where, const void *image, size_t bytes)
{
  uint8_t *key= exactly(image, bytes);
  DO(rrd_scan_open(table, session, index, &error));
  DO(rrd_scan_seek(table, where, key, bytes, NULL, 0, false, &error));
  free(key);
}

/* Reads on to the end, each blob to its last byte; the number of rows. */
static unsigned rest(RrdTable *table, RrdSession *session, bool backward, unsigned long *sum)
{
  unsigned count= 0;
  uint8_t *record= malloc(RECORD_BYTES);
  int status;
  CHECK(record);
  while ((status= rrd_scan_next(table, session, backward, record, &error)) == RRD_OK)
  {
    uint16_t bytes;
    const unsigned char *blob;
    memcpy(&bytes, record + NOTE, 2);
    memcpy(&blob, record + NOTE + 2, sizeof(blob));
    for (unsigned i= 0; !(record[0] & 2) && i < bytes; i++)
      *sum+= blob[i];
    count++;
  }
  EXPECT(RRD_END, status);
  rrd_scan_close(table);
  free(record);
  return count;
}

static void fill(RrdTable *table, RrdSession *session)
{
  begin(table, session, RRD_LOCK_EXCLUSIVE);
  for (uint32_t n= 0; n < ROWS; n++)
  {
    char name[NAME_MAX_BYTES + 1];
    name_of(n, name);
    DO(insert(table, session, row((int32_t) (n % 7) - 3, n, n % 5 ? n * 0.5 : -1, name, n % 3 ? name : NULL),
              RRD_INSERT_FAIL));
  }
  DO(rrd_session_commit(session, &error));
}

static void read_all_ways(RrdTable *table, RrdSession *session)
{
  unsigned long there= 0, back= 0, none= 0;
  const int32_t series= 2;
  const uint8_t name[14]= {6, 0, 'n', 'a', 'm', 'e', '-', '7'};
  RrdTableStats stats;
  uint64_t rows;
  for (RrdLocking locking= RRD_LOCK_NONE; locking <= RRD_LOCK_EXCLUSIVE; locking++)
  {
    begin(table, session, locking);
    seek(table, session, RRD_CLUSTERING_KEY, RRD_SEEK_FIRST, "", 0);
    CHECK(rest(table, session, false, &there) == ROWS);
    seek(table, session, RRD_CLUSTERING_KEY, RRD_SEEK_END, "", 0);
    CHECK(rest(table, session, true, &back) == ROWS && there == back);
    seek(table, session, RRD_CLUSTERING_KEY, RRD_SEEK_EXACT, &series, sizeof(series));
    CHECK(rest(table, session, false, &none) == (ROWS + 1) / 7);
    seek(table, session, 0, RRD_SEEK_EXACT, name, sizeof(name));
    CHECK(rest(table, session, false, &none) == (ROWS - 7) / 997 + 1);
    seek(table, session, 0, RRD_SEEK_LAST, name, sizeof(name));
    CHECK(rest(table, session, true, &none) == (ROWS - 7) / 997 + 1);
    DO(rrd_session_rollback(session, &error));
    rrd_table_reset(table);
  }
  DO(rrd_table_stats(table, &stats, &error));
  CHECK(stats.rows == ROWS);
  DO(rrd_table_rows_between(table, 0, name, sizeof(name), true, NULL, 0, false, &rows, &error));
}

/* Duplicates, changes, marks, a lock that another session holds, a KILL. */
static void change(const RrdEngine *engine, RrdTable *table, RrdSession *session)
{
  const int32_t key[2]= {-3, 0};
  uint8_t *found= malloc(RECORD_BYTES), *image= exactly(key, sizeof(key)), *changed;
  RrdSession *other= NULL;
  uint64_t mark;
  unsigned long sum= 0;
  CHECK(found);
  begin(table, session, RRD_LOCK_EXCLUSIVE);
  EXPECT(RRD_DUPLICATE, insert(table, session, row(-3, 0, 1, "again", "a note"), RRD_INSERT_FAIL));
  rrd_row_duplicate(table, found);
  CHECK(!memcmp(found + NAME, "\5again", 6));
  EXPECT(RRD_DUPLICATE, insert(table, session, row(-3, 0, 1, "again", "a note"), RRD_INSERT_REPLACE));
  DO(rrd_row_in_the_way(table, session, found, &error));
  DO(rrd_session_savepoint(session, &mark, &error));
  DO(rrd_row_read(table, session, image, sizeof(key), found, &error));
  changed= row(-3, 4000000, 2.5, "moved", "to another place");
  DO(rrd_row_update(table, session, found, changed, &error));
  EXPECT(RRD_NOT_FOUND, rrd_row_read(table, session, image, sizeof(key), found, &error));
  DO(rrd_row_delete(table, session, changed, &error));
  drop_row(changed);
  DO(rrd_session_rollback_to(session, mark, &error));
  DO(rrd_session_release(session, mark, &error));
  DO(rrd_row_read(table, session, image, sizeof(key), found, &error));

  DO(rrd_session_open(engine, &is_killed, 2, killed, NULL, &other, &error));
  begin(table, other, RRD_LOCK_EXCLUSIVE);
  EXPECT(RRD_LOCK_TIMEOUT, rrd_row_read(table, other, image, sizeof(key), found, &error));
  is_killed= 1;
  rrd_engine_wake(engine, rrd_session_id(other));
  EXPECT(RRD_INTERRUPTED, rrd_row_read(table, other, image, sizeof(key), found, &error));
  is_killed= 0;
  rrd_session_close(other);

  DO(rrd_row_delete(table, session, found, &error));
  DO(rrd_session_commit(session, &error));
  begin(table, session, RRD_LOCK_NONE);
  seek(table, session, RRD_CLUSTERING_KEY, RRD_SEEK_FIRST, "", 0);
  CHECK(rest(table, session, false, &sum) == ROWS - 1);
  DO(insert(table, session, row(-3, 0, -1, "name-0", NULL), RRD_INSERT_FAIL));
  DO(rrd_session_commit(session, &error));
  free(found);
  free(image);
}

/* A statement of many rows, a commit in two phases, a span of time. */
static void in_bulk(const RrdEngine *engine, RrdTable *table, RrdSession *session)
{
  const RrdText xid= text("a transaction's name");
  uint8_t *low= row(0, 5000000, 0, "", NULL);
  uint64_t deleted= 0;
  begin(table, session, RRD_LOCK_EXCLUSIVE);
  DO(rrd_bulk_begin(table, session, &error));
  for (uint32_t n= 0; n < BULK_ROWS; n++)
    DO(insert(table, session, row(9, 5000000 + n, n, "bulk", "many rows of one statement, each with a note of some length"),
              RRD_INSERT_FAIL));
  DO(rrd_bulk_end(table, session, &error));
  DO(rrd_session_prepare(session, &xid, true, &error));
  DO(rrd_session_order_commit(session, &error));
  DO(rrd_session_commit(session, &error));
  DO(rrd_engine_checkpoint(engine, &error));
  begin(table, session, RRD_LOCK_EXCLUSIVE);
  const int status= rrd_table_delete_times(table, session, low, true, NULL, false, &deleted, &error);
  CHECK(status == RRD_OK || status == RRD_UNSUPPORTED);
  if (status == RRD_UNSUPPORTED)
  {
    const int32_t series= 9;
    uint8_t *record= malloc(RECORD_BYTES);
    CHECK(record);
    seek(table, session, RRD_CLUSTERING_KEY, RRD_SEEK_EXACT, &series, sizeof(series));
    for (; rrd_scan_next(table, session, false, record, &error) == RRD_OK; deleted++)
      DO(rrd_row_delete(table, session, record, &error));
    rrd_scan_close(table);
    free(record);
  }
  CHECK(deleted == BULK_ROWS);
  DO(rrd_session_commit(session, &error));
  drop_row(low);
}

static int32_t go_on(void *context, uint64_t done, uint64_t total)
{
  (void) context, (void) done, (void) total;
  return 0;
}

static void count_text(void *context, const char *words, size_t length)
{
  for (size_t i= 0; i < length; i++)
    *(unsigned long *) context+= (unsigned char) words[i];
}

static void count_value(void *context, const char *name, size_t length, uint64_t value)
{
  (void) value;
  count_text(context, name, length);
}

static bool wanted(void *context, const char *name, size_t length)
{
  count_text(context, name, length);
  return true;
}

static bool take_cells(void *context, const RrdCell *cells, size_t count)
{
  for (size_t i= 0; i < count; i++)
    if (cells[i].kind == RRD_CELL_TEXT)
      count_text(context, cells[i].text.data, cells[i].text.length);
  return false;
}

static bool never(void *context)
{
  (void) context;
  return false;
}

static void look_around(const RrdEngine *engine, RrdTable *table)
{
  unsigned long findings= 0, sum= 0;
  const RrdInfoReader reader= {&sum, wanted, take_cells, count_text, never};
  DO(rrd_table_optimize(table, go_on, NULL, &error));
  DO(rrd_table_check(table, false, go_on, count_text, &findings, &error));
  DO(rrd_table_repair(table, go_on, count_text, &findings, &error));
  CHECK(!findings);
  for (RrdView view= RRD_VIEW_TABLES; view <= RRD_VIEW_COLUMNS; view++)
  {
    RrdInfoColumn column;
    for (size_t n= 0; rrd_info_column(view, n, &column); n++)
      sum+= strlen(column.name);
    DO(rrd_info_read(engine, view, true, &reader, &error));
  }
  rrd_engine_counters(engine, count_value, &sum);
  rrd_engine_report(engine, count_text, &sum);
  CHECK(sum);
}

static void back_up(const RrdEngine *engine, const char *folder)
{
  char path[4096];
  RrdBackup *backup= NULL;
  RrdBackupReport report;
  snprintf(path, sizeof(path), "%s-backup", folder);
  DO(rrd_backup_begin(engine, text(path), text(""), &backup, &error));
  DO(rrd_backup_finish(backup, go_on, NULL, &report, &error));
  CHECK(report.tables == 1);
}

/* A second index, given up once and then made. */
static void alter(const RrdTable *table)
{
  const uint32_t numbers[FIELDS]= {0, 1, 2, 3, 4};
  Definition both= define(2);
  uint64_t fallen= 0;
  bool is_all= false;
  for (int is_wanted= 0; is_wanted < 2; is_wanted++)
  {
    RrdAlter *it= NULL;
    bool builds= false;
    DO(rrd_alter_begin(table, &both.of, numbers, both.defaults, text("an id"), 0, &it, &builds, &error));
    CHECK(builds);
    DO(rrd_alter_build(it, go_on, NULL, &error));
    if (is_wanted)
      DO(rrd_alter_commit(&it, 1, NULL, NULL, NULL, &fallen, &is_all, &error));
    rrd_alter_close(it);
  }
  forget(&both);
}

static RrdEngine *open_engine(const char *folder)
{
  const RrdConfig config= {.directory= text(folder), .memtable_bytes= 1 << 20, .cache_bytes= 64 << 20};
  RrdEngine *engine= NULL;
  DO(rrd_engine_open(&config, &engine, &error));
  return engine;
}

static RrdTable *open_table(const RrdEngine *engine, const char *name, size_t indexes)
{
  RrdTable *table= NULL;
  Definition definition= define(indexes);
  DO(rrd_table_open(engine, text(name), &definition.of, &table, &error));
  forget(&definition);
  return table;
}

static void first_life(const char *folder)
{
  RrdEngine *engine= open_engine(folder);
  RrdSession *session= NULL;
  RrdTable *table;
  Definition definition= define(1);
  DO(rrd_table_create(engine, text("db/t"), &definition.of, &error));
  EXPECT(RRD_TABLE_EXISTS, rrd_table_create(engine, text("db/t"), &definition.of, &error));
  forget(&definition);
  table= open_table(engine, "db/t", 1);
  DO(rrd_session_open(engine, &is_killed, 1, killed, NULL, &session, &error));
  fill(table, session);
  read_all_ways(table, session);
  change(engine, table, session);
  in_bulk(engine, table, session);
  look_around(engine, table);
  read_all_ways(table, session);
  alter(table);
  back_up(engine, folder);
  rrd_table_close(table);
  rrd_session_close(session);
  DO(rrd_engine_close(engine, &error));
}

static void second_life(const char *folder)
{
  const double value= 3;
  uint8_t image[9]= {0};
  unsigned long sum= 0;
  RrdEngine *engine= open_engine(folder);
  RrdSession *session= NULL;
  RrdTable *table= open_table(engine, "db/t", 2);
  DO(rrd_session_open(engine, &is_killed, 1, killed, NULL, &session, &error));
  read_all_ways(table, session);
  begin(table, session, RRD_LOCK_SHARED);
  memcpy(image + 1, &value, sizeof(value));
  seek(table, session, 1, RRD_SEEK_EXACT, image, sizeof(image));
  CHECK(rest(table, session, false, &sum) == 1);
  /* Left open on purpose: closing the session rolls back. */
  DO(insert(table, session, row(100, 1, 1, "", NULL), RRD_INSERT_FAIL));
  rrd_table_close(table);
  rrd_session_close(session);
  DO(rrd_table_rename(engine, text("db/t"), text("db/u"), &error));
  DO(rrd_table_truncate(engine, text("db/u"), &error));
  DO(rrd_table_drop(engine, text("db/u"), false, &error));
  EXPECT(RRD_NO_SUCH_TABLE, rrd_table_drop(engine, text("db/u"), false, &error));
  DO(rrd_database_drop(engine, text("db/"), &error));
  DO(rrd_engine_close(engine, &error));
}

int main(int argc, char **argv)
{
  if (argc != 2)
  {
    fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
    return 2;
  }
  first_life(argv[1]);
  second_life(argv[1]);
  printf("the C ABI did what it promises\n");
  return 0;
}
