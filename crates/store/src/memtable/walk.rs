//! A walk over the keys of a memtable: those of its map and of its runs, merged.

use std::collections::btree_map::Range;
use std::ops::Bound;
use std::sync::Arc;

use smallvec::SmallVec;

use super::runs::Run;
use super::{Key, RowVersion, VersionRef};
use crate::batch::{KeyBytes, PackedKey, packed};
use crate::cursor::Direction;

/// The versions of a key, newest first.
pub type Versions<'a> = SmallVec<[VersionRef<'a>; 2]>;

/// A key on the way.
pub enum KeyRef<'a> {
    /// Of the map.
    Slice(&'a Key),
    /// Of runs.
    Packed(KeyBytes),
}

impl KeyRef<'_> {
    /// Its bytes.
    #[inline]
    pub fn as_slice(&self) -> &[u8] {
        match self {
            KeyRef::Slice(key) => key,
            KeyRef::Packed(key) => key,
        }
    }

    /// A copy.
    pub fn to_key(&self) -> Key {
        Key::from_slice(self.as_slice())
    }
}

/// The walk.
pub struct Walk<'a> {
    direction: Direction,
    range: Range<'a, Key, RowVersion>,
    /// What comes next of the map.
    of_map: Option<(&'a Key, &'a RowVersion)>,
    /// Runs that are not through, the one whose key comes next at the end.
    heads: Vec<Head<'a>>,
}

struct Head<'a> {
    run: &'a Run,
    key: PackedKey,
    /// The rows from here on are to come; Backward: those before.
    at: usize,
}

impl Head<'_> {
    fn look(&mut self, direction: Direction) -> bool {
        let place = match direction {
            Direction::Forward => Some(self.at),
            Direction::Backward => self.at.checked_sub(1),
        };
        let Some(&key) = place.and_then(|place| self.run.keys().get(place)) else { return false };
        self.key = key;
        true
    }
}

impl<'a> Walk<'a> {
    /// Begins at a bound.
    pub fn new(
        map: &'a std::collections::BTreeMap<Key, RowVersion>,
        runs: &'a [Arc<Run>],
        from: Bound<&[u8]>,
        direction: Direction,
    ) -> Walk<'a> {
        let bounds = match direction {
            Direction::Forward => (from, Bound::Unbounded),
            Direction::Backward => (Bound::Unbounded, from),
        };
        let mut walk = Walk { direction, range: map.range::<[u8], _>(bounds), of_map: None, heads: Vec::new() };
        walk.step_map();
        for run in runs {
            let at = match (from, direction) {
                (Bound::Unbounded, Direction::Forward) => 0,
                (Bound::Unbounded, Direction::Backward) => run.len(),
                (Bound::Included(key), _) => run.rows().keys_before(key, direction == Direction::Backward),
                (Bound::Excluded(key), _) => run.rows().keys_before(key, direction == Direction::Forward),
            };
            let mut head = Head { run, key: 0, at };
            if head.look(direction) {
                walk.heads.push(head);
            }
        }
        // The one that comes next at the end.
        match direction {
            Direction::Forward => walk.heads.sort_unstable_by_key(|head| std::cmp::Reverse(head.key)),
            Direction::Backward => walk.heads.sort_unstable_by_key(|head| head.key),
        }
        walk
    }

    fn step_map(&mut self) {
        self.of_map = match self.direction {
            Direction::Forward => self.range.next(),
            Direction::Backward => self.range.next_back(),
        };
    }

    /// The next key; its versions are put in the place of those that `versions` has.
    #[inline]
    pub fn next(&mut self, versions: &mut Versions<'a>) -> Option<KeyRef<'a>> {
        versions.clear();
        let Some(head) = self.heads.last() else {
            let (key, newest) = self.of_map?;
            versions.extend(newest.chain().map(VersionRef::of));
            self.step_map();
            return Some(KeyRef::Slice(key));
        };
        let (next, key_len) = (head.key, head.run.rows().key_len());
        if let Some((key, newest)) = self.of_map {
            let of_map = packed(key);
            let is_first = match self.direction {
                Direction::Forward => of_map <= next,
                Direction::Backward => of_map >= next,
            };
            if is_first {
                versions.extend(newest.chain().map(VersionRef::of));
                self.step_map();
            }
            if is_first && of_map != next {
                return Some(KeyRef::Slice(key));
            }
        }
        while self.heads.last().is_some_and(|head| head.key == next) {
            self.take_from_run(versions);
        }
        if versions.len() > 1 {
            versions.sort_by_key(|version| std::cmp::Reverse(version.seq));
        }
        Some(KeyRef::Packed(KeyBytes::new(next, key_len)))
    }

    /// Takes the next row of the run that is at the end, and puts the run where it belongs then.
    fn take_from_run(&mut self, versions: &mut Versions<'a>) {
        let direction = self.direction;
        let Some(head) = self.heads.last_mut() else { return };
        match direction {
            Direction::Forward => {
                versions.push(head.run.version(head.at));
                head.at += 1;
            }
            Direction::Backward => {
                head.at -= 1;
                versions.push(head.run.version(head.at));
            }
        }
        if !head.look(direction) {
            self.heads.pop();
            return;
        }
        let key = head.key;
        let is_later = |other: &Head<'_>| match direction {
            Direction::Forward => other.key > key,
            Direction::Backward => other.key < key,
        };
        let Some((_, others)) = self.heads.split_last() else { return };
        if others.last().is_some_and(|other| !is_later(other) && other.key != key) {
            let place = others.partition_point(is_later);
            self.heads[place..].rotate_right(1);
        }
    }
}
