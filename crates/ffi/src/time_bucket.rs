//! The arithmetic of SQL's `time_bucket(width, time [, origin or offset])`. Pure.
//!
//! Times are whole numbers of some unit, of which a second has `per_second`: 1 for integer columns, a million for dates.
//! Buckets start at multiples of their width since 1970, in UTC, as those of tiers do: weeks on Mondays, months and
//! years as in the calendar. An origin or an offset moves them.

use rrd_store::time::{SECOND, civil, days_before};

use crate::options::{self, Unit};

const DAY_S: i128 = 86_400;

/// How wide buckets are and where they start.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RrdBucket {
    /// Length of a bucket in units of time; not used for months.
    pub length: i64,
    /// Start of some bucket (months: what their starts are moved by).
    pub offset: i64,
    /// Units of time in a second.
    pub per_second: i64,
    /// Months in a bucket; 0 if its length is fixed.
    pub months: u32,
    /// Some bucket starts this many months after January.
    pub month_offset: i32,
}

/// A length of time with its sign, as people write it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Length {
    Micros { count: i64, is_weeks: bool },
    Months(u32),
}

impl RrdBucket {
    /// Buckets of `length` units.
    pub fn of_units(length: i64, per_second: i64) -> Option<RrdBucket> {
        (length > 0).then_some(RrdBucket { length, offset: 0, per_second, months: 0, month_offset: 0 })
    }

    /// Buckets as wide as a text says: `5m`, `1 DAY`, `250ms`, or a number of seconds. `None` if it says nothing, or
    /// less than a unit.
    pub fn of_text(text: &str, per_second: i64) -> Option<RrdBucket> {
        match length(text)? {
            Length::Months(months) => Some(RrdBucket { length: 0, offset: 0, per_second, months, month_offset: 0 }),
            Length::Micros { count, is_weeks } => {
                let mut bucket = RrdBucket::of_units(units(count, per_second)?, per_second)?;
                if is_weeks {
                    // The epoch was a Thursday.
                    bucket.offset = (4 * 86_400 * per_second) % bucket.length;
                }
                Some(bucket)
            }
        }
    }

    /// Moves the buckets so that one of them starts at a time; of months only year and month count.
    pub fn start_at(&mut self, origin: i64) {
        if self.months == 0 {
            self.offset = origin;
        } else {
            self.month_offset = (self.month_number(origin.into()) % i64::from(self.months)) as i32;
        }
    }

    /// Moves the buckets by a length of time, which may be negative; says whether it can be understood.
    pub fn move_by(&mut self, text: &str) -> bool {
        let (text, sign) = match text.trim().strip_prefix('-') {
            Some(text) => (text, -1),
            None => (text, 1),
        };
        if is_zero(text) {
            return true;
        }
        match length(text) {
            Some(Length::Months(months)) if self.months > 0 => {
                self.month_offset = sign as i32 * (months % self.months) as i32;
                true
            }
            Some(Length::Micros { count, .. }) => match units(count, self.per_second) {
                Some(units) => self.move_by_units(sign * units),
                None => false,
            },
            _ => false,
        }
    }

    /// Moves the buckets by units of time; says whether that is possible.
    pub fn move_by_units(&mut self, units: i64) -> bool {
        match self.offset.checked_add(units) {
            Some(offset) => self.offset = offset,
            None => return false,
        }
        true
    }

    /// The start of the bucket that a time is in.
    pub fn start_of(&self, time: i128) -> i128 {
        let moved = time - i128::from(self.offset);
        if self.months == 0 {
            return time - moved.rem_euclid(i128::from(self.length.max(1)));
        }
        let (count, first) = (i64::from(self.months), i64::from(self.month_offset));
        let number = (self.month_number(moved) - first).div_euclid(count) * count + first;
        let days = days_before(number.div_euclid(12), number.rem_euclid(12) + 1);
        i128::from(days) * DAY_S * i128::from(self.per_second) + i128::from(self.offset)
    }

    /// The month of a time, counted from January of year 0.
    fn month_number(&self, time: i128) -> i64 {
        let day = DAY_S * i128::from(self.per_second.max(1));
        // 2^65 / 86400 days at most.
        let (year, month, _) = civil(time.div_euclid(day) as i64);
        year * 12 + month - 1
    }
}

fn length(text: &str) -> Option<Length> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let count = || text[..digits].parse().ok().filter(|count: &i64| *count > 0);
    let fixed = |micros: i64| Some(Length::Micros { count: count()?.checked_mul(micros)?, is_weeks: false });
    match text[digits..].trim().to_ascii_lowercase().as_str() {
        "" => fixed(SECOND),
        "ms" | "millisecond" | "milliseconds" => fixed(SECOND / 1000),
        "us" | "microsecond" | "microseconds" => fixed(1),
        _ => {
            let duration = options::duration(text)?;
            let months = |each: u64| duration.count.checked_mul(each)?.try_into().ok().map(Length::Months);
            match duration.unit {
                Unit::Month => months(1),
                Unit::Year => months(12),
                unit => {
                    Some(Length::Micros { count: duration.micros()?.try_into().ok()?, is_weeks: unit == Unit::Week })
                }
            }
        }
    }
}

