/*
  ALTER TABLE without copying the table.

  The server says in flags what differs between the old and the new definition; what the flags or the server's own
  structures show to need a copy is found here. The rest is the store's to decide (crates/ffi/src/alter.rs): it gets the
  new definition and, for each column, which one it was.

  The server may die between the engine's commit and its own renaming of the definition file. Its recovery then
  asks check_version(), whose answer comes with the same manifest edit as the new schema.
*/
#include "ha_rrd.h"
#include "connection.h"

#include "definition.h"
#include "engine.h"
#include "errors.h"
#include "losses.h"
#include "options.h"
#include "tiers.h"

/* Changes that leave rows as they are, if the store finds nothing against them. */
static const alter_table_operations instant_changes=
  ALTER_RENAME | ALTER_COLUMN_DEFAULT | ALTER_DROP_CHECK_CONSTRAINT | ALTER_COLUMN_NAME | ALTER_STORED_COLUMN_ORDER |
  ALTER_VIRTUAL_COLUMN_ORDER | ALTER_ADD_STORED_BASE_COLUMN | ALTER_DROP_STORED_COLUMN | ALTER_ADD_VIRTUAL_COLUMN |
  ALTER_DROP_VIRTUAL_COLUMN | ALTER_VIRTUAL_GCOL_EXPR | ALTER_COLUMN_NULLABLE | ALTER_COLUMN_TYPE_CHANGE_BY_ENGINE |
  ALTER_CHANGE_CREATE_OPTION | ALTER_COLUMN_OPTION | ALTER_COLUMN_COLUMN_FORMAT | ALTER_RENAME_INDEX |
  ALTER_INDEX_IGNORABILITY | ALTER_CHANGE_INDEX_COMMENT | ALTER_COLUMN_INDEX_LENGTH | ALTER_INDEX_ORDER |
  ALTER_COLUMN_UNVERSIONED | ALTER_PARTITIONED | ALTER_DROP_NON_UNIQUE_NON_PRIM_INDEX | ALTER_DROP_UNIQUE_INDEX;

/* Those that may need an index to be built. */
static const alter_table_operations index_changes= ALTER_ADD_NON_UNIQUE_NON_PRIM_INDEX | ALTER_ADD_UNIQUE_INDEX;

/* What the server keeps for us between the steps. */
class Rrd_alter_ctx : public inplace_alter_handler_ctx
{
public:
  explicit Rrd_alter_ctx(RrdAlter *alter) : m_alter(alter) {}
  ~Rrd_alter_ctx() override { rrd_alter_close(m_alter); }
  RrdAlter *alter() const { return m_alter; }

private:
  RrdAlter *m_alter;
};

/* Whether a default is the same for all rows: constants, and what is fixed for a statement, as CURRENT_TIMESTAMP. */
static bool has_one_default(const Field *field)
{
  return !field->default_value || !(field->default_value->flags & uint(~(VCOL_SESSION_FUNC | VCOL_TIME_FUNC)));
}

static const char *reason_in_column(const Field *field, const Create_field *column)
{
  if (column->field || !rrd_is_stored(field))
    return nullptr;
  if (field->vcol_info)
    return "a generated column that is stored, or has a key, has to be computed";
  if (field->flags & AUTO_INCREMENT_FLAG)
    return "a new AUTO_INCREMENT column needs a value for each row";
  return has_one_default(field) ? nullptr : "the default of a new column differs from row to row";
}

/* Why the server has to copy the table, as far as its own structures show it. */
static const char *reason_to_copy(THD *thd, const TABLE *table, const TABLE *altered, const Alter_inplace_info *info)
{
  const HA_CREATE_INFO *create= info->create_info;
  alter_table_operations changes= info->handler_flags;
  if (thd_test_options(thd, OPTION_NO_CHECK_CONSTRAINT_CHECKS))
    changes&= ~ALTER_ADD_CHECK_CONSTRAINT;
  if (changes & ALTER_ADD_CHECK_CONSTRAINT)
    return "rows have to be checked against a new CHECK constraint";
  if (changes & ALTER_COLUMN_NOT_NULLABLE)
    return "rows have to be checked for NULL";
  if (changes & (ALTER_STORED_COLUMN_TYPE | ALTER_VIRTUAL_COLUMN_TYPE))
    return "the type of a column changes";
  if (changes & (ALTER_ADD_STORED_GENERATED_COLUMN | ALTER_STORED_GCOL_EXPR))
    return "a stored generated column has to be computed";
  if (changes & index_changes && info->ignore)
    return "ALTER IGNORE leaves rows out";
  if (changes & ~(instant_changes | index_changes))
    return "ENGINE=RRD does this by copying only";
  if (info->error_if_not_empty)
    return "the default of a new column is not allowed in rows";
  if (altered->versioned(VERS_TIMESTAMP) || table->versioned() || create->sequence)
    return "the table is versioned or a sequence";
  List_iterator_fast<Create_field> columns(info->alter_info->create_list);
  for (Field **field= altered->field; *field; field++)
    if (const char *reason= reason_in_column(*field, columns++))
      return reason;
  return nullptr;
}

