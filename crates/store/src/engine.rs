//! The engine: all tables of a data folder, and what they share.
//!
//! One log, one manifest, one block cache, one order of commits. DDL lives here; commits in commit.rs, flushes in
//! flush.rs, merges in compaction/, start-up in recovery.rs, background threads in workers.rs.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use parking_lot::{Condvar, Mutex, RwLock};

use crate::cache::BlockCache;
use crate::chunk::ChunkMap;
use crate::commit::CommitQueue;
use crate::compaction::choose::{Plan, choose, choose_joins, choose_small, waits_for_snapshots};
use crate::config::{Config, FlushLog, Tuning};
use crate::cursor::{Cursor, Direction};
use crate::error::{Error, Result};
use crate::fs::counted::CountedFs;
use crate::fs::{FileLock, Fs};
use crate::horizon::Places;
use crate::idle_memory::IdleMemory;
use crate::index::{Index, entry_schema, entry_table_name};
use crate::limits;
use crate::live::LiveSegment;
use crate::lock::RowLocks;
use crate::maintenance::Maintenance;
use crate::manifest::Manifest;
use crate::manifest::edit::{Edit, TableId, TableState};
use crate::memtable::Memtable;
use crate::newest::Newest;
use crate::pause::PausePoints;
use crate::prepare::Prepared;
use crate::report::Activity;
use crate::ring::{FLOORS_PROPERTY, HORIZON_PROPERTY};
use crate::row::RowLayout;
use crate::schema::Schema;
use crate::segment::SegmentId;
use crate::snapshot::{Snapshot, Snapshots};
use crate::table::{AUTO_INCREMENT_PROPERTY, TRUNCATED_PROPERTY, Table, auto_increment_of};
use crate::tier::{Tier, tier_schema, tier_table_name};
use crate::txn::Txn;
use crate::version::Version;
use crate::wal::Wal;
use crate::workers::Workers;

/// Names of temporary tables begin so.
pub const TEMPORARY_PREFIX: &str = "#tmp/";

/// All tables of a data folder.
pub struct Engine {
    pub(crate) fs: Arc<dyn Fs>,
    pub(crate) dir: PathBuf,
    pub(crate) cache: Arc<BlockCache>,
    pub(crate) wal: Wal,
    pub(crate) manifest: Manifest,
    pub(crate) tables: RwLock<Tables>,
    pub(crate) commit_queue: Mutex<CommitQueue>,
    /// Shared by commits from their number to their application; a backup takes it alone for its point in time.
    pub(crate) commit_gate: RwLock<()>,
    /// Held by whoever tells the manifest where horizons are.
    pub(crate) keeping_horizons: Mutex<()>,
    /// Held while a commit is applied, or while none may be.
    pub(crate) apply_turn: Mutex<()>,
    pub(crate) applied_wait: Mutex<()>,
    pub(crate) applied: Condvar,
    /// Commits up to here are applied; snapshots see them.
    pub(crate) visible_seq: AtomicU64,
    pub(crate) snapshots: Arc<Snapshots>,
    pub(crate) locks: RowLocks,
    pub(crate) pause_points: PausePoints,
    pub(crate) workers: Workers,
    pub(crate) memory: MemtableMemory,
    /// Tables with rows in memtables, and perhaps some that had some: see `trim_log`.
    pub(crate) in_memory: Mutex<BTreeMap<TableId, Arc<Table>>>,
    /// Segments that are no longer used but that a query may still read, see `retire`.
    pub(crate) retired: Mutex<Vec<(Arc<LiveSegment>, Instant)>>,
    /// Held by the one commit that sets memtables aside.
    pub(crate) freezing: Mutex<()>,
    pub(crate) tuning: Tuning,
    /// Of dropped tables that are still read.
    left_folders: Mutex<Vec<PathBuf>>,
    pub(crate) next_table: AtomicU32,
    pub(crate) next_segment: AtomicU64,
    pub(crate) next_building: AtomicU64,
    next_txn: AtomicU64,
    /// See `Config::clock_micros`.
    clock_micros: Option<i64>,
    flush_log: AtomicU8,
    poison: OnceLock<String>,
    pub(crate) commits: AtomicU64,
    /// Refusals of the log whose commits are known to be in segments.
    pub(crate) refusals_kept: AtomicU64,
    /// Refusals of the log for which memtables were set aside.
    pub(crate) refusals_seen: AtomicU64,
    pub(crate) activity: Activity,
    pub(crate) idle_memory: IdleMemory,
    _lock: Box<dyn FileLock>,
}

/// Tables by name and by id.
#[derive(Default)]
pub(crate) struct Tables {
    pub by_name: HashMap<String, Arc<Table>>,
    pub by_id: BTreeMap<TableId, Arc<Table>>,
}

/// Bytes of memtables, and how many there may be.
pub(crate) struct MemtableMemory {
    /// Bytes in active memtables.
    pub active: AtomicI64,
    /// Bytes in frozen ones.
    pub frozen: AtomicI64,
    /// `rrd_memtable_size`.
    pub limit: AtomicUsize,
}

/// What an engine is made of, once its folder was read.
pub(crate) struct Parts {
    pub fs: Arc<dyn Fs>,
    pub lock: Box<dyn FileLock>,
    pub cache: Arc<BlockCache>,
    pub wal: Wal,
    pub manifest: Manifest,
    pub tables: Tables,
    pub next_seq: u64,
    pub next_table: u32,
    pub next_segment: u64,
    pub prepared: Vec<Arc<Prepared>>,
}

