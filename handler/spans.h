/*
  Spans of columns on which an expression does not change: `DATE(ts)` is the same all day, `ts DIV 300` for 300 values.

  A query that is grouped by an expression which is not in steps is grouped by such spans in the engine. For each of these
  smaller groups the server computes the expression, and those for which it comes to the same are put together.
*/
#ifndef RRD_SPANS_H
#define RRD_SPANS_H

#include <vector>

#include "rrd.h"
#include "server.h"
#include "steps.h"

/* Fields that are grouped by their values as the server does it. */
bool rrd_is_groupable(THD *thd, const Field *field);

/* Functions of arguments alone, without warnings or errors that would depend on how often they are computed. */
bool rrd_is_plain_function(const Item_func *function);

/* The group of a number of steps; false if there is no room for it. */
bool rrd_group_of_steps(const Rrd_steps &steps, RrdGroup *group);

/* Adds to `groups`, unless they are there, spans on which an item does not change; false if none are known. */
bool rrd_find_spans(THD *thd, Item *item, const TABLE *table, const Rrd_known_bounds &known, std::vector<RrdGroup> *groups);

#endif
