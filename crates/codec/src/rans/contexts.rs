//! Which groups of rows share a table.
//!
//! Groups are ordered by the mean length of their numbers (as distances to the median); neighbours are joined as
//! long as one table for both costs less than two. Equal groups end up with one table, whatever their number.

use super::TABLES;
use crate::bits::{bit_length, zigzag};

/// Rows that have a table in common.
pub(crate) const GROUP: usize = 256;
/// What a table costs, about.
const TABLE_BITS: f32 = 300.0;

struct Cluster {
    groups: Vec<usize>,
    lengths: [u32; 65],
    bits: f32,
}

impl Cluster {
    fn new(groups: Vec<usize>, lengths: [u32; 65]) -> Self {
        let total: u32 = lengths.iter().sum();
        let bits = |&count: &u32| count as f32 * (total as f32 / count as f32).log2();
        Cluster { groups, bits: lengths.iter().filter(|&&count| count > 0).map(bits).sum(), lengths }
    }

    fn mean(&self) -> f32 {
        let sum: usize = self.lengths.iter().enumerate().map(|(length, &count)| length * count as usize).sum();
        sum as f32 / self.lengths.iter().sum::<u32>().max(1) as f32
    }

    fn joined(&self, other: &Cluster) -> Self {
        let mut lengths = self.lengths;
        lengths.iter_mut().zip(&other.lengths).for_each(|(sum, count)| *sum += count);
        Cluster::new(self.groups.iter().chain(&other.groups).copied().collect(), lengths)
    }
}

/// The number of a table for each group, counted from 0 without holes.
pub(crate) fn choose(numbers: &[u64]) -> Vec<u64> {
    let groups = numbers.len().div_ceil(GROUP);
    let mut tables = vec![0; groups];
    if groups < 4 {
        return tables;
    }
    for (table, cluster) in join(clusters(numbers)).iter().enumerate() {
        cluster.groups.iter().for_each(|&group| tables[group] = table as u64);
    }
    tables
}

fn clusters(numbers: &[u64]) -> Vec<Cluster> {
    let mut sample: Vec<u64> = numbers.iter().step_by(numbers.len() / 512 + 1).copied().collect();
    let middle = sample.len() / 2;
    let median = *sample.select_nth_unstable(middle).1;
    let of_group = |(i, group): (usize, &[u64])| {
        let mut lengths = [0; 65];
        group.iter().for_each(|number| lengths[bit_length(zigzag(number.wrapping_sub(median))) as usize] += 1);
        Cluster::new(vec![i], lengths)
    };
    let mut clusters: Vec<Cluster> = numbers.chunks(GROUP).enumerate().map(of_group).collect();
    clusters.sort_by(|a, b| a.mean().total_cmp(&b.mean()));
    clusters
}

/// Joins neighbours, the most alike first.
fn join(mut clusters: Vec<Cluster>) -> Vec<Cluster> {
    let mut pairs: Vec<Cluster> = clusters.windows(2).map(|c| c[0].joined(&c[1])).collect();
    loop {
        let loss = |i: usize| pairs[i].bits - clusters[i].bits - clusters[i + 1].bits;
        let best = (0..pairs.len()).min_by(|&a, &b| loss(a).total_cmp(&loss(b)));
        let Some(i) = best.filter(|&i| loss(i) < TABLE_BITS || clusters.len() > TABLES) else { return clusters };
        clusters[i] = pairs.remove(i);
        clusters.remove(i + 1);
        if i > 0 {
            pairs[i - 1] = clusters[i - 1].joined(&clusters[i]);
        }
        if i < pairs.len() {
            pairs[i] = clusters[i].joined(&clusters[i + 1]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noise(i: u64) -> u64 {
        i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32
    }

    #[test]
    fn equal_groups_share_one_table() {
        let numbers: Vec<u64> = (0..20_000).map(|i| noise(i) % 1000).collect();
        assert!(choose(&numbers).iter().all(|&table| table == 0));
    }

    #[test]
    fn idle_and_busy_groups_get_two() {
        let numbers: Vec<u64> = (0..32 * 256).map(|i| 50_000 + noise(i) % if i / 1024 % 2 == 0 { 4 } else { 10_000 }).collect();
        let tables = choose(&numbers);
        assert_eq!(tables.iter().max(), Some(&1));
        assert!((0..32).all(|group| (tables[group] == tables[0]) == (group / 4 % 2 == 0)));
    }
}
