/*
  Spans of columns on which an expression does not change; see spans.h.

  Local time is taken apart by the server. What counts here is that the clock of a time zone shows no other hour, say,
  within a span: where it is always as far from UTC, spans are as long as what is asked for, elsewhere five minutes, which
  divide all distances from UTC that clocks have had since 1972.
*/
#include "spans.h"

#include <cstring>

#include "comparison.h"
#include "functions.h"

static const longlong second= 1, minute= 60, hour= 3600, day= 86400;
/* Behind all distances from UTC. */
static const longlong clock_step= 300;

/* Of a packed date: hour, minute and second have 5, 6 and 6 bits. */
static const uint second_bits= 6, minute_bits= 6, hour_bits= 5;

/* Of numbers compared with texts or dates the server warns, row by row. */
static bool compares_numbers_with_others(const Item_func *function)
{
  bool has_number= false, has_other= false;
  for (uint i= 0; i < function->argument_count(); i++)
  {
    const Item_result type= function->arguments()[i]->cmp_type();
    const bool is_number= type != STRING_RESULT && type != TIME_RESULT;
    has_number|= is_number;
    has_other|= !is_number;
  }
  return has_number && has_other;
}

static bool is_condition(const Item_func *function)
{
  switch (function->functype())
  {
  case Item_func::ISNULL_FUNC:
  case Item_func::ISNOTNULL_FUNC:
  case Item_func::NOT_FUNC:
  case Item_func::EQ_FUNC:
  case Item_func::EQUAL_FUNC:
  case Item_func::NE_FUNC:
  case Item_func::LT_FUNC:
  case Item_func::LE_FUNC:
  case Item_func::GT_FUNC:
  case Item_func::GE_FUNC:
  case Item_func::LIKE_FUNC:
  case Item_func::BETWEEN:
  case Item_func::IN_FUNC:
    return true;
  default:
    return false;
  }
}

/* Functions that make numbers of texts, and may warn of it. */
static bool makes_numbers_of_texts(const Item_func *function)
{
  static const char *quiet[]= {"length", "char_length", "concat", "concat_ws", "upper", "lower", "ucase", "lcase", "left",
                               "right", "substr", "trim", "cast_as_char"};
  for (const char *name : quiet)
    if (!my_strcasecmp(system_charset_info, function->func_name(), name))
      return false;
  bool has_text= false;
  for (uint i= 0; i < function->argument_count() && !is_condition(function); i++)
    has_text|= function->arguments()[i]->cmp_type() == STRING_RESULT && !function->arguments()[i]->const_item();
  return has_text;
}

bool rrd_is_plain_function(const Item_func *function)
{
  static const char *names[]= {
    "+", "-", "*", "/", "DIV", "MOD", "floor", "ceiling", "round", "truncate", "abs", "cast_as_signed",
    "cast_as_unsigned", "unix_timestamp", "from_unixtime", "time_bucket", "date_format", "concat", "if", "ifnull",
    "coalesce", "nullif", "case", "year", "month", "dayofmonth", "hour", "minute", "second", "cast_as_date",
    "cast_as_datetime", "cast_as_char", "cast_as_double", "decimal_typecast", "double_typecast", "date", "upper", "lower",
    "ucase", "lcase", "quarter", "week", "yearweek", "weekday", "dayofweek", "dayofyear", "dayname", "monthname",
    "last_day", "to_days", "left", "right", "substr", "length", "char_length", "trim", "concat_ws"};
  switch (function->functype())
  {
  case Item_func::FUNC_SP:
  case Item_func::UDF_FUNC:
    return false;
  case Item_func::ISNULL_FUNC:
  case Item_func::ISNOTNULL_FUNC:
  case Item_func::NOT_FUNC:
    return true;
  default:
    break;
  }
  if (is_condition(function))
    return !compares_numbers_with_others(function);
  for (const char *name : names)
    if (!my_strcasecmp(system_charset_info, function->func_name(), name))
      return true;
  return false;
}

