//! Stage `decapsulate`: removes outer headers.
//!
//! In: packets received on an underlay port; others pass unchanged. Out: inner frames, whose ingress is the
//! tunnel. They start with a complete Ethernet header and are not parsed further; `network_offset` points
//! after that header, other offsets are unknown. Exits: `NotForUs`, `NoTunnel`, all refusals of Ethernet,
//! VLAN, IPv4, IPv6, GRE and VXLAN, `TunnelBadProtocol`, `MartianSource`, `TunnelMissingChecksum`,
//! `TunnelMissingSequence`, `TunnelOutOfSequence`, `EcnNotCapable`, `NoBuffer`; for keepalives
//! `TunnelNoNeighbour`; for fragments `FragmentBad`, `FragmentOverlap`, `FragmentDuplicate`,
//! `FragmentTimeout`, `FragmentLimit`.
//!
//! The outer TTL, flow label and encapsulation limit are ignored: the packet has arrived (RFC 1122, 3.2.1.7).
//! The port is ignored too: a tunnel accepts its packets on every underlay, since routes need not be
//! symmetric.
//!
//! Super-packets stay whole, and partial checksums stay partial.
//!
//! Cost: outer headers are read once and removed by moving the packet's start; a checksum, if any, covers the
//! whole packet, or the part before the range of a partial checksum. Source: E4.

use super::ecn::merge_ecn;
use super::encapsulate::LOOKED_AT;
use super::inner::clamp_mss;
use super::keepalive::{self, Payload};
use super::outer::{
    Opened, Refused, ends, envelope_plain, envelope_v4, envelope_v6, header_v4, network, place,
};
use super::quick::{Quick, Station};
use super::reassemble::{Reassembler, ReassemblyLimits};
use super::{
    Carrier, ETHERNET_BYTES, Ends, Tunnel, TunnelCounters, TunnelId, Tunnels, Underlay, encapsulation, gre,
    vxlan,
};
use crate::counters::WorkerCounters;
use crate::drops::{Context, DropReason, is_dropped};
use crate::parse::HeaderSummary;
use crate::stage::{Inbound, StageState};
use crate::units::Nanos;
use crate::wire::{Ecn, EtherType, IpProtocol, Ipv6, MacAddress};
use polder_buffers::{
    BATCH, Batch, ChecksumState, NO_PORT, OuterHeaders, Packet, PortId, Segmentation, SegmentationKind,
};

/// [`Packet::flags`]: the packet was reassembled from fragments.
pub(super) const REASSEMBLED: u8 = 1 << 7;

/// State of one worker between batches, mainly incomplete datagrams.
#[derive(Debug)]
pub struct DecapsulateState {
    worker: usize,
    reassembler: Reassembler,
    /// Empty batch that replaces the received one while fragments are removed.
    spare: Batch,
}

impl DecapsulateState {
    /// State of worker number `worker`. Allocates memory for the fragments that `limits` allow.
    pub fn new(worker: usize, limits: ReassemblyLimits) -> Self {
        Self { worker, reassembler: Reassembler::new(limits), spare: Batch::new() }
    }
}

impl StageState for DecapsulateState {
    type Table = Tunnels;

    fn begin(worker: usize, _: &Tunnels, _: &WorkerCounters) -> Self {
        Self::new(worker, ReassemblyLimits::default())
    }

    fn obstacle(tunnels: &Tunnels, port: PortId) -> Option<&'static str> {
        tunnels.get(port)?.obstacle(tunnels)
    }

    fn next_deadline(&self) -> Option<Nanos> {
        self.reassembler.next_deadline()
    }

    /// Drops datagrams whose reassembly timed out.
    fn expire(&mut self, context: &mut Context<'_>) {
        if self.next_deadline().is_some_and(|deadline| deadline <= context.now) {
            self.reassembler.expire(context);
        }
    }

    fn clear(&mut self, context: &mut Context<'_>) {
        self.reassembler.clear(context);
    }
}

impl Inbound for DecapsulateState {
    #[inline]
    fn is_met(tunnels: &Tunnels, ingress: PortId) -> bool {
        tunnels.underlay(ingress).is_some()
    }

    #[inline]
    fn receive(&mut self, batch: &mut Batch, tunnels: &Tunnels, context: &mut Context<'_>) {
        decapsulate(batch, tunnels, self, context);
    }
}

