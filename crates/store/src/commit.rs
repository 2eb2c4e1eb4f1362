//! Commits: check, log, make durable, apply; in this order, and applied in the order of their sequence numbers.
//!
//! Under the commit lock a transaction's inserts are checked against whatever was committed since they were made,
//! it gets its sequence number and its log record is put into the log's buffer. It waits for the disk without the lock, so
//! that one sync serves many. Only then is it applied to the memtables and becomes visible: a commit that the disk
//! refused was never there. A transaction with private segments is committed by one manifest edit instead of a log record.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use hashbrown::HashMap;
use parking_lot::{Mutex, MutexGuard, RwLock};

use crate::config::FlushLog;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::live::LiveSegment;
use crate::log_base::{self, Base};
use crate::log_record;
use crate::manifest::edit::Edit;
use crate::memory;
use crate::memtable::Key;
use crate::newest::Place;
use crate::ordered::LOOK_AGAIN;
use crate::own::{OnDuplicate, OwnBatch, OwnWrite, OwnWrites};
use crate::prepare::{Prepared, log_parts};
use crate::ring::{RingChange, leave_out_gone};
use crate::row::RowLayout;
use crate::segment::{SegmentId, SegmentMeta};
use crate::table::{Table, find_in_segment};
use crate::tier::bucket::Interval;
use crate::tier::{dirty_edit, join};
use crate::txn::{Txn, TxnTable};
use crate::wal::{Lsn, Wal};

/// The order of commits.
pub(crate) struct CommitQueue {
    /// The next commit gets this.
    pub next_seq: u64,
    /// Logged (or in the manifest's way) but not applied, in order.
    pub pending: VecDeque<Arc<Pending>>,
    /// Waiting for their coordinator.
    pub prepared: Vec<Arc<Prepared>>,
    /// In their second phase: if it fails on a full disk, they wait again.
    pub deciding: Vec<Deciding>,
    /// Ids of those to be rolled back as soon as the log has room for that.
    pub rollbacks_due: Vec<Vec<u8>>,
    /// The next one of them gets this as its `decision`.
    pub next_decision: u64,
    /// Records that begin before may be gone with their log file.
    pub log_kept_from: Lsn,
}

/// A prepared transaction in its second phase.
pub(crate) struct Deciding {
    pub prepared: Arc<Prepared>,
    /// `None`: it is rolled back.
    pub commit: Option<Arc<Pending>>,
}

/// What a commit in the queue writes to a table.
pub(crate) struct QueuedWrites {
    /// Keys of rows.
    pub keys: Vec<Vec<u8>>,
    pub segments: Vec<Arc<LiveSegment>>,
    /// Set for a prepared transaction, which may never be committed.
    pub undecided: Option<u64>,
}

impl CommitQueue {
    /// Prepared transactions of which it is not known whether they will be committed.
    pub fn undecided(&self) -> impl Iterator<Item = &Arc<Prepared>> {
        let has_failed = |commit: &Arc<Pending>| *commit.state.lock() == PendingState::Failed;
        let open = self.deciding.iter().filter(move |d| d.commit.as_ref().is_none_or(has_failed));
        self.prepared.iter().chain(open.map(|d| &d.prepared))
    }

    /// Prepared transactions, those in their second phase too.
    pub fn all_prepared(&self) -> impl Iterator<Item = &Arc<Prepared>> {
        self.prepared.iter().chain(self.deciding.iter().map(|d| &d.prepared))
    }

    /// Ends the second phase of a prepared transaction; if that `failed`, it waits for its coordinator again.
    pub fn end_decision(&mut self, decision: u64, failed: bool) {
        let Some(at) = self.deciding.iter().position(|d| d.prepared.decision == decision) else { return };
        let Deciding { prepared, .. } = self.deciding.swap_remove(at);
        self.prepared.extend(failed.then_some(prepared));
    }

