/*
  The session of a sequence: each write is a transaction of its own.
*/
#include "sequence.h"

#include "connection.h"
#include "engine.h"
#include "sysvars.h"

int Rrd_sequence_session::begin(THD *thd, RrdError *error)
{
  if (m_session)
    return RRD_OK;
  m_timeout_ms= rrd_lock_wait_timeout_ms(thd);
  const int status= rrd_session_open(rrd_engine, thd, thd_get_thread_id(thd), rrd_is_killed, rrd_local_time, &m_session,
                                     error);
  return status == RRD_OK ? begin_statement(error) : status;
}

int Rrd_sequence_session::begin_statement(RrdError *error)
{
  return rrd_session_begin_statement(m_session, RRD_READ_COMMITTED, m_timeout_ms, error);
}

int Rrd_sequence_session::commit(RrdError *error)
{
  const int status= rrd_session_commit(m_session, error);
  return status == RRD_OK ? begin_statement(error) : status;
}

void Rrd_sequence_session::close()
{
  if (m_session)
    rrd_session_close(m_session);
  m_session= nullptr;
}
