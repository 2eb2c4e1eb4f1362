//! What the folders of a table may hold: the bytes of their segments, counted as files are written and removed.
//!
//! The folders of a ring of bytes (rows, indexes, tiers) share a [`Space`] with a limit. Whoever is about to write takes a
//! [`Room`] first, and asks it before each write: beyond what was reserved it gives what is free, and then nothing more. So
//! files never have more than the limit, whatever was guessed before. What only readers still need is counted apart, since
//! nobody can make it go. Counted is in the safe order: written bytes before the disk has them, removed ones after.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard, RwLock};

use super::DirEntry;
use crate::error::Result;
use crate::maintenance::lock_unless;

/// Folders whose bytes are counted.
#[derive(Debug, Default)]
pub struct Spaces {
    folders: RwLock<HashMap<PathBuf, Arc<Space>>>,
}

impl Spaces {
    /// The space that a folder is counted in.
    pub fn of(&self, folder: &Path) -> Option<Arc<Space>> {
        self.folders.read().get(folder).cloned()
    }

    /// Counts a folder in a space, unless it is; `list` says what it holds. Nobody writes meanwhile.
    pub fn join(&self, folder: &Path, space: &Arc<Space>, list: impl FnOnce() -> Result<Vec<DirEntry>>) -> Result<()> {
        if self.of(folder).is_some_and(|known| Arc::ptr_eq(&known, space)) {
            return Ok(());
        }
        let mut folders = self.folders.write();
        let entries = list()?;
        let counts = &mut *space.counts.lock();
        for entry in entries.iter().filter(|entry| is_segment(Path::new(&entry.name))) {
            counts.files.insert(folder.join(&entry.name), entry.bytes);
        }
        counts.bytes = counts.files.values().sum();
        folders.insert(folder.to_path_buf(), space.clone());
        Ok(())
    }

    /// A folder is gone.
    pub fn leave(&self, folder: &Path) {
        self.folders.write().remove(folder);
    }

    /// Bytes are about to be appended to a file.
    pub(super) fn note_write(&self, path: &Path, bytes: u64) {
        if let Some(space) = self.space_of(path) {
            let mut counts = space.counts.lock();
            *counts.files.entry(path.to_path_buf()).or_default() += bytes;
            counts.bytes += bytes;
        }
    }

    /// A file is gone, or has a name now that is not that of a segment.
    pub(super) fn note_gone(&self, path: &Path) {
        if let Some(space) = self.space_of(path) {
            let mut counts = space.counts.lock();
            let bytes = counts.files.remove(path).unwrap_or(0);
            counts.bytes -= bytes;
            counts.held.remove(path);
        }
    }

    fn space_of(&self, path: &Path) -> Option<Arc<Space>> {
        let folders = self.folders.read();
        if folders.is_empty() || !is_segment(path) {
            return None;
        }
        folders.get(path.parent()?).cloned()
    }
}

fn is_segment(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending == "rrds")
}

/// The bytes of some folders, and how many there may be.
#[derive(Debug, Default)]
pub struct Space {
    counts: Mutex<Counts>,
    turn: Mutex<()>,
}

#[derive(Debug, Default)]
struct Counts {
    files: HashMap<PathBuf, u64>,
    /// All that is in `files`.
    bytes: u64,
    /// Files that are there for readers only.
    held: BTreeMap<PathBuf, u64>,
    /// What rooms have that was not written yet.
    reserved: u64,
    limit: u64,
}

impl Counts {
    fn held_bytes(&self) -> u64 {
        self.held.values().sum()
    }

    /// What counts for the limit.
    fn taken(&self) -> u64 {
        (self.bytes + self.reserved).saturating_sub(self.held_bytes())
    }
}

