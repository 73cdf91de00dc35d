//! Packets become bulk-out transfers.
//!
//! Packets are packed into a URB until it is full or nothing is left to send; a URB is never held back
//! while one is free (A3). When none is, packets wait in the pending queue, from which every URB that
//! comes back is filled at once, so that under load all of them leave full.
//!
//! A packet is transmitted when its URB has ended and the device has taken the packet's last byte. Packets
//! of transfers that failed, ended short or were cancelled are drops.

use super::Options;
use super::descriptor::ENDPOINTS;
use super::frame::{TX_COMMAND_BYTES, TxCommand, tx_a, tx_room};
use super::packed::PackedFrames;
use super::port::{Core, Kind};
use super::status::PortStatus;
use super::urbs::Buffers;
use super::usb::{Completion, Setup, Status, Transport, Urb, UrbBuffer};
use core::num::NonZeroU16;
use polder_buffers::{Batch, ChecksumState, Packet, Pool};
use polder_datapath::counters::QueueCounters;
use polder_datapath::drops::DropReason;
use polder_datapath::offload::complete_checksum;
use polder_datapath::port::{Turn, TxQueue};
use polder_datapath::wire::{EtherType, IpProtocol, Ipv4, Ipv6};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes of an Ethernet header.
const HEADER: usize = 14;
/// Bytes of the two addresses, which stand before a tag.
const ADDRESSES: usize = 12;

/// Bytes of a tag.
const TAG_BYTES: usize = 4;

/// The core that both ends share.
#[derive(Clone)]
pub(super) struct SharedCore(Arc<Mutex<Core>>);

