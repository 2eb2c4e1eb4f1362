//! A file system in memory whose power can be cut, for tests.
//!
//! It keeps two truths: what a running program sees, and what is durable. Written bytes become durable with
//! `sync`, names with `sync_dir` of their folder. [`SimFs::power_cut`] gives the file system that a restarted
//! machine finds: everything durable, and of the rest a seeded choice, where each unsynced write is kept, lost
//! (a hole of zeros when something behind it was kept) or torn, and each unsynced name is kept or lost,
//! independent of order. Faults are planned by the number of a mutating operation, counted from 1: create
//! (files, folders and lock files), write, truncate, reserve, sync, rename, remove, link, sync_dir. No state is shared
//! between a file system and the one that its power cut gives; clones share all of it.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::{DirEntry, FileLock, FolderId, Fs, ReadFile, WriteFile};
use crate::error::{Error, Result};

#[cfg(test)]
mod tests;

/// Zeros that a file gets at most when it asks for room: little, because tests look at every byte of files.
const MAX_ROOM: usize = 100;

/// A simulated file system.
#[derive(Clone)]
pub struct SimFs {
    disk: Arc<Mutex<Disk>>,
    gate: Arc<ReadGate>,
}

/// Where reads of some files wait.
#[derive(Default)]
struct ReadGate {
    closed: Mutex<Closed>,
    changed: Condvar,
}

#[derive(Default)]
struct Closed {
    /// For files whose paths contain this.
    part: Option<String>,
    /// How many reads came since it was closed.
    reached: usize,
}

/// A gate before the reads of some files; open once this is dropped.
pub struct ClosedReads<'g>(&'g ReadGate);

impl ReadGate {
    fn pass(&self, path: &Path) {
        let mut closed = self.closed.lock();
        let is_held = |closed: &Closed| closed.part.as_ref().is_some_and(|part| path.to_string_lossy().contains(part));
        if is_held(&closed) {
            closed.reached += 1;
            self.changed.notify_all();
        }
        while is_held(&closed) {
            self.changed.wait(&mut closed);
        }
    }
}

impl ClosedReads<'_> {
    /// How many reads have come to it.
    pub fn reached(&self) -> usize {
        self.0.closed.lock().reached
    }

    /// Returns when so many reads have come to it.
    pub fn until_reached(&self, count: usize) {
        let mut closed = self.0.closed.lock();
        while closed.reached < count {
            self.0.changed.wait(&mut closed);
        }
    }
}

impl Drop for ClosedReads<'_> {
    fn drop(&mut self) {
        *self.0.closed.lock() = Closed::default();
        self.0.changed.notify_all();
    }
}

/// What a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Node {
    Dir,
    File(usize),
}

/// A change of a file that no sync has covered.
#[derive(Clone)]
enum Change {
    Write { offset: usize, bytes: Vec<u8> },
    Truncate { len: usize },
}

/// A file, whatever names it has.
#[derive(Clone, Default)]
struct Inode {
    seen: Vec<u8>,
    durable: Vec<u8>,
    unsynced: Vec<Change>,
}

/// A change of names that is done as a whole.
#[derive(Clone)]
enum NameChange {
    /// Names that change together (a rename is two of them), `None` for gone.
    Set(Vec<(PathBuf, Option<Node>)>),
    /// A folder gets another name beside its old one, with all that lies in it.
    MoveDir { from: PathBuf, to: PathBuf },
}

#[derive(Default)]
struct Disk {
    inodes: Vec<Inode>,
    seen: BTreeMap<PathBuf, Node>,
    durable: BTreeMap<PathBuf, Node>,
    unsynced: Vec<NameChange>,
    locks: BTreeSet<PathBuf>,
    ops: u64,
    plan: Plan,
    random: u64,
    sync_takes: Duration,
    block_bytes: u64,
    watch: Option<Watch>,
}

/// Bytes of all files with some ending.
struct Watch {
    ending: &'static str,
    /// After each operation that changes them: the most and the number of times that they were more than allowed.
    most: u64,
    limit: u64,
    over: u64,
}

/// The faults to come.
#[derive(Default)]
struct Plan {
    crash_at: Option<u64>,
    fail_at: BTreeMap<u64, i32>,
    fail_from: Option<(u64, i32)>,
}

