/*
  Clients that write rows as fast as the server lets them, each in its own connection, autocommit on.

  Usage: insert_client SOCKET TABLE FORM KIND CLIENTS MILLISECONDS FIRST [ROWS [SERIES [STATEMENTS]]].

  FORM says which columns the table has and what is in them: sensor or statistic (see single_row.py), or poll: the columns
  of sensor, SERIES sensors of each client in turn at each step of time, two-decimal random walks, as one who polls devices
  writes them. KIND is insert, replace (of rows that are not there) or again (replaces the rows that an insert with the
  same FIRST wrote; not for poll). ROWS are written by each statement, 1 if not given (not for again). A client ends after
  MILLISECONDS, or after so many STATEMENTS. Prints "statements seconds mean_us p99_us". Plain text statements, as most
  programs send them.
*/
#include <limits.h>
#include <mariadb/mysql.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_CLIENTS= 1024, MAX_SAMPLES= 1 << 20, ROOM_OF_STATEMENT= 300, ROOM_OF_ROW= 200, STEP_S= 300 };

/* Values in a row of the form poll, in hundredths; walks stay between 0 and their end. */
enum { WALKS= 5, WALK_END= 20000 };

static const char *socket_path, *table, *form, *verb;
static int clients;
static unsigned first;
static unsigned rows_each= 1, series= 1000, most_statements= UINT_MAX;
static double seconds;
static int is_again;
static pthread_barrier_t start;

struct client
{
  pthread_t thread;
  unsigned number;
  unsigned statements;
  unsigned *samples_us;
  double elapsed;
  unsigned again; /* how often it goes over the rows that are there, counting this time */
  int *walks; /* WALKS of each series */
  unsigned random;
};

static double now(void)
{
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double) t.tv_sec + (double) t.tv_nsec / 1e9;
}

static char *put_number(char *to, unsigned number, int least_digits)
{
  char digits[10];
  int length= 0;
  do
    digits[length++]= (char) ('0' + number % 10);
  while ((number/= 10) || length < least_digits);
  while (length)
    *to++= digits[--length];
  return to;
}

/* A step near to normally distributed, of 30 hundredths: the sum of four uniform ones. */
static int step_of_walk(struct client *self)
{
  self->random^= self->random << 13;
  self->random^= self->random >> 17;
  self->random^= self->random << 5;
  int step= -104;
  for (unsigned bits= self->random; bits; bits>>= 8)
    step+= (int) ((bits & 255) * 53 >> 8);
  return step;
}

/* Sets up the values that the walks of a client begin with. */
static void begin_walks(struct client *self)
{
  self->random= 2463534242U + self->number;
  self->walks= malloc(sizeof(int) * WALKS * series);
  for (unsigned i= 0; i < WALKS * series; i++)
    self->walks[i]= (int) ((i + self->number) * 7919 % WALK_END);
}

/* The n-th row that a client reads from its series. */
static unsigned polled_row(char *text, struct client *self, unsigned n)
{
  char *to= text;
  *to++= '(';
  to= put_number(to, first + n / series * STEP_S, 1);
  *to++= ',';
  to= put_number(to, self->number * series + n % series + 1, 1);
  for (int *walk= self->walks + n % series * WALKS, *end= walk + WALKS; walk < end; walk++)
  {
    *walk+= step_of_walk(self);
    *walk= *walk < 0 ? -*walk : *walk >= WALK_END ? 2 * (WALK_END - 1) - *walk : *walk;
    *to++= ',';
    to= put_number(to, (unsigned) *walk / 100, 1);
    *to++= '.';
    to= put_number(to, (unsigned) *walk % 100, 2);
  }
  memcpy(to, ",1)", 3);
  return (unsigned) (to + 3 - text);
}

static unsigned value_list(char *text, struct client *self, unsigned n)
{
  const unsigned client= self->number;
  const unsigned ts= first + n * STEP_S;
  if (self->walks)
    return polled_row(text, self, n);
  const double value= (double) ((n + self->again) * 7919 % 10007) / 8.0;
  if (!strcmp(form, "sensor"))
    return (unsigned) sprintf(text, "(%u, %u, %g, %g, %g, %g, %g, %u)", ts, client + 1, value, value + 1, value + 2,
                              value + 3, value + 4, n);
  return (unsigned) sprintf(text, "(%u, %u, %u, %u, %g, %g, %g)", client + 1, ts, ts + 299, 300 + n % 3, value,
                            value - 1, value + 1);
}

