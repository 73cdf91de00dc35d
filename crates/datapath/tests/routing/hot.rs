//! Published decisions: a packet that a port's program would carry leaves as the stage itself would have sent it.
//!
//! Random histories pass packet by packet through the stage, whose ports all have fast paths. Before each packet the test
//! asks what a program would do with it, as `devices/src/bpf/flows/route.rs` has it.

use crate::frames::{Frame, sum};
use crate::stand::{A, B, KERNEL, Stand, TRUNK, ip, mac, prefix, station};
use polder_buffers::PortId;
use polder_datapath::engine::Tables;
use polder_datapath::fast_path::{
    AddressPair, FastPath, FastPathPort, FastPaths, FlowKey, Forwarding, TagChange, Validity,
};
use polder_datapath::route::{
    InterfaceId, NextHopEntry, NextHopGroup, NextHopId, OwnAddress, PairDecisions, PairTables, ReversePath,
    Special,
};
use polder_datapath::units::Nanos;
use polder_datapath::wire::{MacAddress, VlanId};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

const PORTS: [PortId; 4] = [A, B, TRUNK, KERNEL];
/// Neighbours: their ports, VLANs and addresses. The first ones are gateways.
const NEIGHBOURS: [(PortId, u16, &str); 10] = [
    (B, 0, "10.0.1.9"),
    (TRUNK, 7, "10.0.12.9"),
    (TRUNK, 0, "10.0.2.9"),
    (B, 8, "10.0.18.9"),
    (B, 0, "2001:db8:1::9"),
    (TRUNK, 7, "2001:db8:12::9"),
    (TRUNK, 0, "2001:db8:2::9"),
    (B, 8, "2001:db8:18::9"),
    (A, 0, "10.0.0.9"),
    (KERNEL, 0, "10.0.3.9"),
];
/// Gateways of each family.
const GATEWAYS: usize = 4;
const PREFIXES: [&str; 8] = [
    "0.0.0.0/0",
    "20.0.0.0/8",
    "20.0.1.0/24",
    "20.0.1.7/32",
    "::/0",
    "3000::/16",
    "3000:1::/32",
    "10.0.0.0/24",
];
const V4: [&str; 12] = [
    "10.0.0.5",
    "20.0.0.1",
    "20.0.1.7",
    "10.0.1.9",
    "10.0.2.9",
    "10.0.12.9",
    "10.0.0.1",
    "10.0.1.255",
    "127.0.0.1",
    "224.0.0.5",
    "0.1.2.3",
    "10.0.3.9",
];
const V6: [&str; 8] = [
    "2001:db8::5",
    "3000::1",
    "3000:1::1",
    "2001:db8:1::9",
    "2001:db8:2::9",
    "2001:db8::1",
    "fe80::5",
    "ff02::5",
];

/// Knowledge of a port's program.
#[derive(Debug, Default)]
struct Table {
    moves: AtomicU64,
    entries: Mutex<HashMap<AddressPair, (Forwarding, Validity)>>,
}

impl FastPath for Table {
    fn moves(&self) -> u64 {
        self.moves.load(Ordering::Relaxed)
    }

    fn count_move(&self) {
        self.moves.fetch_add(1, Ordering::Relaxed);
    }

    fn publish(&self, flow: &FlowKey, forwarding: &Forwarding, validity: Validity) {
        let FlowKey::Addresses(pair) = flow else { unreachable!("there is no bridge") };
        self.entries.lock().expect("one thread").insert(*pair, (*forwarding, validity));
    }
}

/// A router whose ports have fast paths.
struct Hot {
    stand: Stand,
    tables: [Arc<Table>; 4],
    latest: Arc<Tables>,
    version: u64,
    changes: u64,
    /// Blackhole, unreachable, then gateways, then all of a family by flow.
    ways: Vec<NextHopId>,
}

