//! A transaction: its snapshot, its write sets, savepoints, and the checks of unique keys.
//!
//! Nothing that it writes is seen by others, or logged, before `commit` (commit.rs). Inserts check their key against
//! what is committed now, whatever the snapshot, and again at commit if somebody else committed in between.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hashbrown::HashMap;
use parking_lot::RwLock;

use crate::batch::Batch;
use crate::bulk::{Bulk, Newness};
use crate::commit::DroppedSegments;
use crate::cursor::Cursor;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::index::Index;
use crate::limits;
use crate::lock::LockMode;
use crate::memory;
use crate::memtable::Key;
use crate::newest::Place;
use crate::ordered::Ordered;
pub use crate::own::OnDuplicate;
use crate::own::{OwnWrite, OwnWrites};
use crate::row::RowLayout;
use crate::segment::SegmentMeta;
use crate::snapshot::Snapshot;
use crate::table::Table;

mod bulk;
mod keys;
mod losses;
mod range;
mod spill;
mod times;

use keys::{entry_of, own_version};
pub use losses::Loss;
use losses::{RowFates, Watched};
pub use times::{TimeCount, beyond_unit};

/// What a transaction's reads see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isolation {
    /// Each statement sees what was committed when it began.
    ReadCommitted,
    /// All statements see what was committed at the first read.
    RepeatableRead,
}

/// How long a statement waits for a row lock unless told otherwise.
const DEFAULT_LOCK_TIMEOUT: Duration = Duration::from_secs(50);

/// Says whether the statement under way was killed.
pub type Interrupted = Box<dyn Fn() -> bool + Send>;

/// A transaction: one connection's open work. Dropping it rolls back.
pub struct Txn {
    pub(crate) engine: Arc<Engine>,
    pub(crate) id: u64,
    isolation: Isolation,
    snapshot: Option<Arc<Snapshot>>,
    pub(crate) tables: Vec<TxnTable>,
    savepoints: Vec<Savepoint>,
    undo: Vec<Undo>,
    next_savepoint: u64,
    pub(crate) holds_locks: bool,
    /// Keys that it inserted and locked.
    new_keys_locked: usize,
    /// See [`Txn::waits`].
    waits: u64,
    /// The statement under way is a bulk statement, or began as one.
    writes_many: bool,
    /// Rows of a bulk statement whose keys are still locked: all of a small one.
    first_rows_left: usize,
    pub(crate) lock_timeout: Duration,
    pub(crate) interrupted: Interrupted,
    /// See [`Txn::reserve`]: the id that it is to be prepared under.
    pub(crate) reserved: Option<Vec<u8>>,
    /// Set once it is prepared: the engine keeps its writes under this id.
    prepared: Option<Vec<u8>>,
    /// Set once its commit has a place in the order.
    ordered: Option<Ordered>,
    /// An error took part of the write set: only a rollback is left.
    doomed: bool,
    /// Segments to drop as a whole; pinned until the end.
    pub(crate) drops: Vec<DroppedSegments>,
    /// See [`Txn::take_losses`].
    losses: Vec<Loss>,
    /// Write sets whose commit may lose rows.
    watched: Vec<Watched>,
    /// See [`Txn::keep_tiers`].
    keeps_tiers: bool,
}

/// A transaction's work on one table.
pub(crate) struct TxnTable {
    pub table: Arc<Table>,
    pub layout: Arc<RowLayout>,
    pub own: Arc<RwLock<OwnWrites>>,
    /// What `own` was when the statement under way began, once a tier was read by it. See [`Txn::keep_tiers`].
    own_of_tiers: Option<Arc<RwLock<OwnWrites>>>,
    /// What was committed when the first key was checked; held so that merges keep newer sequence numbers.
    pub check: Option<Arc<Snapshot>>,
    /// Keys that it inserted were free after this commit too; see [`Txn::check_ahead`].
    pub checked_up_to: u64,
    /// The newest rows, committed and own ones.
    newness: Newness,
    /// The table's newest commit when `newness` was begun: after a later one what it says has to be looked up anew.
    newest_seq: u64,
    /// The last row that was appended, which `newness` does not say.
    streak: Option<Streak>,
    /// `newness` says none of the transaction's own rows. They came in key order, the last one is that of the streak.
    is_untold: bool,
    /// Where the table's newest row of the next series may be found.
    place: Place,
    bulk: Option<Bulk>,
    /// The transaction holds row locks of it.
    has_intent: bool,
    /// The transaction has locked it as a whole, which stands for locks of rows.
    is_locked_whole: bool,
    fates: RowFates,
    /// Times that rows may have.
    times: RangeInclusive<u64>,
}

