//! FRR's pbrd: a policy of the LAN sends one host's packets by another uplink.

use super::super::networks::TWO_UPLINKS;
use super::super::recipe::{Ask, Mutant, Probe, Recipe, Script, Service};
use super::{FORWARDS_NOTHING, FRR_ZEBRA, NONE, frr};

pub(super) const RECIPE: Recipe = Recipe {
    name: "frr_pbr",
    programs: &["zebra", "pbrd", "vtysh", "nft"],
    network: &TWO_UPLINKS,
    setup: &[Script("host", "ip address add 10.1.1.22/24 dev eth0")],
    services: &[
        FRR_ZEBRA,
        Service::program("gw", frr!("pbrd")).with(&[(
            "pbrd.conf",
            "log stdout
pbr-map one seq 10
 match src-ip 10.1.1.2/32
 set nexthop 10.1.3.2
!
interface lan
 pbr-policy one
!
",
        )]),
    ],
    probes: &[
        Probe::new(
            "selected_source_by_the_second_uplink",
            Ask::Passes { from: "host", to: "203.0.113.9", via: ("third", "eth0"), never: Some(("peer", "eth0")) },
        ),
        Probe::holds(
            "other_sources_by_the_first_uplink",
            "host",
            "ping -n -c 1 -W 0.5 -I 10.1.1.22 203.0.113.9",
        ),
        Probe::holds("rule_is_in_the_kernel", "gw", "ip rule | grep -q 'from 10.1.1.2 iif lan'"),
    ],
    mutants: &[
        Mutant::new(
            "the rule is gone",
            (
                "gw",
                "ip rule show | sed -n 's/^\\([0-9]*\\):\\t\\(.*iif lan.*\\) lookup \\([^ ]*\\).*/pref \\1 \\2 lookup \\3/p' >{dir}/rule
                 ip rule delete $(cat {dir}/rule)",
                "ip rule add proto zebra $(cat {dir}/rule)",
            ),
            &["selected_source_by_the_second_uplink", "rule_is_in_the_kernel"],
        ),
        Mutant::new("nothing is forwarded", FORWARDS_NOTHING, &["other_sources_by_the_first_uplink"]),
    ],
    refused: &["iif lan"],
    ..NONE
};
