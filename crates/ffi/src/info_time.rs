//! Times of the store as INFORMATION_SCHEMA shows them: in the terms of the time column, so that they can be compared
//! with it. Integers stay integers, DATETIME and TIMESTAMP are written out.

use rrd_store::schema::{Lane, Schema, TimeColumn, TimeUnit};

use crate::info::Cell;
use crate::key_text::{self, datetime, split_fraction, utc};

/// What comes after it has no place in a DATETIME: the year 9999 is over.
const LAST_SECOND: u64 = 253_402_300_799;

/// `s`, `TIMESTAMP(3)`.
pub fn unit_name(unit: TimeUnit) -> String {
    let sql_type = |name: &str, digits: u8| match digits {
        0 => name.to_owned(),
        digits => format!("{name}({digits})"),
    };
    match unit {
        TimeUnit::S => "s".to_owned(),
        TimeUnit::Ms => "ms".to_owned(),
        TimeUnit::Us => "us".to_owned(),
        TimeUnit::Ns => "ns".to_owned(),
        TimeUnit::Order => "none".to_owned(),
        TimeUnit::Timestamp { fraction_digits } => sql_type("TIMESTAMP", fraction_digits),
        TimeUnit::Datetime { fraction_digits } => sql_type("DATETIME", fraction_digits),
    }
}

/// A time that the lane holds; NULL without a time column.
pub fn time_cell(schema: &Schema, value: u64) -> Cell {
    TimeLane::of(schema).map_or(Cell::Null, |lane| lane.cell(value))
}

/// The same in a sentence.
pub fn time_text(schema: &Schema, value: u64) -> String {
    match (time_cell(schema, value), schema.time.map(|time| time.unit)) {
        (Cell::Timestamp(..), Some(TimeUnit::Timestamp { fraction_digits })) => {
            format!("{} UTC", key_text::timestamp(value, fraction_digits, &utc))
        }
        (Cell::Text(text), _) => text,
        _ => value.to_string(),
    }
}

/// A bound of a chunk, which need not be a time that exists: the nearest one. NULL if it lies behind all times.
pub fn bound_cell(schema: &Schema, value: u64) -> Cell {
    TimeLane::of(schema).map_or(Cell::Null, |lane| lane.bound(value))
}

/// The lane of a time column.
#[derive(Clone, Copy)]
struct TimeLane {
    unit: TimeUnit,
    bias: u64,
    width: u8,
}

impl TimeLane {
    fn of(schema: &Schema) -> Option<TimeLane> {
        let TimeColumn { column, unit, bias } = schema.time?;
        let width = match schema.columns.get(usize::from(column)).map(|column| column.lane) {
            Some(Lane::Int { width }) => width.clamp(1, 8),
            _ => 8,
        };
        Some(TimeLane { unit, bias, width })
    }

    fn cell(self, value: u64) -> Cell {
        match self.unit {
            TimeUnit::Timestamp { fraction_digits } => timestamp(value, fraction_digits),
            TimeUnit::Datetime { fraction_digits } => Cell::Text(datetime(value, fraction_digits)),
            _ => Cell::Text(self.integer(value)),
        }
    }

    fn bound(self, value: u64) -> Cell {
        if value > self.last() {
            return Cell::Null;
        }
        match self.unit {
            TimeUnit::Datetime { fraction_digits } => {
                let bits = 8 * u32::from(fraction_digits.div_ceil(2));
                Cell::Text(datetime(real_datetime(value >> bits) << bits, fraction_digits))
            }
            _ => self.cell(value),
        }
    }

    /// The largest value.
    fn last(self) -> u64 {
        u64::MAX >> (64 - 8 * u32::from(self.width))
    }

    /// A signed column's bias is its sign bit.
    fn integer(self, value: u64) -> String {
        let shift = 64 - 8 * u32::from(self.width);
        match self.bias {
            0 => value.to_string(),
            bias => ((((value ^ bias) << shift) as i64) >> shift).to_string(),
        }
    }
}

