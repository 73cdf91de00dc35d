//! Checks of the driver by QEMU's test protocol, of a gateway in a guest, and of the model by the kernel's driver; and
//! of what has a fault, by the same judges.

use super::super::judges::{Judge, record, record_faults};
use super::Run;
use polder_judges::e1000;

pub(super) const QTEST_PASSED: &str = "e1000.qtest.checks_passed";
pub(super) const QTEST_FAILED: &str = "e1000.qtest.checks_failed";
pub(super) const GUEST_PASSED: &str = "e1000.guest.checks_passed";
pub(super) const GUEST_FAILED: &str = "e1000.guest.checks_failed";
pub(super) const KERNEL_PASSED: &str = "e1000.kernel_driver.checks_passed";
pub(super) const KERNEL_FAILED: &str = "e1000.kernel_driver.checks_failed";
pub(super) const MUTANTS_CAUGHT: &str = "e1000.mutants_caught";

/// The judges. The first says why no fault was looked for, where it cannot run.
const JUDGES: [Judge; 3] = [
    Judge {
        rows: [QTEST_PASSED, QTEST_FAILED, MUTANTS_CAUGHT],
        places: &[("the driver", "thread of this process")],
        available: e1000::available,
        examine: |_, says| e1000::examine(says),
    },
    Judge {
        rows: [KERNEL_PASSED, KERNEL_FAILED, MUTANTS_CAUGHT],
        places: &[("the model", "thread of this process")],
        available: || e1000::kernel_available().map(drop),
        examine: e1000::examine_model,
    },
    Judge {
        rows: [GUEST_PASSED, GUEST_FAILED, MUTANTS_CAUGHT],
        places: &[("the guest", "one emulated processor")],
        available: || e1000::guest_available().map(drop),
        examine: e1000::examine_in_guest,
    },
];

/// Examines the driver, the model and a gateway, and mutants of all three.
pub(super) fn with_mutants(run: &mut Run) -> anyhow::Result<()> {
    let mut verdicts = Vec::new();
    for (number, judge) in JUDGES.iter().enumerate() {
        let skipped = if number == 0 { judge.rows.as_slice() } else { &judge.rows[..2] };
        if let Some(verdict) = judge.verdict(run, skipped)? {
            record(run, judge.rows[0], judge.rows[1], &verdict);
            verdicts.push(verdict);
        }
    }
    verdicts.retain(|verdict| !verdict.caught.is_empty());
    if !verdicts.is_empty() && run.wants(MUTANTS_CAUGHT) {
        record_faults(run, MUTANTS_CAUGHT, &verdicts);
    }
    Ok(())
}
