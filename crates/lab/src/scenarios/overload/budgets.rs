//! The budget that tunes itself, beside fixed ones.

use super::{BUDGET, RECEIVING_US, books, lay, polder};
use crate::peers::asks::{Asks, DEAR_US};
use crate::peers::echo::Service;
use crate::peers::neighbour::{Neighbour, Work};
use crate::scenarios::Run;
use crate::scenarios::stand::cores;
use crate::traffic::raw::Plan;
use std::time::Duration;

/// Packets a turn; the law's first.
const BUDGETS: [Option<u16>; 4] = [None, Some(8), Some(64), Some(512)];
/// Offered, as a multiple of the capacity.
const FAR: f64 = 2.5;
/// What a cheap request costs, in microseconds.
const CHEAP_US: u32 = 2;

/// What requests cost.
struct Kind {
    name: &'static str,
    asks: Asks,
    cost_us: u32,
    /// The mean of all requests.
    mean_us: f64,
}

/// The budget that tunes itself, beside fixed ones, for cheap, dear and mixed requests.
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
    let (mut worst, mut text) = (f64::INFINITY, Vec::new());
    for kind in kinds {
        if kind.mean_us > cheap && run.is_quick() {
            run.leave_out(format!("budgets with requests of {}", kind.name));
            continue;
        }
        let mut seen = Vec::new();
        for budget in BUDGETS {
            seen.push(answered(run, &kind, budget, unaccounted)?);
        }
        let best = seen[1..].iter().map(|seen| seen.rate).fold(0.0, f64::max);
        let latest = seen[1..].iter().map(|seen| seen.late).fold(0.0, f64::max);
        worst = worst.min(seen[0].rate / best);
        text.push(format!(
            "{}: {:.0} and {best:.0} requests/s, another process {:.0} and {latest:.0} µs late",
            kind.name, seen[0].rate, seen[0].late
        ));
    }
    run.record_one(BUDGET, worst);
    run.remark(BUDGET, text.join("; "));
    Ok(())
}

struct Seen {
    /// Requests a second.
    rate: f64,
    /// How late a process on that core was woken, 99th percentile in microseconds.
    late: f64,
}

fn answered(run: &mut Run, kind: &Kind, budget: Option<u16>, unaccounted: &mut u64) -> anyhow::Result<Seen> {
    let named = budget.map_or_else(|| "auto".to_owned(), |packets| packets.to_string());
    run.says(&format!("budget {named}, {} a request", kind.name));
    let time = Duration::from_millis(run.quick_or(500, 2000));
    let Kind { asks, cost_us, .. } = *kind;
    let mut stand = lay(Service { asks, over: polder(true, budget), cost_us })?;
    let mut woken = Neighbour::start(Work::Wake, cores().0)?;
    woken.lateness()?;
    let trial = stand.run(&Plan::steady(FAR * 1e6 / (kind.mean_us + RECEIVING_US), time))?;
    let late = woken.lateness()?[1];
    drop(woken);
    *unaccounted += books(&mut stand)?;
    Ok(Seen { rate: trial.rate(), late })
}
