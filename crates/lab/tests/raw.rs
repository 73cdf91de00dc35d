//! Generator and sink at the two ends of one wire: what is sent is what is metered, faults included.

#![expect(clippy::unwrap_used, reason = "a failed set-up is a failed test")]

use polder_testbed::meters::stream::{Outcome, StreamMeter};
use polder_testbed::topology::{End, Namespace, Topology, is_root, put_first};
use polder_testbed::traffic::packet::{Mac, Outer, Talk, Template, Wrap};
use polder_testbed::traffic::probe::Probe;
use polder_testbed::traffic::raw::{Faults, Generator, Injector, Moment, Plan, Sent, Sink};
use polder_testbed::traffic::sizes::Sizes;
use polder_testbed::traffic::vary::{Draw, Vary};
use std::io::Write as _;
use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Says loudly why a test cannot run.
fn root_or_skip(test: &str) -> bool {
    if !is_root() {
        let _ = writeln!(std::io::stderr(), "skipped: {test}: namespaces need root");
    }
    is_root()
}

/// One test at a time: they would lose each other's packets.
static ALONE: Mutex<()> = Mutex::new(());

struct Wire {
    _alone: MutexGuard<'static, ()>,
    _topology: Topology,
    left: Namespace,
    right: Namespace,
    end: String,
}

impl Wire {
    fn lay() -> Self {
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let mut topology = Topology::new().unwrap();
        let (left, right) = (topology.namespace("left").unwrap(), topology.namespace("right").unwrap());
        let end = topology.interface("s");
        let a = End { namespace: &left, interface: "eth0" };
        topology.wire(a, End { namespace: &right, interface: &end }, 1500).unwrap();
        Self { _alone: alone, _topology: topology, left, right, end }
    }

    /// The same, whose right end receives by NAPI: what is injected arrives.
    fn with_napi() -> Self {
        let wire = Self::lay();
        let gro = wire.right.command("ethtool").args(["-K", &wire.end, "gro", "on"]).status().unwrap();
        assert!(gro.success());
        wire
    }

    /// Receives on a thread, as in a measurement.
    fn prefer_sink(&self) {
        for thread in self.right.pin_napi(&self.end, 0).unwrap() {
            put_first(thread).unwrap();
        }
    }

    fn generator(&self, sizes: &Sizes) -> Generator {
        Generator::open(&self.left, "eth0", talk(), sizes).unwrap()
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

    /// A run in which the wire itself lost nothing. On a busy machine its ring, which holds 256, may
    /// run over; its own count of packets tells.
    fn run_whole(&self, plan: &Plan, sizes: &Sizes) -> (Sent, Outcome, Sink) {
        let runs = (0..20).map(|_| self.run(plan, sizes));
        let mut whole = runs.filter(|(sent, _, sink)| sink.packets() == sent.packets);
        whole.next().expect("one run in twenty loses nothing on the wire")
    }
}

/// Flows and stations whose addresses carry over from byte to byte.
fn talk() -> Talk {
    let source = ([2, 0, 0, 0, 0x12, 0xfe], Ipv4Addr::new(10, 0, 255, 250));
    let destination = ([2, 0, 0, 0, 0xff, 0xfe], Ipv4Addr::new(10, 0, 0, 2));
    Talk { flows: 100, macs: 10, ..Talk::simple(source, destination) }
}

#[test]
fn what_is_sent_arrives_in_order_at_its_rate() {
    if !root_or_skip("what_is_sent_arrives_in_order_at_its_rate") {
        return;
    }
    let plan = Plan::steady(50_000.0, Duration::from_millis(200));
    let mix = Sizes::genome("aaaaaaadddg").unwrap();
    let (sent, outcome, sink) = Wire::lay().run_whole(&plan, &mix);
    assert!((1_000..=10_001).contains(&sent.packets), "{sent:?}");
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
    // A sender that had to wait for a core has not come to all faults; then it runs again.
    let complete = (0..20)
        .map(|_| Wire::lay().run_whole(&plan, &Sizes::all(64)))
        .find(|(sent, _, _)| sent.numbers > 577 * 51);
    let (sent, outcome, _sink) = complete.unwrap();
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
    assert!(sink.packets() > 0 && sink.packets() <= sent.packets, "{sent:?}");
    assert_eq!(sink.bytes(), sink.packets() * 124);
    drop(sink);
    let mut sink = Sink::recording(&wire.right, &wire.end, 50).unwrap();
    wire.generator(&Sizes::all(64)).run(&plan, || {}).unwrap();
    std::thread::sleep(Duration::from_millis(20));
    let mut meter = StreamMeter::new(16);
    sink.drain(&mut meter);
    assert!(sink.packets() > 0);
    assert_eq!((sink.strangers(), meter.received()), (sink.packets(), 0));
}

/// A packet socket that sees everything in a namespace.
fn listen(namespace: &Namespace) -> OwnedFd {
    use rustix::net::{AddressFamily, Protocol, SocketType, socket, sockopt};
    let everything = Protocol::from_raw(std::num::NonZeroU32::new(u32::from(3_u16.to_be())).unwrap());
    let socket = namespace.inside(|| socket(AddressFamily::PACKET, SocketType::RAW, Some(everything)));
    let socket = socket.unwrap().unwrap();
    sockopt::set_socket_recv_buffer_size_force(&socket, 16 << 20).unwrap();
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(Duration::from_millis(200))).unwrap();
    socket
}

