//! Out of the tunnel: whose packet it is, what it has to carry, and what it does to the frame inside.

use super::{carry, ends, receive, send};
use crate::frames::{V4, content, other, tcp, v4, v4_of, v6};
use crate::oracle::ends::{End, MACS, Path, TUNNEL, UNDERLAY, bytes_of, outer_frame};
use crate::oracle::{naive_pseudo_sum, naive_sum};
use polder_buffers::{Batch, ChecksumState, PortId};
use polder_datapath::drops::{Context, DROPPED, DropReason};
use polder_datapath::offload::complete_checksum;
use polder_datapath::tunnel::{DecapsulateState, ReassemblyLimits, TunnelOptions, decapsulate};
use polder_datapath::units::Nanos;
use polder_datapath::wire::{Ecn, VlanId};

const DONT_FRAGMENT: u16 = 0x4000;

/// A GRE header and a frame behind it.
fn gre(flags: u8, fields: &[u32], frame: &[u8]) -> Vec<u8> {
    let fields = fields.iter().flat_map(|field| field.to_be_bytes()).collect::<Vec<_>>();
    [&[flags, 0, 0x65, 0x58][..], &fields, frame].concat()
}

fn whole(packet: &[u8]) -> Vec<u8> {
    outer_frame(0, 0, 0, DONT_FRAGMENT, packet)
}

/// Drop reason for a packet at a tunnel with options changed by `change`.
fn refusal(change: impl Fn(&mut TunnelOptions), wire: &[u8]) -> Option<DropReason> {
    let (_left, mut right) = ends(change);
    let out = receive(&mut right, &[wire.to_vec()]);
    let reasons = right.drops.occurred().collect::<Vec<_>>();
    assert_eq!(out.len() + reasons.len(), 1);
    reasons.first().map(|reason| reason.0)
}

#[test]
fn only_packets_of_the_tunnel_are_taken() {
    let inside = other(&[], 60);
    let right = whole(&gre(0, &[], &inside));
    let changed = |at: usize, bytes: &[u8]| {
        let mut frame = right.clone();
        frame[at..at + bytes.len()].copy_from_slice(bytes);
        frame[24..26].fill(0);
        let checksum = !naive_sum(&frame[14..34]);
        frame[24..26].copy_from_slice(&checksum.to_be_bytes());
        frame
    };
    let cases = [
        (None, right.clone()),
        (Some(DropReason::NotForUs), changed(0, &MACS[0].0)),
        (Some(DropReason::NotForUs), changed(0, &[0xff; 6])),
        (Some(DropReason::Ipv6BadVersion), changed(12, &[0x86, 0xdd])),
        (Some(DropReason::NotForUs), changed(12, &[0x08, 0x06])),
        (Some(DropReason::NotForUs), [&right[..12], &[0x81, 0, 0, 7], &right[12..]].concat()),
        (Some(DropReason::NotForUs), [&right[..12], &[0x81, 0, 0xef, 0xff], &right[12..]].concat()),
        (None, [&right[..12], &[0x81, 0, 0xe0, 0], &right[12..]].concat()),
        (Some(DropReason::NotForUs), changed(23, &[17])),
        (Some(DropReason::NoTunnel), changed(26, &[192, 168, 10, 2])),
        (Some(DropReason::NoTunnel), changed(30, &[192, 168, 20, 2])),
        (Some(DropReason::TunnelBadProtocol), changed(36, &[0x08, 0x00])),
        (Some(DropReason::GreBadVersion), changed(35, &[1])),
        (Some(DropReason::GreBadFlags), changed(34, &[0x40])),
        (Some(DropReason::Ipv4BadVersion), changed(14, &[0x65])),
        (Some(DropReason::Ipv4BadTotalLength), changed(16, &[0xff, 0xff])),
        (Some(DropReason::GreTruncated), changed(16, &[0, 23])),
        (Some(DropReason::EthernetTruncated), changed(16, &[0, 37])),
        (None, changed(16, &[0, 38])),
        (Some(DropReason::Ipv4BadChecksum), {
            let mut frame = right.clone();
            frame[22] = 63;
            frame
        }),
    ];
    for (number, (expected, wire)) in cases.into_iter().enumerate() {
        assert_eq!(refusal(|_| {}, &wire), expected, "case {number}");
    }
}

