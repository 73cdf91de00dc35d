//! Stage `coalesce`: merges segments of one flow into super-packets.
//!
//! In: a batch for one egress port. Out: the same batch with fewer packets; merged packets have a
//! [`Segmentation`] and a partial checksum. Exits: none. Cost: one parse of each packet's headers; for merged
//! packets, the sum over the payload, unless the device has verified it, and a link in a chain. Traffic that
//! does not merge is examined rarely: after [`MISSES`] batches without a merge only every [`PERIOD`]th, until
//! one merges. Source: A6.
//!
//! A merged packet can be cut again into exactly the original packets: [`segment`](crate::segment) does so,
//! byte by byte. Packets of a flow never overtake each other, and no packet waits for the next batch.
//!
//! | merged | condition |
//! |---|---|
//! | TCP over IPv4 and IPv6 | headers are equal, options and VLAN tags included; the sequence number is the next one; ACK is the only flag besides ECE, and PSH or FIN on the last; all but the last are of one length |
//! | UDP over IPv4 and IPv6 | headers are equal; there is a checksum; all but the last are of one length |
//!
//! IPv4 identifications must increment by one, as in segments made by a device. Fragments, IPv4 options,
//! extension headers, wrong checksums and link-layer padding are never merged. A partial checksum counts as
//! correct: decapsulated segments from a local sender have one each.

mod candidate;

use crate::offload::{Outlet, Takes};
use crate::wire::{IpProtocol, Ipv4Mut, Ipv6, Ipv6Mut, Pseudo, Tcp, TcpFlags, TcpMut, UdpMut};
use candidate::{Candidate, MergeCheck, MergePosition, Protocol, classify, is_exact, same_headers};
use polder_buffers::{
    BATCH, Batch, ChecksumState, OuterHeaders, Packet, Segmentation, SegmentationKind, Tail,
};

/// Maximum number of frames in a merged packet: devices need a descriptor for each.
pub const MOST_FRAMES: usize = 60;
/// Number of consecutive batches without a merge after which batches are examined rarely.
pub const MISSES: u32 = 32;
/// Period of examined batches while they are examined rarely.
pub const PERIOD: u32 = 8;
/// Maximum length of an IP packet in bytes (RFC 791; without RFC 2675).
const LONGEST_PACKET: u32 = 65_535;
/// Size of the hash table; twice the batch size, so that few flows share a place.
const PLACES: usize = 2 * BATCH;
/// Bits of a hash that do not select the place.
const UNUSED_BITS: u32 = 32 - PLACES.trailing_zeros();
/// Number of no run.
const NONE: u8 = u8::MAX;

/// State of one worker's coalescing; no packet stays in it between batches.
#[derive(Debug)]
pub struct Coalescer {
    worker: usize,
    /// Consecutive batches without a merge.
    misses: u32,
    /// By hash: the run that the flow's next packet may join.
    places: [u8; PLACES],
    runs: Vec<Run>,
    /// By packet: the run that it joins; `NONE` for other packets.
    joins: [u8; BATCH],
    /// By packet: the run whose first packet it is.
    leads: [u8; BATCH],
    /// By run: packets to be appended to the first one.
    tails: Vec<Tail>,
    /// Packets of the batch, last first.
    room: Vec<Packet>,
}

/// Consecutive packets of one flow that are merged.
#[derive(Debug)]
struct Run {
    /// Index of the first packet.
    head: u8,
    /// Header fields of the first packet.
    first: Candidate,
    /// Number of packets that joined the first.
    joined: u8,
    /// Number of packets on the wire that the run represents.
    wire_packets: u16,
    frames: u8,
    /// True if the checksums of the first packet have been verified.
    verified: bool,
    /// Length of the payload of all packets in bytes.
    payload: u32,
    /// TCP flags of the last packet.
    ends: TcpFlags,
}

impl Coalescer {
    /// State of worker number `worker`.
    pub fn new(worker: usize) -> Self {
        Self {
            worker,
            misses: 0,
            places: [NONE; PLACES],
            runs: Vec::with_capacity(BATCH),
            joins: [NONE; BATCH],
            leads: [NONE; BATCH],
            tails: Vec::with_capacity(BATCH),
            room: Vec::with_capacity(BATCH),
        }
    }

    /// Number of the worker.
    pub(crate) fn worker(&self) -> usize {
        self.worker
    }

