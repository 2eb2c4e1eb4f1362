//! Random aggregate queries, answered row by row over a cursor, beside the answers of the store.

use std::collections::BTreeMap;
use std::sync::Arc;

use rrd_store::aggregate::{Aggregate, Answer, Condition, Group, Query, Value};
use rrd_store::schema::{Lane, Number};
use rrd_store::segment::zone::{f32_of_order, f64_of_order, order_f32, order_f64};
use rrd_store::{Direction, RowLayout, Table, Txn};

/// Hands out numbers below a bound.
pub type Below<'r> = &'r mut dyn FnMut(u64) -> u64;

/// Asks a few random queries and compares.
pub fn compare(txn: &mut Txn, table: &Arc<Table>, below: Below<'_>) {
    let rows = rows_of(txn, table);
    for _ in 0..3 {
        let query = match !table.schema().tiers.is_empty() && below(4) > 0 {
            true => query_of_buckets(&table.layout(), &rows, below),
            false => random_query(&table.layout(), &rows, below),
        };
        let expected = answer(&table.layout(), &query, &rows);
        let found = txn.aggregate(table, &query, &|| false).expect("an answer");
        assert_same(&found, &expected, &query);
        let other = Query { threads: 1 + (query.threads + 1) % 3, ..query.clone() };
        let again = txn.aggregate(table, &other, &|| false).expect("an answer");
        assert_eq!(found, again, "{} and {} threads: {query:?}", query.threads, other.threads);
        walk(txn, table, &query, &rows, below);
    }
}

/// A walk under the conditions of a query has exactly the rows that meet them, and some that do not.
fn walk(txn: &mut Txn, table: &Arc<Table>, query: &Query, rows: &Rows, below: Below<'_>) {
    let layout = table.layout();
    let is_within = |key: &[u8]| {
        query.low.as_deref().is_none_or(|low| key >= low) && query.high.as_deref().is_none_or(|high| key < high)
    };
    let mut cursor = txn.cursor(table).expect("a cursor");
    cursor.limit_to(&query.conditions.clone().into());
    cursor.set_bounds(query.low.as_deref(), query.high.as_deref());
    let is_forward = below(2) == 0;
    match is_forward {
        true => cursor.seek(query.low.as_deref(), true, Direction::Forward).expect("a walk"),
        false => cursor.seek(query.high.as_deref(), false, Direction::Backward).expect("a walk"),
    }
    let mut found = Rows::new();
    while let Some(span) = cursor.next_span(1 + below(300) as usize).expect("rows") {
        for n in 0..span.rows {
            let (mut key, mut row) = (Vec::new(), Vec::new());
            span.group.push_row(span.row(n), &mut row).expect("a row");
            layout.push_key(&row, &mut key);
            if is_within(&key) {
                found.push((key, row));
            }
        }
    }
    if !is_forward {
        found.reverse();
    }
    assert!(found.is_sorted_by(|a, b| a.0 < b.0), "{query:?}");
    let meets = |row: &[u8]| query.conditions.iter().all(|condition| holds(&layout, condition, row));
    let expected = rows.iter().filter(|(key, row)| is_within(key) && meets(row));
    found.retain(|(_, row)| meets(row));
    assert!(found.iter().eq(expected), "{query:?}");
}

/// (sort key, row) in key order.
type Rows = Vec<(Vec<u8>, Vec<u8>)>;

fn rows_of(txn: &mut Txn, table: &Arc<Table>) -> Rows {
    let mut cursor = txn.cursor(table).expect("a cursor");
    cursor.seek(None, true, Direction::Forward).expect("a walk");
    let layout = table.layout();
    let mut rows = Rows::new();
    while let Some(span) = cursor.next_span(1000).expect("rows") {
        for n in 0..span.rows {
            let (mut key, mut row) = (Vec::new(), Vec::new());
            span.group.push_row(span.row(n), &mut row).expect("a row");
            layout.push_key(&row, &mut key);
            rows.push((key, row));
        }
    }
    rows
}

/// The value of a lane where an order matters.
fn ordered(layout: &RowLayout, row: &[u8], column: usize) -> u64 {
    let bits = layout.view(row).int(column);
    match layout.schema().columns[column].lane {
        Lane::F32 => order_f32(bits as u32),
        Lane::F64 => order_f64(bits),
        _ => bits,
    }
}

fn lane(layout: &RowLayout, column: usize) -> Lane {
    layout.schema().columns[column].lane
}

