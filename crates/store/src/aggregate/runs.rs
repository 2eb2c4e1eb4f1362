//! Cuts selected rows into runs of one group each.
//!
//! Rows lie in key order: the columns of the key stay, or rise evenly, for long runs, and a look at where the next bucket
//! begins replaces a look at each row.

use rrd_codec::Pieces;
use smallvec::SmallVec;

use super::groups::{FirstRow, Groups};
use super::query::Group;
use super::ranges::{Range, Ranges, next_in};
use super::states::Run;
use super::strip::{Rows, Strip};
use crate::error::Result;

/// What rows are grouped by, and its column in the block at hand.
pub struct Cutter<'a> {
    pub group: Group,
    pub rows: Rows<'a>,
}

/// Cuts `ranges` into runs, entering their groups. `first` makes a row one that may be its group's first.
pub fn cut<R: FirstRow>(
    cutters: &[Cutter<'_>],
    ranges: &Ranges,
    groups: &mut Groups<'_>,
    source: u32,
    first: impl Fn(usize) -> R,
) -> Result<Vec<Run>> {
    let all = ranges.as_slice();
    let mut runs = Vec::with_capacity(all.len());
    let mut values: SmallVec<[u64; 4]> = SmallVec::new();
    // Up to which row (selected or not) the group at hand goes.
    let (mut group, mut stop) = (0, 0);
    for (i, range) in all.iter().enumerate() {
        let (mut row, end) = (range.start as usize, range.end as usize);
        while row < end {
            if row >= stop {
                stop = if cutters.is_empty() { usize::MAX } else { look_ahead(&all[i..]) };
                values.clear();
                let mut nulls = 0;
                for (n, cutter) in cutters.iter().enumerate() {
                    let (value, behind) = cutter.run(row, stop, |text| groups.number_of_text(n, text));
                    values.push(value.unwrap_or(0));
                    nulls |= u64::from(value.is_none()) << n;
                    stop = behind;
                }
                group = groups.enter(&values, nulls, source, &first(row))?;
            }
            let behind = stop.min(end);
            runs.push(Run { start: row as u32, end: behind as u32, group });
            row = behind;
        }
    }
    Ok(runs)
}

/// Up to where to look for the end of a group: over the next ranges too, where they lie close together.
fn look_ahead(ranges: &[Range]) -> usize {
    const RANGES: usize = 16;
    const GAP: u32 = 64;
    let mut end = ranges[0].end;
    for next in ranges.iter().take(RANGES).skip(1) {
        if next.start - end > GAP {
            break;
        }
        end = next.end;
    }
    end as usize
}

impl Cutter<'_> {
    /// What row `row` is grouped by (`None`: NULL), and the first row up to `end` that is grouped otherwise.
    #[inline]
    fn run(&self, row: usize, end: usize, number: impl FnOnce(&[u8]) -> u64) -> (Option<u64>, usize) {
        let rows = &self.rows;
        if let Some(nulls) = rows.nulls {
            let is_null = nulls.get(row);
            let end = next_in(nulls, row + 1, end, !is_null);
            return if is_null { (None, end) } else { self.run_of_values(row, end, number) };
        }
        self.run_of_values(row, end, number)
    }

    #[inline]
    fn run_of_values(&self, row: usize, end: usize, number: impl FnOnce(&[u8]) -> u64) -> (Option<u64>, usize) {
        match self.rows.strip {
            Strip::Int(v) => {
                let (low, high) = self.group.bounds(v[row]);
                (Some(low), end_where(&v[row..end], |v| v.wrapping_sub(low) > high - low) + row)
            }
            Strip::Lines(lines) => {
                let (low, high) = self.group.bounds(lines.get(row));
                (Some(low), end_on_lines(lines, row, end, low, high))
            }
            Strip::F64(v) => (Some(v[row]), end_where(&v[row..end], |other| other != v[row]) + row),
            Strip::F32(v) => (Some(v[row].into()), end_where(&v[row..end], |other| other != v[row]) + row),
            Strip::Bytes(v) => {
                let text = v.get(row);
                let end = (row + 1..end).find(|&i| v.get(i) != text).unwrap_or(end);
                (Some(number(text)), end)
            }
        }
    }
}

/// The first place that is outside; the length if there is none.
#[inline]
fn end_where<T: Copy>(values: &[T], is_outside: impl Fn(T) -> bool) -> usize {
    const STEP: usize = 8;
    let mut at = 0;
    for chunk in values.chunks_exact(STEP) {
        if chunk.iter().fold(false, |any, &v| any | is_outside(v)) {
            break;
        }
        at += STEP;
    }
    at + values[at..].iter().position(|&v| is_outside(v)).unwrap_or(values.len() - at)
}

/// The first row of `row..end` whose value is not from `low` to `high`.
fn end_on_lines(lines: &Pieces, row: usize, end: usize, low: u64, high: u64) -> usize {
    let mut i = lines.find(row);
    let mut at = row;
    while at < end {
        let (piece, stop) = (&lines.pieces()[i], lines.end(i).min(end));
        let first = piece.at(at);
        if !(low..=high).contains(&first) {
            return at;
        }
        let rows = (stop - at) as u64;
        let inside = match piece.step {
            0 => rows,
            // Rising (falling) by a step: as many rows as there are steps to the bound, and this one.
            step if step < 1 << 63 => ((high - first) / step).saturating_add(1),
            step => ((first - low) / step.wrapping_neg()).saturating_add(1),
        };
        if inside < rows {
            return at + inside as usize;
        }
        at = stop;
        i += 1;
    }
    end
}
