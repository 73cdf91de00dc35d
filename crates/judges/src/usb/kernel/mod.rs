//! The kernel's own drivers `cdc_ncm` and `cdc_ether` as judges of our model of a CDC network function.
//!
//! ```text
//!  this process                                  the guest
//!  checks ── model ── USB/IP ── TCP ── vhci_hcd ── cdc_ncm or cdc_ether ── its interface
//! ```
//!
//! A broken model must fail where an honest one passes.

mod checks;
mod mutants;
mod testbed;

use super::verdict::Judgement;
use anyhow::Context as _;
use mutants::{MUTANTS, Mutant};
use polder_devices::cdc::Subclass;
use polder_testbed::guest::{Guest, Kernel};
use std::path::Path;
use testbed::Testbed;

/// Fails where the examination cannot run.
///
/// # Errors
/// The missing program, kernel or module, and how to get it.
pub fn available() -> anyhow::Result<Kernel> {
    let kernel = Guest::available()?;
    kernel.with_dependencies(testbed::MODULES)?;
    Ok(kernel)
}

/// The driver of a subclass.
pub fn driver(subclass: Subclass) -> &'static str {
    match subclass {
        Subclass::Ncm => "cdc_ncm",
        Subclass::Ecm => "cdc_ether",
        Subclass::Mbim => "cdc_mbim",
    }
}

/// Examines honest and broken models of that subclass. `program` is `polder-lab`.
///
/// # Errors
/// When the examination itself cannot be held; what a model does wrong is in the verdict.
pub fn examine(program: &Path, subclass: Subclass, says: &dyn Fn(&str)) -> anyhow::Result<Judgement> {
    let kernel = available()?;
    says(&format!("starting the guest with {}", driver(subclass)));
    let mut bed = Testbed::boot(&kernel, program, subclass)?;
    let mut verdict = Judgement { kernel: kernel.version().to_owned(), ..Judgement::default() };
    verdict.hold(driver(subclass), &checks::of(subclass), &mut bed, says)?;
    for mutant in MUTANTS.iter().filter(|mutant| mutant.subclass == subclass) {
        says(mutant.name);
        bed.unplug()?;
        bed.faulty = Some(mutant.fault);
        verdict.look_for(&format!("a function that {}", mutant.name), check(mutant)?, &mut bed)?;
        bed.faulty = None;
        bed.unplug()?;
    }
    bed.power_off()?;
    Ok(verdict)
}

fn check(mutant: &Mutant) -> anyhow::Result<checks::Check> {
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
            assert!(MUTANTS.iter().filter(|mutant| mutant.subclass == subclass).count() >= 6);
        }
        assert!(MUTANTS.iter().all(|mutant| check(mutant).is_ok()));
    }
}
