//! Keepalives: those of the other end go back, answers to those of this end are taken.

use super::{PATH, ends, receive};
use crate::frames::{STATIONS, other, v4};
use crate::oracle::ends::{ADDRESSES, ADDRESSES_V6, End, MACS, Path, UNDERLAY, bytes_of, outer_frame};
use polder_datapath::drops::DropReason;
use polder_datapath::tunnel::{Carries, ReassemblyLimits, Stations, TunnelOptions};
use polder_datapath::units::Nanos;
use polder_datapath::wire::{Checksum, MacAddress, VlanId};

fn bare(options: &mut TunnelOptions) {
    let [far, near] = STATIONS.map(MacAddress);
    options.carries = Carries::Packets(Stations { near, far });
}

/// A GRE header with a protocol type, and with a key if there is one.
fn gre(protocol: u16, key: Option<u32>) -> Vec<u8> {
    let flags = if key.is_some() { 0x2000_u16 } else { 0 };
    let key = key.map(u32::to_be_bytes).into_iter().flatten();
    [flags.to_be_bytes(), protocol.to_be_bytes()].concat().into_iter().chain(key).collect()
}

/// An answer of the end with this number.
fn answer(from: usize, key: Option<u32>) -> Vec<u8> {
    outer_frame(from, 0, 0, 0, &gre(0, key))
}

/// A keepalive of the left end with its answer inside.
fn keepalive(key: Option<u32>) -> Vec<u8> {
    outer_frame(0, 0, 0, 0, &[gre(0x0800, key), answer(1, key)[14..].to_vec()].concat())
}

/// A frame with an IPv6 packet of GRE from the end with this number.
fn outer_v6(from: usize, payload: &[u8]) -> Vec<u8> {
    let length = u16::try_from(payload.len()).expect("a short payload").to_be_bytes();
    let start = [0x60, 0, 0, 0, length[0], length[1], 47, 64];
    let addresses = [ADDRESSES_V6[from].octets(), ADDRESSES_V6[1 - from].octets()].concat();
    [&MACS[1 - from].0[..], &MACS[from].0, &[0x86, 0xdd], &start, &addresses, payload].concat()
}

/// Frames that an end puts on the underlay by itself when `wire` arrives.
fn sent_back(end: &mut End, wire: &[u8], pieces: &[usize]) -> Vec<Vec<u8>> {
    let packet = end.packet(wire, pieces);
    let out = end.receive_any(vec![packet]);
    assert!(out.iter().all(|packet| (packet.ingress, packet.egress) == (UNDERLAY, UNDERLAY)));
    let bytes = out.iter().map(bytes_of).collect();
    end.release(out);
    bytes
}

/// The packet inside leaves as it is, to the next hop, in one piece or in several, behind padding too.
#[test]
fn a_keepalive_is_sent_back() {
    for key in [None, Some(0), Some(7)] {
        let (_left, mut right) = ends(|options| {
            bare(options);
            options.key = key;
        });
        assert_eq!(sent_back(&mut right, &keepalive(key), &[]), [answer(1, key)]);
        let padded = [keepalive(key), vec![0xaa; 9]].concat();
        assert_eq!(sent_back(&mut right, &padded, &[]), [answer(1, key)]);
        let count = right.state.total(|counters| &counters.keepalives_answered);
        assert_eq!((count, right.state.last_received()), (2, Some(right.now)));
        assert_eq!(right.state.total(|counters| &counters.received), 0, "nothing was taken out");
        right.state.next_hop.set_address(None);
        assert!(sent_back(&mut right, &keepalive(key), &[]).is_empty());
        assert_eq!(right.dropped(DropReason::TunnelNoNeighbour), 1);
    }
}

#[test]
fn a_keepalive_over_ipv6_and_one_in_a_vlan_are_sent_back() {
    let (_left, mut right) = ends(|options| {
        bare(options);
        let ends = if options.ends.local() == ADDRESSES[0] { [0, 1] } else { [1, 0] };
        let [near, far] = ends.map(|end| ADDRESSES_V6[end]);
        options.ends = (near, far).into();
    });
    let back = outer_v6(1, &gre(0, None));
    let wire = outer_v6(0, &[gre(0x86dd, None), back[14..].to_vec()].concat());
    assert_eq!(sent_back(&mut right, &wire, &[]), [back]);

    let path = Path { vlan: VlanId::configured(7), ..PATH };
    let mut end = End::new(1, path, ReassemblyLimits::default(), bare);
    let tagged = |frame: &[u8]| [&frame[..12], &[0x81, 0, 0, 7], &frame[12..]].concat();
    assert_eq!(sent_back(&mut end, &tagged(&keepalive(None)), &[]), [tagged(&answer(1, None))]);
}

