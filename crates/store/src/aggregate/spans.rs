//! Conditions for walks: of a span, the rows for which they hold.
//!
//! The reader asks again, so rows may be handed out for which a condition does not hold, but none may be missing.

use std::sync::Arc;

use super::filter::{Columns, pick_all, undecided};
use super::query::Condition;
use super::ranges::{Range, Ranges};
use super::view::times_of_all;
use crate::cursor::Direction;
use crate::error::Result;
use crate::group::{RowGroup, Span};
use crate::row::RowLayout;
use crate::segment::{Held, ZoneMap};

/// Spans of fewer rows are handed out whole: to look at their rows costs the reader no more.
const FEWEST_ROWS: u32 = 64;

/// Conditions of a walk, all of which must hold.
pub struct Filter {
    conditions: Arc<[Condition]>,
    /// Spans that were found and not handed out yet, the next one last.
    found: Vec<Span>,
}

impl Filter {
    pub fn new(conditions: Arc<[Condition]>) -> Filter {
        Filter { conditions, found: Vec::new() }
    }

    /// The times of rows for which the conditions can hold.
    pub fn times(&self, layout: &RowLayout) -> (u64, u64) {
        times_of_all(&self.conditions, layout)
    }

    /// The walk goes elsewhere.
    pub fn forget(&mut self) {
        self.found.clear();
    }

    /// The next span that was found.
    pub fn take(&mut self) -> Option<Span> {
        self.found.pop()
    }

    /// Looks for rows in a span. Returns the first of what is found: without rows if there are none.
    pub fn look(&mut self, span: Span) -> Result<Span> {
        if span.rows < FEWEST_ROWS {
            return Ok(span);
        }
        let Some(open) = undecided(&self.conditions, &*span.group) else { return Ok(Span { rows: 0, ..span }) };
        let (first, rows) = (span.first as usize, span.rows as usize);
        let within = match span.direction {
            Direction::Forward => Ranges::one(first, first + rows),
            Direction::Backward => Ranges::one(first + 1 - rows, first + 1),
        };
        let ranges = pick_all(open, &*span.group, within)?;
        let of = |range: &Range| {
            let first = if span.direction == Direction::Forward { range.start } else { range.end - 1 };
            Span { first, rows: range.end - range.start, ..span.clone() }
        };
        match span.direction {
            Direction::Forward => self.found.extend(ranges.as_slice().iter().rev().map(of)),
            Direction::Backward => self.found.extend(ranges.as_slice().iter().map(of)),
        }
        Ok(self.found.pop().unwrap_or(Span { rows: 0, ..span }))
    }
}

impl Columns for RowGroup {
    fn held(&self, position: usize) -> Result<Held> {
        match self.place() {
            Some((segment, group)) => segment.held(group, position, self.layout()),
            None => Ok(Held::Column(self.column(position)?.clone())),
        }
    }

    fn zone(&self, position: usize) -> Option<ZoneMap> {
        let (segment, group) = self.place()?;
        // What cannot be read is found when the rows are.
        segment.index().ok()?.zone(group, self.layout().schema().columns[position].id)
    }

    fn is_key(&self, position: usize) -> bool {
        self.layout().schema().key.contains(&(position as u16))
    }
}
