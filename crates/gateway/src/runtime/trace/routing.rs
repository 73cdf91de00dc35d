//! The router's verdict on a traced packet.

use super::writer::{Details, TraceWriter, details};
use crate::show::routes::RouteRow;
use polder_buffers::{NO_PORT, PortId};
use polder_datapath::counters::Stage;
use polder_datapath::drops::DropReason;
use polder_datapath::route::{Found, Hop, InterfaceId, Lookup};
use polder_datapath::trace::{Fate, PacketTrace, StageRecord, TracedPacket};
use polder_datapath::wire::{Ipv4, Ipv6, Link};
use serde_json::json;
use std::net::IpAddr;

impl TraceWriter<'_> {
    /// Name of an interface.
    pub(super) fn interface(&self, interface: InterfaceId) -> String {
        self.gateway.lasting.routing.interface_name(interface)
    }

    /// Describes the router's verdict on a packet that arrived at a router interface.
    pub(super) fn routed(&mut self, traced: &PacketTrace, record: &StageRecord, before: &[TracedPacket]) {
        let routers = &traced.tables.routers;
        if let Some(first) = record.packets.first().filter(|packet| self.is_of_device(packet.ingress)) {
            let name = self.name(first.egress);
            let text = format!("the kernel has routed it, to the other end of {name}");
            return self.step("route", text, details([("port", json!(name))]));
        }
        let Some(came) = before.first().filter(|packet| routers.has(packet.ingress)) else { return };
        let found = self.with_packet(came, |packet| Lookup::of(packet, routers)).flatten();
        if let Some(lookup) = &found {
            self.looked_up(lookup, came);
        }
        if let Some(Fate::Dropped(reason)) = record.packets.first().map(|packet| packet.fate) {
            let because = match found.as_ref().and_then(|lookup| lookup.found.hop()) {
                Some(hop) if reason == DropReason::TooBig => {
                    let (length, name) = (network_bytes(&came.bytes), self.interface(hop.interface));
                    format!("; {length} bytes, and {name} takes {}", hop.mtu)
                }
                Some(_) | None => String::new(),
            };
            return self.end(Stage::Route, reason, because);
        }
        let going =
            record.packets.iter().filter(|packet| packet.fate == Fate::GoesOn && packet.egress != NO_PORT);
        let going = going.collect::<Vec<_>>();
        let taken = record.packets.iter().any(|packet| packet.fate == Fate::Taken);
        match (going.as_slice(), found) {
            (_, _) if taken => self.step("route", "for the gateway itself, which takes it", Details::new()),
            ([], _) if traced.waiting > 0 => {
                self.step(
                    "route",
                    "the neighbour's link-layer address is unknown: the packet waits for it",
                    Details::new(),
                );
            }
            ([], _) => {}
            ([first, ..], Some(lookup)) if matches!(lookup.found, Found::Local) => {
                let name = self.name(first.egress);
                let text = if first.egress == came.ingress {
                    format!("the gateway answers it, by {name}")
                } else {
                    format!("handed to the host, by {name}")
                };
                self.step("route", text, details([("port", json!(name))]));
            }
            ([first, ..], Some(lookup)) => self.sent_on(&lookup, came, first, going.len()),
            ([first, ..], None) => {
                let text = format!("to {}", self.name(first.egress));
                self.step("route", text, details([("port", json!(self.name(first.egress)))]));
            }
        }
    }

    /// Describes the route that was found, and its next hop.
    fn looked_up(&mut self, lookup: &Lookup, came: &TracedPacket) {
        let Lookup { interface, source, destination, found } = lookup;
        let name = self.interface(interface.id);
        let row = self.gateway.lasting.routing.covering(*destination, Some(*source)).into_iter().next();
        let by = row.as_ref().map_or("no route matches".to_owned(), origin);
        let lead = match found {
            Found::Nothing => "no route".to_owned(),
            Found::Hop(hop) if hop.address == *destination => {
                format!("a neighbour on {}", self.interface(hop.interface))
            }
            Found::Hop(hop) => self.hop(hop),
            Found::Member { hash, hop } => {
                let member = hop.as_ref().map_or("nobody".to_owned(), |hop| self.hop(hop));
                let count = row.as_ref().map_or(0, |row| row.hops.len());
                format!("one of {count}, by the flow's hash {hash:#010x}: {member}")
            }
            Found::Connected(on) => format!("a station on {}", self.interface(*on)),
            Found::Local => "an address of this host".to_owned(),
            Found::Broadcast => "all hosts of a network".to_owned(),
            Found::Blackhole => "nowhere (blackhole)".to_owned(),
            Found::Unreachable => "nowhere (unreachable)".to_owned(),
            Found::Elsewhere => "an interface that is down or missing".to_owned(),
            Found::Kernel => "the kernel, which will forward it".to_owned(),
            Found::Prohibit => "nowhere (prohibit)".to_owned(),
        };
        let ttl = hops_left(&came.bytes).map(|ttl| format!(", TTL {ttl}")).unwrap_or_default();
        let text = format!("by {name}{ttl}: {destination} → {by} → {lead}");
        let hash = if let Found::Member { hash, .. } = found { Some(*hash) } else { None };
        let known = details([
            ("interface", json!(name)),
            ("destination", json!(destination.to_string())),
            ("prefix", json!(row.as_ref().map(|row| &row.to))),
            ("table", json!(row.as_ref().and_then(|row| row.table))),
            ("kind", json!(row.as_ref().map(|row| &row.kind))),
            ("hash", json!(hash)),
        ]);
        self.step("route", text, known);
    }

    /// True if packets of a port come by the device of a tunnel.
    fn is_of_device(&self, ingress: PortId) -> bool {
        self.gateway.configuration.port(ingress).is_some_and(|port| port.device.tun().is_some())
    }

    fn hop(&self, hop: &Hop) -> String {
        let name = self.interface(hop.interface);
        match gateway(hop) {
            Some(address) => format!("next hop {address} on {name}"),
            None => format!("the other end of {name}"),
        }
    }

    /// Describes a packet that leaves the router.
    fn sent_on(&mut self, lookup: &Lookup, came: &TracedPacket, first: &TracedPacket, pieces: usize) {
        let hop = lookup.found.hop();
        let Some((hop, link)) = hop.zip(Link::parse(&first.bytes).ok()) else {
            let text = format!("to {}", self.name(first.egress));
            return self.step("route", text, details([("port", json!(self.name(first.egress)))]));
        };
        let state = self.gateway.lasting.routing.state_of(hop.interface, hop.address);
        let state = state.map(|state| format!(" ({state})")).unwrap_or_default();
        let (mac, name) = (link.ethernet.destination(), self.interface(hop.interface));
        let ttl = match (hops_left(&came.bytes), hops_left(&first.bytes)) {
            (Some(was), Some(is)) => format!(", TTL {was} → {is}"),
            _ => String::new(),
        };
        let length = network_bytes(&came.bytes);
        let cut = if pieces > 1 { format!(", cut into {pieces} fragments") } else { String::new() };
        let text = format!(
            "to {name}: {} is {mac}{state}, from {}{ttl}; {length} bytes of {} at most{cut}",
            gateway(hop).map_or("the other end".to_owned(), |address| address.to_string()),
            hop.source,
            hop.mtu
        );
        let known = details([
            ("port", json!(self.name(first.egress))),
            ("next_hop", json!(gateway(hop).map(|address| address.to_string()))),
            ("mac", json!(mac.to_string())),
            ("source_mac", json!(hop.source.to_string())),
            ("mtu", json!(hop.mtu)),
            ("fragments", json!(pieces)),
            ("ttl", json!(hops_left(&first.bytes))),
        ]);
        self.step("route", text, known);
    }
}

