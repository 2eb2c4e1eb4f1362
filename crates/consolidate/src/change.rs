//! What was counted between two readings. Also for SQL, where two rows are all there is.

use crate::{Dst, Value, known, seconds_between};

/// The amount that was counted from one reading to the next: of a counter the difference, wraps included.
///
/// | type | amount |
/// |---|---|
/// | COUNTER | `v1 - v0`; if that is negative a 32-bit wrap is added, if it still is a 64-bit one |
/// | DERIVE, DDERIVE | `v1 - v0`; integers of different signs are unknown |
/// | DCOUNTER | `v1 - v0`; unknown after a reset |
/// | ABSOLUTE | `v1` |
/// | GAUGE | `v1` times the seconds from `t0_us` to `t1_us` |
///
/// `None` is unknown: a NULL among the values that count, times that do not grow, a value that the type does not take
/// (COUNTER and DERIVE count whole numbers, COUNTER no negative ones). Heartbeat and bounds are not looked at.
pub fn delta(dst: Dst, t0_us: i64, v0: Option<Value>, t1_us: i64, v1: Option<Value>) -> Option<f64> {
    let interval = interval(t0_us, t1_us)?;
    known(amount(dst, v0, v1?, interval))
}

/// [`delta`] for each second; of a GAUGE the value itself.
pub fn rate(dst: Dst, t0_us: i64, v0: Option<Value>, t1_us: i64, v1: Option<Value>) -> Option<f64> {
    let interval = interval(t0_us, t1_us)?;
    match dst {
        Dst::Gauge => known(v1?.as_f64()),
        _ => known(amount(dst, v0, v1?, interval) / interval),
    }
}

fn interval(t0_us: i64, t1_us: i64) -> Option<f64> {
    (t1_us > t0_us).then(|| seconds_between(t0_us, t1_us))
}

/// As [`delta`], NaN where unknown.
pub(crate) fn amount(dst: Dst, last: Option<Value>, value: Value, interval: f64) -> f64 {
    match dst {
        Dst::Gauge => value.as_f64() * interval,
        Dst::Absolute => value.as_f64(),
        Dst::Counter => whole(last, value).map_or(f64::NAN, |(old, new)| counted(old, new)),
        Dst::Derive => whole(last, value).map_or(f64::NAN, |(old, new)| derived(old, new)),
        Dst::Dcounter => last.map_or(f64::NAN, |old| counted_double(old.as_f64(), value.as_f64())),
        Dst::Dderive => last.map_or(f64::NAN, |old| value.as_f64() - old.as_f64()),
    }
}

fn whole(last: Option<Value>, value: Value) -> Option<(i128, i128)> {
    Some((last?.as_integer()?, value.as_integer()?))
}

/// A decrease is first taken for a wrap of 32 bits, and if that does not suffice for one of 64. RRDtool adds one less
/// than the counter holds, and adds it to a double: of a wrap of 64 bits only multiples of 2048 remain.
fn counted(old: i128, new: i128) -> f64 {
    const WRAP_32: f64 = 4_294_967_295.0;
    const WRAP_64: f64 = 18_446_744_069_414_584_320.0;
    if old < 0 || new < 0 {
        return f64::NAN;
    }
    let mut amount = difference(old, new);
    if amount < 0.0 {
        amount += WRAP_32;
    }
    if amount < 0.0 {
        amount += WRAP_64;
    }
    amount
}

/// RRDtool does not subtract integers of different signs.
fn derived(old: i128, new: i128) -> f64 {
    if (old < 0) != (new < 0) { f64::NAN } else { difference(old, new) }
}

fn counted_double(old: f64, new: f64) -> f64 {
    let reset = (new > 0.0 && old > new) || (new < 0.0 && new > old);
    if reset { f64::NAN } else { new - old }
}

