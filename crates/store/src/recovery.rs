//! Start-up: reads the manifest, replays the log into memtables, removes files that nothing refers to.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use hashbrown::HashMap;

use crate::alter::DEFINITION_PROPERTY;
use crate::cache::BlockCache;
use crate::chunk::ChunkMap;
use crate::config::Config;
use crate::engine::{Parts, Tables};
use crate::error::{Error, Result};
use crate::fs::Fs;
use crate::horizon::{Gate, Position};
use crate::limits;
use crate::live::LiveSegment;
use crate::log_base;
use crate::log_record::{self, LoggedTable, LoggedWrite, Record};
use crate::manifest::Manifest;
use crate::manifest::edit::{Edit, State, TableId};
use crate::memtable::Key;
use crate::newest::Newest;
use crate::prepare::{Prepared, Replayed, missing_links};
use crate::ring::{FLOORS_PROPERTY, HORIZON_PROPERTY, decode_floors};
use crate::segment::SegmentId;
use crate::table::{AUTO_INCREMENT_PROPERTY, Table};
use crate::version::Version;
use crate::wal::{Lsn, Wal};

#[cfg(test)]
mod tests;

/// The lock file: one server at a time.
const LOCK_FILE: &str = "rrd.lock";

/// Reads the data folder (made if missing).
pub(crate) fn read_folder(config: &Config, fs: Arc<dyn Fs>) -> Result<Parts> {
    crate::folder::check_may_begin(&*fs, &config.dir)?;
    fs.create_dir(&config.dir)?;
    if let Some(parent) = config.dir.parent() {
        fs.sync_dir(parent)?;
    }
    let lock = fs.lock(&config.dir.join(LOCK_FILE))?;
    let (manifest, state) = Manifest::open(fs.clone(), &config.dir)?;
    let cache = Arc::new(BlockCache::new(config.cache_bytes));
    let tables = open_tables(config, &fs, &cache, &state)?;
    let mut newest_seq = newest_seq(&state);
    let log_dir = config.dir.join("log");
    let mut prepared = Replayed::default();
    let mut links = Vec::new();
    // With the links.
    let mut linked = state.clone();
    let mut passed = Passed::default();
    let wal = Wal::open(fs.clone(), &log_dir, &mut |lsn, record| {
        let damaged =
            || Error::corrupt(&log_dir, lsn.0, "the log holds a record that makes no sense; restore from a backup");
        match log_record::decode(record).ok_or_else(damaged)? {
            Record::Commit { seq, .. } | Record::CommitPrepared { seq, .. } if seq >= limits::MAX_NUMBER => {
                return Err(damaged());
            }
            Record::Commit { seq, tables: writes } => {
                newest_seq = newest_seq.max(seq);
                writes.iter().try_for_each(|t| replay(&tables, (seq, lsn), t, &mut passed)).ok_or_else(damaged)?;
            }
            Record::Prepare { xid, body, edits } => prepared.prepare(xid, lsn, body, edits),
            Record::RollbackPrepared { xid } => drop(prepared.decided(xid)),
            Record::CommitPrepared { first_seq, seq, xid } => {
                newest_seq = newest_seq.max(seq);
                // No prepare record: its log file is gone, because everything of it is in segments.
                let Some(open) = prepared.decided(xid) else { return Ok(()) };
                let writes = log_record::decode_body(&open.body).ok_or_else(damaged)?;
                writes.iter().try_for_each(|t| replay(&tables, (seq, open.lsn), t, &mut passed)).ok_or_else(damaged)?;
                let edits = crate::manifest::decode_edits(&open.edits).ok_or_else(damaged)?;
                for edit in missing_links(&state, edits, first_seq, seq) {
                    let fitted = linked.apply_fitted(&edit).map_err(|error| of_table(&state, &edit, error))?;
                    links.extend(fitted.unwrap_or_else(|| vec![edit]));
                }
            }
        }
        Ok(())
    })?;
    // The commits to come begin anew.
    tables.by_id.values().for_each(|table| table.log_bases.lock().forget());
    let unrefreshed = |tables: &Tables| {
        for (id, entry) in &state.tables {
            tables.by_id.get(id).iter().for_each(|table| {
                table.restore_gone(&entry.properties);
                table.note_unrefreshed(&entry.properties);
            });
        }
    };
    crate::shutdown::check_note(&*fs, &config.dir, wal.position())?;
    // Chunks of what is still prepared must not overlap with others either.
    for edit in prepared.chunks() {
        links.extend(linked.apply_fitted(&edit).map_err(|error| of_table(&state, &edit, error))?.unwrap_or_default());
    }
    if !links.is_empty() {
        manifest.commit(&links)?;
        link(&tables, &fs, &cache, &links);
    }
    unrefreshed(&tables);
    let open_segment = |table: &Arc<Table>, edit: &Edit| match edit {
        Edit::AddSegment { meta, .. } => {
            let mut meta = meta.clone();
            meta.chunk = table.chunks.lock().find(meta.chunk).map_or(meta.chunk, |chunk| chunk.start);
            Some(LiveSegment::open(&fs, &cache, &table.dir, table.id, meta))
        }
        Edit::AddChunk { span, .. } => {
            let mut chunks = table.chunks.lock();
            if chunks.find(span.start).is_none() {
                chunks.restore(*span);
            }
            None
        }
        _ => None,
    };
    let prepared = prepared
        .into_prepared(&tables, &open_segment)
        .ok_or_else(|| Error::corrupt(&log_dir, 0, "a prepared transaction makes no sense"))?;
    remove_leftovers(config, &*fs, &tables, &prepared)?;
    fs.sync_dir(&config.dir)?;
    Ok(Parts {
        lock,
        cache,
        wal,
        manifest,
        tables,
        next_seq: newest_seq + 1,
        next_table: state.next_table.max(1),
        next_segment: next_segment(&state, &links, &prepared),
        prepared,
        fs,
    })
}

