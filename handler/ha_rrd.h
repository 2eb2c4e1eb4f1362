/*
  The handler: one object for each use of a table by a statement.

  Each method translates its arguments, calls the store (crates/ffi) and maps the status. What the store keeps
  for the handler (scan, buffers) lives behind `m_table`.
*/
#ifndef HA_RRD_H
#define HA_RRD_H

#include <memory>
#include <string>
#include <vector>

#include "connection.h"
#include "rrd.h"
#include "sequence.h"
#include "server.h"

struct Rrd_table_closer
{
  void operator()(RrdTable *table) const { rrd_table_close(table); }
};

class ha_rrd final : public handler
{
public:
  ha_rrd(handlerton *hton, TABLE_SHARE *share) : handler(hton, share) { m_error= RrdError(); }

  /* What the engine can do. */
  Table_flags table_flags() const override;
  ulong index_flags(uint index, uint part, bool all_parts) const override;
  const char *index_type(uint) override { return "BTREE"; }
  uint max_supported_keys() const override { return MAX_KEY; }
  uint max_supported_key_length() const override { return max_key_bytes; }
  uint max_supported_key_part_length() const override { return max_key_bytes; }
  uint8 table_cache_type() override { return HA_CACHE_TBL_NOCACHE; }
  const key_map *keys_to_use_for_scanning() override { return &key_map_full; }

  /* ALTER TABLE without a copy: ha_rrd_alter.cc. */
  enum_alter_inplace_result check_if_supported_inplace_alter(TABLE *altered,
                                                             Alter_inplace_info *info) override;
  bool prepare_inplace_alter_table(TABLE *altered, Alter_inplace_info *info) override;
  bool inplace_alter_table(TABLE *altered, Alter_inplace_info *info) override;
  bool commit_inplace_alter_table(TABLE *altered, Alter_inplace_info *info, bool commit) override;
  bool check_if_incompatible_data(HA_CREATE_INFO *info, uint changes) override;
  bool can_convert_nocopy(const Field &field, const Column_definition &type) const override;
  Compare_keys compare_key_parts(const Field &field, const Column_definition &type, const KEY_PART_INFO &part,
                                 const KEY_PART_INFO &now) const override;

  /* Tables: ha_rrd_ddl.cc. */
  int create(const char *name, TABLE *form, HA_CREATE_INFO *info) override;
  int delete_table(const char *name) override;
  int rename_table(const char *from, const char *to) override;
  int truncate() override;

  /* Opening, statements, errors: ha_rrd.cc. */
  int open(const char *name, int mode, uint test_if_locked) override;
  int close() override;
  int reset() override;
  uint lock_count() const override { return 0; }
  THR_LOCK_DATA **store_lock(THD *thd, THR_LOCK_DATA **to, enum thr_lock_type type) override;
  int external_lock(THD *thd, int type) override;
  int start_stmt(THD *thd, thr_lock_type type) override;
  void print_error(int error, myf flags) override;
  bool get_error_message(int error, String *text) override;

  /* Figures and upkeep: ha_rrd_info.cc. */
  int info(uint what) override;
  void update_create_info(HA_CREATE_INFO *create_info) override;
  double scan_time() override;
  double read_time(uint index, uint ranges, ha_rows rows) override;
  double keyread_time(uint index, uint ranges, ha_rows rows) override;
  ha_rows records_in_range(uint index, const key_range *low, const key_range *high, page_range *pages) override;
  int check(THD *thd, HA_CHECK_OPT *options) override;
  int repair(THD *thd, HA_CHECK_OPT *options) override;
  int optimize(THD *thd, HA_CHECK_OPT *options) override;
  int analyze(THD *thd, HA_CHECK_OPT *options) override;

  /* Reading: ha_rrd_read.cc. */
  int rnd_init(bool scan) override;
  int rnd_end() override;
  int rnd_next(uchar *record) override;
  int rnd_pos(uchar *record, uchar *position) override;
  int rnd_pos_by_record(uchar *record) override;
  void position(const uchar *record) override;
  int cmp_ref(const uchar *a, const uchar *b) override;
  int index_init(uint index, bool sorted) override;
  int index_end() override;
  int index_read_map(uchar *record, const uchar *key, key_part_map parts, enum ha_rkey_function find) override;
  int index_read_last_map(uchar *record, const uchar *key, key_part_map parts) override;
  int index_next(uchar *record) override;
  int index_next_same(uchar *record, const uchar *key, uint bytes) override;
  int index_prev(uchar *record) override;
  int index_first(uchar *record) override;
  int index_last(uchar *record) override;
  int read_range_first(const key_range *start, const key_range *end, bool is_equal, bool sorted) override;
  void unlock_row() override;
  void try_semi_consistent_read(bool yes) override;
  bool was_semi_consistent_read() override;

  /* Writing: ha_rrd_write.cc. */
  int extra(enum ha_extra_function operation) override;
  int write_row(const uchar *record) override;
  int update_row(const uchar *old_record, const uchar *new_record) override;
  int delete_row(const uchar *record) override;
  void start_bulk_insert(ha_rows rows, uint flags) override;
  int end_bulk_insert() override;
  void get_auto_increment(ulonglong offset, ulonglong increment, ulonglong wanted, ulonglong *first,
                          ulonglong *reserved) override;
  int reset_auto_increment(ulonglong value) override;

