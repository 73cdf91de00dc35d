//! Obstacles to a router.

use super::machine::{Interface, Machine, interfaces};
use super::{Evidence, PreflightFinding, Severity};
use crate::config::model::{Configuration, OnExit, Port, Role};
use crate::config::router::{InterfaceAddress, RoutesFrom};
use crate::runtime::silence::some;
use std::net::IpAddr;

/// Minimum MTU of a link that carries IPv6 (RFC 8200, 5).
const LEAST_MTU_V6: u32 = 1280;
/// Default MTU of a device that is not the kernel's interface.
const USUAL_MTU: u32 = 1500;

/// Checks the requirements of a router, if there is one.
pub(super) fn inspect(configuration: &Configuration) -> Vec<PreflightFinding> {
    if configuration.has_router_ports() {
        judge(configuration, &Machine::look(configuration))
    } else {
        Vec::new()
    }
}

fn judge(configuration: &Configuration, machine: &Machine) -> Vec<PreflightFinding> {
    let mut findings = Findings(Vec::new());
    for port in configuration.ports.iter().filter(|port| port.role == Role::Router) {
        narrow(port, machine, &mut findings);
    }
    for (port, name) in interfaces(configuration) {
        let Some(interface) = machine.interfaces.get(name) else { continue };
        attached((port, name), interface, configuration, &mut findings);
    }
    forwarding(configuration, machine, &mut findings);
    left(machine, &mut findings);
    tables(configuration, machine, &mut findings);
    next_hops(configuration, machine, &mut findings);
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

/// An MTU that is too small for IPv6.
fn narrow(port: &Port, machine: &Machine, findings: &mut Findings) {
    let of = format!("port.{}", port.name);
    let (mtu, has_v6, remedy) = match port.device.interface() {
        Some(name) => {
            let Some(interface) = machine.interfaces.get(name) else { return };
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
            "an MTU of {mtu} is below the {LEAST_MTU_V6} bytes that IPv6 asks of every link (RFC 8200, 5): senders do not \
             go below that, and their packets are lost; {remedy}, or take its IPv6 addresses away"
        );
        findings.note(&of, Severity::Problem, "mtu", text);
    }
}

/// An interface of the kernel's.
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
            "{name} has no address, so nobody can have it for a gateway, and it tells senders nothing: \
             `ip address add 192.0.2.1/24 dev {name}`"
        );
        findings.warn(&of, "address", text);
    }
    if interface.source_check == 1 && interfaces(configuration).count() > 1 {
        let text = format!(
            "sources are checked strictly (rp_filter = 1), by Polder as by the kernel: IPv4 packets whose answers would \
             leave by another port, as where routes are not symmetric, are dropped as `reverse-path`: \
             `sysctl -w net.ipv4.conf.{name}.rp_filter=2 net.ipv4.conf.all.rp_filter=2`"
        );
        findings.warn(&of, "rp_filter", text);
    }
    if let Some(master) = &interface.master {
        let text = format!(
            "{name} belongs to {master} of the kernel's, which bridges or bonds what Polder leaves to it, so packets \
             that are routed here may be forwarded there a second time: `ip link set dev {name} nomaster`"
        );
        findings.warn(&of, "forwarding", text);
    }
    let below =
        interface.below.as_ref().filter(|below| interfaces(configuration).any(|(_, other)| other == *below));
    if let Some(below) = below {
        let text = format!(
            "{name} is a VLAN of {below}, which is a router's port as well and routes the VLANs on it: packets would be \
             taken twice, or never come here; remove [port.{port}], and its VLAN stays routed by way of {below}"
        );
        findings.note(&of, Severity::Problem, "forwarding", text);
    }
}

