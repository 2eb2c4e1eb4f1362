//! Random readings through the real rrdtool and through this crate: every consolidated value must be the same.
//!
//! `rrdtool [streams] [seed] [folder]` makes files with one to six data sources of all types and 24 RRAs each (all four
//! consolidation functions, several lengths and xff), updates them, dumps them and compares each row. A stream is the
//! readings of one data source. Ends with "N passed, N failed": one test for each type and kind of times.
//! `tests/rrdtool/run` starts it.

mod random;
mod streams;
mod tool;

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;

use random::Random;
use rrd_consolidate::{Bucket, Buckets, Primary, Rollup, Source, Value};
use streams::{Archive, Case};
use tool::Dump;

/// `rrdtool dump` prints eleven digits.
const TOLERANCE: f64 = 1e-9;

/// What was found for one type and kind of times.
#[derive(Default)]
struct Tally {
    streams: u64,
    values: u64,
    known: u64,
    wrong: u64,
    worst: f64,
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, default: u64| arguments.get(at).map_or(Ok(default), |text| text.parse());
    let (wanted, seed) = (number(0, 600)?, number(1, 1)?);
    let folder = arguments.get(2).map_or_else(std::env::temp_dir, PathBuf::from);
    std::fs::create_dir_all(&folder)?;

    let mut tallies = BTreeMap::new();
    let (mut streams, mut file) = (0, 0);
    while streams < wanted {
        // Each file has a seed of its own, so that one alone can be looked at.
        let case = Case::random(&mut Random::new(seed.wrapping_mul(1_000_003).wrapping_add(file)));
        let dump = tool::run(&case, &folder.join("compare.rrd"))?;
        compare(&case, &dump, file, &mut tallies)?;
        streams += case.sources.len() as u64;
        file += 1;
    }
    Ok(report(&tallies, file, seed))
}

fn compare(case: &Case, dump: &Dump, file: u64, tallies: &mut BTreeMap<String, Tally>) -> Result<(), Box<dyn Error>> {
    for (ds, source) in case.sources.iter().enumerate() {
        let name = format!("{:8} {}", streams::type_name(source.dst), case.times);
        let tally = tallies.entry(name).or_default();
        tally.streams += 1;
        let readings: Vec<_> = case.updates.iter().map(|update| (update.time_us, update.values[ds].value)).collect();
        if dump.archives.len() != case.archives.len() {
            return Err("rrdtool dumped another number of RRAs".into());
        }
        let mut computed = HashMap::new();
        for (archive, rows) in case.archives.iter().zip(&dump.archives) {
            let key = (archive.steps, archive.xff.to_bits());
            let buckets = match computed.entry(key) {
                Entry::Occupied(entry) => entry.into_mut(),
                Entry::Vacant(entry) => entry.insert(by_start(source, archive, &readings)?),
            };
            let bucket_s = i64::from(archive.steps.get()) * i64::from(source.step_s.get());
            for (end_s, values) in rows {
                let start_us = (end_s - bucket_s) * 1_000_000;
                let ours = buckets.get(&start_us).and_then(|bucket| archive.function.of(bucket)).unwrap_or(f64::NAN);
                if let Some(difference) = tally.check(values[ds], ours) {
                    let what = format!("{:?} of {} points, xff {}", archive.function, archive.steps, archive.xff);
                    eprintln!("file {file} ds {ds} {source:?}: {what}, ending at {end_s}: {difference}");
                }
            }
        }
    }
    Ok(())
}

/// The buckets that the readings complete, as RRDtool writes a row when it is complete.
fn by_start(
    source: &Source,
    archive: &Archive,
    readings: &[(i64, Option<Value>)],
) -> Result<HashMap<i64, Bucket>, Box<dyn Error>> {
    let bucket_s = source.step_s.checked_mul(archive.steps).ok_or("the bucket is too long")?;
    let mut buckets = Buckets::new(Rollup::new(source, bucket_s, archive.xff)?);
    let mut primary = Primary::new(*source);
    let mut out = Vec::new();
    for &(time_us, value) in readings {
        primary.push(time_us, value)?.for_each(|run| buckets.push(run, &mut out));
    }
    Ok(out.into_iter().map(|bucket| (bucket.start_us, bucket)).collect())
}

impl Tally {
    /// Says what differs, for the first few values.
    fn check(&mut self, theirs: f64, ours: f64) -> Option<String> {
        self.values += 1;
        let difference = match (theirs.is_nan(), ours.is_nan()) {
            (true, true) => return None,
            (false, false) if theirs == ours => 0.0,
            (false, false) => (theirs - ours).abs() / theirs.abs().max(ours.abs()),
            _ => f64::INFINITY,
        };
        self.known += 1;
        self.worst = self.worst.max(difference);
        if difference <= TOLERANCE {
            return None;
        }
        self.wrong += 1;
        (self.wrong <= 5).then(|| format!("rrdtool {theirs:e}, here {ours:e}"))
    }
}

fn report(tallies: &BTreeMap<String, Tally>, files: u64, seed: u64) -> ExitCode {
    let mut all = Tally::default();
    let mut failed = 0;
    for (name, tally) in tallies {
        println!(
            "{name}: {} streams, {} values, {} of them known, {} wrong, worst relative difference {:.1e}",
            tally.streams, tally.values, tally.known, tally.wrong, tally.worst
        );
        failed += u64::from(tally.wrong > 0);
        all.streams += tally.streams;
        all.values += tally.values;
        all.known += tally.known;
        all.wrong += tally.wrong;
        all.worst = all.worst.max(tally.worst);
    }
    println!(
        "seed {seed}: {} streams in {files} files, {} values compared, {} of them known, {} wrong, worst {:.1e}",
        all.streams, all.values, all.known, all.wrong, all.worst
    );
    println!("{} passed, {failed} failed", tallies.len() as u64 - failed);
    if failed == 0 && all.known > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
