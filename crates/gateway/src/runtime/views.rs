//! The rows of `polder show` about queues.

use super::gateway::{Gateway, PortState, QueueState};
use crate::show::queues::QueueRow;

/// The queues in front of all ports.
pub(super) fn queues(gateway: &Gateway) -> Vec<QueueRow> {
    gateway.ports.iter().flat_map(|port| port.queues.iter().filter_map(|queue| row(port, queue))).collect()
}

fn row(port: &PortState, QueueState { worker, counters }: &QueueState) -> Option<QueueRow> {
    let configured = port.configuration.queue?;
    Some(QueueRow {
        port: port.configuration.name.clone(),
        worker: *worker,
        kind: configured.kind.word().to_owned(),
        limit_bytes: u64::from(configured.limit_bytes),
        limit_packets: configured.limit_packets(),
        rate_kbit: configured.rate_kbit.map(u64::from),
        entered: counters.entered.get(),
        left: counters.left.get(),
        left_bytes: counters.left_bytes.get(),
        dropped_full: counters.full.get(),
        dropped_delay: counters.delay.get(),
        waiting: counters.waiting.get(),
        waiting_bytes: counters.waiting_bytes.get(),
        wait_nanos: counters.wait_nanos.get(),
    })
}
