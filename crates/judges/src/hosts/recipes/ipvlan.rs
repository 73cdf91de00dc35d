//! A container by ipvlan on a router's port: a station of the LAN with the port's own link-layer address.

use super::super::networks::ROUTER;
use super::super::recipe::{Mutant, Network, Probe, Recipe, Script};
use super::{FORWARDS_NOTHING, HOST_DEAF, NONE};

const NETWORK: Network = Network { others: &["box"], ..ROUTER };

pub(super) const RECIPE: Recipe = Recipe {
    name: "ipvlan",
    programs: &["nft"],
    modules: MODULES,
    needs: NEEDS,
    network: &NETWORK,
    setup: &[
        Script("gw", CONTAINER),
        Script(
            "box",
            "ip address add 10.1.1.9/24 dev iv0; ip link set iv0 up; ip route add default via 10.1.1.1",
        ),
    ],
    probes: &[
        Probe::ping("container_from_the_lan", "host", "10.1.1.9").said(&["ipvlan"]),
        Probe::ping("lan_from_the_container", "box", "10.1.1.2").said(&["ipvlan"]),
        Probe::ping("ipv4_out_beside_the_container", "host", "203.0.113.9"),
        Probe::ping("ipv6_in_beside_the_container", "peer", "2001:db8:1::2"),
        Probe::ping("the_gateway_beside_the_container", "host", "10.1.1.1"),
    ],
    mutants: &[
        Mutant::new(
            "the host hears nothing",
            HOST_DEAF,
            &["container_from_the_lan", "lan_from_the_container", "the_gateway_beside_the_container"],
        ),
        Mutant::new(
            "nothing is forwarded",
            FORWARDS_NOTHING,
            &["ipv4_out_beside_the_container", "ipv6_in_beside_the_container"],
        ),
    ],
    ..NONE
};

pub(super) const MODULES: &[&str] = &["ipvlan"];
pub(super) const NEEDS: &str = "ip link add d0 type dummy; ip link add iv0 link d0 type ipvlan mode l2";
pub(super) const CONTAINER: &str =
    "ip link add iv0 link lan type ipvlan mode l2; ip link set iv0 netns $(cat {dir}/../box/name)";
