/*
  Expressions that go up with a column in steps; see steps.h.

  Known are columns of integers, UNIX_TIMESTAMP() of a TIMESTAMP, DIV, FLOOR() and ROUND() of a division, `x - x % n`,
  time_bucket(), and what adds to or multiplies any of them by a constant. Rounding is the server's: DIV and % go
  towards zero, FLOOR() down.
*/
#include "steps.h"

#include "functions.h"

/*
  The server divides with nine decimals at least, so fractions of divisors up to this one do not get lost; but without
  any where div_precision_increment is 0.
*/
static const longlong max_divisor= 100000000;

/* What the arithmetic here has room for. */
static const Rrd_wide max_factor= Rrd_wide(1) << 60;
static const Rrd_wide max_value= Rrd_wide(1) << 70;

bool rrd_is_integer(const Field *field)
{
  switch (field->real_type())
  {
  case MYSQL_TYPE_TINY:
  case MYSQL_TYPE_SHORT:
  case MYSQL_TYPE_INT24:
  case MYSQL_TYPE_LONG:
  case MYSQL_TYPE_LONGLONG:
    return true;
  default:
    return false;
  }
}

Rrd_bounds rrd_bounds_of_type(const Field *field)
{
  const Rrd_wide values= Rrd_wide(1) << (8 * MY_MIN(field->pack_length(), 8U));
  if (!rrd_is_integer(field))
    return {0, UINT_MAX32};
  return field->is_unsigned() ? Rrd_bounds{0, values - 1} : Rrd_bounds{-values / 2, values / 2 - 1};
}

Field *rrd_field_of(Item *item, const TABLE *table)
{
  Item *real= item->real_item();
  if (real->type() != Item::FIELD_ITEM)
    return nullptr;
  Field *field= static_cast<Item_field *>(real)->field;
  return field->table == table ? field : nullptr;
}

Rrd_wide Rrd_steps::value_at(Rrd_wide column) const
{
  const Rrd_wide from= column - origin;
  return factor * (towards_zero ? from / width : rrd_rounded_down(from, width)) + add;
}

/* An integer constant that is not negative. */
static bool integer_constant(Item *item, longlong *value)
{
  if (!item->const_item() || item->is_expensive() || item->cmp_type() != INT_RESULT || item->with_subquery())
    return false;
  *value= item->val_int();
  return !item->null_value && *value >= 0;
}

bool rrd_is_division(Item *item)
{
  Item *real= item->real_item();
  return real->type() == Item::FUNC_ITEM && !strcmp(static_cast<Item_func *>(real)->func_name(), "/");
}

class Steps_finder
{
public:
  Steps_finder(THD *thd, const TABLE *table, const Rrd_known_bounds &known) : m_thd(thd), m_table(table), m_known(known)
  {
  }

  bool find(Item *item, Rrd_steps *steps);

private:
  bool find_function(Item_func *function, Rrd_steps *steps);
  bool find_column(Item *item, Rrd_steps *steps);
  bool find_timestamp(Item *argument, Rrd_steps *steps);
  bool find_time_bucket(Item_func *function, Rrd_steps *steps);
  bool find_rounded(Item *argument, bool to_nearest, Rrd_steps *steps);
  bool find_difference(Item **arguments, Rrd_steps *steps);
  bool divide(Rrd_steps *steps, Rrd_wide divisor, Rrd_wide moved, bool towards_zero) const;
  bool is_never_negative(const Rrd_steps &steps) const;
  bool fits(const Rrd_steps &steps, const Item *item) const;

  THD *m_thd;
  const TABLE *m_table;
  const Rrd_known_bounds &m_known;
};

bool Steps_finder::find(Item *item, Rrd_steps *steps)
{
  Item *real= item->real_item();
  bool is_found= false;
  if (real->type() == Item::FIELD_ITEM)
    is_found= find_column(real, steps);
  else if (real->type() == Item::FUNC_ITEM)
    is_found= find_function(static_cast<Item_func *>(real), steps);
  return is_found && steps->factor < max_factor && steps->add < max_value && -steps->add < max_value &&
    steps->width < max_value && steps->origin < max_value && -steps->origin < max_value && fits(*steps, real);
}

