//! Into the tunnel.
//!
//! In: packets whose egress is a tunnel; all others pass untouched. Out: outer packets whose egress
//! is the tunnel's underlay and whose ingress is the tunnel; sequence numbers are still missing, which
//! [`seal`](crate::seal) fills in. Exits: `TunnelNoNeighbour`, `TunnelRecursion`, `TunnelTooBig`,
//! `NoHeadroom`, `NoBuffer`.
//!
//! Cost: a copy of one cache line into the headroom and a dozen additions; a checksum, where the
//! tunnel has one, reads the whole packet. Source: E3, E4.

use super::inner::{Inner, Network};
use super::reply::TokenBucket;
use super::template::{self, Template};
use super::toobig;
use super::{ETHERNET_BYTES, MOST_CUT, SEAL_SEQUENCE, Tunnel, TunnelCounters, Tunnels, fragment, mss};
use crate::drops::{Context, DropReason, is_dropped};
use crate::headroom;
use crate::offload::complete_checksum;
use crate::wire::{EtherType, Gre, IpProtocol, Ipv4, Link};
use polder_buffers::{BATCH, Batch, ChecksumState, Packet, PortId, Segmentation};

/// Tunnels in tunnels that a packet may be in before it is put into one of ours.
const NESTING: usize = 4;
/// Bytes of a chain that are brought into its head: the longest headers that are looked at.
pub(super) const LOOKED_AT: u16 = 160;

/// What one worker keeps between batches.
#[derive(Debug)]
pub struct EncapsulateState {
    worker: usize,
    /// Messages to senders whose packets are too big; empty it after every batch.
    ///
    /// They are frames as the other end of the tunnel would have sent them: their ingress is the
    /// tunnel, and their journey begins at the bridge, which knows the port and the VLAN of the
    /// sender. They are counted as generated.
    pub replies: Batch,
    bucket: TokenBucket,
    draws: Draws,
}

impl EncapsulateState {
    /// The state of the worker with this number.
    pub fn new(worker: usize) -> Self {
        Self { worker, replies: Batch::new(), bucket: TokenBucket::default(), draws: Draws::new() }
    }

    /// The lane of a tunnel, at the first of the packets `rest`.
    #[inline(never)]
    fn change_lane<'a>(&mut self, last: Option<Lane<'a>>, tunnel: &'a Tunnel, rest: &[Packet]) -> Lane<'a> {
        if let Some(last) = last {
            self.draws.put_back(last.port, last.identification);
        }
        let mut lane = Lane::new(tunnel, self.worker);
        if lane.numbered {
            lane.identification = self.draws.draw(tunnel, rest);
        }
        lane
    }

    /// Tells the sender of a packet that is too big, if it wants to know and the rate allows.
    #[cold]
    fn report(
        &mut self,
        packet: &Packet,
        inner: Inner,
        limit: u16,
        lane: &Lane<'_>,
        context: &mut Context<'_>,
    ) {
        if !toobig::wants_report(packet.bytes(), inner, limit) {
            return;
        }
        let silenced = self.replies.is_full() || !self.bucket.take(context.now);
        let reply = if silenced { None } else { toobig::message(packet, inner, limit, context.pool) };
        let Some(mut reply) = reply else {
            lane.counters.too_big_silenced.add(1);
            return;
        };
        reply.ingress = lane.port;
        reply.received_at = context.now.0;
        match self.replies.push(reply) {
            Ok(()) => {
                lane.counters.too_big_reported.add(1);
                context.ledger.generated.add(1);
            }
            Err(reply) => context.pool.release_packet(reply),
        }
    }
}