impl TxnTable {
    /// What was written in the layout of a schema that the table no longer has cannot be committed.
    pub fn check_layout(&self) -> Result<()> {
        let own = self.own.read();
        match own.is_empty() || Arc::ptr_eq(&self.layout, &self.table.layout()) {
            true => Ok(()),
            false => Err(Error::Conflict),
        }
    }

    /// Whether rows have index entries, or are some: then a row goes with others.
    pub fn has_entries(&self) -> bool {
        self.table.is_index() || !self.table.indexes().is_empty()
    }

    /// The newest key of each series that was written to, if all are known.
    pub fn take_newest(&mut self) -> Option<HashMap<Key, Key>> {
        if !self.own.read().private.is_empty() {
            self.tell_newest(0);
        }
        let Newness { newest, is_lost } = std::mem::replace(&mut self.newness, Newness::lost());
        (!is_lost).then_some(newest)
    }

    /// Hands what is known of the newest rows to a worker; until it comes back, nothing is known.
    fn lend_newness(&mut self) -> Newness {
        self.tell_newest(0);
        std::mem::replace(&mut self.newness, Newness::lost())
    }
}

/// A row that a bulk statement appended: the newest of its series.
struct Streak {
    /// Its key.
    series: u64,
    rest: u64,
    /// The table's newest commit when that was looked up.
    seen_seq: u64,
}

struct Savepoint {
    id: u64,
    undo_len: usize,
}

/// A snapshot from before the table or index was there, or was emptied, cannot read it.
fn check_age(table: &Table, snapshot: &Snapshot) -> Result<()> {
    let from = table.readable_from.load(std::sync::atomic::Ordering::Acquire);
    match snapshot.era() < from {
        true => Err(Error::DefinitionChanged { name: table.name() }),
        false => Ok(()),
    }
}

/// How to take a step back.
#[derive(Clone)]
enum Undo {
    /// Put back what the write set had for the key.
    Write { table: usize, key: Key, previous: Option<OwnWrite> },
    /// Take out what was added last.
    Batch { table: usize, rows: Arc<Batch> },
    /// Drop private segments behind the first `count`.
    Private { table: usize, count: usize },
}

impl Undo {
    fn table(&self) -> usize {
        match self {
            Undo::Write { table, .. } | Undo::Batch { table, .. } | Undo::Private { table, .. } => *table,
        }
    }

    /// Takes the step back in the write set of its table.
    fn apply(self, own: &mut OwnWrites) {
        match self {
            Undo::Write { key, previous: Some(write), .. } => drop(own.put(key, write)),
            Undo::Write { key, previous: None, .. } => drop(own.remove(&key)),
            Undo::Batch { rows, .. } => own.remove_batch(&rows),
            Undo::Private { count, .. } => {
                own.private.truncate(count);
                own.generation += 1;
            }
        }
    }
}

impl Txn {
    pub(crate) fn new(engine: Arc<Engine>, id: u64) -> Txn {
        Txn {
            lock_timeout: DEFAULT_LOCK_TIMEOUT,
            engine,
            id,
            isolation: Isolation::RepeatableRead,
            snapshot: None,
            tables: Vec::new(),
            savepoints: Vec::new(),
            undo: Vec::new(),
            next_savepoint: 1,
            holds_locks: false,
            new_keys_locked: 0,
            waits: 0,
            writes_many: false,
            first_rows_left: 0,
            interrupted: Box::new(|| false),
            reserved: None,
            prepared: None,
            ordered: None,
            doomed: false,
            drops: Vec::new(),
            losses: Vec::new(),
            watched: Vec::new(),
            keeps_tiers: false,
        }
    }

    /// Its number: the owner of its row locks, see [`Engine::wake`]; the same from [`Engine::begin`] on.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Sets what is asked during waits and long work; true ends them with [`Error::Interrupted`].
    pub fn set_interrupted(&mut self, interrupted: Interrupted) {
        self.interrupted = interrupted;
    }

    /// Sets how long the next statements wait for a row lock.
    pub fn set_lock_timeout_ms(&mut self, timeout_ms: u64) {
        self.lock_timeout = Duration::from_millis(timeout_ms);
    }

