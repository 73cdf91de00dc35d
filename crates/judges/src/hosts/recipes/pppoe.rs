//! PPPoE: the WAN is pppd's `ppp0` above a port's interface.

use super::super::networks::ROUTER;
use super::super::recipe::{Ask, Mutant, Network, Probe, Recipe, Script, Service};
use super::{FORWARDS_NOTHING, NONE, WAN_DEAF};

const NETWORK: Network = Network {
    setup: &[
        Script("gw", "echo 1 >/proc/sys/net/ipv4/ip_forward; ip address add 10.1.1.1/24 dev lan"),
        Script("host", "ip address add 10.1.1.2/24 dev eth0; ip route add default via 10.1.1.1"),
        Script("peer", "ip address add 203.0.113.9/32 dev lo"),
    ],
    ..ROUTER
};

pub(super) const RECIPE: Recipe = Recipe {
    name: "pppoe",
    programs: &["pppd", "pppoe-server", "python3", "nft"],
    modules: &["pppoe", "ppp_async"],
    needs: "[ -c /dev/ppp ]; python3 -c 'import socket; socket.socket(24, socket.SOCK_STREAM)'",
    network: &NETWORK,
    services: &[
        Service::state(
            "peer",
            "chmod +x {dir}/up
             pppoe-server -I eth0 -L 10.9.0.1 -R 10.9.0.100 -N 4 -O {dir}/options -X {dir}/pid",
            "kill $(cat {dir}/pid); rm -f {dir}/pid",
        )
        .with(&[("options", ACCESS), ("up", BACK)]),
        Service::program(
            "gw",
            "exec pppd plugin rp-pppoe.so nic-wan nodetach noauth noipdefault defaultroute persist maxfail 0 holdoff 1 \
             lcp-echo-interval 1 lcp-echo-failure 30 ip-up-script /bin/true ip-down-script /bin/true",
        ),
    ],
    probes: &[
        Probe::ping("access_concentrator_by_the_session", "gw", "10.9.0.1"),
        Probe::ping("ipv4_out_by_the_session", "host", "203.0.113.9"),
        Probe::ping("ipv4_in_by_the_session", "peer", "10.1.1.2"),
        Probe::new(
            "large_datagram_by_the_session",
            Ask::Ping { from: "host", to: "203.0.113.9", options: "-s 3000" },
        ),
        Probe::holds(
            "path_mtu_of_the_session",
            "host",
            "ip route flush cache; ping -n -c 1 -W 1 -M do -s 1472 203.0.113.9 2>&1 | grep -q 'mtu *= *1492'",
        ),
    ],
    mutants: &[
        Mutant::new(
            "nothing is forwarded",
            FORWARDS_NOTHING,
            &[
                "ipv4_out_by_the_session",
                "ipv4_in_by_the_session",
                "large_datagram_by_the_session",
                "path_mtu_of_the_session",
            ],
        ),
        Mutant::new("the WAN is not heard", WAN_DEAF, &["access_concentrator_by_the_session"]),
    ],
    ..NONE
};

const ACCESS: &str = "noauth
nodetach
lcp-echo-interval 1
lcp-echo-failure 30
ip-up-script {dir}/up
ip-down-script /bin/true
";
const BACK: &str = "#!/bin/sh
exec /sbin/ip route replace 10.1.1.0/24 dev $1
";