    /// Merges packets that leave by `outlet`. No packet is dropped.
    pub fn coalesce(&mut self, batch: &mut Batch, outlet: &Outlet) {
        if batch.len() < 2 {
            return;
        }
        self.misses = self.misses.wrapping_add(1);
        if self.misses > MISSES && !self.misses.is_multiple_of(PERIOD) {
            return;
        }
        let joined = self.decide(batch, outlet.takes);
        if joined > 0 {
            self.misses = 0;
            outlet.state.worker(self.worker).merged(joined, self.merge(batch));
        }
    }

    /// Assigns packets to runs; returns the number of packets that join others.
    fn decide(&mut self, batch: &Batch, takes: Takes) -> u64 {
        self.places = [NONE; PLACES];
        self.runs.clear();
        let mut joined = 0;
        for (number, packet) in (0..NONE).zip(batch.iter()) {
            self.joins[usize::from(number)] = NONE;
            self.leads[usize::from(number)] = NONE;
            match classify(packet) {
                MergeCheck::Other => {}
                MergeCheck::Unclear => self.places = [NONE; PLACES],
                MergeCheck::Flow(candidate) => {
                    joined += u64::from(self.enter(number, packet, candidate, batch, takes))
                }
            }
        }
        joined
    }

    /// Assigns a packet of a flow; true if it joins the packets before it.
    #[inline]
    fn enter(
        &mut self,
        number: u8,
        packet: &Packet,
        mut candidate: Candidate,
        batch: &Batch,
        takes: Takes,
    ) -> bool {
        let place = (candidate.flow >> UNUSED_BITS) as usize;
        let run = self.places[place];
        if !candidate.protocol.is_tcp() && !takes.udp_segments {
            candidate.part = MergePosition::None;
        }
        if candidate.part != MergePosition::None
            && let Some(open) = self.runs.get_mut(usize::from(run))
            && let Some(goes_on) = open.join(packet, &candidate, batch, takes)
        {
            self.joins[usize::from(number)] = run;
            self.places[place] = if goes_on { run } else { NONE };
            return true;
        }
        self.places[place] = NONE;
        if candidate.part == MergePosition::Any
            && let Ok(run) = u8::try_from(self.runs.len())
        {
            self.places[place] = run;
            self.leads[usize::from(number)] = run;
            self.runs.push(Run::of(number, packet, candidate));
        }
        false
    }

    /// Merges the assigned packets; returns the number of merged packets.
    #[cold]
    fn merge(&mut self, batch: &mut Batch) -> u64 {
        let mut merged = 0;
        self.tails.clear();
        self.tails.resize_with(self.runs.len(), Tail::default);
        // From the last packet on, so that the packets after a run's first one are already chained.
        while let Some(mut packet) = batch.pop() {
            let number = batch.len();
            if let Some(run) = self.runs.get(usize::from(self.joins[number])) {
                let trimmed = packet.trim_front(run.first.headers);
                debug_assert!(trimmed.is_ok(), "headers were looked at in the head frame");
                self.tails[usize::from(self.joins[number])].prepend(packet);
                continue;
            }
            if let Some(run) = self.runs.get(usize::from(self.leads[number]))
                && run.joined > 0
            {
                packet.attach(core::mem::take(&mut self.tails[usize::from(self.leads[number])]));
                run.describe(&mut packet);
                merged += 1;
            }
            self.room.push(packet);
        }
        while let Some(packet) = self.room.pop() {
            let pushed = batch.push(packet);
            debug_assert!(pushed.is_ok(), "there are fewer packets than before");
        }
        merged
    }
}

impl Run {
    fn of(head: u8, packet: &Packet, first: Candidate) -> Self {
        Self {
            head,
            joined: 0,
            wire_packets: packet.wire_packets,
            frames: frames(packet),
            verified: false,
            payload: first.payload,
            ends: TcpFlags::default(),
            first,
        }
    }

