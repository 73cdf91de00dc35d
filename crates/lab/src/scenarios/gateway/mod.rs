//! `gateway`: source E's gateway, between its Ethernet and its tunnel: what a packet costs beside other
//! forwarders, and what each of the source's techniques brings.

mod alone;
pub(super) mod switched;
mod together;

use super::comparison::{self, Effort, Entry};
use super::testbed::Contender;
use super::{Goal, Promise, Run, Scenario};
use crate::report::Better;
use polder_testbed::meters::statistics::Samples;
use polder_testbed::peers::Task;
use polder_testbed::peers::kernel::Napi;
use std::time::Duration;

/// The scenario.
pub(super) const SCENARIO: Scenario = Scenario {
    name: "gateway",
    about: "source E's gateway: CPU time of a packet into and out of its tunnel, and each technique off and on",
    needs_root: true,
    promises: PROMISES,
    measure,
};

/// The goal: one and a half times less than Open vSwitch.
const PART_OF_OVS: f64 = 1.0 / 1.5;

const fn cost(name: &'static str, goal: Goal) -> Promise {
    Promise { name, unit: "ns", better: Better::Lower, goal }
}

const fn pps(name: &'static str) -> Promise {
    Promise { name, unit: "packets/s", better: Better::Higher, goal: Goal::None }
}

const PROMISES: &[Promise] = &[
    cost(
        "gateway.encap_64.cpu_ns_per_packet.polder",
        Goal::Times(PART_OF_OVS, "gateway.encap_64.cpu_ns_per_packet.ovs"),
    ),
    cost("gateway.encap_64.cpu_ns_per_packet.ovs", Goal::None),
    cost("gateway.encap_64.cpu_ns_per_packet.kernel_vxlan", Goal::None),
    cost(
        "gateway.encap_64.cpu_ns_per_packet.polder.flows_1",
        Goal::Times(PART_OF_OVS, "gateway.encap_64.cpu_ns_per_packet.ovs.flows_1"),
    ),
    cost("gateway.encap_64.cpu_ns_per_packet.ovs.flows_1", Goal::None),
    cost("gateway.encap_64.cpu_ns_per_packet.kernel_vxlan.flows_1", Goal::None),
    cost(
        "gateway.encap_1518.cpu_ns_per_packet.polder",
        Goal::Times(PART_OF_OVS, "gateway.encap_1518.cpu_ns_per_packet.ovs"),
    ),
    cost("gateway.encap_1518.cpu_ns_per_packet.ovs", Goal::None),
    cost("gateway.encap_1518.cpu_ns_per_packet.kernel_vxlan", Goal::None),
    cost(
        "gateway.encap_1518.cpu_ns_per_packet.polder.flows_1",
        Goal::Times(PART_OF_OVS, "gateway.encap_1518.cpu_ns_per_packet.ovs.flows_1"),
    ),
    cost("gateway.encap_1518.cpu_ns_per_packet.ovs.flows_1", Goal::None),
    cost("gateway.encap_1518.cpu_ns_per_packet.kernel_vxlan.flows_1", Goal::None),
    cost(
        "gateway.decap_64.cpu_ns_per_packet.polder",
        Goal::Times(PART_OF_OVS, "gateway.decap_64.cpu_ns_per_packet.ovs"),
    ),
    cost("gateway.decap_64.cpu_ns_per_packet.ovs", Goal::None),
    cost("gateway.decap_64.cpu_ns_per_packet.kernel_vxlan", Goal::None),
    cost(
        "gateway.decap_64.cpu_ns_per_packet.polder.flows_1",
        Goal::Times(PART_OF_OVS, "gateway.decap_64.cpu_ns_per_packet.ovs.flows_1"),
    ),
    cost("gateway.decap_64.cpu_ns_per_packet.ovs.flows_1", Goal::None),
    cost("gateway.decap_64.cpu_ns_per_packet.kernel_vxlan.flows_1", Goal::None),
    cost(
        "gateway.decap_1518.cpu_ns_per_packet.polder",
        Goal::Times(PART_OF_OVS, "gateway.decap_1518.cpu_ns_per_packet.ovs"),
    ),
    cost("gateway.decap_1518.cpu_ns_per_packet.ovs", Goal::None),
    cost("gateway.decap_1518.cpu_ns_per_packet.kernel_vxlan", Goal::None),
    cost(
        "gateway.decap_1518.cpu_ns_per_packet.polder.flows_1",
        Goal::Times(PART_OF_OVS, "gateway.decap_1518.cpu_ns_per_packet.ovs.flows_1"),
    ),
    cost("gateway.decap_1518.cpu_ns_per_packet.ovs.flows_1", Goal::None),
    cost("gateway.decap_1518.cpu_ns_per_packet.kernel_vxlan.flows_1", Goal::None),
    pps("gateway.ablation.E2.on.pps"),
    pps("gateway.ablation.E2.off.pps"),
    pps("gateway.ablation.E3.on.pps"),
    pps("gateway.ablation.E3.off.pps"),
    pps("gateway.ablation.E4.on.pps"),
    pps("gateway.ablation.E4.off.pps"),
    pps("gateway.ablation.E5.on.pps"),
    pps("gateway.ablation.E5.off.pps"),
    pps("gateway.ablation.E6.on.pps"),
    pps("gateway.ablation.E6.off.pps"),
    pps("gateway.ablation.E7.on.pps"),
    pps("gateway.ablation.E7.off.pps"),
    pps("gateway.ablation.E8.on.pps"),
    pps("gateway.ablation.E8.off.pps"),
];

