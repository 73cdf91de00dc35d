//! The transmitter: packets become bulk-out transfers.
//!
//! Packets are packed into a URB until it is full or no packet is left; a URB is never held back while one is
//! free (A3). If none is free, packets wait in the pending queue, from which every returned URB is filled at
//! once, so that under load all URBs are full.
//!
//! A packet is transmitted when its URB has ended and the device has taken the packet's last byte. Packets of
//! transfers that failed, ended short or were cancelled are drops.

use super::function::{Function, Writer as _};
use super::port::Core;
use super::transport::{Setup, Urb, UrbBuffer};
use super::urbs::UrbKind;
use core::num::NonZeroU16;
use polder_buffers::{Batch, Packet, Pool};
use polder_datapath::counters::QueueCounters;
use polder_datapath::drops::DropReason;
use polder_datapath::port::{Turn, TxQueue};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes of an Ethernet header.
const HEADER: usize = 14;

/// The core that both ends share.
pub(super) struct SharedCore<F: Function>(Arc<Mutex<Core<F>>>);

impl<F: Function> Clone for SharedCore<F> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<F: Function> SharedCore<F> {
    pub(super) fn new(core: Core<F>) -> Self {
        Self(Arc::new(Mutex::new(core)))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Core<F>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<F: Function> Core<F> {
    /// Fills URBs from the pending queue while there are both.
    pub(super) fn pack(&mut self, pool: &mut Pool) {
        let mut any = false;
        while !self.sending.pending.is_empty() && self.can_send() {
            let plan = self.sending.plan();
            if plan.packets == 0 {
                self.drop_first(pool);
                continue;
            }
            let Some(mut buffer) = self.sending.take_buffer(plan) else { break };
            let Some(place) = self.sending.packed.begin() else {
                self.sending.buffers.give(buffer);
                break;
            };
            let used = self.sending.fill(plan, place, &mut buffer, pool);
            self.submit_send(place, buffer, used);
            any = true;
        }
        if any {
            self.transport.flush();
            self.sending.show(&self.status);
            self.show_pending();
        }
    }

    /// Drops a packet that fits into no transfer.
    #[cold]
    fn drop_first(&mut self, pool: &mut Pool) {
        if let Some(packet) = self.sending.pending.pop_front() {
            self.sending.counters.drops.count(DropReason::TxTooLong, 1);
            pool.release_packet(packet);
        }
    }

    pub(super) fn show_pending(&self) {
        self.status.set_pending(self.sending.pending.len());
        let held = self.sending.held() as u64;
        self.sending.counters.in_flight.set(held);
        self.sending.counters.unsent.set(held);
    }

    fn can_send(&self) -> bool {
        self.sending.in_flight < self.sending.urbs && !self.closed && !self.is_halted()
    }

    fn submit_send(&mut self, place: usize, buffer: UrbBuffer, used: usize) {
        let Some(transfers) = self.transfers else { return };
        self.sending.in_flight += 1;
        self.status.count_sent_transfer(used, self.sending.buffers.bytes());
        let zero_packet = self.sending.writer.needs_zero_packet(used);
        let urb =
            Urb::new(UrbKind::Send.at(place), transfers.endpoints.bulk_out, Setup::default(), buffer, used);
        self.transport.submit(Urb { zero_packet, ..urb });
    }
}

/// The transmitting end of a port.
pub(crate) struct UsbTx<F: Function> {
    core: SharedCore<F>,
    /// Maximum frame length in bytes, FCS excluded.
    longest: usize,
    /// The packet memory, known after the first packet.
    region: Option<NonZeroU16>,
    counters: Arc<QueueCounters>,
}

impl<F: Function> core::fmt::Debug for UsbTx<F> {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.debug_struct("UsbTx").finish_non_exhaustive()
    }
}

impl<F: Function> UsbTx<F> {
    pub(super) fn new(core: SharedCore<F>, longest: usize) -> Self {
        let counters = Arc::clone(&core.lock().sending.counters);
        Self { core, longest, region: None, counters }
    }

    /// Puts a packet into the pending queue, or drops it.
    fn take(&self, mut packet: Packet, core: &mut Core<F>, pool: &mut Pool) {
        if let Err(reason) = self.prepare(&mut packet, core) {
            self.counters.drops.count(reason, 1);
            pool.release_packet(packet);
            return;
        }
        core.sending.pending.push_back(packet);
    }

    /// Completes offloads that the device lacks; returns the reason why a packet cannot be sent, as an error.
    fn prepare(&self, packet: &mut Packet, core: &Core<F>) -> Result<(), DropReason> {
        if packet.len() > self.longest {
            return Err(DropReason::TxTooLong);
        }
        if packet.len() < HEADER {
            return Err(DropReason::TxError);
        }
        if !core.link.up {
            return Err(DropReason::PortDown);
        }
        core.sending.writer.prepare(packet)
    }
}

impl<F: Function> TxQueue for UsbTx<F> {
    fn transmit(&mut self, batch: &mut Batch, pool: &mut Pool) {
        self.region = Some(pool.region().id());
        let mut core = self.core.lock();
        if core.closed {
            return;
        }
        loop {
            let room = core.sending.depth.saturating_sub(core.sending.pending.len());
            for packet in batch.drain_front(room) {
                self.take(packet, &mut core, pool);
            }
            let before = core.sending.pending.len();
            core.pack(pool);
            if batch.is_empty() || core.sending.pending.len() == before {
                break;
            }
        }
        core.show_pending();
    }

    /// Packets are copied into URBs, so their frames are freed when they leave the pending queue.
    fn reclaim(&mut self, pool: &mut Pool) -> Turn {
        let mut core = self.core.lock();
        core.service(pool);
        if core.closed {
            core.sending.give_up(false).into_iter().for_each(|packet| pool.release_packet(packet));
        }
        core.show_pending();
        if core.closed { Turn::Closed } else { Turn::Drained }
    }

    fn held(&self) -> u32 {
        u32::try_from(self.core.lock().sending.held()).unwrap_or(u32::MAX)
    }

    /// URBs have memory of their own, so only frames of pending packets count.
    fn posted(&self) -> u32 {
        let Some(region) = self.region else { return 0 };
        let core = self.core.lock();
        let slots = core.sending.pending.iter().map(|packet| packet.slots_of(region)).sum::<u64>();
        u32::try_from(slots).unwrap_or(u32::MAX)
    }

    fn counters(&self) -> &Arc<QueueCounters> {
        &self.counters
    }
}
