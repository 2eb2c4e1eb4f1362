/*
  An aggregate query of the server as the engine's: what of its select list comes from where.
*/
#ifndef RRD_PLAN_H
#define RRD_PLAN_H

#include <vector>

#include "conditions.h"
#include "item_sum.h"
#include "rrd.h"
#include "server.h"
#include "steps.h"

class ha_rrd;

/* Where the value of a column of the result comes from. */
struct Rrd_output
{
  enum Source
  {
    NONE,    /* no column: a constant, or computed by the server from other columns */
    UNUSED,  /* computed by the server from other columns, though there is one */
    ITEM,    /* the server computes the item from the values of the group's columns */
    COUNT,
    SUM,
    AVERAGE,
    EXTREME
  };
  Source source;
  Item *item;
  /* Its place among the aggregates. */
  uint place;
};

class Rrd_plan
{
public:
  Rrd_plan(THD *thd, TABLE *table, JOIN *join) : m_thd(thd), m_table(table), m_join(join), m_conditions(thd, table) {}

  /* False if the engine cannot answer the query exactly. */
  bool make(Query *query);
  /* Makes the engine sort; false if it cannot. */
  bool take_order(const ORDER *order_by);
  bool is_one_row() const { return m_group_items.empty(); }

  /* The query with the values of now. Valid until the next call. */
  RrdAggregateQuery current(size_t threads);

  /* Whether there are smaller groups, for each of which the server has to compute what follows. */
  bool has_spans() const { return !m_computed.empty() || !m_left.empty(); }
  /* Expressions that put them together. */
  const std::vector<Item *> &computed() const { return m_computed; }
  /* Whether conditions hold for the group whose values are in the record. */
  bool meets_conditions() const;

  const std::vector<Rrd_output> &outputs() const { return m_outputs; }
  /* There is no row of a group of no rows: GROUP BY was optimised away. */
  bool needs_rows() const { return m_needs_rows; }
  /* Whether rows are counted, and the place among the aggregates that does. */
  bool counts_rows() const { return m_counts_rows; }
  uint rows_place() const { return m_rows_place; }
  /* Tells the aggregates whether there were rows: > ALL (SELECT ..) is made of MAX(), and asks it that. */
  void tell_of_rows(bool has_rows) const;
  /* Places of columns whose value in the group's first row is wanted. */
  const std::vector<uint> &firsts() const { return m_firsts; }
  /* Columns of which all rows have the same value, to be put into the record that belongs to a group. */
  void put_only_values() const;

private:
  bool add_groups(ORDER *groups);
  bool add_group(Item *item);
  bool add_spans();
  bool add_output(Item *item, bool is_hidden);
  bool add_sum(Item_sum *sum);
  bool is_determined(Item *item);
  bool is_determined_field(Field *field);
  bool find_order(Item *item, RrdOrder *order);
  uint add_aggregate(RrdAggregateKind kind, const Field *field);

  THD *m_thd;
  TABLE *m_table;
  JOIN *m_join;
  Rrd_conditions m_conditions;
  static const size_t NO_PLACE= SIZE_MAX;

  /* What the query is grouped by, and the places of that among the groups. */
  std::vector<Item *> m_group_items;
  std::vector<size_t> m_group_places;
  /* Group expressions without a place, and conditions that the engine does not evaluate. */
  std::vector<Item *> m_computed, m_left;
  std::vector<RrdGroup> m_groups;
  std::vector<RrdAggregate> m_aggregates;
  std::vector<RrdOrder> m_orders;
  std::vector<Rrd_output> m_outputs;
  std::vector<uint> m_firsts;
  std::vector<Field *> m_only;
  uint m_rows_place= 0;
  bool m_needs_rows= false, m_counts_rows= false;
};

#endif
