//! A bond of two wires with LACP as a router's port.
//!
//! ```text
//!      ┌ e0 ── l0 ┐
//! host │ bond0    │ bond0 gw wan ── eth0 peer
//!      └ e1 ── l1 ┘
//! ```

use super::super::networks::ROUTER;
use super::super::recipe::{Ask, Mutant, Network, Probe, Recipe, Script, Wire};
use super::{FORWARDS_NOTHING, NONE};

const NETWORK: Network = Network {
    wires: &[
        Wire(("gw", "l0"), ("host", "e0")),
        Wire(("gw", "l1"), ("host", "e1")),
        Wire(("gw", "wan"), ("peer", "eth0")),
    ],
    setup: &[
        Script("gw", "ip link add lan type bond mode 802.3ad lacp_rate fast miimon 50"),
        Script(
            "gw",
            "for end in l0 l1; do ip link set $end down; ip link set $end master lan; done; ip link set lan up",
        ),
        Script("host", "ip link add eth0 type bond mode 802.3ad lacp_rate fast miimon 50"),
        Script(
            "host",
            "for end in e0 e1; do ip link set $end down; ip link set $end master eth0; done; ip link set eth0 up",
        ),
        ROUTER.setup[0],
        ROUTER.setup[1],
        ROUTER.setup[2],
        ROUTER.setup[3],
    ],
    ..ROUTER
};

pub(super) const RECIPE: Recipe = Recipe {
    name: "bond_lacp",
    programs: &["nft"],
    modules: &["bonding"],
    needs: "ip link add b0 type bond",
    network: &NETWORK,
    probes: &[
        Probe::holds("lacp_at_the_gateway", "gw", "[ $(grep -c 'port state: 63' /proc/net/bonding/lan) = 4 ]"),
        Probe::holds("lacp_at_the_other_side", "host", "[ $(grep -c 'port state: 63' /proc/net/bonding/eth0) = 4 ]"),
        Probe::ping("ipv4_out_by_the_bond", "host", "203.0.113.9"),
        Probe::ping("ipv6_in_by_the_bond", "peer", "2001:db8:1::2"),
        Probe::ping("the_gateway_by_the_bond", "host", "10.1.1.1"),
        Probe::new("large_datagram_by_the_bond", Ask::Ping { from: "host", to: "203.0.113.9", options: "-s 4000" }),
        Probe::holds("a_lost_wire_is_made_up_for", "host", LOSE),
    ],
    mutants: &[
        Mutant::new("nothing is forwarded", FORWARDS_NOTHING, &[
            "ipv4_out_by_the_bond",
            "ipv6_in_by_the_bond",
            "large_datagram_by_the_bond",
        ]),
        // The other side has no frame for three seconds, and takes its partner for gone.
        Mutant::new(
            "a wire is not heard at the other side",
            (
                "host",
                "nft add table netdev deaf
                 nft add chain netdev deaf e1 '{ type filter hook ingress device e1 priority -500; policy drop; }'; sleep 5",
                "nft delete table netdev deaf; sleep 3",
            ),
            &["lacp_at_the_gateway", "lacp_at_the_other_side"],
        ),
        Mutant::new(
            "the gateway's address is gone",
            ("gw", "ip address delete 10.1.1.1/24 dev lan", "ip address add 10.1.1.1/24 dev lan"),
            &["the_gateway_by_the_bond", "a_lost_wire_is_made_up_for"],
        ),
    ],
    ..NONE
};

/// Each of both wires is down for a while; the other one carries what there is.
const LOSE: &str = "
    for end in e0 e1; do
      ip link set $end down
      ping -n -q -c 4 -i 0.3 -W 1 203.0.113.9 | grep -q ' [1-4] received' && carries=yes || carries=no
      ip link set $end up
      [ $carries = yes ] || exit 1
      i=0; until [ $(grep -c 'port state: 63' /proc/net/bonding/eth0) = 4 ]; do i=$((i+1)); [ $i -lt 60 ] || exit 1; sleep 0.1; done
    done";
