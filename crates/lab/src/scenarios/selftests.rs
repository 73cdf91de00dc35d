//! The kernel's forwarding selftests, rebuilt: the kernel as the forwarder, then Polder.

use super::judges::count;
use super::{Run, Scenario};
use anyhow::Context as _;
use polder_judges::Verdict;
use polder_judges::selftests;

const FAILED: &str = "selftests.checks_failed";
const CAUGHT: &str = "selftests.mutants_caught";
const ALL_MUTANTS: &str = "selftests.mutants";

/// Ends of the rows of one selftest.
const ENDS: [&str; 3] = ["checks_passed", "checks_failed", "checks_skipped"];

/// The scenario.
pub(super) const SCENARIO: Scenario = Scenario {
    name: "selftests",
    about: "the kernel's forwarding selftests, rebuilt: the kernel passes them, Polder has to",
    needs_root: true,
    rows: include_str!("rows/selftests.rows"),
    measure,
};

fn measure(run: &mut Run) -> anyhow::Result<()> {
    if run.or_skip(&run.rows(""), selftests::available())?.is_none() {
        return Ok(());
    }
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    run.place("both forwarders", "any", "not pinned");
    let total = run.wants_any(&[FAILED, CAUGHT, ALL_MUTANTS]);
    let wants = |name: &str| total || run.wants_any_of(&[&format!("selftests.{name}.")]);
    let verdicts = selftests::examine(&program, &wants, &|what| run.says(what))?;
    for (part, verdict) in &verdicts {
        record(run, part, verdict);
    }
    if total {
        let sum = |list: fn(&Verdict) -> &Vec<String>| {
            verdicts.iter().flat_map(|(_, verdict)| list(verdict)).cloned().collect::<Vec<_>>()
        };
        let (failed, caught, missed) =
            (sum(|verdict| &verdict.failed), sum(|verdict| &verdict.caught), sum(|verdict| &verdict.missed));
        run.record_one(FAILED, count(failed.len()));
        run.record_one(CAUGHT, count(caught.len()));
        run.record_one(ALL_MUTANTS, count(caught.len() + missed.len()));
        run.remark(CAUGHT, caught.join("; "));
        if !missed.is_empty() {
            run.remark(ALL_MUTANTS, format!("not found: {}", missed.join("; ")));
        }
    }
    Ok(())
}

fn record(run: &mut Run, part: &str, verdict: &Verdict) {
    for (end, list) in ENDS.into_iter().zip([&verdict.passed, &verdict.failed, &verdict.skipped]) {
        let row = &format!("selftests.{part}.{end}");
        run.record_one(row, count(list.len()));
        run.remark(row, format!("{:.0} s", verdict.duration().as_secs_f64()));
        if !list.is_empty() {
            run.remark(row, list.join("; "));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use polder_judges::selftests::names;

    #[test]
    fn every_selftest_has_rows() {
        let promised = SCENARIO.promises().iter().filter_map(|row| {
            let part = row.name.strip_prefix("selftests.")?.strip_suffix(".checks_passed")?;
            Some(part)
        });
        assert!(names().eq(promised));
    }
}
