//! What the server's folder around the engine's says: whether an engine without any table may begin, as a folder that went astray
//! must not be taken for one that never was; and which tables have lost their definition.
//!
//! Without the plugin the server takes each folder of its data folder for a database, unless its name begins with `#sql`, and
//! renames or drops what it takes for one, unless there is a dot in the name given as `#mysql50#name`. The engine's folder has
//! both. Versions before had `#rrd`, which `mariadb-upgrade` without the plugin renames to `@0023rrd`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::backup::definitions::{is_transient, without_partition};
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::fs::{DirEntry, Fs, read_whole};
use crate::manifest::Manifest;

/// Names of the engine's folder in versions before, and what the server made of them.
const OLD_NAMES: [&str; 2] = ["#rrd", "@0023rrd"];

/// Bytes of a definition file at most. The server's own limits keep them far smaller.
const MAX_DEFINITION_BYTES: u64 = 4 << 20;

/// The server's data folder, in which the engine's is.
fn server_of(dir: &Path) -> PathBuf {
    match dir.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_path_buf(),
        _ => PathBuf::from("."),
    }
}

/// Fails if `dir` holds no engine and the server's folder around it shows that there was one.
pub(crate) fn check_may_begin(fs: &dyn Fs, dir: &Path) -> Result<()> {
    let server = server_of(dir);
    let is_there = Manifest::is_there(fs, dir);
    let mut old = OLD_NAMES.iter().map(|name| server.join(name)).filter(|old| old != dir);
    if let Some(old) = old.find(|old| Manifest::is_there(fs, old)) {
        let (old, new) = (old.display(), dir.display());
        if !is_there {
            return Err(Error::InvalidInput(format!(
                "the engine's folder '{new}' holds no tables, but the folder '{old}' of a version before does: stop the server, \
                 move it with  mv -T '{old}' '{new}'  and start the server"
            )));
        }
        tracing::warn!("the folder '{old}' holds tables of an engine too; this server has those of '{new}'");
    }
    if is_there {
        return Ok(());
    }
    match definition_of_ours(fs, &server, dir) {
        Some(definition) => Err(Error::InvalidInput(format!(
            "'{}' defines a table of this engine, but the engine's folder '{}' holds none: put the folder back from where \
             it was moved or from a backup. To begin without these tables, remove their .frm and .par files",
            definition.display(),
            dir.display()
        ))),
        None => Ok(()),
    }
}

/// Tables of the engine that the server has no definition of, by the name of the whole table where it has partitions: they were
/// dropped while the plugin was not loaded, or their definitions were lost. Without those that live for a session or statement.
pub(crate) fn without_definition(fs: &dyn Fs, dir: &Path, tables: &[String]) -> BTreeSet<String> {
    let whole = tables.iter().filter(|name| !is_transient(name)).map(|name| without_partition(name).to_owned());
    let whole: BTreeSet<String> = whole.collect();
    whole.into_iter().filter(|name| !has_definition(fs, dir, name)).collect()
}

/// Whether the server has a definition of a table of this engine with this name ("database/table").
pub(crate) fn has_definition(fs: &dyn Fs, dir: &Path, name: &str) -> bool {
    let path = server_of(dir).join(format!("{name}.frm"));
    // What cannot be read is not for us to judge.
    fs.exists(&path) && is_of_engine(fs, &path).unwrap_or(true)
}

/// A table definition of this engine in a database. What cannot be read is passed over: it is no table that works.
fn definition_of_ours(fs: &dyn Fs, server: &Path, dir: &Path) -> Option<PathBuf> {
    let databases = fs.list(server).unwrap_or_default();
    let databases = databases.iter().filter(|e| e.is_dir).map(|e| server.join(&e.name)).filter(|d| d != dir);
    databases.filter_map(|database| Some((fs.list(&database).ok()?, database))).find_map(|(files, database)| {
        let is_ours = |file: &&DirEntry| {
            !file.is_dir
                && file.name.ends_with(".frm")
                && file.bytes <= MAX_DEFINITION_BYTES
                && is_of_engine(fs, &database.join(&file.name)).unwrap_or(false)
        };
        files.iter().find(is_ours).map(|file| database.join(&file.name))
    })
}

fn is_of_engine(fs: &dyn Fs, path: &Path) -> Result<bool> {
    let file = fs.open(path)?;
    let mut header = [0; HEADER];
    if file.len() < HEADER as u64 {
        return Ok(false);
    }
    file.read_at(0, &mut header)?;
    if !may_be_ours(&header) {
        return Ok(false);
    }
    let bytes = read_whole(fs, path, MAX_DEFINITION_BYTES)?;
    Ok(engine_of(&bytes).is_some_and(|engine| engine.eq_ignore_ascii_case(b"RRD")))
}

