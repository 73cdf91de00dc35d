//! Gauges: numbers of frames in places outside of the buffer manager.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Number of frames in one place. One writer; the manager reads.
#[derive(Debug)]
pub struct Gauge(pub(crate) Arc<AtomicU64>);

impl Gauge {
    /// Sets the number of frames.
    #[inline]
    pub fn set(&self, frames: u64) {
        self.0.store(frames, Ordering::Relaxed);
    }
}
