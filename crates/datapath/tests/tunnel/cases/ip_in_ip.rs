//! IPv4 and IPv6 in IPv4 without a header between them: what enters, what is taken, and what is not.

use super::{carry, ends, receive, send};
use crate::frames::{STATIONS, V4, content, other, tcp, v4, v4_of, v6, v6_of};
use crate::oracle::ends::{ADDRESSES, End, MACS, TUNNEL, UNDERLAY, outer_frame};
use crate::oracle::naive_sum;
use polder_buffers::PortId;
use polder_datapath::drops::DropReason;
use polder_datapath::tunnel::{
    Carries, Encapsulation, Stations, TunnelOptions, TunnelState, Tunnels, Underlay,
};
use polder_datapath::wire::MacAddress;
use proptest::prelude::*;
use std::sync::Arc;

const IPV4: u8 = 4;
const IPV6: u8 = 41;

fn of(encapsulation: Encapsulation) -> impl Fn(&mut TunnelOptions) {
    move |options| {
        let [far, near] = STATIONS.map(MacAddress);
        options.carries = Carries::Packets(Stations { near, far });
        options.encapsulation = encapsulation;
    }
}

fn ipip(options: &mut TunnelOptions) {
    of(Encapsulation::Ipip)(options);
}

fn sit(options: &mut TunnelOptions) {
    of(Encapsulation::Sit)(options);
}

/// A frame with the outer IPv4 checksum made right.
fn summed(mut frame: Vec<u8>) -> Vec<u8> {
    frame[24..26].fill(0);
    let checksum = !naive_sum(&frame[14..34]);
    frame[24..26].copy_from_slice(&checksum.to_be_bytes());
    frame
}

/// An outer packet, or a fragment of one, of the left end.
fn outer(protocol: u8, identification: u16, fragment: u16, inside: &[u8]) -> Vec<u8> {
    let mut frame = outer_frame(0, 0, identification, fragment, inside);
    frame[23] = protocol;
    summed(frame)
}

#[test]
fn nothing_stands_between_both_headers() {
    for (encapsulation, protocol, frame) in [
        (Encapsulation::Ipip, IPV4, v4(&[], 0xb8, 9, true, 100)),
        (Encapsulation::Sit, IPV6, v6(&[], 0xb8, 9, 100)),
    ] {
        let (mut left, mut right) = ends(of(encapsulation));
        let wire = send(&mut left, std::slice::from_ref(&frame));
        let [packet] = &wire[..] else { panic!("one packet") };
        assert_eq!(packet[..14], [&MACS[1].0[..], &MACS[0].0, &[8, 0]].concat());
        assert_eq!((packet[14], packet[15], packet[22], packet[23]), (0x45, 0xb8, 64, protocol));
        assert_eq!(packet[16..18], 120_u16.to_be_bytes());
        assert_eq!(packet[20..22], [0, 0], "fragments are allowed");
        assert_eq!(naive_sum(&packet[14..34]), 0xffff);
        assert_eq!(packet[26..34], [ADDRESSES[0].octets(), ADDRESSES[1].octets()].concat());
        assert_eq!(packet[34..], frame[14..], "what is inside is not changed");
        assert_eq!(receive(&mut right, &wire), [frame]);
        let counted = |end: &End| {
            let total = |counter: fn(&_) -> &_| end.state.total(counter);
            [total(|counters| &counters.sent_bytes), total(|counters| &counters.received_bytes)]
        };
        assert_eq!((counted(&left), counted(&right)), ([100, 0], [0, 100]));
    }
}

/// 20 bytes outside, and the Ethernet header is none of them.
#[test]
fn the_edge_of_the_mtu() {
    for (encapsulation, frame) in [
        (Encapsulation::Ipip, (|length| v4(&[], 0, 64, true, length)) as fn(usize) -> Vec<u8>),
        (Encapsulation::Sit, |length| v6(&[], 0, 64, length)),
    ] {
        let (mut left, mut right) = ends(|options| {
            of(encapsulation)(options);
            options.dont_fragment = true;
        });
        assert_eq!(carry(&mut left, &mut right, &[frame(1480)]), [frame(1480)]);
        assert!(send(&mut left, &[frame(1481)]).is_empty());
        assert_eq!(left.dropped(DropReason::TunnelTooBig), 1);
        let tunnel = left.tunnels.get(TUNNEL).expect("the tunnel");
        assert_eq!((tunnel.mtu(), tunnel.overhead(), tunnel.options().packet_mtu(1500)), (1480, 34, 1480));
    }
}

/// Connections agree on an MSS that fits: 1480 less two headers.
#[test]
fn segments_fit() {
    let (mut left, mut right) = ends(ipip);
    let syn = [2, 4, 0x05, 0xb4];
    let out = carry(&mut left, &mut right, &[v4_of(&[], 0, 64, true, 6, &tcp(false, 2, &syn, &[]))]);
    assert_eq!(out[0][14 + 20 + 20 + 2..][..2], 1440_u16.to_be_bytes());
    let (mut six, mut other) = ends(sit);
    let out = carry(&mut six, &mut other, &[v6_of(&[], 0, 64, 6, &tcp(true, 2, &syn, &[]))]);
    assert_eq!(out[0][14 + 40 + 20 + 2..][..2], 1420_u16.to_be_bytes());
}

