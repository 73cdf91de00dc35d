//! The stage: one verdict a packet, carried out in place.

use super::fdb::{BucketIndex, Fdb, FdbKey, FdbTime, Learned, View};
use super::flood::{Flood, FloodGates, Targets, expand, send};
use super::table::{Bridges, Member};
use super::vlan::Tag;
use crate::counters::{Counter, totals};
use crate::drops::{Context, DropReason, is_dropped};
use crate::fast_path::{FastPathPort, FastPaths, FlowKey, SeenPairs, StationPair, TagChange, Validity};
use crate::flags::OWN_MESSAGE;
use crate::units::Nanos;
use polder_buffers::{BATCH, Batch, NO_PORT, Packet, Pool, PortId};
use std::sync::Arc;

/// Counters of one worker's bridge stage. Copies are in [`Ledger`](crate::drops::Ledger).
#[derive(Debug, Default)]
pub struct BridgeCounters {
    /// Addresses learned.
    pub learned: Counter,
    /// Addresses that moved from one port to another.
    pub moved: Counter,
    /// Frames whose source is bound to another port by configuration; those that follow each other
    /// with one source count once.
    pub pinned: Counter,
    /// Frames whose source was not learned because their port was at its limit; counted like `pinned`.
    pub limited: Counter,
    /// Frames whose source found no place in the database; counted like `pinned`.
    pub learn_failures: Counter,
    /// Frames for a group or an unknown station.
    pub flooded: Counter,
}

totals! {
    BridgeCounters { learned, moved, pinned, limited, learn_failures, flooded } [];
}

/// State that one worker keeps between batches.
#[derive(Debug)]
pub struct BridgeState {
    /// By port; members of a split-horizon group share one.
    gates: Vec<FloodGates>,
    frames: Box<[Frame; BATCH]>,
    /// Pairs of stations that may be published.
    seen: SeenPairs,
    counters: Arc<BridgeCounters>,
}

impl BridgeState {
    /// The state for `bridges`.
    pub fn new(bridges: &Bridges, counters: Arc<BridgeCounters>) -> Self {
        let frames = Box::new([Frame::default(); BATCH]);
        let mut state = Self { gates: Vec::new(), frames, seen: SeenPairs::new(), counters };
        state.adopt(bridges);
        state
    }

    /// Makes room for the ports of another table; limits that are used up stay so.
    pub fn adopt(&mut self, bridges: &Bridges) {
        let ports = bridges.members().iter().map(|member| usize::from(member.split_horizon.0) + 1).max();
        self.gates.resize(self.gates.len().max(ports.unwrap_or(0)), FloodGates::new());
    }

    /// The counters.
    pub fn counters(&self) -> &Arc<BridgeCounters> {
        &self.counters
    }
}

/// Decides where the packets of `batch` go.
///
/// Frames that follow each other and came in by one port are all learned from before the first of them
/// is sent on. Nothing is learned from messages of the gateway's own, which come in a batch of their own.
///
/// Usually the batch stays as it is, and `egress` and `vlan` of its packets are set. When at least
/// one of them goes to several members, the whole batch moves to the end of `expanded`, in order, and
/// the batch is empty: the rest of the journey runs over `expanded`. `expanded` has capacity for
/// [`Bridges::longest_expansion`] packets more.
///
/// Frames between ports with fast paths are published there.
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
        let learns = from.learning && first.flags & OWN_MESSAGE == 0;
        let run = Run { from, fdb: &bridge.fdb, time, bridges };
        let publisher =
            fast_paths.port(from.port).filter(|_| learns).map(|port| Publisher::new(port, fast_paths));
        let count = run.classify(&mut batch[start..], &mut state.frames, context);
        if learns && run.learn(&state.frames[..count], &state.counters) {
            fast_paths.count_move();
        }
        floods |= run.relay(&mut batch[start..start + count], state, context) << start;
        if let Some(publisher) = publisher {
            run.publish(&batch[start..start + count], state, &publisher, context.now);
        }
        start += count;
    }
    if floods != 0 {
        expand(batch, floods, bridges, expanded, context);
    }
}

