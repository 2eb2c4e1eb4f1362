//! Readings to consolidated values, as RRDtool computes them.
//!
//! A series' readings (time, value or NULL), in the order of time, become *primary data points*: the average rate over
//! each step, or unknown ([`Primary`]). Primary data points become *buckets*: average, minimum, maximum and so on over
//! a multiple of the step ([`Buckets`]). [`consolidate`] does both for a range of buckets, from the readings of
//! [`Source::window`] alone.
//!
//! The crate is pure: no files, no threads, no clock, no dependency. Where RRDtool has a quirk, it is here too, for
//! whoever moves from one to the other expects the same numbers; `tests/rrdtool/run` compares them. The arithmetic is
//! written down in `docs/internals/consolidation.md`, whose worked example is a test of this crate.
//!
//! Times are microseconds since 1970, lengths are whole seconds. An interval of time is open at its start and closed
//! at its end, as RRDtool's are: a reading says what happened *until* its time, so one that is taken exactly when a
//! bucket starts belongs to the bucket before.
#![forbid(unsafe_code)]

mod bucket;
mod change;
mod primary;
mod source;
mod value;

pub use bucket::{Bucket, Buckets, Rollup, RollupError, consolidate};
pub use change::{delta, rate};
pub use primary::{MAX_TIME_US, Primary, Rejected, Run};
pub use source::{Clock, Dst, Source};
pub use value::Value;

/// The chapter's example is compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/internals/consolidation.md")]
struct Chapter;

const US: i64 = 1_000_000;

/// The seconds from one time to a later one. Whole seconds and the rest are added as doubles, as RRDtool does it: where
/// large amounts nearly cancel out, the last bit shows.
fn seconds_between(from_us: i64, to_us: i64) -> f64 {
    let whole = to_us.div_euclid(US) - from_us.div_euclid(US);
    let rest_us = to_us.rem_euclid(US) - from_us.rem_euclid(US);
    whole as f64 + rest_us as f64 / US as f64
}

/// NaN, which stands for "unknown" inside of the arithmetic, as None.
fn known(value: f64) -> Option<f64> {
    (!value.is_nan()).then_some(value)
}
