//! `polder show queues`.

use super::family::Unit::{Bytes, Kbit, Nanos, Packets, Plain};
use super::family::{Distribution, Family, Labels};
use super::layout::{Layout, grouped};
use super::row::{Read, Row, rows};
use super::table::Table;
use serde::{Deserialize, Serialize};

rows! {
    /// A queue in front of one sending queue of a port.
    #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    pub struct QueueRow {
        /// The port.
        pub port: String => key() label("port") left(0, "port") top_of(0, "queue", |row| {
            Read::Text(row.title())
        }),
        /// The worker that has it.
        pub worker: usize => key() label("worker") right(1, "worker"),
        /// `up` for packets that leave by the port, `down` for packets that come in by it.
        #[serde(default)]
        pub way: String => key() label("way") left(14, "way"),
        /// Discipline: `fq_codel`, `cake`, `codel` or `drop-tail`.
        pub kind: String => label("kind") left(2, "kind") top(1, "kind"),
        /// Bytes that the queue holds at most.
        pub limit_bytes: u64 => gauge("queue_limit", Bytes),
        /// Packets that the queue holds at most.
        pub limit_packets: u64 => gauge("queue_limit", Packets),
        /// Rate that the queue keeps to.
        pub rate_kbit: Option<u64> => gauge("queue_rate", Kbit) right_of(3, "rate", |row, layout| {
            let one_second = Layout { seconds: Some(1.0), ..layout };
            row.rate_kbit.map_or_else(|| "any".to_owned(), |rate| one_second.bytes(rate * 125))
        }),
        /// Packets that came to the queue.
        pub entered: u64 => counter("queue_entered", Packets) right(4, "came"),
        /// Packets that left the queue for the device.
        pub left: u64 => counter("queue_left", Packets) right(5, "left") top(2, "left/s") trend(),
        /// Bytes of packets that left the queue.
        pub left_bytes: u64 => counter("queue_left", Bytes) right(6, "") top(3, "bit/s"),
        /// Packets that found no room.
        pub dropped_full: u64 => counted(Packets) right(7, "no room") top_of(6, "drops/s", |row| {
            Read::Whole((row.dropped_full + row.dropped_delay).into())
        }),
        /// Packets that were dropped to keep the delay short.
        pub dropped_delay: u64 => counted(Packets) right(8, "too late"),
        /// Packets marked with "congestion experienced" where they would have been dropped, or by `ce_threshold_us`.
        #[serde(default)]
        pub marked: u64 => counter("queue_marked", Packets) right(9, "marked") top(7, "marks/s"),
        /// Flows that wait and have not had a turn: they go first.
        #[serde(default)]
        pub flows_new: u64 => state(Plain) top_of(8, "flows", |row| Read::Whole((row.flows_new + row.flows_old).into())),
        /// Flows that wait and have had a turn.
        #[serde(default)]
        pub flows_old: u64 => state(Plain) right_of(10, "flows", |row, _| match row.flows_new + row.flows_old {
            0 => String::new(),
            _ => format!("{} new, {} old", row.flows_new, row.flows_old),
        }),
        /// Times that a flow without packets got one.
        #[serde(default)]
        pub flows_started: u64 => counter("queue_flows_started", Plain),
        /// Packets in the queue.
        pub waiting: u64 => gauge("queue_waiting", Packets)
            right_of(11, "waiting", |row, _| grouped(row.waiting)) top(4, "waiting"),
        /// Bytes of waiting packets that the device has no room for.
        pub waiting_bytes: u64 => gauge("queue_waiting", Bytes)
            right_of(12, "", |row, layout| Layout { seconds: None, ..layout }.bytes(row.waiting_bytes)),
        /// Time for which the packet that left last has waited.
        pub wait_nanos: u64 => gauge("queue_wait", Nanos) right(13, "last wait") top(5, "wait"),
        /// Sum of the times for which packets waited that left.
        #[serde(default)]
        pub waited_nanos: u64 => counted(Nanos),
        /// Packets that left, in classes by that time, shortest first.
        #[serde(default)]
        pub waits: Vec<WaitRow> => rows(),
        /// Classes of traffic, for `cake`.
        #[serde(default)]
        pub tins: Vec<TinRow> => rows(),
        /// Flows with most bytes in the queue, at most ten.
        #[serde(default)]
        pub flows: Vec<QueuedFlowRow>,
        /// Hosts with most bytes in the queue, at most ten, for `cake`.
        #[serde(default)]
        pub hosts: Vec<QueuedHostRow>,
    }
    also &[
        Family::gauges(("queue_flows", Plain), "Flows that wait in the queue, by list.", |row| {
            let of = |list: &str, flows: u64| (Labels::one("list", list), flows.into());
            vec![of("new", row.flows_new), of("old", row.flows_old)]
        }),
        Family::counters(("queue_dropped", Packets), "Packets that the queue dropped, by cause.", |row| {
            let of = |cause: &str, packets: u64| (Labels::one("cause", cause), packets.into());
            vec![of("full", row.dropped_full), of("delay", row.dropped_delay)]
        }),
        Family::histogram("queue_waited", "Waiting time of packets that left the queue.", |row| {
            let classes = row.waits.iter().map(|class| (class.longest_nanos, class.packets)).collect();
            Distribution { nanos: row.waited_nanos, classes }
        }),
    ];

    /// Packets that waited for a time of one class.
    #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    pub struct WaitRow {
        /// Longest time of the class; `null` for what waited longer than all others.
        pub longest_nanos: Option<u64> => key(),
        /// Packets; of this class alone.
        pub packets: u64 => counted(Packets),
    }

    /// A class of traffic in a queue.
    #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    pub struct TinRow {
        /// `bulk`, `best-effort`, `video` or `voice`.
        pub tin: String => key() label("tin") left(0, "tin"),
        /// Packets that came to the tin, except those that found no room at once.
        pub entered: u64 => counter("queue_tin_entered", Packets) right(1, "came"),
        /// Packets that left the tin for the device.
        pub left: u64 => counter("queue_tin_left", Packets) right(2, "left"),
        /// Bytes of packets that left the tin.
        pub left_bytes: u64 => counter("queue_tin_left", Bytes) right(3, ""),
        /// Packets of the tin that were dropped to make room.
        pub dropped_full: u64 => counted(Packets) right(4, "no room"),
        /// Packets of the tin that were dropped to keep the delay short.
        pub dropped_delay: u64 => counted(Packets) right(5, "too late"),
        /// Packets of the tin that were marked with "congestion experienced".
        pub marked: u64 => counter("queue_tin_marked", Packets) right(6, "marked"),
        /// Packets in the tin.
        pub waiting: u64 => gauge("queue_tin_waiting", Packets)
            right_of(7, "waiting", |row, _| grouped(row.waiting)),
        /// Bytes of those.
        pub waiting_bytes: u64 => gauge("queue_tin_waiting", Bytes)
            right_of(8, "", |row, layout| Layout { seconds: None, ..layout }.bytes(row.waiting_bytes)),
        /// Time for which the packet of the tin that left last has waited.
        pub wait_nanos: u64 => gauge("queue_tin_wait", Nanos) right(9, "last wait"),
    }
    also &[Family::counters(("queue_tin_dropped", Packets), "Packets of the tin that the queue dropped, by cause.", |row| {
        let of = |cause: &str, packets: u64| (Labels::one("cause", cause), packets.into());
        vec![of("full", row.dropped_full), of("delay", row.dropped_delay)]
    })];

    /// A flow in a queue.
    #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    pub struct QueuedFlowRow {
        /// Protocol, addresses and ports of its first packet; in a tunnel, of the packet inside.
        pub flow: String => key() left(0, "flow"),
        /// Its tin; none where the queue has no tins.
        pub tin: Option<String> => key() left(1, "tin"),
        /// `new` if it has not had a turn, `old` if it has.
        pub list: String => left(2, "list"),
        /// Bytes that wait.
        pub bytes: u64 => state(Bytes)
            right_of(3, "waiting", |row, layout| Layout { seconds: None, ..layout }.bytes(row.bytes)),
        /// Time for which its first packet has waited.
        pub wait_nanos: u64 => state(Nanos) right(4, "for"),
    }

    /// A host with flows in a queue.
    #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    pub struct QueuedHostRow {
        /// Its address.
        pub host: String => key() left(0, "host"),
        /// `source` if it sends the packets, `destination` if it receives them.
        pub role: String => key() left(1, "as"),
        /// Its tin; none where the queue has no tins.
        pub tin: Option<String> => key() left(2, "tin"),
        /// Flows of the host.
        pub flows: u64 => state(Plain) right(3, "flows"),
        /// Bytes that wait.
        pub bytes: u64 => state(Bytes)
            right_of(4, "waiting", |row, layout| Layout { seconds: None, ..layout }.bytes(row.bytes)),
    }
}