/// The same frame with other addresses, source first, in the IPv4 packet at `at`.
fn between(mut frame: Vec<u8>, at: usize, addresses: [[u8; 4]; 2]) -> Vec<u8> {
    let header = &mut frame[at..at + 20];
    header[12..].copy_from_slice(&addresses.concat());
    header[10..12].fill(0);
    let sum = Checksum::new().with(header).finish();
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    frame
}

/// Offset of the packet inside a keepalive without a key.
const INSIDE: usize = 14 + 20 + 4;

/// Other makers write other addresses and another protocol type; the answer goes to the tunnel's other end in any case, and
/// nowhere else.
#[test]
fn keepalives_of_other_makers_are_answered_to_the_other_end_alone() {
    let [left, right] = ADDRESSES.map(|address| address.octets());
    let (natted, inside, third) =
        ([192, 168, 5, 15], [[172, 22, 74, 137], [172, 22, 74, 138]], [203, 0, 113, 9]);
    let (_peer, mut end) = ends(|options| {
        bare(options);
        options.addresses = [inside[0].into()].into();
    });
    let huawei = |mut frame: Vec<u8>| {
        frame[36..38].copy_from_slice(&[0, 4]);
        frame
    };
    let long = |bytes: usize| {
        let back = outer_frame(1, 0, 0, 0, &[gre(0, None), vec![0x55; bytes - 24]].concat());
        (outer_frame(0, 0, 0, 0, &[gre(0x0800, None), back[14..].to_vec()].concat()), back)
    };
    for (name, wire, answer) in [
        ("type 4", huawei(keepalive(None)), answer(1, None)),
        ("behind NAT", between(keepalive(None), INSIDE, [right, natted]), answer(1, None)),
        ("we behind NAT", between(keepalive(None), INSIDE, [natted, left]), answer(1, None)),
        ("addresses inside", between(keepalive(None), INSIDE, inside), answer(1, None)),
        ("type 4, inside", huawei(between(keepalive(None), INSIDE, inside)), answer(1, None)),
        ("a third party", between(keepalive(None), INSIDE, [right, third]), answer(1, None)),
        ("a group", between(keepalive(None), INSIDE, [right, [224, 0, 0, 5]]), answer(1, None)),
        ("128 bytes", long(128).0, long(128).1),
    ] {
        assert_eq!(sent_back(&mut end, &wire, &[]), [answer], "{name}");
    }
    assert_eq!(end.state.total(|counters| &counters.keepalives_answered), 8);
    // Nothing that is too long, from others to others, or with a route of its own is answered.
    let mut routed = keepalive(None);
    routed.splice(INSIDE + 20..INSIDE + 20, [131, 4, 4, 0]);
    (routed[17], routed[INSIDE], routed[INSIDE + 3]) = (routed[17] + 4, 0x46, routed[INSIDE + 3] + 4);
    let transit = between(keepalive(None), INSIDE, [inside[1], third]);
    let not_ours = between(keepalive(None), INSIDE, [third, right]);
    for wire in [long(129).0, transit, not_ours, between(routed, 14, [left, right])] {
        assert_eq!(receive(&mut end, &[wire]).len(), 1, "it is carried");
    }
    assert!(receive(&mut end, &[huawei(between(keepalive(None), INSIDE, [third, third]))]).is_empty());
    assert_eq!(end.dropped(DropReason::TunnelBadProtocol), 1);
    let stranger = between(keepalive(None), 14, [third, right]);
    assert!(receive(&mut end, &[stranger]).is_empty());
    assert_eq!(end.dropped(DropReason::NoTunnel), 1, "it is not from the tunnel's other end");
    assert_eq!(end.state.total(|counters| &counters.keepalives_answered), 8);
}