impl Engine {
    /// Opens (or creates) the data folder, replays the log, starts the background threads.
    pub fn open(config: Config, fs: Arc<dyn Fs>) -> Result<Arc<Engine>> {
        let activity = Activity::default();
        let fs = Arc::new(CountedFs::new(fs, activity.io.clone()));
        let parts = crate::recovery::read_folder(&config, fs)?;
        let active: usize = parts.tables.by_id.values().map(|t| t.version().memtable_bytes()).sum();
        let has_rows = |t: &&Arc<Table>| !t.version().active.is_empty();
        let in_memory = parts.tables.by_id.values().filter(has_rows).map(|t| (t.id, t.clone())).collect();
        let engine = Arc::new(Engine {
            fs: parts.fs,
            dir: config.dir.clone(),
            cache: parts.cache,
            wal: parts.wal,
            manifest: parts.manifest,
            tables: RwLock::new(parts.tables),
            commit_queue: Mutex::new(CommitQueue {
                next_seq: parts.next_seq,
                pending: Default::default(),
                prepared: parts.prepared,
                deciding: Vec::new(),
                rollbacks_due: Vec::new(),
                next_decision: 0,
                log_kept_from: Default::default(),
            }),
            commit_gate: RwLock::new(()),
            keeping_horizons: Mutex::new(()),
            apply_turn: Mutex::new(()),
            applied_wait: Mutex::new(()),
            applied: Condvar::new(),
            visible_seq: AtomicU64::new(parts.next_seq - 1),
            snapshots: Arc::new(Snapshots::default()),
            locks: RowLocks::new(),
            pause_points: PausePoints::default(),
            workers: Workers::new(config.background),
            memory: MemtableMemory {
                active: AtomicI64::new(active as i64),
                frozen: AtomicI64::new(0),
                limit: AtomicUsize::new(config.memtable_bytes),
            },
            in_memory: Mutex::new(in_memory),
            retired: Mutex::default(),
            freezing: Mutex::new(()),
            tuning: config.tuning,
            left_folders: Mutex::default(),
            next_table: AtomicU32::new(parts.next_table),
            next_segment: AtomicU64::new(parts.next_segment),
            next_building: AtomicU64::new(1),
            next_txn: AtomicU64::new(1),
            clock_micros: config.clock_micros,
            flush_log: AtomicU8::new(flush_log_number(config.flush_log)),
            poison: OnceLock::new(),
            commits: AtomicU64::new(0),
            refusals_kept: AtomicU64::new(0),
            refusals_seen: AtomicU64::new(0),
            idle_memory: IdleMemory::default(),
            activity,
            _lock: parts.lock,
        });
        engine.lock_prepared_rows()?;
        engine.drop_unfinished_indexes()?;
        crate::workers::start(&engine)?;
        engine.settle_rings()?;
        engine.settle_tiers();
        engine.recall_horizons();
        engine.all_tables().iter().for_each(|t| engine.workers.ask_merge(t.id));
        engine.note_start();
        Ok(engine)
    }

    /// Makes everything durable and stops the threads.
    pub fn close(&self) -> Result<()> {
        self.workers.stop(&self.pause_points);
        // A full disk keeps no server from its shutdown.
        if self.poisoned().is_none()
            && let Err(error) = self.keep_horizons()
        {
            tracing::warn!(%error, "could not keep the horizons of rings: rows that left may be back until the next write");
        }
        if self.poisoned().is_some() {
            return Ok(());
        }
        self.wal.close()?;
        crate::shutdown::write_note(&*self.fs, &self.dir, self.wal.position())
    }

    /// New table; durable when it returns.
    pub fn create_table(&self, name: &str, schema: Schema) -> Result<()> {
        self.check_writable()?;
        schema.validate()?;
        self.sync_log_first()?;
        let mut tables = self.tables.write();
        let id = TableId(self.next_table.fetch_add(1, Ordering::Relaxed));
        let mut made = vec![(id, name.to_string(), Arc::new(schema.clone()))];
        for def in &schema.indexes {
            let entries = entry_schema(&schema, id.0, def);
            entries.validate()?;
            let entry_id = TableId(self.next_table.fetch_add(1, Ordering::Relaxed));
            made.push((entry_id, entry_table_name(name, def.id), Arc::new(entries)));
        }
        for def in &schema.tiers {
            let tier_id = TableId(self.next_table.fetch_add(1, Ordering::Relaxed));
            made.push((tier_id, tier_table_name(name, &def.name), Arc::new(tier_schema(&schema, id.0, def))));
        }
        if let Some((_, taken, _)) = made.iter().find(|(_, name, _)| tables.by_name.contains_key(name)) {
            return Err(Error::TableExists { name: taken.clone() });
        }
        for (id, ..) in &made {
            self.fs.create_dir(&self.dir.join(id.dir_name()))?;
        }
        self.fs.sync_dir(&self.dir)?;
        let edit = |(table, name, schema): &(TableId, String, Arc<Schema>)| Edit::CreateTable {
            table: *table,
            name: name.clone(),
            schema: schema.clone(),
        };
        self.commit_manifest_in_turn(&made.iter().map(edit).collect::<Vec<_>>())?;
        for (id, name, schema) in made {
            let dir = self.dir.join(id.dir_name());
            let table = Table::new(id, dir, &name, schema, Version::without_rows, true);
            self.begin_again(&table);
            tables.insert(Arc::new(table));
        }
        tables.link_parts(id);
        Ok(())
    }

