//! The fixed parts of a segment file as bytes: header, block headers, trailer.
//!
//! Layouts are specified in `docs/internals/format.md`. Everything here is pure: bytes to fields and back. A mismatch is
//! a [`Damage`] with its place within the bytes given; the reader knows the file and adds it.

use crc32fast::Hasher;

use super::meta::SegmentId;
use crate::schema::Lane;

/// Newest format version, the one that is written.
pub(crate) const VERSION: u32 = 1;
/// Bytes of the file header.
pub(crate) const HEADER_BYTES: usize = 32;
/// Bytes of a block's header.
pub(crate) const BLOCK_HEADER_BYTES: usize = 20;
/// Bytes of the trailer.
pub(crate) const TRAILER_BYTES: usize = 24;
/// Column id of the sequence numbers.
pub(crate) const SEQ_COLUMN: u32 = u32::MAX;
/// Column id of the row kinds.
pub(crate) const KIND_COLUMN: u32 = u32::MAX - 1;
/// Lane of the sequence numbers.
pub(crate) const SEQ_LANE: Lane = Lane::Int { width: 8 };
/// Lane of the row kinds.
pub(crate) const KIND_LANE: Lane = Lane::Int { width: 1 };

const MAGIC: [u8; 8] = *b"\x89RRDS\r\n\x1a";
const BLOCK_MARK: u8 = 0xB7;
const END_MAGIC: [u8; 4] = *b"RRDE";

/// Bytes that are not what the format says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Damage {
    /// Where, counted from the start of the bytes looked at.
    pub at: usize,
    /// What does not hold.
    pub what: String,
}

impl Damage {
    pub(crate) fn new(at: usize, what: impl Into<String>) -> Damage {
        Damage { at, what: what.into() }
    }
}

/// The file header's fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileHeader {
    pub version: u32,
    pub table: u32,
    pub segment: SegmentId,
    pub schema_version: u32,
}

impl FileHeader {
    pub(crate) fn to_bytes(self) -> [u8; HEADER_BYTES] {
        let mut out = [0; HEADER_BYTES];
        out[..8].copy_from_slice(&MAGIC);
        out[8..12].copy_from_slice(&self.version.to_le_bytes());
        out[12..16].copy_from_slice(&self.table.to_le_bytes());
        out[16..24].copy_from_slice(&self.segment.0.to_le_bytes());
        out[24..28].copy_from_slice(&self.schema_version.to_le_bytes());
        let crc = crc32fast::hash(&out[..28]);
        out[28..].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// Does not judge the version: the caller must.
    pub(crate) fn from_bytes(bytes: &[u8; HEADER_BYTES]) -> Result<FileHeader, Damage> {
        if bytes[..8] != MAGIC {
            return Err(Damage::new(0, "this is not a segment file"));
        }
        if u32_at(bytes, 28) != crc32fast::hash(&bytes[..28]) {
            return Err(Damage::new(0, "checksum of the file header differs"));
        }
        Ok(FileHeader {
            version: u32_at(bytes, 8),
            table: u32_at(bytes, 12),
            segment: SegmentId(u64_at(bytes, 16)),
            schema_version: u32_at(bytes, 24),
        })
    }
}

/// A block header's fields, but for the checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockHeader {
    pub lane: Lane,
    pub rows: u32,
    pub column: u32,
    pub group: u32,
    pub length: u32,
}

