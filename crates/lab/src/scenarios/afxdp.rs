//! `afxdp`: from one interface to another, beside testpmd and the kernel.

use super::comparison::{self, Entry};
use super::testbed::Contender;
use super::{Goal, Promise, Run, Scenario};
use crate::report::Better;
use polder_testbed::peers::Task;
use polder_testbed::peers::kernel::Napi;

/// The scenario.
pub(super) const SCENARIO: Scenario = Scenario {
    name: "afxdp",
    about: "from one veth to another over AF_XDP: CPU time of a packet, beside testpmd and the kernel",
    needs_root: true,
    promises: PROMISES,
    measure,
};

const POLDER: &str = "afxdp.forward.cpu_ns_per_packet.polder";
const TESTPMD: &str = "afxdp.forward.cpu_ns_per_packet.testpmd";
const FORWARD: &str = "afxdp.forward.cpu_ns_per_packet.kernel_forward";
const BRIDGE: &str = "afxdp.forward.cpu_ns_per_packet.kernel_bridge";
const FORWARD_SOFTIRQ: &str = "afxdp.forward.cpu_ns_per_packet.kernel_forward_softirq";
const BRIDGE_SOFTIRQ: &str = "afxdp.forward.cpu_ns_per_packet.kernel_bridge_softirq";
const UNACCOUNTED: &str = "afxdp.unaccounted_packets";

const fn cost(name: &'static str, goal: Goal) -> Promise {
    Promise { name, unit: "ns", better: Better::Lower, goal }
}

const fn rate(name: &'static str) -> Promise {
    Promise { name, unit: "Mpps", better: Better::Higher, goal: Goal::None }
}

const PROMISES: &[Promise] = &[
    cost(POLDER, Goal::Row(TESTPMD)),
    cost(TESTPMD, Goal::None),
    cost(FORWARD, Goal::None),
    cost(BRIDGE, Goal::None),
    cost(FORWARD_SOFTIRQ, Goal::None),
    cost(BRIDGE_SOFTIRQ, Goal::None),
    rate("afxdp.forward.mpps.polder"),
    rate("afxdp.forward.mpps.testpmd"),
    rate("afxdp.forward.mpps.kernel_forward"),
    rate("afxdp.forward.mpps.kernel_bridge"),
    rate("afxdp.forward.mpps.kernel_forward_softirq"),
    rate("afxdp.forward.mpps.kernel_bridge_softirq"),
    Promise { name: UNACCOUNTED, unit: "packets", better: Better::Lower, goal: Goal::Value(0.0) },
];

/// Frames of the smallest length, of a hundred flows.
const FRAME_BYTES: usize = 64;
const FLOWS: u32 = 100;

const fn entry(contender: Contender, task: Task, cost: &'static str, rate: &'static str) -> Entry {
    Entry { contender, task, cost, rate: Some(rate) }
}

const ENTRIES: &[Entry] = &[
    entry(Contender::Polder, Task::Bridge, POLDER, "afxdp.forward.mpps.polder"),
    entry(Contender::Testpmd, Task::Bridge, TESTPMD, "afxdp.forward.mpps.testpmd"),
    entry(Contender::Kernel(Napi::Threaded), Task::Route, FORWARD, "afxdp.forward.mpps.kernel_forward"),
    entry(Contender::Kernel(Napi::Threaded), Task::Bridge, BRIDGE, "afxdp.forward.mpps.kernel_bridge"),
    entry(
        Contender::Kernel(Napi::Softirq),
        Task::Route,
        FORWARD_SOFTIRQ,
        "afxdp.forward.mpps.kernel_forward_softirq",
    ),
    entry(
        Contender::Kernel(Napi::Softirq),
        Task::Bridge,
        BRIDGE_SOFTIRQ,
        "afxdp.forward.mpps.kernel_bridge_softirq",
    ),
];

fn measure(run: &mut Run) -> anyhow::Result<()> {
    let books = comparison::hold(run, ENTRIES, FRAME_BYTES, FLOWS)?;
    #[expect(clippy::cast_precision_loss, reason = "a count of packets is far below 2^52")]
    run.record_one(UNACCOUNTED, books.unaccounted as f64);
    Ok(())
}