/// What happens to a mutating operation.
enum Fate {
    /// It works.
    Works,
    /// The power goes while it runs: done or not, nobody knows.
    Cut,
    /// It fails with this error number.
    Fails(i32),
}

impl Default for SimFs {
    fn default() -> Self {
        SimFs::new()
    }
}

impl SimFs {
    /// An empty file system.
    pub fn new() -> SimFs {
        SimFs::with_seed(0)
    }

    /// An empty file system whose partial writes and failed syncs depend on `seed`.
    pub fn with_seed(seed: u64) -> SimFs {
        let disk = Disk { random: seed, ..Disk::default() };
        SimFs { disk: Arc::new(Mutex::new(disk)), gate: Arc::default() }
    }

    /// From now on whoever reads a file whose path contains `part` waits until what this returns is dropped.
    pub fn close_reads(&self, part: &str) -> ClosedReads<'_> {
        *self.gate.closed.lock() = Closed { part: Some(part.into()), reached: 0 };
        ClosedReads(&self.gate)
    }

    /// From now on a sync of a file takes so long, as on a disk.
    pub fn slow_down_syncs(&self, takes: Duration) {
        self.disk.lock().sync_takes = takes;
    }

    /// From now on the disk has blocks of so many bytes: files tell, and that is all.
    pub fn set_block_bytes(&self, bytes: u64) {
        self.disk.lock().block_bytes = bytes;
    }

    /// How many mutating operations there have been, failed ones included.
    pub fn op_count(&self) -> u64 {
        self.disk.lock().ops
    }

    /// Cuts the power during the `n`-th mutating operation: it and all later ones fail.
    pub fn crash_at(&self, n: u64) {
        self.disk.lock().plan.crash_at = Some(n);
    }

    /// Lets only the `n`-th mutating operation fail, with an error number of the system. A failing write leaves
    /// a random part behind; a failing sync makes some unsynced writes durable, forgets others for good and
    /// keeps the rest unsynced.
    pub fn fail_at(&self, n: u64, errno: i32) {
        self.disk.lock().plan.fail_at.insert(n, errno);
    }

    /// Lets every write, create and link fail from the `n`-th mutating operation on, as on a full disk.
    pub fn fail_from(&self, n: u64, errno: i32) {
        self.disk.lock().plan.fail_from = Some((n, errno));
    }

    /// Ends what `fail_at` and `fail_from` planned.
    pub fn heal(&self) {
        let plan = &mut self.disk.lock().plan;
        plan.fail_at.clear();
        plan.fail_from = None;
    }

    /// What a machine finds that starts again after losing power now; `seed` chooses what survived.
    pub fn power_cut(&self, seed: u64) -> SimFs {
        let disk = self.disk.lock();
        SimFs { disk: Arc::new(Mutex::new(disk.after_power_cut(seed))), gate: Arc::default() }
    }

    /// What a server finds that starts again after it was killed now, the machine going on: everything that was
    /// written, durable or not.
    pub fn kill(&self) -> SimFs {
        let disk = self.disk.lock();
        let after = Disk {
            inodes: disk.inodes.clone(),
            seen: disk.seen.clone(),
            durable: disk.durable.clone(),
            unsynced: disk.unsynced.clone(),
            random: disk.random,
            block_bytes: disk.block_bytes,
            ..Disk::default()
        };
        SimFs { disk: Arc::new(Mutex::new(after)), gate: Arc::default() }
    }

    /// Flips the bits of `xor` in one byte, on disk; nothing happens behind the end.
    pub fn corrupt(&self, path: &Path, offset: u64, xor: u8) {
        self.edit(path, |bytes| {
            if let Some(byte) = bytes.get_mut(offset as usize) {
                *byte ^= xor;
            }
        });
    }

    /// Cuts a file, on disk.
    pub fn truncate(&self, path: &Path, len: u64) {
        self.edit(path, |bytes| bytes.truncate(len as usize));
    }

    /// The bytes of a file; empty if there is none.
    pub fn read(&self, path: &Path) -> Vec<u8> {
        let disk = self.disk.lock();
        match disk.seen.get(path) {
            Some(&Node::File(inode)) => disk.inodes[inode].seen.clone(),
            _ => Vec::new(),
        }
    }

    /// All files, by path.
    pub fn files(&self) -> Vec<PathBuf> {
        let disk = self.disk.lock();
        let is_file = |(path, node): (&PathBuf, &Node)| matches!(node, Node::File(_)).then(|| path.clone());
        disk.seen.iter().filter_map(is_file).collect()
    }

    /// From now on the bytes of all files whose names end so are looked at after each operation that may change them.
    pub fn watch(&self, ending: &'static str, limit: u64) {
        self.disk.lock().watch = Some(Watch { ending, most: 0, limit, over: 0 });
    }

    /// The most bytes that they had since `watch`, and after how many operations they were over the limit.
    pub fn watched(&self) -> (u64, u64) {
        self.disk.lock().watch.as_ref().map_or((0, 0), |watch| (watch.most, watch.over))
    }

    /// Bytes of all files whose names end so, at this moment.
    pub fn bytes_of(&self, ending: &str) -> u64 {
        self.disk.lock().bytes_of(ending)
    }

    fn edit(&self, path: &Path, change: impl Fn(&mut Vec<u8>)) {
        let disk = &mut *self.disk.lock();
        if let Some(&Node::File(inode)) = disk.seen.get(path) {
            change(&mut disk.inodes[inode].seen);
            change(&mut disk.inodes[inode].durable);
        }
    }
}

