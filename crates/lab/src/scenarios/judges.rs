//! Judges from outside: each fills three rows with its verdict.

use super::{Run, Scenario};
use anyhow::Context as _;
use polder_judges::Verdict;
use polder_judges::lan78xx::judge as lan78xx;
use polder_judges::tunnels::Kind;
use std::path::Path;

/// Rows of a judge: checks passed, checks failed, faults found.
pub(super) type Rows = [&'static str; 3];

/// Examination, given the path of this program and the place of its progress.
pub(super) type Examine = fn(&Path, &dyn Fn(&str)) -> anyhow::Result<Verdict>;

/// Judge, and the rows that it fills.
#[derive(Clone, Copy, Debug)]
pub(super) struct Judge {
    /// Rows of the examination.
    pub(super) rows: Rows,
    /// Parts of the examination, and the kind of thread or machine of each.
    pub(super) places: &'static [(&'static str, &'static str)],
    /// Fails where the examination cannot run.
    pub(super) available: fn() -> anyhow::Result<()>,
    /// The examination.
    pub(super) examine: Examine,
}

/// Names of the rows that begin with `prefix`.
macro_rules! rows {
    ($prefix:literal) => {
        [
            concat!($prefix, ".checks_passed"),
            concat!($prefix, ".checks_failed"),
            concat!($prefix, ".mutants_caught"),
        ]
    };
}
pub(super) use rows;

/// Scenario that consists of one judge.
struct Single {
    name: &'static str,
    about: &'static str,
    judge: Judge,
    /// Table of its rows.
    table: &'static str,
}

/// Every judge with a scenario of its own.
static SINGLE: [Single; 3] = [
    Single {
        name: "lan78xx-kernel",
        about: "the kernel's driver for LAN78xx adapters judges the model of one",
        judge: Judge {
            rows: rows!("lan78xx_kernel"),
            places: &[("the model", "thread of this process"), ("the guest", "emulated processor")],
            available: || lan78xx::available().map(drop),
            examine: lan78xx::examine,
        },
        table: include_str!("rows/lan78xx-kernel.rows"),
    },
    Single {
        name: "judge-gre",
        about: "a Linux kernel's gretap, ip6gretap, gre and ip6gre judge Polder's",
        judge: Judge {
            rows: rows!("judge_gre"),
            places: &[("the gateway", "process in a namespace"), ("the guest", "emulated processor")],
            available: || Kind::Gre.available(),
            examine: |program, says| Kind::Gre.examine(program, says),
        },
        table: include_str!("rows/judge-gre.rows"),
    },
    Single {
        name: "judge-vxlan",
        about: "this machine's kernel judges Polder's VXLAN",
        judge: Judge {
            rows: rows!("judge_vxlan"),
            places: &[("the gateway", "process in a namespace")],
            available: || Kind::Vxlan.available(),
            examine: |program, says| Kind::Vxlan.examine(program, says),
        },
        table: include_str!("rows/judge-vxlan.rows"),
    },
];

/// Row of the faults of all kinds of tunnels.
const TUNNEL_FAULTS: &str = "judge_tunnels.mutants_caught";

/// Judge of one kind of tunnel, with the place of the kernel that judges.
macro_rules! tunnel {
    ($word:literal, $kind:expr, $place:expr) => {
        Judge {
            rows: [
                concat!("judge_tunnels.", $word, ".checks_passed"),
                concat!("judge_tunnels.", $word, ".checks_failed"),
                TUNNEL_FAULTS,
            ],
            places: &[("the gateway", "process in a namespace"), $place],
            available: || $kind.available(),
            examine: |program, says| $kind.examine(program, says),
        }
    };
}

/// Every kind of tunnel.
const TUNNELS_OF_KINDS: [Judge; 4] = [
    tunnel!("gre", Kind::Gre, ("the guest", "emulated processor")),
    tunnel!("vxlan", Kind::Vxlan, ("the kernel's end", "this machine's kernel in a namespace")),
    tunnel!("ipip", Kind::Ipip, ("the guest", "emulated processor")),
    tunnel!("sit", Kind::Sit, ("the guest", "emulated processor")),
];

/// Judges of all kinds of tunnels, and the number of faults that they find together.
pub(super) const TUNNELS: Scenario = Scenario {
    name: "judge-tunnels",
    about: "a Linux kernel's GRE, VXLAN, IPIP and SIT judge Polder's",
    needs_root: true,
    rows: include_str!("rows/judge-tunnels.rows"),
    measure: |run| {
        let mut verdicts = Vec::new();
        for judge in &TUNNELS_OF_KINDS {
            let [passed, failed, _] = judge.rows;
            let verdict = judge.verdict(run, &[passed, failed])?;
            verdict.iter().for_each(|verdict| record(run, passed, failed, verdict));
            verdicts.extend(verdict);
        }
        if verdicts.len() == TUNNELS_OF_KINDS.len() {
            record_faults(run, TUNNEL_FAULTS, &verdicts);
        } else {
            run.skip(&[TUNNEL_FAULTS], "not every kind of tunnel was judged");
        }
        Ok(())
    },
};

/// Scenarios of the judges of the table.
pub(super) const LAN78XX: Scenario = scenario::<0>();
pub(super) const GRE: Scenario = scenario::<1>();
pub(super) const VXLAN: Scenario = scenario::<2>();

const fn scenario<const AT: usize>() -> Scenario {
    let Single { name, about, table, .. } = &SINGLE[AT];
    Scenario { name, about, needs_root: true, rows: table, measure: |run| SINGLE[AT].judge.measure(run) }
}

impl Judge {
    /// Runs the examination if its rows are wanted.
    pub(super) fn measure(&self, run: &mut Run) -> anyhow::Result<()> {
        if let Some(verdict) = self.verdict(run, &self.rows)? {
            record(run, self.rows[0], self.rows[1], &verdict);
            record_faults(run, self.rows[2], &[verdict]);
        }
        Ok(())
    }

    /// Verdict of the examination; `None` if it is not wanted or cannot run, when `skipped` rows are missing.
    pub(super) fn verdict(&self, run: &mut Run, skipped: &[&str]) -> anyhow::Result<Option<Verdict>> {
        if !run.wants_any(&self.rows) || run.or_skip(skipped, (self.available)())?.is_none() {
            return Ok(None);
        }
        let program = std::env::current_exe().context("cannot find this program's own file")?;
        for (what, how) in self.places {
            run.place(what, "any", how);
        }
        (self.examine)(&program, &|what| run.says(what)).map(Some)
    }
}

/// Records numbers of checks.
pub(super) fn record(run: &mut Run, passed: &str, failed: &str, verdict: &Verdict) {
    run.record_one(passed, count(verdict.passed.len()));
    run.remark(passed, circumstances(verdict));
    run.record_all(failed, &verdict.failed);
}

/// Records the number of faults that were found.
pub(super) fn record_faults(run: &mut Run, row: &str, verdicts: &[Verdict]) {
    let all =
        |list: fn(&Verdict) -> &Vec<String>| verdicts.iter().flat_map(list).cloned().collect::<Vec<_>>();
    let (caught, missed) = (all(|verdict| &verdict.caught), all(|verdict| &verdict.missed));
    run.record_all(row, &caught);
    if !missed.is_empty() {
        run.remark(row, format!("not found out: {}", missed.join(", ")));
    }
}

/// The guest's kernel, throughput, duration, and the parts that took most of it.
fn circumstances(verdict: &Verdict) -> String {
    let kernel = Some(verdict.kernel.clone()).filter(|kernel| !kernel.is_empty());
    let rates = verdict.mbit.iter().map(|(name, mbit)| format!("{name} {mbit:.0} Mbit/s"));
    let rates = rates.collect::<Vec<_>>().join(", ");
    let rates = (!rates.is_empty()).then(|| format!("TCP: {rates}"));
    let mut parts = verdict.took.iter().collect::<Vec<_>>();
    parts.sort_by_key(|(_, time)| std::cmp::Reverse(*time));
    let longest = parts.iter().take(4).map(|(what, time)| format!("{what} {:.1} s", time.as_secs_f64()));
    let longest = longest.collect::<Vec<_>>().join(", ");
    let took = format!("took {:.0} s, most of it: {longest}", verdict.duration().as_secs_f64());
    [kernel, rates, Some(took)].into_iter().flatten().collect::<Vec<_>>().join("; ")
}

/// Number of a list's entries as a row has it.
pub(super) fn count(number: usize) -> f64 {
    u32::try_from(number).map_or(f64::MAX, f64::from)
}
