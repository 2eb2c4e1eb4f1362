/*
  The bulk protocol (COM_STMT_BULK_EXECUTE): arrays of parameters in one round trip, which mysqltest cannot send.

  Usage: bulk_protocol SOCKET ENGINE. Prints what a client sees, the same text for every engine; bulk_protocol.py
  compares it with what InnoDB gives.
*/
#include <mariadb/mysql.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS= 1000 };

static MYSQL *connection;

static void query(const char *text)
{
  if (mysql_query(connection, text))
    printf("%s\n  error %u %s\n", text, mysql_errno(connection), mysql_error(connection));
  MYSQL_RES *result= mysql_store_result(connection);
  if (!result)
    return;
  MYSQL_ROW row;
  printf("%s\n", text);
  while ((row= mysql_fetch_row(result)))
  {
    for (unsigned i= 0; i < mysql_num_fields(result); i++)
      printf(" %s", row[i] ? row[i] : "NULL");
    printf("\n");
  }
  mysql_free_result(result);
}

/* One array of each kind: an integer, a double with NULLs, a text with DEFAULTs. */
static int ids[ROWS];
static double values[ROWS];
static char value_is[ROWS];
static char *texts[ROWS];
static unsigned long lengths[ROWS];
static char text_is[ROWS];

static void fill(int first, int step)
{
  static char room[ROWS][16];
  for (int i= 0; i < ROWS; i++)
  {
    ids[i]= first + i * step;
    values[i]= ids[i] / 4.0;
    value_is[i]= i % 7 == 3 ? STMT_INDICATOR_NULL : STMT_INDICATOR_NONE;
    lengths[i]= (unsigned long) snprintf(room[i], sizeof(room[i]), "text %d", ids[i]);
    texts[i]= room[i];
    text_is[i]= i % 5 == 2 ? STMT_INDICATOR_DEFAULT : STMT_INDICATOR_NONE;
  }
}

static void bulk(const char *text, unsigned rows, unsigned parameters)
{
  MYSQL_BIND bind[3];
  memset(bind, 0, sizeof(bind));
  bind[0].buffer_type= MYSQL_TYPE_LONG;
  bind[0].buffer= ids;
  bind[1].buffer_type= MYSQL_TYPE_DOUBLE;
  bind[1].buffer= values;
  bind[1].u.indicator= value_is;
  bind[2].buffer_type= MYSQL_TYPE_STRING;
  bind[2].buffer= texts;
  bind[2].length= lengths;
  bind[2].u.indicator= text_is;
  MYSQL_STMT *statement= mysql_stmt_init(connection);
  int failed= mysql_stmt_prepare(statement, text, strlen(text)) ||
              mysql_stmt_attr_set(statement, STMT_ATTR_ARRAY_SIZE, &rows) ||
              mysql_stmt_bind_param(statement, bind) || mysql_stmt_execute(statement);
  if (failed)
    printf("%s (%u rows, %u parameters)\n  error %u %s\n", text, rows, parameters, mysql_stmt_errno(statement),
           mysql_stmt_error(statement));
  else
    printf("%s (%u rows, %u parameters)\n  %llu affected, %u warnings\n", text, rows, parameters,
           mysql_stmt_affected_rows(statement), mysql_warning_count(connection));
  mysql_stmt_close(statement);
}

static void look(void)
{
  query("SELECT COUNT(*), COUNT(v), SUM(v), COUNT(DISTINCT s), MD5(GROUP_CONCAT(id, ' ', IFNULL(v, 'x'), s ORDER BY id)) FROM t");
}

int main(int count, char **arguments)
{
  char create[300];
  if (count != 3)
    return fprintf(stderr, "usage: %s SOCKET ENGINE\n", arguments[0]), 2;
  connection= mysql_init(NULL);
  if (!mysql_real_connect(connection, NULL, "root", NULL, "test", 0, arguments[1], 0))
    return fprintf(stderr, "%s\n", mysql_error(connection)), 2;
  query("SET group_concat_max_len = 100000000");
  query("DROP TABLE IF EXISTS t");
  snprintf(create, sizeof(create),
           "CREATE TABLE t (id INT PRIMARY KEY, v DOUBLE, s VARCHAR(20) NOT NULL DEFAULT 'default') ENGINE=%s", arguments[2]);
  query(create);

  fill(1, 1);
  bulk("INSERT INTO t VALUES (?, ?, ?)", ROWS, 3);
  look();
  fill(ROWS / 2, 1);
  bulk("INSERT INTO t VALUES (?, ?, ?)", ROWS, 3);
  look();
  bulk("INSERT IGNORE INTO t VALUES (?, ?, ?)", ROWS, 3);
  look();
  fill(2, 2);
  bulk("REPLACE INTO t VALUES (?, ?, ?)", ROWS, 3);
  look();
  fill(1, 3);
  bulk("INSERT INTO t VALUES (?, ?, ?) ON DUPLICATE KEY UPDATE v = v + 1, s = VALUES(s)", ROWS, 3);
  look();
  query("BEGIN");
  fill(100000, 1);
  bulk("INSERT INTO t VALUES (?, ?, ?)", ROWS, 3);
  look();
  query("ROLLBACK");
  look();
  fill(1, 2);
  bulk("DELETE FROM t WHERE id = ?", 300, 1);
  look();
  mysql_close(connection);
  return 0;
}
