/*
  The rrd_% system variables and the Rrd_% status variables. Changes of the dynamic ones go to the engine at
  once; the status variables are whatever the engine counts, so a new counter needs nothing here.
*/
#include "sysvars.h"

#include <algorithm>
#include <string>
#include <thread>
#include <vector>

#include "backup.h"
#include "engine.h"
#include "set_var.h"

/*
  The server works in its data folder. It takes every folder there for a database, but for names that begin with "#sql", and with
  or without this plugin no statement reaches one with a dot in its name (check_db_name() in table.cc).
*/
static char data_path[]= "./#sql.rrd";
static char *data_dir= data_path;

static unsigned int flush_log_at_trx_commit;
static unsigned long long memtable_size;
static unsigned long long cache_size;
static unsigned long long lock_memory_size;

static void set_flush_log(THD *, st_mysql_sys_var *, void *variable, const void *value)
{
  *static_cast<unsigned int *>(variable)= *static_cast<const unsigned int *>(value);
  rrd_engine_set_flush_log(rrd_engine, flush_log_at_trx_commit);
}

static void set_memtable_size(THD *, st_mysql_sys_var *, void *variable, const void *value)
{
  *static_cast<unsigned long long *>(variable)= *static_cast<const unsigned long long *>(value);
  rrd_engine_set_memtable_bytes(rrd_engine, memtable_size);
}

static void set_cache_size(THD *, st_mysql_sys_var *, void *variable, const void *value)
{
  *static_cast<unsigned long long *>(variable)= *static_cast<const unsigned long long *>(value);
  rrd_engine_set_cache_bytes(rrd_engine, cache_size);
}

static void set_lock_memory_size(THD *, st_mysql_sys_var *, void *variable, const void *value)
{
  *static_cast<unsigned long long *>(variable)= *static_cast<const unsigned long long *>(value);
  rrd_apply_lock_memory_size();
}

void rrd_apply_lock_memory_size() { rrd_engine_set_lock_bytes(rrd_engine, lock_memory_size); }

static MYSQL_SYSVAR_UINT(flush_log_at_trx_commit, flush_log_at_trx_commit, PLUGIN_VAR_RQCMDARG,
  "1: a commit is on disk before it is acknowledged; 2: written then, on disk within about a second; "
  "0: written and on disk within about a second",
  nullptr, set_flush_log, 1, 0, 2, 0);

static MYSQL_SYSVAR_ULONGLONG(memtable_size, memtable_size, PLUGIN_VAR_RQCMDARG,
  "Bytes of memory for rows that are not in segments yet, of all tables together",
  nullptr, set_memtable_size, 256ULL << 20, 1ULL << 20, 1ULL << 40, 0);

static MYSQL_SYSVAR_ULONGLONG(cache_size, cache_size, PLUGIN_VAR_RQCMDARG,
  "Bytes of memory for decoded blocks of segments",
  nullptr, set_cache_size, 128ULL << 20, 1ULL << 20, 1ULL << 40, 0);

static MYSQL_SYSVAR_ULONGLONG(lock_memory_size, lock_memory_size, PLUGIN_VAR_RQCMDARG,
  "Bytes of memory for row locks of all transactions; a transaction that needs more locks its table as a whole, or fails",
  nullptr, set_lock_memory_size, 256ULL << 20, 1ULL << 20, 1ULL << 40, 0);

static MYSQL_SYSVAR_STR(data_dir, data_dir, PLUGIN_VAR_READONLY | PLUGIN_VAR_NOCMDOPT,
  "The engine's folder below the server's data folder", nullptr, nullptr, data_path);

static MYSQL_THDVAR_ULONG(lock_wait_timeout, PLUGIN_VAR_RQCMDARG,
  "Seconds that a statement waits for a row lock; 0: it does not wait", nullptr, nullptr, 50, 0, 365 * 24 * 3600, 0);

static MYSQL_THDVAR_BOOL(pushdown, PLUGIN_VAR_RQCMDARG,
  "The engine answers aggregate queries itself where it can; OFF: it hands all rows to the server", nullptr, nullptr,
  true);

static MYSQL_THDVAR_BOOL(strict_foreign_keys, PLUGIN_VAR_RQCMDARG,
  "CREATE TABLE and ALTER TABLE with a FOREIGN KEY fail, as it is not enforced; OFF: they warn", nullptr, nullptr, false);

static MYSQL_THDVAR_ULONG(scan_threads, PLUGIN_VAR_RQCMDARG,
  "Threads that work on an aggregate query at most; 0: as many as there are cores", nullptr, nullptr, 0, 0, 256, 0);

