//! Super-packets, tunnels, and other packets that are not one UDP datagram.

use super::link::{Frame, MILLIS, RATE, fq_codel, identity};
use polder_buffers::{Batch, Packet, Pool, Region, RegionOptions, Segmentation, SegmentationKind};
use polder_datapath::queue::{EgressQueue, LinkLayer, QueueOptions};
use polder_datapath::segment::Measure;
use polder_datapath::units::Nanos;

fn pool() -> Pool {
    Region::new(RegionOptions { slots: 4096, slot_bytes: 2048 }).expect("memory").pool()
}

fn put(queue: &mut EgressQueue, packet: Packet) {
    let mut batch = Batch::new();
    batch.push(packet).expect("an empty batch");
    queue.put(&mut batch, Nanos::SECOND, |_, _| unreachable!("there is room"));
}

/// A UDP super-packet of `payload` bytes in segments of `size`.
fn super_packet(flow: u32, payload: usize, size: u16, pool: &mut Pool) -> Packet {
    let mut packet = Frame { flow, length: 50, ..Frame::default() }.packet(0, pool);
    packet.extend_from(&vec![0; payload - 8], pool).expect("enough slots");
    packet.checksum_start = 34;
    Measure::describe(
        &mut packet,
        Segmentation { size, kind: SegmentationKind::Udp, ..Segmentation::default() },
    );
    packet
}

#[test]
fn a_super_packet_is_charged_for_its_segments() {
    let mut pool = pool();
    let packet = super_packet(1, 10_000, 1000, &mut pool);
    assert_eq!((packet.len(), packet.wire_packets), (10_042, 10));
    assert_eq!(LinkLayer::RAW.charge(&packet), 10 * 1042);
    assert_eq!(LinkLayer::ETHERNET.charge(&packet), 10 * 1066);
    let uneven = super_packet(1, 2001, 1000, &mut pool);
    assert_eq!(LinkLayer::RAW.charge(&uneven), 2 * 1042 + 43);
    assert_eq!(LinkLayer::ETHERNET.charge(&uneven), 2 * 1066 + 84, "the last one is padded");
    // The rate is kept for what is sent: ten milliseconds, one of them ahead.
    let mut queue = EgressQueue::new(&QueueOptions { rate: Some(RATE), ..fq_codel() });
    for packet in [packet, uneven] {
        put(&mut queue, packet);
    }
    let now = Nanos::SECOND;
    let first = queue.take(now, |_, _| unreachable!("no reason to")).expect("one waits");
    let due = RATE.time_of(10 * 1042).0 + now.0 - MILLIS;
    pool.release_packet(first);
    put(&mut queue, Frame { flow: 2, length: 100, ..Frame::default() }.packet(0, &mut pool));
    while let Some(packet) = queue.take(now, |_, _| unreachable!("no reason to")) {
        pool.release_packet(packet);
    }
    assert!(queue.next_deadline().is_none_or(|at| at.0 > due), "charged more than the first");
}

#[test]
fn a_flow_of_super_packets_has_the_share_of_a_flow_of_packets() {
    let mut pool = pool();
    let mut queue = EgressQueue::new(&QueueOptions { limit_bytes: 8_000_000, ..fq_codel() });
    let long = 15_000;
    for _ in 0..30 {
        put(&mut queue, super_packet(1, long, 1400, &mut pool));
    }
    for number in 0..400 {
        put(&mut queue, Frame { flow: 2, length: 1442, ..Frame::default() }.packet(number, &mut pool));
    }
    let mut bytes = [0, 0];
    for _ in 0..220 {
        let packet = queue.take(Nanos::SECOND, |_, _| unreachable!("no reason to")).expect("many wait");
        let (flow, _) = identity(&packet);
        bytes[flow as usize - 1] += LinkLayer::RAW.charge(&packet);
        pool.release_packet(packet);
    }
    let [first, second] = bytes;
    assert!(first.abs_diff(second) <= 20_000 && first > 200_000, "{bytes:?}");
    queue.clear().for_each(|packet| pool.release_packet(packet));
}

/// A UDP packet in a GRE tunnel; `sequence` of the GRE header if there is one.
fn tunnelled(flow: u32, number: u32, sequence: Option<u32>, pool: &mut Pool) -> Packet {
    let inner = Frame { flow, length: 100, ..Frame::default() }.packet(number, pool);
    let mut bytes = inner.bytes()[..34].to_vec();
    bytes[23] = 47;
    bytes[26..34].copy_from_slice(&[192, 0, 2, 1, 192, 0, 2, 2]);
    bytes.extend_from_slice(if sequence.is_some() { &[0x10, 0] } else { &[0, 0] });
    bytes.extend_from_slice(&[8, 0]);
    bytes.extend(sequence.into_iter().flat_map(u32::to_be_bytes));
    bytes.extend_from_slice(&inner.bytes()[14..]);
    let total = u16::try_from(bytes.len() - 14).expect("a short packet");
    bytes[16..18].copy_from_slice(&total.to_be_bytes());
    pool.release_packet(inner);
    Packet::copy_from(&bytes, pool).expect("enough slots")
}

/// Flow and number of a packet inside.
fn inside(packet: &Packet) -> (u32, u32) {
    let at = packet.len() - 100 + 42;
    let word = |at: usize| u32::from_be_bytes(packet.bytes()[at..at + 4].try_into().expect("four bytes"));
    (word(at), word(at + 4))
}

/// Puts 40 packets of flow 1 and then 4 of flow 2 into a tunnel; returns the flows of the first ten that leave.
fn first_ten(sequenced: bool) -> Vec<u32> {
    let mut pool = pool();
    let mut queue = EgressQueue::new(&fq_codel());
    for number in 0..44 {
        let flow = if number < 40 { 1 } else { 2 };
        put(&mut queue, tunnelled(flow, number, sequenced.then_some(number), &mut pool));
    }
    let taken = core::iter::from_fn(|| queue.take(Nanos::SECOND, |_, _| unreachable!("no reason to")));
    let packets = taken.collect::<Vec<_>>();
    if sequenced {
        assert!(packets.iter().map(|packet| inside(packet).1).eq(0..44), "in sequence");
    }
    let flows = packets.iter().take(10 + 30).map(|packet| inside(packet).0).collect::<Vec<_>>();
    packets.into_iter().for_each(|packet| pool.release_packet(packet));
    flows
}

#[test]
fn a_tunnel_is_as_many_flows_as_there_are_inside_unless_it_has_sequence_numbers() {
    assert!(first_ten(false)[..20].contains(&2), "flow 2 does not wait for flow 1");
    assert!(first_ten(true).iter().all(|&flow| flow == 1));
}
