//! Rows, or buckets of a finer tier, to one bucket: counts, exact sums, smallest, largest, first and last values.
//!
//! Values are added in the order of time. NULLs do not count, as in SQL's aggregates. Sums of integers and DECIMALs are exact;
//! averages of them are rounded once, halves away from zero, as the server rounds what it stores.

use std::cmp::Ordering;
use std::sync::Arc;

use rrd_codec::{Column, Values};

use crate::error::{Error, Result};
use crate::group::RowGroup;
use crate::row::{RowLayout, RowWriter};
use crate::schema::{Lane, Number, Schema};

use super::bucket::Buckets;
use super::number::{Cell, FloatSum, Wide, decimal_cell, number_of_bits, number_of_bytes};
use super::points::{Known, Points};
use super::schema::{Statistic, Unmasked, key_id, position_of_statistic, statistic_id, unmasked_id};

/// Lane value of 0 in a `_count` column.
pub(crate) const COUNT_BIAS: u64 = 1 << 63;

/// Makes buckets of a tier from rows of its table or of a finer tier.
pub struct Aggregator {
    layout: Arc<RowLayout>,
    /// How each column of the tier is filled.
    plan: Vec<Fill>,
    columns: Vec<Aggregated>,
    rows: u64,
    points: Option<Points>,
    buckets: Buckets,
    /// Of the finer tier that buckets are made of.
    finer: Option<Buckets>,
}

#[derive(Clone)]
enum Fill {
    /// With the value that the bucket's first row has in a column.
    Key { from: usize, value: Cell },
    /// With the bucket's start.
    Start,
    /// With a statistic of an aggregated column.
    Statistic { of: usize, statistic: Statistic, number: Option<Number> },
    /// With what is known of its points.
    Unmasked { of: usize, which: Unmasked },
    /// With NULL, or zero: a column that the source does not know.
    Nothing,
}

/// One column and what is known of it.
struct Aggregated {
    from: From,
    /// How its values compare, and what kind of number they are.
    lane: Lane,
    number: Option<Number>,
    state: State,
    known: Known,
}

/// Where the values come from.
enum From {
    /// A column of rows.
    Rows(usize),
    /// Columns of a finer tier: sum (and its number), count, smallest, largest, first, last.
    /// Nowhere: points are handed in.
    Points(usize),
    /// Columns of a finer tier: count, then what is unmasked.
    KnownOf {
        count: usize,
        unmasked: [usize; 5],
    },
    Tier {
        sum: usize,
        sum_number: Option<Number>,
        count: usize,
        extremes: [usize; 4],
    },
}

#[derive(Default)]
struct State {
    count: u64,
    exact: Wide,
    float: FloatSum,
    min: Cell,
    max: Cell,
    first: Cell,
    last: Cell,
}

impl Aggregator {
    /// For a tier with this layout, of a table with schema `base`, from rows of `source`: those of the table, or of a
    /// finer tier.
    pub(crate) fn new(
        layout: Arc<RowLayout>,
        base: &Schema,
        source: &Schema,
        (buckets, finer): (Buckets, Option<Buckets>),
    ) -> Aggregator {
        let points = Points::of(base);
        let mut columns: Vec<(u32, Aggregated)> = Vec::new();
        let is_tier = source.tier_of.is_some();
        let place = |id: u32| source.columns.iter().position(|c| c.id == id);
        let time = layout.schema().time.map(|t| usize::from(t.column));
        for c in super::value_columns(base) {
            let column = &base.columns[c];
            let point = points.as_ref().and_then(|points| points.place_of(c));
            let from = match (is_tier, point) {
                (true, Some(_)) => known_columns(source, column.id),
                (true, None) => tier_columns(source, column.id),
                (false, Some(at)) => Some(From::Points(at)),
                (false, None) => place(column.id).map(From::Rows),
            };
            let Some(from) = from else { continue };
            columns.push((
                column.id,
                Aggregated {
                    from,
                    lane: column.lane,
                    number: column.number,
                    state: State::default(),
                    known: Known::default(),
                },
            ));
        }
        let fill = |(position, column): (usize, &crate::schema::ColumnDef)| {
            if Some(position) == time {
                return Fill::Start;
            }
            for (of, (id, _)) in columns.iter().enumerate() {
                let statistic = Statistic::ALL.into_iter().find(|&s| statistic_id(*id, s) == column.id);
                if let Some(statistic) = statistic {
                    return Fill::Statistic { of, statistic, number: column.number };
                }
                let which = Unmasked::ALL.into_iter().find(|&u| unmasked_id(*id, u) == column.id);
                if let Some(which) = which {
                    return Fill::Unmasked { of, which };
                }
            }
            let from = source.columns.iter().position(|c| if is_tier { c.id } else { key_id(c.id) } == column.id);
            from.map_or(Fill::Nothing, |from| Fill::Key { from, value: Cell::Null })
        };
        let plan = layout.schema().columns.iter().enumerate().map(fill).collect();
        Aggregator {
            layout,
            plan,
            columns: columns.into_iter().map(|(_, c)| c).collect(),
            rows: 0,
            points,
            buckets,
            finer,
        }
    }

