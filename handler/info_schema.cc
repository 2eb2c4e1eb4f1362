/*
  INFORMATION_SCHEMA.RRD_TABLES, RRD_TIERS, RRD_SEGMENTS, RRD_COLUMNS and RRD_LOCK_WAITS.

  Which columns there are and what is in them comes from the store (crates/ffi/src/info.rs). Here names are decoded
  and privileges checked: a user sees a table if INFORMATION_SCHEMA.TABLES shows it to him, times of its rows if he
  may read it, and of its columns those on which he has a privilege. Tables without a name of their own (temporary
  ones, copies made by ALTER) are for those with the PROCESS privilege.
*/
#include "info_schema.h"

#include <string>
#include <vector>

#include "engine.h"
#include "errors.h"
#include "sql_acl.h"
#include "sql_i_s.h"
#include "sql_parse.h"
#include "sql_show.h"
#include "sql_table.h"
#include "sql_time.h"
#include "tztime.h"

static_assert(sizeof(RrdInfoColumn) == 16 && sizeof(RrdCell) == 32 && sizeof(RrdInfoReader) == 40,
              "structs differ from the store's");

/* Schema, table and partition come before the store's columns. */
static const uint name_fields= 3;

struct st_mysql_information_schema rrd_info_descriptor= {MYSQL_INFORMATION_SCHEMA_INTERFACE_VERSION};

/* A view's columns, made once from the store's description. */
class View
{
public:
  explicit View(RrdView number) : m_number(number)
  {
    m_fields.push_back(Show::Column("TABLE_SCHEMA", Show::Name(), NOT_NULL));
    m_fields.push_back(Show::Column("TABLE_NAME", Show::Name(), NOT_NULL));
    m_fields.push_back(Show::Column("PARTITION_NAME", Show::Varchar(2 * NAME_CHAR_LEN + 1), NULLABLE));
    RrdInfoColumn column;
    for (size_t i= 0; rrd_info_column(number, i, &column); i++)
    {
      m_flags.push_back(column.flags);
      m_fields.push_back(Show::Column(column.name, type_of(column),
                                      column.flags & RRD_INFO_NULLABLE ? NULLABLE : NOT_NULL));
    }
    m_fields.push_back(Show::CEnd());
  }

  RrdView number() const { return m_number; }
  ST_FIELD_INFO *fields() { return m_fields.data(); }
  uint8_t flags(size_t cell) const { return m_flags[cell]; }

  bool wants_costly(const TABLE *table) const
  {
    for (uint i= 0; i < m_flags.size(); i++)
      if ((m_flags[i] & RRD_INFO_COSTLY) && bitmap_is_set(table->read_set, name_fields + i))
        return true;
    return false;
  }

private:
  static Show::Type type_of(const RrdInfoColumn &column)
  {
    switch (column.kind)
    {
    case RRD_CELL_UNSIGNED:
      return Show::ULonglong();
    case RRD_CELL_DOUBLE:
      return Show::Double(MY_INT64_NUM_DECIMAL_DIGITS);
    default:
      return Show::Varchar(column.length);
    }
  }

  RrdView m_number;
  std::vector<ST_FIELD_INFO> m_fields;
  std::vector<uint8_t> m_flags;
};

/* A part of a path, as users write the name. */
static std::string decoded(const std::string &part)
{
  char name[NAME_LEN * 2 + 64];
  return std::string(name, filename_to_tablename(part.c_str(), name, sizeof(name), true));
}

/* The engine's name for a table, taken apart. */
struct Table_name
{
  std::string schema, table, partition;
  bool is_internal;

  explicit Table_name(const std::string &name)
  {
    const size_t slash= name.find(FN_LIBCHAR);
    const std::string folder= name.substr(0, slash);
    std::string file= slash == std::string::npos ? name : name.substr(slash + 1);
    is_internal= folder[0] == '#' || file[0] == '#';
    schema= is_internal ? folder : decoded(folder);
    const size_t mark= is_internal ? std::string::npos : find_mark(file, "#P#", "#p#");
    if (mark != std::string::npos)
    {
      std::string rest= file.substr(mark + 3);
      file.resize(mark);
      const size_t sub= find_mark(rest, "#SP#", "#sp#");
      partition= decoded(rest.substr(0, sub));
      if (sub != std::string::npos)
        partition+= "/" + decoded(rest.substr(sub + 4));
    }
    table= is_internal ? file : decoded(file);
  }

private:
  /* A '#' in a name is encoded, so it cannot be mistaken for this. */
  static size_t find_mark(const std::string &text, const char *mark, const char *lower_case_mark)
  {
    const size_t at= text.find(mark);
    return at != std::string::npos ? at : text.find(lower_case_mark);
  }
};

