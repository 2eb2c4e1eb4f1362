//! Counts bytes that are allocated: a decoder must not ask for more than its input justifies.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

/// What a decoder may take whatever its input: a column of the longest strings, once as it is read and once as it is kept.
const FIXED_BYTES: usize = 640 << 20;

/// What it may take for each byte of its input.
const PER_BYTE: usize = 1 << 10;

static USED: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

struct Counting;

// SAFETY: all is left to the system's allocator; counting does not touch the memory.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let used = USED.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        MOST.fetch_max(used, Ordering::Relaxed);
        // SAFETY: as the caller promised.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        USED.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as the caller promised.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Decodes, and fails if that took more memory than it may.
pub fn bounded(input: &[u8], decode: impl FnOnce(&[u8])) {
    let before = USED.load(Ordering::Relaxed);
    MOST.store(before, Ordering::Relaxed);
    decode(input);
    let taken = MOST.load(Ordering::Relaxed) - before;
    let may = FIXED_BYTES + PER_BYTE * input.len();
    assert!(taken <= may, "{taken} bytes of memory for {} bytes of input", input.len());
}
