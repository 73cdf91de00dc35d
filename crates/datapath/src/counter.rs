//! A counter with one writer and any number of readers.
//!
//! The owning worker adds with a plain load and store; nobody locks, nothing is shared between
//! workers. Readers see each counter whole, and different counters at slightly different times.

use std::sync::atomic::{AtomicU64, Ordering};

/// A counter that one thread writes and any thread reads.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Zero.
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Adds. To be called by the owning thread alone: two writers would lose counts.
    #[inline]
    pub fn add(&self, amount: u64) {
        // Relaxed: a counter orders nothing. Load and store instead of an atomic addition, because
        // there is one writer; that is several times cheaper.
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(amount), Ordering::Relaxed);
    }

    /// Replaces the value, for gauges.
    #[inline]
    pub fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// The value.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
