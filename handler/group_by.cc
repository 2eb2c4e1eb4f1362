/*
  Aggregate queries that the engine answers as a whole.

  The server asks once for each SELECT, when all else is planned. What is taken runs in init_scan(), groups come as rows
  of a temporary table that the server only makes for its columns: HAVING, LIMIT and expressions over aggregates are the
  server's, from those columns. ORDER BY is ours, as this interface of the server does not sort (10.11 forgets ORDER BY
  and counts rows twice for LIMIT when it stores the rows first).
*/
#include "group_by.h"

#include <memory>

#include "connection.h"
#include "errors.h"
#include "ha_partition.h"
#include "ha_rrd.h"
#include "plan.h"
#include "row_text.h"
#include "sort_keys.h"
#include "sql_select.h"
#include "sysvars.h"
#include "tiers.h"

static_assert(sizeof(RrdCondition) == 48 && sizeof(RrdGroup) == 24 && sizeof(RrdAggregate) == 8 &&
              sizeof(RrdOrder) == 8 && sizeof(RrdAggregateQuery) == 72 && sizeof(RrdAggregateValue) == 56,
              "structs differ from the store's");

static void to_decimal(const RrdAggregateValue &value, my_decimal *to)
{
  binary2my_decimal(E_DEC_FATAL_ERROR, value.decimal, to, DECIMAL_MAX_PRECISION, value.scale);
}

/* As Item_sum_avg divides. */
static my_decimal *divided(const my_decimal &sum, uint64_t count, const Item_sum_avg *average, my_decimal *to)
{
  my_decimal divisor;
  int2my_decimal(E_DEC_FATAL_ERROR, static_cast<longlong>(count), false, &divisor);
  my_decimal_div(E_DEC_FATAL_ERROR, to, &sum, &divisor, average->prec_increment);
  return to;
}

/*
  How averages look to expressions and HAVING. That follows from how the server would have grouped: it sends groups on as
  they come, or collects them in a temporary table by their key, or writes finished groups to one.
*/
enum Averages
{
  EXACT,      /* as Item_sum_avg */
  AS_DECIMAL, /* as Item_avg_field_decimal */
  ROUNDED     /* to the digits of their column */
};

static Averages averages_of(const JOIN *join)
{
  if (!join->need_tmp)
    return EXACT;
  return join->simple_group ? ROUNDED : AS_DECIMAL;
}

/*
  Sends a double as the server does, at a tenth of the cost of my_gcvt(); false: the server is to send it itself.
*/
static bool sends_double(Protocol *protocol, double value, uint decimals, bool *failed)
{
  uint8_t text[40];
  if (protocol->type() != Protocol::PROTOCOL_TEXT || decimals < FLOATING_POINT_DECIMALS || !std::isfinite(value))
    return false;
  const size_t length= rrd_double_text(value, &text);
  *failed= static_cast<Protocol_text *>(protocol)->store_numeric_zerofill_str(reinterpret_cast<const char *>(text), length,
                                                                              PROTOCOL_SEND_DOUBLE);
  return true;
}

/* A column of the result whose values are doubles. */
class Item_double final : public Item_field
{
public:
  Item_double(THD *thd, Field *field, const LEX_CSTRING &as) : Item_field(thd, field)
  {
    set_refers_to_temp_table();
    name= as;
  }
  static bool is_for(const Rrd_output &output, const Field *field)
  {
    const bool is_aggregate= output.source == Rrd_output::SUM || output.source == Rrd_output::AVERAGE ||
      output.source == Rrd_output::EXTREME;
    return is_aggregate && field->type() == MYSQL_TYPE_DOUBLE && !(field->flags & ZEROFILL_FLAG);
  }
  bool send(Protocol *protocol, st_value *buffer) override
  {
    bool failed;
    if (!field->is_null() && sends_double(protocol, field->val_real(), decimals, &failed))
      return failed;
    return Item_field::send(protocol, buffer);
  }
};

/*
  An average that is not rounded to its column's digits, or a sum of floats that may be infinite, as it is to the server's
  expressions, where its column can only have the largest double.
*/
class Item_average final : public Item_field
{
public:
  Item_average(THD *thd, Field *field, Item_sum *of, Averages kind) : Item_field(thd, field), m_of(of), m_kind(kind)
  {
    set_refers_to_temp_table();
    name= of->name;
  }

  void set(const RrdAggregateValue &value)
  {
    m_value= value;
    if (m_of->sum_func() == Item_sum::SUM_FUNC)
      m_value.count= 1;
  }

