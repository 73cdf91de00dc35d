//! The bridge's verdict on a traced frame, and its learning.

use super::writer::{TraceWriter, details};
use crate::config::model::Bridge;
use polder_buffers::PortId;
use polder_datapath::counters::Stage;
use polder_datapath::drops::DropReason;
use polder_datapath::forward::{FdbEntry, FdbKey, FdbTime};
use polder_datapath::route::Notice;
use polder_datapath::trace::{Fate, PacketTrace, StageRecord, TracedPacket};
use polder_datapath::wire::{Ethernet, MacAddress};
use serde_json::json;

/// Source and destination address of a frame.
fn ends(bytes: &[u8]) -> Option<(MacAddress, MacAddress)> {
    let ethernet = Ethernet::parse(bytes).ok()?;
    Some((ethernet.source(), ethernet.destination()))
}

impl TraceWriter<'_> {
    /// Describes where the bridge sends a frame. `before` has the frame, `record` its copies.
    pub(super) fn bridged(&mut self, traced: &PacketTrace, record: &StageRecord, before: &[TracedPacket]) {
        let Some(came) = before
            .iter()
            .find(|packet| packet.egress == polder_buffers::NO_PORT || packet.egress == packet.ingress)
        else {
            return;
        };
        let bridge = self.gateway.configuration.bridge_of(came.ingress);
        let Some((bridge, (from, to))) = bridge.zip(ends(&came.bytes)) else {
            self.ends(record);
            return;
        };
        let going = record.packets.iter().filter(|packet| packet.fate == Fate::GoesOn).collect::<Vec<_>>();
        let vlan = record.packets.first().map_or(0, |packet| packet.vlan);
        let in_vlan = if vlan > 0 { format!(", VLAN {vlan}") } else { String::new() };
        let known = self.known(traced, came.ingress, to, vlan);
        let names = going.iter().map(|packet| self.name(packet.egress)).collect::<Vec<_>>();
        let name = &bridge.name;
        let of_bridge = details([
            ("bridge", json!(name)),
            ("vlan", json!(vlan)),
            ("destination", json!(to.to_string())),
            ("known", json!(known.is_some())),
            ("ports", json!(names)),
        ]);
        let dropped = record.packets.iter().find_map(|packet| match packet.fate {
            Fate::Dropped(reason) => Some(reason),
            Fate::GoesOn | Fate::Taken => None,
        });
        let owner = traced.tables.bridges.owner(came.ingress, to);
        let why = dropped.and_then(|reason| self.why_not(traced, came.ingress, (from, to, vlan), reason));
        let why = why.unwrap_or_else(|| self.why(bridge, to, owner, known.as_ref()));
        match (names.as_slice(), dropped) {
            ([], Some(reason)) => self.end(Stage::Bridge, reason, format!("; {name}{in_vlan}: {why}")),
            ([], None) => {}
            ([one], _) if known.is_some() || owner.is_some() => {
                self.step("bridge", format!("{name}{in_vlan}: {why}: to {one}"), of_bridge)
            }
            (all, _) => {
                let text = format!("{name}{in_vlan}: {why}: flooded to {}", all.join(", "));
                self.step("bridge", text, of_bridge);
            }
        }
    }

    /// FDB entry of a station, unless it has aged out.
    fn known(&self, traced: &PacketTrace, port: PortId, to: MacAddress, vlan: u16) -> Option<FdbEntry> {
        if to.is_multicast() {
            return None;
        }
        let (fdb, ageing) = traced.tables.bridges.learned_by(port)?;
        let key = FdbKey::new(to, vlan);
        fdb.lookup(key, FdbTime::new(self.gateway.clock.now(), ageing))?;
        fdb.entry(key)
    }

    /// Reason why a frame is dropped regardless of its destination; `None` if the destination decides.
    fn why_not(
        &self,
        traced: &PacketTrace,
        port: PortId,
        (from, to, vlan): (MacAddress, MacAddress, u16),
        reason: DropReason,
    ) -> Option<String> {
        let bridges = &traced.tables.bridges;
        if reason == DropReason::ReservedMulticast {
            return Some(format!("{to} is a link-local group, and not among the bridge's `forward_groups`"));
        }
        if reason == DropReason::OwnAddress {
            let owner = self.name(bridges.owner(port, from)?);
            return Some(format!("the source {from} is the address of {owner} itself"));
        }
        if reason == DropReason::HairpinLoop {
            let seen = self.known(traced, port, from, vlan)?;
            return Some(format!("{from} was seen behind {} a moment ago", self.name(seen.port)));
        }
        None
    }

    fn why(
        &self,
        bridge: &Bridge,
        to: MacAddress,
        owner: Option<PortId>,
        known: Option<&FdbEntry>,
    ) -> String {
        let second = FdbTime::new(self.gateway.clock.now(), 0).second;
        if let Some(owner) = owner {
            return format!("{to} is the address of {} itself", self.name(owner));
        }
        match known {
            Some(entry) if entry.is_static => {
                format!("{to} is a static address of {}", self.name(entry.port))
            }
            Some(entry) => {
                let age = second.saturating_sub(entry.seen);
                let left = bridge.ageing_seconds.saturating_sub(age);
                let port = self.name(entry.port);
                format!("{to} is behind {port}, seen {age} s ago, forgotten in {left} s")
            }
            None if to == MacAddress::BROADCAST => "for all stations".to_owned(),
            None if to.is_multicast() => format!("{to} is a multicast address"),
            None => format!("{to} is unknown"),
        }
    }

    /// Learning, requests and messages that the packet would have caused.
    pub(super) fn effects(&self, traced: &PacketTrace, port: PortId) -> Vec<String> {
        let mut effects = Vec::new();
        let learning = traced.learning;
        // The frame that the bridge saw: for a tunnel, the inner one.
        let bridged = traced.records.iter().find(|record| record.stage == Stage::Bridge);
        let source = bridged.and_then(|record| record.packets.first()).and_then(|seen| {
            let from = ends(&seen.bytes).map(|(source, _)| source)?;
            Some((from, self.name(if seen.ingress == seen.egress { port } else { seen.ingress })))
        });
        if let Some((from, name)) = source {
            let known = [
                (learning.learned, format!("learn {from} behind {name}")),
                (learning.moved, format!("move {from} to {name}, from another port")),
                (learning.pinned, format!("not learn {from}, which is a static address of another port")),
                (learning.limited, format!("not learn {from}: {name} has reached `fdb_max_learned`")),
                (learning.full, format!("not learn {from}: the table is full (`max_entries`)")),
            ];
            effects.extend(known.into_iter().filter(|(count, _)| *count > 0).map(|(_, text)| text));
        }
        for notice in &traced.notices {
            effects.push(match *notice {
                Notice::Wanted { interface, address } => {
                    format!("ask for the link-layer address of {address} on {}", self.interface(interface))
                }
                Notice::Heard { interface, address, mac } => {
                    format!("store {mac} as link-layer address of {address} on {}", self.interface(interface))
                }
                Notice::Silent { interface, address } => {
                    format!("mark {address} on {} unreachable", self.interface(interface))
                }
            });
        }
        if traced.told.1 > 0 {
            effects.push(
                "send no ICMP error: not allowed for this packet, or there is no source address".to_owned(),
            );
        }
        let limits = self.gateway.configuration.bridge_of(port).map(|bridge| bridge.flood_limit);
        let is_limited = limits
            .is_some_and(|limits| limits.unknown_unicast.or(limits.multicast).or(limits.broadcast).is_some());
        if learning.flooded > 0 && is_limited {
            effects.push("count towards `flood_limit`, which a trace assumes is not exhausted".to_owned());
        }
        effects
    }
}
