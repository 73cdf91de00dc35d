//! Packets and changes of tables through the routing stage, checked against the requirements of RFC 1812 and
//! RFC 8200: with any input, counters balance, and packets that leave are right.
//!
//! An input is steps of a kind, a length and so many bytes. Kinds: raw frames, frames whose headers are mended
//! so far that they pass the first checks, routes that come and go, ways that become others, neighbours that
//! are heard and forgotten, and time.

use super::naive_sum;
use polder_buffers::snapshot::Snapshot;
use polder_buffers::{Batch, Packet, Pool, PortId, Region, RegionOptions};
use polder_datapath::engine::{Engine, Tables, TurnContext};

use polder_datapath::route::{
    Interface, InterfaceId, Neighbours, NextHopEntry, NextHopGroup, NextHopId, Notice, OwnAddress, Owner,
    Prefix, Router, RouterId, Routers, SourceCheck,
};
use polder_datapath::transmit::Egress;
use polder_datapath::units::Nanos;
use polder_datapath::wire::{EtherType, Ipv4, Ipv6, Link, MacAddress, VlanId};
use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const PORTS: u16 = 4;
/// Port, VLAN, MTU and the last but one byte of the network of each interface.
const INTERFACES: [(u16, u16, u16, u8); 4] =
    [(0, 0, 1500, 0), (1, 0, 1280, 1), (2, 7, 1400, 2), (2, 0, 600, 3)];

fn mac(port: PortId) -> MacAddress {
    MacAddress([2, 0, 0, 0, 0, u8::try_from(port.0).expect("few ports")])
}

fn own(network: u8) -> [IpAddr; 2] {
    [
        Ipv4Addr::new(10, 0, network, 1).into(),
        Ipv6Addr::new(0x2001, 0xdb8, 0, network.into(), 0, 0, 0, 1).into(),
    ]
}

fn interfaces() -> Vec<Interface> {
    let interface = |&(port, vlan, mtu, network): &(u16, u16, u16, u8)| {
        let bits = |address: &IpAddr| if address.is_ipv4() { 24 } else { 64 };
        let all = own(network).map(|address| OwnAddress { address, bits: bits(&address) });
        Interface {
            id: InterfaceId::tagged(PortId(port), VlanId::new(vlan).expect("a VLAN")),
            router: RouterId(0),
            mac: mac(PortId(port)),
            mtu,
            addresses: all.to_vec(),
            owner: Owner::Polder,
            sources: SourceCheck::default(),
        }
    };
    INTERFACES.iter().map(interface).collect()
}

#[derive(Default)]
struct Wires {
    sent: Vec<(PortId, Vec<u8>)>,
    count: u64,
}

impl Egress for Wires {
    fn send(&mut self, port: PortId, batch: &mut Batch, pool: &mut Pool) -> bool {
        for packet in batch.drain() {
            self.count += 1;
            self.sent.push((port, packet.segments().flatten().copied().collect()));
            pool.release_packet(packet);
        }
        true
    }
}

struct Stand {
    region: Region,
    pool: Pool,
    engine: Engine,
    router: Router,
    neighbours: Neighbours,
    interfaces: Vec<Interface>,
    ways: Vec<NextHopId>,
    now: Nanos,
    wires: Wires,
    received: u64,
    /// Addresses and time to live of packets that have come.
    came: HashSet<(IpAddr, IpAddr, u8)>,
}

/// Hostile steps.
pub(crate) fn route(bytes: &[u8]) {
    let mut stand = Stand::new();
    let mut rest = bytes;
    for _ in 0..200 {
        let [kind, length, behind @ ..] = rest else { break };
        let (step, next) = behind.split_at(behind.len().min(usize::from(*length)));
        stand.step(*kind, step);
        rest = next;
    }
    for _ in 0..4 {
        stand.pass(Nanos::SECOND);
    }
    stand.check();
    assert_eq!(stand.engine.counters().ledger.waiting.get(), 0, "nobody waits for ever");
    if cfg!(debug_assertions) {
        assert_eq!(stand.region.out().len(), 0, "frames that nobody has");
    }
}