    /// Sets what reads see; before the first read.
    pub fn set_isolation(&mut self, isolation: Isolation) {
        self.isolation = isolation;
    }

    /// Takes the snapshot now (START TRANSACTION WITH CONSISTENT SNAPSHOT).
    pub fn take_snapshot(&mut self) {
        self.snapshot();
    }

    /// Begins a statement: under READ COMMITTED its reads see what is committed now.
    pub fn start_statement(&mut self) {
        self.writes_many = false;
        self.keeps_tiers = false;
        self.tables.iter_mut().for_each(|t| t.own_of_tiers = None);
        if self.isolation == Isolation::ReadCommitted {
            self.snapshot = None;
        }
    }

    /// Until the statement under way ends, its reads of tiers see the rows as they are now. For statements that write: what they
    /// read must not follow from what they have done. If the transaction has written already, its last savepoint is the
    /// statement's beginning.
    pub fn keep_tiers(&mut self) {
        self.keeps_tiers = true;
    }

    fn snapshot(&mut self) -> Arc<Snapshot> {
        let engine = &self.engine;
        self.snapshot.get_or_insert_with(|| engine.take_snapshot_for(self.id)).clone()
    }

    /// Marks a place to roll back to: explicit savepoints, and the start of each statement in a transaction.
    pub fn savepoint(&mut self) -> u64 {
        let id = self.next_savepoint;
        self.next_savepoint += 1;
        self.savepoints.push(Savepoint { id, undo_len: self.undo.len() });
        id
    }

    /// Undoes everything after the mark; the mark stays, later marks are gone.
    pub fn rollback_to(&mut self, savepoint: u64) -> Result<()> {
        let Some(at) = self.savepoints.iter().position(|s| s.id == savepoint) else {
            return Err(Error::InvalidInput("the savepoint does not exist".into()));
        };
        self.savepoints.truncate(at + 1);
        self.forget_refused();
        for t in &mut self.tables {
            if let Some(mut bulk) = t.bulk.take() {
                drop(bulk.finish());
            }
        }
        let undo_len = self.savepoints[at].undo_len;
        while self.undo.len() > undo_len {
            match self.undo.pop() {
                Some(undo) => {
                    let table = undo.table();
                    undo.apply(&mut self.tables[table].own.write());
                }
                None => break,
            }
        }
        Ok(())
    }

    /// Forgets the mark, keeps the work and later marks.
    pub fn release(&mut self, savepoint: u64) {
        if let Some(at) = self.savepoints.iter().position(|s| s.id == savepoint) {
            self.savepoints.remove(at);
        }
        if self.savepoints.is_empty() {
            self.undo.clear();
        }
    }

    /// Inserts a row in row format; [`Error::Duplicate`] if its key exists (nothing is changed then).
    pub fn insert(&mut self, table: &Arc<Table>, row: &[u8], mode: OnDuplicate) -> Result<()> {
        let t = self.table_index(table);
        self.tables[t].fates.offered += 1;
        self.insert_row(table, row, mode)
    }

    fn insert_row(&mut self, table: &Arc<Table>, row: &[u8], mode: OnDuplicate) -> Result<()> {
        self.engine.check_writable()?;
        if row.len() > limits::MAX_ROW_BYTES {
            return Err(Error::LimitExceeded { what: "the size of a row".into(), limit: limits::MAX_ROW_BYTES as u64 });
        }
        let t = self.table_index(table);
        self.tables[t].check_time(row)?;
        let mut key = Key::new();
        self.tables[t].layout.push_key(row, &mut key);
        if self.refuses(t, &key) {
            return Ok(());
        }
        if self.tables[t].bulk.as_ref().is_some_and(|bulk| bulk.takes_unchecked() && mode == OnDuplicate::Fail) {
            table.note_auto_increment(&self.tables[t].layout, row);
            return self.insert_bulk(t, row, true, mode);
        }
        if self.tables[t].bulk.is_some() {
            let is_new = self.is_certainly_new(t, &key, row)?;
            if is_new || self.may_check_late(t, mode) {
                table.note_auto_increment(&self.tables[t].layout, row);
                return self.insert_bulk(t, row, is_new, mode);
            }
            self.leave_bulk(t, row, mode)?;
        }
        self.insert_claimed(t, key, row, mode)
    }

