//! One gateway under test, one direction: injector and sink on one core, the device on the other.
//!
//! ```text
//!  core 0                    core 1                     core 0
//!  injector ── wire ── input device output ── wire ── sink
//! ```
//!
//! The sink's receive work is a NAPI thread that runs before the injector, and is moderated by a timer
//! as a network interface's interrupts are, so that a device does not pay for waking it.

use super::hops::{Lost, Path};
use super::setup::INPUT;
pub(super) use super::setup::{Contender, Setup};
use anyhow::{Context as _, anyhow, bail};
use polder_testbed::interrupt;
use polder_testbed::machine;
use polder_testbed::meters::absence::{Absence, Watch};
use polder_testbed::meters::cpu::{CpuReading, thread_time};
use polder_testbed::meters::stream::{Outcome, StreamMeter};
use polder_testbed::peers::asks::Asks;
use polder_testbed::peers::{CLIENT, Device, SERVER, Site};
use polder_testbed::topology::{End, Topology, pin_here, put_first};
use polder_testbed::traffic::packet::{Mac, Talk, Template};
use polder_testbed::traffic::raw::{Injector, Moment, Plan, Sent, Sink};
use std::path::PathBuf;
use std::time::Duration;

/// Room for a full inner frame and a tunnel's headers.
const MTU: u32 = 1600;
/// Time for which packets may be on their way after the last was sent.
const SETTLE: Duration = Duration::from_millis(30);
/// Time for which a device that polls may take to begin.
const BEGIN: Duration = Duration::from_millis(20);
const OUTPUT: Mac = [0x02, 0, 0, 0, 4, 0x02];

/// Injector, device, sink.
pub(super) struct Testbed {
    // Taken down in this order.
    device: Box<dyn Device>,
    injector: Injector,
    sink: Sink,
    sink_threads: Vec<i32>,
    /// Packets of a whole answer.
    parts: u64,
    path: Path,
    topology: Topology,
}

/// Result of a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Trial {
    /// Packets sent by the injector.
    pub(super) sent: Sent,
    /// Packets that arrived at the other end.
    pub(super) received: u64,
    /// Packets that arrived before the last one was due to be sent.
    pub(super) in_time: u64,
    /// CPU time of the device's threads.
    pub(super) device: Duration,
    /// CPU time of the sink's threads.
    pub(super) sink: Duration,
    /// Part of the time in which the device's core did other work.
    pub(super) foreign: f64,
    /// Packets that programs of the device's ports have carried; `None` for a device without such programs.
    pub(super) carried: Option<u64>,
}

/// Further results of a run for exactness.
#[derive(Debug)]
pub(super) struct Detail {
    /// Loss, order, latency.
    pub(super) outcome: Outcome,
    /// Places of losses.
    pub(super) lost: Lost,
    /// Other threads that had the device's core for long enough to fill a wire; `None` when the
    /// kernel does not tell.
    pub(super) absences: Option<Vec<Absence>>,
}

/// Number of packets that a veth ring holds (`VETH_RING_SIZE` of drivers/net/veth.c).
const WIRE: f64 = 256.0;
/// Number of packets that a generator may send at once to catch up: half of what a wire holds.
pub(super) const BURST: f64 = WIRE / 2.0;

impl Trial {
    /// CPU time of the device per forwarded packet, in nanoseconds.
    pub(super) fn nanos_per_packet(&self) -> f64 {
        nanos_per(self.device, self.received)
    }

    /// Part of the packets that did not come out.
    #[expect(clippy::cast_precision_loss, reason = "a ratio needs no more than 52 bits")]
    pub(super) fn loss(&self) -> f64 {
        1.0 - self.received as f64 / self.sent.packets.max(1) as f64
    }

    /// True if the generator kept its timetable: it was never so late that it had to send more at once
    /// than a wire holds.
    pub(super) fn on_time(&self, plan: &Plan) -> bool {
        !plan.rate.is_finite() || self.sent.behind.as_secs_f64() * plan.rate < BURST
    }

    /// True if the generator reached the rate.
    pub(super) fn reached(&self, rate: f64) -> bool {
        self.sent.rate() > 0.98 * rate
    }

    /// Forwarded packets per second.
    pub(super) fn rate(&self) -> f64 {
        polder_testbed::traffic::sockets::per_second(self.received, self.sent.time)
    }

    /// Packets per second forwarded while packets were sent; packets still queued at the end do not count.
    pub(super) fn rate_in_time(&self) -> f64 {
        polder_testbed::traffic::sockets::per_second(self.in_time, self.sent.time)
    }
}

#[expect(clippy::cast_precision_loss, reason = "a ratio needs no more than 52 bits")]
pub(super) fn nanos_per(time: Duration, packets: u64) -> f64 {
    time.as_nanos() as f64 / packets.max(1) as f64
}

