//! IPv6 of OpenWrt: default routes with a source prefix, one for each uplink.

use super::super::networks::TWO_UPLINKS;
use super::super::recipe::{Ask, Mutant, Probe, Recipe, Script};
use super::{FORWARDS_NOTHING, NONE};

pub(super) const RECIPE: Recipe = Recipe {
    name: "source_specific",
    network: &TWO_UPLINKS,
    setup: &[
        Script(
            "gw",
            "ip -6 route delete default
             ip address add 2001:db8:3::1/64 dev dmz nodad; ip address add 2001:db8:11::1/64 dev lan nodad
             ip -6 route add default from 2001:db8:1::/64 via 2001:db8:2::2 dev wan proto static metric 512
             ip -6 route add default from 2001:db8:11::/64 via 2001:db8:3::2 dev dmz proto static metric 512",
        ),
        Script("host", "ip address add 2001:db8:11::2/64 dev eth0 nodad"),
        Script(
            "third",
            "ip address add 2001:db8:3::2/64 dev eth0 nodad; ip address add 2001:db8:fff3::9/128 dev lo
             ip -6 route add default via 2001:db8:3::1",
        ),
    ],
    probes: &[
        Probe::new(
            "ipv6_out_by_the_first_prefix",
            Ask::Ping { from: "host", to: "2001:db8:ffff::9", options: "-I 2001:db8:1::2" },
        ),
        Probe::new(
            "ipv6_out_by_the_second_prefix",
            Ask::Ping { from: "host", to: "2001:db8:fff3::9", options: "-I 2001:db8:11::2" },
        ),
        Probe::ping("ipv6_in", "peer", "2001:db8:1::2"),
        Probe::ping("ipv6_between_local_prefixes", "peer", "2001:db8:3::1"),
        Probe::ping("ipv4_out", "host", "203.0.113.9"),
    ],
    mutants: &[
        Mutant::new(
            "nothing is forwarded",
            FORWARDS_NOTHING,
            &["ipv6_out_by_the_first_prefix", "ipv6_out_by_the_second_prefix", "ipv6_in", "ipv4_out"],
        ),
        Mutant::new("the WAN is not heard", super::WAN_DEAF, &["ipv6_between_local_prefixes"]),
    ],
    ..NONE
};
