//! Networks of the recipes.

use super::recipe::{Network, Script, Wire};

/// A gateway that routes between a host and a peer, behind which the rest of the world is.
///
/// ```text
/// host eth0 ── lan gw wan ── eth0 peer
/// ```
pub(super) const ROUTER: Network = Network {
    wires: &[Wire(("gw", "lan"), ("host", "eth0")), Wire(("gw", "wan"), ("peer", "eth0"))],
    setup: &[Script("gw", FORWARDS), Script("gw", GATEWAY), Script("host", HOST), Script("peer", PEER)],
    tables: ROUTER_TABLES,
    ..Network::NONE
};

/// A router on a segment with two others: the switch is a namespace of its own.
///
/// ```text
/// host eth0 ── p1 switch p2 ── lan gw wan ── eth0 peer
///                        p3 ── eth0 second eth1 ── eth1 peer
/// ```
pub(super) const SEGMENT: Network = Network {
    wires: &[
        Wire(("switch", "p1"), ("host", "eth0")),
        Wire(("switch", "p2"), ("gw", "lan")),
        Wire(("switch", "p3"), ("second", "eth0")),
        Wire(("gw", "wan"), ("peer", "eth0")),
        Wire(("second", "eth1"), ("peer", "eth1")),
    ],
    setup: &[
        Script("switch", SWITCH),
        Script("gw", FORWARDS),
        Script("gw", GATEWAY),
        Script("host", HOST),
        Script("peer", PEER),
        Script("second", FORWARDS),
        Script(
            "second",
            "ip address add 10.1.1.3/24 dev eth0
             ip address add 10.1.3.1/24 dev eth1
             ip route add default via 10.1.3.2",
        ),
        Script("peer", "ip address add 10.1.3.2/24 dev eth1"),
    ],
    tables: ROUTER_TABLES,
    ..Network::NONE
};

/// A gateway with two ways out.
///
/// ```text
/// host eth0 ── lan gw wan ── eth0 peer
///                     dmz ── eth0 third
/// ```
pub(super) const TWO_UPLINKS: Network = Network {
    wires: &[
        Wire(("gw", "lan"), ("host", "eth0")),
        Wire(("gw", "wan"), ("peer", "eth0")),
        Wire(("gw", "dmz"), ("third", "eth0")),
    ],
    setup: &[
        Script("gw", FORWARDS),
        Script("gw", GATEWAY),
        Script("gw", "ip address add 10.1.3.1/24 dev dmz"),
        Script("host", HOST),
        Script("peer", PEER),
        Script("third", THIRD),
    ],
    tables: "[port.lan]\ninterface = \"lan\"\nrole = \"router\"\nMODE\n\
             [port.wan]\ninterface = \"wan\"\nrole = \"router\"\nMODE\n\
             [port.dmz]\ninterface = \"dmz\"\nrole = \"router\"\nMODE\n",
    ..Network::NONE
};

/// A bridge between a host and a peer, in which the gateway takes part: the kernel's, or Polder's with a TAP.
///
/// ```text
/// host eth0 ── lan [br0 of gw] wan ── eth0 peer
/// ```
pub(super) const BRIDGE: Network = Network {
    wires: &[Wire(("gw", "lan"), ("host", "eth0")), Wire(("gw", "wan"), ("peer", "eth0"))],
    setup: &[
        Script("host", "ip address add 10.5.0.2/24 dev eth0"),
        Script("peer", "ip address add 10.5.0.3/24 dev eth0"),
        Script("gw", KERNEL_BRIDGE),
    ],
    hand_over: &[Script("gw", "ip link delete br0")],
    // The TAP has another link-layer address than the bridge had, and the stations are told.
    arrived: &[Script(
        "gw",
        "echo 1 >/proc/sys/net/ipv4/conf/br0/arp_notify; ip address add 10.5.0.1/24 dev br0; ip link set br0 up",
    )],
    give_back: &[Script("gw", KERNEL_BRIDGE)],
    tables: BRIDGE_TABLES,
    ..Network::NONE
};

/// The same interfaces without a bridge in the kernel; only Polder bridges them.
pub(super) const PORTS: Network = Network {
    setup: &[
        Script("host", "ip address add 10.5.0.2/24 dev eth0"),
        Script("peer", "ip address add 10.5.0.3/24 dev eth0"),
    ],
    hand_over: &[],
    give_back: &[],
    ..BRIDGE
};

const FORWARDS: &str = "cd /proc/sys/net; echo 1 >ipv4/ip_forward; echo 1 >ipv6/conf/all/forwarding";
const GATEWAY: &str = "
    ip address add 10.1.1.1/24 dev lan; ip address add 2001:db8:1::1/64 dev lan nodad
    ip address add 10.1.2.1/24 dev wan; ip address add 2001:db8:2::1/64 dev wan nodad
    ip route add default via 10.1.2.2; ip -6 route add default via 2001:db8:2::2";
const HOST: &str = "
    ip address add 10.1.1.2/24 dev eth0; ip address add 2001:db8:1::2/64 dev eth0 nodad
    ip route add default via 10.1.1.1; ip -6 route add default via 2001:db8:1::1";
const PEER: &str = "
    ip address add 10.1.2.2/24 dev eth0; ip address add 2001:db8:2::2/64 dev eth0 nodad
    ip address add 203.0.113.9/32 dev lo; ip address add 2001:db8:ffff::9/128 dev lo
    ip route add default via 10.1.2.1; ip -6 route add default via 2001:db8:2::1";
const THIRD: &str = "
    ip address add 10.1.3.2/24 dev eth0
    ip address add 203.0.113.9/32 dev lo; ip address add 198.51.100.9/32 dev lo
    ip route add default via 10.1.3.1";
const SWITCH: &str = "
    ip link add br0 type bridge; ip link set br0 up
    for port in p1 p2 p3; do ip link set $port master br0; done";
const KERNEL_BRIDGE: &str = "
    ip link add br0 type bridge; ip link set lan master br0; ip link set wan master br0
    echo 1 >/proc/sys/net/ipv4/conf/br0/arp_notify; ip address add 10.5.0.1/24 dev br0; ip link set br0 up";
const ROUTER_TABLES: &str = "[port.lan]\ninterface = \"lan\"\nrole = \"router\"\nMODE\n\
                             [port.wan]\ninterface = \"wan\"\nrole = \"router\"\nMODE\n";
const BRIDGE_TABLES: &str = "[port.lan]\ninterface = \"lan\"\nMODE\n[port.wan]\ninterface = \"wan\"\nMODE\n\
                             [port.host]\ntap = \"br0\"\n[bridge.br0]\nmembers = [\"lan\", \"wan\", \"host\"]\n";
