//! The cost of a masqueraded packet: raw frames, and packets of sockets.
//!
//! All work is done on the sender's time, as a veth does by itself. The cost of a forwarder is what the sender, the threads of
//! Polder and `ksoftirqd` spend more on a packet than where packets end at the ingress of the router's first interface.

use super::frames::Bed;
use super::router::{Forwarder, Router, Rules, Wires, drop_at_ingress, statistic};
use super::stream::Stream;
use super::{Books, Run};
use crate::scenarios::testbed::{cores, nanos_per};
use crate::scenarios::turns::in_turn;
use anyhow::{Context as _, anyhow};
use polder_testbed::clock;
use polder_testbed::interrupt;
use polder_testbed::meters::cpu::{softirq_threads, thread_time, threads_named};
use polder_testbed::meters::sequence::ratio;
use polder_testbed::meters::stream::StreamMeter;
use polder_testbed::peers::gateway::Gateway;
use polder_testbed::topology::pin_here;
use polder_testbed::traffic::pace::Pace;
use polder_testbed::traffic::raw::{Moment, Plan};
use polder_testbed::traffic::sockets::per_second;
use std::time::Duration;

/// Flows of the frames.
const FLOWS: u32 = 100;
/// Packets per second of a socket, and packets per burst.
const RATE: f64 = 100_000.0;
const BURST: u32 = 32;
const PAYLOAD: [u8; 18] = [0; 18];
/// Time in which packets on their way arrive.
const SETTLE: Duration = Duration::from_millis(30);

/// Rules, with the rows of the forwarders.
struct Part {
    source: Kind,
    rules: Rules,
    rows: [&'static str; 5],
}

/// Sources of packets.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Frames,
    Sockets,
}

/// Forwarders in the order of the rows. The kernel is there twice: how much two that are the same differ.
const FORWARDERS: [Forwarder; 5] =
    [Forwarder::Polder, Forwarder::Kernel, Forwarder::Kernel, Forwarder::FlowTable, Forwarder::Plain];

/// Names of the rows that begin with that.
macro_rules! rows {
    ($prefix:literal) => {
        [
            concat!($prefix, ".cpu_ns_per_packet.polder"),
            concat!($prefix, ".cpu_ns_per_packet.kernel"),
            concat!($prefix, ".cpu_ns_per_packet.kernel_again"),
            concat!($prefix, ".cpu_ns_per_packet.flowtable"),
            concat!($prefix, ".cpu_ns_per_packet.plain"),
        ]
    };
}

const PARTS: [Part; 4] = [
    Part { source: Kind::Frames, rules: Rules::Three, rows: rows!("connections.frames.rules_3") },
    Part { source: Kind::Frames, rules: Rules::ThreeHundred, rows: rows!("connections.frames.rules_300") },
    Part { source: Kind::Sockets, rules: Rules::Three, rows: rows!("connections.sockets.rules_3") },
    Part { source: Kind::Sockets, rules: Rules::ThreeHundred, rows: rows!("connections.sockets.rules_300") },
];

/// The sender beside no router.
const ALONE: &str = "the sender alone";

/// A router with its sender and its receiver.
enum Source {
    Frames(Box<Bed>),
    Sockets(Box<Sockets>),
}

/// Cost of a run, in nanoseconds a packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cost {
    nanos: f64,
    /// Part of the packets that did not arrive.
    loss: f64,
    /// Share of arrived packets that Polder has carried.
    carried: f64,
    /// Packets a second.
    rate: f64,
    /// Packets sent, and packets lost without being counted by an interface or a gateway.
    packets: u64,
    unaccounted: u64,
    reordered: u64,
}

/// CPU time of Polder's threads and of the kernel's that work for packets.
struct Meter(Vec<i32>);

impl Meter {
    fn new(gateway: Option<&Gateway>) -> anyhow::Result<Self> {
        let own = gateway.map(|gateway| threads_named(gateway.id(), 1, |_| true)).transpose()?;
        Ok(Self([own.unwrap_or_default(), softirq_threads()?].concat()))
    }

    fn read(&self) -> Vec<Option<Duration>> {
        self.0.iter().map(|&thread| thread_time(thread).ok()).collect()
    }

    /// Time since a reading. A thread that has ended meanwhile counts for nothing.
    fn since(&self, before: &[Option<Duration>]) -> Duration {
        before.iter().zip(self.read()).filter_map(|(before, after)| Some(after? - (*before)?)).sum()
    }
}

