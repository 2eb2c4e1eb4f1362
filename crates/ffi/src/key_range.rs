//! The keys that conditions leave: from what columns may be to ranges of the clustering key.
//!
//! Leading columns with a few values give a range for each combination of them, the first column with a span ends the
//! matter. What the ranges let through is looked at again by the conditions, so they may be wide, but never narrow.

use rrd_store::aggregate::Condition;
use rrd_store::key;
use rrd_store::schema::Lane;

/// Ranges at most: more values of a column are treated as the span between the least and the largest.
const MAX_RANGES: usize = 256;

/// Keys from the first (included) to the second (excluded; `None`: to the end).
pub type KeyRange = (Vec<u8>, Option<Vec<u8>>);

/// What a key column may be.
#[derive(Debug, PartialEq)]
enum Allowed {
    Anything,
    Values(Vec<u64>),
    Texts(Vec<Vec<u8>>),
    /// Both ends included.
    Span(u64, u64),
}

/// The ranges, ascending and apart; none if no key can hold. `key` is the columns of the clustering key.
pub fn key_ranges(key: &[(usize, Lane)], conditions: &[Condition]) -> Vec<KeyRange> {
    let mut prefixes = vec![Vec::new()];
    for &(column, lane) in key {
        let width = match lane {
            Lane::Int { width } => width,
            _ => 0,
        };
        let allowed = match allowed(column, conditions) {
            Allowed::Values(values) if prefixes.len() * values.len() > MAX_RANGES => span_of(&values),
            allowed => allowed,
        };
        match allowed {
            Allowed::Values(values) => {
                prefixes = each(&prefixes, &values, |key, &value| key::push_int(key, value, width));
            }
            Allowed::Texts(texts) if prefixes.len() * texts.len() <= MAX_RANGES => {
                prefixes = each(&prefixes, &texts, |key, text| key::push_bytes(key, text));
            }
            Allowed::Span(low, high) => {
                let spans = prefixes
                    .iter()
                    .map(|prefix| (with(prefix, low, width), key::prefix_end(&with(prefix, high, width))));
                return if low > high { Vec::new() } else { spans.collect() };
            }
            Allowed::Anything | Allowed::Texts(_) => break,
        }
    }
    prefixes
        .into_iter()
        .map(|prefix| {
            let end = key::prefix_end(&prefix);
            (prefix, end)
        })
        .collect()
}

fn with(prefix: &[u8], value: u64, width: u8) -> Vec<u8> {
    let mut key = prefix.to_vec();
    key::push_int(&mut key, value, width);
    key
}

fn each<T>(prefixes: &[Vec<u8>], values: &[T], push: impl Fn(&mut Vec<u8>, &T)) -> Vec<Vec<u8>> {
    let mut keys = Vec::with_capacity(prefixes.len() * values.len());
    for prefix in prefixes {
        for value in values {
            let mut key = prefix.clone();
            push(&mut key, value);
            keys.push(key);
        }
    }
    keys
}

fn span_of(values: &[u64]) -> Allowed {
    match (values.first(), values.last()) {
        (Some(&low), Some(&high)) => Allowed::Span(low, high),
        _ => Allowed::Values(Vec::new()),
    }
}

/// What all conditions together leave of a column.
fn allowed(column: usize, conditions: &[Condition]) -> Allowed {
    conditions.iter().map(|condition| allowed_by(column, condition)).fold(Allowed::Anything, both)
}

fn allowed_by(column: usize, condition: &Condition) -> Allowed {
    match condition {
        Condition::All(parts) => allowed(column, parts),
        Condition::Any(parts) => {
            parts.iter().map(|part| allowed_by(column, part)).reduce(either).unwrap_or(Allowed::Values(Vec::new()))
        }
        other if other.column() != Some(column) => Allowed::Anything,
        Condition::Range { low, high, negated: false, .. } if low == high => Allowed::Values(vec![*low]),
        Condition::Range { low, high, negated: false, .. } => Allowed::Span(*low, *high),
        Condition::In { values, negated: false, .. } => Allowed::Values(values.clone()),
        Condition::Bytes { values, negated: false, .. } => Allowed::Texts(values.clone()),
        _ => Allowed::Anything,
    }
}

/// What both leave.
fn both(a: Allowed, b: Allowed) -> Allowed {
    match (a, b) {
        (Allowed::Anything, one) | (one, Allowed::Anything) => one,
        (Allowed::Texts(mut texts), Allowed::Texts(others)) => {
            texts.retain(|text| others.binary_search(text).is_ok());
            Allowed::Texts(texts)
        }
        (Allowed::Texts(texts), _) | (_, Allowed::Texts(texts)) => Allowed::Texts(texts),
        (Allowed::Values(mut values), Allowed::Values(others)) => {
            values.retain(|value| others.binary_search(value).is_ok());
            Allowed::Values(values)
        }
        (Allowed::Values(mut values), Allowed::Span(low, high))
        | (Allowed::Span(low, high), Allowed::Values(mut values)) => {
            values.retain(|value| (low..=high).contains(value));
            Allowed::Values(values)
        }
        (Allowed::Span(a, b), Allowed::Span(c, d)) => match (a.max(c), b.min(d)) {
            (low, high) if low == high => Allowed::Values(vec![low]),
            (low, high) => Allowed::Span(low, high),
        },
    }
}

