//! Checks of the driver by QEMU's test protocol, and of a gateway in a guest.

use super::Run;
use crate::e1000::{self, Judgement};
use anyhow::Context as _;
use std::time::Duration;

pub(super) const QTEST_PASSED: &str = "e1000.qtest.checks_passed";
pub(super) const QTEST_FAILED: &str = "e1000.qtest.checks_failed";
pub(super) const GUEST_PASSED: &str = "e1000.guest.checks_passed";
pub(super) const GUEST_FAILED: &str = "e1000.guest.checks_failed";
pub(super) const MUTANTS_CAUGHT: &str = "e1000.mutants_caught";

/// Examines the driver and its mutants, without a guest.
pub(super) fn by_qtest(run: &mut Run) -> anyhow::Result<()> {
    let rows = [QTEST_PASSED, QTEST_FAILED, MUTANTS_CAUGHT];
    if !run.wants_any(&rows) {
        return Ok(());
    }
    if let Err(reason) = e1000::available() {
        run.skip(&rows, &format!("{reason:#}"));
        return Ok(());
    }
    run.place("the driver", "any", "thread of this process");
    run.says("QEMU's test protocol");
    let verdict = e1000::examine()?;
    record(run, [QTEST_PASSED, QTEST_FAILED], &verdict);
    run.record_one(MUTANTS_CAUGHT, count(&verdict.caught));
    run.remark(MUTANTS_CAUGHT, verdict.caught.join("; "));
    if !verdict.missed.is_empty() {
        run.remark(MUTANTS_CAUGHT, format!("not found out: {}", verdict.missed.join(", ")));
    }
    Ok(())
}

/// Examines a gateway in a guest, from `polder check` to `polder release`.
pub(super) fn in_a_guest(run: &mut Run) -> anyhow::Result<()> {
    let rows = [GUEST_PASSED, GUEST_FAILED];
    if !run.wants_any(&rows) {
        return Ok(());
    }
    if let Err(reason) = e1000::guest_available() {
        run.skip(&rows, &format!("{reason:#}"));
        return Ok(());
    }
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    run.place("the guest", "any", "one emulated processor");
    let verdict = e1000::examine_in_guest(&program, &|what| run.says(what))?;
    record(run, rows, &verdict);
    Ok(())
}

fn record(run: &mut Run, [passed, failed]: [&str; 2], verdict: &Judgement) {
    let took = verdict.took.iter().map(|(_, time)| *time).sum::<Duration>();
    run.record_one(passed, count(&verdict.passed));
    run.remark(passed, format!("took {:.0} s", took.as_secs_f64()));
    run.record_one(failed, count(&verdict.failed));
    if !verdict.failed.is_empty() {
        run.remark(failed, verdict.failed.join("; "));
    }
}

fn count(list: &[String]) -> f64 {
    u32::try_from(list.len()).map_or(f64::MAX, f64::from)
}
