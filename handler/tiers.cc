/*
  How the server finds tiers, and what it may not do with them.

  Nothing is kept here: which tiers there are and how they are defined is asked of the store (crates/ffi/src/export_tier.rs)
  each time. The server caches a definition that it has discovered; whoever changes a table's tiers locks their names first,
  which empties that cache.

  A dump contains tiers like all tables. That it can be restored, DROP TABLE IF EXISTS of a tier and
  CREATE TABLE .. ENGINE=RRD_TIER are taken for parts of one: they do nothing, nor do INSERTs into the tier in that session;
  its rows come from the table's. None of these statements is in the binary log: replicas have the tiers of their own tables.
*/
#include "tiers.h"

#include <set>
#include <vector>

#include "engine.h"
#include "errors.h"
#include "group_by.h"
#include "ha_rrd.h"
#include "sql_base.h"
#include "sql_table.h"
#include "sql_trigger.h"
#include "table_cache.h"

handlerton *rrd_tier_hton;

/* How the server writes '$' in the name of a file. */
static const char dollar[]= "@0024";

/* What a session does with tiers. */
struct Tier_session
{
  /* Tiers that it has created again, as a dump does: it may write to them, to no effect. */
  std::set<std::string> created;
  /* The statement under way is kept out of the binary log. */
  bool is_kept_out_of_binlog= false;
};

struct Tier
{
  std::string table, name;
};

static void add_tier(void *context, RrdText table, RrdText tier)
{
  static_cast<std::vector<Tier> *>(context)->push_back(
    {std::string(table.data, table.length), std::string(tier.data, tier.length)});
}

/* The tiers of a table, or with a slash at the end of all tables of a database. */
static std::vector<Tier> tiers_of(const std::string &name)
{
  std::vector<Tier> tiers;
  RrdError error;
  if (rrd_engine && rrd_tiers_list(rrd_engine, rrd_text(name), add_tier, &tiers, &error) != RRD_OK)
    rrd_report(error);
  return tiers;
}

/* A part of a path, as users write the name. */
static std::string decoded(const std::string &part)
{
  char name[NAME_LEN * 2 + 64];
  return std::string(name, filename_to_tablename(part.c_str(), name, sizeof(name), true));
}

static std::string encoded(const char *name)
{
  char path[FN_REFLEN];
  return std::string(path, tablename_to_filename(name, path, sizeof(path)));
}

static std::string database_of(const std::string &table) { return table.substr(0, table.find(FN_LIBCHAR)); }

static std::string file_of(const std::string &table) { return table.substr(table.find(FN_LIBCHAR) + 1); }

/* Copies that ALTER TABLE makes, and temporary tables. */
static bool is_internal(const std::string &table) { return table[0] == '#' || file_of(table)[0] == '#'; }

/* A tier's name as users write it. */
static std::string shown_tier(const std::string &tier)
{
  const size_t at= tier.rfind('$');
  return decoded(file_of(tier.substr(0, at))) + (at == std::string::npos ? "" : tier.substr(at));
}

static std::string tier_of_name(std::string name)
{
  const size_t at= name.rfind(dollar);
  if (at == std::string::npos)
    return std::string();
  return name.replace(at, sizeof(dollar) - 1, "$");
}

std::string rrd_tier_name(const char *path) { return tier_of_name(rrd_table_name(path)); }

int rrd_refuse_change_of_tier(const std::string &tier, const char *what)
{
  const std::string table= decoded(file_of(tier.substr(0, tier.rfind('$'))));
  my_printf_error(ER_OPEN_AS_READONLY,
                  "ENGINE=RRD: '%s' is a tier of table '%s', made of its rows: it cannot be %s. Change the rows of "
                  "'%s', or which tiers it has by ALTER TABLE %s TIERS='..'",
                  MYF(0), shown_tier(tier).c_str(), table.c_str(), what, table.c_str(), table.c_str());
  return HA_ERR_TABLE_READONLY;
}

static Tier_session *tier_session(THD *thd, bool make)
{
  Tier_session *session= static_cast<Tier_session *>(thd_get_ha_data(thd, rrd_tier_hton));
  if (!session && make)
  {
    session= new Tier_session;
    thd_set_ha_data(thd, rrd_tier_hton, session);
  }
  return session;
}

