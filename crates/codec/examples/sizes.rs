//! Sizes and speeds of generated columns whose entropy is known.
//!
//! `cargo run --release --example sizes [rows of a block] [part of a case's name] [effort]`

use rrd_codec::{Column, Effort, Kind, codec_name, decode, encode};
use std::time::Instant;

/// A small generator of its own, so that the numbers are the same everywhere (splitmix64, Steele et al. 2014).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    fn normal(&mut self) -> f64 {
        (-2.0 * (1.0 - self.unit()).ln()).sqrt() * (std::f64::consts::TAU * self.unit()).cos()
    }
}

/// Entropy in bits of a rounded normal distribution.
fn normal_entropy(sigma: f64) -> f64 {
    let weights: Vec<f64> = (-4000..=4000).map(|i| (-0.5 * (f64::from(i) / sigma).powi(2)).exp()).collect();
    let sum: f64 = weights.iter().sum();
    weights.iter().map(|w| w / sum).filter(|&p| p > 0.0).map(|p| -p * p.log2()).sum()
}

/// Entropy in bits of a value that changes with probability `p`, by a step of `bits` bits.
fn change_entropy(p: f64, bits: f64) -> f64 {
    -p * p.log2() - (1.0 - p) * (1.0 - p).log2() + p * bits
}

struct Case {
    name: &'static str,
    column: Column,
    /// Shannon's bound in bits a row; zero where it is not known.
    bound: f64,
}

const RUN: usize = 1000;

fn doubles(rows: usize, mut value: impl FnMut(usize) -> f64) -> Column {
    let mut column = Column::new(Kind::F64);
    (0..rows).for_each(|i| column.push_f64(value(i)));
    column
}

fn ints(rows: usize, mut value: impl FnMut(usize) -> u64) -> Column {
    let mut column = Column::new(Kind::Int);
    (0..rows).for_each(|i| column.push_int(value(i)));
    column
}

/// A walk in hundredths, with a new level at the start of each series.
fn walk(rows: usize, run: usize, sigma: f64, change: f64) -> Column {
    let mut random = Random(1);
    let mut level = 0;
    doubles(rows, |i| {
        if i % run == 0 {
            level = (random.unit() * 10_000.0) as i64;
        } else if random.unit() < change {
            level += (random.normal() * sigma).round() as i64;
        }
        level as f64 / 100.0
    })
}

