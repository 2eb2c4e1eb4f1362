//! The options of `CREATE TABLE ... ENGINE=RRD`: reading and checking them. Pure.
//!
//! Every option arrives as text (the server's own number options would read `10G` as 10). A bad value is refused
//! with a text that names the option and shows a good one. What options mean for each other is checked in `tiers.rs`
//! and `definition.rs`.

use rrd_store::limits::MIN_RING_BYTES;
use rrd_store::schema::{Bucket, Compression, Ring, SourceType, TierDef, TimeUnit};

use crate::status::{Failure, Outcome};

/// An option as the user wrote it.
pub type Pair = (String, String);

/// Tiers of a table at most: each is refreshed whenever rows are flushed.
pub const MAX_TIERS: usize = 16;

const SECOND: u64 = rrd_store::time::SECOND as u64;
const DAY: u64 = rrd_store::time::DAY as u64;

/// What a table's options ask for.
#[derive(Debug, Default, PartialEq)]
pub struct TableOptions {
    /// `TIME_COLUMN`.
    pub time_column: Option<String>,
    /// `TIME_UNIT`.
    pub time_unit: Option<TimeUnit>,
    /// `CHUNK`.
    pub chunk: Option<Duration>,
    /// `COMPRESSION`.
    pub compression: Compression,
    /// `RETENTION`, `MAX_ROWS`, `SERIES_MAX_ROWS`, `MAX_BYTES`.
    pub ring: Ring,
    /// `TIERS` or `ROLLUP`, by length of bucket.
    pub tiers: Vec<TierDef>,
    /// `STEP` in microseconds.
    pub step: Option<u64>,
    /// `XFF`.
    pub xff: Option<f64>,
}

/// What a column's options ask for.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ColumnOptions {
    /// `DST`.
    pub kind: Option<SourceType>,
    /// `HEARTBEAT` in microseconds.
    pub heartbeat: Option<u64>,
    /// `DS_MIN`.
    pub min: Option<f64>,
    /// `DS_MAX`.
    pub max: Option<f64>,
}

/// A length of time as people write it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Duration {
    /// How many.
    pub count: u64,
    /// Of what.
    pub unit: Unit,
}

/// A unit of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// `s`.
    Second,
    /// `m`.
    Minute,
    /// `h`.
    Hour,
    /// `d`.
    Day,
    /// `w`.
    Week,
    /// `mo`.
    Month,
    /// `y`.
    Year,
}

impl Duration {
    /// Its length; a month counts as 30 days and a year as 365. `None` if it does not fit.
    pub fn seconds(self) -> Option<u64> {
        self.count.checked_mul(match self.unit {
            Unit::Second => 1,
            Unit::Minute => 60,
            Unit::Hour => 3600,
            Unit::Day => 86_400,
            Unit::Week => 7 * 86_400,
            Unit::Month => 30 * 86_400,
            Unit::Year => 365 * 86_400,
        })
    }

    /// The same in microseconds, as far as an `i64` of them goes.
    pub fn micros(self) -> Option<u64> {
        self.seconds()?.checked_mul(SECOND).filter(|micros| i64::try_from(*micros).is_ok())
    }

    /// As a bucket: months and years are calendar ones, weeks begin on Mondays.
    pub fn bucket(self) -> Option<Bucket> {
        let months = match self.unit {
            Unit::Month => self.count,
            Unit::Year => self.count.checked_mul(12)?,
            _ => {
                let length = self.micros()?;
                // The epoch was a Thursday.
                let offset = if self.unit == Unit::Week { 4 * DAY % length } else { 0 };
                return Some(Bucket::Fixed { length, offset });
            }
        };
        // More than a century says nothing about time series.
        u32::try_from(months).ok().filter(|months| *months <= 1200).map(|count| Bucket::Months { count })
    }