    /// Removes a table. [`Error::Prepared`] if a prepared transaction has written to it, unless it is a temporary one.
    pub fn drop_table(&self, name: &str) -> Result<()> {
        self.remove_table(name, false)
    }

    /// Removes a table. What prepared transactions have written to it goes, too.
    pub fn drop_table_with_prepared(&self, name: &str) -> Result<()> {
        self.remove_table(name, true)
    }

    fn remove_table(&self, name: &str, with_prepared: bool) -> Result<()> {
        self.check_writable()?;
        let dropped = self.table(name)?.with_parts();
        self.check_whole(&dropped[0])?;
        self.sync_log()?;
        let _going = Going::begin(self, &dropped);
        let _alone: Vec<_> = dropped.iter().map(|t| t.maintenance.lock()).collect();
        self.leave_alone(&dropped, with_prepared)?;
        let edits: Vec<_> = dropped.iter().map(|t| Edit::DropTable { table: t.id }).collect();
        if let Err(error) = self.commit_manifest(&edits) {
            dropped.iter().for_each(|table| table.dropped.store(false, Ordering::Release));
            return Err(error);
        }
        dropped.iter().for_each(|table| self.forget(table));
        Ok(())
    }

    /// A tier is dropped, renamed and emptied with its table.
    fn check_whole(&self, table: &Table) -> Result<()> {
        match table.is_tier() {
            true => Err(Error::InvalidInput(format!("'{}' is a tier: it goes with its table", table.name()))),
            false => Ok(()),
        }
    }

    /// Lets go of a table that the manifest no longer has.
    pub(crate) fn forget(&self, table: &Table) {
        self.tables.write().remove(table);
        self.empty(table);
        self.in_memory.lock().remove(&table.id);
        // Scans that still read keep files; what stays is removed at the next start.
        let removed = crate::repair::remove_kept_aside(&*self.fs, &table.dir);
        if let Err(error) = removed.and_then(|()| self.fs.remove_dir(&table.dir)) {
            tracing::debug!(%error, "the folder of a dropped table stays until nobody reads it");
            self.left_folders.lock().push(table.dir.clone());
        }
        self.remove_left_folders();
    }

    /// Removes folders of dropped tables that nobody reads any more.
    pub(crate) fn remove_left_folders(&self) {
        self.left_folders.lock().retain(|dir| self.fs.remove_dir(dir).is_err());
    }

    /// Renames a table.
    pub fn rename_table(&self, from: &str, to: &str) -> Result<()> {
        self.check_writable()?;
        self.sync_log()?;
        // Not with `tables` held: an ALTER that holds the commit queue waits for that. Nobody prepares writes to a table that is
        // being renamed.
        self.check_decided(&self.table(from)?.with_parts())?;
        let mut tables = self.tables.write();
        let table = tables.by_name.get(from).cloned().ok_or_else(|| Error::NoSuchTable { name: from.into() })?;
        self.check_whole(&table)?;
        let mut renamed = vec![(table.clone(), to.to_string())];
        renamed.extend(table.indexes().iter().map(|i| (i.table.clone(), entry_table_name(to, i.def.id))));
        renamed.extend(table.tiers().iter().map(|t| (t.table.clone(), tier_table_name(to, &t.def.name))));
        if let Some((_, taken)) = renamed.iter().find(|(_, name)| tables.by_name.contains_key(name)) {
            return Err(Error::TableExists { name: taken.clone() });
        }
        let edit = |(table, name): &(Arc<Table>, String)| Edit::RenameTable { table: table.id, name: name.clone() };
        self.commit_manifest_in_turn(&renamed.iter().map(edit).collect::<Vec<_>>())?;
        renamed.into_iter().for_each(|(table, name)| tables.rename(&table, name));
        Ok(())
    }

    /// Removes all rows.
    pub fn truncate_table(&self, name: &str) -> Result<()> {
        self.check_writable()?;
        let emptied = self.table(name)?.with_parts();
        self.check_whole(&emptied[0])?;
        let _going = Going::begin(self, &emptied);
        let _alone: Vec<_> = emptied.iter().map(|t| t.maintenance.lock()).collect();
        self.sync_log_first()?;
        let _turn = self.apply_turn.lock();
        self.check_decided(&emptied)?;
        let flushed_seq = self.visible_seq.load(Ordering::Acquire);
        let restart = 1u64.to_le_bytes().to_vec();
        let mut edits = Vec::new();
        for t in &emptied {
            edits.push(Edit::Truncate { table: t.id, flushed_seq });
            let value = flushed_seq.to_le_bytes().to_vec();
            edits.push(Edit::SetProperty { table: t.id, name: TRUNCATED_PROPERTY.into(), value });
            for name in [HORIZON_PROPERTY, FLOORS_PROPERTY] {
                edits.push(Edit::SetProperty { table: t.id, name: name.into(), value: Vec::new() });
            }
        }
        edits.extend(emptied[0].forget_dirty_edits());
        edits.extend(emptied.iter().flat_map(|t| t.reset_gone()));
        edits.push(Edit::SetProperty { table: emptied[0].id, name: AUTO_INCREMENT_PROPERTY.into(), value: restart });
        self.commit_manifest_in_turn(&edits)?;
        for table in &emptied {
            self.empty(table);
            table.flushed_seq.store(flushed_seq, Ordering::Release);
            table.next_auto.store(1, Ordering::Relaxed);
            self.begin_again(table);
        }
        Ok(())
    }

