//! Between the values of a time lane and microseconds since the epoch. Pure.
//!
//! Integers and TIMESTAMP are linear; a DATETIME packs year, month, day, hour, minute and second into bits of their own,
//! and counts as UTC. Lane values order as their times do.

use std::ops::RangeInclusive;

use crate::schema::{Lane, Schema, TimeUnit};

/// Microseconds of a second.
pub const SECOND: i64 = 1_000_000;
/// Microseconds of a day.
pub const DAY: i64 = 86_400 * SECOND;

/// How a time column's lane holds times.
#[derive(Clone, Copy, Debug)]
pub struct TimeLane {
    unit: TimeUnit,
    bias: u64,
    /// Bits of the lane that are in use.
    mask: u64,
}

impl TimeLane {
    /// Of a table with a time column.
    pub fn of(schema: &Schema) -> Option<TimeLane> {
        let time = schema.time.filter(|time| time.unit != TimeUnit::Order)?;
        let width = match schema.columns.get(usize::from(time.column))?.lane {
            Lane::Int { width } => u32::from(width.clamp(1, 8)),
            _ => return None,
        };
        Some(TimeLane { unit: time.unit, bias: time.bias, mask: u64::MAX >> (64 - 8 * width) })
    }

    /// The time of a lane value, rounded down to a microsecond; the nearest there is if it does not fit.
    pub fn micros(&self, value: u64) -> i64 {
        match self.unit {
            TimeUnit::S => self.integer(value).saturating_mul(SECOND),
            TimeUnit::Ms => self.integer(value).saturating_mul(1000),
            TimeUnit::Us | TimeUnit::Order => self.integer(value),
            TimeUnit::Ns => self.integer(value).div_euclid(1000),
            TimeUnit::Timestamp { fraction_digits } => {
                let (whole, micros) = split(value, fraction_digits);
                (whole as i64) * SECOND + micros
            }
            TimeUnit::Datetime { fraction_digits } => {
                let (whole, micros) = split(value, fraction_digits);
                datetime_seconds(whole) * SECOND + micros
            }
        }
    }

    /// The smallest lane value whose time is not before `micros`; the largest there is if none is.
    pub fn at_or_after(&self, micros: i64) -> u64 {
        match self.unit {
            TimeUnit::S => self.lane(micros.div_euclid(SECOND) + i64::from(micros.rem_euclid(SECOND) != 0)),
            TimeUnit::Ms => self.lane(micros.div_euclid(1000) + i64::from(micros.rem_euclid(1000) != 0)),
            TimeUnit::Us | TimeUnit::Order => self.lane(micros),
            TimeUnit::Ns => self.lane(micros.saturating_mul(1000)),
            TimeUnit::Timestamp { fraction_digits } => {
                let (seconds, part) = round_up(micros, fraction_digits);
                join(seconds.max(0) as u64, if seconds < 0 { 0 } else { part }, fraction_digits).min(self.mask)
            }
            TimeUnit::Datetime { fraction_digits } => {
                let (seconds, part) = round_up(micros, fraction_digits);
                join(packed_datetime(seconds), part, fraction_digits).min(self.mask)
            }
        }
    }

    /// Lane values from 1971 to 2199: what a column of times mostly holds, and a column of other numbers does not.
    pub fn plausible(&self) -> RangeInclusive<u64> {
        let day = |year| self.at_or_after(day_micros(days_before(year, 1)));
        day(1971)..=day(2200)
    }

    /// Lane values whose times microseconds since 1970 can say. All others would be one and the same time.
    pub fn exact(&self) -> RangeInclusive<u64> {
        let (low, high) = match self.unit {
            TimeUnit::S => (i64::MIN / SECOND, i64::MAX / SECOND),
            TimeUnit::Ms => (i64::MIN / 1000, i64::MAX / 1000),
            TimeUnit::Us | TimeUnit::Order | TimeUnit::Ns => (i64::MIN, i64::MAX),
            TimeUnit::Timestamp { .. } | TimeUnit::Datetime { .. } => return 0..=u64::MAX,
        };
        self.lane(low)..=self.lane(high)
    }