/* A replica only gets rows of a tier from a dump that was restored on a primary of an older version. */
bool rrd_restores_tier(THD *thd, const std::string &tier)
{
  const Tier_session *session= tier_session(thd, false);
  return thd->slave_thread || (session && session->created.count(tier));
}

void rrd_keep_out_of_binlog(THD *thd)
{
  /* A statement of a function or trigger is logged with the one that called it. */
  if (thd->slave_thread || thd->in_sub_stmt || !(thd->variables.option_bits & OPTION_BIN_LOG))
    return;
  /* The end of the statement, which the server tells to engines that take part, takes this back. */
  trans_register_ha(thd, false, rrd_tier_hton, 0);
  tier_session(thd, true)->is_kept_out_of_binlog= true;
  thd->variables.option_bits&= ~OPTION_BIN_LOG;
}

static int end_statement(handlerton *, THD *thd, bool)
{
  Tier_session *session= tier_session(thd, false);
  if (session && session->is_kept_out_of_binlog)
    thd->variables.option_bits|= OPTION_BIN_LOG;
  if (session)
    session->is_kept_out_of_binlog= false;
  return 0;
}

static int forget_session(handlerton *hton, THD *thd)
{
  delete tier_session(thd, false);
  thd_set_ha_data(thd, hton, nullptr);
  return 0;
}

static bool has_same_columns(const TABLE *a, const TABLE_SHARE *b)
{
  if (a->s->fields != b->fields)
    return false;
  for (uint i= 0; i < b->fields; i++)
    if (strcmp(a->field[i]->field_name.str, b->field[i]->field_name.str) ||
        a->field[i]->real_type() != b->field[i]->real_type())
      return false;
  return true;
}

static int discover_at(THD *thd, TABLE_SHARE *share, const std::string &tier);

int rrd_create_tier_again(THD *thd, const std::string &tier, const TABLE *form)
{
  if (tier.empty() || is_internal(tier) || !rrd_tier_exists(rrd_engine, rrd_text(tier)))
  {
    my_printf_error(ER_ILLEGAL_HA_CREATE_OPTION,
                    "ENGINE=RRD: tables of ENGINE=RRD_TIER come with their table: give that the option TIERS='30m:1y, 1d', "
                    "for example, and its tiers are there",
                    MYF(0));
    return HA_WRONG_CREATE_OPTION;
  }
  TABLE_SHARE share;
  init_tmp_table_share(thd, &share, form->s->db.str, 0, form->s->table_name.str, form->s->normalized_path.str);
  share.db_plugin= form->s->db_plugin;
  const int failed= discover_at(thd, &share, tier);
  const bool is_same= !failed && has_same_columns(form, &share);
  share.db_plugin= nullptr;
  free_table_share(&share);
  if (!is_same)
    return failed ? failed : rrd_refuse_change_of_tier(tier, "made with other columns");
  tier_session(thd, true)->created.insert(tier);
  rrd_keep_out_of_binlog(thd);
  return 0;
}

static bool are_all_tiers(const TABLE_LIST *tables)
{
  for (; tables; tables= tables->next_local)
  {
    const std::string tier= tier_of_name(encoded(tables->db.str) + FN_LIBCHAR + encoded(tables->table_name.str));
    if (tier.empty() || !rrd_tier_exists(rrd_engine, rrd_text(tier)))
      return false;
  }
  return true;
}

/* DROP TABLE of a tier: the beginning of a restored dump, or a mistake. */
static int drop_tier(handlerton *, const char *path)
{
  THD *thd= current_thd;
  const std::string tier= rrd_tier_name(path);
  if (tier.empty() || !rrd_engine || !rrd_tier_exists(rrd_engine, rrd_text(tier)))
    return ENOENT;
  const bool is_for_restore= thd->lex->sql_command == SQLCOM_DROP_TABLE
                               ? thd->lex->if_exists()
                               : thd->lex->sql_command == SQLCOM_CREATE_TABLE;
  if (!is_for_restore)
    return rrd_refuse_change_of_tier(tier, "dropped alone");
  push_warning_printf(thd, Sql_condition::WARN_LEVEL_NOTE, ER_OPEN_AS_READONLY,
                      "ENGINE=RRD: '%s' is a tier and stays as long as its table has it",
                      shown_tier(tier).c_str());
  if (are_all_tiers(thd->lex->query_tables))
    rrd_keep_out_of_binlog(thd);
  return 0;
}

