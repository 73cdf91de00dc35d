//! Odd packets through the kernel's router and through Polder's, compared.

use super::judges::{count, record_faults};
use super::{Run, Scenario};
use polder_judges::differential::{self, Comparison, MUTANTS};

const PACKETS: &str = "differential.packets";
const UNEXPLAINED: &str = "differential.different_unexplained";
const EXPLAINED: &str = "differential.different_explained";
const CAUGHT: &str = "differential.mutants_caught";
const ALL_MUTANTS: &str = "differential.mutants";

/// The scenario.
pub(super) const SCENARIO: Scenario = Scenario {
    name: "differential",
    about: "odd packets through the kernel's router and through Polder's: what leaves them is compared",
    needs_root: true,
    rows: include_str!("rows/differential.rows"),
    measure,
};

fn measure(run: &mut Run) -> anyhow::Result<()> {
    if run.or_skip(&run.rows(""), differential::available())?.is_none() {
        return Ok(());
    }
    run.place("both routers", "any", "not pinned");
    let verdict = differential::examine(run.quick_or(2, 1), &|what| run.says(what))?;
    run.record_one(PACKETS, count(verdict.packets));
    run.remark(
        PACKETS,
        format!("{} cases, in {:.0} s", verdict.cases, verdict.faults.duration().as_secs_f64()),
    );
    run.record_all(UNEXPLAINED, &verdict.unexplained);
    run.record_one(EXPLAINED, count(verdict.explained_cases()));
    run.remark(EXPLAINED, explained(&verdict));
    record_faults(run, CAUGHT, std::slice::from_ref(&verdict.faults));
    run.record_one(ALL_MUTANTS, count(MUTANTS));
    Ok(())
}

/// Cases by explanation, with its reason.
fn explained(verdict: &Comparison) -> String {
    let rows = differential::explanations().filter_map(|(name, reason)| {
        let cases = verdict.explained.get(name)?;
        Some(format!("{name}: {} cases, {reason}", cases.len()))
    });
    rows.collect::<Vec<_>>().join("; ")
}
