//! `polder show steering`: which worker does what for whom.

use super::look::{Look, duration};
use super::table::{Align, Table};
use serde::{Deserialize, Serialize};

/// Distribution of packets among workers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Steering {
    /// Ports whose packets are steered, with their order.
    pub ports: Vec<SteeredPort>,
    /// All workers.
    pub workers: Vec<SteeringRow>,
    /// Buckets that packets have come for, by the worker that received them.
    pub buckets: Vec<BucketRow>,
    /// The heaviest flows of the last seconds, the heaviest first.
    pub flows: Vec<FlowRow>,
}

/// A port whose packets are steered.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SteeredPort {
    /// Its name.
    pub port: String,
    /// `hash`, `spread` or `auto`.
    pub order: String,
}

/// One worker.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SteeringRow {
    /// Its number.
    pub number: usize,
    /// Time of the last interval in which it had work, in thousandths.
    pub busy_permille: u32,
    /// Of the batches that came, those that left more where they came from, in thousandths.
    pub pressed_permille: u32,
    /// Time of the last interval that its packets took in the stages, in thousandths.
    pub worked_permille: u32,
    /// Mean time of a packet.
    pub packet_nanos: u32,
    /// Packets that it handed to the workers that their flows belong to.
    pub steered: u64,
    /// Packets that others handed to it.
    pub steered_here: u64,
    /// Packets that it received and offered to idle workers.
    pub offered: u64,
    /// Packets of those and of others' that it worked on.
    pub pulled: u64,
    /// Work batches of others that it worked on.
    pub helped: u64,
    /// Packets whose order it restored.
    pub restored: u64,
    /// Tickets that it gave up waiting for.
    pub expired: u64,
    /// Times that one of its buckets became spread, or hashed again.
    pub changes: u64,
    /// Packets dropped because there was no ticket or no room in a ring.
    pub no_core: u64,
    /// Packets dropped because they came after their turn.
    pub late: u64,
}

/// One bucket of one receiving worker.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BucketRow {
    /// The worker that receives it.
    pub receiver: usize,
    /// Its number.
    pub bucket: usize,
    /// The order of the ports whose packets it has; `pinned` for packets that stay with their worker whatever
    /// the order.
    pub order: String,
    /// Its home.
    pub home: usize,
    /// True if it is spread.
    pub spread: bool,
    /// Packets.
    pub packets: u64,
    /// The part of a worker's time that it took in the last interval, in thousandths.
    pub load_permille: u32,
}

/// One of the heaviest flows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowRow {
    /// Addresses and ports of the flow.
    pub flow: String,
    /// The port that it comes in by.
    pub port: String,
    /// True if it was found inside tunnel packets.
    pub inside: bool,
    /// Its hash.
    pub hash: u32,
    /// Its part of all the time that was measured lately, in thousandths; an estimate from above.
    pub share_permille: u64,
    /// The estimate is not more than this too high.
    pub error_permille: u64,
}

/// Subtracts the counters of an earlier view. Loads and flows are of the last moments anyway.
pub(super) fn subtract(now: &mut Steering, earlier: &Steering) {
    for row in &mut now.workers {
        let Some(then) = earlier.workers.iter().find(|then| then.number == row.number) else { continue };
        let counters = [
            (&mut row.steered, then.steered),
            (&mut row.steered_here, then.steered_here),
            (&mut row.offered, then.offered),
            (&mut row.pulled, then.pulled),
            (&mut row.helped, then.helped),
            (&mut row.restored, then.restored),
            (&mut row.expired, then.expired),
            (&mut row.changes, then.changes),
            (&mut row.no_core, then.no_core),
            (&mut row.late, then.late),
        ];
        counters.into_iter().for_each(|(now, then)| *now = now.saturating_sub(then));
    }
    for row in &mut now.buckets {
        let same = |then: &&BucketRow| (then.receiver, then.bucket) == (row.receiver, row.bucket);
        if let Some(then) = earlier.buckets.iter().find(same) {
            row.packets = row.packets.saturating_sub(then.packets);
        }
    }
}

/// Buckets and flows that are drawn; the rows have all.
const MOST: usize = 10;

