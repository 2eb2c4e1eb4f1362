//! Two-phase commit: a prepared transaction survives a crash and waits for the coordinator's word.
//!
//! `Txn::prepare` checks the write set and logs it with the coordinator's id; from then on its keys count as taken for
//! others and nothing of it can fail. The word comes as a log record of its own, from the same connection, from another
//! one, or after a restart. Private segments are named in the prepare record and linked in when the commit is
//! applied: the manifest follows the log here.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::RwLock;

use crate::commit::{CommitQueue, Deciding, LogRecord, Pending, Resolve, TableWrites};
use crate::config::FlushLog;
use crate::engine::{Engine, TEMPORARY_PREFIX, Tables};
use crate::error::{Error, Result};
use crate::group::RowGroup;
use crate::horizon::Position;
use crate::limits;
use crate::live::LiveSegment;
use crate::lock::LockMode;
use crate::log_record::{self, LoggedWrite};
use crate::manifest::edit::Edit;
use crate::memtable::Key;
use crate::own::{OwnWrite, OwnWrites, PrivateSegment};
use crate::table::{TRUNCATED_PROPERTY, Table, number_of};
use crate::txn::Txn;
use crate::wal::Lsn;

/// Name of the manifest property with the newest sequence number whose prepared segments were linked in.
const LINKED_PROPERTY: &str = "linked_seq";

/// A transaction that waits for its coordinator.
pub(crate) struct Prepared {
    /// The coordinator's id.
    pub xid: Vec<u8>,
    /// Holds its row locks.
    pub owner: u64,
    /// Its number among the prepared ones: a log position may be another one's too, as `reserve` writes nothing.
    pub decision: u64,
    /// The log must be kept from here: where its record begins, which is written again should that hold up the log.
    start_lsn: AtomicU64,
    pub tables: Vec<TableWrites>,
}

impl Prepared {
    fn start_lsn(&self) -> Lsn {
        Lsn(self.start_lsn.load(Ordering::Acquire))
    }

    /// What it takes, roughly.
    fn bytes(&self) -> u64 {
        limits::PREPARED_BYTES + self.tables.iter().map(|t| bytes_of(&t.own.read())).sum::<u64>()
    }
}

/// Bytes of memory that a write set takes, roughly.
fn bytes_of(own: &OwnWrites) -> u64 {
    own.bytes as u64 + own.private.len() as u64 * limits::PREPARED_BYTES
}

/// The commit of a prepared transaction in the queue, and what it was.
type NumberedCommit = (Arc<Pending>, Arc<Prepared>);

impl Txn {
    /// All of the first phase that can be refused: from here on the keys count as taken for others. Nothing of it is in
    /// the log yet, so that a coordinator can note that the transaction is prepared before it is. Without writes there
    /// is nothing to do; a transaction that dropped chunks as a whole ([`Txn::delete_times`]) is refused: that is an
    /// edit of the manifest, which has one phase. After it only `prepare` and `rollback` make sense.
    pub fn reserve(&mut self, xid: &[u8]) -> Result<()> {
        // Rows that were inserted and deleted again stay: the coordinator was told of both, so the keys must be free where
        // it repeats them.
        self.forget_savepoints();
        if !self.has_writes() || self.reserved.is_some() {
            return Ok(());
        }
        if let Some(dropped) = self.drops.first() {
            let name = dropped.table.name();
            return Err(Error::InvalidInput(format!(
                "a DELETE of whole chunks of table '{name}' cannot be committed in two phases: delete in a transaction of its own"
            )));
        }
        self.get_ready()?;
        let engine = self.engine.clone();
        let _gate = engine.commit_gate.read();
        let (mut queue, _) = engine.lock_checked(self, Resolve::Openly)?;
        if queue.all_prepared().any(|p| p.xid == xid) {
            return Err(Error::InvalidInput("a transaction with this XID is prepared already".into()));
        }
        self.holds_locks = true;
        let decision = queue.next_decision;
        queue.next_decision += 1;
        engine.hold_decision(self.id, decision)?;
        let start_lsn = AtomicU64::new(engine.wal.position().0);
        let tables = self.table_writes();
        queue.prepared.push(Arc::new(Prepared { xid: xid.to_vec(), owner: self.id, decision, start_lsn, tables }));
        self.reserved = Some(xid.to_vec());
        Ok(())
    }

