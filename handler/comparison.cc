/*
  How the server compares a column with a constant; see comparison.h.
*/
#include "comparison.h"

/* The offset of local time does not change within this many seconds of a time, else comparing is ambiguous. */
static const my_time_t clear_of_clock_changes= 3 * 3600;

longlong rrd_offset_of(const Time_zone *zone, my_time_t second)
{
  MYSQL_TIME local;
  zone->gmt_sec_to_TIME(&local, second);
  const longlong days= longlong(calc_daynr(local.year, local.month, local.day)) - calc_daynr(1970, 1, 1);
  return (days * 24 + local.hour) * 3600 + local.minute * 60 + local.second - second;
}

bool rrd_is_clear_time(THD *thd, const Field *field)
{
  if (field->type() != MYSQL_TYPE_TIMESTAMP)
    return true;
  ulong fraction;
  const my_time_t second= field->get_timestamp(&fraction);
  const Time_zone *zone= thd->variables.time_zone;
  const longlong now= rrd_offset_of(zone, second);
  for (const my_time_t away : {-clear_of_clock_changes, clear_of_clock_changes})
    if (second + away < 0 || rrd_offset_of(zone, second + away) != now)
      return false;
  return true;
}

bool rrd_is_comparable(const Field *field, const Item *value)
{
  if (!value->const_item() || const_cast<Item *>(value)->is_expensive())
    return false;
  const Item_result type= value->cmp_type();
  const bool is_exact= type == INT_RESULT || type == DECIMAL_RESULT;
  switch (field->cmp_type())
  {
  case TIME_RESULT:
    return type == TIME_RESULT || type == STRING_RESULT;
  case REAL_RESULT:
    /* FLOAT(7,3) compares with a margin. */
    return (is_exact || type == REAL_RESULT) && field->decimals() >= FLOATING_POINT_DECIMALS;
  default:
    return is_exact;
  }
}

bool rrd_is_plain_text(const Field *field)
{
  return (field->real_type() == MYSQL_TYPE_STRING && field->type_handler() == &type_handler_string) ||
    (field->real_type() == MYSQL_TYPE_VARCHAR && field->type_handler() == &type_handler_varchar);
}

int rrd_turned(int operation)
{
  switch (operation)
  {
  case Item_func::LT_FUNC: return Item_func::GT_FUNC;
  case Item_func::LE_FUNC: return Item_func::GE_FUNC;
  case Item_func::GT_FUNC: return Item_func::LT_FUNC;
  case Item_func::GE_FUNC: return Item_func::LE_FUNC;
  default: return operation;
  }
}

/* Whether a text is a date that the server has nothing to say about. */
static bool is_clean_date(THD *thd, Item *item)
{
  StringBuffer<64> buffer;
  const String *text= item->val_str(&buffer);
  if (!text)
    return true;
  MYSQL_TIME_STATUS status;
  MYSQL_TIME time;
  my_time_status_init(&status);
  return !str_to_datetime_or_date(text->ptr(), text->length(), &time, ulonglong(sql_mode_for_dates(thd)), &status) &&
    !status.warnings;
}

bool rrd_is_known(THD *thd, Item *value)
{
  if (!value->can_eval_in_optimize() || value->with_subquery())
    return false;
  if (value->type() != Item::CACHE_ITEM)
    return true;
  Item *example= static_cast<Item_cache *>(value)->get_example();
  if (!example || example->cmp_type() == value->cmp_type())
    return true;
  return example->cmp_type() == STRING_RESULT && value->cmp_type() == TIME_RESULT && is_clean_date(thd, example);
}

bool rrd_is_constant_for_query(Item *value)
{
  if (value->const_item())
    return true;
  Item *real= value->real_item();
  return real->type() == Item::FIELD_ITEM && !(real->used_tables() & ~OUTER_REF_TABLE_BIT);
}

static Rrd_wide wide_of(const my_decimal *value)
{
  longlong integer;
  if (!my_decimal2int(0, value, false, &integer))
    return integer;
  if (!value->sign() && !my_decimal2int(0, value, true, &integer))
    return static_cast<ulonglong>(integer);
  return value->sign() ? -rrd_far_out : rrd_far_out;
}

bool rrd_integers_around(Item *value, bool is_small, Rrd_wide *below, Rrd_wide *above)
{
  switch (value->cmp_type())
  {
  case INT_RESULT:
  {
    const longlong integer= value->val_int();
    *below= *above= value->unsigned_flag ? Rrd_wide(static_cast<ulonglong>(integer)) : Rrd_wide(integer);
    return true;
  }
  case DECIMAL_RESULT:
  {
    my_decimal buffer, rounded;
    const my_decimal *number= value->val_decimal(&buffer);
    if (!number)
      return true;
    number->round_to(&rounded, 0, FLOOR);
    *below= wide_of(&rounded);
    number->round_to(&rounded, 0, CEILING);
    *above= wide_of(&rounded);
    return true;
  }
  case REAL_RESULT:
  {
    const double number= value->val_real(), limit= double(rrd_exact_double);
    *below= Rrd_wide(floor(MY_MAX(-limit, MY_MIN(limit, number))));
    *above= Rrd_wide(ceil(MY_MAX(-limit, MY_MIN(limit, number))));
    return is_small && !std::isnan(number);
  }
  default:
    return false;
  }
}
