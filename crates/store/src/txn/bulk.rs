//! Bulk statements of a transaction: rows are collected, handed to the worker, and checked at the end.
//!
//! What the worker does is in bulk.rs of the store.

use super::keys::{entry_of, refused_by};
use super::losses::RowFates;
use super::{Txn, TxnTable};
use crate::batch::Batch;
use crate::bulk::{Bulk, Newness};
use crate::cursor::{Cursor, Direction};
use crate::error::{Error, Result};
use crate::group::RowGroup;
use crate::index::Index;
use crate::limits;
use crate::memory;
use crate::memtable::Key;
use crate::merge::{Event, Merge};
use crate::own::OnDuplicate;
use crate::own::{OwnBatch, OwnWrite, OwnWrites, PrivateSegment};
use crate::snapshot::Snapshot;
use crate::source::{Input, Source};
use crate::table::{Table, find_in_segment};
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Txn {
    /// Many inserts into this table follow, and no reads. When they are large, those with [`OnDuplicate::Fail`] may be
    /// checked late: a duplicate is then reported by a later `insert` or by `end_bulk`. Not for ON DUPLICATE KEY UPDATE.
    pub fn begin_bulk(&mut self, table: &Arc<Table>) {
        self.writes_many = true;
        self.first_rows_left = limits::FIRST_ROWS_LOCKED;
        let t = self.table_index(table);
        let TxnTable { bulk, layout, .. } = &mut self.tables[t];
        bulk.get_or_insert_with(|| Bulk::new(layout, !table.indexes().is_empty()));
    }

    /// Ends the bulk statement: all late checks are done.
    pub fn end_bulk(&mut self, table: &Arc<Table>) -> Result<()> {
        let t = self.table_index(table);
        let Some(bulk) = &self.tables[t].bulk else { return Ok(()) };
        // Entries of an index that is built go to segments: what they take of a ring of bytes is known then.
        let least = if table.schema().part_of().is_some() { 1 } else { self.engine.tuning.bulk_min_bytes };
        let is_small = !bulk.has_worker() && bulk.run.bytes() < least;
        if !is_small {
            // Rows in segments are not asked any more.
            self.tables[t].tell_newest(0);
        }
        let Some(mut bulk) = self.tables[t].bulk.take() else { return Ok(()) };
        if is_small {
            self.engine.check_writable()?;
            let indexes = table.indexes();
            if bulk.run.len() >= self.engine.tuning.smallest_batch.max(1)
                && bulk.run.is_all_new()
                && indexes.is_empty()
                && self.tables[t].own.read().takes_batches()
            {
                memory::ask(2 * bulk.run.bytes() + 64 * bulk.run.len(), "the rows of a statement")?;
                match Batch::of(bulk.run, &self.tables[t].layout) {
                    Ok(rows) => return self.add_batch(t, OwnBatch { rows: Arc::new(rows), mode: bulk.mode }),
                    Err(run) => bulk.run = run,
                }
            }
            if bulk.run.len() <= self.first_rows_left {
                return bulk.run.rows().try_for_each(|row| self.insert_first(t, row, bulk.mode));
            }
            return bulk.run.rows_and_doubts().try_for_each(|(row, is_new)| match is_new {
                true => self.insert_new(t, row, &indexes, bulk.mode),
                false => self.insert_row(table, row, bulk.mode),
            });
        }
        self.send_run(t, &mut bulk)?;
        let mut written = bulk.finish()?;
        bulk.needs_check |= written.is_doubtful;
        self.take_back_newness(t, std::mem::take(&mut written.newness));
        let check = |txn: &mut Txn, t: usize, segments: &mut [PrivateSegment]| match bulk.needs_check {
            true => txn.check_bulk(t, segments),
            false if bulk.takes_unchecked() => txn.check_bulk_since(t, segments),
            false => Ok(()),
        };
        check(self, t, &mut written.rows)?;
        let indexes = self.tables[t].table.indexes();
        for (number, (index, entries)) in indexes.iter().zip(&mut written.entries).enumerate() {
            let i = self.table_index(&index.table);
            if index.def.unique {
                check(self, i, entries).map_err(|error| refused_entry(error, index, number, &written.rows))?;
            }
        }
        if written.passed.is_some() {
            let mut own = self.tables[t].own.write();
            own.passed = own.passed.max(written.passed);
            own.left_out += written.left_out;
        }
        self.add_private(t, written.rows);
        for (index, entries) in indexes.iter().zip(written.entries) {
            let i = self.table_index(&index.table);
            self.add_private(i, entries);
        }
        Ok(())
    }

    /// Inserts a row that is known to be new.
    pub(super) fn insert_new(&mut self, t: usize, row: &[u8], indexes: &[Arc<Index>], mode: OnDuplicate) -> Result<()> {
        let mut key = Key::new();
        self.tables[t].layout.push_key(row, &mut key);
        self.write(t, key, OwnWrite { row: Some(memory::copy_row(row)?), expects_absent: Some(mode) })?;
        for index in indexes {
            let (entry, key) = entry_of(index, &self.tables[t].layout, row)?;
            let i = self.table_index(&index.table);
            self.write(i, key, OwnWrite { row: Some(memory::copy_row(&entry)?), expects_absent: Some(mode) })?;
        }
        Ok(())
    }

    /// Whether the row is behind the newest of its series, in the table and in each unique index.
    pub(super) fn is_certainly_new(&mut self, t: usize, key: &[u8], row: &[u8]) -> Result<bool> {
        let mut is_new = self.is_behind_newest(t, key)?;
        let indexes = self.tables[t].table.indexes();
        for index in indexes.iter().filter(|i| i.def.unique) {
            let (_, entry_key) = entry_of(index, &self.tables[t].layout, row)?;
            let i = self.table_index(&index.table);
            is_new &= self.is_behind_newest(i, &entry_key)?;
        }
        Ok(is_new)
    }

    /// Whether a row of a bulk statement that may exist already is looked up at the statement's end only. A small
    /// statement tells of its first mistake, as row by row.
    pub(super) fn may_check_late(&self, t: usize, mode: OnDuplicate) -> bool {
        let is_large = |bulk: &Bulk| bulk.has_worker() || bulk.bytes() >= self.engine.tuning.bulk_min_bytes;
        mode == OnDuplicate::Fail && self.tables[t].bulk.as_ref().is_some_and(is_large)
    }

    /// The answer for `row` is wanted now: it goes to the write set, and what was collected before it. A statement
    /// that wants all its answers at once ends as a bulk statement; others go on as one when they get large.
    pub(super) fn leave_bulk(&mut self, t: usize, row: &[u8], mode: OnDuplicate) -> Result<()> {
        if mode != OnDuplicate::Fail {
            let table = self.tables[t].table.clone();
            return self.end_bulk(&table);
        }
        let Some(mut bulk) = self.tables[t].bulk.take() else { return Ok(()) };
        let run = bulk.settle(row.len());
        self.tables[t].bulk = Some(bulk);
        let indexes = self.tables[t].table.indexes();
        for row in run.rows() {
            match self.first_rows_left {
                0 => self.insert_new(t, row, &indexes, mode)?,
                _ => self.insert_first(t, row, mode)?,
            }
        }
        self.first_rows_left = self.first_rows_left.saturating_sub(1);
        Ok(())
    }

    /// Inserts one of the first rows of a statement: its keys are locked, as if it came alone.
    fn insert_first(&mut self, t: usize, row: &[u8], mode: OnDuplicate) -> Result<()> {
        let mut key = Key::new();
        self.tables[t].layout.push_key(row, &mut key);
        self.insert_claimed(t, key, row, mode)?;
        self.first_rows_left = self.first_rows_left.saturating_sub(1);
        Ok(())
    }

    pub(super) fn insert_bulk(&mut self, t: usize, row: &[u8], is_new: bool, mode: OnDuplicate) -> Result<()> {
        let Some(bulk) = &mut self.tables[t].bulk else { return Ok(()) };
        bulk.mode = mode;
        bulk.run.push(row, is_new)?;
        bulk.needs_check |= !is_new;
        if mode == OnDuplicate::Fail {
            bulk.end_checks_at(self.engine.tuning.bulk_min_bytes);
        }
        self.send_full_run(t)
    }

    /// Inserts a row that `write` appends to the bytes given, if this is a bulk statement and either its worker checks the
    /// keys or the row is behind the newest of its series: false, and nothing was done, if not. For plain inserts only.
    #[inline]
    pub fn append(&mut self, table: &Arc<Table>, write: impl FnOnce(&mut Vec<u8>) -> Result<()>) -> Result<bool> {
        let Some(t) = self.tables.iter().position(|t| Arc::ptr_eq(&t.table, table)) else { return Ok(false) };
        let TxnTable { bulk: Some(bulk), table, layout, times, .. } = &mut self.tables[t] else { return Ok(false) };
        if !bulk.takes_appended() {
            return Ok(false);
        }
        bulk.run.append(write)?;
        let Some(row) = bulk.run.last() else { return Ok(false) };
        let time = layout.time(row);
        let is_plain = !table.may_be_gone(time) && times.contains(&time) && row.len() <= limits::MAX_ROW_BYTES;
        let is_unchecked = bulk.takes_unchecked();
        let is_taken = is_plain && (is_unchecked || self.is_last_behind_newest(t)?);
        let TxnTable { bulk: Some(bulk), table, layout, fates: RowFates { offered, .. }, .. } = &mut self.tables[t]
        else {
            return Ok(false);
        };
        if !is_taken {
            bulk.run.pop();
            return Ok(false);
        }
        if let (Some(_), Some(row)) = (layout.schema().auto_increment, bulk.run.last()) {
            table.note_auto_increment(layout, row);
        }
        bulk.end_checks_at(self.engine.tuning.bulk_min_bytes);
        *offered += 1;
        if bulk.run.bytes() >= self.engine.tuning.bulk_run_bytes {
            self.send_full_run(t)?;
        }
        Ok(true)
    }

    fn send_full_run(&mut self, t: usize) -> Result<()> {
        let is_full = |bulk: &Bulk| bulk.run.bytes() >= self.engine.tuning.bulk_run_bytes;
        if !self.tables[t].bulk.as_ref().is_some_and(is_full) {
            return Ok(());
        }
        self.tables[t].tell_newest(0);
        let Some(mut bulk) = self.tables[t].bulk.take() else { return Ok(()) };
        self.send_run(t, &mut bulk)?;
        self.tables[t].bulk = Some(bulk);
        Ok(())
    }

    pub(super) fn send_run(&mut self, t: usize, bulk: &mut Bulk) -> Result<()> {
        self.engine.check_writable()?;
        if !bulk.has_worker() {
            // The write set counts as newer than private segments: what is in it must go before the new rows.
            self.spill(t)?;
            let indexes = self.tables[t].table.indexes();
            for index in indexes.iter() {
                let i = self.table_index(&index.table);
                self.tables[i].check.get_or_insert_with(|| self.engine.take_snapshot_for_checks(0));
                self.spill(i)?;
            }
            // What does not fail at a duplicate wants to know at once.
            let tables = if bulk.takes_unchecked() { self.with_indexes(t) } else { Vec::new() };
            let newness = tables.into_iter().map(|t| self.tables[t].lend_newness()).collect();
            let entry = &self.tables[t];
            bulk.start_worker(&self.engine, &entry.table, &entry.layout, newness)?;
        }
        bulk.send_run()
    }

    /// Takes what the worker knows of the newest rows.
    fn take_back_newness(&mut self, t: usize, newness: Vec<Newness>) {
        for (t, newness) in self.with_indexes(t).into_iter().zip(newness) {
            self.tables[t].newness = newness;
        }
    }

    /// A table and those of its indexes.
    fn with_indexes(&mut self, t: usize) -> Vec<usize> {
        let indexes = self.tables[t].table.indexes();
        std::iter::once(t).chain(indexes.iter().map(|index| self.table_index(&index.table))).collect()
    }

    /// Looks for keys that others have committed since the transaction first asked which of its rows are new.
    fn check_bulk_since(&self, t: usize, written: &mut [PrivateSegment]) -> Result<()> {
        // What it shows is compared; what comes later is left to the commit.
        let now = self.engine.take_snapshot();
        let entry = &self.tables[t];
        let Some(since) = entry.check.as_ref().map(|check| check.seq()) else { return Ok(()) };
        if entry.table.last_commit_seq.load(Ordering::Acquire) > since {
            self.engine.check_written(self, entry, written, since)?;
            written.iter_mut().for_each(|private| private.checked_up_to = now.seq());
        }
        Ok(())
    }

    /// Looks for keys of a bulk statement that occur twice in it or exist already.
    pub(super) fn check_bulk(&mut self, t: usize, written: &[PrivateSegment]) -> Result<()> {
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
            self.check_interrupted()?;
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

/// A refusal of an entry of a bulk statement: the row that it belongs to is in one of the segments.
pub(super) fn refused_entry(error: Error, index: &Index, number: usize, rows: &[PrivateSegment]) -> Error {
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

pub(super) fn duplicate(group: &RowGroup, row: usize) -> Error {
    let (mut bytes, mut existing) = (Vec::new(), Vec::new());
    match group.push_row(row, &mut bytes).and_then(|()| group.push_key(row, &mut existing)) {
        Ok(()) => Error::Duplicate { index: 0, row: bytes, existing },
        Err(error) => error,
    }
}

/// Walks the keys of existing rows beside ascending keys that are looked for.
pub(super) struct KeyWalk {
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
