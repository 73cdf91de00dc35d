//! Frames as a driver brings them: the cost of a packet for a forwarder with a core of its own, and for a tunnel's end.
//!
//! The testbed and its meters are those of the scenario `tunnels`: the cost is the CPU time of all threads of the forwarder, and
//! of the thread of the kernel that receives for it. Neither sender nor receiver are in it.

use super::Run;
use crate::scenarios::comparison::{self, Entry};
use crate::scenarios::setup::Contender;
use polder_testbed::peers::Task;
use polder_testbed::peers::kernel::Napi;

/// Frames of one length and one task, and the forwarders that they are sent to.
struct Part {
    frame_bytes: usize,
    entries: &'static [Entry],
}

/// The row of the highest rate.
pub(super) const RATE: &str = "wire.encap_64.mpps.polder";

const KERNEL: Contender = Contender::Kernel(Napi::Threaded);
const FLOWS: u32 = 100;

const fn entry(contender: Contender, task: Task, cost: &'static str) -> Entry {
    Entry { contender, task, cost, rate: None }
}

const PARTS: &[Part] = &[
    Part {
        frame_bytes: 64,
        entries: &[
            entry(Contender::Polder, Task::Bridge, "wire.forward.frames.cpu_ns_per_packet.polder"),
            entry(Contender::PolderTcx, Task::Bridge, "wire.forward.frames.cpu_ns_per_packet.polder_tcx"),
            entry(KERNEL, Task::Bridge, "wire.forward.frames.cpu_ns_per_packet.kernel_bridge"),
            entry(KERNEL, Task::Route, "wire.forward.frames.cpu_ns_per_packet.kernel_route"),
            entry(Contender::Bare, Task::Bridge, "wire.forward.frames.cpu_ns_per_packet.bare"),
        ],
    },
    Part {
        frame_bytes: 64,
        entries: &[
            Entry {
                contender: Contender::PolderVxlan,
                task: Task::Encapsulate,
                cost: "wire.encap_64.cpu_ns_per_packet.polder",
                rate: Some(RATE),
            },
            entry(Contender::PolderTcxVxlan, Task::Encapsulate, "wire.encap_64.cpu_ns_per_packet.polder_tcx"),
            entry(KERNEL, Task::Encapsulate, "wire.encap_64.cpu_ns_per_packet.kernel_vxlan"),
            entry(Contender::OvsVxlan, Task::Encapsulate, "wire.encap_64.cpu_ns_per_packet.ovs"),
        ],
    },
    Part {
        frame_bytes: 64,
        entries: &[
            entry(Contender::PolderVxlan, Task::Decapsulate, "wire.decap_64.cpu_ns_per_packet.polder"),
            entry(Contender::PolderTcxVxlan, Task::Decapsulate, "wire.decap_64.cpu_ns_per_packet.polder_tcx"),
            entry(KERNEL, Task::Decapsulate, "wire.decap_64.cpu_ns_per_packet.kernel_vxlan"),
            entry(Contender::OvsVxlan, Task::Decapsulate, "wire.decap_64.cpu_ns_per_packet.ovs"),
        ],
    },
    Part {
        frame_bytes: 1518,
        entries: &[
            entry(Contender::PolderVxlan, Task::Encapsulate, "wire.encap_1518.cpu_ns_per_packet.polder"),
            entry(
                Contender::PolderTcxVxlan,
                Task::Encapsulate,
                "wire.encap_1518.cpu_ns_per_packet.polder_tcx",
            ),
            entry(KERNEL, Task::Encapsulate, "wire.encap_1518.cpu_ns_per_packet.kernel_vxlan"),
            entry(Contender::OvsVxlan, Task::Encapsulate, "wire.encap_1518.cpu_ns_per_packet.ovs"),
        ],
    },
    Part {
        frame_bytes: 1518,
        entries: &[
            entry(Contender::PolderVxlan, Task::Decapsulate, "wire.decap_1518.cpu_ns_per_packet.polder"),
            entry(
                Contender::PolderTcxVxlan,
                Task::Decapsulate,
                "wire.decap_1518.cpu_ns_per_packet.polder_tcx",
            ),
            entry(KERNEL, Task::Decapsulate, "wire.decap_1518.cpu_ns_per_packet.kernel_vxlan"),
            entry(Contender::OvsVxlan, Task::Decapsulate, "wire.decap_1518.cpu_ns_per_packet.ovs"),
        ],
    },
];

/// Fills the rows; answers the number of packets that Polder has not accounted for.
pub(super) fn measure(run: &mut Run) -> anyhow::Result<u64> {
    let mut unaccounted = 0;
    for part in PARTS {
        let rows = part.entries.iter().map(|entry| entry.cost).collect::<Vec<_>>();
        if run.is_out_of_time() && run.wants_any(&rows) {
            run.leave_out(format!("{} and its like", rows[0]));
            continue;
        }
        unaccounted += comparison::hold(run, part.entries, part.frame_bytes, FLOWS)?.unaccounted;
    }
    Ok(unaccounted)
}
