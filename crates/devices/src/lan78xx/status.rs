//! Published status of a port, to be read from any thread.

use super::init::{Found, MacSource};
use super::phy::Phy;
use super::statistics::{Block, Totals};
use super::urbs::Buffers;
use super::usb::Speed;
use crate::Link;
use polder_datapath::counters::Counter;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Published status of a port.
#[derive(Debug, Default)]
pub struct PortStatus {
    facts: Mutex<Facts>,
    refresh: AtomicBool,
    /// Bulk-in transfers.
    pub received_transfers: Counter,
    /// Bytes of those.
    pub received_bytes: Counter,
    /// Bulk-out transfers.
    pub sent_transfers: Counter,
    /// Bytes of those, command words included.
    pub sent_bytes: Counter,
    /// Bytes that those had room for.
    pub sent_room: Counter,
    /// Transfers that ended with an error of the bus or the device, or short.
    pub bad_transfers: Counter,
    /// Bytes of bulk-in transfers in which no frames could be found.
    pub lost_bytes: Counter,
    /// Received frames in which the adapter found a wrong checksum of IP, TCP or UDP.
    pub checksum_errors: Counter,
    /// Received frames that the adapter's sum does not fit, though it found nothing wrong.
    pub checksum_mismatches: Counter,
    /// Control requests that failed.
    pub bad_requests: Counter,
    /// Memory of bulk-in URBs.
    pub receive_memory: UrbMemory,
    /// Memory of bulk-out URBs.
    pub send_memory: UrbMemory,
    /// Bulk-in URBs in flight. A gauge.
    pub receiving: Counter,
    /// Bulk-out URBs in flight. A gauge.
    pub sending: Counter,
    /// Received transfers that wait for a turn. A gauge.
    pub filled: Counter,
    /// Frames that wait in the overflow queue. A gauge.
    pub overflow: Counter,
    /// The most that it ever held.
    pub overflow_most: Counter,
    /// Packets that wait in the pending queue. A gauge.
    pub pending: Counter,
}

/// Memory of the URBs of one direction, all gauges.
#[derive(Debug, Default)]
pub struct UrbMemory {
    /// Bytes of a buffer, at most.
    pub bytes: Counter,
    /// Buffers that exist.
    pub all: Counter,
    /// URBs that no transfer uses.
    pub free: Counter,
}

impl UrbMemory {
    pub(super) fn set(&self, buffers: &Buffers) {
        let (all, free) = buffers.counts();
        self.bytes.set(buffers.bytes() as u64);
        self.all.set(all as u64);
        self.free.set(free as u64);
    }
}

/// Properties that seldom change.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// Bus and address of the device, for people.
    pub place: String,
    /// The bus; `None` before the port is open.
    pub bus: Option<Speed>,
    /// The chip's name and revision.
    pub chip: Option<(&'static str, u16)>,
    /// Its MAC address and where that came from.
    pub mac: Option<([u8; 6], MacSource)>,
    /// The PHY, if there is one.
    pub phy: Option<Phy>,
    /// The link.
    pub link: Link,
    /// True if the port is closed.
    pub closed: bool,
    /// The adapter's own counters since the port was opened.
    pub statistics: Option<Totals>,
}

impl PortStatus {
    fn lock(&self) -> MutexGuard<'_, Facts> {
        self.facts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Properties that seldom change.
    pub fn facts(&self) -> Facts {
        self.lock().clone()
    }

    /// Asks that the adapter's counters be read soon.
    pub fn refresh(&self) {
        // Relaxed: a wish that is seen later is fulfilled later.
        self.refresh.store(true, Ordering::Relaxed);
    }

    /// Mean fill of bulk-out transfers, as a part of their room.
    pub fn fill(&self) -> Option<f64> {
        let part = |bytes: u64| f64::from(u32::try_from(bytes >> 16).unwrap_or(u32::MAX));
        let room = part(self.sent_room.get());
        (room > 0.0).then(|| part(self.sent_bytes.get()) / room)
    }

    pub(super) fn takes_refresh(&self) -> bool {
        self.refresh.load(Ordering::Relaxed) && self.refresh.swap(false, Ordering::Relaxed)
    }

    pub(super) fn set_found(&self, found: Found, bus: Speed, place: String) {
        let mut facts = self.lock();
        facts.place = place;
        facts.bus = Some(bus);
        facts.chip = Some((found.chip.name(), found.revision));
        facts.mac = Some((found.mac, found.mac_source));
        facts.phy = found.phy;
        facts.statistics = Some(Totals::new(found.statistics));
    }

    pub(super) fn set_link(&self, link: Link) {
        self.lock().link = link;
    }

    pub(super) fn set_closed(&self) {
        self.lock().closed = true;
    }

    pub(super) fn update_statistics(&self, block: Block) {
        if let Some(totals) = &mut self.lock().statistics {
            totals.update(block);
        }
    }

    pub(super) fn count_received_transfer(&self, bytes: usize) {
        self.received_transfers.add(1);
        self.received_bytes.add(bytes as u64);
    }

    pub(super) fn count_sent_transfer(&self, bytes: usize, room: usize) {
        self.sent_transfers.add(1);
        self.sent_bytes.add(bytes as u64);
        self.sent_room.add(room as u64);
    }

    pub(super) fn count_bad_transfer(&self) {
        self.bad_transfers.add(1);
    }

    pub(super) fn count_bad_request(&self) {
        self.bad_requests.add(1);
    }

    pub(super) fn set_receiving(&self, urbs: usize, memory: &Buffers) {
        self.receiving.set(urbs as u64);
        self.receive_memory.set(memory);
    }

    pub(super) fn set_sending(&self, urbs: usize, memory: &Buffers) {
        self.sending.set(urbs as u64);
        self.send_memory.set(memory);
    }

    pub(super) fn set_filled(&self, transfers: usize) {
        self.filled.set(transfers as u64);
    }

    pub(super) fn set_overflow(&self, frames: usize) {
        self.overflow.set(frames as u64);
        self.overflow_most.set(self.overflow_most.get().max(frames as u64));
    }

    pub(super) fn set_pending(&self, packets: usize) {
        self.pending.set(packets as u64);
    }
}
