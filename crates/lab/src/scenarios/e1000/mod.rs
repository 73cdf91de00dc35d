//! Polder's driver of Intel 8254x controllers, on those that QEMU emulates.

mod judged;

use super::{Goal, Promise, Run, Scenario};
use crate::report::Better;

const fn checks(name: &'static str, better: Better, goal: f64) -> Promise {
    Promise { name, unit: "checks", better, goal: Goal::Value(goal) }
}

/// The scenario.
pub(super) const SCENARIO: Scenario = Scenario {
    name: "e1000",
    about: "QEMU's e1000 judges Polder's driver, without a guest and in one",
    needs_root: true,
    promises: &[
        checks(judged::QTEST_PASSED, Better::Higher, 28.0),
        checks(judged::QTEST_FAILED, Better::Lower, 0.0),
        checks(judged::GUEST_PASSED, Better::Higher, 12.0),
        checks(judged::GUEST_FAILED, Better::Lower, 0.0),
        checks(judged::MUTANTS_CAUGHT, Better::Higher, 8.0),
    ],
    measure,
};

fn measure(run: &mut Run) -> anyhow::Result<()> {
    judged::by_qtest(run)?;
    judged::in_a_guest(run)
}
