//! Changes of a table's schema that leave its segments as they are.
//!
//! Segments name columns by id, so a column that was added is one that older segments lack (they read as its initial
//! value), a dropped one is passed over, and names, order and options are the schema's alone. What is not in segments is
//! in the old layout: the table is flushed first, and the edit that brings the new schema says that everything up
//! to it is in segments, so that replay never meets a record of the old one. Merges write the newest schema.
//!
//! The caller sees to it that nobody writes to the table (the server's metadata lock does). Flushes and merges, which run
//! on their own, are kept out by the maintenance lock.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::commit::TableWrites;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::index::entry_table_name;
use crate::index_build::BuiltIndex;
use crate::manifest::edit::Edit;
use crate::memtable::Memtable;
use crate::row::RowLayout;
use crate::schema::{ColumnDef, IndexColumn, IndexDef, Schema};
use crate::table::Table;
use crate::tier::{self, TierChanges};

/// Name of the manifest property with the server's id of the table's definition.
pub(crate) const DEFINITION_PROPERTY: &str = "definition";

/// The new schema of one table.
pub struct Alteration {
    /// The table.
    pub table: Arc<Table>,
    /// What it becomes; its version is set by the store.
    pub schema: Schema,
    /// The server's id of the new definition; see [`Engine::definition_id`].
    pub definition: Vec<u8>,
    /// The indexes of `schema` that the table did not have.
    pub built: Vec<BuiltIndex>,
    /// What [`Engine::build_tiers`] made of `schema`; without it tiers are built when the table is altered.
    pub tiers: Option<TierChanges>,
}

impl Alteration {
    /// Entry tables of the indexes that go.
    fn dropped(&self) -> Vec<Arc<Table>> {
        let stays = |id: u32| self.schema.indexes.iter().any(|def| def.id == id);
        self.table.indexes().iter().filter(|i| !stays(i.def.id)).map(|i| i.table.clone()).collect()
    }

    fn check(&self) -> Result<()> {
        let old = self.table.schema();
        check_instant(&old, &self.schema)?;
        let is_there = |id| old.indexes.iter().any(|d| d.id == id) || self.built.iter().any(|b| b.def.id == id);
        match self.schema.indexes.iter().all(|def| is_there(def.id)) {
            true => Ok(()),
            false => Err(Error::InvalidInput("a new index was not built".into())),
        }
    }

    /// The edits, the new schema among them.
    fn edits(&self, flushed_seq: u64) -> Result<(Vec<Edit>, Arc<Schema>)> {
        let table = self.table.id;
        let old = self.table.schema();
        let schema = Arc::new(altered(&old, &self.schema)?);
        let mut edits = vec![Edit::Flushed { table, seq: flushed_seq }];
        edits.extend(self.table.counter_edits());
        edits.extend(self.dropped().iter().map(|t| Edit::DropTable { table: t.id }));
        edits.extend(self.built.iter().map(|b| Edit::RenameTable { table: b.table.id, name: self.name_of(b) }));
        edits.push(Edit::SetSchema { table, schema: schema.clone() });
        edits.push(Edit::SetProperty { table, name: DEFINITION_PROPERTY.into(), value: self.definition.clone() });
        Ok((edits, schema))
    }

    fn name_of(&self, built: &BuiltIndex) -> String {
        entry_table_name(&self.table.name(), built.def.id)
    }
}

/// The schema that a table with schema `old` gets by a change to `new`.
pub(crate) fn altered(old: &Schema, new: &Schema) -> Result<Schema> {
    let mut schema = new.clone();
    schema.version = old.version + 1;
    schema.next_column = schema.next_column_id().max(old.next_column_id());
    schema.next_index = schema.next_index_id().max(old.next_index_id());
    schema.validate()?;
    Ok(schema)
}

impl Engine {
    /// Gives tables new schemas, all of them or none, durably. [`check_instant`] must hold for each.
    pub fn alter_tables(&self, changes: Vec<Alteration>) -> Result<()> {
        self.alter_tables_unless(changes, &mut || false)
    }

