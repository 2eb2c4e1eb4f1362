/*
  SQL's functions of this plugin, native ones: INSTALL SONAME or plugin-load-add brings them, nothing is to be created.
  The server finds a function plugin by its name; plugin.cc declares them.
*/
#ifndef RRD_FUNCTIONS_H
#define RRD_FUNCTIONS_H

#include "server.h"
#include "item_create.h"
#include "item_sum.h"
#include "rrd.h"
#include <mysql/plugin_function.h>

extern Plugin_function rrd_time_bucket_function;
extern Plugin_function rrd_first_function;
extern Plugin_function rrd_last_function;
extern Plugin_function rrd_delta_function;
extern Plugin_function rrd_rate_function;

/*
  Makes column names in the arguments of an aggregate columns of the tables, as they are in the server's own
  aggregates: the parser takes those in HAVING for columns of the result.
*/
void rrd_arguments_of_aggregate(THD *thd, List<Item> *arguments);

/*
  The time of an argument in microseconds since 1970: an instant of a TIMESTAMP, else what a DATETIME says, as if in UTC.
  True for NULL, which an impossible date is, too.
*/
bool rrd_micros_of(THD *thd, Item *item, longlong *micros);

/* Microseconds of a DATETIME. */
longlong rrd_micros_of_datetime(const MYSQL_TIME &time);

/* Whether such an argument is a number, and its time thus is, too. */
bool rrd_is_number(const Item *item);

/* The buckets of a time_bucket() of constants; true if they are not known before rows are. */
bool rrd_time_bucket_of(THD *thd, Item_func *function, RrdBucket *bucket);

/* Refuses an argument that is no time, such as a TIME. */
bool rrd_check_time_argument(const Item *item, const char *function);

inline RrdText rrd_text(const String *text)
{
  return text ? RrdText{text->ptr(), text->length()} : RrdText{nullptr, 0};
}

#endif
