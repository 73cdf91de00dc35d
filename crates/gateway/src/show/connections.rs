//! `polder show connections`: connections of the kernel that ports carry, or may.

use super::family::Family;
use super::family::Labels;
use super::family::Unit::{ByteRate, Bytes, Nanos, PacketRate, Packets, Plain};
use super::layout::{Layout, grouped};
use super::row::{Read, rows};
use super::table::Table;
use serde::{Deserialize, Serialize};

rows! {
    /// Connections of all ports where the kernel decides.
    ///
    /// Numbers of connections, packets and bytes are of a second ago at most, and of 20 s where there are 100,000 connections.
    #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    pub struct Connections {
        /// Reason why none is carried; none if some may be.
        pub obstacle: Option<String>,
        /// Connections that find room in the table.
        #[serde(default)]
        pub room: u64 => gauge("connections_room", Plain),
        /// Connections in the table: the sum of the next four.
        #[serde(default)]
        pub entered: u64,
        /// Connections whose packets are carried.
        #[serde(default)]
        pub carried: u64,
        /// Connections that wait until the kernel has forwarded a packet in each direction.
        #[serde(default)]
        pub waiting: u64,
        /// Connections whose packets the kernel forwards in several ways.
        #[serde(default)]
        pub contradicted: u64,
        /// Connections that have ended, and are about to leave the table.
        #[serde(default)]
        pub ended: u64,
        /// Packets carried, of connections that are gone included.
        #[serde(default)]
        pub carried_packets: u64 => counter("connections_carried", Packets),
        /// Bytes of those.
        #[serde(default)]
        pub carried_bytes: u64 => counter("connections_carried", Bytes),
        /// Times that a connection was entered.
        #[serde(default)]
        pub entries: u64 => counter("connections_entries", Plain),
        /// Times that a connection stayed with the kernel because the table was full.
        #[serde(default)]
        pub refused_full: u64 => counted(Plain),
        /// Times that a connection stayed with the kernel because its source address has a quarter of the table.
        #[serde(default)]
        pub refused_share: u64 => counted(Plain),
        /// Idle connections that made room for others.
        #[serde(default)]
        pub evicted: u64 => counter("connections_evicted", Plain),
        /// Times that events of conntrack were lost: all connections leave the table then, and are read again.
        #[serde(default)]
        pub events_lost: u64 => counter("connections_events_lost", Plain),
        /// Packets forwarded by the kernel that opened a connection, or confirmed how it forwards them.
        pub evidence: u64 => counter("connections_evidence", Packets),
        /// Packets that the kernel forwarded in another way than those before, as mirrors do.
        pub contradictions: u64 => counter("connections_contradictions", Packets),
        /// RST and FIN segments that ended a connection.
        pub ends: u64 => counter("connections_ends", Packets),
        /// RST and FIN segments that were carried like data, because they cannot end a connection.
        pub carried_ends: u64 => counter("connections_carried_ends", Packets),
        /// Packets left to the kernel because nobody had listened to its notices for 50 ms.
        pub late_heartbeats: u64 => counter("connections_late_heartbeats", Packets),
        /// Connections with the highest rate first.
        pub connections: Vec<ConnectionRow> => rows(),
        /// Connections that were asked for and are not among those.
        #[serde(default)]
        pub left_out: u64,
    }
    also &[
        Family::gauges(("connections", Plain), "Connections in the table by state.", |row| {
            let of = |state: &str, number: u64| (Labels::one("state", state), number.into());
            vec![
                of("carried", row.carried),
                of("waiting", row.waiting),
                of("contradicted", row.contradicted),
                of("ended", row.ended),
            ]
        }),
        Family::counters(
            ("connections_refused", Plain),
            "Times that a connection stayed with the kernel because the table was full, by reason.",
            |row| {
                let of = |reason: &str, number: u64| (Labels::one("reason", reason), number.into());
                vec![of("full", row.refused_full), of("share", row.refused_share)]
            },
        ),
        Family::gauge("connections_obstacle", "1 while an obstacle prevents carrying of all connections.", |row| {
            row.obstacle.is_some().into()
        }),
    ];

    /// A connection in both directions.
    #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    pub struct ConnectionRow {
        /// `tcp` or `udp`.
        pub protocol: String => key() left(0, "protocol"),
        /// Address and port that it was begun from.
        pub source: String => key() left(1, "source")
            top_of(0, "flow", |row| Read::Text(format!("{} {} > {}", row.protocol, row.source, row.destination))),
        /// Address and port that it was begun to.
        pub destination: String => key() left(2, "destination"),
        /// Source as the kernel rewrites it; none without translation.
        pub translated_source: Option<String> => left(3, "source becomes"),
        /// Destination as the kernel rewrites it; none without translation.
        pub translated_destination: Option<String> => left(4, "destination becomes"),
        /// Port that it comes in by; none before the kernel has forwarded a packet.
        pub from: Option<String> => left(5, "from")
            top_of(1, "port", |row| Read::Text(row.ports())),
        /// Port that it leaves by.
        pub to: Option<String> => left(6, "to"),
        /// `carried`; `waiting` until the kernel has forwarded a packet in each direction since the last change of its rules;
        /// `contradicted` if it forwards them in several ways; `ended`; `obstacle` while none is carried.
        pub state: String => left(7, "state"),
        /// Reason why it is not carried.
        #[serde(default)]
        pub reason: Option<String> => left(13, "because"),
        /// `skb`: programs of ports in this mode carry it.
        #[serde(default)]
        pub lane: String => left(8, "lane"),
        /// Time since it was entered.
        #[serde(default)]
        pub age_nanos: u64 => state(Nanos) right(9, "age"),
        /// Packets carried a second, in both directions.
        #[serde(default)]
        pub packets_per_second: u64 => state(PacketRate) top(2, "packets/s") trend(),
        /// Bytes of those.
        #[serde(default)]
        pub bytes_per_second: u64 => state(ByteRate) right(10, "rate") top(3, "bit/s"),
        /// Packets carried since it was entered, in both directions.
        pub packets: u64 => state(Packets) right_of(11, "packets", |row, _| grouped(row.packets)),
        /// Bytes of those.
        pub bytes: u64 => state(Bytes) right_of(12, "", |row, _| Layout::PLAIN.bytes(row.bytes)),
    }
}

