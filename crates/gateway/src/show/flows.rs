//! `polder show flows`: flows that ports' programs carry in the kernel, and ports that have none.

use super::family::Family;
use super::family::Unit::{Bytes, Packets};
use super::layout::Layout;
use super::row::{Read, rows};
use super::table::Table;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

rows! {
    /// Flows of all ports.
    #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    pub struct Flows {
        /// Ports, and why their packets are not carried in the kernel.
        pub ports: Vec<FastPathRow> => rows(),
        /// Tunnels, whose packets their underlays' programs carry.
        pub tunnels: Vec<FastPathRow> => rows(),
        /// Entries, those that have carried most first.
        pub flows: Vec<CarriedRow> => rows(),
    }

    /// Fast path of a port.
    #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    pub struct FastPathRow {
        /// The port.
        pub port: String => key() label("port") left(0, "port"),
        /// Reason why there is none; none if there is one.
        pub obstacle: Option<String> => left_of(7, "fast path", |row, _| {
            row.obstacle.as_ref().map_or_else(|| "yes".to_owned(), |why| format!("no: {why}"))
        }),
        /// Packets that came in and were carried in the kernel.
        pub received: u64 => counter("fast_path_received", Packets) right(1, "received"),
        /// Bytes of those packets.
        pub received_bytes: u64 => counter("fast_path_received", Bytes) right(2, ""),
        /// Packets that left and were carried in the kernel.
        pub transmitted: u64 => counter("fast_path_transmitted", Packets) right(3, "transmitted"),
        /// Bytes of those packets.
        pub transmitted_bytes: u64 => counter("fast_path_transmitted", Bytes) right(4, ""),
        /// Failed redirects to it; none for a tunnel, and where there is no fast path.
        #[serde(default)]
        pub failed: Option<FailedRow> => rows()
            right_of(5, "failed", |row, layout| {
                row.failed.as_ref().map(|failed| layout.count(failed.packets)).unwrap_or_default()
            })
            left_of(6, "counted by", |row, _| row.failed.clone().unwrap_or_default().source),
    }
    also &[Family::gauge(
        "fast_path_available",
        "1 if the kernel carries flows of the port or tunnel.",
        |row| row.obstacle.is_none().into(),
    )];

    /// Packets that programs have sent by a port's interface, and that were lost there.
    #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    pub struct FailedRow {
        /// Packets since the start, or since the interface was opened.
        pub packets: u64 => counted(Packets),
        /// `tracepoint`: redirects of XDP programs, counted by the kernel's tracepoints; `interface`: the interface's
        /// own counter, with packets of anybody.
        pub source: String => key(),
        /// Reason why it is not the tracepoint.
        pub reason: Option<String>,
    }

    /// Packets from one station to another, or by a router from one address to another.
    #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    pub struct CarriedRow {
        /// The port that they come in by.
        pub from: String => key() left(0, "from")
            top_of(1, "port", |row| Read::Text(format!("{} > {}", row.from, row.to))),
        /// The port that they leave by.
        pub to: String => left(4, "to"),
        /// Link-layer address of the next hop that a router sends them to; none for frames of a bridge.
        pub next_hop: Option<String> => left(5, "next hop"),
        /// VLAN of their tag.
        pub vlan: Option<u16> => key() right(2, "VLAN"),
        /// Source address.
        pub source: String => key() left(1, "source")
            top_of(0, "flow", |row| Read::Text(format!("{} > {}", row.source, row.destination))),
        /// Destination address.
        pub destination: String => key() left(3, "destination"),
        /// `carried`, or `waiting` for a moment when none of its packets is in user space.
        pub state: String => left(6, "state"),
        /// Packets carried.
        pub packets: u64 => counted(Packets) right(7, "packets") top(2, "packets/s") trend(),
        /// Bytes of those.
        pub bytes: u64 => counted(Bytes) right(8, "") top(3, "bit/s"),
    }
}

impl Flows {
    pub(super) fn draw(&self, layout: Layout) -> String {
        let mut ports = Table::of::<FastPathRow>(layout);
        let mut reasons = BTreeSet::new();
        for row in self.ports.iter().chain(&self.tunnels) {
            ports.add(row);
            reasons.extend(row.failed.as_ref().and_then(|failed| failed.reason.as_ref()));
        }
        for reason in reasons {
            let text = format!("failed redirects are counted by the outgoing interface: {reason}");
            ports.remark(&layout.dim("·"), &text);
        }
        if self.flows.is_empty() {
            return ports.draw() + "No flow is carried in the kernel now.\n";
        }
        let mut flows = Table::of::<CarriedRow>(layout);
        self.flows.iter().for_each(|row| flows.add(row));
        format!("{}\n{}", ports.draw(), flows.draw())
    }
}

#[cfg(test)]
mod tests {
    use super::super::row::Row as _;
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
        now.difference(&flows(3));
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
        now.difference(&counted(3, "tracepoint", None));
        let text = now.draw(Layout::PLAIN);
        assert!(text.contains("17") && text.contains("tracepoint") && !text.contains("redirects"), "{text}");
        let mut now = counted(20, "tracepoint", None);
        now.difference(&counted(3, "interface", None));
        assert_eq!(now.ports[0].failed.as_ref().map(|failed| failed.packets), Some(20), "another counter");
        let text = counted(17, "interface", Some("no right")).draw(Layout::PLAIN);
        assert!(text.contains("counted by the outgoing interface: no right"), "{text}");
    }

    #[test]
    fn a_port_without_fast_path_says_why() {
        let text = flows(1).draw(Layout::PLAIN);
        assert!(text.contains("no: it has a queue") && text.contains("yes"), "{text}");
        assert!(!text.contains("failed redirects"), "{text}");
        let none = Flows { flows: Vec::new(), ..flows(1) };
        assert!(none.draw(Layout::PLAIN).contains("No flow is carried"));
    }
}
