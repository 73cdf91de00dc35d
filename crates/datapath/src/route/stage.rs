//! The stage: batches of packets to next hops.
//!
//! In: packets that came in by a router's interface; all others pass untouched. Out: frames for their next
//! hops, `egress` set. Exits: all refusals of IPv4, IPv6, ARP and VLAN, and every reason of stage `route`
//! in [`drops`](crate::drops).
//!
//! A batch goes through three loops: one looks at headers, one looks routes up, one rewrites. What is not
//! plain (a tag, an option, an address that wants a second look, a packet for this machine) takes a detour.
//!
//! Cost: the lines of the table that a look-up reads, fetched for all packets side by side, and some ten
//! nanoseconds. Source: RFC 1812, RFC 8200.

use super::check::{Seen, check_v4, check_v6, is_plain_v4, is_plain_v6};
use super::counters::RouteCounters;
use super::decide::{Facts, Verdict, decide};
use super::fragment;
use super::local::Desk;
use super::send::{ETHERNET, PLAIN_V4, PLAIN_V6, rewrite, rewrite_v4, rewrite_v6};
use super::waiting::{Due, Waiting, Wanted};
use super::{
    FibReader, Hop, Interface, InterfaceId, Notice, Notices, Owner, RouterAccess, RouterId, Routers, Way,
    WayId, Ways,
};
use crate::drops::{Context, DropReason, is_dropped};
use crate::steer::Hasher;
use crate::tunnel::refusal;
use crate::units::Nanos;
use crate::wire::{Arp, EtherType, Link, MacAddress, VlanId};
use polder_buffers::snapshot::Reader;
use polder_buffers::{BATCH, Batch, NO_PORT, Packet, Pool, PortId};
use std::sync::Arc;

/// [`Packet::flags`]: looked at closely; the short path is not for it.
const CLOSELY: u8 = 1 << 1;
/// Bytes of a packet that are looked at: link header, extension headers, a message of neighbour discovery.
const LOOKED_AT: usize = 256;
/// Makes hops share flows otherwise than workers do.
const SEED: u64 = 0x6563_6d70;

/// What one worker keeps between batches.
#[derive(Debug)]
pub struct RouteState {
    lanes: Vec<Lane>,
    work: Box<Work>,
    moves: Moves,
    waiting: Waiting,
    /// Packets that waited and look again.
    released: Vec<Packet>,
    hasher: Hasher,
    pub(super) desk: Desk,
}

/// One worker's access to one router.
#[derive(Debug)]
struct Lane {
    v4: FibReader,
    v6: FibReader,
    ways: Reader<Ways>,
    notices: Arc<Notices>,
    /// The news that packets which wait have seen.
    news: u64,
}

impl Lane {
    fn new(access: &RouterAccess) -> Self {
        let RouterAccess { v4, v6, ways, notices } = access;
        let news = notices.news();
        Self { v4: v4.reader(), v6: v6.reader(), ways: ways.reader(), notices: Arc::clone(notices), news }
    }
}

/// The packets of a batch that routes are looked up for.
#[derive(Debug)]
struct Work {
    v4: Lookups<4>,
    v6: Lookups<16>,
}

#[derive(Debug)]
struct Lookups<const N: usize> {
    count: usize,
    positions: [u8; BATCH],
    addresses: [[u8; N]; BATCH],
    found: [WayId; BATCH],
}

impl<const N: usize> Lookups<N> {
    const fn new() -> Self {
        Self { count: 0, positions: [0; BATCH], addresses: [[0; N]; BATCH], found: [WayId::NONE; BATCH] }
    }

    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "positions in a batch are below 64")]
    fn put(&mut self, position: usize, address: [u8; N]) {
        let at = self.count % BATCH;
        (self.positions[at], self.addresses[at]) = (position as u8, address);
        self.count += 1;
    }

    #[inline]
    fn lookup(&mut self, reader: &mut FibReader) {
        if self.count > 0 {
            reader.view().lookup_all(&self.addresses[..self.count], &mut self.found);
        }
    }
}