impl Hot {
    fn new() -> Self {
        let mut stand = Stand::new();
        let mut vlan = stand.interface(B, 0);
        vlan.id = InterfaceId::tagged(B, VlanId::new(8).expect("a VLAN"));
        vlan.addresses = ["10.0.18.1", "2001:db8:18::1"]
            .map(|own| OwnAddress { address: ip(own), bits: if own.contains(':') { 64 } else { 24 } })
            .to_vec();
        stand.router.connect(&vlan);
        stand.interfaces.push(vlan);
        let mut ways =
            [NextHopEntry::Blackhole, NextHopEntry::Unreachable].map(|way| stand.way(way)).to_vec();
        ways.extend(
            NEIGHBOURS[..2 * GATEWAYS].iter().map(|&(port, vlan, gateway)| stand.by(port, vlan, gateway)),
        );
        for family in [2..2 + GATEWAYS, 2 + GATEWAYS..2 + 2 * GATEWAYS] {
            let members = ways[family].iter().map(|&way| (way, 1)).collect::<Vec<_>>();
            let group = NextHopGroup::new(&members).expect("members");
            ways.push(stand.way(NextHopEntry::Group(group)));
        }
        let latest = stand.renew_with([], FastPaths::default());
        let mut hot = Self { stand, tables: Default::default(), latest, version: 0, changes: 0, ways };
        hot.renew();
        hot
    }

    /// Other tables are in use.
    fn renew(&mut self) {
        self.version += 1;
        let port = |(number, table): (u32, &Arc<Table>)| {
            let table: Arc<Table> = Arc::clone(table);
            Some(FastPathPort { table, interface: 100 + number, longest: 1514 })
        };
        let fast_paths = FastPaths::new(self.version, (0..).zip(&self.tables).map(port).collect());
        let broadcast = ([10, 0, 0, 255].into(), Special::Broadcast);
        self.latest = self.stand.renew_with([broadcast], fast_paths);
    }

    /// Work of the gateway's control thread: changes of routes end all entries. Those that stay are what is decided now.
    fn attend(&mut self) {
        self.stand.router.publish();
        let changes = self.stand.router.changes();
        if std::mem::replace(&mut self.changes, changes) != changes {
            self.tables.iter().for_each(|table| table.count_move());
        }
        let Tables { routers, tunnels, fast_paths, .. } = &*self.latest;
        let mut now = PairDecisions::new(PairTables { routers, tunnels, fast_paths });
        for (port, table) in PORTS.into_iter().zip(&self.tables) {
            let valid = Validity { version: self.version, moves: table.moves() };
            for (pair, (forwarding, validity)) in table.entries.lock().expect("one thread").iter() {
                assert!(*validity != valid || now.decide(port, pair) == Some(*forwarding), "{pair:?}");
            }
        }
    }

    /// Way of a frame by the program of its port; `None` when it goes to the stage.
    fn carried(&self, port: PortId, frame: &[u8]) -> Option<(PortId, Vec<u8>)> {
        let table = &self.tables[usize::from(port.0)];
        let (pair, ip) = read(frame)?;
        let entries = table.entries.lock().expect("one thread");
        let (forwarding, validity) = entries.get(&pair)?;
        let is_valid = *validity == (Validity { version: self.version, moves: table.moves() });
        if !is_valid || 14 + ip.len() > forwarding.longest as usize {
            return None;
        }
        assert_eq!((forwarding.from, forwarding.interface), (port, 100 + u32::from(forwarding.port.0)));
        let link = forwarding.link.expect("packets of a router");
        let tag = match (forwarding.tag, pair.tag) {
            (TagChange::Keep, None) | (TagChange::Pop, Some(_)) => Vec::new(),
            (TagChange::Push(vlan), None) | (TagChange::Replace(vlan), Some(_)) => {
                [[0x81, 0], vlan.to_be_bytes()].concat()
            }
            other => unreachable!("{other:?}"),
        };
        let ip = counted_down(ip)?;
        let ether_type = if ip[0] >> 4 == 4 { [8, 0] } else { [0x86, 0xdd] };
        let bytes = [&link.destination.0[..], &link.source.0, &tag, &ether_type, &ip].concat();
        Some((forwarding.port, bytes))
    }

    /// Passes a frame; says whether a program would have carried it.
    fn pass(&mut self, port: PortId, frame: &[u8]) -> bool {
        let carried = self.carried(port, frame);
        self.stand.receive(port, &[frame.to_vec()]);
        let sent = (0..5)
            .map(PortId)
            .flat_map(|port| self.stand.take(port).into_iter().map(move |sent| (port, sent)));
        let sent = sent.collect::<Vec<_>>();
        if let Some(carried) = &carried {
            assert_eq!(&sent, std::slice::from_ref(carried), "{frame:02x?}");
        }
        carried.is_some()
    }
}

