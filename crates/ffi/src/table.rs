//! An open table of one handler: writes, the scan, point reads.
//!
//! A handler reads in one of two ways at a time: a scan (`scan`) or single rows by key (`probe`). Statements that
//! change what they read, and SELECT ... FOR UPDATE, read under row locks: each row is locked and then read again
//! in its newest version, so a change made since the snapshot is not lost.

use std::sync::Arc;

use rrd_store::aggregate::Condition;
use rrd_store::txn::OnDuplicate;
use rrd_store::{Cursor, Direction, Engine, Error, LockMode, Part, Table, Txn, key};

use crate::abi::{self, RrdAhead, RrdLocking, RrdSeek};
use crate::image::{self, IndexSortKeys, KeyPart, Scratch};
use crate::record::{Plan, RecordFormat};
use crate::scan::{Bounds, Scan, Walk};
use crate::session::Session;
use crate::status::{Failure, Outcome};

mod locked;

use locked::{Found, Looking, Sought};

/// How often a row is written again when the row in its way was gone by the time it was locked.
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
    locking: Option<LockMode>,
    skips_locked: bool,
    /// Rows that do not meet them may be left out of scans that lock nothing.
    conditions: Option<Arc<[Condition]>>,
    looking: Looking,
    /// How often the transaction had waited for locks when the scan's view was taken.
    waits_seen: u64,
    /// The scan was begun by an earlier statement, and not read from in this one.
    is_view_older: bool,
    /// The row read last was not locked by this transaction before.
    is_lock_new: bool,
    scratch: Scratch,
    scan: Option<Scan>,
    /// The secondary index that the scan goes along: its place in the format.
    scan_index: Option<usize>,
    /// The unique key that a locking scan looks for, until a row with it is found.
    sought: Option<Sought>,
    /// Columns to write into records from the entries of an index, when those hold all that is read.
    read_entry: Option<Vec<Plan>>,
    /// The scan before it: the server still looks at the blobs of its last row, up to the end of the statement.
    ended_scan: Option<Scan>,
    probe: Option<Cursor>,
    /// Columns of the row read last by key; records' blob pointers may lead here.
    probe_columns: Vec<Part>,
    /// The row read last under a lock; records' blob pointers may lead here.
    row: Vec<u8>,
    /// The sort key of the row read last by key or under a lock.
    row_key: Vec<u8>,
    current: Current,
    /// What the scan has made ahead.
    ahead: Arc<RrdAhead>,
    /// Rows that were read since rows were counted last.
    uncounted: usize,
    /// The row to be written.
    new_row: Vec<u8>,
    key: Vec<u8>,
    /// The row refused as a duplicate, and the sort key of the row in its way.
    duplicate: Vec<u8>,
    in_the_way: Vec<u8>,
}

