//! Bulk statements: rows go to sorted private segments beside the statement, not through the write set.
//!
//! The statement's thread only collects row bytes (`run.rs`). Full runs are sorted (`sort.rs`), compared with the newest
//! rows of their series (`newness.rs`) and encoded on a worker thread; at most `BULK_RUNS_QUEUED` wait, which bounds
//! memory. The first rows are looked up one by one, so that a statement tells of an early mistake early. Where rows may
//! exist already, all of the statement's are compared with everything else at its end.

use std::sync::Arc;
use std::thread::JoinHandle;

use crossbeam_channel::{Receiver, Sender, bounded};
use rrd_codec::Effort;

use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::fs::space::Room;
use crate::index::Index;
use crate::limits;
use crate::live::LiveSegment;
use crate::memory;
use crate::own::{OnDuplicate, PrivateSegment};
use crate::ring::WRITE_TRIES;
use crate::row::RowLayout;
use crate::table::Table;
use crate::write_out::OutRows;

mod newness;
mod run;
mod sort;

pub use newness::Newness;
pub use run::Run;
use sort::Order;

/// A bulk statement's state for one table.
pub struct Bulk {
    /// Rows not handed to the worker yet.
    pub run: Run,
    /// Some row may exist already: to be looked up at the end.
    pub needs_check: bool,
    /// What the statement does with duplicates.
    pub mode: OnDuplicate,
    /// Whether a row is new can be told from its key alone, which is short.
    tells_new: bool,
    /// Bytes of rows that went to the write set instead.
    settled: usize,
    worker: Option<Worker>,
}

/// What a bulk statement wrote.
#[derive(Default)]
pub struct Written {
    /// Its rows.
    pub rows: Vec<PrivateSegment>,
    /// Their entries, for each index of the table.
    pub entries: Vec<Vec<PrivateSegment>>,
    /// Rows before this time were left out: those behind them fill the ring.
    pub passed: Option<u64>,
    /// How many rows that were.
    pub left_out: u64,
    /// The newest rows, of the table and of each index; nothing if the worker need not know.
    pub newness: Vec<Newness>,
    /// Some row that was not looked up may exist already.
    pub is_doubtful: bool,
}

impl Written {
    /// Bytes on disk.
    pub fn bytes(&self) -> u64 {
        let of = |segments: &[PrivateSegment]| segments.iter().map(|p| p.segment.meta().bytes).sum::<u64>();
        of(&self.rows) + self.entries.iter().map(|entries| of(entries)).sum::<u64>()
    }
}

struct Worker {
    runs: Sender<Run>,
    /// Runs that are done, for their memory.
    spare: Receiver<Run>,
    thread: JoinHandle<Result<Written>>,
}

impl Bulk {
    /// A statement that has no rows yet.
    pub fn new(layout: &RowLayout, has_indexes: bool) -> Bulk {
        let tells_new = !has_indexes && layout.int_key().is_some();
        let run = Run::new(layout);
        Bulk { run, needs_check: false, mode: OnDuplicate::Fail, tells_new, settled: 0, worker: None }
    }

    /// Bytes of rows so far that are not in segments.
    pub fn bytes(&self) -> usize {
        self.settled + self.run.bytes()
    }

    /// The rows collected so far; they and one of `more` bytes go to the write set.
    pub fn settle(&mut self, more: usize) -> Run {
        self.settled = self.bytes() + more;
        self.run.take(None)
    }

    /// Whether some rows went to segments already.
    pub fn has_worker(&self) -> bool {
        self.worker.is_some()
    }

    /// Whether the worker finds out which of the next rows are new.
    #[inline]
    pub fn takes_unchecked(&self) -> bool {
        self.run.takes_unchecked()
    }

    /// Whether rows may be appended before it is known that they are new.
    #[inline]
    pub fn takes_appended(&self) -> bool {
        self.takes_unchecked() || (self.tells_new && !self.has_worker())
    }

    /// Leaves the checks of the next rows to the worker if there are that many bytes of rows; for plain inserts.
    #[inline]
    pub fn end_checks_at(&mut self, bytes: usize) {
        // A worker that was started before is not told of the newest rows.
        if !self.takes_unchecked() && !self.has_worker() && self.bytes() >= bytes {
            self.run.end_checks();
        }
    }

