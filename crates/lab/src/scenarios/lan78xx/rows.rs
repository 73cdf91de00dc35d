//! The rows of the scenario.

pub(super) const CPU_RATIO: &str = "lan78xx.cpu_per_mbit.on_over_off";
pub(super) const FILL: &str = "lan78xx.tx.urb_fill_percent";
pub(super) const TO_STACK: &str = "lan78xx.coalesce.packets_to_stack.on_over_off";
pub(super) const TO_STACK_LONGER: &str = "lan78xx.coalesce.packets_to_stack.gather_300us_over_off";
pub(super) const A6: [&str; 2] = ["lan78xx.ablation.A6.mbit", "lan78xx.ablation.A6.driver_cpu_ns_per_packet"];
/// Rows of merging for a stack.
pub(super) const MERGING: [&str; 4] = [A6[0], A6[1], TO_STACK, TO_STACK_LONGER];
/// Rows measured by flent: added latency, losses, goodput.
pub(super) const FLENT: [&str; 3] =
    ["lan78xx.flent.p99_added_ms", "lan78xx.flent.lost_percent", "lan78xx.flent.mbit"];