/// Packets that do not stay where they are.
#[derive(Debug)]
struct Moves {
    any: bool,
    by_position: [Option<Move>; BATCH],
}

#[derive(Clone, Copy, Debug)]
enum Move {
    Cut(u16),
    Wait(Wanted),
}

impl RouteState {
    /// The state for `routers`.
    pub fn new(routers: &Routers, counters: Arc<RouteCounters>) -> Self {
        let mut state = Self {
            lanes: Vec::new(),
            work: Box::new(Work { v4: Lookups::new(), v6: Lookups::new() }),
            moves: Moves { any: false, by_position: [None; BATCH] },
            waiting: Waiting::new(),
            released: Vec::new(),
            hasher: Hasher::mixed(SEED, false),
            desk: Desk::new(counters),
        };
        state.adopt(routers);
        state
    }

    /// Makes readers for routers that have come; those that stay keep theirs.
    pub fn adopt(&mut self, routers: &Routers) {
        let mut old = core::mem::take(&mut self.lanes);
        for access in routers.routers() {
            let known = old.iter().position(|lane| access.v4.is_of(&lane.v4));
            self.lanes.push(known.map_or_else(|| Lane::new(access), |place| old.swap_remove(place)));
        }
    }

    /// The counters.
    pub fn counters(&self) -> &Arc<RouteCounters> {
        &self.desk.counters
    }

    /// Messages to neighbours and senders, ready to leave.
    pub(crate) fn answers(&mut self) -> &mut Batch {
        &mut self.desk.answers
    }

    /// Whether packets wait, and it is time to look after them.
    #[inline]
    pub(crate) fn is_due(&self, now: Nanos) -> bool {
        self.waiting.next_deadline().is_some_and(|deadline| deadline <= now)
    }

    /// When packets that wait are to be looked after.
    pub fn next_deadline(&self) -> Option<Nanos> {
        self.waiting.next_deadline()
    }

    /// Drops all packets that wait, for a worker that ends.
    pub fn clear(&mut self, context: &mut Context<'_>) {
        self.waiting.clear(context);
    }

    /// Looks after packets that wait: asks again, gives up, and returns those that may go on, to be routed
    /// anew.
    #[cold]
    pub(crate) fn look_after(&mut self, routers: &Routers, context: &mut Context<'_>) -> &mut Vec<Packet> {
        while let Some(due) = self.waiting.due(context.now) {
            match due {
                Due::Ask(wanted) => self.ask(wanted, routers, context),
                Due::GiveUp(wanted) => self.give_up(wanted, routers, context),
            }
        }
        for (number, lane) in (0..).zip(&mut self.lanes) {
            let news = lane.notices.news();
            if core::mem::replace(&mut lane.news, news) != news {
                let is_meant = |wanted: &Wanted| wanted.router == RouterId(number);
                self.waiting.take(is_meant, &mut self.released, context);
            }
        }
        self.waiting.look_again(context.now);
        &mut self.released
    }

    /// Takes the room of released packets back.
    pub(crate) fn give_back(&mut self, released: Vec<Packet>) {
        self.released = released;
    }

    /// Forgets neighbours that nobody waits for any more.
    pub(crate) fn tidy(&mut self) {
        self.waiting.tidy();
    }

    /// Asks for a neighbour, or has the control thread ask.
    fn ask(&mut self, wanted: Wanted, routers: &Routers, context: &mut Context<'_>) {
        let Wanted { router, interface, address } = wanted;
        if let Some(lane) = self.lanes.get(usize::from(router.0)) {
            lane.notices.give(Notice::Wanted { interface, address });
        }
        if let Some(interface) = routers.interface(interface).filter(|to| to.owner == Owner::Polder) {
            self.desk.ask(interface, address, context);
        }
    }

