//! Random files: data sources, archives, and readings that look for trouble.

use std::fmt;
use std::num::NonZeroU32;

use rrd_consolidate::{Bucket, Dst, Source, Value};

use crate::random::Random;
use crate::tool::{time_as_read, value_as_read};

/// A file and all that is written to it.
pub struct Case {
    pub times: Times,
    /// All with the same step.
    pub sources: Vec<Source>,
    pub archives: Vec<Archive>,
    pub start_s: i64,
    pub updates: Vec<Update>,
    pub rows: i64,
}

#[derive(Clone, Copy, PartialEq)]
pub enum Times {
    OnTheStep,
    WholeSeconds,
    SubSecond,
}

pub struct Archive {
    pub function: Function,
    pub steps: NonZeroU32,
    pub xff: f64,
}

#[derive(Debug, Clone, Copy)]
pub enum Function {
    Average,
    Min,
    Max,
    Last,
}

pub struct Update {
    /// As rrdtool takes it from the text.
    pub time_us: i64,
    pub time: String,
    pub values: Vec<Reading>,
}

/// A value as rrdtool is given it, and as this crate is.
pub struct Reading {
    pub text: String,
    pub value: Option<Value>,
}

impl fmt::Display for Times {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Times::OnTheStep => "on the step",
            Times::WholeSeconds => "whole seconds",
            Times::SubSecond => "parts of seconds",
        })
    }
}

impl Function {
    pub const ALL: [Function; 4] = [Function::Average, Function::Min, Function::Max, Function::Last];

    pub fn of(self, bucket: &Bucket) -> Option<f64> {
        match self {
            Function::Average => bucket.avg,
            Function::Min => bucket.min,
            Function::Max => bucket.max,
            Function::Last => bucket.last,
        }
    }
}

pub fn type_name(dst: Dst) -> &'static str {
    match dst {
        Dst::Gauge => "GAUGE",
        Dst::Counter => "COUNTER",
        Dst::Derive => "DERIVE",
        Dst::Absolute => "ABSOLUTE",
        Dst::Dcounter => "DCOUNTER",
        Dst::Dderive => "DDERIVE",
    }
}

const TYPES: [Dst; 6] = [Dst::Gauge, Dst::Counter, Dst::Derive, Dst::Absolute, Dst::Dcounter, Dst::Dderive];

fn positive(n: i64) -> NonZeroU32 {
    u32::try_from(n).ok().and_then(NonZeroU32::new).unwrap_or(NonZeroU32::MIN)
}

impl Case {
    pub fn random(random: &mut Random) -> Case {
        let times = random.pick(&[Times::OnTheStep, Times::WholeSeconds, Times::SubSecond, Times::SubSecond]);
        let step_s = random.pick(&[1, 2, 5, 7, 10, 60, 300, 300, 1800]);
        let sources: Vec<_> = (0..random.between(1, 6)).map(|_| random_source(random, step_s)).collect();
        let first_s = 1_000_000_000 + random.between(0, 900_000_000);
        let longest_s = sources.iter().map(|source| i64::from(source.heartbeat_s.get())).max().unwrap_or(0);
        // Seldom so near to the first reading that a GAUGE counts from the start on.
        let near = random.one_in(5);
        let start_s = if near { first_s - random.between(1, step_s) } else { first_s - longest_s - 3 * step_s };
        let mut updates = Vec::new();
        let mut state = vec![Counting::default(); sources.len()];
        let mut time_us = first_s * 1_000_000;
        for _ in 0..random.between(20, 250) {
            time_us += interval_us(random, times, step_s, longest_s);
            if times == Times::OnTheStep {
                time_us -= time_us % (step_s * 1_000_000);
            }
            let time = match times {
                Times::SubSecond => format!("{}.{:06}", time_us / 1_000_000, time_us % 1_000_000),
                _ => (time_us / 1_000_000).to_string(),
            };
            let read_us = time_as_read(&time);
            if updates.last().is_some_and(|last: &Update| last.time_us >= read_us) {
                continue;
            }
            let values = sources.iter().zip(&mut state).map(|(source, state)| state.next(random, source)).collect();
            updates.push(Update { time_us: read_us, time, values });
        }
        let rows = (time_us / 1_000_000 - start_s) / step_s + 3;
        let mut case = Case { times, sources, archives: archives(random), start_s, updates, rows };
        if near {
            case.start_with_null();
        }
        case
    }

    /// What `--start` means for this crate; rrdtool is not given this update.
    fn start_with_null(&mut self) {
        let values = self.sources.iter().map(|_| Reading { text: String::new(), value: None }).collect();
        self.updates.insert(0, Update { time_us: self.start_s * 1_000_000, time: String::new(), values });
    }
}

fn random_source(random: &mut Random, step_s: i64) -> Source {
    let heartbeat_s = match random.below(6) {
        0 => step_s,
        1 => step_s / 2,
        2 => step_s * 3 / 2,
        3 => step_s * random.between(3, 12),
        _ => step_s * 2,
    };
    let bound = |random: &mut Random, low, high| random.one_in(4).then(|| random.between(low, high) as f64 / 4.0);
    Source {
        min: bound(random, -400, 40),
        max: bound(random, 60, 40_000),
        ..Source::new(random.pick(&TYPES), positive(step_s), positive(heartbeat_s))
    }
}