  double val_real() override
  {
    if ((null_value= m_value.is_null))
      return 0;
    if (!m_value.decimal_bytes)
      return m_value.number / static_cast<double>(m_value.count);
    if (m_kind == AS_DECIMAL)
      return VDec(this).to_double();
    my_decimal sum;
    to_decimal(m_value, &sum);
    return sum.to_double() / static_cast<double>(m_value.count);
  }
  longlong val_int() override
  {
    return m_kind == AS_DECIMAL && m_value.decimal_bytes ? VDec(this).to_longlong(unsigned_flag) : val_int_from_real();
  }
  my_decimal *val_decimal(my_decimal *to) override
  {
    if ((null_value= m_value.is_null))
      return nullptr;
    if (!m_value.decimal_bytes)
      return val_decimal_from_real(to);
    my_decimal sum;
    to_decimal(m_value, &sum);
    return divided(sum, m_value.count, static_cast<Item_sum_avg *>(m_of), to);
  }
  String *val_str(String *to) override
  {
    if (!m_value.decimal_bytes)
      return val_string_from_real(to);
    return VDec(this).to_string_round(to, decimals);
  }
  bool val_bool() override { return val_real() != 0; }
  bool is_null() override { return null_value= m_value.is_null; }
  bool get_date(THD *thd, MYSQL_TIME *to, date_mode_t mode) override
  {
    return type_handler()->Item_get_date_with_warn(thd, this, to, mode);
  }

  double val_result() override { return val_real(); }
  longlong val_int_result() override { return val_int(); }
  my_decimal *val_decimal_result(my_decimal *to) override { return val_decimal(to); }
  String *str_result(String *to) override { return val_str(to); }
  bool val_bool_result() override { return val_bool(); }
  bool is_null_result() override { return is_null(); }
  bool get_date_result(THD *thd, MYSQL_TIME *to, date_mode_t mode) override { return get_date(thd, to, mode); }

  int save_in_field(Field *to, bool) override
  {
    my_decimal value;
    if (m_value.is_null)
      return set_field_to_null(to);
    to->set_notnull();
    return m_value.decimal_bytes ? to->store_decimal(val_decimal(&value)) : to->store(val_real());
  }
  bool send(Protocol *protocol, st_value *buffer) override
  {
    bool failed;
    if (!m_value.decimal_bytes && !m_value.is_null && sends_double(protocol, val_real(), decimals, &failed))
      return failed;
    return type_handler()->Item_send(this, protocol, buffer);
  }

private:
  Item_sum *m_of;
  Averages m_kind;
  RrdAggregateValue m_value= {};
};

struct Rrd_aggregation_closer
{
  void operator()(RrdAggregation *answer) const { rrd_aggregate_close(answer); }
};

class Rrd_group_by final : public group_by_handler
{
public:
  Rrd_group_by(THD *thd, JOIN *join, const std::vector<ha_rrd *> &files, std::unique_ptr<Rrd_plan> plan, ORDER *order)
    : group_by_handler(thd, files[0]->ht), m_join(join), m_file(files[0]), m_plan(std::move(plan)), m_order(order),
      m_averages(averages_of(join))
  {
    m_error= RrdError();
    for (ha_rrd *file : files)
      m_stores.push_back(file->store());
  }

  int init_scan() override;
  int next_row() override;
  int end_scan() override
  {
    /* What FOUND_ROWS() is to say: the server forgets it in this case. */
    thd->limit_found_rows= m_join->send_records;
    m_answer.reset();
    m_sorted.clear();
    return 0;
  }
  void print_error(int error, myf flags) override;

private:
  /* A column of the result. */
  struct Column
  {
    const Rrd_output *output;
    Field *field;
    Item_average *average;
  };

  bool bind();
  int put_together();
  int sort();
  int read();
  int fill(const Column &column);
  int result(int status) { return status == RRD_OK ? 0 : rrd_ha_error(status); }
  uchar *record() { return m_file->table_record(); }

  JOIN *m_join;
  /* The first partition, or the one table; and the store's tables of all of them. */
  ha_rrd *m_file;
  std::vector<const RrdTable *> m_stores;
  std::unique_ptr<Rrd_plan> m_plan;
  /* What the engine does not sort by. */
  ORDER *m_order;
  const Averages m_averages;
  std::unique_ptr<RrdAggregation, Rrd_aggregation_closer> m_answer;
  std::vector<Column> m_columns;
  std::vector<size_t> m_sorted;
  size_t m_read= 0;
  RrdError m_error;
};

