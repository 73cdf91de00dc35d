//! A VXLAN device of the kernel over a router's port, as Kubernetes' flannel has it, with routes through it.

use super::super::recipe::{Mutant, Probe, Recipe, Script};
use super::{NONE, WAN_DEAF};

pub(super) const RECIPE: Recipe = Recipe {
    name: "kernel_vxlan",
    programs: &["nft"],
    setup: &[
        Script(
            "gw",
            "ip link add flannel.1 type vxlan id 1 local 10.1.2.1 remote 10.1.2.2 dstport 8472 dev wan
             ip address add 10.244.0.1/32 dev flannel.1; ip link set flannel.1 up
             ip route add 10.244.1.1/32 dev flannel.1; ip route add 10.244.1.0/24 via 10.244.1.1 dev flannel.1 onlink",
        ),
        Script(
            "peer",
            "ip link add flannel.1 type vxlan id 1 local 10.1.2.2 remote 10.1.2.1 dstport 8472 dev eth0
             ip address add 10.244.1.1/32 dev flannel.1; ip link set flannel.1 up
             ip route add 10.244.0.1/32 dev flannel.1; ip address add 10.244.1.9/32 dev lo
             ip route add 10.1.1.0/24 via 10.244.0.1 dev flannel.1 onlink",
        ),
    ],
    probes: &[
        Probe::ping("inside_from_the_gateway", "gw", "10.244.1.1"),
        Probe::ping("lan_into_the_overlay", "host", "10.244.1.9"),
        Probe::new(
            "overlay_into_the_lan",
            super::super::recipe::Ask::Ping { from: "peer", to: "10.1.1.2", options: "-I 10.244.1.9" },
        ),
    ],
    mutants: &[Mutant::new(
        "the WAN is not heard",
        WAN_DEAF,
        &["inside_from_the_gateway", "lan_into_the_overlay", "overlay_into_the_lan"],
    )],
    ..NONE
};
