//! The examination: all checks on both controllers, and one broken driver after the other.

use super::bench::Bench;
use super::checks::{CHECKS, Check};
use super::machine::{Chip, GUARD, QEMU};
use super::mutants::{MUTANTS, Mutant};
use anyhow::{Context as _, ensure};
use polder_testbed::{clock, command, interrupt};
use std::time::Duration;

/// Result of the examination.
#[derive(Clone, Debug, Default)]
pub struct Judgement {
    /// Checks that the driver passed.
    pub passed: Vec<String>,
    /// Checks that it did not, and why.
    pub failed: Vec<String>,
    /// Broken drivers that were found out, and the check that did.
    pub caught: Vec<String>,
    /// Broken drivers that passed for honest ones.
    pub missed: Vec<String>,
    /// Duration of each part.
    pub took: Vec<(String, Duration)>,
}

impl Judgement {
    /// Holds a check of its own.
    pub(super) fn hold(
        &mut self,
        name: &str,
        examine: impl FnOnce() -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let start = clock::now();
        let result = examine();
        interrupt::check()?;
        self.took.push((name.to_owned(), clock::now() - start));
        match result {
            Ok(()) => self.passed.push(name.to_owned()),
            Err(error) => self.failed.push(format!("{name}: {error:#}")),
        }
        Ok(())
    }
}

/// Fails where the examination cannot run.
///
/// # Errors
/// The missing program, and how to get it.
pub fn available() -> anyhow::Result<()> {
    for program in [QEMU, GUARD] {
        ensure!(command::exists(program), "{}", command::remedy(program));
    }
    Ok(())
}

/// Examines the driver, and broken ones.
///
/// # Errors
/// When the examination itself cannot be held; what a driver does wrong is in the verdict.
pub fn examine() -> anyhow::Result<Judgement> {
    available()?;
    let mut verdict = Judgement::default();
    for chip in [Chip::I82540em, Chip::I82545em] {
        let mut bench = Bench::start(chip, None)?;
        for Check { name, examine } in CHECKS {
            verdict.hold(&format!("{}: {name}", chip.name()), || examine(&mut bench))?;
        }
    }
    for mutant in MUTANTS {
        let start = clock::now();
        look_for(mutant, &mut verdict)?;
        interrupt::check()?;
        verdict.took.push((mutant.name.to_owned(), clock::now() - start));
    }
    Ok(verdict)
}

/// Gives a broken driver the check that has to find it.
fn look_for(mutant: &Mutant, verdict: &mut Judgement) -> anyhow::Result<()> {
    let check = CHECKS.iter().find(|check| check.name == mutant.check);
    let check = check.with_context(|| format!("there is no check `{}`", mutant.check))?;
    let mut bench = Bench::start(Chip::I82540em, Some(mutant.fault))?;
    match (check.examine)(&mut bench) {
        Ok(()) => verdict.missed.push(mutant.name.to_owned()),
        Err(error) => {
            verdict.caught.push(format!("a driver that {}: {}: {error:#}", mutant.name, check.name))
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_unique_and_mutants_have_a_check() {
        let names: BTreeSet<_> = CHECKS.iter().map(|check| check.name).collect();
        assert_eq!(names.len(), CHECKS.len());
        let mutants: BTreeSet<_> = MUTANTS.iter().map(|mutant| mutant.name).collect();
        assert_eq!(mutants.len(), MUTANTS.len());
        assert!(MUTANTS.iter().all(|mutant| names.contains(mutant.check)) && MUTANTS.len() >= 8);
    }
}
