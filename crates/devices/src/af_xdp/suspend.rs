//! Interrupts that are off while the worker finds packets, and on again as soon as it finds none.
//!
//! Linux 6.13 lets an epoll set poll the NAPI context of its sockets, and suspends that context's interrupts
//! if the poll finds packets: `irq-suspend-timeout` of the context, `EPIOCSPARAMS` of the set. A poll that
//! finds none, and the end of the set, enable them at once. So no guess is needed of how long a worker leaves
//! a device alone; the timeout is a safety net for a worker that does not return.
//!
//! A set knows one context, that of the last added socket. So each queue has a set of its own.
//!
//! Source: `Documentation/networking/napi.rst`, "IRQ suspension".

use super::napi::{Napi, describe, set};
use super::netdev::Netdev;
use super::sys;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

/// Time in nanoseconds for which interrupts stay off if the worker does not return. No other program sets
/// this value, so the next start recognises the setting of a killed process by it.
pub(super) const SUSPENDED: u64 = 25_000_000;
/// Time in nanoseconds from an empty poll of the worker to the kernel's own poll; and number of empty polls
/// before interrupts resume.
const DEFERRED: u64 = 50_000;
const EMPTY_POLLS: u32 = 2;

/// A NAPI context whose interrupts are suspended while it is polled, until this value is dropped.
///
/// Works for sockets of any kind; a queue's driver uses its parts.
#[derive(Debug)]
pub struct Suspension {
    netdev: Netdev,
    before: Napi,
    poller: Option<Poller>,
}

impl Suspension {
    /// Suspends the context from which `socket` has received.
    ///
    /// `suspended_nanos` is the maximum time for which interrupts stay off; 0 leaves them on.
    ///
    /// # Errors
    /// `NODEV` if the socket knows no context, `OPNOTSUPP` on kernels before 6.13.
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
    /// Cost: a system call, and the kernel's work for the packets.
    pub fn poll(&mut self) -> bool {
        self.poller.as_ref().is_some_and(|poller| !poller.poll().is_empty())
    }

    /// Returns the time in nanoseconds for which the context's interrupts may be suspended.
    ///
    /// # Errors
    /// If the context is gone.
    pub fn suspended_nanos(&mut self) -> Result<u64, Errno> {
        describe(&mut self.netdev, self.before.id)?.irq_suspend_timeout.ok_or(Errno::OPNOTSUPP)
    }
}

impl Drop for Suspension {
    fn drop(&mut self) {
        self.poller = None;
        // A context that is gone needs no restoring.
        let _ = set(&mut self.netdev, self.before);
    }
}

/// Returns the settings of a context while the worker polls it; `None` if interrupts cannot be suspended.
pub(super) fn suspended(before: Napi, nanos: u64) -> Option<Napi> {
    before.irq_suspend_timeout?;
    Some(Napi {
        defer_hard_irqs: EMPTY_POLLS,
        gro_flush_timeout: DEFERRED,
        irq_suspend_timeout: Some(nanos),
        ..before
    })
}

/// An epoll set of one socket, which polls the socket's NAPI context.
#[derive(Debug)]
pub(super) struct Poller {
    epoll: OwnedFd,
}

impl Poller {
    /// Creates a set whose polls receive at most `budget` packets.
    ///
    /// # Errors
    /// `NOTTY` on kernels before 6.9.
    pub(super) fn new(socket: BorrowedFd<'_>, budget: u32) -> Result<Self, Errno> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        sys::set_busy_poll(epoll.as_fd(), budget)?;
        // Polling is enabled first: only then does the set look up the socket's context.
        epoll::add(&epoll, socket, EventData::new_u64(0), EventFlags::IN)?;
        Ok(Self { epoll })
    }

    /// Lets the kernel receive the waiting packets, and returns the socket's events.
    pub(super) fn poll(&self) -> EventFlags {
        match sys::poll_once(self.epoll.as_fd()) {
            Ok((1.., events)) => EventFlags::from_bits_retain(events),
            Ok((0, _)) | Err(_) => EventFlags::empty(),
        }
    }

    /// Limits the next poll to `budget` packets.
    ///
    /// # Errors
    /// If `budget` is above the limit for unprivileged processes (64).
    pub(super) fn bound(&self, budget: u32) -> Result<(), Errno> {
        sys::set_busy_poll(self.epoll.as_fd(), budget)
    }
}

/// Maximum number of packets of a poll.
const MOST: u32 = 64;
/// Constant of asm-generic/socket.h.
const SO_INCOMING_NAPI_ID: i32 = 56;