/* Whether all values fit into the item's type: else there are rows for which the server reports an error. */
bool Steps_finder::fits(const Rrd_steps &steps, const Item *item) const
{
  if (item->cmp_type() != INT_RESULT)
    return true;
  const Rrd_bounds bounds= m_known.bounds_of(steps.field);
  const Rrd_wide half= Rrd_wide(1) << 63;
  const Rrd_wide low= item->unsigned_flag ? 0 : -half, high= item->unsigned_flag ? 2 * half : half;
  return steps.value_at(bounds.low) >= low && steps.value_at(bounds.high) < high;
}

bool Steps_finder::find_column(Item *item, Rrd_steps *steps)
{
  Field *field= rrd_field_of(item, m_table);
  if (!field || !rrd_is_integer(field))
    return false;
  *steps= {field, 0, 1, 1, 0, false, false};
  return true;
}

bool Steps_finder::find_timestamp(Item *argument, Rrd_steps *steps)
{
  Field *field= rrd_field_of(argument, m_table);
  if (!field || field->real_type() != MYSQL_TYPE_TIMESTAMP2)
    return false;
  *steps= {field, 0, 1, 1, 0, false, field->decimals() > 0};
  return true;
}

/* Such values are rounded down and towards zero alike. */
bool Steps_finder::is_never_negative(const Rrd_steps &steps) const
{
  const Rrd_wide low= m_known.bounds_of(steps.field).low;
  return steps.value_at(low) >= 0 && (!steps.towards_zero || low >= steps.origin);
}

/* (steps + moved) / divisor, as an integer. */
bool Steps_finder::divide(Rrd_steps *steps, Rrd_wide divisor, Rrd_wide moved, bool towards_zero) const
{
  if (divisor < 1)
    return false;
  Rrd_steps to= *steps;
  to.add+= moved;
  const bool is_positive= is_never_negative(to);
  to.towards_zero= towards_zero && !is_positive;
  if (to.factor == 1 && to.width == 1)
  {
    to.origin-= to.add;
    to.width= divisor;
  }
  else if (to.add == 0 && divisor % to.factor == 0 && (is_positive || steps->towards_zero == to.towards_zero))
    to.width*= divisor / to.factor;
  else
    return false;
  if (is_positive && steps->towards_zero)
    to.towards_zero= false;
  to.factor= 1;
  to.add= 0;
  to.has_fraction= false;
  *steps= to;
  return true;
}

/* FLOOR(x / n), ROUND(x / n), and both of integers. */
bool Steps_finder::find_rounded(Item *argument, bool to_nearest, Rrd_steps *steps)
{
  Item *real= argument->real_item();
  longlong divisor;
  if (rrd_is_division(real))
  {
    Item **arguments= static_cast<Item_func *>(real)->arguments();
    if (!integer_constant(arguments[1], &divisor) || divisor < 1 || divisor > max_divisor ||
        real->result_type() != DECIMAL_RESULT || !find(arguments[0], steps))
      return false;
    const bool is_cut= static_cast<Item_func_div *>(real)->prec_increment == 0;
    if (is_cut)
      return is_never_negative(*steps) && !steps->has_fraction && divide(steps, divisor, 0, false);
    if (!to_nearest)
      return divide(steps, divisor, 0, false);
    return is_never_negative(*steps) && !steps->has_fraction && divide(steps, divisor, divisor / 2, false);
  }
  if (!find(argument, steps) || (steps->has_fraction && (to_nearest || !is_never_negative(*steps))))
    return false;
  steps->has_fraction= false;
  return true;
}

