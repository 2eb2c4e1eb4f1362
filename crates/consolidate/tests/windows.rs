//! Any bucket can be computed from its window alone, and what is counted is not lost on the way.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::num::NonZeroU32;

use proptest::prelude::*;
use rrd_consolidate::{Bucket, Buckets, Clock, Dst, Primary, Rollup, Source, Value, consolidate};

const US: i64 = 1_000_000;

type Reading = (i64, Option<Value>);

fn sources() -> impl Strategy<Value = Source> {
    let dst =
        prop::sample::select(vec![Dst::Gauge, Dst::Counter, Dst::Derive, Dst::Absolute, Dst::Dcounter, Dst::Dderive]);
    let bound = |range| prop::option::weighted(0.2, range);
    (dst, 1u32..12, 1u32..40, bound(-5.0..0.0), bound(1.0..1000.0)).prop_map(|(dst, step, heartbeat, min, max)| {
        let seconds = |s| NonZeroU32::new(s).unwrap();
        Source { min, max, ..Source::new(dst, seconds(step), seconds(heartbeat)) }
    })
}

/// Intervals of whole seconds or of parts of one, many of them up to the next step.
fn readings(clock: Clock) -> impl Strategy<Value = Vec<Reading>> {
    let tick = match clock {
        Clock::WholeSeconds => US,
        Clock::SubSecond => US / 8,
    };
    let ticks = prop_oneof![4 => 1i64..20, 2 => 1i64..150, 1 => 1i64..900];
    let value = prop_oneof![1 => Just(None), 6 => (0u64..500).prop_map(|v| Some(Value::Unsigned(v)))];
    (0i64..1000, prop::collection::vec((ticks, value), 1..60)).prop_map(move |(start, list)| {
        let mut time_us = start * tick;
        list.into_iter()
            .map(|(ticks, value)| {
                time_us += ticks * tick;
                (time_us, value)
            })
            .collect()
    })
}

/// Every bucket of the whole series, as if it went on for long.
fn all_buckets(source: Source, rollup: Rollup, readings: &[Reading]) -> Vec<Bucket> {
    let (mut primary, mut buckets, mut out) = (Primary::new(source), Buckets::new(rollup), Vec::new());
    for &(time_us, value) in readings {
        primary.push(time_us, value).unwrap().for_each(|run| buckets.push(run, &mut out));
    }
    primary.finish(readings.last().unwrap().0 + 100_000 * US).for_each(|run| buckets.push(run, &mut out));
    out
}

