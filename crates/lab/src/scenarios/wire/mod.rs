//! `wire`: interfaces as the kernel makes them, with all offloads. What applications get through Polder with its
//! defaults, beside the kernel's own bridge and tunnel and a bare redirect.
//!
//! All forwarders of a part are up at the same time, each in namespaces of its own, and take turns. Nothing is pinned,
//! and nothing is set: threads are where the kernel's scheduler puts them.

mod bridges;
mod controls;
mod frames;
mod hot;
mod moves;
mod overload;
mod tunnels;

use super::{Goal, Promise, Run, Scenario};
use crate::report::Better;
use controls::{SHAPED, SHAPED_TO};

/// The scenario.
pub(super) const SCENARIO: Scenario = Scenario {
    name: "wire",
    about: "veths with all offloads and Polder's defaults: TCP, ping and CPU time of a packet beside the kernel",
    needs_root: true,
    promises: PROMISES,
    measure,
};

const UNACCOUNTED: &str = "wire.unaccounted_packets";

const fn tcp(name: &'static str, goal: Goal) -> Promise {
    Promise { name, unit: "Gbit/s", better: Better::Higher, goal }
}

const fn time(name: &'static str, goal: Goal) -> Promise {
    Promise { name, unit: "µs", better: Better::Lower, goal }
}

const fn cost(name: &'static str, goal: Goal) -> Promise {
    Promise { name, unit: "ns", better: Better::Lower, goal }
}

const fn goodput(mode: &overload::Mode) -> Promise {
    Promise { name: mode.goodput, unit: "ratio", better: Better::Higher, goal: Goal::Value(0.97) }
}

const fn flaps(mode: &overload::Mode) -> Promise {
    Promise { name: mode.flaps, unit: "flaps", better: Better::Lower, goal: Goal::Value(0.0) }
}

const fn fence(hook: &moves::Hook) -> Promise {
    Promise { name: hook.fence, unit: "packets", better: Better::Lower, goal: Goal::Value(0.0) }
}

const fn no_fence(hook: &moves::Hook) -> Promise {
    Promise { name: hook.no_fence, unit: "packets", better: Better::Higher, goal: Goal::Value(1.0) }
}

const fn failed(name: &'static str) -> Promise {
    Promise { name, unit: "packets", better: Better::Higher, goal: Goal::Value(17.0) }
}

