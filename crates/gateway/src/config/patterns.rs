//! `[port."c*"]`: ports of all interfaces of a name, as `veth*`.
//!
//! A pattern is read and checked as the port that it would be, a member of its bridge, and then taken out of the
//! configuration: what is left of it are tables, in which the gateway puts names of interfaces that come.

use super::added::changed;
use super::diagnostics::Diagnostic;
use super::file::FileDraft;
use super::keys::Draft;
use super::model::{Configuration, Port, Role};
use super::section::{Findings, Span};
use super::values::is_name;
use polder_buffers::PortId;
use serde::Serialize;
use toml::{Table, Value};

/// Stands for the part of a name in which interfaces differ.
const ANY: char = '*';
const OF_A_BRIDGE: &str = "ports of a pattern have to be members of a bridge";

/// Ports of all interfaces of a name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Pattern {
    /// Its name, as `c*`.
    pub name: String,
    /// Names of the interfaces, as `veth*`.
    pub interface: String,
    /// The bridge of its ports.
    pub bridge: String,
    /// Tables of one of its ports, without the name of the bridge.
    tables: String,
}

impl Pattern {
    /// Name of the port that `interface` would be; `None` if it is not of the pattern.
    pub fn port_of(&self, interface: &str) -> Option<String> {
        let (before, behind) = self.interface.split_once(ANY)?;
        let part = interface.strip_prefix(before)?.strip_suffix(behind).filter(|part| !part.is_empty())?;
        Some(self.name.replace(ANY, part))
    }

    /// Tables of the port `name` with that interface, as a file would have them.
    pub fn tables_of(&self, name: &str, interface: &str) -> String {
        let mut tables = self.tables();
        let own = |tables: &mut Table| tables.remove(&self.name).unwrap_or(Value::Table(Table::new()));
        if let Some(ports) = tables.get_mut("port").and_then(Value::as_table_mut) {
            let mut port = own(ports);
            if let Some(port) = port.as_table_mut() {
                port.insert("interface".to_owned(), interface.into());
                port.insert("bridge".to_owned(), self.bridge.clone().into());
            }
            ports.insert(name.to_owned(), port);
        }
        let bridge = tables.get_mut("bridge").and_then(|bridges| bridges.get_mut(&self.bridge));
        let members = bridge.and_then(|bridge| bridge.get_mut("port")).and_then(Value::as_table_mut);
        if let Some(members) = members {
            let member = own(members);
            members.insert(name.to_owned(), member);
        }
        tables.to_string()
    }

    fn tables(&self) -> Table {
        self.tables.parse().unwrap_or_default()
    }

    /// The tables of a configuration with those of the pattern.
    pub(super) fn written_into(&self, tables: Table) -> Table {
        let mut all = changed(tables, self.tables());
        let bridge = all.get_mut("bridge").and_then(|bridges| bridges.get_mut(&self.bridge));
        if let Some(Value::Array(members)) = bridge.and_then(|bridge| bridge.get_mut("members")) {
            members.push(self.name.clone().into());
        }
        all
    }
}

/// True if ports of this name are a pattern's.
pub(super) fn is_pattern(name: &str) -> bool {
    name.matches(ANY).count() == 1 && is_name(&name.replace(ANY, "0"))
}

/// True if a port can have that name.
pub fn is_port_name(name: &str) -> bool {
    is_name(name)
}

/// Notes patterns that would be none, and references to one where a port is meant.
pub(super) fn check(draft: &FileDraft, findings: &Findings) {
    draft.ports.iter().filter_map(wrong).for_each(|finding| findings.note(finding));
    let is_of = |id: &PortId| {
        let port = draft.ports.get(usize::from(id.0));
        port.is_some_and(|port| is_pattern(&port.value.name))
    };
    let refused = |span: &Span| {
        let message = "a pattern stands for several ports and is not itself a port";
        let remedy = "name ports, or remove the key to include all ports";
        findings.note(Diagnostic::error(span.clone(), message).remedy(remedy));
    };
    for filter in &draft.filters {
        filter.at("port").filter(|_| filter.value.ports.iter().any(is_of)).into_iter().for_each(refused);
    }
    for entry in draft.bridges.iter().flat_map(|bridge| &bridge.static_entries) {
        entry.at("port").filter(|_| is_of(&entry.value.port)).into_iter().for_each(refused);
    }
}