    /// The largest value of the lane.
    pub fn largest(&self) -> u64 {
        self.mask
    }

    /// About how many lane values a span of microseconds has.
    pub fn length(&self, micros: u64) -> u64 {
        let of_2000 = days_before(2000, 1) * DAY;
        let from = if self.is_integer() { 0 } else { of_2000 };
        let to = from.saturating_add_unsigned(micros);
        self.at_or_after(to).saturating_sub(self.at_or_after(from))
    }

    fn is_integer(&self) -> bool {
        !matches!(self.unit, TimeUnit::Timestamp { .. } | TimeUnit::Datetime { .. })
    }

    /// SQL value of an integer lane, `i64::MAX` if it is larger.
    fn integer(&self, value: u64) -> i64 {
        if self.bias == 0 {
            return i64::try_from(value).unwrap_or(i64::MAX);
        }
        let shift = self.mask.leading_zeros();
        (((value ^ self.bias) << shift) as i64) >> shift
    }

    /// Lane value of an integer, the nearest there is.
    fn lane(&self, number: i64) -> u64 {
        if self.bias == 0 {
            return (number.max(0) as u64).min(self.mask);
        }
        let limit = (self.mask >> 1) as i64;
        (number.clamp(-limit - 1, limit) as u64 & self.mask) ^ self.bias
    }
}

/// What one second counts in a packed value with these fraction digits: fractions take whole bytes.
fn fraction_bits(digits: u8) -> u32 {
    8 * u32::from(digits.min(6).div_ceil(2))
}

/// Microseconds that one unit of the fraction counts: digits come in pairs.
fn fraction_unit(digits: u8) -> i64 {
    match digits {
        0 => SECOND,
        1 | 2 => 10_000,
        3 | 4 => 100,
        _ => 1,
    }
}

/// Whole part and microseconds of a packed value.
fn split(value: u64, digits: u8) -> (u64, i64) {
    let bits = fraction_bits(digits);
    if bits == 0 {
        return (value, 0);
    }
    (value >> bits, (value & ((1 << bits) - 1)) as i64 * fraction_unit(digits))
}

fn join(whole: u64, fraction: i64, digits: u8) -> u64 {
    let bits = fraction_bits(digits);
    if bits == 0 { whole } else { whole << bits | fraction as u64 }
}

/// Whole seconds and units of the fraction, rounded up to what the digits can say.
fn round_up(micros: i64, digits: u8) -> (i64, i64) {
    // An odd last digit is a zero: TIMESTAMP(3) holds thousandths in ten-thousandths.
    let step = 10i64.pow(6 - u32::from(digits.min(6)));
    let rounded = micros.saturating_add(step - 1).div_euclid(step).saturating_mul(step);
    let unit = fraction_unit(digits);
    (rounded.div_euclid(SECOND), if digits == 0 { 0 } else { rounded.rem_euclid(SECOND) / unit })
}

/// The sign bit that MariaDB's packed DATETIME always has.
const DATETIME_SIGN: u64 = 1 << 39;

fn datetime_seconds(packed: u64) -> i64 {
    let packed = packed & (DATETIME_SIGN - 1);
    let (date, time) = (packed >> 17, packed & 0x1_FFFF);
    let (months, day) = ((date >> 5) as i64, (date & 31) as i64);
    let (hour, minute, second) = ((time >> 12) as i64, (time >> 6 & 63) as i64, (time & 63) as i64);
    // Dates with zeros count as the first of what they leave out.
    let days = days_before(months / 13, (months % 13).max(1)) + day.max(1) - 1;
    days * 86_400 + hour * 3600 + minute * 60 + second
}

fn packed_datetime(seconds: i64) -> u64 {
    let (first, last) = (days_before(0, 1) * 86_400, days_before(10_000, 1) * 86_400 - 1);
    let seconds = seconds.clamp(first, last);
    let (days, rest) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let (year, month, day) = civil(days);
    let date = ((year * 13 + month) << 5 | day) as u64;
    let time = ((rest / 3600) << 12 | (rest % 3600 / 60) << 6 | (rest % 60)) as u64;
    DATETIME_SIGN | date << 17 | time
}

