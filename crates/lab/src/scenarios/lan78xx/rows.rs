//! The rows of the scenario.

use crate::report::Better;
use crate::scenarios::{Goal, Promise, Run};
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

/// Goodput of TCP and UDP at 1 Gbit/s with full frames.
const TCP_GOODPUT: Goal = Goal::Value(941.0);
const UDP_GOODPUT: Goal = Goal::Value(957.0);
const NONE_LOST: Goal = Goal::Value(0.0);

const fn mbit(name: &'static str, goal: Goal) -> Promise {
    Promise { name, unit: "Mbit/s", better: Better::Higher, goal }
}

const fn loss(name: &'static str, goal: Goal) -> Promise {
    Promise { name, unit: "%", better: Better::Lower, goal }
}

const fn idle(name: &'static str, goal: Goal) -> Promise {
    Promise { name, unit: "%", better: Better::Higher, goal }
}

const fn nanos(name: &'static str, goal: Goal) -> Promise {
    Promise { name, unit: "ns", better: Better::Lower, goal }
}

const fn ratio(name: &'static str, goal: f64) -> Promise {
    Promise { name, unit: "ratio", better: Better::Lower, goal: Goal::Value(goal) }
}

const fn added(name: &'static str, goal: Goal) -> Promise {
    Promise { name, unit: "ms", better: Better::Lower, goal }
}

/// Rows of one quantity without the techniques, and with them.
macro_rules! states {
    ($name:literal, $of:ident, $goal:expr) => {
        [$of(concat!("lan78xx.", $name, ".off"), Goal::None), $of(concat!("lan78xx.", $name, ".on"), $goal)]
    };
}

const STATES: [[Promise; 2]; 32] = [
    states!("tcp_rx.mbit", mbit, TCP_GOODPUT),
    states!("tcp_rx.loss_percent", loss, NONE_LOST),
    states!("tcp_rx.driver_cpu_ns_per_packet", nanos, Goal::None),
    states!("tcp_tx.mbit", mbit, TCP_GOODPUT),
    states!("tcp_tx.loss_percent", loss, NONE_LOST),
    states!("tcp_tx.driver_cpu_ns_per_packet", nanos, Goal::None),
    states!("udp_rx.mbit", mbit, UDP_GOODPUT),
    states!("udp_rx.loss_percent", loss, NONE_LOST),
    states!("udp_rx.driver_cpu_ns_per_packet", nanos, Goal::None),
    states!("udp_tx.mbit", mbit, UDP_GOODPUT),
    states!("udp_tx.loss_percent", loss, NONE_LOST),
    states!("udp_tx.driver_cpu_ns_per_packet", nanos, Goal::None),
    states!("weak_host.tcp_rx.mbit", mbit, Goal::None),
    states!("weak_host.tcp_rx.idle_percent", idle, Goal::None),
    states!("weak_host.tcp_tx.mbit", mbit, Goal::None),
    states!("weak_host.tcp_tx.idle_percent", idle, Goal::None),
    states!("weak_host.udp_rx.mbit", mbit, Goal::None),
    states!("weak_host.udp_rx.loss_percent", loss, Goal::None),
    states!("weak_host.udp_rx.idle_percent", idle, Goal::None),
    states!("weak_host.udp_tx.mbit", mbit, Goal::None),
    states!("weak_host.udp_tx.loss_percent", loss, Goal::None),
    states!("weak_host.udp_tx.idle_percent", idle, Goal::None),
    states!("gateway.tcp_rx.mbit", mbit, Goal::None),
    states!("gateway.tcp_rx.idle_percent", idle, Goal::None),
    states!("gateway.tcp_tx.mbit", mbit, Goal::None),
    states!("gateway.tcp_tx.idle_percent", idle, Goal::None),
    states!("gateway.udp_rx.mbit", mbit, Goal::None),
    states!("gateway.udp_rx.loss_percent", loss, Goal::None),
    states!("gateway.udp_rx.idle_percent", idle, Goal::None),
    states!("gateway.udp_tx.mbit", mbit, Goal::None),
    states!("gateway.udp_tx.loss_percent", loss, Goal::None),
    states!("gateway.udp_tx.idle_percent", idle, Goal::None),
];

