/*
  A client that runs statements and says how long each took, its whole answer received. In C, so that what is measured is
  the server and not the client.

  Usage: query_client SOCKET RUNS BUDGET_MS [ANSWERS], statements on standard input, one a line. A line that begins with SET is run
  once and not timed. Any other is run up to 1 + RUNS times, but no further time when its runs took BUDGET_MS together; for
  each a line is printed: the microseconds of its runs. The first run warms the caches; its rows go to the file ANSWERS, fields
  parted by tabs. A statement that the server ended for its max_statement_time gives an empty line.
*/
#include <mariadb/mysql.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { STATEMENT_TIMEOUT= 1969, LONGEST= 1 << 16 };

static double now_us(void)
{
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double) t.tv_sec * 1e6 + (double) t.tv_nsec / 1e3;
}

static void write_rows(MYSQL_RES *result, FILE *answers)
{
  for (MYSQL_ROW row; (row= mysql_fetch_row(result));)
    for (unsigned i= 0, last= mysql_num_fields(result) - 1; i <= last; i++)
      fprintf(answers, "%s%c", row[i] ? row[i] : "NULL", i == last ? '\n' : '\t');
}

/* Runs a statement and takes its answer, its rows to the file if there is one. Returns whether it was in time. */
static int answered(MYSQL *connection, const char *text, FILE *answers)
{
  if (!mysql_query(connection, text))
  {
    MYSQL_RES *result= mysql_store_result(connection);
    if (result || !mysql_errno(connection))
    {
      if (result && answers)
        write_rows(result, answers);
      mysql_free_result(result);
      return 1;
    }
  }
  if (mysql_errno(connection) == STATEMENT_TIMEOUT)
    return 0;
  fprintf(stderr, "%s: %s\n", text, mysql_error(connection));
  exit(1);
}

static void time_statement(MYSQL *connection, const char *text, int runs, double budget_us, FILE *answers)
{
  const double begin= now_us();
  double before= begin;
  for (int run= 0; run <= runs && before - begin < budget_us; run++)
  {
    if (!answered(connection, text, run ? NULL : answers))
      break;
    const double after= now_us();
    printf("%s%.0f", run ? " " : "", after - before);
    before= after;
  }
  printf("\n");
}

int main(int count, char **arguments)
{
  static char line[LONGEST];
  MYSQL *connection= mysql_init(NULL);
  FILE *answers= NULL;
  if (count < 4 || count > 5)
    return fprintf(stderr, "usage: %s SOCKET RUNS BUDGET_MS [ANSWERS]\n", arguments[0]), 2;
  if (count == 5 && !(answers= fopen(arguments[4], "w")))
    return perror(arguments[4]), 1;
  if (!mysql_real_connect(connection, NULL, "root", NULL, NULL, 0, arguments[1], 0))
    return fprintf(stderr, "connect: %s\n", mysql_error(connection)), 1;
  while (fgets(line, sizeof line, stdin))
  {
    line[strcspn(line, "\n")]= 0;
    if (!strncmp(line, "SET ", 4))
      answered(connection, line, NULL);
    else
      time_statement(connection, line, atoi(arguments[2]), atof(arguments[3]) * 1000, answers);
  }
  mysql_close(connection);
  if (answers && fclose(answers))
    return perror(arguments[4]), 1;
  return 0;
}
