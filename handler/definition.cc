/*
  All that is known here of MariaDB's column types: how each lies in a record.

  Generated columns that are not stored have no place in the store, unless a key is made of them. BIT comes as bytes, since the engine does
  not claim HA_CAN_BIT_FIELD. UUID, INET4 and INET6 are fixed byte strings whose bytes in the record compare as
  the type does.
*/
#include "definition.h"

#include "collation.h"
#include "engine.h"
#include "options.h"

static_assert(sizeof(RrdText) == 16 && sizeof(RrdOption) == 32 && sizeof(RrdField) == 144 &&
              sizeof(RrdKeyPart) == 16 && sizeof(RrdIndex) == 40 && sizeof(RrdTableDefinition) == 80,
              "structs differ from the store's");

struct Layout
{
  bool known;
  RrdKind kind;
  bool is_signed;
  RrdTimeKind time;
  uint8_t length_bytes;
};

static Layout layout(RrdKind kind, RrdTimeKind time= RRD_TIME_NONE)
{
  return {true, kind, false, time, 0};
}

/* Temporal types of the format before MySQL 5.6: packed big-endian only if they have a fraction. */
static Layout old_temporal(const Field *field, RrdTimeKind time)
{
  return layout(field->decimals() ? RRD_KIND_BIG_ENDIAN : RRD_KIND_INTEGER, time);
}

static Layout layout_of(const Field *field)
{
  switch (field->real_type())
  {
  case MYSQL_TYPE_TINY:
  case MYSQL_TYPE_SHORT:
  case MYSQL_TYPE_INT24:
  case MYSQL_TYPE_LONG:
  case MYSQL_TYPE_LONGLONG:
    return {true, RRD_KIND_INTEGER, !(field->flags & UNSIGNED_FLAG), RRD_TIME_INTEGER, 0};
  case MYSQL_TYPE_YEAR:
  case MYSQL_TYPE_DATE:
  case MYSQL_TYPE_NEWDATE:
  case MYSQL_TYPE_ENUM:
  case MYSQL_TYPE_SET:
    return layout(RRD_KIND_INTEGER);
  case MYSQL_TYPE_TIME:
    return {true, old_temporal(field, RRD_TIME_NONE).kind, field->decimals() == 0, RRD_TIME_NONE, 0};
  case MYSQL_TYPE_TIMESTAMP:
  case MYSQL_TYPE_DATETIME:
    return old_temporal(field, RRD_TIME_OLD_FORMAT);
  case MYSQL_TYPE_TIMESTAMP2:
    return layout(RRD_KIND_BIG_ENDIAN, RRD_TIME_TIMESTAMP);
  case MYSQL_TYPE_DATETIME2:
    return layout(RRD_KIND_BIG_ENDIAN, RRD_TIME_DATETIME);
  case MYSQL_TYPE_TIME2:
  case MYSQL_TYPE_NEWDECIMAL:
  case MYSQL_TYPE_BIT:
    return layout(RRD_KIND_BIG_ENDIAN);
  case MYSQL_TYPE_FLOAT:
    return layout(RRD_KIND_FLOAT);
  case MYSQL_TYPE_DOUBLE:
    return layout(RRD_KIND_DOUBLE);
  case MYSQL_TYPE_STRING:
    return layout(RRD_KIND_FIXED_TEXT);
  case MYSQL_TYPE_VARCHAR:
  case MYSQL_TYPE_VARCHAR_COMPRESSED:
    return {true, RRD_KIND_VAR_TEXT, false, RRD_TIME_NONE,
            (uint8_t) static_cast<const Field_varstring *>(field)->length_bytes};
  case MYSQL_TYPE_TINY_BLOB:
  case MYSQL_TYPE_MEDIUM_BLOB:
  case MYSQL_TYPE_LONG_BLOB:
  case MYSQL_TYPE_BLOB:
  case MYSQL_TYPE_BLOB_COMPRESSED:
  case MYSQL_TYPE_GEOMETRY:
    return {true, RRD_KIND_BLOB, false, RRD_TIME_NONE,
            (uint8_t) static_cast<const Field_blob *>(field)->pack_length_no_ptr()};
  default:
    return {};
  }
}

bool rrd_is_stored(const Field *field)
{
  return field->stored_in_db() || field->flags & PART_KEY_FLAG || !field->part_of_key_not_clustered.is_clear_all();
}

bool rrd_is_read_from_index(const KEY_PART_INFO *part)
{
  const Layout layout= layout_of(part->field);
  return layout.known && (layout.kind == RRD_KIND_INTEGER || layout.kind == RRD_KIND_BIG_ENDIAN) &&
    !(part->key_part_flag & (HA_PART_KEY_SEG | HA_REVERSE_SORT));
}

/* As SHOW CREATE TABLE has it, with the character set always. */
static std::string sql_type(const Field *field)
{
  StringBuffer<MAX_FIELD_WIDTH> type(system_charset_info);
  field->sql_type(type);
  std::string text(type.ptr(), type.length());
  if (field->has_charset())
    text+= std::string(" CHARACTER SET ") + field->charset()->cs_name.str + " COLLATE " +
      field->charset()->coll_name.str;
  return text;
}

