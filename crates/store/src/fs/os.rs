//! The real file system: the only place that calls `std::fs`.
//!
//! Files are made with mode 0600 and folders with 0700. A file is made durable with fdatasync, a folder's names
//! with fsync of the folder. What is synced at once, in room that is there, is written with O_DIRECT where the file
//! system can: the page cache would only be in the way. The lock is flock(2): the kernel lets go of it when the process
//! ends, however that comes about, so that a killed server never leaves a lock behind.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{DirEntry, FileLock, FolderId, Fs, ReadFile, WriteFile};
use crate::error::{Error, Result};
use crate::limits;

/// The file system of the operating system.
#[derive(Clone, Copy, Debug, Default)]
pub struct OsFs;

struct OsWriteFile {
    file: File,
    path: PathBuf,
    /// Bytes written.
    len: u64,
    /// Where reserved zeros end, or what a file held that is used again.
    room: u64,
    direct: Direct,
}

/// What writes past the page cache need: they are of whole blocks, from memory that lies as blocks do.
#[derive(Default)]
struct Direct {
    is_on: bool,
    /// Bytes of a block; not known before the first write.
    block: Option<usize>,
    /// Empty before the first one.
    buffer: Vec<u8>,
    /// Where in `buffer` a block begins.
    first: usize,
    /// There is what the file's last block has, if the file ends here.
    held_to: Option<u64>,
}

/// A block that every disk takes.
const PAGE_BYTES: usize = 4096;

/// More at once goes through the page cache, which then costs little beside the write.
const DIRECT_BYTES: usize = 16 * PAGE_BYTES;

struct OsReadFile {
    file: File,
    path: PathBuf,
    len: u64,
}

struct OsLock {
    // Closing the file lets go of the lock.
    _file: File,
}

impl FileLock for OsLock {}

impl Direct {
    /// Switches O_DIRECT on or off.
    fn switch(&mut self, file: &File, on: bool) -> io::Result<()> {
        if self.is_on != on {
            let flag = if on { libc::O_DIRECT } else { 0 };
            // SAFETY: fcntl touches no memory of ours, and the descriptor is open as long as `file` is borrowed.
            let status = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFL, flag) };
            if status != 0 {
                return Err(io::Error::last_os_error());
            }
            self.is_on = on;
        }
        Ok(())
    }

    /// Bytes of a block of the disk: the smaller it is, the less each sync has to write that was there or is empty.
    fn block_bytes(&mut self, file: &File) -> usize {
        *self.block.get_or_insert_with(|| smallest_direct_write(file).unwrap_or(PAGE_BYTES))
    }

    /// Memory for the longest write.
    fn blocks(&mut self) -> &mut [u8] {
        if self.buffer.is_empty() {
            self.buffer = vec![0; DIRECT_BYTES + PAGE_BYTES];
            self.first = self.buffer.as_ptr().align_offset(PAGE_BYTES);
        }
        &mut self.buffer[self.first..][..DIRECT_BYTES]
    }
}

impl OsWriteFile {
    /// Writes whole blocks: what the first one holds already, `bytes`, and zeros of the room behind them.
    fn write_direct(&mut self, bytes: &[u8]) -> io::Result<()> {
        let block = self.direct.block_bytes(&self.file);
        let held = (self.len % block as u64) as usize;
        let begin = self.len - held as u64;
        let used = held + bytes.len();
        let size = used.next_multiple_of(block);
        if size > DIRECT_BYTES || begin + size as u64 > self.room {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let direct = &mut self.direct;
        if direct.held_to != Some(self.len) {
            direct.switch(&self.file, false)?;
            self.file.read_exact_at(&mut direct.blocks()[..held], begin)?;
        }
        direct.held_to = None;
        direct.switch(&self.file, true)?;
        let blocks = &mut direct.blocks()[..size];
        blocks[held..used].copy_from_slice(bytes);
        blocks[used..].fill(0);
        self.file.write_all_at(blocks, begin)?;
        self.len += bytes.len() as u64;
        blocks.copy_within(used - used % block.., 0);
        direct.held_to = Some(self.len);
        Ok(())
    }
}

impl WriteFile for OsWriteFile {
    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let written = self.direct.switch(&self.file, false).and_then(|()| self.file.write_all_at(bytes, self.len));
        written.map_err(Error::io("write", &self.path))?;
        self.len += bytes.len() as u64;
        Ok(())
    }

