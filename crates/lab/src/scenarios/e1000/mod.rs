//! Polder's driver of Intel 8254x controllers, on controllers that QEMU emulates.

mod far;
mod forward;
mod idle;
mod judged;
mod service;
mod trial;
mod volume;
mod way;

use super::{Run, Scenario};

/// The scenario.
pub(super) const SCENARIO: Scenario = Scenario {
    name: "e1000",
    about: "QEMU's e1000 judges Polder's driver, which forwards in a guest beside the kernel's",
    needs_root: true,
    rows: include_str!("../rows/e1000.rows"),
    measure,
};

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
