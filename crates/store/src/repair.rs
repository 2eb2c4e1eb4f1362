//! REPAIR TABLE: saves what can be read of damaged segments, says what is lost, rebuilds indexes.
//!
//! Only segments in which something is found are written anew (segment/salvage.rs says what is saved). An index holds
//! nothing that the rows do not: when one is damaged, or rows were lost, its entries are made again from the rows. A tier may
//! have buckets whose rows are long gone: what can be read of them is saved, and those whose rows are there are computed anew
//! by the next flush; until then they are computed when they are read. One manifest edit puts all of it in the place of what there was. The damaged files stay beside the new ones, with
//! `.damaged` behind their names, until the table is dropped or a person removes them.
//!
//! In a ring of bytes that is done within the room that there is; if it is too little, more is made and all begins again.
//!
//! Nobody may write to the table meanwhile: the server's locks see to that, and a commit that comes in between all the
//! same makes the repair fail without effect.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rrd_codec::Effort;

use crate::cursor::{Cursor, Direction};
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::fs::Fs;
use crate::fs::space::Room;
use crate::index::Index;
use crate::limits;
use crate::live::LiveSegment;
use crate::manifest::edit::Edit;
use crate::memtable::Key;
use crate::newest::Newest;
use crate::own::PrivateSegment;
use crate::ring::{WRITE_TRIES, too_small};
use crate::row::RowLayout;
use crate::schema::Schema;
use crate::segment::{Loss, SegmentMeta, SegmentWriter};
use crate::snapshot::Snapshot;
use crate::table::{TRUNCATED_PROPERTY, Table};
use crate::tier::{Tier, build_edit};
use crate::version::Version;
use crate::write_out::OutRows;

#[cfg(test)]
mod tests;

/// What is behind the name of a file that was replaced because it was damaged.
const DAMAGED: &str = ".damaged";

/// What a repair did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Repaired {
    /// What could not be saved.
    pub losses: Vec<Loss>,
    /// Segments that were written anew or given up.
    pub segments: u64,
    /// Names of indexes that were made again.
    pub indexes: Vec<String>,
    /// Names of tiers with damaged segments, and how many of their buckets were lost, wholly or in part.
    pub tiers: Vec<(String, u64)>,
    /// Entries that occur twice in a unique index: (its name, how many).
    pub repeated: Vec<(String, u64)>,
}

/// A segment and what stands in for it; `None` if nothing of it was saved.
struct Swap {
    table: Arc<Table>,
    old: Arc<LiveSegment>,
    new: Option<SegmentMeta>,
}

impl Engine {
    /// Repairs a table. `progress(bytes done, bytes)` returns false to stop, which has no effect but on time.
    pub fn repair_table(
        self: &Arc<Self>,
        table: &Arc<Table>,
        progress: &mut dyn FnMut(u64, u64) -> bool,
    ) -> Result<Repaired> {
        let mut takes = None;
        for _ in 0..WRITE_TRIES {
            self.check_writable()?;
            // With the locks that a repair holds no room can be made.
            let room = self.make_room_beside_rows(table, takes)?;
            if let Some(repaired) = self.try_repair(table, room.as_ref(), progress)? {
                return Ok(repaired);
            }
            takes = room.map(|room| room.wanted());
        }
        Err(too_small(table, "what is written anew"))
    }

    /// None if there is no room for what has to be written.
    fn try_repair(
        self: &Arc<Self>,
        table: &Arc<Table>,
        room: Option<&Arc<Room>>,
        progress: &mut dyn FnMut(u64, u64) -> bool,
    ) -> Result<Option<Repaired>> {
        let tables = table.with_parts();
        let mut stop = || !progress(0, 0);
        let alone = tables.iter().map(|t| t.maintenance.lock_unless(&mut stop));
        let _alone = alone.collect::<Result<Vec<_>>>()?;
        // The horizon may move meanwhile, which takes no segment away.
        let before: Vec<u64> = tables.iter().map(|t| t.last_rows_seq.load(Ordering::Acquire)).collect();
        let mut repaired = Repaired::default();
        let mut swaps = Vec::new();
        let result = self.prepare_repair(table, room, &mut repaired, &mut swaps, progress).and_then(|entries| {
            let is_unchanged =
                || tables.iter().zip(&before).all(|(t, &seq)| t.last_rows_seq.load(Ordering::Acquire) == seq);
            if room.is_some_and(|room| room.is_over()) {
                return Ok(false);
            }
            self.commit_repair(table, &swaps, &entries, &is_unchanged).map(|()| true)
        });
        let take_back = |swaps: Vec<Swap>| {
            swaps.iter().for_each(|Swap { table, new, .. }| self.remove_refused(table, new.as_slice()));
        };
        match result {
            Ok(false) => {
                take_back(swaps);
                Ok(None)
            }
            Ok(true) => {
                swaps.iter().for_each(|swap| self.keep_aside(&swap.old));
                tables.iter().for_each(|t| self.workers.ask_merge(t.id));
                if !repaired.tiers.is_empty() {
                    self.workers.ask_flush(table.id);
                }
                Ok(Some(repaired))
            }
            Err(error) => {
                take_back(swaps);
                Err(error)
            }
        }
    }

