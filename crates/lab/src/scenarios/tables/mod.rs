//! `tables`: each technique of the five sources on and off, in the case that it is for, and what the rows say of it.

mod rows;
pub(super) mod verdict;

use super::{Run, Scenario, buffers, gateway, lan78xx, overload};
use crate::report::Report;

/// The scenario.
pub(super) const SCENARIO: Scenario = Scenario {
    name: "tables",
    about: "each technique of the five sources on and off in turn, ten rounds, with a planted loss, and verdicts",
    needs_root: true,
    rows: include_str!("../rows/tables.rows"),
    measure,
};

fn measure(run: &mut Run) -> anyhow::Result<()> {
    lan78xx::switched::measure(run)?;
    overload::switched::measure(run)?;
    buffers::switched::measure(run)?;
    gateway::switched::measure(run)
}

/// Fills the rows of verdicts from all others.
pub(super) fn conclude(report: &mut Report) {
    verdict::conclude(report, &rows::COUNTED);
}
