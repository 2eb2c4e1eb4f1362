/*
  Aggregates rrd_delta(value, time [, type]) and rrd_rate(..): what a counter counted in the rows of a group, and how much
  a second. The arithmetic is crates/ffi/src/counter.rs, on crates/consolidate.

  Like first() and last() they say that they are UDFs: see first_last.cc.
*/
#include "errors.h"
#include "functions.h"

/* Owns a group's readings. A copy of an item begins without any. */
class Readings
{
public:
  Readings()= default;
  Readings(const Readings &) {}
  Readings &operator=(const Readings &)= delete;
  ~Readings() { close(); }
  void close()
  {
    rrd_counter_close(counter);
    counter= nullptr;
  }
  RrdCounter *counter= nullptr;
};

class Item_sum_counter : public Item_sum_double
{
public:
  Item_sum_counter(THD *thd, List<Item> &list) : Item_sum_double(thd, list) { quick_group= false; }
  Item_sum_counter(THD *thd, Item_sum_counter *other) : Item_sum_double(thd, other) { quick_group= false; }

  Sumfunctype sum_func() const override { return UDF_SUM_FUNC; }

  bool fix_length_and_dec(THD *) override
  {
    decimals= NOT_FIXED_DEC;
    max_length= float_length(decimals);
    set_maybe_null();
    null_value= true;
    return rrd_check_time_argument(args[1], own_name());
  }

  void clear() override
  {
    RrdError error;
    null_value= true;
    is_counted= false;
    if (readings.counter && rrd_counter_clear(readings.counter, &error) != RRD_OK)
      rrd_report(error);
  }
  bool add() override;
  double val_real() override;

  void reset_field() override {}
  void update_field() override {}

  void cleanup() override
  {
    readings.close();
    is_counted= false;
    Item_sum_double::cleanup();
  }

protected:
  virtual const char *own_name() const= 0;
  virtual double result(double amount, double seconds) const= 0;

private:
  bool open();
  bool fail(const RrdError &error);
  RrdNumberKind number(ulonglong *bits);

  Readings readings;
  bool is_counted= false; /* `null_value` and `last_result` are of the readings */
  double last_result= 0;
};

bool Item_sum_counter::fail(const RrdError &error)
{
  my_printf_error(ER_WRONG_ARGUMENTS, "%s: %s", MYF(0), own_name(), error.message);
  return true;
}

/* Whole numbers are taken for a COUNTER, others for a DCOUNTER, unless the third argument says it. */
bool Item_sum_counter::open()
{
  if (readings.counter)
    return false;
  StringBuffer<32> buffer;
  const bool is_whole= args[0]->result_type() == INT_RESULT ||
                       (args[0]->result_type() == DECIMAL_RESULT && args[0]->decimals == 0);
  RrdText kind= is_whole ? RrdText{STRING_WITH_LEN("COUNTER")} : RrdText{STRING_WITH_LEN("DCOUNTER")};
  if (arg_count > 2)
  {
    const String *text= args[2]->val_str(&buffer);
    kind= text ? rrd_text(text) : RrdText{STRING_WITH_LEN("NULL")};
  }
  RrdError error;
  return rrd_counter_open(kind, &readings.counter, &error) != RRD_OK && fail(error);
}

RrdNumberKind Item_sum_counter::number(ulonglong *bits)
{
  Item *item= args[0];
  if (item->result_type() == INT_RESULT)
  {
    *bits= item->val_int();
    return item->null_value ? RRD_NUMBER_NULL : item->unsigned_flag ? RRD_NUMBER_UNSIGNED : RRD_NUMBER_SIGNED;
  }
  if (item->result_type() == DECIMAL_RESULT && item->decimals == 0)
  {
    my_decimal buffer;
    const my_decimal *value= item->val_decimal(&buffer);
    if (!value)
      return RRD_NUMBER_NULL;
    longlong whole;
    const bool is_negative= value->sign();
    if (my_decimal2int(0, value, !is_negative, &whole) == E_DEC_OK)
    {
      *bits= whole;
      return is_negative ? RRD_NUMBER_SIGNED : RRD_NUMBER_UNSIGNED;
    }
  }
  const double value= item->val_real();
  if (item->null_value)
    return RRD_NUMBER_NULL;
  memcpy(bits, &value, sizeof(value));
  return RRD_NUMBER_DOUBLE;
}

bool Item_sum_counter::add()
{
  if (open())
    return true;
  longlong micros;
  if (rrd_micros_of(current_thd, args[1], &micros))
    return false;
  ulonglong bits= 0;
  const RrdNumberKind kind= number(&bits);
  RrdError error;
  is_counted= false;
  return rrd_counter_add(readings.counter, micros, kind, bits, &error) != RRD_OK && fail(error);
}

double Item_sum_counter::val_real()
{
  if (is_counted || !readings.counter)
    return null_value ? 0 : last_result;
  RrdError error;
  double amount, seconds;
  const int status= rrd_counter_result(readings.counter, &amount, &seconds, &error);
  is_counted= true;
  null_value= status != RRD_OK;
  last_result= null_value ? 0 : result(amount, seconds);
  if (null_value && status != RRD_NOT_FOUND)
    fail(error);
  return last_result;
}

class Item_sum_delta final : public Item_sum_counter
{
public:
  using Item_sum_counter::Item_sum_counter;
  LEX_CSTRING func_name_cstring() const override { return {STRING_WITH_LEN("rrd_delta(")}; }
  Item *copy_or_same(THD *thd) override { return new (thd->mem_root) Item_sum_delta(thd, this); }
  Item *shallow_copy(THD *thd) const override { return get_item_copy<Item_sum_delta>(thd, this); }

protected:
  const char *own_name() const override { return "rrd_delta"; }
  double result(double amount, double) const override { return amount; }
};

class Item_sum_rate final : public Item_sum_counter
{
public:
  using Item_sum_counter::Item_sum_counter;
  LEX_CSTRING func_name_cstring() const override { return {STRING_WITH_LEN("rrd_rate(")}; }
  Item *copy_or_same(THD *thd) override { return new (thd->mem_root) Item_sum_rate(thd, this); }
  Item *shallow_copy(THD *thd) const override { return get_item_copy<Item_sum_rate>(thd, this); }

protected:
  const char *own_name() const override { return "rrd_rate"; }
  double result(double amount, double seconds) const override { return amount / seconds; }
};

template <class Function> class Create_counter : public Create_native_func
{
public:
  Item *create_native(THD *thd, const LEX_CSTRING *name, List<Item> *list) override
  {
    if (!list || (list->elements != 2 && list->elements != 3))
    {
      my_error(ER_WRONG_PARAMCOUNT_TO_NATIVE_FCT, MYF(0), name->str);
      return nullptr;
    }
    rrd_arguments_of_aggregate(thd, list);
    return new (thd->mem_root) Function(thd, *list);
  }
};

static Create_counter<Item_sum_delta> create_delta;
static Create_counter<Item_sum_rate> create_rate;
Plugin_function rrd_delta_function(&create_delta);
Plugin_function rrd_rate_function(&create_rate);
