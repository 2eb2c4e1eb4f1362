//! Reading the log when the engine starts.
//!
//! Files are read in order and every whole record is handed on. All files but the last have a fixed end, which
//! the header of the next one names: up to there everything was durable and has to be whole. In the last file
//! the first record that is not whole ends the log, because a power cut may have torn what was never
//! acknowledged; unless a whole record behind it says that it was durable, then it is damage.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::Lsn;
use super::frame::{self, FileHeader, HEADER_BYTES};
use super::writer::{self, Retired, Writer};
use crate::error::{Error, Result};
use crate::fs::{Fs, read_whole};
use crate::limits;

/// What recovery does with a record: its end position and its bytes.
pub type Replay<'a> = dyn FnMut(Lsn, &[u8]) -> Result<()> + 'a;

struct LogFile {
    path: PathBuf,
    header: FileHeader,
}

/// Replays the log in `dir` and gives the writer that continues it.
pub fn recover(fs: Arc<dyn Fs>, dir: &Path, file_bytes: u64, replay: &mut Replay<'_>) -> Result<Writer> {
    fs.create_dir(dir)?;
    let files = find_files(&*fs, dir)?;
    let mut writer = Writer::new(fs.clone(), dir, file_bytes);
    for (i, file) in files.iter().enumerate() {
        let next = files.get(i + 1);
        let bytes = read_whole(&*fs, &file.path, limits::MAX_LOG_FILE)?;
        let end = match next {
            Some(next) => replay_closed(file, &bytes, next.header.previous_end, replay)?,
            None => replay_last(file, &bytes, replay)?,
        };
        let header = file.header;
        writer.retired.push_back(Retired { number: header.number, end, bytes: bytes.len() as u64 });
        writer.end = end;
        writer.next_number = header.number + 1;
        writer.incarnation = header.incarnation + 1;
    }
    // A killed server may have left written but unsynced records. They were replayed, so they must stay; and
    // files that it removed must not come back beside those to come.
    if let Some(last) = files.last() {
        fs.sync_file(&last.path)?;
    }
    fs.sync_dir(dir)?;
    Ok(writer)
}

/// The log's files in order, their headers read and checked against each other.
fn find_files(fs: &dyn Fs, dir: &Path) -> Result<Vec<LogFile>> {
    let mut files: Vec<LogFile> = Vec::new();
    // Names come sorted, and the numbers in them have a fixed width.
    for entry in fs.list(dir)? {
        let path = dir.join(&entry.name);
        if entry.name.starts_with("log-") && entry.name.ends_with(".rrdl.tmp") {
            fs.remove(&path)?;
        }
        let Some(number) = number_of(&entry.name) else {
            continue;
        };
        let header = read_header(fs, &path)?;
        check_place(&path, number, &header, files.last().map(|f| &f.header))?;
        files.push(LogFile { path, header });
    }
    Ok(files)
}

fn check_place(path: &Path, number: u64, header: &FileHeader, before: Option<&FileHeader>) -> Result<()> {
    if header.number != number {
        return Err(Error::corrupt(path, 16, format!("it is log file {:#x} under another name", header.number)));
    }
    let Some(before) = before else {
        return Ok(());
    };
    if number != before.number + 1 {
        let missing = writer::file_name(before.number + 1);
        return Err(Error::corrupt(path, 0, format!("the log file '{missing}' before it is missing")));
    }
    if header.previous_end < before.start || header.start < header.previous_end {
        return Err(Error::corrupt(path, 32, "it does not continue the log file before it"));
    }
    Ok(())
}

/// Replays a file that ends at `end`; all of it has to be whole.
fn replay_closed(file: &LogFile, bytes: &[u8], end: Lsn, replay: &mut Replay<'_>) -> Result<Lsn> {
    let mut at = file.header.start;
    while at < end {
        let offset = file.offset(at);
        let frame = frame::decode(rest(bytes, offset), file.header.incarnation, at)
            .map_err(|what| Error::corrupt(&file.path, offset, what))?;
        at = hand_on(&frame, at, replay)?;
    }
    if at > end {
        return Err(Error::corrupt(&file.path, file.offset(end), "a record lies across the end of the file"));
    }
    Ok(end)
}

/// Replays the last file up to its torn tail, if it has one.
fn replay_last(file: &LogFile, bytes: &[u8], replay: &mut Replay<'_>) -> Result<Lsn> {
    let mut at = file.header.start;
    loop {
        let offset = file.offset(at);
        let tail = rest(bytes, offset);
        if tail.is_empty() {
            return Ok(at);
        }
        match frame::decode(tail, file.header.incarnation, at) {
            Ok(frame) => at = hand_on(&frame, at, replay)?,
            Err(what) if was_durable(file, tail, at) => {
                return Err(Error::corrupt(&file.path, offset, what));
            }
            Err(_) => return Ok(at),
        }
    }
}

/// Whether a whole frame somewhere in `tail`, which begins at `at`, says that the log was durable beyond `at`.
fn was_durable(file: &LogFile, tail: &[u8], at: Lsn) -> bool {
    (1..tail.len()).any(|skip| {
        // Cheap for bytes that are no frame: the position is compared before anything is summed up.
        let candidate = frame::decode(&tail[skip..], file.header.incarnation, Lsn(at.0 + skip as u64));
        candidate.is_ok_and(|frame| frame.synced > at)
    })
}

/// Hands a record on and gives its end.
fn hand_on(frame: &frame::Frame<'_>, at: Lsn, replay: &mut Replay<'_>) -> Result<Lsn> {
    let end = Lsn(at.0 + frame.bytes as u64);
    if !frame.payload.is_empty() {
        replay(end, frame.payload)?;
    }
    Ok(end)
}

impl LogFile {
    fn offset(&self, at: Lsn) -> u64 {
        HEADER_BYTES as u64 + (at.0 - self.header.start.0)
    }
}

fn rest(bytes: &[u8], offset: u64) -> &[u8] {
    usize::try_from(offset).ok().and_then(|o| bytes.get(o..)).unwrap_or(&[])
}

fn read_header(fs: &dyn Fs, path: &Path) -> Result<FileHeader> {
    let file = fs.open(path)?;
    if file.len() < HEADER_BYTES as u64 {
        return Err(Error::corrupt(path, file.len(), "the file ends within its header"));
    }
    let mut bytes = [0; HEADER_BYTES];
    file.read_at(0, &mut bytes)?;
    FileHeader::decode(&bytes, path)
}

/// The number in a log file's name; `None` for any other name.
fn number_of(name: &str) -> Option<u64> {
    let number = u64::from_str_radix(name.strip_prefix("log-")?.strip_suffix(".rrdl")?, 16).ok()?;
    (writer::file_name(number) == name).then_some(number)
}
