//! `polder show flows`: flows that ports' programs carry in the kernel, and ports that have none.

use super::look::Look;
use super::table::{Align, Table};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Flows of all ports.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flows {
    /// Ports, and why their packets are not carried in the kernel.
    pub ports: Vec<FastPathRow>,
    /// Tunnels, whose packets their underlays' programs carry.
    pub tunnels: Vec<FastPathRow>,
    /// Entries, those that have carried most first.
    pub flows: Vec<CarriedRow>,
}

/// Fast path of a port.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FastPathRow {
    /// The port.
    pub port: String,
    /// Reason why there is none; none if there is one.
    pub obstacle: Option<String>,
    /// Packets that came in by it and were carried in the kernel.
    pub received: u64,
    /// Bytes of those.
    pub received_bytes: u64,
    /// Packets that left by it and were carried in the kernel.
    pub transmitted: u64,
    /// Bytes of those.
    pub transmitted_bytes: u64,
    /// Failed redirects to it; none for a tunnel, and where there is no fast path.
    #[serde(default)]
    pub failed: Option<FailedRow>,
}

/// Packets that programs have sent by a port's interface, and that were lost there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedRow {
    /// Packets since the start, or since the interface was opened.
    pub packets: u64,
    /// `tracepoint`: redirects of XDP programs, counted by the kernel's tracepoints; `interface`: the interface's own
    /// counter, with packets of anybody.
    pub source: String,
    /// Reason why it is not the tracepoint.
    pub reason: Option<String>,
}

/// Packets from one station to another, or by a router from one address to another.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CarriedRow {
    /// The port that they come in by.
    pub from: String,
    /// The port that they leave by.
    pub to: String,
    /// Link-layer address of the next hop that a router sends them to; none for frames of a bridge.
    pub next_hop: Option<String>,
    /// VLAN of their tag.
    pub vlan: Option<u16>,
    /// Source address.
    pub source: String,
    /// Destination address.
    pub destination: String,
    /// `carried`, or `waiting` for a moment when none of its packets is in user space.
    pub state: String,
    /// Packets carried.
    pub packets: u64,
    /// Bytes of those.
    pub bytes: u64,
}

impl Flows {
    /// Subtracts the counters of an earlier view.
    pub(super) fn subtract(&mut self, earlier: &Self) {
        let (before, now) = (earlier.ports.iter().chain(&earlier.tunnels), &mut self.tunnels);
        let before = before.collect::<Vec<_>>();
        for row in self.ports.iter_mut().chain(now) {
            let Some(then) = before.iter().find(|then| then.port == row.port) else { continue };
            row.received = row.received.saturating_sub(then.received);
            row.received_bytes = row.received_bytes.saturating_sub(then.received_bytes);
            row.transmitted = row.transmitted.saturating_sub(then.transmitted);
            row.transmitted_bytes = row.transmitted_bytes.saturating_sub(then.transmitted_bytes);
            if let (Some(failed), Some(then)) = (&mut row.failed, &then.failed)
                && failed.source == then.source
            {
                failed.packets = failed.packets.saturating_sub(then.packets);
            }
        }
        for row in &mut self.flows {
            let name =
                |row: &CarriedRow| (row.from.clone(), row.vlan, row.source.clone(), row.destination.clone());
            let Some(then) = earlier.flows.iter().find(|then| name(then) == name(row)) else { continue };
            row.packets = row.packets.saturating_sub(then.packets);
            row.bytes = row.bytes.saturating_sub(then.bytes);
        }
    }

