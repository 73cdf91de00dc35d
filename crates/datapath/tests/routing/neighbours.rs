//! Link-layer addresses: asked for, waited for, answered.

use crate::frames::{Frame, message, sum};
use crate::stand::{A, B, KERNEL, Stand, TRUNK, mac, prefix, station};
use etherparse::{EtherType, IpNumber};
use polder_datapath::drops::DropReason;
use polder_datapath::route::{NextHopEntry, Notice};
use polder_datapath::units::Nanos;
use polder_datapath::wire::{Arp, ArpHeader, ArpOperation, MacAddress};
use std::net::{Ipv4Addr, Ipv6Addr};

const MILLI: Nanos = Nanos::from_millis(5);

fn arp(to: MacAddress, header: ArpHeader) -> Vec<u8> {
    let frame = Frame::new(to, header.sender_mac, "10.0.0.1", "10.0.0.2");
    let mut bytes = frame.link(EtherType::ARP);
    let mut body = [0; Arp::HEADER_BYTES];
    header.emit(&mut body).expect("room");
    bytes.extend(body);
    bytes.resize(60, 0);
    bytes
}

fn reply(
    sender_mac: MacAddress,
    sender_ip: [u8; 4],
    port: polder_buffers::PortId,
    target: [u8; 4],
) -> Vec<u8> {
    let operation = ArpOperation::REPLY;
    let (sender_ip, target_ip) = (Ipv4Addr::from(sender_ip), Ipv4Addr::from(target));
    arp(mac(port), ArpHeader { operation, sender_mac, sender_ip, target_mac: mac(port), target_ip })
}

fn to_b(number: u8) -> Frame {
    Frame { payload: vec![number; 20], ..Frame::new(mac(A), station(A, 5), "10.0.0.5", "10.0.1.9") }
}

#[test]
fn packets_wait_for_an_arp_reply_and_go_on_in_order() {
    let mut stand = Stand::new();
    let frames: Vec<_> = (0..3).map(|number| to_b(number).bytes()).collect();
    stand.receive(A, &frames);
    let sent = stand.take(B);
    assert_eq!(sent.len(), 1, "one question");
    let question = Arp::parse(&sent[0][14..]).expect("ARP");
    assert_eq!((&sent[0][..6], question.target_ip()), (&[0xff; 6][..], [10, 0, 1, 9].into()));
    assert_eq!((question.sender_ip(), question.sender_mac()), ([10, 0, 1, 1].into(), mac(B)));
    stand.check();
    stand.receive(B, &[reply(station(B, 9), [10, 0, 1, 9], B, [10, 0, 1, 1])]);
    stand.pass(MILLI);
    let expected: Vec<_> = (0..3).map(|number| to_b(number).routed(mac(B), station(B, 9), None)).collect();
    assert_eq!(stand.take(B), expected);
    stand.receive(A, &frames[..1]);
    assert_eq!(stand.take(B), expected[..1]);
    stand.check();
    assert_eq!(stand.engine.next_deadline(), None);
}

#[test]
fn the_latest_few_wait_and_who_never_answers_is_given_up() {
    let mut stand = Stand::new();
    let frames: Vec<_> = (0..9).map(|number| to_b(number).bytes()).collect();
    stand.receive(A, &frames);
    assert_eq!(stand.drops(DropReason::NeighbourQueueFull), 5);
    for _ in 0..3 {
        stand.check();
        stand.pass(Nanos::SECOND);
    }
    assert_eq!(stand.take(B).len(), 3, "three questions");
    assert_eq!(stand.drops(DropReason::NeighbourUnknown), 4);
    let told: Vec<_> = stand.take(A).iter().map(|frame| message(frame)).collect();
    assert!(told.len() == 4 && told.iter().all(|(kind, code, ..)| (*kind, *code) == (3, 1)), "{told:?}");
    let quoted: Vec<_> = told.iter().map(|(.., quoted)| *quoted.last().expect("quoted")).collect();
    assert_eq!(quoted, [5, 6, 7, 8]);
    stand.check();
    assert_eq!(stand.engine.next_deadline(), None);
}

#[test]
fn few_wait_in_sum() {
    let mut stand = Stand::new();
    let frames: Vec<_> = (2..=254)
        .filter(|last| *last != 1)
        .map(|last| Frame::new(mac(A), station(A, 5), "10.0.0.5", &format!("10.0.1.{last}")).bytes())
        .collect();
    stand.receive(A, &frames);
    stand.check();
    assert_eq!(stand.engine.counters().ledger.waiting.get(), 128);
    assert_eq!(stand.drops(DropReason::NeighbourQueueFull), 253 - 128);
    let mut pool = stand.region.pool();
    let now = stand.now;
    stand.engine.close(now, &mut pool);
    assert_eq!(stand.engine.counters().ledger.waiting.get(), 0);
    stand.check();
}

