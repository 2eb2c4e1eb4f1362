//! Which transform is worth its while, judged by a sample.
//!
//! The sample is a number of windows spread over the block. For the values and for their first and second
//! differences the bits of a row are estimated from the lengths of the distances to a pivot: for packing as the best
//! width of each window plus patches, for the entropy stage as what an adaptive code of the lengths would take, plus
//! the bits below the leading one.

use super::packed::Frame;
use super::{Level, Sign};
use crate::Effort;
use crate::bits::{bit_length, zigzag};
use std::ops::Range;

/// Rows of a window: as many as a group has, which may have a pivot of its own.
const WINDOW: usize = 256;
/// Every so many rows of a window are looked at.
const STRIDE: usize = 4;
/// The most windows of a sample, and the rows that each stands for at least.
const WINDOWS: usize = 12;
const ROWS_A_WINDOW: usize = 1024;
/// Up to so many rows are looked at one by one.
const FEW: usize = 1024;
/// What a patch costs beside the bits of its value: its position.
pub(crate) const PATCH_BITS: u32 = 8;
/// What a pivot of a window's own costs a row.
const PIVOT_BITS: f64 = 0.06;
/// Rows of a window that the common distribution weighs as much as.
const PRIOR: f64 = 16.0;

/// Windows spread over a block.
pub(crate) struct Sample {
    windows: Vec<Range<usize>>,
    stride: usize,
}

impl Sample {
    pub(crate) fn new(rows: usize) -> Self {
        if rows <= FEW {
            let window = |i| i * WINDOW..rows.min((i + 1) * WINDOW);
            return Sample { windows: (0..rows.div_ceil(WINDOW)).map(window).collect(), stride: 1 };
        }
        let count = (rows / ROWS_A_WINDOW).clamp(4, WINDOWS);
        let room = rows / count;
        let window = |i: usize| {
            // Somewhere in its part of the block: windows at equal distances would fall in step with the series.
            let start = i * room + (i + 1) * 0x9e37 % 0xffff * (room - WINDOW) / 0xffff;
            start..start + WINDOW
        };
        Sample { windows: (0..count).map(window).collect(), stride: STRIDE }
    }

    /// The sampled rows alone, and the windows that they make.
    pub(crate) fn gather<T: Copy>(&self, values: &[T]) -> (Sample, Vec<T>) {
        let (mut windows, mut gathered) = (Vec::new(), Vec::new());
        for window in &self.windows {
            windows.push(gathered.len()..gathered.len() + window.len());
            gathered.extend_from_slice(&values[window.clone()]);
        }
        (Sample { windows, stride: self.stride }, gathered)
    }

    /// Where the windows start and end.
    pub(crate) fn windows(&self) -> &[Range<usize>] {
        &self.windows
    }

    /// What becomes of the windows, each for itself.
    pub(crate) fn map(&self, values: &[u64], change: impl Fn(&[u64]) -> Vec<u64>) -> Residuals {
        let values = self.windows.iter().flat_map(|window| change(&values[window.clone()])).collect();
        Residuals { values, windows: self.windows.clone() }
    }

    /// The differences of an order (0: the values themselves), each window's behind that of the one before.
    fn residuals(&self, values: &[u64], order: usize) -> Residuals {
        let rows = self.windows.iter().map(Range::len).sum::<usize>();
        let mut residuals = Residuals { values: Vec::with_capacity(rows / self.stride + WINDOWS), windows: Vec::new() };
        for window in &self.windows {
            let start = residuals.values.len();
            // With the rows before the window, where there are some.
            let rows = &values[window.start.saturating_sub(order)..window.end];
            let stride = self.stride;
            match order {
                0 => residuals.values.extend(rows.iter().step_by(stride)),
                1 => residuals.values.extend(rows.windows(2).step_by(stride).map(|v| v[1].wrapping_sub(v[0]))),
                _ => residuals.values.extend(
                    (rows.windows(3).step_by(stride))
                        .map(|v| v[2].wrapping_sub(v[1]).wrapping_sub(v[1].wrapping_sub(v[0]))),
                ),
            }
            residuals.windows.push(start..residuals.values.len());
        }
        residuals
    }
}

/// What the differences of an order come to in a sample.
pub(crate) struct Residuals {
    values: Vec<u64>,
    windows: Vec<Range<usize>>,
}