impl Space {
    /// Flushes and merges take turns, from before room is made for one until its files are in place: else what is there
    /// would have to go for both of them at once. Taken before any lock of a table.
    /// [`crate::Error::Interrupted`] once `stop` says so.
    pub fn take_turn(&self, stop: &mut dyn FnMut() -> bool) -> Result<MutexGuard<'_, ()>> {
        lock_unless(&self.turn, stop)
    }

    /// From now on it may have so many bytes.
    pub fn set_limit(&self, bytes: u64) {
        self.counts.lock().limit = bytes;
    }

    /// These files are there for readers only.
    pub fn set_held<'a>(&self, files: impl Iterator<Item = &'a Path>) {
        let counts = &mut *self.counts.lock();
        counts.held = files.filter_map(|file| Some((file.to_path_buf(), *counts.files.get(file)?))).collect();
    }

    /// Bytes of files and reservations, without what is there for readers only.
    pub fn taken(&self) -> u64 {
        self.counts.lock().taken()
    }

    /// Bytes that are left.
    pub fn free(&self) -> u64 {
        let counts = self.counts.lock();
        counts.limit.saturating_sub(counts.taken())
    }

    /// By how much the limit would be passed if there were `more` bytes.
    pub fn excess(&self, more: u64) -> u64 {
        let counts = self.counts.lock();
        (counts.taken() + more).saturating_sub(counts.limit)
    }

    /// Whether it would be passed by all files, those included that are there for readers only.
    pub fn is_passed_with_held(&self, more: u64) -> bool {
        let counts = self.counts.lock();
        counts.bytes + counts.reserved + more > counts.limit
    }

    /// Room for `bytes`, or for as many as there are.
    pub fn reserve(self: &Arc<Space>, bytes: u64) -> Room {
        let mut counts = self.counts.lock();
        let left = bytes.min(counts.limit.saturating_sub(counts.taken()));
        counts.reserved += left;
        drop(counts);
        Room {
            space: self.clone(),
            left: AtomicU64::new(left),
            wanted: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
            is_lifted: AtomicBool::new(false),
        }
    }
}

/// Room for bytes that are about to be written; what is left of it is given back when it is dropped.
#[derive(Debug)]
pub struct Room {
    space: Arc<Space>,
    /// Reserved and not written. It changes while the space is locked.
    left: AtomicU64,
    wanted: AtomicU64,
    is_over: AtomicBool,
    is_lifted: AtomicBool,
}

impl Room {
    /// What is left of it.
    pub fn left(&self) -> u64 {
        self.left.load(Ordering::Relaxed)
    }

    /// Whether more was to be written than there is room for. What was written is of no use then.
    pub fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// All bytes that were to be written.
    pub fn wanted(&self) -> u64 {
        self.wanted.load(Ordering::Relaxed)
    }

    /// From now on everything has to be written, whether there is room for it or not.
    pub fn lift(&self) {
        self.is_lifted.store(true, Ordering::Relaxed);
    }

    /// Before `bytes` are written: whether there is room for them. If not, nothing more is to be written.
    pub fn claim(&self, bytes: u64) -> bool {
        self.wanted.fetch_add(bytes, Ordering::Relaxed);
        if self.is_over() {
            return false;
        }
        let mut counts = self.space.counts.lock();
        let more = bytes.saturating_sub(self.left());
        // What readers hold was perhaps to be waited for: that is for whoever reserves.
        let is_free = counts.bytes + counts.reserved + more <= counts.limit;
        if more > 0 && !is_free && !self.is_lifted.load(Ordering::Relaxed) {
            self.is_over.store(true, Ordering::Relaxed);
            return false;
        }
        counts.reserved += more;
        self.left.fetch_add(more, Ordering::Relaxed);
        true
    }

    /// What was claimed was written.
    pub fn written(&self, bytes: u64) {
        self.take(bytes);
    }

