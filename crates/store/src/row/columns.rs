//! Rows to columns and back: what a segment is written from, and what reads of a memtable decode.
//!
//! All columns at once are taken in blocks of rows that stay in the processor's first cache, column by column within
//! a block: rows that are written in key order lie all over the memory that they arrived in.

use rrd_codec::{Bitmap, BytesColumn, Column, Values};

use super::{RowLayout, Slot, read_int, read_u32};
use crate::schema::Lane;

/// Rows of a block.
const BLOCK_ROWS: usize = 128;

impl RowLayout {
    /// Turns rows into one column, for position `column`.
    pub fn gather<'r>(&self, column: usize, rows: impl ExactSizeIterator<Item = &'r [u8]>) -> Column {
        let rows: Vec<&[u8]> = rows.collect();
        let mut gathered = self.empty(column, rows.len());
        self.extend(column, &rows, 0, rows.len(), &mut gathered);
        gathered
    }

    /// Turns rows into all columns, in schema order.
    pub fn gather_all(&self, rows: &[&[u8]]) -> Vec<Column> {
        let mut columns: Vec<Column> = (0..self.slots.len()).map(|column| self.empty(column, rows.len())).collect();
        for (i, block) in rows.chunks(BLOCK_ROWS).enumerate() {
            for (position, column) in columns.iter_mut().enumerate() {
                self.extend(position, block, i * BLOCK_ROWS, rows.len(), column);
            }
        }
        columns
    }

    fn empty(&self, column: usize, rows: usize) -> Column {
        let values = match self.slots[column].lane {
            Lane::Int { .. } => Values::Int(Vec::with_capacity(rows)),
            Lane::F32 => Values::F32(Vec::with_capacity(rows)),
            Lane::F64 => Values::F64(Vec::with_capacity(rows)),
            Lane::Bytes => Values::Bytes(BytesColumn::new()),
        };
        Column { values, nulls: None }
    }

    /// Appends the values of some rows, the first of which is number `first` of `total`.
    fn extend(&self, position: usize, rows: &[&[u8]], first: usize, total: usize, column: &mut Column) {
        if self.schema.columns[position].nullable {
            let (byte, mask) = (position / 8, 1u8 << (position % 8));
            for (i, _) in rows.iter().enumerate().filter(|(_, row)| row[byte] & mask != 0) {
                column.nulls.get_or_insert_with(|| Bitmap::new(total)).set(first + i);
            }
        }
        let Slot { offset, lane, .. } = self.slots[position];
        match (&mut column.values, lane) {
            (Values::Int(out), Lane::Int { width }) => match width {
                // The usual widths are known to the compiler.
                1 => out.extend(rows.iter().map(|row| u64::from(row[offset]))),
                4 => out.extend(rows.iter().map(|row| read_int(row, offset, 4))),
                8 => out.extend(rows.iter().map(|row| read_int(row, offset, 8))),
                width => out.extend(rows.iter().map(|row| read_int(row, offset, width))),
            },
            (Values::F32(out), _) => out.extend(rows.iter().map(|row| read_u32(row, offset))),
            (Values::F64(out), _) => out.extend(rows.iter().map(|row| read_int(row, offset, 8))),
            (Values::Bytes(out), _) => rows.iter().for_each(|row| out.push(self.view(row).bytes(position))),
            (values, lane) => debug_assert!(false, "{:?} for a lane {lane:?}", values.kind()),
        }
    }

    /// Writes row `i` of decoded columns (all of them, in schema order) as row bytes.
    pub fn push_row_of_columns<'c>(&self, column: impl Fn(usize) -> &'c Column, i: usize, out: &mut Vec<u8>) {
        let mut writer = self.writer(out);
        for c in 0..self.slots.len() {
            let col = column(c);
            if col.is_null(i) {
                writer.set_null(c);
                continue;
            }
            match &col.values {
                Values::Int(v) => writer.set_int(c, v[i]),
                Values::F32(v) => writer.set_f32_bits(c, v[i]),
                Values::F64(v) => writer.set_f64_bits(c, v[i]),
                Values::Bytes(b) => writer.push_bytes(c, b.get(i)),
            }
        }
        writer.finish();
    }
}