    /// Data-source columns, of rows.
    pub(crate) fn points(&self) -> Option<&Points> {
        self.points.as_ref().filter(|_| self.columns.iter().any(|c| matches!(c.from, From::Points(_))))
    }

    /// What is known of the points of the bucket under way.
    pub(crate) fn set_points(&mut self, known: &[Known]) {
        for column in &mut self.columns {
            if let From::Points(at) = column.from {
                column.known = known[at];
            }
        }
    }

    /// Whether there is anything to make a bucket of.
    pub(crate) fn is_empty(&self) -> bool {
        self.rows == 0 && self.columns.iter().all(|c| c.known.count == 0)
    }

    /// For a bucket that has points but no rows: the row that says whose it is.
    pub(crate) fn set_key(&mut self, group: &RowGroup, row: usize) -> Result<()> {
        for fill in &mut self.plan {
            if let Fill::Key { from, value } = fill {
                *value = cell(group.column(*from)?, row);
            }
        }
        Ok(())
    }

    /// Rows added since the last bucket.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Adds `rows` rows of a group, from `first` on.
    pub fn add(&mut self, group: &RowGroup, first: usize, rows: usize) -> Result<()> {
        if rows == 0 {
            return Ok(());
        }
        if self.rows == 0 {
            self.set_key(group, first)?;
        }
        self.rows += rows as u64;
        for column in &mut self.columns {
            column.add(group, first, rows, self.finer.as_ref())?;
        }
        Ok(())
    }

    /// Appends the bucket of what was added, in the tier's row format, and begins the next one.
    pub fn finish(&mut self, start: u64, out: &mut Vec<u8>) {
        let layout = self.layout.clone();
        let bucket_us = self.buckets.micros(start);
        let mut writer = layout.writer(out);
        for (position, fill) in self.plan.iter().enumerate() {
            match fill {
                Fill::Key { value, .. } => put(&mut writer, &layout, position, value),
                Fill::Start => writer.set_int(position, start),
                Fill::Nothing if layout.schema().columns[position].nullable => writer.set_null(position),
                Fill::Nothing => {}
                Fill::Statistic { of, statistic, number } => {
                    let column = &self.columns[*of];
                    let cell = match (&self.points, &column.from) {
                        (Some(points), From::Points(_) | From::KnownOf { .. }) => {
                            column.known.statistic(*statistic, points, bucket_us)
                        }
                        _ => column.statistic(*statistic, *number),
                    };
                    put(&mut writer, &layout, position, &cell);
                }
                Fill::Unmasked { of, which } => {
                    put(&mut writer, &layout, position, &self.columns[*of].known.unmasked(*which, bucket_us));
                }
            }
        }
        writer.finish();
        self.rows = 0;
        for column in &mut self.columns {
            column.state = State::default();
            column.known = Known::default();
        }
    }
}

impl Known {
    /// A statistic as its column holds it.
    fn statistic(&self, statistic: Statistic, points: &Points, bucket_us: (i64, i64)) -> Cell {
        let is_fit = self.count > 0 && points.is_fit(self.count, bucket_us);
        let value = match statistic {
            Statistic::Count => return Cell::Bits(self.count ^ COUNT_BIAS),
            _ if !is_fit => return Cell::Null,
            Statistic::Last if self.last_end_us != bucket_us.1 => return Cell::Null,
            Statistic::Avg => self.total / self.count as f64,
            Statistic::Sum => self.total * points.step_seconds(),
            Statistic::Min => self.min,
            Statistic::Max => self.max,
            Statistic::First => self.first,
            Statistic::Last => self.last,
        };
        float_cell(value)
    }

    fn unmasked(&self, which: Unmasked, bucket_us: (i64, i64)) -> Cell {
        match which {
            _ if self.count == 0 => Cell::Null,
            Unmasked::Last if self.last_end_us != bucket_us.1 => Cell::Null,
            Unmasked::Total => float_cell(self.total),
            Unmasked::Min => float_cell(self.min),
            Unmasked::Max => float_cell(self.max),
            Unmasked::First => float_cell(self.first),
            Unmasked::Last => float_cell(self.last),
        }
    }
}

