//! The newest committed rows of a table, in memory, in key order, until a flush writes them to segments.
//!
//! Each key has a chain of versions, newest first. Commits are applied one after the other in order of their
//! sequence numbers; readers take what their snapshot allows. A frozen memtable is never written again.
//!
//! Rows that came as a batch stay one: beside the map there are sorted runs (`runs.rs`), and reads merge them (`walk.rs`).

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};

use parking_lot::{Mutex, MutexGuard, RwLock, RwLockReadGuard};
use smallvec::SmallVec;

use crate::batch::Batch;
use crate::cursor::Direction;
use crate::flush::is_needed;
use crate::limits;
use crate::row::RowLayout;
use crate::tier::Touched;

mod runs;
mod walk;

use runs::Run;
pub use walk::{KeyRef, Versions, Walk};

/// A sort key; short ones need no allocation.
pub type Key = SmallVec<[u8; 16]>;

/// Bytes that a version costs beside its key and row: map node, allocation headers.
const VERSION_OVERHEAD: usize = 96;

/// One version of a row.
pub struct RowVersion {
    /// Sequence number of the commit that wrote it.
    pub seq: u64,
    /// Row bytes; `None` is a tombstone.
    pub row: Option<Box<[u8]>>,
    older: Option<Box<RowVersion>>,
}

impl RowVersion {
    /// This version and the older ones, newest first.
    pub fn chain(&self) -> impl Iterator<Item = &RowVersion> {
        std::iter::successors(Some(self), |v| v.older.as_deref())
    }

    fn cost(&self) -> usize {
        self.row.as_ref().map_or(0, |r| r.len()) + VERSION_OVERHEAD
    }
}

/// One version of a row, wherever it is.
#[derive(Clone, Copy)]
pub struct VersionRef<'a> {
    /// As in [`RowVersion`].
    pub seq: u64,
    /// As in [`RowVersion`].
    pub row: Option<&'a [u8]>,
}

impl<'a> VersionRef<'a> {
    #[inline]
    fn of(version: &'a RowVersion) -> VersionRef<'a> {
        VersionRef { seq: version.seq, row: version.row.as_deref() }
    }
}

/// The version that a snapshot sees, of those of a key.
pub fn seen_by<'a>(versions: &[VersionRef<'a>], snapshot: u64) -> Option<VersionRef<'a>> {
    versions.iter().find(|v| v.seq <= snapshot).copied()
}

/// A table's rows in memory.
pub struct Memtable {
    layout: Arc<RowLayout>,
    contents: RwLock<Contents>,
    bytes: AtomicUsize,
    /// What deletes make of the number of keys: an estimate of rows.
    deleted_rows: AtomicI64,
    /// Versions that are not the newest of their key, and their bytes.
    old_versions: AtomicU64,
    old_version_bytes: AtomicU64,
    /// Log position of the first commit in it; `u64::MAX` while empty.
    first_lsn: AtomicU64,
    /// The smallest time of a row; `u64::MAX` while empty.
    oldest: AtomicU64,
    /// How many commits brought what is in it, or a few more.
    commits: AtomicU64,
    /// What a flush has to bring into the tiers.
    touched: Option<Mutex<Touched>>,
}

#[derive(Default)]
struct Contents {
    map: BTreeMap<Key, RowVersion>,
    /// Oldest first, but for those that were made one.
    runs: Vec<Arc<Run>>,
}

impl Contents {
    fn walk(&self, from: Bound<&[u8]>, direction: Direction) -> Walk<'_> {
        Walk::new(&self.map, &self.runs, from, direction)
    }

    /// As many as there are keys, but for those that are in several places.
    fn len(&self) -> usize {
        self.map.len() + self.runs.iter().map(|run| run.len()).sum::<usize>()
    }
}

/// The entries of a memtable, locked for reading.
pub struct Entries<'a>(RwLockReadGuard<'a, Contents>);

impl Entries<'_> {
    /// A walk from a bound on.
    pub fn walk(&self, from: Bound<&[u8]>, direction: Direction) -> Walk<'_> {
        self.0.walk(from, direction)
    }

    /// All of them, in key order.
    pub fn all(&self) -> Walk<'_> {
        self.walk(Bound::Unbounded, Direction::Forward)
    }

    /// All keys, in their order.
    pub fn keys(&self) -> Vec<Key> {
        let (mut walk, mut versions) = (self.all(), Versions::new());
        std::iter::from_fn(|| walk.next(&mut versions).map(|key| key.to_key())).collect()
    }

    /// Number of keys, or a little more.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The first key, or the last.
    pub fn end(&self, direction: Direction) -> Option<Key> {
        Some(self.walk(Bound::Unbounded, direction).next(&mut Versions::new())?.to_key())
    }
}