pub(super) fn draw(steering: &Steering, look: Look) -> String {
    if steering.workers.is_empty() {
        return "No packet is steered: give a port an `order`, and the gateway several `workers`.\n"
            .to_owned();
    }
    let ports = steering.ports.iter().map(|port| format!("{} by {}", port.port, port.order));
    let mut text = format!("{}\n\n", look.dim(&ports.collect::<Vec<_>>().join(", ")));
    text.push_str(&workers(&steering.workers, look));
    text.push('\n');
    text.push_str(&buckets(&steering.buckets, look));
    text.push('\n');
    text.push_str(&flows(&steering.flows, look));
    text
}

fn workers(rows: &[SteeringRow], look: Look) -> String {
    let columns = [
        ("worker", Align::Right),
        ("busy", Align::Right),
        ("backlog", Align::Right),
        ("in the stages", Align::Right),
        ("a packet", Align::Right),
        ("steered away", Align::Right),
        ("steered here", Align::Right),
        ("offered", Align::Right),
        ("worked on", Align::Right),
        ("restored", Align::Right),
        ("changes", Align::Right),
        ("no core", Align::Right),
        ("late", Align::Right),
    ];
    let mut table = Table::new(look, columns);
    for row in rows {
        table.row([
            row.number.to_string(),
            permille(row.busy_permille.into()),
            permille(row.pressed_permille.into()),
            permille(row.worked_permille.into()),
            duration(row.packet_nanos.into()),
            look.count(row.steered),
            look.count(row.steered_here),
            look.count(row.offered),
            look.count(row.pulled),
            look.count(row.restored),
            look.count(row.changes),
            look.count(row.no_core),
            look.count(row.late),
        ]);
        if row.expired > 0 {
            let text = format!("{} tickets were given up: a worker stood still", look.count(row.expired));
            table.note(format!("{} {text}", look.odd("!")));
        }
    }
    table.draw()
}

fn buckets(rows: &[BucketRow], look: Look) -> String {
    let mut rows = rows.iter().filter(|row| row.packets > 0).collect::<Vec<_>>();
    rows.sort_by_key(|row| core::cmp::Reverse((row.load_permille, row.packets)));
    let columns = [
        ("bucket", Align::Right),
        ("order", Align::Left),
        ("received by", Align::Right),
        ("home", Align::Right),
        ("", Align::Left),
        ("packets", Align::Right),
        ("of a worker", Align::Right),
    ];
    let mut table = Table::new(look, columns);
    for row in rows.iter().take(MOST) {
        table.row([
            row.bucket.to_string(),
            row.order.clone(),
            row.receiver.to_string(),
            row.home.to_string(),
            if row.spread { "spread" } else { "" }.to_owned(),
            look.count(row.packets),
            permille(row.load_permille.into()),
        ]);
    }
    if rows.len() > MOST {
        table.note(look.dim(&format!("and {} lighter ones; --json has all", rows.len() - MOST)));
    }
    table.draw()
}

fn flows(rows: &[FlowRow], look: Look) -> String {
    let columns = [
        ("heaviest flow", Align::Left),
        ("port", Align::Left),
        ("of the time", Align::Right),
        ("±", Align::Right),
    ];
    let mut table = Table::new(look, columns);
    for row in rows.iter().take(MOST) {
        let inside = if row.inside { ", in a tunnel" } else { "" };
        table.row([
            format!("{}{inside}", row.flow),
            row.port.clone(),
            permille(row.share_permille),
            permille(row.error_permille),
        ]);
    }
    table.draw()
}

fn permille(value: u64) -> String {
    format!("{}.{} %", value / 10, value % 10)
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
        let text = draw(&steering, Look::PLAIN);
        for part in ["100.0 %", "and 3 lighter ones", "10.0.0.2:2, in a tunnel", "98.7 %"] {
            assert!(text.contains(part), "{part} in {text}");
        }
        let lines = text.lines().collect::<Vec<_>>();
        let title = lines.iter().position(|line| line.contains("received by")).expect("a table");
        assert!(lines[title + 1].contains("17") && lines[title + 1].contains("61.2 %"), "{text}");
        assert!(draw(&Steering::default(), Look::PLAIN).contains("order"));
    }
}
