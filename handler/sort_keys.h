/*
  Sorts rows of a result by any ORDER BY, with the sort keys that the server itself makes of the items.
*/
#ifndef RRD_SORT_KEYS_H
#define RRD_SORT_KEYS_H

#include <string>
#include <vector>

#include "server.h"

class Rrd_sort_keys
{
public:
  Rrd_sort_keys(THD *thd, const ORDER *order);
  /* Keys that tell values of items apart. */
  Rrd_sort_keys(THD *thd, const std::vector<Item *> &items);

  /* Notes the key of the row that the items have now. */
  void add_row();
  /* The same for a row whose items are not to be computed: a key that says nothing. */
  void add_nothing();
  size_t rows() const { return m_rows; }
  /* All keys, one behind the other. */
  const std::string &keys() const { return m_keys; }
  /* The numbers of the rows in order. */
  std::vector<size_t> sorted() const;

private:
  struct Part
  {
    Item **item;
    Item *only;
    bool is_descending;
    /* An ENUM or SET: a column is sorted by its number. */
    bool is_number;
    SORT_FIELD_ATTR attributes;
    size_t length;
  };

  void add_part(THD *thd, Item **place, Item *item, bool is_descending);

  std::vector<Part> m_parts;
  size_t m_length= 0, m_rows= 0;
  std::string m_keys;
};

#endif
