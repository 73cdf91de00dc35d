//! Supply of buffers: the policy of a class, and the parameters of its reserve.

use crate::reserve::{Marks, Reserve};
use rustix::io::Errno;

/// Supply of the slots of one class.
#[derive(Clone, Copy, Debug)]
pub enum AllocationPolicy {
    /// All of them are there from the start and stay: for memory that a device holds.
    Fixed,
    /// As many as the marks say are ready; the others are brought in when they are needed.
    Growing(Marks),
}

impl AllocationPolicy {
    /// The same for buffers that are smaller by `factor`.
    pub(crate) fn times(self, factor: u32) -> Self {
        match self {
            Self::Fixed => Self::Fixed,
            Self::Growing(marks) => Self::Growing(marks.times(factor)),
        }
    }

    /// The same for buffers that are larger by `factor`.
    pub(crate) fn over(self, factor: u32) -> Self {
        match self {
            Self::Fixed => Self::Fixed,
            Self::Growing(marks) => Self::Growing(marks.over(factor)),
        }
    }
}

/// Techniques of the reserve of one class. Where memory does not grow, only the last one counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReserveOptions {
    /// Slots that are released are kept for the next user; off, each goes back to the system (C1).
    pub is_pooled: bool,
    /// Memory is brought in by a reloader; off, by who takes a slot when none is ready (C2).
    pub is_reloaded: bool,
    /// A slot that was released is taken again soon; off, after all others (the reviewer of C).
    pub is_reused: bool,
}

impl Default for ReserveOptions {
    fn default() -> Self {
        Self { is_pooled: true, is_reloaded: true, is_reused: true }
    }
}

/// Buffers that a reloader fills and empties.
pub(crate) trait Reloadable: Send + Sync {
    fn reserve(&self) -> &Reserve;

    /// Buffers that are ready.
    fn level(&self) -> u32;

    /// Brings in some of `wanted` buffers, at least one if there are any; how many.
    fn load(&self, wanted: u32) -> Result<u32, Errno>;

    /// Gives memory of up to `surplus` ready buffers back to the system; how many. Between its system calls
    /// it does what else is to be done `meanwhile`.
    fn unload(&self, surplus: u32, meanwhile: &mut dyn FnMut()) -> u32;
}
