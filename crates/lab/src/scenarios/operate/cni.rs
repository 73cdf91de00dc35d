//! The CNI plugin between `cnitool`, `host-local` and a gateway.

use super::super::Run;
use polder_judges::cni;
use polder_testbed::peers::polder::program;

const FAILED: &str = "operate.cni.checks_failed";
const MISSED: &str = "operate.cni.mutants_missed";

/// Runs the checks, and the mutants that they have to find.
pub(super) fn measure(run: &mut Run) -> anyhow::Result<()> {
    if !run.is_possible(&[FAILED, MISSED], cni::available)? {
        return Ok(());
    }
    let program = program()?;
    if run.wants(FAILED) {
        let verdict =
            cni::examine(&program, run.is_quick(), &|name| run.says(&format!("CNI plugin: {name}")))?;
        run.record_one(FAILED, verdict.failed.len() as f64);
        let numbers = verdict.measured.join("; ");
        run.remark(FAILED, format!("of {} checks; {numbers}", verdict.passed.len() + verdict.failed.len()));
        if !verdict.failed.is_empty() {
            run.remark(FAILED, verdict.failed.join("; "));
        }
    }
    if run.wants(MISSED) {
        let verdict = cni::look_for_mutants(&program, &|name| run.says(&format!("a plugin that {name}")))?;
        let count = verdict.caught.len() + verdict.missed.len();
        run.record_one(MISSED, verdict.missed.len() as f64);
        run.remark(MISSED, format!("of {count} mutants: {}", verdict.missed.join(", ")));
    }
    Ok(())
}
