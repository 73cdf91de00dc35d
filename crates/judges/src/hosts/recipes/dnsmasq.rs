//! dnsmasq on a router's port: DHCP, router advertisements and DNS of a LAN.

use super::super::recipe::{Mutant, Probe, Recipe, Service};
use super::{HOST_DEAF, NONE};

pub(super) const RECIPE: Recipe = Recipe {
    name: "dnsmasq",
    programs: &["dnsmasq", "udhcpc", "rdisc6", "python3", "nft"],
    services: &[Service::program(
        "gw",
        "exec dnsmasq -k -C /dev/null -i lan -z -u root -x {dir}/pid -l {dir}/leases --no-resolv --no-hosts \
         --dhcp-authoritative --no-ping --dhcp-range=10.1.1.100,10.1.1.150,5m --enable-ra --dhcp-range=::,constructor:lan,ra-only \
         --address=/printer.example/192.0.2.77",
    )],
    probes: &[
        Probe::holds("dhcp_lease", "host", "udhcpc -i eth0 -f -n -q -t 2 -T 1 -s /bin/true"),
        Probe::holds("router_advertisement", "host", "rdisc6 -1 -q -r 1 -w 800 eth0 | grep -q 2001:db8:1::/64"),
        Probe::holds("dns_by_udp", "host", DNS),
    ],
    mutants: &[Mutant::new(
        "the host hears nothing",
        HOST_DEAF,
        &["router_advertisement", "dns_by_udp"],
    ),
    Mutant::new(
        "DHCP is dropped",
        (
            "gw",
            "nft add table netdev deaf; nft add chain netdev deaf lan '{ type filter hook ingress device lan priority -500; }'
             nft add rule netdev deaf lan udp dport 67 drop; nft add table netdev deaf6",
            "nft delete table netdev deaf; nft delete table netdev deaf6",
        ),
        &["dhcp_lease"],
    )],
    ..NONE
};

/// Asks for the address of `printer.example`.
const DNS: &str = r#"exec python3 -c '
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.settimeout(0.8)
s.sendto(b"\1\2\1\0\0\1\0\0\0\0\0\0\7printer\7example\0\0\1\0\1", ("10.1.1.1", 53))
assert s.recv(512).endswith(bytes([192, 0, 2, 77]))'"#;