    /// The same for a statement: [`Error::Interrupted`] once `stop` says so, and nothing has changed.
    pub fn alter_tables_unless(&self, mut changes: Vec<Alteration>, stop: &mut dyn FnMut() -> bool) -> Result<()> {
        self.check_writable()?;
        changes.iter().try_for_each(Alteration::check)?;
        let tiers_of = |change: &mut Alteration| match change.tiers.take() {
            Some(tiers) => tiers.check_names(self, &change.table).map(|()| tiers),
            None => self.tier_changes(&change.table, &change.schema),
        };
        let mut tiers = changes.iter_mut().map(tiers_of).collect::<Result<Vec<_>>>()?;
        let changes = &changes;
        while !self.try_alter(changes, &mut tiers, stop)? {}
        drop(tiers);
        for change in changes {
            // New tiers may have more than they may take of a ring of bytes.
            if let Err(error) = self.make_room(&change.table, 0) {
                tracing::warn!(table = change.table.name(), %error, "no room could be made in a ring of bytes yet");
            }
        }
        Ok(())
    }

    /// False if a commit came between what has to be in segments and the edit.
    fn try_alter(
        &self,
        changes: &[Alteration],
        tiers: &mut [TierChanges],
        stop: &mut dyn FnMut() -> bool,
    ) -> Result<bool> {
        let is_current =
            |tiers: &TierChanges, table: &Table| tiers.is_current(table, self.visible_seq.load(Ordering::Acquire));
        for (change, tiers) in changes.iter().zip(&mut *tiers) {
            // With the locks of below no room can be made.
            if self.is_in_ring_of_bytes(&change.table) {
                self.flush_table_unless(&change.table, stop)?;
                if !is_current(tiers, &change.table) {
                    self.build(&change.table, &change.schema, tiers, &mut |_, _| !stop())?;
                }
            }
        }
        let mut alone: Vec<Arc<Table>> = changes.iter().flat_map(Alteration::dropped).collect();
        alone.extend(tiers.iter().flat_map(TierChanges::tables));
        alone.extend(changes.iter().map(|change| change.table.clone()));
        alone.sort_by_key(|table| table.id);
        let alone = alone.iter().map(|table| table.maintenance.lock_unless(stop));
        let _alone = alone.collect::<Result<Vec<_>>>()?;
        for (change, tiers) in changes.iter().zip(tiers.iter_mut()) {
            let table = &change.table;
            if self.is_in_ring_of_bytes(table) {
                continue;
            }
            self.freeze(table);
            self.flush_all_frozen(table)?;
            if !is_current(tiers, table) {
                self.build(table, &change.schema, tiers, &mut |_, _| !stop())?;
            }
        }
        self.set_schemas(changes, tiers)
    }

    /// The second half: false if a commit came between the flush and it.
    fn set_schemas(&self, changes: &[Alteration], tiers: &[TierChanges]) -> Result<bool> {
        self.sync_log_first()?;
        let _turn = self.apply_turn.lock();
        // Held over the manifest's sync: a commit that is logged now would be in a layout that is about to change.
        let queue = self.commit_queue.lock();
        for change in changes {
            self.check_decided_in(&queue, &change.table.with_parts())?;
            let is_of = |tables: &[TableWrites]| tables.iter().any(|t| Arc::ptr_eq(&t.table, &change.table));
            let has_rows = change.table.version().memtables().any(|m| m.needs_flush());
            if has_rows || queue.pending.iter().any(|p| is_of(&p.tables)) {
                return Ok(false);
            }
        }
        let flushed_seq = self.visible_seq.load(Ordering::Acquire);
        let (mut edits, mut schemas) = (Vec::new(), Vec::new());
        if changes.iter().zip(tiers).any(|(change, tiers)| !tiers.is_current(&change.table, flushed_seq)) {
            return Ok(false);
        }
        for (change, tiers) in changes.iter().zip(tiers) {
            let (of_table, schema) = change.edits(flushed_seq)?;
            edits.extend(of_table);
            edits.extend(tiers.edits(&change.table, &schema, flushed_seq));
            schemas.push(schema);
        }
        let committed = self.commit_manifest_in_turn(&edits);
        if committed.is_ok() || self.manifest.is_poisoned() {
            tiers.iter().for_each(TierChanges::keep);
        }
        committed?;
        for ((change, schema), tiers) in changes.iter().zip(schemas).zip(tiers) {
            self.install_schema(change, schema, tiers, flushed_seq);
        }
        Ok(true)
    }

