/*
  time_bucket(width, time [, origin or offset]): the start of the bucket that a time is in. The arithmetic is
  crates/ffi/src/time_bucket.rs; here arguments become numbers and numbers become what the time was.

  Numbers give numbers, in their own unit. TIMESTAMP gives TIMESTAMP: an instant stays one, also when clocks are put
  back. All other dates, and texts, give DATETIME.
*/
#include "errors.h"
#include "functions.h"

#include "sql_time.h"

static const longlong SECOND= 1000000;

class Item_func_time_bucket : public Item_func_hybrid_field_type
{
public:
  Item_func_time_bucket(THD *thd, List<Item> &list) : Item_func_hybrid_field_type(thd, list) {}

  LEX_CSTRING func_name_cstring() const override { return {STRING_WITH_LEN("time_bucket")}; }

  bool fix_length_and_dec(THD *thd) override
  {
    is_parsed= false;
    set_maybe_null();
    if (rrd_check_time_argument(args[1], func_name()))
      return true;
    if (rrd_is_number(args[1]))
    {
      unsigned_flag= args[1]->result_type() == INT_RESULT && args[1]->unsigned_flag;
      set_handler(unsigned_flag ? static_cast<const Type_handler *>(&type_handler_ulonglong) : &type_handler_slonglong);
      fix_char_length(MAX_BIGINT_WIDTH);
      decimals= 0;
      return false;
    }
    const bool is_instant= args[1]->field_type() == MYSQL_TYPE_TIMESTAMP;
    set_handler(is_instant ? static_cast<const Type_handler *>(&type_handler_timestamp2) : &type_handler_datetime2);
    fix_attributes_datetime(args[1]->datetime_precision(thd));
    return false;
  }

  longlong int_op() override
  {
    int64_t start;
    return start_of(current_thd, &start) ? 0 : start;
  }
  double real_op() override { return static_cast<double>(int_op()); }
  my_decimal *decimal_op(my_decimal *to) override
  {
    const longlong start= int_op();
    if (null_value)
      return nullptr;
    int2my_decimal(E_DEC_FATAL_ERROR, start, unsigned_flag, to);
    return to;
  }
  String *str_op(String *) override { return nullptr; }
  bool time_op(THD *, MYSQL_TIME *) override { return true; }
  bool date_op(THD *thd, MYSQL_TIME *to, date_mode_t) override;
  bool native_op(THD *thd, Native *to) override;

  void cleanup() override
  {
    is_parsed= false;
    Item_func_hybrid_field_type::cleanup();
  }

  Item *shallow_copy(THD *thd) const override { return get_item_copy<Item_func_time_bucket>(thd, this); }

  /* True if it depends on rows, or is refused: that is for the first row to say. */
  bool bucket_of(THD *thd, RrdBucket *to)
  {
    Dummy_error_handler quiet;
    thd->push_internal_handler(&quiet);
    const bool failed= parse(thd) || !is_parsed;
    thd->pop_internal_handler();
    *to= bucket;
    return failed;
  }

private:
  bool start_of(THD *thd, int64_t *start);
  bool parse(THD *thd);
  bool parse_width();
  bool parse_origin_or_offset(THD *thd);
  bool out_of_range(THD *thd);

  longlong units_of_second() const { return rrd_is_number(args[1]) ? 1 : SECOND; }
  bool fail(const RrdError &error);

  RrdBucket bucket;
  bool is_parsed= false; /* `bucket` is of constants, and holds for all rows */
};

bool Item_func_time_bucket::fail(const RrdError &error)
{
  my_printf_error(ER_WRONG_ARGUMENTS, "%s", MYF(0), error.message);
  return true;
}

/* True if an argument is NULL, or after an error. */
bool Item_func_time_bucket::parse(THD *thd)
{
  if (is_parsed)
    return false;
  if (parse_width() || (arg_count > 2 && parse_origin_or_offset(thd)))
    return true;
  is_parsed= args[0]->const_item() && (arg_count < 3 || args[2]->const_item());
  return false;
}

bool Item_func_time_bucket::parse_width()
{
  RrdError error;
  const longlong unit= units_of_second();
  if (args[0]->result_type() != STRING_RESULT)
  {
    /* A number counts what the time counts; beside a date it is seconds. */
    const longlong width= args[0]->val_int();
    if (args[0]->null_value)
      return true;
    if (width > 0 && width <= LONGLONG_MAX / unit && args[0]->val_real() == static_cast<double>(width))
      return rrd_bucket_of(width * unit, {nullptr, 0}, unit, &bucket, &error) != RRD_OK && fail(error);
  }
  StringBuffer<64> buffer;
  const String *text= args[0]->val_str(&buffer);
  return !text || (rrd_bucket_of(0, rrd_text(text), unit, &bucket, &error) != RRD_OK && fail(error));
}

