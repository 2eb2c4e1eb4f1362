/*
  Warnings about rows that are not stored, or gone, because they are older than the horizon of their table.

  The store counts them for each statement and commit. With autocommit the commit tells all, since many rows become too old
  only with the newest row of their own statement; within a transaction each statement tells what it was refused, and COMMIT the
  rest.
*/
#include "losses.h"

#include "sql_table.h"

static bool is_alter(const THD *thd) { return thd->lex->sql_command == SQLCOM_ALTER_TABLE; }

/* The user's name for a table. One that the server gave a name of its own is what the statement is about. */
static std::string user_name(const THD *thd, const std::string &table)
{
  const std::string part= table.substr(table.rfind(FN_LIBCHAR) + 1);
  const TABLE_LIST *of_statement= thd->lex->query_tables;
  if (part.compare(0, tmp_file_prefix_length, tmp_file_prefix) == 0 && of_statement)
    return of_statement->table_name.str;
  char name[NAME_LEN * 2 + 64];
  return std::string(name, filename_to_tablename(part.c_str(), name, sizeof(name), true));
}

/* A warning, whatever the SQL mode: the rows that are not too old are stored. */
static void warn(THD *thd, const std::string &text)
{
  Abort_on_warning_instant_set no_error(thd, false);
  push_warning_printf(thd, Sql_condition::WARN_LEVEL_WARN, ER_WARN_DATA_OUT_OF_RANGE, "ENGINE=RRD: %s", text.c_str());
}

static std::string text_of(const std::string &table, const std::string &ring, uint64_t rows, bool is_all, bool is_gone)
{
  std::string text= std::to_string(rows) + (rows == 1 ? " row is" : " rows are") + " older than the horizon of table '" + table + "'";
  if (!ring.empty())
    text+= " (" + ring + ")";
  if (is_gone)
    text+= rows == 1 ? " and is gone" : " and are gone";
  else
    text+= rows == 1 ? " and was not stored" : " and were not stored";
  if (is_all)
    text+= is_gone ? ". No row is left" : ". None of the rows was stored: compare their times with the newest row and the clock";
  return text;
}

static void take_loss(void *context, RrdText table, RrdText ring, uint64_t rows, bool is_all)
{
  THD *thd= static_cast<THD *>(context);
  const std::string name= user_name(thd, std::string(table.data, table.length));
  warn(thd, text_of(name, std::string(ring.data, ring.length), rows, is_all, is_alter(thd)));
}

void rrd_warn_losses(THD *thd, RrdSession *session)
{
  RrdError error;
  rrd_session_take_losses(session, take_loss, thd, &error);
}

void rrd_warn_rows_gone(THD *thd, const char *table, const std::string &ring, uint64_t rows, bool is_all)
{
  warn(thd, text_of(table, ring, rows, is_all, true));
}

void rrd_warn_text(void *thd, const char *text, size_t length) { warn(static_cast<THD *>(thd), std::string(text, length)); }

static void forget_loss(void *, RrdText, RrdText, uint64_t, bool) {}

void rrd_forget_losses(RrdSession *session)
{
  RrdError error;
  rrd_session_take_losses(session, forget_loss, nullptr, &error);
}
