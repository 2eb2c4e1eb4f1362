/*
  Every option is declared as text, since the server's number options read '10G' as 10 without a word.
*/
#include "options.h"

#include "engine.h"

ha_create_table_option rrd_table_options[]=
{
  HA_TOPTION_STRING("RETENTION", retention),
  HA_TOPTION_STRING("SERIES_MAX_ROWS", series_max_rows),
  HA_TOPTION_STRING("MAX_BYTES", max_bytes),
  HA_TOPTION_STRING("STEP", step),
  HA_TOPTION_STRING("ROLLUP", rollup),
  HA_TOPTION_STRING("TIERS", tiers),
  HA_TOPTION_STRING("XFF", xff),
  HA_TOPTION_STRING("TIME_COLUMN", time_column),
  HA_TOPTION_STRING("TIME_UNIT", time_unit),
  HA_TOPTION_STRING("CHUNK", chunk),
  HA_TOPTION_STRING("COMPRESSION", compression),
  HA_TOPTION_END
};

ha_create_table_option rrd_field_options[]=
{
  HA_FOPTION_STRING("DST", dst),
  HA_FOPTION_STRING("HEARTBEAT", heartbeat),
  HA_FOPTION_STRING("DS_MIN", ds_min),
  HA_FOPTION_STRING("DS_MAX", ds_max),
  HA_FOPTION_END
};

/* The values lie in `values` as the list of declarations says. */
static std::vector<RrdOption> collect(const ha_create_table_option *declared, const void *values)
{
  std::vector<RrdOption> options;
  if (!values)
    return options;
  for (; declared->name; declared++)
  {
    const char *at= static_cast<const char *>(values) + declared->offset;
    const char *value= *reinterpret_cast<const char *const *>(at);
    if (value)
      options.push_back({rrd_text(declared->name, declared->name_length), rrd_text(value)});
  }
  return options;
}

std::vector<RrdOption> rrd_options_of(const TABLE_SHARE *share)
{
  return collect(rrd_table_options, share->option_struct);
}

std::vector<RrdOption> rrd_options_of(const Field *field)
{
  return collect(rrd_field_options, field->option_struct);
}

static bool is_same(RrdText a, RrdText b)
{
  return a.length == b.length && !strncasecmp(a.data, b.data, a.length);
}

/* What `a` has and `b` has not, or otherwise. */
static const char *missing_option(const std::vector<RrdOption> &a, const std::vector<RrdOption> &b)
{
  for (const RrdOption &option : a)
  {
    bool is_found= false;
    for (const RrdOption &other : b)
      is_found|= is_same(option.name, other.name) && is_same(option.value, other.value);
    if (!is_found)
      return option.name.data;
  }
  return nullptr;
}

const char *rrd_different_option(const std::vector<RrdOption> &a, const std::vector<RrdOption> &b)
{
  const char *name= missing_option(a, b);
  return name ? name : missing_option(b, a);
}
