/*
  Writing: one call of the store for each row.

  A statement that inserts many rows is a bulk statement. Where a duplicate is an error, the store may check keys
  late and reports the duplicate with the row that it refused; IGNORE and REPLACE get their answer at once. REPLACE
  and ON DUPLICATE KEY UPDATE go on to read and change the row in the way, so that is locked.
*/
#include "ha_rrd.h"

#include "definition.h"
#include "engine.h"
#include "errors.h"
#include "losses.h"
#include "replication.h"
#include "tiers.h"

/* Fewer rows than this are not worth the sorting. */
static const ha_rows smallest_bulk= 16;

int ha_rrd::extra(enum ha_extra_function operation)
{
  switch (operation)
  {
  case HA_EXTRA_IGNORE_DUP_KEY:
    m_ignores_duplicates= true;
    break;
  case HA_EXTRA_WRITE_CAN_REPLACE:
    m_replaces_duplicates= true;
    break;
  case HA_EXTRA_WRITE_CANNOT_REPLACE:
    m_replaces_duplicates= false;
    break;
  case HA_EXTRA_INSERT_WITH_UPDATE:
    m_updates_duplicates= true;
    break;
  case HA_EXTRA_NO_IGNORE_DUP_KEY:
    m_ignores_duplicates= m_updates_duplicates= false;
    break;
  default:
    break;
  }
  return 0;
}

/* Tells what the statement was refused, within a transaction; else the commit does it. */
void ha_rrd::warn_refused_rows()
{
  m_has_moved_rows= false;
  if (rrd_is_multi_statement(ha_thd()))
    rrd_warn_losses(ha_thd(), session());
}

void ha_rrd::start_bulk_insert(ha_rows rows, uint)
{
  m_has_many_rows= true;
  const bool may_update= m_updates_duplicates || ha_thd()->lex->duplicates == DUP_UPDATE;
  /* A number that is counted within a prefix of the key depends on the rows before. */
  const bool counts_in_prefix= table->found_next_number_field && table_share->next_number_keypart;
  if (is_tier() || may_update || counts_in_prefix || table->triggers || (rows && rows < smallest_bulk))
    return;
  /* Keys that the workers before this one free are free here: each row has to wait for them. */
  if (rrd_is_parallel_worker(ha_thd()))
    return;
  m_is_bulk= rrd_bulk_begin(store(), session(), &m_error) == RRD_OK;
}

/* Whether the statement fills a table that it makes: a copying ALTER, or CREATE .. SELECT. */
static bool fills_new_table(const THD *thd)
{
  return thd->lex->sql_command == SQLCOM_ALTER_TABLE || thd->lex->sql_command == SQLCOM_CREATE_TABLE;
}

int ha_rrd::end_bulk_insert()
{
  const bool had_rows= m_has_many_rows;
  m_has_many_rows= false;
  warn_refused_rows();
  int failed= 0;
  if (m_is_bulk)
  {
    m_is_bulk= false;
    int status= rrd_bulk_end(store(), session(), &m_error);
    failed= status == RRD_DUPLICATE ? duplicate_of_new(status, table->record[0], true) : result(status);
  }
  if (had_rows && !failed && !is_tier() && fills_new_table(ha_thd()))
    failed= result(rrd_table_check_times(store(), session(), &m_error));
  /* LOAD DATA and ALTER TABLE look for the error there. */
  my_errno= failed;
  return failed;
}

/* Remembers which key it was. */
int ha_rrd::duplicate(int status)
{
  const uint place= m_error.index;
  m_duplicate_key= table_share->primary_key;
  if (place)
    m_duplicate_key= place - 1 < table_share->primary_key ? place - 1 : place;
  return rrd_ha_error(status);
}

