//! What is known of a ring's rows, in memory: how many there are and which leave next; and how that changes.
//!
//! Nothing here reads a file. What is not known is found out by a look, without a lock (`look.rs`). Meanwhile commits go on:
//! the steps that they take are kept, and taken again by what the look found.

use std::sync::Arc;

use crate::batch::Batch;
use crate::horizon::Position;
use crate::limits::RING_JOURNAL_STEPS;
use crate::memtable::Key;
use crate::row::RowLayout;

use super::ahead::Ahead;

/// The rows that are not behind the horizon.
#[derive(Default)]
pub(super) struct Counted {
    /// How many they are; `None`: to be counted.
    rows: Option<u64>,
    /// So many lie before a position: they leave next, all at once. With no position those in `ahead` do.
    before: Option<(Position, u64)>,
    /// The rows that leave after these.
    ahead: Ahead,
    /// `ahead` has all rows before this one. `None`: nothing is known.
    ahead_end: Option<Position>,
}

/// A change of what is known.
#[derive(Clone)]
pub(super) enum Step {
    /// A row comes (true) or goes.
    Row(Position, bool),
    /// New rows, none behind the horizon, and the smallest time in them.
    Batch(Arc<Batch>, Arc<RowLayout>, u64),
    /// So many new rows, none behind the horizon, of this time and later ones.
    Rows(u64, u64),
    /// The horizon moves, over so many rows if that is known.
    Pass(Position, Option<u64>),
    /// Nobody knows what changed.
    Unknown,
}

/// The steps since a look began.
#[derive(Default)]
pub(super) struct Journal {
    steps: Vec<Step>,
    /// What the look finds says nothing any more.
    is_void: bool,
}

impl Journal {
    /// Keeps one.
    pub fn push(&mut self, step: Step) {
        if matches!(step, Step::Unknown) || self.steps.len() >= RING_JOURNAL_STEPS {
            *self = Journal { steps: Vec::new(), is_void: true };
        }
        if !self.is_void {
            self.steps.push(step);
        }
    }

    /// The steps; `None` if they do not tell what changed.
    pub fn into_steps(self) -> Option<Vec<Step>> {
        (!self.is_void).then_some(self.steps)
    }
}

impl Counted {
    /// So many rows, of which these leave next: so many before a position, then those of a queue that has all up to its end.
    pub fn new(rows: u64, before: Option<(Position, u64)>, ahead: (Ahead, Option<Position>)) -> Counted {
        let (ahead, ahead_end) = ahead;
        Counted { rows: Some(rows), before, ahead, ahead_end }
    }

    /// How many rows there are.
    pub fn rows(&self) -> Option<u64> {
        self.rows
    }

    /// How many of them can leave without a look.
    pub fn known_to_leave(&self) -> u64 {
        self.before.as_ref().map_or(0, |(_, rows)| *rows) + self.ahead.len() as u64
    }

    fn forget_next(&mut self) {
        self.before = None;
        self.ahead.clear();
        self.ahead_end = None;
    }

    fn is_covered(&self, position: &Position) -> bool {
        self.ahead_end.as_ref().is_some_and(|end| position < end)
    }

    /// Takes a step, and gives it back with what it says to whoever knows less.
    pub fn take(&mut self, step: Step, journal: Option<&mut Journal>) {
        let step = match step {
            Step::Pass(to, rows) => {
                let rows = self.pass(&to, rows);
                Step::Pass(to, rows)
            }
            Step::Row(ref position, added) => {
                self.note(position, added);
                step
            }
            Step::Batch(ref batch, ref layout, first) => {
                self.note_batch(batch, layout, first);
                step
            }
            Step::Rows(rows, from) => {
                self.rows = self.rows.map(|known| known + rows);
                if self.knows_of(from) {
                    self.forget_next();
                }
                step
            }
            Step::Unknown => {
                *self = Counted::default();
                step
            }
        };
        if let Some(journal) = journal {
            journal.push(step);
        }
    }

    /// Whether rows of this time and later ones may be among those that leave next.
    fn knows_of(&self, time: u64) -> bool {
        let is_among = |end: &Position| time <= end.time;
        self.ahead_end.as_ref().is_some_and(is_among) || self.before.as_ref().is_some_and(|(end, _)| is_among(end))
    }

    fn note(&mut self, position: &Position, added: bool) {
        let change = if added { 1 } else { -1 };
        if let Some(rows) = &mut self.rows {
            *rows = rows.saturating_add_signed(change);
        }
        if let Some((_, rows)) = self.before.as_mut().filter(|(end, _)| position < end) {
            *rows = rows.saturating_add_signed(change);
        } else if self.is_covered(position) {
            match added {
                true => self.ahead.insert(position.clone()),
                false => self.ahead.remove(position),
            }
        }
    }

    fn note_batch(&mut self, batch: &Batch, layout: &RowLayout, first: u64) {
        if !self.knows_of(first) {
            self.rows = self.rows.map(|rows| rows + batch.len() as u64);
            return;
        }
        for i in 0..batch.len() {
            let key = Key::from_slice(&batch.key(i));
            self.note(&Position { time: layout.time_of_key(&key).unwrap_or(0), key }, true);
        }
    }