/// How the residuals of a delta are to be packed.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Shape {
    /// How many times to take differences.
    pub(crate) order: usize,
    /// The bits of a row, about.
    pub(crate) bits: f64,
    /// The bits of a row without the entropy stage.
    pub(crate) packed_bits: f64,
    /// Packed groups are to have pivots of their own.
    pub(crate) local: bool,
    /// So are groups in the entropy stage.
    pub(crate) rans_local: bool,
    /// The pivot of packed groups that have none of their own, if it is known.
    pub(crate) pivot: Option<u64>,
}

impl Shape {
    /// Where the frames of packed groups lie.
    pub(crate) fn frame(self) -> Frame {
        if self.local { Frame::Own } else { Frame::Common(self.pivot) }
    }
}

/// What to try for a block.
#[derive(Debug)]
pub(crate) struct Plan {
    /// The best of the deltas.
    pub(crate) shape: Shape,
    /// Divides all distances between sampled values.
    pub(crate) factor: Option<u64>,
    /// The bits of a row as runs; infinite if there are hardly any.
    pub(crate) runs_bits: f64,
    /// The bits of a row with a dictionary; infinite if there are too many values.
    pub(crate) dictionary_bits: f64,
}

impl Plan {
    pub(crate) fn new(values: &[u64], sign: Sign, level: Level) -> Self {
        let sample = Sample::new(values.len());
        let shape = best_shape(&sample, values, sign, level.effort);
        let deltas = sample.residuals(values, 1).values;
        let factor = common_factor(&deltas);
        Plan {
            factor: Some(factor).filter(|&factor| factor > 1 && shape.bits > 1.0),
            runs_bits: runs_bits(values, &deltas),
            dictionary_bits: dictionary_bits(&sample, values, level.effort),
            shape,
        }
    }
}

/// How many rows differ from the row before.
pub(crate) fn changes(values: &[u64]) -> usize {
    values.windows(2).map(|v| usize::from(v[0] != v[1])).sum()
}

/// The estimated bits of a row of `values`, were only the windows of `sample` there.
pub(crate) fn estimate(sample: &Sample, values: &[u64], sign: Sign, effort: Effort) -> f64 {
    best_shape(sample, values, sign, effort).bits.min(dictionary_bits(sample, values, effort))
}

fn best_shape(sample: &Sample, values: &[u64], sign: Sign, effort: Effort) -> Shape {
    let mut best: Option<Shape> = None;
    for order in 0..if values.len() < 4 { 1 } else { 3 } {
        let residuals = sample.residuals(values, order);
        let sign = if order == 0 { sign } else { Sign::Signed };
        let shape = shape_of(&residuals, order, sign, effort);
        // A higher order must earn its time.
        if best.is_none_or(|best| shape.bits < best.bits - 0.02) {
            best = Some(shape);
        }
    }
    best.unwrap_or(Shape { order: 0, bits: 64.0, packed_bits: 64.0, local: false, rans_local: false, pivot: None })
}

fn shape_of(residuals: &Residuals, order: usize, sign: Sign, effort: Effort) -> Shape {
    let rows = residuals.values.len().max(1) as f64;
    let common = residuals.lengths(Some(median(&mut residuals.values.clone(), sign)), sign);
    let own = if residuals.windows.len() > 1 { residuals.lengths(None, sign) } else { common.clone() };
    let (common_bits, own_bits) = (packed_bits(&common) / rows, packed_bits(&own) / rows + PIVOT_BITS);
    let packed_bits = common_bits.min(own_bits);
    let local = own_bits < common_bits;
    let mut shape = Shape { order, bits: packed_bits, packed_bits, local, rans_local: false, pivot: None };
    if effort == Effort::Small {
        let (common_bits, own_bits) = (adaptive_bits(&common) / rows, adaptive_bits(&own) / rows + PIVOT_BITS);
        shape.bits = packed_bits.min(common_bits).min(own_bits);
        shape.rans_local = own_bits < common_bits - 0.02;
    }
    shape
}

/// What residuals cost.
pub(crate) fn shape_of_windows(residuals: Residuals, sign: Sign, effort: Effort) -> Shape {
    shape_of(&residuals, 0, sign, effort)
}

impl Residuals {
    /// How many distances there are of each length, for each window; to a common pivot, or to its own median.
    fn lengths(&self, pivot: Option<u64>, sign: Sign) -> Vec<[u32; 65]> {
        let of_window = |window: &Range<usize>| {
            let values = &self.values[window.clone()];
            let pivot = pivot.unwrap_or_else(|| median(&mut values.to_vec(), sign));
            let mut lengths = [0; 65];
            values.iter().for_each(|value| lengths[bit_length(zigzag(value.wrapping_sub(pivot))) as usize] += 1);
            lengths
        };
        self.windows.iter().map(of_window).collect()
    }
}

