//! A service behind a port: what it answers, what it leaves alone, and that it outlives itself.

use polder_buffers::{Batch, Packet, Region, RegionOptions};
use polder_datapath::port::{Armed, Budget, RxQueue as _, Turn, TxQueue as _};
use polder_datapath::wire::{Arp, ArpHeader, ArpOperation, Ipv4, MacAddress, Pseudo, Udp};
use polder_testbed::services::consumer::{Consumer, Options, Service, consumer};
use std::net::{Ipv4Addr, SocketAddrV4};

const OWN: Ipv4Addr = Ipv4Addr::new(10, 2, 0, 1);
const PEER: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 1);
const MAC: MacAddress = MacAddress([2, 0, 0, 0, 4, 1]);
const PEER_MAC: MacAddress = MacAddress([2, 0, 0, 0, 1, 1]);

/// Service that sends its request back twice, and panics at the number 17.
struct Twice;

impl Service for Twice {
    fn answer(&mut self, request: &[u8], answer: &mut Vec<u8>) -> bool {
        assert_ne!(request.first(), Some(&17), "the unlucky number");
        answer.extend_from_slice(request);
        answer.extend_from_slice(request);
        request.first() != Some(&0)
    }
}

fn options() -> Options {
    Options { mac: MAC, address: SocketAddrV4::new(OWN, 7), mtu: 1500, bounded: true }
}

fn request(to: Ipv4Addr, port: u16, payload: &[u8]) -> Vec<u8> {
    let mut frame = [&MAC.0[..], &PEER_MAC.0, &[8, 0]].concat();
    let length = u16::try_from(28 + payload.len()).expect("short");
    frame.extend([0x45, 0]);
    frame.extend(length.to_be_bytes());
    frame.extend([0, 0, 0, 0, 64, 17, 0, 0]);
    frame.extend(PEER.octets());
    frame.extend(to.octets());
    frame.extend([4000, port, length - 20, 0].map(u16::to_be_bytes).as_flattened());
    frame.extend_from_slice(payload);
    frame
}

/// Gives frames to the service; what it answers.
fn ask(frames: &[Vec<u8>]) -> (Vec<Vec<u8>>, [u64; 4]) {
    let region = Region::new(RegionOptions { slots: 256, slot_bytes: 2048 }).expect("memory");
    let mut pool = region.pool();
    let Consumer { mut queue, done, .. } = consumer(options(), Box::new(|| Box::new(Twice)));
    let mut answers = Vec::new();
    for frame in frames {
        let mut batch = Batch::new();
        batch.push(Packet::copy_from(frame, &mut pool).expect("memory")).expect("room");
        queue.tx.transmit(&mut batch, &mut pool);
        assert!(batch.is_empty());
        assert_eq!(queue.rx.arm(), Armed::Raced);
        assert_eq!(queue.rx.receive(&mut Budget::new(4), &mut batch, &mut pool), Turn::Drained);
        answers.extend(batch.iter().map(|packet| packet.bytes().to_vec()));
        pool.release(&mut batch);
    }
    assert_eq!(queue.rx.arm(), Armed::Waiting);
    drop((queue, pool));
    assert_eq!((region.free_slots(), region.late_frees()), (region.slots(), 0));
    let counters = [&done.answered, &done.unanswered, &done.strangers, &done.panics];
    (answers, counters.map(polder_datapath::counters::Counter::get))
}

#[test]
fn a_request_is_answered_to_whom_it_came_from() {
    let (answers, counters) = ask(&[request(OWN, 7, &[1, 2, 3])]);
    assert_eq!((answers.len(), counters), (1, [1, 0, 0, 0]));
    let frame = &answers[0];
    assert_eq!((&frame[..6], &frame[6..12]), (&PEER_MAC.0[..], &MAC.0[..]));
    let ip = Ipv4::parse(&frame[14..]).expect("IPv4");
    ip.verify().expect("its checksum");
    assert_eq!((ip.source(), ip.destination(), ip.time_to_live()), (OWN, PEER, 64));
    let udp = Udp::parse(&frame[34..]).expect("UDP");
    udp.verify(Pseudo::V4 { source: OWN, destination: PEER }).expect("its checksum");
    assert_eq!((udp.source_port(), udp.destination_port()), (7, 4000));
    assert_eq!(udp.payload(), [1, 2, 3, 1, 2, 3]);
}

#[test]
fn what_is_for_others_has_no_answer() {
    let mut fragment = request(OWN, 7, &[1]);
    fragment[14 + 6] = 0x20;
    let others = [
        request(PEER, 7, &[1]),
        request(OWN, 8, &[1]),
        fragment,
        request(OWN, 7, &[1])[..30].to_vec(),
        vec![0; 14],
    ];
    let (answers, counters) = ask(&others);
    assert_eq!((answers.len(), counters), (0, [0, 0, 5, 0]));
    let (answers, counters) = ask(&[request(OWN, 7, &[0])]);
    assert_eq!((answers.len(), counters), (0, [0, 1, 0, 0]), "the service has nothing to say");
}

