//! Stage `bridge`: decides on each packet in place.

mod header;
mod publish;
mod rare;
mod run;
mod state;

pub use state::{BridgeCounters, BridgeState, InvalidSources};

use super::fdb::{BucketIndex, Fdb, FdbKey, FdbTime, Learned};
use super::flood::expand;
use super::table::{Bridges, Member, send};
use crate::drops::{Context, DropReason, is_dropped};
use crate::fast_path::FastPaths;
use crate::flags::OWN_MESSAGE;
use header::{GROUP_SOURCE, Header};
use polder_buffers::{BATCH, Batch, NO_PORT, Packet, PortId};
use publish::Publisher;
use rare::{refuse, refuse_source};
use run::{BridgeVerdict, Run};
use state::Frame;

/// Decides on the packets of `batch`.
///
/// Sources of consecutive frames with the same ingress are all learned before the first of these frames is
/// forwarded. Nothing is learned from the gateway's own messages, which are in batches of their own.
///
/// Usually the batch stays in place, with `egress` and `vlan` of its packets set. If at least one packet goes
/// to several members, the whole batch moves to the end of `expanded`, in order, and `batch` is empty: later
/// stages process `expanded`, which must have spare capacity for [`Bridges::longest_expansion`] packets.
///
/// Decisions about frames between ports with fast paths are published there.
pub fn bridge(
    batch: &mut Batch,
    (bridges, fast_paths): (&Bridges, &FastPaths),
    state: &mut BridgeState,
    expanded: &mut Vec<Packet>,
    context: &mut Context<'_>,
) {
    let second = FdbTime::new(context.now, 0).second;
    let mut floods = 0_u64;
    let mut start = 0;
    while let Some(first) = batch.get(start) {
        let Some(from) = bridges.member(first.ingress) else {
            refuse(&mut batch[start], context);
            start += 1;
            continue;
        };
        let bridge = bridges.bridge(from.bridge);
        let time = FdbTime { second, ageing: bridge.ageing };
        let is_own_message = first.flags & OWN_MESSAGE != 0;
        let learns = from.learning && !is_own_message;
        let run = Run { from, bridge, time, bridges };
        let publisher =
            fast_paths.ingress(from.port).filter(|_| learns).map(|port| Publisher::new(port, fast_paths));
        let count = run.classify(&mut batch[start..], &mut state.frames, context);
        let packets = &mut batch[start..start + count];
        if learns {
            if run.learn(packets, state, context) {
                fast_paths.count_move();
            }
        } else if !is_own_message && !bridge.own.is_empty() {
            run.guard(packets, state, context);
        }
        floods |= run.relay(packets, state, context) << start;
        if let Some(publisher) = publisher {
            run.publish(packets, state, &publisher, context.now);
        }
        start += count;
    }
    if floods != 0 {
        expand(batch, floods, bridges, expanded, context);
    }
}

/// Destination and egress of the last forwarded frame. Most of a batch has few destinations, and a correct
/// prediction is faster than waiting for the member's data.
struct LastEgress<'a> {
    /// A station on the port, with its VLAN.
    station: FdbKey,
    port: PortId,
    to: Option<&'a Member>,
}

impl Default for LastEgress<'_> {
    fn default() -> Self {
        Self { station: FdbKey::NONE, port: NO_PORT, to: None }
    }
}

impl LastEgress<'_> {
    /// True if a station that was found on `port` has the same egress and VLAN.
    #[inline(always)]
    fn leads_to(&self, station: FdbKey, port: Option<PortId>) -> bool {
        port == Some(self.port) && station.vlan() == self.station.vlan() && !station.is_group()
    }
}

impl<'a> Run<'a> {
    /// Reads the headers of the run, looks up their VLANs and sets `vlan`. Returns the run's length.
    #[inline(never)]
    fn classify(
        &self,
        packets: &mut [Packet],
        frames: &mut [Frame; BATCH],
        context: &mut Context<'_>,
    ) -> usize {
        let port = self.from.port;
        let view = self.fdb().view();
        let mut last = (Header::default(), None);
        let mut packets = packets.iter_mut();
        for position in 0..BATCH {
            let Some(packet) = packets.next().filter(|packet| packet.ingress == port) else {
                return position;
            };
            frames[position].source = FdbKey::NONE;
            frames[position].destination = FdbKey::NONE;
            if is_dropped(packet) {
                continue;
            }
            let header = match Header::read(packet, context.pool) {
                Ok(header) => header,
                Err(reason) => {
                    context.discard(packet, reason);
                    continue;
                }
            };
            // Frames of one flow have the same header.
            if let (known, Some((place, vlan))) = last
                && known == header
            {
                packet.vlan = vlan;
                frames[position] = frames[place % BATCH];
                continue;
            }
            match self.vlan_of(header) {
                Ok(vlan) => {
                    packet.vlan = vlan;
                    frames[position] = Frame::new(header, vlan, &view);
                    last = (header, Some((position, vlan)));
                }
                Err(reason) => context.discard(packet, reason),
            }
        }
        BATCH
    }