/*
  Finds the result's column for each item of the select list. Averages that are not rounded get an item of their own, in
  the result and in the list that the server's expressions look at.
*/
bool Rrd_group_by::bind()
{
  m_columns.clear();
  Field **field= table->field;
  const std::vector<Rrd_output> &outputs= m_plan->outputs();
  const size_t hidden= outputs.size() - m_join->fields_list.elements;
  List_iterator<Item> of_result(m_join->tmp_all_fields1);
  for (size_t i= 0; i < outputs.size(); i++)
  {
    of_result++;
    if (outputs[i].source == Rrd_output::NONE)
      continue;
    if (!*field)
      return true;
    Column column= {&outputs[i], *field++, nullptr};
    if (column.output->source == Rrd_output::UNUSED)
      continue;
    if (column.output->source == Rrd_output::EXTREME && m_averages == EXACT && (column.field->flags & ZEROFILL_FLAG))
    {
      /* Sent on as they come, they have no zeros in front; in a temporary table they have. */
      static_cast<Field_num *>(column.field)->zerofill= false;
      column.field->flags&= ~ZEROFILL_FLAG;
    }
    const bool is_float_sum= column.output->source == Rrd_output::SUM && m_averages == EXACT &&
      column.field->type() == MYSQL_TYPE_DOUBLE;
    if ((column.output->source == Rrd_output::AVERAGE && m_averages != ROUNDED) || is_float_sum)
    {
      Item_sum *sum= static_cast<Item_sum *>(column.output->item);
      column.average= new (thd->mem_root) Item_average(thd, column.field, sum, m_averages);
    }
    if (column.average || Item_double::is_for(outputs[i], column.field))
    {
      Item *item= column.average;
      if (!item)
        item= new (thd->mem_root) Item_double(thd, column.field, outputs[i].item->name);
      if (!item)
        return true;
      const size_t place= i < hidden ? outputs.size() - i - 1 : i - hidden;
      m_join->items1[place]= item;
      of_result.replace(item);
    }
    m_columns.push_back(column);
  }
  return *field;
}

int Rrd_group_by::init_scan()
{
  if (m_columns.empty() && bind())
    return HA_ERR_INTERNAL_ERROR;
  m_join->set_items_ref_array(m_join->items1);
  /* The rows for LIMIT, of a subquery that may have been executed before. */
  m_join->send_records= 0;
  const RrdAggregateQuery query= m_plan->current(rrd_scan_threads(thd));
  if (thd->is_error())
    return HA_ERR_ABORTED_BY_USER;
  RrdAggregation *answer= nullptr;
  if (int failed= result(rrd_aggregate_run(m_stores.data(), m_stores.size(), m_file->session(), &query, &answer, &m_error)))
    return failed;
  m_answer.reset(answer);
  m_read= 0;
  if (m_plan->has_spans())
    if (int failed= put_together())
      return failed;
  return m_order ? sort() : 0;
}

/* Computes for each smaller group whether it counts and which group it belongs to. */
int Rrd_group_by::put_together()
{
  Rrd_sort_keys names(thd, m_plan->computed());
  std::string kept;
  int status;
  while ((status= rrd_aggregate_next(m_answer.get(), record(), &m_error)) == RRD_OK)
  {
    m_plan->put_only_values();
    kept.push_back(m_plan->meets_conditions());
    /* What does not count gives no warnings either. */
    kept.back() ? names.add_row() : names.add_nothing();
    if (thd->is_error() || thd->killed)
      return HA_ERR_ABORTED_BY_USER;
  }
  if (status != RRD_END)
    return result(status);
  return result(rrd_aggregate_put_together(m_answer.get(), reinterpret_cast<const uint8_t *>(kept.data()), kept.size(),
                                           reinterpret_cast<const uint8_t *>(names.keys().data()),
                                           names.keys().size(), m_plan->is_one_row(), &m_error));
}

/* Reads all rows once for their sort keys. */
int Rrd_group_by::sort()
{
  Rrd_sort_keys keys(thd, m_order);
  int failed;
  while (!(failed= read()))
    keys.add_row();
  if (failed != HA_ERR_END_OF_FILE)
    return failed;
  m_sorted= keys.sorted();
  m_read= 0;
  return thd->is_error() ? HA_ERR_ABORTED_BY_USER : 0;
}