    /// What commits in the queue write to a table.
    pub fn writes_to(&self, table: &Arc<Table>) -> Vec<QueuedWrites> {
        let alive = self.pending.iter().filter(|p| *p.state.lock() != PendingState::Failed);
        let alive = alive.flat_map(|p| p.tables.iter().map(|t| (t, None)));
        let prepared = self.undecided().flat_map(|p| p.tables.iter().map(|t| (t, Some(p.decision))));
        prepared
            .chain(alive)
            .filter(|(t, _)| Arc::ptr_eq(&t.table, table))
            .map(|(t, undecided)| {
                let own = t.own.read();
                let mut keys = Vec::new();
                own.for_each(|key, write| keys.extend(write.row.map(|_| key.to_vec())));
                QueuedWrites { keys, segments: own.private.iter().map(|p| p.segment.clone()).collect(), undecided }
            })
            .collect()
    }
}

/// A commit on its way from the log to the memtables.
pub(crate) struct Pending {
    /// Last of its sequence numbers (one for each private segment, one for the rest).
    pub seq: u64,
    /// Where its log record starts; the log must be kept from here.
    pub start_lsn: Lsn,
    pub tables: Vec<TableWrites>,
    /// Segments that it drops as a whole.
    drops: Vec<DroppedSegments>,
    /// Set for a prepared transaction: its first sequence number. Its segments are linked when it is applied.
    links_from: Option<u64>,
    /// The log record that it waits for; a commit through the manifest has none.
    record: Option<LogRecord>,
    state: Mutex<PendingState>,
}

/// Segments of a table that a commit drops as a whole.
#[derive(Clone)]
pub(crate) struct DroppedSegments {
    pub table: Arc<Table>,
    pub segments: Vec<SegmentId>,
}

impl DroppedSegments {
    /// The times of their rows.
    fn times(&self) -> Vec<Interval> {
        let version = self.table.version();
        let metas = self.segments.iter().filter_map(|id| version.segments.get(id)).map(|s| s.meta());
        join(metas.map(|m| Interval { first: m.min_time, last: m.max_time }).collect())
    }
}

/// The log record of a commit, and how safe it has to be before the commit is applied.
#[derive(Clone, Copy)]
pub(crate) struct LogRecord {
    pub lsn: Lsn,
    pub mode: FlushLog,
}

/// A write set on its way.
pub(crate) struct TableWrites {
    pub table: Arc<Table>,
    pub layout: Arc<RowLayout>,
    pub own: Arc<RwLock<OwnWrites>>,
    /// The newest key of each series that private segments went to; `None` if that is not known.
    pub newest: Option<HashMap<Key, Key>>,
}

impl Pending {
    /// Its state; one that waits for the log may be through.
    fn look(&self, wal: &Wal) -> PendingState {
        let mut state = self.state.lock();
        if let (PendingState::Waiting, Some(LogRecord { lsn, mode })) = (*state, self.record) {
            *state = match mode {
                FlushLog::EverySecond => PendingState::Ready,
                _ => match wal.fate(lsn, mode == FlushLog::Sync) {
                    None => PendingState::Waiting,
                    Some(Ok(())) => PendingState::Ready,
                    Some(Err(_)) => PendingState::Failed,
                },
            };
        }
        *state
    }

    /// Notes whether it is durable, unless that is known.
    fn decide(&self, is_durable: bool) -> PendingState {
        let mut state = self.state.lock();
        if *state == PendingState::Waiting {
            *state = if is_durable { PendingState::Ready } else { PendingState::Failed };
        }
        *state
    }
}

impl TableWrites {
    /// Another handle on the same writes.
    pub fn share(&self) -> TableWrites {
        TableWrites {
            table: self.table.clone(),
            layout: self.layout.clone(),
            own: self.own.clone(),
            newest: self.newest.clone(),
        }
    }
}

/// What becomes of a REPLACE or INSERT IGNORE whose key another transaction was faster to insert.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Resolve {
    /// What its statement would have done after the other one.
    Silently,
    /// A conflict: a coordinator has been told already which rows are written.
    Openly,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum PendingState {
    /// Waits for the disk.
    Waiting,
    /// May be applied once everything before it is.
    Ready,
    /// The disk refused it.
    Failed,
    /// Applied.
    Done,
}

/// Rows of a record that later ones may lean on.
struct KeptRows<'t> {
    table: &'t Arc<Table>,
    rows: log_base::Kept,
    /// Where they are in the record's body.
    at: usize,
    forgets: bool,
}