fn wrong(port: &Draft<Port>) -> Option<Diagnostic> {
    let name = &port.value.name;
    let error = |span: &Span, message: String| Some(Diagnostic::error(span.clone(), message));
    let interface = port.value.device.interface().zip(port.at("interface"));
    if !is_pattern(name) {
        let (interface, span) = interface.filter(|(interface, _)| interface.contains(ANY))?;
        let remedy = format!("write `[port.\"{name}*\"]`, so that each of its ports has its own name");
        return error(span, format!("`{interface}` stands for several interfaces"))
            .map(|found| found.remedy(remedy));
    }
    let Some((interface, span)) = interface else {
        // One that could not be read has a finding.
        let is_there = port.key("interface").is_some();
        let remedy = "add `interface = \"veth*\"`";
        let found = error(&port.name, format!("`{name}` is a pattern without an `interface`"));
        return found.filter(|_| !is_there).map(|found| found.remedy(remedy));
    };
    if interface.matches(ANY).count() != 1 {
        let remedy = "write one `*`, as in `interface = \"veth*\"`, or a port name without `*`";
        return error(span, format!("`{name}` is a pattern, but `{interface}` is not"))
            .map(|found| found.remedy(remedy));
    }
    if let Some(span) = port.at("source_guard") {
        let remedy = "add such ports one by one, with `polder port add`";
        return error(span, "`source_guard` cannot be shared by the ports of a pattern".to_owned())
            .map(|found| found.remedy(remedy));
    }
    let span = port.at("role").filter(|_| port.value.role != Role::Bridge)?;
    error(span, OF_A_BRIDGE.to_owned()).map(|found| found.remedy("give each port a table of its own"))
}

/// Takes patterns out of a configuration that has them as ports.
pub(super) fn take_out(configuration: &mut Configuration) {
    if !configuration.ports.iter().any(|port| is_pattern(&port.name)) {
        return;
    }
    let all = configuration.to_table();
    let (patterns, ports) =
        std::mem::take(&mut configuration.ports).into_iter().partition(|port| is_pattern(&port.name));
    configuration.ports = ports;
    let pattern = |port: Port| pattern(&all, port, configuration);
    let patterns = Vec::into_iter(patterns).filter_map(pattern).collect::<Vec<_>>();
    let left = configuration.ports.iter().map(|port| port.id).collect::<Vec<_>>();
    let tunnels = configuration.tunnels.iter().map(|tunnel| tunnel.id).collect::<Vec<_>>();
    for bridge in &mut configuration.bridges {
        bridge.members.retain(|member| left.contains(&member.port) || tunnels.contains(&member.port));
    }
    configuration.patterns = patterns;
}

/// A pattern that stands in the tables `all` as a port; `None` for one that is no bridge's.
fn pattern(all: &Table, port: Port, configuration: &Configuration) -> Option<Pattern> {
    let bridge = configuration.bridge_of(port.id)?.name.clone();
    let under = |key: &str, value: Value| Value::Table(Table::from_iter([(key.to_owned(), value)]));
    let of_port = all.get("port")?.get(&port.name)?.clone();
    let of_member = all.get("bridge")?.get(&bridge)?.get("port")?.get(&port.name)?.clone();
    let member = under("port", under(&port.name, of_member));
    let tables = Table::from_iter([
        ("port".to_owned(), under(&port.name, of_port)),
        ("bridge".to_owned(), under(&bridge, member)),
    ]);
    let interface = port.device.interface()?.to_owned();
    Some(Pattern { name: port.name, interface, bridge, tables: tables.to_string() })
}

