//! Conditions: decided for whole blocks by their zone maps where that is possible, else for each row.

use rrd_codec::Pieces;
use smallvec::SmallVec;

use super::query::Condition;
use super::ranges::Ranges;
use super::strip::{Rows, Strip};
use crate::error::Result;
use crate::segment::zone::{order_bytes, order_f32, order_f64};
use crate::segment::{Held, ZoneMap};

/// For which rows of a block a condition holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    None,
    Some,
    All,
}

impl Verdict {
    /// `all` and `none` are certain.
    fn of(all: bool, none: bool) -> Verdict {
        match (all, none) {
            (_, true) => Verdict::None,
            (true, false) => Verdict::All,
            _ => Verdict::Some,
        }
    }
}

/// The columns of some rows.
pub trait Columns {
    /// A column by position.
    fn held(&self, position: usize) -> Result<Held>;
    /// What is known of a column without reading it.
    fn zone(&self, position: usize) -> Option<ZoneMap>;
    /// Whether a column is a part of the clustering key.
    fn is_key(&self, position: usize) -> bool;
}

/// Some of a query's conditions.
pub type Open<'c> = SmallVec<[&'c Condition; 4]>;

/// The conditions that zone maps leave open; `None` if they say that no row meets all of them.
pub fn undecided<'c>(conditions: &'c [Condition], columns: &impl Columns) -> Option<Open<'c>> {
    let mut open = Open::new();
    for condition in conditions {
        match decide(condition, columns) {
            Verdict::None => return None,
            Verdict::All => {}
            Verdict::Some => open.push(condition),
        }
    }
    Some(open)
}

/// The rows of `ranges` for which all conditions hold; those on lines first, as they cost next to nothing.
pub fn pick_all(mut open: Open<'_>, columns: &impl Columns, mut ranges: Ranges) -> Result<Ranges> {
    let mut rest = Open::new();
    // What rows are sorted by is mostly made of lines.
    open.sort_by_key(|condition| !condition.column().is_some_and(|column| columns.is_key(column)));
    for condition in open.iter() {
        if ranges.is_empty() {
            return Ok(ranges);
        }
        match condition.column().map(|column| columns.held(column)).transpose()? {
            Some(held @ Held::Lines(_)) => ranges = select(condition, &Rows::of(&held, false), &ranges),
            _ => rest.push(condition),
        }
    }
    for condition in rest {
        if ranges.is_empty() {
            break;
        }
        ranges = pick(condition, columns, &ranges)?;
    }
    Ok(ranges)
}

/// What zone maps say of a condition.
fn decide(condition: &Condition, columns: &impl Columns) -> Verdict {
    let worst = |a: Verdict, b: Verdict| match (a, b) {
        (Verdict::None, _) | (_, Verdict::None) => Verdict::None,
        (Verdict::All, Verdict::All) => Verdict::All,
        _ => Verdict::Some,
    };
    let best = |a: Verdict, b: Verdict| match (a, b) {
        (Verdict::All, _) | (_, Verdict::All) => Verdict::All,
        (Verdict::None, Verdict::None) => Verdict::None,
        _ => Verdict::Some,
    };
    match condition {
        Condition::Any(parts) => parts.iter().map(|part| decide(part, columns)).fold(Verdict::None, best),
        Condition::All(parts) => parts.iter().map(|part| decide(part, columns)).fold(Verdict::All, worst),
        one => {
            let zone = one.column().and_then(|column| columns.zone(column));
            zone.map_or(Verdict::Some, |zone| decide_one(one, &zone))
        }
    }
}

/// The rows of `ranges` for which a condition holds. Columns are read only where zone maps do not decide.
pub fn pick(condition: &Condition, columns: &impl Columns, ranges: &Ranges) -> Result<Ranges> {
    match condition {
        Condition::Any(parts) => {
            let mut found = Ranges::default();
            for part in parts {
                match decide(part, columns) {
                    Verdict::None => {}
                    Verdict::All => return Ok(ranges.clone()),
                    Verdict::Some => found = found.or(&pick(part, columns, ranges)?),
                }
            }
            Ok(found)
        }
        Condition::All(parts) => {
            let mut found = ranges.clone();
            for part in parts {
                if found.is_empty() {
                    break;
                }
                found = pick(part, columns, &found)?;
            }
            Ok(found)
        }
        one => match one.column() {
            Some(column) => Ok(select(one, &Rows::of(&columns.held(column)?, false), ranges)),
            None => Ok(ranges.clone()),
        },
    }
}

