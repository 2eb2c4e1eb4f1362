//! A walk over a table, row by row, on top of the store's spans.
//!
//! A span's columns are fetched once, then each row costs only the copying of the columns asked for. When the walk
//! has bounds, the rows of a span that lie within are counted once by binary search, so no row compares keys.

use std::sync::Arc;

use rrd_store::index::Index;
use rrd_store::{Cursor, Direction, Part, RowGroup, Span};

use crate::abi::RrdAhead;
use crate::ahead::Ahead;
use crate::record::Plan;
use crate::session::Session;
use crate::status::Outcome;

/// Rows of the first span after a seek, and of the longest ones: short ranges cost little, long ones go fast.
const FIRST_SPAN_ROWS: usize = 16;
const LONGEST_SPAN_ROWS: usize = 1 << 11;
/// Rows that are left of a span when records are made ahead: after a seek most readers want few.
const ROWS_AHEAD: usize = 32;
/// The same in a long walk, whose spans are short where conditions leave rows out.
const ROWS_AHEAD_OF_LONG_WALK: usize = 4;

/// The keys of a walk: `low <= key < high`; `None` is open.
#[derive(Clone, Default)]
pub struct Bounds {
    /// Smallest key.
    pub low: Option<Vec<u8>>,
    /// First key behind.
    pub high: Option<Vec<u8>>,
}

/// What the spans of a walk hold.
#[derive(Clone)]
pub enum Walk {
    /// Rows, in the order of the clustering key.
    Rows,
    /// Rows, in the order of a secondary index: one at a time.
    Indexed,
    /// Entries of a secondary index.
    Entries(Arc<Index>),
}

/// A walk over a table.
pub struct Scan {
    cursor: Cursor,
    walk: Walk,
    bounds: Bounds,
    direction: Direction,
    /// Where the walk began.
    start: Option<Vec<u8>>,
    is_start_inclusive: bool,
    span: Option<Span>,
    /// Columns of the span, one for each plan.
    columns: Vec<Part>,
    /// Records of rows to come.
    ahead: Ahead,
    /// Rows of the span that were read, but for those that were copied ahead.
    done: usize,
    /// Rows of the span that lie within the bounds.
    usable: usize,
    is_at_bound: bool,
    /// There was no further row in its direction: it stands behind the last one.
    is_over: bool,
    span_rows: usize,
    key: Vec<u8>,
}

impl Scan {
    /// A walk; seek before reading.
    pub fn new(cursor: Cursor, walk: Walk, shown: Arc<RrdAhead>) -> Scan {
        Scan {
            cursor,
            walk,
            bounds: Bounds::default(),
            direction: Direction::Forward,
            start: None,
            is_start_inclusive: true,
            span: None,
            columns: Vec::new(),
            ahead: Ahead::new(shown),
            done: 0,
            usable: 0,
            is_at_bound: false,
            is_over: false,
            span_rows: FIRST_SPAN_ROWS,
            key: Vec::new(),
        }
    }

    /// Starts over at `key` (see [`Cursor::seek`]) within bounds.
    pub fn seek(&mut self, key: Option<Vec<u8>>, inclusive: bool, direction: Direction, bounds: Bounds) -> Outcome<()> {
        self.forget_span();
        self.span_rows = if key.is_none() { LONGEST_SPAN_ROWS } else { FIRST_SPAN_ROWS };
        self.is_at_bound = false;
        self.is_over = false;
        self.direction = direction;
        self.cursor.set_bounds(bounds.low.as_deref(), bounds.high.as_deref());
        self.bounds = bounds;
        self.start = key;
        self.is_start_inclusive = inclusive;
        Ok(self.cursor.seek(self.start.as_deref(), inclusive, direction)?)
    }

    /// Begins again where it began, in what a newer cursor sees.
    pub fn start_over(&mut self, cursor: Cursor) -> Outcome<()> {
        self.cursor = cursor;
        let (start, bounds) = (self.start.take(), std::mem::take(&mut self.bounds));
        self.seek(start, self.is_start_inclusive, self.direction, bounds)
    }

    /// Goes on in what a newer cursor sees: behind the current row or, with `again`, at its place, where another row may
    /// have come.
    pub fn go_on_with(&mut self, cursor: Cursor, again: bool, direction: Direction) -> Outcome<()> {
        if self.is_over {
            self.cursor = cursor;
            return Ok(());
        }
        let mut place = Vec::new();
        let (from, inclusive) = match self.copy_place(&mut place)? {
            true => (Some(place), again),
            false => (self.start.take(), self.is_start_inclusive),
        };
        self.cursor = cursor;
        let bounds = std::mem::take(&mut self.bounds);
        let bounds = if direction == self.direction { bounds } else { Bounds::default() };
        self.seek(from, inclusive, direction, bounds)
    }

    /// Moves to the next row in `direction`, when it does not go ahead (see [`Scan::fold`]); false at the end. A change of
    /// direction goes on from the current row, or from the end that was reached, without bounds.
    pub fn step(&mut self, direction: Direction, plans: &[Plan], session: &Session) -> Outcome<bool> {
        if direction != self.direction && !self.turn(direction)? {
            return Ok(false);
        }
        while self.done == self.usable {
            if self.is_at_bound || !self.load_span(plans, session)? {
                self.is_over = true;
                return Ok(false);
            }
        }
        self.done += 1;
        Ok(true)
    }

    /// The walk no longer goes on ahead of its calls. Returns how many rows were copied since the last call.
    #[inline]
    pub fn fold(&mut self) -> usize {
        let taken = self.ahead.fold();
        self.done += taken;
        taken
    }

