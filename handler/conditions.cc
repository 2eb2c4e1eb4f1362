/*
  WHERE as the engine evaluates it; see conditions.h.

  Integers, and steps of them, are compared here in 128 bits, which is what the server's comparisons of integers and
  DECIMALs of any sign come to. Other numbers and dates are stored in the column's own field, and the server then says on
  which side of the value that lies.
*/
#include "conditions.h"

#include "comparison.h"

/* Beyond all integers of SQL. */
static const Rrd_wide far_out= Rrd_wide(1) << 68;
/* Doubles hold integers up to here exactly. */
static const Rrd_wide exact_double= Rrd_wide(1) << 53;

static Rrd_wide rounded_up(Rrd_wide a, Rrd_wide b) { return -rrd_rounded_down(-a, b); }

/* Types whose values compare as what is stored does. */
static bool is_comparable_as_stored(const Field *field, const Item *value)
{
  switch (field->real_type())
  {
  case MYSQL_TYPE_NEWDECIMAL:
  case MYSQL_TYPE_FLOAT:
  case MYSQL_TYPE_DOUBLE:
  case MYSQL_TYPE_NEWDATE:
  case MYSQL_TYPE_DATETIME2:
  case MYSQL_TYPE_TIMESTAMP2:
    return rrd_is_comparable(field, value);
  default:
    return false;
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

/*
  Whether a constant can be asked for its value now. Of one that has yet to be made a date the server may warn, once: that
  is left to the server.
*/
static bool is_known(THD *thd, Item *value)
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

/* Whether a value does not change while the query reads rows: a constant, or a column of an outer query. */
static bool is_constant_for_query(Item *value)
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
  return value->sign() ? -far_out : far_out;
}

/* A number between two integers, which are the same if it is one; false if it cannot be compared exactly. */
static bool integers_around(Item *value, bool is_small, Rrd_wide *below, Rrd_wide *above)
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
    const double number= value->val_real(), limit= double(exact_double);
    *below= Rrd_wide(floor(MY_MAX(-limit, MY_MIN(limit, number))));
    *above= Rrd_wide(ceil(MY_MAX(-limit, MY_MIN(limit, number))));
    return is_small && !std::isnan(number);
  }
  default:
    return false;
  }
}

// -- What the conditions leave ----------------------------------------------------------------------------

const uchar *Rrd_conditions::keep(const void *bytes, size_t length)
{
  m_keeps_in->emplace_back(static_cast<const char *>(bytes), length);
  return reinterpret_cast<const uchar *>(m_keeps_in->back().data());
}

const uchar *Rrd_conditions::image_of(Field *field) { return keep(field->ptr, field->pack_length()); }

const uchar *Rrd_conditions::image_of(Field *field, Rrd_wide value)
{
  if (rrd_is_integer(field))
  {
    field->store(static_cast<longlong>(value), field->is_unsigned());
    return image_of(field);
  }
  uchar second[16]= {};
  mi_int4store(second, static_cast<uint32>(value));
  return keep(second, field->pack_length());
}

RrdCondition &Rrd_conditions::push(Field *field, RrdTest test, bool is_negated)
{
  RrdCondition condition= {};
  condition.field= field->field_index;
  condition.test= test;
  condition.is_negated= is_negated;
  m_list.push_back(condition);
  return m_list.back();
}

/* One of values, which lie one behind the other. */
void Rrd_conditions::push_in(Field *field, const std::string &images, uint count, bool is_negated)
{
  const uchar *kept= keep(images.data(), images.length());
  RrdCondition &condition= push(field, RRD_TEST_IN, is_negated);
  condition.values= kept;
  condition.count= count;
  if (count == 1 && !is_negated)
    m_only.push_back({field, kept});
}

Rrd_bounds Rrd_conditions::bounds_of(const Field *field) const
{
  Rrd_bounds bounds= rrd_bounds_of_type(field);
  for (const auto &known : m_bounds)
    if (known.first == field)
      bounds= {MY_MAX(bounds.low, known.second.low), MY_MIN(bounds.high, known.second.high)};
  return bounds;
}

const uchar *Rrd_conditions::only_value_of(const Field *field) const
{
  for (const auto &known : m_only)
    if (known.first == field)
      return known.second;
  return nullptr;
}

bool Rrd_conditions::is_one_text(const Field *field) const
{
  for (const Field *known : m_one_text)
    if (known == field)
      return true;
  return false;
}