    fn give_up(&mut self, wanted: Wanted, routers: &Routers, context: &mut Context<'_>) {
        let Wanted { router, interface, address } = wanted;
        let is_own = routers.interface(interface).is_some_and(|to| to.owner == Owner::Polder);
        if let Some(lane) = self.lanes.get(usize::from(router.0)).filter(|_| is_own) {
            lane.notices.give(Notice::Silent { interface, address });
        }
        let Self { waiting, released, desk, .. } = self;
        waiting.take(|other| *other == wanted, released, context);
        for mut packet in released.drain(..) {
            if let Some(arrival) = arrival(&packet, routers) {
                desk.tell(&packet, arrival, super::error::Problem::HostUnreachable, context);
            }
            context.discard(&mut packet, DropReason::NeighbourUnknown);
            context.pool.release_packet(packet);
        }
    }
}

/// Routes the packets of `batch` that came in by interfaces of `routers`.
///
/// Usually the batch stays as it is. When a packet has to wait or is cut into fragments, the whole batch
/// moves to the end of `routed`, in order, and the batch is empty. `routed` has capacity for
/// [`Routers::longest_expansion`] packets more.
pub fn route(
    batch: &mut Batch,
    routers: &Routers,
    state: &mut RouteState,
    routed: &mut Vec<Packet>,
    context: &mut Context<'_>,
) {
    const { assert!(BATCH <= 64, "one bit a packet") };
    let mut left = u64::MAX;
    while left != 0 {
        left = state.pass(batch, left, routers, context);
    }
    if state.moves.any {
        state.rebuild(batch, routers, routed, context);
    }
}

/// The port by which the last packet came.
#[derive(Clone, Copy)]
struct Arrival<'a> {
    port: PortId,
    has_interfaces: bool,
    untagged: Option<&'a Interface>,
}

impl RouteState {
    /// Routes those of `meant` that belong to one router; returns which are left.
    fn pass(&mut self, batch: &mut Batch, meant: u64, routers: &Routers, context: &mut Context<'_>) -> u64 {
        (self.work.v4.count, self.work.v6.count) = (0, 0);
        let (router, others) = self.sort(batch, meant, routers, context);
        let Some(lane) = router.and_then(|router| self.lanes.get_mut(usize::from(router.0))) else {
            return others;
        };
        self.work.v4.lookup(&mut lane.v4);
        self.work.v6.lookup(&mut lane.v6);
        // Behind the look-ups: a way that a route leads to was published before that route.
        lane.ways.refresh();
        let ways = lane.ways.get();
        let scene = Scene { routers, router: router.unwrap_or_default(), ways, hasher: &self.hasher };
        let Self { work, desk, moves, .. } = self;
        let mut acts = Acts { desk, moves, waiting: &self.waiting, notices: &lane.notices };
        send_v4(&work.v4, batch, &scene, &mut acts, context);
        if work.v6.count > 0 {
            send_v6(&work.v6, batch, &scene, &mut acts, context);
        }
        others
    }

    /// Looks at the headers of those of `meant` that belong to one router, the first one's; returns it, and
    /// which are left for another.
    #[inline(never)]
    fn sort(
        &mut self,
        batch: &mut Batch,
        meant: u64,
        routers: &Routers,
        context: &mut Context<'_>,
    ) -> (Option<RouterId>, u64) {
        let (mut router, mut others) = (None, 0);
        let mut arrival = Arrival { port: NO_PORT, has_interfaces: false, untagged: None };
        for (position, packet) in batch.iter_mut().enumerate() {
            if packet.ingress != arrival.port {
                let port = packet.ingress;
                arrival =
                    Arrival { port, has_interfaces: routers.has(port), untagged: routers.untagged(port) };
            }
            if !arrival.has_interfaces || meant >> position & 1 == 0 || is_dropped(packet) {
                continue;
            }
            if let Some(interface) = arrival.untagged
                && router == Some(interface.router)
                && self.work.put(position, packet, interface.mac)
            {
                continue;
            }
            let Some(interface) = self.look(position, packet, (routers, router), context) else { continue };
            if *router.get_or_insert(interface.router) == interface.router {
                self.look_closely(position, packet, interface, routers, context);
            } else {
                others |= 1 << position;
            }
        }
        (router, others)
    }

