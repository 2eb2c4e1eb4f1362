//! The keys of a block's rows, compared where they are: nothing is copied or put together.

use std::cmp::Ordering;

use rrd_codec::Values;
use smallvec::SmallVec;

use super::block::Block;
use super::filter::Columns;
use crate::error::Result;
use crate::key;
use crate::memtable::Key;
use crate::schema::Lane;
use crate::segment::Held;

/// The columns of the key, in its order.
#[derive(Clone)]
pub struct Keys {
    columns: SmallVec<[(Held, Lane); 3]>,
    rows: usize,
}

impl Keys {
    /// Reads the columns of a block's key.
    pub fn of(block: &Block<'_>, key: &[u16]) -> Result<Keys> {
        let column = |&k: &u16| Ok((block.held(usize::from(k))?, block.lane(usize::from(k))));
        Ok(Keys { columns: key.iter().map(column).collect::<Result<_>>()?, rows: block.rows() })
    }

    /// Sort key of a row.
    pub fn get(&self, row: usize) -> Key {
        let mut out = Key::new();
        for (held, lane) in &self.columns {
            match (held, lane) {
                (Held::Lines(lines), &Lane::Int { width }) => key::push_int(&mut out, lines.get(row), width),
                (Held::Column(column), lane) => match (&column.values, lane) {
                    (Values::Int(v), &Lane::Int { width }) => key::push_int(&mut out, v[row], width),
                    (Values::Bytes(v), _) => key::push_bytes(&mut out, v.get(row)),
                    _ => debug_assert!(false, "key lane and column kind differ"),
                },
                _ => debug_assert!(false, "a key of lines that is no integer"),
            }
        }
        out
    }

    /// Compares the key of a row with one of a row of another block of the same table.
    pub fn compare(&self, row: usize, other: &Keys, other_row: usize) -> Ordering {
        for ((a, _), (b, _)) in self.columns.iter().zip(&other.columns) {
            let order = match (int_at(a, row), int_at(b, other_row)) {
                (Some(a), Some(b)) => a.cmp(&b),
                _ => bytes_at(a, row).cmp(bytes_at(b, other_row)),
            };
            if order.is_ne() {
                return order;
            }
        }
        Ordering::Equal
    }

    /// The first row from `from` on whose key is not before that of a row of another block: near ones are found at once.
    pub fn seek(&self, from: usize, other: &Keys, other_row: usize) -> usize {
        let is_before = |row: usize| self.compare(row, other, other_row).is_lt();
        let (mut low, mut step) = (from, 1);
        while low + step <= self.rows && is_before(low + step - 1) {
            low += step;
            step *= 2;
        }
        // All rows before `low` come before the key; the row at `high`, if there is one, does not.
        let mut high = (low + step - 1).min(self.rows);
        while low < high {
            let middle = (low + high) / 2;
            if is_before(middle) { low = middle + 1 } else { high = middle }
        }
        low
    }
}

fn int_at(held: &Held, row: usize) -> Option<u64> {
    match held {
        Held::Lines(lines) => Some(lines.get(row)),
        Held::Column(column) => match &column.values {
            Values::Int(values) => Some(values[row]),
            _ => None,
        },
    }
}

fn bytes_at(held: &Held, row: usize) -> &[u8] {
    match held {
        Held::Column(column) => match &column.values {
            Values::Bytes(values) => values.get(row),
            _ => &[],
        },
        Held::Lines(_) => &[],
    }
}