impl Engine {
    /// Tables of this engine that the server has no definition of, as "database/table".
    pub fn tables_without_definition(&self) -> BTreeSet<String> {
        without_definition(&*self.fs, &self.dir, &self.table_names())
    }

    /// Whether the server has a definition of a table of this engine with this name.
    pub fn has_definition(&self, name: &str) -> bool {
        has_definition(&*self.fs, &self.dir, without_partition(name))
    }

    /// Removes what is left of a table without a definition: itself or its partitions. Without any: [`Error::NoSuchTable`].
    pub fn drop_without_definition(&self, name: &str) -> Result<()> {
        let mut names = self.table_names();
        names.retain(|found| found != name && without_partition(found) == name);
        if names.is_empty() || self.has_definition(name) {
            return Err(Error::NoSuchTable { name: name.into() });
        }
        names.iter().try_for_each(|partition| self.drop_table(partition))
    }
}

/// A definition file of any bytes, for fuzzing: the engine's name is a part of it.
#[cfg(feature = "fuzz")]
pub(crate) fn check_definition(bytes: &[u8]) {
    let is_read = bytes.first_chunk().is_some_and(may_be_ours);
    assert!(engine_of(bytes).is_none_or(|name| name.len() < bytes.len()) || !is_read);
}

/// Bytes of a definition file's header.
const HEADER: usize = 64;

/// The server's number of "a partitioned table" in a definition file.
const PARTITIONED: u8 = 20;

/// The number of sequences, and behind it the first of those that the server gives to engines without one of their own.
const FIRST_DYNAMIC: u8 = 44;

/// A part of a definition file: the engine of the partitions.
const PARTITIONS_ENGINE: u8 = 1;

/// Most definitions are of engines with numbers of their own, which their header tells.
fn may_be_ours(header: &[u8; HEADER]) -> bool {
    header[..2] == [0xfe, 0x01] && (header[3] == PARTITIONED || header[3] >= FIRST_DYNAMIC)
}

fn u16_at(bytes: &[u8], at: usize) -> Option<usize> {
    Some(usize::from(u16::from_le_bytes(bytes.get(at..at.checked_add(2)?)?.try_into().ok()?)))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<usize> {
    usize::try_from(u32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?)).ok()
}

/// The engine's name in a definition file, where the server's `dd_frm_type` finds it.
fn engine_of(bytes: &[u8]) -> Option<&[u8]> {
    if *bytes.get(3)? == PARTITIONED {
        return engine_of_partitions(bytes);
    }
    let keys_length = match u16_at(bytes, 14)? {
        0xffff => u32_at(bytes, 47)?,
        length => length,
    };
    let connect_string = u16_at(bytes, 6)? + keys_length + u16_at(bytes, 16)?;
    let name = connect_string + 2 + u16_at(bytes, connect_string)?;
    bytes.get(name + 2..name + 2 + u16_at(bytes, name)?)
}

