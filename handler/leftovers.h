/*
  Tables of the engine that the server has no definition of: dropped while the plugin was not loaded, as a rule.
*/
#ifndef RRD_LEFTOVERS_H
#define RRD_LEFTOVERS_H

#include <string>

#include "server.h"

/* Tells the error log which there are. Called when the server is done with what a crash has left of its DDL. */
int rrd_report_leftovers(handlerton *hton);

/* Reports that CREATE TABLE cannot have a name since one of them has it. Gives the handler's error number. */
int rrd_report_name_of_leftover(const std::string &table);

/* The same for a table that is to be renamed. */
int rrd_report_names_of_leftovers(const std::string &from, const std::string &to);

#endif