#[cold]
fn refuse(packet: &mut Packet, context: &Context<'_>) {
    // A router's packets may be in the same batch; they have their port.
    if packet.egress == NO_PORT {
        context.discard(packet, DropReason::NoBridge);
    }
}

/// Packets of one batch that follow each other and came in by one member.
///
/// Three short loops go over them, so that several packets are in flight in each: the reading of
/// headers, the lookups of sources, and those of destinations wait for different memory.
struct Run<'a> {
    from: &'a Member,
    fdb: &'a Fdb,
    time: FdbTime,
    bridges: &'a Bridges,
}

/// Data of a frame that are kept from loop to loop.
#[derive(Clone, Copy, Debug, Default)]
struct Frame {
    /// `None` when its journey has ended, as is the destination.
    source: FdbKey,
    destination: FdbKey,
    source_place: BucketIndex,
    destination_place: BucketIndex,
    tag: Tag,
}

impl Frame {
    #[inline(always)]
    fn new(header: Header, vlan: u16, view: &View<'_>) -> Self {
        let source = FdbKey::from_wire(header.source(), vlan);
        let destination = FdbKey::from_wire(header.destination(), vlan);
        let (source_place, destination_place) = (view.locate(source), view.locate(destination));
        Self { source, destination, source_place, destination_place, tag: header.tag() }
    }
}

/// The fast path of the port that a run came in by.
struct Publisher<'a> {
    port: &'a FastPathPort,
    paths: &'a FastPaths,
    /// As it was before the first look at what decisions rest on.
    validity: Validity,
}

impl<'a> Publisher<'a> {
    fn new(port: &'a FastPathPort, paths: &'a FastPaths) -> Self {
        Self { port, paths, validity: Validity { version: paths.version(), moves: port.table.moves() } }
    }

    fn publish(&self, (from, mut pair): (PortId, StationPair), to: &Member, change: (TagChange, u16)) {
        pair.outer = self.paths.outer_key(from);
        if let Some(forwarding) = self.paths.forwarding((from, &pair), to.port, change) {
            self.port.table.publish(&FlowKey::Stations(pair), &forwarding, self.validity);
        }
    }
}

/// Verdict on a frame.
#[derive(Clone, Copy)]
enum BridgeVerdict<'a> {
    /// To one member.
    Forward(&'a Member),
    /// To several members, or to one that has to be found out.
    Flood,
    /// To no member.
    Drop(DropReason),
}

/// The way that the last frame for a known station took. Most of a batch takes few ways, and to guess that
/// it is the same again is faster than to wait for what is known of the port.
struct Way<'a> {
    /// A station at its end, with its VLAN.
    station: FdbKey,
    port: PortId,
    to: Option<&'a Member>,
}

impl Default for Way<'_> {
    fn default() -> Self {
        Self { station: FdbKey::NONE, port: NO_PORT, to: None }
    }
}

impl Way<'_> {
    /// True if a station that was found behind `port` is at its end.
    #[inline(always)]
    fn leads_to(&self, station: FdbKey, port: Option<PortId>) -> bool {
        port == Some(self.port) && station.vlan() == self.station.vlan() && !station.is_group()
    }
}

impl Bridges {
    /// True if frames of `pair` that come in by `from` still go to `to` with that change of their tag; their VLAN in the
    /// database is `vlan`. If some came since this was asked last, as `was_used` says, their source was seen at `second`.
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
        let run = Run { from, fdb: &bridge.fdb, time, bridges: self };
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
    /// Reads the headers of the run and finds its VLANs. Sets `vlan`. Returns the run's length.
    #[inline(never)]
    fn classify(
        &self,
        packets: &mut [Packet],
        frames: &mut [Frame; BATCH],
        context: &mut Context<'_>,
    ) -> usize {
        let port = self.from.port;
        let view = self.fdb.view();
        let mut last = (Header::default(), None);
        let mut count = 0;
        for (position, packet) in
            packets.iter_mut().enumerate().take_while(|(_, packet)| packet.ingress == port)
        {
            count += 1;
            frames[position % BATCH].source = FdbKey::NONE;
            frames[position % BATCH].destination = FdbKey::NONE;
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
            // A flow's frames have one header.
            if let (known, Some((place, vlan))) = last
                && known == header
            {
                packet.vlan = vlan;
                frames[position % BATCH] = frames[place % BATCH];
                continue;
            }
            match self.vlan_of(header) {
                Ok(vlan) => {
                    packet.vlan = vlan;
                    frames[position % BATCH] = Frame::new(header, vlan, &view);
                    last = (header, Some((position, vlan)));
                }
                Err(reason) => context.discard(packet, reason),
            }
        }
        count
    }

