//! Building the entries of an index that ALTER TABLE adds.
//!
//! They are made from the table's segments in a table of their own that nobody knows yet, by an ordinary transaction:
//! sorted beside the scan, checked for values that occur twice. The manifest edit that brings the new schema gives it its
//! real name. What a crash or an error leaves is known by its name and removed.
//!
//! In a ring of bytes they are written as far as there is room. If that is not enough they are given up, room is made for what
//! they will take, as oldest rows go, and they are made anew.
//!
//! The caller sees to it that nobody writes to the table meanwhile.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::cursor::{Cursor, Direction};
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::index::{Index, SortKeys, entry_schema};
use crate::limits;
use crate::ring::{WRITE_TRIES, too_small};
use crate::row::RowLayout;
use crate::schema::{IndexDef, Schema};
use crate::snapshot::Snapshot;
use crate::table::Table;
use crate::txn::OnDuplicate;

/// Tables whose names begin so are indexes under construction.
pub(crate) const BUILDING_PREFIX: &str = "#building/";

/// The entries of an index, ready to be taken into a table by `Engine::alter_tables`; dropped otherwise.
pub struct BuiltIndex {
    engine: Arc<Engine>,
    pub(crate) def: IndexDef,
    pub(crate) table: Arc<Table>,
}

impl Drop for BuiltIndex {
    fn drop(&mut self) {
        let name = self.table.name();
        if name.starts_with(BUILDING_PREFIX)
            && let Err(error) = self.engine.drop_table(&name)
        {
            tracing::warn!(%error, "an unfinished index stays until the next start");
        }
    }
}

impl Engine {
    /// Builds the index `def` of `schema`, which `table` is about to get. `progress(rows)` is told about rows read and
    /// returns false to stop. Where a value of a unique index occurs twice, [`Error::Duplicate`] has the later row in
    /// the layout of `schema`.
    pub fn build_index(
        self: &Arc<Self>,
        table: &Arc<Table>,
        schema: &Arc<Schema>,
        def: &IndexDef,
        sort_keys: Arc<dyn SortKeys>,
        progress: &mut dyn FnMut(u64) -> bool,
    ) -> Result<BuiltIndex> {
        // Segments can be read in any later layout, memtables cannot.
        self.flush_table_unless(table, &mut || !progress(0))?;
        let number = self.next_building.fetch_add(1, Ordering::Relaxed);
        let name = format!("{BUILDING_PREFIX}{number}");
        self.create_table(&name, entry_schema(schema, table.id.0, def))?;
        let built = BuiltIndex { engine: self.clone(), def: def.clone(), table: self.table(&name)? };
        let index = Index::new(schema, table.id.0, def.clone(), built.table.clone());
        index.set_sort_keys(sort_keys);
        let layout = Arc::new(RowLayout::new(schema.clone()));
        let mut takes = None;
        for _ in 0..WRITE_TRIES {
            // Only made: what is written takes it.
            drop(self.make_room_beside_rows(&built.table, takes)?);
            match self.write_entries(table, &layout, &index, progress) {
                Ok(()) => return Ok(built),
                Err(Error::NoRoom { rows, bytes }) => {
                    takes = Some((bytes as f64 / rows.max(1) as f64 * table.stats().rows as f64) as u64);
                }
                Err(Error::Duplicate { row: entry, existing, .. }) => {
                    let row = row_of_entry(table, &layout, &index, &entry)?;
                    let number = schema.indexes.iter().position(|d| d.id == def.id).unwrap_or(0);
                    return Err(Error::Duplicate { index: number as u32 + 1, row, existing });
                }
                Err(error) => return Err(error),
            }
        }
        Err(too_small(table, &format!("index '{}'", def.name)))
    }

    fn write_entries(
        self: &Arc<Self>,
        table: &Arc<Table>,
        layout: &Arc<RowLayout>,
        index: &Index,
        progress: &mut dyn FnMut(u64) -> bool,
    ) -> Result<()> {
        // A merge would write files beside those that are read here. It may wait for this, with room that it makes: nothing
        // here waits for room or memory.
        let is_in_ring = self.is_in_ring_of_bytes(table);
        let merging = is_in_ring.then(|| table.maintenance.lock_for_merges(&mut || !progress(0))).transpose()?;
        let mut txn = self.begin();
        let entries = &index.table;
        txn.begin_bulk(entries);
        let mut rows = Cursor::new(table.version(), layout.clone(), self.take_snapshot(), None);
        rows.seek(None, true, Direction::Forward)?;
        let (mut row, mut entry) = (Vec::new(), Vec::new());
        while let Some(span) = rows.next_span(limits::GROUP_ROWS)? {
            for n in 0..span.rows {
                row.clear();
                entry.clear();
                span.group.push_row(span.row(n), &mut row)?;
                index.push_entry(layout, &row, &mut entry)?;
                txn.insert(entries, &entry, OnDuplicate::Fail)?;
            }
            if !progress(u64::from(span.rows)) {
                return Err(Error::Interrupted);
            }
        }
        txn.end_bulk(entries)?;
        drop((rows, merging));
        let progress = RefCell::new(progress);
        self.wait_for_memory(&|_| false, &|| !(progress.borrow_mut())(0))?;
        txn.commit()
    }

    /// Removes what an ALTER TABLE that was cut off by a crash left behind.
    pub(crate) fn drop_unfinished_indexes(&self) -> Result<()> {
        let is_unfinished = |name: &String| name.starts_with(BUILDING_PREFIX);
        let names: Vec<String> = self.all_tables().iter().map(|t| t.name()).filter(is_unfinished).collect();
        names.iter().try_for_each(|name| self.drop_table(name))
    }
}

/// The row that an entry stands for.
fn row_of_entry(table: &Table, layout: &Arc<RowLayout>, index: &Index, entry: &[u8]) -> Result<Vec<u8>> {
    let mut key = Vec::new();
    index.push_base_key(entry, &mut key);
    let mut rows = Cursor::new(table.version(), layout.clone(), Snapshot::latest(), None);
    rows.seek(Some(&key), true, Direction::Forward)?;
    let mut row = Vec::new();
    if let Some(span) = rows.next_span(1)? {
        span.group.push_row(span.row(0), &mut row)?;
    }
    Ok(row)
}
