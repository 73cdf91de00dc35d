//! Frames in VXLAN, both ways; what is wrong with a packet is said.

use super::{receive, send};
use crate::frames::{content, other, v4, v6};
use crate::oracle::ends::TUNNEL;
use crate::oracle::vxlan::{Choice, PORT, VNI, arrives, outer, reference, right, sum, vxlan};
use polder_datapath::drops::DropReason;
use polder_datapath::flags::NEEDS_SEQUENCE;
use proptest::prelude::*;

fn choices() -> impl Iterator<Item = Choice> {
    (0..8).map(Choice::of)
}

/// Bytes of the outer headers before UDP.
fn before(choice: Choice) -> usize {
    if choice.is_v6 { 54 } else { 34 }
}

#[test]
fn what_goes_in_comes_out() {
    for choice in choices().filter(|choice| !choice.is_v6 || choice.checksum || choice.accepts_zero) {
        let (mut left, mut right) = (choice.end(0), choice.end(1));
        let frames =
            [v4(&[], 0, 64, true, 100), v6(&[7], 0, 64, 1301), other(&[], 14), other(&[1, 2], 61)].to_vec();
        let wire = send(&mut left, &frames);
        assert_eq!(receive(&mut right, &wire), frames, "{choice:?}");
        let counted = |end: &crate::oracle::ends::End| {
            let state = &end.state;
            (state.total(|counters| &counters.sent), state.total(|counters| &counters.received))
        };
        assert_eq!((counted(&left), counted(&right)), ((4, 0), (0, 4)));
    }
}

/// RFC 7348, 5; RFC 6935.
#[test]
fn headers_are_right() {
    for choice in choices() {
        let mut left = choice.end(0);
        for wire in send(&mut left, &[v4(&[], 0, 64, true, 100), other(&[], 61), v6(&[], 0, 64, 1400)]) {
            let udp = &wire[before(choice)..];
            assert_eq!(udp[2..4], PORT.to_be_bytes());
            assert_eq!(usize::from(u16::from_be_bytes([udp[4], udp[5]])), udp.len());
            assert!(u16::from_be_bytes([udp[0], udp[1]]) >= 0xc000, "a dynamic port");
            assert_eq!(udp[8..12], [8, 0, 0, 0]);
            assert_eq!(udp[12..16], (VNI << 8).to_be_bytes());
            assert_eq!(udp[6..8] != [0, 0], choice.checksum);
            assert!(!choice.checksum || sum(choice.is_v6, udp) == 0xffff, "the checksum");
            assert!(choice.is_v6 || wire[20] == 0x40, "not to be fragmented");
        }
    }
}

/// One flow has one source port, and flows have several.
#[test]
fn source_ports_are_of_flows() {
    let choice = Choice::of(0);
    let mut left = choice.end(0);
    let frame = |last: u8, length| {
        let mut frame = v4(&[], 0, 64, true, length);
        frame[33] = last;
        frame
    };
    let mut ports = (0..32_u8).map(|last| {
        let wire = send(&mut left, &[frame(last, 100), frame(last, 700)]);
        let ports = wire.iter().map(|wire| [wire[34], wire[35]]).collect::<Vec<_>>();
        assert_eq!(ports[0], ports[1], "one flow");
        ports[0]
    });
    let mut all = ports.by_ref().collect::<Vec<_>>();
    all.sort_unstable();
    all.dedup();
    assert!(all.len() > 24, "{} ports of 32 flows", all.len());
}

#[test]
fn each_fault_has_its_reason() {
    use DropReason as R;
    let frame = content(60);
    for choice in choices() {
        let mut end = choice.end(1);
        let good = right(choice, &frame);
        let changed = |change: &dyn Fn(&mut Vec<u8>)| {
            let mut datagram = good.clone();
            // Without a checksum, one fault alone is there.
            change(&mut datagram);
            datagram
        };
        let cases = [
            (R::UdpTruncated, good[..7].to_vec()),
            (R::UdpBadLength, good[..8].to_vec()),
            (R::UdpBadLength, changed(&|bytes| bytes[5] = 7)),
            (R::UdpBadLength, changed(&|bytes| bytes[5] += 1)),
            (R::NotForUs, changed(&|bytes| bytes[3] ^= 1)),
            (R::VxlanTruncated, changed(&|bytes| bytes[5] = 15)),
            (R::VxlanNoNetwork, changed(&|bytes| bytes[8] = 0xf7)),
            (R::NoTunnel, changed(&|bytes| bytes[14] ^= 1)),
            (R::UdpBadChecksum, changed(&|bytes| bytes[40] ^= 1)),
            (R::UdpBadChecksum, changed(&|bytes| bytes[15] ^= 1)),
            (R::EthernetTruncated, right(choice, &frame[..13])),
            (R::EthernetTruncated, right(choice, &[])),
        ];
        for (reason, datagram) in cases {
            assert_eq!(reference(choice, &datagram), Err(reason), "{choice:?}");
            arrives(&mut end, choice, &datagram);
        }
        let zero = changed(&|bytes| bytes[6..8].fill(0));
        let is_taken = !choice.is_v6 || choice.accepts_zero;
        assert_eq!(reference(choice, &zero).is_ok(), is_taken);
        arrives(&mut end, choice, &zero);
        let bad = end.state.total(|counters| &counters.bad_checksum);
        assert_eq!(bad, 2 + u64::from(!is_taken), "the tunnel's own counter");
        // Bytes behind the UDP length are no part of the frame.
        let mut longer = good.clone();
        longer.extend([0xff; 9]);
        arrives(&mut end, choice, &longer);
    }
}

