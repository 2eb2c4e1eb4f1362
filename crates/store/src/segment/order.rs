//! The order of a group's rows: which neighbours have equal keys, and whether all ascend.
//!
//! The writer asks for equal neighbours only, a question that vectorises: most groups have none, and comparing
//! the last key part (the time) alone settles it. `verify` asks for the whole order.

use std::cmp::Ordering;

use rrd_codec::{Column, Values};

/// Whether two rows that follow each other have equal keys; `key` are the key columns, in any order.
pub(super) fn has_equal_neighbours(key: &[&Column], rows: usize) -> bool {
    let equal_in_all = |i: usize| key.iter().all(|column| compare(column, i - 1, i) == Ordering::Equal);
    match key.last().map(|column| &column.values) {
        Some(Values::Int(last)) => {
            let equal = last.windows(2).fold(0usize, |n, w| n + usize::from(w[0] == w[1]));
            equal > 0 && (1..rows).any(|i| last[i - 1] == last[i] && equal_in_all(i))
        }
        _ => (1..rows).any(equal_in_all),
    }
}

/// The first row that is not behind the one before it: smaller key, or same key and not an older version.
pub(super) fn first_out_of_order(key: &[&Column], seqs: Option<&[u64]>, rows: usize) -> Option<usize> {
    (1..rows).find(|&i| {
        let order = key.iter().map(|column| compare(column, i - 1, i)).find(|o| o.is_ne()).unwrap_or(Ordering::Equal);
        match order {
            Ordering::Less => false,
            Ordering::Equal => seqs.is_none_or(|s| s[i - 1] <= s[i]),
            Ordering::Greater => true,
        }
    })
}

fn compare(column: &Column, a: usize, b: usize) -> Ordering {
    match &column.values {
        Values::Int(v) | Values::F64(v) => v[a].cmp(&v[b]),
        Values::F32(v) => v[a].cmp(&v[b]),
        Values::Bytes(v) => v.get(a).cmp(v.get(b)),
    }
}
