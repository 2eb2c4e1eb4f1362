/*
  The engine's messages in the server's error log.
*/
#ifndef RRD_ERROR_LOG_H
#define RRD_ERROR_LOG_H

/* From now on they go there. */
void rrd_open_error_log();

/* From now on they go nowhere; no thread of the engine is in the server's log when it returns. */
void rrd_close_error_log();

#endif
