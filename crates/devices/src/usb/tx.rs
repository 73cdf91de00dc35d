//! Packets become bulk-out transfers.
//!
//! Packets are packed into a URB until it is full or nothing is left to send; a URB is never held back
//! while one is free (A3). When none is, packets wait in the pending queue, from which every URB that
//! comes back is filled at once, so that under load all of them leave full.
//!
//! A packet is transmitted when its URB has ended and the device has taken the packet's last byte. Packets
//! of transfers that failed, ended short or were cancelled are drops.

use super::function::{Function, Plan, Writer};
use super::packed::PackedFrames;
use super::port::{Core, Kind};
use super::status::PortStatus;
use super::transport::{Completion, Setup, Status, Transport, Urb, UrbBuffer};
use super::urbs::Buffers;
use super::{Settings, Techniques};
use core::num::NonZeroU16;
use polder_buffers::{Batch, Packet, Pool, RegionError};
use polder_datapath::counters::QueueCounters;
use polder_datapath::drops::DropReason;
use polder_datapath::port::{Turn, TxQueue};
use std::collections::VecDeque;
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

/// The sending side of the core.
pub(super) struct Sending<W> {
    writer: W,
    buffers: Buffers,
    urbs: usize,
    in_flight: usize,
    pub(super) pending: VecDeque<Packet>,
    /// Packets in URBs in flight.
    packed: PackedFrames,
    /// Of the sending end; written under the core's lock alone.
    pub(super) counters: Arc<QueueCounters>,
    depth: usize,
    /// The packets in one URB at most.
    packets_per_urb: usize,
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

    /// The device is up, and takes transfers of `bytes`.
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

    /// Takes memory of the transport, if it has any.
    pub(super) fn map(&mut self, transport: &mut dyn Transport, endpoint: u8) {
        self.buffers.map(transport, endpoint, self.urbs);
    }

    pub(super) fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Tells how many URBs are in flight, and how much memory they have.
    pub(super) fn show<S>(&self, status: &PortStatus<S>) {
        status.set_sending(self.in_flight, &self.buffers);
    }

    /// Packets of the next URB.
    fn plan(&mut self) -> Plan {
        let packets = self.pending.iter().take(self.packets_per_urb);
        self.writer.plan(packets, self.buffers.bytes())
    }

    /// Memory of the next URB; all that there may be, when it serves again.
    fn take_buffer(&mut self, plan: Plan) -> Option<UrbBuffer> {
        let wanted = if self.buffers.reuses() { self.buffers.bytes() } else { plan.bytes };
        self.buffers.take(wanted)
    }

    /// A URB has come back: counts its packets. True if the device took all of them.
    pub(super) fn ended(&mut self, done: Completion) -> bool {
        self.in_flight -= 1;
        // A transfer that is taken as a whole and failed was not: its end may be what the device has not seen.
        let is_lost = W::WHOLE && done.status != Status::Done;
        let actual = if is_lost { 0 } else { done.actual.min(done.urb.length) };
        let taken = self.packed.end(Kind::place(done.urb.id), actual);
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
    fn fill(&mut self, plan: Plan, place: usize, buffer: &mut UrbBuffer, pool: &mut Pool) -> usize {
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

    /// Packets that were taken and have not ended: they wait for a URB, or are in one.
    pub(super) fn held(&self) -> usize {
        self.pending.len() + self.packed.frames()
    }

    /// Counts as drops what will not be sent any more: pending packets, which it returns, and with
    /// `lost` those of URBs that did not come back.
    pub(super) fn give_up(&mut self, lost: bool) -> VecDeque<Packet> {
        let lost = if lost { self.packed.clear() } else { 0 };
        self.counters.drops.count(DropReason::PortDown, (self.pending.len() + lost) as u64);
        core::mem::take(&mut self.pending)
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
            Urb::new(Kind::Send.at(place), transfers.endpoints.bulk_out, Setup::default(), buffer, used);
        self.transport.submit(Urb { zero_packet, ..urb });
    }
}

/// The sending end of a port.
pub(crate) struct UsbTx<F: Function> {
    core: SharedCore<F>,
    /// The longest frame, in bytes, FCS excluded.
    longest: usize,
    /// The packet memory, once a packet has come.
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

    /// Reason why a packet cannot be sent; completes what the device would not.
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

    /// Packets are copied into URBs, so their frames come home when they leave the pending queue.
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

    /// URBs have memory of their own, so these are the frames of packets that wait for one.
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