bool rrd_is_groupable(THD *thd, const Field *field)
{
  switch (field->real_type())
  {
  case MYSQL_TYPE_NEWDECIMAL:
  case MYSQL_TYPE_NEWDATE:
  case MYSQL_TYPE_DATETIME2:
  case MYSQL_TYPE_TIMESTAMP2:
  case MYSQL_TYPE_TIME2:
  case MYSQL_TYPE_ENUM:
    return true;
  case MYSQL_TYPE_YEAR:
    return field->field_length == 4;
  case MYSQL_TYPE_STRING:
  case MYSQL_TYPE_VARCHAR:
    return rrd_is_plain_text(field) && field->field_length <= thd->variables.max_sort_length;
  default:
    return rrd_is_integer(field);
  }
}

bool rrd_group_of_steps(const Rrd_steps &steps, RrdGroup *group)
{
  /* A TIMESTAMP is its seconds with some bytes for the rest behind them. */
  const Rrd_wide unit= rrd_is_integer(steps.field) ? 1 : Rrd_wide(1) << (8 * (steps.field->pack_length() - 4));
  const Rrd_wide origin= steps.origin * unit, width= steps.width * unit;
  if (width > LONGLONG_MAX || origin > LONGLONG_MAX || origin < LONGLONG_MIN)
    return false;
  *group= {};
  group->field= steps.field->field_index;
  group->kind= width == 1 ? RRD_GROUP_VALUE : steps.towards_zero ? RRD_GROUP_TOWARDS_ZERO : RRD_GROUP_BUCKET;
  group->origin= static_cast<longlong>(origin);
  group->width= static_cast<ulonglong>(width);
  return true;
}

/* How far a time zone is always from UTC; false if that changes, or is not known. */
static bool fixed_offset(const Time_zone *zone, longlong *offset)
{
  const char *name= zone->get_name()->ptr();
  const bool is_system_utc= zone == my_tz_SYSTEM && !strcmp(system_time_zone, "UTC");
  if (!is_system_utc && *name != '+' && *name != '-' && strcmp(name, "UTC"))
    return false;
  *offset= rrd_offset_of(zone, 0);
  return true;
}

/* Whether distances from UTC are multiples of `clock_step`, without leap seconds. */
static bool has_plain_offsets(const Time_zone *zone)
{
  for (const my_time_t at : {0, 500000000, 1000000000, 1500000000, 2000000000})
    if (rrd_offset_of(zone, at) % clock_step)
      return false;
  return true;
}

class Spans_finder
{
public:
  Spans_finder(THD *thd, const TABLE *table, const Rrd_known_bounds &known, std::vector<RrdGroup> *groups)
    : m_thd(thd), m_table(table), m_known(known), m_groups(groups)
  {
  }

  bool find(Item *item);

private:
  bool find_function(Item_func *function);
  bool find_time(Item *time, longlong unit);
  bool find_timestamp(Field *field, longlong unit, bool is_local);
  bool find_datetime(const Field *field, longlong unit);
  bool find_from_unixtime(Item_func *function, longlong unit, bool is_local);
  bool find_epoch_steps(Item_func *function);
  bool find_time_bucket(Item_func *function);
  bool find_value(const Field *field);
  bool span_of_clock(longlong unit, bool is_local, longlong *offset, longlong *width) const;
  bool push(Field *field, Rrd_wide origin, Rrd_wide width);
  bool push(const RrdGroup &group);

  THD *m_thd;
  const TABLE *m_table;
  const Rrd_known_bounds &m_known;
  std::vector<RrdGroup> *m_groups;
};

bool Spans_finder::push(const RrdGroup &group)
{
  for (const RrdGroup &known : *m_groups)
    if (known.field == group.field && known.kind == group.kind && known.origin == group.origin &&
        known.width == group.width)
      return true;
  m_groups->push_back(group);
  m_groups->back().is_span= true;
  return true;
}

/* Of a field's integers, or a TIMESTAMP's seconds. */
bool Spans_finder::push(Field *field, Rrd_wide origin, Rrd_wide width)
{
  const Rrd_steps steps= {field, origin, width, 1, 0, false, false};
  RrdGroup group;
  return rrd_group_of_steps(steps, &group) && push(group);
}