    /// Older snapshots would find a table empty that was not, when its rows came from another one (ALTER TABLE) or an
    /// index was built from them. Temporary tables belong to one connection, which knows.
    pub(crate) fn begin_again(&self, table: &Table) {
        if !table.name.read().starts_with(TEMPORARY_PREFIX) {
            table.readable_from.store(self.snapshots.next_era(), Ordering::Release);
        }
    }

    /// Takes all rows out of a table that the manifest says is empty.
    pub(crate) fn empty(&self, table: &Table) {
        let before = table.version();
        table.install(|version| {
            let gate = version.gate.clone();
            gate.reset();
            *version = Version { gate, ..Version::without_rows(table.layout()) };
        });
        table.ring.lock().forget();
        table.chunks.lock().clear();
        table.refreshed.lock().clear();
        *table.newest.lock() = Newest::new(true);
        before.segments.values().for_each(|s| s.mark_obsolete());
        self.memory.active.fetch_sub(before.active.bytes() as i64, Ordering::Relaxed);
        let frozen: usize = before.frozen.iter().map(|(m, _)| m.bytes()).sum();
        self.memory.frozen.fetch_sub(frozen as i64, Ordering::Relaxed);
    }

    /// The table of a name.
    pub fn table(&self, name: &str) -> Result<Arc<Table>> {
        self.tables.read().by_name.get(name).cloned().ok_or_else(|| Error::NoSuchTable { name: name.into() })
    }

    /// Names of all tables.
    pub fn table_names(&self) -> Vec<String> {
        self.tables.read().by_id.values().filter(|t| !t.is_part()).map(|t| t.name()).collect()
    }

    /// A new transaction; it costs nothing until used.
    pub fn begin(self: &Arc<Self>) -> Txn {
        Txn::new(self.clone(), self.next_txn.fetch_add(1, Ordering::Relaxed))
    }

    /// Writes the memtables of one table to segments.
    pub fn flush_table(&self, table: &Arc<Table>) -> Result<()> {
        self.flush_table_unless(table, &mut || false)
    }

    /// The same for a statement: [`Error::Interrupted`] once `stop` says so.
    pub(crate) fn flush_table_unless(&self, table: &Arc<Table>, stop: &mut dyn FnMut() -> bool) -> Result<()> {
        for table in table.with_parts() {
            self.freeze(&table);
            self.flush_frozen(&table, stop)?;
        }
        self.trim_log()
    }

    /// Sets the next AUTO_INCREMENT value (ALTER TABLE ... AUTO_INCREMENT=n); it goes below what was given before, but
    /// not below an existing value.
    pub fn set_auto_increment(self: &Arc<Self>, table: &Arc<Table>, next: u64) -> Result<()> {
        self.check_writable()?;
        match self.largest_auto_increment(table)? {
            Some(largest) => table.next_auto.store(next.max(largest.saturating_add(1)), Ordering::Relaxed),
            None => _ = table.next_auto.fetch_max(next, Ordering::Relaxed),
        }
        self.commit_manifest(&table.counter_edits())
    }

    /// The largest AUTO_INCREMENT value in the table, 0 if there is none; `None` when no key has them in order.
    fn largest_auto_increment(self: &Arc<Self>, table: &Arc<Table>) -> Result<Option<u64>> {
        let schema = table.schema();
        let Some(auto) = schema.auto_increment else { return Ok(None) };
        let mut txn = self.begin();
        let first = |def: &crate::schema::IndexDef| def.columns.first().filter(|c| c.column == auto.column).copied();
        let (mut cursor, is_descending) = if schema.key.first() == Some(&auto.column) {
            (txn.cursor(table)?, false)
        } else if let Some((number, part)) =
            schema.indexes.iter().map(first).enumerate().find_map(|(n, c)| Some((n, c?)))
        {
            (txn.index_cursor(table, number)?, part.nulls_last)
        } else {
            return Ok(None);
        };
        cursor.seek(None, true, if is_descending { Direction::Forward } else { Direction::Backward })?;
        let Some(span) = cursor.next_span(1)? else { return Ok(Some(0)) };
        let mut row = Vec::new();
        span.group.push_row(span.row(0), &mut row)?;
        Ok(Some(auto_increment_of(&table.layout(), &row).unwrap_or(0)))
    }

    /// Writes all memtables to segments.
    pub fn flush_all(&self) -> Result<()> {
        for table in self.tables_in_memory() {
            self.freeze(&table);
            self.flush_frozen(&table, &mut || false)?;
        }
        self.trim_log()
    }

    /// Merges what is due, in the calling thread.
    pub fn merge_table(&self, table: &Table) -> Result<()> {
        self.merge_while_due(table, false, &mut |_| true)
    }

    /// Merges what is due until `stop` says so.
    pub(crate) fn merge_table_until(&self, table: &Table, stop: &dyn Fn() -> bool) -> Result<()> {
        match self.merge_while_due(table, false, &mut |_| !stop()) {
            Err(Error::Interrupted) => Ok(()),
            result => result,
        }
    }

