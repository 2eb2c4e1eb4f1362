/*
  What the plugin's functions share: arguments that are times, and the parser's view of an aggregate's arguments.
*/
#include "functions.h"

#include "sql_time.h"

static const longlong SECOND= 1000000;
static const longlong DAY= 86400 * SECOND;

static Item *column_of_table(THD *thd, Item *item)
{
  if (item->type() == Item::REF_ITEM && !item->fixed() &&
      static_cast<Item_ref *>(item)->ref_type() == Item_ref::REF)
  {
    Item_ref *name= static_cast<Item_ref *>(item);
    return new (thd->mem_root) Item_field(thd, name->context, name->db_name, name->table_name, name->field_name);
  }
  if (item->type() == Item::FUNC_ITEM)
  {
    Item_func *function= static_cast<Item_func *>(item);
    for (uint i= 0; i < function->argument_count(); i++)
      if (Item *argument= column_of_table(thd, function->arguments()[i]))
        function->arguments()[i]= argument;
  }
  return item;
}

void rrd_arguments_of_aggregate(THD *thd, List<Item> *arguments)
{
  List_iterator<Item> each(*arguments);
  while (Item *item= each++)
    if (Item *column= column_of_table(thd, item))
      each.replace(column);
}

longlong rrd_micros_of_datetime(const MYSQL_TIME &time)
{
  const longlong days= calc_daynr(time.year, time.month, time.day) - calc_daynr(1970, 1, 1);
  const longlong seconds= (time.hour * 60LL + time.minute) * 60 + time.second;
  return days * DAY + seconds * SECOND + static_cast<longlong>(time.second_part);
}

static bool micros_of_number(Item *item, longlong *micros)
{
  if (item->result_type() == INT_RESULT)
  {
    const longlong seconds= item->val_int();
    const longlong limit= LONGLONG_MAX / SECOND;
    const bool is_large= item->unsigned_flag && seconds < 0;
    *micros= is_large || seconds > limit ? LONGLONG_MAX : seconds < -limit ? LONGLONG_MIN : seconds * SECOND;
    return item->null_value;
  }
  if (item->result_type() == DECIMAL_RESULT)
  {
    my_decimal value, factor, product;
    my_decimal *seconds= item->val_decimal(&value);
    if (!seconds)
      return true;
    int2my_decimal(E_DEC_FATAL_ERROR, SECOND, false, &factor);
    my_decimal_mul(E_DEC_FATAL_ERROR & ~E_DEC_OVERFLOW, &product, seconds, &factor);
    my_decimal2int(E_DEC_FATAL_ERROR & ~E_DEC_OVERFLOW, &product, false, micros, FLOOR);
    return false;
  }
  const double value= item->val_real() * SECOND;
  *micros= value >= 9.2e18 ? LONGLONG_MAX : value <= -9.2e18 ? LONGLONG_MIN : static_cast<longlong>(floor(value));
  return item->null_value;
}

bool rrd_micros_of(THD *thd, Item *item, longlong *micros)
{
  if (rrd_is_number(item))
    return micros_of_number(item, micros);
  if (item->field_type() == MYSQL_TYPE_TIMESTAMP)
  {
    const Timestamp_or_zero_datetime_native_null native(thd, item, true);
    if (native.is_null() || native.is_zero_datetime())
      return true;
    const timeval instant= Timestamp(native).tv();
    *micros= static_cast<longlong>(instant.tv_sec) * SECOND + instant.tv_usec;
    return false;
  }
  const Datetime date(thd, item, Datetime::Options(thd));
  if (!date.is_valid_datetime())
    return true;
  const MYSQL_TIME *time= date.get_mysql_time();
  if (!time->month || !time->day)
    return true;
  *micros= rrd_micros_of_datetime(*time);
  return false;
}

bool rrd_is_number(const Item *item)
{
  const Item_result result= item->cmp_type();
  return result == INT_RESULT || result == DECIMAL_RESULT || result == REAL_RESULT;
}

bool rrd_check_time_argument(const Item *item, const char *function)
{
  const Type_handler *type= item->type_handler();
  const bool is_date= type->cmp_type() == TIME_RESULT && type->field_type() != MYSQL_TYPE_TIME;
  const bool is_text= type->cmp_type() == STRING_RESULT && type->is_traditional_scalar_type();
  if (rrd_is_number(item) || is_date || is_text)
    return false;
  my_error(ER_ILLEGAL_PARAMETER_DATA_TYPE_FOR_OPERATION, MYF(0), type->name().ptr(), function);
  return true;
}