    fn write_through(&mut self, bytes: &[u8]) -> Result<()> {
        // Whatever kept it from going past the page cache: the way through it works, or tells what is wrong.
        self.write_direct(bytes).or_else(|_| self.write(bytes))
    }

    fn block_bytes(&mut self) -> u64 {
        self.direct.block_bytes(&self.file) as u64
    }

    fn sync(&mut self) -> Result<()> {
        self.file.sync_data().map_err(Error::io("sync", &self.path))
    }

    fn truncate(&mut self, len: u64) -> Result<()> {
        self.file.set_len(len).map_err(Error::io("truncate", &self.path))?;
        (self.len, self.room, self.direct.held_to) = (len, len, None);
        Ok(())
    }

    fn reserve(&mut self, len: u64) {
        // Zeros, not fallocate: the first write into each allocated but unwritten block changes metadata again.
        let from = self.len.max(self.room);
        let zeros = vec![0; len.saturating_sub(from) as usize];
        if self.direct.switch(&self.file, false).and_then(|()| self.file.write_all_at(&zeros, from)).is_ok() {
            self.room = len.max(from);
        }
    }

    fn len(&self) -> u64 {
        self.len
    }
}

impl ReadFile for OsReadFile {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.file.read_exact_at(buf, offset).map_err(Error::io("read", &self.path))
    }

    fn len(&self) -> u64 {
        self.len
    }
}

/// Of a folder, or of a link that has its name.
fn folder_id(path: &Path) -> Result<FolderId> {
    let metadata = fs::symlink_metadata(path).map_err(Error::io("open", path))?;
    Ok(FolderId { device: metadata.dev(), number: metadata.ino() })
}

impl Fs for OsFs {
    fn create(&self, path: &Path) -> Result<Box<dyn WriteFile>> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)
            .map_err(Error::io("create", path))?;
        Ok(Box::new(OsWriteFile { file, path: path.to_path_buf(), len: 0, room: 0, direct: Direct::default() }))
    }

    fn reuse(&self, path: &Path) -> Result<Box<dyn WriteFile>> {
        let file = OpenOptions::new().read(true).write(true).open(path).map_err(Error::io("open", path))?;
        let room = file.metadata().map_err(Error::io("open", path))?.len();
        Ok(Box::new(OsWriteFile { file, path: path.to_path_buf(), len: 0, room, direct: Direct::default() }))
    }

    fn open(&self, path: &Path) -> Result<Arc<dyn ReadFile>> {
        let file = File::open(path).map_err(Error::io("open", path))?;
        let len = file.metadata().map_err(Error::io("open", path))?.len();
        Ok(Arc::new(OsReadFile { file, path: path.to_path_buf(), len }))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        fs::rename(from, to).map_err(Error::io("rename", from))
    }

    fn remove(&self, path: &Path) -> Result<()> {
        fs::remove_file(path).map_err(Error::io("remove", path))
    }

    fn remove_dir(&self, path: &Path) -> Result<()> {
        fs::remove_dir(path).map_err(Error::io("remove", path))
    }

    fn hard_link(&self, from: &Path, to: &Path) -> Result<()> {
        fs::hard_link(from, to).map_err(Error::io("link", to))
    }

    fn create_dir(&self, path: &Path) -> Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(Error::io("create", path))
    }

    fn make_dir(&self, path: &Path) -> Result<FolderId> {
        DirBuilder::new().mode(0o700).create(path).map_err(Error::io("create", path))?;
        folder_id(path)
    }

    fn remove_tree(&self, path: &Path, made: FolderId) -> Result<()> {
        if folder_id(path)? != made {
            let other = io::Error::other("another folder or link has its name");
            return Err(Error::io("remove", path)(other));
        }
        fs::remove_dir_all(path).map_err(Error::io("remove", path))
    }

    fn list(&self, dir: &Path) -> Result<Vec<DirEntry>> {
        let mut entries = Vec::new();
        for entry in fs::read_dir(dir).map_err(Error::io("list", dir))? {
            let entry = entry.map_err(Error::io("list", dir))?;
            let metadata = match entry.metadata() {
                // Removed since the folder was read.
                Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
                other => other.map_err(Error::io("list", &entry.path()))?,
            };
            let name = entry.file_name().to_string_lossy().into_owned();
            entries.push(DirEntry { name, bytes: metadata.len(), is_dir: metadata.is_dir() });
        }
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }

    fn sync_file(&self, path: &Path) -> Result<()> {
        let file = File::open(path).map_err(Error::io("open", path))?;
        file.sync_data().map_err(Error::io("sync", path))
    }

    fn exists(&self, path: &Path) -> bool {
        fs::symlink_metadata(path).is_ok()
    }

    fn syncs_at_once(&self) -> usize {
        limits::SYNCS_AT_ONCE
    }

    fn sync_dir(&self, dir: &Path) -> Result<()> {
        let file = File::open(dir).map_err(Error::io("open", dir))?;
        file.sync_all().map_err(Error::io("sync", dir))
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn FileLock>> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path)
            .map_err(Error::io("lock", path))?;
        match try_flock(&file) {
            Ok(()) => Ok(Box::new(OsLock { _file: file })),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Err(Error::Locked { path: path.to_path_buf() }),
            Err(e) => Err(Error::io("lock", path)(e)),
        }
    }
}

