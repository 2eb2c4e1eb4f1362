//! A file system that counts what is asked of another one, for status variables.
//!
//! Files are told apart by their names (log, segment, manifest); a count is one addition for each call to the disk,
//! which costs nothing beside the call. Failed calls count as well: the disk was asked. Here is also where the bytes of the
//! folders of rings of bytes are counted, see space.rs.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::space::Spaces;
use super::{DirEntry, FileLock, FolderId, Fs, ReadFile, WriteFile};
use crate::error::Result;

/// What a file is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// A file of the log.
    Log,
    /// A segment.
    Segment,
    /// The manifest, and what little else there is.
    Manifest,
}

/// What was done to files of one purpose.
#[derive(Debug, Default)]
pub struct IoCounters {
    /// Calls that read.
    pub reads: AtomicU64,
    /// Bytes asked for.
    pub bytes_read: AtomicU64,
    /// Calls that wrote.
    pub writes: AtomicU64,
    /// Bytes handed over.
    pub bytes_written: AtomicU64,
    /// Syncs of files.
    pub syncs: AtomicU64,
}

/// All that was asked of the file system.
#[derive(Debug, Default)]
pub struct AllIo {
    /// By [`Purpose`].
    files: [IoCounters; 3],
    /// Syncs of folders.
    pub folder_syncs: AtomicU64,
    /// Files made.
    pub files_created: AtomicU64,
    /// Files removed.
    pub files_removed: AtomicU64,
    /// Folders whose bytes are counted.
    pub spaces: Spaces,
}

impl AllIo {
    /// The counters of a purpose.
    pub fn of(&self, purpose: Purpose) -> &IoCounters {
        &self.files[purpose as usize]
    }
}

/// Counts, then asks the file system below.
pub struct CountedFs {
    below: Arc<dyn Fs>,
    io: Arc<AllIo>,
}

impl CountedFs {
    /// Counts what is asked of `below` in `io`.
    pub fn new(below: Arc<dyn Fs>, io: Arc<AllIo>) -> CountedFs {
        CountedFs { below, io }
    }
}

fn purpose_of(path: &Path) -> Purpose {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    match name {
        _ if name.starts_with("log-") => Purpose::Log,
        _ if name.starts_with("seg-") => Purpose::Segment,
        _ => Purpose::Manifest,
    }
}

fn add(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Ordering::Relaxed);
}

struct CountedWrite {
    below: Box<dyn WriteFile>,
    io: Arc<AllIo>,
    purpose: Purpose,
    path: PathBuf,
}

struct CountedRead {
    below: Arc<dyn ReadFile>,
    io: Arc<AllIo>,
    purpose: Purpose,
}

impl CountedWrite {
    fn count(&self, bytes: &[u8]) {
        let io = self.io.of(self.purpose);
        add(&io.writes, 1);
        add(&io.bytes_written, bytes.len() as u64);
        if self.purpose == Purpose::Segment {
            self.io.spaces.note_write(&self.path, bytes.len() as u64);
        }
    }
}

impl WriteFile for CountedWrite {
    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.count(bytes);
        self.below.write(bytes)
    }

    fn write_through(&mut self, bytes: &[u8]) -> Result<()> {
        self.count(bytes);
        self.below.write_through(bytes)
    }

    fn block_bytes(&mut self) -> u64 {
        self.below.block_bytes()
    }

    fn sync(&mut self) -> Result<()> {
        add(&self.io.of(self.purpose).syncs, 1);
        self.below.sync()
    }

    fn truncate(&mut self, len: u64) -> Result<()> {
        self.below.truncate(len)
    }

    fn reserve(&mut self, len: u64) {
        self.below.reserve(len);
    }

    fn len(&self) -> u64 {
        self.below.len()
    }
}

impl ReadFile for CountedRead {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let io = self.io.of(self.purpose);
        add(&io.reads, 1);
        add(&io.bytes_read, buf.len() as u64);
        self.below.read_at(offset, buf)
    }

    fn len(&self) -> u64 {
        self.below.len()
    }
}

