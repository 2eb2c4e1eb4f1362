/*
  What a comparison with constants comes to; see conditions.h.

  Integers, and steps of them, are compared here in 128 bits, which is what the server's comparisons of integers and
  DECIMALs of any sign come to. Other numbers and dates are stored in the column's own field, and the server then says on
  which side of the value that lies.
*/
#include "conditions.h"

#include "comparison.h"

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

bool Rrd_conditions::add_comparison(Item_func *function, Item *expression, Item *value, int operation)
{
  Field *field= rrd_field_of(expression, m_table);
  Rrd_steps steps;
  const Item_result compared= expression->cmp_type();
  if ((compared == INT_RESULT || compared == DECIMAL_RESULT) &&
      rrd_find_steps(m_thd, expression, m_table, *this, &steps))
  {
    if (rrd_is_known(m_thd, value))
      return compare_steps(steps, value, operation);
    const bool is_exact= value->cmp_type() == INT_RESULT || value->cmp_type() == DECIMAL_RESULT;
    if (steps.has_fraction || operation == Item_func::EQUAL_FUNC || !is_exact || !rrd_is_constant_for_query(value))
      return false;
    m_late.push_back({steps, operation, value});
    return true;
  }
  if (!field || rrd_is_integer(field) || !rrd_is_known(m_thd, value))
    return false;
  if (rrd_is_plain_text(field) && (operation == Item_func::EQ_FUNC || operation == Item_func::NE_FUNC))
    return add_texts(field, function, &value, 1, operation == Item_func::NE_FUNC);
  return compare_stored(field, value, operation);
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
    if (!rrd_is_known(m_thd, value))
      return false;
    Rrd_wide below= 0, above= 0;
    int order= 0;
    if (is_integer ? value->cmp_type() != INT_RESULT || !rrd_integers_around(value, false, &below, &above)
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
  low= first_of(steps, rounded_up(MY_MAX(low, -rrd_far_out) - steps.add, steps.factor));
  high= last_of(steps, rrd_rounded_down(MY_MIN(high, rrd_far_out) - steps.add, steps.factor));
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
  const bool is_small= steps.value_at(bounds.low) > -rrd_exact_double && steps.value_at(bounds.high) < rrd_exact_double;
  Rrd_wide below= 0, above= 0;
  if (!rrd_integers_around(value, is_small, &below, &above))
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
    add_range(steps, -rrd_far_out, above - 1, false);
    return true;
  case Item_func::LE_FUNC:
    add_range(steps, -rrd_far_out, below, false);
    return true;
  case Item_func::GT_FUNC:
    add_range(steps, below + 1, rrd_far_out, false);
    return true;
  case Item_func::GE_FUNC:
    add_range(steps, above, rrd_far_out, false);
    return true;
  default:
    return false;
  }
}

/* UNIX_TIMESTAMP(time), of a time with parts of seconds: `value` is a whole second. */
bool Rrd_conditions::compare_fraction(const Rrd_steps &steps, Item *value, int operation)
{
  Rrd_wide second= 0, above= 0;
  if (steps.width != 1 || steps.factor != 1 || !rrd_integers_around(value, true, &second, &above) || second != above)
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
  {
    /* The server cuts such a time to the column's digits where an index leads to the rows, and only there: it decides. */
    if (field->cmp_type() == TIME_RESULT && !field->part_of_key.is_clear_all())
      return false;
    add_never();
  }
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
    if (!rrd_is_known(m_thd, values[i]) || values[i]->cmp_type() != STRING_RESULT)
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