const std::vector<RrdCondition> &Rrd_conditions::current()
{
  const size_t conditions= m_list.size(), bounds= m_bounds.size(), only= m_only.size();
  const bool is_never= m_is_never;
  std::list<std::string> bytes;
  m_keeps_in= &bytes;
  for (const Late &late : m_late)
    compare_steps(late.steps, late.value, late.operation);
  if (m_is_never)
    push(m_table->field[0], RRD_TEST_NEVER, false);
  m_current= m_list;
  m_late_bytes.swap(bytes);
  /* What is known for good does not grow by it. */
  m_keeps_in= &m_bytes;
  m_list.resize(conditions);
  m_bounds.resize(bounds);
  m_only.resize(only);
  m_is_never= is_never;
  return m_current;
}

// -- Integers and steps --------------------------------------------------------------------------------------

/* The first and the last value of the column with a number of steps. */
static Rrd_wide first_of(const Rrd_steps &steps, Rrd_wide n)
{
  return steps.origin + n * steps.width - (steps.towards_zero && n <= 0 ? steps.width - 1 : 0);
}

static Rrd_wide last_of(const Rrd_steps &steps, Rrd_wide n)
{
  return steps.origin + n * steps.width + (steps.towards_zero && n < 0 ? 0 : steps.width - 1);
}

void Rrd_conditions::add_range(const Rrd_steps &steps, Rrd_wide low, Rrd_wide high, bool is_negated)
{
  Field *field= steps.field;
  const Rrd_bounds all= rrd_bounds_of_type(field);
  low= first_of(steps, rounded_up(MY_MAX(low, -far_out) - steps.add, steps.factor));
  high= last_of(steps, rrd_rounded_down(MY_MIN(high, far_out) - steps.add, steps.factor));
  low= MY_MAX(low, all.low);
  high= MY_MIN(high, all.high);
  if (low > high && !is_negated)
    return add_never();
  if (low > high || (low == all.low && high == all.high && !is_negated))
  {
    /* All values; NULL is none. */
    if (field->maybe_null())
      push(field, RRD_TEST_NULL, true);
    return;
  }
  if (low == all.low && high == all.high)
    return add_never();
  const bool is_integer= rrd_is_integer(field);
  const uchar *first= image_of(field, low);
  const uchar *last= is_integer ? image_of(field, high) : high < all.high ? image_of(field, high + 1) : nullptr;
  RrdCondition &condition= push(field, RRD_TEST_RANGE, is_negated);
  condition.low= first;
  condition.high= last;
  condition.excludes_high= !is_integer;
  if (is_negated)
    return;
  m_bounds.push_back({field, {low, high}});
  if (is_integer && low == high)
    m_only.push_back({field, first});
}

bool Rrd_conditions::compare_steps(const Rrd_steps &steps, Item *value, int operation)
{
  if (steps.has_fraction)
    return compare_fraction(steps, value, operation);
  const Rrd_bounds bounds= bounds_of(steps.field);
  const bool is_small= steps.value_at(bounds.low) > -exact_double && steps.value_at(bounds.high) < exact_double;
  Rrd_wide below= 0, above= 0;
  if (!integers_around(value, is_small, &below, &above))
    return false;
  if (value->null_value)
  {
    add_never();
    return true;
  }
  switch (operation)
  {
  case Item_func::EQ_FUNC:
  case Item_func::EQUAL_FUNC:
    add_range(steps, above, below, false);
    return true;
  case Item_func::NE_FUNC:
    add_range(steps, above, below, true);
    return true;
  case Item_func::LT_FUNC:
    add_range(steps, -far_out, above - 1, false);
    return true;
  case Item_func::LE_FUNC:
    add_range(steps, -far_out, below, false);
    return true;
  case Item_func::GT_FUNC:
    add_range(steps, below + 1, far_out, false);
    return true;
  case Item_func::GE_FUNC:
    add_range(steps, above, far_out, false);
    return true;
  default:
    return false;
  }
}

/* UNIX_TIMESTAMP(time), of a time with parts of seconds: `value` is a whole second. */
bool Rrd_conditions::compare_fraction(const Rrd_steps &steps, Item *value, int operation)
{
  Rrd_wide second= 0, above= 0;
  if (steps.width != 1 || steps.factor != 1 || !integers_around(value, true, &second, &above) || second != above)
    return false;
  if (value->null_value)
  {
    add_never();
    return true;
  }
  second-= steps.add - steps.origin;
  if (second < 0 || second > UINT_MAX32)
    return false;
  const bool has_low= operation != Item_func::LT_FUNC && operation != Item_func::LE_FUNC;
  const bool has_high= operation != Item_func::GT_FUNC && operation != Item_func::GE_FUNC;
  const uchar *image= image_of(steps.field, second);
  RrdCondition &condition= push(steps.field, RRD_TEST_RANGE, operation == Item_func::NE_FUNC);
  condition.low= has_low ? image : nullptr;
  condition.high= has_high ? image : nullptr;
  condition.excludes_low= operation == Item_func::GT_FUNC;
  condition.excludes_high= operation == Item_func::LT_FUNC;
  if (has_low && operation != Item_func::NE_FUNC)
    m_bounds.push_back({steps.field, {second, UINT_MAX32}});
  return true;
}

