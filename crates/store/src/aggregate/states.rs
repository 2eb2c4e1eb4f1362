//! What one aggregate has come to in each group: a column of sums, counts or extremes.

use rrd_codec::Bitmap;

use super::kernels::{FloatSum, HUGE, extreme_f32, extreme_f64, range_of_ints, range_of_lines, sum_ints, sum_lines};
use super::query::{Aggregate, Value, Wide};
use super::ranges::next_in;
use super::strip::{Rows, Strip};
use crate::schema::{ColumnDef, Lane, Number, Schema};
use crate::segment::zone::{f32_of_order, f64_of_order, order_f32, order_f64};
use crate::segment::{Sum, ZoneMap};
use crate::tier::{COUNT_BIAS, number_of_bits, number_of_bytes};

/// Rows side by side that belong to one group.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    pub start: u32,
    pub end: u32,
    pub group: u32,
}

/// Whether sums of a column are sums of DECIMALs.
pub fn is_decimal(column: &ColumnDef) -> bool {
    matches!(column.number, Some(Number::Decimal { .. }))
}

/// An aggregate, group by group.
pub enum States {
    Count(Vec<u64>),
    CountOf(Vec<u64>),
    SumInt(Vec<(u128, u64)>),
    SumDecimal {
        sums: Vec<(Wide, u64)>,
        number: Number,
        width: u8,
    },
    SumFloat(Vec<FloatSum>),
    /// Of floats that are added one after the other, and of how many.
    SumInOrder(Vec<(f64, u64)>),
    /// Of numbers: the bits of the smallest or largest, if there is one.
    Extreme {
        best: Vec<Option<u64>>,
        largest: bool,
        lane: Lane,
    },
    ExtremeBytes {
        best: Vec<Option<Box<[u8]>>>,
        largest: bool,
    },
    First(Vec<Value>),
}

