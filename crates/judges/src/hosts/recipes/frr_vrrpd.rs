//! FRR's vrrpd: the virtual address stands on a macvlan that an administrator has made.

use super::super::networks::SEGMENT;
use super::super::recipe::{Mutant, Probe, Recipe, Script, Service};
use super::{FRR_ZEBRA, HOST_DEAF, NONE, frr};

pub(super) const RECIPE: Recipe = Recipe {
    name: "frr_vrrpd",
    programs: &["zebra", "vrrpd", "vtysh", "nft"],
    network: &SEGMENT,
    setup: &[Script(
        "gw",
        // As the virtual address needs it: an interface answers for its own addresses alone.
        "echo 1 >/proc/sys/net/ipv4/conf/lan/arp_ignore
         ip link add vrrp4-2-1 link lan type macvlan mode bridge
         ip link set vrrp4-2-1 address 00:00:5e:00:01:05
         ip address add 10.1.1.10/24 dev vrrp4-2-1
         ip link set vrrp4-2-1 up",
    )],
    services: &[
        FRR_ZEBRA,
        Service::program("gw", frr!("vrrpd")).with(&[(
            "vrrpd.conf",
            "log stdout
interface lan
 vrrp 5 version 3
 vrrp 5 priority 200
 vrrp 5 advertisement-interval 100
 vrrp 5 ip 10.1.1.10
!
",
        )]),
    ],
    probes: &[
        Probe::holds(
            "vrrp_master",
            "gw",
            "vtysh --vty_socket {dir} -d vrrpd -c 'show vrrp 5' | grep -q 'Status (v4).*Master'",
        ),
        Probe::holds(
            "arp_answers_with_the_virtual_mac",
            "host",
            "ip neighbour flush to 10.1.1.10; ping -n -c 1 -W 0.5 10.1.1.10 >/dev/null
             ip neighbour show 10.1.1.10 | grep -q 00:00:5e:00:01:05",
        ),
        Probe::holds(
            "ipv4_out_by_the_virtual_mac",
            "host",
            "ip route replace 203.0.113.9 via 10.1.1.10; ping -n -c 1 -W 0.5 203.0.113.9",
        ),
    ],
    mutants: &[
        Mutant::new(
            "the macvlan is down",
            ("gw", "ip link set vrrp4-2-1 down", "ip link set vrrp4-2-1 up"),
            &["arp_answers_with_the_virtual_mac"],
        ),
        Mutant::new(
            "the router is shut down",
            (
                "gw",
                "vtysh --vty_socket {dir} -d vrrpd -c 'configure terminal' -c 'interface lan' -c 'vrrp 5 shutdown'",
                "vtysh --vty_socket {dir} -d vrrpd -c 'configure terminal' -c 'interface lan' -c 'no vrrp 5 shutdown'",
            ),
            &["vrrp_master"],
        ),
        Mutant::new("the host hears nothing", HOST_DEAF, &["ipv4_out_by_the_virtual_mac"]),
    ],
    ..NONE
};
