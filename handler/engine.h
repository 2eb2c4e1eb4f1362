/*
  The engine's handle and how table paths become its table names.
*/
#ifndef RRD_ENGINE_H
#define RRD_ENGINE_H

#include <string>

#include "rrd.h"
#include "server.h"

/* Set by the plugin's start, null when the engine is not running. */
extern RrdEngine *rrd_engine;
extern handlerton *rrd_hton;

/* The engine's name for a table: "database/table", temporary tables lie in a database of their own. */
std::string rrd_table_name(const char *path);

/* Whether a table of that name belongs to one connection. */
bool rrd_is_temporary(const std::string &table);

inline RrdText rrd_text(const char *data, size_t length) { return RrdText{data, length}; }
inline RrdText rrd_text(const std::string &text) { return RrdText{text.data(), text.size()}; }

/* A text may be missing: options that the user did not write. */
inline RrdText rrd_text(const char *data) { return RrdText{data, data ? strlen(data) : 0}; }

#endif
