//! Checks of the driver by QEMU's test protocol, of a gateway in a guest, and of the model by the kernel's driver; and
//! of what has a fault, by the same judges.

use super::Run;
use anyhow::Context as _;
use polder_judges::e1000::{self, Judgement};
use std::time::Duration;

pub(super) const QTEST_PASSED: &str = "e1000.qtest.checks_passed";
pub(super) const QTEST_FAILED: &str = "e1000.qtest.checks_failed";
pub(super) const GUEST_PASSED: &str = "e1000.guest.checks_passed";
pub(super) const GUEST_FAILED: &str = "e1000.guest.checks_failed";
pub(super) const KERNEL_PASSED: &str = "e1000.kernel_driver.checks_passed";
pub(super) const KERNEL_FAILED: &str = "e1000.kernel_driver.checks_failed";
pub(super) const MUTANTS_CAUGHT: &str = "e1000.mutants_caught";

/// Examines the driver, the model and a gateway, and mutants of all three.
pub(super) fn with_mutants(run: &mut Run) -> anyhow::Result<()> {
    let verdicts = [by_qtest(run)?, by_the_kernel(run)?, in_a_guest(run)?];
    let mut mutants = verdicts.iter().flatten().filter(|verdict| !verdict.caught.is_empty()).peekable();
    if mutants.peek().is_none() || !run.wants(MUTANTS_CAUGHT) {
        return Ok(());
    }
    let (mut caught, mut missed) = (Vec::new(), Vec::new());
    for verdict in mutants {
        caught.extend_from_slice(&verdict.caught);
        missed.extend_from_slice(&verdict.missed);
    }
    run.record_one(MUTANTS_CAUGHT, count(&caught));
    run.remark(MUTANTS_CAUGHT, caught.join("; "));
    if !missed.is_empty() {
        run.remark(MUTANTS_CAUGHT, format!("not found out: {}", missed.join(", ")));
    }
    Ok(())
}

/// Examines the driver and its mutants, without a guest.
fn by_qtest(run: &mut Run) -> anyhow::Result<Option<Judgement>> {
    let rows = [QTEST_PASSED, QTEST_FAILED];
    if !run.wants_any(&[rows[0], rows[1], MUTANTS_CAUGHT]) {
        return Ok(None);
    }
    if let Err(reason) = e1000::available() {
        run.skip(&[rows[0], rows[1], MUTANTS_CAUGHT], &format!("{reason:#}"));
        return Ok(None);
    }
    run.place("the driver", "any", "thread of this process");
    run.says("QEMU's test protocol");
    let verdict = e1000::examine()?;
    record(run, rows, &verdict);
    Ok(Some(verdict))
}

/// Lets the kernel's driver examine the model and its mutants, in a guest.
fn by_the_kernel(run: &mut Run) -> anyhow::Result<Option<Judgement>> {
    let rows = [KERNEL_PASSED, KERNEL_FAILED];
    if !run.wants_any(&[rows[0], rows[1], MUTANTS_CAUGHT]) {
        return Ok(None);
    }
    if let Err(reason) = e1000::kernel_available() {
        run.skip(&rows, &format!("{reason:#}"));
        return Ok(None);
    }
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    run.place("the model", "any", "thread of this process");
    let verdict = e1000::examine_model(&program, &|what| run.says(what))?;
    record(run, rows, &verdict);
    Ok(Some(verdict))
}

/// Examines a gateway in a guest, from `polder check` to `polder release`, and broken ones.
fn in_a_guest(run: &mut Run) -> anyhow::Result<Option<Judgement>> {
    let rows = [GUEST_PASSED, GUEST_FAILED];
    if !run.wants_any(&[rows[0], rows[1], MUTANTS_CAUGHT]) {
        return Ok(None);
    }
    if let Err(reason) = e1000::guest_available() {
        run.skip(&rows, &format!("{reason:#}"));
        return Ok(None);
    }
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    run.place("the guest", "any", "one emulated processor");
    let verdict = e1000::examine_in_guest(&program, &|what| run.says(what))?;
    record(run, rows, &verdict);
    Ok(Some(verdict))
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
