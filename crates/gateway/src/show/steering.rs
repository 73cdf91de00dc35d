//! `polder show steering`: distribution of packets among workers.

use super::family::Unit::{Batches, Nanos, Packets, Permille, Plain};
use super::layout::Layout;
use super::row::{Read, rows};
use super::table::Table;
use serde::{Deserialize, Serialize};

rows! {
    /// Distribution of packets among workers.
    #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    pub struct Steering {
        /// Ports whose packets are steered, with their order.
        pub ports: Vec<SteeredPort>,
        /// All workers.
        pub workers: Vec<SteeringRow> => rows(),
        /// Buckets that packets have come for, by the worker that received them.
        pub buckets: Vec<BucketRow> => rows(),
        /// The heaviest flows of the last seconds, the heaviest first.
        pub flows: Vec<FlowRow>,
    }

    /// One worker.
    #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    pub struct SteeringRow {
        /// Its number.
        pub number: usize => key() label("worker") right(0, "worker"),
        /// Part of the last interval in which the worker had work.
        pub busy_permille: u32 => gauge("steering_busy", Permille) right(1, "busy"),
        /// Part of the batches that left more where they came from.
        pub pressed_permille: u32 => gauge("steering_pressed", Permille) right(2, "backlog"),
        /// Part of the last interval that packets took in the stages.
        pub worked_permille: u32 => gauge("steering_worked", Permille) right(3, "in the stages"),
        /// Mean time of a packet in the last interval.
        pub packet_nanos: u32 => gauge("steering_packet_time", Nanos) right(4, "a packet"),
        /// Packets handed to the workers that their flows belong to.
        pub steered: u64 => counter("steering_steered", Packets) right(5, "steered away"),
        /// Packets that other workers handed to this one.
        pub steered_here: u64 => counter("steering_steered_here", Packets) right(6, "steered here"),
        /// Packets received and offered to idle workers.
        pub offered: u64 => counter("steering_offered", Packets) right(7, "offered"),
        /// Offered packets that the worker worked on.
        pub pulled: u64 => counter("steering_pulled", Packets) right(8, "worked on"),
        /// Work batches of other workers that the worker worked on.
        pub helped: u64 => counter("steering_helped", Batches),
        /// Packets whose order the worker restored.
        pub restored: u64 => counter("steering_restored", Packets) right(9, "restored"),
        /// Tickets that the worker gave up waiting for.
        pub expired: u64 => counter("steering_expired_tickets", Plain),
        /// Times that a bucket became spread, or hashed again.
        pub changes: u64 => counter("steering_bucket_changes", Plain) right(10, "changes"),
        /// Packets dropped because there was no ticket or no room in a ring.
        pub no_core: u64 => counter("steering_no_core", Packets) right(11, "no core"),
        /// Packets dropped because they came after their turn.
        pub late: u64 => counter("steering_late", Packets) right(12, "late"),
    }

    /// One bucket of one receiving worker.
    #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    pub struct BucketRow {
        /// The worker that receives it.
        pub receiver: usize => key() right(2, "received by"),
        /// Its number.
        pub bucket: usize => key() right(0, "bucket"),
        /// The order of the ports whose packets it has; `pinned` for packets that stay with their worker whatever
        /// the order.
        pub order: String => left(1, "order"),
        /// Its home.
        pub home: usize => right(3, "home"),
        /// True if it is spread.
        pub spread: bool => left_of(4, "", |row, _| if row.spread { "spread" } else { "" }.to_owned()),
        /// Packets.
        pub packets: u64 => counted(Packets) right(5, "packets"),
        /// The part of a worker's time that it took in the last interval, in thousandths.
        pub load_permille: u32 => state(Permille) right(6, "of a worker"),
    }

    /// One of the heaviest flows.
    #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    pub struct FlowRow {
        /// Addresses and ports of the flow.
        pub flow: String => left_of(0, "heaviest flow", |row, _| {
            format!("{}{}", row.flow, if row.inside { ", in a tunnel" } else { "" })
        }) top_of(0, "flow", |row| Read::Text(row.flow.replace('→', ">"))),
        /// The port that it comes in by.
        pub port: String => left(1, "port") top(1, "port"),
        /// True if it was found inside tunnel packets.
        pub inside: bool,
        /// Its hash.
        pub hash: u32,
        /// Its part of all the time that was measured lately, in thousandths; an estimate from above.
        pub share_permille: u64 => state(Permille) right(2, "of the time") top(4, "of time") trend(),
        /// The estimate is not more than this too high.
        pub error_permille: u64 => state(Permille) right(3, "±"),
    }
}