int Rrd_group_by::next_row()
{
  if (m_order)
  {
    if (m_read == m_sorted.size())
      return HA_ERR_END_OF_FILE;
    if (int failed= result(rrd_aggregate_seek(m_answer.get(), m_sorted[m_read++], &m_error)))
      return failed;
  }
  return read();
}

/* The next row of the answer, in the record of the result. */
int Rrd_group_by::read()
{
  RrdAggregateValue rows;
  do
  {
    if (int failed= result(rrd_aggregate_next(m_answer.get(), record(), &m_error)))
      return failed;
    if (!m_plan->counts_rows())
      break;
    if (int failed= result(rrd_aggregate_value(m_answer.get(), m_plan->rows_place(), &rows, &m_error)))
      return failed;
    m_plan->tell_of_rows(rows.count);
  } while (!rows.count && m_plan->needs_rows());
  m_plan->put_only_values();
  for (uint place : m_plan->firsts())
    if (int failed= result(rrd_aggregate_extreme(m_answer.get(), place, record(), &m_error)))
      return failed;
  for (const Column &column : m_columns)
    if (int failed= fill(column))
      return failed;
  return thd->is_error() ? HA_ERR_ABORTED_BY_USER : 0;
}

static void copy(Field *to, Field *from)
{
  if (from->is_null())
    return to->set_null();
  to->set_notnull();
  field_conv(to, from);
}

int Rrd_group_by::fill(const Column &column)
{
  const Rrd_output &output= *column.output;
  Field *field= column.field;
  if (output.source == Rrd_output::ITEM)
  {
    Item *item= output.item->real_item();
    /* By now such an item says of itself that its values are in the result's column. */
    if (item->type() == Item::FIELD_ITEM)
      copy(field, static_cast<Item_field *>(item)->field);
    else
      item->save_in_field(field, true);
    return 0;
  }
  if (output.source == Rrd_output::EXTREME)
  {
    const int status= rrd_aggregate_extreme(m_answer.get(), output.place, record(), &m_error);
    if (status != RRD_OK && status != RRD_NOT_FOUND)
      return result(status);
    if (status == RRD_NOT_FOUND)
      field->set_null();
    else
    {
      Item_sum *sum= static_cast<Item_sum *>(output.item);
      copy(field, static_cast<Item_field *>(sum->get_arg(0)->real_item())->field);
    }
    return 0;
  }
  RrdAggregateValue value;
  if (int failed= result(rrd_aggregate_value(m_answer.get(), output.place, &value, &m_error)))
    return failed;
  if (column.average)
  {
    column.average->set(value);
    return 0;
  }
  if (value.is_null)
  {
    field->set_null();
    return 0;
  }
  field->set_notnull();
  if (output.source == Rrd_output::COUNT)
    field->store(static_cast<longlong>(value.count), false);
  else if (!value.decimal_bytes)
    field->store(output.source == Rrd_output::SUM ? value.number : value.number / static_cast<double>(value.count));
  else
  {
    my_decimal sum, average;
    to_decimal(value, &sum);
    if (output.source == Rrd_output::SUM)
      field->store_decimal(&sum);
    else
      field->store_decimal(divided(sum, value.count, static_cast<Item_sum_avg *>(output.item), &average));
  }
  return 0;
}

void Rrd_group_by::print_error(int error, myf flags)
{
  if (thd->is_error())
    return;
  if (error == HA_ERR_ABORTED_BY_USER)
    thd->send_kill_message();
  else if (m_error.status != RRD_OK && rrd_sql_error(m_error.status) && m_error.message[0])
    rrd_report(m_error, flags);
  else
    m_file->print_error(error, flags);
}

/*
  Whether the rows go where one of them may be ignored, as a duplicate: into the temporary table of a UNION, INTERSECT,
  EXCEPT or IN (SELECT ..). 10.11 takes the first such row for the end (Pushdown_query::execute), so these are left to the
  server.
*/
static bool may_ignore_rows(st_select_lex_unit *unit, bool is_one_row)
{
  if (unit->item && unit->item->is_in_predicate() && !is_one_row)
    return true;
  if (!unit->is_unit_op())
    return false;
  for (st_select_lex *part= unit->first_select()->next_select(); part; part= part->next_select())
    if (part->distinct || part->get_linkage() != UNION_TYPE)
      return true;
  return false;
}