impl Inode {
    fn change(&mut self, change: Change) {
        change.apply(&mut self.seen);
        self.unsynced.push(change);
    }

    fn sync(&mut self) {
        for change in self.unsynced.drain(..) {
            change.apply(&mut self.durable);
        }
    }

    /// A sync that fails: each change becomes durable, is forgotten, or stays unsynced.
    fn sync_badly(&mut self, random: &mut u64) {
        for change in std::mem::take(&mut self.unsynced) {
            match next(random) % 3 {
                0 => change.apply(&mut self.durable),
                1 => {}
                _ => self.unsynced.push(change),
            }
        }
    }

    fn after_power_cut(&self, random: &mut u64) -> Inode {
        let mut durable = self.durable.clone();
        for change in &self.unsynced {
            match next(random) % 4 {
                0 => {}
                1 => change.torn(random).apply(&mut durable),
                2 => change.holed(random).apply(&mut durable),
                _ => change.apply(&mut durable),
            }
        }
        Inode { seen: durable.clone(), durable, unsynced: Vec::new() }
    }
}

impl Change {
    fn apply(&self, content: &mut Vec<u8>) {
        match self {
            Change::Truncate { len } => content.truncate(*len),
            Change::Write { offset, bytes } => {
                let end = offset + bytes.len();
                if content.len() < end {
                    content.resize(end, 0);
                }
                content[*offset..end].copy_from_slice(bytes);
            }
        }
    }

    /// Only the front arrived, up to a random byte.
    fn torn(&self, random: &mut u64) -> Change {
        match self {
            Change::Truncate { len } => Change::Truncate { len: *len },
            Change::Write { offset, bytes } => {
                Change::Write { offset: *offset, bytes: bytes[..below(random, bytes.len() + 1)].to_vec() }
            }
        }
    }

    /// The length arrived, but a random stretch holds zeros.
    fn holed(&self, random: &mut u64) -> Change {
        let mut change = self.clone();
        if let Change::Write { bytes, .. } = &mut change {
            let start = below(random, bytes.len() + 1);
            let end = start + below(random, bytes.len() + 1 - start);
            bytes[start..end].fill(0);
        }
        change
    }
}

impl Disk {
    /// Counts a mutating operation and says what happens to it.
    fn begin(&mut self, op: &'static str) -> Fate {
        self.ops += 1;
        if let Some(n) = self.plan.crash_at {
            match self.ops.cmp(&n) {
                std::cmp::Ordering::Less => {}
                std::cmp::Ordering::Equal => return Fate::Cut,
                std::cmp::Ordering::Greater => return Fate::Fails(libc::EIO),
            }
        }
        if let Some(&errno) = self.plan.fail_at.get(&self.ops) {
            return Fate::Fails(errno);
        }
        match self.plan.fail_from {
            Some((n, errno)) if self.ops >= n && matches!(op, "create" | "write" | "link") => Fate::Fails(errno),
            _ => Fate::Works,
        }
    }

