/*
  Making, removing and renaming tables. What a table may look like is decided in the store
  (crates/ffi/src/definition.rs, options.rs); refused here is what the server's definition alone shows.
*/
#include "ha_rrd.h"

#include "connection.h"
#include "definition.h"
#include "engine.h"
#include "errors.h"
#include "leftovers.h"
#include "sysvars.h"
#include "tiers.h"

static int refuse(const char *text)
{
  my_printf_error(ER_ILLEGAL_HA_CREATE_OPTION, "ENGINE=RRD: %s", MYF(0), text);
  return HA_WRONG_CREATE_OPTION;
}

/* Whether the definition asks for something that the engine does not do (yet). */
static int refuse_unsupported(const TABLE *form)
{
  if (form->s->primary_key == MAX_KEY)
    return 0;
  const KEY *key= form->key_info + form->s->primary_key;
  for (uint i= 0; i < key->user_defined_key_parts; i++)
    if (!key->key_part[i].field->stored_in_db())
      return refuse("a generated column of the primary key must be STORED");
  return 0;
}

/* As the server itself does where it has no symbolic links: the table works, its files lie with all the others. */
static void warn_ignored(const char *option)
{
  push_warning_printf(current_thd, Sql_condition::WARN_LEVEL_WARN, WARN_OPTION_IGNORED,
                      ER_THD(current_thd, WARN_OPTION_IGNORED), option);
}

/*
  The server leaves foreign keys to engines and says nothing where they do not know them. Users who rely on ON DELETE CASCADE must
  be told. Partitions are made one by one: told once.
*/
static int warn_foreign_keys(THD *thd, const HA_CREATE_INFO *info)
{
  if (!info->alter_info)
    return 0;
  List_iterator_fast<Key> keys(info->alter_info->key_list);
  while (const Key *key= keys++)
  {
    if (key->type != Key::FOREIGN_KEY)
      continue;
    const Foreign_key *foreign= static_cast<const Foreign_key *>(key);
    const std::string text= "ENGINE=RRD: the FOREIGN KEY that references '" + std::string(foreign->ref_table.str) +
                            "' is not enforced: rows are not checked, and ON DELETE and ON UPDATE do nothing";
    if (rrd_has_strict_foreign_keys(thd))
    {
      my_printf_error(ER_ILLEGAL_HA_CREATE_OPTION, "%s. Leave it out, or SET rrd_strict_foreign_keys=OFF", MYF(0), text.c_str());
      return HA_WRONG_CREATE_OPTION;
    }
    if (!thd->get_stmt_da()->has_sql_condition(text.data(), text.size()))
      push_warning_printf(thd, Sql_condition::WARN_LEVEL_WARN, ER_ILLEGAL_HA_CREATE_OPTION, "%s", text.c_str());
  }
  return 0;
}

int ha_rrd::create(const char *name, TABLE *form, HA_CREATE_INFO *info)
{
  if (is_tier())
    return rrd_create_tier_again(ha_thd(), rrd_tier_name(name), form);
  if (int refused= refuse_unsupported(form))
    return refused;
  if (int refused= warn_foreign_keys(ha_thd(), info))
    return refused;
  if (info->data_file_name)
    warn_ignored("DATA DIRECTORY");
  if (info->index_file_name)
    warn_ignored("INDEX DIRECTORY");
  const Rrd_definition definition(form, info->sequence ? 0 : info->max_rows);
  if (const Field *field= definition.refused())
    return refuse(("the type of column '" + std::string(field->field_name.str) + "' is not supported").c_str());
  const RrdTableDefinition raw= definition.raw();
  const std::string table_name= rrd_table_name(name);
  if (!rrd_tiers_stand_copy(ha_thd(), table_name) || !rrd_tiers_are_possible(table_name, raw))
    return HA_WRONG_CREATE_OPTION;
  int status= rrd_table_create(rrd_engine, rrd_text(table_name), &raw, &m_error);
  if (status == RRD_OK && info->auto_increment_value > 1)
    status= rrd_auto_increment_set(rrd_engine, rrd_text(table_name), info->auto_increment_value, &m_error);
  if (status == RRD_OK)
    return 0;
  if (status == RRD_TABLE_EXISTS)
    return rrd_report_name_of_leftover(table_name);
  rrd_report(m_error);
  return rrd_ha_error(status);
}

/*
  Whether the table is a partition of one that is dropped as a whole. The server has removed the list of its partitions, and none
  of the others can be used again: there is no way back.
*/
static bool must_go(THD *thd, const std::string &table)
{
  return thd->lex->sql_command != SQLCOM_ALTER_TABLE &&
         (table.find("#P#") != std::string::npos || table.find("#p#") != std::string::npos);
}

int rrd_drop_table(handlerton *, const char *path)
{
  RrdError error;
  THD *thd= current_thd;
  const std::string table_name= rrd_table_name(path);
  const bool goes= must_go(thd, table_name);
  if (!goes)
  {
    if (int failed= rrd_wait_for_prepared(thd, table_name))
      return failed;
  }
  else if (rrd_wait_for_prepared(thd, table_name, &error) != RRD_OK)
    push_warning_printf(thd, Sql_condition::WARN_LEVEL_WARN, ER_LOCK_WAIT_TIMEOUT,
                        "ENGINE=RRD: partition '%s' was dropped, with what a prepared transaction has written to it",
                        table_name.c_str());
  if (!rrd_lock_tiers(thd, table_name))
    return HA_ERR_GENERIC;
  int status= rrd_table_drop(rrd_engine, rrd_text(table_name), goes, &error);
  if (status == RRD_NO_SUCH_TABLE)
    status= rrd_table_drop_without_definition(rrd_engine, rrd_text(table_name), &error);
  if (status != RRD_OK)
    rrd_report(error);
  return rrd_ha_error(status);
}

/* What DROP DATABASE finds left over after it dropped the tables that it knew. */
void rrd_drop_database(handlerton *, char *path)
{
  RrdError error;
  const std::string prefix= rrd_table_name(path);
  if (rrd_database_drop(rrd_engine, rrd_text(prefix), &error) != RRD_OK)
    rrd_report(error);
}

int ha_rrd::delete_table(const char *name) { return ht->drop_table(ht, name); }

int ha_rrd::rename_table(const char *from, const char *to)
{
  if (is_tier())
  {
    /* After a refusal the server asks for the way back as well. */
    const std::string tier= rrd_tier_name(from);
    return rrd_refuse_change_of_tier(tier.empty() ? rrd_tier_name(to) : tier, "renamed alone");
  }
  const std::string old_name= rrd_table_name(from), new_name= rrd_table_name(to);
  if (int failed= rrd_wait_for_prepared(ha_thd(), old_name))
    return failed;
  if (!rrd_tiers_can_move(old_name, new_name) || !rrd_lock_tiers(ha_thd(), old_name))
    return HA_ERR_GENERIC;
  int status= rrd_table_rename(rrd_engine, rrd_text(old_name), rrd_text(new_name), &m_error);
  if (status == RRD_TABLE_EXISTS)
    return rrd_report_names_of_leftovers(old_name, new_name);
  if (status != RRD_OK)
    rrd_report(m_error);
  return rrd_ha_error(status);
}

int ha_rrd::truncate()
{
  if (is_tier())
    return rrd_refuse_change_of_tier(m_name, "emptied alone");
  if (int failed= rrd_wait_for_prepared(ha_thd(), m_name))
    return failed;
  return result(rrd_table_truncate(rrd_engine, rrd_text(m_name), &m_error));
}
