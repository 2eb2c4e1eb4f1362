//! What an ALTER TABLE means for the tiers: some go, some are made, the others get the new columns and names.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::alter::altered;
use crate::engine::{Engine, Tables};
use crate::error::{Error, Result};
use crate::fs::Fs;
use crate::manifest::edit::{Edit, TableId};
use crate::memtable::Memtable;
use crate::row::RowLayout;
use crate::schema::{ColumnDef, Initial, Schema, TierDef};
use crate::table::Table;
use crate::version::Version;

use super::build::Built;
use super::{Tier, tier_schema, tier_seq_edit, tier_table_name};

/// What becomes of the tiers of a table. Dropped before the edit, it takes back what was made for it.
pub struct TierChanges {
    fs: Arc<dyn Fs>,
    dropped: Vec<Arc<Tier>>,
    kept: Vec<(Arc<Tier>, TierDef)>,
    pub(super) made: Vec<(Arc<Table>, TierDef)>,
    /// Ids of tiers that are to be built from all rows.
    pub(super) builds: Vec<u32>,
    /// That was done.
    pub(super) built: Option<Built>,
    /// Set once an edit may name what was made.
    is_kept: AtomicBool,
}

impl Drop for TierChanges {
    fn drop(&mut self) {
        if self.is_kept.load(Ordering::Acquire) {
            return;
        }
        self.give_up_build();
        for (made, _) in &self.made {
            if let Err(error) = self.fs.remove_dir(&made.dir) {
                tracing::info!(%error, "the folder of a tier that was not made stays until the next start");
            }
        }
    }
}

impl TierChanges {
    /// Whether a change of a table's schema has tiers to be built.
    pub(super) fn builds_any(table: &Table, schema: &Schema) -> bool {
        let is_made = |def: &TierDef| table.tiers().iter().all(|tier| !is_same(&tier.def, def));
        schema.tiers.iter().any(is_made) || (!schema.tiers.is_empty() && changes_buckets(&table.schema(), schema))
    }

    /// Throws away what was built.
    pub(super) fn give_up_build(&mut self) {
        if let Some(built) = self.built.take() {
            built.give_up();
        }
    }

    /// Whether what was built, if anything had to be, is of the rows of now.
    pub(crate) fn is_current(&self, table: &Table, visible_seq: u64) -> bool {
        match &self.built {
            Some(built) => built.is_current(table, visible_seq),
            None => !self.has_builds(),
        }
    }

    /// An edit names what was made, or may do so.
    pub(crate) fn keep(&self) {
        self.is_kept.store(true, Ordering::Release);
    }

    /// The tables of all tiers that there will be.
    pub(super) fn tables_as_they_will_be(&self) -> Vec<(Arc<Table>, TierDef)> {
        let kept = self.kept.iter().map(|(tier, def)| (tier.table.clone(), def.clone()));
        kept.chain(self.made.iter().cloned()).collect()
    }

    /// Tiers whose tables change.
    pub(crate) fn tables(&self) -> impl Iterator<Item = Arc<Table>> {
        self.dropped.iter().chain(self.kept.iter().map(|(tier, _)| tier)).map(|tier| tier.table.clone())
    }

    /// The edits, beside those of the table itself, which becomes one of `schema`.
    pub(crate) fn edits(&self, table: &Table, schema: &Schema, flushed_seq: u64) -> Vec<Edit> {
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
            edits.extend(tier.table.gone_edit());
        }
        for (made, def) in &self.made {
            let schema = Arc::new(tier_schema(schema, table.id.0, def));
            edits.push(Edit::CreateTable { table: made.id, name: made.name(), schema });
            edits.extend(made.gone_edit());
        }
        edits.extend(self.built.iter().flat_map(Built::edits));
        edits
    }

    /// After the edits.
    pub(crate) fn install(&self, engine: &Engine, table: &Table, schema: &Schema) {
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
            engine.begin_again(made);
            engine.tables.write().insert(made.clone());
        }
        self.built.iter().for_each(|built| built.install(engine));
    }

    /// Whether tiers are to be built.
    pub(super) fn has_builds(&self) -> bool {
        !self.builds.is_empty()
    }

    /// Whether a name is taken that a tier is to get.
    fn taken_name(&self, tables: &Tables, table: &Table) -> Option<String> {
        let made = self.made.iter().map(|(made, _)| made.name());
        let renamed = self.kept.iter().filter(|(tier, def)| tier.def.name != def.name);
        let renamed = renamed.map(|(_, def)| tier_table_name(&table.name(), &def.name));
        made.chain(renamed)
            .find(|name| tables.by_name.contains_key(name) && !self.dropped.iter().any(|t| t.table.name() == *name))
    }

    /// Fails if a name is taken that a tier is to get.
    pub(crate) fn check_names(&self, engine: &Engine, table: &Table) -> Result<()> {
        match self.taken_name(&engine.tables.read(), table) {
            Some(name) => Err(Error::TableExists { name }),
            None => Ok(()),
        }
    }
}