/* A CREATE TABLE of a dump is to find nothing in its way. */
static bool is_being_created(THD *thd)
{
  return thd && thd->lex->sql_command == SQLCOM_CREATE_TABLE && thd->lex->create_info.db_type == rrd_tier_hton;
}

static void take_text(void *context, const char *text, size_t length)
{
  static_cast<std::string *>(context)->assign(text, length);
}

static int discover_at(THD *thd, TABLE_SHARE *share, const std::string &tier)
{
  std::string statement;
  RrdError error;
  const int status= rrd_tier_definition(rrd_engine, rrd_text(tier), take_text, &statement, &error);
  if (status == RRD_NO_SUCH_TABLE)
    return HA_ERR_NO_SUCH_TABLE;
  if (status != RRD_OK)
  {
    rrd_report(error);
    return HA_ERR_GENERIC;
  }
  return share->init_from_sql_statement_string(thd, false, statement.data(), statement.size());
}

static int discover_tier(handlerton *, THD *thd, TABLE_SHARE *share)
{
  const std::string tier= rrd_tier_name(share->normalized_path.str);
  if (tier.empty() || !rrd_engine || is_being_created(thd))
    return HA_ERR_NO_SUCH_TABLE;
  return discover_at(thd, share, tier);
}

static int discover_names(handlerton *, LEX_CSTRING *db, MY_DIR *, handlerton::discovered_list *result)
{
  /* Tiers go with their tables: DROP DATABASE would look for them in vain. */
  if (current_thd && current_thd->lex->sql_command == SQLCOM_DROP_DB)
    return 0;
  for (const Tier &tier : tiers_of(encoded(db->str) + FN_LIBCHAR))
  {
    const std::string name= decoded(file_of(tier.table)) + "$" + tier.name;
    if (!is_internal(tier.table) && result->add_table(name.data(), name.size()))
      return 1;
  }
  return 0;
}

static int discover_existence(handlerton *, const char *db, const char *table)
{
  if (!rrd_engine || !strchr(table, '$'))
    return 0;
  const std::string tier= tier_of_name(encoded(db) + FN_LIBCHAR + encoded(table));
  return !tier.empty() && rrd_tier_exists(rrd_engine, rrd_text(tier)) && !is_being_created(current_thd);
}

static handler *create_handler(handlerton *hton, TABLE_SHARE *share, MEM_ROOT *memory)
{
  return new (memory) ha_rrd(hton, share);
}

int rrd_start_tiers(void *plugin)
{
  static const char *no_extensions[]= {NullS};
  handlerton *hton= static_cast<handlerton *>(plugin);
  rrd_tier_hton= hton;
  hton->create= create_handler;
  hton->drop_table= drop_tier;
  hton->discover_table= discover_tier;
  hton->discover_table_names= discover_names;
  hton->discover_table_existence= discover_existence;
  hton->commit= end_statement;
  hton->rollback= end_statement;
  hton->close_connection= forget_session;
  hton->create_group_by= rrd_create_group_by;
  hton->tablefile_extensions= no_extensions;
  hton->flags= HTON_NO_PARTITION | HTON_TEMPORARY_NOT_SUPPORTED;
  return 0;
}

/* Whether a table of any engine has the name that a tier is to get. */
static bool is_taken(const std::string &table, const std::string &tier)
{
  return !access(("./" + table + dollar + tier + reg_ext).c_str(), F_OK);
}

static bool refuse(const char *format, const std::string &table, const std::string &tier)
{
  my_printf_error(ER_ILLEGAL_HA_CREATE_OPTION, format, MYF(0), decoded(file_of(table)).c_str(), tier.c_str());
  return false;
}