Rrd_definition::Rrd_definition(const TABLE *table, ulonglong max_rows)
  : m_options(rrd_options_of(table->s)), m_record_bytes(table->s->reclength),
    m_default_record(table->s->default_values)
{
  for (Field **field= table->field; *field; field++)
    if (rrd_is_stored(*field))
      add_field(table, *field);
  for (uint i= 0; i < table->s->keys; i++)
    if (i == table->s->primary_key)
      m_key_parts= key_parts(table->key_info + i);
    else
      add_index(table->key_info + i);
  if (max_rows)
  {
    m_max_rows= std::to_string(max_rows);
    m_options.push_back({rrd_text("MAX_ROWS"), rrd_text(m_max_rows)});
  }
}

void Rrd_definition::add_field(const TABLE *table, const Field *field)
{
  const Layout layout= layout_of(field);
  if (!layout.known)
  {
    m_refused= field;
    return;
  }
  RrdField raw= {};
  raw.name= rrd_text(field->field_name.str, field->field_name.length);
  raw.number= field->field_index;
  raw.offset= (uint32_t) (field->ptr - table->record[0]);
  raw.null_offset= field->null_ptr ? (uint32_t) (field->null_ptr - table->record[0]) : 0;
  raw.null_mask= field->null_ptr ? field->null_bit : 0;
  raw.pack_length= field->pack_length();
  raw.kind= layout.kind;
  raw.length_bytes= layout.length_bytes;
  raw.is_signed= layout.is_signed;
  raw.time_kind= layout.time;
  raw.fraction_digits= layout.time != RRD_TIME_INTEGER ? (uint8_t) MY_MIN(field->decimals(), 6U) : 0;
  if (field->real_type() == MYSQL_TYPE_NEWDECIMAL)
  {
    raw.fraction_digits= (uint8_t) field->decimals();
    raw.decimal_precision= (uint8_t) static_cast<const Field_new_decimal *>(field)->precision;
  }
  raw.is_auto_increment= field == table->found_next_number_field;
  /* Numbers have a character set too, for their digits; it says nothing about their bytes. */
  const bool is_text= layout.kind >= RRD_KIND_FIXED_TEXT;
  raw.collation= rrd_collation(field->charset(), is_text ? field->sort_charset() : &my_charset_bin);
  m_fields.push_back(raw);
  m_field_options.push_back(rrd_options_of(field));
  m_types.push_back(sql_type(field));
}

std::vector<RrdKeyPart> Rrd_definition::key_parts(const KEY *key) const
{
  std::vector<RrdKeyPart> parts;
  for (uint i= 0; i < key->user_defined_key_parts; i++)
  {
    const KEY_PART_INFO *part= key->key_part + i;
    RrdKeyPart raw= {};
    raw.field= UINT_MAX32;
    for (size_t f= 0; f < m_fields.size(); f++)
      if (m_fields[f].number == part->field->field_index)
        raw.field= (uint32_t) f;
    raw.length= part->length;
    raw.max_chars= part->length / part->field->charset()->mbmaxlen;
    raw.is_prefix= (part->key_part_flag & HA_PART_KEY_SEG) != 0;
    raw.has_null_byte= part->null_bit != 0;
    raw.is_variable= (part->key_part_flag & (HA_BLOB_PART | HA_VAR_LENGTH_PART)) != 0;
    raw.is_descending= (part->key_part_flag & HA_REVERSE_SORT) != 0;
    parts.push_back(raw);
  }
  return parts;
}

void Rrd_definition::add_index(const KEY *key)
{
  RrdIndex raw= {};
  raw.name= rrd_text(key->name.str, key->name.length);
  raw.is_unique= (key->flags & HA_NOSAME) != 0;
  m_indexes.push_back(raw);
  m_index_parts.push_back(key_parts(key));
}

RrdTableDefinition Rrd_definition::raw() const
{
  auto &fields= const_cast<std::vector<RrdField> &>(m_fields);
  for (size_t i= 0; i < fields.size(); i++)
  {
    fields[i].sql_type= rrd_text(m_types[i]);
    fields[i].options= m_field_options[i].data();
    fields[i].option_count= m_field_options[i].size();
  }
  auto &indexes= const_cast<std::vector<RrdIndex> &>(m_indexes);
  for (size_t i= 0; i < indexes.size(); i++)
  {
    indexes[i].parts= m_index_parts[i].data();
    indexes[i].part_count= m_index_parts[i].size();
  }
  return {m_fields.data(), m_fields.size(), m_key_parts.data(), m_key_parts.size(), m_indexes.data(),
          m_indexes.size(), m_record_bytes, m_default_record,
          m_options.data(), m_options.size()};
}

std::vector<uint32_t> Rrd_definition::numbers() const
{
  std::vector<uint32_t> numbers;
  for (const RrdField &field : m_fields)
    numbers.push_back(field.number);
  return numbers;
}
