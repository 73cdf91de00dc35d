//! Counters with one writer and any number of readers.
//!
//! The owning worker adds with a plain load and store; nobody locks, nothing is shared between
//! workers. Readers see each counter whole, and different counters at slightly different times.

use crate::drops::DropCounters;
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

/// What one queue of a device has done.
#[derive(Debug, Default)]
pub struct QueueCounters {
    /// Packets received, those that the device refused included.
    pub received: Counter,
    /// Bytes received, Ethernet header included, FCS excluded.
    pub received_bytes: Counter,
    /// Packets handed to the device for sending.
    pub transmitted: Counter,
    /// Bytes of those.
    pub transmitted_bytes: Counter,
    /// Packets taken for sending and not completed. A gauge.
    pub in_flight: Counter,
    /// System calls made for the queue.
    pub system_calls: Counter,
    /// Packets that the device or its driver refused, by reason.
    pub drops: DropCounters,
}

/// What one stage has done.
#[derive(Debug, Default)]
pub struct StageCounters {
    /// Packets that entered.
    pub packets: Counter,
    /// Batches that entered with at least one packet.
    pub batches: Counter,
    /// Packets whose time was taken; a sample of `packets`.
    pub timed_packets: Counter,
    /// Time that those took, in nanoseconds.
    pub timed_nanos: Counter,
}
