//! Obstacles to a router.

use super::machine::{Interface, Machine, interfaces};
use super::{PreflightFinding, Severity};
use crate::config::model::{Configuration, OnExit, Port, Role};
use crate::config::router::RoutesFrom;
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
    tables(configuration, machine, &mut findings);
    next_hops(configuration, machine, &mut findings);
    findings.0
}

struct Findings(Vec<PreflightFinding>);

impl Findings {
    fn note(&mut self, of: &str, severity: Severity, topic: &str, text: String) {
        self.0.push(PreflightFinding { of: of.to_owned(), severity, topic: topic.to_owned(), text });
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

/// Checks whether the kernel goes on forwarding when Polder ends.
fn forwarding(configuration: &Configuration, machine: &Machine, findings: &mut Findings) {
    let open = |port: &&Port| {
        port.role == Role::Router && port.on_exit == OnExit::Kernel && port.device.interface().is_some()
    };
    if configuration.ports.iter().filter(open).count() < 2 {
        return;
    }
    let all = [
        ("IPv4", "net.ipv4.ip_forward", machine.forwards[0]),
        ("IPv6", "net.ipv6.conf.all.forwarding", machine.forwards[1]),
    ];
    for (family, key, forwards) in all {
        match forwards {
            Some(true) => {
                let text = format!(
                    "the kernel goes on forwarding {family} when Polder ends; while it runs, Polder has the packets first"
                );
                findings.note("router", Severity::Fine, "forwarding", text);
            }
            Some(false) => {
                let text = format!(
                    "Polder needs no {key}, but with `on_exit = \"kernel\"` nobody forwards {family} once it has ended: \
                     `sysctl -w {key}=1`, or `on_exit = \"drop\"` to say that nobody should"
                );
                findings.warn("router", "forwarding", text);
            }
            None => {}
        }
    }
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
        for &via in &route.via {
            let is_of_link = matches!(via, IpAddr::V6(address) if address.is_unicast_link_local());
            if is_of_link || ports().any(|port| networks(port, machine).any(|network| contains(network, via)))
            {
                continue;
            }
            let where_to = ports().map(|port| port.name.as_str()).collect::<Vec<_>>().join(", ");
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
            ..Interface::default()
        }
    }

    fn machine() -> Machine {
        Machine {
            interfaces: [("e0", "10.0.0.1"), ("e1", "10.0.1.1")]
                .map(|(name, address)| (name.to_owned(), interface(address)))
                .into(),
            forwards: [Some(true); 2],
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

    #[test]
    fn nobody_forwards_when_polder_has_ended() {
        let router = ("router", Severity::Warning, "forwarding");
        only(TWO, |machine| machine.forwards[0] = Some(false), router, "net.ipv4.ip_forward=1");
        only(TWO, |machine| machine.forwards[1] = Some(false), router, "net.ipv6.conf.all.forwarding=1");
        let closed = TWO.replace("\"kernel\"", "\"drop\"");
        assert_eq!(found(&closed, |machine| machine.forwards = [Some(false); 2]), []);
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