#[test]
fn each_carries_one_family() {
    let [mut four, mut six] = [ipip as fn(&mut TunnelOptions), sit].map(|change| ends(change).0);
    assert!(send(&mut four, &[v6(&[], 0, 64, 60), other(&[], 60), v4(&[7], 0, 64, false, 60)]).is_empty());
    assert!(send(&mut six, &[v4(&[], 0, 64, false, 60), other(&[], 60), v6(&[7], 0, 64, 60)]).is_empty());
    for end in [four, six] {
        assert_eq!(end.dropped(DropReason::TunnelBadProtocol), 3);
    }
}

/// RFC 2003, 4.4: what comes from the other end would come back. A packet of the tunnel itself does not enter it.
#[test]
fn a_loop_ends() {
    let (mut left, _right) = ends(ipip);
    let mut from_there = v4(&[], 0, 64, false, 60);
    from_there[26..30].copy_from_slice(&ADDRESSES[1].octets());
    let inside = &v4(&[], 0, 64, false, 60)[14..];
    assert!(send(&mut left, &[summed(from_there), outer(IPV4, 0, 0, inside)]).is_empty());
    assert_eq!(left.dropped(DropReason::TunnelRecursion), 2);
    // Tunnels of others pass.
    let foreign = v4_of(&[], 0, 64, false, IPV4, inside);
    assert_eq!(send(&mut left, &[foreign, v4_of(&[], 0, 64, false, IPV6, inside)]).len(), 2);
}

#[test]
fn what_is_no_packet_of_the_tunnel() {
    let (_left, mut right) = ends(sit);
    let packet = v6(&[], 0, 64, 60)[14..].to_vec();
    let four = &v4(&[], 0, 64, false, 60)[14..];
    let mut stranger = outer(IPV6, 0, 0, &packet);
    stranger[29] ^= 1;
    let cases = [
        (outer(IPV6, 0, 0, four), DropReason::TunnelBadProtocol),
        (outer(IPV6, 0, 0, &packet[..39]), DropReason::TunnelBadProtocol),
        (outer(IPV6, 0, 0, &[]), DropReason::TunnelBadProtocol),
        (outer(IPV4, 0, 0, four), DropReason::NotForUs),
        (outer(47, 0, 0, &[0, 0, 0x86, 0xdd]), DropReason::NoTunnel),
        (summed(stranger), DropReason::NoTunnel),
    ];
    for (number, (frame, reason)) in (1..).zip(cases) {
        let before = right.dropped(reason);
        assert!(receive(&mut right, &[frame]).is_empty(), "{reason:?}");
        assert_eq!((right.dropped(reason), right.drops.total()), (before + 1, number), "{reason:?}");
    }
}

/// RFC 4213, 3.6.
#[test]
fn sources_that_no_host_has() {
    let (_left, mut right) = ends(sit);
    let martians =
        ["::1", "::192.0.2.1", "::ffff:192.0.2.1", "ff02::1"].map(|text| text.parse::<std::net::Ipv6Addr>());
    for source in martians {
        let mut packet = v6(&[], 0, 64, 60)[14..].to_vec();
        packet[8..24].copy_from_slice(&source.expect("an address").octets());
        assert!(receive(&mut right, &[outer(IPV6, 0, 0, &packet)]).is_empty());
    }
    assert_eq!(right.dropped(DropReason::MartianSource), 4);
}

/// RFC 6040, 4.2.
#[test]
fn congestion_comes_in() {
    let (mut left, mut right) = ends(sit);
    for (class, ends_as) in [(2, Some(3)), (1, Some(3)), (0, None)] {
        let mut wire = send(&mut left, &[v6(&[], class, 64, 100)]);
        wire[0][15] |= 3;
        let out = receive(&mut right, &[summed(wire.remove(0))]);
        assert_eq!(out.first().map(|frame| frame[15] >> 4 & 3), ends_as);
    }
    assert_eq!(right.dropped(DropReason::EcnNotCapable), 1);
}