    /// The interface by which a packet came; drops what came by none.
    #[inline]
    fn look<'a>(
        &mut self,
        _position: usize,
        packet: &mut Packet,
        (routers, _router): (&'a Routers, Option<RouterId>),
        context: &Context<'_>,
    ) -> Option<&'a Interface> {
        match find(packet, routers) {
            Ok(interface) => Some(interface),
            Err(reason) => {
                context.discard(packet, reason);
                None
            }
        }
    }

    /// Looks at a packet that is not plain, or the first one of its router.
    fn look_closely(
        &mut self,
        position: usize,
        packet: &mut Packet,
        interface: &Interface,
        routers: &Routers,
        context: &mut Context<'_>,
    ) {
        let is_untagged = interface.id.vlan == VlanId::PRIORITY;
        if is_untagged && self.work.put(position, packet, interface.mac) {
            return;
        }
        let Some(lane) = self.lanes.get(usize::from(interface.router.0)) else { return };
        let Self { work, desk, waiting, .. } = self;
        let site = Site { interface, routers, waiting, notices: &lane.notices };
        if let Err(reason) = site.look(position, packet, work, desk, context) {
            context.discard(packet, reason);
        }
    }

    /// Moves the whole batch to the end of `routed`, in order, but for packets that wait.
    #[cold]
    fn rebuild(
        &mut self,
        batch: &mut Batch,
        routers: &Routers,
        routed: &mut Vec<Packet>,
        context: &mut Context<'_>,
    ) {
        self.moves.any = false;
        for (position, packet) in batch.drain().enumerate() {
            match self.moves.by_position.get_mut(position).and_then(Option::take) {
                None => routed.push(packet),
                Some(Move::Cut(mtu)) => {
                    let fragments = fragment::split(packet, mtu, routed, context);
                    self.desk.counters.fragmented.add(u64::from(fragments > 0));
                    self.desk.counters.fragments.add(fragments);
                }
                Some(Move::Wait(wanted)) => {
                    self.desk.counters.waited.add(1);
                    if self.waiting.hold(packet, wanted, context) {
                        self.ask(wanted, routers, context);
                    }
                }
            }
        }
    }
}

impl Work {
    /// Notes a packet whose header needs no second look; whether that is so.
    #[inline(always)]
    fn put(&mut self, position: usize, packet: &Packet, mac: MacAddress) -> bool {
        let bytes = packet.bytes();
        let Some(frame) = bytes.first_chunk::<PLAIN_V4>() else { return false };
        if frame[..6] != mac.0 {
            return false;
        }
        let room = packet.len() - ETHERNET;
        let kind = EtherType(u16::from_be_bytes([frame[12], frame[13]]));
        if kind == EtherType::IPV4 {
            let header = frame.last_chunk().expect("a frame ends with an IPv4 header");
            let is_plain = is_plain_v4(header, room);
            if is_plain {
                self.v4.put(position, [frame[30], frame[31], frame[32], frame[33]]);
            }
            return is_plain;
        }
        let Some(frame) = bytes.first_chunk::<PLAIN_V6>().filter(|_| kind == EtherType::IPV6) else {
            return false;
        };
        let header = frame.last_chunk().expect("a frame ends with an IPv6 header");
        let is_plain = is_plain_v6(header, room);
        if is_plain {
            self.v6.put(position, *header.last_chunk().expect("a header ends with the destination"));
        }
        is_plain
    }
}

/// The interface by which a packet came.
fn find<'a>(packet: &Packet, routers: &'a Routers) -> Result<&'a Interface, DropReason> {
    let link = Link::parse(packet.bytes()).map_err(refusal)?;
    let vlan = match (link.tag, link.inner_tag) {
        (None, _) => VlanId::PRIORITY,
        (Some(tag), None) => tag.id().ok_or(DropReason::NoInterface)?,
        (Some(_), Some(_)) => return Err(DropReason::NoInterface),
    };
    routers.interface(InterfaceId { port: packet.ingress, vlan }).ok_or(DropReason::NoInterface)
}

