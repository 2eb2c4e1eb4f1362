//! Secondary indexes: each is a table of its own, whose rows are the entries.
//!
//! An entry's key is the indexed columns or their sort keys (a NULL flag before each nullable one) and, unless the index is unique, the
//! clustering key of the row it stands for. A unique index keeps the clustering key beside its key, so that the uniqueness
//! of the index is the uniqueness of the entry table's key; entries with a NULL never clash, so they get the clustering
//! key as a tie-breaker. Entries are written by the transaction that writes the row: log, snapshots, flushes, merges
//! and recovery are those of any table.

use std::sync::{Arc, OnceLock};

use crate::error::{Error, Result};
use crate::row::{RowLayout, RowView};
use crate::schema::{ColumnDef, Compression, IndexColumn, IndexDef, IndexOf, Lane, Schema, TimeColumn};
use crate::table::Table;

/// Makes the sort keys of an index's columns whose lanes have another order; see [`IndexColumn::sort_lane`]. What it
/// makes of a value must never change: old entries are found by making them anew.
pub trait SortKeys: Send + Sync {
    /// The sort key of a number in the `part`-th column of the index.
    fn number(&self, part: usize, value: u64) -> u64;
    /// Appends the sort key of a byte string in the `part`-th column of the index.
    fn push_bytes(&self, part: usize, value: &[u8], out: &mut Vec<u8>);
}

/// A secondary index of an open table.
pub struct Index {
    /// What it is.
    pub def: IndexDef,
    /// Its entries.
    pub table: Arc<Table>,
    plan: Vec<Source>,
    /// For each key column of the base table: its position in an entry.
    base_key: Vec<usize>,
    has_nullable: bool,
    sort_keys: OnceLock<Arc<dyn SortKeys>>,
}

/// Where a column of an entry comes from.
#[derive(Clone, Copy)]
enum Source {
    /// Whether the base column is NULL: 0 if so, else 1; or the other way round.
    Null { column: usize, nulls_last: bool },
    /// The base column's value (zero or empty when NULL).
    Value(usize),
    /// The sort key of the base column's value (zero or empty when NULL).
    SortKey { column: usize, part: usize },
    /// The clustering sort key when some indexed column is NULL, else empty.
    TieBreaker,
}

/// An entry's columns and how they are filled.
struct Shape {
    schema: Schema,
    plan: Vec<Source>,
    base_key: Vec<usize>,
    has_nullable: bool,
}

/// The schema of the table that holds the entries of an index.
pub fn entry_schema(base: &Schema, base_table: u32, def: &IndexDef) -> Schema {
    shape(base, base_table, def).schema
}

fn shape(base: &Schema, base_table: u32, def: &IndexDef) -> Shape {
    let mut columns: Vec<ColumnDef> = Vec::new();
    let mut plan = Vec::new();
    let mut add = |lane, source| {
        let id = columns.len() as u32;
        columns.push(ColumnDef { name: String::new(), hidden: true, ..ColumnDef::plain(id, lane, false) });
        plan.push(source);
        id as u16
    };
    let mut key = Vec::new();
    let mut has_nullable = false;
    let mut place_of = std::collections::BTreeMap::new();
    for (part, &IndexColumn { column: c, sort_lane, nulls_last }) in def.columns.iter().enumerate() {
        let column = usize::from(c);
        if base.columns[column].nullable {
            has_nullable = true;
            key.push(add(Lane::Int { width: 1 }, Source::Null { column, nulls_last }));
        }
        key.push(match sort_lane {
            Some(lane) => add(lane, Source::SortKey { column, part }),
            None => *place_of.entry(c).or_insert_with(|| add(base.columns[column].lane, Source::Value(column))),
        });
    }
    if def.unique && has_nullable {
        key.push(add(Lane::Bytes, Source::TieBreaker));
    }
    let mut base_key = Vec::new();
    for &c in &base.key {
        let place =
            *place_of.entry(c).or_insert_with(|| add(base.columns[usize::from(c)].lane, Source::Value(usize::from(c))));
        base_key.push(usize::from(place));
        if !def.unique && !key.contains(&place) {
            key.push(place);
        }
    }
    let time = base
        .time
        .and_then(|t| place_of.get(&t.column).filter(|p| key.contains(p)).map(|&column| TimeColumn { column, ..t }));
    let schema = Schema {
        time,
        compression: if base.compression == Compression::Small { Compression::Small } else { Compression::Fast },
        chunk_length: base.chunk_length,
        index_of: Some(IndexOf { table: base_table, index: def.id }),
        ..Schema::plain(columns, key, None)
    };
    Shape { schema, plan, base_key, has_nullable }
}

