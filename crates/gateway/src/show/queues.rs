//! `polder show queues`.

use super::family::Unit::{Bytes, Kbit, Nanos, Packets};
use super::family::{Distribution, Family, Labels};
use super::layout::{Layout, grouped};
use super::row::{Read, rows};
use super::table::Table;
use serde::{Deserialize, Serialize};

rows! {
    /// A queue in front of one sending queue of a port.
    #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    pub struct QueueRow {
        /// The port.
        pub port: String => key() label("port") left(0, "port") top_of(0, "queue", |row| {
            Read::Text(format!("{} #{}", row.port, row.worker))
        }),
        /// The worker that has it.
        pub worker: usize => key() label("worker") right(1, "worker"),
        /// Discipline: `drop-tail` or `codel`.
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
        /// Packets in the queue.
        pub waiting: u64 => gauge("queue_waiting", Packets)
            right_of(9, "waiting", |row, _| grouped(row.waiting)) top(4, "waiting"),
        /// Bytes of waiting packets that the device has no room for.
        pub waiting_bytes: u64 => gauge("queue_waiting", Bytes)
            right_of(10, "", |row, layout| Layout { seconds: None, ..layout }.bytes(row.waiting_bytes)),
        /// Time for which the packet that left last has waited.
        pub wait_nanos: u64 => gauge("queue_wait", Nanos) right(11, "last wait") top(5, "wait"),
        /// Sum of the times for which packets waited that left.
        #[serde(default)]
        pub waited_nanos: u64 => counted(Nanos),
        /// Packets that left, in classes by that time, shortest first.
        #[serde(default)]
        pub waits: Vec<WaitRow> => rows(),
    }
    also &[
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
}

pub(super) fn draw(rows: &[QueueRow], layout: Layout) -> String {
    if rows.is_empty() {
        return "No port has a queue; `queue = { kind = \"codel\" }` gives it one.\n".to_owned();
    }
    let mut table = Table::of::<QueueRow>(layout);
    rows.iter().for_each(|row| table.add(row));
    table.draw()
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