const OTHERS: [Promise; 31] = [
    ratio(CPU_RATIO, 0.6),
    idle(FILL, Goal::Value(90.0)),
    added("lan78xx.rrul.p99_added_ms", Goal::Value(5.0)),
    added("lan78xx.rrul.p99_added_ms.bytes", Goal::None),
    added("lan78xx.rrul.p99_added_ms.none", Goal::None),
    added("lan78xx.rrul.p99_added_ms.bbr", Goal::None),
    loss("lan78xx.rrul.lost_percent", Goal::None),
    loss("lan78xx.rrul.lost_percent.bytes", Goal::None),
    loss("lan78xx.rrul.lost_percent.none", Goal::None),
    loss("lan78xx.rrul.lost_percent.bbr", Goal::None),
    mbit("lan78xx.rrul.mbit", Goal::None),
    mbit("lan78xx.rrul.mbit.bytes", Goal::None),
    mbit("lan78xx.rrul.mbit.none", Goal::None),
    mbit("lan78xx.rrul.mbit.bbr", Goal::None),
    added(FLENT[0], Goal::None),
    loss(FLENT[1], Goal::None),
    mbit(FLENT[2], Goal::None),
    mbit("lan78xx.ablation.A1.mbit", Goal::None),
    nanos("lan78xx.ablation.A1.driver_cpu_ns_per_packet", Goal::None),
    mbit("lan78xx.ablation.A2.mbit", Goal::None),
    nanos("lan78xx.ablation.A2.driver_cpu_ns_per_packet", Goal::None),
    mbit("lan78xx.ablation.A3.mbit", Goal::None),
    nanos("lan78xx.ablation.A3.driver_cpu_ns_per_packet", Goal::None),
    mbit("lan78xx.ablation.A4.mbit", Goal::None),
    nanos("lan78xx.ablation.A4.driver_cpu_ns_per_packet", Goal::None),
    mbit("lan78xx.ablation.A5.mbit", Goal::None),
    nanos("lan78xx.ablation.A5.driver_cpu_ns_per_packet", Goal::None),
    mbit(A6[0], Goal::None),
    nanos(A6[1], Goal::None),
    ratio(TO_STACK, 0.1),
    ratio(TO_STACK_LONGER, 0.1),
];

/// All of them.
pub(super) const PROMISES: &[Promise] = &{
    let states = STATES.as_flattened();
    let mut all = [OTHERS[0]; 2 * STATES.len() + OTHERS.len()];
    let mut at = 0;
    while at < all.len() {
        all[at] = if at < states.len() { states[at] } else { OTHERS[at - states.len()] };
        at += 1;
    }
    all
};

/// States of a flow: without the techniques, and with them.
pub(super) const BOTH: [&str; 2] = ["off", "on"];

/// Goodput, losses and idle time of a flow, in both states.
pub(super) type Cells = [[Samples; 3]; BOTH.len()];

/// Fills the rows of a flow, as far as there are such: TCP sends again what is lost.
pub(super) fn record(run: &mut Run, flow: &str, cells: &Cells) {
    for (state, cell) in BOTH.into_iter().zip(cells) {
        let rows = ["mbit", "loss_percent", "idle_percent"].map(|what| format!("{flow}.{what}.{state}"));
        let rows = rows.iter().zip(cell);
        rows.filter(|(row, _)| !of(row).is_empty()).for_each(|(row, samples)| run.record(row, samples));
    }
}

/// Names of rows that begin so.
pub(super) fn of(prefix: &str) -> Vec<&'static str> {
    PROMISES.iter().map(|promise| promise.name).filter(|name| name.starts_with(prefix)).collect()
}