/// Decapsulates packets that were received on underlay ports.
///
/// Fragments leave the batch until their datagram is complete; the reassembled packet takes the position of
/// its last fragment. The batch never grows.
pub fn decapsulate(
    batch: &mut Batch,
    tunnels: &Tunnels,
    state: &mut DecapsulateState,
    context: &mut Context<'_>,
) {
    state.expire(context);
    if let Some(fragment) = open_all(batch, 0, tunnels, state.worker, context) {
        reassemble(batch, fragment, tunnels, state, context);
        let left = open_all(batch, fragment, tunnels, state.worker, context);
        debug_assert_eq!(left, None, "a reassembled datagram is no fragment");
    }
}

/// Decapsulates packets from position `from` on; stops at the first fragment and returns its position.
fn open_all(
    batch: &mut Batch,
    from: usize,
    tunnels: &Tunnels,
    worker: usize,
    context: &mut Context<'_>,
) -> Option<usize> {
    let mut lane: Option<Lane<'_>> = None;
    let (mut port, mut underlay, mut station) = (NO_PORT, None, None);
    let mut packets = batch.get_mut(from..).unwrap_or_default().iter_mut();
    for position in from..BATCH {
        let Some(packet) = packets.next() else { break };
        if packet.ingress != port {
            port = packet.ingress;
            underlay = tunnels.underlay(port);
            station = underlay.and_then(Station::of);
        }
        let Some(underlay) = underlay else { continue };
        if is_dropped(packet) {
            continue;
        }
        if let (Some(lane), Some(station)) = (&mut lane, station)
            && lane.open_plain(packet, station)
        {
            continue;
        }
        if open_closely(packet, underlay, tunnels, &mut lane, worker, context) {
            return Some(position);
        }
    }
    None
}

/// Decapsulates a packet after parsing all its outer headers; returns true for a fragment, which is not
/// changed.
#[inline(never)]
fn open_closely<'a>(
    packet: &mut Packet,
    underlay: &Underlay,
    tunnels: &'a Tunnels,
    lane: &mut Option<Lane<'a>>,
    worker: usize,
    context: &mut Context<'_>,
) -> bool {
    match decide(packet, underlay, tunnels, lane, (worker, context.now)) {
        Ok(opened) => {
            let Some(lane) = lane else { return false };
            if let Err(reason) = lane.open(packet, opened, context) {
                lane.refuse(packet, reason, context);
            }
        }
        Err(Refused::Fragment) => return !underlay.is_shared || is_ours(packet, underlay, tunnels),
        Err(Refused::Bare) => {
            let Some(lane) = lane else { return false };
            if let Err(reason) = lane.open_bare(packet, context) {
                lane.refuse(packet, reason, context);
            }
        }
        Err(Refused::OfTunnel(reason)) => {
            if let Some(lane) = lane {
                lane.refuse(packet, reason, context);
            }
        }
        Err(Refused::Drop(reason)) => {
            if !underlay.is_shared || is_ours(packet, underlay, tunnels) {
                context.discard(packet, reason);
            }
        }
    }
    false
}

/// True if a packet on a shared underlay port is between the endpoints of a tunnel.
#[cold]
fn is_ours(packet: &Packet, underlay: &Underlay, tunnels: &Tunnels) -> bool {
    ends(packet, underlay).is_some_and(|(ends, carrier)| tunnels.has(&ends, carrier))
}

/// Parses the outer headers; sets `lane` to a run of the packet's tunnel.
#[inline(always)]
fn decide<'a>(
    packet: &Packet,
    underlay: &Underlay,
    tunnels: &'a Tunnels,
    lane: &mut Option<Lane<'a>>,
    place: (usize, Nanos),
) -> Result<Opened, Refused> {
    let bytes = packet.bytes();
    if underlay.vlan.is_none()
        && let Some(plain) = HeaderSummary::read_plain_v4(packet, bytes)
    {
        let envelope = envelope_plain(plain, bytes, underlay)?;
        return encapsulation::decide(plain.protocol, packet, &envelope, tunnels, lane, place);
    }
    decide_closely((packet, bytes), underlay, tunnels, lane, place)
}

/// [`decide`] for packets with tags, options, fragments or IPv6.
#[inline(never)]
fn decide_closely<'a>(
    (packet, bytes): (&Packet, &[u8]),
    underlay: &Underlay,
    tunnels: &'a Tunnels,
    lane: &mut Option<Lane<'a>>,
    place: (usize, Nanos),
) -> Result<Opened, Refused> {
    let (ether_type, link, bytes) = network(bytes, underlay)?;
    if ether_type != EtherType::IPV4 {
        let ip = Ipv6::parse_head(bytes, packet.len() - link)?;
        let envelope = envelope_v6(&ip, link)?;
        if ip.next_header() == IpProtocol::UDP {
            return vxlan::decide(packet, &envelope, tunnels, lane, place);
        }
        return gre::decide(packet, &envelope, tunnels, lane, place);
    }
    let ip = header_v4(packet, (link, bytes))?;
    if ip.is_fragment() {
        return Err(encapsulation::fragment(ip.protocol(), tunnels));
    }
    encapsulation::decide(ip.protocol(), packet, &envelope_v4(&ip, link), tunnels, lane, place)
}