/* The n-th statement of a client. */
static unsigned statement(char *text, struct client *self, unsigned n)
{
  const char *columns= !strcmp(form, "statistic") ? "(attribute_key, start_utime, end_utime, n, average, minimum, maximum) " : "";
  unsigned length= (unsigned) sprintf(text, "%s INTO %s %sVALUES ", verb, table, columns);
  for (unsigned i= 0; i < rows_each; i++)
  {
    if (i)
      text[length++]= ',';
    length+= value_list(text + length, self, n * rows_each + i);
  }
  return length;
}

static void fail(MYSQL *connection, const char *what)
{
  fprintf(stderr, "%s: %s\n", what, mysql_error(connection));
  exit(1);
}

static void *run(void *argument)
{
  struct client *self= argument;
  char *text= malloc(ROOM_OF_STATEMENT + ROOM_OF_ROW * (size_t) rows_each);
  MYSQL *connection= mysql_init(NULL);
  if (!mysql_real_connect(connection, NULL, "root", NULL, NULL, 0, socket_path, 0))
    fail(connection, "connect");
  self->samples_us= malloc(MAX_SAMPLES * sizeof(unsigned));
  unsigned rows= 0;
  if (is_again)
  {
    /* Only rows that are there: the insert did not write the same number in each connection. */
    snprintf(text, ROOM_OF_STATEMENT, "SELECT COUNT(*) FROM %s WHERE %s = %u", table,
             strcmp(form, "sensor") ? "attribute_key" : "sensor_id", self->number + 1);
    if (mysql_query(connection, text))
      fail(connection, text);
    MYSQL_RES *result= mysql_store_result(connection);
    rows= (unsigned) atoi(mysql_fetch_row(result)[0]);
    mysql_free_result(result);
  }
  if (!strcmp(form, "poll"))
    begin_walks(self);
  pthread_barrier_wait(&start);
  const double begin= now();
  double before= begin;
  while (before - begin < seconds && self->statements < most_statements)
  {
    const unsigned n= rows ? self->statements * 7919 % rows : self->statements;
    /* Other values each time: a row that is replaced by itself costs no commit. */
    self->again= rows ? self->statements / rows + 1 : 0;
    const unsigned length= statement(text, self, n);
    if (mysql_real_query(connection, text, length))
      fail(connection, text);
    const double after= now();
    if (self->statements < MAX_SAMPLES)
      self->samples_us[self->statements]= (unsigned) ((after - before) * 1e6);
    self->statements++;
    before= after;
  }
  self->elapsed= before - begin;
  mysql_close(connection);
  free(self->walks);
  free(text);
  return NULL;
}

static int ascending(const void *a, const void *b)
{
  const unsigned x= *(const unsigned *) a, y= *(const unsigned *) b;
  return x < y ? -1 : x > y;
}

int main(int count, char **arguments)
{
  static struct client all[MAX_CLIENTS];
  if (count < 8 || count > 11 || (clients= atoi(arguments[5])) < 1 || clients > MAX_CLIENTS)
    return fprintf(stderr, "usage: %s SOCKET TABLE FORM KIND CLIENTS MILLISECONDS FIRST [ROWS [SERIES [STATEMENTS]]]\n",
                   arguments[0]), 2;
  socket_path= arguments[1];
  table= arguments[2];
  form= arguments[3];
  is_again= !strcmp(arguments[4], "again");
  verb= strcmp(arguments[4], "insert") ? "REPLACE" : "INSERT";
  seconds= atof(arguments[6]) / 1000;
  first= (unsigned) atoi(arguments[7]);
  if (count > 8)
    rows_each= (unsigned) atoi(arguments[8]);
  if (count > 9)
    series= (unsigned) atoi(arguments[9]);
  if (count > 10)
    most_statements= (unsigned) atoi(arguments[10]);
  mysql_library_init(0, NULL, NULL);
  pthread_barrier_init(&start, NULL, (unsigned) clients);
  for (int i= 0; i < clients; i++)
  {
    all[i].number= (unsigned) i;
    pthread_create(&all[i].thread, NULL, run, &all[i]);
  }
  unsigned long statements= 0, samples= 0;
  double elapsed= 0;
  for (int i= 0; i < clients; i++)
  {
    pthread_join(all[i].thread, NULL);
    statements+= all[i].statements;
    if (elapsed < all[i].elapsed)
      elapsed= all[i].elapsed;
  }
  unsigned *sorted= malloc(statements * sizeof(unsigned) + 1);
  double total_us= 0;
  for (int i= 0; i < clients; i++)
    for (unsigned n= 0; n < all[i].statements && n < MAX_SAMPLES; n++)
      total_us+= sorted[samples++]= all[i].samples_us[n];
  qsort(sorted, samples, sizeof(unsigned), ascending);
  printf("%lu %.3f %.1f %u\n", statements, elapsed, total_us / (double) samples, sorted[samples * 99 / 100]);
  return 0;
}
