//! The files of the log as one thread at a time writes them: the leader of a group.
//!
//! A file gets its name only after its header is durable, so a named file always has a whole header. A file is
//! left for the next one only when all of it is durable, so the next header can say where it ends. A group that
//! a full disk refused is cut off again, durably, before anybody hears of it: what was refused never comes back.
//! Files that are not needed any more wait under temporary names to be written anew, as their room is there already.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::Lsn;
use super::frame::{FRAME_BYTES, FileHeader, HEADER_BYTES};
use crate::error::Error;
use crate::fs::{Fs, WriteFile};
use crate::limits::{LOG_FILES_SPARED, LOG_ROOM_BYTES};

/// How a group failed.
pub enum Failure {
    /// The disk is full. Nothing of the group is left and all before it is durable; the log goes on.
    Full(Error),
    /// What is on disk is not known: no further write.
    Broken(Error),
}

/// A file that is only read or removed.
#[derive(Clone, Debug)]
pub struct Retired {
    pub number: u64,
    pub end: Lsn,
    pub bytes: u64,
}

/// A file of the log and how much of it counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldFile {
    /// Within the log's folder.
    pub name: String,
    /// Its size when it was asked for.
    pub bytes: u64,
}

/// The blocks that a file is written in.
#[derive(Clone, Copy)]
pub struct Blocks {
    /// Bytes of one.
    size: u64,
    /// The position that would be at the file's first byte.
    origin: u64,
}

impl Blocks {
    /// Bytes that a group of `bytes` which ends at `end` should have behind it, so that the next one begins with a block: what
    /// of a block is not the group's is written with it, before it or behind it, and once more with the next. None where it
    /// would make the log much longer.
    pub fn filler(&self, end: Lsn, bytes: usize) -> Option<usize> {
        let used = end.0.wrapping_sub(self.origin) % self.size;
        let gap = (self.size - used) % self.size;
        // A filler is a frame.
        let gap = if gap < FRAME_BYTES as u64 { gap + self.size } else { gap } as usize;
        (used != 0 && gap >= FRAME_BYTES && gap <= bytes / 2).then_some(gap)
    }
}

struct Current {
    file: Box<dyn WriteFile>,
    number: u64,
    blocks: Blocks,
    /// Up to here room was asked for.
    room: u64,
    /// What was durable at last.
    synced: u64,
}

impl Current {
    /// Makes room for `bytes` more, which a sync follows. Where a file is new it costs its bytes once more, so a sync of much
    /// goes without: that of a large group, or of all the groups of a second. So does the last group of a file of `file_bytes`.
    fn reserve(&mut self, bytes: u64, file_bytes: u64) {
        let end = self.file.len() + bytes;
        if end > self.room && end <= file_bytes && end - self.synced < LOG_ROOM_BYTES / 16 {
            self.room = end.next_multiple_of(LOG_ROOM_BYTES);
            self.file.reserve(self.room);
        }
    }

    /// Gives back the room that is left. Nobody is told of it before it is durable: it is only space.
    fn give_back(&mut self) {
        self.room = self.file.len();
        if let Err(error) = self.file.truncate(self.room) {
            tracing::warn!(%error, "could not shorten a log file");
        }
    }
}

/// The files.
pub struct Writer {
    pub fs: Arc<dyn Fs>,
    pub dir: PathBuf,
    pub incarnation: u64,
    pub next_number: u64,
    /// Bytes after which the next group begins a new file.
    pub file_bytes: u64,
    /// Where the log on disk ends.
    pub end: Lsn,
    pub retired: VecDeque<Retired>,
    /// Files to be written anew, which have temporary names.
    spared: Vec<PathBuf>,
    /// The disk was full, and no new file could be made since: it has no room to spare.
    is_full: bool,
    /// How many want the files to stay.
    pub holds: usize,
    current: Option<Current>,
}

impl Writer {
    /// A writer behind `retired` files; it begins a new file with its first group.
    pub fn new(fs: Arc<dyn Fs>, dir: &Path, file_bytes: u64) -> Writer {
        Writer {
            fs,
            dir: dir.to_path_buf(),
            incarnation: 1,
            next_number: 1,
            file_bytes,
            end: Lsn(0),
            retired: VecDeque::new(),
            spared: Vec::new(),
            is_full: false,
            holds: 0,
            current: None,
        }
    }

