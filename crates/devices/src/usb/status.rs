//! Published status of a port, readable from any thread.

use super::transport::Speed;
use super::urbs::Buffers;
use crate::Link;
use polder_datapath::counters::Counter;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Published status of a port; `S` is the status of its function.
#[derive(Debug, Default)]
pub struct PortStatus<S> {
    /// Status of the function.
    pub function: S,
    connection: Mutex<Connection>,
    refresh: AtomicBool,
    /// Number of bulk-in transfers.
    pub received_transfers: Counter,
    /// Bytes of bulk-in transfers.
    pub received_bytes: Counter,
    /// Number of bulk-out transfers.
    pub sent_transfers: Counter,
    /// Bytes of bulk-out transfers, transfer headers included.
    pub sent_bytes: Counter,
    /// Capacity of those bulk-out transfers in bytes.
    pub sent_room: Counter,
    /// Transfers that ended with an error of the bus or the device, or short.
    pub bad_transfers: Counter,
    /// Bytes of bulk-in transfers in which no frames were found.
    pub lost_bytes: Counter,
    /// Failed control requests.
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
    /// Frames in the overflow queue. A gauge.
    pub overflow: Counter,
    /// Maximum of `overflow` so far.
    pub overflow_most: Counter,
    /// Packets in the pending queue. A gauge.
    pub pending: Counter,
}

/// Memory of the URBs of one direction, all gauges.
#[derive(Debug, Default)]
pub struct UrbMemory {
    /// Maximum bytes of a buffer.
    pub bytes: Counter,
    /// Existing buffers.
    pub all: Counter,
    /// Buffers that no transfer uses.
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

/// The device and its link.
#[derive(Clone, Debug, Default)]
pub struct Connection {
    /// Bus and address of the device.
    pub place: String,
    /// Speed of the bus; `None` before the port is open.
    pub bus: Option<Speed>,
    /// The link.
    pub link: Link,
    /// True if the port is closed.
    pub closed: bool,
}

impl<S> PortStatus<S> {
    fn lock(&self) -> MutexGuard<'_, Connection> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the device and its link.
    pub fn connection(&self) -> Connection {
        self.lock().clone()
    }

    /// Requests a reading of the device's counters.
    pub fn refresh(&self) {
        // Relaxed: a request may be seen late.
        self.refresh.store(true, Ordering::Relaxed);
    }

    /// Returns the mean fill of bulk-out transfers, as a fraction of their capacity.
    pub fn fill(&self) -> Option<f64> {
        let part = |bytes: u64| f64::from(u32::try_from(bytes >> 16).unwrap_or(u32::MAX));
        let room = part(self.sent_room.get());
        (room > 0.0).then(|| part(self.sent_bytes.get()) / room)
    }

    pub(crate) fn takes_refresh(&self) -> bool {
        self.refresh.load(Ordering::Relaxed) && self.refresh.swap(false, Ordering::Relaxed)
    }

    pub(super) fn set_place(&self, bus: Speed, place: String) {
        let mut connection = self.lock();
        connection.place = place;
        connection.bus = Some(bus);
    }

    pub(super) fn set_link(&self, link: Link) {
        self.lock().link = link;
    }

    pub(super) fn set_closed(&self) {
        self.lock().closed = true;
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
