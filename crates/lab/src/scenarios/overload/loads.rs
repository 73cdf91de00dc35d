//! One way of receiving at loads from half of the capacity to ten times that.

use super::{COST_US, FACTORS, RECEIVING_US, books, lay, micros, offered};
use crate::meters::stream::Outcome;
use crate::peers::echo::Service;
use crate::scenarios::Run;
use crate::scenarios::stand::Trial;
use crate::traffic::raw::Plan;
use std::time::Duration;

/// One way of receiving, from half of the capacity to ten times that.
pub(super) fn column(
    run: &mut Run,
    name: &str,
    service: Service,
    unaccounted: &mut u64,
) -> anyhow::Result<Vec<(f64, f64)>> {
    let mut stand = lay(service)?;
    let time = Duration::from_millis(run.quick_or(600, 2000));
    let capacity = 1e6 / (f64::from(service.cost_us) + RECEIVING_US);
    let (mut points, mut last) = (Vec::new(), None);
    for factor in FACTORS {
        run.says(&format!("{name}, {} µs a request, {factor} times the capacity", service.cost_us));
        let (trial, outcome) = stand.metered(&Plan::steady(capacity * factor, time))?;
        points.push((offered(&trial) / 1e3, trial.rate() / 1e3));
        last = Some((trial, outcome));
    }
    *unaccounted += books(&mut stand)?;
    let (Some((trial, outcome)), true) = (last, service.cost_us == COST_US) else { return Ok(points) };
    let peak = points.iter().map(|point| point.1).fold(0.0, f64::max);
    record(run, service.asks.name(), name, &trial, &outcome, peak * 1e3);
    Ok(points)
}

fn record(run: &mut Run, asks: &str, name: &str, trial: &Trial, outcome: &Outcome, peak: f64) {
    let row = format!("overload.{asks}.goodput_far_over_peak.{name}");
    run.record_one(&row, trial.rate() / peak);
    run.remark(
        &row,
        format!("{:.0} of {:.0} requests/s answered, {peak:.0} at the peak", trial.rate(), offered(trial)),
    );
    let row = format!("overload.{asks}.p50_far_us.{name}");
    let p50 = outcome.latency.value_at_quantile(0.5);
    if outcome.latency.is_empty() {
        run.missing(&row, "nothing was answered");
    } else {
        run.record_one(&row, micros(p50));
        run.remark(
            &row,
            format!("99th percentile {:.0} µs", micros(outcome.latency.value_at_quantile(0.99))),
        );
    }
    if name == "on" {
        run.record_one(&format!("overload.{asks}.offered_over_capacity"), offered(trial) / peak);
    }
}
