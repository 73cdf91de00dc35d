//! A container by macvlan on a router's port, in a namespace of its own: a station of the LAN with a MAC of its own.

use super::super::networks::ROUTER as NETS;
use super::super::recipe::{Mutant, Network, Probe, Recipe, Script};
use super::{HOST_DEAF, NONE};

const NETWORK: Network = Network { others: &["box"], ..NETS };

pub(super) const RECIPE: Recipe = Recipe {
    name: "macvlan_router",
    programs: &["nft"],
    network: &NETWORK,
    setup: &[
        Script(
            "gw",
            "ip link add mv0 link lan type macvlan mode bridge; ip link set mv0 netns $(cat {dir}/../box/name)",
        ),
        Script("box", "ip address add 10.1.1.9/24 dev mv0; ip link set mv0 up"),
    ],
    probes: &[
        Probe::ping("container_from_the_lan", "host", "10.1.1.9"),
        Probe::ping("lan_from_the_container", "box", "10.1.1.2"),
    ],
    mutants: &[Mutant::new(
        "the host hears nothing",
        HOST_DEAF,
        &["container_from_the_lan", "lan_from_the_container"],
    )],
    ..NONE
};
