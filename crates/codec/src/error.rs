//! What can be wrong with a block's bytes.
//!
//! The store adds the table, the file and the offset; here is only what the bytes themselves tell.

use std::fmt;

/// Why bytes are not a block of the kind and the number of rows asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DecodeError {
    /// The bytes end before the block does.
    Truncated,
    /// Bytes are left over behind the block.
    TrailingBytes,
    /// A codec tag that this version does not know, or that does not belong to this kind of value.
    UnknownTag(u8),
    /// A field contradicts another one or the number of rows; the text names the field.
    Invalid(&'static str),
    /// More rows or more bytes than a block may hold.
    TooLarge,
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DecodeError::Truncated => f.write_str("block ends early"),
            DecodeError::TrailingBytes => f.write_str("bytes behind the end of the block"),
            DecodeError::UnknownTag(tag) => write!(f, "unknown codec tag {tag:#04x}"),
            DecodeError::Invalid(what) => write!(f, "invalid block: {what}"),
            DecodeError::TooLarge => f.write_str("block larger than the limits allow"),
        }
    }
}

impl std::error::Error for DecodeError {}
