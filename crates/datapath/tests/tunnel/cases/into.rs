//! Into the tunnel: what it takes and how large, by which port, with which header.

use super::{PATH, carry, ends, send, taken};
use crate::frames::{V4, content, other, tcp, tcp_sum, v4, v4_of, v6};
use crate::oracle::ends::{ADDRESSES, End, MACS, TUNNEL, UNDERLAY, bytes_of, outer_frame};
use crate::oracle::{naive_pseudo_sum, naive_sum};
use polder_buffers::{ChecksumState, Packet, PortId, Segmentation};
use polder_datapath::drops::DropReason;
use polder_datapath::offload::complete_checksum;
use polder_datapath::tunnel::{ReassemblyLimits, TunnelOptions, TunnelState, Tunnels, Underlay};
use polder_datapath::wire::VlanId;
use std::sync::Arc;

/// All options that change the header's length.
fn all(options: &mut TunnelOptions) {
    options.checksum = true;
    options.key = Some(7);
    options.sequence = true;
}

/// One byte more than fits is one too many.
#[test]
fn the_edge_of_the_mtu() {
    for (has_all, overhead) in [(false, 24), (true, 36)] {
        let change = |options: &mut TunnelOptions| {
            options.dont_fragment = true;
            if has_all {
                all(options);
            }
        };
        for tags in [&[][..], &[7], &[7, 8]] {
            let (mut left, _right) = ends(change);
            let link = 14 + tags.len() * 4;
            let largest = 1500 - overhead - link;
            assert_eq!(send(&mut left, &[v4(tags, 0, 64, true, largest)]).len(), 1);
            assert_eq!(send(&mut left, &[v4(tags, 0, 64, true, largest + 1)]).len(), 0);
            assert_eq!(left.dropped(DropReason::TunnelTooBig), 1, "{overhead} and {link} bytes of headers");
        }
    }
}

/// An MTU is a promise for every tag; without DF it is kept in fragments.
#[test]
fn a_promised_mtu() {
    for tags in [&[][..], &[7]] {
        let (mut left, mut right) = ends(|options| options.mtu = Some(1500));
        let frames = [v4(tags, 0, 64, true, 1500), v6(tags, 0, 64, 1500)];
        assert_eq!(carry(&mut left, &mut right, &frames), frames);
        assert_eq!(left.state.total(|counters| &counters.fragmented), 2);
        assert_eq!(send(&mut left, &[v4(tags, 0, 64, true, 1501), v6(tags, 0, 64, 1501)]).len(), 0);
        assert_eq!(left.dropped(DropReason::TunnelTooBig), 2);
    }
}

/// A narrower path that the kernel has heard of counts at once, and no longer once it has forgotten.
#[test]
fn a_path_that_becomes_narrower() {
    let (mut left, _right) = ends(|options| options.dont_fragment = true);
    let frame = v4(&[], 0, 64, true, 1400);
    assert_eq!(send(&mut left, std::slice::from_ref(&frame)).len(), 1);
    left.state.next_hop.set_path_mtu(Some(1437));
    assert_eq!(send(&mut left, std::slice::from_ref(&frame)).len(), 0);
    left.state.next_hop.set_path_mtu(Some(1438));
    assert_eq!(send(&mut left, std::slice::from_ref(&frame)).len(), 1);
    left.state.next_hop.set_path_mtu(None);
    assert_eq!(send(&mut left, std::slice::from_ref(&frame)).len(), 1);
}

/// Until the next hop's address is known, and when it is not known any more.
#[test]
fn no_neighbour() {
    let (mut left, _right) = ends(|_| {});
    let frame = other(&[], 60);
    for (address, count) in [(None, 0), (Some(MACS[1]), 1), (None, 0)] {
        left.state.next_hop.set_address(address);
        let out = send(&mut left, std::slice::from_ref(&frame));
        assert_eq!(out.len(), count);
        assert!(out.iter().all(|bytes| bytes[..6] == MACS[1].0));
    }
    assert_eq!(left.dropped(DropReason::TunnelNoNeighbour), 2);
    assert_eq!(left.state.total(|counters| &counters.no_neighbour), 2);
}

