/*
  The handler's life: opening and closing, the start of statements, and how errors reach the user.

  Locking is by row, in the store; the server's table locks are not used (lock_count() is 0), metadata locks do
  what LOCK TABLES needs.
*/
#include "ha_rrd.h"

#include "definition.h"
#include "engine.h"
#include "errors.h"
#include "losses.h"
#include "replication.h"
#include "tiers.h"

handler::Table_flags ha_rrd::table_flags() const
{
  const Table_flags flags=
    HA_REC_NOT_IN_SEQ | HA_PARTIAL_COLUMN_READ | HA_TABLE_SCAN_ON_INDEX | HA_NULL_IN_KEY | HA_CAN_INDEX_BLOBS |
    HA_PRIMARY_KEY_IN_READ_INDEX | HA_PRIMARY_KEY_REQUIRED_FOR_POSITION | HA_CAN_SQL_HANDLER |
    HA_CAN_VIRTUAL_COLUMNS | HA_CAN_GEOMETRY | HA_CAN_ONLINE_BACKUPS | HA_CAN_REPAIR | HA_ONLINE_ANALYZE |
    HA_CONCURRENT_OPTIMIZE | HA_DUPLICATE_POS | HA_AUTO_PART_KEY | HA_CAN_DIRECT_UPDATE_AND_DELETE |
    HA_CAN_SKIP_LOCKED | HA_CAN_TABLES_WITHOUT_ROLLBACK | HA_CAN_TABLE_CONDITION_PUSHDOWN;
  return flags | rrd_binlog_flags(ha_thd());
}

ulong ha_rrd::index_flags(uint index, uint part, bool all_parts) const
{
  const ulong flags= HA_READ_NEXT | HA_READ_PREV | HA_READ_ORDER | HA_READ_RANGE;
  if (index == table_share->primary_key)
    return flags | HA_KEYREAD_ONLY | HA_CLUSTERED_INDEX;
  const KEY *key= table_share->key_info + index;
  bool is_readable= true;
  for (uint i= all_parts ? 0 : part; i <= part && i < key->user_defined_key_parts; i++)
    is_readable&= rrd_is_read_from_index(key->key_part + i);
  return is_readable ? flags | HA_KEYREAD_ONLY : flags;
}

/* The number by which the store knows a key that is not the clustering key: its place among those. */
uint32_t ha_rrd::secondary(uint index) const
{
  if (index == MAX_KEY || index == table_share->primary_key)
    return RRD_CLUSTERING_KEY;
  return index > table_share->primary_key ? index - 1 : index;
}

bool ha_rrd::is_tier() const { return ht == rrd_tier_hton; }

int ha_rrd::open(const char *name, int, uint)
{
  if (is_tier() && (!rrd_engine || !(m_engine= ha_lock_engine(nullptr, rrd_hton))))
    return HA_ERR_UNSUPPORTED;
  const int failed= open_store(name);
  if (failed)
    close();
  return failed;
}

int ha_rrd::open_store(const char *name)
{
  const Rrd_definition definition(table);
  const RrdTableDefinition raw= definition.raw();
  m_name= is_tier() ? rrd_tier_name(name) : rrd_table_name(name);
  RrdTable *opened= nullptr;
  int status= rrd_table_open(rrd_engine, rrd_text(m_name), &raw, &opened, &m_error);
  if (status == RRD_DEFINITION_CHANGED && !is_tier())
  {
    /* The server would take its own number for this as a reason to remove the definition file and look for another. */
    rrd_report(m_error);
    return HA_ERR_GENERIC;
  }
  if (status != RRD_OK)
    return rrd_ha_error(status);
  m_table.reset(opened);
  m_ahead= rrd_table_ahead(opened);
  m_stored= definition.numbers();
  /* An UPDATE of the key must not meet, further on in its scan, the rows that it has moved there. */
  key_used_on_scan= table_share->primary_key;
  ref_length= has_key() ? key()->key_length : sizeof(uint64_t);
  return info(HA_STATUS_NO_LOCK | HA_STATUS_VARIABLE | HA_STATUS_CONST);
}

int ha_rrd::close()
{
  m_table.reset();
  if (m_engine)
    plugin_unlock(nullptr, m_engine);
  m_engine= nullptr;
  return 0;
}

int ha_rrd::reset()
{
  if (m_is_bulk)
    end_bulk_insert();
  if (m_has_many_rows || m_has_moved_rows)
    rrd_forget_losses(session());
  m_has_many_rows= m_has_moved_rows= false;
  m_ignores_duplicates= m_replaces_duplicates= m_updates_duplicates= false;
  m_deletes_times= false;
  m_range_end= nullptr;
  m_counted= m_counted_to= 0;
  rrd_table_reset(store());
  m_sequence.close();
  return 0;
}

RrdSession *ha_rrd::session()
{
  if (is_sequence())
    return m_sequence.begin(ha_thd(), &m_error) == RRD_OK ? m_sequence.session() : nullptr;
  Rrd_connection *connection= Rrd_connection::of(ha_thd());
  return connection ? connection->session() : nullptr;
}

