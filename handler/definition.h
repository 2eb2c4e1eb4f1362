/*
  A table of the server, described for the store.
*/
#ifndef RRD_DEFINITION_H
#define RRD_DEFINITION_H

#include <string>
#include <vector>

#include "rrd.h"
#include "server.h"

/*
  Whether a field has a place in the store: one that is generated when read has one when a key needs its value.
*/
bool rrd_is_stored(const Field *field);

/* Whether entries of a secondary index hold the value of a key part as it stands. */
bool rrd_is_read_from_index(const KEY_PART_INFO *part);

/*
  Borrows from the TABLE it was made from; owns the lists. A field that the engine cannot hold leaves
  `refused` pointing at it.
*/
class Rrd_definition
{
public:
  Rrd_definition(const TABLE *table, ulonglong max_rows= 0);
  RrdTableDefinition raw() const;
  const Field *refused() const { return m_refused; }
  /* Numbers of the stored fields, in the order of the definition. */
  std::vector<uint32_t> numbers() const;

private:
  void add_field(const TABLE *table, const Field *field);
  std::vector<RrdKeyPart> key_parts(const KEY *key) const;
  void add_index(const KEY *key);

  std::vector<RrdField> m_fields;
  std::vector<std::vector<RrdOption>> m_field_options;
  std::vector<std::string> m_types;
  std::vector<RrdKeyPart> m_key_parts;
  std::vector<RrdIndex> m_indexes;
  std::vector<std::vector<RrdKeyPart>> m_index_parts;
  std::vector<RrdOption> m_options;
  std::string m_max_rows;
  size_t m_record_bytes;
  const uchar *m_default_record;
  const Field *m_refused= nullptr;
};

#endif
