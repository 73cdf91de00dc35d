//! The kernel's half of receiving, queue by queue, as the worker drives it.
//!
//! Each queue has a NAPI context, which the kernel names once packets have come. It is told by netlink
//! when to poll by itself, and by socket options that the worker polls it; both happen only when the
//! worker changes its mode. What was set before is set again at the end.

use super::napi::{Napi, describe, set};
use super::netdev::Netdev;
use super::sys;
use polder_datapath::port::Drive;
use polder_datapath::units::Nanos;
use rustix::io::Errno;
use std::os::fd::BorrowedFd;

/// The context of one queue, as far as it has been told anything.
#[derive(Debug)]
pub(super) struct Driver {
    now: Drive,
    told: Option<(Netdev, Napi)>,
    /// Whether the kernel has refused; it is not asked again.
    refused: bool,
    /// Packets that one poll of the worker brings in at most, as the kernel was told.
    budget: u32,
}

impl Driver {
    /// One that goes by interrupts, and that is never told anything unless it `adapts`.
    pub(super) fn new(adapts: bool) -> Self {
        Self { now: Drive::Interrupts(Nanos(0)), told: None, refused: !adapts, budget: BUDGET }
    }

    /// Whether the worker polls the context.
    pub(super) fn is_polled(&self) -> bool {
        self.now == Drive::Polled
    }

    /// Says how the context of `socket` is to be driven; whether it is from now on.
    pub(super) fn drive(&mut self, socket: BorrowedFd<'_>, drive: Drive) -> bool {
        if drive == self.now {
            return true;
        }
        if self.refused {
            return false;
        }
        match self.tell(socket, drive) {
            Ok(true) => self.now = drive,
            // It has no name before the first packet.
            Ok(false) => return false,
            Err(_) => {
                self.refused = true;
                return false;
            }
        }
        true
    }

    /// Lets the next poll bring in no more than about `packets`: what the worker has no use for stays
    /// in the device.
    pub(super) fn bound(&mut self, socket: BorrowedFd<'_>, packets: u32) {
        // The kernel polls a context twice each time that it is asked.
        let budget = (packets / 2).next_power_of_two().clamp(FEWEST, BUDGET);
        if budget == self.budget {
            return;
        }
        self.budget = budget;
        // One that is refused leaves the bound as it was: more comes than is wanted, and waits in the ring.
        let _ = sys::set_option(socket, libc::SOL_SOCKET, SO_BUSY_POLL_BUDGET, budget);
    }

    fn tell(&mut self, socket: BorrowedFd<'_>, drive: Drive) -> Result<bool, Errno> {
        if self.told.is_none() {
            let id = sys::get_option(socket, libc::SOL_SOCKET, SO_INCOMING_NAPI_ID)?;
            if id == 0 {
                return Ok(false);
            }
            let mut netdev = Netdev::open()?;
            let mut before = describe(&mut netdev, id)?;
            if before.gro_flush_timeout == POLLED_TIMER {
                // Left behind by a process that was killed.
                (before.defer_hard_irqs, before.gro_flush_timeout) = (0, 0);
            }
            self.told = Some((netdev, before));
        }
        let Some((netdev, before)) = &mut self.told else { return Ok(false) };
        let (defer_hard_irqs, timer) = match drive {
            Drive::Interrupts(Nanos(0)) => (before.defer_hard_irqs, before.gro_flush_timeout),
            Drive::Interrupts(Nanos(nanos)) => (EMPTY_POLLS, nanos),
            Drive::Polled => (POLLED_EMPTY_POLLS, POLLED_TIMER),
        };
        set(netdev, Napi { id: before.id, defer_hard_irqs, gro_flush_timeout: timer })?;
        let option = |option, value| sys::set_option(socket, libc::SOL_SOCKET, option, value);
        if drive == Drive::Polled {
            option(SO_BUSY_POLL_BUDGET, self.budget)?;
            option(SO_BUSY_POLL, 1)?;
            option(SO_PREFER_BUSY_POLL, 1)?;
        } else {
            // One more poll, after which the kernel waits for as long as it is told from now on.
            option(SO_PREFER_BUSY_POLL, 0)?;
            let _ = sys::nudge(socket, false);
            option(SO_BUSY_POLL, 0)?;
        }
        Ok(true)
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        if let Some((netdev, before)) = &mut self.told {
            // A context that is gone needs nothing back.
            let _ = set(netdev, *before);
        }
    }
}

/// Polls in vain after which interrupts come again: one may meet a gap of a flow that goes on.
const EMPTY_POLLS: u32 = 2;
/// The same while the worker polls, and nanoseconds after which the kernel does so by itself: longer than any
/// queue is left alone by a worker that is awake, or pauses.
const POLLED_EMPTY_POLLS: u32 = 100;
const POLLED_TIMER: u64 = 25_000_000;
/// Packets that one poll of the kernel's brings in at most, and at least.
const BUDGET: u32 = 64;
const FEWEST: u32 = 4;
/// asm-generic/socket.h.
const SO_BUSY_POLL: i32 = 46;
const SO_INCOMING_NAPI_ID: i32 = 56;
const SO_PREFER_BUSY_POLL: i32 = 69;
const SO_BUSY_POLL_BUDGET: i32 = 70;
