//! Walks over what a cursor has.

use rrd_store::Cursor;

/// The rows from a cursor's place on, in row format; it is asked for `step` rows at a time.
pub fn rest_of(cursor: &mut Cursor, step: usize) -> Vec<Vec<u8>> {
    let mut rows = Vec::new();
    while let Some(span) = cursor.next_span(step).unwrap_or_else(|error| panic!("a span: {error}")) {
        for n in 0..span.rows {
            let mut row = Vec::new();
            span.group.push_row(span.row(n), &mut row).unwrap_or_else(|error| panic!("a row: {error}"));
            rows.push(row);
        }
    }
    rows
}
