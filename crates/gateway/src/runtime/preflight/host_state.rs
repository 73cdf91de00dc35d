//! State of this host that the router's findings depend on, read only.

use crate::clock::Clock;
use crate::config::model::{Configuration, Port, Role};
use crate::config::router::RoutesFrom;
use crate::kernel::Mirror;
use crate::kernel::message::{Object, Target};
use crate::kernel::socket::{BUFFER_BYTES, Follow};
use crate::runtime::host_traffic::with_uppers;
use polder_datapath::route::Prefix;
use polder_datapath::units::Nanos;
use polder_devices::netlink::Client;
use polder_devices::netlink::link::{HEADER, Link};
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::path::Path;

/// Time limit for reading the kernel's tables.
const PATIENCE: Nanos = Nanos::from_seconds(5);
/// Tables that the kernel's default rules use.
const USUAL_TABLES: [u32; 2] = [254, 253];
/// `RTPROT_RA` of linux/rtnetlink.h: a route from a router advertisement.
const BY_ADVERTISEMENT: u8 = 9;

/// State of this host, as far as it could be read.
#[derive(Clone, Debug, Default)]
pub(super) struct HostState {
    /// Interfaces by name.
    pub(super) interfaces: HashMap<String, Interface>,
    /// True if the kernel forwards IPv4, and IPv6; `None` if unknown.
    pub(super) forwards: [Option<bool>; 2],
    /// Number of routes in each configured table, for both families; `None` if the kernel did not answer.
    pub(super) routes: Option<HashMap<u32, usize>>,
    /// Destinations routed to interfaces that are no router port, by interface.
    pub(super) left: BTreeMap<String, Vec<Prefix>>,
    /// True if the host has routes from router advertisements.
    pub(super) hears_routers: bool,
}

/// A kernel interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Interface {
    pub(super) mtu: u32,
    /// Addresses with their prefix lengths.
    pub(super) addresses: Vec<(IpAddr, u8)>,
    /// `rp_filter` of the interface: 0 off, 1 strict, 2 loose.
    pub(super) source_check: u8,
    /// True if the kernel forwards packets received by the interface, for IPv4 and IPv6; `None` if unknown.
    pub(super) forwards: [Option<bool>; 2],
    /// `accept_ra`: 1 accepts advertisements unless forwarding is on, 2 always.
    pub(super) accepts_advertisements: u8,
    /// Bridge or bond that the interface belongs to.
    pub(super) master: Option<String>,
    /// Lower interface of a VLAN.
    pub(super) below: Option<String>,
}

impl HostState {
    /// Reads the host's state.
    pub(super) fn look(configuration: &Configuration) -> Self {
        let clock = Clock::start();
        let mut host = Self {
            forwards: [forwards("ipv4/ip_forward"), forwards("ipv6/conf/all/forwarding")],
            ..Self::default()
        };
        let Ok(mut follow) = Follow::start(BUFFER_BYTES) else { return host };
        if !follow.settle(|| clock.now(), PATIENCE).unwrap_or(false) {
            return host;
        }
        let mirror = follow.mirror();
        let answers = Client::open(None).and_then(|mut client| client.dump(libc::RTM_GETLINK, &[0; HEADER]));
        let links = answers.unwrap_or_default();
        let links = links.iter().filter_map(|(_, body)| Link::parse(body)).collect::<Vec<_>>();
        let of_ports =
            links.iter().filter(|link| interfaces(configuration).any(|(_, name)| name == link.name));
        host.interfaces = of_ports.map(|link| (link.name.clone(), interface(link, &links, mirror))).collect();
        let tables = &configuration.router.tables;
        if configuration.router.routes == RoutesFrom::Kernel {
            host.routes = Some(tables.iter().map(|&table| (table, mirror.size(table))).collect());
            host.left = left(configuration, &links, mirror);
            host.hears_routers = mirror.routes_of(BY_ADVERTISEMENT) > 0;
        }
        host
    }
}

/// Names of router ports with their interfaces.
pub(super) fn interfaces(configuration: &Configuration) -> impl Iterator<Item = (&str, &str)> {
    let ports = configuration.ports.iter().filter(|port| port.role == Role::Router);
    ports.filter_map(|port| Some((port.name.as_str(), port.device.interface()?)))
}