#[test]
fn a_long_answer_is_cut_and_its_parts_make_the_whole() {
    let words = (0..1400_u32).map(|number| u8::try_from(number % 251 + 1).expect("small"));
    let payload = words.collect::<Vec<_>>();
    let (answers, counters) = ask(&[request(OWN, 7, &payload), request(OWN, 7, &[5])]);
    assert_eq!((answers.len(), counters), (3, [2, 0, 0, 0]));
    let mut whole = Vec::new();
    let mut numbers = Vec::new();
    for (index, frame) in answers[..2].iter().enumerate() {
        let ip = Ipv4::parse(&frame[14..]).expect("IPv4");
        ip.verify().expect("its checksum");
        assert!(frame.len() <= 14 + 1500 && usize::from(ip.total_length()) == frame.len() - 14);
        assert_eq!((usize::from(ip.fragment_offset()), ip.more_fragments()), (whole.len(), index == 0));
        numbers.push(ip.identification());
        whole.extend_from_slice(&frame[34..]);
    }
    assert_eq!(numbers[0], numbers[1]);
    let udp = Udp::parse(&whole).expect("UDP");
    udp.verify(Pseudo::V4 { source: OWN, destination: PEER }).expect("its checksum");
    assert_eq!(udp.payload(), [&payload[..], &payload].concat());
    let short = Ipv4::parse(&answers[2][14..]).expect("IPv4");
    assert!(!short.is_fragment());
}

#[test]
fn it_says_where_it_is() {
    let mut frame = [&[0xff; 6][..], &PEER_MAC.0, &[8, 6], &[0; 28]].concat();
    let operation = ArpOperation::REQUEST;
    let (sender_mac, sender_ip, target_mac, target_ip) = (PEER_MAC, PEER, MacAddress([0; 6]), OWN);
    let header = ArpHeader { operation, sender_mac, sender_ip, target_mac, target_ip };
    header.emit(&mut frame[14..]).expect("room");
    let (answers, _) = ask(&[frame]);
    let arp = Arp::parse(&answers[0][14..]).expect("ARP");
    assert_eq!((arp.operation(), arp.sender_mac(), arp.sender_ip()), (ArpOperation::REPLY, MAC, OWN));
    assert_eq!((arp.target_mac(), arp.target_ip()), (PEER_MAC, PEER));
}

#[test]
fn one_that_panics_is_made_anew_and_goes_on() {
    let (answers, counters) = ask(&[request(OWN, 7, &[17]), request(OWN, 7, &[1]), request(OWN, 7, &[17])]);
    assert_eq!((answers.len(), counters), (1, [1, 2, 0, 2]));
}

#[test]
fn no_more_wait_than_the_worker_says() {
    let region = Region::new(RegionOptions { slots: 512, slot_bytes: 2048 }).expect("memory");
    let mut pool = region.pool();
    let Consumer { mut queue, backlog, .. } = consumer(options(), Box::new(|| Box::new(Twice)));
    let backlog = backlog.expect("the worker bounds it");
    let mut batch = Batch::new();
    assert_eq!(queue.rx.receive(&mut Budget::new(3), &mut batch, &mut pool), Turn::Drained);
    backlog.set_limit(24);
    assert_eq!(backlog.wanted(), 24);
    let fill = |batch: &mut Batch, pool: &mut polder_buffers::Pool| {
        while !batch.is_full() {
            batch.push(Packet::copy_from(&request(OWN, 7, &[1]), pool).expect("memory")).expect("room");
        }
    };
    fill(&mut batch, &mut pool);
    queue.tx.transmit(&mut batch, &mut pool);
    assert_eq!((batch.len(), backlog.wanted(), backlog.is_exceeded()), (0, 0, true));
    for _ in 0..3 {
        fill(&mut batch, &mut pool);
        queue.tx.transmit(&mut batch, &mut pool);
        assert!(batch.is_empty());
    }
    fill(&mut batch, &mut pool);
    queue.tx.transmit(&mut batch, &mut pool);
    assert_eq!(batch.len(), 16, "twice 24 and four batches are taken");
    pool.release(&mut batch);
    // None is wanted until half is done: 292 of 304.
    for turn in 1..98 {
        assert_eq!(queue.rx.receive(&mut Budget::new(3), &mut batch, &mut pool), Turn::OutOfBudget, "{turn}");
        pool.release(&mut batch);
        assert_eq!(backlog.wanted(), 0, "after turn {turn}");
        assert_eq!(backlog.is_exceeded(), 3 * turn < 280, "after turn {turn}");
    }
    assert_eq!(queue.rx.receive(&mut Budget::new(3), &mut batch, &mut pool), Turn::OutOfBudget);
    pool.release(&mut batch);
    assert_eq!(backlog.wanted(), 14);
    while queue.rx.receive(&mut Budget::new(3), &mut batch, &mut pool) == Turn::OutOfBudget {
        pool.release(&mut batch);
    }
    pool.release(&mut batch);
}

#[test]
fn requests_wait_as_long_as_others_when_an_answer_is_several_packets() {
    let region = Region::new(RegionOptions { slots: 64, slot_bytes: 2048 }).expect("memory");
    let mut pool = region.pool();
    let Consumer { mut queue, backlog, .. } = consumer(options(), Box::new(|| Box::new(Twice)));
    let backlog = backlog.expect("the worker bounds it");
    let mut batch = Batch::new();
    // Twice as much is longer than the network takes: two packets, so that 96 that may wait are 48 answers.
    for (payload, parts, wanted) in [(&[5; 1400][..], 2, 48), (&[5], 1, 96)] {
        batch.push(Packet::copy_from(&request(OWN, 7, payload), &mut pool).expect("memory")).expect("room");
        queue.tx.transmit(&mut batch, &mut pool);
        assert_eq!(queue.rx.receive(&mut Budget::new(12), &mut batch, &mut pool), Turn::Drained);
        let each = backlog.packets_each();
        assert_eq!((batch.len(), each), (parts, u32::try_from(parts).expect("small")));
        pool.release(&mut batch);
        backlog.set_limit(96);
        assert_eq!(backlog.wanted(), wanted);
    }
}