/// RFC 2890, 2.1: the key tells tunnels apart, and none is not the same as zero.
#[test]
fn keys_have_to_agree() {
    let frame = other(&[], 60);
    let (with, without) = (|key| whole(&gre(0x20, &[key], &frame)), whole(&gre(0, &[], &frame)));
    let keyed = |key| move |options: &mut TunnelOptions| options.key = key;
    assert_eq!(refusal(keyed(Some(7)), &with(7)), None);
    assert_eq!(refusal(keyed(Some(7)), &with(8)), Some(DropReason::NoTunnel));
    assert_eq!(refusal(keyed(Some(7)), &without), Some(DropReason::NoTunnel));
    assert_eq!(refusal(keyed(Some(0)), &with(0)), None);
    assert_eq!(refusal(keyed(Some(0)), &without), Some(DropReason::NoTunnel));
    assert_eq!(refusal(keyed(None), &with(0)), Some(DropReason::NoTunnel));
}

/// RFC 2784, 2.3: a checksum that is there is looked at, asked for or not.
#[test]
fn checksums_are_looked_at() {
    let frame = other(&[], 61);
    let mut right = gre(0x80, &[0], &frame);
    let checksum = !naive_sum(&right);
    right[4..6].copy_from_slice(&checksum.to_be_bytes());
    let mut wrong = right.clone();
    wrong[40] ^= 1;
    let padded = [&whole(&right)[..], &[0xff; 7]].concat();
    let ask = |options: &mut TunnelOptions| options.checksum = true;
    let without = whole(&gre(0, &[], &frame));
    assert_eq!(refusal(ask, &whole(&right)), None);
    assert_eq!(refusal(ask, &padded), None, "padding is not summed");
    assert_eq!(refusal(ask, &whole(&wrong)), Some(DropReason::GreBadChecksum));
    assert_eq!(refusal(ask, &without), Some(DropReason::TunnelMissingChecksum));
    assert_eq!(refusal(|_| {}, &whole(&right)), None);
    assert_eq!(refusal(|_| {}, &whole(&wrong)), Some(DropReason::GreBadChecksum));
}

/// RFC 2890, 2.2, and a new beginning after a silence.
#[test]
fn sequence_numbers_go_forward() {
    let (_left, mut right) = ends(|options| options.sequence = true);
    let frame = other(&[], 60);
    let accepts = |right: &mut End, number: u32| {
        right.now = right.now + Nanos::from_millis(1);
        !receive(right, &[whole(&gre(0x10, &[number], &frame))]).is_empty()
    };
    assert_eq!(
        refusal(|options| options.sequence = true, &whole(&gre(0, &[], &frame))),
        Some(DropReason::TunnelMissingSequence)
    );
    assert!(accepts(&mut right, 5), "any number begins");
    assert!(!accepts(&mut right, 5), "once");
    assert!(!accepts(&mut right, 4));
    assert!(accepts(&mut right, 6));
    assert!(accepts(&mut right, 100), "a gap is not waited for");
    assert!(!accepts(&mut right, 99), "what comes late is late");
    assert!(accepts(&mut right, 100 + 0x7fff_ffff), "the furthest that is new");
    assert!(!accepts(&mut right, 100), "half way round");
    assert!(accepts(&mut right, u32::MAX));
    assert!(accepts(&mut right, 0), "numbers wrap");
    assert!(!accepts(&mut right, u32::MAX));
    assert_eq!(right.dropped(DropReason::TunnelOutOfSequence), 5);
    assert_eq!(right.state.total(|counters| &counters.out_of_sequence), 5);
    right.now = right.now + Nanos::SECOND;
    assert!(accepts(&mut right, u32::MAX), "the other end has begun anew");
    assert!(!accepts(&mut right, u32::MAX - 1), "and goes on from there");
    assert_eq!(right.state.total(|counters| &counters.resynchronised), 1);
}

