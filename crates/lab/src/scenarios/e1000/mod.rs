//! Polder's driver of Intel 8254x controllers, on those that QEMU emulates.

mod far;
mod forward;
mod idle;
mod judged;
mod service;
mod trial;
mod volume;
mod way;

use super::{Goal, Promise, Run, Scenario};
use crate::report::Better;

const fn checks(name: &'static str, better: Better, goal: f64) -> Promise {
    Promise { name, unit: "checks", better, goal: Goal::Value(goal) }
}

/// The scenario.
pub(super) const SCENARIO: Scenario = Scenario {
    name: "e1000",
    about: "QEMU's e1000 judges Polder's driver, which forwards in a guest beside the kernel's",
    needs_root: true,
    promises: PROMISES,
    measure,
};

/// All rows.
const PROMISES: &[Promise] = &{
    let groups: [&[Promise]; 4] = [&OTHERS, &forward::PROMISES, &service::ECHO, &service::NFS];
    let mut all =
        [OTHERS[0]; OTHERS.len() + forward::PROMISES.len() + service::ECHO.len() + service::NFS.len()];
    let (mut group, mut from, mut at) = (0, 0, 0);
    while at < all.len() {
        if from == groups[group].len() {
            (group, from) = (group + 1, 0);
        }
        all[at] = groups[group][from];
        (from, at) = (from + 1, at + 1);
    }
    all
};

const OTHERS: [Promise; 12] = [
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
    Promise { name: forward::UNACCOUNTED, unit: "packets", better: Better::Lower, goal: Goal::Value(0.0) },
    Promise { name: idle::WAKEUPS, unit: "wake-ups", better: Better::Lower, goal: Goal::Value(0.0) },
];

fn measure(run: &mut Run) -> anyhow::Result<()> {
    judged::with_mutants(run)?;
    volume::measure(run)?;
    let counts = [forward::measure(run)?, service::measure(run)?];
    if let Some(unaccounted) = counts.into_iter().flatten().reduce(|one, other| one + other) {
        let unaccounted = u32::try_from(unaccounted).map_or(f64::MAX, f64::from);
        run.record_one(forward::UNACCOUNTED, unaccounted);
    }
    Ok(())
}
