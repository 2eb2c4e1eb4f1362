/*
  The formats of the binary log.

  Rows can always be logged. The text of a statement gives the same rows on a replica only if nothing that it
  reads changes between its execution and its commit. There are no gap locks, so the engine then takes a lock on
  each table as a whole (rrd_session_lock_table): that is the price of binlog_format=STATEMENT. MIXED lets the
  engine choose, and it chooses rows. A replica's parallel workers apply texts before the commits in front of
  them are done, so they need the same locks.
*/
#include "replication.h"

#include "rpl_gtid.h"
#include "rpl_rli.h"

/* The server has no header for it. */
extern "C" int thd_binlog_format(const MYSQL_THD thd);

handler::Table_flags rrd_binlog_flags(THD *thd)
{
  const bool shows_commits_of_others= thd && thd_tx_isolation(thd) <= ISO_READ_COMMITTED;
  const bool may_choose= thd && thd_binlog_format(thd) == BINLOG_FORMAT_MIXED;
  return HA_BINLOG_ROW_CAPABLE | (shows_commits_of_others || may_choose ? 0 : HA_BINLOG_STMT_CAPABLE);
}

/* The position is written by the server itself, row by row, whatever the format. */
static bool is_position_of_replica(const TABLE_SHARE *share)
{
  return !strcmp(share->db.str, MYSQL_SCHEMA_NAME.str) &&
         !strncmp(share->table_name.str, rpl_gtid_slave_state_table_name.str, rpl_gtid_slave_state_table_name.length);
}

bool rrd_is_repeated_as_text(THD *thd, const TABLE_SHARE *share)
{
  if (is_position_of_replica(share) ||
      (thd->lex->sql_command == SQLCOM_SELECT && !thd->lex->requires_prelocking()))
    return false;
  /* What the replica's own log will hold is decided later, and says nothing of what is applied. */
  if (thd->rgi_slave && thd->rgi_slave->is_parallel_exec)
    return !thd->lex->is_stmt_row_injection();
  return !thd->is_current_stmt_binlog_format_row() && thd_binlog_format(thd) == BINLOG_FORMAT_STMT;
}

bool rrd_is_parallel_worker(const THD *thd) { return thd->rgi_slave && thd->rgi_slave->is_parallel_exec; }

bool rrd_applies_rows_in_parallel(const THD *thd)
{
  return rrd_is_parallel_worker(thd) && thd->lex->sql_command == SQLCOM_END;
}

bool rrd_only_inserts(THD *thd)
{
  switch (thd->lex->sql_command)
  {
  case SQLCOM_INSERT:
  case SQLCOM_INSERT_SELECT:
  case SQLCOM_REPLACE:
  case SQLCOM_REPLACE_SELECT:
  case SQLCOM_LOAD:
    return true;
  default:
    return false;
  }
}
