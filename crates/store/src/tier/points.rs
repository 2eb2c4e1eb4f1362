//! Columns with data-source options: readings to primary data points, and those to buckets, as `rrd-consolidate` has it.
//!
//! A reading says what happened since the one before, so a bucket depends on readings on both sides of it, and a row that comes
//! or goes changes buckets up to a heartbeat away. What a bucket holds of its known points is kept in hidden columns, too,
//! before `XFF` blanks it: coarser tiers are made of that.

use std::num::NonZeroU32;

use rrd_codec::{Column, Values};
use rrd_consolidate::{Clock, Dst, Primary, Run, Source, Value};

use crate::cursor::{Cursor, Direction};
use crate::error::Result;
use crate::limits;
use crate::schema::{DataSource, Lane, Number, Schema, SourceType, TimeUnit};
use crate::time::TimeLane;

use super::bucket::{Buckets, Interval};
use super::number::{number_of_bits, number_of_bytes};
use super::refresh::bounds_of;

/// The share of a bucket that may be unknown, unless `XFF` says another: rrdcreate(1)'s usual one.
const XFF: f64 = 0.5;

/// How the columns of a table with data-source options become points.
#[derive(Clone, Debug)]
pub(crate) struct Points {
    columns: Vec<PointColumn>,
    lane: TimeLane,
    /// How far before a bucket readings count, and how far behind.
    before_us: i64,
    after_us: i64,
    step_us: i64,
    xff: f64,
}

#[derive(Clone, Copy, Debug)]
struct PointColumn {
    position: usize,
    lane: Lane,
    number: Option<Number>,
    source: Source,
}

/// What is known of the points in a bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Known {
    /// How many there are.
    pub count: u64,
    /// Their sum.
    pub total: f64,
    pub min: f64,
    pub max: f64,
    pub first: f64,
    /// The newest one, and when it ends.
    pub last: f64,
    pub last_end_us: i64,
}

impl Known {
    /// Adds `count` equal points that end at `end_us`.
    fn add(&mut self, rate: f64, count: i64, end_us: i64) {
        let count = count.unsigned_abs();
        self.join(&Known {
            count,
            total: rate * count as f64,
            min: rate,
            max: rate,
            first: rate,
            last: rate,
            last_end_us: end_us,
        });
    }

    /// Adds later points.
    pub fn join(&mut self, later: &Known) {
        if self.count == 0 || later.count == 0 {
            if later.count > 0 {
                *self = *later;
            }
            return;
        }
        self.count += later.count;
        self.total += later.total;
        self.min = self.min.min(later.min);
        self.max = self.max.max(later.max);
        (self.last, self.last_end_us) = (later.last, later.last_end_us);
    }
}

fn seconds(micros: u64) -> Option<NonZeroU32> {
    NonZeroU32::new(u32::try_from(micros / 1_000_000).unwrap_or(u32::MAX))
}

fn source_of(source: &DataSource, step_s: NonZeroU32) -> Source {
    let dst = match source.kind {
        SourceType::Gauge => Dst::Gauge,
        SourceType::Counter => Dst::Counter,
        SourceType::Derive => Dst::Derive,
        SourceType::Absolute => Dst::Absolute,
        SourceType::Dcounter => Dst::Dcounter,
        SourceType::Dderive => Dst::Dderive,
    };
    let heartbeat_s = seconds(source.heartbeat).unwrap_or(step_s);
    Source { dst, step_s, heartbeat_s, min: source.min, max: source.max }
}

impl Points {
    /// Of the value columns of a table; `None` if none has data-source options.
    pub fn of(base: &Schema) -> Option<Points> {
        let step_s = seconds(base.step?)?;
        let lane = TimeLane::of(base)?;
        let clock = match base.time?.unit {
            TimeUnit::S | TimeUnit::Timestamp { fraction_digits: 0 } | TimeUnit::Datetime { fraction_digits: 0 } => {
                Clock::WholeSeconds
            }
            _ => Clock::SubSecond,
        };
        let columns: Vec<PointColumn> = super::value_columns(base)
            .into_iter()
            .filter_map(|position| {
                let column = &base.columns[position];
                let source = source_of(&column.source?, step_s);
                Some(PointColumn { position, lane: column.lane, number: column.number, source })
            })
            .collect();
        let windows = columns.iter().map(|c| c.source.window(&(0..0), clock));
        let (before_us, after_us) = windows.fold((0, 0), |(a, b), w| (a.max(-w.start), b.max(w.end)));
        let step_us = i64::from(step_s.get()) * 1_000_000;
        let xff = base.xff.unwrap_or(XFF);
        (!columns.is_empty()).then_some(Points { columns, lane, before_us, after_us, step_us, xff })
    }

    /// The times whose points may change when a row of a time comes or goes, as the lane holds them.
    pub fn affected(&self, time: u64) -> Interval {
        let at = self.lane.micros(time);
        let first = self.lane.at_or_after(at.saturating_sub(self.after_us + self.step_us));
        let last = self.lane.at_or_after(at.saturating_add(self.before_us + self.step_us));
        Interval { first: first.min(time), last: last.max(time) }
    }