    /// Starts the worker, which goes on from what is known of the newest rows.
    pub fn start_worker(
        &mut self,
        engine: &Arc<Engine>,
        table: &Arc<Table>,
        layout: &Arc<RowLayout>,
        newness: Vec<Newness>,
    ) -> Result<()> {
        let written = Written { newness, ..Written::default() };
        self.worker = Some(Worker::start(engine.clone(), table.clone(), layout.clone(), self.mode, written)?);
        Ok(())
    }

    /// Hands the collected rows to the worker. An error of the worker itself comes from [`Bulk::finish`], at once
    /// when the worker is gone.
    pub fn send_run(&mut self) -> Result<()> {
        let Some(worker) = self.worker.take() else { return Ok(()) };
        let run = self.run.take(worker.spare.try_recv().ok());
        if worker.runs.send(run).is_err() {
            return worker.join().and(Err(Error::Interrupted));
        }
        self.worker = Some(worker);
        Ok(())
    }

    /// Waits for the worker; all private segments that it wrote.
    pub fn finish(&mut self) -> Result<Written> {
        match self.worker.take() {
            Some(worker) => worker.join(),
            None => Ok(Written::default()),
        }
    }
}

impl Worker {
    fn start(
        engine: Arc<Engine>,
        table: Arc<Table>,
        layout: Arc<RowLayout>,
        mode: OnDuplicate,
        mut written: Written,
    ) -> Result<Worker> {
        let (runs, incoming) = bounded::<Run>(limits::BULK_RUNS_QUEUED);
        let (done, spare) = bounded::<Run>(limits::BULK_RUNS_QUEUED + 1);
        let thread = std::thread::Builder::new()
            .name("rrd-bulk".into())
            .spawn(move || {
                let indexes = table.indexes();
                written.entries.resize_with(indexes.len(), Vec::new);
                for run in incoming {
                    write_run(&engine, (&table, &layout), &indexes, &run, mode, &mut written)?;
                    // Nobody waits for it.
                    let _ = done.try_send(run);
                }
                Ok(written)
            })
            .map_err(Error::io("start a thread for", std::path::Path::new("bulk load")))?;
        Ok(Worker { runs, spare, thread })
    }

    fn join(self) -> Result<Written> {
        drop(self.runs);
        match self.thread.join() {
            Ok(result) => result,
            Err(_) => Err(Error::Poisoned { reason: "the encoder of a bulk statement failed".into() }),
        }
    }
}

/// Sorts a run and writes it, and the entries of its rows, to private segments.
fn write_run(
    engine: &Engine,
    (table, layout): (&Arc<Table>, &Arc<RowLayout>),
    indexes: &[Arc<Index>],
    run: &Run,
    mode: OnDuplicate,
    written: &mut Written,
) -> Result<()> {
    // Of each row a key and its place, twice, and of all of them columns and what these are encoded to.
    memory::ask(2 * run.bytes() + 64 * run.len(), "the rows of a bulk statement")?;
    let order = Order::of(run, layout)?;
    if run.takes_unchecked()
        && let Some(newness) = written.newness.first_mut()
    {
        written.is_doubtful |= !newness.note(table, layout, run, &order)?;
    }
    let rows = write_in_ring(engine, table, (table, layout), in_order(run, &order, layout), mode, written)?;
    written.rows.extend(rows);
    for (number, index) in indexes.iter().enumerate() {
        let (entries, order) = entries_of(index, number, layout, run)?;
        let entry_layout = index.table.layout();
        if run.takes_unchecked()
            && index.def.unique
            && let Some(newness) = written.newness.get_mut(number + 1)
        {
            written.is_doubtful |= !newness.note(&index.table, &entry_layout, &entries, &order)?;
        }
        let rows = in_order(&entries, &order, &entry_layout);
        let entries = write_in_ring(engine, table, (&index.table, &entry_layout), rows, mode, written)?;
        written.entries[number].extend(entries);
    }
    Ok(())
}

