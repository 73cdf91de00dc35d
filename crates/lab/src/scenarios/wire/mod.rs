//! `wire`: interfaces as the kernel makes them, with all offloads. What applications get through Polder with its
//! defaults, beside the kernel's own bridge and tunnel and a bare redirect.
//!
//! All forwarders of a part are up at the same time, each in namespaces of its own, and take turns. Nothing is pinned,
//! and nothing is set: threads are where the kernel's scheduler puts them.

mod bridges;
mod controls;
mod hot;
mod moves;
mod overload;
mod tunnels;

use super::{Run, Scenario, comparison};

/// The scenario.
pub(super) const SCENARIO: Scenario = Scenario {
    name: "wire",
    about: "veths with all offloads and Polder's defaults: TCP, ping and CPU time of a packet beside the kernel",
    needs_root: true,
    rows: include_str!("../rows/wire.rows"),
    measure,
};

const UNACCOUNTED: &str = "wire.unaccounted_packets";

fn measure(run: &mut Run) -> anyhow::Result<()> {
    run.place(
        "polder, stations and the kernel's work for packets",
        "any",
        "as the kernel's scheduler puts them",
    );
    let unaccounted = bridges::measure(run)?
        + tunnels::measure(run)?
        + overload::measure(run)?
        + moves::measure(run)?
        + comparison::hold_all(run)?.unaccounted;
    hot::measure(run)?;
    run.record_count(UNACCOUNTED, unaccounted);
    Ok(())
}