/* The join that is asked for; null if it is more than a plain SELECT from one table. */
static JOIN *join_of(THD *thd, const Query *query)
{
  SELECT_LEX *select= query->from->select_lex;
  if (!select || !select->join || &select->join->all_fields != query->select)
    select= thd->lex->current_select;
  JOIN *join= select ? select->join : nullptr;
  if (!join || &join->all_fields != query->select || query->from->next_local)
    return nullptr;
  const bool is_plain= join->table_count == 1 && !join->const_tables && join->rollup.state == ROLLUP::STATE_NONE &&
    !select->have_window_funcs() && !join->procedure && join->exec_const_order_group_cond.is_empty();
  /* DISTINCT of groups is the server's, but of one row it is nothing. */
  const bool is_distinct= join->select_distinct || (query->distinct && !join->group_optimized_away);
  const bool is_limited= thd->lex->limit_rows_examined || query->limit->is_with_ties();
  if (!is_plain || is_distinct || is_limited || may_ignore_rows(select->master_unit(), !query->group_by))
    return nullptr;
  return join;
}

/* The handlers of a table, or of those partitions that the query reads; none if it is not one of ours. */
static std::vector<ha_rrd *> files_of(const Query *query)
{
  TABLE *table= query->from->table;
  std::vector<ha_rrd *> files;
  if (!table)
    return files;
  if (table->file->ht == rrd_hton || table->file->ht == rrd_tier_hton)
    files.push_back(static_cast<ha_rrd *>(table->file));
  else if (table->part_info && table->file->partition_ht() == rrd_hton)
  {
    handler **parts= static_cast<ha_partition *>(table->file)->get_child_handlers();
    const MY_BITMAP *read= &table->part_info->read_partitions;
    for (uint i= bitmap_get_first_set(read); i != MY_BIT_NONE; i= bitmap_get_next_set(read, i))
      files.push_back(static_cast<ha_rrd *>(parts[i]));
  }
  for (const ha_rrd *file : files)
    if (file->locks_rows())
      return {};
  return files;
}

/* Whether the server's own way through an index touches so few rows that scanning would take longer. */
static bool is_better_by_index(const JOIN *join, const TABLE *table, uint64_t rows)
{
  /* A row that is looked up costs as much as this many that are scanned. */
  const double rows_of_lookup= 100;
  const JOIN_TAB *tab= join->join_tab;
  uint index= MAX_KEY;
  if (tab->quick)
    index= tab->quick->index;
  else if (tab->type == JT_REF || tab->type == JT_EQ_REF || tab->type == JT_REF_OR_NULL)
    index= tab->ref.key;
  if (index == MAX_KEY || index == table->s->primary_key)
    return false;
  return tab->records_read * rows_of_lookup < static_cast<double>(rows);
}

/* A TIMESTAMP that is computed comes out of the server's temporary table as a column, and such columns are UNSIGNED. */
static void as_of_temporary_table(const Rrd_output &output)
{
  if (output.source == Rrd_output::ITEM && output.item->type() != Item::FIELD_ITEM &&
      output.item->field_type() == MYSQL_TYPE_TIMESTAMP)
    output.item->unsigned_flag= true;
}

group_by_handler *rrd_create_group_by(THD *thd, Query *query)
{
  if (!rrd_pushes_down(thd))
    return nullptr;
  JOIN *join= join_of(thd, query);
  const std::vector<ha_rrd *> files= join ? files_of(query) : std::vector<ha_rrd *>();
  if (files.empty() || rrd_send_numbers(thd, join))
    return nullptr;
  TABLE *table= query->from->table;
  std::unique_ptr<Rrd_plan> plan(new (std::nothrow) Rrd_plan(thd, table, join));
  if (!plan || !plan->make(query))
    return nullptr;
  ORDER *order= plan->is_one_row() || plan->take_order(query->order_by) ? nullptr : query->order_by;
  const RrdAggregateQuery raw= plan->current(1);
  uint64_t rows= 0;
  RrdError error;
  for (ha_rrd *file : files)
  {
    uint64_t of_file= 0;
    if (rrd_aggregate_check(file->store(), &raw, &of_file, &error) != RRD_OK)
      return nullptr;
    rows+= of_file;
  }
  if (is_better_by_index(join, table, rows))
    return nullptr;
  if (join->need_tmp)
    for (const Rrd_output &output : plan->outputs())
      as_of_temporary_table(output);
  query->group_by= query->order_by= nullptr;
  query->distinct= false;
  return new Rrd_group_by(thd, join, files, std::move(plan), order);
}