    fn bytes_of(&self, ending: &str) -> u64 {
        let is_meant = |path: &Path| path.extension().is_some_and(|found| found == ending);
        let len = |(path, node): (&PathBuf, &Node)| match node {
            Node::File(inode) if is_meant(path) => self.inodes[*inode].seen.len() as u64,
            _ => 0,
        };
        self.seen.iter().map(len).sum()
    }

    /// After an operation on a file.
    fn note_bytes(&mut self, path: &Path) {
        let Some(Watch { ending, .. }) = self.watch else { return };
        if path.extension().is_some_and(|found| found == ending) {
            let bytes = self.bytes_of(ending);
            if let Some(watch) = &mut self.watch {
                watch.most = watch.most.max(bytes);
                watch.over += u64::from(bytes > watch.limit);
            }
        }
    }

    fn cut(&self) -> bool {
        self.plan.crash_at.is_some_and(|n| self.ops > n)
    }

    /// Does a change of names, or refuses it.
    fn rename_all(&mut self, op: &'static str, path: &Path, change: NameChange) -> Result<()> {
        match self.begin(op) {
            Fate::Works => {
                self.apply_names(change);
                self.note_bytes(path);
            }
            Fate::Cut => {
                self.apply_names(change);
                return Err(failure(op, path, libc::EIO));
            }
            Fate::Fails(errno) => return Err(failure(op, path, errno)),
        }
        Ok(())
    }

    fn apply_names(&mut self, change: NameChange) {
        set_names(&mut self.seen, &change);
        self.unsynced.push(change);
    }

    fn sync_names(&mut self, dir: &Path) {
        for change in std::mem::take(&mut self.unsynced) {
            let (now, later) = change.split_at(dir);
            set_names(&mut self.durable, &now);
            if !later.is_nothing() {
                self.unsynced.push(later);
            }
        }
    }

    fn file(&self, op: &'static str, path: &Path) -> Result<usize> {
        match self.seen.get(path) {
            Some(&Node::File(inode)) => Ok(inode),
            Some(Node::Dir) => Err(failure(op, path, libc::EISDIR)),
            None => Err(failure(op, path, libc::ENOENT)),
        }
    }

    /// The folder that a new name goes to has to exist; the root and the working folder always do.
    fn check_parent(&self, op: &'static str, path: &Path) -> Result<()> {
        match path.parent() {
            Some(parent) if !is_root(parent) && self.seen.get(parent) != Some(&Node::Dir) => {
                Err(failure(op, path, libc::ENOENT))
            }
            _ => Ok(()),
        }
    }

    fn has_children(&self, dir: &Path) -> bool {
        self.seen.keys().any(|path| path.parent() == Some(dir))
    }

    fn after_power_cut(&self, seed: u64) -> Disk {
        let mut random = seed ^ 0x9e37_79b9_7f4a_7c15;
        let mut names = self.durable.clone();
        for change in &self.unsynced {
            if next(&mut random) & 1 == 0 {
                set_names(&mut names, change);
            }
        }
        drop_orphans(&mut names);
        let inodes = self.inodes.iter().map(|inode| inode.after_power_cut(&mut random)).collect();
        let block_bytes = self.block_bytes;
        Disk { inodes, seen: names.clone(), durable: names, random, block_bytes, ..Disk::default() }
    }
}

impl NameChange {
    fn one(path: &Path, node: Option<Node>) -> NameChange {
        NameChange::Set(vec![(path.to_path_buf(), node)])
    }

    /// What a sync of `dir` makes durable of it, and the rest.
    fn split_at(self, dir: &Path) -> (NameChange, NameChange) {
        match self {
            NameChange::Set(names) => {
                let (now, later) = names.into_iter().partition(|(path, _)| path.parent() == Some(dir));
                (NameChange::Set(now), NameChange::Set(later))
            }
            NameChange::MoveDir { ref to, .. } if to.parent() == Some(dir) => (self, NameChange::Set(Vec::new())),
            NameChange::MoveDir { .. } => (NameChange::Set(Vec::new()), self),
        }
    }

    fn is_nothing(&self) -> bool {
        matches!(self, NameChange::Set(names) if names.is_empty())
    }

