//! The runner: a recipe in one mode, through all phases.

use super::Selection;
use super::bed::{AGAIN, Bed, Mode};
use super::recipe::{Mutant, Probe, Recipe};
use super::verdict::{Answer, Comparison, fault_name, probe_name};
use polder_testbed::{clock, interrupt};
use std::collections::BTreeMap;
use std::time::Duration;

/// Time limit of a probe before Polder, where daemons come up, and with it.
const FIRST: Duration = Duration::from_secs(25);
const SOON: Duration = Duration::from_secs(20);
/// Time limit of a probe that has failed before.
const KNOWN: Duration = Duration::from_millis(1500);
/// Time for which a probe has to say no to a fault, and time limit for it to begin, as daemons wait for several messages.
const FAULT: Duration = Duration::from_millis(1200);
const NOTICED: Duration = Duration::from_secs(15);

/// Phase of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    /// The kernel alone.
    Before,
    /// Polder starts.
    Starting,
    /// Polder runs.
    Running,
    /// Polder has reloaded its configuration.
    Reloaded,
    /// Polder has refused to start.
    Refused,
    /// Services have started after Polder.
    Late,
    /// Polder has ended.
    Ended,
}

impl Phase {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Before => "before",
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Reloaded => "reloaded",
            Self::Refused => "refused",
            Self::Late => "late",
            Self::Ended => "ended",
        }
    }

    /// True if Polder has the interfaces.
    pub(super) fn has_polder(self) -> bool {
        match self {
            Self::Starting | Self::Running | Self::Reloaded | Self::Late => true,
            Self::Before | Self::Refused | Self::Ended => false,
        }
    }
}

/// A run of one recipe in one mode.
struct Judge<'a> {
    bed: Bed<'a>,
    selection: &'a Selection,
    mode: Mode,
    answers: Vec<Answer>,
    seen: Comparison,
    /// Probes that failed in this run: one that fails again is not waited for again.
    failed: BTreeMap<&'static str, ()>,
}

/// Runs a recipe in one mode.
///
/// # Errors
/// When the testbed cannot be made.
pub(super) fn judge(
    recipe: &'static Recipe,
    mode: Mode,
    selection: &Selection,
) -> anyhow::Result<Comparison> {
    let start = clock::now();
    let has_faults = selection.mutants && mode == Mode::Skb;
    let mut judge = Judge {
        bed: Bed::lay(recipe, mode)?,
        selection,
        mode,
        answers: Vec::new(),
        seen: Comparison::begin(recipe, has_faults),
        failed: BTreeMap::new(),
    };
    let findings = judge.run(has_faults)?;
    let Judge { mut seen, answers, .. } = judge;
    let named = |name: &str| {
        let probe = recipe.probes.iter().find(|probe| probe.name == name)?;
        findings.iter().find(|finding| names(finding, probe.said)).cloned()
    };
    seen.judge(recipe.name, mode, &answers, named);
    seen.took.insert(recipe.name.to_owned(), clock::now() - start);
    Ok(seen)
}

