/*
  An aggregate query of the server as the engine's; see plan.h.

  The select list that comes here has, before what the user wrote, all aggregates and columns that expressions and
  HAVING, ORDER BY are made of. The server computes expressions over aggregates itself, from the columns of the result.
*/
#include "plan.h"

#include <algorithm>

#include "comparison.h"
#include "spans.h"
#include "sql_select.h"

static const Item::Eq_config exactly(true);

static bool is_varying(const Item *item) { return item->used_tables() & RAND_TABLE_BIT; }

/* Fields whose smallest and largest value are so in the engine's order; those of texts are in bytes. */
static bool has_extremes(const Field *field)
{
  switch (field->real_type())
  {
  case MYSQL_TYPE_NEWDECIMAL:
  case MYSQL_TYPE_FLOAT:
  case MYSQL_TYPE_DOUBLE:
  case MYSQL_TYPE_NEWDATE:
  case MYSQL_TYPE_DATETIME2:
  case MYSQL_TYPE_TIMESTAMP2:
  case MYSQL_TYPE_TIME2:
    return true;
  case MYSQL_TYPE_YEAR:
    /* The smallest YEAR 0000 is 0 to the server, if it computes it itself. */
    return false;
  case MYSQL_TYPE_STRING:
  case MYSQL_TYPE_VARCHAR:
    return rrd_is_plain_text(field) && field->charset() == &my_charset_bin;
  default:
    return rrd_is_integer(field);
  }
}

/* Fields whose sums the engine has room for, with 22 digits for how many there are. */
static bool has_sum(const Field *field)
{
  if (field->real_type() == MYSQL_TYPE_NEWDECIMAL)
    return static_cast<const Field_new_decimal *>(field)->precision + DECIMAL_LONGLONG_DIGITS <= DECIMAL_MAX_PRECISION;
  return rrd_is_integer(field) || field->real_type() == MYSQL_TYPE_FLOAT || field->real_type() == MYSQL_TYPE_DOUBLE;
}

uint Rrd_plan::add_aggregate(RrdAggregateKind kind, const Field *field)
{
  RrdAggregate wanted= {};
  wanted.kind= kind;
  wanted.field= field ? field->field_index : 0;
  for (uint i= 0; i < m_aggregates.size(); i++)
    if (m_aggregates[i].kind == wanted.kind && m_aggregates[i].field == wanted.field)
      return i;
  m_aggregates.push_back(wanted);
  return static_cast<uint>(m_aggregates.size() - 1);
}

// -- Groups ------------------------------------------------------------------------------------------------

bool Rrd_plan::add_group(Item *item)
{
  RrdGroup group= {};
  Field *field= rrd_field_of(item, m_table);
  Rrd_steps steps;
  size_t place= m_groups.size();
  if (field && rrd_is_groupable(m_thd, field))
  {
    group.field= field->field_index;
    m_groups.push_back(group);
  }
  else if (!is_varying(item) && rrd_find_steps(m_thd, item, m_table, m_conditions, &steps) && !steps.has_fraction)
  {
    if (!rrd_group_of_steps(steps, &group))
      return false;
    m_groups.push_back(group);
  }
  else
  {
    m_computed.push_back(item);
    place= NO_PLACE;
  }
  m_group_items.push_back(item);
  m_group_places.push_back(place);
  return true;
}

/* What the server computes of smaller groups: group expressions, and conditions that are left. */
bool Rrd_plan::add_spans()
{
  for (Item *item : m_computed)
  {
    SORT_FIELD_ATTR sorted= {};
    item->type_handler()->sort_length(m_thd, item, &sorted);
    if (sorted.length > m_thd->variables.max_sort_length ||
        !rrd_find_spans(m_thd, item, m_table, m_conditions, &m_groups))
      return false;
  }
  for (Item *condition : m_left)
    if (!rrd_find_spans(m_thd, condition, m_table, m_conditions, &m_groups))
      return false;
  return m_groups.size() <= 64;
}

bool Rrd_plan::add_groups(ORDER *groups)
{
  for (ORDER *group= groups; group; group= group->next)
    if (!add_group(*group->item))
      return false;
  return add_spans();
}

