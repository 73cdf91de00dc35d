//! Flooding: receivers of a frame, limits per port, and copies.

use super::fdb::FdbKey;
use super::options::FloodLimits;
use super::table::{Bridges, Member, send};
use super::vlan::{ADDRESSES, Tag};
use crate::drops::{Context, DropReason};
use crate::flags::{FLOODED, NOT_REFLECTED};
use crate::units::Nanos;
use polder_buffers::{BATCH, Batch, Packet};

/// Receivers of a flooded frame.
pub(super) enum Targets<'a> {
    /// No member; the drop reason.
    Nobody(DropReason),
    /// One member: no copy is needed.
    One(&'a Member),
    /// Several members.
    Many,
}

/// A frame to be flooded.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flood<'a> {
    /// Ingress of the frame.
    pub(super) from: &'a Member,
    /// VLAN of the frame.
    pub(super) vlan: u16,
    /// True if the destination is a group: members with `flood` off receive it too.
    pub(super) group: bool,
    /// True if the ingress member receives the frame too (hairpin).
    pub(super) reflects: bool,
}

impl<'a> Flood<'a> {
    /// Determines whether no, one or several members receive the frame.
    #[inline]
    pub(super) fn targets(self, bridges: &'a Bridges) -> Targets<'a> {
        let mut members = self.members(bridges);
        match (members.next(), members.next()) {
            (Some(_), Some(_)) => Targets::Many,
            (Some(member), None) => Targets::One(member),
            (None, _) => Targets::Nobody(self.why_nobody(bridges)),
        }
    }

    /// Members that receive the frame, in the order of the configuration.
    fn members(self, bridges: &'a Bridges) -> impl Iterator<Item = &'a Member> {
        self.candidates(bridges)
            .filter(move |to| !(to.isolated && self.from.isolated) && bridges.links().is_up(to.port))
    }

    /// Members that would receive the frame if all links were up and no member isolated.
    fn candidates(self, bridges: &'a Bridges) -> impl Iterator<Item = &'a Member> {
        let members = bridges.members_of(bridges.bridge(self.from.bridge)).iter();
        members
            .filter(move |to| {
                to.split_horizon != self.from.split_horizon || self.reflects && to.port == self.from.port
            })
            .filter(move |to| to.carries(self.vlan) && (to.flood || self.group))
    }

    /// True if the ingress member receives the frame too.
    pub(super) fn is_reflected(self, bridges: &'a Bridges) -> bool {
        self.reflects && self.members(bridges).any(|to| to.port == self.from.port)
    }

    #[cold]
    fn why_nobody(self, bridges: &Bridges) -> DropReason {
        let mut reason = DropReason::NoMember;
        for to in self.candidates(bridges) {
            if !(to.isolated && self.from.isolated) {
                return DropReason::PortDown;
            }
            reason = DropReason::Isolated;
        }
        reason
    }
}

/// Rate limiters, one for each kind of flooded frame.
#[derive(Clone, Copy, Debug)]
pub(super) struct FloodGates {
    unknown_unicast: FloodGate,
    multicast: FloodGate,
    broadcast: FloodGate,
}

impl FloodGates {
    /// Rate limiters with full credit.
    pub(super) const fn new() -> Self {
        let gate = FloodGate::new();
        Self { unknown_unicast: gate, multicast: gate, broadcast: gate }
    }

    /// True if the limits allow a frame to `destination` to be flooded.
    pub(super) fn admit(&mut self, destination: FdbKey, limits: FloodLimits, now: Nanos) -> bool {
        let (gate, limit) = match destination.is_group() {
            true if destination.is_broadcast() => (&mut self.broadcast, limits.broadcast),
            true => (&mut self.multicast, limits.multicast),
            false => (&mut self.unknown_unicast, limits.unknown_unicast),
        };
        limit.is_none_or(|limit| gate.admit(limit, now))
    }
}

/// Rate limiter of floods; the burst is a tenth of a second's worth.
///
/// One per port and worker: a port with queues on two workers may cause twice its limit.
#[derive(Clone, Copy, Debug)]
pub(super) struct FloodGate {
    /// Floods that may pass, in billionths: at one flood per second, each nanosecond earns one.
    credit: u64,
    filled_at: Nanos,
}

impl FloodGate {
    /// A limiter with full credit.
    pub(super) const fn new() -> Self {
        Self { credit: u64::MAX, filled_at: Nanos(0) }
    }

    /// Takes the credit of one flood, at `limit` floods per second; false if there is none.
    pub(super) fn admit(&mut self, limit: u32, now: Nanos) -> bool {
        const ONE: u64 = Nanos::SECOND.0;
        let at_once = u64::from((limit / 10).max(limit.min(64))) * ONE;
        let elapsed = now.since(self.filled_at).0.min(ONE);
        self.filled_at = now;
        self.credit = self.credit.saturating_add(elapsed * u64::from(limit)).min(at_once);
        let admitted = self.credit >= ONE;
        if admitted {
            self.credit -= ONE;
        }
        admitted
    }
}

/// Moves the whole batch to the end of `expanded`, in order; packets whose bit in `floods` is set become one
/// packet per receiving member, adjacent and in the order of the configuration.
///
/// The last member gets the original. A copy without buffer (or without room in `expanded`, whose capacity is
/// never exceeded) counts as cloned and dropped.
#[cold]
pub(super) fn expand(
    batch: &mut Batch,
    floods: u64,
    bridges: &Bridges,
    expanded: &mut Vec<Packet>,
    context: &mut Context<'_>,
) {
    const { assert!(BATCH <= 64, "one bit a packet") };
    let mut left = batch.len();
    for (position, packet) in batch.drain().enumerate() {
        left -= 1;
        match bridges.member(packet.ingress) {
            Some(from) if floods >> position & 1 != 0 => {
                let group = packet.bytes().first().is_some_and(|byte| byte & 1 != 0);
                let reflects = from.hairpin.is_some() && packet.flags & NOT_REFLECTED == 0;
                let flood = Flood { from, vlan: packet.vlan, group, reflects };
                flood_one(packet, flood, bridges, expanded, left, context);
            }
            _ => expanded.push(packet),
        }
    }
}

fn flood_one(
    mut packet: Packet,
    flood: Flood<'_>,
    bridges: &Bridges,
    expanded: &mut Vec<Packet>,
    behind: usize,
    context: &mut Context<'_>,
) {
    let tag = tag_of(packet.bytes());
    packet.flags |= FLOODED;
    let mut last = None;
    for member in flood.members(bridges) {
        let Some(before) = last.replace(member) else { continue };
        context.ledger.cloned.add(packet.wire_packets.into());
        // Room for this original and the packets after it is reserved.
        let has_room = expanded.capacity() - expanded.len() > behind + 1;
        match has_room.then(|| packet.duplicate(context.pool)).flatten() {
            Some(mut copy) => {
                send(&mut copy, before, tag, context);
                expanded.push(copy);
            }
            None => context.drops.count(DropReason::NoBuffer, packet.wire_packets.into()),
        }
    }
    match last {
        Some(member) => send(&mut packet, member, tag, context),
        // The link went down between verdict and copy.
        None => context.discard(&mut packet, DropReason::PortDown),
    }
    expanded.push(packet);
}

/// Tag of a frame.
fn tag_of(frame: &[u8]) -> Tag {
    match frame.get(ADDRESSES..).and_then(<[u8]>::first_chunk) {
        Some(word) => Tag::from_wire(u32::from_le_bytes(*word)),
        None => Tag::None,
    }
}
