//! Bytes of a log file: its header and the frames behind it.
//!
//! Pure functions between values and bytes; the layout is in `docs/internals/format-log.md`. A frame's checksum is
//! seeded with the incarnation of the log that wrote it, and a frame names its own position, so that neither
//! stale bytes nor a payload that looks like a frame is ever taken for one.

use std::path::Path;

use super::Lsn;
use crate::error::{Error, Result};
use crate::limits;

/// The first eight bytes of a log file.
pub const MAGIC: [u8; 8] = *b"RRD log\n";

/// The version of the format. Nothing of an older one was ever released.
pub const VERSION: u32 = 6;

/// Bytes of a file's header.
pub const HEADER_BYTES: usize = 64;

/// Bytes of a frame in front of its payload.
pub const FRAME_BYTES: usize = 24;

/// In the length of a frame whose payload says nothing.
const FILLER: u32 = 1 << 31;

/// What a log file says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileHeader {
    /// The number in its name; consecutive.
    pub number: u64,
    /// Counts the times that the log was opened and written to.
    pub incarnation: u64,
    /// Position of the first frame.
    pub start: Lsn,
    /// Where the file before this one ends: all of it up to there is durable, anything behind is void.
    pub previous_end: Lsn,
}

/// A whole frame in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// All of the log up to here was durable when the frame was made.
    pub synced: Lsn,
    /// The record; empty for a mark and for a filler.
    pub payload: &'a [u8],
    /// All of its bytes.
    pub bytes: usize,
}

impl FileHeader {
    /// The file's first bytes.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.number.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.incarnation.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.start.0.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.previous_end.0.to_le_bytes());
        let crc = crc32fast::hash(&bytes[..60]);
        bytes[60..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Reads the first bytes of the file at `path`.
    pub fn decode(bytes: &[u8; HEADER_BYTES], path: &Path) -> Result<FileHeader> {
        if bytes[..8] != MAGIC {
            return Err(Error::corrupt(path, 0, "this is not a log file"));
        }
        // The checksum stands at the same place in every version, so a flipped bit is not a "newer version".
        if crc32fast::hash(&bytes[..60]) != u32_at(bytes, 60) {
            return Err(Error::corrupt(path, 0, "the header's checksum does not match"));
        }
        let version = u32_at(bytes, 8);
        if version != VERSION {
            return Err(Error::Incompatible { path: path.to_path_buf(), found: version, supported: VERSION });
        }
        let header = FileHeader {
            number: u64_at(bytes, 16),
            incarnation: u64_at(bytes, 24),
            start: Lsn(u64_at(bytes, 32)),
            previous_end: Lsn(u64_at(bytes, 40)),
        };
        let largest = header.number.max(header.incarnation).max(header.start.0).max(header.previous_end.0);
        if largest >= limits::MAX_NUMBER {
            return Err(Error::corrupt(path, 16, "a number of the header is too large to be true"));
        }
        Ok(header)
    }
}

/// Appends a frame at position `at` to `out`; `parts` together are its payload.
pub fn encode(out: &mut Vec<u8>, incarnation: u64, at: Lsn, synced: Lsn, parts: &[&[u8]]) {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    out.reserve(FRAME_BYTES + length);
    put(out, incarnation, at, synced, length as u32, |out| parts.iter().for_each(|part| out.extend_from_slice(part)));
}

/// Appends a frame of so many bytes, at least [`FRAME_BYTES`], that says nothing.
pub fn fill(out: &mut Vec<u8>, incarnation: u64, at: Lsn, synced: Lsn, bytes: usize) {
    let end = out.len() + bytes;
    put(out, incarnation, at, synced, FILLER | (bytes - FRAME_BYTES) as u32, |out| out.resize(end, 0));
}

fn put(out: &mut Vec<u8>, incarnation: u64, at: Lsn, synced: Lsn, length: u32, payload: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(&at.0.to_le_bytes());
    out.extend_from_slice(&synced.0.to_le_bytes());
    payload(out);
    let crc = checksum(incarnation, &out[start + 4..]);
    out[start..start + 4].copy_from_slice(&crc.to_le_bytes());
}

/// The frame at position `at`, with which `bytes` begins, or what is wrong with it.
pub fn decode(bytes: &[u8], incarnation: u64, at: Lsn) -> std::result::Result<Frame<'_>, &'static str> {
    if bytes.len() < FRAME_BYTES {
        return Err("the record is cut off");
    }
    if u64_at(bytes, 8) != at.0 {
        return Err("the record names another position");
    }
    let told = u32_at(bytes, 4);
    let length = (told & !FILLER) as usize;
    if length > limits::MAX_LOG_RECORD {
        return Err("the record's length is over the limit");
    }
    let Some(frame) = bytes.get(..FRAME_BYTES + length) else {
        return Err("the record is cut off");
    };
    if checksum(incarnation, &frame[4..]) != u32_at(frame, 0) {
        return Err("the record's checksum does not match");
    }
    let payload = if told & FILLER == 0 { &frame[FRAME_BYTES..] } else { &[] };
    Ok(Frame { synced: Lsn(u64_at(frame, 16)), payload, bytes: frame.len() })
}

fn checksum(incarnation: u64, bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&incarnation.to_le_bytes());
    hasher.update(bytes);
    hasher.finalize()
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut le = [0; 4];
    le.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(le)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut le = [0; 8];
    le.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(le)
}
