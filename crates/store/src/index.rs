//! Secondary indexes: each is a table of its own, whose rows are the entries.
//!
//! An entry's key is the indexed columns (a NULL flag before each nullable one) and, unless the index is unique, the
//! clustering key of the row it stands for. A unique index keeps the clustering key beside its key, so that the uniqueness
//! of the index is the uniqueness of the entry table's key; entries with a NULL never clash, so they get the clustering
//! key as a tie-breaker. Entries are written by the transaction that writes the row: log, snapshots, flushes, merges
//! and recovery are those of any table.

use std::sync::Arc;

use crate::row::RowLayout;
use crate::schema::{ColumnDef, Compression, IndexDef, IndexOf, Lane, Schema, TimeColumn};
use crate::table::Table;

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
}

/// Where a column of an entry comes from.
#[derive(Clone, Copy)]
enum Source {
    /// 0 when the base column is NULL, else 1.
    NotNull(usize),
    /// The base column's value (zero or empty when NULL).
    Value(usize),
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
        columns.push(ColumnDef { id, name: String::new(), lane, nullable: false, hidden: true, options: Vec::new() });
        plan.push(source);
        id as u16
    };
    let mut key = Vec::new();
    let mut has_nullable = false;
    let mut place_of = std::collections::BTreeMap::new();
    for &c in &def.columns {
        let column = &base.columns[usize::from(c)];
        if column.nullable {
            has_nullable = true;
            key.push(add(Lane::Int { width: 1 }, Source::NotNull(usize::from(c))));
        }
        let place = add(column.lane, Source::Value(usize::from(c)));
        place_of.insert(c, place);
        key.push(place);
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
        version: 1,
        columns,
        key,
        time,
        row_number: None,
        compression: if base.compression == Compression::Small { Compression::Small } else { Compression::Fast },
        chunk_length: base.chunk_length,
        indexes: Vec::new(),
        auto_increment: None,
        index_of: Some(IndexOf { table: base_table, index: def.id }),
        options: Vec::new(),
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
        Index { def, table, plan, base_key, has_nullable }
    }

    /// Appends the entry of a base row, in the entry table's row format.
    pub fn push_entry(&self, base: &RowLayout, row: &[u8], out: &mut Vec<u8>) {
        let view = base.view(row);
        let layout = self.table.layout();
        let mut writer = layout.writer(out);
        for (c, source) in self.plan.iter().enumerate() {
            match *source {
                Source::NotNull(b) => writer.set_int(c, u64::from(!view.is_null(b))),
                Source::Value(b) if view.is_null(b) => {}
                Source::Value(b) => match base.schema().columns[b].lane {
                    Lane::Bytes => writer.push_bytes(c, view.bytes(b)),
                    _ => writer.set_int(c, view.int(b)),
                },
                Source::TieBreaker => {
                    let mut tie = Vec::new();
                    if self.has_null(base, row) {
                        base.push_key(row, &mut tie);
                    }
                    writer.push_bytes(c, &tie);
                }
            }
        }
        writer.finish();
    }

    /// Whether an indexed column of the base row is NULL.
    pub fn has_null(&self, base: &RowLayout, row: &[u8]) -> bool {
        let view = base.view(row);
        self.has_nullable && self.def.columns.iter().any(|&c| view.is_null(usize::from(c)))
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