static bool can_have(const std::string &table, const std::vector<Tier> &tiers)
{
  for (const Tier &tier : tiers)
  {
    const std::string name= decoded(file_of(table)) + "$" + tier.name;
    if (table[0] == '#')
      return refuse("ENGINE=RRD: a temporary table cannot have tiers", table, tier.name);
    if (table.find("#P#") != std::string::npos || table.find("#p#") != std::string::npos)
      return refuse("ENGINE=RRD: a table with partitions cannot have tiers: what partitions by time are for, RETENTION "
                    "and CHUNK do", table, tier.name);
    if (is_internal(table))
      continue;
    if (system_charset_info->numchars(name.data(), name.data() + name.size()) > NAME_CHAR_LEN)
      return refuse("ENGINE=RRD: the name of tier '%s$%s' is longer than a table's may be (64 characters): give the table a "
                    "shorter one", table, tier.name);
    if (is_taken(table, tier.name))
      return refuse("ENGINE=RRD: there is a table '%s$%s', whose name a tier needs: rename that one", table, tier.name);
  }
  return true;
}

bool rrd_tiers_are_possible(const std::string &table, const RrdTableDefinition &definition)
{
  std::vector<Tier> tiers;
  RrdError error;
  /* What is wrong with the definition itself is reported by whoever uses it. */
  return rrd_tiers_asked_for(&definition, add_tier, &tiers, &error) != RRD_OK ||
         can_have(table, tiers);
}

bool rrd_tiers_can_move(const std::string &from, const std::string &to) { return can_have(to, tiers_of(from)); }

bool rrd_tiers_stand_copy(THD *thd, const std::string &copy)
{
  if (thd->lex->sql_command != SQLCOM_ALTER_TABLE || !is_internal(copy) || !thd->lex->query_tables)
    return true;
  const TABLE_LIST *of= thd->lex->query_tables;
  const std::string table= encoded(of->db.str) + FN_LIBCHAR + encoded(of->table_name.str);
  if (!rrd_tiers_outlive_rows(rrd_engine, rrd_text(table)))
    return true;
  my_printf_error(ER_ALTER_OPERATION_NOT_SUPPORTED,
                  "ENGINE=RRD: this ALTER TABLE copies the rows of '%s', and its tiers have buckets whose rows are gone, which the "
                  "copy would lose. Keep them with CREATE TABLE .. SELECT and give up the tiers first: ALTER TABLE %s TIERS=DEFAULT",
                  MYF(0), of->table_name.str, of->table_name.str);
  return false;
}

/* A tier cannot have triggers. Files of one, copied in by hand or made by an older version, would keep DROP DATABASE from removing
   the folder. */
static void drop_triggers(THD *thd, const std::string &table, const Tier &tier, const std::string &db, const std::string &name)
{
  if (access(("./" + table + dollar + tier.name + TRG_EXT).c_str(), F_OK))
    return;
  const LEX_CSTRING db_name= {db.data(), db.size()}, tier_name= {name.data(), name.size()};
  push_warning_printf(thd, Sql_condition::WARN_LEVEL_WARN, ER_OPEN_AS_READONLY,
                      "ENGINE=RRD: '%s' is a tier and cannot have triggers: those that it had are dropped", name.c_str());
  Table_triggers_list::drop_all_triggers(thd, &db_name, &tier_name, MYF(0));
}

bool rrd_lock_tiers(THD *thd, const std::string &table)
{
  if (is_internal(table))
    return true;
  for (const Tier &tier : tiers_of(table))
  {
    const std::string db= decoded(database_of(table)), name= decoded(file_of(table)) + "$" + tier.name;
    if (thd->locked_tables_mode && find_locked_table(thd->open_tables, db.c_str(), name.c_str()))
    {
      my_printf_error(ER_OPEN_AS_READONLY, "ENGINE=RRD: tier '%s' is under LOCK TABLES of this connection: unlock it first",
                      MYF(0), name.c_str());
      return false;
    }
    MDL_request request;
    MDL_REQUEST_INIT(&request, MDL_key::TABLE, db.c_str(), name.c_str(), MDL_EXCLUSIVE, MDL_TRANSACTION);
    if (thd->mdl_context.acquire_lock(&request, thd->variables.lock_wait_timeout))
      return false;
    tdc_remove_table(thd, db.c_str(), name.c_str());
    drop_triggers(thd, table, tier, db, name);
  }
  return true;
}
