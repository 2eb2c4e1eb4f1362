//! An open table of one handler: writes, the scan, point reads.
//!
//! A handler reads in one of two ways at a time: a scan (`scan`) or single rows by key (`probe`). Statements that
//! change what they read, and SELECT ... FOR UPDATE, read under row locks: each row is locked and then read again
//! in its newest version, so a change made since the snapshot is not lost.

use std::sync::Arc;

use rrd_codec::Column;
use rrd_store::txn::OnDuplicate;
use rrd_store::{Cursor, Direction, Engine, Error, Table, key};

use crate::abi::{self, RrdSeek};
use crate::image::{self, Scratch};
use crate::record::{Plan, RecordFormat};
use crate::scan::{Bounds, Scan};
use crate::session::Session;
use crate::status::{Failure, Outcome};

/// How often an insert is tried again when the row in its way was gone by the time it was locked.
const DUPLICATE_RETRIES: usize = 16;

/// Where the last row that was read came from.
#[derive(Clone, Copy, PartialEq)]
enum Current {
    Nothing,
    Scan,
    Row,
}

/// An open table of one handler.
pub struct TableHandle {
    engine: Arc<Engine>,
    table: Arc<Table>,
    format: Arc<RecordFormat>,
    /// Columns to write into records.
    read: Vec<Plan>,
    is_locking: bool,
    scratch: Scratch,
    scan: Option<Scan>,
    /// The scan before it: the server still looks at the blobs of its last row, up to the end of the statement.
    ended_scan: Option<Scan>,
    probe: Option<Cursor>,
    /// Columns of the row read last by key; records' blob pointers may lead here.
    probe_columns: Vec<Arc<Column>>,
    /// The row read last under a lock; records' blob pointers may lead here.
    row: Vec<u8>,
    /// The sort key of the row read last by key or under a lock.
    row_key: Vec<u8>,
    current: Current,
    /// The row to be written.
    new_row: Vec<u8>,
    key: Vec<u8>,
    duplicate: Vec<u8>,
}

impl TableHandle {
    /// Opens a table for a handler.
    pub fn new(engine: Arc<Engine>, table: Arc<Table>, format: RecordFormat) -> TableHandle {
        TableHandle {
            engine,
            table,
            format: Arc::new(format),
            read: Vec::new(),
            is_locking: false,
            scratch: Scratch::default(),
            scan: None,
            ended_scan: None,
            probe: None,
            probe_columns: Vec::new(),
            row: Vec::new(),
            row_key: Vec::new(),
            current: Current::Nothing,
            new_row: Vec::new(),
            key: Vec::new(),
            duplicate: Vec::new(),
        }
    }

    /// The engine.
    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// The store's table.
    pub fn table(&self) -> &Arc<Table> {
        &self.table
    }

    /// Bytes of a record.
    pub fn record_bytes(&self) -> usize {
        self.format.record_bytes()
    }

    /// Chooses the fields (by the server's numbers) that reads write into records, and whether reads lock.
    pub fn set_columns(&mut self, numbers: &[u32], is_locking: bool) {
        self.is_locking = is_locking;
        let mut wanted = numbers.iter().peekable();
        self.read.clear();
        // Both lists ascend.
        self.read.extend(self.format.plans().iter().filter(|plan| wanted.next_if_eq(&&plan.number).is_some()).cloned());
        self.probe = None;
    }

    /// Lets go of everything that a statement held.
    pub fn reset(&mut self) {
        self.scan = None;
        self.ended_scan = None;
        self.probe = None;
        self.probe_columns.clear();
        self.current = Current::Nothing;
        self.row.shrink_to(1 << 16);
        self.new_row.shrink_to(1 << 16);
        self.duplicate = Vec::new();
    }

    // -- Writing ---------------------------------------------------------------------------------------------