/// Address of a next hop; `None` on a point-to-point link.
fn gateway(hop: &Hop) -> Option<IpAddr> {
    Some(hop.address).filter(|address| !address.is_unspecified())
}

/// Origin and kind of a route, as text.
fn origin(row: &RouteRow) -> String {
    let table = match (row.origin.as_str(), row.table) {
        ("kernel", Some(254)) => "the kernel's table main".to_owned(),
        ("kernel", Some(255)) => "the kernel's table local".to_owned(),
        ("kernel", Some(table)) => format!("the kernel's table {table}"),
        ("file", _) => "the configuration".to_owned(),
        (_, _) => "a port's own address".to_owned(),
    };
    format!("{} ({}, {table})", row.to, row.kind)
}

/// TTL or hop limit.
fn hops_left(bytes: &[u8]) -> Option<u8> {
    let link = Link::parse(bytes).ok()?;
    let v4 = Ipv4::parse_head(link.payload(), usize::MAX).map(|ip| ip.time_to_live());
    v4.or_else(|_| Ipv6::parse_head(link.payload(), usize::MAX).map(|ip| ip.hop_limit())).ok()
}

/// Number of bytes after the link header.
fn network_bytes(bytes: &[u8]) -> usize {
    Link::parse(bytes).map_or(0, |link| bytes.len() - link.header_bytes())
}