/// A float as its lane holds it; SQL has none that is infinite.
fn float_cell(value: f64) -> Cell {
    if value.is_nan() { Cell::Null } else { Cell::Bits(value.clamp(f64::MIN, f64::MAX).to_bits()) }
}

/// The columns of a tier that hold what is known of points.
fn known_columns(tier: &Schema, id: u32) -> Option<From> {
    let place = |id: u32| tier.columns.iter().position(|c| c.id == id);
    let unmasked: Option<Vec<usize>> = Unmasked::ALL.iter().map(|&which| place(unmasked_id(id, which))).collect();
    let count = position_of_statistic(tier, id, Statistic::Count)?;
    Some(From::KnownOf { count, unmasked: unmasked?.try_into().ok()? })
}

/// The columns of a tier that hold what sums up to a coarser one.
fn tier_columns(tier: &Schema, id: u32) -> Option<From> {
    let place = |statistic| position_of_statistic(tier, id, statistic);
    let sum = place(Statistic::Sum)?;
    let extremes = [Statistic::Min, Statistic::Max, Statistic::First, Statistic::Last];
    let extremes = [place(extremes[0])?, place(extremes[1])?, place(extremes[2])?, place(extremes[3])?];
    Some(From::Tier { sum, sum_number: tier.columns[sum].number, count: place(Statistic::Count)?, extremes })
}

fn put(writer: &mut RowWriter<'_>, layout: &RowLayout, position: usize, cell: &Cell) {
    match (cell, layout.schema().columns[position].lane) {
        (Cell::Bits(bits), Lane::Int { .. }) => writer.set_int(position, *bits),
        (Cell::Bits(bits), Lane::F32) => writer.set_f32_bits(position, *bits as u32),
        (Cell::Bits(bits), Lane::F64) => writer.set_f64_bits(position, *bits),
        (Cell::Bytes(bytes), Lane::Bytes) => writer.push_bytes(position, bytes),
        _ => writer.set_null(position),
    }
}

fn cell(column: &Column, row: usize) -> Cell {
    match &column.values {
        _ if column.is_null(row) => Cell::Null,
        Values::Int(v) | Values::F64(v) => Cell::Bits(v[row]),
        Values::F32(v) => Cell::Bits(v[row].into()),
        Values::Bytes(v) => Cell::Bytes(v.get(row).to_vec()),
    }
}

/// The order of two values of a lane.
fn compare(lane: Lane, a: &Cell, b: &Cell) -> Ordering {
    match (a, b) {
        (Cell::Bits(a), Cell::Bits(b)) => match lane {
            Lane::F32 => f32::from_bits(*a as u32).total_cmp(&f32::from_bits(*b as u32)),
            Lane::F64 => f64::from_bits(*a).total_cmp(&f64::from_bits(*b)),
            _ => a.cmp(b),
        },
        (Cell::Bytes(a), Cell::Bytes(b)) => a.cmp(b),
        _ => Ordering::Equal,
    }
}

impl State {
    fn note_extremes(&mut self, lane: Lane, min: Cell, max: Cell) {
        if self.min == Cell::Null || compare(lane, &min, &self.min).is_lt() {
            self.min = min;
        }
        if self.max == Cell::Null || compare(lane, &max, &self.max).is_gt() {
            self.max = max;
        }
    }
}

