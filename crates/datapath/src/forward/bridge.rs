//! The stage: one verdict a packet, carried out in place.

use super::fdb::{FdbKey, FdbTime, Learned};
use super::flood::{Flood, FloodGates, Targets, expand, send};
use super::table::{Bridge, Bridges, Member};
use super::vlan::{Tag, tag_of};
use crate::counters::Counter;
use crate::drops::{Context, DropReason, is_dropped};
use crate::units::Nanos;
use polder_buffers::{Batch, Packet, Pool};
use std::sync::Arc;

/// What one worker's bridge stage has done. Copies are in [`Ledger`](crate::drops::Ledger).
#[derive(Debug, Default)]
pub struct BridgeCounters {
    /// Addresses learned.
    pub learned: Counter,
    /// Addresses that moved from one port to another.
    pub moved: Counter,
    /// Frames whose source is bound to another port by configuration.
    pub pinned: Counter,
    /// Frames whose source found no place in the database.
    pub learn_failures: Counter,
    /// Frames for a group or an unknown station.
    pub flooded: Counter,
}

/// What one worker keeps between batches.
#[derive(Debug)]
pub struct BridgeState {
    /// By port.
    gates: Vec<FloodGates>,
    counters: Arc<BridgeCounters>,
}

impl BridgeState {
    /// The state for `bridges`.
    pub fn new(bridges: &Bridges, counters: Arc<BridgeCounters>) -> Self {
        let mut state = Self { gates: Vec::new(), counters };
        state.adopt(bridges);
        state
    }

    /// Makes room for the ports of another table; limits that are used up stay so.
    pub fn adopt(&mut self, bridges: &Bridges) {
        let ports = bridges.members().iter().map(|member| usize::from(member.port.0) + 1).max();
        self.gates.resize(ports.unwrap_or(0), FloodGates::new());
    }

    /// The counters.
    pub fn counters(&self) -> &Arc<BridgeCounters> {
        &self.counters
    }
}

/// Decides where the packets of `batch` go.
///
/// Usually the batch stays as it is, and `egress` and `vlan` of its packets are set. When at least
/// one of them goes to several members, the whole batch moves to the end of `expanded`, in order, and
/// the batch is empty: the rest of the journey runs over `expanded`. `expanded` has capacity for
/// [`Bridges::longest_expansion`] packets more.
pub fn bridge(
    batch: &mut Batch,
    bridges: &Bridges,
    state: &mut BridgeState,
    expanded: &mut Vec<Packet>,
    context: &mut Context<'_>,
) {
    let second = FdbTime::new(context.now, 0).second;
    let mut floods = 0_u64;
    for (position, packet) in batch.iter_mut().enumerate() {
        if is_dropped(packet) {
            continue;
        }
        match decide(packet, bridges, state, second, context) {
            Verdict::Forward(member) => send(packet, member, packet.vlan, context),
            Verdict::Flood => floods |= 1 << position,
            Verdict::Drop(reason) => context.discard(packet, reason),
        }
    }
    if floods != 0 {
        expand(batch, floods, bridges, expanded, context);
    }
}

enum Verdict<'a> {
    /// To one member.
    Forward(&'a Member),
    /// To several members.
    Flood,
    /// To nobody.
    Drop(DropReason),
}

/// Classifies the packet, learns its source and looks up its destination. Sets `vlan`.
#[inline(always)]
fn decide<'a>(
    packet: &mut Packet,
    bridges: &'a Bridges,
    state: &mut BridgeState,
    second: u32,
    context: &mut Context<'_>,
) -> Verdict<'a> {
    let Some(from) = bridges.member(packet.ingress) else { return Verdict::Drop(DropReason::NoBridge) };
    let header = match Header::read(packet, context.pool) {
        Ok(header) => header,
        Err(reason) => return Verdict::Drop(reason),
    };
    if header.source & GROUP != 0 || header.source == 0 {
        return Verdict::Drop(DropReason::SourceMulticast);
    }
    let vlan = match from.vlans.as_ref().map_or(Ok(0), |vlans| vlans.classify(header.tag)) {
        Ok(vlan) => vlan,
        Err(reason) => return Verdict::Drop(reason),
    };
    packet.vlan = vlan;
    let bridge = bridges.bridge(from.bridge);
    let time = FdbTime { second, ageing: bridge.ageing };
    if from.learning {
        learn(FdbKey::from_parts(header.source, vlan), from, bridge, time, &state.counters);
    }
    let group = header.destination & GROUP != 0;
    if header.destination & !0xf == RESERVED {
        return Verdict::Drop(DropReason::ReservedMulticast);
    }
    let found =
        if group { None } else { bridge.fdb.lookup(FdbKey::from_parts(header.destination, vlan), time) };
    // A port that has left the bridge is as good as unknown.
    let known = found.and_then(|port| bridges.member(port)).filter(|to| to.bridge == from.bridge);
    match known {
        Some(to) => relay(from, to, vlan, bridges),
        None => {
            state.counters.flooded.add(1);
            flood(Flood { from, vlan, group }, header.destination, bridges, &mut state.gates, context.now)
        }
    }
}