    /// Writes the current row into a record.
    #[inline]
    pub fn unpack(&self, plans: &[Plan], record: &mut [u8]) {
        let Some(i) = self.current() else { return };
        for (plan, part) in plans.iter().zip(&self.columns) {
            plan.unpack(part.column(), i - part.first, record);
        }
    }

    /// Makes records of the next rows, as [`Scan::unpack`] wrote the current one, if many are left.
    #[inline]
    pub fn go_ahead(&mut self, plans: &[Plan], record: &[u8]) {
        let rows = self.usable - self.done;
        let is_long_walk = self.span_rows == LONGEST_SPAN_ROWS;
        if rows < if is_long_walk { ROWS_AHEAD_OF_LONG_WALK } else { ROWS_AHEAD } {
            return;
        }
        let columns: Vec<_> = plans.iter().zip(&self.columns).collect();
        let first = self.span.as_ref().map_or(0, |span| row_of(span, self.done));
        self.ahead.make(rows, record, first, self.direction, &columns);
    }

    /// Replaces `out` by the clustering sort key of the current row; false if there is none.
    pub fn copy_key(&self, out: &mut Vec<u8>) -> Outcome<bool> {
        out.clear();
        let (Some(span), Some(i)) = (&self.span, self.current()) else { return Ok(false) };
        match &self.walk {
            Walk::Rows | Walk::Indexed => span.group.push_key(i, out)?,
            Walk::Entries(index) => {
                let mut entry = Vec::new();
                span.group.push_row(i, &mut entry)?;
                index.push_base_key(&entry, out);
            }
        }
        Ok(true)
    }

    /// Replaces `out` by the sort key that the walk is ordered by.
    fn copy_place(&self, out: &mut Vec<u8>) -> Outcome<bool> {
        out.clear();
        let (Some(span), Some(i)) = (&self.span, self.current()) else { return Ok(false) };
        match self.cursor.entry_key() {
            Some(key) => out.extend_from_slice(key),
            None => span.group.push_key(i, out)?,
        }
        Ok(true)
    }

    /// The current row's sort key in the index that the walk goes along.
    pub fn entry_key(&self) -> Option<&[u8]> {
        self.cursor.entry_key()
    }

    #[inline]
    fn current(&self) -> Option<usize> {
        let done = self.done + self.ahead.taken();
        let span = self.span.as_ref().filter(|_| done > 0)?;
        Some(row_of(span, done - 1))
    }

    fn turn(&mut self, direction: Direction) -> Outcome<bool> {
        if self.is_over {
            let (from, inclusive) = match self.direction {
                Direction::Forward => (self.bounds.high.take(), false),
                Direction::Backward => (self.bounds.low.take(), true),
            };
            self.seek(from, inclusive, direction, Bounds::default())?;
            return Ok(true);
        }
        let mut key = Vec::new();
        let found = self.copy_place(&mut key)?;
        if found {
            self.seek(Some(key), false, direction, Bounds::default())?;
        }
        Ok(found)
    }

    fn load_span(&mut self, plans: &[Plan], session: &Session) -> Outcome<bool> {
        session.check_killed()?;
        let Some(span) = self.cursor.next_span(self.span_rows)? else {
            self.is_at_bound = true;
            return Ok(false);
        };
        self.span_rows = (self.span_rows * 4).min(LONGEST_SPAN_ROWS);
        if span.rows == 0 {
            // None that meets the conditions.
            return Ok(true);
        }
        self.usable = self.count_usable(&span)?;
        self.is_at_bound = self.usable < span.rows as usize;
        self.done = 0;
        self.columns.clear();
        if self.usable > 0 {
            let (one, other) = (row_of(&span, 0), row_of(&span, self.usable - 1));
            let rows = one.min(other)..one.max(other) + 1;
            for plan in plans {
                self.columns.push(span.group.part(usize::from(plan.column), rows.clone())?);
            }
        }
        self.span = Some(span);
        Ok(true)
    }

    /// How many rows of a span come before the bound that the walk runs towards.
    fn count_usable(&mut self, span: &Span) -> Outcome<usize> {
        let rows = span.rows as usize;
        if matches!(self.walk, Walk::Indexed) {
            return Ok(rows);
        }
        let bound = match self.direction {
            Direction::Forward => self.bounds.high.as_deref(),
            Direction::Backward => self.bounds.low.as_deref(),
        };
        let Some(bound) = bound else { return Ok(rows) };
        let (mut inside, mut outside) = (0, rows + 1);
        while outside - inside > 1 {
            let middle = (inside + outside) / 2;
            self.key.clear();
            span.group.push_key(row_of(span, middle - 1), &mut self.key)?;
            let is_inside = match self.direction {
                Direction::Forward => self.key.as_slice() < bound,
                Direction::Backward => self.key.as_slice() >= bound,
            };
            if is_inside { inside = middle } else { outside = middle }
        }
        Ok(inside)
    }

    fn forget_span(&mut self) {
        self.span = None;
        self.columns.clear();
        self.fold();
        self.done = 0;
        self.usable = 0;
    }

    /// What it reads from.
    pub fn cursor(&self) -> &Cursor {
        &self.cursor
    }

    /// Group and row where the walk stands.
    pub fn position(&self) -> Option<(&Arc<RowGroup>, usize)> {
        Some((&self.span.as_ref()?.group, self.current()?))
    }
}

fn row_of(span: &Span, i: usize) -> usize {
    match span.direction {
        Direction::Forward => span.first as usize + i,
        Direction::Backward => span.first as usize - i,
    }
}