impl Aggregated {
    fn add(&mut self, group: &RowGroup, first: usize, rows: usize, finer: Option<&Buckets>) -> Result<()> {
        match &self.from {
            From::Points(_) => {}
            From::KnownOf { count, unmasked } => {
                let Values::Int(counts) = &group.column(*count)?.values else { return Err(damaged()) };
                let time = group.layout().schema().time.map_or(0, |t| usize::from(t.column));
                let Values::Int(times) = &group.column(time)?.values else { return Err(damaged()) };
                let unmasked = unmasked.map(|position| group.column(position));
                let [total, min, max, first_of, last_of] = unmasked;
                let columns = [total?, min?, max?, first_of?, last_of?];
                for (row, count) in counts.iter().enumerate().skip(first).take(rows) {
                    let value = |at: usize| match cell(columns[at], row) {
                        Cell::Bits(bits) => f64::from_bits(bits),
                        _ => f64::NAN,
                    };
                    let ends = finer.map_or(0, |finer| finer.micros(times[row]).1);
                    self.known.join(&Known {
                        count: *count ^ COUNT_BIAS,
                        total: value(0),
                        min: value(1),
                        max: value(2),
                        first: value(3),
                        last: value(4),
                        last_end_us: if value(4).is_nan() { i64::MIN } else { ends },
                    });
                }
            }
            From::Rows(position) => {
                let column = group.column(*position)?.clone();
                (first..first + rows).for_each(|row| self.add_value(&column, row));
            }
            From::Tier { sum, sum_number, count, extremes } => {
                let (sum, number, count) = (group.column(*sum)?, *sum_number, group.column(*count)?);
                let extremes = [
                    group.column(extremes[0])?,
                    group.column(extremes[1])?,
                    group.column(extremes[2])?,
                    group.column(extremes[3])?,
                ];
                let Values::Int(counts) = &count.values else { return Err(damaged()) };
                for (row, count) in counts.iter().enumerate().skip(first).take(rows) {
                    let count = count ^ COUNT_BIAS;
                    if count == 0 {
                        continue;
                    }
                    let state = &mut self.state;
                    match cell(sum, row) {
                        Cell::Bits(bits) if number.is_none() => state.float.add(f64::from_bits(bits)),
                        cell => state.exact.add(&exact(&cell, sum_width(sum_number, &cell), number)),
                    }
                    state.note_extremes(self.lane, cell(extremes[0], row), cell(extremes[1], row));
                    if state.count == 0 {
                        state.first = cell(extremes[2], row);
                    }
                    state.last = cell(extremes[3], row);
                    state.count += count;
                }
            }
        }
        Ok(())
    }

    #[inline]
    fn add_value(&mut self, column: &Column, row: usize) {
        if column.is_null(row) {
            return;
        }
        let state = &mut self.state;
        let value = match (&column.values, self.number) {
            (Values::Int(v), Some(number)) => {
                state.exact.add(&number_of_bits(v[row], self.lane.fixed_width() as u8, number));
                Cell::Bits(v[row])
            }
            (Values::F64(v), _) => {
                state.float.add(f64::from_bits(v[row]));
                Cell::Bits(v[row])
            }
            (Values::F32(v), _) => {
                state.float.add(f32::from_bits(v[row]).into());
                Cell::Bits(v[row].into())
            }
            (Values::Bytes(v), Some(number)) => {
                state.exact.add(&number_of_bytes(v.get(row), number));
                Cell::Bytes(v.get(row).to_vec())
            }
            _ => return,
        };
        state.note_extremes(self.lane, value.clone(), value.clone());
        if state.count == 0 {
            state.first = value.clone();
        }
        state.last = value;
        state.count += 1;
    }

    /// A statistic as its column holds it, which has values of the kind `number`.
    fn statistic(&self, statistic: Statistic, number: Option<Number>) -> Cell {
        let state = &self.state;
        match statistic {
            Statistic::Count => Cell::Bits(state.count ^ COUNT_BIAS),
            _ if state.count == 0 => Cell::Null,
            Statistic::Min => state.min.clone(),
            Statistic::Max => state.max.clone(),
            Statistic::First => state.first.clone(),
            Statistic::Last => state.last.clone(),
            Statistic::Sum => match number {
                Some(Number::Decimal { precision, scale }) => decimal_cell(&state.exact, precision, scale),
                _ => Cell::Bits(state.float.value().to_bits()),
            },
            Statistic::Avg => match number {
                Some(Number::Decimal { precision, scale }) => {
                    let own = match self.number {
                        Some(Number::Decimal { scale, .. }) => scale,
                        _ => 0,
                    };
                    let average = state.exact.average(state.count, scale.saturating_sub(own));
                    decimal_cell(&average, precision, scale)
                }
                _ => Cell::Bits((state.float.value() / state.count as f64).to_bits()),
            },
        }
    }
}

/// The bytes of a lane that a sum is in.
fn sum_width(number: &Option<Number>, cell: &Cell) -> u8 {
    match (number, cell) {
        (Some(Number::Decimal { precision, scale }), Cell::Bits(_)) => super::decimal_bytes(*precision, *scale) as u8,
        _ => 8,
    }
}

fn exact(cell: &Cell, width: u8, number: Option<Number>) -> Wide {
    match (cell, number) {
        (Cell::Bits(bits), Some(number)) => number_of_bits(*bits, width, number),
        (Cell::Bytes(bytes), Some(number)) => number_of_bytes(bytes, number),
        _ => Wide::default(),
    }
}

fn damaged() -> Error {
    Error::InvalidInput("a tier's count is not a number".into())
}
