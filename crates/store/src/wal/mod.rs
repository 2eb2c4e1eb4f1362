//! The log: every commit goes here before it is acknowledged, and is replayed from here after a crash.
//!
//! One log for the engine, in files `log-<number>.rrdl`. [`Wal::append`] puts a record into a buffer, in commit
//! order and without touching the disk; [`Wal::sync`] makes it durable. Whoever comes first writes and syncs for
//! all who wait (group commit). A failed sync, or a write that failed for any other reason than a full disk,
//! poisons the log: nothing is written after it. A full disk fails exactly the records that were to be written;
//! they never come back, their positions are skipped, and the log goes on as soon as there is space.
//! What the records mean is the business of others; byte layouts are in `docs/internals/format-log.md`.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};

use crate::error::{Error, Result};
use crate::fs::Fs;
use crate::limits;
use crate::pause::Pause;

mod frame;
mod gather;
#[cfg(feature = "fuzz")]
mod raw;
mod recover;
mod wait;
mod writer;

#[cfg(test)]
mod tests;

use gather::Gather;
#[cfg(feature = "fuzz")]
pub(crate) use raw::{for_each_raw, write_raw};
pub use recover::Replay;
use wait::{Seat, Waiter, Word};
pub use writer::HeldFile;
use writer::{Blocks, Failure, Writer};

/// Capacity of a buffer above which it is not kept for the next group.
const KEPT_BUFFER_BYTES: usize = 4 << 20;

/// A position in the log. A record's is where it ends; positions only grow, over all files and restarts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Lsn(pub u64);

/// The log.
pub struct Wal {
    dir: PathBuf,
    incarnation: u64,
    shared: Mutex<Shared>,
    /// Only the leader and `truncate` take it, never while they hold `shared`.
    writer: Mutex<Writer>,
}

struct Shared {
    /// Frames that no leader has taken yet.
    buffer: Vec<u8>,
    /// An empty buffer, kept for its capacity.
    spare: Vec<u8>,
    /// Position of the buffer's first byte.
    buffer_start: Lsn,
    /// Position of the next frame.
    end: Lsn,
    /// Up to here records are with the operating system, or refused.
    written: Lsn,
    /// Up to here records are durable, or refused.
    synced: Lsn,
    /// Where the last mark ends; see [`Wal::mark`].
    marked: Lsn,
    /// What a full disk refused.
    refused: Vec<Refused>,
    /// How often a full disk refused something.
    refusals: u64,
    /// Whether a leader is at work.
    busy: bool,
    /// Who waits for a leader, in the order in which they came.
    waiters: Vec<Waiter>,
    gather: Gather,
    /// Whether one of those who wait waits for others, and will lead when its time is up.
    gathering: bool,
    poisoned: Option<String>,
    file_bytes: u64,
    /// Those of the file that the last group went to.
    blocks: Option<Blocks>,
}

/// Records that end behind `after` and not behind `end` were refused.
struct Refused {
    after: Lsn,
    end: Lsn,
    errno: i32,
}

impl Wal {
    /// Replays the log in `dir` (made if missing), oldest record first, and continues it in a new file.
    pub fn open(fs: Arc<dyn Fs>, dir: &Path, replay: &mut Replay<'_>) -> Result<Wal> {
        Wal::open_with(fs, dir, limits::LOG_FILE_BYTES, replay)
    }

    /// [`Wal::open`] with another size of files.
    fn open_with(fs: Arc<dyn Fs>, dir: &Path, file_bytes: u64, replay: &mut Replay<'_>) -> Result<Wal> {
        let writer = recover::recover(fs, dir, file_bytes, replay)?;
        let end = writer.end;
        let shared = Shared {
            buffer: Vec::new(),
            spare: Vec::new(),
            buffer_start: end,
            end,
            written: end,
            synced: end,
            marked: end,
            refused: Vec::new(),
            refusals: 0,
            busy: false,
            waiters: Vec::new(),
            gather: Gather::default(),
            gathering: false,
            poisoned: None,
            file_bytes: writer.bytes(),
            blocks: None,
        };
        Ok(Wal {
            dir: dir.to_path_buf(),
            incarnation: writer.incarnation,
            shared: Mutex::new(shared),
            writer: Mutex::new(writer),
        })
    }

    /// Appends a record, which must not be empty, to the buffer and gives its position.
    pub fn append(&self, payload: &[u8]) -> Result<Lsn> {
        self.append_parts(&[payload])
    }

