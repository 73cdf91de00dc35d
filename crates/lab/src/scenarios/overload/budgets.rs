//! The budget that tunes itself, beside fixed ones.

use super::loads::middle;
use super::{BUDGET, RECEIVING_US, books, lay};
use crate::scenarios::Run;
use crate::scenarios::testbed::cores;
use anyhow::Context as _;
use polder_testbed::meters::statistics::Samples;
use polder_testbed::peers::asks::{Asks, DEAR_US};
use polder_testbed::peers::echo::{Over, Service, Settings};
use polder_testbed::peers::neighbour::{Neighbour, Work};
use polder_testbed::traffic::raw::Plan;
use std::fmt;
use std::time::Duration;

/// Packets a turn; the law's first.
const BUDGETS: [Option<u16>; 4] = [None, Some(8), Some(64), Some(512)];
/// Number of rounds.
const ROUNDS: u32 = 10;
/// Offered, as a multiple of the capacity.
const FAR: f64 = 2.5;
/// Cost of a cheap request, in microseconds.
const CHEAP_US: u32 = 2;
/// Maximum wake-up latency of another process beside a budget that is compared with: the bound
/// promised to neighbours.
const BOUND_US: f64 = 2000.0;

/// Kind of requests, and their cost.
struct Kind {
    name: &'static str,
    asks: Asks,
    cost_us: u32,
    /// The mean of all requests.
    mean_us: f64,
}

/// The budget that tunes itself, beside fixed ones, for cheap, costly and mixed requests.
pub(super) fn measure(run: &mut Run, unaccounted: &mut u64) -> anyhow::Result<()> {
    let (cheap, dear) = (f64::from(CHEAP_US), f64::from(DEAR_US));
    let kinds = [
        Kind { name: "2 µs", asks: Asks::Echo, cost_us: CHEAP_US, mean_us: cheap },
        Kind { name: "50 µs", asks: Asks::Echo, cost_us: DEAR_US, mean_us: dear },
        Kind {
            name: "2 and 50 µs",
            asks: Asks::Mixed,
            cost_us: CHEAP_US,
            mean_us: f64::midpoint(cheap, dear),
        },
    ];
    let (mut worst, mut text) = (None::<Samples>, Vec::new());
    for kind in kinds {
        if kind.mean_us > cheap && run.is_quick() {
            run.leave_out(format!("budgets with requests of {}", kind.name));
            continue;
        }
        let seen = in_turn(run, &kind, unaccounted)?;
        let (own, fixed) = (&seen[0], &seen[1..]);
        let best = best(fixed, BOUND_US).or_else(|| best(fixed, f64::INFINITY)).context("no fixed budget")?;
        let ratios = own.rates.over(&best.rates).into_iter().collect::<Samples>();
        if worst.as_ref().is_none_or(|worst| middle(&ratios) < middle(worst)) {
            worst = Some(ratios);
        }
        text.push(format!("{}: {}", kind.name, remark(own, best, fixed)));
    }
    run.record(BUDGET, &worst.unwrap_or_default());
    run.remark(BUDGET, text.join("; "));
    Ok(())
}

/// Results of the budgets, measured in turn, round after round: the service's own work differs from one
/// process to the next by more than the budgets' effect.
fn in_turn(run: &Run, kind: &Kind, unaccounted: &mut u64) -> anyhow::Result<[BudgetResult; BUDGETS.len()]> {
    let mut all = BUDGETS.map(|budget| (budget, Samples::new(), Samples::new()));
    for round in 1..=run.quick_or(1, ROUNDS) {
        for (budget, rates, lates) in &mut all {
            let named = budget.map_or_else(|| "auto".to_owned(), |packets| packets.to_string());
            run.says(&format!("budget {named}, {} a request, round {round}", kind.name));
            let (rate, late) = answered(run, kind, *budget, unaccounted)?;
            rates.push(rate);
            lates.push(late);
        }
    }
    Ok(all.map(|(budget, rates, lates)| BudgetResult {
        budget,
        rate: middle(&rates),
        late: middle(&lates),
        rates,
    }))
}

/// Results of one budget, medians of all rounds.
struct BudgetResult {
    budget: Option<u16>,
    /// Requests a second, and those of all rounds.
    rate: f64,
    rates: Samples,
    /// Wake-up latency of another process on that core, 99th percentile in microseconds.
    late: f64,
}

/// The one of most requests among those beside which another process is woken in time.
fn best(fixed: &[BudgetResult], bound: f64) -> Option<&BudgetResult> {
    fixed.iter().filter(|seen| seen.late <= bound).max_by(|one, other| one.rate.total_cmp(&other.rate))
}

/// The budget that tunes itself, the one it is compared with, and all that are fixed.
fn remark(own: &BudgetResult, best: &BudgetResult, fixed: &[BudgetResult]) -> String {
    let all = fixed.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let beyond = if own.late > BOUND_US { ", beyond the bound" } else { "" };
    format!("{own}{beyond}; compared with {best}; of {all}")
}

impl fmt::Display for BudgetResult {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { budget, rate, late, .. } = self;
        match budget {
            None => formatter.write_str("by itself")?,
            Some(packets) => write!(formatter, "{packets}")?,
        }
        write!(formatter, " {rate:.0} requests/s and {late:.0} µs late")
    }
}

/// Requests a second, and how late a process on that core was woken, 99th percentile in microseconds.
fn answered(
    run: &Run,
    kind: &Kind,
    budget: Option<u16>,
    unaccounted: &mut u64,
) -> anyhow::Result<(f64, f64)> {
    let time = Duration::from_millis(run.quick_or(500, 600));
    let Kind { asks, cost_us, .. } = *kind;
    let mut testbed =
        lay(Service { asks, over: Over::Polder(Settings { budget, ..Settings::DEFAULT }), cost_us })?;
    let mut woken = Neighbour::start(Work::Wake, cores().0)?;
    woken.lateness()?;
    let trial = testbed.run(&Plan::steady(FAR * 1e6 / (kind.mean_us + RECEIVING_US), time))?;
    let late = woken.lateness()?[1];
    drop(woken);
    *unaccounted += books(&mut testbed)?;
    Ok((trial.rate_in_time(), late))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_that_makes_others_late_is_not_compared_with() {
        let seen =
            |packets, rate, late| BudgetResult { budget: Some(packets), rate, late, rates: Samples::new() };
        let fixed = [seen(8, 10.0, 100.0), seen(64, 20.0, 1999.0), seen(512, 30.0, 2001.0)];
        assert_eq!(best(&fixed, BOUND_US).unwrap().budget, Some(64));
        assert_eq!(best(&fixed, f64::INFINITY).unwrap().budget, Some(512));
        assert!(best(&fixed[2..], BOUND_US).is_none());
        let own = BudgetResult { budget: None, ..seen(0, 19.0, 2500.0) };
        let text = remark(&own, &fixed[1], &fixed);
        assert!(text.contains("2500 µs late, beyond the bound; compared with 64 20"), "{text}");
        assert!(text.ends_with("512 30 requests/s and 2001 µs late"), "{text}");
    }
}
