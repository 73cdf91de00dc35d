//! Public captures through a bridge with nothing but defaults.

use super::super::Run;
use super::super::judges::record_faults;
use polder_judges::replay::{self, Check, Comparison};

const CAPTURES: &str = "operate.replay.captures";
const CHANGED: &str = "operate.replay.changed";
const LOST: &str = "operate.replay.lost";
const REORDERED: &str = "operate.replay.reordered";
const CAUGHT: &str = "operate.replay.mutants_caught";

/// Failures that a remark tells at most.
const TOLD: usize = 5;

/// Replays the captures, if one of the rows is wanted.
pub(super) fn measure(run: &mut Run) -> anyhow::Result<()> {
    let rows = [CAPTURES, CHANGED, LOST, REORDERED, CAUGHT];
    if !run.is_possible(&rows, replay::available)? {
        return Ok(());
    }
    let verdict = replay::examine(run.quick_or(4, 1), &|what| run.says(what))?;
    run.record_one(CAPTURES, verdict.captures as f64);
    run.remark(CAPTURES, summary(&verdict));
    // A frame that is added has not come as it was sent.
    let changed = verdict.failures_of(Check::NothingChanged) + verdict.failures_of(Check::NothingAdded);
    let in_flow = verdict.failures_of(Check::FlowOrderKept);
    run.record_one(CHANGED, changed as f64);
    run.record_one(LOST, verdict.failures_of(Check::NothingLost) as f64);
    run.record_one(REORDERED, verdict.failures_of(Check::OrderKept) as f64);
    tell(run, CHANGED, &verdict, &[Check::NothingChanged, Check::NothingAdded]);
    tell(run, LOST, &verdict, &[Check::NothingLost]);
    let told = verdict.failed.iter().map(|(name, modes)| format!("{name} in {}", modes.join(", ")));
    let told = told.collect::<Vec<_>>().join("; ");
    run.remark(REORDERED, format!("{in_flow} within flows; segments that are merged leave together: {told}"));
    record_faults(run, CAUGHT, std::slice::from_ref(&verdict.faults));
    Ok(())
}

/// The replays in a sentence.
fn summary(verdict: &Comparison) -> String {
    let explained = replay::explanations().filter_map(|(name, reason)| {
        let frames = verdict.explained.get(name)?;
        Some(format!("; {name}: {frames} frames, {reason}"))
    });
    format!(
        "in the modes {}: {} frames, of which the kernel's bridge carried {} and had {} out of order; {} packets merged, in {:.0} s{}",
        replay::MODES.join(", "),
        verdict.frames,
        verdict.carried,
        verdict.kernel_reordered,
        verdict.merged,
        verdict.faults.duration().as_secs_f64(),
        explained.collect::<String>()
    )
}

/// Remarks the first failures of these checks.
fn tell(run: &mut Run, row: &str, verdict: &Comparison, checks: &[Check]) {
    let failures = checks.iter().filter_map(|check| verdict.failures.get(check)).flatten();
    let told = failures.take(TOLD).cloned().collect::<Vec<_>>();
    if !told.is_empty() {
        run.remark(row, told.join("; "));
    }
}
