//! One queue at a hundred times the rate of three others, all of them with requests for one service that can
//! answer a fraction of them: the losses of the three.

use super::{COST_US, settled};
use crate::scenarios::Run;
use crate::scenarios::hops::{Hops, Path};
use crate::scenarios::testbed::{BURST, cores};
use anyhow::anyhow;
use polder_testbed::interrupt;
use polder_testbed::meters::cpu::threads_named;
use polder_testbed::peers::asks::Asks;
use polder_testbed::peers::echo::{Over, Service, Settings, books, launch};
use polder_testbed::peers::{CLIENT, SERVER, Site, Task, Tunnel, kernel};
use polder_testbed::topology::{End, Namespace, Topology, pin_here, put_first};
use polder_testbed::traffic::packet::{Mac, Talk};
use polder_testbed::traffic::raw::{Generator, Injector, Plan, Sent, Sink};
use polder_testbed::traffic::sizes::Sizes;
use std::fmt::Write as _;
use std::net::Ipv4Addr;
use std::time::Duration;

/// Requests that the three queues lose.
pub(super) const LOST: &str = "fairness.small_queue_lost";

/// Requests a second of each of the three, and how many times as many the other has.
const SMALL: f64 = 4000.0;
const TIMES: f64 = 100.0;
const QUEUES: usize = 4;
/// Maximum number of attempts at a round in which a sender is late.
const ATTEMPTS: usize = 3;
const FRAME_BYTES: usize = 64;
const MTU: u32 = 1500;
/// Time for which requests may be on their way after the last was sent, and how much longer the big queue goes on.
const SETTLE: Duration = Duration::from_millis(200);
const LONGER: Duration = Duration::from_millis(400);
/// Service under test; the configuration has the rest.
const REQUESTS: Service =
    Service { asks: Asks::Echo, over: Over::Polder(Settings::NATIVE), cost_us: COST_US };
const SERVICE: Mac = [0x02, 0, 0, 0, 4, 0x01];

/// Wires, service, and senders.
struct Harness {
    // Taken down in this order.
    process: polder_testbed::command::Running,
    big: Injector,
    small: Vec<Generator>,
    /// The ways of the small queues' packets.
    paths: Vec<Path>,
    sinks: [Sink; 2],
    _topology: Topology,
}

/// The station behind one of the small queues.
fn station(number: usize) -> (Mac, Ipv4Addr) {
    let number = u8::try_from(number).unwrap_or(u8::MAX);
    ([0x02, 0, 0, 0, 5, number], Ipv4Addr::new(10, 1, 1, number))
}

/// Result of one round.
struct Round {
    /// Requests of the small queues, and their answers.
    sent: u64,
    answered: u64,
    /// Sent and answered requests of the large client.
    big: (u64, u64),
    /// True if no sender of the small queues had to catch up with more than half of what a wire holds.
    on_time: bool,
}

pub(super) fn measure(run: &mut Run, unaccounted: &mut u64) -> anyhow::Result<()> {
    let time = Duration::from_millis(run.quick_or(1500, 5000));
    let rounds = run.quick_or(1, 10);
    let mut harness = Harness::lay()?;
    let (mut sent, mut answered, mut big, mut again) = (0, 0, (0, 0), 0);
    let mut places = Vec::new();
    for number in 1..=rounds {
        run.says(&format!(
            "one queue at a hundred times the rate of three others, round {number} of {rounds}"
        ));
        let mut round;
        let mut attempts = 0;
        let lost = loop {
            let before = harness.books()?;
            round = harness.run(time)?;
            attempts += 1;
            // A sender that was kept from its core fills the wire itself.
            if round.on_time || attempts == ATTEMPTS {
                break harness.books()?.since(before, round.sent, round.answered);
            }
            again += 1;
        };
        sent += round.sent;
        answered += round.answered;
        big = (big.0 + round.big.0, big.1 + round.big.1);
        places.extend((round.sent > round.answered).then(|| lost.to_string()));
    }
    run.record_count(LOST, sent.saturating_sub(answered));
    // Of all queues together: the big one's are most of them.
    let said = books(&mut harness.process)?;
    let dropped = said.lines().filter(|line| line.starts_with("dropped ")).collect::<Vec<_>>();
    let places = if places.is_empty() { "none".to_owned() } else { places.join("; ") };
    run.remark(
        LOST,
        format!(
            "{answered} of {sent} requests answered in {rounds} rounds, {again} of them made again as a sender was late; {} of {} \
             of the big queue; rounds with losses: {places}; all queues {}",
            big.1,
            big.0,
            dropped.join(", ")
        ),
    );
    *unaccounted += settled(|| books(&mut harness.process))?;
    Ok(())
}