    /// Writes new segments for damaged ones and entries for indexes that need them, as far as there is room.
    fn prepare_repair(
        self: &Arc<Self>,
        table: &Arc<Table>,
        room: Option<&Arc<Room>>,
        repaired: &mut Repaired,
        swaps: &mut Vec<Swap>,
        progress: &mut dyn FnMut(u64, u64) -> bool,
    ) -> Result<Vec<Option<Vec<PrivateSegment>>>> {
        let indexes = table.indexes();
        let versions: Vec<_> = table.with_parts().iter().map(|t| t.version()).collect();
        let bytes = |version: &Version| version.segments.values().map(|s| s.meta().bytes).sum::<u64>();
        let total: u64 = versions.iter().map(|v| bytes(v)).sum();
        let mut done = 0;
        for segment in versions[0].segments.values() {
            if !is_whole(segment, &mut |now| progress(done + now, total))? {
                let (new, losses) = self.salvage(table, room, segment, &mut |now| progress(done + now, total))?;
                repaired.segments += 1;
                repaired.losses.extend(losses);
                swaps.push(Swap { table: table.clone(), old: segment.clone(), new });
            }
            done += segment.meta().bytes;
        }
        if room.is_some_and(|room| room.is_over()) {
            // Entries are made of what is in the new segments.
            return Ok(Vec::new());
        }
        let mut rows = Version::clone(&versions[0]);
        self.swap(table, &mut rows, swaps);
        let rows = Arc::new(rows);
        let mut entries = Vec::with_capacity(indexes.len());
        for (index, version) in indexes.iter().zip(&versions[1..]) {
            let mut is_sound = repaired.losses.is_empty();
            for segment in version.segments.values() {
                is_sound = is_sound && is_whole(segment, &mut |now| progress(done + now, total))?;
                done += segment.meta().bytes;
            }
            is_sound = is_sound && self.leads_to_all(table, &rows, index, version)?;
            entries.push(if is_sound { None } else { Some(self.rebuild(table, room, (&rows, index), repaired)?) });
        }
        for (tier, version) in table.tiers().iter().zip(&versions[1 + indexes.len()..]) {
            let mut lost = None;
            for segment in version.segments.values() {
                if !is_whole(segment, &mut |now| progress(done + now, total))? {
                    let (new, losses) =
                        self.salvage(&tier.table, room, segment, &mut |now| progress(done + now, total))?;
                    repaired.segments += 1;
                    *lost.get_or_insert(0) += losses.iter().map(|loss| loss.rows).sum::<u64>();
                    swaps.push(Swap { table: tier.table.clone(), old: segment.clone(), new });
                }
                done += segment.meta().bytes;
            }
            repaired.tiers.extend(lost.map(|lost| (tier.def.name.clone(), lost)));
        }
        Ok(entries)
    }

    /// Writes what can be saved of a segment to a new one.
    fn salvage(
        &self,
        table: &Table,
        room: Option<&Arc<Room>>,
        segment: &Arc<LiveSegment>,
        progress: &mut dyn FnMut(u64) -> bool,
    ) -> Result<(Option<SegmentMeta>, Vec<Loss>)> {
        let meta = segment.meta();
        let schema = self.schema_of(table, meta.schema_version)?;
        let nullable = columns_that_may_be_null(&schema, &table.schema());
        let layout = Arc::new(RowLayout::new(schema));
        let id = self.take_segment_id();
        let out = SegmentWriter::create(&self.fs, &table.dir, id, table.id, layout.clone(), Effort::Fast)?;
        let mut out = out.within(room.cloned());
        let losses = match segment.salvage(&layout, &|position| nullable[position], &mut out, progress) {
            Ok(losses) => losses,
            Err(error) => {
                out.abandon()?;
                return Err(error);
            }
        };
        if out.rows() == 0 {
            out.abandon()?;
            return Ok((None, losses));
        }
        // Not sealed: a merge that follows forgets what it can, and compresses as the table wants it.
        Ok((Some(out.finish(meta.chunk, meta.base_seq, false)?), losses))
    }

    fn schema_of(&self, table: &Table, version: u32) -> Result<Arc<Schema>> {
        let current = table.schema();
        if current.version == version {
            return Ok(current);
        }
        let state = self.manifest.state();
        let old = state.tables.get(&table.id).and_then(|t| t.old_schemas.get(&version).cloned());
        old.ok_or_else(|| Error::InvalidInput(format!("table '{}' has no schema version {version}", table.name())))
    }

