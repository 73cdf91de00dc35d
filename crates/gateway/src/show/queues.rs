//! `polder show queues`.

use super::look::{Look, duration};
use super::table::{Align, Table};
use serde::{Deserialize, Serialize};

/// A queue in front of one sending queue of a port.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueRow {
    /// The port.
    pub port: String,
    /// The worker that has it.
    pub worker: usize,
    /// Discipline: `drop-tail` or `codel`.
    pub kind: String,
    /// Bytes that it holds at most.
    pub limit_bytes: u64,
    /// Packets that it holds at most.
    pub limit_packets: u64,
    /// The rate that it keeps to, in kbit/s.
    pub rate_kbit: Option<u64>,
    /// Packets that came.
    pub entered: u64,
    /// Packets that left for the device.
    pub left: u64,
    /// Bytes of those.
    pub left_bytes: u64,
    /// Packets that found no room.
    pub dropped_full: u64,
    /// Packets that were dropped to keep the delay short.
    pub dropped_delay: u64,
    /// Packets in it.
    pub waiting: u64,
    /// Bytes of those that the device has no room for.
    pub waiting_bytes: u64,
    /// Time for which the packet that left last has waited.
    pub wait_nanos: u64,
    /// Sum of the times for which packets waited that left.
    #[serde(default)]
    pub waited_nanos: u64,
    /// Packets that left, in classes by that time, shortest first.
    #[serde(default)]
    pub waits: Vec<WaitRow>,
}

/// Packets that waited for a time of one class.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitRow {
    /// Longest time of the class; `null` for what waited longer than all others.
    pub longest_nanos: Option<u64>,
    /// Packets; of this class alone.
    pub packets: u64,
}

/// Subtracts the counters of an earlier view.
pub(super) fn subtract(rows: &mut [QueueRow], earlier: &[QueueRow]) {
    for row in rows {
        let same = |then: &&QueueRow| (&then.port, then.worker) == (&row.port, row.worker);
        let Some(then) = earlier.iter().find(same) else { continue };
        row.entered = row.entered.saturating_sub(then.entered);
        row.left = row.left.saturating_sub(then.left);
        row.left_bytes = row.left_bytes.saturating_sub(then.left_bytes);
        row.dropped_full = row.dropped_full.saturating_sub(then.dropped_full);
        row.dropped_delay = row.dropped_delay.saturating_sub(then.dropped_delay);
        row.waited_nanos = row.waited_nanos.saturating_sub(then.waited_nanos);
        for (class, then) in row.waits.iter_mut().zip(&then.waits) {
            class.packets = class.packets.saturating_sub(then.packets);
        }
    }
}

pub(super) fn draw(rows: &[QueueRow], look: Look) -> String {
    if rows.is_empty() {
        return "No port has a queue; `queue = { kind = \"codel\" }` gives it one.\n".to_owned();
    }
    let columns = [
        ("port", Align::Left),
        ("worker", Align::Right),
        ("kind", Align::Left),
        ("rate", Align::Right),
        ("came", Align::Right),
        ("left", Align::Right),
        ("", Align::Right),
        ("no room", Align::Right),
        ("too late", Align::Right),
        ("waiting", Align::Right),
        ("", Align::Right),
        ("last wait", Align::Right),
    ];
    let mut table = Table::new(look, columns);
    // What waits is no rate.
    let still = Look { seconds: None, ..look };
    for row in rows {
        let one_second = Look { seconds: Some(1.0), ..look };
        table.row([
            row.port.clone(),
            row.worker.to_string(),
            row.kind.clone(),
            row.rate_kbit.map_or_else(|| "any".to_owned(), |rate| one_second.bytes(rate * 125)),
            look.count(row.entered),
            look.count(row.left),
            look.bytes(row.left_bytes),
            look.count(row.dropped_full),
            look.count(row.dropped_delay),
            still.count(row.waiting),
            still.bytes(row.waiting_bytes),
            duration(row.wait_nanos),
        ]);
    }
    table.draw()
}

#[cfg(test)]
mod tests {
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
        subtract(&mut rows, &[then]);
        assert_eq!((rows[0].left, rows[0].waiting, rows[0].waits[0].packets), (17, 5, 17));
        let text = draw(&rows, Look { seconds: Some(1.0), ..Look::PLAIN });
        for part in ["17/s", "8.00 Mbit/s", " 5 "] {
            assert!(text.contains(part), "{part} in {text}");
        }
        assert!(draw(&[], Look::PLAIN).contains("codel"));
    }
}