    /// Before the first phase of a transaction that may stay prepared for long: memory is limited, for all of them together, to
    /// that of memtables (`rrd_memtable_size`). What is over it goes to files; [`Error::LimitExceeded`] if that does not do.
    pub fn make_room_for_prepared(&mut self) -> Result<()> {
        let limit = self.engine.memory.limit.load(Ordering::Relaxed) as u64;
        let own = |txn: &Txn| txn.tables.iter().map(|t| bytes_of(&t.own.read())).sum::<u64>() + limits::PREPARED_BYTES;
        let others = self.engine.prepared_bytes();
        if self.reserved.is_some() || !self.has_writes() || others + own(self) <= limit {
            return Ok(());
        }
        self.spill_all()?;
        if others + own(self) <= limit {
            return Ok(());
        }
        let what = format!(
            "the memory of prepared transactions (there are {}, see XA RECOVER: XA COMMIT or XA ROLLBACK them, or raise \
             rrd_memtable_size)",
            self.engine.prepared_count()
        );
        Err(Error::LimitExceeded { what, limit })
    }

    /// First phase: makes the work durable without committing it. Afterwards `commit` and `rollback` cannot be
    /// refused, and dropping the transaction leaves it prepared. A transaction without writes is not prepared.
    pub fn prepare(&mut self, xid: &[u8]) -> Result<()> {
        self.reserve(xid)?;
        if self.reserved.is_none() {
            return Ok(());
        }
        let engine = self.engine.clone();
        let _gate = engine.commit_gate.read();
        let logged = engine.log_prepare(xid, &self.table_writes());
        if let Err(error) =
            logged.and_then(|lsn| engine.make_durable(lsn).inspect_err(|e| engine.poison_unless_full(e)))
        {
            self.forget_reserved();
            return Err(error);
        }
        engine.prepared_segments(xid).iter().for_each(|s| s.keep());
        self.reserved = None;
        self.detach_prepared(xid);
        Ok(())
    }

    /// The keys are free for others again.
    pub(crate) fn forget_reserved(&mut self) {
        if let Some(xid) = self.reserved.take() {
            self.engine.take_prepared(&xid);
        }
    }
}

fn prepare_record(xid: &[u8], tables: &[TableWrites]) -> Result<Vec<u8>> {
    let mut edits = Vec::new();
    for t in tables {
        let metas: Vec<_> = t.own.read().private.iter().map(|p| p.segment.meta().clone()).collect();
        edits.extend(t.table.edits_for(&metas));
    }
    Ok(log_record::prepare(xid, &log_record::encode(&log_parts(tables)), &crate::manifest::encode_edits(&edits)?))
}

/// What a commit record is made of.
pub(crate) fn log_parts(tables: &[TableWrites]) -> Vec<log_record::Part> {
    let horizon = |t: &TableWrites| match t.layout.schema().ring.is_unbounded() || t.table.is_index() {
        true => None,
        false => Some(t.table.version().gate.position()).filter(|position| *position != Position::default()),
    };
    let part = |t: &TableWrites| log_record::Part {
        table: t.table.id,
        layout: t.layout.clone(),
        own: t.own.clone(),
        horizon: horizon(t),
        floors: crate::ring::floors_of_writes(t),
    };
    tables.iter().map(part).collect()
}

impl Engine {
    /// Ids of all prepared transactions.
    pub fn prepared_xids(&self) -> Vec<Vec<u8>> {
        self.commit_queue.lock().prepared.iter().map(|p| p.xid.clone()).collect()
    }

    /// Ids of up to `most` prepared transactions that come next after the one numbered `after`, each with its number; they may be
    /// decided between two calls.
    pub fn prepared_after(&self, after: Option<u64>, most: usize) -> Vec<(u64, Vec<u8>)> {
        let queue = self.commit_queue.lock();
        let later = queue.prepared.iter().filter(|p| after.is_none_or(|after| p.decision > after));
        let mut next: Vec<_> = later.collect();
        next.sort_unstable_by_key(|p| p.decision);
        next.truncate(most);
        next.into_iter().map(|p| (p.decision, p.xid.clone())).collect()
    }

    /// Second phase: commits a prepared transaction. False if there is none with this id.
    pub fn commit_prepared(&self, xid: &[u8]) -> Result<bool> {
        let committed = self.commit_prepared_writes(xid)?;
        if let Some(prepared) = &committed {
            prepared.tables.iter().for_each(|t| self.settle_due(&t.table));
        }
        Ok(committed.is_some())
    }

