//! The manifest: which tables there are, their schemas and their segments.
//!
//! The commit point of DDL, flushes, bulk loads and merges: [`Manifest::commit`] makes a list of edits durable,
//! all or none. One file `manifest-<number>.rrdm`, a snapshot of the state and the edits since. It is written
//! anew, under a temporary name until it is durable, at the first commit after a start and when it has grown;
//! the newest named file is the truth. A full disk fails the commit, which then is not in the file, durably,
//! and the manifest goes on; any other failure poisons it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::error::{Error, Result};
use crate::fs::{DirEntry, Fs, WriteFile, read_whole};
use crate::limits;

mod decode;
pub mod edit;
mod encode;
mod file;
mod fit;
#[cfg(feature = "fuzz")]
mod raw;
mod state;

#[cfg(test)]
mod tests;

/// Edits as bytes, for the log: what a prepared transaction will add.
pub(crate) fn encode_edits(edits: &[Edit]) -> Result<Vec<u8>> {
    encode::edits(edits)
}

/// The way back of [`encode_edits`]; `None` if the bytes are damaged.
pub(crate) fn decode_edits(bytes: &[u8]) -> Option<Vec<Edit>> {
    decode::edits(bytes).ok()
}

use edit::{Edit, State};
use file::Kind;
#[cfg(feature = "fuzz")]
pub(crate) use raw::{check_decoders, encode_raw, rewrite_raw, write_raw};

/// Bytes of one record; far more than any state needs and far below what its length field can say.
const MAX_RECORD_BYTES: usize = 1 << 30;

/// The manifest of an engine.
pub struct Manifest {
    inner: Mutex<Inner>,
}

struct Inner {
    fs: Arc<dyn Fs>,
    dir: PathBuf,
    state: State,
    /// Number of the newest file; 0 before there is one.
    number: u32,
    /// The newest file; `None` when the next commit has to write a new one.
    open: Option<OpenFile>,
    rewrite_bytes: u64,
    poisoned: Option<String>,
}

struct OpenFile {
    file: Box<dyn WriteFile>,
    next_index: u32,
    snapshot_bytes: u64,
}

enum Failure {
    /// The disk is full; nothing of the commit is left.
    Full(Error),
    /// What is on disk is not known.
    Broken(Error),
}

impl Manifest {
    /// Reads the newest manifest in `dir`; a folder without any data of an engine gets a new, empty one.
    pub fn open(fs: Arc<dyn Fs>, dir: &Path) -> Result<(Manifest, State)> {
        Manifest::open_with(fs, dir, limits::MANIFEST_REWRITE_BYTES)
    }

    fn open_with(fs: Arc<dyn Fs>, dir: &Path, rewrite_bytes: u64) -> Result<(Manifest, State)> {
        fs.create_dir(dir)?;
        let entries = fs.list(dir)?;
        for entry in entries.iter().filter(|e| e.name.starts_with("manifest-") && e.name.ends_with(".rrdm.tmp")) {
            fs.remove(&dir.join(&entry.name))?;
        }
        let numbers: Vec<u32> = entries.iter().filter_map(|e| number_of(&e.name)).collect();
        let mut inner = Inner {
            fs,
            dir: dir.to_path_buf(),
            state: State::default(),
            number: 0,
            open: None,
            rewrite_bytes,
            poisoned: None,
        };
        match numbers.iter().max() {
            Some(&newest) => inner.load(newest, &numbers)?,
            None => inner.begin(&entries)?,
        }
        let state = inner.state.clone();
        Ok((Manifest { inner: Mutex::new(inner) }, state))
    }

    /// Whether a folder holds an engine, whole or not: a manifest, or data that one should know.
    pub fn is_there(fs: &dyn Fs, dir: &Path) -> bool {
        let entries = if fs.exists(dir) { fs.list(dir).unwrap_or_default() } else { Vec::new() };
        entries.iter().any(|e| number_of(&e.name).is_some() || is_data(e))
    }

