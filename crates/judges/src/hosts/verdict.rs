//! Verdicts: result of a probe with Polder, compared with its result with the kernel alone.

use super::bed::Mode;
use super::judge::Phase;
use super::recipe::Recipe;
use crate::examination::{Plan, Verdict};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Runs in which probes did something, as text for people, by the name of the probe.
pub type Runs = BTreeMap<String, Vec<String>>;

/// Result of all recipes.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Comparison {
    /// Recipes that ran.
    pub recipes: BTreeSet<String>,
    /// Recipes that did not run, and why.
    pub skipped: BTreeMap<String, String>,
    /// Probes that were asked, as `recipe/probe`.
    pub probes: BTreeSet<String>,
    /// Probes that worked before and do not work with Polder, where `polder check` did not name them, and faults of the gateway
    /// itself.
    pub broken: Runs,
    /// Probes that do not work with Polder, and `polder check` named them.
    pub said: Runs,
    /// Findings of `polder check` about probes that work.
    pub false_alarms: Runs,
    /// Recipes with which Polder refuses to start, and `polder check` says why.
    pub refused: BTreeMap<String, String>,
    /// Probes that do not work with the kernel alone: they show nothing.
    pub void: Runs,
    /// Time of each recipe, all modes together.
    pub took: BTreeMap<String, Duration>,
    /// Probes of the recipes, skipped recipes, and faults of the host, which every probe has found that has to.
    pub verdict: Verdict,
}

/// Name of a probe, or of a fault of the gateway itself.
pub(super) fn probe_name(recipe: &str, probe: &str) -> String {
    format!("{recipe}/{probe}")
}

/// Name of a fault of the host.
pub(super) fn fault_name(recipe: &str, fault: &str) -> String {
    format!("{recipe}: {fault}")
}

/// Answers of a probe in one run.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub(super) probe: &'static str,
    pub(super) phase: Phase,
    /// The reason of a no.
    pub(super) no: Option<String>,
}

impl Comparison {
    /// Begins a run of a recipe, with faults of the host or without.
    pub(super) fn begin(recipe: &Recipe, has_faults: bool) -> Self {
        let probes = recipe.probes.iter().map(|probe| probe_name(recipe.name, probe.name));
        let faults = recipe.mutants.iter().filter(|_| has_faults);
        let faults = faults.map(|mutant| fault_name(recipe.name, mutant.name));
        let plan = Plan::default().named(probes).faults_named(faults);
        let recipes = [recipe.name.to_owned()].into();
        Self { recipes, verdict: Verdict::begin("", plan), ..Self::default() }
    }

    /// Leaves a recipe out.
    pub(super) fn skip(&mut self, recipe: &Recipe, reason: String) {
        let mut verdict = Verdict::begin("", Plan::default().named([recipe.name]));
        verdict.skipped.push(format!("{}: {reason}", recipe.name));
        self.verdict.add(verdict);
        self.skipped.insert(recipe.name.to_owned(), reason);
    }

    /// Judges the answers of a recipe in one mode. `named` says which finding names a probe.
    pub(super) fn judge(
        &mut self,
        recipe: &str,
        mode: Mode,
        answers: &[Answer],
        named: impl Fn(&str) -> Option<String>,
    ) {
        for answer in answers {
            let name = probe_name(recipe, answer.probe);
            self.probes.insert(name.clone());
            let Some(no) = &answer.no else { continue };
            let text = format!("{} {}: {no}", mode.name(), answer.phase.name());
            let list = match (answer.phase, named(answer.probe)) {
                (Phase::Before, _) => &mut self.void,
                (_, Some(_)) => &mut self.said,
                (_, None) => &mut self.broken,
            };
            list.entry(name).or_default().push(text);
        }
        let asked = answers.iter().filter(|answer| answer.phase.has_polder()).map(|answer| answer.probe);
        for probe in asked.collect::<BTreeSet<_>>() {
            let works =
                answers.iter().filter(|answer| answer.probe == probe).all(|answer| answer.no.is_none());
            if let Some(finding) = named(probe).filter(|_| works) {
                let text = format!("{}: {finding}", mode.name());
                self.false_alarms.entry(probe_name(recipe, probe)).or_default().push(text);
            }
        }
    }

