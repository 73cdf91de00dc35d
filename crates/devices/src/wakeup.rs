//! Wake-up of a thread that waits for values in shared memory: no wake-up is lost, and none costs a system
//! call while the thread is awake.

use polder_datapath::port::Armed;
use rustix::event::EventfdFlags;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};

/// Wake-up state of one direction between a sender and a receiver; also tells each that the peer is gone.
#[derive(Debug)]
pub(crate) struct Wakeup {
    event: OwnedFd,
    /// Set by a receiver that wants a wake-up; cleared when it is sent or no longer wanted.
    armed: AtomicBool,
    /// Set by the end that is dropped first.
    gone: AtomicBool,
}

impl Wakeup {
    pub(crate) fn new() -> rustix::io::Result<Self> {
        let event = rustix::event::eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        Ok(Self { event, armed: AtomicBool::new(false), gone: AtomicBool::new(false) })
    }

    /// Wakes the receiver if it is armed; called after a value was sent.
    pub(crate) fn wake_if_armed(&self) {
        // The fence pairs with the one in `WakeupReceiver::arm`: either this sees the receiver armed, or the
        // receiver sees the sent value.
        fence(Ordering::SeqCst);
        // AcqRel pairs with the swaps of `WakeupReceiver::arm`: the end that finds the flag cleared has a
        // wake-up to read, and earlier wake-ups are already written.
        if self.armed.load(Ordering::Relaxed) && self.armed.swap(false, Ordering::AcqRel) {
            let written = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
            debug_assert!(written.is_ok(), "an event's counter takes far more than one ring");
        }
    }

    pub(crate) fn close(&self) {
        // Release pairs with the Acquire load in `is_gone`: an end that sees the flag sees all sent values.
        self.gone.store(true, Ordering::Release);
        self.wake_if_armed();
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }
}

/// The receiver's end of a wake-up.
#[derive(Debug)]
pub(crate) struct WakeupReceiver {
    wakeup: Arc<Wakeup>,
    /// True if the last `arm` returned `Waiting`.
    waiting: bool,
    /// Number of wake-ups sent and not yet read from the event. Below 0 for a moment if a wake-up is read
    /// before it is counted.
    rings_owed: i64,
}

impl WakeupReceiver {
    pub(crate) fn new(wakeup: Arc<Wakeup>) -> Self {
        Self { wakeup, waiting: false, rings_owed: 0 }
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.wakeup.is_gone()
    }

    pub(crate) fn close(&self) {
        self.wakeup.close();
    }

    /// Returns the descriptor that is readable when a wake-up is sent.
    pub(crate) fn event(&self) -> BorrowedFd<'_> {
        self.wakeup.event.as_fd()
    }

    /// Requests a wake-up, then checks for values once more.
    pub(crate) fn arm(&mut self, has_some: impl FnOnce() -> bool) -> Armed {
        // AcqRel pairs with the swap in `wake_if_armed`.
        let was_armed = self.wakeup.armed.swap(true, Ordering::AcqRel);
        self.rings_owed += i64::from(self.waiting && !was_armed);
        self.collect_rings();
        // The fence pairs with the one in `wake_if_armed`.
        fence(Ordering::SeqCst);
        self.waiting = !self.wakeup.is_gone() && !has_some();
        if self.waiting {
            return Armed::Waiting;
        }
        let still_armed = self.wakeup.armed.swap(false, Ordering::AcqRel);
        self.rings_owed += i64::from(!still_armed);
        Armed::Raced
    }

    /// Reads the wake-ups that were sent since the receiver last armed.
    fn collect_rings(&mut self) {
        let mut rings = [0; 8];
        if self.rings_owed > 0 && rustix::io::read(&self.wakeup.event, &mut rings) == Ok(8) {
            self.rings_owed -= i64::try_from(u64::from_ne_bytes(rings)).unwrap_or(i64::MAX);
        }
    }
}