    fn take(&self, bytes: u64) {
        let mut counts = self.space.counts.lock();
        let bytes = bytes.min(self.left());
        counts.reserved -= bytes;
        self.left.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.take(u64::MAX);
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

    use super::*;

    const DIR: &str = "/d/table-00000001";

    fn file(name: &str) -> PathBuf {
        Path::new(DIR).join(name)
    }

    fn space(limit: u64) -> (Spaces, Arc<Space>) {
        let spaces = Spaces::default();
        let space = Arc::new(Space::default());
        spaces.join(Path::new(DIR), &space, || Ok(Vec::new())).unwrap();
        space.set_limit(limit);
        (spaces, space)
    }

    /// As a writer does it.
    fn write(spaces: &Spaces, room: &Room, name: &str, bytes: u64) -> bool {
        let is_room = room.claim(bytes);
        if is_room {
            spaces.note_write(&file(name), bytes);
            room.written(bytes);
        }
        is_room
    }

    #[test]
    fn written_bytes_come_off_what_was_reserved() {
        let (spaces, space) = space(100);
        let room = space.reserve(40);
        assert_eq!(space.taken(), 40);
        assert!(write(&spaces, &room, "a.rrds", 30));
        assert_eq!((space.taken(), room.left()), (40, 10));
        drop(room);
        assert_eq!(space.taken(), 30);
        spaces.note_gone(&file("a.rrds"));
        assert_eq!(space.taken(), 0);
    }

    #[test]
    fn more_than_was_reserved_is_written_if_it_is_free_and_nothing_behind_what_is_not() {
        let (spaces, space) = space(100);
        let other = space.reserve(50);
        let room = space.reserve(10);
        assert!(write(&spaces, &room, "a.rrds", 50));
        assert!(!write(&spaces, &room, "b.rrds", 1) && room.is_over());
        drop(other);
        assert!(!write(&spaces, &room, "b.rrds", 1), "what is written now is of no use");
        assert_eq!((room.wanted(), space.taken()), (52, 50));
    }

    #[test]
    fn no_more_is_reserved_than_there_is() {
        let (spaces, space) = space(100);
        let room = space.reserve(1000);
        assert_eq!((room.left(), space.taken(), space.excess(1)), (100, 100, 1));
        room.lift();
        assert!(write(&spaces, &room, "a.rrds", 1000));
        assert_eq!((space.taken(), space.excess(0)), (1000, 900));
        assert_eq!(space.reserve(1).left(), 0);
    }

    #[test]
    fn what_readers_hold_does_not_count_until_it_is_gone() {
        let (spaces, space) = space(100);
        let room = space.reserve(100);
        assert!(write(&spaces, &room, "a.rrds", 60) && write(&spaces, &room, "b.rrds", 40));
        space.set_held([file("a.rrds")].iter().map(PathBuf::as_path));
        assert_eq!(space.taken(), 40);
        assert!(space.is_passed_with_held(1));
        assert!(!write(&spaces, &room, "c.rrds", 1), "it is not free");
        let room = space.reserve(100);
        assert!(write(&spaces, &room, "c.rrds", 60) && !write(&spaces, &room, "d.rrds", 1));
        spaces.note_gone(&file("a.rrds"));
        assert_eq!(space.taken(), 100);
    }

    #[test]
    fn folders_share_a_space_and_only_segments_count() {
        let (spaces, space) = space(100);
        let index = Path::new("/d/table-00000002");
        let entry = |name: &str, bytes| DirEntry { name: name.into(), bytes, is_dir: false };
        spaces.join(index, &space, || Ok(vec![entry("a.rrds", 20), entry("b.rrds.damaged", 1000)])).unwrap();
        spaces.join(index, &space, || panic!("it is counted")).unwrap();
        assert_eq!(space.taken(), 20);
        spaces.note_write(&index.join("c.rrds"), 5);
        spaces.note_write(Path::new("/d/table-00000003/c.rrds"), 5);
        assert_eq!(space.taken(), 25);
        spaces.leave(index);
        assert!(spaces.of(index).is_none());
    }
}
