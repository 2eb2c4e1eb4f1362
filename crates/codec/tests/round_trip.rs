//! Whatever goes in comes out, bit by bit, and nothing else is taken for a block.

use proptest::prelude::*;
use rrd_codec::{BytesColumn, Column, DecodeError, Effort, Kind, MAX_ROWS, Values, codec_name, decode, encode};

const EFFORTS: [Effort; 2] = [Effort::Fast, Effort::Small];

fn block(column: &Column, effort: Effort) -> Vec<u8> {
    let mut out = vec![0xa5];
    encode(column, effort, &mut out);
    assert_eq!(out.remove(0), 0xa5, "a block is appended");
    out
}

fn assert_round_trip(column: &Column) {
    for effort in EFFORTS {
        let bytes = block(column, effort);
        let back = decode(&bytes, column.kind(), column.rows());
        match back {
            Ok(back) => assert!(back == *column, "{effort:?} {}", codec_name(&bytes)),
            Err(error) => panic!("{effort:?} {}: {error}", codec_name(&bytes)),
        }
        assert_ne!(codec_name(&bytes), "unknown");
        let raw = match &column.values {
            Values::Int(v) | Values::F64(v) => v.len() * 8,
            Values::F32(v) => v.len() * 4,
            Values::Bytes(v) => v.data.len() + v.len() * 4,
        };
        assert!(bytes.len() <= raw + raw / 100 + column.rows() / 8 + 32, "{} bytes for {raw}", bytes.len());
    }
}

fn assert_prefixes_fail(column: &Column) {
    for effort in EFFORTS {
        let bytes = block(column, effort);
        for end in 0..bytes.len() {
            let prefix = decode(&bytes[..end], column.kind(), column.rows());
            assert!(prefix.is_err(), "{end} of {} bytes, {}", bytes.len(), codec_name(&bytes));
        }
        let mut longer = bytes.clone();
        longer.push(0);
        assert!(decode(&longer, column.kind(), column.rows()).is_err(), "{}", codec_name(&bytes));
    }
}

fn assert_flips_are_harmless(column: &Column, step: usize) {
    for effort in EFFORTS {
        let mut bytes = block(column, effort);
        for at in (0..bytes.len()).step_by(step) {
            for flip in [1, 0x80, 0xff, 0x10] {
                bytes[at] ^= flip;
                let _ = codec_name(&bytes);
                if let Ok(back) = decode(&bytes, column.kind(), column.rows()) {
                    assert_eq!(back.rows(), column.rows());
                }
                bytes[at] ^= flip;
            }
        }
    }
}

fn ints(values: impl IntoIterator<Item = u64>) -> Column {
    Column { values: Values::Int(values.into_iter().collect()), nulls: None }
}

fn doubles(values: impl IntoIterator<Item = f64>) -> Column {
    Column { values: Values::F64(values.into_iter().map(f64::to_bits).collect()), nulls: None }
}

fn singles(values: impl IntoIterator<Item = f32>) -> Column {
    Column { values: Values::F32(values.into_iter().map(f32::to_bits).collect()), nulls: None }
}

fn strings<T: AsRef<[u8]>>(values: impl IntoIterator<Item = T>) -> Column {
    let mut column = Column::new(Kind::Bytes);
    values.into_iter().for_each(|value| column.push_bytes(value.as_ref()));
    column
}

/// Some noise without a generator: a multiplicative hash.
fn noise(i: u64) -> u64 {
    (i ^ i >> 7).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ i.wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 29
}

fn walk(rows: u64, step: u64) -> Vec<u64> {
    let mut level = 1u64 << 62;
    (0..rows)
        .map(|i| {
            level += noise(i) % step;
            level -= step / 2;
            level
        })
        .collect()
}

