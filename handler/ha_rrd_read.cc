/*
  Reading: scans, index reads, rows by position.

  The position of a row is its primary key as a key image, or the 8 bytes of its hidden number. Only the columns
  that the statement reads are asked for, but statements that write get them all: a row is written as a whole.
*/
#include "ha_rrd.h"

#include "errors.h"
#include "replication.h"

int ha_rrd::choose_columns()
{
  m_chosen.clear();
  for (uint32_t number : m_stored)
    if (m_locking == RRD_LOCK_EXCLUSIVE || bitmap_is_set(table->read_set, number))
      m_chosen.push_back(number);
  return rrd_table_set_columns(store(), m_chosen.data(), m_chosen.size(), m_locking, m_skips_locked, &m_error);
}

int ha_rrd::open_scan(uint index)
{
  int status= choose_columns();
  if (status == RRD_OK)
    status= rrd_scan_open(store(), session(), secondary(index), &m_error);
  return result(status);
}

int ha_rrd::seek(RrdSeek where, const uchar *key, uint bytes)
{
  const key_range *limit= m_range_end;
  return rrd_scan_seek(store(), where, key, bytes, limit ? limit->key : nullptr, limit ? limit->length : 0,
                       limit && limit->flag == HA_READ_AFTER_KEY, &m_error);
}

/* Copies what does not overlap. A call of memcpy for each row takes longer than the copy. */
static inline void copy_record(uchar *to, const uchar *from, size_t length)
{
  constexpr size_t block= 32;
  if (length < block)
  {
    memcpy(to, from, length);
    return;
  }
  size_t at= 0;
  for (; at + block <= length; at+= block)
    memcpy(to + at, from + at, block);
  memcpy(to + length - block, from + length - block, block);
}

inline int ha_rrd::step(bool backward, uchar *record)
{
  const uchar *next= m_ahead->next;
  if (unlikely(next == m_ahead->end || m_ahead->is_backward != backward))
    return rrd_scan_next(store(), session(), backward, record, &m_error);
  const size_t length= m_ahead->length;
  copy_record(record, next, length);
  m_ahead->next= next + length;
  return RRD_OK;
}

/*
  A replica's worker begins when those before it are about to commit, and does not see what they do. They are waited
  for here: what they did is seen by what comes after.
*/
int ha_rrd::wait_for_workers_before()
{
  if (ha_thd()->wait_for_prior_commit())
    return HA_ERR_ABORTED_BY_USER;
  return result(rrd_session_wait_ordered(session(), &m_error));
}

/*
  What the workers before this one changed is locked, what they inserted is not always: a row that is not found may be
  theirs. Then they are waited for, and the search begins anew, once.
*/
int ha_rrd::wait_for_missing_row(bool *is_over)
{
  *is_over= m_has_waited || m_locking != RRD_LOCK_EXCLUSIVE || !rrd_applies_rows_in_parallel(ha_thd());
  if (*is_over)
    return 0;
  m_has_waited= true;
  return wait_for_workers_before();
}

int ha_rrd::rnd_init(bool scan)
{
  m_has_waited= false;
  if (!scan)
  {
    /* The server reads such a row once, and means it. */
    try_semi_consistent_read(false);
    return result(choose_columns());
  }
  if (int failed= open_scan())
    return failed;
  return result(seek(RRD_SEEK_FIRST));
}

int ha_rrd::rnd_end()
{
  if (m_has_moved_rows)
    warn_refused_rows();
  rrd_scan_close(store());
  return 0;
}

int ha_rrd::rnd_next(uchar *record)
{
  const int failed= result(step(false, record));
  bool is_over;
  if (likely(failed != HA_ERR_END_OF_FILE))
    return failed;
  if (int problem= wait_for_missing_row(&is_over))
    return problem;
  if (is_over)
    return failed;
  if (int problem= open_scan())
    return problem;
  int status= seek(RRD_SEEK_FIRST);
  return result(status == RRD_OK ? step(false, record) : status);
}

int ha_rrd::rnd_pos(uchar *record, uchar *position)
{
  int status= rrd_row_read(store(), session(), position, ref_length, record, &m_error);
  return status == RRD_NOT_FOUND ? HA_ERR_RECORD_DELETED : result(status);
}

