//! Points worked out by hand. Steps are ten seconds, times are seconds.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::num::NonZeroU32;

use super::*;
use crate::Dst;

fn source(dst: Dst, step_s: u32, heartbeat_s: u32) -> Source {
    Source::new(dst, NonZeroU32::new(step_s).unwrap(), NonZeroU32::new(heartbeat_s).unwrap())
}

fn us(time_s: f64) -> i64 {
    (time_s * 1e6).round() as i64
}

/// The points of the readings, (start in seconds, rate) each.
fn points(source: Source, readings: &[(f64, Option<f64>)]) -> Vec<(f64, Option<f64>)> {
    let mut primary = Primary::new(source);
    let mut out = Vec::new();
    for &(time, value) in readings {
        for run in primary.push(us(time), value.map(Value::Double)).unwrap() {
            let step = f64::from(source.step_s.get());
            out.extend((0..run.steps).map(|n| (run.start_us as f64 / 1e6 + n as f64 * step, run.rate)));
        }
    }
    out
}

#[test]
fn a_point_is_the_average_over_its_time() {
    let found = points(source(Dst::Gauge, 10, 20), &[(100.0, None), (104.0, Some(1.0)), (112.0, Some(6.0))]);
    assert_eq!(found, [(100.0, Some((4.0 * 1.0 + 6.0 * 6.0) / 10.0))]);
}

#[test]
fn a_reading_on_the_step_belongs_to_the_point_before() {
    let found = points(source(Dst::Gauge, 10, 20), &[(100.0, Some(5.0)), (110.0, Some(7.0)), (120.0, Some(9.0))]);
    assert_eq!(found, [(100.0, Some(7.0)), (110.0, Some(9.0))]);
}

#[test]
fn half_a_step_before_the_closing_reading_may_be_unknown() {
    let gauge = source(Dst::Gauge, 10, 20);
    let until = |first: f64| points(gauge, &[(first, Some(1.0)), (110.0, Some(3.0))])[0].1;
    assert_eq!(until(105.0), Some(3.0));
    assert_eq!(until(106.0), None);
    // The closing interval itself is not counted against the point, as in RRDtool.
    assert_eq!(points(gauge, &[(100.0, None), (101.0, Some(2.0)), (111.0, None)]), [(100.0, Some(2.0))]);
}

#[test]
fn an_interval_longer_than_the_heartbeat_is_unknown() {
    let gauge = source(Dst::Gauge, 10, 15);
    assert_eq!(points(gauge, &[(100.0, Some(1.0)), (115.0, Some(2.0))]), [(100.0, Some(2.0))]);
    assert_eq!(points(gauge, &[(100.0, Some(1.0)), (116.0, Some(2.0))]), [(100.0, None)]);
    // Over several steps the open one is closed with what is known of it, the others are unknown.
    let gap = points(gauge, &[(100.0, None), (103.0, Some(1.0)), (125.0, Some(2.0)), (130.0, Some(2.0))]);
    assert_eq!(gap, [(100.0, Some(1.0)), (110.0, None), (120.0, Some(2.0))]);
    let counter = source(Dst::Counter, 10, 15);
    let gap = points(counter, &[(100.0, Some(1.0)), (120.0, Some(50.0)), (130.0, Some(80.0))]);
    assert_eq!(gap, [(100.0, None), (110.0, None), (120.0, Some(3.0))], "the count after a gap starts anew");
}

#[test]
fn several_steps_share_the_rate_but_the_open_one_has_its_own_part() {
    let found = points(source(Dst::Counter, 10, 60), &[(100.0, Some(0.0)), (104.0, Some(8.0)), (130.0, Some(34.0))]);
    assert_eq!(found, [(100.0, Some((8.0 + 6.0) / 10.0)), (110.0, Some(1.0)), (120.0, Some(1.0))]);
}

