/*
  Sorts rows of a result by any ORDER BY; see sort_keys.h.
*/
#include "sort_keys.h"

#include <algorithm>
#include <numeric>

Rrd_sort_keys::Rrd_sort_keys(THD *thd, const ORDER *order)
{
  for (; order; order= order->next)
    if (!(*order->item)->const_item())
      add_part(thd, order->item, *order->item, order->direction == ORDER::ORDER_DESC);
}

Rrd_sort_keys::Rrd_sort_keys(THD *thd, const std::vector<Item *> &items)
{
  for (Item *item : items)
    add_part(thd, nullptr, item, false);
}

static bool is_sorted_by_number(Item *item)
{
  Item *real= item->real_item();
  if (real->type() != Item::FIELD_ITEM)
    return false;
  const enum_field_types type= static_cast<Item_field *>(real)->field->real_type();
  return type == MYSQL_TYPE_ENUM || type == MYSQL_TYPE_SET;
}

void Rrd_sort_keys::add_part(THD *thd, Item **place, Item *item, bool is_descending)
{
  Part part= {place, item, is_descending, is_sorted_by_number(item), {}, 0};
  const Type_handler *type= part.is_number ? &type_handler_ulonglong : item->type_handler();
  type->sort_length(thd, item, &part.attributes);
  part.attributes.cs= item->collation.collation;
  part.attributes.maybe_null= item->maybe_null();
  if (type->is_packable())
    set_if_smaller(part.attributes.length, thd->variables.max_sort_length);
  part.length= part.attributes.length + part.attributes.maybe_null;
  m_length+= part.length;
  m_parts.push_back(part);
}

void Rrd_sort_keys::add_row()
{
  StringBuffer<MAX_FIELD_WIDTH> text;
  m_keys.resize(m_keys.length() + m_length);
  uchar *to= reinterpret_cast<uchar *>(&m_keys[m_keys.length() - m_length]);
  for (const Part &part : m_parts)
  {
    Item *item= part.item ? *part.item : part.only;
    const Type_handler *type= part.is_number ? &type_handler_ulonglong : item->type_handler();
    type->make_sort_key_part(to, item, &part.attributes, &text);
    if (part.is_descending)
      for (size_t i= 0; i < part.length; i++)
        to[i]= static_cast<uchar>(~to[i]);
    to+= part.length;
  }
  m_rows++;
}

void Rrd_sort_keys::add_nothing()
{
  m_keys.resize(m_keys.length() + m_length);
  m_rows++;
}

std::vector<size_t> Rrd_sort_keys::sorted() const
{
  std::vector<size_t> rows(m_rows);
  std::iota(rows.begin(), rows.end(), 0);
  std::stable_sort(rows.begin(), rows.end(), [this](size_t a, size_t b) {
    return memcmp(&m_keys[a * m_length], &m_keys[b * m_length], m_length) < 0;
  });
  return rows;
}
