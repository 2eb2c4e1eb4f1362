/*
  The server's collations, as the store's sort keys need them.
*/
#ifndef RRD_COLLATION_H
#define RRD_COLLATION_H

#include "rrd.h"
#include "server.h"

/* Describes the collation of a text or byte string: `charset` pads it, `order` compares it. */
RrdCollation rrd_collation(CHARSET_INFO *charset, CHARSET_INFO *order);

#endif