    /// Inserts a row after a look at its key, and at those of unique indexes.
    fn insert_claimed(&mut self, t: usize, key: Key, row: &[u8], mode: OnDuplicate) -> Result<()> {
        let expects_absent = self.claim(t, &key, row, mode)?;
        let entries = self.claim_entries(t, None, row, mode)?;
        let entry = &self.tables[t];
        entry.table.note_auto_increment(&entry.layout, row);
        self.write(t, key, OwnWrite { row: Some(memory::copy_row(row)?), expects_absent })?;
        self.write_entries(entries)
    }

    /// Whether a row with this key would be behind the horizon of its table: then it is counted and not stored.
    fn refuses(&mut self, t: usize, key: &[u8]) -> bool {
        let entry = &mut self.tables[t];
        let is_gone = entry.table.is_behind_horizon(key);
        if is_gone {
            entry.fates.refused += 1;
            entry.table.refused_rows.fetch_add(1, Ordering::Relaxed);
            self.engine.activity.rows_refused.fetch_add(1, Ordering::Relaxed);
        }
        is_gone
    }

    /// Replaces the row with sort key `old_key` by `row`, whose key may differ (then it must be free).
    pub fn update(&mut self, table: &Arc<Table>, old_key: &[u8], row: &[u8]) -> Result<()> {
        self.engine.check_writable()?;
        let t = self.table_index(table);
        let mut key = Key::new();
        self.tables[t].layout.push_key(row, &mut key);
        self.tables[t].fates.offered += 1;
        self.tables[t].check_time(row)?;
        let old_row = self.indexed_row(table, old_key)?;
        if key.as_slice() == old_key {
            let entries = self.claim_entries(t, old_row.as_deref(), row, OnDuplicate::Fail)?;
            table.note_auto_increment(&self.tables[t].layout, row);
            self.overwrite(t, key, Some(memory::copy_row(row)?))?;
            return self.write_entries(entries);
        }
        if self.refuses(t, &key) {
            return self.delete(table, old_key);
        }
        let expects_absent = self.claim(t, &key, row, OnDuplicate::Fail)?;
        let entries = self.claim_entries(t, old_row.as_deref(), row, OnDuplicate::Fail)?;
        table.note_auto_increment(&self.tables[t].layout, row);
        self.overwrite(t, Key::from_slice(old_key), None)?;
        self.write(t, key, OwnWrite { row: Some(memory::copy_row(row)?), expects_absent })?;
        self.write_entries(entries)
    }

    /// Removes the row with this sort key.
    pub fn delete(&mut self, table: &Arc<Table>, key: &[u8]) -> Result<()> {
        self.engine.check_writable()?;
        let t = self.table_index(table);
        if let Some(old_row) = self.indexed_row(table, key)? {
            for index in table.indexes().iter() {
                let (_, entry_key) = entry_of(index, &self.tables[t].layout, &old_row)?;
                let i = self.table_index(&index.table);
                self.overwrite(i, entry_key, None)?;
            }
        }
        self.overwrite(t, Key::from_slice(key), None)
    }

    /// A cursor over the table in key order that sees this transaction's snapshot and own writes.
    pub fn cursor(&mut self, table: &Arc<Table>) -> Result<Cursor> {
        // A trigger reads what its statement has inserted so far.
        self.end_bulk(table)?;
        let snapshot = self.snapshot();
        check_age(table, &snapshot)?;
        self.cursor_at(table, snapshot)
    }

    /// A cursor over a tier, which sees what this transaction has written to its table.
    fn tier_cursor_at(&mut self, tier: &Arc<Table>, snapshot: Arc<Snapshot>) -> Result<Cursor> {
        let base = self.engine.base_of_tier(tier)?;
        check_age(&base, &snapshot)?;
        let own = match self.keeps_tiers {
            true => self.own_before_statement(&base),
            false => {
                self.end_bulk(&base)?;
                self.tables.iter().find(|t| Arc::ptr_eq(&t.table, &base)).map(|t| t.own.clone())
            }
        };
        let own = own.filter(|own| !own.read().is_empty());
        self.engine.tier_cursor(tier, snapshot, own)
    }

