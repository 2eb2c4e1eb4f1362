/*
  Transactions: what the server calls on a handlerton, translated for the store's session.

  Inside BEGIN ... COMMIT each statement gets a mark, so that a failing one can be undone alone; a statement
  in autocommit mode is a transaction.
*/
#include "connection.h"

#include "engine.h"
#include "errors.h"
#include "losses.h"
#include "sysvars.h"

#include "log.h"
#include "tztime.h"

int rrd_is_killed(void *connection)
{
  return thd_kill_level(static_cast<THD *>(connection)) != THD_IS_NOT_KILLED;
}

void rrd_local_time(void *connection, int64_t seconds, RrdLocalTime *out)
{
  MYSQL_TIME time;
  static_cast<THD *>(connection)->variables.time_zone->gmt_sec_to_TIME(&time, (my_time_t) seconds);
  *out= {time.year, time.month, time.day, time.hour, time.minute, time.second};
}

/* True when COMMIT comes later than the end of the statement. */
bool rrd_is_multi_statement(THD *thd)
{
  return thd_test_options(thd, OPTION_NOT_AUTOCOMMIT | OPTION_BEGIN) != 0;
}

static RrdIsolation isolation(THD *thd)
{
  return thd_tx_isolation(thd) <= ISO_READ_COMMITTED ? RRD_READ_COMMITTED : RRD_REPEATABLE_READ;
}

bool rrd_locks_plain_reads(THD *thd)
{
  return thd_tx_isolation(thd) == ISO_SERIALIZABLE && rrd_is_multi_statement(thd);
}

Rrd_connection *Rrd_connection::find(THD *thd)
{
  return static_cast<Rrd_connection *>(thd_get_ha_data(thd, rrd_hton));
}

Rrd_connection *Rrd_connection::of(THD *thd)
{
  if (Rrd_connection *connection= find(thd))
    return connection;
  Rrd_connection *connection= new (std::nothrow) Rrd_connection;
  if (!connection)
    return nullptr;
  RrdError error;
  if (rrd_session_open(rrd_engine, thd, thd_get_thread_id(thd), rrd_is_killed, rrd_local_time, &connection->m_session,
                       &error) != RRD_OK)
  {
    rrd_report(error);
    delete connection;
    return nullptr;
  }
  connection->m_id= rrd_session_id(connection->m_session);
  thd_set_ha_data(thd, rrd_hton, connection);
  return connection;
}

Rrd_connection::~Rrd_connection() { rrd_session_close(m_session); }

int Rrd_connection::begin_statement(THD *thd)
{
  trans_register_ha(thd, false, rrd_hton, 0);
  if (rrd_is_multi_statement(thd))
    trans_register_ha(thd, true, rrd_hton, 0);
  return m_in_statement ? 0 : begin_store_statement(thd);
}

/* Whether a statement may write: a SELECT does in functions that it calls. */
static bool writes(THD *thd) { return thd->lex->sql_command != SQLCOM_SELECT || thd->lex->requires_prelocking(); }

int Rrd_connection::begin_store_statement(THD *thd)
{
  RrdError error;
  const uint64_t timeout_ms= rrd_lock_wait_timeout_ms(thd);
  int status= RRD_OK;
  /* The server lets a replica's worker begin when the commits before it are ordered: their rows are what it changes. */
  if (thd->slave_thread)
    status= rrd_session_wait_ordered(m_session, &error);
  if (status == RRD_OK)
    status= rrd_session_begin_statement(m_session, isolation(thd), timeout_ms, &error);
  if (status == RRD_OK && rrd_is_multi_statement(thd))
  {
    status= rrd_session_savepoint(m_session, &m_statement_mark, &error);
    m_has_mark= status == RRD_OK;
  }
  if (status == RRD_OK && writes(thd))
    status= rrd_session_keep_tiers(m_session, &error);
  if (status != RRD_OK)
  {
    rrd_report(error);
    return rrd_fail(thd, error);
  }
  m_in_statement= true;
  note_earlier_kill(thd);
  return 0;
}

void Rrd_connection::kill(THD *thd)
{
  m_killed_with= thd->killed_errno();
  rrd_engine_wake(rrd_engine, m_id);
}

