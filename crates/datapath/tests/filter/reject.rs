//! Messages to the senders of rejected packets, read back by another implementation.

use crate::oracle::Spec;
use etherparse::{Icmpv4Slice, Icmpv6Slice, NetSlice, SlicedPacket, TransportSlice};
use polder_buffers::{Batch, Packet, PortId, Region, RegionOptions};
use polder_datapath::drops::{Context, DropCounters, Ledger};
use polder_datapath::filter::{Action, Direction, FilterState, Filters, Rule, RuleCounts, filter};
use polder_datapath::units::Nanos;
use polder_datapath::wire::{Checksum, IpProtocol, Ipv4, Ipv6, Pseudo, Upper};

/// The answers to frames that a rule rejects, and how many got none.
fn answers(frames: &[Vec<u8>], now: Nanos, state: &mut FilterState) -> Vec<Vec<u8>> {
    let region = Region::new(RegionOptions { slots: 256, slot_bytes: 2048 }).expect("memory for a test");
    let mut pool = region.pool();
    let mut counts = RuleCounts::new(1);
    counts.grow_to(1);
    let rule = Rule { action: Action::Reject, ..Rule::default() };
    let filters = Filters::new(&[(rule, 0)], Vec::new(), counts).expect("one rule");
    let (drops, ledger) = (DropCounters::default(), Ledger::default());
    let mut batch = Batch::new();
    for frame in frames {
        let mut packet = Packet::copy_from(frame, &mut pool).expect("a free slot");
        packet.ingress = PortId(3);
        batch.push(packet).expect("at most a batch");
    }
    let mut context = Context { now, pool: &mut pool, drops: &drops, ledger: &ledger };
    filter(&mut batch, Direction::In, &filters, state, &mut context);
    let replies = state.replies.iter().map(|reply| {
        assert_eq!((reply.ingress, reply.egress), (PortId(3), PortId(3)), "back to where it came from");
        reply.bytes().to_vec()
    });
    let replies = replies.collect::<Vec<_>>();
    assert_eq!(ledger.generated.get(), replies.len() as u64);
    assert_eq!(drops.total(), frames.len() as u64);
    pool.release(&mut batch);
    pool.release(&mut state.replies);
    replies
}

fn answer(frame: &[u8]) -> Option<Vec<u8>> {
    answers(&[frame.to_vec()], Nanos(1), &mut FilterState::new(0, std::sync::Arc::default())).pop()
}

/// A frame whose checksums are right.
fn frame(spec: &Spec) -> Vec<u8> {
    let mut bytes = spec.bytes();
    let at = if spec.tag.is_some() { 18 } else { 14 };
    let is_v4 = spec.source.is_ipv4();
    let (header, pseudo) = if is_v4 {
        let checksum = Checksum::of(&bytes[at..at + 20]);
        bytes[at + 10..at + 12].copy_from_slice(&checksum.to_be_bytes());
        (20, Ipv4::parse(&bytes[at..]).expect("IPv4").pseudo())
    } else {
        (40, Ipv6::parse(&bytes[at..]).expect("IPv6").pseudo())
    };
    let field = at + header + if spec.protocol == 6 { 16 } else { 6 };
    if [6, 17].contains(&spec.protocol) {
        bytes[field..field + 2].fill(0);
        let sum = pseudo.sum_over(IpProtocol(spec.protocol), &bytes[at + header..]).finish();
        bytes[field..field + 2].copy_from_slice(&sum.to_be_bytes());
    }
    bytes
}

fn six(spec: Spec) -> Spec {
    let address = |last: u16| std::net::Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last).into();
    Spec { source: address(1), destination: address(2), ..spec }
}

fn tcp(flags: u8) -> Spec {
    Spec { protocol: 6, flags, source_port: 4000, destination_port: 22, ..Spec::default() }
}

const SYN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 16;

#[test]
fn tcp_is_reset_as_rfc_9293_says() {
    for base in [tcp(SYN), six(tcp(SYN)), Spec { tag: Some(12), ..tcp(SYN) }] {
        let mut asked = frame(&base);
        let at = asked.len() - 20;
        asked[at + 4..at + 8].copy_from_slice(&u32::MAX.to_be_bytes());
        fix(&mut asked, &base);
        let reply = answer(&asked).expect("an answer");
        assert_eq!((&reply[..6], &reply[6..12]), (&asked[6..12], &asked[..6]), "the other way round");
        let sliced = SlicedPacket::from_ethernet(&reply).expect("a packet");
        assert_eq!(sliced.vlan_ids().first().map(|vlan| vlan.value()), base.tag);
        let Some(TransportSlice::Tcp(segment)) = sliced.transport else { panic!("TCP") };
        assert!(segment.rst() && segment.ack() && !segment.syn());
        assert_eq!((segment.source_port(), segment.destination_port()), (22, 4000));
        assert_eq!(
            (segment.sequence_number(), segment.acknowledgment_number()),
            (0, 0),
            "a SYN counts, and wraps"
        );
        assert_checksum(&reply);
    }
    let mut asked = frame(&tcp(ACK));
    let at = asked.len() - 20;
    asked[at + 8..at + 12].copy_from_slice(&77_u32.to_be_bytes());
    fix(&mut asked, &tcp(ACK));
    let reply = answer(&asked).expect("an answer");
    let Some(TransportSlice::Tcp(segment)) = SlicedPacket::from_ethernet(&reply).expect("a packet").transport
    else {
        panic!("TCP")
    };
    assert!(segment.rst() && !segment.ack());
    assert_eq!(segment.sequence_number(), 77);
}