    /// Whether an earlier failure left it unknown what is on disk: edits of a failed commit may be there.
    pub fn is_poisoned(&self) -> bool {
        self.inner.lock().poisoned.is_some()
    }

    /// Makes `edits` durable, all or none. Edits that make no sense are refused ([`Error::InvalidInput`],
    /// [`Error::TableExists`]) and on a full disk nothing happened; after any other error it is not known
    /// whether the edits will be there after a restart, and every later commit is [`Error::Poisoned`].
    pub fn commit(&self, edits: &[Edit]) -> Result<()> {
        self.inner.lock().commit(edits)
    }

    /// The state as of the last commit.
    pub fn state(&self) -> State {
        self.inner.lock().state.clone()
    }
}

impl Inner {
    /// Takes over the newest file and removes the others.
    fn load(&mut self, newest: u32, numbers: &[u32]) -> Result<()> {
        let path = self.dir.join(file_name(newest));
        let bytes = read_all(&*self.fs, &path)?;
        self.state = file::read(&bytes, newest, &path)?;
        self.number = newest;
        // A killed server may have left a record that is written but not synced. It counts now, so it must stay.
        self.fs.sync_file(&path)?;
        self.fs.sync_dir(&self.dir)?;
        for older in numbers.iter().filter(|&&n| n != newest) {
            self.fs.remove(&self.dir.join(file_name(*older)))?;
        }
        Ok(())
    }

    /// Begins an empty engine, unless the folder holds data that a manifest should know.
    fn begin(&mut self, entries: &[DirEntry]) -> Result<()> {
        if let Some(entry) = entries.iter().find(|e| is_data(e)) {
            let what = format!("the folder holds '{}' but no manifest-*.rrdm, which names all data", entry.name);
            return Err(Error::corrupt(&self.dir, 0, what));
        }
        self.rewrite().map_err(|failure| match failure {
            Failure::Full(e) | Failure::Broken(e) => e,
        })
    }

    fn commit(&mut self, edits: &[Edit]) -> Result<()> {
        if let Some(reason) = &self.poisoned {
            return Err(Error::Poisoned { reason: reason.clone() });
        }
        if edits.is_empty() {
            return Ok(());
        }
        let payload = encode::edits(edits)?;
        check_record(&payload)?;
        let undo = self.state.apply_all(edits)?;
        let failure = match self.write(&payload) {
            Ok(()) => return Ok(()),
            Err(failure) => failure,
        };
        self.state.revert(undo);
        match failure {
            Failure::Full(e) => Err(e),
            Failure::Broken(e) => {
                self.poisoned = Some(e.to_string());
                Err(e)
            }
        }
    }

