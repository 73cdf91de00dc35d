//! Decapsulation and encapsulation of a traced packet.

use super::writer::{TraceWriter, details};
use crate::trace::draw::brief;
use polder_datapath::counters::Stage;
use polder_datapath::drops::DropReason;
use polder_datapath::trace::{Fate, PacketTrace, StageRecord, TracedPacket};
use polder_datapath::tunnel::{OuterHeader, Tunnel, TunnelLabel};
use polder_datapath::wire::{Ipv4, Ipv6, Link};
use serde_json::{Value, json};

impl TraceWriter<'_> {
    /// Describes which tunnel a packet is decapsulated from.
    pub(super) fn decapsulated(
        &mut self,
        traced: &PacketTrace,
        record: &StageRecord,
        before: &[TracedPacket],
    ) {
        let Some(outer) = before.first() else { return };
        let Some(inner) = record.packets.first() else {
            return self.step(
                "decapsulate",
                "a fragment of an outer packet: it waits for the others",
                details([]),
            );
        };
        if let Fate::Dropped(reason) = inner.fate {
            let because = if reason == DropReason::NoTunnel {
                self.nearest_tunnels(traced, outer)
            } else {
                String::new()
            };
            return self.end(Stage::Decapsulate, reason, because);
        }
        if inner.ingress == outer.ingress {
            return;
        }
        let name = self.name(inner.ingress);
        let Some(tunnel) = traced.tables.tunnels.get(inner.ingress) else { return };
        let label = TunnelLabel::of(tunnel.options());
        let sequence =
            OuterHeader::of_frame(&outer.bytes, &traced.tables.tunnels).and_then(|outer| outer.sequence);
        let numbered = sequence.map(|number| format!(", sequence number {number}")).unwrap_or_default();
        let inside = brief(&inner.bytes);
        let text = format!("out of {name}: {label}{numbered}; inside: {inside}");
        let known = details([
            ("tunnel", json!(name)),
            number(label),
            ("sequence", json!(sequence)),
            ("inside", json!(inside)),
        ]);
        self.step("decapsulate", text, known);
    }

    /// Tunnels between the same addresses with another key or none.
    fn nearest_tunnels(&self, traced: &PacketTrace, outer: &TracedPacket) -> String {
        let Some(outer) = OuterHeader::of_frame(&outer.bytes, &traced.tables.tunnels) else {
            return String::new();
        };
        let near = traced.tables.tunnels.iter().map(|tunnel| tunnel.options());
        let near = near.filter(|options| options.ends == outer.ends);
        let near = near.map(|options| {
            let (name, label) = (self.name(options.port), TunnelLabel::of(options));
            format!("{name} is {label} between these addresses")
        });
        let near = near.collect::<Vec<_>>();
        let near =
            if near.is_empty() { "no tunnel is between these addresses".to_owned() } else { near.join("; ") };
        let label = outer.label.map(|label| format!("it is {label}, and ")).unwrap_or_default();
        format!("; {label}{near}")
    }

    /// Describes which tunnel each packet is sent into.
    pub(super) fn encapsulated(
        &mut self,
        traced: &PacketTrace,
        record: &StageRecord,
        before: &[TracedPacket],
    ) {
        let into =
            before.iter().filter_map(|packet| Some((packet, traced.tables.tunnels.get(packet.egress)?)));
        for (packet, tunnel) in into {
            let port = tunnel.options().port;
            let pieces =
                record.packets.iter().filter(|outer| outer.ingress == port && outer.fate == Fate::GoesOn);
            let pieces = pieces.collect::<Vec<_>>();
            match pieces.first() {
                Some(outer) => self.enters_tunnel(packet, tunnel, outer, pieces.len()),
                None => self.is_refused(record, tunnel),
            }
        }
    }

    fn enters_tunnel(&mut self, packet: &TracedPacket, tunnel: &Tunnel, outer: &TracedPacket, pieces: usize) {
        let name = self.name(tunnel.options().port);
        let under = self.name(tunnel.underlay().port);
        let (link, label) = (Link::parse(&outer.bytes), TunnelLabel::of(tunnel.options()));
        let to = link.as_ref().map(|link| link.ethernet.destination().to_string()).unwrap_or_default();
        let header = link.map(|link| outer_words(&link)).unwrap_or_default();
        let cut = if pieces > 1 { format!(", cut into {pieces} fragments") } else { String::new() };
        let text = format!(
            "into {name} by {under}: {header}, {label}, next hop {to}; {} bytes of {} at most{cut}",
            packet.bytes.len().saturating_sub(14),
            tunnel.mtu()
        );
        let known = details([
            ("tunnel", json!(name)),
            ("port", json!(under)),
            number(label),
            ("mtu", json!(tunnel.mtu())),
            ("fragments", json!(pieces)),
            ("next_hop", json!(to)),
        ]);
        self.step("encapsulate", text, known);
    }

    fn is_refused(&mut self, record: &StageRecord, tunnel: &Tunnel) {
        let name = self.name(tunnel.options().port);
        let reason = record.packets.iter().find_map(|packet| match packet.fate {
            Fate::Dropped(reason) => Some(reason),
            Fate::GoesOn | Fate::Taken => None,
        });
        if let Some(reason) = reason {
            let mtu = if reason == DropReason::TunnelTooBig {
                format!("; {name} takes {} bytes", tunnel.mtu())
            } else {
                format!("; tunnel {name}")
            };
            self.end(Stage::Encapsulate, reason, mtu);
        }
    }
}

/// Key or VNI of a tunnel, as a field.
fn number(label: TunnelLabel) -> (&'static str, Value) {
    let (name, number) = label.number();
    (name, json!(number))
}

/// Fields of an outer IP header, as text.
fn outer_words(link: &Link<'_>) -> String {
    if let Ok(ip) = Ipv4::parse_head(link.payload(), usize::MAX) {
        let class = link.payload().get(1).copied().unwrap_or_default();
        let df = if ip.dont_fragment() { ", DF" } else { "" };
        let (from, to, ttl) = (ip.source(), ip.destination(), ip.time_to_live());
        return format!("{from} → {to}, TTL {ttl}, DSCP {}, ECN {}{df}", class >> 2, class & 3);
    }
    let Ok(ip) = Ipv6::parse_head(link.payload(), usize::MAX) else { return String::new() };
    let (from, to, hops) = (ip.source(), ip.destination(), ip.hop_limit());
    let [first, second, ..] = *link.payload() else { return String::new() };
    let class = first << 4 | second >> 4;
    format!(
        "{from} → {to}, hop limit {hops}, DSCP {}, ECN {}, flow label {:#x}",
        class >> 2,
        class & 3,
        ip.flow_label()
    )
}
