//! How a worker sleeps and is woken.
//!
//! A worker that is about to sleep raises its flag and looks at its rings once more; whoever gives it
//! something looks at the flag afterwards. Both sides put a full fence between their store and their
//! load, so at least one of them sees the other: a wake-up cannot be lost, and while the worker is
//! awake nobody does a system call for it.

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{Errno, read, write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering, fence};

/// A worker's bell; on a line of its own, which others read for everything that they bring.
#[derive(Debug)]
#[repr(align(128))]
pub struct Bell {
    event: OwnedFd,
    sleeping: AtomicBool,
}

impl Bell {
    /// A bell that has not been rung.
    ///
    /// # Errors
    /// When the system has no file descriptor left.
    pub fn new() -> std::io::Result<Self> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { event, sleeping: AtomicBool::new(false) })
    }

    /// Says that something was given to the worker. Wakes it if it sleeps or is about to.
    pub fn ring(&self) {
        // Pairs with the fence in `about_to_sleep`: either we see its flag, or it sees what we gave.
        fence(Ordering::SeqCst);
        if self.sleeping.load(Ordering::Relaxed) {
            self.sleeping.store(false, Ordering::Relaxed);
            // A full counter is a rung bell, so the one error that can occur changes nothing.
            let _: Result<usize, Errno> = write(&self.event, &1_u64.to_ne_bytes());
        }
    }

    /// Whether the worker sleeps or is about to: a hint.
    pub fn is_sleeping(&self) -> bool {
        self.sleeping.load(Ordering::Relaxed)
    }

    /// Raises the flag. The worker looks at its rings once more after this, then sleeps.
    pub fn about_to_sleep(&self) {
        self.sleeping.store(true, Ordering::Relaxed);
        // Pairs with the fence in `ring`.
        fence(Ordering::SeqCst);
    }

    /// Lowers the flag and silences the bell.
    pub fn awake(&self) {
        self.sleeping.store(false, Ordering::Relaxed);
        let mut count = [0; 8];
        // Nothing to read means that it was not rung.
        let _: Result<usize, Errno> = read(&self.event, &mut count);
    }

    /// What becomes readable when the bell is rung.
    pub fn event(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}
