//! Tiers: tables of statistics, one row for each series and bucket of time, kept in step with their table.
//!
//! A tier is a table of its own (`<table>$<tier>`), whose rows nobody writes but the flush: when a memtable becomes segments,
//! the buckets that its rows lie in are computed anew, and the same manifest edit brings both. What is not flushed yet is
//! computed when the tier is read. Coarse tiers are computed from finer ones.

mod aggregate;
mod alter;
pub mod bucket;
mod build;
mod check;
mod keep;
mod number;
mod points;
mod read;
mod refresh;
mod schema;
mod touched;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use bucket::Buckets;

use crate::schema::{Schema, TierDef};
use crate::table::Table;

pub use aggregate::Aggregator;
pub(crate) use aggregate::COUNT_BIAS;
pub(crate) use alter::is_same;
pub use alter::{EndingHistory, TierChanges};
pub use check::TierDifference;
pub(crate) use keep::{Dependents, SpaceRule};
pub use number::{Wide, pack_decimal};
pub(crate) use number::{number_of_bits, number_of_bytes};
pub(crate) use read::{TierWalk, stale_buckets, stored_buckets};
pub(crate) use refresh::{build_edit, dirty_edit, tier_seq_edit};
pub use schema::{Statistic, decimal_bytes, tier_schema, tier_table_name, value_columns};
pub(crate) use schema::{position_of_key, position_of_statistic, validate_tiers};
pub(crate) use touched::{Touched, join};

/// A tier of an open table.
pub struct Tier {
    /// What it is.
    pub def: TierDef,
    /// Its buckets.
    pub table: Arc<Table>,
    /// The tier that it is computed from, by its place among the table's; `None`: from the rows.
    pub source: Option<usize>,
    /// Rows with times before this one do not move its horizon; see [`crate::Engine::turn_tiers`].
    pub(crate) turns_at: AtomicU64,
}

/// For each tier of a table the one that it is computed from: the coarsest of those whose buckets nest in its own.
pub fn sources(schema: &Schema) -> Vec<Option<usize>> {
    let length = |t: &TierDef| t.bucket.approximate_length();
    let source_of = |tier: &TierDef| {
        let finer = schema.tiers.iter().enumerate();
        let finer = finer.filter(|(_, t)| length(t) < length(tier) && t.bucket.nests_in(&tier.bucket));
        finer.max_by_key(|(_, t)| length(t)).map(|(place, _)| place)
    };
    schema.tiers.iter().map(source_of).collect()
}

/// A schema whose tiers come finer ones first.
fn finest_first(schema: &Schema) -> Schema {
    let mut sorted = schema.clone();
    sorted.tiers.sort_by_key(|t| (t.bucket.approximate_length(), t.id));
    sorted
}

impl Tier {
    /// The tiers of a table, finer ones before those that are computed from them.
    pub(crate) fn of_table(schema: &Schema, table_of: impl Fn(&TierDef) -> Option<Arc<Table>>) -> Vec<Arc<Tier>> {
        let sorted = finest_first(schema);
        let tables: Option<Vec<_>> = sorted.tiers.iter().map(table_of).collect();
        let tiers = sources(&sorted).into_iter().zip(&sorted.tiers).zip(tables.unwrap_or_default());
        let tier = |((source, def), table): ((_, &TierDef), _)| {
            Arc::new(Tier { def: def.clone(), table, source, turns_at: AtomicU64::new(0) })
        };
        tiers.map(tier).collect()
    }

    /// Tells a table and its tiers which tiers are computed from them.
    pub(crate) fn link(base: &Arc<Table>, tiers: &[Arc<Tier>]) {
        let schema = base.schema();
        if schema.is_part() {
            // Who is computed from a tier is said when its table is linked.
            return;
        }
        let from = |source: Option<usize>| {
            let dependents = tiers.iter().filter(|tier| tier.source == source);
            dependents.filter_map(|tier| Buckets::of(&schema, tier.def.bucket)).collect()
        };
        let dependents =
            |source: Option<usize>, instead| Dependents { buckets: from(source), instead, base: Arc::downgrade(base) };
        let instead = tiers.iter().filter_map(|tier| {
            let finer = tier.source.and_then(|place| tiers.get(place))?;
            Some((Buckets::of(&schema, tier.def.bucket)?, Arc::downgrade(&finer.table)))
        });
        base.set_dependents(dependents(None, instead.collect()));
        tiers.iter().enumerate().for_each(|(n, tier)| tier.table.set_dependents(dependents(Some(n), Vec::new())));
    }
}

impl Table {
    /// The tiers, finer ones before those that are computed from them.
    pub fn tiers(&self) -> Arc<[Arc<Tier>]> {
        self.tiers.read().clone()
    }

    /// Whether it holds a tier of another table.
    pub fn is_tier(&self) -> bool {
        self.layout.read().schema().tier_of.is_some()
    }
}
