#ifndef RRD_LOSSES_H
#define RRD_LOSSES_H
/*
  Warnings about rows that are not stored, or gone, because they are older than the horizon of their table.
*/
#include <string>

#include "engine.h"
#include "server.h"

/* Warns about rows that the session's statements, or its commit, did not store since it was last asked. */
void rrd_warn_losses(THD *thd, RrdSession *session);

/* The same for rows of one table that an ALTER TABLE let go; `ring` may be empty. */
void rrd_warn_rows_gone(THD *thd, const char *table, const std::string &ring, uint64_t rows, bool is_all);

/* A warning of the store's in an ALTER TABLE; its connection is `thd`. */
void rrd_warn_text(void *thd, const char *text, size_t length);

/* Forgets them: the statement failed. */
void rrd_forget_losses(RrdSession *session);

#endif