fn median(values: &mut [u64], sign: Sign) -> u64 {
    let middle = values.len() / 2;
    if values.is_empty() { 0 } else { *values.select_nth_unstable_by_key(middle, |&value| sign.key(value)).1 }
}

/// The bits of all windows with a width each.
fn packed_bits(windows: &[[u32; 65]]) -> f64 {
    windows.iter().map(|lengths| f64::from(best_width(lengths).1)).sum()
}

/// The width that costs least for numbers of the given bit lengths, and the bits that it takes with patches.
pub(crate) fn best_width(lengths: &[u32; 65]) -> (u32, u32) {
    let total: u32 = lengths.iter().sum();
    let longest = lengths.iter().rposition(|&count| count > 0).unwrap_or(0) as u32;
    let (mut best, mut patches) = ((longest, total * longest), 0);
    for width in (0..=longest).rev() {
        let bits = total * width + patches;
        if bits < best.1 {
            best = (width, bits);
        }
        patches += lengths[width as usize] * (PATCH_BITS + width);
    }
    best
}

/// The bits that a width takes with patches.
pub(crate) fn bits_at_width(lengths: &[u32; 65], width: u32) -> u32 {
    let patches = (width + 1..=64).map(|length| lengths[length as usize] * (PATCH_BITS + length));
    lengths.iter().sum::<u32>() * width + patches.sum::<u32>()
}

/// What a code takes that knows the common distribution of lengths, and learns that of a window as it goes.
///
/// In which order the rows of a window come does not matter: the bits are those of any order.
fn adaptive_bits(windows: &[[u32; 65]]) -> f64 {
    let mut common = [0f64; 65];
    windows
        .iter()
        .for_each(|lengths| common.iter_mut().zip(lengths).for_each(|(sum, &count)| *sum += f64::from(count)));
    let scale = PRIOR / common.iter().sum::<f64>();
    let mut bits = 0.0;
    for lengths in windows {
        let mut total = PRIOR;
        for (length, (&count, prior)) in lengths.iter().zip(common).enumerate().filter(|(_, (count, _))| **count > 0) {
            bits += f64::from(count) * length.saturating_sub(1) as f64;
            for seen in 0..count {
                bits += (total / (prior * scale + f64::from(seen))).log2();
                total += 1.0;
            }
        }
    }
    bits
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

/// The bits of a row as a length and a value for each run, neither of them with a pattern.
fn runs_bits(values: &[u64], deltas: &[u64]) -> f64 {
    let sampled = deltas.iter().filter(|&&delta| delta != 0).count();
    if sampled * 2 > deltas.len() {
        return f64::INFINITY;
    }
    let changes = changes(values).max(1) as f64;
    let share = changes / values.len() as f64;
    let mut steps: Vec<u64> = deltas.iter().copied().filter(|&delta| delta != 0).collect();
    let middle = median(&mut steps, Sign::Signed);
    let lengths: u32 = steps.iter().map(|step| bit_length(zigzag(step.wrapping_sub(middle)))).sum();
    let step_bits = if steps.is_empty() { 8.0 } else { f64::from(lengths) / steps.len() as f64 };
    if share > 0.5 { f64::INFINITY } else { share * (step_bits + 1.5 - share.log2()) }
}

/// The bits of a row as the number of a distinct value, the values counted in.
fn dictionary_bits(sample: &Sample, values: &[u64], effort: Effort) -> f64 {
    let mut sampled = sample.residuals(values, 0).values;
    let rows = sampled.len() as f64;
    sampled.sort_unstable();
    let range = sampled.last().zip(sampled.first()).map_or(0, |(last, first)| last - first);
    sampled.dedup();
    let seen = sampled.len() as f64;
    if seen > 0.95 * rows {
        return f64::INFINITY;
    }
    // As many as would show so many repetitions if all were as frequent.
    let mut distinct = seen;
    for _ in 0..8 {
        distinct = seen / (1.0 - (-rows / distinct).exp());
    }
    let entry_bits = (f64::from(bit_length(range)) - distinct.log2()).max(1.0);
    let id_bits = match effort {
        Effort::Fast => (distinct * 1.05).log2().ceil(),
        Effort::Small => distinct.log2(),
    };
    id_bits.max(0.5) + distinct * entry_bits / values.len() as f64
}
