/*
  Tables of the engine that the server has no definition of: dropped while the plugin was not loaded, as a rule.

  Users see nothing of them. DROP TABLE removes them, as the server asks all engines for a table that it does not know.
*/
#include "leftovers.h"

#include <algorithm>
#include <vector>

#include "engine.h"
#include "errors.h"
#include "log.h"
#include "sql_table.h"

/* Names that are told at once: enough to see what happened. */
static const size_t names_told= 20;

/* "database/table", perhaps with a partition, as users write it. */
static std::string shown(const std::string &name)
{
  const size_t slash= name.find(FN_LIBCHAR), partition= std::min(name.find("#P#"), name.find("#p#"));
  const std::string parts[]= {name.substr(0, slash), name.substr(slash + 1, partition - slash - 1)};
  std::string text;
  for (const std::string &part : parts)
  {
    char decoded[NAME_LEN * 2 + 64];
    const uint length= filename_to_tablename(part.c_str(), decoded, sizeof(decoded), true);
    text+= (text.empty() ? "`" : ".`") + std::string(decoded, length) + "`";
  }
  return text;
}

static void add_name(void *context, const char *name, size_t length)
{
  static_cast<std::vector<std::string> *>(context)->push_back(shown(std::string(name, length)));
}

int rrd_report_leftovers(handlerton *)
{
  std::vector<std::string> names;
  RrdError error;
  if (!rrd_engine)
    return 0;
  if (rrd_tables_without_definition(rrd_engine, add_name, &names, &error) != RRD_OK)
  {
    sql_print_error("ENGINE=RRD: %s", error.message);
    return 0;
  }
  for (size_t i= 0; i < names.size() && i < names_told; i++)
    sql_print_warning("ENGINE=RRD: the engine has a table %s of which the server has no definition of ENGINE=RRD: it was dropped while the "
                      "plugin was not loaded, or the definition was lost. DROP TABLE %s removes it", names[i].c_str(), names[i].c_str());
  if (names.size() > names_told)
    sql_print_warning("ENGINE=RRD: there are %zu such tables", names.size());
  return 0;
}

static void add_raw_name(void *context, const char *name, size_t length)
{
  static_cast<std::vector<std::string> *>(context)->emplace_back(name, length);
}

int rrd_report_names_of_leftovers(const std::string &from, const std::string &to)
{
  std::vector<std::string> names;
  RrdError error;
  /* After a refusal the server asks for the way back as well, and tells what is said then. */
  const bool is_known= rrd_tables_without_definition(rrd_engine, add_raw_name, &names, &error) == RRD_OK;
  const bool is_way_back= is_known && std::find(names.begin(), names.end(), to) == names.end();
  return rrd_report_name_of_leftover(is_way_back ? from : to);
}

int rrd_report_name_of_leftover(const std::string &table)
{
  const std::string name= shown(table);
  my_printf_error(ER_TABLE_EXISTS_ERROR,
                  "ENGINE=RRD: the engine still has a table %s whose definition is gone. Put the definition back, or remove what is left "
                  "with DROP TABLE %s", MYF(0), name.c_str(), name.c_str());
  return HA_ERR_TABLE_EXIST;
}
