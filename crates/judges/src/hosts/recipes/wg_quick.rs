//! State that `wg-quick` leaves in a kernel for `AllowedIPs = 0.0.0.0/0`: rules, a table and packet hooks. The tunnel itself is
//! OpenVPN's, whose packets have the mark that WireGuard's would have.

use super::super::recipe::{Ask, Mutant, Probe, Recipe, Service};
use super::openvpn::{FAR_END, KEY};
use super::{NONE, PEER_DEAF};

pub(super) const RECIPE: Recipe = Recipe {
    name: "wg_quick",
    programs: &["openvpn", "nft"],
    setup: &[KEY],
    services: &[
        Service::program("peer", FAR_END),
        Service::program(
            "gw",
            "exec openvpn --dev vpn0 --dev-type tun --ifconfig 10.8.0.1 10.8.0.2 --local 10.1.2.1 --remote 10.1.2.2 \
             --secret {dir}/../key --cipher AES-256-CBC --auth SHA256 \
             --keepalive 1 10 --mark 51820",
        ),
        Service::state("gw", UP, DOWN),
    ],
    probes: &[
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
        Probe::ping("internet_by_the_tunnel_from_the_gateway", "gw", "203.0.113.9"),
        Probe::ping("ipv4_of_the_main_table", "host", "10.1.2.2"),
        Probe::new(
            "from_the_tunnel_into_the_lan",
            Ask::Ping { from: "peer", to: "10.1.1.2", options: "-I 10.8.0.2" },
        ),
    ],
    mutants: &[
        Mutant::new(
            "the tunnel is dead",
            PEER_DEAF,
            &[
                "internet_by_the_tunnel",
                "internet_by_the_tunnel_from_the_gateway",
                "ipv4_of_the_main_table",
                "from_the_tunnel_into_the_lan",
            ],
        ),
        Mutant::new(
            "the rule is gone",
            (
                "gw",
                "ip rule delete table 51820",
                "ip rule add not fwmark 51820 table 51820; ip rule delete table main suppress_prefixlength 0; ip rule add table main suppress_prefixlength 0",
            ),
            &["nothing_in_the_clear"],
        ),
    ],
    refused: &["51820"],
    ..NONE
};

const UP: &str = "
    i=0; until ip link show vpn0 up 2>/dev/null | grep -q LOWER_UP; do i=$((i+1)); [ $i -lt 200 ]; sleep 0.05; done
    ip -4 route add 0.0.0.0/0 dev vpn0 table 51820
    ip -4 rule add not fwmark 51820 table 51820
    ip -4 rule add table main suppress_prefixlength 0
    echo 1 >/proc/sys/net/ipv4/conf/all/src_valid_mark
    nft -f - <<'END'
add table ip wg-quick-vpn0
add chain ip wg-quick-vpn0 preraw { type filter hook prerouting priority -300; }
add chain ip wg-quick-vpn0 premangle { type filter hook prerouting priority -150; }
add chain ip wg-quick-vpn0 postmangle { type filter hook postrouting priority -150; }
add rule ip wg-quick-vpn0 preraw iifname != \"vpn0\" ip daddr 10.8.0.1 fib saddr type != local drop
add rule ip wg-quick-vpn0 postmangle meta l4proto udp mark 51820 ct mark set mark
add rule ip wg-quick-vpn0 premangle meta l4proto udp meta mark set ct mark
END";
const DOWN: &str = "
    nft delete table ip wg-quick-vpn0
    ip -4 rule delete table 51820; ip -4 rule delete table main suppress_prefixlength 0
    ip -4 route flush table 51820";
