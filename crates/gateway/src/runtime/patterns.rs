//! Interfaces that match port patterns: new ports, and skipped interfaces with the reason.

use super::gateway::AddedPort;
use super::host_traffic::{HostState, is_of_link};
use super::preflight::{PreflightFinding, Severity};
use crate::config::model::Configuration;
use crate::config::patterns::Pattern;
use polder_devices::netlink::link::Link;
use std::collections::BTreeSet;

/// An interface that matches a pattern and becomes no port.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Skipped {
    /// The pattern's name.
    pub(super) pattern: String,
    /// The interface.
    pub(super) interface: String,
    /// Reason, as text.
    pub(super) why: String,
}

/// Interfaces that match the patterns of a configuration.
#[derive(Clone, Debug, Default)]
pub(super) struct Sorted {
    /// New ports.
    pub(super) ports: Vec<AddedPort>,
    /// Interfaces that become no port.
    pub(super) skipped: Vec<Skipped>,
}

/// Sorts the interfaces of `host` that `configuration` has no port for.
pub(super) fn sort(configuration: &Configuration, host: &HostState) -> Sorted {
    let names = configuration.ports.iter().map(|port| port.name.as_str());
    let mut names = names.map(str::to_owned).collect::<BTreeSet<_>>();
    let taken = configuration.ports.iter().map(|port| port.device.name()).collect::<BTreeSet<_>>();
    let mut sorted = Sorted::default();
    for link in host.links.iter().filter(|link| !taken.contains(link.name.as_str())) {
        let of_pattern = |pattern| Some((pattern, Pattern::port_of(pattern, &link.name)?));
        let Some((pattern, name)) = configuration.patterns.iter().find_map(of_pattern) else { continue };
        let why = why_left(link, host).or_else(|| why_no_name(&name, &names));
        if let Some(why) = why {
            sorted.skipped.push(Skipped { pattern: pattern.name.clone(), interface: link.name.clone(), why });
            continue;
        }
        names.insert(name.clone());
        sorted.ports.push(AddedPort::of_pattern(pattern, name, &link.name));
    }
    sorted
}

/// Reason why an interface belongs to another user.
fn why_left(link: &Link, host: &HostState) -> Option<String> {
    // Polder's own TAPs, each behind a port, are no candidates.
    if link.name == "lo" || link.kind == "tun" && link.name.starts_with("polder") {
        return Some(NOBODYS.to_owned());
    }
    if let Some(master) = link.master {
        return Some(format!("it belongs to {}", host.name(master)));
    }
    let own = host.addresses.iter().find(|own| own.index == link.index && !is_of_link(own.address));
    if let Some(own) = own {
        return Some(format!("it has the address {}/{}", own.address, own.bits));
    }
    let is_way_out = host.default_routes.iter().any(|(index, _)| *index == link.index);
    if is_way_out {
        return Some("a default route uses it".to_owned());
    }
    // Interfaces get a master or an address before they are set up.
    (!link.up).then(|| DOWN.to_owned())
}

fn why_no_name(name: &str, names: &BTreeSet<String>) -> Option<String> {
    if names.contains(name) {
        return Some(format!("port {name} already exists"));
    }
    (!crate::config::patterns::is_port_name(name)).then(|| format!("`{name}` cannot be a port name"))
}

/// Reasons that are not reported: the interface may still get an owner, or can have none.
const DOWN: &str = "it is down";
const NOBODYS: &str = "it has no carrier";

impl Skipped {
    /// True if the operator may expect a port here.
    pub(super) fn is_news(&self) -> bool {
        ![DOWN, NOBODYS].contains(&self.why.as_str())
    }
}

