//! Reports of what waits in a queue, and its counters.

use super::link::{Frame, MILLIS, Network, RATE, Sender, cake, fq_codel};
use polder_datapath::queue::report::{FlowReport, HostReport};
use polder_datapath::queue::{EgressCounters, Isolation, QueueOptions, QueueReport};
use polder_datapath::units::Nanos;

const FULL: usize = 1514;

/// A network in which 16 flows of four senders wait, flow *n* with 30 packets and one more for each *n*.
fn network(options: &QueueOptions) -> Network {
    let mut network = Network::new(options);
    for flow in 0..16 {
        let hosts = [u16::try_from(flow / 4).expect("few"), 9];
        let traffic_class = if flow < 12 { 0 } else { 46 << 2 };
        let frame = Frame { flow, hosts, length: FULL, traffic_class };
        network.add(Sender::Bursts(30 + flow, 1_000_000 * MILLIS), frame);
    }
    network.run(2 * MILLIS);
    network
}

fn name(flow: &FlowReport) -> String {
    flow.name.expect("a well-formed packet").ends.to_string()
}

#[test]
fn the_flows_with_most_bytes_are_named() {
    for (options, voice) in [(fq_codel(), 0), (cake(Isolation::Source), 3)] {
        let network = network(&options);
        let QueueReport { flows, .. } = network.queue.report(Nanos(network.now));
        assert_eq!(flows.len(), QueueReport::MOST);
        assert!(flows.is_sorted_by(|more, less| more.bytes >= less.bytes), "{flows:?}");
        let last = flows.iter().find(|flow| name(flow) == "UDP 10.1.0.3:0 → 10.2.0.9:15");
        let last = last.unwrap_or_else(|| unreachable!("the longest is among them: {flows:?}"));
        assert!(last.bytes >= 40 * 1514, "{last:?}");
        assert_eq!(last.tin, voice);
        assert!(last.wait >= Nanos::from_millis(2) && last.wait <= Nanos::from_millis(3), "{last:?}");
    }
}

#[test]
fn hosts_are_those_that_the_queue_isolates() {
    let hosts = |isolation| {
        let network = network(&cake(isolation));
        network.queue.report(Nanos(network.now)).hosts
    };
    let text = |host: &HostReport| host.address.expect("a well-formed packet").to_string();
    let sources = hosts(Isolation::Source);
    assert_eq!(sources.len(), 4);
    assert!(sources.iter().all(|host| host.is_source && host.flows == 4), "{sources:?}");
    let mut names = sources.iter().map(text).collect::<Vec<_>>();
    names.sort();
    assert_eq!(names, ["10.1.0.0", "10.1.0.1", "10.1.0.2", "10.1.0.3"]);
    let destinations = hosts(Isolation::Destination);
    assert!(destinations.iter().all(|host| !host.is_source && text(host) == "10.2.0.9"));
    assert_eq!(destinations.iter().map(|host| host.flows).collect::<Vec<_>>(), [12, 4], "in two tins");
    assert!(network(&fq_codel()).queue.report(Nanos(1)).hosts.is_empty());
}

#[test]
fn counters_follow_flows_and_tins() {
    let mut network = network(&cake(Isolation::Source));
    network.run(500 * MILLIS);
    let counters = EgressCounters::default();
    counters.publish(&mut network.queue);
    assert_eq!(
        (counters.flows_started.get(), counters.flows_new.get(), counters.flows_old.get()),
        (16, 0, 0)
    );
    let left = counters.tins.iter().map(|tin| tin.left.get()).collect::<Vec<_>>();
    assert_eq!(left.iter().sum::<u64>(), network.totals.left);
    let voice = &counters.tins[3];
    assert_eq!(voice.entered.get(), 42 + 43 + 44 + 45);
    assert_eq!(voice.left.get() + voice.delay.get() + voice.full.get(), voice.entered.get());
    assert_eq!(voice.left_bytes.get(), voice.left.get() * 1514);
    assert!(voice.wait_nanos.get() > RATE.time_of(1514).0, "the last one has waited");
    assert_eq!((voice.waiting.get(), counters.tins[0].entered.get()), (0, 0));
    // The events are counted once.
    counters.publish(&mut network.queue);
    assert_eq!(voice.entered.get(), 174);
}