/// Makes the TCP checksum right again.
fn fix(frame: &mut [u8], spec: &Spec) {
    let at = frame.len() - 20;
    frame[at + 16..at + 18].fill(0);
    let pseudo = match (spec.source, spec.destination) {
        (std::net::IpAddr::V4(source), std::net::IpAddr::V4(destination)) => {
            Pseudo::V4 { source, destination }
        }
        (std::net::IpAddr::V6(source), std::net::IpAddr::V6(destination)) => {
            Pseudo::V6 { source, destination }
        }
        _ => panic!("two families"),
    };
    let sum = pseudo.sum_over(IpProtocol::TCP, &frame[at..]).finish();
    frame[at + 16..at + 18].copy_from_slice(&sum.to_be_bytes());
}

fn assert_checksum(reply: &[u8]) {
    let sliced = SlicedPacket::from_ethernet(reply).expect("a packet");
    match sliced.net {
        Some(NetSlice::Ipv4(ip)) => {
            let packet =
                Ipv4::parse(&reply[reply.len() - usize::from(ip.header().total_len())..]).expect("IPv4");
            packet.verify().expect("a right checksum");
            let whole = packet.payload();
            let sum = match packet.protocol() {
                IpProtocol::ICMP => Checksum::new().with(whole),
                protocol => packet.pseudo().sum_over(protocol, whole),
            };
            assert!(sum.is_valid());
        }
        Some(NetSlice::Ipv6(ip)) => {
            let length = 40 + usize::from(ip.header().payload_length());
            let packet = Ipv6::parse(&reply[reply.len() - length..]).expect("IPv6");
            let Upper { protocol, payload, .. } = packet.upper().expect("no extensions");
            assert!(packet.pseudo().sum_over(protocol, payload).is_valid());
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn others_get_an_icmp_error_with_their_packet_in_it() {
    for (spec, code4, code6) in [(Spec::default(), 3, 4), (Spec { protocol: 47, ..Spec::default() }, 13, 1)] {
        let asked = frame(&spec);
        let reply = answer(&asked).expect("an answer");
        let sliced = SlicedPacket::from_ethernet(&reply).expect("a packet");
        let Some(TransportSlice::Icmpv4(icmp)) = sliced.transport else { panic!("ICMP") };
        let icmp: Icmpv4Slice<'_> = icmp;
        assert_eq!((icmp.type_u8(), icmp.code_u8(), icmp.payload()), (3, code4, &asked[14..]));
        assert_checksum(&reply);
        let asked = frame(&six(spec));
        let reply = answer(&asked).expect("an answer");
        let sliced = SlicedPacket::from_ethernet(&reply).expect("a packet");
        let Some(TransportSlice::Icmpv6(icmp)) = sliced.transport else { panic!("ICMPv6") };
        let icmp: Icmpv6Slice<'_> = icmp;
        assert_eq!((icmp.type_u8(), icmp.code_u8(), icmp.payload()), (1, code6, &asked[14..]));
        assert_checksum(&reply);
    }
}

#[test]
fn nobody_is_told_who_must_not_be() {
    assert!(answer(&frame(&Spec::default())).is_some(), "the control");
    let mut wrong_header = frame(&Spec::default());
    wrong_header[24] ^= 1;
    let mut wrong_sum = frame(&Spec::default());
    *wrong_sum.last_mut().expect("bytes") ^= 1;
    let mut to_group = frame(&Spec::default());
    to_group[0] = 3;
    let mut from_group = frame(&Spec::default());
    from_group[6] = 3;
    let group = Spec { destination: std::net::Ipv4Addr::new(224, 0, 0, 5).into(), ..Spec::default() };
    let mut icmp_error = frame(&Spec { protocol: 1, ..Spec::default() });
    icmp_error[34] = 3;
    let cases = [
        ("a wrong IP checksum", wrong_header),
        ("a wrong UDP checksum", wrong_sum),
        ("a frame for a group", to_group),
        ("a frame from a group", from_group),
        ("a packet for a group", frame(&group)),
        ("an ICMP error", icmp_error),
        ("a reset", frame(&tcp(RST))),
        ("a later fragment", frame(&Spec { fragment_offset: 800, protocol: 47, ..Spec::default() })),
        ("ARP", Spec { ether_type: Some(0x0806), ..Spec::default() }.bytes()),
    ];
    for (what, asked) in cases {
        assert_eq!(answer(&asked), None, "{what}");
    }
}

#[test]
fn answers_are_limited() {
    let mut state = FilterState::new(0, std::sync::Arc::default());
    let many = vec![frame(&Spec::default()); 64];
    assert_eq!(answers(&many, Nanos(1), &mut state).len(), 50);
    assert_eq!(answers(&many, Nanos(2), &mut state).len(), 0);
    assert_eq!(answers(&many, Nanos::from_millis(5), &mut state).len(), 4);
    assert_eq!((state.counters().answered.get(), state.counters().silenced.get()), (54, 138));
}
