//! Which intervals to cut a distribution into.
//!
//! Intervals are dyadic: 2^w long and starting at a multiple of 2^w. The best set of them is found on the binary
//! tree of the sorted numbers: a node is one interval, or its two halves are covered apart, whichever costs less
//! with the description of the intervals counted in.

use crate::bits::bit_length;

/// The most intervals of a table: their numbers fit a byte.
pub(crate) const BINS: usize = 256;
/// What the description of an interval costs, about: its width, the gap before it, its probability.
const BIN_BITS: f32 = 8.0;
/// Nodes with fewer numbers are not cut further.
const FEWEST: usize = 4;

/// The numbers `lower..lower + 2^width`, and how many there are of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Bin {
    pub(crate) lower: u64,
    pub(crate) width: u32,
    pub(crate) count: u32,
}

/// The bins for sorted numbers, in ascending order, and the bits that the numbers will take with them.
pub(crate) fn choose(sorted: &[u64]) -> (Vec<Bin>, f64) {
    let mut bin_bits = BIN_BITS;
    loop {
        let mut tree = Tree { total: sorted.len() as f32, bin_bits, bins: Vec::new() };
        let bits = tree.cover(sorted, 64);
        if tree.bins.len() <= BINS {
            return (tree.bins, f64::from(bits));
        }
        bin_bits *= 1.5;
    }
}

struct Tree {
    total: f32,
    bin_bits: f32,
    bins: Vec<Bin>,
}

impl Tree {
    /// Adds the best bins for `sorted`, all in one dyadic interval of 2^`room`; returns what they cost.
    fn cover(&mut self, sorted: &[u64], room: u32) -> f32 {
        let (Some(&first), Some(&last)) = (sorted.first(), sorted.last()) else { return 0.0 };
        let width = bit_length(first ^ last);
        let whole = self.whole_cost(sorted.len(), width, room);
        if width == 0 || (sorted.len() < FEWEST && width < 64) {
            self.add(first, width, sorted.len());
            return whole;
        }
        let start = self.bins.len();
        let half = last >> (width - 1) << (width - 1);
        let (low, high) = sorted.split_at(sorted.partition_point(|&number| number < half));
        let halves = self.cover(low, width - 1) + self.cover(high, width - 1);
        if halves < whole || width == 64 {
            return halves;
        }
        self.bins.truncate(start);
        self.add(first, width, sorted.len());
        whole
    }

    fn whole_cost(&self, count: usize, width: u32, room: u32) -> f32 {
        let count = count as f32;
        // An interval much smaller than its room is found by a gap: two bits for each halving.
        let description = self.bin_bits + 2.0 * room.saturating_sub(width + 1) as f32;
        count * (width as f32 + (self.total / count).log2()) + description
    }

    fn add(&mut self, number: u64, width: u32, count: usize) {
        self.bins.push(Bin { lower: number >> width << width, width, count: count as u32 });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_cover_every_number_once_and_in_order() {
        let mut numbers: Vec<u64> = (0..5000u64).map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (i % 64)).collect();
        numbers.extend([0; 300]);
        numbers.push(u64::MAX);
        numbers.sort_unstable();
        let (bins, _) = choose(&numbers);
        assert!(bins.len() <= BINS);
        assert_eq!(bins.iter().map(|bin| bin.count as usize).sum::<usize>(), numbers.len());
        for pair in bins.windows(2) {
            assert!(pair[0].lower + ((1 << pair[0].width) - 1) < pair[1].lower);
        }
        let of = |number: u64| &bins[bins.partition_point(|bin| bin.lower <= number) - 1];
        assert!(numbers.iter().all(|&number| number - of(number).lower < 1 << of(number).width));
    }

    #[test]
    fn a_spike_gets_a_bin_of_its_own() {
        let mut numbers: Vec<u64> = (0..1000).collect();
        numbers.extend([512; 20_000]);
        numbers.sort_unstable();
        let (bins, _) = choose(&numbers);
        assert!(bins.iter().any(|bin| bin.lower == 512 && bin.width == 0));
    }
}
