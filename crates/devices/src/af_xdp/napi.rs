//! The NAPI contexts of an interface, which are the kernel's half of receiving: when they poll, and who
//! drives them.
//!
//! In copy mode every packet passes the kernel's NAPI before it is in the RX ring, and NAPI does not know the
//! worker's budget: under overload it fills a full ring over and over. Two settings limit it. The timer
//! (`gro-flush-timeout`) starts the next poll instead of an interrupt, which bounds the wake-ups per second.
//! Preferred busy polling lets the worker request packets when it has use for them; between two requests the
//! interrupt stays masked, and the device's ring drops the excess.
//!
//! A context returns to interrupts after a set number of empty polls in a row, so the first packet after a
//! silence is not late.
//!
//! Kernels before 6.13 have no setting per context; there nothing is changed, and the report says so.

use super::netdev::{Ask, Netdev};
use crate::netlink::{find, number};
use rustix::io::Errno;

/// Interrupt moderation of receiving.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moderation {
    /// Time from a poll to the kernel's next poll, in microseconds; 0: the next poll is at the next
    /// interrupt.
    pub microseconds: u32,
    /// Number of empty polls in a row after which interrupts resume, at least 1.
    pub empty_polls: u32,
}

/// Settings of one NAPI context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Napi {
    pub(super) id: u32,
    /// The context's thread; `None` if it runs in softirq.
    pub(super) thread: Option<u32>,
    pub(super) defer_hard_irqs: u32,
    pub(super) gro_flush_timeout: u64,
    /// Maximum time for which interrupts may be suspended, in nanoseconds; `None` where unsupported.
    pub(super) irq_suspend_timeout: Option<u64>,
}

/// Changed settings of an interface's NAPI contexts; dropping this value restores them.
#[derive(Debug)]
pub(super) struct Moderated {
    before: Vec<Napi>,
}

impl Moderated {
    /// Changes the moderation of all contexts of interface `index`.
    ///
    /// # Errors
    /// `OPNOTSUPP` and the like on kernels without the setting; `NODEV` for an interface without contexts.
    pub(super) fn new(index: u32, moderation: Moderation) -> Result<Self, Errno> {
        let mut netdev = Netdev::open()?;
        let before = contexts(&mut netdev, index)?;
        if before.is_empty() {
            return Err(Errno::NODEV);
        }
        let moderated = Self { before };
        for &napi in &moderated.before {
            let gro_flush_timeout = u64::from(moderation.microseconds) * 1000;
            // If this fails, dropping `moderated` restores the settings.
            set(&mut netdev, Napi { defer_hard_irqs: moderation.empty_polls, gro_flush_timeout, ..napi })?;
        }
        Ok(moderated)
    }
}

impl Drop for Moderated {
    fn drop(&mut self) {
        let Ok(mut netdev) = Netdev::open() else { return };
        for &napi in &self.before {
            // A context that is gone needs no restoring.
            let _ = set(&mut netdev, napi);
        }
    }
}

/// Returns the current moderation of the contexts of interface `index`.
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

/// Returns the number of RX queues of interface `index` whose NAPI context the driver tells: their sockets
/// can poll it.
///
/// # Errors
/// Error of a kernel that does not answer.
pub(super) fn named_queues(index: u32) -> Result<usize, Errno> {
    let mut named = 0;
    Netdev::open()?.ask(GET_QUEUE, &[(QUEUE_INTERFACE, index)], Ask::All, |answer| {
        let receives = find(answer, QUEUE_KIND).and_then(number) == Some(RECEIVES);
        named += usize::from(receives && find(answer, QUEUE_NAPI).and_then(number).is_some());
    })?;
    Ok(named)
}

/// Returns the NAPI contexts of interface `index`; empty if it has none.
///
/// # Errors
/// Error of a kernel that does not answer.
pub(super) fn napis(index: u32) -> Result<Vec<Napi>, Errno> {
    contexts(&mut Netdev::open()?, index)
}

fn contexts(netdev: &mut Netdev, index: u32) -> Result<Vec<Napi>, Errno> {
    ask(netdev, (INTERFACE, index), Ask::All)
}

/// Returns the settings of context `id`.
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
    // A kernel that does not report the suspend time does not accept it either.
    let known = values.len() - usize::from(napi.irq_suspend_timeout.is_none());
    netdev.ask(SET_NAPI, &values[..known], Ask::One, |_| {})
}

/// Gives a context a thread of its own, or removes it.
///
/// # Errors
/// On kernels before 6.17, which give threads to all contexts of an interface or to none.
pub(super) fn set_threaded(netdev: &mut Netdev, id: u32, threaded: bool) -> Result<(), Errno> {
    netdev.ask(SET_NAPI, &[(ID, id), (THREADED, u32::from(threaded))], Ask::One, |_| {})
}

/// Decodes a netlink `uint` of four or eight bytes.
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