/* Fields that have few values: types with few of them, and what a series is named by. */
bool Spans_finder::find_value(const Field *field)
{
  bool has_few= field->real_type() == MYSQL_TYPE_ENUM || field->real_type() == MYSQL_TYPE_YEAR ||
    field->real_type() == MYSQL_TYPE_NEWDATE || field->real_type() == MYSQL_TYPE_TINY;
  if (m_table->s->primary_key != MAX_KEY)
  {
    const KEY *key= m_table->key_info + m_table->s->primary_key;
    for (uint i= 0; i + 1 < key->user_defined_key_parts; i++)
      has_few|= key->key_part[i].field->field_index == field->field_index;
  }
  RrdGroup group= {};
  group.field= field->field_index;
  for (const RrdGroup &known : *m_groups)
    has_few|= known.field == group.field && known.kind == RRD_GROUP_VALUE;
  return has_few && rrd_is_groupable(m_thd, field) && push(group);
}

/* How long the clock shows no other `unit`, and how far it is from UTC. */
bool Spans_finder::span_of_clock(longlong unit, bool is_local, longlong *offset, longlong *width) const
{
  *offset= 0;
  *width= unit;
  if (!is_local || fixed_offset(m_thd->variables.time_zone, offset))
    return true;
  if (unit % clock_step && clock_step % unit)
    return false;
  *width= MY_MIN(unit, clock_step);
  return has_plain_offsets(m_thd->variables.time_zone);
}

bool Spans_finder::find_timestamp(Field *field, longlong unit, bool is_local)
{
  longlong offset, width;
  if (!span_of_clock(unit, is_local, &offset, &width))
    return false;
  /* A TIMESTAMP of zeros is none of the day 1970-01-01. */
  return (m_known.bounds_of(field).low > 0 || push(field, 1, Rrd_wide(1) << 33)) && push(field, -offset, width);
}

bool Spans_finder::find_datetime(const Field *field, longlong unit)
{
  const uint bits= unit % day == 0 ? second_bits + minute_bits + hour_bits
                   : unit % hour == 0 ? second_bits + minute_bits
                   : unit % minute == 0 ? second_bits
                                        : 0;
  RrdGroup group= {};
  group.field= field->field_index;
  group.kind= RRD_GROUP_BUCKET;
  group.width= 1ULL << (bits + 8 * (field->pack_length() - 5));
  if (group.width == 1)
    group.kind= RRD_GROUP_VALUE;
  return push(group);
}

/* FROM_UNIXTIME(n), also of n / 1000. */
bool Spans_finder::find_from_unixtime(Item_func *function, longlong unit, bool is_local)
{
  if (function->argument_count() != 1)
    return false;
  Item *seconds= function->arguments()[0]->real_item();
  longlong divisor= 1, offset, width;
  bool is_cut= false;
  if (rrd_is_division(seconds))
  {
    Item **arguments= static_cast<Item_func *>(seconds)->arguments();
    if (!arguments[1]->const_item() || arguments[1]->cmp_type() != INT_RESULT ||
        arguments[0]->cmp_type() != INT_RESULT)
      return false;
    divisor= arguments[1]->val_int();
    if (divisor < 1 || divisor > 1000000000 || 1000000000 % divisor)
      return false;
    is_cut= static_cast<Item_func_div *>(seconds)->prec_increment == 0;
    seconds= arguments[0]->real_item();
  }
  Rrd_steps steps;
  if (!rrd_find_steps(m_thd, seconds, m_table, m_known, &steps) || steps.has_fraction)
    return false;
  RrdGroup group;
  if (!steps.is_column() || !rrd_is_integer(steps.field))
    return rrd_group_of_steps(steps, &group) && push(group);
  if (!span_of_clock(unit, is_local, &offset, &width))
    return false;
  /* What comes before or behind all TIMESTAMPs gives NULL. */
  const Rrd_wide behind= (Rrd_wide(TIMESTAMP_MAX_VALUE) + 1) * divisor;
  const Rrd_bounds bounds= m_known.bounds_of(steps.field);
  /* Without decimals what is less than a second before the first TIMESTAMP is cut to it. */
  if (is_cut && bounds.low < 0)
    return false;
  return ((bounds.low >= 0 && bounds.high < behind) || push(steps.field, 0, behind)) &&
    push(steps.field, -offset * Rrd_wide(divisor), width * Rrd_wide(divisor));
}