/// `0s`, `00 MINUTE`, `0`: no length, but an offset.
fn is_zero(text: &str) -> bool {
    let unit = text.trim_start_matches('0');
    unit.len() < text.len() && length(&format!("1{unit}")).is_some()
}

/// Microseconds in units of time, if they are whole ones.
fn units(micros: i64, per_second: i64) -> Option<i64> {
    let product = i128::from(micros) * i128::from(per_second.max(1));
    let second = i128::from(SECOND);
    i64::try_from(product / second).ok().filter(|_| product % second == 0)
}

#[cfg(test)]
#[expect(clippy::expect_used, reason = "a test that cannot go on has failed")]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bucket(text: &str) -> RrdBucket {
        RrdBucket::of_text(text, 1).expect(text)
    }

    /// Seconds of the start of a day.
    fn day(year: i64, month: i64, day: i64) -> i128 {
        i128::from(days_before(year, month) + day - 1) * DAY_S
    }

    #[test]
    fn a_unit_may_be_shorter_than_a_microsecond() {
        assert_eq!(units(3, 1_000_000_000), Some(3_000));
        assert_eq!(units(1_500, 1_000), None);
        assert_eq!(units(i64::MAX, 1_000_000_000), None, "out of range");
        assert_eq!(RrdBucket::of_text("1s", 1_000_000_000).map(|bucket| bucket.length), Some(1_000_000_000));
    }

    #[test]
    fn lengths_are_multiples_since_1970_and_weeks_begin_on_mondays() {
        assert_eq!(bucket("5m").start_of(1_700_000_123), 1_700_000_100);
        assert_eq!(bucket("300").start_of(-1), -300);
        assert_eq!(bucket("1w").start_of(day(2026, 11, 22)), day(2026, 11, 16));
        assert_eq!(bucket("2 WEEKS").start_of(0), day(1969, 12, 22));
        let quarters = RrdBucket::of_text("250ms", SECOND);
        assert_eq!(quarters.map(|bucket| bucket.start_of(1_999_999)), Some(1_750_000));
    }

    #[test]
    fn months_and_years_are_those_of_the_calendar() {
        assert_eq!(bucket("1mo").start_of(day(2024, 2, 29) + 86_399), day(2024, 2, 1));
        assert_eq!(bucket("3mo").start_of(day(2024, 6, 30)), day(2024, 4, 1));
        assert_eq!(bucket("1y").start_of(-1), day(1969, 1, 1));
        assert_eq!(bucket("10y").start_of(day(2026, 1, 1)), day(2020, 1, 1));
    }

    #[test]
    fn origin_and_offset_move_the_starts() {
        let moved = |text, by| {
            let mut bucket = bucket(text);
            assert!(bucket.move_by(by), "{by}");
            bucket
        };
        assert_eq!(moved("5m", "2m").start_of(601), 420);
        assert_eq!(moved("5m", "-1m").start_of(601), 540);
        assert_eq!(moved("1y", "3mo").start_of(day(2024, 2, 1)), day(2023, 4, 1));
        assert_eq!(moved("1mo", "6h").start_of(day(2024, 2, 1)), day(2024, 1, 1) + 6 * 3600);
        assert_eq!(moved("1w", "6d").start_of(day(2026, 11, 21)), day(2026, 11, 15), "Sundays");
        assert_eq!((moved("5m", "0s"), moved("1mo", "-0")), (bucket("5m"), bucket("1mo")));
        assert!(!bucket("5m").move_by("0 moons"));
        assert!(!bucket("5m").move_by("1mo") && !bucket("5m").move_by("soon"));
        let mut days = bucket("10d");
        days.start_at(day(2024, 1, 1) as i64);
        assert_eq!(days.start_of(day(2023, 12, 31)), day(2023, 12, 22));
        let mut quarters = bucket("3mo");
        quarters.start_at(day(2024, 2, 17) as i64);
        assert_eq!(quarters.start_of(day(2024, 1, 31)), day(2023, 11, 1));
    }

    #[test]
    fn what_is_no_width_is_refused() {
        for text in ["", "0", "0m", "-5m", "m", "5 parsecs", "1.5h", "99999999999999999999", "500ms"] {
            assert_eq!(RrdBucket::of_text(text, 1), None, "{text:?}");
        }
        assert_eq!((RrdBucket::of_units(0, 1), RrdBucket::of_units(-1, 1)), (None, None));
    }

    proptest! {
        /// Every time is in the bucket that starts last before it.
        #[test]
        fn a_start_is_its_own_start(time: i64, width in 1u32..100_000, unit in 0usize..7, by: i64) {
            let units = ["s", "m", "h", "d", "w", "mo", "y"];
            let mut bucket = bucket(&format!("{width}{}", units[unit]));
            bucket.start_at(by);
            let start = bucket.start_of(time.into());
            prop_assert!(start <= time.into());
            prop_assert_eq!(bucket.start_of(start), start);
            prop_assert!(bucket.start_of(start - 1) < start);
        }
    }
}
