//! Whatever column the bytes make comes back from both efforts.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rrd_codec::{Column, Effort, Kind, decode, encode};

fuzz_target!(|data: &[u8]| {
    let Some((&kind, bytes)) = data.split_first() else { return };
    let column = match kind % 4 {
        0 => column_of(Kind::Int, bytes, 8, |column, value| column.push_int(value)),
        1 => column_of(Kind::F32, bytes, 4, |column, value| column.push_f32(f32::from_bits(value as u32))),
        2 => column_of(Kind::F64, bytes, 8, |column, value| column.push_f64(f64::from_bits(value))),
        _ => column_of(Kind::Bytes, bytes, 3, |column, value| column.push_bytes(&value.to_le_bytes()[..3])),
    };
    for effort in [Effort::Fast, Effort::Small] {
        let mut block = Vec::new();
        encode(&column, effort, &mut block);
        assert!(decode(&block, column.kind(), column.rows()).as_ref() == Ok(&column));
    }
});

/// Pieces of some bytes as values; a piece of 0xff only is a null.
fn column_of(kind: Kind, bytes: &[u8], width: usize, push: impl Fn(&mut Column, u64)) -> Column {
    let mut column = Column::new(kind);
    for piece in bytes.chunks(width).take(rrd_codec::MAX_ROWS) {
        if piece.iter().all(|&byte| byte == 0xff) {
            column.push_null();
            continue;
        }
        push(&mut column, piece.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte)));
    }
    column
}