/// Names the table to which an edit of the log does not fit.
fn of_table(state: &State, edit: &Edit, error: Error) -> Error {
    let name = edit.table().and_then(|id| state.tables.get(&id)).map_or("", |table| &table.name);
    Error::InvalidInput(format!(
        "table '{name}': the log does not fit to the manifest ({error}); restore from a backup"
    ))
}

/// Segments that a replayed commit brought become part of their tables.
fn link(tables: &Tables, fs: &Arc<dyn Fs>, cache: &Arc<BlockCache>, links: &[Edit]) {
    for edit in links {
        let Some(table) = edit.table().and_then(|id| tables.by_id.get(&id)) else { continue };
        table.note_counter(edit);
        match edit {
            Edit::AddChunk { span, .. } => table.chunks.lock().restore(*span),
            // For chunks that become one: the segment comes back in that.
            Edit::RemoveChunk { start, .. } => table.chunks.lock().remove(*start),
            Edit::RemoveSegment { segment, .. } => {
                table.install(|v| drop(v.segments.remove(*segment)));
            }
            Edit::AddSegment { meta, .. } => {
                let segment = LiveSegment::open(fs, cache, &table.dir, table.id, meta.clone());
                table.install(|v| v.segments.insert(segment));
                *table.newest.lock() = Newest::new(false);
            }
            _ => {}
        }
    }
}

fn next_segment(state: &State, links: &[Edit], prepared: &[Arc<Prepared>]) -> u64 {
    let linked = links.iter().filter_map(|edit| match edit {
        Edit::AddSegment { meta, .. } => Some(meta.id.0 + 1),
        _ => None,
    });
    let kept = prepared
        .iter()
        .flat_map(|p| &p.tables)
        .flat_map(|t| t.own.read().private.iter().map(|s| s.segment.meta().id.0 + 1).collect::<Vec<_>>());
    linked.chain(kept).max().unwrap_or(1).max(state.next_segment).max(1)
}

/// Removes files and folders that neither the manifest nor a prepared transaction refers to.
fn remove_leftovers(config: &Config, fs: &dyn Fs, tables: &Tables, prepared: &[Arc<Prepared>]) -> Result<()> {
    for table in tables.by_id.values() {
        let mut used: BTreeSet<SegmentId> = table.version().segments.keys().copied().collect();
        for t in prepared.iter().flat_map(|p| &p.tables).filter(|t| t.table.id == table.id) {
            used.extend(t.own.read().private.iter().map(|p| p.segment.meta().id));
        }
        remove_unused(fs, &table.dir, &used)?;
    }
    let live: BTreeSet<String> = tables.by_id.keys().map(|id| id.dir_name()).collect();
    for entry in fs.list(&config.dir)? {
        if entry.is_dir && entry.name.starts_with("table-") && !live.contains(&entry.name) {
            let folder = config.dir.join(&entry.name);
            remove_unused(fs, &folder, &BTreeSet::new())?;
            crate::repair::remove_kept_aside(fs, &folder)?;
            if let Err(error) = fs.remove_dir(&folder) {
                tracing::warn!(%error, "the folder of a dropped table stays: it has files that are not the engine's");
            }
        }
    }
    Ok(())
}

/// The largest sequence number that anything in the manifest has.
fn newest_seq(state: &State) -> u64 {
    let of_tables = state.tables.values().flat_map(|t| t.segments.values().map(|s| s.max_seq).chain([t.flushed_seq]));
    of_tables.max().unwrap_or(0).max(state.next_seq.saturating_sub(1))
}

