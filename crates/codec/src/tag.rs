//! The first byte of every block: which codec wrote it.
//!
//! Numbers are never used again for something else; an unknown one is an error. Tags of one kind of value stand
//! together, so that a block of the wrong kind is an unknown tag and not a wrong value.

/// No value at all is there: every row is null.
pub(crate) const ALL_NULL: u8 = 0x01;
/// A bitmap of the nulls, then a block of the other rows.
pub(crate) const NULLS: u8 = 0x02;
/// A bitmap as it is, eight rows a byte.
pub(crate) const BITMAP_RAW: u8 = 0x08;
/// A bitmap as lengths of runs of clear and of set bits.
pub(crate) const BITMAP_RUNS: u8 = 0x09;

/// Integers as they are, eight bytes each.
pub(crate) const INT_RAW: u8 = 0x10;
/// Integers that are all the same.
pub(crate) const INT_CONSTANT: u8 = 0x11;
/// The first integer, then the differences.
pub(crate) const INT_DELTA: u8 = 0x12;
/// Offset and factor, then the quotients.
pub(crate) const INT_SCALED: u8 = 0x13;
/// Lengths of runs, then one value for each.
pub(crate) const INT_RUNS: u8 = 0x14;
/// The distinct values, then the number of one for each row.
pub(crate) const INT_DICTIONARY: u8 = 0x15;
/// Distances from a pivot in a fixed number of bits, with patches.
pub(crate) const INT_PACKED: u8 = 0x16;
/// Intervals in an entropy code, with the offsets within them.
pub(crate) const INT_RANS: u8 = 0x17;
/// Weights, then what a guess from the rows before leaves.
pub(crate) const INT_LINEAR: u8 = 0x18;
/// Quotients in unary and remainders in bits.
pub(crate) const INT_RICE: u8 = 0x19;

/// Floats as they are.
pub(crate) const FLOAT_RAW: u8 = 0x20;
/// Floats as integers of the same order.
pub(crate) const FLOAT_ORDERED: u8 = 0x21;
/// Floats that are decimal fractions as integers, with patches.
pub(crate) const FLOAT_DECIMAL: u8 = 0x22;
/// Doubles that are single-precision floats.
pub(crate) const FLOAT_SINGLE: u8 = 0x23;

/// Floats that are near to decimal fractions as integers, with distances and patches.
pub(crate) const FLOAT_NEAR: u8 = 0x24;

/// Byte strings: lengths, then the bytes as they are.
pub(crate) const BYTES_RAW: u8 = 0x30;
/// Byte strings: lengths, then one zstd frame.
pub(crate) const BYTES_ZSTD: u8 = 0x31;
/// Byte strings that are all the same.
pub(crate) const BYTES_CONSTANT: u8 = 0x32;
/// The distinct byte strings, then the number of one for each row.
pub(crate) const BYTES_DICTIONARY: u8 = 0x33;
/// Byte strings of one length as big-endian integers.
pub(crate) const BYTES_WORDS: u8 = 0x34;
