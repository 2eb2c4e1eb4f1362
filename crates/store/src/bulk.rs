//! Bulk statements: rows go to sorted private segments beside the statement, not through the write set.
//!
//! The statement's thread only copies row bytes. Full runs are sorted, checked for keys that occur twice and encoded
//! on a worker thread; at most `BULK_RUNS_QUEUED` wait, which bounds memory. Rows that are not behind their series'
//! newest one mark their run: such runs are compared with everything else at the end of the statement.

use std::sync::Arc;
use std::thread::JoinHandle;

use crossbeam_channel::{Sender, bounded};
use rrd_codec::Effort;

use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::index::Index;
use crate::limits;
use crate::live::LiveSegment;
use crate::memtable::Key;
use crate::own::{OnDuplicate, PrivateSegment};
use crate::ring::Reserved;
use crate::row::RowLayout;
use crate::table::Table;
use crate::write_out::OutRow;

/// Rows of a statement that were not sorted yet.
#[derive(Default)]
pub struct Run {
    bytes: Vec<u8>,
    starts: Vec<usize>,
    /// Rows that may exist already, by number.
    doubtful: Vec<usize>,
}

impl Run {
    /// Adds a row.
    #[inline]
    pub fn push(&mut self, row: &[u8], is_new: bool) {
        if !is_new {
            self.doubtful.push(self.starts.len());
        }
        self.starts.push(self.bytes.len());
        self.bytes.extend_from_slice(row);
    }

    /// Bytes of rows.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// The rows in the order of arrival.
    pub fn rows(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.starts.len()).map(|i| self.row(i))
    }

    /// The rows in the order of arrival, each with whether it is certainly new.
    pub fn rows_and_doubts(&self) -> impl Iterator<Item = (&[u8], bool)> {
        let mut doubtful = self.doubtful.iter().peekable();
        self.rows().enumerate().map(move |(i, row)| (row, doubtful.next_if_eq(&&i).is_none()))
    }

    fn row(&self, i: usize) -> &[u8] {
        let end = self.starts.get(i + 1).copied().unwrap_or(self.bytes.len());
        &self.bytes[self.starts[i]..end]
    }

    /// Rows in key order. [`Error::Duplicate`] if two have the same key.
    fn sorted(&self, layout: &RowLayout) -> Result<Vec<OutRow<'_>>> {
        let order = match layout.fixed_key_len() {
            Some(len) if len <= 16 => self.order_by(|row, scratch| {
                scratch.clear();
                layout.push_key(row, scratch);
                let mut be = [0u8; 16];
                be[..len].copy_from_slice(scratch);
                u128::from_be_bytes(be)
            })?,
            _ => self.order_by(|row, scratch| {
                scratch.clear();
                layout.push_key(row, scratch);
                Key::from_slice(scratch)
            })?,
        };
        Ok(order.into_iter().map(|i| OutRow { row: self.row(i as usize), seq: 0, tombstone: false }).collect())
    }

    fn order_by<K: Ord>(&self, key_of: impl Fn(&[u8], &mut Vec<u8>) -> K) -> Result<Vec<u32>> {
        let mut scratch = Vec::new();
        let mut keyed: Vec<(K, u32)> =
            (0..self.starts.len()).map(|i| (key_of(self.row(i), &mut scratch), i as u32)).collect();
        if !keyed.is_sorted() {
            keyed.sort_unstable();
        }
        if let Some(pair) = keyed.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            let row = self.row(pair[1].1 as usize).to_vec();
            return Err(Error::Duplicate { index: 0, row, existing: Vec::new() });
        }
        Ok(keyed.into_iter().map(|(_, i)| i).collect())
    }
}

/// A bulk statement's state for one table.
pub struct Bulk {
    /// Rows not handed to the worker yet.
    pub run: Run,
    /// Some row may exist already: to be looked up at the end.
    pub needs_check: bool,
    /// What the statement does with duplicates.
    pub mode: OnDuplicate,
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
    /// Room in a ring of bytes.
    pub reserved: Vec<Reserved>,
}

struct Worker {
    runs: Sender<Run>,
    thread: JoinHandle<Result<Written>>,
}

