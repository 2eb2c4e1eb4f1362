//! An allocator that counts the bytes in use, and the most that were.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

struct Counted;

static USED: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

// SAFETY: all memory comes from the system's allocator and goes back to it with the layout that it was asked for; counting does not
// touch it.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let used = USED.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        MOST.fetch_max(used, Ordering::Relaxed);
        // SAFETY: as for this call.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        USED.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as for this call.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counted = Counted;

/// Bytes in use when something began, at most while it ran, and when it had ended.
pub fn of(act: impl FnOnce()) -> (usize, usize, usize) {
    let before = USED.load(Ordering::Relaxed);
    MOST.store(before, Ordering::Relaxed);
    act();
    (before, MOST.load(Ordering::Relaxed), USED.load(Ordering::Relaxed))
}
