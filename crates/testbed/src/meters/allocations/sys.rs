//! The system's allocator with a counter in front.
#![expect(unsafe_code, reason = "UNSAFETY: an allocator is handed raw memory")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// Counts and passes on.
pub(super) struct Counting;

thread_local! {
    // Neither needs to be initialised nor destroyed, so that it can be used inside the allocator.
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

/// Number of allocations of the calling thread.
pub(super) fn count() -> u64 {
    COUNT.get()
}

fn note() {
    COUNT.set(COUNT.get() + 1);
}

// SAFETY: (1) every method passes its arguments on unchanged to the system's allocator, whose
// contract is the same, and returns what it returns.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note();
        // SAFETY: (1) as above.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note();
        // SAFETY: (1) as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        note();
        // SAFETY: (1) as above.
        unsafe { System.realloc(pointer, layout, bytes) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: (1) as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}