const PROMISES: &[Promise] = &[
    tcp("wire.tcp_1.gbit.polder", Goal::Times(0.95, "wire.tcp_1.gbit.kernel_bridge")),
    tcp("wire.tcp_1.gbit.polder_slow", Goal::Times(0.75, "wire.tcp_1.gbit.kernel_bridge")),
    tcp("wire.tcp_1.gbit.kernel_bridge", Goal::None),
    tcp("wire.tcp_1.gbit.tcx_bare", Goal::None),
    tcp("wire.tcp_4.gbit.polder", Goal::Times(0.9, "wire.tcp_4.gbit.kernel_bridge")),
    tcp("wire.tcp_4.gbit.polder_slow", Goal::Times(0.4, "wire.tcp_4.gbit.kernel_bridge")),
    tcp("wire.tcp_4.gbit.kernel_bridge", Goal::None),
    tcp("wire.tcp_4.gbit.tcx_bare", Goal::None),
    time("wire.ping_us.polder", Goal::Times(1.2, "wire.ping_us.kernel_bridge")),
    time("wire.ping_us.kernel_bridge", Goal::None),
    cost(
        "wire.forward.sockets.cpu_ns_per_packet.polder",
        Goal::Times(0.8, "wire.forward.sockets.cpu_ns_per_packet.kernel_bridge"),
    ),
    cost("wire.forward.sockets.cpu_ns_per_packet.kernel_bridge", Goal::None),
    cost("wire.forward.sockets.cpu_ns_per_packet.bare", Goal::None),
    tcp("wire.route_tcp_1.gbit.polder", Goal::Times(0.95, "wire.route_tcp_1.gbit.kernel_route")),
    tcp("wire.route_tcp_1.gbit.polder_slow", Goal::None),
    tcp("wire.route_tcp_1.gbit.kernel_route", Goal::None),
    cost(
        "wire.forward.sockets.cpu_ns_per_packet.polder_route",
        Goal::Row("wire.forward.sockets.cpu_ns_per_packet.kernel_route"),
    ),
    cost("wire.forward.sockets.cpu_ns_per_packet.kernel_route", Goal::None),
    cost(
        "wire.forward.frames.cpu_ns_per_packet.polder",
        Goal::Times(0.6, "wire.forward.frames.cpu_ns_per_packet.kernel_route"),
    ),
    cost("wire.forward.frames.cpu_ns_per_packet.polder_tcx", Goal::None),
    cost("wire.forward.frames.cpu_ns_per_packet.kernel_bridge", Goal::None),
    cost("wire.forward.frames.cpu_ns_per_packet.kernel_route", Goal::None),
    cost("wire.forward.frames.cpu_ns_per_packet.bare", Goal::None),
    cost(
        "wire.encap_64.cpu_ns_per_packet.polder",
        Goal::Times(0.45, "wire.encap_64.cpu_ns_per_packet.kernel_vxlan"),
    ),
    cost("wire.encap_64.cpu_ns_per_packet.polder_tcx", Goal::None),
    cost("wire.encap_64.cpu_ns_per_packet.kernel_vxlan", Goal::None),
    cost("wire.encap_64.cpu_ns_per_packet.ovs", Goal::None),
    cost(
        "wire.decap_64.cpu_ns_per_packet.polder",
        Goal::Times(0.45, "wire.decap_64.cpu_ns_per_packet.kernel_vxlan"),
    ),
    cost("wire.decap_64.cpu_ns_per_packet.polder_tcx", Goal::None),
    cost("wire.decap_64.cpu_ns_per_packet.kernel_vxlan", Goal::None),
    cost("wire.decap_64.cpu_ns_per_packet.ovs", Goal::None),
    cost(
        "wire.encap_1518.cpu_ns_per_packet.polder",
        Goal::Times(0.45, "wire.encap_1518.cpu_ns_per_packet.kernel_vxlan"),
    ),
    cost("wire.encap_1518.cpu_ns_per_packet.polder_tcx", Goal::None),
    cost("wire.encap_1518.cpu_ns_per_packet.kernel_vxlan", Goal::None),
    cost("wire.encap_1518.cpu_ns_per_packet.ovs", Goal::None),
    cost(
        "wire.decap_1518.cpu_ns_per_packet.polder",
        Goal::Times(0.45, "wire.decap_1518.cpu_ns_per_packet.kernel_vxlan"),
    ),
    cost("wire.decap_1518.cpu_ns_per_packet.polder_tcx", Goal::None),
    cost("wire.decap_1518.cpu_ns_per_packet.kernel_vxlan", Goal::None),
    cost("wire.decap_1518.cpu_ns_per_packet.ovs", Goal::None),
    Promise { name: frames::RATE, unit: "Mpps", better: Better::Higher, goal: Goal::Value(2.0) },
    tcp("wire.tunnel_tcp.gbit.polder", Goal::Row("wire.tunnel_tcp.gbit.kernel_vxlan")),
    tcp("wire.tunnel_tcp.gbit.polder_slow", Goal::None),
    tcp("wire.tunnel_tcp.gbit.polder_cut", Goal::None),
    tcp("wire.tunnel_tcp.gbit.polder_gretap", Goal::Row("wire.tunnel_tcp.gbit.kernel_vxlan")),
    tcp("wire.tunnel_tcp.gbit.kernel_vxlan", Goal::None),
    time("wire.two_gateways.p50_us.polder", Goal::Times(0.9, "wire.two_gateways.p50_us.kernel_vxlan")),
    time("wire.two_gateways.p50_us.polder_slow", Goal::None),
    time("wire.two_gateways.p50_us.kernel_vxlan", Goal::None),
    goodput(&overload::MODES[0]),
    flaps(&overload::MODES[0]),
    goodput(&overload::MODES[1]),
    flaps(&overload::MODES[1]),
    goodput(&overload::MODES[2]),
    flaps(&overload::MODES[2]),
    fence(&moves::HOOKS[0]),
    no_fence(&moves::HOOKS[0]),
    fence(&moves::HOOKS[1]),
    no_fence(&moves::HOOKS[1]),
    Promise { name: hot::DIFFERENT, unit: "packets", better: Better::Lower, goal: Goal::Value(0.0) },
    Promise { name: hot::CAUGHT, unit: "mutants", better: Better::Higher, goal: Goal::Value(hot::MUTANTS) },
    Promise { name: controls::CAPTURE, unit: "%", better: Better::Lower, goal: Goal::Value(3.0) },
    Promise { name: controls::OTHER_WAY, unit: "%", better: Better::Lower, goal: Goal::Value(3.0) },
    failed(controls::FAILED[0]),
    failed(controls::FAILED[1]),
    Promise { name: SHAPED, unit: "Gbit/s", better: Better::Lower, goal: Goal::Value(SHAPED_TO) },
    Promise { name: UNACCOUNTED, unit: "packets", better: Better::Lower, goal: Goal::Value(0.0) },
];

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
        + frames::measure(run)?;
    hot::measure(run)?;
    #[expect(clippy::cast_precision_loss, reason = "a count of packets is far below 2^52")]
    run.record_one(UNACCOUNTED, unaccounted as f64);
    Ok(())
}
