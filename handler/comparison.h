/*
  How the server compares a column with a constant, as far as that can be said by what the column would hold of it.
*/
#ifndef RRD_COMPARISON_H
#define RRD_COMPARISON_H

#include "server.h"
#include "steps.h"

/* Beyond all integers of SQL. */
const Rrd_wide rrd_far_out= Rrd_wide(1) << 68;
/* Doubles hold integers up to here exactly. */
const Rrd_wide rrd_exact_double= Rrd_wide(1) << 53;

/* Whether a field compares with a constant as with the constant's own conversion to the field's type. */
bool rrd_is_comparable(const Field *field, const Item *value);

/* CHAR, VARCHAR, BINARY and VARBINARY, and none of the types that only look like them. */
bool rrd_is_plain_text(const Field *field);

/* Whether comparing the TIMESTAMP in a field, if it is one, is the same in UTC and in local time. */
bool rrd_is_clear_time(THD *thd, const Field *field);

/* How many seconds local time is ahead of UTC at a time. */
longlong rrd_offset_of(const Time_zone *zone, my_time_t second);

/*
  Whether a constant can be asked for its value now. Of one that has yet to be made a date the server may warn, once: that
  is left to the server.
*/
bool rrd_is_known(THD *thd, Item *value);

/* Whether a value does not change while the query reads rows: a constant, or a column of an outer query. */
bool rrd_is_constant_for_query(Item *value);

/* A number between two integers, which are the same if it is one; false if it cannot be compared exactly. */
bool rrd_integers_around(Item *value, bool is_small, Rrd_wide *below, Rrd_wide *above);

/* A comparison with its sides exchanged. */
int rrd_turned(int operation);

#endif
