//! Linear prediction: a number is guessed from the ones before it, and what is left is written.
//!
//! Differences undo a random walk; most sensors are noise on something smooth, or fall back to a mean, and a weighted
//! sum of the last rows guesses better. Weights are those of the least squares (Durbin 1960), fitted to a sample.
//! All numbers are taken as distances to a centre and, where they weigh in, cut off at a limit: the jump to the next
//! series must not spoil the guesses behind it.

use super::plan::{Sample, Shape, shape_of_windows};
use super::{Level, Sign, decode_level, encode_end};
use crate::bits::{bit_length, unzigzag, zigzag};
use crate::reader::{Reader, write_varint};
use crate::{DecodeError, tag};

/// The most rows that a guess is made from.
const ORDER: usize = 4;
/// Weights are in units of 2^-12.
const SHIFT: u32 = 12;
/// The widest limit, in bits: a sum of products stays within 64 bits.
const MAX_LIMIT: u32 = 44;
/// What each further step must gain, in bits a row, to be worth its time.
const GAIN: f64 = 0.12;

/// How numbers are guessed.
#[derive(Clone, Debug)]
pub(crate) struct Predictor {
    centre: u64,
    /// Distances are cut off at 2^limit.
    limit: u32,
    /// The weight of the row before, of the one before that, and so on.
    weights: [i64; ORDER],
}

/// Writes differences as what a predictor leaves of them. Does nothing and returns false if that gains nothing.
pub(crate) fn encode(values: &[u64], shape: Shape, level: Level, out: &mut Vec<u8>) -> bool {
    let sample = Sample::new(values.len()).gather(values);
    let Some((predictor, left)) = fit(&sample, shape, level) else { return false };
    out.push(tag::INT_LINEAR);
    predictor.write(out);
    let residuals = predictor.residuals(values);
    encode_end(&residuals, Sign::Signed, left, level.inner(), out);
    true
}

/// The best predictor for a sample, and the shape of what it leaves.
fn fit((sample, values): &(Sample, Vec<u64>), shape: Shape, level: Level) -> Option<(Predictor, Shape)> {
    let mut sorted = values.clone();
    let centre = *sorted.select_nth_unstable_by_key(values.len() / 2, |&value| Sign::Signed.key(value)).1;
    let mut sizes: Vec<u64> = values.iter().map(|value| (value.wrapping_sub(centre) as i64).unsigned_abs()).collect();
    let ninth = sizes.len() * 9 / 10;
    let limit = bit_length(*sizes.select_nth_unstable(ninth).1) + 2;
    if limit > MAX_LIMIT {
        return None;
    }
    let mut best: Option<(Predictor, Shape)> = None;
    for weights in solve(&correlations(sample, values, centre, limit))? {
        let predictor = Predictor { centre, limit, weights };
        let residuals = sample.map(values, |window| predictor.residuals(window));
        let left = shape_of_windows(residuals, Sign::Signed, level.effort);
        if left.bits + GAIN < best.as_ref().map_or(shape.bits, |(_, best)| best.bits) {
            best = Some((predictor, left));
        }
    }
    best
}

fn correlations(sample: &Sample, values: &[u64], centre: u64, limit: u32) -> [f64; ORDER + 1] {
    let mut sums = [0.0; ORDER + 1];
    for window in sample.windows() {
        let cut: Vec<f64> =
            values[window.clone()].iter().map(|&value| cut(value.wrapping_sub(centre), limit) as f64).collect();
        for (lag, sum) in sums.iter_mut().enumerate() {
            *sum += cut.iter().skip(lag).zip(&cut).map(|(a, b)| a * b).sum::<f64>();
        }
    }
    sums
}

/// The weights of the orders 2 and 4, by Durbin's recursion.
fn solve(correlations: &[f64; ORDER + 1]) -> Option<Vec<[i64; ORDER]>> {
    let mut error = correlations[0];
    let mut weights = [0.0; ORDER];
    let mut solutions = Vec::new();
    for order in 0..ORDER {
        if error <= 0.0 {
            return None;
        }
        let known: f64 = (0..order).map(|i| weights[i] * correlations[order - i]).sum();
        let reflection = (correlations[order + 1] - known) / error;
        let before = weights;
        weights[order] = reflection;
        for i in 0..order {
            weights[i] = before[i] - reflection * before[order - 1 - i];
        }
        error *= 1.0 - reflection * reflection;
        if matches!(order + 1, 2 | 4) {
            solutions.push(weights.map(|weight| (weight.clamp(-7.0, 7.0) * f64::from(1 << SHIFT)).round() as i64));
        }
    }
    Some(solutions)
}

/// A distance, cut off at 2^limit.
#[inline(always)]
fn cut(distance: u64, limit: u32) -> i64 {
    (distance as i64).clamp(-1 << limit, 1 << limit)
}

impl Predictor {
    fn write(&self, out: &mut Vec<u8>) {
        write_varint(out, zigzag(self.centre));
        out.push(self.limit as u8);
        let order = self.order();
        out.push(order as u8);
        self.weights[..order].iter().for_each(|&weight| write_varint(out, zigzag(weight as u64)));
    }

    fn read(reader: &mut Reader) -> Result<Self, DecodeError> {
        let centre = unzigzag(reader.varint()?);
        let limit = u32::from(reader.byte()?);
        let order = usize::from(reader.byte()?);
        if limit > MAX_LIMIT || order > ORDER {
            return Err(DecodeError::Invalid("linear predictor"));
        }
        let mut weights = [0; ORDER];
        for weight in &mut weights[..order] {
            *weight = unzigzag(reader.varint()?) as i64;
            if weight.unsigned_abs() >= 8 << SHIFT {
                return Err(DecodeError::Invalid("weight of a linear predictor"));
            }
        }
        Ok(Predictor { centre, limit, weights })
    }

    /// How many weights there are, without the zeros at the end.
    fn order(&self) -> usize {
        self.weights.iter().rposition(|&weight| weight != 0).map_or(0, |last| last + 1)
    }

    /// The guess from the last distances, the latest one first.
    #[inline(always)]
    fn guess<const N: usize>(&self, last: &[i64; N]) -> u64 {
        // The latest one comes in last: all others need not wait for it.
        let sum = last.iter().zip(&self.weights).rev().fold(1 << (SHIFT - 1), |sum, (row, weight)| sum + row * weight);
        (sum >> SHIFT) as u64
    }

    fn residuals(&self, values: &[u64]) -> Vec<u64> {
        let mut last = [0; ORDER];
        let residual = |&value: &u64| {
            let distance = value.wrapping_sub(self.centre);
            let residual = distance.wrapping_sub(self.guess(&last));
            last.copy_within(..ORDER - 1, 1);
            last[0] = cut(distance, self.limit);
            residual
        };
        values.iter().map(residual).collect()
    }

    fn restore<const N: usize>(&self, residuals: &mut [u64]) {
        let mut last = [0; N];
        for residual in residuals {
            let distance = residual.wrapping_add(self.guess(&last));
            *residual = distance.wrapping_add(self.centre);
            last.copy_within(..N - 1, 1);
            last[0] = cut(distance, self.limit);
        }
    }
}

pub(crate) fn decode(reader: &mut Reader, out: &mut [u64], depth: u8) -> Result<(), DecodeError> {
    let predictor = Predictor::read(reader)?;
    decode_level(reader.rest(), out, depth)?;
    match predictor.order() {
        0..=2 => predictor.restore::<2>(out),
        _ => predictor.restore::<ORDER>(out),
    }
    Ok(())
}