/// A value that some row has in a column, or a number near one.
fn some_value(layout: &RowLayout, rows: &Rows, column: usize, below: Below<'_>) -> u64 {
    if rows.is_empty() || below(8) == 0 {
        return below(100);
    }
    let (_, row) = &rows[below(rows.len() as u64) as usize];
    ordered(layout, row, column).wrapping_add(below(3)).saturating_sub(1)
}

/// A query that the buckets of a tier may answer, for some of the time.
fn query_of_buckets(layout: &RowLayout, rows: &Rows, below: Below<'_>) -> Query {
    let mut query = Query { threads: below(4) as usize, ..Query::default() };
    let time = usize::from(layout.schema().time.expect("a time").column);
    let series: Vec<usize> =
        layout.schema().key[..layout.schema().series_columns()].iter().map(|&k| usize::from(k)).collect();
    let bound = |key: &[u8], below: Below<'_>| match below(2) {
        0 => layout.series_of(key).map(<[u8]>::to_vec),
        _ => Some(key.to_vec()),
    };
    if below(4) == 0 && !rows.is_empty() {
        let (at, other) = (below(rows.len() as u64) as usize, below(rows.len() as u64) as usize);
        query.low = bound(&rows[at.min(other)].0, below);
        query.high = bound(&rows[at.max(other)].0, below);
    }
    if below(3) > 0 {
        let (a, b) = (some_value(layout, rows, time, below), some_value(layout, rows, time, below));
        query.conditions.push(Condition::Range { column: time, low: a.min(b), high: a.max(b), negated: false });
    }
    if below(3) == 0
        && let Some(&column) = series.first()
    {
        let (low, high, negated) = (below(3), 2 + below(3), below(3) == 0);
        query.conditions.push(Condition::Range { column, low, high, negated });
    }
    if below(3) > 0 || series.is_empty() {
        let (origin, width) = (below(8) * 30, 60 * (1 + below(3)) / (1 + 5 * below(2)));
        query.groups.push(Group::Bucket { column: time, origin, width, towards_zero: below(2) == 0 });
    }
    if let Some(&column) = series.first().filter(|_| below(2) == 0) {
        query.groups.push(Group::Column(column));
        if below(2) == 0 {
            query.aggregates.push(Aggregate::First(column));
        }
    }
    for _ in 0..1 + below(5) {
        let number = [3, 4, 5, 7, 8][below(5) as usize];
        query.aggregates.push(match below(6) {
            0 => Aggregate::Count,
            1 => Aggregate::CountOf(number),
            2 => Aggregate::Sum(7),
            3 => Aggregate::Sum(8),
            4 => Aggregate::Min(number),
            _ => Aggregate::Max(number),
        });
    }
    query
}

fn random_query(layout: &RowLayout, rows: &Rows, below: Below<'_>) -> Query {
    let columns = layout.schema().columns.len() as u64;
    let is_bytes = |c: usize| lane(layout, c) == Lane::Bytes;
    let mut query = Query { threads: below(4) as usize, ..Query::default() };
    for bound in [&mut query.low, &mut query.high] {
        if below(4) == 0 && !rows.is_empty() {
            *bound = Some(rows[below(rows.len() as u64) as usize].0.clone());
        }
    }
    for _ in 0..below(4) {
        query.conditions.push(random_condition(layout, rows, below));
    }
    let key = &layout.schema().key;
    for _ in 0..below(3) {
        // Mostly what the rows are sorted by.
        let column = match below(3) {
            0 => below(columns) as usize,
            _ => usize::from(key[below(key.len() as u64) as usize]),
        };
        let is_int = matches!(lane(layout, column), Lane::Int { .. });
        query.groups.push(match below(2) {
            0 if is_int => {
                Group::Bucket { column, origin: below(60), width: 1 + below(20), towards_zero: below(2) == 0 }
            }
            _ => Group::Column(column),
        });
    }
    for _ in 0..below(6) {
        let column = below(columns) as usize;
        let is_number = layout.schema().columns[column].number.is_some();
        query.aggregates.push(match below(7) {
            0 => Aggregate::Count,
            1 => Aggregate::CountOf(column),
            2 | 3 if !is_bytes(column) || is_number => Aggregate::Sum(column),
            4 => Aggregate::Max(column),
            5 => Aggregate::First(column),
            _ => Aggregate::Min(column),
        });
    }
    query
}

