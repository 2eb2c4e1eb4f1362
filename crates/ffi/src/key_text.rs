//! The value of a key as people read it, for a duplicate that is found when a transaction commits.
//!
//! Then the server has no record at hand and cannot print the value itself. Values come out as SQL shows them, TIMESTAMPs by
//! the clock of whoever reads them; of a text that is not UTF-8, and of a UUID, the bytes that cannot be printed are shown as the server shows those of
//! a BINARY.

use std::fmt::Write;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use rrd_store::schema::Lane;

use crate::abi::{self, RrdLocalTime};
use crate::definition::Field;
use crate::field::Codec;

/// What a second since 1970 is in somebody's time zone.
pub type Clock<'a> = &'a dyn Fn(u64) -> RrdLocalTime;

/// How one part of a key is shown.
#[derive(Clone, Debug)]
pub struct Shown {
    /// Position in the schema.
    pub column: u16,
    /// How the value lies in a record.
    codec: Codec,
    form: Form,
    /// Characters that count in a key of a prefix; 0 for all.
    max_chars: usize,
}

/// What a value is to SQL, where its place in a record does not say it.
#[derive(Clone, Debug)]
enum Form {
    Number,
    Text,
    Binary,
    Decimal { precision: u8, scale: u8 },
    Timestamp { digits: u8 },
    Datetime { digits: u8 },
    Time { digits: u8 },
    Date,
    Year,
    Enum(Arc<[String]>),
    Set(Arc<[String]>),
    Inet,
}

impl Form {
    fn of(field: &Field) -> Form {
        let digits = field.fraction_digits;
        let sql_type = field.sql_type.as_str();
        let base = sql_type.split(['(', ' ']).next().unwrap_or_default();
        match (field.time_kind, base) {
            (abi::RRD_TIME_TIMESTAMP, _) => Form::Timestamp { digits },
            (abi::RRD_TIME_DATETIME, _) => Form::Datetime { digits },
            (_, "decimal") => Form::Decimal { precision: field.decimal_precision, scale: digits },
            (_, "time") if matches!(field.codec, Codec::BigEndian { .. }) => {
                Form::Time { digits: time_digits(sql_type) }
            }
            (_, "date") if matches!(field.codec, Codec::Integer { width: 3, .. }) => Form::Date,
            (_, "year") => Form::Year,
            (_, "enum") => Form::Enum(names(sql_type)),
            (_, "set") => Form::Set(names(sql_type)),
            (_, "inet4" | "inet6") => Form::Inet,
            (_, "bit" | "binary" | "varbinary" | "uuid") => Form::Binary,
            (_, other) if other.ends_with("blob") => Form::Binary,
            _ if field.codec.lane() == Lane::Bytes => Form::Text,
            _ => Form::Number,
        }
    }
}

impl Shown {
    /// A part over a field, of `max_chars` characters; 0 for all.
    pub fn new(column: u16, field: &Field, max_chars: usize) -> Shown {
        Shown { column, codec: field.codec, form: Form::of(field), max_chars }
    }

