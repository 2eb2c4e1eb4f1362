//! Builds the tiers that an ALTER TABLE adds, and those for which a new column has values, before the table is altered.
//!
//! Their buckets are written to segments that nothing refers to; the manifest edit that brings the new schema brings them too.
//! So whoever stops a build leaves the table as it was, and so does a crash: the next start removes what nobody names. Nobody
//! may write to the table from the build to the edit; what was built before a commit is not used, but built again.
//!
//! In a ring of bytes buckets are first written as far as there is room. What does not fit is counted, not written; then room is
//! made for all tiers together, as a flush does it, and they are computed anew from the rows that are left.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::alter::altered;
use crate::chunk::ChunksInUse;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::fs::space::Room;
use crate::live::LiveSegment;
use crate::manifest::edit::Edit;
use crate::memtable::Memtable;
use crate::ring::{BuildPlan, WRITE_TRIES, too_small};
use crate::row::RowLayout;
use crate::schema::{Schema, TierDef};
use crate::table::Table;
use crate::version::Version;

use super::alter::TierChanges;
use super::bucket::Buckets;
use super::refresh::{Rows, Target, metas};
use super::{sources, tier_schema};

/// Rows that are read between two words to whoever waits.
const ROWS_PER_WORD: u64 = 4096;

/// Rows that a bucket of a new tier is thought to be made of, to say how long coarser tiers will take.
const ASSUMED_BUCKET_ROWS: u64 = 8;

/// What was built, not linked in yet.
#[derive(Default)]
pub(crate) struct Built {
    /// The table has seen no commit since if this is what is in its segments.
    flushed_seq: u64,
    /// Sequence number of the buckets.
    seq: u64,
    segments: Vec<(Arc<Table>, Vec<Arc<LiveSegment>>)>,
    /// Of the tiers.
    _chunks: Vec<ChunksInUse>,
}

impl Built {
    /// Whether it is of the rows that the table has, all of which are in segments; and older than the next commit.
    pub fn is_current(&self, table: &Table, visible_seq: u64) -> bool {
        self.flushed_seq == table.flushed_seq.load(Ordering::Acquire) && self.seq <= visible_seq
    }

    /// The edits that link it in.
    pub fn edits(&self) -> Vec<Edit> {
        let linked = self.segments.iter().filter(|(_, segments)| !segments.is_empty());
        linked.flat_map(|(table, segments)| table.edits_for(&metas(segments))).collect()
    }

    /// After the edits.
    pub fn install(&self, engine: &Engine) {
        for (table, segments) in &self.segments {
            table.install(|version| version.segments.extend(segments.iter().cloned()));
            engine.workers.ask_merge(table.id);
        }
    }

    /// Its files go with the last reference to them.
    pub fn give_up(&self) {
        self.segments.iter().flat_map(|(_, segments)| segments).for_each(|segment| segment.mark_obsolete());
    }
}

/// Tells whoever waits how far a build is.
struct Progress<'a> {
    /// Of all parts, in rows.
    total: u64,
    /// Of the parts that are done.
    before: u64,
    /// Rows that were read of the part under way, of how many, and how many it counts for.
    read: u64,
    of: u64,
    share: u64,
    told: u64,
    /// What was said last: a part that is computed anew does not take that back.
    last: u64,
    tell: &'a mut dyn FnMut(u64, u64) -> bool,
}

impl Progress<'_> {
    fn begin(&mut self, of: u64) {
        (self.read, self.of, self.told) = (0, of.max(1), 0);
    }

    /// False if it is to stop.
    fn note(&mut self, rows: u64) -> bool {
        // A cluster of buckets without rows is work too.
        self.read += rows + 1;
        if self.read - self.told < ROWS_PER_WORD && self.told > 0 {
            return true;
        }
        self.told = self.read;
        let part = self.share as f64 * (self.read as f64 / self.of as f64).min(1.0);
        self.last = (self.before + part as u64).clamp(self.last, self.total);
        (self.tell)(self.last, self.total)
    }

    fn end(&mut self) {
        self.before += self.share;
    }
}

/// A tier as it will be.
struct Tier {
    def: TierDef,
    table: Arc<Table>,
    layout: Arc<RowLayout>,
    source: Option<usize>,
    is_built: bool,
    /// Whether the table did not have it.
    is_made: bool,
}

impl Engine {
    /// Whether a change of a table's schema needs tiers to be built.
    pub fn needs_tiers(&self, table: &Table, schema: &Schema) -> bool {
        TierChanges::builds_any(table, schema)
    }

    /// Builds the tiers that `table` is about to get with `schema`. `progress(done, total)` returns false to stop; the
    /// total is 0 until it is known. Nobody may write to the table until [`Engine::alter_tables`] has what comes out, or it is dropped.
    pub fn build_tiers(
        &self,
        table: &Arc<Table>,
        schema: &Schema,
        progress: &mut dyn FnMut(u64, u64) -> bool,
    ) -> Result<TierChanges> {
        let mut changes = self.tier_changes(table, schema)?;
        self.flush_table_unless(table, &mut || !progress(0, 0))?;
        self.build(table, schema, &mut changes, progress)?;
        Ok(changes)
    }