/// A comparison, or some of them joined by OR and AND.
fn random_condition(layout: &RowLayout, rows: &Rows, below: Below<'_>) -> Condition {
    let some = |below: Below<'_>| (0..below(4)).map(|_| random_comparison(layout, rows, below)).collect::<Vec<_>>();
    match below(6) {
        0 => Condition::Any(some(below)),
        1 => Condition::Any((0..1 + below(3)).map(|_| Condition::All(some(below))).collect()),
        _ => random_comparison(layout, rows, below),
    }
}

fn random_comparison(layout: &RowLayout, rows: &Rows, below: Below<'_>) -> Condition {
    let is_bytes = |c: usize| lane(layout, c) == Lane::Bytes;
    let column = below(layout.schema().columns.len() as u64) as usize;
    let negated = below(4) == 0;
    match below(5) {
        0 => Condition::Null { column, negated },
        _ if is_bytes(column) => {
            let mut values: Vec<Vec<u8>> = Vec::new();
            for _ in 0..below(3) {
                if let Some((_, row)) = rows.get(below(rows.len() as u64 + 1) as usize) {
                    values.push(layout.view(row).bytes(column).to_vec());
                }
            }
            values.sort();
            values.dedup();
            Condition::Bytes { column, values, negated }
        }
        1 => {
            let count = below(5);
            let mut values: Vec<u64> = (0..count).map(|_| some_value(layout, rows, column, below)).collect();
            values.sort_unstable();
            values.dedup();
            Condition::In { column, values, negated }
        }
        _ => {
            let (a, b) = (some_value(layout, rows, column, below), some_value(layout, rows, column, below));
            let (low, high) = if below(10) == 0 { (a.max(b), a.min(b)) } else { (a.min(b), a.max(b)) };
            Condition::Range { column, low, high, negated }
        }
    }
}

fn holds(layout: &RowLayout, condition: &Condition, row: &[u8]) -> bool {
    let view = layout.view(row);
    let is_null = condition.column().is_some_and(|column| view.is_null(column));
    let (found, negated) = match condition {
        Condition::Null { negated, .. } => return is_null != *negated,
        Condition::Range { column, low, high, negated } => {
            let value = ordered(layout, row, *column);
            (*low <= value && value <= *high, negated)
        }
        Condition::In { column, values, negated } => (values.contains(&ordered(layout, row, *column)), negated),
        Condition::Bytes { column, values, negated } => {
            (values.iter().any(|v| v.as_slice() == view.bytes(*column)), negated)
        }
        Condition::Any(parts) => return parts.iter().any(|part| holds(layout, part, row)),
        Condition::All(parts) => return parts.iter().all(|part| holds(layout, part, row)),
    };
    !is_null && found != *negated
}

fn value_of(layout: &RowLayout, row: &[u8], column: usize) -> Value {
    let view = layout.view(row);
    match lane(layout, column) {
        _ if view.is_null(column) => Value::Null,
        Lane::Int { .. } => Value::Int(view.int(column)),
        Lane::F32 => Value::F32(view.int(column) as u32),
        Lane::F64 => Value::F64(view.int(column)),
        Lane::Bytes => Value::Bytes(view.bytes(column).to_vec()),
    }
}

fn answer(layout: &RowLayout, query: &Query, rows: &Rows) -> Vec<Vec<Value>> {
    let mut groups: Vec<(Vec<Value>, Vec<&[u8]>)> = Vec::new();
    let mut places: BTreeMap<String, usize> = BTreeMap::new();
    if query.groups.is_empty() {
        groups.push((Vec::new(), Vec::new()));
        places.insert("[]".into(), 0);
    }
    for (key, row) in rows {
        let is_within = query.low.as_ref().is_none_or(|low| key >= low) && query.high.as_ref().is_none_or(|h| key < h);
        if !is_within || !query.conditions.iter().all(|c| holds(layout, c, row)) {
            continue;
        }
        let of_group = |group: &Group| match (*group, value_of(layout, row, group.column())) {
            (Group::Bucket { origin, width, towards_zero, .. }, Value::Int(value)) => {
                let (distance, width) = (i128::from(value) - i128::from(origin), i128::from(width));
                let is_below = distance % width < 0 && !towards_zero;
                Value::Bucket(distance / width - i128::from(is_below))
            }
            (_, value) => value,
        };
        let values: Vec<Value> = query.groups.iter().map(of_group).collect();
        let next = groups.len();
        let place = *places.entry(format!("{values:?}")).or_insert(next);
        if place == next {
            groups.push((values, Vec::new()));
        }
        groups[place].1.push(row);
    }
    let finish = |(mut values, rows): (Vec<Value>, Vec<&[u8]>)| {
        values.extend(query.aggregates.iter().map(|a| aggregate(layout, a, &rows)));
        values
    };
    groups.into_iter().map(finish).collect()
}