/*
  A statement begins with the KILL that it has met already, and without those meant for earlier ones. The server sets
  its own mark before it calls kill(), so whoever comes after this assignment is not lost, and whoever came before is
  seen by the question.
*/
void Rrd_connection::note_earlier_kill(THD *thd)
{
  m_killed_with= 0;
  if (rrd_is_killed(thd))
    m_killed_with= thd->killed_errno();
}

/*
  A DELETE that is killed while the server plans it ends there with OK and no rows (sql_delete.cc takes the interrupted
  range optimizer's answer for "nothing to delete"), and the server has forgotten the KILL by the time it commits the
  statement. Who takes a job by deleting its row would believe that it is gone. So the KILL is kept here, and told now.
*/
int Rrd_connection::forgotten_kill(THD *thd)
{
  const int error= m_killed_with.exchange(0);
  const Diagnostics_area *answer= thd->get_stmt_da();
  if (!error || thd->lex->sql_command != SQLCOM_DELETE || !answer->is_ok() || answer->affected_rows())
    return 0;
  rollback(thd, false);
  my_error(error, MYF(0));
  return HA_ERR_ABORTED_BY_USER;
}

int rrd_wait_for_prepared(THD *thd, const std::string &table, RrdError *error)
{
  /* These go with their connection, which is just closing perhaps. */
  if (rrd_is_temporary(table))
    return RRD_OK;
  Rrd_connection *connection= Rrd_connection::of(thd);
  if (!connection)
    return error->status= RRD_INTERNAL;
  return rrd_session_wait_for_prepared(connection->session(), rrd_text(table), rrd_lock_wait_timeout_ms(thd), error);
}

int rrd_wait_for_prepared(THD *thd, const std::string &table)
{
  RrdError error;
  const int status= rrd_wait_for_prepared(thd, table, &error);
  if (status == RRD_INTERRUPTED)
    thd->send_kill_message();
  else if (status != RRD_OK)
    rrd_report(error);
  return rrd_ha_error(status);
}

int Rrd_connection::take_snapshot(THD *thd)
{
  if (int result= begin_statement(thd))
    return result;
  m_in_statement= false;
  RrdError error;
  if (rrd_session_take_snapshot(m_session, &error) == RRD_OK)
    return 0;
  rrd_report(error);
  return rrd_ha_error(error.status);
}

/* The end of a statement inside a transaction: its work stays, its mark goes. */
int Rrd_connection::forget_statement()
{
  RrdError error;
  m_in_statement= false;
  if (m_has_mark)
    rrd_session_release(m_session, m_statement_mark, &error);
  m_has_mark= false;
  return 0;
}

/* Shows why a commit, or its first phase, was refused. */
static int refused(const RrdError &error)
{
  if (error.status == RRD_DUPLICATE)
    my_printf_error(ER_DUP_ENTRY, "%s", MYF(0), error.message);
  else if (error.status == RRD_CONFLICT)
    my_error(ER_LOCK_DEADLOCK, MYF(0));
  else if (error.status == RRD_LOCK_TIMEOUT)
    my_error(ER_LOCK_WAIT_TIMEOUT, MYF(0));
  else if (error.status == RRD_INTERRUPTED)
    my_error(ER_QUERY_INTERRUPTED, MYF(0));
  else
    rrd_report(error);
  return rrd_ha_error(error.status);
}

/* An XID as bytes: its three numbers, then its data. */
static size_t pack_xid(const XID *xid, uchar *out)
{
  int8store(out, (longlong) xid->formatID);
  int8store(out + 8, (longlong) xid->gtrid_length);
  int8store(out + 16, (longlong) xid->bqual_length);
  const size_t length= xid->gtrid_length + xid->bqual_length;
  memcpy(out + 24, xid->data, length);
  return 24 + length;
}

static_assert(rrd_packed_xid_max == 24 + XIDDATASIZE, "an XID has grown");

size_t rrd_pack_own_xids(uchar *out)
{
  XID xid;
  xid.set((my_xid) 0);
  pack_xid(&xid, out);
  return 24 + MYSQL_XID_PREFIX_LEN;
}

/* The XID of a connection's transaction, packed. */
struct Packed_xid
{
  explicit Packed_xid(THD *thd)
  {
    XID xid;
    thd_get_xid(thd, reinterpret_cast<MYSQL_XID *>(&xid));
    text= {reinterpret_cast<char *>(bytes), pack_xid(&xid, bytes)};
  }

  uchar bytes[rrd_packed_xid_max];
  RrdText text;
};