/// The next frame.
fn receive(socket: &OwnedFd) -> Vec<u8> {
    let mut frame = vec![0; 2048];
    let (length, _) = rustix::net::recv(socket, &mut frame[..], rustix::net::RecvFlags::empty()).unwrap();
    frame.truncate(length);
    frame
}

#[test]
fn injected_frames_are_those_of_the_template() {
    if !root_or_skip("injected_frames_are_those_of_the_template") {
        return;
    }
    let wire = Wire::with_napi();
    let (mac, address) = ([2, 0, 0, 9, 9, 9], Ipv4Addr::new(192, 0, 2, 9));
    let outer = |wrap| Outer { wrap, source: (mac, address), destination: (Mac::default(), address) };
    let wraps = [None, Some(Wrap::Gretap(None)), Some(Wrap::Gretap(Some(7))), Some(Wrap::Vxlan(7))];
    for wrap in wraps {
        let talk = Talk { outer: wrap.map(outer), ..talk() };
        let template = Template::new(talk, 128);
        let mut injector = Injector::open(&wire.left, "eth0", talk, 128).unwrap();
        let socket = listen(&wire.right);
        let sent = injector.run(&Plan::steady(5_000.0, Duration::from_millis(50)), |_| Ok(())).unwrap();
        assert!((1..=250).contains(&sent.packets), "{sent:?}");
        for number in 0..sent.packets {
            let frame = receive(&socket);
            let probe = Probe::read(&frame[template.probe_at()..]).unwrap();
            assert_eq!((probe.number, probe.stream), (number, 0));
            let flow = u32::try_from(number % 100).unwrap();
            assert_eq!(frame, template.frame(flow, probe), "packet {number} in {wrap:?}");
        }
    }
}

/// Packets have a field that was drawn, draws come in turn, and the rest is the template's.
#[test]
fn injected_frames_have_the_fields_that_were_drawn() {
    if !root_or_skip("injected_frames_have_the_fields_that_were_drawn") {
        return;
    }
    let wire = Wire::with_napi();
    let destinations = [[192, 0, 2, 1], [10, 255, 255, 254], [198, 51, 100, 7], [203, 0, 113, 200]];
    let mut drawn = destinations.map(|address| {
        let mut draw = Draw::default();
        draw[..4].copy_from_slice(&address);
        draw
    });
    for vary in [Vary::DestinationV4, Vary::Stations] {
        let simple = |destination: [u8; 4]| {
            let (source, destination) = (talk().source, (talk().destination.0, Ipv4Addr::from(destination)));
            Template::new(Talk::simple(source, destination), 64)
        };
        if vary == Vary::Stations {
            drawn = [1_u8, 2, 3, 4].map(|group| {
                std::array::from_fn(|byte| 2 * group + 16 * u8::try_from(byte % 4).unwrap_or(0))
            });
        }
        let mut injector =
            Injector::drawn(&wire.left, "eth0", simple([0; 4]), (vary, drawn.to_vec())).unwrap();
        let socket = listen(&wire.right);
        let sent = injector.run(&Plan::steady(5_000.0, Duration::from_millis(20)), |_| Ok(())).unwrap();
        assert!((5..=100).contains(&sent.packets), "{sent:?}");
        for number in 0..sent.packets {
            let frame = receive(&socket);
            let probe = Probe::read(&frame[simple([0; 4]).probe_at()..]).unwrap();
            assert_eq!(probe.number, number);
            let place = usize::try_from(number % 4).unwrap();
            let expected = match vary {
                Vary::Stations => {
                    let mut frame = simple([0; 4]).frame(0, probe);
                    frame[..12].copy_from_slice(&drawn[place][..12]);
                    frame
                }
                // The checksum is the template's for that destination.
                Vary::DestinationV4 | Vary::DestinationV6 => simple(destinations[place]).frame(0, probe),
            };
            assert_eq!(frame, expected, "packet {number}, {vary:?}");
        }
    }
    let template = Template::new(Talk::simple(talk().source, talk().destination), 64);
    let three = (Vary::Stations, drawn[..3].to_vec());
    assert!(Injector::drawn(&wire.left, "eth0", template, three).is_err(), "three are no power of two");
}

