//! Sleep and wake-up of a worker.
//!
//! A worker that is about to sleep sets a flag and checks its rings once more; a thread that enqueues work
//! for it checks the flag afterwards ([`EventCount`]). No wake-up is lost, and an awake worker costs no
//! system call.

use polder_buffers::EventCount;
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{Errno, read, write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// A worker's wake-up, on a cache line of its own, because other threads read it for each enqueue.
#[derive(Debug)]
#[repr(align(128))]
pub struct Wakeup {
    event: OwnedFd,
    eventcount: EventCount,
}

impl Wakeup {
    /// Creates a wake-up that is not pending.
    ///
    /// # Errors
    /// When the system has no file descriptor left.
    pub fn new() -> std::io::Result<Self> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { event, eventcount: EventCount::new() })
    }

    /// Reports new work: wakes the worker if it sleeps or is about to.
    pub fn wake(&self) {
        if self.eventcount.notify() {
            // The only possible error is a full counter, which means a pending wake-up.
            let _: Result<usize, Errno> = write(&self.event, &1_u64.to_ne_bytes());
        }
    }

    /// True if the worker sleeps or is about to; a hint only.
    pub fn is_sleeping(&self) -> bool {
        self.eventcount.is_waiting()
    }

    /// Sets the flag. The worker checks its rings once more after this, then sleeps.
    pub fn about_to_sleep(&self) {
        self.eventcount.prepare_wait();
    }

    /// Clears the flag and the pending wake-up.
    pub fn awake(&self) {
        self.eventcount.cancel_wait();
        let mut count = [0; 8];
        // An empty read means that no wake-up was pending.
        let _: Result<usize, Errno> = read(&self.event, &mut count);
    }

    /// Descriptor that is readable while a wake-up is pending.
    pub fn event(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}
