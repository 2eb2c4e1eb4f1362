/*
  WHERE as the engine evaluates it, see conditions.h: from the whole down to one comparison, and what comes of it. What a
  comparison with constants comes to is in conditions_values.cc.
*/
#include "conditions.h"

#include "comparison.h"

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

// -- Conditions ----------------------------------------------------------------------------------------------

bool Rrd_conditions::add_null(Item *expression, bool is_negated)
{
  Field *field= rrd_field_of(expression, m_table);
  if (field)
    push(field, RRD_TEST_NULL, is_negated);
  return field;
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
    const bool is_turned= rrd_is_constant_for_query(sides[0]);
    Item *value= sides[!is_turned];
    if (operation == Item_func::EQUAL_FUNC)
    {
      if (!rrd_is_known(m_thd, value))
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
    if (!of || (field && field != of) || !rrd_is_integer(of) || !rrd_is_known(m_thd, value) ||
        value->cmp_type() != INT_RESULT || !rrd_integers_around(value, false, &below, &above))
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
  if (!rrd_is_known(m_thd, condition))
    return false;
  if (!condition->val_bool())
    add_never();
  return true;
}
