//! Unique keys: is a key free for this transaction, and what do the indexes have to say?
//!
//! A key behind the newest of its series is free by construction; else the transaction's own writes and what is
//! committed now are asked. commit.rs asks again.

use super::{Streak, Txn, TxnTable};
use crate::error::{Error, Result};
use crate::index::Index;
use crate::lock::LockMode;
use crate::memory;
use crate::memtable::Key;
use crate::own::OnDuplicate;
use crate::own::{OwnWrite, OwnWrites};
use crate::row::RowLayout;
use crate::table::{Table, find_in_segment};
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Txn {
    /// Makes sure that a key is free. `None`: this transaction itself removed the row that was there. The key is locked, so
    /// that others who want it wait until this transaction is decided. Large statements lock no more than their first rows: a
    /// lock for each of many would take too much memory. Their keys are checked again at COMMIT.
    pub(super) fn claim(&mut self, t: usize, key: &Key, row: &[u8], mode: OnDuplicate) -> Result<Option<OnDuplicate>> {
        if mode == OnDuplicate::Ignore && !self.writes_many {
            self.lock_for_ignore(t, key)?;
        } else if mode == OnDuplicate::Update || (mode == OnDuplicate::Replace && !self.writes_many) {
            let table = self.tables[t].table.clone();
            self.lock_row(&table, key, LockMode::Exclusive)?;
        }
        let applied_seq = self.engine.visible_seq.load(Ordering::Acquire);
        let expects_absent = self.expect_absent(t, key, row, mode)?;
        if mode == OnDuplicate::Fail && expects_absent.is_some() && self.locks_new_keys() {
            self.lock_new_key(t, key, row, applied_seq)?;
        }
        Ok(expects_absent)
    }

    fn locks_new_keys(&self) -> bool {
        !self.writes_many || self.first_rows_left > 0
    }

    /// Looks whether a key is free: [`Error::Duplicate`] if not.
    fn expect_absent(&mut self, t: usize, key: &Key, row: &[u8], mode: OnDuplicate) -> Result<Option<OnDuplicate>> {
        if self.is_behind_newest(t, key)? {
            return Ok(Some(mode));
        }
        loop {
            match own_version(&self.tables[t], key)? {
                Some(found) if found.row.is_some() => return Err(self.duplicate_in(&self.tables[t], row, key)),
                Some(found) => return Ok(found.expects_absent.and(Some(mode))),
                None if !self.is_committed(t, key)? => return Ok(Some(mode)),
                None => {}
            }
            self.engine.pause_points.pass("a key is taken");
            match self.duplicate_in(&self.tables[t], row, key) {
                // The entry went meanwhile: the key may be free now.
                Error::Duplicate { existing, .. } if existing.is_empty() => {}
                error => return Err(error),
            }
        }
    }

    /// Locks a key that was free when the commits up to `applied_seq` had been applied, and waits for a transaction that has
    /// inserted it and is not decided. The number may not be that of a commit which is only queued: its rows were not seen. The table itself is not locked: a DELETE by chunk does not touch rows that are not committed.
    fn lock_new_key(&mut self, t: usize, key: &Key, row: &[u8], applied_seq: u64) -> Result<()> {
        let entry = &self.tables[t];
        if entry.layout.schema().row_number.is_some() || self.new_keys_locked >= self.engine.tuning.new_key_locks {
            return Ok(());
        }
        let table = entry.table.clone();
        self.holds_locks = true;
        if self.engine.locks.has_escalated() && !entry.has_intent {
            // Whoever has locked the table in the place of its rows may have inserted the key.
            self.lock_table(&table, LockMode::Shared, self.lock_timeout)?;
            self.tables[t].has_intent = true;
        }
        let is_new = match self.ask_for_lock(&table, key, LockMode::Exclusive, self.lock_timeout) {
            // As a key of a large statement: it is checked again at COMMIT.
            Err(Error::LockMemory { .. }) => return Ok(()),
            locked => locked?,
        };
        self.new_keys_locked += usize::from(is_new);
        if table.last_commit_seq.load(Ordering::Acquire) <= applied_seq
            || table.find(key, applied_seq)?.is_none_or(|found| found.row.is_none())
        {
            return Ok(());
        }
        // Another transaction committed the key meanwhile. Nothing is written here, so nobody has to wait for this lock.
        if is_new {
            self.unlock_row(&table, key);
        }
        Err(self.duplicate_in(&self.tables[t], row, key))
    }

    /// Locks the key of a row that is left out where the key is taken: a row that is there only has to stay, so that it can
    /// be read, and found in the way, by others as well.
    fn lock_for_ignore(&mut self, t: usize, key: &[u8]) -> Result<()> {
        let table = self.tables[t].table.clone();
        if self.is_committed(t, key)? {
            let is_new = self.lock_row(&table, key, LockMode::Shared)?;
            if self.is_committed(t, key)? {
                return Ok(());
            }
            // The row is gone. Two who kept their shared locks would wait for each other.
            if is_new {
                self.unlock_row(&table, key);
            }
        }
        self.lock_row(&table, key, LockMode::Exclusive)?;
        Ok(())
    }

    /// What has to be written to the indexes when `row` replaces `old_row`; unique entries that are new are claimed.
    pub(super) fn claim_entries(
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
            let (entry, key) = entry_of(index, &layout, row)?;
            let old = old_row.map(|old| entry_of(index, &layout, old)).transpose()?;
            let stays = old.as_ref().is_some_and(|(old_entry, _)| *old_entry == entry);
            if stays && !self.is_behind_snapshot(&index.table, &key)? {
                continue;
            }
            let i = self.table_index(&index.table);
            if stays {
                writes.push(EntryWrite { table: i, key, row: Some(memory::copy_row(&entry)?), expects_absent: None });
                continue;
            }
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
            writes.push(EntryWrite { table: i, key, row: Some(memory::copy_row(&entry)?), expects_absent });
        }
        Ok(writes)
    }

    /// Whether an entry was committed after the transaction's snapshot. A changed row with such an entry would not be found
    /// through the index by its own transaction, so the entry becomes its own as well.
    fn is_behind_snapshot(&self, entries: &Table, key: &[u8]) -> Result<bool> {
        let Some(snapshot) = &self.snapshot else { return Ok(false) };
        let since = snapshot.seq();
        Ok(entries.last_commit_seq.load(Ordering::Acquire) > since && entries.find(key, since)?.is_some())
    }

    pub(super) fn write_entries(&mut self, entries: Vec<EntryWrite>) -> Result<()> {
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
    pub(super) fn indexed_row(&mut self, table: &Arc<Table>, key: &[u8]) -> Result<Option<Vec<u8>>> {
        if table.indexes().is_empty() {
            return Ok(None);
        }
        let mut row = Vec::new();
        Ok(self.read_latest(table, key, &mut row)?.then_some(row))
    }

    /// The error for a row (or index entry) whose key is taken, in terms of the base table. It names no row in the way if that went
    /// meanwhile.
    pub(crate) fn duplicate_in(&self, t: &TxnTable, row: &[u8], key: &[u8]) -> Error {
        let existing = key.to_vec();
        let Some(of) = t.layout.schema().index_of else {
            return Error::Duplicate { index: 0, row: row.to_vec(), existing };
        };
        let base = self.tables.iter().find(|b| b.table.id.0 == of.table);
        let place = base.and_then(|b| b.table.indexes().iter().position(|i| i.def.id == of.index).map(|n| (b, n)));
        // An index that is being built has no base table here.
        let Some((base, number)) = place else { return Error::Duplicate { index: 0, row: row.to_vec(), existing } };
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

    /// Whether the key is behind the newest of its series, so that it cannot exist; then it is the newest.
    pub(super) fn is_behind_newest(&mut self, t: usize, key: &[u8]) -> Result<bool> {
        let (engine, id) = (&self.engine, self.id);
        let entry = &mut self.tables[t];
        entry.check.get_or_insert_with(|| engine.take_snapshot_for_checks(id));
        entry.tell_newest(0);
        let split = entry.layout.series_len(key);
        let (series, rest) = key.split_at(split);
        let seen_seq = entry.table.last_commit_seq.load(Ordering::Acquire);
        let known = entry.newness.newest.get_mut(series);
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

    /// [`Txn::is_behind_newest`] for the row that a bulk statement appended last: mostly a look at the row before it, or at
    /// the table's newest of the series.
    #[inline]
    pub(super) fn is_last_behind_newest(&mut self, t: usize) -> Result<bool> {
        let (engine, id) = (&self.engine, self.id);
        let entry = &mut self.tables[t];
        let (Some(bulk), Some(int_key)) = (&entry.bulk, entry.layout.int_key()) else { return Ok(false) };
        let Some(row) = bulk.run.last() else { return Ok(false) };
        let (series, rest) = (int_key.series(row), int_key.rest(row));
        let seen_seq = entry.table.last_commit_seq.load(Ordering::Acquire);
        let is_behind_own = match &mut entry.streak {
            Some(streak) if streak.series == series && streak.rest < rest && streak.seen_seq == seen_seq => {
                streak.rest = rest;
                return Ok(true);
            }
            Some(streak) => entry.is_untold && (streak.series, streak.rest) < (series, rest),
            None => {
                bulk.run.len() == 1
                    && entry.newness.newest.is_empty()
                    && !entry.newness.is_lost
                    && entry.own.read().is_empty()
            }
        };
        if is_behind_own {
            entry.check.get_or_insert_with(|| engine.take_snapshot_for_checks(id));
            let applied_seq = seen_seq.min(engine.visible_seq.load(Ordering::Acquire));
            if entry.table.is_short_behind_newest(int_key.short(series, rest), &mut entry.place) {
                if !std::mem::replace(&mut entry.is_untold, true) {
                    entry.newest_seq = applied_seq;
                }
                entry.streak = Some(Streak { series, rest, seen_seq });
                return Ok(true);
            }
        }
        let mut key = Key::new();
        entry.layout.push_key(row, &mut key);
        entry.tell_newest(1);
        let is_behind = self.is_behind_newest(t, &key)?;
        self.tables[t].streak = is_behind.then_some(Streak { series, rest, seen_seq });
        Ok(is_behind)
    }

    /// [`Txn::is_behind_newest`] for a series that was not met before, or after others committed.
    pub(super) fn look_up_newest(&mut self, t: usize, series: &[u8], rest: &[u8], seen_seq: u64) -> Result<bool> {
        let entry = &mut self.tables[t];
        if entry.newness.newest.is_empty() {
            // Rows of a commit that is only queued are not seen here: the newest is looked up again then.
            entry.newest_seq = seen_seq.min(self.engine.visible_seq.load(Ordering::Acquire));
        }
        entry.newness.forget_if_full();
        let mut newest = entry.newness.newest.get(series).cloned().unwrap_or_default();
        entry.table.newest_of(&entry.layout, series, |committed| {
            if committed > newest.as_slice() {
                newest = Key::from_slice(committed);
            }
        })?;
        let behind = rest > newest.as_slice();
        if entry.newness.is_lost {
            return Ok(false);
        }
        let bound = if behind { Key::from_slice(rest) } else { newest };
        entry.newness.newest.insert(Key::from_slice(series), bound);
        Ok(behind)
    }

    /// Whether a row with this key is committed now.
    pub(super) fn is_committed(&self, t: usize, key: &[u8]) -> Result<bool> {
        Ok(self.tables[t].table.find(key, 0)?.is_some_and(|f| f.row.is_some()))
    }
}

impl TxnTable {
    /// Notes own rows as the newest of their series; of the bulk statement's run those that were looked up, but for the last
    /// `asked` ones.
    pub(super) fn tell_newest(&mut self, asked: usize) {
        let streak = self.streak.take();
        if !std::mem::take(&mut self.is_untold) {
            let key = streak.zip(self.layout.int_key()).map(|(row, key)| key.key(row.series, row.rest));
            key.iter().for_each(|key| self.raise_newest(key));
            return;
        }
        let own = self.own.clone();
        // Rows that were there before may be others than the newest.
        own.read().for_each(|key, write| write.expects_absent.iter().for_each(|_| self.raise_newest(key)));
        let Some(bulk) = self.bulk.take() else { return };
        let mut key = Key::new();
        for row in bulk.run.rows().take((bulk.run.len() - asked).min(bulk.run.checked())) {
            key.clear();
            self.layout.push_key(row, &mut key);
            self.raise_newest(&key);
        }
        self.bulk = Some(bulk);
    }

    fn raise_newest(&mut self, key: &[u8]) {
        let (series, rest) = key.split_at(self.layout.series_len(key));
        self.newness.raise(series, rest);
    }
}

/// A change of an index that goes with a change of a row.
pub(super) struct EntryWrite {
    pub table: usize,
    pub key: Key,
    pub row: Option<Box<[u8]>>,
    pub expects_absent: Option<OnDuplicate>,
}

/// The entry of a row in an index, and its key.
pub(super) fn entry_of(index: &Index, layout: &RowLayout, row: &[u8]) -> Result<(Vec<u8>, Key)> {
    let mut entry = Vec::new();
    index.push_entry(layout, row, &mut entry)?;
    let mut key = Key::new();
    index.table.layout().push_key(&entry, &mut key);
    Ok((entry, key))
}

/// A refusal by the `number`-th index, with the row that was refused.
pub(super) fn refused_by(error: Error, number: usize, row: &[u8]) -> Error {
    match error {
        Error::Duplicate { existing, .. } => Error::Duplicate { index: number as u32 + 1, row: row.to_vec(), existing },
        other => other,
    }
}

/// What the transaction itself wrote for a key.
pub(super) struct OwnFound {
    /// `None`: it deleted the row.
    pub row: Option<Vec<u8>>,
    pub expects_absent: Option<OnDuplicate>,
}

pub(super) fn own_version(entry: &TxnTable, key: &[u8]) -> Result<Option<OwnFound>> {
    let own = entry.own.read();
    if let Some(write) = own.get(key) {
        return Ok(Some(OwnFound { row: write.row.map(<[u8]>::to_vec), expects_absent: write.expects_absent }));
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
