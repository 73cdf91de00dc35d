//! `growth`: what a packet, a start, a reload, memory and views cost by the number of tunnels, stations, rules and others,
//! beside the kernel where it has the same.

mod kernel;
mod packets;
mod program;
mod rows;

use super::{Run, Scenario};
use crate::report::Curve;
use anyhow::ensure;
use kernel::Peer;
use packets::Bench;
use polder_testbed::interrupt;
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

/// A number of an object, in Polder's tables and in the kernel.
struct Pair {
    number: u32,
    bench: Bench,
    costs: Samples,
    /// `None` where the kernel has no such object.
    kernel: Option<(Peer, Samples)>,
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
            interrupt::check()?;
            let kernel = peer.unwrap_or_else(|error| {
                has_kernel = false;
                run.skip(&run.rows(&object.kernel_rows()), &format!("{error:#}"));
                None
            });
            let kernel = kernel.map(|peer| (peer, Samples::new()));
            pairs.push(Self { number, bench, costs: Samples::new(), kernel });
        }
        Ok(pairs)
    }

    /// Measures a packet's cost in both, in nanoseconds.
    fn measure(&mut self, object: Object, time: Duration) -> anyhow::Result<[f64; 2]> {
        let window = self.bench.harness.window(WARM_UP, time)?;
        let is_forwarding = window.sent * 100 > window.packets * 99;
        ensure!(is_forwarding, "{} {} lose packets: {window:?}", self.number, object.word());
        let own = window.nanos_per_packet();
        self.costs.push(own);
        let Some((peer, costs)) = &mut self.kernel else { return Ok([own, f64::NAN]) };
        let kernel = peer.nanos_per_packet(time / 2)?;
        costs.push(kernel);
        Ok([own, kernel])
    }

    /// Fills its rows.
    fn record(self, run: &mut Run, object: Object, found: &mut Found) -> anyhow::Result<()> {
        let Self { number, bench, costs, kernel } = self;
        let left = bench.harness.stop()?;
        ensure!(left.leaked == 0 && left.unaccounted == 0, "{number} {}: {left:?}", object.word());
        let kernel = kernel.map(|(_, costs)| (What::KernelPacket, costs));
        for (what, costs) in std::iter::once((What::Packet, costs)).chain(kernel) {
            run.record(&object.row(what, number), &costs);
            found.add(what, object, number, costs);
        }
        Ok(())
    }
}

/// Measures a packet's cost for each number of an object, in turns with the kernel's.
fn packet_costs(run: &mut Run, object: Object, core: usize, found: &mut Found) -> anyhow::Result<()> {
    let (rounds, time) = run.quick_or((3, 100), (11, 600));
    let time = Duration::from_millis(time);
    let mut pairs = Pair::all(run, object, core)?;
    let mut ratios = [const { Samples::new() }; 2];
    for round in 1..=rounds {
        run.says(&format!("{}: run {round} of {rounds}", object.word()));
        let (mut ten, mut many) = ([f64::NAN; 2], [f64::NAN; 2]);
        for pair in &mut pairs {
            let costs = pair.measure(object, time)?;
            ten = if pair.number == 10 { costs } else { ten };
            many = if pair.number == object.many() { costs } else { many };
        }
        for (ratios, (ten, many)) in ratios.iter_mut().zip(ten.into_iter().zip(many)) {
            ratios.push(many / ten);
        }
    }
    for pair in pairs {
        pair.record(run, object, found)?;
    }
    let [own, kernel] = ratios;
    let compared = format!("{} over 10, in the same round", object.many());
    for (row, ratios) in [(object.ratio(), own), (object.kernel_ratio(), kernel)] {
        if ratios.median().is_some_and(f64::is_finite) {
            run.record(&row, &ratios);
            run.remark(&row, compared.clone());
        }
    }
    found.order(run, What::Packet, object);
    Ok(())
}
