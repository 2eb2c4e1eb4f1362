//! Reads under row locks: each row is locked, then read again in its newest version.
//!
//! A row that is gone by then, or elsewhere in the index that the scan goes along, is passed over. Locks that were taken
//! for nothing are given back.
//!
//! A scan shows what was committed when it began. Once its transaction has waited, or a row was not where the scan showed
//! it, the scan goes on in what is committed by then: a row whose key another transaction moved ahead is found there.

use std::sync::Arc;

use rrd_store::{Cursor, Direction, LockMode, Table, key};

use super::{Current, TableHandle, no_scan};
use crate::scan::Scan;
use crate::session::Session;
use crate::status::Outcome;

/// How UPDATE scans deal with rows that others have locked: under READ COMMITTED they look first whether the row
/// as it is committed is wanted at all, and only then wait for it.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Looking {
    /// They wait.
    Never,
    /// They look.
    Allowed,
    /// The row read last was looked at and is to be locked and read again.
    Now,
}

/// What a scan that locks found where it stands.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Found {
    /// A row; it may be elsewhere in the index that the scan goes along.
    Row,
    /// The row is gone.
    Nothing,
    /// Others have the row, and it is not to be waited for.
    Skipped,
}

/// A unique key that a locking scan looks for.
pub(super) struct Sought {
    /// The store's table, or that of the index's entries.
    table: Arc<Table>,
    key: Vec<u8>,
}

/// What came of asking for a lock.
enum Asked {
    /// It is held.
    Got,
    /// Others have it, and such rows are passed over.
    Skipped,
    /// Others have it, and the row is to be looked at first.
    Busy,
}

impl TableHandle {
    /// Whether the row that was locked is still where the walk along an index met it; else its lock is given back. One that
    /// was only looked at and has moved is waited for: its new place may not be seen before who moved it is done.
    pub(super) fn is_at_its_place(&mut self, session: &mut Session, record: &mut [u8]) -> Outcome<bool> {
        let Some(place) = self.scan_index else { return Ok(true) };
        let number = self.format.index(place)?.number;
        let index = self.table.indexes().get(number).cloned().ok_or_else(no_scan)?;
        loop {
            self.key.clear();
            index.push_entry_key(self.format.layout(), &self.row, &mut self.key)?;
            if self.scan.as_ref().and_then(Scan::entry_key) == Some(self.key.as_slice()) {
                return Ok(true);
            }
            if self.looking != Looking::Now {
                self.give_back(session);
                return Ok(false);
            }
            if !self.read_looked_at(session, record)? {
                return Ok(false);
            }
        }
    }

    /// The key that a scan along a unique index looks for, if `start` has all of its parts.
    pub(super) fn unique_key(&self, start: &[u8], parts: usize) -> Outcome<Option<Sought>> {
        let Some(place) = self.scan_index else {
            let is_whole = !self.format.has_row_number() && parts == self.format.key().len();
            return Ok(is_whole.then(|| Sought { table: self.table.clone(), key: start.to_vec() }));
        };
        let index = self.format.index(place)?;
        let of_store = self.table.indexes().get(index.number).cloned().ok_or_else(no_scan)?;
        if !of_store.def.unique || parts != index.parts.len() {
            return Ok(None);
        }
        let mut key = start.to_vec();
        if of_store.has_tie_breaker() {
            key::push_bytes(&mut key, &[]);
        }
        Ok(Some(Sought { table: of_store.table.clone(), key }))
    }

    /// Locks the key that a scan looked for and did not find: a row that another transaction has inserted, and not
    /// committed, is waited for, and nobody inserts one before this transaction ends (under READ COMMITTED: before this call
    /// ends). True if the scan has to look again.
    pub(super) fn waits_for_sought(&mut self, session: &mut Session) -> Outcome<bool> {
        let (Some(Sought { table, key }), Some(mode)) = (self.sought.take(), self.locking) else { return Ok(false) };
        let locked = match self.skips_locked {
            true => session.txn().try_lock_row(&table, &key, mode)?,
            false => Some(session.txn().lock_row(&table, &key, mode)?),
        };
        if locked == Some(true) && session.unlocks_unused_rows() {
            session.txn().unlock_row(&table, &key);
        }
        let scan = self.scan.as_ref().ok_or_else(no_scan)?;
        if locked.is_none() || !session.txn().is_behind(&table, scan.cursor()) {
            return Ok(false);
        }
        let cursor = self.locking_cursor(session)?;
        self.scan.as_mut().ok_or_else(no_scan)?.start_over(cursor)?;
        Ok(true)
    }

    /// What a scan that locks sees from now on.
    pub(super) fn locking_cursor(&mut self, session: &mut Session) -> Outcome<Cursor> {
        self.waits_seen = session.txn().waits();
        Ok(match self.scan_index {
            Some(place) => session.txn().locking_index_cursor(&self.table, self.format.index(place)?.number)?,
            None => session.txn().locking_cursor(&self.table)?,
        })
    }

