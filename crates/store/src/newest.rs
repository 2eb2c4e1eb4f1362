//! The newest key of each series: a row behind it is new by construction.
//!
//! An entry is an upper bound of what the table holds for the series; no entry means "not known", unless the map is
//! complete. Without a time column the whole table is one series. This is what keeps unique checks on append
//! at one hash probe.

use hashbrown::HashMap;

use crate::limits::NEWEST_ENTRIES;
use crate::memtable::Key;

/// Series (leading key parts) to the largest rest of the key.
#[derive(Default)]
pub struct Newest {
    map: HashMap<Key, Key>,
    /// Every series of the table has an entry.
    complete: bool,
}

/// What is known of a series.
pub enum Known<'a> {
    /// No row has a greater rest of the key than this one (empty: there is no row).
    UpTo(&'a [u8]),
    /// Has to be looked up.
    Unknown,
}

impl Newest {
    /// The map of an empty table, which is complete, or of one that has rows already.
    pub fn new(table_is_empty: bool) -> Newest {
        Newest { map: HashMap::new(), complete: table_is_empty }
    }

    /// What is known of `series`.
    pub fn get(&self, series: &[u8]) -> Known<'_> {
        match self.map.get(series) {
            Some(rest) => Known::UpTo(rest),
            None if self.complete => Known::UpTo(&[]),
            None => Known::Unknown,
        }
    }

    /// Notes a row that was written. An unknown series stays unknown.
    pub fn raise(&mut self, series: &[u8], rest: &[u8]) {
        if let Some(newest) = self.map.get_mut(series) {
            if rest > newest.as_slice() {
                newest.clear();
                newest.extend_from_slice(rest);
            }
        } else if self.complete {
            self.set(series, rest);
        }
    }

    /// Rows were added that nobody noted: everything has to be looked up anew.
    pub fn forget(&mut self) {
        self.map.clear();
        self.complete = false;
    }

    /// Notes the result of a look-up (or, for the map of a transaction, of its own writes).
    pub fn set(&mut self, series: &[u8], rest: &[u8]) {
        if self.map.len() >= NEWEST_ENTRIES {
            self.map = HashMap::new();
            self.complete = false;
        }
        self.map.insert(Key::from_slice(series), Key::from_slice(rest));
    }
}
