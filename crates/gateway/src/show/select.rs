//! Selection of a view's rows: `polder show ports lan`, `polder show fdb 02:00:00:00:00:01`.

use super::View;
use super::connections::ConnectionRow;
use super::drops::DropRow;
use super::fdb::{BridgeRow, FdbRow};
use super::filters::FilterRow;
use super::flows::{CarriedRow, FastPathRow};
use super::ports::PortRow;
use super::queues::QueueRow;
use super::routes::{NeighbourRow, RouteRow};
use super::tunnels::TunnelRow;
use super::workers::WorkerRow;
use std::collections::BTreeSet;

impl View {
    /// Names, addresses and numbers that select rows, for completion.
    pub(crate) fn names(&self) -> BTreeSet<String> {
        let mut names = BTreeSet::new();
        match self {
            Self::Ports(rows) => names.extend(rows.iter().map(|row| row.name.clone())),
            Self::Tunnels(rows) => names.extend(rows.iter().map(|row| row.name.clone())),
            Self::Fdb(bridges) => names.extend(bridges.iter().flat_map(station_names).cloned()),
            Self::Routes(routes) => {
                let of = |row: &RouteRow| {
                    let hops = row.hops.iter().flat_map(|hop| [Some(hop.port.clone()), hop.via.clone()]);
                    hops.flatten().chain([row.to.clone()]).collect::<Vec<_>>()
                };
                names.extend(routes.routes.iter().flat_map(of));
            }
            Self::Neighbors(rows) => {
                let of =
                    |row: &NeighbourRow| [Some(row.port.clone()), Some(row.address.clone()), row.mac.clone()];
                names.extend(rows.iter().flat_map(of).flatten());
            }
            Self::Filters(filters) => names.extend(filters.rules.iter().map(rule_name)),
            Self::Flows(flows) => {
                let of = |row: &CarriedRow| [row.source.clone(), row.destination.clone()];
                names.extend(flows.flows.iter().flat_map(of));
                names.extend(flows.ports.iter().chain(&flows.tunnels).map(|row| row.port.clone()));
            }
            Self::Connections(connections) => {
                let of = |row: &ConnectionRow| [row.source.clone(), row.destination.clone()];
                names.extend(connections.connections.iter().flat_map(of));
            }
            Self::Drops(drops) => {
                let of = |row: &DropRow| [row.reason.clone(), row.stage.clone()];
                names.extend(drops.reasons.iter().flat_map(of));
            }
            Self::Workers(rows) => names.extend(rows.iter().map(|row| row.number.to_string())),
            Self::Queues(rows) => names.extend(rows.iter().map(|row| row.port.clone())),
            Self::Path(_) | Self::Counters(_) | Self::Steering(_) | Self::Buffers(_) | Self::Config(_) => {}
        }
        names
    }

    /// Keeps the rows with a name, address or number.
    ///
    /// # Errors
    /// When there are none, or rows of the view have no names; lists the existing names.
    pub fn select(&mut self, name: &str) -> Result<(), String> {
        match self {
            Self::Ports(rows) => {
                let of = |row: &PortRow| row.name == name || row.interface == name;
                keep(rows, of, ("port", name), |row| &row.name)
            }
            Self::Tunnels(rows) => {
                let of = |row: &TunnelRow| {
                    row.name == name || row.remote == name || row.name.split('@').next() == Some(name)
                };
                keep(rows, of, ("tunnel", name), |row| &row.name)
            }
            Self::Fdb(rows) => select_stations(rows, name),
            Self::Routes(routes) => {
                let of = |row: &RouteRow| row.to == name || row.hops.iter().any(|hop| is_on(&hop.port, name));
                keep(&mut routes.routes, of, ("route", name), |row| &row.to)
            }
            Self::Neighbors(rows) => {
                let of = |row: &NeighbourRow| {
                    row.address == name || is_on(&row.port, name) || row.mac.as_deref() == Some(&mac(name))
                };
                keep(rows, of, ("neighbour", name), |row| &row.address)
            }
            Self::Filters(filters) => {
                let of =
                    |row: &FilterRow| row.name.as_deref() == Some(name) || row.number.to_string() == name;
                let known = filters.rules.iter().map(rule_name).collect::<Vec<_>>();
                filters.rules.retain(of);
                found(filters.rules.is_empty(), ("rule", name), known)
            }
            Self::Flows(flows) => {
                let of = |row: &CarriedRow| {
                    [&row.from, &row.to, &row.source, &row.destination].iter().any(|text| *text == name)
                };
                flows.flows.retain(of);
                let known = flows.ports.iter().chain(&flows.tunnels).map(|row| row.port.clone()).collect();
                let is_of = |row: &FastPathRow| row.port == name;
                flows.ports.retain(is_of);
                flows.tunnels.retain(is_of);
                let is_empty = flows.flows.is_empty() && flows.ports.is_empty() && flows.tunnels.is_empty();
                found(is_empty, ("flow, port or tunnel", name), known)
            }
            Self::Connections(shown) => {
                keep(&mut shown.connections, |row| row.has(name), ("connection", name), |row| &row.source)
            }
            Self::Drops(drops) => {
                keep(&mut drops.reasons, |row| is_drop(row, name), ("drop", name), |row| &row.reason)
            }
            Self::Workers(rows) => {
                let known = rows.iter().map(|row| row.number.to_string()).collect();
                rows.retain(|row: &WorkerRow| row.number.to_string() == name);
                found(rows.is_empty(), ("worker", name), known)
            }
            Self::Queues(rows) => {
                keep(rows, |row: &QueueRow| row.port == name, ("queue of port", name), |row| &row.port)
            }
            Self::Path(_) | Self::Counters(_) | Self::Steering(_) | Self::Buffers(_) | Self::Config(_) => {
                Err(format!("this view covers the whole gateway: omit `{name}`"))
            }
        }
    }
}

