//! Columns to bytes and back.
//!
//! A block is the values of one lane (a column as the store sees it) for up to [`MAX_ROWS`] rows, with its nulls,
//! as one self-describing run of bytes. [`encode`] appends a block, [`decode`] reads it back bit by bit as it was.
//! The crate is pure: no files, no threads, no clock. Hostile bytes give a [`DecodeError`], never a panic, and
//! every allocation is bounded by the rows asked for or by the size of the input.
//!
//! A value's way: [`Column`] -> nulls are split off ([`Bitmap`]) -> floats become integers where they are decimals
//! -> integers lose their trend (delta) -> what is left is packed or entropy-coded. Byte layouts are written down
//! in `docs/internals/format-codec.md`.
#![forbid(unsafe_code)]

mod bitmap;
mod bitpack;
mod bits;
mod block;
mod bytes;
mod bytes_column;
mod column;
mod decimal;
mod error;
mod float;
mod int;
mod name;
mod narrow;
mod nulls;
mod rans;
mod reader;
mod tag;

pub use bitmap::Bitmap;
pub use block::{Effort, Encoder, MAX_ROWS, decode, decode_pieces, encode};
pub use bytes_column::BytesColumn;
pub use column::{Column, Kind, Values};
pub use error::DecodeError;
pub use int::pieces::{Piece, Pieces};
pub use name::codec_name;
pub use narrow::{Compact, Narrow, decode_compact};