impl BlockHeader {
    /// The header of `payload`, checksum included.
    pub(crate) fn to_bytes(self, segment: SegmentId, payload: &[u8]) -> [u8; BLOCK_HEADER_BYTES] {
        let mut out = [0; BLOCK_HEADER_BYTES];
        out[0] = BLOCK_MARK;
        out[1] = lane_byte(self.lane);
        out[2..4].copy_from_slice(&((self.rows - 1) as u16).to_le_bytes());
        out[4..8].copy_from_slice(&self.column.to_le_bytes());
        out[8..12].copy_from_slice(&self.group.to_le_bytes());
        out[12..16].copy_from_slice(&self.length.to_le_bytes());
        let crc = block_crc(segment, &out[..16], payload);
        out[16..].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// Reads the fields; the checksum is checked by [`check_block`].
    pub(crate) fn from_bytes(bytes: &[u8]) -> Result<BlockHeader, Damage> {
        if bytes.len() < BLOCK_HEADER_BYTES {
            return Err(Damage::new(0, "the file ends within a block header"));
        }
        if bytes[0] != BLOCK_MARK {
            return Err(Damage::new(0, "no block starts here"));
        }
        Ok(BlockHeader {
            lane: lane_of_byte(bytes[1]).ok_or_else(|| Damage::new(1, format!("unknown lane {:#04x}", bytes[1])))?,
            rows: u32::from(u16::from_le_bytes([bytes[2], bytes[3]])) + 1,
            column: u32_at(bytes, 4),
            group: u32_at(bytes, 8),
            length: u32_at(bytes, 12),
        })
    }
}

/// Checks the checksum of a whole block, header and payload.
pub(crate) fn check_block(segment: SegmentId, block: &[u8]) -> Result<(), Damage> {
    let (header, payload) = block
        .split_at_checked(BLOCK_HEADER_BYTES)
        .ok_or_else(|| Damage::new(0, "the file ends within a block header"))?;
    if u32_at(header, 16) != block_crc(segment, &header[..16], payload) {
        return Err(Damage::new(0, "checksum of the block differs"));
    }
    Ok(())
}

fn block_crc(segment: SegmentId, fields: &[u8], payload: &[u8]) -> u32 {
    let mut hasher = Hasher::new();
    hasher.update(&segment.0.to_le_bytes());
    hasher.update(fields);
    hasher.update(payload);
    hasher.finalize()
}

/// The trailer's fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Trailer {
    pub footer_offset: u64,
    pub footer_length: u32,
    pub footer_crc: u32,
}

impl Trailer {
    pub(crate) fn to_bytes(self, segment: SegmentId) -> [u8; TRAILER_BYTES] {
        let mut out = [0; TRAILER_BYTES];
        out[..8].copy_from_slice(&self.footer_offset.to_le_bytes());
        out[8..12].copy_from_slice(&self.footer_length.to_le_bytes());
        out[12..16].copy_from_slice(&self.footer_crc.to_le_bytes());
        let crc = block_crc(segment, &out[..16], &[]);
        out[16..20].copy_from_slice(&crc.to_le_bytes());
        out[20..].copy_from_slice(&END_MAGIC);
        out
    }

    /// The trailer of a file of `file_bytes` bytes.
    pub(crate) fn from_bytes(
        bytes: &[u8; TRAILER_BYTES],
        segment: SegmentId,
        file_bytes: u64,
    ) -> Result<Trailer, Damage> {
        if bytes[20..] != END_MAGIC {
            return Err(Damage::new(20, "the end of the file is missing"));
        }
        if u32_at(bytes, 16) != block_crc(segment, &bytes[..16], &[]) {
            return Err(Damage::new(0, "checksum of the trailer differs"));
        }
        let trailer =
            Trailer { footer_offset: u64_at(bytes, 0), footer_length: u32_at(bytes, 8), footer_crc: u32_at(bytes, 12) };
        let end = trailer.footer_offset.checked_add(u64::from(trailer.footer_length) + TRAILER_BYTES as u64);
        if trailer.footer_offset < HEADER_BYTES as u64 || end != Some(file_bytes) {
            return Err(Damage::new(0, "the trailer's footer does not end where the trailer begins"));
        }
        Ok(trailer)
    }
}

/// A lane as one byte.
pub(crate) fn lane_byte(lane: Lane) -> u8 {
    match lane {
        Lane::Int { width } => width,
        Lane::F32 => 0x10,
        Lane::F64 => 0x11,
        Lane::Bytes => 0x12,
    }
}

/// The lane of a byte, if it is one.
pub(crate) fn lane_of_byte(byte: u8) -> Option<Lane> {
    match byte {
        1..=8 => Some(Lane::Int { width: byte }),
        0x10 => Some(Lane::F32),
        0x11 => Some(Lane::F64),
        0x12 => Some(Lane::Bytes),
        _ => None,
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}
