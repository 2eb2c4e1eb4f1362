//! The groups of an answer, or of a part of it: which there are, and what their aggregates have come to.
//!
//! A group is found by the numbers that its values come to: integers and bits of floats as they are, the start of a
//! bucket, the number of a byte string. Parts are joined in a fixed order, whoever computed them.

use std::sync::Arc;

use hashbrown::{HashMap, HashTable};

use super::memory::Memory;
use super::query::{Answer, Group, Query, Value};
use super::states::States;
use crate::error::{Error, Result};
use crate::limits;
use crate::memtable::Key;
use crate::schema::{Lane, Schema};

/// The groups so far.
pub struct Groups<'q> {
    query: &'q Query,
    schema: Arc<Schema>,
    /// Place of a group by its values.
    places: HashTable<u32>,
    /// `Query::groups` numbers for each group.
    values: Vec<u64>,
    /// Which of them are NULL, a bit each.
    nulls: Vec<u64>,
    /// Sort key of each group's first row.
    first: Vec<Key>,
    /// Who was the last to look whether a group's first row is one of its own.
    seen: Vec<u32>,
    states: Vec<States>,
    /// Byte strings by number, for each of `Query::groups`.
    texts: Vec<Texts>,
    /// The group that was found last.
    last: u32,
    memory: Memory,
}

#[derive(Default)]
struct Texts {
    numbers: HashMap<Arc<[u8]>, u64>,
    texts: Vec<Arc<[u8]>>,
}

impl Texts {
    fn number(&mut self, text: &[u8]) -> u64 {
        if let Some(number) = self.numbers.get(text) {
            return *number;
        }
        let number = self.texts.len() as u64;
        let text: Arc<[u8]> = text.into();
        self.texts.push(text.clone());
        self.numbers.insert(text, number);
        number
    }
}

/// A row that may be the first of a group.
pub trait FirstRow {
    /// Its sort key.
    fn key(&self) -> Result<Key>;
    /// Its value in a column.
    fn value(&self, column: usize) -> Result<Value>;
}

fn hash(values: &[u64], nulls: u64) -> u64 {
    let mix = |hash: u64, value: u64| {
        let product = u128::from(hash ^ value) * u128::from(0x9E37_79B9_7F4A_7C15_u64);
        product as u64 ^ (product >> 64) as u64
    };
    mix(values.iter().fold(nulls ^ 0x2545_F491_4F6C_DD1D, |hash, &value| mix(hash, value)), 1)
}

/// The hash of the group at a place; each has `width` values.
fn hash_of<'g>(width: usize, values: &'g [u64], nulls: &'g [u64]) -> impl Fn(&u32) -> u64 + 'g {
    move |&place| {
        let place = place as usize;
        hash(&values[place * width..(place + 1) * width], nulls[place])
    }
}

impl<'q> Groups<'q> {
    pub fn new(query: &'q Query, schema: &Arc<Schema>) -> Groups<'q> {
        Groups {
            query,
            schema: schema.clone(),
            places: HashTable::new(),
            values: Vec::new(),
            nulls: Vec::new(),
            first: Vec::new(),
            seen: Vec::new(),
            states: query.aggregates.iter().map(|&a| States::new(a, schema)).collect(),
            texts: query.groups.iter().map(|_| Texts::default()).collect(),
            last: u32::MAX,
            memory: Memory::default(),
        }
    }

    /// Adds floats one after the other.
    pub fn in_order(mut self) -> Groups<'q> {
        self.states = self.states.into_iter().map(States::in_order).collect();
        self
    }

    /// Goes on with another partition: the same query in the terms of its schema.
    pub fn go_on_with(&mut self, query: &'q Query, schema: &Arc<Schema>) {
        (self.query, self.schema) = (query, schema.clone());
    }

    pub fn len(&self) -> usize {
        self.nulls.len()
    }

    /// The number that stands for a byte string among the values of group expression `i`.
    pub fn number_of_text(&mut self, i: usize, text: &[u8]) -> u64 {
        self.texts[i].number(text)
    }

