//! Packets by their content, and the rule that a list of rules has for one, found by reading the list.

use polder_buffers::{Packet, Pool, PortId};
use polder_datapath::filter::{Action, Direction, FlagTest, Prefix, Rule};
use proptest::prelude::*;
use proptest::sample::select;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;

/// VLANs of frames without a tag, by port.
const UNTAGGED: [u16; 4] = [0, 7, 0, 9];

/// A frame.
#[derive(Clone, Debug)]
pub(crate) struct Spec {
    pub(crate) port: PortId,
    pub(crate) tag: Option<u16>,
    /// EtherType of a frame other than IP.
    pub(crate) ether_type: Option<u16>,
    pub(crate) source: IpAddr,
    pub(crate) destination: IpAddr,
    pub(crate) protocol: u8,
    pub(crate) source_port: u16,
    pub(crate) destination_port: u16,
    pub(crate) flags: u8,
    /// In units of eight bytes: IPv4 alone.
    pub(crate) fragment_offset: u16,
    /// Bytes missing at the end.
    pub(crate) cut: usize,
}

impl Default for Spec {
    fn default() -> Self {
        Self {
            port: PortId(0),
            tag: None,
            ether_type: None,
            source: Ipv4Addr::new(10, 0, 0, 1).into(),
            destination: Ipv4Addr::new(10, 0, 0, 2).into(),
            protocol: 17,
            source_port: 1,
            destination_port: 2,
            flags: 0,
            fragment_offset: 0,
            cut: 0,
        }
    }
}

impl Spec {
    /// The bytes.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
        if let Some(tag) = self.tag {
            bytes.extend([0x81, 0x00]);
            bytes.extend((tag | 0x6000).to_be_bytes());
        }
        bytes.extend(self.ether_type().to_be_bytes());
        if self.ether_type.is_some() {
            bytes.extend([7; 46]);
            return bytes;
        }
        let mut upper = [self.source_port.to_be_bytes(), self.destination_port.to_be_bytes()].concat();
        upper.resize(20, 0);
        (upper[12], upper[13]) = (5 << 4, self.flags);
        upper.truncate(20 - self.cut.min(20));
        match (self.source, self.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                let length = u16::try_from(20 + upper.len()).unwrap();
                bytes.extend([0x45, 0]);
                bytes.extend(length.to_be_bytes());
                bytes.extend([0, 1]);
                bytes.extend((self.fragment_offset / 8).to_be_bytes());
                bytes.extend([64, self.protocol, 0, 0]);
                bytes.extend(source.octets());
                bytes.extend(destination.octets());
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                bytes.extend([0x60, 0, 0, 0]);
                bytes.extend(u16::try_from(upper.len()).unwrap().to_be_bytes());
                bytes.extend([self.protocol, 64]);
                bytes.extend(source.octets());
                bytes.extend(destination.octets());
            }
            pair => panic!("{pair:?} are of two families"),
        }
        bytes.extend(upper);
        bytes
    }

    pub(crate) fn packet(&self, direction: Direction, pool: &mut Pool) -> Packet {
        let mut packet = Packet::copy_from(&self.bytes(), pool).expect("a free slot");
        let other = PortId(self.port.0 + 100);
        (packet.ingress, packet.egress) = match direction {
            Direction::In => (self.port, polder_buffers::NO_PORT),
            Direction::Out => (other, self.port),
        };
        packet
    }

    fn ether_type(&self) -> u16 {
        let ip = if self.source.is_ipv4() { 0x0800 } else { 0x86dd };
        self.ether_type.unwrap_or(ip)
    }

    fn vlan(&self) -> u16 {
        let untagged = UNTAGGED.get(usize::from(self.port.0)).copied().unwrap_or(0);
        self.tag.filter(|&tag| tag != 0).unwrap_or(untagged)
    }
}

/// The position of the first rule that fits.
pub(crate) fn decide(rules: &[Rule], spec: &Spec, direction: Direction) -> Option<usize> {
    rules.iter().position(|rule| rule.direction == direction && fits(rule, spec))
}

