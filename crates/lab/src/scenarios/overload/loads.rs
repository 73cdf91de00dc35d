//! One way of receiving at loads from half of the capacity to ten times that.

use super::rows::{of_column, prefix};
use super::{RECEIVING_US, books, lay, micros, offered, polder};
use crate::meters::stream::Outcome;
use crate::peers::asks::Asks;
use crate::peers::echo::Service;
use crate::report::{Line, Table};
use crate::scenarios::Run;
use crate::scenarios::testbed::{Testbed, Trial};
use crate::traffic::raw::Plan;
use std::time::Duration;

/// Offered, as a multiple of the capacity. The last is ten times the most that is answered at any of these loads,
/// which may be a little more than what was measured before.
const FACTORS: [f64; 7] = [0.5, 0.8, 1.0, 1.5, 2.5, 5.0, 11.0];
/// The same in a quick run.
const FEW: [f64; 4] = [0.5, 1.0, 2.5, 11.0];
/// Offered loads while the capacity is measured, as multiples of the capacity for echoes.
const BEYOND: [f64; 3] = [1.5, 2.5, 5.0];

/// Results of one load.
pub(super) struct Load {
    pub(super) factor: f64,
    pub(super) offered: f64,
    /// Requests answered a second, or packets carried, and their latency in microseconds: median, 99th percentile.
    pub(super) seen: Option<(f64, f64, f64)>,
    pub(super) reason: Option<String>,
}

/// A table without lines.
pub(super) fn table(title: String) -> Table {
    let columns = ["load", "offered/s", "completed/s", "median, µs", "99th percentile, µs"];
    Table { title, columns: columns.map(str::to_owned).to_vec(), lines: Vec::new() }
}

/// The capacity for such requests: the most that Polder answers in a second when more are offered. What NFS costs
/// beyond the work of a request, an answer in fragments above all, is in no formula.
pub(super) fn capacity(run: &Run, asks: Asks, cost_us: u32) -> anyhow::Result<f64> {
    run.says(&format!("capacity, {} of {cost_us} µs", asks.name()));
    let mut testbed = lay(Service { asks, over: polder(true, None), cost_us })?;
    let nominal = 1e6 / (f64::from(cost_us) + RECEIVING_US);
    let time = Duration::from_millis(run.quick_or(300, 800));
    let mut rate = 0.0_f64;
    for times in BEYOND {
        rate = rate.max(testbed.run(&Plan::steady(nominal * times, time))?.rate());
    }
    anyhow::ensure!(rate > 0.0, "no {} request of {cost_us} µs was answered", asks.name());
    Ok(rate)
}

/// One way of receiving, from half of the capacity to ten times that. Answers a line of a curve.
pub(super) fn column(
    run: &mut Run,
    (name, service): (&str, Service),
    capacity: f64,
    (table, unaccounted): (&mut Table, &mut u64),
) -> anyhow::Result<Vec<(f64, f64)>> {
    let mut testbed = lay(service)?;
    let what = format!("{name}, {} of {} µs", service.asks.name(), service.cost_us);
    let loads = measure(run, &what, capacity, &mut testbed)?;
    let said = testbed.says()?;
    *unaccounted += books(&mut testbed)?;
    table.lines.extend(loads.iter().map(|load| load.line(name)));
    record(run, &prefix(service.asks, service.cost_us), name, &loads);
    if name == "on" {
        record_posted(run, service, &loads, &said);
    }
    let points = loads.iter().filter_map(|load| Some((load.offered / 1e3, load.seen?.0 / 1e3)));
    Ok(points.collect())
}

/// Results at all loads, one after the other.
pub(super) fn measure(
    run: &Run,
    what: &str,
    capacity: f64,
    testbed: &mut Testbed,
) -> anyhow::Result<Vec<Load>> {
    let time = Duration::from_millis(run.quick_or(500, 2000));
    let factors = if run.is_quick() { FEW.as_slice() } else { &FACTORS };
    let mut loads = Vec::<Load>::new();
    for &factor in factors {
        run.says(&format!("{what}, {factor} times the capacity"));
        let rate = capacity * factor;
        // What the generator did not reach it will not exceed.
        let beyond = loads.last().filter(|load| load.seen.is_none());
        let load = match beyond {
            Some(last) => Load { factor, offered: last.offered, seen: None, reason: last.reason.clone() },
            None => {
                let (trial, outcome) = testbed.metered(&Plan::steady(rate, time))?;
                Load::of(factor, rate, &trial, &outcome)
            }
        };
        loads.push(load);
    }
    Ok(loads)
}