/// Over another port: other headers in front of the same bytes, in the same frame.
#[test]
fn a_tunnel_that_is_routed_anew_copies_nothing() {
    let (mut left, _right) = ends(all);
    let address = |packet: &Packet| packet.bytes().as_ptr_range().end;
    for vlan in [None, VlanId::configured(9)] {
        let mut options =
            TunnelOptions::new(TUNNEL, (ADDRESSES[0], ADDRESSES[1]), UNDERLAY, Arc::clone(&left.state));
        all(&mut options);
        let underlay = Underlay { port: UNDERLAY, mac: MACS[0], mtu: 1500, vlan, is_shared: false };
        left.tunnels = Tunnels::new([underlay], [options]).expect("a valid configuration");
        let packet = left.packet(&other(&[], 1000), &[]);
        let (head, end) = (packet.head().index(), address(&packet));
        let (out, _) = left.send(vec![packet]);
        assert_eq!((out[0].head().index(), address(&out[0])), (head, end));
        assert_eq!(out[0].len(), 1000 + 14 + 36 + if vlan.is_some() { 4 } else { 0 });
        left.release(out);
    }
    // Numbers go on.
    assert_eq!(left.state.sequence.next(), 2);
}

/// Our own outer packets do not enter a tunnel again, in either direction and however they are wrapped.
#[test]
fn packets_of_tunnels_do_not_enter_tunnels() {
    let strange = |inside: &[u8]| v4_of(&[], 0, 64, true, 47, &[&[0, 0, 0x65, 0x58][..], inside].concat());
    let routed =
        |inside: &[u8]| v4_of(&[], 0, 64, true, 47, &[&[0, 0, 0x08, 0x00][..], &inside[14..]].concat());
    let ours = outer_frame(0, 0, 0, 0x4000, &[&[0, 0, 0x65, 0x58][..], &other(&[], 60)].concat());
    let theirs = outer_frame(1, 0, 0, 0x4000, &[0, 0, 0x65, 0x58]);
    let fragment = outer_frame(1, 0, 0, 0x0010, &[1; 20]);
    let tagged = [&ours[..12], &[0x81, 0, 0, 9], &ours[12..]].concat();
    let innocent = strange(&other(&[], 60));
    let three = strange(&strange(&innocent));
    let cases = [
        (true, ours.clone()),
        (true, theirs),
        (true, fragment),
        (true, tagged.clone()),
        (true, strange(&ours)),
        (true, routed(&ours)),
        (true, strange(&strange(&tagged))),
        (false, innocent.clone()),
        (false, three.clone()),
        (true, strange(&three)),
        (false, v4_of(&[], 0, 64, true, 47, &[1, 2])),
        (false, v4_of(&[], 0, 64, true, 47, &[0, 0, 0x65, 0x58, 1])),
    ];
    for (number, (is_refused, frame)) in cases.into_iter().enumerate() {
        let (mut left, _right) = ends(|_| {});
        assert_eq!(send(&mut left, &[frame]).len(), usize::from(!is_refused), "case {number}");
        assert_eq!(left.dropped(DropReason::TunnelRecursion), u64::from(is_refused));
        assert_eq!(left.state.total(|counters| &counters.recursion), u64::from(is_refused));
    }
}