/* x - x % n, and x - n. */
bool Steps_finder::find_difference(Item **arguments, Rrd_steps *steps)
{
  longlong number;
  if (integer_constant(arguments[1], &number))
  {
    if (!find(arguments[0], steps))
      return false;
    steps->add-= number;
    return true;
  }
  Item *rest= arguments[1]->real_item();
  if (rest->type() != Item::FUNC_ITEM || strcmp(static_cast<Item_func *>(rest)->func_name(), "MOD"))
    return false;
  Item **of_rest= static_cast<Item_func *>(rest)->arguments();
  if (!integer_constant(of_rest[1], &number) || number < 1 || !arguments[0]->eq(of_rest[0], false) ||
      !find(arguments[0], steps) || !divide(steps, number, 0, true))
    return false;
  steps->factor= number;
  return true;
}

bool Steps_finder::find_time_bucket(Item_func *function, Rrd_steps *steps)
{
  Item *time= function->arguments()[1];
  RrdBucket bucket;
  if (rrd_time_bucket_of(m_thd, function, &bucket) || bucket.months)
    return false;
  if (find_column(time->real_item(), steps))
  {
    *steps= {steps->field, bucket.offset, bucket.length, bucket.length, bucket.offset, false, false};
    return true;
  }
  /* A TIMESTAMP of zeros is not in a bucket. */
  if (!find_timestamp(time, steps) || m_known.bounds_of(steps->field).low < 1 || bucket.length % bucket.per_second ||
      bucket.offset % bucket.per_second)
    return false;
  const Rrd_wide origin= bucket.offset / bucket.per_second, width= bucket.length / bucket.per_second;
  *steps= {steps->field, origin, width, width, origin, false, false};
  /* Nor is what would be in a bucket that begins before TIMESTAMPs do. */
  return steps->value_at(m_known.bounds_of(steps->field).low) > 0;
}

bool Steps_finder::find_function(Item_func *function, Rrd_steps *steps)
{
  if (function->functype() == Item_func::FUNC_SP || function->functype() == Item_func::UDF_FUNC)
    return false;
  const char *name= function->func_name();
  Item **arguments= function->arguments();
  const uint count= function->argument_count();
  longlong number;
  if (count == 1 && !strcmp(name, "unix_timestamp"))
    return find_timestamp(arguments[0], steps);
  if (count == 1 && !strcmp(name, "floor"))
    return find_rounded(arguments[0], false, steps);
  if (count == 2 && !strcmp(name, "round"))
    return integer_constant(arguments[1], &number) && number == 0 && find_rounded(arguments[0], true, steps);
  if (count >= 2 && !strcmp(name, "time_bucket"))
    return find_time_bucket(function, steps);
  if (count == 1 && !strcmp(name, "cast_as_signed") && rrd_is_division(arguments[0]))
    return find_rounded(arguments[0], true, steps) && steps->value_at(m_known.bounds_of(steps->field).high) <= LONGLONG_MAX;
  if (count == 1 && !strcmp(name, "cast_as_signed"))
    return find(arguments[0], steps) && !steps->has_fraction &&
      steps->value_at(m_known.bounds_of(steps->field).high) <= LONGLONG_MAX;
  if (count == 1 && !strcmp(name, "cast_as_unsigned"))
    return find(arguments[0], steps) && !steps->has_fraction && is_never_negative(*steps);
  if (count != 2)
    return false;
  if (!strcmp(name, "DIV"))
    return integer_constant(arguments[1], &number) && find(arguments[0], steps) && divide(steps, number, 0, true);
  if (!strcmp(name, "-"))
    return find_difference(arguments, steps);
  if (strcmp(name, "+") && strcmp(name, "*"))
    return false;
  const bool is_turned= integer_constant(arguments[0], &number);
  if ((!is_turned && !integer_constant(arguments[1], &number)) || !find(arguments[is_turned], steps))
    return false;
  if (!strcmp(name, "+"))
    steps->add+= number;
  else
  {
    if (number < 1 || steps->has_fraction)
      return false;
    steps->factor*= number;
    steps->add*= number;
  }
  return true;
}

bool rrd_find_steps(THD *thd, Item *item, const TABLE *table, const Rrd_known_bounds &known, Rrd_steps *steps)
{
  return Steps_finder(thd, table, known).find(item, steps);
}
