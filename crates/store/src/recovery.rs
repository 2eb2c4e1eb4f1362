//! Start-up: reads the manifest, replays the log into memtables, removes files that nothing refers to.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::cache::BlockCache;
use crate::chunk::ChunkMap;
use crate::config::Config;
use crate::engine::{Parts, Tables};
use crate::error::{Error, Result};
use crate::fs::Fs;
use crate::log_record::{self, LoggedTable, LoggedWrite};
use crate::manifest::Manifest;
use crate::manifest::edit::{State, TableId};
use crate::memtable::Key;
use crate::newest::Newest;
use crate::segment::SegmentId;
use crate::table::{AUTO_INCREMENT_PROPERTY, Table};
use crate::version::Version;
use crate::wal::{Lsn, Wal};

/// The lock file: one server at a time.
const LOCK_FILE: &str = "rrd.lock";

/// Reads the data folder (made if missing).
pub(crate) fn read_folder(config: &Config, fs: Arc<dyn Fs>) -> Result<Parts> {
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
    let wal = Wal::open(fs.clone(), &log_dir, &mut |lsn, record| {
        let damaged = || Error::corrupt(&log_dir, lsn.0, "the log holds a record that is not a commit; CHECK the disk and restore from a backup");
        let (seq, writes) = log_record::decode(record).ok_or_else(damaged)?;
        newest_seq = newest_seq.max(seq);
        for t in &writes {
            replay(&tables, seq, lsn, t).ok_or_else(damaged)?;
        }
        Ok(())
    })?;
    fs.sync_dir(&config.dir)?;
    Ok(Parts {
        lock,
        cache,
        wal,
        manifest,
        tables,
        next_seq: newest_seq + 1,
        next_table: state.next_table.max(1),
        next_segment: state.next_segment.max(1),
        fs,
    })
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
        remove_unused(&**fs, &dir, &entry.segments.keys().copied().collect())?;
        let has_rows = !entry.segments.is_empty();
        let rows = |layout| Version::of_state(layout, fs, cache, &dir, id, entry);
        let table = Table::new(id, dir.clone(), &entry.name, entry.schema.clone(), rows, !has_rows);
        *table.chunks.lock() = ChunkMap::new(entry.chunks.clone());
        table.next_row_number.store(entry.next_row_number.max(1), Ordering::Relaxed);
        if let Some(value) = entry.properties.get(AUTO_INCREMENT_PROPERTY).and_then(|v| v.as_slice().try_into().ok()) {
            table.next_auto.store(u64::from_le_bytes(value), Ordering::Relaxed);
        }
        table.flushed_seq.store(entry.flushed_seq, Ordering::Relaxed);
        tables.insert(Arc::new(table));
    }
    for &id in state.tables.keys() {
        tables.link_indexes(id);
    }
    remove_dropped(&**fs, &config.dir, state)?;
    Ok(tables)
}

/// Removes segments that an interrupted flush, merge or transaction left behind.
fn remove_unused(fs: &dyn Fs, dir: &Path, used: &BTreeSet<SegmentId>) -> Result<()> {
    let names: BTreeSet<String> = used.iter().map(|id| id.file_name()).collect();
    if !fs.exists(dir) {
        return Ok(()); // Its first segment that is missed says so.
    }
    for entry in fs.list(dir)? {
        if entry.name.starts_with("seg-") && !names.contains(&entry.name) {
            fs.remove(&dir.join(&entry.name))?;
        }
    }
    Ok(())
}

/// Removes folders of tables that are gone.
fn remove_dropped(fs: &dyn Fs, dir: &Path, state: &State) -> Result<()> {
    let live: BTreeSet<String> = state.tables.keys().map(|id: &TableId| id.dir_name()).collect();
    for entry in fs.list(dir)? {
        if entry.is_dir && entry.name.starts_with("table-") && !live.contains(&entry.name) {
            let folder = dir.join(&entry.name);
            remove_unused(fs, &folder, &BTreeSet::new())?;
            fs.remove_dir(&folder)?;
        }
    }
    Ok(())
}

/// Applies a logged commit to one table; `None` if its bytes make no sense.
fn replay(tables: &Tables, seq: u64, lsn: Lsn, logged: &LoggedTable<'_>) -> Option<()> {
    // Dropped since.
    let Some(table) = tables.by_id.get(&logged.table) else { return Some(()) };
    if seq <= table.flushed_seq.load(Ordering::Relaxed) {
        return Some(());
    }
    let layout = table.layout();
    if layout.schema().version != logged.schema_version {
        return None;
    }
    let mut writes: Vec<(Key, Option<Box<[u8]>>)> = Vec::with_capacity(logged.writes.len());
    for write in &logged.writes {
        match write {
            LoggedWrite::Put(row) => {
                if !layout.check(row) {
                    return None;
                }
                let mut key = Key::new();
                layout.push_key(row, &mut key);
                if let Some(number) = layout.schema().row_number {
                    table.next_row_number.fetch_max(layout.view(row).int(usize::from(number)) + 1, Ordering::Relaxed);
                }
                table.note_auto_increment(&layout, row);
                writes.push((key, Some((*row).into())));
            }
            LoggedWrite::Delete(key) => writes.push((Key::from_slice(key), None)),
        }
    }
    // The record ends at `lsn`; keeping the log from a little before it keeps the record.
    table.version().active.apply(seq, lsn.0.saturating_sub(1), seq, writes.into_iter());
    table.last_commit_seq.fetch_max(seq, Ordering::Relaxed);
    *table.newest.lock() = Newest::new(false);
    Some(())
}
