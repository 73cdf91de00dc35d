//! Checks of the router's requirements.

use super::host_state::{HostState, Interface, interfaces};
use super::{Evidence, PreflightFinding, Severity};
use crate::config::model::{Configuration, Decide, OnExit, Port, Role};
use crate::config::router::{InterfaceAddress, RoutesFrom};
use crate::runtime::host_traffic::some;
use std::net::IpAddr;

/// Minimum MTU of a link that carries IPv6 (RFC 8200, 5).
const LEAST_MTU_V6: u32 = 1280;
/// Default MTU of a device that is no kernel interface.
const USUAL_MTU: u32 = 1500;

/// Checks the requirements of the router, if there is one.
pub(super) fn inspect(configuration: &Configuration) -> Vec<PreflightFinding> {
    if configuration.has_router_ports() {
        judge(configuration, &HostState::look(configuration))
    } else {
        Vec::new()
    }
}

fn judge(configuration: &Configuration, host: &HostState) -> Vec<PreflightFinding> {
    let mut findings = Findings(Vec::new());
    for port in configuration.ports.iter().filter(|port| port.role == Role::Router) {
        narrow(port, host, &mut findings);
    }
    for (port, name) in interfaces(configuration) {
        let Some(interface) = host.interfaces.get(name) else { continue };
        attached((port, name), interface, configuration, &mut findings);
    }
    forwarding(configuration, host, &mut findings);
    left(host, &mut findings);
    tables(configuration, host, &mut findings);
    next_hops(configuration, host, &mut findings);
    findings.0
}

struct Findings(Vec<PreflightFinding>);

impl Findings {
    fn note(&mut self, of: &str, severity: Severity, topic: &str, text: String) {
        self.0.push(PreflightFinding::new(of.to_owned(), severity, topic, text));
    }

    fn warn(&mut self, of: &str, topic: &str, text: String) {
        self.note(of, Severity::Warning, topic, text);
    }
}

/// Reports an MTU that is too small for IPv6.
fn narrow(port: &Port, host: &HostState, findings: &mut Findings) {
    let of = format!("port.{}", port.name);
    let (mtu, has_v6, remedy) = match port.device.interface() {
        Some(name) => {
            let Some(interface) = host.interfaces.get(name) else { return };
            let mtu = interface.mtu.min(port.mtu.map_or(u32::MAX, u32::from));
            let has_v6 = interface.addresses.iter().any(|(address, _)| address.is_ipv6());
            let remedy = match port.mtu {
                Some(own) if u32::from(own) < LEAST_MTU_V6 => "raise `mtu` of the port".to_owned(),
                Some(_) | None => format!("`ip link set dev {name} mtu {LEAST_MTU_V6}`"),
            };
            (mtu, has_v6, remedy)
        }
        None => {
            let has_v6 = port.addresses.iter().any(|own| own.address.is_ipv6());
            (port.mtu.map_or(USUAL_MTU, u32::from), has_v6, "raise `mtu` of the port".to_owned())
        }
    };
    if has_v6 && mtu < LEAST_MTU_V6 {
        let text = format!(
            "an MTU of {mtu} is below the {LEAST_MTU_V6} bytes that IPv6 requires of every link (RFC 8200, \
             5): senders do not send smaller packets, and theirs are lost; {remedy}, or remove its IPv6 \
             addresses"
        );
        findings.note(&of, Severity::Problem, "mtu", text);
    }
}

/// Reports findings about a router port on a kernel interface.
fn attached(
    (port, name): (&str, &str),
    interface: &Interface,
    configuration: &Configuration,
    findings: &mut Findings,
) {
    let of = format!("port.{port}");
    let is_of_link =
        |address: &IpAddr| matches!(address, IpAddr::V6(address) if address.is_unicast_link_local());
    if interface.addresses.iter().all(|(address, _)| is_of_link(address)) {
        let text = format!(
            "{name} has no address, so hosts cannot use it as gateway and it sends no ICMP errors: `ip \
             address add 192.0.2.1/24 dev {name}`"
        );
        findings.warn(&of, "address", text);
    }
    if interface.source_check == 1 && interfaces(configuration).count() > 1 {
        let text = format!(
            "sources are checked strictly (rp_filter = 1), by Polder as by the kernel: IPv4 packets whose \
             answers would leave by another port, as with asymmetric routes, are dropped as `reverse-path`: \
             `sysctl -w net.ipv4.conf.{name}.rp_filter=2 net.ipv4.conf.all.rp_filter=2`"
        );
        findings.warn(&of, "rp_filter", text);
    }
    if let Some(master) = &interface.master {
        let text = format!(
            "{name} belongs to the kernel's {master}, which bridges or bonds packets that Polder leaves to \
             it, so packets routed here may be forwarded there a second time: `ip link set dev {name} \
             nomaster`"
        );
        findings.warn(&of, "forwarding", text);
    }
    let below =
        interface.below.as_ref().filter(|below| interfaces(configuration).any(|(_, other)| other == *below));
    if let Some(below) = below {
        let text = format!(
            "{name} is a VLAN of {below}, which is also a router's port and routes its VLANs: packets would \
             be taken twice or not at all; remove [port.{port}], and {below} still routes its VLAN"
        );
        findings.note(&of, Severity::Problem, "forwarding", text);
    }
}