  /* Conditions of scans: ha_rrd_conditions.cc. */
  const COND *cond_push(const COND *condition) override;
  void cond_pop() override { m_deletes_times= false; }

  /* DELETE by chunk: ha_rrd_delete.cc. */
  int direct_delete_rows_init() override;
  int direct_delete_rows(ha_rows *deleted) override;

  /* Aggregates in the engine: group_by.cc. */
  RrdTable *store() { return m_table.get(); }
  RrdSession *session();
  uchar *table_record() { return table->record[0]; }
  bool locks_rows() const { return m_locking != RRD_LOCK_NONE; }

private:
  static const uint max_key_bytes= 3072;

  bool is_tier() const;
  bool is_sequence() const { return table_share->sequence != nullptr; }
  int written(int status);
  bool has_key() const { return table_share->primary_key != MAX_KEY; }
  const KEY *key() const { return table->key_info + table_share->primary_key; }
  int result(int status) { return likely(status == RRD_OK) ? 0 : failure(); }
  int failure();
  uint32_t secondary(uint index) const;
  const COND *push_span(const COND *condition);
  bool narrow_span(const COND *condition, Field *time);
  bool compare_span(Field *time, Item *value, int operation);
  int wait_for_workers_before();
  int wait_for_missing_row(bool *is_over);
  int lock_checked_key(const uchar *image, uint bytes, enum ha_rkey_function flag);
  int seek_after_earlier_workers(uchar *record, int failed);
  void warn_refused_rows();
  int duplicate(int status);
  int duplicate_of_new(int status, uchar *record, bool is_found_late);
  RrdInsert insert_mode() const;
  int begin_alter(TABLE *altered, const Alter_inplace_info *info, RrdAlter **alter, bool *builds_indexes);
  void use_up_auto_increment();
  void raise_auto_increment(Field *field);
  void copy_key(uchar *image, const uchar *record);
  int choose_columns();
  int open_scan(uint index= MAX_KEY);
  int seek(RrdSeek where, const uchar *key= nullptr, uint bytes= 0);
  int step(bool backward, uchar *record);
  int open_store(const char *name);
  int enter_statement(THD *thd);
  int check_use_of_tier(THD *thd, bool is_written);
  void fill_statistics(const RrdTableStats &found, uint what);

  std::unique_ptr<RrdTable, Rrd_table_closer> m_table;
  /* Records of the rows that m_table's scan comes to next. */
  RrdAhead *m_ahead= nullptr;
  /* Of a tier: keeps the engine loaded, which the server knows only the engine of tiers to be used from. */
  plugin_ref m_engine= nullptr;
  /* The store's name for it: of a partition, not that of the whole table as in table_share. */
  std::string m_name;
  RrdError m_error;
  /* Numbers of the stored fields, and those that the current scan reads. */
  std::vector<uint32_t> m_stored, m_chosen;
  /* Used instead of the connection's session when the table is a sequence. */
  Rrd_sequence_session m_sequence;
  /* Where the row in the way of a duplicate is read to. */
  std::vector<uchar> m_other_record;
  /* The end of the range that read_range_first() asked for. */
  const key_range *m_range_end= nullptr;
  /* Rows that the statement took AUTO_INCREMENT values for at first and has not written yet. */
  ulonglong m_counted= 0;
  /* Where the values end that the statement took, 0 for none; and the series that values were last taken of. */
  uint64_t m_counted_to= 0;
  ulonglong m_offset= 0, m_increment= 1;
  /* The span of time that a DELETE is for: records with its ends, empty for open, and whether an end goes too. */
  std::vector<uchar> m_low, m_high;
  bool m_low_goes= false, m_high_goes= false, m_is_empty_span= false;
  bool m_deletes_times= false;
  uint m_duplicate_key= MAX_KEY;
  /* What reads do about row locks: as the statement asked, and as its isolation level has it. */
  RrdLocking m_asked_locking= RRD_LOCK_NONE;
  RrdLocking m_locking= RRD_LOCK_NONE;
  bool m_skips_locked= false;
  /* The key that a replica's worker, or HANDLER, looks for by index_read_map(); and whether HANDLER is to end with it. */
  std::vector<uchar> m_sought_key;
  bool m_stays_at_key= false;
  /* It has waited for the workers before it, and looks for the row once more. */
  bool m_has_waited= false;
  /* A replica was told that it has found a row which is behind the horizon. */
  bool m_is_behind_horizon= false;
  bool m_is_bulk= false;
  /* The statement writes many rows, and will say when it is through. */
  bool m_has_many_rows= false;
  /* The statement updates rows, perhaps to where they are refused: its scan's end is the time to say so. */
  bool m_has_moved_rows= false;
  bool m_ignores_duplicates= false;
  bool m_replaces_duplicates= false;
  bool m_updates_duplicates= false;
};

/* Handlerton functions; ha_rrd_ddl.cc, ha_rrd_alter.cc. */
int rrd_drop_table(handlerton *hton, const char *path);
int rrd_check_version(handlerton *hton, const char *path, const LEX_CUSTRING *version, ulonglong create_id);
void rrd_drop_database(handlerton *hton, char *path);

#endif