    /// Merges all segments of a table (OPTIMIZE); `progress(done, total)` returns false to stop.
    pub fn optimize_table(&self, table: &Arc<Table>, progress: &mut dyn FnMut(u64, u64) -> bool) -> Result<()> {
        self.flush_table_unless(table, &mut || !progress(0, 0))?;
        let tables = table.with_parts();
        let total = tables.iter().map(|t| t.stats().rows).sum();
        let mut done = 0;
        tables.iter().try_for_each(|table| {
            self.merge_while_due(table, true, &mut |rows| {
                done += rows;
                progress(done.min(total), total)
            })
        })
    }

    /// Runs the merges that are due, or all that there could be. `progress(rows)` returns false to stop.
    pub(crate) fn merge_while_due(
        &self,
        table: &Table,
        everything: bool,
        progress: &mut dyn FnMut(u64) -> bool,
    ) -> Result<()> {
        if !table.is_index() {
            self.expire(table)?;
        }
        let mut may_join = true;
        loop {
            self.forget_dropped(table);
            let version = table.version();
            let has_time = table.schema().time.is_some();
            let pinned_chunks = table.pinned_chunks();
            let mut plans = self.chosen_merges(table, &version, &pinned_chunks, (everything, may_join));
            if plans.is_empty()
                && !has_time
                && pinned_chunks.is_empty()
                && self.largest_merge(table).is_none()
                && self.is_mostly_gone(table, &version)
            {
                plans.push(Plan {
                    chunk: 0,
                    segments: version.segments.keys().copied().collect(),
                    whole_chunk: true,
                    joins: Vec::new(),
                });
            }
            if plans.is_empty() {
                plans = self.merges_behind_floors(table, &version, &pinned_chunks)?;
            }
            if plans.is_empty() {
                let metas = version.segments.values().map(|s| s.meta());
                if waits_for_snapshots(metas.filter(|m| !pinned_chunks.contains(&m.chunk))) {
                    self.workers.ask_merge_later(table.id);
                }
                return Ok(());
            }
            let rounds = self.merge_rounds(table, &version, &plans);
            drop(version);
            for plans in rounds {
                let pinned = table.pinned_chunks();
                if plans.iter().flat_map(Plan::chunks).any(|chunk| pinned.contains(&chunk)) {
                    break;
                }
                if !self.run_merges_in_ring(table, plans, progress)? {
                    self.workers.ask_merge_later(table.id);
                    return Ok(());
                }
                let version = table.version();
                let is_left = |plan: &Plan| plan.segments.iter().any(|id| version.segments.contains_key(id));
                if plans.iter().any(|plan| !plan.joins.is_empty() && is_left(plan)) {
                    // Somebody writes for their chunks.
                    may_join = false;
                    self.workers.ask_merge_later(table.id);
                    break;
                }
            }
        }
    }

    /// The merges that are due by the sizes of segments.
    pub(crate) fn chosen_merges(
        &self,
        table: &Table,
        version: &Version,
        pinned: &BTreeSet<u64>,
        (everything, may_join): (bool, bool),
    ) -> Vec<Plan> {
        let metas = version.segments.values().map(|s| s.meta()).filter(|m| !pinned.contains(&m.chunk));
        let has_time = table.schema().time.is_some();
        if let Some(most) = self.largest_merge(table)
            && version.segments.values().map(|s| s.meta().bytes).sum::<u64>() > most
        {
            return choose_small(metas, most).into_iter().collect();
        }
        // Rows that somebody is about to bring are in chunks as they are now.
        let may_join = may_join && pinned.is_empty() && version.dropped.is_empty();
        if has_time && may_join && !table.chunks.lock().are_kept() {
            let mut worth = self.worth_of_chunk(table, &table.layout());
            if self.is_in_ring_of_bytes(table) {
                // A merge needs room, for which rows go.
                worth.few = worth.few.saturating_mul(limits::SPARSE_CHUNKS);
            }
            let joins = choose_joins(metas.clone(), worth);
            if !joins.is_empty() {
                return joins;
            }
        }
        choose(metas, has_time, everything, self.forget_until(table), self.is_in_ring_of_bytes(table))
    }

