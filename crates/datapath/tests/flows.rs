//! Packets that count as one flow.

use etherparse::{EtherType, IpFragOffset, IpNumber, Ipv4Header, PacketBuilder};
use polder_buffers::{Packet, Pool, Region, RegionOptions};
use polder_datapath::steer::{Flow, Hasher};
use proptest::prelude::*;
use std::collections::HashSet;

const ALL: fn() -> [Hasher; 4] =
    || [Hasher::mixed(7, false), Hasher::mixed(7, true), Hasher::toeplitz(false), Hasher::toeplitz(true)];

fn pool() -> Pool {
    Region::new(RegionOptions { slots: 256, slot_bytes: 2048 }).expect("memory").pool()
}

fn flow_on(hasher: &Hasher, frame: &[u8], is_underlay: bool) -> Flow {
    let mut pool = pool();
    let packet = Packet::copy_from(frame, &mut pool).expect("a free slot");
    let flow = hasher.flow(&packet, is_underlay);
    pool.release_packet(packet);
    flow
}

fn hash(hasher: &Hasher, frame: &[u8]) -> u32 {
    flow_on(hasher, frame, false).hash
}

const STATIONS: ([u8; 6], [u8; 6]) = ([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);

#[derive(Clone, Copy, Debug)]
struct Ends {
    from: (u32, u16),
    to: (u32, u16),
}

impl Ends {
    fn number(number: u16) -> Self {
        Self { from: (0x0a00_0001, 40_000 + number), to: (0x0a00_0002, 5201) }
    }

    fn back(self) -> Self {
        Self { from: self.to, to: self.from }
    }

    fn udp(self, payload: &[u8]) -> Vec<u8> {
        let (from, to) = (self.from.0.to_be_bytes(), self.to.0.to_be_bytes());
        let builder = PacketBuilder::ethernet2(STATIONS.0, STATIONS.1).ipv4(from, to, 64);
        written(builder.udp(self.from.1, self.to.1), payload)
    }

    fn tcp6(self, payload: &[u8]) -> Vec<u8> {
        let address = |address: u32| (0xfd00_u128 << 112 | u128::from(address)).to_be_bytes();
        let (from, to) = (address(self.from.0), address(self.to.0));
        let builder = PacketBuilder::ethernet2(STATIONS.0, STATIONS.1).ipv6(from, to, 64);
        let builder = builder.tcp(self.from.1, self.to.1, 1, 1000);
        let mut bytes = Vec::new();
        builder.write(&mut bytes, payload).expect("a vector takes all");
        bytes
    }
}

fn written(builder: etherparse::PacketBuilderStep<etherparse::UdpHeader>, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    builder.write(&mut bytes, payload).expect("a vector takes all");
    bytes
}

/// A frame over IPv4 with this protocol, in the place of a fragment that `offset` and `more` say.
fn ipv4(protocol: IpNumber, payload: &[u8], offset: u16, more: bool) -> Vec<u8> {
    let length = u16::try_from(payload.len()).expect("short");
    let mut ip = Ipv4Header::new(length, 64, protocol, [192, 0, 2, 1], [192, 0, 2, 2]).expect("short");
    ip.fragment_offset = IpFragOffset::try_new(offset / 8).expect("in range");
    ip.more_fragments = more;
    ip.header_checksum = ip.calc_header_checksum();
    let mut bytes = [STATIONS.1, STATIONS.0].concat();
    bytes.extend(EtherType::IPV4.0.to_be_bytes());
    ip.write(&mut bytes).expect("a vector takes all");
    bytes.extend(payload);
    bytes
}

/// A gretap packet around `frame`; flags as in RFC 2890.
fn gretap(frame: &[u8], key: Option<u32>, sequence: Option<u32>) -> Vec<u8> {
    let flags = u16::from(key.is_some()) << 13 | u16::from(sequence.is_some()) << 12;
    let mut gre = [flags.to_be_bytes(), 0x6558_u16.to_be_bytes()].concat();
    for word in [key, sequence].into_iter().flatten() {
        gre.extend(word.to_be_bytes());
    }
    gre.extend(frame);
    ipv4(IpNumber::GRE, &gre, 0, false)
}

#[test]
fn flows_differ_and_packets_of_one_do_not() {
    for hasher in ALL() {
        let one = hash(&hasher, &Ends::number(0).udp(b"first"));
        assert_eq!(one, hash(&hasher, &Ends::number(0).udp(&[9; 900])));
        let hashes = (0..500).map(|number| hash(&hasher, &Ends::number(number).udp(b"x")));
        assert!(hashes.collect::<HashSet<_>>().len() > 490, "{hasher:?}");
        let hashes = (0..500).map(|number| hash(&hasher, &Ends::number(number).tcp6(b"x")));
        assert!(hashes.collect::<HashSet<_>>().len() > 490, "{hasher:?}");
    }
}

#[test]
fn directions_are_one_flow_only_where_that_is_wanted() {
    let (there, back) = (Ends::number(3), Ends::number(3).back());
    for (hasher, symmetric) in ALL().iter().zip([false, true, false, true]) {
        assert_eq!(hash(hasher, &there.udp(b"")) == hash(hasher, &back.udp(b"")), symmetric);
        assert_eq!(hash(hasher, &there.tcp6(b"")) == hash(hasher, &back.tcp6(b"")), symmetric);
    }
}

#[test]
fn a_tag_does_not_make_another_flow() {
    for hasher in ALL() {
        let frame = Ends::number(1).udp(b"x");
        let mut tagged = frame.clone();
        tagged.splice(12..12, [0x81, 0, 0, 7]);
        assert_eq!(hash(&hasher, &frame), hash(&hasher, &tagged));
    }
}

#[test]
fn fragments_of_one_datagram_stay_together() {
    // The first one has the ports; the second has other bytes in their place.
    let first = ipv4(IpNumber::UDP, &[1; 64], 0, true);
    let middle = ipv4(IpNumber::UDP, &[2; 64], 64, true);
    let last = ipv4(IpNumber::UDP, &[3; 8], 128, false);
    for hasher in ALL() {
        let hashes = [&first, &middle, &last].map(|frame| hash(&hasher, frame));
        assert!(hashes.iter().all(|&other| other == hashes[0]));
        let flows = [&first, &last].map(|frame| flow_on(&hasher, frame, true));
        assert!(flows.iter().all(|flow| flow.pinned), "an underlay reassembles them on one worker");
        assert!(!flow_on(&hasher, &first, false).pinned);
    }
}

#[test]
fn fragments_of_ipv6_stay_together_too() {
    let fragment = |next: u8, offset: u16, fill: u8| {
        let mut bytes = [STATIONS.1, STATIONS.0].concat();
        bytes.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 40, 44, 64]);
        bytes.extend([[0xfd; 16], [0xfe; 16]].concat());
        bytes.extend([next, 0]);
        bytes.extend((offset | 1).to_be_bytes());
        bytes.extend([0, 0, 0, 9]);
        bytes.extend([fill; 32]);
        bytes
    };
    for hasher in ALL() {
        // Destination options follow the first fragment's header; the later ones only say so.
        assert_eq!(hash(&hasher, &fragment(60, 0, 0)), hash(&hasher, &fragment(60, 64, 77)));
        assert_eq!(hash(&hasher, &fragment(17, 0, 1)), hash(&hasher, &fragment(17, 64, 2)));
    }
}

