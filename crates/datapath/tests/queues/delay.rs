//! Delay of sparse flows, bursts, and congestion signals.

use super::link::{Frame, MILLIS, Network, RATE, Sender, cake, fq_codel, with_aqm};
use polder_datapath::queue::{Aqm, CodelOptions, Isolation, QueueOptions};
use polder_datapath::units::Nanos;

const FULL: usize = 1514;
/// ECT(0).
const CAPABLE: u8 = 2;

/// A network with bulk flows 1 to `bulk` that send four times the link's rate.
fn loaded(mut network: Network, bulk: u32, traffic_class: u8) -> Network {
    let interval = RATE.time_of(FULL as u64).0 * u64::from(bulk) / 4;
    for flow in 1..=bulk {
        network
            .add(Sender::Constant(interval), Frame { flow, length: FULL, traffic_class, ..Frame::default() });
    }
    network
}

#[test]
fn a_sparse_flow_waits_for_one_packet_and_not_for_a_round() {
    for options in [fq_codel(), cake(Isolation::Source)] {
        a_sparse_flow_is_not_delayed(&options);
    }
}

/// A sparse flow beside 64 bulk flows, of other hosts where the queue isolates these.
fn a_sparse_flow_is_not_delayed(options: &QueueOptions) {
    let mut network = loaded(Network::new(options), 64, 0);
    network.add(
        Sender::Constant(20 * MILLIS),
        Frame { flow: 0, length: 200, hosts: [9, 9], ..Frame::default() },
    );
    // At the start, all flows are new.
    network.run(1000 * MILLIS);
    network.forget();
    network.run(3000 * MILLIS);
    let sparse = &network.flows[&0];
    // The packet on the link.
    let bound = RATE.time_of(FULL as u64);
    assert!(sparse.longest_wait <= bound, "{:?} of {bound:?}", sparse.longest_wait);
    assert_eq!((sparse.dropped, sparse.bytes), (0, 200 * 150));
}

#[test]
fn a_flow_that_comes_and_goes_waits_for_its_turn_like_others() {
    // Flow 0 sends a packet as soon as its last one has left: it is empty each time, and not sparse.
    let mut network = loaded(Network::new(&fq_codel()), 64, 0);
    network.add(Sender::Constant(1_000_000 * MILLIS), Frame { flow: 0, length: 1000, ..Frame::default() });
    network.run(500 * MILLIS);
    network.forget();
    let before = network.totals.left;
    for _ in 0..20_000 {
        network.run(20_000);
        if network.flows[&0].bytes / 1000 + 2 > u64::from(network.sent(0)) {
            network.put(0);
            network.transmit();
        }
    }
    let (mine, all) = (network.flows[&0].bytes / 1000, network.totals.left - before);
    assert!(mine > 20 && mine * 100 <= all * 4, "{mine} packets of {all}, two in a round of 65");
}

#[test]
fn a_burst_within_its_interval_loses_nothing() {
    let mut network = Network::new(&fq_codel());
    network.add(Sender::Bursts(60, 200 * MILLIS), Frame { flow: 0, length: FULL, ..Frame::default() });
    network.add(Sender::Responsive(20 * MILLIS), Frame { flow: 1, length: FULL, ..Frame::default() });
    network.run(4000 * MILLIS);
    assert_eq!(network.flows[&0].dropped, 0);
}

#[test]
fn a_standing_queue_is_signalled_by_drops_or_by_marks() {
    let settled = |traffic_class, aqm| {
        let mut network = Network::new(&with_aqm(aqm));
        for flow in 0..4 {
            let frame = Frame { flow, length: FULL, traffic_class, ..Frame::default() };
            network.add(Sender::Responsive(40 * MILLIS), frame);
        }
        network.run(5000 * MILLIS);
        network.forget();
        network.run(5000 * MILLIS);
        let marked = network.flows.values().map(|flow| flow.marked).sum::<u64>();
        let longest = network.flows.values().map(|flow| flow.longest_wait).max().expect("four flows");
        assert!(longest <= Nanos::from_millis(60), "{longest:?} with traffic class {traffic_class}");
        assert_eq!(network.queue.take_marks(), marked, "every mark is counted");
        (network.totals.delay, marked)
    };
    let aqm = Aqm::default();
    let (drops, marks) = settled(0, aqm);
    assert!(drops > 10 && marks == 0, "{drops} drops, {marks} marks");
    let (drops, marks) = settled(CAPABLE, aqm);
    assert!(drops == 0 && marks > 10, "{drops} drops, {marks} marks");
    let (drops, marks) = settled(CAPABLE, Aqm { ecn: false, ..aqm });
    assert!(drops > 10 && marks == 0, "{drops} drops, {marks} marks without ECN");
}

#[test]
fn a_ce_threshold_marks_what_waited_longer_and_nothing_else() {
    let never = CodelOptions { target: Nanos::from_seconds(10), ..CodelOptions::default() };
    let aqm = Aqm { codel: never, ce_threshold: Some(Nanos::from_millis(1)), ..Aqm::default() };
    let mut network = Network::new(&with_aqm(aqm));
    // Twenty full packets take 2.4 ms: those that wait for nine or more are marked.
    let frame = Frame { flow: 0, length: FULL, traffic_class: CAPABLE, ..Frame::default() };
    network.add(Sender::Bursts(20, 100 * MILLIS), frame);
    network.add(Sender::Bursts(20, 100 * MILLIS), Frame { flow: 1, traffic_class: 0, ..frame });
    network.run(50 * MILLIS);
    let packet = RATE.time_of(FULL as u64).0;
    // They take turns: packet n of flow 0 leaves after 2 n others.
    let late = (0..20).filter(|n| 2 * n * packet > MILLIS).count() as u64;
    let marked = [0, 1].map(|flow| network.flows[&flow].marked);
    assert!(marked[0].abs_diff(late) <= 1 && marked[1] == 0, "{marked:?}, expected {late}");
    assert_eq!((network.totals.delay, network.totals.left), (0, 40));
}
