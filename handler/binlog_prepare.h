/*
  XA PREPARE with a binary log: this engine is asked before the log writes. See binlog_prepare.cc.
*/
#ifndef RRD_BINLOG_PREPARE_H
#define RRD_BINLOG_PREPARE_H

/* From here on the binary log asks this engine before it logs XA PREPARE, until the second one is called. */
void rrd_ask_before_binlog();
void rrd_leave_binlog();

#endif
