//! The readings of one group of SQL's `rrd_delta` and `rrd_rate`, and what was counted in them. Pure.
//!
//! Rows of a group come in any order, and a late one changes what two others say. So all are kept until the group's
//! value is asked for: 32 bytes each.

use rrd_consolidate::{Dst, Value, delta};
use rrd_store::schema::SourceType;

/// Readings of one group at most: a gigabyte of them.
pub const MAX_READINGS: usize = 1 << 25;

/// What was counted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Counted {
    /// Sum of the amounts that are known.
    pub amount: f64,
    /// Seconds in which they were counted.
    pub seconds: f64,
}

/// The readings of a group.
#[derive(Debug)]
pub struct Counter {
    dst: Dst,
    readings: Vec<(i64, Option<Value>)>,
    is_sorted: bool,
}

impl Counter {
    /// Without readings.
    pub fn new(kind: SourceType) -> Counter {
        let dst = match kind {
            SourceType::Gauge => Dst::Gauge,
            SourceType::Counter => Dst::Counter,
            SourceType::Derive => Dst::Derive,
            SourceType::Absolute => Dst::Absolute,
            SourceType::Dcounter => Dst::Dcounter,
            SourceType::Dderive => Dst::Dderive,
        };
        Counter { dst, readings: Vec::new(), is_sorted: true }
    }

    /// Begins a new group.
    pub fn clear(&mut self) {
        self.readings.clear();
        // One large group should not hold its memory until the statement's end.
        self.readings.shrink_to(1 << 16);
        self.is_sorted = true;
    }

    /// Takes a reading; NULL is an unknown one. False if there are too many.
    pub fn add(&mut self, time_us: i64, value: Option<Value>) -> bool {
        if self.readings.len() >= MAX_READINGS {
            return false;
        }
        self.is_sorted &= self.readings.last().is_none_or(|(last, _)| *last < time_us);
        self.readings.push((time_us, value));
        true
    }

    /// What was counted from the first reading to the last; `None` if nothing is known of it.
    pub fn counted(&mut self) -> Option<Counted> {
        self.sort();
        let mut total: Option<Counted> = None;
        for pair in self.readings.windows(2) {
            let ((t0, v0), (t1, v1)) = (pair[0], pair[1]);
            if let Some(amount) = delta(self.dst, t0, v0, t1, v1) {
                let total = total.get_or_insert(Counted { amount: 0.0, seconds: 0.0 });
                total.amount += amount;
                total.seconds += seconds_between(t0, t1);
            }
        }
        total
    }

    /// In the order of time. Of several readings of one time the largest counts, so that the order in which they came
    /// does not.
    fn sort(&mut self) {
        if self.is_sorted {
            return;
        }
        self.readings.sort_by(|a, b| a.0.cmp(&b.0).then(number(b.1).total_cmp(&number(a.1))));
        self.readings.dedup_by_key(|reading| reading.0);
        self.is_sorted = true;
    }
}

/// A value to sort by.
fn number(value: Option<Value>) -> f64 {
    match value {
        None => f64::NEG_INFINITY,
        Some(Value::Unsigned(value)) => value as f64,
        Some(Value::Signed(value)) => value as f64,
        Some(Value::Double(value)) => value,
    }
}

fn seconds_between(from_us: i64, to_us: i64) -> f64 {
    (i128::from(to_us) - i128::from(from_us)) as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: i64 = 1_000_000;

    fn counted(kind: SourceType, readings: &[(i64, Option<u64>)]) -> Option<(f64, f64)> {
        let mut counter = Counter::new(kind);
        for (time, value) in readings {
            assert!(counter.add(time * S, value.map(Value::Unsigned)));
        }
        counter.counted().map(|counted| (counted.amount, counted.seconds))
    }

    #[test]
    fn order_and_doubles_do_not_matter() {
        let rows = [(30, Some(60)), (10, Some(20)), (0, Some(10)), (20, Some(4)), (20, Some(50)), (20, None)];
        assert_eq!(counted(SourceType::Counter, &rows), Some((50.0, 30.0)));
        let mut back = rows;
        back.reverse();
        assert_eq!(counted(SourceType::Counter, &back), Some((50.0, 30.0)));
    }

    #[test]
    fn unknown_intervals_count_neither_amount_nor_time() {
        let rows = [(0, Some(0)), (10, Some(100)), (20, None), (30, Some(500)), (40, Some(520))];
        assert_eq!(counted(SourceType::Counter, &rows), Some((120.0, 20.0)));
        assert_eq!(counted(SourceType::Counter, &rows[..1]), None);
        assert_eq!(counted(SourceType::Counter, &[(0, None), (1, Some(1))]), None);
        assert_eq!(counted(SourceType::Counter, &[]), None);
    }

    #[test]
    fn a_decrease_is_a_wrap_or_a_reset() {
        let rows = [(0, Some(4_294_967_290)), (10, Some(10)), (20, Some(30))];
        assert_eq!(counted(SourceType::Counter, &rows), Some((35.0, 20.0)));
        assert_eq!(counted(SourceType::Dcounter, &rows), Some((20.0, 10.0)));
        assert_eq!(counted(SourceType::Derive, &rows), Some((-4_294_967_260.0, 20.0)));
    }

    #[test]
    fn a_group_begins_anew() {
        let mut counter = Counter::new(SourceType::Counter);
        counter.add(5, Some(Value::Unsigned(1)));
        counter.add(4, Some(Value::Unsigned(1)));
        counter.clear();
        counter.add(3, Some(Value::Unsigned(1)));
        assert_eq!(counter.counted(), None);
    }
}
