/*
  Aggregates first(value, time) and last(value, time): the value of the row with the smallest, the largest time, of any
  type. As TimescaleDB's: a row whose time is NULL does not count, a value that is NULL does. Of rows of the same time the
  one that comes first is taken.

  The server knows no aggregates of plugins but UDFs, which have four types. These say that they are UDFs, so that the
  parser takes them as window functions, and are otherwise made like its MIN() and MAX().
*/
#include "functions.h"

/* What an item has seen of a group. A copy of an item begins without any: it must not free what the original uses. */
class Bookend_state
{
public:
  Bookend_state()= default;
  Bookend_state(const Bookend_state &) {}
  Bookend_state &operator=(const Bookend_state &)= delete;
  ~Bookend_state() { close(); }
  void close()
  {
    delete comparator;
    value= best= time= nullptr;
    comparator= nullptr;
    has_row= false;
  }

  Item_cache *value= nullptr; /* what is kept */
  Item_cache *best= nullptr;  /* its time */
  Item_cache *time= nullptr;  /* the time of the row at hand */
  Arg_comparator *comparator= nullptr;
  bool has_row= false;
};

class Item_sum_bookend : public Item_sum_hybrid
{
public:
  Item_sum_bookend(THD *thd, Item *value_arg, Item *time_arg) : Item_sum_hybrid(thd, value_arg, time_arg)
  {
    quick_group= false;
  }

  /* For a level of WITH ROLLUP. setup() calls virtual functions: copy_or_same() calls it on the complete object. */
  Item_sum_bookend(THD *thd, Item_sum_bookend *other) : Item_sum_hybrid(thd, other) { quick_group= false; }

  Sumfunctype sum_func() const override { return UDF_SUM_FUNC; }

  bool fix_fields(THD *thd, Item **ref) override;
  bool fix_length_and_dec(THD *) override
  {
    set_maybe_null();
    null_value= true;
    /* A geometry has neither a smallest nor a largest, which is what the server asks here. */
    const Type_handler *type= args[0]->type_handler();
    if (type->cmp_type() == STRING_RESULT && !type->is_traditional_scalar_type())
      return fix_length_and_dec_generic();
    return type->Item_sum_hybrid_fix_length_and_dec(this);
  }
  const Type_handler *real_type_handler() const override { return get_arg(0)->real_type_handler(); }
  const TYPELIB *get_typelib() const override { return args[0]->get_typelib(); }
  Field *create_tmp_field(MEM_ROOT *root, bool, TABLE *table) override
  {
    return tmp_table_field_from_field_type(root, table);
  }

  void setup_caches(THD *thd) override { setup(thd); }
  void cleanup() override
  {
    state.close();
    Item_sum_hybrid::cleanup();
  }

  void clear() override
  {
    state.has_row= false;
    if (state.value)
      state.value->clear();
    null_value= true;
  }
  bool add() override;

  /* For partial sums in a temporary table, which quick_group rules out. */
  void reset_field() override {}
  void update_field() override {}

  double val_real() override { return null_value ? 0 : state.value->val_real(); }
  longlong val_int() override { return null_value ? 0 : state.value->val_int(); }
  my_decimal *val_decimal(my_decimal *to) override { return null_value ? nullptr : state.value->val_decimal(to); }
  String *val_str(String *to) override { return null_value ? nullptr : state.value->val_str(to); }
  bool val_native(THD *thd, Native *to) override { return null_value || val_native_from_item(thd, state.value, to); }
  bool get_date(THD *thd, MYSQL_TIME *to, date_mode_t mode) override
  {
    return null_value || state.value->get_date(thd, to, mode);
  }

protected:
  virtual bool replaces(int order) const= 0;

  /* Gives a copy of its own state. */
  static Item *with_setup(THD *thd, Item_sum_bookend *copy) { return !copy || copy->setup(thd) ? nullptr : copy; }

private:
  bool setup(THD *thd);
  static Item_cache *cache_of(THD *thd, Item *item);

  Bookend_state state;
};