/* One reading of a view for one statement. */
class Reader
{
public:
  Reader(THD *thd, TABLE_LIST *tables, COND *condition, const View &view)
    : m_thd(thd), m_table(tables->table), m_view(view),
      m_name_condition(make_cond_for_info_schema(thd, condition, tables)), m_name("")
  {}

  int read()
  {
    const RrdInfoReader callbacks= {this, wanted, row, problem, killed};
    RrdError error;
    if (rrd_info_read(rrd_engine, m_view.number(), m_view.wants_costly(m_table), &callbacks, &error) != RRD_OK)
    {
      rrd_report(error);
      return 1;
    }
    return m_failed;
  }

private:
  static bool wanted(void *context, const char *name, size_t length)
  {
    return static_cast<Reader *>(context)->wants(std::string(name, length));
  }

  static bool row(void *context, const RrdCell *cells, size_t count)
  {
    return static_cast<Reader *>(context)->store_row(cells, count);
  }

  static void problem(void *context, const char *text, size_t length)
  {
    push_warning_printf(static_cast<Reader *>(context)->m_thd, Sql_condition::WARN_LEVEL_WARN, ER_NOT_KEYFILE,
                        "ENGINE=RRD: %.*s", (int) length, text);
  }

  static bool killed(void *context)
  {
    return thd_kill_level(static_cast<Reader *>(context)->m_thd) != THD_IS_NOT_KILLED;
  }

  bool wants(const std::string &name)
  {
    m_name= Table_name(name);
    if (!may_see())
      return false;
    store_names();
    return !m_name_condition || m_name_condition->val_bool();
  }

  bool may_see()
  {
    m_is_whole_visible= m_may_read= true;
    if (m_name.is_internal)
      return !check_global_access(m_thd, PROCESS_ACL, true);
    const char *schema= m_name.schema.c_str();
    const Security_context *context= m_thd->security_ctx;
    privilege_t access= NO_ACL;
    if (check_access(m_thd, SELECT_ACL, schema, &access, nullptr, false, true) &&
        !(context->master_access & (DB_ACLS | SHOW_DB_ACL)) && !acl_get_all3(m_thd->security_ctx, schema, false))
      return false;
    m_granted.reset();
    m_granted.db= {schema, m_name.schema.size()};
    m_granted.table_name= {m_name.table.c_str(), m_name.table.size()};
    m_granted.grant.privilege= access;
    if (!(access & TABLE_ACLS) && check_grant(m_thd, TABLE_ACLS, &m_granted, true, 1, true))
      return false;
    m_granted.grant.privilege= access;
    const privilege_t on_table= access | get_table_grant(m_thd, &m_granted);
    m_is_whole_visible= (on_table & TABLE_ACLS) != NO_ACL;
    m_may_read= (on_table & SELECT_ACL) != NO_ACL;
    return true;
  }

  bool may_see_column(const RrdCell &cell)
  {
    if (m_is_whole_visible)
      return true;
    const std::string column(cell.text.data, cell.text.length);
    return (get_column_grant(m_thd, &m_granted.grant, m_name.schema.c_str(), m_name.table.c_str(), column.c_str()) &
            COL_ACLS) != NO_ACL;
  }

  /* Who waits for whom is told to those who see all connections, and to the connections themselves. */
  bool may_see_connections(const RrdCell *cells, size_t count)
  {
    bool names_connections= false;
    for (size_t i= 0; i < count; i++)
    {
      if (!(m_view.flags(i) & RRD_INFO_CONNECTION))
        continue;
      if (cells[i].kind == RRD_CELL_UNSIGNED && cells[i].number == thd_get_thread_id(m_thd))
        return true;
      names_connections= true;
    }
    return !names_connections || !check_global_access(m_thd, PROCESS_ACL, true);
  }

  void store_names()
  {
    restore_record(m_table, s->default_values);
    store_text(m_table->field[0], m_name.schema);
    store_text(m_table->field[1], m_name.table);
    if (m_name.partition.empty())
      m_table->field[2]->set_null();
    else
      store_text(m_table->field[2], m_name.partition);
  }

  bool store_row(const RrdCell *cells, size_t count)
  {
    if (!may_see_connections(cells, count))
      return false;
    store_names();
    for (size_t i= 0; i < count; i++)
    {
      const uint8_t flags= m_view.flags(i);
      Field *field= m_table->field[name_fields + i];
      if ((flags & RRD_INFO_COLUMN_NAME) && !may_see_column(cells[i]))
        return false;
      if (cells[i].kind == RRD_CELL_NULL || ((flags & RRD_INFO_ROW_VALUE) && !m_may_read))
        field->set_null();
      else
        store_cell(field, cells[i], flags & RRD_INFO_OF_TABLE ? m_name.table : std::string());
    }
    m_failed= schema_table_store_record(m_thd, m_table);
    return m_failed;
  }

