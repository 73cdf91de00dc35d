//! The variant for any thread, as the control threads need it: behind a lock.

use super::{FragmentMemory, Fragments};
use crate::frame::Frame;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Fragments for threads that have no end of their own.
///
/// Cost: a lock each, which is what the poll loop's variant saves (D5).
#[derive(Debug)]
pub struct SharedFragments(Mutex<Fragments>);

impl SharedFragments {
    /// An end of `memory` that threads share.
    pub fn new(memory: &FragmentMemory) -> Self {
        Self(Mutex::new(memory.fragments()))
    }

    /// Takes a fragment, as [`Fragments::take`] does.
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn take(&self, bytes: u32) -> Option<Frame> {
        self.lock().take(bytes)
    }

    /// Releases a fragment of the same memory, wherever it was taken.
    ///
    /// # Panics
    /// When the frame is of another region.
    pub fn release(&self, frame: Frame) {
        let mut fragments = self.lock();
        fragments.release(frame);
        fragments.settle();
    }

    /// Nothing is left half done when a thread panics with the lock: the counts are changed last.
    fn lock(&self) -> MutexGuard<'_, Fragments> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
