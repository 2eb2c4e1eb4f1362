//! Rows of a run in the order of their keys.
//!
//! Readings arrive as rounds: of each series one row, then of each the next. So rows are dealt to their series, by one
//! hash probe each or, where a series is followed by the same one as before, none. Mostly a series is then in order,
//! and the series alone have to be sorted. Keys that are not short integers are compared as bytes.

use hashbrown::HashMap;

use super::run::Run;
use crate::error::{Error, Result};
use crate::memtable::Key;
use crate::row::{IntKey, RowLayout};

/// The rows of a run in key order, by number, and where the rows of each series end.
pub struct Order {
    /// Numbers of rows.
    pub rows: Vec<u32>,
    /// Places in `rows`.
    pub series_ends: Vec<u32>,
}

impl Order {
    /// The order of a run. [`Error::Duplicate`] if two rows have the same key.
    pub fn of(run: &Run, layout: &RowLayout) -> Result<Order> {
        match layout.int_key() {
            Some(key) => Dealt::new(run, key).sort(run, key),
            None => by_bytes(run, layout),
        }
    }
}

/// A series on its way.
struct Series {
    /// The leading parts of the key.
    key: u64,
    rows: u32,
    /// The rest of the last row's key.
    last: u64,
    is_sorted: bool,
    /// The series that came behind it the last time.
    next: u32,
}

/// Rows dealt to series.
struct Dealt {
    series: Vec<Series>,
    /// The series of each row.
    of_row: Vec<u32>,
}

impl Dealt {
    fn new(run: &Run, key: &IntKey) -> Dealt {
        let mut series: Vec<Series> = Vec::new();
        let mut known: HashMap<u64, u32> = HashMap::new();
        let mut before = 0;
        let deal = |row: &[u8]| {
            let (own, rest) = (key.series(row), key.rest(row));
            let guess = series.get(before as usize).map_or(0, |s| s.next);
            let number = match series.get(guess as usize) {
                Some(found) if found.key == own => guess,
                _ => *known.entry(own).or_insert_with(|| {
                    series.push(Series { key: own, rows: 0, last: 0, is_sorted: true, next: 0 });
                    series.len() as u32 - 1
                }),
            };
            series[before as usize].next = number;
            before = number;
            let found = &mut series[number as usize];
            found.is_sorted &= found.rows == 0 || rest > found.last;
            found.last = rest;
            found.rows += 1;
            number
        };
        let of_row = run.rows().map(deal).collect();
        Dealt { series, of_row }
    }

    fn sort(self, run: &Run, key: &IntKey) -> Result<Order> {
        let mut sorted: Vec<(u64, u32)> = (0..).zip(&self.series).map(|(i, s)| (s.key, i)).collect();
        sorted.sort_unstable();
        let mut series_ends = Vec::with_capacity(sorted.len());
        let mut places = vec![0u32; sorted.len()];
        let mut end = 0;
        for &(_, number) in &sorted {
            places[number as usize] = end;
            end += self.series[number as usize].rows;
            series_ends.push(end);
        }
        let mut rows = vec![0u32; self.of_row.len()];
        for (row, &number) in (0..).zip(&self.of_row) {
            let place = &mut places[number as usize];
            rows[*place as usize] = row;
            *place += 1;
        }
        for ((_, number), &end) in sorted.iter().zip(&series_ends) {
            let series = &self.series[*number as usize];
            if !series.is_sorted {
                sort_rows(&mut rows[(end - series.rows) as usize..end as usize], run, key)?;
            }
        }
        Ok(Order { rows, series_ends })
    }
}

/// Sorts rows of one series.
fn sort_rows(rows: &mut [u32], run: &Run, key: &IntKey) -> Result<()> {
    let mut keyed: Vec<(u64, u32)> = rows.iter().map(|&row| (key.rest(run.row(row as usize)), row)).collect();
    keyed.sort_unstable();
    check_unique(run, &keyed)?;
    rows.iter_mut().zip(keyed).for_each(|(place, (_, row))| *place = row);
    Ok(())
}

