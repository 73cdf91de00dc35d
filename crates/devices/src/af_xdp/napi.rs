//! The kernel's half of receiving: when the interface's NAPI contexts poll, and who drives them.
//!
//! In copy mode every packet passes the kernel's NAPI before it is in our ring, and that work knows
//! nothing of our budget: under overload it fills a full ring over and over. Two things tame it. The
//! timer (`gro-flush-timeout`) begins the next poll instead of the next interrupt, which bounds wake-ups
//! by time. And preferred busy polling lets the worker ask for packets when it has use for them;
//! between two questions the interrupt stays masked, and excess dies in the device's ring.
//!
//! A context goes back to interrupts when so many polls in a row have found nothing, so the first packet
//! after silence is not late.
//!
//! Kernels before 6.13 cannot be told per context; there nothing is changed and the report says so.

use super::netdev::{Ask, Netdev};
use crate::netlink::{find, number};
use rustix::io::Errno;

/// Moderation of receiving.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moderation {
    /// Time for which after its last poll the kernel polls again, in microseconds; 0 for at the next interrupt.
    pub microseconds: u32,
    /// Polls in a row that find nothing after which interrupts come again, at least 1.
    pub empty_polls: u32,
}

/// One context's settings as they are, or were.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Napi {
    pub(super) id: u32,
    /// The thread that it has; in softirq without one.
    pub(super) thread: Option<u32>,
    pub(super) defer_hard_irqs: u32,
    pub(super) gro_flush_timeout: u64,
    /// Time for which interrupts may be suspended; `None` where they cannot be.
    pub(super) irq_suspend_timeout: Option<u64>,
}

/// The contexts of an interface, changed for as long as this lives.
#[derive(Debug)]
pub(super) struct Moderated {
    before: Vec<Napi>,
}

impl Moderated {
    /// Moderates all contexts of interface `index`.
    ///
    /// # Errors
    /// `OPNOTSUPP` and its like on kernels that cannot be told; `NODEV` for an interface without contexts.
    pub(super) fn new(index: u32, moderation: Moderation) -> Result<Self, Errno> {
        let mut netdev = Netdev::open()?;
        let before = contexts(&mut netdev, index)?;
        if before.is_empty() {
            return Err(Errno::NODEV);
        }
        let moderated = Self { before };
        for &napi in &moderated.before {
            let gro_flush_timeout = u64::from(moderation.microseconds) * 1000;
            // What was changed is changed back when this fails, by dropping it.
            set(&mut netdev, Napi { defer_hard_irqs: moderation.empty_polls, gro_flush_timeout, ..napi })?;
        }
        Ok(moderated)
    }
}

impl Drop for Moderated {
    fn drop(&mut self) {
        let Ok(mut netdev) = Netdev::open() else { return };
        for &napi in &self.before {
            // A context that is gone needs nothing back.
            let _ = set(&mut netdev, napi);
        }
    }
}

/// Current moderation of the contexts of interface `index`.
///
/// # Errors
/// As [`Moderated::new`].
pub(super) fn moderations(index: u32) -> Result<Vec<Moderation>, Errno> {
    let found = napis(index)?;
    let moderation = |napi: &Napi| Moderation {
        microseconds: u32::try_from(napi.gro_flush_timeout / 1000).unwrap_or(u32::MAX),
        empty_polls: napi.defer_hard_irqs,
    };
    Ok(found.iter().map(moderation).collect())
}

/// Number of receive queues of interface `index` that have a context that the driver names: such a
/// queue's socket can poll it.
///
/// # Errors
/// Error of a kernel that cannot be asked.
pub(super) fn named_queues(index: u32) -> Result<usize, Errno> {
    let mut named = 0;
    Netdev::open()?.ask(GET_QUEUE, &[(QUEUE_INTERFACE, index)], Ask::All, |answer| {
        let receives = find(answer, QUEUE_KIND).and_then(number) == Some(RECEIVES);
        named += usize::from(receives && find(answer, QUEUE_NAPI).and_then(number).is_some());
    })?;
    Ok(named)
}

/// The contexts of interface `index`; none for one that has none.
///
/// # Errors
/// Error of a kernel that cannot be asked.
pub(super) fn napis(index: u32) -> Result<Vec<Napi>, Errno> {
    contexts(&mut Netdev::open()?, index)
}

