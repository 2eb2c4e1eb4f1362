//! A transaction: its snapshot, its write sets, savepoints, and the checks of unique keys.
//!
//! Nothing that it writes is seen by others, or logged, before `commit` (commit.rs). Inserts check their key against
//! what is committed now, whatever the snapshot, and again at commit if somebody else committed in between.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hashbrown::HashMap;
use parking_lot::RwLock;

use crate::bulk::Bulk;
use crate::cursor::{Cursor, Direction};
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::group::RowGroup;
use crate::index::Index;
use crate::limits;
use crate::memtable::Key;
use crate::merge::{Event, Merge};
pub use crate::own::OnDuplicate;
use crate::own::{OwnWrite, OwnWrites, PrivateSegment};
use crate::row::RowLayout;
use crate::snapshot::Snapshot;
use crate::source::{Input, Source};
use crate::table::{Table, find_in_segment};

/// What a transaction's reads see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isolation {
    /// Each statement sees what was committed when it began.
    ReadCommitted,
    /// All statements see what was committed at the first read.
    RepeatableRead,
}

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
    /// Set once it is prepared: the engine keeps its writes under this id.
    prepared: Option<Vec<u8>>,
    /// An error took part of the write set: only a rollback is left.
    doomed: bool,
}

/// A transaction's work on one table.
pub(crate) struct TxnTable {
    pub table: Arc<Table>,
    pub layout: Arc<RowLayout>,
    pub own: Arc<RwLock<OwnWrites>>,
    /// What was committed when the first key was checked; held so that merges keep newer sequence numbers.
    pub check: Option<Arc<Snapshot>>,
    /// Largest rest of the key for each series, committed rows and own ones.
    newest: HashMap<Key, Key>,
    /// The table's newest commit when the map was begun: after a later one its entries have to be looked up anew.
    newest_seq: u64,
    /// The map was emptied: own rows may be missing in it.
    newest_lost: bool,
    bulk: Option<Bulk>,
}

impl TxnTable {
    /// The newest key of each series that was written to, if all are known.
    pub fn take_newest(&mut self) -> Option<HashMap<Key, Key>> {
        (!self.newest_lost).then(|| std::mem::take(&mut self.newest))
    }
}

struct Savepoint {
    id: u64,
    undo_len: usize,
}

/// How to take a step back.
enum Undo {
    /// Put back what the write set had for the key.
    Write { table: usize, key: Key, previous: Option<OwnWrite> },
    /// Drop private segments behind the first `count`.
    Private { table: usize, count: usize },
}

impl Txn {
    pub(crate) fn new(engine: Arc<Engine>, id: u64) -> Txn {
        Txn {
            engine,
            id,
            isolation: Isolation::RepeatableRead,
            snapshot: None,
            tables: Vec::new(),
            savepoints: Vec::new(),
            undo: Vec::new(),
            next_savepoint: 1,
            holds_locks: false,
            prepared: None,
            doomed: false,
        }
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
        if self.isolation == Isolation::ReadCommitted {
            self.snapshot = None;
        }
    }

