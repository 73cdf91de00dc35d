//! Bad input: time that jumps, memory that is used up, quanta and tables of silly sizes.

use super::link::{Frame, MILLIS, Network, RATE, Sender, fq_codel, jain};
use polder_datapath::queue::{Discipline, EgressQueue, FqCodelOptions, QueueOptions};
use polder_datapath::units::{BytesPerSecond, Nanos};

fn with(options: FqCodelOptions, limit_bytes: u64) -> QueueOptions {
    QueueOptions::new(Discipline::FqCodel(options), limit_bytes)
}

#[test]
fn a_flow_that_uses_up_the_memory_loses_its_own_packets() {
    let options = FqCodelOptions { flows: 65_536, ..FqCodelOptions::default() };
    let limit = 200_000;
    let mut network = Network::new(&with(options, limit));
    network.rate = BytesPerSecond(RATE.0 / 10);
    // Flow 0 sends twenty times the link's rate, the others together less than half of it.
    network.add(Sender::Constant(60_000), Frame { flow: 0, length: 1514, ..Frame::default() });
    for flow in 1..=8 {
        let sender = Sender::Bursts(3, 100 * MILLIS);
        network.add(sender, Frame { flow, length: 1514, ..Frame::default() });
    }
    network.run(5000 * MILLIS);
    assert!(network.totals.most_bytes <= limit, "{} bytes", network.totals.most_bytes);
    assert!(network.totals.full > 10_000, "{:?}", network.totals);
    for flow in 1..=8 {
        assert_eq!(network.flows[&flow].dropped, 0, "flow {flow} sent little");
    }
}

#[test]
fn short_packets_cannot_use_more_slots_than_there_are() {
    let options = FqCodelOptions { flows: 65_536, ..FqCodelOptions::default() };
    let options = with(options, 100_000);
    let mut network = Network::new(&options);
    network.rate = BytesPerSecond(1);
    network.add(Sender::Bursts(5000, 1_000_000 * MILLIS), Frame { flow: 0, length: 50, ..Frame::default() });
    network.run(MILLIS);
    assert!(network.queue.len() <= options.limit_packets(), "{} packets", network.queue.len());
    assert!(network.totals.full >= 4800, "{:?}", network.totals);
}

#[test]
fn a_quantum_below_a_header_is_raised_and_one_flow_is_enough() {
    for (quantum, flows) in [(0, 0), (1, 1), (20, 2), (u32::MAX, u32::MAX)] {
        let options = FqCodelOptions { quantum, flows, ..FqCodelOptions::default() };
        let mut network = Network::new(&with(options, 1_000_000));
        for flow in 0..2 {
            let sender = Sender::Constant(RATE.time_of(1514).0);
            network.add(sender, Frame { flow, length: 1514, ..Frame::default() });
        }
        network.run(500 * MILLIS);
        let shares = network.shares(0..2);
        assert!(shares.iter().sum::<u64>() >= RATE.0 * 49 / 100, "{shares:?}");
        assert!(quantum == u32::MAX || jain(&shares) > 0.9, "{shares:?} with a quantum of {quantum}");
    }
}

#[test]
fn time_that_jumps_loses_no_count_and_stops_nothing() {
    let mut network = Network::new(&fq_codel());
    for flow in 0..4 {
        let sender = Sender::Constant(RATE.time_of(1514).0 * 3);
        network.add(sender, Frame { flow, length: 1514, ..Frame::default() });
    }
    network.run(2000 * MILLIS);
    // An hour passes while packets wait: old packets may be dropped, and the rest is sent.
    let before = network.totals.left;
    network.leap(3_600_000 * MILLIS);
    network.run(2000 * MILLIS);
    assert!(network.totals.left - before > 15_000, "{:?}", network.totals);
    // The clock goes back: to the queue, no time passes until it has caught up.
    let before = network.totals.left;
    network.queue_clock_back(1000 * MILLIS);
    network.run(2000 * MILLIS);
    assert!(network.totals.left - before > 15_000, "{:?}", network.totals);
}

#[test]
fn an_empty_queue_takes_a_packet_above_its_limit_and_a_waiting_one_is_not_dropped_for_it() {
    let mut network = Network::new(&with(FqCodelOptions::default(), 1000));
    network.rate = BytesPerSecond(1);
    network.add(Sender::Constant(1_000_000 * MILLIS), Frame { flow: 0, length: 1514, ..Frame::default() });
    network.add(Sender::Constant(1_000_000 * MILLIS), Frame { flow: 1, length: 500, ..Frame::default() });
    network.run(MILLIS);
    // The first is on the link, the second waits.
    assert_eq!((network.totals.left, network.queue.len()), (1, 1));
    network.put(0);
    assert_eq!((network.totals.full, network.queue.len()), (1, 1));
}

#[test]
fn a_queue_that_replaces_another_keeps_order_within_flows_and_times() {
    let mut network = Network::new(&fq_codel());
    network.rate = BytesPerSecond(1);
    for flow in 0..5 {
        let sender = Sender::Bursts(10, 1_000_000 * MILLIS);
        network.add(sender, Frame { flow, length: 500, ..Frame::default() });
    }
    network.run(MILLIS);
    let smaller = with(FqCodelOptions { flows: 3, seed: 99, ..FqCodelOptions::default() }, 10_000);
    network.exchange(EgressQueue::new(&smaller));
    assert!(network.totals.full > 0 && network.queue.bytes() <= 10_000);
    network.rate = RATE;
    network.unblock();
    network.run(100 * MILLIS);
    assert_eq!(network.queue.len(), 0);
    let longest = network.flows.values().map(|flow| flow.longest_wait).max();
    assert!(longest >= Some(Nanos(MILLIS)), "counted from the arrival: {longest:?}");
}