/// Puts the packets of `batch` whose egress is a tunnel into it.
///
/// Usually the batch stays as it is. When an outer packet has to be fragmented, the whole batch moves
/// to the end of `expanded`, in order, and the batch is empty: the rest of the journey runs over
/// `expanded`, which grows beyond its capacity only when that is less than
/// [`Tunnels::longest_expansion`].
pub fn encapsulate(
    batch: &mut Batch,
    tunnels: &Tunnels,
    state: &mut EncapsulateState,
    expanded: &mut Vec<Packet>,
    context: &mut Context<'_>,
) {
    const { assert!(BATCH <= 64, "one bit a packet") };
    let mut pieces = 0_u64;
    let mut lane: Option<Lane<'_>> = None;
    state.draws.clear();
    for position in 0..batch.len() {
        let egress = batch[position].egress;
        if lane.as_ref().is_none_or(|lane| lane.port != egress) {
            // No tunnel has the port "dropped", so what has ended its journey is skipped, too.
            let Some(tunnel) = tunnels.get(egress) else { continue };
            lane = Some(state.change_lane(lane, tunnel, &batch[position..]));
        }
        let Some(lane) = &mut lane else { continue };
        let packet = &mut batch[position];
        let inner = lane.look(packet, context);
        match lane.decide(packet, inner, tunnels) {
            Verdict::Send => lane.send(packet, inner, context),
            Verdict::Split => {
                pieces |= 1 << position;
                match complete_checksum(packet) {
                    Ok(()) => lane.send(packet, inner, context),
                    Err(_) => context.discard(packet, DropReason::DeviceError),
                }
            }
            Verdict::TooBig(limit) => {
                lane.counters.too_big.add(1);
                state.report(packet, inner, limit, lane, context);
                context.discard(packet, DropReason::TunnelTooBig);
            }
            Verdict::NoNeighbour => {
                lane.counters.no_neighbour.add(1);
                context.discard(packet, DropReason::TunnelNoNeighbour);
            }
            Verdict::Recursion => {
                lane.counters.recursion.add(1);
                context.discard(packet, DropReason::TunnelRecursion);
            }
        }
    }
    drop(lane);
    if pieces != 0 {
        expand(batch, pieces, tunnels, state.worker, expanded, context);
    }
}

/// What becomes of a packet.
enum Verdict {
    /// Into the tunnel in one piece.
    Send,
    /// Into the tunnel, then into fragments.
    Split,
    /// Larger than this limit, in bytes, Ethernet header and tags excluded.
    TooBig(u16),
    /// Nowhere: the next hop is not known.
    NoNeighbour,
    /// Nowhere: it is an outer packet already.
    Recursion,
}

/// A run of packets for one tunnel; its counters are written when it ends.
struct Lane<'a> {
    port: PortId,
    tunnel: &'a Tunnel,
    counters: &'a TunnelCounters,
    template: Template,
    is_known: bool,
    /// Frames up to this length fit in one piece, whatever tags they have; none does while the next hop
    /// is not known.
    fits: usize,
    flags: u8,
    /// Whether outer packets have an identification, and the next one.
    numbered: bool,
    identification: u16,
    packets: u64,
    bytes: u64,
}

impl<'a> Lane<'a> {
    fn new(tunnel: &'a Tunnel, worker: usize) -> Self {
        let options = tunnel.options();
        let next_hop = tunnel.state().next_hop.address();
        let fits = tunnel.carried_frame().min(tunnel.mtu().saturating_add(ETHERNET_BYTES));
        Self {
            port: options.port,
            tunnel,
            counters: tunnel.state().worker(worker),
            template: next_hop.map_or(tunnel.template, |next_hop| tunnel.template.addressed(next_hop)),
            is_known: next_hop.is_some(),
            fits: if next_hop.is_some() { usize::from(fits) } else { 0 },
            flags: if options.sequence { SEAL_SEQUENCE } else { 0 },
            // RFC 6864, 4: only what may be fragmented needs one.
            numbered: !options.dont_fragment,
            identification: 0,
            packets: 0,
            bytes: 0,
        }
    }

    /// What is inside, with its headers in one place.
    #[inline(always)]
    fn look(&self, packet: &mut Packet, context: &mut Context<'_>) -> Inner {
        if !packet.is_contiguous() {
            gather(packet, context);
        }
        Inner::look(packet.bytes())
    }

