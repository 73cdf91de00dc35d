//! Random traffic over a perfect wire: everything arrives, unchanged and in order.

use crate::gateway::{ACCESS, End, Gateway, Line, Modes, SECOND, UNDERLAY};
use polder_buffers::PortId;
use polder_datapath::forward::VlanMode;
use polder_datapath::units::Nanos;
use polder_datapath::wire::{Checksum, VlanId};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use std::collections::BTreeMap;

/// Place of a station: gateway, port, and the VLAN in which it talks, 0 for none.
#[derive(Clone, Copy, Debug)]
struct Station(usize, PortId, u16);

/// Both gateways treat tags as payload.
const PLAIN: &[Station] = &[
    Station(0, ACCESS, 0),
    Station(0, ACCESS, 0),
    Station(0, SECOND, 0),
    Station(1, ACCESS, 0),
    Station(1, SECOND, 0),
];
/// The near access port is a trunk, as is the tunnel; all other ports are access ports.
const TAGGED: &[Station] = &[
    Station(0, ACCESS, 10),
    Station(0, ACCESS, 20),
    Station(0, SECOND, 10),
    Station(1, ACCESS, 10),
    Station(1, SECOND, 20),
];

#[derive(Clone, Copy, Debug)]
pub(crate) enum Body {
    /// Of an unknown protocol.
    Other,
    /// IPv4: protocol, service, whether it must not be fragmented.
    Ipv4(u8, u8, bool),
    Ipv6(u8),
}

#[derive(Clone, Debug)]
struct Frame {
    stations: (Index, Index),
    body: Body,
    length: Index,
    priority: u16,
}

#[derive(Clone, Debug)]
struct Scene {
    line: Line,
    is_tagged: bool,
    /// Each burst comes in at once, run by run of one port.
    bursts: Vec<Vec<Frame>>,
}

pub(crate) fn body() -> impl Strategy<Value = Body> {
    let protocol = || select(vec![1_u8, 6, 17, 50]);
    prop_oneof![
        Just(Body::Other),
        (protocol(), any::<u8>(), any::<bool>()).prop_map(|(a, b, c)| Body::Ipv4(a, b, c)),
        any::<u8>().prop_map(Body::Ipv6),
    ]
}

pub(crate) fn line() -> impl Strategy<Value = Line> {
    let sizes =
        select(vec![(600, 1504), (1500, 1504), (1600, 1504), (9000, 1504), (9000, 8000), (1500, 8000)]);
    let vlan = option::of(Just(VlanId::DEFAULT));
    (sizes, vlan, option::of(any::<u32>()), any::<[bool; 3]>()).prop_map(|(sizes, vlan, key, flags)| {
        let [checksum, sequence, dont_fragment] = flags;
        let (mtu, inner_mtu) = sizes;
        let dont_fragment = dont_fragment && mtu > inner_mtu + 60;
        Line { mtu, inner_mtu, vlan, key, checksum, sequence, dont_fragment, ..Line::default() }
    })
}

fn scene() -> impl Strategy<Value = Scene> {
    let frame = (any::<(Index, Index)>(), body(), any::<Index>(), 0..8_u16)
        .prop_map(|(stations, body, length, priority)| Frame { stations, body, length, priority });
    let bursts = vec(vec(frame, 1..40), 1..6);
    (line(), any::<bool>(), bursts).prop_map(|(line, is_tagged, bursts)| Scene { line, is_tagged, bursts })
}

fn station(number: usize) -> [u8; 6] {
    [2, 0, 0, 0, 0, u8::try_from(number + 1).expect("few stations")]
}

