//! The one way to the disk.
//!
//! Everything else in the store goes through [`Fs`], so that a power cut, a full disk or a torn write is an
//! ordinary test on [`sim::SimFs`]. What is assumed of a disk, and so of an implementation:
//! bytes are durable once `sync` returned; a created, renamed or removed name is durable once `sync_dir` of its
//! folder returned; before that, any subset of the unsynced writes may survive, torn at any byte.
//! A failed `sync` leaves the state unknown: it is never tried again.

use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::error::{Error, Result};

pub mod counted;
pub mod os;
#[cfg(any(test, feature = "sim"))]
pub mod sim;
pub mod space;

/// A file being written, front to back.
pub trait WriteFile: Send {
    /// Appends all of `bytes`.
    fn write(&mut self, bytes: &[u8]) -> Result<()>;
    /// Appends as [`WriteFile::write`] does, but a sync follows at once: in room that was reserved it may go past the caches of
    /// the operating system, which would only be in the way.
    fn write_through(&mut self, bytes: &[u8]) -> Result<()> {
        self.write(bytes)
    }
    /// [`WriteFile::write_through`] writes blocks of so many bytes: what it appends costs least where it ends with one.
    fn block_bytes(&mut self) -> u64 {
        1
    }
    /// Makes everything written so far durable.
    fn sync(&mut self) -> Result<()>;
    /// Cuts the file back to its first `len` bytes, which needs no space; durable after `sync`. It takes away
    /// what a failed `write` may have left behind.
    fn truncate(&mut self, len: u64) -> Result<()>;
    /// Asks for zeros behind what is written, up to `len` bytes of file where it has not so many already, so that a `sync` of what is then written
    /// there need not make a new length durable as well. A wish: the disk may give less, or nothing.
    fn reserve(&mut self, len: u64);
    /// Bytes written so far; a failed `write` does not count, whatever it left behind.
    fn len(&self) -> u64;
    /// Whether nothing was written yet.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A file being read at any place, by any thread.
pub trait ReadFile: Send + Sync {
    /// Fills `buf` from `offset`; a short file is an error.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()>;
    /// Bytes in the file.
    fn len(&self) -> u64;
    /// Whether the file holds nothing.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A held lock on a file; dropping it lets go.
pub trait FileLock: Send + Sync {}

/// A file's name and size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry {
    /// Name within the folder.
    pub name: String,
    /// Bytes.
    pub bytes: u64,
    /// True for a folder.
    pub is_dir: bool,
}

/// Tells a folder from another one that got its name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FolderId {
    /// The device.
    pub device: u64,
    /// The folder's number there.
    pub number: u64,
}

/// A file system. Files are made with mode 0600, folders with 0700.
pub trait Fs: Send + Sync {
    /// Makes a new file; an error if the name is taken.
    fn create(&self, path: &Path) -> Result<Box<dyn WriteFile>>;
    /// Opens a file to be written anew from its front. What it held stays behind what is written, as room that was reserved: a
    /// sync need not make a length durable, and no zeros have to be written.
    fn reuse(&self, path: &Path) -> Result<Box<dyn WriteFile>>;
    /// Opens a file for reading.
    fn open(&self, path: &Path) -> Result<Arc<dyn ReadFile>>;
    /// Renames a file, replacing what is there; or a folder with all in it, which must be durable, to a new name
    /// beside the old one.
    fn rename(&self, from: &Path, to: &Path) -> Result<()>;
    /// Removes a file.
    fn remove(&self, path: &Path) -> Result<()>;
    /// Removes an empty folder.
    fn remove_dir(&self, path: &Path) -> Result<()>;
    /// Makes a hard link: another name for the same bytes. Not every file system can, and none to another one.
    fn hard_link(&self, from: &Path, to: &Path) -> Result<()>;
    /// Makes a folder and its parents; no error if it is there.
    fn create_dir(&self, path: &Path) -> Result<()>;
    /// Makes a folder, not its parents; an error if the name is taken, by a link too.
    fn make_dir(&self, path: &Path) -> Result<FolderId>;
    /// Removes a folder that [`Fs::make_dir`] made, with all in it. Follows no links, and refuses when something else has the name.
    fn remove_tree(&self, path: &Path, made: FolderId) -> Result<()>;
    /// Entries of a folder, by name; links as what they are.
    fn list(&self, dir: &Path) -> Result<Vec<DirEntry>>;
    /// Makes what an existing file holds durable, whoever wrote it: a server that was killed may have left
    /// written but unsynced bytes, and whatever recovery believed has to be there next time too.
    fn sync_file(&self, path: &Path) -> Result<()>;
    /// Whether a name exists, be it one of a link to nothing.
    fn exists(&self, path: &Path) -> bool;
    /// How many files it is worth while to sync at a time.
    fn syncs_at_once(&self) -> usize {
        1
    }
    /// Makes created, renamed and removed names of `dir` durable.
    fn sync_dir(&self, dir: &Path) -> Result<()>;
    /// Takes the lock file, made if missing; [`crate::Error::Locked`] if another process holds it.
    fn lock(&self, path: &Path) -> Result<Box<dyn FileLock>>;
}