/* Remembers which key it was, where the row in the way is, and shows the refused row to the server. */
int ha_rrd::duplicate_of_new(int status, uchar *record, bool is_found_late)
{
  const uint place= m_error.index;
  const int failed= duplicate(status);
  if (is_found_late)
    rrd_row_duplicate(store(), record);
  if (!dup_ref || (has_key() && !place))
  {
    if (dup_ref)
      copy_key(dup_ref, record);
    return failed;
  }
  m_other_record.resize(table_share->reclength);
  int found= rrd_row_in_the_way(store(), session(), m_other_record.data(), &m_error);
  if (found == RRD_NOT_FOUND)
  {
    const RrdInsert mode= insert_mode();
    if (mode != RRD_INSERT_REPLACE && mode != RRD_INSERT_UPDATE)
      return failed;
    /* It left a ring just now. The server would go on with the row of an earlier duplicate. */
    m_error.status= RRD_CONFLICT;
    return failure();
  }
  if (found != RRD_OK)
    return result(found);
  if (has_key())
    copy_key(dup_ref, m_other_record.data());
  else
    rrd_row_number(store(), reinterpret_cast<uint8_t (*)[8]>(dup_ref), &m_error);
  return failed;
}

/* The server tells by extra() what it will do with a duplicate, but not REPLACE on a table with triggers. */
RrdInsert ha_rrd::insert_mode() const
{
  if (m_updates_duplicates)
    return RRD_INSERT_UPDATE;
  if (m_replaces_duplicates || (m_ignores_duplicates && ha_thd()->lex->duplicates == DUP_REPLACE))
    return RRD_INSERT_REPLACE;
  return m_ignores_duplicates ? RRD_INSERT_IGNORE : RRD_INSERT_FAIL;
}

/*
  Values come from the table's counter, as many at once as the server asks for: statements take turns, none waits for
  another to end. A column that is not the first of its key is counted within the key before it, by a look at the rows.
*/
void ha_rrd::get_auto_increment(ulonglong offset, ulonglong increment, ulonglong wanted, ulonglong *first,
                                ulonglong *reserved)
{
  if (table_share->next_number_keypart)
  {
    handler::get_auto_increment(offset, increment, wanted, first, reserved);
    return;
  }
  /* After values of its own a statement asks again: for the rows that are left, behind its own values, as in InnoDB. */
  if (!m_counted)
    m_counted= MY_MAX(wanted, 1ULL);
  const RrdSeries series= {offset, increment, table->next_number_field->get_max_int_value()};
  uint64_t value= *first;
  *reserved= 0;
  if (rrd_auto_increment_take(store(), series, m_counted, &value, &m_counted_to, &m_error) != RRD_OK)
  {
    *first= ULONGLONG_MAX;
    return;
  }
  /* The server finds by itself that a value is beyond the largest: it is then that nothing was taken. */
  *first= value;
  if (!m_counted_to)
    return;
  *reserved= m_counted;
  m_offset= offset;
  m_increment= increment;
}

/* The counter goes on behind the value of this row, in the series that values were last taken of: as in InnoDB. */
void ha_rrd::raise_auto_increment(Field *field)
{
  const ulonglong used= (ulonglong) field->val_int(), max= field->get_max_int_value();
  if (used <= max)
    (void) rrd_auto_increment_raise(store(), {m_offset, m_increment, max}, used, &m_error);
}

/* A row that INSERT .. SELECT or LOAD DATA leaves out as a duplicate uses up the value that it has, as in InnoDB. */
void ha_rrd::use_up_auto_increment()
{
  const enum_sql_command command= ha_thd()->lex->sql_command;
  if (command == SQLCOM_INSERT_SELECT || (command == SQLCOM_LOAD && m_ignores_duplicates))
    raise_auto_increment(table->next_number_field);
}

int ha_rrd::reset_auto_increment(ulonglong value)
{
  return result(rrd_auto_increment_set(rrd_engine, rrd_text(m_name), value, &m_error));
}