    fn commit_prepared_writes(&self, xid: &[u8]) -> Result<Option<Arc<Prepared>>> {
        self.check_writable()?;
        let _gate = self.commit_gate.read();
        let mode = self.flush_log();
        let Some((pending, prepared)) = self.number_prepared(&mut self.commit_queue.lock(), xid, mode)? else {
            return Ok(None);
        };
        let finished = self.finish_logged(&pending);
        self.pause_points.pass("second phase done");
        // If the disk was full, nothing of it was applied: it can be decided once there is room.
        let waits_again = finished.as_ref().is_err_and(Error::is_disk_full);
        self.commit_queue.lock().end_decision(prepared.decision, waits_again);
        if !waits_again {
            self.locks.release_all(prepared.owner);
        }
        finished.map(|()| Some(prepared))
    }

    /// Gives the commit of a prepared transaction its sequence numbers, its log record and its place in the queue.
    /// Its segments are linked only once the record is on disk, whatever `mode` asks for.
    pub(crate) fn number_prepared(
        &self,
        queue: &mut CommitQueue,
        xid: &[u8],
        mode: FlushLog,
    ) -> Result<Option<NumberedCommit>> {
        let Some(at) = queue.prepared.iter().position(|p| p.xid == xid) else { return Ok(None) };
        let prepared = queue.prepared[at].clone();
        let segments: u64 = prepared.tables.iter().map(|t| t.own.read().private.len() as u64).sum();
        let first = queue.next_seq;
        let seq = first + segments;
        let lsn = self.wal.append_parts(&[&log_record::commit_prepared(first, seq, xid)])?;
        queue.next_seq = seq + 1;
        queue.prepared.remove(at);
        let tables = prepared.tables.iter().map(TableWrites::share).collect();
        let record = LogRecord { lsn, mode: if segments > 0 { FlushLog::Sync } else { mode } };
        let writes = (tables, Vec::new());
        let pending = self.enqueue(queue, seq, prepared.start_lsn(), writes, Some(first), Some(record));
        queue.deciding.push(Deciding { prepared: prepared.clone(), commit: Some(pending.clone()) });
        Ok(Some((pending, prepared)))
    }

    /// Second phase: forgets a prepared transaction. False if there is none with this id. It stays prepared after an error.
    pub fn rollback_prepared(&self, xid: &[u8]) -> Result<bool> {
        self.check_writable()?;
        let _gate = self.commit_gate.read();
        let prepared = {
            let mut queue = self.commit_queue.lock();
            let Some(at) = queue.prepared.iter().position(|p| p.xid == xid) else { return Ok(false) };
            let prepared = queue.prepared.remove(at);
            queue.deciding.push(Deciding { prepared: prepared.clone(), commit: None });
            prepared
        };
        let segments: Vec<_> = prepared.tables.iter().flat_map(|t| t.own.read().private.clone()).collect();
        let logged = self.wal.append_parts(&[&log_record::rollback_prepared(xid)]).and_then(|lsn| {
            // The files of its segments must not go before the record that it is gone is on disk.
            if segments.is_empty() { self.make_durable(lsn) } else { self.wal.sync(lsn) }
        });
        self.commit_queue.lock().end_decision(prepared.decision, logged.is_err());
        logged.inspect_err(|error| self.poison_unless_full(error))?;
        segments.iter().for_each(|p| p.segment.mark_obsolete());
        self.locks.release_all(prepared.owner);
        Ok(true)
    }

    /// Rolls a transaction back that a connection prepared and has given up. While the disk is full it stays prepared, and the
    /// thread that flushes tries again.
    pub(crate) fn roll_back_given_up(&self, xid: &[u8]) {
        match self.rollback_prepared(xid) {
            Ok(_) => {}
            Err(error) if error.is_disk_full() => {
                tracing::warn!(%error, "a prepared transaction is rolled back once the disk has room");
                self.commit_queue.lock().rollbacks_due.push(xid.to_vec());
            }
            // It stays prepared in the log, and the coordinator is asked again after a restart.
            Err(error) => self.poison(&format!("a prepared transaction could not be rolled back: {error}")),
        }
    }

    /// Tries again to roll back what connections gave up while the disk was full.
    pub fn roll_back_due(&self) {
        let due = std::mem::take(&mut self.commit_queue.lock().rollbacks_due);
        due.iter().for_each(|xid| self.roll_back_given_up(xid));
    }