    /// [`Wal::append`] of a record that lies in several places.
    pub fn append_parts(&self, parts: &[&[u8]]) -> Result<Lsn> {
        let length: usize = parts.iter().map(|part| part.len()).sum();
        if length > limits::MAX_LOG_RECORD {
            let limit = limits::MAX_LOG_RECORD as u64;
            return Err(Error::LimitExceeded { what: "a log record".into(), limit });
        }
        if length == 0 {
            return Err(Error::InvalidInput("a log record is empty".into()));
        }
        let mut shared = self.shared.lock();
        shared.check_poison()?;
        Ok(shared.append(self.incarnation, parts))
    }

    /// Makes the record that ends at `up_to`, and all before it, durable. An error is this record's own: on a
    /// full disk it was refused and is not in the log; the records before it may have been refused as well.
    pub fn sync(&self, up_to: Lsn) -> Result<()> {
        self.flush(up_to, true, &|| ())
    }

    /// Hands the record that ends at `up_to`, and all before it, to the operating system.
    pub fn write(&self, up_to: Lsn) -> Result<()> {
        self.flush(up_to, false, &|| ())
    }

    /// What became of the record that ends at `up_to`, if that is known: durable, or with the operating system.
    pub fn fate(&self, up_to: Lsn, durable: bool) -> Option<Result<()>> {
        self.outcome(&self.shared.lock(), up_to, durable)
    }

    /// Up to here every record is durable, or was refused by a full disk.
    pub fn synced(&self) -> Lsn {
        self.shared.lock().synced
    }

    /// How often a full disk refused records.
    pub fn refusals(&self) -> u64 {
        self.shared.lock().refusals
    }

    /// Where the newest record ends.
    pub fn position(&self) -> Lsn {
        self.shared.lock().end
    }

    /// Bytes of all files and of the buffer.
    pub fn bytes(&self) -> u64 {
        let shared = self.shared.lock();
        shared.file_bytes + shared.buffer.len() as u64
    }

    /// Bytes of records that are not with the operating system yet.
    pub fn unwritten(&self) -> usize {
        self.shared.lock().buffer.len()
    }

    /// Removes whole files in which no record ends behind `keep_from`. The newest file always stays. A file
    /// that cannot be removed is an error and tried again by the next call.
    pub fn truncate(&self, keep_from: Lsn) -> Result<()> {
        let mut writer = self.writer.lock();
        self.shared.lock().check_poison()?;
        let outcome = writer.remove_until(keep_from);
        let mut shared = self.shared.lock();
        shared.file_bytes = writer.bytes();
        match outcome {
            Ok(()) => Ok(()),
            Err(Failure::Full(e)) => Err(e),
            Err(Failure::Broken(e)) => {
                shared.poisoned = Some(e.to_string());
                // There may be no leader who would tell them.
                shared.take_served().into_iter().for_each(|(waiter, _)| waiter.seat.call(Word::Look));
                Err(e)
            }
        }
    }

    /// The files as they are now and where the log on disk ends. None of them is removed before [`Wal::release`]; they
    /// may grow, and up to the sizes given here they do not change any more.
    pub fn hold(&self) -> (Vec<HeldFile>, Lsn) {
        let mut writer = self.writer.lock();
        writer.holds += 1;
        (writer.files(), writer.end)
    }

    /// Ends a [`Wal::hold`].
    pub fn release(&self) {
        self.writer.lock().holds -= 1;
    }

    /// The bytes of records as they would follow `end` in the newest file, for a copy of it; and where they end.
    pub fn encode_behind(&self, end: Lsn, records: &[Vec<u8>]) -> (Vec<u8>, Lsn) {
        let mut bytes = Vec::new();
        for record in records {
            let at = Lsn(end.0 + bytes.len() as u64);
            frame::encode(&mut bytes, self.incarnation, at, end, &[record]);
        }
        let end = Lsn(end.0 + bytes.len() as u64);
        (bytes, end)
    }

    /// Makes everything durable and writes a mark that says so: damage of a record in front of a mark is told
    /// from a torn write, which is ignored. To be called at shutdown, and now and then when the log is idle.
    pub fn mark(&self) -> Result<()> {
        let end = self.position();
        self.sync(end)?;
        let is_writing = self.writer.lock().is_writing();
        let mut shared = self.shared.lock();
        if !is_writing || shared.marked == shared.end {
            return Ok(());
        }
        shared.check_poison()?;
        shared.marked = shared.append(self.incarnation, &[]);
        let marked = shared.marked;
        drop(shared);
        self.write(marked)
    }