/// Bytes of a frame behind addresses and tag: `length` bytes and two for the type.
pub(crate) fn packet(body: Body, length: usize, serial: u32) -> Vec<u8> {
    let (kind, mut bytes) = match body {
        Body::Other => (0x88b5_u16, Vec::new()),
        Body::Ipv4(protocol, service, bound) => {
            let length = length.max(40);
            let [high, low] = u16::try_from(length).expect("below 64 KiB").to_be_bytes();
            let flags = if bound { 0x40 } else { 0 };
            let mut header =
                vec![0x45, service, high, low, 0, 1, flags, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
            let mut sum = Checksum::new();
            sum.add(&header);
            header[10..12].copy_from_slice(&sum.finish().to_be_bytes());
            (0x0800, header)
        }
        Body::Ipv6(class) => {
            let [high, low] = u16::try_from(length.max(64) - 40).expect("below 64 KiB").to_be_bytes();
            let mut header = vec![0x60 | class >> 4, class << 4, 0, 0, high, low, 59, 64];
            header.extend([0xfd; 32]);
            (0x86dd, header)
        }
    };
    let least = if matches!(body, Body::Ipv6(_)) { 64 } else { 40 };
    let mut counter = serial.to_be_bytes().into_iter().cycle();
    while bytes.len() < length.max(least) {
        bytes.extend(counter.next());
    }
    [kind.to_be_bytes().to_vec(), bytes].concat()
}

/// A frame on the port of one of its stations.
fn wire(places: &[Station], at: usize, (to, from): (usize, usize), priority: u16, packet: &[u8]) -> Vec<u8> {
    let Station(gateway, port, vlan) = places[at];
    let mut bytes = [station(to), station(from)].concat();
    if vlan != 0 && (gateway, port) == (0, ACCESS) {
        bytes.extend([0x81, 0]);
        bytes.extend((priority << 13 | vlan).to_be_bytes());
    }
    bytes.extend(packet);
    bytes
}

fn gateways(scene: &Scene) -> [Gateway; 2] {
    let vlan = |number| VlanId::configured(number).expect("1 to 4094");
    let trunk = VlanMode::Trunk { allowed: [vlan(10), vlan(20)].into_iter().collect(), native: None };
    let access = |number| VlanMode::Access(vlan(number));
    let [near, far] = match scene.is_tagged {
        false => [Modes::transparent(), Modes::transparent()],
        true => [
            Modes { access: trunk.clone(), second: access(10), tunnel: trunk.clone() },
            Modes { access: access(10), second: access(20), tunnel: trunk },
        ],
    };
    [Gateway::new(End::Near, &scene.line, &near), Gateway::new(End::Far, &scene.line, &far)]
}

/// Carries packets on the wire between the gateways, until there are none.
fn carry(gateways: &mut [Gateway; 2]) {
    loop {
        let [near, far] = &mut *gateways;
        let (there, back) = (near.take(UNDERLAY), far.take(UNDERLAY));
        if there.is_empty() && back.is_empty() {
            return;
        }
        far.receive(UNDERLAY, there.iter().map(|sent| &sent.bytes[..]));
        near.receive(UNDERLAY, back.iter().map(|sent| &sent.bytes[..]));
    }
}

type Delivered = BTreeMap<(usize, u16), Vec<Vec<u8>>>;

fn collect(gateways: &mut [Gateway; 2]) -> Delivered {
    let mut delivered = Delivered::new();
    for (number, gateway) in gateways.iter_mut().enumerate() {
        for port in [ACCESS, SECOND] {
            let frames: Vec<_> = gateway.take(port).into_iter().map(|sent| sent.bytes).collect();
            if !frames.is_empty() {
                delivered.insert((number, port.0), frames);
            }
        }
    }
    delivered
}

/// Every station is heard everywhere.
fn introduce(places: &[Station], gateways: &mut [Gateway; 2]) {
    for (number, Station(gateway, port, _)) in places.iter().enumerate() {
        let mut hello = wire(places, number, (0, number), 0, &packet(Body::Other, 46, 0));
        hello[..6].fill(0xff);
        gateways[*gateway].receive(*port, [&hello[..]]);
        carry(gateways);
    }
    collect(gateways);
}

/// One burst; returns what was delivered and what should have been.
fn burst(
    scene: &Scene,
    burst: &[Frame],
    gateways: &mut [Gateway; 2],
    serial: &mut u32,
) -> (Delivered, Delivered) {
    let places = if scene.is_tagged { TAGGED } else { PLAIN };
    let mut expected = Delivered::new();
    let mut arrivals: BTreeMap<(usize, u16), Vec<Vec<u8>>> = BTreeMap::new();
    for frame in burst {
        let from = frame.stations.0.index(places.len());
        let reachable: Vec<_> = (0..places.len())
            .filter(|&to| (places[to].0, places[to].1) != (places[from].0, places[from].1))
            .filter(|&to| places[to].2 == places[from].2)
            .collect();
        let to = reachable[frame.stations.1.index(reachable.len())];
        *serial += 1;
        let length = frame.length.index(usize::from(scene.line.inner_mtu) - 3);
        let packet = packet(frame.body, length, *serial);
        let Station(gateway, port, _) = places[from];
        let sent = wire(places, from, (to, from), frame.priority, &packet);
        arrivals.entry((gateway, port.0)).or_default().push(sent);
        // A tag that was taken off comes back without priority.
        let kept = places[from].2 != 0 && (gateway, port) == (0, ACCESS);
        let priority = if kept { frame.priority } else { 0 };
        let Station(gateway, port, _) = places[to];
        let received = wire(places, to, (to, from), priority, &packet);
        expected.entry((gateway, port.0)).or_default().push(received);
    }
    for ((gateway, port), frames) in &arrivals {
        gateways[*gateway].receive(PortId(*port), frames.iter().map(Vec::as_slice));
        carry(gateways);
    }
    (collect(gateways), expected)
}

/// A frame that failures show in one line.
#[derive(PartialEq, Eq)]
struct Shown<'a>(&'a [u8]);

impl std::fmt::Debug for Shown<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{} bytes", self.0.len())?;
        self.0.iter().skip(12).take(48).try_for_each(|byte| write!(formatter, " {byte:02x}"))
    }
}

/// Frames of each pair of stations, in order.
fn by_flow(delivered: &Delivered) -> BTreeMap<(usize, u16, Vec<u8>), Vec<Shown<'_>>> {
    let mut flows = BTreeMap::<_, Vec<Shown<'_>>>::new();
    for ((gateway, port), frames) in delivered {
        for frame in frames {
            flows.entry((*gateway, *port, frame[..12].to_vec())).or_default().push(Shown(frame));
        }
    }
    flows
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn everything_arrives_unchanged_and_in_order(scene in scene()) {
        let mut gateways = gateways(&scene);
        introduce(if scene.is_tagged { TAGGED } else { PLAIN }, &mut gateways);
        let mut serial = 0;
        for frames in &scene.bursts {
            let (delivered, expected) = burst(&scene, frames, &mut gateways, &mut serial);
            let drops: Vec<_> = gateways.iter().map(Gateway::drops).collect();
            prop_assert_eq!(by_flow(&delivered), by_flow(&expected), "drops {:?}", drops);
            gateways.iter_mut().for_each(|gateway| gateway.wait(Nanos::from_millis(10)));
        }
        let drops: Vec<_> = gateways.iter().map(Gateway::drops).collect();
        prop_assert_eq!(drops.concat(), []);
    }
}