fn cases(rows: usize) -> Vec<Case> {
    let step = normal_entropy(29.0);
    let mut cases = vec![
        Case { name: "walk f64", column: walk(rows, RUN, 29.0, 1.0), bound: step },
        Case { name: "still 5%", column: walk(rows, RUN, 29.0, 0.05), bound: change_entropy(0.05, step) },
        Case { name: "still 0.5%", column: walk(rows, RUN, 29.0, 0.005), bound: change_entropy(0.005, step) },
    ];
    let bound = 0.9 * step + 0.1 * 10_000f64.log2();
    cases.push(Case { name: "walk, short runs", column: walk(rows, 10, 29.0, 1.0), bound });
    let time = ints(rows, |i| 1_700_000_000 + (i % 10 * 300) as u64);
    cases.push(Case { name: "time, short runs", column: time, bound: 0.0 });
    cases.push(Case { name: "sensor, short runs", column: ints(rows, |i| (i / 10) as u64), bound: 0.0 });
    let mut random = Random(2);
    let mut total = 0u64;
    let counter = ints(rows, |i| {
        total =
            if i % RUN == 0 { random.next() >> 30 } else { total + (1500.0 + random.normal() * 50.0).round() as u64 };
        total
    });
    cases.push(Case { name: "counter", column: counter, bound: normal_entropy(50.0) });
    let mut scale = 1.0;
    let ports = ints(rows, |i| {
        if i % RUN == 0 {
            scale = (random.unit() * 14.0).exp();
        }
        total += (-random.unit().ln() * scale) as u64;
        total
    });
    cases.push(Case { name: "ports", column: ports, bound: 0.0 });
    let mut run = RUN;
    let (mut sensor, mut left) = (0, 0);
    let ragged = ints(rows, |_| {
        if left == 0 {
            (sensor, left) = (sensor + 1, 800 + random.next() % 400);
        }
        left -= 1;
        sensor
    });
    cases.push(Case { name: "sensor, ragged", column: ragged, bound: 0.0 });
    cases.push(Case { name: "sensor", column: ints(rows, |i| (i / RUN) as u64), bound: 0.0 });
    cases.push(Case { name: "time", column: ints(rows, |i| 1_700_000_000 + (i % RUN * 300) as u64), bound: 0.0 });
    let ragged = ints(rows, |_| {
        run = if run >= 800 + (random.next() % 400) as usize { 0 } else { run + 1 };
        1_700_000_000 + (run * 300) as u64
    });
    cases.push(Case { name: "time, ragged", column: ragged, bound: 0.0 });
    let mut at = 0;
    let gaps = ints(rows, |i| {
        at = if i % RUN == 0 { 1_700_000_000 } else { at + if random.unit() < 0.01 { 600 } else { 300 } };
        at
    });
    cases.push(Case { name: "time, 1% missing", column: gaps, bound: change_entropy(0.01, 0.0) });
    let jitter = ints(rows, |i| 1_700_000_000_000 + (i % RUN * 300_000) as u64 + random.next() % 64);
    cases.push(Case { name: "time, jitter 64", column: jitter, bound: 6.0 });
    cases.push(Case { name: "noise 0..1000", column: ints(rows, |_| random.next() % 1000), bound: 1000f64.log2() });
    cases.push(Case { name: "random u64", column: ints(rows, |_| random.next()), bound: 64.0 });
    cases.push(Case { name: "random unit", column: doubles(rows, |_| random.unit()), bound: 53.0 });
    let mut level = 0.0;
    let real = doubles(rows, |i| {
        level = if i % RUN == 0 { 50.0 } else { level + random.normal() };
        level
    });
    cases.push(Case { name: "real walk", column: real, bound: 0.0 });
    let mut level = 0;
    let product = doubles(rows, |i| {
        level = if i % RUN == 0 { 700 } else { level + (random.normal() * 29.0).round() as i64 };
        level as f64 * 0.1
    });
    cases.push(Case { name: "walk times 0.1", column: product, bound: 0.0 });
    let mut sum = 0.0;
    let sums = doubles(rows, |i| {
        sum = if i % RUN == 0 { 70.0 } else { sum + (random.normal() * 29.0).round() * 0.01 };
        sum
    });
    cases.push(Case { name: "walk of sums", column: sums, bound: 0.0 });
    let states = [17.5, 18.25, 19.0, 21.0, 1e9, f64::NAN];
    cases.push(Case {
        name: "six states",
        column: doubles(rows, |_| states[random.next() as usize % 6]),
        bound: 6f64.log2(),
    });
    let ids: Vec<u64> = (0..2000).map(|_| random.next()).collect();
    cases.push(Case {
        name: "2000 ids",
        column: ints(rows, |_| ids[random.next() as usize % 2000]),
        bound: 2000f64.log2(),
    });
    let sine =
        doubles(rows, |i| ((20.0 + 8.0 * (i as f64 / 50.0).sin() + 0.05 * random.normal()) * 10.0).round() / 10.0);
    cases.push(Case { name: "sine 0.1", column: sine, bound: 0.0 });
    let smooth = |i: usize, noise: f64, grid: f64| {
        let at = (i % RUN) as f64 / 50.0;
        ((20.0 + 8.0 * at.sin() + noise) * grid).round() / grid
    };
    let sine = doubles(rows, |i| smooth(i, 0.3 * random.normal(), 100.0));
    cases.push(Case { name: "sine, noise 30", column: sine, bound: normal_entropy(30.0) });
    let sine = doubles(rows, |i| smooth(i, 0.03 * random.normal(), 100.0));
    cases.push(Case { name: "sine, noise 3", column: sine, bound: normal_entropy(3.0) });
    let mut level = 0.0;
    let back = doubles(rows, |i| {
        level = if i % RUN == 0 { 0.0 } else { level * 0.7 + random.normal() * 29.0 };
        (20_000.0 + level).round() / 100.0
    });
    cases.push(Case { name: "back to mean", column: back, bound: step });
    let mut single = Column::new(Kind::F32);
    let mut level = 0;
    (0..rows).for_each(|_| {
        level += (random.normal() * 29.0).round() as i64;
        single.push_f32(level as f32 / 100.0);
    });
    cases.push(Case { name: "walk f32", column: single, bound: step });
    let mut nulls = Column::new(Kind::F64);
    let mut level = 0;
    (0..rows).for_each(|_| {
        level += (random.normal() * 29.0).round() as i64;
        if random.unit() < 0.05 { nulls.push_null() } else { nulls.push_f64(level as f64 / 100.0) }
    });
    cases.push(Case { name: "walk, 5% null", column: nulls, bound: change_entropy(0.05, 0.0) + 0.95 * step });
    let mut text = Column::new(Kind::Bytes);
    (0..rows).for_each(|i| text.push_bytes(format!("host-{:03}.example.net", i / 10 % 300).as_bytes()));
    cases.push(Case { name: "host names", column: text, bound: 0.0 });
    let mut text = Column::new(Kind::Bytes);
    (0..rows).for_each(|i| text.push_bytes(format!("request {} took {} ms", i, random.next() % 900).as_bytes()));
    cases.push(Case { name: "log lines", column: text, bound: 0.0 });
    cases
}