    /// Makes everything durable, marks the end, and gives back the room behind it; for a clean shutdown.
    pub fn close(&self) -> Result<()> {
        self.mark()?;
        self.sync(self.position())?;
        self.writer.lock().give_back();
        Ok(())
    }

    /// Gives back what is kept for later files: the disk is full.
    pub fn give_back_spared(&self) {
        self.writer.lock().give_back_spared();
    }

    /// [`Wal::sync`] or [`Wal::write`]. When the fate of a group is known, its leader calls `settled` before it wakes
    /// those who wait for it, so that what it can do for all of them is done once and they wake only once.
    pub fn flush(&self, up_to: Lsn, durable: bool, settled: &dyn Fn()) -> Result<()> {
        let (mut has_come, mut has_waited) = (false, false);
        let mut shared = self.shared.lock();
        loop {
            if let Some(outcome) = self.outcome(&shared, up_to, durable) {
                return outcome;
            }
            if durable && !std::mem::replace(&mut has_come, true) {
                shared.gather.arrive(Instant::now());
            }
            let limit = match shared.turn(durable, has_waited) {
                Turn::Lead => {
                    self.lead(&mut shared, durable, settled);
                    continue;
                }
                Turn::Wait => None,
                Turn::Gather(limit) => Some(limit),
            };
            let seat = Seat::take();
            shared.waiters.push(Waiter { up_to, durable, seat: seat.clone() });
            drop(shared);
            let mut word = seat.wait(limit);
            if word.is_none() {
                // Nobody came in time, unless it was called upon just now.
                shared = self.shared.lock();
                has_waited = true;
                if shared.leave(&seat) {
                    continue;
                }
                drop(shared);
                word = seat.wait(None);
            }
            if word == Some(Word::Done) {
                return Ok(());
            }
            shared = self.shared.lock();
        }
    }

    /// What became of the record that ends at `up_to`, once that is known.
    fn outcome(&self, shared: &Shared, up_to: Lsn, durable: bool) -> Option<Result<()>> {
        if let Some(errno) = shared.refused_with(up_to) {
            let source = io::Error::from_raw_os_error(errno);
            return Some(Err(Error::io("write", &self.dir)(source)));
        }
        let reached = if durable { shared.synced } else { shared.written };
        if up_to <= reached {
            return Some(Ok(()));
        }
        if up_to > shared.end {
            return Some(Err(Error::InvalidInput("a position behind the end of the log".into())));
        }
        shared.check_poison().err().map(Err)
    }

    /// Writes all that is in the buffer, and syncs, for everybody who waits.
    fn lead(&self, shared: &mut MutexGuard<'_, Shared>, durable: bool, settled: &dyn Fn()) {
        let spare = std::mem::take(&mut shared.spare);
        let mut group = std::mem::replace(&mut shared.buffer, spare);
        if durable {
            shared.fill(self.incarnation, &mut group);
        }
        let (start, end) = (shared.buffer_start, shared.end);
        shared.buffer_start = end;
        shared.busy = true;
        shared.gathering = false;
        let begun = Instant::now();
        let (outcome, file_bytes, blocks) = MutexGuard::unlocked(shared, || {
            let _pause = durable.then(Pause::begin);
            let mut writer = self.writer.lock();
            let outcome = writer.write(&group, start, durable);
            (outcome, writer.bytes(), writer.blocks())
        });
        shared.busy = false;
        (shared.file_bytes, shared.blocks) = (file_bytes, blocks);
        shared.settle(outcome, start, end, durable);
        if group.capacity() <= KEPT_BUFFER_BYTES {
            group.clear();
            shared.spare = group;
        }
        let served = shared.take_served();
        let now = Instant::now();
        if durable {
            shared.gather.settle(served.len() + 1, now - begun, now);
        }
        let next = shared.take_first();
        // It waits for those who are woken, so they go first; else its group is on its way to the disk while this one's
        // commits are applied.
        let waits = shared.gather.patience(now).is_some();
        MutexGuard::unlocked(shared, || {
            let call_next = || next.iter().for_each(|next| next.seat.call(Word::Look));
            if !waits {
                call_next();
            }
            settled();
            served
                .into_iter()
                .for_each(|(waiter, is_done)| waiter.seat.call(if is_done { Word::Done } else { Word::Look }));
            if waits {
                call_next();
            }
        });
    }
}

