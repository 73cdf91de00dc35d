//! Lost packets are counted, to the packet.

use super::{all_home, await_frame, frame, memory, options, receive, start};
use crate::common::{self, RawPeer};
use polder_buffers::{Batch, Packet};
use polder_datapath::drops::DropReason;
use polder_datapath::port::{Armed, Budget, Turn};
use polder_devices::af_xdp::{Mode, Options, open};
use std::sync::Arc;
use std::time::Duration;

/// A port with 64 frames posted takes the packets that fit, and counts the others.
fn overrun(name: &str, mode: Mode, length: usize) {
    if !common::has_namespace(name) {
        return;
    }
    common::veth("pdxg0", "pdxg1", "mtu 9000");
    let (region, mut pool) = memory();
    let asked = Options { receive_frames: Some(64), ..options("pdxg0", mode) };
    let mut port = open(&asked, &region).expect("root opens a veth");
    start(&mut port, &mut pool);
    let sender = RawPeer::open("pdxg1");
    let fit = 64 / length.div_ceil(1792);
    for number in 0..fit + 17 {
        assert!(sender.send(&frame(u32::try_from(number).expect("few"), length)));
    }
    std::thread::sleep(Duration::from_millis(20));
    let mut batch = receive(&mut port, fit, &mut pool);
    let came = batch.iter().map(|packet| packet.segments().flatten().copied().collect::<Vec<_>>());
    assert!(came.eq((0..fit).map(|number| frame(u32::try_from(number).expect("few"), length))));
    pool.release(&mut batch);
    while port.queues[0].rx.arm() == Armed::Raced {
        assert_eq!(receive(&mut port, 0, &mut pool).len(), 0);
    }
    let counters = Arc::clone(port.queues[0].rx.counters());
    let count = |reason| counters.drops.get(reason);
    assert_eq!((counters.received.get(), counters.drops.total()), (fit as u64 + 17, 17));
    assert_eq!(count(DropReason::RxOverrun), 17);
    assert_eq!(port.port.statistics().dropped, 17);
    // The place is free again.
    assert!(sender.send(&frame(7, length)));
    let mut batch = receive(&mut port, 1, &mut pool);
    assert_eq!(batch.len(), 1);
    pool.release(&mut batch);
    drop((port, pool));
    assert_eq!(counters.drops.total(), 17, "counted once");
    all_home(&region);
}

#[test]
fn seventeen_packets_too_many_are_seventeen() {
    overrun("af_xdp::seventeen_packets_too_many_are_seventeen", Mode::Native, 600);
}

#[test]
fn seventeen_jumbo_frames_too_many_are_seventeen() {
    overrun("af_xdp::seventeen_jumbo_frames_too_many_are_seventeen", Mode::Native, 9000);
}

#[test]
fn seventeen_packets_too_many_are_seventeen_generically() {
    overrun("af_xdp::seventeen_packets_too_many_are_seventeen_generically", Mode::Generic, 600);
}

/// The region has fewer frames than come; nothing is counted as received that was not.
#[test]
fn a_port_without_memory_counts_and_recovers() {
    if !common::has_namespace("af_xdp::a_port_without_memory_counts_and_recovers") {
        return;
    }
    common::veth("pdxh0", "pdxh1", "");
    let (region, mut pool) = memory();
    let mut port = open(&options("pdxh0", Mode::Native), &region).expect("root opens a veth");
    let taken = core::iter::from_fn(|| pool.take()).collect::<Vec<_>>();
    let mut batch = Batch::new();
    let rx = &mut port.queues[0].rx;
    assert_eq!(rx.receive(&mut Budget::new(64), &mut batch, &mut pool), Turn::OutOfBudget);
    let sender = RawPeer::open("pdxh1");
    (0..17).for_each(|number| assert!(sender.send(&frame(number, 60))));
    std::thread::sleep(Duration::from_millis(20));
    for frame in taken {
        pool.release_frame(frame);
    }
    start(&mut port, &mut pool);
    assert!(sender.send(&frame(18, 60)));
    let mut batch = receive(&mut port, 1, &mut pool);
    assert_eq!(batch.len(), 1);
    pool.release(&mut batch);
    assert_eq!(port.queues[0].rx.arm(), Armed::Waiting);
    let counters = port.queues[0].rx.counters();
    assert_eq!((counters.received.get(), counters.drops.get(DropReason::RxOverrun)), (18, 17));
    drop((port, pool));
    all_home(&region);
}

/// A packet that the driver refuses is a drop, not a packet sent.
#[test]
fn packets_to_a_link_without_carrier_are_drops() {
    if !common::has_namespace("af_xdp::packets_to_a_link_without_carrier_are_drops") {
        return;
    }
    common::veth("pdxi0", "pdxi1", "");
    let (region, mut pool) = memory();
    let mut port = open(&options("pdxi0", Mode::Native), &region).expect("root opens a veth");
    start(&mut port, &mut pool);
    let mut send = |port: &mut super::Opened, count: u32| {
        let mut batch = Batch::new();
        for number in 0..count {
            let packet = Packet::copy_from(&frame(number, 100), &mut pool).expect("free frames");
            batch.push(packet).expect("room");
        }
        port.queues[0].tx.transmit(&mut batch, &mut pool);
        assert!(batch.is_empty());
        while port.queues[0].tx.reclaim(&mut pool) == Turn::OutOfBudget {}
        let counters = port.queues[0].tx.counters();
        (counters.transmitted.get(), counters.drops.get(DropReason::TxError), port.queues[0].tx.held())
    };
    common::ip("link set pdxi1 down");
    assert!(!port.port.refresh(None).expect("it is there").carrier);
    assert_eq!(send(&mut port, 17), (0, 17, 0));
    common::ip("link set pdxi1 up");
    assert!(port.port.refresh(None).expect("it is there").carrier);
    let sink = RawPeer::open("pdxi1");
    assert_eq!(send(&mut port, 9), (9, 17, 0));
    (0..9).for_each(|number| assert_eq!(await_frame(&sink), Some(frame(number, 100))));
    // An interface that is down keeps what it was given, and sends it when it is up.
    common::ip("link set pdxi0 down");
    assert!(!port.port.refresh(None).expect("it is there").up);
    assert_eq!(send(&mut port, 5), (14, 17, 5));
    common::ip("link set pdxi0 up");
    assert_eq!(send(&mut port, 0), (14, 17, 0));
    let sink_again = (0..5).map(|_| await_frame(&sink)).collect::<Vec<_>>();
    assert_eq!(sink_again, (0..5).map(|number| Some(frame(number, 100))).collect::<Vec<_>>());
    drop((port, pool));
    all_home(&region);
}
