//! Publishes decisions for ports with fast paths.

use super::run::{BridgeVerdict, Run};
use super::state::{BridgeState, Frame};
use crate::drops::is_dropped;
use crate::fast_path::{FastPathPort, FastPaths, FlowKey, StationPair, TagChange, Validity};
use crate::forward::fdb::{FdbKey, FdbTime};
use crate::forward::table::{Bridges, Member};
use crate::forward::vlan::Tag;
use crate::units::Nanos;
use polder_buffers::{Packet, PortId};

/// Fast path of a run's ingress.
pub(super) struct Publisher<'a> {
    port: &'a FastPathPort,
    paths: &'a FastPaths,
    /// Validity of the decisions; read before any state that the decisions depend on.
    validity: Validity,
}

impl<'a> Publisher<'a> {
    pub(super) fn new(port: &'a FastPathPort, paths: &'a FastPaths) -> Self {
        Self { port, paths, validity: Validity { version: paths.version(), moves: port.table.moves() } }
    }

    fn publish(&self, (from, mut pair): (PortId, StationPair), to: &Member, change: (TagChange, u16)) {
        pair.outer = self.paths.outer_key(from);
        if let Some(forwarding) = self.paths.forwarding((from, &pair), to.port, change) {
            self.port.table.publish(&FlowKey::Stations(pair), &forwarding, self.validity);
        }
    }
}

impl Bridges {
    /// True if frames of `pair` from `from` still go to `to` with that change of their tag; `vlan` is their
    /// VLAN in the database. If `was_used`, the source was seen since the last call and is refreshed at
    /// `second`.
    pub fn confirm(
        &self,
        (from, pair): (PortId, &StationPair),
        to: PortId,
        (tag_change, vlan): (TagChange, u16),
        (was_used, second): (bool, u32),
    ) -> bool {
        let Some(from) = self.member(from) else { return false };
        let bridge = self.bridge(from.bridge);
        let time = FdbTime { second, ageing: bridge.ageing };
        let run = Run { from, bridge, time, bridges: self };
        let view = bridge.fdb.view();
        let source = FdbKey::new(pair.source, vlan);
        let destination = FdbKey::new(pair.destination, vlan);
        let (source_place, destination_place) = (view.locate(source), view.locate(destination));
        let known = view.lookup(source, source_place, time);
        if was_used && known.is_none_or(|port| port == from.port) {
            bridge.fdb.learn_within(source, from.port, from.fdb_max_learned, time);
        }
        let tag = pair.tag.map_or(Tag::None, Tag::Control);
        let frame = Frame { source, destination, source_place, destination_place, tag };
        run.pair(&frame).is_some_and(|(_, member, change)| member.port == to && change == tag_change)
    }
}

impl<'a> Run<'a> {
    /// Publishes the due decisions about frames of the run.
    #[inline(never)]
    pub(super) fn publish(
        &self,
        packets: &[Packet],
        state: &mut BridgeState,
        publisher: &Publisher<'_>,
        now: Nanos,
    ) {
        let BridgeState { frames, seen, .. } = state;
        let mut last = None;
        for (packet, frame) in packets.iter().zip(&frames[..]) {
            let pair = (frame.source, frame.destination);
            if frame.destination == FdbKey::NONE || last == Some(pair) || is_dropped(packet) {
                continue;
            }
            last = Some(pair);
            let hash = self.hash(frame);
            if frame.destination.is_group() || !seen.is_due(hash, now) {
                continue;
            }
            match self.pair(frame) {
                Some((pair, to, tag)) => {
                    publisher.publish((self.from.port, pair), to, (tag, frame.destination.vlan()));
                }
                None => seen.retry(hash),
            }
        }
    }

    /// Hash of a frame's addresses and ingress; never 0.
    fn hash(&self, frame: &Frame) -> u64 {
        let stations = frame.source.0.rotate_left(24) ^ frame.destination.0;
        (stations ^ u64::from(self.from.port.0)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 8 | 1 << 63
    }

    /// Station pair of a frame, egress member and tag change; `None` if each frame must be decided
    /// individually.
    fn pair(&self, frame: &Frame) -> Option<(StationPair, &'a Member, TagChange)> {
        let view = self.fdb().view();
        // A source that was not learned is counted with each frame.
        if view.lookup(frame.source, frame.source_place, self.time) != Some(self.from.port) {
            return None;
        }
        let BridgeVerdict::Forward(to) = self.decide(frame.destination, frame.destination_place) else {
            return None;
        };
        // Reflected frames are subject to a limit.
        if to.port == self.from.port {
            return None;
        }
        let tag = frame.tag.vlan();
        if tag == Some(0) {
            return None;
        }
        let change = match &to.vlans {
            None => TagChange::Keep,
            Some(vlans) => vlans.change(frame.tag, frame.destination.vlan())?,
        };
        let (source, destination) = (frame.source.address(), frame.destination.address());
        Some((StationPair { source, destination, tag, outer: None }, to, change))
    }
}
