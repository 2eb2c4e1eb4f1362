/*
  Table names. The server names a table by its path: ./database/table for ordinary ones, an absolute path
  below the folder for temporary files for temporary ones. Both come file-name encoded, hence in ASCII.
*/
#include "engine.h"

RrdEngine *rrd_engine;
handlerton *rrd_hton;

static const char temporary_database[] = "#tmp/";

bool rrd_is_temporary(const std::string &table)
{
  return !table.compare(0, sizeof(temporary_database) - 1, temporary_database);
}

std::string rrd_table_name(const char *path)
{
  if (path[0] == FN_CURLIB && path[1] == FN_LIBCHAR)
    return path + 2;
  const char *name = strrchr(path, FN_LIBCHAR);
  return std::string(temporary_database) + (name ? name + 1 : path);
}
