//! A container by ipvlan on a bridge port.

use super::super::networks::PORTS;
use super::super::recipe::{Mutant, Network, Probe, Recipe, Script};
use super::ipvlan::{CONTAINER, MODULES, NEEDS};
use super::{HOST_DEAF, NONE};

const NETWORK: Network = Network { others: &["box"], ..PORTS };

pub(super) const RECIPE: Recipe = Recipe {
    name: "ipvlan_bridge",
    programs: &["nft"],
    modules: MODULES,
    needs: NEEDS,
    network: &NETWORK,
    setup: &[
        Script("gw", CONTAINER),
        Script("box", "ip address add 10.5.0.9/24 dev iv0; ip link set iv0 up"),
    ],
    probes: &[
        Probe::ping("container_from_the_lan", "host", "10.5.0.9").said(&["ipvlan"]),
        Probe::ping("lan_from_the_container", "box", "10.5.0.2").said(&["ipvlan"]),
        Probe::ping("bridged_beside_the_container", "host", "10.5.0.3").polder_alone(),
    ],
    mutants: &[Mutant::new(
        "the host hears nothing",
        HOST_DEAF,
        &["container_from_the_lan", "lan_from_the_container"],
    )],
    ..NONE
};
