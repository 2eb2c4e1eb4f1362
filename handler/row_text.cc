/*
  Items that stand for columns of the select list and send several of them with one call: see row_text.h. The first of a run
  sends them all and the others nothing, as long as the client gets text in which a number looks as in ASCII. For all else,
  such as the binary protocol, each is the column that it stands for.
*/
#include "row_text.h"

#include <vector>

#include "rrd.h"
#include "sql_select.h"
#include "steps.h"

static_assert(sizeof(RrdTextColumn) == 24, "struct differs from the store's");

static bool is_plain_text(const THD *thd, Protocol *protocol)
{
  const CHARSET_INFO *results= thd->variables.character_set_results;
  return protocol->type() == Protocol::PROTOCOL_TEXT && !(results && (results->state & MY_CS_NONASCII));
}

/* A column of a run. */
class Item_of_run : public Item_field
{
public:
  Item_of_run(THD *thd, Item_field *item) : Item_field(thd, item), m_thd(thd) { base_flags|= item_base_t::FIXED; }
  bool send(Protocol *protocol, st_value *buffer) override
  {
    return !is_plain_text(m_thd, protocol) && Item_field::send(protocol, buffer);
  }

protected:
  const THD *m_thd;
};

/* The first one. */
class Item_run final : public Item_of_run
{
public:
  Item_run(THD *thd, Item_field *item, const RrdTextColumn *columns, Field **fields, uint count)
    : Item_of_run(thd, item), m_columns(columns), m_fields(fields), m_count(count)
  {
  }
  bool send(Protocol *protocol, st_value *buffer) override
  {
    if (!is_plain_text(m_thd, protocol))
      return Item_field::send(protocol, buffer);
    String *packet= protocol->storage_packet();
    const size_t room= m_count * RRD_TEXT_BYTES;
    if (packet->reserve(room, packet->length()))
      return true;
    uint8_t *end= reinterpret_cast<uint8_t *>(const_cast<char *>(packet->end()));
    const size_t length= rrd_row_text(m_columns, m_count, end, room);
    packet->length(packet->length() + static_cast<uint32>(length));
    bool failed= false;
    for (uint i= 0; !length && !failed && i < m_count; i++)
      failed= protocol->store(m_fields[i]);
    return failed;
  }

private:
  const RrdTextColumn *m_columns;
  Field **m_fields;
  uint m_count;
};

static bool is_number(const Field *field)
{
  if (field->flags & ZEROFILL_FLAG)
    return false;
  return rrd_is_integer(field) ||
    (field->type() == MYSQL_TYPE_DOUBLE && field->decimals() >= FLOATING_POINT_DECIMALS);
}

static RrdTextColumn column_of(const Field *field)
{
  RrdTextColumn column= {};
  column.value= field->ptr;
  column.null_byte= field->null_ptr;
  column.null_bit= field->null_bit;
  column.kind= rrd_is_integer(field) ? RRD_KIND_INTEGER : RRD_KIND_DOUBLE;
  column.is_signed= !(field->flags & UNSIGNED_FLAG);
  column.pack_length= static_cast<uint8_t>(field->pack_length());
  return column;
}

/* Puts items in the places of a run of columns. */
static bool put_run(THD *thd, const std::vector<Item **> &run)
{
  RrdTextColumn *columns= static_cast<RrdTextColumn *>(thd->alloc(run.size() * sizeof *columns));
  Field **fields= static_cast<Field **>(thd->alloc(run.size() * sizeof *fields));
  if (!columns || !fields)
    return true;
  for (size_t i= run.size(); i-- > 0;)
  {
    Item_field *of= static_cast<Item_field *>(*run[i]);
    columns[i]= column_of(of->field);
    fields[i]= of->field;
    Item *item;
    if (i)
      item= new (thd->mem_root) Item_of_run(thd, of);
    else
      item= new (thd->mem_root) Item_run(thd, of, columns, fields, static_cast<uint>(run.size()));
    if (!item)
      return true;
    thd->change_item_tree(run[i], item);
  }
  return false;
}

bool rrd_send_numbers(THD *thd, JOIN *join)
{
  if (join->need_tmp || join->group || join->tmp_table_param.sum_func_count)
    return false;
  std::vector<Item **> run;
  List_iterator<Item> items(join->fields_list);
  for (Item *item= items++; item; item= items++)
  {
    if (item->type() == Item::FIELD_ITEM && is_number(static_cast<Item_field *>(item)->field))
      run.push_back(items.ref());
    else if (!run.empty() && put_run(thd, run))
      return true;
    else
      run.clear();
  }
  return !run.empty() && put_run(thd, run);
}
