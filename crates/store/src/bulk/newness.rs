//! Which rows of a bulk statement are new by construction: those behind the newest of their series.
//!
//! The worker asks once for each series of a run, in which rows are sorted by then. What others commit meanwhile is
//! compared at the commit.

use std::sync::Arc;

use hashbrown::HashMap;

use super::run::Run;
use super::sort::Order;
use crate::error::Result;
use crate::limits;
use crate::memtable::Key;
use crate::row::RowLayout;
use crate::table::Table;

/// The newest key of each series, committed rows and those of the transaction.
#[derive(Default)]
pub struct Newness {
    /// Largest rest of the key for each series.
    pub newest: HashMap<Key, Key>,
    /// The map was emptied: rows of the transaction may be missing in it.
    pub is_lost: bool,
}

impl Newness {
    /// That of which nothing is known.
    pub fn lost() -> Newness {
        Newness { newest: HashMap::new(), is_lost: true }
    }

    /// Notes a row of the transaction, which may be the newest of its series.
    pub fn raise(&mut self, series: &[u8], rest: &[u8]) {
        if let Some(newest) = self.newest.get_mut(series) {
            if newest.as_slice() < rest {
                *newest = Key::from_slice(rest);
            }
            return;
        }
        self.forget_if_full();
        if !self.is_lost {
            self.newest.insert(Key::from_slice(series), Key::from_slice(rest));
        }
    }

    /// Before a series is added.
    pub fn forget_if_full(&mut self) {
        if self.newest.len() >= limits::NEWEST_ENTRIES {
            *self = Newness::lost();
        }
    }

    /// Notes the rows of a sorted run that were not looked up; false unless all of them are certainly new.
    pub fn note(&mut self, table: &Arc<Table>, layout: &Arc<RowLayout>, run: &Run, order: &Order) -> Result<bool> {
        let mut all_new = true;
        let mut start = 0;
        let (mut first, mut last) = (Key::new(), Key::new());
        for &end in &order.series_ends {
            let rows = &order.rows[start as usize..end as usize];
            start = end;
            let Some(&first_unchecked) = rows.iter().find(|&&row| run.is_unchecked(row)) else { continue };
            first.clear();
            last.clear();
            layout.push_key(run.row(first_unchecked as usize), &mut first);
            layout.push_key(run.row(rows[rows.len() - 1] as usize), &mut last);
            let series = layout.series_len(&first);
            all_new &= self.note_series(table, layout, &first[..series], &first[series..], &last[series..])?;
        }
        Ok(all_new)
    }

    fn note_series(
        &mut self,
        table: &Arc<Table>,
        layout: &Arc<RowLayout>,
        series: &[u8],
        first: &[u8],
        last: &[u8],
    ) -> Result<bool> {
        if let Some(newest) = self.newest.get_mut(series) {
            let is_new = first > newest.as_slice();
            if last > newest.as_slice() {
                *newest = Key::from_slice(last);
            }
            return Ok(is_new && !self.is_lost);
        }
        self.forget_if_full();
        if self.is_lost {
            return Ok(false);
        }
        let (mut is_new, mut newest) = (false, Key::from_slice(last));
        table.newest_of(layout, series, |committed| {
            is_new = first > committed;
            if committed > last {
                newest = Key::from_slice(committed);
            }
        })?;
        self.newest.insert(Key::from_slice(series), newest);
        Ok(is_new)
    }
}
