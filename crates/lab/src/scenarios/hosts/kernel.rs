//! Rows of packets that are left to the kernel: when it changes, with filters, and what they cost.

use super::super::Run;
use crate::yielding::{Change, Site, Tries, beside_busy_cores};
use polder_judges::hosts::Mode;
use polder_judges::hosts::left;
use std::time::Duration;

const LEAKED: &str = "hosts.yield.leaked";
const LATEST: &str = "hosts.yield.latest";
const LEAKED_BUSY: &str = "hosts.yield.busy.leaked";
const LATEST_BUSY: &str = "hosts.yield.busy.latest";
const CONTROL: &str = "hosts.yield.bypassed";
const PASSED: &str = "hosts.filter.passed_unknown";
const OTHERS: &str = "hosts.filter.passed_others";
const COST: &str = "hosts.left.cost.skb";
const COST_GENERIC: &str = "hosts.left.cost.generic";
const COST_NATIVE: &str = "hosts.left.cost.native";
const COST_NULL: &str = "hosts.left.cost.null";

pub(super) fn measure(run: &mut Run) -> anyhow::Result<()> {
    if run.wants_any(&[LEAKED, LATEST, LEAKED_BUSY, LATEST_BUSY, CONTROL]) {
        yields(run)?;
    }
    if run.wants_any(&[PASSED, OTHERS]) {
        run.says("filters of packets that only the kernel knows a way for");
        let passed = left::filters()?;
        run.record_one(PASSED, passed.dropped_ones as f64);
        run.record_one(OTHERS, passed.others as f64);
        run.remark(OTHERS, "the same packets beside a rule about another protocol");
    }
    if run.wants_any(&[COST, COST_GENERIC, COST_NATIVE, COST_NULL]) {
        costs(run)?;
    }
    Ok(())
}

/// Changes beside gateways that have just started.
fn yields(run: &mut Run) -> anyhow::Result<()> {
    let tries = run.quick_or(2, 50);
    let site = Site::lay()?;
    let all = |run: &Run, how: &str| {
        let each = Change::ALL.map(|change| {
            run.says(&format!("{change:?}, {tries} times, {how}"));
            site.tries(change, tries, "").map(|tries| (change, tries))
        });
        each.into_iter().collect::<anyhow::Result<Vec<_>>>()
    };
    for (leaked, latest, is_busy) in [(LEAKED, LATEST, false), (LEAKED_BUSY, LATEST_BUSY, true)] {
        let found = match is_busy {
            false => all(run, "idle")?,
            true => beside_busy_cores(|| all(run, "beside busy cores"))?,
        };
        run.record_one(leaked, found.iter().map(|(_, tries)| tries.leaked as f64).sum());
        run.remark(leaked, found.iter().map(told).collect::<Vec<_>>().join("; "));
        if let Some(nanos) = found.iter().filter_map(|(_, tries)| tries.latest).max() {
            run.record_one(latest, nanos as f64 / 1e3);
            run.remark(
                latest,
                "from the command's return to the last packet taken, the largest of all tries",
            );
        }
    }
    let control = site.tries(Change::Chain, 1, "kernel_hooks = \"bypass\"\n")?;
    run.record_one(CONTROL, control.leaked as f64);
    run.remark(CONTROL, "what the meter finds of a port that does not yield");
    Ok(())
}

fn told((change, tries): &(Change, Tries)) -> String {
    let latest = tries.latest.map_or(0.0, |nanos| nanos as f64 / 1e3);
    format!("{change:?}: {} tries, {} packets before, the last {latest:.0} µs", tries.tries, tries.before)
}

fn costs(run: &mut Run) -> anyhow::Result<()> {
    let (rounds, time) = run.quick_or((4, 100), (20, 250));
    let costs = left::cost(rounds, Duration::from_millis(time), &|what| run.says(what))?;
    for cost in costs {
        let row = match cost.mode {
            None => COST_NULL,
            Some(Mode::Skb) => COST,
            Some(Mode::Generic) => COST_GENERIC,
            Some(Mode::Native) => COST_NATIVE,
        };
        run.record_interval(row, &cost.more);
        let all = cost.all.median().unwrap_or_default();
        run.remark(
            row,
            format!(
                "more than the kernel alone, of {all:.0} ns a packet in all, sender and receiver included"
            ),
        );
    }
    Ok(())
}