    /// Hands a group of frames, the first at `start`, to the operating system; and makes all that was written durable.
    pub fn write(&mut self, group: &[u8], start: Lsn, durable: bool) -> Result<(), Failure> {
        let mut handed = self.hand_over(group, start, durable);
        if matches!(handed, Err(Failure::Full(_))) && !self.spared.is_empty() {
            // What was kept for later makes room now.
            self.give_back_spared();
            handed = self.hand_over(group, start, durable);
        }
        handed?;
        if durable { self.sync() } else { Ok(()) }
    }

    /// Gives back files that are not in use, on a full disk.
    pub fn give_back_spared(&mut self) {
        self.is_full = true;
        for path in self.spared.drain(..) {
            let _ = self.fs.remove(&path);
        }
    }

    fn hand_over(&mut self, group: &[u8], start: Lsn, durable: bool) -> Result<(), Failure> {
        if group.is_empty() {
            return Ok(());
        }
        if self.current.as_ref().is_some_and(|c| c.file.len() >= self.file_bytes) {
            self.sync()?;
            self.retire();
        }
        if self.current.is_none() {
            self.begin_file(start)?;
        }
        let path = self.current_path();
        if let Some(current) = &mut self.current {
            let written = if durable {
                current.reserve(group.len() as u64, self.file_bytes);
                current.file.write_through(group)
            } else {
                current.file.write(group)
            };
            if let Err(e) = written {
                let e = at(&path, e);
                if !e.is_disk_full() {
                    return Err(Failure::Broken(e));
                }
                self.cut_off().map_err(Failure::Broken)?;
                return Err(Failure::Full(e));
            }
        }
        self.end = Lsn(start.0 + group.len() as u64);
        Ok(())
    }

