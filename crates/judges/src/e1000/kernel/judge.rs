//! The examination: all checks on the model, then one deviation of it after the other.

use super::checks::{self, CHECKS};
use super::testbed::{Setup, Testbed};
use crate::examination::{self, Check, Mutant, Plan, Verdict};
use polder_devices::e1000::model::Mutant as Deviation;
use std::path::Path;

/// Deviations of the model, and the check that has to find each; the last one leaves no interface.
const DEVIATIONS: &[Mutant<Deviation>] = &[
    Mutant("changes a byte of received frames", checks::SIZES, Deviation::ChangesByte),
    Mutant("reports wrong checksums as right", checks::CHECKSUMS_IN, Deviation::PassesChecksums),
    Mutant("receives all frames", checks::FILTER, Deviation::AcceptsAll),
    Mutant("leaves tags out", checks::TAGS, Deviation::LeavesTagOut),
    Mutant("leaves checksums as they are", checks::CHECKSUMS_OUT, Deviation::LeavesChecksum),
    Mutant("cuts segments of one sequence number", checks::SEGMENTS, Deviation::KeepsSequence),
    Mutant("counts bytes without the FCS", checks::STATISTICS, Deviation::CountsShort),
    Mutant("counts no missed frames", checks::OVERRUN, Deviation::ForgetsMissed),
    Mutant("throttles nothing", checks::THROTTLE, Deviation::IgnoresThrottle),
    Mutant("hides changes of the link", checks::LINK, Deviation::HidesLink),
    Mutant("swaps the bytes of the EEPROM", checks::BINDS, Deviation::SwapsEeprom),
];

impl examination::Testbed for Testbed {
    type Fault = Deviation;
    const SUBJECT: &'static str = "a model";

    fn checks(&self) -> Vec<Check<Self>> {
        CHECKS.to_vec()
    }

    fn set_fault(&mut self, fault: Option<Deviation>) -> anyhow::Result<()> {
        self.nic.mutate(fault);
        self.check()
    }
}

/// Lets the kernel's driver examine our model, in a guest. `program` is `polder-lab`.
///
/// # Errors
/// When the examination itself cannot be held; what the model does wrong is in the verdict.
pub fn examine_model(program: &Path, says: &dyn Fn(&str)) -> anyhow::Result<Verdict> {
    let mut verdict = Verdict::begin("", Plan::default().checks("", CHECKS).faults::<Testbed, _>(DEVIATIONS));
    says("starting the guest whose e1000 is the model");
    let mut bed = Testbed::boot(program, &Setup::of_the_kernel())?;
    verdict.ended("start of the guest");
    verdict.hold("", CHECKS, says, |ask| {
        let result = ask(&mut bed);
        bed.check()?;
        result
    })?;
    if verdict.failed.is_empty() {
        verdict.look_for(DEVIATIONS, &mut bed, says)?;
    }
    bed.power_off()?;
    Ok(verdict)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_deviations_have_a_check() {
        examination::assert_complete(CHECKS, DEVIATIONS);
    }
}
