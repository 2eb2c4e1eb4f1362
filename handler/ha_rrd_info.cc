/*
  What the optimizer, SHOW TABLE STATUS, CHECK, REPAIR, OPTIMIZE and ANALYZE ask for.

  Costs are in the server's unit, about one read of a block. A table is as dear to scan as its compressed blocks
  are many; part of it costs its share, since rows lie in key order.
*/
#include "ha_rrd.h"

#include <cmath>

#include "errors.h"

static_assert(sizeof(RrdTableStats) == 64, "RrdTableStats differs from the store's");

static const uint block_bytes= 16384;

/* The definition file is as old as the table. */
static time_t creation_time(const TABLE_SHARE *share)
{
  char path[FN_REFLEN];
  MY_STAT found;
  strxnmov(path, sizeof(path) - 1, share->normalized_path.str, reg_ext, NullS);
  return my_stat(path, &found, MYF(0)) ? found.st_ctime : 0;
}

void ha_rrd::fill_statistics(const RrdTableStats &found, uint what)
{
  stats.records= found.rows;
  /* The optimizer takes 0 as a promise; what is not committed yet is not counted. */
  if (!stats.records && !(what & (HA_STATUS_TIME | HA_STATUS_OPEN)))
    stats.records= 1;
  stats.data_file_length= found.data_bytes;
  stats.index_file_length= found.index_bytes;
  stats.delete_length= 0;
  stats.update_time= (time_t) found.update_time;
  stats.deleted= 0;
  stats.mean_rec_length= (ulong) (found.rows ? found.data_bytes / found.rows : 0);
  stats.block_size= block_bytes;
  stats.mrr_length_per_rec= ref_length + sizeof(void *);
}

/*
  Nothing is counted about key prefixes: rows are spread evenly over the parts. A key that is not unique has one
  more, the row itself.
*/
static void estimate_key_groups(KEY *key, ha_rows records)
{
  const bool is_unique= key->flags & HA_NOSAME;
  const uint parts= key->user_defined_key_parts, levels= is_unique ? parts : parts + 1;
  for (uint part= 0; part < parts; part++)
  {
    const double share= double(levels - 1 - part) / levels;
    key->rec_per_key[part]= part + 1 == levels ? 1 : (ulong) MY_MAX(1.0, std::pow(double(records), share));
  }
}

int ha_rrd::info(uint what)
{
  if (what & HA_STATUS_ERRKEY)
    errkey= m_duplicate_key;
  if (what & (HA_STATUS_VARIABLE | HA_STATUS_CONST | HA_STATUS_AUTO))
  {
    RrdTableStats found;
    if (rrd_table_stats(store(), &found, &m_error) != RRD_OK)
      return rrd_ha_error(m_error.status);
    fill_statistics(found, what);
    if (what & HA_STATUS_AUTO)
      stats.auto_increment_value= found.next_auto_increment;
  }
  if (what & HA_STATUS_CONST)
  {
    stats.create_time= creation_time(table_share);
    for (uint i= 0; i < table_share->keys; i++)
      estimate_key_groups(table->key_info + i, stats.records);
  }
  return 0;
}

/* The next value of AUTO_INCREMENT belongs to a table's definition: SHOW CREATE TABLE shows it, ALTER TABLE keeps it. */
void ha_rrd::update_create_info(HA_CREATE_INFO *create_info)
{
  if (create_info->used_fields & HA_CREATE_USED_AUTO)
    return;
  create_info->auto_increment_value= table->found_next_number_field && !info(HA_STATUS_AUTO) ? stats.auto_increment_value : 0;
}

double ha_rrd::scan_time() { return double(stats.data_file_length) / block_bytes + 2; }

/* A range of the clustering key is a part of a scan; behind a secondary key each row is looked up. */
double ha_rrd::read_time(uint index, uint ranges, ha_rows rows)
{
  return index == table_share->primary_key ? keyread_time(index, ranges, rows) : handler::read_time(index, ranges, rows);
}