/// The exact difference as a double. One with more than 53 bits is rounded digit by digit, as RRDtool reads numbers:
/// beside a wrap of 64 bits the last place of this double is most of what is left.
fn difference(old: i128, new: i128) -> f64 {
    const EXACT: u128 = 1 << f64::MANTISSA_DIGITS;
    let exact = new - old;
    let size = exact.unsigned_abs();
    let rounded = if size <= EXACT {
        size as f64
    } else {
        size.to_string().bytes().fold(0.0, |read, digit| read * 10.0 + f64::from(digit - b'0'))
    };
    if exact < 0 { -rounded } else { rounded }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counter(v0: u64, v1: u64) -> Option<f64> {
        delta(Dst::Counter, 0, Some(v0.into()), 1_000_000, Some(v1.into()))
    }

    #[test]
    fn a_counter_wraps_at_32_and_at_64_bits_as_in_rrdtool() {
        assert_eq!(counter(100, 350), Some(250.0));
        assert_eq!(counter(4_294_967_290, 10), Some(15.0), "one less than was counted");
        assert_eq!(counter(u64::MAX - 1_000_000, 1_000_000), Some(2_000_896.0), "a multiple of 2048");
        assert_eq!(counter(u64::MAX, 0), Some(0.0));
    }

    #[test]
    fn large_counters_differ_exactly() {
        assert_eq!(counter(u64::MAX - 3, u64::MAX), Some(3.0));
        let old = Some(Value::Signed(i64::MIN));
        assert_eq!(delta(Dst::Derive, 0, old, 1, Some(Value::Signed(i64::MIN + 7))), Some(7.0));
    }

    #[test]
    fn derive_goes_both_ways_but_not_through_zero() {
        let derive = |v0: i64, v1: i64| delta(Dst::Derive, 0, Some(v0.into()), 1, Some(v1.into()));
        assert_eq!(derive(10, 4), Some(-6.0));
        assert_eq!(derive(-10, -4), Some(6.0));
        assert_eq!(derive(-1, 1), None);
        assert_eq!(derive(0, 1), Some(1.0));
    }

    #[test]
    fn a_dcounter_that_turns_round_was_reset() {
        let dcounter = |v0: f64, v1: f64| delta(Dst::Dcounter, 0, Some(v0.into()), 1, Some(v1.into()));
        assert_eq!(dcounter(1.5, 4.0), Some(2.5));
        assert_eq!(dcounter(4.0, 1.5), None);
        assert_eq!(dcounter(-1.5, -4.0), Some(-2.5));
        assert_eq!(dcounter(-4.0, -1.5), None);
        assert_eq!(dcounter(4.0, 0.0), Some(-4.0), "zero is on no side");
        assert_eq!(delta(Dst::Dderive, 0, Some(4.0.into()), 1, Some(Value::Double(-1.5))), Some(-5.5));
    }

    #[test]
    fn gauge_and_absolute_do_not_need_the_value_before() {
        let two_seconds = 2_000_000;
        assert_eq!(delta(Dst::Gauge, 0, None, two_seconds, Some(3.5.into())), Some(7.0));
        assert_eq!(rate(Dst::Gauge, 0, None, two_seconds, Some(3.5.into())), Some(3.5));
        assert_eq!(delta(Dst::Absolute, 0, None, two_seconds, Some(3.5.into())), Some(3.5));
        assert_eq!(rate(Dst::Absolute, 0, None, two_seconds, Some(3.5.into())), Some(1.75));
    }

    #[test]
    fn what_cannot_be_counted_is_unknown() {
        let one = Some(Value::Unsigned(1));
        for dst in [Dst::Gauge, Dst::Counter, Dst::Derive, Dst::Absolute, Dst::Dcounter, Dst::Dderive] {
            assert_eq!(rate(dst, 0, one, 1, None), None, "{dst:?} NULL");
            assert_eq!(rate(dst, 1, one, 1, one), None, "{dst:?} no time between");
            assert_eq!(rate(dst, 0, one, 1, Some(f64::NAN.into())), None, "{dst:?} NaN");
        }
        for dst in [Dst::Counter, Dst::Derive, Dst::Dcounter, Dst::Dderive] {
            assert_eq!(rate(dst, 0, None, 1, one), None, "{dst:?} NULL before");
        }
        assert_eq!(rate(Dst::Counter, 0, one, 1, Some(1.5.into())), None);
        assert_eq!(rate(Dst::Counter, 0, one, 1, Some(Value::Double(7.0))), Some(6_000_000.0));
        assert_eq!(rate(Dst::Counter, 0, one, 1, Some(Value::Signed(-1))), None);
        assert_eq!(rate(Dst::Counter, i64::MIN, one, i64::MAX, one), Some(0.0));
    }
}
