//! Rows of numbers, for tables whose columns are integers.

use rrd_store::Table;

/// A row of a table in row format; there is a number for each column.
pub fn row_of(table: &Table, numbers: &[u64]) -> Vec<u8> {
    let mut row = Vec::new();
    let layout = table.layout();
    let mut writer = layout.writer(&mut row);
    numbers.iter().enumerate().for_each(|(column, &number)| writer.set_int(column, number));
    writer.finish();
    row
}
