//! The last loop of the routing stage: sends packets to their next hops, or carries out another verdict.
//!
//! Plain packets of one interface and sorted packets of several interfaces use the same loop.

use super::decide::{Facts, RouteVerdict, decide};
use super::local::{HostInterfaces, OutputContext};
use super::lookups::Lookups;
use super::send::{ETHERNET, PLAIN_V4, SOURCE_V4, rewrite, rewrite_plain};
use super::sources::{Origin, passes};
use super::state::{Move, Moves};
use super::{Hop, Interface, NextHopEntry, NextHopId, NextHopTable, RouterId, Routers, multipath};
use crate::drops::{Context, DropReason};
use crate::wire::{MacAddress, VlanId};
use polder_buffers::{BATCH, Batch, NO_PORT, Packet, Pool, PortId};

/// Range of egress ports of a batch that was forwarded completely, without packets to be sequenced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// Lowest egress port.
    pub lowest: PortId,
    /// Highest egress port.
    pub highest: PortId,
}

impl Sent {
    /// Value before any packet is forwarded.
    pub(super) const NONE: Self = Self { lowest: PortId(u16::MAX), highest: PortId(0) };
}

/// Tables for forwarding a batch.
pub(super) struct LookupContext<'a> {
    pub(super) routers: &'a Routers,
    pub(super) router: RouterId,
    pub(super) next_hops: &'a NextHopTable,
    /// Routes to the sources of IPv4 packets, if they were looked up.
    pub(super) origins: Option<&'a [NextHopId; BATCH]>,
}

/// Output, moves and neighbour resolution that carry out a verdict.
pub(super) struct Actions<'a> {
    pub(super) output: &'a mut OutputContext,
    pub(super) moves: &'a mut Moves,
    pub(super) host_interfaces: HostInterfaces<'a>,
}

/// Hop and MAC address if the entry is a resolved neighbour on an untagged interface; `None` otherwise.
#[inline(always)]
fn plain_hop(next_hops: &NextHopTable, found: NextHopId) -> Option<(&Hop, MacAddress)> {
    let Some(NextHopEntry::Hop(hop)) = next_hops.get(found) else { return None };
    let mac = hop.neighbour.address().filter(|_| hop.interface.vlan == VlanId::PRIORITY)?;
    Some((hop, mac))
}

/// Parts of a packet that are written.
pub(super) struct Spot<'a> {
    pub(super) frame: &'a mut [u8; PLAIN_V4],
    pub(super) egress: &'a mut PortId,
}

impl Spot<'_> {
    /// Source address of an IPv4 packet.
    #[inline(always)]
    pub(super) fn source(&self) -> [u8; 4] {
        *self.frame[SOURCE_V4..].first_chunk().expect("a frame ends with an IPv4 header")
    }
}

/// Writable parts by look-up index; `None` for packets on the slow path.
pub(super) type Spots<'a> = [Option<Spot<'a>>; BATCH];

/// Bit set of the packets whose source needs a closer check; `arrival` returns a packet's ingress interface.
#[inline(never)]
pub(super) fn suspects<'i>(
    spots: &Spots<'_>,
    arrival: impl Fn(usize) -> Option<&'i Interface>,
    lookup: &LookupContext<'_>,
) -> u64 {
    let (specials, mut suspects) = (lookup.routers.specials(), 0);
    for (place, spot) in spots.iter().enumerate() {
        let Some(spot) = spot else { continue };
        suspects |= u64::from(specials.may_have(spot.source())) << place;
    }
    let Some(origins) = lookup.origins else { return suspects };
    for (place, &origin) in origins.iter().enumerate() {
        let Some(interface) = arrival(place).filter(|_| spots[place].is_some()) else { continue };
        let is_odd = interface.sources.looks_up() && !passes(origin, interface, lookup.next_hops, None);
        suspects |= u64::from(is_odd) << place;
    }
    suspects
}