    /// The place of the group with these values, which `row` belongs to; `source` says who walks, in key order.
    #[inline]
    pub fn enter(&mut self, values: &[u64], nulls: u64, source: u32, row: &impl FirstRow) -> Result<u32> {
        let last = self.last as usize;
        let width = values.len();
        let is_last = last < self.nulls.len()
            && self.seen[last] == source
            && self.nulls[last] == nulls
            && self.values[last * width..(last + 1) * width] == *values;
        if is_last {
            return Ok(self.last);
        }
        self.last = self.find_or_add(values, nulls, source, row)?;
        Ok(self.last)
    }

    fn find_or_add(&mut self, values: &[u64], nulls: u64, source: u32, row: &impl FirstRow) -> Result<u32> {
        if let Some(place) = self.find(values, nulls) {
            if self.seen[place as usize] != source {
                self.seen[place as usize] = source;
                let key = row.key()?;
                if key < self.first[place as usize] {
                    self.first[place as usize] = key;
                    for (states, aggregate) in self.states.iter_mut().zip(&self.query.aggregates) {
                        if let (Some(first), Some(column)) = (states.first_of(place as usize), aggregate.column()) {
                            *first = row.value(column)?;
                        }
                    }
                }
            }
            return Ok(place);
        }
        let place = self.add(values, nulls, row.key()?)?;
        self.seen.push(source);
        for (states, aggregate) in self.states.iter_mut().zip(&self.query.aggregates) {
            if let (Some(first), Some(column)) = (states.first_of(place as usize), aggregate.column()) {
                *first = row.value(column)?;
            }
        }
        Ok(place)
    }

    fn find(&self, values: &[u64], nulls: u64) -> Option<u32> {
        let width = values.len();
        let is_it = |&place: &u32| {
            let place = place as usize;
            self.nulls[place] == nulls && self.values[place * width..(place + 1) * width] == *values
        };
        self.places.find(hash(values, nulls), is_it).copied()
    }

    /// Adds a group of no rows yet. The caller says who saw it.
    fn add(&mut self, values: &[u64], nulls: u64, first: Key) -> Result<u32> {
        let place = self.nulls.len();
        if place >= limits::AGGREGATE_GROUPS {
            return Err(Error::LimitExceeded {
                what: "the number of groups of an aggregate".into(),
                limit: limits::AGGREGATE_GROUPS as u64,
            });
        }
        let width = values.len();
        self.memory.take(self.bytes_of(values, nulls, &first))?;
        self.values.extend_from_slice(values);
        self.nulls.push(nulls);
        self.first.push(first);
        self.states.iter_mut().for_each(States::push);
        self.places.insert_unique(hash(values, nulls), place as u32, hash_of(width, &self.values, &self.nulls));
        Ok(place as u32)
    }

    /// Bytes that a new group takes, here and in the answer; of its texts one copy is in each.
    fn bytes_of(&self, values: &[u64], nulls: u64, first: &Key) -> u64 {
        let places = values.len() + self.states.len();
        let fixed = size_of::<Key>() + first.len() + places * (size_of::<u64>() + 2 * size_of::<Value>());
        let texts = values.iter().zip(&self.texts).enumerate().map(|(n, (&value, texts))| match nulls >> n & 1 {
            0 => texts.texts.get(value as usize).map_or(0, |text| 2 * text.len()),
            _ => 0,
        });
        (fixed + texts.sum::<usize>()) as u64
    }

    pub fn states(&mut self) -> &mut [States] {
        &mut self.states
    }

    /// Adds the groups of another part.
    pub fn join(&mut self, mut other: Groups<'q>) -> Result<()> {
        if self.len() == 0 {
            *self = other;
            return Ok(());
        }
        let width = self.query.groups.len();
        self.places.reserve(other.len(), hash_of(width, &self.values, &self.nulls));
        for i in 0..other.len() {
            let mut values: smallvec::SmallVec<[u64; 4]> = other.values[i * width..(i + 1) * width].into();
            let nulls = other.nulls[i];
            for (n, value) in values.iter_mut().enumerate() {
                if let Some(text) = other.texts[n].texts.get(*value as usize)
                    && nulls >> n & 1 == 0
                {
                    *value = self.texts[n].number(text);
                }
            }
            let first = std::mem::take(&mut other.first[i]);
            let place = match self.find(&values, nulls) {
                Some(place) => place,
                None => {
                    self.seen.push(u32::MAX);
                    self.add(&values, nulls, first.clone())?
                }
            } as usize;
            let is_first = first <= self.first[place];
            for (states, others) in self.states.iter_mut().zip(&mut other.states) {
                states.join(place, others, i, is_first);
            }
            if is_first {
                self.first[place] = first;
            }
        }
        self.last = u32::MAX;
        Ok(())
    }

