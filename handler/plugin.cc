/*
  The plugins: what the server finds on loading, start and stop of the engine.
*/
#include "binlog_prepare.h"
#include "connection.h"
#include "engine.h"
#include "error_log.h"
#include "errors.h"
#include "functions.h"
#include "group_by.h"
#include "ha_rrd.h"
#include "info_schema.h"
#include "leftovers.h"
#include "log.h"
#include "options.h"
#include "sysvars.h"
#include "tiers.h"

static handler *create_handler(handlerton *hton, TABLE_SHARE *share, MEM_ROOT *memory)
{
  return new (memory) ha_rrd(hton, share);
}

/* A thread pool runs another connection's statement meanwhile. */
static void tell_pause(bool begins)
{
  if (begins)
    thd_wait_begin(nullptr, THD_WAIT_ROW_LOCK);
  else
    thd_wait_end(nullptr);
}

static bool start_engine()
{
  RrdError error;
  const RrdConfig config= rrd_start_config();
  static_assert(sizeof(RrdConfig) == 40, "RrdConfig differs from the store's");
  rrd_open_error_log();
  rrd_report_pauses(tell_pause);
  if (rrd_engine_open(&config, &rrd_engine, &error) == RRD_OK)
  {
    rrd_apply_lock_memory_size();
    rrd_report_waits();
    rrd_ask_before_binlog();
    return true;
  }
  sql_print_error("ENGINE=RRD: %s", error.message);
  rrd_engine= nullptr;
  rrd_close_error_log();
  return false;
}

static void fill_handlerton(handlerton *hton)
{
  static const char *no_extensions[]= {NullS};
  rrd_hton= hton;
  hton->create= create_handler;
  hton->drop_table= rrd_drop_table;
  hton->drop_database= rrd_drop_database;
  hton->check_version= rrd_check_version;
  hton->show_status= rrd_show_status;
  hton->table_options= rrd_table_options;
  hton->field_options= rrd_field_options;
  hton->tablefile_extensions= no_extensions;
  hton->signal_ddl_recovery_done= rrd_report_leftovers;
  hton->create_group_by= rrd_create_group_by;
  hton->flags= 0;
  rrd_init_transactions(hton);
}

static int start(void *hton)
{
  fill_handlerton(static_cast<handlerton *>(hton));
  return start_engine() ? 0 : 1;
}

static int stop(void *)
{
  rrd_leave_binlog();
  RrdError error;
  if (rrd_engine_close(rrd_engine, &error) != RRD_OK)
    sql_print_error("ENGINE=RRD: %s", error.message);
  rrd_engine= nullptr;
  rrd_close_error_log();
  return 0;
}

static struct st_mysql_storage_engine descriptor= {MYSQL_HANDLERTON_INTERFACE_VERSION};

/* A table of INFORMATION_SCHEMA. */
#define view_plugin(name, description, init) \
  {MYSQL_INFORMATION_SCHEMA_PLUGIN, &rrd_info_descriptor, name, "The RRD engine's authors", description, \
   PLUGIN_LICENSE_GPL, init, nullptr, 0x0001, nullptr, nullptr, "0.1", MariaDB_PLUGIN_MATURITY_GAMMA}

/* A function of SQL; its plugin's name is its own. */
#define function_plugin(name, function, description) \
  {MariaDB_FUNCTION_PLUGIN, &function, name, "The RRD engine's authors", description, \
   PLUGIN_LICENSE_GPL, nullptr, nullptr, 0x0001, nullptr, nullptr, "0.1", MariaDB_PLUGIN_MATURITY_GAMMA}

maria_declare_plugin(rrd)
{
  MYSQL_STORAGE_ENGINE_PLUGIN,
  &descriptor,
  "RRD",
  "The RRD engine's authors",
  "Time series: columnar, compressed, transactional",
  PLUGIN_LICENSE_GPL,
  start,
  stop,
  0x0001,
  rrd_status_variables,
  rrd_system_variables,
  "0.1",
  MariaDB_PLUGIN_MATURITY_GAMMA
},
{
  MYSQL_STORAGE_ENGINE_PLUGIN,
  &descriptor,
  "RRD_TIER",
  "The RRD engine's authors",
  "Tiers of tables of ENGINE=RRD: not to be chosen, they come with option TIERS",
  PLUGIN_LICENSE_GPL,
  rrd_start_tiers,
  nullptr,
  0x0001,
  nullptr,
  nullptr,
  "0.1",
  MariaDB_PLUGIN_MATURITY_GAMMA
},
view_plugin("RRD_TABLES", "Tables of ENGINE=RRD: rows, bytes, times, options", rrd_init_tables_view),
view_plugin("RRD_TIERS", "Tiers of tables of ENGINE=RRD: buckets, bytes, times", rrd_init_tiers_view),
view_plugin("RRD_SEGMENTS", "Files of tables of ENGINE=RRD: rows, bytes, times", rrd_init_segments_view),
view_plugin("RRD_COLUMNS", "Columns of tables of ENGINE=RRD: bytes and codecs", rrd_init_columns_view),
view_plugin("RRD_LOCK_WAITS", "Transactions of ENGINE=RRD that wait for others' locks", rrd_init_lock_waits_view),
function_plugin("TIME_BUCKET", rrd_time_bucket_function, "time_bucket(width, time [, origin or offset])"),
function_plugin("FIRST", rrd_first_function, "Aggregate first(value, time)"),
function_plugin("LAST", rrd_last_function, "Aggregate last(value, time)"),
function_plugin("RRD_DELTA", rrd_delta_function, "Aggregate rrd_delta(value, time [, type]): what a counter counted"),
function_plugin("RRD_RATE", rrd_rate_function, "Aggregate rrd_rate(value, time [, type]): the same for each second")
maria_declare_plugin_end;
