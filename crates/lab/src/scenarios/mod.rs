//! What can be measured: a scenario is a list of promised rows and a function that fills them.

mod afxdp;
mod buffers;
mod capture;
mod comparison;
mod differential;
mod engine;
mod filter;
mod gateway;
mod gre;
mod hops;
mod idle;
mod judge_gre;
mod lan78xx;
mod lan78xx_kernel;
mod meters;
pub mod nics;
mod order;
mod overload;
mod run;
mod selftests;
mod setup;
mod start;
mod supervise;
mod testbed;

pub use run::{Goal, Promise, Run};

use crate::report::Report;
use crate::screen::Screen;
use anyhow::Context as _;

/// Something that can be measured.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    /// Its name on the command line.
    pub name: &'static str,
    /// One sentence for people.
    pub about: &'static str,
    /// True if it makes namespaces.
    pub needs_root: bool,
    /// The rows that it fills: a contract.
    pub promises: &'static [Promise],
    /// What it does.
    pub measure: fn(&mut Run) -> anyhow::Result<()>,
}

/// All scenarios.
pub const ALL: &[Scenario] = &[
    meters::SCENARIO,
    start::SCENARIO,
    supervise::SCENARIO,
    buffers::SCENARIO,
    engine::SCENARIO,
    afxdp::SCENARIO,
    gre::SCENARIO,
    idle::SCENARIO,
    overload::SCENARIO,
    order::SCENARIO,
    lan78xx::SCENARIO,
    filter::SCENARIO,
    capture::SCENARIO,
    gateway::SCENARIO,
    lan78xx_kernel::SCENARIO,
    judge_gre::SCENARIO,
    differential::SCENARIO,
    selftests::SCENARIO,
    nics::SCENARIO,
];

impl Scenario {
    /// The scenario of that name.
    pub fn named(name: &str) -> Option<&'static Self> {
        ALL.iter().find(|scenario| scenario.name == name)
    }

    /// Runs it, or what the rows need whose names contain one of `only`; rows that were not filled say so.
    ///
    /// # Errors
    /// When interrupted, or when nothing at all could be measured.
    pub fn run(&self, screen: Screen, quick: bool, only: &[String]) -> anyhow::Result<Report> {
        let mut run = Run::start(screen, self.name, self.promises, (quick, only))?;
        (self.measure)(&mut run).with_context(|| format!("the scenario {} could not be run", self.name))?;
        Ok(run.finish())
    }

    /// Judges the rows of a report that was put together from several: what a goal is made of may come from
    /// another part.
    pub fn judge(&self, report: &mut Report) {
        run::judge(self.promises, report);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_of_rows_are_unique_and_documented() {
        let documented = include_str!("../../../../docs/lab.md");
        let mut seen = BTreeSet::new();
        for promise in ALL.iter().flat_map(|scenario| scenario.promises) {
            assert!(seen.insert(promise.name), "{} is promised twice", promise.name);
            assert!(
                documented.contains(&format!("`{}`", promise.name)),
                "docs/lab.md lacks {}",
                promise.name
            );
        }
        for scenario in ALL {
            let begin = scenario.name.replace('-', "_");
            let own = |name: &str| {
                name.split('.')
                    .next()
                    .is_some_and(|word| word == begin || ["budget", "fairness", "fib"].contains(&word))
            };
            let own = scenario.promises.iter().all(|promise| own(promise.name));
            assert!(own, "rows of {} begin with its name", scenario.name);
        }
    }
}
