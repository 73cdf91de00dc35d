//! The last loop: packets are sent on by the way that was found, or what else it says is done.

use super::arrival::{arrival, trim};
use super::decide::{Facts, RouteVerdict, decide};
use super::local::{HostInterfaces, OutputContext};
use super::lookups::{Lookups, Plan};
use super::send::{ETHERNET, PLAIN_V4, SOURCE_V4, rewrite, rewrite_plain};
use super::sources::{Origin, passes};
use super::state::{Move, Moves};
use super::{Hop, NextHopEntry, NextHopId, NextHopTable, RouterId, Routers, multipath};
use crate::drops::{Context, DropReason};
use crate::wire::{MacAddress, VlanId};
use polder_buffers::{BATCH, Batch, Packet};

/// Tables for sending a batch.
pub(super) struct LookupContext<'a> {
    pub(super) routers: &'a Routers,
    pub(super) router: RouterId,
    pub(super) next_hops: &'a NextHopTable,
    /// The routes to the sources of IPv4 packets, where they were looked up.
    pub(super) origins: Option<&'a [NextHopId; BATCH]>,
}

/// Output, moves and neighbour discovery that carry out a verdict.
pub(super) struct Actions<'a> {
    pub(super) output: &'a mut OutputContext,
    pub(super) moves: &'a mut Moves,
    pub(super) host_interfaces: HostInterfaces<'a>,
}

/// The hop of a way that is a neighbour on an untagged interface whose address is known.
#[inline(always)]
pub(super) fn plain_hop(next_hops: &NextHopTable, found: NextHopId) -> Option<(&Hop, MacAddress)> {
    let Some(NextHopEntry::Hop(hop)) = next_hops.get(found) else { return None };
    let mac = hop.neighbour.address().filter(|_| hop.interface.vlan == VlanId::PRIORITY)?;
    Some((hop, mac))
}

/// Sends packets to their next hops. The frame's word that changes with the time to live is `WORD` bytes from
/// its beginning.
///
/// Nothing is read from frames: what was written to one a moment ago stands in the way of reading the same
/// place in another, a page further on.
#[inline(never)]
pub(super) fn send<const N: usize, const WORD: usize>(
    lookups: &Lookups<N>,
    batch: &mut Batch,
    lookup: &LookupContext<'_>,
    actions: &mut Actions<'_>,
    context: &mut Context<'_>,
) {
    let count = lookups.count.min(BATCH);
    let suspects = if N == 4 { suspects(lookups, batch, lookup) } else { 0 };
    let (mut left, mut padded, mut sent) = (0_u64, 0_u64, 0_u64);
    for at in 0..count {
        let (plan, found) = (lookups.plans[at], lookups.found[at]);
        let Some(packet) = batch.get_mut(usize::from(lookups.positions[at])) else { continue };
        let is_sent = suspects >> at & 1 == 0 && send_plain::<WORD>(packet, found, plan, lookup.next_hops);
        let has_padding = packet.len() - ETHERNET != plan.total as usize;
        sent += if is_sent { u64::from(packet.wire_packets) } else { 0 };
        left |= u64::from(!is_sent) << at;
        padded |= u64::from(is_sent & has_padding) << at;
    }
    actions.output.counters.forwarded.add(sent);
    // What is not usual comes afterwards, so that the loop above calls nobody.
    for at in ones(padded) {
        if let Some(packet) = batch.get_mut(usize::from(lookups.positions[at])) {
            trim(packet, context.pool);
        }
    }
    for at in ones(left) {
        let position = usize::from(lookups.positions[at]);
        if let Some(packet) = batch.get_mut(position) {
            let origin = lookup.origins.filter(|_| N == 4).map(|origins| origins[at]);
            settle(packet, position, (lookups.found[at], origin), lookup, actions, context);
        }
    }
}

/// The untagged IPv4 packets whose sources want a second look.
fn suspects<const N: usize>(lookups: &Lookups<N>, batch: &Batch, lookup: &LookupContext<'_>) -> u64 {
    let mut suspects = 0;
    for (at, &position) in lookups.positions.iter().enumerate().take(lookups.count.min(BATCH)) {
        let Some(packet) = batch.get(usize::from(position)) else { continue };
        let source = packet.bytes().get(SOURCE_V4..).and_then(<[u8]>::first_chunk);
        let Some((&source, arrival)) = source.zip(lookup.routers.untagged(packet.ingress)) else { continue };
        let is_back = |origins: &[NextHopId; BATCH]| passes(origins[at], arrival, lookup.next_hops, None);
        let is_odd = lookup.routers.specials().may_have(source)
            || arrival.sources.looks_up() && !lookup.origins.is_some_and(is_back);
        suspects |= u64::from(is_odd) << at;
    }
    suspects
}

/// Sends a packet to a known neighbour on an untagged interface where it fits; whether that is its way.
#[inline(always)]
fn send_plain<const WORD: usize>(
    packet: &mut Packet,
    found: NextHopId,
    plan: Plan,
    next_hops: &NextHopTable,
) -> bool {
    let Some((hop, mac)) = plain_hop(next_hops, found) else { return false };
    if plan.total > u32::from(hop.mtu) {
        return false;
    }
    let Some(frame) = packet.bytes_mut().first_chunk_mut::<PLAIN_V4>() else { return false };
    rewrite_plain::<WORD>(frame, hop, mac, plan.word);
    packet.egress = hop.interface.port;
    true
}

/// The places of the bits that are set.
#[inline(always)]
pub(super) fn ones(mut bits: u64) -> impl Iterator<Item = usize> {
    core::iter::from_fn(move || {
        let place = (bits != 0).then(|| bits.trailing_zeros() as usize)?;
        bits &= bits - 1;
        Some(place)
    })
}

/// Decides on a packet that the short path is not for, and acts.
#[cold]
pub(super) fn settle(
    packet: &mut Packet,
    position: usize,
    (found, origin): (NextHopId, Option<NextHopId>),
    lookup: &LookupContext<'_>,
    actions: &mut Actions<'_>,
    context: &mut Context<'_>,
) {
    trim(packet, context.pool);
    let Some((facts, interface)) = Facts::of(packet).zip(arrival(packet, lookup.routers)) else {
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
            // Nobody but this machine has its addresses, and it is not there.
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