/// The pair of addresses of a frame, and its IP packet; `None` for one that programs leave alone.
fn read(frame: &[u8]) -> Option<(AddressPair, &[u8])> {
    let word = |at: usize| frame.get(at..at + 2).map(|word| u16::from_be_bytes([word[0], word[1]]));
    let (tag, at) = if word(12)? == 0x8100 { (Some(word(14)? & 0xfff), 16) } else { (None, 12) };
    let ip = frame.get(at + 2..)?;
    let (source, destination): (IpAddr, IpAddr) = match word(at)? {
        0x0800 => (
            ip.get(12..)?.first_chunk::<4>().copied()?.into(),
            ip.get(16..)?.first_chunk::<4>().copied()?.into(),
        ),
        0x86dd => (
            ip.get(8..)?.first_chunk::<16>().copied()?.into(),
            ip.get(24..)?.first_chunk::<16>().copied()?.into(),
        ),
        _ => return None,
    };
    let station = MacAddress(*frame.first_chunk()?);
    (tag != Some(0)).then_some((AddressPair { source, destination, tag, station }, ip))
}

/// A packet with one hop less to go; `None` for one that programs leave to the stage.
fn counted_down(ip: &[u8]) -> Option<Vec<u8>> {
    let (mut ip, length) = (ip.to_vec(), |at: usize| usize::from(u16::from_be_bytes([ip[at], ip[at + 1]])));
    if ip[0] >> 4 == 6 {
        let is_plain = ip[6] != 0 && ip[7] > 1 && 40 + length(4) == ip.len();
        ip[7] = ip[7].saturating_sub(1);
        return is_plain.then_some(ip);
    }
    let is_plain = ip[0] == 0x45 && ip[8] > 1 && length(2) == ip.len() && sum(&ip[..20]) == 0xffff;
    ip[8] = ip[8].saturating_sub(1);
    ip[10..12].fill(0);
    let checksum = !sum(&ip[..20]);
    ip[10..12].copy_from_slice(&checksum.to_be_bytes());
    is_plain.then_some(ip)
}

#[derive(Clone, Debug)]
enum Action {
    /// A port, and a frame.
    Pass(PortId, Vec<u8>),
    /// A prefix, and where it leads, if anywhere.
    Route(usize, Option<usize>),
    /// A neighbour, and the end of its address, if that is known.
    Neighbour(usize, Option<u8>),
    /// An interface's MTU and its check of sources: kind of `rp_filter`, `accept_local`, `send_redirects`.
    Interface(usize, u16, usize, (bool, bool)),
    Wait(u64),
}

fn packet() -> impl Strategy<Value = Action> {
    let ends = prop_oneof![
        3 => (0..V4.len(), 0..V4.len()).prop_map(|(source, destination)| (V4[source], V4[destination])),
        2 => (0..V6.len(), 0..V6.len()).prop_map(|(source, destination)| (V6[source], V6[destination])),
    ];
    let hops = prop_oneof![1 => 0_u8..3, 4 => Just(64)];
    let length = prop_oneof![3 => Just(26_usize), 1 => 530_usize..580, 1 => 1340_usize..1480];
    let vlan = prop_oneof![4 => Just(None), 3 => Just(Some(7)), 1 => Just(Some(0)), 1 => Just(Some(8))];
    (0..4_u16, ends, hops, length, vlan, (any::<bool>(), 0..16_u8)).prop_map(
        |(port, (source, destination), hops, length, vlan, (dont_fragment, oddity))| {
            let port = PortId(port);
            // Mostly a tag that the port has an interface for.
            let vlan = vlan.filter(|_| port == TRUNK || oddity == 5);
            let station = if oddity == 6 { station(port, 9) } else { mac(port) };
            let mut frame = Frame::new(station, crate::stand::station(port, 5), source, destination);
            frame.hops = hops;
            frame.payload = vec![0x5a; length];
            frame.vlan = vlan;
            frame.dont_fragment = dont_fragment;
            frame.padding = if oddity == 7 { 3 } else { 0 };
            if oddity == 8 && frame.source.is_ipv4() {
                frame.options = vec![1, 1, 1, 0];
            }
            let mut bytes = frame.bytes();
            let ip = if vlan.is_some() { 18 } else { 14 };
            match oddity {
                9 => bytes[ip] ^= 0x10,
                10 => bytes[ip + 10] ^= 1,
                11 => bytes[ip + 5] ^= 1,
                12 => bytes[ip + 3] ^= 2,
                13 => bytes[ip + 6] ^= 17,
                _ => {}
            }
            Action::Pass(port, bytes)
        },
    )
}