impl TableHandle {
    /// Opens a table for a handler.
    pub fn new(engine: Arc<Engine>, table: Arc<Table>, format: RecordFormat) -> TableHandle {
        let indexes = table.indexes();
        for index in format.indexes() {
            if let Some(of_store) = indexes.get(index.number) {
                of_store.set_sort_keys(Arc::new(IndexSortKeys::new(index.parts.clone())));
            }
        }
        TableHandle {
            engine,
            table,
            format: Arc::new(format),
            read: Vec::new(),
            locking: None,
            skips_locked: false,
            conditions: None,
            looking: Looking::Never,
            waits_seen: 0,
            is_view_older: false,
            is_lock_new: false,
            scratch: Scratch::default(),
            scan: None,
            scan_index: None,
            sought: None,
            read_entry: None,
            ended_scan: None,
            probe: None,
            probe_columns: Vec::new(),
            row: Vec::new(),
            row_key: Vec::new(),
            current: Current::Nothing,
            ahead: Arc::default(),
            uncounted: 0,
            new_row: Vec::new(),
            key: Vec::new(),
            duplicate: Vec::new(),
            in_the_way: Vec::new(),
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

    /// How records become rows.
    pub fn format(&self) -> &Arc<RecordFormat> {
        &self.format
    }

    /// Bytes of a record.
    pub fn record_bytes(&self) -> usize {
        self.format.record_bytes()
    }

    /// Chooses the fields (by the server's numbers) that reads write into records, and how reads lock.
    pub fn set_columns(&mut self, numbers: &[u32], locking: RrdLocking, skips_locked: bool) {
        self.locking = match locking {
            abi::RRD_LOCK_NONE => None,
            abi::RRD_LOCK_SHARED => Some(LockMode::Shared),
            _ => Some(LockMode::Exclusive),
        };
        self.skips_locked = skips_locked;
        self.fold();
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
        self.sought = None;
        self.conditions = None;
        self.looking = Looking::Never;
        self.is_lock_new = false;
        self.row.shrink_to(1 << 16);
        self.new_row.shrink_to(1 << 16);
        self.duplicate = Vec::new();
    }

    // -- Writing ---------------------------------------------------------------------------------------------

    /// Inserts a record. When the answer is a duplicate and `mode` is to replace or update it, the row in the way
    /// is locked and sure to be there.
    ///
    /// # Safety
    /// The rule `records` of `abi.rs` for the blobs in the record.
    #[inline]
    pub unsafe fn insert(&mut self, session: &mut Session, record: &[u8], mode: OnDuplicate) -> Outcome<()> {
        let row_number = if self.format.has_row_number() { self.table.take_row_number() } else { 0 };
        session.note_write(&self.format);
        if mode == OnDuplicate::Fail {
            // SAFETY: the caller's record; the closure is called, if at all, before this call ends.
            let write = |out: &mut Vec<u8>| unsafe { self.format.pack(record, row_number, &mut self.scratch, out) };
            if session.txn().append(&self.table, write).map_err(|error| self.refused(error))? {
                return Ok(());
            }
        }
        self.new_row.clear();
        // SAFETY: the caller's record.
        unsafe { self.format.pack(record, row_number, &mut self.scratch, &mut self.new_row)? };
        if mode == OnDuplicate::Update {
            // The store locks the key as well; here the wait can be killed and has the session's time-out.
            self.lock_new_key(session)?;
        }
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

    /// REPLACE and ON DUPLICATE KEY UPDATE go on to change the row in the way: it is locked, and still in the way.
    #[cold]
    fn insert_failed(&mut self, session: &mut Session, error: Error, mode: OnDuplicate) -> Outcome<()> {
        let is_changed_next = matches!(mode, OnDuplicate::Replace | OnDuplicate::Update);
        self.look_again(session, error, is_changed_next, |open, txn| txn.insert(&open.table, &open.new_row, mode))
    }

    /// `write` found a row in its way. Whoever has changed that row, or deleted it, is waited for, and `write` is tried
    /// again, as long as it is another row each time. With `locks_the_row` the row that is told of is locked, and so it is there;
    /// [`Error::Conflict`] if others always come first.
    fn look_again(
        &mut self,
        session: &mut Session,
        mut error: Error,
        locks_the_row: bool,
        write: impl Fn(&Self, &mut Txn) -> rrd_store::Result<()>,
    ) -> Outcome<()> {
        let mut waited_for = None;
        for _ in 0..DUPLICATE_RETRIES {
            let Error::Duplicate { existing, .. } = &error else { return Err(error.into()) };
            if waited_for.as_ref() == Some(existing) {
                return Err(self.refused(error));
            }
            waited_for = Some(existing.clone()).filter(|row| !row.is_empty());
            // Without one it went before it could be named.
            if let Some(existing) = &waited_for {
                if locks_the_row {
                    session.lock_row(&self.table, existing)?;
                } else {
                    self.wait_for_owner(session, existing)?;
                }
            }
            match write(self, session.txn()) {
                Ok(()) => return Ok(()),
                Err(again) => error = again,
            }
        }
        match (&error, &waited_for) {
            (Error::Duplicate { existing, .. }, locked) if locks_the_row && locked.as_ref() != Some(existing) => {
                Err(Error::Conflict.into())
            }
            _ => Err(self.refused(error)),
        }
    }

    /// Waits until nobody else has this row locked exclusively. The lock is given back at once: several who kept it, and then
    /// want the key for themselves, would wait for each other.
    fn wait_for_owner(&self, session: &mut Session, key: &[u8]) -> Outcome<()> {
        let txn = session.txn();
        if txn.lock_row(&self.table, key, LockMode::Shared)? {
            txn.unlock_row(&self.table, key);
        }
        Ok(())
    }

    /// Remembers what a duplicate is about; its index is counted as the server does.
    fn refused(&mut self, error: Error) -> Failure {
        let Error::Duplicate { index, row, existing } = error else { return error.into() };
        let place = |number: usize| self.format.indexes().iter().position(|i| i.number == number);
        let place = (index as usize).checked_sub(1).and_then(place).map_or(0, |place| place as u32 + 1);
        self.duplicate.clone_from(&row);
        self.in_the_way.clone_from(&existing);
        Error::Duplicate { index: place, row, existing }.into()
    }

    /// Reads the row in the way of the last duplicate into a record; false if it is gone.
    pub fn read_in_the_way(&mut self, session: &mut Session, record: &mut [u8]) -> Outcome<bool> {
        self.row.clear();
        if !session.txn().read_latest(&self.table, &self.in_the_way, &mut self.row)? {
            return Ok(false);
        }
        self.row_key.clone_from(&self.in_the_way);
        self.format.unpack_row(self.format.plans(), &self.row, record);
        self.leave_scan(Current::Row);
        Ok(true)
    }

    /// Ends a bulk statement.
    pub fn end_bulk(&mut self, session: &mut Session) -> Outcome<()> {
        session.txn().end_bulk(&self.table).map_err(|error| self.refused(error))
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
    /// The rule `records` of `abi.rs` for the blobs in both records.
    pub unsafe fn update(&mut self, session: &mut Session, old: &[u8], new: &[u8]) -> Outcome<()> {
        // SAFETY: the caller's record.
        unsafe { self.find_old_key(old)? };
        let row_number = self.row_number_of_key();
        self.new_row.clear();
        // SAFETY: the caller's record.
        unsafe { self.format.pack(new, row_number, &mut self.scratch, &mut self.new_row)? };
        match session.txn().update(&self.table, &self.key, &self.new_row) {
            Ok(()) => Ok(()),
            Err(error) => {
                self.look_again(session, error, false, |open, txn| txn.update(&open.table, &open.key, &open.new_row))
            }
        }
    }

    /// Removes the row that was read as `record`.
    ///
    /// # Safety
    /// The rule `records` of `abi.rs` for the blobs in the record.
    pub unsafe fn delete(&mut self, session: &mut Session, record: &[u8]) -> Outcome<()> {
        // SAFETY: the caller's record.
        unsafe { self.find_old_key(record)? };
        Ok(session.txn().delete(&self.table, &self.key)?)
    }

    /// Puts the sort key of a row that was read into `key`.
    ///
    /// # Safety
    /// The rule `records` of `abi.rs` for the blobs in the record's key.
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
        // SAFETY: the caller's record.
        unsafe { self.format.push_key(record, &mut self.scratch, &mut self.key) };
        Ok(())
    }

    fn row_number_of_key(&self) -> u64 {
        match (self.format.has_row_number(), <[u8; 8]>::try_from(self.key.as_slice())) {
            (true, Ok(bytes)) => u64::from_be_bytes(bytes),
            _ => 0,
        }
    }

    /// The server's number of the time column's field.
    pub fn time_field(&self) -> Option<u32> {
        let time = self.format.layout().schema().time?;
        self.time_plan(time.column).map(|plan| plan.number)
    }

    fn time_plan(&self, column: u16) -> Option<&Plan> {
        self.format.plans().iter().find(|plan| plan.column == column)
    }

    /// Deletes all rows within a span of time, or all rows at all without ends; an end is a record with the time and
    /// whether that time still goes. `None` if this has to be done row by row.
    pub fn delete_times(
        &mut self,
        session: &mut Session,
        low: Option<(&[u8], bool)>,
        high: Option<(&[u8], bool)>,
    ) -> Outcome<Option<u64>> {
        if low.is_none() && high.is_none() {
            return session.delete_times(&self.table, None);
        }
        let time = self.format.layout().schema().time;
        let Some(plan) = time.and_then(|time| self.time_plan(time.column)) else { return Ok(None) };
        let Some(from) = low.map_or(Some(0), |(record, goes)| plan.int(record).checked_add(u64::from(!goes))) else {
            return Ok(Some(0));
        };
        let Some(to) = high.map_or(Some(u64::MAX), |(record, goes)| plan.int(record).checked_sub(u64::from(!goes)))
        else {
            return Ok(Some(0));
        };
        if from > to {
            return Ok(Some(0));
        }
        session.delete_times(&self.table, Some((from, to)))
    }

    // -- Scans -----------------------------------------------------------------------------------------------

    /// Lets scans of this statement that lock nothing leave out rows that do not meet all of these conditions.
    pub fn set_conditions(&mut self, conditions: Arc<[Condition]>) {
        self.conditions = Some(conditions);
    }

    /// Begins a scan along the clustering key or a secondary index; seek before reading.
    pub fn open_scan(&mut self, session: &mut Session, index: Option<usize>) -> Outcome<()> {
        self.leave_scan(Current::Nothing);
        self.scan_index = index;
        self.is_view_older = false;
        let (cursor, walk) = self.new_cursor(session)?;
        self.scan = Some(Scan::new(cursor, walk, self.ahead.clone()));
        Ok(())
    }

    /// A scan that is open when a statement begins, as HANDLER's are, goes on in what that statement sees.
    pub fn keep_scan(&mut self) {
        self.fold();
        self.is_view_older = self.scan.is_some();
    }

    /// The cursor of a scan along `scan_index`.
    fn new_cursor(&mut self, session: &mut Session) -> Outcome<(Cursor, Walk)> {
        self.read_entry = None;
        if self.locking.is_some() {
            let walk = if self.scan_index.is_some() { Walk::Indexed } else { Walk::Rows };
            return Ok((self.locking_cursor(session)?, walk));
        }
        let txn = session.txn();
        Ok(match self.scan_index.map(|place| self.format.index(place)).transpose()? {
            None => {
                let mut cursor = txn.cursor(&self.table)?;
                if let Some(conditions) = &self.conditions {
                    cursor.limit_to(conditions);
                }
                (cursor, Walk::Rows)
            }
            Some(index) => {
                let number = index.number;
                let of_store = self.table.indexes().get(number).cloned().ok_or_else(no_scan)?;
                let plans: Option<Vec<_>> = self.read.iter().map(|plan| plan.from_entry(&of_store)).collect();
                self.read_entry = plans.map(|plans| plans.concat());
                match &self.read_entry {
                    Some(_) => (txn.entry_cursor(&self.table, number)?, Walk::Entries(of_store)),
                    None => (txn.index_cursor(&self.table, number)?, Walk::Indexed),
                }
            }
        })
    }

    /// The parts of the key that the scan goes along.
    fn push_scan_image(&mut self, image: &[u8], out: &mut Vec<u8>) -> Outcome<usize> {
        let parts = match self.scan_index {
            Some(place) => &self.format.index(place)?.parts,
            None => self.format.key(),
        };
        image::push_image(parts, image, &mut self.scratch, out)
    }

    /// Ends it. The row that it is at stays the current one: the server changes a row that it found by a unique key while
    /// planning, when that scan has ended. A row of a table with a key is found by its record.
    pub fn close_scan(&mut self) {
        let is_kept = match (self.current, &self.scan) {
            _ if !self.format.has_row_number() => false,
            (Current::Row, _) => true,
            // What cannot be read says so when it is looked for again.
            (Current::Scan, Some(scan)) => scan.copy_key(&mut self.row_key).unwrap_or(false),
            _ => false,
        };
        self.leave_scan(if is_kept { Current::Row } else { Current::Nothing });
        self.ended_scan = self.scan.take();
    }

    /// Places the scan. `limit` is a key image that ends a forward walk, and whether its rows still belong to it.
    pub fn seek(&mut self, seek: RrdSeek, image: &[u8], limit: Option<(&[u8], bool)>) -> Outcome<()> {
        let mut start = Vec::new();
        let parts = self.push_scan_image(image, &mut start)?;
        self.sought = match self.locking {
            Some(_) if seek == abi::RRD_SEEK_EXACT => self.unique_key(&start, parts)?,
            _ => None,
        };
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
        self.leave_scan(Current::Nothing);
        let scan = self.scan.as_mut().ok_or_else(no_scan)?;
        scan.seek(from, inclusive, direction, bounds)
    }

    /// Locks all keys that begin with an image, along the scan's index, as one: for a check that the server makes before it
    /// writes a row, of rows that others may be about to write. A scan that is to see what was waited for is opened later.
    pub fn lock_prefix(&mut self, session: &mut Session, image: &[u8]) -> Outcome<()> {
        let mut prefix = Vec::new();
        self.push_scan_image(image, &mut prefix)?;
        // The lock of no key would be that of the table.
        prefix.push(0);
        let indexes = self.table.indexes();
        let index = self.scan_index.map(|place| self.format.index(place)).transpose()?;
        let of_store = index.and_then(|index| indexes.get(index.number));
        session.lock_row(of_store.map_or(&self.table, |of_store| &of_store.table), &prefix)
    }

    /// Another row than the scan's becomes the current one: the scan goes no more ahead of its calls.
    fn leave_scan(&mut self, to: Current) {
        self.fold();
        self.current = to;
    }

    /// The scan goes no more ahead of its calls; what was copied meanwhile is to be counted.
    fn fold(&mut self) {
        self.uncounted += self.scan.as_mut().map_or(0, Scan::fold);
    }

    /// What the scan has made ahead.
    pub fn ahead(&self) -> &RrdAhead {
        &self.ahead
    }

    fn limited(&mut self, low: Option<Vec<u8>>, limit: Option<(&[u8], bool)>) -> Outcome<Bounds> {
        let Some((image, is_inclusive)) = limit else { return Ok(Bounds { low, high: None }) };
        let mut high = Vec::new();
        self.push_scan_image(image, &mut high)?;
        let high = if is_inclusive { key::prefix_end(&high) } else { Some(high) };
        Ok(Bounds { low, high })
    }

    /// Reads the next row of the scan into a record; `RRD_END` at the end.
    pub fn step(&mut self, session: &mut Session, direction: Direction, record: &mut [u8]) -> Outcome<()> {
        self.fold();
        session.note_reads(std::mem::take(&mut self.uncounted));
        if self.is_view_older {
            self.renew_kept_scan(session, direction)?;
        }
        let mut is_gone = false;
        if self.looking == Looking::Now {
            if self.read_looked_at(session, record)? && self.is_at_its_place(session, record)? {
                return Ok(());
            }
            is_gone = true;
        }
        loop {
            if self.locking.is_some() {
                self.renew_view(session, direction, is_gone)?;
            }
            let scan = self.scan.as_mut().ok_or_else(no_scan)?;
            let read = self.read_entry.as_ref().unwrap_or(&self.read);
            if !scan.step(direction, read, session)? {
                if self.waits_for_sought(session)? {
                    is_gone = false;
                    continue;
                }
                return Err(Failure::Outcome(abi::RRD_END));
            }
            if self.locking.is_none() {
                scan.unpack(read, record);
                scan.go_ahead(read, record);
                self.current = Current::Scan;
                return Ok(());
            }
            scan.copy_key(&mut self.key)?;
            let key = std::mem::take(&mut self.key);
            let found = self.read_scanned_locked(session, &key, record);
            self.key = key;
            match found? {
                Found::Row if self.is_at_its_place(session, record)? => {
                    self.sought = None;
                    return Ok(());
                }
                found => is_gone = found != Found::Skipped,
            }
        }
    }

    #[cold]
    fn renew_kept_scan(&mut self, session: &mut Session, direction: Direction) -> Outcome<()> {
        self.is_view_older = false;
        let scan = self.scan.as_ref().ok_or_else(no_scan)?;
        if !session.txn().is_outdated(&self.table, scan.cursor()) {
            return Ok(());
        }
        let (cursor, _) = self.new_cursor(session)?;
        let scan = self.scan.as_mut().ok_or_else(no_scan)?;
        scan.go_on_with(cursor, false, direction)
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

    /// Whether the row with a key image (or row number) is behind the horizon, or would be.
    pub fn is_behind_horizon(&mut self, image: &[u8]) -> Outcome<bool> {
        let mut key = Vec::new();
        match self.format.has_row_number() {
            true => key.extend_from_slice(image),
            false => _ = image::push_image(self.format.key(), image, &mut self.scratch, &mut key)?,
        }
        Ok(self.table.is_behind_horizon(&key))
    }

    fn read_by_key(&mut self, session: &mut Session, key: &[u8], record: &mut [u8]) -> Outcome<bool> {
        if self.locking.is_some() {
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
            let part = span.group.part(usize::from(plan.column), i..i + 1)?;
            plan.unpack(part.column(), i - part.first, record);
            self.probe_columns.push(part);
        }
        self.leave_scan(Current::Row);
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
    pub fn rows_between(
        &mut self,
        index: Option<usize>,
        low: Option<(&[u8], bool)>,
        high: Option<(&[u8], bool)>,
    ) -> Outcome<u64> {
        let index = index.map(|place| self.format.index(place)).transpose()?;
        let parts = index.map_or(self.format.key(), |index| &index.parts);
        let low = match low {
            None => None,
            Some((image, is_inclusive)) => edge(parts, image, is_inclusive, &mut self.scratch)?,
        };
        let high = match high {
            None => None,
            Some((image, is_inclusive)) => edge(parts, image, !is_inclusive, &mut self.scratch)?,
        };
        let indexes = self.table.indexes();
        let of_store = index.and_then(|index| indexes.get(index.number));
        let table = of_store.map_or(&self.table, |of_store| &of_store.table);
        Ok(table.estimate_rows(low.as_deref(), high.as_deref()))
    }
}

/// The first key of the rows with this image, or the first key behind them.
fn edge(parts: &[KeyPart], image: &[u8], is_first: bool, scratch: &mut Scratch) -> Outcome<Option<Vec<u8>>> {
    let mut edge = Vec::new();
    image::push_image(parts, image, scratch, &mut edge)?;
    Ok(if is_first { Some(edge) } else { key::prefix_end(&edge) })
}

fn no_scan() -> Failure {
    Failure::internal("internal error: no scan is open")
}