impl Txn {
    /// Commits; when it returns the work is as durable as `rrd_flush_log_at_trx_commit` says. After an error the
    /// transaction is rolled back, unless it is [`Error::Undecided`].
    pub fn commit(&mut self) -> Result<()> {
        self.watch();
        let result = self.commit_writes();
        if matches!(result, Err(Error::Undecided { .. })) {
            self.unwatch();
            return result;
        }
        let watched = self.unwatch();
        if result.is_ok() {
            watched.iter().for_each(|watched| self.engine.settle_due(watched.table()));
        }
        self.reset();
        if result.is_ok() {
            self.note_losses(watched);
        }
        result
    }

    fn commit_writes(&mut self) -> Result<()> {
        if let Some(ordered) = self.take_ordered() {
            return self.engine.finish_ordered(&ordered);
        }
        if let Some(xid) = self.prepared_xid() {
            return self.engine.commit_prepared(&xid).map(|_| ());
        }
        self.forget_savepoints();
        self.forget_undone();
        if !self.has_writes() {
            return Ok(());
        }
        self.get_ready()?;
        let engine = self.engine.clone();
        if !self.drops.is_empty() || self.tables.iter().any(|t| !t.own.read().private.is_empty()) {
            self.spill_all()?;
            engine.commit_segments(self)
        } else {
            engine.commit_rows(self)
        }
    }

    /// What comes before a commit, or the first phase of one, takes a lock: the wait for memory, and whatever reads segments.
    pub(crate) fn get_ready(&mut self) -> Result<()> {
        self.engine.check_writable()?;
        self.check_not_doomed()?;
        let has_little = |most| self.tables.iter().all(|t| t.table.version().memtable_bytes() <= most);
        self.engine.wait_for_memory(&has_little, &*self.interrupted)?;
        self.join_batches();
        self.look_for_rings();
        self.check_ahead();
        Ok(())
    }

    /// Rings that the commit makes fuller look which rows leave.
    fn look_for_rings(&self) {
        let is_counted = |t: &&TxnTable| t.layout.schema().ring.max_rows.is_some() && !t.table.is_index();
        for t in self.tables.iter().filter(is_counted) {
            let own = t.own.read();
            let in_files = own.private.iter().map(|p| p.segment.meta().rows).sum::<u64>();
            let rows = in_files + (own.map.len() + own.batches.iter().map(|b| b.rows.len()).sum::<usize>()) as u64;
            drop(own);
            if rows > 0 {
                self.engine.look_before(&t.table, rows);
            }
        }
    }

    /// Looks for the keys that it inserts among what was committed since, so that only the last commits are left to be looked
    /// at while no other one can go on.
    fn check_ahead(&mut self) {
        for t in 0..self.tables.len() {
            // Whatever is found is found again then, and told.
            if let Ok(seq) = self.engine.keys_free_up_to(self, &self.tables[t]) {
                self.tables[t].checked_up_to = seq;
            }
        }
    }

    pub(crate) fn table_writes(&mut self) -> Vec<TableWrites> {
        let written = self.tables.iter_mut().filter(|t| !t.own.read().is_empty());
        written
            .map(|t| TableWrites {
                table: t.table.clone(),
                layout: t.layout.clone(),
                own: t.own.clone(),
                newest: t.take_newest(),
            })
            .collect()
    }
}

