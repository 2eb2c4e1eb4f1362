/*
  The online backup: SET rrd_backup_to='/new/folder'.
*/
#ifndef RRD_BACKUP_H
#define RRD_BACKUP_H

#include "server.h"

/* The check of rrd_backup_to: takes the backup, so that the statement fails when the backup does. */
int rrd_backup_check(THD *thd, struct st_mysql_sys_var *variable, void *save, struct st_mysql_value *value);

#endif