/* For each stored field of the new table its number in the old one. */
static std::vector<uint32_t> old_numbers(const TABLE *altered, const Alter_inplace_info *info)
{
  std::vector<uint32_t> numbers;
  List_iterator_fast<Create_field> columns(info->alter_info->create_list);
  for (Field **field= altered->field; *field; field++)
  {
    const Create_field *column= columns++;
    if (rrd_is_stored(*field))
      numbers.push_back(column->field ? column->field->field_index : UINT_MAX32);
  }
  return numbers;
}

int ha_rrd::begin_alter(TABLE *altered, const Alter_inplace_info *info, RrdAlter **alter, bool *builds)
{
  const HA_CREATE_INFO *create= info->create_info;
  const Rrd_definition definition(altered, create->sequence ? 0 : create->max_rows);
  if (const Field *field= definition.refused())
  {
    my_printf_error(ER_ILLEGAL_HA_CREATE_OPTION, "ENGINE=RRD: the type of column '%s' is not supported", MYF(0),
                    field->field_name.str);
    return m_error.status= RRD_UNSUPPORTED;
  }
  const RrdTableDefinition raw= definition.raw();
  if (!rrd_tiers_are_possible(m_name, raw))
  {
    m_error= RrdError();
    return m_error.status= RRD_UNSUPPORTED;
  }
  const std::vector<uint32_t> numbers= old_numbers(altered, info);
  const LEX_CUSTRING &id= altered->s->tabledef_version;
  const ulonglong next= create->used_fields & HA_CREATE_USED_AUTO ? create->auto_increment_value : 0;
  return rrd_alter_begin(store(), &raw, numbers.data(), altered->record[0],
                         rrd_text(reinterpret_cast<const char *>(id.str), id.length), next, alter, builds, &m_error);
}

enum_alter_inplace_result ha_rrd::check_if_supported_inplace_alter(TABLE *altered, Alter_inplace_info *info)
{
  if (is_tier())
  {
    rrd_refuse_change_of_tier(m_name, "altered");
    return HA_ALTER_ERROR;
  }
  if (const char *reason= reason_to_copy(ha_thd(), table, altered, info))
  {
    info->unsupported_reason= reason;
    return HA_ALTER_INPLACE_NOT_SUPPORTED;
  }
  RrdAlter *alter= nullptr;
  bool builds= false;
  switch (begin_alter(altered, info, &alter, &builds))
  {
  case RRD_OK:
    rrd_alter_close(alter);
    return builds ? HA_ALTER_INPLACE_NOCOPY_LOCK : HA_ALTER_INPLACE_INSTANT;
  case RRD_NEEDS_COPY:
    info->unsupported_reason= thd_strdup(ha_thd(), m_error.message);
    return HA_ALTER_INPLACE_NOT_SUPPORTED;
  default:
    rrd_report(m_error);
    return HA_ALTER_ERROR;
  }
}

bool ha_rrd::prepare_inplace_alter_table(TABLE *altered, Alter_inplace_info *info)
{
  RrdAlter *alter= nullptr;
  bool builds;
  if (begin_alter(altered, info, &alter, &builds) != RRD_OK)
  {
    rrd_report(m_error);
    return true;
  }
  info->handler_ctx= new (ha_thd()->mem_root) Rrd_alter_ctx(alter);
  return false;
}

static int report_progress(void *context, uint64_t done, uint64_t total)
{
  THD *thd= static_cast<THD *>(context);
  thd_progress_report(thd, done, total);
  return thd_kill_level(thd) != THD_IS_NOT_KILLED;
}

/* The server shows the value of a duplicate from a record. */
static int report_duplicate(TABLE *altered, const RrdAlter *alter, RrdError *error)
{
  const uint place= error->index - 1;
  if (rrd_alter_duplicate(alter, altered->record[0], error) != RRD_OK)
    return rrd_ha_error(error->status);
  KEY *key= altered->key_info + (place < altered->s->primary_key ? place : place + 1);
  print_keydup_error(altered, key, MYF(0));
  return 0;
}

bool ha_rrd::inplace_alter_table(TABLE *altered, Alter_inplace_info *info)
{
  THD *thd= ha_thd();
  thd_progress_init(thd, 1);
  RrdAlter *alter= static_cast<Rrd_alter_ctx *>(info->handler_ctx)->alter();
  int status= rrd_alter_build(alter, report_progress, thd, &m_error);
  thd_progress_end(thd);
  if (status == RRD_OK)
    return false;
  const int failed= status == RRD_DUPLICATE ? report_duplicate(altered, alter, &m_error) : rrd_ha_error(status);
  if (failed)
    print_error(failed, MYF(0));
  return true;
}

