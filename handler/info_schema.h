/*
  The engine's tables in INFORMATION_SCHEMA.
*/
#ifndef RRD_INFO_SCHEMA_H
#define RRD_INFO_SCHEMA_H

#include "server.h"

/* What a plugin of this kind is made of besides its name and its init. */
extern struct st_mysql_information_schema rrd_info_descriptor;

int rrd_init_tables_view(void *schema_table);
int rrd_init_tiers_view(void *schema_table);
int rrd_init_segments_view(void *schema_table);
int rrd_init_columns_view(void *schema_table);
int rrd_init_lock_waits_view(void *schema_table);

#endif