/// Fills the rows.
pub(super) fn measure(run: &mut Run, books: &mut Books) -> anyhow::Result<()> {
    for part in &PARTS {
        if run.is_due(&part.rows) {
            part.measure(run, books)?;
        }
    }
    Ok(())
}

impl Part {
    fn measure(&self, run: &mut Run, books: &mut Books) -> anyhow::Result<()> {
        let (rounds, millis) = run.quick_or((3, 200), (10, 1000));
        let time = Duration::from_millis(millis);
        run.says("the sender alone");
        let mut alone = self.lay(Forwarder::Nothing)?;
        let mut sources = Vec::new();
        for (row, forwarder) in self.rows.into_iter().zip(FORWARDERS) {
            if run.wants(row) {
                run.says(row);
                sources.extend(run.or_skip(&[row], self.lay(forwarder))?.map(|source| (row, Some(source))));
            }
        }
        // The sender alone begins each round.
        sources.insert(0, (ALONE, None));
        let mut sender = None;
        let sheet = in_turn(
            run,
            rounds,
            &mut sources,
            |(row, _)| (*row).to_owned(),
            |(row, source), sheet| {
                let Some(source) = source else {
                    let cost = alone.cost(time)?;
                    sheet.push(ALONE, cost.nanos);
                    sender = Some(cost);
                    return Ok(());
                };
                let cost = source.cost(time)?;
                let sender = sender.as_ref().context("the sender alone comes first")?;
                sheet.push(*row, cost.beyond(sender));
                sheet.push(format!("{row} lost"), 100.0 * cost.loss);
                sheet.push(format!("{row} carried"), 100.0 * cost.carried);
                sheet.push(format!("{row} rate"), cost.rate / 1e6);
                source.account(&cost, books);
                Ok(())
            },
        )?;
        sheet.record(run);
        for (row, source) in sources.into_iter().filter_map(|(row, source)| Some((row, source?))) {
            let [lost, carried, rate] =
                ["lost", "carried", "rate"].map(|what| sheet.median(&format!("{row} {what}")));
            let sender = sheet.median(ALONE);
            run.remark(
                row,
                format!(
                    "more than {sender:.0} ns of the sender; {rate:.2} Mpps, {lost:.2} % lost, {carried:.1} % carried"
                ),
            );
            books.unaccounted += source.into_router().stop()?;
        }
        Ok(())
    }

    fn lay(&self, forwarder: Forwarder) -> anyhow::Result<Source> {
        match self.source {
            Kind::Frames => Bed::lay(forwarder, self.rules, FLOWS).map(|bed| Source::Frames(Box::new(bed))),
            Kind::Sockets => {
                Sockets::lay(forwarder, self.rules).map(|sockets| Source::Sockets(Box::new(sockets)))
            }
        }
    }
}

impl Source {
    fn router(&self) -> &Router {
        match self {
            Self::Frames(bed) => &bed.router,
            Self::Sockets(sockets) => &sockets.router,
        }
    }

    /// Adds the packets of a run in which Polder carried.
    fn account(&self, cost: &Cost, books: &mut Books) {
        if self.router().gateway.is_some() {
            books.packets += cost.packets;
            books.unaccounted += cost.unaccounted;
            books.reordered += cost.reordered;
        }
    }

    fn into_router(self) -> Router {
        match self {
            Self::Frames(bed) => bed.router,
            Self::Sockets(sockets) => sockets.router,
        }
    }

    fn cost(&mut self, time: Duration) -> anyhow::Result<Cost> {
        match self {
            Self::Frames(bed) => bed.cost(time),
            Self::Sockets(sockets) => sockets.cost(time),
        }
    }
}

impl Cost {
    /// Nanoseconds a packet beyond those of the sender alone.
    pub(super) fn beyond(&self, sender: &Self) -> f64 {
        self.nanos - sender.nanos / (1.0 - self.loss)
    }
}

impl Bed {
    /// Sends as fast as the forwarder takes packets. The thread that watches stays away from the sender's core.
    ///
    /// # Errors
    /// When connections are not carried before, or when interrupted.
    pub(super) fn cost(&mut self, time: Duration) -> anyhow::Result<Cost> {
        std::thread::scope(|scope| {
            let watching = scope.spawn(|| {
                pin_here(cores().0)?;
                self.cost_here(time)
            });
            watching.join().map_err(|_| anyhow!("a measurement panicked"))?
        })
    }