fn fits(rule: &Rule, spec: &Spec) -> bool {
    let is_ip = spec.ether_type.is_none();
    let has_upper = is_ip && (spec.fragment_offset == 0 || spec.source.is_ipv6());
    let has_ports = has_upper && [6, 17, 132].contains(&spec.protocol);
    let has_flags = has_upper && spec.protocol == 6;
    let one = |list: &[RangeInclusive<u16>], value| {
        list.is_empty() || list.iter().any(|range| range.contains(&value))
    };
    let address = |list: &[Prefix], address| {
        list.is_empty() || is_ip && list.iter().any(|prefix| is_in(prefix, address))
    };
    let flags = |test: &FlagTest| has_flags && spec.flags & test.mask == test.set & test.mask;
    (rule.ports.is_empty() || rule.ports.contains(&spec.port))
        && one(&rule.vlans, spec.vlan())
        && (rule.ether_types.is_empty() || rule.ether_types.contains(&spec.ether_type()))
        && address(&rule.sources, spec.source)
        && address(&rule.destinations, spec.destination)
        && (rule.protocols.is_empty() || is_ip && rule.protocols.contains(&spec.protocol))
        && (rule.source_ports.is_empty() || has_ports && one(&rule.source_ports, spec.source_port))
        && (rule.destination_ports.is_empty()
            || has_ports && one(&rule.destination_ports, spec.destination_port))
        && rule.flags.as_ref().is_none_or(flags)
}

/// Bit by bit.
fn is_in(prefix: &Prefix, address: IpAddr) -> bool {
    let bits = |address: IpAddr| -> Vec<bool> {
        let bytes = match address {
            IpAddr::V4(address) => address.octets().to_vec(),
            IpAddr::V6(address) => address.octets().to_vec(),
        };
        bytes.iter().flat_map(|byte| (0..8).rev().map(move |bit| byte >> bit & 1 == 1)).collect()
    };
    prefix.address.is_ipv4() == address.is_ipv4()
        && bits(prefix.address).iter().zip(bits(address)).take(prefix.bits.into()).all(|(a, b)| *a == b)
}

/// A packet as near to a rule as `choice` says.
pub(crate) fn with(rule: &Rule, spec: &Spec, choice: u64) -> Spec {
    let mut spec = spec.clone();
    let pick = |at: u32, length: usize| (choice.rotate_right(at * 5) as usize) % length.max(1);
    let edge = |range: &RangeInclusive<u16>, at: u32| match choice >> at & 3 {
        0 => *range.start(),
        1 => *range.end(),
        2 => range.start().wrapping_sub(1),
        _ => range.end().wrapping_add(1),
    };
    if let Some(&port) = rule.ports.get(pick(0, rule.ports.len())) {
        spec.port = port;
    }
    if let Some(range) = rule.vlans.get(pick(1, rule.vlans.len())) {
        spec.tag = Some(edge(range, 3) & 0x0fff);
    }
    if let Some(&protocol) = rule.protocols.get(pick(2, rule.protocols.len())) {
        spec.protocol = protocol;
    }
    if let Some(range) = rule.source_ports.get(pick(3, rule.source_ports.len())) {
        spec.source_port = edge(range, 9);
    }
    if let Some(range) = rule.destination_ports.get(pick(4, rule.destination_ports.len())) {
        spec.destination_port = edge(range, 13);
    }
    if let Some(test) = rule.flags {
        spec.flags = spec.flags & !test.mask | test.set & test.mask;
    }
    let source = rule.sources.get(pick(5, rule.sources.len()));
    let destination = rule.destinations.get(pick(6, rule.destinations.len()));
    if let Some(prefix) = source.or(destination) {
        spec.ether_type = None;
        let other =
            if prefix.address.is_ipv4() == spec.source.is_ipv4() { None } else { Some(prefix.address) };
        spec.source = source.map(|prefix| near(prefix, choice)).or(other).unwrap_or(spec.source);
        let same = |prefix: &&Prefix| prefix.address.is_ipv4() == spec.source.is_ipv4();
        let near_destination = destination.filter(same).map(|prefix| near(prefix, choice >> 7));
        spec.destination = near_destination.or(other).unwrap_or(spec.destination);
        if spec.destination.is_ipv4() != spec.source.is_ipv4() {
            spec.destination = spec.source;
        }
    }
    spec
}

/// An address of a prefix, or the nearest outside of it.
fn near(prefix: &Prefix, choice: u64) -> IpAddr {
    let flip = |width: u32| match choice & 3 {
        0 if prefix.bits > 0 => 1_u128 << (width - u32::from(prefix.bits)),
        1 if u32::from(prefix.bits) < width => 1_u128 << (width - u32::from(prefix.bits) - 1),
        _ => 0,
    };
    match prefix.address {
        IpAddr::V4(address) => Ipv4Addr::from_bits(address.to_bits() ^ flip(32) as u32).into(),
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() ^ flip(128)).into(),
    }
}

