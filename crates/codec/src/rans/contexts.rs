//! Which groups of rows share a table.
//!
//! A busy port beside an idle one, or a sensor with more noise: one table for both fits neither. Groups are sorted
//! into clusters as k-means does it, with the bits that a group takes under a cluster's distribution for a distance.
//! It starts with one cluster and adds another as long as that gains more than a table costs. What it gains is counted
//! on other rows than those that it was found by: chance finds clusters anywhere.

use super::TABLES;

/// Rows that have a table in common.
pub(crate) const GROUP: usize = 256;
/// What a table costs, about, with the numbers of the groups that use it.
const TABLE_BITS: f32 = 350.0;
/// Every so many rows of a group are looked at, in two halves.
const STEP: usize = 4;
/// Cells that the numbers are sorted into, equally full over all groups.
const CELLS: usize = 64;
/// Numbers that the borders of the cells are found by.
const SAMPLE: usize = 1024;

/// How many numbers of a group lie in each cell, or the bits of a number in each.
type Counts = [f32; CELLS];

/// The sampled rows of a group.
struct Group {
    /// Clusters are found by these.
    found: Counts,
    /// And judged by these.
    judged: Counts,
    /// The bits of the first half under its own distribution.
    own_bits: f32,
}

/// The number of a table for each group, counted from 0 without holes.
pub(crate) fn choose(numbers: &[u64]) -> Vec<u64> {
    let groups = numbers.len().div_ceil(GROUP);
    if groups < 4 {
        return vec![0; groups];
    }
    let groups = count_cells(numbers);
    let mut best = Clustering::assign(&groups, &[code(&sum(groups.iter()))]);
    while best.clusters < TABLES {
        let trial = best.split(&groups);
        if trial.bits + TABLE_BITS >= best.bits {
            break;
        }
        best = trial;
    }
    best.numbered()
}

fn count_cells(numbers: &[u64]) -> Vec<Group> {
    let mut sample: Vec<u64> = numbers.iter().step_by(numbers.len().div_ceil(SAMPLE)).copied().collect();
    sample.sort_unstable();
    let mut borders = [0; CELLS - 1];
    borders.iter_mut().enumerate().for_each(|(i, border)| *border = sample[(i + 1) * sample.len() / CELLS]);
    let count = |group: &[u64], first: usize| {
        let mut counts = [0.0; CELLS];
        for number in group.iter().skip(first).step_by(2 * STEP) {
            counts[borders.partition_point(|border| border <= number)] += 1.0;
        }
        counts
    };
    let of_group = |group: &[u64]| {
        let found = count(group, 0);
        Group { own_bits: dot(&found, &code(&found)), judged: count(group, STEP), found }
    };
    numbers.chunks(GROUP).map(of_group).collect()
}

/// Which cluster each group belongs to, and the bits that all take.
struct Clustering {
    cluster_of: Vec<usize>,
    clusters: usize,
    /// The bits of each group, by the rows that clusters are found by.
    group_bits: Vec<f32>,
    /// The bits of all groups, by the rows that they are judged by.
    bits: f32,
}

impl Clustering {
    /// Puts each group where it takes the fewest bits.
    fn assign(groups: &[Group], codes: &[Counts]) -> Self {
        let mut this = Clustering { cluster_of: Vec::new(), clusters: codes.len(), group_bits: Vec::new(), bits: 0.0 };
        for group in groups {
            let bits = codes.iter().map(|code| dot(&group.found, code)).enumerate();
            let (cluster, bits) = bits.min_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or((0, 0.0));
            this.cluster_of.push(cluster);
            this.group_bits.push(bits);
            this.bits += dot(&group.judged, &codes[cluster]) * (2 * STEP) as f32;
        }
        this
    }