/// Polder sends no request on the kernel's interfaces; the control thread is told once.
#[test]
fn the_kernel_is_to_ask_for_its_own_neighbours() {
    let mut stand = Stand::new();
    let frame = Frame::new(mac(A), station(A, 5), "10.0.0.5", "10.0.3.9");
    stand.receive(A, &[frame.bytes(), frame.bytes()]);
    assert!(stand.take(KERNEL).is_empty());
    let interface = stand.interface(KERNEL, 0).id;
    let wanted = Notice::Wanted { interface, address: [10, 0, 3, 9].into() };
    assert_eq!(stand.router.notices().take(), [wanted]);
    stand.know(KERNEL, 0, "10.0.3.9", station(KERNEL, 9));
    stand.pass(MILLI);
    assert_eq!(stand.take(KERNEL), vec![frame.routed(mac(KERNEL), station(KERNEL, 9), None); 2]);
    stand.check();
}

/// A route to the very address of a neighbour that says no more than its link.
#[test]
fn packets_to_a_neighbour_with_a_route_of_its_own_go_on() {
    let mut stand = Stand::new();
    let interface = stand.interface(B, 0).id;
    let way = stand.way(NextHopEntry::Connected(interface));
    stand.router.insert(prefix("10.77.0.9/32"), way);
    let frame = Frame::new(mac(A), station(A, 5), "10.0.0.5", "10.77.0.9");
    stand.receive(A, &[frame.bytes()]);
    assert_eq!(stand.take(B).len(), 1, "a question");
    stand.know(B, 0, "10.77.0.9", station(B, 9));
    stand.pass(MILLI);
    let routed = vec![frame.routed(mac(B), station(B, 9), None)];
    assert_eq!(stand.take(B), routed, "who has waited");
    stand.receive(A, &[frame.bytes()]);
    assert_eq!(stand.take(B), routed);
    // The route becomes another, and what it was; the neighbour is forgotten, and known again.
    for (next, expected) in
        [(NextHopEntry::Blackhole, Vec::new()), (NextHopEntry::Connected(interface), routed.clone())]
    {
        stand.router.replace_next_hop(way, next);
        stand.router.publish();
        stand.receive(A, &[frame.bytes()]);
        assert_eq!(stand.take(B), expected);
    }
    stand.neighbours.forget(&mut stand.router, interface, "10.77.0.9".parse().expect("an address"));
    stand.receive(A, &[frame.bytes()]);
    assert_eq!(stand.take(B).len(), 1, "a question");
    stand.know(B, 0, "10.77.0.9", station(B, 8));
    stand.pass(MILLI);
    assert_eq!(stand.take(B), [frame.routed(mac(B), station(B, 8), None)]);
    // One on another link is not meant.
    let elsewhere = stand.interface(TRUNK, 7).id;
    stand.router.replace_next_hop(way, NextHopEntry::Connected(elsewhere));
    stand.router.publish();
    stand.receive(A, &[frame.bytes()]);
    assert_eq!((stand.take(B).len(), stand.engine.counters().ledger.waiting.get()), (0, 1));
    stand.check();
}

#[test]
fn arp_requests_for_us_are_answered_and_others_are_not() {
    let mut stand = Stand::new();
    let request = |target: [u8; 4], sender: [u8; 4]| {
        arp(
            MacAddress::BROADCAST,
            ArpHeader {
                operation: ArpOperation::REQUEST,
                sender_mac: station(A, 5),
                sender_ip: sender.into(),
                target_mac: MacAddress::ZERO,
                target_ip: target.into(),
            },
        )
    };
    stand.receive(A, &[request([10, 0, 0, 1], [10, 0, 0, 5])]);
    let sent = stand.take(A);
    let answer = Arp::parse(&sent[0][14..]).expect("ARP");
    assert_eq!((answer.operation(), answer.sender_mac()), (ArpOperation::REPLY, mac(A)));
    assert_eq!((answer.sender_ip(), answer.target_ip()), ([10, 0, 0, 1].into(), [10, 0, 0, 5].into()));
    assert_eq!(&sent[0][..6], &station(A, 5).0);
    // Who asked is known.
    stand.pass(MILLI);
    let back = Frame::new(mac(B), station(B, 9), "10.0.1.9", "10.0.0.5");
    stand.receive(B, &[back.bytes()]);
    assert_eq!(stand.take(A), [back.routed(mac(A), station(A, 5), None)]);
    // A probe is answered, and says nothing of who probes.
    stand.receive(A, &[request([10, 0, 0, 1], [0; 4])]);
    assert_eq!(stand.take(A).len(), 1);
    assert!(stand.router.notices().take().is_empty());
    assert_eq!(stand.refused(A, request([10, 0, 0, 77], [10, 0, 0, 5])), DropReason::NoListener);
    // Nobody says who he is that was not asked.
    stand.receive(A, &[reply(station(A, 66), [10, 0, 0, 66], A, [10, 0, 0, 1])]);
    assert!(stand.router.notices().take().is_empty());
    // Nor from another network.
    stand.receive(A, &[request([10, 0, 0, 1], [10, 9, 0, 5])]);
    assert!(stand.router.notices().take().is_empty());
    stand.check();
}