// -- What a group says ---------------------------------------------------------------------------------------

bool Rrd_plan::is_determined_field(Field *field)
{
  for (const RrdGroup &group : m_groups)
    if (group.field == field->field_index && group.kind == RRD_GROUP_VALUE && !group.is_span)
      return true;
  if (m_conditions.is_one_text(field))
  {
    const uint place= add_aggregate(RRD_AGGREGATE_FIRST, field);
    if (std::find(m_firsts.begin(), m_firsts.end(), place) == m_firsts.end())
      m_firsts.push_back(place);
    return true;
  }
  if (!m_conditions.only_value_of(field))
    return false;
  m_only.push_back(field);
  return true;
}

/* Whether an item has one value in a group, that can be computed from values of the grouping columns. */
bool Rrd_plan::is_determined(Item *item)
{
  if (is_varying(item) || item->with_subquery() || item->with_window_func() || item->with_rownum_func())
    return false;
  if (item->const_item())
    return true;
  for (Item *group : m_group_items)
    if (item == group || item->eq(group, exactly))
      return true;
  Item *real= item->real_item();
  if (real != item)
    return is_determined(real);
  if (Field *field= rrd_field_of(item, m_table))
    return is_determined_field(field);
  if (item->type() != Item::FUNC_ITEM || !rrd_is_plain_function(static_cast<Item_func *>(item)))
    return false;
  Item_func *function= static_cast<Item_func *>(item);
  for (uint i= 0; i < function->argument_count(); i++)
    if (!is_determined(function->arguments()[i]))
      return false;
  return true;
}

bool Rrd_plan::meets_conditions() const
{
  for (Item *condition : m_left)
    if (!condition->val_bool())
      return false;
  return true;
}

void Rrd_plan::put_only_values() const
{
  for (Field *field : m_only)
  {
    memcpy(field->ptr, m_conditions.only_value_of(field), field->pack_length());
    field->set_notnull();
  }
}

// -- Results -------------------------------------------------------------------------------------------------

bool Rrd_plan::add_sum(Item_sum *sum)
{
  if (sum->has_with_distinct() || sum->depended_from() || sum->get_arg_count() != 1)
    return false;
  Item *argument= sum->get_arg(0);
  Field *field= rrd_field_of(argument, m_table);
  Rrd_output output= {Rrd_output::COUNT, sum, 0};
  switch (sum->sum_func())
  {
  case Item_sum::COUNT_FUNC:
    if (!field && (!argument->const_item() || argument->maybe_null() || argument->with_subquery()))
      return false;
    if (!field || !field->maybe_null())
      output.place= add_aggregate(RRD_AGGREGATE_ROWS, nullptr);
    else
      output.place= add_aggregate(RRD_AGGREGATE_COUNT, field);
    break;
  case Item_sum::SUM_FUNC:
  case Item_sum::AVG_FUNC:
    if (!field || !has_sum(field))
      return false;
    output.source= sum->sum_func() == Item_sum::SUM_FUNC ? Rrd_output::SUM : Rrd_output::AVERAGE;
    output.place= add_aggregate(RRD_AGGREGATE_SUM, field);
    break;
  case Item_sum::MIN_FUNC:
  case Item_sum::MAX_FUNC:
    if (!field || !has_extremes(field))
      return false;
    output.source= Rrd_output::EXTREME;
    output.place= add_aggregate(sum->sum_func() == Item_sum::MIN_FUNC ? RRD_AGGREGATE_MIN : RRD_AGGREGATE_MAX, field);
    break;
  default:
    return false;
  }
  m_outputs.push_back(output);
  return true;
}