    fn cost_here(&mut self, time: Duration) -> anyhow::Result<Cost> {
        self.confirm()?;
        let (carried, hops, drops) = (self.router.carried()?, self.path.read()?, self.router.drops()?);
        let meter = Meter::new(self.router.gateway.as_ref())?;
        self.sink.drain(&mut StreamMeter::new(64));
        let (arrived, mut order) = (self.sink.packets(), StreamMeter::new(1 << 20));
        let (mut before, mut spent) = (meter.read(), None);
        let Self { injector, sink, .. } = self;
        let sent = injector.run(&Plan::flat_out(time), |moment| {
            match moment {
                Moment::Begin => before = meter.read(),
                Moment::Meanwhile => {}
                Moment::End => spent = Some(meter.since(&before)),
            }
            sink.drain(&mut order);
            Ok(())
        })?;
        interrupt::sleep(SETTLE)?;
        self.sink.drain(&mut order);
        let received = self.sink.packets() - arrived;
        let carried = self.router.carried()?.saturating_sub(carried);
        let spent = spent.context("the run had no end")? + sent.cpu;
        let is_forwarded = self.connections.is_some();
        let packets = if is_forwarded { received } else { sent.packets };
        let lost = self.path.read()?.since(hops, sent.packets, received).in_device;
        let drops = self.router.drops()?.cast_signed() - drops.cast_signed();
        Ok(Cost {
            nanos: nanos_per(spent, packets),
            loss: if is_forwarded { 1.0 - ratio(received, sent.packets) } else { 0.0 },
            carried: ratio(carried, received),
            rate: per_second(packets, sent.time),
            packets: sent.packets,
            unaccounted: (lost - drops).unsigned_abs(),
            reordered: order.finish(sent.numbers).arrivals.reordered,
        })
    }
}

/// A router with a stream, whose packets end at the ingress of the receiver.
struct Sockets {
    router: Router,
    stream: Stream,
    is_forwarded: bool,
}

impl Sockets {
    fn lay(forwarder: Forwarder, rules: Rules) -> anyhow::Result<Self> {
        let router = Router::lay(forwarder, rules, Wires::Whole, "")?;
        let is_forwarded = forwarder != Forwarder::Nothing;
        let stream = if is_forwarded { Stream::open(&router)? } else { Stream::bind(&router)? };
        drop_at_ingress(&router.right, &router.end)?;
        Ok(Self { router, stream, is_forwarded })
    }

    fn cost(&mut self, time: Duration) -> anyhow::Result<Cost> {
        if self.is_forwarded {
            self.stream.wait_until_carried(&self.router)?;
        }
        let (carried, arrived) = (self.router.carried()?, self.arrived()?);
        let meter = Meter::new(self.router.gateway.as_ref())?;
        let before = meter.read();
        let (sent, sender) = std::thread::scope(|scope| {
            let sending = scope.spawn(|| {
                pin_here(cores().1)?;
                send(&self.stream, time)
            });
            sending.join().map_err(|_| anyhow!("the sender panicked"))?
        })?;
        interrupt::sleep(SETTLE)?;
        let spent = meter.since(&before) + sender;
        let received = self.arrived()? - arrived;
        let carried = self.router.carried()?.saturating_sub(carried);
        let packets = if self.is_forwarded { received } else { sent };
        Ok(Cost {
            nanos: nanos_per(spent, packets),
            loss: if self.is_forwarded { 1.0 - ratio(received, sent) } else { 0.0 },
            carried: ratio(carried, received),
            rate: per_second(packets, time),
            packets: sent,
            unaccounted: sent.abs_diff(packets),
            reordered: 0,
        })
    }

    /// Number of packets that the receiver's interface has received.
    fn arrived(&self) -> anyhow::Result<u64> {
        statistic(&self.router.right, &self.router.end, "rx_packets")
    }
}

/// Sends for that time; number of packets, and the thread's CPU time for them.
fn send(stream: &Stream, time: Duration) -> anyhow::Result<(u64, Duration)> {
    let (start, cpu) = (clock::nanos(), clock::thread_cpu());
    let pace = Pace::new(start, RATE).in_bursts_of(BURST);
    let mut number = 0;
    while u128::from(clock::nanos() - start) < time.as_nanos() {
        interrupt::check()?;
        // Spinning until the very moment would be charged to packets.
        std::thread::sleep(Duration::from_nanos(pace.due(number).saturating_sub(clock::nanos())));
        stream.burst(BURST, &PAYLOAD)?;
        number += u64::from(BURST);
    }
    Ok((number, clock::thread_cpu() - cpu))
}