    /// The short way to write it, as in a tier's name.
    pub fn name(self) -> String {
        let unit = match self.unit {
            Unit::Second => "s",
            Unit::Minute => "m",
            Unit::Hour => "h",
            Unit::Day => "d",
            Unit::Week => "w",
            Unit::Month => "mo",
            Unit::Year => "y",
        };
        format!("{}{unit}", self.count)
    }
}

/// Reads and checks the options of a table.
pub fn table_options(pairs: &[Pair]) -> Outcome<TableOptions> {
    let mut options = TableOptions::default();
    let mut tiers_by = None;
    for (name, value) in pairs {
        match name.as_str() {
            "TIME_COLUMN" => options.time_column = Some(value.clone()),
            "TIME_UNIT" => options.time_unit = Some(time_unit(value)?),
            "CHUNK" => options.chunk = Some(good(name, value, duration(value), "'1 DAY' or '6h'")?),
            "COMPRESSION" => options.compression = compression(value)?,
            "RETENTION" => options.ring.retention = Some(length(name, value, "'90d' or '1 YEAR'")?),
            "MAX_ROWS" => options.ring.max_rows = Some(good(name, value, count(value), "100000")?),
            "SERIES_MAX_ROWS" => options.ring.series_max_rows = Some(good(name, value, count(value), "'100000'")?),
            "MAX_BYTES" => options.ring.max_bytes = Some(ring_bytes(name, value)?),
            "STEP" => options.step = Some(length(name, value, "'5m' or '10 SECOND'")?),
            "XFF" => {
                let example = "'0.5' (a share from 0 up to, not including, 1)";
                options.xff = Some(good(name, value, fraction(value), example)?);
            }
            "TIERS" | "ROLLUP" => {
                if tiers_by.replace(name).is_some() {
                    return Err(Failure::invalid("options TIERS and ROLLUP are the same; give one of them"));
                }
                options.tiers = tiers(name, value)?;
            }
            _ => return Err(Failure::invalid(format!("option {name} is not known to ENGINE=RRD"))),
        }
    }
    Ok(options)
}

/// Reads and checks the options of a column.
pub fn column_options(column: &str, pairs: &[Pair]) -> Outcome<ColumnOptions> {
    let mut options = ColumnOptions::default();
    let types = "'GAUGE', 'COUNTER', 'DERIVE', 'ABSOLUTE', 'DCOUNTER' or 'DDERIVE'";
    for (name, value) in pairs {
        match name.as_str() {
            "DST" => options.kind = Some(good(name, value, source_type(value), types)?),
            "HEARTBEAT" => options.heartbeat = Some(length(name, value, "'10m'")?),
            "DS_MIN" => options.min = good(name, value, bound(value), "'0', '-1e9' or 'U' for no bound")?,
            "DS_MAX" => options.max = good(name, value, bound(value), "'100', '1e9' or 'U' for no bound")?,
            _ => return Err(Failure::invalid(format!("column option {name} is not known to ENGINE=RRD"))),
        }
    }
    match (options.min, options.max) {
        (Some(min), Some(max)) if min >= max => Err(Failure::invalid(format!(
            "column '{column}': DS_MIN ({min}) must be less than DS_MAX ({max}), or no value would be within them"
        ))),
        _ => Ok(options),
    }
}

fn good<T>(name: &str, value: &str, parsed: Option<T>, example: &str) -> Outcome<T> {
    parsed.ok_or_else(|| {
        Failure::invalid(format!("option {name}='{value}' cannot be understood; write for example {name}={example}"))
    })
}

/// Bytes of a ring.
fn ring_bytes(name: &str, value: &str) -> Outcome<u64> {
    let bytes = good(name, value, size(value), "'10G'")?;
    match bytes < MIN_RING_BYTES {
        true => Err(Failure::invalid(format!(
            "option {name}='{value}' is too small to keep anything; write at least {name}='{}K'",
            MIN_RING_BYTES >> 10
        ))),
        false => Ok(bytes),
    }
}

/// A length of time in microseconds.
fn length(name: &str, value: &str, example: &str) -> Outcome<u64> {
    good(name, value, duration(value).and_then(Duration::micros), example)
}

