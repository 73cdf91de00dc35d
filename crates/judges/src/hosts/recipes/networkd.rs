//! systemd-networkd with the gateway's interfaces: a DHCP client outside, a DHCP server inside.

use super::super::recipe::{Mutant, Network, Probe, Recipe, Script, Service};
use super::{FORWARDS_NOTHING, LAN_DEAF, NONE, ROUTER};

/// A gateway that has no addresses but those of its software.
pub(super) const NETWORK: Network = Network {
    setup: &[
        Script("gw", "echo 1 >/proc/sys/net/ipv4/ip_forward; echo 1 >/proc/sys/net/ipv6/conf/all/forwarding"),
        Script(
            "host",
            "ip address add 10.1.1.2/24 dev eth0; ip route add default via 10.1.1.1
             ip address add 2001:db8:1::2/64 dev eth0 nodad; ip -6 route add default via 2001:db8:1::1",
        ),
        Script(
            "peer",
            "ip address add 10.1.2.2/24 dev eth0; ip address add 203.0.113.9/32 dev lo
             ip route add 10.1.1.0/24 via 10.1.2.50
             ip address add 2001:db8:2::2/64 dev eth0 nodad; ip -6 route add default via 2001:db8:2::1",
        ),
    ],
    ..ROUTER
};

/// The peer's DHCP server.
pub(super) const LEASES: Service = Service::program(
    "peer",
    "exec dnsmasq -k -C /dev/null -p 0 -i eth0 -z -u root -x {dir}/pid -l {dir}/leases --dhcp-authoritative \
     --no-ping --dhcp-range=10.1.2.50,10.1.2.50,2m",
);

pub(super) const RECIPE: Recipe = Recipe {
    name: "networkd",
    programs: &["systemd-networkd", "dnsmasq", "udhcpc", "nft"],
    network: &NETWORK,
    services: &[LEASES, Service::program("gw", DAEMON).with(&[("lan.network", LAN), ("wan.network", WAN)])],
    probes: &[
        Probe::holds("dhcp_lease_outside", "gw", "ip address show dev wan | grep -q 'inet 10.1.2.50/'"),
        Probe::ping("ipv4_out_by_the_lease", "host", "203.0.113.9"),
        Probe::ping("ipv4_in_by_the_lease", "peer", "10.1.1.2"),
        Probe::ping("ipv6_out", "host", "2001:db8:2::2"),
        Probe::holds("dhcp_server_inside", "host", "udhcpc -n -q -f -i eth0 -t 3 -T 1 -s /bin/true"),
        Probe::ping("the_gateway_inside", "host", "10.1.1.1"),
    ],
    mutants: &[
        Mutant::new(
            "the lease is lost",
            (
                "gw",
                "ip address flush dev wan",
                "ip address add 10.1.2.50/24 dev wan; ip route replace default via 10.1.2.2; ip address add 2001:db8:2::1/64 dev wan nodad",
            ),
            &["dhcp_lease_outside"],
        ),
        Mutant::new(
            "nothing is forwarded",
            FORWARDS_NOTHING,
            &["ipv4_out_by_the_lease", "ipv4_in_by_the_lease", "ipv6_out"],
        ),
        Mutant::new("the LAN is not heard", LAN_DEAF, &["dhcp_server_inside", "the_gateway_inside"]),
    ],
    ..NONE
};

/// Starts the daemon without udev: interfaces are ready at once if `/sys` is read-only, as in a container. The
/// command has its own mount namespace.
const DAEMON: &str = "
    mkdir -p {dir}/network {dir}/netif /run/systemd/network /run/systemd/netif
    cp {dir}/lan.network {dir}/wan.network {dir}/network; chown -R systemd-network {dir}/netif
    mount --bind {dir}/network /run/systemd/network; mount --bind {dir}/netif /run/systemd/netif
    mount -o remount,ro /sys
    export SYSTEMD_LOG_TARGET=console; exec /lib/systemd/systemd-networkd";
const LAN: &str = "[Match]
Name=lan
[Network]
Address=10.1.1.1/24
Address=2001:db8:1::1/64
IPv6AcceptRA=no
DHCPServer=yes
[DHCPServer]
PoolOffset=50
PoolSize=10
EmitDNS=no
";
const WAN: &str = "[Match]
Name=wan
[Network]
DHCP=ipv4
Address=2001:db8:2::1/64
IPv6AcceptRA=no
[DHCPv4]
ClientIdentifier=mac
UseDNS=no
";
