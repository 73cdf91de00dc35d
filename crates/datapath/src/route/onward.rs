//! The last loop: packets are sent on by the way that was found, or what else it says is done.

use super::decide::{Facts, Verdict, decide};
use super::hold::{Move, Moves};
use super::local::{Desk, Ears};
use super::send::{ETHERNET, PLAIN_V4, rewrite, rewrite_plain};
use super::sort::{Lookups, arrival};
use super::{Hop, RouterId, Routers, Way, WayId, Ways};
use crate::drops::{Context, DropReason};
use crate::steer::Hasher;
use crate::wire::{MacAddress, VlanId};
use polder_buffers::{Batch, Packet, Pool};

/// What a batch is sent by.
pub(super) struct Scene<'a> {
    pub(super) routers: &'a Routers,
    pub(super) router: RouterId,
    pub(super) ways: &'a Ways,
    pub(super) hasher: &'a Hasher,
}

/// What acts on a verdict.
pub(super) struct Acts<'a> {
    pub(super) desk: &'a mut Desk,
    pub(super) moves: &'a mut Moves,
    pub(super) ears: Ears<'a>,
}

/// The hop of a way that is a neighbour on an untagged interface whose address is known.
#[inline(always)]
fn plain_hop(ways: &Ways, found: WayId) -> Option<(&Hop, MacAddress)> {
    let Some(Way::Hop(hop)) = ways.get(found) else { return None };
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
    scene: &Scene<'_>,
    acts: &mut Acts<'_>,
    context: &mut Context<'_>,
) {
    let mut forwarded = 0;
    let found = lookups.positions.iter().zip(&lookups.found).zip(&lookups.plans).take(lookups.count);
    for ((&position, &found), &plan) in found {
        let Some(packet) = batch.get_mut(usize::from(position)) else { continue };
        let has_padding = packet.len() - ETHERNET != plan.total as usize;
        if let Some((hop, mac)) = plain_hop(scene.ways, found)
            && plan.total <= u32::from(hop.mtu)
            && let Some(frame) = packet.bytes_mut().first_chunk_mut::<PLAIN_V4>()
        {
            rewrite_plain::<WORD>(frame, hop, mac, plan.word);
            packet.egress = hop.interface.port;
            forwarded += 1;
            trim_if(has_padding, packet, context.pool);
            continue;
        }
        settle(packet, usize::from(position), found, scene, acts, context);
    }
    acts.desk.counters.forwarded.add(forwarded);
}

#[inline(always)]
fn trim_if(has_padding: bool, packet: &mut Packet, pool: &mut Pool) {
    if has_padding {
        trim(packet, pool);
    }
}

/// Cuts off what the link has put behind the IP packet.
#[inline(never)]
pub(super) fn trim(packet: &mut Packet, pool: &mut Pool) {
    let link = usize::from(packet.network_offset);
    let Some(ip) = packet.bytes().get(link..) else { return };
    let length = match ip {
        [first, _, high, low, ..] if first >> 4 == 4 => usize::from(u16::from_be_bytes([*high, *low])),
        [_, _, _, _, high, low, ..] => 40 + usize::from(u16::from_be_bytes([*high, *low])),
        _ => return,
    };
    // A packet that is shorter was refused before.
    let _ = packet.truncate(link + length, pool);
}

/// Decides on a packet that the short path is not for, and acts.
#[cold]
fn settle(
    packet: &mut Packet,
    position: usize,
    found: WayId,
    scene: &Scene<'_>,
    acts: &mut Acts<'_>,
    context: &mut Context<'_>,
) {
    trim(packet, context.pool);
    let Some((facts, interface)) = Facts::of(packet).zip(arrival(packet, scene.routers)) else {
        return context.discard(packet, DropReason::NotRouted);
    };
    let flow = || scene.hasher.flow(packet, false).hash;
    let result = match decide(&facts, scene.router, scene.ways, found, flow) {
        Verdict::Forward(hop, mac) => acts.forward(packet, hop, mac, context),
        Verdict::Cut(hop, mac) => {
            let moved = Move::Cut(hop.mtu);
            acts.forward(packet, hop, mac, context).inspect(|()| acts.moves.put(position, moved))
        }
        Verdict::Wait(wanted) => {
            acts.moves.put(position, Move::Wait(wanted));
            Ok(())
        }
        Verdict::Host => acts.desk.take(packet, interface, scene.routers, acts.ears, context),
        Verdict::Refuse(reason, problem) => {
            if let Some(problem) = problem {
                acts.desk.tell(packet, interface, problem, context);
            }
            Err(reason)
        }
    };
    if let Err(reason) = result {
        context.discard(packet, reason);
    }
}

impl Acts<'_> {
    fn forward(
        &mut self,
        packet: &mut Packet,
        hop: &Hop,
        mac: MacAddress,
        context: &mut Context<'_>,
    ) -> Result<(), DropReason> {
        rewrite(packet, hop, mac, context.pool)?;
        packet.egress = hop.interface.port;
        self.desk.counters.forwarded.add(1);
        Ok(())
    }
}