impl Stand {
    fn new() -> Self {
        let interfaces = interfaces();
        let mut router = Router::new();
        interfaces.iter().for_each(|interface| router.connect(interface));
        let tables = Tables {
            routers: Routers::new([router.access()], interfaces.clone()).expect("they fit together"),
            longest_frame: 65_557,
            ..Tables::default()
        };
        let region = Region::new(RegionOptions { slots: 512, slot_bytes: 2048 }).expect("memory for a test");
        let mut engine = Engine::new(Snapshot::new(tables).reader(), 0);
        engine.grow_to(PORTS.into());
        let mut stand = Self {
            pool: region.pool(),
            region,
            engine,
            router,
            neighbours: Neighbours::new(),
            interfaces,
            ways: Vec::new(),
            now: Nanos::from_seconds(10),
            wires: Wires::default(),
            received: 0,
            came: HashSet::new(),
        };
        for (index, &(.., name)) in INTERFACES.iter().enumerate() {
            for address in own(name).map(|own| neighbour_of(own, 9)) {
                let hop = stand.neighbours.hop(&stand.interfaces[index].clone(), address);
                stand.add(NextHopEntry::Hop(hop));
            }
        }
        [
            NextHopEntry::Blackhole,
            NextHopEntry::Unreachable,
            NextHopEntry::Prohibit,
            NextHopEntry::Local,
            NextHopEntry::Broadcast,
        ]
        .into_iter()
        .for_each(|way| stand.add(way));
        let members = stand.ways[..4].iter().map(|&way| (way, 1)).collect::<Vec<_>>();
        stand.add(NextHopEntry::Group(NextHopGroup::new(&members).expect("members")));
        stand
    }

    fn add(&mut self, way: NextHopEntry) {
        self.ways.push(self.router.add_next_hop(way).expect("few ways"));
    }

    fn step(&mut self, kind: u8, bytes: &[u8]) {
        let port = PortId(u16::from(kind >> 4) % 3);
        match (kind & 7, bytes) {
            (0, frame) => self.receive(port, frame.to_vec()),
            (1, content) => self.receive(port, mended_v4(content, port)),
            (2, content) => self.receive(port, mended_v6(content, port)),
            (3, [bits, way, address @ ..]) => self.change(*bits, *way, address),
            (4, [which, last, ..]) => self.meet(*which, *last),
            (5, [which, weights @ ..]) => self.regroup(*which, weights),
            (6, [time, ..]) => self.pass(Nanos::from_millis(u64::from(*time) * 10)),
            _ => {}
        }
        self.check();
    }

    /// A route comes, becomes another or goes.
    fn change(&mut self, bits: u8, way: u8, address: &[u8]) {
        let mut whole = [0; 16];
        whole.iter_mut().zip(address).for_each(|(to, from)| *to = *from);
        let address: IpAddr = if bits & 0x80 == 0 {
            Ipv4Addr::from([whole[0], whole[1], whole[2], whole[3]]).into()
        } else {
            Ipv6Addr::from(whole).into()
        };
        let all = if address.is_ipv4() { 33 } else { 129 };
        let Ok(prefix) = Prefix::new(address, (bits & 0x7f) % all) else { return };
        match self.ways.get(usize::from(way) % (self.ways.len() + 2)) {
            Some(&way) => self.router.insert(prefix, way),
            None => self.router.remove(prefix),
        };
    }

    /// A neighbour is heard, or forgotten.
    fn meet(&mut self, which: u8, last: u8) {
        let index = usize::from(which & 3);
        let interface = self.interfaces[index].clone();
        let own = own(INTERFACES[index].3)[usize::from(which >> 2 & 1)];
        let address = neighbour_of(own, last.max(2));
        if which & 8 == 0 {
            let mac = MacAddress([2, 0, 0, 1, which & 3, last]);
            self.neighbours.set(&mut self.router, &interface, address, mac, (self.now, true));
        } else {
            self.neighbours.forget(&mut self.router, interface.id, address);
        }
    }

