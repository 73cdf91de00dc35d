//! The examination: all checks on both gadgets, and one broken driver after the other.

use super::checks::{self, Check};
use super::mutants::{MUTANTS, Mutant};
use super::testbed::Testbed;
use crate::guest::{Guest, Kernel};
use crate::{clock, interrupt};
use anyhow::Context as _;
use polder_devices::cdc::Subclass;
use std::path::Path;
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
    /// The guest's kernel.
    pub kernel: String,
}

/// Fails where the examination cannot run.
///
/// # Errors
/// The missing program, kernel or module, and how to get it.
pub fn available() -> anyhow::Result<Kernel> {
    let kernel = Guest::available()?;
    kernel.with_dependencies(super::testbed::MODULES)?;
    Ok(kernel)
}

/// Examines the driver on gadgets of that subclass, and broken drivers. `program` is `polder-lab`.
///
/// # Errors
/// When the examination itself cannot be held; what a driver does wrong is in the verdict.
pub fn examine(program: &Path, subclass: Subclass, says: &dyn Fn(&str)) -> anyhow::Result<Judgement> {
    let kernel = available()?;
    says(&format!("starting the guest with a gadget of {}", subclass.name()));
    let mut bed = Testbed::boot(&kernel, program, subclass)?;
    let mut verdict = Judgement { kernel: kernel.version().to_owned(), ..Judgement::default() };
    for (name, examine) in checks::of(subclass) {
        says(name);
        let start = clock::now();
        let result = examine(&mut bed);
        interrupt::check()?;
        let name = format!("{}: {name}", subclass.name());
        verdict.took.push((name.clone(), clock::now() - start));
        match result {
            Ok(()) => verdict.passed.push(name),
            Err(error) => verdict.failed.push(format!("{name}: {error:#}")),
        }
    }
    for mutant in MUTANTS.iter().filter(|mutant| mutant.subclass == subclass) {
        says(mutant.name);
        let start = clock::now();
        look_for(mutant, &mut bed, &mut verdict)?;
        interrupt::check()?;
        verdict.took.push((mutant.name.to_owned(), clock::now() - start));
    }
    bed.power_off()?;
    Ok(verdict)
}

/// Gives a broken driver the check that has to find it.
fn look_for(mutant: &Mutant, bed: &mut Testbed, verdict: &mut Judgement) -> anyhow::Result<()> {
    let (name, examine) = check(mutant)?;
    bed.close();
    bed.fault = Some(mutant.fault);
    let result = examine(bed);
    bed.fault = None;
    bed.close();
    match result {
        Ok(()) => verdict.missed.push(mutant.name.to_owned()),
        Err(error) => verdict.caught.push(format!("a driver that {}: {name}: {error:#}", mutant.name)),
    }
    Ok(())
}

fn check(mutant: &Mutant) -> anyhow::Result<Check> {
    let check = checks::of(mutant.subclass).into_iter().find(|(name, _)| *name == mutant.check);
    check.with_context(|| format!("there is no check `{}`", mutant.check))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_unique_and_mutants_have_a_check() {
        for subclass in [Subclass::Ncm, Subclass::Ecm] {
            let checks = checks::of(subclass);
            let names: BTreeSet<_> = checks.iter().map(|(name, _)| name).collect();
            assert_eq!(names.len(), checks.len());
            assert!(names.len() >= 20);
        }
        assert!(MUTANTS.iter().all(|mutant| check(mutant).is_ok()));
        let names: BTreeSet<_> = MUTANTS.iter().map(|mutant| (mutant.subclass, mutant.name)).collect();
        assert_eq!(names.len(), MUTANTS.len());
    }
}
