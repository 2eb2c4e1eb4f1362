//! Any bytes as a block of the codec: an error, or rows that go into a block and come out of it again.
//!
//! Input: the kind of the values, a byte; how many rows, two bytes; the block.

#![no_main]

#[path = "../memory.rs"]
mod memory;

use libfuzzer_sys::fuzz_target;
use rrd_codec::{Column, Effort, Kind, Values, codec_name, decode, decode_compact, decode_pieces, encode};

const KINDS: [Kind; 4] = [Kind::Int, Kind::F32, Kind::F64, Kind::Bytes];

fuzz_target!(|input: &[u8]| memory::bounded(input, read));

fn read(input: &[u8]) {
    let Some((&[kind, low, high], block)) = input.split_first_chunk() else { return };
    let kind = KINDS[usize::from(kind) % KINDS.len()];
    let rows = usize::from(u16::from_le_bytes([low, high]));
    let _ = codec_name(block);
    let pieces = decode_pieces(block, rows);
    let compact = decode_compact(block, kind, rows);
    let Ok(column) = decode(block, kind, rows) else { return };
    assert_eq!(column.rows(), rows);
    if let (Values::Int(values), Ok(Some(pieces))) = (&column.values, pieces) {
        assert!(values.iter().enumerate().all(|(row, value)| pieces.get(row) == *value), "lines and rows differ");
    }
    assert!(compact.is_ok(), "a block that can be read row by row only");
    comes_back(&column, Effort::Fast);
    comes_back(&column, Effort::Small);
}

fn comes_back(column: &Column, effort: Effort) {
    let mut block = Vec::new();
    encode(column, effort, &mut block);
    let back = decode(&block, column.kind(), column.rows()).expect("a block that was just written");
    assert!(back == *column, "{effort:?} {}", codec_name(&block));
}
