//! Recorder of the stages of a traced packet.

use crate::counters::Stage;
use crate::drops::{DropReason, is_dropped};
use crate::engine::Tables;
use crate::sync::Arc;
use crate::transmit::Egress;
use polder_buffers::{Batch, Packet, Pool, PortId};
use std::collections::HashSet;

/// Fate of a packet after a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The packet continues.
    GoesOn,
    /// The packet was dropped.
    Dropped(DropReason),
    /// The packet was delivered to the gateway itself.
    Taken,
}

/// A packet after a stage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TracedPacket {
    /// Ingress; the tunnel for a packet from or to a tunnel.
    pub ingress: PortId,
    /// Egress, as far as known.
    pub egress: PortId,
    /// VLAN, once the bridge has set it.
    pub vlan: u16,
    /// Fate of the packet.
    pub fate: Fate,
    /// All bytes of the packet.
    pub bytes: Vec<u8>,
}

/// Packets after a stage, except those that ended in an earlier stage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StageRecord {
    /// The stage.
    pub stage: Stage,
    /// True if these are messages of the gateway itself.
    pub is_answer: bool,
    /// The packets.
    pub packets: Vec<TracedPacket>,
    /// Rules that matched, by number from 0.
    pub rules: Vec<usize>,
}

/// A packet that would be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    /// Egress port.
    pub port: PortId,
    /// True if it is a message of the gateway itself.
    pub is_answer: bool,
    /// All bytes of the packet.
    pub bytes: Vec<u8>,
}

/// Records the packets after each stage.
#[derive(Debug)]
pub(crate) struct Recorder {
    tables: Arc<Tables>,
    matched: Vec<u64>,
    is_answer: bool,
    /// Packets whose end has been recorded.
    ended: HashSet<*const u8>,
    records: Vec<StageRecord>,
    sent: Vec<Sent>,
}

impl Recorder {
    pub(super) fn new(tables: Arc<Tables>) -> Self {
        let matched = tables.filters.matched();
        let (ended, records, sent) = (HashSet::new(), Vec::new(), Vec::new());
        Self { tables, matched, is_answer: false, ended, records, sent }
    }

    /// Starts the recording of the gateway's own messages.
    pub(crate) fn turn_to_answers(&mut self) {
        self.is_answer = true;
        self.ended.clear();
    }

    pub(super) fn finish(self) -> (Vec<StageRecord>, Vec<Sent>) {
        (self.records, self.sent)
    }

    fn see(&mut self, packet: &Packet) -> Option<TracedPacket> {
        if is_dropped(packet) && !self.ended.insert(packet.bytes().as_ptr()) {
            return None;
        }
        let fate = match DropReason::of(packet) {
            Some(reason) => Fate::Dropped(reason),
            None if is_dropped(packet) => Fate::Taken,
            None => Fate::GoesOn,
        };
        let Packet { ingress, egress, vlan, .. } = *packet;
        Some(TracedPacket { ingress, egress, vlan, fate, bytes: bytes_of(packet) })
    }

    /// Rules that have matched since the last call.
    fn rules(&mut self) -> Vec<usize> {
        let now = self.tables.filters.matched();
        let before = core::mem::replace(&mut self.matched, now);
        let grown = self.matched.iter().zip(before).enumerate();
        grown.filter(|(_, (now, before))| *now > before).map(|(rule, _)| rule).collect()
    }
}

fn bytes_of(packet: &Packet) -> Vec<u8> {
    packet.segments().flatten().copied().collect()
}

impl Egress for Recorder {
    fn send(&mut self, port: PortId, batch: &mut Batch, pool: &mut Pool) -> bool {
        for packet in batch.drain() {
            self.sent.push(Sent { port, is_answer: self.is_answer, bytes: bytes_of(&packet) });
            pool.release_packet(packet);
        }
        true
    }

    fn passed(&mut self, stage: Stage, packets: &[Packet]) {
        let seen = packets.iter().filter_map(|packet| self.see(packet)).collect::<Vec<_>>();
        let rules = if stage == Stage::Filter { self.rules() } else { Vec::new() };
        // A stage that only saw ended packets is left out.
        if !seen.is_empty() || packets.is_empty() {
            self.records.push(StageRecord { stage, is_answer: self.is_answer, packets: seen, rules });
        }
    }
}