/// Flows of the rows without an ending.
const FLOWS: u32 = 64;

/// One length in one direction, with its rows: by number of flows, and of the contenders in their order.
struct Part {
    task: Task,
    frame_bytes: usize,
    rows: [(u32, [&'static str; 3]); 2],
}

const CONTENDERS: [Contender; 3] = [Contender::Polder, Contender::Ovs, Contender::Kernel(Napi::Threaded)];

const PARTS: &[Part] = &[
    Part {
        task: Task::Encapsulate,
        frame_bytes: 64,
        rows: [
            (
                FLOWS,
                [
                    "gateway.encap_64.cpu_ns_per_packet.polder",
                    "gateway.encap_64.cpu_ns_per_packet.ovs",
                    "gateway.encap_64.cpu_ns_per_packet.kernel_vxlan",
                ],
            ),
            (
                1,
                [
                    "gateway.encap_64.cpu_ns_per_packet.polder.flows_1",
                    "gateway.encap_64.cpu_ns_per_packet.ovs.flows_1",
                    "gateway.encap_64.cpu_ns_per_packet.kernel_vxlan.flows_1",
                ],
            ),
        ],
    },
    Part {
        task: Task::Encapsulate,
        frame_bytes: 1518,
        rows: [
            (
                FLOWS,
                [
                    "gateway.encap_1518.cpu_ns_per_packet.polder",
                    "gateway.encap_1518.cpu_ns_per_packet.ovs",
                    "gateway.encap_1518.cpu_ns_per_packet.kernel_vxlan",
                ],
            ),
            (
                1,
                [
                    "gateway.encap_1518.cpu_ns_per_packet.polder.flows_1",
                    "gateway.encap_1518.cpu_ns_per_packet.ovs.flows_1",
                    "gateway.encap_1518.cpu_ns_per_packet.kernel_vxlan.flows_1",
                ],
            ),
        ],
    },
    Part {
        task: Task::Decapsulate,
        frame_bytes: 64,
        rows: [
            (
                FLOWS,
                [
                    "gateway.decap_64.cpu_ns_per_packet.polder",
                    "gateway.decap_64.cpu_ns_per_packet.ovs",
                    "gateway.decap_64.cpu_ns_per_packet.kernel_vxlan",
                ],
            ),
            (
                1,
                [
                    "gateway.decap_64.cpu_ns_per_packet.polder.flows_1",
                    "gateway.decap_64.cpu_ns_per_packet.ovs.flows_1",
                    "gateway.decap_64.cpu_ns_per_packet.kernel_vxlan.flows_1",
                ],
            ),
        ],
    },
    Part {
        task: Task::Decapsulate,
        frame_bytes: 1518,
        rows: [
            (
                FLOWS,
                [
                    "gateway.decap_1518.cpu_ns_per_packet.polder",
                    "gateway.decap_1518.cpu_ns_per_packet.ovs",
                    "gateway.decap_1518.cpu_ns_per_packet.kernel_vxlan",
                ],
            ),
            (
                1,
                [
                    "gateway.decap_1518.cpu_ns_per_packet.polder.flows_1",
                    "gateway.decap_1518.cpu_ns_per_packet.ovs.flows_1",
                    "gateway.decap_1518.cpu_ns_per_packet.kernel_vxlan.flows_1",
                ],
            ),
        ],
    },
];

fn measure(run: &mut Run) -> anyhow::Result<()> {
    alone::measure(run)?;
    together::measure(run)?;
    for part in PARTS {
        let (rounds, time) = run.quick_or((3, 150), (10, 300));
        let mut effort = Effort { rounds, time: Duration::from_millis(time), found: Vec::new() };
        for (flows, rows) in part.rows {
            if !run.wants_any(&rows) {
                continue;
            }
            if run.is_out_of_time() {
                run.leave_out(format!("{:?}, {} bytes, flows: {flows}", part.task, part.frame_bytes));
                continue;
            }
            let entry = |(contender, cost)| Entry { contender, task: part.task, cost, rate: None };
            let entries = CONTENDERS.into_iter().zip(rows).map(entry).collect::<Vec<_>>();
            comparison::hold_within(run, &entries, (part.frame_bytes, flows), &mut effort)?;
        }
    }
    Ok(())
}

/// The rows of a technique: on and off.
fn rows(technique: &str) -> [String; 2] {
    ["on", "off"].map(|side| format!("gateway.ablation.{technique}.{side}.pps"))
}

/// True if a technique's rows are wanted and there is time; notes rows that are left out.
fn is_due(run: &mut Run, technique: &str) -> bool {
    let wanted = run.wants_any(&rows(technique).each_ref().map(String::as_str));
    if wanted && run.is_out_of_time() {
        run.leave_out(format!("{technique}, on and off"));
        return false;
    }
    wanted
}

/// Fills the rows of a technique; each remark says what its side is.
fn record(run: &mut Run, technique: &str, rates: &[Samples; 2], remarks: [String; 2]) {
    for ((row, rates), remark) in rows(technique).iter().zip(rates).zip(remarks) {
        run.record(row, rates);
        run.remark(row, remark);
    }
}

/// Rounds of a technique, and duration of each.
fn effort(run: &Run) -> (usize, Duration) {
    let (rounds, time) = run.quick_or((3, 100), (10, 250));
    (rounds, Duration::from_millis(time))
}
