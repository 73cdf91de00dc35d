//! Generator and sink at the two ends of one wire: what is sent is what is metered, faults included.

#![expect(clippy::unwrap_used, reason = "a failed set-up is a failed test")]

use polder_lab::meters::stream::{Outcome, StreamMeter};
use polder_lab::topology::{End, Namespace, Topology, is_root, put_first};
use polder_lab::traffic::packet::Talk;
use polder_lab::traffic::raw::{Faults, Generator, Plan, Sent, Sink};
use polder_lab::traffic::sizes::Sizes;
use std::io::Write as _;
use std::net::Ipv4Addr;
use std::time::Duration;

/// Says loudly why a test cannot run.
fn root_or_skip(test: &str) -> bool {
    if !is_root() {
        let _ = writeln!(std::io::stderr(), "skipped: {test}: namespaces need root");
    }
    is_root()
}

struct Wire {
    _topology: Topology,
    left: Namespace,
    right: Namespace,
    end: String,
}

impl Wire {
    fn lay() -> Self {
        let mut topology = Topology::new().unwrap();
        let (left, right) = (topology.namespace("left").unwrap(), topology.namespace("right").unwrap());
        let end = topology.interface("s");
        let a = End { namespace: &left, interface: "eth0" };
        topology.wire(a, End { namespace: &right, interface: &end }, 1500).unwrap();
        Self { _topology: topology, left, right, end }
    }

    /// Receives on a thread, as in a measurement.
    fn prefer_sink(&self) {
        for thread in self.right.pin_napi(&self.end, 0).unwrap() {
            put_first(thread).unwrap();
        }
    }

    fn generator(&self, sizes: &Sizes) -> Generator {
        let talk = Talk::simple(
            ([2, 0, 0, 0, 0, 1], Ipv4Addr::new(10, 0, 0, 1)),
            ([2, 0, 0, 0, 0, 2], Ipv4Addr::new(10, 0, 0, 2)),
        );
        Generator::open(&self.left, "eth0", Talk { flows: 100, macs: 10, ..talk }, sizes).unwrap()
    }

    /// Sends to a recording sink until nothing more comes.
    fn run(&self, plan: &Plan, sizes: &Sizes) -> (Sent, Outcome, Sink) {
        let mut generator = self.generator(sizes);
        let mut sink = Sink::recording(&self.right, &self.end, generator.probe_at()).unwrap();
        self.prefer_sink();
        let mut meter = StreamMeter::new(1 << 16);
        let sent = generator.run(plan, || sink.drain(&mut meter)).unwrap();
        std::thread::sleep(Duration::from_millis(20));
        sink.drain(&mut meter);
        assert_eq!(sink.missed(), 0);
        (sent, meter.finish(sent.numbers), sink)
    }
}

#[test]
fn what_is_sent_arrives_in_order_at_its_rate() {
    if !root_or_skip("what_is_sent_arrives_in_order_at_its_rate") {
        return;
    }
    let plan = Plan::steady(50_000.0, Duration::from_millis(200));
    let mix = Sizes::genome("aaaaaaadddg").unwrap();
    let (sent, outcome, sink) = Wire::lay().run(&plan, &mix);
    assert!((9_000..=10_001).contains(&sent.packets), "{sent:?}");
    assert_eq!((sink.packets(), sink.strangers()), (sent.packets, 0));
    let arrivals = outcome.arrivals;
    assert_eq!((arrivals.lost, arrivals.duplicated, arrivals.reordered, arrivals.alien), (0, 0, 0, 0));
    assert_eq!(outcome.latency.len(), sent.packets);
    assert!(outcome.latency.min() < 1_000_000, "from one clock: {}", outcome.latency.min());
    let mean = sink.bytes() / sink.packets();
    assert!((280..320).contains(&mean), "a mix of {mean} bytes");
}

#[test]
fn seventeen_faults_of_each_kind_are_seventeen() {
    if !root_or_skip("seventeen_faults_of_each_kind_are_seventeen") {
        return;
    }
    let faults = Faults { drops: 17, swaps: 17, duplicates: 17 };
    let plan = Plan { faults, ..Plan::steady(100_000.0, Duration::from_millis(350)) };
    let wire = Wire::lay();
    // On a busy machine the wire itself may lose packets; its own counters tell.
    let whole = (0..10).map(|_| wire.run(&plan, &Sizes::all(64)));
    let whole = whole.into_iter().find(|(sent, _, sink)| sink.packets() == sent.packets);
    let (sent, outcome, _sink) = whole.expect("one run in ten without a loss on the wire");
    assert!(sent.numbers > 577 * 51, "{sent:?}");
    let arrivals = outcome.arrivals;
    assert_eq!((arrivals.lost, arrivals.reordered, arrivals.duplicated, arrivals.alien), (17, 17, 17, 0));
    assert_eq!(sent.packets, sent.numbers);
}

#[test]
fn a_counting_sink_counts_everything_and_a_recording_one_knows_strangers() {
    if !root_or_skip("a_counting_sink_counts_everything_and_a_recording_one_knows_strangers") {
        return;
    }
    let wire = Wire::lay();
    let plan = Plan::steady(100_000.0, Duration::from_millis(50));
    let sink = Sink::counting(&wire.right, &wire.end).unwrap();
    let sent = wire.generator(&Sizes::all(128)).run(&plan, || {}).unwrap();
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!((sink.packets(), sink.bytes()), (sent.packets, sent.packets * 124));
    drop(sink);
    let mut sink = Sink::recording(&wire.right, &wire.end, 50).unwrap();
    let sent = wire.generator(&Sizes::all(64)).run(&plan, || {}).unwrap();
    std::thread::sleep(Duration::from_millis(20));
    let mut meter = StreamMeter::new(16);
    sink.drain(&mut meter);
    assert_eq!((sink.packets(), sink.strangers(), meter.received()), (sent.packets, sent.packets, 0));
}