fn interface(link: &Link, links: &[Link], mirror: &Mirror) -> Interface {
    let name = &link.name;
    let addresses = mirror.addresses().filter(|address| address.index == link.index);
    let check = |name: &str| number(&format!("ipv4/conf/{name}/rp_filter")).unwrap_or(0);
    let other = |index: Option<u32>| links.iter().find(|other| Some(other.index) == index);
    // A VRF is only a routing table, and takes no packets.
    let master = other(link.master).filter(|master| master.kind != "vrf");
    let below = other(link.lower().filter(|_| link.vlan.is_some()));
    Interface {
        mtu: link.mtu,
        addresses: addresses.map(|address| (address.address, address.bits)).collect(),
        // The kernel uses the larger value (Documentation/networking/ip-sysctl.rst).
        source_check: check("all").max(check(name)),
        forwards: ["ipv4", "ipv6"].map(|family| forwards(&format!("{family}/conf/{name}/forwarding"))),
        accepts_advertisements: number(&format!("ipv6/conf/{name}/accept_ra")).unwrap_or(0),
        master: master.map(|master| master.name.clone()),
        below: below.map(|below| below.name.clone()),
    }
}

/// Destinations that the kernel routes to interfaces that are no router port.
fn left(configuration: &Configuration, links: &[Link], mirror: &Mirror) -> BTreeMap<String, Vec<Prefix>> {
    let is_routers = |port: &&Port| port.role == Role::Router || port.device.tun().is_some();
    let ports = configuration.ports.iter().filter(is_routers);
    let names = ports.filter_map(|port| port.device.kernel_name()).collect::<Vec<_>>();
    let ports = links.iter().filter(|link| names.contains(&link.name.as_str())).map(|link| link.index);
    let routed = with_uppers(links, ports, |_| None);
    let tables = &configuration.router.tables;
    let tables = if tables.is_empty() { &USUAL_TABLES[..] } else { tables };
    let others = links.iter().filter(|link| !routed.contains(&link.index) && link.name != "lo");
    let others = others.map(|link| (link.index, &link.name)).collect::<HashMap<_, _>>();
    let mut left = BTreeMap::<String, Vec<Prefix>>::new();
    for (table, prefix, _, target) in mirror.routes() {
        if !tables.contains(&table) || is_of_link(prefix) {
            continue;
        }
        for name in outputs(target, mirror).iter().filter_map(|index| others.get(index)) {
            left.entry((*name).clone()).or_default().push(prefix);
        }
    }
    left
}

/// Output interfaces of a route.
fn outputs(target: &Target, mirror: &Mirror) -> Vec<u32> {
    let of_object = |id: &u32| match mirror.object(*id) {
        Some(Object::Hop(hop)) => Some(hop.index),
        Some(Object::Group(_) | Object::Blackhole) | None => None,
    };
    match target {
        Target::Hops(hops) => hops.iter().map(|hop| hop.index).collect(),
        Target::Object(id, _) => match mirror.object(*id) {
            Some(Object::Group(members)) => members.iter().filter_map(|(id, _)| of_object(id)).collect(),
            Some(Object::Hop(_) | Object::Blackhole) | None => of_object(id).into_iter().collect(),
        },
        Target::Local(_)
        | Target::Broadcast
        | Target::Blackhole
        | Target::Unreachable
        | Target::Prohibit
        | Target::Throw => Vec::new(),
    }
}

/// True for multicast and link-local destinations, which no router forwards.
fn is_of_link(prefix: Prefix) -> bool {
    match prefix.address() {
        IpAddr::V4(address) => address.is_multicast() || address.is_link_local(),
        IpAddr::V6(address) => address.is_multicast() || address.is_unicast_link_local(),
    }
}

fn number(name: &str) -> Option<u8> {
    std::fs::read_to_string(Path::new("/proc/sys/net").join(name)).ok()?.trim().parse().ok()
}

fn forwards(name: &str) -> Option<bool> {
    number(name).map(|value| value != 0)
}