/// Checks that the kernel forwards: what Polder leaves to it, everything once Polder has ended, and in IPv6 it says so to
/// hosts.
fn forwarding(configuration: &Configuration, machine: &Machine, findings: &mut Findings) {
    for family in Family::ALL {
        let routes =
            |interface: &Interface| interface.addresses.iter().any(|(address, _)| family.is_routed(*address));
        let ports = interfaces(configuration);
        let ports = ports.filter_map(|(port, name)| Some((port, name, machine.interfaces.get(name)?)));
        let ports = ports.filter(|(_, _, interface)| routes(interface)).collect::<Vec<_>>();
        if ports.is_empty() {
            continue;
        }
        match machine.forwards[family as usize] {
            Some(true) => {
                findings.note("router", Severity::Fine, "forwarding", family.goes_on(configuration))
            }
            Some(false) => {
                let also =
                    ports.iter().filter(|(_, _, interface)| family.stops_advertisements(interface, machine));
                let also = also.map(|(_, name, _)| setting("ipv6", name, "accept_ra", 2)).collect();
                findings.0.push(family.off("router", family.key().to_owned(), also));
                continue;
            }
            None => {}
        }
        for (port, name, interface) in ports {
            if interface.forwards[family as usize] == Some(false) {
                let also = family.stops_advertisements(interface, machine);
                let also = also.then(|| setting("ipv6", name, "accept_ra", 2)).into_iter().collect();
                let key = key(family.word(), name, "forwarding");
                findings.0.push(family.off(&format!("port.{port}"), key, also));
            }
        }
    }
}