/*
  A replica's row event for a row that has left the ring here: it is answered as if the row was there, and what
  follows changes nothing. The record stays as the event has it.
*/
int ha_rrd::rnd_pos_by_record(uchar *record)
{
  m_is_behind_horizon= false;
  bool is_over= false;
  int failed= handler::rnd_pos_by_record(record);
  if (failed == HA_ERR_KEY_NOT_FOUND)
    if (int problem= wait_for_missing_row(&is_over))
      return problem;
  if (failed == HA_ERR_KEY_NOT_FOUND && !is_over)
    failed= handler::rnd_pos_by_record(record);
  if (failed != HA_ERR_KEY_NOT_FOUND || !ha_thd()->slave_thread)
    return failed;
  int32_t is_behind= 0;
  if (int problem= result(rrd_row_is_behind_horizon(store(), ref, ref_length, &is_behind, &m_error)))
    return problem;
  m_is_behind_horizon= is_behind;
  return is_behind ? 0 : failed;
}

void ha_rrd::unlock_row() { rrd_row_unlock(store(), session()); }

void ha_rrd::try_semi_consistent_read(bool yes)
{
  rrd_scan_look_before_waiting(store(), yes && thd_tx_isolation(ha_thd()) <= ISO_READ_COMMITTED);
}

bool ha_rrd::was_semi_consistent_read() { return rrd_scan_is_looking(store()); }

/*
  The clustering key of a record, as an image. The server's key_copy() takes the odd bits of a BIT column from wherever the
  field points to, so that has to be this record.
*/
void ha_rrd::copy_key(uchar *image, const uchar *record)
{
  const my_ptrdiff_t offset= record - table->record[0];
  const KEY_PART_INFO *const first= key()->key_part, *const end= first + key()->user_defined_key_parts;
  for (const KEY_PART_INFO *part= first; offset && part != end; part++)
    part->field->move_field_offset(offset);
  key_copy(image, table->record[0], key(), 0, true);
  for (const KEY_PART_INFO *part= first; offset && part != end; part++)
    part->field->move_field_offset(-offset);
}

void ha_rrd::position(const uchar *record)
{
  if (has_key())
    copy_key(ref, record);
  else
    rrd_row_number(store(), reinterpret_cast<uint8_t (*)[8]>(ref), &m_error);
}

int ha_rrd::cmp_ref(const uchar *a, const uchar *b)
{
  if (!has_key())
    return memcmp(a, b, ref_length);
  const KEY_PART_INFO *part= key()->key_part, *end= part + key()->user_defined_key_parts;
  for (; part != end; part++)
  {
    const int order= part->field->key_cmp(a, b);
    if (order)
      return part->key_part_flag & HA_REVERSE_SORT ? -order : order;
    a+= part->store_length;
    b+= part->store_length;
  }
  return 0;
}

int ha_rrd::index_init(uint index, bool)
{
  m_has_waited= false;
  m_sought_key.clear();
  active_index= index;
  return open_scan(index);
}

int ha_rrd::index_end()
{
  if (m_has_moved_rows)
    warn_refused_rows();
  active_index= MAX_KEY;
  m_range_end= nullptr;
  rrd_scan_close(store());
  return 0;
}

struct Find
{
  enum ha_rkey_function flag;
  RrdSeek where;
  bool backward;
};

static const Find finds[]=
{
  {HA_READ_KEY_EXACT, RRD_SEEK_EXACT, false},
  {HA_READ_KEY_OR_NEXT, RRD_SEEK_AT_OR_AFTER, false},
  {HA_READ_AFTER_KEY, RRD_SEEK_AFTER, false},
  {HA_READ_PREFIX, RRD_SEEK_EXACT, false},
  {HA_READ_KEY_OR_PREV, RRD_SEEK_AT_OR_BEFORE, true},
  {HA_READ_BEFORE_KEY, RRD_SEEK_BEFORE, true},
  {HA_READ_PREFIX_LAST, RRD_SEEK_LAST, true},
  {HA_READ_PREFIX_LAST_OR_PREV, RRD_SEEK_AT_OR_BEFORE, true},
};

static const Find *find_for(enum ha_rkey_function flag)
{
  for (const Find &find : finds)
    if (find.flag == flag)
      return &find;
  return nullptr;
}

