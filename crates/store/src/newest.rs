//! The newest key of each series: a row behind it is new by construction.
//!
//! An entry is an upper bound of what the table holds for the series; no entry means "not known", unless the map is
//! complete. Without a time column the whole table is one series. This is what keeps unique checks on append
//! at one hash probe, which for short keys is one of numbers.
//!
//! Short series lie in the order in which they came. A client that writes many mostly writes them in the same order
//! again. Then the next series follows the last one, which the processor has fetched by then, and no probe is needed.

use std::hash::BuildHasher;
use std::sync::Arc;

use hashbrown::{DefaultHashBuilder, HashMap, HashTable};

use crate::batch::{KeyBytes, PackedKey};
use crate::limits::NEWEST_ENTRIES;
use crate::memtable::Key;

/// A part of a key of at most 15 bytes: the bytes from the top, their number in the lowest byte. Orders as the bytes do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Short(u128);

/// Instead of a rest: it is among the long ones. Greater than any that there is.
const ELSEWHERE: Short = Short(u128::MAX);

/// Bytes of the longest.
const LONGEST: usize = size_of::<u128>() - 1;

impl Short {
    /// Of these bytes; `None` if they are too many.
    #[inline]
    fn of(part: &[u8]) -> Option<Short> {
        let mut bytes = [0; LONGEST + 1];
        bytes.get_mut(..part.len()).filter(|_| part.len() <= LONGEST)?.copy_from_slice(part);
        Some(Short(u128::from_be_bytes(bytes) | part.len() as u128))
    }

    /// Of the lowest `len` bytes of a number, at most 8.
    #[inline]
    pub fn of_number(number: u64, len: usize) -> Short {
        let bits = 8 * len as u32;
        Short(u128::from(number).checked_shl(u128::BITS - bits).unwrap_or(0) | len as u128)
    }

    /// The leading `series_len` bytes of a key, at most 8, and the others, as many at most.
    #[inline]
    pub fn halves(key: PackedKey, key_len: usize, series_len: usize) -> (Short, Short) {
        let bits = 8 * series_len as u32;
        let series = key & !(u128::MAX >> bits);
        (Short(series | series_len as u128), Short(key << bits | (key_len - series_len) as u128))
    }

    /// Its bytes.
    fn bytes(self) -> KeyBytes {
        KeyBytes::new(self.0, (self.0 as u8).into())
    }
}

/// Series (leading key parts) to the largest rest of the key.
#[derive(Default)]
pub struct Newest {
    short: InOrder,
    /// Where one of them is longer.
    long: HashMap<Key, Key>,
    /// Every series of the table has an entry.
    complete: bool,
    /// Series that are being looked up.
    looked_up: Vec<LookedUp>,
}

/// A series that somebody looks up in the table meanwhile.
struct LookedUp {
    by: Arc<LookUp>,
    series: Key,
    /// The largest rest that was written since the look-up began.
    raised: Key,
}

/// A look-up of a series that is under way.
#[derive(Debug, Default)]
pub struct LookUp;

/// Where the series that is asked for next may lie.
#[derive(Clone, Copy, Default)]
pub struct Place(usize);

/// A map that remembers the order in which keys came.
#[derive(Default)]
struct InOrder {
    entries: Vec<(Short, Short)>,
    /// Their numbers, by the hash of the key.
    numbers: HashTable<u32>,
    hasher: DefaultHashBuilder,
}

impl InOrder {
    fn find(&self, series: Short) -> Option<usize> {
        let is_same = |&i: &u32| self.entries[i as usize].0 == series;
        self.numbers.find(self.hasher.hash_one(series), is_same).map(|&i| i as usize)
    }

    /// [`InOrder::find`] that looks at a place first, and moves that behind what it finds.
    #[inline]
    fn find_near(&self, series: Short, place: &mut Place) -> Option<usize> {
        let is_there = self.entries.get(place.0).is_some_and(|entry| entry.0 == series);
        let found = if is_there { place.0 } else { self.find(series)? };
        place.0 = found + 1;
        Some(found)
    }

