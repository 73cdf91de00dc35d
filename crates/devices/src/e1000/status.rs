//! Published status of a port, readable from any thread.

use super::init::DeviceProperties;
use super::statistics::Totals;
use crate::Link;
use polder_datapath::counters::Counter;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Published status of a port.
#[derive(Debug, Default)]
pub struct PortStatus {
    facts: Mutex<PortProperties>,
    refresh: AtomicBool,
    refused: AtomicBool,
    link_up: AtomicBool,
    /// Interrupts that woke the worker.
    pub interrupts: Counter,
    /// Interrupts without a cause of this device.
    pub spurious: Counter,
    /// Interrupts for received frames.
    pub received_causes: Counter,
    /// Interrupts for few remaining descriptors.
    pub low_causes: Counter,
    /// Interrupts for a frame without room.
    pub overrun_causes: Counter,
    /// Interrupts for a link change.
    pub link_causes: Counter,
    /// Minimum time between two interrupts, in nanoseconds. A gauge.
    pub throttle_nanos: Counter,
    /// Posted receive descriptors. A gauge.
    pub rx_posted: Counter,
    /// Writes of the receive ring's tail.
    pub rx_doorbells: Counter,
    /// Transmit descriptors that the device owns. A gauge.
    pub tx_used: Counter,
    /// Writes of the transmit ring's tail.
    pub tx_doorbells: Counter,
    /// Context descriptors for checksums and segments.
    pub contexts: Counter,
    /// Packets that the device was to segment.
    pub segmented: Counter,
    /// Packets that were copied into the packet memory.
    pub copied: Counter,
    /// Received packets in which the device found a wrong checksum of IP, TCP or UDP.
    pub checksum_errors: Counter,
}

/// Reason why a port has closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The device does not answer.
    Gone,
    /// The device reported an impossible value.
    Lied,
    /// A transfer of the device was refused.
    Refused,
}

/// Properties that seldom change.
#[derive(Clone, Debug, Default)]
pub struct PortProperties {
    /// The chip and its address; `None` before the port is open.
    pub found: Option<DeviceProperties>,
    /// The link.
    pub link: Link,
    /// Number of times that the link came up or went down.
    pub link_changes: u64,
    /// Reason why the port is closed, if it is.
    pub end: Option<End>,
    /// The device's own counters since the port was opened, as last read.
    pub statistics: Totals,
}

impl PortStatus {
    fn lock(&self) -> MutexGuard<'_, PortProperties> {
        self.facts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the properties that seldom change.
    pub fn facts(&self) -> PortProperties {
        self.lock().clone()
    }

    /// True if the link is up.
    #[inline]
    pub fn is_link_up(&self) -> bool {
        // Relaxed: the flag orders nothing; a packet meets the link state of a moment later anyway.
        self.link_up.load(Ordering::Relaxed)
    }

    pub(super) fn ask_for_statistics(&self) {
        // Relaxed: a request may be seen late.
        self.refresh.store(true, Ordering::Relaxed);
    }

    /// True if a reading of the device's counters was requested.
    #[inline]
    pub(super) fn wants_statistics(&self) -> bool {
        self.refresh.load(Ordering::Relaxed)
    }

    pub(super) fn set_found(&self, found: DeviceProperties) {
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

    /// Requests that the worker close the port, because a transfer of the device was refused.
    pub(super) fn refuse(&self) {
        // Relaxed: a request may be seen late.
        self.refused.store(true, Ordering::Relaxed);
        self.ask_for_statistics();
    }

    /// True if the close was requested.
    pub(super) fn is_refused(&self) -> bool {
        self.refused.load(Ordering::Relaxed)
    }

    pub(super) fn set_statistics(&self, totals: &Totals) {
        self.refresh.store(false, Ordering::Relaxed);
        self.lock().statistics.clone_from(totals);
    }
}
