//! The kernel's own drivers `cdc_ncm` and `cdc_ether` as judges of our model of a CDC network function.
//!
//! ```text
//!  this process                                  the guest
//!  checks ── model ── USB/IP ── TCP ── vhci_hcd ── cdc_ncm or cdc_ether ── its interface
//! ```
//!
//! A broken model must fail where an honest one passes.

mod checks;
mod testbed;

use crate::examination::{self, Check, Mutant, Plan, Verdict};
use polder_devices::cdc::Subclass;
use polder_devices::cdc::model::FaultyDevice;
use polder_testbed::guest::{Guest, Kernel};
use std::path::Path;
use testbed::{Function, Testbed};

/// Broken functions of NCM.
const NCM: &[Mutant<FaultyDevice>] = &[
    Mutant("signs blocks wrongly", "one echo", FaultyDevice::Signature),
    Mutant("puts the table elsewhere", "one echo", FaultyDevice::TablePlace),
    Mutant("signs tables wrongly", "one echo", FaultyDevice::TableSignature),
    Mutant("gives a wrong length of a frame", "one echo", FaultyDevice::ShortDatagram),
    Mutant("gives a wrong place of a frame", "one echo", FaultyDevice::LateDatagram),
    Mutant("changes a byte of a frame", "one echo", FaultyDevice::ChangedByte),
    Mutant("changes a byte of a frame that was sent", "one echo", FaultyDevice::ChangedFrames),
    Mutant("loses blocks", "volume", FaultyDevice::LostTransfers),
    Mutant("has another address", "address", FaultyDevice::OtherAddress),
    Mutant("says that there is no link", "link", FaultyDevice::NoConnection),
    Mutant("says half of the speed", "speed", FaultyDevice::HalfSpeed),
];

/// Broken functions of ECM.
const ECM: &[Mutant<FaultyDevice>] = &[
    Mutant("cuts frames", "one echo", FaultyDevice::CutTransfers),
    Mutant("changes a byte of a frame", "one echo", FaultyDevice::ChangedByte),
    Mutant("changes a byte of a frame that was sent", "one echo", FaultyDevice::ChangedFrames),
    Mutant("loses frames", "volume", FaultyDevice::LostTransfers),
    Mutant("has another address", "address", FaultyDevice::OtherAddress),
    Mutant("says that there is no link", "link", FaultyDevice::NoConnection),
    Mutant("says half of the speed", "speed", FaultyDevice::HalfSpeed),
];

/// Fails where the examination cannot run.
///
/// # Errors
/// The missing program, kernel or module, and how to get it.
pub fn available() -> anyhow::Result<Kernel> {
    let kernel = Guest::available()?;
    kernel.with_dependencies(testbed::MODULES)?;
    Ok(kernel)
}

/// Name of the driver of a subclass.
pub fn driver(subclass: Subclass) -> &'static str {
    match subclass {
        Subclass::Ncm => "cdc_ncm",
        Subclass::Ecm => "cdc_ether",
        Subclass::Mbim => "cdc_mbim",
    }
}

impl examination::Testbed for Testbed {
    type Fault = FaultyDevice;
    const SUBJECT: &'static str = "a function";

    fn checks(&self) -> Vec<Check<Self>> {
        checks::of(self.subject.subclass)
    }

    fn set_fault(&mut self, fault: Option<FaultyDevice>) -> anyhow::Result<()> {
        self.fault = fault;
        self.unplug()
    }
}

/// Examines honest and broken models of that subclass. `program` is `polder-lab`.
///
/// # Errors
/// When the examination itself cannot be held; what a model does wrong is in the verdict.
pub fn examine(program: &Path, subclass: Subclass, says: &dyn Fn(&str)) -> anyhow::Result<Verdict> {
    let kernel = available()?;
    let mutants = if subclass == Subclass::Ncm { NCM } else { ECM };
    let plan = Plan::default().checks(driver(subclass), &checks::of(subclass)).faults::<Testbed, _>(mutants);
    let mut verdict = Verdict::begin(kernel.version(), plan);
    says(&format!("starting the guest with {}", driver(subclass)));
    let mut bed = Testbed::boot(&kernel, program, testbed::MODULES, Function { subclass })?;
    let _ = bed.guest.log()?;
    verdict.ended("start of the guest");
    verdict.hold(driver(subclass), &checks::of(subclass), says, |ask| ask(&mut bed))?;
    verdict.look_for(mutants, &mut bed, says)?;
    bed.power_off()?;
    Ok(verdict)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_mutants_have_a_check() {
        for (subclass, mutants) in [(Subclass::Ncm, NCM), (Subclass::Ecm, ECM)] {
            examination::assert_complete(&checks::of(subclass), mutants);
            assert!(checks::of(subclass).len() >= 20 && mutants.len() >= 6);
        }
    }
}
