/*
  A connection's work on the engine: one session of the store, opened at the first use.
*/
#ifndef RRD_CONNECTION_H
#define RRD_CONNECTION_H

#include <atomic>

#include "engine.h"
#include "rrd.h"
#include "server.h"

class Rrd_connection
{
public:
  /* The connection's own, made if missing; null when that fails (reported to the user). */
  static Rrd_connection *of(THD *thd);
  static Rrd_connection *find(THD *thd);

  ~Rrd_connection();

  RrdSession *session() { return m_session; }
  /* Tells the server that this engine takes part, and begins a statement unless one is under way. */
  int begin_statement(THD *thd);
  int take_snapshot(THD *thd);
  int reserve(THD *thd);
  int prepare(THD *thd, bool all);
  int commit(THD *thd, bool all);
  int rollback(THD *thd, bool all);
  /* Called by whoever kills, on another thread: it may use neither the session nor what is not atomic here. */
  void kill(THD *thd);

private:
  Rrd_connection() = default;
  int forget_statement();
  int begin_store_statement(THD *thd);
  void note_earlier_kill(THD *thd);
  int forgotten_kill(THD *thd);

  RrdSession *m_session= nullptr;
  /* The store's number for it, by which its waits are woken. */
  uint64_t m_id= 0;
  /* The error that the statement under way was killed with, or 0. */
  std::atomic<int> m_killed_with{0};
  bool m_in_statement= false;
  bool m_has_mark= false;
  uint64_t m_statement_mark= 0;
};

/*
  Waits until no prepared transaction has writes to a table that DDL is about to change: one whose connection has gone, or that
  is older than the server's start, holds no metadata lock. The first one leaves errors to be told, after the other the user
  was told.
*/
int rrd_wait_for_prepared(THD *thd, const std::string &table, RrdError *error);
int rrd_wait_for_prepared(THD *thd, const std::string &table);

/* Whether the statement of a connection (a THD) was killed; the store asks during long work. */
int rrd_is_killed(void *connection);

/* For the store: a second since 1970 in the connection's time zone. */
void rrd_local_time(void *connection, int64_t seconds, RrdLocalTime *out);

/* Whether plain SELECTs lock what they read: SERIALIZABLE, but for single statements, which a snapshot serves. */
bool rrd_locks_plain_reads(THD *thd);

/* Whether the statement is one of a transaction of several. */
bool rrd_is_multi_statement(THD *thd);

/* Bytes of an XID as the store knows it. */
static const size_t rrd_packed_xid_max= 24 + MYSQL_XIDDATASIZE;

/* With what the XIDs begin that the server itself gives to transactions; returns its length. */
size_t rrd_pack_own_xids(uchar *out);

/* Fills in the handlerton's transaction functions. */
void rrd_init_transactions(handlerton *hton);
/* Tells the server who waits for whom, once the engine is open. */
void rrd_report_waits();

#endif
