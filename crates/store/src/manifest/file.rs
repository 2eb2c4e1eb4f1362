//! Bytes of a manifest file: header, one snapshot, then records that each have a receipt behind them.
//!
//! A record is synced before its commit returns; only then is its receipt written, without a sync. So a record
//! that is not whole was never acknowledged when nothing valid follows it (a torn write), and is damage when
//! its receipt or a later record does. What is left undetected: damage of the very last record when a power cut
//! took its receipt as well. A receipt's own damage is harmless and passed over: its length is fixed.
//! Pure functions; the layout is in `docs/internals/format-log.md`.

use std::path::Path;

use super::decode;
use super::edit::State;
use crate::error::{Error, Result};
use crate::limits;

/// The first eight bytes of a manifest.
const MAGIC: [u8; 8] = *b"RRD man\n";

/// The version of the format. Nothing of an older one was ever released.
pub const VERSION: u32 = 2;

/// Bytes of the header.
pub const HEADER_BYTES: usize = 32;

/// Bytes of a frame in front of its payload; a receipt is a frame without one.
pub const FRAME_BYTES: usize = 20;

/// Numbers of tables are below this.
const MAX_TABLE: u32 = 1 << 31;

/// The first bytes of each frame, so that frames behind a damaged one are found cheaply.
const MARK: u32 = 0x4d44_5252;

/// What a frame holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The whole state; the first frame of a file and only that.
    Snapshot = 1,
    /// A list of edits.
    Edits = 2,
    /// Says that the record of the same index is durable.
    Receipt = 3,
}

struct Frame<'a> {
    kind: u32,
    index: u32,
    payload: &'a [u8],
}

/// The header of file `number`.
pub fn header(number: u32) -> [u8; HEADER_BYTES] {
    let mut bytes = [0; HEADER_BYTES];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
    bytes[12..16].copy_from_slice(&number.to_le_bytes());
    let crc = crc32fast::hash(&bytes[..28]);
    bytes[28..].copy_from_slice(&crc.to_le_bytes());
    bytes
}

/// Appends a frame of file `number`.
pub fn put_frame(out: &mut Vec<u8>, number: u32, index: u32, kind: Kind, payload: &[u8]) {
    let start = out.len();
    for field in [MARK, 0, payload.len() as u32, index, kind as u32] {
        out.extend_from_slice(&field.to_le_bytes());
    }
    out.extend_from_slice(payload);
    let crc = checksum(number, &out[start + 8..]);
    out[start + 4..start + 8].copy_from_slice(&crc.to_le_bytes());
}

/// The state that the file `number` at `path` adds up to.
pub fn read(bytes: &[u8], number: u32, path: &Path) -> Result<State> {
    check_header(bytes, number, path)?;
    let damaged = |offset: usize, what: String| Error::corrupt(path, offset as u64, what);
    let mut offset = HEADER_BYTES;
    let mut state = match expect(bytes, offset, number, 0, Kind::Snapshot) {
        Ok(payload) => {
            let state = decode::state(payload).map_err(|what| damaged(offset, what))?;
            offset += FRAME_BYTES + payload.len();
            state
        }
        // The file got its name only after the snapshot was durable.
        Err(what) => return Err(damaged(offset, what.into())),
    };
    let mut index = 1;
    while offset < bytes.len() {
        let payload = match expect(bytes, offset, number, index, Kind::Edits) {
            Ok(payload) => payload,
            Err(what) if was_durable(&bytes[offset..], number, index) => {
                return Err(damaged(offset, what.into()));
            }
            Err(_) => break,
        };
        let edits = decode::edits(payload).map_err(|what| damaged(offset, what))?;
        for edit in &edits {
            state.apply_fitted(edit).map_err(|e| damaged(offset, e.to_string()))?;
        }
        offset += FRAME_BYTES + payload.len() + FRAME_BYTES;
        index += 1;
    }
    match state.largest_number() < limits::MAX_NUMBER && state.next_table < MAX_TABLE {
        true => Ok(state),
        false => Err(damaged(HEADER_BYTES, "a number is too large to be true".into())),
    }
}

fn check_header(bytes: &[u8], number: u32, path: &Path) -> Result<()> {
    let Some(header) = bytes.get(..HEADER_BYTES) else {
        return Err(Error::corrupt(path, bytes.len() as u64, "the file ends within its header"));
    };
    if header[..8] != MAGIC {
        return Err(Error::corrupt(path, 0, "this is not a manifest"));
    }
    // The checksum stands at the same place in every version, so a flipped bit is not a "newer version".
    if crc32fast::hash(&header[..28]) != u32_at(header, 28) {
        return Err(Error::corrupt(path, 0, "the header's checksum does not match"));
    }
    let version = u32_at(header, 8);
    if version != VERSION {
        return Err(Error::Incompatible { path: path.to_path_buf(), found: version, supported: VERSION });
    }
    if number == u32::MAX {
        return Err(Error::corrupt(path, 12, "there is no number left for the next manifest"));
    }
    if u32_at(header, 12) != number {
        let found = u32_at(header, 12);
        return Err(Error::corrupt(path, 12, format!("it is manifest {found:#x} under another name")));
    }
    Ok(())
}

/// The payload of the frame at `offset`, which has to be of this index and kind.
fn expect(
    bytes: &[u8],
    offset: usize,
    number: u32,
    index: u32,
    kind: Kind,
) -> std::result::Result<&[u8], &'static str> {
    let frame = frame(&bytes[offset..], number)?;
    match frame.index == index && frame.kind == kind as u32 {
        true => Ok(frame.payload),
        false => Err("the record is not the one that belongs here"),
    }
}

/// Whether a whole frame somewhere behind the start of `tail` could only be written after record `index` was
/// durable.
fn was_durable(tail: &[u8], number: u32, index: u32) -> bool {
    let follows = |at: usize| frame(&tail[at..], number).is_ok_and(|frame| frame.index >= index);
    (1..tail.len()).any(follows)
}

fn frame(bytes: &[u8], number: u32) -> std::result::Result<Frame<'_>, &'static str> {
    if bytes.len() < FRAME_BYTES {
        return Err("the record is cut off");
    }
    if u32_at(bytes, 0) != MARK {
        return Err("no record begins here");
    }
    let end = (u32_at(bytes, 8) as usize).checked_add(FRAME_BYTES);
    let Some(whole) = end.and_then(|end| bytes.get(..end)) else {
        return Err("the record is cut off");
    };
    if checksum(number, &whole[8..]) != u32_at(whole, 4) {
        return Err("the record's checksum does not match");
    }
    Ok(Frame { kind: u32_at(whole, 16), index: u32_at(whole, 12), payload: &whole[FRAME_BYTES..] })
}

fn checksum(number: u32, bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&number.to_le_bytes());
    hasher.update(bytes);
    hasher.finalize()
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut le = [0; 4];
    le.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(le)
}
