//! Fairness between hosts.

use super::link::{Frame, MILLIS, Network, RATE, Sender, cake, fq_codel, jain};
use polder_datapath::queue::{CakeOptions, Discipline, Isolation, QueueOptions};

const FULL: usize = 1514;

/// Bytes of each of two hosts, one with 1 and one with `many` flows, each flow of which sends at the link's
/// rate. The hosts are senders if `up`, and each flow has a peer of its own.
fn shares(options: &QueueOptions, many: u32, up: bool) -> Vec<u64> {
    let mut network = Network::new(options);
    for flow in 0..=many {
        let (host, peer) = (u16::from(flow > 0), u16::try_from(100 + flow).expect("few"));
        let hosts = if up { [host, peer] } else { [peer, host] };
        let frame = Frame { flow, hosts, length: FULL, ..Frame::default() };
        network.add(Sender::Constant(RATE.time_of(FULL as u64).0), frame);
    }
    network.run(200 * MILLIS);
    network.forget();
    network.run(1000 * MILLIS);
    let flows = network.shares(1..=many);
    assert!(jain(&flows) >= 0.97, "between the flows of a host: {flows:?}");
    vec![network.flows[&0].bytes, flows.into_iter().sum()]
}

#[test]
fn a_host_with_one_flow_has_the_share_of_one_with_32() {
    use Isolation::{Both, Destination, Source};
    for (isolation, up) in [(Source, true), (Both, true), (Destination, false), (Both, false)] {
        let shares = shares(&cake(isolation), 32, up);
        assert!(jain(&shares) >= 0.99, "{isolation:?}, {up}: {shares:?}");
    }
    // Where the peers are isolated, and where no hosts are, the flows count.
    for (options, up) in [(cake(Source), false), (cake(Destination), true), (fq_codel(), true)] {
        let shares = shares(&options, 32, up);
        assert!(jain(&shares) < 0.6, "{shares:?}");
    }
}

#[test]
fn a_host_that_opens_ten_thousand_flows_has_one_share_and_drops_its_own_packets() {
    let options = CakeOptions { isolation: Isolation::Source, seed: 1, ..CakeOptions::default() };
    let discipline = Discipline::Cake(options);
    let mut network = Network::new(&QueueOptions::new(discipline, 500_000));
    // Twice the link's rate, a packet of each flow a second or so.
    for flow in 100..10_100 {
        let sender = Sender::Constant(RATE.time_of(500).0 * 5000);
        network.add(sender, Frame { flow, hosts: [1, 7], length: 500, ..Frame::default() });
    }
    let interval = RATE.time_of(500).0 * 5 / 2;
    network
        .add(Sender::Constant(interval), Frame { flow: 0, hosts: [2, 7], length: 500, ..Frame::default() });
    network.run(2000 * MILLIS);
    let quiet = &network.flows[&0];
    assert!(network.totals.full > 1000, "{:?}", network.totals);
    assert_eq!(quiet.dropped, 0, "two fifths of the link are less than its share");
    assert!(quiet.bytes >= 2 * RATE.0 * 39 / 100, "{} bytes", quiet.bytes);
}

#[test]
fn a_host_that_comes_and_goes_gains_nothing() {
    let mut network = Network::new(&cake(Isolation::Source));
    let packet = RATE.time_of(FULL as u64).0;
    for flow in 0..16 {
        let hosts = [u16::try_from(flow).expect("few"), 0];
        network.add(Sender::Constant(packet * 4), Frame { flow, hosts, length: FULL, ..Frame::default() });
    }
    network.run(200 * MILLIS);
    network.forget();
    // A packet of a new flow each time, a third of the link's rate in all.
    for flow in 100..2100 {
        let frame = Frame { flow, hosts: [99, 0], length: 1000, ..Frame::default() };
        network.add(Sender::Constant(1_000_000 * MILLIS), frame);
        network.run(packet * 2);
    }
    let busy = network.shares(0..16).into_iter().sum::<u64>();
    let many = network.shares(100..2100).into_iter().sum::<u64>();
    assert!(many * 100 <= (busy + many) * 10, "{many} bytes of {}, a 17th is fair", busy + many);
}