    /// Makes the state, which has the edits in `payload` in it, durable.
    fn write(&mut self, payload: &[u8]) -> std::result::Result<(), Failure> {
        let has_grown = |open: &OpenFile| open.file.len() > self.rewrite_bytes.max(2 * open.snapshot_bytes);
        if self.open.as_ref().is_none_or(has_grown) {
            match self.rewrite() {
                // There may still be room for the record.
                Err(Failure::Full(_)) if self.open.is_some() => {}
                other => return other,
            }
        }
        let number = self.number;
        match &mut self.open {
            Some(open) => {
                if !open.append(number, payload)? {
                    self.open = None;
                }
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Writes the state as a new file.
    fn rewrite(&mut self) -> std::result::Result<(), Failure> {
        // Opening refused the largest number, and no engine lives for 2^32 starts and rewrites.
        let number = self.number + 1;
        let path = self.dir.join(file_name(number));
        let temporary = self.dir.join(format!("{}.tmp", file_name(number)));
        let file = match self.make_file(&path, &temporary, number) {
            Ok(file) => file,
            Err(e @ Error::LimitExceeded { .. }) => return Err(Failure::Full(e)),
            Err(e) if e.is_disk_full() => {
                // Should it stay, the next attempt or the next start removes it.
                let _ = self.fs.remove(&temporary);
                return Err(Failure::Full(e));
            }
            Err(e) => return Err(Failure::Broken(e)),
        };
        // The new name must be durable before the old file may go.
        self.fs.sync_dir(&self.dir).map_err(Failure::Broken)?;
        if self.number > 0 {
            // Should it stay, the next start removes it.
            let _ = self.fs.remove(&self.dir.join(file_name(self.number)));
        }
        self.number = number;
        self.open = Some(OpenFile { snapshot_bytes: file.len(), file, next_index: 1 });
        Ok(())
    }

    fn make_file(&self, path: &Path, temporary: &Path, number: u32) -> Result<Box<dyn WriteFile>> {
        let bytes = new_file(&self.state, number)?;
        if self.fs.exists(temporary) {
            self.fs.remove(temporary)?;
        }
        let mut file = self.fs.create(temporary)?;
        file.write(&bytes)?;
        // The snapshot must be durable before the file gets its name.
        file.sync()?;
        self.fs.rename(temporary, path)?;
        Ok(file)
    }
}

/// Whether a manifest should know of it.
fn is_data(entry: &DirEntry) -> bool {
    (entry.is_dir && entry.name.starts_with("table-"))
        || [".rrdl", ".rrds"].iter().any(|ending| entry.name.ends_with(ending))
}

impl OpenFile {
    /// Appends a record; false when nothing may be appended behind it.
    fn append(&mut self, number: u32, payload: &[u8]) -> std::result::Result<bool, Failure> {
        let before = self.file.len();
        let mut bytes = Vec::new();
        file::put_frame(&mut bytes, number, self.next_index, Kind::Edits, payload);
        if let Err(e) = self.file.write(&bytes) {
            if !e.is_disk_full() {
                return Err(Failure::Broken(e));
            }
            // Cut off durably before anybody hears of it: what was refused must not come back.
            self.file.truncate(before).and_then(|()| self.file.sync()).map_err(Failure::Broken)?;
            return Err(Failure::Full(e));
        }
        self.file.sync().map_err(Failure::Broken)?;
        let mut receipt = Vec::new();
        file::put_frame(&mut receipt, number, self.next_index, Kind::Receipt, &[]);
        self.next_index += 1;
        // The commit is done. Without a whole receipt the next record would not be where it is looked for.
        Ok(self.file.write(&receipt).is_ok())
    }
}

/// The bytes of a file that begins with `state`.
fn new_file(state: &State, number: u32) -> Result<Vec<u8>> {
    let snapshot = encode::state(state)?;
    check_record(&snapshot)?;
    let mut bytes = file::header(number).to_vec();
    file::put_frame(&mut bytes, number, 0, Kind::Snapshot, &snapshot);
    Ok(bytes)
}

/// Writes `state` as the first manifest of another folder; the name is not durable yet.
pub(crate) fn write_elsewhere(fs: &dyn Fs, dir: &Path, state: &State) -> Result<()> {
    let mut file = fs.create(&dir.join(file_name(1)))?;
    file.write(&new_file(state, 1)?)?;
    file.sync()
}

fn check_record(payload: &[u8]) -> Result<()> {
    if payload.len() > MAX_RECORD_BYTES {
        return Err(Error::LimitExceeded { what: "a manifest record".into(), limit: MAX_RECORD_BYTES as u64 });
    }
    Ok(())
}

fn file_name(number: u32) -> String {
    format!("manifest-{number:08x}.rrdm")
}

/// The number in a manifest's name; `None` for any other name.
fn number_of(name: &str) -> Option<u32> {
    let number = u32::from_str_radix(name.strip_prefix("manifest-")?.strip_suffix(".rrdm")?, 16).ok()?;
    (file_name(number) == name).then_some(number)
}

fn read_all(fs: &dyn Fs, path: &Path) -> Result<Vec<u8>> {
    // A snapshot, as many bytes of records again, and the one after which it is rewritten.
    read_whole(fs, path, 4 * MAX_RECORD_BYTES as u64)
}