/// A run of packets of one tunnel; dropping it updates the tunnel's counters.
pub(super) struct Lane<'a> {
    pub(super) tunnel: &'a Tunnel,
    /// GRE protocol type of frames; `u32::MAX` for a tunnel of packets, which have several types.
    pub(super) protocol: u32,
    /// Expected outer headers for the fast path.
    quick: Option<Quick>,
    /// A bare packet that is about to be decapsulated.
    pub(super) bare: Option<(Opened, Payload)>,
    /// Destination address of keepalive answers, if a tunnel of frames sends keepalives.
    probe: Option<MacAddress>,
    pub(super) counters: &'a TunnelCounters,
    /// Highest sequence number received.
    pub(super) received: Option<u32>,
    pub(super) packets: u64,
    pub(super) bytes: u64,
    pub(super) now: Nanos,
}

impl<'a> Lane<'a> {
    pub(super) fn new(tunnel: &'a Tunnel, worker: usize, now: Nanos) -> Self {
        let state = tunnel.state();
        let received = if tunnel.options.sequence { state.sequence.received() } else { None };
        let is_bare = tunnel.options.is_bare();
        let protocol = if is_bare { u32::MAX } else { u32::from(EtherType::TRANSPARENT_ETHERNET.0) };
        let counters = state.worker(worker);
        let probe = tunnel.options.keepalive;
        let quick = Quick::of(&tunnel.options);
        Self { tunnel, protocol, quick, bare: None, probe, counters, received, packets: 0, bytes: 0, now }
    }

    /// Returns the lane of the tunnel with these endpoints and this number: the current lane, or a new one
    /// that replaces it.
    #[inline(always)]
    pub(super) fn enter<'l>(
        lane: &'l mut Option<Self>,
        (ends, id): (&Ends, TunnelId),
        tunnels: &'a Tunnels,
        (worker, now): (usize, Nanos),
    ) -> Result<&'l mut Self, Refused> {
        if !lane.as_ref().is_some_and(|lane| lane.tunnel.is_between(ends, id)) {
            let tunnel = tunnels.find(ends, id).ok_or(Refused::Drop(DropReason::NoTunnel))?;
            *lane = Some(Self::new(tunnel, worker, now));
        }
        lane.as_mut().ok_or(Refused::Drop(DropReason::NoTunnel))
    }

    /// Removes the outer headers if they equal the expected headers of this tunnel; false otherwise, and the
    /// packet is not changed.
    #[inline(always)]
    fn open_plain(&mut self, packet: &mut Packet, station: Station) -> bool {
        let read = self.quick.as_ref().and_then(|quick| quick.read(packet, station));
        let Some((strip, headers)) = read else { return false };
        if packet.trim_front(strip).is_err() || forget_outer(packet, strip).is_err() {
            return false;
        }
        packet.set_header_summary(headers.word());
        packet.ingress = self.tunnel.options.port;
        self.packets += u64::from(packet.wire_packets);
        self.bytes += packet.len() as u64;
        clamp_mss(packet, headers, self.tunnel, self.counters);
        true
    }

    /// Removes the outer headers.
    #[inline(always)]
    pub(super) fn open(
        &mut self,
        packet: &mut Packet,
        opened: Opened,
        context: &mut Context<'_>,
    ) -> Result<(), DropReason> {
        let Opened { strip, end, ecn, sequence } = opened;
        if packet.len() != end || !packet.is_contiguous() {
            shape(packet, strip, end, context)?;
        }
        // Only CE and ECT(1) change the inner packet (RFC 6040, figure 4).
        if matches!(ecn, Ecn::Congestion | Ecn::Capable1) {
            merge_ecn(packet, strip, ecn)?;
        }
        packet.trim_front(strip).map_err(|_| DropReason::NoBuffer)?;
        self.packets += u64::from(packet.wire_packets);
        self.bytes += (end - usize::from(strip)) as u64;
        self.received = sequence.or(self.received);
        if packet.flags & REASSEMBLED != 0 {
            self.counters.reassembled.add(1);
        }
        forget_outer(packet, strip)?;
        packet.ingress = self.tunnel.options.port;
        if self.probe.is_some_and(|probe| packet.bytes().starts_with(&probe.0)) {
            keepalive::take(self, packet, context);
            return Ok(());
        }
        let headers = HeaderSummary::of(packet);
        clamp_mss(packet, headers, self.tunnel, self.counters);
        Ok(())
    }

    #[cold]
    fn refuse(&self, packet: &mut Packet, reason: DropReason, context: &Context<'_>) {
        let counters = self.counters;
        use DropReason::{GreBadChecksum, TunnelMissingChecksum, UdpBadChecksum};
        if matches!(reason, GreBadChecksum | UdpBadChecksum | TunnelMissingChecksum) {
            counters.bad_checksum.add(1);
        } else if matches!(reason, DropReason::TunnelOutOfSequence | DropReason::TunnelMissingSequence) {
            counters.out_of_sequence.add(1);
        } else if reason == DropReason::EcnNotCapable {
            counters.not_ecn_capable.add(1);
        }
        context.discard(packet, reason);
    }
}