/// Columns of every shape that a codec was written for, with some rows each.
fn shapes(rows: u64) -> Vec<Column> {
    let series = 100;
    let mut shapes = vec![
        ints((0..rows).map(|_| 42)),
        ints(0..rows),
        ints((0..rows).map(|i| i / series)),
        ints((0..rows).map(|i| 1_700_000_000 + i % series * 300)),
        ints((0..rows).map(|i| i * i)),
        ints((0..rows).map(noise)),
        ints((0..rows).map(|i| noise(i) % 7 * 1_000_000_007)),
        ints((0..rows).map(|i| noise(i) >> (i / 256 * 9 % 64))),
        ints((0..rows).map(|i| if noise(i) % 50 == 0 { noise(i) } else { 7 })),
        ints((0..rows).map(|i| if i % 2 == 0 { u64::MAX } else { 0 })),
        ints((0..rows).map(|i| u64::MAX - noise(i) % 1000)),
        ints(walk(rows, 200)),
        ints(walk(rows, 1 << 35)),
        ints(walk(rows, 3).into_iter().map(|v| (v >> 20) * 1000 + 17)),
        doubles(walk(rows, 200).into_iter().map(|v| v as f64 / 100.0)),
        doubles(walk(rows, 200).into_iter().map(|v| (v as f64).sqrt())),
        doubles(walk(rows, 200).into_iter().map(|v| f64::from((v as f32).sqrt()))),
        doubles((0..rows).map(|i| f64::from_bits(noise(i)))),
        doubles((0..rows).map(|i| if i % 90 == 7 { f64::NAN } else { (noise(i) % 5000) as f64 * 0.1 })),
        doubles((0..rows).map(|i| [0.0, -0.0, 0.5, -0.1, 3.0 * 0.1][noise(i) as usize % 5])),
        doubles((0..rows).map(|i| if i % 9 == 0 { f64::NAN } else { i as f64 * -0.25 })),
        doubles((0..rows).map(|i| i as f64 * 1e20)),
        doubles(
            (0..rows).map(|i| [0.0, -0.0, f64::INFINITY, f64::NEG_INFINITY, f64::MIN_POSITIVE, 5e-324][i as usize % 6]),
        ),
        singles(walk(rows, 200).into_iter().map(|v| (v % (1 << 20)) as f32 / 10.0)),
        singles((0..rows).map(|i| f32::from_bits(noise(i) as u32))),
        singles((0..rows).map(|i| (i as f32).sin())),
        strings((0..rows).map(|_| "the same")),
        strings((0..rows).map(|_| "")),
        strings((0..rows).map(|i| format!("host-{}", i % 10))),
        strings((0..rows).map(|i| format!("{} of {rows}", noise(i)))),
        strings((0..rows).map(|i| noise(i).to_be_bytes())),
        strings((0..rows).map(|i| [(i / 3 % 256).to_be_bytes(), (i * 1000).to_be_bytes()].concat()[3..].to_vec())),
    ];
    for i in 0..shapes.len() {
        shapes.push(with_nulls(&shapes[i], |row| noise(row) % 10 == 0));
        shapes.push(with_nulls(&shapes[i], |row| row / 70 % 2 == 0));
        shapes.push(with_nulls(&shapes[i], |_| true));
    }
    shapes
}

fn with_nulls(column: &Column, null: impl Fn(u64) -> bool) -> Column {
    let mut nulled = Column::new(column.kind());
    for row in 0..column.rows() {
        if null(row as u64) {
            nulled.push_null();
            continue;
        }
        match &column.values {
            Values::Int(v) => nulled.push_int(v[row]),
            Values::F32(v) => nulled.push_f32(f32::from_bits(v[row])),
            Values::F64(v) => nulled.push_f64(f64::from_bits(v[row])),
            Values::Bytes(v) => nulled.push_bytes(v.get(row)),
        }
    }
    nulled
}

#[test]
fn every_shape_comes_back_at_every_length() {
    for rows in [0, 1, 2, 3, 4, 5, 63, 64, 65, 255, 256, 257, 1000, 5000] {
        shapes(rows).iter().for_each(assert_round_trip);
    }
    for shape in shapes(MAX_ROWS as u64) {
        assert_round_trip(&shape);
    }
}

#[test]
fn every_proper_prefix_is_an_error() {
    for rows in [0, 1, 2, 9, 100, 700] {
        shapes(rows).iter().for_each(assert_prefixes_fail);
    }
}

#[test]
fn every_flipped_byte_is_harmless() {
    shapes(300).iter().for_each(|shape| assert_flips_are_harmless(shape, 1));
    shapes(5000).iter().for_each(|shape| assert_flips_are_harmless(shape, 29));
}

#[test]
fn the_wrong_number_of_rows_never_panics() {
    for shape in shapes(300) {
        for effort in EFFORTS {
            let bytes = block(&shape, effort);
            for rows in [0, 1, 299, 301, MAX_ROWS] {
                if let Ok(back) = decode(&bytes, shape.kind(), rows) {
                    assert_eq!(back.rows(), rows);
                }
            }
            assert_eq!(decode(&bytes, shape.kind(), MAX_ROWS + 1), Err(DecodeError::TooLarge));
        }
    }
}

#[test]
fn a_block_of_another_kind_is_refused() {
    let bytes = block(&strings(["a", "b"]), Effort::Fast);
    for kind in [Kind::Int, Kind::F32, Kind::F64] {
        assert!(matches!(decode(&bytes, kind, 2), Err(DecodeError::UnknownTag(_))));
    }
}

#[test]
fn nested_blocks_do_not_exhaust_the_stack() {
    // A delta of a delta of a delta, far deeper than any writer goes.
    let bytes = [0x12, 0].repeat(100_000);
    assert!(decode(&bytes, Kind::Int, MAX_ROWS).is_err());
    let scaled = [0x13, 0, 1].repeat(100_000);
    assert!(decode(&scaled, Kind::Int, MAX_ROWS).is_err());
    let single = [0x23].repeat(1_000_000);
    assert!(decode(&single, Kind::F64, MAX_ROWS).is_err());
}