/// Within a batch as over several.
#[test]
fn sequence_numbers_within_a_batch() {
    let (_left, mut right) = ends(|options| options.sequence = true);
    let numbered = |number: u32| whole(&gre(0x10, &[number], &other(&[], 60 + number as usize)));
    let wire = [3, 1, 4, 4, 2, 5].map(numbered);
    let lengths = receive(&mut right, &wire).iter().map(Vec::len).collect::<Vec<_>>();
    assert_eq!(lengths, [63, 64, 65]);
    assert_eq!(right.dropped(DropReason::TunnelOutOfSequence), 3);
}

/// A port in a VLAN accepts its own tag, and no other.
#[test]
fn the_underlays_vlan() {
    let vlan = VlanId::configured(7);
    let frame = whole(&gre(0, &[], &other(&[], 60)));
    let tagged = |control: u16| [&frame[..12], &[0x81, 0], &control.to_be_bytes(), &frame[12..]].concat();
    for (wire, is_ours) in
        [(tagged(7), true), (tagged(0xe007), true), (tagged(8), false), (frame.clone(), false)]
    {
        let mut end = End::new(1, Path { mtu: 1500, vlan }, ReassemblyLimits::default(), |_| {});
        assert_eq!(receive(&mut end, &[wire]).len(), usize::from(is_ours));
        assert_eq!(end.dropped(DropReason::NotForUs), u64::from(!is_ours));
    }
}

/// RFC 791, 3.1: options are jumped over. Ethernet pads what is short.
#[test]
fn options_and_padding() {
    let frame = other(&[], 20);
    let mut wire = whole(&gre(0, &[], &frame));
    wire.splice(34..34, [7, 7, 4, 0, 0, 0, 0, 0]);
    wire[14] = 0x47;
    wire[17] += 8;
    wire[24..26].fill(0);
    let checksum = !naive_sum(&wire[14..42]);
    wire[24..26].copy_from_slice(&checksum.to_be_bytes());
    wire.extend([0xee; 9]);
    let (_left, mut right) = ends(|_| {});
    assert_eq!(receive(&mut right, &[wire]), [frame]);
}

/// RFC 6040, figure 4, in the packet inside with its checksum, whatever tags it has.
#[test]
fn congestion_crosses_into_the_packet_inside() {
    for (outer, inner) in (0..4_u8).flat_map(|outer| (0..4_u8).map(move |inner| (outer, inner))) {
        for tags in [&[][..], &[7], &[7, 8]] {
            let class = 0xb8 | inner;
            check_congestion(outer, inner, tags.len() * 4 + 14, &v4(tags, class, 64, false, 60));
            check_congestion(outer, inner, tags.len() * 4 + 14, &v6(tags, class, 64, 60));
        }
    }
    // What is not IP has no place for it.
    let (_left, mut right) = ends(|_| {});
    let frame = other(&[], 60);
    assert_eq!(receive(&mut right, &[outer_frame(0, 3, 0, DONT_FRAGMENT, &gre(0, &[], &frame))]), [frame]);
}

fn check_congestion(outer: u8, inner: u8, link: usize, frame: &[u8]) {
    let (_left, mut right) = ends(|_| {});
    // The outer code point stays outside (RFC 2983).
    let wire = outer_frame(0, 0x28 | outer, 0, DONT_FRAGMENT, &gre(0, &[], frame));
    let out = receive(&mut right, &[wire]);
    let expected = Ecn::decapsulate(Ecn::from_bits(outer), Ecn::from_bits(inner));
    assert_eq!(right.dropped(DropReason::EcnNotCapable), u64::from(expected.is_err()));
    assert_eq!(right.state.total(|counters| &counters.not_ecn_capable), u64::from(expected.is_err()));
    assert_eq!(out.is_empty(), expected.is_err());
    if let (Some(out), Ok(ecn)) = (out.first(), expected) {
        let class = 0xb8 | ecn.bits();
        if frame[link] >> 4 == 4 {
            assert_eq!(out[link + 1], class);
            assert_eq!(naive_sum(&out[link..link + 20]), 0xffff, "header checksum");
            assert_eq!(out[link + 20..], frame[link + 20..]);
        } else {
            assert_eq!([out[link] & 15, out[link + 1] >> 4], [class >> 4, class & 15]);
            assert_eq!(out[link + 2..], frame[link + 2..]);
        }
        assert_eq!(out[..link], frame[..link]);
    }
}