fn aggregate(layout: &RowLayout, aggregate: &Aggregate, rows: &[&[u8]]) -> Value {
    let Some(column) = aggregate.column() else { return Value::Count(rows.len() as u64) };
    let values: Vec<Value> = rows.iter().map(|row| value_of(layout, row, column)).collect();
    let there: Vec<&Value> = values.iter().filter(|v| **v != Value::Null).collect();
    let count = there.len() as u64;
    let number = layout.schema().columns[column].number;
    match aggregate {
        Aggregate::CountOf(_) => Value::Count(count),
        Aggregate::First(_) => values.first().cloned().unwrap_or(Value::Null),
        _ if there.is_empty() => Value::Null,
        Aggregate::Sum(_) if matches!(number, Some(Number::Decimal { .. })) => {
            let Some(Number::Decimal { precision, scale }) = number else { return Value::Null };
            let mut sum = 0i128;
            there.iter().for_each(|v| sum += decimal(v, precision, scale, lane(layout, column)));
            Value::SumDecimal { sum: sum.into(), count }
        }
        Aggregate::Sum(_) => match there[0] {
            Value::Int(_) => {
                let int = |v: &&Value| if let Value::Int(v) = v { u128::from(*v) } else { 0 };
                Value::SumInt { sum: there.iter().map(int).sum(), count }
            }
            _ => Value::SumFloat { hi: there.iter().map(|v| float(v)).sum(), lo: 0.0, count },
        },
        Aggregate::Min(_) => least(there.into_iter(), false),
        _ => least(there.into_iter(), true),
    }
}

fn float(value: &Value) -> f64 {
    match *value {
        Value::F32(bits) => f64::from(f32::from_bits(bits)),
        Value::F64(bits) => f64::from_bits(bits),
        _ => 0.0,
    }
}

/// Of two digits behind and six before the point.
fn decimal(value: &Value, precision: u8, scale: u8, lane: Lane) -> i128 {
    assert_eq!((precision, scale), (8, 2), "the only kind in these tests");
    let bits = match (value, lane) {
        (Value::Int(bits), Lane::Int { width: 4 }) => *bits as u32,
        _ => panic!("no DECIMAL: {value:?}"),
    };
    let (is_negative, bits) = (bits >> 31 == 0, bits ^ 1 << 31);
    let bits = if is_negative { !bits } else { bits };
    let number = i128::from(bits >> 8) * 100 + i128::from(bits & 0xff);
    if is_negative { -number } else { number }
}

fn least<'v>(values: impl Iterator<Item = &'v Value>, largest: bool) -> Value {
    let order = |v: &Value| match v {
        Value::Int(v) => v.to_be_bytes().to_vec(),
        Value::F32(bits) => order_f32(*bits).to_be_bytes().to_vec(),
        Value::F64(bits) => order_f64(*bits).to_be_bytes().to_vec(),
        Value::Bytes(v) => v.clone(),
        _ => Vec::new(),
    };
    let found = if largest { values.max_by_key(|v| order(v)) } else { values.min_by_key(|v| order(v)) };
    found.cloned().unwrap_or(Value::Null)
}

fn assert_same(found: &Answer, expected: &[Vec<Value>], query: &Query) {
    assert_eq!(found.len(), expected.len(), "groups of {query:?}");
    for (i, (found, expected)) in found.rows().zip(expected).enumerate() {
        let same = found.len() == expected.len() && found.iter().zip(expected).all(|(a, b)| is_same(a, b));
        assert!(same, "group {i} of {query:?}:\nfound    {found:?}\nexpected {expected:?}");
    }
}

fn is_same(found: &Value, expected: &Value) -> bool {
    match (found, expected) {
        (Value::SumFloat { hi, lo, count }, Value::SumFloat { hi: expected, count: of, .. }) => {
            count == of && ((hi + lo - expected).abs() <= 1e-9 * expected.abs().max(1.0) || hi == expected)
        }
        // 0.0 and -0.0 are equal: either may be the smallest.
        (Value::F64(a), Value::F64(b)) => f64_of_order(order_f64(*a)) == f64_of_order(order_f64(*b)),
        (Value::F32(a), Value::F32(b)) => f32_of_order(order_f32(*a)) == f32_of_order(order_f32(*b)),
        _ => found == expected,
    }
}
