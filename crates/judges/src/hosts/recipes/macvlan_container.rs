//! A container by macvlan on a bridge port, in a namespace of its own.

use super::super::networks::PORTS;
use super::super::recipe::{Ask, Mutant, Network, Probe, Recipe, Script};
use super::{HOST_DEAF, NONE};

const NETWORK: Network = Network { others: &["box"], ..PORTS };

pub(super) const RECIPE: Recipe = Recipe {
    name: "macvlan_container",
    programs: &["nft"],
    network: &NETWORK,
    setup: &[
        Script(
            "gw",
            "ip link add mv0 link lan type macvlan mode bridge; ip link set mv0 netns $(cat {dir}/../box/name)",
        ),
        Script(
            "box",
            "ip address add 10.5.0.9/24 dev mv0; ip link set mv0 up
             mac=$(ip netns exec $(cat {dir}/../host/name) cat /sys/class/net/eth0/address)
             ip neighbour replace 10.5.0.2 lladdr $mac dev mv0",
        ),
    ],
    probes: &[
        Probe::ping("container_from_the_lan", "host", "10.5.0.9").said(&["macvlan"]),
        // What it sends leaves by the wire; it is what it hears that the bridge takes.
        Probe::new(
            "frames_of_the_container",
            Ask::Passes { from: "box", to: "10.5.0.2", via: ("host", "eth0"), never: None },
        ),
        Probe::ping("bridged_beside_the_container", "host", "10.5.0.3").polder_alone(),
    ],
    mutants: &[
        Mutant::new("the host hears nothing", HOST_DEAF, &["container_from_the_lan"]),
        Mutant::new(
            "the container sends nothing",
            (
                "box",
                "nft add table inet mute; nft add chain inet mute out '{ type filter hook output priority 0; policy drop; }'",
                "nft delete table inet mute",
            ),
            &["frames_of_the_container"],
        ),
    ],
    ..NONE
};