bool Item_func_time_bucket::parse_origin_or_offset(THD *thd)
{
  RrdError error;
  Item *third= args[2];
  if (rrd_is_number(third))
  {
    const longlong units= third->val_int();
    if (third->null_value)
      return true;
    const longlong unit= units_of_second();
    const longlong limit= LONGLONG_MAX / unit;
    const longlong moved= units > limit || units < -limit ? LONGLONG_MAX : units * unit;
    return rrd_bucket_move_units(&bucket, moved, &error) != RRD_OK && fail(error);
  }
  if (third->cmp_type() == STRING_RESULT)
  {
    StringBuffer<64> buffer;
    const String *text= third->val_str(&buffer);
    if (!text)
      return true;
    const int status= rrd_bucket_move(&bucket, rrd_text(text), &error);
    if (status == RRD_OK)
      return false;
    if (status != RRD_NOT_FOUND)
      return fail(error);
  }
  longlong origin;
  if (!rrd_micros_of(thd, third, &origin))
    return rrd_bucket_start_at(&bucket, origin / (SECOND / units_of_second()), &error) != RRD_OK && fail(error);
  if (third->null_value)
    return true;
  my_printf_error(ER_WRONG_ARGUMENTS, "time_bucket: its third argument is neither an offset such as '2m' (months only "
                  "for months and years) nor a date", MYF(0));
  return true;
}

/* In the unit of the time, microseconds of dates. True, and null_value, for NULL or after an error. */
bool Item_func_time_bucket::start_of(THD *thd, int64_t *start)
{
  longlong time;
  null_value= true;
  if (parse(thd))
    return true;
  bool is_null;
  if (rrd_is_number(args[1]) && args[1]->result_type() == INT_RESULT)
  {
    time= args[1]->val_int();
    is_null= args[1]->null_value;
  }
  else
  {
    is_null= rrd_micros_of(thd, args[1], &time);
    if (!is_null && rrd_is_number(args[1])) /* a fraction of a unit is in the bucket of the unit */
      time= time / SECOND - (time % SECOND < 0);
  }
  if (is_null)
    return true;
  RrdError error;
  const int status= rrd_bucket_start(&bucket, time, unsigned_flag, start, &error);
  if (status == RRD_LIMIT)
  {
    my_error(ER_DATA_OUT_OF_RANGE, MYF(0), unsigned_flag ? "BIGINT UNSIGNED" : "BIGINT", "time_bucket()");
    return true;
  }
  if (status != RRD_OK)
    return fail(error);
  null_value= false;
  return false;
}

bool Item_func_time_bucket::out_of_range(THD *thd)
{
  push_warning_printf(thd, Sql_condition::WARN_LEVEL_WARN, ER_DATETIME_FUNCTION_OVERFLOW,
                      ER_THD(thd, ER_DATETIME_FUNCTION_OVERFLOW), func_name());
  return null_value= true;
}

static longlong floor_seconds(longlong micros) { return micros / SECOND - (micros % SECOND < 0); }

bool Item_func_time_bucket::date_op(THD *thd, MYSQL_TIME *to, date_mode_t)
{
  int64_t micros;
  if (start_of(thd, &micros))
    return true;
  const longlong seconds= floor_seconds(micros);
  if (args[1]->field_type() == MYSQL_TYPE_TIMESTAMP)
  {
    if (seconds < TIMESTAMP_MIN_VALUE || seconds > TIMESTAMP_MAX_VALUE)
      return out_of_range(thd);
    thd->variables.time_zone->gmt_sec_to_TIME(to, static_cast<my_time_t>(seconds));
    thd->used|= THD::TIME_ZONE_USED;
  }
  else
  {
    const longlong day= seconds / 86400 - (seconds % 86400 < 0);
    const longlong number= day + calc_daynr(1970, 1, 1);
    /* The server counts days from year 0 on, and its calendar of dates begins a year later. */
    if (number < calc_daynr(1, 1, 1) || number > calc_daynr(9999, 12, 31))
      return out_of_range(thd);
    const longlong second= seconds - day * 86400;
    bzero(to, sizeof(*to));
    get_date_from_daynr(static_cast<long>(number), &to->year, &to->month, &to->day);
    to->hour= static_cast<uint>(second / 3600);
    to->minute= static_cast<uint>(second / 60 % 60);
    to->second= static_cast<uint>(second % 60);
    to->time_type= MYSQL_TIMESTAMP_DATETIME;
  }
  to->second_part= static_cast<ulong>(micros - seconds * SECOND);
  return null_value= false;
}

bool Item_func_time_bucket::native_op(THD *thd, Native *to)
{
  int64_t micros;
  if (start_of(thd, &micros))
    return true;
  const longlong seconds= floor_seconds(micros);
  if (seconds < TIMESTAMP_MIN_VALUE || seconds > TIMESTAMP_MAX_VALUE)
    return out_of_range(thd);
  const Timestamp instant(static_cast<my_time_t>(seconds), static_cast<ulong>(micros - seconds * SECOND));
  return null_value= Timestamp_or_zero_datetime(instant, false).to_native(to, decimals);
}

bool rrd_time_bucket_of(THD *thd, Item_func *function, RrdBucket *bucket)
{
  return static_cast<Item_func_time_bucket *>(function)->bucket_of(thd, bucket);
}

class Create_time_bucket : public Create_native_func
{
public:
  Item *create_native(THD *thd, const LEX_CSTRING *name, List<Item> *list) override
  {
    if (list && (list->elements == 2 || list->elements == 3))
      return new (thd->mem_root) Item_func_time_bucket(thd, *list);
    my_error(ER_WRONG_PARAMCOUNT_TO_NATIVE_FCT, MYF(0), name->str);
    return nullptr;
  }
};

static Create_time_bucket create_time_bucket;
Plugin_function rrd_time_bucket_function(&create_time_bucket);