    /// What the transaction had written to a table when the statement under way began. Copied once a statement.
    fn own_before_statement(&mut self, table: &Arc<Table>) -> Option<Arc<RwLock<OwnWrites>>> {
        // Without a savepoint the statement is the whole transaction.
        let undo_len = self.savepoints.last()?.undo_len;
        let t = self.tables.iter().position(|t| Arc::ptr_eq(&t.table, table))?;
        let (entry, undo) = (&mut self.tables[t], &self.undo[undo_len..]);
        let copy = || {
            let mut own = entry.own.read().clone();
            undo.iter().rev().filter(|undo| undo.table() == t).for_each(|undo| undo.clone().apply(&mut own));
            Arc::new(RwLock::new(own))
        };
        Some(entry.own_of_tiers.get_or_insert_with(copy).clone())
    }

    fn cursor_at(&mut self, table: &Arc<Table>, snapshot: Arc<Snapshot>) -> Result<Cursor> {
        if table.is_tier() {
            return self.tier_cursor_at(table, snapshot);
        }
        let t = self.table_index(table);
        let entry = &self.tables[t];
        entry.own.write().is_read = true;
        Ok(Cursor::new(entry.table.version(), entry.layout.clone(), snapshot, Some(entry.own.clone())))
    }

    /// A cursor for locking reads: it sees what is committed now, whatever the snapshot of the transaction. Rows may
    /// still change until they are locked: see [`Txn::read_latest`], and [`Txn::is_behind`] for those that came since.
    pub fn locking_cursor(&mut self, table: &Arc<Table>) -> Result<Cursor> {
        self.end_bulk(table)?;
        let now = self.engine.take_snapshot();
        self.cursor_at(table, now)
    }

    /// A cursor over the table in the order of its `number`-th secondary index. Keys for `seek` and bounds are
    /// those of the index; spans hold rows of the table, one each.
    pub fn index_cursor(&mut self, table: &Arc<Table>, number: usize) -> Result<Cursor> {
        let snapshot = self.snapshot();
        self.index_cursor_at(table, number, snapshot)
    }

    /// As [`Txn::locking_cursor`], in the order of an index. Once a row is locked, it may have another place in the
    /// index: see [`Cursor::entry_key`].
    pub fn locking_index_cursor(&mut self, table: &Arc<Table>, number: usize) -> Result<Cursor> {
        let now = self.engine.take_snapshot();
        self.index_cursor_at(table, number, now)
    }

    fn index_cursor_at(&mut self, table: &Arc<Table>, number: usize, snapshot: Arc<Snapshot>) -> Result<Cursor> {
        self.end_bulk(table)?;
        let index = index_of(table, number)?;
        check_age(table, &snapshot)?;
        check_age(&index.table, &snapshot)?;
        let rows = self.cursor_at(table, snapshot.clone())?;
        Ok(self.cursor_at(&index.table, snapshot)?.leading_to(rows, index))
    }

    /// A cursor over the entries of an index, for reads that need no more than those hold.
    pub fn entry_cursor(&mut self, table: &Arc<Table>, number: usize) -> Result<Cursor> {
        self.end_bulk(table)?;
        let snapshot = self.snapshot();
        let entries = &index_of(table, number)?.table.clone();
        check_age(entries, &snapshot)?;
        self.cursor_at(entries, snapshot)
    }

    /// Takes the row lock of `key`; afterwards [`Txn::read_latest`] says what the row is. True if the transaction
    /// held nothing of it before.
    pub fn lock_row(&mut self, table: &Arc<Table>, key: &[u8], mode: LockMode) -> Result<bool> {
        self.lock_within(table, key, mode, self.lock_timeout)
    }

    /// [`Txn::lock_row`] without waiting; `None` if others are in the way.
    pub fn try_lock_row(&mut self, table: &Arc<Table>, key: &[u8], mode: LockMode) -> Result<Option<bool>> {
        match self.lock_within(table, key, mode, Duration::ZERO) {
            Err(Error::LockTimeout) => Ok(None),
            locked => locked.map(Some),
        }
    }

    fn lock_within(&mut self, table: &Arc<Table>, key: &[u8], mode: LockMode, timeout: Duration) -> Result<bool> {
        let t = self.table_index(table);
        if !self.tables[t].has_intent {
            // Whoever wants the whole table waits for those who hold a row of it.
            self.lock_table(table, LockMode::Shared, timeout)?;
            self.tables[t].has_intent = true;
        }
        if self.tables[t].is_locked_whole {
            return Ok(false);
        }
        match self.ask_for_lock(table, key, mode, timeout) {
            Err(full @ Error::LockMemory { .. }) => self.lock_whole(t, full).map(|()| false),
            locked => locked,
        }
    }