    /// Builds what is to be built from the rows of a table, which are in segments. In a ring of bytes not with a maintenance
    /// lock held: room has to be made.
    pub(crate) fn build(
        &self,
        table: &Arc<Table>,
        schema: &Schema,
        changes: &mut TierChanges,
        progress: &mut dyn FnMut(u64, u64) -> bool,
    ) -> Result<()> {
        changes.give_up_build();
        if !changes.has_builds() {
            return Ok(());
        }
        if self.is_in_ring_of_bytes(table) {
            // Small segments take several times what merged ones do: rows would go for what is merged in a moment.
            for part in table.with_parts() {
                self.merge_while_due(&part, false, &mut |_| progress(0, 0))?;
            }
        }
        let schema = Arc::new(altered(&table.schema(), schema)?);
        let tiers = changes.tiers_of(table, &schema);
        // Newer than all that is in the tiers.
        let flushed_seq = table.flushed_seq.load(Ordering::Acquire);
        self.commit_nothing(table)?;
        let seq = self.visible_seq.load(Ordering::Acquire);
        let chunks = tiers.iter().map(|tier| tier.table.chunks.lock().keep()).collect();
        let built = changes.built.insert(Built { flushed_seq, seq, segments: Vec::new(), _chunks: chunks });
        let rows = rows_of_table(table, &schema).rows();
        let shares: Vec<u64> = tiers.iter().map(|tier| share_of(tier, &tiers, rows)).collect();
        let total = shares.iter().sum();
        let mut progress = Progress { total, before: 0, read: 0, of: 1, share: 0, told: 0, last: 0, tell: progress };
        let plans = tiers.iter().map(Tier::plan).collect();
        let mut building = Building { table, schema, seq, tiers: &tiers, shares, plans };
        // No flush or merge takes what rows go for.
        let space = self.space_of_ring(table)?;
        let _turn = space.as_ref().map(|space| space.take_turn(&mut || !(progress.tell)(0, total))).transpose()?;
        for tried in 0..WRITE_TRIES {
            let room = self.make_room_for_build(table, &mut building.plans, tried > 0)?;
            progress.before = 0;
            self.build_all(&mut building, room.as_ref(), built, &mut progress)?;
            if !room.is_some_and(|room| room.is_over()) {
                return match (progress.tell)(total, total) {
                    true => Ok(()),
                    false => Err(Error::Interrupted),
                };
            }
            for (tier, segments) in built.segments.drain(..) {
                self.remove_refused(&tier, &metas(&segments));
            }
        }
        Err(too_small(table, "its tiers"))
    }

    /// Builds all tiers as far as there is room, and notes what they take.
    fn build_all(
        &self,
        building: &mut Building<'_>,
        room: Option<&Arc<Room>>,
        built: &mut Built,
        progress: &mut Progress<'_>,
    ) -> Result<()> {
        let wanted = || room.map_or(0, |room| room.wanted());
        let is_over = || room.is_some_and(|room| room.is_over());
        let mut new: Vec<Vec<Arc<LiveSegment>>> = Vec::new();
        for (place, tier) in building.tiers.iter().enumerate() {
            let mut of_tier = Vec::new();
            if !tier.is_built {
                new.push(of_tier);
                continue;
            }
            progress.share = building.shares[place];
            let finer = tier.source.and_then(|place| Some((building.tiers.get(place)?, new.get(place)?.clone())));
            // What had no room is not in its file.
            let finer = finer.filter(|(finer, _)| !finer.is_built || !is_over());
            // From the finer tier, and what that does not keep from the rows, if they are there.
            let sources = [finer.map(|(finer, new)| Origin::Tier(finer, new)), Some(Origin::Rows)];
            let mut first = u64::MAX;
            building.plans[place].took = [0; 2];
            for (number, origin) in sources.iter().enumerate() {
                let before = wanted();
                let Some(origin) = origin else { continue };
                let part = self.build_part(building, place, (number, origin, first), room, progress)?;
                let Some(part) = part else { break };
                building.plans[place].took[number] = wanted() - before;
                built.segments.push((tier.table.clone(), part.segments.clone()));
                of_tier.extend(part.segments);
                first = part.from;
                if part.is_cut {
                    break;
                }
            }
            building.plans[place].from = first;
            new.push(of_tier);
            if tier.is_made && first < u64::MAX {
                tier.table.raise_gone_until(first);
            }
            progress.end();
        }
        Ok(())
    }