fn by_bytes(run: &Run, layout: &RowLayout) -> Result<Order> {
    let key_of = |row: &[u8]| {
        let mut key = Key::new();
        layout.push_key(row, &mut key);
        key
    };
    let mut keyed: Vec<(Key, u32)> = run.rows().map(key_of).zip(0..).collect();
    if !keyed.is_sorted() {
        keyed.sort_unstable();
    }
    check_unique(run, &keyed)?;
    let series = |place: usize| {
        let key: &Key = &keyed[place].0;
        &key[..layout.series_len(key)]
    };
    let is_end = |&place: &usize| place == keyed.len() || series(place - 1) != series(place);
    let series_ends = (1..=keyed.len()).filter(is_end).map(|place| place as u32).collect();
    Ok(Order { series_ends, rows: keyed.into_iter().map(|(_, row)| row).collect() })
}

/// Of two rows with the same key the one that came last is the duplicate.
fn check_unique<K: PartialEq>(run: &Run, sorted: &[(K, u32)]) -> Result<()> {
    match sorted.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        None => Ok(()),
        Some(pair) => {
            let row = run.row(pair[1].1 as usize).to_vec();
            Err(Error::Duplicate { index: 0, row, existing: Vec::new() })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::{ColumnDef, Lane, Schema};
    use proptest::prelude::*;
    use std::sync::Arc;

    fn layout(lanes: &[Lane], time: Option<u16>) -> RowLayout {
        let column = |(id, &lane): (u32, &Lane)| ColumnDef::plain(id, lane, false);
        RowLayout::new(Arc::new(Schema::plain(
            (0..).zip(lanes).map(column).collect(),
            (0..lanes.len() as u16).collect(),
            time,
        )))
    }

    fn run_of(layout: &RowLayout, rows: &[Vec<u64>]) -> Run {
        let mut run = Run::new(layout);
        for values in rows {
            run.append(|out| {
                let mut writer = layout.writer(out);
                for (c, &value) in values.iter().enumerate() {
                    match layout.schema().columns[c].lane {
                        Lane::Bytes => writer.push_bytes(c, &value.to_be_bytes()[8 - (value % 9) as usize..]),
                        _ => writer.set_int(c, value),
                    }
                }
                writer.finish();
                Ok(())
            })
            .unwrap_or_else(|error| panic!("{error}"));
        }
        run
    }

    const INT: Lane = Lane::Int { width: 4 };
    const LONG: Lane = Lane::Int { width: 8 };

    proptest! {
        #[test]
        fn rows_come_in_key_order_series_by_series(
            rows in prop::collection::vec(prop::collection::vec(0u64..12, 3), 0..60),
            shape in 0usize..5,
        ) {
            let (lanes, time): (&[Lane], _) = match shape {
                0 => (&[INT, INT, INT], Some(2)),
                1 => (&[INT, INT, INT], Some(1)),
                2 => (&[LONG, INT, INT], None),
                3 => (&[LONG, LONG, LONG], Some(2)),
                _ => (&[INT, Lane::Bytes, INT], Some(2)),
            };
            let layout = layout(lanes, time);
            let run = run_of(&layout, &rows);
            let key = |row: usize| {
                let mut key = Vec::new();
                layout.push_key(run.row(row), &mut key);
                key
            };
            let mut sorted: Vec<Vec<u8>> = (0..rows.len()).map(key).collect();
            sorted.sort();
            let repeated = sorted.windows(2).any(|pair| pair[0] == pair[1]);
            match Order::of(&run, &layout) {
                Err(error) => prop_assert!(repeated, "{error}"),
                Ok(order) => {
                    prop_assert!(!repeated);
                    let keys: Vec<Vec<u8>> = order.rows.iter().map(|&row| key(row as usize)).collect();
                    prop_assert_eq!(&keys, &sorted);
                    let series = |key: &Vec<u8>| key[..layout.series_len(key)].to_vec();
                    let ends = (1..=keys.len()).filter(|&i| i == keys.len() || series(&keys[i - 1]) != series(&keys[i]));
                    prop_assert_eq!(order.series_ends, ends.map(|end| end as u32).collect::<Vec<_>>());
                }
            }
        }
    }
}