    fn is_below(&self, dir: &Path) -> bool {
        match self {
            NameChange::Set(names) => names.iter().any(|(path, _)| path.starts_with(dir) && path != dir),
            NameChange::MoveDir { to, .. } => to.starts_with(dir) && to != dir,
        }
    }
}

fn set_names(names: &mut BTreeMap<PathBuf, Node>, change: &NameChange) {
    match change {
        NameChange::Set(changes) => {
            for (path, node) in changes {
                match node {
                    Some(node) => names.insert(path.clone(), *node),
                    None => names.remove(path),
                };
            }
        }
        NameChange::MoveDir { from, to } => {
            for (path, node) in std::mem::take(names) {
                let moved =
                    path.strip_prefix(from).map(|rest| if rest == Path::new("") { to.clone() } else { to.join(rest) });
                names.insert(moved.unwrap_or(path), node);
            }
        }
    }
}

/// Takes away what lies in folders that are not there.
fn drop_orphans(names: &mut BTreeMap<PathBuf, Node>) {
    // Paths sort behind their folders, so one pass is enough.
    let mut kept = BTreeMap::new();
    for (path, node) in std::mem::take(names) {
        let has_home = path.parent().is_none_or(|p| is_root(p) || kept.get(p) == Some(&Node::Dir));
        if has_home {
            kept.insert(path, node);
        }
    }
    *names = kept;
}

fn is_root(path: &Path) -> bool {
    path.parent().is_none()
}

fn failure(op: &'static str, path: &Path, errno: i32) -> Error {
    Error::io(op, path)(io::Error::from_raw_os_error(errno))
}

/// The next number of splitmix64.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn below(state: &mut u64, bound: usize) -> usize {
    (next(state) % bound as u64) as usize
}

struct SimWriteFile {
    disk: Arc<Mutex<Disk>>,
    inode: usize,
    path: PathBuf,
    len: usize,
}

impl SimWriteFile {
    fn fail<T>(&self, op: &'static str, errno: i32) -> Result<T> {
        Err(failure(op, &self.path, errno))
    }
}

impl WriteFile for SimWriteFile {
    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let disk = &mut *self.disk.lock();
        let (fate, was_cut) = (disk.begin("write"), disk.cut());
        let inode = &mut disk.inodes[self.inode];
        match fate {
            Fate::Works => {
                inode.change(Change::Write { offset: self.len, bytes: bytes.to_vec() });
                self.len += bytes.len();
                disk.note_bytes(&self.path);
                Ok(())
            }
            Fate::Cut => {
                inode.change(Change::Write { offset: self.len, bytes: bytes.to_vec() });
                self.fail("write", libc::EIO)
            }
            Fate::Fails(errno) => {
                if !was_cut {
                    let part = below(&mut disk.random, bytes.len() + 1);
                    inode.change(Change::Write { offset: self.len, bytes: bytes[..part].to_vec() });
                }
                self.fail("write", errno)
            }
        }
    }

    fn block_bytes(&mut self) -> u64 {
        self.disk.lock().block_bytes.max(1)
    }

    fn sync(&mut self) -> Result<()> {
        let takes = self.disk.lock().sync_takes;
        if !takes.is_zero() {
            // Others go on meanwhile.
            std::thread::sleep(takes);
        }
        sync_inode(&mut self.disk.lock(), self.inode, &self.path)
    }

    fn truncate(&mut self, len: u64) -> Result<()> {
        let disk = &mut *self.disk.lock();
        let fate = disk.begin("truncate");
        let change = Change::Truncate { len: len as usize };
        match fate {
            Fate::Works => {
                disk.inodes[self.inode].change(change);
                self.len = len as usize;
                Ok(())
            }
            Fate::Cut => {
                disk.inodes[self.inode].change(change);
                self.fail("truncate", libc::EIO)
            }
            Fate::Fails(errno) => self.fail("truncate", errno),
        }
    }

    fn reserve(&mut self, len: u64) {
        let disk = &mut *self.disk.lock();
        let fate = disk.begin("reserve");
        let room = (len as usize).saturating_sub(self.len).min(MAX_ROOM);
        let inode = &mut disk.inodes[self.inode];
        if !matches!(fate, Fate::Fails(_)) && inode.seen.len() < self.len + room {
            inode.change(Change::Write { offset: self.len, bytes: vec![0; room] });
        }
    }

    fn len(&self) -> u64 {
        self.len as u64
    }
}