int Rrd_connection::reserve(THD *thd)
{
  const Packed_xid xid(thd);
  RrdError error;
  return rrd_session_reserve(m_session, &xid.text, &error) == RRD_OK ? 0 : refused(error);
}

int Rrd_connection::prepare(THD *thd, bool all)
{
  if (!all && rrd_is_multi_statement(thd))
    return forget_statement();
  const Packed_xid xid(thd);
  m_in_statement= m_has_mark= false;
  RrdError error;
  const bool stays= thd->transaction->xid_state.is_explicit_XA();
  return rrd_session_prepare(m_session, &xid.text, stays, &error) == RRD_OK ? 0 : refused(error);
}

int Rrd_connection::commit(THD *thd, bool all)
{
  if (int error= all ? 0 : forgotten_kill(thd))
    return error;
  if (!all && rrd_is_multi_statement(thd))
    return forget_statement();
  m_in_statement= m_has_mark= false;
  RrdError error;
  if (rrd_session_commit(m_session, &error) != RRD_OK)
    return refused(error);
  rrd_warn_losses(thd, m_session);
  return 0;
}

int Rrd_connection::rollback(THD *thd, bool all)
{
  RrdError error;
  int status;
  if (!all && rrd_is_multi_statement(thd))
  {
    status= m_has_mark ? rrd_session_rollback_to(m_session, m_statement_mark, &error) : RRD_OK;
    forget_statement();
  }
  else
  {
    m_in_statement= m_has_mark= false;
    status= rrd_session_rollback(m_session, &error);
  }
  if (status == RRD_OK)
    return 0;
  rrd_report(error);
  return rrd_ha_error(error.status);
}

static int commit(handlerton *, THD *thd, bool all)
{
  Rrd_connection *connection= Rrd_connection::find(thd);
  return connection ? connection->commit(thd, all) : 0;
}

static int rollback(handlerton *, THD *thd, bool all)
{
  Rrd_connection *connection= Rrd_connection::find(thd);
  return connection ? connection->rollback(thd, all) : 0;
}

/* Called in the order of the binary log, by one thread at a time, perhaps not the connection's own. */
static void commit_ordered(handlerton *, THD *thd, bool)
{
  RrdError error;
  if (Rrd_connection *connection= Rrd_connection::find(thd))
    rrd_session_order_commit(connection->session(), &error);
  /* After an error commit() does the work, and reports what is wrong. */
}

/* The binary log wants to forget its commits: they must be safe in the engine's own log. Without an answer it keeps them. */
static void commit_checkpoint_request(void *cookie)
{
  RrdError error;
  if (rrd_engine_checkpoint(rrd_engine, &error) == RRD_OK)
    commit_checkpoint_notify_ha(cookie);
  else
    sql_print_error("ENGINE=RRD: the binary log's checkpoint was refused: %s", error.message);
}

/* The server has no header for it. */
extern "C" int thd_rpl_deadlock_check(MYSQL_THD thd, MYSQL_THD other);

/* A replica's worker that must commit later than the waiting one is told to give way. */
static void report_wait(void *waiting, void *holder)
{
  thd_rpl_deadlock_check(static_cast<THD *>(waiting), static_cast<THD *>(holder));
}

void rrd_report_waits()
{
  RrdError error;
  if (rrd_engine_report_waits(rrd_engine, report_wait, &error) != RRD_OK)
    sql_print_error("ENGINE=RRD: %s", error.message);
}

static int prepare(handlerton *, THD *thd, bool all)
{
  Rrd_connection *connection= Rrd_connection::find(thd);
  return connection ? connection->prepare(thd, all) : 0;
}

/* What recover() fills. */
struct Xid_list
{
  XID *xids;
  uint size;
  uint count;
};

static void take_xid(void *context, const char *packed, size_t length)
{
  Xid_list *list= static_cast<Xid_list *>(context);
  if (list->count == list->size || length < 24 || length > rrd_packed_xid_max)
    return;
  /* What the log has is not taken on trust: these lengths are where others read. */
  const longlong gtrid_length= sint8korr(packed + 8), bqual_length= sint8korr(packed + 16);
  if (gtrid_length < 0 || gtrid_length > MAXGTRIDSIZE || bqual_length < 0 || bqual_length > MAXBQUALSIZE ||
      static_cast<size_t>(gtrid_length + bqual_length) != length - 24)
    return;
  XID *xid= list->xids + list->count++;
  xid->null();
  xid->formatID= (long) sint8korr(packed);
  xid->gtrid_length= (long) gtrid_length;
  xid->bqual_length= (long) bqual_length;
  memcpy(xid->data, packed + 24, length - 24);
}