/* As the server decides what gets a column in the result (Create_tmp_table::add_fields). */
bool Rrd_plan::add_output(Item *item, bool is_hidden)
{
  if (is_varying(item) || item->with_window_func() || item->type() == Item::COPY_STR_ITEM)
    return false;
  if (item->type() == Item::SUM_FUNC_ITEM)
    return !item->const_item() && add_sum(static_cast<Item_sum *>(item));
  Rrd_output::Source source= item->const_item() ? Rrd_output::NONE : Rrd_output::ITEM;
  if (item->with_sum_func())
  {
    if (item->with_subquery() || item->used_tables() & OUTER_REF_TABLE_BIT)
      return false;
    /* What is made of COUNT(*) alone has a column that nobody looks at. */
    if (source == Rrd_output::ITEM)
      source= item->used_tables() ? Rrd_output::NONE : Rrd_output::UNUSED;
  }
  else if (item->const_item())
  {
    if (is_hidden)
      return false;
  }
  else if ((m_group_items.empty() && !m_needs_rows) || !is_determined(item))
    return false;
  m_outputs.push_back({source, item, 0});
  return true;
}

// -- Order ---------------------------------------------------------------------------------------------------

bool Rrd_plan::find_order(Item *item, RrdOrder *order)
{
  for (uint i= 0; i < m_group_items.size(); i++)
    if (item == m_group_items[i] || item->eq(m_group_items[i], exactly))
    {
      const Field *field= rrd_field_of(item, m_table);
      order->place= static_cast<uint32_t>(m_group_places[i]);
      order->is_aggregate= false;
      return m_group_places[i] != NO_PLACE &&
        (item->cmp_type() != STRING_RESULT || (field && field->real_type() == MYSQL_TYPE_ENUM));
    }
  for (const Rrd_output &output : m_outputs)
    if (output.item == item)
    {
      /* Sums of DECIMALs, averages and texts are sorted by the server's sort keys. */
      order->place= output.place;
      order->is_aggregate= true;
      const Item *argument= static_cast<Item_sum *>(item)->get_arg(0);
      return output.source == Rrd_output::COUNT ||
        (output.source == Rrd_output::SUM && argument->cmp_type() != DECIMAL_RESULT) ||
        (output.source == Rrd_output::EXTREME && item->cmp_type() != STRING_RESULT);
    }
  return false;
}

bool Rrd_plan::take_order(const ORDER *order_by)
{
  for (const ORDER *part= order_by; part; part= part->next)
  {
    RrdOrder order= {};
    Item *item= *part->item;
    if (item->const_item())
      continue;
    if (!find_order(item, &order) && !find_order(item->real_item(), &order))
    {
      m_orders.clear();
      return false;
    }
    order.is_descending= part->direction == ORDER::ORDER_DESC;
    m_orders.push_back(order);
  }
  return true;
}

RrdAggregateQuery Rrd_plan::current(size_t threads)
{
  const std::vector<RrdCondition> &conditions= m_conditions.current();
  return {conditions.data(),   conditions.size(),   m_groups.data(), m_groups.size(), m_aggregates.data(),
          m_aggregates.size(), m_orders.data(), m_orders.size(), threads};
}

bool Rrd_plan::make(Query *query)
{
  if (query->where && !m_conditions.add(query->where, &m_left))
    return false;
  if (!add_groups(query->group_by))
    return false;
  /* A group that is the same for all rows: one row of some, none of none. */
  m_needs_rows= m_join->group_optimized_away || (query->group_by && m_groups.empty());
  int hidden= query->n_aux;
  bool has_sums= false;
  List_iterator_fast<Item> each(*query->select);
  while (Item *item= each++)
  {
    if (!add_output(item, hidden-- > 0))
      return false;
    has_sums|= item->type() == Item::SUM_FUNC_ITEM;
  }
  /* Without aggregates it is DISTINCT in another form: the server gives such rows in the order in which it meets them. */
  if (!has_sums)
    return false;
  m_counts_rows= m_needs_rows || (is_one_row() && m_join->select_lex->master_unit()->item);
  if (m_counts_rows)
    m_rows_place= add_aggregate(RRD_AGGREGATE_ROWS, nullptr);
  return true;
}

void Rrd_plan::tell_of_rows(bool has_rows) const
{
  for (const Rrd_output &output : m_outputs)
    if (output.item->type() == Item::SUM_FUNC_ITEM)
      has_rows ? output.item->restore_to_before_no_rows_in_result() : output.item->no_rows_in_result();
}
