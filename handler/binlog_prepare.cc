/*
  XA PREPARE with a binary log.

  The server asks the binary log first, as it took part last, and what that has written cannot be taken back. This engine
  may still refuse: another transaction may have inserted a key. The server has no call in between, so the binary log's
  own function is called through the one here. (A commit in two phases that is no user's asks all engines before it
  writes the log.)

  What this relies on, and rrd_ask_before_binlog() checks at the start:
  - `binlog_hton` is the handlerton of the binary log: its slot has the plugin of that name.
  - Its `prepare` is the server's own function: nobody else has replaced it.
  - The server reads that pointer once for each PREPARE: one that is under way meanwhile runs the old or the new function.
  - At shutdown the server may free the binary log's handlerton first. Then its slot is empty.
  If a check fails the engine works without this, and the error log says what that means.
*/
#include "binlog_prepare.h"

#include <dlfcn.h>

#include "connection.h"
#include "server.h"

#include "xa.h"

static int (*prepare_in_binlog)(handlerton *, THD *, bool);
static uint binlog_slot;

static int prepare_with_binlog(handlerton *hton, THD *thd, bool all)
{
  Rrd_connection *connection= Rrd_connection::find(thd);
  if (all && connection && thd->transaction->xid_state.is_explicit_XA())
    if (int error= connection->reserve(thd))
      return error;
  return prepare_in_binlog(hton, thd, all);
}

/* Whether two functions are of one program or library. */
static bool are_of_one_image(void *one, void *other)
{
  Dl_info of_one, of_other;
  return dladdr(one, &of_one) && dladdr(other, &of_other) && of_one.dli_fbase == of_other.dli_fbase;
}

/* Null if all is as this file relies on, else what is not. */
static const char *surprise()
{
  const st_plugin_int *plugin= binlog_hton->slot < MAX_HA ? hton2plugin[binlog_hton->slot] : nullptr;
  if (!plugin || plugin->data != binlog_hton || strcmp(plugin->name.str, "binlog"))
    return "the binary log is another one than the server's own";
  if (!are_of_one_image(reinterpret_cast<void *>(binlog_hton->prepare), reinterpret_cast<void *>(&trans_xa_prepare)))
    return "another plugin has put its own function into the binary log";
  return nullptr;
}

void rrd_ask_before_binlog()
{
  /* The server sets it only where it writes a binary log. */
  if (!binlog_hton || !binlog_hton->prepare)
    return;
  if (const char *why= surprise())
  {
    sql_print_warning("ENGINE=RRD: %s. An XA PREPARE that this engine refuses is in the binary log all the same, and a "
                      "replica stops there: do not use XA transactions on this server while it has replicas", why);
    return;
  }
  prepare_in_binlog= binlog_hton->prepare;
  binlog_slot= binlog_hton->slot;
  binlog_hton->prepare= prepare_with_binlog;
}

void rrd_leave_binlog()
{
  if (prepare_in_binlog && hton2plugin[binlog_slot])
    binlog_hton->prepare= prepare_in_binlog;
}
