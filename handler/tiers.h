/*
  Tiers of tables, as the server sees them: tables named "table$tier" that it discovers.

  They belong to an engine of their own, RRD_TIER, so that ordinary tables keep their definition files: the server keeps none
  for an engine that discovers tables. They are read as any table is, and nothing else: what would change one is refused with a text
  that names its table.
*/
#ifndef RRD_TIERS_H
#define RRD_TIERS_H

#include <string>

#include "rrd.h"
#include "server.h"

extern handlerton *rrd_tier_hton;

/* Start of the plugin RRD_TIER, which comes after that of RRD. */
int rrd_start_tiers(void *hton);

/* The engine's name of the tier that the server finds at a path; empty if it is not named like one. */
std::string rrd_tier_name(const char *path);

/* Reports that a tier cannot be changed; `what` ends "it cannot be". Gives the handler's error number. */
int rrd_refuse_change_of_tier(const std::string &tier, const char *what);

/* A dump that is being restored makes its tables anew and fills them: for a tier that is right as it is. */
bool rrd_restores_tier(THD *thd, const std::string &tier);

/* The statement under way changes nothing but a tier, and so nothing. */
void rrd_keep_out_of_binlog(THD *thd);
int rrd_create_tier_again(THD *thd, const std::string &tier, const TABLE *form);

/* Whether the tiers that a definition asks for can be those of a table; reports why not. */
bool rrd_tiers_are_possible(const std::string &table, const RrdTableDefinition &definition);
/* The same for a table that gets another name. */
bool rrd_tiers_can_move(const std::string &from, const std::string &to);
/* Whether the table that an ALTER TABLE makes a copy of may be copied: false, reported, if its tiers would lose by it. */
bool rrd_tiers_stand_copy(THD *thd, const std::string &copy);

/*
  To be called before a table's tiers change, with the table locked exclusively: waits until nobody uses them, keeps
  everybody out until the end of the statement, and makes the server forget their definitions. Reports a failure.
*/
bool rrd_lock_tiers(THD *thd, const std::string &table);

#endif