// -- Other numbers and dates ---------------------------------------------------------------------------------

/* Puts a value into a field; `order` says how what is there compares with it. False if that would not be exact. */
bool Rrd_conditions::store(Field *field, Item *value, int *order)
{
  if (!is_comparable_as_stored(field, value) || value->save_in_field_no_warnings(field, true))
    return false;
  if (value->null_value)
    return true;
  *order= stored_field_cmp_to_item(m_thd, field, value);
  return rrd_is_clear_time(m_thd, field);
}

bool Rrd_conditions::compare_stored(Field *field, Item *value, int operation)
{
  int order= 0;
  if (!store(field, value, &order))
    return false;
  if (value->null_value)
  {
    add_never();
    return true;
  }
  if (operation == Item_func::EQUAL_FUNC)
    operation= Item_func::EQ_FUNC;
  if (operation == Item_func::EQ_FUNC && order)
    add_never();
  else if (operation == Item_func::NE_FUNC && order)
    push(field, RRD_TEST_NULL, true);
  else
  {
    /* What was stored is the value itself or the nearest that the column can hold, on the side that `order` tells. */
    const uchar *image= image_of(field);
    RrdCondition &condition= push(field, RRD_TEST_RANGE, operation == Item_func::NE_FUNC);
    if (operation != Item_func::LT_FUNC && operation != Item_func::LE_FUNC)
      condition.low= image;
    if (operation != Item_func::GT_FUNC && operation != Item_func::GE_FUNC)
      condition.high= image;
    condition.excludes_low= operation == Item_func::GT_FUNC ? order <= 0 : order < 0;
    condition.excludes_high= operation == Item_func::LT_FUNC ? order >= 0 : order > 0;
    if (operation == Item_func::EQ_FUNC && field->cmp_type() != REAL_RESULT)
      m_only.push_back({field, image});
    if (condition.low && operation != Item_func::NE_FUNC && field->type() == MYSQL_TYPE_TIMESTAMP)
    {
      ulong fraction;
      m_bounds.push_back({field, {field->get_timestamp(&fraction), UINT_MAX32}});
    }
  }
  return true;
}

// -- Texts ---------------------------------------------------------------------------------------------------

bool Rrd_conditions::add_texts(Field *field, Item_func *function, Item **values, uint count, bool is_negated)
{
  const bool is_fixed= field->real_type() == MYSQL_TYPE_STRING, is_binary= field->charset() == &my_charset_bin;
  /* A CHAR compares with or without the spaces behind it, by its collation and the SQL mode. */
  if (static_cast<const Item_bool_func *>(function)->compare_collation() != field->charset() ||
      (is_fixed && !is_binary && field->charset()->state & MY_CS_NOPAD))
    return false;
  std::vector<RrdText> texts;
  for (uint i= 0; i < count; i++)
  {
    if (!is_known(m_thd, values[i]) || values[i]->cmp_type() != STRING_RESULT)
      return false;
    StringBuffer<MAX_FIELD_WIDTH> buffer;
    String converted, *text= values[i]->val_str(&buffer);
    uint errors= 0;
    if (!text && is_negated)
    {
      add_never();
      return true;
    }
    if (!text)
      continue;
    if (converted.copy(text->ptr(), text->length(), text->charset(), field->charset(), &errors) || errors)
      return false;
    /* A BINARY has zero bytes behind it that count. */
    if (is_fixed && is_binary && converted.length() != field->field_length)
      continue;
    texts.push_back({reinterpret_cast<const char *>(keep(converted.ptr(), converted.length())), converted.length()});
  }
  m_texts.push_back(texts);
  RrdCondition &condition= push(field, RRD_TEST_TEXT, is_negated);
  condition.texts= m_texts.back().data();
  condition.count= texts.size();
  if (texts.size() == 1 && !is_negated)
    m_one_text.push_back(field);
  return true;
}

// -- Conditions ----------------------------------------------------------------------------------------------

