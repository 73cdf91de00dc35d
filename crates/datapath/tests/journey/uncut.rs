//! Packets of local senders that are yet to be cut, through whole gateways.

use crate::gateway::{ACCESS, End, Gateway, Line, Modes, Offloads, SECOND, Sent, UNDERLAY};
use polder_buffers::{ChecksumState, OuterHeaders, Segmentation, SegmentationKind};
use polder_datapath::drops::DropReason;
use polder_datapath::offload::Takes;
use polder_datapath::wire::{Checksum, IpProtocol, Ipv4, Link, Tcp};

const ALL: Takes = Takes {
    partial_checksums: true,
    segments: true,
    only_ipv4_segments: false,
    udp_segments: true,
    tunnel_segments: true,
    longest: None,
};
/// Payload bytes of the packet, and of a segment.
const PAYLOAD: usize = 10_000;
const SIZE: u16 = 1400;
const SEGMENTS: usize = PAYLOAD.div_ceil(SIZE as usize);

/// TCP over IPv4, uncut.
fn uncut(size: u16) -> (Vec<u8>, Offloads) {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0];
    let total = u16::try_from(40 + PAYLOAD).expect("as it was made").to_be_bytes();
    frame.extend([0x45, 2, total[0], total[1], 0, 9, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    let sum = Checksum::of(&frame[14..34]).to_be_bytes();
    frame[24..26].copy_from_slice(&sum);
    frame.extend([0x12, 0x34, 0, 80, 0, 0, 1, 0, 0, 0, 0, 0, 0x50, 0x18, 0xff, 0xff, 0, 0, 0, 0]);
    let pseudo = Ipv4::parse_head(&frame[14..], usize::MAX).expect("as it was made").pseudo();
    let partial = pseudo.sum(IpProtocol::TCP, u32::try_from(20 + PAYLOAD).expect("as it was made")).partial();
    frame[50..52].copy_from_slice(&partial.to_be_bytes());
    frame.extend((0..PAYLOAD).map(|number| number.to_le_bytes()[0] ^ number.to_le_bytes()[1]));
    let segmentation = Segmentation { size, kind: SegmentationKind::Tcp4, outer: OuterHeaders::NONE };
    let checksum = ChecksumState::Partial;
    (frame, Offloads { segmentation, checksum, checksum_start: 34, checksum_offset: 16 })
}

fn gateway(end: End, line: &Line) -> Gateway {
    Gateway::new(end, line, &Modes::transparent())
}

/// Payload of segments, all of whose checksums are right, in the order of their numbers.
fn payload(segments: &[Sent]) -> Vec<u8> {
    let mut payload = Vec::new();
    for Sent { bytes, .. } in segments {
        let ip = Ipv4::parse(Link::parse(bytes).expect("as it was made").payload()).expect("as it was made");
        ip.verify().expect("as it was made");
        let segment = ip.payload();
        let length = u32::try_from(segment.len()).expect("as it was made");
        assert!(ip.pseudo().sum(IpProtocol::TCP, length).with(segment).is_valid());
        let tcp = Tcp::parse(segment).expect("as it was made");
        assert_eq!(tcp.sequence() as usize, 0x100 + payload.len());
        payload.extend(&segment[tcp.header_bytes()..]);
    }
    payload
}

/// Whatever the underlay takes of it, the same segments come out at the other end.
#[test]
fn what_the_underlay_takes_goes_whole_and_the_rest_is_cut_behind_the_tunnel() {
    let (frame, offloads) = uncut(SIZE);
    let some = Takes { tunnel_segments: false, ..ALL };
    let none = Takes { partial_checksums: false, segments: true, ..Takes::default() };
    for (is_vxlan, takes, packets) in [
        (true, ALL, 1),
        (true, some, SEGMENTS),
        (true, none, SEGMENTS),
        (false, ALL, SEGMENTS),
        (false, some, SEGMENTS),
        (false, none, SEGMENTS),
    ] {
        for (checksum, sequence) in [(false, false), (true, !is_vxlan)] {
            let dont_fragment = is_vxlan;
            let line = Line { is_vxlan, takes, checksum, sequence, dont_fragment, ..Line::default() };
            let [mut near, mut far] = [End::Near, End::Far].map(|end| gateway(end, &line));
            near.receive_with(ACCESS, &frame, offloads);
            // A copy for each member of the bridge.
            assert_eq!(near.take(SECOND).len(), SEGMENTS);
            let sent = near.take(UNDERLAY);
            let case = format!("{is_vxlan} {takes:?} {checksum}");
            assert_eq!((sent.len(), near.drops()), (packets, Vec::new()), "{case}");
            // A packet is its segments, wherever it is cut.
            let ledger = &near.engine.counters().ledger;
            assert_eq!((ledger.split.get(), ledger.merged.get()), (0, 0), "{case}");
            assert_eq!(near.tunnel().total(|counters| &counters.sent), SEGMENTS as u64, "{case}");
            let expected =
                if takes.partial_checksums { ChecksumState::Partial } else { ChecksumState::Unknown };
            assert!(sent.iter().all(|sent| sent.offloads.checksum == expected), "{case}");
            for Sent { bytes, offloads, .. } in &sent {
                far.receive_with(UNDERLAY, bytes, *offloads);
            }
            let arrived = far.take(ACCESS);
            assert_eq!((arrived.len(), far.drops()), (SEGMENTS, Vec::new()), "{case}");
            assert_eq!(payload(&arrived), frame[54..], "{case}");
        }
    }
}

/// A port that takes super-packets up to a length gets longer ones as segments, plain and in a tunnel.
#[test]
fn super_packets_above_the_length_of_a_port_are_cut() {
    let (frame, offloads) = uncut(SIZE);
    // Ethernet, IPv4, UDP, VXLAN.
    let outer = 14 + 20 + 8 + 8;
    let whole = u32::try_from(frame.len() + outer).expect("as it was made");
    for (longest, packets) in [(None, 1), (Some(whole), 1), (Some(whole - 1), SEGMENTS), (Some(0), SEGMENTS)]
    {
        let takes = Takes { longest, ..ALL };
        let line = Line { is_vxlan: true, takes, dont_fragment: true, ..Line::default() };
        let [mut near, mut far] = [End::Near, End::Far].map(|end| gateway(end, &line));
        near.receive_with(ACCESS, &frame, offloads);
        near.take(SECOND);
        let sent = near.take(UNDERLAY);
        assert_eq!((sent.len(), near.drops()), (packets, Vec::new()), "{longest:?}");
        let ledger = &near.engine.counters().ledger;
        assert_eq!((ledger.split.get(), ledger.merged.get()), (0, 0), "{longest:?}");
        for Sent { bytes, offloads, .. } in &sent {
            far.receive_with(UNDERLAY, bytes, *offloads);
        }
        assert_eq!(payload(&far.take(ACCESS)), frame[54..], "{longest:?}");
    }
}

/// The longest segment counts, not the whole; senders are told as ever.
#[test]
fn segments_that_do_not_fit_are_cut_before_the_tunnel() {
    let (frame, offloads) = uncut(SIZE);
    let line = Line {
        is_vxlan: true,
        takes: ALL,
        dont_fragment: true,
        mtu: u16::try_from(20 + 16 + 14 + 40).expect("as it was made") + SIZE,
        ..Line::default()
    };
    let mut fits = gateway(End::Near, &line);
    fits.receive_with(ACCESS, &frame, offloads);
    assert_eq!(fits.take(UNDERLAY).len(), 1);
    let mut narrow = gateway(End::Near, &Line { mtu: line.mtu - 1, ..line.clone() });
    narrow.receive_with(ACCESS, &frame, offloads);
    assert_eq!(narrow.take(UNDERLAY).len(), 1, "the last one is shorter");
    assert_eq!(narrow.drops(), [(DropReason::TunnelTooBig, SEGMENTS as u64 - 1)]);
    let mut fragments =
        gateway(End::Near, &Line { is_vxlan: false, dont_fragment: false, mtu: 1000, ..line });
    fragments.receive_with(ACCESS, &frame, offloads);
    assert_eq!(fragments.take(UNDERLAY).len(), 2 * SEGMENTS - 1);
}

/// A sender's description that its headers contradict is not believed, wherever it is cut.
#[test]
fn lies_are_refused_on_the_way_into_a_tunnel() {
    let (frame, honest) = uncut(SIZE);
    for change in [
        Offloads { checksum_start: 38, ..honest },
        Offloads { checksum_offset: 6, ..honest },
        Offloads {
            segmentation: Segmentation { kind: SegmentationKind::Tcp6, ..honest.segmentation },
            ..honest
        },
        Offloads {
            segmentation: Segmentation { kind: SegmentationKind::Udp, ..honest.segmentation },
            ..honest
        },
        Offloads {
            segmentation: Segmentation {
                outer: OuterHeaders::udp(20, false).expect("as it was made"),
                ..honest.segmentation
            },
            ..honest
        },
    ] {
        let line = Line { is_vxlan: true, takes: ALL, dont_fragment: true, ..Line::default() };
        let mut near = gateway(End::Near, &line);
        near.receive_with(ACCESS, &frame, change);
        assert_eq!(near.take(UNDERLAY).len(), 0, "{change:?}");
        assert!(near.drops().iter().all(|drop| drop.0 == DropReason::CannotSegment), "{:?}", near.drops());
    }
}

/// A packet in somebody else's tunnel crosses the bridge; where its port does not take it, it is cut with all headers.
#[test]
fn packets_in_tunnels_of_others_are_cut_for_ports_that_take_none() {
    let (frame, offloads) = uncut(SIZE);
    let line = Line { is_vxlan: true, takes: ALL, dont_fragment: true, ..Line::default() };
    let mut near = gateway(End::Near, &line);
    near.receive_with(ACCESS, &frame, offloads);
    near.take(SECOND);
    let sent = near.take(UNDERLAY).pop().expect("as it was made");
    // It takes uncut packets by its underlay, where these do not go.
    let mut other = gateway(End::Far, &Line { takes: ALL, ..Line::default() });
    other.receive_with(ACCESS, &sent.bytes, sent.offloads);
    let segments = other.take(SECOND);
    assert_eq!(segments.len(), SEGMENTS);
    let mut far = gateway(End::Far, &line);
    for Sent { bytes, offloads, .. } in &segments {
        assert_eq!(offloads.checksum, ChecksumState::Unknown);
        far.receive_with(UNDERLAY, bytes, *offloads);
    }
    assert_eq!(payload(&far.take(ACCESS)), frame[54..]);
}
