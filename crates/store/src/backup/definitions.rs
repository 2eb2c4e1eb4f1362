//! The server's own files of our tables, which a backup needs as well: they lie beside the engine's folder.
//!
//! A table `database/name` has `name.frm`, and `name.par` when it is partitioned; triggers have `name.TRG` and a `.TRN`
//! each; a database has `db.opt`. A name may stand for a partition: `name#P#part`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::error::Result;
use crate::fs::Fs;

/// The largest file that is taken for a trigger's.
const MAX_TRIGGER_BYTES: u64 = 64 << 10;

/// Whether a table lives no longer than a session or statement of the server: temporary tables (they are in a database
/// of their own, whose name no user can give), and what ALTER TABLE works on.
pub fn is_transient(name: &str) -> bool {
    name.starts_with('#') || name.split('/').nth(1).is_some_and(|table| table.starts_with("#sql"))
}

/// Copies the files of the tables from the server's folder to a backup; how many there were.
pub fn copy<'a>(fs: &dyn Fs, server: &Path, backup: &Path, names: impl Iterator<Item = &'a str>) -> Result<u64> {
    let mut databases: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (database, table) in names.filter_map(|name| name.split_once('/')) {
        databases.entry(database).or_default().insert(without_partition(table));
    }
    let mut copied = 0;
    for (database, tables) in databases {
        let (from, to) = (server.join(database), backup.join(database));
        if !fs.exists(&from) {
            continue; // Its tables cannot be opened in the server either.
        }
        fs.make_dir(&to)?;
        for entry in fs.list(&from)?.iter().filter(|e| !e.is_dir) {
            let path = from.join(&entry.name);
            if belongs(fs, &path, &entry.name, entry.bytes, &tables)? {
                copy_small(fs, &path, &to.join(&entry.name))?;
                copied += 1;
            }
        }
        fs.sync_dir(&to)?;
    }
    Ok(copied)
}

/// The table of a partition, or the name itself.
pub(crate) fn without_partition(table: &str) -> &str {
    table.find("#P#").or_else(|| table.find("#p#")).map_or(table, |at| &table[..at])
}

fn belongs(fs: &dyn Fs, path: &Path, file: &str, bytes: u64, tables: &BTreeSet<&str>) -> Result<bool> {
    if file == "db.opt" {
        return Ok(true);
    }
    match file.rsplit_once('.') {
        Some((name, "frm" | "par" | "TRG")) => Ok(tables.contains(name)),
        Some((_, "TRN")) if bytes <= MAX_TRIGGER_BYTES => {
            let text = read_all(fs, path)?;
            let text = String::from_utf8_lossy(&text);
            let table = text.lines().find_map(|line| line.strip_prefix("trigger_table="));
            Ok(table.is_some_and(|table| tables.contains(table.trim())))
        }
        _ => Ok(false),
    }
}

fn copy_small(fs: &dyn Fs, from: &Path, to: &Path) -> Result<()> {
    let mut copy = fs.create(to)?;
    copy.write(&read_all(fs, from)?)?;
    copy.sync()
}

fn read_all(fs: &dyn Fs, path: &Path) -> Result<Vec<u8>> {
    let file = fs.open(path)?;
    let mut bytes = vec![0; file.len() as usize];
    file.read_at(0, &mut bytes)?;
    Ok(bytes)
}
