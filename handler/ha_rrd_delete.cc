/*
  DELETE of a span of time, or of all rows, in one call: the store drops whole chunks and deletes rows at the edges.

  The server allows it where it need not see the rows: no triggers, no RETURNING, no row-based binary log. On top of that,
  it is done only for a statement in autocommit mode without any binary log, as the dropped chunks cannot be prepared
  for a commit in two phases. The condition must say exactly which times go; all others go on row by row.
*/
#include "ha_rrd.h"

#include "errors.h"

/* The offset of local time does not change within this many seconds of an end, else comparing is ambiguous. */
static const my_time_t clear_of_clock_changes= 3 * 3600;

static longlong local_seconds(const Time_zone *zone, my_time_t second)
{
  MYSQL_TIME local;
  zone->gmt_sec_to_TIME(&local, second);
  return (calc_daynr(local.year, local.month, local.day) * 24LL + local.hour) * 3600 + local.minute * 60 + local.second;
}

/* Whether comparing a TIMESTAMP near this second is the same in UTC and in local time. */
static bool is_clear_time(THD *thd, const Field *time)
{
  if (time->type() != MYSQL_TYPE_TIMESTAMP)
    return true;
  ulong fraction;
  const my_time_t second= time->get_timestamp(&fraction);
  const Time_zone *zone= thd->variables.time_zone;
  const longlong now= local_seconds(zone, second);
  for (const my_time_t away : {-clear_of_clock_changes, clear_of_clock_changes})
    if (second + away < 0 || local_seconds(zone, second + away) - now != away)
      return false;
  return true;
}

/* Values that compare with the time column as their own conversion to its type does. */
static bool is_comparable(const Field *time, const Item *value)
{
  if (!value->const_item() || const_cast<Item *>(value)->is_expensive())
    return false;
  if (time->cmp_type() == TIME_RESULT)
    return value->cmp_type() == TIME_RESULT || value->cmp_type() == STRING_RESULT;
  return value->cmp_type() == INT_RESULT || value->cmp_type() == DECIMAL_RESULT;
}

/* Narrows the span by "time <operation> value"; false if it cannot be said exactly. */
bool ha_rrd::compare_span(Field *time, Item *value, int operation)
{
  if (!is_comparable(time, value))
    return false;
  if (value->save_in_field_no_warnings(time, true))
    return false;
  if (value->null_value)
  {
    m_is_empty_span= true;
    return true;
  }
  const int order= stored_field_cmp_to_item(ha_thd(), time, value);
  if (!is_clear_time(ha_thd(), time) || (operation == Item_func::EQ_FUNC && order != 0))
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

/* The operation with its sides exchanged. */
static int turned(int operation)
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
    return is_time(sides[1], time) && compare_span(time, sides[0], turned(operation));
  case Item_func::BETWEEN:
    return !static_cast<Item_func_between *>(function)->negated && is_time(sides[0], time) &&
      compare_span(time, sides[1], Item_func::GE_FUNC) && compare_span(time, sides[2], Item_func::LE_FUNC);
  default:
    return false;
  }
}

const COND *ha_rrd::cond_push(const COND *condition)
{
  m_deletes_times= false;
  if (ha_thd()->lex->sql_command != SQLCOM_DELETE)
    return condition;
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
  return result(status);
}
