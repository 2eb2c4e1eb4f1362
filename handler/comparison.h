/*
  How the server compares a column with a constant, as far as that can be said by what the column would hold of it.
*/
#ifndef RRD_COMPARISON_H
#define RRD_COMPARISON_H

#include "server.h"

/* Whether a field compares with a constant as with the constant's own conversion to the field's type. */
bool rrd_is_comparable(const Field *field, const Item *value);

/* CHAR, VARCHAR, BINARY and VARBINARY, and none of the types that only look like them. */
bool rrd_is_plain_text(const Field *field);

/* Whether comparing the TIMESTAMP in a field, if it is one, is the same in UTC and in local time. */
bool rrd_is_clear_time(THD *thd, const Field *field);

/* How many seconds local time is ahead of UTC at a time. */
longlong rrd_offset_of(const Time_zone *zone, my_time_t second);

/* A comparison with its sides exchanged. */
int rrd_turned(int operation);

#endif