impl Drop for Lane<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.packets == 0 {
            return;
        }
        self.counters.received.add(self.packets);
        self.counters.received_bytes.add(self.bytes);
        self.counters.last_received.set(self.now.0);
        if let Some(received) = self.received {
            self.tunnel.state().sequence.set_received(received);
        }
    }
}

/// Resets the metadata of the outer packet, whose outer headers had `strip` bytes. Offloads that the sender
/// requested for the inner packet are kept.
#[inline(always)]
fn forget_outer(packet: &mut Packet, strip: u16) -> Result<(), DropReason> {
    packet.network_offset = ETHERNET_BYTES;
    packet.transport_offset = 0;
    packet.vlan = 0;
    packet.flags = 0;
    packet.flow_hash = 0;
    if packet.checksum == ChecksumState::Partial {
        return keep_inner(packet, strip);
    }
    packet.segmentation = Segmentation::default();
    // The device's checksum status applies to the outer packet.
    packet.checksum = ChecksumState::Unknown;
    Ok(())
}

/// Sets the metadata of the inner packet.
#[inline(never)]
fn keep_inner(packet: &mut Packet, strip: u16) -> Result<(), DropReason> {
    let is_inside = packet.checksum_start >= strip + ETHERNET_BYTES;
    if packet.segmentation.kind != SegmentationKind::None {
        // Segments of the tunnel's own datagram are packets by themselves, which do not begin here.
        let is_tunnelled = is_inside && packet.segmentation.outer.is_udp();
        packet.segmentation.outer = OuterHeaders::NONE;
        if !is_tunnelled {
            return Err(DropReason::DeviceError);
        }
    }
    if is_inside {
        packet.checksum_start -= strip;
    } else {
        // Partial checksum of the outer datagram: a local sender, so the datagram is intact.
        packet.checksum = ChecksumState::Unknown;
    }
    Ok(())
}

/// Trims bytes after the inner frame, and moves its headers into the head frame of a chain.
#[cold]
pub(super) fn shape(
    packet: &mut Packet,
    strip: u16,
    end: usize,
    context: &mut Context<'_>,
) -> Result<(), DropReason> {
    packet.truncate(end, context.pool).map_err(|_| DropReason::Ipv4BadTotalLength)?;
    let wanted = usize::from(strip + LOOKED_AT).min(end);
    let wanted = u16::try_from(wanted).map_err(|_| DropReason::NoBuffer)?;
    packet.gather(wanted, context.pool).map_err(|_| DropReason::NoBuffer)
}

/// Removes the fragments from position `from` on, and inserts reassembled packets.
#[cold]
fn reassemble(
    batch: &mut Batch,
    from: usize,
    tunnels: &Tunnels,
    state: &mut DecapsulateState,
    context: &mut Context<'_>,
) {
    core::mem::swap(batch, &mut state.spare);
    for (position, mut packet) in state.spare.drain().enumerate() {
        let underlay = tunnels.underlay(packet.ingress).filter(|_| position >= from && !is_dropped(&packet));
        let place = underlay.and_then(|underlay| place(&packet, underlay, tunnels));
        let packet = match place {
            Some(place) if tunnels.has(&place.key.ends, Carrier::Ip(place.key.protocol)) => {
                state.reassembler.insert(packet, &place, context)
            }
            Some(_) => {
                if !underlay.is_some_and(|underlay| underlay.is_shared) {
                    context.discard(&mut packet, DropReason::NoTunnel);
                }
                Some(packet)
            }
            None => Some(packet),
        };
        if let Some(packet) = packet {
            let result = batch.push(packet);
            debug_assert!(result.is_ok(), "no more packets come back than were taken out");
        }
    }
}
