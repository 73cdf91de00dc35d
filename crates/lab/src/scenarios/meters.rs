//! `meters`: the lab's own instruments, before anything is measured with them.

use super::testbed::{cores, nanos_per};
use super::turns::rounds;
use super::{Run, Scenario};
use anyhow::anyhow;
use polder_testbed::interrupt;
use polder_testbed::meters::stream::StreamMeter;
use polder_testbed::topology::{End, Namespace, Topology, pin_here, put_first};
use polder_testbed::traffic::packet::{PROBE_AT, Talk};
use polder_testbed::traffic::raw::{Faults, Generator, Injector, Plan, Sink};
use polder_testbed::traffic::sizes::Sizes;
use std::net::Ipv4Addr;
use std::time::Duration;

/// The scenario.
pub(super) const SCENARIO: Scenario = Scenario {
    name: "meters",
    about: "the lab's own instruments: rates of generator and injector, and faults that the sink has to find",
    needs_root: true,
    rows: include_str!("rows/meters.rows"),
    measure,
};

const GENERATOR: &str = "meters.generator.mpps";
const GENERATOR_COST: &str = "meters.generator.cpu_ns_per_packet";
const INJECTOR: &str = "meters.injector.mpps";
const INJECTOR_COST: &str = "meters.injector.cpu_ns_per_packet";
const MISSED: &str = "meters.controls_missed";

/// Frames as short as they can be.
const FRAME_BYTES: usize = 64;
/// Faults of each kind.
const FAULTS: u64 = 17;
/// A rate at which the wire loses nothing, and long enough for all faults.
const CONTROL: (f64, Duration) = (100_000.0, Duration::from_millis(350));
/// Maximum number of attempts at a control when the wire itself lost packets.
const ATTEMPTS: usize = 10;
const SETTLE: Duration = Duration::from_millis(20);

/// Two namespaces and a wire.
struct Wire {
    left: Namespace,
    right: Namespace,
    end: String,
    _topology: Topology,
}

impl Wire {
    fn lay() -> anyhow::Result<Self> {
        let mut topology = Topology::new()?;
        let (left, right) = (topology.namespace("gen")?, topology.namespace("sink")?);
        let end = topology.interface("s");
        let a = End { namespace: &left, interface: "gen0" };
        topology.wire(a, End { namespace: &right, interface: &end }, 1500)?;
        Ok(Self { left, right, end, _topology: topology })
    }

    /// The sink's receive work on a core, before all others.
    fn receive_on(&self, core: usize) -> anyhow::Result<()> {
        self.right.pin_napi(&self.end, core)?.into_iter().try_for_each(put_first)
    }

    fn generator(&self) -> anyhow::Result<Generator> {
        Generator::open(&self.left, "gen0", talk(), &Sizes::all(FRAME_BYTES))
    }
}

fn talk() -> Talk {
    let end = |last| ([2, 0, 0, 0, 0, last], Ipv4Addr::new(10, 0, 0, last));
    Talk::simple(end(1), end(2))
}

fn measure(run: &mut Run) -> anyhow::Result<()> {
    let (core, other) = cores();
    run.place("generator and injector", other, "thread, pinned");
    run.place("sink", core, "NAPI thread, pinned, before all others (SCHED_FIFO)");
    // On a thread of its own, because it is pinned.
    std::thread::scope(|scope| {
        let measuring = scope.spawn(|| {
            pin_here(other)?;
            rates(run, core)?;
            controls(run, core)
        });
        measuring.join().map_err(|_| anyhow!("a measurement panicked"))?
    })
}

fn rates(run: &mut Run, core: usize) -> anyhow::Result<()> {
    let (count, time) = run.quick_or((3, 500), (10, 1000));
    let plan = Plan::flat_out(Duration::from_millis(time));
    let wire = Wire::lay()?;
    let mut generator = wire.generator()?;
    let mut injector = Injector::open(&wire.left, "gen0", talk(), FRAME_BYTES)?;
    let _sink = Sink::counting(&wire.right, &wire.end)?;
    wire.receive_on(core)?;
    let sheet = rounds(run, count, "rates", |sheet| {
        let sent = generator.run(&plan, || {})?;
        sheet.push(GENERATOR, sent.rate() / 1e6);
        sheet.push(GENERATOR_COST, nanos_per(sent.cpu, sent.packets));
        let sent = injector.run(&plan, |_| Ok(()))?;
        sheet.push(INJECTOR, sent.rate() / 1e6);
        sheet.push(INJECTOR_COST, nanos_per(sent.cpu, sent.packets));
        Ok(())
    })?;
    sheet.record(run);
    Ok(())
}

/// Faults on purpose, of which the meter has to find exactly as many.
fn controls(run: &mut Run, core: usize) -> anyhow::Result<()> {
    let one = |drops, swaps, duplicates| Faults { drops, swaps, duplicates };
    let kinds = [
        ("nothing", one(0, 0, 0)),
        ("drops", one(FAULTS, 0, 0)),
        ("swaps", one(0, FAULTS, 0)),
        ("duplicates", one(0, 0, FAULTS)),
    ];
    let (mut missed, mut told) = (0, Vec::new());
    for (name, faults) in kinds {
        run.says(&format!("control: {name}"));
        let found = control(faults, core)?;
        if found != Some(faults) {
            missed += 1;
            told.push(format!("{name}: {found:?}"));
        }
    }
    run.record_one(MISSED, f64::from(missed));
    let remark = format!("of {}: {FAULTS} drops, swaps, duplicates, and nothing", kinds.len());
    run.remark(MISSED, if told.is_empty() { remark } else { told.join("; ") });
    Ok(())
}

/// Faults that the meter finds; `None` when the wire itself lost packets every time.
fn control(faults: Faults, core: usize) -> anyhow::Result<Option<Faults>> {
    let wire = Wire::lay()?;
    let plan = Plan { faults, ..Plan::steady(CONTROL.0, CONTROL.1) };
    for _ in 0..ATTEMPTS {
        let mut generator = wire.generator()?;
        let mut sink = Sink::recording(&wire.right, &wire.end, PROBE_AT)?;
        wire.receive_on(core)?;
        let mut meter = StreamMeter::new(1 << 16);
        let sent = generator.run(&plan, || sink.drain(&mut meter))?;
        interrupt::sleep(SETTLE)?;
        sink.drain(&mut meter);
        if sink.packets() != sent.packets || sink.missed() > 0 {
            continue;
        }
        let arrivals = meter.finish(sent.numbers).arrivals;
        return Ok(Some(Faults {
            drops: arrivals.lost,
            swaps: arrivals.reordered,
            duplicates: arrivals.duplicated,
        }));
    }
    Ok(None)
}
