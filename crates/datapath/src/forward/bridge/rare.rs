//! Uncommon frames: to groups or unknown stations, from new sources, truncated, or without bridge.

use super::run::{BridgeVerdict, Run};
use super::state::{BridgeCounters, BridgeState, Frame};
use crate::drops::{Context, DropReason};
use crate::flags::NOT_REFLECTED;
use crate::forward::fdb::{FdbKey, Learned};
use crate::forward::flood::{Flood, Targets};
use crate::forward::hairpin::STILL_THERE;
use crate::forward::table::Member;
use crate::units::Nanos;
use polder_buffers::{BATCH, NO_PORT, Packet};

#[cold]
pub(super) fn refuse(packet: &mut Packet, context: &Context<'_>) {
    // The batch may contain packets that the router has forwarded; they have an egress.
    if packet.egress == NO_PORT {
        context.discard(packet, DropReason::NoBridge);
    }
}

/// Drops the frame at a position of a run, and the consecutive frames after it with the same source.
#[cold]
pub(super) fn refuse_source(
    packets: &mut [Packet],
    (frames, first): (&mut [Frame; BATCH], usize),
    reason: DropReason,
    context: &Context<'_>,
) {
    let source = frames[first].source;
    for (packet, frame) in packets.iter_mut().zip(frames).skip(first) {
        match frame.source {
            FdbKey::NONE => continue,
            same if same == source => {}
            _ => return,
        }
        (frame.source, frame.destination) = (FdbKey::NONE, FdbKey::NONE);
        context.discard(packet, reason);
    }
}

impl<'a> Run<'a> {
    /// Learns a source that is new, has moved, or was not seen in this second.
    ///
    /// # Errors
    /// Drop reason of the source's frames.
    #[cold]
    pub(super) fn learn_one(
        &self,
        source: FdbKey,
        state: &mut BridgeState,
        now: Nanos,
    ) -> Result<Learned, DropReason> {
        self.check_source(source, &state.counters)?;
        let Member { port, fdb_max_learned, .. } = *self.from;
        if self.from.hairpin.is_some() && self.has_come_back(source) {
            state.counters.looped.note(port, source);
            if let Some(gate) = state.hairpins.get_mut(usize::from(port.0)) {
                gate.suspect(now);
            }
            return Err(DropReason::HairpinLoop);
        }
        let counters = &state.counters;
        let learned = self.fdb().learn_within(source, port, fdb_max_learned, self.time);
        match learned {
            Learned::Known | Learned::Refreshed => {}
            Learned::Added => counters.learned.add(1),
            Learned::Moved => counters.moved.add(1),
            Learned::Pinned => counters.pinned.add(1),
            Learned::Limited => counters.limited.add(1),
            Learned::Full => counters.learn_failures.add(1),
        }
        Ok(learned)
    }

    /// True if the source was seen on another member within the last seconds.
    fn has_come_back(&self, source: FdbKey) -> bool {
        let known = self.fdb().lookup(source, self.time).and_then(|_| self.fdb().entry(source));
        let Some(entry) = known else { return false };
        let is_fresh = entry.is_static || self.time.second.saturating_sub(entry.seen) <= STILL_THERE;
        entry.port != self.from.port && is_fresh
    }

    /// Refuses a source that is another member's own address.
    fn check_source(&self, source: FdbKey, counters: &BridgeCounters) -> Result<(), DropReason> {
        let port = self.from.port;
        if !self.bridge.own.is_elsewhere(source, port) {
            return Ok(());
        }
        counters.own_addresses.note(port, source);
        Err(DropReason::OwnAddress)
    }

    /// Drops frames whose source is another member's own address, in a run that is not learned from.
    #[inline(never)]
    pub(super) fn guard(&self, packets: &mut [Packet], state: &mut BridgeState, context: &Context<'_>) {
        let mut last = FdbKey::NONE;
        for position in 0..packets.len().min(BATCH) {
            let source = state.frames[position].source;
            if source == last || source == FdbKey::NONE {
                continue;
            }
            last = source;
            if let Err(reason) = self.check_source(source, &state.counters) {
                refuse_source(packets, (&mut state.frames, position), reason, context);
            }
        }
    }

    /// Verdict on a frame to a known station on the frame's ingress member.
    #[cold]
    pub(super) fn reflect(&self, to: &'a Member, state: &mut BridgeState, now: Nanos) -> BridgeVerdict<'a> {
        let (gate, limit) = (state.hairpins.get_mut(usize::from(to.port.0)), to.hairpin.unwrap_or(0));
        match gate.is_none_or(|gate| gate.admit_known(limit, now)) {
            true => BridgeVerdict::Forward(to),
            false => BridgeVerdict::Drop(DropReason::HairpinLimit),
        }
    }

    /// Verdict on a frame to a group or an unknown station.
    #[inline(never)]
    pub(super) fn flood(
        &self,
        packet: &mut Packet,
        destination: FdbKey,
        state: &mut BridgeState,
        context: &Context<'_>,
    ) -> BridgeVerdict<'a> {
        state.counters.flooded.add(packet.wire_packets.into());
        if let Some(gates) = state.gates.get_mut(usize::from(self.from.split_horizon.0))
            && !gates.admit(destination, self.from.flood_limits, context.now)
        {
            return BridgeVerdict::Drop(DropReason::FloodLimit);
        }
        let (from, vlan, group) = (self.from, destination.vlan(), destination.is_group());
        let mut flood = Flood { from, vlan, group, reflects: from.hairpin.is_some() };
        let is_limited = flood.is_reflected(self.bridges) && !admit_reflection(from, state, context.now);
        if is_limited {
            flood.reflects = false;
            packet.flags |= NOT_REFLECTED;
        }
        match flood.targets(self.bridges) {
            Targets::Nobody(_) if is_limited => BridgeVerdict::Drop(DropReason::HairpinLimit),
            Targets::Nobody(reason) => BridgeVerdict::Drop(reason),
            Targets::One(member) => {
                count_limited(is_limited, packet, context);
                BridgeVerdict::Forward(member)
            }
            Targets::Many => {
                count_limited(is_limited, packet, context);
                BridgeVerdict::Flood
            }
        }
    }
}

/// True if the limit of `from` allows one more reflected flood.
fn admit_reflection(from: &Member, state: &mut BridgeState, now: Nanos) -> bool {
    let (gate, limit) = (state.hairpins.get_mut(usize::from(from.port.0)), from.hairpin.unwrap_or(0));
    gate.is_none_or(|gate| gate.admit_flood(limit, now))
}

/// Counts the copy that the limit suppressed, if any, as cloned and dropped.
fn count_limited(is_limited: bool, packet: &Packet, context: &Context<'_>) {
    if is_limited {
        context.ledger.cloned.add(packet.wire_packets.into());
        context.drops.count(DropReason::HairpinLimit, packet.wire_packets.into());
    }
}
