//! Forwarding between two e1000 in one guest on one processor: Polder's bridge and router, and those of the guest's kernel,
//! in turn.

use super::Run;
use super::far::{Far, Load};
use super::idle::{self, WAKEUPS, Wakeups};
use super::way::Way;
use anyhow::Context as _;
use polder_judges::e1000::{self, Pair};
use polder_testbed::guest::Iommu;
use polder_testbed::meters::statistics::Samples;
use std::time::Duration;

pub(super) const UNACCOUNTED: &str = "e1000.lost_unaccounted";
/// Ways, each with its rows: Polder's rate, the kernel's, and the ratio of both.
const WAYS: [(Way, [&str; 3]); 2] = [
    (
        Way::Bridge,
        ["e1000.forward.kpps.polder", "e1000.forward.kpps.kernel", "e1000.forward.ratio_vs_kernel"],
    ),
    (Way::Route, ["e1000.route.kpps.polder", "e1000.route.kpps.kernel", "e1000.route.ratio_vs_kernel"]),
];

/// Guest, generator and sink.
struct Testbed {
    pair: Pair,
    far: Far,
}

/// Results of all rounds.
#[derive(Default)]
struct Seen {
    /// Polder's and the kernel's, by way and round.
    loads: [Vec<[Load; 2]>; WAYS.len()],
    /// Packets that Polder could not account for.
    unaccounted: u64,
    /// Wake-ups in the first round.
    wakeups: Option<Wakeups>,
}

/// Measures both forwarders; gives the number of packets that Polder could not account for, if it was measured.
pub(super) fn measure(run: &mut Run) -> anyhow::Result<Option<u64>> {
    let rows = WAYS.iter().flat_map(|(_, rows)| *rows).chain([UNACCOUNTED, WAKEUPS]).collect::<Vec<_>>();
    if !run.is_due(&rows) || run.or_skip(&rows, e1000::guest_available())?.is_none() {
        return Ok(None);
    }
    run.place("the guest", "any", "one emulated processor");
    run.place("generator and sink", "any", "TAPs in namespaces");
    let seen = rounds(run);
    let Some(seen) = run.or_skip(&rows, seen)? else { return Ok(None) };
    record(run, &seen);
    Ok(Some(seen.unaccounted))
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
        for (at, (way, _)) in WAYS.into_iter().enumerate() {
            run.says(&format!("forwarding ({way}), round {round} of {rounds}"));
            testbed.far.go(way)?;
            let polder = testbed.polder(way, time, &mut seen).context("Polder's turn")?;
            let kernel = testbed.kernel(way, time).context("the kernel's turn")?;
            seen.loads[at].push([polder, kernel]);
        }
    }
    testbed.pair.power_off()?;
    Ok(seen)
}

impl Testbed {
    /// The devices have the kernel's driver before and after each turn.
    fn polder(&mut self, way: Way, time: Duration, seen: &mut Seen) -> anyhow::Result<Load> {
        self.pair.take()?;
        way.configure(&mut self.pair)?;
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

    fn kernel(&mut self, way: Way, time: Duration) -> anyhow::Result<Load> {
        let names = self.pair.interfaces()?;
        way.set_up(&mut self.pair, &names)?;
        self.far.warm_up()?;
        let load = self.far.overload(time)?;
        way.take_down(&mut self.pair, &names)?;
        Ok(load)
    }
}

fn record(run: &mut Run, seen: &Seen) {
    for ((_, rows), loads) in WAYS.into_iter().zip(&seen.loads) {
        record_way(run, rows, loads);
    }
    if let Some(Wakeups { workers, tried, threads }) = &seen.wakeups {
        run.record_one(WAKEUPS, float(*workers));
        run.remark(
            WAKEUPS,
            format!("by thread: {threads}; of workers when 25 frames a second come: {tried}"),
        );
    }
}

fn record_way(run: &mut Run, [polder, kernel, ratio]: [&str; 3], loads: &[[Load; 2]]) {
    let told = |load: &Load| format!("{:.1} kpps, lost {:.0} %", load.rate / 1e3, 100.0 * load.lost());
    let all = loads.iter().map(|[polder, kernel]| format!("{} : {}", told(polder), told(kernel)));
    let all = format!("Polder : kernel, by round: {}", all.collect::<Vec<_>>().join("; "));
    for (row, side) in [(polder, 0), (kernel, 1)] {
        let loads = loads.iter().map(|loads| loads[side]).filter(Load::is_overload);
        fill(run, row, &loads.map(|load| load.rate / 1e3).collect(), &all);
    }
    let both = loads.iter().filter(|loads| loads.iter().all(Load::is_overload));
    fill(run, ratio, &both.map(|[polder, kernel]| polder.rate / kernel.rate).collect(), &all);
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