#[test]
fn fragments_are_not_taken() {
    let choice = Choice::of(0);
    let mut end = choice.end(1);
    for fragment in [[0x20, 0], [0, 3]] {
        let mut frame = outer(false, 17, &right(choice, &content(60)));
        frame[20..22].copy_from_slice(&fragment);
        frame[24..26].fill(0);
        let checksum = !crate::oracle::naive_sum(&frame[14..34]);
        frame[24..26].copy_from_slice(&checksum.to_be_bytes());
        assert!(receive(&mut end, &[frame]).is_empty());
    }
    assert_eq!(end.dropped(DropReason::VxlanFragment), 2);
}

/// An outer packet of ours that comes to be put into a tunnel again, and other UDP.
#[test]
fn outer_packets_are_not_put_into_a_tunnel() {
    for choice in [Choice::of(2), Choice::of(3)] {
        let mut left = choice.end(0);
        let wire = send(&mut left, &[v4(&[], 0, 64, true, 100)]);
        assert!(send(&mut left, &wire).is_empty());
        assert_eq!(left.dropped(DropReason::TunnelRecursion), 1);
        let mut other = wire[0].clone();
        other[before(choice) + 3] ^= 1;
        assert_eq!(send(&mut left, &[other]).len(), 1, "for another port");
    }
}

/// Nothing is cut, and senders hear of it.
#[test]
fn too_big() {
    let choice = Choice::of(0);
    let mut left = choice.end(0);
    let packet = left.packet(&v4(&[], 0, 64, true, 1551), &[]);
    let (out, replies) = left.send(vec![packet]);
    assert_eq!((out.len(), replies.len()), (0, 1));
    assert_eq!(replies[0].bytes()[40..42], 1550_u16.to_be_bytes());
    left.release(replies);
    let packet = left.packet(&v4(&[], 0, 64, false, 1551), &[]);
    let (out, replies) = left.send(vec![packet]);
    assert_eq!((out.len(), replies.len(), left.dropped(DropReason::TunnelTooBig)), (0, 0, 2));
    let packet = left.packet(&v4(&[], 0, 64, false, 1550), &[]);
    let (out, _) = left.send(vec![packet]);
    assert_eq!((out[0].ingress, out[0].flags & NEEDS_SEQUENCE, out[0].len()), (TUNNEL, 0, 1614));
    left.release(out);
}

/// In frames of any length.
#[test]
fn chains_are_checked_and_summed() {
    for choice in [Choice::of(2), Choice::of(3)] {
        let (mut left, mut right) = (choice.end(0), choice.end(1));
        let frame = v4(&[], 0, 64, true, 1301);
        let packet = left.packet(&frame, &[101, 300, 7]);
        let (out, _) = left.send(vec![packet]);
        let wire = out.iter().map(crate::oracle::ends::bytes_of).collect::<Vec<_>>();
        left.release(out);
        let packet = right.packet(&wire[0], &[150, 33, 501]);
        let out = right.receive(vec![packet]);
        assert_eq!(out.iter().map(crate::oracle::ends::bytes_of).collect::<Vec<_>>(), [frame]);
        right.release(out);
    }
}

proptest! {
    /// Any bytes behind an IP header, and any change of a packet that is right.
    #[test]
    fn the_reference_agrees(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        vxlan(&bytes);
    }

    #[test]
    fn the_reference_agrees_on_changes(
        bits in 0..8_u8,
        changes in prop::collection::vec((0..40_usize, any::<u8>()), 0..3),
        length in 0..90_usize,
    ) {
        let choice = Choice::of(bits);
        let mut end = choice.end(1);
        let mut datagram = right(choice, &content(length));
        for (at, byte) in changes {
            if let Some(place) = datagram.get_mut(at) {
                *place = byte;
            }
        }
        arrives(&mut end, choice, &datagram);
    }
}