/* What a statement's way of using a table means for the rows that it reads. */
static RrdLocking locking(thr_lock_type type)
{
  if (type >= TL_FIRST_WRITE)
    return RRD_LOCK_EXCLUSIVE;
  return type == TL_READ_WITH_SHARED_LOCKS || type == TL_READ_SKIP_LOCKED ? RRD_LOCK_SHARED : RRD_LOCK_NONE;
}

THR_LOCK_DATA **ha_rrd::store_lock(THD *, THR_LOCK_DATA **to, enum thr_lock_type type)
{
  if (type != TL_IGNORE)
  {
    m_asked_locking= locking(type);
    m_skips_locked= type == TL_READ_SKIP_LOCKED || type == TL_WRITE_SKIP_LOCKED;
  }
  return to;
}

int ha_rrd::enter_statement(THD *thd)
{
  if (is_sequence())
  {
    /* The server's own lock on the sequence keeps its writers apart. */
    m_locking= m_asked_locking;
    return result(m_sequence.begin(thd, &m_error));
  }
  /* Nobody writes to a tier: there is nothing to lock. */
  if (is_tier())
    m_asked_locking= RRD_LOCK_NONE;
  const bool as_text= !is_tier() && rrd_is_repeated_as_text(thd, table_share);
  const bool only_inserts= m_asked_locking == RRD_LOCK_EXCLUSIVE && rrd_only_inserts(thd);
  m_locking= m_asked_locking;
  if (m_locking == RRD_LOCK_NONE && as_text)
    m_locking= RRD_LOCK_EXCLUSIVE;
  if (m_locking == RRD_LOCK_NONE && !is_tier() && rrd_locks_plain_reads(thd))
    m_locking= RRD_LOCK_SHARED;
  Rrd_connection *connection= Rrd_connection::of(thd);
  if (!connection)
    return HA_ERR_OUT_OF_MEM;
  int failed= connection->begin_statement(thd);
  if (unlikely(inited != NONE))
    rrd_scan_keep(store());
  if (!failed && as_text)
    failed= result(rrd_session_lock_table(connection->session(), store(), only_inserts, &m_error));
  return failed;
}

/* Whether a statement, from the moment it locks a table, relies on nobody's changing the table's rows. */
static bool is_alone(enum_sql_command command, int type)
{
  return command == SQLCOM_ALTER_TABLE || command == SQLCOM_CREATE_INDEX || command == SQLCOM_DROP_INDEX ||
         (command == SQLCOM_LOCK_TABLES && type == F_WRLCK);
}

int ha_rrd::external_lock(THD *thd, int type)
{
  if (type == F_UNLCK)
  {
    if (is_sequence())
    {
      rrd_table_reset(store());
      m_sequence.close();
    }
    return 0;
  }
  if (type == F_WRLCK)
    m_asked_locking= RRD_LOCK_EXCLUSIVE;
  if (is_tier())
  {
    if (int refused= check_use_of_tier(thd, type == F_WRLCK))
      return refused;
  }
  else if (is_alone(thd->lex->sql_command, type))
  {
    if (int failed= rrd_wait_for_prepared(thd, m_name))
      return failed;
  }
  return enter_statement(thd);
}

/* What a statement may do to a tier: read it, or what a dump that is being restored says, which does nothing. */
int ha_rrd::check_use_of_tier(THD *thd, bool is_written)
{
  const enum_sql_command command= thd->lex->sql_command;
  if (command == SQLCOM_CREATE_TRIGGER)
    return rrd_refuse_change_of_tier(m_name, "given a trigger");
  /* The server shows nothing else here of an ALTER TABLE that changes the engine. */
  const bool is_altered= command == SQLCOM_ALTER_TABLE, is_locked= command == SQLCOM_LOCK_TABLES;
  if (!is_written && !is_altered)
    return 0;
  const bool is_of_dump= is_altered || is_locked || thd->slave_thread || rrd_only_inserts(thd);
  if (!is_of_dump || !rrd_restores_tier(thd, m_name))
    return rrd_refuse_change_of_tier(m_name, is_written ? "written or locked" : "altered");
  if (!is_locked)
    rrd_keep_out_of_binlog(thd);
  return 0;
}

/* A statement under LOCK TABLES, where external_lock() came with the lock. */
int ha_rrd::start_stmt(THD *thd, thr_lock_type type)
{
  store_lock(thd, nullptr, type);
  if (is_tier())
    if (int refused= check_use_of_tier(thd, type >= TL_FIRST_WRITE))
      return refused;
  return enter_statement(thd);
}

int ha_rrd::failure() { return rrd_fail(ha_thd(), m_error); }

/* Where the store's own text says more than the server's, users see that. */
void ha_rrd::print_error(int error, myf flags)
{
  if (m_error.status != RRD_OK && rrd_ha_error(m_error.status) == error && rrd_sql_error(m_error.status) &&
      m_error.message[0])
    rrd_report(m_error, flags);
  else
    handler::print_error(error, flags);
}

bool ha_rrd::get_error_message(int, String *text)
{
  /* The server would put it behind its own text for these, without a space. */
  const bool is_temporary= m_error.status == RRD_LOCK_TIMEOUT || m_error.status == RRD_CONFLICT;
  if (!is_temporary)
    text->append(m_error.message, strlen(m_error.message));
  return is_temporary;
}