    fn install_schema(&self, change: &Alteration, schema: Arc<Schema>, tiers: &TierChanges, flushed_seq: u64) {
        let table = &change.table;
        change.dropped().iter().for_each(|entries| self.forget(entries));
        table.flushed_seq.store(flushed_seq, Ordering::Release);
        tiers.install(self, table, &schema);
        let layout = Arc::new(RowLayout::new(schema));
        *table.layout.write() = layout.clone();
        table.install(|version| version.active = Arc::new(Memtable::new(layout)));
        table.definition.write().clone_from(&change.definition);
        let mut tables = self.tables.write();
        for built in &change.built {
            tables.rename(&built.table, change.name_of(built));
            self.begin_again(&built.table);
        }
        tables.link_parts(table.id);
        drop(tables);
        // Tiers may have their first retention now: until here nobody asked for the newest row.
        let newest = crate::ring::newest_time(&table.version()).unwrap_or(0);
        table.newest_seen.fetch_max(newest, Ordering::Relaxed);
        self.turn_tiers(table, flushed_seq, &self.open_snapshots());
    }

    /// The server's id of the definition that a table was altered to last; empty if it never was. After a crash it
    /// says whether an ALTER TABLE was done.
    pub fn definition_id(&self, name: &str) -> Result<Vec<u8>> {
        Ok(self.table(name)?.definition.read().clone())
    }
}

/// Whether rows that were stored under `old` can be read under `new` as they are.
pub fn check_instant(old: &Schema, new: &Schema) -> Result<()> {
    let refuse = |what: &str| Err(Error::InvalidInput(format!("not an instant change: {what}")));
    let before = |id: u32| old.columns.iter().find(|c| c.id == id);
    let keeps_tiers = new.tiers.iter().any(|tier| old.tiers.iter().any(|was| tier::is_same(was, tier)));
    let mut ids = BTreeSet::new();
    for column in &new.columns {
        if !ids.insert(column.id) {
            return refuse("two columns have one id");
        }
        match before(column.id) {
            Some(was) if !is_same_lane(was, column) => return refuse("a column changes how it is held"),
            Some(was) if keeps_tiers && was.source.is_some() != column.source.is_some() => {
                return refuse("tiers hold a data source in another way than other columns");
            }
            Some(_) => {}
            None if column.id < old.next_column_id() => return refuse("a column id is used again"),
            None if column.initial.is_none() || column.hidden => return refuse("a new column lacks its initial value"),
            None => {}
        }
    }
    let id_of = |schema: &Schema, position: u16| schema.columns.get(usize::from(position)).map(|c| c.id);
    let ids_of = |schema: &Schema, list: &[u16]| list.iter().map(|&p| id_of(schema, p)).collect::<Vec<_>>();
    if ids_of(old, &old.key) != ids_of(new, &new.key) {
        return refuse("the clustering key differs");
    }
    if old.time.map(|t| id_of(old, t.column)) != new.time.map(|t| id_of(new, t.column)) {
        return refuse("the time column differs");
    }
    if old.row_number.map(|r| id_of(old, r)) != new.row_number.map(|r| id_of(new, r)) || old.index_of != new.index_of {
        return refuse("the row number differs");
    }
    for index in &new.indexes {
        let is_same = |was: &IndexDef| is_same_index((old, was), (new, index));
        match old.indexes.iter().find(|was| was.id == index.id) {
            Some(was) if !is_same(was) => return refuse("an index differs"),
            None if index.id < old.next_index_id() => return refuse("an index id is used again"),
            _ => {}
        }
    }
    Ok(())
}

/// Whether the entries of an index are the same under two schemas.
pub fn is_same_index(was: (&Schema, &IndexDef), is: (&Schema, &IndexDef)) -> bool {
    let parts = |(schema, def): (&Schema, &IndexDef)| -> Vec<_> {
        let part = |c: &IndexColumn| {
            let column = schema.columns.get(usize::from(c.column));
            (column.map(|c| (c.id, c.lane, c.nullable)), c.sort_lane, c.nulls_last)
        };
        def.columns.iter().map(part).collect()
    };
    was.1.unique == is.1.unique && parts(was) == parts(is)
}

fn is_same_lane(was: &ColumnDef, is: &ColumnDef) -> bool {
    was.lane == is.lane && was.hidden == is.hidden && was.initial == is.initial && (is.nullable || !was.nullable)
}
