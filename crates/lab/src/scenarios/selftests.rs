//! The kernel's forwarding selftests, rebuilt: the kernel as the forwarder, then Polder.

use super::judges::count;
use super::{Goal, Promise, Run, Scenario};
use crate::report::Better;
use anyhow::Context as _;
use polder_judges::Verdict;
use polder_judges::selftests;

const FAILED: &str = "selftests.checks_failed";
const CAUGHT: &str = "selftests.mutants_caught";
const ALL_MUTANTS: &str = "selftests.mutants";

const fn promise(name: &'static str, unit: &'static str, better: Better, goal: Goal) -> Promise {
    Promise { name, unit, better, goal }
}

/// The rows of one selftest: passed, failed, skipped.
macro_rules! rows {
    ($($part:literal),*) => {
        /// By selftest.
        const ROWS: &[(&str, [&str; 3])] = &[$((
            $part,
            [
                concat!("selftests.", $part, ".checks_passed"),
                concat!("selftests.", $part, ".checks_failed"),
                concat!("selftests.", $part, ".checks_skipped"),
            ],
        )),*];
        const PROMISES: &[Promise] = &[
            promise(FAILED, "checks", Better::Lower, Goal::Value(0.0)),
            promise(CAUGHT, "mutants", Better::Higher, Goal::Row(ALL_MUTANTS)),
            promise(ALL_MUTANTS, "mutants", Better::Higher, Goal::Value(5.0)),
            $(
                promise(concat!("selftests.", $part, ".checks_passed"), "checks", Better::Higher, Goal::None),
                promise(concat!("selftests.", $part, ".checks_failed"), "checks", Better::Lower, Goal::Value(0.0)),
                promise(concat!("selftests.", $part, ".checks_skipped"), "checks", Better::Lower, Goal::None),
            )*
        ];
    };
}

rows!(
    "router",
    "router_broadcast",
    "router_multipath",
    "pmtu",
    "icmp_redirect",
    "bridge_vlan_unaware",
    "gre_inner_v4_multipath",
    "gre_inner_v6_multipath",
    "bridge_vlan_aware",
    "bridge_vlan_mcast",
    "gre_multipath"
);

/// The scenario.
pub(super) const SCENARIO: Scenario = Scenario {
    name: "selftests",
    about: "the kernel's forwarding selftests, rebuilt: the kernel passes them, Polder has to",
    needs_root: true,
    promises: PROMISES,
    measure,
};

fn measure(run: &mut Run) -> anyhow::Result<()> {
    if let Err(reason) = selftests::available() {
        let names = PROMISES.iter().map(|promise| promise.name).collect::<Vec<_>>();
        run.skip(&names, &format!("{reason:#}"));
        return Ok(());
    }
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    run.place("both forwarders", "any", "not pinned");
    let total = run.wants_any(&[FAILED, CAUGHT, ALL_MUTANTS]);
    let wants = |name: &str| total || ROWS.iter().any(|(part, rows)| *part == name && run.wants_any(rows));
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
    let Some((_, rows)) = ROWS.iter().find(|(name, _)| *name == part) else { return };
    for (row, list) in rows.iter().zip([&verdict.passed, &verdict.failed, &verdict.skipped]) {
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
        assert!(names().eq(ROWS.iter().map(|row| row.0)));
    }
}
