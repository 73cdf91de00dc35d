//! Packets without Ethernet: what is taken, what is not, what stays beside tunnels on a shared port.

use super::{PATH, carry, ends, receive, send};
use crate::frames::{STATIONS, V4, content, other, tcp, v4, v4_of, v6};
use crate::oracle::ends::{ADDRESSES, End, MACS, TUNNEL, UNDERLAY, bytes_of, outer_frame};
use polder_datapath::drops::DropReason;
use polder_datapath::tunnel::{Carries, Stations, TunnelOptions, Tunnels, Underlay};
use polder_datapath::wire::MacAddress;

fn bare(options: &mut TunnelOptions) {
    let [far, near] = STATIONS.map(MacAddress);
    options.carries = Carries::Packets(Stations { near, far });
}

/// A GRE packet of the left end with a protocol type.
fn outer(protocol: u16, inside: &[u8]) -> Vec<u8> {
    outer_frame(0, 0, 0, 0x4000, &[&[0, 0][..], &protocol.to_be_bytes(), inside].concat())
}

/// 24 bytes outside for IPv4 (RFC 2784), and the Ethernet header is none of them.
#[test]
fn the_edge_of_the_mtu() {
    for (key, largest) in [(None, 1476), (Some(1), 1472)] {
        let (mut left, mut right) = ends(|options| {
            bare(options);
            (options.dont_fragment, options.key) = (true, key);
        });
        let frames = [v4(&[], 0, 64, true, largest), v6(&[], 0, 64, largest)];
        assert_eq!(carry(&mut left, &mut right, &frames), frames);
        let inside: usize = frames.iter().map(|frame| frame.len() - 14).sum();
        assert_eq!(left.state.total(|counters| &counters.sent_bytes), inside as u64);
        assert_eq!(right.state.total(|counters| &counters.received_bytes), inside as u64);
        assert!(send(&mut left, &[v4(&[], 0, 64, true, largest + 1)]).is_empty());
        assert_eq!(left.dropped(DropReason::TunnelTooBig), 1);
        let tunnel = left.tunnels.get(TUNNEL).expect("the tunnel");
        assert_eq!((usize::from(tunnel.mtu()), tunnel.options().packet_mtu(1500)), (largest, tunnel.mtu()));
    }
}

/// The router's MTU of the interface is the tunnel's: path, promise and DF.
#[test]
fn the_mtu_of_the_interface() {
    let cases = [
        (None, false, None, 1476),
        (None, false, Some(1000), 976),
        (Some(1400), false, Some(1000), 1400),
        (Some(1400), true, Some(1000), 976),
        (Some(1400), true, None, 1400),
        (None, false, Some(100), 528),
    ];
    for (mtu, dont_fragment, path, expected) in cases {
        let (mut left, _right) = ends(|options| {
            bare(options);
            (options.mtu, options.dont_fragment) = (mtu, dont_fragment);
        });
        left.state.next_hop.set_path_mtu(path);
        let found = left.tunnels.get(TUNNEL).expect("the tunnel").options().packet_mtu(1500);
        assert_eq!(found, expected, "{mtu:?} {dont_fragment} {path:?}");
        let sent =
            |left: &mut End, length: u16| !send(left, &[v4(&[], 0, 64, true, length.into())]).is_empty();
        assert!(sent(&mut left, expected) && !sent(&mut left, expected + 1));
    }
}

/// Frames, keepalives and all that is not IP (RFC 2784, 2.4: dropped); and the other way round.
#[test]
fn protocols_that_are_not_carried() {
    let (mut left, mut right) = ends(bare);
    let packet = &v4(&[], 0, 64, false, 60)[14..];
    for protocol in [0x6558, 0x0000, 0x8847, 0xffff, 0x0806] {
        assert!(receive(&mut right, &[outer(protocol, packet)]).is_empty(), "{protocol:#06x}");
    }
    assert_eq!(right.dropped(DropReason::TunnelBadProtocol), 5);
    for frame in [other(&[], 60), v4(&[7], 0, 64, false, 60), other(&[], 14)] {
        assert!(send(&mut left, &[frame]).is_empty());
    }
    assert_eq!(left.dropped(DropReason::TunnelBadProtocol), 3);
    let (mut frames, _rest) = ends(|_| {});
    assert!(receive(&mut frames, &[outer(0x0800, packet)]).is_empty());
    assert!(receive(&mut frames, &[outer(0x86dd, packet)]).is_empty());
}

/// The inner packet is left to the router to check; an empty packet and a wrong version too.
#[test]
fn whatever_is_inside_has_a_link_header() {
    let (_left, mut right) = ends(bare);
    for (protocol, inside) in [(0x0800, Vec::new()), (0x86dd, vec![0x45; 7]), (0x0800, content(100))] {
        let out = receive(&mut right, &[outer(protocol, &inside)]);
        let link = [STATIONS[1].to_vec(), STATIONS[0].to_vec(), protocol.to_be_bytes().to_vec()].concat();
        assert_eq!(out, [[link, inside].concat()]);
    }
}

