//! The real rrdtool: create, update and dump a file; and how it reads numbers.

use std::error::Error;
use std::path::Path;
use std::process::Command;

use crate::streams::{Case, type_name};

/// The rows of each RRA, in the order of creation: when the row ends, and a value of each data source.
pub struct Dump {
    pub archives: Vec<Vec<(i64, Vec<f64>)>>,
}

/// Writes the case to a new file and reads back what rrdtool made of it.
pub fn run(case: &Case, path: &Path) -> Result<Dump, Box<dyn Error>> {
    let file = path.to_str().ok_or("the folder's name is not UTF-8")?;
    let step_s = case.sources.first().ok_or("no data source")?.step_s;
    let mut create: Vec<String> = ["create", file, "--start"].map(String::from).to_vec();
    create.extend([case.start_s.to_string(), "--step".into(), step_s.to_string()]);
    for (n, source) in case.sources.iter().enumerate() {
        let bound = |bound: Option<f64>| bound.map_or("U".into(), |value| value.to_string());
        let (dst, heartbeat_s) = (type_name(source.dst), source.heartbeat_s);
        create.push(format!("DS:d{n}:{dst}:{heartbeat_s}:{}:{}", bound(source.min), bound(source.max)));
    }
    for archive in &case.archives {
        let function = format!("{:?}", archive.function).to_uppercase();
        let rows = case.rows / i64::from(archive.steps.get()) + 2;
        create.push(format!("RRA:{function}:{}:{}:{rows}", archive.xff, archive.steps));
    }
    rrdtool(&create)?;
    let mut update = vec!["update".to_string(), file.to_string()];
    for reading in case.updates.iter().filter(|update| !update.time.is_empty()) {
        let values: Vec<&str> = reading.values.iter().map(|value| value.text.as_str()).collect();
        update.push(format!("{}:{}", reading.time, values.join(":")));
    }
    rrdtool(&update)?;
    parse(&rrdtool(&["dump".to_string(), file.to_string()])?)
}

fn rrdtool(arguments: &[String]) -> Result<String, Box<dyn Error>> {
    let output = Command::new("rrdtool").args(arguments).output().map_err(|e| format!("cannot start rrdtool: {e}"))?;
    if !output.status.success() {
        let error = String::from_utf8_lossy(&output.stderr);
        return Err(format!("rrdtool {}: {error}", arguments.join(" ")).into());
    }
    Ok(String::from_utf8(output.stdout)?)
}

/// Rows look like `<!-- 2023-11-14 22:13:30 UTC / 1700000010 --> <row><v>2.0e+00</v><v>NaN</v></row>`.
fn parse(xml: &str) -> Result<Dump, Box<dyn Error>> {
    let mut archives = Vec::new();
    for archive in xml.split("<database>").skip(1) {
        let mut rows = Vec::new();
        for line in archive.lines().filter(|line| line.contains("<row>")) {
            let (time, values) = line.split_once(" --> <row>").ok_or("a row without its time")?;
            let end_s = time.rsplit(' ').next().ok_or("a row without its time")?.parse()?;
            let values = values.split("<v>").skip(1).filter_map(|value| value.split('<').next());
            rows.push((end_s, values.map(str::parse).collect::<Result<_, _>>()?));
        }
        archives.push(rows);
    }
    Ok(Dump { archives })
}

/// A double as rrdtool reads it: digit by digit, then scaled by powers of ten, not always the nearest double. What is
/// compared here is what it does with the values, not how it reads them.
pub fn value_as_read(text: &str) -> f64 {
    let (digits, exponent) = text.split_once('e').unwrap_or((text, "0"));
    let decimals = digits.split_once('.').map_or(0, |(_, decimals)| decimals.len() as i32);
    let read = digits.bytes().filter(u8::is_ascii_digit).fold(0.0, |n, digit| n * 10.0 + f64::from(digit - b'0'));
    let exponent = exponent.parse::<i32>().unwrap_or(0) - decimals;
    let mut number = if digits.starts_with('-') { -read } else { read };
    let (mut power, mut bits) = (10.0, exponent.unsigned_abs());
    while bits > 0 {
        if bits & 1 == 1 {
            number = if exponent < 0 { number / power } else { number * power };
        }
        bits >>= 1;
        power *= power;
    }
    number
}

/// The microsecond that rrdtool takes a time for: the fraction of the double, cut off.
pub fn time_as_read(text: &str) -> i64 {
    let time = value_as_read(text);
    let whole = time.floor();
    whole as i64 * 1_000_000 + ((time - whole) * 1e6) as i64
}
