//! Wake-up of a thread that waits for an event in shared memory, without a lost wake-up and without a
//! system call while it is awake.

use polder_datapath::port::Armed;
use rustix::event::EventfdFlags;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};

/// Wake-up of the receiver by the sender of one direction, by which each also learns that the other
/// is gone.
#[derive(Debug)]
pub(crate) struct Wakeup {
    event: OwnedFd,
    /// Set by the receiver that wants an event; cleared when the event is sent, or no longer wanted.
    armed: AtomicBool,
    /// Set by the end that goes first.
    gone: AtomicBool,
}

impl Wakeup {
    pub(crate) fn new() -> rustix::io::Result<Self> {
        let event = rustix::event::eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        Ok(Self { event, armed: AtomicBool::new(false), gone: AtomicBool::new(false) })
    }

    /// Rings if the receiver wants it; called after something was sent.
    pub(crate) fn wake_if_armed(&self) {
        // The fence pairs with the one in `WakeupReceiver::arm`: either this sees the receiver armed, or the
        // receiver sees what was sent.
        fence(Ordering::SeqCst);
        // AcqRel pairs with the swaps of `WakeupReceiver::arm`: who finds the flag cleared has a ring to
        // collect, and the rings of earlier events have been written.
        if self.armed.load(Ordering::Relaxed) && self.armed.swap(false, Ordering::AcqRel) {
            let written = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
            debug_assert!(written.is_ok(), "an event's counter takes far more than one ring");
        }
    }

    pub(crate) fn close(&self) {
        // Release pairs with the Acquire load in `is_gone`: who sees the end sees all that was sent.
        self.gone.store(true, Ordering::Release);
        self.wake_if_armed();
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }
}

/// The receiver's side of a wakeup.
#[derive(Debug)]
pub(crate) struct WakeupReceiver {
    wakeup: Arc<Wakeup>,
    /// True if the last `arm` answered `Waiting`.
    waiting: bool,
    /// Rings that were given and not yet read from the event. Below zero for a moment when a ring
    /// is read before it is noticed.
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

    /// Descriptor that is readable when the wakeup is sent.
    pub(crate) fn event(&self) -> BorrowedFd<'_> {
        self.wakeup.event.as_fd()
    }

    /// Asks for a wake-up, then looks once more whether there are values.
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

    /// Reads the rings that were given since the receiver last armed.
    fn collect_rings(&mut self) {
        let mut rings = [0; 8];
        if self.rings_owed > 0 && rustix::io::read(&self.wakeup.event, &mut rings) == Ok(8) {
            self.rings_owed -= i64::try_from(u64::from_ne_bytes(rings)).unwrap_or(i64::MAX);
        }
    }
}
