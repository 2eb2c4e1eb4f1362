/*
  System and status variables.
*/
#ifndef RRD_SYSVARS_H
#define RRD_SYSVARS_H

#include "rrd.h"
#include "server.h"

extern struct st_mysql_sys_var *rrd_system_variables[];
extern struct st_mysql_show_var rrd_status_variables[];

/* The engine's settings at start. */
RrdConfig rrd_start_config();

/* Hands rrd_lock_memory_size to the engine: at start once transactions of before have their locks again. */
void rrd_apply_lock_memory_size();

uint64_t rrd_lock_wait_timeout_ms(THD *thd);

/* Whether a FOREIGN KEY, which is not enforced, is an error. */
bool rrd_has_strict_foreign_keys(THD *thd);

/* Whether the engine may answer aggregate queries itself, and with how many threads; 0: as many as there are cores. */
bool rrd_pushes_down(THD *thd);
size_t rrd_scan_threads(THD *thd);

/* SHOW ENGINE RRD STATUS. */
bool rrd_show_status(handlerton *hton, THD *thd, stat_print_fn *print, enum ha_stat_type type);

#endif
