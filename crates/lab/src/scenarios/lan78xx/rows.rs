//! The rows of the scenario.

use crate::scenarios::Run;
use polder_testbed::meters::statistics::Samples;

pub(super) const CPU_RATIO: &str = "lan78xx.cpu_per_mbit.on_over_off";
pub(super) const FILL: &str = "lan78xx.tx.urb_fill_percent";
pub(super) const TO_STACK: &str = "lan78xx.coalesce.packets_to_stack.on_over_off";
pub(super) const TO_STACK_LONGER: &str = "lan78xx.coalesce.packets_to_stack.gather_300us_over_off";
pub(super) const A6: [&str; 2] = ["lan78xx.ablation.A6.mbit", "lan78xx.ablation.A6.driver_cpu_ns_per_packet"];
/// Rows of merging for a stack.
pub(super) const MERGING: [&str; 4] = [A6[0], A6[1], TO_STACK, TO_STACK_LONGER];
/// By flent: added latency, losses, goodput.
pub(super) const FLENT: [&str; 3] =
    ["lan78xx.flent.p99_added_ms", "lan78xx.flent.lost_percent", "lan78xx.flent.mbit"];

/// States of a flow: without the techniques, and with them.
pub(super) const BOTH: [&str; 2] = ["off", "on"];

/// Goodput, losses and idle time of a flow, in both states.
pub(super) type Cells = [[Samples; 3]; BOTH.len()];

/// Fills the rows of a flow, as far as there are such: TCP sends again what is lost.
pub(super) fn record(run: &mut Run, flow: &str, cells: &Cells) {
    for (state, cell) in BOTH.into_iter().zip(cells) {
        let rows = ["mbit", "loss_percent", "idle_percent"].map(|what| format!("{flow}.{what}.{state}"));
        let rows = rows.iter().zip(cell);
        for (row, samples) in rows.filter(|(row, _)| !run.rows(row).is_empty()).collect::<Vec<_>>() {
            run.record(row, samples);
        }
    }
}