/// Columns of statistics of buckets, in the place of the rows that these are of.
pub enum Statistics<'a> {
    /// How many there are.
    Counts(Rows<'a>),
    /// Their sums, in a column of a tier; how many are not NULL; and the bias of the column that was summed.
    Sums { sums: Rows<'a>, of: &'a ColumnDef, counts: Rows<'a>, bias: u64 },
}

/// A count as a column of a tier holds it.
fn count_at(counts: &Rows<'_>, row: usize) -> u64 {
    counts.int(row) ^ COUNT_BIAS
}

impl States {
    /// Of no groups.
    pub fn new(aggregate: Aggregate, schema: &Schema) -> States {
        let extreme = |column: usize, largest| match schema.columns[column].lane {
            Lane::Bytes => States::ExtremeBytes { best: Vec::new(), largest },
            lane => States::Extreme { best: Vec::new(), largest, lane },
        };
        match aggregate {
            Aggregate::Count => States::Count(Vec::new()),
            Aggregate::CountOf(_) => States::CountOf(Vec::new()),
            Aggregate::Min(column) => extreme(column, false),
            Aggregate::Max(column) => extreme(column, true),
            Aggregate::First(_) => States::First(Vec::new()),
            Aggregate::Sum(column) => {
                let column = &schema.columns[column];
                match (column.number, column.lane) {
                    (Some(number @ Number::Decimal { .. }), lane) => {
                        let width = if let Lane::Int { width } = lane { width } else { 0 };
                        States::SumDecimal { sums: Vec::new(), number, width }
                    }
                    (_, Lane::F32 | Lane::F64) => States::SumFloat(Vec::new()),
                    _ => States::SumInt(Vec::new()),
                }
            }
        }
    }

    /// Adds floats of further rows one after the other, as they come.
    pub fn in_order(self) -> States {
        match self {
            States::SumFloat(_) => States::SumInOrder(Vec::new()),
            other => other,
        }
    }

    /// Adds a group of no rows.
    pub fn push(&mut self) {
        match self {
            States::Count(counts) | States::CountOf(counts) => counts.push(0),
            States::SumInt(sums) => sums.push((0, 0)),
            States::SumDecimal { sums, .. } => sums.push((Wide::default(), 0)),
            States::SumFloat(sums) => sums.push(FloatSum::default()),
            States::SumInOrder(sums) => sums.push((0.0, 0)),
            States::Extreme { best, .. } => best.push(None),
            States::ExtremeBytes { best, .. } => best.push(None),
            States::First(values) => values.push(Value::Null),
        }
    }

    /// Of a `First`: what group `i` has.
    pub fn first_of(&mut self, i: usize) -> Option<&mut Value> {
        match self {
            States::First(values) => values.get_mut(i),
            _ => None,
        }
    }

    /// Adds the runs of a block; `rows`: the column, if the aggregate has one.
    pub fn add(&mut self, runs: &[Run], rows: Option<&Rows<'_>>) {
        if let States::Count(counts) = self {
            return runs.iter().for_each(|run| counts[run.group as usize] += u64::from(run.end - run.start));
        }
        let Some(rows) = rows else { return };
        match rows.nulls {
            None => self.add_values(runs.iter().copied(), rows),
            Some(nulls) => self.add_values(without_nulls(runs, nulls).into_iter(), rows),
        }
    }

    /// Adds runs without NULLs.
    fn add_values(&mut self, runs: impl Iterator<Item = Run>, rows: &Rows<'_>) {
        let span = |run: &Run| run.start as usize..run.end as usize;
        match (self, rows.strip) {
            (States::CountOf(counts), _) => {
                runs.for_each(|run| counts[run.group as usize] += u64::from(run.end - run.start));
            }
            (States::SumInt(sums), strip) => runs.for_each(|run| {
                let sum = &mut sums[run.group as usize];
                sum.0 += match strip {
                    Strip::Int(v) => sum_ints(&v[span(&run)]),
                    Strip::Lines(lines) => sum_lines(lines, run.start as usize, run.end as usize),
                    _ => 0,
                };
                sum.1 += u64::from(run.end - run.start);
            }),
            (States::SumFloat(sums), Strip::F64(v)) => {
                runs.for_each(|run| sums[run.group as usize].extend(&v[span(&run)], f64::from_bits));
            }
            (States::SumFloat(sums), Strip::F32(v)) => {
                runs.for_each(|run| sums[run.group as usize].extend(&v[span(&run)], |v| f64::from(f32::from_bits(v))));
            }
            (States::SumInOrder(sums), strip) => runs.for_each(|run| {
                let sum = &mut sums[run.group as usize];
                for row in span(&run) {
                    sum.0 += match strip {
                        Strip::F64(v) => f64::from_bits(v[row]),
                        Strip::F32(v) => f64::from(f32::from_bits(v[row])),
                        _ => 0.0,
                    };
                }
                sum.1 += u64::from(run.end - run.start);
            }),
            (States::SumDecimal { sums, number, width }, strip) => runs.for_each(|run| {
                let sum = &mut sums[run.group as usize];
                for row in span(&run) {
                    sum.0.add(&match strip {
                        Strip::Int(v) => number_of_bits(v[row], *width, *number),
                        Strip::Lines(lines) => number_of_bits(lines.get(row), *width, *number),
                        Strip::Bytes(v) => number_of_bytes(v.get(row), *number),
                        _ => Wide::default(),
                    });
                }
                sum.1 += u64::from(run.end - run.start);
            }),
            (States::Extreme { best, largest, lane }, strip) => {
                let (largest, lane) = (*largest, *lane);
                let mut note = |group: u32, bits: u64| improve(&mut best[group as usize], bits, largest, lane);
                let pick = |(min, max): (u64, u64)| if largest { max } else { min };
                match strip {
                    Strip::Int(v) => runs.for_each(|run| note(run.group, pick(range_of_ints(&v[span(&run)])))),
                    Strip::Lines(lines) => runs.for_each(|run| {
                        note(run.group, pick(range_of_lines(lines, run.start as usize, run.end as usize)));
                    }),
                    Strip::F64(v) => {
                        let is_plain = rows.is_plain;
                        runs.for_each(|run| note(run.group, extreme_f64(&v[span(&run)], largest, is_plain)));
                    }
                    Strip::F32(v) => {
                        runs.for_each(|run| note(run.group, extreme_f32(&v[span(&run)], largest).into()));
                    }
                    Strip::Bytes(_) => {}
                }
            }
            (States::ExtremeBytes { best, largest }, Strip::Bytes(v)) => runs.for_each(|run| {
                let best = &mut best[run.group as usize];
                span(&run).for_each(|row| improve_bytes(best, v.get(row), *largest));
            }),
            _ => {}
        }
    }

    /// Adds runs of buckets.
    pub fn add_statistics(&mut self, runs: &[Run], of: &Statistics<'_>) {
        let rows = |run: &Run| run.start as usize..run.end as usize;
        match (self, of) {
            (States::Count(all) | States::CountOf(all), Statistics::Counts(counts)) => {
                runs.iter().for_each(|run| {
                    all[run.group as usize] += rows(run).map(|row| count_at(counts, row)).sum::<u64>();
                });
            }
            (States::SumInt(all), Statistics::Sums { sums, of, counts, bias }) => runs.iter().for_each(|run| {
                let all = &mut all[run.group as usize];
                for row in rows(run).filter(|&row| !sums.is_null(row)) {
                    let count = count_at(counts, row);
                    // Lane values have the bias in them, which makes them positive.
                    all.0 += (sums.number(row, of).low() + i128::from(*bias) * i128::from(count)) as u128;
                    all.1 += count;
                }
            }),
            (States::SumDecimal { sums: all, .. }, Statistics::Sums { sums, of, counts, .. }) => {
                runs.iter().for_each(|run| {
                    let all = &mut all[run.group as usize];
                    for row in rows(run).filter(|&row| !sums.is_null(row)) {
                        all.0.add(&sums.number(row, of));
                        all.1 += count_at(counts, row);
                    }
                });
            }
            _ => debug_assert!(false, "statistics of another aggregate"),
        }
    }

    /// Whether a zone map answers for the rows of its block.
    pub fn is_in(&self, zone: Option<&ZoneMap>) -> bool {
        let Some(zone) = zone else { return matches!(self, States::Count(_)) };
        match self {
            States::Count(_) | States::CountOf(_) => true,
            States::SumInt(_) => matches!(zone.sum, Sum::Int(_)),
            States::SumFloat(_) => matches!(zone.sum, Sum::Float { .. }) && !may_be_huge(zone),
            States::Extreme { .. } => zone.exact,
            States::SumInOrder(_) | States::SumDecimal { .. } | States::ExtremeBytes { .. } | States::First(_) => {
                zone.nulls == zone.rows
            }
        }
    }

    /// Adds a block by its zone map; `rows` of them. `is_in` said that it can.
    pub fn add_zone(&mut self, group: u32, rows: u64, zone: Option<&ZoneMap>) {
        let group = group as usize;
        if let States::Count(counts) = self {
            counts[group] += rows;
        }
        let Some(zone) = zone else { return };
        let present = u64::from(zone.rows - zone.nulls);
        match (self, zone.sum) {
            (States::CountOf(counts), _) => counts[group] += present,
            (States::SumInt(sums), Sum::Int(sum)) => {
                sums[group].0 += sum;
                sums[group].1 += present;
            }
            (States::SumFloat(sums), Sum::Float { hi, lo }) => sums[group].join(&FloatSum { hi, lo, count: present }),
            (States::Extreme { best, largest, lane }, _) => {
                if let Some((min, max)) = zone.range {
                    let order = if *largest { max } else { min };
                    let bits = match lane {
                        Lane::F32 => f32_of_order(order).to_bits().into(),
                        Lane::F64 => f64_of_order(order).to_bits(),
                        _ => order,
                    };
                    improve(&mut best[group], bits, *largest, *lane);
                }
            }
            _ => {}
        }
    }

    /// Adds group `j` of another part to group `i`; `is_first`: its first row comes first.
    pub fn join(&mut self, i: usize, other: &mut States, j: usize, is_first: bool) {
        match (self, other) {
            (States::Count(a), States::Count(b)) | (States::CountOf(a), States::CountOf(b)) => a[i] += b[j],
            (States::SumInt(a), States::SumInt(b)) => {
                a[i].0 += b[j].0;
                a[i].1 += b[j].1;
            }
            (States::SumDecimal { sums: a, .. }, States::SumDecimal { sums: b, .. }) => {
                a[i].0.add(&b[j].0);
                a[i].1 += b[j].1;
            }
            (States::SumFloat(a), States::SumFloat(b)) => a[i].join(&b[j]),
            (States::Extreme { best: a, largest, lane }, States::Extreme { best: b, .. }) => {
                if let Some(bits) = b[j] {
                    improve(&mut a[i], bits, *largest, *lane);
                }
            }
            (States::ExtremeBytes { best: a, largest }, States::ExtremeBytes { best: b, .. }) => {
                if let Some(bytes) = &b[j] {
                    improve_bytes(&mut a[i], bytes, *largest);
                }
            }
            (States::First(a), States::First(b)) if is_first => a[i] = std::mem::replace(&mut b[j], Value::Null),
            _ => {}
        }
    }

    /// Group `i` as the answer has it.
    pub fn take(&mut self, i: usize) -> Value {
        match self {
            States::Count(counts) | States::CountOf(counts) => Value::Count(counts[i]),
            States::SumInt(sums) if sums[i].1 > 0 => Value::SumInt { sum: sums[i].0, count: sums[i].1 },
            States::SumDecimal { sums, .. } if sums[i].1 > 0 => Value::SumDecimal { sum: sums[i].0, count: sums[i].1 },
            States::SumFloat(sums) if sums[i].count > 0 => {
                let (hi, lo) = sums[i].finish();
                Value::SumFloat { hi, lo, count: sums[i].count }
            }
            States::SumInOrder(sums) if sums[i].1 > 0 => Value::SumFloat { hi: sums[i].0, lo: 0.0, count: sums[i].1 },
            States::SumInt(_) | States::SumDecimal { .. } | States::SumFloat(_) | States::SumInOrder(_) => Value::Null,
            States::Extreme { best, lane, .. } => match (best[i], lane) {
                (None, _) => Value::Null,
                (Some(bits), Lane::F32) => Value::F32(bits as u32),
                (Some(bits), Lane::F64) => Value::F64(bits),
                (Some(bits), _) => Value::Int(bits),
            },
            States::ExtremeBytes { best, .. } => best[i].take().map_or(Value::Null, |b| Value::Bytes(b.into_vec())),
            States::First(values) => std::mem::replace(&mut values[i], Value::Null),
        }
    }
}

/// Whether one of a block's doubles may be [`HUGE`]. No single is: their orders have 32 bits, which are NaN as doubles' orders.
fn may_be_huge(zone: &ZoneMap) -> bool {
    let is_huge = |order: u64| f64_of_order(order).abs() >= HUGE;
    zone.range.is_some_and(|(min, max)| is_huge(min) || is_huge(max))
}

/// The parts of runs that are not NULL.
fn without_nulls(runs: &[Run], nulls: &Bitmap) -> Vec<Run> {
    let mut kept = Vec::with_capacity(runs.len());
    for run in runs {
        let end = run.end as usize;
        let mut start = next_in(nulls, run.start as usize, end, false);
        while start < end {
            let behind = next_in(nulls, start, end, true);
            kept.push(Run { start: start as u32, end: behind as u32, group: run.group });
            start = next_in(nulls, behind, end, false);
        }
    }
    kept
}

/// Takes `bits` if they are better; of equal ones the first stays.
#[inline]
fn improve(best: &mut Option<u64>, bits: u64, largest: bool, lane: Lane) {
    let order = |bits: u64| match lane {
        Lane::F32 => order_f32(bits as u32),
        Lane::F64 => order_f64(bits),
        _ => bits,
    };
    let is_better = best.is_none_or(|best| match largest {
        true => order(bits) > order(best),
        false => order(bits) < order(best),
    });
    if is_better {
        *best = Some(bits);
    }
}

fn improve_bytes(best: &mut Option<Box<[u8]>>, bytes: &[u8], largest: bool) {
    let is_better = best.as_deref().is_none_or(|best| if largest { bytes > best } else { bytes < best });
    if is_better {
        *best = Some(bytes.into());
    }
}
