//! WireGuard by `wg-quick`, with some networks by the tunnel: routes of the main table.

use super::super::recipe::{Ask, Mutant, Probe, Recipe, Script};
use super::wireguard::{
    CLEAR, CONFIGURATIONS, HANDSHAKE, INTO_THE_LAN, KEYS, MODULES, NEEDS, SERVICES, UNKNOWN,
};
use super::{NONE, PEER_DEAF};

pub(super) const RECIPE: Recipe = Recipe {
    name: "wireguard_site",
    programs: &["wg", "wg-quick", "nft"],
    modules: MODULES,
    needs: NEEDS,
    setup: &[
        KEYS,
        CONFIGURATIONS,
        Script(
            "gw",
            "sed -i 's|^AllowedIPs.*|AllowedIPs = 10.8.0.0/24, 203.0.113.9/32, 2001:db8:ffff::/64|' {dir}/wg0.conf",
        ),
    ],
    services: SERVICES,
    probes: &[
        Probe::ping("site_by_the_tunnel", "host", "203.0.113.9"),
        Probe::ping("ipv6_site_by_the_tunnel", "host", "2001:db8:ffff::9"),
        CLEAR,
        INTO_THE_LAN,
        Probe::new(
            "large_datagram_by_the_tunnel",
            Ask::Ping { from: "host", to: "203.0.113.9", options: "-s 3000" },
        ),
        HANDSHAKE,
    ],
    mutants: &[
        Mutant::new(
            "the peer hears nothing",
            PEER_DEAF,
            &[
                "site_by_the_tunnel",
                "ipv6_site_by_the_tunnel",
                "from_the_tunnel_into_the_lan",
                "large_datagram_by_the_tunnel",
            ],
        ),
        Mutant::new(
            "the route is gone",
            ("gw", "ip route delete 203.0.113.9/32", "ip route add 203.0.113.9/32 dev wg0"),
            &["nothing_in_the_clear"],
        ),
        Mutant::new("the far end is unknown", UNKNOWN, &["handshake"]),
    ],
    ..NONE
};
