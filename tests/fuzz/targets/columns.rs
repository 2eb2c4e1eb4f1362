//! Columns of all kinds of shapes through the codec and back, then with damage in their blocks.
//!
//! Input: the kind of the values and how many bytes of damage, a byte each; then pieces of the column of ten bytes each
//! (what piece, how many rows, a value of eight); at the end the damage, three bytes each (where, and what is flipped).

#![no_main]

use libfuzzer_sys::fuzz_target;
use rrd_codec::{Column, Effort, Encoder, Kind, codec_name, decode, decode_pieces};

const PIECE_BYTES: usize = 10;
const DAMAGE_BYTES: usize = 3;
/// As in a segment, a column is several blocks long: each is written the way of the one before, where that does.
const BLOCK_ROWS: usize = 1 << 12;

fuzz_target!(|input: &[u8]| {
    let Some((&[kind, damages], rest)) = input.split_first_chunk() else { return };
    let (pieces, damage) = rest.split_at(rest.len().saturating_sub(usize::from(damages) * DAMAGE_BYTES));
    for effort in [Effort::Fast, Effort::Small] {
        let mut encoder = Encoder::new(effort);
        for pieces in pieces.chunks(16 * PIECE_BYTES) {
            let column = column_of(kind, pieces);
            let mut block = Vec::new();
            encoder.encode(&column, &mut block);
            let back = decode(&block, column.kind(), column.rows()).expect("a block that was just written");
            assert!(back == column, "{effort:?} {}", codec_name(&block));
            damage_it(&mut block, damage);
            if let Ok(back) = decode(&block, column.kind(), column.rows()) {
                assert_eq!(back.rows(), column.rows());
            }
            let _ = decode_pieces(&block, column.rows());
        }
    }
});

fn column_of(kind: u8, pieces: &[u8]) -> Column {
    let kind = [Kind::Int, Kind::F32, Kind::F64, Kind::Bytes][usize::from(kind) % 4];
    let mut column = Column::new(kind);
    let mut last = 0u64;
    for piece in pieces.chunks_exact(PIECE_BYTES) {
        let (what, rows) = (piece[0], usize::from(piece[1]));
        let value = piece[2..].iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte));
        for row in 0..rows.min(BLOCK_ROWS - column.rows()) {
            let noise = (row as u64 ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
            last = match what % 8 {
                0 => value,
                1 => last.wrapping_add(value),
                2 => last.wrapping_add(value).wrapping_add(noise % 16),
                3 => noise,
                4 => noise % value.max(1),
                // Decimals: hundredths and the like.
                5 => (((noise % 10_000) as f64) / [1.0, 10.0, 100.0, 1000.0][value as usize % 4]).to_bits(),
                6 => f64::from_bits(value).mul_add(row as f64, 0.5).to_bits(),
                _ => {
                    column.push_null();
                    continue;
                }
            };
            push(&mut column, last);
        }
    }
    column
}

fn push(column: &mut Column, value: u64) {
    match column.kind() {
        Kind::Int => column.push_int(value),
        Kind::F64 => column.push_f64(f64::from_bits(value)),
        // The bits, or the number nearest to the double.
        Kind::F32 if value & 1 == 0 => column.push_f32(f32::from_bits(value as u32)),
        Kind::F32 => column.push_f32(f64::from_bits(value) as f32),
        Kind::Bytes => column.push_bytes(&value.to_be_bytes()[..value as usize % 9]),
    }
}

fn damage_it(block: &mut [u8], damage: &[u8]) {
    for place in damage.chunks_exact(DAMAGE_BYTES) {
        let at = usize::from(u16::from_le_bytes([place[0], place[1]])) % block.len().max(1);
        if let Some(byte) = block.get_mut(at) {
            *byte ^= place[2];
        }
    }
}
