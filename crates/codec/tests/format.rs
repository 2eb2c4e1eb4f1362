//! Bytes that were written once are read for ever: the worked example of the format, and a kept block of each codec.

use rrd_codec::{Column, Effort, Kind, codec_name, decode, encode};

const FORMAT: &str = include_str!("../../../docs/internals/format-codec.md");
const KEPT: &str = include_str!("kept_blocks.txt");

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<char> = text.chars().filter(|c| !c.is_whitespace()).collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(&pair.iter().collect::<String>(), 16).unwrap_or(0)).collect()
}

/// The bytes in front of the first comment on each line.
fn worked_example() -> Vec<u8> {
    let block = FORMAT.split("```block\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap_or_default();
    block.lines().flat_map(|line| hex(line.split("   ").next().unwrap_or_default())).collect()
}

#[test]
fn the_worked_example_is_right() {
    let mut column = Column::new(Kind::F64);
    for value in [21.5, 21.6, 21.6, f64::NAN, 21.4, 21.5, 21.7, 21.6] {
        if value.is_nan() { column.push_null() } else { column.push_f64(value) }
    }
    assert_eq!(decode(&worked_example(), Kind::F64, 8), Ok(column.clone()));
    let mut written = Vec::new();
    encode(&column, Effort::Fast, &mut written);
    assert_eq!(written, worked_example());
}

/// Hash of a number (splitmix64): the same noise for ever.
fn noise(i: u64) -> u64 {
    let z = i.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

fn ints(rows: u64, value: impl Fn(u64) -> u64) -> Column {
    let mut column = Column::new(Kind::Int);
    (0..rows).for_each(|i| column.push_int(value(i)));
    column
}

fn doubles(rows: u64, value: impl Fn(u64) -> f64) -> Column {
    let mut column = Column::new(Kind::F64);
    (0..rows).for_each(|i| column.push_f64(value(i)));
    column
}

fn strings(rows: u64, value: impl Fn(u64) -> Vec<u8>) -> Column {
    let mut column = Column::new(Kind::Bytes);
    (0..rows).for_each(|i| column.push_bytes(&value(i)));
    column
}

/// The sum of up to twelve small numbers: nearly a normal distribution.
fn bell(i: u64) -> i64 {
    (0..12).map(|j| (noise(i * 12 + j) % 20) as i64).sum::<i64>() - 114
}

fn walk(i: u64) -> i64 {
    // Sums within a stretch: each value takes a bounded time.
    i as i64 / 64 * 100 + (i / 64 * 64..i).map(bell).sum::<i64>()
}

/// The columns whose blocks are kept, by name.
fn columns() -> Vec<(&'static str, Column)> {
    let mut nulls = Column::new(Kind::Int);
    (0..200).for_each(|i| if i % 50 < 9 { nulls.push_null() } else { nulls.push_int(i) });
    let mut bitmap = Column::new(Kind::F32);
    (0..100).for_each(|i| if noise(i) % 2 == 0 { bitmap.push_null() } else { bitmap.push_f32(i as f32 / 8.0) });
    let mut all = Column::new(Kind::Bytes);
    (0..9).for_each(|_| all.push_null());
    let quiet = |i: u64| if i / 512 % 2 == 0 { 1 } else { 5000 };
    let smooth = |i: u64| ((i as f64 / 40.0).sin() * 5000.0) as i64 + bell(i) % 3;
    vec![
        ("nulls in runs", nulls),
        ("nulls here and there", bitmap),
        ("all null", all),
        ("raw", ints(20, noise)),
        ("constant", ints(300, |_| 1 << 63)),
        ("delta", ints(300, |i| 100 + i * 7)),
        ("delta of delta", ints(300, |i| i * i * 3 + noise(i) % 2)),
        ("scaled", ints(300, |i| 17 + noise(i) % 20 * 1_000_000)),
        ("runs", ints(300, |i| noise(i / 30))),
        ("dictionary", ints(300, |i| noise(noise(i) % 5))),
        ("patches", ints(600, |i| if i % 100 == 50 { noise(i) } else { noise(i) % 16 })),
        ("pivots", ints(1024, |i| noise(i / 256) / 2 + noise(i) % 8)),
        ("rans", ints(2000, |i| ((1 << 40) + walk(i)) as u64)),
        ("tables", ints(4096, |i| noise(i) % quiet(i) * (noise(i + 9) % 9))),
        ("linear", ints(3000, |i| ((1 << 40) + smooth(i)) as u64)),
        ("raw doubles", doubles(20, |i| f64::from_bits(noise(i)))),
        ("ordered", doubles(100, |i| (1000.0 + i as f64).sqrt())),
        ("decimals", doubles(300, |i| walk(i) as f64 / 100.0)),
        ("decimals, patches", doubles(300, |i| if i % 90 == 1 { f64::NAN } else { walk(i) as f64 / 10.0 })),
        ("near decimals", doubles(300, |i| walk(i) as f64 * 0.1)),
        ("singles", doubles(100, |i| f64::from((i as f32).sin()))),
        ("raw strings", strings(5, |i| noise(i).to_le_bytes()[..i as usize].to_vec())),
        ("zstd", strings(50, |i| format!("reading number {i} of 50").into_bytes())),
        ("constant string", strings(50, |_| b"RRD".to_vec())),
        (
            "dictionary of strings",
            strings(80, |i| format!("host {}", [1, 22, 333, 4444][noise(i) as usize % 4]).into_bytes()),
        ),
        ("words", strings(60, |i| [&[0, 0, 7, 7][..], &(i * 1000).to_be_bytes()].concat())),
    ]
}

#[test]
fn kept_blocks_are_read() {
    let columns = columns();
    let mut seen = 0;
    for line in KEPT.lines() {
        let fields: Vec<&str> = line.split('|').collect();
        let [name, codec, bytes] = fields[..] else { panic!("three fields in {line:.40}") };
        let Some((_, column)) = columns.iter().find(|column| column.0 == name) else { panic!("no column {name}") };
        let bytes = hex(bytes);
        assert_eq!(codec_name(&bytes), codec, "{name}");
        assert!(decode(&bytes, column.kind(), column.rows()).as_ref() == Ok(column), "{name}");
        seen += 1;
    }
    assert!(seen >= 2 * columns.len(), "{seen} kept blocks");
}

/// With `KEEP_BLOCKS` set it writes the file anew: only for a new format, which keeps the old file under a new name.
#[test]
fn kept_blocks_can_be_written() {
    let mut lines = String::new();
    for (name, column) in columns() {
        for effort in [Effort::Fast, Effort::Small] {
            let mut block = Vec::new();
            encode(&column, effort, &mut block);
            let bytes: String = block.iter().map(|byte| format!("{byte:02x}")).collect();
            lines += &format!("{name}|{}|{bytes}\n", codec_name(&block));
        }
    }
    if std::env::var_os("KEEP_BLOCKS").is_some() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/kept_blocks.txt");
        assert!(std::fs::write(path, &lines).is_ok());
    }
    assert!(lines.lines().count() > 20);
}