/* The result of writing a row, which in a sequence is a transaction. */
int ha_rrd::written(int status)
{
  return result(status == RRD_OK && is_sequence() ? m_sequence.commit(&m_error) : status);
}

int ha_rrd::write_row(const uchar *record)
{
  /* A row of a dump that is being restored: the tier has it, from the table's rows. */
  if (is_tier())
    return 0;
  const bool is_counted= table->next_number_field && record == table->record[0];
  if (is_counted)
    if (int failed= update_auto_increment())
      return failed;
  if (is_counted && m_counted)
    m_counted--;
  const RrdInsert mode= insert_mode();
  int status= rrd_row_insert(store(), session(), record, mode, &m_error);
  if (unlikely(status == RRD_DUPLICATE) && rrd_is_parallel_worker(ha_thd()))
  {
    /* The row in the way may be one that the workers before this one remove: they are about to commit. */
    if (int failed= wait_for_workers_before())
      return failed;
    status= rrd_row_insert(store(), session(), record, mode, &m_error);
  }
  if (likely(status == RRD_OK))
  {
    /* With an increment of 1 the store does that by itself. */
    if (is_counted && m_increment > 1 && (ulonglong) table->next_number_field->val_int() >= m_counted_to)
      raise_auto_increment(table->next_number_field);
    if (!m_has_many_rows)
      warn_refused_rows();
    return written(status);
  }
  if (status != RRD_DUPLICATE)
    return result(status);
  const int failed= duplicate_of_new(status, const_cast<uchar *>(record), m_is_bulk && mode == RRD_INSERT_FAIL);
  if (is_counted && !table_share->next_number_keypart)
    use_up_auto_increment();
  return failed;
}

/*
  With HA_PARTIAL_COLUMN_READ the server leaves it to us to see that nothing changes. Its own comparison,
  compare_record(), looks at the bytes of NULLs too, which mean nothing.
*/
static bool is_changed(const TABLE *table)
{
  const my_ptrdiff_t old_record= table->record[1] - table->record[0];
  for (Field **field= table->field; *field; field++)
  {
    if (!rrd_is_stored(*field) || !bitmap_is_set(table->write_set, (*field)->field_index))
      continue;
    const bool is_null= (*field)->is_real_null();
    if (is_null != (*field)->is_real_null(old_record) || (!is_null && (*field)->cmp_binary_offset(old_record)))
      return true;
  }
  return false;
}

int ha_rrd::update_row(const uchar *old_record, const uchar *new_record)
{
  if (is_tier())
    return rrd_refuse_change_of_tier(m_name, "written or locked");
  if (m_is_behind_horizon)
  {
    /* The old row is gone; the new one may have a later time. */
    m_is_behind_horizon= false;
    return write_row(new_record);
  }
  if (!is_changed(table))
    return HA_ERR_RECORD_IS_THE_SAME;
  m_has_moved_rows= true;
  int status= rrd_row_update(store(), session(), old_record, new_record, &m_error);
  if (unlikely(status == RRD_DUPLICATE) && rrd_is_parallel_worker(ha_thd()))
  {
    if (int failed= wait_for_workers_before())
      return failed;
    status= rrd_row_update(store(), session(), old_record, new_record, &m_error);
  }
  /* The row that was read stays the current one: of a version that ends when another did the server deletes it. */
  if (status == RRD_DUPLICATE)
    return duplicate(status);
  Field *const counted= table->found_next_number_field;
  if (m_increment > 1 && status == RRD_OK && counted && bitmap_is_set(table->write_set, counted->field_index))
    raise_auto_increment(counted);
  return written(status);
}

int ha_rrd::delete_row(const uchar *record)
{
  if (is_tier())
    return rrd_refuse_change_of_tier(m_name, "written or locked");
  if (m_is_behind_horizon)
  {
    m_is_behind_horizon= false;
    return 0;
  }
  return result(rrd_row_delete(store(), session(), record, &m_error));
}