/// A checksum that a local sender left partial stays so, also where one of the tunnel covers it; it is completed before
/// fragments are cut.
#[test]
fn partial_checksums() {
    let unfinished = |left: &mut End, payload: usize| {
        let segment = tcp(false, 0x10, &[], &content(payload));
        let finished = v4_of(&[], 0, 64, false, 6, &segment);
        let mut frame = finished.clone();
        let length = u16::try_from(segment.len()).expect("a segment").to_be_bytes();
        let pseudo = naive_pseudo_sum(&V4[0], &V4[1], 6, &[]).to_be_bytes();
        let pseudo = naive_sum(&[pseudo, length].concat());
        frame[50..52].copy_from_slice(&pseudo.to_be_bytes());
        let mut packet = left.packet(&frame, &[]);
        packet.checksum = ChecksumState::Partial;
        (packet.checksum_start, packet.checksum_offset) = (34, 16);
        (packet, finished)
    };
    for (checksum, payload, is_split) in [(true, 101, false), (false, 1800, true), (true, 3001, true)] {
        let (mut left, mut right) = ends(|options| options.checksum = checksum);
        let (packet, finished) = unfinished(&mut left, payload);
        let (mut out, _) = left.send(vec![packet]);
        let expected = if is_split { ChecksumState::Unknown } else { ChecksumState::Partial };
        assert!(out.iter().all(|packet| packet.checksum == expected));
        for packet in &mut out {
            complete_checksum(packet).expect("in the packet");
        }
        let wire = taken(&mut left, out);
        assert_eq!(super::receive(&mut right, &wire), [finished]);
    }
    // It is left to the underlay, which is told where it stands.
    let (mut left, _right) = ends(|options| options.key = Some(1));
    let (packet, _) = unfinished(&mut left, 100);
    let (out, _) = left.send(vec![packet]);
    assert_eq!((out[0].checksum, out[0].checksum_start), (ChecksumState::Partial, 34 + 42));
    assert_eq!(out[0].segmentation, Segmentation::default(), "it goes as one packet");
    let segment = &bytes_of(&out[0])[34 + 42..];
    assert_ne!(tcp_sum(false, segment), 0xffff);
    left.release(out);
    // A place outside the packet is a lie.
    let (mut packet, _) = unfinished(&mut left, 1800);
    packet.checksum_start = 60_000;
    let (out, _) = left.send(vec![packet]);
    assert_eq!((out.len(), left.dropped(DropReason::DeviceError)), (0, 1));
}

/// A receiver tells the fragments of two tunnels with the same ends apart by identification alone.
#[test]
fn tunnels_with_the_same_ends_share_identifications() {
    let (mut left, _right) = ends(|_| {});
    let ends = (ADDRESSES[0], ADDRESSES[1]);
    let second = PortId(6);
    let state = Arc::new(TunnelState::new(1));
    state.next_hop.set_address(Some(MACS[1]));
    let mut other_options = TunnelOptions::new(second, ends, UNDERLAY, state);
    other_options.key = Some(1);
    let options = TunnelOptions::new(TUNNEL, ends, UNDERLAY, Arc::clone(&left.state));
    let underlay = Underlay { port: UNDERLAY, mac: MACS[0], mtu: 1500, vlan: None, is_shared: false };
    left.tunnels = Tunnels::new([underlay], [options, other_options]).expect("a valid configuration");
    let mut identifications = Vec::new();
    for _ in 0..3 {
        let tunnels = [TUNNEL, second];
        let drawn = tunnels.map(|port| left.tunnels.get(port).expect("a tunnel").draw_identification(1));
        identifications.extend(drawn);
        let wire = send(&mut left, &[other(&[], 60), other(&[], 3000)]);
        identifications.extend(wire.iter().take(2).map(|bytes| u16::from_be_bytes([bytes[18], bytes[19]])));
    }
    identifications.sort_unstable();
    identifications.dedup();
    assert_eq!(identifications.len(), 12);
}

/// Frames that were received with too little room in front are copied; without memory for that, refused.
#[test]
fn no_headroom() {
    let mut left = End::new(0, PATH, ReassemblyLimits::default(), |_| {});
    let mut all = Vec::new();
    for (room, is_short, count) in
        [(38, false, 1), (37, false, 1), (0, false, 1), (38, true, 1), (37, true, 0)]
    {
        let mut packet = left.packet(&other(&[], 60), &[]);
        let more = packet.headroom() - room;
        let bytes = packet.bytes().to_vec();
        packet.prepend(more).expect("fresh packets have more")[..60].copy_from_slice(&bytes);
        packet.truncate(60, &mut left.pool).expect("it is longer");
        assert_eq!(packet.headroom(), room);
        if is_short {
            while left.pool.take_bulk(64, &mut all) > 0 {}
        }
        let (out, _) = left.send(vec![packet]);
        assert_eq!(out.len(), count);
        assert!(out.iter().all(|packet| packet.len() == 98 && packet.bytes().ends_with(&bytes)));
        left.release(out);
        left.pool.release_bulk(&mut all);
    }
    assert_eq!(left.dropped(DropReason::NoHeadroom), 1);
}