    /// Groups that may be the core of a new cluster: the dearest, the cheapest, and the one that fits worst.
    fn seeds(&self, groups: &[Group]) -> [usize; 3] {
        let most = |score: &dyn Fn(usize) -> f32| {
            let scores = (0..groups.len()).map(|group| (group, score(group)));
            scores.max_by(|a, b| a.1.total_cmp(&b.1)).map_or(0, |(group, _)| group)
        };
        [
            most(&|i| self.group_bits[i]),
            most(&|i| -self.group_bits[i]),
            most(&|i| self.group_bits[i] - groups[i].own_bits),
        ]
    }

    /// One cluster more, grown from the most promising seed.
    fn split(&self, groups: &[Group]) -> Self {
        let grown = self.seeds(groups).map(|seed| self.grow(groups, seed));
        let best = grown.into_iter().max_by(|a, b| a.1.total_cmp(&b.1));
        let mut codes = self.codes(groups);
        codes.extend(best.map(|(code, _)| code));
        let trial = Self::assign(groups, &codes);
        Self::assign(groups, &trial.codes(groups))
    }

    /// The code of the groups that a seed attracts, and what they gain by it.
    fn grow(&self, groups: &[Group], seed: usize) -> (Counts, f32) {
        let own = code(&groups[seed].found);
        let gain = |(group, bits): (&Group, &f32), code| (bits - dot(&group.found, code)).max(0.0);
        let attracted = groups.iter().zip(&self.group_bits).filter(|&pair| gain(pair, &own) > 0.0);
        let code = code(&sum(attracted.map(|(group, _)| group)));
        let gains = groups.iter().zip(&self.group_bits).map(|pair| gain(pair, &code)).sum();
        (code, gains)
    }

    /// The bits of a number of each cell, for each cluster.
    fn codes(&self, groups: &[Group]) -> Vec<Counts> {
        let members = |cluster| groups.iter().zip(&self.cluster_of).filter(move |&(_, &of)| of == cluster);
        (0..self.clusters).map(|cluster| code(&sum(members(cluster).map(|(group, _)| group)))).collect()
    }

    /// The clusters that are in use, in order of appearance.
    fn numbered(&self) -> Vec<u64> {
        let mut numbers = vec![None; self.clusters];
        let mut next = 0;
        let number = |&cluster: &usize| {
            *numbers[cluster].get_or_insert_with(|| {
                next += 1;
                next - 1
            })
        };
        self.cluster_of.iter().map(number).collect()
    }
}

fn sum<'a>(groups: impl Iterator<Item = &'a Group>) -> Counts {
    let mut sums = [0.0; CELLS];
    groups.for_each(|group| sums.iter_mut().zip(&group.found).for_each(|(sum, count)| *sum += count));
    sums
}

fn code(counts: &Counts) -> Counts {
    // A cell that was never seen may still come.
    const UNSEEN: f32 = 0.1;
    let total = (counts.iter().sum::<f32>() + UNSEEN * CELLS as f32).log2();
    counts.map(|count| total - (count + UNSEEN).log2())
}

fn dot(counts: &Counts, code: &Counts) -> f32 {
    // Eight sums side by side: one alone would have to be taken in order.
    let mut sums = [0f32; 8];
    for (counts, code) in counts.chunks_exact(8).zip(code.chunks_exact(8)) {
        for i in 0..8 {
            sums[i] += counts[i] * code[i];
        }
    }
    sums.iter().sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noise(i: u64) -> u64 {
        let z = i.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb) >> 32
    }

    #[test]
    fn equal_groups_share_one_table() {
        let numbers: Vec<u64> = (0..20_000).map(|i| noise(i) % 1000).collect();
        assert!(choose(&numbers).iter().all(|&table| table == 0));
    }

    #[test]
    fn idle_and_busy_groups_get_two() {
        let busy = |i: u64| i / 1024 % 2 == 0;
        let numbers: Vec<u64> = (0..32 * 256).map(|i| 50_000 + noise(i) % if busy(i) { 10_000 } else { 4 }).collect();
        let tables = choose(&numbers);
        assert_eq!(tables.iter().max(), Some(&1));
        assert!((0..32).all(|group| (tables[group] == tables[0]) == (group / 4 % 2 == 0)));
    }
}
