//! Polder's driver of Intel 8254x controllers, on those that QEMU emulates.

mod far;
mod forward;
mod idle;
mod judged;
mod volume;

use super::{Goal, Promise, Run, Scenario};
use crate::report::Better;

const fn checks(name: &'static str, better: Better, goal: f64) -> Promise {
    Promise { name, unit: "checks", better, goal: Goal::Value(goal) }
}

const fn rate(name: &'static str) -> Promise {
    Promise { name, unit: "kpps", better: Better::Higher, goal: Goal::None }
}

/// The scenario.
pub(super) const SCENARIO: Scenario = Scenario {
    name: "e1000",
    about: "QEMU's e1000 judges Polder's driver, which forwards in a guest beside the kernel's",
    needs_root: true,
    promises: &[
        checks(judged::QTEST_PASSED, Better::Higher, 28.0),
        checks(judged::QTEST_FAILED, Better::Lower, 0.0),
        checks(judged::GUEST_PASSED, Better::Higher, 12.0),
        checks(judged::GUEST_FAILED, Better::Lower, 0.0),
        checks(judged::KERNEL_PASSED, Better::Higher, 12.0),
        checks(judged::KERNEL_FAILED, Better::Lower, 0.0),
        checks(judged::MUTANTS_CAUGHT, Better::Higher, 8.0),
        Promise { name: volume::LOST, unit: "frames", better: Better::Lower, goal: Goal::Value(0.0) },
        Promise { name: volume::ONE, unit: "µs", better: Better::Lower, goal: Goal::None },
        Promise { name: volume::MANY, unit: "µs", better: Better::Lower, goal: Goal::None },
        rate(forward::RATE_POLDER),
        rate(forward::RATE_KERNEL),
        Promise { name: forward::RATIO, unit: "ratio", better: Better::Higher, goal: Goal::Value(1.5) },
        Promise {
            name: forward::UNACCOUNTED,
            unit: "packets",
            better: Better::Lower,
            goal: Goal::Value(0.0),
        },
        Promise { name: idle::WAKEUPS, unit: "wake-ups", better: Better::Lower, goal: Goal::Value(0.0) },
    ],
    measure,
};

fn measure(run: &mut Run) -> anyhow::Result<()> {
    judged::with_mutants(run)?;
    judged::in_a_guest(run)?;
    volume::measure(run)?;
    forward::measure(run)
}
