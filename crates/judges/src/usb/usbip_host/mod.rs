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
mod mutants;
mod testbed;

use super::verdict::Judgement;
use anyhow::Context as _;
use checks::{CHECKS, Check};
use mutants::MUTANTS;
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

/// Examines the driver, and broken ones. `program` is `polder-lab`.
///
/// # Errors
/// When the examination itself cannot be held; what a driver does wrong is in the verdict.
pub fn examine(program: &Path, says: &dyn Fn(&str)) -> anyhow::Result<Judgement> {
    let kernel = available()?;
    says("starting the guest with usbip-host");
    let mut bed = Testbed::boot(&kernel, program)?;
    let mut verdict = Judgement { kernel: kernel.version().to_owned(), ..Judgement::default() };
    verdict.hold("LAN78xx", CHECKS, &mut bed, says)?;
    for &(name, wanted, fault) in MUTANTS {
        says(name);
        // A fresh adapter for each: what one driver did is nothing to the next.
        bed.unplug()?;
        bed.fault = Some(fault);
        verdict.look_for(&format!("a driver that {name}"), check(wanted)?, &mut bed)?;
        bed.fault = None;
    }
    bed.power_off()?;
    Ok(verdict)
}

fn check(wanted: &str) -> anyhow::Result<Check> {
    let check = CHECKS.iter().find(|(name, _)| *name == wanted).copied();
    check.with_context(|| format!("there is no check `{wanted}`"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_unique_and_mutants_have_a_check() {
        let names: BTreeSet<_> = CHECKS.iter().map(|(name, _)| name).collect();
        assert!(names.len() == CHECKS.len() && names.len() >= 20);
        let mutants: BTreeSet<_> = MUTANTS.iter().map(|(name, ..)| name).collect();
        assert!(mutants.len() == MUTANTS.len() && mutants.len() >= 6);
        assert!(MUTANTS.iter().all(|(_, wanted, _)| check(wanted).is_ok()));
    }
}