fn time_unit(value: &str) -> Outcome<TimeUnit> {
    match value.to_ascii_lowercase().as_str() {
        "s" => Ok(TimeUnit::S),
        "ms" => Ok(TimeUnit::Ms),
        "us" => Ok(TimeUnit::Us),
        "ns" => Ok(TimeUnit::Ns),
        _ => good("TIME_UNIT", value, None, "'s', 'ms', 'us' or 'ns'"),
    }
}

fn compression(value: &str) -> Outcome<Compression> {
    match value.to_ascii_lowercase().as_str() {
        "fast" => Ok(Compression::Fast),
        "small" => Ok(Compression::Small),
        _ => good("COMPRESSION", value, None, "'fast' or 'small'"),
    }
}

/// `90d`, `5m`, `1 DAY`, `5 MINUTE`; a length of zero is none.
pub fn duration(text: &str) -> Option<Duration> {
    let text = text.trim().to_ascii_lowercase();
    let (digits, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit())?);
    let unit = match unit.trim() {
        "s" | "second" | "seconds" => Unit::Second,
        "m" | "minute" | "minutes" => Unit::Minute,
        "h" | "hour" | "hours" => Unit::Hour,
        "d" | "day" | "days" => Unit::Day,
        "w" | "week" | "weeks" => Unit::Week,
        "mo" | "month" | "months" => Unit::Month,
        "y" | "year" | "years" => Unit::Year,
        _ => return None,
    };
    let duration = Duration { count: digits.parse().ok().filter(|n| *n > 0)?, unit };
    duration.seconds().map(|_| duration)
}

/// `10G`, `512M`, `4096`; powers of 1024.
pub fn size(text: &str) -> Option<u64> {
    let text = text.trim();
    let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(split);
    let shift = match unit.trim().to_ascii_uppercase().as_str() {
        "" | "B" => 0,
        "K" | "KB" | "KIB" => 10,
        "M" | "MB" | "MIB" => 20,
        "G" | "GB" | "GIB" => 30,
        "T" | "TB" | "TIB" => 40,
        _ => return None,
    };
    let number: u64 = digits.parse().ok()?;
    number.checked_mul(1 << shift).filter(|bytes| *bytes > 0)
}

/// A whole number from 1 on.
pub fn count(text: &str) -> Option<u64> {
    text.trim().parse().ok().filter(|n| *n > 0)
}

/// `30m:1y, 4h:3y, 1d`: buckets that grow, each once. A tier's number is its place for now.
pub fn tiers(option: &str, text: &str) -> Outcome<Vec<TierDef>> {
    let mut tiers: Vec<(Duration, TierDef)> = Vec::new();
    for (text_of_tier, id) in text.split(',').zip(1..) {
        let (length, tier) = good(option, text, tier(text_of_tier, id), "'30m:1y, 4h:3y, 1d'")?;
        if let Some((before, _)) = tiers.last().filter(|(before, _)| before.seconds() >= length.seconds()) {
            return Err(Failure::invalid(format!(
                "option {option}='{text}': {} comes behind {}; write the shortest buckets first, each once, for example \
                 {option}='30m:1y, 4h:3y, 1d'",
                length.name(),
                before.name()
            )));
        }
        if tier.keep.is_some_and(|keep| length.micros().is_none_or(|bucket| keep < bucket)) {
            return Err(Failure::invalid(format!(
                "option {option}='{text}': tier {0} is kept for less than one of its buckets; write for example {0}:1y, \
                 or {0} alone to keep it for ever",
                tier.name
            )));
        }
        tiers.push((length, tier));
    }
    if tiers.len() > MAX_TIERS {
        return Err(Failure::invalid(format!("option {option}: a table has at most {MAX_TIERS} tiers")));
    }
    Ok(tiers.into_iter().map(|(_, tier)| tier).collect())
}