/* With partitions it is called for the first one only, and takes care of them all. */
bool ha_rrd::commit_inplace_alter_table(TABLE *, Alter_inplace_info *info, bool commit)
{
  if (!commit)
    return false;
  if (rrd_wait_for_prepared(ha_thd(), m_name) || !rrd_lock_tiers(ha_thd(), m_name))
    return true;
  std::vector<RrdAlter *> alters;
  inplace_alter_handler_ctx *alone[]= {info->handler_ctx, nullptr};
  for (inplace_alter_handler_ctx **ctx= info->group_commit_ctx ? info->group_commit_ctx : alone; *ctx; ctx++)
    alters.push_back(static_cast<Rrd_alter_ctx *>(*ctx)->alter());
  info->group_commit_ctx= nullptr;
  uint64_t gone= 0;
  bool is_all= false;
  if (rrd_alter_commit(alters.data(), alters.size(), rrd_is_killed, rrd_warn_text, ha_thd(), &gone, &is_all,
                       &m_error) == RRD_OK)
  {
    if (gone)
      rrd_warn_rows_gone(ha_thd(), table_share->table_name.str, "", gone, is_all);
    return false;
  }
  print_error(rrd_ha_error(m_error.status), MYF(0));
  return true;
}

/* EXCHANGE PARTITION and CONVERT TABLE .. TO PARTITION: the other table is the one with partitions. */
static const TABLE *partitioned_table(THD *thd, const TABLE *table)
{
  for (const TABLE_LIST *list= thd->lex->query_tables; list; list= list->next_global)
    if (list->table && list->table != table && list->table->part_info)
      return list->table;
  return nullptr;
}

static bool differs(const char *name)
{
  my_error(ER_PARTITION_EXCHANGE_DIFFERENT_OPTION, MYF(0), name);
  return true;
}

/*
  Asked for EXCHANGE PARTITION and CONVERT TABLE, once the server compared the columns. It does not compare our options, and
  rows would get those of the other table: a ring would let them go, or keep them for ever.
*/
bool ha_rrd::check_if_incompatible_data(HA_CREATE_INFO *info, uint changes)
{
  if (changes != IS_EQUAL_YES)
    return COMPATIBLE_DATA_NO;
  const TABLE *other= partitioned_table(ha_thd(), table);
  if (!other)
    return COMPATIBLE_DATA_YES;
  if (info->max_rows != table->s->max_rows)
    return differs("MAX_ROWS");
  if (const char *name= rrd_different_option(rrd_options_of(table->s), rrd_options_of(other->s)))
    return differs(name);
  for (uint i= 0; i < table->s->fields; i++)
    if (const char *name= rrd_different_option(rrd_options_of(table->field[i]), rrd_options_of(other->field[i])))
      return differs((std::string(name) + " of column " + table->field[i]->field_name.str).c_str());
  return COMPATIBLE_DATA_YES;
}

static bool is_blob(enum_field_types type)
{
  return type == MYSQL_TYPE_TINY_BLOB || type == MYSQL_TYPE_BLOB || type == MYSQL_TYPE_MEDIUM_BLOB ||
         type == MYSQL_TYPE_LONG_BLOB;
}

/* Longer texts and larger blobs of the same character set are the same bytes to the store. */
bool ha_rrd::can_convert_nocopy(const Field &field, const Column_definition &type) const
{
  if (type.charset != field.charset() || !type.compression_method() != !field.compression_method())
    return false;
  const enum_field_types now= type.type_handler()->field_type();
  if (is_blob(field.real_type()) && is_blob(now))
    return type.pack_length >= field.pack_length();
  if (type.type_handler() != field.type_handler())
    return false;
  if (field.real_type() == MYSQL_TYPE_STRING)
    return type.char_length >= field.char_length() && field.part_of_key.is_clear_all();
  return field.real_type() == MYSQL_TYPE_VARCHAR && type.length >= field.field_length &&
         type.char_length >= field.char_length();
}

Compare_keys ha_rrd::compare_key_parts(const Field &field, const Column_definition &type, const KEY_PART_INFO &part,
                                       const KEY_PART_INFO &now) const
{
  if (field.is_equal(type))
    return part.length == now.length ? Compare_keys::Equal : Compare_keys::NotEqual;
  if (!can_convert_nocopy(field, type))
    return Compare_keys::NotEqual;
  if (part.length == now.length)
    return Compare_keys::Equal;
  const bool is_whole= part.length == field.field_length && now.length == type.length;
  return is_whole ? Compare_keys::EqualButKeyPartLength : Compare_keys::NotEqual;
}

/* After a crash in an ALTER: 0 if the table has the new definition. */
int rrd_check_version(handlerton *, const char *path, const LEX_CUSTRING *version, ulonglong)
{
  RrdError error;
  bool is_new= false;
  const std::string name= rrd_table_name(path);
  const RrdText id= rrd_text(reinterpret_cast<const char *>(version->str), version->length);
  return rrd_table_has_definition(rrd_engine, rrd_text(name), id, &is_new, &error) == RRD_OK && is_new ? 0 : 1;
}