bool Item_sum_bookend::fix_fields(THD *thd, Item **ref)
{
  if (init_sum_func_check(thd))
    return true;
  for (uint i= 0; i < arg_count; i++)
  {
    if (args[i]->fix_fields_if_needed_for_scalar(thd, &args[i]))
      return true;
    with_flags|= args[i]->with_flags & ~item_with_t::FIELD;
  }
  if (fix_length_and_dec(thd) || (!is_window_func_sum_expr() && setup(thd)))
    return true;
  result_field= nullptr;
  if (check_sum_func(thd, ref))
    return true;
  for (uint i= 0; i < arg_count; i++)
    orig_args[i]= args[i];
  base_flags|= item_base_t::FIXED;
  return false;
}

Item_cache *Item_sum_bookend::cache_of(THD *thd, Item *item)
{
  Item_cache *cache= item->get_cache(thd);
  if (!cache || cache->setup(thd, item))
    return nullptr;
  cache->store(item);
  /* It changes from row to row: nobody may take it for a constant. */
  if (!item->const_item())
    cache->set_used_tables(RAND_TABLE_BIT);
  return cache;
}

bool Item_sum_bookend::setup(THD *thd)
{
  state.close();
  null_value= true;
  state.value= cache_of(thd, args[0]);
  state.best= cache_of(thd, args[1]);
  state.time= cache_of(thd, args[1]);
  if (!state.value || !state.best || !state.time)
    return true;
  Arg_comparator *comparator= new (thd->mem_root) Arg_comparator();
  if (!comparator ||
      comparator->set_cmp_func(thd, this, args[1]->type_handler_for_comparison(),
                               reinterpret_cast<Item **>(&state.time), reinterpret_cast<Item **>(&state.best), false))
  {
    delete comparator;
    return true;
  }
  state.comparator= comparator;
  return false;
}

bool Item_sum_bookend::add()
{
  if (!state.comparator && setup(current_thd))
    return true;
  const bool was_null= null_value;
  state.time->store(args[1]);
  state.time->cache_value();
  if (state.time->null_value)
    return false;
  const bool taken= !state.has_row || replaces(state.comparator->compare());
  null_value= was_null; /* compare() sets it */
  if (!taken)
    return false;
  std::swap(state.time, state.best);
  state.has_row= true;
  state.value->store(args[0]);
  state.value->cache_value();
  null_value= state.value->null_value;
  return false;
}

class Item_sum_first final : public Item_sum_bookend
{
public:
  using Item_sum_bookend::Item_sum_bookend;
  LEX_CSTRING func_name_cstring() const override { return {STRING_WITH_LEN("first(")}; }
  Item *copy_or_same(THD *thd) override { return with_setup(thd, new (thd->mem_root) Item_sum_first(thd, this)); }
  Item *shallow_copy(THD *thd) const override { return get_item_copy<Item_sum_first>(thd, this); }

protected:
  bool replaces(int order) const override { return order < 0; }
};

class Item_sum_last final : public Item_sum_bookend
{
public:
  using Item_sum_bookend::Item_sum_bookend;
  LEX_CSTRING func_name_cstring() const override { return {STRING_WITH_LEN("last(")}; }
  Item *copy_or_same(THD *thd) override { return with_setup(thd, new (thd->mem_root) Item_sum_last(thd, this)); }
  Item *shallow_copy(THD *thd) const override { return get_item_copy<Item_sum_last>(thd, this); }

protected:
  bool replaces(int order) const override { return order > 0; }
};

template <class Function> class Create_bookend : public Create_native_func
{
public:
  Item *create_native(THD *thd, const LEX_CSTRING *name, List<Item> *list) override
  {
    if (!list || list->elements != 2)
    {
      my_error(ER_WRONG_PARAMCOUNT_TO_NATIVE_FCT, MYF(0), name->str);
      return nullptr;
    }
    rrd_arguments_of_aggregate(thd, list);
    return new (thd->mem_root) Function(thd, list->head(), list->elem(1));
  }
};

static Create_bookend<Item_sum_first> create_first;
static Create_bookend<Item_sum_last> create_last;
Plugin_function rrd_first_function(&create_first);
Plugin_function rrd_last_function(&create_last);
