//! The values of one lane in memory, as the store hands them in and gets them back.

use crate::{Bitmap, BytesColumn};

/// Kind of the values of a lane (a column as the store sees it).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Unsigned 64-bit integers that compare in SQL order (signed ones come biased).
    Int,
    /// IEEE 754 single precision.
    F32,
    /// IEEE 754 double precision.
    F64,
    /// Byte strings.
    Bytes,
}

/// Values of a number of rows. Null rows hold an arbitrary filler (0, 0.0, empty after decoding).
#[derive(Clone, Debug, PartialEq)]
pub enum Values {
    /// Integers.
    Int(Vec<u64>),
    /// The bits of single-precision floats.
    F32(Vec<u32>),
    /// The bits of double-precision floats.
    F64(Vec<u64>),
    /// Byte strings.
    Bytes(BytesColumn),
}

/// Values and which of them are null.
#[derive(Clone, Debug, PartialEq)]
pub struct Column {
    /// One value a row, fillers at the nulls.
    pub values: Values,
    /// The null rows; `Some` only if there is at least one.
    pub nulls: Option<Bitmap>,
}

impl Values {
    /// No rows of a kind.
    pub fn new(kind: Kind) -> Self {
        match kind {
            Kind::Int => Values::Int(Vec::new()),
            Kind::F32 => Values::F32(Vec::new()),
            Kind::F64 => Values::F64(Vec::new()),
            Kind::Bytes => Values::Bytes(BytesColumn::new()),
        }
    }

    /// What kind the values are of.
    pub fn kind(&self) -> Kind {
        match self {
            Values::Int(_) => Kind::Int,
            Values::F32(_) => Kind::F32,
            Values::F64(_) => Kind::F64,
            Values::Bytes(_) => Kind::Bytes,
        }
    }

    /// How many rows.
    pub fn rows(&self) -> usize {
        match self {
            Values::Int(v) | Values::F64(v) => v.len(),
            Values::F32(v) => v.len(),
            Values::Bytes(v) => v.len(),
        }
    }
}

impl Column {
    /// No rows of a kind.
    pub fn new(kind: Kind) -> Self {
        Column { values: Values::new(kind), nulls: None }
    }

    /// What kind the values are of.
    pub fn kind(&self) -> Kind {
        self.values.kind()
    }

    /// How many rows.
    pub fn rows(&self) -> usize {
        self.values.rows()
    }

    /// Whether row `i` is null. Panics behind the last row if there are nulls.
    pub fn is_null(&self, i: usize) -> bool {
        self.nulls.as_ref().is_some_and(|nulls| nulls.get(i))
    }

    /// How many rows are null.
    pub fn null_count(&self) -> usize {
        self.nulls.as_ref().map_or(0, Bitmap::count)
    }

    /// Adds an integer. Panics on a column of another kind, as the other `push_` methods do.
    pub fn push_int(&mut self, value: u64) {
        match &mut self.values {
            Values::Int(v) => v.push(value),
            other => wrong_kind(Kind::Int, other.kind()),
        }
        self.push_bit(false);
    }

    /// Adds a single-precision float.
    pub fn push_f32(&mut self, value: f32) {
        match &mut self.values {
            Values::F32(v) => v.push(value.to_bits()),
            other => wrong_kind(Kind::F32, other.kind()),
        }
        self.push_bit(false);
    }

    /// Adds a double-precision float.
    pub fn push_f64(&mut self, value: f64) {
        match &mut self.values {
            Values::F64(v) => v.push(value.to_bits()),
            other => wrong_kind(Kind::F64, other.kind()),
        }
        self.push_bit(false);
    }

    /// Adds a byte string.
    pub fn push_bytes(&mut self, value: &[u8]) {
        match &mut self.values {
            Values::Bytes(v) => v.push(value),
            other => wrong_kind(Kind::Bytes, other.kind()),
        }
        self.push_bit(false);
    }

    /// Adds a null.
    pub fn push_null(&mut self) {
        match &mut self.values {
            Values::Int(v) | Values::F64(v) => v.push(0),
            Values::F32(v) => v.push(0),
            Values::Bytes(v) => v.push(&[]),
        }
        if self.nulls.is_none() {
            self.nulls = Some(Bitmap::new(self.rows() - 1));
        }
        self.push_bit(true);
    }

    fn push_bit(&mut self, null: bool) {
        if let Some(nulls) = &mut self.nulls {
            nulls.push(null);
        }
    }
}

fn wrong_kind(pushed: Kind, column: Kind) -> ! {
    panic!("{pushed:?} pushed to a column of {column:?}")
}
