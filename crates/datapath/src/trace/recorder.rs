//! Recorder of a traced packet's stages.

use crate::counters::Stage;
use crate::drops::{DropReason, is_dropped};
use crate::engine::Tables;
use crate::sync::Arc;
use crate::transmit::Egress;
use polder_buffers::{Batch, Packet, Pool, PortId};
use std::collections::HashSet;

/// Fate of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The packet goes on.
    GoesOn,
    /// Its journey has ended.
    Dropped(DropReason),
    /// The packet was for the gateway itself.
    Taken,
}

/// A packet behind a stage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TracedPacket {
    /// The port by which it came; of a packet from a tunnel, or for one, the tunnel.
    pub ingress: PortId,
    /// The port by which it leaves, as far as that is known.
    pub egress: PortId,
    /// Its VLAN, once a bridge has looked at it.
    pub vlan: u16,
    /// Fate of the packet.
    pub fate: Fate,
    /// All its bytes.
    pub bytes: Vec<u8>,
}

/// The packets behind a stage. Those whose journey had ended before are not among them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Look {
    /// The stage.
    pub stage: Stage,
    /// True if these are messages of the gateway's own.
    pub is_answer: bool,
    /// The packets.
    pub packets: Vec<TracedPacket>,
    /// Rules that have matched them, by number from 0.
    pub rules: Vec<usize>,
}

/// A packet as it would leave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    /// The port.
    pub port: PortId,
    /// True if it is a message of the gateway's own.
    pub is_answer: bool,
    /// All its bytes.
    pub bytes: Vec<u8>,
}

/// Record of the stages' work.
#[derive(Debug)]
pub(crate) struct Recorder {
    tables: Arc<Tables>,
    matched: Vec<u64>,
    is_answer: bool,
    /// Packets whose end has been written down.
    ended: HashSet<*const u8>,
    looks: Vec<Look>,
    sent: Vec<Sent>,
}

impl Recorder {
    pub(super) fn new(tables: Arc<Tables>) -> Self {
        let matched = tables.filters.matched();
        let (ended, looks, sent) = (HashSet::new(), Vec::new(), Vec::new());
        Self { tables, matched, is_answer: false, ended, looks, sent }
    }

    /// Begins the recording of the gateway's own messages.
    pub(crate) fn turn_to_answers(&mut self) {
        self.is_answer = true;
        self.ended.clear();
    }

    pub(super) fn finish(self) -> (Vec<Look>, Vec<Sent>) {
        (self.looks, self.sent)
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

    /// Rules that have matched since the last time.
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
        // A stage that meets nothing but what has ended has nothing to say.
        if !seen.is_empty() || packets.is_empty() {
            self.looks.push(Look { stage, is_answer: self.is_answer, packets: seen, rules });
        }
    }
}
