/*
  The server's own headers, and the only place that knows server versions.

  The plugin is built for one exact server; what differs between versions of the 10.11 series, should
  anything ever, is settled here and nowhere else.
*/
#ifndef RRD_SERVER_H
#define RRD_SERVER_H

#define MYSQL_SERVER 1

#include <my_global.h>
#include <mysql_version.h>
#include <mysql/plugin.h>

#include "sql_class.h"
#include "handler.h"
#include "field.h"
#include "key.h"
#include "sql_plugin.h"
#include "table.h"
#include "item_cmpfunc.h"
#include "tztime.h"

#if MYSQL_VERSION_ID < 101100 || MYSQL_VERSION_ID >= 101200
#error "ENGINE=RRD is built for the MariaDB 10.11 series"
#endif

#endif