impl Engine {
    /// Commits write sets through the log.
    fn commit_rows(&self, txn: &mut Txn) -> Result<()> {
        let _gate = self.commit_gate.read();
        let tables = txn.table_writes();
        let bytes: usize = tables.iter().map(|table| table.own.read().bytes).sum();
        memory::ask(2 * bytes, "the log record of a transaction")?;
        let (mut body, mut kept) = self.encode_body(&tables);
        let pending = {
            let (mut queue, has_changed) = self.lock_checked(txn, Resolve::Silently)?;
            let may_lean = |k: &KeptRows<'_>| {
                let is_in_log = k.rows.start().is_none_or(|start| start >= queue.log_kept_from.0);
                is_in_log && k.table.log_bases.lock().still_has(&k.rows)
            };
            if has_changed || !kept.iter().all(may_lean) {
                // Rows that another transaction was faster to insert were taken out (INSERT IGNORE), or what the record leans
                // on is not the newest of its series any more, or may be removed.
                kept.clear();
                body = log_record::encode(&log_parts(&tables));
            }
            for k in &mut kept {
                k.forgets = k.table.log_bases.lock().forgets_with(&k.rows);
                if k.forgets {
                    log_base::set_forgets(&mut body[k.at..]);
                }
            }
            let seq = queue.next_seq;
            let begin = self.wal.position();
            let lsn = self.wal.append_parts(&[&log_record::header(seq), &body])?;
            queue.next_seq += 1;
            let start_lsn = kept.iter().filter_map(|k| k.rows.start()).map(Lsn).fold(begin, Lsn::min);
            for KeptRows { table, rows, forgets, .. } in kept {
                table.log_bases.lock().keep(rows, forgets, seq, lsn, begin.0);
            }
            let record = LogRecord { lsn, mode: self.flush_log() };
            self.enqueue(&mut queue, seq, start_lsn, (tables, Vec::new()), None, Some(record))
        };
        drop(body);
        self.finish_logged(&pending)
    }

    /// The body of a commit's log record, and rows in it that later records may lean on.
    fn encode_body<'t>(&self, tables: &'t [TableWrites]) -> (Vec<u8>, Vec<KeptRows<'t>>) {
        let mut kept: Vec<KeptRows<'t>> = Vec::new();
        let mut keep = |number: usize, rows: &[&[u8]]| {
            let TableWrites { table, layout, .. } = &tables[number];
            let may_lean = |base: &Base| matches!(self.wal.fate(base.end, false), Some(Ok(())));
            let (bytes, rows) = log_base::encode(rows, layout, &table.log_bases, may_lean)?;
            kept.push(KeptRows { table, rows, at: 0, forgets: false });
            Some(bytes)
        };
        let (body, places) = log_record::encode_kept(&log_parts(tables), &mut keep);
        kept.iter_mut().zip(places).for_each(|(kept, at)| kept.at = at);
        (body, kept)
    }

    /// Commits private segments by one manifest edit.
    fn commit_segments(&self, txn: &mut Txn) -> Result<()> {
        let _gate = self.commit_gate.read();
        let tables = txn.table_writes();
        let mut edits = Vec::new();
        let pending = {
            let (mut queue, _) = self.lock_checked(txn, Resolve::Silently)?;
            let mut seq = queue.next_seq;
            for t in &tables {
                let metas = number_segments(&t.own.read(), &mut seq);
                edits.extend(t.table.edits_for(&metas));
            }
            for dropped in &txn.drops {
                let table = dropped.table.id;
                edits.extend(dropped.segments.iter().map(|&segment| Edit::RemoveSegment { table, segment }));
            }
            if seq == queue.next_seq {
                seq += 1;
            }
            for dropped in txn.drops.iter().filter(|dropped| !dropped.table.tiers().is_empty()) {
                edits.push(dirty_edit(&dropped.table, seq - 1, dropped.times()));
            }
            edits.push(Edit::NextSeq { seq });
            queue.next_seq = seq;
            self.enqueue(&mut queue, seq - 1, self.wal.position(), (tables, txn.drops.clone()), None, None)
        };
        let metas = edits.iter().filter_map(|edit| match edit {
            Edit::AddSegment { meta, .. } => Some(meta.clone()),
            _ => None,
        });
        let committed: Vec<SegmentMeta> = metas.collect();
        let changed = pending.tables.iter().map(|t| &*t.table).chain(pending.drops.iter().map(|d| &*d.table));
        self.pause_points.pass("a manifest edit of a commit");
        let durable = self.commit_with_horizons(edits, &changed.filter(|t| !t.is_index()).collect::<Vec<_>>());
        if durable.is_ok() {
            adopt_segments(self, &pending, &committed);
        } else if self.manifest.is_poisoned() {
            // The edit may be on disk: the files must outlive this process.
            pending.tables.iter().for_each(|t| t.own.read().private.iter().for_each(|p| p.segment.keep()));
        }
        self.finish(&pending, durable)
    }

    pub(crate) fn enqueue(
        &self,
        queue: &mut CommitQueue,
        seq: u64,
        start_lsn: Lsn,
        (tables, drops): (Vec<TableWrites>, Vec<DroppedSegments>),
        links_from: Option<u64>,
        record: Option<LogRecord>,
    ) -> Arc<Pending> {
        for table in tables.iter().map(|t| &t.table).chain(drops.iter().map(|d| &d.table)) {
            table.last_commit_seq.store(seq, Ordering::Release);
        }
        let with_rows = tables.iter().filter(|t| !t.own.read().is_empty()).map(|t| &t.table);
        for table in with_rows.chain(drops.iter().map(|d| &d.table)) {
            table.last_rows_seq.store(seq, Ordering::Release);
        }
        let pending = Arc::new(Pending {
            seq,
            start_lsn,
            tables,
            drops,
            links_from,
            record,
            state: Mutex::new(PendingState::Waiting),
        });
        queue.pending.push_back(pending.clone());
        pending
    }

    /// Waits for the log record of a commit, then applies it in its turn.
    pub(crate) fn finish_logged(&self, pending: &Arc<Pending>) -> Result<()> {
        self.pause_points.pass("a commit is queued");
        let durable = match pending.record {
            // Whoever syncs for many applies for them as well, so that each wakes to a commit that is done.
            Some(LogRecord { lsn, mode: FlushLog::Sync }) => self.wal.flush(lsn, true, &|| self.apply_ready()),
            Some(LogRecord { lsn, mode: FlushLog::Write }) => self.wal.flush(lsn, false, &|| self.apply_ready()),
            _ => Ok(()),
        };
        self.finish(pending, durable)
    }

    /// Applies (or drops) a commit of rows in its turn; returns when that is done.
    fn finish(&self, pending: &Arc<Pending>, durable: Result<()>) -> Result<()> {
        self.finish_in_turn(pending, durable)?;
        let now = self.clock_micros();
        for table in pending.tables.iter().map(|t| &t.table).chain(pending.drops.iter().map(|d| &d.table)) {
            table.written_at.store(now, Ordering::Relaxed);
        }
        Ok(())
    }

    fn finish_in_turn(&self, pending: &Arc<Pending>, durable: Result<()>) -> Result<()> {
        if pending.decide(durable.is_ok()) != PendingState::Done {
            self.apply_ready();
            // Commits before this one may still wait for the disk.
            let mut applied = self.applied_wait.lock();
            while durable.is_ok() && *pending.state.lock() != PendingState::Done {
                self.applied.wait(&mut applied);
            }
        }
        if let Err(error) = &durable {
            self.poison_unless_full(error);
        }
        durable?;
        self.commits.fetch_add(1, Ordering::Relaxed);
        self.flush_rings_early(pending.tables.iter().map(|t| &t.table));
        self.after_commit();
        Ok(())
    }

    /// Applies commits from the front of the queue while they are ready.
    pub(crate) fn apply_ready(&self) {
        let _turn = self.apply_turn.lock();
        loop {
            let front = self.commit_queue.lock().pending.front().cloned();
            let Some(front) = front else { break };
            let state = front.look(&self.wal);
            match state {
                PendingState::Ready => self.apply(&front),
                PendingState::Failed => {}
                PendingState::Waiting | PendingState::Done => break,
            }
            self.commit_queue.lock().pending.pop_front();
            if state == PendingState::Ready {
                let _wake = self.applied_wait.lock();
                *front.state.lock() = PendingState::Done;
                self.applied.notify_all();
            }
        }
    }

    /// A commit without rows, which moves the horizon of a table to where its ring says. Waits for the disk, if a look is due.
    pub(crate) fn commit_nothing(&self, table: &Arc<Table>) -> Result<()> {
        self.move_horizon(table)?;
        self.settle_due(table);
        Ok(())
    }

    /// A commit without rows, which moves the horizon of a table as far as it is known which rows leave.
    pub(crate) fn move_horizon(&self, table: &Arc<Table>) -> Result<()> {
        self.check_writable()?;
        let _gate = self.commit_gate.read();
        let writes = TableWrites {
            table: table.clone(),
            layout: table.layout(),
            own: Arc::default(),
            newest: Some(HashMap::new()),
        };
        let pending = {
            let mut queue = self.commit_queue.lock();
            let seq = queue.next_seq;
            queue.next_seq += 1;
            self.enqueue(&mut queue, seq, self.wal.position(), (vec![writes], Vec::new()), None, None)
        };
        self.finish_in_turn(&pending, Ok(()))
    }

    fn apply(&self, pending: &Pending) {
        let snapshots = self.open_snapshots();
        let (mut rings, mut with_batches) = (Vec::new(), Vec::new());
        if let Some(first) = pending.links_from
            && let Err(error) = self.link_prepared(pending, first)
        {
            // The commit is in the log: the next start links the segments.
            self.poison(&error.to_string());
        }
        for t in &pending.tables {
            // Held throughout: whoever checks keys sees the rows either here or in the memtable.
            let mut own = t.own.write();
            if t.table.is_dropped() {
                own.forget();
                continue;
            }
            let mut newest = t.table.newest.lock();
            let note = |newest: &mut crate::newest::Newest, key: &[u8]| {
                let (series, rest) = key.split_at(t.layout.series_len(key));
                newest.raise(series, rest);
            };
            if let Some(mut change) = RingChange::of(&t.layout, &own) {
                if t.newest.is_none() {
                    // Brought back by a restart: which of its rows are new is not known.
                    change.is_unknown();
                }
                self.note_too_old(t, &mut change, &own);
                leave_out_gone(t, &mut own);
                let segments: Vec<_> = own.private.iter().map(|p| p.segment.clone()).collect();
                rings.push((t, change, segments));
            }
            let map = std::mem::take(&mut own.map);
            let batches = std::mem::take(&mut own.batches);
            let version = t.table.version();
            if (!map.is_empty() || !batches.is_empty()) && version.active.first_lsn() == u64::MAX {
                self.in_memory.lock().insert(t.table.id, t.table.clone());
            }
            for OwnBatch { rows, .. } in batches {
                let series_len = t.layout.series_len(&rows.key(0));
                let mut place = Place::default();
                for series in rows.series(series_len) {
                    let (series, rest) = rows.halves(series.end - 1, series_len);
                    newest.raise_short(series, rest, &mut place);
                }
                let added = version.active.apply_batch(pending.seq, pending.start_lsn.0, rows);
                self.memory.active.fetch_add(added, Ordering::Relaxed);
                with_batches.push(version.active.clone());
            }
            let writes = map.into_iter().map(|(key, write): (Key, OwnWrite)| {
                if write.row.is_some() {
                    note(&mut newest, &key);
                }
                (key, write.row)
            });
            if writes.len() > 0 {
                let added = version.active.apply(pending.seq, pending.start_lsn.0, &snapshots, writes);
                self.memory.active.fetch_add(added, Ordering::Relaxed);
            }
            let committed = std::mem::take(&mut own.private);
            if !committed.is_empty() {
                match &t.newest {
                    Some(bounds) => bounds.iter().for_each(|(series, rest)| newest.raise(series, rest)),
                    None => newest.forget(),
                }
                self.workers.ask_merge(t.table.id);
                t.table.install(|v| v.segments.extend(committed.iter().map(|p| p.segment.clone())));
                if let Some(mut touched) = version.active.touched() {
                    committed.iter().for_each(|p| touched.note_segment(&p.segment));
                    self.workers.ask_flush(t.table.id);
                }
            }
            own.bytes = 0;
            own.generation += 1;
        }
        for dropped in &pending.drops {
            if let Some(mut touched) = dropped.table.version().active.touched() {
                dropped.times().iter().for_each(|times| touched.note_range(times.first, times.last, pending.seq));
                self.workers.ask_flush(dropped.table.id);
            }
            dropped.table.install(|version| version.drop_segments(&dropped.segments, pending.seq));
            dropped.table.ring.lock().forget();
            self.workers.ask_merge(dropped.table.id);
        }
        for (writes, change, segments) in rings {
            let table = &writes.table;
            let is_due = self.turn_ring(table, pending.seq, &change, &snapshots);
            self.note_lost(writes, change, segments, is_due);
        }
        for t in pending.tables.iter().filter(|t| !t.table.is_dropped()) {
            self.turn_tiers(&t.table, pending.seq, &snapshots);
        }
        self.visible_seq.store(pending.seq, Ordering::Release);
        with_batches.iter().for_each(|memtable| memtable.fold_runs());
    }

    /// Whether the rows of all batches of a write set are certainly new, though others committed meanwhile: behind the
    /// newest of their series, and in no write set on its way.
    fn are_batches_new(&self, queue: &CommitQueue, t: &TxnTable) -> bool {
        let on_their_way = || {
            let prepared = queue.undecided().flat_map(|p| &p.tables);
            let pending = queue.pending.iter().filter(|p| *p.state.lock() != PendingState::Failed);
            prepared.chain(pending.flat_map(|p| &p.tables)).filter(|writes| Arc::ptr_eq(&writes.table, &t.table))
        };
        let own = t.own.read();
        own.batches.iter().all(|OwnBatch { rows, .. }| {
            let is_known = |writes: &TableWrites| {
                let other = writes.own.read();
                other.private.is_empty() && !other.shares_keys(rows)
            };
            // The queue first: what is being applied is seen there or among the newest.
            on_their_way().all(is_known) && t.table.are_behind_newest(&t.layout, rows)
        })
    }

    /// Before the queue is locked: up to which commit the keys that a write set inserts are free for certain. Reads segments, which
    /// is not done then: every commit would wait.
    fn keys_free_up_to(&self, txn: &Txn, t: &TxnTable) -> Result<u64> {
        let since = t.check.as_ref().map_or(0, |check| check.seq()).max(t.checked_up_to);
        if t.check.is_none() || t.table.last_commit_seq.load(Ordering::Acquire) <= since {
            return Ok(since);
        }
        // Asked first: what is applied later is looked for again.
        let visible = self.visible_seq.load(Ordering::Acquire);
        let (mut keys, mut private) = (Vec::new(), Vec::new());
        {
            let own = t.own.read();
            let inserted = own.map.iter().filter(|(_, write)| write.expects_absent.is_some()).map(|(key, _)| key);
            keys.extend(inserted.filter(|key| !t.table.is_behind_newest(&t.layout, key)).cloned());
            for OwnBatch { rows, .. } in own.batches.iter().filter(|b| !t.table.are_behind_newest(&t.layout, &b.rows)) {
                let inserted = (0..rows.len()).map(|i| Key::from_slice(&rows.key(i)));
                keys.extend(inserted.filter(|key| !t.table.is_behind_newest(&t.layout, key)));
            }
            private.extend(own.private.iter().filter(|p| p.expects_absent.is_some()).cloned());
        }
        for key in &keys {
            if t.table.find(key, since)?.is_some_and(|found| found.row.is_some()) {
                return Ok(since);
            }
        }
        self.check_written(txn, t, &private, since)?;
        Ok(visible.max(since))
    }

    /// The queue, for a transaction whose inserts passed the check: [`Engine::check_inserts`].
    pub(crate) fn lock_checked(&self, txn: &Txn, resolve: Resolve) -> Result<(MutexGuard<'_, CommitQueue>, bool)> {
        loop {
            let queue = self.commit_queue.lock();
            match self.check_inserts(&queue, txn, resolve) {
                Err(Error::Pending { seq }) => {
                    drop(queue);
                    self.wait_until_decided(seq);
                }
                checked => return checked.map(|has_changed| (queue, has_changed)),
            }
        }
    }

    /// Waits until it is known whether a commit in the queue will be applied.
    fn wait_until_decided(&self, seq: u64) {
        self.pause_points.pass("wait for a pending delete");
        let is_waiting = |p: &Arc<Pending>| p.seq == seq && p.look(&self.wal) == PendingState::Waiting;
        let mut applied = self.applied_wait.lock();
        while self.commit_queue.lock().pending.iter().any(is_waiting) {
            self.applied.wait_for(&mut applied, LOOK_AGAIN);
        }
    }

    /// Checks that keys which were free when they were inserted are free still. True when rows were taken out
    /// of a write set because of it.
    fn check_inserts(&self, queue: &CommitQueue, txn: &Txn, resolve: Resolve) -> Result<bool> {
        let mut changed = false;
        for t in &txn.tables {
            t.check_layout()?;
            let Some(check) = &t.check else { continue };
            let since = check.seq().max(t.checked_up_to);
            if t.table.last_commit_seq.load(Ordering::Acquire) <= since && queue.undecided().next().is_none() {
                continue;
            }
            if !t.own.read().batches.is_empty() {
                if self.are_batches_new(queue, t) {
                    continue;
                }
                t.own.write().settle();
            }
            let expected: Vec<(Key, OnDuplicate, bool)> = t
                .own
                .read()
                .map
                .iter()
                .filter_map(|(key, w)| Some((key.clone(), w.expects_absent?, w.row.is_some())))
                .collect();
            for (key, mode, is_row) in expected {
                if !committed_since(queue, &t.table, &t.layout, &key, since)? {
                    continue;
                }
                let is_silent = resolve == Resolve::Silently && !t.has_entries();
                match mode {
                    // Inserted and deleted again: the row that is there now is another one's.
                    _ if !is_row => return Err(Error::Conflict),
                    OnDuplicate::Replace if is_silent => {
                        if let Some(write) = t.own.write().map.get_mut(&key) {
                            write.expects_absent = None;
                        }
                    }
                    OnDuplicate::Ignore if is_silent => {
                        t.own.write().remove(&key);
                        changed = true;
                    }
                    OnDuplicate::Fail => {
                        let row = t.own.read().map.get(&key).and_then(|w| w.row.clone()).unwrap_or_default();
                        return Err(txn.duplicate_in(t, &row, &key));
                    }
                    _ => return Err(Error::Conflict),
                }
            }
            self.check_private(queue, txn, t, since, resolve)?;
        }
        Ok(changed)
    }
}