/// A port whose packets are steered.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SteeredPort {
    /// Name of the port.
    pub port: String,
    /// Order mode: `hash`, `spread` or `auto`.
    pub order: String,
}

/// Maximum number of buckets and flows drawn; the rows have all.
const MOST: usize = 10;

pub(super) fn draw(steering: &Steering, layout: Layout) -> String {
    if steering.workers.is_empty() {
        return "No packet is steered: give a port an `order`, and the gateway several `workers`.\n"
            .to_owned();
    }
    let ports = steering.ports.iter().map(|port| format!("{} by {}", port.port, port.order));
    let mut text = format!("{}\n\n", layout.dim(&ports.collect::<Vec<_>>().join(", ")));
    text.push_str(&workers(&steering.workers, layout));
    text.push('\n');
    text.push_str(&buckets(&steering.buckets, layout));
    text.push('\n');
    text.push_str(&flows(&steering.flows, layout));
    text
}

fn workers(rows: &[SteeringRow], layout: Layout) -> String {
    let mut table = Table::of::<SteeringRow>(layout);
    for row in rows {
        table.add(row);
        if row.expired > 0 {
            let text = format!("{} tickets expired because a worker stalled", layout.count(row.expired));
            table.note(format!("{} {text}", layout.odd("!")));
        }
    }
    table.draw()
}

fn buckets(rows: &[BucketRow], layout: Layout) -> String {
    let mut rows = rows.iter().filter(|row| row.packets > 0).collect::<Vec<_>>();
    rows.sort_by_key(|row| core::cmp::Reverse((row.load_permille, row.packets)));
    let mut table = Table::of::<BucketRow>(layout);
    rows.iter().take(MOST).for_each(|row| table.add(*row));
    if rows.len() > MOST {
        table.note(layout.dim(&format!("and {} smaller ones; --json lists all", rows.len() - MOST)));
    }
    table.draw()
}

fn flows(rows: &[FlowRow], layout: Layout) -> String {
    let mut table = Table::of::<FlowRow>(layout);
    rows.iter().take(MOST).for_each(|row| table.add(row));
    table.draw()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_heaviest_stand_first_and_the_rest_is_counted() {
        let bucket = |bucket, load_permille| BucketRow {
            bucket,
            load_permille,
            packets: 1,
            spread: bucket == 17,
            ..BucketRow::default()
        };
        let mut buckets = (0..12).map(|number| bucket(number, 1)).collect::<Vec<_>>();
        buckets.push(bucket(17, 612));
        let flow = FlowRow {
            flow: "TCP 10.0.0.1:1 → 10.0.0.2:2".to_owned(),
            inside: true,
            share_permille: 987,
            ..FlowRow::default()
        };
        let workers = vec![SteeringRow { busy_permille: 1000, ..SteeringRow::default() }];
        let steering = Steering { buckets, workers, flows: vec![flow], ..Steering::default() };
        let text = draw(&steering, Layout::PLAIN);
        for part in ["100.0 %", "and 3 smaller ones", "10.0.0.2:2, in a tunnel", "98.7 %"] {
            assert!(text.contains(part), "{part} in {text}");
        }
        let lines = text.lines().collect::<Vec<_>>();
        let title = lines.iter().position(|line| line.contains("received by")).expect("a table");
        assert!(lines[title + 1].contains("17") && lines[title + 1].contains("61.2 %"), "{text}");
        assert!(draw(&Steering::default(), Layout::PLAIN).contains("order"));
    }
}