#[test]
fn a_rate_out_of_bounds_is_unknown() {
    let bounded = Source { min: Some(0.0), max: Some(5.0), ..source(Dst::Derive, 10, 20) };
    let readings = [(100.0, Some(100.0)), (110.0, Some(150.0)), (120.0, Some(140.0)), (130.0, Some(191.0))];
    assert_eq!(points(bounded, &readings), [(100.0, Some(5.0)), (110.0, None), (120.0, None)]);
}

#[test]
fn null_is_unknown_and_counters_start_anew_after_it() {
    let readings = [(100.0, Some(0.0)), (110.0, None), (120.0, Some(20.0)), (130.0, Some(30.0))];
    assert_eq!(points(source(Dst::Counter, 10, 20), &readings), [(100.0, None), (110.0, None), (120.0, Some(1.0))]);
    let absolute = points(source(Dst::Absolute, 10, 20), &readings);
    assert_eq!(absolute, [(100.0, None), (110.0, Some(2.0)), (120.0, Some(3.0))]);
}

#[test]
fn readings_within_a_second_take_part() {
    let found = points(source(Dst::Gauge, 10, 20), &[(100.0, None), (102.5, Some(4.0)), (110.25, Some(8.0))]);
    assert_eq!(found, [(100.0, Some((2.5 * 4.0 + 7.5 * 8.0) / 10.0))]);
}

#[test]
fn times_before_1970_are_times() {
    let found = points(source(Dst::Gauge, 10, 20), &[(-15.0, Some(1.0)), (-5.0, Some(2.0)), (5.0, Some(4.0))]);
    assert_eq!(found, [(-20.0, Some(2.0)), (-10.0, Some(3.0))]);
}

#[test]
fn a_reading_that_cannot_be_taken_changes_nothing() {
    let mut primary = Primary::new(source(Dst::Gauge, 10, 20));
    assert!(primary.push(us(100.0), Some(Value::Double(1.0))).is_ok());
    let again = primary.push(us(100.0), Some(Value::Double(2.0))).err().unwrap();
    assert_eq!(again, Rejected::NotLater { last_us: us(100.0), time_us: us(100.0) });
    assert!(again.to_string().contains("order of time"));
    for time_us in [i64::MIN, i64::MAX, MAX_TIME_US + 1] {
        assert_eq!(primary.push(time_us, None).err(), Some(Rejected::OutOfRange { time_us }));
    }
    let run = primary.push(us(110.0), Some(Value::Double(3.0))).unwrap().next();
    assert_eq!(run, Some(Run { start_us: us(100.0), steps: 1, rate: Some(3.0) }));
}

#[test]
fn a_long_gap_is_two_runs() {
    let mut primary = Primary::new(source(Dst::Gauge, 1, 20));
    assert_eq!(primary.push(-MAX_TIME_US, Some(Value::Unsigned(1))).unwrap().count(), 0);
    let runs: Vec<_> = primary.push(MAX_TIME_US, Some(Value::Unsigned(1))).unwrap().collect();
    assert!(runs.len() <= 2);
    assert!(runs.iter().all(|run| run.rate.is_none()));
    assert_eq!(primary.finish(i64::MAX).count(), 0);
}

#[test]
fn finishing_closes_up_to_a_time_with_nothing_known_after_the_last_reading() {
    let mut primary = Primary::new(source(Dst::Gauge, 10, 20));
    assert_eq!(primary.clone().finish(us(500.0)).count(), 0, "nothing was read");
    for time in [100.0, 103.0] {
        assert_eq!(primary.push(us(time), Some(Value::Signed(4))).unwrap().count(), 0);
    }
    let ends = |until: f64| primary.clone().finish(us(until)).collect::<Vec<_>>();
    assert_eq!(ends(109.0), []);
    let open = Run { start_us: us(100.0), steps: 1, rate: Some(4.0) };
    assert_eq!(ends(110.0), [open]);
    assert_eq!(ends(139.0), [open, Run { start_us: us(110.0), steps: 2, rate: None }]);
}