    #[inline(always)]
    fn vlan_of(&self, header: Header) -> Result<u16, DropReason> {
        if header.0 & GROUP_SOURCE != 0 || header.source() == 0 {
            return Err(DropReason::SourceMulticast);
        }
        self.from.vlans.as_ref().map_or(Ok(0), |vlans| vlans.classify(header.tag()))
    }

    /// Learns the sources of the run. Frames with the source of the one before need no lookup. Returns true if a
    /// station has moved.
    #[inline(never)]
    fn learn(&self, frames: &[Frame], counters: &BridgeCounters) -> bool {
        let (view, port, time) = (self.fdb.view(), self.from.port, self.time);
        let mut moved = false;
        let mut last = FdbKey::NONE;
        for frame in frames {
            let source = frame.source;
            if source == last || source == FdbKey::NONE {
                continue;
            }
            last = source;
            if !view.knows(source, frame.source_place, port, time) {
                moved |= self.learn_one(source, counters) == Learned::Moved;
            }
        }
        moved
    }

    #[cold]
    fn learn_one(&self, source: FdbKey, counters: &BridgeCounters) -> Learned {
        let Member { port, fdb_max_learned, .. } = *self.from;
        let learned = self.fdb.learn_within(source, port, fdb_max_learned, self.time);
        match learned {
            Learned::Known | Learned::Refreshed => {}
            Learned::Added => counters.learned.add(1),
            Learned::Moved => counters.moved.add(1),
            Learned::Pinned => counters.pinned.add(1),
            Learned::Limited => counters.limited.add(1),
            Learned::Full => counters.learn_failures.add(1),
        }
        learned
    }

    /// Looks the destinations up and sends. Returns which of the packets go to several members.
    #[inline(never)]
    fn relay(&self, packets: &mut [Packet], state: &mut BridgeState, context: &mut Context<'_>) -> u64 {
        let view = self.fdb.view();
        let mut floods = 0_u64;
        let mut way = Way::default();
        for (position, packet) in packets.iter_mut().enumerate() {
            let Frame { destination, destination_place, tag, .. } = state.frames[position % BATCH];
            if destination == FdbKey::NONE {
                continue;
            }
            let known = destination == way.station
                || way.leads_to(destination, view.lookup(destination, destination_place, self.time));
            match way.to {
                Some(member) if known => {
                    way.station = destination;
                    send(packet, member, tag, context);
                }
                Some(_) | None => {
                    let frame = state.frames[position % BATCH];
                    let is_flood = self.relay_one(packet, frame, &mut way, state, context);
                    floods |= u64::from(is_flood) << position;
                }
            }
        }
        floods
    }

    /// Sends a frame that does not go where the one before went. Says whether it goes to several members.
    #[inline(never)]
    fn relay_one(
        &self,
        packet: &mut Packet,
        frame: Frame,
        way: &mut Way<'a>,
        state: &mut BridgeState,
        context: &mut Context<'_>,
    ) -> bool {
        let destination = frame.destination;
        let mut verdict = self.decide(destination, frame.destination_place);
        match verdict {
            BridgeVerdict::Forward(member) => {
                *way = Way { station: destination, port: member.port, to: Some(member) };
            }
            BridgeVerdict::Flood => verdict = self.flood(destination, state, context.now),
            BridgeVerdict::Drop(_) => {}
        }
        match verdict {
            BridgeVerdict::Forward(member) => send(packet, member, frame.tag, context),
            BridgeVerdict::Flood => return true,
            BridgeVerdict::Drop(reason) => context.discard(packet, reason),
        }
        false
    }