/// A message of neighbour discovery with its checksum.
fn discovery(frame: &Frame, kind: u8, flags: u32, target: &str, option: Option<(u8, MacAddress)>) -> Vec<u8> {
    let mut message = vec![kind, 0, 0, 0];
    message.extend(flags.to_be_bytes());
    message.extend(target.parse::<Ipv6Addr>().expect("an address").octets());
    if let Some((kind, mac)) = option {
        message.extend([kind, 1]);
        message.extend(mac.0);
    }
    let mut pseudo = Vec::new();
    for address in [frame.source, frame.destination] {
        let std::net::IpAddr::V6(address) = address else { unreachable!("IPv6") };
        pseudo.extend(address.octets());
    }
    pseudo.extend(u32::try_from(message.len()).expect("short").to_be_bytes());
    pseudo.extend([0, 0, 0, 58]);
    pseudo.extend(&message);
    let checksum = !sum(&pseudo);
    message[2..4].copy_from_slice(&checksum.to_be_bytes());
    frame.carrying(IpNumber::IPV6_ICMP, &message)
}

fn solicitation(source: &str, target: &str) -> Frame {
    let group = Frame::new(MacAddress([0x33, 0x33, 0xff, 0, 0, 1]), station(A, 5), source, "ff02::1:ff00:1");
    let _ = target;
    Frame { hops: 255, ..group }
}

#[test]
fn solicitations_for_us_are_answered() {
    let mut stand = Stand::new();
    let target = "2001:db8::1";
    let frame = solicitation("2001:db8::5", target);
    let source = Some((1, station(A, 5)));
    stand.receive(A, &[discovery(&frame, 135, 0, target, source)]);
    let sent = stand.take(A);
    let (kind, code, flags, said) = message(&sent[0]);
    assert_eq!((kind, code, flags), (136, 0, 0xe000_0000));
    assert_eq!(said[..16], target.parse::<Ipv6Addr>().expect("an address").octets());
    assert_eq!((&said[16..18], &said[18..]), (&[2, 1][..], &mac(A).0[..]));
    assert_eq!((&sent[0][..6], sent[0][21]), (&station(A, 5).0[..], 255));
    // Duplicate address detection of another: all nodes are told that the address is taken.
    let nobody = Frame { source: "::".parse().expect("an address"), ..frame.clone() };
    stand.receive(A, &[discovery(&nobody, 135, 0, target, None)]);
    let sent = stand.take(A);
    assert_eq!((&sent[0][..6], message(&sent[0]).2), (&[0x33, 0x33, 0, 0, 0, 1][..], 0xa000_0000));
    // RFC 4861, 7.1.1: hop limit, and a source where there can be none.
    let routed = Frame { hops: 254, ..frame.clone() };
    assert_eq!(stand.refused(A, discovery(&routed, 135, 0, target, source)), DropReason::GroupNotRouted);
    assert_eq!(stand.refused(A, discovery(&nobody, 135, 0, target, source)), DropReason::GroupNotRouted);
    let mut broken = discovery(&frame, 135, 0, target, source);
    *broken.last_mut().expect("not empty") ^= 1;
    assert_eq!(stand.refused(A, broken), DropReason::GroupNotRouted);
    stand.check();
}

#[test]
fn packets_wait_for_an_advertisement() {
    let mut stand = Stand::new();
    let frame = Frame::new(mac(A), station(A, 5), "2001:db8::5", "2001:db8:1::9");
    stand.receive(A, &[frame.bytes()]);
    let sent = stand.take(B);
    let (kind, code, _, said) = message(&sent[0]);
    assert_eq!((kind, code, &sent[0][..6]), (135, 0, &[0x33, 0x33, 0xff, 0, 0, 9][..]));
    assert_eq!((&said[16..18], &said[18..]), (&[1, 1][..], &mac(B).0[..]));
    let answer = Frame { hops: 255, ..Frame::new(mac(B), station(B, 9), "2001:db8:1::9", "2001:db8:1::1") };
    let said = |flags| discovery(&answer, 136, flags, "2001:db8:1::9", Some((2, station(B, 9))));
    // One that nobody asked for is not believed.
    assert_eq!(stand.refused(B, said(0x2000_0000)), DropReason::NoListener);
    stand.receive(B, &[said(0x6000_0000)]);
    stand.pass(MILLI);
    assert_eq!(stand.take(B), [frame.routed(mac(B), station(B, 9), None)]);
    stand.check();
}

/// A neighbour that has been silent is asked again.
#[test]
fn neighbours_are_forgotten() {
    let mut stand = Stand::new();
    stand.receive(A, &[to_b(1).bytes()]);
    stand.receive(B, &[reply(station(B, 9), [10, 0, 1, 9], B, [10, 0, 1, 1])]);
    stand.pass(MILLI);
    assert_eq!(stand.take(B).len(), 2);
    stand.pass(Nanos::from_seconds(100));
    let now = stand.now;
    stand.neighbours.expire(&mut stand.router, now);
    assert_eq!(stand.neighbours.iter().count(), 0);
    stand.receive(A, &[to_b(1).bytes()]);
    let sent = stand.take(B);
    assert!(sent.len() == 1 && Arp::parse(&sent[0][14..]).is_ok(), "a question");
    stand.check();
}