/// All bytes of a file that should have no more than `most`: a file that somebody made huge must not take the memory.
pub(crate) fn read_whole(fs: &dyn Fs, path: &Path, most: u64) -> Result<Vec<u8>> {
    let file = fs.open(path)?;
    if file.len() > most {
        return Err(Error::corrupt(
            path,
            most,
            format!("it has {} bytes, no such file has more than {most}", file.len()),
        ));
    }
    let mut bytes = vec![0; file.len() as usize];
    file.read_at(0, &mut bytes)?;
    Ok(bytes)
}

/// Makes files durable, side by side where that is faster: a disk, and the journal of its file system, take many syncs
/// in little more time than one. After an error it is not known which of them are durable.
pub(crate) fn sync_all(fs: &dyn Fs, files: Vec<Box<dyn WriteFile>>) -> Result<()> {
    let threads = fs.syncs_at_once().min(files.len());
    let files = Mutex::new(files);
    let sync_each = || {
        loop {
            let file = files.lock().pop();
            let Some(mut file) = file else { return Ok(()) };
            file.sync()?;
        }
    };
    std::thread::scope(|scope| {
        let start = |_| std::thread::Builder::new().name("rrd-sync".into()).spawn_scoped(scope, sync_each).ok();
        // Where no thread can be started the caller's does it all.
        let others: Vec<_> = (1..threads).map_while(start).collect();
        let own = sync_each();
        let failed = |_| Err(Error::Poisoned { reason: "a thread that synced files failed".into() });
        others.into_iter().map(|thread| thread.join().unwrap_or_else(failed)).fold(own, Result::and)
    })
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

    use super::*;

    fn write_many(fs: &dyn Fs, dir: &Path) -> Vec<Box<dyn WriteFile>> {
        let make = |n: u8| {
            let mut file = fs.create(&dir.join(n.to_string())).unwrap();
            file.write(&[n; 100]).unwrap();
            file
        };
        (0..100).map(make).collect()
    }

    #[test]
    fn files_synced_together_survive_a_power_cut() {
        let fs = sim::SimFs::new();
        let dir = Path::new("/d");
        fs.create_dir(dir).unwrap();
        fs.sync_dir(Path::new("/")).unwrap();
        sync_all(&fs, write_many(&fs, dir)).unwrap();
        fs.sync_dir(dir).unwrap();
        let after = fs.power_cut(1);
        assert!((0..100u8).all(|n| after.read(&dir.join(n.to_string())) == [n; 100]));
        let elsewhere = tempfile::tempdir().unwrap();
        sync_all(&os::OsFs, write_many(&os::OsFs, elsewhere.path())).unwrap();
    }

    #[test]
    fn a_file_that_is_too_large_is_not_read() {
        let fs = sim::SimFs::new();
        let path = Path::new("/f");
        fs.create(path).unwrap().write(&[1; 100]).unwrap();
        assert_eq!(read_whole(&fs, path, 100).unwrap(), [1; 100]);
        let error = read_whole(&fs, path, 99).unwrap_err().to_string();
        assert!(error.contains("'/f'") && error.contains("100 bytes"), "{error}");
    }

    #[test]
    fn one_sync_that_fails_fails_them_all() {
        let fs = sim::SimFs::new();
        let dir = Path::new("/d");
        fs.create_dir(dir).unwrap();
        let files = write_many(&fs, dir);
        fs.fail_at(fs.op_count() + 50, libc::EIO);
        assert!(matches!(sync_all(&fs, files), Err(Error::Io { op: "sync", .. })));
    }
}
