//! A column of a block of rows, as the loops of an aggregate read it.

use rrd_codec::{Bitmap, BytesColumn, Column, Pieces, Values};

use super::query::{Value, Wide};
use crate::schema::{ColumnDef, Lane};
use crate::segment::Held;
use crate::tier::{number_of_bits, number_of_bytes};

/// The values of a column.
#[derive(Clone, Copy)]
pub enum Strip<'a> {
    Lines(&'a Pieces),
    Int(&'a [u64]),
    F64(&'a [u64]),
    F32(&'a [u32]),
    Bytes(&'a BytesColumn),
}

/// A column, and which rows of it are NULL.
#[derive(Clone, Copy)]
pub struct Rows<'a> {
    pub strip: Strip<'a>,
    pub nulls: Option<&'a Bitmap>,
    /// Of floats: there is no NaN and no -0.0 among them.
    pub is_plain: bool,
}

impl<'a> Rows<'a> {
    pub fn of(held: &'a Held, is_plain: bool) -> Rows<'a> {
        match held {
            Held::Lines(lines) => Rows { strip: Strip::Lines(lines), nulls: None, is_plain },
            Held::Column(column) => Rows::of_column(column, is_plain),
        }
    }

    pub fn of_column(column: &'a Column, is_plain: bool) -> Rows<'a> {
        let strip = match &column.values {
            Values::Int(v) => Strip::Int(v),
            Values::F64(v) => Strip::F64(v),
            Values::F32(v) => Strip::F32(v),
            Values::Bytes(v) => Strip::Bytes(v),
        };
        Rows { strip, nulls: column.nulls.as_ref(), is_plain }
    }

    #[inline]
    pub fn is_null(&self, row: usize) -> bool {
        self.nulls.is_some_and(|nulls| nulls.get(row))
    }

    /// Row `row` of an integer lane.
    pub fn int(&self, row: usize) -> u64 {
        match self.strip {
            Strip::Int(v) => v[row],
            Strip::Lines(lines) => lines.get(row),
            _ => 0,
        }
    }

    /// Row `row` of a column of numbers that are not floats.
    pub fn number(&self, row: usize, column: &ColumnDef) -> Wide {
        let Some(number) = column.number else { return Wide::default() };
        match (self.strip, column.lane) {
            (Strip::Bytes(v), _) => number_of_bytes(v.get(row), number),
            (_, Lane::Int { width }) => number_of_bits(self.int(row), width, number),
            _ => Wide::default(),
        }
    }

    /// Row `row` as an answer has it.
    pub fn value(&self, row: usize) -> Value {
        if self.is_null(row) {
            return Value::Null;
        }
        match self.strip {
            Strip::Lines(lines) => Value::Int(lines.get(row)),
            Strip::Int(v) => Value::Int(v[row]),
            Strip::F64(v) => Value::F64(v[row]),
            Strip::F32(v) => Value::F32(v[row]),
            Strip::Bytes(v) => Value::Bytes(v.get(row).to_vec()),
        }
    }
}
