/*
  From the store's status numbers to the server's errors.
*/
#ifndef RRD_ERRORS_H
#define RRD_ERRORS_H

#include "rrd.h"
#include "server.h"

/* HA_ERR_* for a status; the store's table is in crates/ffi/src/status.rs. */
int rrd_ha_error(int status);

/* ER_* to report a status under when its own text is shown; 0 to leave it to the server. */
uint rrd_sql_error(int status);

/* Shows the user a failed call's own text, if there is one. */
void rrd_report(const RrdError &error, myf flags= MYF(0));

/* What the server expects of an engine when a call failed inside a transaction: a deadlock undoes all of it. */
int rrd_fail(THD *thd, const RrdError &error);

#endif
