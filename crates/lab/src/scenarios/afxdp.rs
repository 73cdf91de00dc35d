//! `afxdp`: from one interface to another, beside testpmd and the kernel.

use super::{Run, Scenario, comparison};

/// The scenario.
pub(super) const SCENARIO: Scenario = Scenario {
    name: "afxdp",
    about: "from one veth to another over AF_XDP: CPU time of a packet, beside testpmd and the kernel",
    needs_root: true,
    rows: include_str!("rows/afxdp.rows"),
    measure,
};

const UNACCOUNTED: &str = "afxdp.unaccounted_packets";

fn measure(run: &mut Run) -> anyhow::Result<()> {
    let books = comparison::hold_all(run)?;
    run.record_count(UNACCOUNTED, books.unaccounted);
    Ok(())
}