double ha_rrd::keyread_time(uint, uint ranges, ha_rows rows)
{
  if (rows <= 2)
    return double(rows);
  const double share= double(rows) / double(MY_MAX(stats.records, rows));
  return ranges + share * scan_time();
}

ha_rows ha_rrd::records_in_range(uint index, const key_range *low, const key_range *high, page_range *)
{
  uint64_t rows= 0;
  int status= rrd_table_rows_between(store(), secondary(index),
                                     low ? low->key : nullptr, low ? low->length : 0,
                                     low && low->flag != HA_READ_AFTER_KEY,
                                     high ? high->key : nullptr, high ? high->length : 0,
                                     high && high->flag == HA_READ_AFTER_KEY,
                                     &rows, &m_error);
  if (status != RRD_OK)
    return HA_POS_ERROR;
  /* The optimizer takes 0 as a promise that there is nothing. */
  return MY_MAX(rows, 1);
}

/* Long work goes on until KILL. */
static int report_progress(void *context, uint64_t done, uint64_t total)
{
  THD *thd= static_cast<THD *>(context);
  thd_progress_report(thd, done, total);
  return thd_kill_level(thd) != THD_IS_NOT_KILLED;
}

struct Check
{
  THD *thd;
  uint findings;
};

static int check_progress(void *context, uint64_t done, uint64_t total)
{
  return report_progress(static_cast<Check *>(context)->thd, done, total);
}

static void check_finding(void *context, const char *text, size_t length)
{
  Check *check= static_cast<Check *>(context);
  check->findings++;
  push_warning_printf(check->thd, Sql_condition::WARN_LEVEL_WARN, ER_NOT_KEYFILE, "%.*s", (int) length, text);
}

int ha_rrd::check(THD *thd, HA_CHECK_OPT *options)
{
  Check check= {thd, 0};
  thd_progress_init(thd, 1);
  int status= rrd_table_check(store(), options->flags & T_QUICK, check_progress, check_finding, &check, &m_error);
  thd_progress_end(thd);
  if (status == RRD_CORRUPTION || status == RRD_INCOMPATIBLE)
    check_finding(&check, m_error.message, strlen(m_error.message));
  else if (status != RRD_OK)
  {
    print_error(rrd_ha_error(status), MYF(0));
    return HA_ADMIN_FAILED;
  }
  return check.findings ? HA_ADMIN_CORRUPT : HA_ADMIN_OK;
}

static void repair_line(void *context, const char *text, size_t length)
{
  THD *thd= static_cast<Check *>(context)->thd;
  push_warning_printf(thd, Sql_condition::WARN_LEVEL_WARN, ER_NOT_KEYFILE, "%.*s", (int) length, text);
}

/* The server has closed the table for everybody else. What was lost is told in lines before the outcome. */
int ha_rrd::repair(THD *thd, HA_CHECK_OPT *)
{
  Check repair= {thd, 0};
  thd_progress_init(thd, 1);
  int status= rrd_table_repair(store(), check_progress, repair_line, &repair, &m_error);
  thd_progress_end(thd);
  if (status == RRD_OK)
    return HA_ADMIN_OK;
  print_error(rrd_ha_error(status), MYF(0));
  return HA_ADMIN_FAILED;
}

int ha_rrd::optimize(THD *thd, HA_CHECK_OPT *)
{
  thd_progress_init(thd, 1);
  int status= rrd_table_optimize(store(), report_progress, thd, &m_error);
  thd_progress_end(thd);
  if (status == RRD_OK)
    return HA_ADMIN_OK;
  print_error(rrd_ha_error(status), MYF(0));
  return HA_ADMIN_FAILED;
}

/* Figures are always up to date. */
int ha_rrd::analyze(THD *, HA_CHECK_OPT *)
{
  return info(HA_STATUS_VARIABLE | HA_STATUS_CONST) ? HA_ADMIN_FAILED : HA_ADMIN_OK;
}
