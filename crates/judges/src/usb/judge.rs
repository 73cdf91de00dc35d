//! The examination: all checks on both gadgets, and one broken driver after the other.

use super::checks;
use super::mutants::{ECM, Fault, NCM};
use super::testbed::{self, Testbed};
use crate::examination::{self, Check, Need, Plan, Verdict, require};
use anyhow::bail;
use polder_devices::cdc::Subclass;
use polder_testbed::guest::{Guest, Kernel};
use std::path::Path;

/// Fails where the examination cannot run.
///
/// # Errors
/// The missing program, kernel or module, and how to get it.
pub fn available() -> anyhow::Result<Kernel> {
    let kernel = Guest::available()?;
    kernel.with_dependencies(testbed::MODULES)?;
    require(&[Need::Polder], &["ping"])?;
    Ok(kernel)
}

/// Check with a gateway in place of the driver alone.
const GATEWAY: &str = "a gateway on usbfs: forwards";

/// Number of examinations in which the judge may fall over, the last of which is an error.
const ATTEMPTS: usize = 3;

/// Examines the driver on gadgets of that subclass, and broken drivers. `program` is `polder-lab`.
///
/// `usbip-host` of Linux 6.1 now and then uses a device that is gone, when a broken driver goes in the middle of a
/// transfer. Then it is examined once more.
///
/// # Errors
/// When the examination itself cannot be held; what a driver does wrong is in the verdict.
pub fn examine(program: &Path, subclass: Subclass, says: &dyn Fn(&str)) -> anyhow::Result<Verdict> {
    for _ in 0..ATTEMPTS {
        if let Some(verdict) = examine_once(program, subclass, says)? {
            return Ok(verdict);
        }
        says("the guest's kernel has crashed: once more");
    }
    bail!("the guest's kernel has crashed {ATTEMPTS} times")
}

/// `None` if the guest's kernel has crashed.
fn examine_once(program: &Path, subclass: Subclass, says: &dyn Fn(&str)) -> anyhow::Result<Option<Verdict>> {
    let kernel = available()?;
    let mutants = if subclass == Subclass::Ncm { NCM } else { ECM };
    let gateway = (subclass == Subclass::Ncm).then_some(GATEWAY);
    let plan = Plan::default().checks(subclass.name(), &checks::of(subclass)).named(gateway);
    let mut verdict = Verdict::begin(kernel.version(), plan.faults::<Testbed, _>(mutants));
    says(&format!("starting the guest with a gadget of {}", subclass.name()));
    let mut bed = testbed::boot(&kernel, program, subclass)?;
    verdict.ended("start of the guest");
    verdict.hold(subclass.name(), &checks::of(subclass), says, |ask| ask(&mut bed))?;
    verdict.look_for(mutants, &mut bed, says)?;
    if bed.guest.has_crashed() {
        return Ok(None);
    }
    bed.power_off()?;
    if let Some(name) = gateway {
        says("a gateway in the guest, on usbfs");
        verdict.check(name, || super::forwards::examine(&kernel, program))?;
    }
    Ok(Some(verdict))
}

impl examination::Testbed for Testbed {
    type Fault = Fault;
    const SUBJECT: &'static str = "a driver";

    fn checks(&self) -> Vec<Check<Self>> {
        checks::of(self.subject.subclass)
    }

    fn set_fault(&mut self, fault: Option<Fault>) -> anyhow::Result<()> {
        self.fault = fault;
        self.close();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_mutants_have_a_check() {
        for (subclass, mutants) in [(Subclass::Ncm, NCM), (Subclass::Ecm, ECM)] {
            examination::assert_complete(&checks::of(subclass), mutants);
            assert!(checks::of(subclass).len() >= 20);
        }
    }
}