    fn log_prepare(&self, xid: &[u8], tables: &[TableWrites]) -> Result<Lsn> {
        self.wal.append_parts(&[&prepare_record(xid, tables)?])
    }

    fn take_prepared(&self, xid: &[u8]) -> Option<Arc<Prepared>> {
        let mut queue = self.commit_queue.lock();
        let at = queue.prepared.iter().position(|p| p.xid == xid)?;
        Some(queue.prepared.remove(at))
    }

    fn prepared_segments(&self, xid: &[u8]) -> Vec<Arc<LiveSegment>> {
        let queue = self.commit_queue.lock();
        let prepared = queue.prepared.iter().find(|p| p.xid == xid);
        let tables = prepared.into_iter().flat_map(|p| &p.tables);
        tables.flat_map(|t| t.own.read().private.iter().map(|p| p.segment.clone()).collect::<Vec<_>>()).collect()
    }

    pub(crate) fn make_durable(&self, lsn: Lsn) -> Result<()> {
        match self.flush_log() {
            FlushLog::Sync => self.wal.sync(lsn),
            FlushLog::Write => self.wal.write(lsn),
            FlushLog::EverySecond => Ok(()),
        }
    }

    /// Puts the segments of a prepared transaction into the manifest, in its turn of being applied.
    pub(crate) fn link_prepared(&self, pending: &Pending, first_seq: u64) -> Result<()> {
        let mut seq = first_seq;
        let mut edits = Vec::new();
        for t in &pending.tables {
            let metas = crate::commit::number_segments(&t.own.read(), &mut seq);
            if metas.is_empty() || t.table.is_dropped() {
                continue;
            }
            edits.extend(t.table.edits_for(&metas));
            let value = pending.seq.to_le_bytes().to_vec();
            edits.push(Edit::SetProperty { table: t.table.id, name: LINKED_PROPERTY.into(), value });
            for (private, meta) in t.own.write().private.iter_mut().zip(metas) {
                private.segment = LiveSegment::open(&self.fs, &self.cache, &t.table.dir, t.table.id, meta);
            }
        }
        if edits.is_empty() { Ok(()) } else { self.commit_manifest_in_turn(&edits) }
    }
}

/// A prepare record without its second phase.
pub(crate) struct OpenPrepare {
    xid: Vec<u8>,
    /// Where the record ends.
    pub lsn: Lsn,
    /// As in a commit record.
    pub body: Vec<u8>,
    /// Of its segments.
    pub edits: Vec<u8>,
}

/// Opens the segment that an edit adds to a table; other edits are noted.
type OpenSegment<'a> = &'a dyn Fn(&Arc<Table>, &Edit) -> Option<Arc<LiveSegment>>;

/// Prepared transactions while the log is replayed.
#[derive(Default)]
pub(crate) struct Replayed {
    open: Vec<OpenPrepare>,
}

impl Replayed {
    /// A prepare record.
    pub fn prepare(&mut self, xid: &[u8], lsn: Lsn, body: &[u8], edits: &[u8]) {
        self.open.retain(|known| known.xid != xid);
        let (body, edits) = (body.to_vec(), edits.to_vec());
        self.open.push(OpenPrepare { xid: xid.to_vec(), lsn, body, edits });
    }

    /// The word on it: takes it, if the prepare record is still in the log.
    pub fn decided(&mut self, xid: &[u8]) -> Option<OpenPrepare> {
        let at = self.open.iter().position(|known| known.xid == xid)?;
        Some(self.open.remove(at))
    }

    /// Edits of chunks of what still waits for its coordinator.
    pub fn chunks(&self) -> Vec<Edit> {
        let edits = self.open.iter().flat_map(|open| crate::manifest::decode_edits(&open.edits).unwrap_or_default());
        edits.filter(|edit| matches!(edit, Edit::AddChunk { .. })).collect()
    }

    /// What still waits for its coordinator.
    pub fn into_prepared(self, tables: &Tables, open_segment: OpenSegment<'_>) -> Option<Vec<Arc<Prepared>>> {
        // Owners count down from the top: transactions that are begun count up from 1.
        let numbered = self.open.into_iter().zip((0..u64::MAX).rev());
        numbered.map(|(open, owner)| prepared_of(tables, open, owner, open_segment)).collect()
    }
}