    /// Inserts a record. When the answer is a duplicate and `mode` is to replace or update it, the row in the way
    /// is locked and sure to be there.
    ///
    /// # Safety
    /// The record's blob pointers are valid.
    #[inline]
    pub unsafe fn insert(&mut self, session: &mut Session, record: &[u8], mode: OnDuplicate) -> Outcome<()> {
        let row_number = if self.format.has_row_number() { self.table.take_row_number() } else { 0 };
        // SAFETY: promised by the caller.
        unsafe { self.format.pack(record, row_number, &mut self.scratch, &mut self.new_row) };
        if mode == OnDuplicate::Update {
            // The store locks the key as well; here the wait can be killed and has the session's time-out.
            self.lock_new_key(session)?;
        }
        session.note_write(&self.format);
        match session.txn().insert(&self.table, &self.new_row, mode) {
            Ok(()) => Ok(()),
            Err(error) => self.insert_failed(session, error, mode),
        }
    }

    fn lock_new_key(&mut self, session: &mut Session) -> Outcome<()> {
        self.key.clear();
        self.format.layout().push_key(&self.new_row, &mut self.key);
        session.lock_row(&self.table, &self.key)
    }

    #[cold]
    fn insert_failed(&mut self, session: &mut Session, mut error: Error, mode: OnDuplicate) -> Outcome<()> {
        for _ in 0..DUPLICATE_RETRIES {
            let Error::Duplicate { row, .. } = &error else { break };
            self.duplicate.clone_from(row);
            if mode != OnDuplicate::Replace || self.lock_row_in_the_way(session)? {
                break;
            }
            match session.txn().insert(&self.table, &self.new_row, mode) {
                Ok(()) => return Ok(()),
                Err(again) => error = again,
            }
        }
        Err(error.into())
    }

    fn lock_row_in_the_way(&mut self, session: &mut Session) -> Outcome<bool> {
        self.key.clear();
        self.format.layout().push_key(&self.duplicate, &mut self.key);
        session.lock_row(&self.table, &self.key)?;
        self.row.clear();
        Ok(session.txn().read_latest(&self.table, &self.key, &mut self.row)?)
    }

    /// Ends a bulk statement.
    pub fn end_bulk(&mut self, session: &mut Session) -> Outcome<()> {
        let ended = session.txn().end_bulk(&self.table);
        if let Err(Error::Duplicate { row, .. }) = &ended {
            self.duplicate.clone_from(row);
        }
        Ok(ended?)
    }

    /// Writes the refused row of the last duplicate into a record.
    pub fn unpack_duplicate(&self, record: &mut [u8]) {
        if !self.duplicate.is_empty() {
            self.format.unpack_row(self.format.plans(), &self.duplicate, record);
        }
    }

    /// Replaces the row that was read as `old`.
    ///
    /// # Safety
    /// The records' blob pointers are valid.
    pub unsafe fn update(&mut self, session: &mut Session, old: &[u8], new: &[u8]) -> Outcome<()> {
        // SAFETY: promised by the caller, here and below.
        unsafe { self.find_old_key(old)? };
        let row_number = self.row_number_of_key();
        unsafe { self.format.pack(new, row_number, &mut self.scratch, &mut self.new_row) };
        let updated = session.txn().update(&self.table, &self.key, &self.new_row);
        if let Err(Error::Duplicate { row, .. }) = &updated {
            self.duplicate.clone_from(row);
        }
        Ok(updated?)
    }

    /// Removes the row that was read as `record`.
    ///
    /// # Safety
    /// The record's blob pointers are valid.
    pub unsafe fn delete(&mut self, session: &mut Session, record: &[u8]) -> Outcome<()> {
        // SAFETY: promised by the caller.
        unsafe { self.find_old_key(record)? };
        Ok(session.txn().delete(&self.table, &self.key)?)
    }

    /// Puts the sort key of a row that was read into `key`.
    unsafe fn find_old_key(&mut self, record: &[u8]) -> Outcome<()> {
        if self.format.has_row_number() {
            let mut key = std::mem::take(&mut self.key);
            let found = self.copy_current_key(&mut key);
            self.key = key;
            return match found? {
                true => Ok(()),
                false => Err(Failure::internal("internal error: a row to change was not read before")),
            };
        }
        self.key.clear();
        // SAFETY: promised by the caller.
        unsafe { self.format.push_key(record, &mut self.scratch, &mut self.key) };
        Ok(())
    }

