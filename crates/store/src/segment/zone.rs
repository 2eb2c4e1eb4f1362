//! Zone maps: what is known of a block without decoding it.

/// A sum of a block's values that are not null.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Sum {
    /// Byte strings have none; neither have floats whose sum is not finite.
    None,
    /// Sum of the lane's unsigned values (a signed SQL integer's bias is in it once for each value).
    Int(u128),
    /// Compensated sum: `hi + lo`, `hi` being the rounded sum.
    Float {
        /// The rounded sum.
        hi: f64,
        /// What rounding lost.
        lo: f64,
    },
}

/// What is known of one block.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ZoneMap {
    /// Rows, nulls included.
    pub rows: u32,
    /// Nulls among them (tombstones are null in all columns that are not of the key).
    pub nulls: u32,
    /// Smallest and largest value that is not null, in the lane's order as unsigned integers: the value
    /// itself for `Int`, [`order_f64`] or [`order_f32`] for floats, [`order_bytes`] for byte strings.
    /// `None` when all are null.
    pub range: Option<(u64, u64)>,
    /// Whether `range` and `sum` are values that are there and not only bounds: false for byte strings, and
    /// for floats when a NaN, an infinity or a negative zero is among them.
    pub exact: bool,
    /// Their sum.
    pub sum: Sum,
}

/// Maps a double to an integer of the same order. -0.0 and 0.0 are equal.
pub fn order_f64(bits: u64) -> u64 {
    todo!("{bits}")
}

/// Maps a float to an integer of the same order. -0.0 and 0.0 are equal.
pub fn order_f32(bits: u32) -> u64 {
    todo!("{bits}")
}

/// The first 8 bytes, zeros behind the end: `a <= b` implies `order_bytes(a) <= order_bytes(b)`.
pub fn order_bytes(value: &[u8]) -> u64 {
    todo!("{value:?}")
}