fn check_windows(source: Source, factor: u32, xff: f64, readings: &[Reading], clock: Clock) {
    let bucket_s = source.step_s.checked_mul(NonZeroU32::new(factor).unwrap()).unwrap();
    let rollup = Rollup::new(&source, bucket_s, xff).unwrap();
    let expected = all_buckets(source, rollup, readings);
    let (first, last) = (readings[0].0, readings.last().unwrap().0);
    let bucket_us = i64::from(bucket_s.get()) * US;
    for lengths in [1, 3] {
        let mut start_us = rollup.start_of(first) - bucket_us;
        while start_us < last + 2 * bucket_us {
            let range = start_us..start_us + lengths * bucket_us;
            let window = source.window(&range, clock);
            let within = readings.iter().copied().filter(|reading| window.contains(&reading.0));
            let found = consolidate(&source, &rollup, range.clone(), within).unwrap();
            let expected: Vec<_> = expected.iter().copied().filter(|b| range.contains(&b.start_us)).collect();
            assert_eq!(found, expected, "{range:?} from {window:?}");
            start_us += bucket_us;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn a_bucket_follows_from_its_window_with_whole_seconds(
        source in sources(), factor in 1u32..6, xff in 0.0..0.999, readings in readings(Clock::WholeSeconds),
    ) {
        check_windows(source, factor, xff, &readings, Clock::WholeSeconds);
    }

    #[test]
    fn a_bucket_follows_from_its_window_with_parts_of_seconds(
        source in sources(), factor in 1u32..6, xff in 0.0..0.999, readings in readings(Clock::SubSecond),
    ) {
        check_windows(source, factor, xff, &readings, Clock::SubSecond);
    }

    #[test]
    fn a_late_reading_changes_only_what_it_reaches(
        source in sources(), factor in 1u32..6, whole in any::<bool>(), at in any::<prop::sample::Index>(),
        lists in (readings(Clock::WholeSeconds), readings(Clock::SubSecond)),
    ) {
        let (readings, clock) = if whole { (lists.0, Clock::WholeSeconds) } else { (lists.1, Clock::SubSecond) };
        prop_assume!(readings.len() > 1);
        let bucket_s = source.step_s.checked_mul(NonZeroU32::new(factor).unwrap()).unwrap();
        let rollup = Rollup::new(&source, bucket_s, 0.5).unwrap();
        let late = readings[at.index(readings.len())].0;
        let reach = rollup.cover(&source.reach(&(late..late + 1), clock));
        let without: Vec<_> = readings.iter().copied().filter(|reading| reading.0 != late).collect();
        let untouched = |readings: &[Reading]| {
            let mut buckets = all_buckets(source, rollup, readings);
            buckets.retain(|bucket| !reach.contains(&bucket.start_us));
            buckets
        };
        prop_assert_eq!(untouched(&readings), untouched(&without));
    }

    /// Nothing is lost or counted twice while readings come at whole seconds and within the heartbeat.
    #[test]
    fn the_sums_of_buckets_are_what_was_counted(
        steps in prop::collection::vec((1i64..40, 0u64..1_000_000), 1..100), step_s in 1u32..60, factor in 1u32..20,
    ) {
        let seconds = |s| NonZeroU32::new(s).unwrap();
        let source = Source::new(Dst::Counter, seconds(step_s), seconds(40));
        let rollup = Rollup::new(&source, seconds(step_s * factor), 0.999).unwrap();
        let (mut time_us, mut count) = (0, 1 << 60);
        let mut readings = vec![(time_us, Some(Value::Unsigned(count)))];
        for (interval_s, counted) in steps {
            time_us += interval_s * US;
            count += counted;
            readings.push((time_us, Some(Value::Unsigned(count))));
        }
        // To the end of the last bucket at the same count.
        let end_us = rollup.start_of(time_us - 1) + i64::from(step_s * factor) * US;
        while time_us < end_us {
            time_us = end_us.min(time_us + 40 * US);
            readings.push((time_us, Some(Value::Unsigned(count))));
        }
        let found = consolidate(&source, &rollup, 0..end_us, readings).unwrap();
        let total: f64 = found.iter().filter_map(|bucket| bucket.sum).sum();
        let counted = (count - (1 << 60)) as f64;
        prop_assert!((total - counted).abs() <= counted * 1e-12, "{total} of {counted}");
        let points: u32 = found.iter().map(|bucket| bucket.count).sum();
        prop_assert_eq!(i64::from(points) * i64::from(step_s) * US, end_us);
    }

    /// Every known point of a constant gauge is that constant, whatever is unknown.
    #[test]
    fn a_constant_stays_itself(
        source in sources(), level in -100i64..100, readings in readings(Clock::WholeSeconds), xff in 0.0..0.999,
    ) {
        let source = Source { dst: Dst::Gauge, min: None, max: None, ..source };
        let rollup = Rollup::new(&source, source.step_s, xff).unwrap();
        let readings: Vec<_> = readings.into_iter().map(|(t, v)| (t, v.map(|_| Value::Signed(level)))).collect();
        for bucket in all_buckets(source, rollup, &readings) {
            let level = level as f64;
            for value in [bucket.avg, bucket.min, bucket.max, bucket.first, bucket.last].into_iter().flatten() {
                prop_assert!((value - level).abs() <= 1e-12 * level.abs(), "{value}");
            }
        }
    }
}
