//! VLANs on a router's port: the kernel's interfaces, with dnsmasq in one of them.
//!
//! ```text
//!  left  (v10) ─┐
//!  right (v20) ─┼─ eth0 host ═══ lan, lan.10, lan.20 gw wan ── eth0 peer
//! ```

use super::super::networks::ROUTER as NETS;
use super::super::recipe::{Ask, Mutant, Network, Probe, Recipe, Script, Service};
use super::{FORWARDS_NOTHING, LAN_DEAF, NONE};

const NETWORK: Network = Network { others: &["left", "right"], ..NETS };

pub(super) const RECIPE: Recipe = Recipe {
    name: "vlan_router",
    programs: &["dnsmasq", "udhcpc", "nft"],
    modules: &["8021q"],
    needs: "ip link add d0 type dummy; ip link add link d0 name d0.1 type vlan id 1",
    network: &NETWORK,
    setup: &[
        Script(
            "gw",
            "for vlan in 10 20; do
               ip link add link lan name lan.$vlan type vlan id $vlan
               ip address add 10.1.$vlan.1/24 dev lan.$vlan
               ip address add 2001:db8:$vlan::1/64 dev lan.$vlan nodad
               ip link set lan.$vlan up
             done",
        ),
        Script(
            "host",
            "for vlan in 10 20; do ip link add link eth0 name v$vlan type vlan id $vlan; done
             ip link set v10 netns $(cat {dir}/../left/name); ip link set v20 netns $(cat {dir}/../right/name)",
        ),
        Script(
            "left",
            "ip address add 10.1.10.2/24 dev v10; ip address add 2001:db8:10::2/64 dev v10 nodad; ip link set v10 up
             ip route add default via 10.1.10.1; ip -6 route add default via 2001:db8:10::1",
        ),
        Script(
            "right",
            "ip address add 10.1.20.2/24 dev v20; ip address add 2001:db8:20::2/64 dev v20 nodad; ip link set v20 up
             ip route add default via 10.1.20.1; ip -6 route add default via 2001:db8:20::1",
        ),
    ],
    services: &[Service::program(
        "gw",
        "exec dnsmasq -k -C /dev/null -p 0 -i lan.10 -z -u root -x {dir}/pid -l {dir}/leases --dhcp-authoritative \
         --no-ping --dhcp-range=10.1.10.50,10.1.10.60,2m",
    )],
    probes: &[
        Probe::ping("ipv4_from_vlan_to_vlan", "left", "10.1.20.2"),
        Probe::ping("ipv6_from_vlan_to_vlan", "left", "2001:db8:20::2"),
        Probe::ping("ipv4_out_of_a_vlan", "right", "203.0.113.9"),
        Probe::ping("ipv4_without_a_tag_into_a_vlan", "host", "10.1.10.2"),
        Probe::new("large_datagram_out_of_a_vlan", Ask::Ping { from: "left", to: "203.0.113.9", options: "-s 4000" }),
        Probe::ping("the_gateway_in_its_vlan", "right", "10.1.20.1"),
        Probe::holds("dhcp_lease_in_a_vlan", "left", "udhcpc -n -q -f -i v10 -t 3 -T 1 -s /bin/true"),
    ],
    mutants: &[
        Mutant::new(
            "nothing is forwarded",
            FORWARDS_NOTHING,
            &[
                "ipv4_from_vlan_to_vlan",
                "ipv6_from_vlan_to_vlan",
                "ipv4_out_of_a_vlan",
                "ipv4_without_a_tag_into_a_vlan",
                "large_datagram_out_of_a_vlan",
            ],
        ),
        Mutant::new("the LAN is not heard", LAN_DEAF, &["the_gateway_in_its_vlan", "dhcp_lease_in_a_vlan"]),
    ],
    ..NONE
};