impl Memtable {
    /// An empty memtable for rows of `layout`.
    pub fn new(layout: Arc<RowLayout>) -> Memtable {
        Memtable {
            touched: Touched::of(layout.schema()).map(Mutex::new),
            layout,
            contents: RwLock::default(),
            bytes: AtomicUsize::new(0),
            deleted_rows: AtomicI64::new(0),
            old_versions: AtomicU64::new(0),
            old_version_bytes: AtomicU64::new(0),
            first_lsn: AtomicU64::new(u64::MAX),
            oldest: AtomicU64::new(u64::MAX),
            commits: AtomicU64::new(0),
        }
    }

    /// Layout of its rows.
    pub fn layout(&self) -> &Arc<RowLayout> {
        &self.layout
    }

    /// Approximate bytes that it occupies.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// What a flush has to bring into the tiers; `None` if the table has none. Not to be held for long.
    pub(crate) fn touched(&self) -> Option<MutexGuard<'_, Touched>> {
        self.touched.as_ref().map(Mutex::lock)
    }

    /// Whether a flush has anything to do.
    pub(crate) fn needs_flush(&self) -> bool {
        !self.is_empty() || self.touched().is_some_and(|touched| touched.has_more())
    }

    /// Log position that must be kept for it.
    pub fn first_lsn(&self) -> u64 {
        self.first_lsn.load(Ordering::Acquire)
    }

    /// The smallest time of a row, 0 without a time column; `u64::MAX` while it is empty.
    pub fn oldest(&self) -> u64 {
        self.oldest.load(Ordering::Acquire)
    }

    /// Whether it has so many rows of so small commits that compressing them well costs little beside what the commits did.
    pub(crate) fn is_worth_effort(&self) -> bool {
        let (rows, commits) = (self.len() as u64, self.commits.load(Ordering::Relaxed));
        rows >= limits::SEALED_FLUSH_ROWS && rows <= commits.saturating_mul(limits::SMALL_COMMIT_ROWS)
    }

    /// Whether nothing was written to it.
    pub fn is_empty(&self) -> bool {
        let contents = self.contents.read();
        contents.map.is_empty() && contents.runs.is_empty()
    }

    /// Number of keys, or a little more.
    pub fn len(&self) -> usize {
        self.contents.read().len()
    }

    /// By how many rows it changes the table, roughly: an update counts as a new row.
    pub fn rows_added(&self) -> i64 {
        self.len() as i64 - self.deleted_rows.load(Ordering::Relaxed)
    }

    /// Versions that are not the newest of their key, and their bytes: what readers of the past may still need.
    pub fn old_versions(&self) -> (u64, u64) {
        (self.old_versions.load(Ordering::Relaxed), self.old_version_bytes.load(Ordering::Relaxed))
    }

    /// Calls `take` with the time of each key, in no order, in pieces, so that writers do not wait long.
    pub fn times(&self, take: &mut dyn FnMut(u64)) {
        const PIECE: usize = 4096;
        let mut from = Bound::Unbounded;
        loop {
            let contents = self.contents.read();
            let mut last = None;
            let from_key = from.as_ref().map(|k: &Key| k.as_slice());
            for (key, _) in contents.map.range::<[u8], _>((from_key, Bound::Unbounded)).take(PIECE) {
                self.layout.time_of_key(key).into_iter().for_each(&mut *take);
                last = Some(key);
            }
            let Some(last) = last.cloned() else { break };
            from = Bound::Excluded(last);
        }
        // Nobody changes them.
        let runs = self.contents.read().runs.clone();
        for rows in runs.iter().map(|run| run.rows()) {
            (0..rows.len()).for_each(|i| self.layout.time_of_key(&rows.key(i)).into_iter().for_each(&mut *take));
        }
    }

    /// Adds the writes of one commit. Versions that none of `snapshots` sees are dropped; the list ascends and ends with
    /// what new snapshots see until this commit is visible. Returns by how many bytes the memtable grew.
    pub fn apply(
        &self,
        seq: u64,
        lsn: u64,
        snapshots: &[u64],
        writes: impl Iterator<Item = (Key, Option<Box<[u8]>>)>,
    ) -> i64 {
        self.first_lsn.fetch_min(lsn, Ordering::AcqRel);
        self.commits.fetch_add(1, Ordering::Relaxed);
        let mut added = 0i64;
        let mut deleted = 0i64;
        let mut old = Freed::default();
        let mut oldest = u64::MAX;
        let mut contents = self.contents.write();
        let mut touched = self.touched();
        for (key, row) in writes {
            let time = self.layout.time_of_key(&key);
            oldest = oldest.min(time.unwrap_or(0));
            if let (Some(touched), Some(time)) = (&mut touched, time) {
                touched.note(time, seq);
            }
            let mut version = RowVersion { seq, row, older: None };
            added += version.cost() as i64;
            match contents.map.entry(key) {
                std::collections::btree_map::Entry::Vacant(slot) => {
                    added += slot.key().len() as i64;
                    // A tombstone of its own hides a row on disk.
                    deleted += if version.row.is_none() { 2 } else { 0 };
                    slot.insert(version);
                }
                std::collections::btree_map::Entry::Occupied(mut slot) => {
                    let current = slot.get_mut();
                    deleted += i64::from(version.row.is_none()) - i64::from(current.row.is_none());
                    std::mem::swap(current, &mut version);
                    current.older = Some(Box::new(version));
                    let old_bytes = current.older.as_ref().map_or(0, |version| version.cost() as i64);
                    let freed = drop_unseen(current, snapshots);
                    added -= freed.bytes;
                    old.versions += 1 - freed.versions;
                    old.bytes += old_bytes - freed.bytes;
                }
            }
        }
        self.oldest.fetch_min(oldest, Ordering::AcqRel);
        self.deleted_rows.fetch_add(deleted, Ordering::Relaxed);
        if old != Freed::default() {
            // Adding a negative number wraps to the right sum.
            self.old_versions.fetch_add(old.versions as u64, Ordering::Relaxed);
            self.old_version_bytes.fetch_add(old.bytes as u64, Ordering::Relaxed);
        }
        self.bytes.fetch_add(added.max(0) as usize, Ordering::Relaxed);
        self.bytes.fetch_sub((-added).max(0) as usize, Ordering::Relaxed);
        added
    }

    /// Adds the rows of one commit, whose keys are new. Returns by how many bytes the memtable grew.
    pub fn apply_batch(&self, seq: u64, lsn: u64, rows: Arc<Batch>) -> i64 {
        self.first_lsn.fetch_min(lsn, Ordering::AcqRel);
        let oldest = rows.times(&self.layout).map_or(u64::MAX, |(oldest, _)| oldest);
        self.oldest.fetch_min(oldest, Ordering::AcqRel);
        self.commits.fetch_add(1, Ordering::Relaxed);
        let mut contents = self.contents.write();
        if let Some(mut touched) = self.touched() {
            let times = (0..rows.len()).filter_map(|i| self.layout.time_of_key(&rows.key(i)));
            times.for_each(|time| touched.note(time, seq));
        }
        // With the numbers of its rows once it is made one with others.
        let added = rows.size() + rows.len() * size_of::<u64>();
        contents.runs.push(Arc::new(Run::of(rows, seq)));
        self.bytes.fetch_add(added, Ordering::Relaxed);
        added as i64
    }

    /// Makes one run of several if there are many. Not while something else is applied.
    pub fn fold_runs(&self) {
        loop {
            let runs = self.contents.read().runs.clone();
            let Some((old, new)) = runs::fold(&runs) else { return };
            let mut contents = self.contents.write();
            contents.runs.retain(|run| !old.iter().any(|old| Arc::ptr_eq(old, run)));
            contents.runs.push(Arc::new(new));
        }
    }

    /// All entries.
    pub fn entries(&self) -> Entries<'_> {
        Entries(self.contents.read())
    }

    /// Calls `take` for the version of `key` that `snapshot` sees.
    pub fn get<T>(&self, key: &[u8], snapshot: u64, take: impl FnOnce(VersionRef<'_>) -> T) -> Option<T> {
        let contents = self.contents.read();
        let mut best = contents.map.get(key).and_then(|v| v.chain().find(|v| v.seq <= snapshot)).map(VersionRef::of);
        for run in &contents.runs {
            // Mostly a key is in none or one of them, once.
            let Some(found) = run.rows().find(key) else { continue };
            let first = (0..found).rev().take_while(|&i| run.keys()[i] == run.keys()[found]).last().unwrap_or(found);
            let same = (first..run.len()).take_while(|&i| run.keys()[i] == run.keys()[found]);
            let newest = same.map(|i| run.version(i)).filter(|v| v.seq <= snapshot).max_by_key(|v| v.seq);
            if let Some(version) = newest
                && best.is_none_or(|best| best.seq < version.seq)
            {
                best = Some(version);
            }
        }
        best.map(take)
    }

    /// Calls `take` with up to `max_keys` keys from `from` on, none at or behind `stop`, and the version of each that
    /// `snapshot` sees, if there is one. Returns the key to go on behind, if there may be more.
    pub(crate) fn visit(
        &self,
        from: Bound<&[u8]>,
        snapshot: u64,
        (max_keys, stop): (usize, Option<&[u8]>),
        take: &mut impl FnMut(&[u8], VersionRef<'_>),
    ) -> Option<Key> {
        let contents = self.contents.read();
        let mut walk = contents.walk(from, Direction::Forward);
        let mut versions = Versions::new();
        let mut last = None;
        for _ in 0..max_keys {
            let key = walk.next(&mut versions)?;
            if stop.is_some_and(|stop| key.as_slice() >= stop) {
                return None;
            }
            if let Some(version) = seen_by(&versions, snapshot) {
                take(key.as_slice(), version);
            }
            last = Some(key);
        }
        last.map(|key| key.to_key())
    }

    /// Copies up to `max_rows` visible versions, walking from `from` in `direction`, none at or behind `stop` (Backward: none
    /// before it). Tombstones are included: they hide what lies below. Returns the key to go on behind, if there may be more.
    pub fn collect(
        &self,
        from: Bound<&[u8]>,
        direction: Direction,
        snapshot: u64,
        (max_rows, stop): (usize, Option<&[u8]>),
        out: &mut RowCollector,
    ) -> Option<Key> {
        let contents = self.contents.read();
        let mut walk = contents.walk(from, direction);
        let mut versions = Versions::new();
        let mut last = None;
        while out.rows() < max_rows {
            let key = walk.next(&mut versions)?;
            let is_behind = stop.is_some_and(|stop| match direction {
                Direction::Forward => key.as_slice() >= stop,
                Direction::Backward => key.as_slice() < stop,
            });
            if is_behind {
                return None;
            }
            if let Some(v) = seen_by(&versions, snapshot) {
                out.push(&self.layout, key.as_slice(), v.seq, v.row);
            }
            last = Some(key);
        }
        last.map(|key| key.to_key())
    }
}

#[derive(Debug, Default, PartialEq)]
struct Freed {
    versions: i64,
    bytes: i64,
}

/// Takes the versions behind the newest that no snapshot sees out of a chain; returns what was freed.
fn drop_unseen(newest: &mut RowVersion, snapshots: &[u64]) -> Freed {
    let mut freed = Freed::default();
    let mut newer = newest;
    while let Some(mut version) = newer.older.take() {
        if is_needed(version.seq, newer.seq, snapshots) {
            newer = newer.older.insert(version);
        } else {
            freed.versions += 1;
            freed.bytes += version.cost() as i64;
            newer.older = version.older.take();
        }
    }
    freed
}

/// Row bytes side by side, with the sequence number and kind of each.
#[derive(Default)]
pub struct RowCollector {
    /// Row bytes, one row after the other.
    pub bytes: Vec<u8>,
    /// Start of each row.
    starts: Vec<usize>,
    ends: Vec<usize>,
    /// Sequence number of each row.
    pub seqs: Vec<u64>,
    /// Which rows are tombstones.
    pub tombstones: Vec<bool>,
}

impl RowCollector {
    /// Rows so far.
    pub fn rows(&self) -> usize {
        self.starts.len()
    }

    /// Adds a row; a tombstone (`None`) gets a row of its key.
    pub fn push(&mut self, layout: &RowLayout, key: &[u8], seq: u64, row: Option<&[u8]>) {
        self.starts.push(self.bytes.len());
        self.seqs.push(seq);
        self.tombstones.push(row.is_none());
        match row {
            Some(row) => self.bytes.extend_from_slice(row),
            None => {
                let whole = layout.push_key_row(key, &mut self.bytes);
                debug_assert!(whole, "a key of this table");
            }
        }
        self.ends.push(self.bytes.len());
    }

    /// Turns the order of the rows around. Row bytes stay where they are.
    pub fn reverse(&mut self) {
        self.starts.reverse();
        self.seqs.reverse();
        self.tombstones.reverse();
        self.ends.reverse();
    }

    /// Row `i`.
    pub fn row(&self, i: usize) -> &[u8] {
        &self.bytes[self.starts[i]..self.ends[i]]
    }
}

#[cfg(test)]
mod tests;
