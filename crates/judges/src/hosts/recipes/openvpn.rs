//! OpenVPN over tun with two half-defaults: the whole Internet by the tunnel.

use super::super::recipe::{Ask, Mutant, Probe, Recipe, Script, Service};
use super::{NONE, PEER_DEAF};

pub(super) const RECIPE: Recipe = Recipe {
    name: "openvpn",
    programs: &["openvpn", "nft"],
    setup: &[KEY],
    services: &[
        Service::program("peer", FAR_END),
        Service::program(
            "gw",
            "exec openvpn --dev vpn0 --dev-type tun --ifconfig 10.8.0.1 10.8.0.2 --local 10.1.2.1 --remote 10.1.2.2 \
             --secret {dir}/../key --cipher AES-256-CBC --auth SHA256 \
             --keepalive 1 10 --redirect-gateway def1",
        ),
    ],
    probes: &[
        Probe::ping("inside_of_the_tunnel_from_the_gateway", "gw", "10.8.0.2"),
        Probe::ping("inside_of_the_tunnel_from_the_lan", "host", "10.8.0.2"),
        Probe::ping("internet_by_the_tunnel", "host", "203.0.113.9"),
        Probe::new(
            "nothing_in_the_clear",
            Ask::Passes {
                from: "host",
                to: "203.0.113.9",
                via: ("peer", "vpn0"),
                never: Some(("peer", "eth0")),
            },
        ),
        Probe::new(
            "from_the_tunnel_into_the_lan",
            Ask::Ping { from: "peer", to: "10.1.1.2", options: "-I 10.8.0.2" },
        ),
        Probe::new(
            "large_packets_by_the_tunnel",
            Ask::Ping { from: "host", to: "203.0.113.9", options: "-s 3000" },
        ),
        Probe::holds("half_defaults_are_in_the_kernel", "gw", "ip route show 128.0.0.0/1 | grep -q vpn0"),
    ],
    mutants: &[
        Mutant::new(
            "the tunnel is dead",
            PEER_DEAF,
            &[
                "inside_of_the_tunnel_from_the_gateway",
                "inside_of_the_tunnel_from_the_lan",
                "internet_by_the_tunnel",
                "from_the_tunnel_into_the_lan",
                "large_packets_by_the_tunnel",
            ],
        ),
        Mutant::new(
            "a half goes by the clear",
            ("gw", "ip route delete 128.0.0.0/1", "ip route add 128.0.0.0/1 via 10.8.0.2"),
            &["nothing_in_the_clear", "half_defaults_are_in_the_kernel"],
        ),
    ],
    ..NONE
};

/// The key of both ends.
pub(super) const KEY: Script = Script("gw", "openvpn --genkey secret {dir}/../key; chmod 644 {dir}/../key");
/// The far end, behind which the Internet is.
pub(super) const FAR_END: &str = "exec openvpn --dev vpn0 --dev-type tun --ifconfig 10.8.0.2 10.8.0.1 --local 10.1.2.2 --float \
     --secret {dir}/../key --cipher AES-256-CBC --auth SHA256 \
     --keepalive 1 10 --route 10.1.1.0 255.255.255.0";