    /// Puts merges together that are done at once: many small ones cost few syncs then.
    fn merge_rounds<'a>(&self, table: &Table, version: &Version, mut plans: &'a [Plan]) -> Vec<&'a [Plan]> {
        // In a ring of bytes old and new segments need room side by side.
        let most = if self.is_in_ring_of_bytes(table) { 0 } else { limits::MERGE_ROUND_BYTES };
        let mut rounds = Vec::new();
        while !plans.is_empty() {
            let mut bytes = 0;
            let fits = |plan: &&Plan| {
                bytes += plan.bytes_in(version);
                bytes <= most
            };
            let (round, rest) = plans.split_at(plans.iter().take_while(fits).count().max(1));
            rounds.push(round);
            plans = rest;
        }
        rounds
    }

    /// Segments that no version has any more: their files go when nobody reads them. Whoever lets go last removes them,
    /// and a query must not have to wait for the removal of thousands of files: so they are kept in mind here.
    pub(crate) fn retire(&self, segments: impl Iterator<Item = Arc<LiveSegment>>) {
        let marked = segments.inspect(|segment| segment.mark_obsolete());
        if self.workers.is_background() {
            let now = Instant::now();
            self.retired.lock().extend(marked.map(|segment| (segment, now)));
        } else {
            marked.for_each(drop);
        }
    }

    /// Removes the files of retired segments that nobody reads.
    pub(crate) fn remove_retired(&self) {
        let mut retired = self.retired.lock();
        // Nobody can get hold of one that only the list has.
        let is_unread = |(segment, _): &(Arc<LiveSegment>, Instant)| Arc::strong_count(segment) == 1;
        let (unread, read): (Vec<_>, Vec<_>) = std::mem::take(&mut *retired).into_iter().partition(is_unread);
        *retired = read;
        drop(retired);
        drop(unread);
    }

    /// Lets go of dropped segments that no snapshot sees any more; the others are looked at again later.
    pub(crate) fn forget_dropped(&self, table: &Table) {
        if table.version().dropped.is_empty() {
            return;
        }
        let oldest = self.oldest_reader();
        let mut unseen = Vec::new();
        table.install(|version| {
            version.dropped.retain(|_, (segment, seq)| {
                let stays = oldest < *seq;
                unseen.extend((!stays).then(|| segment.clone()));
                stays
            });
        });
        self.retire(unseen.into_iter());
        if !table.version().dropped.is_empty() {
            self.workers.ask_merge_later(table.id);
        }
    }

    /// Reads and verifies everything of a table (CHECK TABLE); findings as text, empty when all is well.
    pub fn check_table(
        self: &Arc<Self>,
        table: &Arc<Table>,
        progress: &mut dyn FnMut(u64, u64) -> bool,
    ) -> Result<Vec<String>> {
        let versions: Vec<_> = table.with_parts().iter().map(|t| t.version()).collect();
        let segments: Vec<_> = versions.iter().flat_map(|v| v.segments.values()).collect();
        let total: u64 = segments.iter().map(|s| s.meta().bytes).sum();
        let mut findings = Vec::new();
        let mut done = 0;
        for segment in segments {
            match segment.verify(&mut |now, _| progress(done + now, total)) {
                Ok(found) => findings.extend(found),
                Err(Error::Interrupted) => return Err(Error::Interrupted),
                Err(error) => findings.push(error.to_string()),
            }
            done += segment.meta().bytes;
        }
        findings.dedup();
        if findings.is_empty() {
            self.check_indexes(table, &mut || progress(total, total), &mut findings)?;
        }
        Ok(findings)
    }

    /// Each index has as many entries as the table has rows, and each entry leads to a row.
    fn check_indexes(
        self: &Arc<Self>,
        table: &Arc<Table>,
        goes_on: &mut dyn FnMut() -> bool,
        findings: &mut Vec<String>,
    ) -> Result<()> {
        if table.indexes().is_empty() {
            return Ok(());
        }
        let mut txn = self.begin();
        let rows = count_rows(txn.cursor(table)?, goes_on)?;
        for (number, index) in table.indexes().iter().enumerate() {
            let entries = count_rows(txn.index_cursor(table, number)?, goes_on)?;
            if entries != rows {
                findings.push(format!("index '{}' leads to {entries} rows, the table has {rows}", index.def.name));
            }
        }
        Ok(())
    }

    /// The time, in microseconds since the epoch.
    pub(crate) fn clock_micros(&self) -> i64 {
        self.clock_micros.unwrap_or_else(|| {
            let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
            since.map_or(0, |since| i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
        })
    }

    /// `rrd_flush_log_at_trx_commit`.
    pub fn set_flush_log(&self, mode: FlushLog) {
        self.flush_log.store(flush_log_number(mode), Ordering::Relaxed);
    }

    pub(crate) fn flush_log(&self) -> FlushLog {
        match self.flush_log.load(Ordering::Relaxed) {
            0 => FlushLog::EverySecond,
            2 => FlushLog::Write,
            _ => FlushLog::Sync,
        }
    }

    /// `rrd_memtable_size`.
    pub fn set_memtable_bytes(&self, bytes: usize) {
        self.memory.limit.store(bytes, Ordering::Relaxed);
    }

    /// `rrd_cache_size`.
    pub fn set_cache_bytes(&self, bytes: usize) {
        self.cache.set_capacity(bytes);
    }

    /// The points at which a test may hold the engine's threads.
    pub fn pause_points(&self) -> &PausePoints {
        &self.pause_points
    }

    /// `rrd_lock_memory_size`: bytes that row locks may take. Without a call there is no limit.
    pub fn set_lock_bytes(&self, bytes: u64) {
        self.locks.set_bytes_limit(bytes);
    }

    /// Makes the transaction with this number, should it wait for a row lock, ask at once whether it was interrupted;
    /// from any thread.
    pub fn wake(&self, txn: u64) {
        self.locks.wake(txn);
    }

    /// Reports each wait for a row lock or for a prepared transaction: who waits and for whom, by [`Txn::id`].
    pub fn report_waits(&self, report: crate::lock::WaitReport) {
        self.locks.report_waits(report);
    }

    /// Why the engine is read-only, if it is.
    pub fn poisoned(&self) -> Option<String> {
        self.poison.get().cloned()
    }

    /// Makes the engine read-only: something happened after which writing on could lose data.
    pub fn poison(&self, reason: &str) {
        if self.poison.set(reason.into()).is_ok() {
            tracing::error!(reason, "the engine is read-only from now on");
        }
    }

    pub(crate) fn check_writable(&self) -> Result<()> {
        match self.poison.get() {
            Some(reason) => Err(Error::Poisoned { reason: reason.clone() }),
            None => Ok(()),
        }
    }

    /// Before a definition is dropped or renamed, what was logged is durable: the server drops a table once its rows were
    /// copied to another one, whose log records must not be younger on disk than the drop.
    pub(crate) fn sync_log(&self) -> Result<()> {
        self.wal.sync(self.wal.position()).inspect_err(|error| self.poison_unless_full(error))
    }

    /// Records edits; a failure that leaves the disk's state unknown poisons the engine.
    pub(crate) fn commit_manifest(&self, edits: &[Edit]) -> Result<()> {
        self.sync_log_first()?;
        self.commit_manifest_in_turn(edits)
    }

    /// The manifest must not get ahead of the log: a commit whose record is lost in a crash is repeated at its
    /// coordinator's word, and would then come after what the manifest says. Not while `apply_turn` is held, or `tables`, for
    /// which a holder of it may ask: whoever leads the log may be waiting for it.
    pub(crate) fn sync_log_first(&self) -> Result<()> {
        let logged = self.wal.position();
        if self.wal.synced() >= logged {
            return Ok(());
        }
        self.wal.sync(logged).inspect_err(|error| self.poison_unless_full(error))
    }

    /// [`Engine::commit_manifest`] for a holder of `apply_turn` or `tables`, who has seen to it that the log is durable as far
    /// as it matters.
    pub(crate) fn commit_manifest_in_turn(&self, edits: &[Edit]) -> Result<()> {
        self.manifest.commit(edits).inspect_err(|error| match self.manifest.is_poisoned() {
            true => self.poison(&error.to_string()),
            false => self.poison_unless_full(error),
        })
    }

    pub(crate) fn poison_unless_full(&self, error: &Error) {
        if !error.is_disk_full() && matches!(error, Error::Io { .. } | Error::Poisoned { .. }) {
            self.poison(&error.to_string());
        }
    }

    pub(crate) fn take_segment_id(&self) -> SegmentId {
        SegmentId(self.next_segment.fetch_add(1, Ordering::Relaxed))
    }

    pub(crate) fn take_snapshot(&self) -> Arc<Snapshot> {
        self.take_snapshot_for(0)
    }

    /// A snapshot that belongs to a transaction.
    pub(crate) fn take_snapshot_for(&self, txn: u64) -> Arc<Snapshot> {
        self.snapshots.take(txn, || self.visible_seq.load(Ordering::Acquire))
    }

    /// A snapshot that a transaction checks keys by.
    pub(crate) fn take_snapshot_for_checks(&self, txn: u64) -> Arc<Snapshot> {
        self.snapshots.take_for_checks(txn, || self.visible_seq.load(Ordering::Acquire))
    }

    pub(crate) fn open_snapshots(&self) -> Vec<u64> {
        self.snapshots.list(|| self.visible_seq.load(Ordering::Acquire))
    }

    /// What every snapshot sees, those included that are yet to be taken.
    pub(crate) fn oldest_snapshot(&self) -> u64 {
        self.snapshots.oldest(|| self.visible_seq.load(Ordering::Acquire))
    }

    /// The same of snapshots by which rows are read: what is behind the horizon for them, nobody will ask for.
    pub(crate) fn oldest_reader(&self) -> u64 {
        // Asked in this order: a snapshot that is taken in between sees what was visible before, or more.
        let visible = self.visible_seq.load(Ordering::Acquire);
        self.snapshots.oldest_reader().map_or(visible, |(seq, _)| seq)
    }

    /// Up to here every snapshot sees all commits, and all of the table's are in segments: what a merge may forget.
    pub(crate) fn forget_until(&self, table: &Table) -> u64 {
        let _turn = self.apply_turn.lock();
        if !table.version().dropped.is_empty() {
            return 0;
        }
        self.oldest_snapshot().min(self.complete_in_segments(table))
    }

    /// Up to here all commits of the table are in segments: older rows may wait in a memtable. Only while no commit is
    /// being applied.
    pub(crate) fn complete_in_segments(&self, table: &Table) -> u64 {
        let in_memory = table.version().memtables().any(|m| !m.is_empty());
        let complete = if in_memory { &table.flushed_seq } else { &self.visible_seq };
        complete.load(Ordering::Acquire)
    }

    pub(crate) fn all_tables(&self) -> Vec<Arc<Table>> {
        self.tables.read().by_id.values().cloned().collect()
    }

    pub(crate) fn table_by_id(&self, id: TableId) -> Option<Arc<Table>> {
        self.tables.read().by_id.get(&id).cloned()
    }

    /// The table of an index, by the schema of its entries; `None` for other tables.
    pub(crate) fn base_of_index(&self, entries: &Schema) -> Option<Arc<Table>> {
        entries.index_of.and_then(|of| self.table_by_id(TableId(of.table)))
    }
}

