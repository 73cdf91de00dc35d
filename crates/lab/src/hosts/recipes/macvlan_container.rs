//! A container by macvlan on a bridge port, in a namespace of its own.

use super::super::networks::PORTS;
use super::super::recipe::{Mutant, Network, Probe, Recipe, Script};
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
        Script("box", "ip address add 10.5.0.9/24 dev mv0; ip link set mv0 up"),
    ],
    probes: &[
        Probe::ping("container_from_the_lan", "host", "10.5.0.9").said(&["macvlan"]),
        Probe::ping("lan_from_the_container", "box", "10.5.0.2").said(&["macvlan"]),
        Probe::ping("bridged_beside_the_container", "host", "10.5.0.3").polder_alone(),
    ],
    mutants: &[Mutant::new(
        "the host hears nothing",
        HOST_DEAF,
        &["container_from_the_lan", "lan_from_the_container"],
    )],
    ..NONE
};
