//! WireGuard by `wg-quick`, with the whole Internet by the tunnel: routes of a table of its own, rules and packet hooks.

use super::super::recipe::{Ask, Mutant, Probe, Recipe, Script, Service};
use super::{NONE, PEER_DEAF};

pub(super) const RECIPE: Recipe = Recipe {
    name: "wireguard",
    programs: &["wg", "wg-quick", "nft"],
    modules: MODULES,
    needs: NEEDS,
    setup: &[KEYS, CONFIGURATIONS],
    services: SERVICES,
    probes: &[
        Probe::ping("internet_by_the_tunnel", "host", "203.0.113.9"),
        Probe::ping("ipv6_internet_by_the_tunnel", "host", "2001:db8:ffff::9"),
        CLEAR,
        Probe::ping("internet_by_the_tunnel_from_the_gateway", "gw", "203.0.113.9"),
        INTO_THE_LAN,
        Probe::new(
            "large_datagram_by_the_tunnel",
            Ask::Ping { from: "host", to: "203.0.113.9", options: "-s 3000" },
        ),
        HANDSHAKE,
    ],
    mutants: &[
        Mutant::new(
            "the tunnel is dead",
            PEER_DEAF,
            &[
                "internet_by_the_tunnel",
                "ipv6_internet_by_the_tunnel",
                "internet_by_the_tunnel_from_the_gateway",
                "from_the_tunnel_into_the_lan",
                "large_datagram_by_the_tunnel",
            ],
        ),
        Mutant::new(
            "the rule is gone",
            (
                "gw",
                "ip rule delete table 51820",
                "ip rule add not fwmark 51820 table 51820; ip rule delete table main suppress_prefixlength 0
                 ip rule add table main suppress_prefixlength 0",
            ),
            &["nothing_in_the_clear"],
        ),
        Mutant::new("the far end is unknown", UNKNOWN, &["handshake"]),
    ],
    refused: &["51820"],
    ..NONE
};

pub(super) const MODULES: &[&str] = &["wireguard"];
pub(super) const NEEDS: &str = "ip link add w0 type wireguard";

/// Tunnels of both ends.
pub(super) const SERVICES: &[Service] = &[
    Service::state("peer", "wg-quick up {dir}/wg0.conf", "wg-quick down {dir}/wg0.conf"),
    Service::state("gw", "wg-quick up {dir}/wg0.conf", "wg-quick down {dir}/wg0.conf"),
];

/// Keys of both ends, in the folder above theirs.
pub(super) const KEYS: Script = Script(
    "gw",
    "umask 077; cd {dir}/..; for end in near far; do wg genkey >$end.key; wg pubkey <$end.key >$end.pub; done",
);
/// Files of both ends. WireGuard itself tells the peer where the gateway is.
pub(super) const CONFIGURATIONS: Script = Script(
    "gw",
    "umask 077; cd {dir}/..
     cat >gw/wg0.conf <<END
[Interface]
PrivateKey = $(cat near.key)
Address = 10.8.0.1/24
[Peer]
PublicKey = $(cat far.pub)
Endpoint = 10.1.2.2:51820
AllowedIPs = 0.0.0.0/0, ::/0
PersistentKeepalive = 1
END
     cat >peer/wg0.conf <<END
[Interface]
PrivateKey = $(cat far.key)
Address = 10.8.0.2/24
ListenPort = 51820
[Peer]
PublicKey = $(cat near.pub)
AllowedIPs = 10.8.0.1/32, 10.1.1.0/24, 2001:db8:1::/64
END",
);

pub(super) const CLEAR: Probe = Probe::new(
    "nothing_in_the_clear",
    Ask::Passes { from: "host", to: "203.0.113.9", via: ("peer", "wg0"), never: Some(("peer", "eth0")) },
);
pub(super) const INTO_THE_LAN: Probe = Probe::new(
    "from_the_tunnel_into_the_lan",
    Ask::Ping { from: "peer", to: "10.1.1.2", options: "-I 10.8.0.2" },
);
pub(super) const HANDSHAKE: Probe =
    Probe::holds("handshake", "gw", "wg show wg0 latest-handshakes | awk 'END { exit !($2 > 0) }'");

/// The gateway forgets the peer's key.
pub(super) const UNKNOWN: super::Fault = (
    "gw",
    "wg set wg0 peer $(cat {dir}/../far.pub) remove",
    "wg-quick strip {dir}/wg0.conf >{dir}/stripped; wg addconf wg0 {dir}/stripped",
);