    #[inline(always)]
    fn decide(&self, packet: &Packet, inner: Inner, tunnels: &Tunnels) -> Verdict {
        if inner.protocol() == IpProtocol::GRE && is_recursive(packet.bytes(), tunnels) {
            return Verdict::Recursion;
        }
        if packet.len() <= self.fits { Verdict::Send } else { self.measure(packet, inner) }
    }

    /// Whether a frame longer than [`Lane::fits`] goes in one piece, in several, or not at all.
    #[cold]
    fn measure(&self, packet: &Packet, inner: Inner) -> Verdict {
        if !self.is_known {
            return Verdict::NoNeighbour;
        }
        let carried = self.tunnel.carried_frame();
        let before = u16::try_from(inner.network_offset()).unwrap_or(ETHERNET_BYTES);
        let limit = limit(self.tunnel, carried.saturating_sub(before), packet.bytes(), inner);
        if packet.len() > usize::from(limit) + inner.network_offset() {
            return Verdict::TooBig(limit);
        }
        if packet.len() <= usize::from(carried) { Verdict::Send } else { Verdict::Split }
    }

    /// Writes the outer headers.
    #[inline(always)]
    fn send(&mut self, packet: &mut Packet, inner: Inner, context: &mut Context<'_>) {
        let options = self.tunnel.options();
        mss::clamp(packet, inner, self.tunnel, self.counters);
        let template = &self.template;
        let is_partial = options.checksum && packet.checksum == ChecksumState::Partial;
        if is_partial && complete_checksum(packet).is_err() {
            context.discard(packet, DropReason::DeviceError);
            return;
        }
        let bytes = packet.len() as u64;
        let fields = template::fields(options, inner.ip(), self.identification);
        let mut is_written = template.write(packet, fields).is_ok();
        if !is_written && headroom::make(packet, context.pool) {
            is_written = template.write(packet, fields).is_ok();
        }
        if !is_written {
            context.discard(packet, DropReason::NoHeadroom);
            return;
        }
        if options.checksum {
            put_checksum(packet, usize::from(template.gre()));
        }
        self.identification = self.identification.wrapping_add(u16::from(self.numbered));
        self.packets += 1;
        self.bytes += bytes;
        packet.network_offset = template.link();
        packet.transport_offset = template.gre();
        packet.checksum_start = packet.checksum_start.wrapping_add(template.len());
        packet.vlan = 0;
        packet.segmentation = Segmentation::default();
        packet.flags = self.flags;
        packet.ingress = self.port;
        packet.egress = self.tunnel.underlay().port;
    }
}

impl Drop for Lane<'_> {
    #[inline]
    fn drop(&mut self) {
        self.counters.sent.add(self.packets);
        self.counters.sent_bytes.add(self.bytes);
    }
}

/// The IPv4 identifications of a batch, drawn once a tunnel: workers that share it meet once a batch.
///
/// They have to be distinct, not in order (RFC 6864, 4.2), so they are drawn here and not after order has
/// been restored.
#[derive(Debug)]
struct Draws(Vec<(PortId, u16)>);

impl Draws {
    fn new() -> Self {
        Self(Vec::with_capacity(BATCH))
    }

    fn clear(&mut self) {
        self.0.clear();
    }

    /// The next number of a tunnel; draws for all its packets among `rest` when they are the first.
    fn draw(&mut self, tunnel: &Tunnel, rest: &[Packet]) -> u16 {
        let port = tunnel.options().port;
        if let Some(&(_, next)) = self.0.iter().find(|draw| draw.0 == port) {
            return next;
        }
        let count = rest.iter().filter(|packet| packet.egress == port).count();
        let first = tunnel.draw_identification(u16::try_from(count).unwrap_or(u16::MAX));
        self.0.push((port, first));
        first
    }