/// Other ports' packets and those that are dropped already pass.
#[test]
fn what_is_not_on_an_underlay_passes() {
    let (_left, mut right) = ends(|_| {});
    let wire = whole(&gre(0, &[], &other(&[], 60)));
    let mut batch = Batch::new();
    let mut packet = right.packet(&wire, &[]);
    packet.ingress = PortId(3);
    batch.push(packet).expect("room");
    let mut packet = right.packet(&wire, &[]);
    packet.egress = DROPPED;
    packet.ingress = UNDERLAY;
    batch.push(packet).expect("room");
    let mut state = DecapsulateState::new(0, ReassemblyLimits::default());
    let End { pool, drops, ledger, now, tunnels, .. } = &mut right;
    let mut context = Context { now: *now, pool, drops, ledger };
    decapsulate(&mut batch, tunnels, &mut state, &mut context);
    assert_eq!(batch.iter().map(bytes_of).collect::<Vec<_>>(), [wire.clone(), wire]);
    assert_eq!((batch[0].ingress, right.drops.total()), (PortId(3), 0));
    right.pool.release(&mut batch);
}

/// Metadata of the outer packet do not apply to the inner one.
#[test]
fn what_devices_say_is_of_the_outer_packet() {
    let (_left, mut right) = ends(|_| {});
    let mut packet = right.packet(&whole(&gre(0, &[], &other(&[], 60))), &[]);
    packet.checksum = ChecksumState::Verified;
    packet.flow_hash = 77;
    packet.vlan = 9;
    let head = packet.head().index();
    let out = right.receive(vec![packet]);
    let inside = &out[0];
    assert_eq!((inside.checksum, inside.flow_hash, inside.vlan), (ChecksumState::Unknown, 0, 0));
    assert_eq!((inside.ingress, inside.network_offset, inside.transport_offset), (TUNNEL, 14, 0));
    assert_eq!((inside.flags, inside.head().index()), (0, head), "in the frame that it came in");
    right.release(out);
}

/// The counters by which a person sees that a tunnel lives.
#[test]
fn a_tunnel_that_lives() {
    let (mut left, mut right) = ends(|_| {});
    assert_eq!(right.state.last_received(), None);
    let frames = [other(&[], 60), v4(&[], 0, 64, true, 1000)];
    assert_eq!(carry(&mut left, &mut right, &frames), frames);
    let (sent, received) = (&left.state, &right.state);
    assert_eq!(sent.total(|counters| &counters.sent), 2);
    assert_eq!(sent.total(|counters| &counters.sent_bytes), 60 + 1014);
    assert_eq!(received.total(|counters| &counters.received), 2);
    assert_eq!(received.total(|counters| &counters.received_bytes), 60 + 1014);
    assert_eq!(received.last_received(), Some(right.now));
}

/// The checksum around a local sender's unfinished one is looked at as it is with that one finished; the latter stays
/// unfinished.
#[test]
fn a_partial_checksum_under_a_checksum() {
    let change = |options: &mut TunnelOptions| options.checksum = true;
    let (mut left, mut right) = ends(change);
    let payload = content(301);
    let segment = tcp(false, 0x10, &[], &payload);
    let finished = v4_of(&[], 0, 64, true, 6, &segment);
    let mut wire = send(&mut left, std::slice::from_ref(&finished));
    let start = wire[0].len() - segment.len();
    let pseudo = naive_pseudo_sum(&V4[0], &V4[1], 6, &[]);
    let pseudo = naive_sum(&[&pseudo.to_be_bytes()[..], &321_u16.to_be_bytes()].concat());
    wire[0][start + 16..start + 18].copy_from_slice(&pseudo.to_be_bytes());
    let mut packet = right.packet(&wire[0], &[]);
    packet.checksum = ChecksumState::Partial;
    packet.checksum_start = u16::try_from(start).expect("a short packet");
    packet.checksum_offset = 16;
    let mut out = right.receive(vec![packet]);
    assert_eq!((out[0].checksum, out[0].checksum_start), (ChecksumState::Partial, 34));
    complete_checksum(&mut out[0]).expect("in the packet");
    assert_eq!(out.iter().map(bytes_of).collect::<Vec<_>>(), [finished]);
    right.release(out);
}