    /// Locks a table in the place of many of its rows, if no other transaction holds rows of it; else fails with `full`.
    fn lock_whole(&mut self, t: usize, full: Error) -> Result<()> {
        let table = self.tables[t].table.clone();
        match self.lock_table(&table, LockMode::Exclusive, Duration::ZERO) {
            Err(Error::LockTimeout | Error::Conflict) => return Err(full),
            locked => locked?,
        }
        self.engine.locks.escalate(self.id, table.id);
        self.tables[t].is_locked_whole = true;
        Ok(())
    }

    fn ask_for_lock(&mut self, table: &Table, key: &[u8], mode: LockMode, timeout: Duration) -> Result<bool> {
        if !key.is_empty() {
            self.engine.locks.check_room(self.id, table.id, key)?;
        }
        let ask = |timeout| self.engine.locks.lock(self.id, table.id, key, mode, timeout, &*self.interrupted);
        match ask(Duration::ZERO) {
            Err(Error::LockTimeout) if !timeout.is_zero() => {
                self.waits += 1;
                ask(timeout)
            }
            locked => locked,
        }
    }

    /// How often it has waited for row locks: others have committed meanwhile.
    pub fn waits(&self) -> u64 {
        self.waits
    }

    /// Takes the lock of a whole table, which is the one of no key.
    pub(crate) fn lock_table(&mut self, table: &Table, mode: LockMode, timeout: Duration) -> Result<()> {
        self.holds_locks = true;
        self.ask_for_lock(table, &[], mode, timeout).map(|_| ())
    }

    /// Gives back the lock of a row that the statement read and has no use for.
    pub fn unlock_row(&mut self, table: &Table, key: &[u8]) {
        self.engine.locks.release(self.id, table.id, key);
    }

    pub(crate) fn check_interrupted(&self) -> Result<()> {
        if (self.interrupted)() { Err(Error::Interrupted) } else { Ok(()) }
    }

    /// Whether others have committed changes of the table that a locking cursor does not see, or are about to.
    pub fn is_behind(&self, table: &Table, cursor: &Cursor) -> bool {
        table.last_commit_seq.load(Ordering::Acquire) > cursor.snapshot_seq()
    }

    /// Whether a cursor of an earlier statement, or of an earlier transaction of this connection, may show something else
    /// than a new one.
    pub fn is_outdated(&self, table: &Arc<Table>, cursor: &Cursor) -> bool {
        let has_written = self.tables.iter().any(|t| Arc::ptr_eq(&t.table, table) && !t.own.read().is_empty());
        has_written || cursor.has_own_writes() || self.is_behind(table, cursor)
    }

    /// Whether a row that a locking cursor showed, and that is locked now, is still its newest version: nobody wrote to
    /// the table since, and this transaction not to the row. Who wrote to the row held its lock until that was applied.
    pub fn is_still_newest(&self, table: &Arc<Table>, cursor: &Cursor, key: &[u8]) -> bool {
        let Some(entry) = self.tables.iter().find(|t| Arc::ptr_eq(&t.table, table)) else { return false };
        if self.is_behind(table, cursor) {
            return false;
        }
        let own = entry.own.read();
        let is_elsewhere = |meta: &SegmentMeta| key < meta.first_key.as_slice() || key > meta.last_key.as_slice();
        own.get(key).is_none() && own.private.iter().all(|p| is_elsewhere(p.segment.meta()))
    }

    /// The newest committed (or own) version of a row in row format, regardless of the snapshot; false if none.
    pub fn read_latest(&mut self, table: &Arc<Table>, key: &[u8], row: &mut Vec<u8>) -> Result<bool> {
        let t = self.table_index(table);
        let entry = &self.tables[t];
        if let Some(found) = own_version(entry, key)? {
            row.extend_from_slice(found.row.as_deref().unwrap_or_default());
            return Ok(found.row.is_some());
        }
        match entry.table.find(key, 0)?.and_then(|f| f.row) {
            Some(found) => found.push_to(row).map(|()| true),
            None => Ok(false),
        }
    }

    /// Refuses work after an error that took part of the write set.
    pub(crate) fn check_not_doomed(&self) -> Result<()> {
        if self.doomed {
            return Err(Error::InvalidInput(
                "part of the transaction was lost to an earlier error; it can only be rolled back".into(),
            ));
        }
        Ok(())
    }