    pub(super) fn draw(&self, look: Look) -> String {
        let columns = [
            ("port", Align::Left),
            ("received", Align::Right),
            ("", Align::Right),
            ("transmitted", Align::Right),
            ("", Align::Right),
            ("failed", Align::Right),
            ("counted by", Align::Left),
            ("fast path", Align::Left),
        ];
        let mut ports = Table::new(look, columns);
        let failed = |row: &FastPathRow| row.failed.clone().unwrap_or_default();
        let mut reasons = BTreeSet::new();
        for row in self.ports.iter().chain(&self.tunnels) {
            ports.row([
                row.port.clone(),
                look.count(row.received),
                look.bytes(row.received_bytes),
                look.count(row.transmitted),
                look.bytes(row.transmitted_bytes),
                row.failed.as_ref().map(|failed| look.count(failed.packets)).unwrap_or_default(),
                failed(row).source,
                row.obstacle.as_ref().map_or_else(|| "yes".to_owned(), |why| format!("no: {why}")),
            ]);
            reasons.extend(failed(row).reason);
        }
        for reason in &reasons {
            let text = format!("failed redirects are counted by the interface they go to: {reason}");
            ports.remark(&look.dim("·"), &text);
        }
        if self.flows.is_empty() {
            return ports.draw() + "No flow is carried in the kernel now.\n";
        }
        format!("{}\n{}", ports.draw(), self.draw_flows(look))
    }

    fn draw_flows(&self, look: Look) -> String {
        let columns = [
            ("from", Align::Left),
            ("source", Align::Left),
            ("VLAN", Align::Right),
            ("destination", Align::Left),
            ("to", Align::Left),
            ("next hop", Align::Left),
            ("state", Align::Left),
            ("packets", Align::Right),
            ("", Align::Right),
        ];
        let mut table = Table::new(look, columns);
        for row in &self.flows {
            table.row([
                row.from.clone(),
                row.source.clone(),
                row.vlan.map(|vlan| vlan.to_string()).unwrap_or_default(),
                row.destination.clone(),
                row.to.clone(),
                row.next_hop.clone().unwrap_or_default(),
                row.state.clone(),
                look.count(row.packets),
                look.bytes(row.bytes),
            ]);
        }
        table.draw()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flows(packets: u64) -> Flows {
        let port = FastPathRow { port: "lan".to_owned(), received: packets, ..FastPathRow::default() };
        let other = FastPathRow {
            port: "wan".to_owned(),
            obstacle: Some("it has a queue".to_owned()),
            ..FastPathRow::default()
        };
        let flow = CarriedRow { from: "lan".to_owned(), vlan: Some(7), packets, ..CarriedRow::default() };
        Flows { ports: vec![port, other], tunnels: Vec::new(), flows: vec![flow] }
    }

    #[test]
    fn flows_and_ports_count_from_the_earlier_view() {
        let mut now = flows(20);
        now.subtract(&flows(3));
        assert_eq!((now.ports[0].received, now.flows[0].packets), (17, 17));
    }

    #[test]
    fn failed_redirects_say_by_what_they_are_counted() {
        let counted = |packets, source: &str, reason: Option<&str>| {
            let mut flows = flows(1);
            let (source, reason) = (source.to_owned(), reason.map(str::to_owned));
            flows.ports[0].failed = Some(FailedRow { packets, source, reason });
            flows
        };
        let mut now = counted(20, "tracepoint", None);
        now.subtract(&counted(3, "tracepoint", None));
        let text = now.draw(Look::PLAIN);
        assert!(text.contains("17") && text.contains("tracepoint") && !text.contains("redirects"), "{text}");
        let mut now = counted(20, "tracepoint", None);
        now.subtract(&counted(3, "interface", None));
        assert_eq!(now.ports[0].failed.as_ref().map(|failed| failed.packets), Some(20), "another counter");
        let text = counted(17, "interface", Some("no right")).draw(Look::PLAIN);
        assert!(text.contains("counted by the interface they go to: no right"), "{text}");
    }

    #[test]
    fn a_port_without_fast_path_says_why() {
        let text = flows(1).draw(Look::PLAIN);
        assert!(text.contains("no: it has a queue") && text.contains("yes"), "{text}");
        assert!(!text.contains("failed redirects"), "{text}");
        let none = Flows { flows: Vec::new(), ..flows(1) };
        assert!(none.draw(Look::PLAIN).contains("No flow is carried"));
    }
}