    /// Appends a packet with the same hash if it continues the flow. `Some(true)` if further packets may
    /// follow, `None` if it does not join.
    fn join(&mut self, packet: &Packet, next: &Candidate, batch: &Batch, takes: Takes) -> Option<bool> {
        let first = &self.first;
        let head = batch.get(usize::from(self.head))?;
        let is_next = next.protocol == first.protocol
            && (next.network, next.transport, next.headers)
                == (first.network, first.transport, first.headers)
            && next.payload <= first.payload
            && (!next.protocol.is_v4() || next.identification == self.next_identification())
            && (!next.protocol.is_tcp() || next.sequence == first.sequence.wrapping_add(self.payload));
        let frames = frames(packet);
        let payload = self.payload + next.payload;
        let fits = usize::from(self.frames) + usize::from(frames) <= MOST_FRAMES
            && u32::from(first.headers - first.network) + payload <= LONGEST_PACKET
            && takes.takes_length(usize::from(first.headers) + payload as usize);
        if !is_next || !fits || !same_headers(head, packet, next) {
            return None;
        }
        self.verified = self.verified || is_exact(head, first);
        if !self.verified || !is_exact(packet, next) {
            return None;
        }
        self.frames += frames;
        self.joined += 1;
        self.wire_packets = self.wire_packets.saturating_add(packet.wire_packets);
        self.payload += next.payload;
        self.ends = flags(packet, next);
        Some(next.payload == first.payload && next.part == MergePosition::Any)
    }

    /// IPv4 identification that the next packet must have.
    fn next_identification(&self) -> u16 {
        self.first.identification.wrapping_add(u16::from(self.joined) + 1)
    }

    /// Updates the headers and metadata of the first packet, which now has the whole payload.
    fn describe(&self, packet: &mut Packet) {
        let first = &self.first;
        packet.wire_packets = self.wire_packets;
        let size = u16::try_from(first.payload).unwrap_or(u16::MAX);
        let (network, transport) = (usize::from(first.network), usize::from(first.transport));
        let (whole, length) = (packet.len() - network, packet.len() - transport);
        let bytes = packet.bytes_mut();
        let protocol = if first.protocol.is_tcp() { IpProtocol::TCP } else { IpProtocol::UDP };
        let Some(pseudo) = lengthen(&mut bytes[network..], whole, first.protocol) else { return };
        let sum = pseudo.sum(protocol, u32::try_from(length).unwrap_or(u32::MAX)).partial();
        if first.protocol.is_tcp() {
            if let Ok(mut tcp) = TcpMut::parse(&mut bytes[transport..]) {
                tcp.set_sequence_and_flags(first.sequence, self.ends);
                tcp.set_checksum(sum);
            }
        } else {
            if let Ok(mut udp) = UdpMut::parse_head(&mut bytes[transport..]) {
                udp.set_length(u16::try_from(length).unwrap_or(u16::MAX));
                udp.set_checksum(sum);
            }
        }
        packet.checksum = ChecksumState::Partial;
        packet.checksum_start = first.transport;
        packet.checksum_offset = first.protocol.checksum_offset();
        packet.segmentation = Segmentation { size, kind: self.kind(), outer: OuterHeaders::NONE };
    }

    fn kind(&self) -> SegmentationKind {
        match self.first.protocol {
            Protocol::Tcp4 => SegmentationKind::Tcp4,
            Protocol::Tcp6 => SegmentationKind::Tcp6,
            Protocol::Udp4 | Protocol::Udp6 => SegmentationKind::Udp,
        }
    }
}

/// Sets the length of an IP packet; returns its pseudo-header addresses.
fn lengthen(network: &mut [u8], whole: usize, protocol: Protocol) -> Option<Pseudo> {
    let length = u16::try_from(whole).ok()?;
    if protocol.is_v4() {
        let pseudo = crate::wire::Ipv4::parse_head(network, whole).ok()?.pseudo();
        Ipv4Mut::parse_head(network, whole).ok()?.set_total_length(length);
        Some(pseudo)
    } else {
        let pseudo = Ipv6::parse_head(network, whole).ok()?.pseudo();
        let behind = length.checked_sub(u16::try_from(Ipv6::HEADER_BYTES).ok()?)?;
        Ipv6Mut::parse_head(network, whole).ok()?.set_payload_length(behind);
        Some(pseudo)
    }
}

fn flags(packet: &Packet, at: &Candidate) -> TcpFlags {
    let tcp = packet.bytes().get(usize::from(at.transport)..).and_then(|bytes| Tcp::parse(bytes).ok());
    tcp.map(|tcp| tcp.flags()).unwrap_or_default()
}

/// Number of frames of a packet.
fn frames(packet: &Packet) -> u8 {
    if packet.is_contiguous() { 1 } else { u8::try_from(packet.segment_count()).unwrap_or(u8::MAX) }
}
