//! The kernel's own GRE tunnels, in a guest, examine Polder's.

use super::{Goal, Promise, Run, Scenario};
use crate::report::Better;
use anyhow::Context as _;
use polder_judges::tunnels;

const CHECKS_PASSED: &str = "judge_gre.checks_passed";
const CHECKS_FAILED: &str = "judge_gre.checks_failed";
const MUTANTS_CAUGHT: &str = "judge_gre.mutants_caught";
/// Broken encapsulators.
const MUTANTS: f64 = 12.0;

const fn promise(name: &'static str, better: Better, goal: Goal) -> Promise {
    Promise { name, unit: "checks", better, goal }
}

/// The scenario.
pub(super) const SCENARIO: Scenario = Scenario {
    name: "judge-gre",
    about: "a Linux kernel's gretap, ip6gretap, gre and ip6gre judge Polder's",
    needs_root: true,
    promises: &[
        promise(CHECKS_PASSED, Better::Higher, Goal::None),
        promise(CHECKS_FAILED, Better::Lower, Goal::Value(0.0)),
        promise(MUTANTS_CAUGHT, Better::Higher, Goal::Value(MUTANTS)),
    ],
    measure,
};

fn measure(run: &mut Run) -> anyhow::Result<()> {
    if let Err(reason) = tunnels::available() {
        for name in [CHECKS_PASSED, CHECKS_FAILED, MUTANTS_CAUGHT] {
            run.missing(name, format!("{reason:#}"));
        }
        return Ok(());
    }
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    run.place("the gateway", "any", "process in a namespace");
    run.place("the guest", "any", "emulated processor");
    let verdict = tunnels::examine(&program, &|what| run.says(what))?;
    let count = |list: &Vec<String>| u32::try_from(list.len()).map_or(f64::MAX, f64::from);
    run.record_one(CHECKS_PASSED, count(&verdict.passed));
    run.record_one(CHECKS_FAILED, count(&verdict.failed));
    run.record_one(MUTANTS_CAUGHT, count(&verdict.caught));
    let took = format!("took {:.0} s", verdict.took.as_secs_f64());
    run.remark(CHECKS_PASSED, format!("{}; {took}", verdict.kernel));
    run.remark(MUTANTS_CAUGHT, verdict.caught.join("; "));
    if !verdict.failed.is_empty() {
        run.remark(CHECKS_FAILED, verdict.failed.join("; "));
    }
    if !verdict.missed.is_empty() {
        run.remark(MUTANTS_CAUGHT, format!("not found out: {}", verdict.missed.join(", ")));
    }
    Ok(())
}