/// From the list of parts behind the header: a type, a length of one byte, or zero and two more for a long one, the bytes.
fn engine_of_partitions(bytes: &[u8]) -> Option<&[u8]> {
    let end = HEADER + u16_at(bytes, 4)?;
    let mut at = HEADER;
    while at + 3 <= end {
        let (kind, short) = (*bytes.get(at)?, usize::from(*bytes.get(at + 1)?));
        let (from, length) = match short {
            0 => (at + 4, u16_at(bytes, at + 2)?),
            length => (at + 2, length),
        };
        if kind == PARTITIONS_ENGINE {
            return bytes.get(from..from + length);
        }
        at = from + length;
    }
    None
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

    use std::sync::Arc;

    use super::*;
    use crate::config::Config;
    use crate::engine::Engine;
    use crate::fs::sim::SimFs;
    use crate::schema::{ColumnDef, Lane, Schema};

    const DIR: &str = "/data/#sql.rrd";

    fn open(fs: &SimFs, dir: &str) -> Result<Arc<Engine>> {
        let mut config = Config::new(dir);
        config.background = false;
        Engine::open(config, Arc::new(fs.clone()))
    }

    fn refusal(fs: &SimFs) -> String {
        let before = fs.files();
        let refused = open(fs, DIR).map(drop).unwrap_err().to_string();
        assert_eq!(fs.files(), before, "something was made");
        refused
    }

    fn write(fs: &SimFs, path: &str, bytes: &[u8]) {
        let path = Path::new(path);
        fs.create_dir(path.parent().unwrap()).unwrap();
        fs.create(path).unwrap().write(bytes).unwrap();
    }

    /// A definition as the server writes it, as far as it is read here.
    fn definition(number: u8, engine: &str) -> Vec<u8> {
        let mut bytes = vec![0; HEADER];
        bytes[..4].copy_from_slice(&[0xfe, 0x01, 0x0a, number]);
        let parts: Vec<u8> = match number {
            PARTITIONED => [&[0, 2, 7, 7, PARTITIONS_ENGINE, engine.len() as u8], engine.as_bytes()].concat(),
            _ => vec![0, 2, 7, 7],
        };
        bytes[4..6].copy_from_slice(&(parts.len() as u16).to_le_bytes());
        bytes.extend(&parts);
        let keys_at = bytes.len() as u16;
        bytes[6..8].copy_from_slice(&keys_at.to_le_bytes());
        bytes[14..16].copy_from_slice(&5u16.to_le_bytes());
        bytes[16..18].copy_from_slice(&3u16.to_le_bytes());
        bytes.extend([9; 8]);
        bytes.extend([1, 0, b'c', engine.len() as u8, 0]);
        bytes.extend(engine.as_bytes());
        bytes
    }

    #[test]
    fn an_empty_engine_begins_where_nothing_speaks_against_it() {
        let fs = SimFs::new();
        write(&fs, "/data/db/a.frm", &definition(12, "InnoDB"));
        write(&fs, "/data/db/b.frm", &definition(60, "ROCKSDB"));
        write(&fs, "/data/db/c.frm", &definition(PARTITIONED, "InnoDB"));
        write(&fs, "/data/db/v.frm", b"TYPE=VIEW\nquery=select 'RRD'");
        write(&fs, "/data/#rrd/README", b"nothing of an engine");
        open(&fs, DIR).unwrap().close().unwrap();
        open(&fs, DIR).unwrap();
    }

    #[test]
    fn no_empty_engine_begins_beside_definitions_of_its_tables() {
        for ours in [definition(60, "RRD"), definition(PARTITIONED, "RRD")] {
            let fs = SimFs::new();
            write(&fs, "/data/db/a.frm", &definition(12, "InnoDB"));
            write(&fs, "/data/db/t.frm", &ours);
            assert!(refusal(&fs).contains("'/data/db/t.frm' defines a table of this engine"), "{}", refusal(&fs));
            // An engine that is there has them.
            fs.remove(Path::new("/data/db/t.frm")).unwrap();
            drop(open(&fs, DIR).unwrap());
            write(&fs, "/data/db/t.frm", &ours);
            open(&fs, DIR).unwrap();
        }
    }

    #[test]
    fn tables_without_a_definition_are_known() {
        let fs = SimFs::new();
        let engine = open(&fs, DIR).unwrap();
        let column = ColumnDef::plain(0, Lane::Int { width: 4 }, false);
        let schema = Schema::plain(vec![column], vec![0], None);
        for name in [
            "db/there",
            "db/gone",
            "db/other",
            "db/p#P#a",
            "db/p#P#b",
            "db/q#P#a",
            "db/#sql-alter-1-2",
            "#tmp/t",
            "no/t",
        ] {
            engine.create_table(name, schema.clone()).unwrap();
        }
        write(&fs, "/data/db/there.frm", &definition(60, "RRD"));
        write(&fs, "/data/db/other.frm", &definition(12, "InnoDB"));
        write(&fs, "/data/db/q.frm", &definition(PARTITIONED, "RRD"));
        let without: Vec<String> = engine.tables_without_definition().into_iter().collect();
        assert_eq!(without, ["db/gone", "db/other", "db/p", "no/t"]);
        engine.drop_without_definition("db/p").unwrap();
        for refused in ["db/q", "db/there", "db/p", "db/nothing"] {
            assert!(engine.drop_without_definition(refused).is_err(), "{refused}");
        }
        assert_eq!(engine.tables_without_definition().len(), 3);
    }

    #[test]
    fn folders_of_versions_before_are_told_and_not_passed_over() {
        for old in ["/data/#rrd", "/data/@0023rrd"] {
            let fs = SimFs::new();
            drop(open(&fs, old).unwrap());
            let told = refusal(&fs);
            assert!(told.contains(&format!("mv -T '{old}' '{DIR}'")), "{told}");
            fs.rename(Path::new(old), Path::new(DIR)).unwrap();
            drop(open(&fs, DIR).unwrap());
        }
    }

    #[test]
    fn damaged_definitions_are_nobodys() {
        let whole = [definition(60, "RRD"), definition(PARTITIONED, "RRD")];
        for whole in &whole {
            assert_eq!(engine_of(whole), Some(&b"RRD"[..]));
            assert!(
                (4..whole.len() - 1).all(|end| engine_of(&whole[..end]) != Some(b"RRD") || whole[3] == PARTITIONED)
            );
            for at in 4..whole.len() {
                let mut damaged = whole.clone();
                damaged[at] = 0xff;
                engine_of(&damaged); // An answer, whichever.
            }
        }
    }
}