impl Load {
    fn of(factor: f64, rate: f64, trial: &Trial, outcome: &Outcome) -> Self {
        let offered = offered(trial);
        if !trial.reached(rate) {
            // Latency counts from a timetable that was not kept.
            let reason = format!(
                "the generator reaches {offered:.0} of {rate:.0} a second, of which {:.0} came through",
                trial.rate()
            );
            return Self { factor, offered, seen: None, reason: Some(reason) };
        }
        let at = |part| micros(outcome.latency.value_at_quantile(part));
        let reason = outcome.latency.is_empty().then(|| "nothing was answered".to_owned());
        let seen = reason.is_none().then(|| (trial.rate(), at(0.5), at(0.99)));
        Self { factor, offered, seen, reason }
    }

    pub(super) fn line(&self, name: &str) -> Line {
        let [rate, median, slow] =
            self.seen.map_or([None; 3], |(rate, median, slow)| [Some(rate), Some(median), Some(slow)]);
        Line {
            name: name.to_owned(),
            values: vec![Some(self.factor), Some(self.offered), rate, median, slow],
            reason: self.reason.clone(),
        }
    }
}

/// The rows of a column: at the last load that was reached, and at the first.
fn record(run: &mut Run, prefix: &str, name: &str, loads: &[Load]) {
    let seen = loads.iter().filter_map(|load| Some((load, load.seen?))).collect::<Vec<_>>();
    let (Some((first, low)), Some((last, far))) = (seen.first(), seen.last()) else {
        let reason = loads.iter().find_map(|load| load.reason.clone()).unwrap_or_default();
        of_column(prefix, name).iter().for_each(|row| run.missing(row, reason.clone()));
        return;
    };
    let peak = seen.iter().map(|(_, seen)| seen.0).fold(0.0, f64::max);
    let at = format!("at {} times the capacity", last.factor);
    let row = format!("{prefix}.goodput_far_over_peak.{name}");
    run.record_one(&row, far.0 / peak);
    let text =
        format!("{at}: {:.0} of {:.0} requests/s answered, {peak:.0} at the peak", far.0, last.offered);
    run.remark(&row, text);
    for (row, load, (_, median, slow)) in [("p50_far_us", last, far), ("p50_low_us", first, low)] {
        let row = format!("{prefix}.{row}.{name}");
        run.record_one(&row, *median);
        run.remark(&row, format!("at {} times the capacity; 99th percentile {slow:.0} µs", load.factor));
    }
    if name == "on" {
        let row = format!("{prefix}.offered_over_capacity");
        run.record_one(&row, last.offered / peak);
        let beyond = loads.last().and_then(|load| load.reason.clone());
        run.remark(&row, beyond.unwrap_or_else(|| format!("{peak:.0} requests/s at the peak")));
    }
}

/// The median there, as a part of the time in which the service would answer all that Polder lets wait.
fn record_posted(run: &mut Run, service: Service, loads: &[Load], said: &str) {
    let prefix = prefix(service.asks, service.cost_us);
    let row = format!("{prefix}.p50_far_over_posted.on");
    let posted = said.lines().find_map(|line| line.strip_prefix("posted ")?.parse::<f64>().ok());
    let far = loads.iter().rev().find_map(|load| load.seen);
    let (Some(posted), Some((rate, median, _))) = (posted.filter(|&posted| posted > 0.0), far) else {
        run.missing(&row, "no queue was bound to what the service wanted");
        return;
    };
    run.record_one(&row, median / (posted * 1e6 / rate));
    run.remark(&row, format!("{posted:.0} buffers of {:.1} µs each", 1e6 / rate));
}
