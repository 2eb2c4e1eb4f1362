//! Memory that grows with a statement: where the system has no more, the statement fails, not the server.
//!
//! Rust's collections end the process when an allocation fails. So what is as large as a row, or as all rows of a statement, is asked
//! for here first. What is small, or bounded whatever a statement does, is not.

use crate::error::{Error, Result};

/// Fewer bytes than this are not asked for before they are needed.
const LEAST_ASKED: usize = 1 << 20;

/// Makes room for more items.
#[inline]
pub fn reserve<T>(items: &mut Vec<T>, more: usize, what: &'static str) -> Result<()> {
    items.try_reserve(more).map_err(|_| none_left(what, more.saturating_mul(size_of::<T>())))
}

/// A copy of a row.
#[inline]
pub fn copy_row(row: &[u8]) -> Result<Box<[u8]>> {
    let mut copy = Vec::new();
    copy.try_reserve_exact(row.len()).map_err(|_| none_left("a row", row.len()))?;
    copy.extend_from_slice(row);
    Ok(copy.into_boxed_slice())
}

/// Whether there are that many bytes, for work of many allocations. They are given back at once: another statement may be faster.
pub fn ask(bytes: usize, what: &'static str) -> Result<()> {
    if bytes < LEAST_ASKED {
        return Ok(());
    }
    reserve(&mut Vec::<u8>::new(), bytes, what)
}

#[cold]
fn none_left(what: &'static str, bytes: usize) -> Error {
    Error::OutOfMemory { what, bytes: bytes as u64 }
}
