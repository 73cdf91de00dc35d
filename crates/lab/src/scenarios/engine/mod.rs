//! `engine`: what the stages cost, in memory, on one core.

mod beside_vpp;

pub(crate) mod harness;

pub(crate) mod macswap;

pub(crate) mod routing;

pub(crate) mod scatter;

mod stages;

use super::turns::rounds;
use super::{Run, Scenario};
use anyhow::ensure;
use harness::{Harness, Path};
use polder_testbed::interrupt;
use polder_testbed::machine;
use polder_testbed::meters::statistics::Samples;
use polder_testbed::peers::testpmd::{Mode, Testpmd};
use routing::Size;
use std::time::Duration;

/// The scenario.
pub(super) const SCENARIO: Scenario = Scenario {
    name: "engine",
    about: "what the stages cost: in memory, one core, frames of 64 bytes copied at both ports",
    needs_root: false,
    rows: include_str!("../rows/engine.rows"),
    measure,
};

const RATIO: &str = "engine.macswap.ratio_vs_testpmd";
const MACSWAP: &str = "engine.macswap.ns_per_packet.polder";
const TESTPMD: &str = "engine.macswap.ns_per_packet.testpmd";
const ALLOCATIONS: &str = "engine.allocations_per_packet";
const STRAYS: &str = "engine.stray_drops_per_packet";
const LEAKED: &str = "engine.leaked_frames";
const UNACCOUNTED: &str = "engine.unaccounted_packets";

const ROUTE_1K: &str = "engine.route_1k.ns_per_packet";
const ROUTE_1M: &str = "engine.route_1m.ns_per_packet";
const ROUTE6_100K: &str = "engine.route6_100k.ns_per_packet";
const UPDATES: &str = "fib.updates_per_second";
const BYTES_100: &str = "fib.bytes_per_route.100";
const BYTES_1M: &str = "fib.bytes_per_route.1m";
/// Rows of tables of routes.
const ROUTES: &[(&str, Size)] = &[
    (ROUTE_1K, Size { routes: 1000, is_v6: false }),
    (ROUTE_1M, Size { routes: 1_000_000, is_v6: false }),
    (ROUTE6_100K, Size { routes: 100_000, is_v6: true }),
];

/// Paths, and flows with the ending of their row.
const PATHS: &[(Path, &str)] =
    &[(Path::Bridge, "bridge"), (Path::Encapsulate, "bridge_gretap"), (Path::Decapsulate, "decap")];
const FLOWS: &[(u32, &str)] = &[(1000, ""), (1, ".flows_1"), (64_000, ".flows_64k")];
/// Paths of VXLAN, with a thousand flows.
const VXLAN: &[(Path, &str)] = &[
    (Path::EncapsulateVxlan, "engine.bridge_vxlan.ns_per_packet"),
    (Path::DecapsulateVxlan, "engine.vxlan_decap.ns_per_packet"),
];
/// Caches and the bridge's table fill in this time.
const WARM_UP: Duration = Duration::from_millis(100);

fn measure(run: &mut Run) -> anyhow::Result<()> {
    let core = machine::cores() - 1;
    run.place("engine", core, "the only thread of the worker, pinned");
    if run.wants_any(&[MACSWAP, TESTPMD, RATIO]) {
        compare_macswap(run, core)?;
    }
    let mut faults = Faults::default();
    for &(path, name) in PATHS {
        for &(flows, ending) in FLOWS {
            let row = format!("engine.{name}.ns_per_packet{ending}");
            if !run.wants(&row) {
                continue;
            }
            run.says(&format!("{name}, {flows} flows"));
            let samples = cost(run, Harness::start(path, flows, core)?, name, &mut faults)?;
            run.record(&row, &samples);
        }
    }
    for &(path, row) in VXLAN.iter().filter(|(_, row)| run.wants(row)).collect::<Vec<_>>() {
        run.says(row);
        let samples = cost(run, Harness::start(path, FLOWS[0].0, core)?, row, &mut faults)?;
        run.record(row, &samples);
    }
    for &(row, size) in ROUTES.iter().filter(|(row, _)| run.wants(row)).collect::<Vec<_>>() {
        run.says(&format!("{} {} routes", size.routes, if size.is_v6 { "IPv6" } else { "IPv4" }));
        let (harness, _router) = routing::start(size, core)?;
        let samples = cost(run, harness, row, &mut faults)?;
        run.record(row, &samples);
    }
    beside_vpp::compare(run, core)?;
    if run.wants_any(&[UPDATES, BYTES_100, BYTES_1M]) {
        fib(run)?;
    }
    if faults.packets > 0 {
        faults.record(run);
    }
    Ok(())
}