/*
  The server checks by itself that long texts are UNIQUE and that periods do not overlap: it looks along the index before it
  writes a row. Until this transaction ends no other one may do so with the same key, since it would not see the row.
*/
int ha_rrd::lock_checked_key(const uchar *image, uint bytes, enum ha_rkey_function flag)
{
  const KEY *index= table->key_info + active_index;
  const bool is_long= index->algorithm == HA_KEY_ALG_LONG_HASH;
  const bool is_period= index->without_overlaps && flag == HA_READ_AFTER_KEY;
  if (!is_long && !is_period)
    return 0;
  if (m_locking != RRD_LOCK_EXCLUSIVE || table_share->tmp_table != NO_TMP_TABLE)
    return 0;
  if (is_period)
  {
    /* The last two parts are the period's. */
    bytes= 0;
    for (uint i= 0; i + 2 < index->user_defined_key_parts; i++)
      bytes+= index->key_part[i].store_length;
  }
  int status= rrd_scan_lock_prefix(store(), session(), image, bytes, &m_error);
  return status == RRD_OK ? open_scan(active_index) : result(status);
}

int ha_rrd::index_read_map(uchar *record, const uchar *key, key_part_map parts, enum ha_rkey_function flag)
{
  const Find *find= find_for(flag);
  if (!find)
    return HA_ERR_WRONG_COMMAND;
  if (!key)
    return index_first(record);
  const uint bytes= calculate_key_len(table, active_index, key, parts);
  if (int failed= lock_checked_key(key, bytes, flag))
    return failed;
  m_sought_key.clear();
  if (unlikely(thd_sql_command(ha_thd()) == SQLCOM_HA_READ) && find->where == RRD_SEEK_EXACT)
    m_sought_key.assign(key, key + bytes);
  int status= seek(find->where, key, bytes);
  if (status == RRD_OK)
    status= step(find->backward, record);
  if (unlikely(rrd_applies_rows_in_parallel(ha_thd())))
  {
    m_has_waited= false;
    m_sought_key.assign(key, key + bytes);
    if (status == RRD_END)
      return seek_after_earlier_workers(record, HA_ERR_KEY_NOT_FOUND);
  }
  return status == RRD_END ? HA_ERR_KEY_NOT_FOUND : result(status);
}

/* Looks for the key once more, or returns `failed` if that is no use. */
int ha_rrd::seek_after_earlier_workers(uchar *record, int failed)
{
  bool is_over;
  if (m_sought_key.empty())
    return failed;
  if (int problem= wait_for_missing_row(&is_over))
    return problem;
  if (is_over)
    return failed;
  if (int problem= open_scan(active_index))
    return problem;
  int status= seek(RRD_SEEK_EXACT, m_sought_key.data(), (uint) m_sought_key.size());
  if (status == RRD_OK)
    status= step(false, record);
  return status == RRD_END ? failed : result(status);
}

int ha_rrd::index_read_last_map(uchar *record, const uchar *key, key_part_map parts)
{
  return index_read_map(record, key, parts, HA_READ_PREFIX_LAST);
}

int ha_rrd::index_next(uchar *record)
{
  int failed= result(step(false, record));
  if (likely(failed != HA_ERR_END_OF_FILE))
    return failed;
  failed= seek_after_earlier_workers(record, failed);
  const bool goes_on= !m_sought_key.empty() && !m_stays_at_key && thd_sql_command(ha_thd()) == SQLCOM_HA_READ;
  if (failed != HA_ERR_END_OF_FILE || !goes_on)
    return failed;
  /* The scan ends with the key that was looked up; HANDLER goes on behind it. */
  const std::vector<uchar> key= std::move(m_sought_key);
  m_sought_key.clear();
  const int status= seek(RRD_SEEK_AFTER, key.data(), (uint) key.size());
  return result(status == RRD_OK ? step(false, record) : status);
}

int ha_rrd::index_next_same(uchar *record, const uchar *key, uint bytes)
{
  m_stays_at_key= true;
  const int failed= handler::index_next_same(record, key, bytes);
  m_stays_at_key= false;
  return failed;
}

int ha_rrd::index_prev(uchar *record) { return result(step(true, record)); }

int ha_rrd::index_first(uchar *record)
{
  m_sought_key.clear();
  int status= seek(RRD_SEEK_FIRST);
  return result(status == RRD_OK ? step(false, record) : status);
}

int ha_rrd::index_last(uchar *record)
{
  m_sought_key.clear();
  int status= seek(RRD_SEEK_END);
  return result(status == RRD_OK ? step(true, record) : status);
}

/* Tells the store where the range ends, so that chunks behind it are not touched. */
int ha_rrd::read_range_first(const key_range *start, const key_range *end, bool is_equal, bool sorted)
{
  m_range_end= end;
  const int found= handler::read_range_first(start, end, is_equal, sorted);
  m_range_end= nullptr;
  return found;
}
