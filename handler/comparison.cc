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
