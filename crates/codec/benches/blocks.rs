//! How fast blocks are written and read, in bytes of raw values: `cargo bench -p rrd-codec`.
//!
//! `memcpy` is the ceiling. Sizes beside their entropy are printed by the example `sizes`.

#![expect(missing_docs, reason = "criterion's macro writes a public function")]

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use rrd_codec::{Column, Effort, Kind, codec_name, decode, encode};
use std::hint::black_box;
use std::time::Duration;

const ROWS: u64 = 32768;
/// Rows of a series.
const RUN: u64 = 1000;

fn noise(i: u64) -> u64 {
    let z = i.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

/// Nearly a normal distribution with a deviation of 29.
fn bell(i: u64) -> i64 {
    (0..12).map(|j| (noise(i * 12 + j) % 30) as i64).sum::<i64>() - 174
}

fn ints(value: impl Fn(u64) -> u64) -> Column {
    let mut column = Column::new(Kind::Int);
    (0..ROWS).for_each(|i| column.push_int(value(i)));
    column
}

fn walk(changes: impl Fn(u64) -> bool) -> Column {
    let mut column = Column::new(Kind::F64);
    let mut level = 0;
    for i in 0..ROWS {
        match i % RUN {
            0 => level = (noise(i) % 10_000) as i64,
            _ if changes(i) => level += bell(i),
            _ => {}
        }
        column.push_f64(level as f64 / 100.0);
    }
    column
}

fn columns() -> Vec<(&'static str, Column)> {
    let mut total = 0;
    let counter: Vec<u64> = (0..ROWS)
        .map(|i| {
            total += (1500 + bell(i)) as u64;
            total
        })
        .collect();
    vec![
        ("constant", ints(|_| 7)),
        ("sensor", ints(|i| i / RUN)),
        ("time", ints(|i| 1_700_000_000 + i % RUN * 300)),
        ("counter", ints(|i| counter[i as usize])),
        ("noise", ints(|i| noise(i) % 1000)),
        ("walk", walk(|_| true)),
        ("still", walk(|i| noise(i) % 20 == 0)),
        ("random", ints(noise)),
    ]
}

fn blocks(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("codec");
    group.throughput(Throughput::Bytes(8 * ROWS));
    group.warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(1)).sample_size(30);
    let raw: Vec<u64> = (0..ROWS).map(noise).collect();
    group.bench_function("memcpy", |bench| bench.iter(|| black_box(&raw).clone()));
    for (name, column) in columns() {
        for effort in [Effort::Fast, Effort::Small] {
            let mut block = Vec::new();
            encode(&column, effort, &mut block);
            let id = |what| BenchmarkId::new(format!("{what} {effort:?}"), format!("{name} ({})", codec_name(&block)));
            group.bench_function(id("encode"), |bench| {
                bench.iter(|| {
                    let mut out = Vec::new();
                    encode(black_box(&column), effort, &mut out);
                    out
                })
            });
            group.bench_function(id("decode"), |bench| {
                bench.iter(|| decode(black_box(&block), column.kind(), column.rows()))
            });
        }
    }
    group.finish();
}

criterion_group!(benches, blocks);
criterion_main!(benches);