impl Harness {
    fn lay() -> anyhow::Result<Self> {
        let mut topology = Topology::new()?;
        let (generator, gateway, target) =
            (topology.namespace("gen")?, topology.namespace("dut")?, topology.namespace("sink")?);
        let inputs = (0..QUEUES).map(|queue| topology.interface(&format!("i{queue}"))).collect::<Vec<_>>();
        for (queue, input) in inputs.iter().enumerate() {
            let source = format!("gen{queue}");
            let source = End { namespace: &generator, interface: &source };
            topology.wire(source, End { namespace: &gateway, interface: input }, MTU)?;
        }
        let outputs = ["o", "p"].map(|role| topology.interface(role));
        let ends = ["s", "t"].map(|role| topology.interface(role));
        for (output, end) in outputs.iter().zip(&ends) {
            let near = End { namespace: &gateway, interface: output };
            topology.wire(near, End { namespace: &target, interface: end }, MTU)?;
        }
        let (core, other) = cores();
        let sinks = [sink(&target, &ends[0], other)?, sink(&target, &ends[1], other)?];
        let site = Site {
            namespace: &gateway,
            input: &inputs[0],
            input_mac: SERVICE,
            output: &outputs[0],
            output_mac: SERVICE,
            core,
            task: Task::Route,
            tunnel: Tunnel::Gretap,
            moderation_us: None,
            receiving: None,
        };
        let text = configuration(core, &inputs, &outputs);
        let process = launch(&site, topology.directory(), REQUESTS, Some(&text))?;
        threads_named(process.id(), 1, |name| name.starts_with("worker"))?;
        inputs.iter().try_for_each(|input| gateway.pin_napi(input, core).map(drop))?;
        let to = (SERVICE, SERVER.1);
        let mut big = Injector::open(&generator, "gen0", Talk::simple(CLIENT, to), FRAME_BYTES)?;
        big.pin_to(other);
        let small = (1..QUEUES).map(|queue| {
            let talk = Talk::simple(station(queue), to);
            Generator::open(&generator, &format!("gen{queue}"), talk, &Sizes::all(FRAME_BYTES))
        });
        let small = small.collect::<anyhow::Result<Vec<_>>>()?;
        let path = |queue: usize| Path {
            source: (generator.clone(), format!("gen{queue}")),
            input: (gateway.clone(), inputs[queue].clone()),
            output: (gateway.clone(), outputs[1].clone()),
        };
        let paths = (1..QUEUES).map(path).collect();
        Ok(Self { process, big, small, paths, sinks, _topology: topology })
    }

    /// The books of the small queues' ways together. They end at the same interface.
    fn books(&self) -> anyhow::Result<Hops> {
        let mut all = Hops::default();
        for path in &self.paths {
            let hops = path.read_of_socket()?;
            all.to_device += hops.to_device;
            all.at_input += hops.at_input;
            all.to_sink = hops.to_sink;
        }
        Ok(all)
    }

    /// Sends to all queues.
    fn run(&mut self, time: Duration) -> anyhow::Result<Round> {
        let Self { big, small, sinks, .. } = self;
        let before = [sinks[0].packets(), sinks[1].packets()];
        let (sent, behind, much) = std::thread::scope(|scope| {
            let flood = scope.spawn(|| {
                pin_here(cores().1)?;
                big.run(&Plan::steady(SMALL * TIMES, time + LONGER), |_| Ok(()))
            });
            let trickles = small.iter_mut().map(|generator| scope.spawn(move || trickle(generator, time)));
            let trickles = trickles.collect::<Vec<_>>();
            let (mut sent, mut behind) = (0, Duration::ZERO);
            for trickle in trickles {
                let one = trickle.join().map_err(|_| anyhow!("a generator panicked"))??;
                sent += one.packets;
                behind = behind.max(one.behind);
            }
            let much = flood.join().map_err(|_| anyhow!("the injector panicked"))??.packets;
            anyhow::Ok((sent, behind, much))
        })?;
        interrupt::sleep(SETTLE)?;
        let after = [self.sinks[0].packets(), self.sinks[1].packets()];
        let [big, answered] = [0, 1].map(|place| after[place] - before[place]);
        Ok(Round { sent, answered, big: (much, big), on_time: behind.as_secs_f64() * SMALL < BURST })
    }
}

/// Some milliseconds of requests at a time: who waits for each would not be in time.
fn trickle(generator: &mut Generator, time: Duration) -> anyhow::Result<Sent> {
    pin_here(cores().1)?;
    interrupt::sleep(LONGER / 2)?;
    generator.run(&Plan { burst: 8, ..Plan::steady(SMALL, time) }, || {})
}

fn sink(namespace: &Namespace, interface: &str, core: usize) -> anyhow::Result<Sink> {
    let sink = Sink::counting(namespace, interface)?;
    namespace.pin_napi(interface, core)?.into_iter().try_for_each(put_first)?;
    Ok(sink)
}

fn configuration(core: usize, inputs: &[String], outputs: &[String; 2]) -> String {
    let mut text =
        format!("version = 1\n\n[gateway]\ncpus = [{core}]\n\n[port.service]\ntap = \"service\"\n\n");
    let mut members = vec!["\"service\"".to_owned()];
    // Writing to a string cannot fail.
    let mut port = |name: &str, interface: &str| {
        let _ = write!(text, "[port.{name}]\ninterface = \"{interface}\"\nmode = \"native\"\n\n");
        members.push(format!("\"{name}\""));
    };
    for (queue, input) in inputs.iter().enumerate() {
        port(&format!("in{queue}"), input);
    }
    port("out0", &outputs[0]);
    port("out1", &outputs[1]);
    let _ = write!(text, "[bridge.lan]\nmembers = [{}]\n", members.join(", "));
    let stations = (1..QUEUES).map(|queue| (station(queue).0, "out1"));
    for (mac, port) in stations.chain([(CLIENT.0, "out0"), (SERVICE, "service")]) {
        let mac = kernel::text(mac);
        let _ = write!(text, "\n[[bridge.lan.static]]\nmac = \"{mac}\"\nport = \"{port}\"\n");
    }
    text
}