#[test]
fn one_tunnel_is_many_flows() {
    for hasher in ALL() {
        let inside = |number| Ends::number(number).udp(b"x");
        let hashes = (0..64).map(|number| hash(&hasher, &gretap(&inside(number), Some(1), None)));
        let buckets = hashes.map(|hash| hash % 256).collect::<HashSet<_>>();
        assert!(buckets.len() > 40, "64 flows meet in {} buckets", buckets.len());
        let bare = hash(&hasher, &inside(0));
        assert_eq!(hash(&hasher, &gretap(&inside(0), None, None)), bare, "the packet inside decides");
        let ip = [&[0, 0, 8, 0][..], &inside(0)[14..]].concat();
        assert_eq!(hash(&hasher, &ipv4(IpNumber::GRE, &ip, 0, false)), bare, "with and without Ethernet");
    }
}

/// The source port of VXLAN is a hash of the flow inside (RFC 7348, 5), so outer headers tell flows apart.
#[test]
fn one_vxlan_tunnel_is_many_flows() {
    for hasher in ALL() {
        let tunnel = |port| Ends { from: (0x0a00_0001, port), to: (0x0a00_0002, 4789) };
        let flows = (0..64).map(|flow| flow_on(&hasher, &tunnel(0xc000 + flow * 17).udp(&[8; 66]), true));
        let flows = flows.collect::<Vec<_>>();
        assert!(flows.iter().all(|flow| !flow.pinned));
        let buckets = flows.iter().map(|flow| flow.hash % 256).collect::<HashSet<_>>();
        assert!(buckets.len() > 40, "64 flows meet in {} buckets", buckets.len());
    }
}

#[test]
fn what_is_checked_in_order_is_pinned_where_tunnels_end() {
    for hasher in ALL() {
        let inside = |number| Ends::number(number).udp(b"x");
        let flows = [0, 1].map(|number| flow_on(&hasher, &gretap(&inside(number), None, Some(5)), true));
        assert!(flows[0].pinned && flows[0] == flows[1], "one tunnel, one place");
        assert!(!flow_on(&hasher, &gretap(&inside(0), None, Some(5)), false).pinned);
        assert!(!flow_on(&hasher, &gretap(&inside(0), Some(5), None), true).pinned);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn any_bytes_have_a_flow(
        start in 0..4_usize,
        bytes in proptest::collection::vec(any::<u8>(), 0..160),
        cut in 0..200_usize,
    ) {
        let frame = Ends::number(7).udp(b"something");
        let starts = [vec![], frame.clone(), gretap(&frame, None, Some(1)), Ends::number(7).tcp6(b"")];
        let mut frame = starts[start].clone();
        frame.truncate(cut);
        frame.extend(bytes);
        for hasher in ALL() {
            for is_underlay in [false, true] {
                prop_assert_eq!(flow_on(&hasher, &frame, is_underlay), flow_on(&hasher, &frame, is_underlay));
            }
        }
    }
}