    fn sync(&mut self) -> Result<(), Failure> {
        let path = self.current_path();
        match &mut self.current {
            Some(current) => {
                current.file.sync().map_err(|e| Failure::Broken(at(&path, e)))?;
                current.synced = current.file.len();
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Gives back room behind what is written, and in files that are not in use. The next start removes what cannot be now.
    pub fn give_back(&mut self) {
        self.current.iter_mut().for_each(Current::give_back);
        for path in self.spared.drain(..) {
            let _ = self.fs.remove(&path);
        }
    }

    /// Those of the file that is being written.
    pub fn blocks(&self) -> Option<Blocks> {
        self.current.as_ref().map(|c| c.blocks)
    }

    /// Whether a file is being written.
    pub fn is_writing(&self) -> bool {
        self.current.is_some()
    }

    /// Bytes of all files.
    pub fn bytes(&self) -> u64 {
        let current = self.current.as_ref().map_or(0, |c| c.file.len());
        current + self.retired.iter().map(|r| r.bytes).sum::<u64>()
    }

    /// All files, oldest first.
    pub fn files(&self) -> Vec<HeldFile> {
        let retired = self.retired.iter().map(|r| (r.number, r.bytes));
        let current = self.current.iter().map(|c| (c.number, c.file.len()));
        retired.chain(current).map(|(number, bytes)| HeldFile { name: file_name(number), bytes }).collect()
    }

    /// Removes the oldest files as long as nothing behind `keep_from` is in them and nobody holds them.
    pub fn remove_until(&mut self, keep_from: Lsn) -> Result<(), Failure> {
        if self.holds > 0 {
            return Ok(());
        }
        // One file stays in any case: positions and numbers go on from it after a start.
        let kept = usize::from(self.current.is_none());
        while self.retired.len() > kept
            && let Some(oldest) = self.retired.front()
            && oldest.end <= keep_from
        {
            let path = self.dir.join(file_name(oldest.number));
            let spared = self.dir.join(temporary_name(oldest.number));
            // Of the usual size, not one that a large group made longer, or an older version.
            let is_usual = (self.file_bytes..2 * self.file_bytes).contains(&oldest.bytes);
            let is_spared = is_usual && !self.is_full && self.spared.len() < LOG_FILES_SPARED;
            let gone = if is_spared { self.fs.rename(&path, &spared) } else { self.fs.remove(&path) };
            gone.map_err(Failure::Full)?;
            // Durable one by one: were a younger file gone and an older one back, the log would have a gap. And before it is
            // written anew: its old name must never come back for what is in it then.
            self.fs.sync_dir(&self.dir).map_err(Failure::Broken)?;
            if is_spared {
                self.spared.push(spared);
            }
            self.retired.pop_front();
        }
        Ok(())
    }

    fn retire(&mut self) {
        if let Some(mut current) = self.current.take() {
            current.give_back();
            let Current { file, number, .. } = current;
            self.retired.push_back(Retired { number, end: self.end, bytes: file.len() });
        }
    }

    /// Takes away what a refused group left behind and leaves the file.
    fn cut_off(&mut self) -> crate::Result<()> {
        let path = self.current_path();
        let Some(Current { mut file, number, .. }) = self.current.take() else {
            return Ok(());
        };
        let len = file.len();
        if len > HEADER_BYTES as u64 {
            file.truncate(len).map_err(|e| at(&path, e))?;
            file.sync().map_err(|e| at(&path, e))?;
            self.retired.push_back(Retired { number, end: self.end, bytes: len });
        } else {
            // Nothing else is in it. Kept, such files would take up what little space is left.
            drop(file);
            self.fs.remove(&path)?;
            self.fs.sync_dir(&self.dir)?;
            self.next_number = number;
        }
        Ok(())
    }

    fn begin_file(&mut self, start: Lsn) -> Result<(), Failure> {
        let number = self.next_number;
        let path = self.dir.join(file_name(number));
        let (temporary, is_used) = match self.spared.pop() {
            Some(spared) => (spared, true),
            None => (self.dir.join(temporary_name(number)), false),
        };
        let header = FileHeader { number, incarnation: self.incarnation, start, previous_end: self.end };
        match self.make_file(&path, &temporary, is_used, &header) {
            Ok(mut file) => {
                // The name must be durable before a record in the file counts as durable.
                self.fs.sync_dir(&self.dir).map_err(Failure::Broken)?;
                let header_bytes = HEADER_BYTES as u64;
                let blocks = Blocks { size: file.block_bytes(), origin: start.0.wrapping_sub(header_bytes) };
                self.current = Some(Current { file, number, blocks, room: header_bytes, synced: header_bytes });
                self.next_number = number + 1;
                self.is_full &= is_used;
                Ok(())
            }
            Err(e) if e.is_disk_full() => {
                // Should it stay, the next attempt or the next start removes it.
                let _ = self.fs.remove(&temporary);
                Err(Failure::Full(e))
            }
            Err(e) => Err(Failure::Broken(e)),
        }
    }

    fn make_file(
        &self,
        path: &Path,
        temporary: &Path,
        is_used: bool,
        header: &FileHeader,
    ) -> crate::Result<Box<dyn WriteFile>> {
        let used = is_used.then(|| self.fs.reuse(temporary).ok()).flatten();
        let mut file = match used {
            Some(file) => file,
            None => {
                if self.fs.exists(temporary) {
                    self.fs.remove(temporary)?;
                }
                self.fs.create(temporary)?
            }
        };
        file.write(&header.encode())?;
        // The header must be durable before the file gets its name.
        file.sync()?;
        self.fs.rename(temporary, path)?;
        Ok(file)
    }

    fn current_path(&self) -> PathBuf {
        let number = self.current.as_ref().map_or(self.next_number, |c| c.number);
        self.dir.join(file_name(number))
    }
}

/// The name of a log file.
pub fn file_name(number: u64) -> String {
    format!("log-{number:016x}.rrdl")
}

/// The name of a log file whose header is not durable yet.
pub fn temporary_name(number: u64) -> String {
    format!("{}.tmp", file_name(number))
}

/// The error with the file's name of today: an open file knows only the one that it was made with.
fn at(path: &Path, error: Error) -> Error {
    match error {
        Error::Io { op, source, .. } => Error::Io { op, path: path.to_path_buf(), source },
        other => other,
    }
}