fn v4() -> impl Strategy<Value = Ipv4Addr> {
    // Few addresses, so that prefixes overlap and packets meet them.
    (select(&[10_u8, 11, 172, 192][..]), 0..4_u8, 0..4_u8, any::<u8>())
        .prop_map(|(a, b, c, d)| [a, b, c, d].into())
}

fn v6() -> impl Strategy<Value = Ipv6Addr> {
    (select(&[0x2001_u16, 0x2002, 0xfe80][..]), 0..3_u16, 0..3_u16, 0..5_u16, any::<u16>())
        .prop_map(|(a, b, c, d, e)| Ipv6Addr::new(a, b, 0, c, 0, 0, d, e))
}

fn prefix() -> impl Strategy<Value = Prefix> {
    prop_oneof![
        (v4(), 0..=32_u8).prop_map(|(address, bits)| Prefix { address: address.into(), bits }),
        (v6(), prop_oneof![0..=128_u8, Just(64), Just(128)])
            .prop_map(|(address, bits)| Prefix { address: address.into(), bits }),
    ]
}

fn range() -> impl Strategy<Value = RangeInclusive<u16>> {
    prop_oneof![
        (0..40_u16).prop_map(|port| port..=port),
        (0..40_u16, 0..40_u16).prop_map(|(a, b)| a.min(b)..=a.max(b)),
        (any::<u16>(), any::<u16>()).prop_map(|(a, b)| a.min(b)..=a.max(b)),
    ]
}

/// A list that is mostly empty.
fn list<T: Clone + std::fmt::Debug>(element: impl Strategy<Value = T>) -> impl Strategy<Value = Vec<T>> {
    prop_oneof![3 => Just(Vec::new()), 2 => prop::collection::vec(element, 1..4)]
}

prop_compose! {
    pub(crate) fn rule()(
        direction in prop_oneof![3 => Just(Direction::In), 1 => Just(Direction::Out)],
        ports in list((0..4_u16).prop_map(PortId)),
        vlans in list(prop_oneof![(0..12_u16).prop_map(|vlan| vlan..=vlan), (0..6_u16).prop_map(|low| low..=low + 5)]),
        ether_types in prop_oneof![5 => Just(vec![]), 1 => Just(vec![0x0800]), 1 => Just(vec![0x0806, 0x86dd])],
        sources in list(prefix()),
        destinations in list(prefix()),
        protocols in list(select(&[1_u8, 6, 17, 47, 58, 132][..])),
        source_ports in list(range()),
        destination_ports in list(range()),
        flags in prop_oneof![4 => Just(None), 1 => any::<(u8, u8)>().prop_map(|(mask, set)| Some(FlagTest { mask, set }))],
        action in prop_oneof![Just(Action::Accept), Just(Action::Drop), Just(Action::Reject)],
    ) -> Rule {
        Rule { direction, ports, vlans, ether_types, sources, destinations, protocols, source_ports, destination_ports, flags, action }
    }
}

prop_compose! {
    pub(crate) fn spec()(
        port in (0..5_u16).prop_map(PortId),
        tag in prop_oneof![2 => Just(None), 1 => (0..12_u16).prop_map(Some)],
        ether_type in prop_oneof![6 => Just(None), 1 => Just(Some(0x0806)), 1 => Just(Some(0x88cc))],
        (source, destination) in prop_oneof![
            (v4(), v4()).prop_map(|(a, b)| (IpAddr::from(a), IpAddr::from(b))),
            (v6(), v6()).prop_map(|(a, b)| (IpAddr::from(a), IpAddr::from(b))),
        ],
        protocol in select(&[1_u8, 6, 6, 17, 17, 47, 58, 132][..]),
        source_port in 0..45_u16,
        destination_port in prop_oneof![0..45_u16, any::<u16>()],
        flags in any::<u8>(),
        later in prop_oneof![5 => Just(0_u16), 1 => Just(80)],
    ) -> Spec {
        let fragment_offset = if source.is_ipv4() { later } else { 0 };
        Spec { port, tag, ether_type, source, destination, protocol, source_port, destination_port, flags, fragment_offset, cut: 0 }
    }
}
