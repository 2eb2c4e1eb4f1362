//! Readings to primary data points: the average rate over each step, or unknown.
//!
//! The state is what RRDtool keeps of a data source: the last reading, what was counted since the open step began, and
//! how many seconds of it are unknown. It counts unknown time in whole seconds, and so does this file: with times
//! between two seconds a point can come out a little too high or too low, but as RRDtool's does.

use std::fmt;

use crate::{Source, US, Value, known, seconds_between};

/// Times must be nearer to 1970 than this: some 73,000 years.
pub const MAX_TIME_US: i64 = i64::MAX / 4;

/// Equal primary data points, side by side: what one reading closed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Run {
    /// When the first of them begins.
    pub start_us: i64,
    /// How many there are, one behind the other.
    pub steps: u64,
    /// The rate over each of them; `None` is unknown.
    pub rate: Option<f64>,
}

/// A reading that cannot be taken. The state is as it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rejected {
    /// It is not later than the one before.
    NotLater {
        /// The time of the one before.
        last_us: i64,
        /// Its own time.
        time_us: i64,
    },
    /// Its time is further from 1970 than [`MAX_TIME_US`].
    OutOfRange {
        /// Its time.
        time_us: i64,
    },
}

impl fmt::Display for Rejected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Rejected::NotLater { last_us, time_us } => write!(
                f,
                "a reading at {time_us} us follows one at {last_us} us: readings must come in the order of time, \
                 each time once"
            ),
            Rejected::OutOfRange { time_us } => {
                write!(f, "a reading's time, {time_us} us, is further from 1970 than {MAX_TIME_US} us")
            }
        }
    }
}

impl std::error::Error for Rejected {}

/// Turns the readings of one series into primary data points.
///
/// Time before the first reading is unknown. `rrdtool create --start` at less than a heartbeat before the first update
/// is a first reading of NULL at that time: a GAUGE or ABSOLUTE then counts from there.
#[derive(Debug, Clone)]
pub struct Primary {
    source: Source,
    last: Option<(i64, Option<Value>)>,
    /// What was counted since the open step began; NaN if nothing is known of it.
    amount: f64,
    /// Whole seconds of the open step that are unknown.
    unknown_s: i64,
}

/// A piece of time that closes steps: it ends `post` seconds behind the last of them.
struct Piece {
    amount: f64,
    interval: f64,
    pre: f64,
    post: f64,
    steps: i64,
}

impl Primary {
    /// Nothing read yet.
    pub fn new(source: Source) -> Primary {
        Primary { source, last: None, amount: f64::NAN, unknown_s: 0 }
    }

    /// Takes the next reading and returns the points that it closes, at most two runs, in the order of time.
    pub fn push(&mut self, time_us: i64, value: Option<Value>) -> Result<impl Iterator<Item = Run> + use<>, Rejected> {
        if time_us.saturating_abs() > MAX_TIME_US {
            return Err(Rejected::OutOfRange { time_us });
        }
        if let Some((last_us, _)) = self.last.filter(|last| last.0 >= time_us) {
            return Err(Rejected::NotLater { last_us, time_us });
        }
        let now = (time_us, value);
        let runs = match self.last.replace(now) {
            Some(last) => self.advance(last, now),
            None => {
                self.unknown_s = (time_us - self.step_start(time_us)) / US;
                [None, None]
            }
        };
        Ok(runs.into_iter().flatten())
    }

    /// Says that no reading comes up to the heartbeat after the last one, or that none has come yet: closes the points
    /// that end at `until_us` or before, with nothing known after the last reading.
    pub fn finish(mut self, until_us: i64) -> impl Iterator<Item = Run> + use<> {
        let (step_us, until_us) = (self.source.step_us(), self.step_start(until_us.clamp(-MAX_TIME_US, MAX_TIME_US)));
        let runs = match self.last {
            Some(last) if until_us > self.step_start(last.0) => {
                // What comes later than this changes nothing any more; see Source::window.
                let quiet_us = last.0 + self.source.heartbeat_us() + 2 * step_us;
                self.advance(last, (quiet_us.max(until_us), None))
            }
            _ => [None, None],
        };
        runs.into_iter().flatten().filter_map(move |run| {
            let steps = run.steps.min(u64::try_from((until_us - run.start_us) / step_us).unwrap_or(0));
            (steps > 0).then_some(Run { steps, ..run })
        })
    }

