//! Fragment allocator behind a lock, for control threads.

use super::{FragmentMemory, Fragments};
use crate::frame::Frame;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Fragment allocator for threads without an own one.
///
/// Cost: one lock per operation (D5 avoids it in workers).
#[derive(Debug)]
pub struct SharedFragments(Mutex<Fragments>);

impl SharedFragments {
    /// Creates an allocator that threads share.
    pub fn new(memory: &FragmentMemory) -> Self {
        Self(Mutex::new(memory.fragments()))
    }

    /// Allocates a fragment, like [`Fragments::take`].
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn take(&self, bytes: u32) -> Option<Frame> {
        self.lock().take(bytes)
    }

    /// Releases a fragment of the same memory, allocated by any thread.
    ///
    /// # Panics
    /// If the frame belongs to another region.
    pub fn release(&self, frame: Frame) {
        let mut fragments = self.lock();
        fragments.release(frame);
        fragments.settle();
    }

    /// A thread that panics with the lock leaves a consistent state: counts are changed last.
    fn lock(&self) -> MutexGuard<'_, Fragments> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