/// The name under which the manifest keeps the entry table.
pub fn entry_table_name(base_name: &str, index: u32) -> String {
    format!("{base_name}/index {index}")
}

impl Index {
    /// The index `def` of a table with schema `base`, whose entries are in `table`.
    pub fn new(base: &Schema, base_table: u32, def: IndexDef, table: Arc<Table>) -> Index {
        let Shape { plan, base_key, has_nullable, .. } = shape(base, base_table, &def);
        Index { def, table, plan, base_key, has_nullable, sort_keys: OnceLock::new() }
    }

    /// Says who makes sort keys, once: later calls change nothing.
    pub fn set_sort_keys(&self, sort_keys: Arc<dyn SortKeys>) {
        // Whoever opens the table brings the same.
        let _ = self.sort_keys.set(sort_keys);
    }

    /// Appends the entry of a base row, in the entry table's row format.
    pub fn push_entry(&self, base: &RowLayout, row: &[u8], out: &mut Vec<u8>) -> Result<()> {
        let view = base.view(row);
        let layout = self.table.layout();
        let mut writer = layout.writer(out);
        let mut bytes = Vec::new();
        for (c, source) in self.plan.iter().enumerate() {
            match *source {
                Source::Null { column, nulls_last } => writer.set_int(c, u64::from(view.is_null(column) == nulls_last)),
                Source::Value(b) | Source::SortKey { column: b, .. } if view.is_null(b) => {}
                Source::Value(b) => match base.schema().columns[b].lane {
                    Lane::Bytes => writer.push_bytes(c, view.bytes(b)),
                    _ => writer.set_int(c, view.int(b)),
                },
                Source::SortKey { column, part } => match base.schema().columns[column].lane {
                    Lane::Bytes => {
                        bytes.clear();
                        self.sort_keys()?.push_bytes(part, view.bytes(column), &mut bytes);
                        writer.push_bytes(c, &bytes);
                    }
                    _ => writer.set_int(c, self.sort_keys()?.number(part, view.int(column))),
                },
                Source::TieBreaker => {
                    bytes.clear();
                    if self.has_null(&view) {
                        base.push_key(row, &mut bytes);
                    }
                    writer.push_bytes(c, &bytes);
                }
            }
        }
        writer.finish();
        Ok(())
    }

    /// Appends the sort key in the index of a base row.
    pub fn push_entry_key(&self, base: &RowLayout, row: &[u8], out: &mut Vec<u8>) -> Result<()> {
        let mut entry = Vec::new();
        self.push_entry(base, row, &mut entry)?;
        self.table.layout().push_key(&entry, out);
        Ok(())
    }

    fn sort_keys(&self) -> Result<&Arc<dyn SortKeys>> {
        let missing = || Error::InvalidInput(format!("nobody makes the sort keys of index '{}'", self.def.name));
        self.sort_keys.get().ok_or_else(missing)
    }

    /// Where an entry has the parts of the clustering key of its row.
    pub(crate) fn base_key(&self) -> &[usize] {
        &self.base_key
    }

    /// Where an entry has the value of a column of the base row as it stands; `None` if it has not.
    pub fn column_of(&self, base_column: u16) -> Option<u16> {
        let is_it = |source: &Source| matches!(source, Source::Value(b) if *b == usize::from(base_column));
        self.plan.iter().position(is_it).map(|place| place as u16)
    }

    /// Where an entry says whether a column of the base row is NULL, and the number that means it is; `None` if that
    /// column is never NULL, or not in the index.
    pub fn null_flag_of(&self, base_column: u16) -> Option<(u16, u64)> {
        self.plan.iter().enumerate().find_map(|(place, source)| match *source {
            Source::Null { column, nulls_last } if column == usize::from(base_column) => {
                Some((place as u16, u64::from(nulls_last)))
            }
            _ => None,
        })
    }

    /// Whether keys end with a part that tells apart rows with a NULL; it is empty for all others.
    pub fn has_tie_breaker(&self) -> bool {
        self.plan.iter().any(|source| matches!(source, Source::TieBreaker))
    }

    /// Whether an indexed column of the base row is NULL.
    fn has_null(&self, row: &RowView<'_>) -> bool {
        self.has_nullable && self.def.columns.iter().any(|c| row.is_null(usize::from(c.column)))
    }

    /// Appends the clustering sort key of the row that an entry stands for.
    pub fn push_base_key(&self, entry: &[u8], out: &mut Vec<u8>) {
        let layout = self.table.layout();
        let view = layout.view(entry);
        for &c in &self.base_key {
            match layout.schema().columns[c].lane {
                Lane::Int { width } => crate::key::push_int(out, view.int(c), width),
                _ => crate::key::push_bytes(out, view.bytes(c)),
            }
        }
    }
}
