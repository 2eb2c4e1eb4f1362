//! The options of `CREATE TABLE ... ENGINE=RRD`: reading and checking them. Pure.
//!
//! Every option arrives as text (the server's own number options would read `10G` as 10). A bad value is refused
//! with a text that names the option and shows a good one. Options whose behaviour is not built yet are checked
//! as well and then refused by name: a table never silently lacks what its definition promises.

use rrd_store::schema::{Compression, TimeUnit};

use crate::status::{Failure, Outcome};

/// An option as the user wrote it.
pub type Pair = (String, String);

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

/// A tier of `ROLLUP`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tier {
    /// Length of a bucket.
    pub bucket: Duration,
    /// How long buckets are kept; `None` for ever.
    pub keep: Option<Duration>,
}

/// What `DST` says a column's readings are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceType {
    /// The value itself.
    Gauge,
    /// A rate, from a counter that wraps.
    Counter,
    /// A rate, which may fall.
    Derive,
    /// A rate, from a counter that is reset by reading it.
    Absolute,
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
}

/// Reads and checks the options of a table.
pub fn table_options(pairs: &[Pair]) -> Outcome<TableOptions> {
    let mut options = TableOptions::default();
    let mut later = None;
    for (name, value) in pairs {
        match name.as_str() {
            "TIME_COLUMN" => options.time_column = Some(value.clone()),
            "TIME_UNIT" => options.time_unit = Some(time_unit(value)?),
            "CHUNK" => options.chunk = Some(good(name, value, duration(value), "'1 DAY' or '6h'")?),
            "COMPRESSION" => options.compression = compression(value)?,
            _ => {
                check_later_option(name, value)?;
                later = later.or(Some(name));
            }
        }
    }
    match later {
        Some(name) => Err(not_yet(name, "a table")),
        None => Ok(options),
    }
}

/// Checks the options of a column.
pub fn check_column_options(column: &str, pairs: &[Pair]) -> Outcome<()> {
    for (name, value) in pairs {
        check_column_option(name, value)?;
    }
    match pairs.first() {
        Some((name, _)) => Err(not_yet(name, &format!("column '{column}'"))),
        None => Ok(()),
    }
}

fn check_later_option(name: &str, value: &str) -> Outcome<()> {
    match name {
        "RETENTION" | "STEP" => good(name, value, duration(value), "'90d' or '5 MINUTE'").map(drop),
        "MAX_ROWS" | "SERIES_MAX_ROWS" => good(name, value, count(value), "'100000'").map(drop),
        "MAX_BYTES" => good(name, value, size(value), "'10G'").map(drop),
        "ROLLUP" => good(name, value, tiers(value), "'30m:1y, 4h:3y, 1d'").map(drop),
        "XFF" => good(name, value, fraction(value), "'0.5' (a share from 0 up to, not including, 1)").map(drop),
        _ => Err(Failure::invalid(format!("option {name} is not known to ENGINE=RRD"))),
    }
}

fn check_column_option(name: &str, value: &str) -> Outcome<()> {
    match name {
        "DST" => good(name, value, source_type(value), "'GAUGE', 'COUNTER', 'DERIVE' or 'ABSOLUTE'").map(drop),
        "HEARTBEAT" => good(name, value, duration(value), "'10m'").map(drop),
        "DS_MIN" | "DS_MAX" => good(name, value, bound(value), "'0', '1e9' or 'U' for no bound").map(drop),
        _ => Err(Failure::invalid(format!("column option {name} is not known to ENGINE=RRD"))),
    }
}

fn not_yet(name: &str, of: &str) -> Failure {
    Failure::unsupported(format!("option {name} of {of} is not available yet in this version of ENGINE=RRD"))
}

fn good<T>(name: &str, value: &str, parsed: Option<T>, example: &str) -> Outcome<T> {
    parsed.ok_or_else(|| {
        Failure::invalid(format!("option {name}='{value}' cannot be understood; write for example {name}={example}"))
    })
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

/// `30m:1y, 4h:3y, 1d`: buckets that grow, each once.
pub fn tiers(text: &str) -> Option<Vec<Tier>> {
    let tiers = text.split(',').map(tier).collect::<Option<Vec<Tier>>>()?;
    let grow = tiers.windows(2).all(|pair| pair[0].bucket.seconds() < pair[1].bucket.seconds());
    grow.then_some(tiers)
}

fn tier(text: &str) -> Option<Tier> {
    match text.split_once(':') {
        Some((bucket, keep)) => Some(Tier { bucket: duration(bucket)?, keep: Some(duration(keep)?) }),
        None => Some(Tier { bucket: duration(text)?, keep: None }),
    }
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
        let tier =
            |bucket, keep: Option<&str>| duration(bucket).map(|bucket| Tier { bucket, keep: keep.and_then(duration) });
        let expected = [tier("30m", Some("1y")), tier("4h", Some("3y")), tier("1d", None)];
        assert_eq!(tiers("30m:1y, 4h:3y, 1d"), expected.into_iter().collect());
        for text in ["", "4h, 30m", "1h,1h", "1h:", ":1y", "60m, 1h"] {
            assert_eq!(tiers(text), None, "{text}");
        }
    }

    #[test]
    fn what_works_now_is_taken() {
        let options = table_options(&pairs(&[
            ("TIME_COLUMN", "ts"),
            ("TIME_UNIT", "MS"),
            ("CHUNK", "1 DAY"),
            ("COMPRESSION", "fast"),
        ]));
        let expected = TableOptions {
            time_column: Some("ts".into()),
            time_unit: Some(TimeUnit::Ms),
            chunk: duration("1d"),
            compression: Compression::Fast,
        };
        assert_eq!(options.ok(), Some(expected));
    }

    #[test]
    fn what_comes_later_is_refused_by_name() {
        for (name, value) in [
            ("RETENTION", "90d"),
            ("MAX_ROWS", "100"),
            ("SERIES_MAX_ROWS", "100"),
            ("MAX_BYTES", "10G"),
            ("STEP", "5m"),
            ("ROLLUP", "30m:1y"),
            ("XFF", "0.5"),
        ] {
            let (status, text) = refusal(&[(name, value)]);
            assert_eq!(status, abi::RRD_UNSUPPORTED, "{text}");
            assert!(text.contains(name), "{text}");
        }
    }

    #[test]
    fn a_bad_value_names_the_option_and_shows_a_good_one() {
        for (name, value) in [
            ("RETENTION", "soon"),
            ("SERIES_MAX_ROWS", "-1"),
            ("MAX_BYTES", "10X"),
            ("STEP", "0"),
            ("ROLLUP", "1h,1h"),
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
    fn column_options_are_checked_then_refused() {
        let check = |name: &str, value: &str| match check_column_options("c", &pairs(&[(name, value)])) {
            Err(failure) => failure.status(),
            Ok(()) => abi::RRD_OK,
        };
        for (name, value) in [("DST", "counter"), ("HEARTBEAT", "10m"), ("DS_MIN", "U"), ("DS_MAX", "1e9")] {
            assert_eq!(check(name, value), abi::RRD_UNSUPPORTED, "{name}={value}");
        }
        for (name, value) in [("DST", "meter"), ("HEARTBEAT", "x"), ("DS_MIN", "low"), ("DS_MAX", "inf")] {
            assert_eq!(check(name, value), abi::RRD_INVALID, "{name}={value}");
        }
    }
}