/// Four lengths of buckets, one of them a single point, of all functions, with xff of their own: 24 RRAs.
fn archives(random: &mut Random) -> Vec<Archive> {
    let mut archives = Vec::new();
    for _ in 0..6 {
        let steps = positive(random.pick(&[1, 2, 3, 4, 6, 12, 48, 7]));
        let xff = random.pick(&[0.0, 0.25, 0.5, 0.99, 0.1, 1.0 / 3.0]);
        archives.extend(Function::ALL.map(|function| Archive { function, steps, xff }));
    }
    archives
}

/// Mostly about a step, sometimes within a second, exactly a step or the heartbeat, or far beyond it.
fn interval_us(random: &mut Random, times: Times, step_s: i64, longest_s: i64) -> i64 {
    const US: i64 = 1_000_000;
    let heartbeat_s = random.between(step_s / 2, longest_s + 1).max(1);
    match (times, random.below(12)) {
        (Times::OnTheStep, 0..9) => step_s * US,
        (Times::OnTheStep, _) => step_s * random.between(1, longest_s / step_s + 3) * US,
        (Times::WholeSeconds, 0..7) => random.between(1, step_s * 2) * US,
        (Times::WholeSeconds, 7 | 8) => random.between(1, 1 + step_s / 8) * US,
        (Times::WholeSeconds, 9) => step_s * US,
        (Times::WholeSeconds, 10) => heartbeat_s * US,
        (Times::WholeSeconds, _) => random.between(longest_s, longest_s * 2 + step_s) * US,
        (Times::SubSecond, 0..4) => random.between(1, step_s * 2 * US),
        (Times::SubSecond, 4) => random.between(1, US),
        (Times::SubSecond, 5) => random.between(1, step_s * 8) * US / 4,
        (Times::SubSecond, 6) => step_s * US,
        (Times::SubSecond, 7) => heartbeat_s * US + random.between(-1, 1),
        (Times::SubSecond, 8) => random.between(longest_s, longest_s * 2 + step_s) * US,
        // Just before the end of a step, where RRDtool does not split off the open step.
        (Times::SubSecond, _) => step_s * US - random.between(1, US),
    }
}

/// What a data source has counted so far.
#[derive(Clone, Default)]
struct Counting {
    count: u64,
    signed: i64,
    eighths: i64,
}

impl Counting {
    fn next(&mut self, random: &mut Random, source: &Source) -> Reading {
        let dst = source.dst;
        if random.one_in(20) {
            return Reading { text: "U".into(), value: None };
        }
        let text = match dst {
            Dst::Counter => self.counter(random).to_string(),
            Dst::Derive => self.derive(random).to_string(),
            Dst::Absolute => thousandths(random.between(0, 1_000_000)),
            // Just within the bounds.
            Dst::Gauge if random.one_in(15) => source.max.or(source.min).unwrap_or(0.0).to_string(),
            Dst::Gauge if random.one_in(20) => format!("{:e}", random.between(-9_999, 9_999) as f64 * 1e-5),
            Dst::Gauge => {
                let largest = random.pick(&[1_000, 100_000, 100_000_000]);
                thousandths(random.between(-largest / 4, largest))
            }
            Dst::Dcounter | Dst::Dderive => self.eighth(random, dst),
        };
        let value = match dst {
            Dst::Counter => text.parse().map(Value::Unsigned).ok(),
            Dst::Derive => text.parse().map(Value::Signed).ok(),
            _ => Some(Value::Double(value_as_read(&text))),
        };
        Reading { text, value }
    }

    fn counter(&mut self, random: &mut Random) -> u64 {
        let largest = random.pick(&[3, 1_000, 100_000, 1 << 31]);
        let step = random.below(largest);
        self.count = match random.below(30) {
            // Up to the edge of 32 or 64 bits, so that the next reading wraps.
            0 => u64::from(u32::MAX) - step.min(u64::from(u32::MAX)),
            1 => u64::MAX - step,
            2 => random.next(),
            // A reset.
            3 => step,
            // A wrap of a 32-bit counter.
            4 if self.count <= u64::from(u32::MAX) => (self.count + step) & u64::from(u32::MAX),
            _ => self.count.wrapping_add(step),
        };
        self.count
    }

    fn derive(&mut self, random: &mut Random) -> i64 {
        let step = random.pick(&[3, 1_000, 1 << 40]);
        self.signed = match random.below(30) {
            0 => i64::MAX - random.between(0, step),
            1 => i64::MIN + random.between(0, step),
            2 => -self.signed.saturating_abs(),
            3 => 0,
            _ => self.signed.saturating_add(random.between(-step / 4, step)),
        };
        self.signed
    }

    /// A number with a fraction that a double holds exactly, in every turn that DCOUNTER knows.
    fn eighth(&mut self, random: &mut Random, dst: Dst) -> String {
        let step = random.between(0, 8_000);
        let backwards = dst == Dst::Dderive && random.one_in(3) || self.eighths < 0;
        self.eighths = match random.below(20) {
            0 => 0,
            1 => -step,
            2 => step,
            _ => self.eighths + if backwards { -step } else { step },
        };
        format!("{}", self.eighths as f64 / 8.0)
    }
}

fn thousandths(n: i64) -> String {
    format!("{}{}.{:03}", if n < 0 { "-" } else { "" }, n.abs() / 1000, n.abs() % 1000)
}