fn action() -> impl Strategy<Value = Action> {
    let check = (0..4_usize, any::<bool>(), any::<bool>());
    prop_oneof![
        12 => packet(),
        2 => (0..PREFIXES.len(), prop::option::weighted(0.8, 0..12_usize)).prop_map(|(to, way)| Action::Route(to, way)),
        2 => (0..NEIGHBOURS.len(), prop::option::weighted(0.7, 1..4_u8)).prop_map(|(who, end)| Action::Neighbour(who, end)),
        1 => (0..6_usize, prop::sample::select(vec![576_u16, 600, 1400, 1500]), check)
            .prop_map(|(which, mtu, (kind, local, redirects))| Action::Interface(which, mtu, kind, (local, redirects))),
        1 => (0..400_u64).prop_map(Action::Wait),
    ]
}

fn act(hot: &mut Hot, action: &Action) -> usize {
    let mut carried = 0;
    match *action {
        // The first packet is remembered, the second is published, the third carried.
        Action::Pass(port, ref frame) => carried = (0..3).filter(|_| hot.pass(port, frame)).count(),
        Action::Route(to, way) => {
            let to = prefix(PREFIXES[to]);
            let way = way.filter(|way| to.is_v6() == [6, 7, 8, 9, 11].contains(way) || *way < 2);
            match way {
                Some(way) => hot.stand.router.insert(to, hot.ways[way]),
                None => hot.stand.router.remove(to),
            };
        }
        Action::Neighbour(who, Some(end)) => {
            let (port, vlan, address) = NEIGHBOURS[who];
            hot.stand.know(port, vlan, address, station(port, end));
        }
        Action::Neighbour(who, None) => {
            let (port, vlan, address) = NEIGHBOURS[who];
            let interface = hot.stand.interface(port, vlan).id;
            hot.stand.neighbours.forget(&mut hot.stand.router, interface, ip(address));
        }
        Action::Interface(which, mtu, kind, (accept_local, redirects)) => {
            let interface = &mut hot.stand.interfaces[which];
            interface.mtu = mtu;
            let sources = &mut interface.sources;
            (sources.accept_local, sources.redirects, sources.always) = (accept_local, redirects, kind == 3);
            sources.reverse_path = match kind {
                1 => ReversePath::Strict,
                2 => ReversePath::Loose,
                _ => ReversePath::Off,
            };
            hot.renew();
        }
        Action::Wait(millis) => {
            hot.stand.pass(Nanos::from_millis(millis));
            PORTS.into_iter().for_each(|port| drop(hot.stand.take(port)));
        }
    }
    hot.attend();
    carried
}

#[test]
fn what_programs_carry_leaves_as_the_stage_sends_it() {
    let carried = AtomicUsize::new(0);
    let mut runner = TestRunner::new(Config { cases: 24, failure_persistence: None, ..Config::default() });
    let history = prop::collection::vec(action(), 1_000..5_000);
    runner
        .run(&history, |actions| {
            let mut hot = Hot::new();
            for end in 0..NEIGHBOURS.len() {
                act(&mut hot, &Action::Neighbour(end, Some(1)));
            }
            for (to, way) in [(0, 2), (1, 3), (2, 5), (4, 6), (5, 7), (6, 9)] {
                act(&mut hot, &Action::Route(to, Some(way)));
            }
            for action in &actions {
                carried.fetch_add(act(&mut hot, action), Ordering::Relaxed);
            }
            Ok(())
        })
        .expect("every packet leaves the same way");
    let carried = carried.load(Ordering::Relaxed);
    assert!(carried > 1_000, "only {carried} packets were carried: the test sees nothing");
}
