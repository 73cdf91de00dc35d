//! The budget that tunes itself, beside fixed ones.

use super::{BUDGET, RECEIVING_US, books, lay, polder};
use crate::peers::asks::Asks;
use crate::peers::echo::Service;
use crate::scenarios::Run;
use crate::traffic::raw::Plan;
use std::time::Duration;

const FIXED: [u16; 3] = [8, 64, 512];

/// The budget that tunes itself, beside fixed ones, for cheap and for dear requests.
pub(super) fn measure(run: &mut Run, unaccounted: &mut u64) -> anyhow::Result<()> {
    let time = Duration::from_millis(run.quick_or(500, 2000));
    let (mut worst, mut text) = (f64::INFINITY, Vec::new());
    for cost_us in [2, 50] {
        if cost_us == 50 && run.is_quick() {
            run.leave_out("budgets with requests of 50 µs".to_owned());
            continue;
        }
        let mut answered = |budget: Option<u16>| -> anyhow::Result<f64> {
            let named = budget.map_or_else(|| "auto".to_owned(), |packets| packets.to_string());
            run.says(&format!("budget {named}, {cost_us} µs a request"));
            let mut stand = lay(Service { asks: Asks::Echo, over: polder(true, budget), cost_us })?;
            let rate = 2.5e6 / (f64::from(cost_us) + RECEIVING_US);
            let trial = stand.run(&Plan::steady(rate, time))?;
            *unaccounted += books(&mut stand)?;
            Ok(trial.rate())
        };
        let auto = answered(None)?;
        let fixed =
            FIXED.into_iter().map(|budget| answered(Some(budget))).collect::<anyhow::Result<Vec<_>>>()?;
        let best = fixed.iter().copied().fold(0.0, f64::max);
        worst = worst.min(auto / best);
        text.push(format!("{cost_us} µs: {auto:.0} and {best:.0} requests/s"));
    }
    run.record_one(BUDGET, worst);
    run.remark(BUDGET, text.join("; "));
    Ok(())
}
