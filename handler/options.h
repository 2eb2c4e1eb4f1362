/*
  The options of CREATE TABLE ... ENGINE=RRD. Their meaning is the store's business
  (crates/ffi/src/options.rs); here they are only declared and collected.
*/
#ifndef RRD_OPTIONS_H
#define RRD_OPTIONS_H

#include <vector>

#include "rrd.h"
#include "server.h"

/* The names are the server's: it fills these structs from the options as written. */
struct ha_table_option_struct
{
  const char *retention, *series_max_rows, *max_bytes, *step, *rollup, *tiers, *xff;
  const char *time_column, *time_unit, *chunk, *compression;
};

struct ha_field_option_struct
{
  const char *dst, *heartbeat, *ds_min, *ds_max;
};

extern ha_create_table_option rrd_table_options[];
extern ha_create_table_option rrd_field_options[];

/* The options that were written; the texts belong to the server's table. */
std::vector<RrdOption> rrd_options_of(const TABLE_SHARE *share);
std::vector<RrdOption> rrd_options_of(const Field *field);

/* The name of the first option that is not written the same in both, or null. */
const char *rrd_different_option(const std::vector<RrdOption> &a, const std::vector<RrdOption> &b);

#endif