#[test]
fn no_more_than_twenty_keepalives_a_second_are_answered() {
    let (_peer, mut end) = ends(bare);
    let mut answered = |millis: u64, wanted: usize| {
        end.now = end.now + Nanos::from_millis(millis);
        (0..wanted).filter(|_| !sent_back(&mut end, &keepalive(None), &[]).is_empty()).count()
    };
    assert_eq!([answered(0, 30), answered(49, 1), answered(1, 5), answered(150, 5)], [20, 0, 1, 3]);
    assert_eq!(answered(60_000, 30), 20);
    let counted = end.state.total(|counters| &counters.keepalives_answered);
    assert_eq!((counted, end.dropped(DropReason::KeepaliveLimit)), (44, 71 - 44));
}

/// The packet inside has to be an empty one of GRE that leads back; all else is carried.
#[test]
fn what_only_looks_like_a_keepalive_is_carried() {
    let (_left, mut right) = ends(bare);
    let inside = [
        answer(0, None),
        outer_frame(1, 0, 0, 0, &gre(0x0800, None)),
        outer_frame(1, 0, 0, 0, &[0, 0]),
        outer_frame(1, 0, 0, 0x2000, &gre(0, None)),
        v4(&[], 0, 64, true, 100),
    ];
    for inside in inside {
        let wire = outer_frame(0, 0, 0, 0, &[gre(0x0800, None), inside[14..].to_vec()].concat());
        let out = receive(&mut right, &[wire]);
        assert_eq!(out.first().map(|frame| &frame[14..]), Some(&inside[14..]));
    }
    let mut broken = keepalive(None);
    broken[24 + 14 + 10] ^= 1;
    assert_eq!(receive(&mut right, &[broken]).len(), 1, "with a wrong checksum inside");
    assert_eq!(right.state.total(|counters| &counters.keepalives_answered), 0);
    let (_frames, mut rest) = ends(|_| {});
    assert!(receive(&mut rest, &[keepalive(None)]).is_empty(), "a tunnel of frames carries no packets");
    assert_eq!(rest.dropped(DropReason::TunnelBadProtocol), 1);
}

/// An end that has sent none takes no answer, and one that has takes those with its station alone.
#[test]
fn an_answer_is_taken_by_an_end_with_keepalives() {
    for key in [None, Some(9)] {
        let (mut left, _right) = ends(|options| {
            bare(options);
            (options.key, options.keepalive) = (key, Some(MACS[0]));
        });
        let own = outer_frame(1, 0, 0, 0, &[&gre(0, key)[..], &MACS[0].0].concat());
        let forged = outer_frame(1, 0, 0, 0, &[&gre(0, key)[..], &MACS[1].0].concat());
        assert!(receive(&mut left, &[answer(1, key), forged]).is_empty());
        assert_eq!((left.state.last_keepalive(), left.dropped(DropReason::TunnelBadProtocol)), (None, 2));
        assert!(receive(&mut left, &[own.clone(), own]).is_empty());
        assert_eq!((left.ledger.delivered.get(), left.drops.total()), (2, 2));
        assert_eq!(left.state.total(|counters| &counters.keepalives_heard), 2);
        let now = Some(left.now);
        assert_eq!((left.state.last_keepalive(), left.state.last_received()), (now, now));
        assert!(receive(&mut left, &[answer(1, Some(8))]).is_empty());
        assert_eq!(left.dropped(DropReason::NoTunnel), 1, "the key of another tunnel");
    }
    let (mut left, _right) = ends(bare);
    assert!(receive(&mut left, &[answer(1, None)]).is_empty());
    assert_eq!(left.dropped(DropReason::TunnelBadProtocol), 1);
}

/// In a tunnel of frames an answer is a frame for the station that asks.
#[test]
fn frames_for_the_station_that_asks_are_answers() {
    let station = MacAddress([2, 9, 9, 9, 9, 9]);
    let (mut left, _right) = ends(|options| options.keepalive = Some(station));
    let frame = [&station.0[..], &other(&[], 60)[6..]].concat();
    let outer = |frame: &[u8]| outer_frame(1, 0, 0, 0, &[gre(0x6558, None), frame.to_vec()].concat());
    let out = receive(&mut left, &[outer(&other(&[], 60)), outer(&frame), outer(&other(&[], 61))]);
    assert_eq!(out, [other(&[], 60), other(&[], 61)]);
    assert_eq!((left.ledger.delivered.get(), left.state.last_keepalive()), (1, Some(left.now)));
}