/// Days from 1970-01-01 to the first of a month (1 to 12), in the proleptic Gregorian calendar.
pub fn days_before(year: i64, month: i64) -> i64 {
    // Years from March on, in eras of 400 years: leap days come last.
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// Year, month and day of a number of days since 1970-01-01.
pub fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let of_era = days.rem_euclid(146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    (year + era * 400 + i64::from(month <= 2), month, day)
}

/// Microseconds since the epoch of the first moment of day `days`.
pub(crate) fn day_micros(days: i64) -> i64 {
    days.saturating_mul(DAY)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    pub fn lane(unit: TimeUnit, bias: u64, width: u32) -> TimeLane {
        TimeLane { unit, bias, mask: u64::MAX >> (64 - 8 * width) }
    }

    proptest! {
        #[test]
        fn what_a_lane_can_say_comes_back(seconds in 0i64..4_000_000_000, micros in 0i64..1_000_000, digits in 0u8..=6) {
            let step = 10i64.pow(6 - u32::from(digits));
            let time = seconds * SECOND + micros / step * step;
            for unit in [TimeUnit::Timestamp { fraction_digits: digits }, TimeUnit::Datetime { fraction_digits: digits }] {
                let lane = lane(unit, 0, 8);
                prop_assert_eq!(lane.micros(lane.at_or_after(time)), time);
                let later = lane.micros(lane.at_or_after(seconds * SECOND + micros));
                prop_assert!((0..step).contains(&(later - seconds * SECOND - micros)));
            }
            prop_assert_eq!(lane(TimeUnit::Us, 1 << 63, 8).at_or_after(-time) ^ (1 << 63), (-time) as u64);
        }

        #[test]
        fn lanes_order_as_times_do(a in -62_000_000_000i64..250_000_000_000, b in -62_000_000_000i64..250_000_000_000) {
            let lane = lane(TimeUnit::Datetime { fraction_digits: 0 }, 0, 5);
            let (x, y) = (lane.at_or_after(a * SECOND), lane.at_or_after(b * SECOND));
            prop_assert_eq!(x.cmp(&y), a.cmp(&b));
            prop_assert_eq!(lane.micros(x), a * SECOND);
        }
    }

    #[test]
    fn values_beyond_microseconds_are_known() {
        for (bias, negative) in [(1u64 << 63, true), (0, false)] {
            let of_seconds = lane(TimeUnit::S, bias, 8);
            let at = |number: i64| number as u64 ^ bias;
            assert!(of_seconds.exact().contains(&at(9_223_372_036_854)));
            assert!(!of_seconds.exact().contains(&at(1_700_000_000_000_000)));
            assert_eq!(of_seconds.exact().contains(&at(-1_700_000_000)), negative);
            assert_eq!(lane(TimeUnit::Us, bias, 8).exact().contains(&u64::MAX), negative);
        }
        assert_eq!(lane(TimeUnit::S, 1 << 31, 4).exact(), 0..=u64::from(u32::MAX));
    }

    #[test]
    fn integers_know_their_sign_and_limits() {
        let signed = lane(TimeUnit::S, 1 << 31, 4);
        assert_eq!(signed.micros(signed.at_or_after(-5 * SECOND)), -5 * SECOND);
        assert_eq!(signed.at_or_after(i64::MAX), u64::from(u32::MAX));
        assert_eq!(signed.at_or_after(i64::MIN), 0);
        let unsigned = lane(TimeUnit::S, 0, 4);
        assert_eq!((unsigned.at_or_after(-1), unsigned.at_or_after(1)), (0, 1));
        assert_eq!(lane(TimeUnit::Ns, 0, 8).at_or_after(7), 7000);
    }

    #[test]
    fn days_of_the_calendar() {
        assert_eq!(days_before(1970, 1), 0);
        assert_eq!(days_before(2000, 3) - days_before(2000, 2), 29);
        assert_eq!(civil(days_before(2026, 11) + 20), (2026, 11, 21));
    }
}