fn prepared_of(tables: &Tables, open: OpenPrepare, owner: u64, open_segment: OpenSegment<'_>) -> Option<Arc<Prepared>> {
    let OpenPrepare { xid, lsn, body, edits } = open;
    let mut writes: Vec<TableWrites> = Vec::new();
    for logged in log_record::decode_body(&body)? {
        let Some(table) = tables.by_id.get(&logged.table) else { continue };
        let layout = table.layout();
        let mut own = OwnWrites::default();
        for write in &logged.writes {
            let mut put = |row: &[u8]| {
                let mut key = Key::new();
                layout.push_key(row, &mut key);
                table.note_numbers(&layout, row);
                own.put(key, OwnWrite { row: Some(row.into()), expects_absent: None });
            };
            match write {
                LoggedWrite::Put(row) => layout.check(row).then(|| put(row))?,
                LoggedWrite::Rows(rows) => log_record::for_each_row(rows, &layout, &mut put)?,
                LoggedWrite::Delete(key) if !layout.check_key(key) => return None,
                LoggedWrite::Delete(key) => {
                    own.put(Key::from_slice(key), OwnWrite { row: None, expects_absent: None });
                }
                // A prepare record leans on nothing.
                LoggedWrite::Kept(..) => return None,
                LoggedWrite::Horizon(_) | LoggedWrite::Floors(_) => crate::ring::restore(&table.version().gate, write)?,
            }
        }
        writes.push(TableWrites { table: table.clone(), layout, own: Arc::new(RwLock::new(own)), newest: None });
    }
    for edit in crate::manifest::decode_edits(&edits)? {
        let Some(t) = edit.table().and_then(|id| writes.iter().find(|t| t.table.id == id)) else { continue };
        t.table.note_counter(&edit);
        if let Some(segment) = open_segment(&t.table, &edit) {
            t.own.write().private.push(PrivateSegment {
                segment,
                expects_absent: None,
                layout: t.layout.clone(),
                checked_up_to: 0,
                _chunks: t.table.chunks.lock().keep(),
            });
        }
    }
    // Those that are prepared from now on count up from 0.
    let decision = owner;
    Some(Arc::new(Prepared {
        xid,
        owner,
        decision,
        start_lsn: AtomicU64::new(lsn.0.saturating_sub(1)),
        tables: writes,
    }))
}

/// Edits that link the segments of a replayed commit, for tables whose manifest does not have them yet.
pub(crate) fn missing_links(
    state: &crate::manifest::edit::State,
    edits: Vec<Edit>,
    first_seq: u64,
    seq: u64,
) -> Vec<Edit> {
    let mut missing = Vec::new();
    let mut next = first_seq;
    for mut edit in edits {
        if let Edit::AddSegment { meta, .. } = &mut edit {
            meta.base_seq = next;
            meta.max_seq = next;
            next += 1;
        }
        let Some(id) = edit.table() else { continue };
        let Some(table) = state.tables.get(&id) else { continue };
        let number = |name: &str| table.properties.get(name).map_or(0, |value| number_of(value));
        // Commits after this one may have recorded more.
        if let Edit::SetProperty { name, value, .. } = &edit
            && number_of(value) <= number(name)
        {
            continue;
        }
        let (linked, was_truncated) = (number(LINKED_PROPERTY), number(TRUNCATED_PROPERTY));
        if seq > linked && seq > was_truncated {
            if matches!(edit, Edit::AddSegment { .. }) {
                let value = seq.to_le_bytes().to_vec();
                missing.push(Edit::SetProperty { table: id, name: LINKED_PROPERTY.into(), value });
            }
            missing.push(edit);
        }
    }
    missing
}

impl Engine {
    /// Prepared transactions of an earlier run hold their rows again.
    pub(crate) fn lock_prepared_rows(&self) -> Result<()> {
        let prepared = self.commit_queue.lock().prepared.clone();
        for p in &prepared {
            self.hold_decision(p.owner, p.decision)?;
            for t in &p.tables {
                self.locks.lock(p.owner, t.table.id, &[], LockMode::Shared, Duration::ZERO, &|| false)?;
                for key in t.own.read().map.keys() {
                    self.lock_prepared_key(p, t, key);
                }
            }
        }
        // Many rows may be locked as a whole, if nobody else has rows of the table.
        for (p, t) in prepared.iter().flat_map(|p| p.tables.iter().map(move |t| (p, t))) {
            let segments = t.own.read().private.clone();
            let rows: u64 = segments.iter().map(|s| s.segment.meta().rows + s.segment.meta().tombstones).sum();
            if rows * limits::ROW_LOCK_BYTES > self.tuning.prepared_lock_bytes && self.lock_prepared_table(p, t) {
                continue;
            }
            if let Err(error) = segments.iter().try_for_each(|s| self.lock_keys_of(p, t, &s.segment)) {
                let table = t.table.name();
                tracing::error!(table, %error, "the rows of a prepared transaction cannot be read: its table is locked as a whole");
                self.lock_prepared_table(p, t);
            }
        }
        Ok(())
    }