/// What a zone map says of a comparison.
fn decide_one(condition: &Condition, zone: &ZoneMap) -> Verdict {
    let has_nulls = zone.nulls > 0;
    if let Condition::Null { negated, .. } = *condition {
        let (all, none) = (zone.nulls == zone.rows, !has_nulls);
        return if negated { Verdict::of(none, all) } else { Verdict::of(all, none) };
    }
    // No condition holds for NULL, negated or not.
    let Some((min, max)) = zone.range else { return Verdict::None };
    let (inside, outside, negated) = match condition {
        Condition::Range { low, high, negated, .. } => {
            (*low <= min && max <= *high, max < *low || *high < min, *negated)
        }
        Condition::In { values, negated, .. } => {
            let next = values.partition_point(|&v| v < min);
            let outside = values.get(next).is_none_or(|&v| v > max);
            (min == max && !outside, outside, *negated)
        }
        Condition::Bytes { values, negated, .. } => {
            let is_outside = |value: &Vec<u8>| order_bytes(value) < min || order_bytes(value) > max;
            (false, values.iter().all(is_outside), *negated)
        }
        Condition::Null { .. } | Condition::Any(_) | Condition::All(_) => return Verdict::Some,
    };
    let (all, none) = if negated { (outside, inside) } else { (inside, outside) };
    Verdict::of(all && !has_nulls, none)
}

/// The rows of `ranges` for which a comparison holds.
pub fn select(condition: &Condition, rows: &Rows<'_>, ranges: &Ranges) -> Ranges {
    let is_null = |row: usize| rows.is_null(row);
    if let Condition::Null { negated, .. } = *condition {
        return ranges.filter(|row| is_null(row) != negated);
    }
    let not_null = match rows.nulls {
        Some(_) => &ranges.filter(|row| !is_null(row)),
        None => ranges,
    };
    match condition {
        Condition::Range { low, high, negated, .. } => {
            let (low, high, negated) = (*low, *high, *negated);
            if low > high {
                return if negated { not_null.clone() } else { Ranges::default() };
            }
            let span = high - low;
            let holds = |value: u64| (value.wrapping_sub(low) <= span) != negated;
            match rows.strip {
                Strip::Lines(lines) if !negated => between(lines, low, high, not_null),
                strip => by_value(&strip, not_null, holds),
            }
        }
        Condition::In { values, negated, .. } => {
            // Most lists are short, and most rows near each other have the same value.
            by_value(&rows.strip, not_null, |value| values.binary_search(&value).is_ok() != *negated)
        }
        Condition::Bytes { values, negated, .. } => match rows.strip {
            Strip::Bytes(v) => not_null.filter(|row| {
                let value = v.get(row);
                values.binary_search_by(|other| other.as_slice().cmp(value)).is_ok() != *negated
            }),
            _ => Ranges::default(),
        },
        Condition::Null { .. } | Condition::Any(_) | Condition::All(_) => Ranges::default(),
    }
}

/// The rows whose value, in the lane's order, is right.
fn by_value(strip: &Strip<'_>, ranges: &Ranges, holds: impl Fn(u64) -> bool) -> Ranges {
    match *strip {
        Strip::Int(v) => ranges.filter(|row| holds(v[row])),
        Strip::F64(v) => ranges.filter(|row| holds(order_f64(v[row]))),
        Strip::F32(v) => ranges.filter(|row| holds(order_f32(v[row]))),
        Strip::Bytes(_) => Ranges::default(),
        Strip::Lines(lines) => on_lines(lines, ranges, |kept, i, from, to| {
            let piece = &lines.pieces()[i];
            if piece.step == 0 {
                if holds(piece.value) {
                    kept.push(from, to);
                }
            } else {
                kept.push_where(from, to, |row| holds(piece.at(row)));
            }
        }),
    }
}

/// The rows with a value from `low` to `high`: found on each line by division.
fn between(lines: &Pieces, low: u64, high: u64, ranges: &Ranges) -> Ranges {
    on_lines(lines, ranges, |kept, i, from, to| {
        let piece = &lines.pieces()[i];
        let (first, step) = (piece.at(from), piece.step);
        let rises = step > 0 && step < 1 << 63 && (to - from) as u64 <= (u64::MAX - first) / step;
        if rises {
            // The row at which the line reaches a value, counted from `from`.
            let reaches = |value: u64| value.saturating_sub(first).div_ceil(step).min((to - from) as u64) as usize;
            let end = if high == u64::MAX { to } else { from + reaches(high + 1) };
            kept.push(from + reaches(low), end);
        } else if step == 0 {
            if (low..=high).contains(&first) {
                kept.push(from, to);
            }
        } else {
            kept.push_where(from, to, |row| (low..=high).contains(&piece.at(row)));
        }
    })
}

