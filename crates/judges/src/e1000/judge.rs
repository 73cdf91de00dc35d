//! The examination: all checks on both controllers, and one broken driver after the other.

use super::bench::Bench;
use super::checks::CHECKS;
use super::machine::{Chip, GUARD, QEMU};
use super::mutants::{Fault, MUTANTS};
use crate::examination::{Check, Plan, Testbed, Verdict, require};

/// Fails where the examination cannot run.
///
/// # Errors
/// The missing program, and how to get it.
pub fn available() -> anyhow::Result<()> {
    require(&[], &[QEMU, GUARD])
}

impl Testbed for Bench {
    type Fault = Fault;
    const SUBJECT: &'static str = "a driver";

    fn checks(&self) -> Vec<Check<Self>> {
        CHECKS.to_vec()
    }

    /// Each broken driver has an emulator of its own.
    fn set_fault(&mut self, fault: Option<Fault>) -> anyhow::Result<()> {
        if fault.is_some() {
            *self = Self::start(Chip::I82540em, fault)?;
        }
        Ok(())
    }
}

/// Examines the driver, and broken ones.
///
/// # Errors
/// When the examination itself cannot be held; what a driver does wrong is in the verdict.
pub fn examine(says: &dyn Fn(&str)) -> anyhow::Result<Verdict> {
    available()?;
    let chips = [Chip::I82540em, Chip::I82545em];
    let plan = chips.iter().fold(Plan::default(), |plan, chip| plan.checks(chip.name(), CHECKS));
    let mut verdict = Verdict::begin("", plan.faults::<Bench, _>(MUTANTS));
    for chip in chips {
        says(chip.name());
        let mut bench = Bench::start(chip, None)?;
        verdict.hold(chip.name(), CHECKS, &|_| {}, |ask| ask(&mut bench))?;
    }
    let mut bench = Bench::start(Chip::I82540em, None)?;
    verdict.look_for(MUTANTS, &mut bench, says)?;
    Ok(verdict)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_mutants_have_a_check() {
        crate::examination::assert_complete(CHECKS, MUTANTS);
        assert!(MUTANTS.len() >= 8);
    }
}