    fn lock_keys_of(&self, prepared: &Prepared, t: &TableWrites, segment: &Arc<LiveSegment>) -> Result<()> {
        let index = segment.index()?;
        let mut key = Vec::new();
        for number in 0..index.group_count() {
            let group = RowGroup::from_segment(t.layout.clone(), (segment.clone(), &index), number, 0)?;
            for row in 0..group.rows() {
                key.clear();
                group.push_key(row, &mut key)?;
                self.lock_prepared_key(prepared, t, &key);
            }
        }
        Ok(())
    }

    /// Two transactions that are prepared have no row in common but index entries that both delete: the first one has it.
    fn lock_prepared_key(&self, prepared: &Prepared, t: &TableWrites, key: &[u8]) {
        let (owner, table) = (prepared.owner, t.table.id);
        let _ = self.locks.lock(owner, table, key, LockMode::Exclusive, Duration::ZERO, &|| false);
    }

    fn lock_prepared_table(&self, prepared: &Prepared, t: &TableWrites) -> bool {
        let (owner, table) = (prepared.owner, t.table.id);
        let locked = self.locks.lock(owner, table, &[], LockMode::Exclusive, Duration::ZERO, &|| false);
        if locked.is_ok() {
            self.locks.escalate(owner, table);
        }
        locked.is_ok()
    }

    /// Rolls back what is prepared in temporary tables alone: those do not outlive the server, and nobody asks for it.
    pub fn forget_prepared_in_temporary_tables(&self) -> Result<()> {
        let is_temporary = |t: &TableWrites| t.table.is_index() || t.table.name.read().starts_with(TEMPORARY_PREFIX);
        let prepared = self.commit_queue.lock().prepared.clone();
        for p in prepared.iter().filter(|p| !p.tables.is_empty() && p.tables.iter().all(is_temporary)) {
            self.rollback_prepared(&p.xid)?;
        }
        Ok(())
    }

    /// The oldest log position that prepared transactions need.
    pub(crate) fn prepared_start(queue: &crate::commit::CommitQueue) -> Lsn {
        queue.all_prepared().map(|p| p.start_lsn()).min().unwrap_or(Lsn(u64::MAX))
    }

    /// Bytes of memory that prepared transactions take, roughly.
    pub(crate) fn prepared_bytes(&self) -> u64 {
        self.commit_queue.lock().all_prepared().map(|p| p.bytes()).sum()
    }

    /// Bytes of the log since the oldest record of a prepared transaction.
    pub(crate) fn prepared_log_bytes(&self) -> u64 {
        let start = Engine::prepared_start(&self.commit_queue.lock());
        self.wal.position().0.saturating_sub(start.0)
    }

    /// Writes the records of prepared transactions again that are further back in the log than `most` bytes: all that
    /// was logged since would have to be kept for them.
    pub(crate) fn log_prepared_again(&self, most: u64) -> Result<()> {
        let is_old = |p: &Prepared| self.wal.position().0.saturating_sub(p.start_lsn().0) > most;
        let old: Vec<_> = self.commit_queue.lock().prepared.iter().filter(|p| is_old(p)).cloned().collect();
        for prepared in old {
            let record = prepare_record(&prepared.xid, &prepared.tables)?;
            let (start, lsn) = {
                // Not behind the record of its second phase: replay would take it for prepared again.
                let queue = self.commit_queue.lock();
                if !queue.prepared.iter().any(|p| Arc::ptr_eq(p, &prepared)) {
                    continue;
                }
                (self.wal.position(), self.wal.append_parts(&[&record])?)
            };
            self.wal.sync(lsn)?;
            prepared.start_lsn.store(start.0, Ordering::Release);
        }
        Ok(())
    }

    /// Number of prepared transactions, for the status.
    pub(crate) fn prepared_count(&self) -> u64 {
        self.commit_queue.lock().prepared.len() as u64
    }
}
