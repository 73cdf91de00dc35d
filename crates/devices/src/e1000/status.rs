//! Published status of a port, to be read from any thread.

use super::init::Found;
use super::statistics::Totals;
use crate::Link;
use polder_datapath::counters::Counter;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Published status of a port.
#[derive(Debug, Default)]
pub struct PortStatus {
    facts: Mutex<Facts>,
    refresh: AtomicBool,
    refused: AtomicBool,
    link_up: AtomicBool,
    /// Interrupts that woke the worker.
    pub interrupts: Counter,
    /// Of those, with no cause of this device.
    pub spurious: Counter,
    /// Interrupts because frames had come.
    pub received_causes: Counter,
    /// Interrupts because few descriptors were left.
    pub low_causes: Counter,
    /// Interrupts because a frame found no room.
    pub overrun_causes: Counter,
    /// Interrupts because the link had changed.
    pub link_causes: Counter,
    /// Least time between two interrupts, in nanoseconds. A gauge.
    pub throttle_nanos: Counter,
    /// Descriptors that wait for frames. A gauge.
    pub rx_posted: Counter,
    /// Writes of the receive ring's tail.
    pub rx_doorbells: Counter,
    /// Transmit descriptors that the device has. A gauge.
    pub tx_used: Counter,
    /// Writes of the transmit ring's tail.
    pub tx_doorbells: Counter,
    /// Contexts for checksums and segments.
    pub contexts: Counter,
    /// Packets that the device was given to cut.
    pub segmented: Counter,
    /// Packets that had to be copied into the packet memory.
    pub copied: Counter,
    /// Received packets in which the device found a wrong checksum of IP, TCP or UDP.
    pub checksum_errors: Counter,
}

/// Reason why a port has closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The device does not answer.
    Gone,
    /// It has told what cannot be.
    Lied,
    /// A transfer of it was refused.
    Refused,
}

/// Properties that seldom change.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// The chip and its address; `None` before the port is open.
    pub found: Option<Found>,
    /// The link.
    pub link: Link,
    /// Times that it came up or went.
    pub link_changes: u64,
    /// Reason why the port is closed, if it is.
    pub end: Option<End>,
    /// The device's own counters since the port was opened, as last read.
    pub statistics: Totals,
}

impl PortStatus {
    fn lock(&self) -> MutexGuard<'_, Facts> {
        self.facts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Properties that seldom change.
    pub fn facts(&self) -> Facts {
        self.lock().clone()
    }

    /// True if the link is up.
    #[inline]
    pub fn is_link_up(&self) -> bool {
        // Relaxed: a fact that orders nothing; a packet meets the link as it is a moment later anyway.
        self.link_up.load(Ordering::Relaxed)
    }

    pub(super) fn ask_for_statistics(&self) {
        // Relaxed: a wish that is seen later is fulfilled later.
        self.refresh.store(true, Ordering::Relaxed);
    }

    /// True if the device's counters are to be read.
    #[inline]
    pub(super) fn wants_statistics(&self) -> bool {
        self.refresh.load(Ordering::Relaxed)
    }

    pub(super) fn set_found(&self, found: Found) {
        self.lock().found = Some(found);
    }

    pub(super) fn set_link(&self, link: Link) {
        let mut facts = self.lock();
        facts.link_changes += u64::from(facts.link.up != link.up);
        facts.link = link;
        self.link_up.store(link.up, Ordering::Relaxed);
    }

    pub(super) fn set_closed(&self, end: End) {
        self.set_link(Link::default());
        self.lock().end = Some(end);
    }

    /// Asks the worker to close the port, because the device was refused a transfer.
    pub(super) fn refuse(&self) {
        // Relaxed: a wish that is seen later is fulfilled later.
        self.refused.store(true, Ordering::Relaxed);
        self.ask_for_statistics();
    }

    /// True if that was asked.
    pub(super) fn is_refused(&self) -> bool {
        self.refused.load(Ordering::Relaxed)
    }

    pub(super) fn set_statistics(&self, totals: &Totals) {
        self.refresh.store(false, Ordering::Relaxed);
        self.lock().statistics.clone_from(totals);
    }
}
