/*
  WHERE as the engine evaluates it: a conjunction of comparisons of columns, or of steps of columns, with constants.

  Each is translated into exactly what the server's own comparison lets through, or refused. Values that are known only
  when the query runs, as those of an outer query, are allowed where any value could be translated.
*/
#ifndef RRD_CONDITIONS_H
#define RRD_CONDITIONS_H

#include <functional>
#include <list>
#include <string>
#include <vector>

#include "rrd.h"
#include "server.h"
#include "steps.h"

class Rrd_conditions final : public Rrd_known_bounds
{
public:
  Rrd_conditions(THD *thd, TABLE *table) : m_thd(thd), m_table(table) {}

  /* Adds what must hold as well. What cannot be said exactly is put to `rest`; false if only the server can ask it. */
  bool add(Item *where, std::vector<Item *> *rest);
  /* Whether there are values that are not known yet. */
  bool has_late() const { return !m_late.empty(); }
  /* The conditions with the values of now. Valid until the next call. */
  const std::vector<RrdCondition> &current();

  Rrd_bounds bounds_of(const Field *field) const override;
  /* Whether all rows have the same value of a field: if so, as it lies in a record. Null: not known. */
  const uchar *only_value_of(const Field *field) const;
  /* Whether all rows have values of a text that are equal, but may be written differently. */
  bool is_one_text(const Field *field) const;

private:
  /* A comparison whose value comes later. */
  struct Late
  {
    Rrd_steps steps;
    int operation;
    Item *value;
  };

  bool add_condition(Item *condition);
  bool add_function(Item_func *function);
  bool add_comparison(Item_func *function, Item *expression, Item *value, int operation);
  bool add_in(Item_func *function);
  bool add_in_list(Field *field, Item_func *function, bool is_negated);
  bool add_null(Item *expression, bool is_negated);
  bool add_either(Item_cond *condition);
  bool add_any(Item_cond *condition);
  bool add_outside(Item_func *function);
  bool add_part(const std::function<bool()> &add);
  size_t begin(RrdTest test);
  void end(size_t condition) { m_list[condition].count= m_list.size() - condition - 1; }
  bool add_texts(Field *field, Item_func *function, Item **values, uint count, bool is_negated);
  bool compare_steps(const Rrd_steps &steps, Item *value, int operation);
  bool compare_fraction(const Rrd_steps &steps, Item *value, int operation);
  bool compare_stored(Field *field, Item *value, int operation);
  bool store(Field *field, Item *value, int *order);
  void add_range(const Rrd_steps &steps, Rrd_wide low, Rrd_wide high, bool is_negated);
  void add_never() { m_is_never= true; }
  RrdCondition &push(Field *field, RrdTest test, bool is_negated);
  void push_in(Field *field, const std::string &images, uint count, bool is_negated);
  const uchar *image_of(Field *field);
  const uchar *image_of(Field *field, Rrd_wide value);
  const uchar *keep(const void *bytes, size_t length);

  THD *m_thd;
  TABLE *m_table;
  std::vector<RrdCondition> m_list, m_current;
  std::vector<Late> m_late;
  std::vector<std::pair<const Field *, Rrd_bounds>> m_bounds;
  std::vector<std::pair<const Field *, const uchar *>> m_only;
  std::vector<const Field *> m_one_text;
  /* What conditions point to; those of the last current() have bytes of their own. */
  std::list<std::string> m_bytes, m_late_bytes;
  std::list<std::string> *m_keeps_in= &m_bytes;
  std::list<std::vector<RrdText>> m_texts;
  bool m_is_never= false;
};

#endif
