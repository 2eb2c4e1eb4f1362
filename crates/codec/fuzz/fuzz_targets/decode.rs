//! Any bytes, any kind, any number of rows: an error or a column, never a panic.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rrd_codec::{Kind, codec_name, decode};

fuzz_target!(|data: &[u8]| {
    let Some((head, bytes)) = data.split_first_chunk::<2>() else { return };
    // Few rows: time goes to the paths, not to the length.
    let rows = usize::from(head[0]) * 5;
    let kind = [Kind::Int, Kind::F32, Kind::F64, Kind::Bytes][usize::from(head[1] % 4)];
    let _ = codec_name(bytes);
    if let Ok(column) = decode(bytes, kind, rows) {
        assert_eq!(column.rows(), rows);
    }
});