impl Bulk {
    /// A statement that has no rows yet.
    pub fn new() -> Bulk {
        Bulk { run: Run::default(), needs_check: false, mode: OnDuplicate::Fail, settled: 0, worker: None }
    }

    /// Bytes of rows so far that are not in segments.
    pub fn bytes(&self) -> usize {
        self.settled + self.run.bytes()
    }

    /// The rows collected so far; they and one of `more` bytes go to the write set.
    pub fn settle(&mut self, more: usize) -> Run {
        self.settled = self.bytes() + more;
        std::mem::take(&mut self.run)
    }

    /// Whether some rows went to segments already.
    pub fn has_worker(&self) -> bool {
        self.worker.is_some()
    }

    /// Hands the collected rows to the worker. An error of the worker itself comes from [`Bulk::finish`], at once
    /// when the worker is gone.
    pub fn send_run(&mut self, engine: &Arc<Engine>, table: &Arc<Table>, layout: &Arc<RowLayout>) -> Result<()> {
        let run = std::mem::take(&mut self.run);
        let worker = match self.worker.take() {
            Some(worker) => worker,
            None => Worker::start(engine.clone(), table.clone(), layout.clone(), self.mode)?,
        };
        if worker.runs.send(run).is_err() {
            return worker.join().and(Err(Error::Interrupted));
        }
        self.run.starts.reserve(1024);
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
    fn start(engine: Arc<Engine>, table: Arc<Table>, layout: Arc<RowLayout>, mode: OnDuplicate) -> Result<Worker> {
        let (runs, incoming) = bounded::<Run>(limits::BULK_RUNS_QUEUED);
        let thread = std::thread::Builder::new()
            .name("rrd-bulk".into())
            .spawn(move || {
                let indexes = table.indexes();
                let mut written = Written {
                    rows: Vec::new(),
                    entries: vec![Vec::new(); indexes.len()],
                    passed: None,
                    reserved: Vec::new(),
                };
                for run in incoming {
                    let rows = run.sorted(&layout)?;
                    engine.make_room_for_bulk(&table, rows.len() as u64, &mut written)?;
                    written.rows.extend(engine.write_private(&table, &layout, &rows, Some(mode))?);
                    for (number, index) in indexes.iter().enumerate() {
                        let segments = write_entries(&engine, (index, number), &layout, &run, mode)?;
                        written.entries[number].extend(segments);
                    }
                }
                Ok(written)
            })
            .map_err(Error::io("start a thread for", std::path::Path::new("bulk load")))?;
        Ok(Worker { runs, thread })
    }

    fn join(self) -> Result<Written> {
        drop(self.runs);
        match self.thread.join() {
            Ok(result) => result,
            Err(_) => Err(Error::Poisoned { reason: "the encoder of a bulk statement failed".into() }),
        }
    }
}

/// Writes the entries of a run's rows to private segments of an index.
fn write_entries(
    engine: &Engine,
    (index, number): (&Index, usize),
    layout: &RowLayout,
    run: &Run,
    mode: OnDuplicate,
) -> Result<Vec<PrivateSegment>> {
    let mut entries = Run::default();
    let mut entry = Vec::new();
    for row in run.rows() {
        entry.clear();
        index.push_entry(layout, row, &mut entry)?;
        entries.push(&entry, true);
    }
    let entry_layout = index.table.layout();
    let rows = entries.sorted(&entry_layout).map_err(|error| match error {
        Error::Duplicate { row: entry, .. } => refused_in_run(index, number, layout, run, &entry),
        other => other,
    })?;
    engine.write_private(&index.table, &entry_layout, &rows, Some(mode))
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
    /// Writes rows to private segments: files that vanish again unless their transaction commits.
    pub(crate) fn write_private(
        &self,
        table: &Arc<Table>,
        layout: &Arc<RowLayout>,
        rows: &[OutRow<'_>],
        expects_absent: Option<OnDuplicate>,
    ) -> Result<Vec<PrivateSegment>> {
        let metas = self.write_segments(table, layout, rows, Effort::Fast)?;
        Ok(metas
            .into_iter()
            .map(|meta| {
                let segment = LiveSegment::open(&self.fs, &self.cache, &table.dir, table.id, meta);
                segment.mark_obsolete();
                PrivateSegment { segment, expects_absent, layout: layout.clone() }
            })
            .collect())
    }
}
