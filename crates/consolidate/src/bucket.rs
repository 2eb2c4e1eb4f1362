//! Primary data points to buckets: what is kept of a multiple of the step.
//!
//! Buckets start at multiples of their length since 1970, as the rows of an RRA do. A point that is missing, before the
//! first run or between two, is unknown.

use std::fmt;
use std::num::NonZeroU32;
use std::ops::Range;

use crate::{Primary, Rejected, Run, Source, US, Value};

/// How primary data points are consolidated.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rollup {
    step_s: NonZeroU32,
    bucket_s: NonZeroU32,
    xff: f64,
}

/// What a [`Rollup`] cannot be made of.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum RollupError {
    /// The bucket is not a multiple of the step.
    NotAMultiple {
        /// The bucket.
        bucket_s: NonZeroU32,
        /// The step.
        step_s: NonZeroU32,
    },
    /// The x-files factor is not in 0 .. 1 (0 may be, 1 not).
    Xff(f64),
}

impl fmt::Display for RollupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RollupError::NotAMultiple { bucket_s, step_s } => {
                write!(f, "a bucket of {bucket_s} s is not a multiple of the step, {step_s} s")
            }
            RollupError::Xff(xff) => write!(f, "XFF {xff} is not a share from 0 to less than 1, such as 0.5"),
        }
    }
}

impl std::error::Error for RollupError {}

impl Rollup {
    /// Buckets of `bucket_s` seconds, of which a share of `xff` may be unknown.
    pub fn new(source: &Source, bucket_s: NonZeroU32, xff: f64) -> Result<Rollup, RollupError> {
        let step_s = source.step_s;
        if bucket_s.get() % step_s != 0 {
            return Err(RollupError::NotAMultiple { bucket_s, step_s });
        }
        if !(0.0..1.0).contains(&xff) {
            return Err(RollupError::Xff(xff));
        }
        Ok(Rollup { step_s, bucket_s, xff })
    }

    /// When the bucket starts whose time `time_us` is.
    pub fn start_of(&self, time_us: i64) -> i64 {
        time_us - time_us.rem_euclid(self.bucket_us())
    }

    /// The buckets that `range` touches, as one range of time; empty if `range` is.
    pub fn cover(&self, range: &Range<i64>) -> Range<i64> {
        let start_us = self.start_of(range.start);
        let end_us = if range.is_empty() { start_us } else { self.start_of(range.end - 1) + self.bucket_us() };
        start_us..end_us
    }

    fn bucket_us(&self) -> i64 {
        i64::from(self.bucket_s.get()) * US
    }

    fn step_us(&self) -> i64 {
        i64::from(self.step_s.get()) * US
    }
}

/// One row of a tier. All values but `count` are `None` if too much of the bucket is unknown.
///
/// Values whose amounts overflow a double are infinite, as in RRDtool.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bucket {
    /// When it starts. It ends where the next one starts, and that moment is a part of it.
    pub start_us: i64,
    /// How many of its primary data points are known; at least one.
    pub count: u32,
    /// The average of the known points: RRDtool's AVERAGE.
    pub avg: Option<f64>,
    /// The smallest known point: RRDtool's MIN.
    pub min: Option<f64>,
    /// The largest known point: RRDtool's MAX.
    pub max: Option<f64>,
    /// The known points times the step: the total that was counted (of a GAUGE: value times seconds).
    pub sum: Option<f64>,
    /// The first known point.
    pub first: Option<f64>,
    /// The last point, `None` if just that one is unknown: RRDtool's LAST.
    pub last: Option<f64>,
}

/// Turns primary data points into buckets.
#[derive(Debug, Clone)]
pub struct Buckets {
    rollup: Rollup,
    open: Option<Open>,
}

/// A bucket with a known point that waits for more.
#[derive(Debug, Clone)]
struct Open {
    start_us: i64,
    known: u32,
    total: f64,
    min: f64,
    max: f64,
    first: f64,
    last: Option<f64>,
}

