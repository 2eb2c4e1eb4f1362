//! The first byte of every block: which codec wrote it.
//!
//! Numbers are never used again for something else. An unknown one is an error.

/// No value at all is there: every row is null.
pub(crate) const ALL_NULL: u8 = 0x01;
/// A bitmap of the nulls, then a block of the other rows.
pub(crate) const NULLS: u8 = 0x02;

/// Integers: eight bytes each.
pub(crate) const INT_RAW: u8 = 0x10;
/// Integers: one value for all rows.
pub(crate) const INT_CONST: u8 = 0x11;
/// Integers: differences, then a block of them.
pub(crate) const INT_DELTA: u8 = 0x12;
/// Integers: offsets from the lowest in bits.
pub(crate) const INT_PACK: u8 = 0x14;

/// Byte strings: lengths, then the bytes as they are.
pub(crate) const BYTES_RAW: u8 = 0x30;
/// Byte strings: lengths, then one zstd frame.
pub(crate) const BYTES_ZSTD: u8 = 0x31;