    /// The text of an integer lane's value.
    pub fn int(&self, value: u64, clock: Clock<'_>) -> String {
        match (&self.form, self.codec) {
            // Of zeros, which are no time.
            (Form::Timestamp { digits }, _) if value == 0 => timestamp(0, *digits, &|_| RrdLocalTime::default()),
            (Form::Timestamp { digits }, _) => timestamp(value, *digits, clock),
            (Form::Datetime { digits }, _) => datetime(value, *digits),
            (Form::Time { digits }, _) => time(value, *digits),
            (Form::Date, _) => format!("{:04}-{:02}-{:02}", value >> 9, value >> 5 & 15, value & 31),
            (Form::Year, _) if value == 0 => "0000".to_owned(),
            (Form::Year, _) => (1900 + value).to_string(),
            (Form::Enum(names), _) => {
                let at = (value as usize).checked_sub(1);
                at.and_then(|at| names.get(at)).cloned().unwrap_or_default()
            }
            (Form::Set(names), _) => {
                let chosen = names.iter().take(64).enumerate().filter(|(bit, _)| value >> bit & 1 != 0);
                chosen.map(|(_, name)| name.as_str()).collect::<Vec<_>>().join(",")
            }
            (form @ (Form::Decimal { .. } | Form::Binary), Codec::BigEndian { width }) => {
                let bytes = &value.to_be_bytes()[8 - usize::from(width.min(8))..];
                match form {
                    Form::Decimal { precision, scale } => decimal(bytes, *precision, *scale),
                    _ => escaped(bytes),
                }
            }
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
        match (&self.form, std::str::from_utf8(value)) {
            (Form::Decimal { precision, scale }, _) => decimal(value, *precision, *scale),
            (Form::Inet, _) => self.address(value),
            (Form::Text, Ok(text)) if self.max_chars > 0 => text.chars().take(self.max_chars).collect(),
            (Form::Text, Ok(text)) => text.to_owned(),
            _ if self.max_chars > 0 => escaped(&value[..value.len().min(self.max_chars)]),
            _ => escaped(value),
        }
    }

    /// The lane has no zeros at the end.
    fn address(&self, value: &[u8]) -> String {
        let mut bytes = [0; 16];
        let given = value.len().min(16);
        bytes[..given].copy_from_slice(&value[..given]);
        let [a, b, c, d, ..] = bytes;
        match self.codec.record_bytes() {
            4 => Ipv4Addr::new(a, b, c, d).to_string(),
            _ => Ipv6Addr::from(bytes).to_string(),
        }
    }

    /// Whether the value is a byte string.
    pub fn is_bytes(&self) -> bool {
        self.codec.lane() == Lane::Bytes
    }
}

/// Of `time(3)`.
fn time_digits(sql_type: &str) -> u8 {
    let digits = sql_type.split_once('(').and_then(|(_, rest)| rest.split_once(')'));
    digits.and_then(|(digits, _)| digits.parse().ok()).unwrap_or(0)
}

/// The values of `enum('a','it''s')`.
fn names(sql_type: &str) -> Arc<[String]> {
    let mut names = Vec::new();
    let mut rest = sql_type.chars().peekable();
    while rest.by_ref().any(|c| c == '\'') {
        let mut name = String::new();
        while let Some(c) = rest.next() {
            if c == '\'' && rest.next_if_eq(&'\'').is_none() {
                break;
            }
            name.push(c);
        }
        names.push(name);
        if rest.peek() != Some(&',') {
            break;
        }
    }
    names.into()
}

/// Bytes as the server shows those of a BINARY in an error.
fn escaped(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for &byte in bytes {
        match byte {
            0x20..=0x7E => text.push(char::from(byte)),
            // Writing to a string does not fail.
            _ => _ = write!(text, "\\x{byte:02X}"),
        }
    }
    text
}

/// A packed DECIMAL: groups of nine digits in four bytes each, fewer digits at both ends in fewer bytes; the sign bit is
/// inverted, and all bits of what is negative. Bytes that are missing at the end are zeros.
fn decimal(packed: &[u8], precision: u8, scale: u8) -> String {
    const BYTES: [usize; 10] = [0, 1, 1, 2, 2, 3, 3, 4, 4, 4];
    let (whole, fraction) = (usize::from(precision.saturating_sub(scale)), usize::from(scale));
    let is_negative = packed.first().is_some_and(|byte| byte & 0x80 == 0);
    let bytes = packed.iter().enumerate().map(|(i, &byte)| {
        let byte = if i == 0 { byte ^ 0x80 } else { byte };
        if is_negative { !byte } else { byte }
    });
    let mut bytes = bytes.chain(std::iter::repeat(0));
    let mut digits = String::with_capacity(whole + fraction);
    let mut take = |count: usize| {
        let number = bytes.by_ref().take(BYTES[count]).fold(0u32, |n, byte| n << 8 | u32::from(byte));
        if count > 0 {
            _ = write!(digits, "{number:0count$}");
        }
    };
    take(whole % 9);
    (0..whole / 9 + fraction / 9).for_each(|_| take(9));
    take(fraction % 9);
    let sign = if is_negative { "-" } else { "" };
    let (before, after) = digits.split_at_checked(whole).unwrap_or((&digits, ""));
    let before = before.trim_start_matches('0');
    let before = if before.is_empty() { "0" } else { before };
    if fraction == 0 { format!("{sign}{before}") } else { format!("{sign}{before}.{after}") }
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

pub(crate) fn timestamp(value: u64, digits: u8, clock: Clock<'_>) -> String {
    let (seconds, fraction) = split_fraction(value, digits);
    let RrdLocalTime { year, month, day, hour, minute, second } = clock(seconds);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}{fraction}")
}

/// The clock of UTC.
pub(crate) fn utc(seconds: u64) -> RrdLocalTime {
    let (year, month, day) = civil_from_days((seconds / 86_400) as i64);
    let second = (seconds % 86_400) as u32;
    RrdLocalTime { year, month, day, hour: second / 3600, minute: second % 3600 / 60, second: second % 60 }
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

/// A packed TIME: hours, minutes and seconds in bit fields, as the distance from a number in the middle.
fn time(value: u64, digits: u8) -> String {
    let zero = 0x80_0000u64 << (8 * u32::from(digits.div_ceil(2)));
    let sign = if value < zero { "-" } else { "" };
    let (whole, fraction) = split_fraction(value.abs_diff(zero), digits);
    format!("{sign}{:02}:{:02}:{:02}{fraction}", whole >> 12 & 0x3FF, whole >> 6 & 63, whole & 63)
}

/// Year, month and day of a day since 1970-01-01 (Howard Hinnant's `civil_from_days`).
fn civil_from_days(days: i64) -> (u32, u32, u32) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year as u32, month as u32, day as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_read_as_sql_shows_them() {
        assert_eq!(timestamp(1_700_000_000, 0, &utc), "2023-11-14 22:13:20");
        assert_eq!(timestamp(1_700_000_000 << 16 | 1230, 3, &utc), "2023-11-14 22:13:20.123");
        let shown = shown(Codec::BigEndian { width: 4 }, Form::Timestamp { digits: 3 });
        let clock = |seconds| RrdLocalTime { hour: utc(seconds).hour + 1, ..utc(seconds) };
        assert_eq!(shown.int(1_700_000_000 << 16 | 1230, &clock), "2023-11-14 23:13:20.123");
        assert_eq!(shown.int(0, &clock), "0000-00-00 00:00:00.000");
        let packed = 1u64 << 39 | ((2024 * 13 + 2) << 5 | 29) << 17 | 23 << 12 | 59 << 6 | 58;
        assert_eq!(datetime(packed, 0), "2024-02-29 23:59:58");
        assert_eq!(datetime(packed << 24 | 123_456, 6), "2024-02-29 23:59:58.123456");
    }

    #[test]
    fn integers_keep_their_sign_and_bytes_are_escaped() {
        let shown = shown(Codec::Integer { width: 2, flip: 1 << 15 }, Form::Number);
        assert_eq!(shown.int(0x7FFF, &utc), "-1");
        assert_eq!(shown.int(0x8001, &utc), "1");
        let bytes = super::Shown { form: Form::Binary, ..shown.clone() };
        assert_eq!(bytes.bytes(b"a\x01\xFF"), "a\\x01\\xFF");
        assert_eq!(super::Shown { form: Form::Text, ..shown }.bytes("naïve".as_bytes()), "naïve");
    }

    #[test]
    fn times_of_day_read_as_sql_shows_them() {
        let packed = 0x80_0000u64 + (838 << 12 | 59 << 6 | 58);
        assert_eq!(time(packed, 0), "838:59:58");
        assert_eq!(time((0x80_0000 << 16) - ((12 << 12 | 30 << 6 | 59) << 16 | 1250), 3), "-12:30:59.125");
        assert_eq!(time_digits("time(3)"), 3);
        assert_eq!(time_digits("time"), 0);
        let date = shown(Codec::Integer { width: 3, flip: 0 }, Form::Date);
        assert_eq!(date.int(2024 << 9 | 2 << 5 | 29, &utc), "2024-02-29");
        assert_eq!(shown(Codec::Integer { width: 1, flip: 0 }, Form::Year).int(99, &utc), "1999");
    }

    #[test]
    fn decimals_read_as_sql_shows_them() {
        // The server's own examples: strings/decimal.c.
        let packed = [0x81, 0x0D, 0xFB, 0x38, 0xD2, 0x04, 0xD2];
        assert_eq!(decimal(&packed, 14, 4), "1234567890.1234");
        assert_eq!(decimal(&packed.map(|byte| !byte), 14, 4), "-1234567890.1234");
        assert_eq!(decimal(&[0x80], 10, 3), "0.000");
        assert_eq!(decimal(&[0x80 | 7], 2, 0), "7");
        assert_eq!(decimal(&[], 0, 0), "0");
    }

    #[test]
    fn names_of_an_enum_come_from_its_type() {
        let found = names("enum('a','it''s, so','') CHARACTER SET latin1 COLLATE latin1_bin");
        assert_eq!(*found, ["a".to_owned(), "it's, so".to_owned(), String::new()]);
        let codec = Codec::Integer { width: 1, flip: 0 };
        assert_eq!(shown(codec, Form::Enum(found.clone())).int(2, &utc), "it's, so");
        assert_eq!(shown(codec, Form::Enum(found.clone())).int(9, &utc), "");
        assert_eq!(shown(codec, Form::Set(found)).int(3, &utc), "a,it's, so");
    }

    fn shown(codec: Codec, form: Form) -> Shown {
        Shown { column: 0, codec, form, max_chars: 0 }
    }
}