    fn step_start(&self, time_us: i64) -> i64 {
        time_us - time_us.rem_euclid(self.source.step_us())
    }

    /// Goes on from one reading to the next.
    fn advance(&mut self, last: (i64, Option<Value>), now: (i64, Option<Value>)) -> [Option<Run>; 2] {
        let amount = self.source.amount(last, now);
        let mut start_us = self.step_start(last.0);
        let end_us = self.step_start(now.0);
        if start_us == end_us {
            self.stay(amount, now.0 - last.0);
            return [None, None];
        }
        let mut rest = Piece {
            amount,
            interval: seconds_between(last.0, now.0),
            pre: seconds_between(last.0, end_us),
            post: seconds_between(end_us, now.0),
            steps: (end_us - start_us) / self.source.step_us(),
        };
        let first = self.split(&mut rest, end_us - last.0).map(|rate| {
            let run = Run { start_us, steps: 1, rate };
            start_us += self.source.step_us();
            run
        });
        let steps = u64::try_from(rest.steps).unwrap_or(0);
        [first, Some(Run { start_us, steps, rate: known(self.close(rest)) })]
    }

    /// The open step takes the whole interval.
    fn stay(&mut self, amount: f64, interval_us: i64) {
        if amount.is_nan() {
            self.unknown_s += interval_us / US;
        } else if self.amount.is_nan() {
            self.amount = amount;
        } else {
            self.amount += amount;
        }
    }

    /// Of an interval that closes several steps, the one that was open gets its own part and is closed. It gets whole
    /// seconds only: what is left of a second goes to the steps behind it, and if it is all that was left of the step,
    /// the step is not split off but shares the rate of those behind it.
    fn split(&mut self, rest: &mut Piece, pre_us: i64) -> Option<Option<f64>> {
        let open_s = pre_us / US % i64::from(self.source.step_s.get());
        if rest.steps == 1 || open_s == 0 {
            return None;
        }
        let open_s = open_s as f64;
        let amount = rest.amount * open_s / rest.interval;
        rest.amount -= amount;
        rest.interval -= open_s;
        rest.pre -= open_s;
        rest.steps -= 1;
        Some(known(self.close(Piece { amount, interval: open_s, pre: open_s, post: 0.0, steps: 1 })))
    }

    /// The rate over the steps that end within a piece, and the open step after it.
    ///
    /// Unknown seconds before the piece make the point unknown when they are more than half a step; those of the piece
    /// itself only shorten the time by which the amount is divided.
    fn close(&mut self, piece: Piece) -> f64 {
        let step_s = i64::from(self.source.step_s.get());
        let part = piece.amount / piece.interval;
        let mut unknown_in_piece = 0.0;
        if piece.amount.is_nan() {
            unknown_in_piece = piece.pre;
        } else {
            let before = if self.amount.is_nan() { 0.0 } else { self.amount };
            self.amount = before + part * piece.pre;
        }
        let late = piece.interval > f64::from(self.source.heartbeat_s.get());
        let rate = if late || self.unknown_s as f64 > step_s as f64 / 2.0 {
            f64::NAN
        } else {
            self.amount / ((piece.steps * step_s - self.unknown_s) as f64 - unknown_in_piece)
        };
        self.unknown_s = if piece.amount.is_nan() { piece.post as i64 } else { 0 };
        self.amount = part * piece.post;
        rate
    }
}

#[cfg(test)]
#[path = "primary_tests.rs"]
mod tests;
