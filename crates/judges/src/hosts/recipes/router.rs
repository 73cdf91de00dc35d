//! A router without further software: what any host does.

use super::super::recipe::{Ask, Mutant, Probe, Recipe, Service};
use super::{FORWARDS_NOTHING, LAN_DEAF, NONE, WAN_DEAF, accepts};

pub(super) const RECIPE: Recipe = Recipe {
    name: "router",
    programs: &["python3", "bash", "nft"],
    services: &[Service::program("gw", accepts!(8080))],
    probes: &[
        Probe::ping("ipv4_out", "host", "203.0.113.9"),
        Probe::ping("ipv4_in", "peer", "10.1.1.2"),
        Probe::ping("ipv6_out", "host", "2001:db8:ffff::9"),
        Probe::ping("ipv6_in", "peer", "2001:db8:1::2"),
        Probe::ping("ipv4_to_the_gateway", "host", "10.1.1.1"),
        Probe::ping("ipv4_to_the_far_address_of_the_gateway", "host", "10.1.2.1"),
        Probe::ping("ipv6_to_the_gateway", "host", "2001:db8:1::1"),
        Probe::ping("ipv4_from_the_gateway", "gw", "203.0.113.9"),
        Probe::ping("ipv6_from_the_gateway", "gw", "2001:db8:ffff::9"),
        Probe::new(
            "large_datagram_to_the_gateway",
            Ask::Ping { from: "host", to: "10.1.1.1", options: "-s 4000" },
        ),
        Probe::new("large_datagram_out", Ask::Ping { from: "host", to: "203.0.113.9", options: "-s 4000" }),
        Probe::holds("tcp_to_the_gateway", "host", "timeout 1 bash -c '</dev/tcp/10.1.1.1/8080'"),
        Probe::holds(
            "hop_limit_exceeded",
            "host",
            "ping -n -c 1 -W 0.5 -t 1 203.0.113.9 | grep -q 'From 10.1.1.1.*exceeded'",
        ),
        Probe::holds("link_local_all_nodes", "host", "ping -n -c 1 -W 0.5 ff02::2%eth0"),
    ],
    mutants: &[
        Mutant::new(
            "nothing is forwarded",
            FORWARDS_NOTHING,
            &["ipv4_out", "ipv4_in", "ipv6_out", "ipv6_in", "large_datagram_out"],
        ),
        Mutant::new(
            "the LAN is not heard",
            LAN_DEAF,
            &[
                "ipv4_to_the_gateway",
                "ipv4_to_the_far_address_of_the_gateway",
                "ipv6_to_the_gateway",
                "large_datagram_to_the_gateway",
                "tcp_to_the_gateway",
                "hop_limit_exceeded",
                "link_local_all_nodes",
            ],
        ),
        Mutant::new("the WAN is not heard", WAN_DEAF, &["ipv4_from_the_gateway", "ipv6_from_the_gateway"]),
    ],
    ..NONE
};
