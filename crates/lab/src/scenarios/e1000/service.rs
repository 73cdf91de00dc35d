//! Source B's table where its author measured it: a service on one processor with one e1000, asked for up to ten times
//! what it can answer.

use super::Run;
use super::trial::Trial;
use crate::report::Curve;
use anyhow::Context as _;
use polder_judges::e1000::{self, Driver, Served};
use polder_testbed::meters::statistics::Samples;
use polder_testbed::peers::asks::Asks;
use polder_testbed::topology::Topology;
use std::collections::BTreeMap;
use std::time::Duration;

/// Receivers, with their names in rows.
const COLUMNS: [(&str, Driver); 4] = [
    ("polder", Driver::Polder { balance: true }),
    ("kernel_threaded", Driver::KernelThreaded),
    ("polder_off", Driver::Polder { balance: false }),
    ("kernel", Driver::Kernel),
];
/// Requests, with their names in rows.
const ASKS: [(&str, Asks); 2] = [("echo", Asks::Echo), ("nfs", Asks::NfsGetattr)];
/// Work of a request, as long as it takes outside the guest.
const COST: Duration = Duration::from_micros(120);
/// Offered requests, as multiples of the capacity; the last is *far*.
const FACTORS: [f64; 5] = [0.5, 1.0, 1.5, 3.0, 10.0];
/// Offers a second by which the capacity is found.
const PROBES: [f64; 4] = [10_000.0, 20_000.0, 40_000.0, 80_000.0];
/// The least part of the far load that has to be offered.
const REACHED: f64 = 0.9;

fn names(asks: &str, column: &str) -> [String; 2] {
    ["goodput_far_over_peak", "p50_far_us"].map(|what| format!("e1000.{asks}.{what}.{column}"))
}

/// Results of a column in all rounds.
#[derive(Debug, Default)]
struct Column {
    goodput: Samples,
    p50_us: Samples,
    /// Answers a second at each load.
    answered: [Samples; FACTORS.len()],
    /// Rounds in which the far load was not offered, or no frame was lost in the controller.
    void: u32,
    /// Frames that were lost in the controller at the far load, and percent of the far load that the emulator took.
    overruns: u64,
    taken_percent: Samples,
}

/// Fills the rows; gives the number of packets that Polder has not accounted for, if it was measured.
pub(super) fn measure(run: &mut Run) -> anyhow::Result<Option<u64>> {
    let mut unaccounted = None;
    for (name, asks) in ASKS {
        let rows = COLUMNS.iter().flat_map(|(column, _)| names(name, column)).collect::<Vec<_>>();
        if run.is_due(&rows) && run.or_skip(&rows, e1000::guest_available())?.is_some() {
            let count = requests(run, (name, asks));
            unaccounted =
                run.or_skip(&rows, count)?.map(|count| unaccounted.unwrap_or(0) + count).or(unaccounted);
        }
    }
    Ok(unaccounted)
}

fn requests(run: &mut Run, (name, asks): (&str, Asks)) -> anyhow::Result<u64> {
    run.place("the guest", "any", "one emulated processor");
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    let topology = Topology::new()?;
    run.says(&format!("{name}: starting the guest"));
    let mut served = Served::boot(&program, &e1000::guest_available()?, topology.directory())?;
    let mut trial = Trial::default();
    let (rounds, time) = run.quick_or((1, Duration::from_millis(500)), (10, Duration::from_secs(1)));
    run.says(&format!("{name}: capacity"));
    served.start(asks, COLUMNS[0].1, COST)?;
    trial.warm_up(&mut served, asks)?;
    let mut capacity = 0.0_f64;
    for rate in PROBES {
        capacity = capacity.max(trial.run(&mut served, rate, time)?.answered);
    }
    let mut unaccounted = served.unaccounted()?;
    served.stop()?;
    let mut columns: [Column; COLUMNS.len()] = Default::default();
    for round in 1..=rounds {
        for ((column, driver), results) in COLUMNS.into_iter().zip(&mut columns) {
            run.says(&format!("{name}, {column}, round {round} of {rounds}"));
            served.start(asks, driver, COST)?;
            trial.warm_up(&mut served, asks).with_context(|| format!("{column}, round {round}"))?;
            loads(&mut served, &mut trial, (capacity, time), results)?;
            unaccounted += served.unaccounted()?;
            served.stop()?;
        }
    }
    served.power_off()?;
    record(run, name, capacity, &columns);
    Ok(unaccounted)
}

/// Runs one round of a column.
fn loads(
    served: &mut Served,
    trial: &mut Trial,
    (capacity, time): (f64, Duration),
    column: &mut Column,
) -> anyhow::Result<()> {
    let (mut peak, mut far) = (0.0_f64, None);
    let mut before = 0;
    for (factor, answered) in FACTORS.into_iter().zip(&mut column.answered) {
        before = served.overruns()?;
        let load = trial.run(served, capacity * factor, time)?;
        answered.push(load.answered);
        peak = peak.max(load.answered);
        far = Some(load);
    }
    let overruns = served.overruns()?.saturating_sub(before);
    column.overruns += overruns;
    let far = far.context("there are no loads")?;
    if overruns == 0 || far.offered < REACHED * capacity * FACTORS[FACTORS.len() - 1] {
        column.void += 1;
        return Ok(());
    }
    column.goodput.push(far.answered / peak);
    column.taken_percent.push(100.0 * far.taken / far.offered);
    if let Some(p50) = far.p50_us {
        column.p50_us.push(p50);
    }
    Ok(())
}

fn record(run: &mut Run, asks: &str, capacity: f64, columns: &[Column]) {
    let mut lines = BTreeMap::new();
    for ((name, _), column) in COLUMNS.into_iter().zip(columns) {
        let medians = column.answered.iter().map(|samples| samples.median().unwrap_or(0.0));
        let medians = medians.collect::<Vec<_>>();
        let told = medians.iter().zip(FACTORS).map(|(rate, factor)| format!("{factor} × {rate:.0}"));
        let told = told.collect::<Vec<_>>().join(", ");
        let remark = format!(
            "answers a second at each load: {told}; capacity {capacity:.0}; at the far load {} frames lost in the \
             controller, which was given {:.0} % of it; {} rounds void",
            column.overruns,
            column.taken_percent.median().unwrap_or(0.0),
            column.void
        );
        for (row, samples) in names(asks, name).iter().zip([&column.goodput, &column.p50_us]) {
            if samples.count() == 0 {
                run.missing(
                    row,
                    format!("no round was offered the far load and overran the controller: {remark}"),
                );
                continue;
            }
            run.record(row, samples);
            run.remark(row, remark.clone());
        }
        let points = FACTORS.iter().map(|factor| factor * capacity / 1e3);
        lines.insert(name.to_owned(), points.zip(medians.iter().map(|rate| rate / 1e3)).collect());
    }
    run.curve(Curve {
        title: format!("{asks} on one e1000 in a guest"),
        x: "offered, thousands a second".to_owned(),
        y: "answered, thousands a second".to_owned(),
        lines,
    });
}