    /// Joins two recipes, or two modes of one.
    pub(super) fn add(&mut self, other: Self) {
        self.recipes.extend(other.recipes);
        self.skipped.extend(other.skipped);
        self.probes.extend(other.probes);
        self.refused.extend(other.refused);
        for (own, others) in [
            (&mut self.broken, other.broken),
            (&mut self.said, other.said),
            (&mut self.false_alarms, other.false_alarms),
            (&mut self.void, other.void),
        ] {
            others.into_iter().for_each(|(name, runs)| own.entry(name).or_default().extend(runs));
        }
        self.verdict.add(other.verdict);
        for (recipe, time) in other.took {
            *self.took.entry(recipe).or_default() += time;
        }
    }

    /// Makes the verdict of the runs of each probe: one of which `polder check` says that it does not work is skipped.
    pub(super) fn conclude(&mut self) {
        let failed = [
            ("broken", &self.broken),
            ("a false alarm", &self.false_alarms),
            ("does not work with the kernel alone", &self.void),
        ];
        for (what, runs) in failed {
            let told = runs.iter().map(|(name, runs)| format!("{name}: {what}: {}", runs.join(", ")));
            self.verdict.failed.extend(told);
        }
        for name in &self.probes {
            if let Some(runs) = self.said.get(name) {
                self.verdict.skipped.push(format!("{name}: as `polder check` says: {}", runs.join(", ")));
            } else if failed.iter().all(|(_, runs)| !runs.contains_key(name)) {
                self.verdict.passed.push(name.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(probe: &'static str, phase: Phase, works: bool) -> Answer {
        Answer { probe, phase, no: (!works).then(|| "no".to_owned()) }
    }

    #[test]
    fn a_probe_that_stops_is_broken_unless_check_named_it() {
        let mut seen = Comparison::default();
        let both = |probe, works| [answer(probe, Phase::Before, true), answer(probe, Phase::Running, works)];
        let answers = [both("works", true), both("stops", false), both("told", false)].concat();
        seen.judge("r", Mode::Skb, &answers, |probe| (probe == "told").then(|| "it stops".to_owned()));
        seen.conclude();
        assert_eq!(seen.probes.len(), 3);
        assert_eq!(
            seen.broken.into_iter().collect::<Vec<_>>(),
            [("r/stops".to_owned(), vec!["skb running: no".to_owned()])]
        );
        assert_eq!(seen.said.keys().collect::<Vec<_>>(), ["r/told"]);
        assert!(seen.false_alarms.is_empty() && seen.void.is_empty());
        let Verdict { passed, failed, skipped, .. } = seen.verdict;
        assert_eq!(
            (passed, failed),
            (vec!["r/works".to_owned()], vec!["r/stops: broken: skb running: no".to_owned()])
        );
        assert_eq!(skipped, ["r/told: as `polder check` says: skb running: no"]);
    }

    #[test]
    fn a_finding_about_a_probe_that_works_is_a_false_alarm() {
        let mut seen = Comparison::default();
        let answers = [answer("works", Phase::Before, true), answer("works", Phase::Running, true)];
        seen.judge("r", Mode::Skb, &answers, |_| Some("it stops".to_owned()));
        assert_eq!(seen.false_alarms["r/works"], ["skb: it stops"]);
    }

    #[test]
    fn a_probe_that_does_not_work_before_shows_nothing() {
        let mut seen = Comparison::default();
        seen.judge("r", Mode::Skb, &[answer("never", Phase::Before, false)], |_| None);
        assert!(seen.broken.is_empty());
        assert_eq!(seen.void.keys().collect::<Vec<_>>(), ["r/never"]);
        seen.conclude();
        assert!(seen.verdict.require().is_err() && seen.verdict.failed.len() == 1);
    }
}