    /// Whether there is anything to commit.
    pub fn has_writes(&self) -> bool {
        self.prepared.is_some()
            || !self.drops.is_empty()
            || self.tables.iter().any(|t| t.bulk.is_some() || !t.own.read().is_empty())
    }

    /// Undoes everything. The transaction can be used anew.
    pub fn rollback(&mut self) {
        if let Some(xid) = self.prepared.take() {
            self.engine.roll_back_given_up(&xid);
        }
        for t in &mut self.tables {
            if let Some(mut bulk) = t.bulk.take() {
                drop(bulk.finish());
            }
        }
        self.reset();
    }

    /// Forgets all state after a commit or rollback.
    pub(crate) fn reset(&mut self) {
        self.writes_many = false;
        self.snapshot = None;
        self.tables.clear();
        self.watched.clear();
        self.losses.clear();
        self.savepoints.clear();
        self.undo.clear();
        self.doomed = false;
        self.forget_reserved();
        self.prepared = None;
        self.unpin();
        self.ordered = None;
        self.new_keys_locked = 0;
        if std::mem::take(&mut self.holds_locks) {
            self.engine.locks.release_all(self.id);
        }
    }

    fn table_index(&mut self, table: &Arc<Table>) -> usize {
        if let Some(t) = self.tables.iter().position(|t| Arc::ptr_eq(&t.table, table)) {
            return t;
        }
        self.tables.push(TxnTable {
            layout: table.layout(),
            table: table.clone(),
            own: Arc::new(RwLock::new(OwnWrites::default())),
            check: None,
            newness: Newness::default(),
            newest_seq: 0,
            checked_up_to: 0,
            streak: None,
            is_untold: false,
            place: Place::default(),
            bulk: None,
            has_intent: false,
            own_of_tiers: None,
            is_locked_whole: false,
            fates: RowFates::default(),
            times: table.exact_times(),
        });
        self.tables.len() - 1
    }

    /// Writes over whatever there is: an existing row that was read (and locked) before. A row that the transaction
    /// itself inserted stays an insert.
    fn overwrite(&mut self, t: usize, key: Key, row: Option<Box<[u8]>>) -> Result<()> {
        let expects_absent = own_version(&self.tables[t], &key)?.and_then(|found| found.expects_absent);
        self.write(t, key, OwnWrite { row, expects_absent })
    }

    fn write(&mut self, t: usize, key: Key, write: OwnWrite) -> Result<()> {
        let keep_undo = !self.savepoints.is_empty();
        let undo_key = keep_undo.then(|| key.clone());
        let (previous, bytes) = {
            let mut own = self.tables[t].own.write();
            let previous = own.put(key, write);
            (previous, own.bytes)
        };
        if let Some(key) = undo_key {
            self.undo.push(Undo::Write { table: t, key, previous });
        }
        if bytes > self.engine.tuning.txn_spill_bytes { self.spill(t) } else { self.check_not_doomed() }
    }
}

fn index_of(table: &Table, number: usize) -> Result<Arc<Index>> {
    let missing = || Error::InvalidInput(format!("table '{}' has no index {number}", table.name()));
    table.indexes().get(number).cloned().ok_or_else(missing)
}

impl Txn {
    /// The id that it is prepared under.
    pub(crate) fn prepared_xid(&self) -> Option<Vec<u8>> {
        self.prepared.clone()
    }

    pub(crate) fn set_ordered(&mut self, ordered: Option<Ordered>) {
        self.ordered = ordered;
    }

    pub(crate) fn take_ordered(&mut self) -> Option<Ordered> {
        self.ordered.take()
    }

    /// Hands the writes and locks over to the engine's list of prepared transactions.
    pub(crate) fn detach_prepared(&mut self, xid: &[u8]) {
        self.watch();
        self.tables.clear();
        self.snapshot = None;
        self.holds_locks = false;
        self.prepared = Some(xid.to_vec());
    }
}

impl Drop for Txn {
    fn drop(&mut self) {
        // A prepared transaction outlives its connection.
        self.prepared = None;
        if let Some(ordered) = self.ordered.take()
            && let Err(error) = self.engine.finish_ordered(&ordered)
        {
            tracing::error!(%error, "a decided commit could not be finished");
        }
        self.rollback();
    }
}