bool Rrd_conditions::add_comparison(Item_func *function, Item *expression, Item *value, int operation)
{
  Field *field= rrd_field_of(expression, m_table);
  Rrd_steps steps;
  const Item_result compared= expression->cmp_type();
  if ((compared == INT_RESULT || compared == DECIMAL_RESULT) &&
      rrd_find_steps(m_thd, expression, m_table, *this, &steps))
  {
    if (is_known(m_thd, value))
      return compare_steps(steps, value, operation);
    const bool is_exact= value->cmp_type() == INT_RESULT || value->cmp_type() == DECIMAL_RESULT;
    if (steps.has_fraction || operation == Item_func::EQUAL_FUNC || !is_exact || !is_constant_for_query(value))
      return false;
    m_late.push_back({steps, operation, value});
    return true;
  }
  if (!field || rrd_is_integer(field) || !is_known(m_thd, value))
    return false;
  if (rrd_is_plain_text(field) && (operation == Item_func::EQ_FUNC || operation == Item_func::NE_FUNC))
    return add_texts(field, function, &value, 1, operation == Item_func::NE_FUNC);
  return compare_stored(field, value, operation);
}

bool Rrd_conditions::add_null(Item *expression, bool is_negated)
{
  Field *field= rrd_field_of(expression, m_table);
  if (field)
    push(field, RRD_TEST_NULL, is_negated);
  return field;
}

/* `field` IN (constants). */
bool Rrd_conditions::add_in_list(Field *field, Item_func *function, bool is_negated)
{
  Item **values= function->arguments() + 1;
  const uint count= function->argument_count() - 1;
  const bool is_integer= rrd_is_integer(field);
  const Rrd_bounds all= rrd_bounds_of_type(field);
  std::string images;
  uint found= 0;
  for (uint i= 0; i < count; i++)
  {
    Item *value= values[i];
    if (!is_known(m_thd, value))
      return false;
    Rrd_wide below= 0, above= 0;
    int order= 0;
    if (is_integer ? value->cmp_type() != INT_RESULT || !integers_around(value, false, &below, &above)
                   : field->cmp_type() == REAL_RESULT || !store(field, value, &order))
      return false;
    if (value->null_value && is_negated)
    {
      add_never();
      return true;
    }
    if (value->null_value || order || (is_integer && (below < all.low || below > all.high)))
      continue;
    const uchar *image= is_integer ? image_of(field, below) : image_of(field);
    images.append(reinterpret_cast<const char *>(image), field->pack_length());
    found++;
  }
  push_in(field, images, found, is_negated);
  return true;
}

bool Rrd_conditions::add_in(Item_func *function)
{
  const bool is_negated= static_cast<Item_func_in *>(function)->negated;
  Field *field= rrd_field_of(function->arguments()[0], m_table);
  if (!field)
    return false;
  if (rrd_is_plain_text(field))
    return add_texts(field, function, function->arguments() + 1, function->argument_count() - 1, is_negated);
  return add_in_list(field, function, is_negated);
}

bool Rrd_conditions::add_function(Item_func *function)
{
  Item **sides= function->arguments();
  const int operation= function->functype();
  switch (operation)
  {
  case Item_func::EQ_FUNC:
  case Item_func::EQUAL_FUNC:
  case Item_func::NE_FUNC:
  case Item_func::LT_FUNC:
  case Item_func::LE_FUNC:
  case Item_func::GT_FUNC:
  case Item_func::GE_FUNC:
  {
    const bool is_turned= is_constant_for_query(sides[0]);
    Item *value= sides[!is_turned];
    if (operation == Item_func::EQUAL_FUNC)
    {
      if (!is_known(m_thd, value))
        return false;
      if (value->is_null())
        return add_null(sides[is_turned], false);
    }
    return add_comparison(function, sides[is_turned], value, is_turned ? rrd_turned(operation) : operation);
  }
  case Item_func::BETWEEN:
    if (sides[1]->cmp_type() != sides[2]->cmp_type())
      return false;
    if (static_cast<Item_func_between *>(function)->negated)
      return add_outside(function);
    return add_comparison(function, sides[0], sides[1], Item_func::GE_FUNC) &&
      add_comparison(function, sides[0], sides[2], Item_func::LE_FUNC);
  case Item_func::IN_FUNC:
    return add_in(function);
  case Item_func::ISNULL_FUNC:
    return add_null(sides[0], false);
  case Item_func::ISNOTNULL_FUNC:
    return add_null(sides[0], true);
  default:
    return false;
  }
}

