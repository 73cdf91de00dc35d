//! `growth`: what a packet, a start, a reload, memory and views cost by the number of tunnels, stations, rules and others,
//! beside the kernel where it has the same.

mod kernel;
mod packets;
mod program;
mod rows;

use super::turns::in_turn;
use super::{Run, Scenario};
use crate::report::Curve;
use anyhow::ensure;
use kernel::Peer;
use packets::Bench;
use polder_testbed::machine;
use polder_testbed::meters::statistics::Samples;
use rows::{Object, What, exponent};
use std::collections::BTreeMap;
use std::time::Duration;

/// The scenario.
pub(super) const SCENARIO: Scenario = Scenario {
    name: "growth",
    about: "what a packet, a start, a reload, memory and views cost by the number of tunnels, stations, rules, routes, ports",
    needs_root: true,
    rows: include_str!("../rows/growth.rows"),
    measure,
};

/// Caches and tables fill in this time.
const WARM_UP: Duration = Duration::from_millis(100);

/// Measured values by object and number, for the plots and the orders.
#[derive(Default)]
struct Found(BTreeMap<What, ByObject>);

/// Numbers of an object with their values by round, by its word.
type ByObject = BTreeMap<&'static str, Vec<(u32, Samples)>>;

impl Found {
    fn add(&mut self, what: What, object: Object, number: u32, samples: Samples) {
        self.0.entry(what).or_default().entry(object.word()).or_default().push((number, samples));
    }

    /// Fills the row of the order: between the two largest numbers, where what does not grow weighs least.
    fn order(&self, run: &mut Run, what: What, object: Object) {
        let Some(values) = self.0.get(&what).and_then(|objects| objects.get(object.word())) else { return };
        if let [.., (few, low), (many, high)] = values.as_slice() {
            let ratios = high.over(low).into_iter();
            let orders = ratios.filter_map(|ratio| exponent((*few, 1.0), (*many, ratio)));
            run.record(&object.order(what), &orders.collect());
            run.remark(&object.order(what), format!("from {few} to {many} {}", object.word()));
        }
    }

    /// Adds a plot for each thing that grows.
    fn plot(self, run: &mut Run) {
        for (what, objects) in self.0 {
            let line = |(object, values): (&'static str, Vec<(u32, Samples)>)| {
                let points = values.into_iter();
                let points = points
                    .map(|(number, samples)| (f64::from(number).log10(), samples.median().unwrap_or(0.0)));
                (object.to_owned(), points.collect())
            };
            run.curve(Curve {
                title: what.title().to_owned(),
                x: "number of objects, powers of ten".to_owned(),
                y: what.title().to_owned(),
                lines: objects.into_iter().map(line).collect(),
            });
        }
    }
}

fn measure(run: &mut Run) -> anyhow::Result<()> {
    let core = machine::cores() - 1;
    run.place("engine", core, "the only thread of each worker, pinned; those of one object take turns");
    run.place("kernel", core, "NAPI thread of its input, pinned; it takes turns with the workers");
    run.place("injector", 0, "thread, pinned; the kernel makes the packets in its system calls");
    let mut found = Found::default();
    for object in Object::ALL {
        let rows = object.numbers().iter().map(|&number| object.row(What::Packet, number));
        let kernel = object.numbers().iter().map(|&number| object.row(What::KernelPacket, number));
        let ratios = [object.ratio(), object.kernel_ratio(), object.order(What::Packet)];
        let rows = rows.chain(kernel).chain(ratios).collect::<Vec<_>>();
        if rows.iter().any(|row| run.wants(row)) {
            packet_costs(run, object, core, &mut found)?;
        }
    }
    program::measure(run, &mut found)?;
    found.plot(run);
    Ok(())
}

/// Cost of a packet: Polder's and the kernel's.
const COSTS: [What; 2] = [What::Packet, What::KernelPacket];

/// A number of an object, in Polder's tables and in the kernel.
struct Pair {
    number: u32,
    bench: Bench,
    /// `None` where the kernel has no such object.
    kernel: Option<Peer>,
}

impl Pair {
    /// Makes pairs for all numbers of an object.
    fn all(run: &mut Run, object: Object, core: usize) -> anyhow::Result<Vec<Self>> {
        let mut pairs = Vec::new();
        let mut has_kernel = kernel::has(object);
        for &number in object.numbers() {
            run.says(&format!("{number} {}", object.word()));
            let bench = Bench::start(object, number, core)?;
            let peer = has_kernel.then(|| Peer::start(object, number, core)).transpose();
            let kernel = run.or_skip(&run.rows(&object.kernel_rows()), peer)?.flatten();
            has_kernel = kernel.is_some();
            pairs.push(Self { number, bench, kernel });
        }
        Ok(pairs)
    }

    /// Measures a packet's cost in both, in nanoseconds.
    fn measure(&mut self, object: Object, time: Duration) -> anyhow::Result<[f64; 2]> {
        let window = self.bench.harness.window(WARM_UP, time)?;
        let is_forwarding = window.sent * 100 > window.packets * 99;
        ensure!(is_forwarding, "{} {} lose packets: {window:?}", self.number, object.word());
        let kernel = self.kernel.as_mut().map_or(Ok(f64::NAN), |peer| peer.nanos_per_packet(time / 2))?;
        Ok([window.nanos_per_packet(), kernel])
    }
}

/// Measures a packet's cost for each number of an object, in turns with the kernel's.
fn packet_costs(run: &mut Run, object: Object, core: usize, found: &mut Found) -> anyhow::Result<()> {
    let (rounds, time) = run.quick_or((3, 100), (11, 600));
    let mut pairs = Pair::all(run, object, core)?;
    let ratios = [object.ratio(), object.kernel_ratio()];
    let mut ten = [f64::NAN; 2];
    let name = |pair: &Pair| format!("{} {}", pair.number, object.word());
    let sheet = in_turn(run, rounds, &mut pairs, name, |pair, sheet| {
        let costs = pair.measure(object, Duration::from_millis(time))?;
        ten = if pair.number == 10 { costs } else { ten };
        for (side, cost) in costs.into_iter().enumerate().filter(|(_, cost)| cost.is_finite()) {
            sheet.push(object.row(COSTS[side], pair.number), cost);
            if pair.number == object.many() && ten[side].is_finite() {
                sheet.push(ratios[side].as_str(), cost / ten[side]);
            }
        }
        Ok(())
    })?;
    sheet.record(run);
    for ratio in ratios {
        run.remark(&ratio, format!("{} over 10, in the same round", object.many()));
    }
    for Pair { number, bench, .. } in pairs {
        let left = bench.harness.stop()?;
        ensure!(left.leaked == 0 && left.unaccounted == 0, "{number} {}: {left:?}", object.word());
        for what in COSTS {
            let samples = sheet.samples(&object.row(what, number));
            if samples.count() > 0 {
                found.add(what, object, number, samples);
            }
        }
    }
    found.order(run, What::Packet, object);
    Ok(())
}