    /// Computes the buckets of a tier that begin before `end` and come from one source; `None` if there are none.
    fn build_part(
        &self,
        building: &mut Building<'_>,
        place: usize,
        (number, origin, end): (usize, &Origin<'_>, u64),
        room: Option<&Arc<Room>>,
        progress: &mut Progress<'_>,
    ) -> Result<Option<Part>> {
        let Building { table, schema, seq, tiers, plans, .. } = building;
        let (tier, plan) = (&tiers[place], &mut plans[place]);
        let Some(buckets) = Buckets::of(schema, tier.def.bucket) else { return Ok(None) };
        // Taken once there is room: it would be a reader of what had to go.
        let (source, mut from) = match origin {
            Origin::Tier(finer, new) => {
                let source = rows_of_tier(finer, new);
                finer.table.raise_gone_to_horizon();
                // Older buckets of the finer one are what they were.
                let changed = if tier.is_made { 0 } else { buckets.interval(table.gone_until()).first };
                (source, finer.table.gone_until().max(changed))
            }
            Origin::Rows => (rows_of_table(table, schema), table.gone_until()),
        };
        from = from.max(tier.table.kept_from());
        if from >= end {
            return Ok(None);
        }
        plan.cut = source.time_of_newest_since(plan.fits[number], from.max(plan.cut)).max(plan.cut);
        let first = from.max(plan.cut).min(end);
        let target = Target {
            schema: schema.clone(),
            series_gone: table.gate.series_gone(),
            table: tier.table.clone(),
            layout: tier.layout.clone(),
            room: room.cloned(),
        };
        progress.begin(source.rows());
        let what = ((first, end), Vec::new());
        let segments = self.compute_tier(&target, &source, buckets, what, *seq, &mut |rows| progress.note(rows))?;
        Ok(Some(Part { segments, from: first, is_cut: plan.cut > from }))
    }
}

/// What is the same for all tiers that are built.
struct Building<'a> {
    table: &'a Arc<Table>,
    schema: Arc<Schema>,
    seq: u64,
    /// The tiers as they will be, what each counts for in rows to be read, and what is known of its build.
    tiers: &'a [Tier],
    shares: Vec<u64>,
    plans: Vec<BuildPlan>,
}

/// What was built of a tier from one source.
struct Part {
    segments: Vec<Arc<LiveSegment>>,
    /// When the first buckets begin.
    from: u64,
    /// Whether older ones take more than tiers may.
    is_cut: bool,
}

/// What buckets are computed from.
enum Origin<'a> {
    /// A finer tier, and what was built of it.
    Tier(&'a Tier, Vec<Arc<LiveSegment>>),
    Rows,
}

impl Tier {
    fn plan(&self) -> BuildPlan {
        let (tier, is_from_rows) = (self.table.clone(), !self.is_made || self.source.is_none());
        BuildPlan {
            tier,
            is_built: self.is_built,
            is_made: self.is_made,
            is_from_rows,
            took: [0; 2],
            from: 0,
            fits: [1.0; 2],
            cut: 0,
        }
    }
}

impl TierChanges {
    /// The tiers as they will be, finer ones before those that are computed from them.
    fn tiers_of(&self, table: &Table, schema: &Arc<Schema>) -> Vec<Tier> {
        let sorted = super::finest_first(schema);
        let tables = self.tables_as_they_will_be();
        let table_of = |def: &TierDef| tables.iter().find(|(_, d)| d.id == def.id).map(|(table, _)| table.clone());
        let made = |def: &TierDef| self.made.iter().any(|(_, d)| d.id == def.id);
        let tiers = sources(&sorted).into_iter().zip(&sorted.tiers).filter_map(|(source, def)| {
            let of_tier = table_of(def)?;
            let layout = Arc::new(RowLayout::new(Arc::new(tier_schema(schema, table.id.0, def))));
            Some(Tier {
                def: def.clone(),
                table: of_tier,
                layout,
                source,
                is_built: self.builds.contains(&def.id),
                is_made: made(def),
            })
        });
        tiers.collect()
    }
}

/// What a tier counts for, in rows to be read.
fn share_of(tier: &Tier, tiers: &[Tier], rows: u64) -> u64 {
    match tier.source.and_then(|place| tiers.get(place)) {
        _ if !tier.is_built => 0,
        None => rows,
        Some(finer) if finer.is_built => rows / ASSUMED_BUCKET_ROWS,
        Some(finer) => rows_of_tier(finer, &[]).rows(),
    }
}

/// All rows of a table, all of which are in segments, those behind the horizon too.
fn rows_of_table(table: &Table, schema: &Arc<Schema>) -> Rows {
    let layout = Arc::new(RowLayout::new(schema.clone()));
    let version = Version::clone(&table.version());
    Rows::whole(version, layout)
}

/// All buckets of a tier, with those that were just computed.
fn rows_of_tier(tier: &Tier, new: &[Arc<LiveSegment>]) -> Rows {
    let mut version = Version::clone(&tier.table.version());
    version.segments.extend(new.iter().cloned());
    Rows::whole(version, tier.layout.clone())
}

impl Rows {
    /// Everything that is in the segments of a version, read in some layout.
    fn whole(mut version: Version, layout: Arc<RowLayout>) -> Rows {
        version.active = Arc::new(Memtable::new(layout.clone()));
        version.frozen.clear();
        version.gate = Arc::default();
        Rows::of_version(Arc::new(version), layout)
    }
}