    fn swap(&self, table: &Table, version: &mut Version, swaps: &[Swap]) {
        for swap in swaps.iter().filter(|swap| swap.table.is_same(table)) {
            version.segments.remove(swap.old.meta().id);
            if let Some(meta) = &swap.new {
                let segment = LiveSegment::open(&self.fs, &self.cache, &table.dir, table.id, meta.clone());
                version.segments.insert(segment);
            }
        }
    }

    /// Whether an index has as many entries as there are rows, and each leads to one.
    fn leads_to_all(
        &self,
        table: &Table,
        rows: &Arc<Version>,
        index: &Arc<Index>,
        entries: &Arc<Version>,
    ) -> Result<bool> {
        let walk = || Cursor::new(rows.clone(), table.layout(), Snapshot::latest(), None);
        let entries = Cursor::new(entries.clone(), index.table.layout(), Snapshot::latest(), None);
        let wanted = count_rows(walk())?;
        match count_rows(entries.leading_to(walk(), index.clone())) {
            Err(Error::Corruption { .. }) => Ok(false),
            found => Ok(found? == wanted),
        }
    }

    /// Makes the entries of an index again.
    fn rebuild(
        &self,
        table: &Table,
        room: Option<&Arc<Room>>,
        (rows, index): (&Arc<Version>, &Arc<Index>),
        repaired: &mut Repaired,
    ) -> Result<Vec<PrivateSegment>> {
        let layout = table.layout();
        let entry_layout = index.table.layout();
        let mut cursor = Cursor::new(rows.clone(), layout.clone(), Snapshot::latest(), None);
        cursor.seek(None, true, Direction::Forward)?;
        let mut segments = Vec::new();
        let mut entries: BTreeMap<Key, Vec<u8>> = BTreeMap::new();
        let (mut bytes, mut repeated) = (0, 0);
        let mut row = Vec::new();
        while let Some(span) = cursor.next_span(limits::GROUP_ROWS)? {
            for n in 0..span.rows {
                row.clear();
                span.group.push_row(span.row(n), &mut row)?;
                let mut entry = Vec::new();
                index.push_entry(&layout, &row, &mut entry)?;
                let mut key = Key::new();
                entry_layout.push_key(&entry, &mut key);
                bytes += entry.len() + key.len();
                repeated += u64::from(entries.insert(key, entry).is_some());
            }
            if bytes > limits::BULK_RUN_BYTES {
                segments.extend(self.write_run_of_entries(index, room, &entry_layout, &entries)?);
                entries.clear();
                bytes = 0;
            }
        }
        segments.extend(self.write_run_of_entries(index, room, &entry_layout, &entries)?);
        repaired.indexes.push(index.def.name.clone());
        if repeated > 0 {
            repaired.repeated.push((index.def.name.clone(), repeated));
        }
        Ok(segments)
    }

    fn write_run_of_entries(
        &self,
        index: &Index,
        room: Option<&Arc<Room>>,
        layout: &Arc<RowLayout>,
        entries: &BTreeMap<Key, Vec<u8>>,
    ) -> Result<Vec<PrivateSegment>> {
        let rows = OutRows::new(entries.values().map(Vec::as_slice).collect(), None);
        self.write_private(&index.table, layout, &rows, None, room)
    }