    fn set(&mut self, series: Short, rest: Short) {
        if let Some(i) = self.find(series) {
            self.entries[i].1 = rest;
            return;
        }
        let (entries, hasher) = (&self.entries, &self.hasher);
        let hash_of = |&i: &u32| hasher.hash_one(entries[i as usize].0);
        self.numbers.insert_unique(hasher.hash_one(series), entries.len() as u32, hash_of);
        self.entries.push((series, rest));
    }
}

impl Newest {
    /// The map of an empty table, which is complete, or of one that has rows already.
    pub fn new(table_is_empty: bool) -> Newest {
        Newest { complete: table_is_empty, ..Newest::default() }
    }

    /// Calls `take` with the rest of a key (empty: there is no row) than which the series has no greater one. `None` if that
    /// has to be looked up.
    pub fn get<T>(&self, series: &[u8], take: impl FnOnce(&[u8]) -> T) -> Option<T> {
        if let Some(i) = Short::of(series).and_then(|series| self.short.find(series))
            && let (_, rest) = self.short.entries[i]
            && rest != ELSEWHERE
        {
            return Some(take(&rest.bytes()));
        }
        match self.long.get(series) {
            Some(rest) => Some(take(rest)),
            None => self.complete.then(|| take(&[])),
        }
    }

    /// Whether a row is known to be behind the newest of its series, both parts of its key being short.
    #[inline]
    pub fn is_behind(&self, series: Short, rest: Short, place: &mut Place) -> bool {
        match self.short.find_near(series, place) {
            Some(i) => rest > self.short.entries[i].1,
            None => self.complete && self.long.is_empty() && rest > Short(0),
        }
    }

    /// Notes a row that was written. An unknown series stays unknown.
    pub fn raise(&mut self, series: &[u8], rest: &[u8]) {
        match self.get(series, |newest| rest > newest) {
            Some(true) => self.set(series, rest),
            Some(false) => {}
            None => {
                let of_series = self.looked_up.iter_mut().filter(|l| *l.series == *series && *l.raised < *rest);
                of_series.for_each(|l| l.raised = Key::from_slice(rest));
            }
        }
    }

    /// Somebody begins to look a series up: what is written from now on is remembered for [`Newest::end_look_up`].
    pub fn begin_look_up(&mut self, series: &[u8]) -> Arc<LookUp> {
        let by = Arc::new(LookUp);
        self.looked_up.push(LookedUp { by: by.clone(), series: Key::from_slice(series), raised: Key::new() });
        by
    }

    /// The end of it, with the largest rest that was found. It is noted unless rows were added since that nobody noted.
    pub fn end_look_up(&mut self, by: &Arc<LookUp>, found: Option<&[u8]>) {
        let Some(place) = self.looked_up.iter().position(|l| Arc::ptr_eq(&l.by, by)) else { return };
        let LookedUp { series, raised, .. } = self.looked_up.swap_remove(place);
        if let Some(found) = found
            && self.get(&series, |_| ()).is_none()
        {
            self.set(&series, found.max(&raised));
        }
    }

    /// The same for a row whose key has short parts.
    #[inline]
    pub fn raise_short(&mut self, series: Short, rest: Short, place: &mut Place) {
        match self.short.find_near(series, place).map(|i| &mut self.short.entries[i].1) {
            Some(newest) if *newest != ELSEWHERE => *newest = rest.max(*newest),
            _ => self.raise(&series.bytes(), &rest.bytes()),
        }
    }

    /// Rows were added that nobody noted: everything has to be looked up anew, by those too who do now.
    pub fn forget(&mut self) {
        *self = Newest::default();
    }

