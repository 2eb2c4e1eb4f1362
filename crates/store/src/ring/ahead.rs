//! The rows that leave a ring next, in the order in which they do.
//!
//! Mostly they come all at once, from a look through the oldest chunk, and leave from the front, those of a statement
//! together: a sorted queue. What comes or goes in between is kept beside it.

use std::collections::{BTreeSet, VecDeque};

use crate::horizon::Position;

/// A set of positions that is taken from its front.
#[derive(Default)]
pub(super) struct Ahead {
    /// Ascending.
    queue: VecDeque<Position>,
    /// Of the queue: those that are not in the set any more.
    gone: BTreeSet<Position>,
    /// Not of the queue.
    late: BTreeSet<Position>,
}

impl Ahead {
    /// These positions, in any order, none of them twice.
    pub fn of(mut positions: Vec<Position>) -> Ahead {
        // Runs of one series after the other, each in order: what a stable sort is quick at.
        positions.sort();
        Ahead { queue: positions.into(), ..Ahead::default() }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.queue.len() - self.gone.len() + self.late.len()
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        *self = Ahead::default();
    }

    /// Adds one, unless it is there.
    pub fn insert(&mut self, position: Position) {
        if self.late.contains(&position) || self.gone.remove(&position) {
            return;
        }
        if self.queue.back().is_none_or(|last| *last < position) {
            self.queue.push_back(position);
        } else if self.queue.binary_search(&position).is_err() {
            self.late.insert(position);
        }
    }

    /// Takes one out, if it is there.
    pub fn remove(&mut self, position: &Position) {
        if !self.late.remove(position) && self.queue.binary_search(position).is_ok() {
            self.gone.insert(position.clone());
        }
    }

    /// Takes the first `most` out; returns how many there were, and the last of them.
    pub fn pop(&mut self, most: u64) -> (u64, Option<Position>) {
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let (mut popped, mut last) = (0, None);
        while popped < most {
            if self.late.is_empty() && self.gone.is_empty() {
                let rows = self.queue.len().min(most - popped);
                last = rows.checked_sub(1).and_then(|at| self.queue.get(at)).cloned().or(last);
                self.queue.drain(..rows);
                return ((popped + rows) as u64, last);
            }
            let Some(first) = self.pop_first() else { break };
            last = Some(first);
            popped += 1;
        }
        (popped as u64, last)
    }

    /// Takes those before `end` out; returns how many there were.
    pub fn pop_before(&mut self, end: &Position) -> u64 {
        let in_queue = self.queue.partition_point(|position| position < end);
        self.queue.drain(..in_queue);
        let left = |set: &mut BTreeSet<Position>| {
            let rest = set.split_off(end);
            std::mem::replace(set, rest).len() as u64
        };
        in_queue as u64 - left(&mut self.gone) + left(&mut self.late)
    }

    fn pop_first(&mut self) -> Option<Position> {
        while let Some(first) = self.queue.front()
            && self.gone.remove(first)
        {
            self.queue.pop_front();
        }
        match (self.queue.front(), self.late.first()) {
            (Some(first), Some(late)) if late < first => self.late.pop_first(),
            (None, _) => self.late.pop_first(),
            (Some(_), _) => self.queue.pop_front(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memtable::Key;
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum Step {
        Insert(u64),
        Remove(u64),
        Pop(u64),
        PopBefore(u64),
    }

    fn at(number: u64) -> Position {
        Position { time: number / 3, key: Key::from_slice(&[(number % 3) as u8]) }
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (0u64..60).prop_map(Step::Insert),
            3 => (0u64..60).prop_map(Step::Remove),
            1 => (0u64..9).prop_map(Step::Pop),
            1 => (0u64..60).prop_map(Step::PopBefore),
        ]
    }

    proptest! {
        #[test]
        fn it_is_a_set(
            first in prop::collection::btree_set(0u64..60, 0..40),
            steps in prop::collection::vec(step(), 0..80),
        ) {
            let mut ahead = Ahead::of(first.iter().rev().map(|&n| at(n)).collect());
            let mut set = first;
            for step in steps {
                match step {
                    Step::Insert(n) => {
                        ahead.insert(at(n));
                        set.insert(n);
                    }
                    Step::Remove(n) => {
                        ahead.remove(&at(n));
                        set.remove(&n);
                    }
                    Step::Pop(most) => {
                        let popped: Vec<u64> = set.iter().copied().take(most as usize).collect();
                        popped.iter().for_each(|n| _ = set.remove(n));
                        prop_assert_eq!(ahead.pop(most), (popped.len() as u64, popped.last().map(|&n| at(n))));
                    }
                    Step::PopBefore(n) => {
                        let left = set.split_off(&n);
                        prop_assert_eq!(ahead.pop_before(&at(n)), set.len() as u64);
                        set = left;
                    }
                }
                prop_assert_eq!((ahead.len(), ahead.is_empty()), (set.len(), set.is_empty()));
            }
            let all = set.len() as u64;
            prop_assert_eq!(ahead.pop(u64::MAX), (all, set.last().map(|&n| at(n))));
        }
    }
}
