//! Segment files of any blocks and footers, for fuzzing.

use rrd_codec::Effort;

use super::format::{FileHeader, HEADER_BYTES, TRAILER_BYTES, Trailer, VERSION};
use super::{SegmentIndex, SegmentMeta};
use crate::manifest::edit::TableId;

/// A footer behind so many bytes of blocks: what reads as an index comes back from what is written of it.
pub(crate) fn check_footer(footer: &[u8], block_bytes: usize) {
    let offset = (HEADER_BYTES + block_bytes) as u64;
    let Ok(index) = SegmentIndex::from_bytes(footer, offset) else { return };
    let again = SegmentIndex::from_bytes(&index.to_bytes(Effort::Fast), offset);
    assert!(again.is_ok_and(|again| again == index), "an index that does not come back");
}

/// A file of these parts.
pub(crate) fn file_of(table: TableId, meta: &SegmentMeta, blocks: &[u8], footer: &[u8]) -> Vec<u8> {
    let header = FileHeader { version: VERSION, table: table.0, segment: meta.id, schema_version: meta.schema_version };
    let trailer = Trailer {
        footer_offset: (HEADER_BYTES + blocks.len()) as u64,
        footer_length: footer.len() as u32,
        footer_crc: crc32fast::hash(footer),
    };
    [&header.to_bytes()[..], blocks, footer, &trailer.to_bytes(meta.id)].concat()
}

/// Blocks and footer of a sound file.
pub(crate) fn parts_of(file: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let end = file.len() - TRAILER_BYTES;
    let offset = file[end..].first_chunk().map_or(0, |offset| u64::from_le_bytes(*offset)) as usize;
    (file[HEADER_BYTES..offset].to_vec(), file[offset..end].to_vec())
}