    fn row_number_of_key(&self) -> u64 {
        match (self.format.has_row_number(), <[u8; 8]>::try_from(self.key.as_slice())) {
            (true, Ok(bytes)) => u64::from_be_bytes(bytes),
            _ => 0,
        }
    }

    // -- Scans -----------------------------------------------------------------------------------------------

    /// Begins a scan; seek before reading.
    pub fn open_scan(&mut self, session: &mut Session) -> Outcome<()> {
        self.current = Current::Nothing;
        let cursor = match self.is_locking {
            true => session.txn().locking_cursor(&self.table)?,
            false => session.txn().cursor(&self.table)?,
        };
        self.scan = Some(Scan::new(cursor));
        Ok(())
    }

    /// Ends it.
    pub fn close_scan(&mut self) {
        self.ended_scan = self.scan.take();
        self.current = Current::Nothing;
    }

    /// Places the scan. `limit` is a key image that ends a forward walk, and whether its rows still belong to it.
    pub fn seek(&mut self, seek: RrdSeek, image: &[u8], limit: Option<(&[u8], bool)>) -> Outcome<()> {
        let mut start = Vec::new();
        image::push_image(self.format.key(), image, &mut self.scratch, &mut start)?;
        let end = key::prefix_end(&start);
        let (start, end) = (Some(start), end);
        let (from, inclusive, direction, bounds) = match seek {
            abi::RRD_SEEK_FIRST => (None, true, Direction::Forward, self.limited(None, limit)?),
            abi::RRD_SEEK_AT_OR_AFTER => (start.clone(), true, Direction::Forward, self.limited(start, limit)?),
            abi::RRD_SEEK_EXACT => (start.clone(), true, Direction::Forward, Bounds { low: start, high: end }),
            // Behind the last possible key there is nothing; an empty range says so.
            abi::RRD_SEEK_AFTER if end.is_none() => {
                (start.clone(), false, Direction::Forward, Bounds { low: None, high: start })
            }
            abi::RRD_SEEK_AFTER => (end.clone(), true, Direction::Forward, self.limited(end, limit)?),
            abi::RRD_SEEK_END => (None, true, Direction::Backward, Bounds::default()),
            abi::RRD_SEEK_BEFORE => (start, false, Direction::Backward, Bounds::default()),
            abi::RRD_SEEK_AT_OR_BEFORE => (end, false, Direction::Backward, Bounds::default()),
            abi::RRD_SEEK_LAST => (end.clone(), false, Direction::Backward, Bounds { low: start, high: end }),
            other => return Err(Failure::internal(format!("internal error: seek {other} is not known"))),
        };
        let scan = self.scan.as_mut().ok_or_else(no_scan)?;
        self.current = Current::Nothing;
        scan.seek(from.as_deref(), inclusive, direction, bounds)
    }

    fn limited(&mut self, low: Option<Vec<u8>>, limit: Option<(&[u8], bool)>) -> Outcome<Bounds> {
        let Some((image, is_inclusive)) = limit else { return Ok(Bounds { low, high: None }) };
        let mut high = Vec::new();
        image::push_image(self.format.key(), image, &mut self.scratch, &mut high)?;
        let high = if is_inclusive { key::prefix_end(&high) } else { Some(high) };
        Ok(Bounds { low, high })
    }

    /// Reads the next row of the scan into a record; `RRD_END` at the end.
    pub fn step(&mut self, session: &mut Session, direction: Direction, record: &mut [u8]) -> Outcome<()> {
        loop {
            let scan = self.scan.as_mut().ok_or_else(no_scan)?;
            if !scan.step(direction, &self.read, session)? {
                return Err(Failure::Outcome(abi::RRD_END));
            }
            if !self.is_locking {
                scan.unpack(&self.read, record);
                self.current = Current::Scan;
                return Ok(());
            }
            scan.copy_key(&mut self.key)?;
            let key = std::mem::take(&mut self.key);
            let found = self.read_locked(session, &key, record);
            self.key = key;
            if found? {
                return Ok(());
            }
        }
    }

    // -- Single rows -----------------------------------------------------------------------------------------