    /// The time from which on readings are needed for what begins at `first`.
    pub fn needed_from(&self, first: u64) -> u64 {
        self.lane.at_or_after(self.lane.micros(first).saturating_sub(self.before_us)).min(first)
    }

    /// The least time for which none is needed before `first`.
    pub fn needs_from(&self, first: u64) -> u64 {
        self.lane.at_or_after(self.lane.micros(first).saturating_add(self.before_us)).max(first)
    }

    /// The times whose readings decide buckets side by side.
    fn window(&self, start_us: i64, end_us: i64) -> Interval {
        let first = self.lane.at_or_after(start_us.saturating_sub(self.before_us));
        Interval { first, last: self.lane.at_or_after(end_us.saturating_add(self.after_us)).max(first) }
    }

    /// What is known of the columns in buckets side by side of a series, for each bucket and column.
    pub fn compute(
        &self,
        rows: &mut Cursor,
        series: &[u8],
        buckets: &Buckets,
        intervals: &[Interval],
    ) -> Result<Vec<Vec<Known>>> {
        let spans: Vec<(i64, i64)> = intervals.iter().map(|i| buckets.micros(i.first)).collect();
        let mut known = vec![vec![Known::default(); self.columns.len()]; intervals.len()];
        let (Some(first), Some(last)) = (spans.first(), spans.last()) else { return Ok(known) };
        let window = self.window(first.0, last.1);
        let (low, high) = bounds_of(rows.layout(), series, window);
        rows.set_bounds(Some(&low), high.as_deref());
        rows.seek(None, true, Direction::Forward)?;
        let time_column = rows.layout().schema().time.map_or(0, |t| usize::from(t.column));
        let mut primaries: Vec<Primary> = self.columns.iter().map(|c| Primary::new(c.source)).collect();
        let mut spread = |column: usize, run: Run| {
            let Some(rate) = run.rate else { return };
            let end_us = run.start_us.saturating_add_unsigned(run.steps.saturating_mul(self.step_us.unsigned_abs()));
            let mut at = spans.partition_point(|(_, end)| *end <= run.start_us);
            while let Some(&(start, end)) = spans.get(at).filter(|(start, _)| *start < end_us) {
                let (from, to) = (run.start_us.max(start), end_us.min(end));
                known[at][column].add(rate, (to - from) / self.step_us, to);
                at += 1;
            }
        };
        let mut last_us = i64::MIN;
        'rows: while let Some(span) = rows.next_span(limits::GROUP_ROWS)? {
            let Values::Int(times) = &span.group.column(time_column)?.values else { break };
            let columns = self.columns.iter().map(|c| span.group.column(c.position)).collect::<Result<Vec<_>>>()?;
            for n in 0..span.rows {
                let row = span.row(n);
                let time_us = self.lane.micros(times[row]);
                // Of several readings at one time (other parts of the key differ) the first counts.
                if time_us == last_us || !window.contains(times[row]) {
                    continue;
                }
                last_us = time_us;
                for (at, column) in self.columns.iter().enumerate() {
                    let Ok(runs) = primaries[at].push(time_us, column.value(columns[at], row)) else { continue };
                    runs.for_each(|run| spread(at, run));
                }
                if time_us >= last.1 {
                    break 'rows;
                }
            }
        }
        for (at, primary) in primaries.into_iter().enumerate() {
            primary.finish(last.1).for_each(|run| spread(at, run));
        }
        Ok(known)
    }

    /// The place of a column among those with data-source options.
    pub fn place_of(&self, position: usize) -> Option<usize> {
        self.columns.iter().position(|c| c.position == position)
    }

    /// Whether enough of a bucket is known.
    pub fn is_fit(&self, known: u64, bucket_us: (i64, i64)) -> bool {
        let steps = (bucket_us.1.saturating_sub(bucket_us.0) / self.step_us).unsigned_abs();
        steps.saturating_sub(known) as f64 <= steps as f64 * self.xff
    }

    /// Seconds of a step.
    pub fn step_seconds(&self) -> f64 {
        self.step_us as f64 / 1e6
    }
}

impl PointColumn {
    fn value(&self, column: &Column, row: usize) -> Option<Value> {
        if column.is_null(row) {
            return None;
        }
        let scaled = |number: super::number::Wide, scale: u8| Value::Double(number.to_f64() / 10f64.powi(scale.into()));
        Some(match (&column.values, self.number) {
            (Values::Int(v), Some(Number::Integer { bias: 0 })) => Value::Unsigned(v[row]),
            (Values::Int(v), Some(Number::Integer { bias })) => {
                let shift = 64 - 8 * self.lane.fixed_width() as u32;
                Value::Signed((((v[row] ^ bias) << shift) as i64) >> shift)
            }
            (Values::Int(v), Some(number @ Number::Decimal { scale, .. })) => {
                scaled(number_of_bits(v[row], self.lane.fixed_width() as u8, number), scale)
            }
            (Values::Bytes(v), Some(number @ Number::Decimal { scale, .. })) => {
                scaled(number_of_bytes(v.get(row), number), scale)
            }
            (Values::F64(v), _) => Value::Double(f64::from_bits(v[row])),
            (Values::F32(v), _) => Value::Double(f32::from_bits(v[row]).into()),
            _ => return None,
        })
    }
}
