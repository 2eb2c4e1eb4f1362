//! Looks: what a ring has to know and only files can tell is found without a lock.
//!
//! A look reads a table as it was after some commit. What later commits do is kept meanwhile, and added to what was found: so
//! it says the same as if nobody had committed. One look at a time is made for a table. `MAX_ROWS` looks before a commit whose
//! rows could need it. A statement that left more rows than the ring holds looks afterwards, and moves the horizon by a commit
//! without rows, before it ends.

use std::sync::Arc;

use crate::engine::Engine;
use crate::error::Result;
use crate::table::Table;

use super::RingState;
use super::counted::Journal;
use super::rows::{RowsThen, look_for_rows};
use super::series::SeriesLook;

/// What is to be found.
enum Look {
    Series(SeriesLook, u64),
    /// Beside the rows there are, so many come soon; they were counted, perhaps; the most that there may be.
    Rows(u64, Option<u64>, u64),
}

impl RingState {
    /// Whether it is not known which rows leave when so many come.
    fn is_short_of(&self, more: u64, max_rows: u64) -> bool {
        let enough = max_rows.saturating_add(self.counted.known_to_leave());
        self.due_series.is_empty() && self.counted.rows().is_none_or(|rows| rows.saturating_add(more) > enough)
    }
}

impl Engine {
    /// Before a commit that brings up to so many rows: looks which ones leave for them, unless that is known.
    pub(crate) fn look_before(&self, table: &Table, rows: u64) {
        let Some(max_rows) = table.schema().ring.max_rows else { return };
        let is_short = || table.ring.lock().is_short_of(rows, max_rows);
        if !is_short() {
            return;
        }
        let _one = table.ring_look.lock();
        if is_short()
            && let Err(error) = self.look(table, rows)
        {
            note_failed(table, &error);
        }
    }

    /// After a commit: looks which rows have to leave, until the ring has no more than it holds. Without locks.
    pub(crate) fn settle_due(&self, table: &Arc<Table>) {
        while is_due(table) {
            self.pause_points.pass("a ring has to look");
            let _one = table.ring_look.lock();
            self.settle_once(table);
        }
    }

    /// The same in the background: nothing is done if somebody looks.
    pub(crate) fn settle_left(&self, table: &Arc<Table>) {
        if is_due(table)
            && let Some(_one) = table.ring_look.try_lock()
        {
            self.settle_once(table);
        }
    }

    /// Looks, and lets go what can go then.
    fn settle_once(&self, table: &Arc<Table>) {
        if !is_due(table) {
            return;
        }
        let settled = self.look(table, 0).and_then(|()| self.move_horizon(table));
        if let Err(error) = settled {
            // Damage, most likely: the commit stands, the ring is counted anew with the next one.
            note_failed(table, &error);
        }
    }

    /// Finds what is due, or which rows leave when so many come.
    fn look(&self, table: &Table, more: u64) -> Result<()> {
        let (layout, version, snapshot, look) = {
            // All of a commit is seen, or kept as a step.
            let _turn = self.apply_turn.lock();
            let layout = table.layout();
            let ring = layout.schema().ring;
            let mut state = table.ring.lock();
            let look = match (ring.series_max_rows, ring.max_rows) {
                (Some(max), _) if !state.due_series.is_empty() => {
                    Look::Series(state.due_series.look(&state.series), max)
                }
                (_, Some(max)) => Look::Rows(more, state.counted.rows(), max),
                _ => {
                    // Another rule than when it became due.
                    state.forget();
                    return Ok(());
                }
            };
            state.found = None;
            state.journal = Some(Journal::default());
            (layout, table.version(), self.take_snapshot(), look)
        };
        self.pause_points.pass("a ring looks");
        let then = RowsThen { version: &version, layout: &layout, snapshot: &snapshot };
        match look {
            Look::Series(series, max) => {
                let found = series.find(&then, max)?;
                let mut state = table.ring.lock();
                // The journal goes on until a commit raises the floors.
                state.found = state.journal.is_some().then_some(found);
            }
            Look::Rows(more, counted, max_rows) => {
                let mut found = look_for_rows(&then, counted, (more, max_rows), self.tuning.ring_ahead)?;
                let mut state = table.ring.lock();
                let Some(steps) = state.journal.take().and_then(Journal::into_steps) else { return Ok(()) };
                steps.into_iter().for_each(|step| found.take(step, None));
                state.counted = found;
            }
        }
        Ok(())
    }
}

fn is_due(table: &Table) -> bool {
    !table.is_dropped() && table.ring.lock().is_due()
}

fn note_failed(table: &Table, error: &crate::Error) {
    tracing::error!(table = table.name(), %error, "could not make room in the ring");
    table.ring.lock().forget();
}
