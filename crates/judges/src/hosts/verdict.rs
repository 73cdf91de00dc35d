//! Verdicts: what a probe says with Polder, beside what it says with the kernel alone.

use super::bed::Mode;
use super::judge::Phase;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A probe of a recipe.
pub type Name = (&'static str, &'static str);

/// Verdict of all recipes.
#[derive(Clone, Debug, Default)]
pub struct Verdict {
    /// Recipes that ran.
    pub recipes: BTreeSet<&'static str>,
    /// Recipes that did not run, and why.
    pub skipped: BTreeMap<&'static str, String>,
    /// Probes that were asked.
    pub probes: BTreeSet<Name>,
    /// Probes that worked before and do not work with Polder, where `polder check` did not name them; by run, the reason.
    pub broken: BTreeMap<Name, Vec<String>>,
    /// Probes that do not work with Polder, and `polder check` named them.
    pub said: BTreeMap<Name, Vec<String>>,
    /// Findings of `polder check` about probes that work.
    pub false_alarms: BTreeMap<Name, Vec<String>>,
    /// Recipes with which Polder refuses to start, and `polder check` says why.
    pub refused: BTreeMap<&'static str, String>,
    /// Probes that do not work with the kernel alone: they show nothing.
    pub void: BTreeMap<Name, Vec<String>>,
    /// Faults of the host that every probe found which has to.
    pub caught: Vec<String>,
    /// Faults of the host that a probe did not find.
    pub missed: Vec<String>,
    /// Time of each recipe, all modes together.
    pub took: BTreeMap<&'static str, Duration>,
}

/// Answers of a probe in one run.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub(super) probe: &'static str,
    pub(super) phase: Phase,
    /// The reason of a no.
    pub(super) no: Option<String>,
}

impl Verdict {
    /// Judges the answers of a recipe in one mode. `named` says which finding names a probe.
    pub(super) fn judge(
        &mut self,
        recipe: &'static str,
        mode: Mode,
        answers: &[Answer],
        named: impl Fn(&str) -> Option<String>,
    ) {
        for answer in answers {
            let name = (recipe, answer.probe);
            self.probes.insert(name);
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
                self.false_alarms.entry((recipe, probe)).or_default().push(text);
            }
        }
    }

    /// Joins the verdicts of two recipes, or of two modes of one.
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
        self.caught.extend(other.caught);
        self.missed.extend(other.missed);
        for (recipe, time) in other.took {
            *self.took.entry(recipe).or_default() += time;
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
        let mut verdict = Verdict::default();
        let both = |probe, works| [answer(probe, Phase::Before, true), answer(probe, Phase::Running, works)];
        let answers = [both("works", true), both("stops", false), both("told", false)].concat();
        verdict.judge("r", Mode::Skb, &answers, |probe| (probe == "told").then(|| "it stops".to_owned()));
        assert_eq!(verdict.probes.len(), 3);
        assert_eq!(
            verdict.broken.into_iter().collect::<Vec<_>>(),
            [(("r", "stops"), vec!["skb running: no".to_owned()])]
        );
        assert_eq!(verdict.said.keys().collect::<Vec<_>>(), [&("r", "told")]);
        assert!(verdict.false_alarms.is_empty() && verdict.void.is_empty());
    }

    #[test]
    fn a_finding_about_a_probe_that_works_is_a_false_alarm() {
        let mut verdict = Verdict::default();
        let answers = [answer("works", Phase::Before, true), answer("works", Phase::Running, true)];
        verdict.judge("r", Mode::Skb, &answers, |_| Some("it stops".to_owned()));
        assert_eq!(verdict.false_alarms[&("r", "works")], ["skb: it stops"]);
    }

    #[test]
    fn a_probe_that_does_not_work_before_shows_nothing() {
        let mut verdict = Verdict::default();
        verdict.judge("r", Mode::Skb, &[answer("never", Phase::Before, false)], |_| None);
        assert!(verdict.broken.is_empty());
        assert_eq!(verdict.void.keys().collect::<Vec<_>>(), [&("r", "never")]);
    }
}
