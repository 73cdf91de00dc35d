//! Packets on their way into bulk-out transfers.

use super::function::{Plan, Writer};
use super::packed::PackedFrames;
use super::settings::{Settings, Techniques};
use super::status::PortStatus;
use super::transport::{Completion, Status, Transport, UrbBuffer};
use super::urbs::{Buffers, UrbKind};
use polder_buffers::{Packet, Pool, RegionError};
use polder_datapath::counters::QueueCounters;
use polder_datapath::drops::DropReason;
use std::collections::VecDeque;
use std::sync::Arc;

/// The sending side of the core.
pub(super) struct Sending<W> {
    pub(super) writer: W,
    pub(super) buffers: Buffers,
    pub(super) urbs: usize,
    pub(super) in_flight: usize,
    pub(super) pending: VecDeque<Packet>,
    /// Packets in URBs in flight.
    pub(super) packed: PackedFrames,
    /// Counters of the sending end; written only under the core's lock.
    pub(super) counters: Arc<QueueCounters>,
    pub(super) depth: usize,
    /// Maximum number of packets in one URB.
    pub(super) packets_per_urb: usize,
}

impl<W: Writer + Default> Sending<W> {
    pub(super) fn new(settings: &Settings) -> Self {
        let (depth, urbs) = (settings.pending, settings.send_urbs);
        Self {
            writer: W::default(),
            buffers: Buffers::default(),
            urbs,
            in_flight: 0,
            pending: VecDeque::with_capacity(depth),
            packed: PackedFrames::new(0, 0),
            counters: Arc::default(),
            depth,
            packets_per_urb: 1,
        }
    }

    /// Starts sending, with transfers of at most `bytes`.
    pub(super) fn begin(
        &mut self,
        writer: W,
        bytes: usize,
        techniques: Techniques,
    ) -> Result<(), RegionError> {
        self.buffers = Buffers::new(bytes, self.urbs, techniques.urb_pools)?;
        if techniques.pending_queue {
            self.packets_per_urb = self.depth.min(writer.most_packets(bytes)).max(1);
        }
        self.packed = PackedFrames::new(self.urbs, self.packets_per_urb);
        self.writer = writer;
        Ok(())
    }

    /// Uses memory of the transport, if it has any.
    pub(super) fn map(&mut self, transport: &mut dyn Transport, endpoint: u8) {
        self.buffers.map(transport, endpoint, self.urbs);
    }

    pub(super) fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Publishes the number of URBs in flight, and their memory.
    pub(super) fn show<S>(&self, status: &PortStatus<S>) {
        status.set_sending(self.in_flight, &self.buffers);
    }

    /// Plans the packets of the next URB.
    pub(super) fn plan(&mut self) -> Plan {
        let packets = self.pending.iter().take(self.packets_per_urb);
        self.writer.plan(packets, self.buffers.bytes())
    }

    /// Returns memory for the next URB; reusable memory has the maximum size.
    pub(super) fn take_buffer(&mut self, plan: Plan) -> Option<UrbBuffer> {
        let wanted = if self.buffers.reuses() { self.buffers.bytes() } else { plan.bytes };
        self.buffers.take(wanted)
    }

    /// Handles a returned URB: counts its packets. Returns true if the device took all of them.
    pub(super) fn ended(&mut self, done: Completion) -> bool {
        self.in_flight -= 1;
        // A failed transfer that is taken as a whole counts as lost: the device may have missed its end.
        let is_lost = W::WHOLE && done.status != Status::Done;
        let actual = if is_lost { 0 } else { done.actual.min(done.urb.length) };
        let taken = self.packed.end(UrbKind::place(done.urb.id), actual);
        self.counters.transmitted.add(taken.frames);
        self.counters.transmitted_bytes.add(taken.bytes);
        let reason = match done.status {
            Status::Cancelled | Status::Gone => DropReason::PortDown,
            Status::Done | Status::Stall | Status::Babble | Status::Error => DropReason::TxError,
        };
        self.counters.drops.count(reason, taken.lost);
        self.buffers.give(done.urb.buffer);
        taken.lost == 0
    }

    /// Copies the packets of a plan into a URB.
    pub(super) fn fill(
        &mut self,
        plan: Plan,
        place: usize,
        buffer: &mut UrbBuffer,
        pool: &mut Pool,
    ) -> usize {
        let mut used = self.writer.begin(buffer);
        for packet in self.pending.drain(..plan.packets) {
            used = self.writer.push(&packet, buffer, used);
            self.packed.push(place, used, packet.len());
            pool.release_packet(packet);
        }
        used = self.writer.end(buffer, used);
        if W::WHOLE {
            self.packed.join(place, used);
        }
        used
    }

    /// Returns the number of accepted packets that have not ended: they wait for a URB, or are in one.
    pub(super) fn held(&self) -> usize {
        self.pending.len() + self.packed.frames()
    }

    /// Counts packets that cannot be sent as drops: pending packets, which it returns, and with `lost` those
    /// of URBs that did not come back.
    pub(super) fn give_up(&mut self, lost: bool) -> VecDeque<Packet> {
        let lost = if lost { self.packed.clear() } else { 0 };
        self.counters.drops.count(DropReason::PortDown, (self.pending.len() + lost) as u64);
        core::mem::take(&mut self.pending)
    }
}
