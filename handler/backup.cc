/*
  The online backup: SET rrd_backup_to='/new/folder'.

  It is taken when the value is checked, the one moment in which a SET can fail. DDL is kept out, with the lock that
  BACKUP STAGE uses for it, while the engine fixes the backup's moment and copies the definitions of its tables; the
  files themselves are linked or copied without any lock. In a session that has run BACKUP STAGE or FLUSH TABLES WITH
  READ LOCK itself the lock is no hindrance; against those of others it waits.
*/
#include "backup.h"

#include "connection.h"
#include "engine.h"
#include "errors.h"
#include "mysqld.h"
#include "sql_parse.h"

static_assert(sizeof(RrdBackupReport) == 40, "RrdBackupReport differs from the store's");

/* Keeps CREATE, DROP, RENAME and the last step of ALTER TABLE out. */
class Ddl_block
{
public:
  explicit Ddl_block(THD *thd) : m_thd(thd) {}
  ~Ddl_block()
  {
    if (m_request.ticket)
      m_thd->mdl_context.release_lock(m_request.ticket);
  }

  bool take()
  {
    MDL_REQUEST_INIT(&m_request, MDL_key::BACKUP, "", "", MDL_BACKUP_BLOCK_DDL, MDL_EXPLICIT);
    return !m_thd->mdl_context.acquire_lock(&m_request, m_thd->variables.lock_wait_timeout);
  }

private:
  THD *m_thd;
  MDL_request m_request;
};

static bool refuse(const char *why, const char *folder)
{
  my_printf_error(ER_WRONG_VALUE_FOR_VAR, "rrd_backup_to='%s': %s", MYF(0), folder, why);
  return false;
}

/* Whether this user may have a backup there. What only the disk can say is the store's to find out. */
static bool is_allowed(THD *thd, char *folder)
{
  if (check_global_access(thd, RELOAD_ACL))
    return false;
  if (!thd->lex->stmt_var_list.is_empty())
  {
    my_error(ER_SET_STATEMENT_NOT_SUPPORTED, MYF(0), "rrd_backup_to");
    return false;
  }
  if (folder[0] != FN_LIBCHAR)
    return refuse("name a new folder with its whole path, such as '/backup/monday'", folder);
  if (!is_secure_file_path(folder))
  {
    my_error(ER_OPTION_PREVENTS_STATEMENT, MYF(0), "--secure-file-priv");
    return false;
  }
  char parent[FN_REFLEN];
  size_t length;
  dirname_part(parent, folder, &length);
  if (test_if_data_home_dir(parent))
    return refuse("a folder within the data folder would be taken for a database; choose another place", folder);
  return true;
}

static int report_progress(void *context, uint64_t done, uint64_t total)
{
  THD *thd= static_cast<THD *>(context);
  thd_progress_report(thd, done, total);
  return thd_kill_level(thd) != THD_IS_NOT_KILLED;
}

static bool fail(THD *thd, const RrdError &error)
{
  if (error.status == RRD_INTERRUPTED)
    thd->send_kill_message();
  else
    rrd_report(error);
  return false;
}

static RrdBackup *begin(THD *thd, const char *folder)
{
  Ddl_block block(thd);
  if (!block.take())
    return nullptr;
  uchar own[rrd_packed_xid_max];
  const RrdText own_xids= {reinterpret_cast<char *>(own), rrd_pack_own_xids(own)};
  RrdBackup *backup= nullptr;
  RrdError error;
  if (rrd_backup_begin(rrd_engine, rrd_text(folder), own_xids, &backup, &error) != RRD_OK)
    fail(thd, error);
  return backup;
}

static bool take_backup(THD *thd, const char *folder)
{
  RrdBackup *backup= begin(thd, folder);
  if (!backup)
    return false;
  thd_progress_init(thd, 1);
  RrdBackupReport report;
  RrdError error;
  const int status= rrd_backup_finish(backup, report_progress, thd, &report, &error);
  thd_progress_end(thd);
  if (status != RRD_OK)
    return fail(thd, error);
  push_warning_printf(thd, Sql_condition::WARN_LEVEL_NOTE, ER_UNKNOWN_ERROR,
                      "ENGINE=RRD: backup in '%s' up to commit %llu: tables %llu, segments %llu, bytes linked %llu, "
                      "bytes copied %llu", folder, (ulonglong) report.last_commit, (ulonglong) report.tables,
                      (ulonglong) report.segments, (ulonglong) report.linked_bytes, (ulonglong) report.copied_bytes);
  return true;
}

int rrd_backup_check(THD *thd, struct st_mysql_sys_var *, void *save, struct st_mysql_value *value)
{
  char buffer[FN_REFLEN];
  int length= sizeof(buffer);
  const char *given= value->val_str(value, buffer, &length);
  if (!given || length <= 0 || length >= FN_REFLEN)
    return !refuse("name a new folder with its whole path, such as '/backup/monday'", "");
  char *folder= thd_strmake(thd, given, length);
  /* The name is the last part: a slash behind it says nothing. */
  for (char *end= folder ? folder + length : folder; end > folder + 1 && end[-1] == FN_LIBCHAR; )
    *--end= 0;
  if (!folder || !is_allowed(thd, folder) || !take_backup(thd, folder))
    return 1;
  *static_cast<const char **>(save)= folder;
  return 0;
}