/* What a function of time that changes with `unit` at most makes of a time. */
bool Spans_finder::find_time(Item *time, longlong unit)
{
  Item *real= time->real_item();
  if (Field *field= rrd_field_of(real, m_table))
    switch (field->real_type())
    {
    case MYSQL_TYPE_TIMESTAMP2:
      return find_timestamp(field, unit, true);
    case MYSQL_TYPE_DATETIME2:
      return find_datetime(field, unit);
    case MYSQL_TYPE_NEWDATE:
      return find_value(field);
    default:
      return false;
    }
  if (real->type() != Item::FUNC_ITEM)
    return false;
  Item_func *function= static_cast<Item_func *>(real);
  return strcmp(function->func_name(), "from_unixtime") ? find(real) : find_from_unixtime(function, unit, true);
}

/* What of a time changes a text that DATE_FORMAT() makes of it; 0: parts of seconds, or not known. */
static longlong unit_of_format(Item *format)
{
  StringBuffer<64> buffer;
  const String *text= format->const_item() && !format->with_subquery() ? format->val_str(&buffer) : nullptr;
  if (!text || text->charset()->mbminlen > 1)
    return 0;
  longlong unit= day;
  for (uint i= 0; i + 1 < text->length(); i++)
  {
    if ((*text)[i] != '%')
      continue;
    const char letter= (*text)[++i];
    if (strchr("HhIklp", letter))
      unit= MY_MIN(unit, hour);
    else if (letter == 'i')
      unit= MY_MIN(unit, minute);
    else if (strchr("sSTr", letter))
      unit= second;
    else if (!strchr("YymcdejabMWwDUuVvXx%", letter))
      return 0;
  }
  return unit;
}

/* What of a time changes a function of it; 0: not known. */
static longlong unit_of_function(Item_func *function)
{
  static const struct { const char *name; longlong unit; } known[]= {
    {"year", day}, {"month", day}, {"monthname", day}, {"dayofmonth", day}, {"dayofyear", day}, {"quarter", day},
    {"week", day}, {"yearweek", day}, {"weekday", day}, {"dayofweek", day}, {"dayname", day}, {"last_day", day},
    {"to_days", day}, {"cast_as_date", day}, {"hour", hour}, {"minute", minute}, {"second", second}};
  const char *name= function->func_name();
  if (!strcmp(name, "date_format"))
    return function->argument_count() == 2 ? unit_of_format(function->arguments()[1]) : 0;
  for (const auto &of : known)
    if (!strcmp(name, of.name))
      return of.unit;
  return 0;
}

static Rrd_wide greatest_divisor(Rrd_wide a, Rrd_wide b) { return b ? greatest_divisor(b, a % b) : a < 0 ? -a : a; }

bool Spans_finder::find_time_bucket(Item_func *function)
{
  RrdBucket bucket;
  if (rrd_time_bucket_of(m_thd, function, &bucket))
    return false;
  Rrd_wide unit= bucket.months ? Rrd_wide(day) * bucket.per_second : Rrd_wide(bucket.length);
  unit= greatest_divisor(unit, bucket.offset);
  if (unit % bucket.per_second || unit / bucket.per_second > LONGLONG_MAX)
    return false;
  unit/= bucket.per_second;
  Item *time= function->arguments()[1];
  Field *field= rrd_field_of(time, m_table);
  if (!field)
    return false;
  /* Of a TIMESTAMP the server warns of a bucket that begins before there are any. */
  const Rrd_wide length= bucket.months ? Rrd_wide(bucket.months) * 31 * day : bucket.length / bucket.per_second;
  if (field->real_type() == MYSQL_TYPE_TIMESTAMP2)
    return m_known.bounds_of(field).low > length + day && find_timestamp(field, longlong(unit), false);
  if (field->real_type() == MYSQL_TYPE_DATETIME2)
    return find_datetime(field, longlong(unit));
  if (field->real_type() == MYSQL_TYPE_NEWDATE)
    return find_value(field);
  const Rrd_bounds bounds= m_known.bounds_of(field);
  return rrd_is_integer(field) && bounds.low >= 0 && bounds.high <= LONGLONG_MAX && push(field, 0, unit);
}

static bool is_epoch_of_datetime(Item *item, const TABLE *table)
{
  Item *real= item->real_item();
  if (real->type() != Item::FUNC_ITEM || strcmp(static_cast<Item_func *>(real)->func_name(), "unix_timestamp") ||
      static_cast<Item_func *>(real)->argument_count() != 1)
    return false;
  const Field *field= rrd_field_of(static_cast<Item_func *>(real)->arguments()[0], table);
  return field && field->real_type() == MYSQL_TYPE_DATETIME2;
}

