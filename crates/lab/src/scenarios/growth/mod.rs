//! `growth`: what a packet, a start, a reload, memory and views cost by the number of tunnels, stations, rules and others.

mod packets;
mod program;
mod rows;

use super::{Run, Scenario};
use crate::machine;
use crate::meters::statistics::Samples;
use crate::report::Curve;
use anyhow::ensure;
use packets::Bench;
use rows::{Object, What, exponent};
use std::collections::BTreeMap;
use std::time::Duration;

/// The scenario.
pub(super) const SCENARIO: Scenario = Scenario {
    name: "growth",
    about: "what a packet, a start, a reload, memory and views cost by the number of tunnels, stations, rules, routes, ports",
    needs_root: true,
    promises: rows::PROMISES,
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
    let mut found = Found::default();
    for object in Object::ALL {
        let rows = object.numbers().iter().map(|&number| object.row(What::Packet, number));
        let rows = rows.chain([object.ratio(), object.order(What::Packet)]).collect::<Vec<_>>();
        if rows.iter().any(|row| run.wants(row)) {
            packet_costs(run, object, core, &mut found)?;
        }
    }
    program::measure(run, &mut found)?;
    found.plot(run);
    Ok(())
}

/// Measures a packet's cost for each number of an object, in turns.
fn packet_costs(run: &mut Run, object: Object, core: usize, found: &mut Found) -> anyhow::Result<()> {
    let (rounds, time) = run.quick_or((3, 100), (11, 600));
    let mut benches = Vec::new();
    for &number in object.numbers() {
        run.says(&format!("{number} {}", object.word()));
        benches.push((number, Bench::start(object, number, core)?, Samples::default()));
    }
    let mut ratios = Samples::default();
    for round in 1..=rounds {
        run.says(&format!("{}: run {round} of {rounds}", object.word()));
        let (mut ten, mut many) = (f64::NAN, f64::NAN);
        for (number, bench, costs) in &mut benches {
            let window = bench.harness.window(WARM_UP, Duration::from_millis(time))?;
            let is_forwarding = window.sent * 100 > window.packets * 99;
            ensure!(is_forwarding, "{number} {} lose packets: {window:?}", object.word());
            let cost = window.nanos_per_packet();
            costs.push(cost);
            ten = if *number == 10 { cost } else { ten };
            many = if *number == object.many() { cost } else { many };
        }
        ratios.push(many / ten);
    }
    for (number, bench, costs) in benches {
        let left = bench.harness.stop()?;
        ensure!(left.leaked == 0 && left.unaccounted == 0, "{number} {}: {left:?}", object.word());
        run.record(&object.row(What::Packet, number), &costs);
        found.add(What::Packet, object, number, costs);
    }
    run.record(&object.ratio(), &ratios);
    run.remark(&object.ratio(), format!("{} over 10, in the same round", object.many()));
    found.order(run, What::Packet, object);
    Ok(())
}