fn raw_bytes(column: &Column) -> usize {
    match &column.values {
        rrd_codec::Values::Bytes(v) => v.data.len() + 4 * v.len(),
        rrd_codec::Values::F32(v) => 4 * v.len(),
        other => 8 * other.rows(),
    }
}

fn measure(case: &Case, effort: Effort) {
    let rows = case.column.rows();
    let mut block = Vec::new();
    let repeats = std::env::var("REPEATS").ok().and_then(|text| text.parse().ok()).unwrap_or(30);
    let mut encode_time = f64::INFINITY;
    let mut decode_time = f64::INFINITY;
    for _ in 0..repeats {
        block.clear();
        let start = Instant::now();
        encode(&case.column, effort, &mut block);
        encode_time = encode_time.min(start.elapsed().as_secs_f64());
    }
    for _ in 0..repeats {
        let start = Instant::now();
        let back = decode(&block, case.column.kind(), rows);
        decode_time = decode_time.min(start.elapsed().as_secs_f64());
        assert!(back.as_ref() == Ok(&case.column), "{}", case.name);
    }
    let bits = block.len() as f64 * 8.0 / rows as f64;
    let raw = raw_bytes(&case.column) as f64 / 1e6;
    let times = if case.bound > 0.0 { format!("{:6.3}", bits / case.bound) } else { "     -".into() };
    println!(
        "{:18} {:5} {:10.4} {times} {:9.0} {:9.0}  {}",
        case.name,
        format!("{effort:?}"),
        bits,
        raw / encode_time,
        raw / decode_time,
        codec_name(&block),
    );
}

fn main() {
    let rows = std::env::args().nth(1).and_then(|rows| rows.parse().ok()).unwrap_or(16384);
    let only = std::env::args().nth(3).unwrap_or_default();
    let wanted = std::env::args().nth(2).unwrap_or_default();
    println!("{rows} rows         effort  bits/row  times  enc MB/s  dec MB/s  codec");
    for case in cases(rows).into_iter().filter(|case| case.name.contains(&wanted)) {
        for effort in [Effort::Fast, Effort::Small] {
            if format!("{effort:?}").contains(&only) {
                measure(&case, effort);
            }
        }
    }
}
