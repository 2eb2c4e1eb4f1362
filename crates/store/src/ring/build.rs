//! MAX_BYTES: room for tiers that ALTER TABLE builds.
//!
//! All of them are built from the same rows, so it is found at once how many of these have to go: the fewer there are, the less
//! the buckets take. One tier after the other would take all the room, and rows would go for each.

use std::sync::Arc;

use crate::engine::Engine;
use crate::error::Result;
use crate::fs::space::Room;
use crate::table::Table;

use super::bytes::{RingOfBytes, ends_of_rows, segment_bytes, tier_share, with_margin};

/// What is known of the build of a tier; of those that stay as they are, that they do.
pub(crate) struct BuildPlan {
    /// The tier.
    pub tier: Arc<Table>,
    /// Whether its buckets are computed.
    pub is_built: bool,
    /// Whether the table does not have it yet.
    pub is_made: bool,
    /// Whether it has buckets of times only of which there are rows.
    pub is_from_rows: bool,
    /// Bytes that it took, from a finer tier and from rows, when that was tried.
    pub took: [u64; 2],
    /// When its first bucket began.
    pub from: u64,
    /// The part of each of both that tiers have room for.
    pub fits: [f64; 2],
    /// Buckets before this time take more than tiers may.
    pub cut: u64,
}

impl Engine {
    /// Before buckets of tiers are computed that the table does not have yet; `plans` of all tiers there will be know what they
    /// take if that was tried and was too much. Room for them, no more than tiers may take, and than fits if the rows that
    /// they are computed from go for them.
    pub(crate) fn make_room_for_build(
        &self,
        table: &Arc<Table>,
        plans: &mut [BuildPlan],
        is_tried: bool,
    ) -> Result<Option<Arc<Room>>> {
        // New tiers are no parts of the table yet, but their files count.
        plans.iter().try_for_each(|plan| self.ring_of_bytes(&plan.tier).map(|_| ()))?;
        let Some(RingOfBytes { base, space, max_bytes }) = self.ring_of_bytes(table)?.filter(|_| is_tried) else {
            return self.make_room(table, 0);
        };
        let of_tiers = tier_share(max_bytes);
        // Buckets that are computed anew stand beside those that they replace, and all of them are: else some were left as they
        // were. The oldest buckets, whose rows are gone, go for them.
        let is_anew = plans.iter().any(|plan| plan.is_built && !plan.is_made);
        let old: Vec<Arc<Table>> = match is_anew {
            true => base.tiers().iter().map(|tier| tier.table.clone()).collect(),
            false => plans.iter().filter(|plan| !plan.is_built).map(|plan| plan.tier.clone()).collect(),
        };
        let beside: u64 = old.iter().map(|tier| segment_bytes(tier)).sum();
        let (mut takes, mut built, tiers) = (Vec::new(), 0, plans.len() as u64);
        for plan in plans.iter_mut().filter(|plan| plan.is_built) {
            let most = match plan.is_made {
                true => of_tiers.saturating_sub(beside + built).max(of_tiers / tiers),
                false => u64::MAX,
            };
            let [of_finer, of_rows] = plan.took.map(with_margin);
            plan.fits = [most as f64 / of_finer as f64, most.saturating_sub(of_finer) as f64 / of_rows as f64];
            let bytes = of_finer + of_rows;
            takes.push(Take { bytes, most, from: Some(plan.from).filter(|_| plan.is_from_rows) });
            built += bytes.min(most);
        }
        self.let_go(&base, &space);
        let rows = segment_bytes(&base);
        let wanted = || room_beside_rows(&ends_of_rows(&base), &takes, space.free());
        let until = if is_anew { base.gone_until() } else { u64::MAX };
        self.make_room_in_tiers(&base, &old, 0, (beside + wanted()).saturating_sub(of_tiers), until)?;
        let room = self.make_room(table, wanted())?;
        // Of fewer rows more of the buckets fit.
        let left = segment_bytes(&base) as f64 / rows.max(1) as f64;
        plans.iter_mut().for_each(|plan| plan.fits[1] /= left.max(f64::MIN_POSITIVE));
        Ok(room)
    }
}

/// Bytes that are computed, of which no more than `most` are; where it is from rows alone, from those since `from`.
struct Take {
    bytes: u64,
    most: u64,
    from: Option<u64>,
}

/// The room for bytes that are computed from rows, of which as many of the oldest segments go as it takes. `rows` are the ends of
/// segments and their bytes, in order.
fn room_beside_rows(rows: &[(u64, u64)], takes: &[Take], free: u64) -> u64 {
    let mut since = vec![0; rows.len() + 1];
    for (place, (_, bytes)) in rows.iter().enumerate().rev() {
        since[place] = since[place + 1] + bytes;
    }
    let left = |gone: usize| {
        let of_take = |take: &Take| {
            let first = take.from.map_or(rows.len(), |from| rows.partition_point(|(end, _)| *end < from));
            let bytes = match since[first] {
                0 => take.bytes,
                all => (take.bytes as f64 * since[first.max(gone)] as f64 / all as f64) as u64,
            };
            bytes.min(take.most)
        };
        takes.iter().map(of_take).sum::<u64>()
    };
    let with_gone = |gone: usize| free + since[0] - since[gone];
    let gone = (0..rows.len()).find(|&gone| left(gone) <= with_gone(gone)).unwrap_or(rows.len());
    // They have to go, also where what is left would fit without that.
    left(gone).max(gone.checked_sub(1).map_or(0, |before| with_gone(before) + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten segments of 100 bytes, of ten seconds each.
    fn rows() -> Vec<(u64, u64)> {
        (0..10).map(|n| (10 * n + 9, 100)).collect()
    }

    fn from_rows(bytes: u64, from: u64) -> Take {
        Take { bytes, most: u64::MAX, from: Some(from) }
    }

    #[test]
    fn what_fits_needs_no_rows_to_go() {
        assert_eq!(room_beside_rows(&rows(), &[from_rows(500, 0), from_rows(100, 0)], 600), 600);
        assert_eq!(room_beside_rows(&[], &[from_rows(500, 0)], 600), 500);
    }

    /// Each segment that goes frees 100 bytes, and 100 less are needed.
    #[test]
    fn rows_go_for_all_tiers_together() {
        for tiers in [vec![from_rows(1000, 0)], vec![from_rows(700, 0), from_rows(300, 0)]] {
            assert_eq!(room_beside_rows(&rows(), &tiers, 0), 500);
        }
    }

    #[test]
    fn rows_of_which_there_are_no_buckets_make_nothing_smaller() {
        assert_eq!(room_beside_rows(&rows(), &[from_rows(500, 50)], 0), 500);
        assert_eq!(room_beside_rows(&rows(), &[from_rows(700, 50)], 0), 560);
    }

    #[test]
    fn what_comes_from_a_finer_tier_does_not_become_less() {
        assert_eq!(room_beside_rows(&rows(), &[Take { bytes: 300, most: u64::MAX, from: None }], 0), 300);
    }

    #[test]
    fn no_rows_go_for_more_than_there_may_be() {
        assert_eq!(room_beside_rows(&rows(), &[Take { bytes: 5000, most: 200, from: Some(0) }], 0), 200);
    }

    /// The first segment frees what is missing, but only because of it little enough is missing.
    #[test]
    fn rows_go_although_what_is_left_would_fit_beside_them() {
        let rows = [(9, 10), (19, 10)];
        assert_eq!(room_beside_rows(&rows, &[from_rows(1000, 0)], 600), 601);
    }
}
