//! Sleep and wake-up of a worker.
//!
//! A worker that is about to sleep says so and looks at its rings once more; whoever gives it something asks
//! afterwards whether it sleeps ([`EventCount`]). A wake-up cannot be lost, and while the worker is awake nobody
//! does a system call for it.

use polder_buffers::EventCount;
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{Errno, read, write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// A worker's wakeup; on a line of its own, which others read for everything that they bring.
#[derive(Debug)]
#[repr(align(128))]
pub struct Wakeup {
    event: OwnedFd,
    eventcount: EventCount,
}

impl Wakeup {
    /// A wakeup that has not been sent.
    ///
    /// # Errors
    /// When the system has no file descriptor left.
    pub fn new() -> std::io::Result<Self> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { event, eventcount: EventCount::new() })
    }

    /// Notifies the worker of new work. Wakes it if it sleeps or is about to.
    pub fn wake(&self) {
        if self.eventcount.notify() {
            // A full counter is a pending wakeup, so the one error that can occur changes nothing.
            let _: Result<usize, Errno> = write(&self.event, &1_u64.to_ne_bytes());
        }
    }

    /// True if the worker sleeps or is about to: a hint.
    pub fn is_sleeping(&self) -> bool {
        self.eventcount.is_waiting()
    }

    /// Raises the flag. The worker looks at its rings once more after this, then sleeps.
    pub fn about_to_sleep(&self) {
        self.eventcount.prepare_wait();
    }

    /// Lowers the flag and silences the wakeup.
    pub fn awake(&self) {
        self.eventcount.cancel_wait();
        let mut count = [0; 8];
        // Nothing to read means that it was not rung.
        let _: Result<usize, Errno> = read(&self.event, &mut count);
    }

    /// Descriptor that is readable when the wakeup is sent.
    pub fn event(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}