impl Buckets {
    /// No points yet.
    pub fn new(rollup: Rollup) -> Buckets {
        Buckets { rollup, open: None }
    }

    /// Takes the next points and appends the buckets that they complete. Runs must come in the order of time. Buckets
    /// without any known point do not come out.
    pub fn push(&mut self, run: Run, out: &mut Vec<Bucket>) {
        let (step_us, bucket_us) = (self.rollup.step_us(), self.rollup.bucket_us());
        let end_us = run.start_us.saturating_add_unsigned(run.steps.saturating_mul(step_us.unsigned_abs()));
        if let Some(rate) = run.rate {
            let mut at_us = run.start_us;
            while at_us < end_us {
                let start_us = self.rollup.start_of(at_us);
                let until_us = end_us.min(start_us + bucket_us);
                self.close_before(start_us, out);
                let open = self.open.get_or_insert_with(|| Open::new(start_us, rate));
                open.add(rate, (until_us - at_us) / step_us, until_us == start_us + bucket_us);
                at_us = until_us;
            }
        }
        self.close_before(end_us - bucket_us + 1, out);
    }

    /// The bucket that is open, the rest of it unknown.
    pub fn finish(self) -> Option<Bucket> {
        self.open.map(|open| open.close(&self.rollup))
    }

    /// Appends the open bucket if it starts before `start_us`.
    fn close_before(&mut self, start_us: i64, out: &mut Vec<Bucket>) {
        if let Some(open) = self.open.take_if(|open| open.start_us < start_us) {
            out.push(open.close(&self.rollup));
        }
    }
}

impl Open {
    fn new(start_us: i64, rate: f64) -> Open {
        Open { start_us, known: 0, total: 0.0, min: rate, max: rate, first: rate, last: None }
    }

    fn add(&mut self, rate: f64, steps: i64, to_the_end: bool) {
        self.known += steps as u32;
        self.total += rate * steps as f64;
        self.min = self.min.min(rate);
        self.max = self.max.max(rate);
        self.last = to_the_end.then_some(rate);
    }

    fn close(&self, rollup: &Rollup) -> Bucket {
        let steps = rollup.bucket_s.get() / rollup.step_s;
        let fit = f64::from(steps.saturating_sub(self.known)) <= f64::from(steps) * rollup.xff;
        let fit = |value: f64| fit.then_some(value);
        Bucket {
            start_us: self.start_us,
            count: self.known,
            avg: fit(self.total / f64::from(self.known)),
            min: fit(self.min),
            max: fit(self.max),
            sum: fit(self.total * f64::from(rollup.step_s.get())),
            first: fit(self.first),
            last: self.last.and_then(fit),
        }
    }
}

/// The buckets that `range` touches, without those of which nothing is known.
///
/// Needed are the readings of `source.window(&rollup.cover(&range), clock)`, see [`Source::window`]; more do no harm.
/// Where no reading follows, the rest is unknown: so the bucket that is still being filled can be computed, too.
pub fn consolidate(
    source: &Source,
    rollup: &Rollup,
    range: Range<i64>,
    readings: impl IntoIterator<Item = (i64, Option<Value>)>,
) -> Result<Vec<Bucket>, Rejected> {
    let range = rollup.cover(&range);
    let mut primary = Primary::new(*source);
    let mut buckets = Buckets::new(*rollup);
    let mut out = Vec::new();
    for (time_us, value) in readings {
        for run in primary.push(time_us, value)? {
            buckets.push(run, &mut out);
        }
        if time_us >= range.end {
            break;
        }
    }
    for run in primary.finish(range.end) {
        buckets.push(run, &mut out);
    }
    out.retain(|bucket| range.contains(&bucket.start_us));
    Ok(out)
}

#[cfg(test)]
#[path = "bucket_tests.rs"]
mod tests;