/// The core of the device, and that of all others.
pub(super) fn cores() -> (usize, usize) {
    let last = machine::cores() - 1;
    (last, 0)
}

impl Testbed {
    /// Lays wires and starts the device.
    ///
    /// # Errors
    /// When something is missing or does not start; a missing peer says what to install.
    pub(super) fn lay(setup: Setup) -> anyhow::Result<Self> {
        let mut topology = Topology::new()?;
        let (generator, gateway, target) =
            (topology.namespace("gen")?, topology.namespace("dut")?, topology.namespace("sink")?);
        // Names of NAPI threads are of the whole machine, and so are those of the interfaces.
        let [input, output, end] = ["i", "o", "s"].map(|role| topology.interface(role));
        let source = End { namespace: &generator, interface: "gen0" };
        topology.wire(source, End { namespace: &gateway, interface: &input }, MTU)?;
        let sink = End { namespace: &target, interface: &end };
        topology.wire(End { namespace: &gateway, interface: &output }, sink, MTU)?;
        for (interface, mac) in [(&input, INPUT), (&output, OUTPUT)] {
            let mac = mac.map(|byte| format!("{byte:02x}")).join(":");
            gateway.ip(&["link", "set", interface, "address", &mac])?;
        }
        let mut sink = match setup.asks() {
            Asks::Echo | Asks::Mixed => Sink::recording(&target, &end, setup.probe_at_sink())?,
            Asks::NfsGetattr | Asks::NfsRead => Sink::of_replies(&target, &end)?,
        };
        let (core, other) = cores();
        let sink_threads = target.pin_napi(&end, other)?;
        sink_threads.iter().try_for_each(|&thread| put_first(thread))?;
        if setup.sink_timer > 0 {
            target.moderate(&end, setup.sink_timer, setup.sink_patience)?;
        }
        let site = Site {
            namespace: &gateway,
            input: &input,
            input_mac: INPUT,
            output: &output,
            output_mac: OUTPUT,
            core,
            task: setup.task,
            tunnel: setup.tunnel(),
            moderation_us: setup.moderation_us,
            receiving: setup.receiving,
        };
        let device = setup.start(&site, &topology)?;
        if setup.puts_first {
            device.put_first()?;
        }
        let request = device.request()?;
        let template = match &request {
            None => Template::new(setup.talk(), setup.frame_bytes),
            Some(payload) => Template::of_requests(setup.talk(), payload),
        };
        let mut injector = Injector::of(&generator, "gen0", template)?;
        if request.is_some() {
            sink.follow(injector.timetable());
        }
        injector.pin_to(other);
        let path = Path {
            source: (generator.clone(), "gen0".to_owned()),
            input: (gateway.clone(), input.clone()),
            output: (gateway.clone(), output.clone()),
        };
        let parts = setup.asks().parts();
        Ok(Self { device, injector, sink, sink_threads, parts, path, topology })
    }

    /// The control socket of the device, which is a gateway.
    ///
    /// # Errors
    /// When there is none.
    pub(super) fn socket(&self) -> anyhow::Result<PathBuf> {
        let files = std::fs::read_dir(self.topology.directory())?.flatten().map(|entry| entry.path());
        let mut sockets = files.filter(|path| path.extension().is_some_and(|it| it == "sock"));
        sockets.next().context("the device has no control socket")
    }

    /// Percent of a core that the device uses for as long as `wait` takes.
    ///
    /// # Errors
    /// When the device has ended, or when interrupted.
    pub(super) fn idle(&mut self, wait: impl FnOnce() -> anyhow::Result<Duration>) -> anyhow::Result<f64> {
        self.device.go()?;
        interrupt::sleep(BEGIN)?;
        let before = self.device.cpu()?;
        let time = wait()?;
        let used = self.device.cpu()? - before;
        self.device.halt()?;
        Ok(used.as_secs_f64() / time.as_secs_f64() * 100.0)
    }

    /// Sends, and counts the packets that come out.
    ///
    /// # Errors
    /// When the device has ended, or when interrupted.
    pub(super) fn run(&mut self, plan: &Plan) -> anyhow::Result<Trial> {
        self.metered(plan).map(|(trial, _)| trial)
    }

    /// The same, with the places of losses and the other threads on the device's core.
    ///
    /// # Errors
    /// As [`metered`](Self::metered), or when an interface has no books.
    pub(super) fn explained(&mut self, plan: &Plan) -> anyhow::Result<(Trial, Detail)> {
        let hops = self.path.read()?;
        let watch = Watch::core(cores().0).ok();
        let (trial, outcome) = self.metered(plan)?;
        let fills = Duration::from_secs_f64(WIRE / plan.rate);
        let absences = watch.and_then(|watch| watch.absences(&["worker", "napi/pdl"], fills).ok());
        let lost = self.path.read()?.since(hops, trial.sent.packets, trial.received);
        Ok((trial, Detail { outcome, lost, absences }))
    }

