//! The examination: all checks on both gadgets, and one broken driver after the other.

use super::checks::{self, Check};
use super::mutants::{MUTANTS, Mutant};
use super::testbed::Testbed;
use super::verdict::Judgement;
use anyhow::{Context as _, bail, ensure};
use polder_devices::cdc::Subclass;
use polder_testbed::command;
use polder_testbed::guest::{Guest, Kernel};
use polder_testbed::peers::polder;
use std::path::Path;

/// Fails where the examination cannot run.
///
/// # Errors
/// The missing program, kernel or module, and how to get it.
pub fn available() -> anyhow::Result<Kernel> {
    let kernel = Guest::available()?;
    kernel.with_dependencies(super::testbed::MODULES)?;
    ensure!(command::exists("ping"), "{}", command::remedy("ping"));
    polder::program()?;
    Ok(kernel)
}

/// Number of examinations in which the judge may fall over, the last of which is an error.
const ATTEMPTS: usize = 3;

/// Examines the driver on gadgets of that subclass, and broken drivers. `program` is `polder-lab`.
///
/// `usbip-host` of Linux 6.1 now and then uses a device that is gone, when a broken driver goes in the middle of a
/// transfer. Then it is examined once more.
///
/// # Errors
/// When the examination itself cannot be held; what a driver does wrong is in the verdict.
pub fn examine(program: &Path, subclass: Subclass, says: &dyn Fn(&str)) -> anyhow::Result<Judgement> {
    for _ in 0..ATTEMPTS {
        if let Some(verdict) = examine_once(program, subclass, says)? {
            return Ok(verdict);
        }
        says("the guest's kernel has crashed: once more");
    }
    bail!("the guest's kernel has crashed {ATTEMPTS} times")
}

/// `None` if the guest's kernel has crashed.
fn examine_once(
    program: &Path,
    subclass: Subclass,
    says: &dyn Fn(&str),
) -> anyhow::Result<Option<Judgement>> {
    let kernel = available()?;
    says(&format!("starting the guest with a gadget of {}", subclass.name()));
    let mut bed = Testbed::boot(&kernel, program, subclass)?;
    let mut verdict = Judgement { kernel: kernel.version().to_owned(), ..Judgement::default() };
    verdict.hold(subclass.name(), &checks::of(subclass), &mut bed, says)?;
    for mutant in MUTANTS.iter().filter(|mutant| mutant.subclass == subclass) {
        says(mutant.name);
        bed.close();
        bed.fault = Some(mutant.fault);
        verdict.look_for(&format!("a driver that {}", mutant.name), check(mutant)?, &mut bed)?;
        bed.fault = None;
        bed.close();
    }
    if bed.guest.has_crashed() {
        return Ok(None);
    }
    bed.power_off()?;
    if subclass == Subclass::Ncm {
        says("a gateway in the guest, on usbfs");
        verdict.hold("a gateway on usbfs", &[("forwards", forwarding)], &mut (&kernel, program), says)?;
    }
    Ok(Some(verdict))
}

fn forwarding((kernel, program): &mut (&Kernel, &Path)) -> anyhow::Result<()> {
    super::forwards::examine(kernel, program)
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