fn open_tables(config: &Config, fs: &Arc<dyn Fs>, cache: &Arc<BlockCache>, state: &State) -> Result<Tables> {
    let mut tables = Tables::default();
    for (&id, entry) in &state.tables {
        let dir = config.dir.join(id.dir_name());
        let has_rows = !entry.segments.is_empty();
        let rows = |layout| Version::of_state(layout, fs, cache, &dir, id, entry);
        let table = Table::new(id, dir.clone(), &entry.name, entry.schema.clone(), rows, !has_rows);
        *table.chunks.lock() = ChunkMap::new(entry.chunks.clone());
        table.next_row_number.store(entry.next_row_number.max(1), Ordering::Relaxed);
        if let Some(value) = entry.properties.get(AUTO_INCREMENT_PROPERTY).and_then(|v| v.as_slice().try_into().ok()) {
            table.next_auto.store(u64::from_le_bytes(value), Ordering::Relaxed);
        }
        if let Some(definition) = entry.properties.get(DEFINITION_PROPERTY) {
            table.definition.write().clone_from(definition);
        }
        if let Some(position) = entry.properties.get(HORIZON_PROPERTY).and_then(|v| Position::decode(v)) {
            table.version().gate.note_kept(position.clone());
            table.version().gate.restore(position);
        }
        if let Some(floors) = entry.properties.get(FLOORS_PROPERTY).and_then(|v| decode_floors(v)) {
            floors.into_iter().for_each(|(series, key)| table.version().gate.restore_floor(&series, key));
        }
        table.flushed_seq.store(entry.flushed_seq, Ordering::Relaxed);
        tables.insert(Arc::new(table));
    }
    for &id in state.tables.keys() {
        tables.link_parts(id);
    }
    Ok(tables)
}

/// Removes segments that an interrupted flush, merge or transaction left behind.
fn remove_unused(fs: &dyn Fs, dir: &Path, used: &BTreeSet<SegmentId>) -> Result<()> {
    let names: BTreeSet<String> = used.iter().map(|id| id.file_name()).collect();
    if !fs.exists(dir) {
        return Ok(()); // Its first segment that is missed says so.
    }
    for entry in fs.list(dir)? {
        let is_aside = crate::repair::is_kept_aside(&entry.name);
        if entry.name.starts_with("seg-") && !is_aside && !names.contains(&entry.name) {
            fs.remove(&dir.join(&entry.name))?;
        }
    }
    Ok(())
}

/// What was gone at each commit, as far as the log says: the manifest may know later horizons.
type Passed = HashMap<TableId, Gate>;

/// Applies a logged commit to one table; `None` if its bytes make no sense.
fn replay(tables: &Tables, (seq, lsn): (u64, Lsn), logged: &LoggedTable<'_>, passed: &mut Passed) -> Option<()> {
    // Dropped since.
    let Some(table) = tables.by_id.get(&logged.table) else { return Some(()) };
    let passed = passed.entry(logged.table).or_default();
    let layout = table.layout();
    let is_known = layout.schema().version == logged.schema_version;
    let read_kept = |kept| log_base::decode(kept, &layout, &mut table.log_bases.lock(), (seq, lsn));
    if seq <= table.flushed_seq.load(Ordering::Relaxed) {
        // What is not in segments may lean on it. What it leans on itself may be gone.
        for write in logged.writes.iter().filter(|_| is_known) {
            if let LoggedWrite::Kept(bytes) = *write {
                read_kept(bytes);
            }
        }
        return Some(());
    }
    if !is_known {
        return None;
    }
    // The record ends at `lsn`; keeping the log from a little before it keeps the record.
    let mut start = lsn.0.saturating_sub(1);
    let mut writes: Vec<(Key, Option<Box<[u8]>>)> = Vec::with_capacity(logged.writes.len());
    for write in &logged.writes {
        let mut put = |row: &[u8]| {
            let mut key = Key::new();
            layout.push_key(row, &mut key);
            table.note_numbers(&layout, row);
            writes.push((key, Some(row.into())));
        };
        match write {
            LoggedWrite::Put(row) => layout.check(row).then(|| put(row))?,
            LoggedWrite::Rows(rows) => log_record::for_each_row(rows, &layout, &mut put)?,
            LoggedWrite::Kept(bytes) => {
                let (columns, from) = read_kept(bytes)?;
                start = start.min(from);
                log_base::for_each_row(&columns, &layout, &mut put);
            }
            LoggedWrite::Delete(key) => {
                layout.check_key(key).then(|| writes.push((Key::from_slice(key), None)))?;
            }
            LoggedWrite::Horizon(_) | LoggedWrite::Floors(_) => {
                crate::ring::restore(&table.version().gate, write)?;
                crate::ring::restore(passed, write)?;
            }
        }
    }
    // As `leave_out_gone` did when it was applied.
    if let (Some(horizon), Some(places), false) = (passed.latest(), layout.places(), table.is_index()) {
        writes.retain(|(key, row)| row.is_none() || !places.is_key_gone(&layout, key, &horizon));
    }
    table.version().active.apply(seq, start, &[], writes.into_iter());
    table.last_commit_seq.fetch_max(seq, Ordering::Relaxed);
    *table.newest.lock() = Newest::new(false);
    Some(())
}
