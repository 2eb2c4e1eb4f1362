//! The value of a key as people read it, for a duplicate that is found when a transaction commits.
//!
//! Then the server has no record at hand and cannot print the value itself. Integers, packed times (TIMESTAMP in
//! UTC) and UTF-8 texts come out as SQL shows them, anything else in hexadecimal.

use rrd_store::schema::{Lane, TimeUnit};

use crate::abi;
use crate::field::Codec;

/// How one part of a key is shown.
#[derive(Clone, Copy, Debug)]
pub struct Shown {
    /// Position in the schema.
    pub column: u16,
    /// How the value lies in a record.
    pub codec: Codec,
    /// Set for packed times.
    pub time: Option<TimeUnit>,
    /// Characters that count in a key of a prefix; 0 for all.
    pub max_chars: usize,
}

impl Shown {
    /// A part over a field.
    pub fn new(column: u16, codec: Codec, time_kind: abi::RrdTimeKind, fraction_digits: u8) -> Shown {
        let time = match time_kind {
            abi::RRD_TIME_TIMESTAMP => Some(TimeUnit::Timestamp { fraction_digits }),
            abi::RRD_TIME_DATETIME => Some(TimeUnit::Datetime { fraction_digits }),
            _ => None,
        };
        Shown { column, codec, time, max_chars: 0 }
    }

    /// The text of an integer lane's value.
    pub fn int(&self, value: u64) -> String {
        match (self.time, self.codec) {
            (Some(TimeUnit::Timestamp { fraction_digits }), _) => timestamp(value, fraction_digits),
            (Some(TimeUnit::Datetime { fraction_digits }), _) => datetime(value, fraction_digits),
            (_, Codec::Integer { width, flip }) if flip != 0 => {
                let shift = 64 - 8 * u32::from(width);
                ((((value ^ flip) << shift) as i64) >> shift).to_string()
            }
            (_, Codec::Float) => f32::from_bits(value as u32).to_string(),
            (_, Codec::Double) => f64::from_bits(value).to_string(),
            _ => value.to_string(),
        }
    }

    /// The text of a byte string.
    pub fn bytes(&self, value: &[u8]) -> String {
        match std::str::from_utf8(value) {
            Ok(text) if !text.chars().any(char::is_control) => match self.max_chars {
                0 => text.to_owned(),
                most => text.chars().take(most).collect(),
            },
            _ => value.iter().map(|byte| format!("{byte:02X}")).collect(),
        }
    }

    /// Whether the value is a byte string.
    pub fn is_bytes(&self) -> bool {
        self.codec.lane() == Lane::Bytes
    }
}

/// Splits a packed value into whole part and the text of its fraction.
pub(crate) fn split_fraction(value: u64, digits: u8) -> (u64, String) {
    let bytes = digits.div_ceil(2);
    let bits = 8 * u32::from(bytes);
    let fraction = value & ((1 << bits) - 1);
    let text = format!("{fraction:0width$}", width = 2 * usize::from(bytes));
    let shown = text.get(..usize::from(digits)).unwrap_or_default();
    (value >> bits, if digits == 0 { String::new() } else { format!(".{shown}") })
}

fn timestamp(value: u64, digits: u8) -> String {
    let (seconds, fraction) = split_fraction(value, digits);
    let (year, month, day) = civil_from_days((seconds / 86_400) as i64);
    let second = seconds % 86_400;
    let (hour, minute) = (second / 3600, second % 3600 / 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{:02}{fraction}", second % 60)
}

/// A packed DATETIME: year * 13 + month, day, hour, minute, second in bit fields, above a sign bit that is set.
pub(crate) fn datetime(value: u64, digits: u8) -> String {
    let (whole, fraction) = split_fraction(value, digits);
    let whole = whole & ((1 << 39) - 1);
    let (date, time) = (whole >> 17, whole & 0x1FFFF);
    let (months, day) = (date >> 5, date & 31);
    let (hour, minute, second) = (time >> 12, time >> 6 & 63, time & 63);
    let (year, month) = (months / 13, months % 13);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}{fraction}")
}

/// Year, month and day of a day since 1970-01-01 (Howard Hinnant's `civil_from_days`).
fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_read_as_sql_shows_them() {
        assert_eq!(timestamp(1_700_000_000, 0), "2023-11-14 22:13:20");
        assert_eq!(timestamp(1_700_000_000 << 16 | 1230, 3), "2023-11-14 22:13:20.123");
        let packed = 1u64 << 39 | ((2024 * 13 + 2) << 5 | 29) << 17 | 23 << 12 | 59 << 6 | 58;
        assert_eq!(datetime(packed, 0), "2024-02-29 23:59:58");
        assert_eq!(datetime(packed << 24 | 123_456, 6), "2024-02-29 23:59:58.123456");
    }

    #[test]
    fn signed_integers_keep_their_sign() {
        let shown = Shown::new(0, Codec::Integer { width: 2, flip: 1 << 15 }, abi::RRD_TIME_INTEGER, 0);
        assert_eq!(shown.int(0x7FFF), "-1");
        assert_eq!(shown.int(0x8001), "1");
        assert_eq!(shown.bytes(b"a\x01"), "6101");
    }
}
