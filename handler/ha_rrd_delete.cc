/*
  DELETE of a span of time, or of all rows, in one call: the store drops whole chunks and deletes rows at the edges.

  The server allows it where it need not see the rows: no triggers, no RETURNING, no row-based binary log. On top of that,
  it is done only for a statement in autocommit mode without any binary log, as the dropped chunks cannot be prepared
  for a commit in two phases. The condition must say exactly which times go; all others go on row by row.
*/
#include "ha_rrd.h"

#include "comparison.h"
#include "errors.h"

/* Narrows the span by "time <operation> value"; false if it cannot be said exactly. */
bool ha_rrd::compare_span(Field *time, Item *value, int operation)
{
  if (!rrd_is_comparable(time, value))
    return false;
  if (value->save_in_field_no_warnings(time, true))
    return false;
  if (value->null_value)
  {
    m_is_empty_span= true;
    return true;
  }
  const int order= stored_field_cmp_to_item(ha_thd(), time, value);
  if (!rrd_is_clear_time(ha_thd(), time) || (operation == Item_func::EQ_FUNC && order != 0))
    return false;
  const uchar *record= table->record[0];
  /* What was stored is the value itself or the nearest that the column can hold, on the side that `order` tells. */
  const bool is_low= operation != Item_func::LT_FUNC && operation != Item_func::LE_FUNC;
  const bool is_high= operation != Item_func::GT_FUNC && operation != Item_func::GE_FUNC;
  if (is_low && m_low.empty())
  {
    m_low.assign(record, record + table->s->reclength);
    m_low_goes= operation == Item_func::GT_FUNC ? order > 0 : order >= 0;
  }
  else if (is_low)
    return false;
  if (is_high && m_high.empty())
  {
    m_high.assign(record, record + table->s->reclength);
    m_high_goes= operation == Item_func::LT_FUNC ? order < 0 : order <= 0;
  }
  else if (is_high)
    return false;
  return true;
}

static bool is_time(const Item *item, const Field *time)
{
  const Item *real= const_cast<Item *>(item)->real_item();
  return real->type() == Item::FIELD_ITEM && static_cast<const Item_field *>(real)->field == time;
}

bool ha_rrd::narrow_span(const COND *condition, Field *time)
{
  Item *item= const_cast<COND *>(condition);
  if (item->type() == Item::COND_ITEM)
  {
    Item_cond *all= static_cast<Item_cond *>(item);
    if (all->functype() != Item_func::COND_AND_FUNC)
      return false;
    List_iterator<Item> each(*all->argument_list());
    while (Item *part= each++)
      if (!narrow_span(part, time))
        return false;
    return true;
  }
  if (item->type() != Item::FUNC_ITEM)
    return false;
  Item_func *function= static_cast<Item_func *>(item);
  Item **sides= function->arguments();
  const int operation= function->functype();
  switch (operation)
  {
  case Item_func::EQ_FUNC:
  case Item_func::LT_FUNC:
  case Item_func::LE_FUNC:
  case Item_func::GT_FUNC:
  case Item_func::GE_FUNC:
    if (is_time(sides[0], time))
      return compare_span(time, sides[1], operation);
    return is_time(sides[1], time) && compare_span(time, sides[0], rrd_turned(operation));
  case Item_func::BETWEEN:
    return !static_cast<Item_func_between *>(function)->negated && is_time(sides[0], time) &&
      compare_span(time, sides[1], Item_func::GE_FUNC) && compare_span(time, sides[2], Item_func::LE_FUNC);
  default:
    return false;
  }
}

const COND *ha_rrd::push_span(const COND *condition)
{
  m_deletes_times= false;
  const int64_t number= rrd_table_time_field(store());
  if (number < 0)
    return condition;
  m_low.clear();
  m_high.clear();
  m_is_empty_span= false;
  /* The ends are worked out in the table's own record, which the statement has not used yet. */
  m_deletes_times= narrow_span(condition, table->field[number]);
  return m_deletes_times ? nullptr : condition;
}

int ha_rrd::direct_delete_rows_init()
{
  THD *thd= ha_thd();
  const SELECT_LEX *select= thd->lex->first_select_lex();
  if (select->order_list.elements || select->limit_params.explicit_limit || select->limit_params.select_limit)
    return HA_ERR_WRONG_COMMAND;
  if (thd_test_options(thd, OPTION_NOT_AUTOCOMMIT | OPTION_BEGIN) || thd->in_sub_stmt || mysql_bin_log.is_open())
    return HA_ERR_WRONG_COMMAND;
  if (!m_deletes_times)
  {
    /* No condition: the server would have pushed it. */
    m_low.clear();
    m_high.clear();
    m_is_empty_span= false;
  }
  return table_share->keys > (has_key() ? 1U : 0U) ? HA_ERR_WRONG_COMMAND : 0;
}

int ha_rrd::direct_delete_rows(ha_rows *deleted)
{
  uint64_t rows= 0;
  int status= RRD_OK;
  if (!m_is_empty_span)
    status= rrd_table_delete_times(store(), session(), m_low.empty() ? nullptr : m_low.data(), m_low_goes,
                                   m_high.empty() ? nullptr : m_high.data(), m_high_goes, &rows, &m_error);
  *deleted= rows;
  const int failed= result(status);
  /* The server ends such a DELETE with OK unless the engine itself has shown the error. */
  if (failed)
    print_error(failed, MYF(0));
  return failed;
}
