//! The note that a clean shutdown leaves: how long manifest and log were.
//!
//! After a crash the end of a file may be torn, and what is torn was never acknowledged. After a clean shutdown nothing
//! may be missing: a log or manifest that is gone or cut short is damage. The note is removed, durably, before the first
//! write of the next run. Text, so that a person can read it; see `docs/internals/format.md`.

use std::path::Path;

use crate::error::{Error, Result};
use crate::fs::Fs;
use crate::wal::Lsn;

const FILE: &str = "shutdown.txt";

/// Where everything ended.
#[derive(Debug, PartialEq, Eq)]
struct Note {
    manifest: String,
    manifest_bytes: u64,
    log_end: u64,
}

/// Leaves the note; log and manifest are durable and will not be written any more.
pub(crate) fn write_note(fs: &dyn Fs, dir: &Path, log_end: Lsn) -> Result<()> {
    let Some((manifest, manifest_bytes)) = newest_manifest(fs, dir)? else { return Ok(()) };
    fs.sync_file(&dir.join(&manifest))?;
    let note = Note { manifest, manifest_bytes, log_end: log_end.0 };
    let path = dir.join(FILE);
    if fs.exists(&path) {
        fs.remove(&path)?;
    }
    let mut file = fs.create(&path)?;
    file.write(note.text().as_bytes())?;
    file.sync()?;
    fs.sync_dir(dir)
}

/// Compares the folder with the note, if there is one, and removes it. Called before anything is written.
pub(crate) fn check_note(fs: &dyn Fs, dir: &Path, log_end: Lsn) -> Result<()> {
    let path = dir.join(FILE);
    if !fs.exists(&path) {
        return Ok(());
    }
    let file = fs.open(&path)?;
    let mut bytes = vec![0; file.len().min(4096) as usize];
    file.read_at(0, &mut bytes)?;
    // A note that a crash tore says nothing.
    if let Some(note) = std::str::from_utf8(&bytes).ok().and_then(Note::parse) {
        note.compare(fs, dir, log_end)?;
    }
    drop(file);
    fs.remove(&path)?;
    fs.sync_dir(dir)
}

impl Note {
    fn text(&self) -> String {
        let body = format!("manifest {} {}\nlog-end {}\n", self.manifest, self.manifest_bytes, self.log_end);
        format!("{body}crc {:08x}\n", crc32fast::hash(body.as_bytes()))
    }

    fn parse(text: &str) -> Option<Note> {
        let (body, crc) = text.split_once("crc ")?;
        if u32::from_str_radix(crc.trim_end(), 16).ok()? != crc32fast::hash(body.as_bytes()) {
            return None;
        }
        let mut words = body.split_whitespace();
        let mut next = |name: &str| words.next().filter(|w| *w == name).and_then(|_| words.next());
        let manifest = next("manifest")?.to_string();
        let manifest_bytes = words.next()?.parse().ok()?;
        let log_end = words.next().filter(|w| *w == "log-end").and_then(|_| words.next())?.parse().ok()?;
        Some(Note { manifest, manifest_bytes, log_end })
    }

    fn compare(&self, fs: &dyn Fs, dir: &Path, log_end: Lsn) -> Result<()> {
        match newest_manifest(fs, dir)? {
            Some((name, bytes)) if name > self.manifest || (name == self.manifest && bytes >= self.manifest_bytes) => {}
            Some((name, bytes)) if name == self.manifest => {
                let what = format!(
                    "it had {} bytes at the last clean shutdown; restore it from a backup",
                    self.manifest_bytes
                );
                return Err(Error::corrupt(&dir.join(name), bytes, what));
            }
            _ => return Err(Error::corrupt(&dir.join(&self.manifest), 0, "it is missing; restore it from a backup")),
        }
        if log_end.0 < self.log_end {
            let folder = dir.join("log");
            let newest =
                fs.list(&folder)?.into_iter().rfind(|e| e.name.starts_with("log-") && e.name.ends_with(".rrdl"));
            let (path, offset) = newest.map_or((folder.clone(), 0), |e| (folder.join(e.name), e.bytes));
            let what = format!(
                "the log ends before here, but was whole up to position {} at the last clean shutdown: files are missing or damaged; restore them from a backup",
                self.log_end
            );
            return Err(Error::corrupt(&path, offset, what));
        }
        Ok(())
    }
}

fn newest_manifest(fs: &dyn Fs, dir: &Path) -> Result<Option<(String, u64)>> {
    let mut manifests =
        fs.list(dir)?.into_iter().filter(|e| e.name.starts_with("manifest-") && e.name.ends_with(".rrdm"));
    Ok(manifests.next_back().map(|e| (e.name, e.bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_reads_back_and_a_torn_one_says_nothing() {
        let note = Note { manifest: "manifest-00000003.rrdm".into(), manifest_bytes: 812, log_end: 99 };
        let text = note.text();
        assert_eq!(Note::parse(&text), Some(note));
        for end in 0..text.len() - 1 {
            assert_eq!(Note::parse(&text[..end]), None, "cut at {end}");
        }
    }
}