    /// Notes the result of a look-up (or, for the map of a transaction, of its own writes).
    pub fn set(&mut self, series: &[u8], rest: &[u8]) {
        if self.short.entries.len() + self.long.len() >= NEWEST_ENTRIES {
            let looked_up = std::mem::take(&mut self.looked_up);
            *self = Newest { looked_up, ..Newest::default() };
        }
        if let (Some(series), Some(rest)) = (Short::of(series), Short::of(rest)) {
            self.short.set(series, rest);
            return;
        }
        if let Some(series) = Short::of(series).filter(|series| self.short.find(*series).is_some()) {
            self.short.set(series, ELSEWHERE);
        }
        self.long.insert(Key::from_slice(series), Key::from_slice(rest));
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;
    use crate::batch::packed;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn part() -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(prop_oneof![Just(0u8), Just(1), Just(255)], 0..3).prop_flat_map(|start| {
            prop_oneof![Just(0usize), Just(12), Just(14)].prop_map(move |more| [vec![7; more], start.clone()].concat())
        })
    }

    #[test]
    fn what_is_written_during_a_look_up_counts() {
        let newest = |newest: &Newest| newest.get(b"a", <[u8]>::to_vec);
        let mut known = Newest::new(false);
        let look_up = known.begin_look_up(b"a");
        known.raise(b"a", b"5");
        known.raise(b"a", b"4");
        known.raise(b"b", b"9");
        assert_eq!(newest(&known), None);
        known.end_look_up(&look_up, Some(b"3"));
        assert_eq!(newest(&known), Some(b"5".to_vec()));
        // Rows came that nobody noted, and somebody else begins.
        let mut known = Newest::new(false);
        let (old, failed) = (known.begin_look_up(b"a"), known.begin_look_up(b"a"));
        known.end_look_up(&failed, None);
        known.forget();
        let look_up = known.begin_look_up(b"a");
        known.end_look_up(&old, Some(b"3"));
        assert_eq!(newest(&known), None);
        known.end_look_up(&look_up, Some(b"7"));
        assert_eq!(newest(&known), Some(b"7".to_vec()));
    }

    proptest! {
        #[test]
        fn the_greatest_rest_of_each_series_is_known(
            rows in prop::collection::vec((part(), part()), 0..40),
            (series, rest) in (part(), part()),
            is_complete in any::<bool>(),
            place in 0usize..4,
        ) {
            let (mut newest, mut model) = (Newest::new(is_complete), BTreeMap::<Vec<u8>, Vec<u8>>::new());
            let mut place = Place(place);
            for (i, (series, rest)) in rows.iter().enumerate() {
                if i % 5 == 0 && !model.contains_key(series) {
                    newest.set(series, rest);
                    model.insert(series.clone(), rest.clone());
                }
                match (Short::of(series), Short::of(rest)) {
                    (Some(series), Some(rest)) if i % 2 == 0 => newest.raise_short(series, rest, &mut place),
                    _ => newest.raise(series, rest),
                }
                match model.get_mut(series) {
                    Some(known) if *known < *rest => known.clone_from(rest),
                    None if is_complete && !rest.is_empty() => _ = model.insert(series.clone(), rest.clone()),
                    _ => {}
                }
            }
            let known = newest.get(&series, <[u8]>::to_vec);
            prop_assert_eq!(&known, &model.get(&series).cloned().or(is_complete.then(Vec::new)));
            if let (Some(short_series), Some(short_rest)) = (Short::of(&series), Short::of(&rest))
                && newest.is_behind(short_series, short_rest, &mut place)
            {
                prop_assert!(known.is_some_and(|known| rest > known));
            }
        }

        #[test]
        fn short_parts_are_the_same_however_they_are_made(series in any::<u64>(), rest in any::<u64>(), a in 0usize..9, b in 0usize..9) {
            let bytes = |number: u64, len: usize| number.to_be_bytes()[8 - len..].to_vec();
            let key = [bytes(series, a), bytes(rest, b)].concat();
            let mask = |number: u64, len: usize| if len == 8 { number } else { number & ((1 << (8 * len)) - 1) };
            let expected = (Short::of(&bytes(series, a)).unwrap(), Short::of(&bytes(rest, b)).unwrap());
            prop_assert_eq!((Short::of_number(mask(series, a), a), Short::of_number(mask(rest, b), b)), expected);
            prop_assert_eq!(Short::halves(packed(&key), key.len(), a), expected);
            prop_assert_eq!(&expected.1.bytes()[..], &bytes(rest, b)[..]);
        }
    }
}