    /// The horizon moves to a position; returns over how many rows, if that was or is known.
    fn pass(&mut self, to: &Position, known: Option<u64>) -> Option<u64> {
        let is_covered = self.ahead_end.as_ref().is_some_and(|end| to <= end);
        let passed = match self.before.take() {
            // Only some of these rows.
            Some((end, rows)) if *to < end => {
                if let Some(passed) = known {
                    self.before = Some((end, rows.saturating_sub(passed)));
                }
                None
            }
            Some((end, rows)) if *to == end || is_covered => Some(rows + self.ahead.pop_before(to)),
            None if is_covered => Some(self.ahead.pop_before(to)),
            _ => None,
        };
        let passed = known.or(passed);
        self.rows = self.rows.zip(passed).map(|(rows, passed)| rows.saturating_sub(passed));
        if self.rows.is_none() || (!is_covered && self.before.is_none()) {
            self.forget_next();
        }
        passed.filter(|_| self.rows.is_some())
    }

    /// Lets at most so many rows go, of those that leave next: where the horizon is then, and how many they are.
    pub fn let_go(&mut self, most: u64) -> Option<(Position, u64)> {
        let (mut to, mut left) = (None, 0);
        match self.before.take() {
            Some((_, rows)) if rows > most => self.forget_next(),
            Some((end, rows)) => (to, left) = (Some(end), rows),
            None => {}
        }
        let (popped, last) = self.ahead.pop(most - left);
        let to = last.map(Position::next).or(to)?;
        self.rows = self.rows.map(|rows| rows.saturating_sub(left + popped));
        Some((to, left + popped))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Change {
        Insert(u64),
        Remove(u64),
        Pass(u64),
        LetGo(u64),
    }

    fn at(number: u64) -> Position {
        Position { time: number / 3, key: Key::from_slice(&[(number % 3) as u8]) }
    }

    fn change() -> impl Strategy<Value = Change> {
        prop_oneof![
            5 => (0u64..90).prop_map(Change::Insert),
            4 => (0u64..90).prop_map(Change::Remove),
            1 => (0u64..60).prop_map(Change::Pass),
            1 => (1u64..12).prop_map(Change::LetGo),
        ]
    }

    /// The truth: the rows that there are, and where the horizon is.
    #[derive(Clone, Default)]
    struct Rows {
        there: BTreeSet<u64>,
        horizon: u64,
    }

    impl Rows {
        fn pass(&mut self, to: u64) {
            self.horizon = to;
            self.there = self.there.split_off(&to);
        }

        fn number_of(position: &Position) -> u64 {
            position.time * 3
                + position.key.iter().fold(0, |n, &byte| n + u64::from(byte))
                + (position.key.len() as u64).saturating_sub(1)
        }

        /// What a look finds: so many rows before a position, and some behind it.
        fn look(&self, before: usize, ahead: usize) -> Counted {
            let mut rows = self.there.iter().copied();
            let end = self.there.iter().copied().nth(before).filter(|_| before > 0).map(|end| (at(end), before as u64));
            if end.is_some() {
                rows.nth(before - 1);
            }
            let ahead: Vec<u64> = rows.by_ref().take(ahead).collect();
            let ahead_end = match rows.next() {
                Some(next) => at(next),
                None => at(1000),
            };
            let ahead = Ahead::of(ahead.into_iter().map(at).collect());
            Counted::new(self.there.len() as u64, end, (ahead, Some(ahead_end)))
        }

        fn check(&self, counted: &Counted) -> std::result::Result<(), TestCaseError> {
            prop_assert!(counted.rows().is_none_or(|rows| rows == self.there.len() as u64));
            Ok(())
        }
    }

    proptest! {
        /// Whenever a look begins and whatever happens until it ends, it says the same as the rows themselves.
        #[test]
        fn steps_beside_a_look_are_taken_again(
            first in prop::collection::btree_set(0u64..90, 0..60),
            (before, ahead, again) in (0usize..12, 0usize..12, 0usize..12),
            changes in prop::collection::vec(change(), 0..60),
            look_at in 0usize..60,
        ) {
            let mut rows = Rows { there: first, horizon: 0 };
            let mut counted = rows.look(again, ahead);
            let mut found = None;
            for (number, change) in changes.into_iter().enumerate() {
                if number == look_at {
                    found = Some((rows.look(before, ahead), Journal::default()));
                }
                let mut journal = found.as_mut().map(|(_, journal)| journal);
                match change {
                    Change::Insert(n) if n >= rows.horizon && rows.there.insert(n) => {
                        counted.take(Step::Row(at(n), true), journal);
                    }
                    Change::Remove(n) if rows.there.remove(&n) => counted.take(Step::Row(at(n), false), journal),
                    Change::Pass(to) if to > rows.horizon => {
                        rows.pass(to);
                        counted.take(Step::Pass(at(to), None), journal);
                    }
                    Change::LetGo(most) => {
                        if let Some((to, left)) = counted.let_go(most) {
                            let there = rows.there.len() as u64;
                            rows.pass(Rows::number_of(&to));
                            prop_assert_eq!(there - left, rows.there.len() as u64);
                            prop_assert!(left <= most);
                            if let Some(journal) = &mut journal {
                                journal.push(Step::Pass(to, Some(left)));
                            }
                        }
                    }
                    _ => {}
                }
                rows.check(&counted)?;
            }
            let Some((mut found, journal)) = found else { return Ok(()) };
            for step in journal.into_steps().unwrap_or_default() {
                found.take(step, None);
            }
            rows.check(&found)?;
            let mut left = 0;
            while let Some((to, more)) = found.let_go(3) {
                left += more;
                let there = rows.there.len() as u64;
                rows.pass(Rows::number_of(&to));
                prop_assert_eq!(there - more, rows.there.len() as u64, "after {} rows", left);
                rows.check(&found)?;
            }
        }
    }
}
