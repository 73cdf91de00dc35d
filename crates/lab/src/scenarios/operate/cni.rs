//! The CNI plugin between `cnitool`, `host-local` and a gateway.

use super::super::{Goal, Promise, Run};
use crate::report::Better;
use polder_judges::cni;
use polder_testbed::peers::polder::program;

const FAILED: &str = "operate.cni.checks_failed";
const MISSED: &str = "operate.cni.mutants_missed";

pub(super) const PROMISES: [Promise; 2] = [
    Promise { name: FAILED, unit: "checks", better: Better::Lower, goal: Goal::Value(0.0) },
    Promise { name: MISSED, unit: "mutants", better: Better::Lower, goal: Goal::Value(0.0) },
];

/// Runs the checks, and the mutants that they have to find.
pub(super) fn measure(run: &mut Run) -> anyhow::Result<()> {
    if !run.wants_any(&[FAILED, MISSED]) {
        return Ok(());
    }
    if let Err(reason) = cni::available() {
        run.skip(&[FAILED, MISSED], &format!("{reason:#}"));
        return Ok(());
    }
    let program = program()?;
    if run.wants(FAILED) {
        let verdicts = cni::run(&program, run.is_quick(), &|name| run.says(&format!("CNI plugin: {name}")))?;
        let failed = verdicts.iter().filter_map(|verdict| Some((verdict.name, verdict.failure.as_ref()?)));
        let failed = failed.map(|(name, failure)| format!("{name}: {failure}")).collect::<Vec<_>>();
        run.record_one(FAILED, failed.len() as f64);
        let remarks = verdicts.iter().filter(|verdict| !verdict.remark.is_empty());
        let remarks =
            remarks.map(|verdict| format!("{}: {}", verdict.name, verdict.remark)).collect::<Vec<_>>();
        run.remark(FAILED, format!("of {} checks; {}", verdicts.len(), remarks.join("; ")));
        if !failed.is_empty() {
            run.remark(FAILED, failed.join("; "));
        }
    }
    if run.wants(MISSED) {
        let (missed, count) = cni::missed(&program, &|name| run.says(&format!("a plugin that {name}")))?;
        run.record_one(MISSED, missed.len() as f64);
        run.remark(MISSED, format!("of {count} mutants: {}", missed.join(", ")));
    }
    Ok(())
}