    #[inline(always)]
    fn vlan_of(&self, header: Header) -> Result<u16, DropReason> {
        if header.0 & GROUP_SOURCE != 0 || header.source() == 0 {
            return Err(DropReason::SourceMulticast);
        }
        let destination = header.destination();
        if FdbKey::is_link_local(destination) && !self.bridge.forward_groups.forwards(destination) {
            return Err(DropReason::ReservedMulticast);
        }
        self.from.vlans.as_ref().map_or(Ok(0), |vlans| vlans.classify(header.tag()))
    }

    /// Learns the sources of the run; consecutive frames with the same source need one look-up. Returns true
    /// if a station has moved.
    #[inline(never)]
    fn learn(&self, packets: &mut [Packet], state: &mut BridgeState, context: &Context<'_>) -> bool {
        let (view, port, time) = (self.fdb().view(), self.from.port, self.time);
        let mut moved = false;
        let mut last = FdbKey::NONE;
        for position in 0..packets.len().min(BATCH) {
            let Frame { source, source_place, .. } = state.frames[position];
            if source == last || source == FdbKey::NONE {
                continue;
            }
            last = source;
            if view.knows(source, source_place, port, time) {
                continue;
            }
            match self.learn_one(source, state, context.now) {
                Ok(learned) => moved |= learned == Learned::Moved,
                Err(reason) => refuse_source(packets, (&mut state.frames, position), reason, context),
            }
        }
        moved
    }

    /// Forwarding database of the bridge.
    #[inline(always)]
    fn fdb(&self) -> &'a Fdb {
        &self.bridge.fdb
    }

    /// Looks up the destinations and forwards. Returns the bit set of packets that go to several members.
    #[inline(never)]
    fn relay(&self, packets: &mut [Packet], state: &mut BridgeState, context: &mut Context<'_>) -> u64 {
        let view = self.fdb().view();
        let mut floods = 0_u64;
        let mut last = LastEgress::default();
        let mut packets = packets.iter_mut();
        for position in 0..BATCH {
            let Some(packet) = packets.next() else { break };
            let Frame { destination, destination_place, tag, .. } = state.frames[position];
            if destination == FdbKey::NONE {
                continue;
            }
            let known = destination == last.station
                || last.leads_to(destination, view.lookup(destination, destination_place, self.time));
            match last.to {
                Some(member) if known => {
                    last.station = destination;
                    send(packet, member, tag, context);
                }
                Some(_) | None => {
                    let frame = state.frames[position];
                    let is_flood = self.relay_one(packet, frame, &mut last, state, context);
                    floods |= u64::from(is_flood) << position;
                }
            }
        }
        floods
    }

    /// Forwards a frame whose egress was not predicted. Returns true if it goes to several members.
    #[inline(never)]
    fn relay_one(
        &self,
        packet: &mut Packet,
        frame: Frame,
        last: &mut LastEgress<'a>,
        state: &mut BridgeState,
        context: &mut Context<'_>,
    ) -> bool {
        let destination = frame.destination;
        let mut verdict = self.decide(destination, frame.destination_place);
        match verdict {
            BridgeVerdict::Forward(member) if member.port == self.from.port => {
                verdict = self.reflect(member, state, context.now);
            }
            BridgeVerdict::Forward(member) => {
                *last = LastEgress { station: destination, port: member.port, to: Some(member) };
            }
            BridgeVerdict::Flood => verdict = self.flood(packet, destination, state, context),
            BridgeVerdict::Drop(_) => {}
        }
        match verdict {
            BridgeVerdict::Forward(member) => send(packet, member, frame.tag, context),
            BridgeVerdict::Flood => return true,
            BridgeVerdict::Drop(reason) => context.discard(packet, reason),
        }
        false
    }

    /// Verdict on a destination.
    fn decide(&self, destination: FdbKey, place: BucketIndex) -> BridgeVerdict<'a> {
        if destination.is_group() {
            return BridgeVerdict::Flood;
        }
        let found = self.fdb().view().lookup(destination, place, self.time);
        let found = found.or_else(|| self.bridge.own.members(destination).next());
        let Some(to) = found.and_then(|port| self.bridges.member(port)) else { return BridgeVerdict::Flood };
        let from = self.from;
        if to.bridge != from.bridge {
            // The station's port has left the bridge, so the station counts as unknown.
            return BridgeVerdict::Flood;
        }
        let refusal = if !from.is_apart_from(to) {
            DropReason::SamePort
        } else if to.isolated && from.isolated {
            DropReason::Isolated
        } else if !to.carries(destination.vlan()) {
            DropReason::VlanNotAllowed
        } else if !self.bridges.links().is_up(to.port) {
            DropReason::PortDown
        } else {
            return BridgeVerdict::Forward(to);
        };
        BridgeVerdict::Drop(refusal)
    }
}
