//! The arithmetic of AUTO_INCREMENT: which values a statement takes, and where the counter goes on. Pure.
//!
//! All as InnoDB does it, so that a table that changes its engine goes on with the same numbers. A counter at `u64::MAX`
//! says that all values are used up.

/// The values `offset`, `offset + step`, ... up to `max`, the largest that the column holds.
#[derive(Clone, Copy, Debug)]
pub struct Series {
    /// Where it begins.
    pub offset: u64,
    /// From one value to the next.
    pub step: u64,
    /// The largest value.
    pub max: u64,
}

/// What was taken of a series.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Taken {
    /// The first value. Where the series has none left it need not be of it: whoever rounds it finds that out.
    pub first: u64,
    /// Where the counter goes on; `None` if nothing was taken.
    pub next: Option<u64>,
}

impl Series {
    /// Takes `count` values, none below `least`, when the counter is at `next`.
    pub(crate) fn take(self, next: u64, least: u64, count: u64) -> Taken {
        let first = self.rounded_up(next).max(least);
        Taken { first, next: (first <= self.max).then(|| self.behind(first, count.max(1))) }
    }

    /// The value that comes `count` steps behind the one at or before `value`.
    pub(crate) fn behind(self, value: u64, count: u64) -> u64 {
        let step = self.step.max(1);
        // As in the server, an offset that is larger than the step counts for nothing.
        let offset = if self.offset > step { 0 } else { self.offset };
        let at_or_before = value.abs_diff(offset) / step * step;
        let behind = || step.checked_mul(count)?.checked_add(at_or_before)?.checked_add(offset);
        if value > self.max { u64::MAX } else { behind().unwrap_or(u64::MAX) }
    }

    /// The first value of the series from `next` on; `next` itself where that is beyond the largest.
    fn rounded_up(self, next: u64) -> u64 {
        if self.step <= 1 || self.step > !next || next >= self.max {
            return next;
        }
        // Whatever wraps here comes to the same in the server, which rounds once more.
        let n = next.wrapping_sub(1).wrapping_add(self.step).wrapping_sub(self.offset) / self.step;
        let rounded = n.wrapping_mul(self.step).wrapping_add(self.offset);
        if rounded >= self.max { next } else { rounded }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(offset: u64, step: u64, max: u64) -> Series {
        Series { offset, step, max }
    }

    #[test]
    fn values_are_of_the_series() {
        assert_eq!(series(1, 1, 127).take(5, 0, 3), Taken { first: 5, next: Some(8) });
        assert_eq!(series(1, 10, 127).take(1, 0, 2), Taken { first: 1, next: Some(21) });
        assert_eq!(series(1, 10, 127).take(2, 0, 1), Taken { first: 11, next: Some(21) });
        assert_eq!(series(5, 10, 127).take(5, 0, 1), Taken { first: 5, next: Some(15) });
        assert_eq!(series(1, 1, 127).take(5, 100, 1), Taken { first: 100, next: Some(101) });
    }

    #[test]
    fn the_counter_goes_on_behind_a_value_of_the_users_own() {
        assert_eq!(series(1, 1, 127).behind(28, 1), 29);
        assert_eq!(series(1, 10, 127).behind(28, 1), 31);
        assert_eq!(series(1, 10, 127).behind(31, 1), 41);
        assert_eq!(series(0, 1, 127).behind(127, 1), 128);
        assert_eq!(series(0, 1, 127).behind(128, 1), u64::MAX);
    }

    #[test]
    fn nothing_is_taken_beyond_the_largest_value() {
        assert_eq!(series(1, 1, 127).take(128, 0, 1), Taken { first: 128, next: None });
        assert_eq!(series(1, 1, 127).take(127, 0, 1), Taken { first: 127, next: Some(128) });
        assert_eq!(series(1, 10, 127).take(122, 0, 1), Taken { first: 122, next: Some(131) });
        let largest = u64::MAX;
        assert_eq!(series(1, 1, largest).take(largest, 0, 1), Taken { first: largest, next: Some(largest) });
        assert_eq!(series(1, 300, largest).take(largest - 1, 0, 1), Taken { first: largest - 1, next: Some(largest) });
    }
}