static MYSQL_THDVAR_STR(backup_to, PLUGIN_VAR_NOCMDOPT | PLUGIN_VAR_MEMALLOC,
  "Setting it takes a backup of the engine into this folder, which must not exist; its value is the last one taken",
  rrd_backup_check, nullptr, nullptr);

struct st_mysql_sys_var *rrd_system_variables[]=
{
  MYSQL_SYSVAR(flush_log_at_trx_commit),
  MYSQL_SYSVAR(memtable_size),
  MYSQL_SYSVAR(cache_size),
  MYSQL_SYSVAR(lock_memory_size),
  MYSQL_SYSVAR(data_dir),
  MYSQL_SYSVAR(lock_wait_timeout),
  MYSQL_SYSVAR(pushdown),
  MYSQL_SYSVAR(strict_foreign_keys),
  MYSQL_SYSVAR(scan_threads),
  MYSQL_SYSVAR(backup_to),
  nullptr
};

RrdConfig rrd_start_config()
{
  return {rrd_text(data_path), memtable_size, cache_size, flush_log_at_trx_commit, 0};
}

/* The parser turns NOWAIT and WAIT n into lock_wait_timeout (and InnoDB's own variable) for one statement. */
static bool is_wait_limited(THD *thd)
{
  List_iterator_fast<set_var_base> it(thd->lex->stmt_var_list);
  while (set_var_base *set= it++)
    if (set->is_system() && !strcmp(static_cast<set_var *>(set)->var->name.str, "lock_wait_timeout"))
      return true;
  return false;
}

uint64_t rrd_lock_wait_timeout_ms(THD *thd)
{
  return 1000ULL * (is_wait_limited(thd) ? thd->variables.lock_wait_timeout : THDVAR(thd, lock_wait_timeout));
}

bool rrd_has_strict_foreign_keys(THD *thd) { return THDVAR(thd, strict_foreign_keys); }

bool rrd_pushes_down(THD *thd) { return THDVAR(thd, pushdown); }

/*
  More threads than twice the cores gain nothing, and each holds memory: a session cannot ask for them. Nor can it ask for more
  than the global value, if that is one.
*/
size_t rrd_scan_threads(THD *thd)
{
  const size_t cores= std::max<size_t>(1, std::thread::hardware_concurrency());
  const size_t of_all= THDVAR(nullptr, scan_threads);
  size_t wanted= THDVAR(thd, scan_threads);
  if (of_all)
    wanted= std::min(wanted ? wanted : cores, of_all);
  return std::min(wanted, std::max<size_t>(8, 2 * cores));
}

struct Counter
{
  std::string name;
  unsigned long long value;
};

static void add_counter(void *context, const char *name, size_t length, uint64_t value)
{
  static_cast<std::vector<Counter> *>(context)->push_back({std::string(name, length), value});
}

/* The server adds the prefix "Rrd_". What is shown must live until the statement ends: the THD's memory does. */
static int show_counters(MYSQL_THD thd, struct st_mysql_show_var *out, void *, struct system_status_var *,
                         enum enum_var_type)
{
  std::vector<Counter> counters;
  rrd_engine_counters(rrd_engine, add_counter, &counters);
  auto *shown= static_cast<st_mysql_show_var *>(thd_calloc(thd, (counters.size() + 1) * sizeof(st_mysql_show_var)));
  auto *values= static_cast<unsigned long long *>(thd_calloc(thd, (counters.size() + 1) * sizeof(long long)));
  for (size_t i= 0; shown && values && i < counters.size(); i++)
  {
    values[i]= counters[i].value;
    shown[i].name= thd_strmake(thd, counters[i].name.data(), counters[i].name.size());
    shown[i].value= values + i;
    shown[i].type= SHOW_LONGLONG;
  }
  out->type= SHOW_ARRAY;
  out->value= shown;
  return 0;
}

struct st_mysql_show_var rrd_status_variables[]=
{
  {"Rrd", reinterpret_cast<void *>(show_counters), SHOW_FUNC},
  {nullptr, nullptr, SHOW_UNDEF}
};

struct Report
{
  THD *thd;
  stat_print_fn *print;
  bool failed;
};

static void print_report(void *context, const char *text, size_t length)
{
  Report *report= static_cast<Report *>(context);
  report->failed= report->print(report->thd, STRING_WITH_LEN("RRD"), STRING_WITH_LEN(""), text, length);
}

bool rrd_show_status(handlerton *, THD *thd, stat_print_fn *print, enum ha_stat_type type)
{
  if (type != HA_ENGINE_STATUS)
    return false;
  Report report= {thd, print, false};
  rrd_engine_report(rrd_engine, print_report, &report);
  return report.failed;
}