#[test]
fn injected_packets_arrive_at_their_rate_and_in_bursts() {
    if !root_or_skip("injected_packets_arrive_at_their_rate_and_in_bursts") {
        return;
    }
    let wire = Wire::lay();
    let mut injector = Injector::open(&wire.left, "eth0", talk(), 64).unwrap();
    let mut sink = Sink::recording(&wire.right, &wire.end, injector.probe_at()).unwrap();
    let mut meter = StreamMeter::new(1 << 16);
    let plan = Plan { burst: 32, ..Plan::steady(100_000.0, Duration::from_millis(200)) };
    let mut moments = Vec::new();
    let sent = injector.run(&plan, |moment| {
        moments.push(moment);
        sink.drain(&mut meter);
        Ok(())
    });
    let sent = sent.unwrap();
    sink.drain(&mut meter);
    assert!((18_000..=20_032).contains(&sent.packets), "{sent:?}");
    let (first, last) = (moments.first(), moments.last());
    assert_eq!((first, last), (Some(&Moment::Begin), Some(&Moment::End)));
    assert_eq!(moments.iter().filter(|&&moment| moment != Moment::Meanwhile).count(), 2);
    let Outcome { arrivals, latency } = meter.finish(sent.numbers);
    assert_eq!((arrivals.duplicated, arrivals.reordered, arrivals.alien), (0, 0, 0));
    // The ring between the two ends holds 256: a machine that is busy with something else may lose.
    assert!(arrivals.loss_ratio() < 0.5, "{arrivals:?}");
    assert_eq!((latency.len(), sink.packets()), (arrivals.received, arrivals.received));
}

#[test]
fn a_rate_out_of_reach_is_not_reported_as_reached() {
    if !root_or_skip("a_rate_out_of_reach_is_not_reported_as_reached") {
        return;
    }
    let wire = Wire::lay();
    let mut injector = Injector::open(&wire.left, "eth0", talk(), 64).unwrap();
    let mut sink = Sink::recording(&wire.right, &wire.end, injector.probe_at()).unwrap();
    let mut meter = StreamMeter::new(1 << 16);
    let plan = Plan::steady(100e6, Duration::from_millis(50));
    let sent = injector.run(&plan, |_| {
        sink.drain(&mut meter);
        Ok(())
    });
    let sent = sent.unwrap();
    assert!(sent.time > plan.time, "{sent:?}");
    assert!(sent.rate() < 0.98 * plan.rate, "{sent:?}");
    sink.drain(&mut meter);
    let Outcome { arrivals, .. } = meter.finish(sent.numbers);
    assert_eq!((arrivals.duplicated, arrivals.reordered, arrivals.alien), (0, 0, 0));
}

/// Replies for the injector to send as requests: the answer's kind stands in the second word.
fn reply(kind: u32) -> Vec<u8> {
    [0, kind, 0, 0, 0, 0].map(u32::to_be_bytes).as_flattened().to_vec()
}

#[test]
fn replies_are_told_by_their_numbers_and_by_nothing_else() {
    if !root_or_skip("replies are told by their numbers") {
        return;
    }
    let wire = Wire::lay();
    let run = |kind| {
        let template = Template::of_requests(talk(), &reply(kind));
        let mut injector = Injector::of(&wire.left, "eth0", template).unwrap();
        let mut sink = Sink::of_replies(&wire.right, &wire.end).unwrap();
        sink.follow(injector.timetable());
        wire.prefer_sink();
        let mut meter = StreamMeter::new(1 << 12);
        let plan = Plan::steady(10_000.0, Duration::from_millis(200));
        let sent = injector
            .run(&plan, |_| {
                sink.drain(&mut meter);
                Ok(())
            })
            .unwrap();
        std::thread::sleep(Duration::from_millis(20));
        sink.drain(&mut meter);
        (sent, meter.finish(sent.numbers), sink)
    };
    let whole = (0..20).map(|_| run(1)).find(|(sent, _, sink)| sink.packets() == sent.packets);
    let (sent, outcome, sink) = whole.expect("one run in twenty loses nothing on the wire");
    assert!(sent.packets > 0);
    assert_eq!((outcome.arrivals.lost, outcome.arrivals.duplicated, sink.strangers()), (0, 0, 0));
    // From when it was due: no reply is there before that, and none as late as the clock is old.
    assert!(outcome.latency.max() < 30_000_000_000, "{}", outcome.latency.max());
    assert!(outcome.latency.min() > 0);
    drop(sink);
    let (_, outcome, sink) = run(0);
    assert!(sink.packets() > 0);
    assert_eq!((outcome.latency.len(), sink.strangers()), (0, sink.packets()), "calls are no replies");
}
