//! Interrupts that are off while the worker finds packets, and on again as soon as it finds none.
//!
//! Linux 6.13 lets an epoll set poll the NAPI context that its sockets receive from, and suspends that context's interrupts
//! when the poll has found something: `irq-suspend-timeout` of the context, `EPIOCSPARAMS` of the set. The next poll that
//! finds nothing, and the end of the set, let them come at once. So nothing has to be guessed about how long a worker leaves
//! a device alone; the time is a net for one that does not come back.
//!
//! A set knows one context: that of the socket that was added last. So each queue has a set of its own.
//!
//! Source: `Documentation/networking/napi.rst`, "IRQ suspension".

use super::napi::{Napi, describe, set};
use super::netdev::Netdev;
use super::sys;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

/// Time for which interrupts stay off for a worker that does not come back, in nanoseconds. No one else sets this time, so by it
/// the next start knows what a killed process has left.
pub(super) const SUSPENDED: u64 = 25_000_000;
/// Time for which the kernel waits after a poll before it polls by itself, when the worker has found nothing, in nanoseconds; and
/// how often it finds nothing before interrupts come again.
const DEFERRED: u64 = 50_000;
const EMPTY_POLLS: u32 = 2;

/// Context whose interrupts are suspended while it is polled, for as long as this lives.
///
/// For sockets of any kind; a queue's driver has its parts.
#[derive(Debug)]
pub struct Suspension {
    netdev: Netdev,
    before: Napi,
    poller: Option<Poller>,
}

impl Suspension {
    /// Of the context from which `socket` has received.
    ///
    /// `suspended_nanos` is how long interrupts stay off at most; 0 leaves them on.
    ///
    /// # Errors
    /// `NODEV` when the socket knows no context, `OPNOTSUPP` on kernels before 6.13.
    pub fn of(socket: BorrowedFd<'_>, suspended_nanos: u64) -> Result<Self, Errno> {
        let id = sys::get_option(socket, libc::SOL_SOCKET, SO_INCOMING_NAPI_ID)?;
        if id == 0 {
            return Err(Errno::NODEV);
        }
        let mut netdev = Netdev::open()?;
        let before = describe(&mut netdev, id)?;
        let told = suspended(before, suspended_nanos).ok_or(Errno::OPNOTSUPP)?;
        set(&mut netdev, told)?;
        let mut suspension = Self { netdev, before, poller: None };
        suspension.poller = Some(Poller::new(socket, MOST)?);
        Ok(suspension)
    }

    /// Lets the kernel receive the waiting packets; returns true if there are any.
    ///
    /// Cost: a system call, with the kernel's work for what came.
    pub fn poll(&mut self) -> bool {
        self.poller.as_ref().is_some_and(|poller| !poller.poll().is_empty())
    }

    /// Time for which interrupts of the context may be suspended now, in nanoseconds.
    ///
    /// # Errors
    /// When the context is gone.
    pub fn suspended_nanos(&mut self) -> Result<u64, Errno> {
        describe(&mut self.netdev, self.before.id)?.irq_suspend_timeout.ok_or(Errno::OPNOTSUPP)
    }
}

impl Drop for Suspension {
    fn drop(&mut self) {
        self.poller = None;
        // A context that is gone needs nothing back.
        let _ = set(&mut self.netdev, self.before);
    }
}

/// Settings of a context while the worker polls it; `None` where interrupts cannot be suspended.
pub(super) fn suspended(before: Napi, nanos: u64) -> Option<Napi> {
    before.irq_suspend_timeout?;
    Some(Napi {
        defer_hard_irqs: EMPTY_POLLS,
        gro_flush_timeout: DEFERRED,
        irq_suspend_timeout: Some(nanos),
        ..before
    })
}

/// A set of one socket, which polls the context of that.
#[derive(Debug)]
pub(super) struct Poller {
    epoll: OwnedFd,
}

impl Poller {
    /// A poll brings in `budget` packets at most.
    ///
    /// # Errors
    /// `NOTTY` on kernels before 6.9.
    pub(super) fn new(socket: BorrowedFd<'_>, budget: u32) -> Result<Self, Errno> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        sys::set_busy_poll(epoll.as_fd(), budget)?;
        // Not before it is told to poll: then the set asks which context it is.
        epoll::add(&epoll, socket, EventData::new_u64(0), EventFlags::IN)?;
        Ok(Self { epoll })
    }

    /// Lets the kernel receive the waiting packets, and returns the events of the socket.
    pub(super) fn poll(&self) -> EventFlags {
        match sys::poll_once(self.epoll.as_fd()) {
            Ok((1.., events)) => EventFlags::from_bits_retain(events),
            Ok((0, _)) | Err(_) => EventFlags::empty(),
        }
    }

    /// Lets the next poll bring in no more than `budget` packets.
    ///
    /// # Errors
    /// When there are more than an ordinary process may ask for (64).
    pub(super) fn bound(&self, budget: u32) -> Result<(), Errno> {
        sys::set_busy_poll(self.epoll.as_fd(), budget)
    }
}

/// Packets of a poll.
const MOST: u32 = 64;
/// asm-generic/socket.h.
const SO_INCOMING_NAPI_ID: i32 = 56;