/// What somebody does whose record is not where it should be.
enum Turn {
    /// Take all that is in the buffer to the disk.
    Lead,
    /// Wait for who does.
    Wait,
    /// Wait for others as long as this, then lead.
    Gather(Duration),
}

impl Shared {
    fn turn(&mut self, durable: bool, has_waited: bool) -> Turn {
        if self.busy {
            return Turn::Wait;
        }
        if !durable || has_waited || self.gather.is_complete() {
            return Turn::Lead;
        }
        if self.gathering {
            return Turn::Wait;
        }
        match self.gather.patience(Instant::now()) {
            None => Turn::Lead,
            Some(limit) => {
                self.gathering = true;
                Turn::Gather(limit)
            }
        }
    }

    fn append(&mut self, incarnation: u64, parts: &[&[u8]]) -> Lsn {
        let before = self.buffer.len();
        frame::encode(&mut self.buffer, incarnation, self.end, self.synced, parts);
        self.end.0 += (self.buffer.len() - before) as u64;
        self.end
    }

    /// Puts a filler behind a group that is taken from the buffer, if that saves writes.
    fn fill(&mut self, incarnation: u64, group: &mut Vec<u8>) {
        if let Some(bytes) = self.blocks.and_then(|blocks| blocks.filler(self.end, group.len())) {
            frame::fill(group, incarnation, self.end, self.synced, bytes);
            self.end.0 += bytes as u64;
        }
    }

    /// Takes out the waiters whose fate is known, and whether it is what they wanted; a poisoned log has no hope for any.
    fn take_served(&mut self) -> Vec<(Waiter, bool)> {
        let mut served = Vec::new();
        let waiting = std::mem::take(&mut self.waiters);
        for waiter in waiting {
            let reached = if waiter.durable { self.synced } else { self.written };
            let is_done = waiter.up_to <= reached && self.refused_with(waiter.up_to).is_none();
            if is_done || waiter.up_to <= reached || self.poisoned.is_some() {
                served.push((waiter, is_done));
            } else {
                self.waiters.push(waiter);
            }
        }
        served
    }

    /// Takes out the waiter that came first: it leads, unless somebody else does by then.
    fn take_first(&mut self) -> Option<Waiter> {
        (!self.waiters.is_empty()).then(|| self.waiters.remove(0))
    }

    /// Takes out the waiter in a seat, whose time is up. False if somebody else has taken it out: then it is called.
    fn leave(&mut self, seat: &Arc<Seat>) -> bool {
        let at = self.waiters.iter().position(|waiter| Arc::ptr_eq(&waiter.seat, seat));
        at.map(|at| self.waiters.remove(at)).is_some()
    }

    fn check_poison(&self) -> Result<()> {
        match &self.poisoned {
            Some(reason) => Err(Error::Poisoned { reason: reason.clone() }),
            None => Ok(()),
        }
    }

    fn refused_with(&self, lsn: Lsn) -> Option<i32> {
        let refused = |r: &&Refused| r.after < lsn && lsn <= r.end;
        self.refused.iter().rev().find(refused).map(|r| r.errno)
    }

    /// Notes what became of the group from `start` to `end`.
    fn settle(&mut self, outcome: std::result::Result<(), Failure>, start: Lsn, end: Lsn, durable: bool) {
        match outcome {
            Ok(()) => {
                self.written = end;
                if durable {
                    self.synced = end;
                }
            }
            Err(Failure::Full(e)) => {
                let errno = match &e {
                    Error::Io { source, .. } => source.raw_os_error(),
                    _ => None,
                };
                self.refuse(start, end, errno.unwrap_or(libc::ENOSPC));
                // The file before was synced when the refused group was cut off.
                self.written = end;
                self.synced = end;
            }
            Err(Failure::Broken(e)) => self.poisoned = Some(e.to_string()),
        }
    }

    fn refuse(&mut self, after: Lsn, end: Lsn, errno: i32) {
        self.refusals += 1;
        match self.refused.last_mut() {
            // While a disk stays full all of its refusals are one entry.
            Some(last) if last.end == after => *last = Refused { after: last.after, end, errno },
            _ => self.refused.push(Refused { after, end, errno }),
        }
    }
}