/* column = a OR column = b .. */
bool Rrd_conditions::add_either(Item_cond *condition)
{
  Field *field= nullptr;
  std::string images;
  uint found= 0;
  List_iterator<Item> each(*condition->argument_list());
  while (Item *part= each++)
  {
    if (part->type() != Item::FUNC_ITEM || static_cast<Item_func *>(part)->functype() != Item_func::EQ_FUNC)
      return false;
    Item **sides= static_cast<Item_func *>(part)->arguments();
    const bool is_turned= sides[0]->const_item();
    Item *value= sides[!is_turned];
    Field *of= rrd_field_of(sides[is_turned], m_table);
    Rrd_wide below= 0, above= 0;
    if (!of || (field && field != of) || !rrd_is_integer(of) || !is_known(m_thd, value) ||
        value->cmp_type() != INT_RESULT || !integers_around(value, false, &below, &above))
      return false;
    field= of;
    const Rrd_bounds all= rrd_bounds_of_type(field);
    if (value->null_value || below < all.low || below > all.high)
      continue;
    images.append(reinterpret_cast<const char *>(image_of(field, below)), field->pack_length());
    found++;
  }
  if (!field)
    return false;
  push_in(field, images, found, false);
  return true;
}

/* Starts a condition that is made of those which are pushed until it is ended. */
size_t Rrd_conditions::begin(RrdTest test)
{
  RrdCondition condition= {};
  condition.test= test;
  m_list.push_back(condition);
  return m_list.size() - 1;
}

/*
  Adds one of the parts of an OR. What is known of fields by it holds within it only; values that come later are not for
  parts.
*/
bool Rrd_conditions::add_part(const std::function<bool()> &add)
{
  const size_t bounds= m_bounds.size(), only= m_only.size(), texts= m_one_text.size(), late= m_late.size();
  const bool was_never= m_is_never;
  m_is_never= false;
  const size_t all= begin(RRD_TEST_ALL);
  const bool is_added= add() && m_late.size() == late;
  if (m_is_never)
    begin(RRD_TEST_NEVER);
  end(all);
  m_is_never= was_never;
  m_bounds.resize(bounds);
  m_only.resize(only);
  m_one_text.resize(texts);
  m_late.resize(late);
  return is_added;
}

bool Rrd_conditions::add_any(Item_cond *condition)
{
  const size_t any= begin(RRD_TEST_ANY);
  List_iterator<Item> each(*condition->argument_list());
  while (Item *part= each++)
    if (!add_part([&] { return add_condition(part); }))
    {
      m_list.resize(any);
      return false;
    }
  end(any);
  return true;
}

bool Rrd_conditions::add_outside(Item_func *function)
{
  Item **sides= function->arguments();
  const size_t any= begin(RRD_TEST_ANY);
  if (!add_part([&] { return add_comparison(function, sides[0], sides[1], Item_func::LT_FUNC); }) ||
      !add_part([&] { return add_comparison(function, sides[0], sides[2], Item_func::GT_FUNC); }))
  {
    m_list.resize(any);
    return false;
  }
  end(any);
  return true;
}

namespace
{
/* Takes in what the server has to say about constants: that is for the server's own comparisons to say, row by row. */
class Quiet final : public Internal_error_handler
{
public:
  explicit Quiet(THD *thd) : m_thd(thd) { thd->push_internal_handler(this); }
  ~Quiet() override { m_thd->pop_internal_handler(); }
  bool handle_condition(THD *, uint, const char *, Sql_condition::enum_warning_level *, const char *,
                        Sql_condition **) override
  {
    return has_heard= true;
  }

  bool has_heard= false;

private:
  THD *m_thd;
};
}

bool Rrd_conditions::add(Item *where, std::vector<Item *> *rest)
{
  if (where->type() == Item::COND_ITEM && static_cast<Item_cond *>(where)->functype() == Item_func::COND_AND_FUNC)
  {
    List_iterator<Item> each(*static_cast<Item_cond *>(where)->argument_list());
    while (Item *part= each++)
      if (!add(part, rest))
        return false;
    return true;
  }
  Quiet quiet(m_thd);
  if (!add_condition(where))
    rest->push_back(where);
  return !quiet.has_heard;
}

bool Rrd_conditions::add_condition(Item *condition)
{
  if (condition->type() == Item::COND_ITEM)
  {
    Item_cond *parts= static_cast<Item_cond *>(condition);
    if (parts->functype() == Item_func::COND_OR_FUNC)
      return add_either(parts) || add_any(parts);
    if (parts->functype() != Item_func::COND_AND_FUNC)
      return false;
    List_iterator<Item> each(*parts->argument_list());
    while (Item *part= each++)
      if (!add_condition(part))
        return false;
    return true;
  }
  if (condition->type() == Item::FUNC_ITEM && !condition->const_item())
    return add_function(static_cast<Item_func *>(condition));
  if (!is_known(m_thd, condition))
    return false;
  if (!condition->val_bool())
    add_never();
  return true;
}
