//! Counter with one writer and any number of readers.
//!
//! The owning worker adds with a plain load and store, without lock or sharing between workers. Readers see
//! each counter consistently, and different counters at slightly different times.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counter that one thread writes and any thread reads.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// A counter of zero.
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Adds `amount`. Called only by the owning thread: a second writer would lose counts.
    #[inline]
    pub fn add(&self, amount: u64) {
        // Relaxed: a counter orders nothing. Load and store are sufficient with one writer, and several times
        // cheaper than an atomic addition.
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(amount), Ordering::Relaxed);
    }

    /// Sets the value of a gauge.
    #[inline]
    pub fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// Current value.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