/// Checks that the kernel forwards: it handles the packets that Polder leaves to it, and all packets once
/// Polder has ended; for IPv6 it also announces to hosts that it is a router.
fn forwarding(configuration: &Configuration, host: &HostState, findings: &mut Findings) {
    for family in Family::ALL {
        let routes =
            |interface: &Interface| interface.addresses.iter().any(|(address, _)| family.is_routed(*address));
        let ports = interfaces(configuration);
        let ports = ports.filter_map(|(port, name)| Some((port, name, host.interfaces.get(name)?)));
        let ports = ports.filter(|(_, _, interface)| routes(interface)).collect::<Vec<_>>();
        if ports.is_empty() {
            continue;
        }
        match host.forwards[family as usize] {
            Some(true) => {
                findings.note("router", Severity::Fine, "forwarding", family.goes_on(configuration))
            }
            Some(false) => {
                let also =
                    ports.iter().filter(|(_, _, interface)| family.stops_advertisements(interface, host));
                let also = also.map(|(_, name, _)| setting("ipv6", name, "accept_ra", 2)).collect();
                let off = family.off("router", family.key().to_owned(), also);
                findings.0.push(stopping(configuration, off));
                continue;
            }
            None => {}
        }
        for (port, name, interface) in ports {
            if interface.forwards[family as usize] == Some(false) {
                let also = family.stops_advertisements(interface, host);
                let also = also.then(|| setting("ipv6", name, "accept_ra", 2)).into_iter().collect();
                let key = key(family.word(), name, "forwarding");
                findings.0.push(family.off(&format!("port.{port}"), key, also));
            }
        }
    }
}

/// A finding about missing forwarding: a problem if the kernel decides about packets.
fn stopping(configuration: &Configuration, finding: PreflightFinding) -> PreflightFinding {
    let decides = configuration.ports.iter().any(|port| port.decide == Decide::Kernel);
    let severity = if decides { Severity::Problem } else { finding.severity };
    PreflightFinding { severity, ..finding }
}

/// Reports routes to interfaces that are no port.
fn left(host: &HostState, findings: &mut Findings) {
    for (name, prefixes) in &host.left {
        for family in Family::ALL {
            let of_family = prefixes.iter().filter(|prefix| prefix.is_v6() == (family == Family::V6));
            let told =
                of_family.map(|prefix| format!("{}/{}", prefix.address(), prefix.bits())).collect::<Vec<_>>();
            if told.is_empty() {
                continue;
            }
            let is_off = host.forwards[family as usize] == Some(false);
            let (severity, effect, remedy) = match is_off {
                true => (
                    Severity::Warning,
                    format!(
                        "is not a port: {} stays with the kernel, which does not forward {}",
                        some(&told),
                        family.name()
                    ),
                    family.remedy(family.key(), Vec::new()),
                ),
                false => (
                    Severity::Fine,
                    format!("is not a port: {} stays with the kernel", some(&told)),
                    String::new(),
                ),
            };
            let of_v6 = if family == Family::V6 { "-6 " } else { "" };
            let evidence =
                Evidence { object: name.clone(), probe: format!("ip {of_v6}route show dev {name}"), remedy };
            let of = "router".to_owned();
            findings.0.push(PreflightFinding::about(of, severity, "kernel", &effect, evidence));
        }
    }
}

/// IPv4 or IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    V4,
    V6,
}

impl Family {
    const ALL: [Self; 2] = [Self::V4, Self::V6];

    /// True for an address that shows that the family is in use. IPv6 link-local addresses are ignored,
    /// because every interface has them.
    fn is_routed(self, address: IpAddr) -> bool {
        match (self, address) {
            (Self::V4, IpAddr::V4(_)) => true,
            (Self::V6, IpAddr::V6(address)) => !address.is_unicast_link_local(),
            (Self::V4, IpAddr::V6(_)) | (Self::V6, IpAddr::V4(_)) => false,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::V4 => "ipv4",
            Self::V6 => "ipv6",
        }
    }