    /// The last way, a group, gets other members.
    fn regroup(&mut self, which: u8, weights: &[u8]) {
        let Some(&last) = self.ways.last() else { return };
        let hops = if which & 1 == 0 { 0..4 } else { 0..8 };
        let members = self.ways[hops].iter().zip(weights).map(|(&way, &weight)| (way, u16::from(weight % 9)));
        if let Ok(group) = NextHopGroup::new(&members.collect::<Vec<_>>()) {
            self.router.replace_next_hop(last, NextHopEntry::Group(group));
            self.router.publish();
        }
    }

    fn receive(&mut self, port: PortId, frame: Vec<u8>) {
        if frame.is_empty() {
            return;
        }
        self.came.extend(ends_of(&frame));
        let mut packet = Packet::copy_from(&frame, &mut self.pool).expect("enough slots");
        packet.ingress = port;
        let mut batch = Batch::new();
        batch.push(packet).expect("an empty batch");
        self.received += 1;
        self.engine.begin_turn();
        let with = TurnContext { now: self.now, pool: &mut self.pool, timed: false };
        self.engine.process(&mut batch, port, with, &mut self.wires, &mut || Nanos(0));
    }

    fn pass(&mut self, time: Nanos) {
        self.now = self.now + time;
        for notice in self.router.notices().take() {
            let (Notice::Wanted { interface, .. }
            | Notice::Heard { interface, .. }
            | Notice::Silent { interface, .. }) = notice;
            let found = self.interfaces.iter().find(|known| known.id == interface).cloned();
            let found = found.expect("notices are about interfaces");
            self.neighbours.handle(&mut self.router, &found, notice, self.now);
        }
        let with = TurnContext { now: self.now, pool: &mut self.pool, timed: false };
        self.engine.look_after(with, &mut self.wires);
    }

    /// Checks that counters balance, and that packets that have left are right.
    fn check(&mut self) {
        let counters = self.engine.counters();
        let ledger = &counters.ledger;
        let waiting = ledger.waiting.get();
        let came = self.received + ledger.generated.get() + ledger.split.get();
        let gone = self.wires.count + ledger.delivered.get() + counters.drops.total() + waiting;
        assert_eq!(came, gone, "{ledger:?}");
        for (port, frame) in core::mem::take(&mut self.wires.sent) {
            self.judge(port, &frame);
        }
    }

    fn judge(&self, port: PortId, frame: &[u8]) {
        let link = Link::parse(frame).expect("a link header");
        assert_eq!(link.ethernet.source(), mac(port), "from the router");
        let vlan = link.tag.map_or(0, |tag| tag.id().map_or(0, |id| id.get()));
        let of_port = INTERFACES.iter().find(|&&(of, its, ..)| (of, its) == (port.0, vlan));
        let &(_, _, mtu, _) = of_port.expect("by an interface");
        match link.ether_type() {
            EtherType::IPV4 => {
                let ip = Ipv4::parse(link.payload()).expect("a right header");
                assert_eq!(naive_sum(&link.payload()[..ip.header_bytes()]), 0xffff, "the header's checksum");
                assert!(ip.total_length() <= mtu, "{} of {mtu}", ip.total_length());
                self.came_or_own((ip.source().into(), ip.destination().into(), ip.time_to_live()));
            }
            EtherType::IPV6 => {
                let ip = Ipv6::parse(link.payload()).expect("a right header");
                assert!(40 + ip.payload_length() <= mtu, "{} of {mtu}", ip.payload_length());
                self.came_or_own((ip.source().into(), ip.destination().into(), ip.hop_limit()));
            }
            other => assert_eq!(other, EtherType::ARP, "it leaves a router"),
        }
    }

