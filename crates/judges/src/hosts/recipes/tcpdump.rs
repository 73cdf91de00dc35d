//! tcpdump on a router's port: packets of the gateway itself, and forwarded packets.

use super::super::recipe::{Mutant, Probe, Recipe, Script, Service};
use super::NONE;

/// Runs tcpdump until it has seen a packet, beside pings.
macro_rules! sees {
    ($interface:literal, $filter:literal, $ping:literal) => {
        concat!(
            "timeout 2 tcpdump -n -p -U -i ",
            $interface,
            " -c 1 -w /dev/null '",
            $filter,
            "' 2>{dir}/tcpdump.log & process=$!
             i=0; until grep -q 'listening on' {dir}/tcpdump.log; do i=$((i+1)); [ $i -lt 60 ] || exit 1; sleep 0.03; done
             ip netns exec $(cat {dir}/../host/name) ping -n -q -c 3 -i 0.05 -W 0.3 ",
            $ping,
            " >/dev/null; wait $process"
        )
    };
}

pub(super) const RECIPE: Recipe = Recipe {
    name: "tcpdump",
    programs: &["tcpdump", "nft"],
    setup: &[Script("gw", "ip route replace 203.0.113.9 via 10.1.2.2")],
    // Those that run while `check` looks.
    services: &[
        Service::program("gw", "exec tcpdump -n -p -U -Z root -i lan -w {dir}/lan.pcap"),
        Service::program("gw", "exec tcpdump -n -p -U -Z root -i wan -w {dir}/wan.pcap"),
    ],
    probes: &[
        Probe::holds(
            "requests_to_the_gateway",
            "gw",
            sees!("lan", "icmp[0] == 8 and dst host 10.1.1.1", "10.1.1.1"),
        ),
        Probe::holds(
            "answers_of_the_gateway",
            "gw",
            sees!("lan", "icmp[0] == 0 and src host 10.1.1.1", "10.1.1.1"),
        ),
        Probe::holds(
            "forwarded_in",
            "gw",
            sees!("lan", "icmp[0] == 8 and dst host 203.0.113.9", "203.0.113.9"),
        )
        .said(&["tcpdump"]),
        Probe::holds(
            "forwarded_out",
            "gw",
            sees!("wan", "icmp[0] == 8 and dst host 203.0.113.9", "203.0.113.9"),
        )
        .said(&["tcpdump"]),
    ],
    mutants: &[Mutant::new(
        "the host sends nothing",
        ("host", "ip link set eth0 down", "ip link set eth0 up; ip route replace default via 10.1.1.1"),
        &["requests_to_the_gateway", "answers_of_the_gateway", "forwarded_in", "forwarded_out"],
    )],
    ..NONE
};
