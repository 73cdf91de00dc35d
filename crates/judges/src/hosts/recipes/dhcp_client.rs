//! A gateway whose address outside is a lease, by udhcpc.

use super::super::recipe::{Mutant, Network, Probe, Recipe, Script, Service};
use super::{FORWARDS_NOTHING, NONE, ROUTER, WAN_DEAF};

const NETWORK: Network = Network {
    setup: &[
        Script("gw", "echo 1 >/proc/sys/net/ipv4/ip_forward; ip address add 10.1.1.1/24 dev lan"),
        Script("host", "ip address add 10.1.1.2/24 dev eth0; ip route add default via 10.1.1.1"),
        Script(
            "peer",
            "ip address add 10.1.2.2/24 dev eth0; ip address add 203.0.113.9/32 dev lo
             ip route add 10.1.1.0/24 via 10.1.2.50",
        ),
    ],
    ..ROUTER
};

pub(super) const RECIPE: Recipe = Recipe {
    name: "dhcp_client",
    programs: &["dnsmasq", "udhcpc", "nft"],
    network: &NETWORK,
    services: &[
        Service::program(
            "peer",
            "exec dnsmasq -k -C /dev/null -p 0 -i eth0 -z -u root -x {dir}/pid -l {dir}/leases --dhcp-authoritative \
             --no-ping --dhcp-range=10.1.2.50,10.1.2.50,2m",
        ),
        Service::program("gw", "chmod +x {dir}/script; exec udhcpc -f -p {dir}/pid -i wan -t 3 -T 1 -A 1 -s {dir}/script")
            .with(&[("script", CLIENT)]),
    ],
    probes: &[
        Probe::holds("dhcp_lease_outside", "gw", "ip address show dev wan | grep -q 'inet 10.1.2.50/'"),
        Probe::ping("ipv4_out_by_the_lease", "host", "203.0.113.9"),
        Probe::ping("ipv4_in_by_the_lease", "peer", "10.1.1.2"),
        Probe::holds(
            "dhcp_renewal",
            "gw",
            "rm -f {dir}/renewed; kill -USR1 $(cat {dir}/pid)
             for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; do [ -e {dir}/renewed ] && exit 0; sleep 0.1; done; exit 1",
        ),
    ],
    mutants: &[
        Mutant::new(
            "the lease is lost",
            ("gw", "ip address flush dev wan", "ip address add 10.1.2.50/24 dev wan; ip route replace default via 10.1.2.2"),
            &["dhcp_lease_outside"],
        ),
        Mutant::new("nothing is forwarded", FORWARDS_NOTHING, &["ipv4_out_by_the_lease", "ipv4_in_by_the_lease"]),
        Mutant::new("the WAN is not heard", WAN_DEAF, &["dhcp_renewal"]),
    ],
    ..NONE
};

const CLIENT: &str = "#!/bin/sh
[ $1 = renew ] && touch {dir}/renewed
[ $1 = bound ] || [ $1 = renew ] || exit 0
ip address replace $ip/$mask dev $interface
ip route replace default via 10.1.2.2
";