/// Writes rows of a run, or entries of them, within the bytes that their table may have.
fn write_in_ring(
    engine: &Engine,
    table: &Arc<Table>,
    (part, layout): (&Arc<Table>, &Arc<RowLayout>),
    mut rows: OutRows<'_>,
    mode: OnDuplicate,
    written: &mut Written,
) -> Result<Vec<PrivateSegment>> {
    engine.write_private_in_ring(part, layout, &mut rows, Some(mode), |rows, takes| {
        let row_bytes = takes.map(|takes| takes as f64 / rows.len().max(1) as f64);
        engine.make_room_for_bulk(table, (part, layout), rows, row_bytes, written)
    })
}

fn in_order<'r>(run: &'r Run, order: &Order, layout: &RowLayout) -> OutRows<'r> {
    // Asked in the order of arrival, which is that of the memory.
    let times = run.rows().map(|row| layout.time(row)).fold(None, |range: Option<(u64, u64)>, time| {
        let (min, max) = range.unwrap_or((time, time));
        Some((min.min(time), max.max(time)))
    });
    OutRows::new(order.rows.iter().map(|&row| run.row(row as usize)).collect(), times)
}

/// The entries of a run's rows in an index, and their order.
fn entries_of(index: &Index, number: usize, layout: &RowLayout, run: &Run) -> Result<(Run, Order)> {
    let entry_layout = index.table.layout();
    let mut entries = Run::new(&entry_layout);
    let mut entry = Vec::new();
    for (i, row) in (0..).zip(run.rows()) {
        if run.is_unchecked(i) {
            entries.end_checks();
        }
        entry.clear();
        index.push_entry(layout, row, &mut entry)?;
        entries.push(&entry, true)?;
    }
    match Order::of(&entries, &entry_layout) {
        Ok(order) => Ok((entries, order)),
        Err(Error::Duplicate { row: entry, .. }) => Err(refused_in_run(index, number, layout, run, &entry)),
        Err(other) => Err(other),
    }
}

/// The error for an entry that occurs twice in a run: the row that came last has it.
fn refused_in_run(index: &Index, number: usize, layout: &RowLayout, run: &Run, refused: &[u8]) -> Error {
    let mut entry = Vec::new();
    let found = run.rows().find(|row| {
        entry.clear();
        index.push_entry(layout, row, &mut entry).is_ok() && entry == refused
    });
    Error::Duplicate { index: number as u32 + 1, row: found.unwrap_or_default().to_vec(), existing: Vec::new() }
}

impl Engine {
    /// Writes rows to private segments within the bytes that their table may have. `make_room` is asked first, and again,
    /// with the bytes that they take, as long as that is more than there is room for.
    pub(crate) fn write_private_in_ring<'r>(
        &self,
        table: &Arc<Table>,
        layout: &Arc<RowLayout>,
        rows: &mut OutRows<'r>,
        expects_absent: Option<OnDuplicate>,
        mut make_room: impl FnMut(&mut OutRows<'r>, Option<u64>) -> Result<Option<Arc<Room>>>,
    ) -> Result<Vec<PrivateSegment>> {
        let (mut takes, mut tries) = (None, 0);
        loop {
            let room = make_room(rows, takes)?;
            room.iter().filter(|_| tries >= WRITE_TRIES).for_each(|room| room.lift());
            let private = self.write_private(table, layout, rows, expects_absent, room.as_ref())?;
            let Some(room) = room.filter(|room| room.is_over()) else { return Ok(private) };
            takes = Some(room.wanted());
            tries += 1;
        }
    }

    /// Writes rows to private segments: files that vanish again unless their transaction commits. For `room` see
    /// [`Engine::write_segments`].
    pub(crate) fn write_private(
        &self,
        table: &Arc<Table>,
        layout: &Arc<RowLayout>,
        rows: &OutRows<'_>,
        expects_absent: Option<OnDuplicate>,
        room: Option<&Arc<Room>>,
    ) -> Result<Vec<PrivateSegment>> {
        let chunks = table.chunks.lock().keep();
        let metas = self.write_segments(table, layout, rows, Effort::Fast, room)?;
        Ok(metas
            .into_iter()
            .map(|meta| {
                let segment = LiveSegment::open(&self.fs, &self.cache, &table.dir, table.id, meta);
                segment.mark_obsolete();
                let (layout, chunks) = (layout.clone(), chunks.clone());
                PrivateSegment { segment, expects_absent, layout, checked_up_to: 0, _chunks: chunks }
            })
            .collect())
    }
}
