//! What a change of the number of workers does to packets that come meanwhile, between veths.
//!
//! Packets come at a steady rate. The one that waits longest has waited for the whole pause: rings hold what comes.

use super::super::stand::cores;
use super::{Run, promise};
use crate::interrupt;
use crate::meters::statistics::Samples;
use crate::meters::stream::StreamMeter;
use crate::peers::polder::Polder;
use crate::peers::{CLIENT, SERVER, Site, Task};
use crate::report::Better;
use crate::scenarios::{Goal, Promise};
use crate::topology::{End, Topology, is_root, pin_here, put_first};
use crate::traffic::packet::{Mac, Talk};
use crate::traffic::raw::{Injector, Moment, Plan, Sink};
use anyhow::anyhow;
use std::time::Duration;

pub(super) const WAIT: &str = "order.workers_change.longest_wait_us";
pub(super) const LOST: &str = "order.workers_change.lost";

pub(super) const PROMISES: [Promise; 2] = [
    promise(WAIT, "µs", Better::Lower, Goal::None),
    promise(LOST, "packets", Better::Lower, Goal::Value(0.0)),
];

/// Packets a second.
const RATE: f64 = 20_000.0;
/// How long packets come before a change, and with it.
const BEFORE: Duration = Duration::from_millis(100);
const TIME: Duration = Duration::from_millis(400);
/// How long packets may be on their way after the last was sent.
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
    _topology: Topology,
}

/// What packets of one run have seen.
#[derive(Clone, Copy, Debug)]
struct Seen {
    sent: u64,
    lost: u64,
    reordered: u64,
    /// In nanoseconds.
    longest: u64,
}

pub(super) fn measure(run: &mut Run) -> anyhow::Result<()> {
    if !run.wants_any(&[WAIT, LOST]) || run.is_out_of_time() {
        return Ok(());
    }
    if !is_root() {
        run.skip(&[WAIT, LOST], "namespaces are made by root");
        return Ok(());
    }
    if let Err(error) = changes(run) {
        interrupt::check()?;
        run.skip(&[WAIT, LOST], &format!("{error:#}"));
    }
    Ok(())
}

fn changes(run: &mut Run) -> anyhow::Result<()> {
    let (core, other) = cores();
    let mut line = Line::lay(core, other)?;
    let (mut changed, mut unchanged) = (Samples::default(), Samples::default());
    let (mut lost, mut without, mut sent, mut reordered) = (0, 0, 0, 0);
    let mut cpus = [format!("[{core}]"), format!("[{core}, {other}]")];
    for round in 1..=run.quick_or(4, 20) {
        run.says(&format!("workers change, run {round}"));
        let still = line.observe(other, |_| Ok(()))?;
        let seen = line.observe(other, |polder| polder.reload_with(&cpus[0], &cpus[1]))?;
        cpus.reverse();
        unchanged.push(micros(still.longest));
        changed.push(micros(seen.longest));
        (lost, without) = (lost + seen.lost, without + still.lost);
        (sent, reordered) = (sent + seen.sent, reordered + seen.reordered);
    }
    run.place("workers that change in number", format!("{core}, {other}"), "pinned by `cpus`");
    run.record(WAIT, &changed);
    let usual = unchanged.median().unwrap_or(0.0);
    run.remark(
        WAIT,
        format!("at {RATE} packets a second; without a change {usual:.0}; {reordered} reordered"),
    );
    #[expect(clippy::cast_precision_loss, reason = "thousands of packets")]
    run.record_one(LOST, lost as f64);
    run.remark(LOST, format!("of {sent}; without a change {without}"));
    Ok(())
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
        target.moderate(&end, SINK_TIMER)?;
        let site = Site {
            namespace: &gateway,
            input: &input,
            input_mac: INPUT,
            output: &output,
            output_mac: OUTPUT,
            core,
            task: Task::Bridge,
            moderation_us: 0,
            receiving: None,
        };
        // Not shared: the second worker has the injector's core, and would hold up what it took part in.
        let polder = Polder::start(&site, topology.directory())?;
        Ok(Self { polder, injector, sink, _topology: topology })
    }

    /// Sends for a while, and does something meanwhile.
    fn observe(
        &mut self,
        core: usize,
        act: impl FnOnce(&Polder) -> anyhow::Result<()> + Send,
    ) -> anyhow::Result<Seen> {
        let Self { polder, injector, sink, .. } = self;
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
            Ok(Seen {
                sent: arrivals.sent,
                lost: arrivals.lost,
                reordered: arrivals.reordered,
                longest: outcome.latency.max(),
            })
        })
    }
}
