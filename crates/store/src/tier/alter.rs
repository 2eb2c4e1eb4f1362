//! What an ALTER TABLE means for the tiers: some go, some are made, the others get the new columns and names.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::alter::Alteration;
use crate::engine::{Engine, Tables};
use crate::error::Result;
use crate::manifest::edit::{Edit, TableId};
use crate::memtable::Memtable;
use crate::row::RowLayout;
use crate::schema::{ColumnDef, Initial, Schema, TierDef};
use crate::table::Table;
use crate::version::Version;

use super::keep::Lines;
use super::refresh::build_edit;
use super::{Tier, tier_schema, tier_seq_edit, tier_table_name};

/// What becomes of the tiers of a table.
pub(crate) struct TierChanges {
    dropped: Vec<Arc<Tier>>,
    kept: Vec<(Arc<Tier>, TierDef)>,
    made: Vec<(Arc<Table>, TierDef)>,
    /// Ids of tiers that are to be built from all rows.
    builds: Vec<u32>,
}

impl TierChanges {
    /// Tiers whose tables change.
    pub fn tables(&self) -> impl Iterator<Item = Arc<Table>> {
        self.dropped.iter().chain(self.kept.iter().map(|(tier, _)| tier)).map(|tier| tier.table.clone())
    }

    /// The edits, beside those of the table itself, which becomes one of `schema`.
    pub fn edits(&self, table: &Table, schema: &Schema, flushed_seq: u64) -> Vec<Edit> {
        let mut edits: Vec<Edit> = self.dropped.iter().map(|t| Edit::DropTable { table: t.table.id }).collect();
        if !schema.tiers.is_empty() {
            edits.push(tier_seq_edit(table, flushed_seq));
        }
        for (tier, def) in &self.kept {
            let (id, name) = (tier.table.id, tier_table_name(&table.name(), &def.name));
            if def.name != tier.def.name {
                edits.push(Edit::RenameTable { table: id, name });
            }
            edits.push(Edit::SetSchema { table: id, schema: Arc::new(tier_schema(schema, table.id.0, def)) });
        }
        for (made, def) in &self.made {
            let schema = Arc::new(tier_schema(schema, table.id.0, def));
            edits.push(Edit::CreateTable { table: made.id, name: made.name(), schema });
            made.gone_until.store(0, Ordering::Release);
            edits.extend(made.gone_edits(&Lines::of_all(self.first_line(table, def))));
        }
        if !self.builds.is_empty() {
            edits.push(build_edit(table, &self.builds));
        }
        edits
    }

    /// After the edits.
    pub fn install(&self, engine: &Engine, table: &Table, schema: &Schema) {
        self.dropped.iter().for_each(|tier| engine.forget(&tier.table));
        for (tier, def) in &self.kept {
            tier.table.set_layout(tier_schema(schema, table.id.0, def));
            let name = tier_table_name(&table.name(), &def.name);
            if def.name != tier.def.name {
                engine.tables.write().rename(&tier.table, name);
            }
        }
        for (made, def) in &self.made {
            made.set_layout(tier_schema(schema, table.id.0, def));
            made.raise_gone_until(self.first_line(table, def));
            engine.begin_again(made);
            engine.tables.write().insert(made.clone());
        }
    }

    /// From when on a new tier can have buckets.
    fn first_line(&self, table: &Table, def: &TierDef) -> u64 {
        let finer = self.kept.iter().filter(|(t, _)| t.def.bucket != def.bucket && t.def.bucket.nests_in(&def.bucket));
        finer.map(|(tier, _)| tier.table.gone_until()).fold(table.gone_until(), u64::min)
    }

    /// Once the table has its new memtable: what is to be built.
    pub fn note_builds(&self, table: &Table, seq: u64) {
        if let Some(mut touched) = table.version().active.touched() {
            self.builds.iter().for_each(|id| touched.note_build(*id, seq));
        }
    }

    /// Whether tiers are to be built.
    pub fn has_builds(&self) -> bool {
        !self.builds.is_empty()
    }

    /// Whether a name is taken that a tier is to get.
    pub fn taken_name(&self, tables: &Tables, table: &Table) -> Option<String> {
        let made = self.made.iter().map(|(made, _)| made.name());
        let renamed = self.kept.iter().filter(|(tier, def)| tier.def.name != def.name);
        let renamed = renamed.map(|(_, def)| tier_table_name(&table.name(), &def.name));
        made.chain(renamed)
            .find(|name| tables.by_name.contains_key(name) && !self.dropped.iter().any(|t| t.table.name() == *name))
    }
}

impl Engine {
    /// Works out what an alteration does to tiers, and makes folders for the new ones.
    pub(crate) fn tier_changes(&self, change: &Alteration) -> Result<TierChanges> {
        let mut changes = TierChanges { dropped: Vec::new(), kept: Vec::new(), made: Vec::new(), builds: Vec::new() };
        let stays =
            |tier: &Tier| change.schema.tiers.iter().find(|d| d.id == tier.def.id && d.bucket == tier.def.bucket);
        for tier in change.table.tiers().iter() {
            match stays(tier) {
                Some(def) => changes.kept.push((tier.clone(), def.clone())),
                None => changes.dropped.push(tier.clone()),
            }
        }
        for def in &change.schema.tiers {
            if changes.kept.iter().any(|(_, kept)| kept.id == def.id) {
                continue;
            }
            let id = TableId(self.next_table.fetch_add(1, Ordering::Relaxed));
            let dir = self.dir.join(id.dir_name());
            self.fs.create_dir(&dir)?;
            let name = tier_table_name(&change.table.name(), &def.name);
            let schema = Arc::new(tier_schema(&change.schema, change.table.id.0, def));
            let table = Table::new(id, dir, &name, schema, Version::without_rows, true);
            changes.made.push((Arc::new(table), def.clone()));
        }
        // Rows that are there have a value in a new column: buckets are to be computed anew.
        let old = change.table.schema();
        let has_values = |c: &ColumnDef| {
            super::schema::is_value(c)
                && old.columns.iter().all(|was| was.id != c.id)
                && c.initial.as_ref().is_some_and(|initial| *initial != Initial::Null)
        };
        let all = change.schema.columns.iter().any(has_values);
        let kept = changes.kept.iter().filter(|_| all).map(|(_, def)| def.id);
        changes.builds = kept.chain(changes.made.iter().map(|(_, def)| def.id)).collect();
        if !changes.made.is_empty() {
            self.fs.sync_dir(&self.dir)?;
        }
        match changes.taken_name(&self.tables.read(), &change.table) {
            Some(name) => Err(crate::error::Error::TableExists { name }),
            None => Ok(changes),
        }
    }
}

impl Table {
    /// Gives an (in memory) empty table a new schema.
    fn set_layout(&self, schema: Schema) {
        let layout = Arc::new(RowLayout::new(Arc::new(schema)));
        *self.layout.write() = layout.clone();
        self.install(|version| version.active = Arc::new(Memtable::new(layout)));
    }
}