    /// Reads the row with this key image (or row number, 8 bytes most significant first) into a record.
    pub fn read_row(&mut self, session: &mut Session, image: &[u8], record: &mut [u8]) -> Outcome<()> {
        let mut key = std::mem::take(&mut self.key);
        key.clear();
        let found = match self.format.has_row_number() {
            true => {
                key.extend_from_slice(image);
                self.read_by_key(session, &key, record)
            }
            false => image::push_image(self.format.key(), image, &mut self.scratch, &mut key)
                .and_then(|_| self.read_by_key(session, &key, record)),
        };
        self.key = key;
        match found? {
            true => Ok(()),
            false => Err(Failure::Outcome(abi::RRD_NOT_FOUND)),
        }
    }

    fn read_by_key(&mut self, session: &mut Session, key: &[u8], record: &mut [u8]) -> Outcome<bool> {
        if self.is_locking {
            return self.read_locked(session, key, record);
        }
        if self.probe.is_none() {
            self.probe = Some(session.txn().cursor(&self.table)?);
        }
        let Some(probe) = &mut self.probe else { return Ok(false) };
        let end = key::prefix_end(key);
        probe.set_bounds(Some(key), end.as_deref());
        probe.seek(Some(key), true, Direction::Forward)?;
        let Some(span) = probe.next_span(1)? else { return Ok(false) };
        let i = span.first as usize;
        self.row_key.clear();
        span.group.push_key(i, &mut self.row_key)?;
        if self.row_key != key {
            return Ok(false);
        }
        self.probe_columns.clear();
        for plan in &self.read {
            let column = span.group.column(usize::from(plan.column))?;
            plan.unpack(column, i, record);
            self.probe_columns.push(column.clone());
        }
        self.current = Current::Row;
        Ok(true)
    }

    fn read_locked(&mut self, session: &mut Session, key: &[u8], record: &mut [u8]) -> Outcome<bool> {
        session.lock_row(&self.table, key)?;
        self.row.clear();
        if !session.txn().read_latest(&self.table, key, &mut self.row)? {
            return Ok(false);
        }
        self.row_key.clear();
        self.row_key.extend_from_slice(key);
        self.format.unpack_row(&self.read, &self.row, record);
        self.current = Current::Row;
        Ok(true)
    }

    /// The number of the row read last, for tables without a key.
    pub fn row_number(&mut self) -> Outcome<[u8; 8]> {
        let mut key = std::mem::take(&mut self.key);
        let found = self.copy_current_key(&mut key);
        let number = <[u8; 8]>::try_from(key.as_slice());
        self.key = key;
        match (found?, number) {
            (true, Ok(number)) => Ok(number),
            _ => Err(Failure::internal("internal error: no row was read")),
        }
    }

    fn copy_current_key(&self, key: &mut Vec<u8>) -> Outcome<bool> {
        match (self.current, &self.scan) {
            (Current::Scan, Some(scan)) => scan.copy_key(key),
            (Current::Row, _) => {
                key.clone_from(&self.row_key);
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    // -- Figures ---------------------------------------------------------------------------------------------

    /// Roughly how many rows lie between two key images; each comes with whether its own rows belong to the range.
    pub fn rows_between(&mut self, low: Option<(&[u8], bool)>, high: Option<(&[u8], bool)>) -> Outcome<u64> {
        let low = match low {
            None => None,
            Some((image, is_inclusive)) => self.edge(image, is_inclusive)?,
        };
        let high = match high {
            None => None,
            Some((image, is_inclusive)) => self.edge(image, !is_inclusive)?,
        };
        Ok(self.table.estimate_rows(low.as_deref(), high.as_deref()))
    }

    /// The first key of the rows with this image, or the first key behind them.
    fn edge(&mut self, image: &[u8], is_first: bool) -> Outcome<Option<Vec<u8>>> {
        let mut edge = Vec::new();
        image::push_image(self.format.key(), image, &mut self.scratch, &mut edge)?;
        Ok(if is_first { Some(edge) } else { key::prefix_end(&edge) })
    }
}

fn no_scan() -> Failure {
    Failure::internal("internal error: no scan is open")
}
