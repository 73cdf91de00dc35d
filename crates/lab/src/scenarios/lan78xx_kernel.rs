//! The kernel's lan78xx driver, in a guest, examines the model of the adapter.

use super::{Goal, Promise, Run, Scenario};
use crate::report::Better;
use anyhow::Context as _;
use polder_judges::lan78xx::judge;

const CHECKS_PASSED: &str = "lan78xx_kernel.checks_passed";
const CHECKS_FAILED: &str = "lan78xx_kernel.checks_failed";
const MUTANTS_CAUGHT: &str = "lan78xx_kernel.mutants_caught";

const fn promise(name: &'static str, better: Better, goal: Goal) -> Promise {
    Promise { name, unit: "checks", better, goal }
}

/// The scenario.
pub(super) const SCENARIO: Scenario = Scenario {
    name: "lan78xx-kernel",
    about: "the kernel's driver for LAN78xx adapters judges the model of one",
    needs_root: true,
    promises: &[
        promise(CHECKS_PASSED, Better::Higher, Goal::None),
        promise(CHECKS_FAILED, Better::Lower, Goal::Value(0.0)),
        promise(MUTANTS_CAUGHT, Better::Higher, Goal::Value(6.0)),
    ],
    measure,
};

fn measure(run: &mut Run) -> anyhow::Result<()> {
    if let Err(reason) = judge::available() {
        for name in [CHECKS_PASSED, CHECKS_FAILED, MUTANTS_CAUGHT] {
            run.missing(name, format!("{reason:#}"));
        }
        return Ok(());
    }
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    run.place("the model", "any", "thread of this process");
    run.place("the guest", "any", "emulated processor");
    let verdict = judge::examine(&program, &|what| run.says(what))?;
    let count = |list: &Vec<String>| u32::try_from(list.len()).map_or(f64::MAX, f64::from);
    run.record_one(CHECKS_PASSED, count(&verdict.passed));
    run.record_one(CHECKS_FAILED, count(&verdict.failed));
    run.record_one(MUTANTS_CAUGHT, count(&verdict.caught));
    let rates = verdict.mbit.iter().map(|(name, mbit)| format!("{name} {mbit:.0} Mbit/s"));
    let rates = rates.collect::<Vec<_>>().join(", ");
    let took = duration(&verdict);
    run.remark(CHECKS_PASSED, format!("{}; TCP: {rates}; {took}", verdict.kernel));
    if !verdict.failed.is_empty() {
        run.remark(CHECKS_FAILED, verdict.failed.join("; "));
    }
    if !verdict.missed.is_empty() {
        run.remark(MUTANTS_CAUGHT, format!("not found out: {}", verdict.missed.join(", ")));
    }
    Ok(())
}

/// Duration of the examination, and the checks that took most of it.
fn duration(verdict: &judge::Judgement) -> String {
    let mut took = verdict.took.iter().map(|(what, time)| (time.as_secs_f64(), what)).collect::<Vec<_>>();
    let whole = took.iter().map(|(seconds, _)| seconds).sum::<f64>();
    took.sort_by(|one, other| other.0.total_cmp(&one.0));
    let longest = took.iter().take(4).map(|(seconds, what)| format!("{what} {seconds:.1} s"));
    format!("took {whole:.0} s, most of it: {}", longest.collect::<Vec<_>>().join(", "))
}