impl QueueRow {
    /// Name of the queue.
    fn title(&self) -> String {
        let way = if self.way == "down" { " down" } else { "" };
        format!("{} #{}{way}", self.port, self.worker)
    }
}

pub(super) fn draw(rows: &[QueueRow], layout: Layout) -> String {
    if rows.is_empty() {
        return "No port has a queue; `queue = { kind = \"fq_codel\" }` gives it one.\n".to_owned();
    }
    let mut table = Table::of::<QueueRow>(layout);
    rows.iter().for_each(|row| table.add(row));
    rows.iter().fold(table.draw(), |text, row| text + &contents(row, layout))
}

/// Tins of a queue, and the flows and hosts that wait in it.
fn contents(row: &QueueRow, layout: Layout) -> String {
    let tables = [of(&row.tins, layout), of(&row.hosts, layout), of(&row.flows, layout)];
    if tables.iter().all(Option::is_none) {
        return String::new();
    }
    let title = format!("\n{}\n", row.title());
    tables.into_iter().flatten().fold(title, |text, table| text + &table)
}

/// Table of the rows; `None` if there are none.
fn of<R: Row>(rows: &[R], layout: Layout) -> Option<String> {
    let mut table = Table::of::<R>(layout);
    rows.iter().for_each(|row| table.add(row));
    (!rows.is_empty()).then(|| table.draw())
}

#[cfg(test)]
mod tests {
    use super::super::row::subtract_rows;
    use super::*;

    #[test]
    fn what_waits_is_shown_as_it_is_and_the_rest_by_the_second() {
        let waits = |packets| vec![WaitRow { longest_nanos: Some(1), packets }];
        let then = QueueRow {
            port: "radio".to_owned(),
            left: 10,
            waiting: 3,
            waits: waits(10),
            ..QueueRow::default()
        };
        let now = QueueRow { left: 27, waiting: 5, rate_kbit: Some(8_000), waits: waits(27), ..then.clone() };
        let mut rows = [now];
        subtract_rows(&mut rows, &[then]);
        assert_eq!((rows[0].left, rows[0].waiting, rows[0].waits[0].packets), (17, 5, 17));
        let text = draw(&rows, Layout { seconds: Some(1.0), ..Layout::PLAIN });
        for part in ["17/s", "8.00 Mbit/s", " 5 "] {
            assert!(text.contains(part), "{part} in {text}");
        }
        assert!(draw(&[], Layout::PLAIN).contains("codel"));
    }
}