/// While it is there, flushes and compactions of some tables give up, instead of making a session wait that drops or empties
/// them.
struct Going<'a> {
    engine: &'a Engine,
    tables: &'a [Arc<Table>],
}

impl<'a> Going<'a> {
    fn begin(engine: &'a Engine, tables: &'a [Arc<Table>]) -> Going<'a> {
        for table in tables {
            table.going.fetch_add(1, Ordering::AcqRel);
        }
        engine.pause_points.pass("a table is about to go");
        Going { engine, tables }
    }
}

impl Drop for Going<'_> {
    fn drop(&mut self) {
        for table in self.tables {
            table.going.fetch_sub(1, Ordering::AcqRel);
            if !table.version().frozen.is_empty() {
                self.engine.workers.ask_flush(table.id);
            }
            self.engine.workers.ask_merge(table.id);
        }
    }
}

fn count_rows(mut cursor: Cursor, goes_on: &mut dyn FnMut() -> bool) -> Result<u64> {
    cursor.seek(None, true, Direction::Forward)?;
    let mut rows = 0;
    let mut ask_at = 0;
    while let Some(span) = cursor.next_span(limits::GROUP_ROWS)? {
        rows += u64::from(span.rows);
        if rows >= ask_at {
            ask_at = rows + limits::GROUP_ROWS as u64;
            if !goes_on() {
                return Err(Error::Interrupted);
            }
        }
    }
    Ok(rows)
}