/// Routes that lead to interfaces which are no port.
fn left(machine: &Machine, findings: &mut Findings) {
    for (name, prefixes) in &machine.left {
        for family in Family::ALL {
            let of_family = prefixes.iter().filter(|prefix| prefix.is_v6() == (family == Family::V6));
            let told =
                of_family.map(|prefix| format!("{}/{}", prefix.address(), prefix.bits())).collect::<Vec<_>>();
            if told.is_empty() {
                continue;
            }
            let is_off = machine.forwards[family as usize] == Some(false);
            let (severity, effect, remedy) = match is_off {
                true => (
                    Severity::Warning,
                    format!(
                        "is no port: {} is left to the kernel, which forwards no {}",
                        some(&told),
                        family.name()
                    ),
                    family.remedy(family.key(), Vec::new()),
                ),
                false => (
                    Severity::Fine,
                    format!("is no port: {} is left to the kernel", some(&told)),
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

    /// True for an address that says that the family is routed. Each interface that is up has a link's address of IPv6.
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

    /// True if forwarding makes the kernel ignore router advertisements that bring the machine its routes.
    fn stops_advertisements(self, interface: &Interface, machine: &Machine) -> bool {
        self == Self::V6 && machine.hears_routers && interface.accepts_advertisements == 1
    }

    /// Text about a kernel that forwards.
    fn goes_on(self, configuration: &Configuration) -> String {
        let is_open = |port: &Port| port.role == Role::Router && port.on_exit == OnExit::Kernel;
        let is_open =
            configuration.ports.iter().any(|port| is_open(port) && port.device.interface().is_some());
        let end =
            if is_open { ", and goes on when Polder ends" } else { ", and ports stay closed when it ends" };
        format!("the kernel forwards the {} packets that Polder leaves to it{end}", self.name())
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
            "is 0: {} packets that Polder leaves to the kernel are dropped, nobody forwards once Polder has ended{hosts}",
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

/// Name of an interface's setting. sysctl(8) takes slashes where the interface's name has a dot.
fn key(family: &str, interface: &str, name: &str) -> String {
    match interface.contains('.') {
        true => format!("net/{family}/conf/{interface}/{name}"),
        false => format!("net.{family}.conf.{interface}.{name}"),
    }
}

fn setting(family: &str, interface: &str, name: &str, value: u8) -> String {
    format!("{}={value}", key(family, interface, name))
}

/// Tables that are named and have no route.
fn tables(configuration: &Configuration, machine: &Machine, findings: &mut Findings) {
    if configuration.router.routes != RoutesFrom::Kernel {
        return;
    }
    let Some(routes) = &machine.routes else {
        let text = "the kernel did not tell its routes in time: run `polder check` again".to_owned();
        return findings.warn("router", "routes", text);
    };
    for table in &configuration.router.tables {
        if routes.get(table).copied().unwrap_or(0) == 0 {
            let text = format!(
                "table {table} is named in `tables` and has no route, so nothing is followed there: \
                 `ip route show table {table}`; name the table that your routing daemon writes to"
            );
            findings.warn("router", "routes", text);
        }
    }
}

/// Routers that no port has on its link.
fn next_hops(configuration: &Configuration, machine: &Machine, findings: &mut Findings) {
    // Without the kernel's word nothing is known of its interfaces.
    if machine.interfaces.is_empty() && interfaces(configuration).next().is_some() {
        return;
    }
    for route in &configuration.router.route {
        let ports = || {
            let ports = configuration.ports.iter().filter(|port| port.role == Role::Router);
            ports.filter(|port| route.port.is_none_or(|only| only == port.id))
        };
        // In a tunnel nobody is asked for: what is named is the other end.
        let tunnels = || {
            let tunnels = configuration.tunnels.iter().filter(|tunnel| tunnel.is_routed());
            tunnels.filter(|tunnel| route.port.is_none_or(|only| only == tunnel.id))
        };
        let is_by_tunnel = |via| {
            tunnels().any(|tunnel| {
                let is_near = |own: &InterfaceAddress| contains((own.address, own.bits), via);
                route.port.is_some() || tunnel.addresses.iter().any(is_near)
            })
        };
        for &via in &route.via {
            let is_of_link = matches!(via, IpAddr::V6(address) if address.is_unicast_link_local());
            let is_near = |port: &Port| networks(port, machine).any(|network| contains(network, via));
            if is_of_link || ports().any(is_near) || is_by_tunnel(via) {
                continue;
            }
            let names = ports().map(|port| port.name.as_str());
            let names = names.chain(tunnels().map(|tunnel| tunnel.name.as_str()));
            let where_to = names.collect::<Vec<_>>().join(", ");
            let text = format!(
                "the route to {} goes by {via}, which is in no network of {where_to}: it is asked for and never answers; \
                 name a router on one of their links, or give a port an address in its network",
                route.to
            );
            findings.warn("router", "next hop", text);
        }
    }
}

/// The networks of a port.
fn networks<'a>(port: &'a Port, machine: &'a Machine) -> impl Iterator<Item = (IpAddr, u8)> + 'a {
    let kernels = port.device.interface().and_then(|name| machine.interfaces.get(name));
    let kernels = kernels.into_iter().flat_map(|interface| interface.addresses.iter().copied());
    port.addresses.iter().map(|own| (own.address, own.bits)).chain(kernels)
}

fn contains((network, bits): (IpAddr, u8), address: IpAddr) -> bool {
    polder_datapath::route::Prefix::new(network, bits).is_ok_and(|network| network.contains(address))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;
    use polder_datapath::route::Prefix;
    use std::collections::BTreeMap;
    use std::path::Path;

    const TWO: &str = "version = 1\n[port.lan]\ninterface = \"e0\"\nrole = \"router\"\non_exit = \"kernel\"\n\
                       [port.wan]\ninterface = \"e1\"\nrole = \"router\"\non_exit = \"kernel\"\n";

    fn interface(address: &str) -> Interface {
        Interface {
            mtu: 1500,
            addresses: vec![(
                address.parse().expect("an address"),
                if address.contains(':') { 64 } else { 24 },
            )],
            forwards: [Some(true); 2],
            ..Interface::default()
        }
    }

    fn machine() -> Machine {
        Machine {
            interfaces: [("e0", "10.0.0.1"), ("e1", "10.0.1.1")]
                .map(|(name, address)| (name.to_owned(), interface(address)))
                .into(),
            forwards: [Some(true); 2],
            left: BTreeMap::new(),
            hears_routers: false,
            routes: Some([(100, 0), (200, 3)].into()),
        }
    }

    /// Findings, good news aside.
    fn found(text: &str, change: impl FnOnce(&mut Machine)) -> Vec<(String, Severity, String, String)> {
        let configuration = config::parse(text, Path::new("r.toml")).expect(text).configuration;
        let mut machine = machine();
        change(&mut machine);
        let seen = judge(&configuration, &machine).into_iter().filter(|seen| seen.severity > Severity::Fine);
        seen.map(|seen| (seen.of, seen.severity, seen.topic, seen.text)).collect()
    }

    /// Checks that this is the only finding, and that it has a remedy.
    fn only(
        text: &str,
        change: impl FnOnce(&mut Machine),
        (of, severity, topic): (&str, Severity, &str),
        remedy: &str,
    ) {
        let found = found(text, change);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(
            (found[0].0.as_str(), found[0].1, found[0].2.as_str()),
            (of, severity, topic),
            "{found:?}"
        );
        assert!(found[0].3.contains(remedy), "{found:?}");
    }

    fn e0(machine: &mut Machine) -> &mut Interface {
        machine.interfaces.get_mut("e0").expect("it is there")
    }

    #[test]
    fn a_machine_that_is_ready_is_not_complained_of() {
        assert_eq!(found(TWO, |_| {}), []);
        assert_eq!(
            found(
                "version = 1\n[port.a]\ntap = \"a\"\n[port.b]\ntap = \"b\"\n[bridge.b]\nmembers = [\"a\", \"b\"]\n",
                |_| {}
            ),
            []
        );
    }

    #[test]
    fn a_port_without_an_address() {
        let port = ("port.lan", Severity::Warning, "address");
        only(TWO, |machine| e0(machine).addresses.clear(), port, "ip address add");
        let link_local = |machine: &mut Machine| *e0(machine) = interface("fe80::1");
        only(TWO, link_local, port, "ip address add");
    }

    #[test]
    fn strict_looks_at_sources() {
        let port = ("port.lan", Severity::Warning, "rp_filter");
        only(TWO, |machine| e0(machine).source_check = 1, port, "rp_filter=2");
        assert_eq!(found(TWO, |machine| e0(machine).source_check = 2), []);
    }

    #[test]
    fn packets_that_would_be_forwarded_twice() {
        let port = ("port.lan", Severity::Warning, "forwarding");
        only(TWO, |machine| e0(machine).master = Some("br0".to_owned()), port, "nomaster");
        let port = ("port.lan", Severity::Problem, "forwarding");
        only(TWO, |machine| e0(machine).below = Some("e1".to_owned()), port, "remove [port.lan]");
    }

    fn add(machine: &mut Machine, address: &str) {
        e0(machine).addresses.push((address.parse().expect("an address"), 64));
    }

    #[test]
    fn a_kernel_that_does_not_forward() {
        let router = ("router", Severity::Warning, "forwarding");
        let off = |machine: &mut Machine| machine.forwards = [Some(false); 2];
        only(TWO, off, router, "`sysctl -w net.ipv4.ip_forward=1`");
        let closed = TWO.replace("\"kernel\"", "\"drop\"");
        only(&closed, off, router, "net.ipv4.ip_forward=1");
        let at_port = |machine: &mut Machine| e0(machine).forwards = [Some(false); 2];
        only(TWO, at_port, ("port.lan", Severity::Warning, "forwarding"), "net.ipv4.conf.e0.forwarding=1");
        assert_eq!(key("ipv4", "e0.5", "forwarding"), "net/ipv4/conf/e0.5/forwarding");
    }

    #[test]
    fn hosts_would_drop_their_default_router() {
        let router = ("router", Severity::Warning, "forwarding");
        let off = |machine: &mut Machine| machine.forwards[1] = Some(false);
        assert_eq!(found(TWO, off), [], "it is no router of IPv6");
        let link_local = |machine: &mut Machine| {
            add(machine, "fe80::1");
            off(machine);
        };
        assert_eq!(found(TWO, link_local), []);
        let routes = |machine: &mut Machine| {
            add(machine, "2001:db8::1");
            off(machine);
        };
        only(TWO, routes, router, "`sysctl -w net.ipv6.conf.all.forwarding=1`");
        only(TWO, routes, router, "RFC 4861, 7.3.3");
        let at_port = |machine: &mut Machine| {
            add(machine, "2001:db8::1");
            e0(machine).forwards[1] = Some(false);
        };
        only(TWO, at_port, ("port.lan", Severity::Warning, "forwarding"), "net.ipv6.conf.e0.forwarding=1");
    }

    #[test]
    fn a_machine_that_hears_routers_goes_on_hearing_them() {
        let hears = |accepts| {
            move |machine: &mut Machine| {
                add(machine, "2001:db8::1");
                machine.forwards[1] = Some(false);
                machine.hears_routers = true;
                e0(machine).accepts_advertisements = accepts;
            }
        };
        let router = ("router", Severity::Warning, "forwarding");
        only(TWO, hears(1), router, "net.ipv6.conf.all.forwarding=1 net.ipv6.conf.e0.accept_ra=2`");
        only(TWO, hears(2), router, "net.ipv6.conf.all.forwarding=1`");
    }

    #[test]
    fn routes_by_other_interfaces_are_left_to_the_kernel() {
        let left = |machine: &mut Machine| {
            let prefix = Prefix::new("10.66.0.0".parse().expect("an address"), 24).expect("a prefix");
            machine.left.insert("vpn0".to_owned(), vec![prefix]);
        };
        let configuration = config::parse(TWO, Path::new("r.toml")).expect(TWO).configuration;
        let mut machine = machine();
        left(&mut machine);
        let seen = judge(&configuration, &machine);
        let told = seen.iter().find(|seen| seen.topic == "kernel").expect("it is said");
        assert_eq!(told.severity, Severity::Fine);
        assert!(
            told.text.starts_with("vpn0 is no port: 10.66.0.0/24 is left to the kernel"),
            "{}",
            told.text
        );
        assert_eq!(found(TWO, left), []);
        let off = |machine: &mut Machine| {
            left(machine);
            machine.forwards[0] = Some(false);
        };
        let warned = found(TWO, off);
        let topics = warned.iter().map(|seen| (seen.1, seen.2.as_str())).collect::<Vec<_>>();
        assert_eq!(topics, [(Severity::Warning, "forwarding"), (Severity::Warning, "kernel")]);
        assert!(warned[1].3.contains("net.ipv4.ip_forward=1"), "{warned:?}");
    }

    #[test]
    fn a_table_that_is_empty() {
        let text = format!("{TWO}[router]\ntables = [100, 200]\n");
        only(&text, |_| {}, ("router", Severity::Warning, "routes"), "ip route show table 100");
        let silent = ("router", Severity::Warning, "routes");
        only(TWO, |machine| machine.routes = None, silent, "again");
    }

    #[test]
    fn a_next_hop_on_no_link() {
        let text = |via: &str| format!("{TWO}[[router.route]]\nto = \"10.9.0.0/16\"\nvia = \"{via}\"\n");
        only(&text("10.7.0.1"), |_| {}, ("router", Severity::Warning, "next hop"), "lan, wan");
        assert_eq!(found(&text("10.0.1.77"), |_| {}), []);
        let with_port = |via: &str| format!("{}port = \"lan\"\n", text(via));
        only(
            &with_port("10.0.1.77"),
            |_| {},
            ("router", Severity::Warning, "next hop"),
            "in no network of lan:",
        );
    }

    #[test]
    fn a_next_hop_in_a_tunnel_is_its_other_end() {
        let text = |route: &str| {
            format!(
                "{TWO}[tunnel.far]\nkind = \"gre\"\naddresses = [\"10.255.1.0/31\"]\nlocal = \"10.0.1.1\"\n\
                 remote = \"10.0.1.9\"\nport = \"wan\"\n[[router.route]]\nto = \"10.9.0.0/16\"\nvia = {route}\n"
            )
        };
        assert_eq!(found(&text("\"10.255.1.1\""), |_| {}), []);
        assert_eq!(found(&text("\"10.7.0.1\"\nport = \"far\""), |_| {}), []);
        let warning = ("router", Severity::Warning, "next hop");
        only(&text("\"10.7.0.1\""), |_| {}, warning, "in no network of lan, wan, far");
        let example = include_str!("../../../../../examples/router-tunnels.toml");
        let found = found(example, |_| {});
        assert!(found.iter().all(|(.., topic, _)| topic != "next hop"), "{found:?}");
    }

    #[test]
    fn an_mtu_too_small_for_ipv6() {
        let problem = ("port.lan", Severity::Problem, "mtu");
        let narrow = |machine: &mut Machine| {
            e0(machine).addresses.push(("2001:db8::1".parse().expect("an address"), 64));
            e0(machine).mtu = 1279;
        };
        only(TWO, narrow, problem, "ip link set dev e0 mtu 1280");
        assert_eq!(found(TWO, |machine| e0(machine).mtu = 1279), [], "IPv4 alone");
        let tap = "version = 1\n[port.t]\ntap = \"t\"\nrole = \"router\"\naddresses = [\"2001:db8::1/64\"]\nmtu = 1000\n";
        only(tap, |_| {}, ("port.t", Severity::Problem, "mtu"), "raise `mtu`");
    }
}