    /// Publishes the decisions about frames of the run that are due for it.
    #[inline(never)]
    fn publish(&self, packets: &[Packet], state: &mut BridgeState, publisher: &Publisher<'_>, now: Nanos) {
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

    /// A hash of a frame's pair of stations, and of the port that it came in by.
    fn hash(&self, frame: &Frame) -> u64 {
        let stations = frame.source.0.rotate_left(24) ^ frame.destination.0;
        (stations ^ u64::from(self.from.port.0)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 8 | 1 << 63
    }

    /// The pair of stations of a frame, the member that its frames leave by, and what becomes of their tag; `None` when
    /// that is to be found out for each frame.
    fn pair(&self, frame: &Frame) -> Option<(StationPair, &'a Member, TagChange)> {
        let view = self.fdb.view();
        // A source that is not learned is counted with each frame.
        if view.lookup(frame.source, frame.source_place, self.time) != Some(self.from.port) {
            return None;
        }
        let BridgeVerdict::Forward(to) = self.decide(frame.destination, frame.destination_place) else {
            return None;
        };
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

    /// The verdict on a destination.
    fn decide(&self, destination: FdbKey, place: BucketIndex) -> BridgeVerdict<'a> {
        if destination.is_group() {
            return match destination.is_reserved() {
                true => BridgeVerdict::Drop(DropReason::ReservedMulticast),
                false => BridgeVerdict::Flood,
            };
        }
        let found = self.fdb.view().lookup(destination, place, self.time);
        let Some(to) = found.and_then(|port| self.bridges.member(port)) else { return BridgeVerdict::Flood };
        let from = self.from;
        if to.bridge != from.bridge {
            // A port that has left the bridge is as good as unknown.
            return BridgeVerdict::Flood;
        }
        let refusal = if to.split_horizon == from.split_horizon {
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

    /// The verdict on a frame for a group or an unknown station.
    #[inline(never)]
    fn flood(&self, destination: FdbKey, state: &mut BridgeState, now: Nanos) -> BridgeVerdict<'a> {
        state.counters.flooded.add(1);
        if let Some(gates) = state.gates.get_mut(usize::from(self.from.split_horizon.0))
            && !gates.admit(destination, self.from.flood_limits, now)
        {
            return BridgeVerdict::Drop(DropReason::FloodLimit);
        }
        let flood = Flood { from: self.from, vlan: destination.vlan(), group: destination.is_group() };
        match flood.targets(self.bridges) {
            Targets::Nobody(reason) => BridgeVerdict::Drop(reason),
            Targets::One(member) => BridgeVerdict::Forward(member),
            Targets::Many => BridgeVerdict::Flood,
        }
    }
}

/// Addresses and EtherType of a frame, as the bridge reads them: bytes 0 to 7 and 8 to 15, the
/// first of each lowest.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Header(u64, u64);

impl Header {
    #[inline(always)]
    fn read(packet: &mut Packet, pool: &mut Pool) -> Result<Self, DropReason> {
        if let Some(bytes) = packet.bytes().first_chunk() {
            return Ok(Self::parse(bytes));
        }
        Self::read_short(packet, pool)
    }

    #[inline(always)]
    fn parse(bytes: &[u8; TAGGED]) -> Self {
        let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, ..] = *bytes;
        Self(u64::from_le_bytes([a, b, c, d, e, f, g, h]), u64::from_le_bytes([i, j, k, l, m, n, o, p]))
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
        let header = Self::parse(&bytes);
        match header.tag() {
            Tag::Control(_) if length < TAGGED => Err(DropReason::VlanTruncated),
            Tag::Control(_) | Tag::None => Ok(header),
        }
    }

    /// The first byte lowest.
    #[inline(always)]
    fn destination(self) -> u64 {
        self.0 & ADDRESS
    }

    /// The first byte lowest.
    #[inline(always)]
    fn source(self) -> u64 {
        self.0 >> 48 | self.1 << 16 & ADDRESS
    }

    #[inline(always)]
    fn tag(self) -> Tag {
        Tag::from_wire((self.1 >> 32) as u32)
    }
}

/// The six bytes of an address, the first of them lowest.
const ADDRESS: u64 = 0xffff_ffff_ffff;
/// The bit of the source, in the first word, that says "group".
const GROUP_SOURCE: u64 = 1 << 48;
/// Bytes of a header without tag.
const UNTAGGED: usize = 14;
/// Bytes of a header with one tag.
const TAGGED: usize = 18;
