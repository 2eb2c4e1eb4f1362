//! Buckets of time: where they begin and end, and which of them nest. Pure.
//!
//! All arithmetic is in microseconds since the epoch, in UTC; [`Buckets`] says the same in values of a table's time lane.
//! A bucket is named by the lane value of its start.

use crate::schema::{Bucket, Schema};
use crate::time::{DAY, TimeLane, civil, day_micros, days_before};

/// A twelfth of the mean year, in microseconds.
const MEAN_MONTH: u64 = 2_629_746_000_000;

impl Bucket {
    /// The start of the bucket of a time.
    pub fn start_of(&self, micros: i64) -> i64 {
        match *self {
            Bucket::Fixed { length, offset } => {
                let length = signed(length).max(1);
                micros.saturating_sub(micros.wrapping_sub(signed(offset)).rem_euclid(length))
            }
            Bucket::Months { count } => {
                let (year, month, _) = civil(micros.div_euclid(DAY));
                month_start((year * 12 + month - 1).div_euclid(months(count)) * months(count))
            }
        }
    }

    /// The end of the bucket that starts at `start`, which is the start of the next one; `None` if no time can say it.
    pub fn end_of(&self, start: i64) -> Option<i64> {
        match *self {
            Bucket::Fixed { length, .. } => start.checked_add(signed(length).max(1)),
            Bucket::Months { count } => {
                let (year, month, _) = civil(start.div_euclid(DAY));
                let end = month_start(year * 12 + month - 1 + months(count));
                (end > start && end < i64::MAX).then_some(end)
            }
        }
    }

    /// About how long it is, for comparisons.
    pub fn approximate_length(&self) -> u64 {
        match *self {
            Bucket::Fixed { length, .. } => length,
            Bucket::Months { count } => u64::from(count.max(1)).saturating_mul(30 * DAY as u64),
        }
    }

    /// Whether every bucket of `coarser` consists of whole buckets of this kind.
    pub fn nests_in(&self, coarser: &Bucket) -> bool {
        match (*self, *coarser) {
            (Bucket::Fixed { length: a, offset: p }, Bucket::Fixed { length: b, offset: q }) => {
                a > 0 && b % a == 0 && q % a == p % a
            }
            (Bucket::Fixed { length, offset }, Bucket::Months { .. }) => {
                length > 0 && DAY as u64 % length == 0 && offset % length == 0
            }
            (Bucket::Months { count: a }, Bucket::Months { count: b }) => months(b) % months(a) == 0,
            (Bucket::Months { .. }, Bucket::Fixed { .. }) => false,
        }
    }
}

fn signed(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

fn months(count: u32) -> i64 {
    i64::from(count.max(1))
}

/// Start of a month, counted from January of year 0.
fn month_start(number: i64) -> i64 {
    day_micros(days_before(number.div_euclid(12), number.rem_euclid(12) + 1))
}

/// The buckets of a tier in values of the time lane.
#[derive(Clone, Copy, Debug)]
pub struct Buckets {
    bucket: Bucket,
    lane: TimeLane,
}

/// A bucket in values of the time lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Interval {
    /// The first value in it. It names the bucket.
    pub first: u64,
    /// The last value in it.
    pub last: u64,
}

impl Interval {
    /// Whether a time lies in it.
    pub fn contains(&self, time: u64) -> bool {
        (self.first..=self.last).contains(&time)
    }
}

impl Buckets {
    /// Of a table with a time column.
    pub fn of(schema: &Schema, bucket: Bucket) -> Option<Buckets> {
        Some(Buckets { bucket, lane: TimeLane::of(schema)? })
    }

    /// Their kind.
    pub fn bucket(&self) -> Bucket {
        self.bucket
    }

    /// The bucket of a time.
    pub fn interval(&self, time: u64) -> Interval {
        let mut start = self.bucket.start_of(self.lane.micros(time));
        let mut first = self.lane.at_or_after(start);
        if first > time {
            // A value that stands for a later time than it is sorted at (a DATETIME without a day) belongs where it is sorted.
            start = self.bucket.start_of(start.saturating_sub(1));
            first = self.lane.at_or_after(start).min(time);
        }
        let last = match self.bucket.end_of(start) {
            None => u64::MAX,
            Some(end) => {
                let next = self.lane.at_or_after(end);
                // No value of the lane is at the end: all that come are in the bucket.
                if self.lane.micros(next) < end || next <= time { u64::MAX } else { next - 1 }
            }
        };
        Interval { first, last: last.max(time) }
    }

    /// All buckets that a span of time touches.
    pub fn covering(&self, times: Interval) -> Interval {
        Interval { first: self.interval(times.first).first, last: self.interval(times.last).last }
    }

    /// How many buckets a span of them has; a span without an end counts as one. Months are counted by their mean length.
    pub fn count(&self, span: Interval) -> u64 {
        if span.last == u64::MAX {
            return 1;
        }
        let micros = self.lane.micros(span.last).saturating_sub(self.lane.micros(span.first)).unsigned_abs();
        match self.bucket {
            Bucket::Fixed { length, .. } => micros / length.max(1) + 1,
            Bucket::Months { count } => {
                let length = u64::from(count.max(1)) * MEAN_MONTH;
                ((micros + length / 2) / length).max(1)
            }
        }
    }

