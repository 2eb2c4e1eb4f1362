//! What a reading says: an integer, which counters need exactly, or a double.

/// The value of a reading. NULL is `None` of an `Option<Value>`, and means "unknown", as RRDtool's `U` does.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Value {
    /// A column of an unsigned integer type.
    Unsigned(u64),
    /// A column of a signed integer type.
    Signed(i64),
    /// A column of any other numeric type. NaN is unknown.
    Double(f64),
}

impl Value {
    pub(crate) fn as_f64(self) -> f64 {
        match self {
            Value::Unsigned(value) => value as f64,
            Value::Signed(value) => value as f64,
            Value::Double(value) => value,
        }
    }

    /// The value as an exact integer; a double with a fraction, or beyond 64 bits, is none.
    pub(crate) fn as_integer(self) -> Option<i128> {
        const LIMIT: f64 = 18_446_744_073_709_551_616.0;
        match self {
            Value::Unsigned(value) => Some(value.into()),
            Value::Signed(value) => Some(value.into()),
            Value::Double(value) => (value.fract() == 0.0 && value.abs() < LIMIT).then_some(value as i128),
        }
    }
}

impl From<u64> for Value {
    fn from(value: u64) -> Value {
        Value::Unsigned(value)
    }
}

impl From<i64> for Value {
    fn from(value: i64) -> Value {
        Value::Signed(value)
    }
}

impl From<f64> for Value {
    fn from(value: f64) -> Value {
        Value::Double(value)
    }
}