    fn snapshot(&mut self) -> Arc<Snapshot> {
        let engine = &self.engine;
        self.snapshot.get_or_insert_with(|| engine.take_snapshot()).clone()
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
        for t in &mut self.tables {
            if let Some(mut bulk) = t.bulk.take() {
                drop(bulk.finish());
            }
        }
        let undo_len = self.savepoints[at].undo_len;
        while self.undo.len() > undo_len {
            match self.undo.pop() {
                Some(Undo::Write { table, key, previous }) => {
                    let mut own = self.tables[table].own.write();
                    match previous {
                        Some(write) => drop(own.put(key, write)),
                        None => drop(own.remove(&key)),
                    }
                }
                Some(Undo::Private { table, count }) => {
                    let mut own = self.tables[table].own.write();
                    own.private.truncate(count);
                    own.generation += 1;
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

    /// Many inserts into this table follow, and no reads. Those with [`OnDuplicate::Fail`] may be checked late: a
    /// duplicate is then reported by a later `insert` or by `end_bulk`. Not for ON DUPLICATE KEY UPDATE.
    pub fn begin_bulk(&mut self, table: &Arc<Table>) {
        let t = self.table_index(table);
        self.tables[t].bulk.get_or_insert_with(Bulk::new);
    }

    /// Ends the bulk statement: all late checks are done.
    pub fn end_bulk(&mut self, table: &Arc<Table>) -> Result<()> {
        let t = self.table_index(table);
        let Some(mut bulk) = self.tables[t].bulk.take() else { return Ok(()) };
        if !bulk.has_worker() && bulk.run.bytes() < self.engine.tuning.bulk_min_bytes {
            return bulk.run.rows_and_doubts().try_for_each(|(row, is_new)| match is_new {
                true => self.insert_new(t, row, bulk.mode),
                false => self.insert(table, row, bulk.mode),
            });
        }
        self.send_run(t, &mut bulk)?;
        let written = bulk.finish()?;
        if bulk.needs_check {
            self.check_bulk(t, &written.rows)?;
        }
        let indexes = self.tables[t].table.indexes();
        for (number, (index, entries)) in indexes.iter().zip(&written.entries).enumerate() {
            let i = self.table_index(&index.table);
            if bulk.needs_check && index.def.unique {
                self.check_bulk(i, entries).map_err(|error| refused_entry(error, index, number, &written.rows))?;
            }
        }
        self.add_private(t, written.rows);
        for (index, entries) in indexes.iter().zip(written.entries) {
            let i = self.table_index(&index.table);
            self.add_private(i, entries);
        }
        Ok(())
    }

    /// Inserts a row in row format; [`Error::Duplicate`] if its key exists (nothing is changed then).
    pub fn insert(&mut self, table: &Arc<Table>, row: &[u8], mode: OnDuplicate) -> Result<()> {
        self.engine.check_writable()?;
        if row.len() > limits::MAX_ROW_BYTES {
            return Err(Error::LimitExceeded { what: "the size of a row".into(), limit: limits::MAX_ROW_BYTES as u64 });
        }
        let t = self.table_index(table);
        table.note_auto_increment(&self.tables[t].layout, row);
        let mut key = Key::new();
        self.tables[t].layout.push_key(row, &mut key);
        if self.tables[t].bulk.is_some() {
            let is_new = self.is_certainly_new(t, &key, row)?;
            if is_new || mode == OnDuplicate::Fail {
                return self.insert_bulk(t, row, is_new, mode);
            }
            // The answer is wanted now: from here on the statement goes row by row.
            self.end_bulk(table)?;
        }
        let expects_absent = self.claim(t, &key, row, mode)?;
        let entries = self.claim_entries(t, None, row, mode)?;
        self.write(t, key, OwnWrite { row: Some(row.into()), expects_absent })?;
        self.write_entries(entries)
    }

    /// Inserts a row that is known to be new.
    fn insert_new(&mut self, t: usize, row: &[u8], mode: OnDuplicate) -> Result<()> {
        let mut key = Key::new();
        let layout = self.tables[t].layout.clone();
        layout.push_key(row, &mut key);
        self.write(t, key, OwnWrite { row: Some(row.into()), expects_absent: Some(mode) })?;
        let indexes = self.tables[t].table.indexes();
        for index in indexes.iter() {
            let (entry, key) = entry_of(index, &layout, row);
            let i = self.table_index(&index.table);
            self.write(i, key, OwnWrite { row: Some(entry.into()), expects_absent: Some(mode) })?;
        }
        Ok(())
    }

    /// Replaces the row with sort key `old_key` by `row`, whose key may differ (then it must be free).
    pub fn update(&mut self, table: &Arc<Table>, old_key: &[u8], row: &[u8]) -> Result<()> {
        self.engine.check_writable()?;
        let t = self.table_index(table);
        table.note_auto_increment(&self.tables[t].layout, row);
        let mut key = Key::new();
        self.tables[t].layout.push_key(row, &mut key);
        let old_row = self.indexed_row(table, old_key)?;
        if key.as_slice() == old_key {
            let entries = self.claim_entries(t, old_row.as_deref(), row, OnDuplicate::Fail)?;
            self.overwrite(t, key, Some(row.into()))?;
            return self.write_entries(entries);
        }
        let expects_absent = self.claim(t, &key, row, OnDuplicate::Fail)?;
        let entries = self.claim_entries(t, old_row.as_deref(), row, OnDuplicate::Fail)?;
        self.overwrite(t, Key::from_slice(old_key), None)?;
        self.write(t, key, OwnWrite { row: Some(row.into()), expects_absent })?;
        self.write_entries(entries)
    }

    /// Removes the row with this sort key.
    pub fn delete(&mut self, table: &Arc<Table>, key: &[u8]) -> Result<()> {
        self.engine.check_writable()?;
        let t = self.table_index(table);
        if let Some(old_row) = self.indexed_row(table, key)? {
            for index in table.indexes().iter() {
                let (_, entry_key) = entry_of(index, &self.tables[t].layout, &old_row);
                let i = self.table_index(&index.table);
                self.overwrite(i, entry_key, None)?;
            }
        }
        self.overwrite(t, Key::from_slice(key), None)
    }

    /// Makes sure that a key is free. `None`: this transaction itself removed the row that was there.
    fn claim(&mut self, t: usize, key: &Key, row: &[u8], mode: OnDuplicate) -> Result<Option<OnDuplicate>> {
        if mode == OnDuplicate::Update {
            let table = self.tables[t].table.clone();
            self.lock_key(&table, key, self.engine.lock_timeout_ms())?;
        }
        if self.is_behind_newest(t, key)? {
            return Ok(Some(mode));
        }
        match own_version(&self.tables[t], key)? {
            Some(found) if found.row.is_some() => Err(self.duplicate_in(&self.tables[t], row, key)),
            Some(found) => Ok(found.expects_absent.and(Some(mode))),
            None if self.is_committed(t, key)? => Err(self.duplicate_in(&self.tables[t], row, key)),
            None => Ok(Some(mode)),
        }
    }

    /// What has to be written to the indexes when `row` replaces `old_row`; unique entries that are new are claimed.
    fn claim_entries(
        &mut self,
        t: usize,
        old_row: Option<&[u8]>,
        row: &[u8],
        mode: OnDuplicate,
    ) -> Result<Vec<EntryWrite>> {
        let layout = self.tables[t].layout.clone();
        let indexes = self.tables[t].table.indexes();
        let mut writes = Vec::new();
        for (number, index) in indexes.iter().enumerate() {
            let (entry, key) = entry_of(index, &layout, row);
            let old = old_row.map(|old| entry_of(index, &layout, old));
            if old.as_ref().is_some_and(|(old_entry, _)| *old_entry == entry) {
                continue;
            }
            let i = self.table_index(&index.table);
            let is_moved = old.as_ref().is_none_or(|(_, old_key)| *old_key != key);
            let mut expects_absent = None;
            if is_moved && index.def.unique {
                expects_absent = self.claim(i, &key, &entry, mode).map_err(|error| refused_by(error, number, row))?;
            } else if is_moved {
                expects_absent = Some(mode);
            }
            if let Some((_, old_key)) = old.filter(|_| is_moved) {
                writes.push(EntryWrite { table: i, key: old_key, row: None, expects_absent: None });
            }
            writes.push(EntryWrite { table: i, key, row: Some(entry.into()), expects_absent });
        }
        Ok(writes)
    }

    fn write_entries(&mut self, entries: Vec<EntryWrite>) -> Result<()> {
        for e in entries {
            match e.expects_absent {
                // A key that this transaction deleted before stays an overwrite.
                Some(mode)
                    if own_version(&self.tables[e.table], &e.key)?.is_none_or(|own| own.expects_absent.is_some()) =>
                {
                    self.write(e.table, e.key, OwnWrite { row: e.row, expects_absent: Some(mode) })?;
                }
                _ => self.overwrite(e.table, e.key, e.row)?,
            }
        }
        Ok(())
    }

    /// The newest version of a row whose table has indexes: what their entries were made of.
    fn indexed_row(&mut self, table: &Arc<Table>, key: &[u8]) -> Result<Option<Vec<u8>>> {
        if table.indexes().is_empty() {
            return Ok(None);
        }
        let mut row = Vec::new();
        Ok(self.read_latest(table, key, &mut row)?.then_some(row))
    }

    /// The error for a row (or index entry) whose key is taken, in terms of the base table.
    pub(crate) fn duplicate_in(&self, t: &TxnTable, row: &[u8], key: &[u8]) -> Error {
        let existing = key.to_vec();
        let Some(of) = t.layout.schema().index_of else {
            return Error::Duplicate { index: 0, row: row.to_vec(), existing };
        };
        let base = self.tables.iter().find(|b| b.table.id.0 == of.table);
        let place = base.and_then(|b| b.table.indexes().iter().position(|i| i.def.id == of.index).map(|n| (b, n)));
        let Some((base, number)) = place else { return Error::Conflict };
        let index = &base.table.indexes()[number];
        let (mut refused_key, mut existing) = (Vec::new(), Vec::new());
        index.push_base_key(row, &mut refused_key);
        let there = own_version(t, key).ok().flatten().and_then(|own| own.row).filter(|own| own.as_slice() != row);
        let there = there.or_else(|| {
            let mut bytes = Vec::new();
            let found = t.table.find(key, 0).ok().flatten()?.row?;
            found.push_to(&mut bytes).ok().map(|()| bytes)
        });
        if let Some(entry) = there {
            index.push_base_key(&entry, &mut existing);
        }
        let refused = own_version(base, &refused_key).ok().flatten().and_then(|own| own.row);
        Error::Duplicate { index: number as u32 + 1, row: refused.unwrap_or_default(), existing }
    }

    /// A cursor over the table in key order that sees this transaction's snapshot and own writes.
    pub fn cursor(&mut self, table: &Arc<Table>) -> Result<Cursor> {
        let t = self.table_index(table);
        // A trigger reads what its statement has inserted so far.
        self.end_bulk(table)?;
        let snapshot = self.snapshot();
        let entry = &self.tables[t];
        Ok(Cursor::new(entry.table.version(), entry.layout.clone(), snapshot, Some(entry.own.clone())))
    }

    /// A cursor for locking reads: it sees what is committed now, whatever the snapshot of the transaction. Rows may
    /// still change until they are locked: see [`Txn::read_latest`].
    pub fn locking_cursor(&mut self, table: &Arc<Table>) -> Result<Cursor> {
        self.end_bulk(table)?;
        let t = self.table_index(table);
        let entry = &self.tables[t];
        let now = self.engine.take_snapshot();
        Ok(Cursor::new(entry.table.version(), entry.layout.clone(), now, Some(entry.own.clone())))
    }

    /// A cursor over the table in the order of its `number`-th secondary index. Keys for `seek` and bounds are
    /// those of the index; spans hold rows of the table.
    pub fn index_cursor(&mut self, table: &Arc<Table>, number: usize) -> Result<Cursor> {
        let rows = self.cursor(table)?;
        let Some(index) = table.indexes().get(number).cloned() else {
            return Err(Error::InvalidInput(format!("table '{}' has no index {number}", table.name())));
        };
        let entries = self.cursor(&index.table)?;
        Ok(entries.leading_to(rows, index))
    }

    /// Takes the row lock of `key` (waits up to `timeout_ms`); afterwards [`Txn::read_latest`] says what it is.
    pub fn lock_row(&mut self, table: &Arc<Table>, key: &[u8], timeout_ms: u64) -> Result<()> {
        self.lock_key(table, key, timeout_ms)
    }

    fn lock_key(&mut self, table: &Arc<Table>, key: &[u8], timeout_ms: u64) -> Result<()> {
        self.holds_locks = true;
        self.engine.locks.lock(self.id, table.id, key, Duration::from_millis(timeout_ms), &|| false)
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

    /// Whether only a rollback is left after an error.
    pub fn is_doomed(&self) -> bool {
        self.doomed
    }

    /// Whether there is anything to commit.
    pub fn has_writes(&self) -> bool {
        self.prepared.is_some() || self.tables.iter().any(|t| t.bulk.is_some() || !t.own.read().is_empty())
    }

    /// Undoes everything. The transaction can be used anew.
    pub fn rollback(&mut self) {
        if let Some(xid) = self.prepared.take()
            && let Err(error) = self.engine.rollback_prepared(&xid)
        {
            // It stays prepared in the log, and the coordinator is asked again after a restart.
            self.engine.poison(&format!("a prepared transaction could not be rolled back: {error}"));
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
        self.snapshot = None;
        self.tables.clear();
        self.savepoints.clear();
        self.undo.clear();
        self.doomed = false;
        self.prepared = None;
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
            newest: HashMap::new(),
            newest_seq: 0,
            newest_lost: false,
            bulk: None,
        });
        self.tables.len() - 1
    }

    /// Whether the key is behind the newest of its series, so that it cannot exist; then it is the newest.
    fn is_behind_newest(&mut self, t: usize, key: &[u8]) -> Result<bool> {
        let engine = &self.engine;
        let entry = &mut self.tables[t];
        entry.check.get_or_insert_with(|| engine.take_snapshot());
        let split = entry.layout.series_len(key);
        let (series, rest) = key.split_at(split);
        let seen_seq = entry.table.last_commit_seq.load(Ordering::Acquire);
        let known = entry.newest.get_mut(series);
        if let (Some(newest), true) = (known, seen_seq == entry.newest_seq) {
            let behind = rest > newest.as_slice();
            if behind {
                newest.clear();
                newest.extend_from_slice(rest);
            }
            return Ok(behind);
        }
        self.look_up_newest(t, series, rest, seen_seq)
    }

    /// [`Txn::is_behind_newest`] for a series that was not met before, or after others committed.
    fn look_up_newest(&mut self, t: usize, series: &[u8], rest: &[u8], seen_seq: u64) -> Result<bool> {
        let entry = &mut self.tables[t];
        if entry.newest.is_empty() {
            entry.newest_seq = seen_seq;
        }
        if entry.newest.len() >= limits::NEWEST_ENTRIES {
            entry.newest = HashMap::new();
            entry.newest_lost = true;
        }
        let mut newest = entry.newest.get(series).cloned().unwrap_or_default();
        entry.table.newest_of(&entry.layout, series, |committed| {
            if committed > newest.as_slice() {
                newest = Key::from_slice(committed);
            }
        })?;
        let behind = rest > newest.as_slice();
        if entry.newest_lost {
            return Ok(false);
        }
        let bound = if behind { Key::from_slice(rest) } else { newest };
        entry.newest.insert(Key::from_slice(series), bound);
        Ok(behind)
    }

    /// Whether a row with this key is committed now.
    fn is_committed(&self, t: usize, key: &[u8]) -> Result<bool> {
        Ok(self.tables[t].table.find(key, 0)?.is_some_and(|f| f.row.is_some()))
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

    /// Whether the row is behind the newest of its series, in the table and in each unique index.
    fn is_certainly_new(&mut self, t: usize, key: &[u8], row: &[u8]) -> Result<bool> {
        let mut is_new = self.is_behind_newest(t, key)?;
        let indexes = self.tables[t].table.indexes();
        for index in indexes.iter().filter(|i| i.def.unique) {
            let (_, entry_key) = entry_of(index, &self.tables[t].layout, row);
            let i = self.table_index(&index.table);
            is_new &= self.is_behind_newest(i, &entry_key)?;
        }
        Ok(is_new)
    }

    fn insert_bulk(&mut self, t: usize, row: &[u8], is_new: bool, mode: OnDuplicate) -> Result<()> {
        let Some(bulk) = &mut self.tables[t].bulk else { return Ok(()) };
        bulk.mode = mode;
        bulk.run.push(row, is_new);
        bulk.needs_check |= !is_new;
        if bulk.run.bytes() < self.engine.tuning.bulk_run_bytes {
            return Ok(());
        }
        let Some(mut bulk) = self.tables[t].bulk.take() else { return Ok(()) };
        self.send_run(t, &mut bulk)?;
        self.tables[t].bulk = Some(bulk);
        Ok(())
    }

    fn send_run(&mut self, t: usize, bulk: &mut Bulk) -> Result<()> {
        if !bulk.has_worker() {
            // The write set counts as newer than private segments: what is in it must go before the new rows.
            self.spill(t)?;
            let indexes = self.tables[t].table.indexes();
            for index in indexes.iter() {
                let i = self.table_index(&index.table);
                self.tables[i].check.get_or_insert_with(|| self.engine.take_snapshot());
                self.spill(i)?;
            }
        }
        let entry = &self.tables[t];
        bulk.send_run(&self.engine, &entry.table, &entry.layout)
    }

    /// Before a commit: there is no way back, and rows that were inserted and deleted again never were.
    pub(crate) fn forget_undone(&mut self) {
        self.savepoints.clear();
        self.undo.clear();
        for t in &self.tables {
            let mut own = t.own.write();
            if own.private.is_empty() {
                own.map.retain(|_, w| w.row.is_some() || w.expects_absent.is_none());
            }
        }
    }

    fn add_private(&mut self, t: usize, segments: Vec<PrivateSegment>) {
        if segments.is_empty() {
            return;
        }
        let mut own = self.tables[t].own.write();
        if !self.savepoints.is_empty() {
            self.undo.push(Undo::Private { table: t, count: own.private.len() });
        }
        own.private.extend(segments);
        own.generation += 1;
    }

    /// Moves the write set of a table to private segments, one part for each open savepoint, so that each can
    /// still be rolled back.
    pub(crate) fn spill(&mut self, t: usize) -> Result<()> {
        let result = self.spill_parts(t);
        self.doomed |= result.is_err();
        result
    }

    fn spill_parts(&mut self, t: usize) -> Result<()> {
        let mut map = std::mem::take(&mut self.tables[t].own.write().map);
        if map.is_empty() {
            return Ok(());
        }
        // Newest part first: what was written after each savepoint, then the state before it is restored.
        let mut parts: Vec<std::collections::BTreeMap<Key, OwnWrite>> = Vec::new();
        let mut kept: Vec<Vec<Undo>> = Vec::new();
        for savepoint in self.savepoints.iter().rev() {
            let mut part = std::collections::BTreeMap::new();
            let mut others = Vec::new();
            for undo in self.undo.drain(savepoint.undo_len..).rev() {
                match undo {
                    Undo::Write { table, key, previous } if table == t => {
                        let now = map.remove(&key);
                        if let (Some(now), false) = (now, part.contains_key(&key)) {
                            part.insert(key.clone(), now);
                        }
                        if let Some(previous) = previous {
                            map.insert(key, previous);
                        }
                    }
                    other => others.push(other),
                }
            }
            others.reverse();
            parts.push(part);
            kept.push(others);
        }
        // Oldest first again: segments in order of age, markers where the writes were.
        let base = self.write_part(t, map)?;
        self.tables[t].own.write().private.extend(base);
        for (savepoint, (part, others)) in parts.into_iter().zip(kept).rev().enumerate() {
            self.savepoints[savepoint].undo_len = self.undo.len();
            let count = self.tables[t].own.read().private.len();
            let written = self.write_part(t, part)?;
            // Markers of other private segments of this table have lower counts and so are undone after this one.
            self.undo.extend(others);
            if !written.is_empty() {
                self.undo.push(Undo::Private { table: t, count });
                self.tables[t].own.write().private.extend(written);
            }
        }
        let mut own = self.tables[t].own.write();
        own.bytes = 0;
        own.generation += 1;
        Ok(())
    }

    /// Writes a part of a write set to private segments: updates and inserts apart, as they are checked differently.
    fn write_part(&self, t: usize, part: std::collections::BTreeMap<Key, OwnWrite>) -> Result<Vec<PrivateSegment>> {
        let entry = &self.tables[t];
        let mut written = Vec::new();
        let modes = [
            None,
            Some(OnDuplicate::Fail),
            Some(OnDuplicate::Ignore),
            Some(OnDuplicate::Replace),
            Some(OnDuplicate::Update),
        ];
        for mode in modes {
            let mut tombstone_rows = Vec::new();
            let mut places = Vec::new();
            for (key, write) in part.iter().filter(|(_, w)| w.expects_absent == mode) {
                if write.row.is_none() {
                    places.push(tombstone_rows.len());
                    entry.layout.push_key_row(key, &mut tombstone_rows);
                }
            }
            places.push(tombstone_rows.len());
            let mut tombstones = places.windows(2).map(|w| &tombstone_rows[w[0]..w[1]]);
            let rows: Vec<_> = part
                .values()
                .filter(|w| w.expects_absent == mode)
                .filter_map(|w| match &w.row {
                    Some(row) => Some(crate::write_out::OutRow { row, seq: 0, tombstone: false }),
                    None => tombstones.next().map(|row| crate::write_out::OutRow { row, seq: 0, tombstone: true }),
                })
                .collect();
            written.extend(self.engine.write_private(&entry.table, &entry.layout, &rows, mode)?);
        }
        Ok(written)
    }

    /// Spills every table, so that a commit with private segments is one manifest edit.
    pub(crate) fn spill_all(&mut self) -> Result<()> {
        (0..self.tables.len()).try_for_each(|t| self.spill(t))
    }

    /// Looks for keys of a bulk statement that occur twice in it or exist already.
    fn check_bulk(&mut self, t: usize, written: &[PrivateSegment]) -> Result<()> {
        let entry = &self.tables[t];
        let sources = written
            .iter()
            .map(|p| {
                let input = Input::Segment { segment: p.segment.clone(), base_seq: OwnWrites::private_seq(0) };
                (
                    Source::new(input, entry.layout.clone(), 0, Direction::Forward, None, true),
                    Some(p.segment.meta().first_key.clone()),
                )
            })
            .collect();
        let mut new_rows = Merge::new(Direction::Forward, 0, None, sources)?;
        let existing =
            Cursor::new(entry.table.version(), entry.layout.clone(), Snapshot::latest(), Some(entry.own.clone()));
        let mut existing = KeyWalk::new(existing)?;
        while let Some(event) = new_rows.next(limits::GROUP_ROWS)? {
            match event {
                Event::Versions(versions) if versions.len() > 1 => {
                    return Err(duplicate(&versions[0].group, versions[0].row));
                }
                Event::Versions(versions) => versions.iter().try_for_each(|v| existing.must_lack(&v.group, v.row))?,
                Event::Run { group, first, rows } => {
                    (first..first + rows).try_for_each(|row| existing.must_lack(&group, row))?
                }
            }
        }
        Ok(())
    }
}

impl Txn {
    /// The id that it is prepared under.
    pub(crate) fn prepared_xid(&self) -> Option<Vec<u8>> {
        self.prepared.clone()
    }

    /// Hands the writes and locks over to the engine's list of prepared transactions.
    pub(crate) fn detach_prepared(&mut self, xid: &[u8]) {
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
        self.rollback();
    }
}

/// A change of an index that goes with a change of a row.
struct EntryWrite {
    table: usize,
    key: Key,
    row: Option<Box<[u8]>>,
    expects_absent: Option<OnDuplicate>,
}

/// The entry of a row in an index, and its key.
fn entry_of(index: &Index, layout: &RowLayout, row: &[u8]) -> (Vec<u8>, Key) {
    let mut entry = Vec::new();
    index.push_entry(layout, row, &mut entry);
    let mut key = Key::new();
    index.table.layout().push_key(&entry, &mut key);
    (entry, key)
}

/// A refusal by the `number`-th index, with the row that was refused.
fn refused_by(error: Error, number: usize, row: &[u8]) -> Error {
    match error {
        Error::Duplicate { existing, .. } => Error::Duplicate { index: number as u32 + 1, row: row.to_vec(), existing },
        other => other,
    }
}

/// A refusal of an entry of a bulk statement: the row that it belongs to is in one of the segments.
fn refused_entry(error: Error, index: &Index, number: usize, rows: &[PrivateSegment]) -> Error {
    let Error::Duplicate { row: entry, .. } = &error else { return error };
    let mut key = Vec::new();
    index.push_base_key(entry, &mut key);
    for private in rows {
        if let Ok(Some(found)) = find_in_segment(&private.segment, 0, &private.layout, &key)
            && let Some(place) = found.row
        {
            let mut row = Vec::new();
            return match place.push_to(&mut row) {
                Ok(()) => refused_by(error, number, &row),
                Err(damage) => damage,
            };
        }
    }
    Error::Conflict
}

fn duplicate(group: &RowGroup, row: usize) -> Error {
    let (mut bytes, mut existing) = (Vec::new(), Vec::new());
    match group.push_row(row, &mut bytes).and_then(|()| group.push_key(row, &mut existing)) {
        Ok(()) => Error::Duplicate { index: 0, row: bytes, existing },
        Err(error) => error,
    }
}

/// What the transaction itself wrote for a key.
struct OwnFound {
    /// `None`: it deleted the row.
    row: Option<Vec<u8>>,
    expects_absent: Option<OnDuplicate>,
}

fn own_version(entry: &TxnTable, key: &[u8]) -> Result<Option<OwnFound>> {
    let own = entry.own.read();
    if let Some(write) = own.map.get(key) {
        return Ok(Some(OwnFound {
            row: write.row.as_ref().map(|r| r.to_vec()),
            expects_absent: write.expects_absent,
        }));
    }
    for private in own.private.iter().rev() {
        let Some(found) = find_in_segment(&private.segment, OwnWrites::private_seq(0), &entry.layout, key)? else {
            continue;
        };
        let mut row = None;
        if let Some(place) = found.row {
            place.push_to(row.get_or_insert_default())?;
        }
        return Ok(Some(OwnFound { row, expects_absent: private.expects_absent }));
    }
    Ok(None)
}

/// Walks the keys of existing rows beside ascending keys that are looked for.
struct KeyWalk {
    cursor: Cursor,
    current: Option<Vec<u8>>,
    span: Option<(crate::cursor::Span, u32)>,
    scratch: Vec<u8>,
}

/// Steps after which the walk seeks instead.
const STEPS_BEFORE_SEEK: usize = 32;

impl KeyWalk {
    fn new(mut cursor: Cursor) -> Result<KeyWalk> {
        cursor.seek(None, true, Direction::Forward)?;
        let mut walk = KeyWalk { cursor, current: None, span: None, scratch: Vec::new() };
        walk.step()?;
        Ok(walk)
    }

    fn step(&mut self) -> Result<()> {
        if self.span.as_ref().is_none_or(|(span, at)| *at >= span.rows) {
            self.span = self.cursor.next_span(limits::GROUP_ROWS)?.map(|span| (span, 0));
        }
        match &mut self.span {
            None => self.current = None,
            Some((span, at)) => {
                let key = self.current.get_or_insert_default();
                key.clear();
                span.group.push_key(span.row(*at), key)?;
                *at += 1;
            }
        }
        Ok(())
    }

    /// Error if a row with the key of this one exists. Keys must ascend from call to call.
    fn must_lack(&mut self, group: &Arc<RowGroup>, row: usize) -> Result<()> {
        self.scratch.clear();
        let mut key = std::mem::take(&mut self.scratch);
        group.push_key(row, &mut key)?;
        let mut steps = 0;
        while self.current.as_ref().is_some_and(|c| *c < key) {
            steps += 1;
            if steps > STEPS_BEFORE_SEEK {
                self.cursor.seek(Some(&key), true, Direction::Forward)?;
                self.span = None;
            }
            self.step()?;
        }
        let exists = self.current.as_ref() == Some(&key);
        self.scratch = key;
        if exists { Err(duplicate(group, row)) } else { Ok(()) }
    }
}
