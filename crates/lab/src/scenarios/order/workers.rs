//! Loss and reordering of packets while the number of workers changes, between veths.
//!
//! Packets come at a steady rate. The one that waits longest has waited for the whole pause: rings hold what comes.
//! Each packet that is missing at the end is in one book: that of a wire, of the gateway's input, or of the gateway.

use super::super::hops::{Lost, Path};
use super::super::testbed::cores;
use super::Run;
use anyhow::{anyhow, ensure};
use polder_testbed::interrupt;
use polder_testbed::meters::statistics::Samples;
use polder_testbed::meters::stream::StreamMeter;
use polder_testbed::peers::polder::Polder;
use polder_testbed::peers::{CLIENT, Device as _, SERVER, Site, Task, Tunnel};
use polder_testbed::topology::{End, Topology, is_root, pin_here, put_first};
use polder_testbed::traffic::packet::{Mac, Talk};
use polder_testbed::traffic::raw::{Injector, Moment, Plan, Sink};
use std::fmt;
use std::time::Duration;

pub(super) const WAIT: &str = "order.workers_change.longest_wait_us";
pub(super) const LOST: &str = "order.workers_change.lost";

/// Packets a second.
const RATE: f64 = 20_000.0;
/// Time for which packets come before a change, and with it.
const BEFORE: Duration = Duration::from_millis(100);
const TIME: Duration = Duration::from_millis(400);
/// Time for which packets may be on their way after the last was sent.
const SETTLE: Duration = Duration::from_millis(50);
/// The sink's timer, in nanoseconds: no wake-up for every packet.
const SINK_TIMER: u32 = 80_000;
const INPUT: Mac = [0x02, 0, 0, 0, 7, 0x01];
const OUTPUT: Mac = [0x02, 0, 0, 0, 7, 0x02];

/// A gateway between an injector and a sink.
struct Line {
    // Taken down in this order.
    polder: Polder,
    injector: Injector,
    sink: Sink,
    path: Path,
    _topology: Topology,
}

/// Counters of one run.
#[derive(Clone, Copy, Debug)]
struct RunResult {
    sent: u64,
    lost: Lost,
    reordered: u64,
    /// Longest delay in nanoseconds.
    longest: u64,
}

/// Counters of all runs of a kind.
#[derive(Debug, Default)]
struct Sum {
    sent: u64,
    /// Lost by the gateway: at its input, and inside.
    by_gateway: u64,
    /// Lost on wires.
    on_wires: u64,
    reordered: u64,
    longest: Samples,
    /// Remarks on runs that lost packets.
    remarks: Vec<String>,
}

pub(super) fn measure(run: &mut Run) -> anyhow::Result<()> {
    if run.is_due(&[WAIT, LOST]) {
        let changed = if is_root() { changes(run) } else { Err(anyhow!("namespaces are made by root")) };
        run.or_skip(&[WAIT, LOST], changed)?;
    }
    Ok(())
}

fn changes(run: &mut Run) -> anyhow::Result<()> {
    let (core, other) = cores();
    let mut line = Line::lay(core, other)?;
    let (mut changed, mut unchanged) = (Sum::default(), Sum::default());
    let mut cpus = [format!("[{core}]"), format!("[{core}, {other}]")];
    for round in 1..=run.quick_or(4, 20) {
        run.says(&format!("workers change, run {round}"));
        unchanged.add(line.observe(other, |_| Ok(()))?);
        changed.add(line.observe(other, |polder| polder.reload_with(&cpus[0], &cpus[1]))?);
        cpus.reverse();
    }
    let unaccounted = line.polder.unaccounted()?.unwrap_or(0);
    ensure!(unaccounted == 0, "{unaccounted} packets are unaccounted for");
    run.place("workers that change in number", format!("{core}, {other}"), "pinned by `cpus`");
    run.record(WAIT, &changed.longest);
    let (usual, reordered) = (unchanged.longest.median().unwrap_or(0.0), changed.reordered);
    run.remark(
        WAIT,
        format!("at {RATE} packets a second; without a change {usual:.0}; {reordered} reordered"),
    );
    run.record_count(LOST, changed.by_gateway);
    run.remark(LOST, format!("{changed}; without a change {unchanged}"));
    Ok(())
}

