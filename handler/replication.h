/*
  What the binary log and a replica ask of a statement on the engine's tables.
*/
#ifndef RRD_REPLICATION_H
#define RRD_REPLICATION_H

#include "server.h"

/* How statements may be written to the binary log: HA_BINLOG_.. flags. */
handler::Table_flags rrd_binlog_flags(THD *thd);

/*
  True if the statement's text is what others repeat, in the order of commits: what it reads must not change
  before it commits, and what it reads must be the newest.
*/
bool rrd_is_repeated_as_text(THD *thd, const TABLE_SHARE *share);

/* True for a parallel worker of a replica. */
bool rrd_is_parallel_worker(const THD *thd);

/* True if a parallel worker of a replica is applying a row event, in which a row that is not found is an error. */
bool rrd_applies_rows_in_parallel(const THD *thd);

/* True if the statement only adds rows to the tables that it writes. */
bool rrd_only_inserts(THD *thd);

#endif