    /// Lets the scan go on in what is committed now, if the transaction has waited since it looked last, or with
    /// `is_gone` the row that it stands on is not there any more, and others did change the table.
    pub(super) fn renew_view(&mut self, session: &mut Session, direction: Direction, is_gone: bool) -> Outcome<()> {
        if !is_gone && session.txn().waits() == self.waits_seen {
            return Ok(());
        }
        let scan = self.scan.as_ref().ok_or_else(no_scan)?;
        if !session.txn().is_behind(&self.table, scan.cursor()) {
            self.waits_seen = session.txn().waits();
            return Ok(());
        }
        let cursor = self.locking_cursor(session)?;
        let scan = self.scan.as_mut().ok_or_else(no_scan)?;
        // A unique index may have another row under the same entry. In the same view it would be the same one for ever.
        let again = is_gone && cursor.is_newer_than(scan.cursor());
        scan.go_on_with(cursor, again, direction)
    }

    /// Locks a row and reads its newest version; false if it is gone, or not to be waited for.
    pub(super) fn read_locked(&mut self, session: &mut Session, key: &[u8], record: &mut [u8]) -> Outcome<bool> {
        let asked = self.ask_for_lock(session, key)?;
        Ok(self.read_after(asked, session, key, record)? == Found::Row)
    }

    /// [`TableHandle::read_locked`] for the row that the scan stands on: if nobody has written to the table since the scan
    /// began, it is the newest version.
    pub(super) fn read_scanned_locked(
        &mut self,
        session: &mut Session,
        key: &[u8],
        record: &mut [u8],
    ) -> Outcome<Found> {
        let asked = self.ask_for_lock(session, key)?;
        if let (Asked::Got, None, Some(scan)) = (&asked, self.scan_index, &self.scan)
            && session.txn().is_still_newest(&self.table, scan.cursor(), key)
        {
            scan.unpack(&self.read, record);
            self.row_key.clear();
            self.row_key.extend_from_slice(key);
            self.current = Current::Scan;
            return Ok(Found::Row);
        }
        self.read_after(asked, session, key, record)
    }

    fn ask_for_lock(&mut self, session: &mut Session, key: &[u8]) -> Outcome<Asked> {
        let mode = self.locking.unwrap_or(LockMode::Exclusive);
        self.is_lock_new = false;
        if !self.skips_locked && self.looking != Looking::Allowed {
            self.is_lock_new = session.txn().lock_row(&self.table, key, mode)?;
            return Ok(Asked::Got);
        }
        Ok(match session.txn().try_lock_row(&self.table, key, mode)? {
            Some(is_new) => {
                self.is_lock_new = is_new;
                Asked::Got
            }
            None if self.skips_locked => Asked::Skipped,
            None => Asked::Busy,
        })
    }

    fn read_after(&mut self, asked: Asked, session: &mut Session, key: &[u8], record: &mut [u8]) -> Outcome<Found> {
        if let Asked::Skipped = asked {
            return Ok(Found::Skipped);
        }
        let is_busy = matches!(asked, Asked::Busy);
        if self.read_newest(session, key, record)? {
            if is_busy {
                self.looking = Looking::Now;
            }
            return Ok(Found::Row);
        }
        self.row_key.clear();
        self.row_key.extend_from_slice(key);
        if !is_busy {
            self.give_back(session);
            return Ok(Found::Nothing);
        }
        // What became of it may not be seen before who has it is done.
        Ok(if self.read_looked_at(session, record)? { Found::Row } else { Found::Nothing })
    }

    /// Waits for the row that was only looked at, and reads it again.
    pub(super) fn read_looked_at(&mut self, session: &mut Session, record: &mut [u8]) -> Outcome<bool> {
        let key = std::mem::take(&mut self.row_key);
        self.looking = Looking::Never;
        let found = self.read_locked(session, &key, record);
        self.looking = Looking::Allowed;
        found
    }

    /// Whether scans may look at rows that others have locked before they wait for them; see [`Looking`].
    pub fn look_before_waiting(&mut self, yes: bool) {
        self.looking = if yes { Looking::Allowed } else { Looking::Never };
    }

    /// Whether the row read last was only looked at.
    pub fn is_looking(&self) -> bool {
        self.looking == Looking::Now
    }

    /// The statement has no use for the row read last. Under READ COMMITTED its lock is given back; else it stays, as
    /// InnoDB's would.
    pub fn unlock_row(&mut self, session: &mut Session) {
        if self.looking == Looking::Now {
            self.looking = Looking::Allowed;
        } else if session.unlocks_unused_rows() {
            self.give_back(session);
        }
    }

    /// Unlocks the row read last, unless it was locked before.
    fn give_back(&mut self, session: &mut Session) {
        if std::mem::take(&mut self.is_lock_new) {
            session.txn().unlock_row(&self.table, &self.row_key);
        }
    }

    fn read_newest(&mut self, session: &mut Session, key: &[u8], record: &mut [u8]) -> Outcome<bool> {
        self.row.clear();
        if !session.txn().read_latest(&self.table, key, &mut self.row)? {
            return Ok(false);
        }
        self.row_key.clear();
        self.row_key.extend_from_slice(key);
        self.format.unpack_row(&self.read, &self.row, record);
        self.leave_scan(Current::Row);
        Ok(true)
    }
}