/// Findings about the current interfaces that match patterns.
pub(super) fn findings(configuration: &Configuration) -> Vec<PreflightFinding> {
    if configuration.patterns.is_empty() {
        return Vec::new();
    }
    let sorted = sort(configuration, &HostState::look_at_interfaces());
    let finding = |pattern: &Pattern| {
        let ports = sorted.ports.iter().filter(|port| port.is_of(pattern));
        let ports = ports.map(|port| format!("{} as {}", port.interface(), port.name)).collect::<Vec<_>>();
        let skipped =
            sorted.skipped.iter().filter(|skipped| skipped.pattern == pattern.name && skipped.why != NOBODYS);
        let skipped = skipped.map(|Skipped { interface, why, .. }| format!("{interface}: {why}"));
        let skipped = skipped.collect::<Vec<_>>();
        let ports =
            if ports.is_empty() { "matches no interface at present".to_owned() } else { ports.join(", ") };
        let rest =
            if skipped.is_empty() { String::new() } else { format!("; leaves {}", skipped.join(", ")) };
        let text = format!("matches {ports}{rest}");
        PreflightFinding::new(format!("port.{}", pattern.name), Severity::Fine, "pattern", text)
    };
    configuration.patterns.iter().map(finding).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::parse;
    use crate::kernel::message::Address;
    use std::path::Path;

    const TEXT: &str = "version = 1\n[port.up]\ninterface = \"veth0\"\n[port.c9]\ntap = \"host0\"\n\
        [port.\"c*\"]\ninterface = \"veth*\"\nbridge = \"lan\"\n[port.\"d*\"]\ninterface = \"v*\"\nbridge = \"lan\"\n\
        [bridge.lan]\nmembers = [\"up\", \"c9\"]\n";

    fn link(index: u32, name: &str) -> Link {
        Link { index, name: name.to_owned(), up: true, ..Link::default() }
    }

    #[test]
    fn interfaces_of_others_are_left() {
        let configuration = parse(TEXT, Path::new("a.toml")).expect("valid").configuration;
        let mut host = HostState::default();
        host.links = vec![
            link(1, "veth0"),
            link(2, "veth1"),
            Link { master: Some(9), ..link(3, "veth2") },
            link(4, "veth3"),
            Link { up: false, ..link(5, "veth4") },
            link(6, "veth5"),
            link(7, "veth9"),
            link(8, "veth@x"),
            link(9, "br7"),
            link(10, "vlan"),
        ];
        let address = |(index, address, bits): (u32, &str, u8)| {
            let address = address.parse().expect("an address");
            Address { index, secondary: false, address, bits }
        };
        host.addresses = [(2, "fe80::1", 64), (4, "192.0.2.1", 24)].map(address).into();
        host.default_routes = vec![(6, None)];
        let sorted = sort(&configuration, &host);
        let ports =
            sorted.ports.iter().map(|port| (port.name.as_str(), port.interface())).collect::<Vec<_>>();
        assert_eq!(ports, [("c1", "veth1"), ("dlan", "vlan")]);
        let skipped = sorted.skipped.iter().map(|skipped| (skipped.interface.as_str(), skipped.why.as_str()));
        assert_eq!(
            skipped.collect::<Vec<_>>(),
            [
                ("veth2", "it belongs to br7"),
                ("veth3", "it has the address 192.0.2.1/24"),
                ("veth4", DOWN),
                ("veth5", "a default route uses it"),
                ("veth9", "port c9 already exists"),
                ("veth@x", "`c@x` cannot be a port name"),
            ]
        );
    }

    /// An underlay is a port of the file, whatever its name looks like, and an interface with the tunnels' address is none.
    #[test]
    fn an_underlay_is_no_port_of_a_pattern() {
        let text = "version = 1\n[port.radio]\ninterface = \"veth0\"\nrole = \"underlay\"\n\
            [tunnel.t]\nkind = \"gretap\"\nlocal = \"192.0.2.1\"\nremote = \"192.0.2.2\"\nport = \"radio\"\n\
            [port.\"c*\"]\ninterface = \"veth*\"\nbridge = \"lan\"\n[bridge.lan]\nmembers = [\"t\"]\n";
        let configuration = parse(text, Path::new("a.toml")).expect("valid").configuration;
        let mut host = HostState::default();
        host.links = vec![link(1, "veth0"), link(2, "veth1"), link(3, "veth2")];
        let address = "192.0.2.1".parse().expect("an address");
        host.addresses = vec![Address { index: 3, secondary: false, address, bits: 24 }];
        let sorted = sort(&configuration, &host);
        assert_eq!(sorted.ports.iter().map(AddedPort::interface).collect::<Vec<_>>(), ["veth1"]);
        let [Skipped { interface, why, .. }] = &sorted.skipped[..] else { panic!("{sorted:?}") };
        assert_eq!((interface.as_str(), why.as_str()), ("veth2", "it has the address 192.0.2.1/24"));
    }

    #[test]
    fn a_thousand_patterns_have_their_interfaces() {
        let pattern = |of| format!("[port.\"c{of}-*\"]\ninterface = \"v{of}-*\"\nbridge = \"lan\"\n");
        let patterns = (0..1000).map(pattern).collect::<String>();
        let text = format!(
            "version = 1\n{patterns}[port.up]\ninterface = \"up\"\n[bridge.lan]\nmembers = [\"up\"]\n"
        );
        let configuration = parse(&text, Path::new("a.toml")).expect("valid").configuration;
        let mut host = HostState::default();
        host.links = (0..1000).map(|of| link(of + 1, &format!("v{of}-0"))).collect();
        let sorted = sort(&configuration, &host);
        assert_eq!((sorted.ports.len(), sorted.skipped.len()), (1000, 0));
        assert!(sorted.ports.iter().all(|port| port.still(&configuration).as_ref() == Some(port)));
    }
}