/// Rewrites the headers of packets and sets their egress. `WORD` is the offset in the frame of the header
/// word with the TTL. Returns the bit set of packets that are not sent: the next hop is not a resolved
/// neighbour on an untagged interface, or the packet exceeds its MTU.
///
/// Nothing is read from frames: a load would have to wait for a recent store to the same page offset of
/// another frame (4K aliasing).
#[inline(never)]
#[expect(
    clippy::needless_range_loop,
    reason = "zipped iterators whose count is checked hand items over in memory"
)]
pub(super) fn send<const N: usize, const WORD: usize>(
    lookups: &Lookups<N>,
    (spots, suspects): (&mut Spots<'_>, u64),
    next_hops: &NextHopTable,
    all: &mut Sent,
) -> u64 {
    let (mut unsent, mut sent) = (0, *all);
    for place in 0..BATCH {
        let Some(spot) = &mut spots[place] else { continue };
        let (found, plan) = (lookups.found[place], &lookups.plans[place]);
        let is_trusted = suspects >> place & 1 == 0;
        let way =
            plain_hop(next_hops, found).filter(|(hop, _)| is_trusted & (plan.total <= u32::from(hop.mtu)));
        let Some((hop, mac)) = way else {
            unsent |= 1 << place;
            continue;
        };
        rewrite_plain::<WORD>(spot.frame, hop, mac, plan.word);
        let port = hop.interface.port;
        *spot.egress = port;
        sent = Sent { lowest: sent.lowest.min(port), highest: sent.highest.max(port) };
    }
    *all = sent;
    unsent
}

/// Forwards the sorted packets of one family, of any interface.
#[inline(never)]
pub(super) fn send_sorted<const N: usize, const WORD: usize>(
    lookups: &Lookups<N>,
    batch: &mut Batch,
    lookup: &LookupContext<'_>,
    actions: &mut Actions<'_>,
    context: &mut Context<'_>,
) {
    let (mut spots, mut ports) = ([const { None }; BATCH], [NO_PORT; BATCH]);
    let count = lookups.count.min(BATCH);
    let (mut padded, mut unsent) = (0_u64, 0_u64);
    let mut packets = batch.iter_mut().enumerate();
    for (place, &position) in lookups.positions.iter().enumerate().take(count) {
        unsent |= 1 << place;
        // Look-ups are in the order of the batch.
        let packet = packets.find(|(other, _)| *other == usize::from(position));
        let Some((_, packet)) = packet else { continue };
        let (room, total) = (packet.len().wrapping_sub(ETHERNET), lookups.plans[place].total);
        padded |= u64::from(room != total as usize) << place;
        ports[place] = packet.ingress;
        let (bytes, egress) = packet.bytes_and_egress();
        let Some(frame) = bytes.first_chunk_mut() else { continue };
        spots[place] = Some(Spot { frame, egress });
        unsent &= !(1 << place);
    }
    let arrival = |place: usize| lookup.routers.untagged(ports[place]);
    let suspects = if N == 4 { suspects(&spots, arrival, lookup) } else { 0 };
    // The ports are not needed: other packets of the batch may have none.
    let mut by = Sent::NONE;
    unsent |= send::<N, WORD>(lookups, (&mut spots, suspects), lookup.next_hops, &mut by);
    let position = |place: usize| usize::from(lookups.positions[place]);
    let sent =
        (0..count).filter(|place| unsent >> place & 1 == 0).filter_map(|place| batch.get(position(place)));
    actions.output.counters.forwarded.add(sent.map(|packet| u64::from(packet.wire_packets)).sum());
    finish((lookups, position), batch, (unsent, padded), lookup, actions, context);
}

/// Slow path after the loops: trims `padded` packets that are sent, and decides on packets that are not.
/// `position` maps a look-up index to a position in the batch.
#[inline(never)]
pub(super) fn finish<const N: usize>(
    (lookups, position): (&Lookups<N>, impl Fn(usize) -> usize),
    batch: &mut Batch,
    (unsent, padded): (u64, u64),
    lookup: &LookupContext<'_>,
    actions: &mut Actions<'_>,
    context: &mut Context<'_>,
) {
    for place in ones(padded & !unsent) {
        if let Some(packet) = batch.get_mut(position(place)) {
            trim(packet, context.pool);
        }
    }
    for place in ones(unsent) {
        let position = position(place);
        if let Some(packet) = batch.get_mut(position) {
            let origin = lookup.origins.filter(|_| N == 4).map(|origins| origins[place]);
            settle(packet, position, (lookups.found[place], origin), lookup, actions, context);
        }
    }
}

/// Iterates over the indices of set bits.
#[inline(always)]
fn ones(mut bits: u64) -> impl Iterator<Item = usize> {
    core::iter::from_fn(move || {
        let place = (bits != 0).then(|| bits.trailing_zeros() as usize)?;
        bits &= bits - 1;
        Some(place)
    })
}

/// Decides on a packet of the slow path, and carries out the verdict.
#[cold]
fn settle(
    packet: &mut Packet,
    position: usize,
    (found, origin): (NextHopId, Option<NextHopId>),
    lookup: &LookupContext<'_>,
    actions: &mut Actions<'_>,
    context: &mut Context<'_>,
) {
    trim(packet, context.pool);
    let Some((facts, interface)) = Facts::of(packet).zip(lookup.routers.arrival_of(packet).ok()) else {
        return context.discard(packet, DropReason::NotRouted);
    };
    let flow = || {
        let ip = packet.bytes().get(usize::from(packet.network_offset)..).unwrap_or_default();
        multipath::hash(ip, lookup.next_hops.hash_policy(facts.destination.is_ipv6()))
    };
    let source = Origin::of(facts.source, origin, interface, lookup.routers);
    let refuses = |egress| source.as_ref()?.refusal(egress, lookup.next_hops);
    let arrived = (lookup.router, interface.id);
    let result = match decide(&facts, arrived, (lookup.next_hops, found), flow, refuses) {
        RouteVerdict::Forward(hop, mac) => actions.forward(packet, hop, mac, context),
        RouteVerdict::Cut(hop, mac) => {
            let moved = Move::Cut(hop.mtu);
            actions.forward(packet, hop, mac, context).inspect(|()| actions.moves.put(position, moved))
        }
        RouteVerdict::Wait(wanted) => {
            actions.moves.put(position, Move::Wait(wanted));
            Ok(())
        }
        RouteVerdict::Host => {
            actions.output.take(packet, interface, lookup.routers, actions.host_interfaces, context)
        }
        RouteVerdict::Kernel => actions.output.leave_to_kernel(packet, interface, context),
        RouteVerdict::Refuse(reason, problem) => {
            let is_own = refuses(None) == Some(DropReason::OwnSource);
            // Only this machine has its own addresses, so there is no sender to be told.
            if let Some(problem) = problem.filter(|_| !is_own) {
                actions.output.tell(packet, interface, problem, context);
            }
            Err(reason)
        }
    };
    if let Err(reason) = result {
        context.discard(packet, reason);
    }
}

impl Actions<'_> {
    fn forward(
        &mut self,
        packet: &mut Packet,
        hop: &Hop,
        mac: MacAddress,
        context: &mut Context<'_>,
    ) -> Result<(), DropReason> {
        rewrite(packet, hop, mac, context.pool)?;
        packet.egress = hop.interface.port;
        self.output.counters.forwarded.add(packet.wire_packets.into());
        Ok(())
    }
}

/// Trims link-layer padding after the IP packet.
#[inline(never)]
pub(super) fn trim(packet: &mut Packet, pool: &mut Pool) {
    let link = usize::from(packet.network_offset);
    let Some(ip) = packet.bytes().get(link..) else { return };
    let length = match ip {
        [first, _, high, low, ..] if first >> 4 == 4 => usize::from(u16::from_be_bytes([*high, *low])),
        [_, _, _, _, high, low, ..] => 40 + usize::from(u16::from_be_bytes([*high, *low])),
        _ => return,
    };
    // Shorter packets were dropped before.
    let _ = packet.truncate(link + length, pool);
}