impl SharedCore {
    pub(super) fn new(core: Core) -> Self {
        Self(Arc::new(Mutex::new(core)))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Core> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The sending side of the core.
pub(super) struct Sending {
    buffers: Buffers,
    urbs: usize,
    in_flight: usize,
    pub(super) pending: VecDeque<Packet>,
    /// Packets in URBs in flight.
    packed: PackedFrames,
    /// Of the sending end; written under the core's lock alone.
    pub(super) counters: Arc<QueueCounters>,
    depth: usize,
    insert_tags: bool,
    /// The packets in one URB at most.
    frames_per_urb: usize,
}

impl Sending {
    pub(super) fn new(buffers: Buffers, urbs: usize, options: &Options) -> Self {
        let depth = options.pending;
        let frames_per_urb = if options.techniques.pending_queue {
            depth.min(buffers.bytes() / (TX_COMMAND_BYTES + HEADER)).max(1)
        } else {
            1
        };
        Self {
            buffers,
            urbs,
            in_flight: 0,
            pending: VecDeque::with_capacity(depth),
            packed: PackedFrames::new(urbs, frames_per_urb),
            counters: Arc::default(),
            depth,
            insert_tags: options.vlan_offload,
            frames_per_urb,
        }
    }

    /// Takes memory of the transport, if it has any.
    pub(super) fn map(&mut self, transport: &mut dyn Transport, endpoint: u8) {
        self.buffers.map(transport, endpoint, self.urbs);
    }

    pub(super) fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Tells how many URBs are in flight, and how much memory they have.
    pub(super) fn show(&self, status: &PortStatus) {
        status.set_sending(self.in_flight, &self.buffers);
    }

    /// Bytes of the next URB; all that there may be, when its memory serves again.
    fn wanted(&self) -> usize {
        let limit = self.buffers.bytes();
        if self.buffers.reuses() {
            return limit;
        }
        let mut packets = self.pending.iter().take(self.frames_per_urb);
        let fits = |used: usize, packet: &Packet| {
            let end = used + tx_room(used, packet.len());
            if end <= limit { Ok(end) } else { Err(used) }
        };
        packets.try_fold(0, fits).unwrap_or_else(|used| used)
    }

    /// A URB has come back: counts its packets. True if the device took all of them.
    pub(super) fn ended(&mut self, done: Completion) -> bool {
        self.in_flight -= 1;
        let taken = self.packed.end(Kind::place(done.urb.id), done.actual.min(done.urb.length));
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

impl Core {
    /// Fills URBs from the pending queue while there are both.
    pub(super) fn pack(&mut self, pool: &mut Pool) {
        let mut any = false;
        while !self.sending.pending.is_empty() && self.can_send() {
            let wanted = self.sending.wanted();
            let Some(mut buffer) = self.sending.buffers.take(wanted) else { break };
            let Some(place) = self.sending.packed.begin() else {
                self.sending.buffers.give(buffer);
                break;
            };
            let used = self.fill(place, &mut buffer, pool);
            self.submit_send(place, buffer, used);
            any = true;
        }
        if any {
            self.transport.flush();
            self.sending.show(&self.status);
            self.show_pending();
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

    /// Copies pending packets into a URB until it is full or none is left.
    fn fill(&mut self, place: usize, buffer: &mut UrbBuffer, pool: &mut Pool) -> usize {
        let limit = self.sending.buffers.bytes();
        let mut used = 0;
        for _ in 0..self.sending.frames_per_urb {
            let Some(packet) = self.sending.pending.front() else { break };
            if used + tx_room(used, packet.len()) > limit {
                break;
            }
            let Some(packet) = self.sending.pending.pop_front() else { break };
            used = write(&packet, buffer, used, self.sending.insert_tags);
            self.sending.packed.push(place, used, packet.len());
            pool.release_packet(packet);
        }
        used
    }

    fn submit_send(&mut self, place: usize, buffer: UrbBuffer, used: usize) {
        self.sending.in_flight += 1;
        self.status.count_sent_transfer(used, self.sending.buffers.bytes());
        let endpoint = self.found.map_or(ENDPOINTS.bulk_out, |found| found.endpoints.bulk_out);
        let urb = Urb::new(Kind::Send.at(place), endpoint, Setup::default(), buffer, used);
        self.transport.submit(Urb { zero_packet: true, ..urb });
    }
}

/// Writes a packet with its command words behind the `used` bytes of a transfer; returns the bytes then.
fn write(packet: &Packet, urb: &mut UrbBuffer, used: usize, insert_tags: bool) -> usize {
    let tag = if insert_tags { tag_of(packet) } else { None };
    let length = packet.len() - if tag.is_some() { TAG_BYTES } else { 0 };
    let mut command = TxCommand::plain(length).unwrap_or_default();
    if let Some(tag) = tag {
        command.a |= tx_a::VLAN;
        command.b |= u32::from(tag);
    }
    if packet.checksum == ChecksumState::Partial {
        command.a |= tx_a::TRANSPORT_CHECKSUM | tx_a::IP_CHECKSUM;
    }
    let padding = used.next_multiple_of(4) - used;
    let mut at = urb.write(used, &[0; 4][..padding]);
    at = urb.write(at, &command.write());
    let mut segments = packet.segments();
    if tag.is_some() {
        let head = segments.next().unwrap_or_default();
        at = urb.write(at, &head[..ADDRESSES]);
        at = urb.write(at, &head[ADDRESSES + TAG_BYTES..]);
    }
    segments.fold(at, |at, segment| urb.write(at, segment))
}

/// The 802.1Q tag of a packet.
fn tag_of(packet: &Packet) -> Option<u16> {
    let bytes = packet.bytes();
    let tag = bytes.get(ADDRESSES + 2..ADDRESSES + 4)?;
    let is_tagged = bytes[ADDRESSES..ADDRESSES + 2] == EtherType::VLAN.0.to_be_bytes();
    is_tagged.then(|| u16::from_be_bytes([tag[0], tag[1]]))
}

/// True if the adapter finds the same transport message in a packet whose checksum is partial: the
/// outermost one, TCP or UDP, not in a fragment.
fn is_outermost(packet: &Packet) -> bool {
    let bytes = packet.bytes();
    let mut network = HEADER;
    let mut kind = bytes.get(HEADER - 2..HEADER).unwrap_or_default();
    if kind == EtherType::VLAN.0.to_be_bytes() {
        kind = bytes.get(HEADER + 2..HEADER + 4).unwrap_or_default();
        network += 4;
    }
    let rest = bytes.get(network..).unwrap_or_default();
    let whole = packet.len().saturating_sub(network);
    let (transport, protocol) = if kind == EtherType::IPV4.0.to_be_bytes() {
        match Ipv4::parse_head(rest, whole) {
            Ok(ip) if !ip.is_fragment() => (network + ip.header_bytes(), ip.protocol()),
            _ => return false,
        }
    } else if kind == EtherType::IPV6.0.to_be_bytes() {
        match Ipv6::parse_head(rest, whole) {
            Ok(ip) => (network + Ipv6::HEADER_BYTES, ip.next_header()),
            Err(_) => return false,
        }
    } else {
        return false;
    };
    let field = match protocol {
        IpProtocol::TCP => 16,
        IpProtocol::UDP => 6,
        _ => return false,
    };
    usize::from(packet.checksum_start) == transport && packet.checksum_offset == field
}

/// The sending end of a port.
pub struct Lan78xxTx {
    core: SharedCore,
    /// The longest frame, in bytes, FCS excluded.
    longest: usize,
    /// The packet memory, once a packet has come.
    region: Option<NonZeroU16>,
    counters: Arc<QueueCounters>,
}

impl core::fmt::Debug for Lan78xxTx {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.debug_struct("Lan78xxTx").finish_non_exhaustive()
    }
}

impl Lan78xxTx {
    pub(super) fn new(core: SharedCore, longest: usize) -> Self {
        let counters = Arc::clone(&core.lock().sending.counters);
        Self { core, longest, region: None, counters }
    }

    /// Puts a packet into the pending queue, or drops it.
    fn take(&self, mut packet: Packet, core: &mut Core, pool: &mut Pool) {
        if let Err(reason) = self.prepare(&mut packet, core.link.up) {
            self.counters.drops.count(reason, 1);
            pool.release_packet(packet);
            return;
        }
        core.sending.pending.push_back(packet);
    }

    /// Reason why a packet cannot be sent; completes what the adapter would not.
    fn prepare(&self, packet: &mut Packet, link: bool) -> Result<(), DropReason> {
        if packet.len() > self.longest {
            return Err(DropReason::TxTooLong);
        }
        if packet.len() < HEADER {
            return Err(DropReason::TxError);
        }
        if !link {
            return Err(DropReason::PortDown);
        }
        if packet.checksum == ChecksumState::Partial && !is_outermost(packet) {
            complete_checksum(packet).map_err(|_| DropReason::TxError)?;
        }
        Ok(())
    }
}

impl TxQueue for Lan78xxTx {
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