/// Congestion met on the way stands inside afterwards (RFC 6040), also in a chain of fragments.
#[test]
fn congestion_comes_in() {
    let (mut left, mut right) = ends(bare);
    for (class, ends_as) in [(2, Some(3)), (1, Some(3)), (0, None)] {
        let mut wire = send(&mut left, &[v4(&[], class, 64, false, 100)]);
        wire[0][15] |= 3;
        let sum = !crate::oracle::naive_sum(&[&wire[0][14..24], &wire[0][26..34]].concat());
        wire[0][24..26].copy_from_slice(&sum.to_be_bytes());
        let out = receive(&mut right, &wire);
        assert_eq!(out.first().map(|frame| frame[15]), ends_as);
        let packet = |frame: &Vec<u8>| crate::oracle::naive_sum(&frame[14..34]) == 0xffff;
        assert!(out.iter().all(packet), "the checksum goes with it");
    }
    assert_eq!(right.dropped(DropReason::EcnNotCapable), 1);
}

/// Connections agree on an MSS that fits: 1476 less two headers.
#[test]
fn segments_fit() {
    let (mut left, mut right) = ends(bare);
    let frame = v4_of(&[], 0, 64, true, 6, &tcp(false, 2, &[2, 4, 0x05, 0xb4], &[]));
    let out = carry(&mut left, &mut right, &[frame]);
    assert_eq!(out[0][14 + 20 + 20 + 2..][..2], 1436_u16.to_be_bytes());
}

/// A packet of the tunnel itself does not enter it.
#[test]
fn a_loop_ends() {
    let (mut left, _right) = ends(bare);
    let [ours, theirs] = [outer(0x0800, &[1; 40]), outer_frame(1, 0, 0, 0x4000, &[0, 0, 8, 0])];
    assert!(send(&mut left, &[ours, theirs]).is_empty());
    assert_eq!(left.dropped(DropReason::TunnelRecursion), 2);
}

/// On a port that others use too, packets for no tunnel go on as they came, fragments of GRE included;
/// packets between a tunnel's ends do not.
#[test]
fn a_shared_port_keeps_what_is_not_for_tunnels() {
    let (_left, mut right) = ends(bare);
    let underlay = Underlay { port: UNDERLAY, mac: MACS[1], mtu: PATH.mtu, vlan: None, is_shared: true };
    let ends = (ADDRESSES[1], ADDRESSES[0]);
    let mut options = TunnelOptions::new(TUNNEL, ends, UNDERLAY, right.state.clone());
    bare(&mut options);
    let tunnels = Tunnels::new([underlay], [options]).expect("a valid configuration");
    let foreign = |fragment: u16| {
        let mut frame = outer_frame(0, 0, 0, fragment, &[0, 0, 8, 0, 1, 2, 3, 4, 5, 6, 7, 8]);
        frame[26..30].copy_from_slice(&V4[0]);
        let sum = !crate::oracle::naive_sum(&[&frame[14..24], &frame[26..34]].concat());
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
        frame
    };
    let to_us = |frame: Vec<u8>| [&MACS[1].0[..], &frame[6..]].concat();
    let other_station = other(&[], 60);
    let others = [
        to_us(v4(&[], 0, 64, false, 60)),
        to_us(v6(&[], 0, 64, 60)),
        foreign(0x2000),
        foreign(0x0001),
        foreign(0),
        to_us(v4(&[9], 0, 64, false, 60)),
        other_station,
    ];
    let inside = v4(&[], 0, 64, false, 60);
    let mine = [outer(0x0800, &inside[14..]), outer(0x1234, &[1; 20])];
    let half = outer_frame(0, 1, 7, 0x2000, &[0, 0, 8, 0, 1, 2, 3, 4]);
    let all = [&others[..3], &mine[..1], &[half], &others[3..], &mine[1..]].concat();
    right.tunnels = tunnels;
    let packets = all.iter().map(|frame| right.packet(frame, &[])).collect();
    let out = right.receive_any(packets);
    let passed = out.iter().filter(|packet| packet.ingress == UNDERLAY).map(bytes_of).collect::<Vec<_>>();
    assert_eq!(passed, others);
    let taken = out.iter().filter(|packet| packet.ingress == TUNNEL).map(bytes_of).collect::<Vec<_>>();
    assert_eq!(taken, [inside]);
    assert_eq!((right.dropped(DropReason::TunnelBadProtocol), right.ledger.held.get()), (1, 1));
    assert_eq!(right.dropped(DropReason::NotForUs) + right.dropped(DropReason::NoTunnel), 0);
    right.release(out);
}
