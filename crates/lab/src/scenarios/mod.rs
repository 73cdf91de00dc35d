//! Scenarios: a scenario is a list of promised rows and a function that fills them.

mod afxdp;
mod buffers;
mod capture;
mod comparison;
mod connections;
mod contrast;
mod differential;
mod e1000;
mod engine;
mod filter;
mod gateway;
mod growth;
mod hops;
mod hosts;
mod idle;
mod judges;
mod lan78xx;
mod meters;
pub mod nics;
mod operate;
mod order;
mod overload;
mod progress;
mod queues;
mod response;
mod rows;
mod run;
mod selftests;
mod setup;
mod start;
mod supervise;
mod tables;
mod testbed;
mod tunnels;
mod turns;
pub mod usb;
mod wire;

pub use run::{Goal, Promise, Run};

use crate::report::Report;
use anyhow::Context as _;
use polder_testbed::screen::Screen;

/// Measurement with promised rows.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    /// Name on the command line.
    pub name: &'static str,
    /// Description in one sentence.
    pub about: &'static str,
    /// True if it makes namespaces.
    pub needs_root: bool,
    /// The table of the rows that it fills: a contract.
    pub rows: &'static str,
    /// Fills the rows.
    pub measure: fn(&mut Run) -> anyhow::Result<()>,
}

/// All scenarios.
pub const ALL: &[Scenario] = &[
    meters::SCENARIO,
    start::SCENARIO,
    supervise::SCENARIO,
    buffers::SCENARIO,
    engine::SCENARIO,
    growth::SCENARIO,
    afxdp::SCENARIO,
    tunnels::SCENARIO,
    wire::SCENARIO,
    idle::SCENARIO,
    overload::SCENARIO,
    order::SCENARIO,
    lan78xx::SCENARIO,
    filter::SCENARIO,
    capture::SCENARIO,
    gateway::SCENARIO,
    judges::LAN78XX,
    judges::GRE,
    judges::VXLAN,
    judges::TUNNELS,
    e1000::SCENARIO,
    differential::SCENARIO,
    selftests::SCENARIO,
    hosts::SCENARIO,
    nics::SCENARIO,
    usb::SCENARIO,
    operate::SCENARIO,
    connections::SCENARIO,
    queues::SCENARIO,
    tables::SCENARIO,
];

/// Names that scenarios had before, and have.
const RENAMED: &[(&str, &str)] = &[("gre", "tunnels")];

