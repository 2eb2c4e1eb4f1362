//! Counts bytes that are allocated: a decoder must not ask for more than its input justifies.

#[path = "../../crates/store/tests/common/allocated.rs"]
mod allocated;

/// What a decoder may take whatever its input: a column of the longest strings, once as it is read and once as it is kept.
const FIXED_BYTES: usize = 640 << 20;

/// What it may take for each byte of its input.
const PER_BYTE: usize = 1 << 10;

/// Decodes, and fails if that took more memory than it may.
pub fn bounded(input: &[u8], decode: impl FnOnce(&[u8])) {
    let (before, most, _) = allocated::of(|| decode(input));
    let taken = most - before;
    let may = FIXED_BYTES + PER_BYTE * input.len();
    assert!(taken <= may, "{taken} bytes of memory for {} bytes of input", input.len());
}