    /// What there is of some spans of whole buckets from the first bucket on that does not begin before `line`.
    pub fn from(&self, spans: &[Interval], line: u64) -> Vec<Interval> {
        let at_line = self.interval(line);
        let next = if at_line.first == line { Some(line) } else { at_line.last.checked_add(1) };
        // The last bucket there is has no next one: a span that no time is in would be looked for without end.
        let Some(line) = next.filter(|line| *line <= self.lane.largest()) else { return Vec::new() };
        let cut = spans.iter().filter(|span| span.last >= line);
        cut.map(|span| Interval { first: span.first.max(line), last: span.last }).collect()
    }

    /// What there is of some spans of whole buckets before the bucket that begins at `line`.
    pub fn before(&self, spans: &[Interval], line: u64) -> Vec<Interval> {
        let cut = spans.iter().filter(|span| span.first < line);
        cut.map(|span| Interval { first: span.first, last: span.last.min(line.saturating_sub(1)) }).collect()
    }

    /// Start and end of the bucket with this name, in microseconds.
    pub fn micros(&self, first: u64) -> (i64, i64) {
        let start = self.bucket.start_of(self.lane.micros(first));
        (start, self.bucket.end_of(start).unwrap_or(i64::MAX))
    }

    /// Times of the lane.
    pub fn lane(&self) -> &TimeLane {
        &self.lane
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::TimeUnit;
    use proptest::prelude::*;

    const MINUTE: u64 = 60_000_000;

    fn fixed(length: u64) -> Bucket {
        Bucket::Fixed { length, offset: 0 }
    }

    /// 1970-01-05 was a Monday.
    fn week() -> Bucket {
        Bucket::Fixed { length: 7 * DAY as u64, offset: 4 * DAY as u64 }
    }

    fn any_bucket() -> impl Strategy<Value = Bucket> {
        prop_oneof![
            (1u64..100_000_000_000)
                .prop_flat_map(|length| (Just(length), 0..length))
                .prop_map(|(length, offset)| Bucket::Fixed { length, offset }),
            (1u32..40).prop_map(|count| Bucket::Months { count }),
        ]
    }

    /// CHECK TABLE and SELECT from a tier looked for rows of the bucket behind the last one, for ever.
    #[test]
    fn nothing_comes_after_the_last_bucket() {
        for (width, bias) in [(4, 1 << 31), (4, 0), (8, 1 << 63), (8, 0)] {
            let buckets =
                Buckets { bucket: fixed(60 * MINUTE), lane: crate::time::tests::lane(TimeUnit::S, bias, width) };
            let largest = buckets.lane.largest();
            let all = [Interval { first: 0, last: u64::MAX }];
            for line in [largest, largest - 1, largest.saturating_add(1), u64::MAX] {
                let rest = buckets.from(&all, line);
                let is_start = buckets.interval(line.min(largest)).first == line;
                assert!(rest.is_empty() || (is_start && rest[0].first == line), "{width} {bias} {line}: {rest:?}");
            }
        }
    }

    proptest! {
        #[test]
        fn each_time_is_in_one_bucket(bucket in any_bucket(), t in -60_000_000_000_000_000i64..200_000_000_000_000_000) {
            let start = bucket.start_of(t);
            let end = bucket.end_of(start);
            prop_assert!(start <= t && end.is_some_and(|end| t < end));
            prop_assert_eq!(bucket.start_of(start), start);
            prop_assert_eq!(end.map(|end| bucket.start_of(end)), end);
            prop_assert_eq!(end.map(|end| bucket.start_of(end - 1)), Some(start));
        }

        #[test]
        fn the_ends_of_time_have_buckets(bucket in any_bucket(), at_end in any::<bool>(), off in 0i64..1 << 40) {
            let t = if at_end { i64::MAX - off } else { i64::MIN + off };
            let start = bucket.start_of(t);
            prop_assert!(start <= t || !at_end);
            prop_assert!(bucket.end_of(start).is_none_or(|end| end > start));
        }

        #[test]
        fn nested_buckets_have_common_ends(fine in any_bucket(), coarse in any_bucket(), t in 0i64..4_000_000_000_000_000) {
            if fine.nests_in(&coarse) {
                let start = coarse.start_of(t);
                prop_assert_eq!(fine.start_of(start), start);
            }
        }
    }

    #[test]
    fn calendar() {
        let month = Bucket::Months { count: 1 };
        let day = |y, m| day_micros(days_before(y, m));
        assert_eq!(month.start_of(day(2024, 3) - 1), day(2024, 2));
        assert_eq!(month.end_of(day(2024, 2)), Some(day(2024, 3)));
        assert_eq!(Bucket::Months { count: 12 }.start_of(day(2024, 12)), day(2024, 1));
        assert_eq!(week().start_of(4 * DAY), 4 * DAY);
        assert_eq!(week().start_of(4 * DAY - 1), -3 * DAY);
    }

    #[test]
    fn what_nests() {
        assert!(fixed(30 * MINUTE).nests_in(&fixed(240 * MINUTE)));
        assert!(!fixed(7 * MINUTE).nests_in(&fixed(30 * MINUTE)));
        assert!(fixed(DAY as u64).nests_in(&week()) && fixed(DAY as u64).nests_in(&Bucket::Months { count: 1 }));
        assert!(
            !week().nests_in(&Bucket::Months { count: 1 }) && !fixed(week().approximate_length()).nests_in(&week())
        );
        assert!(Bucket::Months { count: 1 }.nests_in(&Bucket::Months { count: 12 }));
    }
}
