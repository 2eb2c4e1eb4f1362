/*
  Aggregate queries that the engine answers as a whole, in place of handing out rows.
*/
#ifndef RRD_GROUP_BY_H
#define RRD_GROUP_BY_H

#include "server.h"

/* The handlerton's create_group_by. */
group_by_handler *rrd_create_group_by(THD *thd, Query *query);

#endif