/// What one of both leaves.
fn either(a: Allowed, b: Allowed) -> Allowed {
    let merged = |values: &mut Vec<u64>, others: Vec<u64>| {
        values.extend(others);
        values.sort_unstable();
        values.dedup();
    };
    match (a, b) {
        (Allowed::Values(mut values), Allowed::Values(others)) => {
            merged(&mut values, others);
            Allowed::Values(values)
        }
        (Allowed::Texts(mut texts), Allowed::Texts(others)) => {
            texts.extend(others);
            texts.sort_unstable();
            texts.dedup();
            Allowed::Texts(texts)
        }
        (Allowed::Values(values), Allowed::Span(low, high)) | (Allowed::Span(low, high), Allowed::Values(values)) => {
            match (values.first(), values.last()) {
                (Some(&first), Some(&last)) if low <= high => Allowed::Span(low.min(first), high.max(last)),
                (Some(_), _) => Allowed::Values(values),
                _ => Allowed::Span(low, high),
            }
        }
        (Allowed::Span(a, b), Allowed::Span(c, d)) => match (a <= b, c <= d) {
            (true, true) => Allowed::Span(a.min(c), b.max(d)),
            (true, false) => Allowed::Span(a, b),
            _ => Allowed::Span(c, d),
        },
        _ => Allowed::Anything,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERIES: (usize, Lane) = (0, Lane::Int { width: 1 });
    const TIME: (usize, Lane) = (1, Lane::Int { width: 2 });
    const NAME: (usize, Lane) = (2, Lane::Bytes);

    fn range(column: usize, low: u64, high: u64) -> Condition {
        Condition::Range { column, low, high, negated: false }
    }

    fn one_of(column: usize, values: &[u64]) -> Condition {
        Condition::In { column, values: values.to_vec(), negated: false }
    }

    fn key(bytes: &[u8]) -> Vec<u8> {
        bytes.to_vec()
    }

    #[test]
    fn what_says_nothing_of_the_key_leaves_all_keys() {
        let negated = Condition::Range { column: 0, low: 1, high: 2, negated: true };
        for conditions in [vec![], vec![range(7, 1, 2)], vec![negated], vec![range(1, 1, 2)]] {
            assert_eq!(key_ranges(&[SERIES, TIME], &conditions), [(vec![], None)]);
        }
    }

    #[test]
    fn a_series_and_a_span_of_time_are_one_range() {
        let found = key_ranges(&[SERIES, TIME], &[range(0, 5, 5), range(1, 0x100, 0x1ff)]);
        assert_eq!(found, [(key(&[5, 1, 0]), Some(key(&[5, 2])))]);
    }

    #[test]
    fn each_of_several_series_has_a_range() {
        let found = key_ranges(&[SERIES, TIME], &[one_of(0, &[3, 9]), range(1, 2, 4), range(1, 0, 3)]);
        let of = |series| (key(&[series, 0, 2]), Some(key(&[series, 0, 4])));
        assert_eq!(found, [of(3), of(9)]);
    }

    #[test]
    fn values_that_conditions_do_not_agree_on_are_left_out() {
        let found = key_ranges(&[SERIES], &[one_of(0, &[1, 3, 9]), one_of(0, &[3, 4, 9]), range(0, 0, 8)]);
        assert_eq!(found, [(key(&[3]), Some(key(&[4])))]);
        assert_eq!(key_ranges(&[SERIES], &[range(0, 0, 3), range(0, 4, 9)]), []);
        assert_eq!(key_ranges(&[SERIES], &[one_of(0, &[])]), []);
    }

    #[test]
    fn the_last_key_has_no_end() {
        assert_eq!(key_ranges(&[SERIES], &[range(0, 7, 255)]), [(key(&[7]), None)]);
    }

    #[test]
    fn too_many_values_are_a_span() {
        let many: Vec<u64> = (1..300).map(|n| n * 2).collect();
        let found = key_ranges(&[TIME, SERIES], &[one_of(1, &many), range(0, 1, 1)]);
        assert_eq!(found, [(key(&[0, 2]), Some(key(&[2, 0x57])))]);
    }

    #[test]
    fn what_one_of_several_conditions_leaves_is_left() {
        let of = |series, from, to| Condition::All(vec![range(0, series, series), range(1, from, to)]);
        let either = Condition::Any(vec![of(3, 2, 4), of(9, 7, 8)]);
        let span = |series| (key(&[series, 0, 2]), Some(key(&[series, 0, 9])));
        assert_eq!(key_ranges(&[SERIES, TIME], &[either]), [span(3), span(9)]);
        let of_another = Condition::Any(vec![range(0, 3, 3), range(7, 1, 2)]);
        assert_eq!(key_ranges(&[SERIES], &[of_another]), [(vec![], None)]);
        assert_eq!(key_ranges(&[SERIES], &[Condition::Any(vec![])]), []);
        let spans = Condition::Any(vec![range(0, 1, 3), range(0, 9, 9)]);
        assert_eq!(key_ranges(&[SERIES], &[spans]), [(key(&[1]), Some(key(&[10])))]);
    }

    #[test]
    fn texts_end_where_the_key_has_their_end() {
        let name = Condition::Bytes { column: 2, values: vec![b"a".to_vec()], negated: false };
        let found = key_ranges(&[NAME, TIME], &[name, range(1, 1, 1)]);
        assert_eq!(found, [(key(b"a\0\0\0\x01"), Some(key(b"a\0\0\0\x02")))]);
    }
}