/// True if packets were dropped for a reason, in a stage, or at a port.
fn is_drop(row: &DropRow, name: &str) -> bool {
    row.reason == name || row.stage == name || row.ports.contains_key(name)
}

/// Selects bridges by name, or stations by address or port.
fn select_stations(bridges: &mut Vec<BridgeRow>, name: &str) -> Result<(), String> {
    if bridges.iter().any(|bridge| bridge.name == name) {
        bridges.retain(|bridge| bridge.name == name);
        return Ok(());
    }
    let address = mac(name);
    let of = |entry: &FdbRow| {
        entry.address == address || entry.port == name || entry.remote.as_deref() == Some(name)
    };
    let known = bridges.iter().map(|bridge| bridge.name.clone()).collect();
    for bridge in bridges.iter_mut() {
        bridge.entries.retain(of);
        let holds = |member: &str| bridge.entries.iter().any(|entry| entry.port == member) || member == name;
        bridge.members.retain(|member| holds(&member.name));
    }
    bridges.retain(|bridge| !bridge.entries.is_empty() || !bridge.members.is_empty());
    found(bridges.is_empty(), ("address, port or bridge", name), known)
}

/// Names of a bridge and its members, and its learned addresses.
fn station_names(bridge: &BridgeRow) -> impl Iterator<Item = &String> {
    let members = bridge.members.iter().map(|member| &member.name);
    let addresses = bridge.entries.iter().map(|entry| &entry.address);
    members.chain(addresses).chain([&bridge.name])
}

/// Name of a rule; its number if it has none.
fn rule_name(row: &FilterRow) -> String {
    row.name.clone().unwrap_or_else(|| row.number.to_string())
}

/// An address in the format of views: `02-00-5E-…` as `02:00:5e:…`.
fn mac(text: &str) -> String {
    text.replace('-', ":").to_lowercase()
}

/// True if an interface, named by port and VLAN, belongs to a port or equals `name`.
fn is_on(interface: &str, name: &str) -> bool {
    interface == name || interface.rsplit_once('.').is_some_and(|(port, _)| port == name)
}

fn keep<T>(
    rows: &mut Vec<T>,
    of: impl Fn(&T) -> bool,
    (noun, name): (&str, &str),
    label: impl Fn(&T) -> &String,
) -> Result<(), String> {
    let known = rows.iter().map(|row| label(row).clone()).collect();
    rows.retain(of);
    found(rows.is_empty(), (noun, name), known)
}

/// Maximum number of names that an error lists.
const LISTED: usize = 12;

fn found(is_empty: bool, (noun, name): (&str, &str), mut known: Vec<String>) -> Result<(), String> {
    if !is_empty {
        return Ok(());
    }
    known.dedup();
    let rest = if known.len() > LISTED { ", …" } else { "" };
    known.truncate(LISTED);
    let there = if known.is_empty() {
        "there is none".to_owned()
    } else {
        format!("there are {}{rest}", known.join(", "))
    };
    Err(format!("there is no {noun} `{name}`: {there}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::show::fdb::MemberRow;

    #[test]
    fn a_port_is_found_by_its_name_or_interface_and_others_are_named() {
        let row = |name: &str, interface: &str| PortRow {
            name: name.to_owned(),
            interface: interface.to_owned(),
            ..PortRow::default()
        };
        let view = || View::Ports(vec![row("lan", "eth0"), row("wan", "eth1")]);
        for name in ["wan", "eth1"] {
            let mut view = view();
            view.select(name).unwrap();
            assert!(matches!(&view, View::Ports(rows) if rows.len() == 1 && rows[0].name == "wan"));
        }
        assert_eq!(view().select("dmz"), Err("there is no port `dmz`: there are lan, wan".to_owned()));
        assert!(View::Path(crate::show::path::Path::default()).select("lan").is_err());
    }

    #[test]
    fn a_station_is_found_by_its_address_in_any_notation() {
        let entry = |last: u8, port: &str| FdbRow {
            vlan: None,
            address: format!("02:00:00:00:00:{last:02x}"),
            port: port.to_owned(),
            remote: None,
            age_seconds: Some(1),
        };
        let member = |name: &str| MemberRow { name: name.to_owned(), ..MemberRow::default() };
        let bridge = BridgeRow {
            name: "br0".to_owned(),
            members: vec![member("lan"), member("wan")],
            entries: vec![entry(0xab, "lan"), entry(2, "wan")],
            ..BridgeRow::default()
        };
        let mut view = View::Fdb(vec![bridge.clone()]);
        view.select("02-00-00-00-00-AB").unwrap();
        let View::Fdb(rows) = view else { panic!("bridges") };
        assert_eq!(
            (rows[0].entries.len(), rows[0].entries[0].port.as_str(), rows[0].members.len()),
            (1, "lan", 1)
        );
        let mut view = View::Fdb(vec![bridge.clone()]);
        view.select("br0").unwrap();
        assert_eq!(view, View::Fdb(vec![bridge.clone()]));
        let missing = View::Fdb(vec![bridge]).select("02:00:00:00:00:99").unwrap_err();
        assert!(missing.contains("there are br0"), "{missing}");
    }
}
