//! libvirt's default network: a bridge with NAT, its rules and its dnsmasq, beside a virtual machine.

use super::super::bed::Bed;
use super::super::networks::ROUTER as NETS;
use super::super::recipe::{Mutant, Network, Probe, Recipe, Script, Service, Wire};
use super::{FORWARDS_NOTHING, NONE};

const NETWORK: Network = Network {
    wires: &[
        Wire(("gw", "lan"), ("host", "eth0")),
        Wire(("gw", "wan"), ("peer", "eth0")),
        Wire(("gw", "vnet0"), ("vm", "eth0")),
    ],
    ..NETS
};

pub(super) const RECIPE: Recipe = Recipe {
    name: "libvirt",
    programs: &["iptables", "iptables-restore", "dnsmasq", "udhcpc"],
    network: &NETWORK,
    setup: &[
        Script(
            "gw",
            "ip link add virbr0 type bridge; ip address add 192.168.122.1/24 dev virbr0; ip link set virbr0 up
             ip link set vnet0 master virbr0",
        ),
        Script("vm", "ip address add 192.168.122.77/24 dev eth0; ip route add default via 192.168.122.1"),
        Script("peer", "ip route delete default; ip route add 10.1.1.0/24 via 10.1.2.1; ip route add 192.168.122.0/24 via 10.1.2.1"),
    ],
    services: &[
        Service::program(
            "gw",
            "exec dnsmasq -k -C /dev/null -p 0 -i virbr0 -z -u root -x {dir}/pid -l {dir}/leases --no-ping \
             --dhcp-authoritative --dhcp-range=192.168.122.100,192.168.122.150,5m",
        ),
        Service::state("gw", RULES, FLUSH),
    ],
    probes: &[
        Probe::holds("dhcp_lease_of_the_machine", "vm", "udhcpc -i eth0 -f -n -q -t 2 -T 1 -s /bin/true"),
        Probe::ping("machine_out_by_masquerade", "vm", "203.0.113.9"),
        Probe::ping("machine_to_the_lan", "vm", "10.1.1.2"),
        Probe::ping("machine_from_the_gateway", "gw", "192.168.122.77"),
        Probe::ping("lan_out", "host", "203.0.113.9"),
        Probe::own("machine_stays_closed", stays_closed),
    ],
    mutants: &[
        Mutant::new("nothing is forwarded", FORWARDS_NOTHING, &["machine_out_by_masquerade", "machine_to_the_lan", "lan_out"]),
        Mutant::new(
            "the machine is down",
            ("vm", "ip link set eth0 down", "ip link set eth0 up; ip route add default via 192.168.122.1"),
            &["machine_from_the_gateway", "dhcp_lease_of_the_machine"],
        ),
        Mutant::new(
            "the rule that rejects is gone",
            ("gw", "iptables -F LIBVIRT_FWI", "iptables -A LIBVIRT_FWI -d 192.168.122.0/24 -o virbr0 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT; iptables -A LIBVIRT_FWI -o virbr0 -j REJECT"),
            &["machine_stays_closed"],
        ),
    ],
    refused: &["LIBVIRT"],
    ..NONE
};

/// True if the peer does not reach the machine, which reaches it.
fn stays_closed(bed: &Bed<'_>) -> anyhow::Result<bool> {
    Ok(bed.pings("vm", "203.0.113.9", "")? && !bed.pings("peer", "192.168.122.77", "")?)
}

const FLUSH: &str = "
    iptables -F; iptables -X; iptables -t nat -F; iptables -t nat -X; iptables -t mangle -F; iptables -t mangle -X
    nft flush ruleset";
const RULES: &str = "iptables-restore <<'END'
*mangle
:LIBVIRT_PRT - [0:0]
-A POSTROUTING -j LIBVIRT_PRT
-A LIBVIRT_PRT -o virbr0 -p udp -m udp --dport 68 -j CHECKSUM --checksum-fill
COMMIT
*nat
:LIBVIRT_PRT - [0:0]
-A POSTROUTING -j LIBVIRT_PRT
-A LIBVIRT_PRT -s 192.168.122.0/24 -d 224.0.0.0/24 -j RETURN
-A LIBVIRT_PRT -s 192.168.122.0/24 -d 255.255.255.255/32 -j RETURN
-A LIBVIRT_PRT -s 192.168.122.0/24 ! -d 192.168.122.0/24 -p tcp -j MASQUERADE --to-ports 1024-65535
-A LIBVIRT_PRT -s 192.168.122.0/24 ! -d 192.168.122.0/24 -p udp -j MASQUERADE --to-ports 1024-65535
-A LIBVIRT_PRT -s 192.168.122.0/24 ! -d 192.168.122.0/24 -j MASQUERADE
COMMIT
*filter
:LIBVIRT_INP - [0:0]
:LIBVIRT_FWX - [0:0]
:LIBVIRT_FWI - [0:0]
:LIBVIRT_FWO - [0:0]
-A INPUT -j LIBVIRT_INP
-A FORWARD -j LIBVIRT_FWX
-A FORWARD -j LIBVIRT_FWI
-A FORWARD -j LIBVIRT_FWO
-A LIBVIRT_INP -i virbr0 -p udp -m udp --dport 67 -j ACCEPT
-A LIBVIRT_FWX -i virbr0 -o virbr0 -j ACCEPT
-A LIBVIRT_FWI -d 192.168.122.0/24 -o virbr0 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A LIBVIRT_FWI -o virbr0 -j REJECT --reject-with icmp-port-unreachable
-A LIBVIRT_FWO -s 192.168.122.0/24 -i virbr0 -j ACCEPT
-A LIBVIRT_FWO -i virbr0 -j REJECT --reject-with icmp-port-unreachable
COMMIT
END";