    /// The same, and meters loss, order and latency of each packet.
    ///
    /// # Errors
    /// When the device has ended, when the sink could not keep up, or when interrupted.
    pub(super) fn metered(&mut self, plan: &Plan) -> anyhow::Result<(Trial, Outcome)> {
        // Who watches stays away from the device's core, too.
        std::thread::scope(|scope| {
            let watching = scope.spawn(|| {
                pin_here(cores().1)?;
                self.metered_here(plan)
            });
            watching.join().map_err(|_| anyhow!("a measurement panicked"))?
        })
    }

    fn metered_here(&mut self, plan: &Plan) -> anyhow::Result<(Trial, Outcome)> {
        let carried = self.device.carried()?;
        self.device.go()?;
        interrupt::sleep(BEGIN)?;
        let mut stray = StreamMeter::new(64);
        self.sink.drain(&mut stray);
        let mut meter = StreamMeter::new(1 << 20);
        let (before_it, missed) = (arrived(&self.sink), self.sink.missed());
        let Self { device, injector, sink, sink_threads, .. } = self;
        let read = || anyhow::Ok((device.cpu()?, sum_of(sink_threads)?, CpuReading::take()?));
        let (mut before, mut after, mut at_end) = (read()?, None, before_it);
        let sent = injector.run(plan, |moment| {
            match moment {
                Moment::Begin => before = read()?,
                Moment::Meanwhile => {}
                Moment::End => (after, at_end) = (Some(read()?), arrived(sink)),
            }
            sink.drain(&mut meter);
            Ok(())
        })?;
        let after = after.context("the run had no end")?;
        let (device, sink) = (after.0 - before.0, after.1 - before.1);
        let foreign = after.2.busy_since(&before.2, cores().0).saturating_sub(device);
        let foreign = foreign.as_secs_f64() / plan.time.as_secs_f64();
        interrupt::sleep(SETTLE)?;
        self.sink.drain(&mut meter);
        let parts = self.parts;
        let whole = |(firsts, others): (u64, u64)| {
            let (firsts, others) = (firsts - before_it.0, others - before_it.1);
            // An answer in parts is there when all of them are.
            if parts > 1 { firsts.min(others / (parts - 1)) } else { firsts }
        };
        let (received, in_time) = (whole(arrived(&self.sink)), whole(at_end));
        self.device.halt()?;
        let carried = carried.zip(self.device.carried()?).map(|(before, after)| after - before);
        if self.sink.missed() > missed {
            bail!("the sink wrote over records that nobody had read");
        }
        Ok((Trial { sent, received, in_time, device, sink, foreign, carried }, meter.finish(sent.numbers)))
    }

    /// Threads of the device, its own before the kernel's.
    pub(super) fn threads(&self) -> &[i32] {
        self.device.threads()
    }

    /// Counters of the device, as text.
    ///
    /// # Errors
    /// When it does not answer.
    pub(super) fn says(&mut self) -> anyhow::Result<String> {
        self.device.says()
    }

    /// Packets that the device's counters do not account for; `None` when it keeps none.
    ///
    /// # Errors
    /// When it does not answer.
    pub(super) fn unaccounted(&self) -> anyhow::Result<Option<i64>> {
        self.device.unaccounted()
    }
}

/// Packets at a sink that begin an answer, and others.
fn arrived(sink: &Sink) -> (u64, u64) {
    let others = sink.strangers();
    (sink.packets() - others, others)
}

fn sum_of(threads: &[i32]) -> anyhow::Result<Duration> {
    threads.iter().map(|&thread| thread_time(thread)).sum()
}

/// CPU time that a packet costs the injector when another core receives it, in nanoseconds.
///
/// # Errors
/// When the kernel refuses, or when interrupted.
pub(super) fn generator_cost(frame_bytes: usize, time: Duration) -> anyhow::Result<f64> {
    let mut topology = Topology::new()?;
    let (generator, target) = (topology.namespace("gen")?, topology.namespace("sink")?);
    let end = topology.interface("s");
    let source = End { namespace: &generator, interface: "gen0" };
    topology.wire(source, End { namespace: &target, interface: &end }, MTU)?;
    let _sink = Sink::counting(&target, &end)?;
    let (core, other) = cores();
    target.pin_napi(&end, core)?;
    let mut injector = Injector::open(&generator, "gen0", Talk::simple(CLIENT, SERVER), frame_bytes)?;
    injector.pin_to(other);
    let sent = injector.run(&Plan::flat_out(time), |_| Ok(()))?;
    Ok(nanos_per(sent.cpu, sent.packets))
}