impl Fs for CountedFs {
    fn create(&self, path: &Path) -> Result<Box<dyn WriteFile>> {
        add(&self.io.files_created, 1);
        let below = self.below.create(path)?;
        Ok(Box::new(CountedWrite { below, io: self.io.clone(), purpose: purpose_of(path), path: path.to_path_buf() }))
    }

    fn reuse(&self, path: &Path) -> Result<Box<dyn WriteFile>> {
        let below = self.below.reuse(path)?;
        Ok(Box::new(CountedWrite { below, io: self.io.clone(), purpose: purpose_of(path), path: path.to_path_buf() }))
    }

    fn open(&self, path: &Path) -> Result<Arc<dyn ReadFile>> {
        let below = self.below.open(path)?;
        Ok(Arc::new(CountedRead { below, io: self.io.clone(), purpose: purpose_of(path) }))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.below.rename(from, to)?;
        self.io.spaces.note_gone(from);
        Ok(())
    }

    fn remove(&self, path: &Path) -> Result<()> {
        add(&self.io.files_removed, 1);
        self.below.remove(path)?;
        self.io.spaces.note_gone(path);
        Ok(())
    }

    fn remove_dir(&self, path: &Path) -> Result<()> {
        self.below.remove_dir(path)?;
        self.io.spaces.leave(path);
        Ok(())
    }

    fn hard_link(&self, from: &Path, to: &Path) -> Result<()> {
        self.below.hard_link(from, to)
    }

    fn create_dir(&self, path: &Path) -> Result<()> {
        self.below.create_dir(path)
    }

    fn make_dir(&self, path: &Path) -> Result<FolderId> {
        self.below.make_dir(path)
    }

    fn remove_tree(&self, path: &Path, made: FolderId) -> Result<()> {
        self.below.remove_tree(path, made)
    }

    fn list(&self, dir: &Path) -> Result<Vec<DirEntry>> {
        self.below.list(dir)
    }

    fn sync_file(&self, path: &Path) -> Result<()> {
        add(&self.io.of(purpose_of(path)).syncs, 1);
        self.below.sync_file(path)
    }

    fn exists(&self, path: &Path) -> bool {
        self.below.exists(path)
    }

    fn syncs_at_once(&self) -> usize {
        self.below.syncs_at_once()
    }

    fn sync_dir(&self, dir: &Path) -> Result<()> {
        add(&self.io.folder_syncs, 1);
        self.below.sync_dir(dir)
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn FileLock>> {
        self.below.lock(path)
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

    use super::*;
    use crate::fs::sim::SimFs;

    #[test]
    fn each_purpose_has_figures_of_its_own() {
        let io = Arc::new(AllIo::default());
        let fs = CountedFs::new(Arc::new(SimFs::new()), io.clone());
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        fs.create_dir(Path::new("/d/log")).unwrap();
        for (name, purpose) in [
            ("/d/log/log-01.rrdl", Purpose::Log),
            ("/d/seg-01.rrds", Purpose::Segment),
            ("/d/manifest-01.rrdm.tmp", Purpose::Manifest),
        ] {
            let path = Path::new(name);
            let mut file = fs.create(path).unwrap();
            file.write(b"12345").unwrap();
            file.write(b"67").unwrap();
            file.sync().unwrap();
            fs.open(path).unwrap().read_at(1, &mut [0; 3]).unwrap();
            let of = io.of(purpose);
            assert_eq!((read(&of.writes), read(&of.bytes_written), read(&of.syncs)), (2, 7, 1), "{name}");
            assert_eq!((read(&of.reads), read(&of.bytes_read)), (1, 3), "{name}");
            fs.remove(path).unwrap();
        }
        fs.sync_dir(Path::new("/d")).unwrap();
        assert_eq!((read(&io.files_created), read(&io.files_removed), read(&io.folder_syncs)), (3, 3, 1));
    }
}