/// Gives each private segment of a write set its sequence number.
pub(crate) fn number_segments(own: &OwnWrites, seq: &mut u64) -> Vec<SegmentMeta> {
    let mut metas = Vec::with_capacity(own.private.len());
    for private in &own.private {
        let mut meta = private.segment.meta().clone();
        meta.base_seq = *seq;
        meta.max_seq = *seq;
        *seq += 1;
        metas.push(meta);
    }
    metas
}

/// Turns the private segments of a commit into segments of the table.
fn adopt_segments(engine: &Engine, pending: &Pending, committed: &[SegmentMeta]) {
    let mut metas = committed.iter();
    for t in &pending.tables {
        for private in &mut t.own.write().private {
            let Some(meta) = metas.next() else { return };
            private.segment.keep();
            private.segment = LiveSegment::open(&engine.fs, &engine.cache, &t.table.dir, t.table.id, meta.clone());
        }
    }
}

/// Whether a live row with `key` was committed after `since`, applied or not. [`Error::Undecided`] if that hangs on a
/// prepared transaction, [`Error::Pending`] if on a delete that the disk may yet refuse.
pub(crate) fn committed_since(
    queue: &CommitQueue,
    table: &Arc<Table>,
    layout: &Arc<RowLayout>,
    key: &[u8],
    since: u64,
) -> Result<bool> {
    for prepared in queue.undecided() {
        if written(&prepared.tables, table, layout, key)?.is_some() {
            return Err(Error::Undecided { decision: prepared.decision });
        }
    }
    // Newest first. What is being applied is seen here or in the memtable: never missed, see `apply`.
    for pending in queue.pending.iter().rev().filter(|p| *p.state.lock() != PendingState::Failed) {
        match written(&pending.tables, table, layout, key)? {
            Some(false) if *pending.state.lock() == PendingState::Waiting => {
                return Err(Error::Pending { seq: pending.seq });
            }
            Some(is_row) => return Ok(is_row),
            None => {}
        }
    }
    // Only what was applied is noted there, and the queue was asked before.
    if table.is_behind_newest(layout, key) {
        return Ok(false);
    }
    Ok(table.find(key, since)?.is_some_and(|found| found.row.is_some()))
}

/// What a write set does to a key: `None` nothing, true puts a row, false deletes it.
fn written(writes: &[TableWrites], table: &Arc<Table>, layout: &Arc<RowLayout>, key: &[u8]) -> Result<Option<bool>> {
    for t in writes.iter().filter(|t| Arc::ptr_eq(&t.table, table)) {
        let own = t.own.read();
        if let Some(write) = own.get(key) {
            return Ok(Some(write.row.is_some()));
        }
        for private in own.private.iter().rev() {
            if let Some(found) = find_in_segment(&private.segment, 0, layout, key)? {
                return Ok(Some(found.row.is_some()));
            }
        }
    }
    Ok(None)
}
