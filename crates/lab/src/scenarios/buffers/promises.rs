//! The rows of the scenario.

use crate::report::Better;
use crate::scenarios::{Goal, Promise};

/// Percent by which the techniques may make other uses costlier.
const LOSS: Goal = Goal::Value(2.0);

const fn nanos(name: &'static str, goal: Goal) -> Promise {
    Promise { name, unit: "ns", better: Better::Lower, goal }
}

const fn times(name: &'static str, goal: f64) -> Promise {
    Promise { name, unit: "×", better: Better::Higher, goal: Goal::Value(goal) }
}

const fn lower(name: &'static str, unit: &'static str, goal: Goal) -> Promise {
    Promise { name, unit, better: Better::Lower, goal }
}

/// Everything that is measured, in the order of the report.
pub(super) const PROMISES: &[Promise] = &[
    nanos("buffers.get_put.single.ns.polder", Goal::Row("buffers.get_put.single.ns.dpdk_mempool")),
    nanos("buffers.get_put.single.ns.dpdk_mempool", Goal::None),
    nanos("buffers.get_put.single.ns.polder_packet", Goal::Row("buffers.get_put.single.ns.dpdk_mbuf")),
    nanos("buffers.get_put.single.ns.dpdk_mbuf", Goal::None),
    nanos("buffers.get_put.single.ns.glibc", Goal::None),
    nanos("buffers.get_put.single.ns.jemalloc", Goal::None),
    nanos("buffers.get_put.single.ns.mimalloc", Goal::None),
    nanos("buffers.get_put.bulk32.ns.polder", Goal::Row("buffers.get_put.bulk32.ns.dpdk_mempool")),
    nanos("buffers.get_put.bulk32.ns.dpdk_mempool", Goal::None),
    nanos("buffers.get_put.bulk32.ns.polder_packet", Goal::Row("buffers.get_put.bulk32.ns.dpdk_mbuf")),
    nanos("buffers.get_put.bulk32.ns.dpdk_mbuf", Goal::None),
    nanos("buffers.get_put.bulk32.ns.glibc", Goal::None),
    nanos("buffers.get_put.bulk32.ns.jemalloc", Goal::None),
    nanos("buffers.get_put.bulk32.ns.mimalloc", Goal::None),
    times(BEST_MALLOC, 5.0),
    nanos("buffers.cross_core.ns.polder", Goal::Row("buffers.cross_core.ns.dpdk_mempool")),
    nanos("buffers.cross_core.ns.dpdk_mempool", Goal::None),
    nanos("buffers.cross_core.ns.polder_packet", Goal::Row("buffers.cross_core.ns.dpdk_mbuf")),
    nanos("buffers.cross_core.ns.dpdk_mbuf", Goal::None),
    nanos("buffers.cross_core.ns.glibc", Goal::None),
    nanos("buffers.cross_core.ns.jemalloc", Goal::None),
    nanos("buffers.cross_core.ns.mimalloc", Goal::None),
    nanos("buffers.fragment_256.same_core.ns.on", Goal::Value(10.0)),
    nanos("buffers.fragment_256.same_core.ns.off", Goal::None),
    nanos("buffers.fragment_256.cross_core.ns.on", Goal::None),
    nanos("buffers.fragment_256.cross_core.ns.off", Goal::None),
    times("buffers.fragment_256.cross_core.ratio", 2.0),
    nanos("buffers.fragment_1024.same_core.ns.on", Goal::Value(10.0)),
    nanos("buffers.fragment_1024.same_core.ns.off", Goal::None),
    nanos("buffers.fragment_1024.cross_core.ns.on", Goal::None),
    nanos("buffers.fragment_1024.cross_core.ns.off", Goal::None),
    times("buffers.fragment_1024.cross_core.ratio", 2.0),
    nanos("buffers.fragment_2048.same_core.ns.on", Goal::Value(10.0)),
    nanos("buffers.fragment_2048.same_core.ns.off", Goal::None),
    nanos("buffers.fragment_2048.cross_core.ns.on", Goal::None),
    nanos("buffers.fragment_2048.cross_core.ns.off", Goal::None),
    times("buffers.fragment_2048.cross_core.ratio", 2.0),
    lower("buffers.control.udp.loss_percent", "%", LOSS),
    lower("buffers.control.routing.loss_percent", "%", LOSS),
    lower("buffers.control.long_posted.loss_percent", "%", LOSS),
    nanos("buffers.drain.p999_ns.on", Goal::Value(1000.0)),
    nanos("buffers.drain.p999_ns.off", Goal::None),
    lower("buffers.drain.minor_faults.on", "faults", Goal::Value(0.0)),
    lower("buffers.drain.minor_faults.off", "faults", Goal::None),
    lower("buffers.control_failures.on", "allocations", Goal::Value(0.0)),
    lower("buffers.control_failures.off", "allocations", Goal::None),
    lower(AFTER_BURST, "%", Goal::Value(5.0)),
    Promise { name: "buffers.ablation.none.mbit", unit: "Mbit/s", better: Better::Higher, goal: Goal::None },
    nanos("buffers.ablation.none.cpu_ns_per_packet", Goal::None),
    nanos("buffers.ablation.none.ns_per_alloc", Goal::None),
    Promise {
        name: "buffers.ablation.C1_frames.mbit",
        unit: "Mbit/s",
        better: Better::Higher,
        goal: Goal::None,
    },
    nanos("buffers.ablation.C1_frames.cpu_ns_per_packet", Goal::None),
    nanos("buffers.ablation.C1_frames.ns_per_alloc", Goal::None),
    Promise {
        name: "buffers.ablation.C1_fragments.mbit",
        unit: "Mbit/s",
        better: Better::Higher,
        goal: Goal::None,
    },
    nanos("buffers.ablation.C1_fragments.cpu_ns_per_packet", Goal::None),
    nanos("buffers.ablation.C1_fragments.ns_per_alloc", Goal::None),
    Promise { name: "buffers.ablation.C2.mbit", unit: "Mbit/s", better: Better::Higher, goal: Goal::None },
    nanos("buffers.ablation.C2.cpu_ns_per_packet", Goal::None),
    nanos("buffers.ablation.C2.ns_per_alloc", Goal::None),
    Promise { name: "buffers.ablation.C5.mbit", unit: "Mbit/s", better: Better::Higher, goal: Goal::None },
    nanos("buffers.ablation.C5.cpu_ns_per_packet", Goal::None),
    nanos("buffers.ablation.C5.ns_per_alloc", Goal::None),
    Promise { name: "buffers.ablation.D1.mbit", unit: "Mbit/s", better: Better::Higher, goal: Goal::None },
    nanos("buffers.ablation.D1.cpu_ns_per_packet", Goal::None),
    nanos("buffers.ablation.D1.ns_per_alloc", Goal::None),
    Promise { name: "buffers.ablation.D2.mbit", unit: "Mbit/s", better: Better::Higher, goal: Goal::None },
    nanos("buffers.ablation.D2.cpu_ns_per_packet", Goal::None),
    nanos("buffers.ablation.D2.ns_per_alloc", Goal::None),
    Promise { name: "buffers.ablation.D3.mbit", unit: "Mbit/s", better: Better::Higher, goal: Goal::None },
    nanos("buffers.ablation.D3.cpu_ns_per_packet", Goal::None),
    nanos("buffers.ablation.D3.ns_per_alloc", Goal::None),
    Promise { name: "buffers.ablation.all.mbit", unit: "Mbit/s", better: Better::Higher, goal: Goal::None },
    nanos("buffers.ablation.all.cpu_ns_per_packet", Goal::None),
    nanos("buffers.ablation.all.ns_per_alloc", Goal::None),
    Promise {
        name: "buffers.ablation.no_reuse_1.mbit",
        unit: "Mbit/s",
        better: Better::Higher,
        goal: Goal::None,
    },
    nanos("buffers.ablation.no_reuse_1.cpu_ns_per_packet", Goal::None),
    nanos("buffers.ablation.no_reuse_1.ns_per_alloc", Goal::None),
    Promise {
        name: "buffers.ablation.no_reuse_2.mbit",
        unit: "Mbit/s",
        better: Better::Higher,
        goal: Goal::None,
    },
    nanos("buffers.ablation.no_reuse_2.cpu_ns_per_packet", Goal::None),
    nanos("buffers.ablation.no_reuse_2.ns_per_alloc", Goal::None),
    nanos("buffers.ring.refill_1.cpu_ns_per_packet", Goal::None),
    lower("buffers.ring.refill_1.lost_percent", "%", Goal::None),
    Promise {
        name: "buffers.ring.refill_1.overload_mpps",
        unit: "Mpps",
        better: Better::Higher,
        goal: Goal::None,
    },
    nanos("buffers.ring.refill_33.cpu_ns_per_packet", Goal::None),
    lower("buffers.ring.refill_33.lost_percent", "%", Goal::None),
    Promise {
        name: "buffers.ring.refill_33.overload_mpps",
        unit: "Mpps",
        better: Better::Higher,
        goal: Goal::None,
    },
    nanos("buffers.ring.refill_67.cpu_ns_per_packet", Goal::None),
    lower("buffers.ring.refill_67.lost_percent", "%", Goal::None),
    Promise {
        name: "buffers.ring.refill_67.overload_mpps",
        unit: "Mpps",
        better: Better::Higher,
        goal: Goal::None,
    },
    nanos("buffers.ring.refill_100.cpu_ns_per_packet", Goal::None),
    lower("buffers.ring.refill_100.lost_percent", "%", Goal::None),
    Promise {
        name: "buffers.ring.refill_100.overload_mpps",
        unit: "Mpps",
        better: Better::Higher,
        goal: Goal::None,
    },
    nanos("buffers.ring.copy_break_0.cpu_ns_per_packet", Goal::None),
    lower("buffers.ring.copy_break_0.lost_percent", "%", Goal::None),
    Promise {
        name: "buffers.ring.copy_break_0.overload_mpps",
        unit: "Mpps",
        better: Better::Higher,
        goal: Goal::None,
    },
    nanos("buffers.ring.copy_break_256.cpu_ns_per_packet", Goal::None),
    lower("buffers.ring.copy_break_256.lost_percent", "%", Goal::None),
    Promise {
        name: "buffers.ring.copy_break_256.overload_mpps",
        unit: "Mpps",
        better: Better::Higher,
        goal: Goal::None,
    },
    nanos("buffers.ring.copy_break_1024.cpu_ns_per_packet", Goal::None),
    lower("buffers.ring.copy_break_1024.lost_percent", "%", Goal::None),
    Promise {
        name: "buffers.ring.copy_break_1024.overload_mpps",
        unit: "Mpps",
        better: Better::Higher,
        goal: Goal::None,
    },
];

pub(super) const BEST_MALLOC: &str = "buffers.get_put.bulk32.ratio_vs_best_malloc";
pub(super) const AFTER_BURST: &str = "buffers.memory_after_burst_percent";