    /// Checks that a packet that leaves has come with one hop more to go, or is the router's own message.
    fn came_or_own(&self, (source, destination, hops): (IpAddr, IpAddr, u8)) {
        let is_own = INTERFACES.iter().any(|&(.., network)| own(network).contains(&source));
        let came =
            hops.checked_add(1).is_some_and(|before| self.came.contains(&(source, destination, before)));
        assert!(came || is_own, "{source} to {destination} with {hops} hops left never came");
        assert!(hops > 0, "{source} to {destination} has no hops left");
    }
}

/// A station in the network of one of ours.
fn neighbour_of(own: IpAddr, last: u8) -> IpAddr {
    match own {
        IpAddr::V4(own) => Ipv4Addr::from_bits(own.to_bits() & !0xff | u32::from(last)).into(),
        IpAddr::V6(own) => Ipv6Addr::from_bits(own.to_bits() & !0xff | u128::from(last)).into(),
    }
}

fn ends_of(frame: &[u8]) -> Option<(IpAddr, IpAddr, u8)> {
    let link = Link::parse(frame).ok()?;
    let length = link.payload().len();
    match link.ether_type() {
        EtherType::IPV4 => {
            let ip = Ipv4::parse_head(link.payload(), length).ok()?;
            Some((ip.source().into(), ip.destination().into(), ip.time_to_live()))
        }
        EtherType::IPV6 => {
            let ip = Ipv6::parse_head(link.payload(), length).ok()?;
            Some((ip.source().into(), ip.destination().into(), ip.hop_limit()))
        }
        _ => None,
    }
}

/// A frame for the router with these bytes as an IPv4 packet: length and checksum as they should be. The first
/// byte says how often the payload is repeated, so that short inputs make long packets.
fn mended_v4(content: &[u8], port: PortId) -> Vec<u8> {
    let [times, content @ ..] = content else { return Vec::new() };
    let mut ip = content.to_vec();
    ip.resize(ip.len().max(20), 0x11);
    let words = 5 + usize::from(ip[0] & 1).min((ip.len() - 20) / 4);
    ip[0] = 0x40 | u8::try_from(words).expect("few");
    lengthen(&mut ip, words * 4, *times);
    let length = u16::try_from(ip.len()).expect("short");
    ip[2..4].copy_from_slice(&length.to_be_bytes());
    ip[10..12].fill(0);
    let checksum = !naive_sum(&ip[..words * 4]);
    ip[10..12].copy_from_slice(&checksum.to_be_bytes());
    framed(port, EtherType::IPV4, &ip)
}

fn mended_v6(content: &[u8], port: PortId) -> Vec<u8> {
    let [times, content @ ..] = content else { return Vec::new() };
    let mut ip = content.to_vec();
    ip.resize(ip.len().max(40), 0x20);
    ip[0] = 0x60 | ip[0] & 0x0f;
    lengthen(&mut ip, 40, *times);
    let length = u16::try_from(ip.len() - 40).expect("short");
    ip[4..6].copy_from_slice(&length.to_be_bytes());
    framed(port, EtherType::IPV6, &ip)
}

fn lengthen(ip: &mut Vec<u8>, header: usize, times: u8) {
    let payload = ip[header..].to_vec();
    for _ in 0..times {
        if ip.len() + payload.len() > 9000 {
            break;
        }
        ip.extend_from_slice(&payload);
    }
}

/// An odd number of bytes is in a VLAN.
fn framed(port: PortId, ether_type: EtherType, ip: &[u8]) -> Vec<u8> {
    let tag: &[u8] = if port.0 == 2 && ip.len() % 2 == 1 { &[0x81, 0, 0, 7] } else { &[] };
    [&mac(port).0[..], &[2, 0, 0, 9, 9, 9], tag, &ether_type.0.to_be_bytes(), ip].concat()
}