impl Tables {
    /// Connects a table with the tables of its indexes and tiers.
    pub fn link_parts(&self, id: TableId) {
        let Some(table) = self.by_id.get(&id) else { return };
        let schema = table.schema();
        let entries_of = |index: u32| self.by_name.get(&entry_table_name(&table.name(), index)).cloned();
        let indexes = schema
            .indexes
            .iter()
            .filter_map(|def| Some(Arc::new(Index::new(&schema, id.0, def.clone(), entries_of(def.id)?))));
        let indexes: Arc<[Arc<Index>]> = indexes.collect();
        let gate = table.version().gate.clone();
        for index in indexes.iter() {
            index.table.layout().set_places(Places::of_entries(&schema, index.base_key()));
            index.table.install(|version| version.gate = gate.clone());
        }
        *table.indexes.write() = indexes;
        let table_of = |tier: &str| self.by_name.get(&tier_table_name(&table.name(), tier)).cloned();
        let tiers = Tier::of_table(&schema, |def| table_of(&def.name));
        Tier::link(table, &tiers);
        *table.tiers.write() = tiers.into();
    }

    pub fn insert(&mut self, table: Arc<Table>) {
        self.by_name.insert(table.name(), table.clone());
        self.by_id.insert(table.id, table);
    }

    /// Gives a table another name.
    pub fn rename(&mut self, table: &Arc<Table>, name: String) {
        self.by_name.remove(&table.name());
        *table.name.write() = name.clone();
        self.by_name.insert(name, table.clone());
    }

    fn remove(&mut self, table: &Table) {
        self.by_name.remove(&table.name());
        self.by_id.remove(&table.id);
    }
}

impl MemtableMemory {
    /// Bytes of all memtables.
    pub fn total(&self) -> usize {
        (self.active.load(Ordering::Relaxed) + self.frozen.load(Ordering::Relaxed)).max(0) as usize
    }
}

impl Version {
    /// The version of an empty table.
    pub(crate) fn without_rows(layout: Arc<RowLayout>) -> Version {
        Version::empty(Memtable::new(layout))
    }

    /// The version of a table that the manifest knows.
    pub(crate) fn of_state(
        layout: Arc<RowLayout>,
        fs: &Arc<dyn Fs>,
        cache: &Arc<BlockCache>,
        dir: &std::path::Path,
        id: TableId,
        state: &TableState,
    ) -> Version {
        let mut version = Version::without_rows(layout);
        let segments = state.segments.values().map(|meta| LiveSegment::open(fs, cache, dir, id, meta.clone()));
        version.segments.extend(segments);
        version
    }
}

impl Table {
    /// A table; `rows` says what is in it.
    pub(crate) fn new(
        id: TableId,
        dir: PathBuf,
        name: &str,
        schema: Arc<Schema>,
        rows: impl FnOnce(Arc<RowLayout>) -> Version,
        is_empty: bool,
    ) -> Table {
        let layout = Arc::new(RowLayout::new(schema));
        let version = Arc::new(rows(layout.clone()));
        Table {
            gate: version.gate.clone(),
            id,
            dir,
            name: RwLock::new(name.into()),
            definition: RwLock::new(Vec::new()),
            version: RwLock::new(version),
            layout: RwLock::new(layout),
            chunks: Mutex::new(ChunkMap::default()),
            newest: Mutex::new(Newest::new(is_empty)),
            next_row_number: AtomicU64::new(1),
            next_auto: AtomicU64::new(1),
            indexes: RwLock::new(Arc::new([])),
            tiers: RwLock::new(Arc::new([])),
            refreshed: Mutex::default(),
            dependents: RwLock::default(),
            gone_until: AtomicU64::new(0),
            newest_seen: AtomicU64::new(0),
            readable_from: AtomicU64::new(0),
            last_commit_seq: AtomicU64::new(0),
            last_rows_seq: AtomicU64::new(0),
            written_at: AtomicI64::new(0),
            log_bases: Mutex::default(),
            flushed_seq: AtomicU64::new(0),
            maintenance: Maintenance::default(),
            going: AtomicUsize::new(0),
            pinned: Mutex::default(),
            ring: Mutex::default(),
            ring_look: Mutex::default(),
            making_room: Mutex::default(),
            fallen_rows: AtomicU64::new(0),
            fallen_seen: Mutex::default(),
            last_flush: Mutex::default(),
            pushed_until: AtomicU64::new(0),
            refused_rows: AtomicU64::new(0),
            dropped: AtomicBool::new(false),
        }
    }
}

fn flush_log_number(mode: FlushLog) -> u8 {
    match mode {
        FlushLog::EverySecond => 0,
        FlushLog::Sync => 1,
        FlushLog::Write => 2,
    }
}
