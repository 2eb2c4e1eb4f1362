//! Buckets worked out by hand: of six points of ten seconds each.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use super::*;
use crate::Dst;

fn source() -> Source {
    Source::new(Dst::Gauge, NonZeroU32::new(10).unwrap(), NonZeroU32::new(20).unwrap())
}

fn rollup(xff: f64) -> Rollup {
    Rollup::new(&source(), NonZeroU32::new(60).unwrap(), xff).unwrap()
}

/// The buckets of points that follow each other from second 0 on.
fn buckets(xff: f64, rates: &[Option<f64>]) -> Vec<Bucket> {
    let mut buckets = Buckets::new(rollup(xff));
    let mut out = Vec::new();
    for (n, &rate) in rates.iter().enumerate() {
        buckets.push(Run { start_us: n as i64 * 10 * US, steps: 1, rate }, &mut out);
    }
    out.extend(buckets.finish());
    out
}

#[test]
fn a_full_bucket_has_every_value() {
    let rates = [3.0, 1.0, 2.0, 8.0, 5.0, 5.0].map(Some);
    let expected = Bucket {
        start_us: 0,
        count: 6,
        avg: Some(4.0),
        min: Some(1.0),
        max: Some(8.0),
        sum: Some(240.0),
        first: Some(3.0),
        last: Some(5.0),
    };
    assert_eq!(buckets(0.0, &rates), [expected]);
}

#[test]
fn unknown_points_do_not_count_but_the_last_one_is_the_last() {
    let found = buckets(0.5, &[None, Some(1.0), Some(5.0), None, Some(3.0), None]);
    let found = found[0];
    assert_eq!((found.count, found.avg, found.sum), (3, Some(3.0), Some(90.0)));
    assert_eq!((found.min, found.max), (Some(1.0), Some(5.0)));
    assert_eq!((found.first, found.last), (Some(1.0), None));
}

#[test]
fn a_bucket_of_which_more_than_xff_is_unknown_is_null_but_for_the_count() {
    let half = [Some(1.0), Some(1.0), Some(1.0), None, None, None];
    let less = [Some(1.0), Some(1.0), None, None, None, Some(1.0)];
    assert_eq!(buckets(0.5, &half)[0].avg, Some(1.0));
    assert_eq!(buckets(0.49, &half)[0].avg, None);
    let null = Bucket { start_us: 0, count: 3, avg: None, min: None, max: None, sum: None, first: None, last: None };
    assert_eq!(buckets(0.25, &less), [null]);
    assert_eq!(buckets(0.99, &[None, None, None, None, None, Some(2.0)])[0].last, Some(2.0));
    assert_eq!(buckets(0.99, &[None; 6]), []);
}

#[test]
fn a_run_may_span_many_buckets() {
    let mut buckets = Buckets::new(rollup(0.5));
    let mut out = Vec::new();
    buckets.push(Run { start_us: 50 * US, steps: 12, rate: Some(2.0) }, &mut out);
    assert_eq!(out.iter().map(|b| (b.start_us / US, b.count)).collect::<Vec<_>>(), [(0, 1), (60, 6)]);
    assert_eq!((out[0].avg, out[1].avg), (None, Some(2.0)));
    // The bucket that is open is left by an unknown run of any length.
    buckets.push(Run { start_us: 170 * US, steps: 1 << 40, rate: None }, &mut out);
    assert_eq!(out.len(), 3);
    assert_eq!((out[2].start_us / US, out[2].count, out[2].last), (120, 5, None));
    assert_eq!(buckets.finish(), None);
}

#[test]
fn a_point_that_is_missing_is_unknown() {
    let mut buckets = Buckets::new(rollup(0.99));
    let mut out = Vec::new();
    buckets.push(Run { start_us: 10 * US, steps: 2, rate: Some(2.0) }, &mut out);
    buckets.push(Run { start_us: 600 * US, steps: 1, rate: Some(3.0) }, &mut out);
    out.extend(buckets.finish());
    assert_eq!(out.iter().map(|b| (b.start_us / US, b.count)).collect::<Vec<_>>(), [(0, 2), (600, 1)]);
}

#[test]
fn a_rollup_is_checked() {
    let seconds = |s| NonZeroU32::new(s).unwrap();
    let odd = Rollup::new(&source(), seconds(65), 0.5).unwrap_err();
    assert_eq!(odd.to_string(), "a bucket of 65 s is not a multiple of the step, 10 s");
    for xff in [-0.1, 1.0, f64::NAN] {
        assert!(matches!(Rollup::new(&source(), seconds(60), xff), Err(RollupError::Xff(_))));
    }
}

#[test]
fn a_range_is_widened_to_whole_buckets() {
    let rollup = rollup(0.5);
    assert_eq!(rollup.cover(&(61 * US..119 * US)), 60 * US..120 * US);
    assert_eq!(rollup.cover(&(60 * US..121 * US)), 60 * US..180 * US);
    assert_eq!(rollup.cover(&(-1..60 * US)), -60 * US..60 * US);
    assert!(rollup.cover(&(70 * US..70 * US)).is_empty());
}
