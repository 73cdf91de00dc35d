//! The recipes, one a file.

mod macros;

mod bird;
mod bond_lacp;
mod dhcp_client;
mod dnsmasq;
mod docker;
mod ecmp_tun;
mod firewall;
mod frr_bgp;
mod frr_pbr;
mod frr_vrrpd;
mod gre_keepalive;
mod hostapd_wired;
mod hostapd_wireless;
mod igmpproxy;
mod ipvlan;
mod ipvlan_bridge;
mod keepalived;
mod keepalived_vmac;
mod kernel_vxlan;
mod libvirt;
mod link_local;
mod lldpd;
mod macvlan_container;
mod macvlan_router;
mod mwan3;
mod networkd;
mod networkmanager;
mod openvpn;
mod own_mac;
mod pppoe;
mod ptp4l;
mod radvd_two;
mod rename;
mod router;
mod smcroute;
mod source_specific;
mod strongswan;
mod swarm;
mod tcpdump;
mod vlan_router;
mod wg_quick;
mod wireguard;
mod wireguard_site;

use super::networks::ROUTER;
use super::recipe::{Recipe, Service};
use macros::{accepts, deaf, frr, mute};

/// All recipes.
pub(super) const ALL: &[&Recipe] = &[
    &router::RECIPE,
    &keepalived::RECIPE,
    &keepalived_vmac::RECIPE,
    &frr_vrrpd::RECIPE,
    &frr_bgp::RECIPE,
    &frr_pbr::RECIPE,
    &bird::RECIPE,
    &radvd_two::RECIPE,
    &source_specific::RECIPE,
    &dnsmasq::RECIPE,
    &dhcp_client::RECIPE,
    &openvpn::RECIPE,
    &wg_quick::RECIPE,
    &ecmp_tun::RECIPE,
    &mwan3::RECIPE,
    &docker::RECIPE,
    &libvirt::RECIPE,
    &firewall::RECIPE,
    &hostapd_wired::RECIPE,
    &lldpd::RECIPE,
    &ptp4l::RECIPE,
    &link_local::RECIPE,
    &own_mac::RECIPE,
    &macvlan_container::RECIPE,
    &macvlan_router::RECIPE,
    &swarm::RECIPE,
    &kernel_vxlan::RECIPE,
    &gre_keepalive::RECIPE,
    &igmpproxy::RECIPE,
    &smcroute::RECIPE,
    &rename::RECIPE,
    &tcpdump::RECIPE,
    &vlan_router::RECIPE,
    &wireguard::RECIPE,
    &wireguard_site::RECIPE,
    &bond_lacp::RECIPE,
    &pppoe::RECIPE,
    &ipvlan::RECIPE,
    &ipvlan_bridge::RECIPE,
    &strongswan::RECIPE,
    &networkd::RECIPE,
    &hostapd_wireless::RECIPE,
    &networkmanager::RECIPE,
];

/// A recipe without content: for `..NONE`.
const NONE: Recipe = Recipe {
    name: "",
    programs: &[],
    modules: &[],
    needs: "",
    network: &ROUTER,
    setup: &[],
    services: &[],
    tables: "",
    probes: &[],
    mutants: &[],
    refused: &[],
};

/// Machine of a fault, and the commands that make and mend it.
type Fault = (&'static str, &'static str, &'static str);

/// The kernel does not forward.
const FORWARDS_NOTHING: Fault = (
    "gw",
    "cd /proc/sys/net; echo 0 >ipv4/ip_forward; echo 0 >ipv6/conf/all/forwarding",
    "cd /proc/sys/net; echo 1 >ipv4/ip_forward; echo 1 >ipv6/conf/all/forwarding",
);

const LAN_DEAF: Fault = deaf!("gw", "lan");
const WAN_DEAF: Fault = deaf!("gw", "wan");
const HOST_DEAF: Fault = deaf!("host", "eth0");
const PEER_DEAF: Fault = deaf!("peer", "eth0");
/// Daemons with packet sockets of all protocols hear what the hook at ingress drops, so the other end is silent for them.
const HOST_MUTE: Fault = mute!("host", "eth0");
const LAN_MUTE: Fault = mute!("gw", "lan");

/// FRR's zebra on the gateway.
const FRR_ZEBRA: Service = Service::program(
    "gw",
    "rm -f {dir}/zserv
     exec /usr/lib/frr/zebra -f {dir}/zebra.conf -i {dir}/zebra.pid -z {dir}/zserv --vty_socket {dir} -P 0",
)
.with(&[("zebra.conf", "log stdout\n")]);
