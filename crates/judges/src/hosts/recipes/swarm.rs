//! A second VXLAN network between the same two ends: the kernel's, as Docker Swarm has it, beside Polder's.

use super::super::recipe::{Mutant, Network, Probe, Recipe, Script, Wire};
use super::{NONE, WAN_DEAF};

/// ```text
/// host eth0 ── lan gw wan ══ eth0 peer: VNI 42 carries the LAN, VNI 43 is the kernel's
/// ```
const NETWORK: Network = Network {
    wires: &[Wire(("gw", "lan"), ("host", "eth0")), Wire(("gw", "wan"), ("peer", "eth0"))],
    setup: &[
        Script("host", "ip address add 10.42.0.2/24 dev eth0"),
        Script(
            "gw",
            "ip address add 10.1.2.1/24 dev wan
             ip link add vx43 type vxlan id 43 local 10.1.2.1 remote 10.1.2.2 dstport 4789 dev wan
             ip address add 10.43.0.1/24 dev vx43; ip link set vx43 up",
        ),
        Script("gw", KERNEL),
        Script(
            "peer",
            "ip address add 10.1.2.2/24 dev eth0
             ip link add vx42 type vxlan id 42 local 10.1.2.2 remote 10.1.2.1 dstport 4789 dev eth0
             ip address add 10.42.0.3/24 dev vx42; ip link set vx42 up
             ip link add vx43 type vxlan id 43 local 10.1.2.2 remote 10.1.2.1 dstport 4789 dev eth0
             ip address add 10.43.0.2/24 dev vx43; ip link set vx43 up",
        ),
    ],
    hand_over: &[Script("gw", "ip link delete br0; ip link delete vx42")],
    give_back: &[Script("gw", KERNEL)],
    tables: "[port.lan]\ninterface = \"lan\"\nMODE\n[port.wan]\ninterface = \"wan\"\nrole = \"underlay\"\nMODE\n\
             [tunnel.swarm]\nkind = \"vxlan\"\nvni = 42\nlocal = \"10.1.2.1\"\nremote = \"10.1.2.2\"\nport = \"wan\"\n\
             [bridge.br0]\nmembers = [\"lan\", \"swarm\"]\n",
    ..Network::NONE
};

pub(super) const RECIPE: Recipe = Recipe {
    name: "swarm",
    programs: &["nft"],
    network: &NETWORK,
    probes: &[
        Probe::ping("own_vni", "host", "10.42.0.3"),
        Probe::ping("second_vni_of_the_kernel_out", "gw", "10.43.0.2"),
        Probe::ping("second_vni_of_the_kernel_in", "peer", "10.43.0.1"),
        Probe::ping("underlay_address", "peer", "10.1.2.1"),
    ],
    mutants: &[
        Mutant::new("the WAN is not heard", WAN_DEAF, &["own_vni", "underlay_address"]),
        Mutant::new(
            "the second network is down",
            ("gw", "ip link set vx43 down", "ip link set vx43 up"),
            &["second_vni_of_the_kernel_out", "second_vni_of_the_kernel_in"],
        ),
    ],
    ..NONE
};

const KERNEL: &str = "
    ip link add vx42 type vxlan id 42 local 10.1.2.1 remote 10.1.2.2 dstport 4789 dev wan
    ip link add br0 type bridge; ip link set br0 up; ip link set vx42 up
    ip link set vx42 master br0; ip link set lan master br0";