/// The same for a packet that was found before.
pub(super) fn arrival<'a>(packet: &Packet, routers: &'a Routers) -> Option<&'a Interface> {
    find(packet, routers).ok()
}

/// A closer look at a packet that came in by an interface.
struct Site<'a> {
    interface: &'a Interface,
    routers: &'a Routers,
    waiting: &'a Waiting,
    notices: &'a Notices,
}

impl Site<'_> {
    #[cold]
    fn look(
        &self,
        position: usize,
        packet: &mut Packet,
        work: &mut Work,
        desk: &mut Desk,
        context: &mut Context<'_>,
    ) -> Result<(), DropReason> {
        let wanted = u16::try_from(packet.len().min(LOOKED_AT)).unwrap_or(0);
        // What a short first frame does not hold is found missing below.
        let _ = packet.gather(wanted, context.pool);
        let link = Link::parse(packet.bytes()).map_err(refusal)?;
        let (offset, kind) = (link.header_bytes(), link.ether_type());
        let destination = link.ethernet.destination();
        if destination != self.interface.mac && !destination.is_multicast() {
            return Err(DropReason::OtherStation);
        }
        packet.network_offset = u16::try_from(offset).map_err(|_| DropReason::NotRouted)?;
        if destination.is_multicast() && self.interface.owner != Owner::Polder {
            return desk.to_kernel(packet, self.interface);
        }
        let length = packet.len() - offset;
        let bytes = packet.bytes().get(offset..).unwrap_or_default();
        match kind {
            EtherType::ARP => return self.hear(packet, desk, context),
            EtherType::IPV4 => match check_v4(bytes, length)? {
                Seen::To(_) if destination.is_multicast() => return Err(DropReason::GroupNotRouted),
                Seen::To(address) => work.v4.put(position, address.octets()),
                Seen::Group => return Err(DropReason::GroupNotRouted),
                Seen::OnLink(address) => return self.on_link(packet, address.into(), desk, context),
            },
            EtherType::IPV6 => match check_v6(bytes, length)? {
                Seen::To(_) if destination.is_multicast() => return Err(DropReason::GroupNotRouted),
                Seen::To(address) => work.v6.put(position, address.octets()),
                Seen::Group => {
                    trim(packet, context.pool);
                    return desk.discover(packet, self.interface, (self.waiting, self.notices), context);
                }
                Seen::OnLink(address) => return self.on_link(packet, address.into(), desk, context),
            },
            _ => return Err(DropReason::NotRouted),
        }
        packet.flags |= CLOSELY;
        Ok(())
    }

    /// To an address that is valid on the link alone.
    fn on_link(
        &self,
        packet: &mut Packet,
        address: std::net::IpAddr,
        desk: &mut Desk,
        context: &mut Context<'_>,
    ) -> Result<(), DropReason> {
        if !self.interface.has(address) {
            return Err(DropReason::LinkLocal);
        }
        trim(packet, context.pool);
        desk.to_host(packet, self.interface, self.routers, (self.waiting, self.notices), context)
    }

    fn hear(
        &self,
        packet: &mut Packet,
        desk: &mut Desk,
        context: &mut Context<'_>,
    ) -> Result<(), DropReason> {
        if self.interface.owner != Owner::Polder {
            return desk.to_kernel(packet, self.interface);
        }
        let bytes = packet.bytes().get(usize::from(packet.network_offset)..).unwrap_or_default();
        let arp = Arp::parse(bytes).map_err(refusal)?;
        desk.hear_arp(
            packet,
            &arp_word(&arp, self.interface)?,
            self.interface,
            (self.waiting, self.notices),
            context,
        )
    }
}

