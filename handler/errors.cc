/*
  The one table from status numbers to what the server and the user are told.

  Expected outcomes (duplicate key, lock time-out, deadlock, end of scan) are left to the server's own texts;
  for everything else the store's text names the file or table and the way out, so that is what users see.
*/
#include "errors.h"

struct Translation
{
  int status;
  int ha_error;
  uint sql_error;
};

static const Translation translations[] =
{
  {RRD_OK, 0, 0},
  {RRD_END, HA_ERR_END_OF_FILE, 0},
  {RRD_NOT_FOUND, HA_ERR_KEY_NOT_FOUND, 0},
  {RRD_DUPLICATE, HA_ERR_FOUND_DUPP_KEY, 0},
  {RRD_CONFLICT, HA_ERR_LOCK_DEADLOCK, 0},
  {RRD_LOCK_TIMEOUT, HA_ERR_LOCK_WAIT_TIMEOUT, 0},
  {RRD_PREPARED, HA_ERR_LOCK_WAIT_TIMEOUT, ER_LOCK_WAIT_TIMEOUT},
  {RRD_LOCK_MEMORY, HA_ERR_LOCK_TABLE_FULL, ER_LOCK_TABLE_FULL},
  {RRD_OUT_OF_MEMORY, HA_ERR_OUT_OF_MEM, ER_OUT_OF_RESOURCES},
  {RRD_INTERRUPTED, HA_ERR_ABORTED_BY_USER, 0},
  {RRD_NO_SUCH_TABLE, HA_ERR_NO_SUCH_TABLE, 0},
  {RRD_TABLE_EXISTS, HA_ERR_TABLE_EXIST, 0},
  {RRD_CORRUPTION, HA_ERR_CRASHED, ER_NOT_KEYFILE},
  {RRD_INCOMPATIBLE, HA_ERR_CRASHED, ER_NOT_KEYFILE},
  {RRD_DISK_FULL, HA_ERR_RECORD_FILE_FULL, ER_DISK_FULL},
  {RRD_IO, HA_ERR_INTERNAL_ERROR, ER_GET_ERRMSG},
  {RRD_INVALID, HA_ERR_UNSUPPORTED, ER_BAD_OPTION_VALUE},
  {RRD_LIMIT, HA_ERR_TO_BIG_ROW, ER_TOO_BIG_ROWSIZE},
  {RRD_LOCKED, HA_ERR_INITIALIZATION, ER_GET_ERRMSG},
  {RRD_READ_ONLY, HA_ERR_TABLE_READONLY, ER_OPEN_AS_READONLY},
  {RRD_INTERNAL, HA_ERR_INTERNAL_ERROR, ER_INTERNAL_ERROR},
  {RRD_DEFINITION_CHANGED, HA_ERR_TABLE_DEF_CHANGED, ER_TABLE_DEF_CHANGED},
  {RRD_NEEDS_COPY, HA_ERR_UNSUPPORTED, ER_ILLEGAL_HA_CREATE_OPTION},
  {RRD_UNSUPPORTED, HA_ERR_UNSUPPORTED, ER_ILLEGAL_HA_CREATE_OPTION},
};

static_assert(sizeof(RrdError) == 1024, "RrdError differs from the store's");

static const Translation &translation(int status)
{
  for (const Translation &t : translations)
    if (t.status == status)
      return t;
  static const Translation unknown= {RRD_INTERNAL, HA_ERR_INTERNAL_ERROR, ER_INTERNAL_ERROR};
  return unknown;
}

int rrd_ha_error(int status) { return translation(status).ha_error; }

uint rrd_sql_error(int status) { return translation(status).sql_error; }

void rrd_report(const RrdError &error, myf flags)
{
  uint code= rrd_sql_error(error.status);
  if (code && error.message[0])
    my_printf_error(code, "ENGINE=RRD: %s", flags, error.message);
}

int rrd_fail(THD *thd, const RrdError &error)
{
  if (error.status == RRD_CONFLICT)
    thd->mark_transaction_to_rollback(true);
  else if (error.status == RRD_LOCK_TIMEOUT)
    thd->mark_transaction_to_rollback(false);
  return rrd_ha_error(error.status);
}