impl Sum {
    fn add(&mut self, seen: RunResult) {
        let RunResult { sent, lost, reordered, longest } = seen;
        self.sent += sent;
        self.by_gateway += lost.hops.at_input + lost.in_device.unsigned_abs();
        self.on_wires += lost.hops.to_device + lost.hops.to_sink;
        self.reordered += reordered;
        self.longest.push(micros(longest));
        if lost != Lost::default() {
            self.remarks.push(format!("{lost}; the longest wait was {:.0} µs", micros(longest)));
        }
    }
}

impl fmt::Display for Sum {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { sent, by_gateway, on_wires, remarks, .. } = self;
        write!(formatter, "{by_gateway} of {sent}, and {on_wires} on wires")?;
        remarks.iter().try_for_each(|remark| write!(formatter, " ({remark})"))
    }
}

#[expect(clippy::cast_precision_loss, reason = "below a minute")]
fn micros(nanos: u64) -> f64 {
    nanos as f64 / 1e3
}

impl Line {
    fn lay(core: usize, other: usize) -> anyhow::Result<Self> {
        let mut topology = Topology::new()?;
        let [generator, gateway, target] =
            [topology.namespace("gen")?, topology.namespace("dut")?, topology.namespace("sink")?];
        let [input, output, end] = ["i", "o", "s"].map(|role| topology.interface(role));
        let source = End { namespace: &generator, interface: "gen0" };
        topology.wire(source, End { namespace: &gateway, interface: &input }, 1500)?;
        let sink = End { namespace: &target, interface: &end };
        topology.wire(End { namespace: &gateway, interface: &output }, sink, 1500)?;
        let mut injector = Injector::open(&generator, "gen0", Talk::simple(CLIENT, SERVER), 64)?;
        injector.pin_to(other);
        let sink = Sink::recording(&target, &end, injector.probe_at())?;
        let sink_threads = target.pin_napi(&end, other)?;
        sink_threads.iter().try_for_each(|&thread| put_first(thread))?;
        target.moderate(&end, SINK_TIMER, 1)?;
        let site = Site {
            namespace: &gateway,
            input: &input,
            input_mac: INPUT,
            output: &output,
            output_mac: OUTPUT,
            core,
            task: Task::Bridge,
            tunnel: Tunnel::Gretap,
            moderation_us: None,
            receiving: None,
        };
        let path = Path {
            source: (generator.clone(), "gen0".to_owned()),
            input: (gateway.clone(), input.clone()),
            output: (gateway.clone(), output.clone()),
        };
        // Not shared: the second worker has the injector's core, and would hold up what it took part in.
        let polder = Polder::start(&site, topology.directory())?;
        // A wire holds 256 packets, 13 ms: what is busy beside must not be taken for the pause.
        polder.threads().iter().skip(1).try_for_each(|&thread| put_first(thread))?;
        Ok(Self { polder, injector, sink, path, _topology: topology })
    }

    /// Sends for a while, and runs `act` meanwhile.
    fn observe(
        &mut self,
        core: usize,
        act: impl FnOnce(&Polder) -> anyhow::Result<()> + Send,
    ) -> anyhow::Result<RunResult> {
        let Self { polder, injector, sink, path, .. } = self;
        let before = path.read()?;
        std::thread::scope(|scope| {
            let acting = scope.spawn(|| {
                pin_here(core)?;
                interrupt::sleep(BEFORE)?;
                act(polder)
            });
            let mut meter = StreamMeter::new(1 << 16);
            let sent = injector.run(&Plan::steady(RATE, TIME), |_: Moment| {
                sink.drain(&mut meter);
                Ok(())
            });
            acting.join().map_err(|_| anyhow!("a change panicked"))??;
            interrupt::sleep(SETTLE)?;
            sink.drain(&mut meter);
            let outcome = meter.finish(sent?.numbers);
            let arrivals = outcome.arrivals;

            Ok(RunResult {
                sent: arrivals.sent,
                lost: path.read()?.since(before, arrivals.sent, arrivals.received),
                reordered: arrivals.reordered,
                longest: outcome.latency.max(),
            })
        })
    }
}