    /// The answer: groups by their first rows.
    pub fn finish(mut self) -> Result<Answer> {
        if self.query.groups.is_empty() && self.len() == 0 {
            self.add(&[], 0, Key::new())?;
        }
        let mut order: Vec<u32> = (0..self.len() as u32).collect();
        // Parts come in key order, so there are long runs in order.
        order.sort_by(|&a, &b| self.first[a as usize].cmp(&self.first[b as usize]));
        let width = self.query.groups.len() + self.query.aggregates.len();
        let mut values = Vec::with_capacity(width * order.len());
        for &place in &order {
            let place = place as usize;
            for (n, group) in self.query.groups.iter().enumerate() {
                values.push(self.group_value(*group, n, place));
            }
            values.extend(self.states.iter_mut().map(|states| states.take(place)));
        }
        Ok(Answer::new(width, order.len(), values))
    }

    fn group_value(&self, group: Group, n: usize, place: usize) -> Value {
        let value = self.values[place * self.query.groups.len() + n];
        if self.nulls[place] >> n & 1 == 1 {
            return Value::Null;
        }
        match group {
            Group::Bucket { .. } => Value::Bucket(group.bucket(value)),
            Group::Column(column) => match self.schema.columns[column].lane {
                Lane::Int { .. } => Value::Int(value),
                Lane::F32 => Value::F32(value as u32),
                Lane::F64 => Value::F64(value),
                Lane::Bytes => Value::Bytes(self.texts[n].texts[value as usize].to_vec()),
            },
        }
    }
}

impl Group {
    /// The number of the bucket that a value lies in; of a column the value.
    fn bucket(self, value: u64) -> i128 {
        match self {
            Group::Column(_) => i128::from(value),
            Group::Bucket { origin, width, towards_zero, .. } => {
                let (distance, width) = (i128::from(value) - i128::from(origin), i128::from(width));
                if towards_zero { distance / width } else { distance.div_euclid(width) }
            }
        }
    }

    /// The first and the last value of the bucket that a value lies in; of a column the value.
    #[inline]
    pub fn bounds(self, value: u64) -> (u64, u64) {
        let Group::Bucket { origin, width, towards_zero, .. } = self else { return (value, value) };
        if value >= origin {
            let from = (value - origin) / width * width;
            let to = from.saturating_add(width - 1);
            // Rounded towards zero, bucket 0 reaches to both sides.
            let first = if from == 0 && towards_zero { origin.saturating_sub(width - 1) } else { origin + from };
            return (first, origin.saturating_add(to));
        }
        let distance = origin - value;
        if towards_zero {
            if distance < width {
                return (origin.saturating_sub(width - 1), origin.saturating_add(width - 1));
            }
            let last = distance / width * width;
            (origin.saturating_sub(last.saturating_add(width - 1)), origin - last)
        } else {
            let below = distance.div_ceil(width);
            let last = (below - 1) * width;
            (origin.saturating_sub(below.saturating_mul(width)), origin - last - 1)
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_bucket_is_what_lies_between_its_bounds(
            value in prop_oneof![0u64..60, (u64::MAX - 60)..=u64::MAX, any::<u64>()],
            origin in prop_oneof![0u64..60, (u64::MAX - 60)..=u64::MAX, any::<u64>()],
            width in prop_oneof![1u64..30, (u64::MAX - 9)..=u64::MAX, 1..=u64::MAX],
            towards_zero in any::<bool>(),
        ) {
            let group = Group::Bucket { column: 0, origin, width, towards_zero };
            let (first, last) = group.bounds(value);
            prop_assert!(first <= value && value <= last);
            prop_assert_eq!(group.bucket(first), group.bucket(value));
            prop_assert_eq!(group.bucket(last), group.bucket(value));
            if first > 0 {
                prop_assert!(group.bucket(first - 1) < group.bucket(value));
            }
            if last < u64::MAX {
                prop_assert!(group.bucket(last + 1) > group.bucket(value));
            }
        }
    }
}