/// Whether a tier stays what it is, whatever its name and however long it is kept.
pub(crate) fn is_same(was: &TierDef, is: &TierDef) -> bool {
    was.id == is.id && was.bucket == is.bucket
}

/// Whether buckets are to be computed anew from the rows that are there: these have a value in a new column, or data sources
/// are consolidated in another way.
fn changes_buckets(old: &Schema, new: &Schema) -> bool {
    let has_new_values = |c: &ColumnDef| match old.columns.iter().find(|was| was.id == c.id) {
        Some(was) => was.source != c.source,
        None => c.initial.as_ref().is_some_and(|initial| *initial != Initial::Null),
    };
    let has_sources = new.columns.iter().any(|c| c.source.is_some());
    (has_sources && (old.step, old.xff) != (new.step, new.xff))
        || new.columns.iter().any(|c| super::schema::is_value(c) && has_new_values(c))
}

/// Buckets that go with their tier though nothing else can give them: their rows are gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndingHistory {
    /// The tier's name.
    pub tier: String,
    /// The time of the first of them, as the lane holds it.
    pub first: u64,
    /// From this time on rows are there.
    pub until: u64,
}

impl Engine {
    /// The history that ends if a table gets `schema`: that of tiers which it does not have any more, or which have other buckets.
    pub fn ending_history(&self, table: &Table, schema: &Schema) -> Vec<EndingHistory> {
        let until = table.gone_until();
        let tiers = table.tiers();
        let dropped = tiers.iter().filter(|tier| !schema.tiers.iter().any(|def| is_same(&tier.def, def)));
        let history = |tier: &Arc<Tier>| {
            let version = tier.table.version();
            let first = version.segments.values().map(|segment| segment.meta().min_time).min()?;
            let first = first.max(version.gate.position().time);
            (first < until).then(|| EndingHistory { tier: tier.table.name(), first, until })
        };
        dropped.filter_map(history).collect()
    }

    /// Works out what an alteration does to tiers, and makes folders for the new ones.
    pub(crate) fn tier_changes(&self, table: &Table, schema: &Schema) -> Result<TierChanges> {
        let mut changes = TierChanges {
            fs: self.fs.clone(),
            dropped: Vec::new(),
            kept: Vec::new(),
            made: Vec::new(),
            builds: Vec::new(),
            built: None,
            is_kept: AtomicBool::new(false),
        };
        for tier in table.tiers().iter() {
            match schema.tiers.iter().find(|def| is_same(&tier.def, def)) {
                Some(def) => changes.kept.push((tier.clone(), def.clone())),
                None => changes.dropped.push(tier.clone()),
            }
        }
        let schema = altered(&table.schema(), schema)?;
        for def in &schema.tiers {
            if changes.kept.iter().any(|(_, kept)| kept.id == def.id) {
                continue;
            }
            let id = TableId(self.next_table.fetch_add(1, Ordering::Relaxed));
            let dir = self.dir.join(id.dir_name());
            self.fs.create_dir(&dir)?;
            let name = tier_table_name(&table.name(), &def.name);
            let of_tier = Arc::new(tier_schema(&schema, table.id.0, def));
            let made = Table::new(id, dir, &name, of_tier, Version::without_rows, true);
            changes.made.push((Arc::new(made), def.clone()));
        }
        let all = changes_buckets(&table.schema(), &schema);
        let kept = changes.kept.iter().filter(|_| all).map(|(_, def)| def.id);
        changes.builds = kept.chain(changes.made.iter().map(|(_, def)| def.id)).collect();
        if !changes.made.is_empty() {
            self.fs.sync_dir(&self.dir)?;
        }
        changes.check_names(self, table)?;
        Ok(changes)
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