fn tier(text: &str, id: u32) -> Option<(Duration, TierDef)> {
    let (bucket, keep) = match text.split_once(':') {
        Some((bucket, keep)) => (duration(bucket)?, Some(duration(keep)?.micros()?)),
        None => (duration(text)?, None),
    };
    Some((bucket, TierDef { id, name: bucket.name(), bucket: bucket.bucket()?, keep }))
}

/// A share from 0 up to, not including, 1.
pub fn fraction(text: &str) -> Option<f64> {
    text.trim().parse().ok().filter(|share| (0.0..1.0).contains(share))
}

/// A bound of a data source; `U` is none.
pub fn bound(text: &str) -> Option<Option<f64>> {
    match text.trim() {
        "U" | "u" => Some(None),
        number => number.parse().ok().filter(|bound: &f64| bound.is_finite()).map(Some),
    }
}

/// `GAUGE` and its like.
pub fn source_type(text: &str) -> Option<SourceType> {
    match text.trim().to_ascii_uppercase().as_str() {
        "GAUGE" => Some(SourceType::Gauge),
        "COUNTER" => Some(SourceType::Counter),
        "DERIVE" => Some(SourceType::Derive),
        "ABSOLUTE" => Some(SourceType::Absolute),
        "DCOUNTER" => Some(SourceType::Dcounter),
        "DDERIVE" => Some(SourceType::Dderive),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi;

    fn pairs(list: &[(&str, &str)]) -> Vec<Pair> {
        list.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect()
    }

    fn refusal(list: &[(&str, &str)]) -> (i32, String) {
        match table_options(&pairs(list)) {
            Err(Failure::Explained(status, text)) => (status, text),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn durations_read_short_and_long() {
        let read = |text| duration(text).and_then(Duration::seconds);
        for (text, seconds) in [
            ("90d", 90 * 86_400),
            ("5m", 300),
            ("1h", 3600),
            ("2w", 14 * 86_400),
            ("1mo", 30 * 86_400),
            ("1y", 365 * 86_400),
            ("90 DAY", 90 * 86_400),
            ("5 MINUTE", 300),
            (" 5 minutes ", 300),
            ("30s", 30),
        ] {
            assert_eq!(read(text), Some(seconds), "{text}");
        }
        for text in ["", "d", "5", "0d", "-1d", "1.5h", "5 parsecs", "99999999999999999999d", "99999999999999999y"] {
            assert_eq!(duration(text), None, "{text}");
        }
    }

    #[test]
    fn sizes_are_powers_of_1024() {
        for (text, bytes) in [("10G", 10 << 30), ("512m", 512 << 20), ("4096", 4096), ("1 TB", 1 << 40)] {
            assert_eq!(size(text), Some(bytes), "{text}");
        }
        for text in ["", "G", "0", "-1", "10X", "99999999999T"] {
            assert_eq!(size(text), None, "{text}");
        }
    }

    #[test]
    fn tiers_must_grow() {
        let hours = |n: u64| Bucket::Fixed { length: n * 3600 * SECOND, offset: 0 };
        let tier = |id, name: &str, bucket, keep: Option<u64>| TierDef {
            id,
            name: name.into(),
            bucket,
            keep: keep.map(|days| days * DAY),
        };
        let half = Bucket::Fixed { length: 1800 * SECOND, offset: 0 };
        let expected = vec![
            tier(1, "30m", half, Some(365)),
            tier(2, "4h", hours(4), Some(3 * 365)),
            tier(3, "1d", hours(24), None),
        ];
        assert_eq!(tiers("TIERS", "30 MINUTE:1y, 4h:3y, 1d").ok(), Some(expected));
        for text in ["", "4h, 30m", "1h,1h", "1h:", ":1y", "60m, 1h", "1h:30m", "1mo, 30d", "200y"] {
            assert!(tiers("TIERS", text).is_err(), "{text}");
        }
        let many = (1..=17).map(|n| format!("{n}h")).collect::<Vec<_>>().join(",");
        assert!(tiers("TIERS", &many).is_err());
    }

    #[test]
    fn weeks_begin_on_mondays_and_months_are_of_the_calendar() {
        let bucket = |text| duration(text).and_then(Duration::bucket);
        assert_eq!(bucket("1w"), Some(Bucket::Fixed { length: 7 * DAY, offset: 4 * DAY }));
        assert_eq!(bucket("7d"), Some(Bucket::Fixed { length: 7 * DAY, offset: 0 }));
        assert_eq!(bucket("3mo"), Some(Bucket::Months { count: 3 }));
        assert_eq!(bucket("1y"), Some(Bucket::Months { count: 12 }));
    }

    #[test]
    fn every_option_is_taken() {
        let options = table_options(&pairs(&[
            ("TIME_COLUMN", "ts"),
            ("TIME_UNIT", "MS"),
            ("CHUNK", "1 DAY"),
            ("COMPRESSION", "fast"),
            ("RETENTION", "90d"),
            ("MAX_ROWS", "25920"),
            ("SERIES_MAX_ROWS", "100"),
            ("MAX_BYTES", "10G"),
            ("STEP", "5m"),
            ("ROLLUP", "30m"),
            ("XFF", "0.5"),
        ]));
        let expected = TableOptions {
            time_column: Some("ts".into()),
            time_unit: Some(TimeUnit::Ms),
            chunk: duration("1d"),
            compression: Compression::Fast,
            ring: Ring {
                retention: Some(90 * DAY),
                max_rows: Some(25_920),
                series_max_rows: Some(100),
                max_bytes: Some(10 << 30),
            },
            tiers: tiers("TIERS", "30m").unwrap_or_default(),
            step: Some(300 * SECOND),
            xff: Some(0.5),
        };
        assert_eq!(options.ok(), Some(expected));
    }

    #[test]
    fn tiers_and_rollup_are_one_option() {
        let (status, text) = refusal(&[("ROLLUP", "1h"), ("TIERS", "1h")]);
        assert_eq!(status, abi::RRD_INVALID, "{text}");
        assert!(text.contains("give one of them"), "{text}");
    }

    #[test]
    fn a_bad_value_names_the_option_and_shows_a_good_one() {
        for (name, value) in [
            ("RETENTION", "soon"),
            ("SERIES_MAX_ROWS", "-1"),
            ("MAX_BYTES", "10X"),
            ("STEP", "0"),
            ("MAX_ROWS", "0"),
            ("TIERS", "30m:"),
            ("ROLLUP", "1h;1h"),
            ("XFF", "1.5"),
            ("TIME_UNIT", "minutes"),
            ("CHUNK", "1 fortnight"),
            ("COMPRESSION", "best"),
        ] {
            let (status, text) = refusal(&[(name, value)]);
            assert_eq!(status, abi::RRD_INVALID, "{text}");
            assert!(text.contains(&format!("{name}='{value}'")) && text.contains("write for example"), "{text}");
        }
    }

    #[test]
    fn options_of_a_column_are_taken() {
        let options = column_options(
            "c",
            &pairs(&[("DST", "counter"), ("HEARTBEAT", "10m"), ("DS_MIN", "U"), ("DS_MAX", "1e9")]),
        );
        let expected =
            ColumnOptions { kind: Some(SourceType::Counter), heartbeat: Some(600 * SECOND), min: None, max: Some(1e9) };
        assert_eq!(options.ok(), Some(expected));
        for (name, value) in [("DST", "meter"), ("HEARTBEAT", "x"), ("DS_MIN", "low"), ("DS_MAX", "inf")] {
            let failure = column_options("c", &pairs(&[(name, value)])).err();
            assert_eq!(failure.map(|f| f.status()), Some(abi::RRD_INVALID), "{name}={value}");
        }
        assert!(column_options("c", &pairs(&[("DS_MIN", "5"), ("DS_MAX", "5")])).is_err());
    }
}