impl ConnectionRow {
    /// True if the connection has this address, address and port, port number, gateway port, protocol or
    /// state.
    pub(crate) fn has(&self, name: &str) -> bool {
        let is_end = |end: &str| {
            end == name
                || end
                    .rsplit_once(':')
                    .is_some_and(|(host, port)| host.trim_matches(['[', ']']) == name || port == name)
        };
        let translated = [&self.translated_source, &self.translated_destination].into_iter().flatten();
        let is_port = [&self.from, &self.to].into_iter().flatten().any(|port| port == name);
        let is_word = self.state == name || self.protocol == name;
        [&self.source, &self.destination].into_iter().chain(translated).any(|end| is_end(end))
            || is_port
            || is_word
    }

    fn ports(&self) -> String {
        self.from
            .as_ref()
            .zip(self.to.as_ref())
            .map(|(from, to)| format!("{from} > {to}"))
            .unwrap_or_default()
    }
}

impl Connections {
    pub(super) fn draw(&self, layout: Layout) -> String {
        let mut text = self.totals(layout);
        if let Some(obstacle) = &self.obstacle {
            text.push_str(&format!("{} No connection is carried: {obstacle}.\n", layout.bad("✗")));
        } else if self.connections.is_empty() {
            text.push_str("No connection may be carried now.\n");
        }
        if !self.connections.is_empty() {
            let mut table = Table::of::<ConnectionRow>(layout).folding(["lane", "because"]);
            self.connections.iter().for_each(|row| table.add(row));
            text.push_str(&table.draw());
        }
        if self.left_out > 0 {
            let more = grouped(self.left_out);
            text.push_str(&format!("… {more} more: name an address, a port or a state, or add `--all`\n"));
        }
        text
    }

    /// Numbers of connections, and reasons that keep others with the kernel, as text.
    fn totals(&self, layout: Layout) -> String {
        if self.room == 0 {
            return String::new();
        }
        let states = [
            (self.carried, "carried"),
            (self.waiting, "waiting"),
            (self.contradicted, "contradicted"),
            (self.ended, "ended"),
        ];
        let states = states.iter().filter(|(number, _)| *number > 0);
        let states =
            states.map(|(number, word)| format!(", {} {word}", grouped(*number))).collect::<String>();
        let (packets, bytes) = (layout.count(self.carried_packets), layout.bytes(self.carried_bytes));
        let mut text =
            format!("{} of at most {} connections{states}\n", grouped(self.entered), grouped(self.room));
        text.push_str(&format!("carried {packets} packets, {bytes}\n"));
        let refused = self.refused_full + self.refused_share;
        let remarks = [
            (refused, "stayed with the kernel because the table was full"),
            (self.evicted, "idle ones were evicted"),
            (self.events_lost, "times conntrack events were lost and all connections were read again"),
        ];
        for (number, what) in remarks.iter().filter(|(number, _)| *number > 0) {
            text.push_str(&format!("{} {} {what}\n", layout.odd("!"), layout.count(*number)));
        }
        text
    }
}

/// Example with all kinds of rows.
#[cfg(test)]
pub(super) fn whole() -> Connections {
    Connections { connections: vec![ConnectionRow::default()], ..Connections::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row() -> ConnectionRow {
        ConnectionRow {
            protocol: "tcp".to_owned(),
            source: "192.168.1.7:40000".to_owned(),
            destination: "[2001:db8::1]:443".to_owned(),
            translated_source: Some("203.0.113.1:61007".to_owned()),
            from: Some("lan".to_owned()),
            to: Some("wan".to_owned()),
            state: "waiting".to_owned(),
            ..ConnectionRow::default()
        }
    }

    #[test]
    fn a_connection_is_found_by_each_of_its_names() {
        let names = ["192.168.1.7", "192.168.1.7:40000", "40000", "2001:db8::1", "443", "203.0.113.1", "lan"];
        for name in names.into_iter().chain(["waiting", "tcp"]) {
            assert!(row().has(name), "{name}");
        }
        for name in ["192.168.1", "4000", "2001:db8::", "carried", "udp", "dmz", ""] {
            assert!(!row().has(name), "{name}");
        }
    }

    #[test]
    fn totals_stand_first_and_tell_what_found_no_room() {
        let connections = Connections {
            room: 16_384,
            entered: 1204,
            carried: 1200,
            waiting: 4,
            refused_full: 17,
            connections: vec![row()],
            left_out: 1203,
            ..Connections::default()
        };
        let text = connections.draw(Layout::PLAIN);
        assert!(
            text.starts_with("1 204 of at most 16 384 connections, 1 200 carried, 4 waiting\n"),
            "{text}"
        );
        assert!(text.contains("! 17 stayed with the kernel") && text.contains("… 1 203 more"), "{text}");
        let obstacle = Some("nftables chain `inet fw forward` looks at limit".to_owned());
        let text = Connections { obstacle, ..connections }.draw(Layout::PLAIN);
        assert!(
            text.contains("✗ No connection is carried: nftables chain") && text.contains("waiting"),
            "{text}"
        );
    }
}
