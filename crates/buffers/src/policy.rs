//! Allocation policy of a class, and options of its reserve.

use crate::reserve::{Marks, Reserve};
use rustix::io::Errno;

/// Allocation policy of one class's buffers.
#[derive(Clone, Copy, Debug)]
pub enum AllocationPolicy {
    /// All buffers are allocated at the start and stay: for memory that a device holds.
    Fixed,
    /// The reserve keeps the number of ready buffers at its thresholds; more are loaded on demand.
    Growing(Marks),
}

impl AllocationPolicy {
    /// The same policy for buffers that are smaller by `factor`.
    pub(crate) fn times(self, factor: u32) -> Self {
        match self {
            Self::Fixed => Self::Fixed,
            Self::Growing(marks) => Self::Growing(marks.times(factor)),
        }
    }

    /// The same policy for buffers that are larger by `factor`.
    pub(crate) fn over(self, factor: u32) -> Self {
        match self {
            Self::Fixed => Self::Fixed,
            Self::Growing(marks) => Self::Growing(marks.over(factor)),
        }
    }
}

/// Techniques of one class's reserve. With a fixed policy only the last one applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReserveOptions {
    /// True if released buffers are kept for reuse; false to return each to the system (C1).
    pub is_pooled: bool,
    /// True if a reloader loads memory; false if allocation does so when none is ready (C2).
    pub is_reloaded: bool,
    /// True if a released buffer is reused soon; false if it is reused after all others (review of C).
    pub is_reused: bool,
}

impl Default for ReserveOptions {
    fn default() -> Self {
        Self { is_pooled: true, is_reloaded: true, is_reused: true }
    }
}

/// Buffers that a reloader loads and returns.
pub(crate) trait Reloadable: Send + Sync {
    fn reserve(&self) -> &Reserve;

    /// Number of ready buffers.
    fn level(&self) -> u32;

    /// Loads some of `wanted` buffers, at least one if there are any; returns their number.
    fn load(&self, wanted: u32) -> Result<u32, Errno>;

    /// Returns the memory of up to `surplus` ready buffers to the system, and returns their number. Calls
    /// `meanwhile` between system calls.
    fn unload(&self, surplus: u32, meanwhile: &mut dyn FnMut()) -> u32;
}