/* UNIX_TIMESTAMP(datetime) DIV n, and FLOOR() of / n, and what MOD n leaves of it. */
bool Spans_finder::find_epoch_steps(Item_func *function)
{
  const char *name= function->func_name();
  Item **arguments= function->arguments();
  if (!strcmp(name, "floor"))
  {
    if (!rrd_is_division(arguments[0]))
      return false;
    arguments= static_cast<Item_func *>(arguments[0]->real_item())->arguments();
  }
  else if (!strcmp(name, "-") && function->argument_count() == 2)
  {
    Item *real= arguments[1]->real_item();
    if (real->type() != Item::FUNC_ITEM || strcmp(static_cast<Item_func *>(real)->func_name(), "MOD") ||
        !arguments[0]->eq(static_cast<Item_func *>(real)->arguments()[0], false))
      return false;
    arguments= static_cast<Item_func *>(real)->arguments();
  }
  else if (strcmp(name, "DIV"))
    return false;
  if (!is_epoch_of_datetime(arguments[0], m_table) || !arguments[1]->const_item() ||
      arguments[1]->cmp_type() != INT_RESULT || arguments[1]->with_subquery())
    return false;
  const longlong steps= arguments[1]->val_int();
  if (arguments[1]->null_value || steps < 1)
    return false;
  longlong offset;
  const Time_zone *zone= m_thd->variables.time_zone;
  Rrd_wide unit= steps;
  if (fixed_offset(zone, &offset))
    unit= greatest_divisor(steps, offset);
  else if (has_plain_offsets(zone))
    unit= greatest_divisor(steps, clock_step);
  else
    return false;
  const Item_func *epoch= static_cast<Item_func *>(arguments[0]->real_item());
  return find_datetime(rrd_field_of(epoch->arguments()[0], m_table), longlong(unit));
}

bool Spans_finder::find_function(Item_func *function)
{
  if (!rrd_is_plain_function(function) || makes_numbers_of_texts(function))
    return false;
  if (const longlong unit= unit_of_function(function))
  {
    for (uint i= 1; i < function->argument_count(); i++)
      if (!function->arguments()[i]->const_item())
        return false;
    const size_t groups= m_groups->size();
    if (find_time(function->arguments()[0], unit))
      return true;
    m_groups->resize(groups);
  }
  if (!strcmp(function->func_name(), "from_unixtime"))
    return find_from_unixtime(function, second, true);
  if (!strcmp(function->func_name(), "time_bucket"))
    return find_time_bucket(function);
  if (find_epoch_steps(function))
    return true;
  for (uint i= 0; i < function->argument_count(); i++)
    if (!find(function->arguments()[i]))
      return false;
  return true;
}

bool Spans_finder::find(Item *item)
{
  if (item->used_tables() & RAND_TABLE_BIT || item->with_subquery() || item->with_window_func() ||
      item->with_rownum_func() || item->with_sum_func() || item->used_tables() & OUTER_REF_TABLE_BIT)
    return false;
  if (item->const_item())
    return true;
  Rrd_steps steps;
  RrdGroup group;
  if (rrd_find_steps(m_thd, item, m_table, m_known, &steps) && !steps.has_fraction && !steps.is_column())
    return rrd_group_of_steps(steps, &group) && push(group);
  if (const Field *field= rrd_field_of(item, m_table))
    return find_value(field);
  Item *real= item->real_item();
  if (real->type() == Item::COND_ITEM)
  {
    List_iterator<Item> each(*static_cast<Item_cond *>(real)->argument_list());
    while (Item *part= each++)
      if (!find(part))
        return false;
    return true;
  }
  return real->type() == Item::FUNC_ITEM && find_function(static_cast<Item_func *>(real));
}

bool rrd_find_spans(THD *thd, Item *item, const TABLE *table, const Rrd_known_bounds &known, std::vector<RrdGroup> *groups)
{
  const size_t before= groups->size();
  if (Spans_finder(thd, table, known, groups).find(item))
    return true;
  groups->resize(before);
  return false;
}