/// The smallest write with O_DIRECT that the file system says it takes, if it says so (Linux 6.1 and newer).
fn smallest_direct_write(file: &File) -> Option<usize> {
    // SAFETY: `statx` is a struct of integers, and arrays of them: zeros are a value of it.
    let mut about: libc::statx = unsafe { std::mem::zeroed() };
    // SAFETY: the descriptor is open as long as `file` is borrowed, the name ends with its zero, `about` is what is asked for.
    let status = unsafe {
        libc::statx(file.as_raw_fd(), c"".as_ptr(), libc::AT_EMPTY_PATH, libc::STATX_DIOALIGN, &raw mut about)
    };
    let is_told = status == 0 && about.stx_mask & libc::STATX_DIOALIGN != 0;
    let bytes = about.stx_dio_offset_align as usize;
    (is_told && bytes.is_power_of_two() && bytes <= PAGE_BYTES).then_some(bytes)
}

/// Takes the exclusive lock of a file without waiting.
fn try_flock(file: &File) -> io::Result<()> {
    // SAFETY: flock touches no memory of ours, and the descriptor is open as long as `file` is borrowed.
    let status = unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

    use std::os::unix::fs::PermissionsExt;

    use proptest::prelude::*;

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn what_is_written_can_be_read_and_only_by_the_owner() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("a/b");
        OsFs.create_dir(&folder).unwrap();
        OsFs.create_dir(&folder).unwrap();
        let path = folder.join("f");
        let mut file = OsFs.create(&path).unwrap();
        assert!(OsFs.create(&path).is_err(), "the name is taken");
        file.write(b"hello ").unwrap();
        file.write(b"wurld").unwrap();
        file.reserve(4096);
        file.truncate(7).unwrap();
        file.write(b"orld").unwrap();
        file.sync().unwrap();
        assert_eq!(file.len(), 11);
        OsFs.sync_file(&path).unwrap();
        OsFs.sync_dir(&folder).unwrap();
        let read = OsFs.open(&path).unwrap();
        let mut buf = [0; 5];
        read.read_at(6, &mut buf).unwrap();
        assert_eq!(&buf, b"world");
        assert!(read.read_at(7, &mut buf).is_err(), "a short file is an error");
        assert_eq!(read.len(), 11);
        assert_eq!((mode(&path), mode(&folder)), (0o600, 0o700));
    }

    #[test]
    fn reserved_room_holds_zeros_and_can_be_given_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let mut file = OsFs.create(&path).unwrap();
        file.write(b"front").unwrap();
        file.reserve(9000);
        file.write(b", back").unwrap();
        file.sync().unwrap();
        let bytes = fs::read(&path).unwrap();
        assert_eq!((&bytes[..11], file.len()), (&b"front, back"[..], 11));
        assert!(bytes[11..].iter().all(|&b| b == 0));
        file.truncate(11).unwrap();
        assert_eq!(OsFs.open(&path).unwrap().len(), 11);
    }

    #[derive(Clone, Debug)]
    enum Step {
        Write(usize),
        WriteThrough(usize),
        /// So many bytes more.
        Reserve(usize),
        /// So many bytes less.
        Truncate(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        let length = || prop_oneof![1..3000_usize, Just(PAGE_BYTES), 1..100_000_usize];
        prop_oneof![
            2 => length().prop_map(Step::Write),
            10 => length().prop_map(Step::WriteThrough),
            2 => (1..300_000_usize).prop_map(Step::Reserve),
            1 => (0..6000_usize).prop_map(Step::Truncate),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]

        #[test]
        fn whatever_way_bytes_are_written_the_file_has_them_in_order_and_zeros_behind(
            steps in prop::collection::vec(step(), 1..40),
        ) {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("f");
            let mut file = OsFs.create(&path).unwrap();
            let mut expected: Vec<u8> = Vec::new();
            let bytes = |n: usize, salt: usize| (0..n).map(|i| ((i * 31 + salt) % 255) as u8 + 1).collect::<Vec<_>>();
            for (n, step) in steps.into_iter().enumerate() {
                match step {
                    Step::Write(length) => {
                        file.write(&bytes(length, n)).unwrap();
                        expected.extend(bytes(length, n));
                    }
                    Step::WriteThrough(length) => {
                        file.write_through(&bytes(length, n)).unwrap();
                        expected.extend(bytes(length, n));
                    }
                    Step::Reserve(more) => file.reserve((expected.len() + more) as u64),
                    Step::Truncate(less) => {
                        expected.truncate(expected.len() - expected.len().min(less));
                        file.truncate(expected.len() as u64).unwrap();
                    }
                }
                prop_assert_eq!(file.len(), expected.len() as u64);
            }
            file.sync().unwrap();
            let found = fs::read(&path).unwrap();
            prop_assert!(found.starts_with(&expected));
            prop_assert!(found[expected.len()..].iter().all(|&b| b == 0));
        }
    }

    #[test]
    fn names_are_listed_in_order_and_can_be_changed() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for name in ["b", "a"] {
            OsFs.create(&at(name)).unwrap().write(name.as_bytes()).unwrap();
        }
        OsFs.create_dir(&at("d")).unwrap();
        OsFs.rename(&at("a"), &at("c")).unwrap();
        OsFs.hard_link(&at("c"), &at("e")).unwrap();
        OsFs.remove(&at("c")).unwrap();
        let names: Vec<_> = OsFs.list(dir.path()).unwrap().into_iter().map(|e| (e.name, e.is_dir)).collect();
        assert_eq!(names, [("b".into(), false), ("d".into(), true), ("e".into(), false)]);
        OsFs.remove_dir(&at("d")).unwrap();
        assert!(!OsFs.exists(&at("d")) && OsFs.exists(&at("e")));
    }

    #[test]
    fn a_folder_has_one_user_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let held = OsFs.lock(&path).unwrap();
        assert!(matches!(OsFs.lock(&path), Err(Error::Locked { .. })));
        drop(held);
        OsFs.lock(&path).unwrap();
    }

    #[test]
    fn an_error_names_the_operation_and_the_file() {
        let text = OsFs.open(Path::new("/nowhere/f")).err().unwrap().to_string();
        assert!(text.starts_with("cannot open '/nowhere/f'"), "{text}");
    }
}
