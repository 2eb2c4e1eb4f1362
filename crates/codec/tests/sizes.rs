//! Blocks of generated data stay near their entropy, which is known.

use rrd_codec::{Column, Effort, Kind, decode, encode};

/// Rows of a block as segments have them, and of a series.
const ROWS: u64 = 16384;
const RUN: u64 = 1000;
const SIGMA: f64 = 29.0;

fn noise(i: u64) -> u64 {
    let z = i.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

fn unit(i: u64) -> f64 {
    (noise(i) >> 11) as f64 / (1u64 << 53) as f64
}

/// A rounded normal number.
fn step(i: u64) -> i64 {
    let radius = (-2.0 * (1.0 - unit(2 * i)).ln()).sqrt();
    (SIGMA * radius * (std::f64::consts::TAU * unit(2 * i + 1)).cos()).round() as i64
}

fn step_entropy() -> f64 {
    (SIGMA * (std::f64::consts::TAU * std::f64::consts::E).sqrt()).log2()
}

fn change_entropy(p: f64) -> f64 {
    -p * p.log2() - (1.0 - p) * (1.0 - p).log2() + p * step_entropy()
}

/// A walk in hundredths that moves with a probability, and starts anew with each series.
fn walk(probability: f64) -> Column {
    let mut column = Column::new(Kind::F64);
    let mut level = 0;
    for i in 0..ROWS {
        match i % RUN {
            0 => level = (noise(i) % 10_000) as i64,
            _ if unit(i + (1 << 40)) < probability => level += step(i),
            _ => {}
        }
        column.push_f64(level as f64 / 100.0);
    }
    column
}

fn ints(value: impl Fn(u64) -> u64) -> Column {
    let mut column = Column::new(Kind::Int);
    (0..ROWS).for_each(|i| column.push_int(value(i)));
    column
}

/// Bits a row.
fn bits(column: &Column, effort: Effort) -> f64 {
    let mut block = Vec::new();
    encode(column, effort, &mut block);
    assert!(decode(&block, column.kind(), column.rows()).as_ref() == Ok(column));
    block.len() as f64 * 8.0 / column.rows() as f64
}

#[test]
fn walks_cost_little_more_than_their_entropy() {
    let column = walk(1.0);
    assert!(bits(&column, Effort::Small) < 1.02 * step_entropy());
    assert!(bits(&column, Effort::Fast) < 1.15 * step_entropy());
}

#[test]
fn readings_that_hardly_change_cost_hardly_anything() {
    let column = walk(0.05);
    assert!(bits(&column, Effort::Small) < 1.2 * change_entropy(0.05));
    assert!(bits(&column, Effort::Fast) < 1.35 * change_entropy(0.05));
}

#[test]
fn counters_cost_what_their_increments_do() {
    let mut total = 0;
    let totals: Vec<u64> = (0..ROWS)
        .map(|i| {
            total += (1500 + step(i)) as u64;
            total
        })
        .collect();
    let column = ints(|i| totals[i as usize]);
    assert!(bits(&column, Effort::Small) < 1.02 * step_entropy());
    assert!(bits(&column, Effort::Fast) < 1.15 * step_entropy());
}

#[test]
fn keys_and_regular_times_cost_next_to_nothing() {
    for effort in [Effort::Fast, Effort::Small] {
        assert!(bits(&ints(|i| i / RUN), effort) < 0.02);
        assert!(bits(&ints(|i| 1_700_000_000 + i % RUN * 300), effort) < 0.02);
        assert!(bits(&ints(|i| 1_700_000_000 + i % 10 * 300), effort) < 0.02);
    }
}

#[test]
fn noise_costs_no_more_than_itself() {
    for effort in [Effort::Fast, Effort::Small] {
        assert!(bits(&ints(noise), effort) < 64.01);
        assert!(bits(&ints(|i| noise(i) % 1024), effort) < 10.02);
        assert!(bits(&ints(|i| noise(i) % 16 * 1_000_007 + 3), effort) < 4.02);
    }
}