/* The server asks until it gets fewer than it has room for, and decides its own transactions in between. */
static int recover(handlerton *, XID *xids, uint size)
{
  static uint64_t position;
  Xid_list list= {xids, size, 0};
  RrdError error;
  if (rrd_engine_prepared(rrd_engine, &position, size, take_xid, &list, &error) != RRD_OK)
    rrd_report(error);
  if (list.count < size)
    position= 0;
  return (int) list.count;
}

/* The X/Open answers that the server expects; it has no header for them. */
static const int xa_ok= 0, xa_not_found= -4, xa_failed= -3;

/* The second phase of a transaction that was prepared by another connection or server run. */
static int decide(XID *xid, int (*decision)(const RrdEngine *, const RrdText *, RrdError *))
{
  uchar packed[rrd_packed_xid_max];
  const RrdText text= {reinterpret_cast<char *>(packed), pack_xid(xid, packed)};
  RrdError error;
  switch (decision(rrd_engine, &text, &error))
  {
  case RRD_OK:
    return xa_ok;
  case RRD_NOT_FOUND:
    return xa_not_found;
  default:
    rrd_report(error);
    return xa_failed;
  }
}

static int commit_by_xid(handlerton *, XID *xid) { return decide(xid, rrd_engine_commit_prepared); }

static int rollback_by_xid(handlerton *, XID *xid) { return decide(xid, rrd_engine_rollback_prepared); }

static int close_connection(handlerton *hton, THD *thd)
{
  Rrd_connection *connection= Rrd_connection::find(thd);
  /* From here on KILL does not find it. */
  thd_set_ha_data(thd, hton, nullptr);
  delete connection;
  return 0;
}

/* Called by whoever kills, while the connection cannot go away. */
static void kill_query(handlerton *, THD *thd, enum thd_kill_levels)
{
  if (Rrd_connection *connection= Rrd_connection::find(thd))
    connection->kill(thd);
}

static int start_consistent_snapshot(handlerton *, THD *thd)
{
  Rrd_connection *connection= Rrd_connection::of(thd);
  return connection ? connection->take_snapshot(thd) : HA_ERR_OUT_OF_MEM;
}

/* SAVEPOINT: the server keeps the store's mark in memory of its own. */
static int savepoint_set(handlerton *, THD *thd, void *memory)
{
  Rrd_connection *connection= Rrd_connection::of(thd);
  RrdError error;
  if (!connection)
    return HA_ERR_OUT_OF_MEM;
  int status= rrd_session_savepoint(connection->session(), static_cast<uint64_t *>(memory), &error);
  return status == RRD_OK ? 0 : rrd_ha_error(status);
}

static int savepoint_rollback(handlerton *, THD *thd, void *memory)
{
  Rrd_connection *connection= Rrd_connection::of(thd);
  RrdError error;
  if (!connection)
    return HA_ERR_OUT_OF_MEM;
  int status= rrd_session_rollback_to(connection->session(), *static_cast<uint64_t *>(memory), &error);
  return status == RRD_OK ? 0 : rrd_ha_error(status);
}

static int savepoint_release(handlerton *, THD *thd, void *memory)
{
  Rrd_connection *connection= Rrd_connection::find(thd);
  RrdError error;
  if (connection)
    rrd_session_release(connection->session(), *static_cast<uint64_t *>(memory), &error);
  return 0;
}

void rrd_init_transactions(handlerton *hton)
{
  hton->prepare= prepare;
  hton->recover= recover;
  hton->commit_by_xid= commit_by_xid;
  hton->rollback_by_xid= rollback_by_xid;
  hton->commit_ordered= commit_ordered;
  hton->commit_checkpoint_request= commit_checkpoint_request;
  hton->commit= commit;
  hton->rollback= rollback;
  hton->close_connection= close_connection;
  hton->kill_query= kill_query;
  hton->start_consistent_snapshot= start_consistent_snapshot;
  hton->savepoint_offset= sizeof(uint64_t);
  hton->savepoint_set= savepoint_set;
  hton->savepoint_rollback= savepoint_rollback;
  hton->savepoint_release= savepoint_release;
}
