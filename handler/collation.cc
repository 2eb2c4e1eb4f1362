/*
  Weights of texts, for keys that compare bytewise as their collation compares.

  The store asks for weights one level at a time, without padding, and does the padding itself
  (crates/ffi/src/weights.rs), so all that is told here is what a space weighs on each level and whether
  trailing spaces count. Keys must be equal exactly when the server's comparison says so, and in a few old
  collations that is not what its own weights (made for sorting only) say; these are mended here:
  - two Czech collations mix their levels and mark ends by themselves: their weights are taken whole, of the
    text without trailing spaces, which is how they compare;
  - Big5 sorts by strokes but compares by code;
  - Thai without padding compares only up to a zero byte.
*/
#include "collation.h"

static bool is_czech(CHARSET_INFO *order) { return order->number == 2 || order->number == 34; }

static bool is_big5(CHARSET_INFO *order) { return order->number == 1 || order->number == 1025; }

static bool is_thai_without_padding(CHARSET_INFO *order) { return order->number == 1042; }

static const uint8_t all_levels= 255;

static_assert(sizeof(RrdCollation) == 72, "RrdCollation differs from the store's");

static uint level_count(CHARSET_INFO *order)
{
  uint count= 0;
  for (uint bits= order->levels_for_order; bits; bits>>= 1)
    count++;
  return MY_MAX(count, 1);
}

/* The code of a character of two bytes, the sort order of one. */
static size_t big5_weights(CHARSET_INFO *order, const uchar *text, size_t length, uchar *out, size_t capacity)
{
  size_t used= 0;
  const uchar *end= text + length;
  while (text < end && used + 2 <= capacity)
  {
    const bool is_double= text[0] >= 0xA1 && text + 1 < end;
    out[used++]= is_double ? text[0] : order->sort_order[text[0]];
    if (is_double)
      out[used++]= text[1];
    text+= is_double ? 2 : 1;
  }
  return used;
}

static size_t weights_of(CHARSET_INFO *order, uint level, const uchar *text, size_t length, uchar *out,
                         size_t capacity)
{
  if (is_big5(order))
    return big5_weights(order, text, length, out, capacity);
  if (level == all_levels)
    length= order->lengthsp(reinterpret_cast<const char *>(text), length);
  const bool pick= level != all_levels && level_count(order) > 1;
  const uint flags= pick ? MY_STRXFRM_LEVEL1 << level : 0;
  size_t used= order->coll->strnxfrm(order, out, capacity, (uint) capacity, text, length, flags);
  if (is_thai_without_padding(order))
    if (const void *zero= memchr(out, 0, used))
      used= static_cast<const uchar *>(zero) - out;
  return used;
}

static size_t callback(const void *handle, uint32_t level, const uint8_t *text, size_t length,
                       uint32_t max_chars, uint8_t *out, size_t capacity)
{
  CHARSET_INFO *order= static_cast<CHARSET_INFO *>(handle);
  if (max_chars)
  {
    const char *begin= reinterpret_cast<const char *>(text);
    length= MY_MIN(length, order->charpos(begin, begin + length, max_chars));
  }
  return weights_of(order, level, text, length, out, capacity);
}

static void describe_levels(CHARSET_INFO *order, RrdCollation *out)
{
  if (is_czech(order))
  {
    out->levels= all_levels;
    return;
  }
  out->levels= (uint8_t) MY_MIN(level_count(order), (uint) RRD_MAX_LEVELS);
  uchar space[8], weight[64];
  order->fill(reinterpret_cast<char *>(space), order->mbminlen, ' ');
  for (uint level= 0; level < out->levels; level++)
  {
    size_t length= weights_of(order, level, space, order->mbminlen, weight, sizeof(weight));
    out->space[level].length= (uint8_t) MY_MIN(length, sizeof(out->space[level].bytes));
    memcpy(out->space[level].bytes, weight, out->space[level].length);
  }
}

RrdCollation rrd_collation(CHARSET_INFO *charset, CHARSET_INFO *order)
{
  RrdCollation out= {};
  out.pad_length= 1;
  if (order == &my_charset_bin)
    return out;
  out.pad_length= (uint8_t) charset->mbminlen;
  charset->fill(reinterpret_cast<char *>(out.pad), charset->mbminlen, charset->pad_char);
  out.handle= order;
  out.weights= callback;
  out.pad_space= !(order->state & MY_CS_NOPAD);
  describe_levels(order, &out);
  return out;
}