fn contexts(netdev: &mut Netdev, index: u32) -> Result<Vec<Napi>, Errno> {
    ask(netdev, (INTERFACE, index), Ask::All)
}

/// The settings of context `id`.
///
/// # Errors
/// As [`Moderated::new`].
pub(super) fn describe(netdev: &mut Netdev, id: u32) -> Result<Napi, Errno> {
    ask(netdev, (ID, id), Ask::One)?.first().copied().ok_or(Errno::NODEV)
}

fn ask(netdev: &mut Netdev, of: (u16, u32), ask: Ask) -> Result<Vec<Napi>, Errno> {
    let mut found = Vec::new();
    netdev.ask(GET_NAPI, &[of], ask, |answer| {
        let Some(id) = find(answer, ID).and_then(number) else { return };
        let defer_hard_irqs = find(answer, DEFER_HARD_IRQS).and_then(number).unwrap_or(0);
        let gro_flush_timeout = find(answer, GRO_FLUSH_TIMEOUT).map_or(0, unsigned);
        let thread = find(answer, THREAD).and_then(number);
        let irq_suspend_timeout = find(answer, IRQ_SUSPEND_TIMEOUT).map(unsigned);
        found.push(Napi { id, thread, defer_hard_irqs, gro_flush_timeout, irq_suspend_timeout });
    })?;
    Ok(found)
}

pub(super) fn set(netdev: &mut Netdev, napi: Napi) -> Result<(), Errno> {
    let short = |timeout: u64| u32::try_from(timeout).unwrap_or(u32::MAX);
    let timeout = short(napi.gro_flush_timeout);
    let values = [
        (ID, napi.id),
        (DEFER_HARD_IRQS, napi.defer_hard_irqs),
        (GRO_FLUSH_TIMEOUT, timeout),
        (IRQ_SUSPEND_TIMEOUT, napi.irq_suspend_timeout.map_or(0, short)),
    ];
    // A kernel that does not tell of a time does not take it either.
    let known = values.len() - usize::from(napi.irq_suspend_timeout.is_none());
    netdev.ask(SET_NAPI, &values[..known], Ask::One, |_| {})
}

/// Gives a context a thread of its own, or takes it away.
///
/// # Errors
/// On kernels before 6.17, where an interface's contexts have threads all together or not at all.
pub(super) fn set_threaded(netdev: &mut Netdev, id: u32, threaded: bool) -> Result<(), Errno> {
    netdev.ask(SET_NAPI, &[(ID, id), (THREADED, u32::from(threaded))], Ask::One, |_| {})
}

/// A netlink `uint`: four or eight bytes.
fn unsigned(value: &[u8]) -> u64 {
    match <[u8; 8]>::try_from(value) {
        Ok(bytes) => u64::from_ne_bytes(bytes),
        Err(_) => number(value).map_or(0, u64::from),
    }
}

/// linux/netdev.h: `NETDEV_CMD_NAPI_*`, `NETDEV_A_NAPI_*`.
const GET_NAPI: u8 = 11;
const SET_NAPI: u8 = 14;
/// `NETDEV_CMD_QUEUE_GET`, `NETDEV_A_QUEUE_*`, `NETDEV_QUEUE_TYPE_RX`.
const GET_QUEUE: u8 = 10;
const QUEUE_INTERFACE: u16 = 2;
const QUEUE_KIND: u16 = 3;
const QUEUE_NAPI: u16 = 4;
const RECEIVES: u32 = 0;
const INTERFACE: u16 = 1;
const ID: u16 = 2;
const THREAD: u16 = 4;
const THREADED: u16 = 8;
const DEFER_HARD_IRQS: u16 = 5;
const GRO_FLUSH_TIMEOUT: u16 = 6;
const IRQ_SUSPEND_TIMEOUT: u16 = 7;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_without_contexts_cannot_be_moderated() {
        let result = Moderated::new(1, Moderation { microseconds: 50, empty_polls: 2 });
        assert!(result.is_err(), "lo has no NAPI context");
    }

    #[test]
    fn a_number_has_four_or_eight_bytes() {
        assert_eq!(unsigned(&7_u32.to_ne_bytes()), 7);
        assert_eq!(unsigned(&(7_u64 << 32).to_ne_bytes()), 7 << 32);
        assert_eq!(unsigned(&[]), 0);
    }
}