    /// Remembers where a tunnel's numbers go on.
    fn put_back(&mut self, port: PortId, next: u16) {
        if let Some(draw) = self.0.iter_mut().find(|draw| draw.0 == port) {
            draw.1 = next;
        }
    }
}

/// The largest packet that the tunnel takes of this kind, Ethernet header and tags excluded, when
/// `carried` bytes of it fit into one outer packet (RFC 4459; ADR 0005).
fn limit(tunnel: &Tunnel, carried: u16, frame: &[u8], inner: Inner) -> u16 {
    let options = tunnel.options();
    let mut limit = tunnel.mtu();
    if options.dont_fragment || options.mtu.is_none() {
        limit = limit.min(carried);
    }
    if options.dont_fragment {
        return limit;
    }
    // Nobody can be told that these are too big, so they are cut.
    match inner.network() {
        Network::Ipv6 => limit.max(toobig::LEAST_MTU_V6),
        Network::Ipv4 if toobig::is_bound(frame, inner) => limit,
        Network::Ipv4 | Network::Other => limit.max(MOST_CUT),
    }
}

/// Brings the headers of a chain into its head.
#[cold]
pub(super) fn gather(packet: &mut Packet, context: &mut Context<'_>) {
    let length = u16::try_from(packet.len()).unwrap_or(u16::MAX).min(LOOKED_AT);
    // Without room for them, the frame is carried without a look inside.
    let _ = packet.gather(length, context.pool);
}

/// Fills in the GRE checksum; the header starts at `gre`, with zero in the field.
fn put_checksum(packet: &mut Packet, gre: usize) {
    let checksum = template::sum(packet, gre, usize::MAX).finish();
    let field =
        packet.bytes_mut().get_mut(gre + Gre::HEADER_BYTES..).and_then(|bytes| bytes.first_chunk_mut());
    if let Some(field) = field {
        *field = checksum.to_be_bytes();
    }
}

/// Whether the frame is, or carries, an outer packet of one of our tunnels in either direction, or is
/// in more tunnels than anybody has a use for.
///
/// Without this test, an underlay that is also a member of the bridge, here or at the other end,
/// would carry a packet round and round, growing by a header at each turn.
#[cold]
fn is_recursive(frame: &[u8], tunnels: &Tunnels) -> bool {
    let Ok(link) = Link::parse(frame) else { return false };
    let (mut protocol, mut bytes) = (link.ether_type(), link.payload());
    for _ in 0..NESTING {
        if protocol == EtherType::TRANSPARENT_ETHERNET {
            let Ok(link) = Link::parse(bytes) else { return false };
            (protocol, bytes) = (link.ether_type(), link.payload());
        }
        if protocol != EtherType::IPV4 {
            return false;
        }
        let Ok(ip) = Ipv4::parse_head(bytes, usize::MAX) else { return false };
        if ip.protocol() != IpProtocol::GRE {
            return false;
        }
        let (source, destination) = (ip.source(), ip.destination());
        if tunnels.has_ends(source, destination) || tunnels.has_ends(destination, source) {
            return true;
        }
        let Ok(gre) = Gre::parse(ip.payload()) else { return false };
        (protocol, bytes) = (gre.protocol(), gre.payload());
    }
    true
}

/// Moves the batch into `expanded`, with those whose bit is set in `pieces` cut into fragments.
#[cold]
fn expand(
    batch: &mut Batch,
    pieces: u64,
    tunnels: &Tunnels,
    worker: usize,
    expanded: &mut Vec<Packet>,
    context: &mut Context<'_>,
) {
    for (position, packet) in batch.drain().enumerate() {
        match tunnels.get(packet.ingress) {
            Some(tunnel) if pieces >> position & 1 != 0 && !is_dropped(&packet) => {
                fragment::split(packet, tunnel, tunnel.state().worker(worker), expanded, context);
            }
            Some(_) | None => expanded.push(packet),
        }
    }
}
