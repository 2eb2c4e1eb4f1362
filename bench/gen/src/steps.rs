//! Distributions of steps, as tables that 16 random bits index.
//!
//! A table makes a draw one load, and its entropy exact: the probability of a step is the number
//! of its entries over 65,536.

/// Entries of a table.
const ENTRIES: usize = 1 << 16;

/// A distribution of whole-number steps.
pub struct Steps {
    table: Vec<i32>,
    entropy_bits: f64,
}

impl Steps {
    /// The normal distribution with standard deviation `sigma`, rounded to whole numbers.
    pub fn normal(sigma: f64) -> Self {
        let reach = (sigma * 5.0).ceil() as i32;
        let weight = |step: i32| (-0.5 * (f64::from(step) / sigma).powi(2)).exp();
        Self::from_weights((-reach..=reach).map(|step| (step, weight(step))))
    }

    /// Zero, but with probability `change` a step of the normal distribution other than zero.
    pub fn mostly_zero(change: f64, sigma: f64) -> Self {
        let reach = (sigma * 5.0).ceil() as i32;
        let weight = |step: i32| (-0.5 * (f64::from(step) / sigma).powi(2)).exp();
        let steps = || (-reach..=reach).filter(|&step| step != 0);
        let total: f64 = steps().map(weight).sum();
        let moves = steps().map(|step| (step, change * weight(step) / total));
        Self::from_weights(std::iter::once((0, 1.0 - change)).chain(moves))
    }

    /// Waiting times with the given mean: never negative, small ones most likely.
    pub fn exponential(mean: f64) -> Self {
        let reach = (mean * 10.0).ceil() as i32;
        Self::from_weights((0..=reach).map(|step| (step, (-f64::from(step) / mean).exp())))
    }

    /// Gives each step its share of the entries: entry i belongs to the step whose slice of the
    /// cumulated weights holds the point (i + 1/2) / 65,536.
    fn from_weights(weights: impl Iterator<Item = (i32, f64)>) -> Self {
        let weights: Vec<(i32, f64)> = weights.collect();
        let total: f64 = weights.iter().map(|&(_, weight)| weight).sum();
        let mut table = Vec::with_capacity(ENTRIES);
        let mut entropy_bits = 0.0;
        let mut cumulated = 0.0;
        for &(step, weight) in &weights {
            cumulated += weight / total;
            let end = ((cumulated * ENTRIES as f64).round() as usize).min(ENTRIES);
            let entries = end - table.len();
            if entries > 0 {
                let probability = entries as f64 / ENTRIES as f64;
                entropy_bits -= probability * probability.log2();
                table.resize(end, step);
            }
        }
        // Rounding of the sum may leave the very last entry open.
        if let Some(&last) = table.last() {
            table.resize(ENTRIES, last);
        }
        Self { table, entropy_bits }
    }

    /// The step that these 16 random bits stand for.
    pub fn pick(&self, bits: u16) -> i32 {
        self.table[usize::from(bits)]
    }

    /// Bits that a step costs at least, on average.
    pub fn entropy_bits(&self) -> f64 {
        self.entropy_bits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entropy_of_a_normal_distribution_is_the_textbooks() {
        let sigma: f64 = 30.0;
        let expected = (sigma * (2.0 * std::f64::consts::PI * std::f64::consts::E).sqrt()).log2();
        assert!((Steps::normal(sigma).entropy_bits() - expected).abs() < 0.01);
    }

    #[test]
    fn mostly_zero_is_zero_as_often_as_told() {
        let steps = Steps::mostly_zero(0.05, 5.0);
        let zeros = (0..=u16::MAX).filter(|&bits| steps.pick(bits) == 0).count();
        assert!((zeros as f64 / ENTRIES as f64 - 0.95).abs() < 0.001);
    }

    #[test]
    fn waiting_times_are_never_negative_and_keep_their_mean() {
        let steps = Steps::exponential(500.0);
        let sum: i64 = (0..=u16::MAX).map(|bits| i64::from(steps.pick(bits))).sum();
        assert!((0..=u16::MAX).all(|bits| steps.pick(bits) >= 0));
        assert!((sum as f64 / ENTRIES as f64 - 500.0).abs() < 5.0);
    }
}