/// Fills the rows of a table of routes by itself.
fn fib(run: &mut Run) -> anyhow::Result<()> {
    let (updates, small, large) = routing::tables(run.quick_or(3, 10))?;
    run.record(UPDATES, &updates);
    run.record_one(BYTES_100, small);
    run.record_one(BYTES_1M, large);
    Ok(())
}

/// Counts that must be zero, over all paths.
#[derive(Clone, Copy, Debug, Default)]
struct Faults {
    packets: u64,
    allocations: u64,
    strays: u64,
    leaked: u32,
    unaccounted: u64,
}

impl Faults {
    fn record(self, run: &mut Run) {
        run.record_one(ALLOCATIONS, per_packet(self.allocations, self.packets));
        run.record_one(STRAYS, per_packet(self.strays, self.packets));
        run.record_one(LEAKED, f64::from(self.leaked));
        run.record_one(UNACCOUNTED, per_packet(self.unaccounted, 1));
    }
}

#[expect(clippy::cast_precision_loss, reason = "a ratio needs no more than 52 bits")]
fn per_packet(count: u64, packets: u64) -> f64 {
    count as f64 / packets.max(1) as f64
}

fn cost(run: &Run, harness: Harness, what: &str, faults: &mut Faults) -> anyhow::Result<Samples> {
    let (rounds, time) = run.quick_or((3, 300), (10, 1000));
    harness.open(true);
    interrupt::sleep(WARM_UP)?;
    let mut samples = Samples::default();
    for _ in 0..rounds {
        let before = harness.read()?;
        interrupt::sleep(Duration::from_millis(time))?;
        let window = harness.read()?.since(&before);
        ensure!(window.sent * 100 > window.packets * 99, "{what} does not forward: {window:?}");
        samples.push(window.nanos_per_packet());
        faults.packets += window.packets;
        faults.allocations += window.allocations;
        faults.strays += window.strays;
    }
    let left = harness.stop()?;
    faults.leaked += left.leaked;
    faults.unaccounted += left.unaccounted.unsigned_abs();
    Ok(samples)
}

fn compare_macswap(run: &mut Run, core: usize) -> anyhow::Result<()> {
    let (count, time) = run.quick_or((3, 400), (10, 1000));
    let time = Duration::from_millis(time);
    run.says("macswap");
    if let Err(why) = Testpmd::available() {
        let samples = (0..count).map(|_| macswap::run(core, time)).collect::<anyhow::Result<Samples>>()?;
        run.record(MACSWAP, &samples);
        run.skip(&[TESTPMD, RATIO], &why.to_string());
        return Ok(());
    }
    run.place("testpmd", core, "its forwarding thread, pinned");
    let mut testpmd = Testpmd::between_null_ports(Mode::MacSwap, core)?;
    let sheet = rounds(run, count, "macswap", |sheet| {
        let (own, other) = (macswap::run(core, time)?, testpmd.forward_for(time)?.nanos_per_packet());
        sheet.push(MACSWAP, own);
        sheet.push(TESTPMD, other);
        sheet.push(RATIO, other / own);
        Ok(())
    })?;
    sheet.record(run);
    let [own, other] = [MACSWAP, TESTPMD].map(|row| 1e3 / sheet.median(row));
    run.remark(RATIO, format!("{own:.0} to {other:.0} Mpps on one core, pairs of runs in turn"));
    Ok(())
}
