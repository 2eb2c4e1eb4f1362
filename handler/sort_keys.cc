/*
  Sorts rows of a result by any ORDER BY; see sort_keys.h.
*/
#include "sort_keys.h"

#include <algorithm>
#include <numeric>

Rrd_sort_keys::Rrd_sort_keys(THD *thd, const ORDER *order)
{
  for (; order; order= order->next)
  {
    Item *item= *order->item;
    if (item->const_item())
      continue;
    Part part= {order->item, order->direction == ORDER::ORDER_DESC, {}, 0};
    item->type_handler()->sort_length(thd, item, &part.attributes);
    part.attributes.cs= item->collation.collation;
    part.attributes.maybe_null= item->maybe_null();
    if (item->type_handler()->is_packable())
      set_if_smaller(part.attributes.length, thd->variables.max_sort_length);
    part.length= part.attributes.length + part.attributes.maybe_null;
    m_length+= part.length;
    m_parts.push_back(part);
  }
}

void Rrd_sort_keys::add_row()
{
  StringBuffer<MAX_FIELD_WIDTH> text;
  m_keys.resize(m_keys.length() + m_length);
  uchar *to= reinterpret_cast<uchar *>(&m_keys[m_keys.length() - m_length]);
  for (const Part &part : m_parts)
  {
    Item *item= *part.item;
    item->type_handler()->make_sort_key_part(to, item, &part.attributes, &text);
    if (part.is_descending)
      for (size_t i= 0; i < part.length; i++)
        to[i]= static_cast<uchar>(~to[i]);
    to+= part.length;
  }
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
