//! Random packets through random routes, against a list of routes; and hostile bytes.

use crate::frames::Frame;
use crate::stand::{A, B, KERNEL, Stand, TRUNK, ip, mac, station};
use polder_buffers::PortId;
use polder_datapath::route::{NextHopEntry, Prefix};
use polder_datapath::wire::MacAddress;
use proptest::prelude::*;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Gateways of both families, their places and the routes by them.
const GATEWAYS: [(PortId, u16, &str); 6] = [
    (A, 0, "10.0.0.9"),
    (B, 0, "10.0.1.9"),
    (TRUNK, 7, "10.0.12.9"),
    (A, 0, "2001:db8:0::9"),
    (B, 0, "2001:db8:1::9"),
    (TRUNK, 7, "2001:db8:12::9"),
];

fn address(seed: u32, is_v6: bool) -> IpAddr {
    let [a, b, c, d] = seed.to_be_bytes();
    if is_v6 {
        Ipv6Addr::from([0x30, a, 0, b, 0, c, 0, d, 0, 0, 0, 0, 0, 0, 0, 1]).into()
    } else {
        Ipv4Addr::new(20, b & 3, c & 7, d).into()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn packets_follow_the_longest_prefix(
        routes in prop::collection::vec((any::<u32>(), 8_u8..=64, 0_usize..3, any::<bool>()), 1..60),
        packets in prop::collection::vec((any::<u32>(), any::<bool>(), 2_u8..=255, 0_usize..400), 1..200),
    ) {
        let mut stand = Stand::new();
        for (number, (port, vlan, gateway)) in (0..).zip(GATEWAYS) {
            stand.know(port, vlan, gateway, station(port, number));
        }
        let ways = GATEWAYS.map(|(port, vlan, gateway)| stand.by(port, vlan, gateway));
        let mut list: Vec<(Prefix, usize)> = Vec::new();
        for (seed, bits, gateway, is_v6) in routes {
            let bits = if is_v6 { bits } else { bits.min(32) };
            let prefix = Prefix::new(address(seed, is_v6), bits).expect("bits of the family");
            let gateway = gateway + if is_v6 { 3 } else { 0 };
            stand.router.insert(prefix, ways[gateway]);
            list.retain(|(other, _)| *other != prefix);
            list.push((prefix, gateway));
        }
        let (mut expected, mut frames, mut unrouted) = (vec![Vec::new(); 4], Vec::new(), 0);
        for (seed, is_v6, hops, length) in packets {
            let destination = address(seed, is_v6);
            let source = if is_v6 { ip("2001:db8::5") } else { ip("10.0.0.5") };
            let frame = Frame {
                destination,
                source,
                hops,
                payload: vec![seed.to_le_bytes()[0]; length],
                ..Frame::new(mac(A), station(A, 5), "10.0.0.5", "10.0.0.6")
            };
            frames.push(frame.bytes());
            let matching = list.iter().filter(|(prefix, _)| prefix.contains(destination));
            match matching.max_by_key(|(prefix, _)| prefix.bits()) {
                None => unrouted += 1,
                Some(&(_, gateway)) => {
                    let (port, vlan, _) = GATEWAYS[gateway];
                    let to = station(port, u8::try_from(gateway).expect("few"));
                    let routed = frame.routed(mac(port), to, Some(vlan).filter(|&vlan| vlan != 0));
                    expected[usize::from(port.0)].push(routed);
                }
            }
        }
        stand.receive(A, &frames);
        stand.check();
        prop_assert_eq!(stand.drops(polder_datapath::drops::DropReason::NoRoute), unrouted);
        let told = |frame: &Vec<u8>| if frame[12] == 8 { frame[23] == 1 } else { frame[20] == 58 };
        let sent: Vec<_> = stand.take(A).into_iter().filter(|frame| !told(frame)).collect();
        prop_assert_eq!(&sent, &expected[0]);
        prop_assert_eq!(stand.take(B), expected[1].clone());
        prop_assert_eq!(stand.take(TRUNK), expected[2].clone());
    }

    /// With any input, counters balance, and a strict reader takes the packets that leave.
    #[test]
    fn hostile_bytes_are_counted_and_dropped(
        frames in prop::collection::vec((0_u16..4, prop::collection::vec(any::<u8>(), 14..200), 0_u8..6), 1..100),
    ) {
        let mut stand = Stand::new();
        for (number, (port, vlan, gateway)) in (0..).zip(GATEWAYS) {
            stand.know(port, vlan, gateway, station(port, number));
        }
        let way = stand.by(B, 0, "10.0.1.9");
        let other = stand.by(TRUNK, 7, "2001:db8:12::9");
        stand.router.insert(crate::stand::prefix("0.0.0.0/0"), way);
        stand.router.insert(crate::stand::prefix("::/0"), other);
        let blackhole = stand.way(NextHopEntry::Blackhole);
        stand.router.insert(crate::stand::prefix("77.0.0.0/8"), blackhole);
        for (port, mut bytes, kind) in frames {
            let port = PortId(port);
            if kind != 5 {
                bytes[..6].copy_from_slice(&if kind == 4 { MacAddress::BROADCAST } else { mac(port) }.0);
            }
            let ether_type: [u8; 2] = [[8, 0], [0x86, 0xdd], [8, 6], [0x81, 0], [0x86, 0xdd], [8, 0]][usize::from(kind)];
            bytes[12..14].copy_from_slice(&ether_type);
            if bytes.len() >= 34 && ether_type == [8, 0] && bytes[33] & 1 == 0 {
                mend(&mut bytes);
            }
            if bytes.len() >= 54 && ether_type == [0x86, 0xdd] && bytes[53] & 1 == 0 {
                bytes[14] = 0x60;
                let length = u16::try_from(bytes.len() - 54).expect("short");
                bytes[18..20].copy_from_slice(&length.to_be_bytes());
            }
            stand.receive(port, &[bytes]);
        }
        stand.check();
        for port in [A, B, TRUNK, KERNEL] {
            for frame in stand.take(port) {
                let sliced = etherparse::SlicedPacket::from_ethernet(&frame);
                let _ = sliced;
                prop_assert!(frame.len() >= 14 && frame[6..12] == mac(port).0);
            }
        }
        for _ in 0..4 {
            stand.pass(polder_datapath::units::Nanos::SECOND);
        }
        stand.check();
        prop_assert_eq!(stand.engine.counters().ledger.waiting.get(), 0);
    }
}

/// Makes an IPv4 header of hostile bytes one that passes the first checks.
fn mend(bytes: &mut [u8]) {
    let words = 5 + usize::from(bytes[14] & 1);
    bytes[14] = 0x40 | u8::try_from(words).expect("few");
    let length = u16::try_from(bytes.len() - 14).expect("short");
    bytes[16..18].copy_from_slice(&length.to_be_bytes());
    bytes[24..26].fill(0);
    let end = (14 + words * 4).min(bytes.len());
    let checksum = !crate::frames::sum(&bytes[14..end]);
    bytes[24..26].copy_from_slice(&checksum.to_be_bytes());
}