    /// Setting for all interfaces.
    fn key(self) -> &'static str {
        match self {
            Self::V4 => "net.ipv4.ip_forward",
            Self::V6 => "net.ipv6.conf.all.forwarding",
        }
    }

    /// True if forwarding makes the kernel ignore the router advertisements that the host's routes come from.
    fn stops_advertisements(self, interface: &Interface, host: &HostState) -> bool {
        self == Self::V6 && host.hears_routers && interface.accepts_advertisements == 1
    }

    /// Text of the finding that the kernel forwards.
    fn goes_on(self, configuration: &Configuration) -> String {
        let is_open = |port: &Port| port.role == Role::Router && port.on_exit == OnExit::Kernel;
        let is_open =
            configuration.ports.iter().any(|port| is_open(port) && port.device.interface().is_some());
        let end =
            if is_open { ", and goes on when Polder ends" } else { ", and ports stay closed when it ends" };
        format!("the kernel forwards {} packets that Polder leaves to it{end}", self.name())
    }

    /// Warning about a setting that is off.
    fn off(self, of: &str, key: String, also: Vec<String>) -> PreflightFinding {
        let hosts = match self {
            Self::V4 => "",
            Self::V6 => {
                ", and neighbour advertisements lack the router flag, so hosts drop this machine as their default \
                 router (RFC 4861, 7.3.3)"
            }
        };
        let effect = format!(
            "is 0: the kernel drops {} packets that Polder leaves to it, and forwards none when Polder has \
             ended{hosts}",
            self.name()
        );
        let (probe, remedy) = (format!("sysctl {key}"), self.remedy(&key, also));
        let evidence = Evidence { object: key, probe, remedy };
        PreflightFinding::about(of.to_owned(), Severity::Warning, "forwarding", &effect, evidence)
    }

    fn remedy(self, key: &str, also: Vec<String>) -> String {
        let settings = std::iter::once(format!("{key}=1")).chain(also).collect::<Vec<_>>().join(" ");
        format!("`sysctl -w {settings}`, and the same in /etc/sysctl.d")
    }
}

/// Name of an interface's setting. sysctl(8) needs slashes if the interface's name has a dot.
fn key(family: &str, interface: &str, name: &str) -> String {
    match interface.contains('.') {
        true => format!("net/{family}/conf/{interface}/{name}"),
        false => format!("net.{family}.conf.{interface}.{name}"),
    }
}

fn setting(family: &str, interface: &str, name: &str, value: u8) -> String {
    format!("{}={value}", key(family, interface, name))
}

/// Reports configured tables without routes.
fn tables(configuration: &Configuration, host: &HostState, findings: &mut Findings) {
    if configuration.router.routes != RoutesFrom::Kernel {
        return;
    }
    let Some(routes) = &host.routes else {
        let text = "the kernel did not report its routes in time: run `polder check` again".to_owned();
        return findings.warn("router", "routes", text);
    };
    for table in &configuration.router.tables {
        if routes.get(table).copied().unwrap_or(0) == 0 {
            let text = format!(
                "table {table} in `tables` has no routes (`ip route show table {table}`): name the table \
                 that your routing daemon writes to"
            );
            findings.warn("router", "routes", text);
        }
    }
}

/// Reports gateways that are on no port's link.
fn next_hops(configuration: &Configuration, host: &HostState, findings: &mut Findings) {
    // Without the kernel's answer the interfaces' networks are unknown.
    if host.interfaces.is_empty() && interfaces(configuration).next().is_some() {
        return;
    }
    for route in &configuration.router.route {
        let ports = || {
            let ports = configuration.ports.iter().filter(|port| port.role == Role::Router);
            ports.filter(|port| route.port.is_none_or(|only| only == port.id))
        };
        // A tunnel needs no resolution: its gateway is the remote end.
        let tunnels = || {
            let tunnels = configuration.tunnels.iter().filter(|tunnel| tunnel.is_routed());
            tunnels.filter(|tunnel| route.port.is_none_or(|only| only == tunnel.id))
        };
        let is_by_tunnel = |via| {
            tunnels().any(|tunnel| {
                let is_near = |own: &InterfaceAddress| contains((own.address, own.bits), via);
                // The kernel has the addresses of a device.
                let is_open = route.port.is_some() || tunnel.device.is_some();
                is_open || tunnel.addresses.iter().any(is_near)
            })
        };
        for &via in &route.via {
            let is_of_link = matches!(via, IpAddr::V6(address) if address.is_unicast_link_local());
            let is_near = |port: &Port| networks(port, host).any(|network| contains(network, via));
            if is_of_link || ports().any(is_near) || is_by_tunnel(via) {
                continue;
            }
            let names = ports().map(|port| port.name.as_str());
            let names = names.chain(tunnels().map(|tunnel| tunnel.name.as_str()));
            let where_to = names.collect::<Vec<_>>().join(", ");
            let text = format!(
                "the route to {} has the next hop {via}, which is in no network of {where_to}, so it cannot \
                 be resolved; name a router on one of their links, or give a port an address in its network",
                route.to
            );
            findings.warn("router", "next hop", text);
        }
    }
}

/// Networks of a port.
fn networks<'a>(port: &'a Port, host: &'a HostState) -> impl Iterator<Item = (IpAddr, u8)> + 'a {
    let kernels = port.device.interface().and_then(|name| host.interfaces.get(name));
    let kernels = kernels.into_iter().flat_map(|interface| interface.addresses.iter().copied());
    port.addresses.iter().map(|own| (own.address, own.bits)).chain(kernels)
}

fn contains((network, bits): (IpAddr, u8), address: IpAddr) -> bool {
    polder_datapath::route::Prefix::new(network, bits).is_ok_and(|network| network.contains(address))
}

#[cfg(test)]
mod tests;