fn arp_word(arp: &Arp<'_>, interface: &Interface) -> Result<super::discover::Word, DropReason> {
    super::discover::read_arp(arp, interface).ok_or(DropReason::NoListener)
}

/// What a batch is sent by.
struct Scene<'a> {
    routers: &'a Routers,
    router: RouterId,
    ways: &'a Ways,
    hasher: &'a Hasher,
}

/// What acts on a verdict.
struct Acts<'a> {
    desk: &'a mut Desk,
    moves: &'a mut Moves,
    waiting: &'a Waiting,
    notices: &'a Notices,
}

/// The hop of a way that is a neighbour on an untagged interface whose address is known.
#[inline(always)]
fn plain_hop(ways: &Ways, found: WayId) -> Option<(&Hop, MacAddress)> {
    let Some(Way::Hop(hop)) = ways.get(found) else { return None };
    let mac = hop.neighbour.address().filter(|_| hop.interface.vlan == VlanId::PRIORITY)?;
    Some((hop, mac))
}

/// Sends IPv4 packets to their next hops.
#[inline(never)]
fn send_v4(
    lookups: &Lookups<4>,
    batch: &mut Batch,
    scene: &Scene<'_>,
    acts: &mut Acts<'_>,
    context: &mut Context<'_>,
) {
    let mut forwarded = 0;
    for (&position, &found) in lookups.positions.iter().zip(&lookups.found).take(lookups.count) {
        let Some(packet) = batch.get_mut(usize::from(position)) else { continue };
        let length = packet.len() - ETHERNET;
        if packet.flags & CLOSELY == 0
            && let Some((hop, mac)) = plain_hop(scene.ways, found)
            && let Some(frame) = packet.bytes_mut().first_chunk_mut::<PLAIN_V4>()
        {
            let total = u16::from_be_bytes([frame[16], frame[17]]);
            if frame[22] > 1 && total <= hop.mtu {
                rewrite_v4(frame, hop, mac);
                packet.egress = hop.interface.port;
                forwarded += 1;
                if usize::from(total) != length {
                    trim(packet, context.pool);
                }
                continue;
            }
        }
        settle(packet, usize::from(position), found, scene, acts, context);
    }
    acts.desk.counters.forwarded.add(forwarded);
}

/// Sends IPv6 packets to their next hops.
#[inline(never)]
fn send_v6(
    lookups: &Lookups<16>,
    batch: &mut Batch,
    scene: &Scene<'_>,
    acts: &mut Acts<'_>,
    context: &mut Context<'_>,
) {
    let mut forwarded = 0;
    for (&position, &found) in lookups.positions.iter().zip(&lookups.found).take(lookups.count) {
        let Some(packet) = batch.get_mut(usize::from(position)) else { continue };
        let length = packet.len() - ETHERNET;
        if packet.flags & CLOSELY == 0
            && let Some((hop, mac)) = plain_hop(scene.ways, found)
            && let Some(frame) = packet.bytes_mut().first_chunk_mut::<PLAIN_V6>()
        {
            let total = 40 + usize::from(u16::from_be_bytes([frame[18], frame[19]]));
            if frame[21] > 1 && total <= usize::from(hop.mtu) {
                rewrite_v6(frame, hop, mac);
                packet.egress = hop.interface.port;
                forwarded += 1;
                if total != length {
                    trim(packet, context.pool);
                }
                continue;
            }
        }
        settle(packet, usize::from(position), found, scene, acts, context);
    }
    acts.desk.counters.forwarded.add(forwarded);
}

/// Cuts off what the link has put behind the IP packet.
#[inline(never)]
fn trim(packet: &mut Packet, pool: &mut Pool) {
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
    packet.flags &= !CLOSELY;
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
        Verdict::Host => {
            let ears = (acts.waiting, acts.notices);
            acts.desk.to_host(packet, interface, scene.routers, ears, context)
        }
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

impl Moves {
    fn put(&mut self, position: usize, moved: Move) {
        self.any = true;
        self.by_position[position % BATCH] = Some(moved);
    }
}