#[test]
fn fillers_at_nulls_are_not_kept() {
    let mut column = Column::new(Kind::Int);
    (0..10).for_each(|i| if i == 4 { column.push_null() } else { column.push_int(i) });
    let Values::Int(values) = &mut column.values else { return };
    values[4] = 99;
    let back = decode(&block(&column, Effort::Fast), Kind::Int, 10);
    let Ok(Column { values: Values::Int(values), .. }) = back else { panic!("{back:?}") };
    assert_eq!(values, [0, 1, 2, 3, 0, 5, 6, 7, 8, 9]);
}

#[test]
fn huge_strings_come_back() {
    let big: Vec<u8> = (0..3_000_000u64).map(|i| noise(i / 3) as u8).collect();
    assert_round_trip(&strings([&big[..], b"", b"small", &big[1000..]]));
    assert_round_trip(&strings([&vec![0; 40_000_000][..], b"x"]));
}

fn any_int() -> impl Strategy<Value = u64> {
    prop_oneof![0..4u64, any::<u64>(), any::<u8>().prop_map(u64::from), Just(u64::MAX), (0..64u32).prop_map(|s| 1 << s)]
}

fn any_double() -> impl Strategy<Value = u64> {
    prop_oneof![
        any::<u64>(),
        (any::<i32>(), 0..12i32).prop_map(|(digits, e)| (f64::from(digits) / 10f64.powi(e)).to_bits()),
        prop::sample::select(vec![0.0, -0.0, f64::NAN, -f64::NAN, f64::INFINITY, f64::NEG_INFINITY, f64::MAX, 5e-324])
            .prop_map(f64::to_bits),
    ]
}

/// A few values, repeated and mixed with fresh ones, so that runs and dictionaries appear.
fn lane<T: Clone + std::fmt::Debug + 'static>(
    value: impl Strategy<Value = T> + Clone + 'static,
) -> impl Strategy<Value = Vec<T>> {
    let run = (value, prop_oneof![Just(1usize), 1..40usize]).prop_map(|(value, len)| vec![value; len]);
    prop::collection::vec(run, 0..60).prop_map(|runs| runs.concat())
}

fn any_column() -> impl Strategy<Value = Column> {
    let values = prop_oneof![
        lane(any_int().boxed()).prop_map(Values::Int),
        lane(any::<u32>()).prop_map(Values::F32),
        lane(any_double().boxed()).prop_map(Values::F64),
        lane(prop::collection::vec(any::<u8>(), 0..20)).prop_map(|rows| {
            let mut bytes = BytesColumn::new();
            rows.iter().for_each(|row| bytes.push(row));
            Values::Bytes(bytes)
        }),
    ];
    (values, prop_oneof![Just(0u64), 1..5u64, any::<u64>()]).prop_map(|(values, nulls)| {
        let column = Column { values, nulls: None };
        if nulls == 0 { column } else { with_nulls(&column, |row| noise(row) % nulls == 0) }
    })
}

proptest! {
    #[test]
    fn any_column_comes_back(column in any_column()) {
        assert_round_trip(&column);
    }

    #[test]
    fn any_walk_comes_back(start in any::<u64>(), steps in prop::collection::vec(-300i64..300, 0..3000), jump in 1..1000usize) {
        let mut level = start;
        let values: Vec<u64> = steps.iter().enumerate().map(|(i, &step)| {
            level = if i % jump == 0 { noise(i as u64) } else { level.wrapping_add(step as u64) };
            level
        }).collect();
        assert_round_trip(&ints(values.clone()));
        assert_round_trip(&doubles(values.into_iter().map(|v| (v % 1_000_000) as f64 / 100.0)));
    }

    #[test]
    fn no_prefix_of_any_column_is_a_block(column in any_column(), cut in any::<prop::sample::Index>()) {
        for effort in EFFORTS {
            let bytes = block(&column, effort);
            prop_assert!(decode(&bytes[..cut.index(bytes.len())], column.kind(), column.rows()).is_err());
        }
    }

    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..300), tag in 0..0x40u8, rows in 0..3000usize) {
        let bytes = [&[tag][..], &bytes].concat();
        for kind in [Kind::Int, Kind::F32, Kind::F64, Kind::Bytes] {
            let _ = decode(&bytes, kind, rows);
        }
        let _ = codec_name(&bytes);
    }

    #[test]
    fn no_damage_panics(column in any_column(), damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..5)) {
        for effort in EFFORTS {
            let mut bytes = block(&column, effort);
            for (at, byte) in &damage {
                let at = at.index(bytes.len());
                bytes[at] = *byte;
            }
            let _ = decode(&bytes, column.kind(), column.rows());
        }
    }
}