impl Scenario {
    /// The rows that it fills.
    pub fn promises(&self) -> &'static [Promise] {
        rows::of(self.rows)
    }

    /// The scenario of that name, or of a name that it had before.
    pub fn named(name: &str) -> Option<&'static Self> {
        let name = RENAMED.iter().find(|(before, _)| *before == name).map_or(name, |(_, name)| name);
        ALL.iter().find(|scenario| scenario.name == name)
    }

    /// Runs it, or the part for the rows whose names contain one of `only`; notes rows that were
    /// not filled. An error that ends it after the first row is beside the report of what was measured before.
    ///
    /// # Errors
    /// When nothing at all could be measured.
    pub fn run(
        &self,
        screen: Screen,
        quick: bool,
        only: &[String],
    ) -> anyhow::Result<(Report, Option<anyhow::Error>)> {
        let mut run = Run::start(screen, self.name, self.promises(), (quick, only))?;
        let ended = (self.measure)(&mut run);
        match ended.with_context(|| format!("the scenario {} could not be run to its end", self.name)) {
            Ok(()) => Ok((self.finish(run), None)),
            Err(error) if run.has_rows() => {
                run.leave_out(format!("{error:#}"));
                Ok((self.finish(run), Some(error)))
            }
            Err(error) => Err(error),
        }
    }

    fn finish(&self, run: Run) -> Report {
        let mut report = run.finish();
        self.judge(&mut report);
        report
    }

    /// Judges the rows of a report that was put together from several: what a goal is made of may come from
    /// another part.
    pub fn judge(&self, report: &mut Report) {
        if self.name == tables::SCENARIO.name {
            tables::conclude(report);
        }
        run::judge(self.promises(), report);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::pattern;
    use std::collections::BTreeSet;
    use std::path::Path;

    #[test]
    fn what_was_measured_before_an_error_is_in_the_report() {
        const ROW: &str = "meters.lost";
        fn scenario(measure: fn(&mut Run) -> anyhow::Result<()>) -> Scenario {
            Scenario {
                name: "meters",
                about: "",
                needs_root: false,
                rows: "meters.lost | | lower |",
                measure,
            }
        }
        let (report, error) = scenario(|run| {
            run.record_one(ROW, 17.0);
            anyhow::bail!("the wire broke")
        })
        .run(Screen::new(), true, &[])
        .unwrap();
        assert_eq!(report.rows[0].value, Some(17.0));
        assert!(report.left_out[0].contains("the wire broke"), "{:?}", report.left_out);
        assert!(error.is_some_and(|error| error.root_cause().to_string() == "the wire broke"));
        let nothing = scenario(|_| anyhow::bail!("no wire"));
        assert!(nothing.run(Screen::new(), true, &[]).is_err());
    }

    #[test]
    fn goals_of_mutants_are_their_numbers() {
        let numbers = [
            ("wire.hot.mutants_caught", polder_judges::hot::MUTANTS),
            ("connections.mutants_caught", polder_judges::connections::MUTANTS),
            ("operate.replay.mutants_caught", polder_judges::replay::MUTANTS),
        ];
        for (name, number) in numbers {
            let promise = ALL.iter().flat_map(Scenario::promises).find(|promise| promise.name == name);
            assert_eq!(promise.map(|promise| promise.goal), Some(Goal::Value(number as f64)), "{name}");
        }
    }

    fn document(path: &str) -> String {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(path);
        std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    #[test]
    fn names_of_rows_are_unique_and_begin_with_their_scenario() {
        let mut seen = BTreeSet::new();
        for promise in ALL.iter().flat_map(Scenario::promises) {
            assert!(seen.insert(promise.name), "{} is promised twice", promise.name);
        }
        for scenario in ALL {
            let begin = scenario.name.replace('-', "_");
            let own = |name: &str| {
                name.split('.')
                    .next()
                    .is_some_and(|word| word == begin || ["budget", "fairness", "fib", "gre"].contains(&word))
            };
            let own = scenario.promises().iter().all(|promise| own(promise.name));
            assert!(own, "rows of {} begin with its name", scenario.name);
        }
    }

    #[test]
    fn pages_explain_every_row_and_no_other() {
        for scenario in ALL {
            let page = document(&format!("measurements/{}.md", scenario.name));
            let written = page.split(crate::report::RESULTS).next().unwrap();
            let (_, table) = written.split_once("| row | meaning |\n").expect(scenario.name);
            let rows = table.lines().take_while(|line| line.starts_with('|'));
            let patterns = rows.filter_map(|line| line.split('`').nth(1)).collect::<Vec<_>>();
            for promise in scenario.promises() {
                let explained = patterns.iter().any(|pattern| pattern::matches(pattern, promise.name));
                assert!(explained, "{} is not explained by its page", promise.name);
            }
            for pattern in patterns {
                let stands_for = |promise: &Promise| pattern::matches(pattern, promise.name);
                assert!(scenario.promises().iter().any(stands_for), "{pattern} stands for no row");
            }
        }
    }

    #[test]
    fn the_lab_page_has_every_scenario_and_at_most_3000_words() {
        let page = document("lab.md");
        for scenario in ALL {
            let (_, about) = page.split_once(&format!("\n### `{}`\n", scenario.name)).expect(scenario.name);
            let about = about.split("\n### ").next().unwrap();
            assert!(about.to_lowercase().contains("negative control"), "{} has no control", scenario.name);
            assert!(about.contains(&format!("(measurements/{}.md)", scenario.name)), "{}", scenario.name);
        }
        assert!(page.split_whitespace().count() <= 3000);
    }
}
