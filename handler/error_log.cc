/*
  The engine's messages in the server's error log, as log_warnings says: errors always, warnings from 1, notes
  from 2 on. Repetitions are left out before they come here (crates/ffi/src/log.rs).
*/
#include "error_log.h"

#include "log.h"
#include "rrd.h"
#include "server.h"

/* Called by any thread, also by those that the server does not know. */
static void write(RrdSeverity severity, const char *text, size_t length)
{
  const ulong level= global_system_variables.log_warnings;
  if (severity == RRD_SEVERITY_ERROR)
    sql_print_error("ENGINE=RRD: %.*s", (int) length, text);
  else if (severity == RRD_SEVERITY_WARNING && level >= 1)
    sql_print_warning("ENGINE=RRD: %.*s", (int) length, text);
  else if (severity == RRD_SEVERITY_NOTE && level >= 2)
    sql_print_information("ENGINE=RRD: %.*s", (int) length, text);
}

void rrd_open_error_log() { rrd_log_to(write); }

void rrd_close_error_log() { rrd_log_to(nullptr); }
