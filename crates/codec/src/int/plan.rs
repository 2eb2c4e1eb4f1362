//! Which transforms are worth trying, judged by a sample.
//!
//! The sample is a number of short windows spread over the block. For the values and for their first and second
//! differences the cost of a row is estimated from the lengths of the distances to the median: for packing as the
//! best width plus patches, for the entropy stage as the entropy of the lengths plus the bits below the leading one.

use super::Sign;
use crate::Effort;
use crate::bits::{bit_length, zigzag};

const WINDOWS: usize = 12;
const WINDOW: usize = 64;
/// What a patch costs beside the bits of its value: its position.
pub(crate) const PATCH_BITS: u32 = 11;

/// Short windows spread over a block.
pub(crate) struct Sample {
    /// Where the windows start and end.
    pub(crate) windows: Vec<std::ops::Range<usize>>,
}

impl Sample {
    pub(crate) fn new(rows: usize) -> Self {
        let windows = if rows <= WINDOWS * WINDOW {
            vec![0..rows]
        } else {
            let step = (rows - WINDOW) / (WINDOWS - 1);
            (0..WINDOWS).map(|i| i * step..i * step + WINDOW).collect()
        };
        Sample { windows }
    }

    /// The sampled rows alone, and the windows that they make.
    pub(crate) fn gather<T: Copy>(&self, values: &[T]) -> (Sample, Vec<T>) {
        let (mut windows, mut gathered) = (Vec::new(), Vec::new());
        for window in &self.windows {
            windows.push(gathered.len()..gathered.len() + window.len());
            gathered.extend_from_slice(&values[window.clone()]);
        }
        (Sample { windows }, gathered)
    }

    /// The differences of an order (0: the values themselves) at the rows that have all orders.
    fn residuals(&self, values: &[u64], order: usize) -> Vec<u64> {
        let mut residuals = Vec::with_capacity(WINDOWS * WINDOW);
        for window in &self.windows {
            residuals.extend(values[window.clone()].windows(3).map(|v| match order {
                0 => v[2],
                1 => v[2].wrapping_sub(v[1]),
                _ => v[2].wrapping_sub(v[1]).wrapping_sub(v[1].wrapping_sub(v[0])),
            }));
        }
        residuals
    }
}

/// What to try for a block.
pub(crate) struct Plan {
    /// How many times to take differences.
    pub(crate) order: usize,
    /// Divides all distances between sampled values.
    pub(crate) factor: Option<u64>,
    /// Runs may pay.
    pub(crate) few_runs: bool,
    /// A dictionary may pay.
    pub(crate) few_values: bool,
}

impl Plan {
    pub(crate) fn new(values: &[u64], sign: Sign, effort: Effort) -> Self {
        let sample = Sample::new(values.len());
        let (order, bits) = best_order(&sample, values, sign, effort);
        let factor = common_factor(&sample.residuals(values, 1));
        Plan {
            order,
            factor: Some(factor).filter(|&factor| factor > 1 && bits > 1.0),
            few_runs: changes(values) * 3 < values.len(),
            few_values: dictionary_bits(&sample, values) + 1.0 < bits,
        }
    }
}

/// How many rows differ from the row before.
pub(crate) fn changes(values: &[u64]) -> usize {
    values.windows(2).map(|v| usize::from(v[0] != v[1])).sum()
}

/// The estimated bits of a row of `values`, were only the windows of `sample` there.
pub(crate) fn estimate(sample: &Sample, values: &[u64], sign: Sign, effort: Effort) -> f64 {
    best_order(sample, values, sign, effort).1
}

fn best_order(sample: &Sample, values: &[u64], sign: Sign, effort: Effort) -> (usize, f64) {
    let orders = if values.len() < 4 { 1 } else { 3 };
    let mut best = (0, f64::INFINITY);
    for order in 0..orders {
        let sign = if order == 0 { sign } else { Sign::Signed };
        let bits = match order {
            0 if orders == 1 => cost(&mut values.to_vec(), sign, effort),
            _ => cost(&mut sample.residuals(values, order), sign, effort),
        };
        if bits < best.1 - 0.02 {
            best = (order, bits);
        }
    }
    best
}

fn cost(residuals: &mut [u64], sign: Sign, effort: Effort) -> f64 {
    if residuals.is_empty() {
        return 0.0;
    }
    let middle = residuals.len() / 2;
    let (_, &mut median, _) = residuals.select_nth_unstable_by_key(middle, |&value| sign.key(value));
    let mut lengths = [0; 65];
    residuals.iter().for_each(|value| lengths[bit_length(zigzag(value.wrapping_sub(median))) as usize] += 1);
    let bits = match effort {
        Effort::Fast => f64::from(best_width(&lengths).1),
        Effort::Small => entropy_bits(&lengths),
    };
    bits / residuals.len() as f64
}

/// The width that costs least for numbers of the given bit lengths, and the bits that it takes with patches.
pub(crate) fn best_width(lengths: &[u32; 65]) -> (u32, u32) {
    let total: u32 = lengths.iter().sum();
    let (mut best, mut patches) = ((64, total * 64), 0);
    for width in (0..=64u32).rev() {
        let bits = total * width + patches;
        if bits < best.1 {
            best = (width, bits);
        }
        patches += lengths[width as usize] * (PATCH_BITS + width);
    }
    best
}

fn entropy_bits(lengths: &[u32; 65]) -> f64 {
    let total: u32 = lengths.iter().sum();
    let bits = |(length, &count): (usize, &u32)| {
        let share = f64::from(count) / f64::from(total);
        f64::from(count) * (length.saturating_sub(1) as f64 - share.log2())
    };
    lengths.iter().enumerate().filter(|&(_, &count)| count > 0).map(bits).sum()
}

fn common_factor(deltas: &[u64]) -> u64 {
    let mut factor = 0;
    for &delta in deltas {
        factor = greatest_common_divisor((delta as i64).unsigned_abs(), factor);
        if factor == 1 {
            break;
        }
    }
    factor
}

fn greatest_common_divisor(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// The bits of a row as the number of a distinct value; infinite when there are too many.
fn dictionary_bits(sample: &Sample, values: &[u64]) -> f64 {
    let mut sampled = sample.residuals(values, 0);
    let rows = sampled.len();
    sampled.sort_unstable();
    sampled.dedup();
    if sampled.len() * 2 > rows { f64::INFINITY } else { (sampled.len() as f64).log2() }
}
