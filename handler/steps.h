/*
  Expressions that go up with a column in steps, such as `ts DIV 3600`: what spans of the column have one value.

  The engine groups rows by spans, and finds conditions on such expressions by where the spans begin and end.
*/
#ifndef RRD_STEPS_H
#define RRD_STEPS_H

#include "server.h"

typedef __int128 Rrd_wide;

inline Rrd_wide rrd_rounded_down(Rrd_wide a, Rrd_wide b) { return a / b - (a % b < 0); }

/* The least and the largest value of an integer field, as far as the rows that count go. */
struct Rrd_bounds
{
  Rrd_wide low, high;
};

/*
  An integer: factor * n + add, n being (value of the column - origin) / width without rest. A TIMESTAMP's value is its
  seconds.
*/
struct Rrd_steps
{
  Field *field;
  Rrd_wide origin, width;
  Rrd_wide factor, add;
  /* n is rounded towards zero instead of down. */
  bool towards_zero;
  /* The column counts parts of seconds too, which n must not. */
  bool has_fraction;

  bool is_column() const { return width == 1 && factor == 1 && origin + add == 0 && !has_fraction; }
  Rrd_wide value_at(Rrd_wide column) const;
};

/* What is known of fields by conditions that have been looked at. */
class Rrd_known_bounds
{
public:
  virtual Rrd_bounds bounds_of(const Field *field) const= 0;

protected:
  ~Rrd_known_bounds() = default;
};

/* Whether the values of a field are integers, and between what. */
bool rrd_is_integer(const Field *field);
Rrd_bounds rrd_bounds_of_type(const Field *field);

/* The field of `table` that an item is; null if it is something else. */
Field *rrd_field_of(Item *item, const TABLE *table);

/* Whether an item is `x / y`. */
bool rrd_is_division(Item *item);

/* Whether an item is such an expression of a column of `table`. */
bool rrd_find_steps(THD *thd, Item *item, const TABLE *table, const Rrd_known_bounds &known, Rrd_steps *steps);

#endif
