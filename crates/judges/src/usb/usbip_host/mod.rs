//! Linux's own `usbip-host` as judge of our driver for LAN78xx and of its transport.
//!
//! ```text
//!  this process                                       the guest
//!  checks ── driver ── USB/IP ── forwarded ── usbip-host ── vhci_hcd ──┐
//!     └───── model ─── USB/IP server ─────────────────────── TCP ──────┘
//! ```
//!
//! Linux has no gadget that is a LAN78xx. So the guest's virtual host has the model, and its `usbip-host` exports
//! that: every URB of the driver passes the kernel's checks of submission, and every frame is compared at the other
//! end. A broken driver must fail where an honest one passes.

mod checks;
mod testbed;

use super::mutants::{Fault, LAN78XX};
use crate::examination::{self, Check, Plan, Verdict};
use checks::CHECKS;
use polder_testbed::guest::{Guest, Kernel};
use std::path::Path;
use testbed::Testbed;

/// Subject of the checks.
const SUBJECT: &str = "LAN78xx";

/// Fails where the examination cannot run.
///
/// # Errors
/// The missing program, kernel or module, and how to get it.
pub fn available() -> anyhow::Result<Kernel> {
    let kernel = Guest::available()?;
    kernel.with_dependencies(testbed::MODULES)?;
    Ok(kernel)
}

impl examination::Testbed for Testbed {
    type Fault = Fault;
    const SUBJECT: &'static str = "a driver";

    fn checks(&self) -> Vec<Check<Self>> {
        CHECKS.to_vec()
    }

    /// A fresh adapter for each: the state that one driver left is none of the next one's.
    fn set_fault(&mut self, fault: Option<Fault>) -> anyhow::Result<()> {
        if fault.is_some() {
            self.unplug()?;
        }
        self.fault = fault;
        Ok(())
    }
}

/// Examines the driver, and broken ones. `program` is `polder-lab`.
///
/// # Errors
/// When the examination itself cannot be held; what a driver does wrong is in the verdict.
pub fn examine(program: &Path, says: &dyn Fn(&str)) -> anyhow::Result<Verdict> {
    let kernel = available()?;
    let plan = Plan::default().checks(SUBJECT, CHECKS).faults::<Testbed, _>(LAN78XX);
    let mut verdict = Verdict::begin(kernel.version(), plan);
    says("starting the guest with usbip-host");
    let mut bed = testbed::boot(&kernel, program)?;
    verdict.ended("start of the guest");
    verdict.hold(SUBJECT, CHECKS, says, |ask| ask(&mut bed))?;
    verdict.look_for(LAN78XX, &mut bed, says)?;
    bed.power_off()?;
    Ok(verdict)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_mutants_have_a_check() {
        examination::assert_complete(CHECKS, LAN78XX);
        assert!(CHECKS.len() >= 20 && LAN78XX.len() >= 6);
    }
}