fn sync_inode(disk: &mut Disk, inode: usize, path: &Path) -> Result<()> {
    let fate = disk.begin("sync");
    let was_cut = disk.cut();
    let inode = &mut disk.inodes[inode];
    match fate {
        Fate::Works => {
            inode.sync();
            Ok(())
        }
        // What the power cut leaves of the unsynced writes is as open as before.
        Fate::Cut => Err(failure("sync", path, libc::EIO)),
        Fate::Fails(errno) => {
            if !was_cut {
                inode.sync_badly(&mut disk.random);
            }
            Err(failure("sync", path, errno))
        }
    }
}

struct SimReadFile {
    disk: Arc<Mutex<Disk>>,
    gate: Arc<ReadGate>,
    inode: usize,
    path: PathBuf,
}

impl ReadFile for SimReadFile {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.gate.pass(&self.path);
        let disk = self.disk.lock();
        let content = &disk.inodes[self.inode].seen;
        let found = usize::try_from(offset)
            .ok()
            .and_then(|start| Some(start..start.checked_add(buf.len())?))
            .and_then(|range| content.get(range));
        match found {
            Some(bytes) => {
                buf.copy_from_slice(bytes);
                Ok(())
            }
            None => Err(Error::io("read", &self.path)(io::ErrorKind::UnexpectedEof.into())),
        }
    }

    fn len(&self) -> u64 {
        self.disk.lock().inodes[self.inode].seen.len() as u64
    }
}

struct SimLock {
    disk: Arc<Mutex<Disk>>,
    path: PathBuf,
}

impl FileLock for SimLock {}

impl Drop for SimLock {
    fn drop(&mut self) {
        self.disk.lock().locks.remove(&self.path);
    }
}

impl Fs for SimFs {
    fn create(&self, path: &Path) -> Result<Box<dyn WriteFile>> {
        let disk = &mut *self.disk.lock();
        if disk.seen.contains_key(path) {
            return Err(failure("create", path, libc::EEXIST));
        }
        disk.check_parent("create", path)?;
        let inode = disk.inodes.len();
        disk.inodes.push(Inode::default());
        disk.rename_all("create", path, NameChange::one(path, Some(Node::File(inode))))?;
        Ok(Box::new(SimWriteFile { disk: self.disk.clone(), inode, path: path.to_path_buf(), len: 0 }))
    }

    fn reuse(&self, path: &Path) -> Result<Box<dyn WriteFile>> {
        let inode = self.disk.lock().file("open", path)?;
        Ok(Box::new(SimWriteFile { disk: self.disk.clone(), inode, path: path.to_path_buf(), len: 0 }))
    }

    fn open(&self, path: &Path) -> Result<Arc<dyn ReadFile>> {
        let inode = self.disk.lock().file("open", path)?;
        let (disk, gate) = (self.disk.clone(), self.gate.clone());
        Ok(Arc::new(SimReadFile { disk, gate, inode, path: path.to_path_buf() }))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        let disk = &mut *self.disk.lock();
        disk.check_parent("rename", to)?;
        let Some(&node) = disk.seen.get(from) else {
            return Err(failure("rename", from, libc::ENOENT));
        };
        if node == Node::Dir {
            // To another folder, or with names in it that are not durable: nobody here needs to know how that ends.
            if disk.seen.contains_key(to)
                || from.parent() != to.parent()
                || disk.unsynced.iter().any(|c| c.is_below(from))
            {
                return Err(failure("rename", from, libc::ENOTEMPTY));
            }
            let change = NameChange::MoveDir { from: from.to_path_buf(), to: to.to_path_buf() };
            return disk.rename_all("rename", from, change);
        }
        let change = NameChange::Set(vec![(to.to_path_buf(), Some(node)), (from.to_path_buf(), None)]);
        disk.rename_all("rename", from, change)
    }

    fn remove(&self, path: &Path) -> Result<()> {
        let disk = &mut *self.disk.lock();
        disk.file("remove", path)?;
        disk.rename_all("remove", path, NameChange::one(path, None))
    }

