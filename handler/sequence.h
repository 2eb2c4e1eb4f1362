/*
  CREATE SEQUENCE: its one row is written outside of transactions, as the server expects from an engine for sequences.

  What NEXT VALUE reserves must not come again after a ROLLBACK, nor may a transaction that stays open keep others from
  the next value. So a sequence has a session of its own for each statement, and each write is a transaction.
*/
#ifndef RRD_SEQUENCE_H
#define RRD_SEQUENCE_H

#include "rrd.h"
#include "server.h"

class Rrd_sequence_session
{
public:
  ~Rrd_sequence_session() { close(); }

  RrdSession *session() { return m_session; }
  /* Opens it and begins a statement, unless one is under way. */
  int begin(THD *thd, RrdError *error);
  /* Makes what was written durable, and begins the next statement. */
  int commit(RrdError *error);
  void close();

private:
  int begin_statement(RrdError *error);

  RrdSession *m_session= nullptr;
  uint64_t m_timeout_ms= 0;
};

#endif
