//! A data source: how the readings of one column are to be understood.

use std::num::NonZeroU32;
use std::ops::Range;

use crate::change::amount;
use crate::{MAX_TIME_US, US, Value, seconds_between};

/// The type of a data source, as rrdcreate(1) defines them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Dst {
    /// The value is the rate itself: a temperature, a level.
    Gauge,
    /// An integer that only grows; a decrease is a 32-bit or 64-bit wrap.
    Counter,
    /// An integer of which the rate of change counts, in both directions.
    Derive,
    /// A counter that is reset by each reading.
    Absolute,
    /// A counter with a fraction; a change of direction is a reset, and unknown.
    Dcounter,
    /// As [`Dst::Derive`], with a fraction.
    Dderive,
}

/// How the readings of one column are to be understood.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Source {
    /// The type.
    pub dst: Dst,
    /// The length of a primary data point.
    pub step_s: NonZeroU32,
    /// The longest interval between two readings that is not unknown.
    pub heartbeat_s: NonZeroU32,
    /// A smaller rate is unknown.
    pub min: Option<f64>,
    /// A larger rate is unknown.
    pub max: Option<f64>,
}

/// How fine the times of a series are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clock {
    /// Every reading is taken at a whole second.
    WholeSeconds,
    /// Readings may be taken between two seconds.
    SubSecond,
}

impl Source {
    /// A source without bounds.
    pub fn new(dst: Dst, step_s: NonZeroU32, heartbeat_s: NonZeroU32) -> Source {
        Source { dst, step_s, heartbeat_s, min: None, max: None }
    }

    /// What was counted between two readings, NaN where unknown: too far apart, out of bounds, NULL.
    pub(crate) fn amount(&self, last: (i64, Option<Value>), now: (i64, Option<Value>)) -> f64 {
        let Some(value) = now.1 else { return f64::NAN };
        if now.0 - last.0 > self.heartbeat_us() {
            return f64::NAN;
        }
        let interval = seconds_between(last.0, now.0);
        let amount = amount(self.dst, last.1, value, interval);
        // The value itself for GAUGE: multiplied and divided again it could slip over a bound.
        let rate = if self.dst == Dst::Gauge { value.as_f64() } else { amount / interval };
        let too_small = self.min.is_some_and(|min| rate < min);
        let too_large = self.max.is_some_and(|max| rate > max);
        if too_small || too_large { f64::NAN } else { amount }
    }

    /// The times whose readings decide the primary data points of `range`, which starts and ends at a step.
    ///
    /// Whoever pushes the readings of this window only, and calls [`Primary::finish`](crate::Primary::finish) where it
    /// holds none at or after the end of `range`, gets the points of `range` exactly as from the whole series. Of the
    /// readings at or after the end of `range` only the first is needed.
    ///
    /// - Backwards: a reading of the last heartbeat before the range says from which value on to count, and if there is
    ///   none, the range begins unknown. [`Clock::SubSecond`] needs another heartbeat and step: RRDtool lets a point
    ///   run into the next one if a reading came in its last second (see the chapter on consolidation).
    /// - Forwards: a reading after the range says what happened until then. One that comes later than the heartbeat,
    ///   and later than a step, changes nothing any more.
    pub fn window(&self, range: &Range<i64>, clock: Clock) -> Range<i64> {
        range.start.saturating_sub(self.before_us(clock))..range.end.saturating_add(self.after_us())
    }

    /// The time whose primary data points may change when readings of `times` come, change or go: all steps whose
    /// window touches `times`. [`Rollup::cover`](crate::Rollup::cover) of it says which buckets to compute anew.
    pub fn reach(&self, times: &Range<i64>, clock: Clock) -> Range<i64> {
        let step_start = |time_us: i64| time_us - time_us.rem_euclid(self.step_us());
        let start_us = step_start(times.start.saturating_sub(self.after_us()).max(-MAX_TIME_US));
        if times.is_empty() {
            return start_us..start_us;
        }
        let last_us = (times.end - 1).saturating_add(self.before_us(clock)).min(MAX_TIME_US);
        start_us..step_start(last_us) + self.step_us()
    }

    fn before_us(&self, clock: Clock) -> i64 {
        match clock {
            Clock::WholeSeconds => self.heartbeat_us(),
            Clock::SubSecond => 2 * self.heartbeat_us() + self.step_us(),
        }
    }

    fn after_us(&self) -> i64 {
        self.heartbeat_us().max(self.step_us())
    }

    pub(crate) fn step_us(&self) -> i64 {
        i64::from(self.step_s.get()) * US
    }

    pub(crate) fn heartbeat_us(&self) -> i64 {
        i64::from(self.heartbeat_s.get()) * US
    }
}