#[cfg(test)]
mod tests {
    use super::super::{added, parse};
    use super::*;
    use std::path::Path;

    const TEXT: &str = "version = 1\n[port.host]\ntap = \"host0\"\n[port.\"c*\"]\ninterface = \"veth*\"\n\
        bridge = \"lan\"\nmtu = 1400\n[bridge.lan]\nmembers = [\"host\"]\n[bridge.lan.port.host]\n\
        vlan = { access = 7 }\n[bridge.lan.port.\"c*\"]\nvlan = { access = 8 }\nisolated = true\n";

    fn read(text: &str) -> Result<Configuration, String> {
        parse(text, Path::new("a.toml"))
            .map(|loaded| loaded.configuration)
            .map_err(|report| report.to_string())
    }

    #[test]
    fn a_pattern_becomes_ports() {
        let all = read(TEXT).expect("valid");
        assert_eq!((all.ports.len(), all.bridges[0].members.len()), (1, 1));
        let [pattern] = &all.patterns[..] else { panic!("{:?}", all.patterns) };
        assert_eq!(pattern.port_of("veth5").as_deref(), Some("c5"));
        assert_eq!(
            ["veth", "eth5", "xveth5"].map(|interface| pattern.port_of(interface)),
            [const { None }; 3]
        );
        let tables = pattern.tables_of("c5", "veth5");
        assert!(added::tables_of("c5", &tables).is_ok(), "{tables}");
        let with =
            added::with_ports(&all, &[], &[("c5".to_owned(), tables)]).expect("a right port").configuration;
        let port = &with.ports[1];
        assert_eq!(
            (port.name.as_str(), port.device.interface(), port.mtu),
            ("c5", Some("veth5"), Some(1400))
        );
        let member = &with.bridges[0].members[1];
        assert!(member.isolated && member.vlan.is_some() && member.port == port.id, "{member:?}");
        assert_eq!(with.patterns, all.patterns);
    }

    #[test]
    fn a_pattern_is_written_as_it_is_read() {
        // The only member of a bridge is one, too.
        for text in [
            TEXT.to_owned(),
            TEXT.replace("members = [\"host\"]", "members = [\"host\"]\nageing_seconds = 60"),
        ] {
            let original = read(&text).expect("valid");
            let written = original.to_toml();
            assert_eq!(read(&written).expect(&written), original, "{written}");
        }
    }

    #[test]
    fn what_is_no_pattern_is_refused() {
        for (replace, with, message) in [
            ("\"veth*\"", "\"veth5\"", "`c*` is a pattern, but `veth5` is not"),
            ("\"veth*\"", "\"v*th*\"", "`c*` is a pattern, but `v*th*` is not"),
            ("interface = \"veth*\"", "tap = \"tap0\"", "`c*` is a pattern without an `interface`"),
            ("tap = \"host0\"", "interface = \"eth*\"", "`eth*` stands for several interfaces"),
            ("mtu = 1400", "role = \"underlay\"", "cannot be a member of a bridge"),
            (
                "mtu = 1400",
                "source_guard = { mac = \"02:00:00:00:00:01\" }",
                "`source_guard` cannot be \
                    shared by the ports of a \
                        pattern",
            ),
            ("bridge = \"lan\"\n", "", "member"),
            (
                "[bridge.lan.port.host]",
                "[[filter]]\nport = \"c*\"\naction = \"drop\"\n[bridge.lan.port.host]",
                "a pattern stands for several ports",
            ),
            (
                "[bridge.lan.port.host]",
                "[[bridge.lan.static]]\nmac = \"02:00:00:00:00:01\"\nvlan = 8\nport = \"c*\"\n[bridge.lan.port.host]",
                "a pattern stands for several ports",
            ),
            ("\"c*\"", "\"c**\"", "cannot be a name"),
        ] {
            let report = read(&TEXT.replace(replace, with)).expect_err(message);
            assert!(report.contains(message), "{message}: {report}");
        }
    }
}
