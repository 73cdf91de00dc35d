//! `polder show connections`: connections of the kernel that ports carry, or may.

use super::family::Unit::{Bytes, Packets};
use super::look::Look;
use super::row::rows;
use super::table::Table;
use serde::{Deserialize, Serialize};

rows! {
    /// Connections of all ports where the kernel decides.
    #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    pub struct Connections {
        /// Reason why none is carried; none if some may be.
        pub obstacle: Option<String>,
        /// Packets forwarded by the kernel that opened a connection, or confirmed how it forwards them.
        pub evidence: u64 => counted(Packets),
        /// Packets that the kernel forwarded in another way than those before, as mirrors do.
        pub contradictions: u64 => counted(Packets),
        /// RST and FIN segments that ended a connection.
        pub ends: u64 => counted(Packets),
        /// RST and FIN segments that were carried like data, because they cannot end a connection.
        pub carried_ends: u64 => counted(Packets),
        /// Packets left to the kernel because nobody had listened to its notices for 50 ms.
        pub late_heartbeats: u64 => counted(Packets),
        /// Connections, those that have carried most first.
        pub connections: Vec<ConnectionRow> => rows(),
    }

    /// A connection in both directions.
    #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    pub struct ConnectionRow {
        /// `tcp` or `udp`.
        pub protocol: String => key() left(0, "protocol"),
        /// Address and port that it was begun from.
        pub source: String => key() left(1, "source"),
        /// Address and port that it was begun to.
        pub destination: String => key() left(2, "destination"),
        /// Source as the kernel rewrites it; none without translation.
        pub translated_source: Option<String> => left(3, "source becomes"),
        /// Destination as the kernel rewrites it; none without translation.
        pub translated_destination: Option<String> => left(4, "destination becomes"),
        /// Port that it comes in by; none before the kernel has forwarded a packet.
        pub from: Option<String> => left(5, "from"),
        /// Port that it leaves by.
        pub to: Option<String> => left(6, "to"),
        /// `carried`; `waiting` until the kernel has forwarded a packet in each direction since the last change of its rules;
        /// `contradicted` if it forwards them in several ways; `ended`.
        pub state: String => left(7, "state"),
        /// Packets carried, in both directions.
        pub packets: u64 => counted(Packets) right(8, "packets"),
        /// Bytes of those.
        pub bytes: u64 => counted(Bytes) right(9, ""),
    }
}

impl ConnectionRow {
    /// True if it has that address, end or port.
    pub(super) fn has(&self, name: &str) -> bool {
        let is_end = |end: &str| end == name || end.rsplit_once(':').is_some_and(|(host, _)| host == name);
        let ports = [self.from.as_deref(), self.to.as_deref()];
        is_end(&self.source) || is_end(&self.destination) || ports.contains(&Some(name))
    }
}

impl Connections {
    pub(super) fn draw(&self, look: Look) -> String {
        if let Some(obstacle) = &self.obstacle {
            return format!("No connection is carried: {obstacle}.\n");
        }
        if self.connections.is_empty() {
            return "No connection may be carried now.\n".to_owned();
        }
        let mut table = Table::of::<ConnectionRow>(look);
        self.connections.iter().for_each(|row| table.add(row));
        table.draw()
    }
}
