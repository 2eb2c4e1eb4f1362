/*
  What the server lets the engine know of WHERE, for scans that read row by row.

  The engine leaves out rows for which a condition cannot hold, by zone maps and by the columns concerned, before any row is
  made. The server asks each condition again, so that what cannot be said exactly is left out here.
*/
#include "ha_rrd.h"

#include "conditions.h"
#include "sysvars.h"

/* Adds those conditions that are about this table alone and are the same for all rows of the statement. */
static bool add_own(Rrd_conditions *to, Item *condition, table_map own, std::vector<Item *> *rest)
{
  if (condition->type() == Item::COND_ITEM &&
      static_cast<Item_cond *>(condition)->functype() == Item_func::COND_AND_FUNC)
  {
    List_iterator<Item> each(*static_cast<Item_cond *>(condition)->argument_list());
    while (Item *part= each++)
      if (!add_own(to, part, own, rest))
        return false;
    return true;
  }
  if (condition->used_tables() != own || condition->with_subquery() || condition->is_expensive())
    return true;
  return to->add(condition, rest);
}

const COND *ha_rrd::cond_push(const COND *condition)
{
  THD *thd= ha_thd();
  if (thd->lex->sql_command == SQLCOM_DELETE)
    return push_span(condition);
  if (locks_rows() || is_tier() || is_sequence() || !rrd_pushes_down(thd))
    return condition;
  Rrd_conditions conditions(thd, table);
  std::vector<Item *> rest;
  if (!add_own(&conditions, const_cast<COND *>(condition), table->map, &rest) || conditions.has_late())
    return condition;
  /* The server may warn of values that it asks such a condition of: it gets the rows that it would have asked. */
  if (!rest.empty())
    return condition;
  const std::vector<RrdCondition> &all= conditions.current();
  /* What is refused here is no error: the server has the condition. */
  if (!all.empty())
    (void) rrd_scan_limit(store(), all.data(), all.size(), &m_error);
  return condition;
}