/// A frame for a known station.
#[inline(always)]
fn relay<'a>(from: &Member, to: &'a Member, vlan: u16, bridges: &Bridges) -> Verdict<'a> {
    let refusal = if to.port == from.port {
        DropReason::SamePort
    } else if to.isolated && from.isolated {
        DropReason::Isolated
    } else if !to.carries(vlan) {
        DropReason::VlanNotAllowed
    } else if !bridges.links().is_up(to.port) {
        DropReason::PortDown
    } else {
        return Verdict::Forward(to);
    };
    Verdict::Drop(refusal)
}

/// A frame for a group or an unknown station.
fn flood<'a>(
    flood: Flood<'a>,
    destination: u64,
    bridges: &'a Bridges,
    gates: &mut [FloodGates],
    now: Nanos,
) -> Verdict<'a> {
    if let Some(gates) = gates.get_mut(usize::from(flood.from.port.0))
        && !gates.admit(destination, flood.from.flood_limits, now)
    {
        return Verdict::Drop(DropReason::FloodLimit);
    }
    match flood.targets(bridges) {
        Targets::Nobody(reason) => Verdict::Drop(reason),
        Targets::One(member) => Verdict::Forward(member),
        Targets::Many => Verdict::Flood,
    }
}

#[inline(always)]
fn learn(key: FdbKey, from: &Member, bridge: &Bridge, time: FdbTime, counters: &BridgeCounters) {
    match bridge.fdb.learn(key, from.port, time) {
        Learned::Known | Learned::Refreshed => {}
        Learned::Added => counters.learned.add(1),
        Learned::Moved => counters.moved.add(1),
        Learned::Pinned => counters.pinned.add(1),
        Learned::Full => counters.learn_failures.add(1),
    }
}

/// What the bridge reads of a frame.
struct Header {
    destination: u64,
    source: u64,
    tag: Tag,
}

impl Header {
    #[inline(always)]
    fn read(packet: &mut Packet, pool: &mut Pool) -> Result<Self, DropReason> {
        match packet.bytes().first_chunk::<TAGGED>() {
            Some(bytes) => Ok(Self::parse(bytes)),
            None => Self::read_short(packet, pool),
        }
    }

    #[inline(always)]
    fn parse(bytes: &[u8; TAGGED]) -> Self {
        let [a, b, c, d, e, f, g, h, i, j, k, l, ..] = *bytes;
        Self {
            destination: u64::from_be_bytes([0, 0, a, b, c, d, e, f]),
            source: u64::from_be_bytes([0, 0, g, h, i, j, k, l]),
            tag: tag_of(bytes),
        }
    }

    /// A frame of less than 18 bytes, or one whose head frame holds less than its header.
    #[cold]
    fn read_short(packet: &mut Packet, pool: &mut Pool) -> Result<Self, DropReason> {
        let length = packet.len().min(TAGGED);
        if length < UNTAGGED {
            return Err(DropReason::EthernetTruncated);
        }
        let wanted = u16::try_from(length).unwrap_or(u16::MAX);
        packet.gather(wanted, pool).map_err(|_| DropReason::EthernetTruncated)?;
        let mut bytes = [0; TAGGED];
        bytes[..length].copy_from_slice(&packet.bytes()[..length]);
        if length < TAGGED && bytes[12..UNTAGGED] == [0x81, 0x00] {
            return Err(DropReason::VlanTruncated);
        }
        Ok(Self::parse(&bytes))
    }
}

/// The bit of an address that says "group"; broadcast is one.
const GROUP: u64 = 1 << 40;
/// 01:80:c2:00:00:00 to :0f, which bridges never forward (IEEE 802.1Q-2022, table 8-1).
const RESERVED: u64 = 0x0180_c200_0000;
/// Bytes of a header without tag.
const UNTAGGED: usize = 14;
/// Bytes of a header with one tag.
const TAGGED: usize = 18;