/// Walks along ranges and lines at once: `take` gets the ranges to add to, a line and the rows on it.
fn on_lines(lines: &Pieces, ranges: &Ranges, take: impl Fn(&mut Ranges, usize, usize, usize)) -> Ranges {
    let mut kept = Ranges::default();
    let mut i = 0;
    for range in ranges.as_slice() {
        let (mut row, end) = (range.start as usize, range.end as usize);
        if lines.end(i) <= row {
            i = lines.find(row);
        }
        while row < end {
            let stop = lines.end(i).min(end);
            take(&mut kept, i, row, stop);
            row = stop;
            if row < end {
                i += 1;
            }
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rrd_codec::{Bitmap, Column, Effort, Values};

    use super::*;
    use crate::segment::Held;

    fn range(low: u64, high: u64, negated: bool) -> Condition {
        Condition::Range { column: 0, low, high, negated }
    }

    fn holds(condition: &Condition, value: Option<u64>) -> bool {
        match (condition, value) {
            (Condition::Null { negated, .. }, value) => value.is_none() != *negated,
            (Condition::Any(parts), _) => parts.iter().any(|part| holds(part, value)),
            (Condition::All(parts), _) => parts.iter().all(|part| holds(part, value)),
            (_, None) => false,
            (Condition::Range { low, high, negated, .. }, Some(v)) => (*low <= v && v <= *high) != *negated,
            (Condition::In { values, negated, .. }, Some(v)) => values.contains(&v) != *negated,
            (Condition::Bytes { .. }, _) => false,
        }
    }

    /// One column for each position, with its zone map.
    struct One(Column);

    impl Columns for One {
        fn held(&self, _: usize) -> Result<Held> {
            Ok(Held::Column(std::sync::Arc::new(self.0.clone())))
        }

        fn zone(&self, _: usize) -> Option<ZoneMap> {
            Some(ZoneMap::of(&self.0))
        }

        fn is_key(&self, _: usize) -> bool {
            false
        }
    }

    fn condition() -> impl Strategy<Value = Condition> {
        comparison().prop_recursive(3, 12, 4, |part| {
            prop_oneof![
                prop::collection::vec(part.clone(), 0..4).prop_map(Condition::Any),
                prop::collection::vec(part, 0..4).prop_map(Condition::All),
            ]
        })
    }

    fn comparison() -> impl Strategy<Value = Condition> {
        prop_oneof![
            (0u64..50, 0u64..50, any::<bool>()).prop_map(|(low, high, negated)| range(low, high, negated)),
            any::<bool>().prop_map(|negated| Condition::Null { column: 0, negated }),
            (prop::collection::btree_set(0u64..50, 0..5), any::<bool>()).prop_map(|(values, negated)| {
                Condition::In { column: 0, values: values.into_iter().collect(), negated }
            }),
        ]
    }

    proptest! {
        #[test]
        fn zone_maps_and_rows_agree(
            values in prop::collection::vec(prop::option::weighted(0.9, 0u64..50), 1..80),
            spread in 1u64..50,
            condition in condition(),
        ) {
            let values: Vec<Option<u64>> = values.iter().map(|v| v.map(|v| 20 + v % spread)).collect();
            let mut nulls = Bitmap::new(values.len());
            values.iter().enumerate().filter(|(_, v)| v.is_none()).for_each(|(i, _)| nulls.set(i));
            let ints = values.iter().map(|v| v.unwrap_or(0)).collect();
            let column = Column { values: Values::Int(ints), nulls: Some(nulls).filter(|n| n.count() > 0) };
            let all = Ranges::one(0, values.len());
            let columns = One(column);
            let found = pick(&condition, &columns, &all).map_err(|error| TestCaseError::fail(error.to_string()))?;
            prop_assert_eq!(&found, &all.filter(|row| holds(&condition, values[row])));
            match decide(&condition, &columns) {
                Verdict::All => prop_assert_eq!(found, all),
                Verdict::None => prop_assert!(found.is_empty()),
                Verdict::Some => {}
            }
        }

        #[test]
        fn lines_are_cut_where_their_rows_are(
            parts in prop::collection::vec((0u64..60, -3i64..4, 20usize..60), 1..5),
            condition in comparison(),
            holes in prop::collection::btree_set(0u32..200, 0..4),
        ) {
            let part = |&(value, step, rows): &(u64, i64, usize)| {
                (0..rows as u64).map(move |i| value.wrapping_add(i.wrapping_mul(step as u64)))
            };
            let values: Vec<u64> = parts.iter().flat_map(part).collect();
            let mut block = Vec::new();
            rrd_codec::encode(&Column { values: Values::Int(values.clone()), nulls: None }, Effort::Small, &mut block);
            let lines = rrd_codec::decode_pieces(&block, values.len()).ok().flatten();
            if let Some(lines) = lines {
                let held = Held::Lines(std::sync::Arc::new(lines));
                let holes: Vec<u32> = holes.into_iter().collect();
                let within = Ranges::one(3, values.len()).without(&holes);
                let found = select(&condition, &Rows::of(&held, false), &within);
                prop_assert_eq!(found, within.filter(|row| holds(&condition, Some(values[row]))));
            }
        }
    }
}