fn timestamp(value: u64, digits: u8) -> Cell {
    let (seconds, fraction) = split_fraction(value, digits);
    if seconds > LAST_SECOND {
        return Cell::Null;
    }
    let micros: u64 = format!("{:0<6}", fraction.trim_start_matches('.')).parse().unwrap_or(0);
    Cell::Timestamp(seconds * 1_000_000 + micros, digits)
}

/// The packed bits have room for month 0, day 0, hour 31, second 63: here is the nearest time that has none of it.
fn real_datetime(packed: u64) -> u64 {
    const TIME_BITS: u32 = 17;
    let (sign, whole) = (packed & 1 << 39, packed & ((1 << 39) - 1));
    let (date, time) = (whole >> TIME_BITS, whole & 0x1_FFFF);
    let (months, day) = (date >> 5, date & 31);
    if months % 13 == 0 || day == 0 {
        let months = if months % 13 == 0 { months + 1 } else { months };
        return sign | (months << 5 | 1) << TIME_BITS;
    }
    let (hour, minute, second) = (time >> 12, time >> 6 & 63, time & 63);
    let time = match (hour > 23, minute > 59) {
        (true, _) => 23 << 12 | 59 << 6 | 59,
        (_, true) => hour << 12 | 59 << 6 | 59,
        _ => hour << 12 | minute << 6 | second.min(59),
    };
    sign | date << TIME_BITS | time
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packed(year: u64, month: u64, day: u64, hour: u64, minute: u64, second: u64) -> u64 {
        1 << 39 | ((year * 13 + month) << 5 | day) << 17 | hour << 12 | minute << 6 | second
    }

    #[test]
    fn integers_are_those_of_the_column() {
        let unsigned = TimeLane { unit: TimeUnit::S, bias: 0, width: 4 };
        assert_eq!(unsigned.cell(u64::from(u32::MAX)), Cell::Text("4294967295".into()));
        assert_eq!(unsigned.bound(1 << 32), Cell::Null, "behind the last time there is no bound");
        let signed = TimeLane { unit: TimeUnit::Ms, bias: 1 << 63, width: 8 };
        assert_eq!(signed.cell((1 << 63) - 5), Cell::Text("-5".into()));
        assert_eq!(signed.cell((1 << 63) + 5), Cell::Text("5".into()));
    }

    #[test]
    fn timestamps_keep_their_fraction() {
        let plain = TimeLane { unit: TimeUnit::Timestamp { fraction_digits: 0 }, bias: 0, width: 4 };
        assert_eq!(plain.cell(1_700_000_000), Cell::Timestamp(1_700_000_000_000_000, 0));
        let millis = TimeLane { unit: TimeUnit::Timestamp { fraction_digits: 3 }, bias: 0, width: 6 };
        assert_eq!(millis.cell(1_700_000_000 << 16 | 1230), Cell::Timestamp(1_700_000_000_123_000, 3));
    }

    #[test]
    fn bounds_that_are_no_times_become_the_nearest_ones() {
        let s = TimeLane { unit: TimeUnit::Datetime { fraction_digits: 0 }, bias: 0, width: 5 };
        for (bound, shown) in [
            (packed(2024, 2, 29, 23, 59, 58), "2024-02-29 23:59:58"),
            (packed(2024, 3, 0, 17, 0, 0), "2024-03-01 00:00:00"),
            (packed(2024, 0, 9, 1, 1, 1), "2024-01-01 00:00:00"),
            (packed(2024, 2, 1, 24, 0, 0), "2024-02-01 23:59:59"),
            (packed(2024, 2, 1, 5, 60, 0), "2024-02-01 05:59:59"),
            (packed(2024, 2, 1, 5, 0, 62), "2024-02-01 05:00:59"),
        ] {
            assert_eq!(s.bound(bound), Cell::Text(shown.into()));
        }
    }

    #[test]
    fn units_are_named_as_users_write_them() {
        assert_eq!(unit_name(TimeUnit::Us), "us");
        assert_eq!(unit_name(TimeUnit::Datetime { fraction_digits: 6 }), "DATETIME(6)");
    }
}
