//! Forwarding between two e1000 in one guest on one processor: Polder's bridge, and that of the guest's kernel, in turn.

use super::Run;
use super::far::{Far, Load};
use super::idle::{self, WAKEUPS, Wakeups};
use crate::e1000::{self, Pair};
use crate::guest::Iommu;
use crate::interrupt;
use crate::meters::statistics::Samples;
use anyhow::Context as _;
use std::time::Duration;

pub(super) const RATE_POLDER: &str = "e1000.forward.kpps.polder";
pub(super) const RATE_KERNEL: &str = "e1000.forward.kpps.kernel";
pub(super) const RATIO: &str = "e1000.forward.ratio_vs_kernel";
pub(super) const UNACCOUNTED: &str = "e1000.lost_unaccounted";
const ROWS: [&str; 5] = [RATE_POLDER, RATE_KERNEL, RATIO, UNACCOUNTED, WAKEUPS];
/// The kernel's bridge in the guest.
const BRIDGE: &str = "br9";

/// Guest, generator and sink.
struct Testbed {
    pair: Pair,
    far: Far,
}

/// Results of all rounds.
#[derive(Default)]
struct Seen {
    /// Polder's and the kernel's, by round.
    loads: Vec<[Load; 2]>,
    /// Packets that Polder could not account for.
    unaccounted: u64,
    /// Wake-ups in the first round.
    wakeups: Option<Wakeups>,
}

/// Measures both forwarders; gives the number of packets that Polder could not account for, if it was measured.
pub(super) fn measure(run: &mut Run) -> anyhow::Result<Option<u64>> {
    if !run.wants_any(&ROWS) {
        return Ok(None);
    }
    if let Err(reason) = e1000::guest_available() {
        run.skip(&ROWS, &format!("{reason:#}"));
        return Ok(None);
    }
    if run.is_out_of_time() {
        run.leave_out("forwarding beside the kernel: out of time");
        return Ok(None);
    }
    run.place("the guest", "any", "one emulated processor");
    run.place("generator and sink", "any", "TAPs in namespaces");
    match rounds(run) {
        Ok(seen) => {
            record(run, &seen);
            Ok(Some(seen.unaccounted))
        }
        Err(error) => {
            interrupt::check()?;
            run.skip(&ROWS, &format!("{error:#}"));
            Ok(None)
        }
    }
}

fn rounds(run: &Run) -> anyhow::Result<Seen> {
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    run.says("starting the guest");
    let pair = Pair::boot(&program, Iommu::PassThrough)?;
    let far = Far::open(&pair)?;
    let mut testbed = Testbed { pair, far };
    testbed.pair.load("bridge")?;
    let (rounds, time) = run.quick_or((2, Duration::from_millis(600)), (10, Duration::from_secs(2)));
    let mut seen = Seen::default();
    for round in 1..=rounds {
        run.says(&format!("forwarding, round {round} of {rounds}"));
        let polder = testbed.polder(time, &mut seen).context("Polder's turn")?;
        let kernel = testbed.kernel(time).context("the kernel's turn")?;
        seen.loads.push([polder, kernel]);
    }
    testbed.pair.power_off()?;
    Ok(seen)
}

impl Testbed {
    /// The devices have the kernel's driver before and after each turn.
    fn polder(&mut self, time: Duration, seen: &mut Seen) -> anyhow::Result<Load> {
        self.pair.take()?;
        self.pair.configure_bridge(None)?;
        self.pair.start()?;
        self.far.warm_up()?;
        let load = self.far.overload(time)?;
        seen.unaccounted += self.pair.unaccounted()?.unsigned_abs();
        if seen.wakeups.is_none() {
            seen.wakeups = Some(idle::count(&mut self.pair, &self.far).context("at rest")?);
        }
        self.pair.stop()?;
        self.pair.give_back()?;
        Ok(load)
    }

    fn kernel(&mut self, time: Duration) -> anyhow::Result<Load> {
        let names = self.pair.interfaces()?;
        self.run(&format!("ip link add {BRIDGE} type bridge"))?;
        for name in &names {
            self.run(&format!("ip link set {name} master {BRIDGE}"))?;
            self.run(&format!("ip link set {name} up"))?;
        }
        self.run(&format!("ip link set {BRIDGE} up"))?;
        self.far.warm_up()?;
        let load = self.far.overload(time)?;
        self.run(&format!("ip link del {BRIDGE}"))?;
        for name in &names {
            self.run(&format!("ip link set {name} down"))?;
        }
        Ok(load)
    }

    fn run(&mut self, line: &str) -> anyhow::Result<()> {
        self.pair.guest.run(line).map(drop)
    }
}

fn record(run: &mut Run, seen: &Seen) {
    let told = |load: &Load| format!("{:.1} kpps, lost {:.0} %", load.rate / 1e3, 100.0 * load.lost());
    let all = seen.loads.iter().map(|[polder, kernel]| format!("{} : {}", told(polder), told(kernel)));
    let all = format!("Polder : kernel, by round: {}", all.collect::<Vec<_>>().join("; "));
    for (row, side) in [(RATE_POLDER, 0), (RATE_KERNEL, 1)] {
        let loads = seen.loads.iter().map(|loads| loads[side]).filter(Load::is_overload);
        fill(run, row, &loads.map(|load| load.rate / 1e3).collect(), &all);
    }
    let both = seen.loads.iter().filter(|loads| loads.iter().all(Load::is_overload));
    fill(run, RATIO, &both.map(|[polder, kernel]| polder.rate / kernel.rate).collect(), &all);
    if let Some(Wakeups { workers, tried, threads }) = &seen.wakeups {
        run.record_one(WAKEUPS, float(*workers));
        run.remark(
            WAKEUPS,
            format!("by thread: {threads}; of workers when 25 frames a second come: {tried}"),
        );
    }
}

fn float(count: u64) -> f64 {
    u32::try_from(count).map_or(f64::MAX, f64::from)
}

fn fill(run: &mut Run, row: &str, samples: &Samples, all: &str) {
    if samples.count() == 0 {
        return run.missing(row, format!("no round was an overload: {all}"));
    }
    run.record(row, samples);
    run.remark(row, all);
}