    /// Puts the new segments and entries in the place of the old ones.
    fn commit_repair(
        &self,
        table: &Arc<Table>,
        swaps: &[Swap],
        entries: &[Option<Vec<PrivateSegment>>],
        is_unchanged: &dyn Fn() -> bool,
    ) -> Result<()> {
        let _gate = self.commit_gate.write();
        if !is_unchanged() {
            return Err(Error::Conflict);
        }
        self.sync_log()?;
        let _turn = self.apply_turn.lock();
        let seq = self.visible_seq.load(Ordering::Acquire);
        let indexes = table.indexes();
        let rebuilt = || indexes.iter().zip(entries).filter_map(|(i, new)| new.as_ref().map(|new| (&i.table, new)));
        // What was lost may have borne the largest number, which must not be given again.
        let mut edits = vec![Edit::NextSeq { seq: seq + 1 }];
        for Swap { table, old, new } in swaps {
            edits.extend(new.iter().map(|meta| Edit::AddSegment { table: table.id, meta: meta.clone() }));
            edits.push(Edit::RemoveSegment { table: table.id, segment: old.meta().id });
        }
        let tiers = table.tiers();
        let is_damaged = |tier: &Tier| swaps.iter().any(|swap| swap.table.is_same(&tier.table));
        let mut builds: Vec<u32> = tiers.iter().filter(|tier| is_damaged(tier)).map(|tier| tier.def.id).collect();
        if !builds.is_empty() {
            builds.extend(table.version().active.touched().iter().flat_map(|touched| touched.builds()));
            edits.push(build_edit(table, &builds));
        }
        for (index, new) in rebuilt() {
            edits.push(Edit::Truncate { table: index.id, flushed_seq: seq });
            let value = seq.to_le_bytes().to_vec();
            edits.push(Edit::SetProperty { table: index.id, name: TRUNCATED_PROPERTY.into(), value });
            edits.extend(index.edits_for(&new.iter().map(|p| p.segment.meta().clone()).collect::<Vec<_>>()));
        }
        if swaps.is_empty() && edits.len() == 1 {
            return Ok(());
        }
        self.fs.sync_dir(&table.dir)?;
        tiers.iter().filter(|tier| is_damaged(tier)).try_for_each(|tier| self.fs.sync_dir(&tier.table.dir))?;
        swaps.iter().for_each(|swap| link_aside(&*self.fs, swap.old.path()));
        let committed = self.commit_manifest_in_turn(&edits);
        if committed.is_ok() || self.manifest.is_poisoned() {
            rebuilt().for_each(|(_, new)| new.iter().for_each(|p| p.segment.keep()));
        }
        committed?;
        table.install(|version| self.swap(table, version, swaps));
        for tier in tiers.iter().filter(|tier| is_damaged(tier)) {
            tier.table.install(|version| self.swap(&tier.table, version, swaps));
        }
        if let Some(mut touched) = table.version().active.touched() {
            builds.iter().for_each(|id| touched.note_build(*id, seq));
        }
        for (index, new) in rebuilt() {
            let chunks = std::mem::take(&mut *index.chunks.lock());
            self.empty(index);
            // The new entries are in the chunks that were there; those that are not used do no harm.
            *index.chunks.lock() = chunks;
            *index.newest.lock() = Newest::new(false);
            index.flushed_seq.store(seq, Ordering::Release);
            index.install(|version| version.segments.extend(new.iter().map(|p| p.segment.clone())));
        }
        Ok(())
    }

    /// The old file of a segment goes, but for its second name; without one it is renamed.
    fn keep_aside(&self, old: &LiveSegment) {
        self.cache.evict_segment(old.meta().id);
        let aside = aside(old.path());
        let done = match self.fs.exists(&aside) {
            true => self.fs.remove(old.path()),
            false if self.fs.exists(old.path()) => self.fs.rename(old.path(), &aside),
            false => Ok(()),
        };
        if let Err(error) = done {
            tracing::warn!(%error, "could not keep a damaged file aside");
        }
    }
}

/// Gives a damaged file a second name before the manifest forgets it: a start in between would remove it. Where that
/// cannot be done it is renamed afterwards.
fn link_aside(fs: &dyn Fs, path: &Path) {
    if let Err(error) = fs.hard_link(path, &aside(path)) {
        tracing::info!(%error, "a damaged file gets no second name");
    }
}

fn aside(path: &Path) -> std::path::PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(DAMAGED);
    path.with_file_name(name)
}

/// Whether a file of a table's folder was kept aside by a repair.
pub(crate) fn is_kept_aside(name: &str) -> bool {
    name.ends_with(DAMAGED)
}

/// Removes what repairs kept aside: the table is gone.
pub(crate) fn remove_kept_aside(fs: &dyn Fs, dir: &Path) -> Result<()> {
    if !fs.exists(dir) {
        return Ok(());
    }
    fs.list(dir)?.iter().filter(|e| is_kept_aside(&e.name)).try_for_each(|e| fs.remove(&dir.join(&e.name)))
}

fn is_whole(segment: &LiveSegment, progress: &mut dyn FnMut(u64) -> bool) -> Result<bool> {
    match segment.verify(&mut |now, _| progress(now)) {
        Ok(findings) => Ok(findings.is_empty()),
        Err(Error::Interrupted) => Err(Error::Interrupted),
        Err(_) => Ok(false),
    }
}

/// For which columns NULL may stand for a value that is lost. Not where another lane says the same in other words, as
/// the sort key of a text in an index does: the two would contradict each other.
fn columns_that_may_be_null(schema: &Schema, now: &Schema) -> Vec<bool> {
    let in_key = |position: usize| schema.key.contains(&(position as u16));
    let has_sort_keys = schema.columns.iter().enumerate().any(|(position, c)| c.hidden && !in_key(position));
    let may_still = |id| now.columns.iter().find(|c| c.id == id).is_none_or(|c| c.nullable);
    schema.columns.iter().map(|c| c.nullable && may_still(c.id) && !c.hidden && !has_sort_keys).collect()
}

fn count_rows(mut cursor: Cursor) -> Result<u64> {
    cursor.seek(None, true, Direction::Forward)?;
    let mut rows = 0;
    while let Some(span) = cursor.next_span(limits::GROUP_ROWS)? {
        rows += u64::from(span.rows);
    }
    Ok(rows)
}