  void store_cell(Field *field, const RrdCell &cell, const std::string &prefix)
  {
    field->set_notnull();
    switch (cell.kind)
    {
    case RRD_CELL_UNSIGNED:
      field->store((longlong) cell.number, true);
      break;
    case RRD_CELL_DOUBLE:
    {
      double value;
      memcpy(&value, &cell.number, sizeof(value));
      field->store(value);
      break;
    }
    case RRD_CELL_TIMESTAMP:
      store_timestamp(field, cell);
      break;
    default:
      store_text(field, prefix + std::string(cell.text.data, cell.text.length));
    }
  }

  void store_timestamp(Field *field, const RrdCell &cell)
  {
    MYSQL_TIME time;
    char text[MAX_DATE_STRING_REP_LENGTH];
    m_thd->variables.time_zone->gmt_sec_to_TIME(&time, (my_time_t) (cell.number / 1000000));
    time.second_part= cell.number % 1000000;
    field->store(text, my_datetime_to_str(&time, text, cell.digits), system_charset_info);
  }

  static void store_text(Field *field, const std::string &text)
  {
    field->set_notnull();
    field->store(text.data(), text.size(), system_charset_info);
  }

  THD *m_thd;
  TABLE *m_table;
  const View &m_view;
  /* What the statement asks of schema and table name. */
  COND *m_name_condition;
  Table_name m_name;
  TABLE_LIST m_granted;
  bool m_is_whole_visible= false;
  bool m_may_read= false;
  bool m_failed= false;
};

/* These tables may be there without the engine; while they are read it must not go. */
static bool lock_engine(THD *thd)
{
  const LEX_CSTRING name= {STRING_WITH_LEN("RRD")};
  if (plugin_lock_by_name(thd, &name, MYSQL_STORAGE_ENGINE_PLUGIN))
    return true;
  push_warning_printf(thd, Sql_condition::WARN_LEVEL_WARN, ER_PLUGIN_IS_NOT_LOADED,
                      ER_THD(thd, ER_PLUGIN_IS_NOT_LOADED), name.str);
  return false;
}

static int fill(THD *thd, TABLE_LIST *tables, COND *condition, const View &view)
{
  return lock_engine(thd) ? Reader(thd, tables, condition, view).read() : 0;
}

static View &tables_view()
{
  static View view(RRD_VIEW_TABLES);
  return view;
}

static View &segments_view()
{
  static View view(RRD_VIEW_SEGMENTS);
  return view;
}

static View &columns_view()
{
  static View view(RRD_VIEW_COLUMNS);
  return view;
}

static View &tiers_view()
{
  static View view(RRD_VIEW_TIERS);
  return view;
}

static View &lock_waits_view()
{
  static View view(RRD_VIEW_LOCK_WAITS);
  return view;
}

static int fill_lock_waits(THD *thd, TABLE_LIST *tables, COND *condition)
{
  return fill(thd, tables, condition, lock_waits_view());
}

static int fill_tiers(THD *thd, TABLE_LIST *tables, COND *condition)
{
  return fill(thd, tables, condition, tiers_view());
}

static int fill_tables(THD *thd, TABLE_LIST *tables, COND *condition)
{
  return fill(thd, tables, condition, tables_view());
}

static int fill_segments(THD *thd, TABLE_LIST *tables, COND *condition)
{
  return fill(thd, tables, condition, segments_view());
}

static int fill_columns(THD *thd, TABLE_LIST *tables, COND *condition)
{
  return fill(thd, tables, condition, columns_view());
}

static int init(void *schema_table, View &view, int (*fill_table)(THD *, TABLE_LIST *, COND *))
{
  ST_SCHEMA_TABLE *schema= static_cast<ST_SCHEMA_TABLE *>(schema_table);
  schema->fields_info= view.fields();
  schema->fill_table= fill_table;
  schema->idx_field1= 0;
  schema->idx_field2= 1;
  return 0;
}

int rrd_init_tables_view(void *schema_table) { return init(schema_table, tables_view(), fill_tables); }

int rrd_init_tiers_view(void *schema_table) { return init(schema_table, tiers_view(), fill_tiers); }

int rrd_init_segments_view(void *schema_table) { return init(schema_table, segments_view(), fill_segments); }

int rrd_init_columns_view(void *schema_table) { return init(schema_table, columns_view(), fill_columns); }

int rrd_init_lock_waits_view(void *schema_table) { return init(schema_table, lock_waits_view(), fill_lock_waits); }