/// Fragments of two protocols with one identification do not mix (RFC 791, 3.2).
#[test]
fn fragments_are_of_one_protocol() {
    let limits = polder_datapath::tunnel::ReassemblyLimits::default();
    let mut right = End::new(1, super::PATH, limits, ipip);
    let state = Arc::clone(&right.state);
    let ends = (ADDRESSES[1], ADDRESSES[0]);
    let options = [(TUNNEL, Encapsulation::Ipip), (PortId(6), Encapsulation::Sit)].map(|(port, kind)| {
        let mut options = TunnelOptions::new(port, ends, UNDERLAY, Arc::clone(&state));
        of(kind)(&mut options);
        options
    });
    let underlay = Underlay { port: UNDERLAY, mac: MACS[1], mtu: 1500, vlan: None, is_shared: false };
    right.tunnels = Tunnels::new([underlay], options).expect("they can be told apart");
    let (four, six) = (v4(&[], 0, 64, false, 200), v6(&[], 0, 64, 200));
    let part = |protocol, frame: &[u8], from: usize, to: usize| {
        let more = if to < 200 { 0x2000 } else { 0 };
        let place = u16::try_from(from / 8).expect("a short packet") | more;
        outer(protocol, 7, place, &frame[14 + from..14 + to])
    };
    let wire = [
        part(IPV4, &four, 0, 104),
        part(IPV6, &six, 0, 104),
        part(IPV6, &six, 104, 200),
        part(IPV4, &four, 104, 200),
    ];
    let packets = wire.iter().map(|frame| right.packet(frame, &[])).collect();
    let out = right.receive_any(packets);
    let found = out.iter().map(|packet| (packet.ingress.0, crate::oracle::ends::bytes_of(packet)));
    assert_eq!(found.collect::<Vec<_>>(), [(6, six), (5, four)]);
    right.release(out);
}

/// Fragments of a protocol that no tunnel has are nobody's.
#[test]
fn fragments_of_others() {
    let (_left, mut right) = ends(ipip);
    assert!(receive(&mut right, &[outer(IPV6, 7, 0x2000, &[0x60; 48])]).is_empty());
    assert_eq!((right.dropped(DropReason::NotForUs), right.ledger.held.get()), (1, 0));
    assert!(receive(&mut right, &[outer(IPV4, 7, 0x2000, &[0x45; 48])]).is_empty());
    assert_eq!(right.ledger.held.get(), 1);
}

/// Outer packets that do not fit a narrow path are cut, and put together at the other end.
#[test]
fn a_narrow_path() {
    let (mut left, mut right) = ends(ipip);
    left.state.next_hop.set_path_mtu(Some(600));
    let frame = v4(&[], 0, 64, false, 1400);
    let wire = send(&mut left, std::slice::from_ref(&frame));
    assert_eq!(wire.len(), 3);
    assert!(wire.iter().all(|packet| packet.len() <= 614 && packet[23] == IPV4));
    assert_eq!(receive(&mut right, &wire), [frame]);
}

/// Tunnels of all kinds may be between the same ends, but two of a kind without a number may not.
#[test]
fn one_of_a_kind() {
    let state = Arc::new(TunnelState::new(1));
    let underlay = Underlay { port: UNDERLAY, mac: MACS[1], mtu: 1500, vlan: None, is_shared: false };
    let new = |kinds: &[Encapsulation]| {
        let options = (5..).zip(kinds).map(|(port, &kind)| {
            let ends = (ADDRESSES[1], ADDRESSES[0]);
            let mut options = TunnelOptions::new(PortId(port), ends, UNDERLAY, Arc::clone(&state));
            of(kind)(&mut options);
            options
        });
        Tunnels::new([underlay], options.collect::<Vec<_>>()).is_ok()
    };
    use Encapsulation::{Gre, Ipip, Sit};
    assert!(new(&[Gre, Ipip, Sit]));
    assert!(!new(&[Ipip, Ipip]) && !new(&[Sit, Gre, Sit]));
}

proptest! {
    /// Packets of any length and protocol come out as they went in.
    #[test]
    fn any_packet_crosses(
        is_v6 in any::<bool>(),
        class in any::<u8>(),
        ttl in 1..=u8::MAX,
        protocol in any::<u8>(),
        length in 0..3000_usize,
        path in prop::option::of(560..1500_u16),
    ) {
        let encapsulation = if is_v6 { Encapsulation::Sit } else { Encapsulation::Ipip };
        let (mut left, mut right) = ends(of(encapsulation));
        left.state.next_hop.set_path_mtu(path);
        let payload = content(length);
        let frame = if is_v6 {
            // Longer ones are told that they are too big.
            v6_of(&[], class, ttl, protocol, &payload[..length.min(500)])
        } else {
            v4_of(&[], class, ttl, false, protocol, &payload)
        };
        let is_loop = frame.get(26..30).is_some_and(|source| source == ADDRESSES[1].octets());
        prop_assert!(!is_loop && V4[0] != ADDRESSES[1].octets());
        prop_assert_eq!(carry(&mut left, &mut right, std::slice::from_ref(&frame)), [frame]);
    }

    /// Whatever comes behind an outer header is taken or counted.
    #[test]
    fn any_bytes_are_counted(
        is_v6 in any::<bool>(),
        protocol in prop_oneof![Just(IPV4), Just(IPV6), any::<u8>()],
        fragment in prop_oneof![4 => Just(0_u16), 1 => any::<u16>()],
        inside in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let encapsulation = if is_v6 { Encapsulation::Sit } else { Encapsulation::Ipip };
        let (_left, mut right) = ends(of(encapsulation));
        // `End` balances what comes with what leaves, is dropped and waits.
        receive(&mut right, &[outer(protocol, 1, fragment & 0x3fff, &inside)]);
    }
}