impl Judge<'_> {
    /// Goes through all phases; gives the findings of `polder check`.
    fn run(&mut self, has_faults: bool) -> anyhow::Result<Vec<String>> {
        self.bed.start(true)?;
        self.pass(Phase::Before)?;
        if has_faults {
            self.bed.recipe.mutants.iter().try_for_each(|mutant| self.look_for(mutant))?;
        }
        self.bed.stop(true)?;
        let findings = self.bed.check()?;
        if self.start_gateway(&findings)? {
            let has_services = self.seen.refused.is_empty();
            self.run_gateway(has_services)?;
        }
        self.bed.stop(false)?;
        Ok(findings)
    }

    /// Starts the gateway beside the services. One that refuses starts without them. False if it does not start.
    fn start_gateway(&mut self, findings: &[String]) -> anyhow::Result<bool> {
        self.bed.spawn_gateway()?;
        let words = self.bed.recipe.refused;
        // Addresses that move to an interface of the gateway's wait for it.
        let moves = !self.bed.recipe.network.arrived.is_empty();
        if !self.selection.quick && words.is_empty() && !moves {
            self.pass(Phase::Starting)?;
        }
        let Err(error) = self.bed.gateway_answers() else {
            self.pass(Phase::Running)?;
            return Ok(true);
        };
        match findings.iter().find(|finding| names(finding, words)) {
            Some(finding) => drop(self.seen.refused.insert(self.bed.recipe.name.to_owned(), finding.clone())),
            None => self.fault("polder_starts", Phase::Running, &error),
        }
        self.bed.forget_gateway()?;
        self.pass(Phase::Refused)?;
        self.bed.stop(false)?;
        self.bed.spawn_gateway()?;
        let started = self.bed.gateway_answers();
        if let Err(error) = &started {
            self.fault("polder_starts_without_services", Phase::Late, error);
            self.bed.forget_gateway()?;
        }
        Ok(started.is_ok())
    }

    /// Goes through the phases behind the start; services that kept the gateway from starting have ended.
    fn run_gateway(&mut self, has_services: bool) -> anyhow::Result<()> {
        if !self.selection.quick {
            if let Err(error) = self.bed.reload() {
                self.fault("polder_reloads", Phase::Reloaded, &error);
            }
            if has_services {
                self.pass(Phase::Reloaded)?;
            }
        }
        self.bed.stop(false)?;
        self.bed.start(true)?;
        self.pass(Phase::Late)?;
        if let Err(error) = self.bed.stop_gateway() {
            self.fault("every_packet_is_accounted_for", Phase::Ended, &error);
        }
        self.pass(Phase::Ended)
    }

    /// Notes a fault of the gateway itself, which is no probe.
    fn fault(&mut self, name: &'static str, phase: Phase, error: &anyhow::Error) {
        let text = format!("{} {}: {error:#}", self.mode.name(), phase.name());
        self.seen.broken.entry(probe_name(self.bed.recipe.name, name)).or_default().push(text);
    }

    /// Asks every probe.
    fn pass(&mut self, phase: Phase) -> anyhow::Result<()> {
        for probe in self.bed.recipe.probes {
            if probe.polder_alone && !phase.has_polder() {
                continue;
            }
            let answer = self.bed.ask(probe, self.patience(probe, phase))?;
            let answer = answer.map_err(|no| format!("{no} {}", self.bed.said()).trim().to_owned());
            if answer.is_err() {
                self.failed.insert(probe.name, ());
            }
            self.answers.push(Answer { probe: probe.name, phase, no: answer.err() });
        }
        Ok(())
    }

    fn patience(&self, probe: &Probe, phase: Phase) -> Duration {
        if phase == Phase::Before {
            FIRST
        } else if self.failed.contains_key(probe.name) {
            KNOWN
        } else {
            SOON
        }
    }

    /// Makes a fault, which every probe has to find that its table names, and mends it, after which each has to work again.
    fn look_for(&mut self, mutant: &Mutant) -> anyhow::Result<()> {
        let name = fault_name(self.bed.recipe.name, mutant.name);
        let probes = self.bed.recipe.probes.iter().filter(|probe| mutant.found_by.contains(&probe.name));
        let mut missed = Vec::new();
        self.bed.shell(mutant.at, mutant.begin)?;
        for probe in probes.clone() {
            if !self.finds_a_fault(probe)? {
                missed.push(format!("not found by {}", probe.name));
            }
        }
        self.bed.shell(mutant.at, mutant.end)?;
        for probe in probes {
            if let Err(no) = self.bed.ask(probe, FIRST)? {
                missed.push(format!("{} after it was mended: {no}", probe.name));
            }
        }
        match missed.is_empty() {
            true => self.seen.verdict.caught.push(name),
            false => self.seen.verdict.missed.push(format!("{name}: {}", missed.join(", "))),
        }
        Ok(())
    }

    /// True if a probe says no and stays with it.
    fn finds_a_fault(&self, probe: &Probe) -> anyhow::Result<bool> {
        let end = clock::now() + NOTICED;
        while self.bed.ask(probe, FAULT)?.is_ok() {
            if clock::now() >= end {
                return Ok(false);
            }
            interrupt::sleep(AGAIN)?;
        }
        Ok(true)
    }
}

/// True if a finding has all the words, which are given.
fn names(finding: &str, words: &[&str]) -> bool {
    !words.is_empty() && words.iter().all(|word| finding.contains(word))
}
