/*
  Numbers of rows that the server sends as it reads them.
*/
#ifndef RRD_ROW_TEXT_H
#define RRD_ROW_TEXT_H

#include "server.h"

class JOIN;

/*
  Where rows of a table are sent as they are read, writing them as text is half of the work: runs of columns with integers and
  doubles get items that send all of a run at once. The server has planned all it wants from the select list by now, and takes
  its own items back when the statement ends. True: out of memory.
*/
bool rrd_send_numbers(THD *thd, JOIN *join);

#endif
