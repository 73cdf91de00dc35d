//! A queue allocates when it is made, and not for a packet.

use super::counting_allocator::asked;
use super::link::{Frame, RATE, cake, fq_codel};
use polder_buffers::{Batch, Region, RegionOptions};
use polder_datapath::queue::{EgressQueue, Isolation, QueueOptions};
use polder_datapath::units::{BytesPerSecond, Nanos};
use std::hint::black_box;

/// Allocations while a queue is overloaded, and the packets that it dropped. A planted one is found.
fn allocations(options: &QueueOptions, planted: bool) -> (u64, u64) {
    let region = Region::new(RegionOptions { slots: 8192, slot_bytes: 2048 }).expect("memory");
    let mut pool = region.pool();
    let rate = Some(BytesPerSecond(RATE.0 * 4));
    let mut queue = EgressQueue::new(&QueueOptions { rate, limit_bytes: 1_000_000, ..*options });
    let (mut now, mut found, mut dropped, mut releases) = (Nanos::SECOND, 0, 0, Vec::with_capacity(8192));
    let mut batch = Batch::new();
    for round in 0..4000_u32 {
        for packet in 0..32 {
            let flow = round.wrapping_mul(packet) % 300;
            let frame = Frame { flow, hosts: [1, 2], length: 600, traffic_class: 2 };
            batch.push(frame.packet(round, &mut pool)).expect("a batch");
        }
        now = now + Nanos(200_000);
        let before = asked();
        if planted && round == 100 {
            drop(black_box(Box::new(round)));
        }
        queue.put(&mut batch, now, |packet, _| releases.push(packet));
        while let Some(packet) = queue.take(now, |packet, _| releases.push(packet)) {
            pool.release_packet(packet);
        }
        found += asked() - before;
        dropped += releases.len() as u64;
        releases.drain(..).for_each(|packet| pool.release_packet(packet));
    }
    queue.clear().for_each(|packet| pool.release_packet(packet));
    (found, dropped)
}

#[test]
fn no_packet_allocates() {
    for options in [fq_codel(), cake(Isolation::Both)] {
        let (found, dropped) = allocations(&options, false);
        assert!(dropped > 1000, "{dropped}");
        assert_eq!(found, 0);
        assert_eq!(allocations(&options, true).0, 1, "the count counts");
    }
}