    fn remove_dir(&self, path: &Path) -> Result<()> {
        let disk = &mut *self.disk.lock();
        match disk.seen.get(path) {
            None => return Err(failure("remove", path, libc::ENOENT)),
            Some(Node::File(_)) => return Err(failure("remove", path, libc::ENOTDIR)),
            Some(Node::Dir) if disk.has_children(path) => {
                return Err(failure("remove", path, libc::ENOTEMPTY));
            }
            Some(Node::Dir) => {}
        }
        disk.rename_all("remove", path, NameChange::one(path, None))
    }

    fn hard_link(&self, from: &Path, to: &Path) -> Result<()> {
        let disk = &mut *self.disk.lock();
        let inode = disk.file("link", from)?;
        if disk.seen.contains_key(to) {
            return Err(failure("link", to, libc::EEXIST));
        }
        disk.check_parent("link", to)?;
        disk.rename_all("link", to, NameChange::one(to, Some(Node::File(inode))))
    }

    fn create_dir(&self, path: &Path) -> Result<()> {
        let disk = &mut *self.disk.lock();
        let missing: Vec<_> = path.ancestors().filter(|p| !is_root(p)).collect();
        for dir in missing.into_iter().rev() {
            match disk.seen.get(dir) {
                Some(Node::Dir) => {}
                Some(Node::File(_)) => return Err(failure("create", dir, libc::EEXIST)),
                None => disk.rename_all("create", dir, NameChange::one(dir, Some(Node::Dir)))?,
            }
        }
        Ok(())
    }

    fn make_dir(&self, path: &Path) -> Result<FolderId> {
        if self.exists(path) {
            return Err(failure("create", path, libc::EEXIST));
        }
        self.create_dir(path).map(|()| FolderId::default())
    }

    /// There are no links here.
    fn remove_tree(&self, path: &Path, _: FolderId) -> Result<()> {
        for entry in self.list(path)? {
            let path = path.join(&entry.name);
            if entry.is_dir { self.remove_tree(&path, FolderId::default())? } else { self.remove(&path)? }
        }
        self.remove_dir(path)
    }

    fn list(&self, dir: &Path) -> Result<Vec<DirEntry>> {
        let disk = self.disk.lock();
        if !is_root(dir) && disk.seen.get(dir) != Some(&Node::Dir) {
            return Err(failure("list", dir, libc::ENOENT));
        }
        let entry = |(path, node): (&PathBuf, &Node)| {
            let name = path.file_name()?.to_string_lossy().into_owned();
            let bytes = match node {
                Node::Dir => 0,
                Node::File(inode) => disk.inodes[*inode].seen.len() as u64,
            };
            Some(DirEntry { name, bytes, is_dir: *node == Node::Dir })
        };
        Ok(disk.seen.iter().filter(|(path, _)| path.parent() == Some(dir)).filter_map(entry).collect())
    }

    fn sync_file(&self, path: &Path) -> Result<()> {
        let disk = &mut *self.disk.lock();
        let inode = disk.file("sync", path)?;
        sync_inode(disk, inode, path)
    }

    fn exists(&self, path: &Path) -> bool {
        is_root(path) || self.disk.lock().seen.contains_key(path)
    }

    fn sync_dir(&self, dir: &Path) -> Result<()> {
        let disk = &mut *self.disk.lock();
        if !is_root(dir) && disk.seen.get(dir) != Some(&Node::Dir) {
            return Err(failure("sync", dir, libc::ENOENT));
        }
        match disk.begin("sync_dir") {
            Fate::Works => {
                disk.sync_names(dir);
                Ok(())
            }
            Fate::Cut => Err(failure("sync", dir, libc::EIO)),
            Fate::Fails(errno) => Err(failure("sync", dir, errno)),
        }
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn FileLock>> {
        let missing = !self.disk.lock().seen.contains_key(path);
        if missing {
            self.create(path)?;
        }
        if !self.disk.lock().locks.insert(path.to_path_buf()) {
            return Err(Error::Locked { path: path.to_path_buf() });
        }
        Ok(Box::new(SimLock { disk: self.disk.clone(), path: path.to_path_buf() }))
    }
}
